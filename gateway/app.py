"""The composition root: a Config becomes adapters, providers, chains and the ASGI application.

`Gateway` owns what outlives a config: telemetry, health and connections. A reload builds
everything anew beside the running State and then swaps it in one assignment; requests that
run keep theirs, and a config that cannot be used changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import watchfiles
from prometheus_client.metrics_core import Metric
from starlette.applications import Starlette
from starlette.types import ASGIApp

from gateway import api, config
from gateway.adapters import Adapter, Loader, builtin_folder, check_options
from gateway.agent import Agents, Facts, Runs, Served, Servers
from gateway.agent.mcp.serving import Serving
from gateway.chat import Model
from gateway.errors import AdapterError, ConfigError, Fault
from gateway.failures import redact
from gateway.keys import Ledger
from gateway.routing import Cache, Chain, Fleet, Router, SharedAnswers, SharedRests
from gateway.store import Shared, SqlStore, StoreRefused, folder_of, in_memory, open_store
from gateway.telemetry import Telemetry, log_to_stderr, server_telemetry
from gateway.upstream import Memory, Provider, Transport, choose
from gateway.workers import KEPT, Workers

if TYPE_CHECKING:
    from gateway.agent import Program
    from gateway.dialects.responses import Stored

log = logging.getLogger("thinkgate")

DEFAULT_ADAPTER = "openai"
WATCH_VARIABLE = "THINKGATE_RELOAD_CONFIG"
"""How they learn that each shall reload by itself when that file changes."""
CONFIG_VARIABLE = "THINKGATE_CONFIG"
"""How worker processes learn which file to load; empty: the embedded default."""
WORKERS_VARIABLE = "THINKGATE_WORKERS"
"""How they learn how many they are: without a shared store of limits each has its part of a key's"""
FOLDER_VARIABLE = "THINKGATE_WORKERS_FOLDER"
"""How they learn where they find each other."""

APART = "rests of targets, kept answers, reasoning, stored responses and MCP sessions"
"""What each process has of its own where nothing is shared, besides its part of every limit"""
IN_MEMORY = "the store is in memory: each worker has its own keys, requests, usage, sessions and runs"

_SECRET = 12  # characters from which a configured header may be a secret

Read = Callable[[], config.Config]
Connect = Callable[[config.Provider, str], Transport]
Find = Callable[[str], tuple[Model, Callable[[], Facts]]]


