"""Plain chat completions: healed, split into chunks, put together from chunks."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from typing import Any

from gateway import failures
from gateway.chat import Accumulator, Chunk, Json, dumps
from gateway.dialects.chat.calls import without_odd_calls
from gateway.dialects.chat.content import alias_text, details_text, flatten, has_content
from gateway.dialects.chat.finish import finish_reason
from gateway.dialects.chat.usage import is_normal, is_plain, normal_usage
from gateway.errors import UpstreamError

_TIERS = frozenset(("auto", "default", "flex", "scale", "priority", "fast"))
_THOUGHTS = ("reasoning_content", "reasoning", "reasoning_text", "reasoning_details", "thinking", "thinking_blocks")
_SHARED = ("id", "object", "created", "model", "system_fingerprint", "service_tier")


def heal_completion(body: Json, model: str, *, excludes_reasoning: bool = False) -> tuple[Json, bool]:
    """The completion with everything that clients insist on, and whether anything had to change.

    The body is changed in place. Raises UpstreamError for an error inside it, and class
    `protocol` where it has no choices.
    """
    verdict = failures.in_stream_error(body)
    if verdict is not None:
        raise verdict.failure()
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, dict) for choice in choices):
        raise UpstreamError("protocol", "the answer has no choices")
    changed = [_envelope(body, model)]
    for position, choice in enumerate(choices):
        changed.append(_heal_choice(choice, position))
    usage = body.get("usage")
    if isinstance(usage, dict) and (excludes_reasoning or "timings" in body or not is_plain(usage)):
        normal = normal_usage(usage, excludes_reasoning=excludes_reasoning, timings=body.get("timings"))
        if normal and not is_normal(usage, normal):
            body["usage"] = normal
            changed.append(True)
    return body, any(changed)


def _envelope(body: Json, model: str) -> bool:
    right: Json = {}
    if not isinstance(body.get("id"), str) or not body["id"]:
        right["id"] = str(body.get("id") or f"chatcmpl-{secrets.token_hex(12)}")
    if body.get("object") != "chat.completion":
        right["object"] = "chat.completion"
    created = body.get("created")
    if not isinstance(created, int) or isinstance(created, bool) or created < 1:
        right["created"] = int(created) if isinstance(created, float) and created >= 1 else int(time.time())
    if not isinstance(body.get("model"), str) or not body["model"]:
        right["model"] = model
    body.update(right)
    drop: list[str] = [name for name in ("obfuscation", "error") if name in body]
    if body.get("service_tier") is not None and body["service_tier"] not in _TIERS:
        drop.append("service_tier")
    for name in drop:
        del body[name]
    return bool(right or drop)


def _heal_choice(choice: Json, position: int) -> bool:
    changed = False
    if not isinstance(choice.get("index"), int) or isinstance(choice["index"], bool):
        choice["index"] = position
        changed = True
    if not isinstance(choice.get("message"), dict):
        delta = choice.pop("delta", None)
        choice["message"] = delta if isinstance(delta, dict) else {}
        changed = True
    message: Json = choice["message"]
    changed = _heal_message(message) or changed
    reason = finish_reason(choice.get("finish_reason"), called=bool(message.get("tool_calls")), legacy=bool(message.get("function_call")))
    if reason is None:  # a plain answer is complete
        reason = finish_reason("stop", called=bool(message.get("tool_calls")), legacy=bool(message.get("function_call")))
    if choice.get("finish_reason") != reason:
        choice["finish_reason"] = reason
        changed = True
    return changed


def _heal_message(message: Json) -> bool:
    changed = flatten(message)
    if message.get("role") != "assistant":
        message["role"] = "assistant"
        changed = True
    if "content" not in message:
        message["content"] = None
        changed = True
    changed = without_odd_calls(message) or changed
    if not message.get("reasoning_content"):
        text = alias_text(message) or details_text(message) or (message["thinking"] if isinstance(message.get("thinking"), str) else "")
        if text:
            message["reasoning_content"] = text
            changed = True
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        message["tool_calls"] = [call for call in calls if isinstance(call, dict)]
        changed = len(message["tool_calls"]) != len(calls) or changed
        idents: set[str] = set()
        for call in message["tool_calls"]:
            changed = _heal_call(call, idents) or changed
    function = message.get("function_call")
    return (isinstance(function, dict) and _heal_arguments(function, "arguments")) or changed


def _heal_call(call: Json, idents: set[str]) -> bool:
    """`idents` are those of the calls before it: each call has its own, or its result belongs to two."""
    kind = "custom" if isinstance(call.get("custom"), dict) else "function"
    changed = False
    if not isinstance(call.get("id"), str) or not call["id"] or call["id"] in idents:
        ident = str(call.get("id") or "")
        call["id"] = ident if ident and ident not in idents else f"call_{secrets.token_hex(12)}"
        changed = True
    idents.add(call["id"])
    if call.get("type") != kind:
        call["type"] = kind
        changed = True
    if not isinstance(call.get(kind), dict):
        call[kind] = {"name": ""}
        changed = True
    return _heal_arguments(call[kind], "input" if kind == "custom" else "arguments") or changed


def _heal_arguments(function: Json, field: str) -> bool:
    value = function.get(field)
    if isinstance(value, str) and (value.strip() or field == "input"):
        return False
    function[field] = ("" if field == "input" else "{}") if value is None or value == "" or isinstance(value, str) else dumps(value).decode()
    return True


def completion_has_content(completion: Json) -> bool:
    """Whether any choice of a completion carries text, reasoning, a tool call or a refusal."""
    return any(has_content(message) for message in _messages(completion))


def completion_is_empty(completion: Json) -> bool:
    """No content, and no finish that explains it (`length`, `content_filter`)."""
    return not completion_has_content(completion) and all(choice.get("finish_reason") in (None, "stop") for choice in completion.get("choices") or ())


def called_tools(completion: Json) -> list[str]:
    """Names of the tools that a completion calls."""
    calls = [call for message in _messages(completion) for call in message.get("tool_calls") or ()]
    return [name for call in calls if (name := (call.get("function") or call.get("custom") or {}).get("name"))]


def _messages(completion: Json) -> list[Json]:
    return [choice.get("message") or {} for choice in completion.get("choices") or ()]


def aggregate(chunks: Iterable[Chunk]) -> Json:
    """The plain completion that a stream's chunks describe."""
    whole = Accumulator()
    for chunk in chunks:
        whole.add(chunk.json())
    return whole.completion()


