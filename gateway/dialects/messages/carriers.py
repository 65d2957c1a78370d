"""Signed thinking: Anthropic's own blocks as chat messages carry them.

The signature covers the text, so a block goes back exactly as it came or not at all. Chat
messages carry the blocks as `thinking_blocks`, OpenRouter's clients as `reasoning_details`,
and some put them into `content`. What is unsigned, or signed by somebody else, is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.chat import Json
from gateway.dialects.messages.terms import listed

# beside a block for the stream (index), the gateway's notes (provider, format), or refused on thinking blocks (cache_control)
_BESIDE = ("index", "provider", "format", "cache_control", "unsigned")


def signed_blocks(message: Mapping[str, Any]) -> list[Json]:
    """The thinking blocks of a chat message or delta that Anthropic signed, in order."""
    for blocks in (message.get("thinking_blocks"), message.get("content")):
        if isinstance(blocks, list) and (found := [_clean(block) for block in blocks if signed(block)]):
            return found
    return [block for detail in listed(message.get("reasoning_details")) if (block := _from_detail(detail))]


def carry_unsigned(messages: Iterable[Any]) -> None:
    """Make thinking blocks of reasoning that nobody signed, in place: for relays that want the text back all the same."""
    for message in messages:
        if isinstance(message, dict) and message.get("role") == "assistant" and not signed_blocks(message):
            text = message.get("reasoning_content")
            if isinstance(text, str) and text:
                message["thinking_blocks"] = [{"type": "thinking", "thinking": text, "signature": "", "unsigned": True}]


def signed(block: object) -> bool:
    """Whether this is a thinking block that Anthropic will take back."""
    if not isinstance(block, dict):
        return False
    if block.get("unsigned") is True:
        return True
    source = block.get("format") or block.get("provider")
    if isinstance(source, str) and not source.startswith("anthropic"):
        return False
    if block.get("type") == "redacted_thinking":
        return _text(block, "data")
    return block.get("type") == "thinking" and _text(block, "signature") and isinstance(block.get("thinking"), str)


def _text(block: Mapping[str, Any], key: str) -> bool:
    return isinstance(block.get(key), str) and bool(block[key])


def _clean(block: Json) -> Json:
    return {key: value for key, value in block.items() if key not in _BESIDE}


def _from_detail(detail: Json) -> Json | None:
    """A block in OpenRouter's form; without a format nobody knows who signed it."""
    if not str(detail.get("format") or "").startswith("anthropic"):
        return None
    if detail.get("type") == "reasoning.encrypted" and _text(detail, "data"):
        return {"type": "redacted_thinking", "data": detail["data"]}
    if detail.get("type") == "reasoning.text" and _text(detail, "signature"):
        return {"type": "thinking", "thinking": detail.get("text") or "", "signature": detail["signature"]}
    return None
