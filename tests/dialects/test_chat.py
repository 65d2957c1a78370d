"""Chat streams of all kinds of providers come out in the one grammar."""

from __future__ import annotations

import json
from typing import Any

import pytest
from chat_grammar import call, check, chunk, finish, head, run, run_stream, text, tool_calls
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.chat import Accumulator, dumps
from gateway.dialects.chat import ChatStream
from gateway.errors import UpstreamError
from gateway.sse import Events

Json = dict[str, Any]
USAGE = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
END = chunk({}, "stop")


def test_a_right_stream_keeps_its_bytes_and_its_number_of_chunks() -> None:
    events = [dumps(chunk({"role": "assistant", "content": "", "refusal": None})), dumps(chunk({"content": "a"})), dumps(END)]
    chunks, stream = run_stream(events)
    assert [one.data for one in chunks] == events
    assert [one.content for one in chunks] == [False, True, False]
    assert stream.done
    assert stream.finished
    assert stream.has_content


def test_spaces_and_key_order_of_an_untouched_chunk_stay() -> None:
    odd = (
        b'{ "choices" : [{"finish_reason":null,"delta":{"content":"a"},"index":0}], "model":"up","created":1764500000,'
        b'"object":"chat.completion.chunk","id":"chatcmpl-1", "x":18446744073709551617 }'
    )
    chunks, _ = run_stream([chunk({"role": "assistant"}), odd, END])
    assert chunks[1].data == odd


def test_an_event_of_several_data_lines_becomes_one_line() -> None:
    events = [dumps(chunk(delta)).replace(b',"choices"', b',\n"choices"') for delta in ({"role": "assistant", "content": "y"}, {"content": "z"})]
    chunks, _ = run_stream([*events, END])
    assert text([one.json() for one in chunks]) == "yz"


def test_two_events_without_a_blank_line_between_them_are_two_chunks() -> None:
    both = dumps(chunk({"content": "a"})) + b"\n" + dumps(chunk({"content": "b"})) + b"\n[DONE]"
    chunks, stream = run_stream([both], done=False)
    assert text([one.json() for one in chunks]) == "ab"
    assert stream.done


def test_the_role_is_added_to_the_first_chunk_and_not_as_one_more() -> None:
    got = run([chunk({"content": "a"}), chunk({"content": "b"}), END])
    assert [one["choices"][0]["delta"] for one in got] == [{"role": "assistant", "content": "a"}, {"content": "b"}, {}]


def test_id_object_created_and_model_are_filled_and_stay_the_same() -> None:
    bare: Json = {"choices": [{"delta": {"content": "a"}}]}
    got = run([bare, {**bare, "id": "other", "model": "late", "created": 5.0}])
    assert {(one["id"][:9], one["object"], one["model"]) for one in got} == {("chatcmpl-", "chat.completion.chunk", "asked")}
    got = run([chunk({"content": "a"}), chunk({"content": "b"}, id="x", model="y", created=7), END])
    assert {(one["id"], one["model"], one["created"]) for one in got} == {("chatcmpl-1", "up", 1764500000)}


def test_filter_results_without_choices_are_dropped_and_id_comes_from_the_first_real_chunk() -> None:
    azure = {"choices": [], "created": 0, "id": "", "model": "", "object": "", "prompt_filter_results": [{}]}
    got = run([azure, chunk({"role": "assistant", "content": "a"}), END])
    assert len(got) == 2
    assert got[0]["id"] == "chatcmpl-1"


def test_null_choices_null_delta_and_missing_indexes_are_mended() -> None:
    got = run([{**head(), "choices": None}, {**head(), "choices": [{"delta": None}]}, {**head(), "choices": [{"delta": {"content": "a"}}, None]}, END])
    assert text(got) == "a"


