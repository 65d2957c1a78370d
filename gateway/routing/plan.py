"""What a chain does next: which target is asked, repaired, retried or left out. No I/O.

next()     the call to make now, and the seconds to wait before it; None: nothing is left
failed()   the call failed before its first content
missed()   the call was left out after all (the adapter skipped it, nothing to repair)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from gateway import config, failures
from gateway.chat import Attempt, Request
from gateway.errors import InvalidRequest, UpstreamError
from gateway.routing.health import Health

_SHORT_WAIT = 2.0  # seconds of a rate limit's Retry-After that are worth waiting for

Window = Callable[[str, str], int | None]
"""The context window of a provider's model in tokens, where it is known."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed exchange and the target that it was with."""

    target: config.Target
    error: UpstreamError


class Plan:
    """The course of one request through one chain."""

    def __init__(self, settings: config.Model, providers: Mapping[str, config.Provider], health: Health, window: Window, request: Request) -> None:
        self.settings = settings
        self.request = request
        self.failures: list[Failure] = []
        self.targets = [t for t in settings.chain if request.only in (None, t.provider)]
        if not self.targets:
            raise InvalidRequest(f'model "{request.model}" has no target of provider "{request.only}"', code="unknown_provider", param="x-thinkgate-provider")
        self._providers = providers
        self._health = health
        self._window = window
        self._waiting = list(self.targets)
        self._resting: list[config.Target] = []
        self._call: Request | None = None
        self._retries = 0
        self._repaired = False
        self._sent = 0

    def next(self, now: float) -> tuple[Request, float] | None:
        """`now` is `loop.time()`. What is left out for good is written into the record with its reason."""
        if self._call is not None:
            call = self._again(now)
            if call is not None:
                return call
            if self.failures and not self.goes_on(self.failures[-1].error):
                return None
            if not self.request.fallback and self._sent:
                return None
        target = self._pick(now)
        if target is None:
            return None
        settings = self._providers[target.provider]
        self._retries = settings.retries if target.retries is None else target.retries
        self._repaired = False
        self._sent += 1
        self._call = replace(self.request, target=target, attempt=self._sent, empty_ok=self.settings.empty_answer == "accept")
        return self._call, 0.0

    def failed(self, error: UpstreamError) -> None:
        assert self._call is not None
        assert self._call.target is not None
        self.failures.append(Failure(self._call.target, error))

    def missed(self) -> None:
        """The last call was not made, or could not be repaired: the next target's turn."""
        self._retries = 0
        self._repaired = True
        self._sent -= 1

    def skip(self, target: config.Target, now: float, last_resort: bool = False) -> str | None:
        """Why a target is not asked; None: it may be. `last_resort`: no other target is left."""
        if now >= self.request.deadline:
            return "the chain's deadline has passed"
        small = [f.target for f in self.failures if f.error.kind == "context_overflow"]
        if small and not self._larger(target, small):
            return "its context is not known to be larger"
        if self._health.free(target.name) or (last_resort and self._health.may_probe(target.name)):
            return None
        return self._health.why(target.name)

    def _again(self, now: float) -> tuple[Request, float] | None:
        """The same target once more: repaired, or after a pause."""
        last = self.failures[-1] if self.failures else None
        call = self._call
        if call is None or last is None or last.target is not call.target:
            return None
        error = last.error
        pause = 0.0
        if failures.MOVES[error.kind].repairable:
            if self._repaired:
                return None
            self._repaired = True
            call = replace(call, repair=error)
        else:
            wait = _pause(error, self._retries)
            if wait is None or now + wait >= self.request.deadline:
                return None
            self._retries -= 1
            pause = wait
        self._sent += 1
        self._call = replace(call, attempt=self._sent)
        return self._call, pause

    def _pick(self, now: float) -> config.Target | None:
        while self._waiting:
            target = self._waiting.pop(0)
            why = self.skip(target, now)
            if why is None:
                return target
            if self._health.free(target.name):
                self._leave_out(target, why)
            else:
                self._resting.append(target)
        while self._resting:
            target = self._resting.pop(0)
            why = self.skip(target, now, last_resort=True)
            if why is None:
                return target
            self._leave_out(target, why)
        return None

    def _leave_out(self, target: config.Target, why: str) -> None:
        self.request.record.attempts.append(Attempt(target.provider, target.model, kind=self._health.kind(target.name), skipped=why))

    def goes_on(self, error: UpstreamError) -> bool:
        if self.settings.move_on is not None:
            return error.kind in self.settings.move_on
        return failures.MOVES[error.kind].moves_on is not False

    def _larger(self, target: config.Target, small: list[config.Target]) -> bool:
        size = self._window(target.provider, target.model)
        others = [self._window(t.provider, t.model) for t in small]
        return size is not None and all(other is not None and size > other for other in others)


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
