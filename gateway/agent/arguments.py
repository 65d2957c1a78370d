"""From what a model wrote as arguments to what a tool may be called with (X6).

Repaired where it is nearly JSON, cast to the types that the schema names, validated. Text
that ends before its JSON does is never completed: the call would be another one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any

from gateway.agent.casting import Caster, bare, resolve, types
from gateway.agent.written import end_of, fences, value_of
from gateway.chat import Json, dumps, loads
from gateway.config import suggest

_SHOWN = 60  # characters of a value in a message
_OBJECTS = 8  # one after the other
_PAIRED = 20_000  # characters; a longer text is one value
_WORDS = 200  # characters of a field's description
_FIELDS = 20  # fields that a message lists
_SAFE = re.compile(r"[A-Za-z0-9_-]{1,64}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_USUAL = ("input", "query", "text", "q", "question", "expression")
"""the field that a value without a name is meant for, where several could be"""
_WRAPPERS = ("arguments", "parameters", "args", "kwargs", "input", "params")


class BadArguments(ValueError):
    """The arguments cannot be used. Its text is for the model: what is wrong, and what the tool wants."""


def prepare(raw: str | Mapping[str, Any] | None, schema: Json) -> Json:
    """The arguments as an object that is valid under the schema. BadArguments names the field and what is wanted.

    Fields that the schema does not know are kept, unless it forbids them.
    """
    value = read(raw)
    checks = _checks(dumps(schema))
    if not isinstance(value, dict):
        value = _as_object(value, schema)
    value = _unwrapped(value, schema)
    try:
        value = checks.cast(value)
        faults = checks.faults(value)
    except RecursionError:
        raise BadArguments("the arguments are nested too deeply") from None
    if faults:
        raise BadArguments("; ".join(faults) + _fields(schema))
    made: Json = value
    return made


def read(raw: str | Mapping[str, Any] | None) -> Any:
    """The value that the arguments are, before any schema; nothing at all is `{}`. BadArguments if the text is not JSON, with the place."""
    if raw is None:
        return {}
    if not isinstance(raw, str):
        return dict(raw)
    value: Any = raw
    for _ in range(3):  # JSON in a JSON string: written twice
        text = value.strip()
        if not text:
            return {}
        try:
            value = loads(text)
        except ValueError as error:
            if value is not raw and not text.startswith("{"):
                return value
            value = _repaired(text, str(error))
        if not isinstance(value, str):
            return {} if value is None else value
    return value


def as_json(raw: str) -> str:
    """The arguments as text of a JSON object, for the history: some providers refuse a history with any other (B131)."""
    try:
        if isinstance(loads(raw), dict):
            return raw
    except ValueError:
        pass
    try:
        value = read(raw)
    except BadArguments:
        value = raw
    return dumps(value if isinstance(value, dict) else {"invalid_arguments": value}).decode()


def from_text(text: str, name: str, schema: Json) -> Json:
    """What a text protocol's parameters say: a JSON object, `key=value, key=value`, values in the order of the fields, or one value (H21).

    The values are as they were written: `prepare` brings them into form. BadArguments for JSON that is broken.
    """
    text = text.strip()
    properties = schema.get("properties")
    known = list(properties) if isinstance(properties, dict) else []
    if not text:
        return {}
    if text.startswith("{"):
        value = read(text)
        if isinstance(value, dict):
            return value
    pairs = _pairs(text, known) if len(text) <= _PAIRED else {}
    if pairs:
        return pairs
    if name == "memory" and (not known or "action" in known):
        return {"action": "search", "query": unquoted(text)}
    field = only_field(schema)
    required = [one for one in schema.get("required") or () if one in known]
    if field is None and len(required) > 1:
        values = _split(text)
        if len(required) <= len(values) <= len(known):
            return dict(zip(known, map(unquoted, values), strict=False))
    usual = [one for one in _USUAL if one in known]
    return {field or (usual[0] if usual else known[0] if known else "query" if name == "search" else "input"): unquoted(text)}


def unquoted(text: str) -> str:
    """A value without the quotes around it, where they are around all of it."""
    text = text.strip()
    for quote in ('"', "'"):
        if len(text) > 1 and text[0] == text[-1] == quote and quote not in text[1:-1].replace("\\" + quote, ""):
            inner = text[1:-1]
            try:
                return str(loads(f'"{inner}"')) if quote == '"' else inner.replace("\\'", "'")
            except ValueError:
                return inner
    return text


def _pairs(text: str, known: Sequence[str]) -> Json:
    """`key=value, key=value`. A comma ends a value only where another key follows; with known fields nothing else is a key."""
    out: Json = {}
    name, place, start = None, 0, 0
    key = _key(tuple(known))
    while place <= len(text):
        found = key.match(text, place) if name is None or text.startswith(",", place) else None
        if found and found[1] not in out and found[1] != name:
            if name is not None:
                out[name] = _value(text[start:place])
            name, start = found[1], found.end()
            place = _over(text, start)
        elif name is None:
            return {}
        elif place == len(text):
            break
        else:
            place += 1
            ahead = text.find(",", place)
            place = ahead if ahead >= 0 else len(text)
    if name is not None:
        out[name] = _value(text[start:])
    return out


@lru_cache(maxsize=256)
def _key(known: tuple[str, ...]) -> re.Pattern[str]:
    names = "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True)) if known else r"[^\W\d]\w*"
    return re.compile(rf"""\s*,?\s*["']?({names})["']?\s*{"[=:]" if known else "="}(?!=)\s*""")


def _over(text: str, place: int) -> int:
    """Behind the quoted text, object or list that begins at `place`: its commas separate nothing."""
    if text[place : place + 1] in ("{", "["):
        return end_of(text, place) or place
    if text[place : place + 1] in ('"', "'"):
        found = re.compile(rf"(?:\\.|[^\\])*?{text[place]}(?=\s*(?:,|$))", re.DOTALL).match(text, place + 1)
        return found.end() if found else place
    return place


def _value(text: str) -> Any:
    text = text.strip()
    if text.startswith(("{", "[")):
        try:
            return value_of(text)
        except ValueError:
            return text
    return unquoted(text)


def _split(text: str) -> list[str]:
    """The values of `"a, b", 3`."""
    out, place, start = [], 0, 0
    while place < len(text):
        over = _over(text, place) if not text[start:place].strip() else place
        if over > place:
            place = over
        elif text[place] == ",":
            out.append(text[start:place])
            place = start = place + 1
        else:
            place += 1
    return [*out, text[start:]]


def call_id(raw: str | None, run: str, step: int, index: int) -> str:
    """An id of at most 64 safe characters. The model's own where it is one; where it gave none, the same each time for this place."""
    if raw and _SAFE.fullmatch(raw):
        return raw
    if not raw or not raw.strip():
        return "call_" + hashlib.sha256(f"{run}\0{step}\0{index}".encode()).hexdigest()[:24]
    mark = hashlib.sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{_UNSAFE.sub('_', raw)[:51]}_{mark}"


def call_ids(raw: Sequence[str | None], run: str, step: int) -> list[str]:
    """The ids of all calls of a turn, no two alike: a repeated one is named by its place."""
    out: list[str] = []
    for index, one in enumerate(raw):
        ident = call_id(one, run, step, index)
        if ident in out:
            ident = call_id(None, run, step, index)
        out.append(ident)
    return out


# ---- reading ----


def _repaired(text: str, fault: str) -> Any:
    """The leading object of a text that is not quite JSON."""
    inner = next((content for _, content in fences(text) if "{" in content), None)
    if inner is not None and not text.startswith("{"):
        text = inner.strip()
    start = text.find("{")
    if start < 0:
        raise BadArguments(f"the arguments are not a JSON object ({fault})")
    end = end_of(text, start)
    if end is None:
        raise BadArguments(
            f"the arguments are not valid JSON: the text ends at character {len(text)}, before the object that begins at character {start} does ({fault}). "
            "Make the call again with the complete object"
        )
    try:
        value = value_of(text[start:end])
    except ValueError as error:
        raise BadArguments(f"the arguments are not valid JSON ({error})") from None
    return _one(value, text[end:], fault)


def _one(first: Any, rest: str, fault: str) -> Any:
    """Objects one after the other: empty and repeated ones count for nothing, else nobody knows which is meant."""
    for _ in range(_OBJECTS):
        rest = rest.lstrip()
        end = end_of(rest, 0) if rest.startswith("{") else None
        if end is None:
            return first
        try:
            more = value_of(rest[:end])
        except ValueError:
            return first
        if more and first and more != first:
            break
        first, rest = first or more, rest[end:]
    raise BadArguments(f"the arguments are more than one JSON object ({fault}). Make one call for each")


def _as_object(value: Any, schema: Json) -> Any:
    """An object for a single value: a list of one object, or the value of the only field there is."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        return value[0]
    name = only_field(schema)
    if name is None or value is None:
        raise BadArguments(f"the arguments must be a JSON object, not {_kind(value)}{_fields(schema)}")
    return {name: value}


def only_field(schema: Json) -> str | None:
    """The field that a value without a name is meant for: the only one, or the only one that must be there."""
    properties = schema.get("properties")
    names = list(properties) if isinstance(properties, dict) else []
    required = [name for name in schema.get("required") or () if name in names]
    return names[0] if len(names) == 1 else required[0] if len(required) == 1 else None


def _unwrapped(value: Json, schema: Json) -> Json:
    """The object inside `{"arguments": {...}}`, where the tool has no such field."""
    properties = schema.get("properties") or {}
    if len(value) == 1 and properties:
        name, inner = next(iter(value.items()))
        if name in _WRAPPERS and isinstance(inner, dict) and not any(bare(name) == bare(known) for known in properties):
            return inner
    return value


# ---- checking ----


class _Checks:
    """Casting and validation for one schema."""

    def __init__(self, schema: Json) -> None:
        from jsonschema.validators import Draft202012Validator, validator_for  # 0.2 s, and only runs with tools need it
        from referencing import Registry

        self._schema = schema
        self._validator: Any = None
        try:
            kind = validator_for(schema, default=Draft202012Validator)
            kind.check_schema(schema)
            # an empty registry: a $ref to another machine is never fetched
            self._validator = kind(schema, registry=Registry())
        except Exception:  # the schema of somebody's server is not one; the server itself will judge the arguments
            self._validator = None
        self.cast: Callable[[Any], Any] = Caster(schema, self._fits).cast

    def _fits(self, value: Any, schema: Json) -> bool:
        if self._validator is None:
            return False
        try:
            return bool(self._validator.evolve(schema=schema).is_valid(value))
        except RecursionError:
            raise
        except Exception:  # a $ref that leads nowhere
            return False

    def faults(self, value: Any) -> list[str]:
        """Up to three faults, in the order of the schema."""
        if self._validator is None:
            return [] if isinstance(value, dict) else ["the arguments must be a JSON object"]
        try:
            return [self._words(error) for error in islice(self._validator.iter_errors(value), 3)]
        except RecursionError:
            raise
        except Exception:  # a $ref that leads nowhere: as where the schema is none
            return []

    def _words(self, error: Any) -> str:
        place = _place(error.absolute_path)
        where = f"field {place}" if place else "the arguments"
        if error.validator == "required":
            missing = [name for name in error.validator_value if name not in error.instance]
            inside = f" in {place}" if place else ""
            told = [f"{_quoted(name)}{_about((error.schema.get('properties') or {}).get(name), self._schema)}" for name in missing]
            return f"missing field{'s' if len(missing) > 1 else ''}{inside}: {', '.join(told)}"
        if error.validator == "additionalProperties" and isinstance(error.instance, dict):
            known = list(error.schema.get("properties") or ())
            more = [name for name in error.instance if name not in known]
            return f"{where} must not have {', '.join(_quoted(name) + suggest(name, known) for name in more[:5])}"
        if error.validator == "type":
            return f"{where} must be {wants(error.schema, self._schema)}, not {_shown(error.instance)}"
        if error.validator in ("enum", "const", "anyOf", "oneOf"):
            return f"{where} must be {wants(error.schema, self._schema)}, not {_shown(error.instance)}"
        return f"{where}: {str(error.message)[:200]}"


@lru_cache(maxsize=256)
def _checks(schema: bytes) -> _Checks:
    return _Checks(loads(schema))


# ---- words ----


def wants(schema: Any, root: Json) -> str:
    """A schema in a few words: `integer`, `array of string`, `one of "a", "b"`."""
    schema = resolve(schema, root)
    if not isinstance(schema, dict):
        return "any value"
    choices = schema["enum"] if isinstance(schema.get("enum"), list) else [schema["const"]] if "const" in schema else None
    if choices is not None:
        return ("one of " if len(choices) > 1 else "") + ", ".join(dumps(choice).decode() for choice in choices[:12])
    either = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(either, list) and either:
        return " or ".join(dict.fromkeys(wants(part, root) for part in either[:6] if part is not schema))
    named = types(schema)
    if named == ["array"] and isinstance(schema.get("items"), dict) and "items" not in schema["items"]:
        return f"array of {wants(schema['items'], root)}"
    return " or ".join(named) or "any value"


def _about(schema: Any, root: Json) -> str:
    """` (integer: how many)`, as far as the schema says so."""
    if not isinstance(schema, dict):
        return ""
    text = " ".join(str(schema.get("description") or "").split())
    return f" ({wants(schema, root)}{': ' + text[:80] if text else ''})"


def takes(schema: Json, *, words: bool = False) -> str:
    """The fields of a schema on one line: `q (string, required), n (integer)`; `words`: with their descriptions."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        return ""
    required = schema.get("required") or ()
    told = []
    for name, part in islice(properties.items(), _FIELDS):
        about = " ".join(str(part.get("description") or "").split())[:_WORDS] if words and isinstance(part, dict) else ""
        told.append(f"{name} ({wants(part, schema)}{', required' if name in required else ''}{f': {about}' if about else ''})")
    return ", ".join(told) + (", ..." if len(properties) > _FIELDS else "")


def _fields(schema: Json) -> str:
    """A sentence that lists what the tool takes."""
    listed = takes(schema)
    return f". The tool takes: {listed}" if listed else ". The tool takes no arguments: {}"


def _place(path: Any) -> str:
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else str(part)
    return f'"{out}"' if out else ""


def _quoted(name: Any) -> str:
    return dumps(str(name)[:_SHOWN]).decode()


def _shown(value: Any) -> str:
    text = dumps(value).decode()
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _kind(value: Any) -> str:
    return "a list" if isinstance(value, list) else "a text" if isinstance(value, str) else _shown(value)
