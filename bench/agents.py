"""What the runtime of agents costs, without a model: CPU per step, the journal's writes, memory of idle sessions.

    python -m bench.agents                       SQLite, in a folder of its own
    python -m bench.agents --quick               does it run? small numbers

A step is one turn of the model, the call that it makes and the observation: a request to the
chain, the tool's arguments checked, all its events in the journal. The model answers at once,
from memory; building its answer is measured alone and taken off. CPU is this process's, over
all its threads.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import uvloop

from gateway import config
from gateway.agent import Agents, Event, Order, Runs
from gateway.agent.agents import Facts, Parts
from gateway.agent.tools.calculator import Calculator
from gateway.agent.tools.registry import Registry
from gateway.chat import Attempt, Chunk, Json, Request
from gateway.config.agents import AgentLimits
from gateway.store import open_store

STEPS = 20
PROMISED_CPU, PROMISED_MEMORY = 1.0, 20.0
"""milliseconds per step, KiB per idle session"""
SYSTEM = "You are a careful assistant. " * 20


class AtOnce:
    """A model that calls the calculator until it is told to answer."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    async def generate(self, request: Request) -> AsyncGenerator[Chunk]:
        body = request.body.fresh()
        done = sum(message["role"] == "tool" for message in body["messages"])
        request.record.attempts.append(Attempt("bench", "model", None, 200, 1))
        request.record.provider, request.record.target_model = "bench", "model"
        request.record.usage = {"prompt_tokens": 500, "completion_tokens": 20, "total_tokens": 520}
        request.record.cost = 0.0001
        if done >= self._steps:
            yield chunk({"role": "assistant", "content": "It is done, and this is the whole answer."}, "stop")
            return
        entry = {
            "index": 0,
            "id": f"call_{done}",
            "type": "function",
            "function": {"name": "calculator", "arguments": json.dumps({"expression": f"{done} + 1"})},
        }
        yield chunk({"role": "assistant", "content": None, "reasoning_content": "The next sum is due. " * 5, "tool_calls": [entry]}, "tool_calls")


def chunk(delta: Json, finish: str) -> Chunk:
    value = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return Chunk(json.dumps(value).encode(), content=True, json=value)


def agents(steps: int) -> Agents:
    spec = config.Agent("bench", "simple", "m", SYSTEM, limits=AgentLimits(steps=steps + 1))
    model = AtOnce(steps)
    return Agents({"bench": Parts(spec, model, Registry([Calculator()]))}, lambda name: (model, Facts))


class World:
    """Runs over a store in a folder."""

    def __init__(self, steps: int, url: str, folder: Path) -> None:
        self.runs = Runs()
        self.runs.use(agents(steps))
        self._url, self._folder = url, folder

    async def __aenter__(self) -> World:
        self.store = await open_store(self._url, self._folder)
        await self.runs.open(self.store)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.runs.aclose()
        await self.store.aclose()

    async def run(self, session: str | None = None, text: str = "How much is it?") -> str:
        live = await self.runs.begin(Order("bench", [{"role": "user", "content": text}], session_id=session))
        row = await live.done()
        if row.status != "completed":
            raise RuntimeError(f"a run ended as {row.status}: {row.error}")
        return row.id


async def per_step(world: World, runs: int, steps: int) -> tuple[float, float]:
    """Milliseconds of CPU and of wall time per step, the least of some rounds."""
    await world.run()  # what is loaded when first needed
    cpus, walls = [], []
    for _ in range(7):
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(runs):
            await world.run()
        cpus.append((time.process_time() - cpu) * 1000 / (runs * steps))
        walls.append((time.perf_counter() - wall) * 1000 / (runs * steps))
    return min(cpus), min(walls)


async def of_the_model(steps: int, runs: int) -> float:
    """Milliseconds of CPU that the model itself takes per step."""
    from gateway.chat import Body, Record, dumps

    model, messages = AtOnce(steps), [{"role": "user", "content": "x"}]
    raw = dumps({"model": "m", "messages": messages})
    started = time.process_time()
    for _ in range(runs * steps):
        async for _ in model.generate(Request(Body(raw), "m", Record(id="x", model="m"), stream=True)):
            pass
    return (time.process_time() - started) * 1000 / (runs * steps)


async def writes(world: World, runs: int) -> Sequence[float]:
    """Milliseconds that each write to the journal took, in runs."""
    took: list[float] = []
    append: Callable[..., Any] = world.runs.journal.append

    async def timed(id: str, epoch: int, events: Sequence[Event], *args: Any, **named: Any) -> Any:
        started = time.perf_counter()
        kept = await append(id, epoch, events, *args, **named)
        took.append((time.perf_counter() - started) * 1000)
        return kept

    world.runs.journal.append = timed  # type: ignore[method-assign]
    for _ in range(runs):
        await world.run()
    world.runs.journal.append = append  # type: ignore[method-assign]
    return took


async def sessions(world: World, count: int) -> tuple[float, float]:
    """KiB per session that is idle after two runs: of Python's objects, and of the process's memory."""
    for number in range(20):
        await world.run(f"warm-{number}")
    gc.collect()
    resident = rss()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(count):
        await world.run(f"s-{number}")
        await world.run(f"s-{number}", "And the next one?")
    gc.collect()
    objects = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return objects / 1024 / count, (rss() - resident) / count


def rss() -> float:
    """KiB of this process in memory."""
    return float(next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")))


def show(what: str, value: str, promised: str = "") -> None:
    print(f"{what:<58}{value:>16}   {promised}")


async def main(quick: bool) -> int:
    runs, count = (2, 20) if quick else (25, 1000)
    kept = True
    with tempfile.TemporaryDirectory() as folder:
        model = await of_the_model(STEPS, runs)
        for name, url in (("in memory", "sqlite://"), ("SQLite", "sqlite:///bench.db")):
            async with World(STEPS, url, Path(folder)) as world:
                cpu, wall = await per_step(world, runs, STEPS)
                show(f"{name}: CPU per step", f"{cpu - model:.3f} ms", f"promised: below {PROMISED_CPU:g} ms")
                show(f"{name}: time per step", f"{wall:.3f} ms")
                kept = kept and (quick or cpu - model < PROMISED_CPU)
                if name == "SQLite":
                    took = sorted(await writes(world, runs))
                    p50, p99 = statistics.median(took), took[int(len(took) * 0.99)]
                    show(f"{name}: a write to the journal ({len(took) / runs / STEPS:.1f} a step)", f"{p50:.3f} ms", f"p99 {p99:.2f} ms")
        async with World(2, "sqlite:///sessions.db", Path(folder)) as world:
            objects, resident = await sessions(world, count)
            show(f"{count} idle sessions: objects of each", f"{objects:.2f} KiB", f"promised: below {PROMISED_MEMORY:g} KiB")
            show(f"{count} idle sessions: growth of the process for each", f"{resident:.2f} KiB", f"promised: below {PROMISED_MEMORY:g} KiB")
            kept = kept and (quick or max(objects, resident) < PROMISED_MEMORY)
    return 0 if kept else 1


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as served
        code = runner.run(main("--quick" in sys.argv[1:]))
    raise SystemExit(code)
