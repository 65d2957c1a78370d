"""Clients as processes of their own, with nothing of this machine's settings: an empty home, no key but the gateway's, no way out."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from installs import NODE, folder_of
from running import KEY, Running

SCRIPTS = Path(__file__).parent / "scripts"
_SECONDS = 60
_NOWHERE = "http://127.0.0.1:9"
"""A proxy that nobody is: what does not go to this machine fails at once."""


def installed(group: str) -> Path:
    """The folder with a group of clients; skips the test where run.py could not install it."""
    folder = folder_of(group)
    if not folder.is_dir():
        pytest.skip(f"the clients of the group {group} are not installed")
    return folder


def closed(home: Path) -> dict[str, str]:
    """The environment of a process that has nobody's settings and reaches nobody but this machine."""
    proxies = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), _NOWHERE)
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **proxies, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


def _end(group: int) -> None:
    """End a process and all that it started and left behind."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended, and what it said."""

    code: int
    out: str
    errors: str


async def run(command: Sequence[str | Path], env: Mapping[str, str], folder: Path, seconds: float = _SECONDS) -> Ended:
    """Without standard input. TimeoutError, with everything that the process started ended, when it takes longer."""
    pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*map(str, command), cwd=folder, env=dict(env), stdin=none, stdout=pipe, stderr=pipe, start_new_session=True)
    try:
        async with asyncio.timeout(seconds):
            out, errors = await process.communicate()
    finally:
        _end(process.pid)
        await process.wait()
    return Ended(process.returncode or 0, out.decode(), errors.decode())


class Worker:
    """A script of the folder scripts/, started once for all its scenarios: importing some SDKs takes seconds."""

    def __init__(self, group: str, script: str, home: Path) -> None:
        folder, file = installed(group), SCRIPTS / script
        # node gets the text of its script, so that packages are looked for in the working directory
        command = ["node", "--input-type=module", "--eval", file.read_text()] if group in NODE else [str(folder / "bin" / "python"), str(file)]
        env = {**closed(home), "OPENAI_AGENTS_DISABLE_TRACING": "1"}
        self._errors = home / "errors.txt"
        pipe = subprocess.PIPE
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(command, cwd=folder, env=env, stdin=pipe, stdout=pipe, stderr=errors, start_new_session=True)

    async def ask(self, running: Running, client: str, scenario: str, model: str = "m", headers: Mapping[str, str] | None = None) -> Any:
        """What the script printed: `pieces` of text, the `failure` that the client raised, the cities its tool was `called` with.

        `headers` go beside the client's own.
        """
        settings = {"OPENAI_BASE_URL": running.url, "OPENAI_API_KEY": KEY, "DEEPSEEK_API_BASE": running.url, "DEEPSEEK_API_KEY": KEY}
        settings |= {"MODEL": model, "HEADERS": json.dumps(dict(headers or {}))}
        asked = json.dumps({"client": client, "scenario": scenario, "settings": settings})
        try:
            async with asyncio.timeout(_SECONDS):
                line = await asyncio.to_thread(self._exchange, asked)
        except TimeoutError:
            self.end()  # which also ends the thread that reads
            raise
        if not line:
            raise AssertionError(self._errors.read_text())
        return json.loads(line)

    def _exchange(self, line: str) -> bytes:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return b""
        return self._process.stdout.readline()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        _end(self._process.pid)
        self._process.communicate()
