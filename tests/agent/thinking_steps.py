"""Steps for the thinking tool, and what came of them."""

from __future__ import annotations

import json
from typing import Any

from gateway.agent.tools import Context
from gateway.agent.tools.thinking import SequentialThinking, Thoughts

Session = dict[str, Any]


def step(number: Any = 1, total: Any = 3, needed: Any = True, thought: Any = "hm", **more: Any) -> dict[str, Any]:
    return {"thought": thought, "thought_number": number, "total_thoughts": total, "next_thought_needed": needed, **more}


def accepted(thoughts: Thoughts, *steps: dict[str, Any]) -> dict[str, Any]:
    """The data of the last of them; all must be accepted."""
    data: dict[str, Any] = {}
    for one in steps:
        result = thoughts.add(one)
        assert result["success"], result
        data = result["data"]
    return data


def refused(arguments: object, thoughts: Thoughts | None = None) -> str:
    """The error of a refusal that left no trace."""
    thoughts = thoughts or Thoughts()
    before = thoughts.history
    result = thoughts.add(arguments)
    assert result["success"] is False
    assert set(result) == {"success", "output", "data", "error"}
    assert thoughts.history == before
    return str(result["error"])


async def call(tool: SequentialThinking, session: Session, arguments: Any) -> dict[str, Any]:
    observation = await tool.call(arguments, Context(session=session))
    result: dict[str, Any] = json.loads(observation.text)
    assert observation.ok == result["success"]
    return result


def texts(thoughts: Thoughts) -> list[str]:
    return [one.thought for one in thoughts.in_force()]
