"""two_stage (section 1.3 of the requirements): thinking without tools, then acting on the plan."""

from __future__ import annotations

from typing import Any

import pytest
from scripted import Kept, Scripted, agent, calls, made, paired, results, run
from test_replay import Look

from gateway.agent.drive import carry_out
from gateway.agent.endings import Paused
from gateway.agent.memory.tokens import text_tokens
from gateway.agent.patterns.two_stage import MARK, PLAN_TOKENS
from gateway.chat import Json, dumps
from gateway.errors import StreamCut, UpstreamError

LOOK = calls(("look", {"q": "x"}))
YES = '{"valid": true, "issue": "", "plan": "the short plan"}'
NO = '{"valid": false, "issue": "it forgets y", "plan": ""}'


def talk(body: Json) -> list[Json]:
    return [message for message in body["messages"] if message["role"] != "system"]


async def staged(*turns: Any, thinking: Json | None = None, question: Any = "what is x?", **settings: Any) -> tuple[Scripted, Any, Any, Kept, Look]:
    model, look = Scripted(*turns), Look()
    one, outcome, log = await run(agent("two_stage", thinking=thinking or {}, **settings), model, [look], question)
    assert all(paired(body["messages"]) for body in model.asked)
    return model, one, outcome, log, look


async def test_a_turn_has_two_calls_when_thinking_is_on_and_one_when_it_is_off() -> None:
    """P1."""
    on, *_ = await staged("plan", LOOK, "plan", "end")
    off, *_ = await staged(LOOK, "end", thinking={"phase": "never"})
    assert (len(on.asked), len(off.asked)) == (4, 2)


async def test_phase_one_has_no_tools_and_phase_two_has_all() -> None:
    """P2."""
    model, *_ = await staged("plan", "end")
    assert "tools" not in model.asked[0]
    assert [tool["function"]["name"] for tool in model.asked[1]["tools"]] == ["look"]


async def test_the_plan_is_the_last_message_of_phase_two_and_no_user_message_stands_between() -> None:
    """P3, P10."""
    model, *_ = await staged("go to x", "end")
    assert talk(model.asked[1]) == [*talk(model.asked[0]), {"role": "assistant", "content": "[Plan]\ngo to x"}]
    assert [message["role"] for message in talk(model.asked[1])] == ["user", "assistant"]


async def test_empty_thinking_appends_nothing() -> None:
    """P3."""
    model, one, outcome, _, _ = await staged("", LOOK, "  ", "end")
    assert talk(model.asked[1]) == talk(model.asked[0])
    assert (one.output, outcome.status, len(model.asked)) == ("end", "completed", 4)
    assert one.new[0]["content"] is None


@pytest.mark.parametrize(("turns", "phase"), [((), "thinking"), (("plan",), "acting")])
@pytest.mark.parametrize("error", [UpstreamError("server", "down"), StreamCut("connect", "cut")], ids=["error", "cut"])
async def test_an_error_names_its_phase(turns: tuple[str, ...], phase: str, error: UpstreamError) -> None:
    """P4."""
    again = [type(error)(error.kind, error.message) for _ in range(3)]
    _, _one, outcome, log, _ = await staged(*turns, *again)
    assert outcome.status == "failed"
    assert outcome.error.message == f"{phase} phase: {error.message}"
    assert log.of("phase.finished")[-1].data["error"] == error.message


async def test_an_error_of_the_critic_or_of_a_new_plan_names_its_phase() -> None:
    """P24: an error on re-planning ends the run."""
    _, _, outcome, _, _ = await staged("plan", UpstreamError("server", "down"), thinking={"critic": {}})
    assert outcome.error.message == "critic phase: down"
    _, _, outcome, _, _ = await staged("plan", NO, UpstreamError("server", "down"), thinking={"critic": {}})
    assert (outcome.status, outcome.error.message) == ("failed", "thinking phase: down")


async def test_a_run_ends_when_phase_two_calls_nothing() -> None:
    """P5."""
    _, one, outcome, _, look = await staged("plan", "end")
    assert (one.output, outcome.status, look.made) == ("end", "completed", [])


async def test_calls_run_in_order_and_their_errors_are_observations() -> None:
    """P6."""
    turn = calls(("look", {"q": "a"}), ("nothing", {}), ("look", {"q": "b"}))
    model, _, outcome, _, look = await staged("plan", turn, "plan", "end")
    assert (look.made, outcome.status) == (["a", "b"], "completed")
    seen = results(model.asked[2])
    assert [result["tool_call_id"] for result in seen] == ["c0", "c1", "c2"]
    assert [result["content"][:7] for result in seen] == ["about a", "Error: ", "about b"]


