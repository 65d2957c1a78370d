"""The agents of one config: each with its model, its tools and the MCP servers that it may use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway import config
from gateway.agent.broken import unpriced
from gateway.chat import Model
from gateway.routing.estimates import Prices

if TYPE_CHECKING:
    from gateway.agent.mcp import Servers
    from gateway.agent.tools.registry import Registry


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a model now: `reasons` it thinks before it answers, `priced` its price is known, `window` its context in tokens.

    `prices` is asked what a turn cost that broke off.
    """

    reasons: bool = False
    priced: bool = True
    window: int | None = None
    prices: Prices = unpriced


@dataclass(frozen=True, slots=True)
class Parts:
    """One agent, ready to run. `own` are its built-in tools, functions and sub-agents; those of MCP servers come when a run begins."""

    spec: config.Agent
    model: Model
    own: Registry
    facts: Callable[[], Facts] = Facts
    servers: Servers | None = None

    async def tools(self) -> tuple[Registry, tuple[str, ...]]:
        """All its tools, and what is missing: a server that does not answer costs its tools, nothing else."""
        if self.servers is None or not self.spec.mcp:
            return self.own, ()
        from gateway.agent.tools.registry import Registry  # whoever made `own` has loaded it

        offered = await self.servers.tools(self.spec.mcp, taken=self.own.names())
        return Registry([*self.own, *offered.tools]), offered.warnings


class Agents:
    """All agents of a config, by name. `find` gives the model of a name, with what is known of it."""

    def __init__(self, parts: Mapping[str, Parts], find: Callable[[str], tuple[Model, Callable[[], Facts]]]) -> None:
        self._parts = dict(parts)
        self.find = find

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def get(self, name: str) -> Parts | None:
        return self._parts.get(name)
