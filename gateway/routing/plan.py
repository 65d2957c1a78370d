"""What a chain does next: which target is asked, repaired, retried or left out. No I/O.

next()     the call to make now; None: nothing is left
rival()    the next target, while the one before it has not answered yet
failed()   a call failed before its first content
missed()   a call was left out after all (the adapter skipped it, nothing to repair, no place)
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from gateway import config, failures
from gateway.chat import Attempt, Request
from gateway.errors import InvalidRequest, UpstreamError
from gateway.routing import balance
from gateway.routing.bounds import Refusal, expected_tokens
from gateway.routing.fleet import Fleet
from gateway.routing.keyring import KEY_FAULTS

_SHORT_WAIT = 2.0  # seconds of a rate limit's Retry-After that are worth waiting for


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed exchange and the target that it was with. `keyless`: no other key of the provider was left."""

    target: config.Target
    error: UpstreamError
    keyless: str | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a target is left out: in words, the failure class for which it rests, or our limit and the seconds until it lets the request in."""

    why: str
    kind: str | None = None
    limit: str | None = None
    wait: float | None = None

    @classmethod
    def of(cls, refusal: Refusal) -> Reason:
        return cls(refusal.why, limit=refusal.limit, wait=refusal.wait)


class Step(msgspec.Struct, frozen=True, gc=False):
    """One call to make, after `pause` seconds."""

    call: Request
    pause: float = 0.0


class Plan:
    """The course of one request through one chain, or through some of its targets."""

    def __init__(self, settings: config.Model, fleet: Fleet, request: Request, targets: Sequence[config.Target] | None = None) -> None:
        self.settings = settings
        self.fleet = fleet
        self.request = request
        self.failures: list[Failure] = []
        self.left_out: list[tuple[config.Target, Reason]] = []
        self.targets = _in_order(settings, fleet, request) if targets is None else list(targets)
        if not self.targets:
            raise InvalidRequest(f'model "{request.model}" has no target of provider "{request.only}"', code="unknown_provider", param="x-thinkgate-provider")
        self._health = fleet.health
        self._waiting = list(self.targets)
        self._resting: list[config.Target] = []
        self._call: Request | None = None
        self._tokens = 0
        self._retries = 0
        self._keys = 0
        self._repaired = False
        self._sent = 0
        self._spent = 0

    @property
    def tokens(self) -> int:
        """A guess at what the request will use, for limits."""
        if not self._tokens:
            self._tokens = expected_tokens(self.request)
        return self._tokens

    @property
    def unasked(self) -> list[config.Target]:
        """The targets whose turn has not come."""
        return [*self._waiting, *self._resting]

    def next(self, now: float) -> Step | None:
        """`now` is `loop.time()`. What is left out for good is written into the record with its reason."""
        if self._call is not None:
            step = self._again(now)
            if step is not None:
                return step
            if self.failures and not self.goes_on(self.failures[-1].error):
                return None
            if not self.request.fallback and self._sent:
                return None
        return self._first(now)

    def rival(self, now: float) -> Step | None:
        """The next target for a request whose present one is slow; none that rests, as long as that one may answer."""
        return self._first(now, rests=False) if self.request.fallback else None

    def failed(self, error: UpstreamError, target: config.Target | None = None) -> None:
        """`target`: whose failure it is, where that is not the last call's."""
        if target is None:
            assert self._call is not None
            target = self._call.target
            assert target is not None
        ring = self.fleet.keyrings.get(target.provider)
        keyless = ring.why() if ring is not None and error.kind in KEY_FAULTS and not ring.free() else None
        self.failures.append(Failure(target, error, keyless))

    def missed(self) -> None:
        """The next target's turn."""
        self._retries = self._keys = 0
        self._repaired = True
        self._sent -= 1

    def turned_away(self, target: config.Target, refusal: Refusal) -> None:
        """There was no place for the last call at its provider."""
        self.missed()
        self._leave_out(target, Reason.of(refusal))

    def tried_elsewhere(self) -> None:
        """Another process tries the last call's target out; whether it is asked all the same is weighed anew in its turn."""
        self.missed()
        assert self._call is not None
        target = self._call.target
        assert target is not None
        if all(failure.target is not target for failure in self.failures):
            self._waiting.insert(0, target)

    def settled(self) -> None:
        """The request has its answer, or will have none: it is no burden any more. May be called again."""
        self.fleet.budget.again -= self._spent
        self._spent = 0

    def skip(self, target: config.Target, now: float, last_resort: bool = False) -> Reason | None:
        """Why a target is not asked; None: it may be. `last_resort`: no other target is left."""
        if now >= self.request.deadline:
            return Reason("the chain's deadline has passed")
        small = [f.target for f in self.failures if f.error.kind == "context_overflow"]
        if small and not self._larger(target, small):
            return Reason("its context is not known to be larger")
        health, name, provider = self._health, target.name, target.provider
        if not (health.free(name) or (last_resort and health.may_probe(name))):
            return Reason(health.why(name), health.kind(name))
        ring = self.fleet.keyrings.get(provider)
        if ring is not None and not (ring.free() or (last_resort and ring.may_probe())):
            return Reason(ring.why(), ring.kinds()[0])
        bounds = self.fleet.bounds.get(provider)
        if bounds is not None and (refusal := bounds.refusal(self.tokens)) is not None:
            return Reason.of(refusal)
        return None

    def goes_on(self, error: UpstreamError) -> bool:
        if self.settings.move_on is not None:
            return error.kind in self.settings.move_on
        return failures.MOVES[error.kind].moves_on is not False

    def _first(self, now: float, rests: bool = True) -> Step | None:
        """The first call to the next target; `rests`: to one that rests, where no other is left."""
        target = self._pick(now, rests)
        if target is None:
            return None
        settings = self.fleet.providers[target.provider]
        self._retries = settings.retries if target.retries is None else target.retries
        self._keys = len(settings.api_keys) - 1
        self._repaired = False
        self._sent += 1
        self._call = replace(self.request, target=target, attempt=self._sent, empty_ok=self.settings.empty_answer == "accept")
        return Step(self._call)

    def _again(self, now: float) -> Step | None:
        """The same target once more: with another key, repaired, or after a pause."""
        last = self.failures[-1] if self.failures else None
        call = self._call
        if call is None or last is None or last.target is not call.target:
            return None
        error, pause = last.error, 0.0
        if self._keys > 0 and error.kind in KEY_FAULTS and last.keyless is None:
            self._keys -= 1
        elif failures.MOVES[error.kind].repairable:
            if self._repaired:
                return None
            self._repaired = True
            self._spend()
            call = replace(call, repair=error)
        else:
            wait = _pause(error, self._retries)
            if wait is None or now + wait >= self.request.deadline or self._health.rest(last.target.name) > wait or not self.fleet.budget.allows():
                return None
            self._retries -= 1
            self._spend()
            pause = wait
        self._sent += 1
        self._call = replace(call, attempt=self._sent)
        return Step(self._call, pause)

    def _spend(self) -> None:
        self._spent += 1
        self.fleet.budget.again += 1

    def _pick(self, now: float, rests: bool) -> config.Target | None:
        while self._waiting:
            target = self._waiting.pop(0)
            reason = self.skip(target, now)
            if reason is None:
                return target
            if reason.kind is not None:
                self._resting.append(target)
            else:
                self._leave_out(target, reason)
        while rests and self._resting:
            target = self._resting.pop(0)
            reason = self.skip(target, now, last_resort=True)
            if reason is None:
                return target
            self._leave_out(target, reason)
        return None

    def _leave_out(self, target: config.Target, reason: Reason) -> None:
        self.left_out.append((target, reason))
        self.request.record.attempts.append(Attempt(target.provider, target.model, kind=reason.kind, skipped=reason.why, retry_after=reason.wait))

    def _larger(self, target: config.Target, small: list[config.Target]) -> bool:
        window = self.fleet.prices.window
        size = window(target.provider, target.model)
        others = [window(t.provider, t.model) for t in small]
        return size is not None and all(other is not None and size > other for other in others)


def _in_order(settings: config.Model, fleet: Fleet, request: Request) -> list[config.Target]:
    """The targets that the request may use, in the order in which they are tried."""
    targets = [t for t in settings.chain if request.only in (None, t.provider)]
    match settings.balance:
        case "weighted":
            return balance.weighted(targets)
        case "latency":
            return balance.fastest(targets, fleet.speeds, request.stream)
        case "cheapest":
            return balance.cheapest(targets, fleet.prices)
    return targets


def _pause(error: UpstreamError, retries: int) -> float | None:
    """Seconds to wait before the same target is asked again; None: it is not."""
    if retries <= 0:
        return None
    retry = failures.MOVES[error.kind].retry
    if retry == "backoff" and (error.retry_after is None or error.retry_after <= 1):
        return max(random.uniform(0.2, 1.0), error.retry_after or 0.0)
    if retry == "wait" and error.retry_after is not None and error.retry_after <= _SHORT_WAIT:
        return error.retry_after
    return None
