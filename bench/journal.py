"""What the journal of agent runs costs: time per step, without a model.

    python -m bench.journal                       SQLite, in a folder of its own
    python -m bench.journal postgresql://...      that server too

A step is one append: the lease renewed, an event of 200 bytes kept, one transaction. CPU is
this process's, over all its threads; `hop` is what handing anything to the store's thread
and back costs, and is part of every figure of the file.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from gateway.agent.events import Event
from gateway.agent.journal import Journal, MemoryJournal
from gateway.store import RunRow, open_store

STEPS = 500
ROUNDS = 7
SMALL, LARGE = "x" * 150, "x" * 64 * 1024


async def measure(step: Callable[[], Awaitable[object]], steps: int = STEPS) -> tuple[float, float]:
    """Milliseconds of wall and of CPU time per step: the best round, which others on the machine disturbed least."""
    walls, cpus = [], []
    for _ in range(ROUNDS):
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(steps):
            await step()
        walls.append((time.perf_counter() - wall) / steps * 1000)
        cpus.append((time.process_time() - cpu) / steps * 1000)
    return min(walls), min(cpus)


class Writer:
    """A run that does nothing but write."""

    def __init__(self, journal: Journal, id: str, text: str = SMALL, durable: bool = False, count: int = 1) -> None:
        self.journal, self.id, self.text, self.durable, self.count = journal, id, text, durable, count
        self.seq = 0

    async def step(self) -> None:
        events = []
        for _ in range(self.count):
            self.seq += 1
            events.append(Event(self.id, self.seq, "thought", 1, {"thought": self.text}, str(self.seq), None, 1.0, "bench"))
        await self.journal.append(self.id, 1, events, durable=self.durable)


async def writing(journal: Journal, id: str, text: str = SMALL, durable: bool = False, count: int = 1, steps: int = STEPS) -> tuple[float, float]:
    await journal.create(RunRow(id, "bench"), journal.owner)
    return await measure(Writer(journal, id, text, durable, count).step, steps)


def show(what: str, figures: tuple[float, float]) -> None:
    print(f"{what:<44}{figures[0]:>9.3f} ms wall{figures[1]:>9.3f} ms CPU")


async def over_store(name: str, url: str, folder: Path) -> None:
    store = await open_store(url, folder)
    journal = Journal(store)
    await journal.open()
    if url.startswith("sqlite"):
        loop = asyncio.get_running_loop()
        show(f"{name}: the hop to the thread alone", await measure(lambda: loop.run_in_executor(store.engine._writer._thread, int)))  # type: ignore[attr-defined]
    show(f"{name}: one event", await writing(journal, f"{name} one"))
    show(f"{name}: ten events at once", await writing(journal, f"{name} ten", count=10, steps=100))
    show(f"{name}: one of 64 KiB", await writing(journal, f"{name} large", LARGE, steps=50))
    show(f"{name}: one, through a power cut", await writing(journal, f"{name} durable", durable=True, steps=50))
    await journal.aclose()
    await store.aclose()


async def main(urls: list[str]) -> None:
    memory = MemoryJournal()
    show("in memory (the library): one event", await writing(memory, "memory"))
    await memory.aclose()
    with tempfile.TemporaryDirectory() as folder:
        await over_store("SQLite", "sqlite:///bench.db", Path(folder))
        for url in urls:
            await over_store("PostgreSQL", url, Path(folder))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
