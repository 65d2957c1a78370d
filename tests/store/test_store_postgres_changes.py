"""A PostgreSQL that takes few connections, becomes read-only, or fails over to another server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import asynccontextmanager
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from servers import Postgres

from gateway.store import StoreUnavailable, open_store
from gateway.store.postgres import _target


@pytest.fixture(scope="module")
def other() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.close()


def read_only(server: Postgres, on: bool) -> None:
    """As a primary is that was demoted: those that are connected may read on."""
    with psycopg.connect(server.uri, autocommit=True, options="-c default_transaction_read_only=off") as connection:
        connection.execute(f"ALTER SYSTEM SET default_transaction_read_only = {'on' if on else 'off'}")
        connection.execute("SELECT pg_reload_conf()")


@asynccontextmanager
async def demoted(server: Postgres):
    read_only(server, True)
    try:
        await asyncio.sleep(0.3)  # until its processes have read that
        yield
    finally:
        read_only(server, False)
        await asyncio.sleep(0.3)


async def test_where_the_server_takes_few_connections_those_that_there_are_have_to_do(postgres, tmp_path, key):
    url = postgres.fresh()
    schema = url.rpartition("%3D")[2]
    postgres.execute("CREATE ROLE few LOGIN CONNECTION LIMIT 1")
    postgres.execute(f"GRANT ALL ON SCHEMA {schema} TO few")
    store = await open_store(f"{url}&user=few", tmp_path)
    try:
        await store.add_key(key())
        found = await asyncio.gather(*(store.keys() for _ in range(60)))
        assert found == [[key()]] * 60
    finally:
        await store.aclose()


async def test_where_others_have_all_connections_the_caller_hears_it_at_once(postgres, tmp_path, key):
    url = postgres.fresh()
    schema = url.rpartition("%3D")[2]
    postgres.execute("CREATE ROLE nobody LOGIN")
    postgres.execute(f"GRANT ALL ON SCHEMA {schema} TO nobody")
    store = await open_store(f"{url}&user=nobody", tmp_path)
    postgres.execute("ALTER ROLE nobody CONNECTION LIMIT 0")
    try:
        async with asyncio.timeout(5):
            refused = await asyncio.gather(*(store.keys() for _ in range(20)), return_exceptions=True)
        assert {type(error) for error in refused} == {StoreUnavailable}
        postgres.execute("ALTER ROLE nobody CONNECTION LIMIT 5")
        assert await store.keys() == []
    finally:
        await store.aclose()


async def test_a_server_that_became_read_only_says_so_and_serves_reads(postgres, tmp_path, key):
    store = await open_store(postgres.fresh(), tmp_path)
    try:
        await store.add_key(key())
        async with demoted(postgres):
            with pytest.raises(StoreUnavailable, match="read-only now"):
                await store.add_key(key("k2"))
            assert await store.keys() == [key()]
            assert await store.check() == "ok"
        await store.add_key(key("k2"))
    finally:
        await store.aclose()


async def test_of_several_hosts_the_one_that_can_be_written_is_used_also_after_they_changed_roles(postgres, other, tmp_path, key):
    """The first write after that fails; it drops the connections to the old primary, where they would be read-only for ever."""
    hosts = [server.uri.rpartition("host=")[2].partition("&")[0] for server in (postgres, other)]
    for server in (postgres, other):
        server.execute("CREATE SCHEMA roles")
        await (await open_store(f"{server.uri}&options={quote('-c search_path=roles')}", tmp_path)).aclose()
    url = f"postgresql://postgres@/postgres?host={','.join(hosts)}&options={quote('-c search_path=roles')}"

    async with demoted(postgres):
        store = await open_store(url, tmp_path)
        await asyncio.gather(*(store.keys() for _ in range(20)))  # several connections
        await store.add_key(key("on the second"))
    try:
        async with demoted(other):
            with pytest.raises(StoreUnavailable):
                await store.add_key(key("lost"))
            await store.add_key(key("on the first"))
            assert [row.id for row in await store.keys()] == ["on the first"]
    finally:
        await store.aclose()


def test_hosts_are_told_apart_by_the_url_alone() -> None:
    assert "target_session_attrs=read-write" in _target("postgresql://a,b/x")
    assert "target_session_attrs" not in _target("postgresql://a/x")
    assert "target_session_attrs=any" in _target("postgresql://a,b/x?target_session_attrs=any")


async def test_a_server_that_is_away_is_noticed_at_once_by_all_who_ask_together(postgres, tmp_path, key):
    """A balancer takes every connection and ends it, as it does while no server is behind it."""
    url, folder = postgres.fresh(), conninfo_to_dict(postgres.uri)["host"]
    away, tries, pipes = False, 0, set()

    async def served(reader, writer):
        nonlocal tries
        tries += away
        if away:
            await asyncio.sleep(0.002 * (1 + tries % 3))
            writer.close()
            return
        there, back = await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.5432")
        pipes.update((writer, back))
        await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer), return_exceptions=True)

    async with await asyncio.start_server(served, "127.0.0.1", 0) as balancer:
        here = f"host=127.0.0.1&port={balancer.sockets[0].getsockname()[1]}&sslmode=disable&gssencmode=disable"
        store = await open_store(url.replace(f"host={folder}", here), tmp_path)
        try:
            await store.add_key(key())
            away = True
            for pipe in pipes:
                pipe.close()
            async with asyncio.timeout(5):
                refused = await asyncio.gather(*(store.keys() for _ in range(8)), return_exceptions=True)
            assert {type(error) for error in refused} == {StoreUnavailable}
            assert tries < 20, "each of them tries once or twice"
            away = False
            assert await store.keys() == [key()]
        finally:
            await store.aclose()
            for pipe in pipes:
                pipe.close()


async def _pass_on(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
