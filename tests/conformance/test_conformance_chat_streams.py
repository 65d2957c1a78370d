"""Chat streams: their bytes, their chunks, and how they end."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from asking import calls, finishes, text
from conforming import HI, TOOL, chunks, conforms, refused
from odd_streams import ARGUMENTS, CALLS, TEXTS
from running import STREAM, Running, serving, yaml
from upstream_double import CUT, DONE, RESET, Item, Upstream, answer, chunk, completion, delta, finish, role, tool_call, usage

USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
ASKING = {**STREAM, "stream_options": {"include_usage": True}}
PATIENT = "retries: 0\ncooldown: {after: 1000, base: 1ms, max: 1ms}"


def events_of(raw: str) -> list[str]:
    """The data of a stream that is nothing but `data: ` lines with blank lines between them."""
    *blocks, rest = raw.split("\n\n")
    assert rest == "", "the last event has no blank line behind it"
    assert all(block.startswith("data: ") and "\n" not in block and "\r" not in block for block in blocks)
    return [block[6:] for block in blocks]


async def streamed(a: Upstream, running: Running, items: list[Item], body: dict[str, Any] = STREAM) -> list[str]:
    a.clear()
    a.stream(*items)
    got = await running.chat(body)
    assert got.headers["content-type"].startswith("text/event-stream"), got.text
    return events_of(got.text)


async def test_a_stream_says_that_it_is_one(a: Upstream, running: Running) -> None:
    a.stream()
    got = await running.chat(STREAM)

    assert got.headers["content-type"].startswith("text/event-stream")
    assert (got.headers["cache-control"], got.headers["x-accel-buffering"]) == ("no-cache", "no")
    assert got.text.endswith("data: [DONE]\n\n")


async def test_every_chunk_conforms_however_odd_the_providers_stream_is(a: Upstream, running: Running) -> None:
    for name, items in TEXTS.items():
        events = await streamed(a, running, items)
        found = chunks(events)
        assert (text(events), finishes(events)) == ("Hello", ["stop"]), name
        assert found[0]["choices"][0]["delta"]["role"] == "assistant", name
        assert found[-1]["choices"][0]["finish_reason"] == "stop", name
        assert not any("usage" in event for event in map(json.loads, events[:-1])), name


async def test_every_tool_delta_conforms_however_odd_the_providers_stream_is(a: Upstream, running: Running) -> None:
    for name, items in CALLS.items():
        events = await streamed(a, running, items, {**STREAM, "tools": [TOOL]})
        parts = [part for found in chunks(events) for choice in found["choices"] for part in choice["delta"].get("tool_calls", ())]
        first, *later = parts
        assert (first["id"], first["type"], first["function"]["name"]) == ("call_1", "function", "get_weather"), name
        assert all(not {"id", "type"} & set(part) and "name" not in part["function"] for part in later), name
        assert calls(events) == [("call_1", "get_weather", ARGUMENTS)], name
        assert finishes(events) == ["tool_calls"], name


async def test_each_choice_begins_with_its_role_and_has_one_finish_reason(a: Upstream, running: Running) -> None:
    without: list[Item] = [delta("o"), delta("two", index=1), delta("ne"), finish(), finish("length", index=1), DONE]
    both: list[list[Item]] = [without, [role(), role(index=1), *without]]
    for items in both:
        found = chunks(await streamed(a, running, items, {**STREAM, "n": 2}))
        for index, reason in ((0, "stop"), (1, "length")):
            own = [choice for one in found for choice in one["choices"] if choice["index"] == index]
            assert own[0]["delta"]["role"] == "assistant"
            assert [choice["finish_reason"] for choice in own if choice["finish_reason"]] == [reason]


@pytest.mark.parametrize("end", [[], [CUT], [RESET], [{"error": {"message": "boom", "type": "server_error"}}]], ids=["end of body", "cut", "reset", "error"])
async def test_a_finish_reason_is_not_made_up_for_a_stream_that_breaks_off(a: Upstream, running: Running, end: list[Item]) -> None:
    events = await streamed(a, running, [role(), delta("Hel"), 0.02, *end])

    assert DONE not in events
    assert finishes(event for event in events[:-1]) == []
    assert set(conforms(json.loads(events[-1]), "error")["error"]) >= {"message", "type", "param", "code"}
    async with openai.AsyncOpenAI(base_url=running.url, api_key="none", max_retries=0) as client:
        with pytest.raises(openai.APIError) as caught:
            async for _ in await client.chat.completions.create(model="m", messages=HI, stream=True):
                pass
    assert caught.value.message == json.loads(events[-1])["error"]["message"]


TELLING: dict[str, list[Item]] = {
    "a chunk of its own": [*answer("Hello", usage_chunk=True)],
    "with the finish reason": [role(), delta("Hello"), {**finish(), "usage": USAGE}, DONE],
    "growing, in every chunk": [
        {**role(), "usage": {**USAGE, "completion_tokens": 0, "total_tokens": 5}},
        {**delta("Hello"), "usage": {**USAGE, "completion_tokens": 2, "total_tokens": 7}},
        {**finish(), "usage": USAGE},
        DONE,
    ],
    "null, then a chunk of its own": [{**role(), "usage": None}, {**delta("Hello"), "usage": None}, {**finish(), "usage": None}, usage(), DONE],
    "twice": [role(), delta("Hello"), {**finish(), "usage": USAGE}, usage(), DONE],
    "before the finish reason": [role(), delta("Hello"), usage(), finish(), DONE],
}


@pytest.mark.parametrize("form", TELLING)
async def test_usage_comes_once_at_the_end_if_it_was_asked_for(a: Upstream, running: Running, form: str) -> None:
    *before, last = chunks(await streamed(a, running, TELLING[form], ASKING))

    assert (last["choices"], last["usage"]) == ([], USAGE)
    assert all(one["choices"] and one.get("usage") is None for one in before)
    assert all("usage" in one for one in before)


@pytest.mark.parametrize(
    "body", [STREAM, {**STREAM, "stream_options": {"include_usage": False}}, {**STREAM, "stream_options": None}], ids=["absent", "false", "null"]
)
@pytest.mark.parametrize("form", TELLING)
async def test_and_not_at_all_if_it_was_not(a: Upstream, running: Running, form: str, body: dict[str, Any]) -> None:
    found = chunks(await streamed(a, running, TELLING[form], body))

    assert all(one["choices"] and "usage" not in one for one in found)


async def test_line_and_paragraph_separators_inside_a_text_cut_no_event(a: Upstream, running: Running) -> None:
    said = "a\u2028b\u2029c\u0085d\x0be"
    events = await streamed(a, running, [role(), delta(said), finish(), DONE])

    assert text(events) == said


async def test_an_error_before_the_content_is_a_status(a: Upstream, running: Running) -> None:
    for items in ([{"error": {"message": "boom"}}], [role(), {"error": {"message": "boom"}}], [role(), CUT], [DONE], [role(), finish(), DONE], []):
        a.clear()
        a.stream(*items) if items else a.reply(b"", headers={"content-type": "text/event-stream"})
        got = await running.chat(STREAM)
        assert refused(got, got.status_code)["code"] in ("providers_exhausted", "no_target_available")
        assert got.status_code in (502, 503)


async def test_an_empty_stream_moves_on(a: Upstream, b: Upstream) -> None:
    a.stream(DONE)
    b.stream(*answer("from b"))
    async with serving(yaml({"a": a.url, "b": b.url}, a=PATIENT)) as running:
        events = events_of((await running.chat(STREAM)).text)

    assert text(events) == "from b"
    assert len(chunks(events)) == 3


async def test_a_plain_answer_becomes_chunks_that_conform(a: Upstream, running: Running) -> None:
    called = completion("See", calls=[tool_call("f", "{}")], reasoning_content="so")
    a.reply(called)
    events = events_of((await running.chat(ASKING)).text)

    found = chunks(events)
    assert (text(events), text(events, "reasoning_content"), calls(events), finishes(events)) == ("See", "so", [("call_1", "f", "{}")], ["tool_calls"])
    assert (found[-1]["choices"], found[-1]["usage"]) == ([], called["usage"])


async def test_a_stream_becomes_one_completion_that_conforms(a: Upstream, running: Running) -> None:
    for items in (*TEXTS.values(), *CALLS.values()):
        a.clear()
        a.stream(*items)
        got = await running.chat()
        assert got.headers["content-type"] == "application/json"
        conforms(got.json(), "chat_completion")


async def test_log_probabilities_arrive_in_their_form(a: Upstream, running: Running) -> None:
    token = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}
    said = chunk({"content": "Hi"})
    said["choices"][0]["logprobs"] = {"content": [token], "refusal": None}
    found = chunks(await streamed(a, running, [role(), said, finish(), DONE], {**STREAM, "logprobs": True}))

    assert [choice["logprobs"]["content"] for one in found for choice in one["choices"] if choice["logprobs"]] == [[token]]
