"""Who a client is, and what it may use: the keys of the file and those of the store.

`Authority` is asked once per request, by its secret; nothing it does then waits. What the
store holds is read anew whenever its version rises. The accounts, in which the use of limits
and budgets is counted, outlive every change of a key: a reload or a rotation forgets nothing.
"""

from __future__ import annotations

import fnmatch
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec

from gateway.config import Budget, Key, Limits, Team
from gateway.errors import Forbidden, GatewayError, Unauthorized
from gateway.keys.budgets import Charge, Purse
from gateway.keys.limits import NO_LIMITS, Left, Meter, Share, scarcest
from gateway.store import KeyRow


class ModelNotAllowed(Forbidden):
    """A model that the key, or its team, may not use."""

    code, param = "model_not_allowed", "model"


class UnknownKey(Unauthorized):
    """Nobody's key, as far as this process knows."""


class Account:
    """One key or team: what it may use, and what is used of that. `id` is `team:NAME` for a team.

    `limits` are what all processes together may let in; `meter` counts what this one does, and
    has its part of them.
    """

    __slots__ = ("_models", "id", "is_team", "limits", "meter", "name", "purse")

    def __init__(self, id: str, name: str, owner: str) -> None:
        self.id = id
        self.name = name
        self.is_team = id.startswith("team:")
        self.limits = NO_LIMITS
        self.meter = Meter(owner)
        self.purse = Purse(owner)
        self._models: Callable[[str], object] | None = None

    def set(self, models: Sequence[str], limits: Limits, budget: Budget | None, processes: int = 1) -> None:
        """What it may use from now on; no models: all."""
        self.limits = limits
        self.divide(processes)
        if budget != self.purse.budget:
            self.purse.set(budget)
        self._models = re.compile("|".join(fnmatch.translate(glob) for glob in models)).match if models else None

    def divide(self, processes: int) -> None:
        """One process's part of the limits, at least 1 of each."""
        self.meter.limits = self.limits.part(processes)

    def allows(self, model: str) -> bool:
        return self._models is None or self._models(model) is not None


@dataclass(frozen=True, slots=True)
class Holder:
    """Whoever presents a certain secret: an account, its team's, and until when (unix seconds). `why`: nothing is allowed any more."""

    account: Account
    team: Account | None = None
    until: float | None = None
    why: str | None = None
    accounts: tuple[Account, ...] = field(init=False)
    id: str = field(init=False)
    name: str = field(init=False)
    meters: tuple[Meter, ...] = field(init=False)
    """of the accounts that have limits"""
    purses: tuple[Purse, ...] = field(init=False)
    """of those that have a budget"""
    bound: bool = field(init=False)
    """whether any limit or budget holds"""
    counts_tokens: bool = field(init=False)
    """whether a limit of tokens holds"""

    def __post_init__(self) -> None:
        """What its accounts may use now. Holders are made anew whenever that changes, so that no request works it out."""
        accounts = (self.account, self.team) if self.team else (self.account,)
        meters = tuple(account.meter for account in accounts if account.limits != NO_LIMITS)
        purses = tuple(account.purse for account in accounts if account.purse.budget is not None)
        known = {
            "accounts": accounts,
            "id": self.account.id,
            "name": self.account.name,
            "meters": meters,
            "purses": purses,
            "bound": bool(meters or purses),
            "counts_tokens": any(account.limits.tpm is not None for account in accounts),
        }
        for name, value in known.items():
            object.__setattr__(self, name, value)

    def allows(self, model: str) -> bool:
        """Whether it may use a model, by the name that a client asks for."""
        return self.account.allows(model) and (self.team is None or self.team.allows(model))

    def check(self, model: str) -> None:
        """The one question of every route before it serves a model. Raises ModelNotAllowed."""
        if not self.allows(model):
            whose = f'the key "{self.name}"' if not self.account.allows(model) else f'the team "{self.team.name if self.team else ""}" of the key "{self.name}"'
            raise ModelNotAllowed(f'{whose} may not use the model "{model[:100]}"')

    def admit(self, tokens: int) -> Admission:
        """A place for one request that may need so many tokens. Raises LimitReached or BudgetSpent, and then has taken nothing."""
        now, today = time.monotonic(), time.time()
        refusal: GatewayError | None
        for purse in self.purses:
            if (refusal := purse.refusal(today)) is not None:
                raise refusal
        for meter in self.meters:
            if (refusal := meter.refusal(tokens, now)) is not None:
                raise refusal
        return self.take(tokens, now, today)

    def take(self, tokens: int, now: float, today: float) -> Admission:
        """A place for one request that others have let in: it is counted here too."""
        shares: list[Share] = []
        for meter in self.meters:
            shares.append(meter.take(tokens, now))  # noqa: PERF401 - a comprehension is a function of its own until Python 3.12
        return Admission(self.purses, shares, today)

    def left(self) -> list[Left]:
        """What is left of the limits by the minute: the scarcer of the key's and the team's, for requests and for tokens."""
        now = time.monotonic()
        found: list[Left] = []
        for meter in self.meters:
            found += meter.left(now)
        return scarcest(found) if len(self.meters) > 1 else found


