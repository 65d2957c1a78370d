"""The fast way to a provider: a pool of kept-alive HTTP/1.1 connections per host.

No object of an HTTP library, no task and in the usual case no timer is made for a request:
a head and a body go out in one write, and the exchange reads what the connection parsed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine

from gateway.upstream.connect import Resolve, connect_to, resolve
from gateway.upstream.connection import Connection
from gateway.upstream.decode import Decoder, decoder
from gateway.upstream.tls import default_context
from gateway.upstream.transport import OURS, Exchange, Headers, TransportError, Url

STALE_WITHIN = 2.0
"""Seconds in which a kept-alive connection that its server had closed gives itself away; one
that breaks later had taken the request, which may have been carried out."""


class _Origin:
    """One scheme, host and port: its idle connections, oldest first, and how many are open."""

    __slots__ = ("idle", "key", "lines", "open")

    def __init__(self, key: tuple[str, str, int], url: Url) -> None:
        self.key = key
        self.lines = b" HTTP/1.1\r\nhost: " + url.authority + b"\r\naccept-encoding: identity\r\n"
        self.idle: deque[Connection] = deque()
        self.open = 0


class Pool:
    """A Transport over own connections: plain or TLS, HTTP/1.1 only, no proxy.

    idle       seconds after which an unused connection is closed
    keep       idle connections kept per host
    tls        what https connections verify with; default: the system's store, else certifi's
    resolver   name and port -> addresses to try in order; default: the system's resolver

    The pool writes Host, Content-Length, Connection and Accept-Encoding itself; such headers of
    the caller are left out. One repeated request: where a kept-alive connection turns out to
    have been closed by the server (nothing came back), the request goes out once more on a new one.
    """

    def __init__(self, *, idle: float = 60.0, keep: int = 64, tls: ssl.SSLContext | None = None, resolver: Resolve = resolve) -> None:
        self._idle = idle
        self._keep = keep
        self._tls = tls
        self._resolver = resolver
        self._origins: dict[tuple[str, str, int], _Origin] = {}
        self._open: dict[Connection, _Origin] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._closed = False

    async def open(self, method: bytes, url: Url, headers: Headers, body: bytes, *, connect: float, deadline: float) -> Exchange:
        if self._closed:
            raise TransportError("connect", "the gateway's connections are closed")
        loop = asyncio.get_running_loop()
        origin = self._origin(url)
        head = _head(method, url, origin.lines, headers, len(body))
        connection = self._take(origin, loop.time())
        if connection is not None:
            sent = loop.time()
            try:
                return await self._ask(connection, method, head, body, deadline)
            except TransportError as error:
                if error.kind != "cut" or connection.received or loop.time() - sent > STALE_WITHIN:
                    raise
        connection = await self._connect(loop, origin, url, connect)
        return await self._ask(connection, method, head, body, deadline)

    async def aclose(self) -> None:
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self._open):
            connection.abort()
        for _ in range(8):  # a closed socket says so in the loop's next rounds
            if not self._open:
                break
            await asyncio.sleep(0)

    def _origin(self, url: Url) -> _Origin:
        key = (url.scheme, url.host, url.port)
        origin = self._origins.get(key)
        if origin is None:
            origin = self._origins[key] = _Origin(key, url)
        return origin

    def _take(self, origin: _Origin, now: float) -> Connection | None:
        """The connection that was used last: it is the least likely to be closed by now."""
        idle = origin.idle
        while idle:
            connection = idle.pop()
            if connection.usable and connection.idle_since + self._idle > now:
                return connection
            connection.abort()
        return None

    async def _connect(self, loop: asyncio.AbstractEventLoop, origin: _Origin, url: Url, deadline: float) -> Connection:
        tls = (self._tls or default_context()) if url.scheme == "https" else None
        connection = await connect_to(loop, url, lambda: Connection(loop, url.place, self._lost), tls, self._resolver, deadline)
        if self._closed:
            connection.abort()
            raise TransportError("connect", "the gateway's connections are closed")
        self._origins.setdefault(origin.key, origin)
        self._open[connection] = origin
        origin.open += 1
        return connection

    async def _ask(self, connection: Connection, method: bytes, head: bytes, body: bytes, deadline: float) -> _Answer:
        connection.send(head, body, method == b"HEAD")
        await connection.head(deadline)
        return _Answer(self, connection)

    def _release(self, connection: Connection) -> None:
        """Take back a connection whose exchange has ended: keep it if it can serve again."""
        origin = self._open.get(connection)
        if not connection.rest() or origin is None:
            return
        if self._closed or len(origin.idle) >= self._keep:
            connection.abort()
            return
        connection.idle_since = connection.loop.time()
        origin.idle.append(connection)
        if self._sweeper is None:
            self._sweeper = connection.loop.call_later(self._idle, self._sweep)

    def _lost(self, connection: Connection) -> None:
        origin = self._open.pop(connection, None)
        if origin is None:
            return
        origin.open -= 1
        try:
            origin.idle.remove(connection)
        except ValueError:
            pass
        if not origin.open and self._origins.get(origin.key) is origin:
            del self._origins[origin.key]

    def _sweep(self) -> None:
        """Close what has been idle for too long; come back when the next one will be."""
        loop = asyncio.get_running_loop()
        now, oldest = loop.time(), None
        for origin in self._origins.values():
            idle = origin.idle
            while idle and idle[0].idle_since + self._idle <= now + 0.001:
                idle.popleft().abort()
            if idle and (oldest is None or idle[0].idle_since < oldest):
                oldest = idle[0].idle_since
        self._sweeper = None if oldest is None else loop.call_at(oldest + self._idle, self._sweep)


class _Answer:
    """An Exchange over a pooled connection."""

    __slots__ = ("_connection", "_decoder", "_fields", "_pool", "headers", "status")

    def __init__(self, pool: Pool, connection: Connection) -> None:
        self._pool = pool
        self._connection: Connection | None = connection
        self.status = connection.status
        self.headers = connection.headers
        self._fields = dict(reversed(connection.headers))  # of a repeated header the first
        try:
            self._decoder = self._check()
        except TransportError:
            connection.abort()
            raise

    def _check(self) -> Decoder | None:
        coding = self._fields.get(b"transfer-encoding")
        if coding is not None and coding.lower() != b"chunked":
            raise TransportError("protocol", "the answer has a transfer encoding other than chunked", sent=True)
        encoding = self._fields.get(b"content-encoding")
        if encoding is None:
            return None
        return decoder(b", ".join(value for name, value in self.headers if name == b"content-encoding"))

    def header(self, name: bytes) -> bytes | None:
        return self._fields.get(name)

    def read(self, deadline: float) -> Coroutine[None, None, bytes | None]:
        connection = self._connection
        if connection is None:
            raise RuntimeError("the exchange is closed")
        if self._decoder is None:
            return connection.next(deadline)
        return self._decoded(self._decoder, connection.next, deadline)

    async def _decoded(self, decoder: Decoder, more: Callable[[float], Awaitable[bytes | None]], deadline: float) -> bytes | None:
        while not (piece := decoder.take()):
            raw = await more(deadline)
            if raw is None:
                decoder.finish()
                return None
            decoder.feed(raw)
        return piece

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool._release(connection)


def _head(method: bytes, url: Url, lines: bytes, headers: Headers, length: int) -> bytes:
    parts = [method, b" ", url.target, lines]
    count = 3
    for name, value in headers:
        if name.lower() not in OURS:
            parts += (name, b": ", value, b"\r\n")
            count += 1
    if length or method in (b"POST", b"PUT", b"PATCH"):
        parts.append(b"content-length: %d\r\n" % length)
        count += 1
    parts.append(b"\r\n")
    head = b"".join(parts)
    # A value with a line break in it would be a header, or a request, of its own.
    if head.count(b"\n") != count + 1 or head.count(b"\r") != count + 1 or b"\0" in head:
        raise TransportError("protocol", "a header of the request holds a line break or a NUL")
    return head
