"""ReActAgent, ReflectionAgent, PlanAndSolveAgent and TwoStageAgent (H24 to H36, P1 to P22)."""

from __future__ import annotations

from typing import Any

import pytest
from scripted import Scripted, calls
from upstream_double import Upstream, answer

from gateway.agent import (
    LLM,
    Calculator,
    Event,
    PendingCall,
    PlanAndSolveAgent,
    ReActAgent,
    ReflectionAgent,
    Registry,
    SequentialThinking,
    Tool,
    ToolParameter,
    TwoStageAgent,
)
from gateway.agent.message import Agent
from gateway.agent.tools.tool import Context
from gateway.errors import GatewayError, UpstreamError

LOOK = "Thought: I look it up.\nAction: lookup[Rome]"
FINISH = "Thought: I know.\nAction: Finish[It is 21.]"


def OUT(body: Any) -> UpstreamError:
    """A turn that fails."""
    return UpstreamError("server", "out of order")


def lookup(city: str) -> str:
    """The weather of a city."""
    return f"{city}: 21"


def nothing(city: str) -> None:
    """Gives nothing back."""


class Echo(Tool):
    name, description = "echo", "Echoes."

    def __init__(self) -> None:
        self.given: list[Any] = []

    def get_parameters(self) -> list[ToolParameter]:
        return [ToolParameter("input", "string", "what")]

    def run(self, params: dict[str, Any]) -> str:
        self.given.append(params)
        return "echo"


def said(agent: Agent) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in agent.get_history()]


# ---- ReAct ----


def reacting(*turns: Any, tools: Any = (lookup,), **more: Any) -> tuple[ReActAgent, Scripted]:
    model = Scripted(*turns)
    return ReActAgent("r", model, Registry(tools), **{"verbose": False, **more}), model


def test_the_defaults_of_a_react_agent() -> None:
    """H24"""
    made = ReActAgent("r", Scripted())
    assert (made.max_iterations, made.is_stream, made.verbose) == (5, False, True)


def test_the_prompt_has_tools_question_and_history_in_it() -> None:
    """H24"""
    made, model = reacting(FINISH, FINISH)
    with made:
        made.run("How warm?")
        made.run("And now?")
    first, second = (str(body["messages"]) for body in model.asked)
    assert "lookup" in first
    assert "How warm?" in first
    assert "Thought" in first
    assert "Finish[" in first
    assert "How warm?" in second
    assert "It is 21." in second


def test_the_prompt_can_be_ones_own() -> None:
    """H24"""
    made, model = reacting(FINISH, custom_prompt='Tools: {tools} Q: {question} H: {history} JSON: {"a": 1}')
    with made:
        made.run("How warm?")
    prompt = model.asked[0]["messages"][0]["content"]
    assert prompt.startswith("Tools: - lookup: ")
    assert "Q: How warm? H:  JSON: {" in prompt


def test_two_rounds_make_a_trace_of_one() -> None:
    """H26, H28: the round with Finish is not in it."""
    made, model = reacting(LOOK, FINISH)
    with made:
        assert made.run("How warm?") == "It is 21."
    trace = made.get_trace()
    assert [(one.thought, one.observation) for one in trace] == [("I look it up.", "Rome: 21")]
    assert trace[0].action.startswith("lookup[")
    assert "Thought: I look it up." in str(trace[0])
    trace.clear()
    assert len(made.get_trace()) == 1
    assert [(m["role"], m["content"]) for m in model.asked[1]["messages"][-2:]] == [("assistant", LOOK), ("user", "Observation: Rome: 21")]


def test_the_thought_of_a_round_is_the_models_own_not_the_thinking_tools() -> None:
    """H26"""
    made, _ = reacting('Thought: I think first.\nAction: sequential_thinking[{"thought": "deep"}]', FINISH, tools=(SequentialThinking(),))
    with made:
        made.run("q")
    assert [one.thought for one in made.get_trace()] == ["I think first."]


