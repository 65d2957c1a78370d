"""What a message or delta carries: text, reasoning under any of its names, and whether that is content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.chat import Json

_TEXTS = ("content", "reasoning_content", "refusal", "reasoning", "reasoning_text", "thinking")
_OTHERS = ("tool_calls", "function_call", "audio", "images")


def has_content(message: Mapping[str, Any]) -> bool:
    """Whether a message or delta carries text, reasoning, a tool call, a refusal, audio or an image."""
    for name in _TEXTS:
        value = message.get(name)
        if value and (isinstance(value, str) or (name == "content" and any(_parts(value)))):
            return True
    return any(message.get(name) for name in _OTHERS) or bool(details_text(message))


def details_text(message: Mapping[str, Any]) -> str:
    """The readable text of `reasoning_details`: encrypted entries and signatures have none."""
    details = message.get("reasoning_details")
    if not isinstance(details, list):
        return ""
    texts = [item.get("text") or item.get("summary") for item in details if isinstance(item, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def alias_text(message: Mapping[str, Any]) -> str:
    """The reasoning under the first of its plain names that holds some, `reasoning_content` aside."""
    for name in ("reasoning", "reasoning_text"):
        value = message.get(name)
        if value and isinstance(value, str):
            return value
    return ""


def flatten(message: Json) -> bool:
    """Make a content array (Mistral) into a content string; its thinking becomes `reasoning_content`.

    True if there was one. Thinking that came under another name is not overwritten.
    """
    content = message.get("content")
    if not isinstance(content, list):
        return False
    text, thinking = _parts(content)
    message["content"] = text or None
    if thinking and not message.get("reasoning_content"):
        message["reasoning_content"] = thinking
    return True


def _parts(content: Any) -> tuple[str, str]:
    """Text and thinking of a list of content parts."""
    if not isinstance(content, list):
        return "", ""
    texts: list[str] = []
    thoughts: list[str] = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            if part.get("type") in ("thinking", "reasoning"):
                inner = part.get("thinking") or part.get("text") or part.get("reasoning")
                thoughts.append(inner if isinstance(inner, str) else _parts(inner)[0])
            elif isinstance(part.get("text"), str):
                texts.append(part["text"])
    return "".join(texts), "".join(thoughts)


class Details:
    """Reasoning text out of `reasoning_details` deltas, which are increments or everything so far.

    MiniMax documents the second and was measured doing the first (2026-03), so the second
    piece that comes decides, and the stream keeps to it.
    """

    __slots__ = ("_cumulative", "_text")

    def __init__(self) -> None:
        self._text = ""
        self._cumulative: bool | None = None

    def new_in(self, delta: Json) -> str:
        """The text that is new in a delta; its entries are cut down to that, so that whoever joins them has each text once."""
        told = details_text(delta)
        new = self.take(told)
        if new != told:
            delta["reasoning_details"] = _later(delta["reasoning_details"], len(told) - len(new))
        return new

    def take(self, text: str) -> str:
        """What is new in this piece."""
        if not text:
            return ""
        if not self._text or self._cumulative is False:
            self._text = self._text or text
            return text
        grown = text.startswith(self._text)
        if self._cumulative is None:
            self._cumulative = grown and len(text) > len(self._text)
            if not self._cumulative:
                return text
        new = text[len(self._text) :] if grown else text
        self._text = text
        return new


def _later(entries: list[Any], known: int) -> list[Any]:
    """Entries of `reasoning_details` without the first `known` characters of their text."""
    out = []
    for entry in entries:
        key = next((name for name in ("text", "summary") if isinstance(entry, dict) and isinstance(entry.get(name), str) and entry[name]), None)
        if key is not None and known:
            cut = min(known, len(entry[key]))
            known -= cut
            entry = {**entry, key: entry[key][cut:]}
        out.append(entry)
    return out
