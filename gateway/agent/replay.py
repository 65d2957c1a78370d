"""A model that answers with what another run's model said: offline, at no cost, the same each time.

For tests and evaluation: record a run once, change a prompt, a tool or the code, and go
through it again. Its turns come in the order in which they were recorded.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any

from gateway.agent.events import Event
from gateway.chat import Chunk, Json, Request, dumps
from gateway.errors import GatewayError


class NothingRecorded(GatewayError):
    """The run asks for more turns than were recorded."""

    status, code = 502, "nothing_recorded"


class Recorded:
    """A Model over the turns of a run. `asked` are the request bodies that it was given."""

    def __init__(self, turns: Iterable[Mapping[str, Any]]) -> None:
        """`turns`: each `{"message", "finish", "usage", "cost"}`, as a run's `usage` events keep them."""
        self.turns = [dict(turn) for turn in turns]
        self.asked: list[Json] = []

    @classmethod
    def of(cls, events: Iterable[Event | Mapping[str, Any]]) -> Recorded:
        """From the events of a run: the journal's, or `events` of `GET /admin/runs/{id}`."""
        states = [(event.type, event.state) if isinstance(event, Event) else (event.get("type"), event.get("state")) for event in events]
        return cls(state for type, state in states if type == "usage" and state)

    async def generate(self, request: Request) -> AsyncGenerator[Chunk]:
        """The next recorded turn, as the chunks of a stream. NothingRecorded when there is none left."""
        self.asked.append(request.body.fresh())
        if len(self.asked) > len(self.turns):
            raise NothingRecorded(f"the recording has {len(self.turns)} turns, and the run asks for one more")
        turn = self.turns[len(self.asked) - 1]
        record = request.record
        record.usage, record.cost, record.provider, record.target_model = turn.get("usage"), turn.get("cost"), turn.get("provider"), turn.get("model")
        message = {name: value for name, value in turn["message"].items() if value is not None and name != "role"}
        calls = [{"index": index, **call} for index, call in enumerate(message.pop("tool_calls", ()))]
        yield _chunk(request.model, {"role": "assistant", **message, **({"tool_calls": calls} if calls else {})})
        yield _chunk(request.model, {}, turn.get("finish") or "stop")


def _chunk(model: str, delta: Json, finish: str | None = None) -> Chunk:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    value = {"id": "chatcmpl-recorded", "object": "chat.completion.chunk", "created": 0, "model": model, "choices": [choice]}
    return Chunk(dumps(value), content=True, json=value)
