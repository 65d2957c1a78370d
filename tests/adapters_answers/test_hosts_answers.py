"""Azure, Mistral, xAI, Groq, Cerebras, Together, Fireworks and OpenRouter behind a real gateway: where it asks, and what comes back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from running import serving, yaml
from upstream_double import Upstream, chunk, completion, delta, finish, role, tool_call

from gateway.adapters.hooks import Context, Hooks
from gateway.adapters.loader import Loader, builtin_folder
from gateway.adapters.settings import Settings, settings
from gateway.config import HookBudget
from gateway.errors import Skipped

ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "weather in Paris?"}]}
TOOLS = [{"type": "function", "function": {"name": "w", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
IDENT = "call_abc-123456"


def history(ident: str = "call_1", **fields: Any) -> list[dict[str, Any]]:
    call = {"id": ident, "type": "function", "function": {"name": "w", "arguments": '{"city":"Paris"}'}}
    turn = {"role": "assistant", "content": None, "tool_calls": [call], **fields}
    return [*ASK["messages"], turn, {"role": "tool", "tool_call_id": ident, "content": "20C"}]


def config(a: Upstream, adapter: str, more: str = "") -> str:
    return yaml({"a": a.url}, a=f"adapter: {adapter}\nretries: 0{more}")


async def plain(a: Upstream, adapter: str, model: str, **more: Any) -> Any:
    async with serving(config(a, adapter)) as running:
        return (await running.chat({**ASK, "model": f"a/{model}", **more})).json()


async def events(a: Upstream, adapter: str, model: str, **more: Any) -> list[str]:
    async with serving(config(a, adapter)) as running:
        return await running.events({**ASK, "model": f"a/{model}", "stream": True, **more})


async def streamed(a: Upstream, adapter: str, model: str, **more: Any) -> list[dict[str, Any]]:
    data = await events(a, adapter, model, **more)
    assert data[-1] == "[DONE]"
    return [json.loads(event) for event in data[:-1]]


def deltas(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [choice["delta"] for piece in chunks for choice in piece["choices"]]


def joined(chunks: list[dict[str, Any]], field: str) -> str:
    return "".join(piece.get(field) or "" for piece in deltas(chunks))


def finishes(chunks: list[dict[str, Any]]) -> list[str]:
    return [choice["finish_reason"] for piece in chunks for choice in piece["choices"] if choice["finish_reason"]]


# --- one chain, two rules ----------------------------------------------------------------------


async def test_an_attempt_at_groq_holds_nothing_of_what_deepseek_was_sent(a: Upstream, b: Upstream) -> None:
    a.reply({"error": {"message": "overloaded"}}, status=503)
    b.reply(completion("20C"))
    async with serving(yaml({"a": a.url, "b": b.url}, a="adapter: deepseek\nretries: 0", b="adapter: groq\nretries: 0")) as running:
        answer = await running.chat({"model": "m", "messages": history(), "tools": TOOLS})
    assert answer.status_code == 200
    assert a.requests[0].json["messages"][1]["reasoning_content"] == ""
    assert b"reasoning" not in b.requests[0].raw


# --- Azure -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "endpoint", "path", "query"),
    [
        ("{}", "chat/completions", "/openai/v1/chat/completions", ""),
        ("{api_version: preview}", "chat/completions", "/openai/v1/chat/completions", "api-version=preview"),
        ("{style: deployments}", "chat/completions", "/openai/deployments/d1/chat/completions", "api-version=2024-10-21"),
        ("{style: deployments, api_version: 2025-04-01-preview}", "embeddings", "/openai/deployments/d1/embeddings", "api-version=2025-04-01-preview"),
        ("{style: deployments, speaks: [responses]}", "responses", "/openai/responses", "api-version=2024-10-21"),
        ("{style: plain}", "chat/completions", "/chat/completions", ""),
        ("{}", "embeddings", "/openai/v1/embeddings", ""),
    ],
)
async def test_azure_is_asked_at_the_address_of_its_style(a: Upstream, options: str, endpoint: str, path: str, query: str) -> None:
    a.reply({"object": "list", "data": [], "usage": {}} if endpoint == "embeddings" else {"id": "resp_1", "output": []} if endpoint == "responses" else None)
    async with serving(config(a, "azure", f"\noptions: {options}")) as running:
        await running.client.post(f"/v1/{endpoint}", json={"model": "a/d1", "input": "x", **ASK})
    seen = a.requests[0]
    assert (seen.path, seen.query) == (path, query)
    assert seen.headers["api-key"] == "key-of-a-0123456789"
    assert "authorization" not in seen.headers
    assert seen.json["model"] == "d1"


def at(url: str, options: Settings) -> Context:
    """A hook's ctx behind a base URL."""
    ctx = Context(model="d1", options=options)
    ctx.url = url
    return ctx


