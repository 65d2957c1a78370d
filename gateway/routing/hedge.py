"""Asking the next target too when the first one is slow: the one place of the chain that makes tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.errors import UpstreamError
from gateway.routing.plan import Plan, Step
from gateway.routing.trial import Trial
from gateway.upstream import NothingToRepair

LOST = "hedge lost"
"""what the record says about the one that was slower; its class is `client_gone`, and it rests for nothing"""


async def hedged(first: Trial, patience: float, plan: Plan, make: Callable[[Step], Trial]) -> Trial:
    """The trial whose content came first, or the last one that failed; `content` tells which. The other one is over.

    After `patience` seconds without content the plan's next target is asked too, if it has a
    place. A failure that ends the chain ends both. Whoever gets the trial closes it.
    """
    running = [first]
    first.start()
    why: str | None = None
    try:
        await _some(running, patience)
        if not _over(first) and (rival := await _rival(plan, make)) is not None:
            running.append(rival)
            rival.start()
        while True:
            await _some(running)
            ended = min((trial for trial in running if _over(trial)), key=lambda trial: _failure(trial) is not None)
            running.remove(ended)
            error = _failure(ended)
            if error is None or not running or not (isinstance(error, NothingToRepair) or (isinstance(error, UpstreamError) and plan.goes_on(error))):
                why = LOST
                return ended
            ended.failed(error, plan)
            await ended.close()
    finally:
        for trial in running:
            error = _failure(trial) if _over(trial) else None
            if isinstance(error, UpstreamError | NothingToRepair):
                trial.failed(error, plan)
            await trial.close(why)


async def _rival(plan: Plan, make: Callable[[Step], Trial]) -> Trial | None:
    step = plan.rival(asyncio.get_running_loop().time())
    if step is None:
        return None
    trial = make(step)
    entered = False
    try:
        entered = await trial.enter(plan, wait=False)
    finally:
        if not entered:
            await trial.close()
    return trial if entered else None


async def _some(trials: list[Trial], patience: float | None = None) -> None:
    await asyncio.wait([trial.early for trial in trials if trial.early is not None], timeout=patience, return_when=asyncio.FIRST_COMPLETED)


def _over(trial: Trial) -> bool:
    return trial.early is not None and trial.early.done()


def _failure(trial: Trial) -> BaseException | None:
    return trial.early.exception() if trial.early is not None else None
