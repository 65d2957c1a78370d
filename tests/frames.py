"""Writes Amazon's binary event stream, for the tests of what reads it."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any


def frame(name: str, payload: dict[str, Any] | bytes, kind: str = "event", **headers: str) -> bytes:
    """One frame; `kind` is event, exception or error (whose name is its code)."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload, ensure_ascii=False).encode()
    named = {"event": ":event-type", "exception": ":exception-type", "error": ":error-code"}[kind]
    return raw(b"".join(text_header(key, value) for key, value in {named: name, ":message-type": kind, **headers}.items()), body)


def text_header(name: str, value: str) -> bytes:
    return header(name, 7, struct.pack(">H", len(value.encode())) + value.encode())


def header(name: str, kind: int, value: bytes) -> bytes:
    return bytes([len(name)]) + name.encode() + bytes([kind]) + value


def raw(headers: bytes, body: bytes) -> bytes:
    prelude = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    whole = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + body
    return whole + struct.pack(">I", zlib.crc32(whole))
