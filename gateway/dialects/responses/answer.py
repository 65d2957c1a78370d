"""Plain answers between Responses and chat."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from gateway.chat import Json
from gateway.dialects.responses.carriers import Thoughts, carriers_of, reasoning_item, signed
from gateway.dialects.responses.parts import chat_annotations, own_annotations
from gateway.dialects.responses.terms import ending, finish_reason, listed, mapping, mint, text_of, usage_from_chat, usage_to_chat
from gateway.dialects.responses.tools import as_arguments, call_item, custom_names

_TIERS = ("auto", "default", "flex", "scale", "priority", "fast", "ultrafast")
_ECHOED = ("background", "max_tool_calls", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "top_logprobs", "user")


def answer_to_chat(body: Json) -> Json:
    """The `chat.completion` for a response; calls of tools that ran at the provider are left out.

    `finish_reason` is null for one that is not over or was cancelled.
    """
    output = listed(body.get("output"))
    calls = [chat_call(item) for item in output if item.get("type") in ("function_call", "custom_tool_call")]
    message = chat_message(output)
    if calls:
        message["tool_calls"] = calls
    choice: Json = {"index": 0, "message": message, "logprobs": _logprobs(output), "finish_reason": finish_reason(body, bool(calls))}
    out: Json = {**head(body, text_of(body.get("model"))), "object": "chat.completion", "choices": [choice]}
    if isinstance(body.get("usage"), dict):
        out["usage"] = usage_to_chat(body["usage"])
    if body.get("service_tier"):
        out["service_tier"] = body["service_tier"]
    return out


def head(response: Mapping[str, Any], model: str) -> Json:
    """Id, time and model of chat's answer."""
    created = response.get("created_at")
    return {
        "id": f"chatcmpl-{text_of(response.get('id')) or uuid4().hex}",
        "created": int(created) if isinstance(created, int | float) else int(time.time()),
        "model": text_of(response.get("model")) or model,
    }


def chat_message(output: list[Json]) -> Json:
    """The assistant's message without its calls."""
    thoughts, texts, refusals = Thoughts(), [], []
    for item in output:
        if item.get("type") == "reasoning":
            thoughts.add(item)
        elif item.get("type") == "message":
            parts = listed(item.get("content"))
            texts.append("".join(text_of(part.get("text")) for part in parts))
            refusals.append("".join(text_of(part.get("refusal")) for part in parts))
    message: Json = {"role": "assistant", "content": "\n\n".join(filter(None, texts)) or None, "refusal": "".join(refusals) or None, **thoughts.fields()}
    notes = chat_annotations(part for item in output if item.get("type") == "message" for part in listed(item.get("content")))
    return {**message, "annotations": notes} if notes else message


def chat_call(item: Mapping[str, Any]) -> Json:
    """The chat tool call for a call that the model made; the client's call_id is chat's id."""
    ident = item.get("call_id") or item.get("id")
    if item.get("type") == "custom_tool_call":
        return {"id": ident, "type": "custom", "custom": {"name": item.get("name"), "input": text_of(item.get("input"))}}
    return {"id": ident, "type": "function", "function": {"name": item.get("name"), "arguments": as_arguments(item.get("arguments"))}}


def _logprobs(output: list[Json]) -> Json | None:
    found = [entry for item in output if item.get("type") == "message" for part in listed(item.get("content")) for entry in listed(part.get("logprobs"))]
    return {"content": found, "refusal": None} if found else None


def answer_from_chat(completion: Json, request: Json) -> Json:
    """The response for a `chat.completion`; `request` is the Responses request that the client sent, whose settings are echoed."""
    choice: Json = next(iter(listed(completion.get("choices"))), {})
    out = blank(request, completion)
    out |= ending(choice.get("finish_reason"))
    out["output"] = _output(mapping(choice.get("message")), choice, request)
    if out["status"] == "completed":
        out["completed_at"] = int(time.time())
    out["usage"] = usage_from_chat(completion.get("usage"))
    if "x_agent" in completion:
        out["x_agent"] = completion["x_agent"]
    return out


