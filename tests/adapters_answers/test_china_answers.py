"""What comes back from Qwen, GLM, Kimi, MiniMax, Doubao, Hunyuan and SiliconFlow, through a real gateway with their adapters."""

from __future__ import annotations

import json
from typing import Any

import pytest
from running import serving, yaml
from upstream_double import Upstream, chunk, completion, delta, finish, role, thought, tool_call, usage

ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "weather in Paris?"}]}
TOOLS = [{"type": "function", "function": {"name": "w", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
CALLED = {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "w", "arguments": "{}"}}]}
HISTORY = [*ASK["messages"], CALLED, {"role": "tool", "tool_call_id": "call_1", "content": "20C"}]


def config(a: Upstream, adapter: str) -> str:
    return yaml({"a": a.url}, a=f"adapter: {adapter}\nretries: 0")


async def plain(a: Upstream, adapter: str, model: str, **more: Any) -> Any:
    async with serving(config(a, adapter)) as running:
        return (await running.chat({**ASK, "model": f"a/{model}", **more})).json()


async def streamed(a: Upstream, adapter: str, model: str, **more: Any) -> list[dict[str, Any]]:
    async with serving(config(a, adapter)) as running:
        events = await running.events({**ASK, "model": f"a/{model}", "stream": True, **more})
    assert events[-1] == "[DONE]"
    return [json.loads(event) for event in events[:-1]]


def deltas(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [choice["delta"] for chunk in chunks for choice in chunk["choices"]]


def finishes(chunks: list[dict[str, Any]]) -> list[str]:
    return [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]


def details(text: str) -> dict[str, Any]:
    return chunk({"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": text}]})


# --- Qwen ------------------------------------------------------------------------------------


async def test_qwen_thinks_in_a_stream_that_becomes_one_answer_with_reasoning_and_usage(a: Upstream) -> None:
    a.stream(role(), thought("in "), thought("Paris"), delta("20"), delta("C"), finish(), usage(7, 5), "[DONE]")
    answer = await plain(a, "qwen", "qwen3-32b", enable_thinking=True)
    sent = a.requests[0].json
    assert (sent["stream"], sent["stream_options"], sent["enable_thinking"]) == (True, {"include_usage": True}, True)
    message = answer["choices"][0]["message"]
    assert (answer["object"], message["content"], message["reasoning_content"]) == ("chat.completion", "20C", "in Paris")
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (7, 5)


async def test_qwen_tool_deltas_with_empty_ids_are_one_call_whose_id_comes_once(a: Upstream) -> None:
    trailing = chunk({"tool_calls": [{"index": 0, "id": "", "type": "function", "function": {"arguments": ""}}]})
    del trailing["choices"][0]["finish_reason"]
    a.stream(
        role(),
        chunk({"tool_calls": [{"index": 0, "id": "call_x", "type": "function", "function": {"name": "w", "arguments": ""}}]}),
        chunk({"tool_calls": [{"index": 0, "id": "", "type": "function", "function": {"arguments": '{"a":1}'}}]}),
        trailing,
        finish("tool_calls"),
        "[DONE]",
    )
    chunks = await streamed(a, "qwen", "qwen-plus", tools=TOOLS)
    calls = [call for piece in deltas(chunks) for call in piece.get("tool_calls", [])]
    assert [call.get("id") for call in calls] == ["call_x", *[None] * (len(calls) - 1)]
    assert ("".join(call["function"].get("arguments", "") for call in calls), calls[0]["function"]["name"]) == ('{"a":1}', "w")
    assert finishes(chunks) == ["tool_calls"]
    assert all("finish_reason" in choice for piece in chunks for choice in piece["choices"])


# --- GLM -------------------------------------------------------------------------------------


