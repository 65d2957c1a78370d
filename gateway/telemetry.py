"""What the gateway tells about itself: metrics and one log line a request."""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from gateway.chat import Attempt, Json, Record

log = logging.getLogger("thinkgate.request")

_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_WORD = re.compile(r"[!#-~]+")


class Telemetry:
    """Counts and times requests; `/metrics` shows it. One per process, all methods cheap.

    `write` gets the log line of each request; by default it goes to the log at level info.
    `model` labels hold names of the config (a pattern's name, not what it matched), so that
    clients cannot make new series at will.
    """

    def __init__(self, write: Callable[[str], None] | None = None) -> None:
        self._write = write
        self.registry = CollectorRegistry(auto_describe=True)
        into = self.registry
        self._requests = Counter("thinkgate_requests", "Requests answered, by endpoint, model and status.", ("endpoint", "model", "status"), registry=into)
        self._attempts = Counter(
            "thinkgate_attempts", "Exchanges with providers, by provider and class (ok: it answered).", ("provider", "class"), registry=into
        )
        self._first = Histogram("thinkgate_first_token_seconds", "From the request to its first content.", ("model",), buckets=_SECONDS, registry=into)
        self._total = Histogram("thinkgate_request_seconds", "From the request to the end of its answer.", ("model",), buckets=_SECONDS, registry=into)
        self._tokens = Counter("thinkgate_tokens", "Tokens as the providers counted them.", ("provider", "kind"), registry=into)
        self._cost = Counter("thinkgate_cost_usd", "USD that answers cost, as far as prices are known.", ("provider",), registry=into)
        self._left_out = Counter(
            "thinkgate_left_out", "Targets that a request passed over, by the class they rest for or the limit they are at.", ("provider", "why"), registry=into
        )
        self._cache = Counter("thinkgate_cache", "Requests that could be answered without a call of their own, by result.", ("result",), registry=into)
        self._hooks = Counter("thinkgate_hook_seconds", "Time spent in adapters' hooks.", ("provider",), registry=into)
        self._reloads = Counter("thinkgate_config_reloads", "Config reloads, by result.", ("result",), registry=into)
        self._dropped = Counter("thinkgate_usage_dropped", "Records of requests that the store did not take in time.", registry=into)
        self._learned = Gauge("thinkgate_learned", "Refusals that are prevented by now, by provider and class.", ("provider", "class"), registry=into)
        self._shared = Gauge("thinkgate_shared_up", "Whether the shared state (Redis or Valkey) answers; absent where none is configured.", registry=None)
        self._alone = Counter("thinkgate_limits_local", "Requests let in or refused by this process alone, because the shared state was away.", registry=into)
        self.in_flight = Gauge("thinkgate_in_flight", "Requests being served now.", registry=into)
        self._shares = False
        # labels() costs more than the count itself: the bound children are kept
        self._counts: dict[tuple[Counter, tuple[str, ...]], Counter] = {}
        self._times: dict[tuple[Histogram, str], Histogram] = {}

    def _count(self, metric: Counter, labels: tuple[str, ...], amount: float = 1) -> None:
        child = self._counts.get((metric, labels))
        if child is None:
            child = self._counts[metric, labels] = metric.labels(*labels)
        child.inc(amount)

    def _observe(self, metric: Histogram, label: str, seconds: float) -> None:
        child = self._times.get((metric, label))
        if child is None:
            child = self._times[metric, label] = metric.labels(label)
        child.observe(seconds)

    def reload(self, ok: bool) -> None:
        self._count(self._reloads, ("ok" if ok else "failed",))

    def left_out(self, provider: str, why: str) -> None:
        """A target was not asked: `why` is a failure class, a limit (concurrency, rpm, tpm), or `other`."""
        self._count(self._left_out, (provider, why))

    def learned(self, counts: Mapping[tuple[str, str], int]) -> None:
        """How many refusals are prevented by now, by provider and class."""
        self._learned.clear()
        for labels, count in counts.items():
            self._learned.labels(*labels).set(count)

    def shared(self, up: bool | None) -> None:
        """Whether the shared state is there; None: there is none to be there."""
        if up is None:
            return
        if not self._shares:
            self.registry.register(self._shared)
            self._shares = True
        self._shared.set(up)

    def decided_alone(self) -> None:
        """The shared state was away when a request was let in or refused."""
        self._alone.inc()

    def usage_dropped(self, count: int) -> None:
        """The store was too slow for too long: this many records of requests are lost."""
        self._dropped.inc(count)

    def attempt(self, record: Record, attempt: Attempt) -> None:
        """One exchange is over."""
        self._count(self._attempts, (attempt.provider, attempt.kind or "ok"))
        if log.isEnabledFor(logging.DEBUG):
            log.debug("id=%s attempt=%s target=%s/%s ms=%d", record.id, attempt.label(), attempt.provider, attempt.model, attempt.ms)

    def finish(self, record: Record, status: int, model: str, error: str | None = None) -> None:
        """One request is over: `model` is its name in the config, `error` a class or code."""
        now = time.perf_counter()
        provider = record.provider or "none"
        self._count(self._requests, (record.endpoint, model, str(status)))
        self._observe(self._total, model, now - record.started)
        if record.first_content is not None:
            self._observe(self._first, model, record.first_content - record.started)
        counts = token_counts(record.usage) if record.usage else {}
        for kind, amount in counts.items():
            self._count(self._tokens, (provider, kind), amount)
        if record.cost:
            self._count(self._cost, (provider,), record.cost)
        if record.cache is not None:
            self._count(self._cache, (record.cache,))
        if record.hook_seconds:
            self._count(self._hooks, (provider,), record.hook_seconds)
        if self._write is not None:
            self._write(line(record, status, now, error, counts))
        elif log.isEnabledFor(logging.INFO):
            log.info(line(record, status, now, error, counts))

    def expose(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self.registry)


