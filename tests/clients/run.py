"""Installs the pinned clients and runs them against a gateway: `python tests/clients/run.py [arguments for pytest]`.

A machine without Node tests those that need none. Packages that cannot be had make the run
fail, once all others were tested: what was not tested has not passed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import installs

TESTS = installs.HERE.parent


def main() -> int:
    wanting = [group for group in (*installs.PYTHON, *installs.NODE) if group in installs.PYTHON or has_node()]
    missing = [group for group in wanting if not ready(group)]
    wanted = sys.argv[1:] or [str(installs.HERE)]
    command = [sys.executable, str(TESTS / "run.py"), "-rs", *wanted]
    code = subprocess.run(command, env={**os.environ, "CLIENTS": "1"}, check=False).returncode
    if not has_node():
        print(f"not tested, for there is no node and npm: {', '.join(installs.NODE)}")
    if missing:
        print(f"not tested, for want of packages: {', '.join(missing)}")
    return code or int(bool(missing))


def has_node() -> bool:
    return all(map(shutil.which, ("node", "npm")))


def ready(group: str) -> bool:
    started = time.monotonic()
    try:
        if installs.install(group):
            print(f"installed {group}: {megabytes(installs.folder_of(group))} MB in {time.monotonic() - started:.0f} s", flush=True)
    except installs.Unavailable as why:
        print(f"cannot install {group}: {why}", flush=True)
        return False
    return True


def megabytes(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*")) // 1_000_000


if __name__ == "__main__":
    raise SystemExit(main())
