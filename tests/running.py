"""A real gateway on a loopback port, inside the test's own event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from gateway import config
from gateway.api.protocol import Protocol
from gateway.app import Gateway

KEY = "client-key-for-tests-0123456789"
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
STREAM: dict[str, Any] = {**CHAT, "stream": True}


@dataclass
class Running:
    """`url` ends with /v1; `client` sends no key by itself."""

    url: str
    gateway: Gateway
    client: httpx.AsyncClient

    async def chat(self, body: Mapping[str, Any] | None = None, **headers: str) -> httpx.Response:
        return await self.client.post("/v1/chat/completions", json=dict(body or CHAT), headers={k.replace("_", "-"): v for k, v in headers.items()})

    async def events(self, body: Mapping[str, Any] | None = None, **headers: str) -> list[str]:
        """The data of every event of a stream, `[DONE]` included."""
        answer = await self.chat(body or STREAM, **headers)
        assert answer.headers["content-type"].startswith("text/event-stream"), answer.text
        return [line[6:] for line in answer.text.split("\n") if line.startswith("data: ")]


def yaml(providers: Mapping[str, str], *, model: str = "", server: str = "", more: str = "", **settings: str) -> str:
    """A config with one model `m` over these providers in order; `settings` are lines for a provider of that name."""
    lines = ["server:", "  port: 0", *(f"  {line}" for line in server.splitlines()), "providers:"]
    for name, url in providers.items():
        lines += [f"  {name}:", f"    base_url: {url}", "    adapter: openai" if "adapter:" not in settings.get(name, "") else ""]
        lines += ["    api_key: " + f"key-of-{name}-0123456789" if "api_key:" not in settings.get(name, "") else ""]
        lines += [f"    {line}" for line in settings.get(name, "retries: 0").splitlines()]
    lines += ["models:", "  m:", "    chain:", *(f"      - {name}/{name}-model" for name in providers)]
    lines += [f"    {line}" for line in model.splitlines()]
    return "\n".join([line for line in lines if line] + [more, ""])


def in_memory(conf: config.Config) -> config.Config:
    """The same config over a store in memory, where it says nothing of its own."""
    return replace(conf, store="sqlite://") if conf.store == config.Config().store else conf


@asynccontextmanager
async def serving(source: str | Path | config.Config, env: Mapping[str, str] | None = None, base: Path = Path()) -> AsyncIterator[Running]:
    """A gateway over a config text, file or value; closed with all its connections at the end."""

    def read() -> config.Config:
        if isinstance(source, str):
            return in_memory(config.parse(source, base=base, env=env or {}))
        return config.load(source, env or {}) if isinstance(source, Path) else in_memory(source)

    async with serving_app(Gateway(read)) as running:
        yield running


class _Server(uvicorn.Server):
    """uvicorn's server without its ticks of 0.1 s: every test would wait for three of them."""

    async def open(self, sock: socket.socket) -> None:
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        await self.startup([sock])
        await self.on_tick(0)

    async def close(self) -> None:
        """Let the connections end, cancel what still runs after `timeout_graceful_shutdown`, then end the application."""
        state = self.server_state
        for server in self.servers:
            server.close()
        for connection in list(state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while state.connections or state.tasks:  # noqa: ASYNC110 - uvicorn has no event for it
                    await asyncio.sleep(0.002)
        except TimeoutError:
            for running in state.tasks:
                running.cancel()
        await self.lifespan.shutdown()


@asynccontextmanager
async def serving_app(gateway: Gateway, **options: Any) -> AsyncIterator[Running]:
    sock = socket.socket(proto=socket.IPPROTO_TCP)  # asyncio turns Nagle's algorithm off only where the protocol is told
    sock.bind(("127.0.0.1", 0))
    settings = uvicorn.Config(gateway.asgi, http=Protocol, ws="none", log_config=None, access_log=False, proxy_headers=False, lifespan="on", **options)
    server = _Server(settings)
    await server.open(sock)
    try:
        base = f"http://127.0.0.1:{sock.getsockname()[1]}"
        # without TLS: reading the certificates would take longer than everything else here
        async with httpx.AsyncClient(base_url=base, timeout=20, trust_env=False, verify=False) as client:
            yield Running(f"{base}/v1", gateway, client)
    finally:
        await server.close()
        sock.close()
