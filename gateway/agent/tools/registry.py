"""The tools of an agent by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gateway.agent import arguments
from gateway.agent.casting import bare
from gateway.agent.tools.tool import Context, Observation, Tool
from gateway.chat import Json
from gateway.config import suggest

NO_TOOLS = "No tools are available."
"""`descriptions()` of an empty registry"""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Registry:
    """Tool objects and plain functions.

    A name that is taken is refused, so that no later tool can pass for an earlier one:
    `replace=True` says that this is meant.
    """

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._aliases: dict[str, str] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: Tool | Callable[..., Any], *, name: str | None = None, description: str | None = None, replace: bool = False) -> Tool:
        """Take a tool in and give it back. `name` and `description` are a function's; by default its own name and docstring.

        ValueError where the name is taken, or none that a provider would accept.
        """
        if not isinstance(tool, Tool):
            if not callable(tool):
                raise ValueError(f"a tool is a Tool or a function, not a {type(tool).__name__}")
            from gateway.agent.tools.function import FunctionTool  # pydantic takes a tenth of a second: only who has functions pays

            tool = FunctionTool(tool, name=name, description=description)
        if not _NAME.fullmatch(tool.name):
            raise ValueError(f'"{tool.name}" cannot name a tool: 1 to 64 letters, digits, _ and - can')
        if tool.name in self._tools:
            if not replace:
                raise ValueError(f'there is a tool "{tool.name}" already; replace=True puts this one in its place')
            self.unregister(tool.name)
        for alias in tool.aliases:
            if alias in self._aliases and not replace:
                raise ValueError(f'"{alias}" of tool "{tool.name}" is a name of tool "{self._aliases[alias]}" already')
        self._tools[tool.name] = tool
        self._aliases |= dict.fromkeys(tool.aliases, tool.name)
        return tool

    def unregister(self, name: str) -> bool:
        """Take a tool out; False where there is none of this name."""
        if self._tools.pop(name, None) is None:
            return False
        self._aliases = {alias: owner for alias, owner in self._aliases.items() if owner != name}
        return True

    def clear(self) -> None:
        self._tools.clear()
        self._aliases.clear()

    def find(self, name: str) -> Tool | None:
        """The tool that a model means: of this name, this alias, or this name in another spelling (`functions.Web-Search`)."""
        tool = self._tools.get(name) or self._tools.get(self._aliases.get(name, ""))
        if tool is not None:
            return tool
        wanted = bare(name.rpartition(".")[2])
        alike = {owner for known, owner in (*((own, own) for own in self._tools), *self._aliases.items()) if bare(known) == wanted}
        return self._tools[alike.pop()] if len(alike) == 1 else None

    def get(self, name: str) -> Tool:
        """The tool of this name. ValueError where there is none; its text lists those that there are."""
        tool = self.find(name)
        if tool is None:
            raise ValueError(self.unknown(name))
        return tool

    def unknown(self, name: str) -> str:
        """What a model is told that calls a tool which does not exist."""
        known = self.names()
        if not known:
            return f'there is no tool "{name[:64]}": {NO_TOOLS[0].lower()}{NO_TOOLS[1:]}'
        return f'there is no tool "{name[:64]}"{suggest(name, known) or "."} The tools are: {", ".join(known)}'

    def is_function(self, name: str) -> bool:
        """Whether this is the name of a plain function."""
        return name in self._tools and self._tools[name].is_function

    def is_tool(self, name: str) -> bool:
        """Whether this is the name of a tool object."""
        return name in self._tools and not self.is_function(name)

    def names(self) -> list[str]:
        return sorted(self._tools)

    def schemas(self) -> list[Json]:
        """What stands in a request's `tools`: sorted by name, so that the same tools always are the same bytes (X9)."""
        return [self._tools[name].to_openai_schema() for name in self.names()]

    def descriptions(self) -> str:
        """One line `- name: description` per tool, or NO_TOOLS (H13)."""
        return "\n".join(f"- {name}: {' '.join(self._tools[name].description.split())}" for name in self.names()) or NO_TOOLS

    def manual(self) -> str:
        """`descriptions()` with what each tool takes: for models that learn of their tools in words alone."""
        lines = []
        for tool in self:
            fields = arguments.takes(tool.parameters, words=True)
            lines.append(f"- {tool.name}: {' '.join(tool.description.split())}" + (f" Parameters: {fields}" if fields else " No parameters."))
        return "\n".join(lines) or NO_TOOLS

    async def execute(self, name: str, params: str | Mapping[str, Any] | None = None, context: Context | None = None) -> Observation:
        """Call a tool. A text is read as a text protocol's parameters (`k=v`, JSON, or the value itself).

        ValueError for an unknown name and for arguments that do not fit; what the tool raises is raised.
        """
        tool = self.get(name)
        given = arguments.from_text(params, tool.name, tool.parameters) if isinstance(params, str) else params
        prepared = dict(given or {}) if tool.lenient else arguments.prepare(given, tool.parameters)
        return await tool.call(prepared, context or Context())

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __iter__(self) -> Iterator[Tool]:
        return iter([self._tools[name] for name in self.names()])

    def __len__(self) -> int:
        return len(self._tools)
