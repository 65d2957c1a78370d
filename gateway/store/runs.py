"""Transactions on agent runs: an append-only journal whose writer is fenced by an epoch.

Whoever claims a run adds one to its epoch and holds a lease on it by the database's clock.
Every write names the epoch under which it was claimed: a process that froze, lost its
lease and comes back finds another epoch there and is refused, whatever it believes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

from gateway.chat import loads
from gateway.errors import Conflict, InvalidRequest, NotFound
from gateway.store import sessions
from gateway.store.engine import Dialect, Many, Row, Sql, Steps
from gateway.store.faults import Fenced
from gateway.store.rows import Json
from gateway.store.run_rows import OVER, Due, EventRow, RunPage, RunRow, Wait
from gateway.store.texts import plain, to_text

CHANNEL = "thinkgate_runs"
"""on which PostgreSQL tells `run seq` of every write"""

_FIELDS = tuple(field.name for field in fields(RunRow) if field.name != "nr")
_NAMED = ("agent", "tenant", "key_name", "session_id")
_JSON = ("input", "output", "reasoning", "error", "usage", "settings", "metadata", "waiting")
_FLAGS = ("background", "detached", "cancel")
_CHANGES = ("status", "reason", "output", "reasoning", "error", "usage", "cost", "steps", "settings", "metadata", "waiting", "wake_at", "detached")
_AT_ONCE = 1000
_FORGET = 100
_KEY = 255

_COLUMNS = ", ".join(("nr", *_FIELDS))
_SELECT = f"SELECT {_COLUMNS} FROM thinkgate_runs"  # noqa: S608, names of our own columns
_OVER = "('" + "', '".join(OVER) + "')"
_EVENT = "seq, type, step, data, key, state, origin, time, epoch"
_INSERT_EVENT = f"INSERT INTO thinkgate_events (run_id, {_EVENT}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_WAIT = (
    "INSERT INTO thinkgate_waiting (tenant, call_id, run_id, expires, used) VALUES (?, ?, ?, ?, 0) "
    "ON CONFLICT (tenant, call_id) DO UPDATE SET run_id = excluded.run_id, expires = excluded.expires, used = 0"
)


class Kept(NamedTuple):
    """What a write of its owner found: the run's last seq, and whether somebody wants it to end."""

    last_seq: int
    cancel: bool


def create(dialect: Dialect, row: RunRow, owner: str | None, lease: float) -> Steps[tuple[RunRow, bool]]:
    """A new run, claimed by `owner` or queued; False: the one that the same idempotency key made before."""
    if row.idempotency_key is not None and not 0 < len(row.idempotency_key) <= _KEY:
        raise InvalidRequest(f"an idempotency key has 1 to {_KEY} characters", param="Idempotency-Key")
    row = replace(row, **{name: plain(getattr(row, name)) for name in _NAMED}, idempotency_key=plain(row.idempotency_key))
    if row.idempotency_key is not None and (before := (yield from _repeated(row))) is not None:
        return before, False
    row = replace(row, owner=owner, status="queued" if owner is None else "running", epoch=0 if owner is None else 1)
    texts = {name: "?" for name in _FIELDS} | {"created_at": dialect.now}
    if owner is not None:
        texts["lease_until"] = f"{dialect.now} + {lease:f}"
    values = [_value(name, getattr(row, name)) for name in _FIELDS if texts[name] == "?"]
    made = yield Sql(
        f"INSERT INTO thinkgate_runs ({', '.join(_FIELDS)}) VALUES ({', '.join(texts.values())}) "  # noqa: S608
        f"ON CONFLICT (tenant, agent, idempotency_key) DO NOTHING RETURNING {_COLUMNS}",
        values,
    )
    if not made:  # another replica was faster
        other = yield from _repeated(row)
        if other is None:
            raise Conflict("another request with this idempotency key is being undone, ask again", code="idempotency_conflict")
        return other, False
    if row.session is not None:
        yield from sessions.take(dialect, row.session, row.session_id or "", row.tenant, row.agent, row.id)
    yield from _tell(dialect, row.id, row.last_seq)
    return _row(made[0]), True


def _repeated(row: RunRow) -> Steps[RunRow | None]:
    rows = yield Sql(_SELECT + " WHERE tenant = ? AND agent = ? AND idempotency_key = ?", (row.tenant, row.agent, row.idempotency_key))
    if not rows:
        return None
    before = _row(rows[0])
    if before.request_hash != row.request_hash:
        raise Conflict("this idempotency key was used for another request", code="idempotency_conflict", param="Idempotency-Key")
    return before


