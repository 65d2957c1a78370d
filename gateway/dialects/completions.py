"""The legacy completions dialect: a prompt in, a text out. Pure.

Towards chat the prompt is one user message; towards completions a conversation is written
out as a transcript. Tools, images and reasoning have no form there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from gateway import failures
from gateway.chat import Json
from gateway.dialects.events import read_event
from gateway.errors import InvalidRequest, Skipped

Event = tuple[str | None, Json]

_PROMPT_ONLY = ("prompt", "suffix", "echo", "best_of", "logprobs")
_CHAT_ONLY = (
    *("messages", "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "response_format", "max_completion_tokens"),
    *("logprobs", "top_logprobs", "modalities", "audio", "prediction", "store", "metadata", "verbosity", "web_search_options", "moderation"),
    *("safety_identifier", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "service_tier"),
)
_SPEAKERS = {"system": "System", "developer": "System", "assistant": "Assistant"}
_LEGAL = ("stop", "length", "content_filter")


def request_to_chat(body: Json) -> Json:
    """The chat request that asks for the text after the prompt.

    Raises InvalidRequest without a prompt, Skipped for what only a completions host can do:
    several prompts at once, token ids, a suffix.
    """
    out = {key: value for key, value in body.items() if key not in _PROMPT_ONLY}
    out["messages"] = [{"role": "user", "content": prompt_of(body)}]
    if body.get("suffix"):
        raise Skipped("filling in before a suffix needs a provider that serves /completions")
    if body.get("logprobs") is not None:
        out |= {"logprobs": True, "top_logprobs": body["logprobs"]}
    return out


def prompt_of(body: Mapping[str, Any]) -> str:
    """The one prompt of a completions request."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list | int) and prompt:
        raise Skipped("several prompts, or a prompt of token ids, need a provider that serves /completions")
    raise InvalidRequest("prompt must be a string or a list of strings", param="prompt")


def request_from_chat(body: Json) -> Json:
    """The completions request that asks the same; unknown fields stay. Raises Skipped for tools and for content other than text."""
    if body.get("tools") or body.get("functions"):
        raise Skipped("the completions dialect has no tools")
    out = {key: value for key, value in body.items() if key not in _CHAT_ONLY}
    out["prompt"] = _transcript([message for message in _items(body.get("messages")) if isinstance(message, dict)])
    if body.get("max_completion_tokens") is not None:
        out["max_tokens"] = body["max_completion_tokens"]
    if body.get("logprobs") is True:
        out["logprobs"] = body.get("top_logprobs") or 0
    return out


def _transcript(messages: list[Json]) -> str:
    texts = [(message.get("role"), _text(message)) for message in messages]
    if all(role in ("system", "developer", "user") for role, _ in texts):
        return "\n\n".join(text for _, text in texts if text)
    lines = [f"{_SPEAKERS.get(str(role), 'User')}: {text}" for role, text in texts if text]
    if texts[-1][0] != "assistant":
        lines.append("Assistant:")
    return "\n\n".join(lines)


def _text(message: Json) -> str:
    if message.get("tool_calls") or message.get("role") == "tool":
        raise Skipped("the completions dialect has no tools")
    content = message.get("content")
    if isinstance(content, list):
        if any(not isinstance(part, dict) or not isinstance(part.get("text"), str) for part in content):
            raise Skipped("the completions dialect carries text only")
        return "".join(part["text"] for part in content)
    return content if isinstance(content, str) else ""


def answer_to_chat(body: Json) -> Json:
    """The `chat.completion` for a completions answer; fields beside the choices stay."""
    choices = []
    for place, choice in enumerate(_choices(body)):
        message = {"role": "assistant", "content": _string(choice.get("text")), "refusal": None}
        rest = {key: value for key, value in choice.items() if key not in ("text", "index", "logprobs", "finish_reason")}
        logprobs = _logprobs_to_chat(choice.get("logprobs"))
        choices.append({**rest, "index": choice.get("index", place), "message": message, "logprobs": logprobs, "finish_reason": choice.get("finish_reason")})
    return {**_head(body, "chatcmpl"), "object": "chat.completion", "choices": choices}


