"""Plain answers between Messages and chat."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from gateway.chat import Json
from gateway.dialects.messages.carriers import signed, signed_blocks
from gateway.dialects.messages.inbound import tool_call
from gateway.dialects.messages.outbound import tool_input
from gateway.dialects.messages.terms import chat_id, finish_reason, listed, mapping, message_id, original, stop_reason, usage_from_chat, usage_to_chat


def answer_to_chat(body: Json) -> Json:
    """The `chat.completion` for a Messages answer.

    Thinking text is `reasoning_content`, signed blocks stand as they came in `thinking_blocks`.
    """
    blocks = listed(body.get("content"))
    calls = [_call(block) for block in blocks if block.get("type") == "tool_use"]
    text = "".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")
    thoughts = "".join(str(block.get("thinking") or "") for block in blocks if block.get("type") == "thinking")
    message: Json = {"role": "assistant", "content": text or None, "refusal": None if text or calls else refusal_text(body)}
    if thoughts:
        message["reasoning_content"] = thoughts
    if carriers := [block for block in blocks if signed(block)]:
        message["thinking_blocks"] = carriers
    if calls:
        message["tool_calls"] = calls
    finish = finish_reason(body.get("stop_reason"), bool(calls))
    out: Json = {
        "id": chat_id(body.get("id")),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body.get("model"),
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish}],
    }
    if isinstance(body.get("usage"), dict):
        out["usage"] = usage_to_chat(body["usage"])
    return out


def _call(block: Json) -> Json:
    call = tool_call(block)
    if isinstance(block.get("name"), str):
        call["function"]["name"] = original(block["name"])
    return call


def refusal_text(body: Mapping[str, Any]) -> str | None:
    """Why the model stopped, of an answer or a `message_delta` that says so."""
    text = mapping(body.get("stop_details")).get("explanation")
    return text if body.get("stop_reason") == "refusal" and isinstance(text, str) and text else None


def answer_from_chat(completion: Json, request: Json) -> Json:
    """The Messages answer for a `chat.completion`; `request` is the Messages request that the client sent."""
    choice: Json = next(iter(listed(completion.get("choices"))), {})
    message = mapping(choice.get("message"))
    content = _blocks(message)
    called = any(block["type"] == "tool_use" for block in content)
    reason, stop = stop_reason(choice.get("finish_reason"), called), stop_sequence(choice, request)
    if message.get("refusal") and not message.get("content") and not called:
        reason = "refusal"
    elif stop is not None and reason == "end_turn":
        reason = "stop_sequence"
    return {
        "id": message_id(completion.get("id")),
        "type": "message",
        "role": "assistant",
        "model": completion.get("model") or request.get("model"),
        "content": content,
        "stop_reason": reason,
        "stop_sequence": stop if reason == "stop_sequence" else None,
        "usage": usage_from_chat(completion.get("usage")),
    }


def _blocks(message: Json) -> list[Json]:
    carriers, thoughts = signed_blocks(message), message.get("reasoning_content")
    out: list[Json] = list(carriers)
    if not carriers and isinstance(thoughts, str) and thoughts:
        # unsigned: the SDKs require the field, and an empty signature can be told from Anthropic's
        out.append({"type": "thinking", "thinking": thoughts, "signature": ""})
    out += [{"type": "text", "text": text} for text in (message.get("content"), message.get("refusal")) if isinstance(text, str) and text]
    for call in listed(message.get("tool_calls")):
        function = mapping(call.get("function") or call.get("custom"))
        given = function.get("arguments") if "arguments" in function else function.get("input")
        out.append({"type": "tool_use", "id": call.get("id") or tool_id(), "name": function.get("name") or "", "input": tool_input(given)})
    return out


def tool_id() -> str:
    return f"toolu_{uuid4().hex}"


def stop_sequence(choice: Mapping[str, Any], request: Mapping[str, Any]) -> str | None:
    """The client's stop text that ended the answer, where the server names it (vLLM `stop_reason`, SGLang `matched_stop`)."""
    for found in (choice.get("stop_reason"), choice.get("matched_stop")):
        if isinstance(found, str) and found in (request.get("stop_sequences") or ()):
            return found
    return None


def native_content(body: Json) -> bool:
    """Whether a plain Messages answer holds anything for the client: text, thinking, a call, a refusal."""
    return body.get("stop_reason") == "refusal" or any(_filled(block) for block in listed(body.get("content")))


def _filled(block: Json) -> bool:
    kind = block.get("type")
    if kind == "text":
        return bool(block.get("text"))
    return bool(block.get("thinking") or block.get("signature")) if kind == "thinking" else kind is not None
