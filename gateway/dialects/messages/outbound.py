"""Chat request -> Messages request.

Anthropic is strict about turns and blocks (2026-11): a turn's tool results stand together at
the start of the user turn after it, tool calls last in theirs, thinking first, no text is
blank. The chat history is put into that order, with roles that alternate from `user` on as
every relay takes them; no text is lost and none is invented but `OPENING`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from gateway.chat import Json, dumps, loads
from gateway.dialects.messages.parts import cached, content_blocks
from gateway.dialects.messages.terms import listed, mapping, spell
from gateway.dialects.messages.turns import Blocks, turn
from gateway.errors import Skipped

OPENING = "(start of the conversation)"
"""stands as the first user turn where the client's history starts with the assistant"""

_MAX_TOKENS = 4096
# fields that Messages knows under the same name; chat clients send them as extras
_SAME = ("stream", "top_p", "top_k", "cache_control", "container", "context_management", "mcp_servers", "inference_geo", "speed")
# every spelling of the thinking wish stays for the adapter, which knows what the model takes
_WISH = ("disable_thinking", "thinking", "reasoning_effort", "reasoning", "enable_thinking", "output_config")
_PLACE = {"thinking": 0, "redacted_thinking": 0, "tool_result": 0, "tool_use": 2}
_TOOL_CHOICE = {"auto": "auto", "required": "any", "none": "none"}


def request_from_chat(body: Json) -> Json:
    """The Messages request that asks the same.

    Penalties, `n`, `seed`, `logit_bias` and what else Messages has no word for are left out,
    unsigned reasoning too. Raises Skipped for content that cannot be carried, such as audio.
    """
    if body.get("functions"):
        raise Skipped("the Messages dialect has no form for the legacy `functions`")
    system, turns = _conversation(listed(body.get("messages")))
    out: Json = {"model": body.get("model"), "max_tokens": _max_tokens(body)}
    if system:
        out["system"] = _content(system)
    out["messages"] = turns
    out |= {key: body[key] for key in _SAME if body.get(key) is not None}
    _add_sampling(out, body)
    _add_tools(out, body)
    out |= {key: value for key, value in wish(body).items() if key not in out}
    _add_format(out, body)
    return out


def wish(body: Mapping[str, Any]) -> Json:
    """The fields in which a chat client says whether and how hard to think, and nothing beside them."""
    out = {key: body[key] for key in _WISH if body.get(key) is not None}
    template, extra = body.get("chat_template_kwargs"), body.get("extra_body")
    if isinstance(template, dict) and (named := {key: template[key] for key in ("enable_thinking", "thinking") if key in template}):
        out["chat_template_kwargs"] = named
    if isinstance(extra, dict) and (hidden := wish(extra)):
        out["extra_body"] = hidden
    return out


def _max_tokens(body: Mapping[str, Any]) -> int:
    for key in ("max_completion_tokens", "max_tokens"):
        value = body.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return _MAX_TOKENS


def _add_sampling(out: Json, body: Mapping[str, Any]) -> None:
    temperature, stop, user = body.get("temperature"), body.get("stop"), body.get("safety_identifier") or body.get("user")
    if isinstance(temperature, int | float):
        out["temperature"] = min(max(temperature, 0), 1)
    # a stop text of white space only is refused
    if stops := [text for text in ([stop] if isinstance(stop, str) else stop if isinstance(stop, list) else ()) if isinstance(text, str) and text.strip()]:
        out["stop_sequences"] = stops
    if isinstance(user, str) and user:
        out["metadata"] = {"user_id": user if len(user) <= 256 else hashlib.sha256(user.encode()).hexdigest()}


def _add_format(out: Json, body: Mapping[str, Any]) -> None:
    form = mapping(body.get("response_format"))
    schema = mapping(form.get("json_schema")).get("schema") if form.get("type") == "json_schema" else None
    if isinstance(schema, dict):
        out["output_config"] = {**mapping(out.get("output_config")), "format": {"type": "json_schema", "schema": schema}}


def _add_tools(out: Json, body: Mapping[str, Any]) -> None:
    tools = [tool for item in listed(body.get("tools")) if (tool := _tool(item))]
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed = mapping(choice.get("allowed_tools")) or choice
        names = {_function_name(item) for item in listed(allowed.get("tools"))}
        tools = [tool for tool in tools if tool["name"] in names]
        choice = allowed.get("mode")
    if not tools:
        return
    out["tools"] = tools
    named = _tool_choice(choice, {tool["name"] for tool in tools})
    if body.get("parallel_tool_calls") is False and (named is None or named["type"] != "none"):
        named = {**(named or {"type": "auto"}), "disable_parallel_tool_use": True}
    if named:
        out["tool_choice"] = named


