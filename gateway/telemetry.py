"""What the gateway tells about itself: metrics and one log line a request."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily, Metric

from gateway.chat import Attempt, Json, Record

log = logging.getLogger("thinkgate.request")
runs = logging.getLogger("thinkgate.run")

_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_MOMENT = 0.05  # seconds for which a request's line may be kept back
_AT_ONCE = 4096  # bytes that a pipe takes whole: lines of several processes do not mix
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
        self._requests = Counts("thinkgate_requests", "Requests answered, by endpoint, model and status.", ("endpoint", "model", "status"), into)
        self._attempts = Counts("thinkgate_attempts", "Exchanges with providers, by provider and class (ok: it answered).", ("provider", "class"), into)
        self._first = Times("thinkgate_first_token_seconds", "From the request to its first content.", "model", into)
        self._total = Times("thinkgate_request_seconds", "From the request to the end of its answer.", "model", into)
        self._tokens = Counts("thinkgate_tokens", "Tokens as the providers counted them.", ("provider", "kind"), into)
        self._cost = Counts("thinkgate_cost_usd", "USD that answers cost, as far as prices are known.", ("provider",), into)
        self._left_out = Counts(
            "thinkgate_left_out", "Targets that a request passed over, by the class they rest for or the limit they are at.", ("provider", "why"), into
        )
        self._cache = Counts("thinkgate_cache", "Requests that could be answered without a call of their own, by result.", ("result",), into)
        self._hooks = Counts("thinkgate_hook_seconds", "Time spent in adapters' hooks.", ("provider",), into)
        self._runs = Counts("thinkgate_runs", "Runs of agents that ended, or that wait for somebody, by status.", ("agent", "status"), into)
        self._steps = Counts("thinkgate_run_steps", "Turns of the model in runs of agents.", ("agent",), into)
        self._run_seconds = Times("thinkgate_run_seconds", "From the moment a run was begun or gone on with to its end or its next wait.", "agent", into)
        self._tools = Counts("thinkgate_tool_calls", "Calls of agents' tools, by tool and whether it answered.", ("tool", "ok"), into)
        self._reloads = Counts("thinkgate_config_reloads", "Config reloads, by result.", ("result",), into)
        self._dropped = Counter("thinkgate_usage_dropped", "Records of requests that the store did not take in time.", registry=into)
        self._learned = Gauge("thinkgate_learned", "Refusals that are prevented by now, by provider and class.", ("provider", "class"), registry=into)
        self._shared = Gauge("thinkgate_shared_up", "Whether the shared state (Redis or Valkey) answers; absent where none is configured.", registry=None)
        self._alone = Counter("thinkgate_limits_local", "Requests let in or refused by this process alone, because the shared state was away.", registry=into)
        Gauge("thinkgate_in_flight", "Requests being served now.", registry=into).set_function(lambda: self.in_flight)
        self._shares = False
        self.in_flight = 0
        """requests being served now; whoever serves one counts it"""

    def reload(self, ok: bool) -> None:
        self._reloads.add(("ok" if ok else "failed",))

    def left_out(self, provider: str, why: str) -> None:
        """A target was not asked: `why` is a failure class, a limit (concurrency, rpm, tpm), or `other`."""
        self._left_out.add((provider, why))

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
        self._attempts.add((attempt.provider, attempt.kind or "ok"))
        if log.isEnabledFor(logging.DEBUG):
            log.debug("id=%s attempt=%s target=%s/%s ms=%d", record.id, attempt.label(), attempt.provider, attempt.model, attempt.ms)

    def finish(self, record: Record, status: int, model: str, error: str | None = None, counts: Mapping[str, int] | None = None) -> None:
        """One request is over: `model` is its name in the config, `error` a class or code, `counts` its `token_counts` where they are known."""
        now = time.perf_counter()
        provider = record.provider or "none"
        self._requests.add((record.endpoint, model, str(status)))
        self._total.add(model, now - record.started)
        if record.first_content is not None:
            self._first.add(model, record.first_content - record.started)
        if counts is None:
            counts = token_counts(record.usage) if record.usage else {}
        for kind, amount in counts.items():
            self._tokens.add((provider, kind), amount)
        if record.cost:
            self._cost.add((provider,), record.cost)
        if record.cache is not None:
            self._cache.add((record.cache,))
        if record.hook_seconds:
            self._hooks.add((provider,), record.hook_seconds)
        if self._write is not None:
            self._write(line(record, status, now, error, counts))
        elif log.isEnabledFor(logging.INFO):
            log.info(line(record, status, now, error, counts))

    def run(self, record: RunRecord) -> None:
        """A run of an agent ended, or waits."""
        self._runs.add((record.agent, record.status))
        self._steps.add((record.agent,), record.steps)
        self._run_seconds.add(record.agent, record.seconds)
        for tool, ok in record.tools:
            self._tools.add((tool, "yes" if ok else "no"))
        if runs.isEnabledFor(logging.INFO):
            runs.info(run_line(record))

    def expose(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self.registry)

    def close(self) -> None:
        """Write down what was kept back for a moment."""
        if isinstance(self._write, LineWriter):
            self._write.flush()


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a run of an agent came to, since it was begun or gone on with: `tools` are (name, whether it answered), `alone`: no request waited for it."""

    id: str
    agent: str
    status: str
    reason: str | None
    key: str | None
    session: str | None
    steps: int
    tools: Sequence[tuple[str, bool]]
    usage: Json
    cost: float | None
    seconds: float
    alone: bool


