"""What the routes know of the running gateway. One State per loaded config; a reload makes a new one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from gateway import config
from gateway.agent import Runs
from gateway.agent.mcp.serving import Serving
from gateway.api.auth import Auth
from gateway.chat import Body, Record
from gateway.errors import GatewayError
from gateway.keys import Admission, Holder, Ledger
from gateway.routing import Cache, Health, Router
from gateway.routing.prices import Rates
from gateway.telemetry import Telemetry

if TYPE_CHECKING:
    from gateway.dialects.responses import Stored


class Reload(NamedTuple):
    """When the config was read again, unix seconds, and why it could not be used; None: it could."""

    time: float
    error: str | None


class Control(Protocol):
    """What the admin routes may do with the running gateway."""

    def current(self) -> tuple[config.Config, Reload | None]:
        """The config in use, and how the last reload went; None: there was none."""
        ...

    async def reload_all(self) -> bool:
        """Read the config again, and have the other processes do so; whether this one could."""
        ...

    async def metrics(self) -> bytes:
        """The text that Prometheus reads, of all workers."""
        ...


@dataclass(frozen=True, slots=True)
class State:
    """Requests that run keep the State that they began with."""

    server: config.Server
    auth: Auth
    router: Router
    health: Health
    telemetry: Telemetry
    redact: Callable[[str], str]
    ready: Callable[[], tuple[bool, dict[str, Any]]]
    control: Control
    stored: Callable[[], Stored]
    ledger: Ledger
    price: Callable[[str, str], Rates | None]
    mcp: Serving
    runs: Runs
    cache: Cache = field(default_factory=Cache)


class Visit(msgspec.Struct):
    """One request at the door: who asks, and the record that everything below writes into."""

    state: State
    record: Record
    headers: dict[bytes, bytes]
    query: bytes = b""
    holder: Holder | None = None
    """whose virtual key it is; None: a key of the server, or none is needed"""
    admission: Admission | None = None
    size: int = 0
    """bytes of the request's body"""
    written: int = 0
    """bytes of the answer's chunks that were written, and of the first of them"""
    envelope: int = 0
    limits: list[tuple[bytes, bytes]] | None = None
    """headers that say what is left of its key's limits"""
    asked: Body | None = None
    """the body as the client sent it, where the request that was made of it says more"""
    kept: bool = False
    """an answer that was kept will do"""
    end: Callable[[GatewayError], Awaitable[None]] | None = None
    """how to end an answer that has begun; None: none has"""
