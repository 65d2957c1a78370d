"""One run of a library agent: the same Run and the same end as a served one, its journal in memory."""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.agent.drive import Outcome, carry_out
from gateway.agent.endings import Paused
from gateway.agent.events import Delta, Event
from gateway.agent.run import Run
from gateway.agent.tools.threads import in_thread
from gateway.chat import Json
from gateway.errors import GatewayError


class Answer(str):
    """The text of an answer, which also knows how it came about.

    run_id     the run's id
    status     `completed`, or `incomplete`: the best that there was
    reason     why it is incomplete: steps, tokens, cost, wall, stuck, empty, plan_rejected, outage
    reasoning  the thoughts that may be seen
    usage      tokens of all calls of the model
    cost       USD, None where no price is known
    steps      turns of the model
    """

    run_id: str
    status: str
    reason: str | None
    reasoning: str
    usage: Json
    cost: float | None
    steps: int

    @classmethod
    def of(
        cls,
        text: str,
        run_id: str,
        status: str,
        reason: str | None = None,
        reasoning: str = "",
        usage: Json | None = None,
        cost: float | None = None,
        steps: int = 0,
    ) -> Answer:
        made = cls(text)
        made.run_id, made.status, made.reason, made.reasoning = run_id, status, reason, reasoning
        made.usage, made.cost, made.steps = dict(usage or {}), cost, steps
        return made


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call that a person must approve before it is made. `tool` is `plan` for a plan, which stands in `arguments["plan"]`."""

    id: str
    tool: str
    arguments: Any
    reason: str
    run_id: str

    @classmethod
    def of(cls, call: Json) -> PendingCall:
        """From what a run waits for."""
        inside = call["arguments"]
        return cls(call["id"], inside["tool"], inside["arguments"], inside["reason"], inside["run_id"])


Verdict = bool | str | Mapping[str, Any]
Approve = Callable[[PendingCall], Verdict | Awaitable[Verdict]]
"""Says what becomes of a call: True, False, a text (why it is refused), or {"approved", "arguments", "reason"}.

It may be async; a plain function is called in a thread, so that it can wait for a person.
"""


class ApprovalRequired(GatewayError):
    """A run waits for a person, and there is no `approve` that could be asked. `calls` is what it waits for."""

    status, code = 409, "approval_required"

    def __init__(self, run_id: str, calls: Sequence[PendingCall]) -> None:
        super().__init__(f"run {run_id} waits for approval of {', '.join(call.tool for call in calls)}")
        self.run_id = run_id
        self.calls = tuple(calls)


class RunUnfinished(GatewayError):
    """A run ended without any answer."""

    status, code = 502, "run_failed"


async def verdict(approve: Approve, call: PendingCall) -> Json:
    """What a program's callback says of a call, as the journal keeps it. TypeError for anything else."""
    said = approve(call) if inspect.iscoroutinefunction(approve) else await in_thread(approve, call)
    if inspect.isawaitable(said):
        said = await said
    if isinstance(said, bool):
        return {"approved": said}
    if isinstance(said, str):
        return {"approved": False, "reason": said}
    if isinstance(said, Mapping) and isinstance(said.get("approved"), bool):
        return dict(said)
    raise TypeError('approve gives True, False, a text, or {"approved": ..., "arguments": ..., "reason": ...}')


class Work:
    """A run under way, and its journal. `begin` makes its Run over what the journal knows; `done` is told how it ended, before the last event is."""

    def __init__(self, begin: Callable[[Work], Run], done: Callable[[Work], None], show: Callable[[Event | Delta], None], approve: Approve | None) -> None:
        self.id = f"run_{secrets.token_hex(12)}"
        self.known: list[Event] = []
        self.run: Run
        self.outcome = Outcome("failed")
        self._begin = begin
        self._done = done
        self._told = show
        self._approve = approve
        self._items: asyncio.Queue[Event | Delta | None] = asyncio.Queue()

    # ---- Log ----

    async def append(self, events: Sequence[Event], *, durable: bool = False) -> None:
        self.known += events

    def show(self, item: Event | Delta) -> None:
        self._told(item)
        self._items.put_nowait(item)

    # ---- the run ----

    async def items(self) -> AsyncGenerator[Event | Delta]:
        """Everything that happens, to the end. Whoever stops early ends the run. Raises what leaves nothing to show."""
        task = asyncio.create_task(self._through(), name=f"run {self.id}")
        task.add_done_callback(lambda _: self._items.put_nowait(None))
        try:
            while (item := await self._items.get()) is not None:
                yield item
            task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    async def _through(self) -> None:
        while True:
            self.run = self._begin(self)
            await self.run.emit("run.started", {"agent": self.run.agent.name, "session_id": None}, key="start")
            try:
                self.outcome = await carry_out(self.run)
                break
            except Paused as paused:
                await self._ask(paused)
        outcome = self.outcome
        if outcome.status != "failed":
            self._done(self)
        await self.run.emit("run.finished", {"status": outcome.status, "reason": outcome.reason, "output": self.run.output}, key="end")
        if outcome.status == "failed":
            raise outcome.error or RunUnfinished("the run ended without an answer")

    async def _ask(self, paused: Paused) -> None:
        """Ask whoever decides; the run is gone through again then, and goes on where it stopped."""
        calls = [PendingCall.of(call) for call in paused.calls]
        if self._approve is None:
            raise ApprovalRequired(self.id, calls)
        for wait, call in zip(paused.calls, calls, strict=True):
            said = {"id": call.id, "tool": call.tool, **await verdict(self._approve, call)}
            event = Event(self.id, len(self.known) + 1, "approval.resolved", wait["step"], said, wait["key"], agent=wait["agent"])
            self.known.append(event)
            self.show(event)

    def answer(self) -> Answer:
        """What `run` gives."""
        run, outcome = self.run, self.outcome
        return Answer.of(run.output, self.id, outcome.status, outcome.reason, run.told(), run.spent.usage, run.spent.cost, run.step)

    def rounds(self, type: str) -> list[Event]:
        """The journal's events of this type."""
        return [event for event in self.known if event.type == type]
