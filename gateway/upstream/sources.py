"""What a provider sends, read: an event stream or a plain JSON body, in its own dialect.

A source gives chunks of chat, or, where client and provider speak the same other dialect,
that dialect's events as they came. Hooks see the provider's dialect, before anything else.
`error` is an error inside the stream; `feed` gives what came before it.
"""

from __future__ import annotations

from typing import Any

from gateway import failures
from gateway.adapters import think_tags
from gateway.chat import Accumulator, Chunk, Json, dumps, loads
from gateway.dialects import Native, Reader, chat, dialect
from gateway.dialects.eventstream import Frames
from gateway.errors import UpstreamError
from gateway.sse import Event, Events, Lines
from gateway.upstream.prepared import Prepared

_BODY = 256 * 1024 * 1024
_LAST = frozenset(("message_delta", "message_stop", "response.completed", "response.incomplete"))
"""events behind which nothing more is said"""
_REMEMBERED = frozenset(("tool_calls", "reasoning_content", "reasoning_details", "thinking_blocks"))


class ChatEvents:
    """An event stream -> healthy chat chunks."""

    error: UpstreamError | None = None

    def __init__(self, prepared: Prepared, events: Events | Lines | Frames, include_usage: bool) -> None:
        context = prepared.context
        mode = prepared.options["think_tags"]
        self._events = events
        self._hooks = prepared.hooks
        self._context = context
        self._reader: Reader | None = None if context.dialect == "chat" else dialect(context.dialect).Reader(context.model)
        self._tags = think_tags.ThinkTags(mode) if mode != "off" else None
        self._hooked = prepared.hooks.has("transform_chunk")
        self._direct = self._reader is None and self._tags is None and not self._hooked
        self._turn: Accumulator | None = Accumulator() if prepared.options["reasoning_memory"] else None
        self.healer = chat.ChatStream(context.model, include_usage=include_usage, excludes_reasoning=prepared.options["completion_excludes_reasoning"])

    @property
    def done(self) -> bool:
        return self.healer.done or (self._reader is not None and self._reader.done and self.healer.finished)

    @property
    def finished(self) -> bool:
        return self.healer.finished

    @property
    def has_content(self) -> bool:
        return self.healer.has_content

    @property
    def empty(self) -> bool:
        return self.healer.empty

    @property
    def usage(self) -> Json | None:
        return self.healer.usage

    @property
    def tools(self) -> list[str]:
        return self.healer.tools

    @property
    def turn(self) -> Json | None:
        """What must be remembered of the assistant's turn: its calls and its reasoning."""
        choices = self._turn.completion()["choices"] if self._turn is not None else []
        return choices[0]["message"] if choices else None

    def feed(self, data: bytes) -> list[Chunk]:
        out: list[Chunk] = []
        try:
            for event in self._events.feed(data):
                out += self.healer.feed(event.data, event.name) if self._direct else self._event(event)
        except UpstreamError as error:
            self.error = error
        except ValueError as error:
            self.error = UpstreamError("protocol", f"the answer is not what it should be: {error}")
        if self._turn is not None:
            self._note(self._turn, out)
        return out

    @staticmethod
    def _note(turn: Accumulator, chunks: list[Chunk]) -> None:
        for chunk in chunks:
            for choice in chunk.json().get("choices") or ():
                delta = choice.get("delta") or {}
                if not choice.get("index") and not _REMEMBERED.isdisjoint(delta):
                    turn.add({"choices": [{"index": 0, "delta": {name: value for name, value in delta.items() if name in _REMEMBERED}}]})

    def close(self) -> list[Chunk]:
        out: list[Chunk] = []
        for event in self._events.close():
            out += self._event(event)
        values = self._hooks.finish(self._context) if self._hooks.has("finish") else []
        if self._reader is not None:
            values = [value for given in values for value in self._reader.feed(None, dumps(given))] + self._reader.finish()
        for value in values:
            out += self._healed(value)
        if self._tags is not None:
            for value in self._tags.finish():
                out += self.healer.chunk(value)
        out += self.healer.finish()
        if self._turn is not None:
            self._note(self._turn, out)
        return out

    def _event(self, event: Event) -> list[Chunk]:
        if self.healer.done:
            return []
        data = [event.data]
        if self._hooked:
            value = _object(event.data)
            if value is not None:
                data = [dumps(given) for given in self._hooks.transform_chunk(value, self._context)]
        out: list[Chunk] = []
        for text in data:
            if self._reader is not None:
                for value in self._reader.feed(event.name, text):
                    out += self._healed(value)
            elif self._tags is not None and (value := _object(text)) is not None:
                out += self._healed(value)
            else:
                out += self.healer.feed(text, event.name)
        return out

    def _healed(self, value: Json) -> list[Chunk]:
        return self.healer.chunk(value if self._tags is None else self._tags.feed(value))