class Admission(msgspec.Struct):
    """What one request holds of its key's and its team's limits, from `Holder.admit` to `settle`; it began `at`.

    `told` is called with the tokens and the charges when it is over: others count too.
    """

    purses: Sequence[Purse]
    shares: list[Share]
    at: float
    told: Callable[[int, list[Charge]], None] | None = None
    open: bool = True

    def settle(self, tokens: int, usd: float) -> list[Charge]:
        """The request is over: what it used and cost. Gives the charges that the store must still learn of; nothing when called again."""
        if not self.open:
            return []
        self.open = False
        now = time.monotonic()
        for share in self.shares:
            share.meter.give_back(share, tokens, now)
        charges: list[Charge] = []
        for purse in self.purses:
            if (charge := purse.charge(usd, self.at)) is not None:
                charges.append(charge)  # noqa: PERF401 - as in Holder.take
        if self.told is not None:
            self.told(tokens, charges)
        return charges


class Authority:
    """All keys. `declare` takes the file's, `learn` the store's; `identify` is asked by every request.

    `processes` count each for itself, so each has its part of every limit.
    """

    def __init__(self, processes: int = 1) -> None:
        self.processes = processes
        self.pepper = secrets.token_bytes(32)
        """digests are made with it; the store's, once that is open"""
        self._declared: tuple[Mapping[str, Key], Mapping[str, Team]] = ({}, {})
        self._rows: Sequence[KeyRow] = ()
        self._accounts: dict[str, Account] = {}
        self._holders: dict[bytes, Holder] = {}
        self._seen: dict[bytes, Holder] = {}
        """of secrets that were used: an HMAC costs a request 12 us where nothing of it is in the processor's cache"""

    @property
    def needed(self) -> bool:
        """Whether there is any key, and so nobody comes in without one. A revoked key is one: revoking opens no door."""
        return bool(self._holders)

    def digest(self, secret: bytes) -> bytes:
        return digest_of(self.pepper, secret)

    def declare(self, keys: Mapping[str, Key], teams: Mapping[str, Team]) -> None:
        """The keys and teams of the file that is loaded now."""
        self._declared = keys, teams
        self._rebuild()

    def learn(self, rows: Sequence[KeyRow], pepper: bytes) -> None:
        """All keys of the store as they are now."""
        self._rows, self.pepper = rows, pepper
        self._rebuild()

    def identify(self, secret: bytes, mark: bytes | None = None) -> Holder:
        """Whose secret it is; `mark`: its SHA-256, where the caller has it. Raises Unauthorized for one that is unknown, revoked or expired."""
        mark = mark or hashlib.sha256(secret).digest()
        holder = self._seen.get(mark)
        if holder is None:
            holder = self._holders.get(self.digest(secret))
            if holder is None:
                raise UnknownKey("the API key is not valid here")
            self._seen[mark] = holder
        if holder.why is not None:
            raise Unauthorized(holder.why)
        if holder.until is not None and time.time() >= holder.until:
            raise Unauthorized("the API key has expired")
        return holder

    def accounts(self) -> Iterable[Account]:
        """Every key and team that is known."""
        return self._accounts.values()

    def accounts_of(self, id: str) -> Sequence[Account]:
        """The accounts that pay for what a key uses: its own, its team's."""
        return next((holder.accounts for holder in self._holders.values() if holder.id == id), ())

    def account(self, id: str) -> Account | None:
        return self._accounts.get(id)

    def divide(self, processes: int) -> None:
        """There are so many processes now."""
        self.processes = processes
        for account in self._accounts.values():
            account.divide(processes)

    def _rebuild(self) -> None:
        """All holders anew; accounts keep what was used. One assignment at the end: a request sees the old or the new."""
        keys, teams = self._declared
        accounts: dict[str, Account] = {}
        for team in teams.values():
            self._take(accounts, f"team:{team.name}", team.name, f'the team "{team.name}"').set(team.models, team.limits, team.budget, self.processes)
        holders: dict[bytes, Holder] = {}
        known = {row.id: row for row in self._rows}
        families = {first_id(row, known): row for row in self._rows}  # the newest secret says what a rotated key may use
        for id, row in families.items():
            account = self._take(accounts, id, row.name, f'the key "{row.name}"')
            account.set(row.models, Limits(row.concurrency, row.rpm, row.tpm), budget_of(row), self.processes)
        for row in self._rows:
            holders[row.digest] = _held(row, accounts[first_id(row, known)], accounts)
        for key in keys.values():
            account = self._take(accounts, file_id(key.name), key.name, f'the key "{key.name}"')
            account.set(key.models, key.limits, key.budget, self.processes)
            until = datetime(key.expires.year, key.expires.month, key.expires.day, tzinfo=UTC).timestamp() if key.expires else None
            holders[self.digest(key.key.reveal().encode())] = Holder(account, accounts.get(f"team:{key.team}"), until)
        self._accounts, self._holders, self._seen = accounts, holders, {}

    def _take(self, into: dict[str, Account], id: str, name: str, owner: str) -> Account:
        account = into[id] = self._accounts.get(id) or Account(id, name, owner)
        account.name = name
        account.meter.owner = account.purse.owner = owner
        return account


