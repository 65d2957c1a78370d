"""One run of an agent: what its pattern asks of models and tools, each result kept in the journal.

A pattern is a coroutine that is written as if nothing could go wrong: it asks the model, lets
the tools act, and gives the answer. Whatever comes back is journaled under a key that is the
same each time the pattern is gone through. A run that was interrupted (a crash, a wait for a
person) is gone through again from the start: what the journal knows is not done twice, and
where the journal ends the run goes on.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from gateway import config
from gateway.agent.endings import Paused, Stopped
from gateway.agent.events import Delta, Event
from gateway.agent.guards import Guard
from gateway.agent.memory.tokens import Estimator, size
from gateway.agent.tools.registry import Registry
from gateway.agent.turn import Sum, Turn, failures, read
from gateway.chat import Body, Json, Model, Record, Request, dumps
from gateway.errors import GatewayError, StreamCut, UpstreamError

T = TypeVar("T")

CUT_RETRIES = 2
"""how often a turn that broke off is asked for again"""
SUMMARY = 280  # characters of a thought in short


class Log(Protocol):
    """Where the events of a run go."""

    async def append(self, events: Sequence[Event], *, durable: bool = False) -> None:
        """Keep them, before anybody sees them. Raises where the run is somebody else's by now."""
        ...

    def show(self, item: Event | Delta) -> None:
        """Tell those who listen now."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """What a run is asked.

    context      all messages before the answer: the history, then what is new
    parameters   fields of the client's request that each call of the model gets (temperature, ...)
    tools        the client's own tools, as they stand in a request
    session      values of tools that outlive the run
    """

    context: Sequence[Json]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[Json] = ()
    tenant: str = ""
    key: str | None = None
    session: dict[str, Any] = field(default_factory=dict)

    @property
    def question(self) -> str:
        """The latest words of the user."""
        for message in reversed(self.context):
            if message.get("role") == "user":
                return text_of(message)
        return ""


class Run:
    """One run under way. `known` is its journal so far."""

    def __init__(
        self,
        id: str,
        agent: config.Agent,
        model: Model,
        tools: Registry,
        asked: Asked,
        log: Log,
        known: Sequence[Event] = (),
        parent: Run | None = None,
    ) -> None:
        self.id = id
        self.agent = agent
        self.model = model
        self.tools = tools
        self.asked = asked
        self.spent = Sum()
        self.paid = Sum()
        """the part of it that was spent since the run was taken up; the rest is in the journal"""
        self.step = 0
        self.output = ""
        """the answer, or the best there is so far"""
        self.finish: str | None = None
        """the finish reason of the turn that gave the answer"""
        self.reason: str | None = None
        """why the answer is not all that was asked for"""
        self.new: list[Json] = []
        """the messages that this run adds to its session"""
        self.summary: tuple[str, int] | None = None
        """what old turns of the session became in this run, and how many of its messages stay behind it"""
        self.guard = Guard(agent)
        self.attempts: list[Json] = []
        self.root: Run = parent.root if parent is not None else self
        self.leg: int = parent.leg if parent is not None else 1
        """how often a user's message began or went on with the run"""
        self.parent = parent
        self.log = log
        self.silent = False
        """what is said is a thought, not the answer"""
        self.reasons_natively = False
        """the model thinks by itself"""
        self.ids: set[str] = set()
        """of calls that were made"""
        self.failed_calls: dict[str, bool] = {}
        """of the latest turn, by the call's id"""
        self.estimator = Estimator()
        self.window: int | None = None
        """tokens that the model's context holds, None: nobody knows"""
        self.provider: str | None = None
        self.target_model: str | None = None
        self._asks = 0
        self._thoughts: list[tuple[str, str]] = []
        self._seq = known[-1].seq if known else 0
        self._known = {(event.type, event.key): event for event in known}
        self._counts: dict[str, int] = {}
        self._lock = asyncio.Lock()
        self.fresh: list[str] = []
        """texts of this run that the client has seen as content"""

    # ---- events ----

    async def emit(self, type: str, data: Json, *, key: str | None = None, state: Json | None = None, durable: bool = False) -> Event:
        """Journal an event and tell it, unless the journal has it already. Gives the journal's."""
        root = self.root
        if key is None:
            self._counts[type] = self._counts.get(type, 0) + 1
            key = str(self._counts[type])
        inner, parent = (None, None) if self.parent is None else (self.id, self.parent.id)
        event = Event(root.id, 0, type, self.step, data, self.place(key), state, time.time(), self.agent.name, inner, parent)
        return await unbroken(root._keep(event, durable))

    async def _keep(self, event: Event, durable: bool = False) -> Event:
        """Give an event its number, journal it and show it; or give the one that the journal has already."""
        async with self._lock:
            known = self._known.get((event.type, event.key))
            if known is not None:
                return known
            event = replace(event, seq=self._seq + 1)
            await self.log.append([event], durable=durable)
            self._seq = event.seq
            self._known[event.type, event.key] = event
        self.log.show(event)
        return event

    def known(self, type: str, key: str) -> Event | None:
        """The journal's event of this key, None: it has not happened yet."""
        return self.root._known.get((type, self.place(key)))

    def place(self, key: str) -> str:
        """A key as it stands in the journal: a sub-agent's and a later leg's are different from the run's first ones."""
        key = key if self is self.root else f"{self.id}/{key}"
        return key if self.leg == 1 else f"{self.leg}:{key}"

    async def say(self, text: str) -> None:
        """Give the client a piece of the answer."""
        if text and self.silent:
            self.think(text)
        elif text:
            self.fresh.append(text)
            if self is self.root:
                self.log.show(Delta("content", text))

    def think(self, text: str, kind: str = "reasoning", *, again: bool = False) -> None:
        """Show a piece of a thought to those who may see thoughts. `again`: it was shown when it was new."""
        if text and self is self.root:
            self._thoughts.append((kind, text))
            if not again:
                self.log.show(Delta(kind, text))

    def told(self) -> str:
        """The thoughts of the run as far as its agent lets them be seen."""
        wanted = {"full": "reasoning", "summary": "summary"}.get(self.agent.thinking.visibility)
        return "".join(text for kind, text in self._thoughts if kind == wanted).strip()

    def events(self, type: str) -> list[Event]:
        """The journal's events of this type, those of sub-agents too."""
        return [event for event in self.root._known.values() if event.type == type]

    async def emit_as(self, event: Event, type: str, data: Json, state: Json) -> None:
        """An event of the same call as another one, whoever's it was."""
        await unbroken(self.root._keep(replace(event, type=type, data=data, state=state, time=time.time())))

    @asynccontextmanager
    async def phase(self, name: str, **data: Any) -> AsyncGenerator[Json]:
        """A phase from start to end; what is put into the dict goes into `phase.finished`."""
        await self.emit("phase.started", {"phase": name, **data})
        told: Json = {"phase": name, **data}
        try:
            yield told
        except GatewayError as error:
            told["error"] = error.message
            await self.emit("phase.finished", told)
            raise
        await self.emit("phase.finished", told)

    # ---- the model ----

    async def ask(
        self,
        messages: Sequence[Json],
        *,
        tools: Sequence[Json] = (),
        choice: str | None = None,
        live: bool = False,
        aloud: bool = False,
        more: Mapping[str, Any] | None = None,
    ) -> Turn:
        """One turn of the model: the journal's, or a new one.

        live   its text is the answer and goes to the client as it comes
        aloud  its text is a thought that those may see who see thoughts
        more   further fields of the request

        Raises Stopped at a limit of tokens or cost, and what the chain raises when no provider answers.
        """
        self._asks += 1
        key = f"turn:{self._asks}"
        known = self.known("usage", key)
        if known is not None and known.state is not None:
            turn = Turn(**known.state)
            self._count(turn, again=True)
            self._learn(messages, tools, turn)
            if live:
                self.fresh.append(turn.text)
            self.think(turn.text if aloud else turn.reasoning, again=True)
            if turn.reasoning and not aloud:
                self.think(short(turn.reasoning) + "\n", "summary", again=True)
            return turn
        self.root.guard.spend(self.root.spent)
        if self is not self.root:
            self.guard.spend(self.spent)
        body: Json = {**self.asked.parameters, "model": self.agent.model, "messages": list(messages), "stream": True, "stream_options": {"include_usage": True}}
        if tools:
            body["tools"] = list(tools)
            if choice is not None:
                body["tool_choice"] = choice
        body |= more or {}
        turn = await self._exchange(body, key, live, aloud)
        self._count(turn)
        self._learn(messages, tools, turn)
        self.root.provider, self.root.target_model = turn.provider, turn.model
        counts = turn.usage or {}
        told = {
            "provider": turn.provider,
            "model": turn.model,
            "usage": counts,
            "cost": turn.cost,
            "total": self.root.spent.usage,
            "total_cost": self.root.spent.cost,
        }
        state: Json = {"message": turn.message, "finish": turn.finish, "usage": turn.usage, "cost": turn.cost, "provider": turn.provider, "model": turn.model}
        await self.emit("usage", told, key=key, state=state)
        if turn.reasoning and not aloud:
            self.think(short(turn.reasoning) + "\n", "summary")
        return turn

    async def _exchange(self, body: Json, key: str, live: bool, aloud: bool) -> Turn:
        """Ask the chain; once more where the answer broke off before the client saw any of it."""
        raw = dumps(body)
        shown: list[str] = []

        async def show(kind: str, text: str) -> None:
            if kind == "content" and live:
                shown.append(text)
                await self.say(text)
            elif kind == "reasoning" or aloud:
                self.think(text)

        for tries in range(CUT_RETRIES + 1):
            record = Record(id=f"{self.id}.{key.removeprefix('turn:')}", model=self.agent.model, stream=True, key=self.asked.key, tenant=self.asked.tenant)
            request = Request(Body(raw), self.agent.model, record, stream=True, folds=True)
            try:
                return await read(self.model, request, show)
            except StreamCut as cut:
                if shown or tries == CUT_RETRIES:
                    self.output = "".join(shown) or self.output
                    raise Stopped("outage", cut.message, cut) from None
            finally:
                await self._tell_attempts(record, f"{key}.{tries}")
        raise AssertionError("unreachable")

    async def _tell_attempts(self, record: Record, key: str) -> None:
        tried = failures(record.attempts)
        self.root.attempts += tried
        for number, attempt in enumerate(tried):
            if number:
                await self.emit(
                    "fallback", {"from": tried[number - 1]["provider"], "to": attempt["provider"], "class": tried[number - 1]["class"]}, key=f"{key}.{number}"
                )
            await self.emit("attempt", attempt, key=f"{key}.{number}")

    def _learn(self, messages: Sequence[Json], tools: Sequence[Json], turn: Turn) -> None:
        """How this model counts tokens."""
        told = (turn.usage or {}).get("prompt_tokens")
        if isinstance(told, int) and self.window is not None:
            self.estimator = self.estimator.learn(size(messages, tools), told)

    def _count(self, turn: Turn, *, again: bool = False) -> None:
        run: Run | None = self
        while run is not None:
            run.spent.add(turn)
            if not again:
                run.paid.add(turn)
            run = run.parent

    async def answer(self, turn: Turn, *, told: bool = False) -> str:
        """This turn is the answer. `told`: the client has it already."""
        self.output, self.finish = turn.text, turn.finish
        if not told:
            await self.say(turn.text)
        return turn.text

    # ---- asking a person ----

    async def approve(self, key: str, tool: str, arguments: Json, reason: str) -> Json:
        """What a person says of it: `{"approved", "arguments"?, "reason"?}`. Raises Paused as long as nobody has."""
        ident = alias(self.root.id, self.place(key))
        await self.emit("approval.required", {"id": ident, "tool": tool, "arguments": arguments, "reason": reason}, key=key, durable=True)
        known = self.known("approval.resolved", key)
        if known is not None:
            return known.data
        request = {"run_id": self.root.id, "tool": tool, "arguments": arguments, "reason": reason}
        raise Paused([self.wait(ident, "approval", "approval_request", request, key)], self.agent.approval.timeout)

    def wait(self, ident: str, kind: str, name: str, arguments: Any, key: str) -> Json:
        """What the run waits for; its answer becomes the event of this key."""
        inner, parent = (None, None) if self.parent is None else (self.id, self.parent.id)
        of = {"key": self.place(key), "step": self.step, "agent": self.agent.name, "inner": inner, "parent": parent}
        return {"id": ident, "kind": kind, "name": name, "arguments": arguments, **of}

    # ---- the whole ----

    def best(self) -> str:
        """The best answer so far: what was said last, else what the tools found."""
        if self.output:
            return self.output
        said = [text_of(message) for message in self.new if message.get("role") == "assistant"]
        if any(said):
            return [text for text in said if text][-1]
        found = [text_of(message) for message in self.new if message.get("role") == "tool"]
        return "What was found so far:\n" + "\n".join(f"- {text[:2000]}" for text in found) if found else ""


async def unbroken(work: Coroutine[Any, Any, T]) -> T:
    """Do something to its end even where who waits for it is cancelled meanwhile: half of a write would be worse than a late end."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        raise


def alias(run_id: str, key: str) -> str:
    """The id under which the world answers a call of a run: the same each time, of no other call in any run."""
    return "call_" + hashlib.sha256(f"{run_id}\0{key}".encode()).hexdigest()[:24]


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message, whatever form its content has."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    return "\n".join(str(part.get("text") or part.get("refusal") or "") for part in parts if isinstance(part, dict)).strip()


def short(text: str, most: int = SUMMARY) -> str:
    """A thought on one line, cut to its first words."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


__all__ = ["Asked", "Log", "Run", "UpstreamError", "alias", "short", "text_of"]
