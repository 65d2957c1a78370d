"""The limits' scripts on a real Valkey, against a model that a reader can check by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from servers import Valkey

from gateway.store import Part, Shared, SharedAway, SharedLimits, Terms
from gateway.store.shared import LARGEST
from gateway.store.shared_limits import LEASE

Pair = tuple[SharedLimits, SharedLimits]


@pytest.fixture
async def limits(valkey: Valkey) -> AsyncIterator[Pair]:
    """Two processes on one server."""
    url = valkey.fresh()
    pair = SharedLimits(Shared(url)), SharedLimits(Shared(url))
    for one in pair:
        await one.shared.open()
        assert one.shared.up, one.shared.fault
    yield pair
    for one in pair:
        await one.shared.aclose()


async def test_of_200_at_once_exactly_rpm_pass_whoever_asks(limits: Pair) -> None:
    key = [Terms("k", rpm=50)]
    verdicts = await asyncio.gather(*(limits[n % 2].admit(b"%d" % n, 0, key) for n in range(200)))
    assert sum(verdict.why is None for verdict in verdicts) == 50
    refused = [verdict for verdict in verdicts if verdict.why is not None]
    assert {verdict.why for verdict in refused} == {"rpm"}
    assert all(55 < verdict.wait <= 60 for verdict in refused)
    assert {verdict.used[0].requests for verdict in refused} == {50}


async def test_a_refusal_of_the_team_takes_nothing_of_the_key(limits: Pair) -> None:
    one, _ = limits
    both = [Terms("k", rpm=10, tpm=1000, places=10), Terms("team:t", rpm=1)]
    assert (await one.admit(b"a", 100, both)).why is None
    refused = await one.admit(b"b", 100, both)
    assert (refused.why, refused.place) == ("rpm", 1)
    assert refused.used[0].requests == 1
    assert refused.used[0].tokens == 100


async def test_tokens_are_reserved_and_settled(limits: Pair) -> None:
    one, other = limits
    key = [Terms("k", tpm=1000)]
    assert (await one.admit(b"a", 900, key)).used[0].tokens == 900
    assert (await other.admit(b"b", 200, key)).why == "tpm"
    one.settle(b"a", 100, [("k", 900, 0.0, 0.0)])
    assert (await one.admit(b"c", 200, key)).used[0].tokens == 300
    one.settle(b"c", 5000, [("k", 200, 0.0, 0.0)])  # more than was thought: it counts in full
    await one.shared.get(b"anything")
    assert (await other.admit(b"d", 1, key)).used[0].tokens == 5100
    assert (await one.admit(b"e", 1, key)).why == "tpm"


async def test_a_request_larger_than_the_limit_passes_alone(limits: Pair) -> None:
    one, other = limits
    key = [Terms("k", tpm=1000)]
    assert (await one.admit(b"a", 10**9, key)).used[0].tokens == 1000
    assert (await other.admit(b"b", 1, key)).why == "tpm"


async def test_places_are_given_back_by_whoever_held_them(limits: Pair) -> None:
    one, other = limits
    key = [Terms("k", places=1)]
    assert (await one.admit(b"a", 0, key)).why is None
    refused = await other.admit(b"b", 0, key)
    assert (refused.why, refused.wait) == ("concurrency", 1.0)
    one.settle(b"a", 0, [("k", None, 0.0, 0.0)])
    await one.shared.get(b"anything")
    assert (await other.admit(b"b", 0, key)).why is None


async def test_a_budget_is_charged_for_all(limits: Pair) -> None:
    one, other = limits

    def key(spent: float) -> list[Terms]:
        return [Terms("k", budget=1.0, spent=spent, begin=86400.0)]

    assert (await one.admit(b"a", 0, key(0.25))).why is None
    one.settle(b"a", 10, [("k", None, 0.5, 86400.0)])
    await one.shared.get(b"anything")
    assert (await other.admit(b"b", 0, key(0.25))).why is None  # 0.75 of 1
    other.settle(b"b", 10, [("k", None, 0.25, 86400.0)])
    await other.shared.get(b"anything")
    assert (await one.admit(b"c", 0, key(0.75))).why == "budget"
    assert (await one.admit(b"c", 0, [Terms("k", budget=1.0, spent=0.0, begin=2 * 86400.0)])).why is None  # the next day


async def test_what_the_store_knows_counts_where_it_is_more(limits: Pair) -> None:
    assert (await limits[0].admit(b"a", 0, [Terms("k", budget=1.0, spent=1.0)])).why == "budget"
    assert (await limits[1].admit(b"b", 0, [Terms("k", budget=1.0, spent=0.2)])).why == "budget"


async def test_what_is_told_again_is_counted_once(limits: Pair) -> None:
    one, other = limits
    key = [Terms("k", rpm=10, tpm=1000, places=10)]
    await one.admit(b"a", 100, key)
    await one.admit(b"b", 100, key)
    one.settle(b"b", 40, [("k", 100, 0.0, 0.0)])
    now = time.monotonic()
    told = [
        Part(b"a", now, 100, 100, True, True),
        Part(b"b", now, 100, 40, True, False),
        Part(b"old", now - 61, 100, 100, True, False),
        Part(b"new", now - 30, 100, 60, True, False),
    ]
    for _ in range(2):
        one.adopt("k", told)
    await one.shared.get(b"anything")
    after = (await other.admit(b"c", 0, key)).used[0]
    assert (after.requests, after.tokens) == (4, 200)


async def test_a_settlement_that_was_missed_is_made_up_for(limits: Pair) -> None:
    """The server was away when the answer came: it knows what was reserved, we know what was used."""
    one, other = limits
    key = [Terms("k", rpm=10, tpm=1000)]
    await one.admit(b"a", 900, key)
    one.adopt("k", [Part(b"a", time.monotonic(), 900, 10, True, False)])
    await one.shared.get(b"anything")
    after = (await other.admit(b"b", 100, key)).used[0]
    assert (after.requests, after.tokens) == (2, 110)


async def test_places_of_a_process_that_died_are_free_when_their_lease_ends(limits: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.store.shared_limits.LEASE", 0.3)
    one, other = limits
    key = [Terms("k", places=1)]
    assert (await one.admit(b"a", 0, key)).why is None
    one.adopt("k", [Part(b"a", time.monotonic() - 100, None, None, False, True)])  # renewed
    assert (await other.admit(b"b", 0, key)).why == "concurrency"
    await eventually(lambda: _passes(other, key))
    assert LEASE > 5


async def _passes(limits: SharedLimits, key: list[Terms]) -> bool:
    return (await limits.admit(b"later", 0, key)).why is None


async def eventually(done: Callable[[], Awaitable[bool]], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not await done():  # noqa: ASYNC110 - it is asked over a wire
            await asyncio.sleep(0.05)


async def test_a_word_in_an_account_is_only_a_word(limits: Pair) -> None:
    for name in ("a' .. redis.call('FLUSHALL') .. '", "x\r\nFLUSHALL\r\n", "{other}:k", "ключ", "\x00"):
        assert (await limits[0].admit(b"a", 0, [Terms(name, rpm=1)])).why is None
        assert (await limits[1].admit(b"b", 0, [Terms(name, rpm=1)])).why == "rpm"


async def test_nobody_answers_for_a_server_that_is_away() -> None:
    limits = SharedLimits(Shared("redis://127.0.0.1:1/0"))
    await limits.shared.open()
    try:
        assert not limits.shared.up
        with pytest.raises(SharedAway):
            await limits.admit(b"a", 0, [Terms("k", rpm=1)])
    finally:
        await limits.shared.aclose()


async def test_many_large_values_at_once_do_not_cost_the_connection(valkey) -> None:
    """What has no room stays in its process: limits and rests go on."""
    shared = Shared(valkey.fresh())
    await shared.open()
    try:
        for number in range(30):
            shared.put(b"large:%d" % number, bytes(LARGEST), 60)
        await shared.settled()
        kept = await shared.get(*(b"large:%d" % number for number in range(30)))
        assert shared.up
        assert 1 <= sum(value is not None for value in kept) < 30

        shared.put(b"later", b"x", 60)
        assert await shared.get(b"later") == [b"x"]
    finally:
        await shared.aclose()
