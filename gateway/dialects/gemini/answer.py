"""Gemini answers -> chat."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import uuid4

from gateway.chat import Json, dumps
from gateway.dialects.gemini.terms import carrier, choice_index, finish_reason, refuse_blocked, usage_to_chat
from gateway.dialects.messages.terms import chat_id, listed, mapping, original

# what Gemini tells about its sources: kept beside the message, under its own names
_BESIDE = ("groundingMetadata", "citationMetadata", "urlContextMetadata")


class Said(NamedTuple):
    """What the parts of a candidate say. `signature`: of a text; a call has its own in `extra_content`."""

    text: str
    thoughts: str
    calls: list[Json]
    images: list[Json]
    signature: str | None

    def fields(self) -> Json:
        """The fields of a chat message or delta, those that hold something."""
        out: Json = {}
        if self.thoughts:
            out["reasoning_content"] = self.thoughts
        if self.text:
            out["content"] = self.text
        if self.images:
            out["images"] = self.images
        if self.calls:
            out["tool_calls"] = self.calls
        if self.signature:
            out["extra_content"] = carrier(self.signature)
        return out


def said(candidate: Mapping[str, Any]) -> Said:
    """What a candidate, or a piece of one, says."""
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Json] = []
    images: list[Json] = []
    signed: str | None = None
    for part in listed(mapping(candidate.get("content")).get("parts")):
        if isinstance(part.get("functionCall"), dict):
            calls.append(_call(part))
            continue
        if isinstance(part.get("text"), str):
            (thoughts if part.get("thought") is True else texts).append(part["text"])
        elif isinstance(part.get("inlineData"), dict):
            images.append(_image(part["inlineData"]))
        signed = part.get("thoughtSignature") or signed
    return Said("".join(texts), "".join(thoughts), calls, images, signed)


def _call(part: Json) -> Json:
    call = part["functionCall"]
    function = {"name": original(str(call.get("name") or "")), "arguments": dumps(mapping(call.get("args"))).decode()}
    out: Json = {"id": call.get("id") or f"call_{uuid4().hex}", "type": "function", "function": function}
    if part.get("thoughtSignature"):
        out["extra_content"] = carrier(part["thoughtSignature"])
    return out


def _image(data: Json) -> Json:
    return {"type": "image_url", "image_url": {"url": f"data:{data.get('mimeType')};base64,{data.get('data')}"}}


def beside(candidate: Mapping[str, Any]) -> Json:
    """The candidate's fields that stay as they are."""
    return {key: candidate[key] for key in _BESIDE if candidate.get(key)}


def answer_to_chat(body: Json) -> Json:
    """The `chat.completion` for a Gemini answer.

    Thoughts are `reasoning_content`, signatures `extra_content.google.thought_signature` of the
    call (or, of a text, of the message). Raises UpstreamError for a blocked prompt and for an
    answer that failed.
    """
    refuse_blocked(body)
    out: Json = {
        "id": chat_id(body.get("responseId")),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body.get("modelVersion"),
        "choices": [_choice(candidate) for candidate in listed(body.get("candidates"))],
    }
    if isinstance(body.get("usageMetadata"), dict):
        out["usage"] = usage_to_chat(body["usageMetadata"])
    return out


def _choice(candidate: Json) -> Json:
    fields = said(candidate).fields()
    finish = finish_reason(candidate, bool(fields.get("tool_calls"))) or "stop"
    message = {"role": "assistant", "content": None, **fields}
    return {"index": choice_index(candidate), "message": message, "logprobs": None, "finish_reason": finish, **beside(candidate)}
