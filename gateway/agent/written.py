"""JSON as models write it inside other text: where it ends, and what it says although it is not quite JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from gateway.chat import loads

LONGEST = 100_000
"""characters of a text that is repaired; a longer one must be JSON"""
_PASSES = 8
"""how often a text is gone through in the search for objects"""
_PAIRS = {"{": "}", "[": "]"}
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\S\n]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_BEFORE_VALUE = "{[,:"
_AFTER_VALUE = ",:}]"
_MATTERS = re.compile(r"""["'{}\[\]]""")
_IN_STRING = {quote: re.compile(rf"[{quote}\\]") for quote in "\"'"}
_REST = re.compile(r"\s*(.?)", re.DOTALL)


def fences(text: str) -> list[tuple[str, str]]:
    """The fenced blocks of a text: (language, content). One that is not closed goes to the end."""
    return [(found[2].lower(), found[3]) for found in _FENCE.finditer(text)]


def after_thinking(text: str) -> int:
    """Where the reply begins behind a thought in tags: nothing in there is meant to be done."""
    return text.rfind("</think>") + len("</think>") if "</think>" in text else 0


def end_of(text: str, start: int) -> int | None:
    """Where the object or array ends that begins at `start`; None: the text ends before, or the brackets do not match.

    Brackets inside strings do not count, and strings may be in single quotes.
    """
    open_: list[str] = []
    found = _MATTERS.search(text, start)
    while found is not None:
        place, char = found.start(), found[0]
        if char in _PAIRS:
            open_.append(_PAIRS[char])
        elif char in "}]":
            if not open_ or open_.pop() != char:
                return None
            if not open_:
                return place + 1
        elif char == '"' or _last(text, start, place) in _BEFORE_VALUE:
            closed = _string_end(text, place)
            if closed is None:
                return None
            place = closed - 1
        found = _MATTERS.search(text, place + 1)
    return None


def value_of(text: str) -> Any:
    """What a text says that is JSON, or nearly (single quotes, trailing commas, comments, Python's words). ValueError if it is neither."""
    try:
        return loads(text)
    except ValueError:
        if len(text) > LONGEST:
            raise
        from json_repair import loads as repaired  # 50 ms, and seldom needed

        try:
            value = repaired(text, skip_json_loads=True)
        except RecursionError:
            raise ValueError("the JSON is nested too deeply") from None
        if value in ("", None) or (value in ({}, []) and len(re.sub(r"\s", "", text)) > 2):
            raise  # nothing could be made of it
        return value


def objects(text: str) -> Iterator[dict[str, Any]]:
    """Every JSON object in a text, outermost only, in order; not all where looking for them takes too long."""
    place, left = text.find("{"), _PASSES * len(text)
    while place >= 0 and left > 0:
        end = end_of(text, place)
        left -= (end if end is not None else len(text)) - place
        value = None
        if end is not None:
            try:
                value = value_of(text[place:end])
            except ValueError:
                pass
        if isinstance(value, dict):
            yield value
            place = text.find("{", end)
        else:
            place = text.find("{", place + 1)


def _last(text: str, start: int, place: int) -> str:
    """The last character before `place` that is no white space."""
    place -= 1
    while place > start and text[place].isspace():
        place -= 1
    return text[place]


def _string_end(text: str, place: int) -> int | None:
    """Behind the closing quote. A single quote closes only where a value may end: `'it's'` is one string."""
    quote, place = text[place], place + 1
    marks = _IN_STRING[quote]
    found = marks.search(text, place)
    while found is not None:
        place = found.start()
        if found[0] == quote and (quote == '"' or _ends_value(text, place + 1)):
            return place + 1
        found = marks.search(text, place + (2 if found[0] == "\\" else 1))
    return None


def _ends_value(text: str, place: int) -> bool:
    found = _REST.match(text, place)
    return found is not None and found[1] in _AFTER_VALUE and found[1] != ""
