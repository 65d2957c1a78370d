"""Every provider's way of saying no is read, classified and made safe to show."""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import failures
from gateway.chat import dumps
from gateway.failures import classify, in_stream_error, quote, redact, retry_after

Body = dict[str, Any]


def openai(message: str, code: str | int | None = None, kind: str | None = "invalid_request_error", param: str | None = None) -> Body:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def kind(status: int | None, body: Any, headers: Mapping[str, str] | None = None) -> str:
    return classify(status, headers or {}, body if isinstance(body, bytes) else dumps(body)).kind


def test_every_class_has_its_move() -> None:
    assert tuple(failures.MOVES) == failures.CLASSES


def test_what_the_classes_do() -> None:
    moves = failures.MOVES
    assert {k for k in moves if moves[k].repairable} == {
        "reasoning_missing",
        "reasoning_unsupported",
        "signature",
        "tool_choice_thinking",
        "tools_effort",
        "thinking_mode",
        "param",
        "role_order",
    }
    assert {k for k in moves if moves[k].moves_on is False} == {"content_filter", "bad_request", "client_gone"}
    assert {k for k in moves if moves[k].moves_on == "larger_context"} == {"context_overflow"}
    assert {k for k in moves if moves[k].cools == "at_once"} == {"rate_limit", "balance", "auth"}
    assert {k for k in moves if moves[k].cools == "counts"} == {"overload", "server", "connect", "timeout", "first_token_timeout", "protocol"}
    assert {k for k in moves if moves[k].retry != "no"} == {"connect", "server", "overload", "rate_limit"}
    assert not moves["first_token_timeout"].heeds_wait
    assert not moves["protocol"].heeds_wait


# --- the providers' own texts -----------------------------------------------------------------

