"""Calls that stand in a text: `[TOOL_CALL:name:params]` (H19, H21), and how models write native calls that nobody parsed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from gateway.agent.written import LONGEST, after_thinking, end_of, fences, objects, value_of
from gateway.chat import dumps


@dataclass(frozen=True, slots=True)
class Written:
    """A call in a text: `arguments.from_text` makes arguments of its `params`."""

    name: str
    params: str


_MARKER = re.compile(r"\[[ \t]*TOOL_CALL[ \t]*[:：][ \t]*([^\s:：\[\]()]{1,64})[ \t]*(?:[:：]|(?=[\](]))", re.IGNORECASE)
_INVENTED = re.compile(
    r"^[ \t>#*_`•\[-]*(?:observations?|tool[ _]results?|观察结果|观察|工具(?:执行|调用)?结果)[ \t*_`]*[:：\]]",
    re.IGNORECASE | re.MULTILINE,
)
_QUOTED = {quote: re.compile(rf"(?:\\.|[^\\])*?{quote}(?=\s*[,\]])", re.DOTALL) for quote in "\"'"}
_TAG = re.compile(r"<(tool_call|function_call|tool_use)>\s*(?=[{\[<])", re.IGNORECASE)
_FUNCTION = re.compile(r"<function=([\w.-]{1,64})>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([\w.-]{1,64})>(.*?)(?:</parameter>|(?=<parameter=)|\Z)", re.DOTALL)
_NAMES = ("name", "tool", "tool_name", "function")
_PARAMS = ("arguments", "args", "parameters", "params", "input")
_MOST = 64
"""calls of one reply"""
_MISSES = 8
"""tags without a call in them, after which no further ones are looked at"""


def tool_calls(text: str) -> tuple[list[Written], str]:
    """The `[TOOL_CALL:...]` of a reply in order, and the reply without them.

    What the model writes as their result behind the first one is cut off, calls that build on it too.
    """
    first = _MARKER.search(text, after_thinking(text))
    if first is None:
        return [], text
    invented = _INVENTED.search(text, first.end())
    if invented is not None:
        text = text[: invented.start()]
    calls: list[Written] = []
    kept: list[str] = []
    place = 0
    for found in _MARKER.finditer(text, first.start()):
        if found.start() < place or len(calls) == _MOST:
            continue
        params, end = _params(text, found.end())
        if params is None:
            break  # it is not closed: what follows may be a part of it
        if params.startswith("(") and params.endswith(")") and text[found.end()] == "(":
            params = params[1:-1].strip()
        calls.append(Written(found[1], params))
        kept.append(text[place : found.start()])
        place = end
    rest = "".join([*kept, text[place:]])
    return calls, re.sub(r"[ \t]*\n(?:[ \t]*\n){2,}", "\n\n", rest).strip() if calls else text


def written_calls(text: str, known: Collection[str]) -> tuple[list[Written], str]:
    """Calls as tags (`<tool_call>{...}</tool_call>`), and as JSON in a fenced block or as the whole reply; the reply without them.

    JSON without a tag is a call only if it names a known tool.
    """
    if len(text) > LONGEST:
        return [], text
    begin = after_thinking(text)
    before, text = text[:begin], text[begin:]
    calls, rest = _tagged(text)
    if not calls:
        calls, rest = _blocks(text, known)
    if not calls and text.strip().startswith(("{", "[")):
        calls, rest = [call for call in _calls(text) if call.name in known], ""
    return (calls[:_MOST], (before + rest).strip()) if calls else ([], before + text)


def _blocks(text: str, known: Collection[str]) -> tuple[list[Written], str]:
    """The calls in fenced blocks, and the text without those blocks."""
    calls: list[Written] = []
    rest = text
    for language, content in fences(text)[:_MOST]:
        if language in ("", "json", "tool_call", "tool_code", "xml"):
            found = [call for call in _calls(content) if call.name in known]
            if found:
                calls += found
                rest = re.sub(rf"[ \t]*(`{{3,}}|~{{3,}})[^\n]*\n{re.escape(content)}[ \t]*(?:\1[^\n]*)?", "", rest, count=1)
    return calls, rest


def _params(text: str, start: int) -> tuple[str | None, int]:
    """(the parameters that begin at `start`, where the marker ends). Brackets inside JSON, quotes and pairs of brackets do not end it."""
    if text.startswith("]", start):
        return "", start + 1
    place = start
    while place < len(text) and text[place].isspace():
        place += 1
    if text[place : place + 1] in ("{", "["):
        end = end_of(text, place)
        close = re.compile(r"\s*\]").match(text, end) if end is not None else None
        if end is not None and close is not None:
            return text[place:end], close.end()
    depth, before, unclosed = 0, ",", ""
    while place < len(text):
        char = text[place]
        if char in _QUOTED and before in "=,:[{" and char not in unclosed:
            quoted = _QUOTED[char].match(text, place + 1)
            if quoted is not None:
                place, before = quoted.end(), char
                continue
            unclosed += char  # nor is any later one
        depth += (char == "[") - (char == "]")
        if depth < 0:
            return text[start:place].strip(), place + 1
        before = before if char.isspace() else char
        place += 1
    return None, start


def _tagged(text: str) -> tuple[list[Written], str]:
    calls: list[Written] = []
    kept: list[str] = []
    place = 0
    misses = 0
    for found in _TAG.finditer(text):
        if found.start() < place or misses == _MISSES:
            continue
        closing = re.compile(rf"</{found[1]}>", re.IGNORECASE).search(text, found.end())
        content = text[found.end() : closing.start() if closing else len(text)]
        made = list(_functions(content)) or list(_calls(content))
        if made:
            calls += made
            kept.append(text[place : found.start()])
            place = closing.end() if closing else len(text)
        else:
            misses += 1
    rest = "".join([*kept, text[place:]])
    if not calls:
        calls = list(_functions(text)) if "</function>" in text else []
        rest = _FUNCTION.sub("", text) if calls else text
    return calls[:_MOST], rest.strip() if calls else text


def _functions(text: str) -> Iterator[Written]:
    """`<function=name><parameter=key>value</parameter></function>`."""
    for found in _FUNCTION.finditer(text):
        given: dict[str, str] = {key: value.strip("\n") for key, value in _PARAMETER.findall(found[2])}
        if not given and found[2].strip().startswith("{"):
            yield from [Written(found[1], dumps(value).decode()) for value in list(objects(found[2]))[:1]]
        else:
            yield Written(found[1], dumps(given).decode())


def _calls(text: str) -> Iterator[Written]:
    """The calls that JSON describes: one object, several, or a list of them."""
    text = text.strip()
    try:
        value = value_of(text) if text.startswith("[") and end_of(text, 0) is not None else None
    except ValueError:
        value = None
    for one in value if isinstance(value, list) else objects(text):
        call = _call(one)
        if call is not None:
            yield call


def _call(value: Any) -> Written | None:
    if not isinstance(value, dict):
        return None
    if isinstance(value.get("function"), dict):
        value = value["function"]
    name = next((value[key] for key in _NAMES if isinstance(value.get(key), str) and value[key]), None)
    if name is None:
        return None
    given: Any = next((value[key] for key in _PARAMS if key in value), {})
    return Written(name, given if isinstance(given, str) else "" if given is None else dumps(given).decode())
