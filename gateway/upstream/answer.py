"""From a provider's bytes to the chunks that the client gets.

    bytes   -> framing (what they look like, not what their content type claims)
            -> the adapter's hooks and tag splitting, where there are any
            -> the healer of the dialect
    chunks  -> held back until the first content, then passed on as they come

All four combinations work: a stream or a plain answer from the provider, for a client that
wants a stream or a plain answer.
"""

from __future__ import annotations

from typing import Any

from gateway import failures
from gateway.adapters import think_tags
from gateway.chat import Accumulator, Chunk, Json, dumps, loads
from gateway.dialects import chat
from gateway.errors import UpstreamError
from gateway.sse import Events, Lines
from gateway.upstream.prepared import Prepared

_BODY = 256 * 1024 * 1024
_BLANK = b" \t\r\n\xef\xbb\xbf"


class Answer:
    """One provider's answer while it comes.

    begun      something other than blank lines and comments came
    finished   only usage and the end can still come
    over       nothing more is to be read
    committed  chunks with content were given out
    """

    def __init__(self, stream: bool, prepared: Prepared) -> None:
        self.begun = False
        self.over = False
        self.committed = False
        self._wants_stream = stream
        self._prepared = prepared
        self._model = prepared.context.model
        self._start = b""
        self._source: _Stream | _Plain | None = None
        self._held: list[Chunk] = []
        self._sum = Accumulator()

    @property
    def finished(self) -> bool:
        return self._source is not None and self._source.finished

    @property
    def usage(self) -> Json | None:
        """In OpenAI's form; None: the provider told nothing."""
        return self._source.usage if self._source is not None else None

    @property
    def tools(self) -> list[str]:
        """Names of the tools that were called."""
        return self._source.tools if self._source is not None else []

    def take(self, data: bytes | None) -> list[Chunk]:
        """The chunks that the client gets now; None: the body is at its end.

        Raises UpstreamError for an answer that is none: an error inside it, garbage, an end
        without a finish, no content.
        """
        try:
            chunks = self._feed(data) if data is not None else self._end()
        except ValueError as error:
            raise UpstreamError("protocol", f"the answer is not what it should be: {error}") from None
        source = self._source
        if source is not None and source.done and not self.over:
            chunks += self._end()
        if not self._wants_stream:
            return self._add(chunks)
        if not self.committed:
            self._held += chunks
            if source is None or not (source.has_content or self.over):
                return []
            self.committed = True
            chunks, self._held = self._held, []
        for chunk in chunks[:-1]:
            chunk.more = True
        return chunks

    def _feed(self, data: bytes) -> list[Chunk]:
        if self._source is None:
            self._start += data
            if not self._start.strip(_BLANK):
                return []
            data, self._start = self._start, b""
            self._source = self._recognise(data.lstrip(_BLANK)[:1])
        chunks = self._source.feed(data)
        self.begun = self.begun or self._source.begun
        return chunks

    def _recognise(self, first: bytes) -> _Stream | _Plain:
        framing = self._prepared.hooks.adapter.framing
        if first == b"<":
            raise UpstreamError("protocol", "the answer is an HTML page")
        if first in (b"{", b"[") and framing != "ndjson":
            return _Plain(self._prepared)
        return _Stream(self._prepared, Lines() if framing == "ndjson" else Events(), self._prepared.include_usage and self._wants_stream)

    def _end(self) -> list[Chunk]:
        self.over = True
        source = self._source
        if source is None:
            raise UpstreamError("protocol", "the answer is empty")
        chunks = source.close()
        if source.empty and not self._prepared.empty_ok:
            raise UpstreamError("protocol", "the answer has no content")
        if isinstance(source, _Plain) and self._wants_stream:
            return chat.split(source.completion, include_usage=self._prepared.include_usage)
        return chunks

    def _add(self, chunks: list[Chunk]) -> list[Chunk]:
        """For a client that wants a plain answer: one whole chunk at the end."""
        source = self._source
        if isinstance(source, _Plain):
            if self.over:
                self.committed = True
                return [Chunk(source.text, whole=True, content=True, json=source.completion)]
            return []
        for chunk in chunks:
            self._sum.add(chunk.json())
        if not self.over or source is None:
            return []
        completion = self._sum.completion()
        if source.usage is not None:
            completion["usage"] = source.usage
        self.committed = True
        return [Chunk(dumps(completion), whole=True, content=True, json=completion)]