TEXTS: list[tuple[str, int, Any]] = [
    ("reasoning_missing", 400, openai("The `reasoning_content` in the thinking mode must be passed back to the API.", "invalid_request_error")),
    ("reasoning_missing", 400, openai("Missing `reasoning_content` field in the assistant message at message index 3")),
    ("reasoning_missing", 400, openai("thinking is enabled but reasoning_content is missing in assistant tool call message at index 2")),
    ("reasoning_missing", 400, {"error": {"code": 11155, "message": "bad"}}),
    ("reasoning_missing", 400, {"error": {"code": "11155", "message": "bad"}}),
    (
        "reasoning_missing",
        400,
        {"type": "error", "error": {"type": "invalid_request_error", "message": "Expected `thinking` or `redacted_thinking`, but found `tool_use`."}},
    ),
    (
        "reasoning_unsupported",
        400,
        openai("'messages.1' : for 'role:assistant' the following must be satisfied[('messages.1' : property 'reasoning_content' is unsupported)]"),
    ),
    ("reasoning_unsupported", 400, openai("property 'reasoning' is unsupported")),
    (
        "reasoning_unsupported",
        422,
        {"detail": [{"type": "extra_forbidden", "loc": ["body", "messages", 1, "assistant", "reasoning_content"], "msg": "Extra inputs are not permitted"}]},
    ),
    ("signature", 400, openai("messages.1.content.0: Invalid `signature` in `thinking` block")),
    ("signature", 429, openai("messages.1.content.0: Invalid `signature` in `thinking` block", kind="rate_limit_error")),
    ("signature", 400, [openai("Function call is missing a thought_signature in functionCall parts.")]),
    ("signature", 400, openai("Corrupted thought signature.")),
    ("signature", 400, openai("bad item", "invalid_encrypted_content")),
    ("signature", 400, openai("The encrypted content for item rs_123 could not be verified.")),
    ("signature", 400, openai("Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_1'.")),
    ("signature", 404, openai("Item with id 'rs_0abc' not found.")),
    ("tool_choice_thinking", 400, openai("Thinking mode does not support this tool_choice")),
    (
        "tool_choice_thinking",
        400,
        openai("<400> InternalError.Algo.InvalidParameter: The tool_choice parameter does not support being set to required or object in thinking mode"),
    ),
    ("tool_choice_thinking", 400, openai("tool_choice 'specified' is incompatible with thinking enabled")),
    ("tools_effort", 400, openai("Function tools with reasoning_effort are not supported for gpt-5.6 in /v1/chat/completions.", param="reasoning_effort")),
    ("thinking_mode", 400, openai("parameter.enable_thinking must be set to false for non-streaming calls", "invalid_parameter_error")),
    ("thinking_mode", 400, openai("This model only support stream call")),
    ("thinking_mode", 400, openai("enable thinking can not be support when `stream=False`")),
    ("thinking_mode", 400, openai('"thinking.type.disabled" is not supported for this model.')),
    ("thinking_mode", 400, openai("cannot specify both 'thinking' and 'reasoning_effort'")),
    ("thinking_mode", 400, openai("This model does not support 'reasoning_effort' value 'none'")),
    (
        "param",
        400,
        openai(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            "unsupported_parameter",
            param="max_tokens",
        ),
    ),
    ("param", 400, openai("Unsupported value: 'temperature' does not support 0.3 with this model.", "unsupported_value")),
    ("param", 400, openai("invalid temperature: only 1 is allowed for this model")),
    (
        "role_order",
        400,
        {"object": "error", "message": "Unexpected role 'user' after role 'tool'", "type": "invalid_request_message_order", "param": None, "code": "3230"},
    ),
    ("role_order", 400, openai("Conversation roles must alternate user/assistant/user/assistant/...")),
    ("role_order", 400, openai("Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9.")),
    ("role_order", 400, openai("messages.2: `tool_use ids were found without `tool_result` blocks immediately after")),
    ("role_order", 400, openai("tool result's tool id(call_1) not found (2013)")),
    ("context_overflow", 400, openai("too long", "context_length_exceeded")),
    ("context_overflow", 400, openai("This model's maximum context length is 8192 tokens.")),
    ("context_overflow", 400, openai("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000")),
    ("context_overflow", 400, openai("prompt is too long: 210000 tokens > 200000 maximum")),
    ("context_overflow", 400, openai("InvalidParameter: Range of input length should be [1, 30720]")),
    ("context_overflow", 400, {"code": 20015, "message": "length of prompt_tokens (68957) must be less than max_seq_len (65536).", "data": None}),
    ("context_overflow", 400, openai("Your request exceeded model token limit: 131072")),
    ("context_overflow", 400, openai("Input token length too long")),
    ("context_overflow", 400, openai("the request exceeds the available context size", 400)),
    ("context_overflow", 400, openai("The input token count exceeds the maximum number of tokens allowed 1048576.")),
    ("context_overflow", 400, openai("Current length is 9000 while limit is 8192")),
    ("context_overflow", 400, {"error": {"code": "1261", "message": "Prompt"}}),
    ("context_overflow", 403, openai("Input token count + max_new_tokens must be <= 8193")),
    ("content_filter", 400, {"error": {"code": "content_filter", "message": "x", "status": 400, "innererror": {"code": "ResponsibleAIPolicyViolation"}}}),
    ("content_filter", 400, openai("Your request was flagged", "content_policy_violation")),
    ("content_filter", 400, openai("bad", "data_inspection_failed")),
    ("content_filter", 400, {"code": "DataInspectionFailed", "message": "bad"}),
    ("content_filter", 400, openai("x", "InputTextRiskDetection")),
    ("content_filter", 400, openai("The request was rejected because it was considered high risk")),
    ("content_filter", 400, {"error": {"code": "1301", "message": "unsafe"}}),
    ("content_filter", 200, {"base_resp": {"status_code": 1026, "status_msg": "input sensitive"}}),
    ("content_filter", 403, {"error": {"code": 403, "message": "Your input was flagged", "metadata": {"reasons": ["violence"]}, "type": "moderation"}}),
    ("balance", 402, openai("Payment Required")),
    ("balance", 429, openai("You exceeded your current quota, please check your plan", "insufficient_quota", "insufficient_quota")),
    ("balance", 400, openai("Insufficient Balance")),
    ("balance", 500, {"type": "error", "error": {"type": "api_error", "message": "insufficient balance (1008)", "http_code": "500"}, "request_id": "1"}),
    ("balance", 500, openai("unknown error (1008)")),
    ("balance", 429, {"error": {"code": "1113", "message": "Your account is in arrears"}}),
    ("balance", 429, {"error": {"code": 1113, "message": "Your account is in arrears"}}),
    ("balance", 400, openai("Access denied, please make sure your account is in good standing.", "Arrearage")),
    ("balance", 403, openai("overdue", "AccountOverdueError", "Forbidden")),
    ("balance", 429, openai("x", None, "exceeded_current_quota_error")),
    ("balance", 400, {"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low to access the Anthropic API."}}),
    ("balance", 402, {"type": "error", "error": {"type": "billing_error", "message": "x"}}),
    ("balance", 403, openai("Insufficient credits. Add more using the dashboard.")),
    ("rate_limit", 429, openai("slow down", "rate_limit_exceeded", "tokens")),
    ("rate_limit", 400, openai("Requests throttled", "Throttling.RateQuota")),
    ("rate_limit", 500, {"error": {"code": "1302", "message": "busy"}}),
    ("rate_limit", 413, openai("Request too large for model on tokens per minute (TPM): Limit 6000", "rate_limit_exceeded", "tokens")),
    (
        "rate_limit",
        429,
        [{"error": {"code": 429, "message": "You exceeded your current quota, please check your plan and billing details.", "status": "RESOURCE_EXHAUSTED"}}],
    ),
    ("rate_limit", 400, {"__type": "ThrottlingException", "message": "Too many tokens"}),
    ("overload", 529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    ("overload", 503, openai("Loading model", 503, "unavailable_error")),
    ("overload", 429, openai("The engine is currently overloaded, please try again later", None, "engine_overloaded_error")),
    (
        "overload",
        429,
        {
            "object": "error",
            "message": "Service tier capacity exceeded for this model.",
            "type": "service_tier_capacity_exceeded",
            "param": None,
            "code": "3505",
        },
    ),
    ("overload", 500, {"error": {"code": "1312", "message": "model busy"}}),
    ("overload", 429, openai("ServerOverloaded", "ServerOverloaded")),
    ("auth", 401, openai("Incorrect API key provided", "invalid_api_key")),
    ("auth", 401, "Invalid token"),
    ("auth", 403, b""),
    ("auth", 403, openai("Model access denied", None, "permission_error")),
    ("auth", 400, [{"error": {"code": 400, "message": "API key not valid. Please pass a valid API key.", "status": "INVALID_ARGUMENT"}}]),
    ("not_found", 404, openai("The model `gpt-9` does not exist or you do not have access to it.", "model_not_found")),
    ("not_found", 404, {"detail": "Not Found"}),
    ("not_found", 400, openai("Model Not Exist")),
    ("not_found", 404, openai("x", "ModelNotOpen")),
    ("not_found", 404, {"error": {"code": "DeploymentNotFound", "message": "The API deployment for this resource does not exist."}}),
    ("server", 500, openai("The server had an error", None, "server_error")),
    ("server", 502, b"<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"),
    ("server", 408, b""),
    ("server", 409, openai("conflict")),
    ("server", 425, b""),
    ("server", 499, b""),
    ("server", 504, {"type": "error", "error": {"type": "timeout_error", "message": "x"}}),
    ("bad_request", 400, openai("messages.7: image dimensions exceed max allowed size", "image_too_large")),
    ("bad_request", 422, {"detail": [{"type": "missing", "loc": ["body", "messages"], "msg": "Field required", "input": {"x": "insufficient balance"}}]}),
    ("bad_request", 413, openai("Request entity too large")),
    ("bad_request", 400, openai("Invalid 'metadata.x': string too long. Expected a string with maximum length 512", "string_above_max_length")),
    ("bad_request", 400, {"error": {"code": 2013, "message": "invalid params"}}),
    ("protocol", 302, b"<html>moved</html>"),
]


