"""Equal requests get equal answers: from memory, or from the one call that is under way.

What equal means. A chain has several targets, and each gets a body of its own, so an answer
belongs to the target that gave it. Its key covers

    the client's side     tenant, model, endpoint, dialect, headers that reach providers, the body
    the target's side     its place in the chain, the URL, the body after adapters and hooks,
                          and the very adapter files that made it and that read the answer

Both, because an answer also repeats parts of the client's body, and because the same body is
sent differently when a file has changed, a refusal was learned, or lost reasoning is known.
Not covered are the headers that are made anew for each send (ids, signatures, keys).

A request is answered from memory for the target that would be asked now, or for one before it
in the chain, which rests: an answer outlives its provider's outage, and a stand-in's answer
ends with the outage. With another balance than `order` any target may be asked, so any will do.

Kept is what is complete, came with the first exchange (so from exactly the body in the key),
holds content, and was ended by the model itself: not by a limit of length, not by a filter.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from gateway import config
from gateway.adapters import Hooks
from gateway.chat import Accumulator, Body, Chunk, Json, Model, Record, Request, dumps, loads
from gateway.dialects import chat
from gateway.errors import GatewayError
from gateway.routing.answers import Answers, Event, Kept, SharedAnswers
from gateway.routing.chain import Chain
from gateway.routing.flight import Flight

_ENDED = frozenset(("stop", "tool_calls", "function_call", "end_turn", "tool_use", "stop_sequence", "completed"))
_LAST = (None, "message_delta", "response.completed", "response.incomplete", "response.failed")
"""Events that say how an answer ended; on completions, where they have no name, all may."""
_VECTORS = ("embeddings", "moderations", "rerank")
_SERVED = frozenset(("chat", "responses", "messages", "completions", *_VECTORS))
_ORDERED = ("order", "cheapest")
"""Balances with which the first target that can be asked is asked."""


Course = tuple[bytes, bool, bool, str | None, bool]
"""What requests that share one call have in common: the key of the target that is asked first, stream, include_usage, and how their chain is narrowed."""


def wants_kept(header: bytes | None, body: Mapping[str, Any]) -> bool:
    """Whether a client takes an answer that was kept: it says so (`x-thinkgate-cache: on`), or asks for temperature 0 and does not say `off`."""
    if header is not None:
        word = header.strip().lower()
        if word in (b"on", b"off"):
            return word == b"on"
    temperature = body.get("temperature")
    return temperature == 0 and type(temperature) in (int, float)


class Cache:
    """The kept answers and running calls of one config; `shared`: its answers in other processes too."""

    def __init__(self, answers: Answers | None = None, shared: SharedAnswers | None = None) -> None:
        self.answers = answers if answers is not None else Answers()
        self.shared = shared
        self.flights: dict[Course, Flight] = {}
        self._files: dict[str, tuple[Hooks, int]] = {}

    def over(self, chain: Chain) -> Model:
        """A chain behind this cache, or the chain itself where its model keeps no answers."""
        return chain if chain.settings.cache_exact is None else Cached(chain, chain.settings.cache_exact, self)

    def version(self, provider: str, hooks: Hooks) -> str | int:
        """What a provider's adapter and hook files are now: their digest, or for those without a file a number that is another one for other hooks."""
        if hooks.digest.strip():
            return hooks.digest
        known, number = self._files.get(provider, (None, 0))
        if known is not hooks:
            number += 1
            self._files[provider] = hooks, number
        return number


