"""Plain Messages answers and error envelopes from and to chat."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types import ErrorResponse, Message
from openai.types.chat import ChatCompletion

from gateway.dialects import messages

USAGE = {
    "input_tokens": 10,
    "cache_read_input_tokens": 90,
    "cache_creation_input_tokens": 5,
    "output_tokens": 7,
    "output_tokens_details": {"thinking_tokens": 3},
}
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "sig=="}


def answer(*content: dict[str, Any], stop: str = "end_turn", **fields: Any) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "up",
        "content": list(content),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": USAGE,
        **fields,
    }


def completion(finish: str = "stop", usage: dict[str, Any] | None = None, choice: dict[str, Any] | None = None, **message: Any) -> dict[str, Any]:
    told = {"role": "assistant", "content": None, **message}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "up",
        "choices": [{"index": 0, "message": told, "finish_reason": finish, **(choice or {})}],
        "usage": usage,
    }


def to_client(body: dict[str, Any], **request: Any) -> dict[str, Any]:
    """The Messages answer, if the SDK's type takes it."""
    out = messages.answer_from_chat(body, {"model": "asked", **request})
    Message.model_validate(out)
    return out


def test_an_answer_with_everything_becomes_a_completion():
    call = {"type": "tool_use", "id": "t1", "name": "f", "input": {"q": "ä"}}

    chat = messages.answer_to_chat(answer(SIGNED, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}, call, stop="tool_use"))

    ChatCompletion.model_validate(chat)
    assert chat["id"] == "chatcmpl-msg_1"
    assert chat["object"] == "chat.completion"
    assert chat["choices"] == [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "ab",
                "refusal": None,
                "reasoning_content": "hm",
                "thinking_blocks": [SIGNED],
                "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"q":"ä"}'}}],
            },
            "logprobs": None,
            "finish_reason": "tool_calls",
        }
    ]


def test_prompt_tokens_hold_what_the_cache_gave_and_took():
    assert messages.answer_to_chat(answer())["usage"] == {
        "prompt_tokens": 105,
        "completion_tokens": 7,
        "total_tokens": 112,
        "prompt_tokens_details": {"cached_tokens": 90, "cache_write_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }


def test_usage_returns_to_the_same_counts():
    usage = to_client(completion(content="x", usage=messages.answer_to_chat(answer())["usage"]))["usage"]

    assert usage == USAGE


def test_missing_usage_is_zero_for_messages_clients_and_absent_in_chat():
    assert to_client(completion(content="x"))["usage"] == {"input_tokens": 0, "output_tokens": 0}
    assert "usage" not in messages.answer_to_chat(answer(usage=None))


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("something_new", "stop"),
    ],
)
def test_stop_reasons(stop, finish):
    assert messages.answer_to_chat(answer({"type": "text", "text": "x"}, stop=stop))["choices"][0]["finish_reason"] == finish


def test_a_call_makes_the_finish_reason_tool_calls():
    chat = messages.answer_to_chat(answer({"type": "tool_use", "id": "t", "name": "f", "input": {}}))

    assert chat["choices"][0]["finish_reason"] == "tool_calls"


def test_a_refusal_without_text_gives_its_explanation():
    chat = messages.answer_to_chat(answer(stop="refusal", stop_details={"type": "refusal", "category": "cyber", "explanation": "not this"}))

    assert chat["choices"][0]["message"]["refusal"] == "not this"


@pytest.mark.parametrize(
    ("finish", "stop"), [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal"), ("tool_calls", "end_turn"), (None, "end_turn")]
)
def test_finish_reasons(finish, stop):
    assert to_client(completion(finish, content="x"))["stop_reason"] == stop


def test_a_completion_with_everything_becomes_an_answer():
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"q":1}'}},
        {"id": "c2", "type": "function", "function": {"name": "g", "arguments": ""}},
    ]

    body = to_client(completion("stop", content="so", reasoning_content="hm", tool_calls=calls))

    assert body["id"].startswith("msg_")
    assert body["model"] == "up"
    assert body["stop_reason"] == "tool_use"
    assert body["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "text", "text": "so"},
        {"type": "tool_use", "id": "c1", "name": "f", "input": {"q": 1}},
        {"type": "tool_use", "id": "c2", "name": "g", "input": {}},
    ]


def test_a_call_without_an_id_gets_one():
    assert to_client(completion(tool_calls=[{"function": {"name": "f"}}]))["content"][0]["id"].startswith("toolu_")


def test_signed_thinking_comes_back_signed_and_only_once():
    body = to_client(completion(content="so", reasoning_content="hm", thinking_blocks=[SIGNED, {"type": "redacted_thinking", "data": "d"}]))

    assert body["content"][:2] == [SIGNED, {"type": "redacted_thinking", "data": "d"}]
    assert len(body["content"]) == 3


def test_a_refusal_is_shown_and_named():
    body = to_client(completion(refusal="I won't"))

    assert body["content"] == [{"type": "text", "text": "I won't"}]
    assert body["stop_reason"] == "refusal"


def test_a_stop_text_that_the_server_names_is_the_stop_sequence():
    named = completion(content="x", choice={"stop_reason": "END"})

    assert to_client(named, stop_sequences=["END"])["stop_sequence"] == "END"
    assert to_client(named, stop_sequences=["END"])["stop_reason"] == "stop_sequence"
    assert to_client(named)["stop_reason"] == "end_turn"


@pytest.mark.parametrize(
    ("body", "content"),
    [
        (answer(), False),
        (answer({"type": "text", "text": ""}), False),
        (answer({"type": "text", "text": "x"}), True),
        (answer(SIGNED), True),
        (answer({"type": "tool_use", "id": "t", "name": "f", "input": {}}), True),
        (answer(stop="refusal"), True),
        ({"content": None}, False),
        ({"content": ["x"]}, False),
    ],
)
def test_native_content(body, content):
    assert messages.native_content(body) is content


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (402, "billing_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (422, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_the_error_envelope_names_the_status(status, kind):
    body = messages.error_body({"message": "no", "type": "upstream_error", "code": None, "param": None, "attempts": [{"provider": "a"}]}, status, "req_1")

    assert body == {"type": "error", "error": {"type": kind, "message": "no", "attempts": [{"provider": "a"}]}, "request_id": "req_1"}


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 409, 422, 429, 500, 502, 503, 504, 529])
def test_the_sdk_knows_the_error_envelope(status):
    ErrorResponse.model_validate(messages.error_body({"message": "no", "type": "upstream_error"}, status, "req_1"))


@pytest.mark.parametrize("junk", [None, 1, "x", [], ["x"], {}, [{}], [{"type": None}], [{"type": "tool_use"}], [{"type": "text"}]])
def test_a_senseless_answer_is_still_an_answer(junk):
    chat = messages.answer_to_chat({"content": junk, "usage": junk, "stop_reason": junk, "id": junk})
    body = messages.answer_from_chat({"choices": junk, "usage": junk, "id": junk}, {"model": "m"})

    assert chat["choices"][0]["finish_reason"]
    Message.model_validate(body)
