"""What the gateway tells about itself: metrics and one log line a request."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from gateway.chat import Attempt, Record

log = logging.getLogger("thinkgate.request")

_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_PLAIN = re.compile(r"[!-~]*")
_TOKENS = ("prompt", "completion", "cached", "reasoning")


class Telemetry:
    """Counts and times requests; `/metrics` shows it. One per process, all methods cheap.

    `model` labels hold names of the config (a pattern's name, not what it matched), so that
    clients cannot make new series at will.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        into = self.registry
        self._requests = Counter("thinkgate_requests", "Requests answered, by endpoint, model and status.", ("endpoint", "model", "status"), registry=into)
        self._attempts = Counter(
            "thinkgate_attempts", "Exchanges with providers, by provider and class (ok: it answered).", ("provider", "class"), registry=into
        )
        self._first = Histogram("thinkgate_first_token_seconds", "From the request to its first content.", ("model",), buckets=_SECONDS, registry=into)
        self._total = Histogram("thinkgate_request_seconds", "From the request to the end of its answer.", ("model",), buckets=_SECONDS, registry=into)
        self._tokens = Counter("thinkgate_tokens", "Tokens as the providers counted them.", ("provider", "kind"), registry=into)
        self._hooks = Counter("thinkgate_hook_seconds", "Time spent in adapters' hooks.", ("provider",), registry=into)
        self._reloads = Counter("thinkgate_config_reloads", "Config reloads, by result.", ("result",), registry=into)
        self.in_flight = Gauge("thinkgate_in_flight", "Requests being served now.", registry=into)
        self._bound: dict[tuple[object, ...], Counter | Histogram] = {}

    def _child(self, metric: Counter | Histogram, *labels: str) -> Counter | Histogram:
        # labels() costs more than the count itself: keep the children
        key = (metric, *labels)
        child = self._bound.get(key)
        if child is None:
            child = self._bound[key] = metric.labels(*labels)
        return child

    def _count(self, metric: Counter, amount: float, *labels: str) -> None:
        child = self._child(metric, *labels)
        assert isinstance(child, Counter)
        child.inc(amount)

    def _observe(self, metric: Histogram, seconds: float, *labels: str) -> None:
        child = self._child(metric, *labels)
        assert isinstance(child, Histogram)
        child.observe(seconds)

    def reload(self, ok: bool) -> None:
        self._count(self._reloads, 1, "ok" if ok else "failed")

    def attempt(self, record: Record, attempt: Attempt) -> None:
        """One exchange is over."""
        self._count(self._attempts, 1, attempt.provider, attempt.kind or "ok")
        if log.isEnabledFor(logging.DEBUG):
            log.debug("id=%s attempt=%s target=%s/%s ms=%d", record.id, attempt.label(), attempt.provider, attempt.model, attempt.ms)

    def finish(self, record: Record, status: int, model: str, error: str | None = None) -> None:
        """One request is over: `model` is its name in the config, `error` a class or code."""
        now = time.perf_counter()
        self._count(self._requests, 1, record.endpoint, model, str(status))
        self._observe(self._total, now - record.started, model)
        if record.first_content is not None:
            self._observe(self._first, record.first_content - record.started, model)
        provider = record.provider or "none"
        if record.usage:
            for kind, amount in token_counts(record.usage).items():
                if amount > 0:
                    self._count(self._tokens, amount, provider, kind)
        if record.hook_seconds:
            self._count(self._hooks, record.hook_seconds, provider)
        if log.isEnabledFor(logging.INFO):
            log.info(line(record, status, now, error))

    def expose(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self.registry)


def token_counts(usage: dict[str, object]) -> dict[str, int]:
    """prompt, completion, cached and reasoning tokens of a usage object in OpenAI's chat form."""

    def number(value: object) -> int:
        return value if isinstance(value, int) and not isinstance(value, bool) else 0

    prompt, completion = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    return {
        "prompt": number(usage.get("prompt_tokens")),
        "completion": number(usage.get("completion_tokens")),
        "cached": number(prompt.get("cached_tokens")) if isinstance(prompt, dict) else 0,
        "reasoning": number(completion.get("reasoning_tokens")) if isinstance(completion, dict) else 0,
    }


def line(record: Record, status: int, now: float, error: str | None = None) -> str:
    """The log line of one request: `key=value` pairs, never a key or a text of a message."""
    first = None if record.first_content is None else round((record.first_content - record.started) * 1000)
    counts = token_counts(record.usage) if record.usage else {}
    pairs: list[tuple[str, object]] = [
        ("id", record.id),
        ("endpoint", record.endpoint),
        ("model", record.model),
        ("status", status),
        ("error", error),
        ("key", record.key),
        ("stream", "yes" if record.stream else None),
        ("provider", record.provider),
        ("target", record.target_model),
        ("attempts", _join(a.label() for a in record.attempts if a.skipped is None)),
        ("skipped", _join(a.provider for a in record.attempts if a.skipped is not None)),
        ("transforms", len(record.transforms) or None),
        ("tools", _join(record.tools)),
        ("first_ms", first),
        ("total_ms", round((now - record.started) * 1000)),
        ("chunks", record.chunks if record.stream else None),
        *((kind, counts.get(kind) or None) for kind in _TOKENS),
        ("run", record.run_id),
        ("session", record.session),
    ]
    return " ".join(f"{name}={_plain(value)}" for name, value in pairs if value is not None)


def _join(texts: Iterable[str]) -> str | None:
    return ",".join(texts) or None


def _plain(value: object) -> str:
    text = str(value)
    if _PLAIN.fullmatch(text) and '"' not in text:
        return text
    return '"' + text.encode("unicode_escape").decode("ascii").replace('"', '\\"') + '"'
