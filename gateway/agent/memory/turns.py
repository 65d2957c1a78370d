"""Messages, their parts and their reasoning; turns, and what of a turn must stay together.

A turn begins with a user message and goes on to the next one. Inside it a unit is what no
cut may go through: an assistant's calls with their results, or any other message alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.chat import Json

REASONING = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
"""the fields in which an assistant's message may carry its reasoning; the last two may be signed"""


def text_of(message: Json) -> str:
    """What a message says, without pictures, calls and reasoning."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = [part.get("text") or part.get("refusal") for part in content if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def reasoning_of(message: Json) -> str:
    """What an assistant thought before it said what it says, in whichever field it stands; of two fields the first, they are the same thought."""
    for name in ("reasoning_content", "reasoning"):
        if isinstance(message.get(name), str) and message[name]:
            return str(message[name])
    for name in ("reasoning_details", "thinking_blocks"):
        blocks = message.get(name)
        if isinstance(blocks, list):
            texts = [block.get("text") or block.get("thinking") or block.get("summary") for block in blocks if isinstance(block, dict)]
            if text := "\n".join(text for text in texts if isinstance(text, str) and text):
                return text
    return ""


def has_reasoning(message: Json) -> bool:
    return any(message.get(name) for name in REASONING)


def is_empty(message: Json) -> bool:
    """Whether nothing is said, shown or called in it. A thought alone is nothing that a provider takes as a turn."""
    if message.get("tool_calls") or message.get("refusal") or message.get("audio"):
        return False
    content = message.get("content")
    if isinstance(content, str):
        return not content.strip()
    return not content


def join_content(first: Any, second: Any) -> Any:
    """Two contents as one: texts with an empty line between them, else the parts of both."""
    if not first or not second:
        return first or second or (first if first is not None else second)
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_parts(first), *_parts(second)]


def join_reasoning(first: Json, second: Json) -> Json:
    """The reasoning fields of two messages as one message's (D26): a field of text stays text, a list a list."""
    out: Json = {}
    for name in REASONING:
        one, two = first.get(name), second.get(name)
        if isinstance(one, str) and isinstance(two, str):
            out[name] = f"{one}\n\n{two}" if one and two else one or two
        elif isinstance(one, list) and isinstance(two, list):
            out[name] = [*one, *two]
        elif one or two:
            out[name] = one or two
    return out


def turn_starts(messages: Sequence[Json]) -> list[int]:
    """Where turns begin: the places of the user messages."""
    return [place for place, message in enumerate(messages) if message.get("role") == "user"]


def unit_starts(messages: Sequence[Json]) -> list[int]:
    """Where a cut does no harm: before anything but a tool's result."""
    return [place for place, message in enumerate(messages) if message.get("role") != "tool"]


def system_end(messages: Sequence[Json]) -> int:
    """How many messages at the beginning are the system's."""
    return next((place for place, message in enumerate(messages) if message.get("role") not in ("system", "developer")), len(messages))


def _parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]
