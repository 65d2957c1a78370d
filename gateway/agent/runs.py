"""All runs of this process: begun by a request, taken up again after a wait or a crash, answered, forked, ended.

What a run is run with is loaded in a thread, soon after the start or when the first one needs it:
a gateway without agents never does, and one with them does not start later for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from gateway import config
from gateway.agent.agents import Agents, Parts
from gateway.agent.endings import RunNotWaiting
from gateway.agent.events import Delta, Event
from gateway.agent.journal import Journal
from gateway.agent.orders import Order
from gateway.agent.wording import text_of
from gateway.agent.work import Work
from gateway.chat import Json, dumps, loads
from gateway.config.agents import PROMPTS
from gateway.errors import InvalidRequest, NotFound
from gateway.store import RequestRow, RunRow, SessionRow, Store, session_key
from gateway.telemetry import RunRecord

if TYPE_CHECKING:
    from gateway.agent.live import Elsewhere, Live

_OPTIONS = ("max_reflections", "auto_finish", "prompts", "steps")
TOO_LATE = "nobody answered in time"
WARM = 0.5
"""seconds after the start in which the first requests have the process for themselves"""


def _nothing(name: str) -> Any:
    raise NotFound(f'there is no model "{name}"', code="model_not_found", param="model")


class Runs:
    """The agents' runs over one journal. Outlives every config: `use` exchanges the agents, runs under way keep theirs."""

    journal: Journal

    def __init__(self, charge: Callable[[RequestRow], None] = lambda row: None, told: Callable[[RunRecord], None] = lambda record: None) -> None:
        """`charge` takes what was used by runs that no request waits for, `told` is told of each run that ends or waits."""
        self._agents = Agents({}, _nothing)
        self._charge = charge
        self._told = told
        self._live: dict[str, Live] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loaded = False
        self._work: Work | None = None
        self._retention = config.Retention()

    def use(self, agents: Agents, retention: config.Retention | None = None) -> None:
        """The agents of the config that is loaded now, and how long runs are kept."""
        self._agents, self._retention = agents, retention or config.Retention()
        if self._work is not None:
            self._work.keep(self._retention)

    def knows(self, agent: str) -> bool:
        return self._agents.get(agent) is not None

    def visibility(self, agent: str) -> str:
        parts = self._agents.get(agent)
        return parts.spec.thinking.visibility if parts is not None else "hidden"

    # ---- beginning ----

    async def begin(self, order: Order) -> Live | Elsewhere:
        """The run that a request asks for, on its way: a new one, or the one that waited for what it brings.

        NotFound for an unknown agent, Conflict `run_busy` or `run_not_waiting`, InvalidRequest.
        With `background` it is left to whoever takes it from the queue.
        """
        await self._load()
        from gateway.agent.live import Elsewhere

        if order.answers:
            return await self._answered(order)
        parts = self._find(order.agent)
        spec = with_options(parts.spec, order.options)
        _check_tools(parts, order.tools)
        if spec.limits.cost is not None and spec.limits.unpriced == "refuse" and not parts.facts().priced:
            raise InvalidRequest(f"agent {order.agent} has a cost limit and its model has no known price (limits.unpriced: allow)", code="unpriced_model")
        row = await self._row(order, spec)
        row, made = await self.journal.create(row, None if order.background else self.journal.owner)
        if not made or order.background:
            if made:
                await self._hand_over(row.id)
            return self._live.get(row.id) or Elsewhere(row, spec, self.journal)
        return await self._go(row, parts, ())

    async def _row(self, order: Order, spec: config.Agent) -> RunRow:
        key = session_key(order.tenant, order.agent, order.session_id) if order.session_id else None
        stays = order.background or (spec.on_disconnect or ("detach" if key else "cancel")) == "detach"
        settings: Json = {"parameters": dict(order.parameters), "tools": list(order.tools), "options": order.options}
        if order.appends:
            settings["appends"] = True
        asked = {"messages": list(order.messages)}
        return RunRow(
            id=f"run_{secrets.token_hex(12)}",
            agent=order.agent,
            tenant=order.tenant,
            key_name=order.key or "",
            session=key,
            session_id=order.session_id,
            input=asked,
            background=order.background,
            detached=stays,
            idempotency_key=order.idempotency_key,
            request_hash=hashlib.sha256(dumps([asked, settings, order.session_id])).hexdigest(),
            settings=settings,
            metadata=order.metadata,
        )

    async def _go(self, row: RunRow, parts: Parts, known: Sequence[Event]) -> Live:
        """Set a claimed run on its way."""
        from gateway.agent.live import Live
        from gateway.agent.run import Asked
        from gateway.agent.session import Session

        settings = row.settings
        spec = with_options(parts.spec, settings.get("options") or {})
        if settings.get("prompt"):
            spec = replace(spec, system=settings["prompt"])
        parts = replace(parts, spec=spec)
        if settings.get("model"):
            model, facts = self._agents.find(settings["model"])
            parts = replace(parts, model=model, facts=facts, spec=replace(spec, model=settings["model"]))
        starts = [event.state for event in known if event.type == "run.started" and event.inner is None and event.state]
        start = starts[-1] if starts else None
        session = Session(await self.journal.session(row.session), spec.limits.history) if row.session is not None else None
        given: Sequence[Json] = row.input["messages"]
        if start is not None:
            context, values, fresh = start["context"], dict(start["session"]), start["fresh"]
            if session is not None:
                later = len(starts) > 1  # an edited history forks again, a later leg only adds
                session.hear(fresh if later else given, new=later or settings.get("appends", False))
        elif session is not None:
            fresh = session.hear(given, new=settings.get("appends", False))
            context, values = session.context(given, parts.facts().window), session.values()
        else:
            context, values, fresh = given, {}, given
        asked = Asked(
            context=context,
            parameters=settings.get("parameters") or {},
            tools=settings.get("tools") or (),
            tenant=row.tenant,
            key=row.key_name or None,
            session=values,
        )
        live = Live(row, parts, self.journal, known, asked, fresh, session, (start or {}).get("before"))
        self._live[row.id] = live
        live.start(partial(self._over, live))
        return live

    def _over(self, live: Live) -> None:
        self._live.pop(live.id, None)
        if live.alone and (bill := live.bill()) is not None:
            self._charge(bill)
        self._told(live.record())

    def _buried(self, row: RunRow, steps: int) -> None:
        """A run ended that nobody ran then: its process died, or it was cancelled while it was queued or waited."""
        took = max((row.finished_at or row.created_at) - row.created_at, 0.0)
        key, session = row.key_name or None, row.session_id
        self._told(RunRecord(row.id, row.agent, row.status, row.reason, key, session, steps, (), {}, None, took, alone=True))

    def hold(self, id: str, over: Callable[[int], object]) -> None:
        """Call `over` with the run's tokens when it ends or waits, wherever it runs."""
        self._keep(asyncio.create_task(self._held(id, over)))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _held(self, id: str, over: Callable[[int], object]) -> None:
        tokens = 0
        try:
            async with aclosing(self.journal.follow(id)) as items:
                async for item in items:
                    if isinstance(item, Event) and item.type == "usage":
                        tokens = int(item.data["total"].get("total_tokens") or 0)
                    if isinstance(item, Event) and (item.type == "approval.required" or item.data.get("client")):
                        break
        finally:
            over(tokens)

    # ---- going on ----

    async def resume(self, id: str) -> None:
        """Take a run up that nobody works on: queued, left by a process that died, waiting for too long. Returns when it ends or waits."""
        await self._load()
        row, _ = await self.journal.load(id)
        rows: list[Event] = []
        if row.status == "waiting":
            rows = [_event(row, call, TOO_LATE, ok=False) for call in (row.waiting or {}).get("calls", ())]
        claimed = await self.journal.claim(id, also=("waiting",) if rows else (), events=rows)
        if claimed is None:
            return
        parts = self._agents.get(claimed.agent)
        if parts is None:
            await self.journal.fail(claimed, f"there is no agent {claimed.agent} any more")
            return
        _, known = await self.journal.load(id)
        live = await self._go(claimed, parts, known)
        live.alone = True
        await live.done()

    async def _answered(self, order: Order) -> Live:
        """The run that waits under the ids of these tool messages, with what they say."""
        ids = [str(message.get("tool_call_id") or "") for message in order.answers]
        row = await self.journal.waiting(order.tenant, ids)
        if row.agent != order.agent:
            raise RunNotWaiting(f"no run of agent {order.agent} waits under these ids")
        calls = {call["id"]: call for call in (row.waiting or {}).get("calls", ())}
        events = [_event(row, calls[ident], text_of(message)) for ident, message in zip(ids, order.answers, strict=True) if ident in calls]
        return await self._claimed(row, ids, events)

    async def _claimed(self, row: RunRow, ids: Sequence[str], events: Sequence[Event], also: Sequence[str] = ("waiting",)) -> Live:
        await self._load()
        claimed = await self.journal.claim(row.id, also=also, calls=ids, events=events)
        if claimed is None:
            raise RunNotWaiting("the run does not wait any more")
        _, known = await self.journal.load(row.id)
        live = await self._go(claimed, self._find(row.agent), known)
        live.brought += [event for event in known if event.seq > row.last_seq]
        return live

    async def approve(self, id: str, tenant: str, said: Json) -> RunRow:
        """A person's word on the approval that a run waits for; it goes on here. RunNotWaiting if it waits for none."""
        row = await self.row(id, tenant)
        calls = [call for call in (row.waiting or {}).get("calls", ()) if call["kind"] == "approval"]
        wanted = said.get("id")
        calls = [call for call in calls if wanted is None or call["id"] == wanted]
        if row.status != "waiting" or not calls:
            raise RunNotWaiting("the run waits for no approval")
        call = calls[0]
        live = await self._claimed(row, [call["id"]], [_event(row, call, dumps({**said, "approved": said.get("approved") is True}).decode())])
        self._let_go(live)
        return live.row

    async def more(self, id: str, tenant: str, messages: Sequence[Json]) -> RunRow:
        """The user's next message for a run that waits or is incomplete: it goes on with it."""
        await self._load()
        from gateway.agent.memory.repair import repair

        row = await self.row(id, tenant)
        if row.status not in ("waiting", "incomplete"):
            raise RunNotWaiting(f"the run is {row.status}: it neither waits nor is incomplete")
        _, known = await self.journal.load(id)
        starts = [event for event in known if event.type == "run.started" and event.inner is None and event.state]
        ends = [event for event in known if event.type == "run.finished" and event.inner is None and event.state]
        if not starts:
            raise RunNotWaiting("the run has not begun")
        start = starts[-1].state or {}
        before = (row.waiting or {}).get("new") if row.status == "waiting" else (ends[-1].state or {}).get("new") if ends else None
        context, _ = repair([*start["context"], *(before or ()), *messages])
        unsaved = [*start["fresh"], *(before or ())] if row.status == "waiting" else []
        state = {"context": context, "session": start["session"], "fresh": [*unsaved, *messages]}
        state["before"] = {"usage": row.usage, "cost": row.cost, "steps": row.steps}
        event = Event(
            id,
            0,
            "run.started",
            row.steps,
            {"agent": row.agent, "session_id": row.session_id, "input": True},
            f"{len(starts) + 1}:start",
            state,
            agent=row.agent,
        )
        live = await self._claimed(row, [], [event], also=("waiting", "incomplete"))
        self._let_go(live)
        return live.row

    async def fork(self, id: str, tenant: str, seq: int, model: str | None, prompt: str | None, tool_result: str | None) -> RunRow:
        """A new run that has the events up to `seq`, and goes on from there in its own way."""
        row, known = await self._own(id, tenant)
        at = next((event for event in known if event.seq == seq), None)
        if at is None:
            raise InvalidRequest(f"the run has events up to {known[-1].seq if known else 0}", param="seq")
        if at.type == "run.finished":
            raise InvalidRequest("nothing comes after run.finished; fork at an earlier event", param="seq")
        if model is not None:
            self._agents.find(model)
        last: Event | None = None
        if tool_result is not None:
            if at.type not in ("tool.started", "tool.finished"):
                raise InvalidRequest("`tool_result` needs `seq` to be an event of a tool", param="tool_result")
            state = {"text": tool_result, "ok": True, "made": False}
            told = {"id": at.data.get("id"), "name": at.data.get("name"), "ok": True, "ms": 0, "output": tool_result}
            last = Event(id, seq, "tool.finished", at.step, told, at.key, state, self.journal.now(), at.agent, at.inner, at.parent)
        settings = {**row.settings, **{name: value for name, value in (("model", model), ("prompt", prompt)) if value is not None}}
        new = RunRow(
            id=f"run_{secrets.token_hex(12)}",
            agent=row.agent,
            tenant=row.tenant,
            key_name=row.key_name,
            input=row.input,
            settings=settings,
            metadata=row.metadata,
            background=True,
            detached=True,
        )
        forked = await self.journal.fork(row.id, seq, new, last)
        await self._hand_over(forked.id)
        return forked

    # ---- looking ----

    async def row(self, id: str, tenant: str) -> RunRow:
        """A run of this key. NotFound for every other one."""
        return (await self._own(id, tenant))[0]

    async def _own(self, id: str, tenant: str) -> tuple[RunRow, Sequence[Event]]:
        try:
            row, known = await self.journal.load(id)
        except NotFound:
            row = None
        if row is None or row.tenant != tenant:
            raise NotFound(f"there is no run {id}", code="run_not_found")
        return row, known

    def follow(self, id: str, after: int) -> AsyncGenerator[Event | Delta]:
        return self.journal.follow(id, after)

    async def cancel(self, id: str, tenant: str) -> RunRow:
        """End a run, wherever it is. One that is over stays as it is."""
        row = await self.row(id, tenant)
        live = self._live.get(id)
        if live is not None:
            await live.cancel()
            return live.row
        if row.status in ("queued", "waiting"):
            return await self.journal.cancel(row)
        return await self.journal.ask_cancel(id) or row

    async def session(self, tenant: str, ident: str, agent: str | None = None) -> Json:
        """What a session holds: its messages, summary, plan and todo, thoughts."""
        await self._load()
        from gateway.agent.session import Session

        row = await self._session(tenant, ident, agent)
        return {"id": row.session_id, "object": "session", "agent": row.agent, "run_id": row.run_id, **Session(row).public(), "updated_at": int(row.updated_at)}

    async def forget_session(self, tenant: str, ident: str, agent: str | None = None) -> Json:
        row = await self._session(tenant, ident, agent)
        await self.journal.delete_session(row.key)
        return {"id": ident, "object": "session", "deleted": True}

    async def _session(self, tenant: str, ident: str, agent: str | None) -> SessionRow:
        names = [agent] if agent else list(self._agents)
        for name in names:
            row = await self.journal.session(session_key(tenant, name, ident))
            if row is not None:
                return row
        raise NotFound(f"there is no session {ident}", code="session_not_found")

    # ---- the process ----

    async def _load(self, after: float = 0.0) -> None:
        """Load what runs are run with: a tenth of a second, in which a thread does it and others are served."""
        if not self._loaded:
            await asyncio.sleep(after)
            await asyncio.to_thread(import_module, "gateway.agent.live")
            self._loaded = True

    def _let_go(self, live: Live) -> None:
        """A run that goes on without a request that waits for it."""
        live.stays = live.alone = True

    def _find(self, agent: str) -> Parts:
        parts = self._agents.get(agent)
        if parts is None:
            raise NotFound(f'there is no agent "{agent}"; GET /v1/models lists them', code="model_not_found", param="model")
        return parts

    async def open(self, store: Store, *, work: bool = True) -> None:
        """Take over a store: its unfinished runs are gone on with, here or by whoever shares it. Without `work` not here."""
        self.journal = Journal(store, self._buried)
        await self.journal.open()
        if self._agents:
            self._keep(asyncio.create_task(self._load(WARM), name="load agents"))
        if not work:
            return
        self._work = Work(store, self.journal, self.resume)
        self._work.keep(self._retention)
        await self._work.open()

    def state(self) -> Json:
        """For `/readyz`: the runs of this process, and its part in the work that is left to whoever has time."""
        if self._work is None:
            return {"live": 0}
        return {"live": len(self._live), "journal": self.journal.state(), "work": self._work.state()}

    async def _hand_over(self, id: str) -> None:
        """Somebody is to take this run from the queue."""
        if self._work is not None:
            await self._work.put(id)

    async def aclose(self) -> None:
        """The process ends: what others can go on with is given back, the rest ends."""
        if self._work is not None:
            await self._work.aclose()
        await asyncio.gather(*(live.stop() for live in list(self._live.values())))
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.journal.aclose()


