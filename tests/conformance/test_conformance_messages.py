"""Anthropic's Messages over a provider that speaks chat, and over one that speaks Messages itself."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import pytest
from anthropic.types import Message, MessageTokensCount, RawMessageStreamEvent
from conforming import HI, MESSAGES, WEATHER, capture, named_events
from pydantic import TypeAdapter
from running import KEY, Running, serving, yaml
from upstream_double import CUT, HANG, Item, Script, Upstream, answer, chunk, completion, delta, events, finish, plain, role, thought, tool_call, usage

Json = dict[str, Any]

TOOL: Json = {"name": "get_weather", "description": "The weather in a city", "input_schema": WEATHER}
CALL = tool_call("get_weather", '{"city":"Paris"}')
EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
DELTAS = {"text": {"text_delta"}, "thinking": {"thinking_delta", "signature_delta"}, "tool_use": {"input_json_delta"}}
PATIENT = "retries: 0\ncooldown: {after: 1000, base: 1ms, max: 1ms}"
NATIVE = f"{PATIENT}\noptions: {{speaks: [messages]}}"
CLAUDE_CODE = ("claude-code/02-POST-v1_messages", "claude-code/03-POST-v1_messages-tool-pick-Read", "claude-code/05-POST-v1_messages-authtoken")

STREAMS: dict[str, list[Item]] = {
    "text": answer("Hel", "lo", usage_chunk=True),
    "thoughts, then text": [role(), thought("I "), thought("see"), delta("Hello"), finish(), usage(), "[DONE]"],
    "a call": [role(), chunk({"tool_calls": [CALL]}), finish("tool_calls"), usage(), "[DONE]"],
    "thoughts, text and two calls": [
        role(),
        thought("hm"),
        delta("Let me see"),
        chunk({"tool_calls": [CALL, tool_call("get_weather", "", id="call_2", index=1)]}),
        chunk({"tool_calls": [{"index": 1, "function": {"arguments": '{"city":"Rome"}'}}]}),
        finish("tool_calls"),
        usage(),
        "[DONE]",
    ],
    "two calls side by side": [
        role(),
        chunk({"tool_calls": [tool_call("get_weather", ""), tool_call("get_weather", "", id="call_2", index=1)]}),
        chunk({"tool_calls": [{"index": 1, "function": {"arguments": '{"city":"Rome"}'}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"city":"Paris"}'}}]}),
        finish("tool_calls"),
        "[DONE]",
    ],
    "a refusal": [role(), chunk({"refusal": "No."}), finish(), "[DONE]"],
    "cut by length": [role(), delta("Hel"), finish("length"), usage(), "[DONE]"],
    "no usage": answer("Hello"),
}


@pytest.fixture
async def claude(running: Running) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=running.url.removesuffix("/v1"), api_key="none", max_retries=0) as client:
        yield client


def checked(text: str) -> list[Json]:
    """The events of a whole Messages stream: each is what the SDK's types say, named, and in the order of the interface."""
    found = []
    for name, data in named_events(text):
        assert name == data["type"]
        if name != "ping":
            EVENT.validate_python(data)
            found.append(data)
    assert found[0]["type"] == "message_start"
    assert found[0]["message"]["usage"].keys() >= {"input_tokens", "output_tokens"}
    assert [event["type"] for event in found[-2:]] == ["message_delta", "message_stop"]
    open_block: Json | None = None
    begun = 0
    for event in found[1:-2]:
        if event["type"] == "content_block_start":
            assert (open_block, event["index"]) == (None, begun)
            open_block, begun = event["content_block"], begun + 1
        else:
            assert open_block is not None, event
            assert event["index"] == begun - 1
            if event["type"] == "content_block_stop":
                open_block = None
            else:
                assert event["delta"]["type"] in DELTAS[open_block["type"]]
    assert open_block is None
    return found


PLAIN: dict[str, tuple[Json, list[str], str]] = {
    "text": (completion("Hello"), ["text"], "end_turn"),
    "thoughts": (completion("Hello", reasoning_content="so"), ["thinking", "text"], "end_turn"),
    "a call": (completion(None, calls=[CALL]), ["tool_use"], "tool_use"),
    "text and a call": (completion("See", calls=[CALL]), ["text", "tool_use"], "tool_use"),
    "a refusal": (completion(None, refusal="No."), ["text"], "refusal"),
    "cut by length": (completion("Hel", finish="length"), ["text"], "max_tokens"),
    "stopped by a filter": (completion("Hel", finish="content_filter"), ["text"], "refusal"),
    "no usage": ({name: part for name, part in completion("Hello").items() if name != "usage"}, ["text"], "end_turn"),
}


@pytest.mark.parametrize("form", PLAIN)
async def test_a_plain_message_is_what_the_sdk_expects(a: Upstream, running: Running, form: str) -> None:
    said, blocks, reason = PLAIN[form]
    a.reply(said)
    got = await running.client.post("/v1/messages", json={**MESSAGES, "tools": [TOOL]})

    assert got.status_code == 200, got.text
    message = Message.model_validate(got.json(), strict=True)
    assert ([block.type for block in message.content], message.stop_reason, message.model) == (blocks, reason, "m")
    assert got.json()["stop_sequence"] is None
    assert message.id.startswith("msg_")
    if "usage" in said:
        assert (message.usage.input_tokens, message.usage.output_tokens) == (5, 3)


