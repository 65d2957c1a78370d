"""Tools, the choice among them and their calls, between the two dialects.

A custom tool (free text instead of JSON, such as Codex's apply_patch) is for chat a function
with the one argument `input`: hardly any chat host but OpenAI's takes custom tools. What the
model calls is given back to the client as the custom call that it waits for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

from gateway.chat import Json, dumps, loads
from gateway.dialects.responses.terms import listed, mapping, mint, text_of

CALLABLE = ("function", "custom")
"""types of the tools that the client runs"""

_NO_PARAMETERS: Json = {"type": "object", "properties": {}}
_LONGEST_ID = 64


def custom_names(request: Mapping[str, Any]) -> frozenset[str]:
    """Names of the custom tools of a Responses request."""
    return frozenset(text_of(tool.get("name")) for tool in listed(request.get("tools")) if tool.get("type") == "custom")


def chat_tools(body: Mapping[str, Any]) -> Json:
    """The fields `tools`, `tool_choice`, `parallel_tool_calls` of the chat request; none without tools, where hosts refuse them."""
    tools = [_chat_tool(tool) for tool in listed(body.get("tools")) if tool.get("type") in CALLABLE]
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        # only OpenAI's chat knows the list; leaving the others out says the same everywhere
        allowed = {_name(tool) for tool in listed(choice.get("tools"))}
        tools = [tool for tool in tools if tool["function"]["name"] in allowed]
        choice = choice.get("mode")
    if not tools:
        return {}
    out: Json = {"tools": tools}
    names = {tool["function"]["name"] for tool in tools}
    if isinstance(choice, str):
        out["tool_choice"] = choice
    elif isinstance(choice, dict) and _name(choice) in names:
        out["tool_choice"] = {"type": "function", "function": {"name": _name(choice)}}
    if isinstance(body.get("parallel_tool_calls"), bool):
        out["parallel_tool_calls"] = body["parallel_tool_calls"]
    return out


def _name(tool: Mapping[str, Any]) -> Any:
    return tool.get("name") or mapping(tool.get("function")).get("name")


def _chat_tool(tool: Json) -> Json:
    source = mapping(tool.get("function")) or tool  # some clients send chat's form here
    function: Json = {"name": source.get("name")}
    if tool["type"] == "custom":
        return {"type": "function", "function": {**function, "description": _free_text(tool), "parameters": _INPUT}}
    if text_of(source.get("description")):
        function["description"] = source["description"]
    function["parameters"] = source["parameters"] if isinstance(source.get("parameters"), dict) else _NO_PARAMETERS
    if isinstance(source.get("strict"), bool):
        function["strict"] = source["strict"]
    return {"type": "function", "function": function}


_INPUT: Json = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The tool's whole input as plain text."}},
    "required": ["input"],
    "additionalProperties": False,
}


def _free_text(tool: Json) -> str:
    form = mapping(tool.get("format"))
    grammar = f"The input must match this {form.get('syntax')} grammar:\n{form['definition']}" if form.get("definition") else ""
    return "\n\n".join(text for text in (text_of(tool.get("description")), grammar) if text)


def chat_call(item: Mapping[str, Any]) -> Json:
    """The chat tool call for a function_call or custom_tool_call item of the history."""
    arguments = dumps({"input": text_of(item.get("input"))}).decode() if item.get("type") == "custom_tool_call" else as_arguments(item.get("arguments"))
    return {"id": item.get("call_id") or item.get("id"), "type": "function", "function": {"name": item.get("name"), "arguments": arguments}}


def as_arguments(value: Any) -> str:
    """Arguments as the JSON text that they must be."""
    if isinstance(value, str):
        return value or "{}"
    return "{}" if value is None else dumps(value).decode()


def free_input(arguments: str) -> str:
    """The free text in a function's arguments: their `input`, or another single text, or all as it came."""
    try:
        value = loads(arguments)
    except ValueError:
        return arguments
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        return arguments
    if not value:
        return ""
    texts = [value["input"]] if "input" in value else list(value.values())
    return texts[0] if len(texts) == 1 and isinstance(texts[0], str) else arguments