def with_options(spec: config.Agent, options: Mapping[str, Any]) -> config.Agent:
    """An agent with a request's own options. InvalidRequest for unknown ones, and for values that do not fit."""
    changed, limits = spec.options, spec.limits
    for name, value in options.items():
        if name == "max_reflections" and _whole(value, 0):
            changed = replace(changed, max_reflections=value)
        elif name == "auto_finish" and isinstance(value, bool):
            changed = replace(changed, auto_finish=value)
        elif name == "steps" and _whole(value, 1):
            limits = replace(limits, steps=value)
        elif name == "prompts" and isinstance(value, dict) and all(isinstance(text, str) for text in value.values()):
            _known_prompts(spec, value)
            changed = replace(changed, prompts={**changed.prompts, **value})
        else:
            why = "does not fit" if name in _OPTIONS else f"is unknown; known: {', '.join(_OPTIONS)}"
            raise InvalidRequest(f"`options.{name}` {why}", param=f"options.{name}")
    return replace(spec, options=changed, limits=limits)


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= 1000


def _known_prompts(spec: config.Agent, prompts: Mapping[str, str]) -> None:
    known = PROMPTS[spec.pattern]
    for name in prompts:
        if name not in known:
            raise InvalidRequest(f"pattern {spec.pattern} has no prompt {name}; it has: {', '.join(known) or 'none'}", param=f"options.prompts.{name}")


