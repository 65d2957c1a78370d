"""What an answer costs: the config's prices, the public ones, steps and hours."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from asked import until

from gateway import config
from gateway.routing import prices as module
from gateway.routing.prices import Known, Models, PriceData, Prices, Rates, is_public

URL = "https://api.example.com/v1"


def make(own: config.Price | None = None, entries: list[Any] | None = None, at: float = 1_800_000_000.0) -> Prices:
    data = PriceData()
    if entries is not None:
        data._models[URL] = Models(entries)
    settings = {"a": config.Provider("a", models={"m": own} if own else {})}
    return Prices(settings, {"a": URL}, data, lambda: at)


def entry(*names: str, window: int | None = None, pattern: str | None = None, **rates: Any) -> list[Any]:
    return [list(names), pattern, window, [[None, {name: [[0, usd]] if isinstance(usd, int | float) else usd for name, usd in rates.items()}]]]


def test_the_cost_counts_fresh_cached_and_newly_cached_tokens_and_the_answer() -> None:
    rates = Rates(input=1.0, output=10.0, cached=0.1, written=1.25)
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 600, "cache_write_tokens": 200}}

    assert rates.cost(usage) == pytest.approx((200 * 1.0 + 600 * 0.1 + 200 * 1.25 + 100 * 10.0) / 1e6)


@pytest.mark.parametrize("usage", [{}, {"prompt_tokens": None, "completion_tokens": "7"}, {"prompt_tokens": -5, "prompt_tokens_details": [1]}])
def test_counts_that_are_none_cost_nothing(usage: dict[str, Any]) -> None:
    assert Rates(1.0, 1.0, 1.0, 1.0).cost(usage) == 0


@pytest.mark.parametrize(("prompt", "usd"), [(200_000, 200_000 * 3 + 10 * 15), (200_001, 200_001 * 6 + 10 * 22.5)])
def test_a_step_is_the_price_of_all_tokens_of_a_longer_prompt(prompt: int, usd: float) -> None:
    rates = make(entries=[entry("m", input=[[0, 3.0], [200_000, 6.0]], output=[[0, 15.0], [200_000, 22.5]])]).of("a", "m")

    assert rates is not None
    assert rates.cost({"prompt_tokens": prompt, "completion_tokens": 10}) == pytest.approx(usd / 1e6)


def test_the_configs_word_counts_before_the_public_data() -> None:
    public = [entry("m", window=1000, input=1.0, output=2.0, cached=0.1)]

    assert make(entries=public).of("a", "m") == Rates(1.0, 2.0, 0.1, 1.0)
    assert make(config.Price(output=5.0), public).of("a", "m") == Rates(1.0, 5.0, 0.1, 1.0)
    assert make(config.Price(input=4.0), public).of("a", "m") == Rates(4.0, 2.0, 4.0, 4.0), "a discount on another price says nothing"
    assert make(config.Price(cached=0.5), public).of("a", "m") == Rates(1.0, 2.0, 0.5, 1.0)
    assert make(config.Price(context=5), public).window("a", "m") == 5
    assert make(config.Price(input=1.0), public).window("a", "m") == 1000


def test_without_a_price_of_the_prompt_there_is_none() -> None:
    assert make().of("a", "m") is None
    assert make(config.Price(output=1.0)).of("a", "m") is None
    assert make(config.Price(input=0.02)).of("a", "m") == Rates(0.02, 0.0, 0.02, 0.02), "embeddings have no price of an answer"
    assert make(entries=[entry("other", input=1.0)]).of("a", "m") is None


def test_the_first_model_that_fits_is_the_one() -> None:
    models = Models([entry("gpt-x", window=1), entry(pattern="^gpt", window=2), entry("gpt-y", window=3)])

    assert [known.window if (known := models.find(name)) else None for name in ("gpt-x", "GPT-X", "gpt-y", "gpt-z", "llama")] == [1, 1, 2, 2, None]


@pytest.mark.parametrize(("hour", "usd"), [("17:00", 0.5), ("00:29", 0.5), ("00:30", 1.0), ("12:00", 1.0)])
def test_a_price_may_hold_for_some_hours_across_midnight(hour: str, usd: float) -> None:
    known = Known(None, [(None, {"input": [(0, 1.0)]}), ({"start": "16:30:00", "end": "00:30:00"}, {"input": [(0, 0.5)]})])

    assert known.rates(datetime.fromisoformat(f"2026-11-30T{hour}").replace(tzinfo=UTC))["input"] == [(0, usd)]


@pytest.mark.parametrize(("day", "usd"), [("2026-09-04", 1.0), ("2026-09-05", 0.7)])
def test_a_price_may_hold_from_a_day_on(day: str, usd: float) -> None:
    known = Known(None, [(None, {"input": [(0, 1.0)]}), ({"from": "2026-09-05"}, {"input": [(0, 0.7)]})])

    assert known.rates(datetime.fromisoformat(f"{day}T12:00").replace(tzinfo=UTC))["input"] == [(0, usd)]


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("https://api.openai.com/v1", True),
        ("http://api.openai.com/v1", False),
        ("https://localhost/v1", False),
        ("https://llm.internal/v1", False),
        ("https://10.0.0.1/v1", False),
        ("https://[::1]/v1", False),
        ("http://127.0.0.1:8000/v1", False),
        ("mock://x", False),
        ("", False),
    ],
)
def test_only_providers_on_the_internet_have_a_public_price(url: str, public: bool) -> None:
    assert is_public(url) is public


async def test_the_public_data_is_read_in_the_background() -> None:
    urls = {"openai": "https://api.openai.com/v1", "claude": "https://api.anthropic.com/v1", "house": "https://llm.example.com/v1"}
    data = PriceData()
    prices = Prices({name: config.Provider(name) for name in urls}, urls, data)
    data.begin(urls.values())
    assert prices.of("openai", "gpt-4o") is None
    reading = data._reading
    assert reading is not None
    await reading

    cheap = prices.of("openai", "gpt-4o-mini")
    dear = prices.of("openai", "gpt-4o")
    claude = prices.of("claude", "claude-sonnet-4-5")
    assert cheap is not None
    assert dear is not None
    assert 0 < cheap.input < dear.input < dear.output
    assert prices.window("openai", "gpt-4o") == 128_000
    assert claude is not None
    assert claude.cached < claude.input < claude.written
    assert prices.of("house", "gpt-4o") is None, "a relay asks what it likes"
    await data.stop()


async def test_data_that_cannot_be_read_is_told_once_and_missed_by_nobody(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(module.sys, "executable", "/nonexistent/python")
    data = PriceData()
    data.begin([URL])
    await until(lambda: not data.pending(URL))

    assert "the public price data cannot be read" in caplog.text
    assert data.find(URL, "m") is None


async def test_stopping_does_not_wait_for_what_is_being_read() -> None:
    data = PriceData()
    data.begin([URL])
    await asyncio.sleep(0.05)
    began = asyncio.get_running_loop().time()
    await data.stop()

    assert asyncio.get_running_loop().time() - began < 1
    assert not data.pending(URL)
