"""L2: cold blocks, what comes back of them, and which are relevant (D13 to D17, D20)."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_histories import anything, assistants, bounded

from gateway.agent.memory.blocks import Block, block_id, cold_turns, from_blocks, relevant, stamp, terms, to_blocks
from gateway.chat import Json, dumps, loads


def cold(*messages: Json, when: float = 5.0) -> list[Block]:
    return [block for place, message in enumerate(messages) for block in to_blocks(message, place, when, own=message["role"] != "user")]


def answer(text: str, thought: str | None = None) -> Json:
    return {"role": "assistant", "content": text, **({} if thought is None else {"reasoning_content": thought})}


def ask(text: str) -> Json:
    return {"role": "user", "content": text}


def test_reasoning_is_a_block_of_its_own_and_never_in_the_response() -> None:
    """D14"""
    blocks = cold(ask("q"), answer("said", "thought"))
    assert [(block.role, block.text) for block in blocks] == [("input", "q"), ("reasoning", "thought"), ("response", "said")]
    assert "thought" not in dumps(blocks[2].to_json()).decode()
    assert [message for _, message in from_blocks(blocks)] == [ask("q"), answer("said", "thought")]


@pytest.mark.parametrize("message", [answer("said"), answer("said", ""), {**answer("said"), "reasoning_content": None}])
def test_no_reasoning_makes_no_block_and_none_is_not_empty(message: Json) -> None:
    """D15, D5"""
    blocks = cold(message)
    assert [block.role for block in blocks] == ["response"]
    assert [one for _, one in from_blocks(blocks)] == [message]


@pytest.mark.parametrize("text", ["a\nb\r\n", "\"quoted\" 'and' \\", "x</think>y<think>", "北京 東京 서울 😀", "\x01\x02\x7f\x1b[0m", "\u2028\u00a0"])
def test_special_characters_survive(text: str) -> None:
    """D16"""
    messages = [ask(text), answer(text, text), {"role": "tool", "tool_call_id": "c", "content": text}]
    stored = loads(dumps([block.to_json() for block in cold(*messages)]))
    assert [message for _, message in from_blocks(Block.from_json(one) for one in stored)] == messages


def storable(message: Any) -> bool:
    try:
        return isinstance(message, dict) and "role" in message and bool(dumps(message))
    except ValueError:
        return False


@bounded
@given(anything.map(lambda messages: [message for message in messages if storable(message)]), st.floats(allow_nan=True))
def test_any_message_comes_back_from_its_blocks_as_it_was(messages: list[Json], when: float) -> None:
    """D16"""
    blocks = cold(*messages, when=stamp(when))
    stored = [Block.from_json(one) for one in loads(dumps([block.to_json() for block in blocks]))]
    assert stored == blocks
    assert [message for _, message in from_blocks(stored)] == messages


@bounded
@given(assistants)
def test_signed_reasoning_comes_back_signed(message: Json) -> None:
    """D14, D24"""
    signed = {**message, "reasoning_content": "why", "thinking_blocks": [{"type": "thinking", "thinking": "why", "signature": "s"}]}
    blocks = to_blocks(signed, 0, 1.0)
    assert from_blocks(blocks) == [(0, signed)]
    assert "signature" not in str(blocks[-1])


@pytest.mark.parametrize("nothing", [None, 0, 0.0, "", "yesterday", -1, float("nan"), float("inf"), True])
def test_a_time_that_is_none_becomes_now_before_anything_is_derived_from_it(nothing: Any) -> None:
    """D20"""
    before = time.time()
    when = stamp(nothing)
    assert before <= when <= time.time()
    assert stamp(when) == when, "once"


def test_the_id_of_a_block_follows_from_what_is_stored_of_it() -> None:
    """D20"""
    for block in cold(ask("q"), answer("a", "t"), when=stamp(0)):
        again = Block.from_json(loads(dumps(block.to_json())))
        assert again.id == block.id == block_id(again.time, again.place, again.role, again.text)


def test_turns_of_cold_blocks_begin_with_what_a_client_sent_and_at_gaps() -> None:
    blocks = cold(ask("a"), answer("b"), ask("c"), answer("d", "e"))
    assert [[block.text for block in turn] for turn in cold_turns(blocks)] == [["a", "b"], ["c", "e", "d"]]
    assert [[block.text for block in turn] for turn in cold_turns([blocks[0], *blocks[3:]])] == [["a"], ["e", "d"]]
    assert cold_turns([]) == []


TALK = [
    ask("Which bird did we see at the lake?"),
    answer("A heron, grey and patient."),
    ask("What shall we cook tonight?"),
    answer("Lentil soup.", "the pantry key hangs behind the clock"),
    ask("北京的天气怎么样?"),
    answer("今天晴天,二十度。"),
    ask("What did the meter say?"),
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "read_meter", "arguments": '{"id": "ZX-81"}'}}]},
    {"role": "tool", "tool_call_id": "c", "content": "illuminance 78 lx"},
    answer("78 lux."),
]


@pytest.mark.parametrize(
    ("query", "inputs"),
    [
        ("tell me about the heron", [TALK[0]["content"]]),
        ("where is the pantry key?", [TALK[2]["content"]]),
        ("北京今天天气", [TALK[4]["content"]]),
        ("what was the illuminance?", [TALK[6]["content"]]),
        ("ZX-81", [TALK[6]["content"]]),
        ("what did we do then", []),
        ("quantum chromodynamics", []),
        ("please compute square roots, seven primes, one meter and nine sums", []),
        ("what is an eron, a soupy lent?", []),
        ("", []),
    ],
)
def test_what_has_to_do_with_a_question_is_found_thoughts_too(query: str, inputs: list[str]) -> None:
    """D13: the pantry key stands only in a thought"""
    assert [turn[0].text for turn in relevant(cold(*TALK), query, 2)] == inputs


def test_no_more_turns_are_relevant_than_asked_for_and_they_keep_their_order() -> None:
    blocks = cold(*(message for n in range(6) for message in (ask(f"heron {n}"), answer("heron " * (n + 1)))))
    found = relevant(blocks, "heron", 2)
    assert len(found) == 2
    assert found[0][0].place < found[1][0].place
    assert relevant(blocks, "heron", 0) == []


def test_cjk_text_is_cut_into_pairs_and_words_are_not() -> None:
    assert terms("The Cat 北京天 x-9 猫 ПРИВЕТ naïve") == ["cat", "北京", "京天", "x", "9", "猫", "привет", "naïve"]
