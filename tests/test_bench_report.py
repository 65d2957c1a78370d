"""The benchmark's arithmetic: what its table says follows from what was measured."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

spec = importlib.util.spec_from_file_location("bench_report", Path(__file__).parents[1] / "bench/report.py")
assert spec
assert spec.loader
report = sys.modules["bench_report"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(report)


def records(target: str, scenario: str, *figures: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"target": target, "scenario": scenario, "rep": rep, **figure} for rep, figure in enumerate(figures)]


def metric(key: str) -> Any:
    return next(m for m in report.METRICS if m.key == key)


def run(found: list[dict[str, Any]], *targets: str) -> dict[str, Any]:
    machine = {"cpu": "Some CPU", "cores": 2, "kernel": "6.1", "python": "3.11.7"}
    return {
        "when": "2026-01-02T03-04-05",
        "quick": False,
        "reps": 3,
        "machine": machine,
        "versions": dict.fromkeys(targets, "1.0"),
        "summary": report.summarize(found),
        "records": found,
    }


SMALL = [
    *records("thinkgate", "small", {"cpu_us": 90.0, "per_second": 9000}, {"cpu_us": 110.0, "per_second": 10000}, {"cpu_us": 100.0, "per_second": 11000}),
    *records("nginx", "small", {"cpu_us": 20.0, "per_second": 40000}, {"cpu_us": 20.0, "per_second": 40000}, {"cpu_us": 30.0, "per_second": 30000}),
    *records("litellm", "small", {"cpu_us": 5000.0, "per_second": 200}),
]


def test_summary_is_median_and_range_over_the_repetitions() -> None:
    assert report.summarize(SMALL)["small_cpu"]["thinkgate"] == {"median": 100.0, "min": 90.0, "max": 110.0, "n": 3}


def test_added_latency_is_less_the_direct_one_of_the_same_repetition() -> None:
    direct = records("direct", "open50", {"latency_us": {"p50": 100.0}}, {"latency_us": {"p50": 300.0}})
    through = records("thinkgate", "open50", {"latency_us": {"p50": 500.0}}, {"latency_us": {"p50": 800.0}})
    assert report.figures([*direct, *through], metric("p50"), "thinkgate") == [400.0, 500.0]
    assert report.figures([*direct[:1], *through], metric("p50"), "thinkgate") == [400.0]


def test_a_figure_that_a_run_did_not_bring_is_left_out() -> None:
    found = records("thinkgate", "open50", {"latency_us": {"n": 0}}) + records("direct", "open50", {"latency_us": {"p50": 100.0}})
    assert report.figures(found, metric("p50"), "thinkgate") == []
    assert report.cell(report.summarize(found)["p50"].get("thinkgate")) == "-"


def test_ratios_are_of_cost_in_both_directions() -> None:
    summary = report.summarize(SMALL)
    assert report.ratio(summary, metric("small_cpu"), "nginx") == "5.0×"  # ours / nginx
    assert report.ratio(summary, metric("small_cpu"), "litellm") == "50.0×"  # LiteLLM / ours
    assert report.ratio(summary, metric("small_rate"), "nginx") == "4.0×"
    assert report.ratio(summary, metric("small_rate"), "litellm") == "50.0×"


def test_no_ratio_of_nothing_and_of_less_than_nothing() -> None:
    found = [
        *records("direct", "open50", {"latency_us": {"p99": 500.0}}),
        *records("thinkgate", "open50", {"latency_us": {"p99": 400.0}}),
        *records("nginx", "open50", {"latency_us": {"p99": 600.0}}),
    ]
    assert report.ratio(report.summarize(found), metric("p99"), "nginx") == "-"
    assert report.ratio(report.summarize(found), metric("start"), "nginx") == "-"


@pytest.mark.parametrize(("value", "text"), [(0.123, "0.12"), (9.96, "10.0"), (123.4, "123"), (12345.6, "12,346"), (-1.25, "-1.2")])
def test_numbers_show_about_three_digits(value: float, text: str) -> None:
    assert report.number(value) == text


def test_the_table_has_a_column_per_target_and_counts_failures() -> None:
    found = [*SMALL, *records("litellm", "burst", {"failed": 2}), *records("litellm", "start", {"failed": 1})]
    text = report.markdown(run(found, "thinkgate", "nginx", "litellm"))
    assert "|  | thinkgate 1.0 | nginx 1.0 | litellm 1.0 |" in text
    assert "| CPU µs per request (0.9 KB) | 100 (90.0–110) | 20.0 (20.0–30.0) | 5,000 |" in text
    assert "| failed requests | 0 | 0 | 3 |" in text
    assert "| cost | thinkgate / nginx | litellm / thinkgate |" in text
    assert "2026-01-02, Some CPU, 2 cores, Linux 6.1, Python 3.11.7; median of 3 (min–max)." in text


def test_a_busy_machine_is_said_so_with_the_table() -> None:
    quiet = [*SMALL, *records("nginx", "burst", {"others": 0.02}, {"others": 0.05})]
    assert "| core taken by others at worst, % | 0.00 | 5.0 |" in report.markdown(run(quiet, "thinkgate", "nginx"))
    assert "busy" not in report.markdown(run(quiet, "thinkgate", "nginx"))
    busy = report.markdown(run([*quiet, *records("thinkgate", "burst", {"others": 0.4})], "thinkgate", "nginx"))
    assert "The machine was busy" in busy
    assert "| CPU µs per request (0.9 KB) | 100" in busy


def test_what_the_clock_measured_on_a_busy_machine_is_left_out() -> None:
    timed = [*SMALL, *records("thinkgate", "start", {"seconds": 0.4, "rss_mb": 50}), *records("nginx", "start", {"seconds": 0.1, "rss_mb": 8})]
    assert report.markdown(run(timed, "thinkgate", "nginx")).count("start to first answer") == 2
    busy = report.markdown(run([*timed, *records("nginx", "burst", {"others": 0.4})], "thinkgate", "nginx"))
    assert not any(word in busy for word in ("start to first answer", "requests/s", "latency", "delay"))
    assert "| RSS when started, MB | 50.0 | 8.0 |" in busy


def test_without_a_rival_there_is_no_table_of_ratios() -> None:
    assert "cost" not in report.markdown(run(SMALL[:3], "thinkgate"))


@pytest.mark.parametrize("close", ["<!-- bench -->", "<!-- /bench -->"])
def test_only_the_block_between_the_markers_of_the_readme_changes(close: str) -> None:
    readme = f"before\n<!-- bench -->\nold \\1\n{close}\nafter\n"
    assert report.into_readme(readme, "new \\1\n") == f"before\n<!-- bench -->\nnew \\1\n{close}\nafter\n"


def test_a_readme_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="markers"):
        report.into_readme("nothing here", "new")
