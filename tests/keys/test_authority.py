"""Who a secret belongs to, and what that may use."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from gateway import config
from gateway.config import Budget, Key, Limits, Secret, Team
from gateway.errors import ConfigError, Conflict, InvalidRequest, LimitReached, NotFound, Unauthorized
from gateway.keys import Authority, BudgetSpent, Ledger, ModelNotAllowed, file_id, issue, newest, revoke, rotate, terms
from gateway.store import KeyRow, RequestRow, open_store

SECRET = "a-secret-of-the-file-0123"


def declared(*keys: Key, teams: Mapping[str, Team] | None = None) -> Authority:
    authority = Authority()
    authority.declare({key.name: key for key in keys}, teams or {})
    return authority


def key(name: str = "k", secret: str = SECRET, **terms: object) -> Key:
    return replace(Key(name, Secret(secret)), **terms)


def test_a_secret_is_known_by_all_of_it() -> None:
    authority = declared(key())
    assert authority.identify(SECRET.encode()).id == file_id("k")
    for wrong in (b"", SECRET[:-1].encode(), SECRET.upper().encode(), b"${VK_UNSET}"):
        with pytest.raises(Unauthorized):
            authority.identify(wrong)


def test_no_secret_is_kept_in_what_can_be_printed() -> None:
    authority = declared(key())
    assert SECRET not in repr(vars(authority))
    assert SECRET not in repr(authority.identify(SECRET.encode()))


@pytest.mark.parametrize(
    ("models", "allowed", "refused"),
    [
        ((), ("m", "agent/x", "p/q"), ()),
        (("smart", "agent/*"), ("smart", "agent/x"), ("smarter", "p/smart", "agents/x", "smart\n", "")),
        (("gpt-?", "o[13]"), ("gpt-4", "o1"), ("gpt-40", "o2", "gpt-")),
        (("a.b",), ("a.b",), ("axb",)),
    ],
)
def test_models_are_names_and_globs_of_whole_names(models: tuple[str, ...], allowed: tuple[str, ...], refused: tuple[str, ...]) -> None:
    holder = declared(key(models=models)).identify(SECRET.encode())
    assert all(holder.allows(name) for name in allowed)
    assert not any(holder.allows(name) for name in refused)
    for name in refused:
        with pytest.raises(ModelNotAllowed) as caught:
            holder.check(name)
        assert (caught.value.status, caught.value.code) == (403, "model_not_allowed")


def test_a_team_narrows_what_its_keys_may_use() -> None:
    holder = declared(key(models=("a", "b"), team="t"), teams={"t": Team("t", models=("b", "c"))}).identify(SECRET.encode())
    assert [name for name in "abc" if holder.allows(name)] == ["b"]


def test_a_key_is_refused_from_its_day_on() -> None:
    tomorrow, today = date.fromtimestamp(time.time() + 2 * 86400), date.fromtimestamp(time.time() - 86400)
    authority = declared(key(expires=tomorrow), key("old", "the-secret-of-the-old-one", expires=today))
    assert authority.identify(SECRET.encode()).name == "k"
    with pytest.raises(Unauthorized, match="expired"):
        authority.identify(b"the-secret-of-the-old-one")


def test_a_refused_request_takes_nothing_in_no_team_either() -> None:
    first, second = key("one", "secret-of-one-0123456789", limits=Limits(rpm=1), team="t"), key("two", "secret-of-two-0123456789", team="t")
    authority = declared(first, second, teams={"t": Team("t", Limits(rpm=10))})
    one, two = authority.identify(b"secret-of-one-0123456789"), authority.identify(b"secret-of-two-0123456789")
    one.admit(0)
    for _ in range(9):
        with pytest.raises(LimitReached, match='the key "one"'):
            one.admit(0)
    for _ in range(9):
        two.admit(0)
    with pytest.raises(LimitReached, match='the team "t"'):
        two.admit(0)


def test_a_team_that_is_full_takes_nothing_of_its_keys() -> None:
    authority = declared(key(limits=Limits(rpm=5, concurrency=5), team="t"), teams={"t": Team("t", Limits(concurrency=1))})
    holder = authority.identify(SECRET.encode())
    admission = holder.admit(0)
    for _ in range(7):
        with pytest.raises(LimitReached):
            holder.admit(0)
    admission.settle(0, 0.0)
    assert {left.kind: left.remaining for left in holder.left()} == {"requests": 4}
    holder.admit(0)


def test_settling_twice_gives_back_once() -> None:
    holder = declared(key(limits=Limits(concurrency=1), budget=Budget(1.0))).identify(SECRET.encode())
    admission = holder.admit(0)
    assert [charge.usd for charge in admission.settle(0, 0.25)] == [0.25]
    assert admission.settle(0, 0.25) == []
    assert holder.account.meter.running == 0
    assert holder.account.purse.spent == 0.25


def test_a_budget_is_overspent_by_what_is_in_flight_and_no_more() -> None:
    holder = declared(key(budget=Budget(1.0))).identify(SECRET.encode())
    flying = [holder.admit(0) for _ in range(3)]
    for admission in flying:
        admission.settle(0, 0.9)
    assert holder.account.purse.spent == pytest.approx(2.7)
    with pytest.raises(BudgetSpent):
        holder.admit(0)


def test_a_reload_forgets_no_use() -> None:
    authority = declared(key(limits=Limits(rpm=2), budget=Budget(1.0)))
    authority.identify(SECRET.encode()).admit(0).settle(0, 0.5)
    authority.declare({"k": key(secret="another-secret-0123456789", limits=Limits(rpm=2), budget=Budget(2.0))}, {})
    with pytest.raises(Unauthorized):
        authority.identify(SECRET.encode())
    holder = authority.identify(b"another-secret-0123456789")
    assert holder.account.purse.spent == 0.5
    assert holder.left()[0].remaining == 1


def test_several_workers_share_a_limit() -> None:
    authority = Authority(processes=4)
    authority.declare({"k": key(limits=Limits(rpm=10, concurrency=2))}, {})
    holder = authority.identify(SECRET.encode())
    for _ in range(2):
        holder.admit(0).settle(0, 0.0)
    assert holder.account.meter.limits == Limits(1, 2, None)
    with pytest.raises(LimitReached):
        holder.admit(0)


# keys of the store


async def test_a_key_of_the_store_is_known_by_its_digest_alone(tmp_path: Path) -> None:
    ledger = Ledger()
    await ledger.open(await open_store("sqlite:///keys.db", tmp_path))
    try:
        assert ledger.store is not None
        assert not ledger.authority.needed
        secret, row = await issue(ledger.store, "made", {"models": ("smart",), "rpm": 2})
        assert len(secret) >= 43
        assert secret.encode() not in (tmp_path / "keys.db").read_bytes() + (tmp_path / "keys.db-wal").read_bytes()
        await ledger.look()
        holder = ledger.authority.identify(secret.encode())
        assert (holder.id, holder.name, holder.allows("smart"), holder.allows("x")) == (row.id, "made", True, False)
    finally:
        await ledger.close()


async def refused_within(authority: Authority, secret: str, seconds: float) -> str:
    """Why a secret is refused at last."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                authority.identify(secret.encode())
            except Unauthorized as error:
                return error.message
            await asyncio.sleep(0.02)


