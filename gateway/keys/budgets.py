"""What a key or a team may spend in a day, a week, a month, or at all. Periods begin at midnight UTC, weeks on Monday.

A budget is looked at before a request and charged after it, so it can be overspent by what
is in flight and by nothing else. What was charged counts at once here, and as the store's
sum once it is written there: `spent` is the sum of both.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from gateway.config import Budget
from gateway.errors import InvalidRequest

NEVER = float("inf")


class BudgetSpent(InvalidRequest):
    """The budget of a key or team is spent: waiting a little does not help."""

    status, type, code = 429, "insufficient_quota", "insufficient_quota"


def period(per: str, now: float) -> tuple[float, float]:
    """Begin and end of the period that a moment belongs to, unix seconds; `total` has begun always and never ends."""
    if per == "total":
        return 0.0, NEVER
    at = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if per == "day":
        return at.timestamp(), (at + timedelta(days=1)).timestamp()
    if per == "week":
        begin = at - timedelta(days=at.weekday())
        return begin.timestamp(), (begin + timedelta(days=7)).timestamp()
    begin = at.replace(day=1)
    return begin.timestamp(), (begin + timedelta(days=32)).replace(day=1).timestamp()


class Charge(msgspec.Struct, frozen=True, gc=False):
    """What one request cost a purse, until the store has it. `since`: the period that it counted in."""

    purse: Purse
    since: float
    usd: float


class Purse:
    """The budget of one key or team, and what of it is spent. Moments are unix seconds, amounts USD."""

    __slots__ = ("_begin", "_end", "_pending", "_stored", "budget", "known", "owner")

    def __init__(self, owner: str, budget: Budget | None = None) -> None:
        self.owner = owner
        self.budget = budget
        self.known = 0.0
        """when the store's sum was read last; 0: never"""
        self._begin = 0.0
        self._end = 0.0
        self._stored = 0.0
        self._pending = 0.0

    def set(self, budget: Budget | None) -> None:
        """Another budget; with another period what was spent must be read anew."""
        if budget is None or self.budget is None or budget.per != self.budget.per:
            self._begin = self._end = self._pending = self.known = 0.0
        self.budget = budget

    def refusal(self, now: float) -> BudgetSpent | None:
        """Why nothing more may be spent; None: something is left."""
        if self.budget is None:
            return None
        if now >= self._end:
            self._turn(now)
        return self.over() if self._stored + self._pending >= self.budget.usd else None

    def over(self) -> BudgetSpent:
        """The refusal of a request where everything is spent."""
        assert self.budget is not None
        per = "in all" if self.budget.per == "total" else f"per {self.budget.per}"
        when = "" if self._end == NEVER else f"; it begins anew at {datetime.fromtimestamp(self._end, UTC):%Y-%m-%dT%H:%M:%SZ}"
        return BudgetSpent(f"{self.owner} has spent its budget of {self.budget.usd:g} USD {per}{when}")

    @property
    def spent(self) -> float:
        return self._stored + self._pending

    @property
    def resets(self) -> float | None:
        """When the period ends; None: never, or nothing was asked yet."""
        return self._end if 0 < self._end < NEVER else None

    def begin(self, now: float) -> float:
        """The begin of the period that counts now."""
        self._turn(now)
        return self._begin

    def charge(self, usd: float, at: float) -> Charge | None:
        """A request that began `at` has cost something; None where that counts no more, or nobody counts."""
        if self.budget is None or usd <= 0:
            return None
        if at >= self._end:
            self._turn(at)
        if at < self._begin:
            return None
        self._pending += usd
        return Charge(self, self._begin, usd)

    def written(self, charge: Charge) -> None:
        """The store has it."""
        if charge.since == self._begin:
            self._pending = max(0.0, self._pending - charge.usd)
            self._stored += charge.usd

    def read(self, usd: float, since: float, now: float) -> None:
        """The store's sum of everything written since then, this gateway's and others'."""
        if since == self._begin:
            self._stored, self.known = usd, now

    def _turn(self, now: float) -> None:
        """A new period begins with nothing spent. Time that went back changes nothing."""
        if now < self._end or self.budget is None:
            return
        turned = self._end > 0
        self._begin, self._end = period(self.budget.per, now)
        if turned:
            self._pending = 0.0
        self._stored = 0.0