def fork(dialect: Dialect, source: str, seq: int, row: RunRow, owner: str | None, lease: float, last: EventRow | None) -> Steps[tuple[RunRow, bool]]:
    """A new run that begins with the events of another up to `seq`; `last` stands in place of the event there."""
    there = yield Sql("SELECT last_seq FROM thinkgate_runs WHERE id = ?", (source,))
    if not there:
        raise NotFound(f"there is no run {source}", code="run_not_found")
    if not 0 <= seq <= there[0][0]:
        raise InvalidRequest(f"the run has events up to {there[0][0]}", param="seq")
    made, new = yield from create(dialect, replace(row, forked_from=source, forked_seq=seq, last_seq=seq), owner, lease)
    if new:
        yield Sql(
            f"INSERT INTO thinkgate_events (run_id, {_EVENT}) SELECT ?, seq, type, step, data, key, state, origin, time, 0 "  # noqa: S608
            "FROM thinkgate_events WHERE run_id = ? AND seq <= ?",
            (made.id, source, seq),
        )
        if last is not None:
            yield Sql(
                "UPDATE thinkgate_events SET type = ?, data = ?, key = ?, state = ? WHERE run_id = ? AND seq = ?",
                (last.type, last.data, last.key, last.state, made.id, seq),
            )
    return made, new


def one(id: str) -> Steps[RunRow | None]:
    rows = yield Sql(_SELECT + " WHERE id = ?", (plain(id),))
    return _row(rows[0]) if rows else None


def events(id: str, after: int, limit: int) -> Steps[list[EventRow]]:
    rows = yield Sql(f"SELECT {_EVENT} FROM thinkgate_events WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?", (id, after, limit))  # noqa: S608
    return [EventRow(*row) for row in rows]


def head(id: str) -> Steps[tuple[int, str] | None]:
    """The run's last seq and its status: what a reader must know to go on waiting."""
    rows = yield Sql("SELECT last_seq, status FROM thinkgate_runs WHERE id = ?", (id,))
    return (rows[0][0], rows[0][1]) if rows else None


def claim(
    dialect: Dialect, id: str, owner: str, lease: float, also: Sequence[str] = (), calls: Sequence[str] = (), rows: Sequence[EventRow] = ()
) -> Steps[RunRow | None]:
    """Become the run's owner. None: it is over, waits, or another holds it.

    also    states besides queued and left-alone in which it may be taken
    calls   ids under which it waits, which nobody can use again. Conflict `run_not_waiting`: one is unknown, used or expired
    rows    events with which it goes on; their seq is given here
    """
    states = "".join(f", '{state}'" for state in also if state == "waiting" or state in OVER)
    found = yield Sql(
        f"UPDATE thinkgate_runs SET status = 'running', owner = ?, epoch = epoch + 1, lease_until = {dialect.now} + ?, "  # noqa: S608
        "attempts = attempts + CASE WHEN status = 'running' THEN 1 ELSE 0 END, last_seq = last_seq + ?, "
        "reason = NULL, error = NULL, wake_at = NULL, finished_at = NULL "
        f"WHERE id = ? AND (status IN ('queued'{states}) OR (status = 'running' AND lease_until < {dialect.now})) RETURNING {_COLUMNS}",
        (owner, lease, len(rows), id),
    )
    if not found:
        return None
    row = _row(found[0])
    for call in calls:
        used = yield Sql(
            "UPDATE thinkgate_waiting SET used = 1 WHERE tenant = ? AND call_id = ? AND run_id = ? AND used = 0 "  # noqa: S608
            f"AND (expires IS NULL OR expires > {dialect.now}) RETURNING 1",
            (row.tenant, plain(call), id),
        )
        if not used:
            raise Conflict(f"no run waits under {call}", code="run_not_waiting")
    if row.session is not None and (row.detached or also):  # else it is taken to be ended: its session may have gone on
        yield from sessions.take(dialect, row.session, row.session_id or "", row.tenant, row.agent, row.id)
    if rows:
        first = row.last_seq - len(rows) + 1
        yield Many(_INSERT_EVENT, [(id, seq, *event[1:8], row.epoch) for seq, event in enumerate(rows, first)])
    yield from _tell(dialect, id, row.last_seq)
    return row


