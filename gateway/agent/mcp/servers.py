"""The MCP servers of all agents: who has which tools, and under which names."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from gateway.config.agents import McpServer
from gateway.store import StoreUnavailable

if TYPE_CHECKING:
    from gateway.agent.mcp.connection import Connection
    from gateway.agent.mcp.tool import McpTool, Offer

log = logging.getLogger("thinkgate.mcp")

_LONGEST = 64  # characters of a function's name at most providers
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class Offered:
    """The tools that an agent has of its servers, and what it should know of those that it has not."""

    tools: tuple[McpTool, ...]
    warnings: tuple[str, ...] = ()


class Pins(Protocol):
    """Where digests of tools outlive the process; a gateway.store.Store is one."""

    async def pins(self) -> dict[str, bytes]: ...

    async def pin(self, values: Mapping[str, bytes]) -> None: ...


class Servers:
    """Connections to MCP servers, shared by all runs.

    patience  seconds for which a run waits for a server that starts
    pins      where it is kept how tools were described; None: in this process only

    Close it where it was used: its connections live in tasks of that event loop.
    """

    def __init__(self, patience: float = 30.0, pins: Pins | None = None) -> None:
        self.pins = pins
        self._patience = patience
        self._connections: dict[McpServer, Connection] = {}
        self._leaving: list[Connection] = []  # of older configs: their runs may still call
        self._seen: dict[str, bytes] = {}
        self._unsaved: dict[str, bytes] = {}
        self._recalled = False

    async def tools(self, servers: Mapping[str, McpServer], taken: Collection[str] = ()) -> Offered:
        """The tools of these servers, which are connected if they are not. `taken` are the names of the agent's other tools.

        A server that is not there costs its tools and gives a warning, nothing else.
        """
        from gateway.agent.mcp.tool import McpTool  # with the connections: only who has servers needs them

        found: list[tuple[Connection, Offer]] = []
        warnings: list[str] = []
        connections = [self._connection(server) for server in servers.values()]
        answers = await asyncio.gather(*(self._ask(connection) for connection in connections))
        await self._recall()
        for server, connection, answer in zip(servers.values(), connections, answers, strict=True):
            if isinstance(answer, str):
                warnings.append(f"MCP server {server.name} is not available: {answer}")
                continue
            found += [(connection, one) for one in answer if server.tools is None or one.name in server.tools]
            warnings += self._changed(connection.server, answer)
            missing = sorted(set(server.tools or ()) - {one.name for one in answer})
            warnings += [f"MCP server {server.name} has no tool {name}" for name in missing]
        await self._save()
        for warning in warnings:
            log.warning(warning)
        names = named([(connection.server.name, one.name) for connection, one in found], taken)
        return Offered(tuple(McpTool(connection, one, name) for (connection, one), name in zip(found, names, strict=True)), tuple(warnings))

    def keep(self, servers: Iterable[McpServer]) -> None:
        """A new config has only these: the others end when their last call has."""
        wanted = {_key(server) for server in servers}
        for key in [key for key in self._connections if key not in wanted]:
            connection = self._connections.pop(key)
            connection.retire()
            self._leaving.append(connection)

    async def aclose(self) -> None:
        """End all connections and child processes."""
        connections = [*self._connections.values(), *self._leaving]
        self._connections.clear()
        await asyncio.gather(*(connection.aclose() for connection in connections))

    def _connection(self, server: McpServer) -> Connection:
        from gateway.agent.mcp.connection import Connection

        key = _key(server)
        if key not in self._connections:
            self._connections[key] = Connection(key, self._patience)
        return self._connections[key]

    async def _ask(self, connection: Connection) -> list[Offer] | str:
        from gateway.agent.mcp.connection import ServerDown
        from gateway.agent.mcp.tool import offer

        try:
            return [offer(tool) for tool in await connection.tools()]
        except ServerDown as error:
            return error.message

    def _changed(self, server: McpServer, offers: Sequence[Offer]) -> list[str]:
        """A tool that was trusted and then says something else may be an attack on the model that reads it."""
        out = []
        for one in offers:
            name = _pin(server, one.name)
            if self._seen.get(name, one.digest) != one.digest:
                out.append(f"MCP server {server.name}: tool {one.name} has changed its description, schema or hints since it was last seen")
            if self._seen.get(name) != one.digest:
                self._seen[name] = self._unsaved[name] = one.digest
        return out

    async def _recall(self) -> None:
        if self.pins is not None and not self._recalled:
            try:
                self._seen = {**await self.pins.pins(), **self._seen}
                self._recalled = True
            except StoreUnavailable as error:
                log.warning("what is known of MCP tools cannot be read: %s", error.message)

    async def _save(self) -> None:
        if self.pins is not None and self._unsaved:
            saved, self._unsaved = self._unsaved, {}
            try:
                await self.pins.pin(saved)
            except StoreUnavailable:
                self._unsaved = {**saved, **self._unsaved}  # with the next run


def _pin(server: McpServer, tool: str) -> str:
    where = server.url or "\0".join(server.command)
    return hashlib.sha256("\0".join((server.name, where, tool)).encode()).hexdigest()


def _key(server: McpServer) -> McpServer:
    """What makes a connection: agents that may use different tools of a server share it."""
    return replace(server, tools=None)


def named(offers: Sequence[tuple[str, str]], taken: Collection[str]) -> list[str]:
    """A name for each (server, tool) that providers accept; `server_tool` where two are the same or one is taken."""
    plain = [_clean(tool) for _, tool in offers]
    often, used, out = Counter(plain), set(taken), []
    for (server, tool), name in zip(offers, plain, strict=True):
        wanted = _clean(f"{server}_{tool}") if often[name] > 1 or name in used else name
        unique, number = wanted, 1
        while unique in used:
            number += 1
            unique = f"{wanted[: _LONGEST - 4]}_{number}"
        used.add(unique)
        out.append(unique)
    return out


def _clean(name: str) -> str:
    clean = _FOREIGN.sub("_", name)
    if len(clean) <= _LONGEST:
        return clean
    return f"{clean[: _LONGEST - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