def test_n_choices_keep_their_own_indexes_roles_and_finishes() -> None:
    both = {**head(), "choices": [{"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}, "finish_reason": "length"}]}
    got = run([both, chunk({"content": "c"}), END])
    assert (text(got), text(got, index=1), finish(got), finish(got, 1)) == ("ac", "b", "stop", "length")


@pytest.mark.parametrize("event", [b"null", b"", b"  ", b"{}", b": OPENROUTER PROCESSING", b"ping", b"[1]", b'"x"'])
def test_events_that_are_no_chunks_are_skipped(event: bytes) -> None:
    assert text(run([event, chunk({"content": "a"}), event, END])) == "a"


def test_unknown_events_are_counted() -> None:
    _, stream = run_stream([b"null", b"", b"garbage", b"[1]", chunk({"content": "a"}), END])
    assert stream.skipped == 2


def test_done_is_known_by_its_beginning_and_nothing_after_it_counts() -> None:
    chunks, stream = run_stream([chunk({"content": "a"}), END, b" [DONE] extra", chunk({"content": "late"})])
    assert stream.done
    assert text([one.json() for one in chunks]) == "a"


def test_obfuscation_and_unknown_service_tiers_are_dropped() -> None:
    got = run([chunk({"role": "assistant", "content": "a"}, obfuscation="abc", service_tier="standard"), chunk({"content": "b"}, service_tier="default"), END])
    assert [one.get("service_tier") for one in got] == [None, "default", None]


def test_unknown_fields_survive() -> None:
    got = run([chunk({"content": "a", "audio_note": {"x": None}}, provider="P"), {**END, "x_groq": {"id": "r"}}])
    assert got[0]["provider"] == "P"
    assert got[0]["choices"][0]["delta"]["audio_note"] == {"x": None}
    assert got[1]["x_groq"] == {"id": "r"}


# --- finishes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_reason", "legal"),
    [
        ("eos", "stop"),
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("STOP", "stop"),
        ("unknown", "stop"),
        ("model_length", "length"),
        ("MAX_TOKENS", "length"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("sensitive", "content_filter"),
        ("refusal", "content_filter"),
        ("SAFETY", "content_filter"),
        ("guardrail_intervened", "content_filter"),
        ("tool_calls", "stop"),
        ("content_filter", "content_filter"),
    ],
)
def test_finish_reasons_are_mapped_to_the_legal_ones(given_reason: str, legal: str) -> None:
    assert finish(run([chunk({"content": "a"}), chunk({}, given_reason)])) == legal


@pytest.mark.parametrize("reason", ["error", "insufficient_system_resource", "network_error", "MALFORMED_FUNCTION_CALL"])
def test_finish_reasons_that_mean_failure_raise(reason: str) -> None:
    with pytest.raises(UpstreamError):
        run([chunk({"content": "a"}), chunk({}, reason)])


@pytest.mark.parametrize("empty", ["", "null"])
def test_an_empty_finish_reason_is_none(empty: str) -> None:
    got = run([chunk({"content": "a"}, empty), END])
    assert [one["choices"][0]["finish_reason"] for one in got] == [None, "stop"]


def test_a_finish_on_every_chunk_comes_out_once_at_the_end() -> None:
    got = run([chunk({"content": "a"}, "stop"), chunk({"content": "b"}, "stop"), chunk({}, "stop")])
    assert text(got) == "ab"
    assert [one["choices"][0]["finish_reason"] for one in got] == [None, None, "stop"]


def test_a_finish_beside_content_is_split_off() -> None:
    got = run([chunk({"content": "a"}, "length")])
    assert [(one["choices"][0]["delta"], one["choices"][0]["finish_reason"]) for one in got] == [({"role": "assistant", "content": "a"}, None), ({}, "length")]


def test_a_finish_that_never_came_is_made_up_only_after_done() -> None:
    chunks, stream = run_stream([chunk({"content": "a"})])
    assert finish([one.json() for one in chunks]) == "stop"
    assert stream.finished
    chunks, stream = run_stream([chunk({"content": "a"})], done=False)
    assert finish([one.json() for one in chunks]) is None
    assert not stream.finished


def test_only_done_is_empty_and_finishes_nothing() -> None:
    chunks, stream = run_stream([])
    assert chunks == []
    assert stream.empty
    assert not stream.finished


@pytest.mark.parametrize(("reason", "empty"), [("stop", True), ("length", False), ("content_filter", False)])
def test_an_answer_without_content_is_empty_unless_its_finish_explains_it(reason: str, empty: bool) -> None:
    chunks, stream = run_stream([chunk({"role": "assistant", "content": ""}), chunk({}, reason)])
    assert stream.empty is empty
    assert not any(one.content for one in chunks)


def test_a_stream_that_only_finishes_still_gives_the_role() -> None:
    assert run([chunk({}, "length")])[0]["choices"][0]["delta"] == {"role": "assistant"}


def test_annotations_after_the_finish_do_not_come_after_it() -> None:
    late = {**head(), "choices": [{"index": 0, "content_filter_results": {"hate": {}}, "finish_reason": None}]}
    got = run([chunk({"content": "a"}), END, late])
    assert got[-1]["choices"][0]["finish_reason"] == "stop"


# --- usage -------------------------------------------------------------------------------------

DEEPSEEK_USAGE = {
    "prompt_tokens": 339,
    "completion_tokens": 83,
    "total_tokens": 422,
    "prompt_tokens_details": {"cached_tokens": 320},
    "completion_tokens_details": {"reasoning_tokens": 39},
}


def test_usage_on_the_finish_chunk_is_split_off() -> None:
    events = [
        chunk({"role": "assistant", "content": "a"}),
        chunk({"content": ""}, "stop", usage={**DEEPSEEK_USAGE, "prompt_cache_hit_tokens": 320, "prompt_cache_miss_tokens": 19}),
    ]
    got = run(events, include_usage=True)
    assert got[1]["choices"][0]["finish_reason"] == "stop"
    assert got[1]["usage"] is None
    assert got[2] == {**head(), "choices": [], "usage": DEEPSEEK_USAGE}
    chunks, stream = run_stream(events)
    assert len(chunks) == 2
    assert "usage" not in chunks[1].json()
    assert stream.usage == DEEPSEEK_USAGE


def test_a_usage_chunk_without_choices_gets_an_empty_list() -> None:
    got = run([chunk({"content": "a"}), END, {**head(), "usage": USAGE}], include_usage=True)
    assert got[-1] == {**head(), "usage": USAGE, "choices": []}


def test_a_right_usage_chunk_keeps_its_bytes_and_fields() -> None:
    data = dumps({**head(), "choices": [], "usage": {**USAGE, "cost": 0.1}, "service_tier": "default"})
    chunks, _ = run_stream([chunk({"content": "a"}), END, data], include_usage=True)
    assert chunks[-1].data == data


def test_usage_on_every_chunk_is_sent_once_and_the_last_counts() -> None:
    events = [chunk({"content": c}, usage={"prompt_tokens": 3, "completion_tokens": n, "total_tokens": 3 + n}) for n, c in enumerate("abc", 1)]
    got = run([*events, END], include_usage=True)
    assert [one.get("usage") and one["usage"]["completion_tokens"] for one in got] == [None, None, None, None, 3]
    assert all("usage" not in one for one in run([*events, END]))


def test_null_usage_stays_only_where_it_was_asked_for() -> None:
    events = [chunk({"role": "assistant", "content": ""}, usage=None), chunk({"content": "a"}, usage=None), {"usage": None, **chunk({"content": "b"})}, END]
    got, _ = run_stream(events, include_usage=True)
    assert [one.data for one in got] == [dumps(one) for one in (*events[:-1], {**END, "usage": None})]
    got, _ = run_stream(events)
    assert got[1].data == dumps(chunk({"content": "a"}))
    assert text([one.json() for one in got]) == "ab"


def test_usage_inside_a_choice_is_found() -> None:
    last: Json = {**head(), "choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": USAGE}]}
    _, stream = run_stream([chunk({"content": "a"}), last])
    assert stream.usage == USAGE


def test_no_usage_is_invented() -> None:
    chunks, stream = run_stream([chunk({"content": "a"}), END], include_usage=True)
    assert stream.usage is None
    assert len(chunks) == 2


def test_a_usage_chunk_at_the_start_does_not_end_the_stream() -> None:
    got = run([{**head(), "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3}}, chunk({"content": "a"}), END])
    assert text(got) == "a"


# --- reasoning ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "delta",
    [
        {"reasoning": "A"},
        {"reasoning_text": "A"},
        {"reasoning_details": [{"type": "reasoning.text", "text": "A"}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "A"}, {"type": "reasoning.encrypted", "data": "x"}]},
        {"thinking": "A"},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "A"}]}]},
        {"reasoning_content": "", "reasoning": "A"},
        {"reasoning_content": None, "reasoning": "A"},
        {"reasoning_content": "A", "reasoning": "A", "reasoning_details": [{"type": "reasoning.text", "text": "A"}]},
    ],
)
def test_reasoning_under_any_name_is_also_reasoning_content_once(delta: Json) -> None:
    chunks, stream = run_stream([chunk(json.loads(json.dumps(delta))), chunk({"content": "x"}), END])
    got = [one.json() for one in chunks]
    assert text(got, "reasoning_content") == "A"
    assert text(got) == "x"
    assert chunks[0].content
    for key, value in delta.items():
        if key not in ("content", "reasoning_content"):
            assert got[0]["choices"][0]["delta"][key] == value
    assert stream.has_content