def _output(message: Json, choice: Json, request: Json) -> list[Json]:
    thoughts, carriers = text_of(message.get("reasoning_content")), carriers_of(message)
    output = [reasoning_item(thoughts, carriers)] if thoughts or signed(carriers) else []
    content: list[Json] = []
    if text := text_of(message.get("content")):
        content.append(text_part(text, listed(mapping(choice.get("logprobs")).get("content")), own_annotations(message.get("annotations"))))
    if refusal := text_of(message.get("refusal")):
        content.append({"type": "refusal", "refusal": refusal})
    if content:
        output.append({"type": "message", "id": mint("msg"), "role": "assistant", "status": ending(choice.get("finish_reason"))["status"], "content": content})
    customs = custom_names(request)
    return output + [call_item(call, customs) for call in listed(message.get("tool_calls"))]


def text_part(text: str, logprobs: list[Json], annotations: list[Json]) -> Json:
    return {"type": "output_text", "text": text, "annotations": annotations, "logprobs": [_entry(entry) for entry in logprobs]}


def _entry(entry: Json) -> Json:
    """One token's chance; `bytes` and `top_logprobs` are required here."""
    return {**entry, "bytes": entry.get("bytes") or [], "top_logprobs": [{**top, "bytes": top.get("bytes") or []} for top in listed(entry.get("top_logprobs"))]}


def blank(request: Json, answer: Mapping[str, Any]) -> Json:
    """A response with nothing in it yet: a new id, the request's settings, model and time of chat's answer."""
    created, model, tier = answer.get("created"), answer.get("model"), answer.get("service_tier")
    out: Json = {
        "id": mint("resp"),
        "object": "response",
        "created_at": int(created) if isinstance(created, int | float) and created else int(time.time()),
        "status": "in_progress",
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "model": model or request.get("model"),
        "output": [],
        "usage": None,
        **echo(request),
    }
    return {**out, "service_tier": tier} if tier in _TIERS else out


def echo(request: Json) -> Json:
    """The settings of a request as its response repeats them."""
    tools, choice, text = request.get("tools"), request.get("tool_choice"), mapping(request.get("text"))
    out: Json = {key: request.get(key) for key in ("instructions", "max_output_tokens", "previous_response_id", "temperature", "top_p")}
    return {
        **out,
        "metadata": mapping(request.get("metadata")),
        "parallel_tool_calls": request.get("parallel_tool_calls") is not False,
        "reasoning": {"effort": None, "summary": None, **mapping(request.get("reasoning"))},
        "store": request.get("store") is not False,
        "text": text if isinstance(text.get("format"), dict) else {**text, "format": {"type": "text"}},
        "tool_choice": choice if isinstance(choice, str | dict) else "auto",
        "tools": tools if isinstance(tools, list) else [],
        "truncation": request.get("truncation") or "disabled",
        **{key: request[key] for key in _ECHOED if request.get(key) is not None},
    }


def heal_answer(body: Json, request: Json) -> Json:
    """A response as it came, with what its provider left out of the fields that SDKs require."""
    missing = {"id": mint("resp"), "object": "response", "created_at": int(time.time()), "error": None, "incomplete_details": None, "output": []}
    out = {**missing, **echo(request), **body}
    out |= {key: missing[key] for key in ("id", "object", "created_at", "output") if out[key] is None}
    if isinstance(out.get("usage"), dict):
        out["usage"] = _whole_usage(out["usage"])
    return out


def _whole_usage(usage: Json) -> Json:
    whole = usage_from_chat(usage_to_chat(usage)) or {}
    details = {key: {**whole[key], **mapping(usage.get(key))} for key in ("input_tokens_details", "output_tokens_details")}
    return {**whole, **usage, **details}


def native_content(body: Json) -> bool:
    """Whether a plain response holds anything for the client: text, reasoning, a call, a refusal."""
    return any(filled(item) for item in listed(body.get("output")))


def filled(item: Mapping[str, Any]) -> bool:
    """Whether an output item holds anything for the client."""
    kind = item.get("type")
    if kind == "message":
        return any(part.get("text") or part.get("refusal") for part in listed(item.get("content")))
    if kind == "reasoning":
        return bool(item.get("encrypted_content") or any(part.get("text") for key in ("summary", "content") for part in listed(item.get(key))))
    return kind is not None
