"""Configs with agents over the scripted double of a provider, and what the double says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from upstream_double import Upstream, completion, tool_call

AGENTS = """
agents:
  plain: {pattern: simple, model: m}
  calc: {pattern: simple, model: m, tools: [calculator]}
  ask: {pattern: simple, model: m, tools: [calculator], approval: {tools: [calculator], timeout: 1m}}
  hurry: {pattern: simple, model: m, tools: [calculator], approval: {tools: [calculator], timeout: 300ms}}
  quiet: {pattern: two_stage, model: m, tools: [calculator, sequential_thinking], thinking: {visibility: hidden}}
  open: {pattern: two_stage, model: m, tools: [calculator, sequential_thinking], thinking: {visibility: full}}
  thinker: {pattern: simple, model: m, tools: [sequential_thinking, todo_write], limits: {steps: 6}}
  boss: {pattern: simple, model: m, tools: ["agent:calc"]}
  stays: {pattern: simple, model: m, on_disconnect: detach}
"""

KEYS = """
keys:
  one: {key: "key-number-one-0123456789"}
  two: {key: "key-number-two-0123456789", models: ["agent/plain"]}
"""


def says(upstream: Upstream, *turns: Any) -> None:
    """The provider's answers, one a request: a text, or (tool, arguments as JSON text) for a call."""
    for number, turn in enumerate(turns):
        if isinstance(turn, str):
            upstream.reply(completion(turn))
        else:
            calls = [turn] if isinstance(turn[0], str) else list(turn)
            upstream.reply(completion(None, calls=[tool_call(name, text, id=f"c{number}_{i}", index=i) for i, (name, text) in enumerate(calls)]))


def asked(model: str, text: str = "What is 2+3?", **more: Any) -> dict[str, Any]:
    return {"model": f"agent/{model}", "messages": [{"role": "user", "content": text}], **more}


async def until(condition: Callable[[], bool | Awaitable[bool]], seconds: float = 10.0) -> None:
    """Wait for something that nobody tells of."""
    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.01)
