"""The journal over a real store (D10, agents.md 5.4): in memory, on SQLite and, across replicas, on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.agent.events import Delta, Event
from gateway.agent.journal import Journal, MemoryJournal
from gateway.errors import Conflict, NotFound
from gateway.store import Busy, Fenced, RunRow, Sql, SqlStore, StoreUnavailable, Wait, open_store, session_key

KEY = session_key("k", "analyst", "s")


def row(id: str = "run_1", **changes: Any) -> RunRow:
    return replace(RunRow(id, "analyst", tenant="k"), **changes)


def thought(seq: int, run: str = "run_1", **changes: Any) -> Event:
    fields: dict[str, Any] = {"step": 1, "data": {"thought": str(seq)}, "key": str(seq), "state": {"turn": seq}, "time": 5.0, "agent": "analyst"}
    return Event(run, seq, "thought", **(fields | changes))


def finished(seq: int, run: str = "run_1") -> Event:
    return Event(run, seq, "run.finished", 1, {"status": "completed"}, "end", None, 5.0, "analyst")


@pytest.fixture(params=["library", "sqlite", "postgresql"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    if request.param == "library":
        journal: Journal = MemoryJournal()
        await journal.open()
        yield journal
        await journal.aclose()
        return
    url = "sqlite:///runs.db" if request.param == "sqlite" else request.getfixturevalue("postgres").fresh()
    store = await open_store(url, tmp_path)
    journal = Journal(store)
    await journal.open()
    yield journal
    await journal.aclose()
    await store.aclose()


@pytest.fixture(params=["sqlite", "postgresql"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Journal, Journal]]:
    """Two processes' journals over one database."""
    url = "sqlite:///runs.db" if request.param == "sqlite" else request.getfixturevalue("postgres").fresh()
    stores = [await open_store(url, tmp_path) for _ in range(2)]
    one, other = (Journal(store) for store in stores)
    await one.open()
    await other.open()
    yield one, other
    for journal, store in zip((one, other), stores, strict=True):
        await journal.aclose()
        await store.aclose()


async def lapse(journal: Journal, id: str = "run_1") -> None:
    def steps() -> Any:
        yield Sql("UPDATE thinkgate_runs SET lease_until = 1 WHERE id = ?", (id,))

    await journal.runs.engine.write(steps())


async def read(journal: Journal, after: int = 0, run: str = "run_1") -> list[Event | Delta]:
    async with asyncio.timeout(20):
        async with aclosing(journal.follow(run, after)) as items:
            return [item async for item in items]


async def tell(journal: Journal, *events: Event, epoch: int = 1, **changes: Any) -> None:
    await journal.append(events[0].run_id, epoch, events, changes)
    for event in events:
        journal.publish(event.run_id, event)


async def test_what_was_appended_is_loaded_as_it_was(journal):
    await journal.create(row(input=["hello"]), journal.owner)
    nested = thought(3, inner="run_2", parent="run_1", agent="writer", state=None)
    await journal.append("run_1", 1, [thought(1), thought(2, data={"n": 2**70, "text": "ü\0"})])
    await journal.append("run_1", 1, [nested], {"output": "x"})

    found, events = await journal.load("run_1")

    assert (found.output, found.input, found.last_seq) == ("x", ["hello"], 3)
    assert events == [thought(1), thought(2, data={"n": 2**70, "text": "ü\0"}), nested]
    with pytest.raises(NotFound) as missing:
        await journal.load("none")
    assert missing.value.code == "run_not_found"


async def test_a_long_journal_is_loaded_whole(journal):
    await journal.create(row(), journal.owner)
    await journal.append("run_1", 1, [thought(seq) for seq in range(1, 1202)])

    assert [event.seq for event in (await journal.load("run_1"))[1]] == list(range(1, 1202))
    assert [event.seq for event in await journal.events("run_1", 1199)] == [1200, 1201]


