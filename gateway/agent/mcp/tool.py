"""One tool of an MCP server."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.agent.mcp import results
from gateway.agent.mcp.connection import Connection, ConnectionBroke, ServerDown, innermost
from gateway.agent.tools import Context, Observation, Tool
from gateway.chat import Json, dumps

if TYPE_CHECKING:
    from mcp import types

log = logging.getLogger("thinkgate.mcp")

_LONGEST = 8_000  # characters of a description
_SHOWN = 500  # characters of a refusal
_SOONER = 0.98  # of the time of a call, so that what is known of a late one is still told


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool as its server describes it; `digest` changes when the description, the schema or a hint does."""

    name: str
    description: str
    parameters: Json
    repeat: str
    digest: bytes


def offer(tool: types.Tool) -> Offer:
    """The SDK's tool as ours."""
    hints = tool.annotations
    schema: Json = {"type": "object", "properties": {}, **tool.input_schema}
    said = [tool.description, schema, None if hints is None else hints.model_dump(exclude_none=True)]
    return Offer(
        tool.name,
        (tool.description or tool.title or "")[:_LONGEST],
        schema,
        repeat(hints),
        hashlib.sha256(dumps(said)).digest(),
    )


def repeat(hints: types.ToolAnnotations | None) -> str:
    """What may be done about a call whose end nobody saw.

    A tool that reads, or that does the same when it is called again, is called again. One
    that says that it destroys waits for a person; of all others the outcome is unknown.
    """
    if hints is None:
        return "never"
    if hints.read_only_hint or hints.idempotent_hint:
        return "safe"
    return "ask" if hints.destructive_hint else "never"


class McpTool(Tool):
    """A tool of an MCP server under the name that the model sees.

    server    the server's name in the config
    original  the tool's name on its server
    """

    def __init__(self, connection: Connection, offered: Offer, name: str) -> None:
        self.name = name
        self.description = offered.description
        self.server = connection.server.name
        self.original = offered.name
        self.repeat = offered.repeat
        self._schema = offered.parameters
        self._connection = connection

    @property
    def names(self) -> frozenset[str]:
        """With its name on its server, and `server_tool`: which of them it has here depends on what other servers offer."""
        return frozenset((self.name, self.original, f"{self.server}_{self.original}"))

    @property
    def parameters(self) -> Json:
        return self._schema

    async def run(self, params: Json) -> Observation:
        return await self.call(params, Context())

    async def call(self, arguments: Json, context: Context) -> Observation:
        """Call it on its server. Whatever goes wrong is an observation; a cancelled call is cancelled there too."""
        heard = _Heard()
        try:
            async with asyncio.timeout(context.timeout * _SOONER):
                result = await self._connection.call(self.original, arguments, heard.note, again=self.repeat == "safe")
        except TimeoutError:
            return Observation(f"MCP server {self.server} gave no answer within {context.timeout:g} s{heard}", ok=False)
        except ServerDown as error:
            log.warning("MCP server %s is not available: %s", self.server, error.message)
            return Observation(f"MCP server {self.server} is not available: {error.message}", ok=False)
        except ConnectionBroke as error:
            log.warning("MCP server %s: %s", self.server, error.message)
            return Observation(f"MCP server {self.server}: {error.message}{heard}", ok=False)
        except Exception as error:  # a refusal, or an answer that breaks the protocol: the model may try something else
            cause = innermost(error)
            return Observation(f"MCP server {self.server} refused the call: {str(cause)[:_SHOWN] or type(cause).__name__}", ok=False)
        return results.read(result)


class _Heard:
    """The last that a server told about the progress of a call."""

    def __init__(self) -> None:
        self._text = ""

    async def note(self, progress: float, total: float | None, message: str | None) -> None:
        part = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        self._text = f"; it had come to {part}" + (f" ({message[:_SHOWN]})" if message else "")

    def __str__(self) -> str:
        return self._text
