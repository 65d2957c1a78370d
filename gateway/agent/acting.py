"""A turn's tool calls, made: checked, approved, repeated after a crash only where that is safe; one result for each, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.agent.arguments import BadArguments, as_json, call_ids, prepare, read
from gateway.agent.calls import CANCELLED, NOT_STARTED, call_all, share
from gateway.agent.endings import Paused
from gateway.agent.guards import REPEATED
from gateway.agent.memory.caps import turn_budget
from gateway.agent.run import Run, alias
from gateway.agent.tools.tool import Context, Observation, Pending, Tool
from gateway.agent.turn import Call, Turn
from gateway.chat import Json, dumps, loads

UNKNOWN_OUTCOME = "The gateway stopped while this call ran, so its outcome is unknown. Do not assume that it failed or succeeded; check before you repeat it."
REFUSED = "A person refused this call"


class Made(msgspec.Struct):
    """One call on its way.

    arguments    the text that the model wrote, or what a person put in its place
    observation  its result, once it has one
    again        it has one from the journal, and is made once more for what it does to the session
    waits        what it waits for
    """

    id: str
    name: str
    arguments: str | Json
    key: str
    observation: Observation | None = None
    again: bool = False
    waits: list[Json] = []


async def act(run: Run, turn: Turn) -> tuple[Json, list[Json]]:
    """Make a turn's calls. Gives the turn's message as it goes back to the model (with the arguments that were used), and a `tool` message for each call.

    Raises Paused when a call is the client's, or a person must approve one; what could be
    done was done then, and is found in the journal when the run goes on.
    """
    message, calls = mended(run, turn)
    run.said = turn.text or run.said
    made = [Made(call.id, call.name, call.arguments, f"call:{run.step}:{index}") for index, call in enumerate(calls)]
    for one in made:
        await _look(run, one)
    await _make(run, [one for one in made if one.again or (one.observation is None and not one.waits)])
    waiting = [wait for one in made for wait in one.waits]
    if waiting:
        raise Paused(waiting, min(wait["timeout"] for wait in waiting))
    seen = share([one.observation or Observation("", ok=False) for one in made], turn_budget(run.window))
    for call, observation in zip(calls, seen, strict=True):
        if observation.text != REPEATED:
            run.guard.gave(_proper(run, call.name), call.arguments, observation.text)
    run.failed_calls = {one.id: not observation.ok for one, observation in zip(made, seen, strict=True)}
    said = [
        {**entry, "function": {**entry["function"], "arguments": dumps(one.arguments).decode()}} if isinstance(one.arguments, dict) else entry
        for entry, one in zip(message["tool_calls"], made, strict=True)
    ]
    answers = [{"role": "tool", "tool_call_id": one.id, "content": observation.text} for one, observation in zip(made, seen, strict=True)]
    return {**message, "tool_calls": said}, answers


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
    repeated = run.guard.repeated(_proper(run, one.name), one.arguments)
    finished = run.known("tool.finished", one.key)
    if finished is not None and finished.state is not None:
        _edited(run, one)
        one.observation = Observation(finished.state["text"], finished.state["ok"])
        run.count_inner(one.id)
        one.again = tool is not None and tool.pure and finished.state["made"]
    elif tool is None and any(entry.get("function", entry).get("name") == one.name for entry in run.asked.tools):
        await _clients(run, one)
    elif tool is not None and repeated and not tool.pure:
        await _settle(run, one, Observation(REPEATED, ok=False))
    elif tool is not None:
        await _allowed(run, one, tool)


def _proper(run: Run, name: str) -> str:
    """A tool's own name, however the model spells it."""
    tool = run.tools.find(name)
    return name if tool is None else tool.name


async def _allowed(run: Run, one: Made, tool: Tool) -> None:
    """Ask a person where the agent says so, and where a crash left it open whether the call was made."""
    crashed = run.known("tool.started", one.key) is not None
    if crashed and tool.repeat == "never":
        await _settle(run, one, Observation(UNKNOWN_OUTCOME, ok=False))
        return
    reasons = []
    if tool.names.intersection(run.agent.approval.tools):
        reasons.append((f"approve:{one.key}", f"the agent wants to use {tool.name}"))
    if crashed and tool.repeat == "ask":
        reasons.append((f"again:{one.key}", f"{tool.name} was interrupted and its outcome is unknown; it would be called again"))
    for key, reason in reasons:
        try:
            arguments = _as_called(tool, one.arguments)
        except BadArguments:
            return  # the call itself says so, and is not made
        try:
            verdict = await run.approve(key, tool.name, arguments, reason)
        except Paused as paused:
            one.waits = paused.calls
            return
        if not verdict["approved"]:
            await _settle(run, one, Observation(f"{REFUSED}: {verdict['reason']}" if verdict.get("reason") else f"{REFUSED}.", ok=False))
            return
        _edited(run, one)


def _edited(run: Run, one: Made) -> None:
    """The arguments that a person put in the place of the model's."""
    for key in (f"approve:{one.key}", f"again:{one.key}"):
        verdict = run.known("approval.resolved", key)
        if verdict is not None and isinstance(verdict.data.get("arguments"), dict):
            one.arguments = verdict.data["arguments"]


def _as_called(tool: Tool, arguments: str | Json) -> Any:
    """The arguments as the tool will get them. BadArguments where it will not be called."""
    if not tool.lenient:
        return prepare(arguments, tool.parameters)
    try:
        return read(arguments)
    except BadArguments:
        return {"arguments": arguments}


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
    """Make calls side by side. What the journal knows of one that is made again stays as it is."""

    async def start(one: Made) -> None:
        if not one.again:
            await _start(run, one)

    async def end(one: Made, observation: Observation, ms: int) -> None:
        if one.again or observation.text in (CANCELLED, NOT_STARTED):
            return  # a run that is interrupted may go on elsewhere; `close` says it where it ends
        if isinstance(observation, Pending):
            one.waits = observation.waits
            return
        await _finish(run, one, observation, ms, made=True)

    limits = run.agent.limits
    await call_all(made, run.tools, lambda one: context(run, one), parallel=limits.parallel, timeout=limits.tool, on_start=start, on_end=end)


async def close(run: Run, why: str = CANCELLED) -> None:
    """The run ends here: what was begun in it, and in agents that it asked, has an end. The latest thing first."""
    ends = {"tool.started": "tool.finished", "phase.started": "phase.finished", "run.started": "run.finished"}
    started = [event for type in ends for event in run.events(type) if run.inside(event) and (type != "run.started" or event.inner not in (None, run.id))]
    over = {(event.type, event.key) for type in ends.values() for event in run.events(type)}
    for event in sorted(started, key=lambda event: -event.seq):
        end = ends[event.type]
        if (end, event.key) in over:
            continue
        if end == "tool.finished":
            told = {"id": event.data.get("id"), "name": event.data.get("name"), "ok": False, "ms": 0, "output": why}
            await run.emit_as(event, end, told, {"text": why, "ok": False, "made": False})
        elif end == "phase.finished":
            await run.emit_as(event, end, {**event.data, "stopped": "cancelled"}, None)
        else:
            await run.emit_as(event, end, {"status": "cancelled", "reason": None, "output": ""}, None)


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