def answer_from_chat(completion: Json, request: Json) -> Json:
    """The completions answer for a `chat.completion`; `request` is the client's, whose `echo` puts the prompt before the text."""
    before = prompt_of(request) if request.get("echo") is True else ""
    choices = []
    for choice in _choices(completion):
        message = _mapping(choice.get("message"))
        text = _string(message.get("content"), message.get("refusal"))
        logprobs = _logprobs_from_chat(choice.get("logprobs"), len(before))
        choices.append({"text": before + text, "index": choice.get("index", 0), "logprobs": logprobs, "finish_reason": _finish(choice.get("finish_reason"))})
    return {**_head(completion, "cmpl"), "object": "text_completion", "choices": choices}


def _choices(body: Mapping[str, Any]) -> list[Json]:
    choices = body.get("choices")
    return [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []


def _string(*values: Any) -> str:
    """The first of the values that is a text with something in it."""
    return next((value for value in values if isinstance(value, str) and value), "")


def _mapping(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _finish(reason: Any) -> str | None:
    return reason if reason in _LEGAL or reason is None else "stop"


def _head(body: Json, prefix: str) -> Json:
    """The fields beside the choices, with an id of the other dialect's look."""
    ident = str(body.get("id") or uuid4().hex)
    for known in ("chatcmpl-", "cmpl-"):
        ident = ident.removeprefix(known)
    rest = {key: value for key, value in body.items() if key not in ("id", "object", "choices")}
    return {"id": f"{prefix}-{ident}", "object": "", "created": body.get("created") or int(time.time()), "model": body.get("model"), **rest}


def _logprobs_to_chat(logprobs: Any) -> Json | None:
    tokens, values, tops = (_items(_mapping(logprobs).get(key)) for key in ("tokens", "token_logprobs", "top_logprobs"))
    if not tokens:
        return None
    content = []
    for place, token in enumerate(tokens):
        top = _mapping(tops[place]) if place < len(tops) else {}
        others = [_token(other, chance) for other, chance in top.items()]
        content.append({**_token(token, values[place] if place < len(values) else None), "top_logprobs": others})
    return {"content": content, "refusal": None}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _token(token: Any, logprob: Any) -> Json:
    # a prompt's first token has no chance of its own; chat has numbers only and writes -9999 for "next to never"
    return {"token": str(token), "logprob": logprob if isinstance(logprob, int | float) else -9999.0, "bytes": list(str(token).encode())}


def _logprobs_from_chat(logprobs: Any, offset: int) -> Json | None:
    content = [item for item in _items(_mapping(logprobs).get("content")) if isinstance(item, dict)]
    if not content:
        return None
    out: Json = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for item in content:
        tops = [other for other in _items(item.get("top_logprobs")) if isinstance(other, dict)]
        out["tokens"].append(_string(item.get("token")))
        out["token_logprobs"].append(item.get("logprob"))
        out["top_logprobs"].append({_string(other.get("token")): other.get("logprob") for other in tops})
        out["text_offset"].append(offset)
        offset += len(out["tokens"][-1])
    return out


def native_content(body: Json) -> bool:
    """Whether a plain completions answer holds text."""
    return any(choice.get("text") for choice in _choices(body))


def error_body(error: Json, status: int, request_id: str) -> Json:
    """The error envelope of `/v1/completions`: OpenAI's."""
    return {"error": error}


class Reader:
    """Turns the events of a completions stream into chat chunks; `done`: its proper end was seen."""

    def __init__(self, model: str) -> None:
        self.done = False
        self._first = {"id": f"chatcmpl-{uuid4().hex}", "created": int(time.time()), "model": model}
        self._begun: set[int] = set()
        self._ended: set[int] = set()

    def feed(self, name: str | None, data: bytes) -> list[Json]:
        if data.startswith(b"[DONE]"):
            self.done = True
            return []
        event = parse_event(data)
        if event is None:
            return []
        if not self._begun and event.get("id"):
            self._first["id"] = _head(event, "chatcmpl")["id"]
        self._first["model"] = event.get("model") or self._first["model"]
        choices = [self._choice(choice) for choice in _choices(event)]
        usage = {"usage": event["usage"]} if event.get("usage") else {}
        rest = {key: event[key] for key in ("system_fingerprint",) if event.get(key)}
        return [{**self._first, "object": "chat.completion.chunk", **rest, "choices": choices, **usage}] if choices or usage else []

    def _choice(self, choice: Json) -> Json:
        index = choice["index"] if isinstance(choice.get("index"), int) else 0
        delta: Json = {} if index in self._begun else {"role": "assistant"}
        self._begun.add(index)
        if choice.get("text") or delta:
            delta["content"] = _string(choice.get("text"))
        finish = choice.get("finish_reason") or None
        if finish is not None:
            self._ended.add(index)
            self.done = self._ended == self._begun
        return {"index": index, "delta": delta, "logprobs": _logprobs_to_chat(choice.get("logprobs")), "finish_reason": finish}

    def finish(self) -> list[Json]:
        return []


class Writer:
    """Turns chat chunks into completions events; whoever sends them ends the stream with `[DONE]`."""

    def __init__(self, request: Json) -> None:
        self._request = request
        options = request.get("stream_options")
        self._tells_usage = isinstance(options, dict) and options.get("include_usage") is True
        self._offsets: dict[int, int] = {}

    def feed(self, chunk: Json) -> list[Event]:
        choices = [written for choice in _choices(chunk) if (written := self._choice(choice))]
        usage = chunk.get("usage") if self._tells_usage else None
        if not choices and not usage:
            return []
        head = _head({key: value for key, value in chunk.items() if key != "usage"}, "cmpl")
        return [(None, {**head, "object": "text_completion", "choices": choices, **({"usage": usage} if self._tells_usage else {})})]

    def _choice(self, choice: Json) -> Json | None:
        index, delta = choice.get("index") or 0, _mapping(choice.get("delta"))
        text = _string(delta.get("content"), delta.get("refusal"))
        if index not in self._offsets:
            echo = prompt_of(self._request) if self._request.get("echo") is True else ""
            self._offsets[index] = len(echo)
            text, own = echo + text, len(text)
        else:
            own = len(text)
        finish = _finish(choice.get("finish_reason") or None)
        if not text and finish is None:
            return None
        logprobs = _logprobs_from_chat(choice.get("logprobs"), self._offsets[index])
        self._offsets[index] += own
        return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish}

    def finish(self) -> list[Event]:
        return []

    def fail(self, error: Json) -> list[Event]:
        return [(None, {"error": error})]


class Native:
    """Watches a completions stream that goes to the client as it is; `usage` as the provider told it."""

    def __init__(self, request: Json | None = None) -> None:
        self.instead: list[Event] | None = None  # nothing is ever replaced here
        self.name: str | None = None  # and no event has a name
        self.done = False
        self.has_content = False
        self.usage: Json | None = None

    def look(self, name: str | None, data: bytes) -> bool:
        """Whether this event carries text. Raises UpstreamError for an error event."""
        if data.startswith(b"[DONE]"):
            self.done = True
            return False
        event = parse_event(data)
        if event is None:
            return False
        self.usage = event.get("usage") or self.usage
        self.done = self.done or any(choice.get("finish_reason") for choice in _choices(event))
        content = native_content(event)
        self.has_content = self.has_content or content
        return content


def parse_event(data: bytes) -> Json | None:
    """The event's object, None for what is none. Raises UpstreamError for an error and for an event that breaks off."""
    event = read_event(data)
    if not isinstance(event, dict):
        return None
    verdict = failures.in_stream_error(event)
    if verdict is not None:
        raise verdict.failure()
    return event
