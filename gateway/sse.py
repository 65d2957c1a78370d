"""Splits bytes into server-sent events (or NDJSON lines) and writes events. No I/O.

The splitters take the pieces as the network cuts them and give the same events for every
cut. They stay at bytes: what is inside an event is the dialects' business.
"""

from __future__ import annotations

from typing import NamedTuple

LINE_CAP = 16 * 1024 * 1024
"""Bytes one event may have; images and long tool arguments reach some MB."""

COMMENT = b": keepalive\n\n"
DONE = b"data: [DONE]\n\n"

_BOM = b"\xef\xbb\xbf"
_LF, _CR = 10, 13  # a number is found in bytes five times as fast as a text of one byte
_tuple = tuple.__new__  # an Event without the detour over its own __new__: half of the time, once per event


class Event(NamedTuple):
    """One event: its data (lines joined with LF) and its name, if the stream gave one."""

    data: bytes
    name: str | None = None


class _Splitter:
    """What both framings share: the BOM, line ends of all three kinds, the unfinished line."""

    __slots__ = ("_after_cr", "_at_start", "_held", "_size", "comments")

    def __init__(self) -> None:
        self.comments = 0
        """comment lines so far; a caller that sees it rise knows that the peer is alive"""
        self._held: list[bytes] = []
        self._size = 0
        self._at_start = True
        self._after_cr = False

    def _whole_lines(self, data: bytes) -> bytes:
        """The held line and the new piece with LF line ends; nothing while no line ends in it."""
        if self._at_start:
            data = self._without_bom(data)
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if _CR in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if _LF not in data:
            if data:
                self._hold(data)
            return b""
        if self._held:
            data = b"".join((*self._held, data))
            self._held.clear()
            self._size = 0
        return data

    def _without_bom(self, data: bytes) -> bytes:
        data = b"".join((*self._held, data))
        self._held.clear()
        self._size = 0
        if len(data) < len(_BOM) and _BOM.startswith(data):
            return data
        self._at_start = False
        return data.removeprefix(_BOM)

    def _hold(self, line: bytes) -> None:
        self._size += len(line)
        if self._size > LINE_CAP:
            raise ValueError(f"an event of the stream is longer than {LINE_CAP} bytes")
        self._held.append(line)

    def _last_line(self) -> bytes:
        line = b"".join(self._held)
        self._held.clear()
        self._size = 0
        return b"" if self._at_start and _BOM.startswith(line) else line


class Events(_Splitter):
    """Server-sent events out of pieces of a stream, by the rules of the WHATWG standard.

    Two differences, both because providers need them: an event that is pending when the
    stream ends is given all the same, and an event with only an empty `data` line is given.
    Raises ValueError when an event grows beyond `LINE_CAP`.
    """

    __slots__ = ("_data", "_data_size", "_name")

    def __init__(self) -> None:
        super().__init__()
        self._data: list[bytes] = []
        self._data_size = 0
        self._name: str | None = None

    def feed(self, data: bytes) -> list[Event]:
        """The events that end in this piece."""
        out: list[Event] = []
        text = self._whole_lines(data) if self._held or self._at_start or self._after_cr or _CR in data or data[-1:] != b"\n" else data
        if not text:
            return out
        blocks = text.split(b"\n\n")
        rest = blocks.pop()
        for block in blocks:
            if block[:6] == b"data: " and _LF not in block and not self._data and self._name is None:
                out.append(_tuple(Event, (block[6:], None)))
            else:
                self._lines(block, out)
                self._dispatch(out)
        if rest:
            whole, ended, line = rest.rpartition(b"\n")
            if ended:
                self._lines(whole, out)
            if line:
                self._hold(line)
        return out

    def close(self) -> list[Event]:
        """What was pending when the stream ended."""
        out: list[Event] = []
        self._lines(self._last_line(), out)
        self._dispatch(out)
        return out

    def _lines(self, text: bytes, out: list[Event]) -> None:
        for line in text.split(b"\n"):
            if not line:
                self._dispatch(out)
            elif line[:1] == b":":
                self.comments += 1
            else:
                self._field(line)

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            value = value.removeprefix(b" ")
            self._data_size += len(value)
            if self._data_size > LINE_CAP:
                raise ValueError(f"an event of the stream is longer than {LINE_CAP} bytes")
            self._data.append(value)
        elif name == b"event":
            self._name = value.removeprefix(b" ").decode("utf-8", "replace")

    def _dispatch(self, out: list[Event]) -> None:
        if self._data:
            out.append(Event(b"\n".join(self._data), self._name or None))
            self._data = []
            self._data_size = 0
        self._name = None


class Lines(_Splitter):
    """NDJSON out of pieces of a stream: each line that is not blank is an event without a name."""

    __slots__ = ()

    def feed(self, data: bytes) -> list[Event]:
        """The lines that end in this piece."""
        text = self._whole_lines(data)
        if not text:
            return []
        lines = text.split(b"\n")
        last = lines.pop()
        if last:
            self._hold(last)
        return [Event(line) for line in lines if line.strip()]

    def close(self) -> list[Event]:
        """The last line, if the stream ended without a line end."""
        line = self._last_line()
        return [Event(line)] if line.strip() else []


def event(data: bytes, name: str | None = None) -> bytes:
    """One event as it goes over the wire; data of several lines becomes several `data` lines."""
    if _LF in data or _CR in data:
        data = b"\ndata: ".join(data.splitlines() or [b""])
    if name is None:
        return b"data: %b\n\n" % data
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)
