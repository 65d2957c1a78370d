"""docs/tools.md says what the built-in tools are."""

from __future__ import annotations

import re
from pathlib import Path

from gateway.agent.tools import fetch, folder, search, thoughts
from gateway.agent.tools.builtin import build
from gateway.config import agents as config
from gateway.upstream import guarded

TEXT = (Path(__file__).resolve().parent.parent / "docs" / "tools.md").read_text(encoding="utf-8")


def test_each_tool_has_a_row_with_its_arguments() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", TEXT, re.MULTILINE))
    assert list(rows) == list(config.TOOLS)
    for name, arguments in rows.items():
        parameters = build(config.Tool(name), {"TAVILY_API_KEY": "k"}).parameters
        shown = set(re.findall(r"`(\w+)`", arguments))
        assert set(parameters["required"]) <= shown <= set(parameters["properties"]), name


def test_its_figures_are_the_codes() -> None:
    figures = (
        f"{search.RESULTS} results of {search.SNIPPET} characters",
        f"parts of {fetch.SHOWN:,} characters",
        f"{thoughts.MAX_THOUGHTS:,} thoughts of {thoughts.MAX_LENGTH:,} characters and {thoughts.MAX_BRANCHES} branches",
        f"{folder.MAX_FILES:,} files and {folder.MAX_ALL // 2**20} MiB",
        f"at most {guarded.REDIRECTS} redirects",
        f"{guarded.SIZE // 2**20} MiB and {guarded.TIMEOUT:g} s",
        "ports " + " and ".join(map(str, guarded.PORTS)),
    )
    for figure in figures:
        assert figure in TEXT, figure
    assert set(re.findall(r"`(\.\w+)`", TEXT)) <= folder.SUFFIXES
