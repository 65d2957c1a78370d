"""Two real gateways on one database, one is killed: its run goes on in the other, and who reads there sees the whole (issue, "crash matrix")."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from agents_yaml import AGENTS, says, until
from running import yaml
from upstream_double import HANG, Upstream

SUM = ("calculator", '{"expression": "2+3"}')


class Replica:
    def __init__(self, process: subprocess.Popen[bytes], client: httpx.AsyncClient) -> None:
        self.process = process
        self.client = client

    async def up(self) -> bool:
        try:
            return (await self.client.get("/healthz")).status_code == 200
        except httpx.TransportError:
            return False

    async def live(self) -> int:
        return int((await self.client.get("/readyz")).json()["agents"]["live"])

    async def run(self, id: str) -> dict[str, Any]:
        return dict((await self.client.get(f"/v1/runs/{id}")).json())


@asynccontextmanager
async def replica(config: Path) -> AsyncIterator[Replica]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "gateway", "serve", "-c", str(config), "--port", str(port)]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(command, cwd=config.parent, env=env, stderr=subprocess.DEVNULL, start_new_session=True)  # noqa: ASYNC220
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as client:
        try:
            made = Replica(process, client)
            await until(made.up, 30)
            yield made
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


async def ids(client: httpx.AsyncClient, run: str) -> list[int]:
    """The ids of a run's events, read until its end."""
    text = (await client.get(f"/v1/runs/{run}/events")).text
    return [int(line.removeprefix("id: ")) for line in text.splitlines() if line.startswith("id: ")]


@pytest.mark.parametrize(("store", "how"), [("sqlite", signal.SIGKILL), ("postgresql", signal.SIGKILL), ("postgresql", signal.SIGTERM)])
async def test_a_run_goes_on_in_another_gateway_when_its_own_is_killed_or_stopped(
    a: Upstream, tmp_path: Path, store: str, how: signal.Signals, request: pytest.FixtureRequest
) -> None:
    url = "sqlite:///thinkgate.db" if store == "sqlite" else request.getfixturevalue("postgres").fresh()
    config = tmp_path / "thinkgate.yaml"
    config.write_text(yaml({"a": a.url}, more=f'{AGENTS}\nstore: "{url}"\n'))
    says(a, SUM)
    a.stream(HANG)
    says(a, "It is 5.")
    async with AsyncExitStack() as stack:
        both = [await stack.enter_async_context(replica(config)) for _ in range(2)]
        answer = await both[0].client.post("/v1/agents/calc/runs", json={"input": "What is 2+3?", "background": True})
        assert answer.status_code == 202
        run = answer.json()["id"]
        await until(lambda: len(a.requests) == 2, 20)
        lives = [await each.live() for each in both]
        assert sorted(lives) == [0, 1]
        owner, other = both[lives.index(1)], both[lives.index(0)]
        reading = asyncio.create_task(ids(other.client, run))

        os.killpg(owner.process.pid, how)

        seen = await asyncio.wait_for(reading, 40)
        found = await other.run(run)
        assert (found["status"], found["output"]) == ("completed", "It is 5.")
        assert seen == list(range(1, len(seen) + 1))
        assert seen == await ids(other.client, run)
        # the first turn and the calculator were over: only the turn that was under way is asked for again
        assert len(a.requests) == 3
        roles = [[message["role"] for message in sent.json["messages"]] for sent in a.requests]
        assert roles[1] == roles[2]
        assert [role for role in roles[1] if role == "tool"] == ["tool"]
