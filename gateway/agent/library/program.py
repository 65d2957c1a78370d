"""The agents of a config for a program in the same process: the same runs as a server's, over the same store."""

from __future__ import annotations

import asyncio
import atexit
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from typing import Any, Protocol, TypeVar

from gateway import config
from gateway.agent.endings import RunNotWaiting
from gateway.agent.events import Delta, Event
from gateway.agent.library.closing import Closing
from gateway.agent.library.portal import Portal
from gateway.agent.library.work import Answer, ApprovalRequired, Approve, PendingCall, verdict
from gateway.agent.live import Elsewhere, Live
from gateway.agent.orders import PASSED_ON, Order, answers_message, messages_of, session_id
from gateway.agent.runs import Runs
from gateway.agent.served import shown
from gateway.chat import Json
from gateway.errors import NotFound

T = TypeVar("T")


class Opening(Protocol):
    """Who has runs, and what they need."""

    config: config.Config
    runs: Runs

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Everything that runs need, for as long as the context lasts."""
        ...


class Program(Closing):
    """All agents of a config. Opened by the first call, closed by `close` or the end of a `with`, once.

    Everything runs in a thread of its own, so plain and async calls, from any loop, can be mixed.
    """

    def __init__(self, gate: Opening) -> None:
        self.agents: Mapping[str, config.Agent] = dict(gate.config.agents)
        self._house = _House(gate)
        weakref.finalize(self, self._house.close)

    def agent(self, name: str) -> ConfiguredAgent:
        """One of the agents. NotFound names those that there are."""
        if name not in self.agents:
            known = ", ".join(self.agents) or "none"
            raise NotFound(f'there is no agent "{name}"{config.suggest(name, self.agents) or "."} The config has: {known}', code="model_not_found")
        return ConfiguredAgent(self.agents[name], self._house, self)

    def close(self) -> None:
        """End what runs (what others can go on with is given back), close the store and all connections."""
        self._house.close()

    async def aclose(self) -> None:
        """The same without holding up the caller's loop."""
        if self._house.inside():
            self._house.close()
        else:
            await asyncio.to_thread(self._house.close)


