"""`resume: prefill`: a cut text goes on at the next target, in the same stream."""

from __future__ import annotations

from typing import Any

import pytest
from asked import chain_of, error_of, finishes, parsed, text
from running import CHAT, STREAM, Running, serving, yaml
from upstream_double import CUT, Item, Upstream, answer, chunk, delta, finish, role, thought, tool_call, usage

PREFILL = "resume: prefill"
TOOLS: list[dict[str, Any]] = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
FROM_B: dict[str, Any] = {"id": "chatcmpl-other", "model": "other"}
CUT_ANSWER: list[Item] = [role(), delta("Once upon"), delta(" a time "), CUT]


def rest(*texts: str) -> list[Item]:
    return [role(**FROM_B), *(delta(t, **FROM_B) for t in texts), finish(**FROM_B), usage(20, 4, **FROM_B), "[DONE]"]


async def events_of(running: Running, **more: Any) -> list[str]:
    return await running.events({**STREAM, **more})


async def test_a_cut_text_goes_on_in_the_same_stream(a: Upstream, b: Upstream) -> None:
    a.stream(*CUT_ANSWER)
    b.stream(*rest("there was", " a fox."))

    async with serving(yaml({"a": a.url, "b": b.url}, model=PREFILL)) as running:
        events = await events_of(running, max_tokens=100)

    chunks = parsed(events)
    assert text(events) == "Once upon a time there was a fox."
    assert finishes(events) == ["stop"]
    assert events[-1] == "[DONE]"
    assert {(c["id"], c["created"], c["model"]) for c in chunks} == {("chatcmpl-double", 1_700_000_000, "m")}
    assert sum("role" in choice["delta"] for c in chunks for choice in c["choices"]) == 1
    sent = b.requests[0].json
    assert sent["messages"] == [*CHAT["messages"], {"role": "assistant", "content": "Once upon a time"}]
    assert sent["max_tokens"] == 96
    assert a.requests[0].json["max_tokens"] == 100


@pytest.mark.parametrize(("more", "whole"), [(" there", "Once upon a time there"), ("there", "Once upon a time there"), ("  ", "Once upon a time ")])
async def test_the_blank_between_the_two_is_there_once(a: Upstream, b: Upstream, more: str, whole: str) -> None:
    a.stream(*CUT_ANSWER)
    b.stream(*rest(more))

    async with serving(yaml({"a": a.url, "b": b.url}, model=PREFILL)) as running:
        assert text(await events_of(running)) == whole


async def test_a_text_cut_inside_a_word_gets_no_blank(a: Upstream, b: Upstream) -> None:
    a.stream(role(), delta("Hel"), CUT)
    b.stream(*rest("lo", " you"))

    async with serving(yaml({"a": a.url, "b": b.url}, model=PREFILL)) as running:
        assert text(await events_of(running)) == "Hello you"


