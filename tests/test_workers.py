"""The numbers of several processes as one's."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric

from gateway.workers import Workers, summed


class Process:
    """One worker's metrics."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.count = Counter("thinkgate_requests", "help", ("model",), registry=self.registry)
        self.running = Gauge("thinkgate_in_flight", "help", registry=self.registry)
        self.learned = Gauge("thinkgate_learned", "help", registry=self.registry)
        self.times = Histogram("thinkgate_seconds", "help", ("model",), buckets=(0.1, 1.0), registry=self.registry)

    def collect(self) -> Iterable[Metric]:
        return self.registry.collect()

    def numbers(self) -> list[list[object]]:
        return [[m.name, m.type, m.documentation, [s[:3] for s in m.samples]] for m in self.collect()]


def value(metrics: Iterable[Metric], name: str, **labels: str) -> float | None:
    return next((s.value for m in metrics for s in m.samples if s.name == name and s.labels == labels), None)


def two() -> tuple[Process, Process]:
    one, other = Process(), Process()
    for process, amount in ((one, 2), (other, 5)):
        process.count.labels('a"b\n').inc(amount)
        process.running.set(amount)
        process.learned.set(amount)
        process.times.labels("m").observe(0.05 * amount)
    other.count.labels("other").inc()
    return one, other


def test_counts_and_histograms_add_up_and_of_what_is_learned_the_most_counts() -> None:
    one, other = two()
    total = summed([(one.numbers(), True), (other.numbers(), True)])

    assert value(total, "thinkgate_requests_total", model='a"b\n') == 7
    assert value(total, "thinkgate_requests_total", model="other") == 1
    assert value(total, "thinkgate_in_flight") == 7
    assert value(total, "thinkgate_learned") == 5
    assert value(total, "thinkgate_seconds_bucket", model="m", le="0.1") == 1
    assert value(total, "thinkgate_seconds_bucket", model="m", le="+Inf") == 2
    assert value(total, "thinkgate_seconds_count", model="m") == 2
    created = value(total, "thinkgate_requests_created", model='a"b\n')
    assert created == value(one.collect(), "thinkgate_requests_created", model='a"b\n'), "the first one's"


def test_the_dead_are_counted_and_do_nothing_any_more() -> None:
    one, other = two()
    total = summed([(one.numbers(), True), (other.numbers(), False)])

    assert value(total, "thinkgate_requests_total", model='a"b\n') == 7
    assert value(total, "thinkgate_in_flight") == 2


async def test_what_dead_processes_left_becomes_one_file_and_falls_never(tmp_path: Path) -> None:
    """B: a thousand reloads leave no thousand files behind."""
    gone = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await gone.wait()
    process = Process()
    process.count.labels("m").inc(3)
    me = Workers(tmp_path, process.collect, lambda: None)
    async with me.open():
        first = await me.metrics()
    (tmp_path / f"{os.getpid()}.json").rename(tmp_path / f"{gone.pid}.json")
    (tmp_path / f"{gone.pid}.sock").touch()

    async with me.open():
        second = await me.metrics()
        files = sorted(os.listdir(tmp_path))

    assert b'thinkgate_requests_total{model="m"} 3.0' in first
    assert b'thinkgate_requests_total{model="m"} 6.0' in second, "its own three, and the three of the dead one"
    assert files == sorted(["dead.json", f"{os.getpid()}.json", f"{os.getpid()}.sock", "lock"])


async def test_a_word_that_nobody_knows_does_nothing(tmp_path: Path) -> None:
    read: list[int] = []
    me = Workers(tmp_path, Process().collect, lambda: read.append(1))
    async with me.open():
        for word in (b"quit", b"", b"reload"):
            reader, writer = await asyncio.open_unix_connection(tmp_path / f"{os.getpid()}.sock")
            writer.write(word + b"\n")
            assert await reader.readline() == b"done\n"
            writer.close()
            await writer.wait_closed()

    assert read == [1]


async def test_numbers_that_cannot_be_written_are_shown_all_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A full disk is no reason for /metrics to fail; what is written when there is room again is whole."""
    process = Process()
    me = Workers(tmp_path, process.collect, lambda: None)
    async with me.open():
        process.count.labels("m").inc(3)
        before = await me.metrics()
        (tmp_path / f"{os.getpid()}.new").mkdir()  # a file cannot be written there
        process.count.labels("m").inc(4)
        during = [await me.metrics() for _ in range(2)]
        (tmp_path / f"{os.getpid()}.new").rmdir()
        after = await me.metrics()

    assert b'thinkgate_requests_total{model="m"} 3.0' in before
    assert [b'thinkgate_requests_total{model="m"} 7.0' in text for text in (*during, after)] == [True] * 3
    assert caplog.text.count("cannot be written") == 1
    assert b"7.0" in (tmp_path / f"{os.getpid()}.json").read_bytes()
