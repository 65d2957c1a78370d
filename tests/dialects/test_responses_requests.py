"""Responses requests from and to chat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import TypeAdapter
from responses_samples import PATCH, TOOL, Json, inbound, outbound, user

from gateway.dialects import responses
from gateway.errors import InvalidRequest, Skipped

CAPTURES = sorted((Path(__file__).parent.parent / "captures").glob("*/*v1_responses*.json"))
CALL = {"type": "function_call", "id": "fc_99", "call_id": "call_1", "name": "w", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "r"}
CHAT_TOOL = {"type": "function", "function": {"name": "w", "parameters": TOOL["parameters"]}}
CHAT_CALL = {"id": "call_1", "type": "function", "function": {"name": "w", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "r"}


def valid_chat_request(body: Json) -> Json:
    TypeAdapter(CompletionCreateParamsNonStreaming).validate_python({**json.loads(json.dumps(body)), "stream": False})
    return body


def valid_own_request(body: Json) -> Json:
    TypeAdapter(ResponseCreateParamsNonStreaming).validate_python({**json.loads(json.dumps(body)), "stream": False})
    return body


# --- Responses -> chat


def test_reasoning_joins_the_message_of_the_call_that_followed_it():
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "I should look"}]}

    assert inbound(user(), reasoning, CALL, OUTPUT, tools=[TOOL])["messages"] == [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL], "reasoning_content": "I should look"},
        RESULT,
    ]


def test_the_call_id_pairs_call_and_output_and_the_item_id_does_not():
    messages = inbound(user(), CALL, OUTPUT)["messages"]

    assert messages[1]["tool_calls"][0]["id"] == "call_1"
    assert messages[2]["tool_call_id"] == "call_1"


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: f"{path.parent.name}-{path.stem[:2]}")
def test_what_clients_send_translates(capture: Path):
    body = json.loads(capture.read_text())["body"]
    given = body["input"] if isinstance(body["input"], list) else [{"role": "user", "content": body["input"]}]
    references = {
        item["id"]: {"type": "reasoning", "id": item["id"], "summary": [{"type": "summary_text", "text": "hm"}]}
        for item in given
        if item.get("type") == "item_reference"
    }
    body = {**body, "input": [references.get(item.get("id"), item) for item in given]}

    chat = valid_chat_request(responses.request_to_chat(body))

    texts = [part["text"] for item in given if item.get("type", "message") == "message" for part in _parts(item["content"])]
    told = json.dumps([message.get("content") for message in chat["messages"]])
    assert all(json.dumps(text)[1:-1] in told for text in texts)
    functions = [tool["name"] for tool in body.get("tools", ()) if tool["type"] == "function"]
    assert [tool["function"]["name"] for tool in chat.get("tools", ())] == functions
    assert [call["id"] for message in chat["messages"] for call in message.get("tool_calls", ())] == [
        item["call_id"] for item in given if item.get("type") == "function_call"
    ]
    assert ("reasoning_content" in json.dumps(chat)) is bool(references)
    assert chat.get("tool_choice", "auto") == ({"type": "function", "function": {"name": "P"}} if "instructor" in str(capture) else "auto")


def _parts(content: Any) -> list[Json]:
    return [{"text": content}] if isinstance(content, str) else content


def test_codex_reaches_a_chat_provider_without_what_only_openai_runs():
    body = json.loads(next(path for path in CAPTURES if path.parent.name == "codex" and "pick" in path.name).read_text())["body"]

    chat = responses.request_to_chat(body)

    assert responses.dropped_tools(body) == ["namespace:multi_agent_v1", "web_search"]
    assert chat.keys() == {"model", "stream", "messages", "tools", "tool_choice", "parallel_tool_calls", "stream_options", "prompt_cache_key"}
    assert {tool["type"] for tool in chat["tools"]} == {"function"}
    assert [message["role"] for message in chat["messages"]] == ["developer", "developer", "user", "user", "assistant", "tool"]


def test_the_call_that_a_provider_ran_is_left_out_and_told():
    body = {"model": "m", "input": [user(), {"type": "web_search_call", "id": "ws_1", "status": "completed"}]}

    assert responses.request_to_chat(body)["messages"] == [user()]
    assert responses.dropped_tools(body) == ["web_search_call"]


def test_every_field_that_chat_has_a_word_for_is_carried():
    schema = {"type": "object", "properties": {}}
    chat = valid_chat_request(
        responses.request_to_chat(
            {
                "model": "m",
                "input": "hi",
                "instructions": "be nice",
                "max_output_tokens": 9,
                "text": {"format": {"type": "json_schema", "name": "P", "schema": schema, "strict": True}, "verbosity": "low"},
                "reasoning": {"effort": "high", "summary": "auto"},
                "tools": [TOOL],
                "tool_choice": {"type": "function", "name": "w"},
                "parallel_tool_calls": False,
                "metadata": {"session_id": "s"},
                "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
                "top_logprobs": 2,
                "store": False,
                "truncation": "auto",
                "temperature": 0.5,
                "user": "u",
                "stream": True,
                "top_k": 5,
            }
        )
    )

    assert chat == {
        "model": "m",
        "messages": [{"role": "system", "content": "be nice"}, {"role": "user", "content": "hi"}],
        "max_tokens": 9,
        "response_format": {"type": "json_schema", "json_schema": {"name": "P", "schema": schema, "strict": True}},
        "verbosity": "low",
        "reasoning_effort": "high",
        "tools": [CHAT_TOOL],
        "tool_choice": {"type": "function", "function": {"name": "w"}},
        "parallel_tool_calls": False,
        "metadata": {"session_id": "s"},
        "logprobs": True,
        "top_logprobs": 2,
        "temperature": 0.5,
        "user": "u",
        "stream": True,
        "stream_options": {"include_usage": True},
        "top_k": 5,
    }


def test_the_request_is_not_edited():
    body = {"model": "m", "input": [user(), CALL, OUTPUT], "tools": [TOOL, PATCH], "reasoning": {"effort": "low"}}
    before = json.dumps(body)

    responses.request_to_chat(body)

    assert json.dumps(body) == before


def test_a_free_text_tool_is_a_function_with_the_text_as_its_argument():
    call = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "apply_patch", "input": "*** Begin\n"}
    output = {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done"}

    chat = valid_chat_request(inbound(user(), call, output, tools=[PATCH], tool_choice={"type": "custom", "name": "apply_patch"}))

    function = chat["tools"][0]["function"]
    assert function["name"] == "apply_patch"
    assert function["parameters"]["required"] == ["input"]
    assert function["description"].startswith("Edits files.")
    assert "start: /.+/s" in function["description"]
    assert chat["tool_choice"] == {"type": "function", "function": {"name": "apply_patch"}}
    assert json.loads(chat["messages"][1]["tool_calls"][0]["function"]["arguments"]) == {"input": "*** Begin\n"}
    assert chat["messages"][2] == {"role": "tool", "tool_call_id": "c1", "content": "Done"}


def test_allowed_tools_are_the_only_ones_sent():
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "w"}]}

    chat = inbound(user(), tools=[{**TOOL, "name": "other"}, TOOL], tool_choice=choice)

    assert chat["tools"] == [CHAT_TOOL]
    assert chat["tool_choice"] == "required"


def test_without_a_tool_left_nothing_speaks_of_tools():
    chat = inbound(user(), tools=[{"type": "web_search"}], tool_choice="required", parallel_tool_calls=True)

    assert chat.keys() == {"model", "messages"}


def test_one_turn_of_the_assistant_is_one_message():
    first = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "A"}]}
    second = {"type": "reasoning", "id": "rs_2", "summary": [{"type": "summary_text", "text": "B"}]}
    said = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Looking.", "annotations": []}],
    }

    messages = inbound(user(), first, said, second, CALL, {**CALL, "call_id": "call_2"}, OUTPUT, {**OUTPUT, "call_id": "call_2"}, user("go on"))["messages"]

    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "user"]
    assert messages[1]["content"] == "Looking."
    assert messages[1]["reasoning_content"] == "A\n\nB"
    assert [call["id"] for call in messages[1]["tool_calls"]] == ["call_1", "call_2"]


def test_an_output_stands_after_its_call_wherever_the_client_put_it():
    messages = inbound(user(), CALL, user("meanwhile"), OUTPUT)["messages"]

    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "user"]


def test_pictures_of_an_output_follow_in_a_user_message_after_all_outputs():
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "high"}
    second = {**CALL, "call_id": "call_2"}

    messages = inbound(user(), CALL, second, {**OUTPUT, "output": [picture]}, {**OUTPUT, "call_id": "call_2"}, user("so?"))["messages"]

    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert messages[2]["content"] == "[the output follows in the next message]"
    assert messages[4]["content"] == [
        {"type": "text", "text": "[output of tool call call_1]"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "high"}},
    ]


def test_all_part_types_of_a_user_are_carried():
    parts = [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    ]

    assert valid_chat_request(inbound({"role": "user", "content": parts}))["messages"][0]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    ]


def test_a_refusal_of_the_past_stays_one():
    said = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}

    assert inbound(user(), said)["messages"][1] == {"role": "assistant", "content": "", "refusal": "No."}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"input": 3}, "input"),
        ({"input": ["text"]}, "input[0]"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"input": [{"type": "item_reference", "id": "rs_1"}]}, "input"),
        ({"input": [{"id": "rs_1"}]}, "input"),
        ({"input": "hi", "previous_response_id": "resp_1"}, "previous_response_id"),
    ],
)
def test_a_request_that_cannot_be_understood_names_the_field(fields: Json, param: str):
    with pytest.raises(InvalidRequest) as failed:
        responses.request_to_chat({"model": "m", **fields})

    assert failed.value.param == param


@pytest.mark.parametrize(
    "fields",
    [
        {"input": "hi", "conversation": "conv_1"},
        {"prompt": {"id": "pmpt_1"}, "input": []},
        {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "file_1"}]}]},
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "https://example.com/a.pdf"}]}]},
        {"input": [{"type": "compaction", "encrypted_content": "x"}]},
        {"input": [{"role": "user", "content": [{"type": "hologram"}]}]},
    ],
)
def test_what_only_a_responses_provider_can_do_leaves_chat_providers_out(fields: Json):
    with pytest.raises(Skipped):
        responses.request_to_chat({"model": "m", **fields})


# --- chat -> Responses


def test_a_conversation_becomes_items_and_nothing_is_stored():
    body = valid_own_request(
        outbound(
            {"role": "system", "content": "be nice"},
            user(),
            {"role": "assistant", "content": "Looking.", "tool_calls": [CHAT_CALL], "reasoning_content": "unsigned"},
            RESULT,
            tools=[CHAT_TOOL],
            tool_choice={"type": "function", "function": {"name": "w"}},
            parallel_tool_calls=False,
            max_tokens=5,
            reasoning_effort="low",
            verbosity="high",
            response_format={"type": "json_schema", "json_schema": {"name": "P", "schema": {}, "strict": True}},
            stop=["x"],
            n=1,
            seed=3,
            stream=True,
            stream_options={"include_usage": True},
            metadata={"a": "b"},
        )
    )

    assert body == {
        "model": "m",
        "input": [
            {"type": "message", "role": "system", "content": "be nice"},
            {"type": "message", "role": "user", "content": "q"},
            {"type": "message", "role": "assistant", "content": "Looking."},
            {"type": "function_call", "call_id": "call_1", "name": "w", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "r"},
        ],
        "tools": [{"type": "function", "name": "w", "strict": False, "parameters": TOOL["parameters"]}],
        "tool_choice": {"type": "function", "name": "w"},
        "parallel_tool_calls": False,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 16,
        "reasoning": {"effort": "low"},
        "text": {"format": {"type": "json_schema", "name": "P", "schema": {}, "strict": True}, "verbosity": "high"},
        "stream": True,
        "metadata": {"a": "b"},
    }


def test_encrypted_reasoning_goes_back_before_what_it_led_to():
    details = [
        {"type": "reasoning.summary", "summary": "hm", "id": "rs_1", "format": "openai-responses-v1", "index": 0},
        {"type": "reasoning.encrypted", "data": "gAAA", "id": "rs_1", "format": "openai-responses-v1", "index": 1},
    ]
    turn = {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL], "reasoning_content": "hm", "reasoning_details": details}

    items = outbound(user(), turn, RESULT)["input"]

    assert items[1] == {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "gAAA"}
    assert items[2]["type"] == "function_call"


@pytest.mark.parametrize(
    "detail",
    [
        {"type": "reasoning.encrypted", "data": "x", "format": "google-gemini-v1", "id": "rs_1"},
        {"type": "reasoning.encrypted", "data": "x", "id": "rs_1"},
        {"type": "reasoning.text", "text": "hm", "signature": "s", "format": "anthropic-claude-v1"},
        {"type": "reasoning.summary", "summary": "hm", "format": "openai-responses-v1", "id": "rs_1"},
    ],
)
def test_reasoning_that_openai_did_not_encrypt_is_dropped(detail: Json):
    turn = {"role": "assistant", "content": "a", "reasoning_details": [detail], "thinking_blocks": [{"type": "thinking", "thinking": "t", "signature": "s"}]}

    assert [item["type"] for item in outbound(user(), turn, user())["input"]] == ["message"] * 3


def test_encrypted_reasoning_that_led_to_nothing_is_dropped():
    details = [{"type": "reasoning.encrypted", "data": "gAAA", "id": "rs_1", "format": "openai-responses-v1"}]

    assert [item["role"] for item in outbound(user(), {"role": "assistant", "content": None, "reasoning_details": details}, user())["input"]] == [
        "user",
        "user",
    ]


def test_models_without_reasoning_are_not_asked_for_it():
    assert "include" not in outbound(user(), model="gpt-4o-mini")
    assert outbound(user(), model="gpt-5.6")["include"] == ["reasoning.encrypted_content"]


def test_custom_tools_of_chat_stay_custom():
    grammar = {"syntax": "lark", "definition": "start: /.+/s"}
    tool = {"type": "custom", "custom": {"name": "apply_patch", "description": "d", "format": {"type": "grammar", "grammar": grammar}}}
    call = {"id": "c1", "type": "custom", "custom": {"name": "apply_patch", "input": "***"}}

    body = valid_own_request(
        outbound(
            user(),
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "ok"},
            tools=[tool],
            tool_choice={"type": "custom", "custom": {"name": "apply_patch"}},
        )
    )

    assert body["tools"] == [{"type": "custom", "name": "apply_patch", "description": "d", "format": {"type": "grammar", **grammar}}]
    assert body["tool_choice"] == {"type": "custom", "name": "apply_patch"}
    assert body["input"][1:] == [
        {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "***"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"},
    ]


def test_allowed_tools_keep_the_list_that_the_cache_lives_on():
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "w"}}]}}

    body = valid_own_request(outbound(user(), tools=[CHAT_TOOL], tool_choice=choice))

    assert body["tool_choice"] == {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "w"}]}


def test_long_call_ids_are_shortened_alike_in_call_and_output():
    ident = "call_" + "x" * 80
    items = outbound(user(), {"role": "assistant", "content": None, "tool_calls": [{**CHAT_CALL, "id": ident}]}, {**RESULT, "tool_call_id": ident})["input"]

    assert items[1]["call_id"] == items[2]["call_id"]
    assert len(items[1]["call_id"]) <= 64


def test_pictures_and_files_are_carried():
    parts = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="}},
    ]

    assert valid_own_request(outbound({"role": "user", "content": parts}))["input"][0]["content"] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="},
    ]


@pytest.mark.parametrize(
    "fields",
    [{"functions": [{"name": "f"}]}, {"modalities": ["text", "audio"]}, {"messages": [{"role": "user", "content": [{"type": "video_url"}]}]}],
)
def test_what_responses_cannot_carry_leaves_the_provider_out(fields: Json):
    with pytest.raises(Skipped):
        responses.request_from_chat({"model": "m", "messages": [user()], **fields})


# --- there and back

TEXT = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=12).filter(lambda text: text.strip())
CALLS = st.lists(st.builds(lambda name, value: (name, json.dumps({"v": value})), st.sampled_from(["f", "g"]), TEXT), max_size=2)
TURN = st.one_of(
    st.builds(lambda text: {"role": "user", "content": text}, TEXT),
    st.builds(lambda text, calls: {"role": "assistant", "content": text, "calls": calls}, st.none() | TEXT, CALLS).filter(
        lambda turn: turn["content"] or turn["calls"]
    ),
)


@given(st.lists(TURN, min_size=1, max_size=6), st.booleans())
def test_a_chat_history_comes_back_as_it_was(turns: list[Json], signed: bool):
    history: list[Json] = [{"role": "system", "content": "s"}]
    for place, turn in enumerate(turns):
        if turn["role"] == history[-1]["role"] == "assistant":
            history.append(user())
        calls = [
            {"id": f"call_{place}_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for number, (name, arguments) in enumerate(turn.get("calls", ()))
        ]
        message = {key: value for key, value in turn.items() if key != "calls"}
        if calls:
            message["tool_calls"] = calls
        if signed and turn["role"] == "assistant":
            message["reasoning_content"] = "hm"
            message["reasoning_details"] = [
                {"type": "reasoning.summary", "summary": "hm", "id": f"rs_{place}", "format": "openai-responses-v1", "index": 0},
                {"type": "reasoning.encrypted", "data": "gAAA", "id": f"rs_{place}", "format": "openai-responses-v1", "index": 1},
            ]
        history.append(message)
        history += [{"role": "tool", "tool_call_id": call["id"], "content": "r"} for call in calls]

    back = responses.request_to_chat(responses.request_from_chat({"model": "m", "messages": history}))

    assert back["messages"] == history
