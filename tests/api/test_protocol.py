"""Bounds of a client's connection, over raw sockets."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest
from running import Running, serving, yaml

from gateway.api.protocol import FIELD_LIMIT, HEADER_LIMIT


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    async with serving(yaml({"a": "mock://?gap=0"}, server="timeouts: {header: 300ms, body: 300ms}")) as running:
        yield running


async def say(running: Running, data: bytes, wait: float = 5.0) -> bytes:
    """What the gateway answers to these bytes until it closes the connection."""
    host, port = running.url.removeprefix("http://").removesuffix("/v1").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    try:
        return await asyncio.wait_for(reader.read(), wait)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def error(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["message"]


async def test_a_header_that_does_not_end_is_refused_after_its_time(running: Running) -> None:
    status, message = error(await say(running, b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"))

    assert status == 408
    assert "in time" in message


async def test_a_silent_connection_is_closed(running: Running) -> None:
    assert await say(running, b"") == b""


async def test_a_body_that_does_not_end_is_refused_after_its_time(running: Running) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nconnection: close\r\ncontent-length: 100\r\n\r\n{"

    assert error(await say(running, head))[0] == 408


@pytest.mark.parametrize(
    "header",
    [b"x-long: " + b"a" * (HEADER_LIMIT + 1) + b"\r\n", b"".join(b"x-%d: 1\r\n" % i for i in range(FIELD_LIMIT + 1))],
    ids=["too long", "too many"],
)
async def test_a_header_beyond_its_bounds_is_refused(running: Running, header: bytes) -> None:
    status, _ = error(await say(running, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + header + b"\r\n"))

    assert status == 431


async def test_an_unterminated_header_is_not_collected(running: Running) -> None:
    began = time.monotonic()
    answer = await say(running, b"GET /healthz HTTP/1.1\r\nx: " + b"a" * 1_000_000)

    assert answer == b"" or answer.startswith(b"HTTP/1.1 431"), "a reset may overtake the answer: we close with bytes unread"
    assert time.monotonic() - began < 0.25, "long before the header's time is over"


async def test_a_large_body_that_comes_with_its_header_is_no_large_header(running: Running) -> None:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "a" * 200_000}]}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(
        body
    )

    assert (await say(running, head + body)).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "data",
    [
        b"GARBAGE\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\ntransfer-encoding: gzip, chunked\r\nconnection: close\r\n\r\n0\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\nconnection: close\r\n\r\n",
        b"GET //healthz HTTP/1.1\r\nHost: a\r\nconnection: close\r\n\r\n",
        b"GET /v1/../healthz HTTP/1.1\r\nHost: a\r\nconnection: close\r\n\r\n",
        b"GET /v1/%00 HTTP/1.1\r\nHost: a\r\nconnection: close\r\n\r\n",
    ],
)
async def test_what_is_read_differently_elsewhere_is_refused_as_json(running: Running, data: bytes) -> None:
    status, message = error(await say(running, data))

    assert status == 400
    assert message


async def test_a_websocket_is_told_to_use_http(running: Running) -> None:
    upgrade = b"Connection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\n\r\n"

    assert (await say(running, b"GET /v1/responses HTTP/1.1\r\nHost: localhost\r\n" + upgrade)).startswith(b"HTTP/1.1 426")


async def test_a_kept_connection_answers_again(running: Running) -> None:
    one = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nconnection: close\r\n\r\n"

    assert (await say(running, one + one + last)).count(b"HTTP/1.1 200") == 3
