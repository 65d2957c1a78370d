"""Which failures send a target to rest, for how long, and how it comes back."""

from __future__ import annotations

import pytest

from gateway.config import Cooldown
from gateway.errors import UpstreamError
from gateway.routing import health as module
from gateway.routing.health import Health, State

COOLDOWN = Cooldown(after=3, base=5, max=300)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    return Health(clock, jitter=lambda: 0.0)


def fail(health: Health, kind: str, times: int = 1, retry_after: float | None = None, name: str = "a/m") -> None:
    for _ in range(times):
        health.bad(name, health.begin(name), UpstreamError(kind, "x", retry_after=retry_after), COOLDOWN)


@pytest.mark.parametrize("kind", ["rate_limit", "balance", "auth"])
def test_some_failures_rest_a_target_at_once(health: Health, kind: str) -> None:
    fail(health, kind)

    assert health.rest("a/m") == 5
    assert not health.free("a/m")
    assert health.kind("a/m") == kind


@pytest.mark.parametrize("kind", ["connect", "timeout", "server", "overload", "first_token_timeout", "protocol"])
def test_outages_rest_a_target_after_three_in_a_row(health: Health, kind: str) -> None:
    fail(health, kind, 2)
    assert health.free("a/m")

    fail(health, kind)

    assert health.rest("a/m") == 5


@pytest.mark.parametrize("kind", ["not_found", "bad_request", "content_filter", "context_overflow", "param", "reasoning_missing", "adapter", "client_gone"])
def test_other_failures_never_rest_a_target(health: Health, kind: str) -> None:
    fail(health, kind, 10, retry_after=30)

    assert health.free("a/m")


def test_an_answer_in_between_starts_the_count_anew(health: Health) -> None:
    fail(health, "server", 2)
    health.good("a/m", health.begin("a/m"))
    fail(health, "server", 2)

    assert health.free("a/m")


def test_retry_after_rests_at_once_and_is_obeyed_up_to_the_maximum(health: Health) -> None:
    fail(health, "server", retry_after=7)
    fail(health, "overload", retry_after=9999, name="b/m")

    assert health.rest("a/m") == 7
    assert health.rest("b/m") == 300


@pytest.mark.parametrize("kind", ["first_token_timeout", "protocol"])
def test_doubtful_failures_never_rest_a_target_sooner(health: Health, clock: Clock, kind: str) -> None:
    fail(health, kind, retry_after=50)
    assert health.free("a/m")

    fail(health, "server", 2)
    clock.now += 6
    fail(health, kind)

    assert health.rest("a/m") == pytest.approx(10), "four in a row by now: the count, not the probation, rests it"


def test_each_rest_in_a_row_doubles_up_to_the_maximum(health: Health, clock: Clock) -> None:
    lengths = []
    for _ in range(8):
        fail(health, "rate_limit")
        lengths.append(health.rest("a/m"))
        clock.now += lengths[-1]

    assert lengths == [5, 10, 20, 40, 80, 160, 300, 300]


def test_rests_are_spread_so_that_a_herd_does_not_come_back_at_once(clock: Clock) -> None:
    health = Health(clock, jitter=lambda: 1.0)

    fail(health, "rate_limit")

    assert health.rest("a/m") == 6


def test_the_later_of_two_rests_holds(health: Health) -> None:
    first, second = health.begin("a/m"), health.begin("a/m")
    health.bad("a/m", first, UpstreamError("rate_limit", "x", retry_after=30), COOLDOWN)
    health.bad("a/m", second, UpstreamError("rate_limit", "x", retry_after=1), COOLDOWN)

    assert health.rest("a/m") == 30


def test_an_older_answer_does_not_end_a_newer_rest(health: Health, clock: Clock) -> None:
    old = health.begin("a/m")
    clock.now += 1
    fail(health, "rate_limit", retry_after=30)
    health.good("a/m", old)

    assert health.rest("a/m") == 30


def test_after_a_rest_one_request_tries_the_target_and_wakes_it(health: Health, clock: Clock) -> None:
    fail(health, "rate_limit")
    clock.now += 5
    assert health.free("a/m")

    began = health.begin("a/m")
    assert not health.free("a/m"), "somebody is trying it"
    assert "tried again" in health.why("a/m")
    health.good("a/m", began)

    assert health.free("a/m")
    assert health.kind("a/m") is None