def append(
    dialect: Dialect,
    id: str,
    epoch: int,
    after: int,
    rows: Sequence[EventRow],
    changes: Mapping[str, Any],
    lease: float,
    waits: Sequence[Wait] = (),
    session: Json | None = None,
) -> Steps[Kept]:
    """Events that follow `after`, and changes of the run, by its owner. Fenced: it is not the owner any more.

    A write whose outcome its writer never heard of may be repeated: the second finds the first.
    """
    sets, values = _sets(dialect, changes, lease)
    found = yield Sql(
        f"UPDATE thinkgate_runs SET last_seq = ?, {sets} WHERE id = ? AND epoch = ? AND last_seq = ? AND status = 'running' RETURNING session, cancel, tenant",  # noqa: S608
        (after + len(rows), *values, id, epoch, after),
    )
    if not found:
        return (yield from _written_before(id, epoch, after + len(rows), changes.get("status") or ("running" if rows else "")))
    if len(rows) == 1:
        yield Sql(_INSERT_EVENT, (id, *rows[0][:8], epoch))
    elif rows:
        yield Many(_INSERT_EVENT, [(id, *row[:8], epoch) for row in rows])
    key, cancel, tenant = found[0]
    for wait in waits:
        yield Sql(_WAIT, (tenant, plain(wait.call_id), id, wait.expires))
    if key is not None and (session is not None or changes.get("status") in OVER):
        yield from sessions.leave(dialect, key, id, session, free=changes.get("status") in OVER)
    if rows or changes:
        yield from _tell(dialect, id, after + len(rows))
    return Kept(after + len(rows), bool(cancel))


def _sets(dialect: Dialect, changes: Mapping[str, Any], lease: float) -> tuple[str, list[Any]]:
    """What becomes of the run's columns: the lease is renewed, or given up with a state in which nobody works on it."""
    if not changes:
        return f"lease_until = {dialect.now} + {lease:f}", []
    unknown = [name for name in changes if name not in _CHANGES]
    if unknown:
        raise ValueError(f"a run's {unknown[0]} cannot be changed")
    sets = [f"{name} = ?" for name in changes]
    status = changes.get("status", "running")
    sets.append(f"lease_until = {dialect.now} + {lease:f}" if status == "running" else "lease_until = NULL, owner = NULL")
    if status in OVER:
        sets.append(f"finished_at = {dialect.now}")
    return ", ".join(sets), [_value(name, value) for name, value in changes.items()]


def _written_before(id: str, epoch: int, last: int, left: str) -> Steps[Kept]:
    """The outcome of a write that is repeated: only its owner writes in an epoch, so what stands there is what he wrote."""
    rows = yield Sql("SELECT last_seq, epoch, status, cancel FROM thinkgate_runs WHERE id = ?", (id,))
    if not rows:
        raise Fenced(f"there is no run {id} any more")
    last_seq, now, status, cancel = rows[0]
    if now != epoch:
        raise Fenced(f"another process runs {id} since epoch {now}, this one had {epoch}")
    if (last_seq, status) == (last, left):
        return Kept(last, bool(cancel))
    raise Fenced(f"the run {id} is {status} and has {last_seq} events: it was not left so by epoch {epoch}")


def renew(dialect: Dialect, id: str, epoch: int, lease: float) -> Steps[bool]:
    """Hold the run longer. Gives whether somebody wants it to end; Fenced: it is not ours any more."""
    rows = yield Sql(
        f"UPDATE thinkgate_runs SET lease_until = {dialect.now} + ? WHERE id = ? AND epoch = ? AND status = 'running' RETURNING cancel",  # noqa: S608
        (lease, id, epoch),
    )
    if not rows:
        raise Fenced(f"the run {id} is held by another, or over")
    return bool(rows[0][0])


def release(dialect: Dialect, id: str, epoch: int) -> Steps[bool]:
    """Give a run that we hold back to the queue. False: it was not ours any more."""
    rows = yield Sql(
        "UPDATE thinkgate_runs SET status = 'queued', owner = NULL, lease_until = NULL WHERE id = ? AND epoch = ? AND status = 'running' RETURNING last_seq",
        (id, epoch),
    )
    if rows:
        yield from _tell(dialect, id, rows[0][0])
    return bool(rows)


def ask_cancel(dialect: Dialect, id: str) -> Steps[RunRow | None]:
    """Note that a run shall end; its owner is told by its next write. Gives the run as it is now."""
    rows = yield Sql(f"UPDATE thinkgate_runs SET cancel = 1 WHERE id = ? AND status NOT IN {_OVER} RETURNING {_COLUMNS}", (id,))  # noqa: S608
    if not rows:
        return (yield from one(id))
    yield from _tell(dialect, id, -1)
    return _row(rows[0])


def clock(dialect: Dialect) -> Steps[float]:
    rows = yield Sql(f"SELECT {dialect.now}")
    return float(rows[0][0])


