"""simple, react, reflection and plan_and_solve (H18 to H36), and what goes wrong in them (B021, B023, B119 to B129, B143)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from scripted import Scripted, agent, calls, paired, results, run
from test_replay import Look

from gateway.agent.patterns.plan_and_solve import numbered
from gateway.agent.patterns.react import CORRECTION, FORCED, NOTHING
from gateway.agent.patterns.reflection import GOOD
from gateway.agent.patterns.simple import DEFAULT_SYSTEM
from gateway.agent.tools.registry import NO_TOOLS
from gateway.agent.tools.tool import Observation, Tool
from gateway.chat import Json, loads
from gateway.errors import UpstreamError

LOOK = calls(("look", {"q": "x"}))
EARLIER = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]


def down(body: Json) -> UpstreamError:
    return UpstreamError("server", "down", upstream_status=503)


def system(body: Json) -> str:
    first = body["messages"][0]
    return str(first["content"]) if first["role"] == "system" else ""


# ---- simple ----


async def test_simple_has_a_system_text_of_its_own_unless_the_agent_has_one() -> None:
    """H18."""
    model = Scripted("a", "b")
    await run(agent(), model)
    await run(agent(system="Mine."), model)
    assert [system(body) for body in model.asked] == [DEFAULT_SYSTEM, "Mine."]
    assert "tools" not in model.asked[0]


async def test_simple_streams_its_answer_where_it_has_no_tools() -> None:
    """H22: chunks as they come, and the history has question and answer."""
    one, _, log = await run(agent(), Scripted("hello there"), question=[*EARLIER, {"role": "user", "content": "q"}])
    assert log.text("content") == one.output == "hello there"
    assert one.new == [{"role": "assistant", "content": "hello there"}]


async def test_text_beside_calls_is_never_the_answer() -> None:
    """X11: the preamble rule."""
    one, _, log = await run(agent(), Scripted({**LOOK, "content": "Let me see.", "reasoning_content": "Hm."}, "x it is"), [Look()])
    assert log.text("content") == one.output == "x it is"
    assert log.text("reasoning").startswith("Hm.\nLet me see.\n")
    assert log.text("summary").startswith("Hm.\nLet me see.\n")


async def test_calls_written_into_the_text_are_made_and_taken_out_of_it() -> None:
    """H19, H21: several in one reply, names and bare values."""
    look = Look()
    model = Scripted('First [TOOL_CALL:look:q=a] then [TOOL_CALL:look:{"q": "b]"}]', "end")
    one, outcome, _ = await run(agent(), model, [look])
    assert (look.made, one.output, outcome.status) == (["a", "b]"], "end", "completed")
    assert "TOOL_CALL" not in str(one.new)
    assert all(paired(body["messages"]) for body in model.asked)


async def test_arguments_that_are_empty_are_no_arguments() -> None:
    """B021."""
    made: list[Json] = []

    class Now(Tool):
        name, description = "now", "the time"

        async def call(self, arguments: Json, context: Any) -> Observation:
            made.append(arguments)
            return Observation("12:00")

    model = Scripted(calls(("now", "")), "noon")
    one, _, _ = await run(agent(), model, [Now()])
    assert (made, one.output) == ([{}], "noon")
    [call] = model.asked[1]["messages"][-2]["tool_calls"]
    assert loads(call["function"]["arguments"]) == {}
    assert results(model.asked[1]) == [{"role": "tool", "tool_call_id": "c0", "content": "12:00"}]


async def test_calls_count_whatever_the_finish_reason_says() -> None:
    """B023."""
    look = Look()
    one, _, _ = await run(agent(), Scripted({**LOOK, "finish": "stop"}, "done"), [look])
    assert (look.made, one.output) == (["x"], "done")


async def test_an_invented_tool_is_told_which_there_are() -> None:
    """B127."""
    model = Scripted(calls(("search_files", {})), "done")
    one, outcome, _ = await run(agent(), model, [Look()])
    assert (one.output, outcome.status) == ("done", "completed")
    assert "look" in results(model.asked[1])[0]["content"]
    assert "search_files" in results(model.asked[1])[0]["content"]


async def test_a_tool_that_raises_is_an_observation() -> None:
    """B129, H22."""

    class Raises(Tool):
        name, description = "get_user", ""

        async def call(self, arguments: Json, context: Any) -> Observation:
            raise ValueError("no user 99")

    model = Scripted(calls(("get_user", {})), "no such user")
    one, _, _ = await run(agent(), model, [Raises()])
    assert one.output == "no such user"
    assert results(model.asked[1])[0]["content"] == "Error: ValueError: no user 99"


async def test_arguments_that_are_no_json_are_told_so_and_nothing_is_called_with_them() -> None:
    """B131: cut off or followed by words; every later request holds valid JSON."""
    look = Look()
    model = Scripted(calls(("look", '{"q": "x"} trailing words', "c0")), calls(("look", '{"q": "x', "c1")), calls(("look", '{"q": "fine"}', "c2")), "done")
    one, _outcome, _ = await run(agent(limits={"steps": 5}), model, [look])
    assert (one.output, look.made[-1]) == ("done", "fine")
    assert set(look.made) <= {"x", "fine"}
    assert len(look.made) <= 2
    assert "Error" in results(model.asked[2])[1]["content"]
    for body in model.asked:
        for message in body["messages"]:
            for call in message.get("tool_calls", ()):
                loads(call["function"]["arguments"])


async def test_results_stand_in_the_order_of_the_calls_and_the_calls_run_side_by_side() -> None:
    """B143."""

    class Slow(Look):
        async def call(self, arguments: Json, context: Any) -> Observation:
            await asyncio.sleep(0.3 if arguments["q"] == "A" else 0.15)
            return Observation(arguments["q"])

    model = Scripted(calls(("look", {"q": "A"}), ("look", {"q": "B"})), "done")
    began = asyncio.get_running_loop().time()
    await run(agent(), model, [Slow()])
    assert [result["content"] for result in results(model.asked[1])] == ["A", "B"]
    assert asyncio.get_running_loop().time() - began < 0.43


async def test_ids_of_calls_are_kept_and_made_different_where_they_are_not() -> None:
    """B019.2, X6: also from those of the history."""
    history = [
        {"role": "user", "content": "q"},
        {**LOOK, "role": "assistant"},
        {"role": "tool", "tool_call_id": "c0", "content": "x"},
        {"role": "assistant", "content": "a"},
    ]
    model = Scripted(calls(("look", {"q": "1"}, "c0")), calls(("look", {"q": "2"}, "t-aa62"), ("look", {"q": "3"}, "")), "end")
    await run(agent(), model, [Look()], [*history, {"role": "user", "content": "again"}])
    ids = [result["tool_call_id"] for result in results(model.asked[2])]
    assert ids[0] == "c0"
    assert ids[2] == "t-aa62"
    assert len(set(ids)) == 4
    assert all(ids)
    assert paired(model.asked[2]["messages"])


async def test_the_same_agent_sends_the_same_tools_in_the_same_order() -> None:
    """X9."""
    theirs = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("zeta", "alpha")]
    model = Scripted("end")
    await run(agent(), model, [Look()], theirs=theirs)
    assert [tool["function"]["name"] for tool in model.asked[0]["tools"]] == ["alpha", "look", "zeta"]


# ---- react ----


async def test_react_goes_from_thought_to_action_to_observation_to_finish() -> None:
    """H24, H26: two rounds; the observation comes as the user's words."""
    look = Look()
    model = Scripted("Thought: find x\nAction: look[x]", "Thought: I know\nFinish[x it is]")
    one, outcome, log = await run(agent("react"), model, [look])
    assert (one.output, outcome.status, look.made) == ("x it is", "completed", ["x"])
    assert model.asked[1]["messages"][-2:] == [
        {"role": "assistant", "content": "Thought: find x\nAction: look[x]"},
        {"role": "user", "content": "Observation: about x"},
    ]
    assert [event.data["thought"] for event in log.of("thought")] == ["find x", "I know"]
    assert "- look: looks something up" in system(model.asked[0])
    assert "tools" not in model.asked[0]
    assert log.text("content") == "x it is"


