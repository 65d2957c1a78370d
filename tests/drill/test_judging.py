"""Everything that the drill must not let pass."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.drill.faults import FAULTS
from gateway.drill.judging import Got, Met, Terms, judge, moves

FAULT = {fault.name: fault for fault in FAULTS}
TERMS = Terms(targets=2, moves=moves(None), empty=False, resumes=False, bound=5.0)
MOVED = Met(("a", "b"), None)


def completion(text: str | None = "Hello", finish: str | None = "stop") -> dict[str, Any]:
    return {"object": "chat.completion", "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": finish}]}


def chunk(text: str = "", finish: str | None = None) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}]}


def plain(body: Any, status: int = 200, seconds: float = 0.1) -> Got:
    return Got(status, {"content-type": "application/json"}, json.dumps(body).encode(), seconds)


def stream(*events: Any, attempts: int = 1) -> Got:
    lines = "".join(f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n" for event in events)
    return Got(200, {"content-type": "text/event-stream; charset=utf-8", "x-thinkgate-attempts": str(attempts)}, lines.encode(), 0.1)


def error(*kinds: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": "m", "type": "t", "param": None, "code": "c", "attempts": [{"class": kind} for kind in kinds], **more}}


def problem(fault: str, got: Got, met: Met = MOVED, *, everyone: bool = False, terms: Terms = TERMS) -> str:
    """The one thing that is wrong; empty if nothing is."""
    verdict = judge(FAULT[fault], everyone, got.headers["content-type"].startswith("text/event-stream"), got, met, terms)
    assert len(verdict.problems) <= 1
    return "".join(verdict.problems)


CUT = (chunk("He"), error("protocol"))
WHOLE = (chunk("He"), chunk("llo"), chunk(finish="stop"), "[DONE]")


@pytest.mark.parametrize("got", [plain(completion()), stream(*WHOLE, attempts=2)], ids=["plain", "stream"])
def test_an_answer_of_the_next_target_passes(got: Got) -> None:
    assert problem("nothing at all", got) == ""


def test_a_cut_stream_that_says_so_passes() -> None:
    assert problem("cut after content", stream(*CUT), Met(("a",), 1)) == ""


def test_an_error_that_tells_every_attempt_passes() -> None:
    assert problem("no answer", plain(error("timeout", "first_token_timeout"), 504), everyone=True) == ""


@pytest.mark.parametrize(
    ("got", "why"),
    [
        (plain(completion(None)), "no content"),
        (plain(completion(finish=None)), "not the form"),
        (plain({"object": "chat.completion", "choices": []}), "not the form"),
        (plain(["chat.completion"]), "not the form"),
        (plain({"error": "boom"}, 502), "without an error object"),
        (Got(502, {"content-type": "text/html"}, b"<html>", 0.1), "without an error object"),
        (plain(completion(), 204), "status 204"),
        (Got(200, {"content-type": "text/html"}, b"<html>", 0.1), "the content type is text/html"),
        (Got(200, {"content-type": "application/json"}, b"{", 0.1), "not the form"),
        (stream(chunk("He"), "[DONE]"), "no proper end"),
        (stream(chunk("He"), chunk(finish="stop")), "no proper end"),
        (stream(chunk("He"), chunk(finish="stop"), chunk(finish="stop"), "[DONE]"), "no proper end"),
        (stream(chunk(finish="stop"), "[DONE]"), "no content"),
        (stream(chunk("He"), error(), "[DONE]"), "beside an error"),
        (stream(chunk("He"), chunk(finish="stop"), error()), "beside an error"),
        (stream(chunk("He"), error(), *WHOLE), "not the form"),
        (stream("nonsense", "[DONE]"), "not the form"),
        (Got(200, {"content-type": "text/event-stream"}, b"", 0.1), "not made of events"),
        (Got(200, {"content-type": "text/event-stream"}, b"<html>\n", 0.1), "not made of events"),
    ],
)
def test_what_has_not_the_form_of_openais_fails(got: Got, why: str) -> None:
    assert why in problem("nothing at all", got)


def test_a_plain_answer_to_who_wanted_a_stream_fails() -> None:
    assert judge(FAULT["none"], False, True, plain(completion()), Met(("a",), None), TERMS).problems == ["the content type is application/json"]


def test_what_takes_too_long_fails() -> None:
    assert "took 6.0 s" in problem("no answer", plain(completion(), seconds=6.0))


def test_a_failure_passed_on_as_an_answer_fails() -> None:
    assert "passed on" in problem("bad JSON", plain(completion()), Met(("a",), None))


def test_an_answer_where_every_target_failed_fails() -> None:
    assert "every target failed" in problem("bad JSON", plain(completion()), everyone=True)


def test_a_missing_fallback_fails() -> None:
    assert "not asked" in problem("connection refused", plain(error("connect"), 502), Met(("a", "a"), None))


def test_a_fallback_that_helped_nothing_fails() -> None:
    assert "another target was well" in problem("connection refused", plain(error("connect", "connect"), 502))


def test_moving_on_from_the_callers_fault_fails() -> None:
    assert "ends the chain" in problem("400 bad request", plain(completion()))
    assert problem("400 bad request", plain(error("bad_request"), 400), Met(("a",), None)) == ""


def test_a_second_answer_behind_content_fails() -> None:
    glued = stream(chunk("He"), *WHOLE, attempts=1)

    assert "follows content" in problem("cut after content", glued, Met(("a", "b"), 1))
    assert problem("cut after content", glued, Met(("a", "b"), 1), terms=Terms(2, TERMS.moves, False, True, 5.0)) == ""


def test_asking_anybody_after_content_fails() -> None:
    assert "after content" in problem("cut after content", stream(*CUT), Met(("a", "b"), 1))


def test_a_json_error_behind_content_fails() -> None:
    got = plain(error("protocol"), 502)

    assert "not told so" in judge(FAULT["cut after content"], False, True, got, Met(("a",), 1), TERMS).problems[0]


def test_a_stream_that_began_before_any_content_fails() -> None:
    assert "before there was any content" in problem("cut before content", stream(error("server")), Met(("a",), None))


def test_a_fault_that_reached_nobody_fails() -> None:
    assert problem("bad JSON", plain(completion()), Met((), None)) == "no target was asked"


def test_a_sound_chain_asks_one_target_once() -> None:
    assert problem("none", plain(completion()), Met(("a",), None)) == ""
    assert "second request" in problem("none", plain(completion()), Met(("a", "a"), None))
    assert "nothing was wrong" in problem("none", plain(error("adapter"), 502), Met(("a",), None))


@pytest.mark.parametrize(
    ("kinds", "status"),
    [
        (("rate_limit", "balance"), 429),
        (("overload",), 503),
        (("timeout", "first_token_timeout"), 504),
        (("overload", "server"), 502),
        (("auth",), 502),
        (("server", "bad_request"), 400),
    ],
)
def test_the_status_must_fit_the_attempts(kinds: tuple[str, ...], status: int) -> None:
    assert problem("connection refused", plain(error(*kinds), status), everyone=True) == ""
    assert "instead of" in problem("connection refused", plain(error(*kinds), 500), everyone=True)


def test_an_error_of_the_gateways_own_fails() -> None:
    assert "does not tell the attempts" in problem("connection refused", plain(error(), 500), everyone=True)


def test_a_chain_whose_move_on_leaves_a_class_out_may_stop_there() -> None:
    stays = Terms(2, moves(("connect",)), False, False, 5.0)

    assert problem("bad JSON", plain(error("protocol"), 502), Met(("a",), None), terms=stays) == ""
    assert "ends the chain" in problem("bad JSON", plain(completion()), terms=stays)


def test_a_chain_that_accepts_empty_answers_may_pass_one_on() -> None:
    accepts = Terms(2, TERMS.moves, True, False, 5.0)

    assert problem("empty answer", plain(completion(None)), Met(("a",), None), everyone=True, terms=accepts) == ""
    assert "no content" in problem("nothing at all", plain(completion(None)), Met(("a",), None), terms=accepts)
