"""What a client may refer to instead of sending it again: answered requests, kept in this process.

`previous_response_id` and item references are written out before anything else reads a
request, so that every provider gets the whole conversation.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.chat import Json, dumps, loads
from gateway.dialects.responses.carriers import native_items
from gateway.dialects.responses.inbound import kind_of, missing_item, missing_response
from gateway.dialects.responses.terms import listed, mint, text_of
from gateway.errors import InvalidRequest, NotFound

DAY = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class _Entry:
    """JSON texts of an answer and of its own input items, and the answer before it."""

    response: bytes
    items: bytes
    previous: str | None
    ids: tuple[str, ...]
    expires: float

    @property
    def size(self) -> int:
        return len(self.response) + len(self.items)


class _Shelf:
    """One tenant's answers, the least recently used first."""

    def __init__(self) -> None:
        self.entries: OrderedDict[str, _Entry] = OrderedDict()
        self.owners: dict[str, str] = {}  # item id -> id of the response that it belongs to
        self.size = 0

    def add(self, ident: str, entry: _Entry) -> None:
        self.remove(ident)
        self.entries[ident] = entry
        self.owners |= dict.fromkeys(entry.ids, ident)
        self.size += entry.size

    def remove(self, ident: str) -> bool:
        entry = self.entries.pop(ident, None)
        if entry is None:
            return False
        self.size -= entry.size
        for item in entry.ids:
            if self.owners.get(item) == ident:
                del self.owners[item]
        return True

    def find(self, ident: str, now: float) -> _Entry | None:
        entry = self.entries.get(ident)
        if entry is not None and entry.expires <= now:
            self.remove(ident)
            return None
        if entry is not None:
            self.entries.move_to_end(ident)
        return entry


class Stored:
    """A bounded memory of answered requests; no tenant sees another's.

    `responses` and `size` (bytes of JSON) bound the whole, `keep` (seconds) each answer. What
    is full loses the least recently used answer of the tenant that holds most. `clock` gives
    seconds that only rise.
    """

    def __init__(self, *, responses: int = 2000, size: int = 64 * 1024 * 1024, keep: float = DAY, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = responses
        self._size = size
        self._keep = keep
        self._clock = clock
        self._shelves: dict[str, _Shelf] = {}

    def put(self, tenant: str, request: Json, response: Json) -> None:
        """Keep an answer with the request as the client sent it, unless that says `store: false` or it does not fit."""
        ident = response.get("id")
        if request.get("store") is False or not isinstance(ident, str) or not ident:
            return
        items = input_items(request)
        owned = tuple(item["id"] for item in (*items, *listed(response.get("output"))) if isinstance(item.get("id"), str) and kind_of(item) != "item_reference")
        previous = text_of(request.get("previous_response_id")) or None
        entry = _Entry(dumps(response), dumps(items), previous, owned, self._clock() + self._keep)
        if entry.size <= self._size:
            self._shelves.setdefault(tenant, _Shelf()).add(ident, entry)
            self._make_room()

    def get(self, tenant: str, ident: str) -> Json:
        """The answer, a fresh copy. Raises NotFound."""
        response: Json = loads(self._find(tenant, ident).response)
        return response

    def delete(self, tenant: str, ident: str) -> Json:
        """Forget an answer and say so. Raises NotFound."""
        self._find(tenant, ident)
        self._shelves[tenant].remove(ident)
        return {"id": ident, "object": "response", "deleted": True}

    def cancel(self, tenant: str, ident: str) -> Json:
        """Only what still runs can be cancelled, and nothing that is kept does. Raises NotFound, else InvalidRequest."""
        self._find(tenant, ident)
        raise InvalidRequest("Only a background response that is still running can be cancelled.")

    def items(self, tenant: str, ident: str) -> Json:
        """The request's own input items as a list object. Raises NotFound."""
        data: list[Json] = loads(self._find(tenant, ident).items)
        ids = [text_of(item.get("id")) for item in data]
        return {"object": "list", "data": data, "first_id": ids[0] if ids else None, "last_id": ids[-1] if ids else None, "has_more": False}

    def history(self, tenant: str, previous: str) -> list[Json]:
        """All items of the conversation up to and including an answer, oldest first. Raises InvalidRequest where one is gone."""
        turns: list[list[Json]] = []
        seen: set[str] = set()
        ident: str | None = previous
        while ident is not None:
            entry = self._look(tenant, ident)
            if entry is None or ident in seen:
                raise missing_response(ident)
            seen.add(ident)
            turns.append([*loads(entry.items), *listed(loads(entry.response).get("output"))])
            ident = entry.previous
        return self._resolved(tenant, [item for turn in reversed(turns) for item in turn])

    def item(self, tenant: str, ident: str) -> Json:
        """One input or output item by its id. Raises InvalidRequest."""
        shelf = self._shelves.get(tenant)
        entry = self._look(tenant, shelf.owners[ident]) if shelf is not None and ident in shelf.owners else None
        if entry is None:
            raise missing_item(ident)
        return next(item for item in (*loads(entry.items), *listed(loads(entry.response).get("output"))) if item.get("id") == ident)

    def expand(self, tenant: str, body: Json) -> Json:
        """The request with its history and its references written out. Raises InvalidRequest where something is gone."""
        previous, given = body.get("previous_response_id"), body.get("input")
        if not previous and not any(kind_of(item) == "item_reference" for item in listed(given)):
            return body
        before = self.history(tenant, str(previous)) if previous else []
        own = [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given if isinstance(given, list) else []
        rest = {key: value for key, value in body.items() if key != "previous_response_id"}
        return {**rest, "input": [*before, *self._resolved(tenant, own)]}

    def _resolved(self, tenant: str, items: list[Any]) -> list[Any]:
        return [self.item(tenant, text_of(item.get("id"))) if isinstance(item, dict) and kind_of(item) == "item_reference" else item for item in items]

    def _look(self, tenant: str, ident: str) -> _Entry | None:
        shelf = self._shelves.get(tenant)
        return shelf.find(ident, self._clock()) if shelf is not None else None

    def _find(self, tenant: str, ident: str) -> _Entry:
        entry = self._look(tenant, ident)
        if entry is None:
            raise NotFound(f"Response with id {ident[:100]!r} not found.", code="response_not_found")
        return entry

    def _make_room(self) -> None:
        if len(self._shelves) > self._most:  # most of them are empty: their answers were deleted, or expired
            self._shelves = {tenant: shelf for tenant, shelf in self._shelves.items() if shelf.entries}
        while sum(shelf.size for shelf in self._shelves.values()) > self._size or sum(len(shelf.entries) for shelf in self._shelves.values()) > self._most:
            name = max(self._shelves, key=lambda tenant: self._shelves[tenant].size)
            shelf = self._shelves[name]
            shelf.remove(next(iter(shelf.entries)))
            if not shelf.entries:
                del self._shelves[name]


def input_items(request: Mapping[str, Any]) -> list[Json]:
    """The input of a request as items that all have an id."""
    given = request.get("input")
    items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": given}]}] if isinstance(given, str) else listed(given)
    return [item if item.get("id") else {"id": mint(_PREFIXES.get(kind_of(item), "item")), **item} for item in items]


_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}


def native_request(body: Json) -> Json:
    """A request for a provider that serves /responses itself, without what only the gateway can read or look up."""
    given = body.get("input")
    if not isinstance(given, list):
        return body
    items = native_items(given)
    return body if items == given else {**body, "input": items}
