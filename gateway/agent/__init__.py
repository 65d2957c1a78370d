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
"""

from gateway.agent.agents import Agents, Facts, build_agents
from gateway.agent.events import Delta, Event
from gateway.agent.live import Elsewhere, Live
from gateway.agent.mcp import Servers
from gateway.agent.orders import Order, answers_message, messages_of, session_id
from gateway.agent.runs import Runs
from gateway.agent.served import Served, shown

__all__ = [
    "Agents",
    "Delta",
    "Elsewhere",
    "Event",
    "Facts",
    "Live",
    "Order",
    "Runs",
    "Served",
    "Servers",
    "answers_message",
    "build_agents",
    "messages_of",
    "session_id",
    "shown",
]
