"""What reaches a provider of what the client sent: everything, unchanged, but for what this provider needs otherwise."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from asking import CALLED, HISTORY, PATIENT, TOOLS
from running import CHAT, serving, yaml
from upstream_double import Upstream, completion, events, finish

DEEPSEEK = "adapter: deepseek\nretries: 0"


async def test_thinking_is_turned_off_at_the_top_of_the_body_and_nothing_else_changes(a: Upstream) -> None:
    body = {**CHAT, "tools": TOOLS, "temperature": 0.5, "x_vendor": [None, {}]}

    async with serving(yaml({"a": a.reply().url}, a=DEEPSEEK + '\nthinking: "off"')) as running:
        answer = await running.chat(body)

    sent = a.requests[0].json
    assert sent.pop("thinking") == {"type": "disabled"}
    assert sent == {**body, "model": "a-model"}
    assert "deepseek.thinking=off" in answer.headers["x-thinkgate-transforms"]


async def test_a_literal_extra_body_is_hoisted_and_gone(a: Upstream) -> None:
    body = {**CHAT, "extra_body": {"thinking": {"type": "disabled"}, "top_k": 3}}

    async with serving(yaml({"a": a.reply().url}, a=DEEPSEEK)) as running:
        await running.chat(body)

    assert a.requests[0].json == {**CHAT, "model": "a-model", "thinking": {"type": "disabled"}, "top_k": 3}


async def test_with_tools_every_assistant_turn_carries_reasoning_and_no_other_message_does(a: Upstream) -> None:
    turns = [
        {"role": "system", "content": "s"},
        *HISTORY,
        {"role": "assistant", "content": "fine", "reasoning_content": None},
        {"role": "user", "content": "q"},
    ]

    async with serving(yaml({"a": a.reply().url}, a=DEEPSEEK)) as running:
        await running.chat({**CHAT, "messages": turns, "tools": TOOLS})

    sent = a.requests[0].json["messages"]
    assert [m.get("reasoning_content") for m in sent] == [None, None, "", None, None, "", None]
    assert all("reasoning_content" not in m for m in sent if m["role"] != "assistant")
    assert sent[2] == {**CALLED, "reasoning_content": ""}  # content stays null, the calls stay


async def test_a_history_without_reasoning_falls_back_to_a_provider_that_needs_it(a: Upstream, b: Upstream) -> None:
    a.reply({"error": {"message": "overloaded", "type": "server_error", "param": None, "code": None}}, status=503)
    b.reply(completion("ok"))

    async with serving(yaml({"a": a.url, "b": b.url}, a=PATIENT, b=DEEPSEEK)) as running:
        answer = await running.chat({**CHAT, "messages": HISTORY, "tools": TOOLS})

    assert answer.status_code == 200
    assert a.requests[0].json["messages"] == HISTORY
    assert [m["reasoning_content"] for m in b.requests[0].json["messages"] if m["role"] == "assistant"] == [""]


async def test_fields_that_nobody_here_knows_reach_the_provider(a: Upstream) -> None:
    extra = {
        "enable_thinking": False,
        "top_k": 20,
        "chat_template_kwargs": {"enable_thinking": False},
        "max_completion_tokens": 64,
        "x_vendor": {"deep": [{"a": None}]},
    }

    async with serving(yaml({"a": a.reply().url})) as running:
        await running.chat({**CHAT, **extra})

    assert a.requests[0].json == {**CHAT, **extra, "model": "a-model"}


async def test_what_one_provider_changed_is_not_seen_by_the_next(a: Upstream, b: Upstream, tmp_path: Path) -> None:
    (tmp_path / "force.lua").write_text(
        'function transform_request(req) req.temperature = 0.1 table.insert(req.messages, {role="user", content="x"}) return req end'
    )
    force = PATIENT + "\nhooks: [force.lua]\noptions: {rename_params: {max_tokens: max_completion_tokens}}"
    body = {**CHAT, "temperature": 0.9, "max_tokens": 5}
    a.reply({"error": {"message": "x", "type": "server_error", "param": None, "code": None}}, status=500)

    async with serving(yaml({"a": a.url, "b": b.reply().url}, a=force), base=tmp_path) as running:
        await running.chat(body)

    more = [*CHAT["messages"], {"role": "user", "content": "x"}]
    assert a.requests[0].json == {"model": "a-model", "messages": more, "temperature": 0.1, "max_completion_tokens": 5}
    assert b.requests[0].json == {**body, "model": "b-model"}


async def test_the_developer_role_is_renamed_only_for_the_provider_that_does_not_know_it(a: Upstream, b: Upstream) -> None:
    messages = [{"role": "developer", "content": "be brief"}, {"role": "user", "content": "hi"}]
    a.reply({"error": {"message": "x"}}, status=500)

    async with serving(yaml({"a": a.url, "b": b.reply().url}, b="retries: 0\noptions: {system_role: system}")) as running:
        await running.chat({**CHAT, "messages": messages})

    assert [m["role"] for m in a.requests[0].json["messages"]] == ["developer", "user"]
    assert [m["role"] for m in b.requests[0].json["messages"]] == ["system", "user"]


async def test_null_content_stays_null_and_a_refusal_of_it_is_neither_repeated_nor_held_against_the_provider(a: Upstream) -> None:
    a.reply({"error": {"message": "messages[1].content: null is not a string", "type": "invalid_request_error", "param": None, "code": None}}, status=400)
    a.reply(completion("ok"))

    async with serving(yaml({"a": a.url}, a="retries: 2\ncooldown: {after: 1}")) as running:
        refused = await running.chat({**CHAT, "messages": HISTORY, "tools": TOOLS})
        answer = await running.chat({**CHAT, "messages": HISTORY, "tools": TOOLS})

    assert (refused.status_code, answer.status_code, len(a.requests)) == (400, 200, 2)
    turn = a.requests[0].json["messages"][1]
    assert "content" in turn
    assert turn["content"] is None


@pytest.mark.parametrize("adapter", ["openai", "deepseek"])
async def test_an_empty_list_of_tools_is_no_tools(a: Upstream, adapter: str) -> None:
    body = {**CHAT, "messages": HISTORY, "tools": [], "tool_choice": "auto", "parallel_tool_calls": True}

    async with serving(yaml({"a": a.reply().url}, a=f"adapter: {adapter}")) as running:
        await running.chat(body)

    sent = a.requests[0].json
    assert {"tools", "tool_choice", "parallel_tool_calls"}.isdisjoint(sent)


NUMBERS = b'"metadata":{"wei":18446744073709551616,"snow":2512292042121000001,"neg":-9223372036854775809},"seed":9007199254740993,"one":1.0,"top_p":1'


async def test_numbers_of_any_size_keep_their_digits_there_and_back(a: Upstream) -> None:
    a.reply(
        b'{"id":"x","object":"chat.completion","created":1,"model":"m","x":18446744073709551617,"choices":[{"index":0,"message":{"role":"assistant","content":"ok","y":1.0},"finish_reason":"stop"}]}'
    )
    raw = b'{"model":"m","messages":[{"role":"user","content":"hi"}],' + NUMBERS + b"}"

    async with serving(yaml({"a": a.url})) as running:
        answer = await running.client.post("/v1/chat/completions", content=raw, headers={"content-type": "application/json"})

    assert NUMBERS in a.requests[0].raw
    assert b'"x":18446744073709551617' in answer.content
    assert b'"y":1.0' in answer.content


async def test_numbers_of_a_streams_events_keep_their_digits(a: Upstream) -> None:
    a.stream(b'data: {"choices":[{"delta":{"content":"ok"}}],"x":18446744073709551617}\n\n', finish(), "[DONE]")

    async with serving(yaml({"a": a.url})) as running:
        said = await running.events()

    assert '"x":18446744073709551617' in said[0]


async def test_a_lua_hook_that_changes_nothing_keeps_empty_lists_and_maps_apart(a: Upstream, tmp_path: Path) -> None:
    (tmp_path / "same.lua").write_text("function transform_request(req) return req end")
    (tmp_path / "empty.lua").write_text("function transform_request(req) table.remove(req.emptied) req.made = array{} return req end")
    raw = json.dumps({**CHAT, "tools": TOOLS, "stop": [], "metadata": {}, "emptied": ["x"], "nothing": None}).encode()

    async with serving(yaml({"a": a.reply().url}, a="hooks: [same.lua, empty.lua]"), base=tmp_path) as running:
        await running.client.post("/v1/chat/completions", content=raw, headers={"content-type": "application/json"})

    sent = a.requests[0].json
    assert sent["tools"] == TOOLS
    assert [sent[name] for name in ("stop", "metadata", "emptied", "made", "nothing")] == [[], {}, [], [], None]


@pytest.mark.parametrize("where", [b'"content":"cut \\ud83d here"', b'"content":"hi","name":"\\udc00"'], ids=["content", "name"])
async def test_half_a_character_is_refused_or_replaced_but_breaks_nothing(a: Upstream, where: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    raw = b'{"model":"m","messages":[{"role":"user",' + where + b"}]}"

    async with serving(yaml({"a": a.reply().url})) as running:
        answer = await running.client.post("/v1/chat/completions", content=raw, headers={"content-type": "application/json"})
        after = await running.chat()

    assert after.status_code == 200
    if answer.status_code == 400:
        error = answer.json()["error"]
        assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_json")
    else:
        assert "�" in a.requests[0].json["messages"][0].values()
    assert "Traceback" not in caplog.text


async def test_narrowing_headers_stay_here(a: Upstream, b: Upstream) -> None:
    async with serving(yaml({"a": a.url, "b": b.reply().url})) as running:
        await running.chat(None, x_thinkgate_provider="b", x_thinkgate_fallback="off", x_thinkgate_cache="on")

    seen: Any = b.requests[0]
    assert a.requests == []
    assert not [name for name in seen.headers if name.startswith("x-thinkgate")]
    assert seen.json == {**CHAT, "model": "b-model"}


async def test_a_stream_asks_the_provider_for_usage_only_where_its_adapter_says_so(a: Upstream) -> None:
    a.call(lambda seen: events())
    a.stream()

    async with serving(yaml({"a": a.url}, a="options: {include_usage: false}")) as running:
        await running.chat({**CHAT, "stream": True, "stream_options": {"include_obfuscation": False}})

    assert a.requests[0].json["stream_options"] == {"include_obfuscation": False}
