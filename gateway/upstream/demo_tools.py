"""Which of the offered tools the demo model calls, and with what."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.upstream.demo_schema import ARITHMETIC, BadSchema, Filler, as_list, as_object, capital_name

Json = dict[str, Any]

_WORD = re.compile(r"[A-Za-z]+|[\u4e00-\u9fff]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_CLAUSE = re.compile(r"[.;?!]\s+|[，。；？！]|以及|然后|还有|(?:,\s+|\s+(?:and|then|also)\s+)(?!-?\d)|(?<!\d)(?:,\s+|\s+and\s+)", re.IGNORECASE)
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "a about all also an and any are as at be by call can city could current do does find for from function get give given has have here how i if in into "
        "is it its list make me my name of on one or our please return returns run set show so some tell that the their then there this to tool use used user "
        "uses using value want was we what when where which will with would you your",
    )
)
_MEANS = {
    "weather": "temperature hot degrees forecast rain raining sunny warm cold umbrella 天气 气温",
    "search": "lookup look find news latest web google 搜索 查找 查询",
    "calculate": "compute sum plus minus times multiply divided calculator math 计算",
    "attractions": "sights sightseeing visit tourist 景点",
    "time": "clock hour date today 时间 几点",
    "fetch": "download open read url page website",
}
_CHINESE = {term: word for word, terms in _MEANS.items() for term in terms.split() if not term.isascii()}
_THINKING = re.compile(r"sequential_?thinking|^think(ing)?$", re.IGNORECASE)
_TODO = re.compile(r"todo", re.IGNORECASE)
_WANTS_THOUGHT = re.compile(r"\b(think|thinking|plan|planning|step[- ]by[- ]step|reason|analy[sz]e|carefully)\b|思考|计划|规划|一步|分析", re.IGNORECASE)
_OPENING = re.compile(r"^\s*(?:please\s+)?(?:think|plan|reason)\b[^:.,]{0,40}[:.,]\s*", re.IGNORECASE)
THOUGHTS = 3
MOST_CALLS = 4
STEPS = ("Understand what is asked", "Gather what is missing", "Put the answer together and check it")


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call; `arguments` is an object, or the text that a custom tool takes."""

    name: str
    arguments: Json | str


@dataclass(frozen=True, slots=True)
class Tool:
    """One offered tool. `schema` is None for a custom tool, which takes a text."""

    name: str
    description: str = ""
    schema: Mapping[str, Any] | None = field(default_factory=dict)

    @property
    def thinks(self) -> bool:
        return _THINKING.search(self.name) is not None

    @property
    def plans(self) -> bool:
        return _TODO.search(self.name) is not None


def offered(body: Mapping[str, Any]) -> tuple[list[Tool], bool]:
    """The tools that a chat request lets the model call, and whether it must call one."""
    tools = [tool for tool in map(_tool, as_list(body.get("tools"))) if tool is not None]
    choice = body.get("tool_choice")
    if not isinstance(choice, Mapping):
        return ([] if choice == "none" else tools), choice in ("required", "any")
    if choice.get("type") == "allowed_tools":
        allowed = as_object(choice.get("allowed_tools")) or choice
        names = {_name(as_object(tool)) for tool in as_list(allowed.get("tools"))}
        return [tool for tool in tools if tool.name in names], allowed.get("mode") == "required"
    return [tool for tool in tools if tool.name == _name(choice)], True


def _tool(entry: Any) -> Tool | None:
    if not isinstance(entry, Mapping) or not _name(entry):
        return None
    if entry.get("type") == "custom":
        return Tool(_name(entry), str((as_object(entry.get("custom")) or entry).get("description") or ""), None)
    function = as_object(entry.get("function")) or entry
    schema = function.get("parameters") or {}
    if not isinstance(schema, Mapping):
        raise BadSchema("not a JSON Schema: parameters must be an object")
    return Tool(_name(entry), str(function.get("description") or ""), schema)


def _name(entry: Mapping[str, Any]) -> str:
    inner = as_object(entry.get("function")) or as_object(entry.get("custom")) or entry
    return str(inner.get("name") or "")


def wants_thought(text: str) -> bool:
    """Whether a text asks for thinking or planning."""
    return _WANTS_THOUGHT.search(text) is not None


def choose(tools: Sequence[Tool], prompt: str, system: str, called: Sequence[Call], *, must: bool, parallel: bool, planned: bool = False) -> list[Call]:
    """The calls for this turn; [] where the answer is due.

    called   those made since the user spoke
    planned  the thinking was done before the turn: one thought, the list and the first calls come together
    """
    if planned and parallel and not called:
        first = [_thought(tools, prompt, (), total=1), _todo(tools, prompt, (), done=False)]
        rest = _matching([tool for tool in tools if not tool.thinks and not tool.plans], prompt)
        return [call for call in (*first, *rest) if call is not None][:MOST_CALLS]
    if not planned and wants_thought(f"{system}\n{prompt}") and (step := _thought(tools, prompt, called) or _todo(tools, prompt, called, done=False)):
        return [step]
    plain = [tool for tool in tools if not tool.thinks and not tool.plans]
    wanted, made = _matching(plain, prompt), [call.name for call in called]
    names = [call.name for call in wanted]  # a person may have changed a call's arguments: as many as were wanted are enough
    calls = [call for call in wanted if call not in called and made.count(call.name) < names.count(call.name)]
    if calls:
        return calls[: MOST_CALLS if parallel else 1]
    if any(call.name == tool.name for tool in tools if tool.plans for call in called) and (step := _todo(tools, prompt, called, done=True)):
        return [step]
    if must and tools and not called:
        tool = (plain or list(tools))[0]
        return [_thought([tool], prompt, []) or _todo([tool], prompt, [], done=False) or fill(tool, prompt)]
    return []


