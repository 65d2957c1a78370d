"""A session: the history and the tools' values that outlive a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.agent.memory.history import LIMIT, History
from gateway.agent.run import Run
from gateway.chat import Json
from gateway.store import SessionRow

_NAMES = {"sequential_thinking": "thoughts", "todo_write": "todos", "plan": "plan"}
"""tools and patterns whose values have a place of their own in the history"""


class Session:
    """What one run reads of its session, and leaves in it. `row` None: the session is new."""

    def __init__(self, row: SessionRow | None, limit: int = LIMIT) -> None:
        state = row.state if row is not None else {}
        self._history = History.from_json(state, limit=limit)
        self._others: dict[str, Any] = dict(state.get("values") or {}) if isinstance(state, dict) else {}

    def hear(self, messages: Sequence[Json], new: bool = False) -> list[Json]:
        """Take in what a client sent: new messages (`new`: surely), or a whole history that may differ. Gives those that are new."""
        talk = [message for message in messages if message.get("role") not in ("system", "developer")]
        if new:
            self._history = self._history.add(talk)
            return talk
        taken = self._history.take(talk)
        if taken.forked_at is not None:
            self._history = self._history.fork(taken.forked_at)
        self._history = self._history.add(taken.new)
        return list(taken.new)

    def context(self, messages: Sequence[Json], window: int | None) -> list[Json]:
        """All messages of the next turn; the system's are the request's own."""
        system = [message for message in messages if message.get("role") in ("system", "developer")]
        return [*system, *self._history.context(window=window)]

    def values(self) -> dict[str, Any]:
        """What tools kept, by tool name."""
        own = {name: getattr(self._history, field) for name, field in _NAMES.items()}
        return {**self._others, **{name: value for name, value in own.items() if value is not None}}

    def after(self, run: Run) -> Json:
        """The state that the run leaves."""
        history = self._history
        if run.summary is not None:
            history = history.compacted(*run.summary)
        made = run.new if run.new and run.new[-1].get("role") == "assistant" else [*run.new, {"role": "assistant", "content": run.output}]
        history = history.add_run(made if run.output or run.new else ())
        state = history.to_json()
        values = run.asked.session
        state |= {field: values[name] for name, field in _NAMES.items() if values.get(name) is not None}
        others = {name: value for name, value in values.items() if name not in _NAMES}
        return {**state, **({"values": others} if others else {})}

    def public(self) -> Json:
        """What the owner of a session is shown."""
        history = self._history
        told: Json = {"messages": history.messages, "summary": history.summary or None}
        return {**told, "thoughts": history.thoughts, "todos": (history.todos or {}).get("todos", []), "plan": history.plan}
