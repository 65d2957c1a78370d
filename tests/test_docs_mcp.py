"""docs/mcp.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from gateway import config
from gateway.agent.mcp import connection, results, serving, sessions

PAGE = Path(__file__).resolve().parent.parent / "docs" / "mcp.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_its_example_can_be_loaded() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    env = {"WIKI_TOKEN": "a-token", "DB_URL": "sqlite:///x"}

    agent = config.parse("providers: {a: {}}\nmodels: {smart: a/x}\n" + example, env=env, base=Path("conf")).agents["analyst"]

    assert agent.mcp["files"].tools == ("read_text_file", "list_directory")
    assert agent.mcp["wiki"].headers == {"Authorization": "Bearer a-token"}
    assert (agent.mcp["db"].command, agent.mcp["db"].folder) == (("./servers/db.py",), Path("conf"))


def test_its_numbers_are_the_codes() -> None:
    assert (results.LARGEST, sessions.MOST, sessions.IDLE, serving.KEPT, connection.STARTING) == (200_000, 1000, 1800.0, 512 * 1024, 300.0)
    for said in ("200,000 characters", "1,000 sessions", "half an hour", "512 KiB", "five minutes"):
        assert said in TEXT
