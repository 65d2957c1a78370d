"""The runtime of agents from Python: over an address and a key, over any Model, or over a config (H1 to H23).

llm      a model to ask
agents   the patterns as classes
program  the agents of a config
portal   how code without an event loop calls all this
"""

from gateway.agent.library.agents import PlanAndSolveAgent, ReActAgent, ReflectionAgent, Round, SimpleAgent, StepResult, TwoStageAgent
from gateway.agent.library.base import PatternAgent
from gateway.agent.library.llm import LLM
from gateway.agent.library.program import ConfiguredAgent, Program
from gateway.agent.library.work import Answer, ApprovalRequired, PendingCall

__all__ = [
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
]
