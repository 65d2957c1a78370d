"""Messages streams from and to chat."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import RawMessageStreamEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from messages_samples import START, STOP, delta, end, start, stop
from openai.types.chat import ChatCompletionChunk
from pydantic import TypeAdapter

from gateway.chat import Accumulator
from gateway.dialects import messages
from gateway.dialects.chat import ChatStream
from gateway.errors import UpstreamError

EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


def read(*events: Any) -> tuple[list[dict[str, Any]], messages.Reader]:
    """The chunks of a stream, each one checked against the SDK's type."""
    reader = messages.Reader("asked")
    chunks = [chunk for event in events for chunk in reader.feed(None, event if isinstance(event, bytes) else json.dumps(event).encode())]
    chunks += reader.finish()
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk)
    return chunks, reader


def completion(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    into = Accumulator()
    for chunk in chunks:
        into.add(chunk)
    return into.completion()


def message(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    told: dict[str, Any] = completion(chunks)["choices"][0]["message"]
    return told


def chunk(**part: Any) -> dict[str, Any]:
    finish = part.pop("finish_reason", None)
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "up",
        "choices": [{"index": 0, "delta": part, "finish_reason": finish}],
    }


def usage(**counts: Any) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "up", "choices": [], "usage": counts}


def call(index: int, arguments: str | None = None, ident: str | None = None, name: str | None = None) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {"index": index, **({"id": ident, "type": "function"} if ident else {}), "function": function}


def write(*chunks: dict[str, Any], **request: Any) -> list[dict[str, Any]]:
    """The events of a clean stream, each one checked against the SDK's type and its `event:` line."""
    writer = messages.Writer({"model": "asked", **request})
    events = [event for one in chunks for event in writer.feed(one)] + writer.finish()
    for name, data in events:
        assert name == data["type"]
        EVENT.validate_python(data)
    return [data for _, data in events]


