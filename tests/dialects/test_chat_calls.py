"""Tool calls of all kinds of streams come out with one index, one id and one name each."""

from __future__ import annotations

from typing import Any

import pytest
from chat_grammar import call, chunk, finish, head, run, run_stream, text, tool_calls
from hypothesis import given
from hypothesis import strategies as st

from gateway.chat import Accumulator, dumps
from gateway.dialects.chat import ChatStream

Json = dict[str, Any]
END = chunk({}, "tool_calls")


def calls(*deltas: Json, reason: str | None = None) -> Json:
    return chunk({"tool_calls": list(deltas)}, reason)


def sent(events: list[Json]) -> list[Json]:
    """All tool call deltas that a client gets, in order."""
    return [delta for one in run(events) for choice in one["choices"] for delta in choice["delta"].get("tool_calls") or ()]


def test_right_deltas_keep_their_bytes() -> None:
    events = [
        dumps(one)
        for one in (
            chunk({"role": "assistant", "content": None, "tool_calls": [call(0, "c0", "f", "")]}),
            calls(call(0, arguments='{"a":')),
            calls(call(0, arguments="1}")),
            END,
        )
    ]
    chunks, stream = run_stream(events)
    assert [one.data for one in chunks] == events
    assert stream.tools == ["f"]


def test_empty_ids_and_a_missing_finish_key_of_qwen() -> None:
    first = {"index": 0, "id": "call_x", "type": "function", "function": {"name": "w", "arguments": ""}}
    later = {"index": 0, "id": "", "type": "function", "function": {"arguments": '{"a":1}'}}
    trailing: Json = {**head(), "choices": [{"index": 0, "delta": {}}]}
    got = run([calls(first), calls(later), trailing])
    assert tool_calls(got) == [("call_x", "w", {"a": 1})]
    assert got[1]["choices"][0]["delta"]["tool_calls"] == [{"index": 0, "function": {"arguments": '{"a":1}'}}]
    assert got[2]["choices"][0]["finish_reason"] is None
    assert finish(got) == "tool_calls"