@pytest.mark.parametrize(("expected", "status", "body"), TEXTS, ids=[f"{i}-{t[0]}-{t[1]}" for i, t in enumerate(TEXTS)])
def test_the_body_decides_before_the_status(expected: str, status: int, body: Any) -> None:
    assert kind(status, body) == expected


def test_a_body_may_come_parsed_or_raw() -> None:
    body = openai("x", "1113")
    assert classify(429, {}, body) == classify(429, {}, dumps(body))


def test_a_field_that_is_too_long_is_no_context_overflow() -> None:
    assert kind(400, openai("This model's maximum context length is 10; string too long", "string_above_max_length")) == "bad_request"


@pytest.mark.parametrize(
    "message",
    [
        "Invalid credentials",
        "Invalid schema for function 'get_credit_score'",
        "Unknown tool 'credit'",
        "Your prompt holds a credit card number",
        "accredited journals only",
    ],
)
def test_the_letters_of_credit_alone_are_no_balance(message: str) -> None:
    assert kind(400, openai(message)) == "bad_request"


def test_an_api_key_that_could_not_be_verified_is_no_signature() -> None:
    assert kind(401, openai("Your API key could not be verified")) == "auth"


@pytest.mark.parametrize("status", [None, *range(300, 600)])
def test_every_status_without_a_body_has_a_class(status: int | None) -> None:
    verdict = classify(status, {}, b"")
    assert verdict.kind in failures.CLASSES
    assert verdict.message


