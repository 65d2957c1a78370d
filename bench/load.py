"""What the gateway keeps under load, on loopback: python -m bench.load [--full] [--only reload,drain,...].

Each check starts a gateway of its own on core 0 and measures it from core 1; the table says what
was promised and what came of it. The exit code is 1 where a promise was not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from typing import Any

from bench.run import RESULTS, processes, rss_mb, running
from bench.targets import CLIENT_KEY, HERE
from gateway.drill.server import Call, FaultServer, chunk, plain

QUESTION: dict[str, Any] = {"messages": [{"role": "user", "content": "Say something."}], "max_tokens": 64}
STREAM_5, STREAM_100 = "bench-stream-5-0", "bench-stream-100-20000"  # events, microseconds between them (mock.c)
_ANSWER = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}}]}
_ANSWER["choices"][0]["finish_reason"] = "stop"  # type: ignore[index]


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table."""

    check: str
    promised: str
    measured: str
    kept: bool


@dataclass(frozen=True, slots=True)
class Started:
    """A gateway: its port, its process, and the file that it was started with."""

    port: int
    process: subprocess.Popen[bytes]
    file: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def rss(self) -> float:
        return rss_mb(self.pid)

    def files(self) -> int:
        """Open files and sockets of all its processes."""
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in processes(self.pid))

    def metric(self, name: str) -> float:
        """The sum of a counter over its labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as answer:
            return sum(map(float, re.findall(rf"^{name}(?:{{.*}})? (\S+)$", answer.read().decode(), re.MULTILINE)))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def settings(port: int, upstream: str, spare: str, more: str = "") -> str:
    """A config as deployed: DeepSeek's adapter with its hooks, a client key, a spare target."""
    models = "".join(f"  {name}: {{chain: [deepseek/{name}, spare/{name}]}}\n" for name in ("bench-small", STREAM_5, STREAM_100, "endless", "bounded"))
    return f"""server: {{host: 127.0.0.1, port: {port}, keys: [{CLIENT_KEY.rpartition(" ")[2]}], drain: 20s}}
providers:
  deepseek: {{base_url: "{upstream}", api_key: sk-bench-upstream, retries: 0{more}}}
  spare: {{adapter: deepseek, base_url: "{spare}", api_key: sk-bench-upstream, retries: 0{more}}}
models:
{models}"""


@contextmanager
def mocks() -> Iterator[tuple[str, str]]:
    """The base URLs of two mock upstreams."""
    ports = free_port(), free_port()
    with running([str(HERE / "bin/mock"), str(ports[0])], 1, RESULTS / "mock.log"), running([str(HERE / "bin/mock"), str(ports[1])], 1, RESULTS / "spare.log"):
        yield f"http://127.0.0.1:{ports[0]}/v1", f"http://127.0.0.1:{ports[1]}/v1"