class Gateway:
    """The running gateway, one of `processes`, which find each other in `folder`.

    `read` gives the config at each reload, and now where `conf` does not.
    """

    def __init__(
        self,
        read: Read,
        connect: Connect | None = None,
        telemetry: Telemetry | None = None,
        processes: int = 1,
        folder: Path | None = None,
        conf: config.Config | None = None,
    ) -> None:
        self._read = read
        self._connect = connect or Connections().get
        self._telemetry = telemetry or Telemetry()
        self._fleet = Fleet({})
        self._processes = processes
        self.workers = Workers(folder, self._collect, self.reload) if folder is not None else None
        self.servers = Servers()
        self._providers: dict[str, Provider] = {}
        self._reloaded: api.Reload | None = None
        self.config = read() if conf is None else conf
        self.shared = self._share(self.config, processes)
        self._memory = Memory(shared=self.shared)
        self._stored = cache(partial(_stored, self.shared))
        self._mcp = Serving(self.shared)
        self.ledger = Ledger(self._telemetry.usage_dropped, processes, self.shared)
        if self.ledger.door is not None:
            self.ledger.door.alone = self._telemetry.decided_alone
        self.runs = Runs(self.ledger.charge, self._telemetry.run)
        self.state = self._build(self.config)
        self._declare(self.config)
        self.asgi = api.build(lambda: self.state, self._lifespan, self.config.server.cors)
        self._watch: Path | None = None

    def reload(self) -> bool:
        """Read the config again. True: it is in use now; False: the old one stays, the log says why."""
        fault: str | None = None
        try:
            fresh = self._read()
            if fresh.store != self.config.store:
                raise ConfigError([fresh.fault("store", "another store takes a restart")], fresh.file)
            if fresh.shared != self.config.shared:
                raise ConfigError([fresh.fault("shared", "another shared state takes a restart")], fresh.file)
            state = self._build(fresh)
        except ConfigError as error:
            fault = str(error)
            log.error("config not reloaded, the old one stays in use:\n%s", error)
        except OSError as error:
            fault = f"{type(error).__name__}: the config file cannot be read"
            log.error("config not reloaded, the old one stays in use: %s", fault)
        else:
            for path in _at_the_start(self.config.server, fresh.server):
                log.warning("%s:%d:%d: %s: takes a restart; all else is in use", fresh.file, *fresh.place(*path.split(".")), path)
            self.config, self.state = fresh, state
            self.asgi.allow(fresh.server.cors)
            if self.workers is not None:
                self.workers.keep(Path(fresh.file))
            self._declare(fresh)
            self._fleet.data.want(self._fleet.urls.values())
            log.info("config reloaded from %s", fresh.file)
        self._reloaded = api.Reload(time.time(), fault)
        self._telemetry.reload(fault is None)
        return fault is None

    async def reload_all(self) -> bool:
        """The same in every worker, and in every process that shares its state with this one."""
        done = self.reload()
        if self.workers is not None:
            await self.workers.reload()
        if self.shared is not None:
            self.shared.call_reload()
        return done

    async def metrics(self) -> bytes:
        """The text that Prometheus reads: of this process, or of all workers."""
        if self.workers is not None:
            return await self.workers.metrics()
        self._measure()
        return self._telemetry.expose()

    def _measure(self) -> None:
        """Bring up to date what is not counted when it happens."""
        learned = Counter((name, kind.partition(":")[0]) for name, provider in self.state.router.providers.items() for _, kind in provider.lessons)
        self._telemetry.learned(learned)
        self._telemetry.shared(self.shared.up if self.shared is not None else None)

    def _collect(self) -> Iterable[Metric]:
        self._measure()
        return self._telemetry.registry.collect()

    def current(self) -> tuple[config.Config, api.Reload | None]:
        """The config in use, and how the last reload went; None: there was none."""
        return self.config, self._reloaded

    def read_prices(self) -> None:
        """Read the public price data now, for commands; a running application uses `reading_prices`."""
        self._fleet.data.read(self._fleet.urls.values())

    @asynccontextmanager
    async def reading_prices(self) -> AsyncGenerator[None]:
        """Read it in the background, now and after a reload, for as long as the context lasts."""
        prices = self._fleet.data
        prices.begin(self._fleet.urls.values())
        try:
            yield
        finally:
            await prices.stop()

    def read_from(self, read: Read) -> None:
        """Have reloads read the config so."""
        self._read = read

    def watch(self) -> None:
        """Reload by itself when the config file changes, while the application runs."""
        self._watch = Path(self.config.file).absolute()

    def _declare(self, conf: config.Config) -> None:
        self.ledger.authority.declare(conf.keys, conf.teams)
        self.ledger.retention = conf.retention.requests
        self.runs.use(self._agents, conf.retention)
        self.servers.keep(server for agent in conf.agents.values() for server in agent.mcp.values())
        if self.shared is not None:
            self.shared.revision = config.revision(conf)

    def _share(self, conf: config.Config, processes: int) -> Shared | None:
        """What this process shares with others; health is known to all, and each sends its part of what providers allow."""
        if conf.shared is None:
            return None
        try:
            shared = Shared(conf.shared, processes)
        except ValueError as error:
            raise ConfigError([conf.fault("shared", str(error))], conf.file) from None
        SharedRests(shared, self._fleet.health)
        shared.resized.append(lambda processes: self._fleet.divide(processes))
        shared.reloads.append(self.reload)
        return shared

    def _build(self, conf: config.Config) -> api.State:
        loader = Loader([conf.adapters_dir, builtin_folder()], conf.hook_budget)
        hide = partial(redact, secrets=secrets_of(conf))
        try:
            providers = build_providers(conf, loader, self._connect, hide, self._memory)
        except ConfigError as error:
            raise ConfigError(_more_faults(error.faults, conf, providers=False), conf.file) from None
        server = conf.server
        urls = {name: provider.base_url() or "" for name, provider in providers.items()}
        processes = self.shared.processes if self.shared is not None else self._processes
        fleet = Fleet(conf.providers, urls, self._fleet, processes)
        router = Router(conf.models, providers, fleet, self._telemetry)
        agents = _agents(conf, partial(_model, router, fleet), self.servers)
        # the config is good: from here on nothing is as it was before
        for name, provider in providers.items():
            if (old := self._providers.get(name)) is not None and old.settings == provider.settings:
                provider.lessons = old.lessons
        fleet.take_over(self._fleet)
        self._fleet, self._providers, self._agents = fleet, providers, agents
        router.agents = {f"agent/{name}": Served(name, self.runs) for name in agents}
        return api.State(
            server=server,
            auth=api.Auth(server.keys, server.hosts, server.open, server.admin_key, self.ledger.authority),
            router=router,
            health=fleet.health,
            telemetry=self._telemetry,
            redact=hide,
            ready=partial(self._ready, loader),
            control=self,
            stored=self._stored,
            ledger=self.ledger,
            price=fleet.prices.of,
            cache=Cache(shared=SharedAnswers(self.shared, config.revision(conf)) if self.shared is not None else None),
            mcp=self._mcp,
            runs=self.runs,
        )

    def _ready(self, loader: Loader) -> tuple[bool, dict[str, Any]]:
        providers: dict[str, Any] = {"resting": self.state.health.resting(), "learned": self._learned()}
        away, fault = self.ledger.fault or self.ledger.usage.failing, self._reloaded.error if self._reloaded is not None else None
        store = {"state": "away" if away else "up", "error": away, "waiting": len(self.ledger.usage)}
        conf = {"state": "stale" if fault else "current", "file": self.config.file, "error": fault}
        parts: dict[str, Any] = {"config": conf, "store": store, "providers": providers}
        parts["shared"] = self.shared.state() if self.shared is not None else {"state": "off", "processes": self._processes}
        if (processes := parts["shared"]["processes"]) > 1 and parts["shared"]["state"] != "up":
            parts["shared"]["limits"] = f"each of {processes} processes lets in its part of every limit"
            parts["shared"]["apart"] = f"each has its own {APART}"
        if self._processes > 1 and in_memory(self.config.store):
            store["apart"] = IN_MEMORY
        if self.config.agents:
            parts["agents"] = self.runs.state()
        if loader.faults:
            parts["adapters"] = {"errors": {str(Path(path).name): why for path, why in loader.faults.items()}}
        return True, parts

    def _learned(self) -> dict[str, list[str]]:
        """Refusals that are prevented by now, by target."""
        out: dict[str, list[str]] = {}
        for name, provider in self.state.router.providers.items():
            for model, kind in provider.lessons:
                out.setdefault(f"{name}/{model}", []).append(kind)
        return out

    @asynccontextmanager
    async def opened(self, *, work: bool = True) -> AsyncGenerator[None]:
        """Store, shared state and runs, for as long as something is served: to clients, to a command, to a program.

        work  take runs that wait for somebody who has time; else only those begun here are run
        """
        self.servers.pins = store = await open_store(self.config.store, self.config.base) if self.workers is None else await patiently(self.config)
        await self.ledger.open(store)
        await self.runs.open(store, work=work)
        if self.shared is not None:
            await self.shared.open()
        try:
            yield
        finally:
            await self.runs.aclose()
            await asyncio.gather(self._mcp.aclose(), self.servers.aclose())
            await asyncio.gather(*(p.aclose() for p in self.state.router.providers.values()))
            await self.ledger.close()
            self._telemetry.close()
            if self.shared is not None:
                await self.shared.aclose()

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncGenerator[dict[str, Any]]:
        loop = asyncio.get_running_loop()
        sys.set_asyncgen_hooks(firstiter=None)  # the loop would note each generator, to close it at its own end; whoever takes one here closes it
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread, or no such signal here
            loop.add_signal_handler(signal.SIGHUP, self.reload)
        watcher = loop.create_task(self._follow(self._watch)) if self._watch else None
        async with self.opened(), self.workers.open() if self.workers is not None else contextlib.nullcontext(), self.reading_prices():
            yield {"header_timeout": self.config.server.header_timeout}
            if watcher is not None:
                watcher.cancel()

    async def _follow(self, file: Path) -> None:
        """Reload whenever the file is another one: written, replaced, or reached by a link that leads elsewhere now (a mounted ConfigMap)."""
        known = _look(file)
        async for _ in watchfiles.awatch(file.parent, recursive=False):
            if (now := _look(file)) != known:
                known = now
                self.reload()


