"""Reading a request's body: size, encoding, JSON, depth."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping
from typing import Any

import zstandard
from starlette.types import Receive

from gateway.chat import Json, loads
from gateway.errors import ClientGone, GatewayError, InvalidRequest, TooLarge, UnsupportedMedia

MAX_DEPTH = 64
MOST_VALUES = 500_000
"""lists and objects of a body; more of them hold the event loop for seconds, and no conversation has them"""
_PIECE = 1 << 20
_RATE = 64 * 1024  # bytes a second at which a large body must arrive once its first seconds are over
_MOST_ENCODINGS = 2
_ENCODINGS = ("identity", "gzip", "x-gzip", "deflate", "zstd")


class TooSlow(GatewayError):
    """The body did not arrive in time."""

    status, type, code = 408, "timeout", "request_timeout"


async def read_body(receive: Receive, headers: Mapping[bytes, bytes], limit: int, seconds: float) -> bytes:
    """The whole body, its content encoding undone; at most `limit` bytes before and after that.

    Raises TooLarge, UnsupportedMedia, InvalidRequest (damaged encoding), TooSlow, ClientGone.
    """
    length = headers.get(b"content-length")
    if length is not None and length.isdigit() and int(length) > limit:
        raise TooLarge(f"the body has {int(length)} bytes, at most {limit} are accepted")
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.disconnect":
        raise ClientGone("the client left before its request was complete")
    if message.get("more_body"):
        body = await _rest(receive, body, limit, seconds)
    if len(body) > limit:
        raise TooLarge(f"the body has more than {limit} bytes")
    encoding = headers.get(b"content-encoding")
    return body if encoding is None else decode(body, encoding.decode("latin-1"), limit)


async def _rest(receive: Receive, body: bytes, limit: int, seconds: float) -> bytes:
    parts, size = [body], len(body)
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            async with asyncio.timeout_at(deadline + size / _RATE):
                message = await receive()
        except TimeoutError:
            raise TooSlow(f"the body did not arrive in time: {size} bytes came") from None
        if message["type"] == "http.disconnect":
            raise ClientGone("the client left before its request was complete")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise TooLarge(f"the body has more than {limit} bytes")
        if not message.get("more_body"):
            return b"".join(parts)


def decode(body: bytes, encodings: str, limit: int) -> bytes:
    """Undo `Content-Encoding`; what would grow past `limit` bytes is refused before it is there."""
    named = [part.strip().lower() for part in encodings.split(",") if part.strip()]
    if len(named) > _MOST_ENCODINGS:
        raise UnsupportedMedia(f"at most {_MOST_ENCODINGS} content encodings are undone")
    for encoding in reversed(named):
        if encoding not in _ENCODINGS:
            raise UnsupportedMedia(f'content encoding "{encoding[:32]}" is not supported; use gzip, deflate, zstd or none')
        try:
            if encoding == "zstd":
                body = _unzstd(body, limit)
            elif encoding != "identity":
                body = _inflate(body, encoding, limit)
        except (zlib.error, zstandard.ZstdError):
            raise InvalidRequest(f"the body is not valid {encoding}") from None
    return body


def _inflate(body: bytes, encoding: str, limit: int) -> bytes:
    raw = encoding == "deflate" and (body[:1] or b"x")[0] & 0x0F != 8  # some clients send deflate without the zlib header
    inflater = zlib.decompressobj(-15 if raw else 47)
    out = inflater.decompress(body, limit + 1)
    if len(out) > limit:
        raise TooLarge(f"the decoded body has more than {limit} bytes")
    if not inflater.eof:
        raise zlib.error("cut")
    return out


def _unzstd(body: bytes, limit: int) -> bytes:
    parts, size = [], 0
    with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(body, read_across_frames=True) as reader:
        while piece := reader.read(min(_PIECE, limit + 1 - size)):
            parts.append(piece)
            size += len(piece)
            if size > limit:
                raise TooLarge(f"the decoded body has more than {limit} bytes")
    return b"".join(parts)


def check_type(headers: Mapping[bytes, bytes]) -> None:
    """Refuse a body that says it is something else than JSON."""
    kind = headers.get(b"content-type")
    if kind is None or kind == b"application/json":
        return
    media = kind.split(b";", 1)[0].strip().lower()
    if media != b"application/json" and not media.endswith(b"+json"):
        raise UnsupportedMedia(f'content type "{media[:64].decode("latin-1")}" is not supported here; send application/json')


def parse_object(raw: bytes) -> Json:
    """The JSON object of a body. InvalidRequest if it is none or nested too deeply."""
    opened = raw.count(b"[") + raw.count(b"{")
    if opened > MOST_VALUES and len(raw) > _PIECE:
        raise InvalidRequest(f"the body has more than {MOST_VALUES} lists and objects", code="invalid_json")
    try:
        value: Any = loads(raw)
    except ValueError as error:
        raise InvalidRequest(f"the body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be a JSON object", code="invalid_json")
    if opened > MAX_DEPTH and _deeper(value, MAX_DEPTH):
        raise InvalidRequest(f"the body is nested more than {MAX_DEPTH} levels deep", code="invalid_json")
    return value


def _deeper(value: Any, limit: int) -> bool:
    level: list[Any] = [value]
    for _ in range(limit):
        level = [child for node in level for child in (node.values() if type(node) is dict else node) if type(child) is dict or type(child) is list]
        if not level:
            return False
    return True