async def test_react_leaves_question_and_answer_to_its_session() -> None:
    """H28: the history grows by two."""
    one, _, _ = await run(agent("react"), Scripted("Thought: a\nAction: look[x]", "Finish[end]"), [Look()])
    assert one.new == [{"role": "assistant", "content": "end"}]


@pytest.mark.parametrize("head", ["", "Action: "])
async def test_react_reads_an_answer_of_several_lines(head: str) -> None:
    """B119, H25."""
    one, _, _ = await run(agent("react"), Scripted(f"Thought: ready\n{head}Finish [line 1\nline 2 [1]\nline 3]"))
    assert one.output == "line 1\nline 2 [1]\nline 3"


async def test_react_reads_input_that_has_a_label_of_its_own() -> None:
    """B121."""

    given: list[Json] = []

    class Calc(Tool):
        name, description = "calc", ""

        async def call(self, arguments: Json, context: Any) -> Observation:
            given.append(arguments)
            return Observation("3")

    text = 'Thought: sum\nAction: calc\n\nAction Input: {\n  "code": "print({1: [2]})",\n  "note": "a } b"\n}\n'
    one, _, _ = await run(agent("react"), Scripted(text, "Thought: ok\nFinish[3]"), [Calc()])
    assert (one.output, given) == ("3", [{"code": "print({1: [2]})", "note": "a } b"}])


