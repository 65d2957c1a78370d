"""From a question to an answer, with tools between: the turns that all patterns share.

Its parts: the words before the conversation, the turns in which the model may act, and what
happens when it does not come to an end by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from gateway.agent.acting import act
from gateway.agent.arguments import BadArguments, from_text
from gateway.agent.compacting import fit, overflows, shrink
from gateway.agent.endings import Stopped
from gateway.agent.guards import EMPTY_NUDGE, EMPTY_TURNS, THINKING
from gateway.agent.in_words import in_words, refuses_tools, results_in_words, turn_in_words, wants_tools
from gateway.agent.protocols import Written, tool_calls, written_calls
from gateway.agent.run import Run
from gateway.agent.turn import Turn
from gateway.agent.wording import short, text_of
from gateway.chat import Json, dumps
from gateway.errors import ChainExhausted, GatewayError, UpstreamError

STEPS = {"simple": 3, "react": 5, "two_stage": 20, "reflection": 3, "plan_and_solve": 3}
"""turns in which the model may act, where the agent's limits say nothing"""

LAST_TURN = "You have no more turns to act in. Give your best answer now from what you have found, and say what is still missing."
THOUGHT_OUT = 2
"""turns running that did nothing but think, and said that the thinking is complete: then there is no more thinking tool (T33)"""


def steps(run: Run) -> int:
    return run.agent.limits.steps or STEPS[run.agent.pattern]


def opening(run: Run, *more: str) -> list[Json]:
    """The agent's system text, the pattern's, the client's; then the conversation."""
    said = [text_of(message) for message in run.asked.context if message.get("role") in ("system", "developer")]
    texts = [text.strip() for text in (run.agent.system, *more, *said) if text and text.strip()]
    talk = [message for message in run.asked.context if message.get("role") not in ("system", "developer")]
    return [*([{"role": "system", "content": "\n\n".join(texts)}] if texts else []), *talk]


async def before_question(run: Run) -> list[Json]:
    """What stands before the question, for patterns that put it into words of their own; already fitted to the model's window."""
    messages = opening(run)
    asked = messages.pop() if messages and messages[-1].get("role") == "user" else None
    await fit(run, messages, offered(run), 0 if asked is None else -1)
    return messages


def offered(run: Run) -> list[Json]:
    """The tools of a request: the agent's and the client's, sorted by name, so that the same agent always sends the same bytes."""
    return sorted([*run.tools.schemas(), *run.asked.tools], key=name_of)


def name_of(tool: Json) -> str:
    """The name of an entry of `tools`."""
    return str(tool.get("function", tool).get("name", ""))


class Acting:
    """The turns of one conversation in which the model may act. They are added to `messages`, and to what the run leaves to its session."""

    def __init__(self, run: Run, messages: list[Json]) -> None:
        self.messages = messages
        self._run = run
        self._tools = offered(run)
        self._in_words = False
        self._own = 0
        self._thought_out = 0

    async def turn(self, tail: Sequence[Json] = ()) -> Turn:
        """The model's next turn: with calls, or an answer. `tail` stands behind the messages in this one request."""
        run, tools = self._run, self._tools
        if self._thought_out >= THOUGHT_OUT:
            tools = [tool for tool in tools if name_of(tool) not in THINKING]
        try:
            turn = await ask(run, self.messages, [] if self._in_words else tools, live=not self._tools, tail=tail, own=self._own)
        except (UpstreamError, ChainExhausted) as error:
            if self._in_words or not tools or not refuses_tools(error):
                raise
            self._in_words = True
            self.messages[:] = in_words(run.tools.manual(), self.messages)
            turn = await ask(run, self.messages, [], tail=tail, own=self._own)
        if turn.finish == "content_filter" and turn.calls:  # what was cut off may not be done
            return without_calls(turn)
        return read_calls(run, turn)

    async def act(self, turn: Turn, plan: str = "") -> list[Json]:
        """Make the turn's calls; their results. `plan` goes in front of the turn's text where it is kept."""
        run = self._run
        _show_aside(run, turn)
        message, results = await act(run, turn)
        text = "\n\n".join(part for part in (plan, turn.text) if part)
        added = [{**message, "content": text or None}, *results] if not self._in_words else [turn_in_words(text, message), *results_in_words(turn, results)]
        self.messages += added
        self._own += len(added)
        run.new += added
        self._thought_out = self._thought_out + 1 if run.guard.thought_out(turn, results) else 0
        run.guard.watch(turn)
        return results

    async def answer(self, turn: Turn) -> str:
        """A turn is the answer."""
        turn = without_calls(turn) if turn.calls else turn
        self._run.new.append(turn.message)
        return await self._run.answer(turn, told=not self._tools)


def _show_aside(run: Run, turn: Turn) -> None:
    """What a turn says beside its calls is a thought (X11); the calls' own lines begin after it."""
    run.end_line()
    if said := turn.text.strip():
        run.think(f"{said}\n")
        run.think(f"{short(said)}\n", "summary")


async def until_answer(run: Run, messages: list[Json], most: int) -> str:
    """Turns with tools until the model answers; at most `most`, then one more without tools. Adds to `messages`."""
    acting = Acting(run, messages)
    for _ in range(most):
        run.step += 1
        turn = await acting.turn()
        if not turn.calls:
            return await acting.answer(turn)
        await acting.act(turn)
    return await last_words(run, messages)


async def ask(
    run: Run,
    messages: list[Json],
    tools: Sequence[Json],
    *,
    tail: Sequence[Json] = (),
    choice: str | None = None,
    live: bool = False,
    aloud: bool = False,
    more: Mapping[str, Any] | None = None,
    may_be_empty: bool = False,
    own: int = 0,
) -> Turn:
    """One turn that is not empty; an empty one is asked for again, with a word on it. Stopped when it stays empty.

    `messages` are cut down in place where they would not fit into the model's context (the last `own` are none of the session's); `tail` follows them.
    """

    async def once(*nudge: Json) -> Turn:
        return await run.ask([*messages, *tail, *nudge], tools=tools, choice=choice, live=live, aloud=aloud, more=more)

    await fit(run, messages, tools, own)
    try:
        turn = await once()
    except GatewayError as error:
        if not overflows(error) or not await shrink(run, messages, tools):
            raise
        turn = await once()
    for _ in range(EMPTY_TURNS):
        if may_be_empty or not turn.empty or turn.finish == "content_filter":
            return turn
        turn = await once({"role": "user", "content": EMPTY_NUDGE})
    if turn.empty and turn.finish != "content_filter":
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
    try:
        turn = await ask(run, asked, [], live=True)
    except (UpstreamError, ChainExhausted) as error:
        if not wants_tools(error):
            raise
        turn = await ask(run, asked, offered(run), choice="none", live=True)
    turn = without_calls(turn)
    if turn.empty and turn.finish != "content_filter":
        best = run.best()
        if not best:
            raise Stopped("steps", "the turns are used up, and the last one called tools again")
        turn = replace(turn, message={**turn.message, "content": best})
        await run.say(best)
    run.new.append(turn.message)
    return await run.answer(turn, told=True)


def without_calls(turn: Turn) -> Turn:
    """A turn whose calls are not made: none may stay without a result."""
    return replace(turn, message={name: value for name, value in turn.message.items() if name != "tool_calls"})


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


__all__ = ["STEPS", "Acting", "ask", "before_question", "last_words", "name_of", "offered", "opening", "steps", "until_answer"]
