"""Responses streams of providers: read as chat, and watched and mended where the client speaks Responses too."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import APIError
from responses_samples import (
    OWN_USAGE,
    TOOL,
    USAGE,
    Json,
    checked,
    client,
    encoded,
    final,
    kinds,
    read,
    stream_of,
    summed,
    wire,
)

from gateway import sse
from gateway.chat import dumps
from gateway.dialects import responses
from gateway.errors import UpstreamError

REQUEST = {"model": "asked", "input": "q"}
ERROR = {"message": "broke off", "type": "upstream_error", "param": None, "code": "stream_interrupted"}


# --- Responses -> chat

RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 7,
    "model": "up",
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "output": [],
    "usage": OWN_USAGE,
}


def own(*output: Json, **fields: Any) -> Json:
    return {**RESPONSE, "output": list(output), **fields}


def said(text: str, ident: str = "msg_1", kind: str = "output_text") -> Json:
    part = {"type": kind, "text": text, "annotations": [], "logprobs": []} if kind == "output_text" else {"type": kind, "refusal": text}
    return {"type": "message", "id": ident, "role": "assistant", "status": "completed", "content": [part]}


def thought(text: str, ident: str = "rs_1", **fields: Any) -> Json:
    return {"type": "reasoning", "id": ident, "summary": [{"type": "summary_text", "text": text}] if text else [], **fields}


def called(arguments: str, ident: str = "fc_1", call_id: str = "call_1") -> Json:
    return {"type": "function_call", "id": ident, "call_id": call_id, "name": "w", "arguments": arguments, "status": "completed"}


CUSTOM = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_9", "name": "p", "input": "*** Begin", "status": "completed"}
WHOLE = own(thought("A", encrypted_content="g1"), said("Looking."), thought("B", "rs_2", encrypted_content="g2"), called('{"a":1}'), CUSTOM)


def same_answer(chunks: list[Json], response: Json) -> None:
    streamed, plain = summed(chunks), responses.answer_to_chat(response)
    told, wanted = streamed["choices"][0], plain["choices"][0]
    assert told["finish_reason"] == wanted["finish_reason"]
    assert {key: value for key, value in told["message"].items() if value} == {key: value for key, value in wanted["message"].items() if value}
    assert {key: streamed.get(key) for key in ("id", "created", "model", "usage")} == {key: plain.get(key) for key in ("id", "created", "model", "usage")}


def test_a_stream_accumulates_to_the_plain_answer():
    same_answer(read(*stream_of(WHOLE)), WHOLE)


def test_the_first_chunk_gives_the_role_and_the_head_stays():
    chunks = read(*stream_of(own(said("Hi"))))

    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert {(one["id"], one["created"], one["model"]) for one in chunks} == {("chatcmpl-resp_1", 7, "up")}
    assert [one["choices"][0]["finish_reason"] for one in chunks if one["choices"]][-1] == "stop"
    assert chunks[-1]["usage"]["total_tokens"] == 5


LLAMA = [
    {"type": "response.created", "response": {"id": "resp_1", "object": "response", "status": "in_progress"}},
    {"type": "response.in_progress", "response": {"id": "resp_1", "object": "response", "status": "in_progress"}},
    {"type": "response.output_item.added", "item": {"content": [], "id": "msg_1", "role": "assistant", "status": "in_progress", "type": "message"}},
    {"type": "response.content_part.added", "item_id": "msg_1", "part": {"type": "output_text", "text": ""}},
    {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "Hel"},
    {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "lo"},
    {"type": "response.output_text.done", "item_id": "msg_1", "text": "Hello"},
    {"type": "response.content_part.done", "item_id": "msg_1", "part": {"type": "output_text", "text": "Hello"}},
    {"type": "response.output_item.done", "item": said("Hello")},
    {"type": "response.completed", "response": own(said("Hello", "msg_other"))},
]


def without(*keys: str) -> list[Json]:
    """WHOLE's stream as a careless server sends it."""

    def cut(value: Any, depth: int) -> Any:
        if isinstance(value, dict):
            return {key: cut(item, depth + 1) for key, item in value.items() if key not in keys or (key == "id" and depth == 1 and "object" in value)}
        return [cut(item, depth) for item in value] if isinstance(value, list) else value

    return [cut(event, 0) for event in stream_of(WHOLE)]