@pytest.mark.parametrize(
    ("url", "style", "whole"),
    [
        ("https://r.openai.azure.com", "v1", "https://r.openai.azure.com/openai/v1/chat/completions"),
        ("https://r.openai.azure.com/openai", "v1", "https://r.openai.azure.com/openai/v1/chat/completions"),
        ("https://r.openai.azure.com/openai/v1/", "v1", "https://r.openai.azure.com/openai/v1/chat/completions"),
        ("https://r.services.ai.azure.com", "deployments", "https://r.services.ai.azure.com/openai/deployments/d1/chat/completions"),
        ("https://r.openai.azure.com/openai/", "deployments", "https://r.openai.azure.com/openai/deployments/d1/chat/completions"),
        ("https://r.openai.azure.com/openai/deployments/d2", "deployments", "https://r.openai.azure.com/openai/deployments/d2/chat/completions"),
        ("https://gateway.example/llm", "plain", "https://gateway.example/llm/chat/completions"),
    ],
)
def test_azure_takes_any_of_the_addresses_that_the_portal_shows(url: str, style: str, whole: str) -> None:
    hooks = Hooks(Loader([builtin_folder()], HookBudget()).get("azure"))
    built = hooks.build_request({}, at(url, settings(hooks.adapter, "d1", {"style": style}, url)))
    assert built is not None
    assert url.rstrip("/") + built["path"] == whole


def test_azure_without_an_address_is_left_out() -> None:
    hooks = Hooks(Loader([builtin_folder()], HookBudget()).get("azure"))
    options = settings(hooks.adapter, "d1", {})
    with pytest.raises(Skipped, match="neither base_url nor"):
        hooks.build_request({}, at(str(options.base_url), options))
    assert settings(hooks.adapter, "d1", {"resource": "mine"}).base_url == "https://mine.openai.azure.com"


async def test_azure_with_an_unknown_style_is_left_out_and_says_why(a: Upstream) -> None:
    async with serving(config(a, "azure", "\noptions: {style: v2}")) as running:
        answer = (await running.chat({**ASK, "model": "a/d1"})).json()
    assert "options.style is 'v2'" in answer["error"]["attempts"][0]["skipped"]
    assert a.requests == []


async def test_azure_chunks_of_its_filters_never_reach_the_client(a: Upstream) -> None:
    first = {"choices": [], "created": 0, "id": "", "model": "", "object": "", "prompt_filter_results": [{"prompt_index": 0, "content_filter_results": {}}]}
    late = {
        "choices": [{"index": 0, "content_filter_offsets": {"check_offset": 5}, "content_filter_results": {}, "finish_reason": None}],
        "id": "",
        "model": "",
    }
    a.stream(first, role(), delta("20C"), finish(), {**late, "object": "", "created": 0}, "[DONE]")
    chunks = await streamed(a, "azure", "d1")
    assert {(piece["id"], piece["model"], piece["object"]) for piece in chunks} == {("chatcmpl-double", "m", "chat.completion.chunk")}
    assert (joined(chunks, "content"), finishes(chunks)) == ("20C", ["stop"])
    assert finishes(chunks[-1:]) == ["stop"]


