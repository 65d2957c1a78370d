"""The benchmark of the agents' runtime runs, and measures what its README says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_it_runs_and_prints_each_figure_of_the_readme() -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-m", "bench.agents", "--quick"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    told = [line[:58].strip() for line in done.stdout.splitlines()]
    for figure in ("in memory: CPU per step", "SQLite: CPU per step", "20 idle sessions: objects of each", "20 idle sessions: growth of the process for each"):
        assert figure in told
    assert any(line.startswith("SQLite: a write to the journal (") for line in told)