async def test_thinking_comes_again_after_every_observation() -> None:
    """P7."""
    model, *_ = await staged("one", LOOK, "two", calls(("look", {"q": "y"})), "three", "end")
    assert ["tools" in body for body in model.asked] == [False, True, False, True, False, True]


async def test_without_tools_there_is_one_call_and_no_phase() -> None:
    """P8."""
    model = Scripted("end")
    one, outcome, log = await run(agent("two_stage"), model)
    assert (one.output, outcome.status, len(model.asked), log.of("phase.started")) == ("end", "completed", 1, [])
    assert log.text("content") == "end"


async def test_trace_and_answer_are_different_channels() -> None:
    """P9."""
    _, _, _, log, _ = await staged("my plan", {**LOOK, "content": "beside"}, "next plan", "end")
    assert log.text("content") == "end"
    assert "my plan" in log.text("reasoning")
    assert [event.step for event in log.of("tool.started")] == [1]


async def test_a_turn_is_kept_as_one_message_of_the_assistant() -> None:
    """P11: plan and text and calls together; the plan alone is seen in its own request only."""
    model, one, *_ = await staged("my plan", {**LOOK, "content": "beside"}, "next plan", "end")
    stored = {"role": "assistant", "content": "[Plan]\nmy plan\n\nbeside", "tool_calls": LOOK["tool_calls"]}
    assert talk(model.asked[2])[1] == stored
    assert [message["role"] for message in one.new] == ["assistant", "tool", "assistant"]
    assert one.new[0] == stored
    assert one.new[2] == {"role": "assistant", "content": "end"}


async def test_phase_one_knows_the_tools_in_words_those_of_the_client_too() -> None:
    """P12."""
    theirs = {"type": "function", "function": {"name": "theirs", "description": "what\nthe client can do", "parameters": {"type": "object"}}}
    model = Scripted("plan", "end")
    await run(agent("two_stage"), model, [Look()], theirs=[theirs])
    system = model.asked[0]["messages"][0]["content"]
    assert "- look: looks something up\n- theirs: what the client can do" in system
    assert model.asked[1]["messages"][0]["content"] == system


async def test_with_tool_choice_none_the_prefix_of_both_phases_is_the_same_bytes() -> None:
    """P13: what providers cache (system, tools, history) is the same in both."""
    model, *_ = await staged("plan", LOOK, "plan", "end", thinking={"withhold": "tool_choice_none"}, system="Be brief.")
    for think, act in ((0, 1), (2, 3)):
        first, second = model.asked[think], model.asked[act]
        assert first["tool_choice"] == "none"
        assert "tool_choice" not in second
        assert dumps(first["tools"]) == dumps(second["tools"])
        assert dumps(second["messages"]).startswith(dumps(first["messages"])[:-1])
    assert "- look" not in model.asked[0]["messages"][0]["content"]  # the tools speak for themselves


async def test_the_first_turn_alone_may_think() -> None:
    """P14."""
    model, _, _, _log, _ = await staged("plan", LOOK, calls(("look", {"q": "y"})), "end", thinking={"phase": "first_turn"})
    assert ["tools" in body for body in model.asked] == [False, True, True, True]


async def test_auto_thinks_first_and_after_a_failure_and_says_why_it_did_not(caplog: pytest.LogCaptureFixture) -> None:
    """P14."""
    caplog.set_level("INFO", logger="thinkgate")
    bad = calls(("nothing", {}))
    model, _, _, log, _ = await staged("plan", LOOK, bad, "new plan", "end", thinking={"phase": "auto"})
    assert ["tools" in body for body in model.asked] == [False, True, True, False, True]
    skipped = [event.data for event in log.of("phase.finished") if "skipped" in event.data]
    assert skipped == [{"phase": "plan", "skipped": "the plan stands, and the last step went well"}]
    assert "the plan stands" in caplog.text


@pytest.mark.parametrize(("phase", "turns"), [("auto", ["end"]), ("always", ["plan", "end"])])
async def test_a_model_that_thinks_by_itself_is_not_made_to_think_twice_unless_always(phase: str, turns: list[str]) -> None:
    """P22."""

    model = Scripted(*turns)
    one = made(agent("two_stage", thinking={"phase": phase}), model, [Look()])
    one.reasons_natively = True
    assert (await carry_out(one)).status == "completed"
    assert len(model.asked) == len(turns)


