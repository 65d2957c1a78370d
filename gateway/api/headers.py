"""Response headers, on success, failure and streams alike."""

from __future__ import annotations

import math
import time
from functools import lru_cache

from gateway.chat import Record
from gateway.errors import GatewayError

Headers = list[tuple[bytes, bytes]]

_LIMITS = "x-ratelimit-"
_TRANSFORMS = 1024  # bytes of x-thinkgate-transforms


def response_headers(record: Record, limits: Headers | None = None) -> Headers:
    """Who answered, or was asked last, after what, and how long it took so far.

    `limits`: those of the client's key; beside them the upstream's are not its business.
    """
    ident = record.id.encode("ascii")
    headers: Headers = [(b"x-request-id", ident)]
    if record.endpoint.startswith("messages"):
        headers.append((b"request-id", ident))
    provider, model = record.answered()
    if provider is not None:
        headers.append((b"x-thinkgate-provider", _name(provider)))
        headers.append((b"x-thinkgate-model", _name(model or "")))
    if record.attempts:
        exchanges = [attempt.label() for attempt in record.attempts if attempt.skipped is None]
        headers.append((b"x-thinkgate-attempts", b"%d" % len(exchanges)))
        if exchanges:
            headers.append((b"x-thinkgate-chain", _name(",".join(exchanges))))
    if record.transforms:
        headers.append((b"x-thinkgate-transforms", _ascii(clipped(record.transforms))))
    if record.run_id is not None:
        headers.append((b"x-thinkgate-run-id", _ascii(record.run_id)))
    if record.session is not None:
        headers.append((b"x-thinkgate-session", _ascii(record.session)))
    if record.cache is not None:
        headers.append((b"x-thinkgate-cache", record.cache.encode("ascii")))
    headers.append((b"server-timing", timing(record)))
    for name, value in record.upstream_headers.items():
        if not limits or not name.startswith(_LIMITS):
            headers.append((name.encode("ascii"), _ascii(value)))
    if limits:
        headers += limits
    return headers


def error_headers(record: Record, error: GatewayError, limits: Headers | None = None) -> Headers:
    """The same, and what tells a client whether and when to ask again."""
    headers = response_headers(record, limits)
    if error.retry_after is not None:
        headers.append((b"retry-after", str(max(1, math.ceil(error.retry_after))).encode("ascii")))
        headers.append((b"retry-after-ms", str(max(1, math.ceil(error.retry_after * 1000))).encode("ascii")))
    if error.should_retry is not None:
        headers.append((b"x-should-retry", b"true" if error.should_retry else b"false"))
    return headers


def timing(record: Record) -> bytes:
    """`server-timing`: what was spent here and what was spent waiting for providers, in milliseconds."""
    total = time.perf_counter() - record.started
    upstream = record.upstream_seconds if record.first_content is None else max(record.upstream_seconds, sum(a.ms for a in record.attempts) / 1000)
    own = max(0.0, total - upstream)
    return f"gateway;dur={own * 1000:.1f}, upstream;dur={upstream * 1000:.0f}".encode("ascii")


def clipped(transforms: list[str]) -> str:
    """The entries that fit into 1 KiB, then `+N` for those that did not."""
    out: list[str] = []
    size = 0
    for position, entry in enumerate(transforms):
        size += len(entry) + 1
        if size > _TRANSFORMS - 8:
            return " ".join([*out, f"+{len(transforms) - position}"])
        out.append(entry)
    return " ".join(out)


def _ascii(text: str) -> bytes:
    """Printable ASCII: whatever else a name holds becomes `?`, so that no header can be split."""
    if text.isascii() and text.isprintable():
        return text.encode("ascii")
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in text).encode("ascii")


_name = lru_cache(1024)(_ascii)  # of providers and models: the same again and again
