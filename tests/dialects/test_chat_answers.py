"""Plain completions are healed, split into streams and put together again; usage has one form."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from chat_grammar import check, finish, text, tool_calls
from hypothesis import given
from hypothesis import strategies as st

from gateway.chat import Accumulator
from gateway.dialects import chat
from gateway.dialects.chat.usage import is_normal
from gateway.errors import UpstreamError

Json = dict[str, Any]
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def completion(message: Any, finish_reason: Any = "stop", **top: Any) -> Json:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1764500000,
        "model": "up",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
        "usage": dict(USAGE),
        **top,
    }


def text_answer(content: Any = "ok", **more: Any) -> Json:
    return completion({"role": "assistant", "content": content, **more})


def healed(body: Json) -> Json:
    got, changed = chat.heal_completion(body, "asked")
    assert changed
    again = copy.deepcopy(got)
    assert chat.heal_completion(again, "asked") == (got, False)
    return got


def message_of(body: Json) -> Json:
    message: Json = healed(body)["choices"][0]["message"]
    return message


def test_a_right_answer_is_not_touched() -> None:
    for body in (
        text_answer(refusal=None, reasoning_content="r"),
        text_answer(x_unknown=[None]),
        completion(
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}, "tool_calls"
        ),
        {**text_answer(), "usage": None},
        {**text_answer(), "usage": {**USAGE, "prompt_cache_hit_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1}, "cost": 0.1}},
    ):
        before = copy.deepcopy(body)
        assert chat.heal_completion(body, "asked") == (before, False)


def test_what_the_provider_left_out_is_filled() -> None:
    got = healed({"choices": [{"message": {"content": "a"}}, {"message": {"content": "b"}}]})
    assert got["id"].startswith("chatcmpl-")
    assert (got["object"], got["model"]) == ("chat.completion", "asked")
    assert isinstance(got["created"], int)
    assert [(c["index"], c["finish_reason"], c["message"]["role"]) for c in got["choices"]] == [(0, "stop", "assistant"), (1, "stop", "assistant")]
    assert "usage" not in got


@pytest.mark.parametrize("choices", [None, [], {}, "x", [None]])
def test_an_answer_without_choices_is_a_failure(choices: Any) -> None:
    with pytest.raises(UpstreamError) as raised:
        chat.heal_completion({"id": "x", "choices": choices}, "m")
    assert raised.value.kind == "protocol"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"error": {"message": "boom", "type": "server_error"}}, "server"),
        ({"code": "The service is currently unavailable", "error": "try later"}, "overload"),
        ({"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}, "balance"),
        (completion({"role": "assistant", "content": ""}, "error"), "protocol"),
    ],
)
def test_an_error_inside_a_200_raises_its_class(body: Json, kind: str) -> None:
    with pytest.raises(UpstreamError) as raised:
        chat.heal_completion(body, "m")
    assert raised.value.kind == kind


@pytest.mark.parametrize(("arguments", "expected"), [({"a": 1}, '{"a":1}'), (None, "{}"), ("", "{}"), ([1], "[1]"), ('{"a":1}', '{"a":1}')])
def test_arguments_are_always_a_json_text(arguments: Any, expected: str) -> None:
    got = healed(completion({"content": None, "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}, "stop"))
    made = got["choices"][0]["message"]["tool_calls"][0]
    assert made["function"]["arguments"] == expected
    assert made["type"] == "function"
    assert made["id"].startswith("call_")
    assert got["choices"][0]["finish_reason"] == "tool_calls"


def test_each_call_has_an_id_of_its_own() -> None:
    calls = [{"id": ident, "type": "function", "function": {"name": "f", "arguments": "{}"}} for ident in ("x", "x", "y", "", "x")]
    idents = [call["id"] for call in message_of(completion({"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls"))["tool_calls"]]
    assert (idents[0], idents[2]) == ("x", "y")
    assert len(set(idents)) == 5


def test_null_calls_are_left_out_and_missing_content_is_null() -> None:
    assert message_of(completion({"role": "assistant", "tool_calls": None, "function_call": None})) == {"role": "assistant", "content": None}


@pytest.mark.parametrize("name", ["reasoning", "reasoning_text", "thinking"])
def test_reasoning_under_another_name_is_also_reasoning_content(name: str) -> None:
    got = message_of(text_answer(**{name: "R"}))
    assert got["reasoning_content"] == got[name] == "R"


def test_reasoning_details_and_content_parts_are_reasoning_too() -> None:
    assert message_of(text_answer(reasoning_details=[{"type": "reasoning.text", "text": "R"}]))["reasoning_content"] == "R"
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "R"}]}, {"type": "text", "text": "x"}]
    got = message_of(text_answer(parts))
    assert (got["reasoning_content"], got["content"]) == ("R", "x")


def test_a_legacy_function_call_keeps_its_finish() -> None:
    body = completion({"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": {}}}, "function_call")
    assert healed(body)["choices"][0]["finish_reason"] == "function_call"
    assert body["choices"][0]["message"]["function_call"]["arguments"] == "{}"


def test_unknown_tiers_are_dropped_and_float_times_rounded() -> None:
    got = healed(completion({"role": "assistant", "content": "a"}, created=5.5, service_tier="standard", error=None))
    assert got["created"] == 5
    assert "service_tier" not in got
    assert "error" not in got


# --- content -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({}, False),
        ({"role": "assistant", "content": ""}, False),
        ({"content": None, "reasoning_content": None, "tool_calls": [], "refusal": None}, False),
        ({"content": []}, False),
        ({"reasoning": {"effort": "low"}}, False),
        ({"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}, False),
        ({"content": " "}, True),
        ({"content": [{"type": "text", "text": "a"}]}, True),
        ({"reasoning_content": "a"}, True),
        ({"reasoning": "a"}, True),
        ({"reasoning_details": [{"text": "a"}]}, True),
        ({"refusal": "no"}, True),
        ({"tool_calls": [{"index": 0}]}, True),
        ({"function_call": {"name": "f"}}, True),
        ({"audio": {"id": "a"}}, True),
    ],
)
def test_what_content_is(message: Json, expected: bool) -> None:
    assert chat.has_content(message) is expected


def test_an_answer_is_empty_only_with_stop() -> None:
    assert chat.completion_is_empty(text_answer(""))
    assert not chat.completion_is_empty(completion({"content": ""}, "length"))
    assert not chat.completion_is_empty(completion({"content": ""}, "content_filter"))
    assert not chat.completion_is_empty(text_answer("", reasoning_content="hmm"))
    assert chat.completion_has_content(text_answer())


# --- split and aggregate -----------------------------------------------------------------------

FULL = completion(
    {
        "role": "assistant",
        "content": "text",
        "refusal": None,
        "reasoning_content": "why",
        "tool_calls": [
            {"id": "c0", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "c1", "type": "function", "function": {"name": "g", "arguments": '{"a":1}'}},
        ],
    },
    "tool_calls",
    system_fingerprint="fp",
    x_extra={"a": None},
)


def test_a_split_answer_is_a_stream_in_the_grammar() -> None:
    for include_usage in (False, True):
        got = [one.json() for one in chat.split(copy.deepcopy(FULL), include_usage=include_usage)]
        check(got, include_usage=include_usage, ended=True)
        assert (text(got), text(got, "reasoning_content"), finish(got)) == ("text", "why", "tool_calls")
        assert tool_calls(got) == [("c0", "f", {}), ("c1", "g", {"a": 1})]
        assert [one["choices"] == [] for one in got] == [False] * 4 + [True] * include_usage


def test_content_is_marked_on_the_split_chunks() -> None:
    assert [one.content for one in chat.split(copy.deepcopy(FULL))] == [True, True, True, False]
    assert [one.content for one in chat.split(text_answer(""))] == [False, False]


def test_a_split_answer_put_together_is_the_answer() -> None:
    got = chat.aggregate(chat.split(copy.deepcopy(FULL), include_usage=True))
    expected = copy.deepcopy(FULL)
    expected["choices"][0]["logprobs"] = None
    assert got == expected


def test_tools_that_were_called_are_named() -> None:
    assert chat.called_tools(FULL) == ["f", "g"]


MESSAGES: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {},
    optional={
        "content": st.sampled_from(["", "a", None, [{"type": "text", "text": "x"}]]),
        "reasoning": st.sampled_from(["", "r", None, {}]),
        "tool_calls": st.none()
        | st.lists(
            st.fixed_dictionaries({}, optional={"id": st.sampled_from(["c", "", None]), "function": st.none() | st.just({"name": "f", "arguments": None})})
            | st.none(),
            max_size=2,
        ),
        "refusal": st.none(),
    },
)
BODIES = st.fixed_dictionaries(
    {
        "choices": st.lists(
            st.fixed_dictionaries({}, optional={"index": st.just(0), "message": MESSAGES, "finish_reason": st.sampled_from([None, "eos", "tool_calls"])}),
            min_size=1,
            max_size=1,
        )
    },
    optional={"id": st.sampled_from(["", None, 1, "x"]), "created": st.sampled_from([0, 1, None]), "model": st.sampled_from(["", None, "m"])},
)


@given(BODIES)
def test_any_answer_whatever_is_healed_once(body: Json) -> None:
    got, _ = chat.heal_completion(body, "asked")
    assert chat.heal_completion(copy.deepcopy(got), "asked") == (got, False)
    whole = Accumulator()
    for one in chat.split(got):
        whole.add(one.json())
    assert whole.completion()["choices"][0]["finish_reason"] == got["choices"][0]["finish_reason"]


# --- usage -------------------------------------------------------------------------------------

COUNTS: list[tuple[Json, Json]] = [
    (
        {"prompt_tokens": 339, "completion_tokens": 83, "total_tokens": 422, "prompt_cache_hit_tokens": 320, "prompt_cache_miss_tokens": 19},
        {"prompt_tokens": 339, "completion_tokens": 83, "total_tokens": 422, "prompt_tokens_details": {"cached_tokens": 320}},
    ),
    (  # xAI leaves reasoning out of the completion
        {"prompt_tokens": 12, "completion_tokens": 1, "total_tokens": 303, "completion_tokens_details": {"reasoning_tokens": 290}},
        {"prompt_tokens": 12, "completion_tokens": 291, "total_tokens": 303, "completion_tokens_details": {"reasoning_tokens": 290}},
    ),
    (  # Anthropic leaves the cache out of the input
        {"input_tokens": 10, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 5, "output_tokens": 7},
        {"prompt_tokens": 105, "completion_tokens": 7, "total_tokens": 112, "prompt_tokens_details": {"cached_tokens": 90, "cache_write_tokens": 5}},
    ),
    (  # Responses
        {
            "input_tokens": 10,
            "input_tokens_details": {"cached_tokens": 4},
            "output_tokens": 7,
            "output_tokens_details": {"reasoning_tokens": 3},
            "total_tokens": 17,
        },
        {
            "prompt_tokens": 10,
            "completion_tokens": 7,
            "total_tokens": 17,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
    ),
    (  # Gemini leaves thoughts out of the candidates
        {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 20, "cachedContentTokenCount": 4, "totalTokenCount": 35},
        {
            "prompt_tokens": 10,
            "completion_tokens": 25,
            "total_tokens": 35,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 20},
        },
    ),
    (  # Kimi names the cached ones at the top
        {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10, "cached_tokens": 8},
        {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10, "prompt_tokens_details": {"cached_tokens": 8}},
    ),
    (  # SGLang: flat reasoning, null details
        {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10, "reasoning_tokens": 0, "prompt_tokens_details": None},
        {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10, "completion_tokens_details": {"reasoning_tokens": 0}},
    ),
    (  # more reasoning than completion, but the total says that it is included: miscounted
        {"prompt_tokens": 5, "completion_tokens": 10, "total_tokens": 15, "completion_tokens_details": {"reasoning_tokens": 12}},
        {"prompt_tokens": 5, "completion_tokens": 10, "total_tokens": 15, "completion_tokens_details": {"reasoning_tokens": 10}},
    ),
    (  # more cached than prompted
        {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6, "prompt_tokens_details": {"cached_tokens": 7}},
        {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6, "prompt_tokens_details": {"cached_tokens": 5}},
    ),
    (  # no total
        {"prompt_tokens": 5, "completion_tokens": 1},
        {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6},
    ),
    (
        {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6, "cost": 0.1},
        {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6, "cost": 0.1},
    ),
    ({}, {}),
    ({"total_tokens": 6}, {}),
    ({"prompt_tokens": None, "completion_tokens": 2, "total_tokens": 6}, {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}),
]


@pytest.mark.parametrize(("given_usage", "expected"), COUNTS)
def test_usage_comes_out_in_one_form(given_usage: Json, expected: Json) -> None:
    got = chat.normal_usage(given_usage)
    assert got == expected
    assert chat.normal_usage(got) == got
    assert is_normal(got, got)


def test_a_provider_may_be_known_to_leave_reasoning_out() -> None:
    got = chat.normal_usage({"prompt_tokens": 1, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 3}}, excludes_reasoning=True)
    assert got["completion_tokens"] == 8


def test_cached_tokens_of_llama_cpp_come_from_its_timings() -> None:
    assert chat.normal_usage(dict(USAGE), timings={"cache_n": 2})["prompt_tokens_details"] == {"cached_tokens": 2}


@given(
    st.dictionaries(
        st.sampled_from(sorted({key for one, _ in COUNTS for key in one})),
        st.integers(-3, 20) | st.none() | st.floats() | st.just("x") | st.just({"cached_tokens": 3}),
        max_size=7,
    )
)
def test_no_usage_whatever_breaks_the_counting(usage: Json) -> None:
    got = chat.normal_usage(usage)
    if got:
        assert got["total_tokens"] >= got["prompt_tokens"] + got["completion_tokens"] >= 0