async def test_glm_streams_usage_unasked_and_a_client_that_asks_gets_it(a: Upstream) -> None:
    a.stream(role(), thought("hm"), delta("20C"), finish(usage={"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}), "[DONE]", repeat=2)
    chunks = await streamed(a, "glm", "glm-5.2", stream_options={"include_usage": True})
    assert (chunks[-1]["choices"], chunks[-1]["usage"]["total_tokens"]) == ([], 7)
    assert "stream_options" not in a.requests[0].json
    assert all("usage" not in piece for piece in await streamed(a, "glm", "glm-5.2"))


async def test_glm_sensitive_is_content_filter(a: Upstream) -> None:
    a.reply(completion("I", finish="sensitive"))
    assert (await plain(a, "glm", "glm-5.2"))["choices"][0]["finish_reason"] == "content_filter"


@pytest.mark.parametrize(
    "items",
    [[role(), finish("network_error")], [role(), finish(usage={"prompt_tokens": 9, "completion_tokens": 0, "total_tokens": 9})]],
    ids=["error", "empty"],
)
async def test_glm_answers_that_failed_inside_are_no_answers(a: Upstream, items: list[Any]) -> None:
    a.stream(*items, "[DONE]")
    assert (await plain(a, "glm", "glm-5.3"))["error"]["code"] == "providers_exhausted"


# --- Kimi ------------------------------------------------------------------------------------


async def test_kimi_cached_tokens_beside_the_details_are_counted(a: Upstream) -> None:
    a.reply({**completion("20C"), "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12, "cached_tokens": 8}})
    assert (await plain(a, "kimi", "kimi-k2.6"))["usage"]["prompt_tokens_details"] == {"cached_tokens": 8}


async def test_kimi_usage_inside_the_last_choice_is_found(a: Upstream) -> None:
    last = finish()
    last["choices"][0]["usage"] = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    a.stream(role(), delta("20C"), last, "[DONE]")
    chunks = await streamed(a, "kimi", "kimi-k2-0905-preview", stream_options={"include_usage": True})
    assert chunks[-1]["usage"]["total_tokens"] == 12
    assert all("usage" not in choice for piece in chunks for choice in piece["choices"])


# --- MiniMax ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("texts", "thoughts"),
    [(["The user", "The user asks"], ["The user", " asks"]), (["The user", " is asking"], ["The user", " is asking"])],
    ids=["cumulative", "incremental"],
)
async def test_minimax_thoughts_come_once_however_it_counts(a: Upstream, texts: list[str], thoughts: list[str]) -> None:
    a.stream(role(), *(details(text) for text in texts), delta("20C"), finish(), "[DONE]")
    chunks = await streamed(a, "minimax", "MiniMax-M3")
    assert [piece["reasoning_content"] for piece in deltas(chunks) if piece.get("reasoning_content")] == thoughts


async def test_minimax_arguments_as_objects_are_one_text_at_the_end(a: Upstream) -> None:
    def arguments(value: dict[str, Any]) -> dict[str, Any]:
        return chunk({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "w", "arguments": value}}]})

    a.stream(role(), arguments({"city": "Pa"}), arguments({"city": "Paris", "u": 1}), finish("tool_calls"), "[DONE]")
    chunks = await streamed(a, "minimax", "MiniMax-M2.7", tools=TOOLS)
    texts = [call["function"].get("arguments") for piece in deltas(chunks) for call in piece.get("tool_calls", [])]
    assert [text for text in texts if text] == ['{"city":"Paris","u":1}']
    assert finishes(chunks) == ["tool_calls"]


async def test_minimax_a_whole_message_at_the_end_repeats_nothing(a: Upstream) -> None:
    whole = {**completion("20C"), "base_resp": {"status_code": 0, "status_msg": ""}}
    a.stream(role(), delta("20"), delta("C"), finish(), whole, "[DONE]")
    chunks = await streamed(a, "minimax", "MiniMax-M3")
    assert "".join(piece.get("content") or "" for piece in deltas(chunks)) == "20C"
    assert finishes(chunks) == ["stop"]


async def test_minimax_turn_comes_back_as_it_went(a: Upstream) -> None:
    kept = [{"type": "reasoning.text", "id": "r1", "format": "MiniMax-response-v1", "index": 0, "text": "need the city"}]
    a.reply(completion(None, finish="tool_calls", calls=[tool_call("w", "{}")], reasoning_details=kept)).reply(completion("20C"))
    turn = (await plain(a, "minimax", "MiniMax-M3", tools=TOOLS))["choices"][0]["message"]
    assert (turn["reasoning_content"], turn["reasoning_details"]) == ("need the city", kept)
    await plain(a, "minimax", "MiniMax-M3", tools=TOOLS, messages=[*ASK["messages"], turn, HISTORY[-1]])
    sent = a.requests[1].json["messages"][1]
    assert (sent["reasoning_details"], "reasoning_content" in sent) == (kept, False)


# --- Doubao, SiliconFlow ---------------------------------------------------------------------


async def test_doubao_keeps_its_encrypted_thoughts_beside_the_plain_ones(a: Upstream) -> None:
    a.reply(completion("20C", reasoning_content="hm", encrypted_content="gAAA"))
    message = (await plain(a, "doubao", "doubao-seed-2-1-pro-260628"))["choices"][0]["message"]
    assert (message["reasoning_content"], message["encrypted_content"]) == ("hm", "gAAA")


async def test_usage_on_every_chunk_is_told_once(a: Upstream) -> None:
    def counted(piece: dict[str, Any], completion_tokens: int) -> dict[str, Any]:
        return {**piece, "usage": {"prompt_tokens": 5, "completion_tokens": completion_tokens, "total_tokens": 5 + completion_tokens}}

    a.stream(counted(role(), 0), counted(delta("20"), 1), counted(delta("C"), 2), counted(finish(), 2), "[DONE]")
    chunks = await streamed(a, "siliconflow", "deepseek-ai/DeepSeek-V3.2", stream_options={"include_usage": True})
    assert [piece["usage"]["total_tokens"] for piece in chunks if piece.get("usage")] == [7]


# --- refusals --------------------------------------------------------------------------------


def openai_error(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, **more}}


