"""What the store keeps: keys, requests, and the sums over them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec

Json = dict[str, Any]

_process = secrets.token_hex(8)
_rows = count()


def new_uid() -> str:
    """A text that no other row has. Random once a process: the kernel's random numbers cost a request 5 us each."""
    return f"{_process}{next(_rows):x}"


@dataclass(frozen=True, slots=True)
class KeyRow:
    """One virtual key, without its secret. Moments are unix seconds.

    `digest` is HMAC-SHA256 of the key under the store's pepper. `models` are names and
    globs, empty: all. `revoked`: since when nobody may use it; `overlap_until`: until when
    it still serves after its successor was made; the successor's `rotated_from` is its id.
    """

    id: str
    name: str
    digest: bytes = field(repr=False)
    models: tuple[str, ...] = ()
    rpm: int | None = None
    tpm: int | None = None
    concurrency: int | None = None
    budget_usd: float | None = None
    budget_per: str = "month"
    expires: float | None = None
    team: str | None = None
    tags: tuple[str, ...] = ()
    created: float = 0.0
    revoked: float | None = None
    rotated_from: str | None = None
    overlap_until: float | None = None


class RequestRow(msgspec.Struct, frozen=True, gc=False):
    """One request that is over. `time` is when it began, unix seconds; `cost` USD, None: no price is known.

    `kind` is the failure class (None: it succeeded). Neither `id` nor any other word of the
    client's is unique: `uid` is, so that a batch written twice counts once.
    """

    id: str
    time: float
    endpoint: str
    model: str
    status: int
    key: str | None = None
    key_id: str | None = None
    team: str | None = None
    kind: str | None = None
    provider: str | None = None
    target_model: str | None = None
    stream: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False
    cost: float | None = None
    first_token_ms: int | None = None
    total_ms: int = 0
    attempts: Sequence[Json] = ()
    transforms: Sequence[str] = ()
    run_id: str | None = None
    uid: str = msgspec.field(default_factory=new_uid)

    @property
    def failed(self) -> bool:
        return self.kind is not None or self.status >= 400

    def public(self) -> Json:
        """The form in `/admin/requests`."""
        return {
            "id": self.id,
            "time": self.time,
            "endpoint": self.endpoint,
            "model": self.model,
            "key": self.key,
            "status": self.status,
            "class": self.kind,
            "provider": self.provider,
            "target_model": self.target_model,
            "stream": self.stream,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cached_tokens": self.cached_tokens,
            "reasoning_tokens": self.reasoning_tokens,
            "estimated": self.estimated,
            "cost": self.cost,
            "first_token_ms": self.first_token_ms,
            "total_ms": self.total_ms,
            "attempts": list(self.attempts),
            "transforms": list(self.transforms),
            "run_id": self.run_id,
        }


@dataclass(frozen=True, slots=True)
class Page:
    """Requests, the newest first. `next` is the `before` of the page that follows; None: this was the last."""

    rows: tuple[RequestRow, ...]
    next: int | None = None


@dataclass(frozen=True, slots=True)
class UsageRow:
    """The sums of one key, model or provider; name "" stands for requests that had none."""

    name: str
    requests: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float = 0.0

    def public(self) -> Json:
        """The form in `/admin/usage`."""
        return {
            "name": self.name,
            "requests": self.requests,
            "failed": self.failed,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cached_tokens": self.cached_tokens,
            "reasoning_tokens": self.reasoning_tokens,
            "cost": self.cost,
        }