def split(completion: Json, *, include_usage: bool = False) -> list[Chunk]:
    """A completion as the stream that it could have been: reasoning, text, tool calls, finish, usage.

    Fields beside the choices come with the first chunk, so that putting the chunks together
    gives the completion again.
    """
    shared = {key: completion[key] for key in _SHARED if key in completion} | {"object": "chat.completion.chunk"}
    extras = {key: value for key, value in completion.items() if key not in (*_SHARED, "choices", "usage")}
    nothing = {"usage": None} if include_usage and completion.get("usage") else {}
    out: list[Chunk] = []
    for choice in completion["choices"]:
        for part in _split_choice(choice):
            obj = {**shared, **extras, "choices": [part], **nothing}
            out.append(Chunk(dumps(obj), content=has_content(part["delta"]), json=obj))
            extras = {}
    if nothing:
        obj = {**shared, "choices": [], "usage": completion["usage"]}
        out.append(Chunk(dumps(obj), json=obj))
    return out


def _split_choice(choice: Json) -> list[Json]:
    message: Json = choice.get("message") or {}
    rest: dict[str, Any] = {key: value for key, value in choice.items() if key not in ("index", "message", "finish_reason", "logprobs")}
    thoughts = {key: message[key] for key in _THOUGHTS if message.get(key)}
    texts = {key: value for key, value in message.items() if key not in (*_THOUGHTS, "role", "tool_calls")}
    calls = [{**call, "index": index} for index, call in enumerate(message.get("tool_calls") or ())]
    deltas = [delta for delta in (thoughts, texts, {"tool_calls": calls} if calls else {}) if delta] or [{}]
    deltas[0] = {"role": "assistant", **deltas[0]}
    parts = [{"index": choice["index"], "delta": delta, "logprobs": None, "finish_reason": None} for delta in deltas]
    for part in parts:
        if "content" in part["delta"]:
            part["logprobs"] = choice.get("logprobs")
    return [*parts, {"index": choice["index"], "delta": {}, "logprobs": None, "finish_reason": choice.get("finish_reason"), **rest}]
