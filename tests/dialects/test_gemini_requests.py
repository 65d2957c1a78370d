"""Chat request -> Gemini request."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects import gemini
from gateway.dialects.gemini.terms import STAND_IN, function_name
from gateway.dialects.messages.terms import original
from gateway.errors import Skipped

USER = {"role": "user", "content": "weather in Paris?"}
TOOL = {
    "type": "function",
    "function": {"name": "w", "description": "the weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def call(ident: str, arguments: str = '{"city":"Paris"}', signature: str | None = None, name: str = "w") -> dict[str, Any]:
    extra = {"extra_content": {"google": {"thought_signature": signature}}} if signature else {}
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}, **extra}


def turn(*calls: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **fields}


def result(ident: str, content: Any = "20C") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": ident, "content": content}


def request(*messages: dict[str, Any], model: str = "gemini-3-pro-preview", **fields: Any) -> dict[str, Any]:
    return gemini.request_from_chat({"model": model, "messages": list(messages), **fields})


def called(ident: str, **fields: Any) -> dict[str, Any]:
    return {"functionCall": {"id": ident, "name": "w", "args": {"city": "Paris"}}, **fields}


def answered(ident: str, response: dict[str, Any]) -> dict[str, Any]:
    return {"functionResponse": {"id": ident, "name": "w", "response": response}}


def test_a_tool_round_trip_in_full():
    body = request({"role": "system", "content": "be brief"}, USER, turn(call("c1", signature="sig")), result("c1", '{"t":20}'), tools=[TOOL], stream=True)

    assert body == {
        "model": "gemini-3-pro-preview",
        "systemInstruction": {"parts": [{"text": "be brief"}]},
        "contents": [
            {"role": "user", "parts": [{"text": "weather in Paris?"}]},
            {"role": "model", "parts": [called("c1", thoughtSignature="sig")]},
            {"role": "user", "parts": [answered("c1", {"t": 20})]},
        ],
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "w", "description": "the weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
                ]
            }
        ],
        "stream": True,
    }


def test_results_of_parallel_calls_share_a_content_in_the_order_of_the_calls():
    contents = request(USER, turn(call("a"), call("b")), result("b", "two"), result("a", "one"), USER)["contents"]

    assert contents[2:] == [
        {"role": "user", "parts": [answered("a", {"output": "one"}), answered("b", {"output": "two"})]},
        {"role": "user", "parts": [{"text": "weather in Paris?"}]},
    ]


def test_an_image_in_a_result_stands_behind_all_results():
    shown = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": PIXEL}}]

    parts = request(USER, turn(call("a"), call("b")), result("a", shown), result("b"))["contents"][2]["parts"]

    assert parts == [answered("a", {"output": "see"}), answered("b", {"output": "20C"}), {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}]


def test_a_lost_signature_is_stood_in_for_on_the_first_call_of_each_step_of_the_current_turn():
    early = [USER, turn(call("a")), result("a"), {"role": "assistant", "content": "20"}]
    now = [USER, turn(call("b"), call("c")), result("b"), result("c"), turn(call("d", signature="real")), result("d"), turn(call("e")), result("e")]

    contents = request(*early, *now)["contents"]

    signatures = [part.get("thoughtSignature") for content in contents for part in content["parts"] if "functionCall" in part]
    assert signatures == [None, STAND_IN, None, "real", STAND_IN]


@pytest.mark.parametrize("model", ["gemini-2.5-pro", "gemini-2.0-flash"])
def test_models_before_gemini_3_need_no_signature(model):
    assert request(USER, turn(call("a")), result("a"), model=model)["contents"][1]["parts"] == [called("a")]


def test_a_signature_of_a_text_goes_back_with_it():
    extra = {"extra_content": {"google": {"thought_signature": "sig"}}}

    with_text = request(USER, {"role": "assistant", "content": "hi", **extra}, USER)["contents"][1]
    without = request(USER, {"role": "assistant", "content": "", **extra}, USER)["contents"][1]

    assert with_text["parts"] == [{"text": "hi", "thoughtSignature": "sig"}]
    assert without["parts"] == [{"text": "", "thoughtSignature": "sig"}]


def test_reasoning_text_and_foreign_carriers_do_not_reach_gemini():
    carriers = {
        "reasoning_content": "hm",
        "thinking_blocks": [{"type": "thinking", "thinking": "hm", "signature": "anthropics"}],
        "reasoning_details": [{"type": "reasoning.encrypted", "data": "openais"}],
    }

    body = request(USER, {"role": "assistant", "content": "hi", **carriers}, USER)

    assert body["contents"][1] == {"role": "model", "parts": [{"text": "hi"}]}


@pytest.mark.parametrize(
    ("arguments", "args"),
    [
        ("", {}),
        ("{}", {}),
        ('{"n":123456789012345678901234567890}', {"n": 123456789012345678901234567890}),
        ("oops{", {"arguments": "oops{"}),
        ("[1]", {"arguments": [1]}),
    ],
)
def test_arguments_are_objects(arguments, args):
    assert request(USER, turn(call("a", arguments)), result("a"))["contents"][1]["parts"][0]["functionCall"]["args"] == args


@pytest.mark.parametrize(
    ("choice", "calling"),
    [
        ("auto", {"mode": "AUTO"}),
        ("none", {"mode": "NONE"}),
        ("required", {"mode": "ANY"}),
        ({"type": "function", "function": {"name": "w"}}, {"mode": "ANY", "allowedFunctionNames": ["w"]}),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "w"}}]}},
            {"mode": "ANY", "allowedFunctionNames": ["w"]},
        ),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "w"}}]}}, {"mode": "AUTO"}),
    ],
)
def test_tool_choice(choice, calling):
    assert request(USER, tools=[TOOL], tool_choice=choice)["toolConfig"] == {"functionCallingConfig": calling}


@pytest.mark.parametrize("choice", [None, {"type": "function", "function": {"name": "gone"}}, 7])
def test_a_tool_choice_that_says_nothing_is_left_out(choice):
    assert "toolConfig" not in request(USER, tools=[TOOL], tool_choice=choice)


def test_a_function_without_parameters_has_none():
    tools = [
        {"type": "function", "function": {"name": "a"}},
        {"type": "function", "function": {"name": "b", "parameters": {"type": "object", "properties": {}}}},
    ]

    assert request(USER, tools=tools)["tools"] == [{"functionDeclarations": [{"name": "a"}, {"name": "b"}]}]


def test_tools_of_other_vendors_are_dropped_and_googles_own_are_kept():
    body = request(USER, tools=[{"type": "web_search"}, {"google_search": {}}])

    assert body["tools"] == [{"google_search": {}}]
    assert "tools" not in request(USER, tools=[{"type": "web_search"}])


def test_parameters_become_the_generation_config():
    fields = {
        "temperature": 0.3,
        "top_p": 0.9,
        "top_k": 5,
        "seed": 7,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "max_tokens": 50,
        "max_completion_tokens": 60,
        "stop": ["a", "b", "c", "d", "e", "f"],
        "n": 2,
        "user": "u",
        "logit_bias": {"1": 2},
        "logprobs": True,
        "reasoning_effort": "low",
    }

    body = request(USER, **fields)

    assert body["generationConfig"] == {
        "temperature": 0.3,
        "topP": 0.9,
        "topK": 5,
        "seed": 7,
        "presencePenalty": 0.1,
        "frequencyPenalty": 0.2,
        "maxOutputTokens": 60,
        "stopSequences": ["a", "b", "c", "d", "e"],
        "candidateCount": 2,
    }
    assert set(body) == {"model", "contents", "generationConfig"}


def test_a_response_format_becomes_a_schema_of_the_subset():
    form = {
        "type": "json_schema",
        "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"a": {"const": "b"}}, "additionalProperties": False}},
    }

    assert request(USER, response_format=form)["generationConfig"] == {
        "responseMimeType": "application/json",
        "responseSchema": {"type": "object", "properties": {"a": {"type": "string", "enum": ["b"]}}},
    }
    assert request(USER, response_format={"type": "json_object"})["generationConfig"] == {"responseMimeType": "application/json"}
    assert "generationConfig" not in request(USER, response_format={"type": "text"})
    assert "generationConfig" not in request(USER, response_format=form, tools=[TOOL], model="gemini-2.5-flash")  # both at once are refused there


def test_googles_own_fields_pass_in_both_spellings():
    settings = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]

    body = request(USER, safety_settings=settings, extra_body={"google": {"cached_content": "cachedContents/1", "thinking_config": {"include_thoughts": True}}})

    assert body["safetySettings"] == settings
    assert body["cachedContent"] == "cachedContents/1"
    assert body["generationConfig"] == {"thinkingConfig": {"include_thoughts": True}}


def test_media_of_every_kind():
    parts = [
        {"type": "text", "text": "look"},
        {"type": "text", "text": ""},
        {"type": "image_url", "image_url": {"url": PIXEL}},
        {"type": "image_url", "image_url": "https://host.example/a.webp?x=1"},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}},
        {"type": "video_url", "video_url": {"url": "https://host.example/clip"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}},
        {"type": "file", "file": {"filename": "a.csv", "file_data": "AAAA"}},
    ]

    assert request({"role": "user", "content": parts})["contents"][0]["parts"] == [
        {"text": "look"},
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
        {"fileData": {"mimeType": "image/webp", "fileUri": "https://host.example/a.webp?x=1"}},
        {"inlineData": {"mimeType": "audio/mp3", "data": "AAAA"}},
        {"fileData": {"mimeType": "video/mp4", "fileUri": "https://host.example/clip"}},
        {"inlineData": {"mimeType": "application/pdf", "data": "AAAA"}},
        {"inlineData": {"mimeType": "text/csv", "data": "AAAA"}},
    ]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "image_url", "image_url": {}},
        {"type": "image_url", "image_url": {"url": "data:nonsense"}},
        {"type": "input_audio", "input_audio": {}},
        {"type": "hologram"},
    ],
)
def test_what_cannot_be_carried_leaves_the_provider_out(part):
    with pytest.raises(Skipped):
        request({"role": "user", "content": [part]})


def test_legacy_functions_leave_the_provider_out():
    with pytest.raises(Skipped):
        request(USER, functions=[{"name": "f"}])


def test_a_history_that_begins_with_the_assistant_gets_a_beginning():
    contents = request({"role": "assistant", "content": "hello"}, USER)["contents"]

    assert [content["role"] for content in contents] == ["user", "model", "user"]
    assert contents[0]["parts"][0]["text"]


def test_instructions_in_the_middle_keep_their_place():
    body = request(USER, {"role": "assistant", "content": "20"}, {"role": "developer", "content": "be brief"}, USER)

    assert "systemInstruction" not in body
    assert body["contents"][2] == {"role": "user", "parts": [{"text": "be brief"}, {"text": "weather in Paris?"}]}


@given(st.text(min_size=1, max_size=12))
def test_function_names_are_allowed_ones_and_come_back(name):
    spelled = function_name(name)

    assert all(c.isascii() and (c.isalnum() or c in "_-") for c in spelled)
    assert spelled[0].isalpha() or spelled[0] == "_"
    assert original(spelled) == name


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
def test_any_history_begins_with_the_user_and_no_content_is_empty(messages):
    before = json.dumps(messages)

    body = request(*messages)

    assert body["contents"][0]["role"] == "user"
    assert all(content["parts"] and content["role"] in ("user", "model") for content in body["contents"])
    said = json.dumps(body)
    assert all(json.dumps(m["content"])[1:-1] in said for m in messages if m["content"] and m["role"] != "tool")
    assert json.dumps(messages) == before
