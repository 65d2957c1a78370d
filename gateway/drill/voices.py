"""What a provider says, in its own dialect and framing: a whole answer, the pieces of a stream, errors.

The answers are the least that a provider of that dialect sends, so that whatever an adapter
reads of them is there.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from gateway import sse
from gateway.chat import Json, dumps
from gateway.dialects import NAMED, Event, Writer, dialect

TEXT = "All is well here."
"""what every sound answer says"""

_ID = "chatcmpl-drill"
_USAGE = {"prompt_tokens": 5, "completion_tokens": 4, "total_tokens": 9}
_STATUSES = {  # status -> OpenAI's type, Google's and Amazon's names (platform.claude.com, ai.google.dev, docs.aws.amazon.com, 2026)
    400: ("invalid_request_error", "INVALID_ARGUMENT", "validationException"),
    401: ("authentication_error", "UNAUTHENTICATED", "accessDeniedException"),
    402: ("billing_error", "FAILED_PRECONDITION", "accessDeniedException"),
    429: ("rate_limit_error", "RESOURCE_EXHAUSTED", "throttlingException"),
    503: ("overloaded_error", "UNAVAILABLE", "serviceUnavailableException"),
}


class Pieces(NamedTuple):
    """The bytes of a stream: what comes before any content, each piece of content, and its proper end."""

    opening: bytes
    content: list[bytes]
    closing: bytes


@dataclass(frozen=True, slots=True)
class Voice:
    """A provider's dialect and framing (those of its adapter)."""

    dialect: str
    framing: str

    @property
    def stream_type(self) -> bytes:
        return {"sse": b"text/event-stream", "ndjson": b"application/x-ndjson", "eventstream": b"application/vnd.amazon.eventstream"}[self.framing]

    def whole(self, text: str = TEXT) -> bytes:
        """A plain answer; with an empty text one without content."""
        return dumps(_WHOLE.get(self.dialect, self._translated)(text))

    def pieces(self) -> Pieces:
        """A stream that says TEXT, in two pieces of content."""
        teller, half = self._teller(), len(TEXT) // 2
        opening = self.events(teller.feed(_chunk({"role": "assistant", "content": ""})))
        content = [self.events(teller.feed(_chunk({"content": text}))) for text in (TEXT[:half], TEXT[half:])]
        closing = self.events([*teller.feed(_chunk({}, "stop")), *teller.feed({**_chunk({}), "choices": [], "usage": _USAGE}), *teller.finish()])
        return Pieces(opening, content, closing + self._done())

    def empty(self) -> bytes:
        """A whole stream without content."""
        teller = self._teller()
        events = [*teller.feed(_chunk({"role": "assistant", "content": ""})), *teller.feed(_chunk({}, "stop")), *teller.finish()]
        return self.events(events) + self._done()

    def error(self, status: int, message: str) -> bytes:
        """The body of a refusal."""
        return dumps(self._error(status, message))

    def error_event(self, status: int, message: str) -> bytes:
        """The same inside a stream."""
        kind, _, exception = _STATUSES[status]
        if self.dialect == "responses":
            teller = self._teller()
            teller.feed(_chunk({"role": "assistant", "content": ""}))
            return self.events(teller.fail({"message": message, "type": kind, "code": None, "param": None}))
        if self.framing == "eventstream":
            return frame(exception, dumps({"message": message}), "exception")
        return self.events([("error" if self.dialect == "messages" else None, self._error(status, message))])

    def broken_event(self) -> bytes:
        """An event whose data is cut off in the middle of its JSON."""
        data = b'{"choices":[{"index":0,"delta":{"content":"Al'
        if self.framing == "eventstream":
            return frame("contentBlockDelta", data)
        return data + b"\n" if self.framing == "ndjson" else b"data: " + data + b"\n\n"

    def pulse(self) -> bytes:
        """What keeps a stream from being silent and says nothing."""
        if self.framing == "eventstream":
            return frame("ping", b"{}")
        return b"\n" if self.framing == "ndjson" else b": keep-alive\n\n"

    def events(self, events: list[Event]) -> bytes:
        return b"".join(self._event(name, dumps(data)) for name, data in events)

    def _event(self, name: str | None, data: bytes) -> bytes:
        if self.framing == "eventstream":
            return frame(name or "event", data)
        return data + b"\n" if self.framing == "ndjson" else sse.event(data, name)

    def _done(self) -> bytes:
        named = self.dialect in NAMED or self.dialect in _WHOLE
        return b"" if named or self.framing != "sse" else sse.DONE

    def _teller(self) -> Writer:
        made: Callable[[], Writer] | None = _TELLERS.get(self.dialect)
        return made() if made is not None else dialect(self.dialect).Writer({"stream_options": {"include_usage": True}})

    def _translated(self, text: str) -> Json:
        message = {"role": "assistant", "content": text}
        answer = {**_chunk({}), "object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": _USAGE}
        return answer if self.dialect == "chat" else dialect(self.dialect).answer_from_chat(answer, {})

    def _error(self, status: int, message: str) -> Json:
        kind, google, _ = _STATUSES[status]
        match self.dialect:
            case "messages":
                return {"type": "error", "error": {"type": kind, "message": message}}
            case "gemini":
                return {"error": {"code": status, "message": message, "status": google}}
            case "converse":
                return {"message": message}
        return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def _chunk(delta: Json, finish: str | None = None) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": _ID, "object": "chat.completion.chunk", "created": 1_800_000_000, "model": "drill", "choices": [choice]}