def call_item(call: Mapping[str, Any], customs: Collection[str]) -> Json:
    """The output item for a chat tool call; `customs` are the client's custom tools."""
    if isinstance(call.get("custom"), dict):
        custom = call["custom"]
        return custom_item(call.get("id"), text_of(custom.get("name")), text_of(custom.get("input")))
    function = mapping(call.get("function"))
    name, arguments = text_of(function.get("name")), as_arguments(function.get("arguments"))
    if name in customs:
        return custom_item(call.get("id"), name, free_input(arguments))
    ident = call.get("id") or mint("call")
    return {"type": "function_call", "id": mint("fc"), "call_id": ident, "name": name, "arguments": arguments, "status": "completed"}


def custom_item(call_id: Any, name: str, text: str) -> Json:
    return {"type": "custom_tool_call", "id": mint("ctc"), "call_id": call_id or mint("call"), "name": name, "input": text, "status": "completed"}


def own_tools(body: Mapping[str, Any]) -> Json:
    """The fields `tools`, `tool_choice`, `parallel_tool_calls` of the Responses request for a chat request."""
    tools = [_own_tool(tool) for tool in listed(body.get("tools"))]
    if not tools:
        return {}
    out: Json = {"tools": tools}
    choice = body.get("tool_choice")
    if isinstance(choice, str):
        out["tool_choice"] = choice
    elif isinstance(choice, dict):
        out["tool_choice"] = _own_choice(choice)
    if isinstance(body.get("parallel_tool_calls"), bool):
        out["parallel_tool_calls"] = body["parallel_tool_calls"]
    return out


def _own_choice(choice: Json) -> Json:
    kind = choice.get("type")
    if kind == "allowed_tools":
        allowed = mapping(choice.get("allowed_tools")) or choice
        return {"type": kind, "mode": allowed.get("mode") or "auto", "tools": [_own_choice(tool) for tool in listed(allowed.get("tools"))]}
    if kind in CALLABLE and isinstance(choice.get(kind), dict):
        return {"type": kind, "name": choice[kind].get("name")}
    return choice


def _own_tool(tool: Json) -> Json:
    kind = tool.get("type")
    if kind == "function" and isinstance(tool.get("function"), dict):
        function = tool["function"]
        # strict is off in chat where nothing is said, and on here
        out: Json = {"type": "function", "name": function.get("name"), "strict": function.get("strict") is True}
        if text_of(function.get("description")):
            out["description"] = function["description"]
        return {**out, "parameters": function["parameters"] if isinstance(function.get("parameters"), dict) else _NO_PARAMETERS}
    if kind == "custom" and isinstance(tool.get("custom"), dict):
        custom = tool["custom"]
        form = mapping(custom.get("format"))
        if isinstance(form.get("grammar"), dict):
            form = {"type": "grammar", **form["grammar"]}
        rest = {key: value for key, value in custom.items() if key != "format" and value is not None}
        return {"type": "custom", **rest, **({"format": form} if form else {})}
    return tool


def own_call(call: Mapping[str, Any], place: int) -> Json:
    """The input item for a tool call of a chat history."""
    ident = short_id(call.get("id") or f"call_{place}")
    if isinstance(call.get("custom"), dict):
        custom = call["custom"]
        return {"type": "custom_tool_call", "call_id": ident, "name": custom.get("name"), "input": text_of(custom.get("input"))}
    function = mapping(call.get("function"))
    return {"type": "function_call", "call_id": ident, "name": function.get("name"), "arguments": as_arguments(function.get("arguments"))}


def short_id(ident: Any) -> str:
    """A call id that OpenAI takes: at most 64 characters."""
    text = str(ident)
    return text if len(text) <= _LONGEST_ID else f"call_{hashlib.sha256(text.encode()).hexdigest()[:48]}"
