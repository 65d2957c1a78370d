"""One request of a client and its answer, between uvicorn's protocol and the application.

uvicorn's own cycle looks at every header of every answer with two regular expressions, makes
an event for each request and tells nobody that a client has left. All of it together costs
as much as a call of a provider's pool.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Scope
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.server import ServerState

log = logging.getLogger("thinkgate")

_BROKEN = b'{"error":{"message":"the gateway failed; its log has the reason","type":"server_error","param":null,"code":"internal_error"}}'
_NO_BODY = (204, 304)
_OVER: Scope = {}


class Cycle:
    """What the application gets as `scope["cycle"]`, too: `on_leave` is called when the client goes before its answer is complete.

    `response_complete`, `disconnected` and `keep_alive` are read and set by uvicorn.
    """

    __slots__ = (
        "_chunked", "_ended", "_expected", "_flow", "_fresh", "_head_only", "_held", "_loop", "_more", "_parts", "_scope", "_server", "_size", "_started",
        "_transport", "_waiter", "disconnected", "keep_alive", "on_leave", "response_complete", "task",
    )  # fmt: skip

    def __init__(self, scope: Scope, transport: asyncio.Transport, flow: FlowControl, server: ServerState, keep_alive: bool, ended: Callable[[], None]) -> None:
        self.on_leave: Callable[[], None] | None = None
        self.disconnected = self.response_complete = False
        self.keep_alive = keep_alive
        self._scope = scope
        self._transport = transport
        self._flow = flow
        self._server = server
        self._ended = ended
        self._head_only = scope["method"] == "HEAD"
        self._parts: list[bytes] = []
        self._size = 0
        self._more = True
        self._fresh = False  # the body's end is there and was not told yet
        self._waiter: asyncio.Future[None] | None = None
        self._started = self._chunked = False
        self._expected = 0
        self._held = b""
        self.task: asyncio.Task[None] | None = None

    def start(self, loop: asyncio.AbstractEventLoop, app: ASGIApp) -> None:
        """Let the application answer, in a task that the server waits for when it ends."""
        self._loop = loop
        self._scope["cycle"] = self
        self.task = task = loop.create_task(self._run(app))
        self._server.tasks.add(task)

    # What arrives

    def body(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > HIGH_WATER_LIMIT:
            self._flow.pause_reading()
        self._wake()

    def body_complete(self) -> None:
        self._more, self._fresh = False, True
        self._wake()

    def lost(self) -> None:
        """The connection is gone."""
        if self.response_complete or self.disconnected:
            return
        self.disconnected = True
        self._wake()
        if self.on_leave is not None:
            self.on_leave()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # What the application does

    async def _run(self, app: ASGIApp) -> None:
        try:
            await app(self._scope, self.receive, self.send)
            if not (self.response_complete or self.disconnected):
                log.error("no answer to %s: the application ended without one", self._scope["path"])
                await self._break_off()
        except BaseException as error:
            log.error("no answer to %s", self._scope["path"], exc_info=error)
            await self._break_off()
        finally:
            self._server.tasks.discard(self.task)
            self.task = self.on_leave = None
            del self._scope["cycle"]  # else only the garbage collector could free them both
            self._scope = _OVER  # the connection keeps its last cycle, and need not keep the request

    async def _break_off(self) -> None:
        if self._started:
            self._let_go()
            self._transport.close()
            return
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_BROKEN)), (b"connection", b"close")]
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": _BROKEN})

    def _let_go(self) -> None:
        """Send the head although no body has come with it."""
        held, self._held = self._held, b""
        if held and not self.disconnected:
            self._transport.write(held)

    async def receive(self) -> Message:
        if not (self._parts or self._fresh):
            await self._wait()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        self._fresh = False
        return {"type": "http.request", "body": body, "more_body": self._more}

    async def _wait(self) -> None:
        """For more of the body, or, when all of it was given, for the client to leave."""
        if not (self.disconnected or self.response_complete):
            if self._more and not self._started and any(name == b"expect" and value.lower() == b"100-continue" for name, value in self._scope["headers"]):
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._flow.resume_reading()
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    async def send(self, message: Message) -> None:
        if self._flow.write_paused and not self.disconnected:
            await self._flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start" and not self._started:
            self._started = True
            self._held = self._head(message["status"], message.get("headers", ()))
            self._loop.call_soon(self._let_go)  # what is not sent by then waits for nothing
        elif message["type"] == "http.response.body" and self._started and not self.response_complete:
            self._send_body(message.get("body", b""), message.get("more_body", False))
        else:
            raise RuntimeError(f"{message['type']} out of turn")

    def _head(self, status: int, headers: Any) -> bytes:
        """Names are in lower case, as ASGI has them."""
        lines, framed, closes = [], False, False
        for header in (*self._server.default_headers, *headers):
            name = header[0]
            if name == b"content-length":
                self._expected, framed = int(header[1]), True
            elif name == b"connection":
                closes = closes or b"close" in header[1].lower()
            lines.append(b": ".join(header))
        if closes:
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(b"connection: close")
        if self._head_only or status in _NO_BODY:
            self._expected = 0
        elif not framed:
            self._chunked = True
            lines.append(b"transfer-encoding: chunked")
        head = b"%b%b\r\n\r\n" % (STATUS_LINE[status], b"\r\n".join(lines))
        ends = len(lines) + 2
        if head.count(b"\n") != ends or head.count(b"\r") != ends or b"\0" in head:
            raise RuntimeError("a header of the answer holds a line break or a NUL")
        return head

    def _send_body(self, body: bytes, more: bool) -> None:
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            if not more:
                data += b"0\r\n\r\n"
        elif self._head_only:
            data = b""
        else:
            data = body
            self._expected -= len(body)
            if self._expected < 0:
                raise RuntimeError("the answer is longer than its content-length")
        if data or self._held:
            self._transport.write(self._held + data)  # one system call for both
            self._held = b""
        if not more:
            if self._expected:
                raise RuntimeError("the answer is shorter than its content-length")
            self.response_complete = True
            self._wake()
            if not self.keep_alive:
                self._transport.close()
            self._ended()
