"""The line on which a replica hears of other replicas' runs: nothing makes it deaf for good, and an outage is told once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from servers import Postgres

from gateway.agent.events import Event
from gateway.agent.journal import FAR, Journal
from gateway.store import RunRow, open_store


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[Postgres]:
    """One that may be killed without harm to other tests."""
    server = Postgres()
    yield server
    server.close()


@asynccontextmanager
async def replica(url: str, folder: Path) -> AsyncIterator[Journal]:
    store = await open_store(url, folder)
    journal = Journal(store)
    await journal.open()
    try:
        yield journal
    finally:
        await journal.aclose()
        await store.aclose()


async def eventually(done: Callable[[], bool], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def heard_after(writer: Journal, reader: Journal, id: str) -> float:
    """Seconds until the reader has an event that the writer appends."""
    loop = asyncio.get_running_loop()
    row, _ = await writer.create(RunRow(id, "a", "t", input={"messages": []}), writer.owner)
    async with aclosing(reader.follow(id)) as events:
        first = asyncio.ensure_future(anext(events))
        await eventually(lambda: reader.state()["listening"])
        await asyncio.sleep(0.3)
        began = loop.time()
        await writer.append(id, row.epoch, [Event(id, 1, "run.started", 0, {}, "start", None, writer.now(), "a")])
        assert (await asyncio.wait_for(first, 10)).type == "run.started"
        return loop.time() - began


async def test_words_of_somebody_else_on_the_channel_do_not_make_a_replica_deaf(own_postgres: Postgres, tmp_path: Path) -> None:
    url = own_postgres.fresh()
    async with replica(url, tmp_path) as writer, replica(url, tmp_path) as reader:
        await heard_after(writer, reader, "r1")
        own_postgres.execute("SELECT pg_notify('thinkgate_runs', 'not ours'), pg_notify('thinkgate_runs', '')")

        assert await heard_after(writer, reader, "r2") < FAR / 2, "told, not looked up"


async def test_an_outage_is_told_once_and_its_end_too(own_postgres: Postgres, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url = own_postgres.fresh()
    async with replica(url, tmp_path) as writer, replica(url, tmp_path) as reader:
        await heard_after(writer, reader, "r1")
        own_postgres.kill()
        try:
            await eventually(lambda: "does not hear the others" in caplog.text)
            await asyncio.sleep(2.5)
        finally:
            await asyncio.to_thread(own_postgres.start)
        await eventually(lambda: caplog.text.count("hears the others again") >= 1)
        deaf = [record for record in caplog.records if "does not hear the others" in record.message]

        assert await heard_after(writer, reader, "r2") < FAR / 2
    assert len(deaf) <= 2, "once for each of the two"
