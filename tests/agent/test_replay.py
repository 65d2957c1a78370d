"""A run that is killed at any append to its journal and gone through again ends as if nothing had happened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from scripted import Kept, Killed, Scripted, agent, calls, made, paired

from gateway import config
from gateway.agent.drive import Outcome, carry_out
from gateway.agent.endings import Paused
from gateway.agent.events import Event
from gateway.agent.run import Run
from gateway.agent.tools.thinking import SequentialThinking
from gateway.agent.tools.todo import TodoWrite
from gateway.agent.tools.tool import Observation, Tool
from gateway.chat import Json
from gateway.errors import UpstreamError


def thought(number: int, total: int = 2) -> tuple[str, Json]:
    return "sequential_thinking", {"thought": f"t{number}", "thought_number": number, "total_thoughts": total, "next_thought_needed": number < total}


def todo(*done: str) -> tuple[str, Json]:
    return "todo_write", {"todos": [{"content": name, "status": "completed" if name in done else "pending"} for name in ("a", "b")]}


class Look(Tool):
    """A tool that counts."""

    name, description = "look", "looks something up"

    def __init__(self, repeat: str = "safe") -> None:
        self.repeat = repeat
        self.made: list[str] = []

    @property
    def parameters(self) -> Json:
        return {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}

    async def call(self, arguments: Json, context: Any) -> Observation:
        self.made.append(arguments["q"])
        return Observation(f"about {arguments['q']}")


@dataclass
class Story:
    """What a run of an agent meets: the turns, and what its tools are."""

    spec: config.Agent
    turns: Sequence[Any]
    answers: Sequence[str | Json] = ()
    """what comes from outside, whenever the run waits"""
    asked: Json = field(default_factory=dict)
    more: Callable[[Scripted], list[Any]] = lambda model: []


def refused(body: Json) -> UpstreamError:
    return UpstreamError("bad_request", "no", upstream_status=400)


BUSY = calls(("look", {"q": "x"}), thought(1), todo())
STORIES = {
    "simple": Story(agent("simple"), [BUSY, calls(thought(2), todo("a")), "end"]),
    "simple_at_its_limit": Story(agent("simple", limits={"steps": 1}), [BUSY, "end"]),
    "simple_in_words": Story(agent("simple"), [UpstreamError("bad_request", "tools are not supported"), '[TOOL_CALL:look:{"q": "x"}]', "end"]),
    "simple_empty": Story(agent("simple"), [BUSY, "", "", "end"]),
    "react": Story(
        agent("react"),
        [
            "Thought: a\nAction: look[x]",
            'Thought: b\nAction: sequential_thinking[{"thought": "t", "thought_number": 1, "total_thoughts": 1, "next_thought_needed": false}]',
            "hm",
            "Thought: c\nFinish[end]",
        ],
    ),
    "two_stage": Story(agent("two_stage"), ["first plan", BUSY, "second plan", calls(thought(2), todo("a")), "third plan", "end"]),
    "two_stage_with_a_critic": Story(
        agent("two_stage", thinking={"critic": {}}),
        ["plan", '{"valid": false, "issue": "no", "plan": ""}', "better", '{"valid": true, "issue": "", "plan": "go"}', BUSY, "", "end"],
    ),
    "two_stage_approved": Story(
        agent("two_stage", thinking={"phase": "first_turn"}, approval={"plan": True, "tools": ("look",)}),
        ["plan", "plan two", BUSY, calls(thought(2), todo("a")), "end"],
        [{"approved": False, "reason": "no"}, {"approved": True, "arguments": {"plan": "mine"}}, {"approved": True, "arguments": {"q": "y"}}],
    ),
    "reflection": Story(agent("reflection", options={"max_reflections": 1}), [BUSY, "draft", "weak", calls(thought(2)), "end"]),
    "reflection_whose_review_fails": Story(agent("reflection", options={"max_reflections": 1}), [BUSY, "end", refused]),
    "plan_and_solve": Story(agent("plan_and_solve"), ['["a", "b"]', BUSY, "one", calls(thought(2)), "end"]),
    "plan_and_solve_that_fails": Story(agent("plan_and_solve"), ['["a", "b"]', BUSY, "end", refused, refused]),
    "client_tools": Story(
        agent("simple"),
        [calls(("look", {"q": "x"}), ("theirs", {}), thought(1)), "end"],
        ["said"],
        {"theirs": [{"type": "function", "function": {"name": "theirs", "parameters": {"type": "object"}}}]},
    ),
}


class World:
    """Everything outside a process: the provider, the tools' effects. What the model is asked is a function of how much it has answered already."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.look = Look()
        self.bodies: list[Json] = []

    @property
    def asked(self) -> int:
        return len(self.bodies)

    async def live(self, log: Kept) -> tuple[Run, Outcome]:
        """One process, until it dies or the run ends. Whenever it waits, the next answer comes."""
        while True:
            done = sum(turn_over(event) for event in log.events)
            model = Scripted(*self.story.turns[done:])
            run = made(self.story.spec, model, [self.look, SequentialThinking(), TodoWrite()], log=log, session={}, **self.story.asked)
            try:
                return run, await carry_out(run)
            except Paused as paused:
                given = sum(from_outside(event) for event in log.events)
                (call,) = paused.calls
                log.answer(call, self.story.answers[given])
            finally:
                self.bodies += model.asked


