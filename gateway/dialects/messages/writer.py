"""Chat chunks -> Messages stream.

A Messages stream has one open block at a time and closes each for good, while chat may go
back and forth between texts and calls. So what the answer holds is a line of segments: the
first is open and streams, the others wait. A text or thought gives way to the next segment
at once, a call only when its arguments are complete.
"""

from __future__ import annotations

import re
from typing import Any

from gateway.chat import Json
from gateway.dialects.messages.answer import stop_sequence, tool_id
from gateway.dialects.messages.carriers import signed_blocks
from gateway.dialects.messages.terms import opening, stop_reason, stream_error, usage_from_chat

Event = tuple[str | None, Json]

_DELTA = {"text": ("text_delta", "text"), "thinking": ("thinking_delta", "thinking"), "tool_use": ("input_json_delta", "partial_json")}
_BRACKETS = re.compile(r'[{}\[\]"\\]')


class _Segment:
    """One block of the answer. `waiting`: what was not sent yet; `text`: all of a thought's text; `sealed`: nothing may follow in it."""

    __slots__ = ("block", "closed", "index", "kind", "sealed", "shape", "signature", "text", "waiting")

    def __init__(self, block: Json) -> None:
        self.block = block
        self.kind: str = block["type"]
        self.index = -1
        self.waiting = ""
        self.text = ""
        self.signature = ""
        self.sealed = self.kind == "redacted_thinking"
        self.closed = False
        self.shape = _Shape()

    def put(self, text: str) -> None:
        self.waiting += text
        if self.kind == "thinking":
            self.text += text
        elif self.kind == "tool_use":
            self.shape.add(text)

    def complete(self) -> bool:
        return self.kind != "tool_use" or self.shape.complete()


class _Shape:
    """Tells whether JSON text that comes in pieces is a whole object yet; reads it only when asked, each piece once."""

    __slots__ = ("_depth", "_pieces", "_quoted", "_started")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._depth = 0
        self._quoted = False
        self._started = False

    def add(self, text: str) -> None:
        self._pieces.append(text)

    def complete(self) -> bool:
        text = "".join(self._pieces)
        at, end = 0, len(text)
        while at < end and (found := _BRACKETS.search(text, at)):
            sign, at = found[0], found.end()
            if sign == "\\":
                at += 1
            elif sign == '"':
                self._quoted = not self._quoted
            elif not self._quoted:
                self._started = True
                self._depth += 1 if sign in "{[" else -1
        self._pieces = ["\\"] if at > end else []  # an escape cut in two is read again with its other half
        return self._started and self._depth <= 0 and not self._quoted


