"""Responses streams from and to chat, and the mending of native ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import APIError, OpenAI
from responses_samples import (
    OWN_USAGE,
    PATCH,
    TOOL,
    USAGE,
    Json,
    bare,
    checked,
    chunk,
    encoded,
    inbound,
    piece,
    read,
    stream_of,
    summed,
    usage_chunk,
    user,
    valid,
    write,
)

from gateway import sse
from gateway.chat import dumps
from gateway.dialects import responses
from gateway.errors import UpstreamError

REQUEST = {"model": "asked", "input": "q"}
ERROR = {"message": "broke off", "type": "upstream_error", "param": None, "code": "stream_interrupted"}


def kinds(events: list[Json]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def wire(events: list[Json]) -> bytes:
    return b"".join(sse.event(dumps(event), event["type"]) for event in events)


def client(body: bytes) -> OpenAI:
    """The SDK on a server that answers with these bytes."""

    def serve(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=body)

    return OpenAI(api_key="k", base_url="http://127.0.0.1:1/v1", http_client=httpx2.Client(transport=httpx2.MockTransport(serve)), max_retries=0)


def final(events: list[Json], **request: Any) -> Any:
    """What the SDK's stream helper makes of the events."""
    with client(wire(events)) as sdk, sdk.responses.stream(model="m", input="q", **request) as stream:
        return stream.get_final_response()


# --- chat -> Responses


