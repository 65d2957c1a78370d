"""PostgreSQL through psycopg 3: what several replicas share.

psycopg is imported here only, when a `postgresql://` store is opened: nobody else waits
for it or needs its libraries. The pool is our own because a caller must hear at once that
the server refuses, and the first call after an outage must succeed: psycopg_pool keeps
callers waiting until their time is over and tries again later and later (3.3, 2026-11).
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from gateway.errors import GatewayError
from gateway.store.engine import Dialect, Many, Row, Steps, T
from gateway.store.faults import StoreRefused, StoreUnavailable
from gateway.store.schema import migrate

DIALECT = Dialect(
    name="postgresql",
    words={"blob": "BYTEA", "serial": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "keyed": ""},
    known="SELECT 1 WHERE to_regclass('thinkgate_meta') IS NOT NULL",
    now="CAST(extract(epoch FROM clock_timestamp()) AS DOUBLE PRECISION)",
    notify="SELECT pg_notify(?, ?)",
    lock="SELECT pg_advisory_xact_lock(7526466505961600)",
)

CONNECTIONS = 4
"""at a time, for everything but the two lines on which a process with agents hears (`listen`, and the queue's own)"""
_PATIENCE = 10.0
_AT_ONCE = 1.0  # seconds in which a server that takes no more connections says so

_DEFAULTS = {
    "application_name": "thinkgate",
    "connect_timeout": "5",
    # a machine that vanished is noticed after seconds, not after the kernel's two hours
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
# said in each transaction, not at the start of a connection: a pooler such as PgBouncer hands that on to others, or refuses it
_BEGIN = "BEGIN; SET LOCAL statement_timeout = {all}; SET LOCAL lock_timeout = {half}; SET LOCAL idle_in_transaction_session_timeout = {all}"
_OPENING = "SET LOCAL lock_timeout = '60s'"

_WHERE = re.compile(r"(?:[^@:]*(?::[^@:]*)?@)?(?:(?:\[[^\]]*\]|[^@:,\[]*)(?::\d*)?(?:,|$))*")

_Connection = psycopg.AsyncConnection[Row]


class Postgres:
    """An Engine on a PostgreSQL database. Made by `open`."""

    dialect = DIALECT
    file: Path | None = None

    def __init__(self, target: str, patience: float) -> None:
        self.target = target
        """the connection's settings, with the password"""
        self._pool = _Pool(target, patience)

    @classmethod
    async def open(cls, url: str, patience: float = _PATIENCE) -> Postgres:
        """StoreRefused if the database cannot be used; the message holds no password.

        `patience`: seconds that a transaction may take, and that it may wait for a free connection.
        """
        try:
            target = _target(url)
            async with await psycopg.AsyncConnection.connect(target) as connection:
                await connection.execute(_OPENING)
                await _drive(connection, migrate(DIALECT))
        except psycopg.Error as error:
            raise StoreRefused(f"the store cannot be used: {_text(error, url)}") from None  # the cause's text may hold the URL
        return cls(target, patience)

    async def read(self, steps: Steps[T]) -> T:
        return await self.write(steps)

    async def write(self, steps: Steps[T], *, durable: bool = False) -> T:
        try:
            async with self._pool.transaction() as connection:
                return await _drive(connection, steps)
        except TimeoutError as error:
            raise StoreUnavailable("the store does not answer in time") from error
        except psycopg.errors.ReadOnlySqlTransaction as error:
            raise StoreUnavailable("the store is read-only now") from error
        except psycopg.Error as error:
            raise StoreUnavailable(f"the store does not serve: {type(error).__name__} {error.sqlstate or ''}".rstrip()) from error

    async def listen(self, channel: str) -> AsyncGenerator[str]:
        """On a connection of its own, as long as the generator is open."""
        try:
            async with await psycopg.AsyncConnection.connect(self.target, autocommit=True) as connection:
                await connection.execute(f"LISTEN {channel}")
                yield ""
                async with aclosing(connection.notifies()) as notices:
                    async for notice in notices:
                        yield notice.payload
        except psycopg.Error as error:
            raise StoreUnavailable(f"the store does not serve: {type(error).__name__} {error.sqlstate or ''}".rstrip()) from error

    async def backup(self, path: Path) -> None:
        raise StoreRefused("a PostgreSQL store is backed up with PostgreSQL's own tool: pg_dump --format=custom --file=FILE URL")

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Pool:
    """A few connections, made when they are needed and kept while they work."""

    def __init__(self, target: str, patience: float) -> None:
        self._target = target
        self._patience = patience
        # less than our own patience: the server's word is better than a cut. The last one frees the locks of a replica that froze
        self._opening = _BEGIN.format(all=int(patience * 800), half=int(patience * 400))
        self._places = asyncio.Semaphore(CONNECTIONS)
        self._idle: list[_Connection] = []
        self._taken = 0
        self._trying = 0
        self._given_back = 0
        self._news = asyncio.Event()
        self._closed = False

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[_Connection]:
        """A connection in a transaction that is kept if the block ends well. TimeoutError when none gets free or it takes too long."""
        async with asyncio.timeout(self._patience):
            await self._places.acquire()
        try:
            connection = await self._begin()
            overdue = asyncio.get_running_loop().call_later(self._patience, _cut, connection)
            try:
                yield connection
                await connection.execute("COMMIT")
            except GatewayError:
                await connection.execute("ROLLBACK")
                raise
            except psycopg.errors.ReadOnlySqlTransaction:  # a primary no more: new connections may find the new one
                await self._drop_idle()
                raise
            except psycopg.OperationalError as error:
                if overdue.when() <= asyncio.get_running_loop().time():
                    raise TimeoutError from error
                raise
            finally:
                overdue.cancel()
                try:
                    await self._give_back(connection)
                finally:
                    self._free()
        finally:
            self._places.release()

    async def aclose(self) -> None:
        """Those in use are closed as they come back."""
        self._closed = True
        await self._drop_idle()

    async def _begin(self) -> _Connection:
        """A connection in a transaction.

        Where the server takes no more connections, those that are there have to do: whoever
        got none waits for one of them. Where there are none, and no other try has got one,
        the server is away, and that is said at once.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience
        while True:
            if self._closed:
                raise StoreUnavailable("the store is closed")
            began, given_back = loop.time(), self._given_back
            self._trying += 1
            try:
                connection = await self._opened()
            except psycopg.OperationalError as error:
                if loop.time() - began > _AT_ONCE:
                    raise
                refused = error
            else:
                self._taken += 1
                return connection
            finally:
                self._trying -= 1
                self._tell()
            while not self._idle and self._given_back == given_back:
                if not (self._taken or self._trying):
                    raise refused
                async with asyncio.timeout_at(until):
                    await self._news.wait()

    async def _opened(self) -> _Connection:
        """BEGIN shows whether a kept connection still works, at no extra price. One that does not speaks for the others."""
        if self._idle:
            try:
                return await self._started(self._idle.pop())
            except psycopg.OperationalError:
                await self._drop_idle()
        return await self._started(await psycopg.AsyncConnection.connect(self._target, autocommit=True))

    def _free(self) -> None:
        """One connection less is in use."""
        self._taken -= 1
        self._given_back += 1
        self._tell()

    def _tell(self) -> None:
        """Whoever waits for a connection looks again."""
        self._news.set()
        self._news = asyncio.Event()

    async def _started(self, connection: _Connection) -> _Connection:
        overdue = asyncio.get_running_loop().call_later(self._patience / 5, _cut, connection)
        try:
            await connection.execute(self._opening)
        except BaseException:
            await connection.close()
            raise
        finally:
            overdue.cancel()
        return connection

    async def _drop_idle(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    async def _give_back(self, connection: _Connection) -> None:
        if self._closed or connection.closed or connection.info.transaction_status != TransactionStatus.IDLE:
            await connection.close()  # and the server undoes what was not committed
        else:
            self._idle.append(connection)


def _cut(connection: _Connection) -> None:
    """End a connection whose server is silent. Cancelling the task would not: the driver then asks the server to cancel, and waits."""
    if connection.closed:
        return
    with socket.socket(fileno=os.dup(connection.fileno())) as line:
        try:
            line.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the server was faster


async def _drive(connection: _Connection, steps: Steps[T]) -> T:
    rows: list[Row] = []
    with closing(steps):
        try:
            statement = next(steps)
            while True:
                text = statement.text.replace("?", "%s")
                if isinstance(statement, Many):
                    async with connection.cursor() as cursor:
                        await cursor.executemany(text, statement.rows)
                    rows = []
                else:
                    cursor = await connection.execute(text, statement.values)
                    rows = await cursor.fetchall() if cursor.description is not None else []
                statement = steps.send(rows)
        except StopIteration as end:
            result: T = end.value
            return result


def _target(url: str) -> str:
    """The URL with our defaults, where it does not set them itself. Of several hosts the primary is meant."""
    given = conninfo_to_dict(url)
    several = {"target_session_attrs": "read-write"} if "," in f"{given.get('host') or ''}{given.get('hostaddr') or ''}" else {}
    return make_conninfo("", **{**_DEFAULTS, **several, **given})


def _text(error: psycopg.Error, url: str) -> str:
    """The driver's words on one line, without the password, which it quotes where it takes it for something else."""
    where = re.split("[/?]", url.partition("://")[2], maxsplit=1)[0]
    if not _WHERE.fullmatch(where):
        return "its URL is not postgresql://USER:PASSWORD@HOST:PORT/DATABASE (in a password, @ : / ? are written %40 %3A %2F %3F)"
    try:
        password = conninfo_to_dict(url).get("password")
    except psycopg.Error:
        return "its URL cannot be read"
    text = " ".join(str(error).split())
    return text.replace(str(password), "***") if password else text
