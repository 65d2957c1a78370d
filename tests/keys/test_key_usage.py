"""Rows on their way to the store: bounded, counted, and all there after a clean stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from gateway.config import Budget, Key, Secret
from gateway.keys import Account, Authority, Ledger, Usage
from gateway.store import RequestRow, SqlStore, Store, StoreUnavailable, open_store

COST = 0.25


def row(number: int, **more: object) -> RequestRow:
    values: dict[str, object] = {"key": "k", "key_id": "file:k", "cost": COST, **more}
    return RequestRow(f"r{number}", time.time(), "chat", "m", 200, **values)  # type: ignore[arg-type]


def account(budget: float = 100.0) -> Account:
    authority = Authority()
    authority.declare({"k": Key("k", Secret("a-secret-of-the-file-0123"), budget=Budget(budget, "total"))}, {})
    found = authority.account("file:k")
    assert found is not None
    return found


class Moody:
    """A store that can be told to fail, or to take its time."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self.down = False
        self.refuses: set[str] = set()
        self.batches: list[int] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def write_requests(self, rows: list[RequestRow]) -> int:
        if self.down:
            raise StoreUnavailable("down")
        if self.refuses & {r.id for r in rows}:
            raise ValueError("no")
        self.batches.append(len(rows))
        return await self._store.write_requests(rows)


@asynccontextmanager
async def moody() -> AsyncIterator[Moody]:
    store = await open_store("sqlite://", Path())
    try:
        yield Moody(store)
    finally:
        await store.aclose()


def started(store: Moody, **options: object) -> tuple[Usage, list[int]]:
    dropped: list[int] = []
    usage = Usage(dropped.append, **options)  # type: ignore[arg-type]
    usage.start(store)  # type: ignore[arg-type]
    return usage, dropped


async def everything(store: Moody) -> int:
    return sum(r.requests for r in await store._store.usage("key"))


async def test_rows_are_written_together_and_soon() -> None:
    async with moody() as store:
        usage, dropped = started(store, pause=0.05)
        for number in range(30):
            usage.put(partial(row, number))
        async with asyncio.timeout(1):
            while len(usage):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (store.batches, dropped) == ([30], [])
        await usage.stop()


async def test_a_stop_writes_all_that_is_there_at_once() -> None:
    async with moody() as store:
        usage, dropped = started(store, pause=30.0)
        for number in range(1234):
            usage.put(partial(row, number))
        await asyncio.sleep(0)
        async with asyncio.timeout(3):
            await usage.stop()
        assert (await everything(store), dropped) == (1234, [])
        usage.put(partial(row, 1))
        assert len(usage) == 0


async def test_what_finds_the_queue_full_is_dropped_and_counted_and_stays_charged() -> None:
    async with moody() as store:
        purse = account().purse
        usage, dropped = started(store, bound=10)
        for number in range(15):
            charge = purse.charge(COST, time.time())
            assert charge is not None
            usage.put(partial(row, number), [charge])
        await usage.stop()
        assert (sum(dropped), await everything(store)) == (5, 10)
        assert purse.spent == pytest.approx(15 * COST)


async def test_a_store_that_comes_back_gets_everything_once() -> None:
    async with moody() as store:
        store.down = True
        usage, dropped = started(store, pause=0.02)
        for number in range(20):
            usage.put(partial(row, number))
            await asyncio.sleep(0.005)
        assert (usage.failing, len(usage)) == ("down", 20)
        store.down = False
        await usage.stop()
        assert (await everything(store), dropped, usage.failing) == (20, [], None)


async def test_a_row_that_cannot_be_made_is_counted_and_takes_no_other_with_it() -> None:
    def broken() -> RequestRow:
        raise ZeroDivisionError

    async with moody() as store:
        usage, dropped = started(store, pause=0.01)
        for made in (partial(row, 0), broken, partial(row, 1)):
            usage.put(made)
        await usage.stop()
        assert (dropped, await everything(store), len(usage)) == ([1], 2, 0)


async def test_rows_that_the_store_refuses_do_not_hold_up_the_others() -> None:
    async with moody() as store:
        store.refuses = {"r0"}
        usage, dropped = started(store, pause=0.01)
        usage.put(partial(row, 0))
        await asyncio.sleep(0.1)
        usage.put(partial(row, 1))
        await usage.stop()
        assert (dropped, await everything(store)) == ([1], 1)


async def test_a_store_that_stays_away_ends_the_stop_with_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.keys.usage._LAST_TRY", 0.2)
    async with moody() as store:
        store.down = True
        usage, dropped = started(store, pause=0.01)
        for number in range(7):
            usage.put(partial(row, number))
        await usage.stop()
        assert dropped == [7]


async def test_spending_is_never_counted_twice_or_lost_while_it_moves_to_the_store() -> None:
    """Charges, batches and sums of the store in any order: what is known to be spent is what was."""
    async with moody() as store:
        one = account()
        usage, _ = started(store, pause=0.001)
        await usage.read_spent([one])
        for number in range(300):
            charge = one.purse.charge(COST, time.time())
            assert charge is not None
            usage.put(partial(row, number), [charge])
            if number % 7 == 0:
                await usage.read_spent([one])
            if number % 3 == 0:
                await asyncio.sleep(0.001)
            assert one.purse.spent == pytest.approx((number + 1) * COST)
        await usage.stop()
        assert one.purse.spent == pytest.approx(300 * COST)
        assert await store._store.spent(key_id="file:k") == pytest.approx(300 * COST)


async def test_what_others_spend_becomes_known(tmp_path: Path) -> None:
    here, there = Ledger(), Ledger()
    for ledger in (here, there):
        ledger.authority.declare({"k": Key("k", Secret("a-secret-of-the-file-0123"), budget=Budget(1.0, "day"))}, {})
        await ledger.open(await open_store("sqlite:///usage.db", tmp_path))
    try:
        ours, theirs = here.authority.account("file:k"), there.authority.account("file:k")
        assert ours is not None
        assert theirs is not None
        charge = theirs.purse.charge(2.0, time.time())
        assert charge is not None
        there.usage.put(partial(row, 1, cost=2.0), [charge])
        await there.usage.flush()
        ours.purse.known -= 60  # it was idle for a while: its next request asks
        await here.usage.refresh([ours])
        assert ours.purse.refusal(time.time()) is not None
    finally:
        await here.close()
        await there.close()


async def test_a_store_that_does_not_answer_keeps_the_keys_as_they_are_known(tmp_path: Path) -> None:
    ledger = Ledger()
    ledger.authority.declare({"k": Key("k", Secret("a-secret-of-the-file-0123"))}, {})
    store: Store = await open_store("sqlite://", tmp_path)
    await ledger.open(store)
    try:
        await store.aclose()
        async with asyncio.timeout(2):
            while ledger.fault is None:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert ledger.authority.account("file:k") is not None
    finally:
        await ledger.close()
