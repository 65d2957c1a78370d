"""How many tokens messages are about (X8)."""

from __future__ import annotations

from hypothesis import given
from memory_histories import anything, bounded

from gateway.agent.memory.repair import repair
from gateway.agent.memory.tokens import Estimator, count, size, text_tokens


def test_a_cjk_character_counts_more_than_a_latin_one() -> None:
    assert text_tokens("a" * 400) == 100
    assert text_tokens("汉" * 400) == 300


def test_a_message_has_a_frame_and_calls_and_reasoning_count_once() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"q":"' + "x" * 400 + '"}'}}
    bare = count([{"role": "user", "content": ""}])
    assert bare == 4
    assert count([{"role": "assistant", "content": None, "tool_calls": [call]}]) > bare + 100
    thought = {"role": "assistant", "content": "", "reasoning_content": "y" * 400}
    assert count([thought]) == count([{**thought, "reasoning_details": [{"type": "reasoning.text", "text": "y" * 300}]}]) == bare + 100


def test_a_picture_is_not_counted_by_its_base64() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1_000_000}}
    assert 500 < count([{"role": "user", "content": [{"type": "text", "text": "see"}, picture]}]) < 2_000


def test_an_estimator_counts_as_its_provider_does_once_that_told() -> None:
    messages = [{"role": "user", "content": "汉" * 4_000}]
    estimator = Estimator().learn(size(messages), 2_400)
    assert abs(estimator.count(messages) - 2_400) <= 2
    assert abs(estimator.learn(size(messages), 3_600).count(messages) - 3_000) <= 3


def test_an_estimator_does_not_believe_short_prompts_and_impossible_counts() -> None:
    estimator = Estimator()
    assert estimator.learn(40, 30) == estimator.learn(4_000, 0) == estimator.learn(4_000, 100_000) == estimator


@bounded
@given(anything)
def test_any_history_that_was_repaired_has_a_count(messages: list[object]) -> None:
    assert count(repair(messages)[0]) >= 0
