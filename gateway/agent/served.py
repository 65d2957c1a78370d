"""An agent as a model: a chat request becomes a run, its events become the chunks of an answer.

Only shapes that unmodified SDKs accept: the answer in `content`, thoughts and one line for
each tool in `reasoning_content`; `tool_calls` for calls that the client itself must answer,
and nothing else. Who asks for them gets the events too, each in a whole chunk of its own.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gateway.agent.events import Delta, Event
from gateway.agent.orders import Order, read_order
from gateway.agent.runs import Runs
from gateway.agent.wording import short
from gateway.chat import Accumulator, Chunk, Json, Request, dumps
from gateway.dialects import Writer, dialect
from gateway.errors import GatewayError, InvalidRequest

if TYPE_CHECKING:
    from gateway.agent.live import Elsewhere, Live

ENDPOINTS = ("chat", "responses", "messages")
"""what agents are served on"""
_THOUGHTS = frozenset(("trace", "plan", "feedback", "issue"))
"""what a phase tells of what was thought in it"""


class Served:
    """The Model under the name `agent/<name>`."""

    def __init__(self, name: str, runs: Runs) -> None:
        self.name = name
        self._runs = runs

    async def generate(self, request: Request) -> AsyncGenerator[Chunk]:
        """The chunks of a new run, or of one that waited for what this request brings. Its first chunk comes when the run has started."""
        if request.endpoint not in ENDPOINTS:
            raise InvalidRequest(f"agents are served on chat completions, Responses and Messages, not on {request.endpoint}", param="model")
        body = request.body.fresh()
        chat = body if request.dialect == "chat" else dialect(request.dialect).request_to_chat(request.body.fresh())
        order = read_order(self.name, chat, request)
        live = await self._runs.begin(order)
        record = request.record
        record.run_id, record.session = live.id, order.session_id
        teller = Teller(live, order, request.model)
        try:
            if request.stream:
                async for chunk in self._streamed(request, body, live, teller):
                    yield chunk
            else:
                async with aclosing(live.listen()) as items:
                    async for item in items:
                        teller.take(item)
                yield self._whole(request, body, teller, live)
        finally:
            await live.leave()
            live.account(record)

    async def _streamed(self, request: Request, body: Json, live: Live | Elsewhere, teller: Teller) -> AsyncGenerator[Chunk]:
        writer: Writer | None = None if request.dialect == "chat" else dialect(request.dialect).Writer(body)
        request.record.fail = writer.fail if writer is not None else None

        def chunks(values: Sequence[Json]) -> list[Chunk]:
            if writer is None:
                return [Chunk(dumps(value), content=True, json=value) for value in values]
            return [Chunk(dumps(data), event=name, content=True) for value in values for name, data in writer.feed(value)]

        async with aclosing(live.listen()) as items:  # from here on, not from the first step on: nothing is missed
            for chunk in chunks([teller.chunk({"role": "assistant", "content": ""})]):
                yield chunk
            async for item in items:
                for chunk in chunks(teller.take(item)):
                    yield chunk
        try:
            teller.end(live)
        except GatewayError as error:  # what a provider's own stream would have ended with is none of this client's business
            error.events = () if writer is None else writer.fail(error.body())
            raise
        options = body.get("stream_options")
        counted = writer is not None or (isinstance(options, dict) and options.get("include_usage") is True)
        for chunk in chunks(teller.ending(counted)):
            yield chunk
        for name, data in writer.finish() if writer is not None else ():
            yield Chunk(dumps(data), event=name, content=True)

    @staticmethod
    def _whole(request: Request, body: Json, teller: Teller, live: Live | Elsewhere) -> Chunk:
        teller.end(live)
        value = teller.completion()
        if request.dialect != "chat":
            value = dialect(request.dialect).answer_from_chat(value, body)
        return Chunk(dumps(value), whole=True, content=True, json=value)


class Teller:
    """Events and deltas -> chat chunks, as the client may see them."""

    def __init__(self, live: Live | Elsewhere, order: Order, model: str) -> None:
        self._live = live
        self._rich = order.rich
        self._visibility = live.agent.thinking.visibility
        self._frame: Json = {"id": f"chatcmpl-{live.id}", "object": "chat.completion.chunk", "created": int(time.time()), "model": model}
        self._all = Accumulator()
        self._calls: list[Json] = []
        self._finish = "stop"

    def chunk(self, delta: Json, finish: str | None = None, **more: Any) -> Json:
        value = {**self._frame, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}
        if delta or finish:
            self._all.add(value)
        return value

    def take(self, item: Event | Delta) -> list[Json]:
        if isinstance(item, Delta):
            return self._delta(item)
        out: list[Json] = []
        line = told(item) if self._visibility != "hidden" and item.inner is None else ""
        if line:
            out.append(self.chunk({"reasoning_content": line + "\n"}))
        if self._rich and (seen := shown(item, self._visibility)) is not None:
            out.append(self.chunk({}, x_agent=seen.public()))
        return out

    def _delta(self, delta: Delta) -> list[Json]:
        if delta.kind == "content":
            return [self.chunk({"content": delta.text})]
        wanted = {"full": "reasoning", "summary": "summary"}.get(self._visibility)
        return [self.chunk({"reasoning_content": delta.text})] if delta.kind == wanted else []

    def end(self, live: Live | Elsewhere) -> None:
        """How the run ended. Raises what it failed with, where there is nothing to tell."""
        row = live.row
        if row.status == "waiting":
            self._calls = [
                {"index": index, "id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": as_text(call["arguments"])}}
                for index, call in enumerate((row.waiting or {}).get("calls", ()))
            ]
            self._finish = "tool_calls"
        elif row.status in ("failed", "cancelled") or (row.status == "incomplete" and not row.output):
            raise live.failure()
        elif row.status == "incomplete":
            self._finish = "length"
        else:
            self._finish = live.finish or "stop"
        said = self._all.completion()["choices"]
        content = said[0]["message"].get("content") if said else None
        if row.status == "incomplete" and not content:
            self._rest = row.output
        else:
            self._rest = ""

    def ending(self, counted: bool) -> list[Json]:
        """The last chunks of a stream; `counted`: with the one that holds the usage, and no choice."""
        out = [self.chunk({"content": self._rest})] if self._rest else []
        if self._calls:
            out.append(self.chunk({"tool_calls": self._calls}))
        out.append(self.chunk({}, self._finish))
        if counted:
            out.append({**self._frame, "choices": [], "usage": self._live.usage})
        return out

    def completion(self) -> Json:
        """The plain answer."""
        self.ending(counted=False)
        whole = self._all.completion()
        choice = whole["choices"][0]
        live = self._live
        return {
            "id": self._frame["id"],
            "object": "chat.completion",
            "created": self._frame["created"],
            "model": self._frame["model"],
            "choices": [choice],
            "usage": live.usage,
            "x_agent": {"run_id": live.id, "steps": live.row.steps, "cost": live.row.cost},
        }


def shown(event: Event, visibility: str) -> Event | None:
    """An event as a client may see it; None: not at all. With `hidden` the thoughts are nobody's business."""
    if visibility != "hidden":
        return event
    if event.type == "thought" or (event.type.startswith("tool.") and event.data.get("name") == "sequential_thinking"):
        return None
    if event.type.startswith("phase.") and not _THOUGHTS.isdisjoint(event.data):
        return replace(event, data={name: value for name, value in event.data.items() if name not in _THOUGHTS})
    return event


def told(event: Event) -> str:
    """One line for people: what a tool is asked and how it went. Empty: nothing to say."""
    data = event.data
    if event.type == "thought" and event.key.count("#"):  # of the thinking tool; a pattern's own thoughts come as deltas
        return short(str(data.get("thought", "")))
    name = str(data.get("name", ""))
    if name in ("sequential_thinking", "todo_write"):
        return ""
    if event.type == "tool.started":
        return f"Using {name}: {short(as_text(data.get('arguments')), 160)}"
    if event.type == "tool.finished":
        return f"{name} {'answered' if data.get('ok') else 'failed'}: {short(str(data.get('output', '')), 160)}"
    if event.type == "approval.required":
        return f"Waiting for approval of {data.get('tool')}: {data.get('reason')}"
    if event.type == "approval.resolved":
        return f"{data.get('tool')} was {'approved' if data.get('approved') else 'refused'}"
    return ""


def as_text(value: Any) -> str:
    """Arguments as the JSON text that stands in a tool call."""
    return value if isinstance(value, str) else dumps(value).decode()
