"""Roles and order of chat messages: what some providers insist on."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from gateway.chat import Json

_INSTRUCTIONS = ("system", "developer")
_NINE = re.compile(r"[a-zA-Z0-9]{9}")


def roles_of(messages: list[Any]) -> list[Any]:
    """The role of each message; None where one is no object."""
    try:
        return [message["role"] for message in messages]
    except (KeyError, TypeError, IndexError):
        return [message.get("role") if isinstance(message, dict) else None for message in messages]


def rename_instructions(messages: list[Any], roles: list[Any], wanted: str) -> bool:
    """Give instructions the role `wanted` (system, developer, or first_only: one system message, at the start). False: they have it."""
    if wanted == "first_only":
        return instructions_first(messages, roles)
    other = "developer" if wanted == "system" else "system"
    if other not in roles:
        return False
    for at, role in enumerate(roles):
        if role == other:
            messages[at]["role"] = roles[at] = wanted
    return True


def instructions_first(messages: list[Any], roles: list[Any]) -> bool:
    """Join all instructions into one system message at the start; False if that is what is there. `roles` is kept in step."""
    places = [at for at, role in enumerate(roles) if role in _INSTRUCTIONS]
    if not places or (places == [0] and roles[0] == "system"):
        return False
    first = {**messages[places[0]], "role": "system"}
    for at in places[1:]:
        first["content"] = join_content(first.get("content"), messages[at].get("content"))
    messages[:] = [first, *(message for message, role in zip(messages, roles, strict=True) if role not in _INSTRUCTIONS)]
    roles[:] = ["system", *(role for role in roles if role not in _INSTRUCTIONS)]
    return True


def join_content(one: Any, two: Any) -> Any:
    """Two contents as one: texts with an empty line between, else a list of parts."""
    if not one or not two:
        return one or two
    if isinstance(one, str) and isinstance(two, str):
        return f"{one}\n\n{two}"
    return [*_parts(one), *_parts(two)]


def renormalise(messages: list[Any], *, bridged: bool) -> bool:
    """Bring a history into the order that strict providers accept; False if it is in it.

    Instructions first, as one message; the results of a turn's calls right behind it in the
    calls' order; results without a call and calls without a result go; turns of one role
    in a row become one. `bridged`: a short assistant turn between a tool's result and the
    user (Mistral refuses a user turn there, error 3230, seen 2026).
    """
    before = list(messages)
    instructions_first(messages, roles_of(messages))
    messages[:] = _alternating(_answered(messages))
    if bridged:
        bridge(messages)
    return messages != before


def bridge(messages: list[Any]) -> int:
    """Put a short assistant turn between the result of a tool and the user; how many were needed."""
    roles = roles_of(messages)
    gaps = [at for at in range(1, len(roles)) if roles[at] == "user" and roles[at - 1] == "tool"]
    for at in reversed(gaps):
        messages.insert(at, {"role": "assistant", "content": "OK."})
    return len(gaps)


def short_ids(messages: list[Any]) -> dict[str, str]:
    """Give tool calls ids of nine letters and digits, the same in call and result; new id -> old one, empty if all had such."""
    changed: dict[str, str] = {}
    for message in messages:
        if type(message) is not dict:
            continue
        if "tool_call_id" in message:
            _shorten(message, "tool_call_id", changed)
        elif "tool_calls" in message:
            for call in calls_of(message):
                _shorten(call, "id", changed)
    return changed


def _shorten(holder: Json, key: str, changed: dict[str, str]) -> None:
    ident = holder.get(key)
    if isinstance(ident, str) and not _NINE.fullmatch(ident):
        short = hashlib.blake2b(ident.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()[:9]
        holder[key], changed[short] = short, ident


def name_results(messages: list[Any]) -> int:
    """Name the function in each result of a tool that names none; how many that were."""
    names: dict[str, Any] = {}
    named = 0
    for message in messages:
        if type(message) is not dict:
            continue
        if "tool_calls" in message:
            names.update((_ident(call, "id"), function.get("name")) for call in calls_of(message) if isinstance(function := call.get("function"), dict))
        elif message.get("role") == "tool" and not message.get("name") and (name := names.get(_ident(message, "tool_call_id"))):
            message["name"] = name
            named += 1
    return named


def empty_contents(messages: list[Any], wanted: str | None) -> int:
    """Make the content of assistant turns that have none "" or, where they called tools, null; how many had another."""
    changed = 0
    for message in messages:
        if type(message) is not dict or message.get("role") != "assistant" or message.get("content"):
            continue
        if message.get("content", _MISSING) != wanted and (wanted is not None or message.get("tool_calls")):
            message["content"] = wanted
            changed += 1
    return changed


def calls_of(message: Mapping[str, Any]) -> list[Json]:
    """The tool calls of a turn that are objects."""
    calls = message.get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _answered(messages: list[Any]) -> list[Any]:
    results = {
        ident: message for message in messages if isinstance(message, dict) and message.get("role") == "tool" and (ident := _ident(message, "tool_call_id"))
    }
    out: list[Any] = []
    for message in messages:
        if not isinstance(message, dict):
            out.append(message)
        elif message.get("role") == "tool":
            continue
        elif not calls_of(message):
            out.append(message)
        else:
            calls = [call for call in calls_of(message) if _ident(call, "id") in results]
            if calls:
                out.append({**message, "tool_calls": calls})
                out.extend(results[call["id"]] for call in calls)
            elif message.get("content"):
                out.append({key: value for key, value in message.items() if key != "tool_calls"})
    return out


def _ident(holder: Json, key: str) -> str:
    ident = holder.get(key)
    return ident if isinstance(ident, str) else ""


def _alternating(messages: list[Any]) -> list[Any]:
    out: list[Any] = []
    for message in messages:
        last = out[-1] if out else None
        if isinstance(message, dict) and isinstance(last, dict) and message.get("role") == last.get("role") in ("user", "assistant") and not calls_of(last):
            out[-1] = _joined(last, message)
        else:
            out.append(message)
    return out


def _joined(one: Json, two: Json) -> Json:
    """Two turns of one role as one; their reasoning is joined as their text is."""
    out = {**one, **two, "content": join_content(one.get("content"), two.get("content"))}
    thoughts = [turn["reasoning_content"] for turn in (one, two) if isinstance(turn.get("reasoning_content"), str) and turn["reasoning_content"]]
    if thoughts:
        out["reasoning_content"] = "\n\n".join(thoughts)
    return out


_MISSING = object()
