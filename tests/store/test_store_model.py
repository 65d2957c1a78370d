"""Any order of calls, against a model of a few lines."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from gateway.errors import Conflict, InvalidRequest
from gateway.store import KeyRow, RequestRow, SqlStore, open_store

IDS = st.sampled_from(["a", "b", "c'\"", "d 🔑"])
CENTS = st.integers(0, 1000).map(lambda n: n / 64)  # sums of these are exact
HOURS = st.integers(0, 5)
NAMES = st.sampled_from(["", "x", "y", "z\0"])


@dataclass
class Model:
    keys: dict[str, KeyRow] = field(default_factory=dict)
    requests: list[RequestRow] = field(default_factory=list)
    counted: list[RequestRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.version = 0


def row(id: str, n: int) -> KeyRow:
    return KeyRow(id, f"name {id}", sha256(f"{id}{n}".encode()).digest(), created=float(n))


def plain(name: str) -> str:
    return name.replace("\0", "?")


CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "rpm": st.none() | st.integers(-1, 2**53),
        "models": st.lists(st.text(max_size=5), max_size=3).map(tuple),
        "budget_usd": st.none() | st.floats(),
        "team": st.none() | st.text(max_size=5),
    },
)
CALLS = st.one_of(
    st.tuples(st.just("add"), IDS, st.integers(0, 2)),
    st.tuples(st.just("update"), IDS, CHANGES),
    st.tuples(st.just("revoke"), IDS, CENTS),
    st.tuples(st.just("rotate"), IDS, IDS),
    st.tuples(st.just("delete"), IDS),
    st.tuples(st.just("write"), st.lists(st.tuples(st.integers(0, 40), HOURS, NAMES, CENTS, st.sampled_from([200, 502])), max_size=6)),
    st.tuples(st.just("retain"), HOURS),
)


async def add(store: SqlStore, model: Model, id: str, n: int) -> None:
    new = row(id, n)
    if id in model.keys or any(new.digest == have.digest for have in model.keys.values()):
        with pytest.raises(Conflict):
            await store.add_key(new)
        return
    await store.add_key(new)
    model.keys[id] = new


async def update(store: SqlStore, model: Model, id: str, changes: dict[str, Any]) -> None:
    try:
        changed = await store.update_key(id, **changes)
    except InvalidRequest:
        assert changes
        return
    if id not in model.keys:
        assert changed is None
        return
    model.keys[id] = replace(model.keys[id], **changes)
    assert changed == model.keys[id]


async def revoke(store: SqlStore, model: Model, id: str, at: float) -> None:
    assert await store.revoke_key(id, at) == (id in model.keys)
    if id in model.keys and model.keys[id].revoked is None:
        model.keys[id] = replace(model.keys[id], revoked=at)


async def rotate(store: SqlStore, model: Model, id: str, successor: str) -> None:
    new = row(successor, 9)
    try:
        await store.rotate_key(id, new, 5.0)
    except (Conflict, InvalidRequest):
        assert id not in model.keys or successor in model.keys
        return
    assert id in model.keys
    assert successor not in model.keys
    model.keys[id] = replace(model.keys[id], overlap_until=5.0)
    model.keys[successor] = replace(new, rotated_from=id)


async def delete(store: SqlStore, model: Model, id: str) -> None:
    assert await store.delete_key(id) == (model.keys.pop(id, None) is not None)


async def write(store: SqlStore, model: Model, entries: list[tuple[int, int, str, float, int]]) -> None:
    rows = [RequestRow(f"r{n}", h * 3600.0, "chat", name, status, key_id=name, key=name, cost=c, uid=f"u{n}") for n, h, name, c, status in entries]
    unique = {r.uid: r for r in rows}
    have = {r.uid for r in model.requests}
    new = [structs.replace(r, model=plain(r.model), key_id=plain(r.key_id or ""), key=plain(r.key or "")) for r in unique.values() if r.uid not in have]
    assert await store.write_requests(rows) == len(new)
    model.requests += new
    model.counted += new


async def retain(store: SqlStore, model: Model, hour: int) -> None:
    kept = [r for r in model.requests if r.time >= hour * 3600]
    assert await store.retain(hour * 3600.0) == len(model.requests) - len(kept)
    model.requests = kept


async def compare(store: SqlStore, model: Model) -> None:
    assert await store.keys() == sorted(model.keys.values(), key=lambda r: (r.created, r.id))
    version = await store.key_version()
    assert version >= model.version
    model.version = version
    assert [r.uid for r in (await store.requests(1000)).rows] == [r.uid for r in reversed(model.requests)]
    for name in ("", "x", "z\0"):
        assert [r.uid for r in (await store.requests(2, key_name=name)).rows] == [r.uid for r in reversed(model.requests) if r.key == plain(name)][:2]
        assert await store.spent(key_id=name, since=7200.0) == sum(r.cost or 0 for r in model.counted if r.key_id == plain(name) and r.time >= 7200)
    for used in await store.usage("model", 3600, 4 * 3600):
        mine = [r for r in model.counted if r.model == used.name and 3600 <= r.time < 4 * 3600]
        assert (used.requests, used.failed, used.cost) == (len(mine), sum(r.status != 200 for r in mine), sum(r.cost or 0 for r in mine))


ACTIONS = {f.__name__: f for f in (add, update, revoke, rotate, delete, write, retain)}


async def run(url: str, calls: list[tuple[Any, ...]]) -> None:
    store = await open_store(url, Path())
    try:
        model = Model()
        for name, *arguments in calls:
            before, keys = model.version, dict(model.keys)
            await ACTIONS[name](store, model, *arguments)
            await compare(store, model)
            assert keys == model.keys or model.version > before
    finally:
        await store.aclose()


@settings(max_examples=150, deadline=None)
@given(st.lists(CALLS, max_size=15))
def test_sqlite_does_what_the_model_does(calls):
    asyncio.run(run("sqlite://", calls))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(CALLS, min_size=5, max_size=15))
def test_postgresql_does_what_the_model_does(postgres, calls):
    asyncio.run(run(postgres.fresh(), calls))
