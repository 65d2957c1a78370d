"""What the processes of a gateway know together, in Redis or Valkey; without it each knows only its own.

`ask` and `get` wait for an answer, at most 0.2 s once: the first command that is late breaks
the connection, and from then on nobody asks until a new one has answered (`up`). `tell` and
`put` never wait. Everything here may be lost at any moment without harm: who uses it keeps a
copy of his own part, goes on with that while nothing is there, and tells it again to a server
that is back (`joined`).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gateway.chat import dumps, loads
from gateway.store.faults import SharedAway
from gateway.store.resp import Future, Link, Place, Refused, bulk, encode

log = logging.getLogger("thinkgate")

BEAT = 0.5
"""seconds between two rounds in which the processes tell each other what they know; also between two tries to reach a server"""
ALIVE = 5.0
"""seconds after which a process that tells nothing is not counted any more"""
GATHER = 2.0
"""seconds after an outage in which the processes that were there before are waited for: each tells its part before anybody asks"""
LARGEST = 1024 * 1024
"""bytes of one value; what is larger stays in its process"""
_ROOM = 4 * LARGEST  # bytes of values that may be on their way; the connection is given up at twice as many


class Script:
    """One step in Lua that the server takes alone. Keys are named without the prefix."""

    def __init__(self, text: str) -> None:
        self.text = text.encode("ascii")
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest().encode("ascii")


_BEAT = Script("""
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local new = redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[3])
local gone = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)
if #gone > 0 then
  redis.call('ZREM', KEYS[1], unpack(gone))
  redis.call('HDEL', KEYS[2], unpack(gone))
