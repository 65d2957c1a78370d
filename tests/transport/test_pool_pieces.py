"""A large body comes in small pieces, so that what a slow client leaves unread costs little."""

from __future__ import annotations

import asyncio
import random

import faults
import pytest
from conftest import read_all

from gateway.drill.server import FaultServer
from gateway.upstream.connection import HIGH_WATER, PIECE

BODY = random.Random(7).randbytes(3_000_000)
CUTS = {"one chunk": [3_000_000], "small chunks": [700], "mixed": [1, PIECE, PIECE + 1, 5, 100_000]}


@pytest.fixture
async def server():
    async def large(call):
        await call.write(faults.OK + b"transfer-encoding: chunked\r\n\r\n")
        at, sizes = 0, CUTS[call.path.rpartition("/")[2].replace("%20", " ")]
        while at < len(BODY):
            for size in sizes:
                if at < len(BODY):
                    await call.write(faults.chunk(BODY[at : at + size]))
                    at += size
        await call.write(b"0\r\n\r\n")

    async def endless(call):
        await call.write(faults.OK + b"transfer-encoding: chunked\r\n\r\n")
        while True:
            call.written = getattr(call, "written", 0) + 16384
            await call.write(faults.chunk(b"a" * 16384))
            await asyncio.sleep(0)

    async with FaultServer({"large": large, "endless": endless}) as server:
        yield server


@pytest.mark.parametrize("cut", CUTS)
async def test_a_large_body_is_whole_and_its_pieces_are_small(client, server, cut):
    exchange = await client.open(server.url("large", f"/{cut.replace(' ', '%20')}"))
    deadline = asyncio.get_running_loop().time() + 5
    parts = []
    while (piece := await exchange.read(deadline)) is not None:
        parts.append(piece)
        if len(parts) % 20 == 0:
            await asyncio.sleep(0.001)  # a reader that is slower than the server
    await exchange.aclose()

    assert b"".join(parts) == BODY
    assert min(map(len, parts)) > 0
    assert max(map(len, parts)) <= PIECE


async def test_a_body_that_was_read_in_pieces_leaves_its_connection(client, server):
    for _ in range(3):
        exchange = await client.open(server.url("large", "/one%20chunk"))
        assert await read_all(exchange) == BODY
        await exchange.aclose()

    assert (server.connections, len(server.requests)) == (1, 3)


async def test_a_reader_that_stops_leaves_little_waiting(client, server):
    exchange = await client.open(server.url("endless"))
    connection = exchange._connection
    await exchange.read(asyncio.get_running_loop().time() + 2)
    await asyncio.sleep(0.2)
    waiting = connection._buffered
    await exchange.aclose()

    assert HIGH_WATER < waiting < HIGH_WATER + 300_000, "at most one read of the socket above the mark"
