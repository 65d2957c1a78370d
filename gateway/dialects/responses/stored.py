"""What a client may refer to instead of sending it again: answered requests, kept in this process, and in a shared state if there is one.

`previous_response_id` and item references are written out before anything else reads a
request, so that every provider gets the whole conversation.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from gateway.chat import Json, dumps, loads
from gateway.dialects.responses.carriers import native_items
from gateway.dialects.responses.inbound import kind_of, missing_item, missing_response
from gateway.dialects.responses.terms import listed, mint, text_of
from gateway.errors import InvalidRequest, NotFound
from gateway.store.faults import SharedAway

if TYPE_CHECKING:
    from gateway.store import Shared

DAY = 24 * 3600.0
SHARED = 3600.0
"""seconds after its last use for which the shared state has an answer"""
_MOST = 1000  # items of one request that are looked for there


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

    def told(self) -> bytes:
        """The same for another process."""
        return b"%b\n%b%b" % (dumps([self.previous, self.ids, len(self.response)]), self.response, self.items)

    @classmethod
    def heard(cls, told: bytes, expires: float) -> _Entry:
        head, _, texts = told.partition(b"\n")
        previous, ids, size = loads(head)
        return cls(texts[:size], texts[size:], previous, tuple(ids), expires)


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
    seconds that only rise. What processes with the same `shared` state keep, each can `find`.
    """

    def __init__(
        self,
        *,
        responses: int = 2000,
        size: int = 64 * 1024 * 1024,
        keep: float = DAY,
        clock: Callable[[], float] = time.monotonic,
        shared: Shared | None = None,
    ) -> None:
        self._most = responses
        self._size = size
        self._keep = keep
        self._clock = clock
        self._shared = shared
        self._shelves: dict[str, _Shelf] = {}

    async def settled(self) -> None:
        """Until other processes can find what was put, and nothing that was deleted: whoever has an answer may refer to it at once."""
        if self._shared is not None:
            await self._shared.settled()

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
            self._add(tenant, ident, entry)
            if self._shared is not None:
                self._shared.put(_name(b"kept", tenant, ident), entry.told(), SHARED)
                for item in listed(response.get("output")):
                    if isinstance(item.get("id"), str):
                        self._shared.put(_name(b"owner", tenant, item["id"]), ident.encode("utf-8"), SHARED)

    async def find(self, tenant: str, *wanted: str, items: Sequence[str] = ()) -> None:
        """Have here what other processes keep: these answers with all before them, and those that these items belong to. Raises nothing: it may be away."""
        shared = self._shared
        if shared is None or not (wanted or items):
            return
        try:
            shelf = self._shelves.get(tenant)
            unknown = [item for item in items if shelf is None or item not in shelf.owners][:_MOST]
            owners = await shared.get(*(_name(b"owner", tenant, item) for item in unknown)) if unknown else []
            after = {*wanted, *(owner.decode("utf-8") for owner in owners if owner is not None)}
            seen: set[str] = set()
            while after := after - seen:
                seen |= after
                after = await self._heard(shared, tenant, after)
        except (SharedAway, TypeError, ValueError):  # or another version keeps them in another way
            return

    async def find_for(self, tenant: str, body: Json) -> None:
        """The same for all that a request refers to."""
        previous = text_of(body.get("previous_response_id"))
        items = [text_of(item.get("id")) for item in listed(body.get("input")) if kind_of(item) == "item_reference"]
        await self.find(tenant, *([previous] if previous else []), items=items)

    def get(self, tenant: str, ident: str) -> Json:
        """The answer, a fresh copy. Raises NotFound."""
        response: Json = loads(self._find(tenant, ident).response)
        return response

    def delete(self, tenant: str, ident: str) -> Json:
        """Forget an answer and say so. Raises NotFound."""
        self._find(tenant, ident)
        self._forget(tenant, ident)
        if self._shared is not None:
            self._shared.put(_name(b"kept", tenant, ident), b"", SHARED)
            self._shared.put(_name(b"gone", tenant, ident), b"1", self._keep)
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

    async def _heard(self, shared: Shared, tenant: str, wanted: set[str]) -> set[str]:
        """Learn of some answers, and of those before them as far as they are known here; gives those before that are not."""
        known = [ident for first in wanted for ident in self._back(tenant, first)]
        unknown = [ident for ident in wanted if ident not in known]
        values = await shared.get(*(_name(b"gone", tenant, ident) for ident in known), *(_name(b"kept", tenant, ident) for ident in unknown))
        for ident, gone in zip(known, values, strict=False):
            if gone is not None:
                self._forget(tenant, ident)
            else:
                shared.hold(_name(b"kept", tenant, ident), SHARED)
        found = {ident: value for ident, value in zip(unknown, values[len(known) :], strict=True) if value}
        for ident, told in found.items():
            shared.hold(_name(b"kept", tenant, ident), SHARED)
            self._add(tenant, ident, _Entry.heard(told, self._clock() + self._keep))
        entries = [self._look(tenant, ident) for ident in (*known, *found)]
        return {entry.previous for entry in entries if entry is not None and entry.previous is not None} - {*known, *found}

    def _back(self, tenant: str, ident: str) -> Iterator[str]:
        """An answer and those before it that are known here."""
        seen: set[str] = set()
        while ident not in seen and (entry := self._look(tenant, ident)) is not None:
            yield ident
            seen.add(ident)
            if entry.previous is None:
                return
            ident = entry.previous

    def _forget(self, tenant: str, ident: str) -> None:
        shelf = self._shelves.get(tenant)
        if shelf is not None:
            shelf.remove(ident)

    def _add(self, tenant: str, ident: str, entry: _Entry) -> None:
        self._shelves.setdefault(tenant, _Shelf()).add(ident, entry)
        self._make_room()

    def _make_room(self) -> None:
        if len(self._shelves) > self._most:  # most of them are empty: their answers were deleted, or expired
            self._shelves = {tenant: shelf for tenant, shelf in self._shelves.items() if shelf.entries}
        while sum(shelf.size for shelf in self._shelves.values()) > self._size or sum(len(shelf.entries) for shelf in self._shelves.values()) > self._most:
            name = max(self._shelves, key=lambda tenant: self._shelves[tenant].size)
            shelf = self._shelves[name]
            shelf.remove(next(iter(shelf.entries)))
            if not shelf.entries:
                del self._shelves[name]


def _name(kind: bytes, tenant: str, ident: str) -> bytes:
    text = f"{len(tenant)} {tenant}{ident}".encode("utf-8", "surrogatepass")
    return b"response:%b:%b" % (kind, sha256(text).hexdigest().encode("ascii"))


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
