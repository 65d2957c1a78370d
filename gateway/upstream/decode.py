"""Undoing a Content-Encoding that nobody asked for, without letting it grow over our heads.

Every request says `Accept-Encoding: identity`; some proxies compress all the same. A decoder
gives its output in pieces, so that a small input that becomes a huge output is noticed
before it is in memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Protocol

import zstandard

from gateway.upstream.transport import TransportError

PIECE = 256 * 1024
"""bytes that one step puts out at most, for zstd and what one slice can hold: 128 KiB for each 4 bytes"""
MAX_OUTPUT = 256 * 1024 * 1024
FREE_OUTPUT = 1024 * 1024
"""output up to which the ratio does not matter"""
MAX_RATIO = 100
_ZSTD_SLICE = 64
_ZSTD_WINDOW = 8 * 1024 * 1024  # RFC 9659: the largest window of the `zstd` content coding


class _Codec(Protocol):
    """One compressed stream: `step` eats pending input, `eof` says that its own end came."""

    eof: bool

    def step(self, data: bytes) -> tuple[bytes, bytes]:
        """Output, at most about PIECE bytes, and the input that is left for the next step."""
        ...


class Decoder:
    """The body of one answer: `feed` what came, `take` until it gives nothing, `finish` at the end.

    TransportError `protocol` where the bytes are not of the encoding or grow beyond
    100 times their size (after the first MiB) or 256 MiB; `cut` where they end too early.
    """

    __slots__ = ("_broken", "_codec", "_make", "_name", "_pending", "_read", "_written")

    def __init__(self, name: str, make: Callable[[], _Codec]) -> None:
        self._name = name
        self._make = make
        self._codec: _Codec | None = None
        self._pending = b""
        self._broken = ""
        self._read = self._written = 0

    def feed(self, data: bytes) -> None:
        self._read += len(data)
        self._pending = self._pending + data if self._pending else data

    def take(self) -> bytes:
        """The next piece of output; empty: more input is needed."""
        while self._pending:
            codec = self._codec
            if codec is None or codec.eof:  # the first, or one more member behind it (RFC 1952 section 2.2)
                codec = self._codec = self._make()
            before = len(self._pending)
            out, self._pending = self._step(codec)
            if out:
                return out
            if len(self._pending) == before:
                break
        codec = self._codec
        return b"" if codec is None or codec.eof else self._step(codec)[0]  # what the codec itself still holds

    def finish(self) -> None:
        """To be called when the body has ended and `take` gives nothing more."""
        if self._codec is not None and not self._codec.eof:
            raise TransportError("cut", f"the {self._name} body ended before its end", sent=True)

    def _step(self, codec: _Codec) -> tuple[bytes, bytes]:
        out, left = b"", b""
        if not self._broken:
            try:
                out, left = codec.step(self._pending)
            except (zlib.error, zstandard.ZstdError):
                self._broken = f"the body is not valid {self._name}"
            self._written += len(out)
            if self._written > MAX_OUTPUT or self._written > max(FREE_OUTPUT, MAX_RATIO * self._read):
                self._broken = f"the {self._name} body grows beyond measure ({self._read} to more than {self._written} bytes)"
        if self._broken:
            raise TransportError("protocol", self._broken, sent=True)
        return out, left


class _Zlib:
    """gzip and zlib (wbits 31 and 15), and raw deflate where the two zlib header bytes are missing."""

    __slots__ = ("_object", "_wbits", "eof")

    def __init__(self, wbits: int) -> None:
        self._wbits = wbits
        self._object = zlib.decompressobj(wbits)
        self.eof = False

    def step(self, data: bytes) -> tuple[bytes, bytes]:
        out = self._object.decompress(data, PIECE)
        self.eof = self._object.eof
        return out, self._object.unused_data if self.eof else self._object.unconsumed_tail


class _Deflate:
    """`deflate` is zlib by the standard, raw by habit (RFC 9110 section 8.4.1.2 warns of it)."""

    __slots__ = ("_codec", "_start", "eof")

    def __init__(self) -> None:
        self._codec: _Zlib | None = None
        self._start = b""
        self.eof = False

    def step(self, data: bytes) -> tuple[bytes, bytes]:
        if self._codec is None:
            self._start += data
            if len(self._start) < 2:
                return b"", b""
            data, self._start = self._start, b""
            zlib_header = data[0] & 15 == zlib.DEFLATED and int.from_bytes(data[:2], "big") % 31 == 0
            self._codec = _Zlib(zlib.MAX_WBITS if zlib_header else -zlib.MAX_WBITS)
        out, left = self._codec.step(data)
        self.eof = self._codec.eof
        return out, left


class _Zstd:
    """Small slices in, because its object has no bound for what one call puts out."""

    __slots__ = ("_object", "eof")

    def __init__(self) -> None:
        self._object = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
        self.eof = False

    def step(self, data: bytes) -> tuple[bytes, bytes]:
        parts: list[bytes] = []
        size = at = 0
        while at < len(data) and size < PIECE and not self.eof:
            out = self._object.decompress(data[at : at + _ZSTD_SLICE])
            at += _ZSTD_SLICE
            size += len(out)
            parts.append(out)
            self.eof = self._object.eof
        return b"".join(parts), (self._object.unused_data if self.eof else b"") + data[at:]


def decoder(encoding: bytes) -> Decoder | None:
    """The decoder for a Content-Encoding value; None for identity. TransportError for what we do not know."""
    name = encoding.strip().lower()
    if name in (b"", b"identity"):
        return None
    if name in (b"gzip", b"x-gzip"):
        return Decoder("gzip", lambda: _Zlib(zlib.MAX_WBITS | 16))
    if name == b"deflate":
        return Decoder("deflate", _Deflate)
    if name == b"zstd":
        return Decoder("zstd", _Zstd)
    shown = name[:40].decode("ascii", "replace")
    raise TransportError("protocol", f"the body is encoded as {shown!r}, which was not asked for and is not understood", sent=True)
