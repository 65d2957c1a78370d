"""`/v1/messages/count_tokens`: by a provider that can count, else an estimate."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from starlette.types import Send

from gateway.api.answering import send_json
from gateway.api.headers import response_headers
from gateway.api.relay import Relayed
from gateway.api.state import Visit
from gateway.chat import Json, Model, Request, dumps
from gateway.errors import ChainExhausted, GatewayError

_PER_TOKEN = 4  # bytes of UTF-8, the usual rule of thumb
_PER_PICTURE = 1600  # tokens: the most that Anthropic charges for one (docs, 2026)


@dataclass(frozen=True, slots=True)
class Counting(Relayed):
    """Asks the chain's providers that speak Messages; where none can tell, the size of the text does."""

    async def answer(self, model: Model, request: Request, send: Send, visit: Visit) -> GatewayError | None:
        body = request.body.fresh()
        counted: bytes | None = None
        try:
            async with aclosing(model.generate(request)) as chunks:
                async for chunk in chunks:
                    counted = chunk.data
        except ChainExhausted as error:
            if error.status < 500 and not all(attempt.get("skipped") for attempt in error.attempts):
                raise
        await send_json(send, 200, counted or dumps({"input_tokens": estimate(body)}), response_headers(visit.record, visit.limits))
        return None


def estimate(body: Json) -> int:
    """The input tokens of a Messages request, from the bytes of its texts; a picture counts as the most that one costs."""
    size = [0]
    pictures = _weigh([body.get("system"), body.get("messages"), body.get("tools")], size)
    return max(1, round(size[0] / _PER_TOKEN) + pictures * _PER_PICTURE)


def _weigh(value: Any, size: list[int]) -> int:
    if isinstance(value, str):
        size[0] += len(value.encode("utf-8", "replace"))
        return 0
    if isinstance(value, dict):
        if value.get("type") in ("image", "document"):
            return 1
        size[0] += sum(len(key) for key in value)
        return sum(_weigh(item, size) for item in value.values())
    return sum(_weigh(item, size) for item in value) if isinstance(value, list) else 0
