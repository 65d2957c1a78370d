"""`hedge`: a slow target gets a rival; the first content wins, and the other one is gone."""

from __future__ import annotations

import asyncio

import pytest
from asked import chain_of, error_of, metric, parsed, text, until
from running import CHAT, STREAM, serving, yaml
from upstream_double import CUT, HANG, Upstream, answer, completion, delta, role

HEDGED = "hedge: 100ms"
DOWN = {"error": {"message": "down", "type": "server_error"}}


async def test_the_next_target_is_asked_when_no_content_came_and_the_loser_sees_its_connection_closed(a: Upstream, b: Upstream) -> None:
    a.stream(role(), HANG)
    b.stream(role(), delta("from b"), delta(" on and on"), 0.1, *answer("!")[1:])

    async with serving(yaml({"a": a.url, "b": b.url}, model=HEDGED)) as running:
        got = await running.chat(STREAM)
        assert len(a.disconnected) == 1, "before the winner had ended"
        lost = await metric(running, "thinkgate_attempts_total", provider="a")
        resting = running.gateway.state.health.resting()

    assert chain_of(got) == "a=client_gone,b=200"
    assert got.headers["x-thinkgate-provider"] == "b"
    assert text([line[6:] for line in got.text.split("\n") if line.startswith("data: ")]) == "from b on and on!"
    assert b.requests[0].at - a.requests[0].at == pytest.approx(0.1, abs=0.08)
    assert a.disconnected[0].at - b.requests[0].at < 0.1
    assert lost == 1
    assert resting == {}


async def test_a_target_that_is_in_time_has_no_rival(a: Upstream, b: Upstream) -> None:
    a.stream(role(), delta("quick"), 0.2, *answer(" and long")[1:])

    async with serving(yaml({"a": a.url, "b": b.url}, model=HEDGED)) as running:
        events = await running.events()

    assert text(events) == "quick and long"
    assert b.requests == []


async def test_the_first_target_may_still_win(a: Upstream, b: Upstream) -> None:
    a.reply(completion("from a"), delay=0.2)
    b.reply(completion("from b"), delay=5)

    async with serving(yaml({"a": a.url, "b": b.url}, model=HEDGED)) as running:
        got = await running.chat()
        await b.until(lambda upstream: upstream.disconnected)

    assert got.json()["choices"][0]["message"]["content"] == "from a"
    assert chain_of(got) == "a=200,b=client_gone" or chain_of(got) == "b=client_gone,a=200"


async def test_a_failure_before_the_rival_moves_on_as_ever(a: Upstream, b: Upstream) -> None:
    a.reply(DOWN, status=500)
    b.reply(completion("from b"))

    async with serving(yaml({"a": a.url, "b": b.url}, model=HEDGED)) as running:
        got = await running.chat()

    assert chain_of(got) == "a=500,b=200"


async def test_when_one_fails_the_other_goes_on(a: Upstream, b: Upstream) -> None:
    a.reply(DOWN, status=500, delay=0.15)
    b.reply(completion("from b"), delay=0.2)

    async with serving(yaml({"a": a.url, "b": b.url}, model=HEDGED)) as running:
        got = await running.chat()

    assert chain_of(got) == "a=500,b=200"


async def test_when_both_fail_the_third_is_asked(a: Upstream, b: Upstream) -> None:
    a.reply(DOWN, status=500, delay=0.2)
    b.reply(DOWN, status=503)

    async with serving(yaml({"a": a.url, "b": b.url, "c": "mock://?reply=from-c&gap=0"}, model=HEDGED)) as running:
        got = await running.chat()

    assert chain_of(got) == "b=503,a=500,c=200"


async def test_when_all_fail_the_error_has_every_attempt(a: Upstream, b: Upstream) -> None:
    a.reply(DOWN, status=500, delay=0.2)
    b.reply(DOWN, status=500, delay=0.2)

    async with serving(yaml({"a": a.url, "b": b.url}, model=HEDGED)) as running:
        got = await running.chat()

    assert got.status_code == 502
    assert sorted(attempt["provider"] for attempt in got.json()["error"]["attempts"]) == ["a", "b"]


