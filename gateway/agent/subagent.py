"""Another agent as a tool: it gets a task, runs under its own limits, and its answer is the observation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from gateway.agent.drive import carry_out
from gateway.agent.endings import Paused
from gateway.agent.run import Asked, Run
from gateway.agent.tools.tool import Context, Observation, Pending, Tool
from gateway.chat import Json

if TYPE_CHECKING:
    from gateway.agent.agents import Parts

DEEPEST = 4
"""agents inside agents"""


class SubAgent(Tool):
    """`agent:NAME`. Its events stand in the journal of the run that asked, marked as its own."""

    own_limits: ClassVar[bool] = True

    def __init__(self, name: str, about: str, find: Callable[[str], Parts]) -> None:
        self._agent = name
        self._find = find
        self.name = f"agent_{name}".replace(".", "_").replace("/", "_")
        first = about.strip().split("\n", 1)[0][:300]
        self.description = f"Gives a task to the agent {name} and returns its answer. {first}".strip()

    @property
    def parameters(self) -> Json:
        task = {"type": "string", "description": "the whole task, with everything that the agent must know; it sees nothing else"}
        return {"type": "object", "properties": {"task": task}, "required": ["task"]}

    async def call(self, arguments: Json, context: Context) -> Observation:
        parent = context.run
        if not isinstance(parent, Run):
            return Observation("an agent can be asked inside a run only", ok=False)
        depth, above = 1, parent.parent
        while above is not None:
            depth, above = depth + 1, above.parent
        if depth >= DEEPEST:
            return Observation(f"agents can ask agents {DEEPEST} deep, and this is the last", ok=False)
        parts = self._find(self._agent)
        asked = Asked(context=({"role": "user", "content": str(arguments["task"])},), tenant=parent.asked.tenant, key=parent.asked.key)
        tools, _ = await parts.tools()
        run = Run(f"{parent.id}/{context.call_id}", parts.spec, parts.model, tools, asked, parent.log, parent=parent)
        facts = parts.facts()
        run.reasons_natively, run.window, run.prices = facts.reasons, facts.window, facts.prices
        await run.emit("run.started", {"agent": self._agent, "task": asked.question}, key="run")
        try:
            outcome = await carry_out(run)
        except Paused as paused:
            return Pending("waits", ok=False, waits=paused.calls)
        told = {"status": outcome.status, "reason": outcome.reason, "output": run.output}
        await run.emit("run.finished", told, key="run")
        if outcome.status == "failed":
            return Observation(f"The agent {self._agent} failed: {outcome.error.message if outcome.error else 'no reason known'}", ok=False)
        note = f"(incomplete: {outcome.reason})\n" if outcome.status == "incomplete" else ""
        return Observation(note + (run.output or "(no answer)"))
