"""Clients that leave at every moment, and clients that do not read: the provider notices, and nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from asking import Bare
from running import CHAT, STREAM, Running, in_memory, serving, serving_app, yaml
from upstream_double import HANG, Item, Script, Upstream, completion, delta, event_bytes, events, finish, role

from gateway import config
from gateway.app import Gateway

SOON = 1.0
"""seconds in which the provider must notice; the promise is a tenth of it"""

MOMENTS: dict[str, list[Item]] = {
    "before the headers": [],
    "before the content": [role(), HANG],
    "between comments": [item for _ in range(200) for item in (b": ping\n\n", 0.02)],
    "after the content": [role(), delta("Hel"), HANG],
    "in the middle": [role(), *(item for _ in range(500) for item in (delta("x"), 0.01))],
}


def play(a: Upstream, moment: str) -> None:
    if moment == "before the headers":
        a.wire(HANG)
    else:
        a.stream(*MOMENTS[moment])


async def settled(running: Running, a: Upstream) -> None:
    """Wait until nothing of a request is left: no connection to the provider, and nothing in flight."""
    await a.until(lambda upstream: upstream.open == 0, SOON)
    await idle(running)


async def idle(running: Running) -> None:
    async with asyncio.timeout(SOON):
        while "thinkgate_in_flight 0.0" not in (await running.client.get("/metrics")).text:  # noqa: ASYNC110 - it is the gateway's own word
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize("moment", MOMENTS)
async def test_the_provider_notices_that_the_client_left(a: Upstream, b: Upstream, moment: str, stream: bool, how: str) -> None:
    play(a, moment)

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        client = await Bare.ask(running.url, {**CHAT, "stream": stream})
        if stream and moment in ("after the content", "in the middle"):
            await client.until(b'"content":"')
        else:
            await a.until(lambda upstream: upstream.requests)
            await asyncio.sleep(0.05)
        left = asyncio.get_running_loop().time()
        if how == "close":
            await client.close()
        else:
            client.reset()
        await a.until(lambda upstream: upstream.disconnected, SOON)
        await settled(running, a)

    assert len(a.disconnected) == 1
    assert a.disconnected[0].at - left < SOON
    assert b.requests == []  # nobody is there to read its answer


async def test_a_client_that_left_is_counted_and_rests_nobody(a: Upstream) -> None:
    a.stream(role(), HANG, repeat=2).reply(completion("still here"))

    async with serving(yaml({"a": a.url}, a="retries: 0\ncooldown: {after: 1}")) as running:
        for _ in range(2):
            client = await Bare.ask(running.url)
            await a.until(lambda upstream: upstream.requests)
            await asyncio.sleep(0.02)
            await client.close()
            await settled(running, a)
        metrics = (await running.client.get("/metrics")).text
        assert (await running.chat()).status_code == 200

    assert 'thinkgate_attempts_total{class="client_gone",provider="a"} 2.0' in metrics
    assert 'status="499"' in metrics


async def test_forty_clients_that_reset_at_once_do_not_use_up_the_connections(a: Upstream) -> None:
    a.call(lambda seen: events(delta("a"), finish(), "[DONE]", delay=0.4 if seen.json["model"] == "slow" else 0.0))

    async with serving(yaml({"a": a.url})) as running:
        clients = [await Bare.ask(running.url, {**STREAM, "model": "a/slow"}) for _ in range(40)]
        await asyncio.sleep(0.05)
        for client in clients:
            client.reset()
        began = asyncio.get_running_loop().time()
        got = await asyncio.gather(*(running.events() for _ in range(4)))
        assert asyncio.get_running_loop().time() - began < 2
        await a.until(lambda upstream: upstream.open <= 4, SOON)

    assert all(answer[-1] == "[DONE]" for answer in got)


async def test_clients_that_reset_before_their_request_is_whole_reach_no_provider(a: Upstream) -> None:
    async with serving(yaml({"a": a.reply().url})) as running:
        for _ in range(10):
            client = await Bare.connect(running.url)
            client.writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")
            await asyncio.sleep(0.005)
            client.reset()
        assert (await running.chat()).status_code == 200
        await idle(running)

    assert len(a.requests) == 1


async def test_leaving_between_two_attempts_ends_the_chain(a: Upstream, b: Upstream) -> None:
    a.reply({"error": {"message": "down"}}, status=500, repeat=20)

    async with serving(yaml({"a": a.url, "b": b.url}, a="retries: 10")) as running:
        client = await Bare.ask(running.url)
        await a.until(lambda upstream: upstream.requests)
        await asyncio.sleep(0.05)  # now it pauses before the next try
        await client.close()
        await idle(running)
        await asyncio.sleep(0.1)

    assert len(a.requests) == 1
    assert b.requests == []


class Endless:
    """The items of a stream without an end; `sent` counts the bytes that were taken."""

    def __init__(self) -> None:
        self.sent = 0
        self.piece = event_bytes(delta("x" * 32_000))

    def __iter__(self) -> Iterator[bytes]:
        yield event_bytes(role())
        while True:
            self.sent += len(self.piece)
            yield self.piece


async def test_a_client_that_does_not_read_slows_the_provider_down(a: Upstream) -> None:
    source: Any = Endless()
    a.call(lambda seen: Script(source, headers={"content-type": "text/event-stream"}))

    async with serving(yaml({"a": a.url})) as running:
        client = await Bare.ask(running.url, buffer=16_384)
        await client.until(b"200 OK")
        await asyncio.sleep(0.4)
        stalled = source.sent
        await asyncio.sleep(0.3)
        assert source.sent == stalled  # it waits
        assert stalled < 24 << 20  # what two pairs of socket buffers hold; the gateway itself holds less than one MiB
        for _ in range(2000):
            await client.reader.read(65_536)
            if source.sent > stalled + (4 << 20):
                break
        assert source.sent > stalled  # and goes on when the client does
        client.reset()
        await a.until(lambda upstream: upstream.open == 0, SOON)


async def test_other_clients_are_served_while_one_does_not_read(a: Upstream, b: Upstream) -> None:
    source: Any = Endless()
    a.call(lambda seen: Script(source, headers={"content-type": "text/event-stream"}))
    b.reply(completion("quick"))

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        stuck = await Bare.ask(running.url, buffer=16_384)
        await asyncio.sleep(0.2)
        began = asyncio.get_running_loop().time()
        for _ in range(10):
            assert (await running.chat({**CHAT, "model": "b/x"})).status_code == 200
        assert asyncio.get_running_loop().time() - began < 1
        stuck.reset()


async def test_a_stalled_client_that_leaves_ends_the_exchange(a: Upstream) -> None:
    source: Any = Endless()
    a.call(lambda seen: Script(source, headers={"content-type": "text/event-stream"}))

    async with serving(yaml({"a": a.url})) as running:
        client = await Bare.ask(running.url, buffer=16_384)
        await client.until(b"200 OK")
        await asyncio.sleep(0.3)
        client.reset()
        await settled(running, a)

    assert len(a.disconnected) == 1


async def test_the_end_of_the_server_is_told_to_those_who_wait(a: Upstream) -> None:
    a.stream(role(), delta("Hel"), HANG)
    settings = in_memory(config.parse(yaml({"a": a.url}), env={}))

    async with serving_app(Gateway(lambda: settings), timeout_graceful_shutdown=1) as running:
        streaming = await Bare.ask(running.url)
        await streaming.until(b'"content":"Hel"')
        plain = await Bare.ask(running.url, CHAT)
        await a.until(lambda upstream: len(upstream.requests) == 2)

    for client in (streaming, plain):
        said = client.got + await client.reader.read()
        await client.close()
        assert b'"code":"shutting_down"' in said
        assert b"[DONE]" not in said
    assert said.startswith(b"HTTP/1.1 503")


async def test_the_end_of_the_server_does_not_begin_a_second_response(a: Upstream) -> None:
    a.stream(role(), delta("Hel"), HANG)
    settings = in_memory(config.parse(yaml({"a": a.url}), env={}))

    async with serving_app(Gateway(lambda: settings), timeout_graceful_shutdown=0.2) as running:
        client = await Bare.connect(running.url)
        client.send("POST", "/v1/responses", b'{"model": "m", "input": "hi", "stream": true}')
        await client.until(b'"delta":"Hel"')

    said = client.got + await client.reader.read()
    await client.close()
    assert said.count(b"event: response.created") == 1
    assert said.index(b"event: error") < said.index(b"event: response.failed")
    assert said.count(b"shutting_down") >= 1
