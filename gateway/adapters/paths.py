"""Places in a JSON body: a path is a tuple of keys, written `thinking.type` in adapter files."""

from __future__ import annotations

from typing import Any

from gateway.chat import Json

Path = tuple[str, ...]


def parse(text: str) -> Path:
    """`chat_template_kwargs.enable_thinking` -> its keys."""
    return tuple(text.split("."))


def get(body: Json, path: Path) -> Any:
    """The value at a path; None where there is none."""
    at: Any = body
    for key in path:
        at = at.get(key) if type(at) is dict else None
    return at


def put(body: Json, path: Path, value: Any) -> bool:
    """Set a value, making objects on the way; False if it was there already.

    An object that holds all of `value` and more stays as it is: the client wrote the same
    thing with details of its own.
    """
    at = body
    for key in path[:-1]:
        inner = at.get(key)
        if type(inner) is not dict:
            inner = at[key] = {}
        at = inner
    key = path[-1]
    if key in at and _holds(at[key], value):
        return False
    at[key] = copied(value)
    return True


def remove(body: Json, path: Path) -> bool:
    """Take a value out, and the objects around it that it leaves empty; False if there was none. Of a list: out of each of its objects."""
    if len(path) == 1:
        return body.pop(path[0], _NOTHING) is not _NOTHING
    inner = body.get(path[0])
    if type(inner) is list:
        key, rest = path[1], path[1:]
        holders = [item for item in inner if type(item) is dict and key in item]
        return any([remove(item, rest) for item in holders])
    if type(inner) is not dict or not remove(inner, path[1:]):
        return False
    if not inner:
        del body[path[0]]
    return True


def copied(value: Any) -> Any:
    """A copy of plain JSON data."""
    if type(value) is dict:
        return {key: copied(inner) for key, inner in value.items()}
    if type(value) is list:
        return [copied(inner) for inner in value]
    return value


def _holds(have: Any, wanted: Any) -> bool:
    if type(have) is dict and type(wanted) is dict:
        return all(key in have and _holds(have[key], inner) for key, inner in wanted.items())
    return type(have) is type(wanted) and bool(have == wanted)


_NOTHING = object()
