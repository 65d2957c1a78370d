"""Responses over a provider that speaks chat: objects, events and their order, tools, failures, Codex's request."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest
from conforming import RESPONSES, WEATHER, capture, conforms, refused, response_events
from running import Running, serving, yaml
from upstream_double import CUT, Item, Upstream, answer, chunk, completion, delta, finish, role, thought, tool_call, usage

Json = dict[str, Any]

TOOL: Json = {"type": "function", "name": "get_weather", "description": "The weather in a city", "parameters": WEATHER, "strict": True}
PATCH: Json = {"type": "custom", "name": "apply_patch", "description": "Edits files"}
FIRST = tool_call("get_weather", "")
CALLING: list[Item] = [
    role(),
    chunk({"tool_calls": [FIRST]}),
    *(chunk({"tool_calls": [{"index": 0, "function": {"arguments": part}}]}) for part in ('{"city"', ':"Paris"}')),
    finish("tool_calls"),
    usage(),
    "[DONE]",
]
STREAMS: dict[str, list[Item]] = {
    "text": answer("Hel", "lo", usage_chunk=True),
    "thoughts, then text": [role(), thought("I "), thought("see"), delta("Hello"), finish(), usage(), "[DONE]"],
    "a refusal": [role(), chunk({"refusal": "No"}), chunk({"refusal": "."}), finish(), "[DONE]"],
    "a call": CALLING,
    "thoughts, text and two calls": [
        role(),
        thought("hm"),
        delta("Let me see"),
        chunk({"tool_calls": [tool_call("get_weather", '{"city":"Paris"}')]}),
        chunk({"tool_calls": [tool_call("get_weather", '{"city":"Rome"}', id="call_2", index=1)]}),
        finish("tool_calls"),
        usage(),
        "[DONE]",
    ],
    "cut by length": [role(), delta("Hel"), finish("length"), usage(), "[DONE]"],
    "stopped by a filter": [role(), delta("Hel"), finish("content_filter"), "[DONE]"],
    "no usage": answer("Hello"),
    "two calls side by side": [
        role(),
        chunk({"tool_calls": [tool_call("get_weather", "", id="call_1"), tool_call("get_weather", "", id="call_2", index=1)]}),
        chunk({"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}),
        finish("tool_calls"),
        "[DONE]",
    ],
}


async def streamed(running: Running, **body: Any) -> list[Json]:
    got = await running.client.post("/v1/responses", json={**RESPONSES, "stream": True, "tools": [TOOL, PATCH], **body})
    assert got.headers["content-type"].startswith("text/event-stream"), got.text
    return response_events(got.text)


def kinds(events: list[Json]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


PLAIN: dict[str, tuple[Json, list[str], str]] = {
    "text": (completion("Hello"), ["message"], "completed"),
    "thoughts": (completion("Hello", reasoning_content="so"), ["reasoning", "message"], "completed"),
    "a call": (completion(None, calls=[tool_call("get_weather", "{}")]), ["function_call"], "completed"),
    "text and a call": (completion("See", calls=[tool_call("get_weather", "{}")]), ["message", "function_call"], "completed"),
    "a refusal": (completion(None, refusal="No."), ["message"], "completed"),
    "cut by length": (completion("Hel", finish="length"), ["message"], "incomplete"),
    "no usage": ({name: part for name, part in completion("Hello").items() if name != "usage"}, ["message"], "completed"),
}


@pytest.mark.parametrize("form", PLAIN)
async def test_a_plain_response_conforms(a: Upstream, running: Running, form: str) -> None:
    said, items, status = PLAIN[form]
    a.reply(said)
    got = await running.client.post("/v1/responses", json={**RESPONSES, "tools": [TOOL]})

    response = conforms(got.json(), "response")
    assert ([item["type"] for item in response["output"]], response["status"], response["model"]) == (items, status, "m")
    if "usage" in said:
        assert (response["usage"]["input_tokens"], response["usage"]["output_tokens"], response["usage"]["total_tokens"]) == (5, 3, 8)


async def test_the_sdk_reads_text_and_usage(a: Upstream, running: Running) -> None:
    a.reply(completion("Hello"))
    async with openai.AsyncOpenAI(base_url=running.url, api_key="none", max_retries=0) as client:
        said = await client.responses.create(model="m", input="hi")

    assert said.output_text == "Hello"
    assert said.usage is not None
    assert (said.usage.input_tokens_details.cached_tokens, said.usage.output_tokens_details.reasoning_tokens) == (0, 0)


@pytest.mark.parametrize("form", STREAMS)
async def test_every_event_conforms_and_ids_never_change(a: Upstream, running: Running, form: str) -> None:
    a.stream(*STREAMS[form])
    events = await streamed(running)

    ids: dict[int, str] = {}
    for event in events:
        if "output_index" in event:
            ident = event["item"]["id"] if "item" in event else event["item_id"]
            assert ids.setdefault(event["output_index"], ident) == ident
    assert list(ids) == list(range(len(ids)))
    assert len({event["response"]["id"] for event in events if "response" in event}) == 1
    last = events[-1]["response"]
    assert [item["id"] for item in last["output"]] == list(ids.values())
    assert [event["item"] for event in sorted((e for e in events if e["type"].endswith("item.done")), key=lambda e: e["output_index"])] == last["output"]


@pytest.mark.parametrize("form", STREAMS)
async def test_the_stream_begins_and_ends_as_clients_need_it(a: Upstream, running: Running, form: str) -> None:
    a.stream(*STREAMS[form])
    events = await streamed(running)

    ends = [event for event in kinds(events) if event in ("completed", "incomplete", "failed")]
    assert kinds(events)[:2] == ["created", "in_progress"]
    assert events[0]["response"]["output"] == []
    assert ends == ["incomplete" if form in ("cut by length", "stopped by a filter") else "completed"]
    assert kinds(events)[-1] == ends[0]
    for place in {event["output_index"] for event in events if "output_index" in event}:
        own = kinds([event for event in events if event.get("output_index") == place])
        assert (own[0], own[-1]) == ("output_item.added", "output_item.done")
        assert own.count("content_part.added") == own.count("content_part.done")
        parts = [kind for kind in own if kind.endswith((".delta", ".done")) and not kind.startswith(("output_item", "content_part", "reasoning_summary_part"))]
        assert [kind.endswith(".done") for kind in parts] == [False] * (len(parts) - 1) + [True]


async def test_the_text_is_told_in_the_order_of_the_interface(a: Upstream, running: Running) -> None:
    a.stream(*STREAMS["text"])
    events = await streamed(running)

    assert kinds(events) == [
        *("created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "Hello"
    assert events[-1]["response"]["usage"]["total_tokens"] == 8


async def test_a_call_is_announced_empty_filled_and_given_back(a: Upstream, running: Running) -> None:
    a.stream(*CALLING)
    events = await streamed(running)
    added, *deltas, done, item = (event for event in events if event["type"].startswith(("response.output_item", "response.function_call")))
    a.clear()
    a.reply(completion("Sunny"))
    outcome = {"type": "function_call_output", "call_id": item["item"]["call_id"], "output": "sun"}
    second = await running.client.post(
        "/v1/responses", json={**RESPONSES, "input": [{"role": "user", "content": "hi"}, item["item"], outcome], "tools": [TOOL]}
    )

    assert (added["item"]["arguments"], added["item"]["call_id"]) == ("", "call_1")
    assert "".join(event["delta"] for event in deltas) == done["arguments"] == item["item"]["arguments"] == '{"city":"Paris"}'
    assert done["name"] == "get_weather"
    assert conforms(second.json(), "response")["output"][0]["content"][0]["text"] == "Sunny"
    turn, result = a.requests[0].json["messages"][1:]
    assert turn["tool_calls"] == [{"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}}]
    assert result == {"role": "tool", "tool_call_id": "call_1", "content": "sun"}


async def test_a_custom_tool_has_events_of_its_own(a: Upstream, running: Running) -> None:
    a.stream(role(), chunk({"tool_calls": [tool_call("apply_patch", '{"input":"*** Begin"}')]}), finish("tool_calls"), "[DONE]")
    events = await streamed(running)

    assert kinds(events)[2:-1] == ["output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done"]
    assert events[-1]["response"]["output"][0]["input"] == "*** Begin"


async def test_the_sdks_helper_reads_every_stream(a: Upstream, running: Running) -> None:
    async with openai.AsyncOpenAI(base_url=running.url, api_key="none", max_retries=0) as client:
        for form, items in STREAMS.items():
            a.clear()
            a.stream(*items)
            async with client.responses.stream(model="m", input="hi", tools=[TOOL]) as stream:  # type: ignore[list-item]
                kinds = [event.type async for event in stream]
                if kinds[-1] == "response.completed":
                    said = await stream.get_final_response()
                    assert said.output, form


@pytest.mark.parametrize("end", [CUT, {"error": {"message": "boom", "type": "server_error"}}], ids=["cut", "error"])
async def test_a_failure_after_the_start_is_told_to_every_client(a: Upstream, running: Running, end: Item) -> None:
    a.stream(role(), delta("Hel"), 0.02, end)
    events = await streamed(running)

    *_, error, failed = events
    assert kinds(events)[-2:] == ["error", "failed"]
    assert kinds(events).count("completed") == 0
    assert failed["response"]["error"]["message"] == error["message"]
    assert failed["response"]["error"]["code"] == "server_error"
    assert failed["response"]["id"] == events[0]["response"]["id"]


async def test_codexs_request_reaches_a_provider_of_chat(a: Upstream) -> None:
    async with serving(yaml({"a": a.url}, more='  "*": a/a-model\n')) as running:
        for name in ("codex/01-POST-v1_responses-idchange", "codex/02-POST-v1_responses-tool-pick-update_plan", "codex-obu/02-POST-v1_responses"):
            body, headers = capture(name)
            assert {tool["type"] for tool in body["tools"]} == {"function", "namespace", "web_search"}
            a.clear()
            a.stream(*answer("Hello", usage_chunk=True))
            got = await running.client.post("/v1/responses", json=body, headers=headers)
            assert got.status_code == 200, got.text
            assert response_events(got.text)[-1]["response"]["output"][0]["content"][0]["text"] == "Hello"

            sent = a.requests[0].json
            assert {tool["type"] for tool in sent["tools"]} == {"function"}
            assert not {"input", "include", "store", "prompt_cache_key", "client_metadata", "reasoning"} & set(sent) - {"store", "prompt_cache_key"}
            assert all(set(tool["function"]) <= {"name", "description", "parameters", "strict"} for tool in sent["tools"])
            assert [message["role"] for message in sent["messages"]][:3] == ["developer", "developer", "user"]


async def test_an_unknown_earlier_response_is_named_and_unknown_ones_are_not_found(running: Running) -> None:
    error = refused(await running.client.post("/v1/responses", json={**RESPONSES, "previous_response_id": "resp_nope"}), 400)

    assert error["param"] == "previous_response_id"
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")):
        got = await running.client.request(method, f"/v1/responses/resp_nope{path}")
        assert refused(got, 404)["type"] == "invalid_request_error"


async def test_a_failure_before_the_start_is_a_status(a: Upstream, running: Running) -> None:
    a.reply({"error": {"message": "too long", "code": "context_length_exceeded", "type": "invalid_request_error", "param": "messages"}}, status=400)
    for body in (RESPONSES, {**RESPONSES, "stream": True}):
        got: httpx.Response = await running.client.post("/v1/responses", json=body)
        assert refused(got, 400)["code"] == "context_length_exceeded"


async def test_a_provider_that_speaks_responses_badly_is_mended(a: Upstream) -> None:
    created = {"type": "response.created", "response": {"id": "resp_1", "object": "response", "status": "in_progress"}}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "content": [], "status": "in_progress"}
    text = {"type": "output_text", "text": "Hello", "annotations": []}
    whole = {**item, "status": "completed", "content": [text]}
    events: list[Item] = [
        ("response.created", created),
        ("response.output_item.added", {"type": "response.output_item.added", "item": item}),
        ("response.content_part.added", {"type": "response.content_part.added", "item_id": "msg_1", "part": {**text, "text": ""}}),
        ("response.output_text.delta", {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "Hello"}),
        ("response.output_text.done", {"type": "response.output_text.done", "item_id": "msg_1", "text": "Hello"}),
        ("response.content_part.done", {"type": "response.content_part.done", "item_id": "msg_1", "part": text}),
        ("response.output_item.done", {"type": "response.output_item.done", "item": whole}),
        ("response.completed", {"type": "response.completed", "response": {**created["response"], "status": "completed", "output": [whole]}}),  # type: ignore[dict-item]
    ]
    a.stream(*events)  # as llama.cpp sends them (measured 2026-11): no sequence_number, no indices, nothing in `created`
    async with serving(yaml({"a": a.url}, a="options: {speaks: [responses]}")) as running:
        got = await streamed(running)

    assert got[-1]["response"]["output"][0]["content"][0]["text"] == "Hello"
