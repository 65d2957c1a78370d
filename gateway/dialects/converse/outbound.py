"""Chat request -> Converse request.

Converse wants turns of `user` and `assistant` in alternation, beginning with the user, all
results of a turn's calls in the user turn behind it, no blank text, and a `toolConfig`
wherever the history has tool blocks (docs.aws.amazon.com, Converse, 2026).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from gateway.chat import Json, dumps
from gateway.dialects.converse.blocks import MARK, content_blocks, marked, name_apart
from gateway.dialects.messages.outbound import OPENING, tool_input
from gateway.dialects.messages.terms import listed, mapping, spell
from gateway.dialects.messages.turns import Blocks, turn
from gateway.errors import Skipped

# fields that Converse knows under the same name; chat clients send them as extras
_SAME = (
    "additionalModelRequestFields",
    "additionalModelResponseFieldPaths",
    "guardrailConfig",
    "outputConfig",
    "performanceConfig",
    "requestMetadata",
    "serviceTier",
)
_PLACE = {"reasoningContent": 0, "toolResult": 0, "toolUse": 2}
_CHOICES: Mapping[str, Json] = {"auto": {"auto": {}}, "required": {"any": {}}}
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_CACHES = ("claude", "nova")  # the models whose requests may hold cache points


def request_from_chat(body: Json) -> Json:
    """The Converse request that asks the same; `model` and `stream` stand in its path and are left in the body for that.

    Penalties, `n`, `seed`, `logprobs`, `json_object` and what else Converse has no word for are
    left out, unsigned reasoning too. Raises Skipped for content that cannot be carried.
    """
    if body.get("functions"):
        raise Skipped("the Converse dialect has no form for the legacy `functions`")
    caches = any(name in str(body.get("model")) for name in _CACHES)
    system, turns = _conversation(listed(body.get("messages")), caches)
    out: Json = {"model": body.get("model")}
    if system:
        out["system"] = system
    out["messages"] = turns
    if config := _config(body):
        out["inferenceConfig"] = config
    if tools := _tool_config(body, turns, caches):
        out["toolConfig"] = tools
    out |= {key: body[key] for key in _SAME if body.get(key) is not None}
    if form := _text_format(mapping(body.get("response_format"))):
        out["outputConfig"] = {"textFormat": form, **mapping(out.get("outputConfig"))}
    if type(body.get("top_k")) is int and "claude" in str(body.get("model")):
        out["additionalModelRequestFields"] = {"top_k": body["top_k"], **mapping(out.get("additionalModelRequestFields"))}
    if body.get("stream") is not None:
        out["stream"] = body["stream"]
    return out


def _config(body: Mapping[str, Any]) -> Json:
    out: Json = {}
    limit = next((body[key] for key in ("max_completion_tokens", "max_tokens") if type(body.get(key)) is int), None)
    if limit is not None:
        out["maxTokens"] = limit
    for name, camel in (("temperature", "temperature"), ("top_p", "topP")):
        if isinstance(body.get(name), int | float):
            out[camel] = min(max(body[name], 0), 1)
    stop = body.get("stop")
    stops = [text for text in ([stop] if isinstance(stop, str) else stop if isinstance(stop, list) else ()) if isinstance(text, str) and text.strip()]
    if stops:
        out["stopSequences"] = stops
    return out


def _text_format(form: Json) -> Json | None:
    given = mapping(form.get("json_schema"))
    if form.get("type") != "json_schema" or not isinstance(given.get("schema"), dict):
        return None
    named = {key: given[key] for key in ("name", "description") if isinstance(given.get(key), str) and given[key]}
    return {"type": "json_schema", "structure": {"jsonSchema": {"schema": dumps(given["schema"]).decode(), **named}}}


def _tool_config(body: Mapping[str, Any], turns: list[Json], caches: bool) -> Json | None:
    """Tools and choice. Converse cannot be told to call none: then, as without tools, only those that the history needs stay."""
    offered = {tool["toolSpec"]["name"]: tool for item in listed(body.get("tools")) if (tool := _tool(item))}
    marks = [mark for tool in offered.values() if (mark := tool.pop(MARK, None))]
    used = {name: {"toolSpec": {"name": name, "inputSchema": {"json": {"type": "object"}}}} for name in _called(turns)}
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed = mapping(choice.get("allowed_tools")) or choice
        names = {_name(item) for item in listed(allowed.get("tools"))}
        offered = {name: tool for name, tool in offered.items() if name in names or name in used}
        choice = allowed.get("mode")
    if choice == "none" or not offered:
        tools = [offered.get(name, tool) for name, tool in used.items()]
        return {"tools": tools} if tools else None
    out: Json = {"tools": [*offered.values(), *(marks[-1:] if caches else ())]}
    if named := _choice(choice, offered):
        out["toolChoice"] = named
    return out


def _called(turns: list[Json]) -> list[str]:
    """The names of the tools that the history calls, each once; `unknown` where it has only results."""
    blocks = [block for turn in turns for block in turn["content"]]
    names = list(dict.fromkeys(block["toolUse"]["name"] for block in blocks if "toolUse" in block))
    return names or (["unknown"] if any("toolResult" in block for block in blocks) else [])


def _tool(item: Json) -> Json | None:
    function = mapping(item.get("function")) if item.get("type") == "function" else {}
    if not isinstance(function.get("name"), str):
        return None
    spec: Json = {"name": spell(function["name"])}
    if isinstance(function.get("description"), str) and function["description"].strip():
        spec["description"] = function["description"]
    spec["inputSchema"] = {"json": {"type": "object", **mapping(function.get("parameters"))}}
    return marked({"toolSpec": spec}, item.get("cache_control"))


def _name(item: Json) -> str:
    name = mapping(item.get("function")).get("name")
    return spell(name) if isinstance(name, str) else ""


def _choice(choice: Any, names: Mapping[str, Json]) -> Json | None:
    if isinstance(choice, str):
        return _CHOICES.get(choice)
    name = _name(choice) if isinstance(choice, dict) else ""
    return {"tool": {"name": name}} if name in names else None


def _conversation(messages: list[Json], caches: bool) -> tuple[list[Json], list[Json]]:
    """The system blocks and the turns."""
    system: list[Json] = []
    turns: list[tuple[str, list[Json]]] = []
    for message in messages:
        role = message.get("role")
        if role in ("system", "developer") and not turns:
            system += content_blocks(message, texts_only=True)
            continue
        side, blocks = turn(role, message, _BLOCKS)
        if blocks and turns and turns[-1][0] == side:
            turns[-1][1].extend(blocks)
        elif blocks:
            turns.append((side, blocks))
    if not turns or turns[0][0] == "assistant":
        turns.insert(0, ("user", [{"text": OPENING}]))
    names: set[str] = set()
    out = []
    for side, blocks in turns:
        name_apart(blocks, names)
        out.append({"role": side, "content": _pointed(sorted(blocks, key=_place), caches)})
    _trim_prefill(out[-1])
    return _pointed(system, caches), out


def _place(block: Json) -> int:
    return next((place for kind, place in _PLACE.items() if kind in block), 1)


def _reasoning(block: Json) -> Json:
    """A thinking block of Anthropic's, whose signatures hold on all hosts of their models (docs.claude.com, 2026)."""
    if block["type"] == "redacted_thinking":
        return {"reasoningContent": {"redactedContent": block["data"]}}
    return {"reasoningContent": {"reasoningText": {"text": block["thinking"], "signature": block["signature"]}}}


