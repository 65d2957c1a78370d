"""What a key or a team may use in the last 60 seconds, and at a time.

A refusal takes nothing. A request that is let in takes all that it needs in one step, between
two awaits, so any number of requests at once cannot pass a limit together. Tokens are
reserved before the answer is known and settled when it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from gateway.config import Limits
from gateway.errors import LimitReached

MINUTE = 60.0
BUSY = 1.0
"""seconds after which a key whose places are all taken may ask again"""

NO_LIMITS = Limits()

FINE = 1000
"""entries of a window that have a moment of their own"""
STEP = 0.05
"""seconds in which amounts share an entry, once there are more"""

Entry = list[float]
"""The moment from which on it counts no more, and the amount."""


class Left(msgspec.Struct, frozen=True, gc=False):
    """`kind` is requests or tokens: the limit, what remains of it, and the seconds until all of it is free again."""

    kind: str
    limit: int
    remaining: int
    reset: float


class Window:
    """Amounts of the last 60 seconds, each counted from its own moment on: nothing is let in twice at the turn of a minute.

    Where there are more than FINE, those of 50 ms count until the last of them may be a minute
    old, so that a window stays small however many requests there are.
    """

    __slots__ = ("_entries", "used")

    def __init__(self) -> None:
        self.used = 0.0
        self._entries: deque[Entry] = deque()

    def wait(self, amount: float, limit: float, now: float) -> float:
        """Seconds until `amount` fits under `limit`; 0: it fits now. An amount above the limit fits once nothing else is there."""
        entries = self._entries
        if entries and entries[0][0] <= now:
            self.forget(now)
        over = self.used + (amount if amount < limit else limit) - limit
        if over <= 0:
            return 0.0
        end = now
        for end, held in entries:  # noqa: B007 - the last one looked at is the answer
            over -= held
            if over <= 0:
                break
        return max(0.001, end - now)

    def add(self, amount: float, now: float) -> Entry:
        """Gives the entry, for `settle`."""
        self.used += amount
        entries = self._entries
        if len(entries) < FINE:
            entry = [now + MINUTE, amount]
        elif (entry := entries[-1])[0] - MINUTE > now:
            entry[1] += amount
            return entry
        else:
            entry = [now + (MINUTE + STEP), amount]
        entries.append(entry)
        return entry

    def settle(self, entry: Entry, reserved: float, amount: float, now: float) -> None:
        """What was reserved in an entry turned out to be `amount`; what is older than a minute counts no more."""
        if entry[0] > now:
            self.used += amount - reserved
            entry[1] += amount - reserved

    def forget(self, now: float) -> None:
        """Let go of what is older than a minute."""
        entries = self._entries
        while entries and entries[0][0] <= now:
            self.used -= entries.popleft()[1]
        if not entries:
            self.used = 0.0

    def left(self, kind: str, limit: int, now: float) -> Left:
        """What remains of `limit`."""
        entries = self._entries
        if entries and entries[0][0] <= now:
            self.forget(now)
        remaining = limit - int(self.used)
        return Left(kind, limit, remaining if remaining > 0 else 0, entries[-1][0] - now if entries else 0.0)


def reached(owner: str, kind: str, limits: Limits, wait: float) -> LimitReached:
    """The refusal of a request: `kind` is concurrency, rpm or tpm, `wait` the seconds until it may be let in."""
    if kind == "concurrency":
        return LimitReached(f"{owner} is at its limit of {limits.concurrency} requests at a time", retry_after=wait)
    limit, what = (limits.rpm, "requests") if kind == "rpm" else (limits.tpm, "tokens")
    return LimitReached(f"{owner} is at its limit of {limit} {what} a minute; free in {wait:.1f} s", retry_after=wait)


class Share(msgspec.Struct, frozen=True, gc=False):
    """What one request holds of a meter, until it is given back."""

    meter: Meter
    entry: Entry | None = None
    reserved: float = 0


class Meter:
    """The limits of one key or team, and what is used of them. `owner` is its name in messages.

    `limits` may be exchanged while requests run: what is used stays. Moments are seconds of
    one clock that never goes back.
    """

    __slots__ = ("_requests", "_tokens", "limits", "owner", "running")

    def __init__(self, owner: str, limits: Limits = NO_LIMITS) -> None:
        self.owner = owner
        self.limits = limits
        self.running = 0
        self._requests = Window()
        self._tokens = Window()

    def refusal(self, tokens: int, now: float) -> LimitReached | None:
        """Why a request that may need so many tokens is not let in; None: it may `take`."""
        limits = self.limits
        if limits.concurrency is not None and self.running >= limits.concurrency:
            return reached(self.owner, "concurrency", limits, BUSY)
        if limits.rpm is not None and (wait := self._requests.wait(1, limits.rpm, now)):
            return reached(self.owner, "rpm", limits, wait)
        if limits.tpm is not None and (wait := self._tokens.wait(tokens, limits.tpm, now)):
            return reached(self.owner, "tpm", limits, wait)
        return None

    def take(self, tokens: int, now: float) -> Share:
        """One request of so many tokens; at most the limit is reserved for it."""
        limits = self.limits
        self.running += 1
        if limits.rpm is not None:
            self._requests.add(1, now)
        if limits.tpm is None:
            return Share(self)
        reserved = min(tokens, limits.tpm)
        return Share(self, self._tokens.add(reserved, now), reserved)

    def give_back(self, share: Share, tokens: int, now: float) -> None:
        """The request is over and used `tokens`. Once per share."""
        self.running -= 1
        if share.entry is not None:
            self._tokens.settle(share.entry, share.reserved, tokens, now)

    def left(self, now: float) -> list[Left]:
        """What is left of each limit that is set and counts by the minute."""
        limits, out = self.limits, []
        if limits.rpm is not None:
            out.append(self._requests.left("requests", limits.rpm, now))
        if limits.tpm is not None:
            out.append(self._tokens.left("tokens", limits.tpm, now))
        return out


def scarcest(all: Sequence[Left]) -> list[Left]:
    """Of each kind the one of which least remains."""
    found: list[Left] = []
    for left in all:
        for place, known in enumerate(found):
            if known.kind == left.kind:
                if left.remaining < known.remaining:
                    found[place] = left
                break
        else:
            found.append(left)
    return found
