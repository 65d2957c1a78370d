"""A tool: a name, a description, a schema, and what happens when it is called."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gateway.agent.tools.threads import in_thread
from gateway.chat import Json, dumps


@dataclass(frozen=True, slots=True)
class Observation:
    """What came back from a call: the text that the model reads, and whether the call did what it should.

    `data` is for those who look at the run (an event's data), never for the model.
    """

    text: str
    ok: bool = True
    data: Json | None = None


@dataclass(frozen=True, slots=True)
class Pending(Observation):
    """There is no observation yet: the run that the call began waits for somebody, as `waits` says."""

    waits: list[Json] = field(default_factory=list)


async def _nobody(type: str, data: Json) -> None:
    pass


@dataclass(slots=True)
class Context:
    """What a call may know of its run.

    call_id   the model's id of the call
    key       the same whenever this call is made again after a crash: for services that know idempotency keys
    session   values that live as long as the session (without one: as the run), by tool name; a tool locks what it shares
    tenant    whose key it is
    emit      tells those who look at the run: `await context.emit("thought", {...})`
    timeout   seconds that the call may take
    run       the run itself, for tools that are runs too
    """

    run_id: str = ""
    call_id: str = ""
    key: str = ""
    session: dict[str, Any] = field(default_factory=dict)
    tenant: str = ""
    emit: Callable[[str, Json], Awaitable[None]] = _nobody
    timeout: float = 60.0
    run: Any = None


@dataclass(frozen=True, slots=True)
class ToolParameter:
    name: str
    type: str
    description: str
    required: bool = True
    default: Any = None


class Tool:
    """A tool object: subclasses set `name` and `description`, and write either `run` or `call`.

    repeat  may a call whose end nobody saw (a crash) be made again: `safe`, `never` (its outcome
            is then unknown to the model) or `ask` (a person decides)
    pure    a call changes nothing but `context.session`, and the same calls in the same order
            always do it in the same way: a run that is gone through again makes them again
    aliases names under which models call it too; the one in `name` is advertised
    lenient it reads the arguments as the model wrote them and itself says what is wrong: nobody
            validates or repairs them before the call, and what is no JSON object comes as text
    own_limits  it bounds its own time (a sub-agent): the limit of a call is not for it
    annotations  hints for clients of an MCP server that offers it
    """

    name: str = ""
    description: str = ""
    repeat: str = "safe"
    is_function: ClassVar[bool] = False
    pure: ClassVar[bool] = False
    aliases: ClassVar[tuple[str, ...]] = ()
    lenient: ClassVar[bool] = False
    own_limits: ClassVar[bool] = False
    annotations: ClassVar[Json] = {}

    @property
    def names(self) -> frozenset[str]:
        """All names by which a config may mean it, as in `approval.tools`."""
        return frozenset((self.name, *self.aliases))

    def get_parameters(self) -> list[ToolParameter]:
        """What `run` takes, one entry per parameter."""
        return []

    @property
    def parameters(self) -> Json:
        """The JSON schema of the arguments."""
        properties: Json = {}
        for one in self.get_parameters():
            about = one.description if one.default is None else f"{one.description} (default: {one.default})"
            properties[one.name] = {"type": one.type, "description": about}
            if one.type == "array":
                properties[one.name]["items"] = {"type": "string"}
        return {"type": "object", "properties": properties, "required": [one.name for one in self.get_parameters() if one.required]}

    def to_openai_schema(self) -> Json:
        """The entry in a request's `tools`."""
        return {"type": "function", "function": {"name": self.name, "description": self.description, "parameters": self.parameters}}

    def run(self, params: Json) -> Any:
        """Do it. A text, or whatever has a JSON form; a coroutine is awaited. What it raises becomes an observation.

        Of a tool that has `call` alone: its plain form, which gives the observation's text. What
        the tool keeps in its session lives as long as the object then.
        """
        if type(self).call is Tool.call:
            raise NotImplementedError(f"tool {self.name} has neither run nor call")
        alone: Context = self.__dict__.setdefault("_alone", Context())
        with ThreadPoolExecutor(1) as thread:  # the caller may have a loop of its own
            return thread.submit(asyncio.run, self.call(params, alone)).result().text

    async def call(self, arguments: Json, context: Context) -> Observation:
        """Do it with arguments that fit the schema."""
        if inspect.iscoroutinefunction(self.run):
            value = await self.run(arguments)
        else:
            value = await in_thread(self.run, arguments)
        return observation(value)


def observation(value: Any) -> Observation:
    """What a plain function gave back, as an observation."""
    if isinstance(value, Observation):
        return value
    if value is None:
        return Observation("(the tool gave nothing back)")
    return Observation(value if isinstance(value, str) else dumps(value).decode())
