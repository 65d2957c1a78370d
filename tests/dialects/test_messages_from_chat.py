"""Chat request -> Messages request."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages_samples import CALL, FUNCTION, PIXEL, RESULT, SIGNED, USER, outbound, valid

from gateway.dialects import messages
from gateway.dialects.messages.outbound import OPENING
from gateway.dialects.messages.terms import original, spell
from gateway.errors import Skipped


def test_unsigned_reasoning_does_not_reach_claude():
    assistant = {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "need the city"}

    body = valid(outbound(USER, assistant, RESULT, tools=[FUNCTION]))

    assert body["max_tokens"] == 4096
    assert body["messages"] == [
        {"role": "user", "content": "weather in Paris?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "w", "input": {"city": "Paris"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "20C"}]},
    ]
    assert "thinking" not in body


def test_signed_thinking_returns_unchanged_before_the_call():
    redacted = {"type": "redacted_thinking", "data": "Eo8=="}
    assistant = {"role": "assistant", "content": "ok", "tool_calls": [CALL], "thinking_blocks": [SIGNED, redacted]}

    body = outbound(USER, assistant, RESULT, tools=[FUNCTION])

    assert body["messages"][1]["content"][:2] == [SIGNED, redacted]
    assert [block["type"] for block in body["messages"][1]["content"]] == ["thinking", "redacted_thinking", "text", "tool_use"]


def test_the_streams_index_and_cache_marks_do_not_stick_to_a_thinking_block():
    carrier = {**SIGNED, "index": 1, "cache_control": {"type": "ephemeral"}}

    assert outbound(USER, {"role": "assistant", "content": "ok", "thinking_blocks": [carrier]}, USER)["messages"][1]["content"][0] == SIGNED


@pytest.mark.parametrize(
    "carrier",
    [
        {"thinking_blocks": [{**SIGNED, "signature": ""}]},
        {"thinking_blocks": [{"type": "thinking", "thinking": "x"}]},
        {"thinking_blocks": [{**SIGNED, "provider": "deepseek"}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "gAAA", "format": "openai-responses-v1"}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": "x", "signature": "s"}]},
        {"thinking_blocks": "no list"},
    ],
)
def test_foreign_or_unsigned_carriers_are_dropped(carrier):
    body = outbound(USER, {"role": "assistant", "content": "ok", **carrier}, USER)

    assert body["messages"][1] == {"role": "assistant", "content": "ok"}


def test_openrouters_form_of_a_signed_block_is_taken_back():
    details = [
        {"type": "reasoning.text", "text": "t", "signature": "s", "format": "anthropic-claude-v1", "index": 0},
        {"type": "reasoning.encrypted", "data": "d", "format": "anthropic-claude-v1", "index": 1},
    ]

    body = outbound(USER, {"role": "assistant", "content": "ok", "reasoning_details": details}, USER)

    assert body["messages"][1]["content"][:2] == [{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "redacted_thinking", "data": "d"}]


def test_parallel_results_stand_in_one_user_turn_before_its_text():
    calls = [{"id": name, "type": "function", "function": {"name": "f", "arguments": f'{{"q":"{n}"}}'}} for n, name in enumerate(["t1", "t2"], 1)]
    results = [{"role": "tool", "tool_call_id": name, "content": text} for name, text in [("t2", "two"), ("t1", "one")]]

    turns = outbound(
        {"role": "user", "content": "do"},
        {"role": "assistant", "content": "Let me", "tool_calls": calls},
        *results,
        {"role": "user", "content": "and continue"},
    )["messages"]

    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert [block["type"] for block in turns[1]["content"]] == ["text", "tool_use", "tool_use"]
    assert [block["input"] for block in turns[1]["content"][1:]] == [{"q": "1"}, {"q": "2"}]
    assert turns[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "t2", "content": "two"},
        {"type": "tool_result", "tool_use_id": "t1", "content": "one"},
        {"type": "text", "text": "and continue"},
    ]


def test_a_text_between_calls_and_results_moves_behind_the_results():
    note = {"role": "system", "content": "be brief"}

    turns = outbound(USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, note, RESULT)["messages"]

    assert [block["type"] for block in turns[2]["content"]] == ["tool_result", "text"]


def test_blank_texts_vanish_everywhere():
    empty = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{}"}}

    body = outbound(
        {"role": "system", "content": ""},
        {"role": "user", "content": [{"type": "text", "text": " \n"}, {"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": "", "tool_calls": [empty]},
        {"role": "tool", "tool_call_id": "t1", "content": ""},
        {"role": "user", "content": "go"},
    )

    assert "system" not in body
    assert body["messages"] == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1"}, {"type": "text", "text": "go"}]},
    ]


def test_a_late_system_message_keeps_its_place_as_the_users_text():
    before = [{"role": "system", "content": "base"}, {"role": "user", "content": "q1"}, {"role": "assistant", "content": "a1"}]
    reminder = {"role": "system", "content": "<reminder>be brief</reminder>"}

    with_it = outbound(*before, reminder, {"role": "user", "content": "q2"})
    without = outbound(*before, {"role": "user", "content": "q2"})

    assert with_it["system"] == "base"
    assert with_it["messages"][:2] == without["messages"][:2]
    assert with_it["messages"][2]["content"] == [{"type": "text", "text": "<reminder>be brief</reminder>"}, {"type": "text", "text": "q2"}]


def test_roles_alternate_from_user_on_and_no_text_is_lost():
    history = [("system", "s"), ("assistant", "welcome"), ("user", "a"), ("user", "b"), ("assistant", "x"), ("assistant", "y"), ("user", "c")]

    turns = outbound(*({"role": role, "content": text} for role, text in history))["messages"]

    assert [turn["role"] for turn in turns] == ["user", "assistant", "user", "assistant", "user"]
    assert turns[0]["content"] == OPENING
    texts = [block["text"] for turn in turns[1:] for block in (turn["content"] if isinstance(turn["content"], list) else [{"text": turn["content"]}])]
    assert texts == ["welcome", "a", "b", "x", "y", "c"]


def test_merged_assistant_turns_merge_their_thinking():
    first = {"role": "assistant", "content": "x", "thinking_blocks": [SIGNED]}
    second = {"role": "assistant", "content": "y", "thinking_blocks": [{**SIGNED, "signature": "two"}], "tool_calls": [CALL]}

    turn = outbound(USER, first, second, RESULT)["messages"][1]

    assert [block.get("signature") or block.get("text") or block["type"] for block in turn["content"]] == [SIGNED["signature"], "two", "x", "y", "tool_use"]


def test_a_prefill_does_not_end_in_white_space():
    assert outbound(USER, {"role": "assistant", "content": "The answer is \n"})["messages"][-1]["content"] == "The answer is"


def test_a_conversation_of_system_messages_gets_a_user_turn():
    assert outbound({"role": "system", "content": "s"})["messages"] == [{"role": "user", "content": OPENING}]


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ("", {}),
        (None, {}),
        ('{"a":1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ('{"path":"a"', {"arguments": '{"path":"a"'}),
        ("[1]", {"arguments": [1]}),
        ('{"big":123456789012345678901234567890}', {"big": 123456789012345678901234567890}),
    ],
)
def test_arguments_become_an_object(arguments, given):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}

    assert outbound(USER, {"role": "assistant", "tool_calls": [call]})["messages"][1]["content"][0]["input"] == given


def test_names_and_ids_are_spelled_in_the_allowed_characters_and_read_back():
    call = {"id": "functions.bash:0", "type": "function", "function": {"name": "mcp.bash", "arguments": "{}"}}
    tool = {"type": "function", "function": {"name": "mcp.bash"}}

    body = outbound(USER, {"role": "assistant", "tool_calls": [call]}, {**RESULT, "tool_call_id": "functions.bash:0"}, tools=[tool])

    used, result = body["messages"][1]["content"][0], body["messages"][2]["content"][0]
    assert used["id"] == result["tool_use_id"] == "functions_0x2e_bash_0x3a_0"
    assert used["name"] == body["tools"][0]["name"] == "mcp_0x2e_bash"
    answer = messages.answer_to_chat({"content": [{"type": "tool_use", "id": "t", "name": used["name"], "input": {}}], "stop_reason": "tool_use"})
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "mcp.bash"


@given(st.text(alphabet=st.one_of(st.sampled_from("_0x2e.:-a"), st.characters(exclude_categories=["Cs"]))))
def test_spelling_can_be_undone(name):
    assert original(spell(name)) == name
    assert spell(name).isascii()
    assert spell(name).replace("_", "").replace("-", "").isalnum() or not name.strip("_-")


@given(st.text(alphabet="abcxyz_-019", max_size=12).filter(lambda name: "_0x" not in name))
def test_allowed_names_stay(name):
    assert spell(name) == name


@pytest.mark.parametrize(
    ("choice", "parallel", "expected"),
    [
        (None, None, None),
        ("auto", None, {"type": "auto"}),
        ("required", None, {"type": "any"}),
        ("none", False, {"type": "none"}),
        ({"type": "function", "function": {"name": "w"}}, None, {"type": "tool", "name": "w"}),
        ({"type": "function", "function": {"name": "unknown"}}, None, None),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("required", False, {"type": "any", "disable_parallel_tool_use": True}),
        ("required", True, {"type": "any"}),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "w"}}]}}, None, {"type": "any"}),
    ],
)
def test_tool_choice(choice, parallel, expected):
    body = valid(outbound(USER, tools=[FUNCTION], tool_choice=choice, parallel_tool_calls=parallel))

    assert body.get("tool_choice") == expected


def test_tools_without_a_schema_get_an_empty_one_and_unknown_types_go():
    body = outbound(USER, tools=[{"type": "function", "function": {"name": "f", "strict": True}}, {"type": "web_search"}], tool_choice="auto")

    assert body["tools"] == [{"name": "f", "input_schema": {"type": "object", "properties": {}}}]


def test_without_tools_there_is_no_tool_choice():
    assert not {"tools", "tool_choice"} & outbound(USER, tools=[], tool_choice="auto", parallel_tool_calls=False).keys()


def test_sampling_fields_are_clamped_renamed_or_left_out():
    body = valid(
        outbound(
            USER,
            temperature=1.7,
            top_p=0.9,
            stop="END",
            n=2,
            seed=1,
            logit_bias={"1": 2},
            frequency_penalty=1,
            presence_penalty=1,
            user="u",
            max_tokens=7,
            x_unknown=1,
        )
    )

    assert body == {
        "model": "m",
        "max_tokens": 7,
        "messages": [USER],
        "top_p": 0.9,
        "temperature": 1,
        "stop_sequences": ["END"],
        "metadata": {"user_id": "u"},
    }


def test_max_completion_tokens_wins_and_null_is_no_limit():
    assert outbound(USER, max_completion_tokens=5, max_tokens=7)["max_tokens"] == 5
    assert outbound(USER, max_completion_tokens=None, max_tokens=None)["max_tokens"] == 4096


def test_white_space_is_no_stop_sequence():
    assert outbound(USER, stop=["\n", "END"])["stop_sequences"] == ["END"]
    assert "stop_sequences" not in outbound(USER, stop="\n")


def test_a_json_schema_becomes_the_output_format_beside_the_effort():
    schema = {"type": "object", "properties": {}}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}

    body = valid(outbound(USER, response_format=form, output_config={"effort": "low"}))

    assert body["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": schema}}


def test_json_mode_invents_no_instruction():
    assert outbound(USER, response_format={"type": "json_object"}) == outbound(USER)


def test_the_thinking_wish_stays_for_the_adapter():
    wish = {
        "thinking": {"type": "disabled"},
        "reasoning_effort": "low",
        "chat_template_kwargs": {"enable_thinking": False},
        "extra_body": {"enable_thinking": False},
    }

    body = outbound(USER, **wish, **{"enable_thinking": False})
    mixed = outbound(USER, chat_template_kwargs={"enable_thinking": False, "other": 1}, extra_body={"other": 1})

    assert {key: body[key] for key in wish} == wish
    assert mixed["chat_template_kwargs"] == {"enable_thinking": False}
    assert "extra_body" not in mixed


def test_images_and_documents_become_blocks():
    parts = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "high"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PIXEL}"}},
        {"type": "file", "file": {"file_data": f"data:text/plain;base64,{base64.b64encode(b'hello').decode()}"}},
    ]

    blocks = valid(outbound({"role": "user", "content": parts}))["messages"][0]["content"]

    assert [block["source"] for block in blocks] == [
        {"type": "base64", "media_type": "image/png", "data": PIXEL},
        {"type": "url", "url": "https://example.com/a.png"},
        {"type": "base64", "media_type": "application/pdf", "data": PIXEL},
        {"type": "text", "media_type": "text/plain", "data": "hello"},
    ]
    assert blocks[2]["title"] == "a.pdf"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "image_url", "image_url": {}},
        {"type": "image_url", "image_url": {"url": "data:broken"}},
        {"type": "file", "file": {"file_data": "data:text/plain;base64,x"}},
    ],
)
def test_what_claude_cannot_read_leaves_the_provider_out(part):
    with pytest.raises(Skipped):
        outbound({"role": "user", "content": [part]})


def test_cache_marks_of_parts_messages_and_tools_are_kept():
    mark = {"type": "ephemeral"}
    body = valid(
        outbound(
            {"role": "system", "content": [{"type": "text", "text": "s", "cache_control": mark}]},
            {"role": "user", "content": "u", "cache_control": mark},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "r", "cache_control": mark}]},
            tools=[{**FUNCTION, "cache_control": mark}],
        )
    )

    assert body["system"] == [{"type": "text", "text": "s", "cache_control": mark}]
    assert body["messages"][0]["content"] == [{"type": "text", "text": "u", "cache_control": mark}]
    assert body["messages"][2]["content"] == [{"type": "tool_result", "tool_use_id": "call_1", "content": "r", "cache_control": mark}]
    assert body["tools"][0]["cache_control"] == mark


def test_a_null_cache_mark_is_none():
    assert outbound({"role": "user", "content": "u", "cache_control": None})["messages"][0]["content"] == "u"


def test_the_request_is_not_changed():
    body = {
        "model": "m",
        "messages": [USER, {"role": "assistant", "content": "x ", "thinking_blocks": [SIGNED], "tool_calls": [CALL]}, RESULT],
        "tools": [FUNCTION],
    }
    before = json.dumps(body)

    messages.request_from_chat(body)

    assert json.dumps(body) == before


def test_a_refusal_stays_in_the_history():
    refusals = [{"role": "assistant", "content": None, "refusal": "no"}, {"role": "assistant", "content": [{"type": "refusal", "refusal": "never"}]}]

    assert outbound(USER, *refusals, USER)["messages"][1]["content"] == [{"type": "text", "text": "no"}, {"type": "text", "text": "never"}]


def test_blocks_in_claudes_own_form_pass():
    image = {"type": "image", "source": {"type": "file", "file_id": "file_1"}}

    assert outbound({"role": "user", "content": [image]})["messages"][0]["content"] == [image]


def test_legacy_functions_leave_the_provider_out():
    with pytest.raises(Skipped):
        outbound(USER, functions=[{"name": "f"}])
