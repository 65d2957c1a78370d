"""Every test of the transports runs on both event loops: their sockets and timers differ."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from pathlib import Path

import pytest
import uvloop

sys.path.insert(0, str(Path(__file__).parent.parent))  # faults.py is beside this folder

from faults import FaultServer

from gateway.upstream.pool import Pool
from gateway.upstream.transport import Exchange, TransportError, Url


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item):
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


@contextlib.asynccontextmanager
async def serving(handler):
    """The URL of a server whose every connection is `handler(reader, writer)`; all is closed at the end."""
    tasks, writers = set(), set()

    async def serve(reader, writer):
        tasks.add(asyncio.current_task())
        writers.add(writer)
        try:
            await handler(reader, writer)
        except (OSError, EOFError):
            pass
        finally:
            writers.discard(writer)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in list(writers):
            writer.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)


async def within(seconds: float, condition) -> float:
    """Seconds until the condition held."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, "it did not happen in time"
        await asyncio.sleep(0.001)
    return time.monotonic() - began


@pytest.fixture
async def server():
    async with FaultServer() as server:
        yield server


@pytest.fixture
async def pool():
    pool = Pool()
    yield pool
    await pool.aclose()


class Client:
    """Short ways to ask a transport."""

    def __init__(self, transport) -> None:
        self.transport = transport

    async def open(self, url: str, body: bytes = b"{}", *, seconds: float = 2.0, connect: float = 2.0, headers=(), method: bytes = b"POST") -> Exchange:
        now = asyncio.get_running_loop().time()
        return await self.transport.open(method, Url.parse(url), list(headers), body, connect=now + connect, deadline=now + seconds)

    async def fetch(self, url: str, body: bytes = b"{}", *, seconds: float = 2.0, **more) -> tuple[int, bytes]:
        exchange = await self.open(url, body, seconds=seconds, **more)
        try:
            return exchange.status, await read_all(exchange, seconds)
        finally:
            await exchange.aclose()


async def read_all(exchange: Exchange, seconds: float = 2.0) -> bytes:
    deadline = asyncio.get_running_loop().time() + seconds
    parts = []
    while (piece := await exchange.read(deadline)) is not None:
        assert piece
        parts.append(piece)
    return b"".join(parts)


async def read_until_error(exchange: Exchange, seconds: float = 2.0) -> tuple[TransportError, list[bytes]]:
    """The error that a body ends with, and the pieces before it."""
    deadline = asyncio.get_running_loop().time() + seconds
    pieces: list[bytes] = []
    try:
        while (piece := await exchange.read(deadline)) is not None:
            pieces.append(piece)
    except TransportError as error:
        return error, pieces
    raise AssertionError(f"the body ended well after {b''.join(pieces)[:100]!r}")


@pytest.fixture
def client(pool):
    return Client(pool)
