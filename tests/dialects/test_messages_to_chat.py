"""Messages request -> chat request, from what real clients send too."""

from __future__ import annotations

import json
from typing import Any

import pytest
from messages_samples import CAPTURES, PIXEL, SIGNED, USER, inbound, valid

from gateway.dialects import messages
from gateway.errors import InvalidRequest, Skipped


def test_system_may_be_a_string_a_list_or_a_message_in_the_middle():
    listed = inbound(
        USER,
        {"role": "system", "content": "late"},
        system=[{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}],
    )

    assert inbound(USER, system="s")["messages"][0] == {"role": "system", "content": "s"}
    assert listed["messages"] == [{"role": "system", "content": "a\n\nb"}, USER, {"role": "system", "content": "late"}]


def test_cache_marks_are_kept_only_where_the_host_knows_them():
    mark = {"type": "ephemeral"}
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": mark}]}],
        "tools": [{"name": "t", "input_schema": {}, "cache_control": mark}],
    }

    kept, plain = messages.request_to_chat(body, keep_cache=True), messages.request_to_chat(body)

    assert kept["messages"][0]["content"] == [{"type": "text", "text": "a", "cache_control": mark}]
    assert kept["tools"][0]["cache_control"] == mark
    assert "cache_control" not in json.dumps(plain)


def test_tools_become_functions_and_server_tools_are_named_as_dropped():
    body = {
        "model": "m",
        "messages": [],
        "tools": [
            {"name": "f", "description": "d", "input_schema": {"type": "object"}, "strict": False},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
    }

    assert messages.request_to_chat(body)["tools"] == [
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": False}}
    ]
    assert messages.dropped_tools(body) == ["web_search_20250305"]


@pytest.mark.parametrize(
    ("choice", "expected", "parallel"),
    [
        ({"type": "auto"}, "auto", None),
        ({"type": "any", "disable_parallel_tool_use": True}, "required", False),
        ({"type": "none"}, "none", None),
        ({"type": "tool", "name": "f"}, {"type": "function", "function": {"name": "f"}}, None),
        ({"type": "tool", "name": "gone"}, None, None),
        (None, None, None),
    ],
)
def test_inbound_tool_choice(choice, expected, parallel):
    body = inbound(USER, tools=[{"name": "f", "input_schema": {}}], tool_choice=choice)

    assert body.get("tool_choice") == expected
    assert body.get("parallel_tool_calls") is parallel


def test_only_server_tools_leave_neither_tools_nor_a_choice():
    body = inbound(USER, tools=[{"type": "bash_20250124", "name": "bash"}], tool_choice={"type": "any"})

    assert not {"tools", "tool_choice"} & body.keys()


def test_tool_results_become_tool_messages_before_the_text():
    blocks = [
        {"type": "tool_result", "tool_use_id": "t1", "content": "one"},
        {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "two"}], "is_error": True},
        {"type": "tool_result", "tool_use_id": "t3"},
        {"type": "text", "text": "go on"},
    ]

    assert inbound({"role": "user", "content": blocks})["messages"] == [
        {"role": "tool", "tool_call_id": "t1", "content": "one"},
        {"role": "tool", "tool_call_id": "t2", "content": "Error: two"},
        {"role": "tool", "tool_call_id": "t3", "content": ""},
        {"role": "user", "content": "go on"},
    ]


def test_images_of_a_tool_result_follow_in_a_user_message():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}

    history = inbound({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [image]}]})["messages"]

    assert history[0]["content"] == "[the result follows in the next message]"
    assert history[1]["content"] == [
        {"type": "text", "text": "[result of tool call t1]"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
    ]


def test_images_and_documents_become_parts():
    blocks = [
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "document", "title": "a.pdf", "source": {"type": "base64", "media_type": "application/pdf", "data": PIXEL}},
        {"type": "document", "title": "t", "source": {"type": "text", "media_type": "text/plain", "data": "hello"}},
        {"type": "document", "title": "u", "source": {"type": "url", "url": "https://example.com/u.pdf"}},
        {"type": "search_result", "title": "T", "source": "https://s", "content": [{"type": "text", "text": "found"}]},
    ]

    assert inbound({"role": "user", "content": blocks})["messages"][0]["content"] == [
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PIXEL}"}},
        {"type": "text", "text": "t\nhello"},
        {"type": "text", "text": "u: https://example.com/u.pdf"},
        {"type": "text", "text": "T (https://s)\nfound"},
    ]


@pytest.mark.parametrize("block", [{"type": "image", "source": {"type": "file", "file_id": "file_1"}}, {"type": "container_upload", "file_id": "file_1"}])
def test_a_file_that_only_anthropic_has_leaves_the_provider_out(block):
    with pytest.raises(Skipped):
        inbound({"role": "user", "content": [block]})


