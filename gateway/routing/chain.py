"""A chain: the targets of one model, tried in order until one answers.

The plan says what comes next; here it is done. Until a provider's first content its failure
goes back to the plan; from the first content on the answer is that provider's, whatever
happens: another provider's text must not follow it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from msgspec.structs import replace

from gateway import config
from gateway.chat import Attempt, Chunk, Request
from gateway.errors import GatewayError, Skipped, UpstreamError
from gateway.routing.exhaustion import exhausted
from gateway.routing.health import Health
from gateway.routing.plan import Plan, Window
from gateway.telemetry import Telemetry
from gateway.upstream import NothingToRepair, Provider


class Chain:
    """A `Model` over the targets of `settings.chain`."""

    def __init__(self, settings: config.Model, providers: Mapping[str, Provider], health: Health, telemetry: Telemetry, window: Window) -> None:
        self.settings = settings
        self.name = settings.name
        self.providers = providers
        self._health = health
        self._telemetry = telemetry
        self._window = window
        self._settings = {target.provider: providers[target.provider].settings for target in settings.chain}

    def plan(self, request: Request) -> Plan:
        """The course that a request would take from here."""
        return Plan(self.settings, self._settings, self._health, self._window, request)

    async def generate(self, request: Request) -> AsyncGenerator[Chunk]:
        """Yield the chunks of the first target that answers.

        Raises ChainExhausted when none does (with the provider's own status and error where
        the caller is at fault), StreamCut when the answer breaks off after its first content.
        """
        loop = asyncio.get_running_loop()
        if self.settings.deadline is not None:
            request = replace(request, deadline=loop.time() + self.settings.deadline)
        plan = self.plan(request)
        while (step := plan.next(loop.time())) is not None:
            call, pause = step
            if pause:
                await asyncio.sleep(pause)
            trial = Trial(call, self._health, self._telemetry)
            try:
                async with aclosing(self.providers[trial.attempt.provider].generate(call)) as chunks:
                    async for chunk in chunks:
                        if not trial.committed:
                            trial.commit()
                        yield chunk
                trial.answered()
                return
            except NothingToRepair:
                trial.release()
                plan.missed()
            except UpstreamError as error:
                trial.failed(error, self.providers[trial.attempt.provider].settings.cooldown)
                if trial.committed:
                    raise
                if isinstance(error, Skipped):
                    plan.missed()
                else:
                    plan.failed(error)
            except GatewayError:  # the caller's fault, found while the request was translated
                trial.release()
                raise
            finally:
                trial.close()
        raise exhausted(plan, self._health)


class Trial:
    """One attempt while it runs: keeps its entry in the record, and the target's health, right."""

    def __init__(self, call: Request, health: Health, telemetry: Telemetry) -> None:
        assert call.target is not None
        self.attempt = Attempt(call.target.provider, call.target.model)
        self.committed = False
        self._name = call.target.name
        self._record = call.record
        self._health = health
        self._telemetry = telemetry
        self._start = time.perf_counter()
        self._began = health.begin(self._name)
        self._open = True

    def commit(self) -> None:
        """The first content is there."""
        self.committed = True
        record = self._record
        record.first_content = time.perf_counter()
        record.provider, record.target_model = self.attempt.provider, self.attempt.model
        self.attempt.status = 200
        self._enter()

    def answered(self) -> None:
        self._open = False
        self._health.good(self._name, self._began)
        self._telemetry.attempt(self._record, self.attempt)

    def failed(self, error: UpstreamError, cooldown: config.Cooldown) -> None:
        attempt = self.attempt
        self._open = False
        self._health.bad(self._name, self._began, error, cooldown)
        attempt.kind, attempt.message, attempt.retry_after = error.kind, error.message, error.retry_after
        if not self.committed:
            attempt.status = error.upstream_status
            self._enter()
        if isinstance(error, Skipped):
            attempt.kind, attempt.message, attempt.skipped = None, None, error.message
        else:
            self._telemetry.attempt(self._record, attempt)

    def release(self) -> None:
        """Nothing was sent."""
        self._open = False
        self._health.release(self._name)

    def close(self) -> None:
        """Whoever took the chunks left before the end: that says nothing about the target."""
        if self._open:
            self.attempt.kind = "client_gone"
            if not self.committed:
                self._enter()
            self._telemetry.attempt(self._record, self.attempt)
            self.release()

    def _enter(self) -> None:
        self.attempt.ms = round((time.perf_counter() - self._start) * 1000)
        self._record.attempts.append(self.attempt)
