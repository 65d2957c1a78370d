"""What the tools that we serve keep of each MCP session: in this process, and where replicas share state in all of them."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from gateway.chat import dumps, loads
from gateway.store import Shared, SharedAway

MOST = 1000
IDLE = 1800.0
"""seconds after which a session that nobody used is forgotten"""

_GONE = b"-"


@dataclass(slots=True)
class Kept:
    """The values of one session, whose it is, how many bytes of arguments went into it in how many calls."""

    owner: str
    values: dict[str, Any] = field(default_factory=dict)
    size: int = 0
    calls: int = 0
    used: float = 0.0


class Sessions:
    """At most MOST of them in a process; the longest unused goes first."""

    def __init__(self, shared: Shared | None = None) -> None:
        self._shared = shared
        self._kept: OrderedDict[str, Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def begin(self, owner: str) -> str:
        """The id of a new session."""
        id = secrets.token_hex(16)
        self.save(id, self._put(id, Kept(owner)))
        return id

    async def find(self, id: str, owner: str) -> Kept | None:
        """A session that this owner began, here or in another process, and nobody has ended."""
        kept = self._kept.get(id)
        if kept is not None and kept.used < time.monotonic() - IDLE:
            del self._kept[id]
            kept = None
        if (told := await self._told(id)) == _GONE:
            self._kept.pop(id, None)
            return None
        heard = _heard(told)
        if heard is not None and (kept is None or heard.calls > kept.calls):
            kept = heard
        if kept is None or kept.owner != owner:
            return None
        return self._put(id, kept)

    async def named(self, name: str, owner: str) -> tuple[str, Kept]:
        """The session that a client names itself, and its id; a new one if there is none."""
        id = "named-" + hashlib.sha256(dumps([owner, name])).hexdigest()
        return id, await self.find(id, owner) or self._put(id, Kept(owner))

    def save(self, id: str, kept: Kept) -> None:
        """Tell the other processes."""
        if self._shared is not None:
            told = {"owner": kept.owner, "values": kept.values, "size": kept.size, "calls": kept.calls}
            self._shared.put(_key(id), dumps(told), IDLE)

    def forget(self, id: str) -> None:
        self._kept.pop(id, None)
        if self._shared is not None:
            self._shared.put(_key(id), _GONE, IDLE)

    async def settled(self) -> None:
        """Until the other processes know of it, if they can."""
        if self._shared is not None:
            await self._shared.settled()

    async def _told(self, id: str) -> bytes | None:
        if self._shared is None:
            return None
        try:
            (value,) = await self._shared.get(_key(id))
        except SharedAway:
            return None
        return value

    def _put(self, id: str, kept: Kept) -> Kept:
        self._kept[id] = kept
        self._kept.move_to_end(id)
        kept.used = time.monotonic()
        while len(self._kept) > MOST or next(iter(self._kept.values())).used < kept.used - IDLE:
            self._kept.popitem(last=False)
        return kept


def _heard(told: bytes | None) -> Kept | None:
    """What another process told of a session; nothing where that is another version, which tells it in another way."""
    if told is None:
        return None
    try:
        value = loads(told)
        return Kept(str(value["owner"]), dict(value["values"]), int(value["size"]), int(value["calls"]))
    except (KeyError, TypeError, ValueError):
        return None


def _key(id: str) -> bytes:
    return b"mcp:" + hashlib.sha256(id.encode("latin-1", "replace")).hexdigest().encode()