@contextmanager
def gateway(upstream: str, spare: str, more: str = "") -> Iterator[Started]:
    """A gateway that answers, on a port of its own."""
    port = free_port()
    file = RESULTS / f"load-{port}.yaml"
    file.write_text(settings(port, upstream, spare, more))
    log = RESULTS / "load.log"
    try:
        with running([sys.executable, "-m", "gateway", "serve", "-c", str(file)], 0, log) as process:
            deadline = time.monotonic() + 30
            while not _answers(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"the gateway does not start; see {log}")
                time.sleep(0.02)
            yield Started(port, process, file)
    finally:
        file.unlink()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def loading(port: int, model: str, options: str) -> subprocess.Popen[str]:
    """The load generator at work; `loaded` gives its result."""
    stream = "-s" in options.split()
    body = RESULTS / f"load-{model}-{stream}.body"
    body.write_text(json.dumps({"model": model, **QUESTION, **({"stream": True} if stream else {})}))
    command = [str(HERE / "bin/load"), "-p", str(port), "-b", str(body), *options.split(), "-H", CLIENT_KEY]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def loaded(load: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = load.communicate(timeout=600)
    result: dict[str, Any] = json.loads(out)
    return result


# ---- the checks --------------------------------------------------------------------------------------


def reload(full: bool) -> Iterator[Figure]:
    """20 reloads, each of which sends what follows to the other upstream, under 10,000 requests and 30 streams."""
    with mocks() as (one, two), gateway(one, two) as started:
        short = loading(started.port, "bench-small", "-c 16 -r 1500 -n 10000 -d 60")
        streams = loading(started.port, STREAM_100, "-s -c 10 -n 30 -d 60")
        for number in range(20):
            time.sleep(0.3)
            started.file.write_text(settings(started.port, *((two, one) if number % 2 == 0 else (one, two))))
            started.process.send_signal(signal.SIGHUP)
        results = loaded(short), loaded(streams)
        reloads = started.metric("thinkgate_config_reloads_total")
    lost = sum(result["failed"] for result in results)
    done = f"{lost} lost of {results[0]['requests']:,} and {results[1]['requests']} streams, {reloads:.0f} reloads"
    yield Figure("config reloads under load", "20 reloads lose 0 of 10,000 requests", done, lost == 0 and reloads == 20 and results[0]["requests"] == 10_000)


def drain(full: bool) -> Iterator[Figure]:
    """SIGTERM in the middle of 50 streams of 2 s."""
    with mocks() as (one, two), gateway(one, two) as started:
        load = loading(started.port, STREAM_100, "-s -c 50 -n 50 -d 60")
        time.sleep(0.7)
        began = time.monotonic()
        started.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        refuses = not _answers(started.port)
        result = loaded(load)
        code = started.process.wait(30)
        took = time.monotonic() - began
    done = f"{result['requests']} whole, {result['failed']} cut; new connections {'refused' if refuses else 'accepted'}; exit {code} after {took:.1f} s"
    yield Figure("SIGTERM during 50 streams", "50 whole, exit 0", done, result["requests"] == 50 and result["failed"] == 0 and code == 0 and refuses)


def soak(full: bool) -> Iterator[Figure]:
    """Memory and open files over many short streams."""
    count = 100_000 if full else 10_000
    with mocks() as (one, two), gateway(one, two) as started:
        loaded(loading(started.port, STREAM_5, "-s -c 16 -n 3000 -d 600"))
        time.sleep(1)
        before, files = started.rss(), started.files()
        result = loaded(loading(started.port, STREAM_5, f"-s -c 16 -n {count} -d 600"))
        time.sleep(1)
        grown, more = started.rss() - before, started.files() - files
    done = f"{grown:+.1f} MiB, {more:+d} files, {result['failed']} failed of {result['requests']:,}"
    yield Figure(f"{count:,} short streams", "at most +5 MiB", done, grown <= 5 and more <= 2 and result["failed"] == 0)


def stalled(full: bool) -> Iterator[Figure]:
    """20 clients that ask for endless streams and read nothing."""
    yield asyncio.run(_stalled())


async def _stalled() -> Figure:
    async with FaultServer({"endless": _endless}) as upstream:
        url = f"http://127.0.0.1:{upstream.port}/endless"
        async with started_beside(url) as started:
            warm = await _ask_and_stall(started.port)
            await asyncio.sleep(1)
            before = started.rss()
            clients = [await _ask_and_stall(started.port) for _ in range(20)]
            await asyncio.sleep(4)
            grown = started.rss() - before
            asked = len(upstream.requests)
            for client in (warm, *clients):
                client.close()
    return Figure("20 clients that never read", "at most 1 MiB each", f"{grown / 20:.2f} MiB each", grown / 20 <= 1 and asked == 21)


@asynccontextmanager
async def started_beside(url: str, more: str = "") -> AsyncIterator[Started]:
    """A gateway in front of an upstream that runs in this event loop."""
    context = gateway(url, url, more)
    started = await asyncio.to_thread(context.__enter__)
    try:
        yield started
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)


async def _ask_and_stall(port: int) -> socket.socket:
    wire = socket.socket()
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    wire.setblocking(False)
    await asyncio.get_running_loop().sock_connect(wire, ("127.0.0.1", port))
    await asyncio.get_running_loop().sock_sendall(wire, _request("endless", stream=True))
    return wire


