"""The JSON of an event, read as providers write it."""

from __future__ import annotations

import json
from typing import Any

from gateway.chat import loads
from gateway.errors import UpstreamError


def read_event(data: bytes) -> Any:
    """The value of an event's data; None for what is no JSON, such as `[DONE]` or a ping.

    Raw control characters, halves of pairs and broken characters are no reason to lose what
    it says. UpstreamError `protocol` for an object that breaks off: what it said is lost, and
    an answer without it would pass for a whole one.
    """
    try:
        return loads(data)
    except ValueError:
        return loosely(data)


def loosely(data: bytes) -> Any:
    """The same for data that strict readers refuse."""
    text = data.strip()
    try:
        return paired(json.loads(text.decode("utf-8", "replace"), strict=False))
    except (ValueError, RecursionError):
        if text.startswith(b"{"):
            raise broken() from None
        return None


def broken() -> UpstreamError:
    return UpstreamError("protocol", "an event of the stream is not whole")


def paired(value: Any) -> Any:
    """The value without halves of surrogate pairs, which no text can hold."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [paired(item) for item in value]
    return {paired(key): paired(item) for key, item in value.items()} if isinstance(value, dict) else value
