"""The default repair of each repairable failure class: the refused body, changed once.

Each takes the prepared body, edits it and says whether anything changed; what the provider
said is in `ctx.state["error"]`. Sources of the classes: live refusals seen in 2025 and 2026.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gateway.adapters import paths
from gateway.adapters.reasoning import strip
from gateway.adapters.roles import rename_instructions, renormalise, roles_of, short_ids
from gateway.adapters.settings import Settings
from gateway.adapters.signatures import replace_signatures
from gateway.adapters.thinking import LEVELS
from gateway.chat import Json

if TYPE_CHECKING:
    from gateway.adapters.hooks import Context

KEPT = frozenset(("model", "messages", "input", "contents", "prompt", "system", "instructions", "tools", "functions", "response_format", "text", "stream"))
"""Never dropped although a provider refuses them: without these the answer would be to another question."""

_STRUCTURE = frozenset(("role", "content", "type", "function", "id", "tool_call_id", "tool_calls", "arguments", "parameters", "input_schema", "name"))
"""What messages and tools are made of: never dropped inside them."""

_QUOTED = re.compile(r"['`\"]([^'`\"]{1,40})['`\"]")
_NAMED = re.compile(r"(?:argument supplied|argument|parameter|property|value|field|invalid)s?:? ['\"`]?([A-Za-z_][A-Za-z0-9_.\[\]]{0,80})", re.IGNORECASE)
_USE_INSTEAD = re.compile(r"use ['\"`]([a-z_]{1,40})['\"`] instead", re.IGNORECASE)
_NUMBER = re.compile(r"(?:only|at most)\s+([0-9]+(?:\.[0-9]+)?)", re.IGNORECASE)
_INDEX = re.compile(r"\[\d*\]|\.\d+(?=\.|$)")
_UNSAFE = re.compile(r"[^\x21-\x7e]")

_NEXT_EFFORT = {"none": "low", "minimal": "low", "xhigh": "high", "max": "high"}
"""What most models know instead, where the refusal lists nothing."""


def repair(body: Json, kind: str, options: Settings, ctx: Context, *, before: bool = False) -> Json | None:
    """The body to send once more after a refusal of class `kind`; None: nothing can be changed. `body` is edited.

    `before`: another request was refused; a body that has not what was refused there stays as it is.
    """
    if before and kind in _CONCERNS and not _CONCERNS[kind](body):
        return None
    change = _REPAIRS.get(kind)
    done = change(body, options, ctx) if change else None
    if not done:
        return None
    ctx.note(_UNSAFE.sub("?", f"{options.name}.repair={kind}:{done}"))
    return body


def _reasoning_missing(body: Json, options: Settings, ctx: Context) -> str | None:
    """Every assistant turn gets an empty text; where all have one already, a space in place of each empty one (a relay's code 11155)."""
    field = "reasoning" if options["reasoning_field"] == "reasoning" and "reasoning_content" not in _said(ctx) else "reasoning_content"
    turns = [message for message, role in _history(body) if role == "assistant"]
    missing = [turn for turn in turns if type(turn.get(field)) is not str]
    empty = [turn for turn in turns if turn.get(field) == ""]
    for turn in missing or empty:
        turn[field] = "" if missing else " "
    return f"backfill={len(missing or empty)}" if missing or empty else None


def _strip_reasoning(body: Json, options: Settings, ctx: Context) -> str | None:
    """All reasoning of other models goes, never some of it: a part of a signed run is refused too."""
    stripped = sum([strip(message) for message, role in _history(body) if role == "assistant"])
    items = body.get("input")
    if isinstance(items, list):
        rest = [item for item in items if not (isinstance(item, dict) and item.get("type") == "reasoning")]
        stripped += len(items) - len(rest)
        body["input"] = rest
    return f"stripped={stripped}" if stripped else None


def _signature(body: Json, options: Settings, ctx: Context) -> str | None:
    messages, stand_in = body.get("messages"), options["thought_signature"]
    if stand_in is None or not isinstance(messages, list):
        return _strip_reasoning(body, options, ctx)
    replaced = replace_signatures(messages, roles_of(messages), stand_in)
    return f"replaced={replaced}" if replaced else None


def _tool_choice(body: Json, options: Settings, ctx: Context) -> str | None:
    """auto where a tool was forced; thinking off where the adapter can say it and that was not the cause."""
    choice = body.get("tool_choice")
    auto: Any = {"type": "auto"} if ctx.dialect == "messages" else "auto"
    if choice is not None and choice != auto:
        body["tool_choice"] = auto
        return "tool_choice=auto"
    rule = options.thinking
    if rule is not None and not rule.wordings["off"].thinks and rule.write(body, "off"):
        return "thinking=off"
    return "drop=tool_choice" if body.pop("tool_choice", None) is not None else None


def _tools_effort(body: Json, options: Settings, ctx: Context) -> str | None:
    if body.get("reasoning_effort") == "none":
        return None
    body["reasoning_effort"] = "none"
    return "reasoning_effort=none"


def _thinking_mode(body: Json, options: Settings, ctx: Context) -> str | None:
    """The next way to say it: the provider's text tells which field and what it does not take."""
    text = _said(ctx).lower()
    if "enable_thinking" in text or "only support" in text:
        return _stream_or_off(body, ctx)
    if "reasoning_effort" in body and ("reasoning_effort" in text or "cannot specify both" in text):
        if "cannot specify both" in text:
            del body["reasoning_effort"]
            return "drop=reasoning_effort"
        return _other_effort(body, ctx)
    thinking = body.get("thinking")
    if not isinstance(thinking, dict):
        return "drop=thinking" if body.pop("thinking", None) is not None else None
    if thinking.get("type") == "enabled":
        body["thinking"] = {"type": "adaptive"}
        return "thinking=adaptive"
    del body["thinking"]
    return "drop=thinking"


def _stream_or_off(body: Json, ctx: Context) -> str | None:
    """A model that thinks only in streams: ask for one if the client wants thinking, else turn it off."""
    if ctx.stream or ctx.force_stream:
        return None
    if ctx.thinking in ("auto", "off") and body.get("enable_thinking") is not False:
        body["enable_thinking"] = False
        return "enable_thinking=false"
    ctx.force_stream = body["stream"] = True
    return "stream"


def _param(body: Json, options: Settings, ctx: Context) -> str | None:
    """Rename, set or drop the parameter that the error names, as the error asks."""
    text = _said(ctx)
    name = _param_name(body, text, ctx)
    if name is None:
        return None
    path = paths.parse(_INDEX.sub("", name))
    if path == ("messages", "role"):
        return "system_role=system" if rename_instructions(body["messages"], roles_of(body["messages"]), "system") else None
    if len(path) > 1:
        may_go = path[-1] not in _STRUCTURE or path == ("messages", "name")
        return f"drop={'.'.join(path)}" if may_go and _remove_everywhere(body, path) else None
    if name in KEPT:
        return None
    instead = _USE_INSTEAD.search(text)
    if instead and instead[1] not in body:
        body[instead[1]] = body.pop(name)
        return f"rename={name}>{instead[1]}"
    if name == "reasoning_effort":
        return _other_effort(body, ctx)
    number = _NUMBER.search(text)
    if number and type(body[name]) in (int, float) and body[name] != float(number[1]):
        body[name] = float(number[1]) if "." in number[1] else int(number[1])
        return f"{name}={number[1]}"
    del body[name]
    return f"drop={name}"


def _param_name(body: Json, text: str, ctx: Context) -> str | None:
    """The parameter that the body has: named by the error's own field, else by its text."""
    named = _error(ctx).get("param")
    names = [named] if isinstance(named, str) and named else []
    return next((name for name in (*names, *_NAMED.findall(text), *_QUOTED.findall(text)) if re.split(r"[.\[]", name)[0] in body), None)


def _other_effort(body: Json, ctx: Context) -> str:
    """The nearest of the levels that the refusal lists, else the one that most models know, else none at all."""
    effort = body.pop("reasoning_effort")
    order = ("none", *LEVELS)
    listed = [word for word in _QUOTED.findall(_said(ctx)) if word in order and word != effort]
    if listed and effort in order:
        other = min(listed, key=lambda level: abs(order.index(level) - order.index(effort)))
    elif effort not in _NEXT_EFFORT:
        return "drop=reasoning_effort"
    else:
        other = _NEXT_EFFORT[effort]
    body["reasoning_effort"] = other
    return f"reasoning_effort={other}"


def _role_order(body: Json, options: Settings, ctx: Context) -> str | None:
    messages, text = body.get("messages"), _said(ctx).lower()
    if not isinstance(messages, list):
        return None
    if "tool call id was" in text:
        return "tool_ids" if short_ids(messages) else None
    return "messages" if renormalise(messages, bridged="after role 'tool'" in text) else None


def _history(body: Json) -> list[tuple[Json, Any]]:
    messages = body.get("messages")
    return list(zip(messages, roles_of(messages), strict=True)) if isinstance(messages, list) else []


def _remove_everywhere(value: Any, path: paths.Path) -> bool:
    """Remove a path; where a list is on the way, in each of its items."""
    if isinstance(value, list):
        return any([_remove_everywhere(item, path) for item in value])
    if not isinstance(value, dict) or path[0] not in value:
        return False
    if len(path) == 1:
        del value[path[0]]
        return True
    return _remove_everywhere(value[path[0]], path[1:])


def _error(ctx: Context) -> Mapping[str, Any]:
    error = ctx.state.get("error")
    return error if isinstance(error, Mapping) else {}


def _said(ctx: Context) -> str:
    return str(_error(ctx).get("message") or "")


_CONCERNS: Mapping[str, Callable[[Json], bool]] = {
    "tool_choice_thinking": lambda body: body.get("tool_choice") not in (None, "auto", "none", {"type": "auto"}, {"type": "none"}),
    "tools_effort": lambda body: bool(body.get("tools")),
}
"""classes whose refusal says something about some bodies only: the others would lose their thinking for nothing"""

_REPAIRS: Mapping[str, Callable[[Json, Settings, Context], str | None]] = {
    "reasoning_missing": _reasoning_missing,
    "reasoning_unsupported": _strip_reasoning,
    "signature": _signature,
    "tool_choice_thinking": _tool_choice,
    "tools_effort": _tools_effort,
    "thinking_mode": _thinking_mode,
    "param": _param,
    "role_order": _role_order,
}
