"""The failure classes: how one is recognised and what each one does. Pure.

classify          an HTTP answer that is no success -> Verdict
in_stream_error   an error inside a 200, plain or as an event -> Verdict or None
MOVES             class -> what the chain does about it
redact, quote     a provider's text made safe to show
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.config import FAILURE_CLASSES
from gateway.errors import UpstreamError
from gateway.failures.matchers import ERROR_FINISHES, kind_of
from gateway.failures.refusal import Refusal, read
from gateway.failures.secrecy import quote, redact
from gateway.failures.waits import retry_after

__all__ = ["CLASSES", "MOVES", "Move", "Verdict", "classify", "in_stream_error", "quote", "redact", "retry_after"]

CLASSES = FAILURE_CLASSES


@dataclass(frozen=True, slots=True)
class Move:
    """What the chain does about one class.

    repairable   the adapter may change the request and send it once more to the same provider
    moves_on     the next target may be asked; `larger_context`: only one with a larger known window
    cools        `at_once`: the target rests now; `counts`: after some in a row; `no`: never
    heeds_wait   a Retry-After on such an answer lets the target rest at once
    retry        asking the same provider again: `backoff` after 0.2 to 1 s, `wait` if its
                 Retry-After is at most 2 s, `no`: never
    """

    repairable: bool = False
    moves_on: Literal[True, False, "larger_context"] = True
    cools: Literal["at_once", "counts", "no"] = "no"
    heeds_wait: bool = False
    retry: Literal["no", "backoff", "wait"] = "no"


_REPAIR = Move(repairable=True)
_AT_ONCE = Move(cools="at_once", heeds_wait=True)
_OUTAGE = Move(cools="counts", heeds_wait=True, retry="backoff")
_DOUBT = Move(cools="counts")

MOVES: Mapping[str, Move] = {
    "connect": _OUTAGE,
    "timeout": Move(cools="counts", heeds_wait=True),
    "first_token_timeout": _DOUBT,
    "rate_limit": Move(cools="at_once", heeds_wait=True, retry="wait"),
    "overload": _OUTAGE,
    "server": _OUTAGE,
    "balance": _AT_ONCE,
    "auth": _AT_ONCE,
    "not_found": Move(),
    "context_overflow": Move(moves_on="larger_context"),
    "content_filter": Move(moves_on=False),
    "reasoning_missing": _REPAIR,
    "reasoning_unsupported": _REPAIR,
    "signature": _REPAIR,
    "tool_choice_thinking": _REPAIR,
    "tools_effort": _REPAIR,
    "thinking_mode": _REPAIR,
    "param": _REPAIR,
    "role_order": _REPAIR,
    "bad_request": Move(moves_on=False),
    "protocol": _DOUBT,
    "adapter": Move(),
    "client_gone": Move(moves_on=False),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a provider's refusal is. `message` and `error` are its own words: redact before showing.

    `retry_after` is in seconds, `error` is OpenAI's `{message, type, code, param}` as far as
    the provider told, `status` the HTTP status, or the one inside a 200's error.
    """

    kind: str
    message: str
    retry_after: float | None = None
    error: Mapping[str, Any] = field(default_factory=dict)
    status: int | None = None

    def failure(self, status: int | None = None, show: Callable[[str], str] = lambda text: quote(text, ())) -> UpstreamError:
        """The error to raise. `status` is the exchange's own, `show` takes secrets out of a text."""
        error = {name: show(value) if isinstance(value, str) else value for name, value in self.error.items()}
        return UpstreamError(self.kind, show(self.message), upstream_status=status, retry_after=self.retry_after, error=error)


def classify(status: int | None, headers: Mapping[str, str], body: bytes | Mapping[str, Any] | list[Any]) -> Verdict:
    """The verdict on an answer that is no success: its status, headers, and body in whatever form."""
    return _verdict(read(body), status, headers)


def _verdict(refusal: Refusal, status: int | None, headers: Mapping[str, str]) -> Verdict:
    if status is None or status < 400:
        status = refusal.status
    kind = kind_of(refusal, status)
    error = {"message": refusal.message or f"HTTP {status}", "type": refusal.type, "code": refusal.code, "param": refusal.param}
    wait = retry_after(headers, refusal, limits=kind == "rate_limit")
    return Verdict(kind, error["message"] or "", wait, error, status)


def in_stream_error(chunk: Mapping[str, Any]) -> Verdict | None:
    """The verdict on one parsed event, or on the body of a 200; None: it is no error."""
    choices = chunk.get("choices")
    if choices and choices.__class__ is list and "error" not in chunk and "base_resp" not in chunk:
        first = choices[0]
        if first.__class__ is dict:
            reason = first.get("finish_reason")
            if reason is None or reason.__class__ is not str or reason not in ERROR_FINISHES:
                return None
    return _look(chunk, choices)


def _look(chunk: Mapping[str, Any], choices: Any) -> Verdict | None:
    """The slow half: everything that may be an error, checked form by form."""
    event = chunk.get("type")
    base = chunk.get("base_resp")
    if chunk.get("error") or event == "error" or chunk.get("object") == "error":
        return _verdict(read(chunk), None, {})
    if event in ("response.failed", "response.error"):
        return _verdict(read(chunk), None, {})
    if isinstance(base, dict) and base.get("status_code") not in (0, "0", None):
        return _verdict(read({"base_resp": base}), None, {})
    if isinstance(choices, list) and choices:
        return _failed_choice(choices[0])
    code, message = chunk.get("code"), chunk.get("message")
    if isinstance(message, str) and code not in (None, 0, "0", 200, "200") and "choices" not in chunk and event is None:
        return _verdict(read(chunk), None, {})
    return None


def _failed_choice(choice: Any) -> Verdict | None:
    reason = choice.get("finish_reason") if isinstance(choice, dict) else None
    if not isinstance(reason, str) or reason not in ERROR_FINISHES:
        return None
    if choice.get("error"):
        return _verdict(read(choice), None, {})
    message = f"the provider ended its answer with finish_reason {reason}"
    return Verdict(ERROR_FINISHES[reason], message, None, {"message": message, "type": None, "code": reason, "param": None})
