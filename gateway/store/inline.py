"""A store in memory without a thread: transactions run where they are asked for, and wait for no disk."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator
from pathlib import Path

from gateway.store.engine import Dialect, Steps, T
from gateway.store.faults import StoreRefused, StoreUnavailable
from gateway.store.schema import migrate
from gateway.store.sqlite import DIALECT, MEMORY, transact


class Inline:
    """An Engine for one process that forgets everything with it: what the library keeps its runs in."""

    dialect: Dialect = DIALECT
    file: Path | None = None

    def __init__(self) -> None:
        self._database: sqlite3.Connection | None = sqlite3.connect(MEMORY, isolation_level=None, check_same_thread=False)
        transact(self._database, "BEGIN", migrate(DIALECT))

    async def read(self, steps: Steps[T]) -> T:
        return await self.write(steps)

    async def write(self, steps: Steps[T], *, durable: bool = False) -> T:
        if self._database is None:
            raise StoreUnavailable("the store is closed")
        return transact(self._database, "BEGIN", steps)

    def listen(self, channel: str) -> AsyncGenerator[str]:
        raise StoreRefused("nobody else writes here")

    async def backup(self, path: Path) -> None:
        raise StoreRefused("what is in memory only is not backed up")

    async def aclose(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def __del__(self) -> None:
        if self._database is not None:
            self._database.close()