def accumulated(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What the SDK makes of a stream."""
    snapshot, pieces = None, {}
    for event in events:
        snapshot = accumulate_event(event=EVENT.validate_python(event), current_snapshot=snapshot, json_bufs=pieces)
    assert snapshot is not None
    out: dict[str, Any] = snapshot.to_dict()
    return out


def outline(events: list[dict[str, Any]]) -> list[str]:
    out = []
    for event in events:
        kind = event["type"].removeprefix("content_block_")
        what = event.get("content_block", event.get("delta", {})).get("type", "")
        out.append(f"{kind} {event['index']} {what}".strip() if "index" in event else kind)
    return out


# --- Messages -> chat


def test_a_stream_with_everything_accumulates_to_the_plain_answer():
    blocks = [
        {"type": "thinking", "thinking": "hm, ok", "signature": "s1"},
        {"type": "redacted_thinking", "data": "d"},
        {"type": "text", "text": "Hello"},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"q": "x"}},
    ]
    chunks, reader = read(
        START,
        {"type": "ping"},
        start(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="hm, "),
        delta(0, "thinking_delta", thinking="ok"),
        delta(0, "signature_delta", signature="s1"),
        stop(0),
        start(1, **blocks[1]),
        stop(1),
        start(2, type="text", text=""),
        delta(2, "text_delta", text="Hel"),
        delta(2, "citations_delta", citation={}),
        delta(2, "text_delta", text="lo"),
        stop(2),
        start(3, type="tool_use", id="t1", name="f", input={}),
        delta(3, "input_json_delta", partial_json=""),
        delta(3, "input_json_delta", partial_json='{"q":'),
        delta(3, "input_json_delta", partial_json='"x"}'),
        stop(3),
        end("tool_use", cache_read_input_tokens=90),
        STOP,
    )

    plain = messages.answer_to_chat(
        {
            "id": "msg_1",
            "model": "up",
            "content": blocks,
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 90},
        }
    )
    assert same(completion(chunks), plain)
    assert reader.done


def same(streamed: dict[str, Any], plain: dict[str, Any]) -> bool:
    """Whether two completions say the same, whatever the second and the keys that are null."""
    return tidy(streamed) == tidy(plain)


def tidy(value: dict[str, Any]) -> Any:
    choice = value["choices"][0]
    told = {key: item for key, item in choice["message"].items() if item not in (None, "")}
    if blocks := told.get("thinking_blocks"):
        told["thinking_blocks"] = [{key: item for key, item in block.items() if key != "index"} for block in blocks]
    return value["id"], value["model"], told, choice["finish_reason"], value.get("usage")


def test_two_signed_thoughts_stay_two_blocks():
    first, second = ({"type": "thinking", "thinking": text, "signature": text} for text in "ab")
    chunks, _ = read(START, start(0, **first), stop(0), start(1, **second), stop(1), end(), STOP)

    body = messages.request_from_chat({"messages": [{"role": "user", "content": "u"}, message(chunks)]})

    assert body["messages"][1]["content"] == [first, second]


def test_a_call_without_arguments_gets_an_empty_object():
    chunks, _ = read(
        START, start(0, type="tool_use", id="t", name="f", input={}), delta(0, "input_json_delta", partial_json=""), stop(0), end("tool_use"), STOP
    )

    assert message(chunks)["tool_calls"][0]["function"]["arguments"] == "{}"


def test_an_input_that_came_whole_in_the_start_is_kept():
    chunks, _ = read(START, start(0, type="tool_use", id="t", name="f", input={"q": 1}), end("tool_use"), STOP)

    assert message(chunks)["tool_calls"][0]["function"]["arguments"] == '{"q":1}'


def test_server_tools_are_no_calls():
    chunks, _ = read(
        START,
        start(0, type="server_tool_use", id="s", name="web_search", input={}),
        delta(0, "input_json_delta", partial_json='{"query":1}'),
        stop(0),
        end(),
        STOP,
    )

    assert "tool_calls" not in message(chunks)


def test_an_overload_in_the_first_event_is_an_overload():
    with pytest.raises(UpstreamError) as caught:
        read({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    assert caught.value.kind == "overload"

    with pytest.raises(UpstreamError) as caught:
        messages.Native().look("error", b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}')
    assert caught.value.kind == "overload"


def test_a_stream_without_a_stop_reason_is_not_done():
    chunks, reader = read(START, start(0, type="text", text=""), delta(0, "text_delta", text="x"))

    assert not reader.done
    assert all(choice["finish_reason"] is None for one in chunks for choice in one["choices"])


def test_a_second_message_start_ends_the_open_blocks_and_opens_no_second_answer():
    chunks, _ = read(
        START,
        start(0, type="thinking", thinking="half", signature="bad"),
        START,
        start(0, type="text", text=""),
        delta(0, "text_delta", text="whole"),
        stop(0),
        end(),
        STOP,
    )

    assert message(chunks)["content"] == "whole"
    assert "thinking_blocks" not in message(chunks)
    assert [one["choices"][0]["delta"].get("role") for one in chunks if one["choices"]].count("assistant") == 1


def test_deltas_without_a_start_are_read_by_their_type():
    chunks, _ = read(START, delta(0, "thinking_delta", thinking="a"), delta(1, "text_delta", text="b"), end(), STOP)

    assert message(chunks)["reasoning_content"] == "a"
    assert message(chunks)["content"] == "b"


def test_a_refusal_without_text_gives_its_explanation():
    refusal = {
        "type": "message_delta",
        "delta": {"stop_reason": "refusal", "stop_details": {"type": "refusal", "explanation": "not this"}},
        "usage": {"output_tokens": 1},
    }

    chunks, _ = read(START, refusal, STOP)

    assert message(chunks)["refusal"] == "not this"
    assert completion(chunks)["choices"][0]["finish_reason"] == "content_filter"


def test_usage_comes_once_and_null_takes_nothing_back():
    chunks, _ = read(START, end(input_tokens=None), STOP)

    assert [one["usage"] for one in chunks if "usage" in one] == [{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}]


@pytest.mark.parametrize("data", [b"[DONE]", b"", b"null", b"[]", b"1", b"not json", b'{"type":"brand_new"}', b"{}", b'{"type":"ping"}'])
def test_what_is_no_event_is_passed_over(data):
    chunks, _ = read(START, data, end(), STOP)

    assert len([one for one in chunks if one["choices"]]) == 2


@pytest.mark.parametrize("junk", [None, 1, "x", [], ["x"], {}, {"type": "text_delta"}, {"type": "tool_use"}, {"type": [], "id": {}}])
@pytest.mark.parametrize("kind", ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"])
def test_senseless_events_break_nothing(kind, junk):
    data = json.dumps({"type": kind, "message": junk, "index": junk, "content_block": junk, "delta": junk, "usage": junk}).encode()

    messages.Reader("m").feed(kind, data)
    messages.Native().look(None, data)


cut = st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
inputs = st.dictionaries(cut, st.none() | st.integers() | cut | st.dictionaries(cut, cut, max_size=2), max_size=3)
contents = st.lists(
    st.builds(lambda text: {"type": "text", "text": text}, cut)
    | st.builds(lambda text, sign: {"type": "thinking", "thinking": text, "signature": sign}, cut, cut | st.just(""))
    | st.builds(lambda data: {"type": "redacted_thinking", "data": data}, cut)
    | st.builds(lambda name, given: {"type": "tool_use", "id": "", "name": name, "input": given}, st.sampled_from(["f", "g"]), inputs),
    max_size=5,
).map(lambda blocks: [{**block, **({"id": f"toolu_{n}"} if "id" in block else {})} for n, block in enumerate(blocks)])


def pieces(draw: st.DrawFn, text: str) -> list[str]:
    """The text, cut anywhere."""
    at = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Content blocks and a stream of them."""
    blocks, events = draw(contents), [START]
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            events += [start(index, type="text", text=""), *(delta(index, "text_delta", text=piece) for piece in pieces(draw, block["text"]))]
        elif block["type"] == "thinking":
            events += [
                start(index, type="thinking", thinking="", signature=""),
                *(delta(index, "thinking_delta", thinking=piece) for piece in pieces(draw, block["thinking"])),
            ]
            events.append(delta(index, "signature_delta", signature=block["signature"]))
        elif block["type"] == "tool_use":
            given = json.dumps(block["input"], ensure_ascii=False, separators=(",", ":")) if block["input"] else ""
            events += [start(index, **{**block, "input": {}}), *(delta(index, "input_json_delta", partial_json=piece) for piece in pieces(draw, given))]
        else:
            events.append(start(index, **block))
        events.append(stop(index))
    return blocks, events


@settings(max_examples=200, deadline=None)
@given(streams())
def test_any_cut_of_a_stream_accumulates_to_the_plain_answer(drawn):
    blocks, events = drawn
    chunks, _ = read(*events, end(), STOP)

    plain = messages.answer_to_chat(
        {"id": "msg_1", "model": "up", "content": blocks, "stop_reason": "end_turn", "usage": {"input_tokens": 10, "output_tokens": 5}}
    )

    assert same(completion(chunks), plain)


# --- chat -> Messages


def test_a_border_chunk_with_thought_and_text_loses_neither():
    events = write(
        chunk(role="assistant", content=""),
        chunk(reasoning_content="think"),
        chunk(reasoning_content="ing.", content="Hel"),
        chunk(content="lo"),
        chunk(finish_reason="stop"),
    )

    assert outline(events)[1:-2] == [
        "start 0 thinking",
        "delta 0 thinking_delta",
        "delta 0 thinking_delta",
        "delta 0 signature_delta",
        "stop 0",
        "start 1 text",
        "delta 1 text_delta",
        "delta 1 text_delta",
        "stop 1",
    ]
    assert [block.get("thinking", block.get("text")) for block in accumulated(events)["content"]] == ["thinking.", "Hello"]


def test_interleaved_calls_get_their_own_input():
    events = write(
        chunk(tool_calls=[call(0, "", "c0", "f1")]),
        chunk(tool_calls=[call(1, "", "c1", "f2")]),
        chunk(tool_calls=[call(0, '{"a":')]),
        chunk(tool_calls=[call(1, '{"b":')]),
        chunk(tool_calls=[call(0, "1}")]),
        chunk(tool_calls=[call(1, "2}")]),
        chunk(finish_reason="tool_calls"),
    )

    content = accumulated(events)["content"]
    assert [(block["id"], block["name"], block["input"]) for block in content] == [("c0", "f1", {"a": 1}), ("c1", "f2", {"b": 2})]
    assert_one_block_at_a_time(events)


def test_the_second_call_streams_as_soon_as_the_first_is_complete():
    writer = messages.Writer({})
    writer.feed(chunk(tool_calls=[call(0, '{"a":"}', "c0", "f")]))
    waits = writer.feed(chunk(tool_calls=[call(1, "{", "c1", "g")]))
    goes = writer.feed(chunk(tool_calls=[call(0, '\\"}"}')]))

    assert waits == []
    assert [name for name, _ in goes] == ["content_block_delta", "content_block_stop", "content_block_start", "content_block_delta"]


def test_text_after_a_call_opens_a_new_block():
    events = write(chunk(content="Let me"), chunk(tool_calls=[call(0, '{"q":"x"}', "c0", "f")]), chunk(content="done"), chunk(finish_reason="tool_calls"))

    assert outline(events) == [
        "message_start",
        "start 0 text",
        "delta 0 text_delta",
        "stop 0",
        "start 1 tool_use",
        "delta 1 input_json_delta",
        "stop 1",
        "start 2 text",
        "delta 2 text_delta",
        "stop 2",
        "message_delta",
        "message_stop",
    ]
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


def assert_one_block_at_a_time(events: list[dict[str, Any]]) -> None:
    opened, seen = None, 0
    for event in events:
        if event["type"] == "content_block_start":
            assert opened is None
            assert event["index"] == seen
            opened, seen = event["index"], seen + 1
        elif "index" in event:
            assert event["index"] == opened
            opened = None if event["type"] == "content_block_stop" else opened
    assert opened is None


def test_the_end_tells_the_true_input_count():
    events = write(
        chunk(content="a"),
        chunk(finish_reason="stop"),
        usage(prompt_tokens=105, completion_tokens=1, total_tokens=106, prompt_tokens_details={"cached_tokens": 90}),
    )

    assert events[-2]["usage"] == {"input_tokens": 15, "output_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 90}
    assert accumulated(events)["usage"]["input_tokens"] == 15


def test_a_usage_chunk_without_choices_breaks_nothing():
    events = write(chunk(content="a"), chunk(finish_reason="stop"), {"usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}})

    assert events[-2]["usage"]["output_tokens"] == 1


def test_every_text_is_its_own_character_for_character():
    events = write(chunk(content="北"), chunk(content="京😀\u2028"), chunk(finish_reason="stop"))

    assert accumulated(events)["content"][0]["text"] == "北京😀\u2028"


def test_an_answer_without_content_is_still_a_message():
    assert outline(write()) == ["message_start", "message_delta", "message_stop"]


def test_a_signature_that_comes_later_signs_the_open_thought():
    signed = {"type": "thinking", "thinking": "hm, ok", "signature": "s"}
    events = write(
        chunk(reasoning_content="hm, "), chunk(reasoning_content="ok"), chunk(thinking_blocks=[signed]), chunk(content="so"), chunk(finish_reason="stop")
    )

    assert accumulated(events)["content"] == [signed, {"type": "text", "text": "so"}]


def test_a_whole_answer_in_one_chunk_says_nothing_twice():
    blocks = [
        {"type": "thinking", "thinking": "a", "signature": "s1"},
        {"type": "redacted_thinking", "data": "d"},
        {"type": "thinking", "thinking": "b", "signature": "s2"},
    ]

    events = write(chunk(role="assistant", reasoning_content="ab", thinking_blocks=blocks, content="so"), chunk(finish_reason="stop"))

    assert accumulated(events)["content"] == [*blocks, {"type": "text", "text": "so"}]


def test_a_thought_withheld_by_the_provider_keeps_its_signature():
    block = {"type": "thinking", "thinking": "", "signature": "s"}

    assert accumulated(write(chunk(thinking_blocks=[block]), chunk(content="so")))["content"][0] == block


def test_openrouters_signature_signs_the_streamed_thought():
    detail = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
    events = write(
        chunk(reasoning_content="hm", reasoning_details=[{**detail, "text": "hm"}]),
        chunk(reasoning_details=[{**detail, "signature": "s"}]),
        chunk(content="so"),
    )

    assert accumulated(events)["content"][0] == {"type": "thinking", "thinking": "hm", "signature": "s"}


def test_openrouters_redacted_thought_is_one_here():
    detail = {"type": "reasoning.encrypted", "format": "anthropic-claude-v1", "data": "d"}

    assert accumulated(write(chunk(reasoning_details=[detail]), chunk(content="so")))["content"][0] == {"type": "redacted_thinking", "data": "d"}


def test_a_stop_text_that_the_server_names_is_the_stop_sequence():
    last = chunk(finish_reason="stop")
    last["choices"][0]["stop_reason"] = "END"

    assert write(chunk(content="x"), last, stop_sequences=["END"])[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "END"}


def test_a_name_that_comes_late_is_waited_for():
    events = write(chunk(tool_calls=[call(0, "{", "c0")]), chunk(tool_calls=[call(0, "}", None, "f")]), chunk(finish_reason="tool_calls"))

    assert accumulated(events)["content"] == [{"type": "tool_use", "id": "c0", "name": "f", "input": {}}]


def test_a_refusal_is_shown_and_named():
    events = write(chunk(refusal="I won't"), chunk(finish_reason="stop"))

    assert accumulated(events)["content"][0]["text"] == "I won't"
    assert events[-2]["delta"]["stop_reason"] == "refusal"


def test_only_the_first_choice_is_told():
    second = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "length"}]}

    assert accumulated(write(chunk(content="yes"), second, chunk(finish_reason="stop")))["content"] == [{"type": "text", "text": "yes"}]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "x", "type": "upstream_error", "code": "stream_interrupted"}, "api_error"),
        ({"message": "x", "type": "upstream_error", "attempts": [{"class": "overload"}, {"class": "overload"}]}, "overloaded_error"),
        ({"message": "x", "type": "upstream_error", "attempts": [{"class": "overload"}, {"class": "server"}]}, "api_error"),
        ({"message": "x", "type": "upstream_error", "attempts": [{"class": "rate_limit"}, {"class": "balance"}]}, "rate_limit_error"),
        ({"message": "x", "type": "upstream_error", "attempts": [{"class": "first_token_timeout"}]}, "timeout_error"),
        ({"message": "x", "type": "invalid_request_error"}, "invalid_request_error"),
        ({"message": "x", "type": "service_unavailable_error"}, "overloaded_error"),
    ],
)
def test_a_failure_is_an_error_event(error, kind):
    writer = messages.Writer({})
    writer.feed(chunk(content="half"))

    assert [(name, data["type"], data["error"]["type"], data["error"]["message"]) for name, data in writer.fail(error)] == [("error", "error", kind, "x")]


