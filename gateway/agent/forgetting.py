"""Old runs are forgotten, by one of the processes on a store, whichever it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from gateway.config import Retention
from gateway.errors import GatewayError
from gateway.store import Runs

log = logging.getLogger("thinkgate")

MOST_IN_MEMORY = 1000
"""finished runs that a store in memory keeps: a gateway without a file must not grow for ever"""
_ROUND = 3600.0  # seconds between two rounds
_SHORTEST = 60.0
_AGAIN = 60.0  # seconds after which a round that failed is gone on with
_EARLY = 0.02  # of a round: whoever did the last one is not too early for the next


class Forgetting:
    """Deletes runs that ended too long ago, and those that are too many, once at the start and then in rounds. `now` is the store's clock."""

    def __init__(self, runs: Runs, now: Callable[[], float]) -> None:
        self._runs = runs
        self._now = now
        self._retention = Retention()
        self._changed = asyncio.Event()
        self._mine: str | None = None
        """the round that this process took and has not ended"""
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._task = asyncio.create_task(self._keep(), name="forgetting")

    def keep(self, retention: Retention) -> None:
        """How long runs that are over are kept, and how many, from now on."""
        if retention != self._retention:
            self._retention = retention
            self._changed.set()

    async def aclose(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _keep(self) -> None:
        while True:
            self._changed.clear()
            wait = await self._turn()
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _turn(self) -> float:
        """Forget what is old, if it is this process's turn; gives the seconds until the next one."""
        age, most = self._retention.runs, self._retention.max_runs
        if self._runs.engine.file is None and not self._runs.can_listen:
            most = min(MOST_IN_MEMORY, MOST_IN_MEMORY if most is None else most)
        if age is None and most is None:
            return _ROUND
        wait = _ROUND if age is None else min(_ROUND, max(_SHORTEST, age))
        task = f"runs {age} {most}"  # a new setting is a new task: it is done at once
        try:
            if self._mine != task:
                if not await self._runs.take_task(task, wait * (1 - _EARLY)):
                    return wait
                self._mine = task
            if gone := await self._runs.retain(None if age is None else self._now() - age, most):
                log.info("%d old runs were forgotten", gone)
            self._mine = None
        except Exception as error:  # whatever it is, runs must not grow for ever
            log.error("old runs could not be forgotten now, again in %.0f s: %s", _AGAIN, error, exc_info=not isinstance(error, GatewayError))
            return _AGAIN
        return wait