@pytest.mark.parametrize("form", STREAMS)
async def test_every_event_is_what_the_sdk_expects_and_comes_in_its_place(a: Upstream, running: Running, form: str) -> None:
    a.stream(*STREAMS[form])
    got = await running.client.post("/v1/messages", json={**MESSAGES, "stream": True, "tools": [TOOL]})

    assert got.headers["content-type"].startswith("text/event-stream")
    assert "[DONE]" not in got.text
    found = checked(got.text)
    if usage() in STREAMS[form]:
        assert (found[-2]["usage"]["input_tokens"], found[-2]["usage"]["output_tokens"]) == (5, 3)


async def test_the_sdks_helper_gives_the_same_message_streamed_as_plain(a: Upstream, claude: anthropic.AsyncAnthropic) -> None:
    both: Any = {"max_tokens": 64, "messages": HI, "tools": [TOOL]}
    a.reply(completion("Let me see", calls=[CALL], reasoning_content="hm"))
    whole = await claude.messages.create(model="m", **both)
    a.clear()
    a.stream(role(), thought("hm"), delta("Let me "), delta("see"), chunk({"tool_calls": [CALL]}), finish("tool_calls"), usage(), "[DONE]")
    async with claude.messages.stream(model="m", **both) as stream:
        streamed = await stream.get_final_message()

    def said(message: Any) -> list[Any]:
        return [(b.type, getattr(b, "text", None) or getattr(b, "thinking", None) or (b.name, b.input, b.id)) for b in message.content]

    assert said(whole) == said(streamed) == [("thinking", "hm"), ("text", "Let me see"), ("tool_use", ("get_weather", {"city": "Paris"}, "call_1"))]
    assert (whole.stop_reason, streamed.stop_reason) == ("tool_use", "tool_use")


@pytest.mark.parametrize("query", ["", "?beta=true"])
async def test_tokens_are_counted_with_and_without_the_query(running: Running, query: str) -> None:
    got = await running.client.post(f"/v1/messages/count_tokens{query}", json={"model": "m", "messages": HI, "tools": [TOOL]})

    assert MessageTokensCount.model_validate(got.json(), strict=True).input_tokens > 0


ANTHROPICS: dict[str, tuple[int, Json, int, str]] = {
    "the caller's fault": (400, {"message": "max_tokens is too large", "type": "invalid_request_error", "param": "max_tokens"}, 400, "invalid_request_error"),
    "the rate": (429, {"message": "slow down", "type": "rate_limit_error"}, 429, "rate_limit_error"),
    "overloaded": (503, {"message": "busy", "type": "server_error"}, 529, "overloaded_error"),
    "overloaded, in its own words": (529, {"message": "Overloaded", "type": "overloaded_error"}, 529, "overloaded_error"),
    "down": (500, {"message": "oops", "type": "server_error"}, 502, "api_error"),
    "our key": (401, {"message": "bad key", "type": "authentication_error"}, 502, "api_error"),
}


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("fault", ANTHROPICS)
async def test_failures_are_anthropics(a: Upstream, fault: str, stream: bool) -> None:
    status, error, wanted, kind = ANTHROPICS[fault]
    a.reply({"error": error}, status=status)
    async with serving(yaml({"a": a.url}, a=PATIENT)) as running:
        got = await running.client.post("/v1/messages", json={**MESSAGES, "stream": stream})

    body = got.json()
    assert (got.status_code, body["type"], body["error"]["type"]) == (wanted, "error", kind)
    assert error["message"] in body["error"]["message"]
    assert body["request_id"] == got.headers["request-id"] == got.headers["x-request-id"]


@pytest.mark.parametrize(
    ("headers", "body", "status", "kind"),
    [
        ({}, MESSAGES, 401, "authentication_error"),
        ({"x-api-key": KEY}, {**MESSAGES, "model": "nope"}, 404, "not_found_error"),
        ({"x-api-key": KEY}, {"model": "m"}, 400, "invalid_request_error"),
        ({"x-api-key": KEY}, {**MESSAGES, "more": "x" * 70_000}, 413, "request_too_large"),
    ],
    ids=["key", "model", "body", "size"],
)
async def test_our_own_refusals_are_anthropics_too(a: Upstream, headers: dict[str, str], body: Json, status: int, kind: str) -> None:
    async with serving(yaml({"a": a.url}, server=f"keys: [{KEY}]\nmax_body: 64KiB")) as running:
        got = await running.client.post("/v1/messages", json=body, headers=headers)

    assert (got.status_code, got.json()["type"], got.json()["error"]["type"]) == (status, "error", kind)
    assert got.json()["request_id"] == got.headers["request-id"]


