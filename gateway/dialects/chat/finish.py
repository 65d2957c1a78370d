"""Finish reasons: many providers' words, five of them legal in a chat completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_WORDS: Mapping[str, str] = {
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "tool_calls": "tool_calls",
    "tool_call": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
    "sensitive": "content_filter",
    "refusal": "content_filter",
    "safety": "content_filter",
    "recitation": "content_filter",
    "blocklist": "content_filter",
    "prohibited_content": "content_filter",
    "spii": "content_filter",
    "image_safety": "content_filter",
    "": "",
    "null": "",
    "none": "",
}


def finish_reason(value: Any, *, called: bool, legacy: bool = False) -> str | None:
    """The legal finish reason for a provider's; None: the answer goes on.

    `called`: tool calls came, `legacy`: a `function_call` came. They decide where a provider
    says `stop` although it called, or the other way round. Unknown words are `stop`.
    """
    if not isinstance(value, str):
        return None
    word = _WORDS.get(value.strip().lower(), "stop")
    if word in ("stop", "tool_calls"):
        return "tool_calls" if called else "function_call" if legacy else "stop"
    return word or None