def test_reasoning_goes_on_after_the_first_chunk() -> None:
    got = run(
        [chunk({"role": "assistant", "content": "", "reasoning": "A"}), chunk({"reasoning": "B"}), chunk({"reasoning": "C"}), chunk({"content": "x"}), END]
    )
    assert (text(got, "reasoning_content"), text(got)) == ("ABC", "x")


def test_one_delta_with_reasoning_and_text_keeps_both() -> None:
    got = run(
        [
            chunk({"role": "assistant", "content": ""}),
            chunk({"reasoning_content": "think"}),
            chunk({"reasoning_content": "ing.", "content": "Hel"}),
            chunk({"content": "lo"}),
            END,
        ]
    )
    assert (text(got, "reasoning_content"), text(got)) == ("thinking.", "Hello")


def test_mistral_parts_become_text_and_reasoning() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "T"}]}, {"type": "text", "text": "x"}, "y"]
    got = run([chunk({"content": parts}), END])
    assert (text(got, "reasoning_content"), text(got)) == ("T", "xy")


def details(piece: str) -> Json:
    return chunk({"reasoning_details": [{"type": "reasoning.text", "text": piece}]})


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["The user", "The user asks", "The user asks me"], ["The user", " asks", " me"]),
        (["The user", " is asking", " me"], ["The user", " is asking", " me"]),
        (["ha", "ha", "ha"], ["ha", "ha", "ha"]),
        (["a"], ["a"]),
    ],
)
def test_details_may_be_cumulative_or_incremental(pieces: list[str], expected: list[str]) -> None:
    got = run([*map(details, pieces), chunk({"content": "x"}), END])
    assert [one["choices"][0]["delta"].get("reasoning_content") for one in got[: len(pieces)]] == expected


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"error": {"message": "quota exceeded", "type": "rate_limit_error", "code": 429}}, "rate_limit"),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overload"),
        ({"error": {"code": 502, "message": "bad"}, "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]}, "server"),
        ([{"error": {"code": 503, "message": "x", "status": "UNAVAILABLE"}}], "overload"),
    ],
)
def test_an_error_inside_the_stream_raises_its_class(event: Any, kind: str) -> None:
    stream = ChatStream("m")
    stream.feed(dumps(chunk({"content": "a"})))
    with pytest.raises(UpstreamError) as raised:
        stream.feed(dumps(event))
    assert raised.value.kind == kind


