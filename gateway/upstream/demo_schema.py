"""Values for a JSON Schema, taken from the words of a prompt: what the demo model fills arguments and JSON answers with."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]

ARITHMETIC = re.compile(r"\(*-?\d+(?:\.\d+)?\)*(?:\s*(?:\*\*|[-+*/^×÷])\s*\(*-?\d+(?:\.\d+)?\)*)+")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?")
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|「([^」]+)」|(?<!\w)'([^']+)'(?!\w)")
_NAME = r"[A-ZÀ-Þ][\w'’-]*(?:\s+[A-ZÀ-Þ][\w'’-]*)*"
_NAME_AFTER = re.compile(rf"\b(?:in|at|for|near|of|to|from|about|is|called|named)\s+({_NAME})")
_ANY_NAME = re.compile(rf"(?<!^)(?<![.!?]\s)\b({_NAME})")
_FIRST_NAME = re.compile(rf"({_NAME})(?=\s+(?:is|was|has|and)\b)")
_SEARCH = re.compile(r"^\W*(?:please\s+)?(?:search(?:\s+the\s+web)?(?:\s+for)?|look\s+up|find|google)\s+", re.IGNORECASE)
_WORD_AFTER = re.compile(r"\b(?:in|at|for|near|from)\s+(?:the\s+)?([^\W\d_]{3,})", re.IGNORECASE)
_CHINESE_PLACE = re.compile(r"([\u4e00-\u9fff]{2,3}?)(?:市|的|今天|明天|现在)*(?:天气|气温|景点|时间)")
_URL = re.compile(r"https?://[^\s\"'<>)]+")
_MAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]+")
_DATE = re.compile(r"\b\d{4}-\d{2}-\d{2}\b")
_NOT_NAMES = frozenset(
    re.findall(r"\w+", "I A The What Which Who When Where Why How Is Are Can Could Please Tell Use And Then Also In At For On To From My Search Say Give Show")
)
_SUBJECTS = ("city", "location", "place", "country", "town", "region", "address", "destination")
_ASKED = ("query", "question", "input", "prompt", "task", "search", "topic", "q")
_FORMATS = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "duration": "PT1H",
    "uri": "https://example.com",
    "url": "https://example.com",
    "email": "demo@example.com",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "hostname": "example.com",
    "ipv4": "127.0.0.1",
    "ipv6": "::1",
}
_DEEPEST = 12
_DEEP = 4  # from here on what may be null or empty is, so that recursive schemas end


def as_object(value: Any) -> Mapping[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: Any) -> Sequence[Any]:
    """The value if it is a JSON list, else an empty one."""
    return value if isinstance(value, list) else ()


def capital_name(text: str) -> str | None:
    """The first run of capitalised words that can be a name, None if there is none."""
    names = (" ".join(word for word in match[0].split() if word not in _NOT_NAMES) for match in re.finditer(rf"\b{_NAME}", text))
    return next(filter(None, names), None)


def proper_name(text: str) -> str | None:
    """The name of a place, person or thing in a text, None if there is none."""
    for pattern in (_NAME_AFTER, _ANY_NAME):
        for match in pattern.finditer(text):
            if name := capital_name(match[1]):
                return name
    found = _CHINESE_PLACE.search(text) or _WORD_AFTER.search(text)
    return found[1].capitalize() if found else None


def quoted(text: str) -> str | None:
    """The first part of a text in quotes."""
    match = _QUOTED.search(text)
    return next(part for part in match.groups() if part) if match else None


def expression(text: str) -> str | None:
    """The first arithmetic expression of a text."""
    match = ARITHMETIC.search(text)
    return match[0].strip() if match else None


class BadSchema(ValueError):
    """What should be a JSON Schema is none."""


class Filler:
    """Fills one JSON Schema from one text.

    The value satisfies types, enums, constants, required fields, bounds, lengths and local
    references; `pattern` and `not` are not looked at. Texts that the prompt does not hold are `default`.
    """

    def __init__(self, schema: Mapping[str, Any], text: str, default: str | None = None) -> None:
        self._root = schema
        self._text = text.strip()
        self._default = default or self._text or "demo"
        self._numbers = iter(_NUMBER.findall(text))

    def value(self) -> Any:
        """Raises BadSchema."""
        try:
            return self._value("", self._root, 0)
        except (TypeError, ValueError, AttributeError, LookupError, OverflowError) as error:
            raise BadSchema(f"not a JSON Schema: {error}") from None

    def _value(self, name: str, schema: Any, depth: int) -> Any:
        if not isinstance(schema, Mapping) or depth > _DEEPEST:
            return None if depth > _DEEPEST else self._string(name, {})
        schema = self._resolved(schema, depth)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return self._choice(schema["enum"])
        kind = _kind(schema)
        if kind == "object":
            return self._object(schema, depth)
        if kind == "array":
            return self._array(name, schema, depth)
        if kind in ("integer", "number"):
            return self._number(schema, whole=kind == "integer")
        if kind == "boolean":
            return schema.get("default", True)
        return None if kind == "null" else self._string(name, schema)

    def _resolved(self, schema: Mapping[str, Any], depth: int) -> Mapping[str, Any]:
        """The schema without `$ref`, `allOf` and alternatives: of these the first that is not null."""
        for _ in range(_DEEPEST):
            options = schema.get("anyOf") or schema.get("oneOf")
            if "$ref" in schema:
                rest = {key: value for key, value in schema.items() if key != "$ref"}
                schema = {**self._referred(str(schema["$ref"])), **rest}
            elif schema.get("allOf"):
                schema = _merged([{k: v for k, v in schema.items() if k != "allOf"}, *(self._resolved(part, depth) for part in schema["allOf"])])
            elif options:
                null_last = sorted(options, key=lambda option: isinstance(option, Mapping) and option.get("type") == "null")
                pick = null_last[-1] if depth > _DEEP else null_last[0]
                schema = {**{k: v for k, v in schema.items() if k not in ("anyOf", "oneOf", "default")}, **pick}
            else:
                break
        return schema

    def _referred(self, reference: str) -> Mapping[str, Any]:
        node: Any = self._root
        for part in reference.removeprefix("#").strip("/").split("/") if reference != "#" else ():
            node = node.get(part.replace("~1", "/").replace("~0", "~"), {}) if isinstance(node, Mapping) else {}
        return node if isinstance(node, Mapping) else {}

    def _object(self, schema: Mapping[str, Any], depth: int) -> Json:
        properties: Mapping[str, Any] = schema.get("properties") or {}
        required = schema.get("required") or []
        wanted = [name for name in properties if name in required or self._mentioned(properties[name])]
        wanted += [name for name in required if name not in properties]
        if not wanted and not required:
            wanted = list(properties)[:1]
        return {name: self._value(name, properties.get(name, {}), depth + 1) for name in wanted}

    def _mentioned(self, schema: Any) -> bool:
        """Whether the text names one of the values that an optional field may have."""
        values = schema.get("enum") or () if isinstance(schema, Mapping) else ()
        return any(isinstance(value, str) and len(value) > 2 and value.lower() in self._text.lower() for value in values)

    def _choice(self, values: list[Any]) -> Any:
        said = self._text.lower()
        return next((value for value in values if isinstance(value, str) and re.search(rf"(?<!\w){re.escape(value.lower())}(?!\w)", said)), values[0])

    def _array(self, name: str, schema: Mapping[str, Any], depth: int) -> list[Any]:
        least, most = int(schema.get("minItems", 0)), int(schema.get("maxItems", 1 << 16))
        if schema.get("prefixItems"):
            return [self._value(name, item, depth + 1) for item in schema["prefixItems"]]
        items = schema.get("items", {})
        if isinstance(items, Mapping) and _kind(items) in ("integer", "number"):
            count = max(least, min(most, max(1, len(_NUMBER.findall(self._text)))))
        else:
            count = min(most, max(1, least)) if depth <= _DEEP else least
        values = [self._value(name, items, depth + 1) for _ in range(count)]
        return _distinct(values) if schema.get("uniqueItems") else values

    def _number(self, schema: Mapping[str, Any], *, whole: bool) -> int | float:
        said = next(self._numbers, None)
        value = float(said) if said is not None else float(schema.get("default") or 1)
        step = schema.get("multipleOf") or (1 if whole else 0)
        low, high = _bounds(schema, step or 1e-3)
        value = max(low, min(high, value))
        if step:
            value = round(value / step) * step
            value = value + step if value < low else value - step if value > high else value
        return int(value) if whole or value == int(value) else value

    def _string(self, name: str, schema: Mapping[str, Any]) -> str:
        text = self._text_for(name.lower(), schema)
        least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
        return text.ljust(least, ".")[: int(most) if most is not None else None]

    def _text_for(self, name: str, schema: Mapping[str, Any]) -> str:
        text, form = self._text, str(schema.get("format", ""))
        if form in _FORMATS or name in ("url", "link", "email", "date"):
            pattern = {"uri": _URL, "url": _URL, "link": _URL, "email": _MAIL, "date": _DATE}.get(form or name)
            match = pattern.search(text) if pattern else None
            return match[0] if match else _FORMATS.get(form or name, "https://example.com")
        if name in ("expression", "expr", "formula", "equation", "calculation") and (found := expression(text)):
            return found
        if name in _ASKED or any(name.endswith(f"_{word}") for word in _ASKED):
            return quoted(text) or expression(text) or _SEARCH.sub("", text) or self._default
        if name in ("answer", "summary", "content", "message", "text", "explanation", "reason", "thought"):
            return quoted(text) or self._default
        if any(word in name for word in _SUBJECTS) and (place := proper_name(text)):
            return place
        if "name" in name and (person := _FIRST_NAME.match(text)) and person[1].split()[0] not in _NOT_NAMES:
            return quoted(text) or person[1]
        given = schema.get("default")
        return quoted(text) or proper_name(text) or (given if isinstance(given, str) else self._default)


def _kind(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    if kind is None:
        kind = "object" if "properties" in schema or "required" in schema else "array" if "items" in schema or "prefixItems" in schema else "string"
    return str(kind)


def _merged(parts: list[Mapping[str, Any]]) -> Json:
    out: Json = {}
    for part in parts:
        properties = {**(out.get("properties") or {}), **(part.get("properties") or {})}
        required = [*(out.get("required") or ()), *(part.get("required") or ())]
        out |= part
        if properties:
            out |= {"properties": properties, "required": required}
    return out


def _bounds(schema: Mapping[str, Any], step: float) -> tuple[float, float]:
    low = float(schema.get("minimum", -math.inf))
    high = float(schema.get("maximum", math.inf))
    if isinstance(above := schema.get("exclusiveMinimum"), int | float) and not isinstance(above, bool):
        low = max(low, above + step)
    if isinstance(below := schema.get("exclusiveMaximum"), int | float) and not isinstance(below, bool):
        high = min(high, below - step)
    return low, high


def _distinct(values: list[Any]) -> list[Any]:
    out: list[Any] = []
    for value in values:
        while value in out:
            value = _another(value, len(out))
        out.append(value)
    return out


def _another(value: Any, number: int) -> Any:
    if isinstance(value, str):
        return f"{value} {number + 1}"
    if isinstance(value, dict):
        return {**value, "number": number}
    return value + 1 if isinstance(value, int | float) else number