def _look(file: Path) -> tuple[int, ...]:
    """What tells one version of a file from another."""
    try:
        stat = file.stat()
    except OSError:
        return ()
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _at_the_start(old: config.Server, new: config.Server) -> list[str]:
    """The settings of a server that differ and are read when it starts only."""
    names = {"host": "host", "port": "port", "drain": "drain", "header_timeout": "timeouts.header", "idle_timeout": "timeouts.idle"}
    return [f"server.{path}" for name, path in names.items() if getattr(old, name) != getattr(new, name)]


class _House:
    """A gateway that serves nobody but the program that it is in."""

    def __init__(self, conf: config.Config) -> None:
        self.config = conf
        self._gate = Gateway(lambda: conf)
        self.runs = self._gate.runs

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Limits in money hold from the first run on, so prices must be known before; other runs do not wait for them."""
        if any(agent.limits.cost is not None for agent in self.config.agents.values()):
            await asyncio.to_thread(self._gate.read_prices)
        async with self._gate.opened(), self._gate.reading_prices():
            yield


class Connections:
    """One transport per way of reaching a provider, kept across reloads with its open connections."""

    def __init__(self, env: Mapping[str, str] = os.environ) -> None:
        self._env = env
        self._made: dict[tuple[object, ...], Transport] = {}

    def get(self, provider: config.Provider, base_url: str) -> Transport:
        key = (base_url, provider.http)
        if key not in self._made:
            self._made[key] = choose(provider.http, base_url, self._env)
        return self._made[key]


def build_providers(conf: config.Config, loader: Loader, connect: Connect, hide: Callable[[str], str], memory: Memory) -> dict[str, Provider]:
    """All providers of a config. ConfigError with every fault that only the adapters know."""
    faults: list[Fault] = []
    providers = {}
    for name, settings in conf.providers.items():
        adapter_name = settings.adapter or (name if name in loader.names() else DEFAULT_ADAPTER)
        adapter = _load(conf, loader, name, settings, adapter_name, faults)
        if adapter is None:
            continue
        base_url = settings.base_url or adapter.base_url
        if base_url is None:
            faults.append(conf.fault(f"providers.{name}", f"base_url is missing, and adapter {adapter.name} has none"))
            continue
        if base_url.startswith("mock://"):
            from gateway.upstream.mock import check as check_mock  # loaded where there is one

            if wrong := check_mock(base_url):
                faults += [conf.fault(f"providers.{name}.base_url", text) for text in wrong]
                continue
        if adapter.env and not settings.api_keys and settings.base_url is None and adapter.auth != "none":
            faults.append(conf.fault(f"providers.{name}", f"api_key is missing; write api_key: ${{{adapter.env}}}"))
        try:
            transport = connect(settings, base_url)
        except ValueError as error:  # a certificate or a proxy that cannot be used
            faults.append(conf.fault(f"providers.{name}.http", str(error)))
            continue
        providers[name] = Provider(settings, loader, adapter_name, transport, hide, memory)
    for model in conf.models.values():
        for index, target in enumerate(model.chain):
            if target.options and target.provider in providers:
                place = f"models.{model.name}.chain[{index}].options"
                faults += [conf.fault(f"{place}.{key}", text) for key, text in check_options(providers[target.provider].adapter, target.options)]
    if faults:
        raise ConfigError(sorted(faults, key=lambda fault: (fault.line, fault.column)), conf.file)
    return providers


def _load(conf: config.Config, loader: Loader, name: str, settings: config.Provider, adapter_name: str, faults: list[Fault]) -> Adapter | None:
    try:
        adapter = loader.get(adapter_name)
    except AdapterError as error:
        faults.append(conf.fault(f"providers.{name}.adapter", error.message))
        return None
    faults += [conf.fault(f"providers.{name}.options.{key}", text) for key, text in check_options(adapter, settings.options)]
    for index, path in enumerate(settings.hooks):
        try:
            loader.file(path)
        except AdapterError as error:
            faults.append(conf.fault(f"providers.{name}.hooks[{index}]", error.message))
    return adapter


def _model(router: Router, fleet: Fleet, name: str) -> tuple[Model, Callable[[], Facts]]:
    """The chain that an agent runs on, and what is known of its targets: all of them must be priced, the smallest window counts."""
    chain = router.chain(name)

    def facts() -> Facts:
        targets = chain.settings.chain
        windows = [size for target in targets if (size := fleet.prices.window(target.provider, target.model)) is not None]
        priced = all(fleet.prices.of(target.provider, target.model) is not None for target in targets)
        first = targets[0]
        return Facts(router.providers[first.provider].thinks(first), priced, min(windows, default=None), fleet.prices.of)

    return chain, facts


def _agents(conf: config.Config, find: Find, servers: Servers | None = None) -> Agents:
    if not conf.agents:
        return Agents({}, find)
    from gateway.agent import build_agents  # with every tool that there is

    return build_agents(conf, find, servers)


def _stored(shared: Shared | None) -> Stored:
    from gateway.dialects.responses import Stored  # a dialect is loaded where it is spoken

    return Stored(shared=shared)


def secrets_of(conf: config.Config) -> tuple[str, ...]:
    """Every secret that this config holds, for redaction."""
    found = [key.reveal() for provider in conf.providers.values() for key in provider.api_keys]
    found += [part for key in found for part in key.split(":") if ":" in key and len(part) >= _SECRET]  # the parts of a signing key
    found += [value for provider in conf.providers.values() for value in provider.headers.values() if len(value) >= _SECRET]
    found += [provider.http.proxy for provider in conf.providers.values() if provider.http.proxy]
    servers = [server for agent in conf.agents.values() for server in agent.mcp.values()]
    found += [value for server in servers for value in (*server.headers.values(), *server.env.values()) if len(value) >= _SECRET]
    found += [key.reveal() for key in conf.server.keys]
    found += [key.key.reveal() for key in conf.keys.values()]
    found += [password for url in (conf.store, conf.shared or "") if len(password := password_of(url)) >= 6]
    if conf.server.admin_key:
        found.append(conf.server.admin_key.reveal())
    return tuple(secret for secret in found if secret)


def password_of(url: str) -> str:
    """The password in a URL, as it stands there; none: empty."""
    return url.partition("://")[2].rpartition("@")[0].partition(":")[2]


async def patiently(conf: config.Config) -> SqlStore:
    """The store of a worker, whose parent has seen that it can be used: while it is away, a worker that starts waits for it, and the others serve on."""
    told, before = False, signal.signal(signal.SIGTERM, signal.SIG_DFL)  # nothing is served yet: the end may come at once
    try:
        while True:
            try:
                return await open_store(conf.store, conf.base)
            except StoreRefused as error:
                if not told:
                    log.error("this worker waits for the store: %s", error.message)
                told = True
                await asyncio.sleep(1)
    finally:
        signal.signal(signal.SIGTERM, before)


def known_providers(loader: Loader, env: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(adapter, its usual key's variable, its default model) of every adapter that can be used with the key that the environment has for it."""
    out = []
    for name in loader.names():
        if not env.get(loader.variable(name)):
            continue
        adapter = loader.get(name)
        if adapter.env and adapter.base_url and adapter.default_model:
            out.append((name, adapter.env, adapter.default_model))
    return out


