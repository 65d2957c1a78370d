"""One request and its answer on a client's connection: who left, what is kept, what is left behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asking import Bare
from running import CHAT, STREAM, Running, serving, serving_app, yaml
from upstream_double import HANG, Script, Upstream

from gateway import config
from gateway.app import Gateway
from gateway.chat import Record

HEALTH = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    """Without records: one that waits to be written is held for a moment."""
    async with serving(yaml({"a": "mock://?gap=0"}) + "retention: {requests: 0}\n") as running:
        yield running


@pytest.mark.parametrize("body", [CHAT, STREAM, {**CHAT, "model": "unknown"}], ids=["plain", "stream", "refused"])
async def test_a_request_leaves_nothing_to_the_garbage_collector(running: Running, body: dict[str, Any]) -> None:
    def records() -> int:
        return sum(isinstance(thing, Record) for thing in gc.get_objects())

    await running.chat(body)
    gc.collect()
    before = records()  # what other tests still hold, those that failed for one
    gc.disable()
    try:
        for _ in range(5):
            await running.chat(body)
        await asyncio.sleep(0.01)
        left = records() - before
    finally:
        gc.enable()

    assert left == 0


async def test_a_silent_connection_is_closed_after_its_time_and_not_before_the_answer() -> None:
    gateway = Gateway(lambda: config.parse(yaml({"a": "mock://?slow_ttft=1500ms"}) + "store: sqlite://\n"))
    async with serving_app(gateway, timeout_keep_alive=1) as running:
        client = await Bare.connect(running.url)
        client.writer.write(HEALTH)
        await client.until(b'"ok"}')
        await asyncio.sleep(0.6)
        client.got = b""
        client.writer.write(HEALTH)
        await client.until(b'"ok"}')
        slow = await running.chat()
        async with asyncio.timeout(3):
            assert await client.reader.read(-1) == b""
        await client.close()

    assert slow.status_code == 200


async def test_an_answer_whose_body_is_slow_shows_its_head_at_once(a: Upstream) -> None:
    a.call(lambda seen: Script([HANG], headers={"content-type": "text/plain"}))

    async with serving(yaml({"a": a.url}, server="files: a")) as running:
        client = await Bare.connect(running.url)
        client.writer.write(b"GET /v1/files/f1/content HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        status, headers = await client.head()
        client.reset()

    assert (status, headers["content-type"]) == (200, "text/plain")