class Cached:
    """A `Model`: a chain whose answers are kept for `seconds`."""

    def __init__(self, chain: Chain, seconds: float, cache: Cache) -> None:
        self._chain = chain
        self._seconds = seconds
        self._cache = cache

    async def generate(self, request: Request) -> AsyncGenerator[Chunk]:
        """Yield a kept answer, one that is under way, or the chain's own. Raises what the chain does.

        `record.cache` says which: `hit`, no call was made for this request; `miss`.
        """
        async with aclosing(await self._found(request)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _found(self, request: Request) -> AsyncGenerator[Chunk]:
        if request.endpoint not in _SERVED:
            return self._chain.generate(request)
        request.record.cache = "miss"
        usual = Usual(request)
        if self._cache.shared is not None:
            await self._recall(usual.request)
        kept, keys = await self._look(request, usual)
        if kept is not None:
            return _replayed(kept, request, usual.include_usage)
        place = next(reversed(keys.values()), b"")
        if not place:
            return self._chain.generate(request)
        course = (place, request.stream, usual.include_usage, request.only, request.fallback)
        flight = self._cache.flights.get(course)
        return self._lead(request, usual, keys, course) if flight is None else self._follow(flight, request)

    async def _recall(self, request: Request) -> None:
        """What other processes remember of the reasoning that the client lost: it belongs to the bodies that the keys are made of."""
        if b"tool" in request.body.raw or b"function_call" in request.body.raw:
            for target in self._chain.settings.chain:
                await self._chain.providers[target.provider].recall(replace(request, target=target))

    async def _look(self, request: Request, usual: Usual) -> tuple[Kept | None, dict[str, bytes]]:
        """An answer that is kept, and the keys of the targets that may be asked, by name; an empty one where a name says too little."""
        plan, now = self._chain.plan(request), asyncio.get_running_loop().time()
        first_only = self._chain.settings.balance in _ORDERED
        keys: dict[str, bytes] = {}
        for target in plan.targets if first_only else (t for t in self._chain.settings.chain if t in plan.targets):
            key = self._key(usual, target)
            if key is None:
                continue
            kept = self._cache.answers.get(request.record.tenant, key)
            if kept is None and self._cache.shared is not None:
                kept = await self._cache.shared.get(request.record.tenant, key, self._cache.answers)
            if kept is not None:
                return kept, keys
            keys[target.name] = b"" if target.name in keys else key
            if first_only and plan.skip(target, now) is None:
                break
        return None, keys

    def _key(self, usual: Usual, target: config.Target) -> bytes | None:
        """The key of what a target would answer; None: it would not be asked."""
        request, provider = usual.request, self._chain.providers[target.provider]
        try:
            prepared = provider.prepare(replace(request, target=target))
        except GatewayError:
            return None
        place, version = self._chain.settings.chain.index(target), self._cache.version(target.provider, prepared.hooks)
        client = [request.record.tenant, self._chain.name, request.model, request.endpoint, request.dialect, sorted(request.headers.items())]
        digest = hashlib.sha256()
        for part in (dumps([*client, place, target.name, version, prepared.shown_url]), request.body.raw, prepared.data):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
        return digest.digest()

    async def _lead(self, request: Request, usual: Usual, keys: Mapping[str, bytes], course: Course) -> AsyncGenerator[Chunk]:
        """The chain's answer, which others may follow and which is kept if it can be."""
        flights, before = self._cache.flights, len(request.record.attempts)

        def ended(flight: Flight) -> None:
            del flights[course]
            if flight.over and flight.whole and flight.error is None:
                self._keep(flight, keys, before)

        flight = flights[course] = Flight(self._chain, request, ended, Accumulator() if usual.joins else None)
        try:
            async with aclosing(flight.read()) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            if not flight.over:  # this client leaves, others stay: one of them takes over the call and what it costs
                flight.orphan, request.record.cache = True, "hit"

    async def _follow(self, flight: Flight, request: Request) -> AsyncGenerator[Chunk]:
        """An answer that somebody else's call gets; one of its own where that fails before this client has read any of it."""
        record, theirs, began, told = request.record, flight.request.record, time.perf_counter(), False
        record.cache = "hit"
        try:
            async with aclosing(flight.read()) as chunks:
                async for chunk in chunks:
                    if not told:
                        told = True
                        record.upstream_seconds += time.perf_counter() - began
                        record.content_type = theirs.content_type
                        _tell(record, theirs.provider or "", theirs.target_model or "", theirs.transforms, theirs.tools)
                    yield chunk
        except Exception:
            if told:
                raise
        else:
            if flight.orphan:
                flight.orphan, record.usage, record.cost = False, theirs.usage, theirs.cost
            return
        record.cache = "miss"
        async with aclosing(self._chain.generate(request)) as chunks:
            async for chunk in chunks:
                yield chunk

    def _keep(self, flight: Flight, keys: Mapping[str, bytes], before: int) -> None:
        record = flight.request.record
        exchanges = [attempt for attempt in record.attempts[before:] if attempt.skipped is None]
        key = keys.get(f"{record.provider}/{record.target_model}")
        if len(exchanges) != 1 or not key:
            return
        form = _complete(flight)
        if form is not None:
            kept = Kept(record.provider or "", record.target_model or "", tuple(record.transforms), tuple(record.tools), *form)
            self._cache.answers.put(record.tenant, key, kept, self._seconds)
            if self._cache.shared is not None:
                self._cache.shared.put(record.tenant, key, kept, self._seconds)


class Usual:
    """A request in the form in which equal ones are equal: fields in order, and on chat without what says whether it is a stream.

    joins          its stream can be kept as a plain answer
    include_usage  the client wants a usage chunk at the end of its stream of chat
    """

    def __init__(self, request: Request) -> None:
        body = request.body.fresh()
        chats = request.endpoint == "chat"
        self.joins = chats and request.stream
        self.include_usage = chats and _take_usage(body) and request.stream
        if chats:
            body.pop("stream", None)
        body = dict(sorted(body.items()))  # only these: the order inside a schema or a message is read by models
        self.request = replace(request, body=Body(dumps(body), body), stream=request.stream and not chats)


def _take_usage(body: Json) -> bool:
    """Take `include_usage` out of a body: whether it was asked for."""
    options = body.get("stream_options")
    if not isinstance(options, dict) or not isinstance(asked := options.get("include_usage", False), bool):
        return False
    rest = {name: value for name, value in options.items() if name != "include_usage"}
    if rest:
        body["stream_options"] = rest
    else:
        del body["stream_options"]
    return asked


async def _replayed(kept: Kept, request: Request, include_usage: bool) -> AsyncGenerator[Chunk]:
    request.record.cache = "hit"
    _tell(request.record, kept.provider, kept.model, kept.transforms, kept.tools)
    for chunk in kept.chunks(request.stream, include_usage):
        yield chunk


def _tell(record: Record, provider: str, model: str, transforms: Sequence[str], tools: Sequence[str]) -> None:
    """What the record says of an answer that another request got. Its usage is not this one's: it was paid for once."""
    record.provider, record.target_model = provider, model
    record.first_content = time.perf_counter()
    record.tools.extend(tools)
    for note in transforms:
        record.note(note)


def _complete(flight: Flight) -> tuple[bytes, tuple[Event, ...]] | None:
    """The body, or the events, of an answer that may be kept; None: it may not."""
    request, chunks = flight.request, flight.chunks
    if flight.sum is not None:
        value = flight.sum.completion()
        if request.record.usage is not None:
            value.setdefault("usage", request.record.usage)
        return (dumps(value), ()) if chat.completion_has_content(value) and _ended(_ends(request.dialect, value)) else None
    if len(chunks) == 1 and chunks[0].whole:
        body = chunks[0].data
        return (body, ()) if request.endpoint in _VECTORS or _ended(_ends(request.dialect, loads(body))) else None
    ends = [end for chunk in chunks if chunk.event in _LAST for end in _ends(request.dialect, loads(chunk.data)) if end is not None]
    events = tuple((chunk.event, chunk.data, chunk.content) for chunk in chunks)
    return (b"", events) if _ended(ends) else None


def _ended(ends: Sequence[Any]) -> bool:
    """Whether the model itself ended every choice."""
    return bool(ends) and all(isinstance(end, str) and end in _ENDED for end in ends)


def _ends(dialect: str, value: Json) -> list[Any]:
    """How an answer, or an event of one, says that it ended."""
    if dialect == "messages":
        return [(value.get("delta") or value).get("stop_reason")]
    if dialect == "responses":
        return [(value.get("response") or value).get("status")]
    return [choice.get("finish_reason") for choice in value.get("choices") or ()]
