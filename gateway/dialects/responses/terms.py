"""The words of the Responses dialect in those of chat, and back: ids, usage, how an answer ended, errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from gateway.chat import Json

Event = tuple[str | None, Json]

_OURS = "tg"  # after the prefix of every id made here
_PREFIXES = ("msg_", "rs_", "fc_", "ctc_", "resp_")

# What `response.error.code` may be (OpenAI's schema of 2026-08); the last two are not in it, but OpenAI sends them
# and Codex acts on them (0.171).
_CODES = (
    *("server_error", "rate_limit_exceeded", "invalid_prompt", "data_residency_mismatch", "bio_policy", "vector_store_timeout"),
    *("invalid_image", "invalid_image_format", "invalid_base64_image", "invalid_image_url", "image_too_large", "image_too_small"),
    *("image_parse_error", "image_content_policy_violation", "invalid_image_mode", "image_file_too_large"),
    *("unsupported_image_media_type", "empty_image_file", "failed_to_download_image", "image_file_not_found"),
    *("context_length_exceeded", "insufficient_quota"),
)
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def mint(prefix: str) -> str:
    """A new id; the gateway's own can be told from a provider's (`is_ours`)."""
    return f"{prefix}_{_OURS}{uuid4().hex}"


def is_ours(ident: Any) -> bool:
    """Whether the gateway made this id, so that no provider can look it up."""
    return isinstance(ident, str) and any(ident.startswith(f"{prefix}{_OURS}") for prefix in _PREFIXES)


def listed(value: Any) -> list[Json]:
    """The objects of a list; what is no list holds none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def mapping(value: Any) -> Json:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def text_of(value: Any) -> str:
    """The value if it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def usage_to_chat(usage: Mapping[str, Any]) -> Json:
    """Chat usage for Responses usage."""
    inputs, outputs = mapping(usage.get("input_tokens_details")), mapping(usage.get("output_tokens_details"))
    prompt, completion = _count(usage, "input_tokens"), _count(usage, "output_tokens")
    out: Json = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": _count(usage, "total_tokens") or prompt + completion}
    if inputs:
        written = _count(inputs, "cache_write_tokens")
        out["prompt_tokens_details"] = {"cached_tokens": _count(inputs, "cached_tokens"), **({"cache_write_tokens": written} if written else {})}
    if outputs:
        out["completion_tokens_details"] = {"reasoning_tokens": _count(outputs, "reasoning_tokens")}
    return out


def usage_from_chat(usage: Mapping[str, Any] | None) -> Json | None:
    """Responses usage for chat usage. None stays None: no counts are made up; the details are zeros, as SDKs require them."""
    if not isinstance(usage, dict):
        return None
    inputs, outputs = mapping(usage.get("prompt_tokens_details")), mapping(usage.get("completion_tokens_details"))
    prompt, completion = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": _count(inputs, "cached_tokens"), "cache_write_tokens": _count(inputs, "cache_write_tokens")},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": _count(outputs, "reasoning_tokens")},
        "total_tokens": _count(usage, "total_tokens") or prompt + completion,
    }


def _count(usage: Mapping[str, Any], key: str) -> int:
    value = usage.get(key)
    return value if isinstance(value, int) else 0


def finish_reason(response: Mapping[str, Any], called: bool) -> str | None:
    """Chat's finish_reason for a response that is over; None while it is not."""
    status = response.get("status")
    if status == "incomplete":
        reason = mapping(response.get("incomplete_details")).get("reason")
        return "content_filter" if reason == "content_filter" else "length"
    if status in ("in_progress", "queued", "cancelled", "failed"):
        return None
    return "tool_calls" if called else "stop"


def ending(finish: str | None) -> Json:
    """Status and incomplete_details for chat's finish_reason."""
    reason = _INCOMPLETE.get(finish or "")
    return {"status": "incomplete" if reason else "completed", "incomplete_details": {"reason": reason} if reason else None}


def error_body(error: Json, status: int, request_id: str) -> Json:
    """The error envelope of `/v1/responses`: OpenAI's."""
    return {"error": error}


def error_event(error: Json) -> Json:
    """The data of an `error` event, said twice.

    The schema puts code and message at the top; OpenAI's own service sends an object `error`, and only that makes
    openai-python raise: without it a user who reads the events takes the end for a clean one (openai 3.3 to 3.57, 2026-11).
    """
    code = error.get("code") or error.get("type")
    said = {"code": None if code is None else str(code), "message": _message(error), "param": error.get("param")}
    return {"type": "error", **said, "error": {"type": str(error.get("type") or "server_error"), **said}}


def response_error(error: Json) -> Json:
    """`response.error` of a failed response; its codes are a closed list."""
    return {"code": _code(error), "message": _message(error)}


def _message(error: Json) -> str:
    return str(error.get("message") or "the answer failed")


def _code(error: Json) -> str:
    code, kind = error.get("code"), error.get("type")
    if code in _CODES:
        return str(code)
    kinds = {attempt.get("class") for attempt in listed(error.get("attempts"))}
    if kind == "rate_limit_error" or kinds == {"rate_limit"}:
        return "rate_limit_exceeded"
    return "invalid_prompt" if kind == "invalid_request_error" else "server_error"