def turn_over(event: Event) -> bool:
    """Whether a turn of the model came back with this event, or failed for good."""
    return event.type == "usage" or (event.type == "attempt" and event.state is not None)


def from_outside(event: Event) -> bool:
    return event.type == "approval.resolved" or (event.type == "tool.finished" and "client" in event.data)


def dense(log: Kept) -> bool:
    keys = [(event.type, event.key) for event in log.events]
    return [event.seq for event in log.events] == list(range(1, len(keys) + 1)) and len(set(keys)) == len(keys)


async def whole(story: Story) -> tuple[World, Run, Outcome, Kept]:
    world, log = World(story), Kept()
    run, outcome = await world.live(log)
    return world, run, outcome, log


@pytest.mark.parametrize("unkept", [False, True], ids=["kept", "lost"])
@pytest.mark.parametrize("name", STORIES)
async def test_a_run_killed_at_any_append_ends_as_without_it(name: str, unkept: bool) -> None:
    story = STORIES[name]
    first, expected, outcome, journal = await whole(story)
    assert dense(journal)
    for seq in (event.seq for event in journal.events if not from_outside(event)):
        world, log = World(story), Kept(killed_at=seq, unkept=unkept)
        with pytest.raises(Killed):
            await world.live(log)
        known, looked, asked = len(log.events), len(world.look.made), world.asked
        again = Kept(log.events)
        run, ended = await world.live(again)
        assert (ended.status, ended.reason, run.output) == (outcome.status, outcome.reason, expected.output), seq
        assert run.asked.session == expected.asked.session, seq
        assert run.new == expected.new, seq
        assert run.spent.usage == expected.spent.usage
        assert run.told() == expected.told()
        assert dense(again)
        assert again.events[:known] == log.events
        assert sorted((event.type, event.key) for event in again.events) == sorted((event.type, event.key) for event in journal.events)
        # what had come back is not asked for and not done again
        assert world.asked - asked == sum(turn_over(event) for event in journal.events) - sum(turn_over(event) for event in log.events), seq
        assert len(world.look.made) - looked == len(first.look.made) - sum(event.data.get("name") == "look" for event in log.of("tool.finished")), seq
        assert all(paired(body["messages"]) for body in world.bodies)


async def test_what_was_finished_is_neither_asked_nor_made_again() -> None:
    """The journal's last event is all that a second life may add."""
    story = STORIES["two_stage"]
    _, _, _, journal = await whole(story)
    world = World(replace(story, turns=[]))
    run, outcome = await world.live(Kept(journal.events))
    assert (outcome.status, run.output, world.bodies, world.look.made) == ("completed", "end", [], [])
