"""The writer of request lines."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import time

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from gateway.chat import Record
from gateway.telemetry import LineWriter, Telemetry


def test_a_line_looks_like_one_of_the_log() -> None:
    end, into = os.pipe()
    try:
        LineWriter(into)("request=r1 status=200 model=模型 \ud800")
        line = os.read(end, 4096).decode()
    finally:
        os.close(end)
        os.close(into)

    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO thinkgate\.request request=r1 status=200 model=模型 \\ud800\n", line)


def test_a_log_that_nobody_reads_any_more_disturbs_no_request() -> None:
    end, into = os.pipe()
    os.close(end)
    try:
        LineWriter(into)("request=r1")
    finally:
        os.close(into)


async def test_lines_of_one_moment_go_out_together_and_soon() -> None:
    end, into = os.pipe()
    os.set_blocking(end, False)
    try:
        write = LineWriter(into)
        for number in range(3):
            write(f"request=r{number}")
        with pytest.raises(BlockingIOError):
            os.read(end, 4096)
        await asyncio.sleep(0.2)
        lines = os.read(end, 4096).decode().splitlines()
        write("request=last")
        write.flush()
        last = os.read(end, 4096).decode()
    finally:
        os.close(end)
        os.close(into)

    assert [line.split()[-1] for line in lines] == ["request=r0", "request=r1", "request=r2"]
    assert last.endswith("request=last\n")


async def test_no_more_is_written_at_once_than_a_pipe_takes_whole() -> None:
    end, into = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with end, into:
        write = LineWriter(into.fileno())
        for _ in range(9):
            write("x" * 1000)
        write.flush()
        sizes = [len(end.recv(65536)) for _ in range(3)]

    line = 1000 + len("2026-11-30 00:00:00,000 INFO thinkgate.request \n")
    assert sizes == [3 * line] * 3


def test_counts_and_times_are_shown_as_prometheus_shows_them() -> None:
    ours, theirs = Telemetry(), CollectorRegistry()
    requests = Counter("thinkgate_requests", "Requests answered, by endpoint, model and status.", ("endpoint", "model", "status"), registry=theirs)
    buckets = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
    times = Histogram("thinkgate_request_seconds", "From the request to the end of its answer.", ("model",), buckets=buckets, registry=theirs)
    for seconds in (0.0, 0.005, 0.3, 45.0, 4000.0):
        record = Record("r", model="m", started=time.perf_counter() - seconds)
        ours.finish(record, 200, "m")
        requests.labels("chat", "m", "200").inc()
        times.labels("m").observe(seconds + 0.0001)

    shown = ours.expose().decode().splitlines()
    for line in generate_latest(theirs).decode().splitlines():
        if "_created" not in line and "_sum" not in line:
            assert line in shown
    assert float(next(line for line in shown if line.startswith('thinkgate_request_seconds_sum{model="m"}')).split()[1]) == pytest.approx(4045.305, abs=0.5)
