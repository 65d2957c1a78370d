"""reflection: an answer, a review of it, a better answer; again, a few times."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.agent.loop import ask, before_question, steps, until_answer
from gateway.agent.prompts import fill
from gateway.agent.run import Run
from gateway.agent.turn import Turn
from gateway.agent.wording import short
from gateway.chat import Json
from gateway.errors import ChainExhausted, UpstreamError

GOOD = "[NO_IMPROVEMENT_NEEDED]"
"""what a reviewer writes when nothing is left to improve"""

INITIAL = """Do this task as well as you can. Give the whole result and nothing else.

Task: {task}"""

REFLECT = """Review the result below as a demanding expert. Name what is wrong, missing or unclear, \
and how to make it better; point by point, without writing it anew.
If nothing is left to improve, answer with [NO_IMPROVEMENT_NEEDED].

Task: {task}

Result:
{content}"""

REFINE = """Make the result better by following the review. Give the whole new result and nothing else.

Task: {task}

Your last result:
{last_attempt}

Review:
{feedback}"""


async def reflection(run: Run) -> str:
    """Initial answer, then (review, better answer) for `max_reflections` rounds; with `auto_finish` a good review ends it.

    A round that fails leaves the answer that was there before. Only the last answer goes to the client as such.
    """
    prompts, options, task = run.agent.options.prompts, run.agent.options, run.asked.question
    before = await before_question(run)
    async with run.phase("initial"):
        turn = await _write(run, before, fill(prompts.get("initial", INITIAL), task=task))
    for number in range(1, options.max_reflections + 1):
        run.output = turn.text
        try:
            async with run.phase("reflect", round=number) as told:
                run.step += 1
                review = await ask(run, _alone(run, fill(prompts.get("reflect", REFLECT), task=task, content=turn.text)), [], aloud=True)
                told["feedback"] = review.text
                run.new.append({"role": "user", "content": review.text})
                run.think(f"{short(review.text)}\n", "summary")
            if options.auto_finish and GOOD in review.text:
                break
            async with run.phase("refine", round=number):
                turn = await _write(run, before, fill(prompts.get("refine", REFINE), task=task, last_attempt=turn.text, feedback=review.text))
        except (UpstreamError, ChainExhausted) as error:
            run.think(f"The review failed ({error.message}); the answer stays as it is.\n", "summary")
            break
    return await run.answer(turn)


async def _write(run: Run, before: Sequence[Json], prompt: str) -> Turn:
    """One draft, with tools where the agent has some. It is a thought until it is known to be the last."""
    messages = [*before, {"role": "user", "content": prompt}]
    if not run.tools.names() and not run.asked.tools:
        run.step += 1
        turn = await ask(run, messages, [], aloud=True)
        run.new.append(turn.message)
        return turn
    silent = run.silent
    run.silent = True
    try:
        await until_answer(run, messages, steps(run))
    finally:
        run.silent = silent
    return Turn({"role": "assistant", "content": run.output}, run.finish)


def _alone(run: Run, prompt: str) -> list[Json]:
    """A reviewer sees the task and the latest result, nothing of what came before."""
    system = run.agent.system.strip()
    return [*([{"role": "system", "content": system}] if system else []), {"role": "user", "content": prompt}]