@pytest.mark.parametrize("natively", [True, False])
async def test_a_decision_about_thinking_holds_when_the_run_is_gone_through_again(natively: bool) -> None:
    """What is known of a model may change between a crash and the second try."""
    turns, log = ([LOOK, "end"] if natively else ["plan", LOOK, "end"]), Kept()
    for model, known in ((Scripted(*turns), natively), (Scripted(), not natively)):
        one = made(agent("two_stage", thinking={"phase": "auto"}), model, [Look()], log=log)
        one.reasons_natively = known
        assert (await carry_out(one)).status == "completed"
        assert [message["role"] for message in one.new] == ["assistant", "tool", "assistant"]
        log = Kept(log.events)


async def test_the_critic_sees_question_plan_and_tools_under_a_prompt_of_its_own() -> None:
    """P15."""
    model, *_ = await staged("my plan", YES, "end", thinking={"critic": {}}, system="Be brief.")
    system, user = model.asked[1]["messages"]
    assert "review the plan" in system["content"]
    assert "- look: looks something up" in system["content"]
    assert "what is x?" in user["content"]
    assert "my plan" in user["content"]
    assert "Be brief." not in system["content"]


async def test_only_the_plan_in_short_enters_the_conversation_and_rejected_ones_never() -> None:
    """P15, P17, P18: the issue is fed back, into the thinking phase alone."""
    model, one, *_ = await staged("bad plan", NO, "good plan", YES, LOOK, "", "end", thinking={"critic": {}})
    again = talk(model.asked[2])
    assert again[1] == {"role": "assistant", "content": "bad plan"}
    assert "it forgets y" in again[2]["content"]
    assert talk(model.asked[4])[-1] == {"role": "assistant", "content": "[Plan]\nthe short plan"}
    for body in (*model.asked[4:], {"messages": one.new}):
        assert "bad plan" not in str(body)
        assert "good plan" not in str(body)
        assert "it forgets y" not in str(body)


async def test_a_plan_is_improved_at_most_so_often_and_then_taken_as_it_is() -> None:
    """P15, P16: max_refine 2; last_trace."""
    model, one, outcome, log, _ = await staged("p1", NO, "p2", NO, "p3", NO, "end", thinking={"critic": {}})
    assert talk(model.asked[6])[-1]["content"] == "[Plan]\np3"
    assert (one.output, outcome.status) == ("end", "completed")
    verdicts = [event.data["valid"] for event in log.of("phase.finished") if event.data["phase"] == "critic"]
    assert verdicts == [False, False, False]


async def test_a_run_whose_plans_are_all_refused_may_stop() -> None:
    """P16: stop."""
    model, one, outcome, _, look = await staged("p1", NO, "p2", NO, thinking={"critic": {"max_refine": 1, "on_exhaustion": "stop"}})
    assert (outcome.status, outcome.reason, len(model.asked), look.made) == ("incomplete", "plan_rejected", 4, [])
    assert one.output
    assert "forgets" not in one.output


async def test_a_run_whose_plans_are_all_refused_may_ask_a_person() -> None:
    """P16: ask_human; the person sees the issue."""

    spec, log = agent("two_stage", thinking={"critic": {"max_refine": 0, "on_exhaustion": "ask_human"}}), Kept()
    with pytest.raises(Paused) as paused:
        await carry_out(made(spec, Scripted("p1", NO), [Look()], log=log))
    [wait] = paused.value.calls
    assert wait["arguments"]["arguments"] == {"plan": "p1"}
    assert wait["arguments"]["reason"] == "it forgets y"
    log.answer(wait, {"approved": True})
    model = Scripted("end")
    one, _outcome, _ = await run(spec, model, [Look()], log=log)
    assert (one.output, talk(model.asked[0])[-1]["content"]) == ("end", "[Plan]\np1")


@pytest.mark.parametrize("said", ["APPROVED", "```json\n" + YES + "\n```", YES.replace("true", "True").replace('"', "'")])
async def test_a_verdict_is_structured_and_read_leniently(said: str) -> None:
    """P24: one that cannot be read accepts."""
    model, _, outcome, *_ = await staged("p1", said, "end", thinking={"critic": {}})
    assert (outcome.status, len(model.asked)) == ("completed", 3)


