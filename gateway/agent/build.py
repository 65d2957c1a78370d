"""The agents of a config, made: their tools, their models, and what is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from gateway import config
from gateway.agent.agents import Agents, Facts, Parts
from gateway.agent.mcp import Servers
from gateway.agent.tools.builtin import build
from gateway.agent.tools.registry import Registry
from gateway.agent.tools.tool import Tool
from gateway.chat import Model
from gateway.errors import ConfigError, Fault, GatewayError


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
        from gateway.agent.subagent import SubAgent  # with all that runs runs: only who has agents inside agents loads it before the first run

        return SubAgent(tool.name, conf.agents[tool.name].system, find)
    if tool.kind == "python":
        from gateway.agent.tools.function import load  # pydantic: only who has functions pays for it

        assert tool.file is not None
        return load(tool.file, tool.name)
    return build(tool, env)
