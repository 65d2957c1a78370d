"""The lines of the benchmark of keys are what they say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gateway import config

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench import keys  # noqa: E402


@pytest.mark.parametrize("line", keys.lines("redis://127.0.0.1:6379/0"), ids=lambda line: line.name)
def test_each_config_can_be_used_and_has_the_key_that_is_sent(line: keys.Line) -> None:
    conf = config.parse(keys.BASE.format(port=1) + line.more, env={})
    known = [key.reveal() for key in conf.server.keys] + [key.key.reveal() for key in conf.keys.values()]

    assert line.key in known
    assert (conf.retention.requests == 0) == ("no record" in line.name or line.name.startswith("limits of"))
    assert (conf.shared is not None) == ("Valkey" in line.name)


def test_p99_is_that_of_the_sorted() -> None:
    assert keys.p99([float(n) for n in range(100, 0, -1)]) == 100.0
    assert keys.ms(0.0123) == "12.3 ms"
