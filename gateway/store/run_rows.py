"""What the store keeps of agent runs: runs, their events, sessions."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from gateway.chat import dumps
from gateway.store.rows import Json

OVER = ("completed", "incomplete", "failed", "cancelled")
"""the states of a run that is over"""


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run of an agent. Moments are unix seconds by the database's clock.

    tenant       the id of the key that started it; "": none. Nobody else may see the run
    session      the key of its session (`session_key`), `session_id` the client's name for it; None: it has none
    status       queued | running | waiting | completed | incomplete | failed | cancelled
    settings     what it was started with, so that it goes on the same way elsewhere
    detached     it goes on elsewhere when its process dies
    waiting      what it waits for; `wake_at`: when it goes on without
    owner        the process that runs it until `lease_until`, `epoch` how often a process took it: an older one may write no more
    attempts     how often it was left by a process that died
    last_seq     of its last event
    cancel       somebody wants it to end
    nr           rises with every run
    """

    id: str
    agent: str
    tenant: str = ""
    key_name: str = ""
    session: str | None = None
    session_id: str | None = None
    status: str = "queued"
    reason: str | None = None
    input: Any = field(default="", repr=False)
    output: str = field(default="", repr=False)
    reasoning: str = field(default="", repr=False)
    error: Json | None = None
    usage: Json = field(default_factory=dict)
    cost: float | None = None
    steps: int = 0
    background: bool = False
    detached: bool = False
    idempotency_key: str | None = None
    request_hash: str = ""
    settings: Json = field(default_factory=dict, repr=False)
    parent_run: str | None = None
    forked_from: str | None = None
    forked_seq: int | None = None
    metadata: Json = field(default_factory=dict)
    waiting: Json | None = None
    wake_at: float | None = None
    created_at: float = 0.0
    finished_at: float | None = None
    owner: str | None = None
    epoch: int = 0
    lease_until: float | None = None
    attempts: int = 0
    last_seq: int = 0
    cancel: bool = False
    nr: int = 0

    @property
    def over(self) -> bool:
        return self.status in OVER

    def public(self) -> Json:
        """The run object of the runs API."""
        return {
            "id": self.id,
            "object": "run",
            "agent": self.agent,
            "session_id": self.session_id,
            "status": self.status,
            "output": self.output,
            "reasoning": self.reasoning,
            "reason": self.reason,
            "usage": self.usage,
            "cost": self.cost,
            "steps": self.steps,
            "created_at": int(self.created_at),
            "finished_at": None if self.finished_at is None else int(self.finished_at),
            "error": self.error,
            "metadata": self.metadata,
        }


class EventRow(NamedTuple):
    """One event of a run as it is kept; `data`, `state` and `origin` (whose it is inside the run) are JSON texts, `epoch` says whose write it was."""

    seq: int
    type: str
    step: int
    data: str
    key: str
    state: str | None = None
    origin: str | None = None
    time: float = 0.0
    epoch: int = 0


class Wait(NamedTuple):
    """A call under whose id a run waits for somebody's answer, until `expires`; None: for ever."""

    call_id: str
    expires: float | None = None


class Due(NamedTuple):
    """A run that somebody should take, and why: its status. `attempts` is how often it was left before."""

    id: str
    status: str
    detached: bool
    attempts: int


@dataclass(frozen=True, slots=True)
class RunPage:
    """Runs, the newest first. `next` is the `before` of the page that follows; None: this was the last."""

    rows: tuple[RunRow, ...]
    next: int | None = None


@dataclass(frozen=True, slots=True)
class SessionRow:
    """What outlives the runs of one conversation. `run_id` is the run that has it now, `version` counts the writes."""

    key: str
    session_id: str
    tenant: str = ""
    agent: str = ""
    state: Json = field(default_factory=dict, repr=False)
    version: int = 0
    run_id: str | None = None
    created_at: float = 0.0
    updated_at: float = 0.0


def session_key(tenant: str, agent: str, session_id: str) -> str:
    """Under which a session is kept: nobody reaches another key's, whatever name he gives."""
    return sha256(dumps([tenant, agent, session_id.encode(errors="surrogatepass").hex()])).hexdigest()
