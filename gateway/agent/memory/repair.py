"""A history that every provider takes, out of whatever was kept (X10, X18).

One failed or interrupted call must not make a session useless: what a crash, a cancelled
run, a client that edits its history or an older version left behind is put right when the
history is loaded, and the caller is told what was done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import json_repair

from gateway.agent.memory.turns import is_empty, join_content, join_reasoning, text_of
from gateway.chat import Json, dumps, loads

NO_RESULT = "no result: the call was cancelled or its outcome is unknown"
"""the content of the result that a call gets which has none"""
PLACEHOLDER: Json = {"role": "user", "content": "(The conversation goes on.)"}
"""in front of a history that begins with the assistant: some providers refuse that (P11)"""
INTERRUPTED: Json = {"role": "assistant", "content": "(interrupted)"}
"""between a tool's result and the next user message, where turns must alternate"""

_ROLES = ("system", "developer", "user", "assistant", "tool")


def repair(messages: Iterable[Any], *, alternate: bool = False) -> tuple[list[Json], list[str]]:
    """The messages as a history that is valid, and what was done to them (`missing result: 2`), nothing of their text in it.

    After it: every call has exactly one result, right behind its turn and in the order of
    the calls; no result is without its call; ids are unique and arguments are JSON objects;
    no message is empty; neighbours of one role are one message, their reasoning too; the
    first message that is not the system's is the user's. `alternate`: system messages stand
    first and are one, and user and assistant take turns whatever happened between them.
    The messages given are not changed. Repairing twice is repairing once.
    """
    work = _Repair()
    out = work.pair(work.clean(messages))
    if alternate:
        out = _system_first(out)
    out = work.merge(work.filled(work.merge(out, names=alternate)), names=alternate)
    out = work.lead(out)
    if alternate:
        out = _between(out)
    return out, [f"{what}: {times}" for what, times in work.done.items()]


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Places of results by the place of their call (message, number of the call); the ids that have a result."""

    result_of: Mapping[tuple[int, int], int]
    answered: frozenset[str]


class _Repair:
    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.old_ids: dict[str, str] = {}
        """what a call was called before it got a new id: its result still says so"""

    def clean(self, messages: Iterable[Any]) -> list[Json]:
        """What is a message at all, in a form that has a JSON text, its calls in order."""
        out: list[Json] = []
        used: set[str] = set()
        for message in messages:
            if not isinstance(message, dict) or message.get("role") not in _ROLES:
                if isinstance(message, dict) and message.get("role") == "function" and text_of(message):
                    out.append(_orphan(message))
                self.done["not a message"] += 1
                continue
            try:
                dumps(message)
            except ValueError:
                message = encodable(message)
                self.done["broken characters"] += 1
            message = self._content(message)
            if "tool_calls" in message or "function_call" in message:
                message = self._calls(message, used)
            out.append(message)
        return out

    def _content(self, message: Json) -> Json:
        content = message.get("content")
        if content is None or isinstance(content, str):
            return message if content is None or _said(content) or message["role"] == "tool" else {**message, "content": None}
        if isinstance(content, list):
            texts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
            parts = [part for part in texts if isinstance(part, dict) and not (part.get("type") == "text" and not _said(part.get("text")))]
            if parts and len(parts) == len(content):
                return message if all(a is b for a, b in zip(parts, content, strict=True)) else {**message, "content": parts}
            self.done["empty part"] += len(content) - len(parts)
            return {**message, "content": parts or None}
        self.done["content is no text"] += 1
        return {**message, "content": dumps(content).decode()}

    def _calls(self, message: Json, used: set[str]) -> Json:
        """The calls of one turn. A repeated id gets a new one, which the results of this turn find by their order."""
        if message["role"] != "assistant" or not message.get("tool_calls"):
            return {name: value for name, value in message.items() if name not in ("tool_calls", "function_call")}
        calls = []
        given = message["tool_calls"] if isinstance(message["tool_calls"], list) else []
        for call in given:
            fixed = self._call(call)
            if fixed is None:
                self.done["call without a name"] += 1
                continue
            calls.append(fixed)
            old = fixed["id"]
            if not old or old in used:
                new = _free(old or f"call_{len(used) + 1}", used)
                self.done["duplicate id" if old else "call without an id"] += 1
                calls[-1] = {**fixed, "id": new}
                self.old_ids[new] = old
            used.add(calls[-1]["id"])
        rest = {name: value for name, value in message.items() if name not in ("tool_calls", "function_call")}
        if not calls:
            return rest
        if "function_call" not in message and len(calls) == len(given) and all(a is b for a, b in zip(calls, given, strict=True)):
            return message
        return {**rest, "tool_calls": calls}

    def _call(self, call: Any) -> Json | None:
        part = call.get(call.get("type") if call.get("type") == "custom" else "function") if isinstance(call, dict) else None
        if not isinstance(part, dict) or not isinstance(part.get("name"), str) or not part["name"]:
            return None
        fixed = call if isinstance(call.get("id"), str) else {**call, "id": ""}
        if call.get("type") == "custom":
            return fixed if isinstance(part.get("input"), str) else {**fixed, "custom": {**part, "input": _json_text(part.get("input"))}}
        if call.get("type") != "function":
            fixed = {**fixed, "type": "function"}
        arguments = object_text(part.get("arguments"))
        if arguments != part.get("arguments"):
            self.done["arguments"] += 1
            fixed = {**fixed, "function": {**part, "arguments": arguments}}
        return fixed

    def pair(self, messages: Sequence[Json]) -> list[Json]:
        """Each turn's results right behind it, one per call, in the order of the calls; what is left over becomes text."""
        pairs = self._pairs(messages)
        paired = set(pairs.result_of.values())
        out: list[Json] = []
        for place, message in enumerate(messages):
            if message["role"] == "tool":
                if place not in paired:
                    self._left_over(message, out, pairs.answered)
                continue
            out.append(message)
            for number, call in enumerate(message.get("tool_calls") or ()):
                found = pairs.result_of.get((place, number))
                out.append(self._result(messages[found] if found is not None else None, call))
        return out

    def _pairs(self, messages: Sequence[Json]) -> _Pairs:
        """Which result belongs to which call: the first one behind it that has its id and that no other call has."""
        waiting: dict[str, list[tuple[int, int]]] = {}
        result_of: dict[tuple[int, int], int] = {}
        answered: set[str] = set()
        for place, message in enumerate(messages):
            if message["role"] == "tool":
                ident = message.get("tool_call_id") or ""
                if isinstance(ident, str) and waiting.get(ident):
                    result_of[waiting[ident].pop(0)] = place
                    answered.add(ident)
            for number, call in enumerate(message.get("tool_calls") or ()):
                mine = self.old_ids.get(call["id"], call["id"])
                # a later turn's call takes the id over: what comes now can only be its result
                waiting[mine] = [spot for spot in waiting.get(mine, ()) if spot[0] == place] + [(place, number)]
        return _Pairs(result_of, frozenset(answered))

    def _result(self, message: Json | None, call: Json) -> Json:
        if message is None:
            self.done["missing result"] += 1
            return {"role": "tool", "tool_call_id": call["id"], "content": NO_RESULT}
        fixed = message if message.get("tool_call_id") == call["id"] else {**message, "tool_call_id": call["id"]}
        return fixed if fixed.get("content") is not None else {**fixed, "content": ""}

    def _left_over(self, message: Json, out: list[Json], answered: frozenset[str]) -> None:
        self.done["orphan result"] += 1
        leading = all(one["role"] in ("system", "developer") for one in out)
        ident = message.get("tool_call_id")
        again = isinstance(ident, str) and ident in answered
        if not leading and not again and _said(text_of(message)):
            out.append(_orphan(message))

    def filled(self, messages: Sequence[Json]) -> list[Json]:
        """Without the empty ones. A thought without anything behind it goes too: merging has already given it to the turn that it led to."""
        out = [message for message in messages if message["role"] == "tool" or not is_empty(message)]
        if len(out) < len(messages):
            self.done["empty message"] += len(messages) - len(out)
        return out

    def merge(self, messages: Sequence[Json], *, names: bool) -> list[Json]:
        out: list[Json] = []
        for message in messages:
            last = out[-1] if out else None
            if last is None or not _mergeable(last, message, names):
                out.append(message)
                continue
            out[-1] = merged(last, message) if last.get("name") == message.get("name") else merged(_named(last), _named(message))
            if not is_empty(last) and not is_empty(message):
                self.done["merged"] += 1
        return out

    def lead(self, messages: list[Json]) -> list[Json]:
        first = next((place for place, message in enumerate(messages) if message["role"] not in ("system", "developer")), None)
        if first is None or messages[first]["role"] == "user":
            return messages
        self.done["begins with the assistant"] += 1
        return [*messages[:first], dict(PLACEHOLDER), *messages[first:]]


