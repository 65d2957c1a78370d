"""What happens in a run. The journal keeps the events, the state of a run is what they add up to."""

from __future__ import annotations

import msgspec

from gateway.chat import Json

TYPES = (
    "run.started",
    "run.finished",
    "phase.started",
    "phase.finished",
    "thought",
    "tool.started",
    "tool.finished",
    "todo.updated",
    "approval.required",
    "approval.resolved",
    "attempt",
    "fallback",
    "usage",
    "context.compacted",
)


class Event(msgspec.Struct, frozen=True):
    """One entry of a run's journal.

    seq     1 for the first event of its run, without gaps
    type    one of TYPES
    step    the turn of the model in which it happened, from 1; 0 before the first
    data    what anybody who may see the run may see
    key     tells it from the other events of its type, the same each time the run is gone through again
    state   what the run needs of it when it is gone through again, seen by nobody else: a model's turn, a tool's result
    time    unix seconds
    inner   the run of a sub-agent in which it happened; its events stand in the journal of the whole.
            `parent` is the run that asked for that one, `agent` whose run it is
    """

    run_id: str
    seq: int
    type: str
    step: int = 0
    data: Json = {}
    key: str = ""
    state: Json | None = None
    time: float = 0.0
    agent: str = ""
    inner: str | None = None
    parent: str | None = None

    def public(self) -> Json:
        """`x_agent` of a chunk, and the data of an event of the runs API."""
        out: Json = {"v": 1, "run_id": self.inner or self.run_id, "seq": self.seq, "type": self.type, "step": self.step, "data": self.data}
        if self.parent is not None:
            out |= {"agent": self.agent, "parent_run_id": self.parent}
        return out


class Delta(msgspec.Struct, frozen=True):
    """A piece of text while it comes. Only who listens now gets it, the journal keeps the whole.

    kind  `content`: of the answer; `reasoning`: of a thought; `summary`: a thought in short, when it is whole
    """

    kind: str
    text: str