def _use(call: Json, place: int) -> Json:
    function = mapping(call.get("function") or call.get("custom"))
    given = function.get("arguments") if "arguments" in function else function.get("input")
    name = spell(str(function.get("name") or ""))
    return {"toolUse": {"toolUseId": _ident(call.get("id") or f"call_{place}"), "name": name, "input": tool_input(given)}}


def _result(message: Json) -> Json:
    content = message.get("content")
    if content is not None and not isinstance(content, str | list):
        message = {**message, "content": dumps(content).decode()}
    blocks = content_blocks(message)
    marks = [mark for block in blocks if (mark := block.pop(MARK, None))]
    result: Json = {"toolResult": {"toolUseId": _ident(message.get("tool_call_id") or ""), "content": blocks}}
    return {**result, MARK: marks[-1]} if marks else result


def _ident(ident: Any) -> str:
    """An id in the characters and the length that Converse allows, the same for call and result."""
    text = str(ident)
    return text if _ID.fullmatch(text) else hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _pointed(blocks: list[Json], caches: bool) -> list[Json]:
    """The blocks with a cache point behind each marked one, where the model takes them."""
    out: list[Json] = []
    for block in blocks:
        mark = block.pop(MARK, None)
        out.append(block)
        if mark and caches:
            out.append(mark)
    return out


def _trim_prefill(turn: Json) -> None:
    """The answer's beginning, which the model goes on from, must not end in white space."""
    last = turn["content"][-1]
    if turn["role"] == "assistant" and "text" in last:
        last["text"] = last["text"].rstrip()


_BLOCKS = Blocks(content_blocks, lambda text: {"text": text}, lambda blocks: map(_reasoning, blocks), _use, _result)
