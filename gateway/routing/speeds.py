"""How fast targets answer: the time to the first content and the pace after it, newer answers counting more.

A measurement is worth less with each minute that passes and nothing after five: then the
target is tried again, by one request at a time, so that one that has become fast is found.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

FADE = 60.0
"""seconds after which an old measurement weighs 1/e of what it did"""
FRESH = 300.0
"""seconds after which it is none"""
TYPICAL = 200
"""tokens of the answer for which targets are compared"""
_PACE = 0.02  # seconds a token where none is known
_SHORT = 10  # tokens of an answer that tells nothing about the pace
_TRIAL = 30.0  # seconds for which one request tries an unmeasured target and others leave it alone


@dataclass(slots=True)
class Mean:
    """A decaying mean of seconds."""

    value: float = 0.0
    at: float = -math.inf

    def add(self, seconds: float, now: float) -> None:
        old = math.exp(-(now - self.at) / FADE) if now - self.at < FRESH else 0.0
        share = max(0.2, 1.0 - old) if old else 1.0  # a burst of answers must not wipe out what was known
        self.value += share * (seconds - self.value)
        self.at = now


@dataclass(slots=True)
class Speed:
    """Means of one target: `first` content, seconds a `token`, a `whole` plain answer."""

    first: Mean
    token: Mean
    whole: Mean
    trying: float = -math.inf


class Speeds:
    """The speeds of all targets of this process, by `provider/model`."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._speeds: dict[str, Speed] = {}

    def expected(self, name: str, stream: bool) -> float | None:
        """Seconds to a typical answer; None: unknown, or known no more."""
        speed = self._speeds.get(name)
        if speed is None:
            return None
        main = speed.first if stream else speed.whole
        if self._now() - main.at > FRESH:
            return None
        pace = speed.token.value if speed.token.at > -math.inf else _PACE
        return main.value + (TYPICAL * pace if stream else 0.0)

    def untried(self, name: str, stream: bool) -> bool:
        """Nothing is known of it, and nobody is finding out."""
        speed = self._speeds.get(name)
        return self.expected(name, stream) is None and (speed is None or self._now() - speed.trying > _TRIAL)

    def begin(self, name: str, stream: bool) -> None:
        """A request is sent to it."""
        if self.expected(name, stream) is None:
            self._of(name).trying = self._now()

    def answered(self, name: str, stream: bool, first: float, total: float, tokens: int | None) -> None:
        """One answer: seconds to its first content and to its end, tokens as the provider counted them."""
        speed, now = self._of(name), self._now()
        if not stream:
            speed.whole.add(total, now)
            return
        speed.first.add(first, now)
        if tokens is not None and tokens >= _SHORT:
            speed.token.add((total - first) / (tokens - 1), now)

    def waited(self, name: str, stream: bool, seconds: float) -> None:
        """It gave no content for so long."""
        speed = self._of(name)
        (speed.first if stream else speed.whole).add(seconds, self._now())

    def _of(self, name: str) -> Speed:
        speed = self._speeds.get(name)
        if speed is None:
            speed = self._speeds[name] = Speed(Mean(), Mean(), Mean())
        return speed
