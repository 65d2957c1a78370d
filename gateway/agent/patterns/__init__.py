"""How an agent works: one coroutine per pattern, over a Run. It gives the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from gateway.agent.patterns.plan_and_solve import plan_and_solve
from gateway.agent.patterns.react import react
from gateway.agent.patterns.reflection import reflection
from gateway.agent.patterns.simple import simple
from gateway.agent.patterns.two_stage import two_stage
from gateway.agent.run import Run

PATTERNS: Mapping[str, Callable[[Run], Awaitable[str]]] = {
    "simple": simple,
    "react": react,
    "two_stage": two_stage,
    "reflection": reflection,
    "plan_and_solve": plan_and_solve,
}

__all__ = ["PATTERNS"]
