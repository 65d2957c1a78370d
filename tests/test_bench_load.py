"""The load checks: their config can be used, and their table says what was not kept."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from bench import load  # noqa: E402
from gateway import app, config  # noqa: E402


def test_the_config_of_the_checks_can_be_used() -> None:
    conf = config.parse(load.settings(9, "http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1", ", limits: {concurrency: 8}"), env={})
    app.check(conf)

    assert conf.providers["deepseek"].limits.concurrency == load.CAPACITY
    assert {load.STREAM_5, load.STREAM_100, "endless", "bounded"} <= conf.models.keys()


def test_the_table_marks_what_was_not_kept() -> None:
    text = load.markdown([load.Figure("a", "0 lost", "0 lost", True), load.Figure("b", "1 MiB", "2 MiB", False)])

    assert text.splitlines()[2:] == ["| a | 0 lost | 0 lost |", "| b | 1 MiB | 2 MiB **not kept** |"]


@pytest.mark.parametrize("check", load.CHECKS)
def test_every_check_is_explained(check: str) -> None:
    assert f"| {check} | " in (ROOT / "bench/README.md").read_text(encoding="utf-8")