# --- the shapes --------------------------------------------------------------------------------

SHAPES: list[tuple[Any, str, str | None, str | None, str | None]] = [
    (openai("m", "c", "t", "p"), "m", "t", "c", "p"),
    ({"error": "text"}, "text", None, None, None),
    ({"code": "Some code", "error": "text"}, "text", None, "Some code", None),
    ({"code": 20012, "message": "m", "data": None}, "m", None, "20012", None),
    ({"detail": "text"}, "text", None, None, None),
    (
        {"detail": [{"type": "missing", "loc": ["body", "messages", 0, "role"], "msg": "Field required"}]},
        "body.messages.0.role: Field required (missing)",
        None,
        None,
        "role",
    ),
    ([{"error": {"code": 400, "message": "m", "status": "INVALID_ARGUMENT"}}], "m", "INVALID_ARGUMENT", "400", None),
    ({"base_resp": {"status_code": 1004, "status_msg": "login fail"}}, "login fail", None, "1004", None),
    ({"type": "error", "error": {"type": "overloaded_error", "message": "m"}, "request_id": "r"}, "m", "overloaded_error", None, None),
    ({"object": "error", "message": "m", "type": "t", "param": "p", "code": None}, "m", "t", None, "p"),
    ({"type": "error", "code": "server_error", "message": "m", "param": None}, "m", None, "server_error", None),
    ({"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded", "message": "m"}}}, "m", None, "rate_limit_exceeded", None),
    ({"errors": [{"message": "m", "code": 7}]}, "m", None, "7", None),
    (
        {"error": {"message": "Provider returned error", "code": 502, "metadata": {"raw": '{"error":{"message":"inner"}}', "provider_name": "P"}}},
        "inner",
        None,
        "502",
        None,
    ),
    ("Invalid token", "Invalid token", None, None, None),
    ({"error": {"message": {"detail": [{"msg": "m"}]}}}, "m", None, None, None),
]


@pytest.mark.parametrize(("body", "message", "type_", "code", "param"), SHAPES)
def test_all_shapes_of_bodies_are_read(body: Any, message: str, type_: str | None, code: str | None, param: str | None) -> None:
    verdict = classify(418, {}, dumps(body))
    assert verdict.error == {"message": message, "type": type_, "code": code, "param": param}
    assert verdict.message == message


