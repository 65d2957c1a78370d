"""Chat clients of a running gateway whose providers speak Messages and Gemini: what is sent, what comes back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from running import CHAT, STREAM, serving, yaml
from upstream_double import Upstream

from gateway.chat import Accumulator

TOOLS = [{"type": "function", "function": {"name": "w", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]


def gemini(*parts: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": list(parts)}, **({"finishReason": finish} if finish else {}), "index": 0}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 20, "totalTokenCount": 35}
    return {"candidates": [candidate], "usageMetadata": usage, "responseId": "r1", "modelVersion": "gemini-3-pro"}


def parsed(events: list[str]) -> list[dict[str, Any]]:
    return [json.loads(event) for event in events if event != "[DONE]"]


def said(events: list[str]) -> dict[str, Any]:
    """The completion that a stream accumulates to."""
    into = Accumulator()
    for chunk in parsed(events):
        into.add(chunk)
    return into.completion()


def error_of(events: list[str]) -> dict[str, Any]:
    """The error that a stream ended with; it is the last event, and no [DONE] follows."""
    assert "[DONE]" not in events
    error: dict[str, Any] = json.loads(events[-1])["error"]
    return error


THOUGHT = {"text": "hm", "thought": True}
CALLING = {"functionCall": {"id": "c1", "name": "w", "args": {"city": "Paris"}}, "thoughtSignature": "sig-A"}


def config(**urls: str) -> str:
    adapters = {"a": "adapter: gemini\nretries: 0", "b": "retries: 0"}
    return yaml(urls, **{name: adapters[name] for name in urls})


async def test_a_gemini_stream_reaches_a_chat_client(a: Upstream) -> None:
    a.stream(gemini(THOUGHT), gemini({"text": "Let me see"}), gemini(CALLING), gemini({"text": ""}, finish="STOP"))

    async with serving(config(a=a.url)) as running:
        events = await running.events({**STREAM, "tools": TOOLS, "stream_options": {"include_usage": True}, "reasoning_effort": "high"})

    for chunk in parsed(events):
        ChatCompletionChunk.model_validate(chunk)
    assert events[-1] == "[DONE]"
    choice = said(events)["choices"][0]
    assert (choice["message"]["reasoning_content"], choice["message"]["content"], choice["finish_reason"]) == ("hm", "Let me see", "tool_calls")
    assert choice["message"]["tool_calls"] == [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "w", "arguments": '{"city":"Paris"}'},
            "extra_content": {"google": {"thought_signature": "sig-A"}},
        }
    ]
    assert parsed(events)[-1]["usage"]["completion_tokens"] == 25
    sent = a.requests[0]
    assert (sent.path, sent.query) == ("/models/a-model:streamGenerateContent", "alt=sse")
    assert sent.headers["x-goog-api-key"] == "key-of-a-0123456789"
    assert set(sent.json) == {"contents", "tools", "generationConfig"}


async def test_a_plain_gemini_answer_reaches_a_chat_client(a: Upstream) -> None:
    a.reply(gemini(THOUGHT, {"text": "20"}, finish="STOP"))

    async with serving(config(a=a.url)) as running:
        got = (await running.chat(CHAT)).json()

    ChatCompletion.model_validate(got)
    assert got["choices"][0]["message"] == {"role": "assistant", "content": "20", "reasoning_content": "hm"}
    assert got["usage"]["total_tokens"] == 35
    assert a.requests[0].path.endswith("/models/a-model:generateContent")


async def test_a_signature_that_the_client_lost_comes_back_on_the_next_turn(a: Upstream) -> None:
    a.reply(gemini(CALLING, finish="STOP"))
    a.reply(gemini({"text": "20"}, finish="STOP"))

    async with serving(config(a=a.url)) as running:
        first = (await running.chat({**CHAT, "tools": TOOLS})).json()["choices"][0]["message"]
        bare = {"role": "assistant", "content": None, "tool_calls": [{k: v for k, v in call.items() if k != "extra_content"} for call in first["tool_calls"]]}
        await running.chat({**CHAT, "tools": TOOLS, "messages": [*CHAT["messages"], bare, {"role": "tool", "tool_call_id": "c1", "content": "20C"}]})

    assert a.requests[1].json["contents"][1]["parts"] == [CALLING]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_missing_signature_is_repaired_and_sent_once_more(a: Upstream, stream: bool) -> None:
    message = "Function call is missing a thought_signature in functionCall parts."
    call = {"id": "c9", "type": "function", "function": {"name": "w", "arguments": "{}"}, "extra_content": {"google": {"thought_signature": "foreign"}}}
    turn = {"role": "assistant", "content": None, "tool_calls": [call]}
    a.reply({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}, status=400)
    if stream:
        a.stream(gemini({"text": "20"}, finish="STOP"))
    else:
        a.reply(gemini({"text": "20"}, finish="STOP"))

    async with serving(config(a=a.url)) as running:
        messages = [*CHAT["messages"], turn, {"role": "tool", "tool_call_id": "c9", "content": "20C"}]
        got = await running.chat({**CHAT, "stream": stream, "tools": TOOLS, "messages": messages})

    assert got.status_code == 200
    assert [request.json["contents"][1]["parts"][0]["thoughtSignature"] for request in a.requests] == ["foreign", "skip_thought_signature_validator"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_malformed_call_of_gemini_moves_on(a: Upstream, b: Upstream, stream: bool) -> None:
    failed = gemini(finish="MALFORMED_FUNCTION_CALL")
    if stream:
        a.stream(failed)
    else:
        a.reply(failed)
    b.reply({"choices": [{"index": 0, "message": {"role": "assistant", "content": "b"}, "finish_reason": "stop"}]})

    async with serving(config(a=a.url, b=b.url)) as running:
        got = await running.chat({**CHAT, "stream": stream})

    assert got.status_code == 200
    assert got.headers["x-thinkgate-chain"] == "a=protocol,b=200"


async def test_an_error_in_the_middle_of_a_gemini_stream_ends_it_without_done(a: Upstream) -> None:
    a.stream(gemini({"text": "Hel"}), 0.05, {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}})

    async with serving(config(a=a.url)) as running:
        events = await running.events()

    assert said(events[:-1])["choices"][0]["message"]["content"] == "Hel"
    assert "overloaded" in error_of(events)["message"]


async def test_a_gemini_stream_that_ends_too_early_is_no_clean_end(a: Upstream) -> None:
    a.stream(gemini({"text": "Hel"}))

    async with serving(config(a=a.url)) as running:
        events = await running.events()

    assert error_of(events)["code"] == "stream_interrupted"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_that_gemini_blocks_is_a_content_filter_error(a: Upstream, b: Upstream, stream: bool) -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3}}
    if stream:
        a.stream(blocked)
    else:
        a.reply(blocked)

    async with serving(config(a=a.url, b=b.url)) as running:
        got = await running.chat({**CHAT, "stream": stream})

    assert (got.status_code, got.json()["error"]["code"]) == (400, "content_filter")
    assert b.requests == []


async def test_gemini_answers_a_messages_client_too(a: Upstream) -> None:
    a.reply(gemini(THOUGHT, {"text": "20"}, finish="STOP"))

    async with serving(config(a=a.url)) as running:
        body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        got = await running.client.post("/v1/messages", json=body, headers={"anthropic-version": "2023-06-01"})

    assert [block["type"] for block in got.json()["content"]] == ["thinking", "text"]
    assert got.json()["stop_reason"] == "end_turn"


async def test_an_anthropic_provider_is_asked_in_messages_and_answers_in_chat(a: Upstream) -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s=="}
    use = {"type": "tool_use", "id": "t1", "name": "w", "input": {"city": "Paris"}}
    usage = {"input_tokens": 10, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 5, "output_tokens": 7}
    a.reply({"id": "msg_1", "type": "message", "role": "assistant", "model": "x", "content": [thinking, use], "stop_reason": "tool_use", "usage": usage})

    async with serving(yaml({"a": a.url}, a="adapter: anthropic\nretries: 0")) as running:
        got = (await running.chat({**CHAT, "model": "a/claude-opus-4-7", "tools": TOOLS, "reasoning_effort": "low"})).json()

    message = got["choices"][0]["message"]
    assert (message["reasoning_content"], message["thinking_blocks"], got["choices"][0]["finish_reason"]) == ("hm", [thinking], "tool_calls")
    assert (got["usage"]["prompt_tokens"], got["usage"]["prompt_tokens_details"]["cached_tokens"]) == (105, 90)
    sent = a.requests[0]
    assert sent.path.endswith("/messages")
    assert (sent.headers["x-api-key"], sent.headers["anthropic-version"]) == ("key-of-a-0123456789", "2023-06-01")
    assert "authorization" not in sent.headers
    assert sent.json["thinking"] == {"type": "adaptive", "display": "summarized"}


async def test_an_overload_in_the_first_event_moves_on_before_anything_is_sent(a: Upstream, b: Upstream) -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    a.stream(("error", error))
    b.stream({"choices": [{"index": 0, "delta": {"content": "b"}, "finish_reason": "stop"}]}, "[DONE]")

    async with serving(yaml({"a": a.url, "b": b.url}, a="adapter: anthropic\nretries: 0")) as running:
        got = await running.chat(STREAM)

    assert got.headers["x-thinkgate-chain"] == "a=overload,b=200"
    assert "verloaded" not in got.text
    assert json.loads(got.text.split("\n")[0].removeprefix("data: "))["choices"][0]["delta"]["content"] == "b"
