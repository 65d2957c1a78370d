"""One attempt while it runs: its place at the provider, its key, its entry in the record, what is learned from it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from msgspec.structs import replace

from gateway import config
from gateway.chat import Attempt, Chunk, Json, Record
from gateway.errors import Skipped, UpstreamError
from gateway.routing.bounds import Bounds, Pass, Refusal
from gateway.routing.fleet import Fleet
from gateway.routing.keyring import KEY_FAULTS, Keyring
from gateway.routing.plan import Plan, Step
from gateway.telemetry import Telemetry
from gateway.upstream import NothingToRepair, Provider

Failed = UpstreamError | NothingToRepair


class Trial:
    """`enter` finds it a place, `content` gives the first chunk, `chunks` the others. Whoever makes one closes it.

    `apart`: another one may run beside it for the same request, so what it finds out goes into
    the request's record only when it has won.
    """

    __slots__ = (
        "_began",
        "_begun",
        "_call",
        "_first",
        "_fleet",
        "_key",
        "_key_began",
        "_open",
        "_own",
        "_pass",
        "_pause",
        "_provider",
        "_record",
        "_secret",
        "_start",
        "_telemetry",
        "_usage",
        "attempt",
        "chunks",
        "committed",
        "early",
        "target",
    )
    chunks: AsyncGenerator[Chunk]

    def __init__(self, step: Step, providers: Mapping[str, Provider], fleet: Fleet, telemetry: Telemetry, *, apart: bool = False) -> None:
        call = step.call
        target = call.target
        assert target is not None
        record = call.record
        self.target: config.Target = target
        self.attempt = Attempt(target.provider, target.model)
        self.committed = False
        self.early: asyncio.Task[Chunk | None] | None = None
        self._provider = providers[target.provider]
        self._call = call
        self._record = record
        self._own = record
        self._pause = step.pause
        self._fleet = fleet
        self._telemetry = telemetry
        self._pass: Pass | None = None
        self._key: str | None = None
        self._secret: config.Secret | None = None
        self._begun = self._open = False
        self._began = self._key_began = self._start = self._first = 0.0
        if apart:
            self._own = Record(record.id, record.endpoint, tenant=record.tenant)
            self._call = replace(call, record=self._own)
        self._usage = self._own.usage

    async def enter(self, plan: Plan, *, wait: bool = True) -> bool:
        """Wait out the pause, and for a place (not where `wait` is off). False: it is not made, and the plan knows why."""
        if self._pause:
            await asyncio.sleep(self._pause)
        fleet, provider = self._fleet, self.target.provider
        ring = fleet.keyrings.get(provider)
        if (ring is not None or fleet.health.on_trial(self.target.name)) and not await self._permitted(ring):
            plan.tried_elsewhere()
            return False
        bounds = fleet.bounds.get(provider)
        if bounds is not None:
            exchanges = self._exchanges(bounds)
            found = await bounds.enter(plan.tokens, self._call.deadline, exchanges) if wait else bounds.try_enter(plan.tokens, exchanges)
            if isinstance(found, Refusal):
                plan.turned_away(self.target, found)
                return False
            self._pass = found
        return True

    def _exchanges(self, bounds: Bounds) -> int:
        """Requests that this one is to its provider."""
        return len(self._provider.parts(self._call)) or 1 if bounds.limits.rpm is not None else 1

    async def _permitted(self, ring: Keyring | None) -> bool:
        """Whether the target may be asked, and with which key, where one of them may be tried out by another process."""
        health = self._fleet.health
        self._begun = True
        self._began = health.begin(self.target.name)
        if not await health.leave(self.target.name, self._began):
            return False
        while ring is not None:
            number = ring.take()
            self._key, self._secret = ring.names[number], ring.keys[number]
            self._key_began = health.begin(self._key)
            if await health.leave(self._key, self._key_began):
                break
            if not (ring.free() or ring.may_probe()):
                return False
        return True

    def start(self) -> asyncio.Task[Chunk | None]:
        """Fetch the first content in a task of its own; `content` then gives what came of it."""
        self.early = asyncio.get_running_loop().create_task(self.content())
        return self.early

    async def content(self) -> Chunk | None:
        """The first chunk, which has content; None: the answer has no chunks. Raises what the provider raises."""
        if self.early is not None and self.early.done():
            return self.early.result()
        fleet = self._fleet
        self._start = time.perf_counter()
        if not self._begun:
            self._began = fleet.health.begin(self.target.name)
        self._open = True
        if fleet.measures:
            fleet.speeds.begin(self.target.name, self._call.stream)
        self.chunks = self._provider.generate(self._call, self._secret)
        return await anext(self.chunks, None)

    def commit(self) -> None:
        """The first content is there: from now on the answer is this one's."""
        self.committed = True
        self._first = time.perf_counter()
        self._fleet.health.answers(self.target.name, self._began)
        if self._key is not None:
            self._fleet.health.answers(self._key, self._key_began)
        record, own = self._record, self._own
        if record.first_content is None:
            record.first_content = self._first
        record.provider, record.target_model = self.attempt.provider, self.attempt.model
        if own is not record:
            record.upstream_headers, record.content_type = own.upstream_headers, own.content_type
            self._tell_transforms()
        self.attempt.status = 200
        self._enter_record()

    def answered(self) -> None:
        self._open = False
        self._fleet.health.good(self.target.name, self._began)
        if self._key is not None:
            self._fleet.health.good(self._key, self._key_began)
        self._telemetry.attempt(self._record, self.attempt)
        usage = self._settle()
        if self._fleet.measures and self.committed:
            tokens = usage.get("completion_tokens") if usage is not None else None
            elapsed = time.perf_counter() - self._start
            self._fleet.speeds.answered(self.target.name, self._call.stream, self._first - self._start, elapsed, tokens if type(tokens) is int else None)

    def failed(self, error: Failed, plan: Plan) -> None:
        """It failed, before its content or after it; or nothing was sent."""
        self._open = False
        if isinstance(error, NothingToRepair):
            self._release()
            plan.missed()
            return
        attempt = self.attempt
        self._rest(error)
        attempt.kind, attempt.message, attempt.retry_after = error.kind, error.message, error.retry_after
        if not self.committed:
            attempt.status = error.upstream_status
            self._enter_record()
        if isinstance(error, Skipped):
            attempt.kind, attempt.message, attempt.skipped = None, None, error.message
            plan.missed()
        else:
            self._telemetry.attempt(self._record, attempt)
            plan.failed(error, self.target)
        self._settle()

    def refused(self) -> None:
        """The caller's own fault, found while the request was translated: nothing was sent."""
        if self._open:
            self._open = False
            self._release()

    async def close(self, why: str | None = None) -> None:
        """Whoever took the chunks left before the end, for the reason `why`: that says nothing about the target."""
        if self.early is not None and not self.early.done():
            self.early.cancel()
            await asyncio.wait((self.early,))
        if self._open:
            self._open = False
            await self.chunks.aclose()
            self.attempt.kind, self.attempt.message = "client_gone", why
            if not self.committed:
                self._enter_record()
            self._telemetry.attempt(self._record, self.attempt)
            self._release()
            self._settle()
            if self._fleet.measures and why is not None and not self.committed:
                self._fleet.speeds.waited(self.target.name, self._call.stream, time.perf_counter() - self._start)
        elif self._begun:  # and perhaps never sent
            self._release()
        if self._pass is not None:
            self._fleet.bounds[self.target.provider].leave(self._pass, None)

    def _rest(self, error: UpstreamError) -> None:
        """A failure that is about the key rests the key, where there are several; every other one is the target's."""
        health, cooldown = self._fleet.health, self._provider.settings.cooldown
        if self._key is not None and error.kind in KEY_FAULTS:
            health.bad(self._key, self._key_began, error, cooldown)
            health.release(self.target.name, self._began)
            return
        health.bad(self.target.name, self._began, error, cooldown)
        if self._key is not None:
            health.release(self._key, self._key_began)
        if self._fleet.measures and error.kind in ("timeout", "first_token_timeout"):
            self._fleet.speeds.waited(self.target.name, self._call.stream, time.perf_counter() - self._start)

    def _release(self) -> None:
        self._fleet.health.release(self.target.name, self._began)
        if self._key is not None:
            self._fleet.health.release(self._key, self._key_began)

    def _settle(self) -> Json | None:
        """Count what the exchange used, as its provider told; gives that usage."""
        record, own = self._record, self._own
        usage = own.usage if own.usage is not self._usage else None
        if own is not record:
            self._tell_rest()
        if usage is not None and (rates := self._fleet.prices.of(self.target.provider, self.target.model)) is not None:
            record.cost = (record.cost or 0.0) + rates.cost(usage)
        if self._pass is not None:
            spent = _total(usage) if usage is not None else None if self.committed or self.attempt.kind in (None, "client_gone") else 0
            self._fleet.bounds[self.target.provider].leave(self._pass, spent)
        return usage

    def _tell_transforms(self) -> None:
        for note in self._own.transforms:
            self._record.note(note)

    def _tell_rest(self) -> None:
        record, own = self._record, self._own
        record.upstream_seconds += own.upstream_seconds
        record.hook_seconds += own.hook_seconds
        self._tell_transforms()
        record.tools.extend(own.tools)
        if own.usage is not None:
            record.usage = own.usage

    def _enter_record(self) -> None:
        self.attempt.ms = round((time.perf_counter() - self._start) * 1000)
        self._record.attempts.append(self.attempt)


def _total(usage: Mapping[str, Any]) -> int:
    total = usage.get("total_tokens")
    return total if type(total) is int and total >= 0 else 0