def test_text_comes_in_the_order_that_clients_need():
    events = write(chunk({"role": "assistant", "content": ""}), chunk({"content": "Hel"}), chunk({"content": "lo"}), chunk({}, "stop"), usage_chunk())

    assert kinds(events) == [
        *("created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    assert events[0]["response"]["output"] == []
    assert events[6]["text"] == "Hello"
    response = valid(events[-1]["response"])
    assert response["output"][0]["content"][0]["text"] == "Hello"
    assert (response["usage"]["input_tokens"], response["usage"]["output_tokens"]) == (3, 2)
    assert final(events).output_text == "Hello"


def test_a_function_call_is_announced_filled_and_done():
    events = write(
        chunk({"tool_calls": [piece(0, "", "call_1", "w")]}),
        chunk({"tool_calls": [piece(0, '{"city":')]}),
        chunk({"tool_calls": [piece(0, '"Paris"}')]}),
        chunk({}, "tool_calls"),
    )

    assert kinds(events)[2:-1] == [
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.delta"),
        *("function_call_arguments.done", "output_item.done"),
    ]
    assert events[2]["item"]["arguments"] == ""
    assert (events[5]["name"], events[5]["arguments"]) == ("w", '{"city":"Paris"}')
    call = final(events, tools=[{**TOOL, "strict": False}]).output[0]
    assert (call.type, call.call_id, call.name, call.arguments) == ("function_call", "call_1", "w", '{"city":"Paris"}')


def test_reasoning_is_a_summary_of_its_own_item():
    events = write(chunk({"reasoning_content": "h"}), chunk({"reasoning_content": "m"}), chunk({"content": "Hi"}), chunk({}, "stop"))

    assert kinds(events)[2:9] == [
        *("output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta", "reasoning_summary_text.delta"),
        *("reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"),
    ]
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["reasoning", "message"]
    assert events[-1]["response"]["output"][0]["summary"] == [{"type": "summary_text", "text": "hm"}]
    assert final(events).output_text == "Hi"


def test_a_refusal_has_events_of_its_own():
    events = write(chunk({"refusal": "N"}), chunk({"refusal": "o."}), chunk({}, "stop"))

    assert kinds(events)[3:8] == ["content_part.added", "refusal.delta", "refusal.delta", "refusal.done", "content_part.done"]
    assert final(events).output[0].content[0].refusal == "No."


def test_a_free_text_tool_streams_its_text_and_not_the_json_around_it():
    events = write(
        chunk({"tool_calls": [piece(0, '{"input":"*** Be', "c1", "apply_patch")]}),
        chunk({"tool_calls": [piece(0, 'gin\\n"}')]}),
        chunk({}, "tool_calls"),
        tools=[PATCH],
    )

    assert kinds(events)[2:-1] == ["output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done"]
    assert events[3]["delta"] == events[4]["input"] == "*** Begin\n"
    assert bare(events[-1]["response"]["output"]) == [
        {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin\n", "status": "completed"}
    ]


def test_a_custom_call_of_chat_streams_through():
    first = {"index": 0, "id": "c1", "type": "custom", "custom": {"name": "p", "input": ""}}
    events = write(chunk({"tool_calls": [first]}), chunk({"tool_calls": [{"index": 0, "custom": {"input": "***"}}]}), chunk({}, "tool_calls"))

    assert kinds(events)[2:-1] == ["output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done"]
    assert events[-1]["response"]["output"][0]["input"] == "***"


def test_a_call_without_arguments_has_an_empty_object():
    events = write(chunk({"tool_calls": [piece(0, "", "call_1", "w")]}), chunk({}, "tool_calls"))

    assert [event["delta"] for event in events if "delta" in event] == ["{}"]
    assert events[-1]["response"]["output"][0]["arguments"] == "{}"


def test_a_call_is_announced_when_its_name_is_known():
    events = write(
        chunk({"tool_calls": [piece(0, '{"a":', "call_1")]}),
        chunk({"tool_calls": [piece(0, "1}", name="w")]}),
        chunk({"tool_calls": [piece(0, "")]}),
        chunk({}, "tool_calls"),
    )

    assert events[2]["item"]["name"] == "w"
    assert events[-1]["response"]["output"][0]["arguments"] == '{"a":1}'


def test_a_call_that_never_gets_a_name_is_not_lost():
    events = write(chunk({"tool_calls": [piece(0, "{}", "call_1")]}), chunk({}, "tool_calls"))

    assert [(item["call_id"], item["name"]) for item in events[-1]["response"]["output"]] == [("call_1", "")]


def test_calls_whose_arguments_come_in_turns_stay_apart():
    events = write(
        chunk({"content": "Both."}),
        chunk({"tool_calls": [piece(0, '{"a"', "call_1", "w"), piece(1, '{"b"', "call_2", "w")]}),
        chunk({"tool_calls": [piece(0, ":1}"), piece(1, ":2}")]}),
        chunk({}, "tool_calls"),
    )

    assert [(item.get("call_id"), item.get("arguments")) for item in events[-1]["response"]["output"]] == [
        (None, None),
        ("call_1", '{"a":1}'),
        ("call_2", '{"b":2}'),
    ]
    assert [item.type for item in final(events).output] == ["message", "function_call", "function_call"]


def test_a_finished_call_is_done_before_the_next_item_begins():
    events = write(chunk({"tool_calls": [piece(0, "{}", "call_1", "w")]}), chunk({"tool_calls": [piece(1, "{}", "call_2", "w")]}), chunk({}, "tool_calls"))

    assert [(event["type"].rpartition(".")[2], event["output_index"]) for event in events if "output_item" in event["type"]] == [
        ("added", 0),
        ("done", 0),
        ("added", 1),
        ("done", 1),
    ]


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_a_stream_that_was_cut_short_ends_incomplete(finish: str, reason: str):
    events = write(chunk({"content": "Hel"}), chunk({}, finish))

    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["incomplete_details"] == {"reason": reason}
    assert events[-1]["response"]["output"][0]["status"] == "incomplete"


def test_a_failure_ends_with_what_node_and_codex_read():
    writer = responses.Writer(REQUEST)
    events = checked([*writer.feed(chunk({"content": "Hel"})), *writer.fail(ERROR)])

    assert kinds(events)[-2:] == ["error", "failed"]
    assert (events[-2]["code"], events[-2]["message"], events[-2]["param"]) == ("stream_interrupted", "broke off", None)
    assert events[-1]["response"]["status"] == "failed"
    assert events[-1]["response"]["error"] == {"code": "server_error", "message": "broke off"}
    assert valid(events[-1]["response"])["id"] == events[0]["response"]["id"]


def test_a_failure_before_everything_is_a_whole_stream():
    events = checked(responses.Writer(REQUEST).fail(ERROR))

    assert kinds(events) == ["created", "in_progress", "error", "failed"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"code": "context_length_exceeded", "type": "invalid_request_error"}, "context_length_exceeded"),
        ({"code": "rate_limit_exceeded", "type": "rate_limit_error"}, "rate_limit_exceeded"),
        ({"code": "providers_exhausted", "attempts": [{"class": "rate_limit"}, {"class": "rate_limit"}]}, "rate_limit_exceeded"),
        ({"code": "x", "type": "invalid_request_error"}, "invalid_prompt"),
        ({"code": 7}, "server_error"),
        ({}, "server_error"),
    ],
)
def test_codes_of_failed_responses_are_those_that_openai_sends(error: Json, code: str):
    _, failed = responses.Writer(REQUEST).fail(error)[-1]

    assert failed["response"]["error"]["code"] == code
    assert failed["response"]["error"]["message"]


def test_sources_come_as_events_and_in_the_part():
    note = {"type": "url_citation", "url_citation": {"url": "https://example.com", "title": "t", "start_index": 0, "end_index": 2}}
    events = write(chunk({"content": "Hi"}), chunk({"annotations": [note, note]}), chunk({}, "stop"))

    assert [event["annotation_index"] for event in events if "annotation" in event] == [0, 1]
    assert len(events[-1]["response"]["output"][0]["content"][0]["annotations"]) == 2
    assert events[3]["part"]["annotations"] == []


