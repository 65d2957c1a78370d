"""Installs the pinned clients and runs them against a gateway: `python tests/clients/run.py [arguments for pytest]`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import installs

TESTS = installs.HERE.parent


def main() -> int:
    missing = [group for group in (*installs.PYTHON, *installs.NODE) if not ready(group)]
    wanted = sys.argv[1:] or [str(installs.HERE)]
    command = [sys.executable, str(TESTS / "run.py"), "-rs", *wanted]
    code = subprocess.run(command, env={**os.environ, "CLIENTS": "1"}, check=False).returncode
    if missing:
        print(f"not tested, for want of packages: {', '.join(missing)}")
    return code


def ready(group: str) -> bool:
    started = time.monotonic()
    try:
        if installs.install(group):
            print(f"installed {group}: {megabytes(installs.folder_of(group))} MB in {time.monotonic() - started:.0f} s", flush=True)
    except installs.Unavailable as why:
        print(f"skipped {group}: {why}", flush=True)
        return False
    return True


def megabytes(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*")) // 1_000_000


if __name__ == "__main__":
    raise SystemExit(main())
