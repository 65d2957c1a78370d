"""What docs/providers.md says of the adapter files: their data as tables, their comments as the reasons."""

from __future__ import annotations

import io
import json
import re
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.adapters import HOOKS, Adapter
from gateway.adapters.settings import COMMON_OPTIONS
from gateway.adapters.thinking import LEVELS

COLUMNS = (
    *("adapter", "base URL", "key variable", "dialect", "thinking off", "thinking on", "levels"),
    *("reasoning in the history", "parameters", "tools", "hooks"),
)
MODEL_COLUMNS = ("models", "thinking off", "thinking on", "levels", "unasked", "reasoning in the history", "parameters", "tools")

_TOOLS = ("forced_tool_choice_while_thinking", "bridge_after_tool", "repair_arguments")
_REASONING = ("think_tags", "thought_signature", "completion_excludes_reasoning")
_NONE = "&nbsp;"


# ---- the tables -----------------------------------------------------------------------------------------------


def overview(adapter: Adapter) -> list[str]:
    """The cells of COLUMNS for one adapter."""
    differs = adapter.thinking is None and any("thinking" in section for section in adapter.models)
    rule = ("by model", "by model", "by model", "") if differs else thinking(adapter.thinking)
    refused = refuses(adapter.thinking)
    return [
        f"[{adapter.name}](#{adapter.name})",
        f"`{adapter.base_url}`" if adapter.base_url else _NONE,
        f"`{adapter.env}`" if adapter.env else _NONE,
        adapter.dialect if adapter.framing == "sse" else f"{adapter.dialect} ({adapter.framing})",
        *(cell(part) for part in rule[:3]),
        *options(adapter.options, refused),
        cell(", ".join(f"`{name}`" for name in HOOKS if name in adapter.hooks)),
    ]


def by_model(adapter: Adapter) -> Iterator[list[str]]:
    """The cells of MODEL_COLUMNS for each section of an adapter's models; the rule as it holds there, the options that differ."""
    for section in adapter.models:
        match = section.get("match", "*")
        names = ", ".join(f"`{glob}`" for glob in ((match,) if isinstance(match, str) else match))
        host = f" at `{section['host']}`" if section.get("host") else ""
        over = section.get("thinking")
        rule = None if over is False else {**(adapter.thinking or {}), **(over or {})} or None
        yield [f"{names}{host}", *(cell(part) for part in thinking(rule)), *options(section.get("options") or {}, refuses(rule))]


def thinking(rule: Mapping[str, Any] | None) -> tuple[str, str, str, str]:
    """How a rule turns thinking off and on, its levels, and what holds when nobody asks."""
    if not rule:
        return "as it came", "as it came", "as it came", ""
    off, on = rule.get("off"), rule.get("on", "omit")
    if on == "off":
        return "the fields are removed", "cannot think", "", "off"
    effort = rule.get("effort")
    said_off = (
        f"{'at the least: ' if rule.get('always') else ''}{fields(off)}" if isinstance(off, Mapping) else "no field" if off == "omit" else f"cannot be: `{off}`"
    )
    said_on = fields(on) if isinstance(on, Mapping) else "no field" if on == "omit" else f"`{on}`"
    if rule.get("on_level"):
        said_on += f" at `{rule['on_level']}`"
    unasked = str(rule.get("default") or "on")
    if rule.get("with_tools"):
        unasked += f"; with tools always {rule['with_tools']}"
    return said_off, said_on, levels(effort, rule.get("levels")) if effort else "", unasked


def levels(effort: str, known: Mapping[str, Any] | None) -> str:
    """`reasoning_effort`: minimal as `low`, low, medium."""
    words = []
    for level in LEVELS:
        if known is None or level in known:
            value = level if known is None else known[level]
            if isinstance(value, Mapping) and list(value) == [effort]:  # this field and no other
                value = value[effort]
            words.append(level if value == level else f"{level} as {fields(value) if isinstance(value, Mapping) else f'`{value}`'}")
    return f"`{effort}`: {', '.join(words)}"


def fields(value: Mapping[str, Any], at: str = "") -> str:
    """`thinking.type = "disabled"`, one for each leaf."""
    return ", ".join(_leaves(value, at))


def _leaves(value: Mapping[str, Any], at: str) -> Iterator[str]:
    for key in sorted(value):
        inner = value[key]
        if isinstance(inner, Mapping) and inner:
            yield from _leaves(inner, f"{at}{key}.")
        else:
            yield f"`{at}{key} = {text_of(inner)}`"


def refuses(rule: Mapping[str, Any] | None) -> list[str]:
    """What else a rule does to the parameters."""
    if not rule:
        return []
    said = []
    for key, words in (("refuses", "not while it thinks"), ("drop", "never sent")):
        if rule.get(key):
            said.append(f"{words}: {', '.join(f'`{name}`' for name in rule[key])}")
    if rule.get("room"):
        said.append(f"`{rule['room']}` makes room for the thinking")
    return said


def options(values: Mapping[str, Any], more: list[str]) -> list[str]:
    """Three cells: reasoning, parameters, tools. Options that only this adapter has stand with the parameters."""
    reasoning, tools, parameters = [], [], list(more)
    for name in sorted(values):
        shown = f"`{name}: {text_of(values[name])}`"
        if name.startswith("reasoning") or name in _REASONING:
            reasoning.append(shown)
        elif name.startswith("tool_") or name in _TOOLS:
            tools.append(shown)
        else:
            parameters.append(shown if name in COMMON_OPTIONS else f"own option {shown}")
    return [cell("<br>".join(part)) for part in (reasoning, parameters, tools)]


