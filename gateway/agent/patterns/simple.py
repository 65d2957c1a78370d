"""simple: the model, its tools, and an answer."""

from __future__ import annotations

from gateway.agent.loop import opening, steps, until_answer
from gateway.agent.run import Run

DEFAULT_SYSTEM = "You are a helpful assistant. Answer in the language of the question."


async def simple(run: Run) -> str:
    """The loop itself: turns with tools until the model answers. One turn where there are no tools."""
    return await until_answer(run, opening(run) if run.agent.system else opening(run, DEFAULT_SYSTEM), steps(run))
