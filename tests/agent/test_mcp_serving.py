"""`/mcp`: our tools for MCP clients, asked by the SDK's own client of a running gateway."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent
from running import KEY, Running, serving, yaml

from gateway.agent.mcp import sessions

OTHER = "another-key-for-tests-0123456789"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    keys = f'keys: {{other: {{key: "{OTHER}"}}, third: {{key: "third-key-for-tests-0123456789"}}}}'
    async with serving(yaml({"a": "mock://"}, server=f'keys: ["{KEY}"]', more=keys)) as made:
        yield made


@asynccontextmanager
async def client(running: Running, key: str = KEY, mode: str = "auto", **headers: str) -> AsyncIterator[Client]:
    url = running.url.removesuffix("/v1") + "/mcp"
    sent = {"authorization": f"Bearer {key}", **{name.replace("_", "-"): value for name, value in headers.items()}}
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx2.AsyncClient(headers=sent, verify=False, trust_env=False))
        yield await stack.enter_async_context(Client(streamable_http_client(url, http_client=http), mode=mode, cache=None))


def thought(number: int, text: str = "hm") -> dict[str, Any]:
    return {"thought": text, "next_thought_needed": True, "thought_number": number, "total_thoughts": 3}


def told(result: CallToolResult) -> Any:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return json.loads(block.text)


async def test_t32_the_tools_are_listed_with_their_hints(running: Running) -> None:
    async with client(running) as one:
        tools = {tool.name: tool for tool in (await one.list_tools()).tools}
        assert one.server_info is not None
        assert one.server_info.name == "thinkgate"

    assert sorted(tools) == ["calculator", "sequential_thinking", "todo_write"]
    hints = tools["sequential_thinking"].annotations
    assert hints is not None
    assert (hints.read_only_hint, hints.idempotent_hint) == (False, False)
    pure = tools["calculator"].annotations
    assert pure is not None
    assert pure.read_only_hint
    assert "thought_number" in tools["sequential_thinking"].input_schema["properties"]


async def test_t19_thoughts_live_in_one_session_and_in_no_other(running: Running) -> None:
    async with client(running) as one, client(running) as other:
        first = told(await one.call_tool("sequential_thinking", thought(1)))
        second = told(await one.call_tool("sequential_thinking", thought(2)))
        apart = told(await other.call_tool("sequential_thinking", thought(1)))

    assert first["success"]
    lengths = [result["data"]["thought_history_length"] for result in (first, second, apart)]
    assert lengths == [1, 2, 1]
    assert len(running.gateway.state.mcp.sessions) == 0, "a client that closes its session leaves nothing behind"


async def test_a_call_that_cannot_be_done_says_so_to_the_model(running: Running) -> None:
    async with client(running) as one:
        sum_ = await one.call_tool("calculator", {"expression": "2 * 21"})
        wrong = await one.call_tool("calculator", {})
        with pytest.raises(MCPError, match="sequential_thinking"):
            await one.call_tool("sequential_thinkin", {})
        alias = told(await one.call_tool("sequentialthinking", {"thought": "x", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}))

    assert "42" in str(sum_.content)
    assert wrong.is_error
    assert alias["success"]


async def test_clients_without_sessions_may_name_one(running: Running) -> None:
    """The protocol of 2026-07-28 has no sessions."""
    lengths = []
    for headers in ({}, {}, {"x_session_id": "s"}, {"x_session_id": "s"}, {"x_session_id": "s", "key": OTHER}):
        async with client(running, mode="2026-07-28", **headers) as one:
            lengths.append(told(await one.call_tool("sequential_thinking", thought(1)))["data"]["thought_history_length"])

    assert lengths == [1, 1, 1, 2, 1]


async def test_without_a_key_there_is_no_tool(running: Running) -> None:
    answer = await running.client.post("/mcp", json=INITIALIZE)

    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert not running.gateway.state.mcp.opened


async def test_a_session_belongs_to_the_key_that_began_it(running: Running) -> None:
    def headers(key: str, session: str = "") -> dict[str, str]:
        return {"authorization": f"Bearer {key}", "accept": "application/json, text/event-stream", **({"mcp-session-id": session} if session else {})}

    begun = await running.client.post("/mcp", json=INITIALIZE, headers=headers(OTHER))
    session = begun.headers["mcp-session-id"]
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}

    async def ask(key: str) -> int:
        return (await running.client.post("/mcp", json=listing, headers=headers(key, session))).status_code

    assert begun.status_code == 200
    assert begun.json()["result"]["serverInfo"]["name"] == "thinkgate"
    assert begun.headers["x-request-id"]
    assert [await ask(OTHER), await ask("third-key-for-tests-0123456789"), await ask(KEY)] == [200, 404, 404]
    assert (await running.client.delete("/mcp", headers=headers(OTHER, session))).status_code == 200
    assert await ask(OTHER) == 404


async def test_there_is_nothing_to_get_and_no_room_for_large_bodies(running: Running) -> None:
    headers = {"authorization": f"Bearer {KEY}", "accept": "application/json, text/event-stream"}

    got = await running.client.get("/mcp", headers=headers)
    large = await running.client.post("/mcp", headers=headers, json={**INITIALIZE, "x": "x" * 1_100_000})

    assert (got.status_code, got.headers["allow"]) == (405, "POST, DELETE")
    assert large.status_code == 413


async def test_what_a_session_keeps_is_bounded(running: Running) -> None:
    async with client(running) as one:
        results = [await one.call_tool("todo_write", {"steps": [], "note": "x" * 200_000}) for _ in range(3)]

    assert "begin a new one" not in str(results[1].content)
    assert results[2].is_error
    assert "begin a new one" in str(results[2].content)


def test_starting_the_gateway_does_not_import_the_sdk() -> None:
    code = "import sys, gateway.app; print([name for name in ('mcp', 'httpx2', 'sse_starlette') if name in sys.modules])"

    assert subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout.strip() == "[]"


async def test_t31_sessions_are_few_and_end_when_nobody_uses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST", 2)
    held = sessions.Sessions()
    first, second = held.begin(""), held.begin("")
    assert await held.find(first, "") is not None
    third = held.begin("")
    found = [await held.find(id, "") is not None for id in (first, second, third)]
    assert found == [True, False, True], "the longest unused went"

    monkeypatch.setattr(sessions, "IDLE", 0.02)
    await asyncio.sleep(0.03)
    assert await held.find(first, "") is None
    held.begin("")
    assert len(held) == 1
