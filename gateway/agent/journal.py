"""The journal of runs over the store: who may write to a run, what is in it, and who reads along.

Whoever claims a run writes to it until he loses it; every write is fenced by the epoch of
his claim. Readers replay from the store and then live on: in this process they are given
each event as it is kept (and pieces of text, which are never kept), on PostgreSQL they are
told by NOTIFY of what other replicas write, elsewhere they look.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

from gateway.agent.events import Delta, Event
from gateway.chat import Json, loads
from gateway.errors import GatewayError, NotFound
from gateway.store import EventRow, Fenced, Inline, Kept, RunPage, RunRow, Runs, SessionRow, SqlStore, StoreUnavailable, Wait, to_text
from gateway.store.run_rows import OVER

T = TypeVar("T")

log = logging.getLogger("thinkgate")

LOOK = 0.2
"""seconds between two looks of a reader whom nobody tells of writes"""
FAR = 2.0
"""the same where he is told: only against what got lost"""
PATIENCE = 12.0
"""seconds that a write is tried again while the store does not answer"""
_PAGE = 500
_MISSED = 1000  # items that a reader may be behind before he reads the store again instead
_AGAIN = 1.0  # seconds until the line to PostgreSQL is laid again


class Store(Protocol):
    """What a journal needs of a store."""

    runs: Runs

    async def aclose(self) -> None: ...


class Journal:
    """Runs and sessions in a store, for one process. Its methods raise StoreUnavailable when the store does not answer."""

    def __init__(self, store: Store, over: Callable[[RunRow, int], object] = lambda row, steps: None) -> None:
        """`over` is told of each run that is ended here and nobody runs, with the turns of the model that nobody has told of."""
        self.runs = store.runs
        self._over = over
        self.owner = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        """this process, in the runs that it holds"""
        self._readers: dict[str, set[_Reader]] = {}
        self._held: dict[str, _Hold] = {}
        self._skew = 0.0
        self._line: asyncio.Task[None] | None = None
        self._listening = False

    async def open(self) -> None:
        """Know the store's clock."""
        before = time.time()
        clock = await self.runs.clock()
        self._skew = clock - (before + time.time()) / 2

    def _attend(self) -> None:
        """Hear what other replicas write, from the first run or reader on: a gateway without agents needs no line."""
        if self._line is None and self.runs.can_listen:
            self._line = asyncio.create_task(self._listen(), name="journal")

    async def aclose(self) -> None:
        """Let go of the store, which stays open. Readers end."""
        line, self._line = self._line, None
        if line is not None:
            line.cancel()
            await asyncio.wait([line])
        for readers in list(self._readers.values()):
            for reader in readers:
                reader.close()

    def now(self) -> float:
        """Unix seconds by the store's clock, which leases and expiries are measured by."""
        return time.time() + self._skew

    def state(self) -> Json:
        """For `/readyz`: who this is, the runs that it holds, whether it hears the other replicas."""
        return {"owner": self.owner, "held": len(self._held), "readers": sum(map(len, self._readers.values())), "listening": self._listening}

    # ---- runs ----

    async def create(self, row: RunRow, owner: str | None = None) -> tuple[RunRow, bool]:
        """A new run, `owner`'s at once or queued; False: the one that the same idempotency key made before.

        Conflict `idempotency_conflict`: that key made another; Busy (`run_busy`): another run has the session.
        """
        return await self.runs.create(row, owner)

    async def row(self, id: str) -> RunRow:
        """NotFound if there is no such run."""
        row = await self.runs.run(id)
        if row is None:
            raise NotFound(f"there is no run {id}", code="run_not_found")
        return row

    async def load(self, id: str) -> tuple[RunRow, list[Event]]:
        """A run and all its events. NotFound if there is no such run."""
        row = await self.row(id)
        return row, await self.events(id, until=row.last_seq)

    async def events(self, id: str, after: int = 0, until: int | None = None) -> list[Event]:
        """What is kept of a run beyond `after`."""
        out: list[Event] = []
        while True:
            rows = await self.runs.events(id, after, _PAGE)
            out += [event_of(id, row) for row in rows if until is None or row.seq <= until]
            if len(rows) < _PAGE:
                return out
            after = rows[-1].seq

    async def claim(self, id: str, also: Sequence[str] = (), calls: Sequence[str] = (), events: Sequence[Event] = ()) -> RunRow | None:
        """Become a run's owner in a new epoch. None: it is over, waits, or another holds it.

        also    states besides queued and left-alone in which it may be taken: waiting, incomplete
        calls   the ids under which it waits, used up by this; Conflict `run_not_waiting`
        events  with which it goes on, kept in the same piece; their seq is given here
        """
        row = await self.runs.claim(id, self.owner, also, calls, [row_of(event) for event in events])
        if row is not None:
            self._wake(id)
        return row

    async def append(
        self,
        id: str,
        epoch: int,
        events: Sequence[Event],
        changes: Mapping[str, Any] = {},
        waits: Sequence[Wait] = (),
        session: Json | None = None,
        after: int | None = None,
        durable: bool = False,
    ) -> Kept:
        """Keep events and changes of a run that we hold, all or nothing. Fenced: it is another's now.

        changes  fields of RunRow; a status that ends the run frees its session too
        waits    ids under which the run can be gone on with
        session  the new state of its session
        after    the last seq so far, where there are no events to say it
        durable  through a power cut too

        A store that does not answer is asked again for a while; what was kept the first time is not kept twice.
        """
        first = events[0].seq - 1 if events else after
        if first is None:
            raise ValueError("a write without events must say what it follows")
        rows = [row_of(event) for event in events]
        kept = await self._insist(lambda: self.runs.append(id, epoch, first, rows, changes, waits=waits, session=session, durable=durable))
        if (hold := self._held.get(id)) is not None:
            hold.renewed = time.monotonic()
            hold.over = changes.get("status", "running") != "running"
        if changes:
            self._wake(id)
        return kept

    async def _insist(self, write: Callable[[], Awaitable[T]]) -> T:
        last, pause = time.monotonic() + PATIENCE, 0.05
        while True:
            try:
                return await write()
            except StoreUnavailable:
                if time.monotonic() + pause > last:
                    raise
            await asyncio.sleep(pause)
            pause = min(pause * 2, 1.0)

    @asynccontextmanager
    async def holding(self, id: str, epoch: int, cancelled: Callable[[], None]) -> AsyncGenerator[None]:
        """Keep a claimed run ours while the block runs; `cancelled` is called when somebody wants the run to end.

        When another took the run, the block is cancelled, and Fenced comes out of it.
        """
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a run is held by a task")
        self._attend()
        hold = self._held[id] = _Hold(epoch, cancelled, task)
        beat = asyncio.create_task(self._beat(id, hold), name=f"lease of {id}")
        self._wake(id)
        try:
            yield
            if hold.lost:
                task.uncancel()
        except asyncio.CancelledError:
            if not hold.lost or task.uncancel() > 0:
                raise
        finally:
            beat.cancel()
            if self._held.get(id) is hold:
                del self._held[id]
            self._wake(id)
        if hold.lost:
            raise Fenced(f"another process runs {id}")

    async def _beat(self, id: str, hold: _Hold) -> None:
        every = self.runs.lease / 3
        while True:
            await asyncio.sleep(max(0.0, hold.renewed + every - time.monotonic()) or every)
            if time.monotonic() - hold.renewed < every * 0.9:
                continue  # a write has held it meanwhile
            try:
                wanted = await self.runs.renew(id, hold.epoch)
            except Fenced:
                if not hold.over:
                    hold.lost = True
                    hold.task.cancel()
                return
            except StoreUnavailable as error:
                log.warning("run=%s could not be held: %s", id, error.message)
                await asyncio.sleep(every / 4)
                continue
            hold.renewed = time.monotonic()
            if wanted:
                hold.cancelled()

    async def release(self, id: str, epoch: int) -> bool:
        """Give a run back to the queue. False: it was another's already."""
        if (hold := self._held.get(id)) is not None:
            hold.over = True
        given = await self.runs.release(id, epoch)
        self._wake(id)
        return given

    async def finish(self, row: RunRow, status: str, reason: str | None = None, error: Json | None = None, output: str | None = None) -> RunRow:
        """End a run that we have claimed and that nobody runs, with its last event. Gives it as it is then."""
        events = await self.events(row.id)
        legs = max(1, sum(event.type == "run.started" and event.inner is None for event in events))
        output = row.output if output is None else output
        told: Json = {"status": status, "reason": reason, "output": output}
        key = "end" if legs == 1 else f"{legs}:end"
        event = Event(row.id, row.last_seq + 1, "run.finished", events[-1].step if events else 0, told, key, None, self.now(), row.agent)
        changes = {"status": status, "reason": reason, "error": error, "output": output, "waiting": None, "wake_at": None}
        await self.append(row.id, row.epoch, (event,), changes, durable=True)
        self.publish(row.id, event)
        ended = await self.row(row.id)
        self._over(ended, max(event.step - row.steps, 0))
        return ended

    async def fail(self, row: RunRow, message: str, code: str | None = None) -> RunRow:
        """End a claimed run that cannot go on."""
        return await self.finish(row, "failed", error={"message": message, "type": "server_error", "code": code})

    async def bury(self, id: str, poison: bool) -> RunRow | None:
        """End a run whose process died and that nobody goes on with, or that took too many processes with it (`poison`).

        Its best answer so far stays. None: it was not left alone.
        """
        row = await self.claim(id)
        if row is None:
            return None
        message = f"{row.attempts} processes died with it" if poison else "its process died"
        return await self.finish(row, "failed" if poison else "incomplete", "crash", {"message": message, "type": "server_error", "code": "crash"})

    async def cancel(self, row: RunRow) -> RunRow:
        """End a run that waits or is queued; one that runs by now is told to end."""
        claimed = await self.claim(row.id, also=("waiting",))
        if claimed is None:
            return await self.ask_cancel(row.id) or row
        return await self.finish(claimed, "cancelled")

    async def ask_cancel(self, id: str) -> RunRow | None:
        """Tell whoever holds a run to end it. Gives the run as it is now; None: there is none."""
        row = await self.runs.ask_cancel(id)
        if row is not None and row.status == "running" and (hold := self._held.get(id)) is not None:
            hold.cancelled()
        return row

    async def fork(self, source: str, seq: int, row: RunRow, last: Event | None = None) -> RunRow:
        """A new queued run with the first `seq` events of another; `last` stands in place of the last of them."""
        made, _ = await self.runs.fork(source, seq, row, None, None if last is None else row_of(last))
        return made

    async def waiting(self, tenant: str, call_ids: Sequence[str]) -> RunRow:
        """The run that waits under all of these ids; Conflict `run_not_waiting`."""
        return await self.runs.waiting(tenant, call_ids)

    async def page(
        self, limit: int = 100, before: int | None = None, agent: str | None = None, key_name: str | None = None, status: str | None = None
    ) -> RunPage:
        """Runs, the newest first."""
        return await self.runs.page(limit, before, agent, key_name, status)

    # ---- sessions ----

    async def session(self, key: str) -> SessionRow | None:
        return await self.runs.session(key)

    async def save_session(self, row: SessionRow) -> SessionRow:
        """Conflict `session_changed`: there is a newer version than `row`'s."""
        return await self.runs.save_session(row)

    async def delete_session(self, key: str) -> bool:
        """False: there is none. Busy: a run has it."""
        return await self.runs.delete_session(key)

    # ---- reading along ----

    def publish(self, id: str, item: Event | Delta) -> None:
        """Give an event that is kept, or a piece of text that never is, to the readers in this process."""
        for reader in self._readers.get(id, ()):
            reader.put(item)

    async def follow(self, id: str, after: int = 0) -> AsyncGenerator[Event | Delta]:
        """The events beyond `after`, those to come too, until the run is over; what is said meanwhile in this process, as Deltas.

        A reader that does not keep up costs nobody but himself. Nothing for a run that does not exist.
        """
        self._attend()
        reader = _Reader()
        self._readers.setdefault(id, set()).add(reader)
        try:
            async with aclosing(self._read(id, after, reader)) as items:
                async for item in items:
                    yield item
        finally:
            self._readers[id].discard(reader)
            if not self._readers[id]:
                del self._readers[id]

    async def _read(self, id: str, after: int, reader: _Reader) -> AsyncGenerator[Event | Delta]:
        look = True
        while not reader.closed:
            while reader.items and not look:  # before the store is asked, so that texts stay where they belong
                item = reader.items.popleft()
                if isinstance(item, Delta):
                    yield item
                elif item.seq == after + 1:
                    after = item.seq
                    yield item
                    look = item.type == "run.finished"
                else:
                    look = item.seq > after  # one was not told
            if not look and not reader.behind:
                look = not await reader.news(self._interval(id))
                continue
            look = reader.behind = False
            head = await self._insist(partial(self.runs.head, id))
            if head is None:
                return
            while after < head[0]:
                for row in await self._insist(partial(self.runs.events, id, after, _PAGE)):
                    after = row.seq
                    yield event_of(id, row)
            if head[1] in OVER:
                return

    def _interval(self, id: str) -> float:
        return FAR if self._listening or id in self._held else LOOK

    def _wake(self, id: str) -> None:
        for reader in self._readers.get(id, ()):
            reader.look()

    async def _listen(self) -> None:
        deaf = False
        while True:
            try:
                async with aclosing(self.runs.listen()) as line:
                    async for id, seq in line:
                        if not id:  # from here on nothing is missed
                            if deaf:
                                log.warning("this replica hears the others again")
                            self._listening, deaf = True, False
                            for readers in self._readers.values():
                                for reader in readers:
                                    reader.look()
                        elif (hold := self._held.get(id)) is None:
                            self._wake(id)
                        elif seq < 0:
                            hold.cancelled()
            except Exception as error:  # whatever it is, the next line may hold
                if not deaf:
                    known = isinstance(error, GatewayError)
                    log.warning("this replica does not hear the others, it looks instead: %s", error, exc_info=not known)
                deaf = True
            self._listening = False
            await asyncio.sleep(_AGAIN)