def embedded(env: Mapping[str, str]) -> config.Config:
    """The config that needs no file: the demo model, and `auto` over the providers whose keys are in the environment."""
    from gateway.upstream.local import local_is_installed  # a file says itself what it wants

    loader = Loader([builtin_folder()], config.HookBudget())
    conf = config.embedded(env, known_providers(loader, env), local=local_is_installed(), texts=str(Path(__file__).parent / "agent" / "texts"))
    return replace(conf, adapters_dir=builtin_folder())  # never files that happen to lie in the working directory


def read_config(file: str | Path | None, env: Mapping[str, str] = os.environ) -> config.Config:
    """The config of a file, or the embedded default without one. ConfigError with every fault, those that only adapters and tools know too."""
    if not file:
        return embedded(env)
    try:
        return config.load(Path(file), env)
    except ConfigError as error:
        if error.sound is None:
            raise
        raise ConfigError(_more_faults(error.faults, error.sound), error.file) from None


def _more_faults(known: Iterable[Fault], sound: config.Config, *, providers: bool = True) -> list[Fault]:
    """The faults of a config, with what adapters (unless they were asked) and tools find in its sound parts; nothing that one above it explains."""
    known = list(known)
    loader = Loader([sound.adapters_dir, builtin_folder()], sound.hook_budget)
    nobody = Chain(config.Model("", ()), {}, Fleet({}), Telemetry())  # whether an agent's model is there has been seen
    agents = {name: agent for name, agent in sound.agents.items() if all(t.kind != "agent" or t.name in sound.agents for t in agent.tools)}
    found: list[Fault] = []
    for build in (
        lambda: providers and build_providers(sound, loader, Connections().get, str, Memory()),
        lambda: _agents(replace(sound, agents=agents), lambda name: (nobody, Facts)),
    ):
        try:
            build()
        except ConfigError as error:
            found += error.faults
    return [*known, *(fault for fault in found if not any(f"{old.path}.".startswith((f"{fault.path}.", f"{fault.path}[")) for old in known))]


