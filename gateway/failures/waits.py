"""How long a provider asks us to wait, in all the ways in which they say it."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from gateway.failures.refusal import Refusal, read

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhd]))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
_SPOKEN = re.compile(r"(?:try again|retry) (?:in|after) ((?:\d+(?:\.\d+)?\s?[a-z]+[\s,]*)+)")
_SPOKEN_PART = re.compile(r"(\d+(?:\.\d+)?)\s?(ms|milli|[smhd])")
_EPOCH = 1e9  # a reset above this is a moment (seconds, or milliseconds above 1e12), not a duration


def retry_after(headers: Mapping[str, str], body: bytes | Mapping[str, Any] | Refusal = b"", *, limits: bool = True) -> float | None:
    """Seconds to wait before asking again; None: the provider does not say. A date in the past is 0.

    Looked at in this order: `retry-after-ms`, `retry-after` (seconds or a date), Google's
    `retryDelay`, "try again in 7.66s" in the message, and with `limits` the
    `x-ratelimit-reset-*` headers. Negative numbers and garbage are ignored.
    """
    names = {name.lower(): value for name, value in headers.items()}
    wait = _number(names.get("retry-after-ms"))
    if wait is not None:
        return wait / 1000
    for read_one in (_after(names), _in_body(body)):
        if read_one is not None:
            return read_one
    return _reset(names) if limits else None


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _after(names: Mapping[str, str]) -> float | None:
    text = names.get("retry-after")
    if text is None:
        return None
    wait = _number(text)
    if wait is not None:
        return wait
    moment = _moment(text)
    if moment is None:
        return duration(text)
    now = _moment(names.get("date", ""))  # the provider's own clock, so that ours may be wrong
    return max(0.0, moment - (time.time() if now is None else now))


def _moment(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _in_body(body: bytes | Mapping[str, Any] | Refusal) -> float | None:
    refusal = body if isinstance(body, Refusal) else read(body)
    if refusal.delay is not None and (wait := duration(refusal.delay)) is not None:
        return wait
    spoken = _SPOKEN.search(refusal.text)
    if spoken is None:
        return None
    return sum(float(number) * (0.001 if unit == "milli" else _UNITS[unit]) for number, unit in _SPOKEN_PART.findall(spoken[1])) or None


def duration(text: str) -> float | None:
    """Seconds of `34.4s`, `6m0s`, `120ms`; None for anything else."""
    text = text.strip().lower()
    if not _DURATION.fullmatch(text):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def _reset(names: Mapping[str, str]) -> float | None:
    """The wait that `x-ratelimit-reset-*` tells: of what is used up, else the shortest.

    OpenAI's value is the time until a limit is whole again, so a limit with something left is no reason to wait.
    """
    used_up: list[float] = []
    others: list[float] = []
    for name, value in names.items():
        if name.startswith("x-ratelimit-reset") and (wait := _until(value)) is not None:
            (used_up if names.get(name.replace("reset", "remaining", 1), "").strip() == "0" else others).append(wait)
    return max(used_up) if used_up else min(others, default=None)


def _until(text: str) -> float | None:
    value = _number(text)
    if value is None:
        return duration(text)
    if value < _EPOCH:
        return value
    return max(0.0, (value / 1000 if value >= 1000 * _EPOCH else value) - time.time())
