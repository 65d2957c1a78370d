"""Limits and budgets that several processes keep together, by way of a shared state.

While it is there it decides, and the meters of this process only count along. While it is
away they decide, each with this process's part of every limit; what was used meanwhile is
told to it when it is back, so nothing is let in twice. A budget is also known from the store:
the larger of the two sums counts.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import NamedTuple

from gateway.errors import GatewayError
from gateway.keys.authority import Account, Admission, Authority, Holder
from gateway.keys.budgets import Charge
from gateway.keys.limits import MINUTE, Left, reached, scarcest
from gateway.store import Part, Shared, SharedAway, SharedLimits, Terms, Used, Verdict
from gateway.store.shared_limits import LEASE

_RENEW = LEASE / 3


class Answer(NamedTuple):
    """What became of a request: its admission, or the refusal; and what is left of the limits by the minute."""

    admission: Admission | None
    refusal: GatewayError | None
    left: Sequence[Left]


class _Claim:
    """One request that was let in: what it has of which accounts."""

    __slots__ = ("accounts", "at", "id", "runs", "tokens")

    def __init__(self, id: bytes, at: float, tokens: int, accounts: Sequence[tuple[Account, int | None]]) -> None:
        self.id = id
        self.at = at
        self.tokens = tokens
        self.accounts = accounts
        self.runs = True

    def part(self, account: Account, reserved: int | None) -> Part:
        tokens = None if reserved is None else reserved if self.runs else self.tokens
        return Part(self.id, self.at, reserved, tokens, account.limits.rpm is not None, self.runs and account.limits.concurrency is not None)


class SharedDoor:
    """`admit` for the keys of `authority`."""

    def __init__(self, shared: Shared, authority: Authority) -> None:
        self.shared = shared
        self.alone: Callable[[], None] = _nothing
        """called for each request that is decided here, because the shared state is away"""
        self._limits = SharedLimits(shared)
        self._numbers = count()
        self._recent: deque[_Claim] = deque()
        self._running: dict[bytes, _Claim] = {}
        self._renewed = 0.0
        shared.joined.append(self._tell)
        shared.beats.append(self._renew)
        shared.resized.append(authority.divide)
        authority.divide(shared.processes)

    async def admit(self, holder: Holder, tokens: int) -> Answer:
        """A place for one request that may need so many tokens, or why there is none; a refusal has taken nothing."""
        id = f"{self.shared.id}{next(self._numbers):x}".encode("ascii")
        if self.shared.up:
            today = time.time()
            for account in holder.accounts:
                if (spent := account.purse.refusal(today)) is not None:
                    return Answer(None, spent, holder.left())
            try:
                verdict = await self._ask(id, holder, tokens, today)
            except SharedAway:
                pass
            else:
                left = _left(holder.accounts, verdict.used)
                if verdict.why is not None:
                    return Answer(None, _refusal(holder.accounts[verdict.place], verdict), left)
                return Answer(self._claim(id, holder, tokens, holder.take(tokens, time.monotonic(), today)), None, left)
        self.alone()
        try:
            admission = holder.admit(tokens)
        except GatewayError as refusal:
            return Answer(None, refusal, holder.left())
        admission = self._claim(id, holder, tokens, admission)
        self._adopt((self._running[id],))  # to a server that is just coming back
        return Answer(admission, None, holder.left())

    async def _ask(self, id: bytes, holder: Holder, tokens: int, today: float) -> Verdict:
        terms = []
        for account in holder.accounts:
            limits, purse = account.limits, account.purse
            budget, begin = (None, 0.0) if purse.budget is None else (purse.budget.usd, purse.begin(today))
            terms.append(Terms(account.id, limits.rpm, limits.tpm, limits.concurrency, budget, purse.spent, begin))
        try:
            return await self._limits.admit(id, tokens, terms)
        except asyncio.CancelledError:  # whoever asked is gone; the answer may be yes
            self._limits.settle(id, 0, [(account.id, _reserved(account, tokens), 0.0, 0.0) for account in holder.accounts])
            raise

    def _claim(self, id: bytes, holder: Holder, tokens: int, admission: Admission) -> Admission:
        """Remember what was let in for a minute, and for as long as it runs."""
        claim = _Claim(id, time.monotonic(), tokens, [(account, _reserved(account, tokens)) for account in holder.accounts])

        def ended(used: int, charges: list[Charge]) -> None:
            claim.runs, claim.tokens = False, used
            del self._running[id]
            costs = {charge.purse: charge for charge in charges}
            parts = []
            for account, reserved in claim.accounts:
                charge = costs.get(account.purse)
                parts.append((account.id, reserved, charge.usd if charge else 0.0, charge.since if charge else 0.0))
            self._limits.settle(id, used, parts)

        admission.told = ended
        self._running[id] = claim
        self._recent.append(claim)
        self._forget()
        return admission

    def _forget(self) -> None:
        oldest = time.monotonic() - MINUTE
        while self._recent and self._recent[0].at <= oldest:
            self._recent.popleft()

    def _tell(self) -> None:
        """All that a server which is new, or was away, may not know."""
        self._forget()
        self._adopt({claim.id: claim for claim in (*self._running.values(), *self._recent)}.values())

    async def _renew(self) -> None:
        """The places of what still runs stay taken."""
        now = time.monotonic()
        if now - self._renewed >= _RENEW:
            self._renewed = now
            self._forget()
            self._adopt(self._running.values())

    def _adopt(self, claims: Iterable[_Claim]) -> None:
        parts: dict[str, list[Part]] = {}
        for claim in claims:
            for account, reserved in claim.accounts:
                parts.setdefault(account.id, []).append(claim.part(account, reserved))
        for id, told in parts.items():
            self._limits.adopt(id, told)


def _reserved(account: Account, tokens: int) -> int | None:
    return None if account.limits.tpm is None else min(tokens, account.limits.tpm)


def _refusal(account: Account, verdict: Verdict) -> GatewayError:
    assert verdict.why is not None
    return account.purse.over() if verdict.why == "budget" else reached(account.purse.owner, verdict.why, account.limits, verdict.wait)


def _left(accounts: Sequence[Account], used: Sequence[Used]) -> list[Left]:
    """What is left after so much was used by all processes together."""
    out = []
    for account, mine in zip(accounts, used, strict=True):
        if (rpm := account.limits.rpm) is not None:
            out.append(Left("requests", rpm, max(0, rpm - mine.requests), mine.requests_reset))
        if (tpm := account.limits.tpm) is not None:
            out.append(Left("tokens", tpm, max(0, tpm - mine.tokens), mine.tokens_reset))
    return scarcest(out)


def _nothing() -> None:
    """Nobody wants to know."""