def test_plain_text_and_html_become_a_short_message() -> None:
    assert classify(500, {}, b"upstream connect error\n").message == "upstream connect error"
    assert classify(502, {}, b"<!DOCTYPE html><html><head><title>502 &amp; Bad</title></head>").message == "502 & Bad"
    assert classify(502, {}, b"<html><style>b{}</style><body><h1>Bad</h1> gateway</body>").message == "Bad gateway"
    assert classify(502, {}, b"").message == "HTTP 502"
    assert classify(500, {}, b"\xff\xfe").message


def test_the_parameter_is_found_in_the_text_where_the_body_does_not_name_it() -> None:
    assert classify(400, {}, openai("Unsupported parameter: 'top_p' is not supported")).error["param"] == "top_p"
    assert classify(400, {}, openai("invalid temperature: only 1 is allowed for this model")).error["param"] == "temperature"


def test_text_that_echoes_the_request_is_not_matched() -> None:
    assert kind(422, {"detail": [{"loc": ["body"], "msg": "bad", "input": "rate limit overloaded credit"}]}) == "bad_request"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["error", "1113", 429]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "code", "type", "detail", "details", "metadata", "raw", "base_resp", "response", "loc", "choices"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON, st.sampled_from([None, 200, 400, 403, 429, 500]))
def test_no_body_whatever_breaks_the_reading(body: Any, status: int | None) -> None:
    assert classify(status, {}, dumps(body)).kind in failures.CLASSES
    if isinstance(body, dict):
        verdict = in_stream_error(body)
        assert verdict is None or verdict.kind in failures.CLASSES


@given(st.binary(max_size=60))
def test_no_bytes_whatever_break_the_reading(body: bytes) -> None:
    assert classify(500, {}, body).kind in failures.CLASSES


# --- how long to wait --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"retry-after": "7"}, b"", 7.0),
        ({"Retry-After": "1.5"}, b"", 1.5),
        ({"retry-after": "0"}, b"", 0.0),
        ({"retry-after": "-3"}, b"", None),
        ({"retry-after": "soon"}, b"", None),
        ({"retry-after": "nan"}, b"", None),
        ({"retry-after": "inf"}, b"", None),
        ({"retry-after": ""}, b"", None),
        ({"retry-after": "20s"}, b"", 20.0),
        ({"retry-after-ms": "1200", "retry-after": "9"}, b"", 1.2),
        ({"retry-after-ms": "x", "retry-after": "9"}, b"", 9.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, b"", 0.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:10 GMT", "date": "Wed, 21 Oct 2015 07:28:00 GMT"}, b"", 10.0),
        ({}, {"error": {"message": "m", "details": [{"@type": "x"}, {"@type": "RetryInfo", "retryDelay": "34.4s"}]}}, 34.4),
        ({}, [{"error": {"message": "m", "details": [{"retryDelay": "34s"}]}}], 34.0),
        ({}, openai("Rate limit reached. Please try again in 7.66s. Visit"), 7.66),
        ({}, openai("Please try again in 250ms."), 0.25),
        ({}, openai("Please try again in 1m30s."), 90.0),
        ({}, openai("Try again in 2 minutes"), 120.0),
        ({}, openai("Please retry in 5.5s."), 5.5),
        ({}, openai("Please retry after 20 seconds."), 20.0),
        ({}, openai("Please try again later"), None),
        ({"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-requests": "0"}, b"", 360.0),
        (
            {"x-ratelimit-reset-requests": "8h", "x-ratelimit-remaining-requests": "5", "x-ratelimit-reset-tokens": "6ms", "x-ratelimit-remaining-tokens": "0"},
            b"",
            0.006,
        ),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "20s"}, b"", 1.0),
        ({"x-ratelimit-reset": "junk"}, b"", None),
        ({}, b"", None),
    ],
)
def test_the_wait_is_found_in_all_its_forms(headers: dict[str, str], body: Any, expected: float | None) -> None:
    got = retry_after(headers, body if isinstance(body, bytes) else dumps(body))
    assert got == (None if expected is None else pytest.approx(expected))


