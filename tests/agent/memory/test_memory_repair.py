"""Orphaned and poisoned histories are put right when they are loaded (X10, X18, D26, P11)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from memory_histories import anything, bounded, faults, proper

from gateway.agent.memory.repair import NO_RESULT, PLACEHOLDER, repair
from gateway.chat import Json, loads


def call(ident: str, arguments: Any = "{}", name: str = "f") -> Json:
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*given: Json, **more: Any) -> Json:
    return {"role": "assistant", "content": None, "tool_calls": list(given), **more}


def result(ident: str, content: Any = "ok") -> Json:
    return {"role": "tool", "tool_call_id": ident, "content": content}


USER: Json = {"role": "user", "content": "hi"}
DONE: Json = {"role": "assistant", "content": "done"}


@bounded
@given(anything)
def test_any_list_of_messages_becomes_a_valid_history(messages: list[Any]) -> None:
    """X18"""
    before = copy.deepcopy(messages)
    out, _ = repair(messages)
    assert faults(out) == []
    assert messages == before, "what was given is not changed"


@bounded
@given(anything)
def test_any_list_of_messages_becomes_a_strictly_alternating_history_when_asked(messages: list[Any]) -> None:
    """P11"""
    assert faults(repair(messages, alternate=True)[0], alternate=True) == []


@bounded
@given(anything)
def test_repairing_twice_is_repairing_once(messages: list[Any]) -> None:
    for alternate in (False, True):
        once, _ = repair(messages, alternate=alternate)
        assert repair(once, alternate=alternate) == (once, [])


@bounded
@given(proper())
def test_a_valid_history_stays_as_it_is(messages: list[Json]) -> None:
    out, notes = repair(messages)
    assert out == messages
    assert notes == []


def test_a_call_without_a_result_gets_an_error_for_a_result() -> None:
    """X18"""
    out, notes = repair([USER, calls(call("a"), call("b")), result("b"), {"role": "user", "content": "go on"}])
    assert out[2:4] == [{"role": "tool", "tool_call_id": "a", "content": NO_RESULT}, result("b")]
    assert notes == ["missing result: 1"]


def test_the_last_turn_gets_its_results_too() -> None:
    """X18: a crash between the call and its result"""
    assert repair([USER, calls(call("a"))])[0][-1] == {"role": "tool", "tool_call_id": "a", "content": NO_RESULT}


def test_a_result_whose_call_is_gone_becomes_text_and_a_leading_one_is_dropped() -> None:
    """X10, P11"""
    out, notes = repair([result("x", "lost"), USER, DONE, result("y", "the found thing")])
    assert out[:2] == [USER, DONE]
    assert out[2]["role"] == "user"
    assert "the found thing" in out[2]["content"]
    assert "lost" not in str(out)
    assert notes == ["orphan result: 2"]


def test_a_second_result_for_one_call_is_dropped() -> None:
    """X18"""
    out, _ = repair([USER, calls(call("a")), result("a", "first"), result("a", "second"), DONE])
    assert out == [USER, calls(call("a")), result("a", "first"), DONE]


def test_results_stand_behind_their_turn_in_the_order_of_the_calls() -> None:
    """X18"""
    out, _ = repair([USER, calls(call("a"), call("b")), {"role": "user", "content": "wait"}, result("b", "B"), result("a", "A")])
    assert [message.get("content") for message in out] == ["hi", None, "A", "B", "wait"]


def test_an_id_that_two_turns_used_becomes_two_ids_and_each_keeps_its_own_result() -> None:
    """X18"""
    out, notes = repair([USER, calls(call("call_0")), result("call_0", "one"), calls(call("call_0")), result("call_0", "two"), DONE])
    assert [message["content"] for message in out if message["role"] == "tool"] == ["one", "two"]
    assert out[1]["tool_calls"][0]["id"] == "call_0"
    assert out[3]["tool_calls"][0]["id"] == out[4]["tool_call_id"] == "call_0_2"
    assert notes == ["duplicate id: 1"]


def test_two_calls_of_one_turn_with_one_id_keep_their_results_in_order() -> None:
    """X18"""
    out, _ = repair([USER, calls(call("a"), call("a")), result("a", "one"), result("a", "two")])
    assert [message["content"] for message in out[2:]] == ["one", "two"]


@pytest.mark.parametrize(
    ("broken", "whole"),
    [("", {}), (None, {}), ({"p": 1}, {"p": 1}), ('{"p": "a"', {"p": "a"}), ("[1]", {}), ("garbage", {}), ('{"p": "\\ud83d"}', {"p": "\ufffd"})],
)
def test_arguments_of_old_turns_become_json_objects(broken: Any, whole: Json) -> None:
    """X18, B149: a cut stream left half an object"""
    out, _ = repair([USER, calls(call("a", broken)), result("a")])
    assert loads(out[1]["tool_calls"][0]["function"]["arguments"]) == whole


def test_arguments_that_are_json_stay_byte_for_byte() -> None:
    text = '{ "n" : 18446744073709551617,\n"q":"\\u5317" }'
    assert repair([USER, calls(call("a", text)), result("a")])[0][1]["tool_calls"][0]["function"]["arguments"] is text


def test_empty_messages_are_dropped() -> None:
    """X10"""
    out, notes = repair([USER, {"role": "assistant", "content": ""}, {"role": "assistant", "content": None}, {"role": "user", "content": "  "}, DONE])
    assert out == [USER, DONE]
    assert "merged" not in str(notes)


def test_neighbours_of_one_role_are_one_message() -> None:
    """X10"""
    picture = {"type": "image_url", "image_url": {"url": "https://x/y.png"}}
    out, _ = repair([USER, {"role": "user", "content": "there"}, {"role": "user", "content": [picture]}, DONE])
    assert out == [{"role": "user", "content": [{"type": "text", "text": "hi\n\nthere"}, picture]}, DONE]


def test_reasoning_of_merged_assistant_messages_is_merged_too() -> None:
    """D26"""
    block = {"type": "thinking", "thinking": "t", "signature": "s"}
    first = {"role": "assistant", "content": "plan", "reasoning_content": "A", "thinking_blocks": [block]}
    second = calls(call("a"), reasoning_content="B", thinking_blocks=[{**block, "signature": "z"}])
    merged = repair([USER, first, second, result("a")])[0][1]
    assert merged["reasoning_content"] == "A\n\nB"
    assert merged["thinking_blocks"] == [block, {**block, "signature": "z"}]
    assert merged["content"] == "plan"
    assert merged["tool_calls"] == [call("a")]


def test_a_thought_alone_goes_to_the_turn_that_it_led_to() -> None:
    """D26, X10"""
    out, _ = repair([USER, {"role": "assistant", "content": "", "reasoning_content": "why"}, DONE])
    assert out == [USER, {**DONE, "reasoning_content": "why"}]


def test_a_history_that_begins_with_the_assistant_gets_a_neutral_user_message() -> None:
    """P11"""
    system = {"role": "system", "content": "s"}
    assert repair([system, DONE])[0] == [system, PLACEHOLDER, DONE]


def test_people_with_names_stay_apart_unless_turns_must_alternate() -> None:
    messages = [{"role": "user", "name": "ann", "content": "hi"}, {"role": "user", "name": "bob", "content": "ho"}]
    assert repair(messages)[0] == messages
    assert repair(messages, alternate=True)[0] == [{"role": "user", "content": "ann:\n\nhi\n\nbob:\n\nho"}]


def test_half_a_character_does_not_poison_the_session() -> None:
    """B099"""
    out, notes = repair([{"role": "user", "content": "cut \ud83d here"}])
    assert out == [{"role": "user", "content": "cut \ufffd here"}]
    assert notes == ["broken characters: 1"]


def test_notes_tell_nothing_of_the_text() -> None:
    out, notes = repair([result("secret", "secret"), USER, calls(call("a", "secret")), {"role": "secret", "content": "secret"}])
    assert faults(out) == []
    assert notes
    assert "secret" not in " ".join(notes)
