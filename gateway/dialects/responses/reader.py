"""Responses stream -> chat chunks, and the watch over a stream that stays one.

Events are told apart by `type` in their data. Servers leave much of the protocol out
(llama.cpp: sequence_number, output_index, content_index, 2026-11), so an item is found by
what the event says of it, and what came in no delta is taken from the `done` events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway import failures
from gateway.chat import Json
from gateway.dialects.events import read_event
from gateway.dialects.responses.answer import chat_call, filled, head
from gateway.dialects.responses.carriers import to_details
from gateway.dialects.responses.parts import chat_annotations
from gateway.dialects.responses.terms import Event, finish_reason, listed, mapping, text_of, usage_to_chat
from gateway.dialects.responses.tools import as_arguments
from gateway.dialects.responses.writer import Writer

_TERMINAL = ("response.completed", "response.incomplete")
_TEXT_DELTAS = {
    "response.output_text.delta": "content",
    "response.refusal.delta": "refusal",
    "response.reasoning_text.delta": "thought",
    "response.reasoning_summary_text.delta": "thought",
}
_CALL_DELTAS = ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta")
_CALLS = ("function_call", "custom_tool_call")


class _Item:
    """One output item as far as it has come. `sent`: what of it went out; `part`: the part that the last delta belonged to."""

    __slots__ = ("call", "closed", "kind", "part", "sent", "source")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.sent: list[str] = []
        self.part: Any = None
        self.source = ""
        self.call: int | None = None
        self.closed = False


class Reader:
    """Turns the events of a Responses stream into chat chunks.

    `feed` takes one event, `finish` gives what is left when the stream is over. `done`: the
    answer came to a proper end. Raises UpstreamError for an error event.
    """

    def __init__(self, model: str) -> None:
        self.done = False
        self._model = model
        self._head: Json | None = None
        self._items: dict[Any, _Item] = {}
        self._order: list[_Item] = []
        self._last: _Item | None = None
        self._calls = 0
        self._details = 0
        self._spoke: dict[str, bool] = {}
        self._notes: list[Json] = []

    def feed(self, name: str | None, data: bytes) -> list[Json]:
        event = parse_event(data)
        if event is None or self.done:
            return []
        kind = str(event.get("type") or name)
        if not kind.startswith("response."):
            return []
        chunks = self._start(mapping(event.get("response")))
        if kind in _TEXT_DELTAS:
            chunks += self._text(event, kind)
        elif kind in _CALL_DELTAS:
            chunks += self._arguments(event)
        elif kind == "response.output_item.added":
            chunks += self._added(event)
        elif kind == "response.output_item.done":
            chunks += self._done(self._find(event, mapping(event.get("item"))), mapping(event.get("item")))
        elif kind in _TERMINAL:
            chunks += self._end(mapping(event.get("response")), kind)
        return chunks

    def finish(self) -> list[Json]:
        return []

    def _start(self, response: Json) -> list[Json]:
        if self._head is not None:
            return []
        self._head = {**head(response, self._model), "object": "chat.completion.chunk"}
        return [self._chunk({"role": "assistant", "content": ""})]

    def _chunk(self, delta: Json, finish: str | None = None, logprobs: Json | None = None) -> Json:
        return {**(self._head or {}), "choices": [{"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}]}

    def _find(self, event: Mapping[str, Any], item: Mapping[str, Any], kind: str | None = None) -> _Item:
        """The item that an event is about: by id, by place, else the latest of its kind."""
        ident, place = text_of(event.get("item_id")) or text_of(item.get("id")) or None, event.get("output_index")
        place = place if isinstance(place, int) else None
        for key in (("id", ident), ("index", place)):
            if key[1] is not None and key in self._items:
                return self._items[key]
        kind = kind or str(item.get("type"))
        if ident is None and place is None and self._last is not None and self._last.kind == kind and not self._last.closed:
            return self._last
        found = self._last = _Item(kind)
        self._order.append(found)
        for key in (("id", ident), ("index", place)):
            if key[1] is not None:
                self._items[key] = found
        return found

    def _added(self, event: Json) -> list[Json]:
        item = mapping(event.get("item"))
        if self._last is not None and event.get("output_index") is None and not item.get("id"):
            self._last = None  # an item without a name is a new one
        found = self._find(event, item)
        return self._open(found, item)

    def _open(self, found: _Item, item: Json) -> list[Json]:
        """Announce a call as soon as its name is known."""
        if found.kind not in _CALLS or found.call is not None or not item.get("name"):
            return []
        found.call, self._calls = self._calls, self._calls + 1
        call = {"index": found.call, **chat_call({**item, "arguments": "", "input": ""})}
        if "function" in call:
            call["function"]["arguments"] = ""
        return [self._chunk({"tool_calls": [call]})]

    def _text(self, event: Json, kind: str) -> list[Json]:
        field = _TEXT_DELTAS[kind]
        found = self._find(event, {}, "reasoning" if field == "thought" else "message")
        found.source = found.source or kind
        if found.source != kind and field == "thought":
            return []  # a summary beside the text itself would say it twice
        part = (event.get("content_index"), event.get("summary_index"))
        between = "\n\n" if field == "thought" and found.sent and part != found.part else ""
        found.part = part
        probabilities = listed(event.get("logprobs"))
        return self._say(found, field, between + text_of(event.get("delta")), {"content": probabilities, "refusal": None} if probabilities else None)

    def _say(self, found: _Item, field: str, text: str, logprobs: Json | None = None) -> list[Json]:
        if not text:
            return []
        # items and thoughts of their own are paragraphs, as in the plain answer
        between = "\n\n" if not found.sent and field != "refusal" and self._spoke.get(field) else ""
        self._spoke[field] = True
        found.sent.append(text)
        return [self._chunk({"reasoning_content" if field == "thought" else field: between + text}, logprobs=logprobs)]

    def _arguments(self, event: Json) -> list[Json]:
        kind = "custom_tool_call" if "custom" in str(event.get("type")) else "function_call"
        found, text = self._find(event, {}, kind), text_of(event.get("delta"))
        found.sent.append(text)
        return [self._more(found, text)] if text and found.call is not None else []

    def _more(self, found: _Item, text: str) -> Json:
        piece = {"custom": {"input": text}} if found.kind == "custom_tool_call" else {"function": {"arguments": text}}
        return self._chunk({"tool_calls": [{"index": found.call, **piece}]})

    def _done(self, found: _Item, item: Json) -> list[Json]:
        """The whole item: what of it came in no delta goes out now."""
        if found.closed:
            return []
        found.closed = True
        if found.kind in _CALLS:
            return self._call_done(found, item)
        chunks: list[Json] = []
        parts = listed(item.get("content"))
        if found.kind == "message":
            self._notes += chat_annotations(parts)
            if not found.sent:
                chunks += self._say(found, "content", "".join(text_of(part.get("text")) for part in parts))
                chunks += self._say(found, "refusal", "".join(text_of(part.get("refusal")) for part in parts))
        elif found.kind == "reasoning":
            chunks += self._reasoning_done(found, item)
        return chunks

    def _call_done(self, found: _Item, item: Json) -> list[Json]:
        announced = found.call is not None
        chunks = self._open(found, item)
        whole = text_of(item.get("input")) if found.kind == "custom_tool_call" else as_arguments(item.get("arguments"))
        sent = "".join(found.sent) if announced else ""
        rest = whole[len(sent) :] if whole.startswith(sent) else ""
        if found.call is None:
            return chunks
        return [*chunks, self._more(found, rest)] if rest else chunks

    def _reasoning_done(self, found: _Item, item: Json) -> list[Json]:
        chunks: list[Json] = []
        if not found.sent:
            texts = [text_of(part.get("text")) for part in listed(item.get("content"))]
            texts = [text for text in texts if text] or [text for part in listed(item.get("summary")) if (text := text_of(part.get("text")))]
            chunks += self._say(found, "thought", "\n\n".join(texts))
        details = to_details(item, self._details)
        self._details += len(details)
        return [*chunks, self._chunk({"reasoning_details": details})] if details else chunks

    def _placed(self, place: int, item: Json) -> _Item:
        """The item at a place of the whole answer; its id may be missing, or another one than before."""
        known = ("id", text_of(item.get("id"))) in self._items
        if not known and ("index", place) not in self._items and place < len(self._order) and self._order[place].kind == item.get("type"):
            return self._order[place]
        return self._find({"output_index": place}, item)

    def _end(self, response: Json, kind: str) -> list[Json]:
        self.done = True
        chunks: list[Json] = []
        for place, item in enumerate(listed(response.get("output"))):
            # a server that sends no deltas, or no item events at all
            chunks += self._done(self._placed(place, item), item)
        if self._notes:
            chunks.append(self._chunk({"annotations": self._notes}))
        chunks.append(self._chunk({}, finish_reason({**response, "status": kind.removeprefix("response.")}, bool(self._calls))))
        if isinstance(response.get("usage"), dict):
            chunks.append({**(self._head or {}), "choices": [], "usage": usage_to_chat(response["usage"])})
        return chunks


class Native:
    """Watches a Responses stream that goes to the client as it is, or mends it where its server leaves fields out.

    done         a proper end was seen
    has_content  something for the client was seen
    usage        in chat form, once it was told
    response     the whole answer of the last event, to be stored
    name         the last event's name, for its `event:` line
    instead      None: pass the event on as it came; else the events to send in its place

    A stream that does not begin with a numbered `response.created` that has an `output` is
    written anew from what it says, provided that the client's `request` was given: the SDKs
    fail on such streams (openai-python 3.57, openai-node 6.49).
    """

    def __init__(self, request: Json | None = None) -> None:
        self.done = False
        self.has_content = False
        self.usage: Json | None = None
        self.response: Json | None = None
        self.name: str | None = None
        self.instead: list[Event] | None = None
        self._request = request
        self._begun = False
        self._reader: Reader | None = None
        self._writer: Writer | None = None

    def look(self, name: str | None, data: bytes) -> bool:
        """Whether this event carries content. Raises UpstreamError for an error event."""
        if self._writer is None and self.has_content and name in _TEXT_DELTAS and data.endswith(b"}"):
            self.name = name  # the many events of a running answer need no reading
            return True
        event = parse_event(data)
        self.name = str(event["type"]) if event is not None and event.get("type") else name
        if event is None:
            self.instead = [] if self._writer is not None else None
            return False
        if not self._begun and str(event.get("type")).startswith("response."):
            self._begin(event)
        content = _says(event)
        self.has_content = self.has_content or content
        if event.get("type") in _TERMINAL:
            self._end(mapping(event.get("response")))
        if self._reader is not None and self._writer is not None:
            self._mend(self._reader, self._writer, name, data)
        return content

    def _begin(self, event: Json) -> None:
        self._begun = True
        response = mapping(event.get("response"))
        sound = event.get("type") == "response.created" and isinstance(event.get("sequence_number"), int)
        if self._request is not None and not (sound and isinstance(response.get("output"), list) and response.get("id")):
            self._reader, self._writer = Reader(text_of(response.get("model"))), Writer(self._request)

    def _end(self, response: Json) -> None:
        self.done = True
        self.response = response
        if isinstance(response.get("usage"), dict):
            self.usage = usage_to_chat(response["usage"])

    def _mend(self, reader: Reader, writer: Writer, name: str | None, data: bytes) -> None:
        self.instead = [event for chunk in reader.feed(name, data) for event in writer.feed(chunk)]
        if reader.done and writer.response is None:
            self.instead += writer.finish()
            self.response = writer.response


def _says(event: Json) -> bool:
    kind = event.get("type")
    if kind in _TEXT_DELTAS or kind in _CALL_DELTAS:
        return bool(event.get("delta"))
    item = mapping(event.get("item"))
    if kind == "response.output_item.added":
        return item.get("type") not in ("message", "reasoning", None)
    if kind == "response.output_item.done":
        return filled(item)
    return kind in _TERMINAL and any(filled(item) for item in listed(mapping(event.get("response")).get("output")))


def parse_event(data: bytes) -> Json | None:
    """The event's object; None for what is none, such as a trailing `[DONE]`. Raises UpstreamError for an error event and for one that breaks off."""
    event = read_event(data)
    if not isinstance(event, dict):
        return None
    kind = event.get("type")
    if kind is not None and not isinstance(kind, str):
        return None
    if event.get("error") is not None or kind in ("error", "response.failed", "response.error") or kind is None:
        verdict = failures.in_stream_error(event)
        if verdict is not None:
            raise verdict.failure()
    return event
