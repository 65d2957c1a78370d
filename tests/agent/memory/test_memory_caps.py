"""How much of a tool's output reaches the model (X7)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_histories import bounded

from gateway.agent.memory.caps import cap_batch, cap_output, cap_tokens, cap_turn, share, turn_budget
from gateway.agent.memory.tokens import text_tokens

texts = st.text(st.characters(), max_size=400)


def test_an_output_within_the_limit_stays_as_it_is() -> None:
    """X7"""
    assert cap_output("x" * 24_000) == "x" * 24_000


def test_a_long_output_keeps_70_percent_head_30_percent_tail_and_says_how_much_was_cut() -> None:
    """X7"""
    text = "".join(f"{n:09d}\n" for n in range(10_000))
    out = cap_output(text)
    assert len(out) <= 24_000
    head, cut, tail = re.fullmatch(r"(.*)\n\[\.\.\. ([\d,]+) characters cut \.\.\.\]\n(.*)", out, re.S).groups()  # type: ignore[union-attr]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert int(cut.replace(",", "")) == len(text) - len(head) - len(tail)
    assert len(head) / (len(head) + len(tail)) == pytest.approx(0.7, abs=0.001)


def test_the_limit_counts_characters_not_bytes() -> None:
    """X7: 24,000 runes"""
    assert cap_output("汉" * 24_000) == "汉" * 24_000
    assert len(cap_output("汉" * 24_001)) <= 24_000


@bounded
@given(texts, st.integers(0, 300))
def test_a_capped_output_is_never_longer_than_the_limit_and_capping_it_again_changes_nothing(text: str, limit: int) -> None:
    out = cap_output(text, limit)
    assert len(out) <= max(limit, 0)
    assert cap_output(out, limit) == out


@bounded
@given(texts, st.integers(0, 100))
def test_a_text_capped_by_tokens_fits(text: str, tokens: int) -> None:
    assert text_tokens(cap_tokens(text, tokens)) <= tokens


@pytest.mark.parametrize(("window", "budget"), [(None, 32_768), (4_096, 8_192), (40_960, 8_192), (100_000, 20_000), (128_000, 25_600), (1_000_000, 32_768)])
def test_the_budget_of_a_turn_is_a_fifth_of_the_window_between_8k_and_32k(window: int | None, budget: int) -> None:
    """X7"""
    assert turn_budget(window) == budget


def test_a_budget_is_shared_fairly_and_the_rest_goes_to_the_newest() -> None:
    """X7"""
    assert share([10, 100, 100], 111) == [10, 50, 51]
    assert share([5, 5], 100) == [5, 5]
    assert share([7, 7, 7], 2) == [0, 1, 1]


@bounded
@given(st.lists(st.integers(0, 1_000), max_size=8), st.integers(0, 3_000))
def test_a_share_wastes_nothing_and_gives_nobody_more_than_it_wants(wants: list[int], budget: int) -> None:
    given_ = share(wants, budget)
    assert sum(given_) == min(budget, sum(wants))
    assert all(0 <= got <= want for got, want in zip(given_, wants, strict=True))
    short = [got for got, want in zip(given_, wants, strict=True) if got < want]
    assert all(got >= max(given_) - 1 for got in short), "who is cut gets as much as anybody"


def test_a_small_result_of_a_batch_is_whole_beside_a_huge_one() -> None:
    """X7"""
    small, huge = cap_batch(["ok", "y" * 100_000], 1_000)
    assert small == "ok"
    assert text_tokens(huge) <= 999
    assert "cut" in huge


def test_results_of_the_current_turn_get_their_budget_newest_first() -> None:
    """X7"""
    messages = [
        {"role": "user", "content": "old"},
        {"role": "tool", "tool_call_id": "a", "content": "A" * 20_000},
        {"role": "user", "content": "new"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "b"}]},
        {"role": "tool", "tool_call_id": "b", "content": "B" * 20_000},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]},
        {"role": "tool", "tool_call_id": "c", "content": "C" * 20_000},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "d"}]},
        {"role": "tool", "tool_call_id": "d", "content": "D" * 12_000},
    ]
    out = cap_turn(messages, 8_192)
    assert [message["role"] for message in out] == [message["role"] for message in messages]
    assert out[1] is messages[1], "an earlier turn is not this function's concern"
    assert out[8] is messages[8]
    assert out[6] is messages[6]
    assert "cut" in out[4]["content"]
    assert sum(text_tokens(out[place]["content"]) for place in (4, 6, 8)) <= 8_192


def test_a_result_for_which_nothing_is_left_says_how_long_it_was() -> None:
    """X7"""
    turn = [
        message
        for n in range(3)
        for message in (
            {"role": "assistant", "content": None, "tool_calls": [{"id": str(n)}]},
            {"role": "tool", "tool_call_id": str(n), "content": "汉" * 21_000},
        )
    ]
    out = cap_turn([{"role": "user", "content": "q"}, *turn], 8_192)
    assert out[2]["content"] == "[63,000 bytes of output cut]"
