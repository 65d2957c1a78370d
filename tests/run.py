"""Runs the tests in an environment that reaches nobody: no provider's key, no proxy."""

import os
import re
import subprocess
import sys
from pathlib import Path

DROPPED = re.compile(r"(_API_KEY|_AUTH_TOKEN|_BASE_URL|_API_BASE|_proxy|_PROXY)$|^(OPENAI|ANTHROPIC|THINKGATE(?!_(OPENAI_SCHEMA|TEST_BROWSER)$)|LLM)_")


_FAILED = 1  # pytest's code for tests that failed; everything else is no test's fault


def main() -> int:
    env = {name: value for name, value in os.environ.items() if not DROPPED.search(name)}
    env |= {"THINKGATE_TESTS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    folder = Path(__file__).resolve().parent.parent
    spread = [] if sys.argv[1:] else ["-n", str(max(2, os.cpu_count() or 2)), "--dist", "loadfile"]  # a file's fixtures are made once
    command = [sys.executable, "-m", "pytest", *spread, *sys.argv[1:]]
    code = subprocess.run(command, cwd=folder, env=env, check=False).returncode
    if spread and code == _FAILED:
        print("\nWhat failed runs once more, alone: on a busy machine a time-out says little. What fails again is broken.\n", flush=True)
        code = subprocess.run([sys.executable, "-m", "pytest", "--last-failed", "--last-failed-no-failures=none"], cwd=folder, env=env, check=False).returncode
    return code


if __name__ == "__main__":
    raise SystemExit(main())
