"""Who runs background runs (issue point 8, D11): real processes that are killed, frozen and stopped, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from agent.journal_worker import POINTS, STEPS

from gateway.agent.journal import Journal
from gateway.agent.work import DEATHS, Work, lock_of
from gateway.config import Retention
from gateway.errors import Overloaded
from gateway.store import LEASE, RunRow, Sql, SqlStore, StoreRefused, Wait, open_queue, open_store

SCRIPT = Path(__file__).with_name("journal_worker.py")
TAKE_OVER = 10.0
"""seconds after which a dead worker's runs must go on elsewhere"""


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    return "sqlite:///runs.db" if request.param == "sqlite" else request.getfixturevalue("postgres").fresh()


@asynccontextmanager
async def opened(url: str, folder: Path) -> AsyncIterator[tuple[SqlStore, Journal]]:
    store = await open_store(url, folder)
    journal = Journal(store)
    await journal.open()
    try:
        yield store, journal
    finally:
        await journal.aclose()
        await store.aclose()


@pytest.fixture
async def journal(url: str, tmp_path: Path) -> AsyncIterator[Journal]:
    async with opened(url, tmp_path) as (_, journal):
        yield journal


class Workers:
    """Processes of journal_worker.py on one database, and what they noted."""

    def __init__(self, url: str, folder: Path, lease: float) -> None:
        self.log = folder / "log"
        self.command = [sys.executable, str(SCRIPT), url, str(folder), str(self.log), str(lease)]
        self.processes: list[subprocess.Popen[bytes]] = []

    async def start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(self.command)  # noqa: ASYNC220
        self.processes.append(process)
        await until(lambda: any(pid == process.pid and what == "ready" for pid, _, what, _ in self.notes()), 30)
        return process

    def notes(self) -> list[tuple[int, str, str, str]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [(int(pid), id, what, number) for pid, id, what, number in map(str.split, lines)]

    def work(self, id: str) -> list[tuple[int, int]]:
        """Which process did which step of a run, in order."""
        return [(int(number), pid) for pid, run, what, number in self.notes() if run == id and what == "work"]

    def by(self, id: str) -> subprocess.Popen[bytes]:
        """The process that did a run's last step."""
        pid = self.work(id)[-1][1]
        return next(process for process in self.processes if process.pid == pid)

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()


@pytest.fixture
def workers(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Workers]:
    """On SQLite with a short lease, to save time; on PostgreSQL as it is served."""
    made = Workers(url, tmp_path, getattr(request, "param", 1.5 if url.startswith("sqlite") else LEASE))
    yield made
    made.close()


async def until(true: Callable[[], object], seconds: float = 20.0) -> float:
    """Wait for something to be so; how long it took."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds, "it took too long"
        await asyncio.sleep(0.02)
    return time.monotonic() - began


async def ended(journal: Journal, *ids: str, seconds: float = 30.0) -> list[RunRow]:
    rows: list[RunRow] = []
    async with asyncio.timeout(seconds):
        for id in ids:
            while not (row := await journal.row(id)).over:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            rows.append(row)
    return rows


async def queue(journal: Journal, id: str, steps: int, delay: float) -> None:
    await journal.create(RunRow(id, "tiny", background=True, detached=True, input={"steps": steps, "delay": delay}))


async def stream(journal: Journal, id: str) -> list[int]:
    async with aclosing(journal.follow(id)) as items:
        return [item.seq async for item in items]


@pytest.mark.parametrize("workers", [0.5], indirect=True)
async def test_killed_at_every_point_a_run_goes_on_and_nothing_finished_is_repeated(journal, workers):
    """The crash matrix: kill -9 before and after every append."""
    matrix = await asyncio.to_thread(subprocess.run, [*workers.command, "matrix"], timeout=60, check=True)
    assert matrix.returncode == 0
    await workers.start()
    ids = [f"run_{number}" for number in range(len(POINTS))]

    rows = await ended(journal, *ids)

    for row, (when, step) in zip(rows, POINTS, strict=True):
        assert (row.status, row.output, row.last_seq) == ("completed", "done", STEPS + 1)
        assert [event.seq for event in await journal.events(row.id)] == list(range(1, STEPS + 2))
        over = step == STEPS + 1 and when == "after"
        assert (row.epoch, row.attempts) == ((1, 0) if over else (2, 1))
        done = Counter(number for number, _ in workers.work(row.id))
        assert done == {number: 2 if (when, number) == ("before", step) else 1 for number in range(1, STEPS + 2)}


async def test_a_killed_workers_run_goes_on_elsewhere_in_time_and_a_reader_sees_it_whole(journal, workers):
    await workers.start()
    await workers.start()
    await queue(journal, "run_1", 40, 0.05)
    reading = asyncio.create_task(stream(journal, "run_1"))
    await until(lambda: len(workers.work("run_1")) > 3)
    first = workers.by("run_1")

    first.kill()
    took = await until(lambda: workers.by("run_1") is not first, 30)

    (row,) = await ended(journal, "run_1")
    assert took < TAKE_OVER
    assert (row.status, row.epoch, row.attempts) == ("completed", 2, 1)
    assert await reading == list(range(1, 42))
    repeated = [step for step, times in Counter(step for step, _ in workers.work("run_1")).items() if times > 1]
    assert len(repeated) <= 1  # the one that was under way
    assert [event.state["epoch"] for event in await journal.events("run_1")] == sorted(event.state["epoch"] for event in await journal.events("run_1"))


async def test_a_stopped_worker_gives_its_runs_back_at_once(journal, workers):
    await workers.start()
    await workers.start()
    await queue(journal, "run_1", 40, 0.05)
    await until(lambda: len(workers.work("run_1")) > 3)
    first = workers.by("run_1")

    first.terminate()
    assert await asyncio.to_thread(first.wait, 20) == 0
    took = await until(lambda: workers.by("run_1") is not first)

    (row,) = await ended(journal, "run_1")
    assert took < LEASE  # nobody had to wait for a lease to end
    assert (row.status, row.last_seq, row.attempts) == ("completed", 41, 0)


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_replicas_share_the_runs_and_a_frozen_one_is_fenced_out(journal, workers):
    """The zombie: stopped past its lease, it wakes, finds its run taken, and what it has done is not kept."""
    for _ in range(2):
        await workers.start()
    for number in range(6):  # three at a time each
        await queue(journal, f"run_{number}", 40, 0.05)
    await until(lambda: all(workers.work(f"run_{number}") for number in range(6)))
    assert len({workers.by(f"run_{number}").pid for number in range(6)}) == 2
    frozen = workers.by("run_0")
    other = next(process for process in workers.processes if process is not frozen)

    frozen.send_signal(signal.SIGSTOP)
    took = await until(lambda: workers.by("run_0") is other, 30)
    frozen.send_signal(signal.SIGCONT)

    rows = await ended(journal, *(f"run_{number}" for number in range(6)))
    assert took < 2 * TAKE_OVER  # its own three come first
    assert {row.status for row in rows} == {"completed"}
    assert [event.seq for event in await journal.events("run_0")] == list(range(1, 42))
    await until(lambda: (frozen.pid, "run_0", "fenced", "1") in workers.notes())
    await queue(journal, "run_6", 1, 0)
    await ended(journal, "run_6")


# ---- in this process ----


async def lapse(journal: Journal, id: str) -> None:
    def steps() -> Any:
        yield Sql("UPDATE thinkgate_runs SET lease_until = 1 WHERE id = ?", (id,))

    await journal.runs.engine.write(steps())


@asynccontextmanager
async def working(journal: Journal, resume: Callable[[str], Awaitable[None]], concurrency: int = 8) -> AsyncIterator[Work]:
    work = Work(journal, journal, resume, concurrency)
    await work.open()
    try:
        yield work
    finally:
        await work.aclose()


class Taken:
    """Ends each run that it is given, and notes it."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.ids: list[str] = []

    async def __call__(self, id: str) -> None:
        row = await self.journal.claim(id, also=("waiting",))
        if row is not None:
            self.ids.append(id)
            await self.journal.finish(row, "completed")


async def test_a_queued_run_is_taken_at_once_and_one_that_nobody_told_of_soon(journal):
    taken = Taken(journal)
    async with working(journal, taken) as work:
        assert work.state() == {"takes": False, "running": 0, "queue": False, "error": None}  # nothing is opened for nothing
        await queue(journal, "run_1", 1, 0)
        began = time.monotonic()
        await work.put("run_1")
        await ended(journal, "run_1")
        assert time.monotonic() - began < 1.5
        await queue(journal, "run_2", 1, 0)
        await ended(journal, "run_2")
    assert taken.ids == ["run_1", "run_2"]
    assert work.state()["error"] is None


async def test_a_run_whose_answer_came_too_late_goes_on(journal):
    """An approval that nobody gave in time: the run goes on, and knows that it was refused."""
    await journal.create(RunRow("run_1", "tiny"), journal.owner)
    await journal.append("run_1", 1, (), {"status": "waiting", "wake_at": journal.now() - 1}, [Wait("c", journal.now() - 1)], after=0)
    await journal.create(RunRow("run_2", "tiny"), journal.owner)
    await journal.append("run_2", 1, (), {"status": "waiting", "wake_at": journal.now() + 1000}, after=0)
    taken = Taken(journal)
    async with working(journal, taken):
        await ended(journal, "run_1")
    assert taken.ids == ["run_1"]


async def test_a_run_that_died_with_its_request_is_ended(journal):
    await journal.create(RunRow("run_1", "tiny"), "another process")
    await journal.append("run_1", 1, (), {"output": "so far"}, after=0)
    await lapse(journal, "run_1")
    taken = Taken(journal)
    async with working(journal, taken):
        (row,) = await ended(journal, "run_1")
    assert (row.status, row.reason, row.output) == ("incomplete", "crash", "so far")
    assert taken.ids == []


async def test_a_run_that_kills_its_processes_is_ended(journal):
    """Poison: it is taken over a few times and then no more."""
    await queue(journal, "run_1", 1, 0)
    deaths = 0

    async def die(id: str) -> None:
        nonlocal deaths
        if await journal.claim(id) is not None:
            deaths += 1
            await lapse(journal, id)

    async with working(journal, die):
        (row,) = await ended(journal, "run_1")
    assert deaths == DEATHS
    assert (row.status, row.reason, row.error["code"], row.attempts) == ("failed", "crash", "crash", DEATHS)


async def test_a_run_that_cannot_be_taken_up_does_not_hold_the_others_up(journal):
    taken = Taken(journal)
    tries = 0

    async def resume(id: str) -> None:
        nonlocal tries
        if id == "bad" and tries < 1:
            tries += 1
            raise Overloaded("not now")
        await taken(id)

    await queue(journal, "bad", 1, 0)
    await queue(journal, "good", 1, 0)
    async with working(journal, resume):
        await ended(journal, "good", "bad")
    assert taken.ids == ["good", "bad"]


async def test_no_more_runs_at_a_time_than_the_cap(journal):
    busy = most = 0

    async def resume(id: str) -> None:
        nonlocal busy, most
        row = await journal.claim(id)
        if row is not None:
            busy += 1
            most = max(most, busy)
            await asyncio.sleep(0.1)
            busy -= 1
            await journal.finish(row, "completed")

    ids = [f"run_{number}" for number in range(7)]
    for id in ids:
        await queue(journal, id, 1, 0)
    async with working(journal, resume, concurrency=3):
        await ended(journal, *ids)
    assert most == 3


async def test_old_runs_are_forgotten_while_it_works(journal):
    for number in range(5):
        await queue(journal, f"run_{number}", 1, 0)
        await journal.finish(await journal.claim(f"run_{number}"), "completed")
    async with working(journal, Taken(journal)) as work:
        work.keep(Retention(max_runs=2))
        await left(journal, 2)
        work.keep(Retention(runs=0.001))
        await left(journal, 0)


async def left(journal: Journal, count: int) -> None:
    async with asyncio.timeout(10):
        while len((await journal.page()).rows) != count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_on_sqlite_one_process_works_and_the_next_takes_its_place(tmp_path):
    async with opened("sqlite:///runs.db", tmp_path) as (_, one), opened("sqlite:///runs.db", tmp_path) as (_, other):
        first, second = Taken(one), Taken(other)
        async with working(one, first) as mine, working(other, second) as theirs:
            await asyncio.sleep(0.1)
            assert not lock_of(tmp_path / "runs.db").exists()
            await queue(one, "run_0", 1, 0)
            await mine.put("run_0")
            assert lock_of(tmp_path / "runs.db").stat().st_mode & 0o777 == 0o600
            await queue(other, "run_1", 1, 0)
            await theirs.put("run_1")
            await ended(other, "run_0", "run_1")
            assert (mine.state()["takes"], theirs.state()["takes"]) == (True, False)
            await mine.aclose()
            await queue(other, "run_2", 1, 0)
            await ended(other, "run_2")
        assert (first.ids, second.ids) == (["run_0", "run_1"], ["run_2"])


async def test_in_memory_this_process_works(tmp_path):
    async with opened("sqlite://", tmp_path) as (store, journal):
        taken = Taken(journal)
        async with working(journal, taken) as work:
            await queue(journal, "run_1", 1, 0)
            await work.put("run_1")
            await ended(journal, "run_1")
        with pytest.raises(StoreRefused):
            await open_queue(store.engine, taken, 1)


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
async def test_the_queue_is_found_again_when_the_server_comes_back(journal, postgres):
    taken = Taken(journal)
    async with working(journal, taken) as work:
        await queue(journal, "run_1", 1, 0)
        await ended(journal, "run_1")
        assert work.state()["queue"]
        postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
        await queue_again(journal, "run_2")
        await work.put("run_2")
        await ended(journal, "run_2")
    assert taken.ids == ["run_1", "run_2"]


async def test_where_the_queue_may_not_be_made_replicas_take_what_they_find(postgres, tmp_path):
    url = postgres.fresh()
    schema = url.rpartition("%3D")[2]
    postgres.execute(f"CREATE ROLE poor_{schema} LOGIN; GRANT ALL ON SCHEMA {schema} TO poor_{schema}")
    async with opened(f"{url}&user=poor_{schema}", tmp_path) as (_, journal):
        taken = Taken(journal)
        async with working(journal, taken) as work:
            for number in range(3):
                await queue(journal, f"run_{number}", 1, 0)
            await ended(journal, "run_0", "run_1", "run_2")
            state = work.state()
        assert sorted(taken.ids) == ["run_0", "run_1", "run_2"]
        assert (state["queue"], state["error"]) == (False, "no queue: InsufficientPrivilege")


async def queue_again(journal: Journal, id: str) -> None:
    async with asyncio.timeout(10):
        while True:
            try:
                await queue(journal, id, 1, 0)
            except Overloaded:
                await asyncio.sleep(0.1)
            else:
                return
