"""Which target of a chain comes first. Those behind it stay what the next ones are tried from."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from gateway.config import Target
from gateway.routing.prices import Prices
from gateway.routing.speeds import Speeds


def weighted(targets: Sequence[Target], draw: Callable[[], float] = random.random) -> list[Target]:
    """At random, the first and each next one with the share of its weight among those that are left."""
    return sorted(targets, key=lambda target: -math.log(1.0 - draw()) / target.weight)


def fastest(targets: Sequence[Target], speeds: Speeds, stream: bool) -> list[Target]:
    """Those that nobody has tried first, one request at a time; then by the expected time; those being tried last."""

    def rank(target: Target) -> tuple[int, float]:
        expected = speeds.expected(target.name, stream)
        if expected is not None:
            return 1, expected
        return (0 if speeds.untried(target.name, stream) else 2), 0.0

    return sorted(targets, key=rank)


def cheapest(targets: Sequence[Target], prices: Prices) -> list[Target]:
    """By the sum of the prices of input and output; those without a price last."""

    def rank(target: Target) -> float:
        price = prices.of(target.provider, target.model)
        return price.input + price.output if price is not None else math.inf

    return sorted(targets, key=rank)
