"""Converse answers and streams -> chat."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from gateway import failures
from gateway.chat import Json, dumps
from gateway.dialects.events import read_event
from gateway.dialects.messages.terms import chat_id, listed, mapping, original
from gateway.errors import UpstreamError
from gateway.failures import quote

_FINISH = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
    "refusal": "content_filter",
}
_FAILED = ("malformed_model_output", "malformed_tool_use")
# what the exceptions of a stream are as HTTP statuses (docs.aws.amazon.com, ConverseStream, 2026)
_STATUSES = {
    "internalServerException": 500,
    "modelStreamErrorException": 500,
    "modelTimeoutException": 408,
    "serviceUnavailableException": 503,
    "throttlingException": 429,
    "validationException": 400,
}


def answer_to_chat(body: Json) -> Json:
    """The `chat.completion` for a Converse answer.

    Reasoning text is `reasoning_content`; signed reasoning stands in `thinking_blocks` in
    Anthropic's form. Raises UpstreamError for an answer that failed.
    """
    blocks = listed(mapping(mapping(body.get("output")).get("message")).get("content"))
    calls = [_call(block["toolUse"]) for block in blocks if isinstance(block.get("toolUse"), dict)]
    thoughts = [mapping(block["reasoningContent"]) for block in blocks if "reasoningContent" in block]
    message: Json = {"role": "assistant", "content": "".join(block["text"] for block in blocks if isinstance(block.get("text"), str)) or None}
    if text := "".join(str(mapping(thought.get("reasoningText")).get("text") or "") for thought in thoughts):
        message["reasoning_content"] = text
    if carriers := [carrier for thought in thoughts if (carrier := _carrier({**thought, **mapping(thought.get("reasoningText"))}))]:
        message["thinking_blocks"] = carriers
    if calls:
        message["tool_calls"] = calls
    out: Json = {
        "id": chat_id(None),
        "object": "chat.completion",
        "created": int(time.time()),
        "model": None,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason(body.get("stopReason"), bool(calls))}],
    }
    if isinstance(body.get("usage"), dict):
        out["usage"] = usage_to_chat(body["usage"])
    return out


def _call(use: Json) -> Json:
    function = {"name": original(str(use.get("name") or "")), "arguments": dumps(mapping(use.get("input"))).decode()}
    return {"id": use.get("toolUseId") or f"call_{uuid4().hex}", "type": "function", "function": function}


def _carrier(thought: Mapping[str, Any]) -> Json | None:
    """Signed or redacted reasoning as a thinking block; None for what is not signed."""
    if isinstance(thought.get("redactedContent"), str) and thought["redactedContent"]:
        return {"type": "redacted_thinking", "data": thought["redactedContent"]}
    if isinstance(thought.get("signature"), str) and thought["signature"]:
        return {"type": "thinking", "thinking": thought.get("text") or "", "signature": thought["signature"]}
    return None


def finish_reason(stop_reason: Any, called: bool) -> str:
    """The chat finish reason. Raises UpstreamError where the model's output could not be read."""
    if stop_reason in _FAILED:
        message = f"the provider ended its answer with stopReason {stop_reason}"
        raise UpstreamError("protocol", message, error={"message": message, "type": None, "code": stop_reason, "param": None})
    finish = _FINISH.get(stop_reason, "stop") if isinstance(stop_reason, str) else "stop"
    return "tool_calls" if called and finish == "stop" else finish


def usage_to_chat(usage: Mapping[str, Any]) -> Json:
    """Chat usage: `prompt_tokens` holds what was read from and written to the cache, which `inputTokens` leaves out."""
    read, written = _count(usage, "cacheReadInputTokens"), _count(usage, "cacheWriteInputTokens")
    prompt, completion = _count(usage, "inputTokens") + read + written, _count(usage, "outputTokens")
    out: Json = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    if "cacheReadInputTokens" in usage or written:
        out["prompt_tokens_details"] = {"cached_tokens": read, **({"cache_write_tokens": written} if written else {})}
    return out


def _count(usage: Mapping[str, Any], key: str) -> int:
    value = usage.get(key)
    return value if isinstance(value, int) else 0


