"""Runs that wait: for a person's yes, for the client's own tools; and calls of which nobody knows how they ended."""

from __future__ import annotations

from typing import Any

import pytest
from scripted import Kept, Killed, Scripted, agent, calls, made, results, run
from test_replay import Look, dense

from gateway.agent.acting import UNKNOWN_OUTCOME
from gateway.agent.drive import carry_out
from gateway.agent.endings import Paused
from gateway.agent.tools.thinking import SequentialThinking
from gateway.chat import Json, loads

ASKS = {"approval": {"tools": ("look",), "timeout": 5.0}}
THEIRS = {"type": "function", "function": {"name": "theirs", "parameters": {"type": "object"}}}


async def until_it_waits(spec: Any, turn: Any, tools: list[Any], log: Kept, **asked: Any) -> list[Json]:
    with pytest.raises(Paused) as paused:
        await carry_out(made(spec, Scripted(turn), tools, log=log, **asked))
    assert paused.value.expires == spec.approval.timeout
    return paused.value.calls


async def goes_on(spec: Any, log: Kept, tools: list[Any], *turns: Any, **asked: Any) -> tuple[Any, Scripted]:
    model = Scripted(*turns)
    one, outcome, _ = await run(spec, model, tools, log=log, **asked)
    assert outcome.status == "completed"
    assert dense(log)
    return one, model


async def test_a_call_that_needs_approval_is_not_made_before_it_is_given() -> None:
    look, log = Look(), Kept()
    spec = agent(**ASKS)
    [wait] = await until_it_waits(spec, calls(("look", {"q": "x"})), [look], log)
    assert (wait["kind"], wait["name"]) == ("approval", "approval_request")
    assert wait["arguments"] == {"run_id": "run_1", "tool": "look", "arguments": {"q": "x"}, "reason": "the agent wants to use look"}
    assert look.made == []
    assert log.types() == ["usage", "approval.required"]
    log.answer(wait, {"approved": True})
    _, model = await goes_on(spec, log, [look], "done")
    assert look.made == ["x"]
    assert results(model.asked[0]) == [{"role": "tool", "tool_call_id": "c0", "content": "about x"}]


async def test_waiting_twice_asks_for_the_same_answer_and_journals_nothing_new() -> None:
    look, log, spec = Look(), Kept(), agent(**ASKS)
    first = await until_it_waits(spec, calls(("look", {"q": "x"})), [look], log)
    known = list(log.events)
    with pytest.raises(Paused) as paused:
        await carry_out(made(spec, Scripted(), [look], log=log))
    assert paused.value.calls == first
    assert log.events == known


async def test_edited_arguments_are_what_the_tool_gets_and_what_the_model_sees_as_its_call() -> None:
    """X12: editable arguments; what stands in the conversation is what was done, also when the run is gone through again."""
    look, log, spec = Look(), Kept(), agent(**ASKS)
    [wait] = await until_it_waits(spec, calls(("look", {"q": "x"})), [look], log)
    log.answer(wait, {"approved": True, "arguments": {"q": "y"}})
    _, model = await goes_on(spec, log, [look], "done")
    assert look.made == ["y"]
    call, result = model.asked[0]["messages"][-2:]
    assert (loads(call["tool_calls"][0]["function"]["arguments"]), result["content"]) == ({"q": "y"}, "about y")
    again, _, _ = await run(spec, Scripted(), [look], log=log)
    assert again.new[0] == call
    assert log.of("tool.started")[0].data["arguments"] == {"q": "y"}


async def test_edited_arguments_that_do_not_fit_are_an_error_and_nothing_is_called() -> None:
    look, log, spec = Look(), Kept(), agent(**ASKS)
    [wait] = await until_it_waits(spec, calls(("look", {"q": "x"})), [look], log)
    log.answer(wait, {"approved": True, "arguments": {"wrong": 1}})
    _, model = await goes_on(spec, log, [look], "done")
    assert look.made == []
    assert "Error" in results(model.asked[0])[0]["content"]


