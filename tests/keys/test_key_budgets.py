"""Periods, and what a purse knows to be spent."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gateway.config import Budget
from gateway.keys import Purse
from gateway.keys.budgets import NEVER, period


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("per", "now", "begin", "end"),
    [
        ("day", "2026-03-01T00:00:00", "2026-03-01", "2026-03-02"),
        ("day", "2028-02-29T23:59:59", "2028-02-29", "2028-03-01"),
        ("week", "2026-12-31T12:00:00", "2026-12-28", "2027-01-04"),
        ("week", "2026-11-30T00:00:00", "2026-11-30", "2026-12-07"),
        ("month", "2026-12-31T23:59:59", "2026-12-01", "2027-01-01"),
        ("month", "2026-01-31T00:00:01", "2026-01-01", "2026-02-01"),
    ],
)
def test_periods_begin_at_midnight_utc(per: str, now: str, begin: str, end: str) -> None:
    assert period(per, at(now)) == (at(begin), at(end))


def test_a_total_never_begins_anew() -> None:
    assert period("total", at("2026-11-30")) == (0.0, NEVER)


def test_a_spent_budget_refuses_until_its_period_ends_and_says_when() -> None:
    purse, noon = Purse('the key "k"', Budget(1.0, "day")), at("2026-11-30T12:00:00")
    assert purse.refusal(noon) is None
    purse.charge(0.75, noon)
    assert purse.refusal(noon) is None
    purse.charge(0.75, noon)  # in flight together with the one before

    refusal = purse.refusal(noon + 1)
    assert refusal is not None
    assert (refusal.status, refusal.code, refusal.should_retry, refusal.retry_after) == (429, "insufficient_quota", False, None)
    assert "2026-12-01T00:00:00Z" in refusal.message
    assert purse.refusal(at("2026-12-01")) is None
    assert purse.spent == 0


def test_what_is_written_counts_once() -> None:
    purse, now = Purse("k", Budget(10.0, "month")), at("2026-11-30T12:00:00")
    charge = purse.charge(2.0, now)
    assert charge is not None
    since = purse.begin(now)
    purse.read(5.0, since, now)  # the others' share; ours is not written yet
    assert purse.spent == 7.0
    purse.written(charge)
    assert purse.spent == 7.0
    purse.read(7.0, since, now)
    assert purse.spent == 7.0


def test_a_request_that_began_in_the_last_period_is_not_charged_to_this_one() -> None:
    purse = Purse("k", Budget(1.0, "day"))
    assert purse.refusal(at("2026-12-01T00:00:05")) is None
    assert purse.charge(5.0, at("2026-11-30T23:59:59")) is None
    assert purse.spent == 0


def test_a_charge_that_is_written_after_its_period_changes_nothing() -> None:
    purse = Purse("k", Budget(1.0, "day"))
    charge = purse.charge(0.5, at("2026-11-30T23:59:59"))
    assert charge is not None
    assert purse.refusal(at("2026-12-01T00:00:05")) is None
    purse.written(charge)
    purse.read(0.5, at("2026-11-30"), at("2026-12-01T00:00:06"))
    assert purse.spent == 0


def test_another_budget_of_the_same_period_forgets_nothing() -> None:
    purse, now = Purse("k", Budget(1.0, "day")), at("2026-11-30T12:00:00")
    purse.charge(2.0, now)
    purse.set(Budget(5.0, "day"))
    assert (purse.refusal(now), purse.spent) == (None, 2.0)
    purse.set(Budget(5.0, "week"))
    assert purse.known == 0.0


def test_no_budget_counts_nothing() -> None:
    purse = Purse("k")
    assert purse.charge(1.0, at("2026-11-30")) is None
    assert purse.refusal(at("2026-11-30")) is None