class _Stream:
    """A provider's event stream."""

    def __init__(self, prepared: Prepared, events: Events | Lines, include_usage: bool) -> None:
        self._events = events
        self._hooks = prepared.hooks
        self._context = prepared.context
        self._hooked = prepared.hooks.has("transform_chunk")
        mode = prepared.context.options["think_tags"]
        self._tags = think_tags.ThinkTags(mode) if mode != "off" else None
        self._healer = chat.ChatStream(prepared.context.model, include_usage=include_usage)

    begun = True

    @property
    def done(self) -> bool:
        return self._healer.done

    @property
    def finished(self) -> bool:
        return self._healer.finished

    @property
    def has_content(self) -> bool:
        return self._healer.has_content

    @property
    def empty(self) -> bool:
        return self._healer.empty

    @property
    def usage(self) -> Json | None:
        return self._healer.usage

    @property
    def tools(self) -> list[str]:
        return self._healer.tools

    def feed(self, data: bytes) -> list[Chunk]:
        out: list[Chunk] = []
        for event in self._events.feed(data):
            out += self._event(event.data)
        return out

    def close(self) -> list[Chunk]:
        out: list[Chunk] = []
        for event in self._events.close():
            out += self._event(event.data)
        if self._hooks.has("finish"):
            for value in self._hooks.finish(self._context):
                out += self._healed(value)
        if self._tags is not None:
            for value in self._tags.finish():
                out += self._healer.chunk(value)
        out += self._healer.finish()
        return out

    def _event(self, data: bytes) -> list[Chunk]:
        if not self._hooked and self._tags is None:
            return self._healer.feed(data)
        if data.startswith(b"[DONE]") or not data.lstrip().startswith(b"{"):
            return self._healer.feed(data)
        value: Any = loads(data)
        values = self._hooks.transform_chunk(value, self._context) if self._hooked else [value]
        out: list[Chunk] = []
        for value in values:
            out += self._healed(value)
        return out

    def _healed(self, value: Json) -> list[Chunk]:
        return self._healer.chunk(value if self._tags is None else self._tags.feed(value))


class _Plain:
    """A provider's plain JSON answer, read whole before anything is known."""

    begun = True
    done = False
    finished = False

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._parts: list[bytes] = []
        self._size = 0
        self.usage: Json | None = None
        self.tools: list[str] = []
        self.has_content = False
        self.empty = False
        self.text = b""
        self.completion: Json = {}

    def feed(self, data: bytes) -> list[Chunk]:
        self._parts.append(data)
        self._size += len(data)
        if self._size > _BODY:
            raise UpstreamError("protocol", f"the answer is larger than {_BODY} bytes")
        return []

    def close(self) -> list[Chunk]:
        prepared = self._prepared
        self.text = b"".join(self._parts).lstrip(_BLANK)
        value = loads(self.text)
        if not isinstance(value, dict):
            raise UpstreamError("protocol", "the answer is not a JSON object")
        changed = False
        verdict = failures.in_stream_error(value)
        if verdict is not None:
            raise UpstreamError(verdict.kind, verdict.message, upstream_status=200, retry_after=verdict.retry_after, error=verdict.error)
        if prepared.hooks.has("transform_response"):
            answer = prepared.hooks.transform_response(value, prepared.context)
            if answer is None:
                raise UpstreamError("protocol", "the adapter dropped the answer")
            value, changed = answer, True
        mode = prepared.context.options["think_tags"]
        split = mode != "off" and think_tags.split_completion(value, mode)
        value, healed = chat.heal_completion(value, prepared.context.model)
        if changed or split or healed:
            self.text = dumps(value)
        self.completion = value
        self.usage = value.get("usage")
        self.tools = chat.called_tools(value)
        self.has_content = chat.completion_has_content(value)
        self.empty = chat.completion_is_empty(value)
        return []
