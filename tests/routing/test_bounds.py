"""What a provider's limits let in, and when what they turned away fits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from clock import Clock
from hypothesis import given
from hypothesis import strategies as st

from gateway.chat import Body, Record, Request, dumps
from gateway.config import Limits
from gateway.routing import bounds as module
from gateway.routing.bounds import Bounds, Pass, Refusal, Window, expected_tokens

FOREVER = float("inf")


def make(clock: Clock | None = None, **limits: int) -> Bounds:
    return Bounds(Limits(**limits), clock or Clock())


def entered(bounds: Bounds, tokens: int = 1) -> Pass:
    got = bounds.try_enter(tokens)
    assert isinstance(got, Pass)
    return got


def refused(bounds: Bounds, tokens: int = 1) -> Refusal:
    got = bounds.try_enter(tokens)
    assert isinstance(got, Refusal)
    return got


def request(**body: Any) -> Request:
    raw = dumps({"model": "m", **body})
    return Request(Body(raw), "m", Record("r"))


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({}, 1024),
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 8, "max_tokens": 7}, 8),
        ({"max_output_tokens": 9}, 9),
        ({"max_tokens": None}, 1024),
        ({"max_tokens": "many"}, 1024),
        ({"max_tokens": -1}, 1024),
        ({"max_tokens": True}, 1024),
        ({"max_tokens": 10**30}, 1024),
    ],
)
def test_a_request_is_expected_to_use_a_quarter_of_its_bytes_and_the_longest_answer(body: dict[str, Any], answer: int) -> None:
    asked = request(**body)

    assert expected_tokens(asked) == len(asked.body.raw) // 4 + answer


@pytest.mark.parametrize("raw", [b"", b"--boundary\r\n\xff\xfe", b"[1]", b"{", b"[" * 5000])
def test_a_body_that_is_no_json_object_has_a_size_all_the_same(raw: bytes) -> None:
    assert expected_tokens(Request(Body(raw), "m", Record("r"))) == len(raw) // 4 + 1024


def test_requests_of_the_last_minute_are_counted_and_slide_out_one_by_one() -> None:
    clock = Clock()
    bounds = make(clock, rpm=2)
    entered(bounds)
    clock.now += 20
    entered(bounds)
    clock.now += 10

    refusal = refused(bounds)
    assert refusal.limit == "rpm"
    assert refusal.wait == pytest.approx(30)
    assert refusal.why == "at its limit of 2 requests a minute, free in 30.0 s"
    clock.now += 30
    entered(bounds)
    assert refused(bounds).wait == pytest.approx(20)


def test_tokens_are_reserved_and_settle_on_the_answer() -> None:
    bounds = make(tpm=100)
    first = entered(bounds, 80)
    assert refused(bounds, 30).limit == "tpm"

    bounds.leave(first, 10)

    entered(bounds, 90)
    assert refused(bounds, 1).limit == "tpm"


def test_an_answer_may_use_more_than_was_reserved() -> None:
    bounds = make(tpm=100)
    bounds.leave(entered(bounds, 10), 150)

    assert refused(bounds, 1).wait == pytest.approx(60)


def test_what_was_reserved_stays_where_nothing_is_known_of_its_use() -> None:
    bounds = make(tpm=100)
    bounds.leave(entered(bounds, 80), None)

    assert refused(bounds, 30).limit == "tpm"


def test_a_request_larger_than_the_limit_has_the_minute_to_itself() -> None:
    clock = Clock()
    bounds = make(clock, tpm=100)
    entered(bounds, 5000)
    assert refused(bounds, 1).wait == pytest.approx(60)

    clock.now += 60
    entered(bounds, 5000)


def test_settling_after_the_minute_changes_nothing() -> None:
    clock = Clock()
    bounds = make(clock, tpm=100)
    old = entered(bounds, 60)
    clock.now += 61
    entered(bounds, 50)
    bounds.leave(old, 1)

    assert refused(bounds, 51).limit == "tpm"
    entered(bounds, 50)


def test_leaving_twice_gives_one_place_back() -> None:
    bounds = make(concurrency=1)
    taken = entered(bounds)
    bounds.leave(taken, None)
    bounds.leave(taken, None)

    entered(bounds)
    assert refused(bounds).limit == "concurrency"


def test_what_is_turned_away_uses_nothing() -> None:
    bounds = make(rpm=1, tpm=100)
    entered(bounds, 10)
    refused(bounds, 10)
    bounds.limits = Limits(rpm=2, tpm=100)

    entered(bounds, 90)


def test_limits_may_be_exchanged_without_forgetting_what_was_used() -> None:
    bounds = make(rpm=5)
    for _ in range(3):
        entered(bounds)
    bounds.limits = Limits(rpm=3)

    assert refused(bounds).limit == "rpm"


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(1, 50)), max_size=60), st.integers(1, 100))
def test_no_minute_ever_holds_more_than_the_limit_and_the_wait_is_right(steps: list[tuple[float, int]], limit: int) -> None:
    window, now, let_in = Window(), 0.0, []
    for pause, amount in steps:
        now += pause
        amount = min(amount, limit)
        wait = window.wait(amount, limit, now)
        if wait == 0:
            window.add(amount, now)
            let_in.append((now, amount))
        else:
            at = now + wait + 1e-6
            assert sum(held for moment, held in let_in if moment + 60 > at) + amount <= limit
    for end, _ in let_in:
        assert sum(held for moment, held in let_in if moment <= end < moment + 60) <= limit


async def test_who_waits_longest_is_next() -> None:
    bounds = make(concurrency=2)
    first, second = entered(bounds), entered(bounds)
    order: list[str] = []

    async def wait(name: str) -> None:
        got = await bounds.enter(1, FOREVER)
        assert isinstance(got, Pass)
        order.append(name)

    tasks = [asyncio.create_task(wait(name)) for name in ("c", "d")]
    await asyncio.sleep(0)
    assert refused(bounds).limit == "concurrency"
    bounds.leave(first, None)
    bounds.leave(second, None)
    assert isinstance(bounds.try_enter(1), Refusal), "the places are given already"
    await asyncio.gather(*tasks)

    assert order == ["c", "d"]
    assert bounds.running == 2


async def test_when_as_many_wait_as_are_served_the_next_is_turned_away_at_once() -> None:
    bounds = make(concurrency=1)
    taken = entered(bounds)
    waiting = asyncio.create_task(bounds.enter(1, FOREVER))
    await asyncio.sleep(0)

    with pytest.raises(StopIteration) as answered:  # at once: without waiting for anything
        bounds.enter(1, FOREVER).send(None)

    got = answered.value.value
    assert isinstance(got, Refusal)
    assert got.why == "at its limit of 1 requests at a time, and as many wait"
    bounds.leave(taken, None)
    assert isinstance(await waiting, Pass)


async def test_waiting_ends_with_the_deadline_and_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.03)
    bounds = make(concurrency=1)
    taken = entered(bounds)
    loop = asyncio.get_running_loop()

    for until in (loop.time() + 0.01, FOREVER):
        got = await bounds.enter(1, until)
        assert isinstance(got, Refusal)
        assert got.why == "at its limit of 1 requests at a time, and none ended in time"
    bounds.leave(taken, None)

    entered(bounds)


@pytest.mark.parametrize("served", [False, True], ids=["while waiting", "when its turn has come"])
async def test_who_leaves_the_queue_keeps_no_place(served: bool) -> None:
    bounds = make(concurrency=1)
    taken = entered(bounds)
    task = asyncio.create_task(bounds.enter(1, FOREVER))
    await asyncio.sleep(0)
    if served:
        bounds.leave(taken, None)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    if not served:
        bounds.leave(taken, None)

    entered(bounds)
    assert bounds.running == 1


async def test_a_place_is_no_use_when_the_minute_is_used_up_by_then() -> None:
    bounds = make(concurrency=1, rpm=2)
    taken = entered(bounds)
    waiting = asyncio.create_task(bounds.enter(1, FOREVER))
    await asyncio.sleep(0)
    bounds.limits = Limits(concurrency=1, rpm=1)
    bounds.leave(taken, None)

    got = await waiting
    assert isinstance(got, Refusal)
    assert got.limit == "rpm"
    assert bounds.running == 0
