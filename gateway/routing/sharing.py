"""Rests of targets that several processes know together: what one has found out, the others need not try."""

from __future__ import annotations

import asyncio
import time

from gateway.chat import Json
from gateway.routing.health import REMEMBERED, Health, State
from gateway.store import RestBoard, Shared, SharedAway

TRIAL = 5.0
"""seconds for which a process that tries a target out keeps the others off it, unless it says so again: one that dies is in nobody's way for longer"""
LOOK = 0.5
"""seconds after which a process that was kept off may ask again"""


class SharedRests:
    """Tells the rests of a Health to the other processes at once, and theirs to it in each round. One of them at a time tries a target out."""

    def __init__(self, shared: Shared, health: Health) -> None:
        self._shared = shared
        self._board = RestBoard(shared, TRIAL, REMEMBERED)
        self._health = health
        self._woken: set[str] = set()
        shared.joined.append(self._tell_all)
        shared.beats.append(self._hear)
        health.told = self._tell
        health.trials = self

    async def take(self, name: str, left: float) -> float:
        """`Trials`; where the shared state is away each process is on its own."""
        if not self._shared.up:
            return 0.0
        try:
            wait, rest = await self._board.take(name, left)
        except SharedAway:
            return 0.0
        except asyncio.CancelledError:  # whoever asked is gone; the answer may be yes
            self._board.drop(name)
            raise
        if rest is None:
            return min(wait, LOOK)
        if (heard := _state(wait, rest)) is not None:
            self._health.learn(name, heard)
        return LOOK

    def drop(self, name: str) -> None:
        """`Trials`."""
        self._board.drop(name)

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
        self._renew()

    def _renew(self) -> None:
        for name in self._health.taken():
            self._board.renew(name)

    async def _hear(self) -> None:
        self._renew()
        asked = time.monotonic()
        self._woken.clear()
        rests = await self._board.all()
        # what woke while the answer was under way does not count
        heard = {name: state for name, (left, why) in rests.items() if name not in self._woken and (state := _state(left, why)) is not None}
        self._health.hear(heard, asked)


def _state(left: float, why: Json) -> State | None:
    """A rest as another process told it; nothing where that is another version, which tells it in another way."""
    now = time.monotonic()
    try:
        return State(rests=int(why["rests"]), until=now + left, since=now, kind=str(why["kind"]), own=bool(why["own"]), told=True)
    except (KeyError, TypeError, ValueError):
        return None
