"""Tools one after the other in a fixed order. No agent needs it: it is for workflows that are known beforehand (H16)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gateway.agent.tools.registry import Registry
from gateway.agent.tools.tool import Context
from gateway.chat import loads
from gateway.config import suggest

_PLACE = re.compile(r"\{(\w+)\}")


class ToolChain:
    """Steps, each with what its tool is given.

    chain = ToolChain("report").step("search", "{input}", "found").step("summarise", {"text": "{found}"}, "report")
    await chain.execute(registry, "solar power")
    """

    def __init__(self, name: str, description: str = "") -> None:
        self.name = name
        self.description = description
        self._steps: list[tuple[str, Any, str]] = []

    def step(self, tool: str, given: str | Mapping[str, Any], output: str) -> ToolChain:
        """Add a step. In `given`, `{input}` is the chain's input and `{NAME}` the output of an earlier step; ValueError for any other name."""
        template: Any = dict(given) if isinstance(given, Mapping) else given
        if isinstance(given, str) and given.lstrip().startswith('{"'):
            template = loads(given)
        known = ["input", *(name for _, _, name in self._steps)]
        for name in _places(template):
            if name not in known:
                raise ValueError(f"step {len(self._steps) + 1}: there is no {{{name}}}{suggest(name, known)}")
        self._steps.append((tool, template, output))
        return self

    async def execute(self, registry: Registry, text: str, context: Context | None = None) -> str:
        """The output of the last step. ValueError for a tool that is not there, before the first step runs."""
        if not self._steps:
            raise ValueError(f"the chain {self.name} has no steps")
        for tool, _, _ in self._steps:
            registry.get(tool)
        values = {"input": text}
        for tool, template, output in self._steps:
            text = values[output] = (await registry.execute(tool, _filled(template, values), context)).text
        return text


def _places(template: Any) -> list[str]:
    if isinstance(template, str):
        return _PLACE.findall(template)
    items = template.values() if isinstance(template, dict) else template if isinstance(template, list) else ()
    return [name for item in items for name in _places(item)]


def _filled(template: Any, values: Mapping[str, str]) -> Any:
    if isinstance(template, str):
        return _PLACE.sub(lambda found: values[found[1]], template)
    if isinstance(template, dict):
        return {key: _filled(item, values) for key, item in template.items()}
    return [_filled(item, values) for item in template] if isinstance(template, list) else template
