"""Pins: what was said once, until it is said anew."""

from __future__ import annotations

from gateway.store import SqlStore


async def test_pins_are_kept_by_name_and_replaced(store: SqlStore) -> None:
    pepper = await store.pepper()
    assert await store.pins() == {}

    await store.pin({"a": b"\x00\x01", "b": b"2"})
    await store.pin({"b": b"3", "pepper": b"4"})

    assert await store.pins() == {"a": b"\x00\x01", "b": b"3", "pepper": b"4"}
    assert await store.pepper() == pepper, "they share a table and no name"
