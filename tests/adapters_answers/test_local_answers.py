"""Ollama, vLLM, SGLang, llama.cpp and LM Studio behind a real gateway: what comes back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from running import serving, yaml
from upstream_double import Upstream, chunk, completion, delta, finish, role, tool_call, usage

ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "weather in Paris?"}]}
TOOLS = [{"type": "function", "function": {"name": "w", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
SERVERS = ("ollama", "vllm", "sglang", "llamacpp", "lmstudio")


def config(a: Upstream, adapter: str, more: str = "") -> str:
    return yaml({"a": a.url}, a=f"adapter: {adapter}\nretries: 0{more}")


async def plain(a: Upstream, adapter: str, options: str = "{}", model: str = "m", **more: Any) -> Any:
    async with serving(config(a, adapter, f"\noptions: {options}")) as running:
        return (await running.chat({**ASK, "model": f"a/{model}", **more})).json()


async def streamed(a: Upstream, adapter: str, options: str = "{}", **more: Any) -> list[dict[str, Any]]:
    async with serving(config(a, adapter, f"\noptions: {options}")) as running:
        data = await running.events({**ASK, "model": "a/m", "stream": True, **more})
    assert data[-1] == "[DONE]"
    return [json.loads(event) for event in data[:-1]]


def deltas(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [choice["delta"] for piece in chunks for choice in piece["choices"]]


def joined(chunks: list[dict[str, Any]], field: str) -> str:
    return "".join(piece.get(field) or "" for piece in deltas(chunks))


def finishes(chunks: list[dict[str, Any]]) -> list[str]:
    return [choice["finish_reason"] for piece in chunks for choice in piece["choices"] if choice["finish_reason"]]


@pytest.mark.parametrize("adapter", SERVERS)
@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
async def test_reasoning_under_either_name_reaches_the_client_as_one(a: Upstream, adapter: str, field: str) -> None:
    said: dict[str, Any] = {field: "hm"}
    a.reply(completion("20C", **said))
    a.stream(role(), chunk({field: "h"}), chunk({field: "m"}), delta("20C"), finish(), usage(), "[DONE]")
    assert (await plain(a, adapter))["choices"][0]["message"]["reasoning_content"] == "hm"
    chunks = await streamed(a, adapter)
    assert (joined(chunks, "reasoning_content"), joined(chunks, "content")) == ("hm", "20C")


@pytest.mark.parametrize("adapter", SERVERS)
async def test_reasoning_that_the_client_lost_goes_back_in_the_servers_field(a: Upstream, adapter: str) -> None:
    call = {key: value for key, value in tool_call("w", "{}").items() if key != "index"}
    history = [*ASK["messages"], {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "call_1", "content": "20C"}]
    a.reply(completion(None, calls=[tool_call("w", "{}")], reasoning="hm")).reply(completion("20C"))
    async with serving(config(a, adapter)) as running:
        await running.chat({**ASK, "model": "a/m", "tools": TOOLS})
        await running.chat({"messages": history, "model": "a/m", "tools": TOOLS})
    turn = a.requests[1].json["messages"][1]
    field = "reasoning" if adapter in ("ollama", "vllm") else "reasoning_content"
    assert {key: value for key, value in turn.items() if "reasoning" in key} == {field: "hm"}
    assert turn["content"] == ("" if adapter in ("ollama", "lmstudio") else None)


# --- thoughts that no parser took out -----------------------------------------------------------


@pytest.mark.parametrize("adapter", ["vllm", "sglang", "llamacpp", "lmstudio"])
@pytest.mark.parametrize(
    ("mode", "pieces", "thoughts", "text"),
    [
        ("on", ["<th", "ink>a <", "b</thin", "k>\nans"], "a <b", "\nans"),
        ("start_inside", ["x</think>y"], "x", "y"),
        ("on", ["<thi"], "", "<thi"),
    ],
)
async def test_tags_in_the_text_become_reasoning_where_it_is_asked_for(
    a: Upstream, adapter: str, mode: str, pieces: list[str], thoughts: str, text: str
) -> None:
    a.stream(role(), *map(delta, pieces), finish(), "[DONE]").reply(completion("".join(pieces)))
    options = f'{{think_tags: "{mode}"}}'
    chunks = await streamed(a, adapter, options)
    assert (joined(chunks, "reasoning_content"), joined(chunks, "content")) == (thoughts, text)
    message = (await plain(a, adapter, options))["choices"][0]["message"]
    assert (message.get("reasoning_content") or "", message["content"]) == (thoughts, text)


async def test_tags_stay_in_the_text_where_nobody_asked(a: Upstream) -> None:
    a.reply(completion("write <think> and </think>"))
    assert (await plain(a, "vllm"))["choices"][0]["message"]["content"] == "write <think> and </think>"


# --- Ollama -------------------------------------------------------------------------------------


async def test_ollama_answer_that_is_over_before_it_began_is_a_context_that_is_full(a: Upstream) -> None:
    a.reply(completion("", finish="length"))
    a.stream(role(), finish("length"), usage(4096, 0), "[DONE]")
    first = await plain(a, "ollama")
    async with serving(config(a, "ollama")) as running:
        second = (await running.chat({**ASK, "model": "a/m", "stream": True})).json()
    for answer in (first, second):
        assert [attempt["class"] for attempt in answer["error"]["attempts"]] == ["context_overflow"]
        assert "num_ctx" in answer["error"]["message"]


@pytest.mark.parametrize("said", [{"content": "20"}, {"reasoning": "hm"}, {"tool_calls": [tool_call("w", "{}")]}], ids=["text", "reasoning", "call"])
async def test_ollama_answer_that_was_cut_at_its_limit_is_an_answer(a: Upstream, said: dict[str, Any]) -> None:
    a.stream(role(), chunk(said), finish("length"), "[DONE]")
    assert finishes(await streamed(a, "ollama", tools=TOOLS)) == ["length"]


async def test_ollama_calls_come_whole_and_end_with_tool_calls_whatever_it_says(a: Upstream) -> None:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "w", "arguments": {"city": "Paris"}}}
    a.stream(chunk({"role": "assistant", "content": "", "tool_calls": [call]}), finish("stop"), usage(), "[DONE]")
    chunks = await streamed(a, "ollama", tools=TOOLS)
    calls = [call for piece in deltas(chunks) for call in piece.get("tool_calls", [])]
    assert "".join(call["function"].get("arguments", "") for call in calls) == '{"city":"Paris"}'
    assert finishes(chunks) == ["tool_calls"]


# --- counts and refusals ------------------------------------------------------------------------


async def test_llamacpp_tokens_from_its_cache_are_counted(a: Upstream) -> None:
    counts = {"prompt_tokens": 30, "completion_tokens": 2, "total_tokens": 32}
    a.reply({**completion("20C"), "usage": counts, "timings": {"cache_n": 20, "prompt_n": 10, "predicted_n": 2}})
    assert (await plain(a, "llamacpp"))["usage"]["prompt_tokens_details"] == {"cached_tokens": 20}


async def test_vllm_counts_in_every_chunk_reach_the_client_once(a: Upstream) -> None:
    running = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
    a.stream(role(usage=running), delta("20C", usage=running), finish(usage=running), usage(), "[DONE]")
    chunks = await streamed(a, "vllm", stream_options={"include_usage": True})
    assert [piece["usage"]["total_tokens"] for piece in chunks if piece.get("usage")] == [8]


async def test_sglang_fields_of_its_own_and_nulls_in_deltas_are_no_trouble(a: Upstream) -> None:
    last = finish()
    last["choices"][0]["matched_stop"] = 151645
    a.stream(role(), chunk({"role": None, "content": "20C", "reasoning_content": None, "tool_calls": None}), last, "[DONE]")
    chunks = await streamed(a, "sglang")
    assert (joined(chunks, "content"), finishes(chunks)) == ("20C", ["stop"])
    assert all(piece.get("tool_calls", []) is not None for piece in deltas(chunks))


def flat(message: str, code: int = 400) -> dict[str, Any]:
    return {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": code}


def error(message: str, code: Any = None, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


PARSER = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
REFUSALS: list[tuple[str, int, Any, str]] = [
    ("vllm", 400, flat("This model's maximum context length is 4096 tokens. However, you requested 5000"), "context_overflow"),
    ("vllm", 400, error(PARSER, 400), "param"),
    ("vllm", 404, error("The model `m` does not exist.", 404, "NotFoundError"), "not_found"),
    ("sglang", 400, flat("The input (9 tokens) is longer than the model's maximum context length"), "context_overflow"),
    ("llamacpp", 400, error("the request exceeds the available context size. try increasing it", 400, "exceed_context_size_error"), "context_overflow"),
    ("llamacpp", 503, error("Loading model", 503, "unavailable_error"), "overload"),
    ("lmstudio", 400, {"error": "Trying to keep the first 5000 tokens when context the overflows. maximum context length is 4096"}, "context_overflow"),
    ("ollama", 404, error('model "m" not found, try pulling it first', None, "not_found_error"), "not_found"),
    ("ollama", 400, error('"m" does not support tools'), "param"),
    ("ollama", 400, error("image URLs are not currently supported, please use base64 encoded data instead"), "param"),
    ("ollama", 500, error("model runner has unexpectedly stopped", None, "api_error"), "server"),
]


@pytest.mark.parametrize(
    ("adapter", "status", "body", "kind"), REFUSALS, ids=[f"{name}-{status}-{kind}-{at}" for at, (name, status, _, kind) in enumerate(REFUSALS)]
)
async def test_a_refusal_is_of_its_class_and_is_not_asked_again(a: Upstream, adapter: str, status: int, body: Any, kind: str) -> None:
    a.reply(body, status=status)
    answer = await plain(a, adapter, tools=TOOLS)
    assert [attempt["class"] for attempt in answer["error"]["attempts"]] == [kind]
    assert len(a.requests) == 1


@pytest.mark.parametrize(
    "refusal", [error('"m" does not support tools'), error("image URLs are not currently supported, please use base64 encoded data instead")]
)
async def test_what_ollama_cannot_do_another_target_may(a: Upstream, b: Upstream, refusal: dict[str, Any]) -> None:
    a.reply(refusal, status=400)
    b.reply(completion("20C"))
    async with serving(yaml({"a": a.url, "b": b.url}, a="adapter: ollama\nretries: 0")) as running:
        answer = await running.chat({**ASK, "model": "m", "tools": TOOLS})
    assert answer.headers["x-thinkgate-chain"] == "a=400,b=200"


async def test_ollama_model_that_cannot_think_is_asked_once_more_without_an_effort(a: Upstream) -> None:
    a.reply(error('"m" does not support thinking'), status=400).reply(completion("20C"))
    answer = await plain(a, "ollama", reasoning_effort="high")
    assert answer["choices"][0]["message"]["content"] == "20C"
    assert [request.json.get("reasoning_effort") for request in a.requests] == ["high", None]


async def test_vllm_error_in_the_middle_of_a_stream_ends_it_with_an_error(a: Upstream) -> None:
    a.stream(role(), delta("20"), 0.1, {"error": flat("engine died", 500)})
    async with serving(config(a, "vllm")) as running:
        data = await running.events({**ASK, "model": "a/m", "stream": True})
    assert "engine died" in json.loads(data[-1])["error"]["message"]
