"""A run from its first turn to its end, whatever the end is."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from gateway.agent.acting import close
from gateway.agent.endings import Paused, Stopped
from gateway.agent.failed import kind_of
from gateway.agent.patterns import PATTERNS
from gateway.agent.run import Run
from gateway.agent.wording import text_of
from gateway.errors import GatewayError

log = logging.getLogger("thinkgate")

NO_ANSWER = "The model gave no answer."
NOTHING = {
    "empty": NO_ANSWER,
    "stuck": NO_ANSWER,
    "steps": "The run used up its turns before it had an answer.",
    "tokens": "The run used up its tokens before it had an answer.",
    "cost": "The run reached its cost limit before it had an answer.",
    "wall": "The run used up its time before it had an answer.",
    "plan_rejected": "The run stopped because none of its plans was accepted.",
}
"""what an incomplete run says that has nothing else to say"""
AGAIN = 5.0
"""seconds in which a run whose time is over may go through its journal again; it asks no model"""
NO_TIME = "The run's time was over before this call had finished; whether it took effect is unknown."
FOUND = """{question}

What was found so far:
{found}

Nothing more can be looked up. Answer from this, and say what is missing."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: `status` completed | incomplete | failed, `reason` where it is incomplete, `error` as clients see it."""

    status: str
    reason: str | None = None
    error: GatewayError | None = None


async def carry_out(run: Run) -> Outcome:
    """Go through the run's pattern. Raises Paused when it has to wait for somebody; every other ending is an Outcome, with the best answer in `run.output`."""
    wall, now = run.agent.limits.wall, asyncio.get_running_loop().time()
    run.over_at = None if wall is None else now + wall - run.took()
    limit = asyncio.timeout_at(run.over_at if run.over_at is None or run.over_at > now else now + AGAIN)
    try:
        async with limit:
            return await _through(run)
    except TimeoutError:
        if not limit.expired():
            raise
        await close(run, NO_TIME)
        return _incomplete(run, "wall", None)


async def _through(run: Run) -> Outcome:
    try:
        await PATTERNS[run.agent.pattern](run)
    except Stopped as stopped:
        return await _stopped(run, stopped.reason, stopped.error)
    except Paused:
        raise
    except GatewayError as error:
        return await _stopped(run, "outage", error)
    except Exception:
        log.exception("run=%s failed unexpectedly", run.root.id)
        return Outcome("failed", error=GatewayError("the run failed; the log has the reason under its id"))
    return Outcome("completed") if run.reason is None else Outcome("incomplete", run.reason)


async def _stopped(run: Run, reason: str, error: GatewayError | None) -> Outcome:
    """An ending that the pattern did not come to by itself. What the tools have found is not lost (X5)."""
    if reason in ("outage", "empty") and not run.output and run.found() and (error is None or kind_of(error) not in ("timeout", "first_token_timeout")):
        await _from_found(run)
    return _incomplete(run, reason, error)


async def _from_found(run: Run) -> None:
    """Ask once more, with nothing but the question and what was found: a request that was refused may have been so for what else stood in it."""
    found = "\n\n".join(run.found())
    words = FOUND.format(question=run.asked.question, found=found)
    system = run.agent.system.strip()
    messages = [*([{"role": "system", "content": system}] if system else []), {"role": "user", "content": words}]
    try:
        turn = await run.ask(messages, purpose="closing")
    except (GatewayError, Stopped):
        return
    if turn.text.strip():
        await run.answer(turn)


def _incomplete(run: Run, reason: str, error: GatewayError | None) -> Outcome:
    """With the best answer so far; an outage without any is a failure."""
    run.output = run.best() or ("" if error is not None else NOTHING.get(reason, NO_ANSWER))
    if not run.output:
        return Outcome("failed", error=error)
    last = run.new[-1] if run.new else {}
    if last.get("role") != "assistant" or last.get("tool_calls") or text_of(last) != run.output:
        run.new.append({"role": "assistant", "content": run.output})
    return Outcome("incomplete", reason, error)
