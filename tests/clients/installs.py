"""Puts the pinned clients onto this machine: one folder for each group of packages that fit together, made once for each content of its pins."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("CLIENTS_CACHE") or HERE.parent / ".cache" / "clients")
"""A place outside of the clone serves all clones of a machine."""
PYTHON, NODE = ("langchain", "agents"), ("node", "cli", "servers")
_SECONDS = 600
_OFFLINE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "EHOSTUNREACH", "NewConnectionError", "ReadTimeoutError")


class Unavailable(Exception):
    """The group cannot be had on this machine; the text says why."""


def pins_of(group: str) -> list[Path]:
    """The files that say what a group is made of, to the hash of every package."""
    if group in PYTHON:
        return [HERE / "requirements" / f"{group}.txt"]
    return [HERE / group / name for name in ("package.json", "package-lock.json", ".npmrc")]


def folder_of(group: str) -> Path:
    """Where the group is, or will be: a virtual environment, or a folder with `node_modules`."""
    pins = b"".join(file.read_bytes() for file in pins_of(group))
    return CACHE / f"{group}-{hashlib.sha256(sys.version.encode() + pins).hexdigest()[:12]}"


def install(group: str) -> bool:
    """Whether there was anything to do. Unavailable: no registry can be reached; RuntimeError: the pins cannot be installed."""
    folder = folder_of(group)
    if folder.is_dir():
        return False
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as made:
        fresh = Path(made) / "fresh"
        (_python if group in PYTHON else _node)(fresh, pins_of(group))
        for old in CACHE.glob(f"{group}-*"):
            shutil.rmtree(old)
        fresh.rename(folder)  # whole or not at all: an interrupted run leaves nothing behind
    return True


def _python(folder: Path, pins: list[Path]) -> None:
    _run([sys.executable, "-m", "venv", str(folder)], folder.parent)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps"]
    _run([*pip, "-r", str(pins[0])], folder)


def _node(folder: Path, pins: list[Path]) -> None:
    folder.mkdir()
    for file in pins:
        shutil.copy(file, folder)
    _run(["npm", "ci", "--prefer-offline", "--ignore-scripts"], folder)


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} did not get its packages in {_SECONDS} s") from None
    if done.returncode == 0:
        return
    if any(sign in done.stdout + done.stderr for sign in _OFFLINE):
        raise Unavailable(f"{Path(command[0]).name} cannot reach its registry, and its cache does not have the packages")
    raise RuntimeError(f"{' '.join(command[:4])} ...: {done.stderr.strip()[-2000:]}")
