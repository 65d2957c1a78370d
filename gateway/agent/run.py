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
from typing import Any, NoReturn, Protocol, TypeVar

from msgspec.structs import replace

from gateway import config
from gateway.agent.broken import unpriced, used
from gateway.agent.endings import Paused, Stopped
from gateway.agent.events import Delta, Event
from gateway.agent.failed import keep, kind_of, recall, says_nothing
from gateway.agent.guards import NOTES, Guard
from gateway.agent.memory.tokens import Estimator, size
from gateway.agent.tools.registry import Registry
from gateway.agent.turn import Sum, Turn, failures, read
from gateway.agent.wording import short, text_of
from gateway.chat import Accumulator, Body, Json, Model, Record, Request, dumps
from gateway.errors import ClientGone, GatewayError, StreamCut
from gateway.routing.estimates import Prices

T = TypeVar("T")

CUT_RETRIES = 2
"""how often a turn that broke off is asked for again"""


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
        self.earlier = Sum()
        """what earlier legs of the run spent: a user's next message gives it its limits anew"""
        self.paid = Sum()
        """the part of it that was spent since the run was taken up; the rest is in the journal"""
        self.step = 0
        self.output = ""
        """the answer, or the best there is so far"""
        self.said = ""
        """what the model said last beside its calls"""
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
        self.ids = {str(call.get("id")) for message in asked.context for call in message.get("tool_calls") or ()}
        """of calls that were made"""
        self.failed_calls: dict[str, bool] = {}
        """of the latest turn, by the call's id"""
        self.estimator = Estimator()
        self.window: int | None = None
        """tokens that the model's context holds, None: nobody knows"""
        self.prices: Prices = unpriced
        self.guessed = False
        """a part of what it used is an estimate: a turn broke off"""
        self.over_at: float | None = None
        """when the run's time is over, in the loop's time"""
        self.provider: str | None = None
        self.target_model: str | None = None
        self.replayed = False
        """the latest turn came from the journal: whoever listens has heard of it"""
        self._thoughts: list[tuple[str, str]] = []
        self._midline = False
        self._seq = known[-1].seq if known else 0
        self._known = {(event.type, event.key): event for event in known}
        self._counts: dict[str, int] = {}
        self._lock = asyncio.Lock()
        self._later: list[Event] = []

    # ---- events ----

    async def emit(self, type: str, data: Json, *, key: str | None = None, state: Json | None = None, durable: bool = False, later: bool = False) -> Event:
        """Journal an event and tell it, unless the journal has it already. Gives the journal's.

        later  in one piece with the next event, which follows at once
        """
        root = self.root
        key = self.place(key if key is not None else str(self._next(type)))
        known = root._known.get((type, key))
        if known is not None:
            return known
        inner, parent = (None, None) if self.parent is None else (self.id, self.parent.id)
        event = Event(root.id, 0, type, self.step, data, key, state, time.time(), self.agent.name, inner, parent)
        if later:
            root._later.append(event)
            return event
        return await unbroken(root._keep(event, durable))

    async def _keep(self, event: Event, durable: bool = False) -> Event:
        """Give an event its number, journal it and show it; or give the one that the journal has already."""
        async with self._lock:
            known = self._known.get((event.type, event.key))
            if known is not None:
                return known
            waiting, self._later = self._later, []
            events = [replace(one, seq=self._seq + number) for number, one in enumerate((*waiting, event), start=1)]
            await self.log.append(events, durable=durable)
            self._seq = events[-1].seq
            self._known |= {(one.type, one.key): one for one in events}
        for one in events:
            self.log.show(one)
        return events[-1]

    def _next(self, what: str) -> int:
        """A number that tells things of one sort apart, the same each time the run is gone through."""
        self._counts[what] = self._counts.get(what, 0) + 1
        return self._counts[what]

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
        elif text and self is self.root:
            self.log.show(Delta("content", text))

    def think(self, text: str, kind: str = "reasoning") -> None:
        """Show a piece of a thought to those who may see thoughts, unless they saw it when it was new."""
        if text and self is self.root:
            self._thoughts.append((kind, text))
            if kind == "reasoning":
                self._midline = not text.endswith("\n")
            if not self.replayed:
                self.log.show(Delta(kind, text))

    def end_line(self) -> None:
        """What is thought next begins on a line of its own."""
        if self._midline:
            self.think("\n")

    def total(self) -> Sum:
        """What the whole run used so far, its earlier legs included."""
        return self.earlier.plus(self.spent)

    def told(self) -> str:
        """The thoughts of the run as far as its agent lets them be seen."""
        wanted = {"full": "reasoning", "summary": "summary"}.get(self.agent.thinking.visibility)
        return "".join(text for kind, text in self._thoughts if kind == wanted).strip()

    def events(self, type: str) -> list[Event]:
        """The journal's events of this type, those of sub-agents too."""
        return [event for event in self.root._known.values() if event.type == type]

    def inside(self, event: Event) -> bool:
        """Whether this happened in this leg of this run, or in a sub-agent of it."""
        leg, mark, _ = event.key.partition(":")
        return event.key.startswith(self.place("")) and (self.leg > 1 or not mark or not leg.isdigit())

    def took(self) -> float:
        """Seconds that the run has been at work, as its journal tells; the time in which it waited for somebody does not count."""
        took, last = 0.0, None
        for event in sorted((event for event in self.root._known.values() if self.inside(event)), key=lambda event: event.seq):
            if event.type == "approval.resolved" or (event.type == "tool.finished" and event.data.get("client")):
                last = None
                continue
            took += max(event.time - last, 0.0) if last is not None else 0.0
            last = event.time
        return took

    async def emit_as(self, event: Event, type: str, data: Json, state: Json | None) -> None:
        """An event of the same call as another one, whoever's it was."""
        await unbroken(self.root._keep(replace(event, type=type, data=data, state=state, time=time.time())))

    @asynccontextmanager
    async def phase(self, name: str, key: str | None = None, words: str = "", **data: Any) -> AsyncGenerator[Json]:
        """A phase from start to end; what is put into the dict goes into `phase.finished`. An error in it names it, in `words` of its own."""
        key = key or f"{name}:{self._next(name)}"
        await self.emit("phase.started", {"phase": name, **data}, key=key)
        told: Json = {"phase": name, **data}
        try:
            yield told
        except (GatewayError, Stopped) as ended:
            error = ended.error if isinstance(ended, Stopped) else ended
            if error is not None:
                told["error"] = error.message
                error.message = f"{words or name} phase: {error.message}"
            else:
                told["stopped"] = ended.reason if isinstance(ended, Stopped) else None
            await self.emit("phase.finished", told, key=key)
            raise
        await self.emit("phase.finished", told, key=key)

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
        purpose: str = "turn",
    ) -> Turn:
        """One turn of the model: the journal's, or a new one.

        live     its text is the answer and goes to the client as it comes
        aloud    its text is a thought that those may see who see thoughts
        more     further fields of the request
        purpose  what the turn is for; the turns of each purpose are counted by themselves

        Raises Stopped at a limit of tokens or cost, and what the chain raises when no provider answers.
        """
        key = f"{purpose}:{self._next(purpose)}"
        known, failed = self.known("usage", key), self.known("attempt", f"{key}.failed")
        self.replayed = known is not None or failed is not None
        for cut in (self.known("usage", f"{key}.{tries}") for tries in range(CUT_RETRIES + 1)):
            if cut is not None:
                self._count(_used(cut), again=True)
        if failed is not None and failed.state is not None:
            self._cut(recall(failed.state), failed.state["shown"])
        if known is not None and known.state is not None:
            turn = Turn(**known.state)
            self._count(turn, again=True)
            self._learn(messages, tools, turn)
            self.think(turn.reasoning)
            if aloud:
                self.end_line()
                self.think(turn.text)
        else:
            turn = await self._new(messages, tools, key, live, aloud, {**({} if choice is None else {"tool_choice": choice}), **(more or {})})
        self.end_line()
        if turn.reasoning and not aloud:
            self.think(short(turn.reasoning) + "\n", "summary")
        return turn

    async def _new(self, messages: Sequence[Json], tools: Sequence[Json], key: str, live: bool, aloud: bool, more: Json) -> Turn:
        if self.over_at is not None and asyncio.get_running_loop().time() >= self.over_at:
            raise Stopped("wall", "the run's time is over")
        above: Run | None = self
        while above is not None:
            above.guard.spend(above.spent)
            above = above.parent
        body: Json = {**self.asked.parameters, "model": self.agent.model, "messages": list(messages), "stream": True, "stream_options": {"include_usage": True}}
        if tools:
            body["tools"] = list(tools)
        turn = await self._exchange(body | more, key, live, aloud)
        self._count(turn)
        self._learn(messages, tools, turn)
        self.root.provider, self.root.target_model = turn.provider, turn.model
        state: Json = {"message": turn.message, "finish": turn.finish, "usage": turn.usage, "cost": turn.cost, "provider": turn.provider, "model": turn.model}
        await self.emit("usage", self._told(turn), key=key, state=state)
        return turn

    def _told(self, turn: Turn) -> Json:
        """What a turn used, for an event; the sums are the whole run's."""
        total = self.root.total()
        told = {"provider": turn.provider, "model": turn.model, "usage": turn.usage or {}, "cost": turn.cost}
        return {**told, "total": total.usage, "total_cost": total.cost}

    def _broke(self, record: Record, answer: Accumulator, size: int, *, left: bool) -> Turn | None:
        """Count what a turn used that broke off."""
        choices = answer.completion()["choices"]
        broken = used(record, choices[0]["message"] if choices else {}, size, self.prices, left=left)
        if broken is not None:
            self._count(broken)
            self.root.guessed = True
        return broken

    async def _exchange(self, body: Json, key: str, live: bool, aloud: bool) -> Turn:
        """Ask the chain; again where the answer broke off before the client saw any of it."""
        raw = dumps(body)
        shown: list[str] = []
        last = ""

        async def show(kind: str, text: str) -> None:
            nonlocal last
            if kind != last:
                self.end_line()
            last = kind
            if kind == "content" and live:
                shown.append(text)
                await self.say(text)
            elif kind == "reasoning" or aloud:
                self.think(text)

        for tries in range(CUT_RETRIES + 1):
            answer = Accumulator()
            record = Record(id=f"{self.id}.{key.removeprefix('turn:')}", model=self.agent.model, stream=True, key=self.asked.key, tenant=self.asked.tenant)
            request = Request(Body(raw), self.agent.model, record, stream=True, folds=True)
            try:
                turn = await read(self.model, request, show, answer)
            except (ClientGone, asyncio.CancelledError):
                self.root.attempts += failures(record.attempts)
                self._broke(record, answer, len(raw), left=True)  # whoever ends the run keeps the sum
                raise
            except GatewayError as error:
                if (broken := self._broke(record, answer, len(raw), left=False)) is not None:
                    await self.emit("usage", {**self._told(broken), "estimated": True}, key=f"{key}.{tries}")
                if isinstance(error, StreamCut) and not shown and tries < CUT_RETRIES:
                    await self._tell_attempts(record, f"{key}.{tries}")
                    continue
                if not says_nothing(error):
                    await self._tell_attempts(record, f"{key}.{tries}", f"{key}.failed", error, "".join(shown))
                    self._cut(error, "".join(shown))
                turn = Turn({"role": "assistant", "content": ""}, "stop", record.usage, record.cost, record.provider, record.target_model)
            await self._tell_attempts(record, f"{key}.{tries}", later=True)
            return turn
        raise AssertionError("unreachable")

    def _cut(self, error: GatewayError, shown: str) -> NoReturn:
        """A turn failed. What a client has seen of the answer stays."""
        if not shown:
            raise error
        self.output = shown
        raise Stopped("outage", error.message, error) from error

    async def _tell_attempts(
        self, record: Record, key: str, last: str = "", error: GatewayError | None = None, shown: str = "", *, later: bool = False
    ) -> None:
        """Journal what each attempt came to; with an `error` the last one, as `last`, says that the turn failed. `later`: with the turn itself."""
        tried = failures(record.attempts)
        self.root.attempts += tried
        if error is not None and not tried:
            tried = [{"provider": None, "model": self.agent.model, "class": kind_of(error) or error.code, "status": error.status, "ms": 0}]
        for number, attempt in enumerate(tried):
            if number:
                await self.emit(
                    "fallback",
                    {"from": tried[number - 1]["provider"], "to": attempt["provider"], "class": tried[number - 1]["class"]},
                    key=f"{key}.{number}",
                    later=later,
                )
            if error is not None and number == len(tried) - 1:
                await self.emit("attempt", attempt, key=last, state={**keep(error), "shown": shown})
            else:
                await self.emit("attempt", attempt, key=f"{key}.{number}", later=later)

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

    def count_inner(self, call_id: str) -> None:
        """What an agent used that this run asked before it was taken up again, and does not ask again."""
        inner = f"{self.id}/{call_id}/"
        prefix = inner if self.leg == 1 else f"{self.leg}:{inner}"
        for event in self.events("usage"):
            if event.key.startswith(prefix):
                self._count(_used(event), again=True)

    async def answer(self, turn: Turn, *, told: bool = False) -> str:
        """This turn is the answer. `told`: the client has it already."""
        self.output, self.finish = turn.text or str(turn.message.get("refusal") or ""), turn.finish
        if not told or not turn.text:
            await self.say(self.output)
        return self.output

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
        of = {"key": self.place(key), "step": self.step, "agent": self.agent.name, "inner": inner, "parent": parent, "timeout": self.agent.approval.timeout}
        return {"id": ident, "kind": kind, "name": name, "arguments": arguments, **of}

    # ---- the whole ----

    def best(self) -> str:
        """The best answer so far: what was said last as one, else what the tools found, else what was said beside the calls."""
        if self.output:
            return self.output
        found = self.found()
        return "What was found so far:\n" + "\n".join(f"- {text[:2000]}" for text in found) if found else self.said

    def found(self) -> list[str]:
        """What tools gave back; not what they noted."""
        inner = None if self is self.root else self.id
        own = [event for event in self.events("tool.finished") if event.inner == inner and self.inside(event)]
        texts = [str(event.data.get("output") or "").strip() for event in own if event.data.get("ok") and event.data.get("name") not in NOTES]
        return list(dict.fromkeys(text for text in texts if text))


def _used(event: Event) -> Turn:
    """The turn that a `usage` event tells of; of one that broke off only what it used is kept."""
    return Turn(**event.state) if event.state is not None else Turn({}, None, event.data["usage"], event.data["cost"])


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


__all__ = ["Asked", "Log", "Run", "alias", "short", "text_of"]
