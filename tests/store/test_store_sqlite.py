from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway.store import Sql, Steps, StoreRefused, StoreUnavailable, open_store


def statement(text: str) -> Steps[list]:
    return (yield Sql(text))


@pytest.fixture
async def store(tmp_path):
    store = await open_store("sqlite:///store.db", tmp_path)
    yield store
    await store.aclose()


async def test_a_file_that_another_process_is_setting_up_is_waited_for(tmp_path):
    other = sqlite3.connect(tmp_path / "new.db", isolation_level=None, check_same_thread=False)
    other.execute("CREATE TABLE t (a)")
    other.execute("BEGIN IMMEDIATE")
    opening = asyncio.create_task(open_store("sqlite:///new.db", tmp_path))
    await asyncio.sleep(0.1)

    other.execute("COMMIT")

    store = await opening
    assert await store.check() == "ok"
    await store.aclose()
    other.close()


async def test_the_file_is_its_owners_alone(store, tmp_path, key):
    await store.add_key(key())

    files = sorted(tmp_path.glob("store.db*"))
    assert [file.name for file in files] == ["store.db", "store.db-shm", "store.db-wal"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


async def test_a_locked_file_is_told_soon_and_the_loop_goes_on(store, tmp_path, key):
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.005)
            longest = max(longest, time.monotonic() - before)

    watching = asyncio.create_task(watch())
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="locked"):
        await store.add_key(key())
    took = time.monotonic() - began
    watching.cancel()

    assert 0.15 < took < 2
    assert longest < 0.15
    assert await store.keys() == []
    other.execute("ROLLBACK")
    other.close()
    await store.add_key(key())


async def test_readers_do_not_wait_for_a_writer(store, tmp_path, key):
    await store.add_key(key())
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    other.execute("DELETE FROM thinkgate_keys")

    assert await asyncio.wait_for(store.keys(), 0.15) == [key()]

    other.execute("ROLLBACK")
    other.close()


async def test_a_full_disk_is_told_and_what_was_written_stays(store, done):
    await store.write_requests([done("before")])
    pages = (await store.engine.write(statement("PRAGMA page_count")))[0][0]
    await store.engine.write(statement(f"PRAGMA max_page_count = {pages}"))

    with pytest.raises(StoreUnavailable, match="full"):
        await _fill(store, done)

    assert await store.request("before") is not None
    assert sum(row.requests for row in await store.usage("model")) % 100 == 1
    await store.engine.write(statement("PRAGMA max_page_count = 1000000"))
    assert await store.write_requests([done("after")]) == 1


async def _fill(store, done):
    for n in range(100):
        await store.write_requests([done(f"{n}.{i}", attempts=({"message": "x" * 300},)) for i in range(100)])


async def test_the_reader_cannot_write(store):
    with pytest.raises(StoreUnavailable):
        await store.engine.read(statement("DELETE FROM thinkgate_keys"))


async def test_only_what_must_survive_a_power_cut_waits_for_the_disk(store):
    normal, full = 1, 2

    assert await store.engine.write(statement("PRAGMA synchronous"), durable=True) == [(full,)]
    assert await store.engine.write(statement("PRAGMA synchronous")) == [(normal,)]


@pytest.mark.parametrize("url", ["sqlite:///store.db", "sqlite://"])
async def test_a_backup_is_a_store_of_its_own(url, tmp_path, key, done):
    store = await open_store(url, tmp_path)
    await store.add_key(key())
    await store.write_requests([done()])
    copy = tmp_path / "it's a copy.db"

    await store.backup(copy)
    await store.delete_key("k1")

    restored = await open_store("sqlite:///it's a copy.db", tmp_path)
    assert await restored.keys() == [key()]
    assert (await restored.request("r1")).model == "smart"
    assert await restored.pepper() == await store.pepper()
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    await restored.aclose()
    await store.aclose()


async def test_a_backup_replaces_no_file_and_leaves_no_half(store, tmp_path):
    (tmp_path / "mine").write_text("kept")

    with pytest.raises(StoreRefused, match="exists"):
        await store.backup(tmp_path / "mine")
    with pytest.raises(StoreRefused, match="No such file"):
        await store.backup(tmp_path / "nowhere" / "copy.db")

    assert (tmp_path / "mine").read_text() == "kept"
    assert not list(tmp_path.glob("*.part"))


async def test_a_backup_is_whole_while_writers_write(store, tmp_path, done):
    writing = asyncio.create_task(_write(store, done))
    await asyncio.sleep(0.02)

    await store.backup(tmp_path / "copy.db")

    await writing
    copy = await open_store("sqlite:///copy.db", tmp_path)
    kept = sum(row.requests for row in await copy.usage("model"))
    assert kept % 50 == 0
    await copy.aclose()


async def _write(store, done):
    for i in range(30):
        await store.write_requests([done(f"{i}.{j}") for j in range(50)])


def test_what_was_kept_survives_a_killed_process(tmp_path):
    program = (
        "import asyncio, pathlib\n"
        "from gateway.store import RequestRow, open_store\n"
        "async def main():\n"
        "    store = await open_store('sqlite:///store.db', pathlib.Path())\n"
        "    for i in range(10**6):\n"
        "        await store.write_requests([RequestRow(f'{i}.{j}', 0.0, 'chat', 'm', 200, cost=1.0, key_id='k') for j in range(10)])\n"
        "        print(i + 1, flush=True)\n"
        "asyncio.run(main())\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=tmp_path, env=environment)
    assert process.stdout is not None
    while int(process.stdout.readline()) < 20:
        pass
    process.send_signal(signal.SIGKILL)
    told = [20, *map(int, process.stdout.read().split())][-1]
    process.wait(10)
    process.stdout.close()

    async def kept() -> tuple[int, float]:
        store = await open_store("sqlite:///store.db", tmp_path)
        try:
            return sum(row.requests for row in await store.usage("model")), await store.spent(key_id="k")
        finally:
            await store.aclose()

    count, cost = asyncio.run(kept())
    assert count in (told * 10, told * 10 + 10)
    assert cost == count


async def test_a_store_in_memory_keeps_the_newest_requests_and_all_sums(tmp_path, done, monkeypatch):
    monkeypatch.setattr("gateway.store.MOST_IN_MEMORY", 10)
    store = await open_store("sqlite://", tmp_path)
    for start in range(0, 28, 7):
        await store.write_requests([done(f"r{number}") for number in range(start, start + 7)])

    page = await store.requests()
    assert [row.id for row in page.rows] == [f"r{number}" for number in range(27, 17, -1)]
    assert [row.requests for row in await store.usage("model")] == [28]
    await store.aclose()


async def test_a_file_keeps_every_request(store, done, monkeypatch):
    monkeypatch.setattr("gateway.store.MOST_IN_MEMORY", 10)
    await store.write_requests([done(f"r{number}") for number in range(20)])

    assert len((await store.requests()).rows) == 20
