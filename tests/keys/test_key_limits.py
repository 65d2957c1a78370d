"""What a meter lets in, against a plain model of the last 60 seconds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config import Limits
from gateway.keys import Meter, Window
from gateway.keys.limits import FINE, MINUTE, STEP, Share


def test_as_many_requests_as_the_limit_are_let_in_and_the_next_one_is_told_when() -> None:
    meter = Meter("k", Limits(rpm=3))
    for second in (0.0, 10.0, 20.0):
        assert meter.refusal(0, second) is None
        meter.take(0, second)

    refusal = meter.refusal(0, 30.0)
    assert refusal is not None
    assert (refusal.status, refusal.code, refusal.retry_after) == (429, "rate_limit_exceeded", 30.0)
    assert meter.refusal(0, 59.9) is not None
    assert meter.refusal(0, 60.0) is None


def test_nothing_is_let_in_twice_at_the_turn_of_a_minute() -> None:
    """A counter by the minute of the clock would let 2 x 5 requests in between 0:59 and 1:01."""
    meter = Meter("k", Limits(rpm=5))
    for _ in range(5):
        meter.take(0, 59.0)
    assert meter.refusal(0, 61.0) is not None


def test_a_request_larger_than_the_limit_of_tokens_is_let_in_when_nothing_else_is_there() -> None:
    meter = Meter("k", Limits(tpm=100))
    assert meter.refusal(10**9, 0.0) is None
    share = meter.take(10**9, 0.0)
    assert meter.refusal(1, 1.0) is not None
    meter.give_back(share, 40, 2.0)
    assert meter.refusal(60, 3.0) is None
    assert meter.refusal(61, 3.0) is not None


def test_an_answer_that_used_more_than_was_reserved_counts_in_full() -> None:
    meter = Meter("k", Limits(tpm=100))
    share = meter.take(10, 0.0)
    meter.give_back(share, 250, 5.0)
    refusal = meter.refusal(1, 6.0)
    assert refusal is not None
    assert refusal.retry_after == 54.0
    assert [(left.kind, left.remaining, left.reset) for left in meter.left(6.0)] == [("tokens", 0, 54.0)]


def test_an_answer_that_took_longer_than_a_minute_leaves_nothing_behind() -> None:
    meter = Meter("k", Limits(tpm=100))
    share = meter.take(80, 0.0)
    meter.give_back(share, 90, 61.0)
    assert [left.remaining for left in meter.left(61.0)] == [100]


def test_places_are_given_back() -> None:
    meter = Meter("k", Limits(concurrency=1))
    share = meter.take(0, 0.0)
    refusal = meter.refusal(0, 0.0)
    assert refusal is not None
    assert refusal.retry_after == 1.0
    meter.give_back(share, 0, 0.0)
    assert meter.refusal(0, 0.0) is None


def test_other_limits_forget_no_use() -> None:
    meter = Meter("k", Limits(rpm=5))
    for _ in range(4):
        meter.take(0, 0.0)
    meter.limits = Limits(rpm=4)
    assert meter.refusal(0, 1.0) is not None


moves = st.lists(st.tuples(st.floats(0, 30), st.integers(0, 60), st.integers(0, 80)), max_size=60)


@given(moves, st.integers(1, 100))
@settings(max_examples=200, deadline=None)
def test_a_window_agrees_with_a_sum_over_everything_that_was_ever_let_in(steps: list[tuple[float, int, int]], limit: int) -> None:
    window, now = Window(), 0.0
    seen: list[list[float]] = []
    for pause, amount, settled in steps:
        now += pause
        amount = min(amount, limit)
        used = sum(held for at, held in seen if at + MINUTE > now)
        wait = window.wait(amount, limit, now)
        assert (wait == 0) == (used + amount <= limit)
        assert window.used == used
        if wait:
            later = now + wait + 1e-6
            assert sum(held for at, held in seen if at + MINUTE > later) + amount <= limit
        else:
            entry = window.add(amount, now)
            seen.append([now, amount])
            if settled <= 60:
                window.settle(entry, amount, settled, now)
                seen[-1][1] = settled


def test_a_window_stays_small_however_many_requests_a_minute_has_and_lets_none_in_early() -> None:
    window = Window()
    moments = [second / 1000 for second in range(70_000)]
    for now in moments:
        window.forget(now)
        window.add(1, now)
        assert window.used >= min(60_000, 1000 * now), "one that is younger than a minute counts"
        assert window.used <= min(60_000, 1000 * now) + 1000 * STEP + 2
    assert len(window._entries) <= FINE + MINUTE / STEP
    wait = window.wait(30_001, 60_000, 70.0)
    assert 30.0 <= wait <= 30.0 + 2 * STEP
    entry = window.add(0, 70.0)
    window.settle(entry, 0, 500, 71.0)
    used = window.used
    window.forget(1000.0)
    assert (used > 500, window.used) == (True, 0.0)


@given(st.lists(st.tuples(st.floats(0, 20), st.integers(1, 50), st.booleans()), max_size=80), st.integers(1, 6), st.integers(1, 60), st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_no_limit_is_ever_passed_by_what_was_let_in(steps: list[tuple[float, int, bool]], rpm: int, tpm: int, concurrency: int) -> None:
    meter, now = Meter("k", Limits(concurrency, rpm, tpm)), 0.0
    taken: list[tuple[float, int]] = []
    running: list[Share] = []
    for pause, tokens, ends in steps:
        now += pause
        if ends and running:
            meter.give_back(running.pop(), tpm, now)
        if meter.refusal(tokens, now) is None:
            running.append(meter.take(tokens, now))
            taken.append((now, min(tokens, tpm)))
        recent = [amount for at, amount in taken if at + MINUTE > now]
        assert len(recent) <= rpm
        assert sum(recent) <= tpm
        assert len(running) <= concurrency
