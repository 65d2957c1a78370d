"""What keeps a run from going on for ever, and what is left of it when it may not (B133, B135, B145, T33, X3, X4, X5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from scripted import Kept, Scripted, agent, calls, made, paired, results, run
from test_replay import Look, thought, todo

from gateway.agent.drive import FOUND, NO_ANSWER, NOTHING, carry_out
from gateway.agent.guards import EMPTY_NUDGE, REPEATED
from gateway.agent.loop import LAST_TURN
from gateway.agent.tools.thinking import SequentialThinking
from gateway.agent.tools.todo import TodoWrite
from gateway.chat import Json
from gateway.errors import ChainExhausted, ClientGone, GatewayError, StreamCut, UpstreamError

LOOK = calls(("look", {"q": "x"}))


def look_at(*things: str) -> list[Json]:
    return [calls(("look", {"q": thing})) for thing in things]


# ---- steps ----


async def test_when_the_turns_are_used_up_one_call_without_tools_gives_the_answer() -> None:
    """B135: max_iterations 2; calls of the model == 2 + 1, the third without tools, its text is the answer, the reason is visible."""
    model = Scripted(*look_at("a", "b"), "78 lx")
    one, outcome, _ = await run(agent(limits={"steps": 2}), model, [Look()])
    assert (one.output, outcome.status, outcome.reason) == ("78 lx", "incomplete", "steps")
    assert len(model.asked) == 3
    assert "tools" in model.asked[1]
    assert "tools" not in model.asked[2]
    assert LAST_TURN in model.asked[2]["messages"][0]["content"]
    assert [message["role"] for message in model.asked[2]["messages"]] == ["system", "user", "assistant", "tool", "assistant", "tool"]


@pytest.mark.parametrize(("pattern", "turns"), [("simple", 3), ("two_stage", 20), ("reflection", 3)])
async def test_each_pattern_has_its_own_number_of_turns(pattern: str, turns: int) -> None:
    """Section 8, H20."""
    model = Scripted(lambda body: calls(("look", {"q": str(len(body["messages"]))})) if "tools" in body else "end", repeats=True)
    thinking = {"phase": "never"}
    _, outcome, _ = await run(agent(pattern, thinking=thinking, options={"max_reflections": 0}), model, [Look()])
    assert (outcome.reason, len(model.asked)) == ("steps", turns + 1)


async def test_calls_in_the_very_last_turn_are_not_made_and_not_kept() -> None:
    """X18: a call without a result would spoil the session."""
    look = Look()
    one, outcome, _ = await run(agent(limits={"steps": 1}), Scripted(LOOK, calls(("look", {"q": "y"}))), [look])
    assert (outcome.reason, look.made) == ("steps", ["x"])
    assert one.output == "What was found so far:\n- about x"
    assert paired(one.new)


async def test_a_run_whose_last_turn_only_calls_again_and_that_found_nothing_says_so() -> None:
    one, outcome, _ = await run(agent(limits={"steps": 1}), Scripted(calls(("nothing", {})), calls(("nothing", {}))))
    assert (outcome.status, outcome.reason, one.output) == ("incomplete", "steps", NOTHING["steps"])


# ---- tokens, cost, time ----


async def test_a_run_ends_at_its_limit_of_tokens_with_what_was_found() -> None:
    model = Scripted(*look_at("a", "b", "c"))
    one, outcome, _ = await run(agent(limits={"tokens": 30}), model, [Look()])
    assert (outcome.status, outcome.reason, len(model.asked)) == ("incomplete", "tokens", 2)
    assert one.output == "What was found so far:\n- about a\n- about b"


async def test_a_run_ends_at_its_limit_of_cost() -> None:
    model = Scripted(*look_at("a", "b", "c"), price=0.01)
    one, outcome, _ = await run(agent(limits={"cost": 0.02}), model, [Look()])
    assert (outcome.reason, len(model.asked), one.spent.cost) == ("cost", 2, pytest.approx(0.02))


async def test_a_cost_limit_refuses_to_go_on_with_a_model_of_unknown_price() -> None:
    model = Scripted(LOOK, "end", price=None)
    _, outcome, _ = await run(agent(limits={"cost": 5.0}), model, [Look()])
    assert (outcome.reason, len(model.asked)) == ("cost", 1)


async def test_unpriced_models_may_be_allowed() -> None:
    one, outcome, _ = await run(agent(limits={"cost": 5.0, "unpriced": "allow"}), Scripted(LOOK, "end", price=None), [Look()])
    assert (outcome.status, one.output) == ("completed", "end")


@pytest.mark.parametrize("reason", ["tokens", "cost"])
async def test_a_run_that_ends_before_it_found_anything_says_why(reason: str) -> None:
    limits = {reason: 1 if reason == "tokens" else 0.0001}
    one, outcome, _ = await run(agent("plan_and_solve", limits=limits), Scripted('["a", "b"]'))
    assert (outcome.status, outcome.reason, one.output) == ("incomplete", reason, NOTHING[reason])


class Slow(Look):
    async def call(self, arguments: Json, context: Any) -> Any:
        if arguments["q"] == "slow":
            await asyncio.sleep(60)
        return await super().call(arguments, context)


async def test_a_run_ends_when_its_time_is_over_and_its_open_calls_are_closed() -> None:
    """X18: the call that was open has a result too."""
    look = Slow()
    one, outcome, log = await run(agent(limits={"wall": 0.2}), Scripted(LOOK, calls(("look", {"q": "y"}), ("look", {"q": "slow"}))), [look])
    assert (outcome.status, outcome.reason) == ("incomplete", "wall")
    assert one.output == "What was found so far:\n- about x\n- about y"
    assert {event.key for event in log.of("tool.started")} == {event.key for event in log.of("tool.finished")}
    assert log.of("tool.finished")[-1].data["ok"] is False
    assert paired(one.new)


async def test_the_time_that_was_used_before_a_crash_counts() -> None:
    log = Kept()
    await run(agent(), Scripted(LOOK, "end"), [Look()], log=log)
    aged = [event.__class__(**{**{name: getattr(event, name) for name in event.__struct_fields__}, "time": 100.0 * event.seq}) for event in log.events[:-1]]
    one = made(agent(limits={"wall": 500.0}), Scripted("late"), [Look()], log=Kept(aged))
    assert one.took() == 200.0
    one = made(agent(limits={"wall": 150.0}), Scripted("late"), [Look()], log=Kept(aged))
    assert (await carry_out(one)).reason == "wall"


async def test_a_cancelled_run_leaves_its_open_calls_to_whoever_ends_or_goes_on_with_it() -> None:
    """A process that stops cancels its runs, and another one goes on with them: nothing may say that their calls are over."""
    log = Kept()
    one = made(agent(), Scripted(calls(("look", {"q": "x"}), ("look", {"q": "slow"}))), [Slow()], log=log)
    task = asyncio.create_task(carry_out(one))
    async with asyncio.timeout(5):
        while not log.of("tool.finished"):  # noqa: ASYNC110 - a list has no event for it
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(log.of("tool.finished")) == 1
    look = Look()
    one, outcome, _ = await run(agent(), Scripted("end"), [look], log=Kept(log.events))
    assert (outcome.status, look.made) == ("completed", ["slow"])


# ---- loops ----


async def test_the_third_identical_call_is_not_made() -> None:
    """B133: same name and canonical arguments; the model is told, and the run ends with one call without tools."""
    look = Look()
    spelled = ['{"q": "/"}', '{ "q":"/" }', '{"q":"/"}', '{"q":"/"}', '{"q":"/"}', '{"q":"/"}']
    model = Scripted(*(calls(("look", text, "c")) for text in spelled), "summary")
    one, outcome, _ = await run(agent(limits={"steps": 6}), model, [look])
    assert look.made == ["/", "/"]
    assert (one.output, outcome.reason, len(model.asked)) == ("summary", "steps", 7)
    assert [result["content"] == REPEATED for result in results(model.asked[6])] == [False, False, True, True, True, True]
    assert all(paired(body["messages"]) for body in model.asked)
    assert len({result["tool_call_id"] for result in results(model.asked[6])}) == 6


async def test_identical_calls_of_one_turn_count_too() -> None:
    look = Look()
    model = Scripted(calls(*(("look", {"q": "x"}, f"c{n}") for n in range(5))), "end")
    await run(agent(), model, [look])
    assert look.made == ["x", "x"]


async def test_a_call_that_gives_something_new_each_time_may_be_repeated() -> None:
    """Waiting for a job to end is no loop."""

    class Job(Look):
        async def call(self, arguments: Json, context: Any) -> Any:
            await super().call(arguments, context)
            return f"{len(self.made) * 25} % done"

    job = Job()
    _one, outcome, _ = await run(agent(limits={"steps": 5}), Scripted(LOOK, LOOK, LOOK, LOOK, "done"), [_as_tool(job)])
    assert (len(job.made), outcome.status) == (4, "completed")


def _as_tool(job: Look) -> Look:
    call = job.call

    async def observed(arguments: Json, context: Any) -> Any:
        from gateway.agent.tools.tool import observation

        return observation(await call(arguments, context))

    job.call = observed  # type: ignore[method-assign]
    return job


async def test_the_order_of_names_in_arguments_does_not_make_a_call_another_one() -> None:
    class Deep(Look):
        @property
        def parameters(self) -> Json:
            return {"type": "object"}

        async def call(self, arguments: Json, context: Any) -> Any:
            from gateway.agent.tools.tool import Observation

            self.made.append("x")
            return Observation("same")

    deep = Deep()
    texts = ['{"a": {"x": 1, "y": 2}, "b": 1}', '{"b": 1, "a": {"y": 2, "x": 1}}', '{"a": {"y": 2, "x": 1}, "b": 1}']
    await run(agent(limits={"steps": 4}), Scripted(*(calls(("look", text)) for text in texts), "end"), [deep])
    assert len(deep.made) == 2


async def test_thinking_that_is_complete_is_not_gone_on_with_for_ever() -> None:
    """T33: after two turns that only say that the thinking is complete, the thinking tool is not offered."""
    model = Scripted(calls(thought(1, 1)), calls(thought(2, 2)), "", "end")
    one, outcome, _ = await run(agent(limits={"steps": 5}), model, [SequentialThinking(), Look()])
    names = [[tool["function"]["name"] for tool in body.get("tools", ())] for body in model.asked]
    assert names[:3] == [["look", "sequential_thinking"], ["look", "sequential_thinking"], ["look"]]
    assert (outcome.status, one.output) == ("completed", "end")


async def test_unfinished_thinking_keeps_its_tool() -> None:
    model = Scripted(calls(thought(1, 3)), calls(thought(2, 3)), calls(thought(3, 3)), "end")
    await run(agent(limits={"steps": 5}), model, [SequentialThinking()])
    assert all("tools" in body for body in model.asked)


async def test_thinking_stands_beside_a_todo_list_and_both_are_events() -> None:
    """T25, T26, T29."""
    _, _, log = await run(agent(), Scripted(calls(thought(1), todo()), calls(thought(2), todo("a")), "end"), [SequentialThinking(), TodoWrite()])
    thoughts = [event.data for event in log.of("thought")]
    assert [(one["thought_number"], one["total_thoughts"], one["incomplete_steps"]) for one in thoughts] == [(1, 2, True), (2, 2, False)]
    assert [[one["status"] for one in event.data["todos"]] for event in log.of("todo.updated")] == [["pending", "pending"], ["completed", "pending"]]
    assert [event.data["name"] for event in log.of("tool.started")] == ["sequential_thinking", "todo_write"] * 2


async def test_text_that_does_not_change_ends_the_run() -> None:
    """X4: the same text three rounds running, without a call."""
    model = Scripted("I will do it.", repeats=True)
    one, outcome, _ = await run(agent("react", limits={"steps": 9}), model, [Look()])
    assert (outcome.reason, len(model.asked), one.output) == ("stuck", 3, "I will do it.")


# ---- empty answers ----


async def test_an_empty_turn_is_asked_for_again_with_a_word_on_it() -> None:
    """B145.1, X3."""
    model = Scripted({"content": "", "reasoning_content": "hmm"}, "real answer")
    one, outcome, _ = await run(agent(), model)
    assert (one.output, outcome.status, one.finish) == ("real answer", "completed", "stop")
    assert model.asked[1]["messages"][-1] == {"role": "user", "content": EMPTY_NUDGE}
    assert one.new == [{"role": "assistant", "content": "real answer"}]


async def test_an_answer_that_stays_empty_is_no_success() -> None:
    """B145.2: two retries, then a clear message."""
    model = Scripted("", "", "")
    one, outcome, _ = await run(agent(), model)
    assert (outcome.status, outcome.reason, one.output, len(model.asked)) == ("incomplete", "empty", NO_ANSWER, 3)


async def test_an_answer_that_stays_empty_after_results_is_made_from_them() -> None:
    model = Scripted(LOOK, "", "", "", "it is about x")
    one, outcome, _ = await run(agent(), model, [Look()])
    assert (outcome.reason, one.output) == ("empty", "it is about x")


async def test_the_finish_reason_is_the_models_own() -> None:
    """B145.3."""
    one, outcome, _ = await run(agent(), Scripted({"content": "cut of", "finish": "length"}))
    assert (outcome.status, one.finish) == ("completed", "length")


@pytest.mark.parametrize("pattern", ["simple", "react", "two_stage"])
async def test_a_content_filter_is_the_end(pattern: str) -> None:
    """X4: it is terminal; what was cut off is not done."""
    look = Look()
    model = Scripted({**LOOK, "finish": "content_filter"})
    one, outcome, _ = await run(agent(pattern, thinking={"phase": "never"}), model, [look])
    assert (outcome.status, one.finish, look.made, len(model.asked)) == ("completed", "content_filter", [], 1)
    assert paired(one.new)


async def test_a_refusal_is_an_answer() -> None:
    one, outcome, log = await run(agent(), Scripted({"content": None, "refusal": "I may not."}), [Look()])
    assert (outcome.status, one.output, log.text("content")) == ("completed", "I may not.", "I may not.")


# ---- outages ----


def down() -> UpstreamError:
    return UpstreamError("server", "all is down", upstream_status=503)


async def test_an_outage_after_results_gives_an_answer_from_them() -> None:
    """X5: the model is asked once more with nothing but the question and what was found."""
    model = Scripted(LOOK, ChainExhausted("all 1 providers failed", []), "x it is")
    one, outcome, log = await run(agent(system="Be brief."), model, [Look()], "what is x?")
    assert (outcome.status, outcome.reason, one.output, log.text("content")) == ("incomplete", "outage", "x it is", "x it is")
    assert model.asked[2]["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": FOUND.format(question="what is x?", found="about x")},
    ]
    assert "tools" not in model.asked[2]
    assert one.new[-1] == {"role": "assistant", "content": "x it is"}
    assert paired(one.new)


async def test_an_outage_that_lasts_leaves_what_was_found() -> None:
    one, outcome, _ = await run(agent(), Scripted(calls(("look", {"q": "x"}), text="Let me see."), down(), down()), [Look()])
    assert (outcome.status, outcome.reason, one.output) == ("incomplete", "outage", "What was found so far:\n- about x")
    assert outcome.error is not None
    assert outcome.error.message == "all is down"


async def test_notes_are_nothing_that_was_found() -> None:
    """P19: hidden thoughts do not become the answer of a run that fails."""
    one, outcome, _ = await run(agent(), Scripted(calls(thought(1), todo()), down()), [SequentialThinking(), TodoWrite()])
    assert (outcome.status, one.output) == ("failed", "")


async def test_a_plan_is_nothing_that_was_found() -> None:
    one, outcome, _ = await run(
        agent("two_stage", thinking={"visibility": "hidden"}), Scripted("secret plan", calls(thought(1)), down()), [SequentialThinking()]
    )
    assert (outcome.status, one.output) == ("failed", "")


@pytest.mark.parametrize(
    "error", [down(), ChainExhausted("all", []), ClientGone("gone"), GatewayError("x"), ValueError("ours")], ids=lambda e: type(e).__name__
)
async def test_a_failure_before_anything_is_a_failed_run(error: Exception) -> None:
    one, outcome, _log = await run(agent(), Scripted(error))
    assert (outcome.status, one.output) == ("failed", "")
    assert outcome.error is not None
    assert "ours" not in outcome.error.message


async def test_a_stream_that_breaks_off_inside_a_call_is_asked_for_again() -> None:
    """B149.1: what came of the call is not executed."""
    look = Look()
    model = Scripted({**calls(("look", '{"q":"a"')), "cut": StreamCut("connect", "cut")}, calls(("look", '{"q":"x"}')), "done")
    one, outcome, _ = await run(agent(), model, [look])
    assert (look.made, one.output, outcome.status) == (["x"], "done", "completed")


async def test_a_whole_looking_call_without_a_finish_reason_is_not_executed() -> None:
    """B149.2."""
    look = Look()
    model = Scripted({**calls(("look", {"q": "early"})), "finish": None}, "done")
    one, _, _ = await run(agent(), model, [look])
    assert (look.made, one.output) == ([], "done")


async def test_a_stream_that_always_breaks_off_is_asked_for_three_times() -> None:
    """B149.3: the retry is bounded."""
    model = Scripted({**calls(("look", "{")), "cut": StreamCut("connect", "cut")}, repeats=True)
    _, outcome, _ = await run(agent(), model, [Look()])
    assert (outcome.status, len(model.asked)) == ("failed", 3)


async def test_text_that_was_shown_is_not_shown_again() -> None:
    """B149.3: an answer that breaks off while it is read stays, and is not written a second time."""
    model = Scripted({"content": "the first half", "cut": StreamCut("connect", "cut")})
    one, outcome, log = await run(agent(), model)
    assert (outcome.status, outcome.reason, one.output, log.text("content")) == ("incomplete", "outage", "the first half", "the first half")
    assert len(model.asked) == 1


async def test_a_conversation_that_is_too_long_is_cut_and_asked_again() -> None:
    look = Look()
    long = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a" * 9000}] * 4 + [{"role": "user", "content": "now?"}]
    model = Scripted(UpstreamError("context_overflow", "too long"), "end")
    one, outcome, log = await run(agent(), model, [look], long)
    assert (outcome.status, one.output) == ("completed", "end")
    assert len(str(model.asked[1]["messages"])) < len(str(model.asked[0]["messages"]))
    assert log.of("context.compacted")[0].data["how"] == "trimmed"


async def test_a_model_without_tool_calls_is_told_of_the_tools_in_words() -> None:
    look = Look()
    refuses = UpstreamError("bad_request", "this model does not support tools")
    model = Scripted(refuses, 'Let me.\n[TOOL_CALL:look:{"q": "x"}]', "x it is")
    one, outcome, _ = await run(agent(), model, [look])
    assert (outcome.status, one.output, look.made) == ("completed", "x it is", ["x"])
    assert "tools" not in model.asked[1]
    assert "- look: looks something up" in model.asked[1]["messages"][0]["content"]
    assert model.asked[2]["messages"][-2:] == [{"role": "assistant", "content": "Let me."}, {"role": "user", "content": "Result of look:\nabout x"}]


async def test_a_provider_that_refuses_tools_in_the_middle_gets_the_whole_in_words() -> None:
    look = Look()
    model = Scripted(LOOK, UpstreamError("bad_request", "tools are not supported"), "x it is")
    one, _, _ = await run(agent(), model, [look])
    assert one.output == "x it is"
    assert all("tool_calls" not in message and message["role"] != "tool" for message in model.asked[2]["messages"])
    assert model.asked[2]["messages"][-1] == {"role": "user", "content": "Result of look:\nabout x"}


async def test_a_provider_that_wants_the_tools_of_the_history_gets_them_with_the_word_to_call_none() -> None:
    """The call after the last step has no tools; where that is refused, tool_choice none says the same."""

    def look_up(q: str) -> str:
        """Look it up."""
        return f"found {q}"

    refusal = UpstreamError("bad_request", "Requests which include `tool_use` or `tool_result` blocks must define tools", upstream_status=400)
    model = Scripted(calls(("look_up", {"q": "x"})), refusal, "as far as I got")

    ended, outcome, _ = await run(agent(limits={"steps": 1}), model, [look_up])

    assert (ended.output, outcome.reason) == ("as far as I got", "steps")
    assert "tools" not in model.asked[1]
    assert (model.asked[2]["tool_choice"], len(model.asked[2]["tools"])) == ("none", 1)