def _request(model: str, stream: bool = False) -> bytes:
    body = json.dumps({"model": model, **QUESTION, "stream": stream}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n{CLIENT_KEY}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _endless(call: Call) -> None:
    """Events of 16 KiB until the other side goes, no faster than it reads."""
    await call.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    delta = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [{"index": 0, "delta": {"content": "a" * 16384}}]}
    event = chunk(f"data: {json.dumps(delta)}\n\n".encode())
    while True:
        await call.write(event)
        await asyncio.sleep(0)


CAPACITY, SERVICE = 8, 0.1
"""requests at a time, and seconds of each, of the bounded providers"""


def overload(full: bool) -> Iterator[Figure]:
    """Twice as many requests as the two bounded providers of a chain can serve."""
    yield from asyncio.run(_overload(10.0 if full else 4.0))


async def _overload(seconds: float) -> list[Figure]:
    async def slow(call: Call) -> None:
        await asyncio.sleep(SERVICE)
        await call.write(plain(json.dumps(_ANSWER).encode()))

    async with FaultServer({"bounded": slow}) as upstream:
        url = f"http://127.0.0.1:{upstream.port}/bounded"
        async with started_beside(url, f", limits: {{concurrency: {CAPACITY}}}") as started:
            capacity = 2 * CAPACITY / SERVICE
            answers = await _offered(started.port, 2 * capacity, seconds)
    good = sum(status == 200 for status, _ in answers)
    refused = sorted(took * 1000 for status, took in answers if status in (429, 503))
    other = len(answers) - good - len(refused)
    p99 = quantiles(refused, n=100)[98] if len(refused) > 1 else float("inf")
    share = good / (capacity * seconds)
    sent = f"{2 * capacity:.0f} requests/s for {seconds:.0f} s"
    return [
        Figure(
            "overload: refusals at 2 x capacity",
            "p99 at most 50 ms",
            f"p99 {p99:.1f} ms of {len(refused)}, {other} other failures ({sent})",
            p99 <= 50 and other == 0,
        ),
        Figure("overload: goodput", "at least 90 % of capacity", f"{share:.0%}", share >= 0.9),
    ]


async def _offered(port: int, rate: float, seconds: float) -> list[tuple[int, float]]:
    """Status and seconds of requests that start at fixed moments, each on a connection of its own."""
    loop = asyncio.get_running_loop()
    began, tasks = loop.time(), []
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
        tasks.append(loop.create_task(_timed(port)))
    return list(await asyncio.gather(*tasks))


async def _timed(port: int) -> tuple[int, float]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(_request("bounded"))
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        await reader.readexactly(int(length[1]) if length else 0)
        return int(head.split(b" ")[1]), loop.time() - began
    except (OSError, EOFError):
        return 0, loop.time() - began
    finally:
        writer.close()


CHECKS: dict[str, Callable[[bool], Iterator[Figure]]] = {"reload": reload, "drain": drain, "stalled": stalled, "soak": soak, "overload": overload}


def markdown(figures: list[Figure]) -> str:
    rows = [f"| {f.check} | {f.promised} | {f.measured}{'' if f.kept else ' **not kept**'} |" for f in figures]
    return "\n".join(["| under load | promised | measured |", "|---|---|---|", *rows]) + "\n"


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m bench.load", description="Check on loopback what the gateway promises under load.")
    options.add_argument("--full", action="store_true", help="100,000 streams instead of 10,000, longer overload")
    options.add_argument("--only", default=",".join(CHECKS), help=f"comma-separated: {', '.join(CHECKS)}")
    given = options.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("bench needs two cores: one for the gateway, one for mock and load generator")
    os.sched_setaffinity(0, {1})
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what was started is stopped
    RESULTS.mkdir(exist_ok=True)
    figures: list[Figure] = []
    for name in given.only.split(","):
        print(name, file=sys.stderr, flush=True)
        figures += CHECKS[name](given.full)
    text = markdown(figures)
    (RESULTS / "load.md").write_text(text)
    print(text)
    return int(not all(figure.kept for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