def token_counts(usage: Json) -> dict[str, int]:
    """prompt, completion, cached and reasoning tokens of a usage object in OpenAI's chat form; those that are 0 are left out."""
    prompt, completion = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    found = {
        "prompt": usage.get("prompt_tokens"),
        "completion": usage.get("completion_tokens"),
        "cached": prompt.get("cached_tokens") if type(prompt) is dict else None,
        "reasoning": completion.get("reasoning_tokens") if type(completion) is dict else None,
    }
    return {kind: amount for kind, amount in found.items() if type(amount) is int and amount > 0}


def line(record: Record, status: int, now: float, error: str | None, counts: Mapping[str, int]) -> str:
    """The log line of one request: `key=value` pairs, never a key or a text of a message."""
    out = [f"id={record.id} endpoint={record.endpoint} model={_plain(record.model)} status={status}"]
    add = out.append
    if error is not None:
        add(f"error={_plain(error)}")
    if record.key is not None:
        add(f"key={_plain(record.key)}")
    if record.stream:
        add(f"stream=yes chunks={record.chunks}")
    _course(record, add)
    if record.first_content is not None:
        add(f"first_ms={round((record.first_content - record.started) * 1000)}")
    add(f"total_ms={round((now - record.started) * 1000)}")
    for kind, amount in counts.items():
        add(f"{kind}={amount}")
    if record.cost is not None:
        add(f"cost={dollars(record.cost)}")
    if record.run_id is not None:
        add(f"run={record.run_id}")
    if record.session is not None:
        add(f"session={_plain(record.session)}")
    return " ".join(out)


def _course(record: Record, add: Callable[[str], None]) -> None:
    """Who was asked, and who answered."""
    if record.provider is not None:
        add(f"provider={record.provider} target={_plain(record.target_model or '')}")
    if record.cache is not None:
        add(f"cache={record.cache}")
    tried = [a.label() for a in record.attempts if a.skipped is None]
    if tried:
        add(f"attempts={','.join(tried)}")
    if len(tried) < len(record.attempts):
        add(f"skipped={','.join(a.provider for a in record.attempts if a.skipped is not None)}")
    if record.transforms:
        add(f"transforms={len(record.transforms)}")
    if record.tools:
        add(f"tools={_plain(','.join(record.tools))}")


def dollars(amount: float) -> str:
    """USD to a millionth, without zeros at the end."""
    return f"{amount:.6f}".rstrip("0").rstrip(".")


def _plain(text: str) -> str:
    """A value as it stands in a log line: one word, no line ends."""
    if _WORD.fullmatch(text):
        return text
    return '"' + text.encode("unicode_escape").decode("ascii").replace('"', "'") + '"'


class LineWriter:
    """Writes request lines to a file descriptor the way the log does, at a fraction of its price."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._second = 0
        self._stamp = ""

    def __call__(self, text: str) -> None:
        now = time.time()
        second = int(now)
        if second != self._second:
            self._second, self._stamp = second, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
        try:
            os.write(self._file, f"{self._stamp},{int((now - second) * 1000):03d} INFO thinkgate.request {text}\n".encode("utf-8", "backslashreplace"))
        except OSError:
            pass  # a full disk or a closed pipe under the log must not disturb a request


def log_to_stderr() -> None:
    """One line a record. THINKGATE_LOG=debug shows every attempt."""
    logging.raiseExceptions = False  # a full disk under the log must not disturb requests
    level = os.environ.get("THINKGATE_LOG", "info").upper()
    logging.basicConfig(
        level=level if level in logging.getLevelNamesMapping() else "INFO",
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
        stream=sys.stderr,
        force=True,
    )
    for noisy in ("httpx", "httpcore", "httpx2", "httpcore2", "watchfiles"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # its warnings and errors quote messages; we tell of failures ourselves
