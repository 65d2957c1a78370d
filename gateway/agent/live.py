"""A run of this process while it runs: its task, its journal, those who listen."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from gateway import config
from gateway.agent.acting import close
from gateway.agent.agents import Parts
from gateway.agent.drive import Outcome, carry_out
from gateway.agent.endings import Paused
from gateway.agent.events import Delta, Event
from gateway.agent.journal import Journal
from gateway.agent.run import Asked, Run, unbroken
from gateway.agent.session import Session
from gateway.agent.turn import Sum
from gateway.chat import Attempt, Json, Record
from gateway.errors import GatewayError
from gateway.store import Fenced, RequestRow, RunRow, StoreUnavailable, Wait
from gateway.telemetry import RunRecord

log = logging.getLogger("thinkgate")


class RunCancelled(GatewayError):
    """Somebody ended the run."""

    status, code = 499, "run_cancelled"


class RunFailed(GatewayError):
    """The run failed, and there is nothing to show for it."""

    status, type, code = 502, "upstream_error", "run_failed"


class Live:
    """One claimed run on its way. `row` is what the journal knows of it.

    `fresh` are the messages that are new to its session, `before` is what earlier legs used.
    """

    def __init__(
        self,
        row: RunRow,
        parts: Parts,
        journal: Journal,
        known: Sequence[Event],
        asked: Asked,
        fresh: Sequence[Json],
        session: Session | None = None,
        before: Json | None = None,
    ) -> None:
        self.row = row
        self.id = row.id
        self.agent: config.Agent = parts.spec
        self.finish: str | None = None
        self.stays = row.detached
        """it goes on when nobody listens"""
        self.alone = False
        """no request waits for it"""
        self.brought: list[Event] = []
        """events with which it was taken up again, that nobody has been told of"""
        self._parts = parts
        self._journal = journal
        self._known = known
        self._asked = asked
        self._fresh = fresh
        self._session = session
        self._before = before or {}
        self._listeners: set[_Listener] = set()
        self._task: asyncio.Task[None] | None = None
        self._run: Run | None = None
        self._seq = known[-1].seq if known else 0
        self._ended = asyncio.Event()
        self._cancelled = False
        self._error: GatewayError | None = None
        self._accounted = False
        self._began = time.time()
        self._steps = row.steps

    # ---- who listens ----

    def start(self, over: Callable[[], object]) -> None:
        """Set it on its way; `over` is called when it ends or waits."""
        self._task = asyncio.create_task(self._work(), name=f"run {self.id}")
        self._task.add_done_callback(lambda _: over())

    def listen(self) -> AsyncGenerator[Event | Delta]:
        """Events and deltas from the moment of this call on, until the run ends or waits."""
        listener = _Listener()
        for event in self.brought:
            listener.put(event)
        self.brought.clear()
        self._listeners.add(listener)
        return self._heard(listener)

    async def _heard(self, listener: _Listener) -> AsyncGenerator[Event | Delta]:
        try:
            while True:
                while listener.items:
                    yield listener.items.popleft()
                if self._ended.is_set():
                    return
                listener.news.clear()
                await listener.news.wait()
        finally:
            self._listeners.discard(listener)

    async def done(self) -> RunRow:
        """Wait until the run ends or waits; the run as it is then."""
        await self._ended.wait()
        return self.row

    async def leave(self) -> None:
        """Whoever asked for the run does not listen any more: it ends, unless it is one that goes on."""
        if not self._ended.is_set() and not self.stays:
            await self.cancel()

    async def cancel(self) -> None:
        """End the run; its open calls get a result, its best answer is kept."""
        if self._task is None or self._ended.is_set():
            return
        self._told_to_end()
        await self._ended.wait()

    async def stop(self) -> None:
        """The process ends: a run that others can go on with is given back, any other one ends."""
        if self._ended.is_set() or self._task is None:
            return
        if not self.stays:
            await self.cancel()
            return
        self._task.cancel()
        await self._ended.wait()

    # ---- Log ----

    async def append(self, events: Sequence[Event], *, durable: bool = False) -> None:
        kept = await self._journal.append(self.id, self.row.epoch, events, durable=durable)
        self._seq = events[-1].seq
        if kept.cancel:
            self._told_to_end()

    def show(self, item: Event | Delta) -> None:
        self._journal.publish(self.id, item)
        for listener in self._listeners:
            listener.put(item)

    # ---- the work ----

    async def _work(self) -> None:
        try:
            async with self._journal.holding(self.id, self.row.epoch, self._told_to_end):
                await self._through()
        except Fenced:
            log.warning("run=%s goes on in another process", self.id)
            self._error = RunFailed("the run goes on in another process", code="run_moved")
            self.row = replace(self.row, status="failed")
        except StoreUnavailable as error:
            log.error("run=%s stops, the store does not answer: %s", self.id, error.message)
            self._error = error
            self.row = replace(self.row, status="failed")
        except Exception as error:
            log.exception("run=%s failed unexpectedly", self.id)
            self._error = RunFailed("the run failed; the log has the reason under its id")
            self.row = replace(self.row, status="failed", error={"message": str(type(error).__name__)})
        finally:
            self._ended.set()
            for listener in self._listeners:
                listener.news.set()

    def _told_to_end(self) -> None:
        if not self._cancelled and self._task is not None:
            self._cancelled = True
            self._task.cancel()

    async def _through(self) -> None:
        parts = self._parts
        tools, missing = await parts.tools()
        run = self._run = Run(self.id, parts.spec, parts.model, tools, self._asked, self, self._known)
        facts = parts.facts()
        run.reasons_natively, run.window, run.prices = facts.reasons, facts.window, facts.prices
        run.leg = max(1, sum(event.type == "run.started" and event.inner is None for event in self._known))
        run.step, run.earlier = self._before.get("steps", 0), Sum.of(self._before.get("usage", {}), self._before.get("cost"))
        try:
            told = {"agent": self.row.agent, "session_id": self.row.session_id, **({"warnings": list(missing)} if missing else {})}
            state = {"context": list(self._asked.context), "session": dict(self._asked.session), "fresh": list(self._fresh)}
            await run.emit("run.started", told, key="start", state=state, durable=True)
            outcome = await carry_out(run)
        except Paused as paused:
            await unbroken(self._wait(run, paused))
            return
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            if not self._cancelled:
                await self._journal.release(self.id, self.row.epoch)
                self.row = replace(self.row, status="queued")
                self._error = RunFailed("the gateway is shutting down; the run goes on later", code="shutting_down")
                return
            await close(run)
            run.output = run.best()
            await unbroken(self._end(run, Outcome("cancelled", error=RunCancelled("the run was cancelled"))))
            return
        await unbroken(self._end(run, outcome))

    async def _wait(self, run: Run, paused: Paused) -> None:
        expires = self._journal.now() + (paused.expires or run.agent.approval.timeout)
        waiting: Json = {"calls": paused.calls, "new": run.new}
        changes: dict[str, Any] = {"status": "waiting", "waiting": waiting, "wake_at": expires, **self._sums(run)}
        await self._journal.append(
            self.id, self.row.epoch, (), changes=changes, waits=[Wait(call["id"], expires) for call in paused.calls], after=self._seq, durable=True
        )
        self.row = replace(self.row, **changes)

    async def _end(self, run: Run, outcome: Outcome) -> None:
        self.finish, self._error = run.finish, outcome.error
        error = None if outcome.error is None else {key: value for key, value in outcome.error.body().items() if key in ("message", "type", "code", "attempts")}
        changes: dict[str, Any] = {
            "status": outcome.status,
            "reason": outcome.reason,
            "output": run.output,
            "reasoning": run.told(),
            "error": error,
            "waiting": None,
            "wake_at": None,
            **self._sums(run),
        }
        told = {"status": outcome.status, "reason": outcome.reason, "output": run.output}
        event = Event(self.id, self._seq + 1, "run.finished", run.step, told, run.place("end"), {"new": run.new}, self._journal.now(), self.agent.name)
        session = self._session.after(run) if self._session is not None else None
        await self._journal.append(self.id, self.row.epoch, (event,), changes=changes, session=session, durable=True)
        self._seq = event.seq
        self.row = replace(self.row, finished_at=event.time, **changes)
        self.show(event)

    def _sums(self, run: Run) -> dict[str, Any]:
        total = run.total()
        return {"usage": total.usage, "cost": total.cost, "steps": run.step}

    # ---- what it came to ----

    @property
    def usage(self) -> Json:
        """Tokens of all calls of the model so far."""
        return (self._run.total() if self._run is not None else Sum()).usage

    def failure(self) -> GatewayError:
        """Why there is nothing to show."""
        return self._error or RunFailed((self.row.error or {}).get("message") or "the run failed")

    def bill(self) -> RequestRow | None:
        """What the run used that no request pays for: one that went on in the background. None: nothing, or a request does."""
        run = self._run
        if run is None or self._accounted or not run.paid.turns:
            return None
        self._accounted = True
        usage, row = run.paid.usage, self.row
        details = [usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}]
        return RequestRow(
            id=row.id,
            time=self._began,
            endpoint="runs",
            model=f"agent/{row.agent}",
            status=200 if self._error is None else self._error.status,
            key=row.key_name or None,
            key_id=row.tenant or None,
            team=None,
            kind=None if self._error is None else getattr(self._error, "kind", None) or self._error.code,
            provider=run.provider,
            target_model=run.target_model,
            stream=False,
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
            completion_tokens=int(usage.get("completion_tokens") or 0),
            cached_tokens=int(details[0].get("cached_tokens") or 0),
            reasoning_tokens=int(details[1].get("reasoning_tokens") or 0),
            estimated=run.guessed,
            cost=run.paid.cost,
            first_token_ms=None,
            total_ms=round((time.time() - self._began) * 1000),
            attempts=run.attempts,
            transforms=[],
            run_id=row.id,
        )

    def record(self) -> RunRecord:
        """What the run came to since it was taken up."""
        run, row = self._run, self.row
        known = self._known[-1].seq if self._known else 0
        calls = [event for event in run.events("tool.finished") if event.seq > known] if run is not None else []
        return RunRecord(
            id=row.id,
            agent=row.agent,
            status=row.status,
            reason=row.reason,
            key=row.key_name or None,
            session=row.session_id,
            steps=max(run.step - self._steps, 0) if run is not None else 0,
            tools=[(self._known_tool(event), bool(event.data.get("ok"))) for event in calls],
            usage=dict(run.paid.usage) if run is not None else {},
            cost=run.paid.cost if run is not None else None,
            seconds=time.time() - self._began,
            alone=self.alone,
        )

    def _known_tool(self, event: Event) -> str:
        """The tool's name; models make names up, and those are no labels."""
        made_up = not event.data.get("ok") and str(event.data.get("output")).startswith("Error: there is no tool ")
        return "unknown" if made_up else str(event.data.get("name"))

    def account(self, record: Record) -> None:
        """Write into a request's record what the run used, once."""
        run = self._run
        if run is None or self._accounted:
            return
        self._accounted = True
        record.usage, record.cost = dict(run.paid.usage), run.paid.cost
        record.attempts += [Attempt(a["provider"], a["model"], a["class"], a["status"], a["ms"], a.get("message"), a.get("skipped")) for a in run.attempts]
        record.provider, record.target_model = run.provider, run.target_model
        record.tools += [str(event.data.get("name")) for event in run.events("tool.started")]


