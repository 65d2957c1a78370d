"""Making, rotating and revoking keys of the store: what the commands and the admin routes share."""

from __future__ import annotations

import math
import re
import secrets
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from gateway import config
from gateway.chat import Json
from gateway.errors import Conflict, InvalidRequest, NotFound
from gateway.keys.authority import digest_of, file_id, first_id, new_secret
from gateway.store import KeyRow, Store

FIELDS = ("models", "rpm", "tpm", "concurrency", "budget", "expires", "team", "tags")
"""What can be said about a key, beside its name."""
PERIODS = ("day", "week", "month", "total")
OVERLAP = 86400.0
"""seconds that a rotated key's old secret serves on, where nothing else is said"""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MODEL = re.compile(r"[!-~]{1,200}")
_TAG = re.compile(r"[^\x00-\x1f\x7f]{1,64}")
_MOST = 10**12


def terms(given: Mapping[str, Any], teams: Collection[str]) -> Json:
    """What somebody wants a key to be, as columns of its row. InvalidRequest names the field that is wrong; null takes a limit away."""
    unknown = sorted(set(given) - set(FIELDS))
    if unknown:
        hint = config.suggest(unknown[0], FIELDS) or f"; known: {', '.join(FIELDS)}"
        raise InvalidRequest(f'unknown field "{unknown[0][:64]}"{hint}', param=unknown[0][:64])
    out: Json = {}
    for field in ("rpm", "tpm", "concurrency"):
        if field in given:
            out[field] = _count(field, given[field])
    for field, pattern in (("models", _MODEL), ("tags", _TAG)):
        if field in given:
            out[field] = _words(field, given[field], pattern)
    if "budget" in given:
        out |= _budget(given["budget"])
    if "expires" in given:
        out["expires"] = _expires(given["expires"])
    if "team" in given:
        out["team"] = _team(given["team"], teams)
    return out


async def issue(store: Store, name: Any, columns: Mapping[str, Any], in_file: Collection[str] = ()) -> tuple[str, KeyRow]:
    """A new key and its row; the key is nowhere else. Conflict if a key of that name is in use."""
    name = _name(name)
    if name in in_file or any(row.name == name and row.revoked is None for row in await store.keys()):
        raise Conflict(f'a key "{name}" exists', code="key_exists")
    secret = new_secret()
    row = KeyRow(f"key_{secrets.token_hex(8)}", name, digest_of(await store.pepper(), secret.encode()), created=time.time(), **columns)
    await store.add_key(row)
    return secret, row


async def rotate(store: Store, which: str, overlap: float) -> tuple[str, KeyRow]:
    """Another secret for a key, which keeps its limits and what it has used; the old one ends after `overlap` seconds."""
    now = time.time()
    old = newest(await store.keys(), which)
    if old is None or old.revoked is not None:
        raise NotFound(f'there is no key "{which[:64]}" that could be rotated', code="key_not_found")
    secret = new_secret()
    row = replace(
        old, id=f"key_{secrets.token_hex(8)}", digest=digest_of(await store.pepper(), secret.encode()), created=now, rotated_from=old.id, overlap_until=None
    )
    await store.rotate_key(old.id, row, now + overlap)
    return secret, row


async def revoke(store: Store, which: str) -> bool:
    """End a key, by id or name, with every secret it has; False: there is none."""
    rows = await store.keys()
    known = {row.id: row for row in rows}
    families = {first_id(row, known) for row in rows if which in (row.id, row.name)}
    for row in rows:
        if first_id(row, known) in families:
            await store.revoke_key(row.id, time.time())
    return bool(families)


def newest(rows: Collection[KeyRow], which: str) -> KeyRow | None:
    """The row with the latest secret of the key with this id or name."""
    known = {row.id: row for row in rows}
    found = [row for row in rows if row.id == which] or [row for row in rows if row.name == which]
    if not found:
        return None
    first = first_id(found[-1], known)
    return [row for row in rows if first_id(row, known) == first][-1]


def public(row: KeyRow, known: Mapping[str, KeyRow] | None = None) -> Json:
    """A key of the store as it is shown; `counts_as` is the id under which its use is counted (`known`: all rows by id)."""
    budget = {"usd": row.budget_usd, "per": row.budget_per} if row.budget_usd is not None else None
    ends = [moment for moment in (row.expires, row.overlap_until) if moment is not None]
    return {
        "id": row.id,
        "name": row.name,
        "source": "store",
        "counts_as": first_id(row, known or {row.id: row}),
        "models": list(row.models),
        "rpm": row.rpm,
        "tpm": row.tpm,
        "concurrency": row.concurrency,
        "budget": budget,
        "expires": row.expires,
        "team": row.team,
        "tags": list(row.tags),
        "created": row.created,
        "revoked": row.revoked,
        "rotated_from": row.rotated_from,
        "overlap_until": row.overlap_until,
        "active": row.revoked is None and not any(moment <= time.time() for moment in ends),
    }


def shown(key: config.Key) -> Json:
    """A key of the file in the same form."""
    expires = datetime(key.expires.year, key.expires.month, key.expires.day, tzinfo=UTC).timestamp() if key.expires else None
    return {
        "id": file_id(key.name),
        "name": key.name,
        "source": "file",
        "counts_as": file_id(key.name),
        "models": list(key.models),
        "rpm": key.limits.rpm,
        "tpm": key.limits.tpm,
        "concurrency": key.limits.concurrency,
        "budget": {"usd": key.budget.usd, "per": key.budget.per} if key.budget else None,
        "expires": expires,
        "team": key.team,
        "tags": [],
        "created": None,
        "revoked": None,
        "rotated_from": None,
        "overlap_until": None,
        "active": expires is None or expires > time.time(),
    }


def _name(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidRequest("a key's name has letters, digits, dot, hyphen and underscore, at most 64 of them", param="name")
    return value


def _count(field: str, value: Any) -> int | None:
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= _MOST:
        raise InvalidRequest(f"{field} is a whole number of at least 1, or null for no limit", param=field)
    return value


def _words(field: str, value: Any, pattern: re.Pattern[str]) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > 1000 or not all(isinstance(word, str) and pattern.fullmatch(word) for word in value):
        raise InvalidRequest(f"{field} is a list of words", param=field)
    return tuple(value)


def _budget(value: Any) -> Json:
    if value is None:
        return {"budget_usd": None}
    given: Json = value if isinstance(value, dict) and not set(value) - {"usd", "per"} else {}
    usd, per = given.get("usd"), given.get("per", "month")
    if not (isinstance(usd, int | float) and not isinstance(usd, bool) and math.isfinite(usd) and 0 < usd <= _MOST and per in PERIODS):
        raise InvalidRequest(f'budget is {{"usd": amount, "per": {" | ".join(PERIODS)}}}, or null for none', param="budget")
    return {"budget_usd": float(usd), "budget_per": per}


def _expires(value: Any) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 < value <= _MOST:
        raise InvalidRequest("expires is a moment in unix seconds, or null for never", param="expires")
    return float(value)


def _team(value: Any, teams: Collection[str]) -> str | None:
    if value is not None and (not isinstance(value, str) or value not in teams):
        raise InvalidRequest("team is an entry of `teams` in the config, or null", param="team")
    return value