async def test_a_write_without_events_says_what_it_follows(journal):
    await journal.create(row(), journal.owner)
    await journal.append("run_1", 1, (), {"steps": 2}, after=0)
    assert (await journal.row("run_1")).steps == 2
    with pytest.raises(ValueError, match="follows"):
        await journal.append("run_1", 1, (), {"steps": 3})
    with pytest.raises(Fenced):
        await journal.append("run_1", 1, (), {"steps": 3}, after=4)


async def test_a_reader_gets_what_was_and_what_comes_until_the_end(journal):
    await journal.create(row(), journal.owner)
    await tell(journal, thought(1))
    reading = [asyncio.create_task(read(journal, after)) for after in (0, 1, 2)]
    await asyncio.sleep(0.05)
    await tell(journal, thought(2), thought(3))
    await asyncio.sleep(0.05)
    await tell(journal, finished(4), status="completed")

    for after, task in enumerate(reading):
        assert await task == [thought(1), thought(2), thought(3), finished(4)][after:]
    assert await read(journal, 3) == [finished(4)]
    assert await read(journal, 4) == []
    assert await read(journal, run="none") == []


async def test_pieces_of_text_reach_who_listens_now_and_are_never_kept(journal):
    await journal.create(row(), journal.owner)
    reading = asyncio.create_task(read(journal))
    await asyncio.sleep(0.05)
    for item in (Delta("reasoning", "a"), Delta("reasoning", "b"), Delta("content", "c")):
        journal.publish("run_1", item)
    await tell(journal, thought(1))
    journal.publish("run_1", Delta("content", "d"))
    await tell(journal, finished(2), status="completed")

    assert await reading == [Delta("reasoning", "ab"), Delta("content", "c"), thought(1), Delta("content", "d"), finished(2)]
    assert await read(journal) == [thought(1), finished(2)]


async def test_a_reader_who_does_not_keep_up_costs_nobody_and_misses_nothing(journal):
    await journal.create(row(), journal.owner)
    slow = journal.follow("run_1")
    first = asyncio.ensure_future(anext(slow))
    await asyncio.sleep(0.05)
    await tell(journal, thought(1))
    assert await first == thought(1)

    last = 3000
    for start in range(2, last, 500):
        await tell(journal, *(thought(seq) for seq in range(start, min(start + 500, last))))
    (reader,) = journal._readers["run_1"]
    assert len(reader.items) <= 1000
    await tell(journal, finished(last), status="completed")

    assert [item.seq async for item in slow] == list(range(2, last + 1))
    assert journal.state()["readers"] == 0


async def test_a_reader_goes_on_through_a_wait_and_a_take_over(journal):
    await journal.create(row(detached=True), journal.owner)
    reading = asyncio.create_task(read(journal))
    await tell(journal, thought(1))
    await journal.append("run_1", 1, (), {"status": "waiting"}, after=1, waits=[Wait("c")])
    claimed = await journal.claim("run_1", also=("waiting",), calls=["c"], events=[thought(0, key="answer")])
    assert (claimed.epoch, claimed.last_seq) == (2, 2)
    await lapse(journal)
    claimed = await journal.claim("run_1")
    await tell(journal, finished(3), epoch=claimed.epoch, status="completed")

    assert [(item.seq, item.key) for item in await reading] == [(1, "1"), (2, "answer"), (3, "end")]


async def test_a_reader_elsewhere_sees_the_stream_as_it_happens(pair):
    """Their events readable from every replica while they happen (issue: PostgreSQL by NOTIFY, SQLite by looking)."""
    one, other = pair
    await one.create(row(), one.owner)
    seen: list[Event | Delta] = []

    async def watch() -> None:
        async with aclosing(other.follow("run_1")) as items:
            async for item in items:
                seen.append(item)  # noqa: PERF401, somebody looks at it meanwhile

    watching = asyncio.create_task(watch())
    for seq in range(1, 4):
        await tell(one, thought(seq))
        async with asyncio.timeout(5):
            while len(seen) < seq:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    await tell(one, finished(4), status="completed")
    async with asyncio.timeout(5):
        await watching
    assert seen == [thought(1), thought(2), thought(3), finished(4)]


