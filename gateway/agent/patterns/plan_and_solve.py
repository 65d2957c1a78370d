"""plan_and_solve: a plan first, then its steps one by one, each with the results of those before it."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.agent.endings import Stopped
from gateway.agent.loop import ask, before_question, steps, until_answer
from gateway.agent.prompts import fill
from gateway.agent.protocols import PlanUnreadable
from gateway.agent.protocols import plan as parse
from gateway.agent.run import Run
from gateway.agent.tools.todo import Todos
from gateway.agent.wording import short
from gateway.chat import Json
from gateway.errors import ChainExhausted, GatewayError, UpstreamError

PLAN = """Break the question into a short plan: steps that can be done one after the other, each one a task of its own, the last one giving the answer.
Answer with the steps alone, as a Python list of strings in a fenced block:

```python
["first step", "second step"]
```

Question: {question}"""

EXECUTE = """You carry out one step of a plan. Do the current step only, and give its result.

Question: {question}

Plan:
{plan}

Steps done and their results:
{history}

Current step: {current_step}"""


async def plan_and_solve(run: Run) -> str:
    """The last step's result is the answer. A plan that cannot be read fails the run; a failing step ends it with what was gathered."""
    before = await before_question(run)
    plan = await _plan(run, before)
    await _todo(run, plan, 0)
    results: list[str] = []
    limit = steps(run)
    for number, step in enumerate(plan, start=1):
        history = "\n\n".join(f"Step {n}: {plan[n - 1]}\nResult {n}: {result}" for n, result in enumerate(results, start=1)) or "none"
        prompt = fill(run.agent.options.prompts.get("execute", EXECUTE), question=run.asked.question, plan=numbered(plan), history=history, current_step=step)
        last = number == len(plan)
        try:
            async with run.phase("execute", step=number, of=len(plan), task=step) as told:
                result = await _carry_out(run, [*before, {"role": "user", "content": prompt}], limit, last)
                told["result"] = result
        except (UpstreamError, ChainExhausted) as error:
            run.output = "\n\n".join(results)
            raise Stopped("outage", f"step {number} failed: {error.message}", error) from error
        results.append(result)
        run.think(f"{number}/{len(plan)} {short(step)}\n", "summary")
        await _todo(run, plan, number)
    return run.output


async def _carry_out(run: Run, messages: list[Json], limit: int, last: bool) -> str:
    """One step. Only the last one's result is the answer, so the others are told as thoughts."""
    silent = run.silent
    run.silent = silent or not last
    try:
        return await until_answer(run, messages, limit)
    finally:
        run.silent = silent


async def _plan(run: Run, before: Sequence[Json]) -> list[str]:
    """The steps. GatewayError where there is no plan, or none that can be read."""
    prompt = fill(run.agent.options.prompts.get("plan", PLAN), question=run.asked.question)
    async with run.phase("plan") as told:
        run.step += 1
        turn = await ask(run, [*before, {"role": "user", "content": prompt}], [], aloud=True)
        try:
            plan = parse(turn.text)
        except PlanUnreadable as error:
            raise NoPlan(str(error)) from None
        told["plan"] = plan
    run.new.append({"role": "assistant", "content": turn.text})
    run.think(numbered(plan) + "\n", "summary")
    run.asked.session["plan"] = {"question": run.asked.question, "steps": plan}
    return plan


class NoPlan(GatewayError):
    """The model gave no plan that can be read."""

    status, code = 502, "plan_unreadable"


async def _todo(run: Run, plan: Sequence[str], done: int) -> None:
    """The plan as the session's list of things to do: one tick for each finished step. An unfinished list of an earlier run is resumed."""
    todos = Todos.from_json(run.asked.session.get("todo_write"))
    if done == 0:
        todos.start(plan, run.id)
    else:
        todos.tick(plan[done - 1], next_up=plan[done] if done < len(plan) else None)
    run.asked.session["todo_write"] = todos.to_json()
    await run.emit("todo.updated", {"todos": todos.to_json()["todos"]})


def numbered(plan: Sequence[str]) -> str:
    return "\n".join(f"{number}. {step}" for number, step in enumerate(plan, start=1))