@pytest.mark.parametrize("data", [b'{"message":"rate limit"}', b"rate limit reached"])
def test_an_event_named_error_is_one(data: bytes) -> None:
    with pytest.raises(UpstreamError) as raised:
        ChatStream("m").feed(data, "error")
    assert raised.value.kind == "rate_limit"


def test_an_error_shows_no_key() -> None:
    with pytest.raises(UpstreamError) as raised:
        ChatStream("m").feed(dumps({"error": {"message": "bad key sk-abcdefghijklmnop", "type": "x", "code": None}}))
    assert "abcdefghijklmnop" not in raised.value.message + str(raised.value.error)


# --- characters --------------------------------------------------------------------------------


def test_characters_cut_into_surrogate_halves_are_joined() -> None:
    halves = [dumps(chunk({"content": "@"})).replace(b"@", half) for half in (b"a\\ud83d", b"\\ude00b")]
    got = run([chunk({"role": "assistant"}), *halves, END])
    assert text(got) == "a😀b"


def test_a_lone_half_and_a_broken_byte_become_replacement_characters() -> None:
    events = [dumps(chunk({"content": "@"})).replace(b"@", bad) for bad in (b"\\ude00x", b"\xffy")]
    assert text(run([*events, END])) == "\ufffdx\ufffdy"


