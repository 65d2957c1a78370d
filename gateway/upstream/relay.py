"""Endpoints that are passed on rather than translated: embeddings, moderations, images, audio, rerank.

Only the model's name is exchanged in the body, JSON or multipart; the rest stays byte for
byte. JSON answers are read whole, so that an error inside a 200 moves on; sound, text and
events go through as they come.
"""

from __future__ import annotations

import base64
import re
import struct
from typing import Any

from gateway import failures
from gateway.chat import Chunk, Json, dumps, loads
from gateway.dialects import Event
from gateway.errors import InvalidRequest, UpstreamError
from gateway.sse import Events
from gateway.upstream.prepared import Prepared

_BODY = 256 * 1024 * 1024
_MODEL = re.compile(rb'content-disposition:[^\r\n]*[; ]name="?model"?(?:[; ][^\r\n]*)?\r\n', re.IGNORECASE)


def boundary_of(content_type: str) -> bytes:
    """The boundary of a multipart body. InvalidRequest without one."""
    match = re.search(r'boundary="?([^";]{1,200})"?', content_type)
    if match is None:
        raise InvalidRequest("the multipart content type names no boundary", code="invalid_multipart")
    return match[1].encode("latin-1")


def model_span(body: bytes, boundary: bytes) -> tuple[int, int] | None:
    """Where the value of the field `model` stands in a multipart body; None: it has no such field."""
    mark = b"--" + boundary
    at = body.find(mark)
    while at >= 0:
        head = at + len(mark)
        after = body.find(b"\r\n" + mark, head)
        blank = body.find(b"\r\n\r\n", head)
        if after < 0:
            return None
        if 0 <= blank < after and _MODEL.search(body, head, blank + 2):
            return blank + 4, after
        at = after + 2
    return None


class Relay:
    """One relayed answer while it comes. The same shape as `Answer`, for endpoints without chunks of chat."""

    finished = False
    turn: Json | None = None
    tools: tuple[str, ...] = ()

    def __init__(self, prepared: Prepared, content_type: str) -> None:
        self.begun = False
        self.over = False
        self.committed = False
        self.usage: Json | None = None
        self.broken: UpstreamError | None = None
        self._prepared = prepared
        self._kind = content_type.partition(";")[0].strip().lower()
        self._parts: list[bytes] = []
        self._size = 0
        # only sound and its transcripts are something else than JSON or events, whatever a broken server calls them
        self._is_json = self._kind == "application/json" or not (prepared.context.endpoint.startswith("audio/") or self._kind == "text/event-stream")
        if self._kind == "text/html":
            raise UpstreamError("protocol", "the answer is an HTML page")

    def take(self, data: bytes | None) -> list[Chunk]:
        """The pieces that the client gets now; None: the body is at its end."""
        if data is None:
            self.over = True
        else:
            self.begun = True
        if self._is_json:
            return self._json(data)
        if not self.committed:
            data = self._first(data)
        self.committed = self.committed or data is not None
        return [Chunk(data, content=True)] if data else []

    def fail(self, error: Json) -> list[Event]:
        """What ends an event stream that broke off; other answers just break off."""
        return [(None, {"error": error})] if self._kind == "text/event-stream" else []

    def _first(self, data: bytes | None) -> bytes | None:
        """What came so far, once it is known that it is no error; events are looked at, sound and text are not."""
        if data is None:
            if not self._parts:
                raise UpstreamError("protocol", "the answer is empty")
            return b"".join(self._parts)
        self._parts.append(data)
        if self._kind != "text/event-stream":
            return b"".join(self._parts)
        for event in Events().feed(b"".join(self._parts)):
            value = _object(event.data)
            verdict = failures.in_stream_error(value) if value is not None else None
            if verdict is not None:
                raise verdict.failure(200)
            return b"".join(self._parts)
        return None

    def _json(self, data: bytes | None) -> list[Chunk]:
        if data is not None:
            self._parts.append(data)
            self._size += len(data)
            if self._size > _BODY:
                raise UpstreamError("protocol", f"the answer is larger than {_BODY} bytes")
            return []
        text = b"".join(self._parts)
        value = _object(text)
        if value is None:
            raise UpstreamError("protocol", "the answer is not a JSON object")
        verdict = failures.in_stream_error(value)
        if verdict is not None:
            raise verdict.failure(200)
        hooks, changed = self._prepared.hooks, False
        if hooks.has("transform_response"):
            value, changed = hooks.transform_response(value, self._prepared.context) or {}, True
        if self._prepared.context.endpoint == "embeddings":
            changed = heal_embeddings(value, self._prepared.body.get("encoding_format")) or changed
        usage = value.get("usage")
        self.usage = usage if isinstance(usage, dict) else None
        self.committed = True
        return [Chunk(dumps(value) if changed else text, whole=True, content=True, json=value)]


def heal_embeddings(body: Json, wanted: Any) -> bool:
    """Vectors in the form that was asked for, whatever the provider sent; True if something changed.

    SDKs ask for base64 (little-endian float32) by themselves; openai-node reads floats that
    come instead as an empty vector (6.49, 2026-11).
    """
    data = body.get("data")
    if not isinstance(data, list) or not data:
        raise UpstreamError("protocol", "the answer has no embeddings")
    changed = False
    for item in data:
        vector = item.get("embedding") if isinstance(item, dict) else None
        if wanted == "base64" and isinstance(vector, list):
            item["embedding"] = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")
            changed = True
        elif wanted != "base64" and isinstance(vector, str):
            raw = base64.b64decode(vector)
            item["embedding"] = list(struct.unpack(f"<{len(raw) // 4}f", raw))
            changed = True
    return changed


def _object(data: bytes) -> Json | None:
    try:
        value = loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
