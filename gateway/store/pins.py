"""Transactions on pins: digests of what servers outside said of their tools when they were last seen."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.store.engine import Sql, Steps

_KIND = "pin "
_PUT = "INSERT INTO thinkgate_meta (name, number, bytes) VALUES (?, 0, ?) ON CONFLICT (name) DO UPDATE SET bytes = excluded.bytes"


def everything() -> Steps[dict[str, bytes]]:
    rows = yield Sql("SELECT name, bytes FROM thinkgate_meta WHERE name LIKE ?", (_KIND + "%",))
    return {name.removeprefix(_KIND): bytes(value) for name, value in rows}


def put(pins: Mapping[str, bytes]) -> Steps[None]:
    for name in sorted(pins):  # in one order, so that two writers never wait for each other
        yield Sql(_PUT, (_KIND + name, pins[name]))
