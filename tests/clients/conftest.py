from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent / "sdk")]

from children import Worker  # noqa: E402

# These tests need hundreds of megabytes of other people's packages: run.py installs them and sets the variable.
collect_ignore_glob = [] if os.environ.get("CLIENTS") else ["test_*.py"]


@pytest.fixture(scope="session")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], Worker]]:
    """`worker(group, script)` is that script's process, started when there is none."""
    started: dict[str, Worker] = {}

    def of(group: str, script: str) -> Worker:
        if script not in started or started[script].ended:
            started[script] = Worker(group, script, tmp_path_factory.mktemp("home"))
        return started[script]

    yield of
    for one in started.values():
        one.end()
