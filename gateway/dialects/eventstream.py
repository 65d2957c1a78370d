"""Amazon's binary event stream (`application/vnd.amazon.eventstream`) out of pieces of a body.

A frame is: total length, length of the headers, CRC of both (4 bytes each, big-endian), the
headers, the payload, and the CRC of all before it. CRC is CRC-32 as in zlib.
Source: docs.aws.amazon.com, "Event stream encoding", as implemented by the AWS SDKs (2026).
"""

from __future__ import annotations

import zlib
from typing import Any

from gateway.chat import dumps
from gateway.sse import LINE_CAP, Event

_PRELUDE = 12
_LEAST = _PRELUDE + 4
_FIXED = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}  # header type -> bytes of its value
_BYTES, _TEXT = 6, 7


class Frames:
    """The frames of a stream as events: the payload, and the event's or the exception's type as the name.

    `feed` and `close` work as those of `gateway.sse.Events`. An `error` frame, which has no
    payload, is given as `{"message": ...}` under the name of its code. Raises ValueError for a
    wrong checksum or length. What is left unfinished at the end is not given.
    """

    __slots__ = ("_held", "_size", "_wanted", "comments")

    def __init__(self) -> None:
        self.comments = 0
        """there are none in this framing"""
        self._held: list[bytes] = []
        self._size = 0
        self._wanted = _PRELUDE

    def feed(self, data: bytes) -> list[Event]:
        """The frames that end in this piece."""
        self._held.append(data)
        self._size += len(data)
        if self._size < self._wanted:
            return []
        buffer = b"".join(self._held)
        out: list[Event] = []
        at, self._wanted = 0, _PRELUDE
        while len(buffer) - at >= _PRELUDE:
            total = _length(buffer, at)
            if len(buffer) - at < total:
                self._wanted = total
                break
            out.append(_event(buffer[at : at + total]))
            at += total
        rest = buffer[at:]
        self._held, self._size = [rest] if rest else [], len(rest)
        return out

    def close(self) -> list[Event]:
        """Nothing: half a frame cannot be checked."""
        return []


def _length(buffer: bytes, at: int) -> int:
    """The whole length of the frame that begins here, from its checked prelude."""
    total = int.from_bytes(buffer[at : at + 4], "big")
    if zlib.crc32(buffer[at : at + 8]) != int.from_bytes(buffer[at + 8 : at + _PRELUDE], "big"):
        raise ValueError("a frame of the event stream has a wrong checksum in its prelude")
    if total > LINE_CAP:
        raise ValueError(f"a frame of the event stream is longer than {LINE_CAP} bytes")
    if total < _LEAST + int.from_bytes(buffer[at + 4 : at + 8], "big"):
        raise ValueError("a frame of the event stream is shorter than its headers")
    return total


def _event(frame: bytes) -> Event:
    if zlib.crc32(frame[:-4]) != int.from_bytes(frame[-4:], "big"):
        raise ValueError("a frame of the event stream has a wrong checksum")
    start = _PRELUDE + int.from_bytes(frame[4:8], "big")
    headers = _headers(frame[_PRELUDE:start])
    kind = headers.get(":message-type")
    if kind == "error":
        return Event(dumps({"message": headers.get(":error-message") or ""}), str(headers.get(":error-code") or "error"))
    name = headers.get(":exception-type" if kind == "exception" else ":event-type")
    return Event(frame[start:-4], name if isinstance(name, str) else None)


def _headers(data: bytes) -> dict[str, Any]:
    """The headers that are texts; the others are only skipped."""
    out: dict[str, Any] = {}
    at = 0
    while at < len(data):
        name_end = at + 1 + data[at]
        name, kind = data[at + 1 : name_end].decode("utf-8", "replace"), data[name_end : name_end + 1]
        at = name_end + 1
        if kind and kind[0] in (_BYTES, _TEXT):
            end = at + 2 + int.from_bytes(data[at : at + 2], "big")
            if kind[0] == _TEXT:
                out[name] = data[at + 2 : end].decode("utf-8", "replace")
        elif kind and kind[0] in _FIXED:
            end = at + _FIXED[kind[0]]
        else:
            raise ValueError("a frame of the event stream has a header of an unknown type")
        if end > len(data):
            raise ValueError("a frame of the event stream has a header that is cut off")
        at = end
    return out
