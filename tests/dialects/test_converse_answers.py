"""Converse answers, plain and streamed -> chat."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from frames import frame
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gateway.chat import Accumulator
from gateway.dialects import converse
from gateway.dialects.eventstream import Frames
from gateway.errors import UpstreamError

USAGE = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 110, "cacheReadInputTokens": 90, "cacheWriteInputTokens": 5}
CHAT_USAGE = {
    "prompt_tokens": 105,
    "completion_tokens": 5,
    "total_tokens": 110,
    "prompt_tokens_details": {"cached_tokens": 90, "cache_write_tokens": 5},
}
THOUGHT = {"reasoningContent": {"reasoningText": {"text": "hm, ok", "signature": "sig=="}}}
REDACTED = {"reasoningContent": {"redactedContent": "Eo8="}}
USE = {"toolUse": {"toolUseId": "t1", "name": "f_0x2e_g", "input": {"q": "ä"}}}
Script = list[tuple[str, dict[str, Any]]]


def answer(*blocks: dict[str, Any], stop: str = "end_turn") -> dict[str, Any]:
    return {"output": {"message": {"role": "assistant", "content": list(blocks)}}, "stopReason": stop, "usage": USAGE, "metrics": {"latencyMs": 1}}


def completed(body: dict[str, Any]) -> dict[str, Any]:
    chat = converse.answer_to_chat(body)
    ChatCompletion.model_validate({**chat, "model": "m"})
    return chat


def delta(index: int, **what: Any) -> tuple[str, dict[str, Any]]:
    return "contentBlockDelta", {"contentBlockIndex": index, "delta": what}


def stop(index: int) -> tuple[str, dict[str, Any]]:
    return "contentBlockStop", {"contentBlockIndex": index}


def start(index: int, name: str, ident: str) -> tuple[str, dict[str, Any]]:
    return "contentBlockStart", {"contentBlockIndex": index, "start": {"toolUse": {"toolUseId": ident, "name": name}}}


END: Script = [("messageStop", {"stopReason": "end_turn"}), ("metadata", {"usage": USAGE, "metrics": {"latencyMs": 1}})]
CALLED: Script = [("messageStop", {"stopReason": "tool_use"}), END[1]]
WHOLE: Script = [
    ("messageStart", {"role": "assistant"}),
    delta(0, reasoningContent={"text": "hm, "}),
    delta(0, reasoningContent={"text": "ok"}),
    delta(0, reasoningContent={"signature": "sig=="}),
    stop(0),
    delta(1, reasoningContent={"redactedContent": "Eo8="}),
    stop(1),
    delta(2, text="Hel"),
    delta(2, text="lo"),
    stop(2),
    start(3, "f_0x2e_g", "t1"),
    delta(3, toolUse={"input": '{"q":'}),
    delta(3, toolUse={"input": '"ä"}'}),
    stop(3),
    start(4, "bare", "t2"),
    delta(4, toolUse={"input": ""}),
    stop(4),
    *CALLED,
]


def read(*script: tuple[str, dict[str, Any]]) -> tuple[list[dict[str, Any]], converse.Reader]:
    reader = converse.Reader("asked")
    chunks = [chunk for name, data in script for chunk in reader.feed(name, json.dumps(data).encode())]
    chunks += reader.finish()
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk)
    return chunks, reader


def accumulated(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    into = Accumulator()
    for chunk in chunks:
        into.add(chunk)
    return into.completion()


def test_an_answer_with_everything_becomes_a_completion():
    chat = completed(answer(THOUGHT, REDACTED, {"text": "a"}, {"text": "b"}, USE, stop="tool_use"))

    assert chat["usage"] == CHAT_USAGE
    assert chat["choices"] == [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "ab",
                "reasoning_content": "hm, ok",
                "thinking_blocks": [{"type": "thinking", "thinking": "hm, ok", "signature": "sig=="}, {"type": "redacted_thinking", "data": "Eo8="}],
                "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "f.g", "arguments": '{"q":"ä"}'}}],
            },
            "logprobs": None,
            "finish_reason": "tool_calls",
        }
    ]


def test_reasoning_of_models_that_do_not_sign_is_only_text():
    message = completed(answer({"reasoningContent": {"reasoningText": {"text": "hm"}}}, {"text": "a"}))["choices"][0]["message"]

    assert message == {"role": "assistant", "content": "a", "reasoning_content": "hm"}


def test_reasoning_makes_the_round_trip_through_chat():
    message = completed(answer(THOUGHT, REDACTED, USE, stop="tool_use"))["choices"][0]["message"]

    back = converse.request_from_chat({"model": "claude", "messages": [{"role": "user", "content": "?"}, message]})

    assert back["messages"][1]["content"] == [THOUGHT, REDACTED, USE]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("guardrail_intervened", "content_filter"),
        ("content_filtered", "content_filter"),
        ("something_new", "stop"),
    ],
)
def test_stop_reasons(reason, finish):
    assert completed(answer({"text": "a"}, stop=reason))["choices"][0]["finish_reason"] == finish
    assert accumulated(read(delta(0, text="a"), ("messageStop", {"stopReason": reason}), END[1])[0])["choices"][0]["finish_reason"] == finish


@pytest.mark.parametrize("reason", ["malformed_model_output", "malformed_tool_use"])
def test_an_answer_that_failed_is_an_error(reason):
    for take in (lambda: converse.answer_to_chat(answer(stop=reason)), lambda: read(("messageStop", {"stopReason": reason}))):
        with pytest.raises(UpstreamError, match=reason) as failed:
            take()
        assert failed.value.kind == "protocol"


def test_a_stream_accumulates_to_the_plain_answer():
    chunks, reader = read(*WHOLE)

    bare = {"toolUse": {"toolUseId": "t2", "name": "bare", "input": {}}}
    plain = completed(answer(THOUGHT, REDACTED, {"text": "Hello"}, USE, bare, stop="tool_use"))
    got = accumulated(chunks)
    for block in got["choices"][0]["message"]["thinking_blocks"]:
        block.pop("index", None)
    assert reader.done
    assert got["choices"] == plain["choices"]
    assert got["usage"] == CHAT_USAGE


def test_the_finish_waits_for_the_usage_behind_it():
    reader = converse.Reader("m")
    reader.feed("contentBlockDelta", b'{"contentBlockIndex":0,"delta":{"text":"a"}}')

    assert reader.feed("messageStop", b'{"stopReason":"end_turn"}') == []
    assert not reader.done
    finish, usage = reader.feed("metadata", json.dumps(END[1][1]).encode())

    assert finish["choices"][0]["finish_reason"] == "stop"
    assert usage["usage"] == CHAT_USAGE
    assert reader.done


def test_a_stream_that_ends_before_its_usage_is_finished_all_the_same():
    chunks, reader = read(delta(0, text="a"), END[0])

    assert accumulated(chunks)["choices"][0]["finish_reason"] == "stop"
    assert reader.done


def test_a_stream_that_is_cut_is_not_done():
    chunks, reader = read(delta(0, text="a"), stop(0))

    assert accumulated(chunks)["choices"][0]["finish_reason"] is None
    assert not reader.done


@pytest.mark.parametrize(
    ("name", "message", "kind"),
    [
        ("throttlingException", "Too many requests", "rate_limit"),
        ("serviceUnavailableException", "busy", "overload"),
        ("internalServerException", "oh", "server"),
        ("modelStreamErrorException", "oh", "server"),
        ("modelTimeoutException", "oh", "server"),
        ("validationException", "Input is too long for requested model.", "context_overflow"),
        ("validationException", "malformed", "bad_request"),
        ("someNewException", "oh", "server"),
    ],
)
def test_an_exception_in_the_stream_is_raised_with_its_class(name, message, kind):
    events = Frames().feed(frame(name, {"message": message}, "exception"))

    with pytest.raises(UpstreamError, match=message) as failed:
        converse.Reader("m").feed(events[0].name, events[0].data)
    assert failed.value.kind == kind


def test_an_error_frame_is_raised_too():
    (event,) = Frames().feed(frame("InternalError", b"", "error", **{":error-message": "it broke"}))

    with pytest.raises(UpstreamError, match="it broke"):
        converse.Reader("m").feed(event.name, event.data)


def test_events_that_are_not_known_are_passed_over():
    assert read(("somethingNew", {"a": 1}), ("contentBlockDelta", {}), ("contentBlockStop", {"contentBlockIndex": 9}))[0] == []
    assert converse.Reader("m").feed("contentBlockDelta", b"no json") == []
    assert converse.Reader("m").feed(None, b"{}") == []


STREAM = b"".join(frame(name, data) for name, data in WHOLE)


@given(st.lists(st.integers(0, len(STREAM)), max_size=6))
def test_any_cut_gives_the_same_answer(cuts):
    edges = [0, *sorted(cuts), len(STREAM)]
    frames, reader = Frames(), converse.Reader("m")

    chunks = [chunk for start, end in itertools.pairwise(edges) for event in frames.feed(STREAM[start:end]) for chunk in reader.feed(event.name, event.data)]

    assert accumulated(chunks)["choices"] == accumulated(read(*WHOLE)[0])["choices"]