def test_the_trace_is_of_the_latest_run() -> None:
    """H28"""
    made, _ = reacting(LOOK, FINISH, FINISH)
    with made:
        made.run("one")
        made.run("two")
    assert made.get_trace() == []


def test_what_cannot_be_read_is_corrected_in_another_round() -> None:
    """H26"""
    made, model = reacting("I wonder.", FINISH)
    with made:
        assert made.run("q") == "It is 21."
    assert model.asked[1]["messages"][-1]["role"] == "user"
    assert made.get_trace() == []


@pytest.mark.parametrize(
    ("action", "observed"),
    [("nobody[x]", "nobody"), ("nothing[x]", "nothing back"), ("lookup[Oslo]", "Oslo: 21")],
)
def test_functions_get_the_text_and_what_goes_wrong_is_observed(action: str, observed: str) -> None:
    """H27"""
    made, _ = reacting(f"Thought: t\nAction: {action}", FINISH, tools=(lookup, nothing))
    with made:
        made.run("q")
    assert observed in made.get_trace()[0].observation


def test_a_tool_object_gets_its_input_by_name() -> None:
    """H27"""
    echo = Echo()
    made, _ = reacting("Thought: t\nAction: echo[some, text]", FINISH, tools=(echo,))
    with made:
        made.run("q")
    assert echo.given == [{"input": "some, text"}]


@pytest.mark.parametrize(("last", "answer"), [("Finish[late]", "late"), ("just text", "just text")])
def test_rounds_that_are_used_up_force_an_answer(last: str, answer: str) -> None:
    """H28"""
    made, model = reacting(LOOK, "Thought: t\nAction: lookup[Oslo]", last, max_iterations=2)
    with made:
        got = made.run("q")
    assert (got, got.reason) == (answer, "steps")
    assert len(model.asked) == 3
    assert said(made) == [("user", "q"), ("assistant", answer)]


def test_a_model_that_fails_at_once_is_an_error() -> None:
    """H28"""
    made, _ = reacting(OUT)
    with made, pytest.raises(UpstreamError, match="out of order"):
        made.run("q")


def test_a_model_that_fails_later_leaves_what_was_found() -> None:
    """H28"""
    made, _ = reacting(LOOK, OUT, OUT)
    with made:
        answer = made.run("q")
    assert "Rome: 21" in answer
    assert (answer.status, answer.reason) == ("incomplete", "outage")


def test_the_history_counts_two_four_none_two() -> None:
    """H28, H29"""
    made, _ = reacting(FINISH, FINISH, FINISH)
    counts = []
    with made:
        for clear in (False, False, True):
            if clear:
                made.clear_history()
                counts.append(len(made.get_history()))
            made.run("q")
            counts.append(len(made.get_history()))
    assert counts == [2, 4, 0, 2]


def test_a_streamed_react_agent_reads_whole_turns(capsys: pytest.CaptureFixture[str]) -> None:
    """H29: the turn comes in pieces, and is printed in pieces, but acted on as a whole."""
    made, _ = reacting(LOOK, FINISH, is_stream=True, verbose=True)
    with made:
        assert list(made.stream_run("q")) == ["It is 21."]
    out = capsys.readouterr().out
    assert LOOK in out
    assert "[r] Observation: Rome: 21" in out
    assert len(made.get_trace()) == 1


# ---- Reflection ----


def reflecting(*turns: Any, **more: Any) -> tuple[ReflectionAgent, Scripted]:
    model = Scripted(*turns)
    return ReflectionAgent("f", model, **{"verbose": False, **more}), model


GOOD = "Fine. [NO_IMPROVEMENT_NEEDED]"


def test_the_defaults_of_a_reflection_agent() -> None:
    """H30"""
    made = ReflectionAgent("f", Scripted())
    assert (made.max_reflections, made.auto_finish) == (2, False)


