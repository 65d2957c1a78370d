"""Runs the scripts of the folder node/ with the packages of its lock file."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from running import KEY, Running

SCRIPTS = Path(__file__).parent / "node"
CACHE = Path(__file__).parent.parent / ".cache" / "node"
_OFFLINE = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH", "EHOSTUNREACH")
_INSTALL_SECONDS = 120
_SCRIPT_SECONDS = 30

Node = Callable[..., Awaitable[Any]]


def packages() -> Path:
    """The folder with the packages of the lock file, installed once for each content of it; skips where that cannot be."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("needs node and npm")
    wanted = [SCRIPTS / name for name in ("package.json", "package-lock.json", ".npmrc")]
    folder = CACHE / hashlib.sha256(b"".join(file.read_bytes() for file in wanted)).hexdigest()[:12]
    if folder.is_dir():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as made:
        fresh = Path(made) / "fresh"
        fresh.mkdir()
        for file in wanted:
            shutil.copy(file, fresh)
        _install(fresh)
        if not folder.is_dir():
            fresh.rename(folder)  # whole or not at all: an interrupted run leaves nothing behind
    return folder


def _install(folder: Path) -> None:
    try:
        done = subprocess.run(["npm", "ci", "--prefer-offline"], cwd=folder, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("npm did not get its packages in time")
    if done.returncode and any(sign in done.stderr for sign in _OFFLINE):
        pytest.skip("npm cannot reach its registry, and its cache does not have the packages")
    assert done.returncode == 0, done.stderr


async def run(folder: Path, running: Running, script: str, **given: Any) -> Any:
    """Run node/SCRIPT.mjs against a gateway; gives the JSON that it prints.

    The script gets `given` as JSON in its first argument, address and key in the variables that the SDK reads itself.
    """
    env = {"PATH": os.environ["PATH"], "OPENAI_BASE_URL": running.url, "OPENAI_API_KEY": KEY}
    # the script comes from stdin, so that its packages are looked for in the working directory
    command = ("node", "--input-type=module", "-", json.dumps(given))
    pipe = subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=env, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(_SCRIPT_SECONDS):
            out, errors = await process.communicate((SCRIPTS / f"{script}.mjs").read_bytes())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, errors.decode()
    return json.loads(out)
