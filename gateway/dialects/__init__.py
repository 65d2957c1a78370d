"""The dialects that clients and providers speak. Chat completions is the pivot: every other one is translated to and from it.

dialect(name)  the translator of a dialect other than chat, loaded when it is first needed
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Protocol, cast

from gateway.chat import Json

Event = tuple[str | None, Json]
"""Name and data of one event for a client."""

NAMED = frozenset(("messages", "responses"))
"""Dialects whose events have names and whose streams end without [DONE]."""


class Reader(Protocol):
    """A provider's stream -> chat chunks."""

    done: bool

    def feed(self, name: str | None, data: bytes) -> list[Json]: ...
    def finish(self) -> list[Json]: ...


class Writer(Protocol):
    """Chat chunks -> the events of a client's stream."""

    def feed(self, chunk: Json) -> list[Event]: ...
    def finish(self) -> list[Event]: ...
    def fail(self, error: Json) -> list[Event]: ...


class Native(Protocol):
    """Watches a stream that goes to the client untranslated. `instead`: events to send in an event's place, None: as it came."""

    done: bool
    has_content: bool
    name: str | None
    instead: list[Event] | None

    @property
    def usage(self) -> Json | None: ...

    def look(self, name: str | None, data: bytes) -> bool: ...


class Dialect(Protocol):
    """A dialect's module. Clients speak those with `request_to_chat`, providers those with `request_from_chat`."""

    def request_to_chat(self, body: Json) -> Json: ...
    def request_from_chat(self, body: Json) -> Json: ...
    def answer_to_chat(self, body: Json) -> Json: ...
    def answer_from_chat(self, completion: Json, request: Json) -> Json: ...
    def native_content(self, body: Json) -> bool: ...
    def error_body(self, error: Json, status: int, request_id: str) -> Json: ...

    Reader: type[Any]
    Writer: type[Any]
    Native: type[Any]


@cache
def dialect(name: str) -> Dialect:
    """The translator of a dialect: messages, responses, completions, gemini, converse."""
    return cast(Dialect, import_module(f"gateway.dialects.{name}"))


def native_request(name: str, body: Json) -> Json:
    """A request that goes to a provider of its own dialect, without what only the gateway can read."""
    clean = getattr(dialect(name), "native_request", None)
    return body if clean is None else cast(Json, clean(body))


def dropped_tools(name: str, body: Json) -> list[str]:
    """Types of the tools that a translation to chat leaves out: only their own vendor can serve them."""
    find = getattr(dialect(name), "dropped_tools", None)
    return [] if find is None else sorted(set(cast(list[str], find(body))))
