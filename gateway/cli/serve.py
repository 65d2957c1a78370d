"""`thinkgate serve`."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.supervisors import Multiprocess

from gateway import config
from gateway.api.auth import is_loopback
from gateway.api.protocol import Protocol
from gateway.app import (
    APART,
    CONFIG_VARIABLE,
    FOLDER_VARIABLE,
    IN_MEMORY,
    WATCH_VARIABLE,
    WORKERS_VARIABLE,
    Gateway,
    calm_collector,
    check,
    read_config,
    see_store,
)
from gateway.errors import ConfigError, Fault
from gateway.store import in_memory
from gateway.telemetry import log_to_stderr, server_telemetry

_SHORT = "/tmp"  # noqa: S108 - the folder in it gets a name that nobody can guess, and is its owner's alone
_LONGEST = 60  # characters of a folder's name: the names of sockets in it have a limit of 107
_START = 20  # seconds that a worker may take to start or to answer its parent before it is replaced


def add(serve: argparse.ArgumentParser) -> None:
    serve.add_argument("-c", "--config", metavar="FILE", help="the config; without it the embedded default runs")
    serve.add_argument("--host", help="address to listen on (default: the config's)")
    serve.add_argument("--port", type=_within(0, 65535), help="port to listen on (default: the config's)")
    serve.add_argument("--workers", type=_within(1, 1000), default=1, metavar="N", help="processes that answer (default: 1)")
    serve.add_argument("--reload-config", action="store_true", help="reload when the config file changes")
    serve.set_defaults(run=run)


def _within(least: int, most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not least <= int(text[:9]) <= most:
            raise argparse.ArgumentTypeError(f"{text[:40]} is not a whole number from {least} to {most}")
        return int(text)

    return number


def run(args: argparse.Namespace) -> int:
    log_to_stderr()
    conf = read_config(args.config)
    server = conf.server
    host, port = args.host or server.host, args.port if args.port is not None else server.port
    refuse_open(conf, host)
    port = port or free_port(host)  # found now, because it is told before it is taken
    options: dict[str, Any] = {
        "host": host,
        "port": port,
        "http": Protocol,
        "ws": "none",
        "log_config": None,
        "access_log": False,
        "proxy_headers": False,
        "server_header": False,
        "timeout_keep_alive": server.idle_timeout,
        "timeout_graceful_shutdown": max(0.01, server.drain),
    }
    if args.workers > 1:
        check(conf)
        asyncio.run(see_store(conf))
        os.environ[CONFIG_VARIABLE] = str(Path(args.config).resolve()) if args.config else ""
        os.environ[WORKERS_VARIABLE] = str(args.workers)
        os.environ[WATCH_VARIABLE] = "1" if args.reload_config else ""
        alone = f"each one lets in its part of every limit, and has its own {APART} (they are one with shared: redis://...)"
        print(f"{args.workers} workers: {'the limits of keys and teams hold for all together' if conf.shared else alone}", file=sys.stderr)
        if in_memory(conf.store):
            print(f"warning: {IN_MEMORY} (store: sqlite:///FILE or postgresql://... is one for all)", file=sys.stderr)
        greet(conf, host, port)
        with tempfile.TemporaryDirectory(prefix="thinkgate-", dir=_SHORT if len(tempfile.gettempdir()) > _LONGEST else None) as folder:
            os.environ[FOLDER_VARIABLE] = folder
            settings = uvicorn.Config("gateway.app:from_environment", factory=True, workers=args.workers, timeout_worker_healthcheck=_START, **options)
            Parent(settings, [settings.bind_socket()]).run()
        return 0
    gate = Gateway(partial(read_config, args.config), telemetry=server_telemetry(), conf=conf)
    if not in_memory(conf.store):
        asyncio.run(see_store(conf))
    if args.reload_config and args.config:
        gate.watch()
    greet(gate.config, host, port)
    calm_collector()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # uvicorn raises it once more when all is done; a clean end is exit code 0
    uvicorn.Server(uvicorn.Config(gate.asgi, **options)).run()
    return 0


class Parent(Multiprocess):
    """The parent of the workers. At a SIGHUP each of them reads the config anew in its place: none is replaced, so no stream is in the way."""

    def handle_hup(self) -> None:
        for worker in self.processes:
            if worker.wait_until_ready(_START, self.should_exit) and worker.pid is not None:
                os.kill(worker.pid, signal.SIGHUP)


def free_port(host: str) -> int:
    """A port that nobody listens on at this address."""
    family, kind, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    with socket.socket(family, kind) as sock:
        sock.bind(address)
        return int(sock.getsockname()[1])


def refuse_open(conf: config.Config, host: str) -> None:
    """Without a client key only this machine may reach us, unless the config says otherwise."""
    if conf.server.keys or conf.keys or conf.server.open or host == "localhost" or is_loopback(host):
        return
    why = f"refusing to listen on {host} without a client key: set server.keys (or THINKGATE_KEY), or server.open: true if everybody who reaches it may use it"
    raise ConfigError([Fault("server.host", why, *conf.place("server", "host"))], conf.file)


def greet(conf: config.Config, host: str, port: int) -> None:
    """The base URL and lines that work when pasted."""
    shown = "127.0.0.1" if host in ("0.0.0.0", "") else f"[{'::1' if host == '::' else host}]" if ":" in host else host  # noqa: S104 - it is shown, not bound
    base = f"http://{shown}:{port}/v1"
    needs_key = bool(conf.server.keys or conf.keys)
    key = "$THINKGATE_KEY" if needs_key else "none"
    auth = f' -H "Authorization: Bearer {key}"' if needs_key else ""
    name = next((n for n, m in conf.models.items() if not m.pattern), "demo")
    body = f'{{"model":"{name}","messages":[{{"role":"user","content":"Hello"}}]}}'
    print(f"Thinkgate is at {base}  (models: {', '.join([*conf.models, *(f'agent/{agent}' for agent in conf.agents)])})\n", file=sys.stderr)
    print(f"  curl {base}/chat/completions{auth} -H 'content-type: application/json' -d '{body}'\n", file=sys.stderr)
    print(f"  export OPENAI_BASE_URL={base} OPENAI_API_KEY={key}\n", file=sys.stderr)
    print(f"  {base.removesuffix('/v1')}/console in a browser shows what it does\n", file=sys.stderr)
    for warning in conf.warnings:
        print(f"warning: {conf.file}:{warning.line}: {warning.path}: {warning.message}", file=sys.stderr)
    sys.stderr.flush()
