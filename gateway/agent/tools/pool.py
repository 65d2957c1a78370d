"""Calls of tools by hand, several at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from gateway.agent.calls import failed
from gateway.agent.tools.registry import Registry
from gateway.agent.tools.tool import Observation


class Pool:
    """At most `workers` calls at a time; the rest wait (H17).

    async with Pool(registry) as pool:
        sums = await pool.execute_all([("add", {"a": 1}), ("add", "a=2")])
    """

    def __init__(self, registry: Registry, workers: int = 4) -> None:
        self._registry = registry
        self._gate = asyncio.Semaphore(workers)
        self._running: set[asyncio.Task[Observation]] = set()
        self._closed = False

    async def execute(self, name: str, params: str | Mapping[str, Any] | None = None) -> Observation:
        """One call. ValueError for an unknown tool and for bad arguments; what the tool raises is raised."""
        self._registry.get(name)
        return await self._start(name, params)

    async def execute_all(self, wanted: Sequence[tuple[str, str | Mapping[str, Any] | None]]) -> list[Observation]:
        """An observation for each (name, parameters), in their order; what goes wrong in a call is its observation.

        ValueError for an unknown tool, before any call is made.
        """
        for name, _ in wanted:
            self._registry.get(name)
        tasks = [self._start(name, params) for name, params in wanted]
        try:
            seen = await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            for task in tasks:
                task.cancel()
        return [one if isinstance(one, Observation) else _error(one) for one in seen]

    async def close(self) -> None:
        """Take no more calls and wait for those that run."""
        self._closed = True
        if self._running:
            await asyncio.wait(self._running)

    async def __aenter__(self) -> Pool:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def _start(self, name: str, params: str | Mapping[str, Any] | None) -> asyncio.Task[Observation]:
        if self._closed:
            raise RuntimeError("the pool is closed")
        task = asyncio.create_task(self._call(name, params))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _call(self, name: str, params: str | Mapping[str, Any] | None) -> Observation:
        async with self._gate:
            return await self._registry.execute(name, params)


def _error(error: BaseException) -> Observation:
    if not isinstance(error, Exception):
        raise error
    return failed(error)
