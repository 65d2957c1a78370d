"""What a docstring says about a function and each of its arguments: Google's, NumPy's and Sphinx's way of writing them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence

_GOOGLE = re.compile(r"(?:Args|Arguments|Parameters|Params|参数)\s*[:：]\s*", re.IGNORECASE)
_GOOGLE_ITEM = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*[:：]\s*(.*)")
_SPHINX = re.compile(r":(?:param|parameter|arg|argument)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)")
_SPHINX_TYPE = re.compile(r":(?:type\s+\w+|rtype)\s*:")
_NUMPY_ITEM = re.compile(r"\*{0,2}(\w+)\s*(?::.*)?")
_RULE = re.compile(r"-{3,}\s*")


def parse(text: str | None) -> tuple[str, dict[str, str]]:
    """(what it does, {argument: what it is}). The first is the docstring without the lines about arguments."""
    lines = inspect.cleandoc(text or "").split("\n")
    about: dict[str, str] = {}
    kept: list[str] = []
    place = 0
    while place < len(lines):
        line = lines[place]
        if _GOOGLE.fullmatch(line):
            place = _google(lines, place + 1, about)
        elif line.strip() == "Parameters" and place + 1 < len(lines) and _RULE.fullmatch(lines[place + 1]):
            place = _numpy(lines, place + 2, about)
        elif found := _SPHINX.match(line):
            place = _more(lines, place + 1, 1, about, found[1], found[2])
        elif _SPHINX_TYPE.match(line):
            place += 1
        else:
            kept.append(line)
            place += 1
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip(), {name: " ".join(words.split()) for name, words in about.items() if words.strip()}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _more(lines: Sequence[str], place: int, least: int, about: dict[str, str], name: str, first: str) -> int:
    """Take the lines that go on with an argument: those that stand `least` columns in or more."""
    words = [first]
    while place < len(lines) and lines[place].strip() and _indent(lines[place]) >= least:
        words.append(lines[place].strip())
        place += 1
    about[name] = " ".join(words)
    return place


def _google(lines: Sequence[str], place: int, about: dict[str, str]) -> int:
    while place < len(lines) and (not lines[place].strip() or _indent(lines[place])):
        found = _GOOGLE_ITEM.fullmatch(lines[place].strip())
        if found:
            place = _more(lines, place + 1, _indent(lines[place]) + 1, about, found[1], found[2])
        else:
            place += 1
    return place


def _numpy(lines: Sequence[str], place: int, about: dict[str, str]) -> int:
    while place < len(lines):
        line = lines[place]
        if place + 1 < len(lines) and _RULE.fullmatch(lines[place + 1]) and line.strip():
            break  # the next section
        found = _NUMPY_ITEM.fullmatch(line) if line.strip() and not _indent(line) else None
        if found:
            place = _more(lines, place + 1, 1, about, found[1], "")
        else:
            place += 1
    return place