class MemoryJournal(Journal):
    """A journal in memory, without a thread: for the library, which keeps its runs no longer than its process. The newest `keep` that are over stay."""

    def __init__(self, keep: int = 100) -> None:
        self._store = SqlStore(Inline())
        super().__init__(self._store)
        self._keep = keep

    async def append(self, id: str, epoch: int, events: Sequence[Event], changes: Mapping[str, Any] = {}, *args: Any, **named: Any) -> Kept:
        kept = await super().append(id, epoch, events, changes, *args, **named)
        if changes.get("status") in OVER:
            await self.runs.retain(keep=self._keep)
        return kept

    async def aclose(self) -> None:
        await super().aclose()
        await self._store.aclose()


class _Hold:
    """A run that this process holds. `renewed` is when it last said so, `over`: it let go of it, `lost`: another took it."""

    __slots__ = ("cancelled", "epoch", "lost", "over", "renewed", "task")

    def __init__(self, epoch: int, cancelled: Callable[[], None], task: asyncio.Task[Any]) -> None:
        self.epoch = epoch
        self.cancelled = cancelled
        self.task = task
        self.renewed = time.monotonic()
        self.lost = False
        self.over = False


class _Reader:
    """What one reader has not taken yet. `behind`: he must look into the store."""

    __slots__ = ("_news", "behind", "closed", "items")

    def __init__(self) -> None:
        self.items: deque[Event | Delta] = deque()
        self.behind = False
        self.closed = False
        self._news = asyncio.Event()

    def put(self, item: Event | Delta) -> None:
        last = self.items[-1] if self.items else None
        if isinstance(item, Delta) and isinstance(last, Delta) and last.kind == item.kind:
            self.items[-1] = Delta(item.kind, last.text + item.text)
        elif len(self.items) >= _MISSED:
            self.items.clear()
            self.behind = True
        else:
            self.items.append(item)
        self._news.set()

    def look(self) -> None:
        self.behind = True
        self._news.set()

    def close(self) -> None:
        self.closed = True
        self._news.set()

    async def news(self, seconds: float) -> bool:
        """Whether something came within that time."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True


def row_of(event: Event) -> EventRow:
    """An event as the store keeps it. Whose it is inside the run stands beside it where it is a sub-agent's."""
    origin = to_text([event.agent, event.inner, event.parent]) if event.agent or event.inner is not None else None
    state = None if event.state is None else to_text(event.state)
    return EventRow(event.seq, event.type, event.step, to_text(event.data), event.key, state, origin, event.time or time.time())


def event_of(run_id: str, row: EventRow) -> Event:
    agent, inner, parent = loads(row.origin) if row.origin is not None else ("", None, None)
    state = None if row.state is None else loads(row.state)
    return Event(run_id, row.seq, row.type, row.step, loads(row.data), row.key, state, row.time, agent, inner, parent)
