"""What a setting may hold: the kinds of values, and sections made of named fields.

A kind reads a node into a value, describes itself as JSON Schema and shows a default in
the way the file would write it. Sections are declared once, as tables of fields, and
everything else (reading, unknown keys, schema, reference) follows from the tables.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gateway.config.reader import NULLS, Entry, Node, quote
from gateway.config.values import render
from gateway.errors import Fault

Place = tuple[str | int, ...]
Schema = dict[str, Any]


class _Wrong:
    """What a kind gives for a node whose fault it has reported."""


WRONG = _Wrong()


def suggest(word: str, known: Iterable[str]) -> str:
    """`; did you mean "x"?` with the most similar of the known words, or an empty text."""
    known = list(known)
    lower = {name.lower(): name for name in known}
    best = difflib.get_close_matches(word.lower()[:100], lower, n=1, cutoff=0.6)
    return f"; did you mean {quote(lower[best[0]])}?" if best else ""


def unknown(what: str, word: str, known: Iterable[str]) -> str:
    """`unknown WHAT "word"`, with the known words and the most similar of them."""
    known = list(known)
    return f"unknown {what} {quote(word)}" + (f"; known: {', '.join(known)}" if known else "") + suggest(word, known)


class Reading:
    """One pass over a file: where relative paths belong, the environment, and what was found.

    `names` holds the names that the file declares per section (`providers`, `models`, ...),
    known before anything is read, so that a reference is checked where it stands.
    """

    def __init__(self, root: Node, base: Path, env: Mapping[str, str]) -> None:
        self.base = base
        self.env = env
        self.names = {key: tuple(entry.value.entries) for key, entry in root.entries.items() if entry.value.kind == "map"}
        self.faults: list[Fault] = []
        self.warnings: list[Fault] = []
        self.places: dict[str, tuple[int, int]] = {}

    def fault(self, path: Place, message: str, at: Node | Entry) -> _Wrong:
        self.faults.append(Fault(render(path), message, at.line, at.column))
        return WRONG

    def warn(self, path: Place, message: str, at: Node | Entry) -> None:
        self.warnings.append(Fault(render(path), message, at.line, at.column))

    def refer(self, section: str, what: str, word: str, path: Place, node: Node) -> bool:
        """Whether the section declares that name; if not, that is a fault."""
        known = self.names.get(section, ())
        if word in known:
            return True
        self.fault(path, f"unknown {what}; known: {', '.join(known)}" if node.hidden else unknown(what, word, known), node)
        return False

    def entry(self, kind: Kind, entry: Entry, path: Place) -> Any:
        return self.item(kind, entry.value, path)

    def item(self, kind: Kind, node: Node, path: Place) -> Any:
        self.places[render(path)] = node.line, node.column
        return kind.read(node, path, self)


class Kind(Protocol):
    """What a setting may hold; `name` says it in a word or two."""

    @property
    def name(self) -> str: ...

    def read(self, node: Node, path: Place, reading: Reading) -> Any:
        """The value, or WRONG after its faults were reported."""

    def schema(self) -> Schema: ...

    def show(self, value: Any) -> str:
        """A value as the file writes it."""


VARIABLE: Schema = {"type": "string", "pattern": r"\$\{"}
"""a scalar that holds a variable may stand for any type"""


def _shown(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value. `convert` takes its text and raises ValueError with the words that follow the quoted value.

    `secret`: the value is never shown, not even in a fault.
    """

    name: str
    convert: Callable[[str], Any]
    json: Mapping[str, Any]
    secret: bool = False
    to_text: Callable[[Any], str] = _shown

    def read(self, node: Node, path: Place, reading: Reading) -> Any:
        if node.kind == "faulty":
            return WRONG
        if node.kind != "text":
            return reading.fault(path, f"expected a {self.name}, {_found(node)}", node)
        if node.null:
            return reading.fault(path, f"needs a {self.name}", node)
        try:
            return self.convert(node.text)
        except ValueError as error:
            shown = "the value" if node.hidden or self.secret else quote(node.text)
            return reading.fault(path, f"{shown} {error}", node)

    def schema(self) -> Schema:
        return {"anyOf": [dict(self.json), VARIABLE]}

    def show(self, value: Any) -> str:
        return self.to_text(value)


