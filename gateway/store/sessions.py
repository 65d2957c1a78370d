"""Transactions on the sessions of agents: what a conversation is, and which run has it now."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from gateway.chat import loads
from gateway.errors import Conflict
from gateway.store.engine import Dialect, Row, Sql, Steps
from gateway.store.rows import Json
from gateway.store.run_rows import SessionRow
from gateway.store.texts import plain, to_text

_FIELDS = tuple(field.name for field in fields(SessionRow))
_COLUMNS = ", ".join(_FIELDS)
_SELECT = f"SELECT {_COLUMNS} FROM thinkgate_sessions WHERE key = ?"  # noqa: S608, names of our own columns


class Busy(Conflict):
    """Another run has the session."""

    code = "run_busy"


def take(dialect: Dialect, key: str, session_id: str, tenant: str, agent: str, run: str) -> Steps[None]:
    """Give a session to a run. Busy: another one that is not over has it."""
    # the write locks the row, so that what is read next is still true when it is decided on
    rows = yield Sql(
        f"INSERT INTO thinkgate_sessions ({_COLUMNS}) VALUES (?, ?, ?, ?, '{{}}', 0, ?, {dialect.now}, {dialect.now}) "  # noqa: S608
        "ON CONFLICT (key) DO UPDATE SET updated_at = excluded.updated_at RETURNING run_id",
        (key, plain(session_id), plain(tenant), plain(agent), run),
    )
    holder = rows[0][0]
    if holder == run:
        return
    if holder is not None:
        # one that nobody goes on with when its process dies has lost the session with its lease
        active = yield Sql(
            "SELECT 1 FROM thinkgate_runs WHERE id = ? AND (status IN ('queued', 'waiting') "  # noqa: S608
            f"OR (status = 'running' AND (detached = 1 OR lease_until >= {dialect.now})))",
            (holder,),
        )
        if active:
            raise Busy(f"the run {holder} of this session is not over")
    yield Sql("UPDATE thinkgate_sessions SET run_id = ? WHERE key = ?", (run, key))


def leave(dialect: Dialect, key: str, run: str, state: Json | None, free: bool) -> Steps[None]:
    """Write the state of a run's session, and let go of it. Nothing, where the session was deleted meanwhile."""
    sets, values = [f"updated_at = {dialect.now}"], list[Any]()
    if state is not None:
        sets += ["state = ?", "version = version + 1"]
        values.append(to_text(state))
    if free:
        sets.append("run_id = NULL")
    yield Sql(f"UPDATE thinkgate_sessions SET {', '.join(sets)} WHERE key = ? AND run_id = ?", (*values, key, run))  # noqa: S608


def load(key: str) -> Steps[SessionRow | None]:
    rows = yield Sql(_SELECT, (key,))
    return _row(rows[0]) if rows else None


def save(dialect: Dialect, row: SessionRow) -> Steps[SessionRow]:
    """Write a session's state if it still has the row's version. Conflict: somebody else wrote it since."""
    values = (row.key, plain(row.session_id), plain(row.tenant), plain(row.agent), to_text(row.state), row.version)
    rows = yield Sql(
        f"INSERT INTO thinkgate_sessions ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, 1, NULL, {dialect.now}, {dialect.now}) "  # noqa: S608
        "ON CONFLICT (key) DO UPDATE SET state = excluded.state, version = thinkgate_sessions.version + 1, updated_at = excluded.updated_at "
        f"WHERE thinkgate_sessions.version = ? RETURNING {_COLUMNS}",
        values,
    )
    if not rows:
        raise Conflict("the session was written by somebody else since it was read", code="session_changed")
    return _row(rows[0])


def delete(dialect: Dialect, key: str) -> Steps[bool]:
    """Forget a session. Busy while a run has it; False: there is none."""
    rows = yield Sql("UPDATE thinkgate_sessions SET version = version + 1 WHERE key = ? RETURNING run_id", (key,))
    if not rows:
        return False
    if rows[0][0] is not None:
        active = yield Sql(
            f"SELECT 1 FROM thinkgate_runs WHERE id = ? AND (status = 'queued' OR (status = 'running' AND (detached = 1 OR lease_until >= {dialect.now})))",  # noqa: S608
            (rows[0][0],),
        )
        if active:
            raise Busy(f"the run {rows[0][0]} of this session is not over")
    yield Sql("DELETE FROM thinkgate_sessions WHERE key = ?", (key,))
    return True


def _row(row: Row) -> SessionRow:
    named = dict(zip(_FIELDS, row, strict=True))
    return SessionRow(**named | {"state": loads(named["state"])})