@pytest.mark.parametrize(
    "events",
    [
        without("output_index", "sequence_number", "content_index", "summary_index"),
        without("item_id"),
        without("id", "item_id", "output_index"),
        [event for event in stream_of(WHOLE) if not event["type"].endswith(".delta")],
        [event for event in stream_of(WHOLE) if "output_item.added" not in event["type"]],
        [event for event in stream_of(WHOLE) if "output_item.done" not in event["type"]],
        [event for event in stream_of(WHOLE) if "_item" not in event["type"] and "delta" not in event["type"]],
    ],
    ids=["no places", "no item ids", "neither", "no deltas", "no added", "no done", "only the whole"],
)
def test_what_a_careless_server_leaves_out_is_found_elsewhere(events: list[Json]):
    message = summed(read(*events))["choices"][0]["message"]

    assert message["content"] == "Looking."
    assert message["reasoning_content"] == "A\n\nB"
    assert [call.get("function", call.get("custom")) for call in message["tool_calls"]] == [
        {"name": "w", "arguments": '{"a":1}'},
        {"name": "p", "input": "*** Begin"},
    ]


def test_text_is_not_said_twice_when_the_item_changes_its_id():
    assert summed(read(*LLAMA))["choices"][0]["message"]["content"] == "Hello"


def test_a_summary_beside_the_thought_itself_is_not_said_too():
    events = [
        {"type": "response.created", "response": RESPONSE},
        {"type": "response.reasoning_text.delta", "item_id": "rs_1", "output_index": 0, "content_index": 0, "delta": "raw"},
        {"type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "output_index": 0, "summary_index": 0, "delta": "short"},
        {"type": "response.completed", "response": own(thought("short", content=[{"type": "reasoning_text", "text": "raw"}]))},
    ]

    same_answer(read(*events), events[-1]["response"])


def test_noise_is_passed_over():
    chunks = read(b"[DONE]", b"not json", b"[1]", {"type": "keepalive"}, {"type": "response.rate_limits"}, *stream_of(own(said("Hi"))), b"[DONE]")

    assert summed(chunks)["choices"][0]["message"]["content"] == "Hi"
    assert chunks[0]["id"].startswith("chatcmpl-")


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow down", "param": None}, "rate_limit"),
        ({"type": "response.failed", "response": {"error": None}}, "protocol"),
        ({"error": {"message": "The server is overloaded", "type": "server_error"}}, "overload"),
        ({"type": "response.failed", "response": {"error": {"code": "context_length_exceeded", "message": "too long"}}}, "context_overflow"),
    ],
)
def test_an_error_event_is_a_failure_of_its_class(event: Json, kind: str):
    for watcher in (responses.Reader("m").feed, responses.Native().look, responses.Native(REQUEST).look):
        with pytest.raises(UpstreamError) as failed:
            watcher(None, encoded(event))
        assert failed.value.kind == kind


def test_after_the_end_nothing_is_said_again():
    events = stream_of(own(said("Hi")))

    assert read(*events, events[-1]) == read(*events)


def test_a_stream_that_breaks_off_is_not_done():
    reader = responses.Reader("m")
    for event in stream_of(own(said("Hi")))[:-1]:
        reader.feed(None, encoded(event))

    assert reader.finish() == []
    assert not reader.done


TEXT = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=10)
ITEMS = st.lists(
    st.one_of(
        st.builds(lambda text: said(text), TEXT),
        st.builds(lambda text: said(text, kind="refusal"), TEXT),
        st.builds(lambda text, data: thought(text, **({"encrypted_content": data} if data else {})), TEXT, st.none() | TEXT),
        st.builds(lambda text: called(json.dumps({"a": text})), TEXT),
        st.builds(lambda text: {**CUSTOM, "input": text}, TEXT),
    ),
    max_size=5,
)


@settings(max_examples=60, deadline=None)
@given(ITEMS, st.integers(1, 4), st.sampled_from([("completed", None), ("incomplete", {"reason": "max_output_tokens"})]))
def test_any_stream_accumulates_to_its_plain_answer(items: list[Json], pieces: int, end: tuple[str, Any]):
    items = [{**item, "id": f"{item['id']}{place}", **({"call_id": f"call_{place}"} if "call_id" in item else {})} for place, item in enumerate(items)]
    response = own(*items, status=end[0], incomplete_details=end[1])

    same_answer(read(*stream_of(response, pieces)), response)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 400), max_size=40))
