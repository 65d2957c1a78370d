"""The file that holds every setting, with the environment that it needs."""

from __future__ import annotations

from pathlib import Path

TEXT = (Path(__file__).parent / "config_sample.yaml").read_text(encoding="utf-8")
ENV = {
    "CLIENT_KEY": "client-key-0123456789",
    "ADMIN_KEY": "admin-key-0123456789",
    "DEEPSEEK_KEY": "deepseek-key-0123456789",
    "TEAM_A_KEY": "team-a-key-0123456789",
    "TAVILY_API_KEY": "tavily-key-0123456789",
}
