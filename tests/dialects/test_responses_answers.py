"""Plain answers between Responses and chat."""

from __future__ import annotations

import json
from typing import Any

import pytest
from responses_samples import OWN_USAGE, PATCH, TOOL, USAGE, Json, bare, inbound, outbound, user, valid, valid_chat

from gateway.dialects import responses
from gateway.dialects.responses.carriers import seal, unseal

CALL = {"id": "call_2", "type": "function", "function": {"name": "w", "arguments": '{"q":"z"}'}}
BLOCKS = [{"type": "thinking", "thinking": "hm", "signature": "s1"}, {"type": "redacted_thinking", "data": "d"}]


def completion(message: Json, finish: str = "stop", **fields: Any) -> Json:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 7,
        "model": "up",
        "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}],
        "usage": USAGE,
        **fields,
    }


def answer(message: Json, finish: str = "stop", **request: Any) -> Json:
    return valid(responses.answer_from_chat(completion(message, finish), {"model": "asked", "input": "q", **request}))


def response(*output: Json, status: str = "completed", **fields: Any) -> Json:
    return {
        **responses.heal_answer({"id": "resp_1", "model": "up", "created_at": 7.0, "usage": OWN_USAGE}, {}),
        "status": status,
        "output": list(output),
        **fields,
    }


def said(text: str, **part: Any) -> Json:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": [], **part}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}


# --- chat -> Responses


def test_the_answer_has_all_that_clients_read():
    out = answer({"content": "Hello"}, instructions="be nice", tools=[TOOL], temperature=0.5, metadata={"a": "b"}, reasoning={"effort": "low"}, store=False)

    assert out["output"][0]["content"][0]["text"] == "Hello"
    assert (out["object"], out["status"], out["model"], out["created_at"]) == ("response", "completed", "up", 7)
    assert (out["instructions"], out["tools"], out["temperature"], out["metadata"], out["store"]) == ("be nice", [TOOL], 0.5, {"a": "b"}, False)
    assert out["reasoning"] == {"effort": "low", "summary": None}
    assert (out["error"], out["incomplete_details"]) == (None, None)
    assert out["usage"] == {
        "input_tokens": 3,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 5,
    }


def test_a_call_has_the_models_call_id_and_an_item_id_of_its_own():
    item = answer({"content": None, "tool_calls": [CALL]}, "tool_calls")["output"][0]

    assert item["type"] == "function_call"
    assert item["call_id"] == "call_2"
    assert item["id"].startswith("fc_")
    assert item["arguments"] == '{"q":"z"}'


def test_the_order_is_reasoning_text_calls():
    items = answer({"content": "Looking.", "reasoning_content": "hm", "tool_calls": [CALL]}, "tool_calls")["output"]

    assert [item["type"] for item in items] == ["reasoning", "message", "function_call"]
    assert items[0]["summary"] == [{"type": "summary_text", "text": "hm"}]
    assert "encrypted_content" not in items[0]


def test_a_refusal_is_a_part_of_its_own():
    assert answer({"content": None, "refusal": "No."})["output"][0]["content"] == [{"type": "refusal", "refusal": "No."}]


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")])
def test_an_answer_that_was_cut_short_is_incomplete(finish: str, reason: str):
    out = answer({"content": "Hel"}, finish)

    assert (out["status"], out["incomplete_details"], out["output"][0]["status"]) == ("incomplete", {"reason": reason}, "incomplete")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"input":"*** Begin\\n"}', "*** Begin\n"),
        ('{"patch":"*** Begin\\n"}', "*** Begin\n"),
        ("*** Begin\n", "*** Begin\n"),
        ('"*** Begin\\n"', "*** Begin\n"),
        ('{"input":"a","more":1}', "a"),
        ('{"input":{"a":1}}', '{"input":{"a":1}}'),
        ("[1]", "[1]"),
        ("{}", ""),
        (None, ""),
    ],
)
def test_a_free_text_tool_is_called_with_its_text(arguments: str | None, text: str):
    call = {"id": "c1", "type": "function", "function": {"name": "apply_patch", "arguments": arguments}}

    item = answer({"content": None, "tool_calls": [call]}, "tool_calls", tools=[PATCH])["output"][0]

    assert (item["type"], item["call_id"], item["name"], item["input"]) == ("custom_tool_call", "c1", "apply_patch", text)


