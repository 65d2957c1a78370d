"""What a request may use, and what it used: the way from a key's limits to its row in the store."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from functools import partial

from gateway.api.headers import Headers
from gateway.api.state import Visit
from gateway.chat import Json, Record, Request
from gateway.errors import ClientGone, GatewayError
from gateway.keys import Holder, Left
from gateway.routing.bounds import expected_tokens
from gateway.routing.estimates import PER_TOKEN, counted, estimated
from gateway.store import RequestRow
from gateway.telemetry import token_counts

_TOLD = frozenset(("chat", "responses", "messages", "completions"))
"""Endpoints whose answers are text, and so can be estimated where nobody counted."""
_AROUND = 300  # bytes of a plain answer that are not its text


async def admit(visit: Visit, request: Request) -> None:
    """Let a request in under its key's limits and budget, and tell what is left. LimitReached, BudgetSpent; both take nothing."""
    visit.size = len(request.body.raw)
    holder = visit.holder
    if holder is None or not holder.bound:
        return
    ledger = visit.state.ledger
    if holder.purses and ledger.usage.stale(holder.purses):
        await ledger.usage.refresh(holder.accounts)
    tokens = expected_tokens(request) if holder.counts_tokens else 0
    if ledger.door is not None:
        visit.admission, refusal, left = await ledger.door.admit(holder, tokens)
        visit.limits = limit_headers(left)
        if refusal is not None:
            raise refusal
        return
    try:
        visit.admission = holder.admit(tokens)
    finally:
        visit.limits = limit_headers(holder.left())


def settle(visit: Visit, status: int, failed: GatewayError | None) -> Mapping[str, int]:
    """A request is over: give back what it held, charge what it used, and send its row on its way. Gives the tokens that it used, by kind."""
    record, holder = visit.record, visit.holder
    estimated = record.endpoint in _TOLD and estimate(visit, status, failed)
    charges = visit.admission.settle(_tokens(record.usage), record.cost or 0.0) if visit.admission is not None else []
    counts = token_counts(record.usage) if record.usage else {}
    ledger = visit.state.ledger
    if charges or ledger.retention != 0:
        team = holder.team.name if holder is not None and holder.team is not None else None
        kind = None if failed is None else getattr(failed, "kind", None) or failed.code
        record.fail = None  # the stream has ended, and what would have written its end has all of it: rows may wait for long
        ledger.usage.put(partial(row, record, status, kind, team, counts, estimated, time.time(), time.perf_counter()), charges)
    return counts


def row(record: Record, status: int, kind: str | None, team: str | None, counts: Mapping[str, int], estimated: bool, ended: float, now: float) -> RequestRow:
    """A request as the store keeps it. It `ended` at a moment that the record's clock calls `now`."""
    provider, target_model = record.answered()
    return RequestRow(
        id=record.id,
        time=ended - (now - record.started),
        endpoint=record.endpoint,
        model=record.model,
        status=status,
        key=record.key,
        key_id=record.tenant or None,
        team=team,
        kind=kind,
        provider=provider,
        target_model=target_model,
        stream=record.stream,
        prompt_tokens=counts.get("prompt", 0),
        completion_tokens=counts.get("completion", 0),
        cached_tokens=counts.get("cached", 0),
        reasoning_tokens=counts.get("reasoning", 0),
        estimated=estimated,
        cost=record.cost,
        first_token_ms=None if record.first_content is None else round((record.first_content - record.started) * 1000),
        total_ms=round((now - record.started) * 1000),
        attempts=[attempt.public() for attempt in record.attempts],
        transforms=record.transforms,
        run_id=record.run_id,
    )


def estimate(visit: Visit, status: int, failed: GatewayError | None) -> bool:
    """Fill in what nobody counted: the provider told nothing, or the answer broke off before it could. True if something was."""
    record, usage = visit.record, visit.record.usage
    broken = failed is not None
    if record.cache == "hit" or not record.attempts or (usage is not None and not broken):
        return False
    if record.first_content is None and not (isinstance(failed, ClientGone) and record.attempts[-1].kind == "client_gone"):
        return False  # what failed before its content is not charged by providers
    found = estimated(record, visit.size, completion_tokens(visit) if record.first_content is not None else 0, visit.state.price)
    if found is None:
        return False
    record.usage, record.cost = found
    return True


def completion_tokens(visit: Visit) -> int:
    """Tokens of an answer, from its size: a chunk is a token at least, and so are four bytes beyond what the first chunk shows to be its frame."""
    if not visit.record.stream:
        return max(1, (visit.written - _AROUND) // PER_TOKEN)
    chunks = visit.record.chunks
    return max(1, chunks, (visit.written - chunks * visit.envelope) // PER_TOKEN)


def limit_headers(lefts: Iterable[Left]) -> Headers:
    """`x-ratelimit-*` for what is left of the limits of a key and its team."""
    headers: Headers = []
    for left in lefts:
        limit, remaining, reset = _RATES[left.kind]
        headers.append((limit, b"%d" % left.limit))
        headers.append((remaining, b"%d" % left.remaining))
        headers.append((reset, b"1m0s" if left.reset > 59 else _duration(left.reset)))
    return headers


_RATES = {
    kind: (b"x-ratelimit-limit-" + kind.encode(), b"x-ratelimit-remaining-" + kind.encode(), b"x-ratelimit-reset-" + kind.encode())
    for kind in ("requests", "tokens")
}


def identify(visit: Visit, who: Holder | str) -> None:
    """Keep whose request it is: the holder's of a virtual key, or a tenant's."""
    record = visit.record
    if isinstance(who, str):
        record.tenant = who
    else:
        visit.holder = who
        record.tenant, record.key = who.id, who.name


def _duration(seconds: float) -> bytes:
    """As OpenAI writes it: `250ms`, `12s`, `1m0s`."""
    if seconds < 1:
        return b"%dms" % math.ceil(seconds * 1000)
    minutes, rest = divmod(math.ceil(seconds), 60)
    return b"%dm%ds" % (minutes, rest) if minutes else b"%ds" % rest


def _tokens(usage: Json | None) -> int:
    if usage is None:
        return 0
    return counted(usage, "total_tokens") or counted(usage, "prompt_tokens") + counted(usage, "completion_tokens")
