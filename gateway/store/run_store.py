"""Agent runs and sessions as the rest of the gateway sees them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from gateway.store import runs, sessions
from gateway.store.engine import Engine
from gateway.store.rows import Json
from gateway.store.run_rows import Due, EventRow, RunPage, RunRow, SessionRow, Wait
from gateway.store.runs import Kept
from gateway.store.schema import claim

LEASE = 6.0
"""seconds that a run stays its owner's without a word from it"""


class Runs:
    """The journal's tables. Every method may raise StoreUnavailable; the same call may succeed later.

    `durable`: kept through a power cut too. Without, SQLite keeps it through the death of this process.
    """

    def __init__(self, engine: Engine, lease: float = LEASE) -> None:
        self.engine = engine
        self.lease = lease

    async def create(self, row: RunRow, owner: str | None = None) -> tuple[RunRow, bool]:
        """A new run, queued or at once `owner`'s; its state, times and epoch are given here.

        False: it is the one that the same idempotency key made before. Conflict `idempotency_conflict`:
        that was another request; Busy (`run_busy`): another run has the session.
        """
        return await self.engine.write(runs.create(self.engine.dialect, row, owner, self.lease), durable=True)

    async def fork(self, source: str, seq: int, row: RunRow, owner: str | None = None, last: EventRow | None = None) -> tuple[RunRow, bool]:
        """A new run that begins with the first `seq` events of another; `last` stands in place of the last of them."""
        return await self.engine.write(runs.fork(self.engine.dialect, source, seq, row, owner, self.lease, last), durable=True)

    async def run(self, id: str) -> RunRow | None:
        return await self.engine.read(runs.one(id))

    async def events(self, id: str, after: int = 0, limit: int = 1000) -> list[EventRow]:
        """Those that follow `after`, in order."""
        return await self.engine.read(runs.events(id, after, limit))

    async def head(self, id: str) -> tuple[int, str] | None:
        """The run's last seq and its status; None: there is none."""
        return await self.engine.read(runs.head(id))

    async def claim(self, id: str, owner: str, also: Sequence[str] = (), calls: Sequence[str] = (), rows: Sequence[EventRow] = ()) -> RunRow | None:
        """Become the run's owner in a new epoch. None: it is over, waits, or another holds it.

        `also`: further states in which it may be taken (`waiting`, `incomplete`), `calls`: the ids under
        which it waits, used up by this (Conflict `run_not_waiting`), `rows`: events with which it goes on.
        """
        return await self.engine.write(runs.claim(self.engine.dialect, id, owner, self.lease, also, calls, rows), durable=bool(also))

    async def append(
        self,
        id: str,
        epoch: int,
        after: int,
        rows: Sequence[EventRow],
        changes: Mapping[str, Any] = {},
        *,
        waits: Sequence[Wait] = (),
        session: Json | None = None,
        durable: bool = False,
    ) -> Kept:
        """Events numbered from `after` + 1, and changes of the run, all or nothing; holds it longer.

        `changes` are fields of RunRow. A status in which nobody works on the run gives it up, one that
        ends it frees its session too; `session` is the session's new state. Fenced: it is another's now.
        """
        return await self.engine.write(runs.append(self.engine.dialect, id, epoch, after, rows, changes, self.lease, waits, session), durable=durable)

    async def renew(self, id: str, epoch: int) -> bool:
        """Hold the run longer. Gives whether somebody wants it to end; Fenced: it is another's now."""
        return await self.engine.write(runs.renew(self.engine.dialect, id, epoch, self.lease))

    async def release(self, id: str, epoch: int) -> bool:
        """Give a run back to the queue. False: it was another's already."""
        return await self.engine.write(runs.release(self.engine.dialect, id, epoch))

    async def ask_cancel(self, id: str) -> RunRow | None:
        """Tell a run's owner to end it. Gives the run as it is now; None: there is none."""
        return await self.engine.write(runs.ask_cancel(self.engine.dialect, id))

    async def due(self, limit: int = 100) -> list[Due]:
        """Runs that somebody should take, the oldest first."""
        return await self.engine.read(runs.due(self.engine.dialect, limit))

    async def page(
        self,
        limit: int = 100,
        before: int | None = None,
        agent: str | None = None,
        key_name: str | None = None,
        status: str | None = None,
        tenant: str | None = None,
    ) -> RunPage:
        """The newest first, at most 1,000; `before` is the `next` of the page before."""
        return await self.engine.read(runs.page(limit, before, agent, key_name, status, tenant))

    async def retain(self, older_than: float | None = None, keep: int | None = None) -> int:
        """Delete runs that ended before that moment (unix seconds), and all but the newest `keep` of those that are over.

        Sessions stay. Gives the number of runs.
        """
        total = 0
        while gone := await self.engine.write(runs.forget(older_than, keep)):
            total += gone
        return total

    async def take_task(self, task: str, seconds: float) -> bool:
        """Take a task that all processes on this store do together once in so many seconds; False: another one has it."""
        return await self.engine.write(claim(self.engine.dialect, task, seconds))

    async def waiting(self, tenant: str, call_ids: Sequence[str]) -> RunRow:
        """The run that waits under all of these ids; Conflict `run_not_waiting`."""
        return await self.engine.read(runs.waiting(self.engine.dialect, tenant, call_ids))

    async def session(self, key: str) -> SessionRow | None:
        return await self.engine.read(sessions.load(key))

    async def save_session(self, row: SessionRow) -> SessionRow:
        """Write a session's state over the version that `row` has; Conflict `session_changed`: there is a newer one."""
        return await self.engine.write(sessions.save(self.engine.dialect, row))

    async def delete_session(self, key: str) -> bool:
        """False: there is none. Busy: a run has it."""
        return await self.engine.write(sessions.delete(self.engine.dialect, key), durable=True)

    async def clock(self) -> float:
        """The database's own, unix seconds: by it leases end."""
        return await self.engine.read(runs.clock(self.engine.dialect))

    @property
    def can_listen(self) -> bool:
        """Whether `listen` hears what other processes write."""
        return self.engine.dialect.notify is not None

    def listen(self) -> AsyncGenerator[tuple[str, int]]:
        """Run and last seq of every write of every process; first ("", 0), once the line stands. StoreUnavailable when it is cut."""
        return _heard(self.engine)


async def _heard(engine: Engine) -> AsyncGenerator[tuple[str, int]]:
    async with aclosing(engine.listen(runs.CHANNEL)) as line:
        async for text in line:
            run, _, seq = text.partition(" ")
            if seq.removeprefix("-").isdecimal() or not text:  # else somebody else's words on our channel
                yield run, int(seq or 0)
