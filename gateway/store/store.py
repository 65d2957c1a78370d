"""The store as the rest of the gateway sees it. No SQL leaves this package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from gateway.store import keys, pins, requests
from gateway.store.engine import Engine
from gateway.store.faults import StoreUnavailable
from gateway.store.rows import KeyRow, Page, RequestRow, UsageRow
from gateway.store.run_store import Runs
from gateway.store.schema import version


class Store(Protocol):
    """Keys, requests, usage and agent runs. Every method may raise StoreUnavailable; the same call may succeed later."""

    runs: Runs
    """runs of agents and their sessions"""

    async def pepper(self) -> bytes:
        """The 32 bytes under which keys are digested: made once per store."""

    async def add_key(self, row: KeyRow) -> None:
        """Conflict if its id or digest is taken, InvalidRequest for a value that cannot be kept."""

    async def keys(self) -> list[KeyRow]:
        """All, the revoked too, the oldest first."""

    async def key_by_digest(self, digest: bytes) -> KeyRow | None: ...

    async def update_key(self, id: str, /, **changes: Any) -> KeyRow | None:
        """The key with these fields of KeyRow changed; None: there is none. `id`, `digest` and `created` cannot change."""

    async def revoke_key(self, id: str, at: float) -> bool:
        """False: there is none. The moment of a first revocation stays."""

    async def rotate_key(self, id: str, successor: KeyRow, overlap_until: float) -> None:
        """Add the successor and end the old key at that moment, both or neither. InvalidRequest if there is no old key."""

    async def delete_key(self, id: str) -> bool:
        """Forget a key; what it used stays in the sums."""

    async def key_version(self) -> int:
        """Rises with every change of any key. Read it before `keys()`: then what is seen later is never missed."""

    async def write_requests(self, rows: Sequence[RequestRow]) -> int:
        """Keep all of them or none. Rows written before (by `uid`) are left out, so a failed call can be repeated. Gives the number of new ones."""

    async def requests(self, limit: int = 100, before: int | None = None, key_name: str | None = None, model: str | None = None) -> Page:
        """The newest first, at most 1,000; `before` is the `next` of the page before."""

    async def request(self, id: str) -> RequestRow | None:
        """The latest with this id: clients choose ids, and may choose one twice."""

    async def usage(self, by: str, since: float | None = None, until: float | None = None) -> list[UsageRow]:
        """Sums by `key`, `model` or `provider`, of the whole hours that `since` to `until` (unix seconds) touch."""

    async def spent(self, *, key_id: str | None = None, team: str | None = None, since: float = 0.0) -> float:
        """USD that one key or one team spent since the full hour (UTC) of that moment."""

    async def pins(self) -> dict[str, bytes]:
        """All that was pinned, by name."""

    async def pin(self, values: Mapping[str, bytes]) -> None:
        """Pin these, in place of what has the same name."""

    async def retain(self, requests_older_than: float) -> int:
        """Delete the requests that began before that moment, unix seconds. The sums stay. Gives their number."""

    async def claim(self, task: str, seconds: float) -> bool:
        """Take a task that all processes on this store do together once in so many seconds; False: another one has it."""

    async def backup(self, path: Path) -> None:
        """A copy of everything in a new file. StoreRefused: the file exists, or the database has a tool of its own."""

    async def check(self) -> str:
        """`ok`, or why not; for `/readyz`. Raises nothing."""

    async def aclose(self) -> None:
        """What is under way ends first."""


class SqlStore:
    """The Store on an engine. `most`: the number of requests that it keeps, the newest; None: all, until `retain`."""

    def __init__(self, engine: Engine, most: int | None = None) -> None:
        self.engine = engine
        self._most = most
        self.runs = Runs(engine)

    async def pepper(self) -> bytes:
        return await self.engine.read(keys.pepper())

    # A revocation must not come back after a power cut: changes of keys are durable

    async def add_key(self, row: KeyRow) -> None:
        await self.engine.write(keys.add(row), durable=True)

    async def keys(self) -> list[KeyRow]:
        return await self.engine.read(keys.everyone())

    async def key_by_digest(self, digest: bytes) -> KeyRow | None:
        return await self.engine.read(keys.by_digest(digest))

    async def update_key(self, id: str, /, **changes: Any) -> KeyRow | None:
        return await self.engine.write(keys.update(id, changes), durable=True)

    async def revoke_key(self, id: str, at: float) -> bool:
        return await self.engine.write(keys.revoke(id, at), durable=True)

    async def rotate_key(self, id: str, successor: KeyRow, overlap_until: float) -> None:
        await self.engine.write(keys.rotate(id, successor, overlap_until), durable=True)

    async def delete_key(self, id: str) -> bool:
        return await self.engine.write(keys.delete(id), durable=True)

    async def key_version(self) -> int:
        return await self.engine.read(keys.count())

    async def write_requests(self, rows: Sequence[RequestRow]) -> int:
        return await self.engine.write(requests.write(rows, self._most))

    async def requests(self, limit: int = 100, before: int | None = None, key_name: str | None = None, model: str | None = None) -> Page:
        return await self.engine.read(requests.page(limit, before, key_name, model))

    async def request(self, id: str) -> RequestRow | None:
        return await self.engine.read(requests.one(id))

    async def usage(self, by: str, since: float | None = None, until: float | None = None) -> list[UsageRow]:
        return await self.engine.read(requests.usage(by, since, until))

    async def spent(self, *, key_id: str | None = None, team: str | None = None, since: float = 0.0) -> float:
        if (key_id is None) == (team is None):
            raise ValueError("either a key or a team")
        return await self.engine.read(requests.spent("key_id", key_id, since) if key_id is not None else requests.spent("team", team or "", since))

    async def pins(self) -> dict[str, bytes]:
        return await self.engine.read(pins.everything())

    async def pin(self, values: Mapping[str, bytes]) -> None:
        await self.engine.write(pins.put(values))

    async def retain(self, requests_older_than: float) -> int:
        total = 0
        while gone := await self.engine.write(requests.forget(requests_older_than)):
            total += gone
        return total

    async def claim(self, task: str, seconds: float) -> bool:
        return await self.runs.take_task(task, seconds)

    async def backup(self, path: Path) -> None:
        await self.engine.backup(path)

    async def check(self) -> str:
        try:
            await self.engine.read(version(self.engine.dialect))
        except StoreUnavailable as error:
            return error.message
        return "ok"

    async def aclose(self) -> None:
        await self.engine.aclose()