def text_of(value: Any) -> str:
    """A value as a config would have it, on one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {text_of(value[key])}' for key in sorted(value))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(text_of, value))}]"
    return value if isinstance(value, str) and value else json.dumps(value)


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("&lt;br>", "<br>") or _NONE


def table(columns: tuple[str, ...], rows: list[list[str]]) -> list[str]:
    """The lines of a table; columns that are empty in every row are left out."""
    used = [at for at, _ in enumerate(columns) if at == 0 or any(row[at] != _NONE for row in rows)]
    lines = [[columns[at] for at in used], ["---"] * len(used), *([row[at] for at in used] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


# ---- the reasons ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reason:
    """A comment, and what it is about: the name of a setting, a hook or a helper, or models; empty where nothing says it."""

    about: str
    text: str


def reasons(path: Path) -> tuple[str, list[Reason]]:
    """What stands at the head of an adapter file, and its comments in order."""
    text = path.read_text(encoding="utf-8")
    comments = list(_lua_comments(text) if path.suffix == ".lua" else _python_comments(text))
    lines = text.split("\n")
    head: list[str] = []
    found: list[Reason] = []
    at = 0
    while at < len(comments):
        number, said, alone = comments[at]
        block, last = [said], number
        while alone and at + 1 < len(comments) and comments[at + 1][0] == last + 1 and comments[at + 1][2]:
            at, last = at + 1, last + 1
            block.append(comments[at][1])
        at += 1
        if number == 1 and alone:
            head = block
        else:
            found.append(Reason(_subject(lines, last + 1 if alone else number, path.suffix), " ".join(block)))
    if path.suffix == ".py":
        head = [" ".join(part.split()) for part in _docstring(text).split("\n\n")]
    return "\n\n".join(head) if path.suffix == ".py" else " ".join(head), found


def _lua_comments(text: str) -> Iterator[tuple[int, str, bool]]:
    """Line number, text, and whether it has its line to itself."""
    for number, line in enumerate(text.split("\n"), start=1):
        code = re.match(r"""(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|(?!--).)*""", line)
        rest = line[code.end() :] if code else line
        if rest.startswith("--"):
            yield number, rest.lstrip("-").strip(), not line[: -len(rest)].strip()


def _python_comments(text: str) -> Iterator[tuple[int, str, bool]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("# noqa"):
            yield token.start[0], token.string.lstrip("#").strip(), not token.line[: token.start[1]].strip()


def _docstring(text: str) -> str:
    found = re.match(r'"""(.*?)"""', text, re.DOTALL)
    return found[1].strip() if found else ""


_FUNCTION = (
    re.compile(r"^\s*(?:local\s+)?(?:function|def)\s+(?:adapter\.)?(\w+)"),
    re.compile(r"^\s*(?:local\s+)?(?:adapter\.)?(\w+)\s*=\s*function"),
)
_NAMES = r"""\s*[{\[]?\s*((?:["'][^"']+["'](?!\s*:)(?:\s*,\s*)?)+)"""
_MATCH = re.compile(r"""match["']?\]?\s*[=:]""" + _NAMES)
_SECTION = re.compile(r"\b_?section\(" + _NAMES)
_KEY = re.compile(r"""^\s*(?:local\s+)?(?:adapter\.)?\[?["']?([A-Za-z_][\w.]*)["']?\]?\s*[=:](?!=)""")
_CODE = re.compile(r"^\s*(?:if|for|while|return|elif|else|end)\b")


def _subject(lines: list[str], number: int, suffix: str) -> str:
    """What the line of code is about; inside a function, the function."""
    line = lines[number - 1] if number <= len(lines) else ""
    for pattern in (_MATCH, _SECTION):
        if found := pattern.search(line):
            return _globs(found[1])
    for pattern in _FUNCTION:
        if found := pattern.search(line):
            return f"`{found[1]}`"
    if inside := _function_around(lines, number, suffix):
        return f"`{inside}`"
    found = _KEY.search(line)
    return _models_around(lines, number) or (f"`{found[1]}`" if found and not _CODE.match(line) else "")


def _function_around(lines: list[str], number: int, suffix: str) -> str:
    """The function whose body holds the line; its first line is indented less."""
    line = lines[number - 1] if number <= len(lines) else ""
    indent = _indent(line)
    for earlier in reversed(lines[: number - 1]):
        if earlier.strip() and _indent(earlier) < indent:
            indent = _indent(earlier)
            for pattern in _FUNCTION:
                if found := pattern.search(earlier):
                    return found[1] if " end" not in earlier or suffix == ".py" else ""
    return ""


def _models_around(lines: list[str], number: int) -> str:
    """The models whose section of several lines holds the line, or begins with it."""
    line = lines[number - 1] if number <= len(lines) else ""
    inside = _indent(line) + (2 if line.strip() == "{" else 0)
    for side in (lines[number : number + 2], reversed(lines[: number - 1])):
        for other in side:
            found = _MATCH.search(other)
            if found and _indent(other) == inside and other.lstrip().startswith(("match", '"match"')):
                return _globs(found[1])
            if other.strip() and _indent(other) < inside:
                break
    return ""


def _globs(text: str) -> str:
    return ", ".join(f"`{glob}`" for glob in re.findall(r"""["']([^"']+)["']""", text))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
