"""Responses streams that are made of chat."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from responses_samples import (
    PATCH,
    TOOL,
    Json,
    bare,
    checked,
    chunk,
    encoded,
    final,
    inbound,
    kinds,
    piece,
    summed,
    usage_chunk,
    user,
    valid,
    write,
)

from gateway.dialects import responses

REQUEST = {"model": "asked", "input": "q"}
ERROR = {"message": "broke off", "type": "upstream_error", "param": None, "code": "stream_interrupted"}


def test_text_comes_in_the_order_that_clients_need():
    events = write(chunk({"role": "assistant", "content": ""}), chunk({"content": "Hel"}), chunk({"content": "lo"}), chunk({}, "stop"), usage_chunk())

    assert kinds(events) == [
        *("created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.delta"),
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    assert events[0]["response"]["output"] == []
    assert events[6]["text"] == "Hello"
    response = valid(events[-1]["response"])
    assert response["output"][0]["content"][0]["text"] == "Hello"
    assert (response["usage"]["input_tokens"], response["usage"]["output_tokens"]) == (3, 2)
    assert final(events).output_text == "Hello"


def test_a_function_call_is_announced_filled_and_done():
    events = write(
        chunk({"tool_calls": [piece(0, "", "call_1", "w")]}),
        chunk({"tool_calls": [piece(0, '{"city":')]}),
        chunk({"tool_calls": [piece(0, '"Paris"}')]}),
        chunk({}, "tool_calls"),
    )

    assert kinds(events)[2:-1] == [
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.delta"),
        *("function_call_arguments.done", "output_item.done"),
    ]
    assert events[2]["item"]["arguments"] == ""
    assert (events[5]["name"], events[5]["arguments"]) == ("w", '{"city":"Paris"}')
    call = final(events, tools=[{**TOOL, "strict": False}]).output[0]
    assert (call.type, call.call_id, call.name, call.arguments) == ("function_call", "call_1", "w", '{"city":"Paris"}')


def test_reasoning_is_a_summary_of_its_own_item():
    events = write(chunk({"reasoning_content": "h"}), chunk({"reasoning_content": "m"}), chunk({"content": "Hi"}), chunk({}, "stop"))

    assert kinds(events)[2:9] == [
        *("output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta", "reasoning_summary_text.delta"),
        *("reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"),
    ]
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["reasoning", "message"]
    assert events[-1]["response"]["output"][0]["summary"] == [{"type": "summary_text", "text": "hm"}]
    assert final(events).output_text == "Hi"


def test_a_refusal_has_events_of_its_own():
    events = write(chunk({"refusal": "N"}), chunk({"refusal": "o."}), chunk({}, "stop"))

    assert kinds(events)[3:8] == ["content_part.added", "refusal.delta", "refusal.delta", "refusal.done", "content_part.done"]
    assert final(events).output[0].content[0].refusal == "No."


def test_a_free_text_tool_streams_its_text_and_not_the_json_around_it():
    events = write(
        chunk({"tool_calls": [piece(0, '{"input":"*** Be', "c1", "apply_patch")]}),
        chunk({"tool_calls": [piece(0, 'gin\\n"}')]}),
        chunk({}, "tool_calls"),
        tools=[PATCH],
    )

    assert kinds(events)[2:-1] == ["output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done"]
    assert events[3]["delta"] == events[4]["input"] == "*** Begin\n"
    assert bare(events[-1]["response"]["output"]) == [
        {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "*** Begin\n", "status": "completed"}
    ]


def test_a_custom_call_of_chat_streams_through():
    first = {"index": 0, "id": "c1", "type": "custom", "custom": {"name": "p", "input": ""}}
    events = write(chunk({"tool_calls": [first]}), chunk({"tool_calls": [{"index": 0, "custom": {"input": "***"}}]}), chunk({}, "tool_calls"))

    assert kinds(events)[2:-1] == ["output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done"]
    assert events[-1]["response"]["output"][0]["input"] == "***"


def test_a_call_without_arguments_has_an_empty_object():
    events = write(chunk({"tool_calls": [piece(0, "", "call_1", "w")]}), chunk({}, "tool_calls"))

    assert [event["delta"] for event in events if "delta" in event] == ["{}"]
    assert events[-1]["response"]["output"][0]["arguments"] == "{}"


def test_a_call_is_announced_when_its_name_is_known():
    events = write(
        chunk({"tool_calls": [piece(0, '{"a":', "call_1")]}),
        chunk({"tool_calls": [piece(0, "1}", name="w")]}),
        chunk({"tool_calls": [piece(0, "")]}),
        chunk({}, "tool_calls"),
    )

    assert events[2]["item"]["name"] == "w"
    assert events[-1]["response"]["output"][0]["arguments"] == '{"a":1}'


def test_a_call_that_never_gets_a_name_is_not_lost():
    events = write(chunk({"tool_calls": [piece(0, "{}", "call_1")]}), chunk({}, "tool_calls"))

    assert [(item["call_id"], item["name"]) for item in events[-1]["response"]["output"]] == [("call_1", "")]


def test_calls_whose_arguments_come_in_turns_stay_apart():
    events = write(
        chunk({"content": "Both."}),
        chunk({"tool_calls": [piece(0, '{"a"', "call_1", "w"), piece(1, '{"b"', "call_2", "w")]}),
        chunk({"tool_calls": [piece(0, ":1}"), piece(1, ":2}")]}),
        chunk({}, "tool_calls"),
    )

    assert [(item.get("call_id"), item.get("arguments")) for item in events[-1]["response"]["output"]] == [
        (None, None),
        ("call_1", '{"a":1}'),
        ("call_2", '{"b":2}'),
    ]
    assert [item.type for item in final(events).output] == ["message", "function_call", "function_call"]


def test_a_finished_call_is_done_before_the_next_item_begins():
    events = write(chunk({"tool_calls": [piece(0, "{}", "call_1", "w")]}), chunk({"tool_calls": [piece(1, "{}", "call_2", "w")]}), chunk({}, "tool_calls"))

    assert [(event["type"].rpartition(".")[2], event["output_index"]) for event in events if "output_item" in event["type"]] == [
        ("added", 0),
        ("done", 0),
        ("added", 1),
        ("done", 1),
    ]


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_a_stream_that_was_cut_short_ends_incomplete(finish: str, reason: str):
    events = write(chunk({"content": "Hel"}), chunk({}, finish))

    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["incomplete_details"] == {"reason": reason}
    assert events[-1]["response"]["output"][0]["status"] == "incomplete"


def test_a_failure_ends_with_what_node_and_codex_read():
    writer = responses.Writer(REQUEST)
    events = checked([*writer.feed(chunk({"content": "Hel"})), *writer.fail(ERROR)])

    assert kinds(events)[-2:] == ["error", "failed"]
    assert (events[-2]["code"], events[-2]["message"], events[-2]["param"]) == ("stream_interrupted", "broke off", None)
    assert events[-1]["response"]["status"] == "failed"
    assert events[-1]["response"]["error"] == {"code": "server_error", "message": "broke off"}
    assert valid(events[-1]["response"])["id"] == events[0]["response"]["id"]


def test_a_failure_before_everything_is_a_whole_stream():
    events = checked(responses.Writer(REQUEST).fail(ERROR))

    assert kinds(events) == ["created", "in_progress", "error", "failed"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"code": "context_length_exceeded", "type": "invalid_request_error"}, "context_length_exceeded"),
        ({"code": "rate_limit_exceeded", "type": "rate_limit_error"}, "rate_limit_exceeded"),
        ({"code": "providers_exhausted", "attempts": [{"class": "rate_limit"}, {"class": "rate_limit"}]}, "rate_limit_exceeded"),
        ({"code": "x", "type": "invalid_request_error"}, "invalid_prompt"),
        ({"code": 7}, "server_error"),
        ({}, "server_error"),
    ],
)
def test_codes_of_failed_responses_are_those_that_openai_sends(error: Json, code: str):
    _, failed = responses.Writer(REQUEST).fail(error)[-1]

    assert failed["response"]["error"]["code"] == code
    assert failed["response"]["error"]["message"]


def test_sources_come_as_events_and_in_the_part():
    note = {"type": "url_citation", "url_citation": {"url": "https://example.com", "title": "t", "start_index": 0, "end_index": 2}}
    events = write(chunk({"content": "Hi"}), chunk({"annotations": [note, note]}), chunk({}, "stop"))

    assert [event["annotation_index"] for event in events if "annotation" in event] == [0, 1]
    assert len(events[-1]["response"]["output"][0]["content"][0]["annotations"]) == 2
    assert events[3]["part"]["annotations"] == []


def test_chances_come_with_the_text():
    chances = {"content": [{"token": "Hi", "logprob": -0.1, "bytes": None, "top_logprobs": []}]}
    events = write(chunk({"content": "Hi"}, logprobs=chances), chunk({}, "stop"))

    assert events[-1]["response"]["output"][0]["content"][0]["logprobs"] == [{"token": "Hi", "logprob": -0.1, "bytes": [], "top_logprobs": []}]


BLOCK = {"type": "thinking", "thinking": "hm", "signature": "s1"}
SIGNATURE = {"google": {"thought_signature": "sig"}}


def test_signed_blocks_of_a_stream_come_back_before_the_call():
    events = write(
        chunk({"reasoning_content": "hm"}),
        chunk({"thinking_blocks": [BLOCK]}),
        chunk({"tool_calls": [piece(0, "{}", "call_1", "w", extra_content=SIGNATURE)]}),
        chunk({}, "tool_calls"),
    )
    output = events[-1]["response"]["output"]

    assert [item["type"] for item in output] == ["reasoning", "function_call"]
    turn = inbound(user(), *output)["messages"][1]
    assert turn["thinking_blocks"] == [BLOCK]
    assert turn["tool_calls"][0]["extra_content"] == SIGNATURE


def test_a_signature_that_comes_late_is_kept_too():
    late = {"index": 0, "extra_content": SIGNATURE}
    events = write(chunk({"tool_calls": [piece(0, "{}", "call_1", "w")]}), chunk({"tool_calls": [late]}), chunk({}, "tool_calls"))

    assert inbound(user(), *events[-1]["response"]["output"])["messages"][1]["tool_calls"][0]["extra_content"] == SIGNATURE


def test_other_choices_are_not_mixed_in():
    events = write(chunk({"content": "a"}), chunk({"content": "b"}, index=1), chunk({}, "stop"))

    assert [event["delta"] for event in events if "delta" in event] == ["a"]


def test_an_event_does_not_change_after_it_was_given_out():
    writer = responses.Writer(REQUEST)
    events: list[tuple[Any, bytes]] = []
    kept: list[Json] = []
    for one in (
        chunk({"reasoning_content": "h"}),
        chunk({"content": "a"}),
        chunk({"refusal": "r"}),
        chunk({"tool_calls": [piece(0, "{}", "c", "w")]}),
        chunk({}, "stop"),
    ):
        for _, data in writer.feed(one):
            kept.append(data)
            events.append((None, encoded(data)))
    writer.finish()

    assert [encoded(data) for data in kept] == [text for _, text in events]


TEXT = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=10)
MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "reasoning_content": TEXT,
        "content": TEXT,
        "refusal": TEXT,
        "tool_calls": st.lists(st.tuples(st.sampled_from(["w", "apply_patch"]), st.dictionaries(TEXT, TEXT, max_size=2)), min_size=1, max_size=3),
    },
)


def chunks_of(message: Json, finish: str, pieces: int) -> Iterator[Json]:
    for field in ("reasoning_content", "content", "refusal"):
        text = message.get(field, "")
        size = max(1, len(text) // pieces)
        for start in range(0, len(text), size):
            yield chunk({field: text[start : start + size]})
    for index, call in enumerate(message.get("tool_calls", ())):
        arguments = call["function"]["arguments"]
        yield chunk({"tool_calls": [piece(index, "", call["id"], call["function"]["name"])]})
        for start in range(0, len(arguments), pieces):
            yield chunk({"tool_calls": [piece(index, arguments[start : start + pieces])]})
    yield chunk({}, finish)
    yield usage_chunk()


@settings(max_examples=60, deadline=None)
@given(MESSAGE, st.sampled_from(["stop", "length"]), st.integers(1, 4))
def test_a_translated_stream_ends_with_the_translated_answer(message: Json, finish: str, pieces: int):
    calls = [
        {"id": f"call_{place}", "type": "function", "function": {"name": name, "arguments": json.dumps(value)}}
        for place, (name, value) in enumerate(message.get("tool_calls", ()))
    ]
    message = {**message, **({"tool_calls": calls} if calls else {})}
    request = {**REQUEST, "tools": [TOOL, PATCH]}
    parts = list(chunks_of(message, finish, pieces))

    plain = responses.answer_from_chat(summed(parts), request)
    streamed = write(*parts, tools=[TOOL, PATCH])[-1]["response"]

    for item in (*plain["output"], *streamed["output"]):
        if item["type"] == "message":
            item.pop("status")
    assert bare(streamed["output"]) == bare(plain["output"])
    assert {key: streamed[key] for key in ("status", "usage", "tools")} == {key: plain[key] for key in ("status", "usage", "tools")}
