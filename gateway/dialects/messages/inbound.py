"""Messages request -> chat request."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from gateway.chat import Json, dumps
from gateway.dialects.messages.carriers import signed
from gateway.dialects.messages.parts import cached, chat_part
from gateway.dialects.messages.terms import listed, mapping
from gateway.errors import InvalidRequest

_SAME = ("model", "max_tokens", "temperature", "top_p", "stream", "thinking")
_TOOL_CHOICE = {"auto": "auto", "any": "required", "none": "none"}
_CALLER_TOOLS = (None, "custom", "function")


def request_to_chat(body: Json, *, keep_cache: bool = False) -> Json:
    """The chat request that asks the same.

    `thinking` and `output_config` stay for whoever reads the client's thinking wish. Server
    tools (see `dropped_tools`) and what else only Anthropic's servers can do are left out.
    Texts become plain strings, which every chat host takes; `keep_cache`: a text with a cache
    breakpoint stays a part that carries it, for hosts that know `cache_control`.
    Raises InvalidRequest where `messages` is none, Skipped for content that chat cannot carry.
    """
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise InvalidRequest("messages must be a list", param="messages")
    system = _content(_parts(body.get("system")), keep_cache)
    out: Json = {key: body[key] for key in _SAME if body.get(key) is not None}
    out["messages"] = [{"role": "system", "content": system}] if system else []
    for place, message in enumerate(messages):
        if not isinstance(message, dict):
            raise InvalidRequest("a message must be an object", param=f"messages.{place}")
        out["messages"] += _messages(message, keep_cache)
    if out.get("stream") is True:
        out["stream_options"] = {"include_usage": True}
    if body.get("stop_sequences"):
        out["stop"] = body["stop_sequences"]
    _add_tools(out, body, keep_cache)
    _add_output_config(out, body)
    _add_user(out, body)
    return out


def dropped_tools(body: Json) -> list[str]:
    """The types of the tools that run on Anthropic's side and have no chat form, for a note to the client."""
    return [str(tool.get("type")) for tool in listed(body.get("tools")) if tool.get("type") not in _CALLER_TOOLS]


def _add_tools(out: Json, body: Mapping[str, Any], keep_cache: bool) -> None:
    tools = [_tool(tool, keep_cache) for tool in listed(body.get("tools")) if tool.get("type") in _CALLER_TOOLS]
    if not tools:
        return
    out["tools"] = tools
    choice = mapping(body.get("tool_choice"))
    kind, names = str(choice.get("type")), [tool["function"]["name"] for tool in tools]
    if kind == "tool" and choice.get("name") in names:
        out["tool_choice"] = {"type": "function", "function": {"name": choice["name"]}}
    elif kind in _TOOL_CHOICE:
        out["tool_choice"] = _TOOL_CHOICE[kind]
    if choice.get("disable_parallel_tool_use") is True:
        out["parallel_tool_calls"] = False


def _tool(tool: Json, keep_cache: bool) -> Json:
    function: Json = {"name": tool.get("name")}
    if isinstance(tool.get("description"), str):
        function["description"] = tool["description"]
    function["parameters"] = tool.get("input_schema") or {"type": "object", "properties": {}}
    if isinstance(tool.get("strict"), bool):
        function["strict"] = tool["strict"] and _closed(function["parameters"])
    return cached({"type": "function", "function": function}, tool.get("cache_control") if keep_cache else None)


def _add_output_config(out: Json, body: Mapping[str, Any]) -> None:
    config = dict(mapping(body.get("output_config")))
    form = mapping(config.pop("format", None) or body.get("output_format"))
    if form.get("type") == "json_schema":
        schema = mapping(form.get("schema"))
        out["response_format"] = {"type": "json_schema", "json_schema": {"name": "response", "schema": schema, "strict": _closed(schema)}}
    if config:
        out["output_config"] = config


def _closed(schema: Any) -> bool:
    """Whether OpenAI would take the schema as strict: objects closed, every property required. Anthropic asks less."""
    if isinstance(schema, list):
        return all(_closed(part) for part in schema)
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        required, properties = schema.get("required"), mapping(schema.get("properties"))
        if schema.get("additionalProperties") is not False or not isinstance(required, list) or any(name not in required for name in properties):
            return False
    return all(_closed(part) for part in schema.values())


def _add_user(out: Json, body: Mapping[str, Any]) -> None:
    """OpenAI takes at most 64 characters as `user`, Zhipu 128; Claude Code sends more (2.1.197, 2026-11)."""
    user = mapping(body.get("metadata")).get("user_id")
    if isinstance(user, str) and user:
        out["user"] = user if len(user) <= 64 else hashlib.sha256(user.encode()).hexdigest()


def _messages(message: Json, keep_cache: bool) -> list[Json]:
    role, parts = message.get("role"), _parts(message.get("content"))
    if role == "assistant":
        return [_assistant(parts)]
    if role == "system":
        content = _content(parts, keep_cache)
        return [{"role": "system", "content": content}] if content else []
    return _user(parts, keep_cache)


def _parts(content: Any) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return listed(content)


def _content(parts: Iterable[Json], keep_cache: bool) -> str | list[Json]:
    """One string where all is text, else chat parts."""
    out = [cached(part, block.get("cache_control") if keep_cache else None) for block in parts if (part := chat_part(block)) and part.get("text") != ""]
    if all(part.keys() == {"type", "text"} for part in out):
        return "\n\n".join(part["text"] for part in out)
    return out


def _user(parts: list[Json], keep_cache: bool) -> list[Json]:
    """Tool results, one message each, then what the user says; chat's tool messages hold text only, so images follow there."""
    pictures: list[Json] = []
    out = [_tool_message(block, pictures) for block in parts if block.get("type") == "tool_result"]
    said = [block for block in parts if block.get("type") != "tool_result"]
    content = _content([*pictures, *said], keep_cache)
    return [*out, {"role": "user", "content": content}] if content or not out else out


def _tool_message(block: Json, pictures: list[Json]) -> Json:
    ident = block.get("tool_use_id")
    shown = [part for part in _parts(block.get("content")) if part.get("type") in ("image", "document")]
    text = _content([part for part in _parts(block.get("content")) if part not in shown], keep_cache=False)
    if shown:
        pictures += [{"type": "text", "text": f"[result of tool call {ident}]"}, *shown]
        text = text or "[the result follows in the next message]"
    if block.get("is_error") is True and not str(text).lower().startswith("error"):
        text = f"Error: {text}"  # chat has no flag for it
    return {"role": "tool", "tool_call_id": ident, "content": text}


def _assistant(parts: list[Json]) -> Json:
    thoughts = "".join(str(block.get("thinking") or "") for block in parts if block.get("type") == "thinking")
    carriers = [block for block in parts if signed(block)]
    text = "".join(str(block.get("text") or "") for block in parts if block.get("type") == "text")
    calls = [tool_call(block) for block in parts if block.get("type") == "tool_use"]
    return {
        "role": "assistant",
        "content": text or (None if calls else ""),
        **({"reasoning_content": thoughts} if thoughts else {}),
        **({"thinking_blocks": carriers} if carriers else {}),
        **({"tool_calls": calls} if calls else {}),
    }


def tool_call(block: Json) -> Json:
    """The chat tool call for a `tool_use` block."""
    arguments = dumps(block.get("input") or {}).decode()
    return {"id": block.get("id"), "type": "function", "function": {"name": block.get("name"), "arguments": arguments}}
