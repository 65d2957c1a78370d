"""Measure the gateway against nginx and its peers on loopback: python -m bench.run [--quick] [--reps N] [--targets a,b] [--readme].

The gateway under test has core 0 to itself; the mock, the load generator and this program share
core 1. Every repetition starts each target afresh and goes over all of them in turn, so that what
else the machine does falls on all alike. CPU is what /proc charges to the gateway's processes,
divided by the requests or events that came through whole.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.report import Record, into_readme, markdown, summarize
from bench.targets import HERE, TARGETS, UPSTREAM_KEY, Target

RESULTS = HERE / "results"
GATEWAY, UPSTREAM, SPARE = 9200, 9101, 9102
BOOT = 60.0
TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Scenario:
    """`unit`: what the CPU is divided by; `quick`: seconds of load in a quick run."""

    model: str
    options: str
    seconds: float
    quick: float
    unit: str = "requests"
    big: bool = False


SCENARIOS = {
    "small": Scenario("bench-small", "-c 16", 2.5, 1),
    "big": Scenario("bench-small", "-c 16", 2, 1, big=True),
    "stream100": Scenario("bench-stream-100-20000", "-s -c 100", 3.5, 1.5, "events"),  # two rounds of 2 s, one when quick
    "burst": Scenario("bench-stream-100-0", "-s -c 8", 2, 1, "events"),
    "open50": Scenario("bench-small", "-c 64 -r 50", 8, 2),
    "first50": Scenario("bench-stream-5-1000", "-s -c 64 -r 50", 4, 2, "events"),
}


def write_body(name: str, scenario: Scenario) -> None:
    """0.9 KB with three short turns, or 47 KB with a hundred and five tools."""
    turns, size = (100, 420) if scenario.big else (3, 200)
    text = ("What passes through here is neither read nor kept, " * 10)[:size]
    messages = [{"role": "assistant" if i % 2 else "user", "content": text} for i in range(turns)]
    body: dict[str, Any] = {
        "model": scenario.model,
        "messages": [{"role": "system", "content": "You answer briefly."}, *messages],
        "temperature": 0.7,
        "max_tokens": 256,
    }
    if scenario.big:
        parameters = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
        body["tools"] = [{"type": "function", "function": {"name": f"tool_{i}", "description": text[:80], "parameters": parameters}} for i in range(5)]
    if "-s" in scenario.options:
        body["stream"] = True
    (RESULTS / f"{name}.body").write_text(json.dumps(body))


def processes(leader: int) -> list[int]:
    """The session that `leader` leads: the gateway and what it started."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(ProcessLookupError):
            if os.getsid(int(name)) == leader:
                found.append(int(name))
    return found


def cpu_us(leader: int) -> float:
    """CPU time of the gateway so far. stat counts in ticks, schedstat in ns but only living threads: neither says too much, so the greater holds."""
    total = 0.0
    for pid in processes(leader):
        try:
            ticks = [int(x) for x in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]]
            exact = sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended; its parent's reaped children hold its time
        total += max(exact / 1e3, sum(ticks[:2]) * 1e6 / TICK) + sum(ticks[2:]) * 1e6 / TICK
    return total


def core_us(core: int) -> float:
    """What the core has done so far for anybody, the host's theft included."""
    fields = re.findall(rf"^cpu{core} (.*)", Path("/proc/stat").read_text(), re.MULTILINE)[0].split()
    return (sum(int(x) for x in fields[:8]) - int(fields[3]) - int(fields[4])) * 1e6 / TICK  # without idle and iowait


def rss_mb(leader: int) -> float:
    rolled = (Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in processes(leader))
    return sum(int(re.findall(r"^Rss:\s+(\d+)", text, re.MULTILINE)[0]) for text in rolled) / 1024


