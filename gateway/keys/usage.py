"""Every request's row on its way to the store: in batches, off the hot path, bounded.

`put` never waits, and what it is given becomes a row only when its batch is written: many made
together cost half of what each does amid a request. What finds the queue full is dropped and counted; what it cost stays
charged. A store that fails is asked again until it answers, and a clean stop writes
everything that is there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from gateway.errors import GatewayError
from gateway.keys.authority import Account
from gateway.keys.budgets import Charge, Purse
from gateway.store import RequestRow, Store, StoreUnavailable

log = logging.getLogger("thinkgate")

BOUND = 10_000
"""rows that wait at most"""
BATCH = 512
PAUSE = 0.25
"""seconds in which rows gather before they are written"""
FRESH = 1.0
"""seconds after which the store is asked again, beside the requests, what a key in use has spent here and elsewhere"""
OLD = 10.0
"""seconds after which a request waits for that"""
_LONGEST_PAUSE = 5.0
_PATIENCE = 5.0  # seconds for one call of the store
_SHORT_WAIT = 0.5  # seconds that a request waits for the store
_LAST_TRY = 10.0  # seconds in which a stop may write what is left


class Usage:
    """The queue and the task that empties it. `dropped` is called with the number of rows that were lost."""

    def __init__(self, dropped: Callable[[int], None] = lambda count: None, *, bound: int = BOUND, pause: float = PAUSE) -> None:
        self._dropped = dropped
        self._bound = bound
        self._pause = pause
        self._waiting: deque[tuple[Callable[[], RequestRow], Sequence[Charge]]] = deque()
        self._batch: list[tuple[RequestRow, Sequence[Charge]]] = []
        self._asked: dict[str, Account] = {}
        self._wake = asyncio.Event()
        self._turn = asyncio.Lock()  # between a row's writing and its charge's no sum may be read
        self._store: Store | None = None
        self._task: asyncio.Task[None] | None = None
        self._ending = False
        self.failing: str | None = None
        """why the store did not take the last batch"""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._batch)

    def put(self, row: Callable[[], RequestRow], charges: Sequence[Charge] = ()) -> None:
        """One request is over. Costs an append. Where nothing is written, nothing is kept."""
        if self._store is None:
            return
        if len(self._waiting) >= self._bound:
            self._dropped(1)
            return
        self._waiting.append((row, charges))
        if (count := len(self._waiting)) == 1 or count == BATCH:
            self._wake.set()

    def start(self, store: Store) -> None:
        """Begin to write, in the running event loop."""
        self._store, self._ending = store, False
        self._task = asyncio.get_running_loop().create_task(self._run(store))

    async def stop(self) -> None:
        """Write everything that waits, then end. What the store does not take within 10 s is dropped, counted and logged."""
        task, self._task = self._task, None
        if task is None:
            return
        self._ending = True
        self._wake.set()
        done, _ = await asyncio.wait((task,), timeout=_LAST_TRY)
        if not done:
            task.cancel()
            await asyncio.wait((task,))
        self._store = None
        if left := len(self):
            self._waiting.clear()
            self._batch.clear()
            self._dropped(left)
            log.error("the store did not take %d rows of usage before the stop: %s", left, self.failing)

    async def flush(self) -> None:
        """Write what waits now, for whoever wants to read it next. Raises what the store raises."""
        async with self._turn:
            if self._store is not None:
                for _ in range(bool(self._batch) - (-len(self._waiting) // BATCH)):
                    await self._write(self._store)

    async def read_spent(self, accounts: Iterable[Account]) -> None:
        """Ask the store what these have spent in their present periods. Raises what the store raises."""
        async with self._turn:
            for account in accounts:
                await self._read(account)

    @staticmethod
    def stale(purses: Iterable[Purse]) -> bool:
        """Whether what was spent of these was read so long ago that `refresh` must see to it."""
        oldest = time.time() - FRESH
        for purse in purses:  # noqa: SIM110 - a generator costs three times as much
            if purse.known <= oldest:
                return True
        return False

    async def refresh(self, accounts: Iterable[Account]) -> None:
        """See to it that what these have spent is known well enough to let a request in. Waits for the store only where that is long ago."""
        now = time.time()
        for account in accounts:
            if account.purse.budget is None or now - account.purse.known < FRESH:
                continue
            self._asked[account.id] = account
            if now - account.purse.known < OLD:
                continue
            try:
                async with asyncio.timeout(_SHORT_WAIT):
                    await self.read_spent([account])
            except (TimeoutError, GatewayError):
                pass  # the store rests; what is known here goes on counting

    async def _run(self, store: Store) -> None:
        pause = self._pause
        while len(self) or not self._ending:
            if not len(self):
                self._wake.clear()
                await self._wake.wait()
            if not self._ending and len(self._waiting) < BATCH:
                await self._gather()
            try:
                async with self._turn:
                    await self._write(store)
                asked, self._asked = self._asked, {}
                await self.read_spent(asked.values())
            except Exception as error:
                # a store's own error names no value of a row; of others nobody knows
                why = error.message if isinstance(error, StoreUnavailable) else type(error).__name__
                if self.failing is None:
                    log.error("usage cannot be written now and is kept: %s", why)
                self.failing = why
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE) if not self._ending else self._pause
            else:
                if self.failing is not None:
                    log.warning("usage is written again")
                pause, self.failing = self._pause, None

    async def _gather(self) -> None:
        """Let rows come together for a moment; less when there are many, or the end comes."""
        until = asyncio.get_running_loop().time() + self._pause
        try:
            async with asyncio.timeout_at(until):
                while len(self._waiting) < BATCH and not self._ending:
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            pass

    async def _write(self, store: Store) -> None:
        batch = self._batch = self._batch or self._take()
        if not batch:
            return
        try:
            async with asyncio.timeout(_PATIENCE):
                await store.write_requests([row for row, _ in batch])
        except TimeoutError:
            raise StoreUnavailable("the store took too long") from None
        except StoreUnavailable:
            raise
        except Exception:  # rows that it will never take must not hold up those behind them; what they cost stays charged
            log.exception("the store refused %d rows of usage", len(batch))
            self._batch = []
            self._dropped(len(batch))
            return
        self._batch = []
        for _, charges in batch:
            for charge in charges:
                charge.purse.written(charge)

    def _take(self) -> list[tuple[RequestRow, Sequence[Charge]]]:
        batch: list[tuple[RequestRow, Sequence[Charge]]] = []
        while self._waiting and len(batch) < BATCH:
            row, charges = self._waiting.popleft()
            try:
                batch.append((row(), charges))
            except Exception:  # one that cannot be made takes no other with it; what it cost stays charged
                log.exception("a row of usage could not be made")
                self._dropped(1)
        return batch

    async def _read(self, account: Account) -> None:
        if self._store is None or account.purse.budget is None:
            return
        now = time.time()
        since = account.purse.begin(now)
        async with asyncio.timeout(_PATIENCE):
            spent = self._store.spent(team=account.name, since=since) if account.is_team else self._store.spent(key_id=account.id, since=since)
            account.purse.read(await spent, since, now)