class Reader:
    """Turns the events of a Converse stream into chat chunks.

    `feed` takes one event: its type as name, its payload. `finish` gives what is left when the
    stream is over. The finish reason waits for the usage behind it; `done`: both came, or the
    stream ended after the first. Raises UpstreamError for an exception.
    """

    def __init__(self, model: str) -> None:
        self.done = False
        self._head: Json = {"id": chat_id(None), "object": "chat.completion.chunk", "created": int(time.time()), "model": model}
        self._calls: dict[int, int] = {}  # block -> call
        self._silent: set[int] = set()  # blocks of calls that have no arguments so far
        self._thoughts: dict[int, Json] = {}
        self._signed = 0
        self._finish: str | None = None

    def feed(self, name: str | None, data: bytes) -> list[Json]:
        event = _parse(name, data)
        index = event.get("contentBlockIndex")
        block = index if isinstance(index, int) else 0
        if name == "contentBlockDelta":
            return self._delta(block, mapping(event.get("delta")))
        if name == "contentBlockStart":
            return self._start(block, mapping(event.get("start")))
        if name == "contentBlockStop":
            return self._stop(block)
        if name == "messageStart":
            return [self._chunk({"role": "assistant", "content": ""})]
        if name == "messageStop":
            self._finish = finish_reason(event.get("stopReason"), bool(self._calls))
        if name == "metadata" and self._finish is not None:
            usage = [{**self._head, "choices": [], "usage": usage_to_chat(event["usage"])}] if isinstance(event.get("usage"), dict) else []
            return [*self.finish(), *usage]
        return []

    def finish(self) -> list[Json]:
        chunks = [chunk for block in sorted({*self._silent, *self._thoughts}) for chunk in self._stop(block)]
        if self._finish is not None and not self.done:
            self.done = True
            chunks.append(self._chunk({}, self._finish))
        return chunks

    def _chunk(self, delta: Json, finish: str | None = None) -> Json:
        return {**self._head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}

    def _start(self, block: int, start: Json) -> list[Json]:
        use = start.get("toolUse")
        if not isinstance(use, dict):
            return []
        place = self._calls[block] = len(self._calls)
        self._silent.add(block)
        function = {"name": original(str(use.get("name") or "")), "arguments": ""}
        ident = use.get("toolUseId") or f"call_{uuid4().hex}"
        return [self._chunk({"tool_calls": [{"index": place, "id": ident, "type": "function", "function": function}]})]

    def _delta(self, block: int, delta: Json) -> list[Json]:
        if isinstance(delta.get("text"), str):
            return [self._chunk({"content": delta["text"]})] if delta["text"] else []
        if isinstance(delta.get("toolUse"), dict):
            text = delta["toolUse"].get("input")
            return self._arguments(block, text) if isinstance(text, str) and text else []
        return self._thought(block, mapping(delta.get("reasoningContent")))

    def _arguments(self, block: int, text: str) -> list[Json]:
        if block not in self._calls:
            return []
        self._silent.discard(block)
        return [self._chunk({"tool_calls": [{"index": self._calls[block], "function": {"arguments": text}}]})]

    def _thought(self, block: int, thought: Json) -> list[Json]:
        held = self._thoughts.setdefault(block, {"text": ""})
        if isinstance(thought.get("redactedContent"), str):
            held["redactedContent"] = held.get("redactedContent", "") + thought["redactedContent"]
        if isinstance(thought.get("signature"), str):
            held["signature"] = held.get("signature", "") + thought["signature"]
        text = thought.get("text")
        if not isinstance(text, str) or not text:
            return []
        held["text"] += text
        return [self._chunk({"reasoning_content": text})]

    def _stop(self, block: int) -> list[Json]:
        if block in self._silent:
            return self._arguments(block, "{}")
        carrier = _carrier(self._thoughts.pop(block, {}))
        if carrier is None:
            return []
        if self._signed:
            carrier["index"] = self._signed  # keeps accumulators from joining two blocks into one
        self._signed += 1
        return [self._chunk({"thinking_blocks": [carrier]})]


def _parse(name: str | None, data: bytes) -> Json:
    """The payload of an event. Raises UpstreamError if the event is an exception."""
    event = mapping(read_event(data))
    if name in _STATUSES or (name or "").endswith(("Exception", "Error", "error")):
        message = event.get("message") or event.get("Message") or event.get("originalMessage")
        error = {"message": quote(str(message), ()) if message else name, "type": name, "code": name}
        raise failures.classify(_STATUSES.get(name or "", 500), {}, {"error": error}).failure()
    return event
