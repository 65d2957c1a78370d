"""A chat message as one side's turn of blocks: the same in Messages and in Converse, which only word the blocks differently."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from gateway.chat import Json
from gateway.dialects.messages.carriers import signed_blocks
from gateway.dialects.messages.terms import listed


class _Content(Protocol):
    def __call__(self, message: Json, texts_only: bool = False) -> list[Json]: ...


class Blocks(NamedTuple):
    """How a dialect words the blocks of a turn.

    content    a message's text and pictures
    text       a bare text
    reasoning  signed blocks of Anthropic's
    use        a tool call and its place among the turn's
    result     a message of role `tool`
    """

    content: _Content
    text: Callable[[str], Json]
    reasoning: Callable[[Iterable[Json]], Iterable[Json]]
    use: Callable[[Json, int], Json]
    result: Callable[[Json], Json]


def turn(role: Any, message: Json, blocks: Blocks) -> tuple[str, list[Json]]:
    """The side that speaks and what it says. A late system message keeps its place, as the user's text: moved to the
    top it would spoil the prompt cache."""
    if role == "assistant":
        return "assistant", _said(message, blocks)
    if role == "tool":
        return "user", [blocks.result(message)]
    return "user", blocks.content(message)


def _said(message: Json, blocks: Blocks) -> list[Json]:
    said = blocks.content(message, texts_only=True)
    refusal = message.get("refusal")
    if not said and isinstance(refusal, str) and refusal.strip():
        said = [blocks.text(refusal)]
    calls = [blocks.use(call, place) for place, call in enumerate(listed(message.get("tool_calls")))]
    return [*blocks.reasoning(signed_blocks(message)), *said, *calls]
