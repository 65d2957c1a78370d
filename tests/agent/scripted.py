"""A model whose turns are data, and a journal in a list: what the tests of agents run on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec

from gateway import config
from gateway.agent.drive import Outcome, carry_out
from gateway.agent.events import Delta, Event
from gateway.agent.run import Asked, Run
from gateway.agent.tools.registry import Registry
from gateway.chat import Chunk, Json, Request, dumps
from gateway.config.agents import AgentLimits, AgentOptions, Approval, Critic, Thinking
from gateway.errors import GatewayError

Turns = Sequence[Any]


def calls(*made: tuple[str, str | Json] | tuple[str, str | Json, str], text: str | None = None, **fields: Any) -> Json:
    """A turn that calls tools: (name, arguments) or (name, arguments, id) each; arguments may be a raw text."""
    entries = [
        {"id": (call[2] if len(call) > 2 else f"c{index}"), "type": "function", "function": {"name": call[0], "arguments": _text(call[1])}}
        for index, call in enumerate(made)
    ]
    return {"content": text, "tool_calls": entries, **fields}


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else dumps(arguments).decode()


class Scripted:
    """A Model. A turn is a text, a message, an error to raise, or a function of the request's body that gives one of these.

    `asked` holds the bodies that it got. The last turn is repeated when the script is used up, where `repeats`.
    """

    def __init__(self, *turns: Any, repeats: bool = False, price: float | None = 0.001) -> None:
        self.turns = list(turns)
        self.asked: list[Json] = []
        self._repeats = repeats
        self._price = price

    async def generate(self, request: Request) -> AsyncGenerator[Chunk]:
        body = request.body.fresh()
        self.asked.append(body)
        number = len(self.asked) - 1
        if number >= len(self.turns):
            assert self._repeats, f"the model is asked for turn {number + 1}, the script has {len(self.turns)}"
            number = -1
        turn = self.turns[number]
        if callable(turn):
            turn = turn(body)
        if isinstance(turn, BaseException):
            raise turn
        message: Json = {"content": turn} if isinstance(turn, str) else dict(turn)
        finish = message.pop("finish", "tool_calls" if message.get("tool_calls") else "stop")
        failure: GatewayError | None = message.pop("cut", None)
        record = request.record
        record.usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        record.cost, record.provider, record.target_model = self._price, "scripted", "scripted-model"
        for part in self._deltas(message):
            yield _chunk(part)
        if failure is not None:
            raise failure
        if finish is not None:
            yield _chunk({}, finish)

    @staticmethod
    def _deltas(message: Json) -> list[Json]:
        out: list[Json] = []
        if message.get("reasoning_content"):
            out.append({"reasoning_content": message["reasoning_content"]})
        text = message.get("content")
        if text:
            half = len(text) // 2
            out += [{"content": piece} for piece in (text[:half], text[half:]) if piece]
        if message.get("tool_calls"):
            out.append({"tool_calls": [{"index": index, **call} for index, call in enumerate(message["tool_calls"])]})
        known = ("content", "reasoning_content", "tool_calls")
        out += [{name: value} for name, value in message.items() if name not in known]
        return out


def _chunk(delta: Json, finish: str | None = None) -> Chunk:
    value = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return Chunk(dumps(value), content=True, json=value)


class Kept:
    """A Log in memory.

    killed_at  what is appended with this seq is the last thing that the process does; with `unkept` it is lost
    """

    def __init__(self, events: Sequence[Event] = (), killed_at: int | None = None, *, unkept: bool = False) -> None:
        self.events = list(events)
        self.shown: list[Event | Delta] = []
        self._killed_at = killed_at
        self._unkept = unkept
        self._dead = False

    async def append(self, events: Sequence[Event], *, durable: bool = False) -> None:
        for event in events:
            if self._dead:
                raise Killed
            assert event.seq == len(self.events) + 1
            self._dead = event.seq == self._killed_at
            if not (self._dead and self._unkept):
                self.events.append(dumped(event))
            if self._dead:
                raise Killed

    def show(self, item: Event | Delta) -> None:
        self.shown.append(item)

    def answer(self, call: Json, said: str | Json) -> None:
        """What comes from outside for a call that a run waits for."""
        if call["kind"] == "approval":
            assert isinstance(said, dict)
            data, state = {"id": call["id"], "tool": call["arguments"]["tool"], **said}, None
            type = "approval.resolved"
        else:
            data, state = (
                {"id": call["id"], "name": call["name"], "ok": True, "ms": 0, "output": said, "client": True},
                {"text": said, "ok": True, "made": False},
            )
            type = "tool.finished"
        seq = len(self.events) + 1
        self.events.append(Event("run_1", seq, type, call["step"], data, call["key"], state, 0.0, call["agent"], call["inner"], call["parent"]))

    def types(self) -> list[str]:
        return [event.type for event in self.events]

    def of(self, type: str) -> list[Event]:
        return [event for event in self.events if event.type == type]

    def text(self, kind: str) -> str:
        return "".join(item.text for item in self.shown if isinstance(item, Delta) and item.kind == kind)


class Killed(BaseException):
    """kill -9, for a process of the mind."""


def dumped(event: Event) -> Event:
    """As it comes back from a store."""
    return msgspec.json.decode(msgspec.json.encode(event), type=Event)


PARTS = {"limits": AgentLimits, "options": AgentOptions, "thinking": Thinking, "approval": Approval}


def agent(pattern: str = "simple", **settings: Any) -> config.Agent:
    """An agent; `limits`, `options`, `thinking` and `approval` as dicts."""
    if "critic" in settings.get("thinking", {}):
        settings["thinking"] = {**settings["thinking"], "critic": Critic(**settings["thinking"]["critic"])}
    given = {name: PARTS[name](**value) if name in PARTS else value for name, value in settings.items()}
    return config.Agent(pattern=pattern, **{"name": "a", "model": "m", **given})


def made(spec: config.Agent, model: Scripted, tools: Sequence[Any] = (), question: str | Sequence[Json] = "q", log: Kept | None = None, **asked: Any) -> Run:
    """A run that is not on its way yet. `theirs` are tools of the client."""
    log = log if log is not None else Kept()
    context = [{"role": "user", "content": question}] if isinstance(question, str) else list(question)
    return Run("run_1", spec, model, Registry(tools), Asked(context, tools=asked.pop("theirs", ()), **asked), log, list(log.events))


async def run(
    spec: config.Agent, model: Scripted, tools: Sequence[Any] = (), question: str | Sequence[Json] = "q", log: Kept | None = None, **asked: Any
) -> tuple[Run, Outcome, Kept]:
    """One run to its end."""
    log = log if log is not None else Kept()
    one = made(spec, model, tools, question, log, **asked)
    return one, await carry_out(one), log


def results(body: Json) -> list[Json]:
    """The tool results in a request."""
    return [message for message in body["messages"] if message.get("role") == "tool"]


def paired(messages: Sequence[Json]) -> bool:
    """Whether every call has exactly one result, right behind it, and no result is without its call."""
    open_: list[str] = []
    for message in messages:
        if message.get("role") == "tool":
            if message["tool_call_id"] not in open_:
                return False
            open_.remove(message["tool_call_id"])
            continue
        if open_:
            return False
        open_ = [call["id"] for call in message.get("tool_calls") or ()]
        if len(set(open_)) < len(open_):
            return False
    return not open_
