"""Tools in a chat request: which choice of them, what schemas, and what arguments a provider takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.chat import Json, dumps, loads

OF_TOOLS = ("tools", "tool_choice", "parallel_tool_calls")


def drop_tools(body: Json) -> None:
    """Take out the tools and all that is said about them."""
    for key in OF_TOOLS:
        body.pop(key, None)


def narrow_choice(body: Json, accepted: Sequence[str]) -> str | None:
    """Make the tool_choice one of the kinds `accepted` (auto, none, required, named); what became of it, or None: it is one.

    A named one gives way to `required` with that tool alone, `required` to auto, `none` to no
    tools, which means the same to the model.
    """
    choice = body.get("tool_choice")
    kind = "named" if isinstance(choice, dict) else choice
    if kind in accepted or kind not in ("auto", "none", "required", "named"):
        return None
    if kind == "none":
        drop_tools(body)
        return "tools=none"
    if kind == "named" and "required" in accepted and _only(body, choice):
        body["tool_choice"] = "required"
        return "tool_choice=required"
    if kind == "auto":
        del body["tool_choice"]
        return "drop=tool_choice"
    body["tool_choice"] = "auto"
    return "tool_choice=auto"


def _only(body: Json, choice: Any) -> bool:
    """Leave the tools that the choice names; False: none of them has the name."""
    kind = choice.get("type")
    part = choice.get(kind) if isinstance(kind, str) else None
    if not isinstance(part, dict):
        return False
    if kind == "allowed_tools":
        if part.get("mode") != "required":
            return False
        names = {_name(tool) for tool in part.get("tools") or ()}
    else:
        names = {part.get("name")}
    tools = body.get("tools")
    named = [tool for tool in tools if _name(tool) in names] if isinstance(tools, list) else []
    if named:
        body["tools"] = named
    return bool(named)


def _name(tool: Any) -> Any:
    kind = tool.get("type") if isinstance(tool, dict) else None
    part = tool.get(kind) if isinstance(kind, str) else None
    return part.get("name") if isinstance(part, dict) else None


def fit_schemas(tools: Any, flavor: str) -> int:
    """Bring the parameters of every function into a form the provider takes; how many had to change.

    filled    every function has some, if only those of a function without any
    moonshot  filled, and inside the subset of JSON Schema that Moonshot's validator knows
    """
    changed = 0
    for tool in tools if isinstance(tools, list) else ():
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict):
            continue
        parameters = function.get("parameters")
        if not isinstance(parameters, dict) or not parameters:
            function["parameters"] = {"type": "object", "properties": {}}
            changed += 1
        elif flavor == "moonshot":
            changed += _moonshot_root(parameters)
    return changed


def _moonshot_root(schema: Json) -> bool:
    """True: something was changed. A `$schema` at the top makes kimi-k2.5 answer nonsense."""
    changed = schema.pop("$schema", None) is not None
    if "type" not in schema and "anyOf" not in schema:
        schema["type"] = "object"
        changed = True
    return _moonshot(schema) or changed


def _moonshot(schema: Json) -> bool:
    """Tuples are `prefixItems`, and no `type` stands beside `anyOf`: it belongs to each of the alternatives."""
    changed = False
    if "items" in schema and isinstance(schema["items"], list):
        before = schema.get("prefixItems")
        schema["prefixItems"] = [*(before if isinstance(before, list) else ()), *schema.pop("items")]
        changed = True
    if "anyOf" in schema and "type" in schema and isinstance(schema["anyOf"], list):
        kind, options = schema.pop("type"), schema["anyOf"]
        schema["anyOf"] = [{"type": kind, **option} if isinstance(option, dict) and "type" not in option else option for option in options]
        changed = True
    for key, value in schema.items():
        if type(value) is dict:
            if key in _BY_NAME:
                changed |= any([_moonshot(inner) for inner in value.values() if type(inner) is dict])
            elif key in _ONE:
                changed |= _moonshot(value)
        elif type(value) is list and key in _SEVERAL:
            changed |= any([_moonshot(inner) for inner in value if type(inner) is dict])
    return changed


_ONE = frozenset(("items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else"))
_SEVERAL = frozenset(("anyOf", "oneOf", "allOf", "prefixItems"))
_BY_NAME = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))


def repair_arguments(messages: list[Any]) -> int:
    """Make the arguments of every call in the history the text of a JSON object; how many were not.

    A text that was cut off is closed where it ends, anything else becomes `{}`.
    """
    repaired = 0
    for message in messages:
        if type(message) is not dict or "tool_calls" not in message:
            continue
        for call in message["tool_calls"] if type(message["tool_calls"]) is list else ():
            function = call.get("function") if type(call) is dict else None
            if type(function) is dict and (right := _object_text(function.get("arguments"))) is not None:
                function["arguments"] = right
                repaired += 1
    return repaired


def _object_text(arguments: Any) -> str | None:
    """The text to send instead, or None: it is one."""
    if type(arguments) is not str:
        return dumps(arguments).decode() if type(arguments) is dict else "{}"
    if _is_object(arguments):
        return None
    closed = _closed(arguments)
    return closed if _is_object(closed) else "{}"


def _is_object(text: str) -> bool:
    try:
        return type(loads(text.encode("utf-8", "replace"))) is dict
    except (ValueError, RecursionError):
        return False


def _closed(text: str) -> str:
    """A JSON text that was cut off, with its open string, lists and objects closed."""
    open_: list[str] = []
    quoted = escaped = False
    for character in text:
        if quoted:
            quoted, escaped = (character != '"' or escaped), (character == "\\" and not escaped)
        elif character == '"':
            quoted = True
        elif character in "{[":
            open_.append("}" if character == "{" else "]")
        elif character in "}]" and open_:
            open_.pop()
    if escaped:
        text = text[:-1]
    text = f'{text}"' if quoted else text.rstrip().rstrip(",")
    return text + "".join(reversed(open_))
