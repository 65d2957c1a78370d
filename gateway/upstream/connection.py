"""One HTTP/1.1 connection: a socket, its parser, and whoever waits for its next bytes.

httptools parses, this class keeps score: which answer is being read, how much of it is
buffered, when the wait for it ends, and whether the socket may serve another request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import httptools

from gateway.upstream.transport import Headers, Kind, TransportError

if TYPE_CHECKING:
    from typing import Any

HIGH_WATER = 64 * 1024
"""bytes of body that may wait for the reader; above it the socket is not read"""
PIECE = 32 * 1024
"""bytes of body that the reader gets at a time: what is made of them is several times as large, and the client may not read at all"""
MAX_HEAD = 128 * 1024
"""bytes of headers, and of framing without a byte of body between, that an answer may have"""
MAX_HEADERS = 4096
"""lines of headers that an answer may have"""
JOIN_BELOW = 64 * 1024
"""a body below this is copied behind its head, so that one write carries both"""
NEVER = float("inf")
_TICK = 0.001  # uvloop counts milliseconds: its timers may fire that much too early


class Connection(asyncio.Protocol):
    """A connection that serves one request after the other.

    The life of one request is `send`, `head` until the headers are there, `next` until it
    says None, then `rest`; `abort` at any moment instead. `status`, `headers` and `done` describe the
    answer being read. Deadlines are `loop.time()` seconds.
    """

    __slots__ = (
        "_aborted", "_buffered", "_busy", "_deadline", "_error", "_head_only", "_interim", "_keep", "_lost", "_parser", "_parts", "_paused",
        "_place", "_timer", "_timer_at", "_transport", "_unframed", "_waiter", "done", "head_done", "headers", "idle_since", "loop", "received", "reused",
        "status",
    )  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop, place: str, lost: Callable[[Connection], None]) -> None:
        self.loop = loop
        self._place = place
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._parser: Any = httptools.HttpResponseParser(self)
        # Seen in the wild: bare LF line ends from small servers, chunk sizes padded with blanks.
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True)
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._deadline = NEVER
        self._paused = self._busy = self._aborted = self.reused = False
        self.idle_since = 0.0
        self._begin(False)

    def _begin(self, head_only: bool) -> None:
        self.status = 0
        self.headers: Headers = []
        self.done = self.head_done = self.received = self._keep = self._interim = False
        self._head_only = head_only
        self._parts: list[bytes] = []
        self._buffered = self._unframed = 0
        self._error: tuple[Kind, str] | None = None

    # What a request needs

    @property
    def usable(self) -> bool:
        """Whether the next request may go out on it, as far as we know."""
        transport = self._transport
        return transport is not None and not self._aborted and not transport.is_closing()

    def send(self, head: bytes, body: bytes, head_only: bool) -> None:
        """Write one request. `head_only`: its answer has no body whatever its headers say (HEAD)."""
        self._begin(head_only)
        self._busy = True
        transport = self._transport
        if transport is None or transport.is_closing():  # uvloop raises where such a transport is used
            self._error = ("cut", f"{self._place} closed the connection without an answer")
        elif len(body) < JOIN_BELOW:
            transport.write(head + body)
        else:
            transport.writelines((head, body))

    async def head(self, deadline: float) -> None:
        """Return when status and headers are there; else TransportError, and the connection is closed."""
        while not self.head_done:
            if self._error is not None:
                raise self._failure()
            try:
                await self._wait(deadline)
            except BaseException:
                self.abort()
                raise

    async def next(self, deadline: float) -> bytes | None:
        """The bytes of the body that are there, None at its end; else TransportError."""
        if not self.done and self.loop.time() >= deadline:
            self._fail("timeout", "sent no end of its answer in time")  # a drip must not outlive its deadline
            raise self._failure()
        while not self._parts:
            if self.done:
                return None
            if self._error is not None:
                raise self._failure()
            try:
                await self._wait(deadline)
            except BaseException:
                self.abort()
                raise
        if self._buffered > PIECE:
            return self._some()
        parts = self._parts
        piece = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._buffered = 0
        if self._paused:
            self._resume()
        return piece

    def _some(self) -> bytes:
        """The first parts that make a PIECE; there are more."""
        count = size = 0
        for part in self._parts:
            if size + len(part) > PIECE:
                break
            count += 1
            size += len(part)
        piece = b"".join(self._parts[:count])
        del self._parts[:count]
        self._buffered -= size
        return piece

    def rest(self) -> bool:
        """End the request: True if the connection can serve another one, else it is closed."""
        self._busy = False
        transport = self._transport
        if self.done and self._keep and self._error is None and transport is not None and self.usable and not transport.get_write_buffer_size():
            self._parts = []
            self._resume()
            self.reused = True
            return True
        self.abort()
        return False

    def abort(self) -> None:
        """Close the socket now; the other side sees it within a round trip."""
        self._aborted = True
        if self._transport is not None:
            self._transport.abort()

    # Waiting: one timer per connection, moved only when a deadline comes earlier than it

    def _wait(self, deadline: float) -> asyncio.Future[None]:
        self._deadline = deadline
        if deadline < self._timer_at:
            self._arm(deadline)
        self._waiter = waiter = self.loop.create_future()
        return waiter

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self.loop.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, NEVER
        waiter = self._waiter
        if waiter is None or waiter.done() or self._deadline == NEVER:
            return
        if self.loop.time() + _TICK < self._deadline:
            self._arm(self._deadline)
        else:
            self._fail("timeout", "sent no end of its answer in time" if self.head_done else "sent no answer in time")

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    def _fail(self, kind: Kind, what: str) -> None:
        if self._error is None:
            self._error = (kind, f"{self._place} {what}")
        self.abort()
        self._wake()

    def _failure(self) -> TransportError:
        kind, message = self._error or ("cut", f"{self._place} closed the connection")
        return TransportError(kind, message, reused=self.reused, sent=True)

    def _pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        self._paused = False

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        if self._aborted:
            self.abort()

    def data_received(self, data: bytes) -> None:
        if not self._busy:  # an answer that nobody asked for
            self.abort()
            return
        self.received = True
        before = self._buffered
        self._unframed += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._keep = False
            if not self.done:  # else it came after the body and is not part of the answer
                self._fail("protocol", f"sent what is not HTTP/1.1: {_plain(error)}")
        if self.done or self._buffered > before:
            self._unframed = 0
        elif self._unframed > MAX_HEAD:  # headers, chunk extensions or trailers without end
            self._fail("protocol", f"sent more than {MAX_HEAD >> 10} KiB without a byte of body")
        if self.head_done:
            self._wake()
        if self._buffered > HIGH_WATER and not self.done and not self._paused and self._error is None:
            self._pause()

    def _head_size(self) -> int:
        return sum(len(name) + len(value) + 4 for name, value in self.headers)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_at = None, NEVER
        if self._busy and not self.done and self._error is None:
            if exc is None and not self._aborted and self.head_done and not self._framed():
                self.done = True  # a body without a length ends with its connection (RFC 9112 section 6.3)
            else:
                self._error = ("cut", f"{self._place} closed the connection {self._where()}")
        self._wake()
        self._lost(self)
        self._parser = None  # it holds this object's methods: let go of the cycle

    def _framed(self) -> bool:
        return any(name in (b"content-length", b"transfer-encoding") for name, _ in self.headers)

    def _where(self) -> str:
        if not self.received:
            return "without an answer"
        return "before the end of its answer" if self.head_done else "within the headers"

    # httptools' side

    def on_message_begin(self) -> None:
        if self.done:
            self._keep = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.head_done:  # else a trailer
            self.headers.append((name.lower(), value.strip()))

    def on_headers_complete(self) -> None:
        if self.head_done:  # a second answer behind the first: `on_message_begin` saw it
            return
        status = self._parser.get_status_code()
        if status < 200:
            self._interim = True
            self.headers = []
            if status < 100 or status == 101:
                self._fail("protocol", f"answered with status {status}")
            return
        self._keep = self._parser.should_keep_alive()  # only here: at the message's end it always says no
        if len(self.headers) > MAX_HEADERS or (self._unframed > MAX_HEAD and self._head_size() > MAX_HEAD):
            self._fail("protocol", f"sent more than {MAX_HEAD >> 10} KiB or {MAX_HEADERS} lines of headers")
            return
        self.status = status
        self.head_done = True
        self._unframed = 0
        if self._head_only:
            self.done, self._keep = True, False

    def on_body(self, data: bytes) -> None:
        if not self.done:
            if len(data) <= PIECE:
                self._parts.append(data)
            else:
                self._parts.extend(data[at : at + PIECE] for at in range(0, len(data), PIECE))
            self._buffered += len(data)

    def on_message_complete(self) -> None:
        if self._interim:
            self._interim = False
            self._unframed = 0
        else:
            self.done = True


def _plain(error: Exception) -> str:
    """The parser's reason in one printable line."""
    return "".join(c for c in str(error)[:80] if c.isprintable()) or "switched protocols"
