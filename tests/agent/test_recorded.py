"""A run gone through again offline, from what its model said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agents_yaml import AGENTS, asked, says
from running import serving, yaml
from scripted import Kept, Scripted, agent, calls, run
from upstream_double import Upstream

from gateway.agent.replay import Recorded

PATTERNS: dict[str, list[Any]] = {
    "simple": [calls(("find", {"q": "x"}), reasoning_content="hm"), "done"],
    "react": ["Thought: look\nAction: find[x]", "Thought: ok\nFinish[done]"],
    "two_stage": ["I look first", calls(("find", {"q": "x"})), "then I answer", "done"],
    "reflection": ["a", "b", "c", "d", "done"],
    "plan_and_solve": ['```python\n["one", "two"]\n```', "1", "done"],
}


def find(q: str) -> str:
    """Find it."""
    return f"found {q}"


@pytest.mark.parametrize("pattern", PATTERNS)
async def test_a_recorded_run_gives_the_same_answer_without_a_model(pattern: str) -> None:
    tools = [find] if pattern in ("simple", "react", "two_stage") else []
    model = Scripted(*PATTERNS[pattern])
    first, _, log = await run(agent(pattern), model, tools)
    recorded = Recorded.of(log.events)

    again, outcome, _ = await run(agent(pattern), recorded, tools)  # type: ignore[arg-type]

    assert (again.output, outcome.status) == (first.output, "completed")
    assert recorded.asked == model.asked
    assert again.spent.usage == first.spent.usage


async def test_a_run_that_asks_for_more_than_was_recorded_says_so() -> None:
    _, _, log = await run(agent(), Scripted("done"))
    recorded = Recorded.of(log.events)

    await run(agent(), recorded)  # type: ignore[arg-type]
    _, outcome, _ = await run(agent(), recorded)  # type: ignore[arg-type]

    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.code == "nothing_recorded"


async def test_a_run_of_the_gateway_is_a_recording(a: Upstream) -> None:
    says(a, ("calculator", '{"expression": "2+3"}'), "It is 5.")
    async with serving(yaml({"a": a.url}, more=AGENTS)) as world:
        answer = await world.chat(asked("calc"))
        told = (await world.client.get(f"/admin/runs/{answer.headers['x-thinkgate-run-id']}")).json()
    recorded = Recorded.of(json.loads(json.dumps(told["events"])))

    again, _, log = await run(agent(system="Another prompt."), recorded, [], log=Kept())  # type: ignore[arg-type]

    assert again.output == "It is 5."
    assert "no tool" in log.of("tool.finished")[0].data["output"], "another set of tools shows"