def test_one_outage_on_probation_is_enough_to_rest_again(health: Health, clock: Clock) -> None:
    fail(health, "server", 3)
    clock.now += 5
    fail(health, "connect")

    assert health.rest("a/m") == 10


def test_a_rest_of_our_own_gets_one_probe_at_a_time(health: Health) -> None:
    fail(health, "auth")
    assert health.may_probe("a/m")

    began = health.begin("a/m")
    assert not health.may_probe("a/m")

    health.release("a/m", began)
    assert health.may_probe("a/m")


def test_a_rest_that_the_provider_asked_for_is_not_probed(health: Health, clock: Clock) -> None:
    fail(health, "rate_limit", retry_after=7)
    assert not health.may_probe("a/m")

    clock.now += 7
    assert health.may_probe("a/m")


def test_targets_are_apart(health: Health) -> None:
    fail(health, "rate_limit")

    assert health.free("b/m")
    assert list(health.resting()) == ["a/m"]


def test_one_that_is_tried_out_while_others_learn_of_a_longer_rest_is_free_when_that_is_over(health: Health, clock: Clock) -> None:
    """The trial began before the rest that was heard, so its answer wakes nobody; it must not count as under way for ever either."""
    fail(health, "rate_limit")
    clock.now += 5
    trial = health.begin("a/m")
    clock.now += 1
    health.hear({"a/m": State(rests=2, until=clock.now + 10, since=clock.now, kind="rate_limit", told=True)}, clock.now)
    health.good("a/m", trial)
    assert health.rest("a/m") == 10

    clock.now += 10
    assert health.free("a/m")


def test_an_older_attempt_that_ends_does_not_end_the_trial(health: Health, clock: Clock) -> None:
    old = health.begin("a/m")
    clock.now += 1
    fail(health, "rate_limit")
    clock.now += 5
    trial = health.begin("a/m")
    clock.now += 1

    health.release("a/m", old)
    assert not health.free("a/m")
    health.release("a/m", trial)
    assert health.free("a/m")


def test_with_the_first_content_of_a_trial_the_next_one_may_begin_and_a_whole_answer_ends_it(health: Health, clock: Clock) -> None:
    fail(health, "rate_limit")
    clock.now += 5
    first = health.begin("a/m")
    assert not health.free("a/m")
    health.answers("a/m", first)
    assert health.free("a/m")

    clock.now += 1
    second = health.begin("a/m")
    assert not health.free("a/m"), "one at a time until a whole answer is there"
    health.good("a/m", first)
    assert health.free("a/m")
    health.good("a/m", second)
    assert not health.on_trial("a/m")


def test_a_rest_that_is_heard_again_a_moment_later_is_no_new_one(health: Health, clock: Clock) -> None:
    """What is heard has been under way for a while: its end is never quite the same."""
    fail(health, "rate_limit")
    clock.now += 5
    trial = health.begin("a/m")
    clock.now += 1
    health.hear({"a/m": State(rests=1, until=clock.now - 0.9, since=clock.now, kind="rate_limit", told=True)}, clock.now)
    health.good("a/m", trial)

    assert not health.on_trial("a/m")


def test_a_target_of_which_the_others_tell_nothing_any_more_has_answered_there(health: Health, clock: Clock) -> None:
    heard = State(rests=1, until=clock.now + 5, since=clock.now, kind="rate_limit", told=True)
    health.hear({"a/m": heard}, clock.now)
    clock.now += 6
    assert health.on_trial("a/m")

    health.hear({}, clock.now)
    assert not health.on_trial("a/m")


def test_names_that_clients_make_up_do_not_fill_the_memory(health: Health, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MANY", 100)
    fail(health, "rate_limit", retry_after=200)
    for number in range(1000):
        fail(health, "server", name=f"a/{number}")
    assert health.rest("a/m") == 200
    assert len(health._states) <= 100

    for number in range(1000):
        fail(health, "rate_limit", retry_after=100, name=f"a/{number}")
    assert health.rest("a/m") == 200
    assert health.rest("a/999") == 100
    assert len(health._states) <= 100
