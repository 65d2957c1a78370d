"""A session of `/mcp` on two gateways that share state: T19, wherever the next request arrives."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
from running import Running, serving, yaml
from servers import Valkey
from test_two_replicas import eventually, shared

ONE, TWO = "key-one-for-tests-0123456789", "key-two-for-tests-0123456789"
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


@asynccontextmanager
async def pair(valkey: Valkey) -> AsyncIterator[tuple[Running, Running]]:
    config = yaml({"a": "mock://"}, more=f"shared: {valkey.fresh()}\nkeys: {{one: {{key: {ONE}}}, two: {{key: {TWO}}}}}\n")
    async with serving(config) as first, serving(config) as second:
        await eventually(lambda: shared(first)["processes"] == shared(second)["processes"] == 2)
        yield first, second


def headers(key: str = ONE, **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}", "accept": "application/json, text/event-stream", **more}


async def ask(running: Running, method: str, params: Any, **more: str) -> httpx.Response:
    return await running.client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, headers=headers(**more))


async def think(running: Running, number: int, **more: str) -> int:
    """How many thoughts the session has then; 0: there is no such session."""
    thought = {"thought": "hm", "next_thought_needed": True, "thought_number": number, "total_thoughts": 3}
    answer = await ask(running, "tools/call", {"name": "sequential_thinking", "arguments": thought}, **more)
    if answer.status_code == 404:
        return 0
    length: int = json.loads(answer.json()["result"]["content"][0]["text"])["data"]["thought_history_length"]
    return length


async def test_t19_a_session_is_known_to_all_and_belongs_to_its_key(valkey: Valkey) -> None:
    async with pair(valkey) as (first, second):
        begun = await ask(first, "initialize", INITIALIZE)
        session = {"mcp-session-id": begun.headers["mcp-session-id"]}

        assert [await think(running, n, **session) for n, running in enumerate((first, second, second, first), 1)] == [1, 2, 3, 4]
        assert await think(second, 1, key=TWO, **session) == 0
        await eventually(lambda: shared(first)["state"] == shared(second)["state"] == "up")
        ended = await second.client.delete("/mcp", headers=headers(**session))
        assert ended.status_code == 200
        assert [await think(running, 5, **session) for running in (first, second)] == [0, 0]


async def test_a_session_that_a_client_names_is_the_same_everywhere(valkey: Valkey) -> None:
    async with pair(valkey) as (first, second):
        assert [await think(running, n, **{"x-session-id": "mine"}) for n, running in enumerate((first, second, first), 1)] == [1, 2, 3]
        assert await think(second, 1, key=TWO, **{"x-session-id": "mine"}) == 1


async def test_while_the_shared_state_is_away_each_process_goes_on_with_what_it_knows() -> None:
    async with AsyncExitStack() as stack:
        own = Valkey()
        stack.callback(own.close)
        first, second = await stack.enter_async_context(pair(own))
        session = {"mcp-session-id": (await ask(first, "initialize", INITIALIZE)).headers["mcp-session-id"]}
        assert await think(first, 1, **session) == 1
        own.kill()

        lengths = await think(first, 2, **session), await think(second, 2, **session)

    assert lengths == (2, 0)
