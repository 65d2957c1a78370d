"""A plan as a list of steps (H34), and what a critic says of one (P15)."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gateway.agent.written import LONGEST, end_of, fences, objects, value_of
from gateway.chat import loads

EMPTY = "the plan has no steps"
UNREADABLE = "no list of steps can be found in the plan"

_QUOTED = re.compile(r'"((?:\\.|[^"\\\n])+)"|\'((?:\\.|[^\'\\\n])+)\'')
_NUMBERED = re.compile(r"^[ \t]*(?:[*_]{0,2}(?:step|步骤|第)[ \t]*)?(\d{1,3})[ \t]*(?:步|[.):：、])[*_]{0,2}[:：]?[ \t]*(\S.*)$", re.IGNORECASE | re.MULTILINE)
_NUMBER = re.compile(r"(?:step|步骤)?[\s_-]*\d{1,3}", re.IGNORECASE)
_PLANS = ("steps", "plan", "tasks")
_STEPS = ("step", "description", "task", "title", "content", "action", "name")
_OPEN = re.compile(r"[\[{]")
_PASSES = 4
"""how often a text is gone through in the search for lists"""


class PlanUnreadable(ValueError):
    """There is no plan: EMPTY, or UNREADABLE."""


def plan(text: str) -> list[str]:
    """The steps of a plan. PlanUnreadable where there are none; a text is never taken for a plan of one step.

    Fenced blocks come first, then lists in the text, each read as JSON or a Python list; then
    quoted strings in a block or list that cannot be read; then lines that are numbered from 1.
    """
    if not text.strip():
        raise PlanUnreadable(EMPTY)
    blocks = [content.strip() for _, content in fences(text)]
    empty, unread = False, []
    for place in [*blocks, *_brackets(text)]:
        value = _value(place)
        steps = _steps(value)
        if steps:
            return steps
        empty = empty or steps == []
        if (value is None or isinstance(value, str)) and not place.startswith("{"):
            unread.append(place)
    if empty:
        raise PlanUnreadable(EMPTY)
    for place in unread:
        quoted = [] if _numbered(place) else [_text(found) for found in _QUOTED.finditer(place[:LONGEST])]
        if any(quoted):
            return [step for step in quoted if step]
    for place in [*blocks, text]:
        steps = _numbered(place)
        if steps:
            return steps
    raise PlanUnreadable(UNREADABLE)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a critic says: whether the plan is valid, what is wrong with it, and a better plan where it gave one."""

    valid: bool
    issue: str = ""
    plan: str | None = None


def verdict(text: str) -> Verdict | None:
    """The JSON object `{"valid", "issue", "plan"}` anywhere in a text, the last one. None: there is none, whatever else the text says (P24)."""
    found = None
    for outer in objects(text[-LONGEST:]):
        value = next((inner for inner in (outer.get("verdict"), outer.get("review")) if isinstance(inner, dict)), outer)
        valid = next((value[key] for key in ("valid", "is_valid", "approved") if key in value), None)
        said = {"true": True, "yes": True, "false": False, "no": False}.get(valid.strip().lower()) if isinstance(valid, str) else valid
        if isinstance(said, bool):
            found = Verdict(
                said,
                _joined(next((value[key] for key in ("issue", "issues", "reason", "feedback") if value.get(key)), ""), "; "),
                _plan_text(value.get("plan")),
            )
    return found


def _plan_text(value: Any) -> str | None:
    steps = _steps(value)
    if steps and not isinstance(value, str):
        return "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))
    return value.strip() or None if isinstance(value, str) else None


def _joined(value: Any, between: str) -> str:
    if isinstance(value, list):
        return between.join(str(one) for one in value if one)
    return value.strip() if isinstance(value, str) else "" if value is None else str(value)


def _brackets(text: str) -> Iterator[str]:
    """Lists and objects in a text, outermost only; the last one may be cut off."""
    place, left = 0, _PASSES * len(text)
    while left > 0:
        found = _OPEN.search(text, place)
        if found is None:
            return
        end = end_of(text, found.start())
        left -= (end if end is not None else len(text)) - found.start()
        if end is None:
            place = found.start() + 1
        else:
            yield text[found.start() : end]
            place = end


def _value(text: str) -> Any:
    """JSON, a Python literal, or an object that is nearly JSON; None if it is none of them."""
    try:
        return loads(text)
    except ValueError:
        pass
    if len(text) <= LONGEST:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # "\d" in a text is no concern of ours
                return ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            pass
    if text.startswith("{") and end_of(text, 0) == len(text):
        try:
            return value_of(text)
        except ValueError:
            pass
    return None


def _steps(value: Any) -> list[str] | None:
    """The texts of a list of steps; None if it is no such list."""
    if isinstance(value, dict):
        inner = next((value[key] for key in _PLANS if isinstance(value.get(key), list | dict)), None)
        if inner is None and value and all(_NUMBER.fullmatch(str(key)) for key in value):
            inner = list(value.values())  # {"step 1": "...", "step 2": "..."}
        return None if inner is None else _steps(inner)
    if not isinstance(value, list | tuple):
        return None
    steps = [_step(one) for one in value]
    return None if any(step is None for step in steps) else [step for step in steps if step]


def _step(value: Any) -> str | None:
    if isinstance(value, dict):
        value = next((value[key] for key in _STEPS if isinstance(value.get(key), str)), None)
    return value.strip() if isinstance(value, str) else None


def _text(found: re.Match[str]) -> str:
    inner = found[1] if found[1] is not None else found[2]
    return re.sub(r"\\(.)", r"\1", inner).strip()


def _numbered(text: str) -> list[str]:
    """The lines that are numbered 1, 2, 3 ...; a single one is no plan."""
    steps: list[str] = []
    for found in _NUMBERED.finditer(text):
        if int(found[1]) == len(steps) + 1:
            steps.append(found[2].strip().strip("*").strip())
    return steps if len(steps) > 1 else []
