"""The helpers that hooks in both languages have by name.

    null                    JSON's null (in Python: None)
    array(...)              a list, also when it is empty
    is_array(value)
    has_tools(body)         whether tools are offered
    each_assistant(body, f) f(message) for every assistant turn; with fields instead of f:
                            gives every assistant turn those that it lacks; with neither: iterates
    hoist(body, name)       moves the fields of body[name] to the top, where a field of the same name wins
    think_splitter(open, close, inside)  splits a streamed text into thought and answer
    deep_copy(value)

`body` may be left out: it is then what the hook was called with. In Lua they are part of
views.lua; here are those for Python, and what both share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gateway.adapters.hooks import Context
from gateway.chat import Json


class Splitter:
    """Splits a streamed text at two tags: what is between them is thought.

    Both methods give (thought, answer). Any way of cutting the same text into pieces gives
    the same two texts: the longest end of what came that could be the start of the awaited
    tag is held back until the next piece decides.
    """

    __slots__ = ("_held", "_inside", "_tags")

    def __init__(self, start: str = "<think>", end: str = "</think>", inside: bool = False) -> None:
        if not start or not end:
            raise ValueError("think_splitter needs two tags")
        self._tags = (start, end)
        self._inside = inside
        self._held = ""

    def feed(self, text: str | None) -> tuple[str, str]:
        """The parts of the text so far that are sure."""
        parts: tuple[list[str], list[str]] = ([], [])
        rest = self._held + (text or "")
        while True:
            tag = self._tags[self._inside]
            before, found, after = rest.partition(tag)
            if not found:
                break
            parts[self._inside].append(before)
            self._inside, rest = not self._inside, after
        keep = _overlap(rest, tag)
        parts[self._inside].append(rest[: len(rest) - keep])
        self._held = rest[len(rest) - keep :]
        return "".join(parts[1]), "".join(parts[0])

    def finish(self) -> tuple[str, str]:
        """What was held back at the end of the text."""
        held, self._held = self._held, ""
        return (held, "") if self._inside else ("", held)


def _overlap(text: str, tag: str) -> int:
    """The length of the longest end of the text that is a start of the tag, and not all of it."""
    for size in range(min(len(tag) - 1, len(text)), 0, -1):
        if text.endswith(tag[:size]):
            return size
    return 0


def copy(value: Any) -> Any:
    """A JSON value with objects and lists of its own."""
    if type(value) is dict:
        return {key: copy(item) if type(item) in _CONTAINERS else item for key, item in value.items()}
    if type(value) is list:
        return [copy(item) if type(item) in _CONTAINERS else item for item in value]
    return value


_CONTAINERS = (dict, list)


def fill(messages: list[Any], key: str, value: Any) -> int:
    """Give every assistant turn this field where it is missing or null; how many got it."""
    filled = 0
    for message in messages:
        if type(message) is dict and message.get("role") == "assistant" and message.get(key) is None:
            message[key] = value
            filled += 1
    return filled


def backfill(keys: Iterable[str], filled: int) -> str:
    """The note of an each_assistant that filled fields."""
    return f"{'reasoning_' if any(key.startswith('reasoning') for key in keys) else ''}backfill={filled}"


class Here:
    """The helpers of one Python file; `body` and `ctx` are those of the hook that runs."""

    __slots__ = ("body", "ctx")

    def __init__(self) -> None:
        self.body: Any = None
        self.ctx: Context | None = None

    def names(self) -> dict[str, Any]:
        """What the file finds among its globals."""
        return {
            "null": None,
            "array": _array,
            "is_array": lambda value: isinstance(value, (list, tuple)),
            "has_tools": lambda body=None: bool(self._body(body).get("tools")),
            "each_assistant": self.each_assistant,
            "hoist": self.hoist,
            "think_splitter": Splitter,
            "deep_copy": copy,
        }

    def _body(self, body: Any) -> Json:
        chosen = self.body if body is None else body
        if not isinstance(chosen, dict):
            raise TypeError(f"the request body expected, got {type(chosen).__name__}")
        return chosen

    def each_assistant(self, body: Any = None, what: Any = None) -> Any:
        """Call, fill or iterate, as the module says."""
        if callable(body):
            body, what = None, body
        messages = self._body(body).get("messages")
        if not isinstance(messages, list):
            messages = []
        if isinstance(what, Mapping):
            filled = sum(fill(messages, key, value) for key, value in what.items())
            if filled:
                self._note(backfill(what, filled))
            return filled
        turns = [message for message in messages if type(message) is dict and message.get("role") == "assistant"]
        if what is None:
            return iter(turns)
        for message in turns:
            what(message)
        return len(turns)

    def hoist(self, body: Any = None, name: str | None = None) -> int:
        """How many fields went to the top."""
        if isinstance(body, str) and name is None:
            body, name = None, body
        body, key = self._body(body), str(name)
        inner = body.get(key)
        if not isinstance(inner, dict):
            return 0
        if body.get(key) is inner:
            del body[key]
        moved = {field: value for field, value in inner.items() if field not in body}
        body.update(moved)
        self._note(f"hoist_{key}")
        return len(moved)

    def _note(self, text: str) -> None:
        if self.ctx is not None:
            self.ctx.note(f"{self.ctx.source}.{text}")


def _array(*items: Any) -> list[Any]:
    if len(items) == 1 and isinstance(items[0], (list, tuple, Iterator)):
        return list(items[0])
    return list(items)