async def test_react_takes_no_invented_observation_for_a_real_one() -> None:
    """B123."""
    look = Look()
    model = Scripted("Thought: use tool\nAction: look[2123]\nObservation: 1\nThought: done\nFinish[1]", "Thought: real\nFinish[446916976]")
    one, _, _ = await run(agent("react"), model, [look])
    assert (one.output, look.made) == ("446916976", ["2123"])
    assert model.asked[1]["messages"][-2:] == [
        {"role": "assistant", "content": "Thought: use tool\nAction: look[2123]"},
        {"role": "user", "content": "Observation: about 2123"},
    ]
    assert model.asked[0]["stop"] == ["\nObservation:"]


async def test_react_corrects_what_it_cannot_read_and_goes_on() -> None:
    """H26; the turn keeps its reasoning."""
    model = Scripted({"content": "hm", "reasoning_content": "r"}, "Finish[end]")
    one, outcome, _ = await run(agent("react"), model)
    assert (one.output, outcome.status) == ("end", "completed")
    assert model.asked[1]["messages"][-2:] == [{"role": "assistant", "content": "hm", "reasoning_content": "r"}, {"role": "user", "content": CORRECTION}]


async def test_react_tells_of_unknown_tools_and_of_tools_that_fail() -> None:
    """H27."""
    model = Scripted("Action: nothing[x]", "Action: look[]", "Finish[end]")
    one, _, _ = await run(agent("react"), model, [Look()])
    assert one.output == "end"
    assert 'there is no tool "nothing"' in model.asked[1]["messages"][-1]["content"]
    assert "Error" in model.asked[2]["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("last", "output"),
    [("Finish[forced]", "forced"), ("just text", "just text"), (down, "What was found so far:\n- about x"), ("", "What was found so far:\n- about x")],
)
async def test_react_forces_an_answer_when_its_rounds_are_used_up(last: Any, output: str) -> None:
    """H28: Finish, else the raw text, else what there is."""
    turns = ["Action: look[x]", *([last] if last else ["", "", ""])]
    model = Scripted(*turns)
    one, outcome, _ = await run(agent("react", limits={"steps": 1}), model, [Look()])
    assert (one.output, outcome.status, outcome.reason) == (output, "incomplete", "steps")
    assert model.asked[1]["messages"][-1] == {"role": "user", "content": FORCED}


async def test_react_without_anything_says_so() -> None:
    one, outcome, _ = await run(agent("react", limits={"steps": 1}), Scripted("Thought: hm", down))
    assert outcome.reason == "steps"
    assert one.output in (NOTHING, "Thought: hm")


async def test_react_has_five_rounds() -> None:
    """H24."""
    model = Scripted(*(f"Action: look[{n}]" for n in range(5)), "Finish[end]")
    _, outcome, _ = await run(agent("react"), model, [Look()])
    assert (outcome.reason, len(model.asked)) == ("steps", 6)


async def test_react_takes_native_calls_as_actions() -> None:
    look = Look()
    model = Scripted(LOOK, "Finish[end]")
    one, _, _ = await run(agent("react"), model, [look])
    assert (one.output, look.made) == ("end", ["x"])
    assert paired(model.asked[1]["messages"])
    assert paired(one.new)


async def test_react_has_the_conversation_once() -> None:
    model = Scripted("Finish[a]", "Finish[b]")
    question = [*EARLIER, {"role": "user", "content": "q"}]
    await run(agent("react"), model, question=question)
    assert model.asked[0]["messages"][1:] == question
    assert "hello" not in system(model.asked[0])
    own = "Tools: {tools} Q: {question} {history}"
    await run(agent("react", options={"prompts": {"system": own}}), model, question=question)
    assert system(model.asked[1]) == f"Tools: {NO_TOOLS} Q: q So far:\nuser: hello\nassistant: hi"
    assert model.asked[1]["messages"][1:] == [question[-1]]


