"""Requests through both translators, sensible and senseless ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from messages_samples import CALL, FUNCTION, PIXEL, SIGNED, outbound, valid

from gateway.dialects import messages
from gateway.errors import InvalidRequest, Skipped

words = st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(str.strip).map(lambda text: f"{text}.")
values = st.recursive(
    st.none() | st.booleans() | st.integers() | words, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2), max_leaves=4
)


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    history: list[dict[str, Any]] = [{"role": "system", "content": draw(words)}] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 3))):
        history.append({"role": "user", "content": draw(words)})
        calls = [
            {"id": f"call_{turn}_{n}", "type": "function", "function": {"name": "f", "arguments": draw(st.dictionaries(words, values, max_size=2))}}
            for n in range(draw(st.integers(0, 2)))
        ]
        assistant: dict[str, Any] = {"role": "assistant", "content": draw(words) if not calls or draw(st.booleans()) else None}
        if draw(st.booleans()):
            block = {"type": "thinking", "thinking": draw(words), "signature": draw(words)}
            assistant |= {"reasoning_content": block["thinking"], "thinking_blocks": [block]}
        if calls:
            assistant["tool_calls"] = [{**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}} for call in calls]
        history.append(assistant)
        history += [{"role": "tool", "tool_call_id": call["id"], "content": draw(words)} for call in calls]
    return [*history, {"role": "user", "content": draw(words)}]


def told(history: list[dict[str, Any]]) -> list[Any]:
    """What a conversation says, whatever the spelling of its arguments."""
    out: list[Any] = []
    for message in history:
        calls = [(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message.get("tool_calls", [])]
        out.append((message["role"], message["content"], message.get("reasoning_content"), message.get("thinking_blocks"), message.get("tool_call_id"), calls))
    return out


@settings(max_examples=150, deadline=None)
@given(conversations())
def test_a_conversation_means_the_same_after_there_and_back(history):
    body = valid(outbound(*history, tools=[FUNCTION]))

    assert told(messages.request_to_chat(body)["messages"]) == told(history)


# --- senseless requests

JUNK = (None, True, 0, -1, 1.5, "", "x", [], ["x"], [{}], [[]], {}, {"x": 1})
RICH_CHAT = {
    "model": "m",
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": [{"type": "text", "text": "u"}, {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]},
        {"role": "user", "content": [{"type": "file", "file": {"filename": "a", "file_data": "data:text/plain;base64,aGk="}}]},
        {"role": "assistant", "content": "a", "thinking_blocks": [SIGNED], "tool_calls": [CALL]},
        {
            "role": "assistant",
            "content": "a",
            "reasoning_details": [{"type": "reasoning.text", "text": "t", "signature": "s", "format": "anthropic-claude-v1"}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "20C"}]},
    ],
    "tools": [FUNCTION],
    "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "w"}}]}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
    "stop": ["END"],
    "temperature": 1,
    "max_tokens": 5,
    "user": "u",
    "output_config": {"effort": "low"},
    "extra_body": {"chat_template_kwargs": {"enable_thinking": False}},
}
RICH_MESSAGES = {
    "model": "m",
    "max_tokens": 5,
    "system": [{"type": "text", "text": "s"}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "u"}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}]},
        {"role": "user", "content": [{"type": "document", "title": "t", "source": {"type": "content", "content": [{"type": "text", "text": "d"}]}}]},
        {"role": "user", "content": [{"type": "search_result", "title": "t", "source": "s", "content": [{"type": "text", "text": "d"}]}]},
        {"role": "assistant", "content": [SIGNED, {"type": "text", "text": "a"}, {"type": "tool_use", "id": "t1", "name": "f", "input": {"q": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "r"}], "is_error": True}]},
    ],
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}],
    "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
    "stop_sequences": ["END"],
    "metadata": {"user_id": "u"},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {}}},
    "thinking": {"type": "adaptive"},
}


def paths(value: Any, before: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, item in inner for path in [(*before, key), *paths(item, (*before, key))]]


def with_junk(body: dict[str, Any], path: tuple[Any, ...], junk: Any) -> dict[str, Any]:
    out: dict[str, Any] = json.loads(json.dumps(body))
    inner: Any = out
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = junk
    return out


@pytest.mark.parametrize(("translate", "rich"), [(messages.request_from_chat, RICH_CHAT), (messages.request_to_chat, RICH_MESSAGES)])
def test_a_senseless_value_anywhere_is_translated_or_refused_in_our_own_words(translate, rich):
    done = 0
    for path in paths(rich):
        for junk in JUNK:
            try:
                json.dumps(translate(with_junk(rich, path, junk)))
            except (InvalidRequest, Skipped):
                continue
            except Exception as error:
                raise AssertionError(f"{path} = {junk!r}") from error
            done += 1
    assert done > 500
