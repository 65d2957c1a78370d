"""A plain Python function as a tool: its schema comes from its type hints, the words from its docstring.

@tool(repeat="never")
def book(city: str, nights: int = 1, *, context: Context) -> str:
    \"\"\"Book a room.

    Args:
        city: where
        nights: how many
    \"\"\"
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import PydanticUndefined, to_jsonable_python

from gateway.agent.arguments import BadArguments
from gateway.agent.tools.docstring import parse
from gateway.agent.tools.threads import in_thread
from gateway.agent.tools.tool import Context, Observation, Tool, observation
from gateway.chat import Json
from gateway.config import suggest
from gateway.errors import ConfigError, Fault

REPEATS = ("safe", "never", "ask")


class FunctionTool(Tool):
    """A function as a tool. It can still be called as the function that it is.

    A parameter that is annotated with Context gets the call's Context and is no argument of the
    tool. A function that is not async runs in a thread. What it raises is raised.
    """

    is_function = True

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        repeat: str = "safe",
        aliases: tuple[str, ...] = (),
    ) -> None:
        """ValueError where no tool can be made of it; the text says why."""
        if repeat not in REPEATS:
            raise ValueError(f'repeat is one of {", ".join(REPEATS)}, not "{repeat}"')
        own = getattr(function, "__name__", None) or type(getattr(function, "func", function)).__name__
        self.name = name or own
        self.function = function
        self.repeat = repeat
        vars(self)["aliases"] = aliases  # the class's value, for this one
        text, about = parse(_target(function).__doc__ or getattr(function, "__doc__", None))
        self.description = description or text or f"The function {self.name}."
        self._plan = _Plan(self.name, function, about)
        self._parameters = self._plan.schema()

    @property
    def parameters(self) -> Json:
        return self._parameters

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def run(self, params: Json) -> Any:
        """Call the function with arguments from JSON. Of an async function it is the coroutine."""
        return self._plan.call(params, Context())

    async def call(self, arguments: Json, context: Context) -> Observation:
        if self._plan.is_async:
            value = await self._plan.call(arguments, context)
        else:
            value = await in_thread(self._plan.call, arguments, context)
            if inspect.isawaitable(value):
                value = await value
        return _observed(value)


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...


@overload
def tool(
    *, name: str | None = None, description: str | None = None, repeat: str = "safe", aliases: tuple[str, ...] = ()
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    repeat: str = "safe",
    aliases: tuple[str, ...] = (),
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool of a function: `@tool`, or `@tool(name=..., repeat=...)`."""

    def made(function: Callable[..., Any]) -> FunctionTool:
        return FunctionTool(function, name=name, description=description, repeat=repeat, aliases=aliases)

    return made if function is None else made(function)


def load(file: Path, name: str) -> Tool:
    """The tool that `python:FILE:NAME` names: a function, a Tool, or a class of one. ConfigError names the file, and the line where there is one."""
    module = _module(file)
    found = module.get(name)
    if found is None:
        public = [key for key, value in module.items() if callable(value) and not key.startswith("_")]
        raise _fault(file, f"there is no {name} in it{suggest(name, public)}")
    if inspect.isclass(found) and issubclass(found, Tool):
        try:
            found = found()
        except Exception as error:
            raise _fault(file, f"{name}: {type(error).__name__}: {error}", _line(error, file)) from error
    if isinstance(found, Tool):
        return found
    if not callable(found):
        raise _fault(file, f"{name} is no function, it is a {type(found).__name__}")
    try:
        return FunctionTool(found, name=name)
    except ValueError as error:
        line = getattr(getattr(found, "__code__", None), "co_firstlineno", 0)
        raise _fault(file, str(error), line) from None


# ---- the arguments of a function ----


class _Schema(GenerateJsonSchema):
    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as the base class has it

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # `"title": "City"` for a field called city tells a model nothing


