"""The error that a client gets when no target of a chain answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.errors import ChainExhausted
from gateway.routing.plan import Failure, Plan

CALLERS_FAULT = ("bad_request", "content_filter", "context_overflow")
_CALLERS_STATUS = (*CALLERS_FAULT, "param", "role_order")
_POINTLESS = ("balance", "auth", "not_found", *_CALLERS_STATUS)
_TIMEOUTS = ("timeout", "first_token_timeout")
LONGEST_WAIT = 60.0
"""Seconds of Retry-After that a client is told; some SDKs sleep for whatever they are told."""


def exhausted(plan: Plan) -> ChainExhausted:
    """Status, code and hints by what went wrong; `attempts` has every exchange and every target left out."""
    attempts = [a.public() for a in plan.request.record.attempts]
    waits = {target.provider: reason.wait or 0.0 for target, reason in plan.left_out}
    soonest = min(max(plan.fleet.rest(target), waits.get(target.provider, 0.0)) for target in plan.targets)
    wait = soonest if 0 < soonest <= LONGEST_WAIT else None
    if not plan.failures:
        return _none_available(plan, attempts, wait, soonest)
    last = plan.failures[-1].error
    kinds = [f.error.kind for f in plan.failures]
    pointless = all(kind in _POINTLESS for kind in kinds) or soonest > LONGEST_WAIT or last.kind in CALLERS_FAULT
    error = ChainExhausted(_message(plan), attempts, status=_status(kinds, last.upstream_status), retry_after=wait, should_retry=False if pointless else None)
    if last.kind in CALLERS_FAULT:
        error.message = str(last.error.get("message") or last.message)
        error.type = str(last.error.get("type") or "invalid_request_error")
        code = last.error.get("code")
        error.code = last.kind if code is None else str(code)
        error.param = last.error.get("param")
    return error


def _status(kinds: Sequence[str], last: int | None) -> int:
    fault = last if last is not None and 400 <= last < 500 else 400
    if all(kind in _CALLERS_STATUS for kind in kinds) or kinds[-1] in CALLERS_FAULT:
        return fault if fault not in (401, 402, 403) else 400
    if all(kind in ("rate_limit", "balance") for kind in kinds):
        return 429
    if all(kind == "overload" for kind in kinds):
        return 503
    if all(kind in _TIMEOUTS for kind in kinds):
        return 504
    return 502


def _none_available(plan: Plan, attempts: list[dict[str, Any]], wait: float | None, soonest: float) -> ChainExhausted:
    kinds = {reason.kind for _, reason in plan.left_out}  # empty where every adapter left its provider out
    status = 429 if kinds and kinds <= {"rate_limit", "balance"} else 503
    why = "; ".join(f"{a['provider']}: {a['skipped']}" for a in attempts if a.get("skipped"))
    return ChainExhausted(
        f'no target of model "{plan.request.model}" can be asked now ({why})',
        attempts,
        status=status,
        code="no_target_available",
        retry_after=wait,
        should_retry=False if soonest > LONGEST_WAIT else None,
    )


def _message(plan: Plan) -> str:
    parts = []
    for failure in plan.failures:
        status = failure.error.upstream_status
        parts.append(f"{failure.target.provider}: {failure.error.kind}" if status is None else f"{failure.target.provider}: {status} {failure.error.kind}")
    count = len({id(f.target) for f in plan.failures})
    return f"all {count} providers failed, last error: {_last_words(plan.failures[-1])} ({'; '.join(parts)})"


def _last_words(failure: Failure) -> str:
    status = failure.error.upstream_status
    text = failure.error.message if status is None else f'api error {status}: "{failure.error.message}"'
    return text if failure.keyless is None else f"{failure.target.provider}: {failure.keyless}; the last one with {text}"
