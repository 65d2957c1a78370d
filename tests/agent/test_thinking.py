"""The thinking tool, requirement by requirement (T1 to T33)."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import logging
import threading
import time
import tracemalloc
from typing import Any

import pytest
from thinking_steps import Session, accepted, call, refused, step, texts

from gateway.agent.memory.caps import cap_output
from gateway.agent.tools import Context
from gateway.agent.tools.thinking import PARAMETERS, SequentialThinking, Thoughts

# what is advertised


def test_one_name_is_advertised_and_the_two_others_are_aliases() -> None:
    """T1"""
    tool = SequentialThinking()
    assert tool.to_openai_schema()["function"]["name"] == "sequential_thinking"
    assert tool.aliases == ("thinking", "sequentialthinking")


def test_the_schema_has_exactly_these_fields_and_requires_four() -> None:
    """T2, and revision_type of CONTRACT 8"""
    parameters = SequentialThinking().parameters
    types = {name: (one["type"], one.get("minimum")) for name, one in parameters["properties"].items()}
    assert types == {
        "thought": ("string", None),
        "next_thought_needed": ("boolean", None),
        "thought_number": ("integer", 1),
        "total_thoughts": ("integer", 1),
        "is_revision": ("boolean", None),
        "revises_thought": ("integer", 1),
        "revision_type": ("string", None),
        "branch_from_thought": ("integer", 1),
        "branch_id": ("string", None),
        "needs_more_thoughts": ("boolean", None),
    }
    assert parameters["required"] == ["thought", "next_thought_needed", "thought_number", "total_thoughts"]


def test_tool_and_field_ask_for_the_users_language_without_tool_names_and_without_the_answer() -> None:
    """T18"""
    for text in (SequentialThinking().description, PARAMETERS["properties"]["thought"]["description"]):
        words = " ".join(text.lower().split())
        assert "natural language" in words
        assert "never name a tool" in words
        assert "why" in words
        assert "not how" in words
        assert "never" in words[words.index("final answer") - 40 : words.index("final answer") + 40] or "never the final answer" in words


def test_the_description_splits_the_roles_of_todo_and_thinking() -> None:
    """T29"""
    assert "todo list" in SequentialThinking().description
    assert "synthesises" in SequentialThinking().description


def test_mcp_clients_learn_that_a_call_writes_and_may_not_be_repeated() -> None:
    """T32"""
    assert SequentialThinking.annotations["readOnlyHint"] is False
    assert SequentialThinking.annotations["idempotentHint"] is False


def test_the_end_of_thinking_asks_for_no_further_call() -> None:
    """T33"""
    result = Thoughts().add(step(2, 2, False))
    assert "continue" not in json.dumps(result)
    assert "Do not call again" in SequentialThinking().description


# what is refused


@pytest.mark.parametrize("thought", ["", "   \n", None, 7, ["a"], {"text": "a"}])
def test_an_empty_thought_is_refused_by_name(thought: Any) -> None:
    """T3"""
    error = refused(step(thought=thought))
    assert error.startswith("thought ")
    assert "non-empty" in error


def test_a_missing_thought_is_refused_by_name() -> None:
    """T3"""
    assert "thought must be a non-empty string" in refused({"thought_number": 1, "total_thoughts": 1, "next_thought_needed": False})


BAD_NUMBERS = [0, -1, "0", "-3", "abc", "", " ", "1.5", 1.5, True, False, [], {}, 2**53, "99999999999999999999", float("nan"), float("inf"), "1e3", "٣"]


@pytest.mark.parametrize("number", BAD_NUMBERS, ids=repr)
@pytest.mark.parametrize("field", ["thought_number", "total_thoughts"])
def test_a_number_that_is_none_is_refused_by_name(field: str, number: Any) -> None:
    """T4, T5, B139.2"""
    assert refused({**step(), field: number}).startswith(f"{field} must be a whole number, 1 or more")


@pytest.mark.parametrize("number", [one for one in BAD_NUMBERS if one not in ("", " ")], ids=repr)
@pytest.mark.parametrize("field", ["revises_thought", "branch_from_thought"])
def test_an_optional_number_that_is_none_is_refused_by_name(field: str, number: Any) -> None:
    """T2, B139.2"""
    assert refused({**step(), field: number}).startswith(f"{field} must be a whole number, 1 or more")


@pytest.mark.parametrize("value", ["maybe", 2, -1, 0.5, [], {}], ids=repr)
@pytest.mark.parametrize("field", ["next_thought_needed", "is_revision", "needs_more_thoughts"])
def test_a_boolean_that_is_none_is_refused_by_name(field: str, value: Any) -> None:
    """T30"""
    assert refused({**step(), field: value}) == f"{field} must be true or false"


@pytest.mark.parametrize("arguments", ['{"thought": "a"', "", "null", "[1]", [], None, 3, '"text"'], ids=repr)
async def test_unreadable_arguments_are_a_result_and_not_an_exception(arguments: Any) -> None:
    """T6"""
    result = await call(SequentialThinking(), {}, arguments)
    assert result["success"] is False
    assert "arguments" in result["error"]


def test_arguments_may_come_as_text() -> None:
    """T6: what the model wrote as a JSON text is read"""
    assert accepted(Thoughts(), json.dumps(step(2, 4)))["thought_number"] == 2  # type: ignore[arg-type]


def test_half_a_character_is_refused() -> None:
    """T6: a lone surrogate has no JSON form, so it could never be given back"""
    assert "surrogate" in refused(step(thought="a\ud83d"))


@pytest.mark.parametrize("kind", ["replaces", 1, True, [], "no"], ids=repr)
def test_an_unknown_revision_type_is_refused_by_name(kind: Any) -> None:
    """T22"""
    assert refused(step(revises_thought=1, revision_type=kind)) == "revision_type must be replace, amend or cancel"


def test_the_limit_of_a_thought_counts_characters_and_not_bytes() -> None:
    """T23"""
    for sign in ("a", "思", "🙂"):
        accepted(Thoughts(), step(thought=sign * 2000))
        assert refused(step(thought=sign * 2001)) == "thought must be at most 2000 characters long, it has 2001"
    assert "at most 5 " in refused(step(thought="thinks"), Thoughts(max_length=5))


def test_the_cap_on_thoughts_is_named_and_holds() -> None:
    """T31"""
    thoughts = Thoughts()
    for number in range(1, 1001):
        accepted(thoughts, step(number, 1000))
    for _ in range(2):
        assert "1000 thoughts" in refused(step(1001, 1001), thoughts)
    assert len(thoughts.history) == 1000


def test_the_cap_on_branches_is_named_and_leaves_the_known_branches_open() -> None:
    """T31"""
    thoughts = Thoughts()
    for number in range(50):
        accepted(thoughts, step(1, branch_from_thought=1, branch_id=f"b{number}"))
    assert "50 branches" in refused(step(1, branch_from_thought=1, branch_id="one more"), thoughts)
    assert accepted(thoughts, step(2, branch_from_thought=1, branch_id="b7"))["thought_history_length"] == 51
    assert accepted(thoughts, step(3))["thought_history_length"] == 52, "a thought outside of branches"


def test_the_name_of_a_branch_has_a_limit() -> None:
    """T31"""
    assert refused(step(branch_from_thought=1, branch_id="b" * 101)).startswith("branch_id must be at most 100 characters")


# what is accepted


def test_the_total_rises_to_the_number_in_result_and_history() -> None:
    """T7"""
    thoughts = Thoughts()
    assert accepted(thoughts, step(5, 3))["total_thoughts"] == 5
    assert thoughts.history[0].total_thoughts == 5


def test_the_total_may_rise_and_fall() -> None:
    """T8"""
    thoughts = Thoughts()
    totals = [4, 4, 6, 6, 7, 6, 7]
    seen = [accepted(thoughts, step(number, total, number < 7))["total_thoughts"] for number, total in enumerate(totals, 1)]
    assert seen == totals


def test_every_accepted_thought_counts_and_no_refused_one() -> None:
    """T9"""
    thoughts = Thoughts()
    accepted(thoughts, step(1))
    refused(step(0), thoughts)
    data = accepted(thoughts, step(2, branch_from_thought=1, branch_id="b"), step(2, revises_thought=1), step(2))
    assert data["thought_history_length"] == 4
    assert len(thoughts.history) == 4


@pytest.mark.parametrize(
    "half", [{"branch_from_thought": 1}, {"branch_id": "b"}, {"branch_from_thought": 1, "branch_id": ""}, {"branch_from_thought": None, "branch_id": "b"}]
)
def test_half_a_branch_goes_to_the_history_only(half: dict[str, Any]) -> None:
    """T10"""
    data = accepted(Thoughts(), step(1), step(2, **half))
    assert data["branches"] == []
    assert data["branch_contents"] == {}
    assert data["thought_history_length"] == 2


def test_a_branch_thought_is_in_the_history_and_in_its_branch() -> None:
    """T11"""
    thoughts = Thoughts()
    accepted(thoughts, step(1), step(2, thought="left", branch_from_thought=1, branch_id="b"))
    assert [one.thought for one in thoughts.history] == ["hm", "left"]
    assert [one.thought for one in thoughts.branches["b"]] == ["left"]


async def test_the_text_that_the_model_reads_is_the_whole_result() -> None:
    """T12"""
    result = await call(SequentialThinking(), {}, step(1, 2, True, "why"))
    assert set(result) == {"success", "output", "data"}
    assert result["success"] is True
    assert result["data"] == {
        "thought_number": 1,
        "total_thoughts": 2,
        "next_thought_needed": True,
        "branches": [],
        "branch_contents": {},
        "thought_history_length": 1,
        "display_type": "thinking",
        "thought": "why",
        "incomplete_steps": True,
    }


@pytest.mark.parametrize(("needed", "more", "below"), list(itertools.product((False, True), repeat=3)))
def test_steps_are_incomplete_when_one_of_three_says_so(needed: bool, more: bool, below: bool) -> None:
    """T13, T16, T27, T28: the truth table, and the text that goes with it"""
    result = Thoughts().add(step(2, 3 if below else 2, needed, needs_more_thoughts=more))
    expected = needed or more or below
    assert result["data"]["incomplete_steps"] is expected
    assert result["output"] == ("Thought recorded, unfinished steps remain, continue." if expected else "Thought recorded.")


def test_the_terminal_case() -> None:
    """T27"""
    assert accepted(Thoughts(), step(3, 3, False))["incomplete_steps"] is False


def test_needing_more_thoughts_keeps_the_end_open() -> None:
    """T28"""
    assert accepted(Thoughts(), step(3, 3, False, needs_more_thoughts=True))["incomplete_steps"] is True


@pytest.mark.parametrize("thought", ["  Räume\n\t", "</think>", 'a "quoted" \\ line', "🙂思", "\u0000"])
async def test_the_thought_comes_back_unchanged(thought: str) -> None:
    """T14"""
    data = (await call(SequentialThinking(), {}, step(thought=thought)))["data"]
    assert data["thought"] == thought
    assert data["display_type"] == "thinking"


def test_branches_are_listed_in_the_order_in_which_they_began() -> None:
    """T15, X9"""
    names = ["z", "a", "m", "z", "b", "a"]
    data = accepted(Thoughts(), *(step(number, branch_from_thought=1, branch_id=name) for number, name in enumerate(names, 1)))
    assert data["branches"] == ["z", "a", "m", "b"]
    assert list(data["branch_contents"]) == ["z", "a", "m", "b"]


def test_the_schema_is_the_same_bytes_every_time() -> None:
    """X9"""
    assert json.dumps(SequentialThinking().to_openai_schema()) == json.dumps(SequentialThinking().to_openai_schema())


def test_nothing_is_checked_for_sense() -> None:
    """T17"""
    thoughts = Thoughts()
    data = accepted(thoughts, step(1, 9), step(2, 9), step(5, 9), step(7, 9), step(8, 9, revises_thought=99), step(3, 9, branch_from_thought=4, branch_id="b"))
    assert data["thought_history_length"] == 6


async def test_calls_of_one_session_share_a_history_and_sessions_never_do() -> None:
    """T19, B141.1: fifty times at once, over one tool object"""
    tool = SequentialThinking()

    async def one_pair() -> tuple[int, int]:
        first: Session = {}
        second: Session = {}
        await call(tool, first, step(1))
        a, b = await asyncio.gather(call(tool, first, step(2)), call(tool, second, step(1)))
        return a["data"]["thought_history_length"], b["data"]["thought_history_length"]

    assert await asyncio.gather(*(one_pair() for _ in range(50))) == [(2, 1)] * 50


async def test_nothing_of_a_session_stays_in_the_tool() -> None:
    """T19, B141.2: memory is flat over 1,000 sessions"""
    tool = SequentialThinking()

    async def session() -> None:
        state: Session = {}
        for number in (1, 2):
            await tool.call(step(number, thought="x" * 1500), Context(session=state))

    for _ in range(50):
        await session()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(1000):
        await session()
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 100_000, "1,000 sessions hold 3 MB of thoughts"


def test_the_contents_of_branches_are_in_the_result() -> None:
    """T20"""
    data = accepted(
        Thoughts(),
        step(1, thought="root"),
        step(2, thought="left", branch_from_thought=1, branch_id="b1"),
        step(2, thought="right", branch_from_thought=1, branch_id="b2"),
        step(3, thought="left again", branch_from_thought=1, branch_id="b1"),
    )
    assert data["branch_contents"] == {
        "b1": [{"thought_number": 2, "thought": "left"}, {"thought_number": 3, "thought": "left again"}],
        "b2": [{"thought_number": 2, "thought": "right"}],
    }


def test_contents_that_grow_without_end_lose_their_oldest_and_say_so() -> None:
    """T20: a result never repeats more than SHOWN characters of thoughts"""
    thoughts = Thoughts()
    data = accepted(thoughts, *(step(number, 100, thought=f"{number:04}" + "x" * 1996, branch_from_thought=1, branch_id="b") for number in range(1, 10)))
    shown = data["branch_contents"]["b"]
    assert [one["thought_number"] for one in shown] == [7, 8, 9]
    assert data["warnings"] == ["branch_contents leaves out the oldest 6 thoughts"]
    assert len(thoughts.branches["b"]) == 9


@pytest.mark.parametrize("length", [1, 30, 2000])
def test_a_result_stays_below_the_cap_of_a_tools_output(length: int) -> None:
    """T20, T22, X7: what is cut in the middle is no JSON any more"""
    thoughts = Thoughts()
    for number in range(1, 1000):
        branch = {"branch_from_thought": 1, "branch_id": f"b{number % 50}"} if number % 2 else {}
        accepted(thoughts, step(number, 1000, thought="x" * length, **branch))
    result = thoughts.add(step(1000, 1000, thought="思" * length, revises_thought=999, branch_from_thought=1, branch_id="b1"))
    assert result["success"]
    assert result["data"]["effective_thoughts"]
    assert cap_output(json.dumps(result, ensure_ascii=False)) == json.dumps(result, ensure_ascii=False)


@pytest.mark.parametrize(
    ("numbers", "warning"),
    [
        ((1, 2, 4), "gap in the numbering: thought 3 is missing before thought 4"),
        ((1, 5), "gap in the numbering: thoughts 2 to 4 are missing before thought 5"),
        ((3,), "gap in the numbering: thoughts 1 to 2 are missing before thought 3"),
        ((1, 2, 3), None),
        ((1, 3, 2), None),
        ((1, 2, 2, 3), None),
        ((1, 5, 2, 6), None),
    ],
)
def test_a_gap_in_the_numbering_is_a_warning_and_a_line_in_the_log(numbers: tuple[int, ...], warning: str | None, caplog: pytest.LogCaptureFixture) -> None:
    """T21"""
    thoughts = Thoughts()
    accepted(thoughts, *(step(number, 9) for number in numbers[:-1]))
    caplog.clear()
    with caplog.at_level(logging.WARNING, "thinkgate"):
        data = accepted(thoughts, step(numbers[-1], 9, thought="secret words"))
    assert data.get("warnings") == ([warning] if warning else None)
    assert [one.getMessage() for one in caplog.records] == ([f"sequential_thinking: {warning}"] if warning else [])


def test_a_number_that_we_counted_ourselves_is_no_gap() -> None:
    """T21, T30"""
    thoughts = Thoughts()
    accepted(thoughts, step(1), step(2), step(2, branch_from_thought=1, branch_id="b"))
    data = accepted(thoughts, {"thought": "next"})
    assert data["thought_number"] == 4
    assert "warnings" not in data


# revisions


def test_a_revision_amends_where_it_says_nothing_else() -> None:
    """T22"""
    thoughts = Thoughts()
    data = accepted(thoughts, step(1, thought="old"), step(2, thought="new", is_revision=True, revises_thought=1))
    assert thoughts.history[1].revision_type == "amend"
    assert data["effective_thoughts"] == [{"thought_number": 1, "thought": "old", "amendments": ["new"]}]


def test_replace_puts_the_new_text_where_the_old_one_stood() -> None:
    """T22"""
    thoughts = Thoughts()
    accepted(thoughts, step(1, thought="old"), step(2, thought="next"), step(3, thought="new", revises_thought=1, revision_type="replace"))
    assert [(one.thought_number, one.thought) for one in thoughts.in_force()] == [(1, "new"), (2, "next")]
    assert [one.thought for one in thoughts.history] == ["old", "next", "new"], "the raw history keeps all"


def test_cancel_takes_the_old_thought_out() -> None:
    """T22"""
    thoughts = Thoughts()
    accepted(thoughts, step(1, thought="old"), step(2, thought="next"), step(3, thought="wrong, because", revises_thought=1, revision_type="cancel"))
    assert texts(thoughts) == ["next"]
    assert len(thoughts.history) == 3


def test_a_cancelled_replacement_brings_the_old_thought_back() -> None:
    """T22"""
    thoughts = Thoughts()
    accepted(thoughts, step(1, thought="old"), step(2, thought="new", revises_thought=1, revision_type="replace"))
    accepted(thoughts, step(3, thought="no", revises_thought=2, revision_type="cancel"))
    assert texts(thoughts) == ["old"]


def test_a_replacement_drops_the_amendments_before_it_and_keeps_those_after_it() -> None:
    """T22"""
    thoughts = Thoughts()
    accepted(
        thoughts,
        step(1, thought="old"),
        step(2, thought="amended before", revises_thought=1),
        step(3, thought="new", revises_thought=1, revision_type="replace"),
        step(4, thought="amended after", revises_thought=1),
        step(5, thought="and once more", revises_thought=4),
    )
    assert [(one.thought, one.amendments) for one in thoughts.in_force()] == [("new", ("amended after", "and once more"))]


def test_what_was_added_to_a_replacement_goes_where_it_stands() -> None:
    """T22"""
    thoughts = Thoughts()
    accepted(thoughts, step(1, thought="old"), step(2, thought="new", revises_thought=1, revision_type="replace"))
    accepted(thoughts, step(3, thought="more", revises_thought=2), step(4, thought="and this", revises_thought=1))
    assert [(one.thought, one.amendments) for one in thoughts.in_force()] == [("new", ("more", "and this"))]


@pytest.mark.parametrize(("said", "expected"), [({}, True), ({"is_revision": False}, False), ({"is_revision": True}, True)])
def test_a_thought_that_names_what_it_revises_is_a_revision_unless_it_says_no(said: dict[str, Any], expected: bool) -> None:
    """T22, T30"""
    thoughts = Thoughts()
    accepted(thoughts, step(1), step(2, revises_thought=1, **said))
    assert [one.is_revision for one in thoughts.history] == [False, expected]


def test_the_later_of_two_replacements_counts_and_a_replacement_outlives_an_earlier_cancellation() -> None:
    """T22"""
    thoughts = Thoughts()
    accepted(thoughts, step(1, thought="old"), step(2, revises_thought=1, revision_type="replace", thought="first"))
    accepted(thoughts, step(3, revises_thought=1, revision_type="cancel"), step(4, revises_thought=1, revision_type="replace", thought="second"))
    assert texts(thoughts) == ["second"]


def test_a_revision_means_the_thought_of_its_own_branch_and_the_newest_with_that_number() -> None:
    """T22"""
    thoughts = Thoughts()
    branch = {"branch_from_thought": 1, "branch_id": "b"}
    accepted(thoughts, step(1, thought="root"), step(2, thought="main"), step(2, thought="side", **branch))
    accepted(thoughts, step(3, thought="side now", revises_thought=2, revision_type="replace", **branch))
    assert texts(thoughts) == ["root", "main", "side now"]
    accepted(thoughts, step(3, thought="main now", revises_thought=2, revision_type="replace"))
    assert texts(thoughts) == ["root", "main now", "side now"]
    accepted(thoughts, step(4, thought="root now", revises_thought=1, revision_type="replace", **branch))
    assert texts(thoughts) == ["root now", "main now", "side now"], "a branch may revise what it left from"


def test_a_revision_of_nothing_stands_as_a_thought_of_its_own_and_is_warned_of() -> None:
    """T17, T22"""
    thoughts = Thoughts()
    data = accepted(thoughts, step(1, thought="a"), step(2, thought="b", revises_thought=7))
    assert data["warnings"] == ["there is no thought 7 to revise"]
    assert texts(thoughts) == ["a", "b"]
    accepted(thoughts, step(3, thought="c", revises_thought=7, revision_type="cancel"))
    assert texts(thoughts) == ["a", "b"]


def test_a_thousand_revisions_of_each_other_are_no_matter_of_depth_or_time() -> None:
    """T22, T31"""
    thoughts = Thoughts()
    accepted(thoughts, step(1, thought="first"))
    began = time.perf_counter()
    for number in range(2, 1001):
        accepted(thoughts, step(number, thought=f"text {number}", revises_thought=number - 1, revision_type="replace"))
    assert texts(thoughts) == ["text 1000"]
    assert time.perf_counter() - began < 30


# order, events, state


async def test_no_thought_is_lost_among_calls_at_once() -> None:
    """T24, through the tool"""
    tool = SequentialThinking()
    session: Session = {}
    results = await asyncio.gather(*(call(tool, session, step(number, 200)) for number in range(1, 201)))
    assert sorted(one["data"]["thought_history_length"] for one in results) == list(range(1, 201))
    assert len(Thoughts.from_json(session["sequential_thinking"]).history) == 200


@pytest.mark.parametrize("through_the_tool", [False, True])
def test_no_thought_is_lost_among_threads(through_the_tool: bool) -> None:
    """T24, a lock and not the event loop"""
    tool, thoughts, session = SequentialThinking(), Thoughts(), Session()
    start = threading.Barrier(8)

    def work(name: int) -> None:
        start.wait(10)
        for number in range(25):
            one = step(number + 1, 25, thought=f"{name}.{number}")
            if through_the_tool:
                asyncio.run(tool.call(one, Context(session=session)))
            else:
                thoughts.add(one)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    kept = Thoughts.from_json(session["sequential_thinking"]) if through_the_tool else thoughts
    assert {one.thought for one in kept.history} == {f"{name}.{number}" for name in range(8) for number in range(25)}
    assert len(kept.history) == 200


async def test_each_accepted_thought_is_an_event_with_its_progress_and_no_refused_one_is() -> None:
    """T25, T26, CONTRACT 8"""
    events: list[tuple[str, dict[str, Any]]] = []

    async def emit(type: str, data: dict[str, Any]) -> None:
        events.append((type, data))

    tool, context = SequentialThinking(), Context(emit=emit)
    await tool.call(step(1, 2, True, "first"), context)
    await tool.call(step(0), context)
    await tool.call(step(2, 2, False, "side", branch_from_thought=1, branch_id="b", is_revision=True, revises_thought=1, revision_type="cancel"), context)
    nothing = {"branch_id": None, "branch_from_thought": None, "revises_thought": None, "revision_type": None}
    assert events == [
        ("thought", {"thought": "first", "thought_number": 1, "total_thoughts": 2, "incomplete_steps": True, **nothing}),
        (
            "thought",
            {
                "thought": "side",
                "thought_number": 2,
                "total_thoughts": 2,
                "incomplete_steps": False,
                "branch_id": "b",
                "branch_from_thought": 1,
                "revises_thought": 1,
                "revision_type": "cancel",
            },
        ),
    ]


async def test_the_state_is_plain_json_and_the_same_calls_rebuild_it() -> None:
    """a run that is gone through again makes its calls again"""
    calls: list[Any] = [
        step(1),
        step(0),
        step(4, branch_from_thought=1, branch_id="b"),
        {"thought": "x"},
        step(2, revises_thought=1, revision_type="replace"),
        "{",
    ]
    once: Session = {}
    again: Session = {}
    results = [await call(SequentialThinking(), once, one) for one in calls]
    assert SequentialThinking.pure
    assert [await call(SequentialThinking(), again, one) for one in calls] == results
    assert once == again == json.loads(json.dumps(once))


async def test_a_session_goes_on_where_the_store_left_it() -> None:
    """T19: over a restart"""
    session: Session = {}
    await call(SequentialThinking(), session, step(1, 5, branch_from_thought=1, branch_id="b"))
    stored = json.loads(json.dumps(session))
    data = (await call(SequentialThinking(), stored, {"thought": "on", "next_thought_needed": True}))["data"]
    assert (data["thought_number"], data["total_thoughts"], data["thought_history_length"], data["branches"]) == (2, 5, 2, ["b"])
