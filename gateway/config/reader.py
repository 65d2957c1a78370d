"""YAML text -> a tree of nodes that know their place; scalars stay text.

The tree is built from the parser's events, not from its constructor: which type a scalar
has is for the setting to say that it stands under, so that `thinking: off` is a word and
`017` or `12:30:45` are never silently numbers, as YAML 1.1 would have them. Anchors,
aliases, merge keys, tags and second documents are refused, which also leaves nothing that
could expand into more than the file holds.

`${NAME}` and `${NAME:-default}` are replaced inside single scalars, after parsing, so that
no value of a variable can change the structure of the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from gateway.config.values import MIB, render
from gateway.errors import ConfigError, Fault

MAX_BYTES = 4 * MIB
MAX_DEPTH = 32
NULLS = ("", "~", "null", "Null", "NULL")


@dataclass(frozen=True, slots=True)
class Node:
    """A scalar, a list or a map of the file.

    `kind` is `text`, `list` or `map`, or `faulty` where a fault has been reported already;
    `line` and `column` count from 1; in a map, a list, a map and null stand at their
    key, a scalar at itself. `plain`: a scalar without quotes. `hidden`: its text
    came from the environment and is never shown.
    """

    kind: str
    line: int
    column: int
    text: str = ""
    plain: bool = False
    hidden: bool = False
    items: tuple[Node, ...] = ()
    entries: Mapping[str, Entry] = field(default_factory=dict)

    @property
    def null(self) -> bool:
        """Nothing is given here: YAML's null, or a variable whose value is empty."""
        return self.kind == "text" and ((self.plain and not self.hidden and self.text in NULLS) or (self.hidden and self.text == ""))


@dataclass(frozen=True, slots=True)
class Entry:
    """One `key: value` of a map, with the key's place."""

    key: str
    line: int
    column: int
    value: Node


def decode(raw: bytes, file: str) -> str:
    """The text of a config file; ConfigError if it is too large or not UTF-8."""
    if len(raw) > MAX_BYTES:
        raise ConfigError([Fault("", f"the file is larger than {MAX_BYTES // MIB} MiB", 1, 1)], file)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        good = raw[: error.start].decode("utf-8-sig")
        line, column = good.count("\n") + 1, len(good) - good.rfind("\n")
        raise ConfigError([Fault("", "the file is not UTF-8 text", line, column)], file) from None


def read(text: str, env: Mapping[str, str], faults: list[Fault], file: str) -> Node:
    """The root map of a config text. Faults that leave a tree are added to `faults`; ConfigError where there is none."""
    if len(text) > MAX_BYTES:
        raise ConfigError([Fault("", f"the file is larger than {MAX_BYTES // MIB} MiB", 1, 1)], file)
    reader = _Reader(text, env, faults)
    try:
        root = reader.root()
    except _Unreadable as error:
        raise ConfigError([*faults, error.fault], file) from None
    if root is None or root.null:
        faults.append(Fault("", "the file is empty; `thinkgate init` writes a first config", 1, 1))
    elif root.kind != "map":
        faults.append(Fault("", f"a config is a map of settings, this is a {root.kind}", root.line, root.column))
    else:
        return root
    raise ConfigError(faults, file)


class _Unreadable(Exception):
    def __init__(self, message: str, line: int, column: int, path: str = "") -> None:
        super().__init__(message)
        self.fault = Fault(path, message, line, column)


