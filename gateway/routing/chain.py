"""A chain: the targets of one model, tried in order until one answers.

The plan says what comes next; here it is done. Until a provider's first content its failure
goes back to the plan; from the first content on the answer is that provider's, whatever
happens: another provider's text must not follow it, unless the model has `resume: prefill`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from gateway import config
from gateway.chat import Chunk, Request
from gateway.errors import GatewayError, UpstreamError
from gateway.routing.exhaustion import exhausted
from gateway.routing.fleet import Fleet
from gateway.routing.hedge import hedged
from gateway.routing.plan import Plan
from gateway.routing.resume import resumable, resumed
from gateway.routing.trial import Trial
from gateway.telemetry import Telemetry
from gateway.upstream import NothingToRepair, Provider


class Chain:
    """A `Model` over the targets of `settings.chain`."""

    def __init__(self, settings: config.Model, providers: Mapping[str, Provider], fleet: Fleet, telemetry: Telemetry) -> None:
        self.settings = settings
        self.name = settings.name
        self.providers = providers
        self.fleet = fleet
        self._telemetry = telemetry
        self._trial = partial(Trial, providers=providers, fleet=fleet, telemetry=telemetry, apart=settings.hedge is not None)

    def plan(self, request: Request, targets: Sequence[config.Target] | None = None) -> Plan:
        """The course that a request would take from here; through `targets` alone, where they are given."""
        return Plan(self.settings, self.fleet, request, targets)

    def generate(self, request: Request) -> AsyncGenerator[Chunk]:
        """Yield the chunks of the first target that answers.

        Raises ChainExhausted when none does (with the provider's own status and error where
        the caller is at fault), StreamCut when the answer breaks off after its first content
        and nobody can go on with it.
        """
        if self.settings.resume == "prefill" and resumable(request):
            return resumed(self, request)
        return self.answer(self.plan(request))

    async def answer(self, plan: Plan) -> AsyncGenerator[Chunk]:
        """The chunks of the first target of a plan that answers. Raises what `generate` does."""
        clock, budget, patience = asyncio.get_running_loop().time, self.fleet.budget, self.settings.hedge
        if self.settings.deadline is not None:
            plan.request = replace(plan.request, deadline=clock() + self.settings.deadline)
        budget.active += 1
        try:
            while (step := plan.next(clock())) is not None:
                trial = self._trial(step)
                try:
                    if not await trial.enter(plan):
                        continue
                    if patience is not None:
                        trial = await hedged(trial, patience, plan, self._trial)
                    first = await trial.content()
                    trial.commit()  # an answer without anything too, where that is accepted: who gave it is told
                    plan.settled()
                    if first is not None:
                        yield first
                    async for chunk in trial.chunks:
                        yield chunk
                    trial.answered()
                    return
                except (UpstreamError, NothingToRepair) as error:
                    trial.failed(error, plan)
                    if trial.committed:
                        raise
                except GatewayError:
                    trial.refused()
                    raise
                finally:
                    await trial.close()
            raise exhausted(plan)
        finally:
            budget.active -= 1
            plan.settled()
            for target, reason in plan.left_out:
                self._telemetry.left_out(target.provider, reason.kind or reason.limit or "other")
