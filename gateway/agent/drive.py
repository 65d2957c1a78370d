"""A run from its first turn to its end, whatever the end is."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from gateway.agent.endings import Paused, Stopped
from gateway.agent.patterns import PATTERNS
from gateway.agent.run import Run
from gateway.errors import GatewayError

log = logging.getLogger("thinkgate")

NO_ANSWER = "The model gave no answer."


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: `status` completed | incomplete | failed, `reason` where it is incomplete, `error` as clients see it."""

    status: str
    reason: str | None = None
    error: GatewayError | None = None


async def carry_out(run: Run) -> Outcome:
    """Go through the run's pattern. Raises Paused when it has to wait for somebody; every other ending is an Outcome, with the best answer in `run.output`."""
    try:
        async with asyncio.timeout(run.agent.limits.wall):
            await PATTERNS[run.agent.pattern](run)
    except Stopped as stopped:
        return _best(run, stopped.reason, stopped.error)
    except TimeoutError:
        return _best(run, "wall", None)
    except Paused:
        raise
    except GatewayError as error:
        return _best(run, "outage", error)
    except Exception:
        log.exception("run=%s failed unexpectedly", run.root.id)
        return Outcome("failed", error=GatewayError("the run failed; the log has the reason under its id"))
    if run.reason is not None:
        return Outcome("incomplete", run.reason)
    return Outcome("completed")


def _best(run: Run, reason: str, error: GatewayError | None) -> Outcome:
    """The best answer so far; an outage without any is a failure."""
    run.output = run.best()
    if not run.output and error is not None:
        return Outcome("failed", error=error)
    if not run.output and reason == "empty":
        run.output = NO_ANSWER
    return Outcome("incomplete", reason, error)