async def test_azure_chunks_of_deepseek_are_ordinary_ones(a: Upstream) -> None:
    def piece(finish_reason: str | None = None, **fields: Any) -> dict[str, Any]:
        made = chunk({"role": None, "content": None, "reasoning_content": None, "tool_calls": None, **fields}, finish_reason)
        made["choices"][0]["matched_stop"] = None
        return made

    last = {
        **chunk({}),
        "choices": [],
        "usage": {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8, "prompt_tokens_details": None, "reasoning_tokens": 0},
    }
    a.stream(piece(role="assistant", content=""), piece(reasoning_content="hm"), piece(content="20C"), piece("stop"), last, "[DONE]")
    chunks = await streamed(a, "azure", "DeepSeek-V4-Pro", stream_options={"include_usage": True})
    assert (joined(chunks, "reasoning_content"), joined(chunks, "content"), finishes(chunks)) == ("hm", "20C", ["stop"])
    assert not any("tool_calls" in piece or piece.get("role", "assistant") != "assistant" for piece in deltas(chunks))
    assert chunks[-1]["usage"]["total_tokens"] == 8


# --- Mistral -----------------------------------------------------------------------------------


async def test_mistral_ids_of_the_request_come_back_as_the_clients(a: Upstream) -> None:
    def short() -> str:
        return str(a.requests[-1].json["messages"][1]["tool_calls"][0]["id"])

    a.call(
        lambda seen: completion(None, calls=[tool_call("w", "{}", id=seen.json["messages"][1]["tool_calls"][0]["id"]), tool_call("w", "{}", id="gSIMJiOkT")])
    )
    answer = await plain(a, "mistral", "mistral-large-latest", messages=history(IDENT), tools=TOOLS)
    assert len(short()) == 9
    assert [call["id"] for call in answer["choices"][0]["message"]["tool_calls"]] == [IDENT, "gSIMJiOkT"]


async def test_mistral_ids_of_the_request_come_back_as_the_clients_in_streams_too(a: Upstream) -> None:
    a.reply(completion("x"))
    await plain(a, "mistral", "mistral-large-latest", messages=history(IDENT), tools=TOOLS)
    short = a.requests[0].json["messages"][2]["tool_call_id"]
    a.clear()
    a.stream(role(), chunk({"tool_calls": [tool_call("w", "{}", id=short)]}, "tool_calls"), "[DONE]")
    chunks = await streamed(a, "mistral", "mistral-large-latest", messages=history(IDENT), tools=TOOLS)
    assert a.requests[0].json["messages"][2]["tool_call_id"] == short
    assert [call["id"] for piece in deltas(chunks) for call in piece.get("tool_calls", []) if "id" in call] == [IDENT]


async def test_mistral_whole_calls_without_index_and_type_are_two_calls_and_the_finish_follows(a: Upstream) -> None:
    calls = [{"id": "gSIMJiOkT", "function": {"name": "a", "arguments": "{}"}}, {"id": "zzzzzzzz1", "function": {"name": "b", "arguments": "{}"}}]
    a.stream(role(), chunk({"tool_calls": calls}, "tool_calls"), "[DONE]")
    chunks = await streamed(a, "mistral", "mistral-large-latest", tools=TOOLS)
    got = [call for piece in deltas(chunks) for call in piece.get("tool_calls", [])]
    assert [(call["index"], call["type"], call["id"], call["function"]["name"]) for call in got] == [
        (0, "function", "gSIMJiOkT", "a"),
        (1, "function", "zzzzzzzz1", "b"),
    ]
    assert [bool(finishes([piece])) for piece in chunks] == [False] * (len(chunks) - 1) + [True]


async def test_mistral_hosted_glm_sends_an_empty_name_with_each_piece_and_the_client_gets_it_once(a: Upstream) -> None:
    pieces = [tool_call("w", '{"ci', id="gSIMJiOkT"), tool_call("", 'ty":"Paris"}', id="gSIMJiOkT")]
    a.stream(role(), *(chunk({"tool_calls": [piece], "index": 0}) for piece in pieces), finish("tool_calls"), "[DONE]")
    chunks = await streamed(a, "mistral", "glm-5.3", tools=TOOLS)
    functions = [call["function"] for piece in deltas(chunks) for call in piece.get("tool_calls", [])]
    assert [function["name"] for function in functions if "name" in function] == ["w"]
    assert "".join(function.get("arguments", "") for function in functions) == '{"city":"Paris"}'


THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}