def minimax_error(message: str, code: str = "400") -> dict[str, Any]:
    return {"type": "error", "error": {"type": "bad_request_error", "message": message, "http_code": code}, "request_id": "06"}


def siliconflow_error(code: int, message: str) -> dict[str, Any]:
    return {"code": code, "message": message, "data": None}


REFUSALS: list[tuple[str, int, Any, str]] = [
    ("qwen", 400, openai_error("Access denied, please make sure your account is in good standing.", code="Arrearage"), "balance"),
    ("qwen", 400, openai_error("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]"), "context_overflow"),
    ("qwen", 400, openai_error("Input data may contain inappropriate content.", code="data_inspection_failed"), "content_filter"),
    ("qwen", 429, openai_error("You exceeded your current requests list.", code="limit_requests"), "rate_limit"),
    ("qwen", 401, openai_error("invalid access token or token expired", code="invalid_api_key"), "auth"),
    ("glm", 429, {"error": {"code": "1113", "message": "Your account is in arrears. Please recharge."}}, "balance"),
    ("glm", 429, {"error": {"code": "1302", "message": "High concurrency usage of this API."}}, "rate_limit"),
    ("glm", 400, {"error": {"code": "1261", "message": "Prompt exceeds max length"}}, "context_overflow"),
    ("glm", 400, {"error": {"code": "1301", "message": "The system detected potentially unsafe content."}}, "content_filter"),
    ("glm", 429, {"error": {"code": "1312", "message": "This model is busy."}}, "overload"),
    ("glm", 400, {"error": {"code": "1211", "message": "Model does not exist"}}, "not_found"),
    ("kimi", 429, {"error": {"type": "engine_overloaded_error", "message": "The engine is currently overloaded"}}, "overload"),
    ("kimi", 429, {"error": {"type": "exceeded_current_quota_error", "message": "Your account is not active"}}, "balance"),
    ("kimi", 429, {"error": {"type": "rate_limit_reached_error", "message": "max RPM: 3"}}, "rate_limit"),
    ("kimi", 400, {"error": {"type": "invalid_request_error", "message": "Input token length too long"}}, "context_overflow"),
    ("kimi", 400, {"error": {"type": "content_filter", "message": "The request was rejected because it was considered high risk"}}, "content_filter"),
    ("minimax", 500, minimax_error("insufficient balance (1008)", "500"), "balance"),
    ("minimax", 429, minimax_error("insufficient balance (1008)", "429"), "balance"),
    ("minimax", 400, minimax_error("invalid params, context window exceeds limit (2013)"), "context_overflow"),
    ("minimax", 200, {"base_resp": {"status_code": 1002, "status_msg": "rate limit"}, "choices": None}, "rate_limit"),
    ("minimax", 200, {"base_resp": {"status_code": 1027, "status_msg": "output sensitive"}}, "content_filter"),
    ("doubao", 403, {"error": {"code": "AccountOverdueError", "message": "overdue. Request ID: 02", "param": "", "type": "Forbidden"}}, "balance"),
    ("doubao", 429, {"error": {"code": "SetLimitExceeded", "message": "reached the set inference limit", "type": "TooManyRequests"}}, "balance"),
    ("doubao", 404, {"error": {"code": "ModelNotOpen", "message": "has not activated the model", "type": "NotFound"}}, "not_found"),
    ("doubao", 400, {"error": {"code": "InputTextRiskDetection", "message": "may contain risk", "type": "BadRequest"}}, "content_filter"),
    ("doubao", 429, {"error": {"code": "ServerOverloaded", "message": "retry later", "type": "TooManyRequests"}}, "overload"),
    ("hunyuan", 402, {"error": {"message": "not enabled", "type": "runtime_error", "code": "402"}}, "balance"),
    ("siliconflow", 400, siliconflow_error(20015, "length of prompt_tokens (68957) must be less than max_seq_len (65536)."), "context_overflow"),
    ("siliconflow", 400, siliconflow_error(20012, "Model does not exist. Please check it carefully."), "not_found"),
    ("siliconflow", 403, siliconflow_error(30001, "Sorry, your account balance is insufficient"), "balance"),
    ("siliconflow", 401, b'"Invalid token"', "auth"),
    ("siliconflow", 403, b"", "auth"),
]


