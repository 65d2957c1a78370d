"""Agents that ask agents (B147): their events, their limits, what they cost, and what waits in them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from scripted import Kept, Killed, Scripted, agent, calls, made, paired, results, run
from test_replay import Look, dense

from gateway import config
from gateway.agent.agents import Parts
from gateway.agent.drive import carry_out
from gateway.agent.endings import Paused
from gateway.agent.run import Run
from gateway.agent.subagent import DEEPEST, SubAgent
from gateway.agent.tools.registry import Registry
from gateway.agent.tools.tool import Tool
from gateway.chat import Json


def by_turn(*turns: Any, price: float | None = 0.001) -> Scripted:
    """A model that knows by itself how far a conversation is: whatever process asks it."""

    def say(body: Json) -> Any:
        turn = turns[sum(message["role"] == "assistant" for message in body["messages"])]
        return turn(body) if callable(turn) else turn

    return Scripted(say, repeats=True, price=price)


def asking(*names: str, task: str = "do it") -> Json:
    return calls(*((f"agent_{name}", {"task": task}) for name in names))


class Team:
    """Agents by name: (settings, model, tools, agents that it may ask)."""

    def __init__(self, **members: tuple[config.Agent, Scripted, Sequence[Tool], Sequence[str]]) -> None:
        self._members: Mapping[str, tuple[config.Agent, Scripted, Sequence[Tool], Sequence[str]]] = members

    def find(self, name: str) -> Parts:
        spec, model, tools, others = self._members[name]
        return Parts(spec, model, Registry([*tools, *self.tools(*others)]))

    def tools(self, *names: str) -> list[Tool]:
        return [SubAgent(name, "", self.find) for name in names]


def two(look: Look, **settings: Any) -> Team:
    """Agents a and b, each of which looks something up before it answers."""
    return Team(
        **{
            name: (agent(name=name, **settings), by_turn(calls(("look", {"q": name}), text=f"{name} looks"), f"found by {name}"), [look], ())
            for name in ("a", "b")
        }
    )


def lives(log: Kept) -> dict[str | None, list[str]]:
    """The types of the events of each run."""
    out: dict[str | None, list[str]] = {}
    for event in log.events:
        out.setdefault(event.inner, []).append(event.type)
    return out


async def test_nested_events_say_whose_they_are_in_order_from_start_to_end() -> None:
    """B147.1: agent's name, run id and parent id on each; per run id start..end."""
    _, outcome, log = await run(agent(name="p"), by_turn(asking("a", "b"), "both"), two(Look()).tools("a", "b"))
    assert outcome.status == "completed"
    inner = {event.inner: event.agent for event in log.events if event.inner is not None}
    assert inner == {"run_1/c0": "a", "run_1/c1": "b"}
    for id, types in lives(log).items():
        if id is not None:
            assert types == ["run.started", "usage", "tool.started", "tool.finished", "usage", "run.finished"]
    assert all(event.parent == "run_1" for event in log.events if event.inner is not None)
    nested = next(event for event in log.events if event.inner == "run_1/c0").public()
    assert (nested["run_id"], nested["parent_run_id"], nested["agent"]) == ("run_1/c0", "run_1", "a")
    assert dense(log)


async def test_the_text_of_a_nested_agent_is_an_observation_and_nothing_else() -> None:
    """B147.2: nested deltas never appear in the parent's answer."""
    model = by_turn(asking("a", "b"), "both")
    one, _, log = await run(agent(name="p"), model, two(Look()).tools("a", "b"))
    assert log.text("content") == one.output == "both"
    assert "found by" not in log.text("reasoning") + log.text("summary")
    assert [result["content"] for result in results(model.asked[1])] == ["found by a", "found by b"]


async def test_tokens_and_cost_of_a_nested_agent_count_for_its_parent() -> None:
    one, _, _ = await run(agent(name="p"), by_turn(asking("a"), "x"), two(Look()).tools("a"))
    assert one.spent.usage["total_tokens"] == 4 * 15
    assert one.spent.cost == pytest.approx(0.004)


async def test_the_parent_limit_ends_a_nested_agent_too() -> None:
    one, outcome, log = await run(agent(name="p", limits={"tokens": 30}), by_turn(asking("a"), "x"), two(Look()).tools("a"))
    assert (outcome.status, outcome.reason) == ("incomplete", "tokens")
    assert "about a" in one.output  # what the nested agent had found
    assert [event.data["reason"] for event in log.of("run.finished")] == ["tokens"]


async def test_a_nested_agent_has_limits_of_its_own() -> None:
    """Its limit ends it, and the parent goes on with the best that it had."""
    model = by_turn(asking("a"), "go on")
    _, outcome, _ = await run(agent(name="p"), model, two(Look(), limits={"tokens": 15}).tools("a"))
    assert outcome.status == "completed"
    assert results(model.asked[1])[0]["content"] == "(incomplete: tokens)\nWhat was found so far:\n- about a"


