"""Watching a Messages stream that goes through untranslated."""

from __future__ import annotations

import json
from typing import Any

import pytest
from messages_samples import START, delta, end, start

from gateway.dialects import messages
from gateway.errors import UpstreamError


def look(native: messages.Native, event: dict[str, Any], name: str | None = None) -> bool:
    return native.look(name, json.dumps(event).encode())


def test_native_sees_content_usage_and_the_end():
    native = messages.Native()

    assert not look(native, START)
    assert not look(native, {"type": "ping"})
    assert not look(native, start(0, type="text", text=""))
    assert not native.has_content
    assert look(native, delta(0, "text_delta", text="x"))
    assert native.has_content
    assert not native.done
    look(native, end())
    assert native.done
    assert native.usage == {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


@pytest.mark.parametrize(
    ("event", "content"),
    [
        (start(0, type="tool_use", id="t", name="f", input={}), True),
        (start(0, type="redacted_thinking", data="d"), True),
        (start(0, type="thinking", thinking="", signature=""), False),
        (delta(0, "thinking_delta", thinking="x"), True),
        (delta(0, "text_delta", text=""), False),
        (delta(0, "signature_delta", signature="s"), True),
        (end("refusal"), True),
        (end(), False),
    ],
)
def test_native_content_events(event, content):
    assert look(messages.Native(), event) is content


def test_native_knows_the_name_that_a_relay_left_out():
    native = messages.Native()
    look(native, delta(0, "text_delta", text="x"))
    assert native.name == "content_block_delta"

    look(native, delta(0, "text_delta", text="y"), "content_block_delta")
    assert native.name == "content_block_delta"

    native.look(None, b"[DONE]")
    assert native.name is None


def test_native_notices_an_error_after_content():
    native = messages.Native()
    look(native, delta(0, "text_delta", text="x"))

    with pytest.raises(UpstreamError):
        look(native, {"type": "error", "error": {"type": "api_error", "message": "boom"}}, "error")


def test_a_stream_without_a_beginning_gets_one():
    native = messages.Native({"model": "m"})
    block = start(0, type="text", text="")

    look(native, {"type": "ping"}, "ping")
    assert native.instead is None
    look(native, block, "content_block_start")
    assert native.instead is not None
    (name, made), second = native.instead
    assert (name, made["type"], second) == ("message_start", "message_start", ("content_block_start", block))
    assert made["message"]["id"].startswith("msg_")
    assert (made["message"]["model"], made["message"]["role"], made["message"]["content"]) == ("m", "assistant", [])
    assert look(native, delta(0, "text_delta", text="x"), "content_block_delta")
    assert native.instead is None
    look(native, START, "message_start")
    assert native.instead == [], "the SDKs would begin anew"
    look(native, end(), "message_delta")
    assert native.instead is None
    assert native.usage == {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def test_a_beginning_that_is_there_is_left_alone():
    native = messages.Native({"model": "m"})
    for event in (START, {"type": "ping"}, start(0, type="text", text=""), delta(0, "text_delta", text="x"), end()):
        look(native, event, event["type"])
        assert native.instead is None
