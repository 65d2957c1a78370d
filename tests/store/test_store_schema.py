from __future__ import annotations

import asyncio
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.store import SqlStore, StoreRefused, StoreUnavailable, open_store
from gateway.store.engine import Engine, Sql, Steps
from gateway.store.postgres import Postgres
from gateway.store.schema import MIGRATIONS, migrate, version
from gateway.store.sqlite import Sqlite

WIDER = (*MIGRATIONS, ("ALTER TABLE thinkgate_keys ADD COLUMN note TEXT", "CREATE TABLE thinkgate_notes (id TEXT PRIMARY KEY, text {blob}, seq BIGINT)"))
BROKEN = (*WIDER, ("CREATE TABLE thinkgate_more (id TEXT)", "UPDATE thinkgate_keys SET nonsense = 1"))


async def engine_of(url: str) -> Engine:
    return await (Postgres.open(url) if url.startswith("postgresql") else Sqlite.open(url.removeprefix("sqlite:///")))


def statement(text: str) -> Steps[list]:
    return (yield Sql(text))


async def empty(engine: Engine) -> None:
    for table in ("keys", "requests", "totals", "runs", "events", "sessions", "waiting", "meta"):
        await engine.write(statement(f"DROP TABLE thinkgate_{table}"))


@pytest.mark.parametrize("found", range(len(MIGRATIONS) + 1))
async def test_every_earlier_schema_is_brought_up_to_date_with_its_data(shared_url, tmp_path, found, key):
    engine = await engine_of(shared_url)
    await empty(engine)
    await engine.write(migrate(engine.dialect, MIGRATIONS[:found])) if found else None
    if found:
        await SqlStore(engine).add_key(key())
    await engine.aclose()

    store = await open_store(shared_url, tmp_path)

    assert await store.keys() == ([key()] if found else [])
    assert await store.engine.read(version(store.engine.dialect)) == len(MIGRATIONS)
    assert await store.check() == "ok"
    await store.aclose()


async def test_a_later_migration_keeps_keys_requests_and_pepper(store, key, done):
    await store.add_key(key())
    await store.write_requests([done(cost=1.0, key_id="k1")])
    pepper = await store.pepper()

    assert await store.engine.write(migrate(store.engine.dialect, WIDER)) == len(MIGRATIONS)
    assert await store.engine.write(migrate(store.engine.dialect, WIDER)) == len(WIDER)

    assert await store.keys() == [key()]
    assert await store.spent(key_id="k1") == 1.0
    assert await store.pepper() == pepper
    assert await store.engine.read(statement("SELECT id, text, seq FROM thinkgate_notes")) == []


async def test_a_migration_that_fails_leaves_everything_as_it_was(store, key):
    await store.add_key(key())

    with pytest.raises(StoreUnavailable):
        await store.engine.write(migrate(store.engine.dialect, BROKEN))

    assert await store.engine.read(version(store.engine.dialect)) == len(MIGRATIONS)
    with pytest.raises(StoreUnavailable):
        await store.engine.read(statement("SELECT 1 FROM thinkgate_notes"))
    assert await store.keys() == [key()]


async def test_a_newer_schema_is_refused_and_left_alone(shared_url, tmp_path, key):
    engine = await engine_of(shared_url)
    await SqlStore(engine).add_key(key())
    await engine.write(migrate(engine.dialect, WIDER))

    with pytest.raises(StoreRefused, match=f"has schema {len(WIDER)}, this version knows {len(MIGRATIONS)}"):
        await open_store(shared_url, tmp_path)

    assert await engine.read(version(engine.dialect)) == len(WIDER)
    assert await SqlStore(engine).keys() == [key()]
    await engine.aclose()


async def test_stores_that_open_at_once_make_one_schema(shared_url, tmp_path):
    stores = await asyncio.gather(*(open_store(shared_url, tmp_path) for _ in range(8)))

    assert len({await store.pepper() for store in stores}) == 1
    await asyncio.gather(*(store.aclose() for store in stores))


def test_processes_that_open_at_once_make_one_schema(shared_url, tmp_path):
    program = (
        "import asyncio, sys, pathlib\n"
        "from gateway.store import open_store\n"
        "async def main():\n"
        "    store = await open_store(sys.argv[1], pathlib.Path())\n"
        "    print((await store.pepper()).hex())\n"
        "    await store.aclose()\n"
        "asyncio.run(main())\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, shared_url], stdout=subprocess.PIPE, cwd=Path.cwd()) for _ in range(4)]

    peppers = [process.communicate(timeout=30)[0] for process in running]

    assert len(set(peppers)) == 1
    assert re.fullmatch(rb"[0-9a-f]{64}\n", peppers[0])


@pytest.mark.parametrize("url", ["mysql://x", "sqlite:x.db", "sqlite://relative.db", "sqlite:///x.db?mode=ro", "", "redis://user:hunter2@h"])
async def test_what_is_no_store_is_refused_without_its_password(url, tmp_path):
    with pytest.raises(StoreRefused) as raised:
        await open_store(url, tmp_path)

    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("what", ["no folder", "a folder", "no database"])
async def test_a_file_that_cannot_be_used_is_named(what, tmp_path):
    if what == "a folder":
        (tmp_path / "x.db").mkdir()
    if what == "no database":
        (tmp_path / "x.db").write_bytes(b"This is a letter, and no database at all." * 100)

    with pytest.raises(StoreRefused, match=r"x\.db cannot be used"):
        await open_store("sqlite:///no/x.db" if what == "no folder" else "sqlite:///x.db", tmp_path)


async def test_tables_of_others_are_left_alone(tmp_path):
    with sqlite3.connect(tmp_path / "x.db") as mine:
        mine.execute("CREATE TABLE keys (id)")
    mine.close()

    store = await open_store("sqlite:///x.db", tmp_path)

    assert await store.engine.read(statement("SELECT name FROM sqlite_master WHERE name = 'keys'")) == [("keys",)]
    await store.aclose()
