"""The words of the Gemini API and their chat counterparts: roles, finish reasons, usage, names, signatures.

Source where nothing else is said: the types of google-genai 3.6.1 (2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gateway.chat import Json
from gateway.dialects.messages.terms import mapping, spell
from gateway.errors import UpstreamError
from gateway.failures import quote

STAND_IN = "skip_thought_signature_validator"
"""A signature that Gemini 3 takes where the real one is lost (Google's Vertex documentation, and Vercel's client, 2026)."""

_FILTERED = (
    "SAFETY",
    "RECITATION",
    "LANGUAGE",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
    "ESCALATION",
    "MODEL_ARMOR",
)
_FINISH = {"MAX_TOKENS": "length", "CONTINUATION": "length", **dict.fromkeys(_FILTERED, "content_filter")}
_FAILED = {
    "MALFORMED_FUNCTION_CALL": "protocol",
    "MALFORMED_RESPONSE": "protocol",
    "UNEXPECTED_TOOL_CALL": "protocol",
    "TOO_MANY_TOOL_CALLS": "protocol",
    "MISSING_THOUGHT_SIGNATURE": "signature",
    "PUP_LIMITED_DISABLED": "auth",
}
_GENERATION = re.compile(r"gemini-(\d+)")


def finish_reason(candidate: Mapping[str, Any], called: bool) -> str | None:
    """The chat finish reason of a candidate; None: it goes on. Raises UpstreamError for an answer that failed."""
    reason = candidate.get("finishReason")
    if not isinstance(reason, str) or reason == "FINISH_REASON_UNSPECIFIED":
        return None
    if reason in _FAILED:
        message = quote(f"the provider ended its answer with finishReason {reason}: {candidate.get('finishMessage') or 'no more is told'}", ())
        raise UpstreamError(_FAILED[reason], message, error={"message": message, "type": None, "code": reason, "param": None})
    finish = _FINISH.get(reason, "stop")
    return "tool_calls" if called and finish == "stop" else finish


def refuse_blocked(body: Mapping[str, Any]) -> None:
    """Raises UpstreamError for an answer that says only that the prompt was blocked."""
    reason = mapping(body.get("promptFeedback")).get("blockReason")
    if reason and not body.get("candidates"):
        message = quote(f"the prompt was blocked: {reason}", ())
        error = {"message": message, "type": "invalid_request_error", "code": "content_filter", "param": None}
        raise UpstreamError("content_filter", message, error=error)


def usage_to_chat(usage: Mapping[str, Any]) -> Json:
    """Chat usage: `completion_tokens` holds the thoughts, which `candidatesTokenCount` leaves out."""
    prompt = _count(usage, "promptTokenCount") + _count(usage, "toolUsePromptTokenCount")
    thoughts = _count(usage, "thoughtsTokenCount")
    completion = _count(usage, "candidatesTokenCount") + thoughts
    out: Json = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": max(_count(usage, "totalTokenCount"), prompt + completion)}
    if "cachedContentTokenCount" in usage:
        out["prompt_tokens_details"] = {"cached_tokens": _count(usage, "cachedContentTokenCount")}
    if "thoughtsTokenCount" in usage:
        out["completion_tokens_details"] = {"reasoning_tokens": thoughts}
    return out


def _count(usage: Mapping[str, Any], key: str) -> int:
    value = usage.get(key)
    return value if isinstance(value, int) else 0


def signature(holder: Mapping[str, Any]) -> str | None:
    """The thought signature that a chat message or tool call carries."""
    text = mapping(mapping(holder.get("extra_content")).get("google")).get("thought_signature")
    return text if isinstance(text, str) and text else None


def carrier(text: str) -> Json:
    """A thought signature as chat messages and tool calls carry it, in the place of Google's own compatible endpoint."""
    return {"google": {"thought_signature": text}}


def signs_steps(model: Any) -> bool:
    """Whether a model wants its signatures back: Gemini from 3 on, and names that tell no number."""
    found = _GENERATION.search(model) if isinstance(model, str) else None
    return found is None or int(found[1]) >= 3


def function_name(name: Any) -> str:
    """A function's name in the characters that Gemini allows, beginning with a letter or `_`; `messages.terms.original` undoes it."""
    spelled = spell(name) if isinstance(name, str) else ""
    if spelled[:1].isdigit() or spelled[:1] == "-":
        spelled = f"_0x{ord(spelled[0]):x}_{spelled[1:]}"
    return spelled


def choice_index(candidate: Mapping[str, Any]) -> int:
    index = candidate.get("index")
    return index if isinstance(index, int) else 0
