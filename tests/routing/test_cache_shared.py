"""Equal requests at the same time: one call for all of them, read while it comes, and over when nobody reads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from running import CHAT, STREAM, Running, serving, yaml
from upstream_double import CUT, DONE, HANG, Script, Upstream, answer, completion, delta, event_bytes, events, finish, plain, role, usage

from gateway.chat import Body, Chunk, Record, Request
from gateway.errors import GatewayError, StreamCut
from gateway.routing import flight as module
from gateway.routing.flight import Flight

ZERO: dict[str, Any] = {**CHAT, "temperature": 0}
ZERO_STREAM: dict[str, Any] = {**STREAM, "temperature": 0}
SOON = 1.0


def on(a: Upstream, **settings: str) -> str:
    return yaml({"a": a.url}, model="cache: {exact: 10m}", **{"a": "retries: 0\ncooldown: {after: 1000, base: 1ms, max: 1ms}", **settings})


def lines(answer: str) -> list[str]:
    return [line[6:] for line in answer.split("\n") if line.startswith("data: ")]


def text(answer: str) -> str:
    chunks = [json.loads(line) for line in lines(answer) if line != DONE]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk.get("choices", ()))


@asynccontextmanager
async def reading(running: Running, mark: str = "", body: dict[str, Any] = ZERO_STREAM) -> AsyncIterator[AsyncIterator[str]]:
    """A client that has read its stream up to a text; it leaves at the end of the block."""
    async with running.client.stream("POST", "/v1/chat/completions", json=body) as response:
        pieces = response.aiter_text()
        got = ""
        while mark not in got:
            got += await anext(pieces)
        yield pieces


async def waiting(running: Running, readers: int) -> None:
    """Until so many requests read the one call that is under way."""
    flights = running.gateway.state.cache.flights
    async with asyncio.timeout(SOON):
        while sum(len(flight._places) for flight in flights.values()) != readers:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
async def test_equal_requests_at_the_same_time_make_one_call(a: Upstream, stream: bool) -> None:
    a.call(lambda seen: events(*answer("Hel", "lo"), delay=0.05) if stream else plain(completion("Hello"), delay=0.05))

    async with serving(on(a)) as running:
        got = await asyncio.gather(*(running.chat({**ZERO, "stream": stream}) for _ in range(20)))
        assert running.gateway.state.cache.flights == {}
        later = await running.chat({**ZERO, "stream": stream})

    assert len(a.requests) == 1
    assert len({r.text for r in got}) == 1
    assert "Hello" in got[0].text or text(got[0].text) == "Hello"
    assert sorted(r.headers["x-thinkgate-cache"] for r in got) == ["hit"] * 19 + ["miss"]
    assert later.headers["x-thinkgate-cache"] == "hit"
    assert {r.headers["x-thinkgate-provider"] for r in got} == {"a"}


async def test_different_requests_do_not_wait_for_each_other(a: Upstream) -> None:
    a.call(lambda seen: plain(completion(f"seed {seen.json.get('seed')}"), delay=0.05))

    async with serving(on(a)) as running:
        got = await asyncio.gather(*(running.chat({**ZERO, "seed": n % 4}) for n in range(12)))

    assert len(a.requests) == 4
    assert [r.json()["choices"][0]["message"]["content"] for r in got] == [f"seed {n % 4}" for n in range(12)]


async def test_those_who_did_not_ask_for_it_make_their_own_calls(a: Upstream) -> None:
    a.reply(completion(), delay=0.05)

    async with serving(on(a)) as running:
        await asyncio.gather(*(running.chat(CHAT) for _ in range(3)))

    assert len(a.requests) == 3


async def test_a_follower_reads_the_answer_while_it_comes(a: Upstream) -> None:
    a.stream(role(), delta("Hel"), HANG)

    async with serving(on(a)) as running, reading(running, "Hel"), reading(running, "Hel"):
        assert len(a.requests) == 1


async def test_who_comes_late_gets_the_beginning_too(a: Upstream) -> None:
    a.stream(role(), delta("Hel"), 0.15, delta("lo"), finish(), DONE)

    async with serving(on(a)) as running, reading(running, "Hel") as pieces:
        late = await running.chat(ZERO_STREAM)
        rest = "".join([piece async for piece in pieces])

    assert text(late.text) == "Hello"
    assert late.headers["x-thinkgate-cache"] == "hit"
    assert text(rest) == "lo"
    assert lines(rest)[-1] == lines(late.text)[-1] == DONE


async def test_each_client_gets_its_usage_rule(a: Upstream) -> None:
    a.call(lambda seen: events(role(), delta("Hel"), 0.05, delta("lo"), finish(), usage(), DONE))
    told = {**ZERO_STREAM, "stream_options": {"include_usage": True}}

    async with serving(on(a)) as running:
        got = await asyncio.gather(*(running.chat(body) for body in (ZERO_STREAM, told, ZERO_STREAM, told)))

    assert len(a.requests) == 2  # streams with and without usage are not the same stream
    assert ["usage" in r.text for r in got] == [False, True, False, True]
    assert {text(r.text) for r in got} == {"Hello"}


@pytest.mark.parametrize("header", [{"x_thinkgate_fallback": "off"}, {"x_thinkgate_provider": "a"}], ids=["fallback", "provider"])
async def test_who_wants_no_other_provider_follows_nobody_who_takes_one(a: Upstream, b: Upstream, header: dict[str, str]) -> None:
    a.call(lambda seen: plain({"error": {"message": "down"}}, status=500, delay=0.05))
    b.reply(completion("from b"))

    async with serving(yaml({"a": a.url, "b": b.url}, model="cache: {exact: 10m}")) as running:
        free, bound = await asyncio.gather(running.chat(ZERO), running.chat(ZERO, **header))

    assert (free.status_code, free.headers["x-thinkgate-provider"]) == (200, "b")
    assert bound.status_code == 502


async def test_when_the_first_one_fails_the_others_try_themselves(a: Upstream) -> None:
    a.call(lambda seen: plain({"error": {"message": "down"}}, status=500, delay=0.05) if len(a.requests) == 1 else plain(completion("up")))

    async with serving(on(a)) as running:
        got = await asyncio.gather(*(running.chat(ZERO) for _ in range(4)))

    assert sorted(r.status_code for r in got) == [200, 200, 200, 502]
    assert {r.headers["x-thinkgate-cache"] for r in got} == {"miss"}
    assert len(a.requests) == 4


async def test_what_breaks_off_after_its_content_breaks_off_for_all(a: Upstream) -> None:
    a.stream(role(), delta("Hel"), 0.05, CUT).stream(*answer("whole"))

    async with serving(on(a)) as running:
        got = await asyncio.gather(*(running.chat(ZERO_STREAM) for _ in range(3)))
        after = await running.chat(ZERO_STREAM)

    assert len(a.requests) == 2
    for r in got:
        assert text(r.text) == "Hel"
        assert json.loads(lines(r.text)[-1])["error"]["code"] == "stream_interrupted"
    assert text(after.text) == "whole"


async def test_the_call_goes_on_for_the_others_when_its_client_leaves(a: Upstream) -> None:
    a.stream(role(), delta("Hel"), 0.3, delta("lo"), finish(), usage(), DONE)

    async with serving(on(a)) as running:
        async with reading(running, "Hel"):
            follower = asyncio.create_task(running.chat(ZERO_STREAM))
            await waiting(running, 2)
        await waiting(running, 1)
        got = await follower
        metrics = (await running.client.get("/metrics")).text
        again = await running.chat(ZERO)

    assert text(got.text) == "Hello"
    assert lines(got.text)[-1] == DONE
    assert len(a.requests) == 1
    assert a.disconnected == []
    assert 'thinkgate_tokens_total{kind="prompt",provider="a"} 5.0' in metrics  # somebody pays for it, once
    assert again.headers["x-thinkgate-cache"] == "hit"


@pytest.mark.parametrize("body", [ZERO, ZERO_STREAM], ids=["plain", "stream"])
async def test_the_provider_is_told_when_nobody_is_left(a: Upstream, body: dict[str, Any]) -> None:
    a.stream(role(), HANG)

    async with serving(on(a)) as running:
        clients = [asyncio.create_task(running.chat(body)) for _ in range(3)]
        await waiting(running, 3)
        for left, client in enumerate(clients, 1):
            assert a.disconnected == []
            client.cancel()
            await asyncio.wait((client,))
            await waiting(running, 3 - left)
        await a.until(lambda upstream: upstream.disconnected and upstream.open == 0, SOON)
        assert running.gateway.state.cache.flights == {}
        a.clear()
        assert (await running.chat(body)).status_code == 502  # nothing of it was kept


async def test_a_client_alone_that_leaves_is_the_chains_client_gone(a: Upstream, caplog: pytest.LogCaptureFixture) -> None:
    a.stream(role(), delta("Hel"), HANG)
    caplog.set_level("INFO", "thinkgate.request")

    async with serving(on(a)) as running:
        async with reading(running, "Hel"):
            pass
        await a.until(lambda upstream: upstream.disconnected, SOON)
        async with asyncio.timeout(SOON):
            while not caplog.records:  # noqa: ASYNC110
                await asyncio.sleep(0.002)

    assert "status=499 error=client_gone" in caplog.text
    assert "cache=miss attempts=a=client_gone" in caplog.text


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


async def test_clients_that_do_not_read_slow_the_provider_down(a: Upstream) -> None:
    source: Any = Endless()
    a.call(lambda seen: Script(source, headers={"content-type": "text/event-stream"}))

    async with serving(on(a)) as running, reading(running, "x"), reading(running, "x"):
        (flight,) = running.gateway.state.cache.flights.values()
        async with asyncio.timeout(15):
            stalled = -1
            while source.sent != stalled:  # sockets and buffers fill up first
                stalled = source.sent
                await asyncio.sleep(0.3)
        assert stalled < 64 * 1024 * 1024
        assert flight._size < module.BUFFER + 256 * 1024  # the chunk with which it became too much is in it


# ---- the flight itself


class Slow:
    """A model whose chunks the test gives out."""

    def __init__(self) -> None:
        self.chunks: asyncio.Queue[Chunk | Exception | None] = asyncio.Queue()
        self.taken = 0
        self.closed = False

    async def generate(self, request: Request) -> AsyncIterator[Chunk]:  # type: ignore[override]
        try:
            while (item := await self.chunks.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                self.taken += 1
                yield item
        finally:
            self.closed = True


def begin(model: Slow) -> tuple[Flight, list[Flight]]:
    ended: list[Flight] = []
    request = Request(Body(b"{}"), "m", Record("r"))
    return Flight(model, request, ended.append), ended  # type: ignore[arg-type]


async def test_nothing_is_fetched_before_somebody_has_read_what_is_there() -> None:
    model = Slow()
    for _ in range(5):
        model.chunks.put_nowait(Chunk(b"x", content=True))
    flight, _ = begin(model)
    async with aclosing(flight.read()) as fast, aclosing(flight.read()) as slow:
        await anext(fast)
        await anext(slow)
        await asyncio.sleep(0.01)
        assert model.taken == 1
        await anext(fast)
        await asyncio.sleep(0.01)
        assert model.taken == 2  # the one that is ahead sets the pace


async def test_an_answer_larger_than_the_buffer_is_joined_by_nobody_and_held_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUFFER", 100)
    model = Slow()
    flight, ended = begin(model)
    async with aclosing(flight.read()) as only:
        for number in range(20):
            model.chunks.put_nowait(Chunk(b"%020d" % number, content=True))
            assert (await anext(only)).data == b"%020d" % number
            assert len(flight.chunks) <= 6
            assert (flight.whole, bool(ended)) == ((True, False) if number < 5 else (False, True))
        model.chunks.put_nowait(None)
        assert [chunk async for chunk in only] == []

    assert len(ended) == 1


async def test_a_burst_larger_than_the_buffer_reaches_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUFFER", 100)
    model = Slow()
    for number in range(50):
        model.chunks.put_nowait(Chunk(b"%030d" % number, content=True, more=number < 49))
    model.chunks.put_nowait(None)
    flight, _ = begin(model)
    async with aclosing(flight.read()) as only:
        assert [int(chunk.data) async for chunk in only] == list(range(50))


async def test_who_falls_behind_by_more_than_the_buffer_is_cut_off_and_disturbs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUFFER", 100)
    model = Slow()
    flight, _ = begin(model)
    async with aclosing(flight.read()) as fast, aclosing(flight.read()) as slow:
        model.chunks.put_nowait(Chunk(b"first", content=True))
        await anext(fast)
        await anext(slow)
        for number in range(20):
            model.chunks.put_nowait(Chunk(b"%020d" % number, content=True))
            assert int((await anext(fast)).data) == number
        with pytest.raises(StreamCut):
            await anext(slow)
        model.chunks.put_nowait(None)
        assert [chunk async for chunk in fast] == []


async def test_a_fault_of_ours_reaches_every_reader() -> None:
    model = Slow()
    flight, ended = begin(model)
    async with aclosing(flight.read()) as one, aclosing(flight.read()) as two:
        model.chunks.put_nowait(ZeroDivisionError("oh"))
        for reader in (one, two):
            with pytest.raises(ZeroDivisionError):
                await anext(reader)

    assert (flight.over, len(ended)) == (True, 1)


async def test_a_flight_that_is_ended_from_outside_is_not_complete() -> None:
    model = Slow()
    flight, _ = begin(model)
    async with aclosing(flight.read()) as reader:
        model.chunks.put_nowait(Chunk(b"x", content=True))
        await anext(reader)
        flight._task.cancel()
        with pytest.raises(GatewayError):
            await anext(reader)

    assert model.closed
