"""Tools of MCP servers inside runs: called, approved by any of their names, missing without harm."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from agents_yaml import asked, says
from running import serving, yaml
from upstream_double import Upstream

SERVER = Path(__file__).with_name("mcp_server.py")


def agents(more: str = "", command: str | None = None) -> str:
    started = command or json.dumps([sys.executable, str(SERVER), "."])
    return f"agents:\n  mcp: {{pattern: simple, model: m, tools: [calculator], mcp: {{own: {{command: {started}}}}}{more}}}\n"


async def test_a_run_calls_a_tool_of_a_server(a: Upstream, tmp_path: Path) -> None:
    async with serving(yaml({"a": a.url}, more=agents()), base=tmp_path) as world:
        says(a, ("add", '{"a": 40, "b": "2"}'), "It is 42.")
        answer = await world.chat(asked("mcp"))
    offered = [tool["function"]["name"] for tool in a.requests[0].json["tools"]]
    assert "add" in offered
    assert offered == sorted(offered)
    assert answer.json()["choices"][0]["message"]["content"] == "It is 42."
    assert "42" in a.requests[1].json["messages"][-1]["content"]


async def test_a_tool_of_a_server_can_need_approval(a: Upstream, tmp_path: Path) -> None:
    async with serving(yaml({"a": a.url}, more=agents(", approval: {tools: [add]}")), base=tmp_path) as world:
        says(a, ("add", '{"a": 40, "b": "2"}'), "It is 42.")
        first = (await world.chat(asked("mcp"))).json()["choices"][0]["message"]
        call = first["tool_calls"][0]
        assert call["function"]["name"] == "approval_request"
        body = asked("mcp")
        body["messages"] += [first, {"role": "tool", "tool_call_id": call["id"], "content": '{"approved": true}'}]
        assert (await world.chat(body)).json()["choices"][0]["message"]["content"] == "It is 42."


async def test_a_server_that_does_not_start_costs_its_tools_and_nothing_else(a: Upstream, tmp_path: Path) -> None:
    async with serving(yaml({"a": a.url}, more=agents(command='["/nonexistent/server"]')), base=tmp_path) as world:
        says(a, ("calculator", '{"expression": "2+3"}'), "It is 5.")
        answer = await world.chat(asked("mcp"))
        run = answer.headers["x-thinkgate-run-id"]
        events = (await world.client.get(f"/v1/runs/{run}/events")).text
    assert answer.json()["choices"][0]["message"]["content"] == "It is 5."
    started = json.loads(events.split("data: ")[1].split("\n")[0])
    assert "own" in started["data"]["warnings"][0]