def fill(tool: Tool, text: str) -> Call:
    """A call of the tool with what the text says."""
    if tool.schema is None:
        return Call(tool.name, text.strip())
    value = Filler({"type": "object", **tool.schema}, text).value()
    return Call(tool.name, value if isinstance(value, dict) else {})


def _matching(tools: Sequence[Tool], prompt: str) -> list[Call]:
    """One call for each clause of the prompt that a tool fits; a clause with a name only goes on with the last tool."""
    calls: list[Call] = []
    last: Tool | None = None
    for clause in filter(None, (part.strip(" .?!") for part in _CLAUSE.split(prompt))):
        tool = _best(tools, clause)
        if tool is None and last is not None and len(clause.split()) <= 3 and (name := capital_name(clause)):
            tool, clause = last, f"in {name}"
        if tool is not None and (call := fill(tool, clause)) not in calls:
            calls.append(call)
        last = tool or last
    if not calls and (tool := _best(tools, prompt)) is not None:
        calls.append(fill(tool, prompt))
    return calls


def _best(tools: Sequence[Tool], text: str) -> Tool | None:
    said = _words(text)
    scored = [(_score(tool, text, said), -position) for position, tool in enumerate(tools)]
    score, position = max(scored, default=(0, 0))
    return tools[-position] if score >= 2 else None


def _score(tool: Tool, text: str, said: set[str]) -> int:
    if tool.name in text:
        return 10
    name = _words(_HUMP.sub(" ", tool.name.replace("_", " ")))
    about = _words(tool.description) - name
    return 3 * sum(any(_same(word, other) for other in said) for word in name) + sum(any(_same(word, other) for other in said) for word in about)


def _words(text: str) -> set[str]:
    """The words that carry meaning, and those that they stand for."""
    words = {word for word in (found.lower() for found in _WORD.findall(text)) if word not in _COMMON and (len(word) > 2 or not word.isascii())}
    words |= {meaning for meaning, others in _MEANS.items() if words & set(others.split())}
    words |= {meaning for term, meaning in _CHINESE.items() if term in text}
    return words | {"calculate"} if ARITHMETIC.search(text) else words


def _same(one: str, other: str) -> bool:
    if one == other:
        return True
    short, long = sorted((one, other), key=len)
    return (len(short) >= 4 and long.startswith(short)) or (len(short) >= 6 and short[:6] == long[:6])


# ---- thinking and planning tools -----------------------------------------------------------------


def steps(prompt: str) -> list[str]:
    """A small plan for a prompt."""
    topic = " ".join(_OPENING.sub("", prompt).split())[:80].rstrip(" .?!") or "the task"
    return [f"{STEPS[0]}: {topic}", *STEPS[1:]]


def _thought(tools: Sequence[Tool], prompt: str, called: Sequence[Call], total: int = THOUGHTS) -> Call | None:
    tool = next((tool for tool in tools if tool.thinks), None)
    if tool is None:
        return None
    number = sum(call.name == tool.name for call in called) + 1
    if number > total:
        return None
    camel = "nextThoughtNeeded" in as_object((tool.schema or {}).get("properties"))
    names = ("nextThoughtNeeded", "thoughtNumber", "totalThoughts") if camel else ("next_thought_needed", "thought_number", "total_thoughts")
    values = (number < total, number, total)
    return Call(tool.name, {"thought": f"{steps(prompt)[number - 1]}.", **dict(zip(names, values, strict=True))})


def _todo(tools: Sequence[Tool], prompt: str, called: Sequence[Call], *, done: bool) -> Call | None:
    """Write the list once at the start, and once with everything done."""
    tool = next((tool for tool in tools if tool.plans), None)
    if tool is None or sum(call.name == tool.name for call in called) > done:
        return None
    properties = as_object((tool.schema or {}).get("properties"))
    lists = {name: value for name, value in properties.items() if as_object(value).get("type") == "array"}
    arguments = dict(as_object(fill(tool, prompt).arguments))
    for name, value in list(lists.items())[:1]:
        arguments[name] = [_todo_item(as_object(value.get("items")), step, position, done=done) for position, step in enumerate(steps(prompt))]
    return Call(tool.name, arguments)


def _todo_item(schema: Mapping[str, Any], step: str, position: int, *, done: bool) -> Any:
    properties = {name: as_object(value) for name, value in as_object(schema.get("properties")).items()}
    if not properties:
        return step
    item: Json = {}
    for name, value in properties.items():
        if "status" in name:
            known = as_list(value.get("enum")) or ["pending", "in_progress", "completed"]
            wish = ("completed", "done") if done else ("in_progress",) if position == 0 else ("pending",)
            item[name] = next((status for status in known if status in wish), known[0])
        elif name == "id":
            item[name] = position + 1 if value.get("type") in ("integer", "number") else str(position + 1)
        elif value.get("type", "string") == "string" and "enum" not in value:
            item[name] = step
        elif name in as_list(schema.get("required")):
            item[name] = Filler(value, step).value()
    return item
