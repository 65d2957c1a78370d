"""The config file: strict YAML in, frozen values that know their place out."""

from __future__ import annotations

from gateway.config.agents import Agent
from gateway.config.agents import Tool as AgentTool
from gateway.config.build import embedded, load, parse
from gateway.config.fields import suggest, unknown
from gateway.config.revision import revision
from gateway.config.schema import Row, reference, schema
from gateway.config.starter import Known, starter
from gateway.config.values import (
    FAILURE_CLASSES,
    THINKING,
    Budget,
    Config,
    Cooldown,
    HookBudget,
    Http,
    Key,
    Limits,
    Model,
    Price,
    Provider,
    Retention,
    Secret,
    Server,
    Target,
    Team,
    Timeouts,
    matched,
)

__all__ = [
    "FAILURE_CLASSES",
    "THINKING",
    "Agent",
    "AgentTool",
    "Budget",
    "Config",
    "Cooldown",
    "HookBudget",
    "Http",
    "Key",
    "Known",
    "Limits",
    "Model",
    "Price",
    "Provider",
    "Retention",
    "Row",
    "Secret",
    "Server",
    "Target",
    "Team",
    "Timeouts",
    "embedded",
    "load",
    "matched",
    "parse",
    "reference",
    "revision",
    "schema",
    "starter",
    "suggest",
    "unknown",
]