class _Reader:
    def __init__(self, text: str, env: Mapping[str, str], faults: list[Fault]) -> None:
        self.text = text
        self.env = env
        self.faults = faults
        self.events = self._events()

    def root(self) -> Node | None:
        root = None
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent) and root is not None:
                raise _Unreadable("a second document begins here; a config is one document", *_place(event))
            if isinstance(event, yaml.NodeEvent):
                root = self._node(event, ())
        return root

    def _events(self) -> Iterator[Any]:
        place = 1, 1
        try:
            for event in yaml.parse(self.text, Loader=yaml.SafeLoader):
                place = _place(event)
                yield event
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else place
            raise _Unreadable(_problem(error, self._line(line)), line, column) from None
        except yaml.reader.ReaderError as error:
            before = self.text[: error.position]
            raise _Unreadable(
                f"the character U+{_code(error.character):04X} may not stand in YAML", before.count("\n") + 1, len(before) - before.rfind("\n")
            ) from None
        except (ValueError, OverflowError):  # an escape such as "\UFFFFFFFF" that is no character
            raise _Unreadable("not valid YAML: an escape here names no character", *place) from None

    def _line(self, number: int) -> str:
        lines = self.text.splitlines()
        return lines[number - 1] if number <= len(lines) else ""

    def _node(self, event: Any, path: tuple[str | int, ...]) -> Node:
        """The node that begins with `event`; takes its events up to its end."""
        line, column = _place(event)
        if len(path) > MAX_DEPTH:
            raise _Unreadable(f"nested deeper than {MAX_DEPTH} levels", line, column)
        if isinstance(event, yaml.AliasEvent):
            self._fault(path, f"an alias (*{event.anchor}) is not allowed here; write the value out", line, column)
            return Node("faulty", line, column)
        if event.anchor is not None:
            self._fault(path, f"an anchor (&{event.anchor}) is not allowed here; write the value out where it is needed", line, column)
        if event.tag is not None:
            self._fault(path, "a tag is not allowed here; values have the type that the setting needs", line, column)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path)
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Node] = []
            while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
                items.append(self._node(event, (*path, len(items))))
            return Node("list", line, column, items=tuple(items))
        return Node("map", line, column, entries=self._entries(path))

    def _entries(self, path: tuple[str | int, ...]) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            line, column = _place(event)
            key = self._key(event, path)
            inner = (*path, "?" if key is None else key)
            value = self._node(next(self.events), inner)
            if key is None:
                continue
            if value.kind in ("map", "list") or (value.null and not value.hidden):
                value = replace(value, line=line, column=column)
            if key in entries:
                self._fault(inner, f"duplicate key {quote(key)}; it is already in line {entries[key].line}", line, column)
            else:
                entries[key] = Entry(key, line, column, value)
        return entries

    def _key(self, event: Any, path: tuple[str | int, ...]) -> str | None:
        """The text of a key; None, with its fault, if it is none."""
        line, column = _place(event)
        if not isinstance(event, yaml.ScalarEvent):
            self._node(event, (*path, "?"))
            message = "a key must be a text"
        elif event.anchor is not None or event.tag is not None:
            message = "a key may not have an anchor or a tag"
        elif event.value == "<<" and event.implicit[0]:
            message = "merge keys (<<) are not allowed; write the settings out"
        elif event.implicit[0] and event.value in NULLS:
            message = "a key is missing"
        elif not event.value or not event.value.isprintable():
            message = "a key may hold visible characters only"
        else:
            return str(event.value)
        self._fault(path, message, line, column)
        return None

    def _scalar(self, event: Any, path: tuple[str | int, ...]) -> Node:
        line, column = _place(event)
        text, hidden = str(event.value), False
        if "$" in text:
            try:
                text, hidden = substitute(text, self.env)
            except ValueError as error:
                self._fault(path, str(error), line, column)
                return Node("faulty", line, column)
        if not _is_unicode(text):
            self._fault(path, "half of a surrogate pair is no character", line, column)
            return Node("faulty", line, column)
        return Node("text", line, column, text=text, plain=bool(event.implicit[0]), hidden=hidden)

    def _fault(self, path: tuple[str | int, ...], message: str, line: int, column: int) -> None:
        self.faults.append(Fault(render(path), message, line, column))


_VARIABLE = re.compile(r"\$(?:(\$)|\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}|(\{))")


def substitute(text: str, env: Mapping[str, str]) -> tuple[str, bool]:
    """The text with its variables replaced, and whether there were any. ValueError names a missing or misspelt one.

    A variable that is set but empty counts as missing: an empty key must not pass for a key.
    """
    found = False

    def value(match: re.Match[str]) -> str:
        nonlocal found
        dollar, name, has_default, default, open_brace = match.groups()
        if dollar:
            return "$"
        if open_brace:
            raise ValueError("a variable is written ${NAME} or ${NAME:-default}, a literal dollar $$")
        found = True
        if default and "${" in default:
            raise ValueError("a default may not hold another variable")
        given: str = env.get(name, "")
        if not _is_unicode(given):
            raise ValueError(f"the environment variable {name} is not UTF-8 text")
        if given:
            return given
        if has_default:
            return str(default).replace("$$", "$")
        state = "empty" if name in env else "not set"
        raise ValueError(f"the environment variable {name} is {state}; set it, or write ${{{name}:-default}}")

    return _VARIABLE.sub(value, text), found


def quote(text: str) -> str:
    """A text of the file for a message: in double quotes, on one line, at most 60 characters."""
    shown = text if len(text) <= 60 else text[:57] + "..."
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in shown.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _place(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in text) if not text.isascii() else True


def _code(character: Any) -> int:
    return ord(character) if isinstance(character, str) else int(character)


def _problem(error: yaml.MarkedYAMLError, line: str) -> str:
    problem = error.problem or error.context or "it cannot be read"
    if "'\\t'" in problem:
        return "not valid YAML: a tab cannot indent; use spaces"
    if "${" in line and ("flow" in (error.context or "") or "but found '{'" in problem):
        return "not valid YAML: between { } and [ ] a ${NAME} must be in quotes"
    return f"not valid YAML: {problem}" + (f" ({error.context})" if error.context and error.context != problem else "")
