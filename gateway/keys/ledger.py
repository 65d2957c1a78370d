"""Keys and usage of one running gateway, over its store. Outlives every config that is loaded."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from gateway.errors import GatewayError
from gateway.keys.authority import Authority
from gateway.keys.sharing import SharedDoor
from gateway.keys.usage import Usage
from gateway.store import RequestRow, Shared, Store, StoreUnavailable

log = logging.getLogger("thinkgate")

LOOK = 0.5
"""seconds between two looks at the store's version of the keys: a revocation is known everywhere within twice that"""
_PATIENCE = 5.0  # seconds for one look
_SOON = 0.5  # seconds that a request with a key which is not known waits for one
_RETAIN = 3600.0  # seconds between two rounds of forgetting old requests
_RETAIN_AGAIN = 60.0  # after one that failed


class Ledger:
    """`authority` says who may come in, `usage` takes what was used. Works without a store too: then only the file's keys are known."""

    def __init__(self, dropped: Callable[[int], None] = lambda count: None, processes: int = 1, shared: Shared | None = None) -> None:
        self.authority = Authority(processes)
        self.shared = shared
        self.door = SharedDoor(shared, self.authority) if shared is not None else None
        """who lets requests in under the limits of their keys, where several processes count together"""
        self.usage = Usage(dropped)
        self.store: Store | None = None
        self.retention: float | None = None
        """seconds that records of requests are kept; None: for ever"""
        self.fault: str | None = None
        """why the store could not be asked last time"""
        self._version: int | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._looking = asyncio.Lock()
        self._seeking = asyncio.Lock()
        self._begun = 0

    async def open(self, store: Store) -> None:
        """Take over a store: its keys are known from here on, what is used is written to it. Raises what the store raises."""
        self.store = store
        self.usage.start(store)
        await self.look()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._follow()), loop.create_task(self._forget())]

    async def close(self) -> None:
        """Write what is left and let go of the store."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = []
        await self.usage.stop()
        store, self.store = self.store, None
        if store is not None:
            await store.aclose()

    def charge(self, row: RequestRow) -> None:
        """What was used without a request that waits for it (a run in the background): its key and team pay, its row is kept."""
        accounts = self.authority.accounts_of(row.key_id) if row.key_id else ()
        charges = [charge for account in accounts if (charge := account.purse.charge(row.cost or 0.0, row.time)) is not None]
        if charges or self.retention != 0:
            self.usage.put(lambda: row, charges)

    async def look(self) -> None:
        """Know the store's keys as they are now. Raises what the store raises."""
        store = self.store
        if store is None:
            return
        async with self._looking:
            version = await store.key_version()
            if version == self._version:
                return
            rows = await store.keys()
            self.authority.learn(rows, await store.pepper())
            self._version = version
        await self.usage.read_spent([account for account in self.authority.accounts() if account.purse.budget is not None and not account.purse.known])

    async def seek(self) -> bool:
        """Whether keys have changed that this process did not know of: one that was made a moment ago elsewhere. StoreUnavailable."""
        store, before, begun = self.store, self._version, self._begun
        if store is None:
            return False
        try:
            async with asyncio.timeout(_SOON), self._seeking:
                if self._begun == begun:  # else somebody else's look began after this one was wanted
                    self._begun += 1
                    await self.look()
        except TimeoutError:
            raise StoreUnavailable("the key is not known here, and the store does not answer in time") from None
        return self._version != before

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            try:
                async with asyncio.timeout(_PATIENCE):
                    await self.look()
            except Exception as error:  # whatever it is, the next look may find a revocation
                if self.fault is None:
                    log.error("the store cannot be asked, the keys stay as they are known: %s", error or "it took too long", exc_info=unknown(error))
                self.fault = error.message if isinstance(error, GatewayError) else "it took too long or failed"
            else:
                if self.fault is not None:
                    log.warning("the store answers again")
                self.fault = None

    async def _forget(self) -> None:
        mine = False  # this round, until it succeeds: nobody else does it
        while True:
            store, kept, wait = self.store, self.retention, _RETAIN
            if store is not None and kept is not None:
                try:
                    mine = mine or await store.claim("retention", _RETAIN - 60)  # one process on this store does it
                    if mine:
                        await store.retain(requests_older_than=time.time() - kept)
                        mine = False
                except Exception as error:
                    log.error("old requests could not be forgotten now: %s", error, exc_info=unknown(error))
                    wait = _RETAIN_AGAIN
            await asyncio.sleep(wait)


def unknown(error: Exception) -> bool:
    """Whether a failure is one that nobody foresaw, so that the log needs all of it."""
    return not isinstance(error, GatewayError | TimeoutError)