def test_a_custom_call_of_chat_is_one_here():
    call = {"id": "c1", "type": "custom", "custom": {"name": "x", "input": "***"}}

    assert bare(answer({"content": None, "tool_calls": [call]}, "tool_calls")["output"]) == [
        {"type": "custom_tool_call", "call_id": "c1", "name": "x", "input": "***", "status": "completed"}
    ]


def test_sources_and_chances_are_kept():
    note = {"type": "url_citation", "url_citation": {"url": "https://example.com", "title": "t", "start_index": 0, "end_index": 2}}
    chances = {"content": [{"token": "Hi", "logprob": -0.1, "bytes": [72, 105], "top_logprobs": []}]}
    body = completion({"content": "Hi", "annotations": [note]})
    body["choices"][0]["logprobs"] = chances

    part = valid(responses.answer_from_chat(body, {"model": "m"}))["output"][0]["content"][0]

    assert part["annotations"] == [{"type": "url_citation", "url": "https://example.com", "title": "t", "start_index": 0, "end_index": 2}]
    assert part["logprobs"] == chances["content"]


def test_counts_that_nobody_told_are_not_made_up():
    body = completion({"content": "Hi"})
    del body["usage"]

    assert valid(responses.answer_from_chat(body, {"model": "m"}))["usage"] is None


def test_ids_are_never_the_providers_because_some_repeat_theirs():
    one, two = (answer({"content": "Hi", "tool_calls": [CALL]}) for _ in range(2))

    assert {one["id"], *(item["id"] for item in one["output"])}.isdisjoint({two["id"], *(item["id"] for item in two["output"])})


def test_settings_that_are_no_settings_do_not_break_the_answer():
    answer({"content": "Hi"}, tools=None, tool_choice=None, text=None, reasoning=None, metadata=None, parallel_tool_calls=None)


# --- signed reasoning of others


def test_anthropics_signed_blocks_survive_a_client_that_keeps_only_encrypted_content():
    out = answer({"content": None, "reasoning_content": "hm", "thinking_blocks": BLOCKS, "tool_calls": [CALL]}, "tool_calls")
    replayed = [{key: value for key, value in item.items() if key not in ("status", "id")} for item in out["output"]]

    turn = inbound(user(), *replayed, {"type": "function_call_output", "call_id": "call_2", "output": "r"})["messages"][1]

    assert turn["thinking_blocks"] == BLOCKS
    assert turn["reasoning_content"] == "hm"
    assert turn["tool_calls"] == [CALL]


def test_geminis_signature_returns_to_its_call():
    signature = {"google": {"thought_signature": "sig"}}
    out = answer({"content": None, "tool_calls": [{**CALL, "extra_content": signature}]}, "tool_calls")

    assert [item["type"] for item in out["output"]] == ["reasoning", "function_call"]
    assert inbound(user(), *out["output"])["messages"][1]["tool_calls"] == [{**CALL, "extra_content": signature}]


def test_openrouters_details_return_in_order():
    details = [
        {"type": "reasoning.text", "text": "hm", "signature": "s", "format": "anthropic-claude-v1", "index": 0},
        {"type": "reasoning.encrypted", "data": "d", "format": "anthropic-claude-v1", "index": 1},
    ]

    out = answer({"content": "Hi", "reasoning_content": "hm", "reasoning_details": details})

    assert inbound(user(), *out["output"], user())["messages"][1]["reasoning_details"] == details


