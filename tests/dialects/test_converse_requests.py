"""Chat request -> Converse request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects import converse
from gateway.errors import Skipped

CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
USER = {"role": "user", "content": "weather in Paris?"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "w", "description": "the weather", "parameters": SCHEMA}}
SPEC = {"toolSpec": {"name": "w", "description": "the weather", "inputSchema": {"json": SCHEMA}}}
BARE = {"toolSpec": {"name": "w", "inputSchema": {"json": {"type": "object"}}}}
PIXEL = "data:image/png;base64,iVBORw0KGgo="
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "sig=="}
MARK = {"cache_control": {"type": "ephemeral"}}
POINT = {"cachePoint": {"type": "default"}}


def call(ident: str, arguments: str = '{"city":"Paris"}') -> dict[str, Any]:
    return {"id": ident, "type": "function", "function": {"name": "w", "arguments": arguments}}


def turn(*calls: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **fields}


def result(ident: str, content: Any = "20C") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": ident, "content": content}


def request(*messages: dict[str, Any], model: str = CLAUDE, **fields: Any) -> dict[str, Any]:
    return converse.request_from_chat({"model": model, "messages": list(messages), **fields})


def test_a_tool_round_trip_in_full():
    body = request({"role": "system", "content": "be brief"}, USER, turn(call("c1"), content="ok"), result("c1"), tools=[TOOL], max_tokens=50, stream=True)

    assert body == {
        "model": CLAUDE,
        "system": [{"text": "be brief"}],
        "messages": [
            {"role": "user", "content": [{"text": "weather in Paris?"}]},
            {"role": "assistant", "content": [{"text": "ok"}, {"toolUse": {"toolUseId": "c1", "name": "w", "input": {"city": "Paris"}}}]},
            {"role": "user", "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "20C"}]}}]},
        ],
        "inferenceConfig": {"maxTokens": 50},
        "toolConfig": {"tools": [SPEC]},
        "stream": True,
    }


@pytest.mark.parametrize("fields", [{}, {"tools": [TOOL], "tool_choice": "none"}])
def test_a_history_with_tools_has_a_tool_config_although_none_may_be_called(fields):
    tools = request(USER, turn(call("c1")), result("c1"), USER, **fields)["toolConfig"]

    assert tools == {"tools": [SPEC if fields else BARE]}


def test_tools_that_may_not_be_called_are_left_out_of_a_history_without_any():
    assert "toolConfig" not in request(USER, tools=[TOOL], tool_choice="none")


def test_signed_reasoning_goes_back_first_and_other_reasoning_not_at_all():
    redacted = {"type": "redacted_thinking", "data": "Eo8="}
    signed = turn(call("c1"), content="ok", thinking_blocks=[SIGNED, redacted], reasoning_content="hm")
    foreign = turn(call("c1"), reasoning_content="hm", thinking_blocks=[{**SIGNED, "provider": "deepseek"}])

    assert request(USER, signed, result("c1"))["messages"][1]["content"][:3] == [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig=="}}},
        {"reasoningContent": {"redactedContent": "Eo8="}},
        {"text": "ok"},
    ]
    assert [list(block) for block in request(USER, foreign, result("c1"))["messages"][1]["content"]] == [["toolUse"]]


def test_results_of_parallel_calls_share_the_next_turn_before_its_text():
    turns = request(USER, turn(call("a"), call("b")), result("b", ""), result("a", {"t": 20}), USER)["messages"]

    assert [one["role"] for one in turns] == ["user", "assistant", "user"]
    assert turns[2]["content"] == [
        {"toolResult": {"toolUseId": "b", "content": []}},
        {"toolResult": {"toolUseId": "a", "content": [{"text": '{"t":20}'}]}},
        {"text": "weather in Paris?"},
    ]


def test_blank_texts_are_left_out():
    body = request(
        {"role": "system", "content": " "},
        {"role": "user", "content": [{"type": "text", "text": "\n"}, {"type": "text", "text": "a"}]},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "b"},
    )

    assert "system" not in body
    assert body["messages"] == [{"role": "user", "content": [{"text": "a"}, {"text": "b"}]}]


def test_a_beginning_of_the_answer_has_no_white_space_at_its_end():
    assert request(USER, {"role": "assistant", "content": "It is \n"})["messages"][1]["content"] == [{"text": "It is"}]


def test_ids_that_are_not_allowed_become_others_in_call_and_result_alike():
    body = request(USER, turn(call("call 1!"), call("functions.w:0")), result("call 1!"), result("functions.w:0"))

    used = [block["toolUse"]["toolUseId"] for block in body["messages"][1]["content"]]
    assert used[1] == "functions.w:0"
    assert len(used[0]) == 64
    assert [block["toolResult"]["toolUseId"] for block in body["messages"][2]["content"]] == used


@pytest.mark.parametrize(
    ("choice", "named"),
    [
        ("auto", {"auto": {}}),
        ("required", {"any": {}}),
        ({"type": "function", "function": {"name": "w"}}, {"tool": {"name": "w"}}),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "w"}}]}}, {"any": {}}),
        ({"type": "function", "function": {"name": "gone"}}, None),
        (None, None),
    ],
)
def test_tool_choice(choice, named):
    other = {"type": "function", "function": {"name": "other"}}

    tools = request(USER, tools=[TOOL, other, {"type": "web_search"}], tool_choice=choice)["toolConfig"]

    assert tools.get("toolChoice") == named
    allowed = isinstance(choice, dict) and choice["type"] == "allowed_tools"
    assert [tool["toolSpec"]["name"] for tool in tools["tools"]] == (["w"] if allowed else ["w", "other"])


def test_parameters_become_the_inference_config():
    fields = {"max_tokens": 1, "max_completion_tokens": 2, "temperature": 1.7, "top_p": 0.5, "stop": ["x", " "], "top_k": 5, "seed": 7, "n": 2, "user": "u"}

    body = request(USER, **fields)

    assert body["inferenceConfig"] == {"maxTokens": 2, "temperature": 1, "topP": 0.5, "stopSequences": ["x"]}
    assert body["additionalModelRequestFields"] == {"top_k": 5}
    assert set(body) == {"model", "messages", "inferenceConfig", "additionalModelRequestFields"}
    assert "additionalModelRequestFields" not in request(USER, model="amazon.nova-lite-v1:0", **fields)


def test_converses_own_fields_pass():
    own = {"guardrailConfig": {"guardrailIdentifier": "g", "guardrailVersion": "1"}, "additionalModelRequestFields": {"top_k": 9}}

    body = request(USER, top_k=5, **own)

    assert {key: body[key] for key in own} == own


def test_a_json_schema_becomes_the_text_format():
    form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}

    wanted = {"type": "json_schema", "structure": {"jsonSchema": {"schema": json.dumps(SCHEMA, separators=(",", ":")), "name": "x"}}}
    assert request(USER, response_format=form)["outputConfig"] == {"textFormat": wanted}
    assert "outputConfig" not in request(USER, response_format={"type": "json_object"})


def test_cache_marks_become_cache_points_where_the_model_takes_them():
    history = [
        {"role": "system", "content": [{"type": "text", "text": "s", **MARK}]},
        {"role": "user", "content": [{"type": "text", "text": "u", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]},
        turn(call("c1")),
        {**result("c1", [{"type": "text", "text": "r", **MARK}])},
    ]
    tools = [{**TOOL, **MARK}]

    body = request(*history, tools=tools)
    assert body["system"] == [{"text": "s"}, POINT]
    assert body["messages"][0]["content"] == [{"text": "u"}, {"cachePoint": {"type": "default", "ttl": "1h"}}]
    assert body["messages"][2]["content"][1] == POINT
    assert body["toolConfig"]["tools"] == [SPEC, POINT]

    for other in (request(*history, tools=tools, model="meta.llama3"), request(*history, tools=tools, tool_choice="none", model="meta.llama3")):
        assert "cachePoint" not in json.dumps(other)
        assert "_mark" not in json.dumps(other)


def test_media_of_every_kind():
    pdf = {"type": "file", "file": {"filename": "my  report_v1.pdf", "file_data": "data:application/pdf;base64,AAAA"}}
    parts = [
        {"type": "image_url", "image_url": {"url": PIXEL}},
        {"type": "video_url", "video_url": {"url": "data:video/quicktime;base64,AAAA"}},
        pdf,
        pdf,
        {"type": "file", "file": {"filename": "a.txt", "file_data": "AAAA"}},
    ]

    assert request({"role": "user", "content": parts})["messages"][0]["content"] == [
        {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}},
        {"video": {"format": "mov", "source": {"bytes": "AAAA"}}},
        {"document": {"format": "pdf", "name": "my reportv1", "source": {"bytes": "AAAA"}}},
        {"document": {"format": "pdf", "name": "my reportv1 2", "source": {"bytes": "AAAA"}}},
        {"document": {"format": "txt", "name": "a", "source": {"bytes": "AAAA"}}},
    ]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "https://host.example/a.png"}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "file", "file": {"filename": "a.zip", "file_data": "data:application/zip;base64,AAAA"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    ],
)
def test_what_cannot_be_carried_leaves_the_provider_out(part):
    with pytest.raises(Skipped):
        request({"role": "user", "content": [part]})


def test_legacy_functions_leave_the_provider_out():
    with pytest.raises(Skipped):
        request(USER, functions=[{"name": "f"}])


CONTENT = st.none() | st.text(max_size=6)
MESSAGES = st.lists(
    st.one_of(
        st.builds(lambda text: {"role": "user", "content": text}, CONTENT),
        st.builds(lambda text: {"role": "system", "content": text}, CONTENT),
        st.builds(lambda text, ids: turn(*(call(i) for i in ids), content=text), CONTENT, st.lists(st.sampled_from("abcd"), max_size=3, unique=True)),
        st.builds(result, st.sampled_from("abcd"), CONTENT),
    ),
    max_size=8,
)


@given(MESSAGES)
def test_any_history_alternates_from_the_user_on_without_blank_text(messages):
    before = json.dumps(messages)

    body = request(*messages)

    assert [one["role"] for one in body["messages"]] == [("user", "assistant")[at % 2] for at in range(len(body["messages"]))]
    blocks = [block for one in body["messages"] for block in one["content"]]
    assert all(one["content"] for one in body["messages"])
    assert all(block["text"].strip() for block in blocks if "text" in block)
    assert ("toolConfig" in body) == any("toolUse" in block or "toolResult" in block for block in blocks)
    assert json.dumps(messages) == before