async def test_mistral_thoughts_in_the_content_are_reasoning(a: Upstream) -> None:
    a.reply(
        completion("x")
        | {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": [THINKING, {"type": "text", "text": "20C"}]}}]}
    )
    a.stream(role(), chunk({"content": [THINKING]}), chunk({"content": [{"type": "text", "text": "20"}]}), delta("C"), finish("model_length"), "[DONE]")
    message = (await plain(a, "mistral", "magistral-medium-latest"))["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("hm", "20C")
    chunks = await streamed(a, "mistral", "magistral-medium-latest")
    assert (joined(chunks, "reasoning_content"), joined(chunks, "content"), finishes(chunks)) == ("hm", "20C", ["length"])


async def test_mistral_thoughts_that_the_client_lost_go_back_as_parts(a: Upstream) -> None:
    body = completion(None, calls=[tool_call("w", "{}", id="gSIMJiOkT")])
    body["choices"][0]["message"]["content"] = [THINKING]
    a.reply(body).reply(completion("20C"))
    async with serving(config(a, "mistral")) as running:
        ask = {"model": "a/mistral-small-2603", "tools": TOOLS}
        message = (await running.chat({**ask, **ASK})).json()["choices"][0]["message"]
        assert message["reasoning_content"] == "hm"
        await running.chat({**ask, "messages": history("gSIMJiOkT")})
    turn = a.requests[1].json["messages"][1]
    assert turn["content"] == [{**THINKING, "closed": True}]
    assert "reasoning_content" not in turn


# --- xAI, Groq, Cerebras, Together -------------------------------------------------------------

EXCLUDED = {"prompt_tokens": 12, "completion_tokens": 1, "total_tokens": 303, "completion_tokens_details": {"reasoning_tokens": 290}}


async def test_xai_tokens_of_reasoning_are_completion_tokens(a: Upstream) -> None:
    a.reply({**completion("20C"), "usage": EXCLUDED})
    a.stream(role(), delta("20C"), finish(), {**chunk({}), "choices": [], "usage": EXCLUDED}, "[DONE]")
    usage = (await plain(a, "xai", "grok-4.5"))["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (12, 291, 303)
    chunks = await streamed(a, "xai", "grok-4.5", stream_options={"include_usage": True})
    assert chunks[-1]["usage"]["completion_tokens"] == 291


async def test_xai_usage_is_right_where_the_total_is_not(a: Upstream) -> None:
    a.reply({**completion("20C"), "usage": {**EXCLUDED, "total_tokens": 13}})
    usage = (await plain(a, "xai", "grok-4.5"))["usage"]
    assert (usage["completion_tokens"], usage["total_tokens"]) == (291, 303)


@pytest.mark.parametrize("status", [200, 503])
async def test_xai_error_in_a_plain_answer_moves_on(a: Upstream, b: Upstream, status: int) -> None:
    a.reply({"code": "The service is currently unavailable", "error": "Service temporarily unavailable. The model is at capacity."}, status=status)
    b.reply(completion("20C"))
    async with serving(yaml({"a": a.url, "b": b.url}, a="adapter: xai\nretries: 0")) as running:
        answer = await running.chat({**ASK, "model": "m"})
    assert answer.json()["choices"][0]["message"]["content"] == "20C"
    assert answer.headers["x-thinkgate-provider"] == "b"
    assert answer.headers["x-thinkgate-chain"] == ("a=overload,b=200" if status == 200 else "a=503,b=200")


async def test_xai_bare_error_in_a_stream_ends_it_with_an_error(a: Upstream) -> None:
    a.stream(role(), delta("20"), 0.1, {"code": "The service is currently unavailable", "error": "at capacity"})
    data = await events(a, "xai", "grok-4.5")
    assert "at capacity" in json.loads(data[-1])["error"]["message"]


@pytest.mark.parametrize(
    ("adapter", "model"), [("xai", "grok-4.5"), ("groq", "openai/gpt-oss-120b"), ("cerebras", "gpt-oss-120b"), ("together", "zai-org/GLM-5.1")]
)
async def test_reasoning_under_another_name_and_finishes_left_out_are_healed(a: Upstream, adapter: str, model: str) -> None:
    def without_finish(piece: dict[str, Any]) -> dict[str, Any]:
        del piece["choices"][0]["finish_reason"]
        return piece

    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8, "queue_time": 0.1}
    call = without_finish(chunk({"tool_calls": [tool_call("w", '{"city":"Paris"}')]}))
    a.stream(
        without_finish(role()),
        without_finish(chunk({"reasoning": "hm"})),
        call,
        finish("tool_calls", usage=usage, x_groq={"id": "r", "usage": usage}),
        "[DONE]",
    )
    chunks = await streamed(a, adapter, model, tools=TOOLS, stream_options={"include_usage": True})
    assert (joined(chunks, "reasoning_content"), finishes(chunks)) == ("hm", ["tool_calls"])
    assert all("finish_reason" in choice for piece in chunks for choice in piece["choices"])
    assert (chunks[-1]["choices"], chunks[-1]["usage"]["total_tokens"]) == ([], 8)


async def test_cerebras_glm_gets_back_between_tags_what_the_client_lost(a: Upstream) -> None:
    a.reply(completion(None, calls=[tool_call("w", "{}")], reasoning="hm")).reply(completion("20C"))
    async with serving(config(a, "cerebras")) as running:
        ask = {"model": "a/zai-glm-4.7", "tools": TOOLS}
        assert (await running.chat({**ask, **ASK})).json()["choices"][0]["message"]["reasoning_content"] == "hm"
        await running.chat({**ask, "messages": history()})
    assert a.requests[1].json["messages"][1]["content"] == "<think>hm</think>"
    assert b"reasoning" not in a.requests[1].raw


# --- OpenRouter --------------------------------------------------------------------------------

ENTRY = {"type": "reasoning.text", "text": "hm", "format": "anthropic-claude-v1", "index": 0}


async def test_openrouter_error_after_content_is_an_error_and_nobody_else_is_asked(a: Upstream, b: Upstream) -> None:
    broken = chunk({"content": ""}, "error")
    broken["error"] = {"code": 502, "message": "Provider disconnected", "metadata": {"provider_name": "x"}}
    a.stream(role(), delta("20"), delta("C"), 0.1, broken)
    async with serving(yaml({"a": a.url, "b": b.url}, a="adapter: openrouter\nretries: 0")) as running:
        data = await running.events({**ASK, "model": "m", "stream": True})
    *chunks, last = map(json.loads, data)
    assert joined(chunks, "content") == "20C"
    assert "Provider disconnected" in last["error"]["message"]
    assert b.requests == []


async def test_openrouter_error_before_content_moves_on(a: Upstream, b: Upstream) -> None:
    broken = chunk({"content": ""}, "error")
    broken["error"] = {"code": 502, "message": "Provider returned error", "metadata": {"raw": '{"error":{"message":"no capacity"}}', "provider_name": "x"}}
    a.stream(": OPENROUTER PROCESSING", broken)
    b.stream(role(), delta("20C"), finish(), "[DONE]")
    async with serving(yaml({"a": a.url, "b": b.url}, a="adapter: openrouter\nretries: 0")) as running:
        data = await running.events({**ASK, "model": "m", "stream": True})
    assert joined([json.loads(event) for event in data[:-1]], "content") == "20C"
    assert data[-1] == "[DONE]"


FRAMED = (
    b"\xef\xbb\xbf: keep-alive\r\n\r\n"
    b'data:{"choices":[{"index":0,"delta":{"content":"\xc3\xa9"}}]}\r\n\r\n'
    b": OPENROUTER PROCESSING\r\n\r\n"
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
)


async def test_openrouter_comments_and_odd_framing_cut_anywhere_are_the_same_answer(a: Upstream) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    seen = set()
    async with serving(config(a, "openrouter")) as running:
        for cut in range(0, len(FRAMED), 7):
            a.clear()
            a.wire(head + FRAMED[:cut], 0.001, FRAMED[cut:])
            data = await running.events({**ASK, "model": "a/openrouter/auto", "stream": True})
            assert data[-1] == "[DONE]"
            seen.add(tuple((choice["delta"].get("content"), choice["finish_reason"]) for event in data[:-1] for choice in json.loads(event)["choices"]))
    assert seen == {(("é", None), (None, "stop"))}


async def test_openrouter_entries_come_with_the_reasoning_and_go_back_once_when_they_were_lost(a: Upstream) -> None:
    signed = {**ENTRY, "text": None, "signature": "s1"}
    pieces: list[dict[str, Any]] = [
        {"reasoning": "hm", "reasoning_details": [ENTRY]},
        {"content": "on it"},
        {"reasoning_details": [signed]},
        {"tool_calls": [tool_call("w", "{}")]},
    ]
    a.stream(role(), *map(chunk, pieces), finish("tool_calls"), "[DONE]").reply(completion("20C"))
    async with serving(config(a, "openrouter")) as running:
        ask = {"model": "a/anthropic/claude-opus-5.5", "tools": TOOLS}
        data = await running.events({**ask, **ASK, "stream": True})
        chunks = [json.loads(event) for event in data[:-1]]
        assert joined(chunks, "reasoning_content") == "hm"
        assert [entry for piece in deltas(chunks) for entry in piece.get("reasoning_details", [])] == [ENTRY, signed]
        await running.chat({**ask, "messages": history()})
    turn = a.requests[1].json["messages"][1]
    assert turn["reasoning_details"] == [{**ENTRY, "signature": "s1"}]
    assert "reasoning" not in turn
    assert "reasoning_content" not in turn


async def test_openrouter_calls_under_an_unknown_finish_are_calls(a: Upstream) -> None:
    a.reply({**completion(None, calls=[tool_call("w", "{}")]), "provider": "x"})
    a.stream(role(), chunk({"tool_calls": [tool_call("w", "{}")]}), finish("unknown"), "[DONE]")
    assert (await plain(a, "openrouter", "x/y", tools=TOOLS))["choices"][0]["finish_reason"] == "tool_calls"
    assert finishes(await streamed(a, "openrouter", "x/y", tools=TOOLS)) == ["tool_calls"]


# --- refusals ----------------------------------------------------------------------------------


def error(message: str, code: Any = None, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code, **more}}


FILTERED = error("The response was filtered", "content_filter", innererror={"code": "ResponsibleAIPolicyViolation", "content_filter_result": {}})
REFUSALS: list[tuple[str, int, Any, str]] = [
    ("azure", 400, FILTERED, "content_filter"),
    ("azure", 404, error("The API deployment for this resource does not exist.", "DeploymentNotFound"), "not_found"),
    ("azure", 400, error("The chatCompletion operation does not work with the specified model, d1.", "OperationNotSupported"), "not_found"),
    ("azure", 429, error("Requests have exceeded the call rate limit.", "429"), "rate_limit"),
    (
        "mistral",
        429,
        {"object": "error", "message": "Service tier capacity exceeded for this model.", "type": "service_tier_capacity_exceeded", "code": "3505"},
        "overload",
    ),
    ("mistral", 422, {"detail": [{"type": "missing", "loc": ["body", "messages"], "msg": "Field required"}]}, "bad_request"),
    ("mistral", 401, {"detail": "Unauthorized"}, "auth"),
    ("xai", 403, {"code": "The caller does not have permission", "error": "Content violates usage guidelines. Team: x, Model: y"}, "content_filter"),
    ("xai", 400, {"code": "Client specified an invalid argument", "error": "Incorrect API key provided: xa***"}, "auth"),
    ("xai", 429, {"code": "Some resource has been exhausted", "error": "Your team has used all available credits"}, "balance"),
    ("groq", 400, error("Failed to call a function.", "tool_use_failed", failed_generation="<function=w"), "server"),
    ("groq", 413, error("Request too large for model on tokens per minute (TPM)", "rate_limit_exceeded"), "rate_limit"),
    ("groq", 498, error("Flex tier capacity exceeded", "capacity_exceeded"), "overload"),
    ("cerebras", 429, {"message": "Requests per minute limit exceeded", "type": "too_many_requests_error", "code": "request_quota_exceeded"}, "rate_limit"),
    ("together", 403, error("input token count plus max_tokens must be below 32769, got token count 40000"), "context_overflow"),
    ("together", 402, error("You have reached your spending limit"), "balance"),
    ("together", 503, error("The engine is currently overloaded"), "overload"),
    ("fireworks", 412, error("Account is over its limit"), "balance"),
    ("fireworks", 402, error("payment required"), "balance"),
    ("openrouter", 402, error("Insufficient credits", 402), "balance"),
    ("openrouter", 402, error("This would exceed openrouter_in_flight_budget", 402), "rate_limit"),
    ("openrouter", 403, error("Your input was flagged", 403, metadata={"reasons": ["violence"], "provider_name": "x", "flagged_input": "moderation"}), "auth"),
    ("openrouter", 403, error("Input requires moderation and was flagged", 403), "content_filter"),
    ("openrouter", 502, error("Provider returned error", 502, metadata={"raw": '{"error":{"message":"prompt is too long: 9 tokens"}}'}), "context_overflow"),
]


@pytest.mark.parametrize(("adapter", "status", "body", "kind"), REFUSALS, ids=[f"{name}-{status}-{kind}" for name, status, _, kind in REFUSALS])
async def test_a_refusal_is_of_its_class_and_is_not_asked_again(a: Upstream, adapter: str, status: int, body: Any, kind: str) -> None:
    a.reply(body, status=status)
    answer = await plain(a, adapter, "some-model")
    assert [attempt["class"] for attempt in answer["error"]["attempts"]] == [kind]
    assert len(a.requests) == 1


async def test_openrouter_402_that_names_a_wait_is_no_empty_account(a: Upstream) -> None:
    a.reply(error("In-flight budget used up", 402), status=402, headers={"Retry-After": "7"})
    answer = await plain(a, "openrouter", "some-model")
    assert answer["error"]["attempts"][0]["class"] == "rate_limit"
    assert answer["error"]["attempts"][0]["retry_after"] == 7


LAST = {"object": "error", "message": "Expected last role User or Tool (or Assistant with prefix True) for serving but got assistant", "code": "3230"}
ORDER = {"object": "error", "message": "Unexpected role 'user' after role 'tool'", "type": "invalid_request_message_order", "code": "3230"}
PREFILL = [*ASK["messages"], {"role": "assistant", "content": "It is"}]
REPAIRS: list[tuple[str, str, int, Any, dict[str, Any], dict[str, Any]]] = [
    ("mistral", "m", 400, LAST, {"messages": PREFILL}, {"messages": [*ASK["messages"], {"role": "assistant", "content": "It is", "prefix": True}]}),
    (
        "mistral",
        "m",
        422,
        {"detail": [{"type": "extra_forbidden", "loc": ["body", "min_p"], "msg": "Extra inputs are not permitted"}]},
        {"min_p": 0.1},
        {"min_p": None},
    ),
    ("xai", "grok-5", 400, error("This model does not support 'reasoning_effort' value 'high'"), {"reasoning_effort": "high"}, {"reasoning_effort": None}),
    ("openrouter", "x/y", 400, error("Reasoning is mandatory for this endpoint and cannot be disabled."), {"disable_thinking": True}, {"reasoning": None}),
]


@pytest.mark.parametrize(("adapter", "model", "status", "refusal", "asked", "sent"), REPAIRS, ids=[f"{case[0]}-{case[2]}" for case in REPAIRS])
async def test_a_refusal_that_can_be_repaired_is_sent_once_more(
    a: Upstream, adapter: str, model: str, status: int, refusal: Any, asked: dict[str, Any], sent: dict[str, Any]
) -> None:
    a.reply(refusal, status=status).reply(completion("20C"))
    answer = await plain(a, adapter, model, **asked)
    assert answer["choices"][0]["message"]["content"] == "20C"
    first, second = (request.json for request in a.requests)
    assert {key: second.get(key) for key in sent} == sent
    assert first != second


async def test_cerebras_that_still_sees_reasoning_is_asked_once_more_without(a: Upstream) -> None:
    refusal = {
        "message": "messages.1.assistant.reasoning_content: property 'messages.1.assistant.reasoning_content' is unsupported",
        "code": "wrong_api_format",
    }
    a.reply(refusal, status=400).reply(completion("20C"))
    async with serving(config(a, "cerebras", "\noptions: {reasoning_echo: all, reasoning_field: reasoning_content}")) as running:
        answer = await running.chat({"model": "a/llama3.1-8b", "messages": history(reasoning_content="hm"), "tools": TOOLS})
    assert answer.status_code == 200
    assert [b"reasoning_content" in request.raw for request in a.requests] == [True, False]
