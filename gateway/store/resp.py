"""The wire to Redis or Valkey: one connection on which any number of commands are under way at once.

redis-py (8.1) takes 150 us of CPU for a command and its answer, this takes 25: what is written
in one turn of the event loop leaves in one packet, and an answer wakes nobody but its reader.
Commands are never sent twice. The first one that has no answer in time ends the connection,
and with it every other command that is under way.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from gateway.store.faults import SharedAway

PATIENCE = 0.2
"""seconds for a connection, and for an answer"""
_GRACE = 0.02  # seconds in which an answer that is here already is read: a busy process is not a silent server
_GATHER = 0.001  # seconds that what nobody waits for may wait for company
_PORT = 6379
_HIGH = 8 * 1024 * 1024  # bytes that may wait to be written

Future = asyncio.Future[Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the server is, from its URL."""

    host: str
    port: int = _PORT
    tls: bool = False
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    database: int = 0
    timeout: float = PATIENCE
    prefix: str = "thinkgate"
    ca: str | None = None

    @classmethod
    def parse(cls, url: str) -> Place:
        """ValueError says what is wrong, without the password."""
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = set(options) - {"timeout", "prefix", "ca"}
        if unknown:
            raise ValueError(f"its URL has an unknown parameter {min(unknown)[:40]!r}; known: timeout, prefix, ca")
        return cls(
            host=parts.hostname or "localhost",
            port=parts.port or _PORT,
            tls=parts.scheme in ("rediss", "valkeys"),
            user=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password) if parts.password else None,
            database=_database(parts),
            timeout=_seconds(options["timeout"]) if "timeout" in options else PATIENCE,
            prefix=options.get("prefix") or "thinkgate",
            ca=options.get("ca"),
        )

    def context(self) -> ssl.SSLContext | None:
        return ssl.create_default_context(cafile=self.ca) if self.tls else None

    def greeting(self) -> list[bytes]:
        """What a connection says first."""
        out = []
        if self.password is not None:
            out.append(encode(b"AUTH", *((self.user.encode(),) if self.user else ()), self.password.encode()))
        if self.database:
            out.append(encode(b"SELECT", b"%d" % self.database))
        return [*out, encode(b"PING")]


def _database(parts: SplitResult) -> int:
    text = parts.path.strip("/")
    if text and not (text.isascii() and text.isdigit()):
        raise ValueError("its URL is redis://USER:PASSWORD@HOST:PORT/NUMBER")
    return int(text or 0)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.01 <= value <= 10:
        raise ValueError("its timeout is a number of seconds from 0.01 to 10")
    return value


class Refused(Exception):
    """The server's own error to one command."""


def encode(*parts: bytes) -> bytes:
    """One command as it goes over the wire."""
    return b"*%d\r\n%b" % (len(parts), b"".join([bulk(part) for part in parts]))


def bulk(part: bytes) -> bytes:
    """One part of a command as it goes over the wire."""
    return b"$%d\r\n%b\r\n" % (len(part), part)


class _Incomplete(Exception):
    """The rest of an answer has not come yet."""