async def test_a_revocation_elsewhere_is_known_within_a_second_and_opens_no_door(tmp_path: Path) -> None:
    ledger, other = Ledger(), await open_store("sqlite:///keys.db", tmp_path)
    await ledger.open(await open_store("sqlite:///keys.db", tmp_path))
    try:
        secret, _ = await issue(other, "made", {})
        async with asyncio.timeout(1.0):
            while not ledger.authority.needed:  # noqa: ASYNC110 - it is noticed by looking, there is no event
                await asyncio.sleep(0.02)
        ledger.authority.identify(secret.encode())
        assert await revoke(other, "made")
        assert await refused_within(ledger.authority, secret, 1.0) == "the API key was revoked"
        assert ledger.authority.needed
    finally:
        await ledger.close()
        await other.aclose()


async def test_a_rotated_key_has_two_secrets_for_a_while_and_one_account(tmp_path: Path) -> None:
    ledger = Ledger()
    await ledger.open(await open_store("sqlite://", tmp_path))
    try:
        store = ledger.store
        assert store is not None
        old, first = await issue(store, "made", {"rpm": 3, "budget_usd": 1.0})
        new, second = await rotate(store, "made", 3600)
        newer, _ = await rotate(store, second.id, 0)
        await ledger.look()

        holders = [ledger.authority.identify(secret.encode()) for secret in (old, newer)]
        assert {holder.id for holder in holders} == {first.id}
        for holder in (*holders, holders[0]):
            holder.admit(0).settle(0, 0.1)
        with pytest.raises(LimitReached):
            holders[1].admit(0)
        assert holders[0].account.purse.spent == pytest.approx(0.3)
        with pytest.raises(Unauthorized, match="expired"):
            ledger.authority.identify(new.encode())

        await revoke(store, "made")
        await ledger.look()
        for secret in (old, newer):
            with pytest.raises(Unauthorized, match="revoked"):
                ledger.authority.identify(secret.encode())
    finally:
        await ledger.close()


