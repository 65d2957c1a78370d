"""What models write instead of calling tools: read leniently, and no invented observation taken for a real one.

react      Thought, Action, Finish
markers    [TOOL_CALL:name:params], and calls written as tags or JSON
plans      a plan as a list of steps, a critic's verdict
"""

from gateway.agent.protocols.markers import Written, tool_calls, written_calls
from gateway.agent.protocols.plans import PlanUnreadable, Verdict, plan, verdict
from gateway.agent.protocols.react import ReactTurn, react

__all__ = ["PlanUnreadable", "ReactTurn", "Verdict", "Written", "plan", "react", "tool_calls", "verdict", "written_calls"]