def test_an_answer_is_reviewed_and_made_better_again_and_again() -> None:
    """H31, H32: a review sees only the latest answer."""
    made, model = reflecting("one", "too short", "two", "still short", "three", system_prompt="Never sent.")
    with made:
        assert made.run("Write") == "three"
    asked = [str(body["messages"]) for body in model.asked]
    assert "one" in asked[1]
    assert "two" in asked[3]
    assert "one" not in asked[3]
    assert "too short" not in asked[3]
    assert "still short" in asked[4]
    assert not any("Never sent" in text for text in asked)
    assert not any("tools" in body for body in model.asked)


@pytest.mark.parametrize(("auto", "answer", "asked"), [(True, "one", 2), (False, "two", 3)])
def test_a_good_review_ends_it_only_if_it_may(auto: bool, answer: str, asked: int) -> None:
    """H31"""
    made, model = reflecting(*["one", GOOD, "two"][:asked], max_reflections=1, auto_finish=auto)
    with made:
        assert made.run("Write") == answer
    assert len(model.asked) == asked


def test_the_history_has_every_draft_and_review() -> None:
    """H33: four entries after one round."""
    made, _ = reflecting("one", "too short", "two", max_reflections=1)
    with made:
        made.run("Write")
    assert [text for _, text in said(made)] == ["Write", "one", "too short", "two"]
    assert (said(made)[1][0], said(made)[3][0]) == ("assistant", "assistant")


def test_an_early_end_keeps_the_review() -> None:
    """H33"""
    made, _ = reflecting("one", GOOD, auto_finish=True)
    with made:
        made.run("Write")
    assert [text for _, text in said(made)] == ["Write", "one", GOOD]


def test_drafts_may_use_tools_and_the_history_has_the_drafts_alone() -> None:
    """H33"""
    made, model = reflecting(
        calls(("lookup", {"city": "Rome"}), text="Let me see."), "one", "short", "two", max_reflections=1, tool_registry=Registry([lookup])
    )
    with made:
        assert made.run("Write") == "two"
    assert [text for _, text in said(made)] == ["Write", "one", "short", "two"]
    assert ["tools" in body for body in model.asked] == [True, True, False, True]


def test_the_first_draft_must_come_the_rest_need_not() -> None:
    """H32"""
    made, _ = reflecting(OUT)
    with made, pytest.raises(UpstreamError, match="out of order"):
        made.run("Write")
    for turns, kept in (((OUT,), "one"), (("too short", OUT), "one"), (("too short", "two", OUT), "two")):
        made, _ = reflecting("one", *turns)
        with made:
            assert made.run("Write") == kept


def test_prompts_are_replaced_one_by_one() -> None:
    """H30"""
    made, model = reflecting("one", "short", "two", max_reflections=1, custom_prompts={"reflect": "Mark {content} for {task}"})
    with made:
        made.run("Write")
    assert model.asked[1]["messages"][-1]["content"] == "Mark one for Write"
    assert "Write" in model.asked[0]["messages"][-1]["content"]
    with pytest.raises(ValueError, match="no prompt polish"):
        ReflectionAgent("f", Scripted(), custom_prompts={"polish": "x"})


def test_previews_of_a_verbose_one_are_short(capsys: pytest.CaptureFixture[str]) -> None:
    """H30: 120 characters."""
    made, _ = reflecting("word " * 100, "too long", "two", max_reflections=1, verbose=True)
    with made:
        made.run("Write")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in lines] == ["[f] initial", "[f] reflect", "[f] refine", "[f] Answer"]
    assert len(lines[0].removeprefix("[f] initial: ")) == 120


def test_no_reviews_are_one_answer() -> None:
    made, model = reflecting("one", max_reflections=0)
    with made:
        assert made.run("Write") == "one"
    assert len(model.asked) == 1
    with pytest.raises(ValueError, match="max_reflections"):
        ReflectionAgent("f", Scripted(), max_reflections=-1)