def _check_tools(parts: Parts, tools: Sequence[Json]) -> None:
    for tool in tools:
        name = tool["function"]["name"]
        if parts.own.find(name) is not None:
            raise InvalidRequest(f'the agent has a tool "{name}" of its own; give yours another name', param="tools", code="tool_name_taken")


def _event(row: RunRow, call: Json, text: str, *, ok: bool = True) -> Event:
    """What came from outside for a call, as the journal keeps it; `ok` False: nothing came, and the text says why."""
    of = {"agent": call["agent"], "inner": call["inner"], "parent": call["parent"]}
    if call["kind"] == "approval":
        said = _object(text) if ok else {"approved": False, "reason": text}
        verdict: Json = {"id": call["id"], "tool": call["arguments"]["tool"], "approved": said.get("approved") is True}
        verdict |= {name: said[name] for name in ("arguments", "reason") if said.get(name) is not None}
        return Event(row.id, 0, "approval.resolved", call["step"], verdict, call["key"], **of)
    told = {"id": call["id"], "name": call["name"], "ok": ok, "ms": 0, "output": text, "client": True}
    return Event(row.id, 0, "tool.finished", call["step"], told, call["key"], {"text": text, "ok": ok, "made": False}, **of)


def _object(text: str) -> Json:
    try:
        value = loads(text)
    except ValueError:
        return {"approved": False, "reason": text[:500]}
    return value if isinstance(value, dict) else {"approved": False}
