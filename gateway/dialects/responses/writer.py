"""Chat chunks -> Responses stream.

Every output item has its own place and a lifetime of events: added, deltas, done. Items come
one after the other, as from OpenAI; only calls whose arguments a provider sends in turns are
open side by side.
"""

from __future__ import annotations

import time
from typing import Any

from gateway.chat import Accumulator, Json, loads
from gateway.dialects.responses.answer import blank, text_part
from gateway.dialects.responses.carriers import carriers_of, reasoning_item
from gateway.dialects.responses.parts import own_annotations
from gateway.dialects.responses.terms import Event, ending, error_event, listed, mapping, mint, response_error, text_of, usage_from_chat
from gateway.dialects.responses.tools import as_arguments, custom_names, free_input


class _Thought:
    """The open reasoning item."""

    __slots__ = ("carriers", "extras", "ident", "pieces", "place")

    def __init__(self, place: int) -> None:
        self.ident = mint("rs")
        self.place = place
        self.pieces: list[str] = []
        self.carriers = Accumulator()
        self.extras: Json = {}

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def item(self) -> Json:
        message: Json = next((choice["message"] for choice in self.carriers.completion()["choices"]), {})
        return reasoning_item(self.text, {**carriers_of(message), **({"extra_content": self.extras} if self.extras else {})}, self.ident)


class _Message:
    """The open message item; `parts` are the finished ones, `kind` and `pieces` are of the open one."""

    __slots__ = ("ident", "kind", "logprobs", "notes", "parts", "pieces", "place")

    def __init__(self, place: int) -> None:
        self.ident = mint("msg")
        self.place = place
        self.parts: list[Json] = []
        self.kind = ""
        self.pieces: list[str] = []
        self.logprobs: list[Json] = []
        self.notes: list[Json] = []

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def part(self) -> Json:
        if self.kind == "refusal":
            return {"type": "refusal", "refusal": self.text}
        return text_part(self.text, self.logprobs, list(self.notes))

    def item(self, status: str) -> Json:
        return {"type": "message", "id": self.ident, "role": "assistant", "status": status, "content": list(self.parts)}


class _Call:
    """A call item. `free`: the client waits for free text; `wrapped`: which comes as the argument of a function."""

    __slots__ = ("closed", "free", "ident", "name", "pieces", "place", "wrapped")

    def __init__(self, place: int, ident: str, name: str, free: bool, wrapped: bool) -> None:
        self.place = place
        self.ident = ident
        self.name = name
        self.free = free
        self.wrapped = wrapped
        self.pieces: list[str] = []
        self.closed = False

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def item(self, item_id: str, status: str) -> Json:
        kind, field = ("custom_tool_call", "input") if self.free else ("function_call", "arguments")
        text = self.whole() if status == "completed" else ""
        return {"type": kind, "id": item_id, "call_id": self.ident, "name": self.name, field: text, "status": status}

    def whole(self) -> str:
        if self.free:
            return free_input(as_arguments(self.text)) if self.wrapped else self.text
        return as_arguments(self.text)

    def complete(self) -> bool:
        """Whether the arguments are a whole JSON object, so that no more of them is to be expected."""
        if self.free and not self.wrapped:
            return True
        try:
            return isinstance(loads(self.text), dict)
        except ValueError:
            return False