class _Plan:
    """How a function is called with JSON: a pydantic model of its parameters, under neutral names so that none is taken by the model itself."""

    def __init__(self, name: str, function: Callable[..., Any], about: dict[str, str]) -> None:
        self._function = function
        target = _target(function)
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(target)
        try:
            signature = inspect.signature(function)
            hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target, include_extras=True)
        except (NameError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{name}: its signature cannot be read: {error}") from None
        self._names: dict[str, str] = {}
        self._positional: list[str] = []
        self._context: str | None = None
        self._more = False
        fields: dict[str, Any] = {}
        for place, parameter in enumerate(signature.parameters.values()):
            hint = hints.get(parameter.name, _guess(parameter.default))
            if _is_context(hint):
                self._context = parameter.name
            elif parameter.kind is parameter.VAR_KEYWORD:
                self._more = True
            elif parameter.kind is parameter.VAR_POSITIONAL:
                raise ValueError(f"{name}: *{parameter.name} has no name that a model could use; take a list")
            else:
                self._names[f"p{place}"] = parameter.name
                fields[f"p{place}"] = (hint, _field(parameter, hint, about.get(parameter.name)))
            if parameter.kind is parameter.POSITIONAL_ONLY:
                self._positional.append(parameter.name)
        try:
            self._model: type[BaseModel] = create_model(
                name, __config__=ConfigDict(arbitrary_types_allowed=False, extra="allow" if self._more else "ignore"), **fields
            )
        except PydanticUserError as error:
            raise ValueError(f"{name}: no schema can be made of its type hints: {str(error).splitlines()[0]}") from None
        self._name = name

    def schema(self) -> Json:
        try:
            schema = self._model.model_json_schema(schema_generator=_Schema)
        except (PydanticUserError, ValueError) as error:
            raise ValueError(f"{self._name}: no schema can be made of its type hints: {str(error).splitlines()[0]}") from None
        out: Json = {"type": "object", "properties": schema.get("properties", {}), "required": schema.get("required", [])}
        if "$defs" in schema:
            out["$defs"] = schema["$defs"]
        if self._more:
            out["additionalProperties"] = True
        return out

    def call(self, arguments: Json, context: Context) -> Any:
        try:
            made = self._model.model_validate(arguments)
        except ValidationError as error:
            raise BadArguments("; ".join(_words(fault) for fault in error.errors(include_url=False, include_context=False)[:3])) from None
        given = {name: getattr(made, key) for key, name in self._names.items() if key in made.model_fields_set}
        if self._more:
            given |= {name: value for name, value in (made.model_extra or {}).items() if name not in given}
        if self._context is not None:
            given[self._context] = context
        before = [given.pop(name) for name in self._positional if name in given]
        return self._function(*before, **given)


def _target(function: Any) -> Any:
    """What hints and docstring stand on: the function inside a partial, `__call__` of an object."""
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return getattr(function, "func", type(function).__call__)


def _field(parameter: inspect.Parameter, hint: Any, about: str | None) -> Any:
    default = PydanticUndefined if parameter.default is parameter.empty else parameter.default
    words = [note for note in getattr(hint, "__metadata__", ()) if isinstance(note, str)]  # Annotated[int, "how many"]
    about = words[0] if words else about
    return Field(default, alias=parameter.name, description=about) if about else Field(default, alias=parameter.name)


def _guess(default: Any) -> Any:
    """The type of a parameter without a hint: its default's, where that says something."""
    return type(default) if type(default) in (str, int, float, bool, list, dict) else Any


def _is_context(hint: Any) -> bool:
    return hint is Context or (typing.get_origin(hint) is not None and Context in typing.get_args(hint))


def _words(fault: Any) -> str:
    place = ".".join(str(part) for part in fault["loc"])
    return f'field "{place}": {fault["msg"]}' if place else str(fault["msg"])


def _observed(value: Any) -> Observation:
    """As `observation`, for whatever pydantic can make JSON of; the rest as its text."""
    if value is None or isinstance(value, str | Observation):
        return observation(value)
    if isinstance(value, float):
        return Observation(str(value))  # JSON has no nan and no inf
    try:
        return observation(to_jsonable_python(value, fallback=str))
    except ValueError:  # bytes that are no text
        return observation(to_jsonable_python(value, bytes_mode="base64", fallback=str))


# ---- files ----


def _module(file: Path) -> dict[str, Any]:
    """The names of a file, run as a module of its own."""
    if not file.is_file():
        raise _fault(file, "there is no such file")
    name = f"thinkgate_tool_{file.stem}_{abs(hash(str(file.resolve()))):x}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise _fault(file, "is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # its own type hints, dataclasses and pickles look it up there
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        sys.modules.pop(name, None)
        raise _fault(file, str(error.msg), error.lineno or 0) from None
    except Exception as error:
        sys.modules.pop(name, None)
        raise _fault(file, f"{type(error).__name__}: {error}", _line(error, file)) from error
    return vars(module)


def _line(error: BaseException, file: Path) -> int:
    lines = [frame.lineno or 0 for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return lines[-1] if lines else 0


def _fault(file: Path, message: str, line: int = 0) -> ConfigError:
    return ConfigError([Fault("", message[:400], line, 1 if line else 0)], str(file))
