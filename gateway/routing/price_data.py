"""Prints the public prices and context windows of the providers at some base URLs, as JSON.

Run as a process of its own, because importing the price data holds up the one that does it
for half a second and costs it 30 MB. Reads a JSON list of base URLs, writes
`{url: [[names, pattern, window, [[when, rates], ...]], ...]}`: a model has one of the `names`,
or `pattern` (null: there is none) is found in its name, all in lower case; `when` is null,
`{"from": "2026-09-05"}` or `{"start": "16:30:00", "end": "00:30:00"}` (UTC), the last `rates`
whose `when` holds are those of the moment; `rates` is `{"input": [[above, usd], ...], "output":
..., "cached": ..., "written": ...}`: USD per million tokens for requests whose prompt is larger
than `above` tokens.
"""

from __future__ import annotations

import json
import os
import re
import sys
from datetime import UTC, datetime
from typing import Any

from genai_prices import types
from genai_prices.data_snapshot import get_snapshot

_RATES = {"input": "input_mtok", "output": "output_mtok", "cached": "cache_read_mtok", "written": "cache_write_mtok"}


def main() -> None:
    if hasattr(os, "nice"):
        os.nice(10)  # requests come first
    json.dump({url: models(url) for url in json.load(sys.stdin)}, sys.stdout)


def models(url: str) -> list[Any]:
    """Every model of the provider at a base URL, and of those whose models it also serves; [] for one that is not known."""
    snapshot = get_snapshot()
    try:
        provider = snapshot.find_provider(None, None, url)
    except LookupError:
        return []
    others = [found for name in provider.fallback_model_providers or () if (found := next((p for p in snapshot.providers if p.id == name), None))]
    return [entry for one in (provider, *others) for model in one.models if (entry := described(model))]


def described(model: types.ModelInfo) -> list[Any]:
    given = model.prices if isinstance(model.prices, list) else [types.ConditionalPrice(prices=model.prices)]
    clauses = model.match.or_ if isinstance(model.match, types.ClauseOr) else [model.match]
    names = [clause.equals.lower() for clause in clauses if isinstance(clause, types.ClauseEquals)]
    others = "|".join(f"(?:{pattern(clause)})" for clause in clauses if not isinstance(clause, types.ClauseEquals))
    return [names, others or None, model.context_window, [[when(price.constraint), rates(price.prices)] for price in given]]


def pattern(clause: Any) -> str:
    """A match of the price data as a regular expression to be searched for."""
    match clause:
        case types.ClauseEquals():
            return f"^{re.escape(clause.equals.lower())}$"
        case types.ClauseStartsWith():
            return f"^{re.escape(clause.starts_with.lower())}"
        case types.ClauseEndsWith():
            return f"{re.escape(clause.ends_with.lower())}$"
        case types.ClauseContains():
            return re.escape(clause.contains.lower())
        case types.ClauseRegex():
            return str(clause.regex)
        case types.ClauseOr():
            return "|".join(f"(?:{pattern(one)})" for one in clause.or_)
        case types.ClauseAnd():
            return "^" + "".join(f"(?=.*?(?:{pattern(one)}))" for one in clause.and_)
    raise TypeError(f"unknown match {type(clause).__name__}")


def when(constraint: Any) -> dict[str, str] | None:
    match constraint:
        case None:
            return None
        case types.StartDateConstraint():
            return {"from": constraint.start_date.isoformat()}
        case types.TimeOfDateConstraint():
            return {"start": utc(constraint.start_time), "end": utc(constraint.end_time)}
    raise TypeError(f"unknown constraint {type(constraint).__name__}")


def utc(moment: Any) -> str:
    """A time of day in UTC; one without a zone is."""
    if moment.tzinfo is None:
        return str(moment.isoformat("seconds"))
    return datetime.combine(datetime(1970, 1, 1), moment).astimezone(UTC).time().isoformat("seconds")


def rates(prices: types.ModelPrice) -> dict[str, list[list[float]]]:
    found = {}
    for name, theirs in _RATES.items():
        price = getattr(prices, theirs, None)
        if isinstance(price, types.TieredPrices):
            found[name] = [[0, float(price.base)], *([tier.start, float(tier.price)] for tier in price.tiers)]
        elif price is not None:
            found[name] = [[0, float(price)]]
    return found


if __name__ == "__main__":
    main()
