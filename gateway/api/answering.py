"""From a Model's chunks to the client: a JSON body or an event stream, headers, and errors in their places."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any

from starlette.requests import Request as Web
from starlette.responses import JSONResponse, Response
from starlette.types import Scope, Send

from gateway import sse
from gateway.api.cycle import Cycle
from gateway.api.headers import Headers, error_headers, response_headers
from gateway.api.state import Visit
from gateway.chat import Json, Model, Record, Request, dumps
from gateway.dialects import NAMED, Event, dialect
from gateway.errors import ClientGone, GatewayError, MethodNotAllowed

_JSON = (b"content-type", b"application/json")
_OVERLOADED = 529  # Anthropic's own status for it, which its SDKs know
_SSE: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


def visit_of(web: Web) -> Visit:
    visit: Visit = web.scope["visit"]
    return visit


def json_response(web: Web, value: Any, status: int = 200) -> Response:
    """A JSON answer of an ordinary route, with the headers that every answer has."""
    response, visit = JSONResponse(value, status), visit_of(web)
    response.raw_headers += response_headers(visit.record, visit.limits)
    return response


async def send_json(send: Send, status: int, value: bytes, headers: Headers) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [*headers, _JSON, (b"content-length", str(len(value)).encode("ascii"))]})
    await send({"type": "http.response.body", "body": value})


async def send_error(send: Send, record: Record, error: GatewayError, limits: Headers | None = None) -> None:
    status, body = envelope(error, record)
    headers = error_headers(record, error, limits)
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", ", ".join(error.allow).encode("ascii")))
    await send_json(send, status, dumps(body), headers)


def envelope(error: GatewayError, record: Record) -> tuple[int, Json]:
    """Status and body of a failure, in the dialect of the endpoint."""
    if not record.endpoint.startswith("messages"):
        return error.status, {"error": error.body()}
    status = _OVERLOADED if error.status == 503 else error.status
    return status, dialect("messages").error_body(error.body(), status, record.id)


class Presence:
    """Cancels the task inside when the client leaves; `gone` tells that from every other cancellation.

    It is the reason why a client that leaves before the first token ends the upstream request
    too. The connection tells it (`cycle.py`): the ASGI way, to wait in `receive`, would take a
    task for every request. Without such a connection (the drill's clients) nobody leaves.
    """

    __slots__ = ("_cycle", "_inside", "gone")

    def __init__(self, scope: Scope) -> None:
        self.gone = False
        self._cycle: Cycle | None = scope.get("cycle")

    def __enter__(self) -> Presence:
        cycle = self._cycle
        if cycle is not None:
            if cycle.disconnected:
                raise ClientGone("the client closed the connection")
            self._inside = cycle.task
            cycle.on_leave = self._leave
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._cycle is not None:
            self._cycle.on_leave = None
        if self.gone and kind is asyncio.CancelledError:
            assert self._inside is not None
            self._inside.uncancel()
            raise ClientGone("the client closed the connection") from None

    def _leave(self) -> None:
        self.gone = True
        if self._inside is not None:
            self._inside.cancel()


async def answer_plain(model: Model, request: Request, send: Send, visit: Visit) -> None:
    """One JSON body. GatewayError is the caller's to send."""
    body, chunks = b"", model.generate(request)
    try:  # `aclosing` would cost two coroutines more
        async for chunk in chunks:
            body = chunk.data
    finally:
        await chunks.aclose()
    visit.written = len(body)
    await send_json(send, 200, body, response_headers(request.record, visit.limits))


class EventStream:
    """An event stream to the client. Status 200 goes out with the first content, or with the first keep-alive comment."""

    def __init__(self, request: Request, send: Send, visit: Visit) -> None:
        self.started = False
        self.failed: GatewayError | None = None
        self._request = request
        self._send = send
        self._visit = visit
        self._pulse = Pulse(visit.state.server.keepalive, self._beat)
        self._named = request.dialect in NAMED

    async def run(self, model: Model) -> None:
        """Write all chunks. An error before the start is raised; one after it is written and kept in `failed`."""
        record, visit, pending = self._request.record, self._visit, bytearray()
        self._pulse.start()
        try:
            async with aclosing(model.generate(self._request)) as chunks:
                async for chunk in chunks:
                    record.chunks += 1
                    visit.written += len(chunk.data)
                    visit.envelope = visit.envelope or len(chunk.data)
                    pending += sse.event(chunk.data, chunk.event)
                    if not chunk.more:
                        await self._write(bytes(pending))
                        pending.clear()
        except GatewayError as error:
            if not self.started:
                raise
            self.failed = error
            await self._end(bytes(pending) + failure(self._request.dialect, error, begun=visit.written > 0))
        else:
            await self._end(bytes(pending) + (b"" if self._named else sse.DONE))
        finally:
            self._pulse.stop()

    async def abort(self, error: GatewayError) -> None:
        """End the stream, which has started, with an error from outside (the server shuts down)."""
        if self._request.record.fail is not None and self._visit.written > 0:
            error.events = self._request.record.fail(error.body())
        await self._end(failure(self._request.dialect, error, begun=self._visit.written > 0))

    async def _write(self, data: bytes) -> None:
        self._pulse.touch()
        if not self.started:
            await self._start()
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def _start(self) -> None:
        self.started = True
        self._visit.end = self.abort
        await self._send({"type": "http.response.start", "status": 200, "headers": [*self._headers(), *_SSE]})

    def _headers(self) -> Headers:
        return response_headers(self._request.record, self._visit.limits)

    async def _end(self, data: bytes) -> None:
        self._pulse.stop()
        if not self.started:
            await self._start()
        await self._send({"type": "http.response.body", "body": data})

    async def _beat(self) -> None:
        await self._write(sse.event(b'{"type":"ping"}', "ping") if self._request.dialect == "messages" else sse.COMMENT)


_BEGINNINGS = ("response.created", "response.in_progress")


class Pulse:
    """Calls `beat` whenever `interval` seconds pass without `touch`; 0: never. One timer, moved only when it fires."""

    def __init__(self, interval: float, beat: Callable[[], Awaitable[None]]) -> None:
        self._interval = interval
        self._beat = beat
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.touch()
        if self._interval > 0:
            self._timer = self._loop.call_later(self._interval, self._fire)

    def touch(self) -> None:
        self._last = self._loop.time()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()  # its beat must not follow the end, or start a stream that has failed
        self._beat = _nothing  # else stream and pulse hold each other, and only the garbage collector frees them

    def _fire(self) -> None:
        silent = self._loop.time() - self._last
        if silent >= self._interval and (self._task is None or self._task.done()):
            self.touch()
            silent = 0.0
            self._task = self._loop.create_task(self._run())
        self._timer = self._loop.call_later(max(0.001, self._interval - silent), self._fire)

    async def _run(self) -> None:
        await self._beat()


async def _nothing() -> None:
    """The beat of a pulse that has stopped."""


def failure(client: str, error: GatewayError, *, begun: bool = False) -> bytes:
    """The last events of a stream that failed, in the client's dialect. `begun`: it has had other events, so that no answer begins with these."""
    events: Sequence[Event] = [(None, {"error": error.body()})]
    if error.events:
        events = error.events
    elif client != "chat":
        events = dialect(client).Writer({}).fail(error.body())
        events = [(name, data) for name, data in events if not begun or name not in _BEGINNINGS]
    return b"".join(sse.event(dumps(data), name) for name, data in events)