# ---- Plan and solve ----

PLAN = '```python\n["look", "tell"]\n```'


def planning(*turns: Any, tools: Any = (), **more: Any) -> tuple[PlanAndSolveAgent, Scripted]:
    model = Scripted(*turns)
    return PlanAndSolveAgent("p", model, tool_registry=Registry(tools) if tools else None, **more), model


def test_each_step_sees_question_plan_and_the_results_before_it() -> None:
    """H35, H36"""
    made, model = planning(PLAN, "looked", "told", system_prompt="Never sent.")
    with made:
        assert made.run("How warm?") == "told"
    assert len(model.asked) == 3
    step = model.asked[2]["messages"][-1]["content"]
    assert all(text in step for text in ("How warm?", "1. look", "2. tell", "Step 1: look", "Result 1: looked", "Current step: tell"))
    assert not any("Never sent" in str(body) for body in model.asked)


def test_the_history_has_the_plan_and_an_entry_for_each_step() -> None:
    """H36"""
    made, _ = planning(PLAN, "looked", "told")
    with made:
        made.run("How warm?")
    assert said(made) == [("user", "How warm?"), ("assistant", PLAN), ("assistant", "looked"), ("assistant", "told")]


def test_the_results_of_the_steps_are_the_callers_own_list() -> None:
    """H36"""
    made, _ = planning(PLAN, "looked", "told", '["again"]', "done")
    with made:
        made.run("q")
        results = made.get_step_results()
        assert [(one.step, one.result) for one in results] == [("look", "looked"), ("tell", "told")]
        results.clear()
        assert len(made.get_step_results()) == 2
        made.run("q")
    assert [tuple(one) for one in made.get_step_results()] == [("again", "done")]


def test_no_plan_is_an_error_that_says_which() -> None:
    """H34: no degrading to one step; an empty plan and an unreadable one are told apart."""
    messages = []
    for plan in ("[]", "I would rather not."):
        made, _ = planning(plan)
        with made, pytest.raises(GatewayError, match="plan") as caught:
            made.run("q")
        messages.append(caught.value.message)
    made, _ = planning(OUT)
    with made, pytest.raises(UpstreamError, match="out of order"):
        made.run("q")
    assert messages[0] != messages[1]


def test_a_failing_step_ends_it_with_what_was_gathered() -> None:
    """H35"""
    made, _ = planning(PLAN, "looked", OUT)
    with made:
        answer = made.run("q")
    assert (answer, answer.status, answer.reason) == ("looked", "incomplete", "outage")
    assert [tuple(one) for one in made.get_step_results()] == [("look", "looked")]


def test_steps_may_use_tools() -> None:
    """H36"""
    made, model = planning(PLAN, calls(("lookup", {"city": "Rome"})), "looked", "told", tools=[lookup])
    with made:
        assert made.run("q") == "told"
    assert [tuple(one) for one in made.get_step_results()] == [("look", "looked"), ("tell", "told")]
    assert len(said(made)) == 4
    assert "tools" not in model.asked[0]
    assert "tools" in model.asked[1]


def test_a_step_has_three_turns_with_tools() -> None:
    """H36"""
    made, model = planning('["look"]', *(calls(("lookup", {"city": str(n)})) for n in range(3)), "enough", tools=[lookup])
    with made:
        assert made.run("q").reason == "steps"
    assert len(model.asked) == 5


@pytest.mark.parametrize("names", [("plan", "execute"), ("planner", "executor")])
def test_the_prompts_of_both_parts_can_be_replaced(names: tuple[str, str]) -> None:
    """H36"""
    made, model = planning('["look"]', "told", custom_prompts={names[0]: "Plan {question}", names[1]: "Do {current_step} of {plan} after {history}"})
    with made:
        made.run("q")
    assert [body["messages"][-1]["content"] for body in model.asked] == ["Plan q", "Do look of 1. look after none"]


