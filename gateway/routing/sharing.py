"""Rests of targets that several processes know together: what one has found out, the others need not try."""

from __future__ import annotations

import time

from gateway.routing.health import Health, State
from gateway.store import RestBoard, Shared


class SharedRests:
    """Tells the rests of a Health to the other processes at once, and theirs to it in each round."""

    def __init__(self, shared: Shared, health: Health) -> None:
        self._board = RestBoard(shared)
        self._health = health
        self._woken: set[str] = set()
        shared.joined.append(self._tell_all)
        shared.beats.append(self._hear)
        health.told = self._tell

    def _tell(self, name: str, state: State | None) -> None:
        if state is None:
            self._woken.add(name)
            self._board.wake(name)
        else:
            self._board.rest(name, state.until - time.monotonic(), {"kind": state.kind, "own": state.own, "rests": state.rests})

    def _tell_all(self) -> None:
        for name, state in self._health.known().items():
            state.told = True
            self._tell(name, state)

    async def _hear(self) -> None:
        asked = time.monotonic()
        self._woken.clear()
        rests = await self._board.all()
        now = time.monotonic()
        heard = {
            name: State(rests=why["rests"], until=now + left, since=now, kind=why["kind"], own=why["own"], told=True)
            for name, (left, why) in rests.items()
            if name not in self._woken  # while the answer was under way
        }
        self._health.hear(heard, asked)