def _said(chunk: Json) -> tuple[str, str | None, Any]:
    """Text, finish reason and usage of a chunk."""
    choice: Json = next(iter(chunk["choices"]), {})
    return choice.get("delta", {}).get("content") or "", choice.get("finish_reason"), chunk.get("usage")


class _Same:
    """Chat's own events."""

    def feed(self, chunk: Json) -> list[Event]:
        return [(None, chunk)]

    def finish(self) -> list[Event]:
        return []

    def fail(self, error: Json) -> list[Event]:
        return [(None, {"error": error})]


class _Gemini(_Same):
    def feed(self, chunk: Json) -> list[Event]:
        text, finish, usage = _said(chunk)
        event: Json = {"responseId": "drill", "modelVersion": "drill"}
        if text or finish:
            event["candidates"] = [{"index": 0, "content": {"role": "model", "parts": [{"text": text}]}, **({"finishReason": "STOP"} if finish else {})}]
        return [] if usage else [(None, {**event, "usageMetadata": _GEMINI_USAGE})]


class _Converse(_Same):
    def feed(self, chunk: Json) -> list[Event]:
        text, finish, usage = _said(chunk)
        if usage:
            return [("metadata", {"usage": _CONVERSE_USAGE})]
        if finish:
            return [("contentBlockStop", {"contentBlockIndex": 0}), ("messageStop", {"stopReason": "end_turn"})]
        return [("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": text}}) if text else ("messageStart", {"role": "assistant"})]


_GEMINI_USAGE = {"promptTokenCount": 5, "candidatesTokenCount": 4, "totalTokenCount": 9}
_CONVERSE_USAGE = {"inputTokens": 5, "outputTokens": 4, "totalTokens": 9}


def _gemini(text: str) -> Json:
    candidate = {"index": 0, "content": {"role": "model", "parts": [{"text": text}] if text else []}, "finishReason": "STOP"}
    return {"responseId": "drill", "modelVersion": "drill", "candidates": [candidate], "usageMetadata": _GEMINI_USAGE}


def _converse(text: str) -> Json:
    message = {"role": "assistant", "content": [{"text": text}] if text else []}
    return {"output": {"message": message}, "stopReason": "end_turn", "usage": _CONVERSE_USAGE}


_WHOLE: Mapping[str, Callable[[str], Json]] = {"gemini": _gemini, "converse": _converse}
_TELLERS: Mapping[str, Callable[[], Writer]] = {"chat": _Same, "gemini": _Gemini, "converse": _Converse}


def frame(name: str, payload: bytes, kind: str = "event") -> bytes:
    """One frame of Amazon's binary event stream; `kind` is event or exception."""
    fields = {":message-type": kind, f":{kind}-type": name, ":content-type": "application/json"}
    headers = b"".join(bytes([len(key)]) + key.encode() + struct.pack(">BH", 7, len(value)) + value.encode() for key, value in fields.items())
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    whole = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return whole + struct.pack(">I", zlib.crc32(whole))
