"""Contexts that grow too large: summaries at half of the window, hard trimming at 80 % (X8, P21, B137, D18, D22)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_histories import bounded, faults, proper

from gateway.agent.memory.compaction import (
    SUMMARY_END,
    SUMMARY_HEAD,
    age,
    apply,
    distilled,
    plan_compaction,
    summary_request,
    trim,
    trim_budget,
)
from gateway.agent.memory.tokens import Estimator, count
from gateway.chat import Json

SYSTEM: Json = {"role": "system", "content": "You are an analyst."}


def turn(number: int, *, size: int = 1_000, thought: str = "thought") -> list[Json]:
    """A user message, one tool round and an answer; `size` characters of tool output."""
    return [
        {"role": "user", "content": f"question {number}"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": f"{thought} {number}a",
            "tool_calls": [{"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"{number}" * size},
        {"role": "assistant", "content": f"answer {number}", "reasoning_content": f"{thought} {number}b"},
    ]


def talk(turns: int, **more: Any) -> list[Json]:
    return [SYSTEM, *(message for number in range(turns) for message in turn(number, **more)), {"role": "user", "content": "and now?"}]


def test_nothing_is_compacted_below_half_of_the_window() -> None:
    """X8"""
    messages = talk(10)
    assert plan_compaction(messages, count(messages) * 2 + 2) is None
    assert plan_compaction(messages, count(messages) * 2 - 2) is not None


def test_what_providers_counted_moves_the_threshold() -> None:
    """X8"""
    messages, window = talk(10), count(talk(10)) * 3
    assert plan_compaction(messages, window) is None
    assert plan_compaction(messages, window, estimator=Estimator(ratio=2.0, told=1)) is not None


def test_tool_definitions_count_too() -> None:
    """X8"""
    messages, tools = talk(10), [{"type": "function", "function": {"name": "f", "description": "x" * 20_000, "parameters": {}}}]
    assert plan_compaction(messages, 8_000) is None
    assert plan_compaction(messages, 8_000, tools=tools) is not None


def test_as_few_old_turns_as_bring_the_context_to_60_percent_of_the_threshold_become_the_summary() -> None:
    """X8: aim 60 % of 50 %"""
    messages = talk(20)
    window = count(messages) * 2
    plan = plan_compaction(messages, window)
    assert plan is not None
    assert plan.start == 1, "the system's message stays"
    assert messages[plan.end]["content"].startswith("question ")
    after = apply(messages, plan, "S" * 40)
    assert 0.2 * window < count(after) <= 0.3 * window


@bounded
@given(proper(), st.integers(50, 4_000), st.integers(0, 8))
def test_compaction_never_splits_a_call_from_its_result_and_keeps_system_and_current_turn(messages: list[Json], window: int, keep: int) -> None:
    """X8"""
    before = copy.deepcopy(messages)
    plan = plan_compaction(messages, window, keep=keep)
    if plan is None:
        return
    assert len(messages) - plan.end == plan.kept >= keep
    after = apply(messages, plan, "what was")
    assert faults(after) == []
    assert messages == before
    assert after[: plan.start] == messages[: plan.start]
    current = max(place for place, message in enumerate(messages) if message["role"] == "user")
    assert after[len(after) - (len(messages) - current) + 1 :] == messages[current + 1 :]
    assert after[len(after) - (len(messages) - current)]["content"].endswith(messages[current]["content"])


def test_a_long_current_turn_is_never_summarised() -> None:
    """X8"""
    rounds = [message for number in range(30) for message in turn(number)[1:3]]
    assert plan_compaction([SYSTEM, {"role": "user", "content": "q"}, *rounds], 2_000) is None


def test_a_system_message_among_old_turns_stays() -> None:
    """X8"""
    late = {"role": "system", "content": "from now on in French"}
    messages = talk(20)
    messages.insert(5, late)
    plan = plan_compaction(messages, 10_000)
    assert plan is not None
    assert apply(messages, plan, "s")[:2] == [SYSTEM, late]


def test_a_summary_that_would_be_no_shorter_than_what_it_replaces_is_not_asked_for() -> None:
    """X8"""
    rounds = [message for number in range(9) for message in turn(number)[1:3]]
    messages = [SYSTEM, {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}, {"role": "user", "content": "q"}, *rounds]
    assert count(messages) > 2_000
    assert plan_compaction(messages, 4_000) is None


def test_the_prompt_begins_the_same_until_the_next_compaction() -> None:
    """X8: the prefix that providers cache"""
    messages = talk(20)
    plan = plan_compaction(messages, 10_000)
    assert plan is not None
    compacted = apply(messages, plan, "they looked at much")
    assert compacted[1]["content"].startswith(f"{SUMMARY_HEAD}\nthey looked at much\n{SUMMARY_END}\n\nquestion")
    later = [*compacted, {"role": "assistant", "content": "fine"}, {"role": "user", "content": "next"}]
    assert plan_compaction(later, 10_000) is None
    assert later[: len(compacted)] == compacted


def test_the_next_summary_is_made_of_the_last_one_too() -> None:
    """X8"""
    messages = talk(20)
    plan = plan_compaction(messages, 10_000)
    assert plan is not None
    later = [*apply(messages, plan, "the code word is heron"), {"role": "assistant", "content": "ok"}, *talk(20)[1:]]
    second = plan_compaction(later, 10_000)
    assert second is not None
    assert "the code word is heron" in summary_request(second)[1]["content"]
    assert SUMMARY_HEAD not in str(apply(later, second, "new")[2:])


def test_a_summary_is_asked_for_inside_the_window() -> None:
    """X8"""
    plan = plan_compaction(talk(200, size=4_000), 8_000)
    assert plan is not None
    request = summary_request(plan)
    assert [message["role"] for message in request] == ["system", "user"]
    assert count(request) < 8_000 * 0.6


def test_an_endless_summary_is_cut() -> None:
    messages = talk(20)
    plan = plan_compaction(messages, 10_000)
    assert plan is not None
    assert count(apply(messages, plan, "x" * 100_000)) < 0.35 * 10_000


def test_distilled_text_has_the_order_input_reasoning_response() -> None:
    """D18"""
    text = distilled(turn(7, size=3))
    assert text.splitlines() == [
        "input: question 7",
        "reasoning: thought 7a",
        "call: look({})",
        "result: 777",
        "reasoning: thought 7b",
        "response: answer 7",
    ]


def test_thoughts_that_came_as_signed_blocks_are_distilled_too() -> None:
    """D18"""
    assert distilled([{"role": "assistant", "content": "x", "thinking_blocks": [{"type": "thinking", "thinking": "why", "signature": "s"}]}]).startswith(
        "reasoning: why\n"
    )


def test_trimming_cuts_nothing_that_fits() -> None:
    messages = talk(3)
    assert trim(messages, count(messages)) == messages
    assert trim_budget(10_000) == 8_000


def test_old_outputs_over_200_characters_become_a_note_first() -> None:
    """P21"""
    messages = [*talk(1, size=201)[:-1], *talk(1, size=200)[1:-1], *talk(2)[1:]]
    out = trim(messages, count(messages) - 10)
    assert out[3]["content"] == "[201 characters of output left out]"
    assert out[7]["content"] == "0" * 200
    assert out[-3]["content"] == "1" * 1_000, "the latest six are protected"


def test_old_assistant_texts_over_200_characters_are_folded_next() -> None:
    """P21"""
    messages = [SYSTEM, {"role": "user", "content": "q"}, {"role": "assistant", "content": "a" * 5_000, "reasoning_content": "r" * 300}, *talk(3)[1:]]
    out = trim(messages, 800)
    assert out[2]["content"] == "a" * 100 + "\n[... 4,900 characters folded ...]"
    assert out[2]["reasoning_content"] == "r" * 300


def test_protected_outputs_keep_500_characters_of_head_and_tail() -> None:
    """P21"""
    messages = [*talk(1)[:2], {**talk(1)[2]}, {"role": "tool", "tool_call_id": "c0", "content": "h" * 900 + "m" * 90_000 + "t" * 900}]
    out = trim(messages, 1_000)
    assert out[3]["content"] == "h" * 500 + "\n[... 90,800 characters left out ...]\n" + "t" * 500


def test_whole_turns_go_when_cutting_was_not_enough_and_the_summary_stays() -> None:
    """X8"""
    messages = talk(40, size=10)
    messages[1] = {"role": "user", "content": f"{SUMMARY_HEAD}\nthe heron\n{SUMMARY_END}\n\nquestion 0"}
    out = trim(messages, 500)
    assert count(out) <= 500
    assert faults(out) == []
    assert out[0] == SYSTEM
    assert "the heron" in out[1]["content"]
    assert "left out" in out[1]["content"]
    assert out[-1] == messages[-1]
    assert trim(out, 500) == out


def test_trimming_never_takes_the_reasoning_of_a_turn_that_stays() -> None:
    """D22, P21"""
    messages = [SYSTEM, {"role": "user", "content": "q"}, *(message for number in range(30) for message in turn(number)[1:3])]
    out = trim(messages, 1_500)
    assert count(out) <= 1_500
    assert [message.get("reasoning_content") for message in out] == [message.get("reasoning_content") for message in messages]


@bounded
@given(proper(), st.integers(1, 1_500), st.integers(0, 8))
def test_trimming_keeps_a_valid_history_and_the_current_turn(messages: list[Json], budget: int, protect: int) -> None:
    """B137"""
    before = copy.deepcopy(messages)
    out = trim(messages, budget, protect=protect)
    assert faults(out) == []
    assert messages == before
    assert count(out) <= max(budget, count(messages) + 10), "never longer, but for the note that something is missing"
    current = max(place for place, message in enumerate(messages) if message["role"] == "user")
    now = [message for message in out if message["role"] == "user"][-1]
    assert now["content"].endswith(messages[current]["content"])
    assert [message["role"] for message in out[-len(messages[current:]) :]] == [message["role"] for message in messages[current:]]
    if messages[0]["role"] == "system":
        assert out[0] == messages[0]


def test_a_huge_output_of_the_current_turn_is_cut_to_what_is_left() -> None:
    """X8"""
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": f"{n}" * 900} for n in range(6)]
    made = [{"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for n in range(6)]
    messages = [SYSTEM, {"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": made}, *results]
    out = trim(messages, 700)
    assert count(out) <= 700
    assert faults(out) == []
    assert all(len(message["content"]) > 300 for message in out[3:])


@pytest.mark.parametrize(
    ("demands", "tools", "left"),
    [("echo_if_tools", True, "01234"), ("echo_if_tools", False, "34"), ("all", False, "01234"), ("none", True, "34"), ("since_last_user", True, "234")],
)
def test_thoughts_older_than_k_turns_go_unless_a_provider_wants_them_back(demands: str, tools: bool, left: str) -> None:
    """P21, D22, D25"""
    steps = [{"role": "assistant", "content": "x", "reasoning_content": f"{n}", "thinking_blocks": [{"signature": "s"}]} for n in range(5)]
    ask = {"role": "user", "content": "q"}
    out = age([ask, steps[0], ask, steps[1], ask, *steps[2:]], 2, demands=demands, tools=tools)
    assert "".join(message.get("reasoning_content", "") for message in out) == left
    assert "".join("t" for message in out if "thinking_blocks" in message) == "t" * len(left), "text and what is signed go together"


def test_old_plans_become_one_line_and_the_latest_stay() -> None:
    """P21"""
    steps = [{**turn(n)[1], "content": f"[Plan]\nplan {n} first\nthen more"} for n in range(3)]
    out = age([{"role": "user", "content": "q"}, *steps], 1)
    assert [message["content"] for message in out[1:]] == ["[Plan] plan 0 first", "[Plan] plan 1 first", "[Plan]\nplan 2 first\nthen more"]
    assert age([*steps], None) == steps