WIRE = b"".join(
    b"data: " + dumps(one) + b"\n\n"
    for one in (
        chunk({"content": "北京"}),
        chunk({"content": "😀\u2028"}),
        chunk({"tool_calls": [call(0, "c", "f", '{"q":"\\u53')]}),
        chunk({"tool_calls": [call(0, arguments='17"}')]}),
    )
)


@given(st.lists(st.integers(0, len(WIRE)), max_size=6))
def test_any_cut_of_the_bytes_gives_the_same_chunks(places: list[int]) -> None:
    at = sorted(places)
    events, stream, chunks = Events(), ChatStream("m"), []
    for a, b in zip([0, *at], [*at, len(WIRE)], strict=True):
        for event in events.feed(WIRE[a:b]):
            chunks += stream.feed(event.data)
    got = [one.json() for one in chunks]
    assert text(got) == "北京😀\u2028"
    assert tool_calls(got) == [("c", "f", {"q": "北"})]


# --- any stream whatever -----------------------------------------------------------------------

WORDS = st.sampled_from(["", "a", "bc", "😀"])
FUNCTIONS = st.fixed_dictionaries(
    {}, optional={"name": st.sampled_from(["", "f", "g", None]), "arguments": st.sampled_from(["", "{}", '{"a":', "1}", None, {"a": 1}, [1]])}
)
CALLS = st.fixed_dictionaries(
    {},
    optional={
        "index": st.sampled_from([0, 1, 5, None, "0"]),
        "id": st.sampled_from(["", "c0", "c1", None, 7]),
        "type": st.sampled_from(["function", "", None]),
        "function": FUNCTIONS | st.none(),
    },
)
DELTAS = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["assistant", "", None, "model"]),
        "content": WORDS | st.none() | st.just([{"type": "text", "text": "x"}]),
        "reasoning": WORDS | st.none() | st.just({"effort": "low"}),
        "reasoning_content": WORDS | st.none(),
        "reasoning_details": st.just([{"text": "a"}]) | st.none(),
        "tool_calls": st.lists(CALLS | st.none(), max_size=2) | st.none(),
        "function_call": st.none(),
        "refusal": WORDS | st.none(),
    },
)
REASONS = st.sampled_from(["stop", "length", "tool_calls", "eos", "", None, "null"])
CHOICES = st.fixed_dictionaries(
    {}, optional={"index": st.sampled_from([0, 1, None]), "delta": DELTAS | st.none(), "finish_reason": REASONS, "logprobs": st.none(), "message": DELTAS}
)
CHUNKS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["a", "b", "", None, 5]),
        "object": st.sampled_from(["chat.completion.chunk", "", "chat.completion"]),
        "created": st.sampled_from([1, 0, None, 1.5, 1764500000]),
        "model": st.sampled_from(["m", "", None]),
        "choices": st.lists(CHOICES | st.none(), max_size=2) | st.none(),
        "usage": st.none() | st.just(USAGE) | st.just({}),
        "obfuscation": st.just("x"),
        "error": st.none(),
        "service_tier": st.sampled_from(["default", "standard", None]),
    },
)