def test_a_date_in_the_future_is_counted_from_now() -> None:
    assert retry_after({"retry-after": formatdate(time.time() + 30, usegmt=True)}) == pytest.approx(30, abs=2)


def test_a_reset_may_be_a_moment_in_seconds_or_milliseconds() -> None:
    soon = time.time() + 12
    assert retry_after({"x-ratelimit-reset": str(int(soon))}) == pytest.approx(12, abs=2)
    assert retry_after({"x-ratelimit-reset": str(int(soon * 1000))}) == pytest.approx(12, abs=2)


def test_rate_limit_headers_of_an_ordinary_error_are_no_wait() -> None:
    headers = {"x-ratelimit-reset-requests": "6m0s", "x-ratelimit-remaining-requests": "0"}
    assert classify(400, headers, openai("bad image")).retry_after is None
    assert classify(429, headers, openai("slow")).retry_after == 360


@given(st.text(max_size=12))
def test_no_header_whatever_breaks_the_wait(text: str) -> None:
    for name in ("retry-after", "retry-after-ms", "x-ratelimit-reset-tokens", "date"):
        wait = retry_after({name: text, "retry-after": text})
        assert wait is None or wait >= 0


# --- errors inside a 200 -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overload"),
        ({"error": {"message": "quota exceeded", "type": "rate_limit_error", "code": 429}}, "rate_limit"),
        ({"error": {"code": 502, "message": "bad"}, "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]}, "server"),
        ({"error": {"message": "boom", "type": "server_error"}}, "server"),
        ({"error": "boom"}, "protocol"),
        ({"code": "The service is currently unavailable", "error": "try later"}, "overload"),
        ({"base_resp": {"status_code": 1002, "status_msg": "slow"}, "choices": [{"index": 0, "delta": {"content": "a"}}]}, "rate_limit"),
        ({"base_resp": {"status_code": 1008, "status_msg": "no money"}}, "balance"),
        ({"choices": [{"index": 0, "delta": {}, "finish_reason": "error"}]}, "protocol"),
        ({"choices": [{"index": 0, "delta": {}, "finish_reason": "error", "error": {"code": 429, "message": "m"}}]}, "rate_limit"),
        ({"choices": [{"index": 0, "delta": {}, "finish_reason": "insufficient_system_resource"}]}, "overload"),
        ({"choices": [{"index": 0, "delta": {}, "finish_reason": "network_error"}]}, "server"),
        ({"type": "response.failed", "response": {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "m"}}}, "rate_limit"),
        ({"type": "error", "code": "server_error", "message": "m"}, "server"),
        ({"object": "error", "message": "m", "type": "invalid_request_error", "code": None}, "bad_request"),
        ({"code": 20015, "message": "max_seq_len", "data": None}, "context_overflow"),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "m"}}, "bad_request"),
    ],
)
def test_errors_inside_a_200_are_found(chunk: Body, expected: str) -> None:
    verdict = in_stream_error(chunk)
    assert verdict is not None
    assert verdict.kind == expected


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "content_filter"}]},
        {"choices": [{"index": 0, "delta": {"content": "a"}}], "error": None},
        {"choices": [{"index": 0, "delta": {"content": "a"}}], "base_resp": {"status_code": 0, "status_msg": ""}},
        {"choices": [], "usage": {"total_tokens": 1}},
        {"choices": None},
        {"choices": [None]},
        {},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "error"}},
        {"type": "response.created", "response": {"error": None, "status": "in_progress"}},
        {"type": "response.completed", "response": {"error": None}},
        {"object": "response", "status": "completed", "error": None, "output": []},
        {"id": "x", "type": "message", "role": "assistant", "content": [], "stop_reason": "end_turn"},
        {"model": "llama", "message": {"role": "assistant", "content": "a"}, "done": False},
    ],
)
def test_ordinary_events_are_no_errors(chunk: Body) -> None:
    assert in_stream_error(chunk) is None


