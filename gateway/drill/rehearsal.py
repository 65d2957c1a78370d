"""The drill: one model of a config, each fault, meeting the first target and then every one, plain and streamed.

Each row has a gateway and a fault server of its own, so that no row finds a target resting.
Everything below the route is the ordinary code: adapters and hooks, the chain, the connection
pool. Only the addresses are exchanged, the time-outs shortened, and every key is a made-up one.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, unquote

from gateway import config
from gateway.app import Gateway
from gateway.chat import Json, dumps, loads
from gateway.drill.faults import FAULTS, Fault, Reply, sound
from gateway.drill.judging import Got, Met, Terms, Verdict, judge, moves
from gateway.drill.server import Call, FaultServer, closed_port
from gateway.drill.voices import Voice
from gateway.errors import InvalidRequest
from gateway.upstream import Exchange, Transport, Url
from gateway.upstream.pool import Pool
from gateway.upstream.transport import Headers

SLOW = 1.0
"""seconds of every time-out"""

_AT_ONCE = 12  # rows; most of them wait for a time-out
_PATIENCE = 8.0  # seconds that a chain may take whose every target runs into its time-out
_QUESTION: Json = {"messages": [{"role": "user", "content": "Is all well?"}]}


@dataclass(frozen=True, slots=True)
class Row:
    """One request of the drill and what came of it. `meets`: whom the fault meets, `first` or `all` targets."""

    fault: str
    meets: str
    stream: bool
    got: Got
    verdict: Verdict

    @property
    def passed(self) -> bool:
        return not self.verdict.problems

    @property
    def chain(self) -> str:
        """`x-thinkgate-chain`: each exchange as `provider=status`, or `provider=class`."""
        return self.got.headers.get("x-thinkgate-chain", "")

    def public(self) -> Json:
        return {
            "fault": self.fault,
            "meets": self.meets,
            "stream": self.stream,
            "passed": self.passed,
            "problems": self.verdict.problems,
            "outcome": self.verdict.outcome,
            "status": self.got.status,
            "chain": self.chain,
            "ms": round(self.got.seconds * 1000),
        }


@dataclass(frozen=True, slots=True)
class Report:
    """A whole drill; `slow` are the seconds of its time-outs."""

    model: str
    targets: tuple[str, ...]
    slow: float
    rows: tuple[Row, ...]

    @property
    def passed(self) -> bool:
        return all(row.passed for row in self.rows)

    def public(self) -> Json:
        """The form that `--json` prints."""
        return {"model": self.model, "targets": list(self.targets), "passed": self.passed, "rows": [row.public() for row in self.rows]}


async def drill(conf: config.Config, model: str, faults: Sequence[Fault] = FAULTS, slow: float = SLOW) -> Report:
    """Run the drill; `slow` are the seconds of each time-out, fewer where the chain is long or has a short deadline.

    ConfigError for a config that cannot be used, NotFound or InvalidRequest for a name that is no chain's.
    """
    chain = _chain_of(conf, model)
    slow = min(slow, _PATIENCE / len(chain.chain), (chain.deadline or _PATIENCE) / (len(chain.chain) + 1))
    safe = harmless(alone(conf, chain), slow)
    names = dict.fromkeys(target.name for target in chain.chain)
    terms = Terms(len(names), moves(chain.move_on), chain.empty_answer == "accept", chain.resume != "off", _bound(safe, chain, slow))
    meets = ("first", "all") if len(names) > 1 else ("all",)
    gate, building = asyncio.Semaphore(_AT_ONCE), asyncio.Lock()

    async def row(fault: Fault, whom: str, stream: bool) -> Row:
        async with gate:
            async with building:  # one after the other, so that none runs into its time-outs because many are made at once
                scene = Scene(safe, fault, whom == "all")
                await asyncio.sleep(0)
            got, met = await scene.run(model, stream)
        return Row(fault.name, whom, stream, got, judge(fault, whom == "all", stream, got, met, terms))

    wanted = [(fault, whom, stream) for fault, whom, stream in itertools.product(faults, meets, (False, True)) if fault.kinds or whom == meets[0]]
    rows = await asyncio.gather(*(row(*one) for one in wanted))
    return Report(model, tuple(names), slow, tuple(rows))


def _chain_of(conf: config.Config, model: str) -> config.Model:
    if model.startswith("agent/"):
        raise InvalidRequest("the drill is for chains: name the model that the agent uses", param="model")
    chain = Gateway(lambda: harmless(conf, SLOW), connect=_nowhere).state.router.chain(model)
    return chain.settings


def alone(conf: config.Config, chain: config.Model) -> config.Config:
    """The config with nothing in it but this chain and its providers."""
    used = {target.provider for target in chain.chain}
    providers = {name: provider for name, provider in conf.providers.items() if name in used}
    return replace(conf, providers=providers, models={name: model for name, model in conf.models.items() if name == chain.name})


def _nowhere(provider: config.Provider, base_url: str) -> Transport:
    return Pool()


def harmless(conf: config.Config, slow: float) -> config.Config:
    """The config without anybody's keys, limits, cache and store, and with time-outs of `slow` seconds."""
    server = replace(conf.server, keys=(), admin_key=None, open=True, keepalive=0.0)
    providers = {name: _disarmed(provider, slow) for name, provider in conf.providers.items()}
    models = {name: replace(model, cache_exact=None, chain=tuple(_hurried(t, slow) for t in model.chain)) for name, model in conf.models.items()}
    empty: dict[str, Any] = {}
    return replace(conf, server=server, providers=providers, models=models, keys=empty, teams=empty, agents=empty, store="sqlite://", shared=None)