class Elsewhere:
    """A run that this request did not begin: it is in the queue, runs somewhere, or is over. Seen through the journal."""

    finish: str | None = None

    def __init__(self, row: RunRow, agent: config.Agent, journal: Journal) -> None:
        self.row = row
        self.id = row.id
        self.agent = agent
        self._journal = journal

    def listen(self) -> AsyncGenerator[Event | Delta]:
        return self._journal.follow(self.id, 0)

    async def done(self) -> RunRow:
        async with aclosing(self._journal.follow(self.id, self.row.last_seq)) as items:
            async for _ in items:
                pass
        self.row, _ = await self._journal.load(self.id)
        return self.row

    async def leave(self) -> None:
        """Nothing: it is not this request's run."""

    @property
    def usage(self) -> Json:
        return self.row.usage

    def failure(self) -> GatewayError:
        return RunFailed((self.row.error or {}).get("message") or "the run failed")

    def account(self, record: Record) -> None:
        """Nothing: whoever runs it pays for it."""


class _Listener:
    """Items that one reader has not read. Deltas that wait become one, so that a slow reader costs what it has missed, not more."""

    __slots__ = ("items", "news")

    def __init__(self) -> None:
        self.items: deque[Event | Delta] = deque()
        self.news = asyncio.Event()

    def put(self, item: Event | Delta) -> None:
        last = self.items[-1] if self.items else None
        if isinstance(item, Delta) and isinstance(last, Delta) and last.kind == item.kind:
            self.items[-1] = Delta(item.kind, last.text + item.text)
        else:
            self.items.append(item)
        self.news.set()