def merged(first: Json, second: Json) -> Json:
    """Two messages of one role as one: contents, reasoning (D26), refusals and calls of both."""
    out = {**first, **{name: value for name, value in second.items() if value is not None}}
    if "content" in first or "content" in second:
        out["content"] = join_content(first.get("content"), second.get("content"))
    out.update(join_reasoning(first, second))
    if first.get("refusal") and second.get("refusal"):
        out["refusal"] = f"{first['refusal']}\n\n{second['refusal']}"
    if first.get("tool_calls") or second.get("tool_calls"):
        out["tool_calls"] = [*(first.get("tool_calls") or ()), *(second.get("tool_calls") or ())]
    return out


def object_text(arguments: Any) -> str:
    """The arguments of a call as the text of a JSON object: as they are if they are one, else repaired, else `{}`."""
    if isinstance(arguments, dict):
        return dumps(arguments).decode()
    if not isinstance(arguments, str) or not arguments.strip():
        return "{}"
    try:
        if isinstance(loads(arguments), dict):
            return arguments
    except ValueError:
        pass
    try:
        value: Any = json_repair.loads(arguments)
        return dumps(encodable(value)).decode() if isinstance(value, dict) else "{}"
    except (ValueError, RecursionError):
        return "{}"


def _mergeable(last: Json, message: Json, names: bool) -> bool:
    if last["role"] != message["role"] or last["role"] == "tool":
        return False
    if last.get("tool_calls"):
        return False  # its results stand between them
    return names or last.get("name") == message.get("name")


