"""Old runs are forgotten by one process on a store (reliability 4d: one owner for periodic work)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.agent import forgetting
from gateway.agent.forgetting import Forgetting
from gateway.agent.journal import Journal
from gateway.config import Retention
from gateway.store import RunRow, Sql, SqlStore, Steps, open_store


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db" if request.param == "sqlite" else request.getfixturevalue("postgres").fresh()


@pytest.fixture
async def pair(url: str, tmp_path: Path) -> AsyncIterator[tuple[SqlStore, SqlStore]]:
    """Two replicas on one database, or two workers on one file."""
    stores = await open_store(url, tmp_path), await open_store(url, tmp_path)
    yield stores
    for store in stores:
        await store.aclose()


async def over(store: SqlStore, *ids: str) -> None:
    """Runs that have ended."""
    journal = Journal(store)
    for id in ids:
        row, _ = await journal.create(RunRow(id, "a", "t", input={"messages": []}), journal.owner)
        await journal.finish(row, "completed")
    await journal.aclose()


async def ids(store: SqlStore) -> set[str]:
    return {row.id for row in (await store.runs.page()).rows}


@asynccontextmanager
async def forgets(store: SqlStore, retention: Retention) -> AsyncIterator[Forgetting]:
    made = Forgetting(store.runs, lambda: 4e9)  # by this clock every run is old
    made.keep(retention)
    made.open()
    try:
        yield made
    finally:
        await made.aclose()


async def eventually(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def left(store: SqlStore, *wanted: str) -> None:
    async with asyncio.timeout(10):
        while await ids(store) != set(wanted):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_round_is_done_by_one_process_on_the_store_and_a_new_setting_at_once(pair: tuple[SqlStore, SqlStore]) -> None:
    one, other = pair
    await over(one, "r1", "r2")
    async with forgets(one, Retention(runs=86400)):
        await left(one)
        await over(one, "r3", "r4")
        async with forgets(other, Retention(runs=86400)) as second:
            await asyncio.sleep(0.5)
            assert await ids(other) == {"r3", "r4"}, "this hour's round was done"

            second.keep(Retention(runs=86400, max_runs=1))
            await left(other)


async def test_a_round_that_fails_is_gone_on_with_by_whoever_took_it(
    pair: tuple[SqlStore, SqlStore], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(forgetting, "_AGAIN", 0.1)
    store = pair[0]
    await over(store, "r1")
    await store.engine.write(renamed("thinkgate_waiting", "away"))  # the claim succeeds, the deletion does not

    async with forgets(store, Retention(max_runs=0)):
        await eventually(lambda: "old runs could not be forgotten" in caplog.text)
        await store.engine.write(renamed("away", "thinkgate_waiting"))
        await left(store)


async def test_a_clock_that_was_set_back_does_not_stop_a_task(pair: tuple[SqlStore, SqlStore]) -> None:
    store = pair[0]
    assert await store.claim("t", 3600)
    await store.engine.write(in_a_year("task:t"))

    assert await store.claim("t", 3600)
    assert not await store.claim("t", 3600)


def renamed(table: str, name: str) -> Steps[None]:
    yield Sql(f"ALTER TABLE {table} RENAME TO {name}")


def in_a_year(name: str) -> Steps[None]:
    yield Sql("UPDATE thinkgate_meta SET number = number + 31536000 WHERE name = ?", (name,))