@contextmanager
def running(command: list[str], core: int, log: Path, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process on one core, its output in `log`; it and what it started are gone afterwards."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env={**os.environ, **(env or {})}, start_new_session=True, preexec_fn=lambda: os.sched_setaffinity(0, {core})
        )
    try:
        yield process
    finally:
        for kind in (signal.SIGTERM, signal.SIGKILL):
            for pid in processes(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, kind)
            deadline = time.monotonic() + 3
            while processes(process.pid) and time.monotonic() < deadline:
                process.poll()
                time.sleep(0.02)
        process.wait()


def ask(port: int, body: Path | None = None, headers: tuple[str, ...] = ()) -> Record:
    """One request outside any measurement; without a body it asks the mock for its counters."""
    data = body.read_bytes() if body else None
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", data, {"Content-Type": "application/json"})
    for header in headers:
        request.add_header(*header.split(": ", 1))
    with urllib.request.urlopen(request, timeout=30) as answer:
        record: Record = json.load(answer)
    return record


def wait_for_answer(target: Target, gateway: subprocess.Popen[bytes]) -> float:
    """Seconds from the start to the first answer; RuntimeError when there is none."""
    began = time.monotonic()
    while True:
        try:
            ask(GATEWAY, RESULTS / "small.body", target.headers)
            return time.monotonic() - began
        except OSError as error:
            if gateway.poll() is not None or time.monotonic() - began > BOOT:
                raise RuntimeError(f"{target.name} does not answer ({error}); see {RESULTS / target.name}.log") from error
        time.sleep(0.005)