def _named(message: Json) -> Json:
    """The same with the name in its text, where several people's messages become one."""
    rest = {name: value for name, value in message.items() if name != "name"}
    return {**rest, "content": join_content(f"{message['name']}:", message.get("content"))} if message.get("name") else rest


def _orphan(message: Json) -> Json:
    return {"role": "user", "content": f"[Result of an earlier tool call]\n{text_of(message)}"}


def _system_first(messages: Sequence[Json]) -> list[Json]:
    system = [message for message in messages if message["role"] in ("system", "developer")]
    role = {"role": system[0]["role"]} if system else {}
    return [*({**message, **role} for message in system), *(message for message in messages if message["role"] not in ("system", "developer"))]


def _between(messages: Sequence[Json]) -> list[Json]:
    out: list[Json] = []
    for message in messages:
        if message["role"] == "user" and out and out[-1]["role"] == "tool":
            out.append(dict(INTERRUPTED))
        out.append(message)
    return out


def _free(ident: str, used: set[str]) -> str:
    number = 2
    while f"{ident}_{number}" in used:
        number += 1
    return ident if ident not in used else f"{ident}_{number}"


def _said(text: Any) -> bool:
    return isinstance(text, str) and bool(text.strip())


def _json_text(value: Any) -> str:
    return "" if value is None else dumps(value).decode()


def encodable(value: Any) -> Any:
    """The same with U+FFFD for halves of surrogate pairs, and text for what has no JSON form."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {encodable(str(name)): encodable(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [encodable(one) for one in value]
    return value if value is None or isinstance(value, bool | int | float) else str(value)
