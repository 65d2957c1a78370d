"""Complete answers, kept for a while: bounded, expiring, and each seen by its tenant alone. They live in this process, and in a shared state if there is one.

An answer is kept in the client's dialect. On chat it is kept plain, whichever way it came, and
makes a stream again where one is asked for; in other dialects turning one form into the other
would lose what only that dialect can say, so there the form belongs to the key.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from gateway.chat import Chunk, dumps, loads
from gateway.dialects import chat
from gateway.store import Shared, SharedAway

LARGEST = 4 * 1024 * 1024
"""bytes of one answer"""
_OVERHEAD = 1024  # bytes of an entry beside its text, roughly

Event = tuple[str | None, bytes, bool]
"""Name and data of one event, and whether it carries content."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One answer: a plain `body`, or the `events` of a stream; who gave it, and what the record says about it."""

    provider: str
    model: str
    transforms: tuple[str, ...]
    tools: tuple[str, ...]
    body: bytes = b""
    events: tuple[Event, ...] = ()

    @property
    def size(self) -> int:
        return _OVERHEAD + len(self.body) + sum(_OVERHEAD // 8 + len(data) for _, data, _ in self.events)

    def chunks(self, stream: bool, include_usage: bool) -> list[Chunk]:
        """The answer for one client, in chunks that nobody else has."""
        if self.events:
            out = [Chunk(data, event=name, content=content) for name, data, content in self.events]
        elif stream:
            out = chat.split(loads(self.body), include_usage=include_usage)
        else:
            return [Chunk(self.body, whole=True, content=True)]
        for chunk in out[:-1]:
            chunk.more = True
        return out


@dataclass(slots=True)
class _Shelf:
    """One tenant's answers, the least recently used first."""

    entries: OrderedDict[bytes, tuple[Kept, float]]
    size: int = 0

    def remove(self, key: bytes) -> None:
        kept, _ = self.entries.pop(key)
        self.size -= kept.size

    def forget(self, now: float) -> None:
        """Drop what has expired, as far as it stands first."""
        while self.entries and next(iter(self.entries.values()))[1] <= now:
            self.remove(next(iter(self.entries)))


class Answers:
    """`entries` and `size` (bytes) bound the whole; what is full loses the least recently used answer of the tenant that holds most."""

    def __init__(self, entries: int = 10_000, size: int = 64 * 1024 * 1024, now: Callable[[], float] = time.monotonic) -> None:
        self._most = entries
        self._size = size
        self._now = now
        self._shelves: dict[str, _Shelf] = {}

    def __len__(self) -> int:
        return sum(len(shelf.entries) for shelf in self._shelves.values())

    @property
    def size(self) -> int:
        return sum(shelf.size for shelf in self._shelves.values())

    def get(self, tenant: str, key: bytes) -> Kept | None:
        """A tenant's answer under a key; None: there is none, or none that is fresh."""
        shelf = self._shelves.get(tenant)
        found = shelf.entries.get(key) if shelf is not None else None
        if shelf is None or found is None:
            return None
        if found[1] <= self._now():
            shelf.remove(key)
            return None
        shelf.entries.move_to_end(key)
        return found[0]

    def put(self, tenant: str, key: bytes, kept: Kept, seconds: float) -> None:
        """Keep an answer for so many seconds, if it is not too large."""
        if kept.size > min(LARGEST, self._size):
            return
        now = self._now()
        shelf = self._shelves.setdefault(tenant, _Shelf(OrderedDict()))
        if key in shelf.entries:
            shelf.remove(key)
        shelf.entries[key] = kept, now + seconds
        shelf.size += kept.size
        shelf.forget(now)
        while len(self) > self._most or self.size > self._size:
            self._give_way(now)

    def _give_way(self, now: float) -> None:
        tenant, fullest = max(self._shelves.items(), key=lambda item: item[1].size)
        fullest.remove(next(iter(fullest.entries)))
        fullest.forget(now)
        if not fullest.entries:
            del self._shelves[tenant]


class SharedAnswers:
    """The same answers for all processes with this config (`revision`); what is not there, or not to be had, is None."""

    def __init__(self, shared: Shared, revision: str) -> None:
        self._shared = shared
        self._revision = revision

    async def get(self, tenant: str, key: bytes, into: Answers) -> Kept | None:
        """Another process's answer, which is kept here too for as long as it lasts."""
        try:
            (found,) = await self._shared.get(self._name(tenant, key))
        except SharedAway:
            return None
        if found is None:
            return None
        try:
            value = loads(found)
            left = value["until"] - time.time()
            events = tuple((name, data.encode("utf-8"), content) for name, data, content in value["events"])
            kept = Kept(value["provider"], value["model"], tuple(value["transforms"]), tuple(value["tools"]), value["body"].encode("utf-8"), events)
        except (AttributeError, KeyError, TypeError, ValueError):  # another version of the gateway keeps them in another way
            return None
        if left <= 0:
            return None
        into.put(tenant, key, kept, left)
        return kept

    def put(self, tenant: str, key: bytes, kept: Kept, seconds: float) -> None:
        try:
            events = [(name, data.decode("utf-8"), content) for name, data, content in kept.events]
            body = kept.body.decode("utf-8")
        except UnicodeDecodeError:  # it stays here
            return
        value = {"provider": kept.provider, "model": kept.model, "transforms": kept.transforms, "tools": kept.tools, "body": body, "events": events}
        self._shared.put(self._name(tenant, key), dumps({**value, "until": time.time() + seconds}), seconds)

    def _name(self, tenant: str, key: bytes) -> bytes:
        return b"answer:" + sha256(dumps([self._revision, tenant]) + key).hexdigest().encode("ascii")