def test_a_verdict_becomes_an_error_without_secrets() -> None:
    verdict = classify(401, {"retry-after": "3"}, openai("Incorrect API key provided: KEY_A_SECRET_VALUE_1234", "invalid_api_key"))
    error = verdict.failure(401, lambda text: quote(text, ["KEY_A_SECRET_VALUE_1234"]))
    assert (error.kind, error.upstream_status, error.retry_after) == ("auth", 401, 3.0)
    assert "KEY_A_SECRET" not in error.message
    assert "KEY_A_SECRET" not in str(error.error)
    assert error.error["code"] == "invalid_api_key"


# --- secrets -----------------------------------------------------------------------------------

SECRET = "KEY/A+SECRET=VALUE?1234"


@pytest.mark.parametrize(
    "text",
    [
        f"wrong key {SECRET}!",
        f"wrong key {SECRET.lower()}",
        "https://host/v1?x=KEY%2FA%2BSECRET%3DVALUE%3F1234&y=1",
        "token " + base64.b64encode(SECRET.encode()).decode(),
        "Basic " + base64.b64encode(f"user:{SECRET}".encode()).decode(),
        "x" + base64.b64encode(f"us:{SECRET}:more".encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
    ],
)
def test_a_known_secret_is_masked_in_every_form(text: str) -> None:
    shown = redact(text, [SECRET])
    assert "***" in shown
    for form in (SECRET, SECRET.lower(), "SECRET%3D", base64.b64encode(SECRET.encode()).decode()[4:20]):
        assert form not in shown


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("Incorrect API key provided: sk-proj-abcDEF123456_x.", "abcDEF123456"),
        ("Authorization: Bearer vk-WRONG-9876", "WRONG-9876"),
        ("bearer abcdefghijklmnopqrstuvwxyz", "abcdefghijklmnop"),
        ("key AIzaSyA1234567890abcdefghij", "SyA1234567890"),
        ("GET https://host/v1?alt=sse&key=abcd1234efgh failed", "abcd1234efgh"),
        ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "eyJzdWIiOiIxIn0"),
        ("Incorrect API key provided: KEY_A_SECRET_VALUE_1234", "SECRET_VALUE"),
        ('x-api-key: "abc123def456"', "abc123def456"),
        ("postgresql://user:pass1234@host/db", "pass1234"),
        ("gsk_abcdefgh12345678", "abcdefgh12345678"),
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str, hidden: str) -> None:
    shown = redact(text, [])
    assert hidden not in shown
    assert "***" in shown


@pytest.mark.parametrize(
    "text", ["Incorrect API key provided", "a task-force of risk-averse people", "https://host/v1/models?alt=sse", "token count is 12", "Invalid token"]
)
def test_ordinary_text_stays(text: str) -> None:
    assert redact(text, []) == text


def test_control_characters_come_out_escaped() -> None:
    assert redact("a\nb\x1b[31m\u202e\ud800\x00", []) == "a\\nb\\x1b[31m\\u202e\\ud800\\x00"


def test_a_quote_is_one_line_of_at_most_300_characters_and_cut_after_masking() -> None:
    assert quote("a\n  b", []) == "a b"
    assert len(quote("ä" * 1000, [])) == 300
    text = "x" * 290 + " sk-abcdefghijklmnopqrstuvwxyz"
    assert "sk-abc" not in quote(text, [])


def test_tiny_secrets_do_not_mask_ordinary_words() -> None:
    assert redact("a cat", ["a", ""]) == "a cat"


@given(st.text(max_size=80), st.lists(st.text(min_size=4, max_size=12), max_size=3))
def test_no_secret_survives_and_the_result_can_be_written(text: str, secrets: list[str]) -> None:
    shown = quote(" ".join([text, *secrets, text]), secrets)
    shown.encode()
    assert len(shown) <= 300
    for secret in secrets:
        if "*" not in secret and " ".join(secret.split()) == secret and secret.isprintable():
            assert secret not in shown
