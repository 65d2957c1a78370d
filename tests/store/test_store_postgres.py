from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from gateway.errors import Conflict
from gateway.store import Sql, SqlStore, Steps, StoreRefused, StoreUnavailable, open_store
from gateway.store.postgres import Postgres


def statement(text: str) -> Steps[list]:
    return (yield Sql(text))


async def ask_on(store: SqlStore) -> None:
    while True:
        await store.key_version()


async def test_a_killed_server_loses_nothing_that_was_kept_and_is_found_again(postgres, tmp_path, key, done):
    store = await open_store(postgres.fresh(), tmp_path)
    await store.add_key(key())
    await store.write_requests([done(str(i), cost=1.0, key_id="k") for i in range(100)])
    batch = [done("later", cost=1.0, key_id="k")]

    postgres.kill()
    with pytest.raises(StoreUnavailable):
        await ask_on(store)  # its children answer for a moment
    with pytest.raises(StoreUnavailable):
        await store.write_requests(batch)

    await asyncio.to_thread(postgres.start)

    assert await store.write_requests(batch) == 1
    assert await store.keys() == [key()]
    assert await store.spent(key_id="k") == 101.0
    assert await store.check() == "ok"
    await store.aclose()


async def test_connections_that_the_server_ended_are_replaced(postgres, tmp_path, key):
    store = await open_store(postgres.fresh(), tmp_path)
    await store.add_key(key())

    postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'thinkgate'")

    assert await store.keys() == [key()]
    await store.aclose()


async def test_a_frozen_server_is_told_in_time(postgres, key):
    store = SqlStore(await Postgres.open(postgres.fresh() + "&connect_timeout=1", patience=0.5))
    ((backend,),) = await store.engine.read(statement("SELECT pg_backend_pid()"))
    os.kill(postgres.pid, signal.SIGSTOP)
    os.kill(backend, signal.SIGSTOP)
    began = time.monotonic()
    try:
        told = await store.check()
        took = time.monotonic() - began
    finally:
        os.kill(postgres.pid, signal.SIGCONT)
        os.kill(backend, signal.SIGCONT)

    assert told == "the store does not serve: ConnectionTimeout"
    assert took < 4
    await store.add_key(key())
    assert await store.keys() == [key()]
    await store.aclose()


async def test_a_statement_that_takes_too_long_is_ended_and_undone(postgres, key):
    store = SqlStore(await Postgres.open(postgres.fresh(), patience=0.5))

    def slow() -> Steps[None]:
        yield Sql("UPDATE thinkgate_meta SET number = 99 WHERE name = 'keys'")
        yield Sql("SELECT pg_sleep(5)")

    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="QueryCanceled 57014"):
        await store.engine.write(slow())

    assert time.monotonic() - began < 2
    assert await store.key_version() == 0
    await store.aclose()


async def test_a_server_that_falls_silent_in_a_transaction_is_told_in_time(postgres, key):
    store = SqlStore(await Postgres.open(postgres.fresh(), patience=0.5))
    backends = []

    def silenced() -> Steps[None]:
        ((pid,),) = yield Sql("SELECT pg_backend_pid()")
        backends.append(pid)
        os.kill(pid, signal.SIGSTOP)
        yield Sql("UPDATE thinkgate_meta SET number = 99 WHERE name = 'keys'")

    began = time.monotonic()
    try:
        with pytest.raises(StoreUnavailable, match="in time"):
            await store.engine.write(silenced())
        assert time.monotonic() - began < 2
    finally:
        os.kill(backends[0], signal.SIGCONT)

    assert await store.key_version() == 0
    await store.aclose()


async def test_a_replica_that_freezes_in_a_transaction_does_not_keep_its_locks(postgres, key):
    url = postgres.fresh()
    frozen, other = SqlStore(await Postgres.open(url, patience=0.5)), SqlStore(await Postgres.open(url))
    await other.add_key(key())

    def freezing() -> Steps[None]:
        yield Sql("UPDATE thinkgate_keys SET rpm = 99 WHERE id = 'k1'")
        time.sleep(0.8)  # the whole process stands still
        yield Sql("SELECT 1")

    with pytest.raises(StoreUnavailable):
        await frozen.engine.write(freezing())

    assert (await other.update_key("k1", tpm=1)).rpm is None
    await frozen.aclose()
    await other.aclose()