class Link(asyncio.Protocol):
    """One connection. `up` until it is lost; whoever made it closes it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout: float) -> None:
        self.up = False
        self._loop = loop
        self._timeout = timeout
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._soon = False
        self._later: asyncio.TimerHandle | None = None
        self._buffer = bytearray()
        self._waiting: deque[tuple[Future | None, float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.lost: Future = loop.create_future()
        """done with the reason once the connection is lost"""

    @classmethod
    async def open(cls, place: Place, setup: Sequence[bytes] = ()) -> tuple[Link, list[Any]]:
        """A connection that has answered the greeting and `setup`; the answers to the latter. SharedAway if there is none in time."""
        loop = asyncio.get_running_loop()
        link = cls(loop, place.timeout)
        try:
            async with asyncio.timeout(place.timeout * 2):
                await loop.create_connection(lambda: link, place.host, place.port, ssl=place.context())
                answers = await asyncio.gather(*(link.ask(command) for command in (*place.greeting(), *setup)), return_exceptions=True)
                for answer in answers:
                    if isinstance(answer, BaseException):
                        raise answer
        except (TimeoutError, OSError) as error:
            link.close()
            raise SharedAway("it does not answer in time" if isinstance(error, TimeoutError) else f"it cannot be reached: {type(error).__name__}") from None
        except Refused as error:
            link.close()
            raise SharedAway(f"it refuses: {str(error)[:100]}") from None
        except BaseException:
            link.close()
            raise
        return link, answers[len(answers) - len(setup) :]

    def ask(self, command: bytes) -> Future:
        """The answer to come. It raises Refused, or SharedAway when the connection is lost before."""
        answer: Future = self._loop.create_future()
        self._send(command, answer)
        return answer

    def tell(self, command: bytes) -> None:
        """A command whose answer nobody waits for."""
        self._send(command, None)

    @property
    def waiting(self) -> int:
        """Bytes of commands that have not left yet."""
        return sum(map(len, self._out)) + (self._transport.get_write_buffer_size() if self._transport is not None else 0)

    def close(self, why: str = "it was closed") -> None:
        if self._transport is not None:
            self._transport.abort()
        self._end(why)

    async def drain(self) -> None:
        """Until all that was told is answered."""
        if self.up:
            await self.ask(encode(b"PING"))

    def _send(self, command: bytes, answer: Future | None) -> None:
        if not self.up:
            if answer is not None:
                answer.set_exception(SharedAway("the connection is lost"))
            return
        if answer is not None and not self._soon:
            self._soon = True
            self._loop.call_soon(self._flush)
        elif not self._out:  # nobody waits: it may share the next packet
            self._later = self._loop.call_later(_GATHER, self._flush)
        self._out.append(command)
        self._waiting.append((answer, self._loop.time() + self._timeout))
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout, self._overdue)

    def _flush(self) -> None:
        out, self._out, self._soon = self._out, [], False
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._transport is None or not out:
            return
        self._transport.write(out[0] if len(out) == 1 else b"".join(out))
        if self._transport.get_write_buffer_size() > _HIGH:
            self.close("it takes nothing more")

    def _overdue(self) -> None:
        """The oldest command may have waited long enough. What has come meanwhile is read first."""
        self._timer = None
        if not self._waiting:
            return
        left = self._waiting[0][1] - self._loop.time()
        self._timer = self._loop.call_later(left, self._overdue) if left > 0 else self._loop.call_later(_GRACE, self._give_up)

    def _give_up(self) -> None:
        self._timer = None
        if self._waiting and self._waiting[0][1] <= self._loop.time() - _GRACE / 2:
            self.close(f"it did not answer within {self._timeout:g} s")
        elif self._waiting:
            self._overdue()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self.up = cast(asyncio.Transport, transport), True  # uvloop's are no instances of asyncio's

    def data_received(self, data: bytes) -> None:
        buffer, at = self._buffer, 0
        buffer += data
        try:
            while at < len(buffer):
                value, after = _parse(buffer, at)
                at = after
                answer = self._waiting.popleft()[0]
                if answer is None or answer.done():
                    continue
                if isinstance(value, Refused):
                    answer.set_exception(value)
                else:
                    answer.set_result(value)
        except _Incomplete:
            pass
        except (ValueError, IndexError):
            self.close("it does not speak Redis's protocol")
            return
        del buffer[:at]

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("the connection was closed" if exc is None else f"the connection broke: {type(exc).__name__}")

    def _end(self, why: str) -> None:
        self.up = False
        self._transport = None
        for timer in (self._timer, self._later):
            if timer is not None:
                timer.cancel()
        self._timer = self._later = None
        waiting, self._waiting = self._waiting, deque()
        for answer, _ in waiting:
            if answer is not None and not answer.done():
                answer.set_exception(SharedAway(why))
        if not self.lost.done():
            self.lost.set_result(why)


def _parse(buffer: bytearray, at: int) -> tuple[Any, int]:
    """The value that begins there, and where the next one does."""
    end = buffer.find(b"\r\n", at)
    if end < 0:
        raise _Incomplete
    kind, line = buffer[at], bytes(buffer[at + 1 : end])
    after = end + 2
    if kind == 0x24:  # $
        size = int(line)
        if size < 0:
            return None, after
        if len(buffer) < after + size + 2:
            raise _Incomplete
        return bytes(buffer[after : after + size]), after + size + 2
    if kind == 0x3A:  # :
        return int(line), after
    if kind == 0x2B:  # +
        return line, after
    if kind == 0x2D:  # -
        return Refused(line.decode("utf-8", "replace")), after
    if kind != 0x2A:  # *
        raise ValueError(kind)
    values = []
    for _ in range(int(line)):
        value, after = _parse(buffer, after)
        values.append(value)
    return values, after
