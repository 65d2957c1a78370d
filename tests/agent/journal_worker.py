"""A process that runs tiny scripted runs from a journal, to be killed, frozen and stopped by tests.

    python journal_worker.py URL FOLDER LOG LEASE        works until SIGTERM
    python journal_worker.py URL FOLDER LOG LEASE matrix  makes a process for each point of a run at which it then kills itself

A run does its `input["steps"]` steps, each a line in LOG and then an event. The line is what
a step does outside: what stands there twice was done twice.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from gateway.agent.events import Event
from gateway.agent.journal import Journal
from gateway.agent.work import Work
from gateway.store import Fenced, RunRow, open_store

STEPS = 3
POINTS = [(when, step) for step in range(1, STEPS + 2) for when in ("before", "after")]
"""kill points of the matrix: around each append, the last one's is the end"""


class Worker:
    def __init__(self, url: str, folder: str, log: str, lease: float, die_at: tuple[str, int] | None = None) -> None:
        self.url, self.folder, self.log, self.lease, self.die_at = url, folder, log, lease, die_at
        self.live: dict[str, asyncio.Task[None]] = {}

    def note(self, *words: object) -> None:
        handle = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(handle, (" ".join(map(str, (os.getpid(), *words))) + "\n").encode())
        os.close(handle)

    def point(self, when: str, step: int) -> None:
        if self.die_at == (when, step):
            os.kill(os.getpid(), signal.SIGKILL)

    async def open(self) -> None:
        self.store = await open_store(self.url, Path(self.folder))
        self.store.runs.lease = self.lease
        self.journal = Journal(self.store)
        await self.journal.open()

    async def serve(self) -> None:
        await self.open()
        work = Work(self.store, self.journal, self.resume, concurrency=3)
        await work.open()
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        self.note("-", "ready", 0)
        await stop.wait()
        await work.aclose()
        for task in list(self.live.values()):
            task.cancel()
        await asyncio.gather(*self.live.values(), return_exceptions=True)
        await self.journal.aclose()
        await self.store.aclose()

    async def resume(self, id: str) -> None:
        row = await self.journal.claim(id)
        if row is None:
            return
        task = self.live[id] = asyncio.create_task(self.run(row))
        task.add_done_callback(lambda _: self.live.pop(id, None))
        await asyncio.wait([task])

    async def run(self, row: RunRow) -> None:
        try:
            async with self.journal.holding(row.id, row.epoch, lambda: None):
                await self.steps(row)
        except Fenced:
            self.note(row.id, "fenced", row.epoch)
        except asyncio.CancelledError:
            self.note(row.id, "released", await self.journal.release(row.id, row.epoch))

    async def steps(self, row: RunRow) -> None:
        known = await self.journal.events(row.id)
        steps = row.input["steps"]
        for step in range(len(known) + 1, steps + 2):
            last = step == steps + 1
            self.note(row.id, "work", step)
            await asyncio.sleep(row.input["delay"])
            event = Event(row.id, step, "run.finished" if last else "thought", step, {"step": step}, str(step), {"epoch": row.epoch}, agent=row.agent)
            self.point("before", step)
            await self.journal.append(row.id, row.epoch, [event], {"status": "completed", "output": "done"} if last else {"steps": step}, durable=last)
            self.point("after", step)
            self.journal.publish(row.id, event)


async def die(worker: Worker, id: str) -> None:
    """Run one run until its point is reached."""
    await worker.open()
    made, _ = await worker.journal.create(RunRow(id, "tiny", detached=True, input={"steps": STEPS, "delay": 0}), worker.journal.owner)
    await worker.run(made)


def matrix(arguments: tuple[str, str, str, float]) -> None:
    for number, point in enumerate(POINTS):
        child = os.fork()
        if child == 0:
            asyncio.run(die(Worker(*arguments, die_at=point), f"run_{number}"))
            os._exit(1)  # the point was not reached
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            sys.exit(f"{point} was not reached")


if __name__ == "__main__":
    url, folder, log, lease, *mode = sys.argv[1:]
    if mode:
        matrix((url, folder, log, float(lease)))
    else:
        asyncio.run(Worker(url, folder, log, float(lease)).serve())
