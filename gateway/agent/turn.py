"""One turn of a model: what is asked, and what came back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

import msgspec

from gateway.chat import Accumulator, Attempt, Json, Model, Request
from gateway.errors import StreamCut

Show = Callable[[str, str], Awaitable[None]]
"""told each piece of a turn while it comes: `content` or `reasoning`, and the text"""


class Call(msgspec.Struct, frozen=True):
    """A tool call as the model made it; `arguments` is the text that it wrote."""

    id: str
    name: str
    arguments: str

    def entry(self) -> Json:
        """Its entry in `tool_calls`."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments or "{}"}}


class Turn(msgspec.Struct, frozen=True):
    """An assistant's turn. `message` goes back to the model as it came, with its reasoning and every field that we do not know and that says something.

    finish  the provider's own finish reason
    usage   tokens in OpenAI's chat form, None where nobody told
    cost    USD, None where no price is known
    """

    message: Json
    finish: str | None = None
    usage: Json | None = None
    cost: float | None = None
    provider: str | None = None
    model: str | None = None

    @property
    def text(self) -> str:
        content = self.message.get("content")
        return content if isinstance(content, str) else ""

    @property
    def reasoning(self) -> str:
        value = self.message.get("reasoning_content")
        return value if isinstance(value, str) else ""

    @property
    def calls(self) -> list[Call]:
        return [
            Call(str(call.get("id") or ""), str(call["function"].get("name") or ""), str(call["function"].get("arguments") or ""))
            for call in self.message.get("tool_calls") or ()
            if isinstance(call.get("function"), dict)
        ]

    @property
    def empty(self) -> bool:
        return not self.text.strip() and not self.calls and not self.message.get("refusal")


async def read(model: Model, request: Request, show: Show, answer: Accumulator) -> Turn:
    """Ask a model and wait for all of its turn; `answer` holds what came of it so far.

    Raises what the model raises; StreamCut too for a stream that ends without a finish reason.
    """
    async with aclosing(model.generate(request)) as chunks:
        async for chunk in chunks:
            value = chunk.json()
            answer.add(value)
            for choice in value.get("choices") or ():
                delta = choice.get("delta") or choice.get("message") or {}
                for field, kind in (("reasoning_content", "reasoning"), ("content", "content")):
                    text = delta.get(field)
                    if isinstance(text, str) and text:
                        request.record.chunks += 1
                        await show(kind, text)
    choices = answer.completion()["choices"]
    if not choices or choices[0].get("finish_reason") is None:
        raise StreamCut("protocol", "the model's turn ended without a finish reason")
    record = request.record
    said = {name: value for name, value in choices[0]["message"].items() if value is not None or name == "content"}
    return Turn(said, choices[0]["finish_reason"], record.usage, record.cost, record.provider, record.target_model)


def failures(attempts: list[Attempt]) -> list[Json]:
    """What each attempt of a model call came to, for `attempt` events."""
    return [attempt.public() for attempt in attempts]


class Sum:
    """Tokens and cost of several turns, in OpenAI's form. `cost` stays None until a price was known."""

    def __init__(self) -> None:
        self.usage: Json = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        self.cost: float | None = None
        self.turns = 0
        self.unpriced = False

    @classmethod
    def of(cls, usage: Json, cost: float | None) -> Sum:
        """What was used before."""
        made = cls()
        _add(made.usage, usage)
        made.cost = cost
        return made

    def plus(self, other: Sum) -> Sum:
        """Both together."""
        made = Sum.of(self.usage, self.cost)
        _add(made.usage, other.usage)
        if other.cost is not None:
            made.cost = (made.cost or 0.0) + other.cost
        return made

    def add(self, turn: Turn) -> None:
        self.turns += 1
        if turn.usage is not None:
            _add(self.usage, turn.usage)
        if turn.cost is None:
            self.unpriced = True
        else:
            self.cost = (self.cost or 0.0) + turn.cost

    @property
    def tokens(self) -> int:
        total = self.usage["total_tokens"]
        return int(total) if total else int(self.usage["prompt_tokens"]) + int(self.usage["completion_tokens"])


def _add(into: Json, more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, dict):
            _add(into.setdefault(name, {}), value)
        elif isinstance(value, int) and not isinstance(value, bool):
            have = into.get(name)
            into[name] = (have if isinstance(have, int) else 0) + value
