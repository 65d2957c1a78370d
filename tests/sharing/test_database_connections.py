"""How many connections to PostgreSQL one process has: what README says, also under load and after an outage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest
from running import Running, serving
from servers import Postgres

MOST = 8
"""4 of the store, 2 of the queue of runs, and the two lines on which the process hears of runs"""
ADMIN = {"authorization": "Bearer admin-key-for-tests-0123456789"}
CONFIG = """
server: {admin_key: admin-key-for-tests-0123456789}
providers: {a: {adapter: openai, base_url: "mock://?reply=hello&gap=0", api_key: key-of-a-0123456789}}
models: {m: a/x}
"""
AGENTS = "agents: {p: {pattern: simple, model: m, system: Be brief}}\n"


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[Postgres]:
    """One that may be killed without harm to other tests."""
    server = Postgres()
    yield server
    server.close()


class Counted:
    """The most connections that were seen at a time, and what is there now."""

    def __init__(self, server: Postgres) -> None:
        self.server = server
        self.most = self.now = 0

    async def watch(self) -> None:
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(self.server.uri, autocommit=True) as connection:
                    while True:
                        rows = await (await connection.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'counted'")).fetchall()
                        self.now = rows[0][0]
                        self.most = max(self.most, self.now)
                        await asyncio.sleep(0.01)
            except psycopg.Error:  # the server is away
                await asyncio.sleep(0.1)


@asynccontextmanager
async def counting(server: Postgres, config: str) -> AsyncIterator[tuple[Running, Counted]]:
    counted = Counted(server)
    watcher = asyncio.create_task(counted.watch())
    try:
        async with serving(f"{config}store: {server.fresh()}&application_name=counted\n") as running:
            yield running, counted
    finally:
        watcher.cancel()
        await asyncio.wait([watcher])


async def load(running: Running, agents: bool = True) -> None:
    """Many of everything that asks the store, at once."""
    client = running.client
    asked = [running.chat() for _ in range(40)] + [client.get("/admin/requests", headers=ADMIN) for _ in range(40)]
    if agents:
        asked += [client.post("/v1/agents/p/runs", json={"input": f"hi {n}", "background": True}) for n in range(40)]
    got = await asyncio.gather(*asked)
    assert {answer.status_code for answer in got} <= {200, 202}
    ids = [answer.json()["id"] for answer in got if answer.status_code == 202]
    events = await asyncio.gather(*(client.get(f"/v1/runs/{id}/events") for id in ids))
    for answer in events:
        assert "run.finished" in answer.text, answer.text


async def test_a_process_with_agents_has_no_more_than_the_documented_number(own_postgres: Postgres) -> None:
    async with counting(own_postgres, CONFIG + AGENTS) as (running, counted):
        for _ in range(2):
            await load(running)
        own_postgres.kill()
        await asyncio.to_thread(own_postgres.start)
        async with asyncio.timeout(30):
            while running.gateway.runs.state()["work"]["error"] or not running.gateway.runs.state()["journal"]["listening"]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await load(running)

    assert 4 < counted.most <= MOST
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert f"at most {MOST} connections" in readme


async def test_a_process_without_agents_has_no_more_than_those_of_the_store(own_postgres: Postgres) -> None:
    async with counting(own_postgres, CONFIG) as (running, counted):
        for _ in range(3):
            await load(running, agents=False)

    assert 1 <= counted.most <= 4