class Counts:
    """A counter by its labels. prometheus_client's own costs ten times as much, and takes a lock for each count."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...], registry: CollectorRegistry) -> None:
        self._about = (name, text, labels)
        self._values: dict[tuple[str, ...], float] = {}
        registry.register(self)

    def add(self, labels: tuple[str, ...], amount: float = 1.0) -> None:
        self._values[labels] = self._values.get(labels, 0.0) + amount

    def collect(self) -> Iterator[Metric]:
        name, text, labels = self._about
        family = CounterMetricFamily(name, text, labels=labels)
        for values, amount in self._values.items():
            family.add_metric(values, amount)
        yield family


class Times:
    """A histogram of seconds by one label, in the same way."""

    def __init__(self, name: str, text: str, label: str, registry: CollectorRegistry) -> None:
        self._about = (name, text, label)
        self._counts: dict[str, list[int]] = {}
        self._sums: dict[str, float] = {}
        registry.register(self)

    def add(self, label: str, seconds: float) -> None:
        counts = self._counts.get(label)
        if counts is None:
            counts = self._counts[label] = [0] * (len(_SECONDS) + 1)
            self._sums[label] = 0.0
        counts[bisect_left(_SECONDS, seconds)] += 1
        self._sums[label] += seconds

    def collect(self) -> Iterator[Metric]:
        name, text, label = self._about
        family = HistogramMetricFamily(name, text, labels=(label,))
        bounds = [*(str(float(bound)) for bound in _SECONDS), "+Inf"]
        for value, counts in self._counts.items():
            family.add_metric((value,), list(zip(bounds, accumulate(counts), strict=True)), self._sums[value])
        yield family


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
        add(f"first_ms={(record.first_content - record.started) * 1000:.0f}")
    add(f"total_ms={(now - record.started) * 1000:.0f}")
    for kind, amount in counts.items():
        add(f"{kind}={amount}")
    if record.cost is not None:
        add(f"cost={dollars(record.cost)}")
    if record.run_id is not None:
        add(f"run={record.run_id}")
    if record.session is not None:
        add(f"session={_plain(record.session)}")
    return " ".join(out)


def run_line(record: RunRecord) -> str:
    """The log line of a run: `key=value` pairs, never a text of a message, a thought or a tool."""
    out = [f"run={record.id} agent={record.agent} status={record.status}"]
    add = out.append
    if record.reason is not None:
        add(f"reason={record.reason}")
    if record.alone:
        add("background=yes")
    if record.key is not None:
        add(f"key={_plain(record.key)}")
    if record.session is not None:
        add(f"session={_plain(record.session)}")
    add(f"steps={record.steps}")
    if record.tools:
        add(f"tools={_plain(','.join(name if ok else f'{name}=failed' for name, ok in record.tools))}")
    for kind, amount in token_counts(record.usage).items():
        add(f"{kind}={amount}")
    if record.cost is not None:
        add(f"cost={dollars(record.cost)}")
    add(f"total_ms={round(record.seconds * 1000)}")
    return " ".join(out)


def _course(record: Record, add: Callable[[str], None]) -> None:
    """Who was asked, and who answered."""
    if record.provider is not None:
        add(f"provider={record.provider} target={_plain(record.target_model or '')}")
    if record.cache is not None:
        add(f"cache={record.cache}")
    if record.attempts:
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


@lru_cache(1024)  # names of the config, again and again
def _plain(text: str) -> str:
    """A value as it stands in a log line: one word, no line ends."""
    if _WORD.fullmatch(text):
        return text
    return '"' + text.encode("unicode_escape").decode("ascii").replace('"', "'") + '"'


class LineWriter:
    """Writes request lines to a file descriptor the way the log does, at a fraction of its price: those of a moment together."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._second = 0
        self._stamp = ""
        self._kept: list[bytes] = []
        self._size = 0

    def __call__(self, text: str) -> None:
        now = time.time()
        second = int(now)
        if second != self._second:
            self._second, self._stamp = second, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
        line = f"{self._stamp},{int((now - second) * 1000):03d} INFO thinkgate.request {text}\n".encode("utf-8", "backslashreplace")
        if self._size + len(line) > _AT_ONCE:
            self.flush()
        self._kept.append(line)
        self._size += len(line)
        if len(self._kept) == 1:
            try:
                asyncio.get_running_loop().call_later(_MOMENT, self.flush)
            except RuntimeError:
                self.flush()

    def flush(self) -> None:
        """Write what is kept."""
        lines = b"".join(self._kept)
        self._kept.clear()
        self._size = 0
        if lines:
            try:
                os.write(self._file, lines)
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


def server_telemetry() -> Telemetry:
    """Telemetry that writes the request lines of a server to stderr, where its log level shows them."""
    return Telemetry(LineWriter(sys.stderr.fileno()) if log.isEnabledFor(logging.INFO) else None)
