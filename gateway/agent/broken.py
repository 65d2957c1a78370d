"""What a turn used that broke off before its provider could say so: estimated as for every other request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gateway.agent.turn import Turn
from gateway.chat import Json, Record
from gateway.routing import Rates

_PER_TOKEN = 4  # bytes of UTF-8, the usual rule of thumb
_SAID = ("content", "reasoning_content", "refusal")

Prices = Callable[[str, str], Rates | None]
"""what a provider's model costs, None: nobody knows"""


def unpriced(provider: str, model: str) -> Rates | None:
    """Where no prices are known."""
    return None


def used(record: Record, said: Mapping[str, Any], size: int, prices: Prices, *, left: bool) -> Turn | None:
    """The part of a turn that was used; None: nothing that a provider charges for.

    said  the message as far as it came
    size  bytes of the request
    left  nobody waited for it any more; else the provider failed, and what fails before its content is not charged
    """
    if record.cache == "hit" or not record.attempts:
        return None
    last, told = record.attempts[-1], record.usage
    provider, model = record.provider or last.provider, record.target_model or last.model
    if record.first_content is None and not (left and last.kind == "client_gone"):
        return None if told is None else Turn({}, None, told, record.cost, provider, model)
    guessed = max(1, record.chunks, _bytes(said) // _PER_TOKEN) if record.first_content is not None else 0
    usage: Json = dict(told or {})
    usage["prompt_tokens"] = usage.get("prompt_tokens") or max(1, size // _PER_TOKEN)
    usage["completion_tokens"] = max(usage.get("completion_tokens") or 0, guessed)
    usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
    cost, rates = record.cost, prices(provider, model)
    if rates is not None:
        cost = (cost or 0.0) + max(0.0, rates.cost(usage) - (rates.cost(told) if told else 0.0))
    return Turn({}, None, usage, cost, provider, model)


def _bytes(said: Mapping[str, Any]) -> int:
    texts = [said.get(name) for name in _SAID]
    texts += [call.get("function", {}).get("arguments") for call in said.get("tool_calls") or ()]
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts if isinstance(text, str))
