"""Transactions on requests that are over, and on the sums over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import astuple, replace

from gateway.chat import dumps, loads
from gateway.errors import InvalidRequest
from gateway.store.engine import Many, Row, Sql, Steps
from gateway.store.rows import Page, RequestRow, UsageRow
from gateway.store.texts import LONGEST, plain

HOUR = 3600

_FIELDS = RequestRow.__struct_fields__
_COLUMNS = tuple("key_name" if name == "key" else name for name in _FIELDS)
_TEXTS = ("id", "endpoint", "model", "key", "key_id", "team", "kind", "provider", "target_model", "run_id", "uid")
_COUNTS = ("status", "prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "first_token_ms", "total_ms")
_MOST = 10**12  # of a count: nine million of these can be summed up in 64 bits
_WHOLE = {int}
_AT_ONCE = 1000

_SELECT = f"SELECT seq, {', '.join(_COLUMNS)} FROM thinkgate_requests"  # noqa: S608, names of our own columns
_INSERT = f"INSERT INTO thinkgate_requests ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608

_GROUP = ("hour", "key_id", "key_name", "team", "model", "provider")
_SUMS = ("requests", "failed", "prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "cost")
_ADD = (
    f"INSERT INTO thinkgate_totals ({', '.join(_GROUP + _SUMS)}) VALUES ({', '.join('?' * len(_GROUP + _SUMS))}) "  # noqa: S608
    f"ON CONFLICT ({', '.join(_GROUP)}) DO UPDATE SET " + ", ".join(f"{name} = thinkgate_totals.{name} + excluded.{name}" for name in _SUMS)
)
_NAMES = {"key": "key_name", "model": "model", "provider": "provider"}


def write(rows: Sequence[RequestRow], most: int | None = None) -> Steps[int]:
    """Rows whose uid is there already are left out, of the sums too. Gives the number of new ones. `most`: no more rows than that are kept, the newest."""
    given = {row.uid: row for row in map(clean, rows)}
    for part in _parts(list(given)):
        for (uid,) in (yield Sql(f"SELECT uid FROM thinkgate_requests WHERE uid IN ({', '.join('?' * len(part))})", part)):  # noqa: S608
            del given[uid]
    if given:
        yield Many(_INSERT, [_values(row) for row in given.values()])
        yield Many(_ADD, _totals(given.values()))
        if most is not None:
            yield Sql("DELETE FROM thinkgate_requests WHERE seq <= (SELECT MAX(seq) FROM thinkgate_requests) - ?", (most,))
    return len(given)


def clean(row: RequestRow) -> RequestRow:
    """The row with everything in bounds that both databases keep.

    Model, request id and the provider's counts are words of strangers: whatever they say,
    it must not cost the batch that they stand in.
    """
    if _is_clean(row):  # almost all are
        return row
    changes: dict[str, Any] = {name: plain(getattr(row, name)) for name in _TEXTS}
    changes |= {name: _bounded(getattr(row, name)) for name in _COUNTS}
    if not 0 <= row.time <= _MOST:
        changes["time"] = 0.0
    if row.cost is not None and not abs(row.cost) <= _MOST:
        changes["cost"] = None
    return replace(row, **changes)


def _is_clean(row: RequestRow) -> bool:
    texts = (row.id, row.endpoint, row.model, row.key, row.key_id, row.team, row.kind, row.provider, row.target_model, row.run_id, row.uid)
    text = "".join(filter(None, texts))
    if not (len(text) <= LONGEST and text.isascii() and text.isprintable()):
        return False
    counts = (row.status, row.prompt_tokens, row.completion_tokens, row.cached_tokens, row.reasoning_tokens, row.first_token_ms or 0, row.total_ms)
    if {*map(type, counts)} != _WHOLE or min(counts) < 0 or max(counts) > _MOST:
        return False
    return 0 <= row.time <= _MOST and (row.cost is None or abs(row.cost) <= _MOST)


def page(limit: int, before: int | None, key_name: str | None, model: str | None) -> Steps[Page]:
    conditions = [("seq < ?", _bounded(before)), ("key_name = ?", plain(key_name)), ("model = ?", plain(model))]
    asked = [(text, value) for text, value in conditions if value is not None]
    where = " WHERE " + " AND ".join(text for text, _ in asked) if asked else ""
    limit = min(max(limit, 1), _AT_ONCE)
    rows = yield Sql(f"{_SELECT}{where} ORDER BY seq DESC LIMIT ?", (*(value for _, value in asked), limit + 1))
    return Page(tuple(_row(row) for row in rows[:limit]), rows[limit - 1][0] if len(rows) > limit else None)


def one(id: str) -> Steps[RequestRow | None]:
    rows = yield Sql(_SELECT + " WHERE id = ? ORDER BY seq DESC LIMIT 1", (plain(id),))
    return _row(rows[0]) if rows else None


def usage(by: str, since: float | None, until: float | None) -> Steps[list[UsageRow]]:
    if by not in _NAMES:
        raise InvalidRequest(f"usage is by {', '.join(_NAMES)}", param="by")
    conditions = [("hour >= ?", since if since is None else _hour(since)), ("hour < ?", until if until is None else -_hour(-until))]
    asked = [(text, value) for text, value in conditions if value is not None]
    where = "WHERE " + " AND ".join(text for text, _ in asked) if asked else ""
    # PostgreSQL's sum of BIGINT is NUMERIC
    sums = ", ".join(f"SUM({name})" if name == "cost" else f"CAST(SUM({name}) AS BIGINT)" for name in _SUMS)
    column = _NAMES[by]
    rows = yield Sql(f"SELECT {column}, {sums} FROM thinkgate_totals {where} GROUP BY {column}", [value for _, value in asked])  # noqa: S608
    return sorted((UsageRow(*row) for row in rows), key=lambda row: row.name)


def spent(column: str, name: str, since: float) -> Steps[float]:
    rows = yield Sql(f"SELECT SUM(cost) FROM thinkgate_totals WHERE {column} = ? AND hour >= ?", (plain(name), _hour(since)))  # noqa: S608
    return float(rows[0][0] or 0.0)


def forget(older_than: float) -> Steps[int]:
    """Delete some requests that began before that moment: a few at a time, so that writers need not wait. 0: none is left."""
    rows = yield Sql(
        "DELETE FROM thinkgate_requests WHERE seq IN (SELECT seq FROM thinkgate_requests WHERE time < ? LIMIT ?) RETURNING seq", (older_than, _AT_ONCE)
    )
    return len(rows)


def _parts(values: list[str]) -> Iterable[list[str]]:
    """Parts of 1, 2, 4, 8 ... values, filled up with the last one.

    The database driver keeps each statement that it has seen: one for each number of values
    from 1 to 500 took 10 MiB (2026-11).
    """
    for start in range(0, len(values), _AT_ONCE):
        part = values[start : start + _AT_ONCE]
        yield part + part[-1:] * ((1 << (len(part) - 1).bit_length()) - len(part))


def _hour(moment: float) -> int:
    """The full hour at or before a moment, in unix seconds."""
    return int(min(max(moment, -_MOST), _MOST) // HOUR) * HOUR


def _totals(rows: Iterable[RequestRow]) -> list[tuple[Any, ...]]:
    sums: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        group = (int(row.time // HOUR) * HOUR, row.key_id or "", row.key or "", row.team or "", row.model, row.provider or "")
        have = sums.get(group)
        if have is None:
            have = sums[group] = [0] * len(_SUMS)
        have[0] += 1
        have[1] += row.failed
        have[2] += row.prompt_tokens
        have[3] += row.completion_tokens
        have[4] += row.cached_tokens
        have[5] += row.reasoning_tokens
        have[6] += row.cost or 0.0
    # in one order everywhere: writers on several replicas would lock each other out otherwise
    return [(*group, *sums[group]) for group in sorted(sums)]


_STREAM, _ESTIMATED, _ATTEMPTS, _TRANSFORMS = map(_FIELDS.index, ("stream", "estimated", "attempts", "transforms"))


def _values(row: RequestRow) -> list[Any]:
    values = list(astuple(row))
    values[_STREAM], values[_ESTIMATED] = int(row.stream), int(row.estimated)
    values[_ATTEMPTS], values[_TRANSFORMS] = _json(row.attempts), _json(row.transforms) if row.transforms else "[]"
    return values


def _json(value: Sequence[Any]) -> str:
    try:
        return dumps(list(value)).decode()
    except ValueError:  # a lone surrogate, or something that is no JSON
        return "[]"


def _row(row: Row) -> RequestRow:
    named = dict(zip(_FIELDS, row[1:], strict=True))
    named |= {"stream": bool(named["stream"]), "estimated": bool(named["estimated"])}
    named |= {"attempts": tuple(loads(named["attempts"])), "transforms": tuple(loads(named["transforms"]))}
    return RequestRow(**named)


def _bounded(count: int | None) -> int | None:
    return None if count is None else min(max(int(count), 0), _MOST)
