"""From a question to an answer, with tools between: the loop that all patterns share.

Its parts: the words before the conversation, the turns in which the model may act, and what
happens when it does not come to an end by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from gateway.agent.acting import act
from gateway.agent.arguments import BadArguments, from_text
from gateway.agent.compacting import fit, overflows, shrink
from gateway.agent.endings import Stopped
from gateway.agent.guards import EMPTY_NUDGE, EMPTY_TURNS, THINKING
from gateway.agent.prompts import fill
from gateway.agent.protocols import Written, tool_calls, written_calls
from gateway.agent.run import Run
from gateway.agent.turn import Turn
from gateway.chat import Json, dumps
from gateway.errors import ClientGone, GatewayError, UpstreamError

STEPS = {"simple": 3, "react": 5, "two_stage": 20, "reflection": 3, "plan_and_solve": 3}
"""turns in which the model may act, where the agent's limits say nothing"""

LAST_TURN = "You have no more turns to act in. Give your best answer now from what you have found, and say what is still missing."
TEXT_TOOLS = """You can use these tools:
{tools}
To use one, write on a line of its own: [TOOL_CALL:name:{{"parameter": "value"}}]
You may write several. Wait for their results before you answer; never write a result yourself."""

Before = Callable[[list[Json]], Awaitable[list[Json]]]
"""gives the messages of a turn, from those so far"""


def steps(run: Run) -> int:
    return run.agent.limits.steps or STEPS[run.agent.pattern]


def opening(run: Run, *more: str) -> list[Json]:
    """The agent's system text, the pattern's, the client's; then the conversation."""
    said = [str(message.get("content") or "") for message in run.asked.context if message.get("role") in ("system", "developer")]
    texts = [text.strip() for text in (run.agent.system, *more, *said) if text and text.strip()]
    talk = [message for message in run.asked.context if message.get("role") not in ("system", "developer")]
    return [*([{"role": "system", "content": "\n\n".join(texts)}] if texts else []), *talk]


def offered(run: Run) -> list[Json]:
    """The tools of a request: the agent's and the client's, sorted by name, so that the same agent always sends the same bytes."""
    every = [*run.tools.schemas(), *run.asked.tools]
    return sorted(every, key=lambda tool: str(tool.get("function", tool).get("name", "")))


async def until_answer(run: Run, messages: list[Json], most: int, *, before: Before | None = None) -> str:
    """Turns with tools until the model answers; at most `most`, then one more without tools. Adds to `messages`."""
    tools, in_words = offered(run), False
    finished_thinking = 0
    for _ in range(most):
        run.step += 1
        asked = messages if before is None else await before(messages)
        now = tools if finished_thinking < 2 else [tool for tool in tools if tool["function"]["name"] not in THINKING]
        try:
            turn = await ask(run, asked, [] if in_words else now, live=not tools)
        except UpstreamError as error:
            if in_words or not tools or not refuses_tools(error):
                raise
            in_words = True
            messages[:] = told_in_words(run, messages)
            turn = await ask(run, messages if before is None else await before(messages), [])
        turn = read_calls(run, turn)
        if not turn.calls:
            run.new.append(turn.message)
            return await run.answer(turn, told=not tools)
        message, results = await act(run, turn)
        added = [message, *results] if not in_words else in_text(turn, results)
        messages += added
        run.new += added
        finished_thinking = finished_thinking + 1 if run.guard.thought_out(turn, results) else 0
        run.guard.watch(turn)
    return await last_words(run, messages)


async def ask(run: Run, messages: list[Json], tools: Sequence[Json], *, live: bool = False, aloud: bool = False, more: Mapping[str, Any] | None = None) -> Turn:
    """One turn that is not empty; an empty one is asked for again, with a word on it. Stopped when it stays empty.

    `messages` are cut down in place where they would not fit into the model's context.
    """
    await fit(run, messages, tools)
    try:
        turn = await run.ask(messages, tools=tools, live=live, aloud=aloud, more=more)
    except GatewayError as error:
        if not overflows(error) or not await shrink(run, messages, tools):
            raise
        turn = await run.ask(messages, tools=tools, live=live, aloud=aloud, more=more)
    for _ in range(EMPTY_TURNS):
        if not turn.empty or turn.finish == "content_filter":
            return turn
        turn = await run.ask([*messages, {"role": "user", "content": EMPTY_NUDGE}], tools=tools, live=live, aloud=aloud, more=more)
    if turn.empty:
        raise Stopped("empty", "the model gave no answer")
    return turn


async def last_words(run: Run, messages: Sequence[Json]) -> str:
    """The turns are used up: one more call, without tools, gives the answer. The run is incomplete."""
    run.reason = "steps"
    run.step += 1
    asked = [*messages]
    if asked and asked[0].get("role") == "system":
        asked[0] = {**asked[0], "content": f"{asked[0]['content']}\n\n{LAST_TURN}"}
    else:
        asked.insert(0, {"role": "system", "content": LAST_TURN})
    turn = await ask(run, asked, [], live=True)
    run.new.append(turn.message)
    return await run.answer(turn, told=True)


def read_calls(run: Run, turn: Turn) -> Turn:
    """A turn that wrote its calls into its text, as one that made them."""
    names = run.tools.names()
    if turn.calls or not names or not turn.text:
        return turn
    found, rest = tool_calls(turn.text)
    if not found:
        found, rest = written_calls(turn.text, names)
    if not found:
        return turn
    entries = [{"id": "", "type": "function", "function": {"name": call.name, "arguments": written_arguments(run, call)}} for call in found]
    return replace(turn, message={**turn.message, "content": rest.strip() or None, "tool_calls": entries})


def written_arguments(run: Run, call: Written) -> str:
    """What stands beside a call in a text, as JSON; as it is where it cannot be read, so that the call itself says what is wrong."""
    tool = run.tools.find(call.name)
    if tool is None:
        return dumps({"input": call.params}).decode()
    try:
        return dumps(from_text(call.params, tool.name, tool.parameters)).decode()
    except BadArguments:
        return call.params


def refuses_tools(error: GatewayError) -> bool:
    """Whether a provider refused the request because its model knows no tools."""
    text = error.message.lower()
    return (
        not isinstance(error, ClientGone) and "tool" in text and any(word in text for word in ("support", "not allowed", "unknown", "unrecognized", "enabled"))
    )


def told_in_words(run: Run, messages: Sequence[Json]) -> list[Json]:
    """The conversation for a model without tool calls: the tools stand in the system text."""
    words = fill(TEXT_TOOLS, tools=run.tools.manual())
    if messages and messages[0].get("role") == "system":
        return [{**messages[0], "content": f"{messages[0]['content']}\n\n{words}"}, *messages[1:]]
    return [{"role": "system", "content": words}, *messages]


def in_text(turn: Turn, results: Sequence[Json]) -> list[Json]:
    """A turn that called tools in its text, and the results, as plain messages."""
    told = "\n\n".join(f"Result of {call.name}:\n{result['content']}" for call, result in zip(turn.calls, results, strict=True))
    return [{"role": "assistant", "content": turn.text or "(calls tools)"}, {"role": "user", "content": told}]


__all__ = ["STEPS", "ask", "last_words", "offered", "opening", "steps", "until_answer"]
