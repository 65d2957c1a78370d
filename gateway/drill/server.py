"""A server on loopback that answers as it is told to, byte by byte: the upstream of the drill and of the tests.

    async with FaultServer({"cut": cut}) as server:
        url = server.url("cut", "/v1/chat/completions")     # http://127.0.0.1:PORT/cut/v1/chat/completions

The first segment of a request's path names the handler that answers it. A handler that
returns leaves the connection open for the next request; ConnectionError closes it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

OK = b"HTTP/1.1 200 OK\r\n"
HTML = b"<html><body><h1>502 Bad Gateway</h1></body></html>"


def chunk(data: bytes) -> bytes:
    """One piece of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def plain(body: bytes, head: bytes = OK, *headers: bytes, kind: bytes = b"application/json") -> bytes:
    """A whole answer with a Content-Length; `kind` is its content type."""
    lines = b"".join(line + b"\r\n" for line in (*headers, b"content-type: " + kind, b"content-length: %d" % len(body)))
    return head + lines + b"\r\n" + body


class Call:
    """One request as the server read it, and the way to answer it. Header names are as they were sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        self.reader = reader
        self.writer = writer
        self.head = head
        line = head.split(b"\r\n", 1)[0].split(b" ")
        self.method, self.path = line[0].decode(), line[1].decode()
        self.headers = [(name.strip(), value.strip()) for name, _, value in (row.partition(b":") for row in head.split(b"\r\n")[1:] if row)]
        self.body = b""

    @property
    def fault(self) -> str:
        """The name of the handler: the first segment of the path."""
        return self.path.split("?")[0].split("/")[1]

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header (name in lower case)."""
        return next((value for key, value in self.headers if key.lower() == name), None)

    async def write(self, data: bytes) -> None:
        """Send bytes as they are. ConnectionResetError where the other side has gone."""
        if self.writer.transport.is_closing():  # uvloop raises RuntimeError where such a transport is used
            raise ConnectionResetError
        self.writer.write(data)
        await self.writer.drain()

    async def read_body(self) -> None:
        self.body = await self.reader.readexactly(int(self.header(b"content-length") or 0))

    async def until_gone(self) -> None:
        """Wait until the other side has closed or reset the connection."""
        while await self.reader.read(65536):
            pass

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        wire = self.writer.get_extra_info("socket")
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Handler = Callable[[Call], Awaitable[None]]


@dataclass
class FaultServer:
    """The server.

    handlers     by name; those in `unread` answer before the body was read
    tls          makes it speak https
    close_after  it closes each connection after so many answers; 0: never
    connections, requests   what it saw
    gone         `time.monotonic()` of each end of a connection, as far as the other side ended it
    """

    handlers: Mapping[str, Handler]
    tls: ssl.SSLContext | None = None
    close_after: int = 0
    host: str = "127.0.0.1"
    unread: frozenset[str] = frozenset()
    connections: int = 0
    requests: list[Call] = field(default_factory=list)
    gone: list[float] = field(default_factory=list)
    port: int = 0

    async def __aenter__(self) -> Self:
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = await asyncio.start_server(self._serve, self.host, 0, ssl=self.tls, limit=1 << 20)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)

    def url(self, name: str, path: str = "") -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}/{name}{path}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self.connections += 1
        try:
            await self._answer_all(reader, writer)
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answered = 0
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
                call = Call(reader, writer, head[:-4])
                if call.fault not in self.unread:
                    await call.read_body()
                self.requests.append(call)
                await self.handlers[call.fault](call)
            except (ConnectionAbortedError, asyncio.CancelledError):
                raise
            except (OSError, EOFError):
                self.gone.append(time.monotonic())
                raise
            if reader.at_eof():
                self.gone.append(time.monotonic())
                return
            answered += 1
            if self.close_after and answered >= self.close_after:
                return


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """A port of 127.0.0.1 that refuses connections, and that nobody else can take meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]
