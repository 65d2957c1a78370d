"""Which targets rest, and until when.

A target is closed (asked as usual), resting (not asked), or on trial (its rest is over: one
request at a time tries it while others are left, until its first content; a whole answer ends
the trial). What sends it to rest:

    rate_limit, balance, auth, any Retry-After   at once
    connect, timeout, server, overload           after `cooldown.after` failures in a row
    first_token_timeout, protocol                the same, but never sooner (not by a Retry-After,
                                                 not by the first failure after a rest)

The rest is `base` seconds, doubled each time in a row, plus up to 20 % so that a herd does
not come back at once, at most `max`; a provider's own Retry-After is obeyed up to `max`.
Only monotonic time is used. Processes that share their state try a target out one after the
other too: see `Trials`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gateway import failures
from gateway.chat import Json
from gateway.config import Cooldown
from gateway.errors import UpstreamError

REMEMBERED = 600.0
"""seconds after its end in which processes tell each other of a rest: a target of which they tell nothing any more has answered"""
_MANY = 10_000  # targets of which something is known: clients may ask a provider for models that nobody has
_SLACK = 0.5  # seconds by which a rest must be longer to be another one than what is known


class Trials(Protocol):
    """Which process tries a target out."""

    async def take(self, name: str, left: float) -> float:
        """Begin to, `left` seconds before what is known of its rest ends: 0. Else another process does, which is worth asking again after so many seconds."""

    def drop(self, name: str) -> None:
        """This process does not any more."""


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
    probe: float | None = None
    """the attempt that tries it out, by the moment when that began"""
    elsewhere: float = 0.0
    """until then another process tries it out, as far as is known"""
    told: bool = False
    """other processes know of this rest"""


class Health:
    """The states of all targets of this process, by `provider/model`.

    `told` is called with a target that goes to rest, or wakes (None), so that others may know;
    `hear` takes what others tell. `trials`: one process at a time tries a target out.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, jitter: Callable[[], float] = random.random) -> None:
        self._now = now
        self._jitter = jitter
        self._states: dict[str, State] = {}
        self._taken: dict[str, float] = {}
        self.told: Callable[[str, State | None], None] | None = None
        self.trials: Trials | None = None

    def rest(self, name: str) -> float:
        """Seconds that a target still rests; 0: it may be asked."""
        state = self._states.get(name)
        return max(0.0, state.until - self._now()) if state is not None else 0.0

    def free(self, name: str) -> bool:
        """Whether a target may be asked as usual: it does not rest, and nobody is trying it out."""
        state = self._states.get(name)
        if state is None:
            return True
        now = self._now()
        return state.until <= now and (state.kind is None or (state.probe is None and state.elsewhere <= now))

    def may_probe(self, name: str) -> bool:
        """Whether a target that is not free may be asked all the same where no other is left."""
        state = self._states.get(name)
        now = self._now()
        if state is None or state.until <= now:
            return True  # the rest is over: better a second one tries it than nobody
        return not state.own and state.probe is None and state.elsewhere <= now

    def why(self, name: str) -> str:
        """The reason for a rest, for `attempts` and `/readyz`."""
        state = self._states[name]
        left = state.until - self._now()
        return f"resting for {left:.1f} s ({state.kind})" if left > 0 else f"being tried again ({state.kind})"

    def kind(self, name: str) -> str | None:
        """The failure class that sent a target to rest."""
        state = self._states.get(name)
        return state.kind if state is not None else None

    def on_trial(self, name: str) -> bool:
        """Whether a target went to rest and has not answered since, so that whoever asks it needs leave."""
        state = self._states.get(name)
        return state is not None and state.kind is not None

    def begin(self, name: str) -> float:
        """An attempt starts; gives the moment to hand to `leave`, and to `good`, `bad` or `release` in the end."""
        now = self._now()
        state = self._states.get(name)
        if state is not None and state.kind is not None and state.probe is None:
            state.probe = now
        return now

    async def leave(self, name: str, began: float) -> bool:
        """Whether an attempt that has begun may be made. False: another process tries the target out, and this attempt is over."""
        state, trials = self._states.get(name), self.trials
        if trials is None or state is None or state.probe != began or state.elsewhere > began:
            return True  # nobody to ask; or not the one that tries it out, and asked because no other target is left
        wait = await trials.take(name, max(0.0, state.until - self._now()))
        if wait <= 0:
            self._taken[name] = began
            return True
        state.probe, state.elsewhere = None, self._now() + wait
        return False

    def answers(self, name: str, began: float) -> None:
        """The first content of an attempt is there: another one may be made."""
        if self._states:
            self.release(name, began)

    def good(self, name: str, began: float) -> None:
        """An attempt answered. It wakes the target unless that went to rest after the attempt began."""
        state = self._states.get(name)
        if state is not None and state.since <= began:
            del self._states[name]
            if state.told and self.told is not None:
                self.told(name, None)
        if state is not None or self._taken:
            self.release(name, began)

    def bad(self, name: str, began: float, error: UpstreamError, cooldown: Cooldown) -> None:
        """An attempt failed."""
        if failures.MOVES[error.kind].cools != "no":
            self._count(name, error, cooldown)
        self.release(name, began)

    def release(self, name: str, began: float) -> None:
        """An attempt is over, or tells nothing more about the target (the client left, the caller's fault). May be called again."""
        state = self._states.get(name)
        if state is not None and state.probe == began:
            state.probe = None
        if self._taken and self._taken.get(name) == began:
            del self._taken[name]
            if self.trials is not None:
                self.trials.drop(name)

    def forget(self, prefix: str) -> None:
        """Nothing is known of the targets whose names begin so: they are reached in another way now."""
        for name in [name for name in self._states if name.startswith(prefix)]:
            state = self._states.pop(name)
            if state.told and self.told is not None:
                self.told(name, None)

    def hear(self, rests: Mapping[str, State], asked: float) -> None:
        """What all processes knew of rests when they were asked. One that was told before and is not known any more is over."""
        for name, heard in rests.items():
            self.learn(name, heard)
        now = self._now()
        for name, state in list(self._states.items()):
            if state.told and name not in rests and state.since < asked and state.until > now - REMEMBERED / 2:
                del self._states[name]

    def learn(self, name: str, heard: State) -> None:
        """What another process told of one rest. The longer one counts."""
        state = self._states.get(name)
        if state is None:
            self._states[name] = heard
        elif heard.until > state.until + (0.001 if heard.rests > state.rests else _SLACK):
            state.until, state.kind, state.own, state.rests, state.since, state.told = heard.until, heard.kind, heard.own, heard.rests, self._now(), True

    def known(self) -> dict[str, State]:
        """Every target that is at rest, or was a while ago and has not answered since."""
        since = self._now() - REMEMBERED
        return {name: state for name, state in self._states.items() if state.kind is not None and state.until > since}

    def taken(self) -> list[str]:
        """The targets that this process tries out with the leave of the others."""
        return list(self._taken)

    def breakers(self) -> dict[str, Json]:
        """Every target that failed since it last answered: `state` is closed, resting or probation, `failures` are in a row, `rest` is in seconds."""
        now = self._now()
        return {
            name: {
                "state": "resting" if state.until > now else "closed" if state.kind is None else "probation",
                "failures": state.failures,
                "class": state.kind,
                "rest": round(max(0.0, state.until - now), 3),
            }
            for name, state in self._states.items()
            if state.failures or state.kind is not None
        }

    def resting(self) -> dict[str, str]:
        """Every target that is not free, with the reason."""
        return {name: self.why(name) for name in list(self._states) if not self.free(name)}

    def _thin_out(self) -> None:
        """Keep what rests, or is tried out; of too many the half that rests longest."""
        now = self._now()
        kept = [(name, state) for name, state in self._states.items() if state.until > now or state.probe is not None]
        if len(kept) > _MANY // 2:
            kept = sorted(kept, key=lambda item: item[1].until)[-_MANY // 2 :]
        self._states = dict(kept)

    def _count(self, name: str, error: UpstreamError, cooldown: Cooldown) -> None:
        """One failure more; it may send the target to rest."""
        state, move = self._states.get(name), failures.MOVES[error.kind]
        if state is None:
            if len(self._states) >= _MANY:
                self._thin_out()
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
