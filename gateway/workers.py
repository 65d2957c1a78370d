"""What the processes of one `serve --workers N` are to each other: one `/metrics`, one reload.

Each listens on a socket in a folder that they share. Whoever is asked for metrics has every
other one write its numbers down beside it, and adds them all up. So the hot path costs nothing
more, nothing that was ever shown is lost with a process that dies, and a sum never falls.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric

from gateway.chat import dumps, loads

log = logging.getLogger("thinkgate")

EVERY = 2.0
"""seconds after which numbers are written down unasked: what a process that is killed takes with it"""
KEPT = "config.yaml"
"""The last config that could be used, in the folder: for a worker that starts when the file itself cannot."""
_PATIENCE = 1.0  # seconds for another one's answer
_DEAD = "dead"

Numbers = list[list[Any]]
"""Name, type, help and samples (name, labels, value) of each metric."""


class Workers:
    """This process among the workers. `collect` gives its metrics as they are now, `reload` reads its config again."""

    def __init__(self, folder: Path, collect: Callable[[], Iterable[Metric]], reload: Callable[[], object]) -> None:
        self._folder = folder
        self._name = str(os.getpid())
        self._collect = collect
        self._reload = reload
        self._server: asyncio.Server | None = None
        self._writer: asyncio.Task[None] | None = None
        self._failing = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Be one of the workers for as long as the block lasts; numbers stay behind."""
        self._bury()
        socket = self._socket(self._name)
        self._server = await asyncio.start_unix_server(self._serve, socket)
        self._writer = asyncio.get_running_loop().create_task(self._write_often())
        try:
            yield
        finally:
            self._writer.cancel()
            await asyncio.wait((self._writer,))
            self._server.close()
            self._write(self._numbers())
            socket.unlink(missing_ok=True)

    async def metrics(self) -> bytes:
        """The text that Prometheus reads, of all workers together."""
        others = await self._tell(b"metrics")
        mine = self._numbers()
        self._write(mine)
        with self._lock():
            found = [(file.stem, loads(file.read_bytes())) for file in sorted(self._folder.glob("*.json")) if file.stem != self._name]
        return generate_latest(_Summed(summed([(mine, True), *((numbers, name in others) for name, numbers in found)])))

    async def reload(self) -> None:
        """Have all others read their config again."""
        await self._tell(b"reload")

    def keep(self, file: Path) -> None:
        """Keep the config as it is now; it was found to be good."""
        with contextlib.suppress(OSError):  # gone or changed again: what was kept before is good too
            text = file.read_bytes()
            draft = self._folder / f"{KEPT}.{self._name}"
            draft.write_bytes(text)
            draft.replace(self._folder / KEPT)

    async def _tell(self, word: bytes) -> list[str]:
        """The others that are alive; each has done what the word says, or had a second to do so."""
        names = [file.stem for file in self._folder.glob("*.sock") if file.stem != self._name]
        answers = await asyncio.gather(*(self._ask(name, word) for name in names))
        return [name for name, alive in zip(names, answers, strict=True) if alive]

    async def _ask(self, name: str, word: bytes) -> bool:
        try:
            async with asyncio.timeout(_PATIENCE):
                reader, writer = await asyncio.open_unix_connection(self._socket(name))
                try:
                    writer.write(word + b"\n")
                    await reader.readline()
                finally:
                    writer.close()
        except TimeoutError:
            pass  # it is busy: what it wrote last counts
        except OSError:
            return False
        return True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            word = (await reader.readline()).strip()
            if word == b"metrics":
                self._write(self._numbers())
            elif word == b"reload":
                self._reload()
            writer.write(b"done\n")
        finally:
            writer.close()

    async def _write_often(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            self._write(self._numbers())

    def _numbers(self) -> Numbers:
        return [[m.name, m.type, m.documentation, [s[:3] for s in m.samples]] for m in self._collect()]

    def _write(self, numbers: Numbers) -> None:
        try:
            _replace(self._folder / f"{self._name}.json", numbers)
        except OSError as error:  # a full disk: the next try may find room
            if not self._failing:
                log.error("the numbers of this worker cannot be written, others miss the latest: %s", error)
            self._failing = True
        else:
            self._failing = False

    def _bury(self) -> None:
        """The numbers of processes that are gone become one file."""
        with self._lock():
            files = [file for file in self._folder.glob("*.json") if file.stem == _DEAD or not _lives(file.stem)]
            if any(file.stem != _DEAD for file in files):
                total = summed((loads(file.read_bytes()), False) for file in files)
                _replace(self._folder / f"{_DEAD}.json", [[m.name, m.type, m.documentation, [s[:3] for s in m.samples]] for m in total])
                for file in files:
                    if file.stem != _DEAD:
                        file.unlink()
            for file in self._folder.glob("*.sock"):
                if not _lives(file.stem):
                    file.unlink()

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with (self._folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # freed with the file, and with the process
            yield

    def _socket(self, name: str) -> Path:
        return self._folder / f"{name}.sock"


class _Summed:
    """What `generate_latest` asks for metrics."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


def summed(all: Iterable[tuple[Numbers, bool]]) -> list[Metric]:
    """The metrics of several processes as one's. A gauge is about the living (the flag) alone."""
    metrics: dict[str, Metric] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for numbers, alive in all:
        for name, kind, help, samples in numbers:
            if kind == "gauge" and not alive:
                continue
            metrics.setdefault(name, Metric(name, help, kind))
            mine = values.setdefault(name, {})
            for sample, labels, value in samples:
                key = (sample, tuple(labels.items()))
                if key not in mine:
                    mine[key] = value
                elif sample.endswith("_created"):
                    mine[key] = min(mine[key], value)
                elif name in _WORST:
                    mine[key] = _WORST[name](mine[key], value)
                else:
                    mine[key] += value
    for name, metric in metrics.items():
        for (sample, labels), value in values[name].items():
            metric.add_sample(sample, dict(labels), value)
    return list(metrics.values())


_WORST: dict[str, Callable[[float, float], float]] = {"thinkgate_learned": max, "thinkgate_shared_up": min}
"""Gauges that are no amounts."""


def _replace(file: Path, value: Any) -> None:
    draft = file.with_suffix(".new")
    draft.write_bytes(dumps(value))
    draft.replace(file)


def _lives(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