def _held(row: KeyRow, account: Account, accounts: Mapping[str, Account]) -> Holder:
    team = accounts.get(f"team:{row.team}") if row.team is not None else None
    why = None
    if row.revoked is not None:
        why = "the API key was revoked"
    elif row.team is not None and team is None:
        why = f'the API key belongs to the team "{row.team}", which the config does not have'
    ends = [moment for moment in (row.expires, row.overlap_until) if moment is not None]
    return Holder(account, team, min(ends) if ends else None, why)


def first_id(row: KeyRow, known: Mapping[str, KeyRow]) -> str:
    """The id under which a key's use is counted: that of the first secret it had, whatever it was rotated to."""
    id, seen = row.id, {row.id}
    while (before := known[id].rotated_from if id in known else None) is not None and before not in seen:
        seen.add(before)
        id = before
    return id


def file_id(name: str) -> str:
    """The id of a key that the file declares."""
    return f"file:{name}"


def budget_of(row: KeyRow) -> Budget | None:
    return Budget(row.budget_usd, row.budget_per) if row.budget_usd is not None else None


def digest_of(pepper: bytes, secret: bytes) -> bytes:
    """What is kept of a secret: without the pepper, nobody can tell whether a guess is right."""
    return hmac.digest(pepper, secret, "sha256")


def new_secret() -> str:
    """A key of 256 bits that nobody has seen."""
    return f"tg-{secrets.token_urlsafe(32)}"
