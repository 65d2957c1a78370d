"""A Valkey that is there and says no: full, read-only, emptied, part of a cluster, loading, busy.

Requests are served as without one, and it is used again when it serves.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from running import serving
from servers import Valkey, free_port
from test_two_replicas import BEARER, alternating, eventually, pair, shared, text
from upstream_double import Upstream, completion

from gateway.store import Shared
from gateway.store.resp import Link, Place, encode
from gateway.store.shared import _moved


async def told(url: str, *words: str) -> Any:
    """The server's answer to one command."""
    link, _ = await Link.open(Place.parse(url))
    try:
        return await link.ask(encode(*[word.encode() for word in words]))
    finally:
        link.close()


@pytest.fixture
async def own(own_valkey: Valkey) -> AsyncIterator[Valkey]:
    yield own_valkey
    for words in (("CONFIG", "SET", "maxmemory", "0"), ("REPLICAOF", "NO", "ONE")):
        await told(own_valkey.fresh(), *words)


FULL = (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0"), "OOM")
READ_ONLY = (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE"), "READONLY")


@pytest.mark.parametrize(("broken", "mended", "word"), [FULL, READ_ONLY], ids=["full", "read-only"])
async def test_one_that_writes_nothing_is_away_until_it_does(a: Upstream, own: Valkey, broken: Any, mended: Any, word: str) -> None:
    a.reply(completion(), repeat=200)
    url = own.fresh()

    async with pair(text(a, url, "rpm: 20")) as both:
        before = await alternating(both, 8)
        await told(url, *broken)
        at_once = await alternating(both, 8)
        await eventually(lambda: all(shared(running)["state"] == "away" for running in both))
        why = {shared(running)["error"].split()[0] for running in both}
        later = await alternating(both, 40)
        await told(url, *mended)
        await eventually(lambda: all(shared(running)["state"] == "up" for running in both))
        after = await alternating(both, 10)

    assert Counter(g.status_code for g in (*before, *at_once)) == {200: 16}
    assert why == {word}
    assert Counter(g.status_code for g in later) == {200: 4, 429: 36}, "each has 10, of which it used 8"
    assert Counter(g.status_code for g in after) == {429: 10}


async def test_one_that_forgot_its_scripts_is_told_them_again(a: Upstream, own: Valkey) -> None:
    a.reply(completion(), repeat=50)
    url = own.fresh()

    async with serving(text(a, url, "rpm: 1000")) as running:
        await eventually(lambda: shared(running)["state"] == "up")
        lost = running.gateway.shared
        assert lost is not None
        await told(url, "SCRIPT", "FLUSH")
        got = [await running.chat(**BEARER) for _ in range(5)]
        await eventually(lambda: lost.lost == 1 and shared(running)["state"] == "up")

    assert {g.status_code for g in got} == {200}


async def test_one_that_lost_all_its_data_is_told_what_was_used(a: Upstream, own: Valkey) -> None:
    """FLUSHALL, or a replica of it that knew less: the connection stands, the counts are gone."""
    a.reply(completion(), repeat=200)
    url = own.fresh()

    async with pair(text(a, url, "rpm: 20")) as both:
        before = await alternating(both, 20)
        await told(url, "FLUSHALL")

        async def known() -> bool:
            names = await told(url, "KEYS", "{thinkgate}:limits:*:r")
            return bool(names) and int(await told(url, "ZCARD", names[0].decode())) == 20

        await eventually(known)
        after = await alternating(both, 40)

    assert Counter(g.status_code for g in before) == {200: 20}
    assert Counter(g.status_code for g in after) == {429: 40}
    assert len(a.requests) == 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[Valkey, Valkey]]:
    """Two nodes, the second has all slots."""
    nodes = tuple(Valkey("--cluster-enabled", "yes", "--cluster-port", str(free_port())) for _ in range(2))
    yield nodes  # type: ignore[misc]
    for node in nodes:
        node.close()


async def test_a_node_of_a_cluster_that_names_another_one_is_followed(a: Upstream, cluster: tuple[Valkey, Valkey]) -> None:
    a.reply(completion(), repeat=100)
    urls = [node.fresh().replace(f"/{node._databases}?", "/0?") for node in cluster]
    bus = (await told(urls[1], "CONFIG", "GET", "cluster-port"))[1].decode()
    await told(urls[0], "CLUSTER", "MEET", "127.0.0.1", str(cluster[1].port), bus)
    await told(urls[1], "CLUSTER", "ADDSLOTSRANGE", "0", "16383")

    async def joined() -> bool:
        return b"cluster_state:ok" in await told(urls[0], "CLUSTER", "INFO")

    await eventually(joined, 30.0)
    async with pair(text(a, urls[0], "rpm: 10")) as both:
        got = await alternating(both, 40)
        state = shared(both[0])["state"]

    assert state == "up"
    assert Counter(g.status_code for g in got) == {200: 10, 429: 30}


@pytest.mark.parametrize(
    "answer", [b"-LOADING Valkey is loading the dataset in memory\r\n", b"-NOAUTH Authentication required.\r\n", b"-MOVED 1 127.0.0.1:1\r\n"]
)
async def test_one_that_answers_everything_with_an_error_is_away(a: Upstream, answer: bytes) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(answer * max(1, data.count(b"\r\n*")))
        writer.close()

    a.reply(completion(), repeat=5)
    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server, serving(text(a, f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}", "rpm: 3")) as running:
        got = [(await running.chat(**BEARER)).status_code for _ in range(4)]
        state = shared(running)

    assert got == [200, 200, 200, 429]
    assert state["state"] == "away"
    assert answer[1:].split()[0].decode() in state["error"]


async def test_the_end_of_a_process_does_not_fail_where_the_server_says_no(own: Valkey) -> None:
    url = own.fresh()
    leaving = Shared(url)
    await leaving.open()
    await told(url, "CONFIG", "SET", "busy-reply-threshold", "10")
    endless = asyncio.create_task(told(url, "EVAL", "while true do end", "0"))
    await asyncio.sleep(0.1)
    try:
        await leaving.aclose()
    finally:
        await killed(url)
        await asyncio.gather(endless, return_exceptions=True)


async def killed(url: str) -> None:
    """End the script that is running; while it does, the server takes this command alone."""
    place = Place.parse(url)
    link = await asyncio.open_connection(place.host, place.port)
    link[1].write(encode(b"AUTH", Valkey.PASSWORD.encode()) + encode(b"SCRIPT", b"KILL"))
    assert await link[0].readline() == b"+OK\r\n"
    assert await link[0].readline() == b"+OK\r\n"
    link[1].close()
    await link[1].wait_closed()


def test_a_place_that_a_cluster_names_is_read_as_nodes_write_it() -> None:
    place = Place.parse("redis://:secret@first:7000")
    found = [_moved(text, place) for text in ("MOVED 3999 10.0.0.7:7001", "MOVED 3999 :7001", "MOVED 3999 [::1]:7001", "MOVED 3999 x:y", "ERR no")]
    assert [(p.host, p.port, p.password) for p in found] == [
        ("10.0.0.7", 7001, "secret"),
        ("first", 7001, "secret"),
        ("::1", 7001, "secret"),
        ("first", 7000, "secret"),
        ("first", 7000, "secret"),
    ]
