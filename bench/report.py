"""From measurements to medians, ratios and the Markdown table. Nothing here measures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

OURS, FLOOR, DIRECT = "thinkgate", "nginx", "direct"
QUIET = 0.15
"""the share of the gateway's core that others may take before the table warns"""


@dataclass(frozen=True, slots=True)
class Metric:
    """One row: the figure at `path` in the records of `scenario`; `added`: less what the same repetition took without a gateway.

    `timed`: by the clock, and so of what else the machine did too.
    """

    key: str
    title: str
    scenario: str
    path: tuple[str, ...]
    added: bool = False
    more_is_better: bool = False
    timed: bool = False


METRICS = (
    Metric("small_cpu", "CPU µs per request (0.9 KB)", "small", ("cpu_us",)),
    Metric("big_cpu", "CPU µs per request (47 KB, 100 messages, tools)", "big", ("cpu_us",)),
    Metric("event_cpu", "CPU µs per event (100 streams, 5,000 events/s)", "stream100", ("cpu_us",)),
    Metric("burst_cpu", "CPU µs per event (100 events in one write)", "burst", ("cpu_us",)),
    Metric("small_rate", "requests/s on one core (0.9 KB)", "small", ("per_second",), more_is_better=True, timed=True),
    Metric("big_rate", "requests/s on one core (47 KB)", "big", ("per_second",), more_is_better=True, timed=True),
    Metric("p50", "added latency at 50 requests/s, p50 µs", "open50", ("latency_us", "p50"), added=True, timed=True),
    Metric("p99", "added latency at 50 requests/s, p99 µs", "open50", ("latency_us", "p99"), added=True, timed=True),
    Metric("first_p50", "added time to first token at 50 streams/s, p50 µs", "first50", ("first_us", "p50"), added=True, timed=True),
    Metric("delay_p99", "event delay (100 streams), p99 µs", "stream100", ("delay_us", "p99"), timed=True),
    Metric("connections", "connections to the upstream per 1,000 requests", "small", ("connections",)),
    Metric("rss_idle", "RSS when started, MB", "start", ("rss_mb",)),
    Metric("rss_soak", "RSS after the soak, MB", "soak", ("rss_mb",)),
    Metric("start", "start to first answer, s", "start", ("seconds",), timed=True),
)

Record = dict[str, Any]
Summary = dict[str, dict[str, dict[str, float]]]


def figure(record: Record, path: tuple[str, ...]) -> float | None:
    """The number at `path`, None where the run brought none (no request came through)."""
    value: Any = record
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return None if value is None else float(value)


def figures(records: Iterable[Record], metric: Metric, target: str) -> list[float]:
    """The metric's figure of every repetition of one target."""
    base: dict[int, float] = {}
    found: dict[int, float] = {}
    for record in records:
        value = figure(record, metric.path)
        if record["scenario"] != metric.scenario or value is None:
            continue
        if record["target"] == target:
            found[record["rep"]] = value
        elif record["target"] == DIRECT:
            base[record["rep"]] = value
    if not metric.added:
        return list(found.values())
    return [value - base[rep] for rep, value in found.items() if rep in base]


def summarize(records: list[Record]) -> Summary:
    """metric -> target -> median, min, max and n over the repetitions."""
    targets = dict.fromkeys(r["target"] for r in records if r["target"] != DIRECT)
    summary: Summary = {}
    for metric in METRICS:
        row = {t: f for t in targets if (f := figures(records, metric, t))}
        summary[metric.key] = {t: {"median": median(f), "min": min(f), "max": max(f), "n": len(f)} for t, f in row.items()}
    return summary


def number(x: float) -> str:
    digits = 0 if abs(x) >= 100 else 1 if abs(x) >= 1 else 2
    return f"{x:,.{digits}f}"


def cell(value: dict[str, float] | None) -> str:
    """`median (min-max)`; the range only where there is more than one run."""
    if value is None:
        return "-"
    span = f" ({number(value['min'])}–{number(value['max'])})" if value["n"] > 1 else ""
    return number(value["median"]) + span


def ratio(summary: Summary, metric: Metric, target: str) -> str:
    """How many times our cost is nginx's, or a peer's cost is ours (of a rate: the inverse). Two medians above zero or no ratio."""
    ours, other = (summary[metric.key].get(t, {}).get("median", 0.0) for t in (OURS, target))
    if ours <= 0 or other <= 0:
        return "-"
    return f"{number(ours / other if (target == FLOOR) != metric.more_is_better else other / ours)}×"


def disturbance(records: list[Record], target: str) -> float:
    """The share of the gateway's core that others took in the target's worst scenario."""
    return max((r.get("others", 0.0) for r in records if r["target"] == target), default=0.0)


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    return "\n".join(["| " + " | ".join(row) + " |" for row in (head, ["---", *["---:"] * (len(head) - 1)], *rows)])


def markdown(run: dict[str, Any]) -> str:
    """Both tables of a run with the line that says where and how it was made."""
    summary, versions, machine = run["summary"], run["versions"], run["machine"]
    names = list(versions)
    failed = ["failed requests", *(str(sum(r.get("failed", 0) for r in run["records"] if r["target"] == t)) for t in names)]
    others = {t: disturbance(run["records"], t) for t in names}
    told = [failed, ["core taken by others at worst, %", *(number(100 * share) for share in others.values())]]
    busy = max(others.values(), default=0.0) > QUIET
    metrics = [m for m in METRICS if not (busy and m.timed)]
    figures_table = table(["", *(f"{t} {versions[t]}" for t in names)], [*([m.title, *(cell(summary[m.key].get(t)) for t in names)] for m in metrics), *told])
    runs = "one quick run" if run["quick"] else f"median of {run['reps']} (min–max)"
    made = f"{run['when'][:10]}, {machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, Python {machine['python']}; {runs}."
    if busy:
        made += " **The machine was busy: rates and times would mean nothing and are left out, CPU is dearer for all.**"
    return f"{made}\n\n{figures_table}\n" + ratio_table(summary, metrics, [t for t in names if t != OURS])


def ratio_table(summary: Summary, metrics: Sequence[Metric], rivals: list[str]) -> str:
    """Empty where there is nothing to compare."""
    head = ["cost", *(f"{OURS} / {t}" if t == FLOOR else f"{t} / {OURS}" for t in rivals)]
    rows = [row for m in metrics if set((row := [m.title, *(ratio(summary, m, t) for t in rivals)])[1:]) - {"-"}]
    return f"\n{table(head, rows)}\n" if rows else ""


def into_readme(readme: str, block: str) -> str:
    """`readme` with the text between its two bench markers replaced; ValueError when it has none."""
    text, count = re.subn(r"(<!-- bench -->\n).*?(<!-- /?bench -->)", lambda m: f"{m[1]}{block}{m[2]}", readme, count=1, flags=re.DOTALL)
    if not count:
        raise ValueError("the README has no <!-- bench --> markers")
    return text