@pytest.mark.parametrize(("adapter", "status", "body", "kind"), REFUSALS, ids=[f"{name}-{status}-{kind}" for name, status, _, kind in REFUSALS])
async def test_a_refusal_is_of_its_class_and_is_not_asked_again(a: Upstream, adapter: str, status: int, body: Any, kind: str) -> None:
    a.reply(body, status=status)
    error = (await plain(a, adapter, "some-model"))["error"]
    assert [attempt["class"] for attempt in error["attempts"]] == [kind]
    assert len(a.requests) == 1


REPAIRS: list[tuple[str, str, Any, dict[str, Any], dict[str, Any]]] = [
    (
        "qwen",
        "qwen-new",
        openai_error("parameter.enable_thinking must be set to false for non-streaming calls", code="invalid_parameter_error"),
        {},
        {"enable_thinking": False},
    ),
    (
        "qwen",
        "qwen-new",
        openai_error("The tool_choice parameter does not support being set to required or object in thinking mode"),
        {"tools": TOOLS, "tool_choice": "required"},
        {"tool_choice": "auto"},
    ),
    (
        "qwen",
        "qwen-plus",
        openai_error("Json mode response is not supported when enable_thinking is true"),
        {"enable_thinking": True, "response_format": {"type": "json_object"}},
        {"enable_thinking": False, "response_format": {"type": "json_object"}},
    ),
    ("kimi", "kimi-new", openai_error("invalid thinking: only type=enabled is allowed for this model"), {"disable_thinking": True}, {"thinking": None}),
    ("kimi", "kimi-k2-thinking", openai_error("invalid temperature: only 1 is allowed for this model"), {"temperature": 0.6}, {"temperature": 1}),
    (
        "kimi",
        "kimi-k2-0905-preview",
        openai_error("tool_choice 'required' is incompatible with thinking enabled"),
        {"tools": TOOLS, "tool_choice": "required"},
        {"tool_choice": "auto"},
    ),
    (
        "doubao",
        "ep-20260901",
        openai_error("Unsupported thinking type for the current model", code="InvalidParameter"),
        {"thinking": {"type": "auto"}},
        {"thinking": None},
    ),
    (
        "doubao",
        "ep-20260901",
        openai_error("Invalid combination of reasoning_effort and thinking type: minimal + enabled"),
        {"reasoning_effort": "low"},
        {"thinking": None, "reasoning_effort": "low"},
    ),
    (
        "siliconflow",
        "some/model",
        siliconflow_error(20015, "Value error, current model does not support parameter `enable_thinking`."),
        {"disable_thinking": True},
        {"enable_thinking": None},
    ),
]


@pytest.mark.parametrize(("adapter", "model", "refusal", "asked", "sent"), REPAIRS, ids=[f"{case[0]}-{case[1]}" for case in REPAIRS])
async def test_a_refusal_that_can_be_repaired_is_sent_once_more(
    a: Upstream, adapter: str, model: str, refusal: Any, asked: dict[str, Any], sent: dict[str, Any]
) -> None:
    a.reply(refusal, status=400).stream(role(), delta("20C"), finish(), "[DONE]")
    answer = await plain(a, adapter, model, **asked)
    assert answer["choices"][0]["message"]["content"] == "20C"
    first, second = (request.json for request in a.requests)
    assert {key: second.get(key) for key in sent} == sent
    assert first != second


async def test_kimi_that_takes_no_empty_thought_is_sent_a_space(a: Upstream) -> None:
    a.reply(openai_error("thinking is enabled but reasoning_content is missing in assistant tool call message at index 1"), status=400).reply(completion("20C"))
    await plain(a, "kimi", "kimi-k2.6", messages=HISTORY, tools=TOOLS)
    assert [request.json["messages"][1]["reasoning_content"] for request in a.requests] == ["", " "]


async def test_minimax_result_without_a_call_is_left_out_after_the_refusal(a: Upstream) -> None:
    lost = [*ASK["messages"], {"role": "tool", "tool_call_id": "call_9", "content": "20C"}, {"role": "user", "content": "and now?"}]
    a.reply(minimax_error("invalid params, tool result's tool id(call_9) not found (2013)"), status=400).reply(completion("20C"))
    await plain(a, "minimax", "MiniMax-M2.7", messages=lost)
    assert [message["role"] for message in a.requests[1].json["messages"]] == ["user"]