async def test_usage_is_the_sum_of_what_is_known(a: Upstream, b: Upstream) -> None:
    a.stream(role(), delta("Hel", usage={"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}), CUT)
    b.stream(*rest("lo"))

    async with serving(yaml({"a": a.url, "b": b.url}, model=PREFILL)) as running:
        events = await events_of(running, stream_options={"include_usage": True})

    assert parsed(events)[-1]["usage"] == {"prompt_tokens": 25, "completion_tokens": 5, "total_tokens": 30}
    assert sum(bool(c.get("usage")) for c in parsed(events)) == 1


async def test_a_second_cut_goes_on_at_the_third_target(a: Upstream, b: Upstream) -> None:
    a.stream(role(), delta("one"), CUT)
    b.stream(role(**FROM_B), delta(" two", **FROM_B), CUT)

    async with serving(yaml({"a": a.url, "b": b.url, "c": "mock://?reply=+three&gap=0"}, model=PREFILL)) as running:
        events = await events_of(running)

    assert text(events) == "one two three"
    assert events[-1] == "[DONE]"


async def test_the_record_shows_both(a: Upstream, b: Upstream, caplog: pytest.LogCaptureFixture) -> None:
    a.stream(*CUT_ANSWER)
    b.stream(*rest("end"))
    caplog.set_level("INFO", "thinkgate.request")

    async with serving(yaml({"a": a.url, "b": b.url}, model=PREFILL)) as running:
        got = await running.chat(STREAM)

    assert chain_of(got) == "a=200"
    (line,) = [r.getMessage() for r in caplog.records if r.name == "thinkgate.request"]
    assert "attempts=a=protocol,b=200" in line
    assert "status=200" in line


async def test_when_nobody_can_go_on_the_cut_is_told(a: Upstream, b: Upstream) -> None:
    a.stream(*CUT_ANSWER)
    b.reply({"error": {"message": "down"}}, status=500)

    async with serving(yaml({"a": a.url, "b": b.url}, model=PREFILL)) as running:
        events = await events_of(running)

    assert text(events[:-1]) == "Once upon a time "
    error = error_of(events)
    assert error["code"] == "stream_interrupted"
    assert "the answer of a broke off" in error["message"]
    assert len(b.requests) == 1


FLAGGED = {"message": "flagged", "code": "content_policy_violation"}
REFUSED: dict[str, tuple[list[Item], dict[str, Any]]] = {
    "reasoning": ([role(), thought("hm"), delta("Hel"), CUT], {}),
    "a tool call": ([role(), delta("Let me see"), chunk({"tool_calls": [tool_call("f", '{"q":')]}), CUT], {"tools": TOOLS}),
    "json mode": ([role(), delta('{"a":'), CUT], {"response_format": {"type": "json_object"}}),
    "a schema": ([role(), delta('{"a":'), CUT], {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}}),
    "several choices": ([role(), delta("Hel"), CUT], {"n": 2}),
    "log probabilities": ([role(), delta("Hel"), CUT], {"logprobs": True}),
    "blanks only": ([role(), delta("\n"), CUT], {}),
    "an error that is the caller's": (
        [role(), delta("Hel"), 0.05, chunk({}, "content_filter", error=FLAGGED)],
        {},
    ),
}


@pytest.mark.parametrize("why", REFUSED)
async def test_what_cannot_be_continued_is_cut(a: Upstream, b: Upstream, why: str) -> None:
    items, more = REFUSED[why]
    a.stream(*items)
    b.stream(*rest("lo"))

    async with serving(yaml({"a": a.url, "b": b.url}, model=PREFILL)) as running:
        await events_of(running, **more)

    assert b.requests == []


async def test_a_target_that_refuses_a_trailing_assistant_message_is_not_asked_to(a: Upstream, b: Upstream) -> None:
    a.stream(*CUT_ANSWER)
    b.stream(*rest("end"))
    providers = {"a": a.url, "g": "http://127.0.0.1:9", "b": b.url}

    async with serving(yaml(providers, model=PREFILL, g="adapter: gemini_compat\nretries: 0")) as running:
        events = await events_of(running)

    assert text(events) == "Once upon a time end"
    assert len(b.requests) == 1


async def test_without_the_setting_a_cut_stays_a_cut(a: Upstream, b: Upstream) -> None:
    a.stream(*CUT_ANSWER)

    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        assert error_of(await events_of(running))["code"] == "stream_interrupted"

    assert b.requests == []


async def test_a_client_that_wants_no_fallback_gets_none(a: Upstream, b: Upstream) -> None:
    a.stream(*CUT_ANSWER)

    async with serving(yaml({"a": a.url, "b": b.url}, model=PREFILL)) as running:
        assert error_of(await running.events(x_thinkgate_fallback="off"))["code"] == "stream_interrupted"

    assert b.requests == []


async def test_the_clients_own_prefill_is_continued_with_the_text(a: Upstream, b: Upstream) -> None:
    a.stream(*CUT_ANSWER)
    b.stream(*rest("end"))
    messages = [*CHAT["messages"], {"role": "assistant", "content": "Tale: "}]

    async with serving(yaml({"a": a.url, "b": b.url}, model=PREFILL)) as running:
        await events_of(running, messages=messages)

    assert b.requests[0].json["messages"] == [*CHAT["messages"], {"role": "assistant", "content": "Tale: Once upon a time"}]


async def test_an_answer_that_is_not_cut_keeps_its_bytes(a: Upstream, b: Upstream) -> None:
    a.stream(*answer("Hel", "lo"), repeat=2)

    async with serving(yaml({"a": a.url, "b": b.url}, model=PREFILL)) as running:
        resumable = await running.events()
    async with serving(yaml({"a": a.url, "b": b.url})) as running:
        plain = await running.events()

    assert resumable == plain