async def test_the_time_limit_of_tools_is_not_for_agents() -> None:
    async def slow(body: Json) -> str:
        await asyncio.sleep(0.15)
        return "late"

    class Slow(Scripted):
        async def generate(self, request: Any) -> Any:
            await asyncio.sleep(0.15)
            async for chunk in super().generate(request):
                yield chunk

    team = Team(a=(agent(name="a"), Slow("late"), (), ()))
    model = by_turn(asking("a"), "x")
    await run(agent(name="p", limits={"tool": 0.05}), model, team.tools("a"))
    assert results(model.asked[1])[0]["content"] == "late"


async def test_a_nested_agent_that_fails_is_an_error_of_the_call() -> None:
    from gateway.errors import UpstreamError

    team = Team(a=(agent(name="a"), Scripted(UpstreamError("server", "down")), (), ()))
    model = by_turn(asking("a"), "without it")
    one, outcome, log = await run(agent(name="p"), model, team.tools("a"))
    assert (outcome.status, one.output) == ("completed", "without it")
    assert results(model.asked[1])[0]["content"] == "The agent a failed: down"
    assert log.of("tool.finished")[-1].data["ok"] is False


async def test_agents_ask_agents_only_so_deep() -> None:
    team = Team(a=(agent(name="a"), by_turn(asking("a"), lambda body: f"saw: {results(body)[0]['content']}"), (), ("a",)))
    model = by_turn(asking("a"), "end")
    _, outcome, log = await run(agent(name="p"), model, team.tools("a"))
    assert outcome.status == "completed"
    assert len(log.of("run.started")) == DEEPEST - 1
    assert f"{DEEPEST} deep" in results(model.asked[1])[0]["content"]


async def test_a_nested_agent_that_waits_for_approval_makes_its_parent_wait() -> None:
    look = Look()
    team = two(look, approval={"tools": ("look",), "timeout": 7.0})
    log = Kept()
    with pytest.raises(Paused) as paused:
        await carry_out(made(agent(name="p"), by_turn(asking("a", "b"), "both"), team.tools("a", "b"), log=log))
    assert [call["agent"] for call in paused.value.calls] == ["a", "b"]
    assert len({call["id"] for call in paused.value.calls}) == 2
    assert paused.value.expires == 7.0
    assert look.made == []
    log.answer(paused.value.calls[0], {"approved": True})
    log.answer(paused.value.calls[1], {"approved": False, "reason": "not now"})
    model = by_turn(asking("a", "b"), "both")
    one, outcome, log = await run(agent(name="p"), model, team.tools("a", "b"), log=log)
    assert (outcome.status, one.output, look.made) == ("completed", "both", ["a"])
    assert [event.data["output"] for event in log.of("tool.finished") if event.inner == "run_1/c1"] == ["A person refused this call: not now"]
    assert dense(log)


async def test_the_state_of_tools_is_each_agents_own() -> None:
    """T19, B141: two nested runs never share thoughts."""
    from gateway.agent.tools.thinking import SequentialThinking

    think = calls(("sequential_thinking", {"thought": "t", "thought_number": 1, "total_thoughts": 1, "next_thought_needed": False}))
    models = {name: by_turn(think, "x") for name in ("a", "b")}
    team = Team(**{name: (agent(name=name), model, [SequentialThinking()], ()) for name, model in models.items()})
    await run(agent(name="p"), by_turn(asking("a", "b"), "x"), team.tools("a", "b"))
    for model in models.values():
        assert '"thought_history_length":1' in results(model.asked[1])[0]["content"]


async def test_time_that_is_over_closes_what_was_open_inside() -> None:
    """Every call and every nested run that began has an end, the inner ones first."""

    class Never(Look):
        async def call(self, arguments: Json, context: Any) -> Any:
            await asyncio.sleep(60)

    one, outcome, log = await run(agent(name="p", limits={"wall": 0.2}), by_turn(asking("a"), "x"), two(Never()).tools("a"))
    assert (outcome.status, outcome.reason) == ("incomplete", "wall")
    assert one.output
    assert log.types()[-3:] == ["tool.finished", "run.finished", "tool.finished"]
    assert [event.inner for event in log.events[-3:]] == ["run_1/c0", "run_1/c0", None]
    assert dense(log)


@pytest.mark.parametrize("unkept", [False, True], ids=["kept", "lost"])
async def test_a_crash_at_any_append_changes_nothing(unkept: bool) -> None:
    def parts(look: Look) -> tuple[Scripted, list[Tool]]:
        return by_turn(asking("a", "b"), asking("a"), "both"), two(look).tools("a", "b")

    async def live(log: Kept, look: Look) -> Run:
        model, tools = parts(look)
        one = made(agent(name="p"), model, tools, log=log)
        assert (await carry_out(one)).status == "completed"
        assert all(paired(body["messages"]) for body in model.asked)
        return one

    whole, look = Kept(), Look()
    expected = await live(whole, look)
    assert sorted(look.made) == ["a", "a", "b"]
    for seq in range(1, len(whole.events) + 1):
        log, look = Kept(killed_at=seq, unkept=unkept), Look()
        with pytest.raises(Killed):
            await live(log, look)
        again = Kept(log.events)
        one = await live(again, look)
        assert one.output == "both"
        assert dense(again)
        assert one.spent.usage == expected.spent.usage
        assert sorted((event.type, event.key) for event in again.events) == sorted((event.type, event.key) for event in whole.events)
        assert len(look.made) <= 3 + 1 + unkept