class Writer:
    """Turns chat chunks into the events of a Responses stream.

    `request` is the client's Responses request. `feed` takes one parsed chunk, `finish` gives
    the end of a clean answer, `fail` that of a failed one; `response` is the whole answer from
    then on. Only the first choice is read. Ids are made once and stay.
    """

    def __init__(self, request: Json) -> None:
        self.response: Json | None = None
        self._request = request
        self._customs = custom_names(request)
        self._number = 0
        self._blank: Json | None = None
        self._items: dict[int, Json] = {}
        self._places = 0
        self._thought: _Thought | None = None
        self._message: _Message | None = None
        self._calls: dict[int, tuple[_Call, str]] = {}
        self._unnamed: dict[int, Json] = {}
        self._extras: Json = {}
        self._usage: Json | None = None
        self._finish: str | None = None

    def feed(self, chunk: Json) -> list[Event]:
        events = self._begin(chunk)
        if chunk.get("usage"):
            self._usage = chunk["usage"]
        for choice in listed(chunk.get("choices")):
            if not choice.get("index"):
                events += self._take(mapping(choice.get("delta")), choice)
                self._finish = choice.get("finish_reason") or self._finish
        return events

    def finish(self) -> list[Event]:
        """The events that end a clean answer."""
        events = self._begin({})
        end = ending(self._finish)
        events += self._close_all(end["status"])
        self.response = {**self._snapshot(), **end, "usage": usage_from_chat(self._usage)}
        if end["status"] == "completed":
            self.response["completed_at"] = int(time.time())
        return [*events, self._event(f"response.{end['status']}", response=self.response)]

    def fail(self, error: Json) -> list[Event]:
        """An `error` event, which openai-node reads, and `response.failed`, which Codex reads."""
        events = self._begin({})
        events.append(self._event("error", **{key: value for key, value in error_event(error).items() if key != "type"}))
        self.response = {**self._snapshot(), "status": "failed", "error": response_error(error), "usage": usage_from_chat(self._usage)}
        return [*events, self._event("response.failed", response=self.response)]

    def _event(self, kind: str, **fields: Any) -> Event:
        self._number += 1
        return kind, {"type": kind, **fields, "sequence_number": self._number - 1}

    def _begin(self, chunk: Json) -> list[Event]:
        if self._blank is not None:
            return []
        self._blank = blank(self._request, chunk)
        return [self._event(kind, response=self._snapshot()) for kind in ("response.created", "response.in_progress")]

    def _snapshot(self) -> Json:
        return {**(self._blank or {}), "output": [self._items[place] for place in sorted(self._items)]}

    def _take(self, delta: Json, choice: Json) -> list[Event]:
        events: list[Event] = []
        if text := text_of(delta.get("reasoning_content")):
            events += self._think(text)
        if carried := {key: delta[key] for key in ("thinking_blocks", "reasoning_details") if delta.get(key)}:
            events += self._open_thought()
            assert self._thought is not None
            self._thought.carriers.add({"choices": [{"delta": carried}]})
        if text := text_of(delta.get("content")):
            events += self._say("output_text", text, listed(mapping(choice.get("logprobs")).get("content")))
        if text := text_of(delta.get("refusal")):
            events += self._say("refusal", text, [])
        if delta.get("annotations"):
            events += self._cite(own_annotations(delta["annotations"]))
        for call in listed(delta.get("tool_calls")):
            events += self._call(call)
        return events

    # --- reasoning

    def _open_thought(self) -> list[Event]:
        if self._thought is not None:
            return []
        events = self._settle()
        self._thought = _Thought(self._place())
        return [*events, self._added(self._thought.place, {"type": "reasoning", "id": self._thought.ident, "summary": []})]

    def _think(self, text: str) -> list[Event]:
        events = self._open_thought()
        thought = self._thought
        assert thought is not None
        where: Json = {"item_id": thought.ident, "output_index": thought.place, "summary_index": 0}
        if not thought.pieces:
            events.append(self._event("response.reasoning_summary_part.added", **where, part={"type": "summary_text", "text": ""}))
        thought.pieces.append(text)
        return [*events, self._event("response.reasoning_summary_text.delta", **where, delta=text)]

    def _close_thought(self) -> list[Event]:
        thought, self._thought = self._thought, None
        if thought is None:
            return []
        events: list[Event] = []
        if thought.pieces:
            where: Json = {"item_id": thought.ident, "output_index": thought.place, "summary_index": 0}
            events.append(self._event("response.reasoning_summary_text.done", **where, text=thought.text))
            events.append(self._event("response.reasoning_summary_part.done", **where, part={"type": "summary_text", "text": thought.text}))
        return [*events, self._done(thought.place, thought.item())]

    # --- text and refusal

    def _say(self, kind: str, text: str, logprobs: list[Json]) -> list[Event]:
        events: list[Event] = []
        if self._message is None:
            events += self._settle()
            self._message = _Message(self._place())
            events.append(self._added(self._message.place, self._message.item("in_progress")))
        message = self._message
        if message.kind != kind:
            events += self._close_part(message)
            message.kind = kind
            events.append(self._event("response.content_part.added", **self._where(message), part=message.part()))
        message.pieces.append(text)
        entries = text_part("", logprobs, [])["logprobs"]
        message.logprobs += entries
        extra = {"logprobs": entries} if kind == "output_text" else {}
        return [*events, self._event(f"response.{kind}.delta", **self._where(message), delta=text, **extra)]

    def _cite(self, notes: list[Json]) -> list[Event]:
        message = self._message
        if message is None or message.kind != "output_text":
            return []
        events = []
        for note in notes:
            place = len(message.notes)
            events.append(self._event("response.output_text.annotation.added", **self._where(message), annotation_index=place, annotation=note))
            message.notes.append(note)
        return events

    @staticmethod
    def _where(message: _Message) -> Json:
        return {"item_id": message.ident, "output_index": message.place, "content_index": len(message.parts)}

    def _close_part(self, message: _Message) -> list[Event]:
        if not message.kind:
            return []
        part, where = message.part(), self._where(message)
        whole: Json = {"refusal": message.text} if message.kind == "refusal" else {"text": message.text, "logprobs": message.logprobs}
        events = [self._event(f"response.{message.kind}.done", **where, **whole), self._event("response.content_part.done", **where, part=part)]
        message.parts.append(part)
        message.kind, message.pieces, message.logprobs, message.notes = "", [], [], []
        return events

    def _close_message(self, status: str) -> list[Event]:
        message, self._message = self._message, None
        if message is None:
            return []
        return [*self._close_part(message), self._done(message.place, message.item(status))]

    # --- calls

    def _call(self, delta: Json) -> list[Event]:
        index = delta.get("index")
        place = index if isinstance(index, int) else len(self._calls) if delta.get("id") else len(self._calls) - 1
        if place in self._calls:
            return self._put(place, delta)
        delta = _merged(self._unnamed.pop(place, {}), delta)
        if _name(delta):
            return [*self._open_call(place, delta), *self._put(place, delta)]
        self._unnamed[place] = delta  # the item cannot be announced before its name is known
        return []

    def _put(self, place: int, delta: Json) -> list[Event]:
        """Arguments, and whatever else comes for an announced call."""
        call, item_id = self._calls[place]
        if delta.get("extra_content"):
            self._extras.setdefault(call.ident, delta["extra_content"])
        text = _arguments(delta)
        if not text or call.closed:
            return []
        call.pieces.append(text)
        if call.free and call.wrapped:
            return []  # half of a JSON text is no free text
        kind = "custom_tool_call_input" if call.free else "function_call_arguments"
        return [self._event(f"response.{kind}.delta", item_id=item_id, output_index=call.place, delta=text)]

    def _open_call(self, place: int, delta: Json) -> list[Event]:
        events: list[Event] = []
        name, ident = _name(delta), text_of(delta.get("id")) or mint("call")
        if delta.get("extra_content"):  # a signature stands before what it signs
            events += self._open_thought()
            assert self._thought is not None
            self._thought.extras[ident] = delta["extra_content"]
            self._extras[ident] = None
        events += self._settle()
        native = isinstance(delta.get("custom"), dict)
        call = _Call(self._place(), ident, name, native or name in self._customs, not native)
        item_id = mint("ctc" if call.free else "fc")
        self._calls[place] = call, item_id
        return [*events, self._added(call.place, call.item(item_id, "in_progress"))]

    def _close_call(self, call: _Call, item_id: str) -> list[Event]:
        if call.closed:
            return []
        call.closed = True
        where: Json = {"item_id": item_id, "output_index": call.place}
        whole, events = call.whole(), []
        if call.free:
            if call.wrapped and whole:
                events.append(self._event("response.custom_tool_call_input.delta", **where, delta=whole))
            events.append(self._event("response.custom_tool_call_input.done", **where, input=whole))
        else:
            if not call.pieces:  # the arguments of the done event must be those of the deltas
                events.append(self._event("response.function_call_arguments.delta", **where, delta=whole))
            events.append(self._event("response.function_call_arguments.done", **where, name=call.name, arguments=whole))
        return [*events, self._done(call.place, call.item(item_id, "completed"))]

    # --- items

    def _place(self) -> int:
        self._places += 1
        return self._places - 1

    def _added(self, place: int, item: Json) -> Event:
        return self._event("response.output_item.added", output_index=place, item=item)

    def _done(self, place: int, item: Json) -> Event:
        self._items[place] = item
        return self._event("response.output_item.done", output_index=place, item=item)

    def _settle(self) -> list[Event]:
        """Close what is open before the next item begins; a call that waits for more of its arguments stays."""
        events = [*self._close_thought(), *self._close_message("completed")]
        for call, item_id in self._calls.values():
            if not call.closed and call.complete():
                events += self._close_call(call, item_id)
        return events

    def _close_all(self, status: str) -> list[Event]:
        events: list[Event] = []
        for place, delta in sorted(self._unnamed.items()):
            events += [*self._open_call(place, delta), *self._put(place, delta)]
        late = {ident: extra for ident, extra in self._extras.items() if extra is not None}
        if late:
            events += self._open_thought()
            assert self._thought is not None
            self._thought.extras |= late
        events += [*self._close_thought(), *self._close_message(status)]
        for call, item_id in self._calls.values():
            events += self._close_call(call, item_id)
        return events


def _name(delta: Json) -> str:
    return text_of(mapping(delta.get("custom") or delta.get("function")).get("name"))


def _arguments(delta: Json) -> str:
    source = mapping(delta.get("custom") or delta.get("function"))
    return text_of(source.get("input")) or text_of(source.get("arguments"))


def _merged(before: Json, delta: Json) -> Json:
    """Two deltas of one call, put together."""
    out = {**before, **{key: value for key, value in delta.items() if value is not None}}
    for key in ("function", "custom"):
        if before.get(key) and delta.get(key):
            one, two = before[key], delta[key]
            texts = {name: text_of(one.get(name)) + text_of(two.get(name)) for name in ("arguments", "input") if name in one or name in two}
            out[key] = {**one, **two, **texts}
    return out
