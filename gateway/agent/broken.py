"""What a turn used that broke off before its provider could say so: estimated as for every other request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.agent.turn import Turn
from gateway.chat import Record
from gateway.routing import Rates
from gateway.routing.estimates import PER_TOKEN, Prices, estimated

_SAID = ("content", "reasoning_content", "refusal")


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
    last, begun = record.attempts[-1], record.first_content is not None
    found = None
    if begun or (left and last.kind == "client_gone"):
        found = estimated(record, size, max(1, record.chunks, _bytes(said) // PER_TOKEN) if begun else 0, prices)
    elif record.usage is None:
        return None
    usage, cost = found or (record.usage, record.cost)
    return Turn({}, None, usage, cost, record.provider or last.provider, record.target_model or last.model)


def _bytes(said: Mapping[str, Any]) -> int:
    texts = [said.get(name) for name in _SAID]
    texts += [call.get("function", {}).get("arguments") for call in said.get("tool_calls") or ()]
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts if isinstance(text, str))