@settings(max_examples=400, deadline=None)
@given(st.lists(CHUNKS, max_size=6), st.booleans(), st.booleans())
def test_any_stream_whatever_comes_out_in_the_grammar(events: list[Json], include_usage: bool, done: bool) -> None:
    run_stream(events, include_usage=include_usage, done=done)


@settings(max_examples=100, deadline=None)
@given(st.lists(CHUNKS, max_size=6))
def test_healing_twice_changes_nothing(events: list[Json]) -> None:
    once, _ = run_stream(events, include_usage=True)
    again, _ = run_stream([one.data for one in once], include_usage=True)
    assert [one.data for one in again] == [one.data for one in once]


def test_a_call_without_a_name_takes_no_place() -> None:
    once, _ = run_stream([chunk({"tool_calls": [{}, {"function": {"name": "f", "arguments": "{}"}}]}, "tool_calls")], include_usage=False)
    indexes = [call["index"] for one in once for choice in one.json()["choices"] for call in choice["delta"].get("tool_calls") or ()]
    assert set(indexes) == {0}


@given(
    st.lists(st.binary(max_size=20) | st.sampled_from([b"[1,2]", b'{"choices":3}', b'{"choices":{}}', b'{"choices":[3]}', b'{"usage":1}', b"{}"]), max_size=5)
)
def test_no_bytes_whatever_break_it(events: list[bytes]) -> None:
    stream = ChatStream("m")
    for event in events:
        if event.strip().startswith(b"{") and not any(map(event.startswith, (b'{"choices"', b'{"usage"', b"{}"))):
            continue  # an object that breaks off is a failure
        stream.feed(event)
    check([one.json() for one in stream.finish()], include_usage=False, ended=stream.finished)


@pytest.mark.parametrize("event", [b'{"choices":[{"index":0,"delta":{"content":"lo', b'{"choices":[{"ind', b"{'error': 'x'}", b"{"])
def test_an_object_that_breaks_off_is_a_failure_as_long_as_the_answer_is_not_over(event: bytes) -> None:
    """What it said is lost: without it a part of the answer would pass for the whole."""
    with pytest.raises(UpstreamError) as caught:
        run([chunk({"content": "a"}), event, END])

    assert caught.value.kind == "protocol"
    assert text(run([chunk({"content": "a"}), chunk({}, "stop"), event, END])) == "a"


def test_parsed_chunks_are_healed_like_bytes() -> None:
    by_bytes, by_value = ChatStream("m"), ChatStream("m")
    for one in (chunk({"content": "a"}), chunk({"reasoning": "b"}), chunk({"content": "c"}, "stop")):
        assert [c.json() for c in by_bytes.feed(dumps(one))] == [c.json() for c in by_value.chunk(json.loads(dumps(one)))]


def test_the_chunks_accumulate_to_the_answer() -> None:
    whole = Accumulator()
    for one in run([chunk({"content": "Hel"}), chunk({"content": "lo"}), END, {**head(), "choices": [], "usage": USAGE}], include_usage=True):
        whole.add(one)
    answer = whole.completion()
    assert answer["choices"][0]["message"]["content"] == "Hello"
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"] == USAGE