def test_how_the_network_cuts_a_stream_does_not_matter(sizes: list[int]):
    raw, reader, splitter = wire(stream_of(WHOLE)), responses.Reader("m"), sse.Events()
    chunks, start = [], 0
    for size in [*sizes, len(raw)]:
        for event in splitter.feed(raw[start : start + size]):
            chunks += reader.feed(event.name, event.data)
        start += size

    assert chunks == read(*stream_of(WHOLE))


# --- native streams


def watch(native: responses.Native, events: list[Json], named: bool = True) -> list[bool]:
    return [native.look(event["type"] if named else None, encoded(event)) for event in events]


def test_content_is_seen_where_it_begins_and_not_before():
    events = stream_of(own(thought("A"), said("Hi"), called("{}")))

    seen = watch(responses.Native(), events)

    assert next(event["type"] for event, content in zip(events, seen, strict=True) if content) == "response.reasoning_summary_text.delta"
    assert not any(seen[:3])


@pytest.mark.parametrize(
    ("event", "content"),
    [
        ({"type": "response.output_item.added", "item": {"type": "message"}}, False),
        ({"type": "response.output_item.added", "item": {"type": "reasoning"}}, False),
        ({"type": "response.output_item.added", "item": {"type": "function_call"}}, True),
        ({"type": "response.output_item.added", "item": {"type": "web_search_call"}}, True),
        ({"type": "response.output_item.done", "item": thought("", encrypted_content="g")}, True),
        ({"type": "response.output_item.done", "item": thought("")}, False),
        ({"type": "response.output_text.delta", "delta": ""}, False),
        ({"type": "response.refusal.delta", "delta": "No"}, True),
        ({"type": "response.completed", "response": own(said("Hi"))}, True),
        ({"type": "response.completed", "response": own()}, False),
        ({"type": "keepalive"}, False),
    ],
)
def test_which_events_carry_content(event: Json, content: bool):
    native = responses.Native()

    assert native.look(None, encoded(event)) is content
    assert native.has_content is content


def test_a_native_stream_tells_its_end_usage_and_whole():
    native = responses.Native(REQUEST)
    events = stream_of(WHOLE)

    watch(native, events, named=False)

    assert native.done
    assert native.instead is None
    assert native.usage is not None
    assert native.usage["prompt_tokens"] == USAGE["prompt_tokens"]
    assert native.response == WHOLE
    assert native.name == "response.completed"


def test_a_running_answer_is_not_parsed():
    native = responses.Native()
    watch(native, stream_of(own(said("Hi")))[:5])

    assert native.look("response.output_text.delta", b"not read}")


def mended(events: list[Json]) -> list[Json]:
    native, out = responses.Native({**REQUEST, "tools": [TOOL]}), []
    for event in events:
        native.look(event["type"], encoded(event))
        assert native.instead is not None
        out += native.instead
    native.look(None, b"[DONE]")
    assert native.instead == []
    told = checked(out)
    assert native.done
    assert native.response is told[-1]["response"]
    return told


@pytest.mark.parametrize("events", [LLAMA, LLAMA[2:], [event for event in LLAMA if "item" not in event["type"]]], ids=["as it is", "no created", "no items"])
def test_llama_cpps_stream_becomes_one_that_the_sdk_can_read(events: list[Json]):
    told = mended(events)

    assert kinds(told)[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert final(told).output_text == "Hello"
    assert told[-1]["response"]["usage"]["input_tokens"] == 3


def test_the_sdk_cannot_read_it_unmended():
    with pytest.raises((TypeError, RuntimeError)):
        final(LLAMA)


def test_the_sdk_raises_the_message_of_a_chat_styled_error():
    """Why errors in a stream must not be passed on as they are: only this form is raised by openai-python, and nothing tells Codex."""
    with client(sse.event(dumps({"error": {"message": "boom"}}))) as sdk, pytest.raises(APIError, match="boom"):
        list(sdk.responses.create(model="m", input="q", stream=True))
