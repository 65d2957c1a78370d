"""Thoughts between tags in the text become reasoning, however the text is cut."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.adapters.think_tags import Splitter, ThinkTags, split_completion


def split(pieces: list[str], *, start_inside: bool = False) -> tuple[str, str]:
    splitter = Splitter(start_inside=start_inside)
    parts = [splitter.feed(piece) for piece in pieces] + [splitter.finish()]
    return "".join(one for one, _ in parts), "".join(two for _, two in parts)


@pytest.mark.parametrize(
    ("pieces", "start_inside", "reasoning", "content"),
    [
        (["<th", "ink>a <", "b</thin", "k>\nans"], False, "a <b", "\nans"),
        (["x</think>y"], True, "x", "y"),
        (["<thi"], False, "", "<thi"),
        (["<think>a</thi"], False, "a</thi", ""),
        (["no tags, 1 < 2"], False, "", "no tags, 1 < 2"),
        (["<think>a</think>b<think>c</think>d"], False, "ac", "bd"),
        (["<think></think>x"], False, "", "x"),
        (["<thinking>a</think></thinking>b"], False, "a</think>", "b"),
        (["<thought>a</thought>b"], False, "a", "b"),
        (["<reasoning>a</reasoning>b"], False, "a", "b"),
        (["<mm:think>a</mm:think>b"], False, "a", "b"),
        (["◁think▷a◁/think▷b"], False, "a", "b"),
        (["a</think>b"], False, "", "a</think>b"),
        (["<think>a</think>b"], True, "a", "b"),
        (["a◁/think▷b</think>"], True, "a", "b</think>"),
        (["never closed"], True, "never closed", ""),
        (["<<think>a<</think>b"], False, "a<", "<b"),
    ],
)
def test_tags_are_taken_out_and_what_is_no_tag_stays(pieces: list[str], start_inside: bool, reasoning: str, content: str) -> None:
    assert split(pieces, start_inside=start_inside) == (reasoning, content)


fragments = st.lists(
    st.sampled_from(["<think>", "</think>", "<thinking>", "</thinking>", "◁think▷", "◁/think▷", "<", "</", "<thi", "think>", "a", "é\n", "b <c"]), max_size=12
)


@given(fragments, st.lists(st.integers(0, 60), max_size=12), st.booleans())
def test_any_cutting_gives_the_same_result(parts: list[str], cuts: list[int], start_inside: bool) -> None:
    text = "".join(parts)
    places = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[one:two] for one, two in pairwise(places)]
    assert split(pieces, start_inside=start_inside) == split([text], start_inside=start_inside)


@given(st.text(alphabet="ab<>/thin :m◁▷", max_size=40))
def test_text_without_a_whole_tag_comes_out_as_it_went_in(text: str) -> None:
    assert split(list(text)) == ("", text)
    assert split(list(text), start_inside=True) == (text, "")


def chunk(*deltas: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"id": "c", "model": "m", "choices": [{"index": at, "delta": delta, "finish_reason": finish} for at, delta in enumerate(deltas)]}


def text_of(chunks: list[dict[str, Any]], index: int, field: str) -> str:
    return "".join(choice["delta"].get(field) or "" for one in chunks for choice in one["choices"] if choice["index"] == index)


def test_each_choice_of_a_stream_is_split_for_itself() -> None:
    tags = ThinkTags("on")
    out = [
        tags.feed(chunk({"role": "assistant", "content": "<think>a"}, {"content": "x<th"})),
        tags.feed(chunk({"content": "</think>b"}, {"content": "ink>y"})),
    ]
    out += [tags.feed(chunk({}, {}, finish="stop")), *tags.finish()]
    assert [text_of(out, 0, "reasoning_content"), text_of(out, 0, "content")] == ["a", "b"]
    assert [text_of(out, 1, "reasoning_content"), text_of(out, 1, "content")] == ["y", "x"]
    assert out[0]["choices"][0]["delta"]["role"] == "assistant"


def test_a_chunk_without_tags_is_the_same_object_and_a_split_one_leaves_its_source_alone() -> None:
    tags = ThinkTags("on")
    for plain in (chunk({"content": "hello"}), chunk({"tool_calls": [{"index": 0}]}), {"choices": [], "usage": {}}, {"error": {}}, chunk({"content": None})):
        assert tags.feed(plain) is plain
    tagged = chunk({"content": "<think>a</think>b"})
    before = json.dumps(tagged)
    assert tags.feed(tagged) is not tagged
    assert json.dumps(tagged) == before


def test_held_text_comes_out_with_the_finish_and_at_the_end_of_a_stream_without_one() -> None:
    tags = ThinkTags("on")
    assert tags.feed(chunk({"content": "a<thi"}))["choices"][0]["delta"]["content"] == "a"
    last = tags.feed(chunk({}, finish="stop"))
    assert last["choices"][0]["delta"] == {"content": "<thi"}
    assert tags.finish() == []
    cut = ThinkTags("start_inside")
    cut.feed({**chunk({"content": "a</thi"}), "usage": None})
    assert cut.finish() == [{"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"reasoning_content": "</thi"}, "finish_reason": None}]}]


def test_thoughts_that_also_come_in_a_field_are_not_given_twice() -> None:
    tags = ThinkTags("on")
    out = [tags.feed(chunk({"reasoning_content": "a", "content": "<think>a"})), tags.feed(chunk({"content": "</think>b"}))]
    assert text_of(out, 0, "reasoning_content") == "a"
    assert text_of(out, 0, "content") == "b"


def test_plain_answers_are_split_choice_by_choice() -> None:
    body = {
        "choices": [
            {"message": {"content": "<think>a</think>b"}},
            {"message": {"content": None, "tool_calls": []}},
            {"message": {"content": "<think>c</think>d", "reasoning": "c"}},
        ]
    }
    assert split_completion(body, "on")
    assert [choice["message"] for choice in body["choices"]] == [
        {"content": "b", "reasoning_content": "a"},
        {"content": None, "tool_calls": []},
        {"content": "d", "reasoning": "c"},
    ]
    assert not split_completion({"choices": [{"message": {"content": "plain"}}]}, "on")
    assert not split_completion({}, "on")
