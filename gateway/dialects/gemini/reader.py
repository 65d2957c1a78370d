"""Gemini stream -> chat chunks. Each event is a whole answer's form with a piece of its content."""

from __future__ import annotations

import time

from gateway import failures
from gateway.chat import Json
from gateway.dialects.events import read_event
from gateway.dialects.gemini.answer import beside, said
from gateway.dialects.gemini.terms import choice_index, finish_reason, refuse_blocked, usage_to_chat
from gateway.dialects.messages.terms import chat_id, listed


class Reader:
    """Turns the events of a Gemini stream into chat chunks.

    `feed` takes one event, `finish` gives what is left when the stream is over. `done`: every
    candidate came to its end. Raises UpstreamError for an error event, a blocked prompt and an
    answer that failed.
    """

    def __init__(self, model: str) -> None:
        self.done = False
        self._head: Json = {"id": chat_id(None), "object": "chat.completion.chunk", "created": int(time.time()), "model": model}
        self._named = False
        self._calls: dict[int, int] = {}
        self._open: set[int] = set()
        self._ended: set[int] = set()
        self._usage: Json | None = None
        self._accounted = False

    def feed(self, name: str | None, data: bytes) -> list[Json]:
        event = _parse(data)
        if event is None:
            return []
        refuse_blocked(event)
        if not self._named and event.get("responseId"):
            self._named = True
            self._head["id"] = chat_id(event["responseId"])
            self._head["model"] = event.get("modelVersion") or self._head["model"]
        if isinstance(event.get("usageMetadata"), dict):
            self._usage = event["usageMetadata"]  # each event's counts are those so far
        chunks = [chunk for candidate in listed(event.get("candidates")) if (chunk := self._chunk(candidate))]
        if self._ended and not self._open:
            self.done = True
            chunks += self.finish()
        return chunks

    def finish(self) -> list[Json]:
        if self._usage is None or self._accounted:
            return []
        self._accounted = True
        return [{**self._head, "choices": [], "usage": usage_to_chat(self._usage)}]

    def _chunk(self, candidate: Json) -> Json | None:
        index = choice_index(candidate)
        began = index not in self._open and index not in self._ended
        if index not in self._ended:
            self._open.add(index)
        delta: Json = {"role": "assistant"} if began else {}
        delta |= said(candidate).fields()
        for call in delta.get("tool_calls") or ():
            place = self._calls.get(index, 0)
            self._calls[index] = place + 1
            call["index"] = place
        finish = finish_reason(candidate, index in self._calls) if index in self._open else None
        if finish:
            self._open.discard(index)
            self._ended.add(index)
        extra = beside(candidate)
        if not delta and not finish and not extra:
            return None
        return {**self._head, "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": finish, **extra}]}


def _parse(data: bytes) -> Json | None:
    """The event's object; None for what is none. Raises UpstreamError for an error event and for one that breaks off."""
    event = read_event(data)
    if isinstance(event, list) and event:  # an error may come wrapped in an array
        event = event[0]
    if not isinstance(event, dict):
        return None
    if event.get("error") is not None:
        verdict = failures.in_stream_error(event)
        if verdict is not None:
            raise verdict.failure()
    return event
