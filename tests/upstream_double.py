"""The one scripted double of a provider: a tiny HTTP/1.1 server, or the same scripts as an httpx transport.

    async with Upstream() as a:
        a.reply({"error": {"message": "slow down"}}, status=429, headers={"retry-after": "3"})
        a.stream(role(), delta("Hel"), 0.05, delta("lo"), CUT)
        a.stream(*answer("Hello"))
        ... base_url=a.url ...
        assert a.requests[0].json["model"] == "m"

Scripts are played in the order in which they were queued, one a request; each `repeat=` times,
the last one for ever. The items of a script:

    dict, str          one SSE event `data: ...`
    (name, dict|str)   one SSE event with an `event:` line
    bytes              these bytes, as they are
    int, float         a pause in seconds
    CUT                the connection is closed; the body stays without its end
    RESET              the connection is reset
    HANG               silence until the other side goes
    an exception       raised by `transport()`; over a socket the same as CUT
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, cast

import httpx


class _Sentinel:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


CUT, RESET, HANG = _Sentinel("CUT"), _Sentinel("RESET"), _Sentinel("HANG")
DONE = "[DONE]"

Item = dict[str, Any] | str | bytes | int | float | tuple[str, Any] | _Sentinel | Exception
Json = dict[str, Any]


# ---- what a chat provider says, to be used as items --------------------------------------------------


def chunk(delta: Json, finish: str | None = None, *, index: int = 0, model: str = "m", id: str = "chatcmpl-double", **more: Any) -> Json:
    """One `chat.completion.chunk` with one choice."""
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {"id": id, "object": "chat.completion.chunk", "created": 1_700_000_000, "model": model, "choices": [choice], **more}


def role(**more: Any) -> Json:
    return chunk({"role": "assistant", "content": ""}, **more)


def delta(text: str, **more: Any) -> Json:
    return chunk({"content": text}, **more)


def thought(text: str, **more: Any) -> Json:
    return chunk({"reasoning_content": text}, **more)


def finish(reason: str = "stop", **more: Any) -> Json:
    return chunk({}, reason, **more)


def usage(prompt: int = 5, completion: int = 3, **more: Any) -> Json:
    """The `choices: []` chunk that `include_usage` asks for."""
    return {**chunk({}, **more), "choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}}


def answer(*texts: str, usage_chunk: bool = False) -> list[Item]:
    """The items of a whole, clean stream."""
    return [role(), *(delta(text) for text in texts), finish(), *([usage()] if usage_chunk else []), DONE]


def tool_call(name: str, arguments: str, *, id: str = "call_1", index: int = 0) -> Json:
    return {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def completion(text: str | None = "Hello", *, finish: str = "stop", model: str = "m", calls: Sequence[Json] = (), **message: Any) -> Json:
    """A whole `chat.completion`; `calls` as `tool_call` makes them, `message` adds fields to the message."""
    said: Json = {"role": "assistant", "content": text, "refusal": None, **message}
    if calls:
        said["tool_calls"] = [{k: v for k, v in call.items() if k != "index"} for call in calls]
        finish = "tool_calls"
    return {
        "id": "chatcmpl-double",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": model,
        "choices": [{"index": 0, "message": said, "finish_reason": finish, "logprobs": None}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8},
    }


def event_bytes(item: Item) -> bytes:
    """The bytes on the wire of an item that has some."""
    if isinstance(item, bytes):
        return item
    name, data = item if isinstance(item, tuple) else (None, item)
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


# ---- what came in --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seen:
    """One request that arrived. `headers` are lower-cased (the last of a name wins), `raw_headers` as sent; `at` is loop time."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    raw_headers: list[tuple[bytes, bytes]]
    raw: bytes
    connection: int
    at: float

    @property
    def json(self) -> Any:
        return json.loads(self.raw)


