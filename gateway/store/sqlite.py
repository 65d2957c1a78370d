"""SQLite: one file, one writer and one reader, each on a thread of its own, so that the event loop never waits for a disk.

The file is in WAL mode: readers see the last commit and wait for nobody, several processes
may use it. Whoever finds it locked for more than 200 ms gets StoreUnavailable.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from gateway.store.engine import Dialect, Many, Row, Steps, T
from gateway.store.faults import StoreRefused, StoreUnavailable
from gateway.store.schema import migrate

DIALECT = Dialect(
    name="sqlite",
    words={"blob": "BLOB", "serial": "INTEGER PRIMARY KEY AUTOINCREMENT", "keyed": "WITHOUT ROWID"},
    known="SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'thinkgate_meta'",
    now="((julianday('now') - 2440587.5) * 86400.0)",  # in milliseconds; unixepoch('subsec') is of 3.42
)

MEMORY = ":memory:"

_OPENING = 10_000  # ms: another process may be bringing the schema up to date
_BUSY = 200  # ms: the rule for everything after that
_INSERT = re.compile(r"(INSERT INTO \w+ \([\w, ]+\) VALUES )(\((?:\?, )*\?\))")
_TOGETHER = 256  # rows in one statement: 6,400 values, of the 32,766 that SQLite takes
_OLDEST = (3, 35, 0)  # RETURNING


class Sqlite:
    """An Engine on a file, or in memory. Made by `open`."""

    dialect = DIALECT

    def __init__(self, path: str) -> None:
        self._path = path
        self._writer = _Connection(path)
        self._reader = self._writer if path == MEMORY else _Connection(path)

    @classmethod
    async def open(cls, path: str) -> Sqlite:
        """StoreRefused if the file cannot be used."""
        if sqlite3.sqlite_version_info < _OLDEST:
            raise StoreRefused(f"SQLite {sqlite3.sqlite_version} is too old: the store needs {'.'.join(map(str, _OLDEST))}")
        engine = cls(path)
        try:
            if path != MEMORY:
                await asyncio.to_thread(_make, path)
            await engine._writer.open()
            await engine._writer.transact("BEGIN IMMEDIATE", migrate(DIALECT))
            if engine._reader is not engine._writer:
                await engine._reader.open("query_only = ON")
            for connection in {engine._writer, engine._reader}:
                await connection.pragma(f"busy_timeout = {_BUSY}")
        except (StoreUnavailable, OSError) as error:
            await engine.aclose()
            raise StoreRefused(f"the store {path} cannot be used: {error}") from error
        except BaseException:
            await engine.aclose()
            raise
        return engine

    @property
    def file(self) -> Path | None:
        return None if self._path == MEMORY else Path(self._path)

    async def read(self, steps: Steps[T]) -> T:
        return await self._reader.transact("BEGIN", steps)

    async def write(self, steps: Steps[T], *, durable: bool = False) -> T:
        return await self._writer.transact("BEGIN IMMEDIATE", steps, durable=durable)

    def listen(self, channel: str) -> AsyncGenerator[str]:
        raise StoreRefused("SQLite tells nobody of a write: who waits for one must look")

    async def backup(self, path: Path) -> None:
        """Written beside `path` and moved there when it is whole, so that a file of this name is always a good copy."""
        part = path.with_name(path.name + ".part")
        try:
            await asyncio.to_thread(_make_new, part, path)
            await self._copy(part)
            await asyncio.to_thread(_publish, part, path)
        except OSError as error:
            raise StoreRefused(f"no backup to {path}: {error.strerror or error}") from error
        finally:
            await asyncio.to_thread(part.unlink, missing_ok=True)

    async def _copy(self, path: Path) -> None:
        if self._path == MEMORY:
            await self._writer.copy(path)
            return
        connection = _Connection(self._path)  # one of its own: a large copy must not hold readers up
        try:
            await connection.open()
            await connection.copy(path)
        finally:
            await connection.aclose()

    async def aclose(self) -> None:
        await self._reader.aclose()
        await self._writer.aclose()


class _Connection:
    """A connection that is made, used and closed on one thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="thinkgate-store")
        self._database: sqlite3.Connection | None = None
        self._closed = False

    async def open(self, *pragmas: str) -> None:
        await self._run(self._open, pragmas)

    async def pragma(self, text: str) -> None:
        await self._run(self._pragma, text)

    async def transact(self, begin: str, steps: Steps[T], durable: bool = False) -> T:
        return await self._run(self._transact, begin, steps, durable)

    async def copy(self, path: Path) -> None:
        await self._run(self._copy, path)

    async def aclose(self) -> None:
        """What is under way ends first. Closing twice is closing."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
            self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    @property
    def _open_database(self) -> sqlite3.Connection:
        if self._database is None:
            raise StoreUnavailable("the store is not open")
        return self._database

    def _open(self, pragmas: tuple[str, ...]) -> None:
        with _told():
            self._database = database = sqlite3.connect(self._path, timeout=_OPENING / 1000, isolation_level=None)
            _switch_to_wal(database)
            for pragma in ("trusted_schema = OFF", "synchronous = NORMAL", "cache_size = -512", *pragmas):  # half a MiB of pages: rows are written once
                database.execute(f"PRAGMA {pragma}")

    def _pragma(self, text: str) -> None:
        with _told():
            self._open_database.execute(f"PRAGMA {text}")

    def _transact(self, begin: str, steps: Steps[T], durable: bool) -> T:
        database = self._open_database
        if not durable:
            return transact(database, begin, steps)
        with _told(), _synchronous(database):
            return transact(database, begin, steps)

    def _copy(self, path: Path) -> None:
        with _told():
            self._open_database.execute("VACUUM INTO ?", (str(path),))

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


def _switch_to_wal(database: sqlite3.Connection) -> None:
    """Two processes that switch a new file at once lock each other out, and SQLite's own busy time-out does not apply there (3.40, 2026-11)."""
    last = time.monotonic() + _OPENING / 1000
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > last:
                raise
            time.sleep(0.02)  # on the connection's own thread
        else:
            return


