"""A conversation that grows too large for its model: old turns become a summary, then outputs are cut."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.agent.failed import kind_of
from gateway.agent.memory.compaction import apply, plan_compaction, summary_request, trim, trim_budget
from gateway.agent.run import Run
from gateway.chat import Json
from gateway.errors import ChainExhausted, GatewayError, UpstreamError

SHRINK = 0.6
"""what is left of a conversation of which a provider says that it is too long"""


async def fit(run: Run, messages: list[Json], tools: Sequence[Json], own: int = 0) -> None:
    """Cut the messages down, in place, where the model's window is known and more than half full. `own` of them, the last ones, are none of the session's."""
    if run.window is None:
        return
    before = run.estimator.count(messages, tools)
    plan = plan_compaction(messages, run.window, estimator=run.estimator, tools=tools)
    if plan is not None:
        try:
            turn = await run.ask(summary_request(plan), purpose="summary")
        except (UpstreamError, ChainExhausted) as error:
            await run.emit("context.compacted", {"how": "failed", "error": error.message, "tokens": before})
        else:
            if turn.text.strip():
                messages[:] = apply(messages, plan, turn.text)
                run.summary = turn.text, max(plan.kept - own, 1)
                await _tell(run, "summary", before, messages, tools)
    budget = trim_budget(run.window)
    if (now := run.estimator.count(messages, tools)) > budget:
        messages[:] = trim(messages, budget, estimator=run.estimator, tools=tools)
        await _tell(run, "trimmed", now, messages, tools)


async def shrink(run: Run, messages: list[Json], tools: Sequence[Json]) -> bool:
    """A provider says that they are too many: cut them without asking a model. False: there is nothing to cut."""
    before = run.estimator.count(messages, tools)
    smaller = trim(messages, round(before * SHRINK), estimator=run.estimator, tools=tools)
    if run.estimator.count(smaller, tools) >= before:
        return False
    messages[:] = smaller
    await _tell(run, "trimmed", before, messages, tools)
    return True


def overflows(error: GatewayError) -> bool:
    """Whether a chain failed because the request is too long for every target."""
    return kind_of(error) == "context_overflow"


async def _tell(run: Run, how: str, before: int, messages: Sequence[Json], tools: Sequence[Json]) -> None:
    await run.emit("context.compacted", {"how": how, "tokens_before": before, "tokens_after": run.estimator.count(messages, tools)})