def test_runs_of_patterns_that_say_everything_themselves_begin_anew() -> None:
    """H33, H36: the history is kept, and not sent."""
    for made, model in (reflecting("old draft", "new draft", max_reflections=0), planning('["a"]', "old result", '["b"]', "new result")):
        with made:
            made.run("the old task")
            made.run("another task")
        assert len(made.get_history()) in (4, 6)
        assert "old " not in str([body["messages"] for body in model.asked[len(model.asked) // 2 :]])


def test_what_tools_keep_outlives_a_plan() -> None:
    """T19, P26: each run has a plan of its own, the tools' values stay."""

    def count(*, context: Context) -> str:
        """Counts."""
        context.session["count"] = context.session.get("count", 0) + 1
        return str(context.session["count"])

    made, model = planning(*(turn for _ in range(2) for turn in ('["count"]', calls(("count", {})), "counted")), tools=[count])
    with made:
        made.run("q")
        made.run("q")
    assert [body["messages"][-1]["content"] for body in model.asked[2::3]] == ["1", "2"]


# ---- Two-stage ----


def staged(*turns: Any, tools: Any = (lookup,), **more: Any) -> tuple[TwoStageAgent, Scripted]:
    model = Scripted(*turns)
    return TwoStageAgent("t", model, tool_registry=Registry(tools) if tools else None, **more), model


def test_the_first_phase_has_no_tools_and_the_second_all() -> None:
    """P1, P2, P7"""
    made, model = staged("I look.", calls(("lookup", {"city": "Rome"})), "I tell.", "It is 21.")
    with made:
        assert made.run("q") == "It is 21."
    assert ["tools" in body for body in model.asked] == [False, True, False, True]
    assert said(made) == [("user", "q"), ("assistant", "It is 21.")]


def test_the_phase_can_be_switched_off() -> None:
    """P1, P14"""
    made, model = staged("It is 21.", thinking="never")
    with made:
        assert made.run("q") == "It is 21."
    assert len(model.asked) == 1


def test_without_tools_there_is_one_call() -> None:
    """P8"""
    made, model = staged("hello", tools=())
    with made:
        assert made.run("q") == "hello"
    assert len(model.asked) == 1


def test_a_critic_sends_a_plan_back() -> None:
    """P15"""
    refused = '{"valid": false, "issue": "too vague", "plan": ""}'
    accepted = '{"valid": true, "issue": "", "plan": "look it up"}'
    made, model = staged("I try.", refused, "I look.", accepted, "It is 21.", critic=True)
    with made:
        assert made.run("q") == "It is 21."
    assert "too vague" in str(model.asked[2]["messages"])


def test_a_person_can_refuse_a_plan_and_change_it() -> None:
    """P20"""
    asked: list[PendingCall] = []

    def approve(call: PendingCall) -> Any:
        asked.append(call)
        return "look first" if len(asked) == 1 else {"approved": True, "arguments": {"plan": "my plan"}}

    made, model = staged("I tell.", "I look.", "It is 21.", approve_plan=True, approve=approve)
    with made:
        assert made.run("q") == "It is 21."
    assert [(call.tool, call.arguments["plan"]) for call in asked] == [("plan", "I tell."), ("plan", "I look.")]
    assert "look first" in str(model.asked[1]["messages"])
    assert "my plan" in str(model.asked[2]["messages"])
    assert len(model.asked) == 3


def test_a_failing_phase_is_named() -> None:
    """P4"""
    made, _ = staged(OUT)
    with made, pytest.raises(GatewayError, match="thinking phase"):
        made.run("q")


def test_a_model_that_thinks_by_itself_needs_no_first_phase(far: Upstream) -> None:
    """P22: `auto` leaves it out, `always` does not."""
    far.stream(*answer("It is 21."), repeat=9)
    for thinking, asked in (("auto", 1), ("always", 2)):
        far.requests.clear()
        with LLM("deepseek-reasoner", "key-0123456789", f"{far.url}/v1", adapter="deepseek", env={}) as llm:
            assert TwoStageAgent("t", llm, tool_registry=Registry([lookup]), thinking=thinking).run("q") == "It is 21."
        assert len(far.requests) == asked


def test_a_run_that_was_held_up_counts_nothing_twice() -> None:
    """T24, P20: after the answer it is gone through again; thoughts of before are there once."""
    thought = {"thought": "t", "next_thought_needed": True, "thought_number": 1, "total_thoughts": 3}
    turns = (calls(("sequential_thinking", thought)), calls(("calculator", {"expression": "2+3"})), calls(("sequential_thinking", thought)), "done")
    model = Scripted(*turns)
    tools = Registry([SequentialThinking(), Calculator()])
    with TwoStageAgent("t", model, tool_registry=tools, thinking="never", approve_tools=["calculator"], approve=lambda call: True) as made:
        assert made.run("q") == "done"
    assert '"thought_history_length":2' in model.asked[-1]["messages"][-1]["content"].replace(" ", "")
    assert len(model.asked) == 4


def test_the_thoughts_are_told_as_far_as_they_may_be_seen() -> None:
    """P19"""
    for visibility, seen in (("hidden", False), ("full", True)):
        made, _ = staged("I look.", "It is 21.", visibility=visibility)
        with made:
            assert ("I look." in made.run("q").reasoning) is seen


@pytest.mark.parametrize("wrong", [{"thinking": "sometimes"}, {"withhold": "x"}, {"visibility": "x"}, {"custom_prompts": {"act": "x"}}])
def test_what_a_two_stage_agent_does_not_know_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"is none of|has no prompt"):
        TwoStageAgent("t", Scripted(), **wrong)


def test_tools_may_stay_in_the_request_while_it_thinks() -> None:
    """P13"""
    made, model = staged("I look.", "It is 21.", withhold="tool_choice_none")
    with made:
        made.run("q")
    assert model.asked[0]["tool_choice"] == "none"
    assert model.asked[0]["tools"] == model.asked[1]["tools"]


def test_a_run_that_fails_leaves_nothing_of_the_one_before() -> None:
    """H28, H36"""
    react, _ = reacting(LOOK, FINISH, OUT)
    plan, _ = planning('["look"]', "looked", OUT)
    for made in (react, plan):
        with made:
            made.run("q")
            with pytest.raises(UpstreamError):
                made.run("q")
    assert (react.get_trace(), plan.get_step_results()) == ([], [])


async def test_a_plan_does_not_go_on_with_what_an_earlier_one_left_undone() -> None:
    """H36: each run has a plan of its own."""
    made, _ = planning(PLAN, "looked", OUT, '["another"]', "done")
    async with made:
        assert (await made.arun("q")).reason == "outage"
        lists = [item.data["todos"] async for item in made.events("q") if isinstance(item, Event) and item.type == "todo.updated"]
    assert [[todo["content"] for todo in todos] for todos in lists] == [["another"], ["another"]]


async def test_all_patterns_run_in_the_callers_loop_and_tell_events() -> None:
    for made, wanted in (
        (reacting(LOOK, FINISH)[0], "It is 21."),
        (reflecting("one", "short", "two", max_reflections=1)[0], "two"),
        (planning('["look"]', "told")[0], "told"),
        (staged("I look.", "It is 21.")[0], "It is 21."),
    ):
        async with made:
            last = [item async for item in made.events("q")][-1]
        assert isinstance(last, Event)
        assert (last.type, last.data["output"]) == ("run.finished", wanted)


def test_a_calculator_is_a_tool_like_any_other() -> None:
    made, _ = reacting("Thought: t\nAction: calculator[15 * 8 + 32]", "Finish[152]", tools=(Calculator(),))
    with made:
        assert made.run("q") == "152"
    assert made.get_trace()[0].observation == "152"