end
return {redis.call('GET', KEYS[3]) or '0', redis.call('HGETALL', KEYS[2]), new}
""")

_LEAVE = Script("""
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
""")


@dataclass(frozen=True, slots=True)
class Peer:
    """One process as it told about itself: where it runs, the revision of its config, and how often it had to connect."""

    name: str
    revision: str
    joins: int = 0


class Shared:
    """The connection that a process has. `open` never fails: a server that is away may come back.

    joined   called with every new connection before it is used, and when the server has lost its data, to `tell` what this process knows
    beats    awaited in each round while the server is there
    resized  called with the number of processes whenever that changes
    reloads  called when another process asks all to read their config again
    """

    def __init__(self, url: str, processes: int = 1) -> None:
        self.place = Place.parse(url)
        self.id = secrets.token_hex(6)
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self.revision = ""
        self.fault: str | None = "it was not asked yet"
        self.peers: Mapping[str, Peer] = {}
        self.processes = processes
        """how many there are, this one included, as far as was known last"""
        self.lost = 0
        """how often the server was lost"""
        self.joined: list[Callable[[], None]] = []
        self.beats: list[Callable[[], Awaitable[None]]] = []
        self.resized: list[Callable[[int], None]] = []
        self.reloads: list[Callable[[], object]] = []
        self._prefix = b"{" + self.place.prefix.encode() + b"}:"  # in braces: one slot of a cluster
        self._scripts: list[Script] = [_BEAT, _LEAVE]
        self._link: Link | None = None
        self._at = self.place
        """where the data are: in a cluster a node may name another one"""
        self._known = False
        """whether the server has heard of this process over the present connection"""
        self._ready = False
        self._joins = 0
        self._since = 0.0
        self._missed: dict[str, int] = {}
        self._reload: int | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def up(self) -> bool:
        """Whether it is worth asking."""
        return self._ready and self._link is not None and self._link.up

    def know(self, *scripts: Script) -> None:
        """Scripts that will be run; said before `open`."""
        self._scripts += scripts

    async def open(self) -> None:
        """Connect if the server is there, and go on trying."""
        await self._turn()
        self._task = asyncio.get_running_loop().create_task(self._keep())

    async def aclose(self) -> None:
        """Tell the others that this process leaves."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
        link, self._link = self._link, None
        self.fault, self._ready = "this process has left", False
        if link is not None and link.up:
            link.tell(self._command(_LEAVE, (b"alive", b"info"), (self.id.encode(),)))
            try:
                await link.drain()
            except (SharedAway, Refused):
                pass
            link.close()

    def ask(self, script: Script, keys: tuple[bytes, ...], values: tuple[bytes, ...]) -> Future:
        """Run a script; gives its answer to come. SharedAway, at once while the server is away."""
        link = self._link
        if link is None or not self._ready:
            raise SharedAway(self.fault or "it is away")
        return link.ask(self._command(script, keys, values))

    def tell(self, script: Script, keys: tuple[bytes, ...], values: tuple[bytes, ...]) -> None:
        """Run a script whose answer does not matter; nothing while the server is away."""
        if self._link is not None:
            self._link.tell(self._command(script, keys, values))

    def ask_for(self, command: bytes) -> Future:
        """`ask` with a command that `head` begins and `bulk`s end: for the hot path."""
        link = self._link
        if link is None or not self._ready:
            raise SharedAway(self.fault or "it is away")
        return link.ask(command)

    def tell_of(self, command: bytes) -> None:
        """`tell` with such a command."""
        if self._link is not None:
            self._link.tell(command)

    def head(self, script: Script, keys: int, values: int) -> bytes:
        """The begin of a command that runs a script on so many keys and values."""
        return b"*%d\r\n%b%b%b" % (3 + keys + values, bulk(b"EVALSHA"), bulk(script.sha), bulk(b"%d" % keys))

    def key(self, name: bytes) -> bytes:
        """A key as it stands in a command."""
        return bulk(self._prefix + name)

    async def get(self, *keys: bytes) -> list[bytes | None]:
        """The values under these keys. SharedAway."""
        if self._link is None or not self._ready:
            raise SharedAway(self.fault or "it is away")
        try:
            values: list[bytes | None] = await self._link.ask(encode(b"MGET", *(self._prefix + key for key in keys)))
        except Refused as error:
            raise SharedAway(str(error)) from None
        return values

    def put(self, key: bytes, value: bytes, seconds: float) -> None:
        """Keep a value for so long, if it is not too large and others have left: what counts must not wait behind it."""
        if self._link is not None and len(value) <= LARGEST and self._link.waiting + len(value) <= _ROOM:
            self._link.tell(encode(b"SET", self._prefix + key, value, b"PX", b"%d" % max(1, int(seconds * 1000))))

    def hold(self, key: bytes, seconds: float) -> None:
        """Keep what is there for so long from now on."""
        if self._link is not None:
            self._link.tell(encode(b"PEXPIRE", self._prefix + key, b"%d" % max(1, int(seconds * 1000))))

    async def settled(self) -> None:
        """Until the server has all that was told, if it is there."""
        if self._ready and self._link is not None:
            try:
                await self._link.drain()
            except (SharedAway, Refused):
                pass

    def call_reload(self) -> None:
        """Ask all other processes to read their config again."""
        if self._link is not None and self._reload is not None:
            self._reload += 1
            self._link.tell(encode(b"INCR", self._prefix + b"reload"))

    def state(self) -> dict[str, Any]:
        """For `/readyz`: whether it is there, who else is, and whose config is another one."""
        others = [peer for id, peer in self.peers.items() if id != self.id]
        return {
            "state": "up" if self.up else "away",
            "error": None if self.up else self.fault,
            "processes": self.processes,
            "revision": self.revision,
            "other_revisions": {peer.name: peer.revision for peer in others if peer.revision != self.revision},
        }

    def _command(self, script: Script, keys: tuple[bytes, ...], values: tuple[bytes, ...]) -> bytes:
        prefix = self._prefix
        return encode(b"EVALSHA", script.sha, b"%d" % len(keys), *[prefix + key for key in keys], *values)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(BEAT if self._ready or self._link is None or not self._link.up else BEAT / 5)
            await self._turn()

    async def _turn(self) -> None:
        """One round: connect where nothing is, and hear from the others."""
        try:
            if self._link is None or not self._link.up:
                await self._connect()
            peers = await self._beat()
            if not self._ready:
                self._gather(peers)
            if self._ready:
                self._meet(peers)
                for beat in self.beats:
                    await beat()
        except (SharedAway, Refused) as error:
            self._down(str(error))
            self._at = _moved(str(error), self._at) if isinstance(error, Refused) else self.place
        except Exception as error:  # of this process or of the server: the next round is tried all the same
            log.exception("the round of the shared state failed")
            self._down(type(error).__name__)

    async def _connect(self) -> None:
        self._ready = self._known = False
        link, _ = await Link.open(self._at, [encode(b"SCRIPT", b"LOAD", script.text) for script in self._scripts])
        self._link = link
        self._joins += 1
        self._tell_all()
        await link.drain()  # what was told is there before anybody asks
        self._since = time.monotonic()
        self._missed = {id: peer.joins for id, peer in self.peers.items() if id != self.id}
        link.lost.add_done_callback(lambda lost: self._down(str(lost.result())) if link is self._link else None)

    def _tell_all(self) -> None:
        for join in self.joined:
            join()

    def _gather(self, peers: Mapping[str, Peer]) -> None:
        """After an outage the others tell their part too, before anybody asks; those that do not come are not waited for long."""
        late = [id for id, joins in self._missed.items() if id not in peers or peers[id].joins <= joins]
        if late and time.monotonic() - self._since < GATHER:
            return
        if self.lost:
            log.warning("the shared state is back")
        self._ready, self.fault = True, None

    async def _beat(self) -> dict[str, Peer]:
        """Tell that this process is there; who else is."""
        assert self._link is not None
        told = dumps({"name": self.name, "revision": self.revision, "joins": self._joins})
        command = self._command(_BEAT, (b"alive", b"info", b"reload"), (self.id.encode(), b"%d" % int(ALIVE * 1e6), told))
        counter, pairs, new = await self._link.ask(command)
        if new and self._known:  # its data are gone (FLUSHALL), or it took this process for dead
            self._tell_all()
        self._known = True
        before, self._reload = self._reload, int(counter)
        if before is not None and self._reload > before:
            for reload in self.reloads:
                reload()
        return {pairs[i].decode(): _peer(pairs[i + 1]) for i in range(0, len(pairs), 2)}

    def _meet(self, peers: Mapping[str, Peer]) -> None:
        self.peers = peers
        if len(peers) != self.processes:
            self.processes = len(peers)
            for resize in self.resized:
                resize(self.processes)

    def _down(self, why: str) -> None:
        """From now on nobody asks, until a new connection has answered."""
        if self.fault is None:
            log.error("the shared state is away, limits are this process's part (1 of %d): %s", self.processes, why)
            self.lost += 1
        self.fault, self._ready = why, False
        if self._link is not None and self._link.up:
            self._link.close(why)


def _peer(told: bytes) -> Peer:
    """One process; one of another version may tell less of itself."""
    try:
        value = loads(told)
        return Peer(str(value.get("name", "?")), str(value.get("revision", "?")), int(value.get("joins", 0)))
    except (AttributeError, TypeError, ValueError):
        return Peer("?", "?")


def _moved(error: str, place: Place) -> Place:
    """The place that a cluster's node names for all of our keys (`MOVED 3999 10.0.0.7:6379`), or the same one."""
    words = error.split()
    if len(words) != 3 or words[0] != "MOVED":
        return place
    host, _, port = words[2].rpartition(":")
    return replace(place, host=host.strip("[]") or place.host, port=int(port)) if port.isascii() and port.isdigit() else place


def microseconds(seconds: float) -> bytes:
    return b"%d" % int(seconds * 1e6)


def age(moment: float) -> bytes:
    """How long ago a monotonic moment was, for a server with a clock of its own."""
    return microseconds(max(0.0, time.monotonic() - moment))
