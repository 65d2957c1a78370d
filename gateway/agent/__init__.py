"""Agents: models that think, call tools and keep what they did in a journal.

events    what happens in a run, in the order in which it happens
run       one run: asks its model, calls its tools, keeps each result; goes on where its journal ends
patterns  simple, react, two_stage, reflection, plan_and_solve: coroutines over a Run
drive     a run from its first turn to its end, whatever the end is
live      a run of this process while it runs, and who listens to it
runs      all of them: begun, taken up again, answered, forked, ended
served    an agent as a model
tools     what an agent can call
memory    what a conversation keeps, and how it stays inside a context
library   all of it for programs: `from gateway.agent import LLM, SimpleAgent`

Each name is loaded when it is first asked for: a server starts with few of them, and without agents needs no more.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gateway.agent.agents import Agents, Facts
    from gateway.agent.build import build_agents
    from gateway.agent.events import Delta, Event
    from gateway.agent.library import (
        LLM,
        Answer,
        ApprovalRequired,
        ConfiguredAgent,
        PatternAgent,
        PendingCall,
        PlanAndSolveAgent,
        Program,
        ReActAgent,
        ReflectionAgent,
        Round,
        SimpleAgent,
        StepResult,
        TwoStageAgent,
    )
    from gateway.agent.live import Elsewhere, Live
    from gateway.agent.mcp import Servers
    from gateway.agent.message import Agent, Config, Message
    from gateway.agent.orders import Order, answers_message, messages_of, session_id
    from gateway.agent.runs import Runs
    from gateway.agent.served import Served, shown
    from gateway.agent.tools.calculator import Calculator
    from gateway.agent.tools.chain import ToolChain
    from gateway.agent.tools.fetch import Fetch
    from gateway.agent.tools.function import tool
    from gateway.agent.tools.places import Attractions, Weather
    from gateway.agent.tools.pool import Pool
    from gateway.agent.tools.registry import Registry
    from gateway.agent.tools.search import WebSearch
    from gateway.agent.tools.thinking import SequentialThinking
    from gateway.agent.tools.todo import TodoWrite
    from gateway.agent.tools.tool import Context, Observation, Tool, ToolParameter
    from gateway.config.agents import AgentLimits, Critic

_WHERE = {
    "gateway.agent.agents": ("Agents", "Facts"),
    "gateway.agent.build": ("build_agents",),
    "gateway.agent.events": ("Delta", "Event"),
    "gateway.agent.live": ("Elsewhere", "Live"),
    "gateway.agent.mcp": ("Servers",),
    "gateway.agent.orders": ("Order", "answers_message", "messages_of", "session_id"),
    "gateway.agent.runs": ("Runs",),
    "gateway.agent.served": ("Served", "shown"),
    "gateway.agent.library": (
        "LLM",
        "Answer",
        "ApprovalRequired",
        "ConfiguredAgent",
        "PatternAgent",
        "PendingCall",
        "PlanAndSolveAgent",
        "Program",
        "ReActAgent",
        "ReflectionAgent",
        "Round",
        "SimpleAgent",
        "StepResult",
        "TwoStageAgent",
    ),
    "gateway.agent.message": ("Agent", "Config", "Message"),
    "gateway.agent.tools.calculator": ("Calculator",),
    "gateway.agent.tools.chain": ("ToolChain",),
    "gateway.agent.tools.function": ("tool",),
    "gateway.agent.tools.pool": ("Pool",),
    "gateway.agent.tools.registry": ("Registry",),
    "gateway.agent.tools.fetch": ("Fetch",),
    "gateway.agent.tools.places": ("Attractions", "Weather"),
    "gateway.agent.tools.search": ("WebSearch",),
    "gateway.agent.tools.thinking": ("SequentialThinking",),
    "gateway.agent.tools.todo": ("TodoWrite",),
    "gateway.agent.tools.tool": ("Context", "Observation", "Tool", "ToolParameter"),
    "gateway.config.agents": ("AgentLimits", "Critic"),
}
"""the public names, and where they are"""

__all__ = [
    "LLM",
    "Agent",
    "AgentLimits",
    "Agents",
    "Answer",
    "ApprovalRequired",
    "Attractions",
    "Calculator",
    "Config",
    "ConfiguredAgent",
    "Context",
    "Critic",
    "Delta",
    "Elsewhere",
    "Event",
    "Facts",
    "Fetch",
    "Live",
    "Message",
    "Observation",
    "Order",
    "PatternAgent",
    "PendingCall",
    "PlanAndSolveAgent",
    "Pool",
    "Program",
    "ReActAgent",
    "ReflectionAgent",
    "Registry",
    "Round",
    "Runs",
    "SequentialThinking",
    "Served",
    "Servers",
    "SimpleAgent",
    "StepResult",
    "TodoWrite",
    "Tool",
    "ToolChain",
    "ToolParameter",
    "TwoStageAgent",
    "Weather",
    "WebSearch",
    "answers_message",
    "build_agents",
    "messages_of",
    "session_id",
    "shown",
    "tool",
]

if not TYPE_CHECKING:  # a type checker knows the names from above, and shall complain about others

    def __getattr__(name: str) -> Any:
        for module, names in _WHERE.items():
            if name in names:
                return getattr(import_module(module), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
