"""Who runs the runs that no request waits for: queued ones, those of a process that died, those that have waited too long.

On SQLite one process does, the one that holds a lock on a file beside the database; when it
dies the next takes the lock. On PostgreSQL all replicas do: procrastinate spreads the runs
and gives those of a silent worker to another. What is due stands in the runs themselves, so
that nothing is lost with a queue or a process; and whoever takes a run claims it first, so
that two never run it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gateway.agent.forgetting import Forgetting
from gateway.agent.journal import Journal
from gateway.chat import Json
from gateway.config import Retention
from gateway.errors import GatewayError
from gateway.store import Due, Runs, StoreUnavailable, open_queue

if TYPE_CHECKING:
    from gateway.store.queue import Queue

try:
    import fcntl
except ImportError:  # Windows: each process takes what is due, and claims decide
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("thinkgate")

SWEEP = 1.0
"""seconds between two looks at what is due"""
CONCURRENCY = 32
"""background runs at a time, per process"""
DEATHS = 5
"""processes that may die with a run before it is held to be the cause"""
_AT_ONCE = 200
_LONGEST = 60.0  # seconds until a run that could not be taken up is tried again


class Store(Protocol):
    runs: Runs


class Work:
    """This process's part of the work. `resume` takes a run up and returns when it ends or waits; it may find that another has it."""

    def __init__(self, store: Store, journal: Journal, resume: Callable[[str], Awaitable[None]], concurrency: int = CONCURRENCY) -> None:
        self._runs = store.runs
        self._journal = journal
        self._resume = resume
        self._concurrency = concurrency
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._later: dict[str, tuple[float, float]] = {}
        """runs that could not be taken up: when to try again, and how long to wait after that"""
        self._sweeper: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._lock: int | None = None
        self._queue: Queue | None = None
        self._fault: str | None = None
        self._forgetting = Forgetting(store.runs, journal.now)
        self._join_at = float("-inf")
        self._alone: str | None = None
        """why there is no queue"""

    async def open(self) -> None:
        """Begin to look for runs: what a process left when it died is taken up as soon as its lease ends.

        Where there never is one (a gateway without agents) there is neither a lock nor a queue.
        """
        self._sweeper = asyncio.create_task(self._sweep(), name="work")
        self._forgetting.open()

    def keep(self, retention: Retention) -> None:
        """How long runs that are over are kept, and how many, from now on."""
        self._forgetting.keep(retention)

    async def put(self, id: str) -> None:
        """A run is queued: somebody takes it, at once where this process may."""
        if self._queue is not None:
            try:
                await self._queue.put(id)
            except StoreUnavailable as error:  # the run is kept: the next sweep puts it in
                log.warning("run=%s is queued, and put in later: %s", id, error.message)
            return
        if self._runs.can_listen:
            self._news.set()  # the queue is opened for the next ones
        if self._sweeper is not None and self._mine():
            self._start(id)

    async def aclose(self) -> None:
        """Take nothing more and wait for nothing. Runs that are under way are their owner's to give back."""
        sweeper, self._sweeper = self._sweeper, None
        if sweeper is not None:
            sweeper.cancel()
            await asyncio.wait([sweeper])
        await self._forgetting.aclose()
        queue, self._queue = self._queue, None
        if queue is not None:
            await queue.aclose()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def state(self) -> Json:
        """For `/readyz`: whether this process is one that takes runs, how many it has, and what is wrong with that."""
        return {
            "takes": self._queue is not None or self._lock is not None or bool(self._tasks),
            "running": len(self._tasks),
            "queue": self._queue is not None,
            "error": self._fault or self._alone,
        }

    # ---- whose the work is ----

    def _mine(self) -> bool:
        """Whether this process takes what is due. On a SQLite file one does: the kernel gives the lock to the next when it dies."""
        file = self._runs.engine.file
        if file is None or fcntl is None or self._lock is not None:
            return True
        handle = os.open(lock_of(file), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return False
        self._lock = handle
        return True

    # ---- what is due ----

    async def _sweep(self) -> None:
        while True:
            try:
                await self._look()
                self._fault = None
            except Exception as error:  # whatever it is, the next look may succeed, and runs must not wait for a restart
                if self._fault is None:
                    log.error("what is due cannot be looked at: %s", error, exc_info=not isinstance(error, GatewayError))
                self._fault = error.message if isinstance(error, GatewayError) else type(error).__name__
            self._news.clear()
            try:
                async with asyncio.timeout(SWEEP):
                    await self._news.wait()
            except TimeoutError:
                pass

    async def _look(self) -> None:
        due = await self._runs.due(_AT_ONCE)
        if not due and self._queue is None:
            return
        if self._queue is None and self._runs.can_listen:
            await self._join()
        if not self._mine():
            return
        wanted = [run.id for run in due if not await self._ended(run)]
        if self._queue is not None:
            await self._queue.rescue(wanted)
            return
        for id in wanted:
            self._start(id)

    async def _join(self) -> None:
        """Take part in the queue. Without one (the database lets nobody make its tables) each replica takes what is due as far as it has room."""
        if time.monotonic() < self._join_at:
            return
        self._join_at = time.monotonic() + _LONGEST
        try:
            self._queue = await open_queue(self._runs.engine, self._take, self._concurrency)
        except StoreUnavailable as error:
            if self._alone is None:
                log.warning("runs are not shared out evenly, each replica takes what it finds: %s", error.message)
            self._alone = error.message
        else:
            self._alone = None

    async def _ended(self, run: Due) -> bool:
        """End a run that nobody may go on with."""
        poison = run.attempts >= DEATHS - 1
        if run.status != "running" or (run.detached and not poison):
            return False
        if await self._journal.bury(run.id, poison=run.detached) is not None:
            log.warning("run=%s ended: %s", run.id, "too many processes died with it" if run.detached else "its process died")
        return True

    def _start(self, id: str) -> None:
        if id in self._tasks or len(self._tasks) >= self._concurrency or self._later.get(id, (0.0, 0.0))[0] > time.monotonic():
            return
        task = self._tasks[id] = asyncio.create_task(self._take(id), name=f"take {id}")
        task.add_done_callback(lambda _: self._done(id))

    def _done(self, id: str) -> None:
        self._tasks.pop(id, None)
        self._news.set()  # there is room for another

    async def _take(self, id: str) -> None:
        try:
            await self._resume(id)
        except Exception as error:  # it stays due; what is wrong with one run must not end the work
            wait = min(_LONGEST, max(SWEEP, self._later.get(id, (0.0, SWEEP / 2))[1] * 2))
            self._later[id] = (time.monotonic() + wait, wait)
            log.error("run=%s could not be taken up, again in %.0f s: %s", id, wait, error, exc_info=not isinstance(error, GatewayError))
        else:
            self._later.pop(id, None)


def lock_of(file: Path) -> Path:
    """The file that the process which runs the background runs of a database has locked."""
    return file.with_name(file.name + ".work")
