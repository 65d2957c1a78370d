"""The words of the Messages dialect and their chat counterparts: stop reasons, usage, names, ids, error types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from gateway.chat import Json

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "compaction": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_STOP = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "function_call": "tool_use", "content_filter": "refusal"}

# docs.claude.com/en/api/errors (2026-11); statuses outside the table are named by their class
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def finish_reason(stop_reason: object, called: bool) -> str:
    """The chat finish reason; `called`: the answer holds tool calls."""
    reason = _FINISH.get(stop_reason, "stop") if isinstance(stop_reason, str) else "stop"
    return "tool_calls" if called and reason == "stop" else reason


def stop_reason(finish: object, called: bool) -> str:
    """The Messages stop reason; clients wait for a tool's result on `tool_use`, so it needs a call."""
    reason = _STOP.get(finish, "end_turn") if isinstance(finish, str) else "end_turn"
    if called and reason == "end_turn":
        return "tool_use"
    return "end_turn" if reason == "tool_use" and not called else reason


def usage_to_chat(usage: Mapping[str, Any]) -> Json:
    """Chat usage: `prompt_tokens` holds what was read from and written to the cache, which `input_tokens` leaves out."""
    read, written = _count(usage, "cache_read_input_tokens"), _count(usage, "cache_creation_input_tokens")
    prompt, completion = _count(usage, "input_tokens") + read + written, _count(usage, "output_tokens")
    out: Json = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    if "cache_read_input_tokens" in usage or written:
        out["prompt_tokens_details"] = {"cached_tokens": read, **({"cache_write_tokens": written} if written else {})}
    thinking = mapping(usage.get("output_tokens_details"))
    if "thinking_tokens" in thinking:
        out["completion_tokens_details"] = {"reasoning_tokens": _count(thinking, "thinking_tokens")}
    return out


def usage_from_chat(usage: Mapping[str, Any] | None) -> Json:
    """Messages usage; zeros where the provider told nothing, because the SDKs require both counts."""
    usage = mapping(usage)
    inputs, outputs = mapping(usage.get("prompt_tokens_details")), mapping(usage.get("completion_tokens_details"))
    read, written = _count(inputs, "cached_tokens"), _count(inputs, "cache_write_tokens")
    out: Json = {"input_tokens": max(0, _count(usage, "prompt_tokens") - read - written), "output_tokens": _count(usage, "completion_tokens")}
    if read or written:
        out |= {"cache_creation_input_tokens": written, "cache_read_input_tokens": read}
    if reasoning := _count(outputs, "reasoning_tokens"):
        out["output_tokens_details"] = {"thinking_tokens": reasoning}
    return out


def listed(value: Any) -> list[Json]:
    """The objects of a list; what is no list holds none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def mapping(value: Any) -> Json:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def _count(usage: Mapping[str, Any], key: str) -> int:
    value = usage.get(key)
    return value if isinstance(value, int) else 0


# Tool names and ids may only hold [a-zA-Z0-9_-] here, while chat models also make `functions.bash:0` (Kimi) and
# the like. The spelling can be undone without a table: the answer's translator does not see the request.
_ODD = re.compile(r"[^A-Za-z0-9_-]|_(?=0x[0-9a-f])")
_SPELLED = re.compile(r"_0x([0-9a-f]{1,6})_")


def spell(name: str) -> str:
    """A tool name or id in the characters that Anthropic allows; `original` undoes it."""
    return _ODD.sub(lambda found: f"_0x{ord(found[0]):x}_", name)


def original(name: str) -> str:
    """The name that `spell` was given."""
    return _SPELLED.sub(_character, name) if "_0x" in name else name


def _character(found: re.Match[str]) -> str:
    code = int(found[1], 16)
    return found[0] if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF else chr(code)


def chat_id(message_id: object) -> str:
    return f"chatcmpl-{message_id}" if isinstance(message_id, str) and message_id else f"chatcmpl-{uuid4().hex}"


def message_id(completion_id: object) -> str:
    name = completion_id.removeprefix("chatcmpl-") if isinstance(completion_id, str) else ""
    return name if name.startswith("msg_") else f"msg_{name or uuid4().hex}"


def opening(completion_id: object, model: object, usage: Mapping[str, Any] | None) -> Json:
    """The message of a `message_start`."""
    return {
        "id": message_id(completion_id),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage_from_chat(usage),
    }


def error_body(error: Json, status: int, request_id: str) -> Json:
    """The error envelope of `/v1/messages` for OpenAI's error object; `attempts` and `code` are kept beside."""
    return {
        "type": "error",
        "error": _error(error, _ERROR_TYPES.get(status) or ("api_error" if status >= 500 else "invalid_request_error")),
        "request_id": request_id,
    }


def stream_error(error: Json) -> Json:
    """The data of an `error` event: after the status has gone out, the type is all that tells what happened."""
    return {"type": "error", "error": _error(error, _stream_type(error))}


def _stream_type(error: Json) -> str:
    kind, code = error.get("type"), error.get("code")
    kinds = {attempt.get("class") for attempt in listed(error.get("attempts"))}
    if kinds == {"overload"} or kind in ("overloaded_error", "service_unavailable_error"):
        return "overloaded_error"
    if kind == "rate_limit_error" or code in ("rate_limit_exceeded", "insufficient_quota") or (kinds and kinds <= {"rate_limit", "balance"}):
        return "rate_limit_error"
    if kinds and kinds <= {"timeout", "first_token_timeout"}:
        return "timeout_error"
    return kind if isinstance(kind, str) and kind in _ERROR_TYPES.values() else "api_error"


def _error(error: Json, kind: str) -> Json:
    extra = {key: value for key, value in error.items() if key not in ("type", "message") and value is not None}
    return {"type": kind, "message": str(error.get("message") or kind), **extra}
