"""Gemini answers, plain and streamed -> chat."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gateway.chat import Accumulator
from gateway.dialects import gemini
from gateway.dialects.chat import ChatStream, heal_completion
from gateway.errors import UpstreamError
from gateway.sse import Events

USAGE = {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 20, "totalTokenCount": 35, "cachedContentTokenCount": 4}
CHAT_USAGE = {
    "prompt_tokens": 10,
    "completion_tokens": 25,
    "total_tokens": 35,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 20},
}
CALL = {"functionCall": {"id": "c1", "name": "w", "args": {"city": "Paris"}}, "thoughtSignature": "sig-A"}


def answer(*parts: dict[str, Any], finish: str | None = "STOP", **candidate: Any) -> dict[str, Any]:
    one = {"content": {"role": "model", "parts": list(parts)}, "index": 0, **({"finishReason": finish} if finish else {}), **candidate}
    return {"candidates": [one], "usageMetadata": USAGE, "modelVersion": "gemini-3-pro", "responseId": "r1"}


def plain(*parts: dict[str, Any], **candidate: Any) -> dict[str, Any]:
    chat = gemini.answer_to_chat(answer(*parts, **candidate))
    ChatCompletion.model_validate(chat)
    return chat


def read(*events: dict[str, Any] | bytes) -> tuple[list[dict[str, Any]], gemini.Reader]:
    reader = gemini.Reader("asked")
    chunks = [chunk for event in events for chunk in reader.feed(None, event if isinstance(event, bytes) else json.dumps(event).encode())]
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
    chat = plain({"text": "hm", "thought": True}, {"text": "Let me "}, {"text": "see"}, CALL, {"functionCall": {"id": "c2", "name": "f_0x2e_g"}})

    assert chat["id"] == "chatcmpl-r1"
    assert chat["model"] == "gemini-3-pro"
    assert chat["usage"] == CHAT_USAGE
    assert chat["choices"] == [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Let me see",
                "reasoning_content": "hm",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "w", "arguments": '{"city":"Paris"}'},
                        "extra_content": {"google": {"thought_signature": "sig-A"}},
                    },
                    {"id": "c2", "type": "function", "function": {"name": "f.g", "arguments": "{}"}},
                ],
            },
            "logprobs": None,
            "finish_reason": "tool_calls",
        }
    ]


def test_a_signature_makes_the_round_trip_through_chat():
    message = plain(CALL)["choices"][0]["message"]

    back = gemini.request_from_chat({"model": "gemini-3-pro", "messages": [{"role": "user", "content": "?"}, message]})

    assert back["contents"][1]["parts"] == [CALL]


def test_a_text_without_calls_keeps_its_signature_beside_the_message():
    message = plain({"text": "hi"}, {"text": "", "thoughtSignature": "sig"})["choices"][0]["message"]

    assert message["content"] == "hi"
    assert message["extra_content"] == {"google": {"thought_signature": "sig"}}


def test_a_call_without_id_gets_one():
    calls = plain({"functionCall": {"name": "a"}}, {"functionCall": {"name": "b"}})["choices"][0]["message"]["tool_calls"]

    assert all(call["id"] for call in calls)
    assert calls[0]["id"] != calls[1]["id"]


def test_images_and_sources_are_kept():
    chat = plain({"inlineData": {"mimeType": "image/png", "data": "AAAA"}}, groundingMetadata={"webSearchQueries": ["q"]})

    assert chat["choices"][0]["message"]["images"] == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    assert chat["choices"][0]["groundingMetadata"] == {"webSearchQueries": ["q"]}
    assert heal_completion(chat, "m")[0]["choices"][0]["message"]["images"]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("SPII", "content_filter"),
        ("OTHER", "stop"),
        ("SOMETHING_NEW", "stop"),
    ],
)
def test_finish_reasons(reason, finish):
    assert plain({"text": "a"}, finish=reason)["choices"][0]["finish_reason"] == finish
    assert accumulated(read(answer({"text": "a"}, finish=reason))[0])["choices"][0]["finish_reason"] == finish


@pytest.mark.parametrize(
    ("reason", "kind"), [("MALFORMED_FUNCTION_CALL", "protocol"), ("UNEXPECTED_TOOL_CALL", "protocol"), ("MISSING_THOUGHT_SIGNATURE", "signature")]
)
def test_an_answer_that_failed_is_an_error(reason, kind):
    body = answer(finish=reason, finishMessage="Malformed function call: f(")

    for take in (gemini.answer_to_chat, read):
        with pytest.raises(UpstreamError, match="Malformed function call") as failed:
            take(body)
        assert failed.value.kind == kind
        assert failed.value.error["code"] == reason


def test_a_blocked_prompt_is_a_content_filter_error():
    body = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}}

    for take in (gemini.answer_to_chat, read):
        with pytest.raises(UpstreamError, match="the prompt was blocked: SAFETY") as failed:
            take(body)
        assert failed.value.kind == "content_filter"


@pytest.mark.parametrize("wrap", [lambda error: error, lambda error: [error]])
def test_an_error_inside_the_stream_is_raised_with_its_class(wrap):
    error = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}

    with pytest.raises(UpstreamError, match="overloaded") as failed:
        read(answer({"text": "a"}, finish=None), json.dumps(wrap(error)).encode())
    assert failed.value.kind == "overload"


def test_a_stream_accumulates_to_the_plain_answer():
    chunks, reader = read(
        answer({"text": "hm, ", "thought": True}, finish=None),
        answer({"text": "ok", "thought": True}, finish=None),
        answer({"text": "Let me "}, finish=None),
        b"",
        b"no json",
        answer({"text": "see"}, CALL, finish=None),
        answer({"functionCall": {"id": "c2", "name": "f", "args": {}}}, finish=None),
        answer({"text": ""}),
    )

    whole = plain({"text": "hm, ok", "thought": True}, {"text": "Let me see"}, CALL, {"functionCall": {"id": "c2", "name": "f", "args": {}}})
    got = accumulated(chunks)
    assert reader.done
    assert got["choices"] == whole["choices"]
    assert got["usage"] == CHAT_USAGE
    assert got["id"] == whole["id"]
    assert got["model"] == "gemini-3-pro"


def test_each_call_of_a_stream_has_its_own_index_and_signature():
    chunks, _ = read(answer(CALL, {"functionCall": {"id": "c2", "name": "f"}}, finish=None), answer({"functionCall": {"id": "c3", "name": "f"}}))

    calls = [call for chunk in chunks for choice in chunk["choices"] for call in choice["delta"].get("tool_calls", ())]
    assert [(call["index"], call["id"], "extra_content" in call) for call in calls] == [(0, "c1", True), (1, "c2", False), (2, "c3", False)]


def test_only_the_last_usage_counts_and_comes_once():
    early = {**answer({"text": "a"}, finish=None), "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 1, "totalTokenCount": 11}}

    chunks, _ = read(early, answer({"text": "b"}))

    assert [chunk["usage"] for chunk in chunks if "usage" in chunk] == [CHAT_USAGE]


def test_several_candidates_end_one_by_one():
    one, two = answer({"text": "a"}), answer({"text": "b"}, index=1, finish=None)
    reader = gemini.Reader("m")

    reader.feed(None, json.dumps({**one, "candidates": [*one["candidates"], *two["candidates"]]}).encode())
    assert not reader.done
    reader.feed(None, json.dumps(answer({"text": "c"}, index=1)).encode())
    assert reader.done


def test_a_stream_without_an_end_is_not_done():
    assert not read(answer({"text": "a"}, finish=None))[1].done


def test_the_healer_lets_signatures_through():
    healer = ChatStream("m", include_usage=True)
    reader = gemini.Reader("m")

    values = reader.feed(None, json.dumps(answer({"text": "a"}, CALL, finish=None)).encode()) + reader.feed(None, json.dumps(answer(finish="STOP")).encode())
    chunks = [chunk.json() for value in values for chunk in healer.chunk(value)] + [chunk.json() for chunk in healer.finish()]

    message = accumulated(chunks)["choices"][0]["message"]
    assert message["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "sig-A"}}
    assert healer.usage == CHAT_USAGE
    assert healer.finished


def test_tokens_of_tool_use_belong_to_the_prompt():
    body = answer({"text": "a"})
    body["usageMetadata"] = {"promptTokenCount": 10, "toolUsePromptTokenCount": 7, "candidatesTokenCount": 1, "totalTokenCount": 18}

    assert gemini.answer_to_chat(body)["usage"] == {"prompt_tokens": 17, "completion_tokens": 1, "total_tokens": 18}


STREAM = b"".join(
    b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\r\n\r\n"
    for event in (answer({"text": "é", "thought": True}, finish=None), answer({"text": "日本"}, CALL, finish=None), answer({"text": "."}))
)


@given(st.lists(st.integers(0, len(STREAM)), max_size=6))
def test_any_cut_gives_the_same_answer(cuts):
    edges = [0, *sorted(cuts), len(STREAM)]
    events, reader = Events(), gemini.Reader("m")

    chunks = [chunk for start, end in itertools.pairwise(edges) for event in events.feed(STREAM[start:end]) for chunk in reader.feed(event.name, event.data)]

    assert accumulated(chunks)["choices"] == plain({"text": "é", "thought": True}, {"text": "日本."}, CALL)["choices"]