async def test_a_held_run_is_not_left_alone_however_long_it_is_silent(pair):
    one, other = pair
    one.runs.lease = 0.6
    await one.create(row(), one.owner)
    async with one.holding("run_1", 1, lambda: None):
        for _ in range(5):
            await asyncio.sleep(0.2)
            assert await other.claim("run_1") is None
        await one.append("run_1", 1, [thought(1)])
    assert one.state()["held"] == 0
    async with asyncio.timeout(10):
        while await other.claim("run_1") is None:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def test_who_lost_his_run_is_stopped(pair):
    one, other = pair
    one.runs.lease = 0.6
    await one.create(row(), one.owner)

    async def hold() -> None:
        async with asyncio.timeout(20), one.holding("run_1", 1, lambda: None):
            await lapse(one)
            assert (await other.claim("run_1")).epoch == 2
            await asyncio.sleep(30)

    with pytest.raises(Fenced):
        await hold()
    assert asyncio.current_task().cancelling() == 0


async def test_a_hold_passes_a_cancellation_on_and_ends_with_its_run(journal):
    journal.runs.lease = 0.3
    await journal.create(row(), journal.owner)

    async def hold() -> None:
        async with journal.holding("run_1", 1, lambda: None):
            await journal.append("run_1", 1, [finished(1)], {"status": "completed"})
            await asyncio.sleep(0.5)  # the run is over, what is left to do here is not disturbed
            await asyncio.sleep(30)

    task = asyncio.create_task(hold())
    await asyncio.sleep(1.0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_run_is_told_to_end_from_any_replica(pair):
    one, other = pair
    one.runs.lease = 0.6
    await one.create(row(), one.owner)
    told = asyncio.Event()
    async with asyncio.timeout(10), one.holding("run_1", 1, told.set):
        asked = await other.ask_cancel("run_1")
        assert (asked.status, asked.cancel) == ("running", True)
        await told.wait()
    assert (await one.append("run_1", 1, [thought(1)])).cancel


async def test_a_waiting_or_queued_run_is_cancelled_at_once(journal):
    await journal.create(row())
    await journal.create(row("run_2", session=KEY, session_id="s"), journal.owner)
    await journal.append("run_2", 1, [thought(1, "run_2")], {"status": "waiting", "waiting": {"calls": []}, "output": "so far"}, waits=[Wait("c")])

    for id, last in (("run_1", 1), ("run_2", 2)):
        ended = await journal.cancel(await journal.row(id))
        assert (ended.status, ended.last_seq, ended.waiting) == ("cancelled", last, None)
        (*_, event) = await read(journal, run=id)
        assert (event.type, event.key, event.data["status"], event.data["output"]) == ("run.finished", "end", "cancelled", ended.output)
    assert (await journal.session(KEY)).run_id is None
    with pytest.raises(Conflict):
        await journal.waiting("k", ["c"])


async def test_a_run_whose_process_died_is_buried_with_its_best_answer(journal):
    """Reason `crash`: its answer so far, and it can be gone on with."""
    await journal.create(row(session=KEY, session_id="s"), journal.owner)
    await journal.append("run_1", 1, [Event("run_1", 1, "run.started", key="start"), thought(2)], {"output": "so far"})
    assert await journal.bury("run_1", poison=False) is None  # it lives
    await lapse(journal)

    ended = await journal.bury("run_1", poison=False)

    assert (ended.status, ended.reason, ended.output, ended.error["code"]) == ("incomplete", "crash", "so far", "crash")
    last = (await read(journal))[-1]
    assert (last.type, last.seq, last.step, last.data) == ("run.finished", 3, 1, {"status": "incomplete", "reason": "crash", "output": "so far"})
    assert (await journal.session(KEY)).run_id is None
    assert await journal.claim("run_1", also=("incomplete",)) is not None


async def test_a_run_that_was_gone_on_with_ends_under_a_key_of_its_own(journal):
    await journal.create(row(), journal.owner)
    started = Event("run_1", 1, "run.started", key="start")
    await journal.append("run_1", 1, [started, finished(2)], {"status": "incomplete"})
    claimed = await journal.claim("run_1", also=("incomplete",), events=[Event("run_1", 0, "run.started", key="2:start")])

    ended = await journal.fail(claimed, "no such agent", "agent_gone")

    assert (ended.status, ended.error) == ("failed", {"message": "no such agent", "type": "server_error", "code": "agent_gone"})
    assert [(event.type, event.key) for event in await journal.events("run_1", 2)] == [("run.started", "2:start"), ("run.finished", "2:end")]


async def test_a_fork_has_the_events_up_to_a_point_and_waits_for_anybody(journal):
    await journal.create(row(), journal.owner)
    await journal.append("run_1", 1, [thought(seq) for seq in range(1, 5)])

    forked = await journal.fork("run_1", 2, row("run_2", background=True), thought(2, data={"other": True}))

    assert (forked.status, forked.forked_from, forked.forked_seq, forked.last_seq) == ("queued", "run_1", 2, 2)
    assert (await journal.load("run_2"))[1] == [thought(1, "run_2"), thought(2, "run_2", data={"other": True})]


async def test_a_session_is_saved_read_and_forgotten(journal):
    await journal.create(row(session=KEY, session_id="s"), journal.owner)
    with pytest.raises(Busy):
        await journal.create(row("run_2", session=KEY, session_id="s"), journal.owner)
    await journal.append("run_1", 1, [finished(1)], {"status": "completed"}, session={"todo": 1})

    found = await journal.session(KEY)
    saved = await journal.save_session(replace(found, state={"todo": 2}))

    assert (found.state, saved.state, saved.version) == ({"todo": 1}, {"todo": 2}, found.version + 1)
    assert await journal.delete_session(KEY)
    assert await journal.session(KEY) is None


async def test_an_outage_is_waited_for_and_nothing_is_kept_twice(tmp_path):
    """A store that was locked, or restarted, while a run writes."""
    import sqlite3

    store = await open_store("sqlite:///runs.db", tmp_path)
    journal = Journal(store)
    await journal.create(row(), journal.owner)
    other = sqlite3.connect(tmp_path / "runs.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    writing = asyncio.create_task(journal.append("run_1", 1, [thought(1)]))
    await asyncio.sleep(0.5)
    assert not writing.done()
    with pytest.raises(StoreUnavailable):
        await journal.claim("run_1")
    other.execute("ROLLBACK")
    other.close()

    assert (await writing).last_seq == 1
    assert [event.seq for event in (await journal.load("run_1"))[1]] == [1]
    await store.aclose()


async def test_leases_and_expiries_go_by_the_stores_clock(journal):
    import time

    journal._skew = 1000.0
    await journal.open()
    assert abs(journal.now() - time.time()) < 5


async def test_readers_end_with_their_process(tmp_path):
    store: SqlStore = await open_store("sqlite://", tmp_path)
    journal = Journal(store)
    await journal.open()
    await journal.create(row(), journal.owner)
    reading = asyncio.create_task(read(journal))
    await asyncio.sleep(0.05)
    await journal.aclose()
    assert await reading == []
    await store.aclose()


async def test_the_librarys_journal_keeps_the_newest_runs_and_uses_no_thread():
    import threading

    before = set(threading.enumerate())
    journal = MemoryJournal(keep=3)
    for i in range(6):
        await journal.create(row(f"run_{i}"), journal.owner)
        await journal.append(f"run_{i}", 1, [finished(1, f"run_{i}")], {"status": "completed"})

    assert [found.id for found in (await journal.page()).rows] == ["run_5", "run_4", "run_3"]
    assert set(threading.enumerate()) <= before
    await journal.aclose()
    with pytest.raises(StoreUnavailable):
        await journal.page()
