"""Chat request -> Responses request.

Stateless: nothing is stored at the provider unless the client asks for it, and encrypted
reasoning is asked for, so that it can be given back with the next request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.chat import Json
from gateway.dialects.responses.carriers import from_details
from gateway.dialects.responses.parts import own_content, said
from gateway.dialects.responses.terms import listed, mapping, text_of
from gateway.dialects.responses.tools import own_call, own_tools, short_id
from gateway.errors import Skipped

# what chat has and Responses has no word for, or another one
_CHAT_ONLY = (
    *("messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "verbosity", "reasoning_effort", "max_tokens", "max_completion_tokens"),
    *("n", "stop", "seed", "logit_bias", "presence_penalty", "frequency_penalty", "logprobs", "top_logprobs", "stream_options", "modalities", "audio"),
    *("prediction", "functions", "function_call", "web_search_options", "store", "include", "text", "reasoning"),
)
_LEAST_TOKENS = 16  # OpenAI refuses less (its schema of 2026-08)
_ENCRYPTED = "reasoning.encrypted_content"
# OpenAI refuses to encrypt the reasoning of models that have none
_UNREASONING = ("gpt-3.5", "gpt-4", "chatgpt-4o", "gpt-5-chat")


def request_from_chat(body: Json) -> Json:
    """The Responses request that asks the same; unknown fields stay.

    `n`, `stop`, `seed`, penalties and `logit_bias` have no form there and are left out, and so
    is reasoning that OpenAI did not encrypt. Raises Skipped for content that cannot be carried,
    for audio answers and for the legacy `functions`.
    """
    if body.get("functions"):
        raise Skipped("the Responses dialect has no form for the legacy `functions`")
    if "audio" in (body.get("modalities") or ()):
        raise Skipped("the Responses dialect gives no audio")
    out: Json = {key: value for key, value in body.items() if key not in _CHAT_ONLY and value is not None}
    out["input"] = _items(listed(body.get("messages")))
    out |= own_tools(body)
    out["store"] = body.get("store") is True
    _add_limits(out, body)
    _add_text(out, body)
    _add_reasoning(out, body)
    _add_include(out, body)
    options = mapping(body.get("stream_options"))
    if "include_obfuscation" in options:
        out["stream_options"] = {"include_obfuscation": options["include_obfuscation"]}
    return out


def _add_limits(out: Json, body: Mapping[str, Any]) -> None:
    for key in ("max_completion_tokens", "max_tokens"):
        value = body.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            out["max_output_tokens"] = max(value, _LEAST_TOKENS)
            return


def _add_text(out: Json, body: Mapping[str, Any]) -> None:
    text, form = dict(mapping(body.get("text"))), mapping(body.get("response_format"))
    if form.get("type") == "json_schema":
        text["format"] = {"type": "json_schema", **mapping(form.get("json_schema"))}
    elif form.get("type") == "json_object":
        text["format"] = {"type": "json_object"}
    if body.get("verbosity") is not None:
        text["verbosity"] = body["verbosity"]
    if text:
        out["text"] = text


def _add_reasoning(out: Json, body: Mapping[str, Any]) -> None:
    given = mapping(body.get("reasoning"))
    reasoning = {key: given[key] for key in ("effort", "summary") if given.get(key) is not None}
    if body.get("reasoning_effort") is not None:
        reasoning["effort"] = body["reasoning_effort"]
    if reasoning:
        out["reasoning"] = reasoning


def _add_include(out: Json, body: Mapping[str, Any]) -> None:
    include = [name for name in body.get("include") or () if isinstance(name, str)]
    if not str(body.get("model")).startswith(_UNREASONING):
        include.append(_ENCRYPTED)
    if body.get("logprobs") is True:
        include.append("message.output_text.logprobs")
        if body.get("top_logprobs") is not None:
            out["top_logprobs"] = body["top_logprobs"]
    if include:
        out["include"] = list(dict.fromkeys(include))


def _items(messages: list[Json]) -> list[Json]:
    customs = {call.get("id") for message in messages for call in listed(message.get("tool_calls")) if isinstance(call.get("custom"), dict)}
    out: list[Json] = []
    for message in messages:
        role = message.get("role")
        if role == "assistant":
            out += _assistant(message)
        elif role == "tool":
            kind = "custom_tool_call_output" if message.get("tool_call_id") in customs else "function_call_output"
            out.append({"type": kind, "call_id": short_id(message.get("tool_call_id")), "output": _output(message.get("content"))})
        else:
            out.append({"type": "message", "role": role if role in ("system", "developer") else "user", "content": own_content(message.get("content"))})
    return out


def _assistant(message: Json) -> list[Json]:
    """Reasoning first: each such item must be followed by what it led to, so alone it is left out."""
    text, refusal = said(message.get("content")), text_of(message.get("refusal"))
    out: list[Json] = []
    if text or refusal:
        out.append({"type": "message", "role": "assistant", "content": text or refusal})
    out += [own_call(call, place) for place, call in enumerate(listed(message.get("tool_calls")))]
    return [*from_details(message.get("reasoning_details")), *out] if out else []


def _output(content: Any) -> str | list[Json]:
    """A tool's output: one text where it is all text, else parts."""
    parts = own_content(content)
    if isinstance(parts, list) and all(part["type"] == "input_text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts
