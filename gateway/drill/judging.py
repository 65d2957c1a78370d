"""What a client got, read strictly, and whether it is what it must be for the fault that was met."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway import failures
from gateway.chat import Json, loads
from gateway.drill.faults import Fault

Outcome = Literal["answer", "error", "cut", "malformed"]


@dataclass(frozen=True, slots=True)
class Got:
    """The gateway's answer to one request: status, headers (names in lower case), body, and the seconds until its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float


@dataclass(frozen=True, slots=True)
class Met:
    """What the faulty upstream saw of one request.

    asked   the target of each exchange, in order; the fault met the first of them, or all
    spoke   how many there had been when content of a faulty stream went out; None: none did
    """

    asked: Sequence[str]
    spoke: int | None


@dataclass(frozen=True, slots=True)
class Terms:
    """What the chain's settings allow.

    targets  how many different ones it has
    moves    the failure classes after which it asks the next one
    empty    an answer without content is one
    resumes  a cut answer may be continued by another target
    bound    seconds that a request may take at most
    """

    targets: int
    moves: Collection[str]
    empty: bool
    resumes: bool
    bound: float


@dataclass(slots=True)
class Verdict:
    """`outcome` is what the client got, `problems` why that is wrong; none: the row passes."""

    outcome: Outcome = "malformed"
    problems: list[str] = field(default_factory=list)


def judge(fault: Fault, everyone: bool, stream: bool, got: Got, met: Met, terms: Terms) -> Verdict:
    """Whether this may come of it where `fault` met the first target, or every one."""
    verdict = read(got, stream, terms.empty and fault.name == "empty answer")
    if verdict.problems:
        return verdict
    if got.seconds > terms.bound:
        verdict.problems.append(f"took {got.seconds:.1f} s, more than {terms.bound:.1f} s")
    if not met.asked:
        verdict.problems.append("no target was asked")
    elif not fault.kinds:
        _must_answer(verdict, met)
    elif stream and met.spoke is not None and verdict.outcome != "answer":
        _must_be_cut(verdict, met, terms)
    elif verdict.outcome == "answer":
        _may_answer(fault, everyone, got, met, terms, verdict)
    else:
        _may_fail(fault, everyone, got, met, terms, verdict)
    return verdict


def _must_answer(verdict: Verdict, met: Met) -> None:
    if verdict.outcome != "answer":
        verdict.problems.append("no answer, though nothing was wrong")
    elif len(met.asked) > 1:
        verdict.problems.append("a second request was sent, though nothing was wrong")


def _must_be_cut(verdict: Verdict, met: Met, terms: Terms) -> None:
    if verdict.outcome != "cut":
        verdict.problems.append("the stream broke off after its first content, and its client was not told so in the stream")
    elif met.asked[met.spoke :] and not terms.resumes:
        verdict.problems.append(f"{met.asked[-1]} was asked after content had been sent")


def _may_answer(fault: Fault, everyone: bool, got: Got, met: Met, terms: Terms, verdict: Verdict) -> None:
    if terms.empty and fault.name == "empty answer":
        return
    if everyone:
        verdict.problems.append("an answer, though every target failed")
    elif met.asked[-1] == met.asked[0]:
        verdict.problems.append("the failure was passed on as an answer")
    elif met.spoke is not None and not terms.resumes and int(got.headers.get("x-thinkgate-attempts", 0)) < len(met.asked):
        verdict.problems.append(f"the answer of {met.asked[-1]} follows content of {met.asked[0]}")  # its headers had gone out before
    elif not _any_moves(fault, terms):
        verdict.problems.append("the next target was asked, though this failure ends the chain")


def _may_fail(fault: Fault, everyone: bool, got: Got, met: Met, terms: Terms, verdict: Verdict) -> None:
    if verdict.outcome == "cut":
        verdict.problems.append("the stream began before there was any content")
        return
    if terms.targets > 1 and all(kind in terms.moves for kind in fault.kinds) and len(set(met.asked)) == 1:
        verdict.problems.append("the next target was not asked")
    elif not everyone and len(set(met.asked)) > 1:
        verdict.problems.append("no answer, though another target was well and was asked")
    attempts = loads(got.body)["error"].get("attempts") or ()
    expected = status_of([attempt.get("class") for attempt in attempts if attempt.get("skipped") is None])
    if expected is None:
        verdict.problems.append("the error does not tell the attempts")
    elif got.status not in expected:
        verdict.problems.append(f"status {got.status} instead of {expected.start}")


def _any_moves(fault: Fault, terms: Terms) -> bool:
    return any(kind in terms.moves for kind in fault.kinds)


def moves(move_on: Sequence[str] | None) -> frozenset[str]:
    """The classes after which a chain with this `move_on` asks the next target."""
    if move_on is not None:
        return frozenset(move_on)
    return frozenset(kind for kind, move in failures.MOVES.items() if move.moves_on is True)


def status_of(classes: Sequence[Any]) -> range | None:
    """The statuses that a chain may answer with whose attempts all failed in these ways; None: these are no classes."""
    kinds = set(classes)
    if not kinds or not kinds <= failures.MOVES.keys():
        return None
    if kinds & {"bad_request", "content_filter", "context_overflow", "param", "role_order"}:
        return range(400, 500)
    if kinds <= {"rate_limit", "balance"}:
        return range(429, 430)
    if kinds == {"overload"}:
        return range(503, 504)
    return range(504, 505) if kinds <= {"timeout", "first_token_timeout"} else range(502, 503)


def read(got: Got, stream: bool, empty: bool) -> Verdict:
    """What the client got, and what is wrong with its form. `empty`: an answer without content is one."""
    kind = got.headers.get("content-type", "")
    if got.status >= 400:
        return _read_error(got, kind)
    if got.status != 200:
        return Verdict("malformed", [f"status {got.status}"])
    wanted = "text/event-stream" if stream else "application/json"
    if not kind.startswith(wanted):
        return Verdict("malformed", [f"the content type is {kind or 'missing'}"])
    try:
        return _read_stream(got.body, empty) if stream else _read_plain(loads(got.body), empty)
    except (ValueError, TypeError, KeyError, LookupError, AttributeError):
        return Verdict("malformed", ["the answer has not the form of OpenAI's"])


def _read_error(got: Got, kind: str) -> Verdict:
    try:
        body = loads(got.body)
    except ValueError:
        body = None
    if not kind.startswith("application/json") or not _is_error(body):
        return Verdict("malformed", [f"status {got.status} without an error object"])
    return Verdict("error")


def _is_error(body: Any) -> bool:
    error = body.get("error") if isinstance(body, dict) else None
    return isinstance(error, dict) and {"message", "type", "param", "code"} <= error.keys() and bool(error["message"])


def _read_plain(body: Any, empty: bool) -> Verdict:
    choice = body["choices"][0]
    sound = body["object"] == "chat.completion" and choice["message"]["role"] == "assistant" and isinstance(choice["finish_reason"], str)
    if not sound:
        return Verdict("malformed", ["the answer has not the form of OpenAI's"])
    return Verdict("answer") if empty or _content(choice["message"]) else Verdict("malformed", ["the answer has no content"])


def _read_stream(body: bytes, empty: bool) -> Verdict:
    lines = [line for line in body.split(b"\n") if line and not line.startswith(b":")]
    if not lines or not all(line.startswith(b"data: ") for line in lines):
        return Verdict("malformed", ["the stream is not made of events"])
    done = lines[-1] == b"data: [DONE]"
    events = [loads(line[6:]) for line in (lines[:-1] if done else lines)]
    failed = bool(events) and _is_error(events[-1])
    finishes, content = _chunks(events[:-1] if failed else events)
    if failed:
        clean = ["a finish reason or [DONE] beside an error"] if done or finishes else []
        return Verdict("malformed" if clean else "cut", clean)
    if not done or finishes != 1:
        return Verdict("malformed", ["the stream has no proper end, and no error"])
    return Verdict("answer") if content or empty else Verdict("malformed", ["the stream has no content"])


def _chunks(events: Sequence[Json]) -> tuple[int, bool]:
    """Finish reasons and whether there is content. LookupError and its like for what is no chunk."""
    finishes, content = 0, False
    for event in events:
        if event["object"] != "chat.completion.chunk":
            raise ValueError("not a chunk")
        for choice in event["choices"]:
            finishes += choice.get("finish_reason") is not None
            content |= _content(choice["delta"])
    return finishes, content


def _content(message: Json) -> bool:
    return any(message.get(name) for name in ("content", "reasoning_content", "tool_calls", "refusal"))
