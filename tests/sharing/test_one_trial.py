"""After a rest one process tries the target out, not each (reliability 4d and 6: one probe per half-open)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from running import STREAM, Running, serving, yaml
from servers import Valkey
from test_two_replicas import eventually, pair, shared
from upstream_double import HANG, Upstream, completion, delta, plain, role

from gateway.routing import sharing
from gateway.store import RestBoard, Shared

SLOW_DOWN = {"error": {"message": "slow down"}}
DOWN = {"error": {"message": "down"}}
REST = "retries: 0\ncooldown: {after: 1, base: 1s, max: 1s}"

Pair = tuple[Running, Running]


def over_two(a: Upstream, b: Upstream, url: str, /, **settings: str) -> str:
    b.reply(completion(), repeat=400)
    return yaml({"a": a.url, "b": b.url}, more=f"shared: {url}\n", **settings)


async def rested(both: Pair, name: str = "a/a-model", seconds: float = 1.0) -> None:
    """One of them learns that a target is to rest; both know, and wait until it is over."""
    await both[0].chat()
    for running in both:
        await eventually(lambda running=running: name in running.gateway.state.health.resting())  # type: ignore[misc]
    await eventually(lambda: not any(running.gateway.state.health.rest(name) for running in both))


async def crowd(both: Pair, count: int = 20, body: dict[str, Any] | None = None) -> list[httpx.Response]:
    return await asyncio.gather(*(both[n % 2].chat(body) for n in range(count)))


def chains(got: list[httpx.Response]) -> Counter[str]:
    return Counter(g.headers["x-thinkgate-chain"] for g in got)


async def test_of_two_replicas_one_request_tries_a_target_out_and_all_use_it_when_it_answered(a: Upstream, b: Upstream, valkey: Valkey) -> None:
    a.reply(SLOW_DOWN, status=429, headers={"retry-after": "1"})
    a.reply(completion(), delay=1.0)
    a.reply(completion(), repeat=50)

    async with pair(over_two(a, b, valkey.fresh())) as both:
        await rested(both)
        trial = asyncio.create_task(crowd(both))
        await a.until(lambda a: len(a.requests) == 2)
        later = await crowd(both)
        first = await trial
        await eventually(lambda: not any(running.gateway.state.health.on_trial("a/a-model") for running in both))
        after = await crowd(both)

    assert chains(first) == {"a=200": 1, "b=200": 19}
    assert chains(later) == {"b=200": 20}
    assert chains(after) == {"a=200": 20}


async def test_a_trial_that_fails_is_one_for_all(a: Upstream, b: Upstream, valkey: Valkey) -> None:
    a.reply(DOWN, status=503)
    a.reply(DOWN, status=503, repeat=50)

    async with pair(over_two(a, b, valkey.fresh(), a=REST)) as both:
        await rested(both)
        first = await crowd(both)
        at_once = await crowd(both)  # before the next round of hearing

    assert chains(first) == {"a=503,b=200": 1, "b=200": 19}
    assert chains(at_once) == {"b=200": 20}
    assert len(a.requests) == 2


async def test_the_only_target_is_tried_by_one_at_a_time_while_it_rests_on_our_arithmetic(a: Upstream, valkey: Valkey) -> None:
    a.reply(DOWN, status=503)
    a.reply(DOWN, status=503, delay=0.3, repeat=100)
    config = yaml({"a": a.url}, more=f"shared: {valkey.fresh()}\n", a="retries: 0\ncooldown: {after: 1, base: 30s}")
    async with pair(config) as both:
        await both[0].chat()
        await eventually(lambda: "a/a-model" in both[1].gateway.state.health.resting())
        first = await crowd(both)

    sent = [g for g in first if "a=503" in g.headers.get("x-thinkgate-chain", "")]
    assert len(sent) == 1 == len(a.requests) - 1
    others = [g.json()["error"] for g in first if g not in sent]
    assert {error["code"] for error in others} == {"no_target_available"}
    assert all("resting for" in error["attempts"][0]["skipped"] for error in others)


async def test_a_process_that_dies_while_it_tries_is_in_nobodys_way_for_long(a: Upstream, b: Upstream, valkey: Valkey) -> None:
    a.reply(SLOW_DOWN, status=429, headers={"retry-after": "1"})
    a.reply(completion(), repeat=50)
    url = valkey.fresh()

    async with pair(over_two(a, b, url)) as both:
        await rested(both)
        async with dying(url) as board:
            assert await board.take("a/a-model", 0.0) == (0.0, None)
        began = time.monotonic()
        kept_off = await crowd(both)

        async def tried() -> bool:
            return "a=200" in (await both[1].chat()).headers["x-thinkgate-chain"]

        await eventually(tried)
        took = time.monotonic() - began

    assert chains(kept_off) == {"b=200": 20}
    assert 1.0 < took < 4.0, "the lease of 2 s, and half a second until it is asked again"


@asynccontextmanager
async def dying(url: str) -> AsyncIterator[RestBoard]:
    """A process that tries something out and is killed at the end of the block."""
    other = Shared(url)
    board = RestBoard(other, 2.0, 600.0)
    await other.open()
    try:
        yield board
    finally:
        assert other._link is not None
        other._link.close()
        await other.aclose()


async def test_a_long_trial_keeps_the_others_off_for_as_long_as_it_takes(a: Upstream, b: Upstream, valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "TRIAL", 1.2)
    a.reply(SLOW_DOWN, status=429, headers={"retry-after": "1"})
    a.reply(completion(), delay=2.4)
    a.reply(completion(), repeat=50)

    async with pair(over_two(a, b, valkey.fresh())) as both:
        await rested(both)
        trial = asyncio.create_task(both[0].chat())
        await a.until(lambda a: len(a.requests) == 2)
        seen = Counter[str]()
        while not trial.done():
            seen += chains(await crowd(both, 4))
            await asyncio.sleep(0.1)

    assert (await trial).headers["x-thinkgate-chain"] == "a=200"
    assert seen["b=200"] > 20
    assert seen["a=200"] <= 4, "those of the moment in which it ended"


async def test_a_client_that_leaves_ends_its_trial_for_all(a: Upstream, b: Upstream, valkey: Valkey) -> None:
    a.reply(SLOW_DOWN, status=429, headers={"retry-after": "1"})
    a.stream(HANG)
    a.reply(completion(), repeat=50)

    async with pair(over_two(a, b, valkey.fresh())) as both:
        await rested(both)
        trial = asyncio.create_task(both[0].chat())
        await a.until(lambda a: len(a.requests) == 2)
        assert chains(await crowd(both, 4)) == {"b=200": 4}
        trial.cancel()
        await asyncio.gather(trial, return_exceptions=True)

        async def tried() -> bool:
            return "a=200" in (await both[1].chat()).headers["x-thinkgate-chain"]

        await eventually(tried, 3.0)  # well before the lease of 5 s ends


async def test_with_the_first_content_of_a_stream_another_one_may_be_made(a: Upstream, b: Upstream, valkey: Valkey) -> None:
    a.reply(SLOW_DOWN, status=429, headers={"retry-after": "1"})
    a.stream(role(), delta("Hel"), HANG)
    a.reply(completion(), repeat=50)

    async with pair(over_two(a, b, valkey.fresh())) as both:
        await rested(both)
        async with both[0].client.stream("POST", "/v1/chat/completions", json=STREAM) as answer:
            await anext(answer.aiter_raw())

            async def tried() -> bool:
                return "a=200" in (await both[1].chat()).headers["x-thinkgate-chain"]

            await eventually(tried)


async def test_keys_of_a_pool_are_tried_out_by_one_process_too(a: Upstream, valkey: Valkey) -> None:
    keys = ["key-one-0123456789", "key-two-0123456789"]

    def answer(seen: Any) -> Any:
        used = seen.headers["authorization"].removeprefix("Bearer ")
        if used == keys[0]:
            return plain({"error": {"message": "invalid api key"}}, status=401, delay=0.3)
        return plain(completion())

    a.call(answer)
    settings = f"api_keys: [{keys[0]}, {keys[1]}]\nretries: 0\ncooldown: {{base: 1s, max: 1s}}\napi_key:"
    config = yaml({"a": a.url}, more=f"shared: {valkey.fresh()}\n", a=settings.replace("\napi_key:", "  # api_key:"))
    async with pair(config) as both:
        await rested(both, "a/key 1")
        before = first_key(a, keys[0])
        got = await crowd(both)
        tried = first_key(a, keys[0]) - before

    assert {g.status_code for g in got} == {200}
    assert tried == 1


def first_key(a: Upstream, key: str) -> int:
    return sum(seen.headers["authorization"] == f"Bearer {key}" for seen in a.requests)


async def test_a_hedge_is_no_second_trial(a: Upstream, b: Upstream, valkey: Valkey) -> None:
    """`a` is slow, so that `b` is asked too, which is on trial: by one of the two replicas."""
    b.reply(SLOW_DOWN, status=429, headers={"retry-after": "1"})
    b.reply(completion(), delay=0.5)
    b.reply(completion(), repeat=20)
    config = yaml({"a": a.url, "b": b.url}, more=f"shared: {valkey.fresh()}\n", model="hedge: 100ms")

    async with pair(config) as both:
        a.reply(completion(), delay=0.4)
        await rested(both, "b/b-model")
        a.reply(completion(), delay=0.9, repeat=40)
        got = await crowd(both, 10)

    assert {g.status_code for g in got} == {200}
    assert len(b.requests) == 2, "the one that was refused, and one trial"


async def test_without_the_shared_state_each_process_goes_by_its_own_rule(a: Upstream, b: Upstream, own_valkey: Valkey) -> None:
    a.reply(SLOW_DOWN, status=429, headers={"retry-after": "1"})
    a.reply(completion(), delay=0.5, repeat=2)
    a.reply(completion(), repeat=50)

    async with pair(over_two(a, b, own_valkey.fresh())) as both:
        await both[0].chat()
        await eventually(lambda: "a/a-model" in both[1].gateway.state.health.resting())
        own_valkey.kill()
        try:
            await eventually(lambda: all(shared(running)["state"] == "away" for running in both))
            await eventually(lambda: not any(running.gateway.state.health.rest("a/a-model") for running in both))
            first = await crowd(both)
        finally:
            own_valkey.start()

    assert chains(first) == {"a=200": 2, "b=200": 18}


async def test_a_silent_server_costs_a_trial_one_wait(a: Upstream, b: Upstream, own_valkey: Valkey) -> None:
    a.reply(SLOW_DOWN, status=429, headers={"retry-after": "1"})
    a.reply(completion(), repeat=50)

    async with serving(over_two(a, b, own_valkey.fresh(timeout=None))) as running:
        await eventually(lambda: shared(running)["state"] == "up")
        await running.chat()
        await eventually(lambda: not running.gateway.state.health.rest("a/a-model"))
        own_valkey.silence()
        try:
            began = time.monotonic()
            got = await running.chat()
            took = time.monotonic() - began
        finally:
            own_valkey.wake()

    assert got.headers["x-thinkgate-chain"] == "a=200"
    assert took < 1.5


async def test_the_longer_of_two_rests_is_what_everybody_hears(valkey: Valkey) -> None:
    shared_state = Shared(valkey.fresh())
    board = RestBoard(shared_state, 5.0, 600.0)
    await shared_state.open()
    try:
        board.rest("a/x", 30, {"kind": "rate_limit", "own": True, "rests": 1})
        board.rest("a/x", 5, {"kind": "server", "own": False, "rests": 1})
        board.rest("b/x", -601, {"kind": "server", "own": False, "rests": 1})
        board.rest("c/x", -10, {"kind": "server", "own": False, "rests": 1})
        found = await board.all()
    finally:
        await shared_state.aclose()

    assert found["a/x"][1]["kind"] == "rate_limit"
    assert found["a/x"][0] == pytest.approx(30, abs=1)
    assert set(found) == {"a/x", "c/x"}


async def test_of_very_many_rests_only_those_that_are_not_over_are_told_of(valkey: Valkey) -> None:
    state = Shared(valkey.fresh())
    board = RestBoard(state, 5.0, 600.0)
    await state.open()
    why = {"kind": "server", "own": False, "rests": 1}
    try:
        board.rest("a/real", 30, why)
        for number in range(2500):
            board.rest(f"a/{number}", -1, why)
        await state.settled()
        found = await board.all()
    finally:
        await state.aclose()

    assert set(found) == {"a/real"}