async def test_the_callers_fault_ends_both(a: Upstream, b: Upstream) -> None:
    a.reply({"error": {"message": "bad", "type": "invalid_request_error"}}, status=400, delay=0.2)
    b.wire(HANG)

    async with serving(yaml({"a": a.url, "b": b.url}, model=HEDGED)) as running:
        got = await running.chat()
        await b.until(lambda upstream: upstream.disconnected)

    assert (got.status_code, got.json()["error"]["message"]) == (400, "bad")


async def test_a_client_that_leaves_ends_both(a: Upstream, b: Upstream) -> None:
    a.wire(HANG)
    b.wire(HANG)

    async with serving(yaml({"a": a.url, "b": b.url}, model=HEDGED)) as running:
        client = asyncio.create_task(running.chat(STREAM))
        await b.until(lambda upstream: upstream.requests)
        client.cancel()
        await a.until(lambda upstream: upstream.disconnected)
        await b.until(lambda upstream: upstream.disconnected)

    assert (len(a.disconnected), len(b.disconnected)) == (1, 1)


async def test_a_winner_that_breaks_off_is_a_cut_stream(a: Upstream, b: Upstream) -> None:
    a.stream(role(), HANG)
    b.stream(role(), delta("half"), CUT)

    async with serving(yaml({"a": a.url, "b": b.url}, model=HEDGED)) as running:
        events = await running.events()

    assert error_of(events)["code"] == "stream_interrupted"


async def test_headers_usage_and_transforms_are_the_winners(a: Upstream, b: Upstream) -> None:
    a.stream(role(), HANG, headers={"x-ratelimit-remaining-requests": "1"})
    b.stream(role(), delta("x"), *answer(usage_chunk=True)[1:], headers={"x-ratelimit-remaining-requests": "99"}, delay=0.1)

    async with serving(yaml({"a": a.url, "b": b.url}, model=HEDGED)) as running:
        got = await running.chat({**STREAM, "stream_options": {"include_usage": True}})
        tokens = await metric(running, "thinkgate_tokens_total", provider="b", kind="completion")

    assert got.headers["x-ratelimit-remaining-requests"] == "99"
    assert parsed([line[6:] for line in got.text.split("\n") if line.startswith("data: ")])[-1]["usage"]["completion_tokens"] == 3
    assert tokens == 3


async def test_a_rival_without_a_place_is_not_waited_for(a: Upstream, b: Upstream) -> None:
    a.reply(completion("from a"), delay=0.3)
    b.stream(role(), delta("x"), HANG)

    conf = yaml({"a": a.url, "b": b.url}, model=HEDGED, b="limits: {concurrency: 1}\nretries: 0")
    async with serving(conf) as running, running.client.stream("POST", "/v1/chat/completions", json={**STREAM, "model": "b/x"}):
        got = await running.chat()

    assert chain_of(got) == "a=200"
    assert len(b.requests) == 1


async def test_without_fallback_there_is_no_rival(a: Upstream, b: Upstream) -> None:
    a.reply(completion("from a"), delay=0.2)

    async with serving(yaml({"a": a.url, "b": b.url}, model=HEDGED)) as running:
        got = await running.chat(x_thinkgate_fallback="off")

    assert chain_of(got) == "a=200"
    assert b.requests == []


async def test_forty_races_leave_no_task_and_no_connection(a: Upstream, b: Upstream) -> None:
    a.call(lambda seen: completion("from a"))
    a.clear()
    a.reply(completion("late"), delay=0.5, repeat=100)
    b.reply(completion("from b"), delay=0.01, repeat=100)

    async with serving(yaml({"a": a.url, "b": b.url}, model="hedge: 20ms")) as running:
        before = len(asyncio.all_tasks())
        got = await asyncio.gather(*(running.chat(CHAT) for _ in range(40)))
        await a.until(lambda upstream: upstream.open == 0)
        await until(lambda: len(asyncio.all_tasks()) <= before + 80)  # the servers' own connections
        budget = running.gateway.state.router.fleet.budget

    assert {answer.status_code for answer in got} == {200}
    assert (budget.active, budget.again) == (0, 0)