async def test_time_that_runs_out_is_anthropics_timeout(a: Upstream) -> None:
    a.wire(HANG)
    async with serving(yaml({"a": a.url}, a="retries: 0\ntimeouts: {total: 100ms}")) as running:
        got = await running.client.post("/v1/messages", json=MESSAGES)

    assert (got.status_code, got.json()["error"]["type"]) == (504, "timeout_error")


@pytest.mark.parametrize("end", [CUT, {"error": {"message": "boom", "type": "server_error"}}], ids=["cut", "error"])
async def test_a_failure_in_the_middle_is_an_error_event_that_the_sdk_raises(
    a: Upstream, claude: anthropic.AsyncAnthropic, running: Running, end: Item
) -> None:
    a.stream(role(), delta("Hel"), 0.02, end)
    got = await running.client.post("/v1/messages", json={**MESSAGES, "stream": True})
    with pytest.raises(anthropic.APIStatusError) as caught:
        async with claude.messages.stream(model="m", max_tokens=5, messages=[{"role": "user", "content": "hi"}]) as stream:
            await stream.get_final_message()

    name, data = named_events(got.text)[-1]
    assert (name, data["type"], data["error"]["type"]) == ("error", "error", "api_error")
    assert data["error"]["message"]
    assert "message_stop" not in got.text
    assert caught.value.body["error"]["message"] == data["error"]["message"]  # type: ignore[index]


@pytest.mark.parametrize("name", CLAUDE_CODE)
async def test_claude_codes_request_is_answered_streamed_and_plain(a: Upstream, name: str) -> None:
    body, headers = capture(name)
    assert len(body["tools"]) == 24
    assert body["thinking"]["type"] == "adaptive"
    assert "system" in [message["role"] for message in body["messages"]]
    assert "cache_control" in json.dumps(body["system"])
    a.call(lambda seen: events(*answer("Hello", usage_chunk=True)) if seen.json.get("stream") else plain(completion("Hello")))
    async with serving(yaml({"a": a.url}, more='  "*": a/a-model\n')) as running:
        streamed = await running.client.post("/v1/messages?beta=true", json=body, headers=headers)
        again = {key: value for key, value in body.items() if key != "stream"}  # what it sends after a stream that broke off
        whole = await running.client.post("/v1/messages?beta=true", json=again, headers={**headers, "x-stainless-timeout": "300"})

    assert (streamed.status_code, whole.status_code) == (200, 200), (streamed.text, whole.text)
    assert checked(streamed.text)[-2]["delta"]["stop_reason"] == "end_turn"
    assert whole.headers["content-type"] == "application/json"
    assert Message.model_validate(whole.json(), strict=True).stop_reason == "end_turn"
    sent = a.requests[0].json
    assert [tool["function"]["name"] for tool in sent["tools"]] == [tool["name"] for tool in body["tools"]]
    assert not {"context_management", "system"} & set(sent)
    assert "cache_control" not in json.dumps(sent["tools"])


async def test_an_anthropic_upstream_gets_version_beta_and_body_unchanged(a: Upstream) -> None:
    message = Message.model_validate(
        {"id": "msg_1", "type": "message", "role": "assistant", "model": "x", "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn",
         "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    ).model_dump(exclude_unset=True)  # fmt: skip
    a.reply(message)
    async with serving(yaml({"a": a.url}, a=NATIVE, more='  "*": a/a-model\n')) as running:
        for name in CLAUDE_CODE:
            body, headers = capture(name)
            plain = {key: value for key, value in body.items() if key != "stream"}
            got = await running.client.post("/v1/messages?beta=true", json=plain, headers=headers)
            seen = a.requests[-1]
            assert got.json() == message
            assert seen.json == {**plain, "model": "a-model"}
            assert {key: seen.headers.get(key) for key in ("anthropic-version", "anthropic-beta")} == {
                key: headers[key] for key in ("anthropic-version", "anthropic-beta")
            }


async def test_an_overloaded_anthropic_upstream_is_overloaded_here(a: Upstream) -> None:
    a.reply({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, status=529)
    async with serving(yaml({"a": a.url}, a=NATIVE)) as running:
        got = await running.client.post("/v1/messages", json=MESSAGES)

    assert (got.status_code, got.json()["error"]["type"]) == (529, "overloaded_error")


async def test_silence_is_filled_with_pings_that_the_sdk_reads_past(a: Upstream) -> None:
    a.call(lambda _: Script(answer("Hello"), headers={"content-type": "text/event-stream"}, delay=0.35))
    async with serving(yaml({"a": a.url}, server="keepalive: 100ms")) as running:
        got = await running.client.post("/v1/messages", json={**MESSAGES, "stream": True})
        async with (
            anthropic.AsyncAnthropic(base_url=running.url.removesuffix("/v1"), api_key="none", max_retries=0) as claude,
            claude.messages.stream(model="m", max_tokens=5, messages=[{"role": "user", "content": "hi"}]) as stream,
        ):
            said = await stream.get_final_message()

    assert got.text.startswith('event: ping\ndata: {"type":"ping"}\n\n')
    assert said.content[0].type == "text"
    checked(got.text)
