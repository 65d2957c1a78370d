"""Messages stream -> chat chunks.

Events are told apart by `type` in their data: some relays leave the `event:` line out. A
second `message_start` (a relay that connected anew) ends the blocks that were open.
"""

from __future__ import annotations

import time
from typing import Any

from gateway import failures
from gateway.chat import Json, dumps
from gateway.dialects.events import read_event
from gateway.dialects.messages.answer import refusal_text
from gateway.dialects.messages.carriers import signed
from gateway.dialects.messages.terms import chat_id, finish_reason, mapping, opening, original, usage_to_chat

_OF_A_MESSAGE = ("content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop")
_BLOCK_OF = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "thinking", "input_json_delta": "tool_use"}


class Reader:
    """Turns the events of a Messages stream into chat chunks.

    `feed` takes one event, `finish` gives what is left when the stream is over. `done`: the
    answer came to a proper end. Raises UpstreamError for an error event.
    """

    def __init__(self, model: str) -> None:
        self.done = False
        self._head: Json = {"id": chat_id(None), "object": "chat.completion.chunk", "created": int(time.time()), "model": model}
        self._named = False
        self._blocks: dict[int, Json] = {}
        self._usage: Json = {}
        self._calls = 0
        self._signed = 0
        self._spoke = False
        self._accounted = False

    def feed(self, name: str | None, data: bytes) -> list[Json]:
        event = parse_event(data)
        if event is None:
            return []
        kind = event.get("type")
        if kind == "content_block_delta":
            return self._delta(event)
        if kind == "content_block_start":
            return self._start(event)
        if kind == "content_block_stop":
            return self._stop(_index(event))
        if kind == "message_start":
            return self._message_start(mapping(event.get("message")))
        if kind == "message_delta":
            return self._message_delta(event)
        if kind == "message_stop":
            self.done = True
            return self.finish()
        return []

    def finish(self) -> list[Json]:
        chunks = self._stop_all()
        if self._usage and not self._accounted:
            self._accounted = True
            chunks.append({**self._head, "choices": [], "usage": usage_to_chat(self._usage)})
        return chunks

    def _chunk(self, delta: Json, finish: str | None = None) -> Json:
        return {**self._head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}

    def _message_start(self, message: Json) -> list[Json]:
        self._blocks = {index: block for index, block in self._blocks.items() if block.get("type") == "tool_use"}  # half a signature is none
        chunks = self._stop_all()
        self._usage |= _told(message.get("usage"))
        if self._named:
            return chunks
        self._named = True
        self._head["id"] = chat_id(message.get("id"))
        self._head["model"] = message.get("model") or self._head["model"]
        return [self._chunk({"role": "assistant", "content": ""})]

    def _start(self, event: Json) -> list[Json]:
        index, given = _index(event), mapping(event.get("content_block"))
        chunks = self._stop(index)
        block = self._blocks[index] = {**given, "_args": False}
        kind = block.get("type")
        if kind == "text":
            return chunks + self._say("content", block.get("text"))
        if kind == "thinking":
            block.setdefault("thinking", "")
            return chunks + self._say("reasoning_content", block["thinking"])
        if kind == "tool_use":
            block["_call"], self._calls = self._calls, self._calls + 1
            function = {"name": original(str(block.get("name") or "")), "arguments": ""}
            chunks.append(self._chunk({"tool_calls": [{"index": block["_call"], "id": block.get("id"), "type": "function", "function": function}]}))
        return chunks

    def _delta(self, event: Json) -> list[Json]:
        delta = mapping(event.get("delta"))
        kind, index = str(delta.get("type")), _index(event)
        if index not in self._blocks and kind in ("text_delta", "thinking_delta"):
            self._start({"index": index, "content_block": {"type": _BLOCK_OF[kind]}})  # a relay that sends no start
        block = self._blocks.get(index, {})
        if block.get("type") != _BLOCK_OF.get(kind):
            return []
        if kind == "text_delta":
            return self._say("content", delta.get("text"))
        if kind == "thinking_delta":
            block["thinking"] = f"{block.get('thinking') or ''}{delta.get('thinking') or ''}"
            return self._say("reasoning_content", delta.get("thinking"))
        if kind == "signature_delta":
            block["signature"] = delta.get("signature")  # whole each time: the SDKs replace it too (anthropic 2.14)
        elif kind == "input_json_delta" and delta.get("partial_json"):
            block["_args"] = True
            return [self._arguments(block, delta["partial_json"])]
        return []

    def _say(self, field: str, text: Any) -> list[Json]:
        if not isinstance(text, str) or not text:
            return []
        self._spoke = self._spoke or field == "content"
        return [self._chunk({field: text})]

    def _arguments(self, block: Json, text: str) -> Json:
        return self._chunk({"tool_calls": [{"index": block["_call"], "function": {"arguments": text}}]})

    def _stop_all(self) -> list[Json]:
        return [chunk for index in list(self._blocks) for chunk in self._stop(index)]

    def _stop(self, index: int) -> list[Json]:
        block = self._blocks.pop(index, None)
        if block is None:
            return []
        if block.get("type") == "tool_use" and not block["_args"]:
            # without arguments only empty pieces come; some relays put the whole input into the start
            return [self._arguments(block, dumps(block.get("input") or {}).decode())]
        whole = {key: value for key, value in block.items() if key not in ("_args", "_call")}
        if not signed(whole):
            return []
        if self._signed:
            whole["index"] = self._signed  # keeps accumulators from joining two blocks into one
        self._signed += 1
        return [self._chunk({"thinking_blocks": [whole]})]

    def _message_delta(self, event: Json) -> list[Json]:
        self._usage |= _told(event.get("usage"))
        delta = mapping(event.get("delta"))
        if not delta.get("stop_reason") or self.done:
            return []
        self.done = True
        chunks = self._stop_all()
        refusal = None if self._spoke or self._calls else refusal_text(delta)
        if refusal:
            chunks.append(self._chunk({"refusal": refusal}))
        return [*chunks, self._chunk({}, finish_reason(delta["stop_reason"], bool(self._calls)))]


