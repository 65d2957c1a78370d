"""Transactions on virtual keys. Each change counts up the version that replicas watch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from gateway.chat import dumps, loads
from gateway.errors import Conflict, InvalidRequest
from gateway.store.engine import Row, Sql, Steps
from gateway.store.rows import KeyRow

PERIODS = ("day", "week", "month", "total")

_COLUMNS = tuple(field.name for field in fields(KeyRow))
_FIXED = ("id", "digest", "created")
_LISTS = ("models", "tags")
_COUNTS = ("rpm", "tpm", "concurrency")
_AMOUNTS = ("budget_usd", "expires", "created", "revoked", "overlap_until")
_OPTIONAL = ("rpm", "tpm", "concurrency", "budget_usd", "expires", "team", "revoked", "rotated_from", "overlap_until")
_LONGEST = 200  # bytes of a name, so that it fits into an index beside others
_MOST = 2**53  # a whole number that JSON readers keep exact

_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM thinkgate_keys"  # noqa: S608, names of our own columns
_INSERT = f"INSERT INTO thinkgate_keys ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))}) ON CONFLICT DO NOTHING RETURNING id"  # noqa: S608
_COUNT = Sql("UPDATE thinkgate_meta SET number = number + 1 WHERE name = 'keys'")


def add(row: KeyRow) -> Steps[None]:
    if not (yield Sql(_INSERT, _values(row))):
        raise Conflict("a key with this id or this secret exists", code="key_exists")
    yield _COUNT


def everyone() -> Steps[list[KeyRow]]:
    rows = yield Sql(_SELECT + " ORDER BY created, id")
    return [_row(row) for row in rows]


def by_digest(digest: bytes) -> Steps[KeyRow | None]:
    rows = yield Sql(_SELECT + " WHERE digest = ?", (digest,))
    return _row(rows[0]) if rows else None


def update(id: str, changes: dict[str, Any]) -> Steps[KeyRow | None]:
    unknown = sorted(name for name in changes if name in _FIXED or name not in _COLUMNS)
    if unknown:
        raise InvalidRequest(f"{unknown[0]} of a key cannot be changed", param=unknown[0])
    if not _storable(id):
        return None
    if not changes:
        rows = yield Sql(_SELECT + " WHERE id = ?", (id,))
        return _row(rows[0]) if rows else None
    assignments = ", ".join(f"{name} = ?" for name in changes)
    values = [_value(name, value) for name, value in changes.items()]
    rows = yield Sql(f"UPDATE thinkgate_keys SET {assignments} WHERE id = ? RETURNING {', '.join(_COLUMNS)}", (*values, id))  # noqa: S608, checked names
    if not rows:
        return None
    yield _COUNT
    return _row(rows[0])


def revoke(id: str, at: float) -> Steps[bool]:
    """The first moment stays when a key is revoked again."""
    moment = _amount("revoked", at)
    if not _storable(id) or not (yield Sql("UPDATE thinkgate_keys SET revoked = COALESCE(revoked, ?) WHERE id = ? RETURNING id", (moment, id))):
        return False
    yield _COUNT
    return True


def rotate(id: str, successor: KeyRow, overlap_until: float) -> Steps[None]:
    if (yield from update(id, {"overlap_until": overlap_until})) is None:
        raise InvalidRequest("there is no such key", code="key_not_found")
    yield from add(replace(successor, rotated_from=id))


def delete(id: str) -> Steps[bool]:
    if not _storable(id) or not (yield Sql("DELETE FROM thinkgate_keys WHERE id = ? RETURNING id", (id,))):
        return False
    yield _COUNT
    return True


def count() -> Steps[int]:
    rows = yield Sql("SELECT number FROM thinkgate_meta WHERE name = 'keys'")
    return int(rows[0][0])


def pepper() -> Steps[bytes]:
    rows = yield Sql("SELECT bytes FROM thinkgate_meta WHERE name = 'pepper'")
    return bytes(rows[0][0])


def _row(row: Row) -> KeyRow:
    named = dict(zip(_COLUMNS, row, strict=True))
    for name in _LISTS:
        named[name] = tuple(loads(named[name]))
    return KeyRow(**named | {"digest": bytes(named["digest"])})


def _values(row: KeyRow) -> list[Any]:
    return [_value(name, getattr(row, name)) for name in _COLUMNS]


def _value(name: str, value: Any) -> Any:
    """A field as it is stored. InvalidRequest names the one that cannot be."""
    if name == "digest":
        return _digest(value)
    if value is None and name in _OPTIONAL:
        return None
    if name in _LISTS:
        return dumps([_text(name, item) for item in _items(name, value)]).decode()
    if name in _COUNTS:
        return _whole(name, value)
    if name in _AMOUNTS:
        return _amount(name, value)
    if name == "budget_per" and value not in PERIODS:
        raise InvalidRequest(f"a budget is per {', '.join(PERIODS)}", param=name)
    return _text(name, value)


def _digest(value: bytes) -> bytes:
    if len(value) != 32:
        raise InvalidRequest("a digest has 32 bytes", param="digest")
    return value


def _items(name: str, value: Any) -> Iterable[Any]:
    if not isinstance(value, list | tuple) or len(value) > 1000:
        raise InvalidRequest(f"{name} is a list of at most 1000 words", param=name)
    return value


def _storable(text: str) -> bool:
    """PostgreSQL keeps no NUL, neither of them a lone surrogate, and other control characters make a mess of terminals."""
    return isinstance(text, str) and text.isprintable() and text != "" and len(text.encode()) <= _LONGEST


def _text(name: str, value: Any) -> str:
    if not _storable(value):
        raise InvalidRequest(f"{name} is 1 to {_LONGEST} bytes of printable text", param=name)
    return str(value)


def _whole(name: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MOST:
        raise InvalidRequest(f"{name} is a whole number of at least 0", param=name)
    return value


def _amount(name: str, value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= _MOST or not math.isfinite(value):
        raise InvalidRequest(f"{name} is a number of at least 0", param=name)
    return float(value)