# ---- reflection ----


async def test_reflection_reviews_and_refines() -> None:
    """H31, H32, H33: the reviewer sees the task and the latest answer; the session gets all of it."""
    model = Scripted("draft", "too short", "longer", "still weak", "best")
    one, outcome, log = await run(agent("reflection"), model, question=[*EARLIER, {"role": "user", "content": "write"}])
    assert (one.output, outcome.status, len(model.asked)) == ("best", "completed", 5)
    assert log.text("content") == "best"
    review = model.asked[3]["messages"]
    assert len(review) == 1
    assert "longer" in review[0]["content"]
    assert "write" in review[0]["content"]
    assert "draft" not in review[0]["content"]
    assert [(message["role"], message["content"]) for message in one.new] == [
        ("assistant", "draft"), ("user", "too short"), ("assistant", "longer"), ("user", "still weak"), ("assistant", "best")
    ]  # fmt: skip


@pytest.mark.parametrize(("auto_finish", "asked", "output"), [(True, 2, "draft"), (False, 3, "better")])
async def test_a_good_review_ends_it_only_where_that_is_wanted(auto_finish: bool, asked: int, output: str) -> None:
    """H31, H33: the feedback is kept."""
    model = Scripted("draft", f"fine {GOOD}", "better")
    one, _, _ = await run(agent("reflection", options={"max_reflections": 1, "auto_finish": auto_finish}), model)
    assert (len(model.asked), one.output) == (asked, output)
    assert one.new[1]["content"] == f"fine {GOOD}"


@pytest.mark.parametrize(("turns", "status", "output"), [
    ((down,), "failed", ""),
    (("draft", down), "completed", "draft"),
    (("draft", "weak", down), "completed", "draft"),
    (("draft", "weak", "better", down), "completed", "better"),
])  # fmt: skip
async def test_a_failing_round_leaves_the_answer_that_was_there(turns: tuple[Any, ...], status: str, output: str) -> None:
    """H32."""
    one, outcome, _ = await run(agent("reflection"), Scripted(*turns))
    assert (outcome.status, one.output) == (status, output)


async def test_reflection_drafts_with_tools_and_the_drafts_are_thoughts() -> None:
    look = Look()
    one, _, log = await run(agent("reflection", options={"max_reflections": 1}), Scripted(LOOK, "draft", "weak", "best"), [look])
    assert (one.output, look.made, log.text("content")) == ("best", ["x"], "best")
    assert "draft" in log.text("reasoning")


async def test_reflection_takes_prompts_one_by_one() -> None:
    """H30: merged over the defaults per key."""
    model = Scripted("draft", "weak", "best")
    await run(
        agent("reflection", options={"max_reflections": 1, "prompts": {"reflect": "R {task} {content}", "refine": "F {task} {last_attempt} {feedback}"}}), model
    )
    assert [body["messages"][-1]["content"] for body in model.asked[1:]] == ["R q draft", "F q draft weak"]
    assert model.asked[0]["messages"][-1]["content"].endswith("Task: q")


# ---- plan and solve ----

STEPS = ["Ask 'why' first", 'Use the "cost" column', "a, b"]
PLAN = 'Draft:\n```\n[broken, "x\n```\nBetter:\n```json\n["Ask \'why\' first", "Use the \\"cost\\" column", "a, b"]\n```\nGood luck!'


async def test_a_plan_is_carried_out_step_by_step() -> None:
    """B125, H35: each prompt has its own step and the earlier results; the last result is the answer, no summary is asked for."""
    model = Scripted(PLAN, "r1", "r2", "r3")
    one, outcome, log = await run(agent("plan_and_solve"), model, question=[*EARLIER, {"role": "user", "content": "plan it"}])
    assert (one.output, outcome.status, len(model.asked)) == ("r3", "completed", 4)
    prompts = [body["messages"][-1]["content"] for body in model.asked[1:]]
    for number, prompt in enumerate(prompts):
        assert prompt.endswith(f"Current step: {STEPS[number]}")
        assert numbered(STEPS) in prompt
        assert [f"r{n}" in prompt for n in (1, 2, 3)] == [n <= number for n in (1, 2, 3)]
    assert log.text("content") == "r3"
    assert [body["messages"][-3:-1] for body in model.asked] == [EARLIER] * 4