async def test_what_was_spent_before_a_restart_still_counts(tmp_path: Path) -> None:
    store = await open_store("sqlite:///keys.db", tmp_path)
    secret, row = await issue(store, "made", {"budget_usd": 1.0, "team": "t"})
    await store.write_requests([RequestRow("r", time.time(), "chat", "m", 200, key="made", key_id=row.id, team="t", cost=1.5)])
    await store.aclose()
    ledger = Ledger()
    ledger.authority.declare({}, {"t": Team("t", budget=Budget(1.0, "total"))})
    await ledger.open(await open_store("sqlite:///keys.db", tmp_path))
    try:
        holder = ledger.authority.identify(secret.encode())
        assert holder.team is not None
        assert (holder.account.purse.spent, holder.team.purse.spent) == (1.5, 1.5)
        with pytest.raises(BudgetSpent):
            holder.admit(0)
    finally:
        await ledger.close()


def test_a_key_whose_team_is_gone_is_refused() -> None:
    authority = Authority()
    authority.learn([KeyRow("key_1", "made", authority.digest(b"x" * 40), team="gone")], authority.pepper)
    with pytest.raises(Unauthorized, match='team "gone"'):
        authority.identify(b"x" * 40)


def test_rows_that_name_each_other_end_the_search() -> None:
    authority = Authority()
    rows = [
        KeyRow("a", "n", authority.digest(b"x" * 40), rotated_from="b"),
        KeyRow("b", "n", authority.digest(b"y" * 40), rotated_from="a"),
        KeyRow("c", "n", authority.digest(b"z" * 40), rotated_from="deleted"),
    ]
    authority.learn(rows, authority.pepper)
    assert authority.identify(b"z" * 40).id == "deleted"
    assert newest(rows, "c") == rows[2]


async def test_names_in_use_and_keys_that_are_not_there_are_refused(tmp_path: Path) -> None:
    store = await open_store("sqlite://", tmp_path)
    try:
        await issue(store, "made", {})
        with pytest.raises(Conflict):
            await issue(store, "made", {})
        with pytest.raises(Conflict):
            await issue(store, "in-file", {}, ("in-file",))
        assert await revoke(store, "made")
        assert not await revoke(store, "nobody")
        with pytest.raises(NotFound):
            await rotate(store, "made", 1)
        await issue(store, "made", {})
    finally:
        await store.aclose()


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"rpm": 0}, "rpm"),
        ({"rpm": True}, "rpm"),
        ({"rpm": 1.5}, "rpm"),
        ({"tpm": "1k"}, "tpm"),
        ({"concurrency": 10**13}, "concurrency"),
        ({"models": "smart"}, "models"),
        ({"models": ["a b"]}, "models"),
        ({"budget": {"usd": 0}}, "budget"),
        ({"budget": {"usd": float("nan")}}, "budget"),
        ({"budget": {"usd": 1, "per": "year"}}, "budget"),
        ({"budget": {"usd": 1, "pre": "day"}}, "budget"),
        ({"expires": "tomorrow"}, "expires"),
        ({"team": "nobody"}, "team"),
        ({"tags": [1]}, "tags"),
        ({"rmp": 1}, "rmp"),
    ],
)
def test_what_a_key_cannot_be_is_named(given: dict[str, object], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        terms(given, ("t",))
    assert caught.value.param == param


def test_terms_become_columns_and_null_takes_away() -> None:
    assert terms({"models": ["a"], "rpm": 1, "budget": {"usd": 2, "per": "day"}, "team": "t", "expires": None, "tags": None}, ("t",)) == {
        "models": ("a",),
        "rpm": 1,
        "budget_usd": 2.0,
        "budget_per": "day",
        "team": "t",
        "expires": None,
        "tags": (),
    }


def test_an_empty_or_unset_variable_is_no_key() -> None:
    text = 'providers: {a: {base_url: "mock://", adapter: openai, api_key: x}}\nkeys: {k: {key: "${VK_UNSET}"}}\n'
    for env in ({}, {"VK_UNSET": ""}):
        with pytest.raises(ConfigError, match=r"keys\.k\.key: .*VK_UNSET"):
            config.parse(text, env=env)


async def test_old_requests_are_forgotten_and_their_sums_stay(tmp_path: Path) -> None:
    ledger, store = Ledger(), await open_store("sqlite://", tmp_path)
    now = time.time()
    await store.write_requests([RequestRow("old", now - 7200, "chat", "m", 200, cost=1.0), RequestRow("new", now, "chat", "m", 200, cost=1.0)])
    ledger.retention = 3600.0
    await ledger.open(store)
    try:
        async with asyncio.timeout(2):
            while await store.request("old") is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert await store.request("new") is not None
        assert [row.cost for row in await store.usage("model")] == [2.0]
    finally:
        await ledger.close()
