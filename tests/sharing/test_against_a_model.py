"""The script and the meters of one process decide alike, whatever happens in whichever order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers import Valkey

from gateway.config import Budget, Limits
from gateway.keys import Authority, BudgetSpent, Holder, SharedDoor
from gateway.keys.authority import Account
from gateway.store import Part, Shared, SharedLimits, Terms

QUIET = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
_names = count()

maybe = st.one_of(st.none(), st.integers(1, 6))
limits = st.builds(Limits, maybe, maybe, st.one_of(st.none(), st.integers(10, 400)))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 500), st.booleans()),
        st.tuples(st.just("end"), st.integers(0, 5), st.integers(0, 500)),
    ),
    max_size=25,
)


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def shared(loop: asyncio.Runner, valkey: Valkey) -> Iterator[Shared]:
    """One connection for all examples; each has keys of its own."""
    found = Shared(valkey.fresh())
    SharedLimits(found)
    loop.run(found.open())
    assert found.up
    yield found
    loop.run(found.aclose())


@QUIET
@given(key=limits, team=limits, steps=steps)
def test_requests_tokens_and_places(loop: asyncio.Runner, shared: Shared, key: Limits, team: Limits, steps: list[tuple[str, int, int]]) -> None:
    """Within a minute: who is let in, and what is left, is the same, of a key alone and of a key in a team."""

    async def play() -> None:
        both, door, running = accounts(key, team), SharedLimits(shared), []
        for number, (what, one, other) in enumerate(steps):
            if what == "ask":
                asked = both if other else both[:1]
                now = time.monotonic()
                refusals = [(place, why) for place, account in enumerate(asked) if (why := account.meter.refusal(one, now)) is not None]
                verdict = await door.admit(b"%d" % number, one, [terms(account) for account in asked])
                assert (verdict.why is None) == (not refusals), (number, refusals, verdict)
                if refusals:
                    place, refusal = refusals[0]
                    assert verdict.place == place
                    assert abs(verdict.wait - (refusal.retry_after or 0)) < 5
                    continue
                shares = [account.meter.take(one, now) for account in asked]
                running.append((b"%d" % number, asked, shares, one))
                for account, used in zip(asked, verdict.used, strict=True):
                    left = {found.kind: found.remaining for found in account.meter.left(now)}
                    expected = (account.limits.rpm, account.limits.tpm)
                    assert [left.get("requests"), left.get("tokens")] == [
                        None if limit is None else max(0, limit - taken) for limit, taken in zip(expected, (used.requests, used.tokens), strict=True)
                    ]
            elif running:
                id, asked, shares, tokens = running.pop(one % len(running))
                for share in shares:
                    share.meter.give_back(share, other, time.monotonic())
                door.settle(id, other, [(account.id, reserved(account, tokens), 0.0, 0.0) for account in asked])

    loop.run(play())


@QUIET
@given(
    limit=st.integers(1, 8),
    tpm=st.integers(10, 300),
    before=st.lists(st.tuples(st.floats(0, 70), st.integers(0, 100)), max_size=12),
    tokens=st.integers(0, 150),
)
def test_what_was_used_counts_for_a_minute_and_no_longer(
    loop: asyncio.Runner, shared: Shared, limit: int, tpm: int, before: list[tuple[float, int]], tokens: int
) -> None:
    """Requests of other ages, as a process tells them to a server that lost them; the ages near 60 s are too close to tell."""
    before = [(age, used) for age, used in before if abs(age - 60) > 5]
    young = [used for age, used in before if age < 60]

    async def play() -> None:
        name, now, door = f"k{next(_names)}", time.monotonic(), SharedLimits(shared)
        door.adopt(name, [Part(b"%d" % n, now - age, used, used, True, False) for n, (age, used) in enumerate(before)])
        verdict = await door.admit(b"new", tokens, [Terms(name, rpm=limit, tpm=tpm)])
        fits = len(young) < limit, sum(young) + min(tokens, tpm) <= tpm
        assert (verdict.why is None) == all(fits)
        assert verdict.why in (None, "rpm" if not fits[0] else "tpm")
        if verdict.why == "rpm":  # free when so many of the oldest have left that one fits
            leaving = sorted((age for age, _ in before if age < 60), reverse=True)[len(young) - limit]
            assert abs(verdict.wait - (60 - leaving)) < 5
        taken = verdict.why is None
        assert verdict.used[0].requests == len(young) + taken
        assert verdict.used[0].tokens == sum(young) + (min(tokens, tpm) if taken else 0)

    loop.run(play())


@QUIET
@given(budget=st.floats(0.5, 10), costs=st.lists(st.floats(0, 3), min_size=1, max_size=25), doors=st.lists(st.booleans(), min_size=25, max_size=25))
def test_a_budget_lets_in_while_something_is_left_and_nothing_after(
    loop: asyncio.Runner, shared: Shared, budget: float, costs: list[float], doors: list[bool]
) -> None:
    """Two processes, one request after the other: the sum of what was let in exceeds the budget by the last one's cost at most."""

    async def play() -> None:
        name = f"k{next(_names)}"
        holders = []
        for _ in range(2):
            account = Account(name, name, "the key")
            account.set((), Limits(), Budget(budget, "total"))
            holders.append((SharedDoor(shared, Authority()), Holder(account)))
        spent = 0.0
        for cost, second in zip(costs, doors, strict=False):
            door, holder = holders[second]
            admission, refusal, _ = await door.admit(holder, 0)
            if abs(spent - budget) > 1e-9:
                assert (refusal is None) == (spent < budget)
            if admission is None:
                assert isinstance(refusal, BudgetSpent)
                continue
            admission.settle(1, cost)
            spent += cost
        assert spent < budget + max(costs)

    loop.run(play())


def accounts(key: Limits, team: Limits) -> list[Account]:
    number = next(_names)
    out = []
    for id, found in ((f"k{number}", key), (f"team:t{number}", team)):
        account = Account(id, id, id)
        account.set((), found, None)
        out.append(account)
    return out


def terms(account: Account) -> Terms:
    return Terms(account.id, account.limits.rpm, account.limits.tpm, account.limits.concurrency)


def reserved(account: Account, tokens: int) -> int | None:
    return None if account.limits.tpm is None else min(tokens, account.limits.tpm)