def test_plain_reasoning_needs_no_seal():
    out = answer({"content": "Hi", "reasoning_content": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm"}]})

    assert "encrypted_content" not in out["output"][0]


@pytest.mark.parametrize("broken", ["thinkgate.1.", "thinkgate.1.%%%", "thinkgate.1.AAAA", "thinkgate.1.W10="])
def test_a_broken_seal_holds_nothing(broken: str):
    assert unseal(broken) == {}
    assert inbound(user(), {"type": "reasoning", "summary": [], "encrypted_content": broken})["messages"] == [user()]


def test_only_the_gateways_own_seal_is_opened():
    assert unseal("gAAAAB") is None
    assert unseal(seal({"thinking_blocks": BLOCKS})) == {"thinking_blocks": BLOCKS}


# --- Responses -> chat


def test_a_response_becomes_a_completion():
    out = valid_chat(responses.answer_to_chat(response(said("Hello"))))

    assert out["id"] == "chatcmpl-resp_1"
    assert out["created"] == 7
    assert out["choices"] == [{"index": 0, "message": {"role": "assistant", "content": "Hello", "refusal": None}, "logprobs": None, "finish_reason": "stop"}]
    assert out["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }


def test_encrypted_reasoning_survives_the_way_through_a_chat_client():
    reasoning = [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "A"}, {"type": "summary_text", "text": "B"}],
            "encrypted_content": "g1",
        },
        {"type": "reasoning", "id": "rs_2", "summary": [], "content": [{"type": "reasoning_text", "text": "C"}], "encrypted_content": "g2"},
    ]
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "w", "arguments": "{}", "status": "completed"}

    message = valid_chat(responses.answer_to_chat(response(*reasoning, call)))["choices"][0]["message"]

    assert message["reasoning_content"] == "A\n\nB\n\nC"
    assert outbound(user(), message, {"role": "tool", "tool_call_id": "call_1", "content": "r"})["input"][1:3] == reasoning


def test_calls_come_with_their_call_id_and_finish_reason():
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "w", "arguments": "", "status": "completed"}
    custom = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "p", "input": "***"}

    choice = valid_chat(responses.answer_to_chat(response(call, custom)))["choices"][0]

    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"] == [
        {"id": "call_1", "type": "function", "function": {"name": "w", "arguments": "{}"}},
        {"id": "c2", "type": "custom", "custom": {"name": "p", "input": "***"}},
    ]


@pytest.mark.parametrize(
    ("fields", "finish"),
    [
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        ({"status": "incomplete", "incomplete_details": None}, "length"),
        ({"status": "cancelled"}, None),
        ({"status": None}, "stop"),
    ],
)
def test_how_it_ended_is_kept(fields: Json, finish: str | None):
    assert responses.answer_to_chat(response(said("Hel"), **fields))["choices"][0]["finish_reason"] == finish


def test_what_the_provider_ran_itself_is_no_call_of_the_client():
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}
    note = {"type": "url_citation", "url": "https://example.com", "title": "t", "start_index": 0, "end_index": 2}

    message = valid_chat(responses.answer_to_chat(response(search, said("Hi", annotations=[note]))))["choices"][0]["message"]

    assert "tool_calls" not in message
    assert message["annotations"] == [{"type": "url_citation", "url_citation": {"url": "https://example.com", "title": "t", "start_index": 0, "end_index": 2}}]


# --- native answers and errors


@pytest.mark.parametrize(
    ("output", "content"),
    [
        ([], False),
        (None, False),
        ([said("")], False),
        ([said("x")], True),
        ([{"type": "reasoning", "summary": []}], False),
        ([{"type": "reasoning", "summary": [], "encrypted_content": "g"}], True),
        ([{"type": "function_call", "name": "f"}], True),
        ([{"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}], True),
    ],
)
def test_whether_a_native_answer_has_content(output: Any, content: bool):
    assert responses.native_content({"output": output}) is content


def test_what_a_native_answer_lacks_is_filled_in():
    whole = valid(responses.heal_answer({"id": "resp_1", "model": "m", "status": "completed", "output": None, "x": 1}, {"tools": [TOOL], "temperature": 1.0}))

    assert (whole["id"], whole["output"], whole["tools"], whole["temperature"], whole["x"]) == ("resp_1", [], [TOOL], 1.0, 1)


def test_the_counts_that_sdks_require_are_filled_in():
    usage = {"input_tokens": 36, "output_tokens": 15, "total_tokens": 51, "input_tokens_details": {"cached_tokens": 35}, "extra": 1}

    whole = valid(responses.heal_answer({"id": "r", "model": "m", "output": [], "usage": usage}, {}))

    assert whole["usage"] == {
        **usage,
        "input_tokens_details": {"cached_tokens": 35, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }


def test_errors_are_openais():
    error = {"message": "no", "type": "t", "param": None, "code": "c"}

    assert responses.error_body(error, 502, "r") == {"error": error}


def test_big_integers_stay_exact():
    call = {"id": "c", "type": "custom", "custom": {"name": "x", "input": "1"}, "extra_content": {"n": 2**70}}

    items = answer({"content": None, "tool_calls": [call]})["output"]

    assert unseal(items[0]["encrypted_content"]) == {"extra_content": {"c": {"n": 2**70}}}
    json.dumps(items)