async def test_a_plan_leaves_itself_and_each_result_to_its_session() -> None:
    """H36, P26: and its steps are ticked on the session's list."""
    session: Json = {}
    one, _, log = await run(agent("plan_and_solve"), Scripted('["a", "b"]', "r1", "r2"), session=session)
    assert [message["content"] for message in one.new] == ['["a", "b"]', "r1", "r2"]
    assert session["plan"] == {"question": "q", "steps": ["a", "b"]}
    assert [[todo["status"] for todo in event.data["todos"]] for event in log.of("todo.updated")] == [
        ["pending"] * 2,
        ["completed", "in_progress"],
        ["completed"] * 2,
    ]


@pytest.mark.parametrize("said", ["I have no plan.", "[]"])
async def test_a_plan_that_cannot_be_read_fails_the_run(said: str) -> None:
    """H34: no degrading to one step; the error says what is wrong."""
    one, outcome, _ = await run(agent("plan_and_solve"), Scripted(said))
    assert (outcome.status, one.output, outcome.error.code) == ("failed", "", "plan_unreadable")  # type: ignore[union-attr]


async def test_a_failed_plan_has_a_text_of_its_own() -> None:
    """H34: distinct from an unreadable one."""
    _, outcome, _ = await run(agent("plan_and_solve"), Scripted(down))
    assert outcome.error is not None
    assert outcome.error.message == "plan phase: down"


async def test_a_failing_step_ends_it_with_what_was_gathered() -> None:
    """H35."""
    one, outcome, _ = await run(agent("plan_and_solve"), Scripted('["a", "b", "c"]', "r1", "r2", down))
    assert (outcome.status, outcome.reason, one.output) == ("incomplete", "outage", "r1\n\nr2")
    assert outcome.error is not None


async def test_a_step_has_tools_and_three_turns_of_its_own() -> None:
    """H36, section 8."""
    looks = [calls(("look", {"q": str(n)})) for n in range(3)]
    model = Scripted('["a", "b"]', *looks, "r1", "r2")
    one, outcome, _ = await run(agent("plan_and_solve"), model, [Look()])
    assert (one.output, outcome.status, outcome.reason) == ("r2", "incomplete", "steps")
    assert ["tools" in body for body in model.asked] == [False, True, True, True, False, True]
    assert all(paired(body["messages"]) for body in model.asked)
    assert paired(one.new)


async def test_plan_prompts_may_be_the_agents_own() -> None:
    model = Scripted('["a"]', "r")
    await run(agent("plan_and_solve", options={"prompts": {"plan": "P {question}", "execute": "E {question}|{plan}|{history}|{current_step}"}}), model)
    assert [body["messages"][-1]["content"] for body in model.asked] == ["P q", "E q|1. a|none|a"]


# ---- all of them ----


@pytest.mark.parametrize("pattern", ["simple", "react", "two_stage", "reflection", "plan_and_solve"])
async def test_the_agents_system_text_comes_first_everywhere(pattern: str) -> None:
    """Section 8, H36: none of them ignores it."""
    model = Scripted(lambda body: '["a"]' if "Python list" in str(body["messages"][-1]) else "Finish[end]", repeats=True)
    await run(agent(pattern, system="I am first."), model, [Look()])
    assert all(system(body).startswith("I am first.") for body in model.asked)


@pytest.mark.parametrize("pattern", ["simple", "react", "two_stage", "reflection", "plan_and_solve"])
async def test_the_clients_parameters_reach_every_call(pattern: str) -> None:
    model = Scripted(lambda body: '["a"]' if "Python list" in str(body["messages"][-1]) else "Finish[end]", repeats=True)
    await run(agent(pattern), model, [Look()], parameters={"temperature": 0.3})
    assert {body["temperature"] for body in model.asked} == {0.3}


@pytest.mark.parametrize("pattern", ["simple", "react", "two_stage", "reflection", "plan_and_solve"])
async def test_all_calls_of_a_run_are_counted(pattern: str) -> None:
    model = Scripted(lambda body: '["a"]' if "Python list" in str(body["messages"][-1]) else "Finish[end]", repeats=True)
    one, _, log = await run(agent(pattern), model, [Look()])
    assert one.spent.usage["total_tokens"] == 15 * len(model.asked)
    assert log.of("usage")[-1].data["total"] == one.spent.usage
