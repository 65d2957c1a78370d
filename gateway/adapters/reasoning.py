"""Reasoning in a chat history: which assistant turns carry it upstream, and in which field.

A turn may hold its reasoning in several fields at once (the gateway gives clients
`reasoning_content` beside the provider's own field): the first that has text is read, two
are never joined. Text is never overwritten, null counts as missing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from gateway.chat import Json

FIELDS = ("reasoning_content", "reasoning", "reasoning_text", "reasoning_details", "thinking", "thinking_blocks")
"""Where reasoning is looked for, in this order; then among the parts of `content`."""

_FIELDS = frozenset(FIELDS)
_plain = _FIELDS.isdisjoint  # of a turn: it has none of them
_OTHERS = {field: _FIELDS - {field} for field in FIELDS}
_LISTS = ("reasoning_details", "thinking_blocks")
_IN_CONTENT = ("parts", "tags")
_PARTS = ("thinking", "redacted_thinking", "reasoning")


class Echo(NamedTuple):
    """How many turns were given a placeholder, had reasoning moved into the right field, lost it."""

    backfilled: int = 0
    moved: int = 0
    stripped: int = 0


def echo(messages: list[Any], roles: list[Any], which: str, field: str, placeholder: str | None, has_tools: bool, fills: str = "with_tools") -> Echo:
    """Bring every assistant turn into the form that the provider wants; `messages` is edited.

    which        none | tool_turns | with_tools | all, see COMMON_OPTIONS
    placeholder  what a turn without reasoning gets; None: nothing. `all` without tools in
                 the request keeps what is there and fills nothing, as most providers do not ask for it then
    fills        with_tools | tool_turns, see COMMON_OPTIONS
    """
    turns = [message for message, role in zip(messages, roles, strict=True) if role == "assistant"]
    if which == "none" or (which == "with_tools" and not has_tools):
        return Echo(stripped=sum([strip(turn) for turn in turns if not _plain(turn) or type(turn.get("content")) is list]))
    if which == "all" and fills == "with_tools" and not has_tools:
        placeholder = None
    only_tool_turns, plain, filler, in_content = which == "tool_turns", _plain, placeholder, field in _IN_CONTENT
    fills_some = fills == "tool_turns" and placeholder is not None
    backfilled = moved = stripped = 0
    for turn in turns:
        if fills_some:
            placeholder = filler if turn.get("tool_calls") or turn.get("function_call") else None
        if only_tool_turns and not (turn.get("tool_calls") or turn.get("function_call")):
            stripped += strip(turn)
        elif in_content:
            moved += _into_content(turn, field)
        elif plain(turn) and not (type(turn.get("content")) is list and _has_parts(turn)):
            if placeholder is not None:
                turn[field] = _value(field, placeholder)
                backfilled += 1
        else:
            done = _carry(turn, field, placeholder)
            backfilled += done == "backfilled"
            moved += done == "moved"
    return Echo(backfilled, moved, stripped)


def strip(message: Json) -> bool:
    """Take all reasoning out of one turn; False if there was none."""
    found = not _plain(message)
    if found:
        for field in FIELDS:
            message.pop(field, None)
    return _strip_parts(message) or found


def reasoning_text(message: Json) -> str | None:
    """The reasoning of a turn as text: the first that is not empty, else "" if an empty one is there, else None."""
    empty: str | None = None
    for field in FIELDS:
        text = _text(message.get(field))
        if text:
            return text
        empty = text if text is not None else empty
    content = message.get("content")
    parts = [part for part in content if _is_reasoning(part)] if isinstance(content, list) else []
    return _text(parts) or empty if parts else empty


def _carry(message: Json, field: str, placeholder: str | None) -> str | None:
    """One turn that may hold reasoning elsewhere than in `field`: "moved", "backfilled" or None (nothing to do)."""
    have = message.get(field)
    text = reasoning_text(message)
    parts = _strip_parts(message)
    aliases = [alias for alias in _OTHERS[field] if message.pop(alias, _MISSING) is not _MISSING]
    if field in _LISTS:
        if type(have) is not list and (text or placeholder is not None):
            message[field] = _value(field, text or placeholder or "")
            return "moved" if text else "backfilled"
    elif text or (text is not None and type(have) is not str):
        if text != have:
            message[field] = text
            return "moved"
    elif type(have) is not str and placeholder is not None:
        message[field] = placeholder
        return "backfilled"
    return "moved" if parts or aliases else None


def _into_content(message: Json, field: str) -> bool:
    """Put a turn's reasoning at the start of its content; False if there is none, or only there. Nothing is invented for a turn without."""
    there = field == "parts" and _has_parts(message) and all(map(_is_closed, message["content"]))
    if _plain(message) and (there or not _has_parts(message)):
        return False
    text = reasoning_text(message)
    for alias in FIELDS:
        message.pop(alias, None)
    if not there:
        _strip_parts(message)
        if text:
            message["content"] = _with_thought(field, text, message.get("content"))
    return True


def _with_thought(field: str, text: str, content: Any) -> str | list[Any]:
    if field == "tags" and not isinstance(content, list):
        return f"<think>{text}</think>{content or ''}"
    first: Json = {"type": "text", "text": f"<think>{text}</think>"}
    if field == "parts":
        first = {"type": "thinking", "thinking": [{"type": "text", "text": text}], "closed": True}
    rest = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    return [first, *rest]


def _is_closed(part: Any) -> bool:
    """A part that is no reasoning, or is in Mistral's form."""
    return not _is_reasoning(part) or (isinstance(part.get("thinking"), list) and part.get("closed") is True)


def _strip_parts(message: Json) -> bool:
    if not _has_parts(message):
        return False
    rest = [part for part in message["content"] if not _is_reasoning(part)]
    message["content"] = rest or (None if message.get("tool_calls") else "")
    return True


def _has_parts(message: Json) -> bool:
    content = message.get("content")
    return type(content) is list and any([_is_reasoning(part) for part in content])


def _is_reasoning(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in _PARTS


def _text(value: Any) -> str | None:
    """Text of one field's value: a string, or the entries of reasoning_details, thinking_blocks or content parts; an object has none."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return None
    texts = [inner for entry in value if isinstance(entry, dict) for key in ("text", "summary", "thinking") if (inner := _text(entry.get(key)))]
    return "".join(texts) if texts else None


def _value(field: str, text: str) -> str | list[Json]:
    """The text as `field` carries it: unsigned entries in the fields that are lists."""
    if field not in _LISTS:
        return text
    if not text:
        return []
    return [{"type": "thinking", "thinking": text}] if field == "thinking_blocks" else [{"type": "reasoning.text", "text": text}]


_MISSING = object()
