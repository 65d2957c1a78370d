"""Replicas are replaced one after the other: what another version of the gateway keeps in the shared state, in whatever form, harms nobody."""

from __future__ import annotations

from typing import Any

import pytest
from running import CHAT, serving
from servers import Valkey
from test_odd_servers import told
from test_stored_responses import ask
from test_two_replicas import BEARER, eventually, pair, shared, text
from upstream_double import Upstream, completion, tool_call

STRANGE = ['{"v":2}', "[1]", "7", "not json", ""]


async def overwritten(url: str, value: str) -> set[str]:
    """Everything but the counts of limits is as another version left it; gives the kinds of what there was."""
    kinds = set()
    for key in await told(url, "KEYS", "*"):
        name = key.decode()
        kind = name.partition(":")[2].partition(":")[0]
        form = (await told(url, "TYPE", name)).decode()
        if kind in ("limits", "reload") or form == "zset":
            continue
        kinds.add(kind)
        if form == "hash":
            for field in (await told(url, "HGETALL", name))[::2]:
                await told(url, "HSET", name, field.decode(), value)
        else:
            await told(url, "SET", name, value)
    return kinds


@pytest.mark.parametrize("value", STRANGE)
async def test_values_of_another_form_are_no_values(a: Upstream, b: Upstream, valkey: Valkey, value: str) -> None:
    url = valkey.fresh()
    call = tool_call("w", "{}", id="call_7")
    a.reply(completion(None, finish="tool_calls", calls=[call], reasoning_content="it asks for w"))
    a.reply(completion(), repeat=30)
    b.reply({"error": {"message": "slow down"}}, status=429, headers={"retry-after": "60"}, repeat=30)
    message = {"role": "assistant", "content": None, "tool_calls": [{k: v for k, v in call.items() if k != "index"}]}
    history = [*CHAT["messages"], message, {"role": "tool", "tool_call_id": "call_7", "content": "20C"}]
    tools = [{"type": "function", "function": {"name": "w", "parameters": {"type": "object", "properties": {}}}}]
    config = text(a, url, "rpm: 100", model="cache: {exact: 10m}", a="adapter: deepseek\nretries: 0")
    config = config.replace("models:\n", f"  b: {{base_url: {b.url}, adapter: openai, api_key: key-of-b-0123456789, retries: 0}}\nmodels:\n")
    asked: dict[str, Any] = {**CHAT, "temperature": 0}

    async with pair(config) as (one, two):
        statuses = [(await one.chat({**CHAT, "tools": tools}, **BEARER)).status_code, (await one.chat(asked, **BEARER)).status_code]
        made = (await ask(one, "hi")).json()["id"]
        statuses.append((await one.chat({**CHAT, "model": "b/x"}, **BEARER)).status_code)
        await eventually(lambda: "b/x" in two.gateway.state.health.resting())
        kinds = await overwritten(url, value)
        again = [
            await two.chat({**CHAT, "tools": tools, "messages": history}, **BEARER),
            await two.chat(asked, **BEARER),
            await ask(two, "go on", previous_response_id=made),
            await two.chat({**CHAT, "model": "b/x"}, **BEARER),
        ]
        await eventually(lambda: shared(two)["state"] == "up" and shared(one)["state"] == "up")
        lost = [running.gateway.shared.lost for running in (one, two) if running.gateway.shared is not None]

    assert {"info", "rests", "answer", "response"} < kinds
    assert statuses == [200, 200, 429]
    assert [g.status_code for g in again[:3]] == [200, 200, 400]
    assert again[3].status_code == 429
    assert lost == [0, 0]


async def test_a_session_of_another_form_is_begun_anew(a: Upstream, valkey: Valkey) -> None:
    url = valkey.fresh()
    async with serving(text(a, url)) as running:
        await eventually(lambda: shared(running)["state"] == "up")
        sessions = running.gateway.state.mcp.sessions
        id = sessions.begin("owner")
        await eventually(lambda: held(url))
        for value in STRANGE:
            await overwritten(url, value)
            found = await sessions.find(id, "owner")
            assert found is not None
            assert found.owner == "owner"


async def held(url: str) -> bool:
    return any(b":mcp:" in key for key in await told(url, "KEYS", "*"))