def test_whole_calls_without_index_and_type_in_one_chunk_of_mistral() -> None:
    two = [{"id": "gSIMJiOkT", "function": {"name": "a", "arguments": "{}"}}, {"id": "zzzzzzzz1", "function": {"name": "b", "arguments": "{}"}}]
    got = run([calls(*two, reason="tool_calls")])
    assert [(one["index"], one["type"]) for one in got[0]["choices"][0]["delta"]["tool_calls"]] == [(0, "function"), (1, "function")]
    assert got[0]["choices"][0]["finish_reason"] is None
    assert got[1]["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "tool_calls"}


def test_an_index_that_starts_at_one_becomes_zero() -> None:
    assert [one["index"] for one in sent([calls(call(1, "c0", "f", "")), calls(call(1, arguments="{}")), calls(call(2, "c1", "g", "{}")), END])] == [0, 0, 1]


def test_an_empty_name_on_a_continuation_is_left_out() -> None:
    got = sent([calls(call(0, "c0", "f", "")), calls(call(0, None, "", "{}")), END])
    assert got[1] == {"index": 0, "function": {"arguments": "{}"}}


def test_argument_objects_are_merged_and_sent_once_at_the_finish() -> None:
    got = run([calls(call(0, "c0", "f", {"city": "Pa"})), calls(call(0, arguments={"city": "Paris", "u": 1})), END])
    assert [one["function"]["arguments"] for one in (d for c in got for d in c["choices"][0]["delta"].get("tool_calls") or ())] == [
        "",
        "",
        '{"city":"Paris","u":1}',
    ]
    assert tool_calls(got) == [("c0", "f", {"city": "Paris", "u": 1})]


def test_an_argument_object_beside_the_finish_stays_in_one_delta() -> None:
    got = run([calls(call(0, "c0", "f", {"a": {"b": [1]}}), reason="stop")])
    assert len(got) == 2
    assert tool_calls(got) == [("c0", "f", {"a": {"b": [1]}})]
    assert finish(got) == "tool_calls"


def test_a_call_without_arguments_gets_an_empty_object() -> None:
    for arguments in ("", None, "  "):
        assert tool_calls(run([calls(call(0, "c0", "now", arguments)), END])) == [("c0", "now", {})]


def test_two_parallel_calls_with_interleaved_pieces_stay_apart() -> None:
    events = [
        calls(call(0, "c0", "f1", "")),
        calls(call(1, "c1", "f2", "")),
        calls(call(0, arguments='{"a":')),
        calls(call(1, arguments='{"b":')),
        calls(call(0, arguments="1}")),
        calls(call(1, arguments="2}")),
        END,
    ]
    assert tool_calls(run(events)) == [("c0", "f1", {"a": 1}), ("c1", "f2", {"b": 2})]


def test_calls_without_any_index_are_told_apart_by_id_and_go_on_with_the_latest() -> None:
    events = [calls(call(None, "c0", "get_weather", '{"city":"P"}')), calls(call(None, "c1", "get_time", '{"tz"')), calls(call(None, arguments=':"J"}')), END]
    assert tool_calls(run(events)) == [("c0", "get_weather", {"city": "P"}), ("c1", "get_time", {"tz": "J"})]


def test_indexed_and_indexless_deltas_may_be_mixed() -> None:
    events = [calls(call(0, "c0", "f", '{"a"')), calls(call(None, arguments=":1}")), calls(call(1, "c1", "g", "{")), calls(call(None, arguments="}")), END]
    assert tool_calls(run(events)) == [("c0", "f", {"a": 1}), ("c1", "g", {})]


def test_pieces_without_id_and_index_go_by_their_position() -> None:
    events = [calls(call(None, "c0", "f", "{"), call(None, "c1", "g", "{")), calls(call(None, arguments='"a":1}'), call(None, arguments='"b":2}')), END]
    assert tool_calls(run(events)) == [("c0", "f", {"a": 1}), ("c1", "g", {"b": 2})]


def test_id_type_and_name_repeated_on_every_piece_come_out_once() -> None:
    events = [calls(call(0, "t-aa62", "f", piece)) for piece in ("", '{"q"', ':"x"}')]
    got = run([*events, END])
    assert tool_calls(got) == [("t-aa62", "f", {"q": "x"})]


def test_calls_of_their_own_index_with_one_id_for_all_are_several_and_get_ids_of_their_own() -> None:
    """Otherwise their arguments run into each other, and one result answers two calls."""
    whole = [calls(call(0, "x", "f", '{"q":1}')), calls(call(1, "x", "f", '{"q":2}')), END]
    pieces = [calls(call(0, "x", "f", '{"q":1}')), calls(call(1, "x", "f", '{"q"')), calls(call(1, "x", "f", ":2")), calls(call(1, "x", None, "}")), END]
    for events in (whole, pieces):
        got = tool_calls(run(events))
        assert [(name, arguments) for _, name, arguments in got] == [("f", {"q": 1}), ("f", {"q": 2})]
        assert got[0][0] == "x" != got[1][0]


def test_a_new_id_with_each_piece_is_still_one_call() -> None:
    for name in ("f", None):
        events = [calls(call(0, "a", "f", '{"q"')), calls(call(0, "b", name, ":")), calls(call(0, "c", name, "1}"))]
        got = run([*events, chunk({}, "stop")])
        assert tool_calls(got) == [("a", "f", {"q": 1})]
        assert finish(got) == "tool_calls"


def test_one_index_for_all_whole_calls_is_several_calls() -> None:
    events = [calls(call(0, "a", "f", '{"q":1}')), calls(call(0, "b", "f", '{"q":2}')), calls(call(0, "c", "g", "{}")), END]
    assert tool_calls(run(events)) == [("a", "f", {"q": 1}), ("b", "f", {"q": 2}), ("c", "g", {})]


def test_whole_calls_without_id_and_index_get_their_own() -> None:
    got = tool_calls(run([calls(call(None, None, "f", '{"q":1}')), calls(call(None, None, "f", '{"q":2}')), END]))
    assert [(name, arguments) for _, name, arguments in got] == [("f", {"q": 1}), ("f", {"q": 2})]
    assert len({ident for ident, _, _ in got}) == 2


def test_an_id_on_one_index_and_arguments_on_the_next_are_one_call() -> None:
    assert tool_calls(run([calls(call(0, "c0", "f", "")), calls(call(1, arguments='{"a":1}')), END])) == [("c0", "f", {"a": 1})]


def test_arguments_before_the_name_wait_for_it() -> None:
    chunks, _ = run_stream([calls(call(0, "c0", None, '{"a"')), calls(call(0, None, "f", ":")), calls(call(0, arguments="1}")), END])
    assert tool_calls([one.json() for one in chunks]) == [("c0", "f", {"a": 1})]
    assert len(chunks) == 3
    assert chunks[0].json()["choices"][0]["delta"]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a":'}


def test_text_beside_a_nameless_call_is_not_held_back() -> None:
    got = run([chunk({"content": "x", "tool_calls": [call(0, "c0", None, "{")]}), calls(call(0, None, "f", "}")), END])
    assert text(got) == "x"
    assert tool_calls(got) == [("c0", "f", {})]


def test_a_call_that_never_gets_a_name_is_dropped() -> None:
    chunks, stream = run_stream([calls(call(0, "c0", None, "{}")), END])
    assert finish([one.json() for one in chunks]) == "stop"
    assert stream.empty


def test_stop_with_calls_is_tool_calls_and_length_stays_length() -> None:
    assert finish(run([calls(call(0, "c", "f", "{}")), chunk({}, "stop")])) == "tool_calls"
    assert finish(run([calls(call(0, "c", "f", '{"a')), chunk({}, "length")])) == "length"


def test_a_cut_stream_does_not_complete_its_calls() -> None:
    chunks, stream = run_stream([calls(call(0, "c0", "write", {"path": "a"}))], done=False)
    assert not stream.finished
    assert [one.json()["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] for one in chunks] == [""]


def test_legacy_function_calls_keep_their_finish() -> None:
    got = run([chunk({"function_call": {"name": "f", "arguments": None}}), chunk({"function_call": {"arguments": "{}"}}), chunk({}, "function_call")])
    assert finish(got) == "function_call"
    assert got[0]["choices"][0]["delta"]["function_call"] == {"name": "f", "arguments": ""}


def test_null_role_and_null_calls_of_sglang_are_left_out() -> None:
    got = run([chunk({"role": None, "content": "a", "tool_calls": None, "function_call": None}), chunk({"content": None}, "stop")])
    assert got[0]["choices"][0]["delta"] == {"role": "assistant", "content": "a"}


def test_fields_beside_a_call_survive() -> None:
    signature = {"google": {"thought_signature": "s"}}
    got = sent([calls({**call(None, "c0", "f", "{}"), "extra_content": signature}), END])
    assert got[0]["extra_content"] == signature


def test_custom_tools_keep_their_kind() -> None:
    chunks = []
    stream_events = [
        calls({"index": 0, "id": "c0", "type": "custom", "custom": {"name": "f", "input": ""}}),
        calls({"index": 0, "id": "c0", "type": "custom", "custom": {"name": "f", "input": "x y"}}),
        END,
    ]
    stream = ChatStream("m")
    for event in [*map(dumps, stream_events), b"[DONE]"]:
        chunks += stream.feed(event)
    chunks += stream.finish()
    deltas = [one.json()["choices"][0]["delta"].get("tool_calls") for one in chunks]
    assert deltas == [
        [{"index": 0, "id": "c0", "type": "custom", "custom": {"name": "f", "input": ""}}],
        [{"index": 0, "custom": {"input": "x y"}}],
        None,
    ]


ARGUMENTS = '{"q":"\\u5317\\ud83d\\ude00","n":[1,2]}'


@given(st.lists(st.integers(0, len(ARGUMENTS)), max_size=6), st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_arguments_cut_anywhere_join_to_the_same_text(places: list[int], with_index: bool, repeat_id: bool, repeat_name: bool, two: bool) -> None:
    at = sorted(places)
    pieces = [ARGUMENTS[a:b] for a, b in zip([0, *at], [*at, len(ARGUMENTS)], strict=True)]
    events = []
    for number, (ident, name) in enumerate([("c0", "f"), ("c1", "g")][: 1 + two]):
        index = number if with_index else None
        events += [
            calls(call(index, ident if i == 0 or repeat_id else None, name if i == 0 or (repeat_name and repeat_id) else None, piece))
            for i, piece in enumerate(pieces)
        ]
    whole = Accumulator()
    for one in run([*events, END]):
        whole.add(one)
    got = whole.completion()["choices"][0]["message"]["tool_calls"]
    assert [(one["id"], one["function"]) for one in got] == [("c0", {"name": "f", "arguments": ARGUMENTS}), ("c1", {"name": "g", "arguments": ARGUMENTS})][
        : 1 + two
    ]


@pytest.mark.parametrize("ident", [7, 0])
def test_a_numeric_id_becomes_a_text(ident: int) -> None:
    assert sent([calls({"index": 0, "id": ident, "type": "function", "function": {"name": "f", "arguments": "{}"}}), END])[0]["id"] == str(ident)