def due(dialect: Dialect, limit: int) -> Steps[list[Due]]:
    """Runs that somebody should take: queued, left alone by a process that died, or waiting for longer than they may."""
    rows = yield Sql(
        "SELECT id, status, detached, attempts FROM thinkgate_runs WHERE status = 'queued' "  # noqa: S608
        f"OR (status = 'running' AND lease_until < {dialect.now}) OR (status = 'waiting' AND wake_at < {dialect.now}) ORDER BY nr LIMIT ?",
        (limit,),
    )
    return [Due(row[0], row[1], bool(row[2]), row[3]) for row in rows]


def page(limit: int, before: int | None, agent: str | None, key_name: str | None, status: str | None, tenant: str | None) -> Steps[RunPage]:
    named = (("agent", agent), ("key_name", key_name), ("status", status), ("tenant", tenant))
    conditions: list[tuple[str, Any]] = [(f"{name} = ?", plain(value)) for name, value in named if value is not None]
    if before is not None:
        conditions.append(("nr < ?", min(max(before, 0), 2**62)))
    where = " WHERE " + " AND ".join(text for text, _ in conditions) if conditions else ""
    limit = min(max(limit, 1), _AT_ONCE)
    rows = yield Sql(f"{_SELECT}{where} ORDER BY nr DESC LIMIT ?", (*(value for _, value in conditions), limit + 1))
    return RunPage(tuple(_row(row) for row in rows[:limit]), rows[limit - 1][0] if len(rows) > limit else None)


def forget(older_than: float | None, keep: int | None) -> Steps[int]:
    """Delete some runs that are over, with their events: those that ended before a moment, and all but the newest `keep`. 0: none is left."""
    conditions: list[tuple[str, Any]] = []
    if older_than is not None:
        conditions.append(("finished_at < ?", older_than))
    if keep is not None:
        edge = yield Sql(f"SELECT nr FROM thinkgate_runs WHERE status IN {_OVER} ORDER BY nr DESC LIMIT 1 OFFSET ?", (keep,))  # noqa: S608
        if edge:
            conditions.append(("nr <= ?", edge[0][0]))
    if not conditions:
        return 0
    which = " OR ".join(text for text, _ in conditions)
    rows = yield Sql(f"SELECT id FROM thinkgate_runs WHERE status IN {_OVER} AND ({which}) LIMIT ?", (*(value for _, value in conditions), _FORGET))  # noqa: S608
    ids = [row[0] for row in rows]
    if ids:
        marks = ", ".join("?" * len(ids))
        # one that was taken up again since is not over any more: it stays
        gone = yield Sql(f"DELETE FROM thinkgate_runs WHERE id IN ({marks}) AND status IN {_OVER} RETURNING id", ids)  # noqa: S608
        ids = [row[0] for row in gone]
    if ids:
        marks = ", ".join("?" * len(ids))
        yield Sql(f"DELETE FROM thinkgate_events WHERE run_id IN ({marks})", ids)  # noqa: S608
        yield Sql(f"DELETE FROM thinkgate_waiting WHERE run_id IN ({marks})", ids)  # noqa: S608
    return len(ids)


def waiting(dialect: Dialect, tenant: str, call_ids: Sequence[str]) -> Steps[RunRow]:
    """The run that waits under all of these ids. Conflict `run_not_waiting`: one is unknown, used or expired, or they belong to several runs."""
    found: set[str] = set()
    for call in call_ids:
        rows = yield Sql(
            f"SELECT run_id FROM thinkgate_waiting WHERE tenant = ? AND call_id = ? AND used = 0 AND (expires IS NULL OR expires > {dialect.now})",  # noqa: S608
            (plain(tenant), plain(call)),
        )
        if not rows:
            raise Conflict(f"no run waits under {call}", code="run_not_waiting")
        found.add(rows[0][0])
    row = (yield from one(found.pop())) if len(found) == 1 else None
    if row is None or row.status != "waiting":
        raise Conflict("no run waits under all of these ids", code="run_not_waiting")
    return row


def _tell(dialect: Dialect, id: str, seq: int) -> Steps[None]:
    if dialect.notify is not None:
        yield Sql(dialect.notify, (CHANNEL, f"{id} {seq}"))


def _value(name: str, value: Any) -> Any:
    if name in _JSON:
        return None if value is None else to_text(value)
    return int(value) if name in _FLAGS else value


def _row(row: Row) -> RunRow:
    named = dict(zip(_FIELDS, row[1:], strict=True))
    for name in _JSON:
        if named[name] is not None:
            named[name] = loads(named[name])
    for name in _FLAGS:
        named[name] = bool(named[name])
    return RunRow(**named, nr=row[0])
