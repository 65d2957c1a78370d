"""Reasoning between the two dialects, and how signed reasoning of any provider travels.

OpenAI's own encrypted reasoning is in chat a group of `reasoning_details` (OpenRouter's
form) that share an id, and becomes the same item again. Everything else that is signed
(Anthropic's `thinking_blocks`, others' `reasoning_details`, Gemini's thought signatures) has
no place in a Responses item but `encrypted_content`, which clients return unread: it is
sealed into that field and unsealed when it comes back.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any

from gateway.chat import Json, dumps, loads
from gateway.dialects.responses.terms import is_ours, listed, mapping, mint, text_of

FORMAT = "openai-responses-v1"
"""`format` of the reasoning_details that hold OpenAI's encrypted items"""

_SEAL = "thinkgate.1."
_SIGNED = ("data", "signature")


def reasoning_text(item: Mapping[str, Any]) -> str:
    """The text of a reasoning item: what the model thought if that is there, else its summary."""
    texts = [text for part in listed(item.get("content")) if (text := text_of(part.get("text")))]
    if not texts:
        texts = [text for part in listed(item.get("summary")) if (text := text_of(part.get("text")))]
    return "\n\n".join(texts)


def reasoning_item(text: str, carriers: Json, ident: str | None = None) -> Json:
    """A reasoning item for the client. The text is a summary: raw reasoning is not shown by Codex, and not returned by it (0.171)."""
    item: Json = {"type": "reasoning", "id": ident or mint("rs"), "summary": [{"type": "summary_text", "text": text}] if text else []}
    if signed(carriers):
        item["encrypted_content"] = seal(carriers)
    return item


def carriers_of(message: Mapping[str, Any]) -> Json:
    """What a chat message or delta carries beside the reasoning text."""
    out: Json = {key: message[key] for key in ("thinking_blocks", "reasoning_details") if isinstance(message.get(key), list) and message[key]}
    extras = {call["id"]: call["extra_content"] for call in listed(message.get("tool_calls")) if call.get("id") and call.get("extra_content")}
    return {**out, "extra_content": extras} if extras else out


def signed(carriers: Mapping[str, Any]) -> bool:
    """Whether there is anything that a provider signed; the rest need not travel."""
    if carriers.get("extra_content"):
        return True
    return any(block.get(key) for name in ("thinking_blocks", "reasoning_details") for block in listed(carriers.get(name)) for key in _SIGNED)


def seal(carriers: Json) -> str:
    return _SEAL + base64.urlsafe_b64encode(dumps(carriers)).decode("ascii")


def unseal(text: str) -> Json | None:
    """What `seal` was given; None for what it did not make."""
    if not text.startswith(_SEAL):
        return None
    try:
        value = loads(base64.urlsafe_b64decode(text.removeprefix(_SEAL)))
    except (ValueError, binascii.Error):
        return {}
    return mapping(value)


def to_details(item: Mapping[str, Any], start: int) -> list[Json]:
    """OpenAI's encrypted reasoning item as reasoning_details, numbered from `start`, so that accumulators keep them apart."""
    data = item.get("encrypted_content")
    if not isinstance(data, str) or not data or data.startswith(_SEAL):
        return []
    details: list[Json] = [{"type": "reasoning.summary", "summary": text_of(part.get("text"))} for part in listed(item.get("summary"))]
    details += [{"type": "reasoning.text", "text": text_of(part.get("text"))} for part in listed(item.get("content"))]
    details.append({"type": "reasoning.encrypted", "data": data})
    return [{**detail, "id": item.get("id"), "format": FORMAT, "index": start + place} for place, detail in enumerate(details)]


def from_details(details: Any) -> list[Json]:
    """The encrypted reasoning items that OpenAI made, in order; what others made is left out."""
    items: dict[Any, Json] = {}
    for place, detail in enumerate(listed(details)):
        if detail.get("format") != FORMAT:
            continue
        ident = detail.get("id")
        item = items.setdefault(ident or place, {"type": "reasoning", **({"id": ident} if ident else {}), "summary": []})
        kind = detail.get("type")
        if kind == "reasoning.summary":
            item["summary"].append({"type": "summary_text", "text": text_of(detail.get("summary"))})
        elif kind == "reasoning.text":
            item.setdefault("content", []).append({"type": "reasoning_text", "text": text_of(detail.get("text"))})
        elif kind == "reasoning.encrypted" and detail.get("data"):
            item["encrypted_content"] = detail["data"]
    return [item for item in items.values() if item.get("encrypted_content")]


class Thoughts:
    """Gathers the reasoning items of one assistant turn into what its chat message carries."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._details: list[Json] = []
        self._blocks: list[Json] = []
        self.extras: Json = {}

    def add(self, item: Mapping[str, Any]) -> None:
        if text := reasoning_text(item):
            self._texts.append(text)
        carriers = unseal(text_of(item.get("encrypted_content")))
        if carriers is None:
            self._details += to_details(item, len(self._details))
            return
        self._details += listed(carriers.get("reasoning_details"))
        self._blocks += listed(carriers.get("thinking_blocks"))
        self.extras |= mapping(carriers.get("extra_content"))

    def fields(self) -> Json:
        """The fields of the chat message; empty without reasoning."""
        out: Json = {}
        if self._texts:
            out["reasoning_content"] = "\n\n".join(self._texts)
        if self._blocks:
            out["thinking_blocks"] = self._blocks
        if self._details:
            out["reasoning_details"] = self._details
        return out


def native_items(items: Iterable[Any]) -> list[Any]:
    """Input items as a Responses provider can take them.

    Items that the gateway made lose their ids, which nobody else can look up; its reasoning
    items become those of OpenAI that are sealed in them, or go.
    """
    out: list[Any] = []
    for item in items:
        if not isinstance(item, dict) or not (is_ours(item.get("id")) or _is_sealed(item)):
            out.append(item)
        elif item.get("type") == "reasoning":
            out += from_details((unseal(text_of(item.get("encrypted_content"))) or {}).get("reasoning_details"))
        else:
            out.append({key: value for key, value in item.items() if key != "id"})
    return out


def _is_sealed(item: Json) -> bool:
    return item.get("type") == "reasoning" and text_of(item.get("encrypted_content")).startswith(_SEAL)