class Writer:
    """Turns chat chunks into the events of a Messages stream.

    `request` is the client's Messages request. `feed` takes one parsed chunk, `finish` gives
    the end of a clean answer, `fail` the error event. Only the first choice is read.
    """

    def __init__(self, request: Json) -> None:
        self._request = request
        self._started = False
        self._open: _Segment | None = None
        self._line: list[_Segment] = []
        self._calls: dict[int, _Segment] = {}
        self._blocks = 0
        self._usage: Json | None = None
        self._finish: str | None = None
        self._stop: str | None = None
        self._refused = False

    def feed(self, chunk: Json) -> list[Event]:
        events = [] if self._started else self._begin(chunk)
        if chunk.get("usage"):
            self._usage = chunk["usage"]
        for choice in chunk.get("choices") or ():
            if choice.get("index"):
                continue
            if choice.get("delta"):
                self._take(choice["delta"])
                events += self._advance()
            if choice.get("finish_reason"):
                self._finish = choice["finish_reason"]
                self._stop = stop_sequence(choice, self._request)
        return events

    def finish(self) -> list[Event]:
        events = [] if self._started else self._begin({})
        events += self._advance(over=True)
        reason = "refusal" if self._refused else stop_reason(self._finish, bool(self._calls))
        if self._stop is not None and reason == "end_turn":
            reason = "stop_sequence"
        delta = {"stop_reason": reason, "stop_sequence": self._stop if reason == "stop_sequence" else None}
        events.append(("message_delta", {"type": "message_delta", "delta": delta, "usage": usage_from_chat(self._usage)}))
        events.append(("message_stop", {"type": "message_stop"}))
        return events

    def fail(self, error: Json) -> list[Event]:
        return [("error", stream_error(error))]

    def _begin(self, chunk: Json) -> list[Event]:
        self._started = True
        message = opening(chunk.get("id"), chunk.get("model") or self._request.get("model"), chunk.get("usage"))
        return [("message_start", {"type": "message_start", "message": message})]

    def _take(self, delta: Json) -> None:
        thought = delta.get("reasoning_content")
        blocks = signed_blocks({"thinking_blocks": delta["thinking_blocks"]}) if delta.get("thinking_blocks") else []
        if isinstance(thought, str) and thought and not self._covered(thought, blocks):
            self._segment("thinking").put(thought)
        for block in blocks:
            self._take_block(block)
        if delta.get("reasoning_details") and not blocks:
            self._take_details(delta["reasoning_details"])
        for field in ("content", "refusal"):
            text = delta.get(field)
            if isinstance(text, str) and text:
                self._refused = self._refused or field == "refusal"
                self._segment("text").put(text)
        for call in delta.get("tool_calls") or ():
            self._take_call(call)

    def _last(self) -> _Segment | None:
        return self._line[-1] if self._line else self._open

    def _segment(self, kind: str) -> _Segment:
        """The segment that a piece of this kind goes on with."""
        last = self._last()
        if last is not None and last.kind == kind and not last.sealed:
            return last
        return self._add({"type": kind, kind: "", **({"signature": ""} if kind == "thinking" else {})})

    def _add(self, block: Json) -> _Segment:
        self._line.append(_Segment(block))
        return self._line[-1]

    def _covered(self, thought: str, blocks: list[Json]) -> bool:
        """Whether the signed blocks of the same delta say the thought already."""
        last = self._last()
        before = last.text if last is not None and last.kind == "thinking" and not last.sealed else ""
        whole = "".join(block.get("thinking", "") for block in blocks)
        return bool(blocks) and (whole.startswith(before + thought) or whole.startswith(thought))

    def _take_block(self, block: Json) -> None:
        if block["type"] == "redacted_thinking":
            self._add(block)
            return
        text: str = block["thinking"]
        last = self._last()
        if last is None or last.kind != "thinking" or last.sealed or not text.startswith(last.text):
            last = self._add({"type": "thinking", "thinking": "", "signature": ""})
        last.put(text[len(last.text) :])
        last.signature, last.sealed = block["signature"], True

    def _take_details(self, details: Any) -> None:
        """OpenRouter's form: the text came as `reasoning_content`, so only what is signed counts here."""
        for block in signed_blocks({"reasoning_details": details}):
            if block["type"] == "redacted_thinking":
                self._add(block)
            else:
                segment = self._segment("thinking")
                segment.signature, segment.sealed = block["signature"], True

    def _take_call(self, call: Json) -> None:
        index, ident = call.get("index"), call.get("id")
        place = index if isinstance(index, int) else len(self._calls) if ident else len(self._calls) - 1
        segment = self._calls.get(place)
        if segment is None:
            segment = self._calls[place] = self._add({"type": "tool_use", "id": ident or tool_id(), "name": "", "input": {}})
        function = call.get("function") or {}
        if function.get("name") and not segment.block["name"]:
            segment.block["name"] = function["name"]
        if function.get("arguments") and not segment.closed:
            segment.put(function["arguments"])

    def _advance(self, over: bool = False) -> list[Event]:
        """Send what can be sent; `over`: nothing more comes, so nothing is waited for."""
        events: list[Event] = []
        while True:
            if self._open is None:
                if not self._line or not (over or self._line[0].kind != "tool_use" or self._line[0].block["name"]):
                    return events
                self._open = self._line.pop(0)
                self._open.index, self._blocks = self._blocks, self._blocks + 1
                events.append(_event("content_block_start", self._open.index, "content_block", self._open.block))
            segment = self._open
            if segment.waiting:
                kind, field = _DELTA[segment.kind]
                events.append(_event("content_block_delta", segment.index, "delta", {"type": kind, field: segment.waiting}))
                segment.waiting = ""
            if not (over or segment.sealed or (self._line and segment.complete())):
                return events
            if segment.signature or segment.kind == "thinking":  # an empty one too: Vercel drops thinking without (ai 6, 2026-11)
                events.append(_event("content_block_delta", segment.index, "delta", {"type": "signature_delta", "signature": segment.signature}))
            events.append(("content_block_stop", {"type": "content_block_stop", "index": segment.index}))
            segment.closed, self._open = True, None


def _event(name: str, index: int, field: str, value: Json) -> Event:
    return name, {"type": name, "index": index, field: value}