def transact(database: sqlite3.Connection, begin: str, steps: Steps[T]) -> T:
    """Run a transaction on the thread that this is called on."""
    with _told(), closing(steps):
        database.execute(begin)
        try:
            result = _drive(database, steps)
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
    return result


def _execute_many(database: sqlite3.Connection, statement: Many) -> None:
    """Inserts go many rows at a time: each step of SQLite gives the interpreter away, and taking it back beside a busy event loop costs more than the row."""
    whole, given = _INSERT.fullmatch(statement.text), statement.rows
    if whole is None:
        database.executemany(statement.text, given)
        return
    start, together = 0, _TOGETHER
    while start < len(given):
        while together > len(given) - start:
            together >>= 1  # few sizes: each text is a statement that the driver keeps
        text = f"{whole[1]}{', '.join([whole[2]] * together)}"
        database.execute(text, list(chain.from_iterable(given[start : start + together])))
        start += together


def _drive(database: sqlite3.Connection, steps: Steps[T]) -> T:
    rows: list[Row] = []
    try:
        statement = next(steps)
        while True:
            if isinstance(statement, Many):
                _execute_many(database, statement)
                rows = []
            else:
                rows = database.execute(statement.text, statement.values).fetchall()
            statement = steps.send(rows)
    except StopIteration as end:
        result: T = end.value
        return result


@contextmanager
def _synchronous(database: sqlite3.Connection) -> Iterator[None]:
    """A commit waits for the disk."""
    database.execute("PRAGMA synchronous = FULL")
    try:
        yield
    finally:
        database.execute("PRAGMA synchronous = NORMAL")


@contextmanager
def _told() -> Iterator[None]:
    """SQLite's texts (database is locked, disk is full) name no value of a row."""
    try:
        yield
    except sqlite3.Error as error:
        raise StoreUnavailable(f"the store does not serve: {error}") from error


def _make(path: str) -> None:
    """The file holds the pepper and who uses what: nobody but its owner reads it. SQLite gives its journals the same mode."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def _make_new(part: Path, path: Path) -> None:
    if path.exists():
        raise FileExistsError(None, "the file exists")
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _publish(part: Path, path: Path) -> None:
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    part.rename(path)
