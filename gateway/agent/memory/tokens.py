"""How many tokens a list of messages is about.

Bytes, not characters, are counted: a CJK character has 3 bytes and so counts 0.75, which is
what tokenizers need for it today (0.6 to 0.8). An `Estimator` learns the rest from what
providers say they counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.chat import Json, dumps

BYTES_PER_TOKEN = 4
FRAME = 4
"""tokens around a message: role, separators"""
MEDIA = 1_000
"""tokens of a picture, a sound or a file that is not text; its base64 is no text that a model reads"""

_REASONING = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
"""one thought in several forms; a provider gets one of them"""


def text_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def text_tokens(text: str) -> int:
    """Tokens of a text, rounded up."""
    return -(-text_bytes(text) // BYTES_PER_TOKEN)


def size(messages: Iterable[Json], tools: Sequence[Json] = ()) -> int:
    """The bytes of a request that a model reads as text: what `Estimator.learn` wants to know."""
    return sum(_message_bytes(message) for message in messages) + (len(dumps(list(tools))) if tools else 0)


def count(messages: Iterable[Json], tools: Sequence[Json] = ()) -> int:
    """Tokens of messages and tool definitions, before any correction."""
    return -(-size(messages, tools) // BYTES_PER_TOKEN)


@dataclass(frozen=True, slots=True)
class Estimator:
    """Counts tokens as one model does. `ratio`: its tokens for each of ours; 1 until it told.

    estimator = estimator.learn(size(messages, tools), usage["prompt_tokens"])
    """

    ratio: float = 1.0
    told: int = 0

    def learn(self, prompt_bytes: int, prompt_tokens: int) -> Estimator:
        """What is known after a provider counted `prompt_tokens` for a prompt of `prompt_bytes` (`size`).

        Short prompts say little (a provider's own frame outweighs them) and impossible counts
        nothing. What was told later counts more: a conversation changes its language.
        """
        if prompt_bytes < 400 or prompt_tokens <= 0:
            return self
        seen = prompt_tokens * BYTES_PER_TOKEN / prompt_bytes
        if not 0.25 <= seen <= 4:
            return self
        return Estimator(seen if not self.told else (self.ratio + seen) / 2, self.told + 1)

    def count(self, messages: Iterable[Json], tools: Sequence[Json] = ()) -> int:
        return round(count(messages, tools) * self.ratio)


def _message_bytes(message: Json) -> int:
    total = FRAME * BYTES_PER_TOKEN + _content_bytes(message.get("content"))
    total += max(_value_bytes(message.get(name)) for name in _REASONING)
    for name in ("tool_calls", "function_call", "refusal", "name"):
        total += _value_bytes(message.get(name))
    return total


def _content_bytes(content: Any) -> int:
    if not isinstance(content, list):
        return _value_bytes(content)
    total = 0
    for part in content:
        if isinstance(part, dict) and not isinstance(part.get("text"), str) and part.get("type") not in ("text", "refusal", "thinking"):
            total += MEDIA * BYTES_PER_TOKEN
        else:
            total += _value_bytes(part.get("text") or part) if isinstance(part, dict) else _value_bytes(part)
    return total


def _value_bytes(value: Any) -> int:
    if value is None:
        return 0
    return text_bytes(value) if isinstance(value, str) else len(dumps(value))
