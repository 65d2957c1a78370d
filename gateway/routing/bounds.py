"""What may be sent to one provider: requests at a time, requests and tokens in the last 60 seconds.

A request that finds no free place waits in a short queue; one that finds no rate left is
turned away at once, with the time when it would fit. Tokens are reserved when a request
is sent and settled when it is answered.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway import config
from gateway.chat import Body, Request
from gateway.keys.limits import Entry, Window

PATIENCE = 1.0
"""seconds that a request waits for a place; as many may wait as may be served"""

_ANSWER = 1024  # tokens of an answer whose request names no maximum
_BYTES = 4  # of a request's text for a token
_MOST = 10**9


class Asked(msgspec.Struct):
    """What a body says about the length of its answer, in the dialects' words."""

    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None


_read = msgspec.json.Decoder(Asked).decode


def expected_tokens(request: Request) -> int:
    """A guess before anything is known: a quarter of the body's bytes, and the longest answer that it allows."""
    answer = _ANSWER
    for most in _asked(request.body):
        if type(most) is int and 0 <= most <= _MOST:
            answer = most
            break
    return max(1, len(request.body.raw) // _BYTES + answer)


def _asked(body: Body) -> tuple[Any, ...]:
    if (parsed := body.parsed) is not None:
        return parsed.get("max_completion_tokens"), parsed.get("max_tokens"), parsed.get("max_output_tokens")
    try:
        asked = _read(body.raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # a form with a file in it, for one
        return ()
    return asked.max_completion_tokens, asked.max_tokens, asked.max_output_tokens


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request may not be sent now: the limit, words for people, and the seconds until it is worth another try."""

    limit: str
    why: str
    wait: float


@dataclass(slots=True)
class Pass:
    """A request's place at a provider. Whoever has it gives it back with `Bounds.leave`."""

    entry: Entry | None = None
    reserved: int = 0
    open: bool = True


class Bounds:
    """The limits of one provider and what is used of them. `limits` may be exchanged while requests run."""

    def __init__(self, limits: config.Limits, now: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.running = 0
        self._now = now
        self._requests = Window()
        self._tokens = Window()
        self._waiting: deque[asyncio.Future[bool]] = deque()

    def refusal(self, tokens: int, exchanges: int = 1) -> Refusal | None:
        """Why a request of so many tokens would be turned away at once; None: it may enter, or wait for a place."""
        if self._full() and len(self._waiting) >= (self.limits.concurrency or 0):
            return self._busy(", and as many wait")
        return self._spent(tokens, exchanges)

    async def enter(self, tokens: int, until: float, exchanges: int = 1) -> Pass | Refusal:
        """A place for one request of so many exchanges. Waits for it until `loop.time()` seconds `until`, and never longer than a second."""
        if (refusal := self.refusal(tokens, exchanges)) is not None:
            return refusal
        if not self._full():
            self.running += 1
        elif not await self._turn(until):
            return self._busy(", and none ended in time")
        elif (refusal := self._spent(tokens, exchanges)) is not None:  # while it waited, others were sent
            self._free()
            return refusal
        return self._admitted(tokens, exchanges)

    def try_enter(self, tokens: int, exchanges: int = 1) -> Pass | Refusal:
        """The same without waiting."""
        refusal = self._busy("") if self._full() else self._spent(tokens, exchanges)
        if refusal is not None:
            return refusal
        self.running += 1
        return self._admitted(tokens, exchanges)

    def leave(self, taken: Pass, used: int | None) -> None:
        """The request is over; `used` tokens were its share, None: what was reserved. May be called again."""
        if not taken.open:
            return
        taken.open = False
        if used is not None and taken.entry is not None:
            self._tokens.settle(taken.entry, taken.reserved, used, self._now())
        self._free()

    def _spent(self, tokens: int, exchanges: int) -> Refusal | None:
        limits, now = self.limits, self._now()
        if limits.rpm is not None and (wait := self._requests.wait(min(exchanges, limits.rpm), limits.rpm, now)):
            return Refusal("rpm", f"at its limit of {limits.rpm} requests a minute, free in {wait:.1f} s", wait)
        if limits.tpm is not None and (wait := self._tokens.wait(min(tokens, limits.tpm), limits.tpm, now)):
            return Refusal("tpm", f"at its limit of {limits.tpm} tokens a minute, free in {wait:.1f} s", wait)
        return None

    def _busy(self, more: str) -> Refusal:
        return Refusal("concurrency", f"at its limit of {self.limits.concurrency} requests at a time{more}", PATIENCE)

    def _full(self) -> bool:
        most = self.limits.concurrency
        return most is not None and self.running >= most

    def _admitted(self, tokens: int, exchanges: int) -> Pass:
        limits, now = self.limits, self._now()
        if limits.rpm is not None:
            self._requests.add(min(exchanges, limits.rpm), now)
        if limits.tpm is None:
            return Pass()
        reserved = min(tokens, limits.tpm)
        return Pass(self._tokens.add(reserved, now), reserved)

    async def _turn(self, until: float) -> bool:
        """Wait for a place; it then counts as running. False: none came in time."""
        loop = asyncio.get_running_loop()
        place: asyncio.Future[bool] = loop.create_future()
        timer = loop.call_at(min(until, loop.time() + PATIENCE), _settle, place, False)
        self._waiting.append(place)
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.result():
                self._free()  # it came, and nobody is there to take it
            raise
        finally:
            timer.cancel()
            if place in self._waiting:
                self._waiting.remove(place)

    def _free(self) -> None:
        """A place is given back: to whoever has waited longest."""
        self.running -= 1
        while self._waiting and not self._full():
            if _settle(self._waiting.popleft(), True):
                self.running += 1


def _settle(place: asyncio.Future[bool], got: bool) -> bool:
    """Answer one that waits; False: it has its answer."""
    if place.done():
        return False
    place.set_result(got)
    return True
