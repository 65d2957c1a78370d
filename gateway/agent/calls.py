"""The calls of one turn: made side by side, answered in their order, one observation for each, whatever happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from gateway.agent.arguments import BadArguments, prepare, read
from gateway.agent.memory.caps import cap_batch, cap_output
from gateway.agent.tools.registry import Registry
from gateway.agent.tools.tool import Context, Observation, Tool, observation
from gateway.failures import quote

CANCELLED = "Error: the run was cancelled before this call had finished; whether it took effect is unknown"
NOT_STARTED = "Error: the run was cancelled before this call was made"
GRACE = 1.0
"""seconds that a call has to end when it is told to; then it is left behind"""

_left: set[asyncio.Task[Any]] = set()
"""calls that did not end when they were told to"""


class Called(Protocol):
    """A call as the model made it; `arguments` is the text that it wrote, or the object that somebody put in its place."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> str | Mapping[str, Any]: ...


C = TypeVar("C", bound=Called)


async def _nothing(*_: Any) -> None:
    pass


async def call_all(
    calls: Sequence[C],
    registry: Registry,
    context_of: Callable[[C], Context],
    *,
    parallel: int = 4,
    timeout: float = 60.0,
    budget: int | None = None,
    on_start: Callable[[C], Awaitable[None]] = _nothing,
    on_end: Callable[[C, Observation, int], Awaitable[None]] = _nothing,
    secrets: Sequence[str] = (),
) -> list[Observation]:
    """One observation per call, in the order of the calls (X13, X18, B143).

    parallel  calls at a time; they begin in their order
    timeout   seconds of one call, of a tool without limits of its own
    budget    tokens that all outputs of the turn may have together (X7), shared fairly; None: only each one's own cap holds
    on_start  before a call is made
    on_end    with its observation (within its own cap) and milliseconds; also for one that was not made, because the
              run was cancelled. One that was cancelled while it told is told again
    secrets   what must not stand in the text of an error

    What goes wrong in a call is its observation and stops no other. Raised are what a callback
    raises, and CancelledError after `on_end` was told of every call that was open.
    """
    turn = _Turn(registry, context_of, timeout, tuple(secrets))
    gate = asyncio.Semaphore(max(parallel, 1))
    begun: dict[int, float] = {}
    seen: dict[int, Observation] = {}
    told: set[int] = set()

    async def tell(place: int) -> None:
        await on_end(calls[place], seen[place], round((time.monotonic() - begun[place]) * 1000) if place in begun else 0)
        told.add(place)

    async def one(place: int) -> None:
        async with gate:
            begun[place] = time.monotonic()
            await on_start(calls[place])
            seen[place] = await turn.observe(calls[place])
            await tell(place)

    tasks = [asyncio.create_task(one(place)) for place in range(len(calls))]
    try:
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            await _end(tasks, 2 * GRACE)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        if len(told) < len(calls):  # a tool raised CancelledError
            raise asyncio.CancelledError
    except asyncio.CancelledError:
        await _end(tasks, 2 * GRACE)
        for place in range(len(calls)):
            if place not in told:
                seen.setdefault(place, Observation(CANCELLED if place in begun else NOT_STARTED, ok=False))
                await tell(place)
        raise
    given = [seen[place] for place in range(len(calls))]
    return given if budget is None else share(given, budget)


def share(observations: Sequence[Observation], budget: int) -> list[Observation]:
    """The same with texts that together have at most `budget` tokens: short ones whole, the others cut to equal parts."""
    texts = cap_batch([one.text for one in observations], budget)
    return [one if text == one.text else replace(one, text=text) for one, text in zip(observations, texts, strict=True)]


class _Turn:
    def __init__(self, registry: Registry, context_of: Callable[[Any], Context], timeout: float, secrets: tuple[str, ...]) -> None:
        self._registry = registry
        self._context_of = context_of
        self._timeout = timeout
        self._secrets = secrets

    async def observe(self, call: Called) -> Observation:
        """Make one call. Whatever goes wrong in it is its observation."""
        tool = self._registry.find(call.name)
        if tool is None:
            return _error(self._registry.unknown(call.name))
        context = self._context_of(call)
        try:
            seen = await self._within_time(tool, _arguments(tool, call.arguments), context)
        except Exception as error:
            return failed(error, self._secrets)
        text = seen.text if seen.text.isascii() else seen.text.encode("utf-8", "replace").decode()  # half a pair of surrogates has no JSON form
        text = cap_output(text)
        return seen if text == seen.text else replace(seen, text=text)

    async def _within_time(self, tool: Tool, arguments: Any, context: Context) -> Observation:
        """A task of its own, so that a call which ignores its cancellation holds nobody up."""
        task = asyncio.create_task(_called(tool, arguments, context))
        try:
            await asyncio.wait([task], timeout=None if tool.own_limits else self._timeout)
        except asyncio.CancelledError:
            await _end([task], GRACE)
            raise
        if task.done():
            return task.result()
        await _end([task], GRACE)
        return _error(f"{tool.name} did not answer within {self._timeout:g} s; whether it took effect is unknown")


async def _called(tool: Tool, arguments: Any, context: Context) -> Observation:
    try:
        return observation(await tool.call(arguments, context))
    except SystemExit:  # a tool that calls exit() ends itself, not the gateway
        raise RuntimeError("the tool called exit()") from None


async def _end(tasks: Sequence[asyncio.Task[Any]], grace: float) -> None:
    """Cancel what still runs, and leave behind what has not ended `grace` seconds later."""
    open_ = [task for task in tasks if not task.done()]
    for task in open_:
        task.cancel()
    if open_:
        await asyncio.wait(open_, timeout=grace)
    for task in tasks:
        if task.done():
            _forget(task)
        else:
            _left.add(task)
            task.add_done_callback(_forget)


def _forget(task: asyncio.Task[Any]) -> None:
    """Look at how it ended, so that nobody warns of an exception that was never looked at."""
    _left.discard(task)
    if not task.cancelled():
        task.exception()


def _arguments(tool: Tool, raw: str | Mapping[str, Any]) -> Any:
    if not tool.lenient:
        return prepare(raw, tool.parameters)
    try:
        return read(raw)
    except BadArguments:
        return raw


def failed(error: BaseException, secrets: Sequence[str] = ()) -> Observation:
    """What a model is told of an exception: its class and message on one line, without secrets and traceback."""
    if isinstance(error, BadArguments):
        return _error(str(error))
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    name, message = type(error).__name__, quote(str(error), secrets)
    return _error(f"{name}: {message}" if message else name)


def _error(text: str) -> Observation:
    return Observation(f"Error: {text}", ok=False)
