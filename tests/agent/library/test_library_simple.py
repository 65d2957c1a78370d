"""SimpleAgent (H18 to H23), and what every library agent does."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest
from scripted import Scripted, calls

from gateway.agent import (
    LLM,
    AgentLimits,
    Answer,
    ApprovalRequired,
    Calculator,
    Config,
    Delta,
    Event,
    Message,
    PendingCall,
    Registry,
    SimpleAgent,
    Tool,
    ToolParameter,
)
from gateway.agent.tools.tool import Context
from gateway.errors import GatewayError, UpstreamError

SUM = ("calculator", {"expression": "2+3"})


def lookup(city: str) -> str:
    """The weather of a city."""
    return f"{city}: 21"


def broken(city: str) -> str:
    raise RuntimeError("the station is closed")


class Search(Tool):
    name, description = "search", "Searches."

    def __init__(self) -> None:
        self.given: list[Any] = []

    def get_parameters(self) -> list[ToolParameter]:
        return [ToolParameter("query", "string", "what")]

    def run(self, params: dict[str, Any]) -> str:
        self.given.append(params)
        return "found"


def agent(*turns: Any, tools: Any = (), **more: Any) -> tuple[SimpleAgent, Scripted]:
    model = Scripted(*turns)
    return SimpleAgent("a", model, tool_registry=Registry(tools) if tools else None, **more), model


def said(agent: SimpleAgent) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in agent.get_history()]


# ---- H18 ----


def test_tool_calling_is_on_only_where_there_is_a_registry() -> None:
    """H18"""
    model = Scripted()
    assert not SimpleAgent("a", model).enable_tool_calling
    assert not SimpleAgent("a", model, enable_tool_calling=True).enable_tool_calling
    assert SimpleAgent("a", model, tool_registry=Registry()).enable_tool_calling
    assert not SimpleAgent("a", model, tool_registry=Registry(), enable_tool_calling=False).enable_tool_calling


def test_there_is_a_default_prompt_and_tools_are_sent_only_if_there_are_some() -> None:
    """H18"""
    for tools, enabled, sent in (((), True, False), ((lookup,), False, False), ((lookup,), True, True)):
        model = Scripted("hi")
        with SimpleAgent("a", model, tool_registry=Registry(tools), enable_tool_calling=enabled) as made:
            made.run("q")
        assert model.asked[0]["messages"][0]["role"] == "system"
        assert model.asked[0]["messages"][0]["content"]
        assert ("tools" in model.asked[0]) is sent
        assert "lookup" not in str(model.asked[0]["messages"])


def test_the_own_prompt_takes_the_place_of_the_default() -> None:
    """H18"""
    made, model = agent("hi", system_prompt="Speak French.")
    with made:
        made.run("q")
    assert model.asked[0]["messages"][0] == {"role": "system", "content": "Speak French."}


def test_a_model_without_tools_is_told_of_them_in_words() -> None:
    """H18, H19: the section with the tools stands in the system text, and the text protocol is used."""
    made, model = agent(
        UpstreamError("bad_request", "this model does not support tools"),
        "[TOOL_CALL:lookup:city=Rome] and [TOOL_CALL:lookup:city=Oslo]",
        "warm",
        tools=[lookup],
    )
    with made:
        assert made.run("q") == "warm"
    system, _, turn, results = model.asked[-1]["messages"]
    assert "lookup" in system["content"]
    assert turn["role"] == "assistant"
    assert results["role"] == "user"
    assert results["content"].index("Rome: 21") < results["content"].index("Oslo: 21")


# ---- H19, H21, H22 ----


def test_markers_in_the_text_are_calls_and_leave_the_text() -> None:
    """H19"""
    made, model = agent('Let me see. [TOOL_CALL:lookup:{"city": "Rome [IT], north"}] [TOOL_CALL:lookup:city=Oslo]', "done", tools=[lookup])
    with made:
        assert made.run("q") == "done"
    kept = model.asked[1]["messages"]
    assert "TOOL_CALL" not in str(kept)
    assert kept[2]["content"] == "Let me see."
    assert [message["content"] for message in kept if message["role"] == "tool"] == ["Rome [IT], north: 21", "Oslo: 21"]


def test_bare_text_goes_to_the_parameter_that_is_meant() -> None:
    """H21"""
    search = Search()
    made, _ = agent("[TOOL_CALL:search:red, [blue] pandas]", "done", tools=[search])
    with made:
        made.run("q")
    assert search.given == [{"query": "red, [blue] pandas"}]


@pytest.mark.parametrize(("call", "observed"), [(("nobody", {}), "nobody"), (("broken", {"city": "x"}), "the station is closed")])
def test_a_missing_tool_and_a_failing_one_are_observations(call: Any, observed: str) -> None:
    """H22"""
    made, model = agent(calls(call), "sorry", tools=[broken])
    with made:
        assert made.run("q") == "sorry"
    assert observed in model.asked[1]["messages"][-1]["content"]


# ---- H20 ----


def test_after_three_turns_one_last_call_without_tools_answers() -> None:
    """H20"""
    made, model = agent(*(calls(("lookup", {"city": str(n)})) for n in range(3)), "[TOOL_CALL:lookup:city=x]", tools=[lookup])
    with made:
        answer = made.run("q")
    assert answer == "[TOOL_CALL:lookup:city=x]"
    assert (answer.status, answer.reason, answer.steps) == ("incomplete", "steps", 4)
    assert ["tools" in body for body in model.asked] == [True, True, True, False]


def test_the_turns_can_be_given() -> None:
    """H20"""
    made, model = agent(calls(("lookup", {"city": "x"})), "end", tools=[lookup])
    with made:
        assert made.run("q", max_tool_iterations=1) == "end"
        with pytest.raises(ValueError, match="turn"):
            made.run("q", max_tool_iterations=0)
    assert len(model.asked) == 2


def test_the_history_gains_the_question_and_the_answer_alone() -> None:
    """H20"""
    made, model = agent(calls(("lookup", {"city": "x"})), "one", "two", tools=[lookup])
    with made:
        made.run("first")
        assert said(made) == [("user", "first"), ("assistant", "one")]
        made.run("second")
    assert said(made)[2:] == [("user", "second"), ("assistant", "two")]
    assert [message["content"] for message in model.asked[-1]["messages"][1:]] == ["first", "one", "second"]


def test_a_failed_run_leaves_no_trace_in_the_history() -> None:
    """H20, H3"""
    made, _ = agent(UpstreamError("server", "out of order"), "now")
    with made:
        with pytest.raises(UpstreamError, match="out of order"):
            made.run("q")
        assert made.get_history() == []
        assert made.run("q") == "now"


def test_the_history_ends_where_the_config_says() -> None:
    """H6"""
    made, model = agent("1", "2", "3", config=Config(max_history_length=2))
    with made:
        for text in "abc":
            made.run(text)
    assert said(made) == [("user", "c"), ("assistant", "3")]
    assert len(model.asked[-1]["messages"]) == 4


def test_the_config_and_the_call_say_the_parameters() -> None:
    """H6"""
    made, model = agent("1", "2", config=Config(temperature=0.2, max_tokens=50))
    with made:
        made.run("q")
        made.run("q", temperature=0.9, top_p=0.5)
        with pytest.raises(TypeError, match="colour"):
            made.run("q", colour="red")
    assert (model.asked[0]["temperature"], model.asked[0]["max_tokens"]) == (0.2, 50)
    assert (model.asked[1]["temperature"], model.asked[1]["top_p"]) == (0.9, 0.5)


def test_a_config_that_debugs_logs_the_events_without_texts(caplog: pytest.LogCaptureFixture) -> None:
    """H6"""
    made, _ = agent("secret answer", config=Config(debug=True, log_level="WARNING"))
    with made, caplog.at_level(logging.DEBUG, "thinkgate.agent"):
        made.run("secret question")
    assert "run.finished" in caplog.text
    assert {record.levelname for record in caplog.records if record.name == "thinkgate.agent"} == {"WARNING"}
    assert "secret" not in caplog.text


def test_messages_of_the_program_are_sent() -> None:
    """H7"""
    made, model = agent("ok")
    made.add_message(Message("I am Ada.", "user"))
    made.add_message(Message("Hello Ada.", "assistant"))
    with made:
        made.run("Who am I?")
    assert [message["content"] for message in model.asked[0]["messages"][1:]] == ["I am Ada.", "Hello Ada.", "Who am I?"]


def test_an_agent_says_what_it_is() -> None:
    """H7"""
    assert str(SimpleAgent("a", LLM.demo())) == "SimpleAgent(name=a, model=demo)"


# ---- H22: streams ----


def test_a_stream_yields_pieces_and_saves_the_history() -> None:
    """H22"""
    made, _ = agent("Hello there", tools=())
    with made:
        pieces = list(made.stream_run("q"))
    assert pieces == ["Hello", " there"]
    assert said(made) == [("user", "q"), ("assistant", "Hello there")]


def test_a_stream_with_tools_yields_the_answer() -> None:
    """H22"""
    made, _ = agent(calls(("lookup", {"city": "Rome"})), "21 degrees", tools=[lookup])
    with made:
        assert "".join(made.stream_run("q")) == "21 degrees"
    assert said(made) == [("user", "q"), ("assistant", "21 degrees")]


def test_a_stream_that_fails_raises() -> None:
    """H4, H22"""
    made, _ = agent(UpstreamError("server", "out of order"))
    with made, pytest.raises(GatewayError, match="out of order"):
        list(made.stream_run("q"))
    assert made.get_history() == []


async def test_a_run_that_is_left_ends() -> None:
    hangs, ended = asyncio.Event(), asyncio.Event()

    async def hang(city: str) -> str:
        hangs.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return "never"

    made, _ = agent(calls(("hang", {"city": "x"})), tools=[hang])
    async with made:
        items = made.events("q")
        async for item in items:
            if isinstance(item, Event) and item.type == "tool.started":
                break
        await asyncio.wait_for(hangs.wait(), 5)
        await items.aclose()
        assert ended.is_set()
        assert made.get_history() == []
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


# ---- async, and inside a loop ----


async def test_the_async_twins_run_in_the_callers_loop() -> None:
    here = asyncio.get_running_loop()
    seen: list[bool] = []

    async def where(city: str) -> str:
        seen.append(asyncio.get_running_loop() is here)
        return "here"

    made, _ = agent(calls(("where", {"city": "x"})), "one", "two halves", tools=[where])
    async with made:
        assert await made.arun("q") == "one"
        assert [piece async for piece in made.astream("q")] == ["two halves"]
    assert seen == [True]
    assert len(made.get_history()) == 4


async def test_plain_calls_work_inside_a_running_loop() -> None:
    made, _ = agent("one", "two")
    with made:
        assert made.run("q") == "one"
        assert list(made.stream_run("q")) == ["t", "wo"]


def test_a_tool_may_run_another_agent_on_the_same_model() -> None:
    """A plain tool runs in a thread, an async one in the loop itself: neither waits for itself."""
    llm = LLM.over(Scripted(calls(("ask", {"text": "x"}), ("aask", {"text": "y"})), "inner", "inner", "outer"))

    def ask(text: str) -> str:
        """Asks."""
        return SimpleAgent("inner", llm).run(text)

    async def aask(text: str) -> str:
        """Asks in the loop."""
        return await SimpleAgent("inner", llm).arun(text)

    with SimpleAgent("outer", llm, tool_registry=Registry([ask, aask])) as outer:
        assert outer.run("q") == "outer"


def test_an_async_tool_may_call_what_is_not_async() -> None:
    llm = LLM.over(Scripted(calls(("ask", {"text": "x"})), "inner", "outer"))

    async def ask(text: str) -> str:
        """Asks."""
        return "".join(SimpleAgent("inner", llm).stream_run(text))

    with SimpleAgent("outer", llm, tool_registry=Registry([ask])) as outer:
        assert outer.run("q") == "outer"


def test_a_tool_that_closes_its_model_does_not_wait_for_itself() -> None:
    llm = LLM.over(Scripted(calls(("end", {"text": "x"})), "done"))

    async def end(text: str) -> str:
        """Ends."""
        await llm.aclose()
        llm.close()
        return "closed"

    with pytest.raises(RuntimeError, match="closed while"):
        SimpleAgent("outer", llm, tool_registry=Registry([end])).run("q")
    llm.close()


def test_the_events_tell_what_happens() -> None:
    async def gather(made: SimpleAgent) -> list[Event | Delta]:
        async with made:
            return [item async for item in made.events("q")]

    made, _ = agent(calls(SUM), "It is 5.", tools=[Calculator()])
    items = asyncio.run(gather(made))
    events = [item for item in items if isinstance(item, Event)]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    types = [event.type for event in events]
    assert (types[0], types[-1]) == ("run.started", "run.finished")
    assert types.index("tool.started") < types.index("tool.finished")
    assert events[-1].data == {"status": "completed", "reason": None, "output": "It is 5."}
    assert "".join(item.text for item in items if isinstance(item, Delta) and item.kind == "content") == "It is 5."


def test_an_answer_is_a_text_that_knows_how_it_came_about() -> None:
    made, _ = agent(calls(SUM), "It is 5.", tools=[Calculator()])
    with made:
        answer = made.run("q")
    assert isinstance(answer, Answer)
    assert isinstance(answer, str)
    assert (answer.status, answer.reason, answer.steps) == ("completed", None, 2)
    assert answer.usage["total_tokens"] == 30
    assert answer.cost == pytest.approx(0.002)
    assert answer.run_id.startswith("run_")


def test_a_limit_gives_the_best_answer_and_the_reason() -> None:
    made, _ = agent(calls(SUM, text="so far"), tools=[Calculator()], limits=AgentLimits(tokens=10))
    with made:
        answer = made.run("q")
    assert (answer.status, answer.reason) == ("incomplete", "tokens")
    assert answer


def test_parallel_runs_of_one_agent_do_not_mix() -> None:
    async def both() -> list[str]:
        model = Scripted(*(lambda body: f"re: {body['messages'][-1]['content']}" for _ in range(5)))
        async with SimpleAgent("a", model) as made:
            out = await asyncio.gather(*(made.arun(f"q{n}") for n in range(5)))
            assert len(made.get_history()) == 10
            return [str(one) for one in out]

    assert asyncio.run(both()) == [f"re: q{n}" for n in range(5)]


# ---- H23 ----


def test_tools_can_be_added_listed_and_removed() -> None:
    """H23: has_tools False -> add -> True."""
    made, model = agent(calls(("lookup", {"city": "Rome"})), "21")
    assert not made.has_tools()
    assert made.list_tools() == []
    made.add_tool(lookup)
    made.add_tool(Calculator())
    assert made.has_tools()
    assert made.enable_tool_calling
    assert made.list_tools() == ["calculator", "lookup"]
    assert made.remove_tool("calculator")
    assert not made.remove_tool("calculator")
    with made:
        assert made.run("q") == "21"
    entry = model.asked[0]["tools"][0]["function"]
    assert (entry["name"], entry["description"]) == ("lookup", "The weather of a city.")


def test_a_function_without_a_docstring_has_a_description_all_the_same() -> None:
    """H23"""
    made, _ = agent()
    assert made.add_tool(broken).description
    assert made.list_tools() == ["broken"]


def test_a_name_that_is_taken_is_refused_unless_it_is_meant() -> None:
    """H10, H23"""
    made, _ = agent(tools=[lookup])
    with pytest.raises(ValueError, match="lookup"):
        made.add_tool(lookup)
    made.add_tool(lookup, replace=True)
    assert made.list_tools() == ["lookup"]


def test_adding_a_tool_switches_tool_calling_on() -> None:
    """H23"""
    made = SimpleAgent("a", Scripted(), tool_registry=Registry([lookup]), enable_tool_calling=False)
    assert not made.has_tools()
    made.add_tool(Calculator())
    assert made.list_tools() == ["calculator", "lookup"]


def test_what_tools_keep_lives_as_long_as_the_conversation() -> None:
    """T19"""

    def count(*, context: Context) -> str:
        """Counts."""
        context.session["count"] = context.session.get("count", 0) + 1
        return str(context.session["count"])

    made, model = agent(*(turn for _ in range(3) for turn in (calls(("count", {})), "ok")), tools=[count])
    with made:
        made.run("q")
        made.run("q")
        made.clear_history()
        made.run("q")
    assert [body["messages"][-1]["content"] for body in model.asked[1::2]] == ["1", "2", "1"]
    assert len(made.get_history()) == 2


# ---- approvals ----


def test_a_call_that_needs_approval_raises_without_anybody_to_ask() -> None:
    made, _ = agent(calls(SUM), tools=[Calculator()], approve_tools=["calculator"])
    with made, pytest.raises(ApprovalRequired) as caught:
        made.run("q")
    assert [(call.tool, call.arguments) for call in caught.value.calls] == [("calculator", {"expression": "2+3"})]
    assert made.get_history() == []


@pytest.mark.parametrize(
    ("verdict", "observed"),
    [(True, "5"), (False, "refused"), ("too risky", "too risky"), ({"approved": True, "arguments": {"expression": "4*4"}}, "16")],
)
def test_whoever_is_asked_decides(verdict: Any, observed: str) -> None:
    asked: list[PendingCall] = []

    def approve(call: PendingCall) -> Any:
        asked.append(call)
        return verdict

    made, model = agent(calls(SUM), "done", tools=[Calculator()], approve_tools=["calculator"], approve=approve)
    with made:
        assert made.run("q") == "done"
    assert [(call.tool, call.arguments) for call in asked] == [("calculator", {"expression": "2+3"})]
    assert observed in model.asked[1]["messages"][-1]["content"]
    assert len(model.asked) == 2


async def test_whoever_is_asked_may_be_async_and_must_say_something_clear() -> None:
    async def approve(call: PendingCall) -> Any:
        await asyncio.sleep(0)
        return None

    made, _ = agent(calls(SUM), tools=[Calculator()], approve_tools=["calculator"], approve=approve)
    async with made:
        with pytest.raises(TypeError, match="approve gives"):
            await made.arun("q")


async def test_a_plain_callback_may_wait_for_a_person_while_the_loop_goes_on() -> None:
    threads: list[threading.Thread] = []

    def approve(call: PendingCall) -> bool:
        threads.append(threading.current_thread())
        return True

    made, _ = agent(calls(SUM), "done", tools=[Calculator()], approve_tools=["calculator"], approve=approve)
    async with made:
        assert await made.arun("q") == "done"
    assert threads
    assert threads[0] is not threading.current_thread()


def test_verbose_agents_print_and_others_do_not(capsys: pytest.CaptureFixture[str]) -> None:
    for verbose in (False, True):
        made, _ = agent(calls(SUM), "It is 5.", tools=[Calculator()], verbose=verbose)
        with made:
            made.run("q")
        out = capsys.readouterr().out
        assert bool(out) is verbose
    assert "Action: calculator" in out
    assert "Observation: 5" in out


def test_no_thread_begins_before_the_first_plain_call() -> None:
    before = threading.active_count()
    made, _ = agent("x")
    assert threading.active_count() == before
    made.close()
