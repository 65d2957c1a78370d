"""Arguments as models really write them: other spellings of a name, numbers and booleans as text.

Every function raises ValueError with a text for the model; it names the field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gateway.chat import Json, loads

_WHOLE = re.compile(r"([+-]?[0-9]{1,16})(?:\.0*)?")
_TRUE = frozenset(("true", "yes", "y", "t", "on", "1"))
_FALSE = frozenset(("false", "no", "n", "f", "off", "0"))
_ABSENT = frozenset(("", "null", "none", "undefined"))
LARGEST = 2**53 - 1
"""the largest integer that every JSON reader keeps exact"""


def arguments(given: object) -> Json:
    """The object that the arguments are; a text is read as JSON."""
    if isinstance(given, str | bytes):
        try:
            given = loads(given)
        except ValueError:
            raise ValueError("the arguments are not valid JSON") from None
    if not isinstance(given, Mapping):
        raise ValueError("the arguments must be a JSON object")
    return dict(given)


def bare(name: str) -> str:
    """A name without what its spellings differ in: `thoughtNumber`, `thought_number` and `Thought-Number` are one."""
    return re.sub(r"[\s_-]", "", name).lower()


def named(given: Json, names: Mapping[str, str]) -> Json:
    """The known fields under their own names. `names`: bare name -> name. The exact name wins over its other spellings."""
    out: Json = {}
    for key, value in given.items():
        name = names.get(bare(str(key)))
        if name is not None and (key == name or (name not in out and name not in given)):
            out[name] = value
    return out


def number(field: str, value: Any) -> int | None:
    """A whole number from 1; None where there is none."""
    if value is None:
        return None
    found: int | None = None
    if isinstance(value, str):
        match = _WHOLE.fullmatch(value.strip())
        found = int(match[1]) if match else None
    elif isinstance(value, float):
        found = int(value) if value.is_integer() else None
    elif isinstance(value, int) and not isinstance(value, bool):
        found = value
    if found is None or not 1 <= found <= LARGEST:
        raise ValueError(f"{field} must be a whole number, 1 or more")
    return found


def flag(field: str, value: Any) -> bool | None:
    """A boolean, `"false"` being false; None where there is none."""
    if isinstance(value, str):
        word = value.strip().lower()
        if word in _ABSENT:
            return None
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
    elif value is None or isinstance(value, bool):
        return value
    elif isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    raise ValueError(f"{field} must be true or false")


def absent(value: Any) -> bool:
    """Whether the value of an optional field says that there is none: null, or a text such as "" or "null"."""
    return value is None or (isinstance(value, str) and value.strip().lower() in _ABSENT)


def text(field: str, value: Any, most: int) -> str:
    """A text of 1 to `most` characters (code points), as it came."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{field} must be a non-empty string")
    if len(value) > most:
        raise ValueError(f"{field} must be at most {most} characters long, it has {len(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{field} holds half a character (a lone surrogate)") from None
    return value