class NativeEvents:
    """An event stream that goes on as it came, watched."""

    tools: tuple[str, ...] = ()
    turn: Json | None = None
    error: UpstreamError | None = None

    def __init__(self, prepared: Prepared, events: Events | Lines | Frames) -> None:
        self._events = events
        self._hooks = prepared.hooks
        self._context = prepared.context
        self._hooked = prepared.hooks.has("transform_chunk")
        self._flushes = prepared.hooks.has("finish")
        self._native: Native = dialect(prepared.context.dialect).Native(prepared.client)

    @property
    def done(self) -> bool:
        return False  # its last events may follow the one that says it is done

    @property
    def finished(self) -> bool:
        return self._native.done

    @property
    def has_content(self) -> bool:
        return self._native.has_content

    @property
    def empty(self) -> bool:
        return not self._native.has_content

    @property
    def usage(self) -> Json | None:
        return self._native.usage

    def feed(self, data: bytes) -> list[Chunk]:
        out: list[Chunk] = []
        try:
            for event in self._events.feed(data):
                out += self._event(event)
        except UpstreamError as error:
            self.error = error
        except ValueError as error:
            self.error = UpstreamError("protocol", f"the answer is not what it should be: {error}")
        return out

    def close(self) -> list[Chunk]:
        return [chunk for event in self._events.close() for chunk in self._event(event)] + self._flush()

    def _event(self, event: Event) -> list[Chunk]:
        value = _object(event.data) if self._hooked or self._flushes else None
        flushed = self._flush() if self._flushes and _is_last(event.data, value) else []
        if value is None or not self._hooked:
            return flushed + self._look(event, [event.data])
        return flushed + self._look(event, [dumps(given) for given in self._hooks.transform_chunk(value, self._context)])

    def _flush(self) -> list[Chunk]:
        """What hooks held back: before the events that end the answer, which clients stop reading at."""
        if not self._flushes:
            return []
        self._flushes = False
        return [chunk for given in self._hooks.finish(self._context) for chunk in self._look(Event(b"", None), [dumps(given)])]

    def _look(self, event: Event, texts: list[bytes]) -> list[Chunk]:
        out: list[Chunk] = []
        for text in texts:
            content = self._native.look(event.name, text)
            if self._native.instead is not None:
                out += [Chunk(dumps(data), event=name, content=content) for name, data in self._native.instead]
            elif text.strip() and not text.startswith(b"[DONE]"):
                out.append(Chunk(text, event=self._native.name, content=content))
        return out


class PlainBody:
    """A plain JSON answer, read whole before anything is known. `value` is in chat's form, or native."""

    done = False
    finished = False
    has_content = False
    error: UpstreamError | None = None

    def __init__(self, prepared: Prepared, native: bool) -> None:
        self._prepared = prepared
        self._native = native
        self._parts: list[bytes] = []
        self._size = 0
        self.usage: Json | None = None
        self.tools: list[str] = []
        self.turn: Json | None = None
        self.empty = False
        self.text = b""
        self.value: Json = {}

    def feed(self, data: bytes) -> list[Chunk]:
        self._parts.append(data)
        self._size += len(data)
        if self._size > _BODY:
            raise UpstreamError("protocol", f"the answer is larger than {_BODY} bytes")
        return []

    def close(self) -> list[Chunk]:
        context, hooks = self._prepared.context, self._prepared.hooks
        self.text = b"".join(self._parts)
        value = loads(self.text)
        if not isinstance(value, dict):
            raise UpstreamError("protocol", "the answer is not a JSON object")
        verdict = failures.in_stream_error(value)
        if verdict is not None:
            raise verdict.failure(200)
        changed = hooks.has("transform_response")
        if changed:
            answer = hooks.transform_response(value, context)
            if answer is None:
                raise UpstreamError("protocol", "the adapter dropped the answer")
            value = answer
        if self._native:
            self._take_native(value)
        else:
            value, changed = self._heal(value, changed)
        if changed:
            self.text = dumps(value)
        self.value = value
        return []

    def _heal(self, value: Json, changed: bool) -> tuple[Json, bool]:
        context = self._prepared.context
        if context.dialect != "chat":
            value, changed = dialect(context.dialect).answer_to_chat(value), True
        mode = self._prepared.options["think_tags"]
        split = mode != "off" and think_tags.split_completion(value, mode)
        value, healed = chat.heal_completion(value, context.model, excludes_reasoning=self._prepared.options["completion_excludes_reasoning"])
        usage = value.get("usage")
        self.usage = usage if isinstance(usage, dict) else None
        self.tools = chat.called_tools(value)
        self.turn = value["choices"][0]["message"] if self._prepared.options["reasoning_memory"] else None
        self.empty = chat.completion_is_empty(value)
        return value, changed or split or healed

    def _take_native(self, value: Json) -> None:
        translator = dialect(self._prepared.context.dialect)
        self.empty = not translator.native_content(value)
        try:
            usage = translator.answer_to_chat(value).get("usage")
        except UpstreamError:
            return  # only what it cost stays unknown
        self.usage = usage if isinstance(usage, dict) else None


def _is_last(data: bytes, value: Json | None) -> bool:
    if value is None:
        return data.startswith(b"[DONE]")
    return value.get("type") in _LAST or any(choice.get("finish_reason") for choice in value.get("choices") or () if isinstance(choice, dict))


def _object(data: bytes) -> Json | None:
    """The JSON object of an event's data; None for whatever else may stand there."""
    try:
        value: Any = loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
