"""How a run ends, or stops to wait, before its pattern is through."""

from __future__ import annotations

from gateway.chat import Json
from gateway.errors import Conflict, GatewayError

REASONS = ("steps", "tokens", "cost", "wall", "stuck", "empty", "plan_rejected", "outage", "crash")
"""why a run is incomplete"""


class Stopped(Exception):
    """A limit was reached, or nothing better can come: the run ends with the best answer so far. `reason` is one of REASONS."""

    def __init__(self, reason: str, message: str = "", error: GatewayError | None = None) -> None:
        super().__init__(message or reason)
        self.reason = reason
        self.error = error


class Paused(Exception):
    """The run waits for somebody outside; nothing of it stays in memory.

    calls  what is waited for: `{"id", "kind": "client" | "approval", "name", "arguments", "key", "timeout"}`, the id being the one
           under which the answer comes
    """

    def __init__(self, calls: list[Json], expires: float | None = None) -> None:
        super().__init__("the run waits")
        self.calls = calls
        self.expires = expires


class RunNotWaiting(Conflict):
    """An answer to a call that no run waits for: unknown, answered before, or too late."""

    code = "run_not_waiting"


class RunBusy(Conflict):
    """The session has a run already."""

    code = "run_busy"