@st.composite
def chunked(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A chat message and a stream of it, its calls interleaved."""
    told: dict[str, Any] = {"content": draw(cut | st.none()), "reasoning_content": draw(cut | st.none())}
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": f"f{n}", "arguments": json.dumps(draw(inputs))}} for n in range(draw(st.integers(0, 3)))]
    chunks = [chunk(**{field: piece}) for field in ("reasoning_content", "content") if told[field] for piece in pieces(draw, told[field])]
    chunks += [chunk(tool_calls=[call(n, "", one["id"], one["function"]["name"])]) for n, one in enumerate(calls)]
    waiting = [[call(n, piece) for piece in pieces(draw, one["function"]["arguments"])] for n, one in enumerate(calls)]
    while any(waiting):
        line = draw(st.sampled_from([line for line in waiting if line]))
        chunks.append(chunk(tool_calls=[line.pop(0)]))
    return {**told, "tool_calls": calls}, [*chunks, chunk(finish_reason="stop")]


@settings(max_examples=200, deadline=None)
@given(chunked())
def test_any_cut_of_a_chat_stream_accumulates_to_the_plain_answer(drawn):
    told, chunks = drawn
    plain = messages.answer_from_chat({"choices": [{"message": told, "finish_reason": "stop"}]}, {"model": "m"})

    events = write(*chunks)

    assert_one_block_at_a_time(events)
    streamed = accumulated(events)
    assert streamed["content"] == plain["content"]
    assert streamed["stop_reason"] == plain["stop_reason"]


def test_a_healed_stream_of_claudes_becomes_claudes_answer_again():
    signed = {"type": "thinking", "thinking": "hm", "signature": "s"}
    used = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"q": 1}}
    healer = ChatStream(model="m", include_usage=True)
    reader = messages.Reader("m")
    events = [START, start(0, **signed), stop(0), start(1, type="text", text="so"), stop(1), start(2, **used), stop(2)]
    events += [end("tool_use", cache_read_input_tokens=9, cache_creation_input_tokens=4), STOP]

    healed = [one.json() for event in events for chunk in reader.feed(None, json.dumps(event).encode()) for one in healer.chunk(chunk)]
    healed += [one.json() for one in healer.finish()]
    written = write(*healed)

    assert accumulated(written)["content"] == [signed, {"type": "text", "text": "so"}, used]
    assert written[-2]["delta"]["stop_reason"] == "tool_use"
    assert written[-2]["usage"] == {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 9, "cache_creation_input_tokens": 4}
