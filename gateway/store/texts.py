"""Words of strangers in a form that both databases keep."""

from __future__ import annotations

from typing import Any, overload

from gateway.chat import dumps

LONGEST = 256
"""bytes of a short text: the sums' index holds five of them, and PostgreSQL's entries end at 2,704"""


@overload
def plain(text: str) -> str: ...
@overload
def plain(text: None) -> None: ...
def plain(text: str | None) -> str | None:
    """No NUL, no lone surrogate, not too long."""
    if text is None:
        return None
    whole = text.encode(errors="replace").replace(b"\0", b"?")
    return whole[:LONGEST].decode(errors="ignore")


def to_text(value: Any) -> str:
    """JSON, whatever it is: what a tool or a model said must not end a run."""
    try:
        return dumps(value).decode()
    except ValueError:
        return dumps(_scrubbed(value)).decode()


def _scrubbed(value: Any) -> Any:
    if isinstance(value, dict):
        return {_scrubbed(str(name)): _scrubbed(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_scrubbed(item) for item in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value).encode(errors="replace").decode()