class ConfiguredAgent:
    """One agent of a config. Its runs are journaled, take part in sessions, and outlive what is said of them in the config.

    Options of all runs: `session`, the id of a conversation that is gone on with; `approve`, who is asked where the config
    wants a person's word (without it such a run raises ApprovalRequired, waits, and goes on with `approve`); the pattern's
    own (steps, max_reflections, auto_finish, prompts); fields of every request to the model (temperature, ...).
    """

    def __init__(self, spec: config.Agent, house: _House, program: Program) -> None:
        self.name = spec.name
        self.spec = spec
        self._house = house
        self._program = program  # which is closed when nobody knows it any more

    def run(self, task: str | Sequence[Json], *, session: str | None = None, approve: Approve | None = None, **options: Any) -> Answer:
        """The answer; the best there is where a limit or an outage ended the run.

        `task` is a text, or messages; in a session a text is new, messages may be its whole history too, edited or not.

        Raises ApprovalRequired, Conflict (`run_busy`: the session has a run), InvalidRequest, and what leaves nothing to show.
        """
        return self._house.portal.call(lambda: self.arun(task, session=session, approve=approve, **options))

    async def arun(self, task: str | Sequence[Json], *, session: str | None = None, approve: Approve | None = None, **options: Any) -> Answer:
        """As `run`."""
        return await self._whole(_Talk(self._order(task, session, options), approve))

    def stream(self, task: str | Sequence[Json], *, session: str | None = None, approve: Approve | None = None, **options: Any) -> Generator[str]:
        """The answer in pieces, as they come. What `run` raises ends it. Whoever stops early ends a run that has no session."""
        return self._house.portal.iterate(lambda: self.astream(task, session=session, approve=approve, **options))

    async def astream(self, task: str | Sequence[Json], *, session: str | None = None, approve: Approve | None = None, **options: Any) -> AsyncGenerator[str]:
        """As `stream`."""
        talk, told = _Talk(self._order(task, session, options), approve), False
        async with aclosing(self._items(talk)) as items:
            async for item in items:
                if isinstance(item, Delta) and item.kind == "content":
                    told = True
                    yield item.text
        answer = talk.answer()
        if answer and not told:
            yield answer

    async def events(
        self, task: str | Sequence[Json], *, session: str | None = None, approve: Approve | None = None, **options: Any
    ) -> AsyncGenerator[Event | Delta]:
        """Everything that happens, as far as the config lets it be seen: events, and the pieces of answer and thoughts between them."""
        talk = _Talk(self._order(task, session, options), approve)
        async with aclosing(self._items(talk)) as items:
            async for item in items:
                yield item
        talk.answer()

    # ---- runs that wait ----

    def approve(self, run: str | ApprovalRequired, approved: bool = True, *, arguments: Json | None = None, reason: str | None = None) -> Answer:
        """Say yes or no to what a run waits for (its id, or the error that told of it), and give its answer when it has gone on.

        arguments  instead of those that the agent wrote
        reason     what the agent is told, where it is a no

        RunNotWaiting (409) if it waits for nothing; also in another process than the one that began it.
        """
        return self._house.portal.call(lambda: self.aapprove(run, approved, arguments=arguments, reason=reason))

    async def aapprove(self, run: str | ApprovalRequired, approved: bool = True, *, arguments: Json | None = None, reason: str | None = None) -> Answer:
        """As `approve`."""
        ident = run if isinstance(run, str) else run.run_id
        said = {name: value for name, value in (("approved", approved), ("arguments", arguments), ("reason", reason)) if value is not None}
        answers = [answers_message(call.id, said) for call in await self.apending(ident)]
        if not answers:
            raise RunNotWaiting(f"run {ident} waits for no approval")
        return await self._whole(_Talk(Order(agent=self.name, messages=answers, answers=answers), None))

    def pending(self, run_id: str) -> list[PendingCall]:
        """What a run waits for. NotFound if there is no such run."""
        return self._house.portal.call(lambda: self.apending(run_id))

    async def apending(self, run_id: str) -> list[PendingCall]:
        """As `pending`."""

        async def look(runs: Runs) -> list[PendingCall]:
            row = await runs.row(run_id, "")
            return [PendingCall.of(call) for call in (row.waiting or {}).get("calls", ()) if call["kind"] == "approval"]

        return await self._house.do(look)

    # ---- sessions ----

    def session(self, id: str) -> Json:
        """What a session holds: messages, summary, thoughts, todos, plan. NotFound if there is none."""
        return self._house.portal.call(lambda: self.asession(id))

    async def asession(self, id: str) -> Json:
        """As `session`."""
        return await self._house.do(lambda runs: runs.session("", id, self.name))

    def forget(self, id: str) -> None:
        """Delete a session. NotFound if there is none."""
        self._house.portal.call(lambda: self.aforget(id))

    async def aforget(self, id: str) -> None:
        """As `forget`."""
        await self._house.do(lambda runs: runs.forget_session("", id, self.name))

    # ---- how ----

    def _order(self, task: str | Sequence[Json], session: str | None, options: Mapping[str, Any]) -> Order:
        messages = messages_of(task if isinstance(task, str) else [dict(message) for message in task])
        parameters = {name: value for name, value in options.items() if name in PASSED_ON}
        own = {name: value for name, value in options.items() if name not in PASSED_ON}
        return Order(agent=self.name, messages=messages, parameters=parameters, options=own, session_id=session_id(session), appends=isinstance(task, str))

    async def _whole(self, talk: _Talk) -> Answer:
        async with aclosing(self._items(talk)) as items:
            async for _ in items:
                pass
        return talk.answer()

    async def _items(self, talk: _Talk) -> AsyncGenerator[Event | Delta]:
        """A run to its end, whoever has to be asked meanwhile."""
        while True:
            async with aclosing(self._house.portal.aiterate(lambda: self._leg(talk))) as items:
                async for item in items:
                    yield item
            calls = talk.pending()
            if not calls:
                return
            if talk.approve is None:
                raise ApprovalRequired(calls[0].run_id, calls)
            answers = [answers_message(call.id, await verdict(talk.approve, call)) for call in calls]
            talk.order = Order(agent=self.name, messages=answers, answers=answers)

    async def _leg(self, talk: _Talk) -> AsyncGenerator[Event | Delta]:
        """A run until it ends or waits, in the house's loop."""
        runs = await self._house.open()
        live = talk.live = await runs.begin(talk.order)
        if isinstance(live, Live):
            live.alone = True  # no request pays for it
        visibility = live.agent.thinking.visibility
        thoughts = {"full": "reasoning", "summary": "summary"}.get(visibility)
        try:
            async with aclosing(live.listen()) as items:
                async for item in items:
                    if isinstance(item, Event):
                        if (seen := shown(item, visibility)) is not None:
                            yield seen
                    elif item.kind in ("content", thoughts):
                        yield item
        finally:
            await live.leave()