def _tool(item: Json) -> Json | None:
    """One tool, or None where the type has no form here. `strict` is left out: Anthropic takes few strict tools in a request."""
    function = mapping(item.get("function")) if item.get("type", "function") == "function" else {}
    if not isinstance(function.get("name"), str):
        return None
    schema = function.get("parameters")
    tool: Json = {"name": spell(function["name"])}
    if isinstance(function.get("description"), str) and function["description"]:
        tool["description"] = function["description"]
    tool["input_schema"] = {"type": "object", **schema} if isinstance(schema, dict) and schema else {"type": "object", "properties": {}}
    return cached(tool, item.get("cache_control") or function.get("cache_control"))


def _function_name(item: Any) -> str:
    name = mapping(mapping(item).get("function")).get("name")
    return spell(name) if isinstance(name, str) else ""


def _tool_choice(choice: Any, names: set[str]) -> Json | None:
    if isinstance(choice, str):
        return {"type": _TOOL_CHOICE[choice]} if choice in _TOOL_CHOICE else None
    name = _function_name(choice)
    return {"type": "tool", "name": name} if name in names else None


def _conversation(messages: Iterable[Json]) -> tuple[list[Json], list[Json]]:
    """The system blocks and the turns."""
    system: list[Json] = []
    turns: list[tuple[str, list[Json]]] = []
    for message in messages:
        role = message.get("role")
        if role in ("system", "developer") and not turns:
            system += content_blocks(message, texts_only=True)
            continue
        side, blocks = turn(role, message, _BLOCKS)
        if not blocks:
            continue
        if turns and turns[-1][0] == side:
            turns[-1][1].extend(blocks)
        else:
            turns.append((side, blocks))
    if not turns or turns[0][0] == "assistant":
        turns.insert(0, ("user", [{"type": "text", "text": OPENING}]))
    ordered = [(side, sorted(blocks, key=lambda block: _PLACE.get(block["type"], 1))) for side, blocks in turns]
    _trim_prefill(*ordered[-1])
    return system, [{"role": side, "content": _content(blocks)} for side, blocks in ordered]


def _tool_use(call: Json, place: int) -> Json:
    function = mapping(call.get("function") or call.get("custom"))
    given = function.get("arguments") if "arguments" in function else function.get("input")
    return {
        "type": "tool_use",
        "id": spell(str(call.get("id") or f"call_{place}")),
        "name": spell(str(function.get("name") or "")),
        "input": tool_input(given),
    }


def tool_input(arguments: Any) -> Json:
    """A call's arguments as the object that `input` must be; what is none is wrapped, so that nothing gets lost."""
    value = arguments
    if isinstance(arguments, str):
        if not arguments.strip():
            return {}
        try:
            value = loads(arguments)
        except ValueError:
            value = arguments
    if value is None:
        return {}
    return value if isinstance(value, dict) else {"arguments": value}


def _tool_result(message: Json) -> Json:
    block: Json = {"type": "tool_result", "tool_use_id": spell(str(message.get("tool_call_id") or ""))}
    content = message.get("content")
    if content is not None and not isinstance(content, str | list):
        message = {**message, "content": dumps(content).decode()}
    blocks = content_blocks(message)
    # a mark inside the result is refused (seen by LangChain's users, 2026-01), on the result it counts
    marks = [mark for inner in blocks if (mark := inner.pop("cache_control", None))]
    if blocks:
        block["content"] = _content(blocks)
    return cached(block, marks[-1] if marks else None)


def _trim_prefill(side: str, blocks: list[Json]) -> None:
    """The answer's beginning, which the model goes on from, must not end in white space."""
    if side == "assistant" and blocks[-1]["type"] == "text":
        blocks[-1]["text"] = blocks[-1]["text"].rstrip()


def _content(blocks: list[Json]) -> str | list[Json]:
    """One bare text is sent as a string, everything else as blocks."""
    if len(blocks) == 1 and blocks[0].keys() == {"type", "text"}:
        text: str = blocks[0]["text"]
        return text
    return blocks


_BLOCKS = Blocks(content_blocks, lambda text: {"type": "text", "text": text}, lambda blocks: blocks, _tool_use, _tool_result)
