"""A provider's limits under load: what is let in, what waits, what goes elsewhere, what is told to go away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asked import chain_of, many, metric
from running import CHAT, serving, yaml
from upstream_double import CUT, HANG, Upstream, completion, delta, plain, role

from gateway.routing import bounds


def slow(seconds: float) -> Any:
    return lambda seen: plain(completion(), delay=seconds)


async def test_two_hundred_requests_never_exceed_the_concurrency_and_the_surplus_moves_on(a: Upstream, b: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "PATIENCE", 10.0)  # two hundred clients in one loop are slow themselves
    a.call(slow(0.05))
    b.call(slow(0.0))

    async with serving(yaml({"a": a.url, "b": b.url}, a="limits: {concurrency: 10}\nretries: 0")) as running:
        got = await many(running, 200)

    assert {answer.status_code for answer, _ in got} == {200}
    assert a.most_at_once <= 10
    assert len(a.requests) >= 20, "those that run and those that wait"
    assert len(a.requests) + len(b.requests) == 200


async def test_two_hundred_requests_at_a_full_provider_alone_are_told_when_to_come_back(a: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "PATIENCE", 10.0)  # two hundred clients in one loop are slow themselves
    a.call(slow(0.3))

    async with serving(yaml({"a": a.url}, a="limits: {concurrency: 5}\nretries: 0")) as running:
        got = await many(running, 200)
        turned = await metric(running, "thinkgate_left_out_total", provider="a", why="concurrency")
        after = await running.chat()

    away = [(answer, seconds) for answer, seconds in got if answer.status_code == 503]
    assert a.most_at_once <= 5
    assert len(got) - len(away) == len(a.requests) - 1 == 10, "five that run and five that wait"
    assert {answer.status_code for answer, _ in got} == {200, 503}
    for answer, _ in away:
        assert answer.json()["error"]["code"] == "no_target_available"
        assert answer.headers["retry-after"] == "10"
        (attempt,) = answer.json()["error"]["attempts"]
        assert attempt["skipped"].startswith("at its limit of 5 requests at a time")
        assert attempt["class"] is None
    assert turned == len(away)
    assert after.status_code == 200, "a limit rests nobody"


async def test_a_full_queue_answers_in_less_than_fifty_milliseconds(a: Upstream) -> None:
    a.call(slow(5.0))

    async with serving(yaml({"a": a.url}, a="limits: {concurrency: 2}\nretries: 0")) as running:
        held = [asyncio.create_task(running.chat()) for _ in range(4)]
        await a.until(lambda upstream: len(upstream.requests) == 2)
        await asyncio.sleep(0.05)
        loop, seconds = asyncio.get_running_loop(), []
        for _ in range(20):
            began = loop.time()
            answer = await running.chat()
            seconds.append(loop.time() - began)
            assert answer.status_code == 503
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)

    assert sorted(seconds)[10] < 0.05


async def test_waiting_for_a_place_is_no_longer_than_the_deadline(a: Upstream) -> None:
    a.stream(role(), delta("x"), HANG)

    text = yaml({"a": a.url}, model="deadline: 200ms", a="limits: {concurrency: 1}\nretries: 0")
    async with serving(text) as running, running.client.stream("POST", "/v1/chat/completions", json={**CHAT, "stream": True}) as held:
        assert held.status_code == 200
        began = asyncio.get_running_loop().time()
        answer = await running.chat()
        took = asyncio.get_running_loop().time() - began

    assert answer.status_code == 503
    assert 0.15 < took < 0.6


async def test_a_place_is_given_back_however_the_request_ends(a: Upstream) -> None:
    a.reply({"error": {"message": "down"}}, status=500).stream(role(), delta("x"), CUT).wire().reply({"error": {"message": "no"}}, status=400)
    a.reply(completion())

    async with serving(yaml({"a": a.url}, a="limits: {concurrency: 1}\nretries: 0\ncooldown: {after: 100}")) as running:
        statuses = [(await running.chat({**CHAT, "stream": n == 1})).status_code for n in range(5)]
        (limits,) = running.gateway.state.router.fleet.bounds.values()

    assert statuses == [502, 200, 502, 400, 200]
    assert limits.running == 0


async def test_a_client_that_leaves_the_queue_leaves_no_trace(a: Upstream) -> None:
    a.call(slow(0.3))

    async with serving(yaml({"a": a.url}, a="limits: {concurrency: 1}\nretries: 0")) as running:
        first = asyncio.create_task(running.chat())
        await a.until(lambda upstream: upstream.requests)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await running.chat()
        assert (await first).status_code == 200
        assert (await running.chat()).status_code == 200
        (limits,) = running.gateway.state.router.fleet.bounds.values()

    assert len(a.requests) == 2
    assert limits.running == 0


async def test_two_hundred_requests_against_a_rate_send_no_more_than_it_allows(a: Upstream, b: Upstream) -> None:
    a.call(slow(0.0))
    b.call(slow(0.0))

    async with serving(yaml({"a": a.url, "b": b.url}, a="limits: {rpm: 30}\nretries: 0")) as running:
        got = await many(running, 200)

    assert {answer.status_code for answer, _ in got} == {200}
    assert (len(a.requests), len(b.requests)) == (30, 170)


async def test_a_used_up_rate_tells_the_time_until_it_is_free(a: Upstream) -> None:
    a.call(slow(0.0))

    async with serving(yaml({"a": a.url}, a="limits: {rpm: 2}\nretries: 0")) as running:
        for _ in range(2):
            await running.chat()
        answer = await running.chat()
        stream = await running.chat({**CHAT, "stream": True})

    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_target_available")
    assert int(answer.headers["retry-after"]) in (59, 60)
    assert answer.json()["error"]["attempts"][0]["retry_after"] == pytest.approx(60, abs=2)
    assert "at its limit of 2 requests a minute" in answer.json()["error"]["message"]
    assert stream.status_code == 503
    assert len(a.requests) == 2


async def test_tokens_are_reserved_by_size_and_settled_by_usage(a: Upstream) -> None:
    a.call(slow(0.0))  # each answer uses 8 tokens

    async with serving(yaml({"a": a.url}, a="limits: {tpm: 1200}\nretries: 0")) as running:
        sizes = [(await running.chat()).status_code for _ in range(5)]
        large = await running.chat({**CHAT, "max_tokens": 1190})
        crowd = await many(running, 5)

    assert sizes == [200] * 5, "a reservation of 1024 fits once at a time, its settled 8 many times"
    assert large.status_code == 503
    assert "1200 tokens a minute" in large.json()["error"]["message"]
    assert sorted(answer.status_code for answer, _ in crowd) == [200, 503, 503, 503, 503]


async def test_a_failed_request_used_no_tokens(a: Upstream) -> None:
    a.reply({"error": {"message": "down"}}, status=500, repeat=3).reply(completion())

    async with serving(yaml({"a": a.url}, a="limits: {tpm: 1100}\nretries: 0\ncooldown: {after: 100}")) as running:
        statuses = [(await running.chat()).status_code for _ in range(4)]

    assert statuses == [502, 502, 502, 200]


async def test_a_limit_is_no_reason_to_call_it_the_clients_rate(a: Upstream, b: Upstream) -> None:
    """429 is for what providers say; our own bound is a 503."""
    a.call(slow(0.0))
    b.reply({"error": {"message": "slow down"}}, status=429, headers={"retry-after": "7"})

    async with serving(yaml({"a": a.url, "b": b.url}, a="limits: {rpm: 1}\nretries: 0")) as running:
        await running.chat()
        exhausted = await running.chat()
        nobody = await running.chat()

    assert (exhausted.status_code, exhausted.json()["error"]["code"]) == (429, "providers_exhausted")
    assert (nobody.status_code, nobody.json()["error"]["code"]) == (503, "no_target_available")
    assert int(nobody.headers["retry-after"]) <= 7


async def test_a_reload_forgets_no_use_of_a_limit(a: Upstream) -> None:
    a.call(slow(0.0))
    text = yaml({"a": a.url}, a="limits: {rpm: 2}\nretries: 0")

    async with serving(text) as running:
        await running.chat()
        assert running.gateway.reload()
        statuses = [(await running.chat()).status_code for _ in range(2)]

    assert statuses == [200, 503]


async def test_a_slow_queue_moves_on_after_a_while(a: Upstream, b: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "PATIENCE", 0.05)
    a.stream(role(), delta("x"), HANG)
    b.reply(completion("b"))

    text = yaml({"a": a.url, "b": b.url}, a="limits: {concurrency: 1}\nretries: 0")
    async with serving(text) as running, running.client.stream("POST", "/v1/chat/completions", json={**CHAT, "stream": True}):
        answer = await running.chat()

    assert chain_of(answer) == "b=200"
