"""Runs the tests in an environment that reaches nobody: no provider's key, no proxy."""

import os
import re
import subprocess
import sys
from pathlib import Path

DROPPED = re.compile(r"(_API_KEY|_AUTH_TOKEN|_BASE_URL|_API_BASE|_proxy|_PROXY)$|^(OPENAI|ANTHROPIC|THINKGATE(?!_OPENAI_SCHEMA$)|LLM)_")


def main() -> int:
    env = {name: value for name, value in os.environ.items() if not DROPPED.search(name)}
    env |= {"THINKGATE_TESTS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    folder = Path(__file__).resolve().parent.parent
    spread = [] if sys.argv[1:] else ["-n", str(max(2, os.cpu_count() or 2)), "--dist", "loadfile"]  # a file's fixtures are made once
    return subprocess.run([sys.executable, "-m", "pytest", *spread, *sys.argv[1:]], cwd=folder, env=env, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