def _disarmed(provider: config.Provider, slow: float) -> config.Provider:
    """As many keys as before, since a pool of keys is part of how a chain moves on; made-up ones."""
    keys = tuple(config.Secret(f"drill-key-{number}") for number, _ in enumerate(provider.api_keys, 1))
    headers = dict.fromkeys(provider.headers, "drill")
    return replace(provider, api_keys=keys, headers=headers, timeouts=config.Timeouts(slow, slow, slow, 4 * slow), limits=config.Limits())


def _hurried(target: config.Target, slow: float) -> config.Target:
    return replace(target, connect=slow, first_token=slow, idle=slow, total=4 * slow)


def _bound(conf: config.Config, chain: config.Model, slow: float) -> float:
    """Seconds in which a chain must be through whatever happens: its time-outs, and pauses of up to a second before each retry."""
    seconds = 2.0
    for target in chain.chain:
        retries = conf.providers[target.provider].retries if target.retries is None else target.retries
        seconds += 2 * slow + retries * (1.0 + 2 * slow)
    return seconds


class Scene:
    """One request and all that it meets."""

    def __init__(self, conf: config.Config, fault: Fault, everyone: bool) -> None:
        self._fault = fault
        self._everyone = everyone
        self._asked: list[str] = []
        self._spoke: int | None = None
        self._pool = Pool()
        self._gateway = Gateway(lambda: conf, connect=lambda provider, base_url: Detour(provider.name, self.place, self._pool))
        self._ports = {"refused": 0, "open": 0}

    async def run(self, model: str, stream: bool) -> tuple[Got, Met]:
        server = FaultServer({"fault": self._fail, "sound": self._answer})
        with closed_port() as refused:
            async with server:
                self._ports = {"refused": refused, "open": server.port}
                got = await ask(self._gateway, {"model": model, "stream": stream, **_QUESTION})
                await self._pool.aclose()
        return got, Met(self._asked, self._spoke)

    def place(self, provider: str, path: str, body: bytes) -> tuple[int, str]:
        """The port that a provider's request goes to, and what stands before its path. The first target is whoever is asked first."""
        target = f"{provider} {path} {_model_of(body)}"
        self._asked.append(target)
        if not (self._everyone or target == self._asked[0]):
            return self._ports["open"], f"/sound/{quote(provider, safe='')}"
        return self._ports["open" if self._fault.play else "refused"], f"/fault/{quote(provider, safe='')}"

    async def _fail(self, call: Call) -> None:
        assert self._fault.play is not None
        await self._fault.play(Reply(call, self._voice(call), self._speak))

    async def _answer(self, call: Call) -> None:
        await sound(Reply(call, self._voice(call), lambda: None))

    def _speak(self) -> None:
        if self._spoke is None:
            self._spoke = len(self._asked)

    def _voice(self, call: Call) -> Voice:
        adapter = self._gateway.state.router.providers[unquote(call.path.split("/")[2])].adapter
        return Voice(adapter.dialect, adapter.framing)


def _model_of(body: bytes) -> str:
    """The model that a request names in its body; empty where its dialect names it in the path."""
    value = loads(body)
    return str(value.get("model") or "") if isinstance(value, dict) else ""


class Detour:
    """A Transport that takes a provider's requests to the fault server, over real sockets."""

    def __init__(self, provider: str, place: Callable[[str, str, bytes], tuple[int, str]], pool: Pool) -> None:
        self._provider = provider
        self._place = place
        self._pool = pool

    async def open(self, method: bytes, url: Url, headers: Headers, body: bytes, *, connect: float, deadline: float) -> Exchange:
        port, before = self._place(self._provider, url.target.decode("ascii"), body)
        there = Url("http", "127.0.0.1", port, before.encode("ascii") + url.target)
        return await self._pool.open(method, there, headers, body, connect=connect, deadline=deadline)

    async def aclose(self) -> None:
        """The pool is the scene's."""


async def ask(gateway: Gateway, body: Json) -> Got:
    """POST a chat completion to the application, as a client on this machine."""
    raw, loop = dumps(body), asyncio.get_running_loop()
    head: Json = {}
    parts: list[bytes] = []
    inbox = [{"type": "http.request", "body": raw, "more_body": False}]

    async def receive() -> Any:
        if inbox:
            return inbox.pop()
        return await loop.create_future()  # the client stays

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            head.update(message)
        else:
            parts.append(message.get("body", b""))

    began = loop.time()
    await gateway.asgi(_scope(len(raw)), receive, send)
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in head["headers"]}
    return Got(head["status"], headers, b"".join(parts), loop.time() - began)


def _scope(length: int) -> Json:
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", str(length).encode("ascii"))]
    path = "/v1/chat/completions"
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode("ascii"),
        "root_path": "",
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 1),
    }
