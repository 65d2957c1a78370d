"""Which target comes first when the order of the file does not decide."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from clock import Clock

from gateway import config
from gateway.routing.balance import cheapest, fastest, weighted
from gateway.routing.prices import PriceData, Prices
from gateway.routing.speeds import FRESH, Speeds

A, B, C = (config.Target(name, "x") for name in "abc")


def first(targets: list[config.Target]) -> str:
    return targets[0].provider


def test_weights_are_shares_of_the_first_place_and_of_those_after_it() -> None:
    targets = [config.Target("a", "x", weight=6), config.Target("b", "x", weight=3), config.Target("c", "x", weight=1)]
    draw = random.Random(7).random

    orders = Counter("".join(t.provider for t in weighted(targets, draw)) for _ in range(20_000))

    share = {start: sum(n for order, n in orders.items() if order.startswith(start)) / 20_000 for start in ("a", "b", "c", "ab", "ac")}
    assert share["a"] == pytest.approx(0.6, abs=0.02)
    assert share["b"] == pytest.approx(0.3, abs=0.02)
    assert share["c"] == pytest.approx(0.1, abs=0.02)
    assert share["ab"] / share["a"] == pytest.approx(0.75, abs=0.02), "b's weight among those that are left"


def test_the_fastest_target_comes_first() -> None:
    speeds = Speeds(Clock())
    for name, seconds in (("a/x", 3.0), ("b/x", 1.0), ("c/x", 2.0)):
        speeds.answered(name, True, seconds, seconds + 1, 101)

    assert [t.provider for t in fastest([A, B, C], speeds, True)] == ["b", "c", "a"]


def test_a_quick_start_does_not_make_up_for_a_slow_pace() -> None:
    speeds = Speeds(Clock())
    speeds.answered("a/x", True, 0.2, 10.2, 101)
    speeds.answered("b/x", True, 1.0, 2.0, 101)

    assert first(fastest([A, B], speeds, True)) == "b"


def test_streams_and_plain_answers_are_measured_apart() -> None:
    speeds = Speeds(Clock())
    speeds.answered("a/x", True, 0.1, 1.0, 10)
    speeds.answered("b/x", True, 0.5, 2.0, 10)
    speeds.answered("a/x", False, 9.0, 9.0, 10)
    speeds.answered("b/x", False, 5.0, 5.0, 10)

    assert first(fastest([A, B], speeds, True)) == "a"
    assert first(fastest([A, B], speeds, False)) == "b"


def test_an_unmeasured_target_is_tried_by_one_request_at_a_time() -> None:
    clock = Clock()
    speeds = Speeds(clock)
    speeds.answered("a/x", True, 1.0, 2.0, 101)
    assert first(fastest([A, B], speeds, True)) == "b"

    speeds.begin("b/x", True)
    assert first(fastest([A, B], speeds, True)) == "a"

    clock.now += 31
    assert first(fastest([A, B], speeds, True)) == "b", "nothing came of that one"


def test_a_measurement_grows_old_and_the_target_is_tried_again() -> None:
    clock = Clock()
    speeds = Speeds(clock)
    speeds.answered("b/x", True, 9.0, 10.0, 101)
    clock.now += FRESH - 10
    speeds.answered("a/x", True, 1.0, 2.0, 101)
    assert first(fastest([A, B], speeds, True)) == "a"

    clock.now += 11

    assert first(fastest([A, B], speeds, True)) == "b"


def test_newer_answers_count_more() -> None:
    clock = Clock()
    speeds = Speeds(clock)
    speeds.answered("a/x", False, 10.0, 10.0, None)
    clock.now += 120
    speeds.answered("a/x", False, 1.0, 1.0, None)

    expected = speeds.expected("a/x", False)
    assert expected is not None
    assert expected < 2.5


def test_a_target_that_gave_nothing_in_time_counts_as_slow() -> None:
    speeds = Speeds(Clock())
    speeds.answered("a/x", True, 1.0, 2.0, 101)
    speeds.waited("b/x", True, 8.0)

    assert first(fastest([B, A], speeds, True)) == "a"


def test_the_cheapest_target_comes_first_and_one_without_a_price_last() -> None:
    settings = {
        "a": config.Provider("a"),
        "b": config.Provider("b", models={"x": config.Price(input=2, output=3)}),
        "c": config.Provider("c", models={"x": config.Price(input=4, output=0.5)}),
    }

    ordered = cheapest([A, B, C], Prices(settings, {}, PriceData()))

    assert [t.provider for t in ordered] == ["c", "b", "a"]