class _Talk:
    """One task of a program's: its order, who is asked, and the run that came of it."""

    def __init__(self, order: Order, approve: Approve | None) -> None:
        self.order = order
        self.approve = approve
        self.live: Live | Elsewhere | None = None

    def pending(self) -> list[PendingCall]:
        row = self.live.row if self.live is not None else None
        calls = (row.waiting or {}).get("calls", ()) if row is not None and row.status == "waiting" else ()
        return [PendingCall.of(call) for call in calls]

    def answer(self) -> Answer:
        """What the run came to. Raises what it failed with, where there is nothing to show."""
        assert self.live is not None
        row = self.live.row
        if row.status in ("failed", "cancelled") or (row.status == "incomplete" and not row.output):
            raise self.live.failure()
        return Answer.of(row.output or "", row.id, row.status, row.reason, row.reasoning or "", row.usage, row.cost, row.steps)


_HOUSES: weakref.WeakSet[_House] = weakref.WeakSet()
"""those that are not closed"""


def _close_all() -> None:
    """The process ends: what is open is closed while threads can still do it."""
    for house in list(_HOUSES):
        house.close()


# atexit's functions are called when the thread pools, and so the store, take no more work; concurrent.futures registers itself here too
getattr(threading, "_register_atexit", atexit.register)(_close_all)


class _House:
    """What is open, and the loop in which it is."""

    def __init__(self, gate: Opening) -> None:
        self._portal = Portal()
        self._gate = gate
        self._lock = asyncio.Lock()
        self._stack: AsyncExitStack | None = None
        self._closed = False
        _HOUSES.add(self)

    def inside(self) -> bool:
        """Whether the caller is in the house's own thread."""
        return self._portal.inside()

    @property
    def portal(self) -> Portal:
        """The way into its loop. RuntimeError when it is closed."""
        if self._closed:
            raise RuntimeError("the program is closed; load the config again")
        if self._portal.elsewhere:
            raise RuntimeError("the process was forked after the first call; load the config in the new process")
        return self._portal

    async def open(self) -> Runs:
        """The runs, in the house's own loop."""
        async with self._lock:
            if self._stack is None:
                stack = AsyncExitStack()
                await stack.enter_async_context(self._gate.opened())
                self._stack = stack
        return self._gate.runs

    async def do(self, work: Callable[[Runs], Coroutine[Any, Any, T]]) -> T:
        """Something with the runs, for a caller in any loop."""

        async def done() -> T:
            return await work(await self.open())

        return await self.portal.acall(done)

    def close(self) -> None:
        if self.inside():  # the last who knew the program was a call of its own, and that one cannot wait for itself
            threading.Thread(target=self.close, name="thinkgate library ends").start()
        elif not self._closed:
            self._closed = True
            _HOUSES.discard(self)
            if self._stack is not None and not self._portal.elsewhere:
                self._portal.call(self._stack.aclose)
            self._portal.close()