def test_chances_come_with_the_text():
    chances = {"content": [{"token": "Hi", "logprob": -0.1, "bytes": None, "top_logprobs": []}]}
    events = write(chunk({"content": "Hi"}, logprobs=chances), chunk({}, "stop"))

    assert events[-1]["response"]["output"][0]["content"][0]["logprobs"] == [{"token": "Hi", "logprob": -0.1, "bytes": [], "top_logprobs": []}]


BLOCK = {"type": "thinking", "thinking": "hm", "signature": "s1"}
SIGNATURE = {"google": {"thought_signature": "sig"}}


def test_signed_blocks_of_a_stream_come_back_before_the_call():
    events = write(
        chunk({"reasoning_content": "hm"}),
        chunk({"thinking_blocks": [BLOCK]}),
        chunk({"tool_calls": [piece(0, "{}", "call_1", "w", extra_content=SIGNATURE)]}),
        chunk({}, "tool_calls"),
    )
    output = events[-1]["response"]["output"]

    assert [item["type"] for item in output] == ["reasoning", "function_call"]
    turn = inbound(user(), *output)["messages"][1]
    assert turn["thinking_blocks"] == [BLOCK]
    assert turn["tool_calls"][0]["extra_content"] == SIGNATURE


def test_a_signature_that_comes_late_is_kept_too():
    late = {"index": 0, "extra_content": SIGNATURE}
    events = write(chunk({"tool_calls": [piece(0, "{}", "call_1", "w")]}), chunk({"tool_calls": [late]}), chunk({}, "tool_calls"))

    assert inbound(user(), *events[-1]["response"]["output"])["messages"][1]["tool_calls"][0]["extra_content"] == SIGNATURE


def test_other_choices_are_not_mixed_in():
    events = write(chunk({"content": "a"}), chunk({"content": "b"}, index=1), chunk({}, "stop"))

    assert [event["delta"] for event in events if "delta" in event] == ["a"]


def test_an_event_does_not_change_after_it_was_given_out():
    writer = responses.Writer(REQUEST)
    events: list[tuple[Any, bytes]] = []
    kept: list[Json] = []
    for one in (
        chunk({"reasoning_content": "h"}),
        chunk({"content": "a"}),
        chunk({"refusal": "r"}),
        chunk({"tool_calls": [piece(0, "{}", "c", "w")]}),
        chunk({}, "stop"),
    ):
        for _, data in writer.feed(one):
            kept.append(data)
            events.append((None, encoded(data)))
    writer.finish()

    assert [encoded(data) for data in kept] == [text for _, text in events]


TEXT = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=10)
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "reasoning_content": TEXT,
        "content": TEXT,
        "refusal": TEXT,
        "tool_calls": st.lists(st.tuples(st.sampled_from(["w", "apply_patch"]), st.dictionaries(TEXT, TEXT, max_size=2)), min_size=1, max_size=3),
    },
)


def chunks_of(message: Json, finish: str, pieces: int) -> Iterator[Json]:
    for field in ("reasoning_content", "content", "refusal"):
        text = message.get(field, "")
        size = max(1, len(text) // pieces)
        for start in range(0, len(text), size):
            yield chunk({field: text[start : start + size]})
    for index, call in enumerate(message.get("tool_calls", ())):
        arguments = call["function"]["arguments"]
        yield chunk({"tool_calls": [piece(index, "", call["id"], call["function"]["name"])]})
        for start in range(0, len(arguments), pieces):
            yield chunk({"tool_calls": [piece(index, arguments[start : start + pieces])]})
    yield chunk({}, finish)
    yield usage_chunk()


@settings(max_examples=60, deadline=None)
@given(MESSAGE, st.sampled_from(["stop", "length"]), st.integers(1, 4))
def test_a_translated_stream_ends_with_the_translated_answer(message: Json, finish: str, pieces: int):
    calls = [
        {"id": f"call_{place}", "type": "function", "function": {"name": name, "arguments": json.dumps(value)}}
        for place, (name, value) in enumerate(message.get("tool_calls", ()))
    ]
    message = {**message, **({"tool_calls": calls} if calls else {})}
    request = {**REQUEST, "tools": [TOOL, PATCH]}
    parts = list(chunks_of(message, finish, pieces))

    plain = responses.answer_from_chat(summed(parts), request)
    streamed = write(*parts, tools=[TOOL, PATCH])[-1]["response"]

    for item in (*plain["output"], *streamed["output"]):
        if item["type"] == "message":
            item.pop("status")
    assert bare(streamed["output"]) == bare(plain["output"])
    assert {key: streamed[key] for key in ("status", "usage", "tools")} == {key: plain[key] for key in ("status", "usage", "tools")}


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

    assert native.look("response.output_text.delta", b"not read")


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
