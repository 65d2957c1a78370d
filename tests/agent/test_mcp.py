"""Tools of MCP servers: real ones, written with the SDK, as child processes and over HTTP."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import uvloop

from gateway.agent.mcp import Offered, Servers
from gateway.agent.tools import Context, Observation
from gateway.config.agents import McpServer

SCRIPT = Path(__file__).with_name("mcp_server.py")


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    made = Servers()
    yield made
    await made.aclose()


def script(folder: Path) -> McpServer:
    return McpServer("odd", command=(sys.executable, str(SCRIPT), str(folder)))


def python(code: str, name: str = "bad") -> McpServer:
    return McpServer(name, command=(sys.executable, "-c", code))


async def call(offered: Offered, name: str, seconds: float = 30, **arguments: object) -> Observation:
    tool = next(tool for tool in offered.tools if tool.name == name)
    return await tool.call(arguments, Context(timeout=seconds))


def calls(folder: Path) -> list[str]:
    file = folder / "calls"
    return file.read_text().split() if file.exists() else []


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_child_process_serves_its_tools_to_several_runs(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-secret")
    server = McpServer("odd", command=(sys.executable, str(SCRIPT), "."), env={"MODE": "dry"}, folder=tmp_path)

    first, second = await asyncio.gather(servers.tools({"odd": server}), servers.tools({"odd": server}))

    assert [tool.name for tool in first.tools] == [tool.name for tool in second.tools]
    by_name = {tool.name: tool for tool in first.tools}
    add = by_name["add"].to_openai_schema()["function"]
    assert (add["name"], add["description"], sorted(add["parameters"]["properties"])) == ("add", "Adds.", ["a", "b"])
    assert {name: by_name[name].repeat for name in ("add", "die_once", "die", "fail")} == {"add": "safe", "die_once": "safe", "die": "ask", "fail": "never"}

    one, two = await asyncio.gather(call(first, "add", a=1, b=2), call(second, "add", a=3, b=4))
    assert (one, two) == (Observation("3", data={"structured": {"result": 3}}), Observation("7", data={"structured": {"result": 7}}))
    assert calls(tmp_path) == ["add", "add"], "relative paths are those of the config file's folder"

    names = (await call(first, "environment")).text
    assert "PATH" in names
    assert "MODE" in names
    assert "API_KEY" not in names

    failed = await call(first, "fail")
    assert not failed.ok
    assert "the disk is full" in failed.text
    assert (await call(first, "add", a="x", b=1)).ok is False

    mixed = await call(first, "mixed")
    assert mixed.text.split("\n\n") == [
        "a text",
        "[image image/png, 5 bytes; it cannot be shown here]",
        "[resource readme at file:///readme.md: about it]",
        "[resource file:///a.txt text/plain]\ninside",
        "[resource file:///b.bin, 3 bytes; it cannot be shown here]",
        '{"n":1}',
    ]
    assert (await call(first, "weather")).text.count("Paris") == 1, "the SDK sends it as text and as structured content"
    assert (await call(first, "much")).text.endswith("x\n[100000 more characters were left out]")

    begun = time.monotonic()
    late = await call(first, "slow", seconds=3)
    assert time.monotonic() - begun < 20
    assert late == Observation("MCP server odd gave no answer within 3 s; it had come to 3 of 10 (indexing)", ok=False)
    async with asyncio.timeout(10):
        while "slow_cancelled" not in calls(tmp_path):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.02)
    assert (await call(first, "add", a=1, b=1)).text == "2", "the server outlives a call that was given up"


async def test_a_crashed_server_comes_back_and_only_safe_calls_are_made_again(servers: Servers, tmp_path: Path) -> None:
    offered = await servers.tools({"odd": script(tmp_path)})

    assert (await call(offered, "die_once")).text == "alive"
    assert calls(tmp_path) == ["die_once", "die_once"]

    pid = int((await call(offered, "leave")).text)
    async with asyncio.timeout(10):
        while alive(pid):  # noqa: ASYNC110 - its end is another's
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)  # until its pipe is read to its end
    assert "Paris" in (await call(offered, "weather")).text, "nothing was sent to the one that left, so there is nothing to be unsure of"

    lost = await call(offered, "die")
    assert not lost.ok
    assert "whether it took effect is unknown" in lost.text
    assert calls(tmp_path).count("die") == 1


async def test_child_processes_are_the_same_on_the_loop_of_a_real_gateway(tmp_path: Path) -> None:
    async def used() -> list[str]:
        servers = Servers()
        offered = await servers.tools({"odd": script(tmp_path), "bad": python("import sys; sys.exit('no token')")})
        seen = [*offered.warnings, (await call(offered, "die_once")).text, (await call(offered, "add", a=1, b=2)).text]
        await servers.aclose()
        return seen

    warning, *texts = await asyncio.to_thread(uvloop.run, used())

    assert "it said: no token" in warning
    assert texts == ["alive", "3"]


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (McpServer("bad", command=("no-such-program-here",)), "there is no 'no-such-program-here' to start"),
        (python("import sys; print('boom: no token', file=sys.stderr); sys.exit(3)"), "it said: boom: no token"),
        (python("print('hello, I am no MCP server')"), "Connection closed"),
        (McpServer("bad", url="http://127.0.0.1:9/mcp"), "it cannot be reached"),
    ],
)
async def test_a_server_that_is_not_there_costs_its_tools_and_nothing_else(servers: Servers, server: McpServer, why: str) -> None:
    offered = await servers.tools({"bad": server})

    assert offered.tools == ()
    (warning,) = offered.warnings
    assert warning.startswith("MCP server bad is not available: ")
    assert why in warning


GREETS = """
import json, sys
for message in map(json.loads, sys.stdin):
    answer = None
    if message["method"] == "initialize":
        answer = {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}}
    elif message["method"] == "server/discover":
        answer = {"error": {"code": -32601, "message": "unknown"}}
    if answer:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


@pytest.mark.parametrize(("code", "patience"), [("import time; time.sleep(60)", 0.3), (GREETS, 1.5)], ids=["mute", "without tools"])
async def test_a_server_that_never_answers_holds_nobody_up(code: str, patience: float) -> None:
    servers = Servers(patience)
    begun = time.monotonic()

    offered = await servers.tools({"mute": python(code, "mute")})

    assert offered.warnings == (f"MCP server mute is not available: it is still starting after {patience:g} s",)
    begun_again = time.monotonic()
    assert (await servers.tools({"mute": python(code, "mute")})).warnings == offered.warnings
    assert time.monotonic() - begun_again < 0.2, "it has been waited for"
    await servers.aclose()
    assert time.monotonic() - begun < 20


async def test_a_server_that_fails_again_and_again_rests_longer_and_longer(servers: Servers) -> None:
    bad = {"bad": McpServer("bad", command=("no-such-program-here",))}
    said = [(await servers.tools(bad)).warnings[0] for _ in range(4)]

    assert "tried again" not in said[0] + said[1]
    assert "it is tried again in" in said[3]