@dataclass(frozen=True, slots=True)
class Reference:
    """The name of something that a section of the file declares."""

    section: str
    name: str

    def read(self, node: Node, path: Place, reading: Reading) -> Any:
        text = TEXT.read(node, path, reading)
        if isinstance(text, _Wrong) or not reading.refer(self.section, self.name, text, path, node):
            return WRONG
        return text

    def schema(self) -> Schema:
        return TEXT.schema()

    def show(self, value: Any) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class FilePath:
    """A path; relative ones belong to the folder of the config file."""

    name: str = "path"

    def read(self, node: Node, path: Place, reading: Reading) -> Any:
        text = TEXT.read(node, path, reading)
        if isinstance(text, _Wrong):
            return WRONG
        if not text:
            return reading.fault(path, "a path may not be empty", node)
        return reading.base / text

    def schema(self) -> Schema:
        return TEXT.schema()

    def show(self, value: Any) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of one kind; gives a tuple. Items that a variable leaves empty are left out."""

    item: Kind
    least: int = 0

    @property
    def name(self) -> str:
        return f"list of {self.item.name}"

    def read(self, node: Node, path: Place, reading: Reading) -> Any:
        if node.kind == "faulty":
            return WRONG
        if node.kind != "list":
            return reading.fault(path, f"expected a list, {_found(node)}", node)
        given = [(i, item) for i, item in enumerate(node.items) if not (item.null and item.hidden)]
        if len(given) < self.least:
            return reading.fault(path, "the list may not be empty", node)
        values = [reading.item(self.item, item, (*path, i)) for i, item in given]
        return WRONG if any(isinstance(value, _Wrong) for value in values) else tuple(values)

    def schema(self) -> Schema:
        return {"type": "array", "items": self.item.schema(), **({"minItems": self.least} if self.least else {})}

    def show(self, value: Any) -> str:
        return f"[{', '.join(self.item.show(v) for v in value)}]"


@dataclass(frozen=True, slots=True)
class Table:
    """A map from free names to one kind. `check` raises ValueError for a name that cannot be one.

    `named`: the values are made with their name, as the first argument of their section.
    """

    what: str
    item: Kind
    check: Callable[[str], str]
    named: bool = False
    drop_empty: bool = False

    @property
    def name(self) -> str:
        return f"map of {self.what} to {self.item.name}"

    def read(self, node: Node, path: Place, reading: Reading) -> Any:
        if node.kind == "faulty":
            return WRONG
        if node.kind != "map":
            return reading.fault(path, f"expected a map of {self.what}s, {_found(node)}", node)
        values: dict[str, Any] = {}
        for key, entry in node.entries.items():
            good = self._named_well(key, entry, path, reading)
            if self.drop_empty and entry.value.null and entry.value.hidden:
                continue
            value = reading.entry(self.item, entry, (*path, key))
            if good and not isinstance(value, _Wrong):
                values[key] = value
        return values

    def _named_well(self, key: str, entry: Entry, path: Place, reading: Reading) -> bool:
        try:
            self.check(key)
        except ValueError as error:
            reading.fault((*path, key), f"{quote(key)} {error}", entry)
            return False
        return True

    def schema(self) -> Schema:
        return {"type": "object", "additionalProperties": self.item.schema()}

    def show(self, value: Any) -> str:
        return "{}"


@dataclass(frozen=True, slots=True)
class Json:
    """A free value for upper layers to check: plain scalars become what JSON says they are, all others stay text."""

    name: str = "value"

    def read(self, node: Node, path: Place, reading: Reading) -> Any:
        if node.kind == "faulty":
            return WRONG
        if node.kind == "text":
            return plain_value(node)
        if node.kind == "list":
            return [reading.item(self, item, (*path, i)) for i, item in enumerate(node.items)]
        return {key: reading.entry(self, entry, (*path, key)) for key, entry in node.entries.items()}

    def schema(self) -> Schema:
        return {}

    def show(self, value: Any) -> str:
        return _shown(value)


_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_REAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


def plain_value(node: Node) -> Any:
    """A scalar as JSON would have it: null, true, false, a number in JSON's spelling, else text."""
    text = node.text
    if not node.plain or len(text) > 300:
        return text
    if not node.hidden and text in NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _REAL.fullmatch(text) and abs(float(text)) < float("inf") else text