class Native:
    """Watches a Messages stream that goes to the client as it is.

    `done`: a proper end was seen. `has_content`: something for the client was seen. `usage`:
    in chat form, as far as it was told. `name`: the last event's name for its `event:` line,
    without which the SDKs ignore it (anthropic 2.14, 2026-11) and which some relays leave out.

    `instead`: a stream that does not begin with `message_start` gets one, without which the
    SDKs have no message (llama.cpp leaves it out where the first token is a part of a
    character, such as of an emoji, 2026-11).
    """

    def __init__(self, request: Json | None = None) -> None:
        self.instead: list[tuple[str | None, Json]] | None = None
        self._model = mapping(request).get("model")
        self._begun = self._made = False
        self.done = False
        self.has_content = False
        self.name: str | None = None
        self._usage: Json = {}

    @property
    def usage(self) -> Json | None:
        return usage_to_chat(self._usage) if self._usage else None

    def look(self, name: str | None, data: bytes) -> bool:
        """Whether this event carries content. Raises UpstreamError for an error event."""
        if self.has_content and name == "content_block_delta" and data.endswith(b"}"):
            self.name, self.instead = name, None  # the many events of a running answer need no reading
            return True
        event = parse_event(data)
        kind = event.get("type") if event else None
        self.name = kind if isinstance(kind, str) else name
        self.instead = None
        if event is None:
            return False
        self._begin(kind, event)
        content = False
        if kind == "content_block_delta":
            content = _says(mapping(event.get("delta")))
        elif kind == "content_block_start":
            content = _opens(mapping(event.get("content_block")))
        elif kind == "message_start":
            self._usage |= _told((mapping(event.get("message"))).get("usage"))
        elif kind == "message_delta":
            self._usage |= _told(event.get("usage"))
            reason = (mapping(event.get("delta"))).get("stop_reason")
            self.done = self.done or bool(reason)
            content = reason == "refusal"
        elif kind == "message_stop":
            self.done = True
        self.has_content = self.has_content or content
        return content

    def _begin(self, kind: Any, event: Json) -> None:
        if kind == "message_start":
            self._begun, self.instead = True, [] if self._made else None
        elif not self._begun and kind in _OF_A_MESSAGE:
            self._begun = self._made = True
            self.instead = [("message_start", {"type": "message_start", "message": opening(None, self._model, None)}), (self.name, event)]


def _says(delta: Json) -> bool:
    return any(delta.get(key) for key in ("text", "thinking", "signature", "partial_json"))


def _opens(block: Json) -> bool:
    kind = block.get("type")
    return bool(block.get(kind)) if kind in ("text", "thinking") else kind is not None


def _index(event: Json) -> int:
    index = event.get("index")
    return index if isinstance(index, int) else 0


def _told(usage: Any) -> Json:
    """The counts that a usage object tells; the last event's are final, and null takes nothing back."""
    return {key: value for key, value in usage.items() if value is not None} if isinstance(usage, dict) else {}


def parse_event(data: bytes) -> Json | None:
    """The event's object; None for what is none, such as a relay's `[DONE]`. Raises UpstreamError for an error event and for one that breaks off."""
    event = read_event(data)
    if not isinstance(event, dict):
        return None
    if event.get("error") is not None or event.get("type") == "error" or "type" not in event:
        verdict = failures.in_stream_error(event)
        if verdict is not None:
            raise verdict.failure()
    return event
