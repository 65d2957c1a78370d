"""What a config file says, as frozen values. Durations are float seconds, sizes int bytes.

Nothing here reads or checks anything: `gateway.config.load` makes these values and has
checked them, tests may make them by hand. Texts that may hold a password or a token stay
out of every repr.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.errors import Fault

if TYPE_CHECKING:
    from gateway.config.agents import Agent

MIB = 1024 * 1024

FAILURE_CLASSES = (
    "connect",
    "timeout",
    "first_token_timeout",
    "rate_limit",
    "overload",
    "server",
    "balance",
    "auth",
    "not_found",
    "context_overflow",
    "content_filter",
    "reasoning_missing",
    "reasoning_unsupported",
    "signature",
    "tool_choice_thinking",
    "tools_effort",
    "thinking_mode",
    "param",
    "role_order",
    "bad_request",
    "protocol",
    "adapter",
    "client_gone",
)
"""Every way in which an exchange with a provider can fail; gateway.failures says what each one does."""

THINKING = ("auto", "off", "on", "minimal", "low", "medium", "high", "max")
"""What a provider, a target or a request may wish about thinking; `auto` sends nothing."""

BALANCES = ("order", "weighted", "latency", "cheapest")
PERIODS = ("day", "week", "month", "total")


class Secret:
    """A text that must not be seen: repr and str print `***`, only `reveal()` gives it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __eq__(self, other: object) -> bool:
        """Equal texts are equal secrets, found in a time that does not tell how much of them agrees."""
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode("utf-8", "surrogatepass"), other._value.encode("utf-8", "surrogatepass"))

    def __hash__(self) -> int:
        return hash(self._value)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a secret is not pickled")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds: to connect, to the first content, between two reads, for the whole exchange.

    `first_token` None: 60 seconds for streams, none for plain answers, which have no first token.
    """

    connect: float = 5.0
    first_token: float | None = None
    idle: float = 30.0
    total: float = 600.0


@dataclass(frozen=True, slots=True)
class Cooldown:
    """A target rests after `after` counting failures in a row, for `base` seconds doubling up to `max`."""

    after: int = 3
    base: float = 5.0
    max: float = 300.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Requests at a time, requests and tokens in the last 60 seconds; None: no limit."""

    concurrency: int | None = None
    rpm: int | None = None
    tpm: int | None = None

    def part(self, processes: int) -> Limits:
        """What one of so many processes may let in when each counts for itself: at least 1 of each."""
        if processes <= 1:
            return self
        return Limits(*(None if limit is None else max(1, limit // processes) for limit in (self.concurrency, self.rpm, self.tpm)))


@dataclass(frozen=True, slots=True)
class Http:
    """How to reach a provider: `cert` is (certificate,) or (certificate, key), PEM files."""

    http2: bool = False
    proxy: str | None = field(default=None, repr=False)
    cert: tuple[Path, ...] | None = None


@dataclass(frozen=True, slots=True)
class Price:
    """USD per million tokens (`cached`: of the prompt's cached part) and the context window in tokens; None: the price data's."""

    input: float | None = None
    output: float | None = None
    cached: float | None = None
    context: int | None = None


@dataclass(frozen=True, slots=True)
class Provider:
    """One upstream. `adapter` and `base_url` are None where the file leaves them to the adapter."""

    name: str
    adapter: str | None = None
    base_url: str | None = None
    api_keys: tuple[Secret, ...] = ()
    thinking: str = "auto"
    timeouts: Timeouts = Timeouts()
    retries: int = 1
    options: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    hooks: tuple[Path, ...] = ()
    limits: Limits = Limits()
    cooldown: Cooldown = Cooldown()
    http: Http = Http()
    models: Mapping[str, Price] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Target:
    """One place of a chain; what is None is the provider's."""

    provider: str
    model: str
    first_token: float | None = None
    idle: float | None = None
    total: float | None = None
    connect: float | None = None
    retries: int | None = None
    thinking: str | None = None
    weight: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)

    def __hash__(self) -> int:
        return hash((self.provider, self.model))  # a dict is asked for it with every request

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.model}"


@dataclass(frozen=True, slots=True)
class Model:
    """What clients put into `model`: a chain of targets. `pattern`: the name has a star that stands for the part it matched."""

    name: str
    chain: tuple[Target, ...]
    deadline: float | None = None
    balance: str = "order"
    hedge: float | None = None
    move_on: tuple[str, ...] | None = None
    resume: str = "off"
    cache_exact: float | None = None
    empty_answer: str = "reject"
    pattern: bool = False


@dataclass(frozen=True, slots=True)
class Budget:
    usd: float
    per: str = "month"


@dataclass(frozen=True, slots=True)
class Key:
    """A client key of the file. `models` are names and globs; empty: all."""

    name: str
    key: Secret
    models: tuple[str, ...] = ()
    limits: Limits = Limits()
    budget: Budget | None = None
    expires: date | None = None
    team: str | None = None


@dataclass(frozen=True, slots=True)
class Team:
    name: str
    limits: Limits = Limits()
    budget: Budget | None = None
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Server:
    host: str = "127.0.0.1"
    port: int = 8080
    keys: tuple[Secret, ...] = ()
    admin_key: Secret | None = None
    max_body: int = 32 * MIB
    drain: float = 30.0
    keepalive: float = 15.0
    cors: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    open: bool = False
    header_timeout: float = 10.0
    body_timeout: float = 30.0
    idle_timeout: float = 75.0
    files: str | None = None


@dataclass(frozen=True, slots=True)
class HookBudget:
    """What one call of a Lua hook may cost: instructions, seconds, bytes."""

    instructions: int = 1_000_000
    time: float = 0.05
    memory: int = 32 * MIB


@dataclass(frozen=True, slots=True)
class Retention:
    """How long the store keeps finished runs and requests, seconds, and how many runs; None: for ever, all."""

    runs: float | None = None
    max_runs: int | None = None
    requests: float | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """A whole config file. `file` is its name in messages, `base` the folder that relative paths belong to."""

    server: Server = Server()
    providers: Mapping[str, Provider] = field(default_factory=dict, hash=False)
    models: Mapping[str, Model] = field(default_factory=dict, hash=False)
    keys: Mapping[str, Key] = field(default_factory=dict, hash=False)
    teams: Mapping[str, Team] = field(default_factory=dict, hash=False)
    agents: Mapping[str, Agent] = field(default_factory=dict, hash=False)
    store: str = field(default="sqlite:///thinkgate.db", repr=False)
    shared: str | None = field(default=None, repr=False)
    adapters_dir: Path = Path("adapters")
    hook_budget: HookBudget = HookBudget()
    retention: Retention = Retention()
    file: str = "config"
    base: Path = Path()
    places: Mapping[str, tuple[int, int]] = field(default_factory=dict, hash=False, repr=False)
    warnings: tuple[Fault, ...] = ()

    def place(self, *path: str | int) -> tuple[int, int]:
        """Line and column (from 1) of the setting, or of its nearest ancestor in the file."""
        return nearest(self.places, render(path))

    def fault(self, path: str | tuple[str | int, ...], message: str) -> Fault:
        """A fault at that setting, for what only upper layers know. `path`: `models.smart.chain[1]` or its parts."""
        shown = path if isinstance(path, str) else render(path)
        line, column = nearest(self.places, shown)
        return Fault(shown, message, line, column)


def matched(pattern: str, name: str) -> str | None:
    """What the star of a pattern stands for in a name that fits; None where it does not fit or there is no star."""
    before, star, after = pattern.partition("*")
    if not star or len(name) < len(before) + len(after) or not name.startswith(before) or not name.endswith(after):
        return None
    return name[len(before) : len(name) - len(after)]


_PLAIN = re.compile(r"[^\[\]\s\"]+")


def render(path: tuple[str | int, ...]) -> str:
    """`models.smart.chain[1]`; a part that holds blanks, quotes or brackets is quoted."""
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
        else:
            shown = part if _PLAIN.fullmatch(part) else '"' + part.replace("\\", "\\\\").replace('"', '\\"') + '"'
            out += f".{shown}" if out else shown
    return out


def nearest(places: Mapping[str, tuple[int, int]], path: str) -> tuple[int, int]:
    """The place of the longest known beginning of `path`; (1, 1) where nothing of it is known."""
    while path:
        if path in places:
            return places[path]
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return 1, 1