@dataclass(frozen=True, slots=True)
class Gone:
    """The other side went while it was being answered; `at` is loop time."""

    request: Seen
    at: float


@dataclass(slots=True)
class Script:
    """What one request gets. `raw`: the items are the whole conversation, there is no status line but what they hold."""

    items: Sequence[Item] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0
    body: bytes | None = None
    raw: bool = False
    repeat: int | None = None


class Upstream:
    """A provider that says what its scripts say. `url` has no trailing slash and no `/v1`.

    requests       every request (`Seen`) in order of arrival
    connections    how many were accepted
    open           how many are open now
    disconnected   `Gone` for each answer that the other side did not wait for
    most_at_once   how many requests were being answered at the same time, at most
    """

    def __init__(self, *, ssl: Any = None, host: str = "127.0.0.1") -> None:
        self.requests: list[Seen] = []
        self.connections = 0
        self.open = 0
        self.disconnected: list[Gone] = []
        self.most_at_once = 0
        self._at_once = 0
        self._scripts: list[Script | Callable[[Seen], Script]] = []
        self._played = 0
        self._ssl, self._host = ssl, host
        self._server: asyncio.Server | None = None
        self._live: set[_Connection] = set()
        self._changed: asyncio.Event = asyncio.Event()

    # -- scripts

    def reply(
        self, body: Any = None, *, status: int = 200, headers: Mapping[str, str] | None = None, delay: float = 0.0, repeat: int | None = None
    ) -> Upstream:
        """Queue a plain answer: JSON, or bytes/text as they are; default a `chat.completion`. `delay` is silence before the status line."""
        self._scripts.append(plain(completion() if body is None else body, status=status, headers=headers, delay=delay, repeat=repeat))
        return self

    def stream(self, *items: Item, status: int = 200, headers: Mapping[str, str] | None = None, delay: float = 0.0, repeat: int | None = None) -> Upstream:
        """Queue an event stream; without items a whole clean one that says `Hello`."""
        wanted = {"content-type": "text/event-stream", **(headers or {})}
        self._scripts.append(Script(items or answer("Hel", "lo"), status, wanted, delay, repeat=repeat))
        return self

    def wire(self, *items: Item, repeat: int | None = None) -> Upstream:
        """Queue raw bytes after the request, status line included; the connection is closed after them. No items: closed without an answer."""
        self._scripts.append(Script(items, raw=True, repeat=repeat))
        return self

    def call(self, answer: Callable[[Seen], Script | Any]) -> Upstream:
        """Queue, for ever, a function that makes each answer: a Script (`plain`, `events`), or a body as for `reply`."""

        def made(request: Seen) -> Script:
            out = answer(request)
            return out if isinstance(out, Script) else plain(out)

        self._scripts.append(made)
        return self

    def clear(self) -> None:
        """Forget the scripts and the requests, keep the connections."""
        self._scripts.clear()
        self.requests.clear()
        self.disconnected.clear()
        self._played = 0

    def _next(self, request: Seen) -> Script:
        if not self._scripts:
            return plain({"error": {"message": "the double has no script", "type": "server_error", "param": None, "code": "no_script"}}, status=500)
        script = self._scripts[0]
        if callable(script):
            return script(request)
        self._played += 1
        if self._played >= (script.repeat or 1) and len(self._scripts) > 1:
            self._scripts.pop(0)
            self._played = 0
        return script

    # -- life

    @property
    def port(self) -> int:
        assert self._server is not None, "use it as `async with Upstream() as a:`"
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._ssl else 'http'}://{host}:{self.port}"

    async def __aenter__(self) -> Upstream:
        self._server = await asyncio.get_running_loop().create_server(lambda: _Connection(self), self._host, 0, ssl=self._ssl)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop listening and close every connection at once."""
        if self._server is None:
            return
        self._server.close()
        live = list(self._live)
        for connection in live:
            connection.end()
        await asyncio.gather(*(c.task for c in live if c.task is not None), return_exceptions=True)
        await asyncio.sleep(0)  # lets connection_lost run
        await self._server.wait_closed()

    async def until(self, condition: Callable[[Upstream], Any], timeout: float = 2.0) -> None:
        """Wait until `condition(self)` is true; TimeoutError if it does not become so."""
        async with asyncio.timeout(timeout):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()

    def close_idle(self) -> None:
        """Close every connection that is not answering: a keep-alive time-out of the provider."""
        for connection in list(self._live):
            if connection.idle:
                connection.end()

    def _note(self) -> None:
        self._changed.set()

    # -- without a socket

    def transport(self) -> httpx.MockTransport:
        """The same scripts behind httpx, without a socket; `handle` is also a respx side effect."""
        return httpx.MockTransport(self.handle)

    async def handle(self, request: httpx.Request) -> httpx.Response:
        raw = await request.aread()
        headers = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in request.headers.raw}
        path, _, query = request.url.raw_path.decode("ascii").partition("?")
        seen = Seen(request.method, path, query, headers, list(request.headers.raw), raw, 0, asyncio.get_running_loop().time())
        self.requests.append(seen)
        self._note()
        script = self._next(seen)
        await asyncio.sleep(script.delay)
        if script.raw:
            broken = next((item for item in script.items if isinstance(item, _Sentinel | Exception)), CUT)
            await _break(broken)
        if script.body is not None:
            return httpx.Response(script.status, headers=dict(script.headers), content=script.body)
        return httpx.Response(script.status, headers=dict(script.headers), stream=_Played(self, seen, script.items))


def plain(body: Any, *, status: int = 200, headers: Mapping[str, str] | None = None, delay: float = 0.0, repeat: int | None = None) -> Script:
    """A script for a plain answer."""
    if isinstance(body, bytes | str):
        kind, raw = "text/plain; charset=utf-8", body if isinstance(body, bytes) else body.encode()
    else:
        kind, raw = "application/json", json.dumps(body, ensure_ascii=False).encode()
    return Script((), status, {"content-type": kind, **(headers or {})}, delay, raw, repeat=repeat)


def events(*items: Item, status: int = 200, headers: Mapping[str, str] | None = None, delay: float = 0.0) -> Script:
    """A script for an event stream."""
    return Script(items, status, {"content-type": "text/event-stream", **(headers or {})}, delay)


async def _break(item: Item) -> None:
    if item is HANG:
        await asyncio.Event().wait()
    if isinstance(item, Exception):
        raise item
    raise httpx.ReadError("connection reset") if item is RESET else httpx.RemoteProtocolError("peer closed connection without sending complete message body")


class _Played(httpx.AsyncByteStream):
    def __init__(self, upstream: Upstream, seen: Seen, items: Sequence[Item]) -> None:
        self._upstream, self._seen, self._items, self._ended = upstream, seen, items, False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for item in self._items:
            if isinstance(item, int | float):
                await asyncio.sleep(item)
            elif isinstance(item, _Sentinel | Exception):
                self._ended = item is not HANG
                await _break(item)
            else:
                yield event_bytes(item)
        self._ended = True

    async def aclose(self) -> None:
        if not self._ended:
            self._ended = True
            self._upstream.disconnected.append(Gone(self._seen, asyncio.get_running_loop().time()))
            self._upstream._note()


# ---- over a socket -------------------------------------------------------------------------------------


class _Connection(asyncio.Protocol):
    """One accepted connection: requests one after the other, each answered by its script."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.task: asyncio.Task[None] | None = None
        self._buffer = bytearray()
        self._more = asyncio.Event()
        self._answering: Seen | None = None
        self._ended = False
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def idle(self) -> bool:
        return self._answering is None and not self._buffer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self.upstream.connections += 1
        self.number = self.upstream.connections
        self.upstream.open += 1
        self.upstream._live.add(self)
        self.task = asyncio.ensure_future(self._serve())
        self.upstream._note()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._more.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.upstream.open -= 1
        self.upstream._live.discard(self)
        if self._answering is not None and not self._ended:
            self.upstream.disconnected.append(Gone(self._answering, asyncio.get_running_loop().time()))
        if self.task is not None:
            self.task.cancel()
        self.upstream._note()

    def end(self, *, reset: bool = False) -> None:
        """Close from our side; no `Gone` is noted."""
        self._ended = True
        if reset:
            with socket.socket(fileno=os.dup(self.transport.get_extra_info("socket").fileno())) as raw:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()
        else:
            self.transport.close()
        if self.task is not None and self.task is not asyncio.current_task():
            self.task.cancel()

    async def _serve(self) -> None:
        while not self._ended:
            seen = await self._request()
            self.upstream.requests.append(seen)
            self._answering = seen
            self.upstream._at_once += 1
            self.upstream.most_at_once = max(self.upstream.most_at_once, self.upstream._at_once)
            self.upstream._note()
            try:
                await self._answer(seen, self.upstream._next(seen))
            finally:
                self.upstream._at_once -= 1
            self._answering = None

    # -- reading

    async def _until(self, end: bytes) -> bytes:
        while (at := self._buffer.find(end)) < 0:
            self._more.clear()
            await self._more.wait()
        return self._take(at + len(end))

    async def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._more.clear()
            await self._more.wait()
        return self._take(count)

    def _take(self, count: int) -> bytes:
        out = bytes(self._buffer[:count])
        del self._buffer[:count]
        return out

    async def _request(self) -> Seen:
        head = await self._until(b"\r\n\r\n")
        line, *lines = head[:-4].split(b"\r\n")
        method, target, _ = line.split(b" ", 2)
        raw_headers = [(name, value.strip()) for name, _, value in (field.partition(b":") for field in lines)]
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in raw_headers}
        if headers.get("expect", "").lower() == "100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await self._chunked() if "chunked" in headers.get("transfer-encoding", "") else await self._exactly(int(headers.get("content-length", 0)))
        path, _, query = target.decode("latin-1").partition("?")
        return Seen(method.decode(), path, query, headers, raw_headers, body, self.number, asyncio.get_running_loop().time())

    async def _chunked(self) -> bytes:
        body = b""
        while size := int((await self._until(b"\r\n")).split(b";")[0], 16):
            body += (await self._exactly(size + 2))[:-2]
        await self._until(b"\r\n")
        return body

    # -- answering

    async def _answer(self, seen: Seen, script: Script) -> None:
        await asyncio.sleep(script.delay)
        if script.raw:
            if await self._play(script.items, chunked=False):
                self.end()
            return
        whole = script.body is not None
        framing = {"content-length": str(len(script.body or b""))} if whole else {"transfer-encoding": "chunked"}
        head = f"HTTP/1.1 {script.status} Scripted\r\n" + "".join(f"{k}: {v}\r\n" for k, v in {**framing, **script.headers}.items())
        self._write(head.encode("latin-1") + b"\r\n" + (b"" if seen.method == "HEAD" else script.body or b""))
        if not whole and await self._play(script.items, chunked=True):
            self._write(b"0\r\n\r\n")
        if not self._ended and seen.headers.get("connection", "").lower() == "close":
            self.end()

    async def _play(self, items: Sequence[Item], *, chunked: bool) -> bool:
        """Whether the items came to their end."""
        for item in items:
            if isinstance(item, int | float):
                await asyncio.sleep(item)
            elif item is HANG:
                await asyncio.Event().wait()
            elif isinstance(item, _Sentinel | Exception):
                self.end(reset=item is RESET)
                return False
            else:
                data = event_bytes(item)
                self._write(b"%x\r\n%b\r\n" % (len(data), data) if chunked and data else data)
                await self._writable.wait()
        return True

    def _write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)