def test_thinking_travels_as_text_and_as_the_signed_block():
    unsigned = {"type": "thinking", "thinking": "plain", "signature": ""}
    blocks = [SIGNED, unsigned, {"type": "text", "text": "so"}, {"type": "tool_use", "id": "t", "name": "f", "input": {"q": "x"}}]

    assert inbound({"role": "assistant", "content": blocks})["messages"][0] == {
        "role": "assistant",
        "content": "so",
        "reasoning_content": SIGNED["thinking"] + "plain",
        "thinking_blocks": [SIGNED],
        "tool_calls": [{"id": "t", "type": "function", "function": {"name": "f", "arguments": '{"q":"x"}'}}],
    }


def test_the_wish_stays_and_the_output_format_becomes_the_response_format():
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
    body = inbound(USER, thinking={"type": "adaptive"}, output_config={"effort": "high", "format": {"type": "json_schema", "schema": schema}})

    assert body["thinking"] == {"type": "adaptive"}
    assert body["output_config"] == {"effort": "high"}
    assert body["response_format"] == {"type": "json_schema", "json_schema": {"name": "response", "schema": schema, "strict": True}}
    assert "output_config" not in inbound(USER, output_config={"format": {"type": "json_schema", "schema": schema}})


CLOSED = {"type": "object", "properties": {"a": {"enum": ["x"]}}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (CLOSED, True),
        ({**CLOSED, "properties": {"a": CLOSED}}, True),
        ({**CLOSED, "required": []}, False),
        ({**CLOSED, "additionalProperties": True}, False),
        ({**CLOSED, "properties": {"a": {"anyOf": [{"type": "object"}]}}}, False),
    ],
)
def test_only_a_schema_that_openai_takes_is_strict(schema, strict):
    body = inbound(USER, tools=[{"name": "f", "input_schema": schema, "strict": True}], output_config={"format": {"type": "json_schema", "schema": schema}})

    assert body["tools"][0]["function"]["strict"] is strict
    assert body["response_format"]["json_schema"]["strict"] is strict


def test_a_long_user_id_is_shortened_to_what_openai_takes():
    long = json.dumps({"device_id": "0" * 64, "session_id": "1" * 36})

    assert inbound(USER, metadata={"user_id": "u1"})["user"] == "u1"
    assert len(inbound(USER, metadata={"user_id": long})["user"]) == 64
    assert inbound(USER, metadata={"user_id": long})["user"] == inbound(USER, metadata={"user_id": long})["user"]


def test_a_stream_asks_for_usage():
    assert inbound(USER, stream=True)["stream_options"] == {"include_usage": True}
    assert "stream_options" not in inbound(USER, stream=False)


@pytest.mark.parametrize("bad", [{}, {"messages": "hi"}, {"messages": ["hi"]}])
def test_messages_must_be_a_list_of_objects(bad):
    with pytest.raises(InvalidRequest) as caught:
        messages.request_to_chat({"model": "m", **bad})
    assert caught.value.param is not None
    assert caught.value.param.startswith("messages")


# --- what real clients send


CAPTURED = sorted(CAPTURES.glob("*/*v1_messages*.json"))


@pytest.mark.parametrize("path", CAPTURED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_captured_requests_lose_nothing_that_matters(path):
    body = json.loads(path.read_text())["body"]

    chat = messages.request_to_chat(body)

    flat = json.dumps(chat["messages"])
    for text in texts_of(body["messages"]) + texts_of([{"content": body.get("system") or []}]):
        assert json.dumps(text)[1:-1] in flat
    assert [tool["function"]["name"] for tool in chat.get("tools", [])] == [tool["name"] for tool in body.get("tools", [])]
    assert all(set(message) <= {"role", "content", "tool_calls", "tool_call_id", "reasoning_content", "thinking_blocks"} for message in chat["messages"])
    assert all(isinstance(message["content"], str) or message.get("tool_calls") for message in chat["messages"])
    valid(messages.request_from_chat(chat))


def texts_of(turns: list[dict[str, Any]]) -> list[str]:
    out = []
    for turn in turns:
        for block in [{"text": turn["content"]}] if isinstance(turn["content"], str) else turn["content"]:
            out += [block[key] for key in ("text", "thinking", "content", "id", "tool_use_id") if isinstance(block.get(key), str)]
    return out


def test_claude_codes_failed_tool_call_reaches_chat():
    body = json.loads((CAPTURES / "claude-code" / "03-POST-v1_messages-tool-pick-Read.json").read_text())["body"]

    chat = messages.request_to_chat(body)

    assert [message["role"] for message in chat["messages"]] == ["system", "user", "system", "assistant", "tool"]
    assert chat["messages"][-1]["content"].startswith("Error: File does not exist.")
    assert chat["thinking"] == {"type": "adaptive"}
    assert chat["output_config"] == {"effort": "high"}
    assert len(chat["tools"]) == 24
    assert len(chat["user"]) <= 64
    assert not {"context_management", "metadata", "system"} & chat.keys()