async def test_more_callers_than_connections_are_all_served(postgres, tmp_path):
    store = await open_store(postgres.fresh() + "&application_name=many", tmp_path)

    assert await asyncio.gather(*(store.key_version() for _ in range(60))) == [0] * 60

    ((count,),) = await store.engine.read(statement("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'many'"))
    assert count == 4
    await store.aclose()


@pytest.mark.parametrize(
    "url",
    [
        *("postgresql://u:hunter2@127.0.0.1:1/x", "postgresql://u:hunter2@127.0.0.1:port/x", "postgresql://u:hunter2@[::1/x?nonsense=1"),
        *("postgresql://u:hunter2/x", "postgresql://u:pass@hunter2@127.0.0.1:1/x", "postgresql://u:pass/hunter2@127.0.0.1:1/x"),
        *("postgresql://u:hunter2%zz@127.0.0.1:1/x", "postgresql://127.0.0.1:1/x?user=u&password=hunter2", "postgresql://u:x:hunter2@127.0.0.1:1/x"),
    ],
)
async def test_a_server_that_is_not_there_is_refused_without_its_password(url, tmp_path):
    with pytest.raises(StoreRefused, match="cannot be used") as raised:
        await open_store(url, tmp_path)

    assert "hunter2" not in str(raised.value) + repr(raised.value.__cause__)


async def test_a_password_that_the_server_quotes_is_masked(postgres, tmp_path):
    with pytest.raises(StoreRefused, match=r'role "\*\*\*" does not exist'):
        await open_store(postgres.uri.replace("postgres:@", "hunter2:hunter2@"), tmp_path)


@pytest.mark.parametrize("where", ["127.0.0.1:1", "[::1]:1", "127.0.0.1:1,[::1]:1", "u@127.0.0.1:1", "u:p%40@127.0.0.1:1"])
async def test_what_the_driver_says_about_a_good_url_is_shown(where, tmp_path):
    with pytest.raises(StoreRefused, match="port 1 failed"):
        await open_store(f"postgresql://{where}/x", tmp_path)


async def test_writers_of_the_same_sums_do_not_lock_each_other_out(postgres, tmp_path, done):
    url = postgres.fresh()
    one, other = await open_store(url, tmp_path), await open_store(url, tmp_path)

    for n in range(15):
        rows = [done(f"{n}.{i}", key_id=f"k{i}", key=f"k{i}") for i in range(150)]
        again = [done(f"{n}.{i}", key_id=f"k{i}", key=f"k{i}") for i in reversed(range(150))]
        assert await asyncio.gather(one.write_requests(rows), other.write_requests(again)) == [150, 150]

    await one.aclose()
    await other.aclose()


async def test_a_refused_call_keeps_its_connection(postgres, tmp_path, key):
    store = await open_store(postgres.fresh(), tmp_path)
    await store.add_key(key())
    before = await store.engine.read(statement("SELECT pg_backend_pid()"))

    with pytest.raises(Conflict):
        await store.add_key(key())

    assert await store.engine.read(statement("SELECT pg_backend_pid()")) == before
    await store.aclose()


async def test_a_role_that_may_not_define_tables_can_use_them(postgres, tmp_path, key):
    url = postgres.fresh()
    await (await open_store(url, tmp_path)).aclose()
    schema = url.rpartition("%3D")[2]
    for text in (
        f"CREATE ROLE {schema} LOGIN",
        f"GRANT USAGE ON SCHEMA {schema} TO {schema}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {schema}",
    ):
        postgres.execute(text)

    store = await open_store(url.replace("postgres:@", f"{schema}@"), tmp_path)

    await store.add_key(key())
    assert await store.keys() == [key()]
    assert await store.engine.read(statement("SELECT current_user::text")) == [(schema,)]
    await store.aclose()


async def test_a_backup_is_left_to_the_servers_own_tool(postgres, tmp_path):
    store = await open_store(postgres.fresh(), tmp_path)

    with pytest.raises(StoreRefused, match="pg_dump"):
        await store.backup(tmp_path / "copy")

    await store.aclose()