@dataclass(frozen=True, slots=True)
class Field:
    """One setting of a section.

    `attribute` is its name in the value where that differs, `default` stands in the
    reference where the value's own default does not tell it.
    """

    name: str
    kind: Kind
    doc: str
    attribute: str = ""
    required: bool = False
    default: str | None = None

    @property
    def target(self) -> str:
        return self.attribute or self.name


Adapt = Callable[[dict[str, Any], Node, Place, Reading], dict[str, Any] | _Wrong]


@dataclass(frozen=True, slots=True)
class Section:
    """A map with fixed keys; gives a `make`.

    `adapt` gets the values that were given, may report what is wrong between them, and
    returns the arguments of `make`. `inline`: the values are handed to the section above
    instead. `named`: the first argument is the map's own key. `lenient`: what is sound is made
    although a part is not, so that what it refers to can be checked too.
    """

    name: str
    make: type
    fields: tuple[Field, ...]
    adapt: Adapt | None = None
    inline: bool = False
    named: bool = False
    lenient: bool = False
    by_name: Mapping[str, Field] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {f.name: f for f in self.fields})

    def read(self, node: Node, path: Place, reading: Reading) -> Any:
        if node.kind == "faulty":
            return WRONG
        if node.kind != "map":
            return reading.fault(path, f"expected a map ({', '.join(self.by_name)}), {_found(node)}", node)
        values, good = self._values(node, path, reading)
        for f in self.fields:
            if f.required and f.name not in node.entries:
                reading.fault(path, f"{f.name} is missing", node)
                good = False
        if self.adapt is not None and good:
            adapted = self.adapt(values, node, path, reading)
            if isinstance(adapted, _Wrong):
                return WRONG
            values = adapted
        if not good and not self.lenient:
            return WRONG
        if self.inline:
            return values
        return self.make(**({"name": path[-1]} if self.named else {}), **values)

    def _values(self, node: Node, path: Place, reading: Reading) -> tuple[dict[str, Any], bool]:
        """The given values by attribute, and whether all of them are sound."""
        values: dict[str, Any] = {}
        good = True
        for key, entry in node.entries.items():
            f = self.by_name.get(key)
            if f is None:
                message = f"unknown key {quote(key)}; known: {', '.join(self.by_name)}{suggest(key, self.by_name)}"
                reading.fault((*path, key), message, entry)
            elif self._absent(f, entry):
                reading.places[render((*path, key))] = entry.line, entry.column
            else:
                value = reading.entry(f.kind, entry, (*path, key))
                if isinstance(value, _Wrong):
                    good = False
                elif isinstance(f.kind, Section) and f.kind.inline:
                    values.update(value)
                else:
                    values[f.target] = value
        return values, good

    def _absent(self, f: Field, entry: Entry) -> bool:
        """Nothing was given: null where null is the default, or a variable that is empty."""
        node = entry.value
        return node.null and not f.required and (node.hidden or self.default(f) is None) and not isinstance(f.kind, Json)

    def default(self, f: Field) -> Any:
        """The value of a setting that is not given; None where there is none."""
        for declared in dataclasses.fields(self.make):
            if declared.name == f.target:
                if declared.default is not dataclasses.MISSING:
                    return declared.default
                return declared.default_factory() if declared.default_factory is not dataclasses.MISSING else None
        return None

    def schema(self) -> Schema:
        properties = {f.name: self._property(f) for f in self.fields}
        required = [f.name for f in self.fields if f.required]
        return {"type": "object", "properties": properties, "additionalProperties": False, **({"required": required} if required else {})}

    def _property(self, f: Field) -> Schema:
        inner = f.kind.schema()
        if self.default(f) is None and not f.required and inner:
            inner = {"anyOf": [*(inner["anyOf"] if set(inner) == {"anyOf"} else [inner]), {"type": "null"}]}
        return {"description": f.doc, **inner}

    def show(self, value: Any) -> str:
        return "{}"


def _found(node: Node) -> str:
    return "nothing is given" if node.null else f"this is a {node.kind}"


def visible(text: str) -> str:
    """The text, if it holds no control characters but line breaks and tabs."""
    if not all(c.isprintable() or c in "\n\r\t" for c in text):
        raise ValueError("holds a control character")
    return text


TEXT = Scalar("text", visible, {"type": ["string", "number", "boolean"]})