async def test_a_refusal_is_the_calls_result_with_its_reason() -> None:
    look, log, spec = Look(), Kept(), agent(**ASKS)
    [wait] = await until_it_waits(spec, calls(("look", {"q": "x"})), [look], log)
    log.answer(wait, {"approved": False, "reason": "too dear"})
    _, model = await goes_on(spec, log, [look], "done")
    assert look.made == []
    assert results(model.asked[0])[0]["content"] == "A person refused this call: too dear"
    assert log.of("tool.finished")[0].data["ok"] is False


async def test_arguments_that_cannot_be_read_need_no_approval_and_are_not_called() -> None:
    look = Look()
    model = Scripted(calls(("look", '{"q": 1')), "done")
    await run(agent(**ASKS), model, [look])
    assert look.made == []
    assert "Error" in results(model.asked[1])[0]["content"]


async def test_a_tool_that_reads_its_arguments_itself_waits_for_approval_too() -> None:
    """Lenient arguments are no way around a person."""
    log = Kept()
    spec = agent(approval={"tools": ("sequential_thinking",)})
    [wait] = await until_it_waits(spec, calls(("thinking", "no JSON at all")), [SequentialThinking()], log)
    assert wait["arguments"]["tool"] == "sequential_thinking"


async def test_the_turns_other_calls_are_made_while_one_waits() -> None:
    """Section 8: the server's tools of a turn run first; each call has its own result in the calls' order."""
    look, log, spec = Look(), Kept(), agent()
    turn = calls(("theirs", {"n": 1}), ("look", {"q": "x"}), ("theirs", {"n": 2}))
    first, second = await until_it_waits(spec, turn, [look], log, theirs=[THEIRS])
    assert look.made == ["x"]
    assert [(wait["kind"], wait["name"], loads(wait["arguments"])) for wait in (first, second)] == [
        ("client", "theirs", {"n": 1}),
        ("client", "theirs", {"n": 2}),
    ]
    assert first["id"] != second["id"]
    log.answer(second, "two")
    log.answer(first, "one")
    _, model = await goes_on(spec, log, [look], "done", theirs=[THEIRS])
    assert [result["content"] for result in results(model.asked[0])] == ["one", "about x", "two"]
    assert look.made == ["x"]


async def test_a_run_with_one_of_two_answers_still_waits_for_the_other() -> None:
    log, spec = Kept(), agent()
    first, second = await until_it_waits(spec, calls(("theirs", {"n": 1}), ("theirs", {"n": 2})), [], log, theirs=[THEIRS])
    log.answer(first, "one")
    with pytest.raises(Paused) as paused:
        await carry_out(made(spec, Scripted(), log=log, theirs=[THEIRS]))
    assert paused.value.calls == [second]


async def crashed_in_a_call(look: Look) -> Kept:
    """The process dies after the tool acted and before anybody wrote down what came of it."""
    log = Kept(killed_at=3, unkept=True)
    with pytest.raises(Killed):
        await carry_out(made(agent(), Scripted(calls(("look", {"q": "x"}))), [look], log=log))
    assert log.types() == ["usage", "tool.started"]
    assert look.made == ["x"]
    return Kept(log.events)


async def test_a_safe_call_that_a_crash_cut_off_is_made_again() -> None:
    look = Look("safe")
    _, model = await goes_on(agent(), await crashed_in_a_call(look), [look], "done")
    assert look.made == ["x", "x"]
    assert results(model.asked[0])[0]["content"] == "about x"


async def test_an_unsafe_call_that_a_crash_cut_off_has_an_unknown_outcome() -> None:
    """5.4: `retry_on_crash: never`."""
    look = Look("never")
    _, model = await goes_on(agent(), await crashed_in_a_call(look), [look], "done")
    assert look.made == ["x"]
    assert results(model.asked[0])[0]["content"] == UNKNOWN_OUTCOME


@pytest.mark.parametrize("approved", [True, False])
async def test_a_call_to_ask_about_that_a_crash_cut_off_waits_for_a_person(approved: bool) -> None:
    """5.4: `retry_on_crash: ask`."""
    look = Look("ask")
    log = await crashed_in_a_call(look)
    with pytest.raises(Paused) as paused:
        await carry_out(made(agent(), Scripted(), [look], log=log))
    [wait] = paused.value.calls
    assert "outcome is unknown" in wait["arguments"]["reason"]
    assert look.made == ["x"]
    log.answer(wait, {"approved": approved})
    _, model = await goes_on(agent(), log, [look], "done")
    assert look.made == (["x", "x"] if approved else ["x"])
    assert results(model.asked[0])[0]["content"] == ("about x" if approved else "A person refused this call.")


