"""The words of messages: all of them, and in short."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SUMMARY = 280
"""characters of a thought in short"""


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message, whatever form its content has."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    return "\n".join(str(part.get("text") or part.get("refusal") or "") for part in parts if isinstance(part, dict)).strip()


def short(text: str, most: int = SUMMARY) -> str:
    """A thought on one line, cut to its first words."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"
