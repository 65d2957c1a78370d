"""What comes next after each kind of failure, without a byte sent."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gateway import config
from gateway.chat import Body, Record, Request
from gateway.errors import InvalidRequest, UpstreamError
from gateway.routing.exhaustion import exhausted
from gateway.routing.fleet import Fleet
from gateway.routing.health import Health
from gateway.routing.plan import Plan

COOLDOWN = config.Cooldown()


def make(
    *targets: str,
    windows: Mapping[str, int] | None = None,
    health: Health | None = None,
    retries: int = 0,
    move_on: tuple[str, ...] | None = None,
    **request: object,
) -> Plan:
    chain = tuple(config.Target(*name.split("/", 1)) for name in targets)
    known = {provider: {"x": config.Price(context=size)} for provider, size in (windows or {}).items()}
    fleet = Fleet({t.provider: config.Provider(t.provider, retries=retries, models=known.get(t.provider, {})) for t in chain})
    fleet.health = health or fleet.health
    asked = Request(Body(b"{}"), "m", Record("r"), **request)  # type: ignore[arg-type]
    return Plan(config.Model("m", chain, move_on=move_on), fleet, asked)


def names(plan: Plan, *kinds: str, retry_after: float | None = None) -> list[str]:
    """The targets asked when the attempts fail with these classes, one after the other."""
    asked = []
    for kind in kinds:
        step = plan.next(0.0)
        if step is None:
            break
        target = step.call.target
        assert target is not None
        asked.append(target.provider)
        plan.failed(UpstreamError(kind, "x", upstream_status=500, retry_after=retry_after))
    else:
        assert plan.next(0.0) is None, "more was asked than expected"
    return asked


@pytest.mark.parametrize(
    "kind", ["connect", "timeout", "first_token_timeout", "rate_limit", "overload", "server", "balance", "auth", "not_found", "protocol", "adapter"]
)
def test_moves_on(kind: str) -> None:
    assert names(make("a/x", "b/x"), kind, kind) == ["a", "b"]


@pytest.mark.parametrize("kind", ["bad_request", "content_filter"])
def test_the_callers_fault_ends_the_chain(kind: str) -> None:
    assert names(make("a/x", "b/x"), kind) == ["a"]


@pytest.mark.parametrize(
    "kind", ["reasoning_missing", "reasoning_unsupported", "signature", "tool_choice_thinking", "tools_effort", "thinking_mode", "param", "role_order"]
)
def test_a_repairable_failure_is_sent_once_more_to_the_same_target_then_moves_on(kind: str) -> None:
    plan = make("a/x", "b/x")

    assert names(plan, kind, kind, kind, kind) == ["a", "a", "b", "b"]


def test_a_repair_carries_the_failure_that_it_repairs_and_other_attempts_do_not() -> None:
    plan = make("a/x", "b/x")
    first = plan.next(0.0)
    error = UpstreamError("param", "x")
    plan.failed(error)
    second = plan.next(0.0)
    plan.failed(UpstreamError("server", "y"))
    third = plan.next(0.0)

    assert [step.call.repair for step in (first, second, third) if step] == [None, error, None]
    assert [step.call.attempt for step in (first, second, third) if step] == [1, 2, 3]


def test_nothing_to_repair_moves_on() -> None:
    plan = make("a/x", "b/x")
    plan.next(0.0)
    plan.failed(UpstreamError("param", "x"))
    plan.next(0.0)
    plan.missed()
    step = plan.next(0.0)

    assert step is not None
    assert step.call.target == config.Target("b", "x")


def test_a_context_overflow_moves_on_to_larger_known_contexts_only() -> None:
    plan = make("a/x", "b/x", "c/x", "d/x", windows={"a": 1000, "b": 1000, "d": 2000})

    assert names(plan, "context_overflow", "context_overflow") == ["a", "d"]
    assert [a.provider for a in plan.request.record.attempts] == ["b", "c"]


@pytest.mark.parametrize("kind", ["connect", "server", "overload"])
def test_outages_are_retried_after_a_pause(kind: str) -> None:
    plan = make("a/x", retries=1)
    plan.next(0.0)
    plan.failed(UpstreamError(kind, "x"))
    step = plan.next(0.0)

    assert step is not None
    assert 0.2 <= step.pause <= 1.0
    plan.failed(UpstreamError(kind, "x"))
    assert plan.next(0.0) is None


@pytest.mark.parametrize(("wait", "again"), [(None, False), (1.5, True), (2.0, True), (2.1, False)])
def test_a_rate_limit_is_retried_only_after_a_short_wait_that_the_provider_named(wait: float | None, again: bool) -> None:
    plan = make("a/x", retries=1)
    plan.next(0.0)
    plan.failed(UpstreamError("rate_limit", "x", retry_after=wait))
    step = plan.next(0.0)

    assert (step is not None) is again
    assert step is None or step.pause == wait


@pytest.mark.parametrize("kind", ["timeout", "first_token_timeout", "protocol", "auth", "balance", "not_found", "adapter"])
def test_nothing_else_is_retried(kind: str) -> None:
    assert names(make("a/x", retries=3), kind) == ["a"]


def test_a_retry_does_not_wait_beyond_the_deadline() -> None:
    plan = make("a/x", retries=1, deadline=0.1)
    plan.next(0.0)
    plan.failed(UpstreamError("server", "x"))

    assert plan.next(0.0) is None


def test_no_target_is_asked_after_the_deadline() -> None:
    plan = make("a/x", "b/x", deadline=5.0)
    plan.next(0.0)
    plan.failed(UpstreamError("server", "x"))

    assert plan.next(5.0) is None
    assert plan.request.record.attempts[0].skipped == "the chain's deadline has passed"


def test_a_resting_target_is_passed_over_and_probed_when_no_other_is_left() -> None:
    health = Health()
    health.bad("a/x", health.begin("a/x"), UpstreamError("auth", "x"), COOLDOWN)

    assert names(make("a/x", "b/x", health=health), "server", "server") == ["b", "a"]


def test_a_target_that_rests_on_its_providers_word_is_not_asked() -> None:
    health = Health()
    health.bad("a/x", health.begin("a/x"), UpstreamError("rate_limit", "x", retry_after=60), COOLDOWN)
    plan = make("a/x", "b/x", health=health)

    assert names(plan, "server") == ["b"]
    assert (plan.request.record.attempts[0].skipped or "").startswith("resting for 60.0 s")


def test_move_on_of_the_model_replaces_the_default() -> None:
    assert names(make("a/x", "b/x", move_on=("content_filter",)), "content_filter", "server") == ["a", "b"]
    assert names(make("a/x", "b/x", move_on=("content_filter",)), "server") == ["a"]


def test_fallback_off_asks_the_first_target_only() -> None:
    assert names(make("a/x", "b/x", fallback=False), "server") == ["a"]


def test_only_narrows_the_chain_to_one_provider() -> None:
    assert names(make("a/x", "b/x", only="b"), "server") == ["b"]
    with pytest.raises(InvalidRequest, match='no target of provider "zzz"'):
        make("a/x", only="zzz")


@pytest.mark.parametrize(
    ("kinds", "status"),
    [
        (("rate_limit", "balance"), 429),
        (("overload", "overload"), 503),
        (("timeout", "first_token_timeout"), 504),
        (("auth", "auth"), 502),
        (("server", "rate_limit"), 502),
        (("not_found", "connect"), 502),
    ],
)
def test_the_status_of_an_exhausted_chain(kinds: tuple[str, ...], status: int) -> None:
    plan = make("a/x", "b/x")
    names(plan, *kinds)

    assert exhausted(plan).status == status


def test_the_callers_fault_keeps_the_providers_status_and_words() -> None:
    plan = make("a/x", "b/x")
    plan.next(0.0)
    plan.failed(UpstreamError("server", "boom", upstream_status=500))
    plan.next(0.0)
    plan.failed(UpstreamError("bad_request", "no", upstream_status=422, error={"message": "image too big", "type": "t", "code": "c", "param": "p"}))
    error = exhausted(plan)

    assert (error.status, error.message, error.type, error.code, error.param) == (422, "image too big", "t", "c", "p")
    assert error.should_retry is False


def test_the_message_quotes_the_last_error_and_lists_every_failure() -> None:
    plan = make("a/x", "b/x")
    plan.next(0.0)
    plan.failed(UpstreamError("first_token_timeout", "first_token_timeout after 8.0 s"))
    plan.next(0.0)
    plan.failed(UpstreamError("server", "boom", upstream_status=500))

    assert exhausted(plan).message == 'all 2 providers failed, last error: api error 500: "boom" (a: first_token_timeout; b: 500 server)'