async def test_an_approved_call_that_may_not_be_repeated_is_not_made_twice() -> None:
    """The approval was for one call, not for a second one after a crash."""
    look, spec = Look("never"), agent(**ASKS)
    log = Kept()
    [wait] = await until_it_waits(spec, calls(("look", {"q": "x"})), [look], log)
    log.answer(wait, {"approved": True})
    dying = Kept(log.events, killed_at=5, unkept=True)
    with pytest.raises(Killed):
        await carry_out(made(spec, Scripted("x"), [look], log=dying))
    assert look.made == ["x"]
    _, model = await goes_on(spec, Kept(dying.events), [look], "done")
    assert look.made == ["x"]
    assert results(model.asked[0])[0]["content"] == UNKNOWN_OUTCOME


async def test_a_plan_waits_for_approval_and_may_be_edited() -> None:
    """P20: confirm -> phase 2."""
    look, log = Look(), Kept()
    spec = agent("two_stage", approval={"plan": True})
    [wait] = await until_it_waits(spec, "the plan", [look], log)
    assert wait["arguments"]["tool"] == "plan"
    assert wait["arguments"]["arguments"] == {"plan": "the plan"}
    log.answer(wait, {"approved": True, "arguments": {"plan": "my plan"}})
    _, model = await goes_on(spec, log, [look], "done")
    assert model.asked[0]["messages"][-1] == {"role": "assistant", "content": "[Plan]\nmy plan"}


async def test_a_refused_plan_goes_back_into_the_thinking_phase_with_the_objection() -> None:
    """P20: reject -> the phase-1 text and the objection go back into phase 1, and nowhere else (P17)."""
    look, log = Look(), Kept()
    spec = agent("two_stage", approval={"plan": True})
    [wait] = await until_it_waits(spec, "the plan", [look], log)
    log.answer(wait, {"approved": False, "reason": "not that way"})
    model = Scripted("another plan")
    with pytest.raises(Paused) as paused:
        await carry_out(made(spec, model, [look], log=log))
    *_, trace, objection = model.asked[0]["messages"]
    assert trace == {"role": "assistant", "content": "the plan"}
    assert "not that way" in objection["content"]
    log.answer(paused.value.calls[0], {"approved": True})
    _, model = await goes_on(spec, log, [look], "done")
    assert "the plan" not in str([message for message in model.asked[0]["messages"] if message["role"] != "system"]).replace("another plan", "")


async def test_a_person_who_refuses_every_plan_ends_the_run() -> None:
    """A wait that nobody answers is a refusal: it may not cost a plan every ten minutes for ever."""
    spec, log = agent("two_stage", approval={"plan": True}), Kept()
    for _ in range(5):
        with pytest.raises(Paused) as paused:
            await carry_out(made(spec, Scripted("plan"), [Look()], log=log))
        log.answer(paused.value.calls[0], {"approved": False})
    one, outcome, _ = await run(spec, Scripted(), [Look()], log=log)
    assert (outcome.status, outcome.reason) == ("incomplete", "plan_rejected")
    assert one.output


async def test_a_replay_tells_its_listeners_nothing_twice() -> None:
    """Who goes on with a run hears what is new."""
    look, log = Look(), Kept()
    spec = agent("two_stage", approval={"tools": ("look",)})
    with pytest.raises(Paused) as paused:
        await carry_out(made(spec, Scripted("plan one", calls(("look", {"q": "x"}))), [look], log=log))
    again = Kept(log.events)
    again.answer(paused.value.calls[0], {"approved": True})
    one, _, _ = await run(spec, Scripted("plan two", "end"), [look], log=again)
    assert "plan one" not in again.text("reasoning") + again.text("summary")
    assert "plan two" in again.text("reasoning")
    assert again.text("content") == "end"
    assert "plan one" in one.told()
    assert "plan two" in one.told()