def load(port: int, headers: tuple[str, ...], body: str, options: str) -> Record:
    given = [part for header in headers for part in ("-H", header)]
    done = subprocess.run(
        [str(HERE / "bin/load"), "-p", str(port), "-b", str(RESULTS / f"{body}.body"), *options.split(), *given], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the load generator stopped: {done.stderr.strip()}")
    record: Record = json.loads(done.stdout)
    return record


def measure(name: str, headers: tuple[str, ...], quick: bool, leader: int | None) -> Record:
    """One scenario against the gateway that `leader` leads, or against the mock itself without one."""
    scenario = SCENARIOS[name]
    before, core, connections = cpu_us(leader) if leader else 0.0, core_us(0), ask(UPSTREAM)["connections"]
    record = load(GATEWAY if leader else UPSTREAM, headers, name, f"{scenario.options} -d {scenario.quick if quick else scenario.seconds}")
    spent, others, units = (cpu_us(leader) if leader else 0.0) - before, core_us(0) - core, record[scenario.unit]
    record |= {"scenario": name, "per_second": units / record["seconds"], "busy": spent / 1e6 / record["seconds"]}
    record["others"] = max(others - spent, 0.0) / 1e6 / record["seconds"]
    if units:
        record |= {"cpu_us": spent / units, "connections": (ask(UPSTREAM)["connections"] - connections - 1) * 1000 / units}
    return record


def visit(target: Target, last: bool, quick: bool) -> Iterator[Record]:
    """Everything about one target in one repetition; the soak comes at the end of the last one."""
    with running(target.command, 0, RESULTS / f"{target.name}.log", target.env) as gateway:
        seconds = wait_for_answer(target, gateway)
        time.sleep(0.5)
        yield {"scenario": "start", "seconds": seconds, "rss_mb": rss_mb(gateway.pid)}
        load(GATEWAY, target.headers, "small", "-c 16 -d 1")
        for name in SCENARIOS:
            yield measure(name, target.headers, quick, gateway.pid)
        if last:
            soaked = load(GATEWAY, target.headers, "small", f"-c 16 -d 600 -n {target.soak // 20 if quick else target.soak}")
            yield {"scenario": "soak", **soaked, "rss_mb": rss_mb(gateway.pid)}


def run(targets: list[Target], reps: int, quick: bool) -> list[Record]:
    """Every record of every repetition; a target that does not start is a failed request and the run goes on."""
    records: list[Record] = []
    for rep in range(reps):
        records += ({"target": "direct", "rep": rep, **measure(name, (UPSTREAM_KEY,), quick, None)} for name in SCENARIOS)
        for target in targets:
            print(f"{rep + 1}/{reps} {target.name} {target.version}", file=sys.stderr, flush=True)
            try:
                records += ({"target": target.name, "rep": rep, **record} for record in visit(target, rep == reps - 1, quick))
            except RuntimeError as error:
                print(error, file=sys.stderr)
                records.append({"target": target.name, "rep": rep, "scenario": "start", "failed": 1})
    return records


def machine() -> dict[str, Any]:
    cpu = re.findall(r"^model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "cpu": cpu[0] if cpu else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": os.getloadavg(),
    }


def chosen(names: list[str]) -> list[Target]:
    """The named targets that are installed; the others are said to be missing."""
    found = {name: TARGETS[name]() for name in names}
    for name in (name for name, target in found.items() if target is None):
        print(f"{name}: not installed, left out (make bench PEERS=1 installs it)", file=sys.stderr)
    return [target for target in found.values() if target]


def prepare() -> None:
    """Refuses to measure where the figures would mean nothing."""
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("bench needs two cores: one for the gateway, one for mock and load generator")
    for port in (GATEWAY, UPSTREAM, SPARE):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                raise SystemExit(f"port {port} is taken by another program")
    os.sched_setaffinity(0, {1})
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is stopped
    for name, scenario in SCENARIOS.items():
        write_body(name, scenario)


def floor() -> float | None:
    """CPU microseconds that nginx needs for a small request now, the least of three rounds; None: it is not there, or not what `make bench` builds."""
    target = TARGETS["nginx"]()
    if target is None or not (HERE / "bin/load").exists() or not (HERE / "bin/mock").exists():
        return None
    RESULTS.mkdir(exist_ok=True)
    write_body("small", SCENARIOS["small"])
    mocks = [running([str(HERE / "bin/mock"), str(port)], 1, RESULTS / "mock.log") for port in (UPSTREAM, SPARE)]
    with mocks[0], mocks[1], running(target.command, 0, RESULTS / "nginx.log", target.env) as gateway:
        wait_for_answer(target, gateway)
        load(GATEWAY, target.headers, "small", "-c 16 -d 1")
        return min([float(measure("small", target.headers, False, gateway.pid)["cpu_us"]) for _ in range(3)])


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m bench.run", description="Measure the gateway against nginx and its peers on loopback.")
    options.add_argument("--quick", action="store_true", help="one short repetition: does everything run")
    options.add_argument("--reps", type=int, default=3, help="repetitions of every scenario (default 3)")
    options.add_argument("--targets", default=",".join(TARGETS), help="comma-separated; default: all that are installed")
    options.add_argument("--readme", action="store_true", help="put the table between the README's bench markers")
    given = options.parse_args()
    RESULTS.mkdir(exist_ok=True)
    prepare()
    targets, reps, when = chosen(given.targets.split(",")), 1 if given.quick else given.reps, time.strftime("%Y-%m-%dT%H-%M-%S")
    mocks = [running([str(HERE / "bin/mock"), str(port)], 1, RESULTS / "mock.log") for port in (UPSTREAM, SPARE)]
    host = machine()
    with mocks[0], mocks[1]:
        time.sleep(0.2)
        records = run(targets, reps, given.quick)
    result = {
        "when": when,
        "quick": given.quick,
        "reps": reps,
        "machine": host,
        "versions": {t.name: t.version for t in targets},
        "summary": summarize(records),
        "records": records,
    }
    text = markdown(result)
    (RESULTS / f"{when}.json").write_text(json.dumps(result, indent=1))
    (RESULTS / "latest.md").write_text(text)
    print(text)
    if given.readme:
        readme = HERE.parent / "README.md"
        readme.write_text(into_readme(readme.read_text(), text))
    return int(any(r.get("failed") for r in records if r["target"] == "thinkgate"))


if __name__ == "__main__":
    sys.exit(main())
