from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import pytest

from gateway.errors import Conflict, InvalidRequest
from gateway.store import open_store

NASTY = ["'; DROP TABLE thinkgate_keys; --", '"', "\\", "%s ? :x $1 {}", "ключ 🔑", "x" * 200]
UNSTORABLE = ["", "\0", "a\0b", "\ud800", "a\nb", "\x1b[31m", "x" * 201, "é" * 101]


async def test_a_key_comes_back_as_it_was_given(store, key):
    row = key(
        models=("smart", "agent/*"),
        rpm=60,
        tpm=2**53,
        concurrency=0,
        budget_usd=0.1,
        budget_per="day",
        expires=2e9 + 0.25,
        team="t",
        tags=("a", "b"),
        revoked=5.5,
        rotated_from="k0",
        overlap_until=9.0,
    )

    await store.add_key(row)

    assert await store.keys() == [row]
    assert await store.key_by_digest(row.digest) == row
    assert await store.key_by_digest(sha256(b"other").digest()) is None


async def test_the_digest_is_not_in_the_repr(key):
    assert "digest" not in repr(key())


async def test_keys_are_listed_from_the_oldest_on(store, key):
    for id, created in (("b", 2.0), ("c", 3.0), ("a", 1.0)):
        await store.add_key(key(id, created=created))

    assert [row.id for row in await store.keys()] == ["a", "b", "c"]


@pytest.mark.parametrize("changes", [{"id": "k2"}, {"digest": sha256(b"k2").digest()}])
async def test_an_id_and_a_secret_are_given_once(store, key, changes):
    await store.add_key(key())
    before = await store.key_version()

    with pytest.raises(Conflict):
        await store.add_key(replace(key(), **changes))

    assert await store.keys() == [key()]
    assert await store.key_version() == before


async def test_every_change_counts_the_version_up(store, key):
    seen = [await store.key_version()]
    for change in (
        store.add_key(key()),
        store.update_key("k1", rpm=1),
        store.revoke_key("k1", 1.0),
        store.rotate_key("k1", key("k2"), 2.0),
        store.delete_key("k1"),
    ):
        await change
        seen.append(await store.key_version())

    assert seen == sorted(set(seen))


async def test_what_changes_nothing_leaves_the_version(store):
    before = await store.key_version()

    assert await store.update_key("nobody", rpm=1) is None
    assert await store.revoke_key("nobody", 1.0) is False
    assert await store.delete_key("nobody") is False

    assert await store.key_version() == before


async def test_only_the_named_fields_change(store, key):
    await store.add_key(key(rpm=5, tags=("a",)))

    changed = await store.update_key("k1", models=["m"], rpm=None, budget_usd=3)

    assert changed == key(tags=("a",), models=("m",), budget_usd=3.0)
    assert await store.keys() == [changed]
    assert await store.update_key("k1") == changed


@pytest.mark.parametrize("field", ["id", "digest", "created", "nonsense", "rpm = 1; --"])
async def test_identity_and_unknown_fields_cannot_be_changed(store, key, field):
    await store.add_key(key())

    with pytest.raises(InvalidRequest):
        await store.update_key("k1", **{field: 1})

    assert await store.keys() == [key()]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("rpm", -1), ("rpm", 2**53 + 1), ("tpm", 1.5), ("concurrency", True), ("models", "smart"), ("tags", [1]), ("name", None)],
        *[("budget_usd", number) for number in (-0.5, float("nan"), float("inf"), 10**400)],
        *[("budget_per", "year"), ("expires", "tomorrow"), ("created", None), ("digest", b"short")],
    ],
)
async def test_a_value_that_cannot_be_kept_is_named(store, key, field, value):
    with pytest.raises(InvalidRequest) as raised:
        await store.add_key(key(**{field: value}))

    assert raised.value.param == field
    assert await store.keys() == []


@pytest.mark.parametrize("changes", [{"rpm": -1}, {"tpm": 5, "budget_per": "year"}, {"models": None}, {"name": ""}, {"budget_usd": float("nan")}])
async def test_a_change_that_cannot_be_kept_changes_nothing(store, key, changes):
    await store.add_key(key())
    before = await store.key_version()

    with pytest.raises(InvalidRequest):
        await store.update_key("k1", **changes)

    assert await store.keys() == [key()]
    assert await store.key_version() == before


@pytest.mark.parametrize("text", NASTY)
async def test_a_name_is_never_part_of_a_statement(store, key, text):
    row = key(id=text, name=text, team=text, models=(text,), tags=(text,), rotated_from=text)

    await store.add_key(row)

    assert await store.keys() == [row]
    assert await store.update_key(text, name=text + "") == row
    assert await store.revoke_key(text, 1.0)
    assert await store.spent(key_id=text) == await store.spent(team=text) == 0
    assert await store.delete_key(text)


@pytest.mark.parametrize("text", UNSTORABLE)
async def test_a_name_that_not_every_database_keeps_is_refused(store, key, text):
    for field in ("id", "name", "team", "rotated_from"):
        with pytest.raises(InvalidRequest):
            await store.add_key(key(**{field: text}))
    for field in ("models", "tags"):
        with pytest.raises(InvalidRequest):
            await store.add_key(key(**{field: (text,)}))

    assert await store.update_key(text, rpm=1) is None
    assert not await store.revoke_key(text, 1.0)
    assert not await store.delete_key(text)
    assert await store.keys() == []


async def test_the_first_revocation_stays(store, key):
    await store.add_key(key())

    assert await store.revoke_key("k1", 10.0)
    assert await store.revoke_key("k1", 20.0)

    assert (await store.keys())[0].revoked == 10.0


async def test_rotation_is_whole_or_not_at_all(store, key):
    await store.add_key(key())

    with pytest.raises(Conflict):
        await store.rotate_key("k1", key(), 50.0)
    with pytest.raises(InvalidRequest):
        await store.rotate_key("nobody", key("k2"), 50.0)
    assert await store.keys() == [key()]

    await store.rotate_key("k1", key("k2"), 50.0)
    assert await store.keys() == [key(overlap_until=50.0), key("k2", rotated_from="k1")]


async def test_the_pepper_is_made_once_per_store(shared_url, tmp_path):
    peppers = []
    for _ in range(2):
        store = await open_store(shared_url, tmp_path)
        peppers.append(await store.pepper())
        await store.aclose()

    assert peppers[0] == peppers[1]
    assert len(peppers[0]) == 32


async def test_peppers_of_two_stores_differ(tmp_path):
    one, other = await open_store("sqlite:///a.db", tmp_path), await open_store("sqlite:///b.db", tmp_path)

    assert await one.pepper() != await other.pepper()

    await one.aclose()
    await other.aclose()
