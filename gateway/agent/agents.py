"""The agents of one config: each with its model, its tools and the MCP servers that it may use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gateway import config
from gateway.agent.mcp import Servers
from gateway.agent.subagent import SubAgent
from gateway.agent.tools.builtin import build
from gateway.agent.tools.registry import Registry
from gateway.agent.tools.tool import Tool
from gateway.chat import Model
from gateway.errors import ConfigError, Fault, GatewayError


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a model now: `reasons` it thinks before it answers, `priced` its price is known, `window` its context in tokens."""

    reasons: bool = False
    priced: bool = True
    window: int | None = None


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
        offered = await self.servers.tools(self.spec.mcp, taken=self.own.names())
        return Registry([*self.own, *offered.tools]), offered.warnings


class Agents:
    """All agents of a config, by name. `find` gives the model of a name, with what is known of it."""

    def __init__(self, parts: Mapping[str, Parts], find: Callable[[str], tuple[Model, Callable[[], Facts]]]) -> None:
        self._parts = dict(parts)
        self.find = find

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def get(self, name: str) -> Parts | None:
        return self._parts.get(name)


def build_agents(
    conf: config.Config, find: Callable[[str], tuple[Model, Callable[[], Facts]]], servers: Servers | None = None, env: Mapping[str, str] = os.environ
) -> Agents:
    """All agents of a config. ConfigError with every fault that only models and tools know: a file that is not there, a function without types."""
    parts: dict[str, Parts] = {}
    faults: list[Fault] = []
    for name, spec in conf.agents.items():
        place = f"agents.{name}"
        registry = Registry()
        for index, tool in enumerate(spec.tools):
            try:
                registry.add(_made(conf, tool, parts.__getitem__, env))
            except (ValueError, OSError, ConfigError) as error:
                faults.append(conf.fault(f"{place}.tools[{index}]", str(error)))
        if not spec.mcp:
            known = ", ".join(registry.names()) or "none"
            unknown = [(index, wanted) for index, wanted in enumerate(spec.approval.tools) if registry.find(wanted) is None]
            faults += [conf.fault(f"{place}.approval.tools[{index}]", f'the agent has no tool "{wanted}"; it has: {known}') for index, wanted in unknown]
        try:
            model, facts = find(spec.model)
        except GatewayError as error:
            faults.append(conf.fault(f"{place}.model", error.message))
            continue
        parts[name] = Parts(spec, model, registry, facts, servers)
    if faults:
        raise ConfigError(sorted(faults, key=lambda fault: (fault.line, fault.column)), conf.file)
    return Agents(parts, find)


def _made(conf: config.Config, tool: config.AgentTool, find: Callable[[str], Parts], env: Mapping[str, str]) -> Tool | Callable[..., Any]:
    if tool.kind == "agent":
        return SubAgent(tool.name, conf.agents[tool.name].system, find)
    if tool.kind == "python":
        from gateway.agent.tools.function import load  # pydantic: only who has functions pays for it

        assert tool.file is not None
        return load(tool.file, tool.name)
    return build(tool, env)
