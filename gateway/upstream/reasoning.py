"""What clients lose between two turns: the reasoning of an assistant turn that called tools.

Kept when the turn is complete, by tenant and the id of its first tool call; given back to a
later request whose turn has that id and no reasoning of its own. Stale reasoning is worse
than none, so an id that stands twice in a request restores nothing, text goes only to the
same weights, and what is signed only to the provider and model that signed it.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from gateway.chat import Json, dumps, loads
from gateway.store import Shared, SharedAway

TEXT = ("reasoning_content", "reasoning")
SIGNED = ("reasoning_details", "thinking_blocks")
_UNKNOWN = 60.0  # seconds for which what nobody remembers is not asked for again


@dataclass(frozen=True, slots=True)
class Kept:
    """The reasoning of one turn: `signatures` are the calls' own `extra_content`, by id."""

    provider: str
    model: str
    fields: Json
    signatures: Json
    expires: float
    size: int


class Memory:
    """Bounded and expiring; the oldest entry goes first. Lives in this process.

    With `shared` it is kept there too. `restore` never waits, so what it did not find here is
    in `missing`, and may be there after `fetch`.
    """

    def __init__(
        self,
        entries: int = 20_000,
        size: int = 64 * 1024 * 1024,
        seconds: float = 4 * 3600,
        now: Callable[[], float] = time.monotonic,
        shared: Shared | None = None,
    ) -> None:
        self._entries = entries
        self._size = size
        self._seconds = seconds
        self._now = now
        self._kept: OrderedDict[tuple[str, str], Kept] = OrderedDict()
        self._held = 0
        self._shared = shared
        self._unknown: OrderedDict[tuple[str, str], float] = OrderedDict()
        self.missing: list[tuple[str, str]] = []
        """what the last request lacks and this process does not know"""

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, tenant: str, provider: str, model: str, message: Json) -> None:
        """Remember one complete assistant turn, if it called tools and reasoned."""
        ids = _call_ids(message)
        if not ids:
            return
        fields = {name: message[name] for name in (*TEXT, *SIGNED) if message.get(name)}
        signatures = {call["id"]: call["extra_content"] for call in message.get("tool_calls") or () if call.get("extra_content") and call.get("id")}
        if not (fields or signatures):
            return
        text = dumps([provider, model, fields, signatures])
        self._add((tenant, ids[0]), Kept(provider, model, fields, signatures, self._now() + self._seconds, len(text)))
        if self._shared is not None:
            self._shared.put(_name(tenant, ids[0]), text, self._seconds)

    def _add(self, key: tuple[str, str], kept: Kept) -> None:
        self._drop(key)
        self._unknown.pop(key, None)
        self._kept[key] = kept
        self._held += kept.size
        while self._kept and (len(self._kept) > self._entries or self._held > self._size or next(iter(self._kept.values())).expires <= self._now()):
            self._drop(next(iter(self._kept)))

    def restore(self, tenant: str, provider: str, model: str, messages: Iterable[Any]) -> int:
        """Give back what a request's assistant turns lack, in place; the number of turns that got something."""
        self.missing = []
        if not self._kept and self._shared is None:
            return 0
        bare = [m for m in messages if isinstance(m, dict) and m.get("role") == "assistant" and m.get("tool_calls")]
        times = Counter(ident for message in bare for ident in _call_ids(message))
        count = 0
        for message in bare:
            ids = _call_ids(message)
            if not ids or times[ids[0]] != 1:
                continue
            kept = self._kept.get((tenant, ids[0]))
            if kept is not None and kept.expires > self._now():
                count += _give(message, kept, provider, model)
            elif self._shared is not None and self._shared.up and not any(message.get(name) for name in (*TEXT, *SIGNED)):
                self._miss((tenant, ids[0]))
        return count

    async def fetch(self) -> bool:
        """Look for what is `missing` in the shared state; whether any of it is here now. Raises nothing: it may be away."""
        missing, self.missing = self.missing, []
        if self._shared is None or not missing:
            return False
        try:
            values = await self._shared.get(*(_name(*key) for key in missing))
        except SharedAway:
            return False
        found = False
        for key, value in zip(missing, values, strict=True):
            if value is not None:
                try:
                    provider, model, fields, signatures = loads(value)
                    self._add(key, Kept(provider, model, dict(fields), dict(signatures), self._now() + self._seconds, len(value)))
                except (TypeError, ValueError):  # another version of the gateway keeps them in another way
                    pass
                else:
                    found = True
                    continue
            self._unknown[key] = self._now() + _UNKNOWN
            while len(self._unknown) > self._entries:
                self._unknown.popitem(last=False)
        return found

    def _miss(self, key: tuple[str, str]) -> None:
        """One that nobody knew a moment ago is not asked for again."""
        if self._unknown.get(key, 0.0) <= self._now():
            self.missing.append(key)

    def _drop(self, key: tuple[str, str]) -> None:
        old = self._kept.pop(key, None)
        if old is not None:
            self._held -= old.size


def _give(message: Json, kept: Kept, provider: str, model: str) -> bool:
    """Put in what the turn lacks: its reasoning, if it has none at all, and the signatures of its calls."""
    same = kept.provider == provider and kept.model == model
    names: tuple[str, ...] = ()
    if not any(message.get(name) for name in (*TEXT, *SIGNED)):
        names = (*TEXT, *SIGNED) if same else TEXT if weights(kept.model) == weights(model) else ()
    given = {name: kept.fields[name] for name in names if name in kept.fields}
    message.update(given)
    changed = bool(given)
    if same and kept.signatures:
        for call in message["tool_calls"]:
            if call.get("id") in kept.signatures and not call.get("extra_content"):
                call["extra_content"] = kept.signatures[call["id"]]
                changed = True
    return changed


def _name(tenant: str, id: str) -> bytes:
    return b"reasoning:" + sha256(dumps([tenant, id])).hexdigest().encode("ascii")


def weights(model: str) -> str:
    """The weights behind a model's name, as far as the name tells: `deepseek-ai/DeepSeek-V4-Pro` and `deepseek-v4-pro` are the same."""
    return model.rsplit("/", 1)[-1].lower()


def _call_ids(message: Json) -> list[str]:
    return [call["id"] for call in message.get("tool_calls") or () if isinstance(call, dict) and isinstance(call.get("id"), str) and call["id"]]
