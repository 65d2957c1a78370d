"""Values of a tool call brought to the types that the tool's schema names.

Models write "3" for 3, "false" for false, one value for a list of one, JSON inside a text.
What fits already is never changed, and what cannot be brought into the form is left for the
validation to name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gateway.chat import Json, dumps, loads

_DEEPEST = 48
_INTEGER = re.compile(r"[+-]?\d{1,400}(?:\.0*)?", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d{1,400}\.?\d{0,400}|\.\d{1,400})(?:[eE][+-]?\d{1,3})?", re.ASCII)
_TRUE = frozenset(("true", "yes", "y", "on", "1"))
_FALSE = frozenset(("false", "no", "n", "off", "0"))
_NULL = frozenset(("null", "none", "nil", "undefined", ""))
_NOT = object()

_IS: Mapping[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}


class Caster:
    """Casts to one schema. `fits` says whether a value is valid under a part of it."""

    def __init__(self, schema: Json, fits: Callable[[Any, Json], bool]) -> None:
        self._root = schema
        self._fits = fits

    def cast(self, value: Any) -> Any:
        return self._cast(value, self._root, 0)

    def _cast(self, value: Any, schema: Any, depth: int) -> Any:
        schema = resolve(schema, self._root)
        if not isinstance(schema, dict) or depth > _DEEPEST:
            return value
        for part in _list(schema.get("allOf")):
            value = self._cast(value, part, depth + 1)
        either = [*_list(schema.get("anyOf")), *_list(schema.get("oneOf"))]
        if either:
            value = self._either(value, either, depth)
        wanted = types(schema)
        if wanted and not any(_IS[kind](value) for kind in wanted):
            value = _converted(value, wanted)
        value = _of_choices(value, schema)
        if isinstance(value, dict):
            return self._object(value, schema, depth)
        if isinstance(value, list):
            return self._array(value, schema, depth)
        if isinstance(value, float) and value.is_integer() and "integer" in wanted and "number" not in wanted:
            return int(value)
        return value

    def _either(self, value: Any, either: list[Any], depth: int) -> Any:
        """The first alternative that fits as it is, else the first that fits when cast."""
        for part in either:
            if isinstance(part, dict) and self._fits(value, part):
                return self._cast(value, part, depth + 1)
        for part in either:
            cast = self._cast(value, part, depth + 1)
            if isinstance(part, dict) and self._fits(cast, part):
                return cast
        return value

    def _object(self, value: Json, schema: Json, depth: int) -> Json:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = _list(schema.get("required"))
        more = schema.get("additionalProperties")
        out: Json = {}
        for key, name in _names(value, properties):
            part = properties.get(name)
            if part is None:
                out[name] = self._cast(value[key], more, depth + 1) if isinstance(more, dict) else value[key]
                continue
            cast = self._cast(value[key], part, depth + 1)
            if cast is None and name not in required and not self._may_be_null(part):
                continue  # null for a field that was not given
            out[name] = cast
        return out

    def _may_be_null(self, schema: Any) -> bool:
        return not isinstance(schema, dict) or self._fits(None, schema)

    def _array(self, value: list[Any], schema: Json, depth: int) -> list[Any]:
        first, rest = _list(schema.get("prefixItems")), schema.get("items")
        return [self._cast(item, first[place] if place < len(first) else rest, depth + 1) for place, item in enumerate(value)]


def resolve(schema: Any, root: Json) -> Any:
    """The schema that a local `$ref` names; a remote one is nobody's business here."""
    for _ in range(8):
        ref = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(ref, str) or not ref.startswith("#"):
            return schema
        found: Any = root
        for part in ref[1:].split("/")[1:]:
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        schema = found
    return None


def types(schema: Json) -> list[str]:
    """The types that a schema names, in its order; none where it names none that we know."""
    named = schema.get("type")
    return [kind for kind in (named if isinstance(named, list) else [named]) if isinstance(kind, str) and kind in _IS]


def bare(name: str) -> str:
    """A name without what its spellings differ in: `userId`, `user_id` and `User-ID` are one."""
    return re.sub(r"[\s_.-]", "", name).casefold()


def _names(value: Json, properties: Json) -> Iterator[tuple[str, str]]:
    """(key as it came, name): another spelling of a declared field that is not given otherwise is that field."""
    spelt = {bare(name): name for name in properties if name not in value}
    for key in value:
        if key in properties:
            yield key, key
        else:
            yield key, spelt.pop(bare(key), key)


def _of_choices(value: Any, schema: Json) -> Any:
    """A value of `enum` in another case, or as text."""
    choices = schema.get("enum")
    if not isinstance(choices, list) or not isinstance(value, str) or value in choices:
        return value
    wanted = value.strip().casefold()
    alike = [choice for choice in choices if _word(choice).casefold() == wanted]
    return alike[0] if len(alike) == 1 else value


def _word(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value).decode()


def _converted(value: Any, wanted: list[str]) -> Any:
    for kind in wanted:
        made = _CONVERT[kind](value)
        if made is not _NOT:
            return made
    return value


def _to_integer(value: Any) -> Any:
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        return int(value.strip().partition(".")[0])
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return _NOT


def _to_number(value: Any) -> Any:
    whole = _to_integer(value)
    if whole is not _NOT:
        return whole
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        number = float(value)
        return number if number not in (float("inf"), float("-inf")) else _NOT
    return _NOT


def _to_boolean(value: Any) -> Any:
    word = value.strip().casefold() if isinstance(value, str) else dumps(value).decode() if isinstance(value, int) else ""
    return True if word in _TRUE else False if word in _FALSE else _NOT


def _to_string(value: Any) -> Any:
    return _NOT if value is None else dumps(value).decode()


def _to_array(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            made = loads(value)
        except ValueError:
            made = None
        if isinstance(made, list):
            return made
    return _NOT if value is None else [value]


def _to_object(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            made = loads(value)
        except ValueError:
            return _NOT
        return made if isinstance(made, dict) else _NOT
    return _NOT


def _to_null(value: Any) -> Any:
    return None if isinstance(value, str) and value.strip().casefold() in _NULL else _NOT


_CONVERT: Mapping[str, Callable[[Any], Any]] = {
    "integer": _to_integer,
    "number": _to_number,
    "boolean": _to_boolean,
    "string": _to_string,
    "array": _to_array,
    "object": _to_object,
    "null": _to_null,
}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
