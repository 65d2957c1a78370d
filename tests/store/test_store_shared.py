"""Several stores on one database, as replicas and workers are."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from gateway.errors import Conflict
from gateway.store import Sql, Steps, StoreUnavailable


async def test_a_change_of_a_key_is_seen_by_the_other_replica_at_once(pair, key):
    one, other = pair
    before = await other.key_version()

    await one.add_key(key())
    assert await other.key_version() > before
    assert await other.key_by_digest(key().digest) == key()

    await one.revoke_key("k1", 5.0)
    assert (await other.keys())[0].revoked == 5.0


async def patient(call):
    """What a caller does when the file is locked: the same again."""
    for _ in range(50):
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(0.01)
    raise AssertionError("never served")


async def test_no_change_is_lost_between_two_writers(pair, key):
    before = await pair[0].key_version()

    await asyncio.gather(*(patient(lambda s=store, i=i, n=n: s.add_key(key(f"{n}.{i}"))) for n, store in enumerate(pair) for i in range(20)))

    assert len(await pair[1].keys()) == 40
    assert await pair[0].key_version() == before + 40


async def test_fields_that_two_replicas_change_at_once_are_both_kept(pair, key):
    await pair[0].add_key(key())

    for n in range(1, 11):
        await asyncio.gather(patient(lambda n=n: pair[0].update_key("k1", rpm=n)), patient(lambda n=n: pair[1].update_key("k1", tpm=n)))
        row = (await pair[0].keys())[0]
        assert (row.rpm, row.tpm) == (n, n)


async def test_one_of_two_equal_keys_is_refused(pair, key):
    results = await asyncio.gather(*(patient(lambda s=store: s.add_key(key())) for store in pair), return_exceptions=True)

    assert sorted(type(result) for result in results if result is not None) == [Conflict]
    assert await pair[0].keys() == [key()]


async def test_sums_of_two_writers_add_up(pair, done):
    async def work(store, n):
        for i in range(15):
            batch = [done(f"{n}.{i}.{j}", key_id=f"k{j}", key=f"k{j}", model=f"m{j % 3}", cost=0.5) for j in range(20)]
            await patient(partial(store.write_requests, batch))

    await asyncio.gather(work(pair[0], 0), work(pair[1], 1), work(pair[0], 2))

    assert sum(row.requests for row in await pair[1].usage("key")) == 900
    assert await pair[1].spent(key_id="k7") == 22.5
    assert sum(row.cost for row in await pair[0].usage("model")) == 450.0


async def test_one_batch_from_two_writers_counts_once(pair, done):
    batch = [done(str(i), key_id="k", cost=1.0) for i in range(200)]

    new = await asyncio.gather(*(patient(lambda s=store: s.write_requests(batch)) for store in (*pair, *pair)))

    assert sum(new) == 200
    assert await pair[0].spent(key_id="k") == 200.0


async def test_readers_see_whole_batches_while_they_are_written(pair, done):
    writer, reader = pair
    going = asyncio.create_task(asyncio.wait_for(_write(writer, done), 20))
    counts = []

    while not going.done():
        counts.append(sum(row.requests for row in await reader.usage("model")))

    await going
    assert all(count % 50 == 0 for count in counts)
    assert counts == sorted(counts)


async def _write(store, done):
    for i in range(20):
        await store.write_requests([done(f"{i}.{j}") for j in range(50)])


async def test_a_cancelled_call_leaves_a_store_that_works(pair, done):
    store = pair[0]
    for i in range(20):
        call = asyncio.create_task(store.write_requests([done(f"{i}.{j}", cost=1.0, key_id="k") for j in range(100)]))
        await asyncio.sleep(0.0005 * i)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    kept = sum(row.requests for row in await patient(lambda: store.usage("model")))
    assert kept % 100 == 0
    assert await store.spent(key_id="k") == kept
    await store.write_requests([done("after")])
    assert await store.request("after") is not None


async def test_calls_after_the_end_are_refused(pair):
    await pair[0].aclose()
    await pair[0].aclose()

    with pytest.raises(StoreUnavailable, match="closed"):
        await pair[0].keys()
    assert await pair[0].check() == "the store is closed"
    assert await pair[1].check() == "ok"


# What an append-only journal needs of an engine: a fence, an order, and readers that follow


class Fenced(Exception):
    pass


def tables() -> Steps[None]:
    yield Sql("CREATE TABLE runs (id TEXT PRIMARY KEY, epoch BIGINT NOT NULL, seq BIGINT NOT NULL)")
    yield Sql("CREATE TABLE events (run TEXT, seq BIGINT, data TEXT, PRIMARY KEY (run, seq))")
    yield Sql("INSERT INTO runs VALUES ('r', 0, 0)")


def claim() -> Steps[int]:
    return (yield Sql("UPDATE runs SET epoch = epoch + 1 WHERE id = 'r' RETURNING epoch"))[0][0]


def append(epoch: int, data: str) -> Steps[int]:
    rows = yield Sql("UPDATE runs SET seq = seq + 1 WHERE id = 'r' AND epoch = ? RETURNING seq", (epoch,))
    if not rows:
        raise Fenced
    yield Sql("INSERT INTO events VALUES ('r', ?, ?)", (rows[0][0], data))
    return rows[0][0]


def after(seq: int) -> Steps[list]:
    return (yield Sql("SELECT seq, data FROM events WHERE run = 'r' AND seq > ? ORDER BY seq", (seq,)))


async def test_a_journal_on_this_engine_fences_its_old_owner_and_is_followed_in_order(pair):
    old, new = (store.engine for store in pair)
    await old.write(tables())
    epoch = await old.write(claim())
    assert await old.write(append(epoch, "one"), durable=True) == 1
    assert await new.read(after(0)) == [(1, "one")]

    fresh = await new.write(claim())

    with pytest.raises(Fenced):
        await old.write(append(epoch, "late"))
    assert await new.write(append(fresh, "two")) == 2
    assert await old.read(after(1)) == [(2, "two")]


async def test_appends_of_one_owner_have_no_gap(pair):
    await pair[0].engine.write(tables())
    epoch = await pair[0].engine.write(claim())

    await asyncio.gather(*(patient(lambda s=store, i=i: s.engine.write(append(epoch, str(i)))) for store in pair for i in range(25)))

    assert [seq for seq, _ in await pair[1].engine.read(after(0))] == list(range(1, 51))


async def test_a_task_that_is_due_once_is_taken_by_one(pair):
    taken = await asyncio.gather(*(store.claim("retention", 3600) for store in (*pair, *pair)))
    assert sorted(taken) == [False, False, False, True]
    assert await pair[0].claim("another", 3600)
    assert not await pair[1].claim("another", 3600)
    assert await pair[1].claim("another", 0), "the next time comes"
