"""Whatever a model says, a run has one ending, and no request of it has a call without its result (X2, X18)."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted import Kept, Killed, Scripted, agent, calls, made, paired
from test_replay import Look, dense, turn_over

from gateway.agent.drive import carry_out
from gateway.agent.endings import REASONS, Paused
from gateway.agent.tools.thinking import SequentialThinking
from gateway.agent.tools.todo import TodoWrite
from gateway.chat import Json
from gateway.errors import ChainExhausted, StreamCut, UpstreamError

THEIRS = {"type": "function", "function": {"name": "theirs", "parameters": {"type": "object"}}}

words = st.sampled_from(
    [
        "",
        " ",
        "text",
        "Finish[x]",
        "Thought: a\nAction: look[x]",
        "Action: nothing[",
        '["a", "b"]',
        "[]",
        '{"valid": true, "plan": "p"}',
        '{"valid": false}',
        "[Plan]",
        "思考�"[:2],
        '[TOOL_CALL:look:{"q": 1}]',
        "[TOOL_CALL:x:]",
        "<think>",
        "[NO_IMPROVEMENT_NEEDED]",
        '<tool_call>{"name": "look", "arguments": {"q": "x"}}</tool_call>',
    ]
)
names = st.sampled_from(["look", "Look", "functions.look", "sequential_thinking", "todo_write", "nothing", "", "theirs"])
arguments = st.one_of(
    st.sampled_from(['{"q": "x"}', "", "{", "null", "[]", '"x"', '{"q": "x"} more', '{"thought": "t"}', "x" * 300]),
    st.dictionaries(
        st.sampled_from(["q", "thought", "todos", "x"]),
        st.one_of(st.integers(), st.text(max_size=5), st.none(), st.lists(st.integers(), max_size=2)),
        max_size=3,
    ),
)
ids = st.sampled_from(["", "c0", "c1", "c0", "x" * 100, "functions.look:0", "é"])
one_call = st.tuples(names, arguments, ids)


@st.composite
def turns(draw: st.DrawFn) -> Any:
    kind = draw(st.sampled_from(["text", "text", "calls", "calls", "calls", "error", "cut", "reasoning"]))
    text = draw(words)
    if kind == "text":
        return text
    if kind == "reasoning":
        return {"content": text or None, "reasoning_content": "r", "finish": draw(st.sampled_from(["stop", "length", "content_filter"]))}
    if kind == "calls":
        return {
            **calls(*draw(st.lists(one_call, min_size=1, max_size=4)), text=text or None),
            "finish": draw(st.sampled_from(["tool_calls", "stop", "content_filter", None])),
        }
    if kind == "cut":
        return {"content": text, "cut": StreamCut("connect", "cut")}
    kinds = st.sampled_from(["server", "context_overflow", "bad_request"])
    return draw(
        st.one_of(
            kinds.map(lambda name: lambda body: UpstreamError(name, "no tools supported" if name == "bad_request" else name)),
            st.just(lambda body: ChainExhausted("all", [{"provider": "a", "class": "server"}])),
        )
    )


specs = st.builds(
    lambda pattern, thinking, approval, limits, options: agent(pattern, thinking=thinking, approval=approval, limits=limits, options=options),
    st.sampled_from(["simple", "react", "two_stage", "reflection", "plan_and_solve"]),
    st.fixed_dictionaries(
        {"phase": st.sampled_from(["always", "auto", "never", "first_turn"]), "withhold": st.sampled_from(["omit_tools", "tool_choice_none"])},
        optional={
            "critic": st.fixed_dictionaries({"max_refine": st.integers(0, 1), "on_exhaustion": st.sampled_from(["last_trace", "ask_human", "stop"])}),
            "age_after": st.just(1),
        },
    ),
    st.fixed_dictionaries({"tools": st.sampled_from([(), ("look",)]), "plan": st.booleans()}),
    st.fixed_dictionaries({"steps": st.integers(1, 3)}, optional={"tokens": st.sampled_from([20, 60]), "cost": st.sampled_from([0.002, 1.0])}),
    st.fixed_dictionaries({"max_reflections": st.integers(0, 2), "auto_finish": st.booleans()}),
)


class Said:
    """What comes from outside when a run waits."""

    def __init__(self, answers: list[bool]) -> None:
        self._answers = answers
        self.given = 0

    def answer(self, log: Kept, paused: Paused) -> None:
        for call in paused.calls:
            yes = self._answers[self.given % len(self._answers)]
            self.given += 1
            log.answer(call, {"approved": yes, "reason": "no"} if call["kind"] == "approval" else "their result")


def turn_of(script: list[Any], log: Kept, body: Json) -> Any:
    """What the model says is a function of how many of its turns came to an end, in whatever process."""
    turn = script[sum(turn_over(event) for event in log.events) % len(script)]
    return turn(body) if callable(turn) else turn


async def through(spec: Any, script: list[Any], said: Said, log: Kept) -> tuple[Any, Any, list[Json]]:
    """To the end, over every wait."""
    bodies: list[Json] = []
    for _ in range(60):
        model = Scripted(lambda body: turn_of(script, log, body), repeats=True)
        one = made(spec, model, [Look(), SequentialThinking(), TodoWrite()], log=log, theirs=[THEIRS], session={})
        try:
            outcome = await asyncio.wait_for(carry_out(one), 5)
        except Paused as paused:
            said.answer(log, paused)
            continue
        finally:
            bodies += model.asked
        return one, outcome, bodies
    raise AssertionError("the run waits for ever")


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(specs, st.lists(turns(), min_size=1, max_size=8), st.lists(st.booleans(), min_size=1, max_size=4))
def test_every_run_has_one_ending_and_every_call_one_result(spec: Any, script: list[Any], answers: list[bool]) -> None:
    log = Kept()
    one, outcome, bodies = asyncio.run(through(spec, script, Said(answers), log))
    assert outcome.status in ("completed", "incomplete", "failed")
    assert (outcome.reason in REASONS) == (outcome.status == "incomplete")
    assert (outcome.error is not None) >= (outcome.status == "failed")
    assert outcome.error is None or "the log has the reason" not in outcome.error.message
    assert outcome.status != "incomplete" or one.output
    assert all(paired(body["messages"]) for body in bodies)
    assert paired(one.new)
    assert dense(log)
    finished = {event.key for event in log.of("tool.finished")}
    assert finished == {event.key for event in log.of("tool.started")}
    assert sorted(event.key for event in log.of("phase.started")) == sorted(event.key for event in log.of("phase.finished") if "skipped" not in event.data)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(specs, st.lists(turns(), min_size=1, max_size=8), st.lists(st.booleans(), min_size=1, max_size=4), st.integers(1, 40), st.booleans())
def test_a_crash_anywhere_changes_no_ending(spec: Any, script: list[Any], answers: list[bool], at: int, unkept: bool) -> None:
    whole = Kept()
    one, outcome, _ = asyncio.run(through(spec, script, Said(answers), whole))
    log, said = Kept(killed_at=min(at, len(whole.events)), unkept=unkept), Said(answers)
    try:
        asyncio.run(through(spec, script, said, log))
    except Killed:
        pass
    else:
        return  # that event came from outside
    again = Kept(log.events)
    other, ended, bodies = asyncio.run(through(spec, script, said, again))
    assert (ended.status, ended.reason, other.output) == (outcome.status, outcome.reason, one.output)
    assert (other.new, other.asked.session, other.spent.usage) == (one.new, one.asked.session, one.spent.usage)
    assert sorted((event.type, event.key) for event in again.events) == sorted((event.type, event.key) for event in whole.events)
    assert all(paired(body["messages"]) for body in bodies)
    assert dense(again)
