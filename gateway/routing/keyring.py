"""The keys of a provider that has several: which one is used next, and which ones rest.

A refused key (401, 403, an empty balance) and one at its rate limit rest, the target does
not: it is asked again with the next key at once. Keys rest as targets do, with the same
arithmetic, under names of their own (`provider/key 2`; no model's name holds a blank).
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.config import Secret
from gateway.routing.health import Health

KEY_FAULTS = ("auth", "balance", "rate_limit")
"""Failure classes that are about the key."""


class Keyring:
    """Keys of equal rank, used in turn."""

    def __init__(self, provider: str, keys: Sequence[Secret], health: Health) -> None:
        self.keys = tuple(keys)
        self.names = tuple(f"{provider}/key {number}" for number in range(1, len(keys) + 1))
        self._health = health
        self._last = -1

    def free(self) -> bool:
        """Whether a key may be used as usual."""
        return any(self._health.free(name) for name in self.names)

    def may_probe(self) -> bool:
        """Whether one may be tried where no other target is left."""
        return any(self._health.may_probe(name) for name in self.names)

    def rest(self) -> float:
        """Seconds until the first key may be used; 0: now."""
        return min(self._health.rest(name) for name in self.names)

    def kinds(self) -> list[str]:
        """The failure classes for which keys rest."""
        return [kind for name in self.names if not self._health.free(name) and (kind := self._health.kind(name)) is not None]

    def why(self) -> str:
        """Why no key can be used."""
        rest = self.rest()
        when = f"the first is free in {rest:.1f} s" if rest > 0 else "one is being tried again"
        return f"none of its {len(self.keys)} keys can be used ({', '.join(dict.fromkeys(self.kinds()))}), {when}"

    def take(self) -> int:
        """The number of the key for the next request: in turn among those that are free, else the one to probe."""
        order = [(self._last + step) % len(self.keys) for step in range(1, len(self.keys) + 1)]
        free = next((number for number in order if self._health.free(self.names[number])), None)
        if free is None:
            free = next((number for number in order if self._health.may_probe(self.names[number])), order[0])
        self._last = free
        return free
