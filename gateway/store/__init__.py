"""Where the gateway keeps what must outlive it: SQLite by default, PostgreSQL by URL, one interface."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.store.engine import Engine, Many, Sql, Steps
from gateway.store.faults import Fenced, SharedAway, StoreRefused, StoreUnavailable
from gateway.store.inline import Inline
from gateway.store.rows import KeyRow, Page, RequestRow, UsageRow
from gateway.store.run_rows import Due, EventRow, RunPage, RunRow, SessionRow, Wait, session_key
from gateway.store.run_store import LEASE, Runs
from gateway.store.runs import Kept
from gateway.store.sessions import Busy
from gateway.store.shared import Script, Shared
from gateway.store.shared_limits import Part, SharedLimits, Terms, Used, Verdict
from gateway.store.shared_rests import RestBoard
from gateway.store.sqlite import MEMORY, Sqlite
from gateway.store.store import SqlStore, Store
from gateway.store.texts import to_text

if TYPE_CHECKING:
    from gateway.store.queue import Queue

__all__ = [
    "LEASE",
    "Busy",
    "Due",
    "EventRow",
    "Fenced",
    "Inline",
    "Kept",
    "KeyRow",
    "Many",
    "Page",
    "Part",
    "RequestRow",
    "RestBoard",
    "RunPage",
    "RunRow",
    "Runs",
    "Script",
    "SessionRow",
    "Shared",
    "SharedAway",
    "SharedLimits",
    "Sql",
    "SqlStore",
    "Steps",
    "Store",
    "StoreRefused",
    "StoreUnavailable",
    "Terms",
    "UsageRow",
    "Used",
    "Verdict",
    "Wait",
    "folder_of",
    "in_memory",
    "open_queue",
    "open_store",
    "session_key",
    "to_text",
]


_NOWHERE = ("", "/", f"/{MEMORY}")
MOST_IN_MEMORY = 10_000
"""requests that a store in memory keeps, some 6 MB: a gateway without a file must not grow for ever"""


async def open_store(url: str, base: Path) -> SqlStore:
    """The store at a URL, its schema brought up to date.

    `sqlite:///FILE` (relative to `base`), `sqlite:////FILE` (absolute), `sqlite://` (in
    memory, with the last 10,000 requests only) or `postgresql://...`. StoreRefused says why one cannot be used: no such folder,
    no such server, made by a newer version; never a password.
    """
    scheme, _, rest = url.partition("://")
    if scheme == "sqlite":
        path = _file(rest, base)
        return SqlStore(await Sqlite.open(path), MOST_IN_MEMORY if path == MEMORY else None)
    if scheme in ("postgresql", "postgres"):
        return SqlStore(await _postgres(url))
    raise StoreRefused("a store is sqlite:///FILE or postgresql://...")


def in_memory(url: str) -> bool:
    """Whether a store is its process's alone, and ends with it."""
    scheme, _, rest = url.partition("://")
    return scheme == "sqlite" and rest in _NOWHERE


def folder_of(url: str, base: Path) -> Path | None:
    """The folder that the file of a store must be in; None: it has no file."""
    scheme, _, rest = url.partition("://")
    return Path(_file(rest, base)).parent if scheme == "sqlite" and rest not in _NOWHERE else None


def _file(rest: str, base: Path) -> str:
    if rest in _NOWHERE:
        return MEMORY
    if not rest.startswith("/") or "?" in rest or "#" in rest or "\0" in rest:
        raise StoreRefused("an SQLite store is sqlite:///FILE, sqlite:////ABSOLUTE/FILE or sqlite:// (in memory), without parameters")
    return str(base / rest[1:])


async def _postgres(url: str) -> Engine:
    try:
        from gateway.store.postgres import Postgres
    except ImportError as error:
        raise StoreRefused("a PostgreSQL store needs its driver: pip install 'psycopg[binary]'") from error
    return await Postgres.open(url)


async def open_queue(engine: Engine, take: Callable[[str], Awaitable[None]], concurrency: int) -> Queue:
    """This replica's part in the queue of a PostgreSQL store; procrastinate is imported here only."""
    from gateway.store.postgres import Postgres
    from gateway.store.queue import Queue

    if not isinstance(engine, Postgres):
        raise StoreRefused("only a PostgreSQL store has a queue")
    return await Queue.open(engine, take, concurrency)
