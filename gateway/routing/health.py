"""Which targets rest, and until when.

A target is closed (asked as usual), resting (not asked), or on probation (its rest is over:
one request at a time tries it while others are left). What sends it to rest:

    rate_limit, balance, auth, any Retry-After   at once
    connect, timeout, server, overload           after `cooldown.after` failures in a row
    first_token_timeout, protocol                the same, but never sooner (not by a Retry-After,
                                                 not by the first failure after a rest)

The rest is `base` seconds, doubled each time in a row, plus up to 20 % so that a herd does
not come back at once, at most `max`; a provider's own Retry-After is obeyed up to `max`.
Only monotonic time is used.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gateway import failures
from gateway.config import Cooldown
from gateway.errors import UpstreamError


@dataclass(slots=True)
class State:
    """What is known about one target; times are monotonic seconds."""

    failures: int = 0
    rests: int = 0
    until: float = 0.0
    since: float = 0.0
    kind: str | None = None
    own: bool = False
    """the rest is the provider's own Retry-After, not our arithmetic"""
    probing: bool = False
    told: bool = False
    """other processes know of this rest"""


class Health:
    """The states of all targets of this process, by `provider/model`.

    `told` is called with a target that goes to rest, or wakes (None), so that others may know;
    `hear` takes what others tell.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, jitter: Callable[[], float] = random.random) -> None:
        self._now = now
        self._jitter = jitter
        self._states: dict[str, State] = {}
        self.told: Callable[[str, State | None], None] | None = None

    def rest(self, name: str) -> float:
        """Seconds that a target still rests; 0: it may be asked."""
        state = self._states.get(name)
        return max(0.0, state.until - self._now()) if state is not None else 0.0

    def free(self, name: str) -> bool:
        """Whether a target may be asked as usual: it does not rest, and nobody is trying it out."""
        state = self._states.get(name)
        if state is None:
            return True
        return state.until <= self._now() and not (state.kind is not None and state.probing)

    def may_probe(self, name: str) -> bool:
        """Whether a target that is not free may be asked all the same where no other is left."""
        state = self._states.get(name)
        if state is None or state.until <= self._now():
            return True  # the rest is over: better a second one tries it than nobody
        return not state.own and not state.probing

    def why(self, name: str) -> str:
        """The reason for a rest, for `attempts` and `/readyz`."""
        state = self._states[name]
        left = state.until - self._now()
        return f"resting for {left:.1f} s ({state.kind})" if left > 0 else f"being tried again ({state.kind})"

    def kind(self, name: str) -> str | None:
        """The failure class that sent a target to rest."""
        state = self._states.get(name)
        return state.kind if state is not None else None

    def begin(self, name: str) -> float:
        """An attempt starts; gives the moment to hand to `good` or `bad`."""
        state = self._states.get(name)
        if state is not None and state.kind is not None:
            state.probing = True
        return self._now()

    def good(self, name: str, began: float) -> None:
        """An attempt answered. It wakes the target unless that went to rest after the attempt began."""
        state = self._states.get(name)
        if state is not None and state.since <= began:
            del self._states[name]
            if state.told and self.told is not None:
                self.told(name, None)

    def bad(self, name: str, began: float, error: UpstreamError, cooldown: Cooldown) -> None:
        """An attempt failed."""
        state = self._states.get(name)
        move = failures.MOVES[error.kind]
        if state is not None:
            state.probing = False
        if move.cools == "no":
            return
        if state is None:
            state = self._states[name] = State()
        state.failures += 1
        at_once = move.cools == "at_once" or (move.heeds_wait and (error.retry_after is not None or state.rests > 0))
        if not at_once and state.failures < cooldown.after:
            return
        now = self._now()
        if error.retry_after is not None:
            rest, own = min(error.retry_after, cooldown.max), True
        else:
            rest, own = min(cooldown.base * 2**state.rests * (1 + 0.2 * self._jitter()), cooldown.max), False
        state.rests += 1
        if now + rest >= state.until:
            state.until, state.own, state.kind = now + rest, own, error.kind
        state.since = now
        if self.told is not None:
            state.told = True
            self.told(name, state)

    def release(self, name: str) -> None:
        """An attempt ended without telling anything about the target (the client left, the caller's fault)."""
        state = self._states.get(name)
        if state is not None:
            state.probing = False

    def forget(self, prefix: str) -> None:
        """Nothing is known of the targets whose names begin so: they are reached in another way now."""
        for name in [name for name in self._states if name.startswith(prefix)]:
            state = self._states.pop(name)
            if state.told and self.told is not None:
                self.told(name, None)

    def hear(self, rests: Mapping[str, State], asked: float) -> None:
        """What all processes knew of rests when they were asked. The longer rest counts; one that was told before and is not known any more is over."""
        for name, heard in rests.items():
            state = self._states.get(name)
            if state is None:
                self._states[name] = heard
            elif heard.until > state.until + 0.001:
                state.until, state.kind, state.own, state.rests, state.since, state.told = heard.until, heard.kind, heard.own, heard.rests, self._now(), True
        for name, state in list(self._states.items()):
            if state.told and name not in rests and state.since < asked and state.until > self._now():
                del self._states[name]

    def known(self) -> dict[str, State]:
        """Every target that rests now."""
        now = self._now()
        return {name: state for name, state in self._states.items() if state.until > now}

    def resting(self) -> dict[str, str]:
        """Every target that is not free, with the reason."""
        return {name: self.why(name) for name in list(self._states) if not self.free(name)}
