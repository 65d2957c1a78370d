"""The host's side of views.lua: the values of one call under numbers, read row by row, changed by a list of changes.

Everything here is called from Lua, so nothing may raise and only None, booleans, 64-bit
integers, floats and strings may go back: an object that crossed would bring its attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gateway.adapters.helpers import Splitter, backfill, copy, fill
from gateway.adapters.hooks import Context, thaw

NULL, OBJECT, BIG, LATER, HANDLE = 0, -1, -2, -3, -4
"""Marks of the values that do not go over as they are; a list is 1 + its length."""

_PUT, _DROP, _PLACE, _RESET, _ADD, _ADD_NODE, _NEW_OBJECT, _NEW_LIST, _TWIN, _TEXT = range(1, 11)

_PLACES = (_PLACE, _ADD_NODE)

_LONG = 1024  # characters; a longer text of an object goes over when it is read
_MANY = 500  # fields of at most _LONG characters that surely fit: budget.lua keeps that much in reserve
_MIN, _MAX = -(2**63), 2**63 - 1


_NOBODY = Context()


class Document:
    """The values that one call of a hook can see."""

    __slots__ = ("ctx", "nodes", "roots")

    def __init__(self) -> None:
        self.begin(_NOBODY)

    def begin(self, ctx: Context) -> None:
        """Forget the last call's values."""
        self.nodes: list[Any] = [None]
        self.roots: list[tuple[str, Any]] = []
        self.ctx = ctx

    def end(self) -> None:
        """Let go of the call's values."""
        self.begin(_NOBODY)

    def grown(self, changes: Sequence[Any], limit: int) -> bool:
        """Whether `ctx.state` holds more than `limit` bytes, which it then no longer does.

        It is weighed only when half of that was written since the last time, so that a long
        stream whose chunks touch the state pays next to nothing.
        """
        state = self.ctx.state
        if not any(root is state for _, root in self.roots):
            return False
        self.ctx.held += sum(len(value) if type(value) is str else 8 for value in changes[3::4])
        if self.ctx.held <= limit // 2:
            return False
        self.ctx.held = 0
        if _weigh(state)[1] <= limit:
            return False
        state.clear()
        return True

    def root(self, name: str, value: Any) -> int:
        """Make a value visible; gives its mark. Scalars are not kept."""
        mark = _mark(value)
        if mark != NULL:
            self.nodes.append(value)
            self.roots.append((name, value))
        return mark

    def functions(self) -> dict[str, Callable[..., Any]]:
        """What Lua may call."""
        return {
            "fetch": self.fetch,
            "fetch_list": self.fetch_list,
            "text": self.text,
            "where": self.where,
            "roles": self.roles,
            "fill": self.fill,
            "twin": self.twin,
            "weigh": self.weigh,
            "text_size": self.text_size,
            "digits": self.digits,
            "compare": self.compare,
            "state": lambda: self.root("ctx.state", self.ctx.state),
            "options": lambda: self.root("ctx.options", thaw(self.ctx.options)),
            "context": self.context,
            "force_stream": self.force_stream,
            "warn": lambda text: self.ctx.warn(text),
            "log": lambda text: self.ctx.log(text),
            "hoisted": lambda name: self.ctx.note(f"{self.ctx.source}.hoist_{name}"),
            "filled": lambda key, count: self.ctx.note(f"{self.ctx.source}.{backfill((key,), count)}"),
            "splitter": self.splitter,
            "is_splitter": lambda number: type(self.nodes[number]) is Splitter,
            "feed": lambda number, text: self.nodes[number].feed(text),
            "flush": lambda number: self.nodes[number].finish(),
        }

    # ---- reading ----

    def fetch(self, room: int, *numbers: int) -> tuple[Any, ...] | None:
        """The rows of some objects, one after the other (views.lua says what a row is); None: they do not fit in `room` bytes."""
        nodes = self.nodes
        rows: list[Any] = []
        fields = 0
        for number in numbers:
            node = nodes[number]
            fields += len(node)
            if fields > _MANY and _weight(node) * len(numbers) > room:
                return None
            self._add_row(rows, node)
        return tuple(rows)

    def _add_row(self, rows: list[Any], node: dict[str, Any]) -> None:
        head = len(rows)
        rows += (0, len(node))
        marks: list[int] = []
        numbers = 0
        for key, value in node.items():
            kind = type(value)
            if kind is str:
                if len(value) <= _LONG:
                    rows += (key, value)
                    continue
                marks.append(LATER)
            elif kind is bool:
                rows += (key, value)
                continue
            elif kind is float or (kind is int and _MIN <= value <= _MAX):
                numbers = 1
                rows += (key, value)
                continue
            elif value is None:
                marks.append(NULL)
            else:
                marks.append(_mark(value))
                self.nodes.append(value)
            rows += (key, None)
        if marks:
            rows[head] = 2 * len(marks) + numbers
            rows[head + 2 : head + 2] = marks
        else:
            rows[head] = numbers

    def fetch_list(self, room: int, number: int) -> tuple[Any, ...] | int | None:
        """The row of a list; None: it does not fit in `room` bytes."""
        nodes = self.nodes
        node = nodes[number]
        if node and set(map(type, node)) == {dict}:
            if len(node) * 200 > room:
                return None
            nodes += node
            return -1 - len(node)
        if sum(len(value) * 4 + 200 if type(value) is str else 200 for value in node) > room:
            return None
        values: list[Any] = []
        marks: list[int] = []
        numbers = 0
        for value in node:
            mark = _mark(value)
            kind = type(value)
            if mark != NULL:
                marks.append(mark)
                nodes.append(value)
                values.append(None)
            elif value is None:
                marks.append(NULL)
                values.append(None)
            else:
                if kind is int or kind is float:
                    numbers = 1
                values.append(value)
        return (2 * len(marks) + numbers, len(node), *marks, *values)

    def text(self, number: int, key: str, room: int) -> str | None:
        value: str = self.nodes[number][key]
        return value if len(value) * (1 if value.isascii() else 4) < room else None

    def roles(self, number: int, room: int) -> tuple[int, ...]:
        """The places (from 1) of the assistant's turns in a list of messages."""
        return tuple([i for i, message in enumerate(self.nodes[number], 1) if type(message) is dict and message.get("role") == "assistant"][: room // 32])

    def twin(self, number: int) -> int:
        """Copy an object or list into a new number; its mark."""
        twin = copy(self.nodes[number])
        self.nodes.append(twin)
        return _mark(twin)

    def weigh(self, number: int) -> tuple[int, int]:
        """Of how many values an object or list consists, and roughly of how many bytes."""
        return _weigh(self.nodes[number])

    def text_size(self, number: int, key: str) -> int:
        return len(self.nodes[number][key])

    def digits(self, number: int) -> str:
        value = self.nodes[number]
        return _digits(value) if type(value) is int else "a value of the gateway"

    def compare(self, left: int | float, left_here: bool, right: int | float, right_here: bool) -> int:
        a, b = (self.nodes[int(left)] if left_here else left), (self.nodes[int(right)] if right_here else right)
        if type(a) not in (int, float) or type(b) not in (int, float):
            return 0 if a is b else 1
        return (a > b) - (a < b)

    def where(self, number: int) -> str:
        """The path of a value, for messages: `messages[3].content`."""
        wanted = self.nodes[number]
        try:
            return next((path for name, root in self.roots if (path := _path_to(root, wanted, name)) is not None), "")
        except RecursionError:
            return ""

    def context(self) -> tuple[str, str, str, str, bool, int, str, bool]:
        ctx = self.ctx
        return ctx.provider, ctx.model, ctx.endpoint, ctx.dialect, ctx.stream, ctx.attempt, ctx.thinking, ctx.force_stream

    # ---- writing ----

    def force_stream(self, on: bool) -> None:
        self.ctx.force_stream = on

    def splitter(self, start: str, end: str, inside: bool) -> None:
        self.nodes.append(Splitter(start, end, inside))

    def fill(self, number: int, key: str, value: Any) -> int:
        return fill(self.nodes[number], key, value)

    def change(self, changes: Sequence[Any]) -> str | None:
        """Carry out what views.lua found to be different; what is wrong with it, or None."""
        nodes = self.nodes
        for at in range(0, len(changes), 4):
            op, target, key, value = changes[at : at + 4]
            if op == _PUT:
                nodes[target][key] = value
            elif op == _DROP:
                nodes[target].pop(key, None)
            elif op in _PLACES:
                node = nodes[value]
                if type(node) is Splitter and nodes[target] is not self.ctx.state:
                    return "a think_splitter can only be kept in a field of ctx.state"
                if op == _PLACE:
                    nodes[target][key] = node
                else:
                    nodes[target].append(node)
            elif op == _ADD:
                nodes[target].append(value)
            elif op == _RESET:
                nodes[target].clear()
            else:
                nodes.append(self._new(op, key, value))
        return None

    def _new(self, op: int, key: str, value: int) -> Any:
        if op == _NEW_OBJECT:
            return {}
        if op == _NEW_LIST:
            return []
        return copy(self.nodes[value]) if op == _TWIN else self.nodes[value][key]


def _mark(value: Any) -> int:
    """How a value goes over; NULL for what goes over as it is, and for null."""
    kind = type(value)
    if kind is dict:
        return OBJECT
    if kind is list:
        return len(value) + 1
    if kind is str or value is None or kind is bool or kind is float or (kind is int and _MIN <= value <= _MAX):
        return NULL
    return BIG if kind is int else HANDLE


def _weight(node: dict[str, Any]) -> int:
    """An upper bound of the bytes that a row takes in Lua."""
    return sum(len(key) * 4 + (len(value) * 4 if type(value) is str and len(value) <= _LONG else 0) + 64 for key, value in node.items())


def _weigh(value: Any) -> tuple[int, int]:
    values, size = 1, 8
    for item in value.values() if type(value) is dict else value:
        kind = type(item)
        if kind is dict or kind is list:
            inner, bytes_inside = _weigh(item)
            values, size = values + inner, size + bytes_inside
        else:
            values, size = values + 1, size + (len(item) if kind is str else 8)
    return values, size


def _digits(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # Python refuses to write out more than some thousand digits
        return "an integer of many digits"


def _path_to(value: Any, wanted: Any, path: str) -> str | None:
    if value is wanted:
        return path
    items: Any = value.items() if isinstance(value, Mapping) else enumerate(value, 1) if isinstance(value, list) else ()
    for key, inner in items:
        if isinstance(inner, (dict, list)):
            step = f"[{key}]" if isinstance(value, list) else f".{key}" if path else str(key)
            found = _path_to(inner, wanted, path + step)
            if found is not None:
                return found
    return None
