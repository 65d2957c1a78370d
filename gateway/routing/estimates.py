"""What an answer used that its provider never told: guessed from what there is of it, and priced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gateway.chat import Json, Record
from gateway.routing.prices import Rates

PER_TOKEN = 4
"""bytes of UTF-8 for a token, the usual rule of thumb"""

Prices = Callable[[str, str], Rates | None]
"""what a provider's model costs; None: nobody knows"""


def estimated(record: Record, size: int, completion: int, prices: Prices) -> tuple[Json, float | None] | None:
    """Usage and cost of a request of `size` bytes whose answer had about so many tokens, at the target's price; None: the provider told all of it."""
    told = record.usage or {}
    have = counted(told, "prompt_tokens"), counted(told, "completion_tokens")
    if have[0] and have[1] >= completion:
        return None
    prompt, completion = have[0] or max(1, size // PER_TOKEN), max(have[1], completion)
    usage = {**told, "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    provider, model = record.answered()
    rates = prices(provider, model) if provider is not None and model is not None else None
    if rates is None:
        return usage, record.cost
    return usage, (record.cost or 0.0) + max(0.0, rates.cost(usage) - (rates.cost(told) if told else 0.0))


def counted(usage: dict[str, Any], name: str) -> int:
    """A count of a usage object; 0 where it is none."""
    value = usage.get(name)
    return value if type(value) is int and value > 0 else 0
