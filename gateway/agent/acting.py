"""A turn's tool calls, made: checked, approved, repeated after a crash only where that is safe; one result for each, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.agent.arguments import BadArguments, as_json, call_ids, prepare
from gateway.agent.calls import call_all, share
from gateway.agent.endings import Paused
from gateway.agent.guards import REPEATED
from gateway.agent.memory.caps import turn_budget
from gateway.agent.run import Run, alias
from gateway.agent.tools.tool import Context, Observation, Pending, Tool
from gateway.agent.turn import Call, Turn
from gateway.chat import Json, loads

_FOREVER = 7 * 86_400.0  # seconds; what has limits of its own is not bounded by those of a call
UNKNOWN_OUTCOME = "The gateway stopped while this call ran, so its outcome is unknown. Do not assume that it failed or succeeded; check before you repeat it."
REFUSED = "A person refused this call"


class Made(msgspec.Struct):
    """One call on its way. `arguments` is the text that the model wrote, or what a person put in its place; `waits`: what it waits for."""

    id: str
    name: str
    arguments: str | Json
    key: str
    observation: Observation | None = None
    waits: list[Json] = []


async def act(run: Run, turn: Turn) -> tuple[Json, list[Json]]:
    """Make a turn's calls. Gives the turn's message as it goes back to the model, and a `tool` message for each call.

    Raises Paused when a call is the client's, or a person must approve one; what could be
    done was done then, and is found in the journal when the run goes on.
    """
    message, calls = mended(run, turn)
    made = [Made(call.id, call.name, call.arguments, f"call:{run.step}:{index}") for index, call in enumerate(calls)]
    for one in made:
        await _look(run, one)
    await _make(run, [one for one in made if one.observation is None and not one.waits])
    waiting = [wait for one in made for wait in one.waits]
    if waiting:
        raise Paused(waiting, run.agent.approval.timeout)
    seen = share([one.observation or Observation("", ok=False) for one in made], turn_budget(run.window))
    run.failed_calls = {one.id: not observation.ok for one, observation in zip(made, seen, strict=True)}
    return message, [{"role": "tool", "tool_call_id": one.id, "content": observation.text} for one, observation in zip(made, seen, strict=True)]


def mended(run: Run, turn: Turn) -> tuple[Json, list[Call]]:
    """The message with calls whose ids are there, short, and different in the whole run, and whose arguments are JSON; and the calls as they were meant."""
    given = turn.calls
    ids = call_ids([call.id if call.id not in run.ids else "" for call in given], run.id, run.step)
    run.ids.update(ids)
    entries = [entry for entry in turn.message.get("tool_calls") or () if isinstance(entry.get("function"), dict)]
    fixed = [
        {**entry, "id": ident, "type": "function", "function": {**entry["function"], "name": call.name, "arguments": as_json(call.arguments)}}
        for entry, ident, call in zip(entries, ids, given, strict=True)
    ]
    message = {**turn.message, "content": turn.message.get("content") or None, "tool_calls": fixed}
    return message, [Call(ident, call.name, call.arguments) for ident, call in zip(ids, given, strict=True)]


async def _look(run: Run, one: Made) -> None:
    """What is known of a call before it is made: its result, that it is not to be made, that somebody else makes it."""
    tool = run.tools.find(one.name)
    repeated = run.guard.repeated(one.name, one.arguments)
    finished = run.known("tool.finished", one.key)
    if finished is not None and finished.state is not None:
        one.observation = Observation(finished.state["text"], finished.state["ok"])
        if tool is not None and tool.pure and finished.state["made"]:  # what it did to the session is done again
            await call_all([one], run.tools, lambda call: context(run, call))
    elif tool is None and any(entry["function"]["name"] == one.name for entry in run.asked.tools):
        await _clients(run, one)
    elif tool is not None and repeated and not tool.pure:
        await _settle(run, one, Observation(REPEATED, ok=False))
    elif tool is not None:
        await _allowed(run, one, tool)


async def _allowed(run: Run, one: Made, tool: Tool) -> None:
    """Ask a person where the agent says so, and where a crash left it open whether the call was made."""
    name, crashed = tool.name, run.known("tool.started", one.key) is not None
    if crashed and tool.repeat == "never":
        await _settle(run, one, Observation(UNKNOWN_OUTCOME, ok=False))
        return
    reasons = []
    if tool.names.intersection(run.agent.approval.tools):
        reasons.append((f"approve:{one.key}", f"the agent wants to use {name}"))
    if crashed and tool.repeat == "ask":
        reasons.append((f"again:{one.key}", f"{name} was interrupted and its outcome is unknown; it would be called again"))
    for key, reason in reasons:
        try:
            arguments = prepare(one.arguments, tool.parameters)
        except BadArguments:
            return  # the call itself says so
        try:
            verdict = await run.approve(key, name, arguments, reason)
        except Paused as paused:
            one.waits = paused.calls
            return
        if not verdict["approved"]:
            await _settle(run, one, Observation(f"{REFUSED}: {verdict['reason']}" if verdict.get("reason") else f"{REFUSED}.", ok=False))
            return
        one.arguments = verdict["arguments"] if isinstance(verdict.get("arguments"), dict) else one.arguments


async def _clients(run: Run, one: Made) -> None:
    """A call of a tool that the client has: the client makes it, and the run goes on when it answers."""
    ident = alias(run.root.id, run.place(one.key))
    await run.emit("tool.started", {"id": ident, "name": one.name, "arguments": _readable(one.arguments), "client": True}, key=one.key)
    one.waits = [run.wait(ident, "client", one.name, one.arguments, one.key)]


async def _settle(run: Run, one: Made, observation: Observation) -> None:
    """A call that is not made has a result all the same."""
    await _start(run, one)
    await _finish(run, one, observation, 0, made=False)


async def _make(run: Run, made: Sequence[Made]) -> None:
    async def start(one: Made) -> None:
        await _start(run, one)

    async def end(one: Made, observation: Observation, ms: int) -> None:
        if isinstance(observation, Pending):
            one.waits = observation.waits
        else:
            await _finish(run, one, observation, ms, made=True)

    limits = run.agent.limits
    own = [one for one in made if getattr(run.tools.find(one.name), "own_limits", False)]
    others = [one for one in made if one not in own]
    together = [
        call_all(group, run.tools, lambda one: context(run, one), parallel=limits.parallel, timeout=timeout, on_start=start, on_end=end)
        for group, timeout in ((others, limits.tool), (own, _FOREVER))
        if group
    ]
    await asyncio.gather(*together)


async def _start(run: Run, one: Made) -> None:
    tool = run.tools.find(one.name)
    told = {"id": one.id, "name": one.name, "arguments": _readable(one.arguments)}
    await run.emit("tool.started", told, key=one.key, durable=tool is not None and tool.repeat != "safe")


async def _finish(run: Run, one: Made, observation: Observation, ms: int, *, made: bool) -> None:
    one.observation = observation
    told = {"id": one.id, "name": one.name, "ok": observation.ok, "ms": ms, "output": observation.text}
    if observation.data is not None:
        told["data"] = observation.data
    await run.emit("tool.finished", told, key=one.key, state={"text": observation.text, "ok": observation.ok, "made": made})


def context(run: Run, one: Made) -> Context:
    """What a tool may know of the run. What it emits gets keys of its own, for a run that is gone through again."""
    count = 0

    async def emit(type: str, data: Json) -> None:
        nonlocal count
        count += 1
        await run.emit(type, data, key=f"{one.key}#{count}")

    return Context(
        run_id=run.id,
        call_id=one.id,
        key=f"{run.id}:{one.key}",
        session=run.asked.session,
        tenant=run.asked.tenant,
        emit=emit,
        timeout=run.agent.limits.tool,
        run=run,
    )


def _readable(arguments: str | Json) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return loads(arguments or "{}")
    except ValueError:
        return arguments