async def see_store(conf: config.Config) -> None:
    """Whether the store can be used, its schema brought up to date. StoreRefused."""
    await (await open_store(conf.store, conf.base)).aclose()


def load(file: str | Path | None = None, env: Mapping[str, str] = os.environ) -> Program:
    """The agents of a config, or of the embedded default, for a program: `load("thinkgate.yaml").agent("analyst").run("...")`.

    Raises what `check` does. Nothing is opened before the first call; close it, or use it in a `with`.
    """
    from gateway.agent import Program  # a server has no use for it

    return Program(_House(read_config(file, env)))


def check(conf: config.Config) -> None:
    """Everything that a start would check, without starting. ConfigError with all faults."""
    folder = folder_of(conf.store, conf.base)
    away = [conf.fault("store", "the folder of the file is not there")] if folder is not None and not folder.is_dir() else []
    try:
        Gateway(lambda: conf)
    except ConfigError as error:
        raise ConfigError([*error.faults, *away], conf.file) from None
    if away:
        raise ConfigError(away, conf.file)


def from_environment() -> ASGIApp:
    """The application of a worker process."""
    log_to_stderr()
    file, folder = os.environ.get(CONFIG_VARIABLE) or None, _folder()
    made = partial(Gateway, telemetry=server_telemetry(), processes=int(os.environ.get(WORKERS_VARIABLE, "1")), folder=folder)
    try:
        gate = made(partial(read_config, file))
    except ConfigError:
        kept = folder / KEPT if folder is not None else None
        if file is None or kept is None or not kept.is_file():
            raise
        # the file was changed and is wrong: whoever takes a dead worker's place serves what the others serve
        gate = made(partial(config.parse, kept.read_text("utf-8"), file, Path(file).parent))
        gate.read_from(partial(read_config, file))
        gate.reload()
    else:
        if gate.workers is not None and file:
            gate.workers.keep(Path(file))
    if file and os.environ.get(WATCH_VARIABLE):
        gate.watch()
    calm_collector()
    return gate.asgi


def _folder() -> Path | None:
    """Where workers find each other; None: this system has no sockets in the file system."""
    folder = os.environ.get(FOLDER_VARIABLE)
    return Path(folder) if folder and hasattr(asyncio, "start_unix_server") else None


def calm_collector() -> None:
    """What is there after the start stays; the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(30_000, 20, 20)  # the requests that wait for the store must not set it off
