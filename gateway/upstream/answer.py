"""From a provider's bytes to the chunks that the client gets.

    bytes   -> source: framing by what the bytes look like, not by their content type; hooks;
               the provider's dialect -> chat, healed (or passed on, if the client speaks it too)
    chunks  -> held back until the first content, then passed on as they come
            -> the client's dialect

All four combinations work: a stream or a plain answer from the provider, for a client that
wants a stream or a plain answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.chat import Accumulator, Chunk, Json, dumps
from gateway.dialects import Event, Writer, chat, dialect
from gateway.dialects.eventstream import Frames
from gateway.errors import NO_CONTENT, UpstreamError
from gateway.sse import Events, Lines
from gateway.upstream.prepared import Prepared
from gateway.upstream.sources import ChatEvents, NativeEvents, PlainBody

_FRAMINGS: Mapping[str, type[Events] | type[Lines] | type[Frames]] = {"sse": Events, "ndjson": Lines, "eventstream": Frames}
_HELD = 1024 * 1024  # bytes of events that may come before the first content
_BLANK = b" \t\r\n\xef\xbb\xbf"

Source = ChatEvents | NativeEvents | PlainBody


class Answer:
    """One provider's answer while it comes.

    begun      its first content came, or a plain body began: from here on silence is what is timed
    over       nothing more is to be read
    committed  chunks with content were given out
    broken     the error behind the chunks that were given out last; the next `take` raises it
    """

    def __init__(self, stream: bool, prepared: Prepared) -> None:
        self.begun = False
        self.over = False
        self.committed = False
        self.broken: UpstreamError | None = None
        self._wants_stream = stream
        self._prepared = prepared
        self._client = prepared.client_dialect
        self._native = self._client != "chat" and self._client == prepared.context.dialect
        self._start = b""
        self._source: Source | None = None
        self._writer: Writer | None = None
        self._held: list[Chunk] = []
        self._held_size = 0
        self._sum: Accumulator | None = None

    @property
    def finished(self) -> bool:
        """Only usage and the end can still come."""
        return self._source is not None and self._source.finished

    @property
    def usage(self) -> Json | None:
        """In OpenAI's chat form; None: the provider told nothing."""
        return self._source.usage if self._source is not None else None

    @property
    def tools(self) -> list[str]:
        """Names of the tools that were called."""
        return list(self._source.tools) if self._source is not None else []

    @property
    def turn(self) -> Json | None:
        """The assistant's turn as it must be remembered; None where nothing is to be."""
        return self._source.turn if self._source is not None and self.over else None

    def take(self, data: bytes | None) -> list[Chunk]:
        """The chunks that the client gets now; None: the body is at its end.

        Raises UpstreamError for an answer that is none: an error inside it, garbage, an end
        without a finish, no content.
        """
        if self.broken is not None:
            raise self.broken
        try:
            chunks = self._feed(data) if data is not None else self._end()
            if not self.over and self.broken is None and self._source is not None and self._source.done:
                chunks += self._last()
        except ValueError as error:
            raise UpstreamError("protocol", f"the answer is not what it should be: {error}") from None
        if not self._wants_stream:
            return self._whole(chunks)
        if not self.committed:
            self._held += chunks
            if not (self.over or (self._source is not None and self._source.has_content)):
                self._held_size += sum(len(chunk.data) for chunk in chunks)
                if self._held_size > _HELD:
                    raise UpstreamError("protocol", f"the stream sent {_HELD} bytes without content")
                return []
            self.committed = True
            chunks, self._held = self._held, []
        if self._client != "chat" and not self._native:
            chunks = self._written(chunks)
        for chunk in chunks[:-1]:
            chunk.more = True
        return chunks

    def fail(self, error: Json) -> list[Event]:
        """The events that end a stream which broke off after it was committed, in the client's dialect."""
        if self._client == "chat":
            return [(None, {"error": error})]
        return (self._writer or self._new_writer()).fail(error)

    def _feed(self, data: bytes) -> list[Chunk]:
        if self._source is None:
            self._start += data
            start = self._start.lstrip(_BLANK)
            if not start:
                return []
            data, self._start = self._start, b""
            self._source = self._recognise(start[:1])
        source = self._source
        chunks = source.feed(data)
        self.begun = self.begun or source.has_content or isinstance(source, PlainBody)
        if source.error is not None:
            self._break(source.error)
        return chunks

    def _break(self, error: UpstreamError) -> None:
        """Keep the error until the chunks before it are given out; raise it where no content is among them.

        What counts is the order of the events, not how the network packed them.
        """
        if not (self.committed or (self._wants_stream and self._source is not None and self._source.has_content)):
            raise error
        self.broken = error

    def _last(self) -> list[Chunk]:
        """The end that came together with the last events."""
        try:
            return self._end()
        except UpstreamError as error:
            self._break(error)
            self.over = False
            return []

    def _recognise(self, first: bytes) -> Source:
        prepared = self._prepared
        framing = prepared.hooks.adapter.framing
        if first == b"<":
            raise UpstreamError("protocol", "the answer is an HTML page")
        if first in (b"{", b"[") and framing != "ndjson":
            return PlainBody(prepared, self._native and not self._wants_stream)
        events = _FRAMINGS[framing]()
        if self._native and self._wants_stream:
            return NativeEvents(prepared, events)
        return ChatEvents(prepared, events, self._wants_stream and (prepared.include_usage or self._client != "chat"))

    def _end(self) -> list[Chunk]:
        self.over = True
        source = self._source
        if source is None:
            raise UpstreamError("protocol", "the answer is empty")
        chunks = source.close()
        if not isinstance(source, PlainBody) and not source.finished and not (source.empty and source.done):
            raise UpstreamError("protocol", f"the stream ended {'in the middle of' if source.has_content else 'before'} the answer")
        if source.empty and not self._prepared.empty_ok:
            raise UpstreamError("protocol", NO_CONTENT)
        if isinstance(source, PlainBody) and self._wants_stream:
            return chat.split(source.value, include_usage=self._prepared.include_usage or self._client != "chat")
        return chunks

    def _whole(self, chunks: list[Chunk]) -> list[Chunk]:
        """For a client that wants a plain answer: one whole chunk at the end."""
        source = self._source
        if source is None or isinstance(source, NativeEvents):
            return []
        if isinstance(source, PlainBody):
            if not self.over:
                return []
            value, text = source.value, source.text
        else:
            if self._sum is None:
                self._sum = Accumulator()
            for chunk in chunks:
                self._sum.add(chunk.json())
            if not self.over:
                return []
            value = self._sum.completion()
            if source.usage is not None:
                value["usage"] = source.usage
            text = dumps(value)
        if self._client != "chat" and not (self._native and isinstance(source, PlainBody)):
            value = dialect(self._client).answer_from_chat(value, self._prepared.client or {})
            text = dumps(value)
        self.committed = True
        return [Chunk(text, whole=True, content=True, json=value)]

    def _written(self, chunks: list[Chunk]) -> list[Chunk]:
        if self._writer is None:
            self._writer = self._new_writer()
        out: list[Chunk] = []
        for chunk in chunks:
            out += [Chunk(dumps(data), event=name, content=chunk.content) for name, data in self._writer.feed(chunk.json())]
        if self.over:
            out += [Chunk(dumps(data), event=name) for name, data in self._writer.finish()]
        return out

    def _new_writer(self) -> Writer:
        writer: Writer = dialect(self._client).Writer(self._prepared.client or {})
        return writer
