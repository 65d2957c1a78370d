"""The MCP project's own servers as tools of an agent, and its own client in TypeScript at `/mcp`."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from children import SCRIPTS, closed, installed, run
from running import KEY, serving, yaml

from gateway.agent.mcp import Offered, Servers
from gateway.agent.tools import Context, Observation
from gateway.config.agents import McpServer

pytestmark = pytest.mark.node


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    made = Servers()
    yield made
    await made.aclose()


def script(name: str) -> str:
    return str(installed("servers") / "node_modules" / "@modelcontextprotocol" / name / "dist" / "index.js")


async def call(offered: Offered, name: str, seconds: float = 30, **arguments: object) -> Observation:
    tool = next(tool for tool in offered.tools if tool.name == name)
    return await tool.call(arguments, Context(timeout=seconds))


async def test_server_filesystem_reads_and_writes_in_its_folder_only(servers: Servers, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("from the file")
    server = McpServer("files", command=("node", script("server-filesystem"), "."), folder=tmp_path, tools=("read_text_file", "write_file", "edit_file"))
    offered = await servers.tools({"files": server})

    assert {tool.name: tool.repeat for tool in offered.tools} == {"read_text_file": "safe", "write_file": "safe", "edit_file": "ask"}
    assert await call(offered, "read_text_file", path="a.txt") == Observation("from the file", data={"structured": {"content": "from the file"}})
    assert (await call(offered, "write_file", path="b.txt", content="written")).ok
    assert (tmp_path / "b.txt").read_text() == "written"
    outside = await call(offered, "read_text_file", path="/etc/passwd")
    assert not outside.ok
    assert "Access denied" in outside.text


async def use_everything(offered: Offered) -> None:
    assert offered.warnings == ()
    assert (await call(offered, "echo", message="hi")).text == "Echo: hi"
    assert "[image image/png" in (await call(offered, "get-tiny-image")).text
    assert "plaintext resource" in (await call(offered, "get-resource-reference", resourceType="Text", resourceId=1)).text
    assert json.loads((await call(offered, "get-structured-content", location="New York")).text)["temperature"]
    wrong = await call(offered, "get-sum", a="one", b=2)
    assert not wrong.ok
    assert "expected number" in wrong.text
    late = await call(offered, "trigger-long-running-operation", seconds=2, duration=20, steps=40)
    assert "no answer within 2 s; it had come to" in late.text
    assert (await call(offered, "get-sum", a=1, b=2)).text == "The sum of 1 and 2 is 3."


async def test_server_everything_over_stdio(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "a-secret")
    offered = await servers.tools({"everything": McpServer("everything", command=("node", script("server-everything"), "stdio"))})

    await use_everything(offered)
    assert "a-secret" not in (await call(offered, "get-env")).text


async def test_server_everything_over_http(servers: Servers, tmp_path: Path) -> None:
    with free_port() as port:
        pass
    node = shutil.which("node")
    assert node is not None
    none = asyncio.subprocess.DEVNULL
    env = {**closed(tmp_path), "PORT": str(port)}
    process = await asyncio.create_subprocess_exec(node, script("server-everything"), "streamableHttp", env=env, stdin=none, stdout=none, stderr=none)
    try:
        async with asyncio.timeout(30):
            while not await listens(port):  # noqa: ASYNC110 - another process opens it
                await asyncio.sleep(0.05)
        offered = await servers.tools({"everything": McpServer("everything", url=f"http://127.0.0.1:{port}/mcp")})
        await use_everything(offered)
        await servers.aclose()
    finally:
        process.kill()
        await process.wait()


@contextmanager
def free_port() -> Iterator[int]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


async def listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


async def test_t19_the_typescript_sdk_thinks_in_two_sessions(tmp_path: Path) -> None:
    code = (SCRIPTS / "mcp.mjs").read_text()
    async with serving(yaml({"a": "mock://"}, server=f'keys: ["{KEY}"]')) as running:
        env = {**closed(tmp_path), "URL": running.url.removesuffix("/v1") + "/mcp", "KEY": KEY}
        ended = await run(["node", "--input-type=module", "--eval", code], env, installed("servers"))

    assert ended.code == 0, ended.errors
    assert json.loads(ended.out) == {
        "tools": ["calculator", "sequential_thinking", "todo_write"],
        "lengths": [1, 2, 1],
        "refused": 401,
    }
