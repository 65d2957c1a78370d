"""react: thought, action, observation, in words that every model can write.

The model's turns and the observations stay in the conversation, as assistant and user
messages; an observation that the model made up is cut off before anybody reads it.
"""

from __future__ import annotations

from gateway.agent.acting import act
from gateway.agent.endings import Stopped
from gateway.agent.loop import ask, opening, steps, written_arguments
from gateway.agent.prompts import fill
from gateway.agent.protocols import Written
from gateway.agent.protocols import react as parse
from gateway.agent.run import Run
from gateway.agent.turn import Turn
from gateway.agent.wording import short, text_of
from gateway.chat import Json
from gateway.errors import ChainExhausted, UpstreamError

SYSTEM = """Work on the question in rounds. In each round write exactly two lines:

Thought: what you know by now, what is missing, what you do about it
Action: one of
- tool_name[input]   to use a tool; for several parameters write them as JSON: tool_name[{{"a": 1, "b": 2}}]
- Finish[the whole answer]   when you can answer

Then stop: the result of the tool comes back as "Observation: ...". Never write an observation yourself.

Tools:
{tools}"""

CORRECTION = """That could not be read. Write a line "Thought: ..." and then one line "Action: tool_name[input]" or "Action: Finish[answer]"."""
FORCED = """You have no more rounds. Answer the question now from what you have found, as: Finish[the whole answer]"""
NOTHING = "I could not find an answer within the rounds that I had."


async def react(run: Run) -> str:
    """Rounds until the model writes Finish; then one forced last answer. Native tool calls are taken as actions too."""
    messages = _opening(run)
    given = len(messages)
    for _ in range(steps(run)):
        run.step += 1
        turn = await ask(run, messages, [], more={"stop": ["\nObservation:"]}, own=max(len(messages) - given, 0))
        if turn.calls and turn.finish != "content_filter":
            message, results = await act(run, turn)
            messages += [message, *results]
            run.guard.watch(turn)
            continue
        if turn.finish == "content_filter":
            return await _answer(run, turn, turn.text)
        said = parse(turn.text, run.tools.names())
        if said.thought:
            await run.emit(
                "thought", {"thought": said.thought, "thought_number": run.step, "total_thoughts": steps(run), "incomplete_steps": said.finish is None}
            )
            run.think(f"{short(said.thought)}\n", "summary")
            run.think(f"{said.thought}\n")
        if said.finish is not None:
            return await _answer(run, turn, said.finish)
        if said.action is None:
            run.said = turn.text
            run.guard.watch(turn)
            messages += [{**turn.message, "content": said.text or turn.text}, {"role": "user", "content": CORRECTION}]
            continue
        messages += await _observe(run, turn, said.action, said.text)
    return await _forced(run, messages)


def _opening(run: Run) -> list[Json]:
    """The prompt and the conversation. A prompt that has a place for the history has it there, and only the question follows."""
    prompt = run.agent.options.prompts.get("system", SYSTEM)
    talk = [message for message in run.asked.context if message.get("role") not in ("system", "developer")]
    history = "\n".join(f"{message['role']}: {text}" for message in talk[:-1] if (text := text_of(message)))
    filled = fill(prompt, tools=run.tools.manual(), question=run.asked.question, history=f"So far:\n{history}" if history else "")
    messages = opening(run, filled)
    return [*messages[: len(messages) - len(talk)], *talk[-1:]] if "{history}" in prompt else messages


async def _observe(run: Run, turn: Turn, action: tuple[str, str], kept: str) -> list[Json]:
    """Make the one call that a round asks for; the round and its observation as messages."""
    name, given = action
    called = {
        **turn.message,
        "tool_calls": [{"id": "", "type": "function", "function": {"name": name, "arguments": written_arguments(run, Written(name, given))}}],
    }
    _, results = await act(run, Turn(called, turn.finish))
    observed = results[0]["content"]
    return [{**{k: v for k, v in turn.message.items() if k != "tool_calls"}, "content": kept}, {"role": "user", "content": f"Observation: {observed}"}]


async def _answer(run: Run, turn: Turn, text: str) -> str:
    run.output, run.finish = text, turn.finish
    run.new.append({**{k: v for k, v in turn.message.items() if k != "tool_calls"}, "content": text})
    await run.say(text)
    return text


async def _forced(run: Run, messages: list[Json]) -> str:
    """The rounds are used up: one more call must give the answer, in whatever form it comes."""
    run.reason = "steps"
    run.step += 1
    try:
        turn = await ask(run, [*messages, {"role": "user", "content": FORCED}], [])
    except (UpstreamError, ChainExhausted, Stopped):
        turn = Turn({"role": "assistant", "content": ""})
    said = parse(turn.text)
    return await _answer(run, turn, said.finish if said.finish is not None else turn.text.strip() or run.best() or NOTHING)