@pytest.mark.parametrize(("visibility", "seen"), [("hidden", ""), ("full", "secret plan\nsecret two"), ("summary", "secret plan\nsecret two")])
async def test_who_may_see_the_traces(visibility: str, seen: str) -> None:
    """P19: hidden gives the run's reader nothing of it; the journal has it all the same."""
    _, one, _, log, _ = await staged("secret plan", LOOK, "secret two", "end", thinking={"visibility": visibility})
    assert one.told() == seen
    assert "secret" not in one.output + log.text("content")
    assert [event.data["trace"] for event in log.of("phase.finished") if event.data["phase"] == "plan"] == ["secret plan", "secret two"]
    assert [event.data["thought"] for event in log.of("thought")] == ["secret plan", "secret two"]


async def test_a_summary_is_a_line_of_each_trace() -> None:
    long = "Because of this. " * 100
    _, one, *_ = await staged(long, "end")
    assert len(one.told()) <= 280
    assert one.told().startswith("Because of this.")


async def test_old_plans_become_a_line_and_the_current_one_stays() -> None:
    """P21."""
    turns = [item for n in range(4) for item in (f"plan {n}\nwith details {n}", calls(("look", {"q": str(n)})))]
    model, *_ = await staged(*turns, "last plan\nwith details", "end", thinking={"age_after": 1})
    kept = [message["content"] for message in talk(model.asked[8]) if message["role"] == "assistant"]
    assert kept == ["[Plan] plan 0", "[Plan] plan 1", "[Plan] plan 2", "[Plan]\nplan 3\nwith details 3"]
    assert talk(model.asked[9])[-1]["content"] == "[Plan]\nlast plan\nwith details"


async def test_ageing_never_drops_reasoning_that_a_provider_demands() -> None:
    """P21, D22."""
    turns = [item for n in range(4) for item in (f"plan {n}", {**calls(("look", {"q": str(n)})), "reasoning_content": f"r{n}"})]
    model, *_ = await staged(*turns, "plan", "end", thinking={"age_after": 1})
    assert [message.get("reasoning_content") for message in talk(model.asked[9]) if message.get("tool_calls")] == ["r0", "r1", "r2", "r3"]


async def test_a_plan_has_at_most_two_thousand_tokens() -> None:
    """Section 8."""
    model, *_ = await staged("word " * 20_000, "end")
    plan = talk(model.asked[1])[-1]["content"]
    assert plan.startswith(MARK + "word word")
    assert PLAN_TOKENS * 0.9 < text_tokens(plan.removeprefix(MARK)) <= PLAN_TOKENS


async def test_the_agents_system_text_stands_before_the_patterns() -> None:
    """Section 8."""
    model, *_ = await staged("plan", "end", system="Be brief.", question=[{"role": "system", "content": "From the client."}, {"role": "user", "content": "q"}])
    text = model.asked[0]["messages"][0]["content"]
    assert text.startswith("Be brief.\n\n")
    assert text.endswith("\n\nFrom the client.")
    assert [message["role"] for message in model.asked[0]["messages"]] == ["system", "user"]


async def test_without_thinking_nothing_is_said_of_phases() -> None:
    model, *_ = await staged("end", thinking={"phase": "never"}, system="Be brief.")
    assert model.asked[0]["messages"][0]["content"] == "Be brief."


async def test_prompts_may_be_the_agents_own() -> None:
    prompts = {"think": "THINK OF {tools}", "critic": "JUDGE {tools}"}
    model, *_ = await staged("plan", YES, "end", thinking={"critic": {}}, options={"prompts": prompts})
    assert model.asked[0]["messages"][0]["content"].startswith("THINK OF ")
    assert model.asked[1]["messages"][0]["content"] == "JUDGE - look: looks something up"


async def test_each_phase_is_an_event_from_start_to_end() -> None:
    """P9, P23."""
    _, _, _, log, _ = await staged("bad", NO, "good", YES, LOOK, "plan", YES, "end", thinking={"critic": {}})
    phases = [(event.type.partition(".")[2], event.data["phase"]) for event in log.events if event.type.startswith("phase.")]
    names = ["plan", "critic", "plan", "critic", "act", "plan", "critic", "act"]
    assert phases == [(end, name) for name in names for end in ("started", "finished")]


async def test_a_provider_without_tool_calls_can_act_in_words() -> None:
    model, one, outcome, _, look = await staged("plan", UpstreamError("bad_request", "tools are not supported"), "[TOOL_CALL:look:x]", "plan", "end")
    assert (outcome.status, look.made, one.output) == ("completed", ["x"], "end")
    assert "tools" not in model.asked[2]
    assert model.asked[2]["messages"][-1]["content"] == "[Plan]\nplan"
