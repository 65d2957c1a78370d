"""The limits of keys and teams in the shared state: the same rules as in one process, in one step of the server, by its clock.

Of each account it has

    :r   moments of the requests of the last 60 s            sorted set, member id
    :t   the tokens of each, `:s` their sum                  sorted set, member id:tokens
    :c   the requests that run, until their lease ends       sorted set, member id
    :b:BEGIN   what was spent in the period that began then  number

A place at a time is leased and renewed while its request runs, so the places of a process that
dies are free after LEASE seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gateway.store.faults import SharedAway
from gateway.store.resp import Refused, bulk
from gateway.store.shared import Script, Shared, age, microseconds

LEASE = 15.0

_NONE = b"-1"
_NO_BUDGET = bulk(_NONE) + bulk(b"0") + bulk(b"0")
_NO_CHARGE = bulk(b"0") + bulk(b"0")
_MANY = 10_000  # accounts and limits whose words are kept

_FORGET = """
local function forget(key, floor)
  local old = redis.call('ZRANGEBYSCORE', key .. ':t', '-inf', floor)
  if #old > 0 then
    local gone = 0
    for _, member in ipairs(old) do gone = gone + tonumber(string.match(member, ':(%d+)$')) end
    redis.call('ZREMRANGEBYSCORE', key .. ':t', '-inf', floor)
    if redis.call('ZCARD', key .. ':t') == 0 then redis.call('DEL', key .. ':s')
    else redis.call('DECRBY', key .. ':s', gone) end
  end
end
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local minute = 60000000
"""

_ADMIT = Script(
    _FORGET
    + """
local id, lease, tokens = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local floor = now - minute
local used, refused = {}, nil
local function refuse(n, why, wait)
  if not refused then refused = {n, why, math.max(1000, wait)} end
end
local function after(key, over, amount)
  local at = 0
  while over > 0 do
    local page = redis.call('ZRANGE', key, at, at + 99, 'WITHSCORES')
    if #page == 0 then return now end
    for i = 1, #page, 2 do
      over = over - (amount or tonumber(string.match(page[i], ':(%d+)$')))
      if over <= 0 then return tonumber(page[i + 1]) end
    end
    at = at + 100
  end
  return now
end
for n, key in ipairs(KEYS) do
  local at = 4 + (n - 1) * 6
  local rpm, tpm, places, budget = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local mine = {0, 0}
  if budget >= 0 then
    local purse, known = key .. ':b:' .. ARGV[at + 5], tonumber(ARGV[at + 4])
    local spent = tonumber(redis.call('GET', purse) or '-1')
    if spent < known then
      redis.call('SET', purse, ARGV[at + 4], 'PX', 3456000000)
      spent = known
    end
    if spent >= budget then refuse(n, 'budget', 1000) end
  end
  if places >= 0 then
    redis.call('ZREMRANGEBYSCORE', key .. ':c', '-inf', now)
    if redis.call('ZCARD', key .. ':c') >= places then refuse(n, 'concurrency', 1000000) end
  end
  if rpm >= 0 then
    redis.call('ZREMRANGEBYSCORE', key .. ':r', '-inf', floor)
    mine[1] = redis.call('ZCARD', key .. ':r')
    if mine[1] + 1 > rpm and not refused then
      local first = redis.call('ZRANGE', key .. ':r', mine[1] - rpm, mine[1] - rpm, 'WITHSCORES')
      refuse(n, 'rpm', tonumber(first[2]) + minute - now)
    end
  end
  if tpm >= 0 then
    forget(key, floor)
    mine[2] = tonumber(redis.call('GET', key .. ':s') or '0')
    local over = mine[2] + math.min(tokens, tpm) - tpm
    if over > 0 and not refused then refuse(n, 'tpm', after(key .. ':t', over) + minute - now) end
  end
  used[n] = mine
end
local function reset(key)
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
  return last[2] and math.max(0, tonumber(last[2]) + minute - now) or 0
end
local out = refused and {refused[1] - 1, refused[2], string.format('%.0f', refused[3])} or {'ok'}
for n, key in ipairs(KEYS) do
  local at = 4 + (n - 1) * 6
  local rpm, tpm, places = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
  local mine, resets = used[n], {0, 0}
  if refused then
    if rpm >= 0 then resets[1] = reset(key .. ':r') end
    if tpm >= 0 then resets[2] = reset(key .. ':t') end
  else
    if places >= 0 then
      redis.call('ZADD', key .. ':c', now + lease, id)
      redis.call('PEXPIRE', key .. ':c', 3600000)
    end
    if rpm >= 0 then
      redis.call('ZADD', key .. ':r', now, id)
      redis.call('PEXPIRE', key .. ':r', 61000)
      mine[1], resets[1] = mine[1] + 1, minute
    end
    if tpm >= 0 then
      local amount = math.min(tokens, tpm)
      redis.call('ZADD', key .. ':t', now, id .. ':' .. string.format('%.0f', amount))
      redis.call('INCRBY', key .. ':s', amount)
      redis.call('PEXPIRE', key .. ':t', 61000)
      redis.call('PEXPIRE', key .. ':s', 61000)
      mine[2], resets[2] = mine[2] + amount, minute
    end
  end
  for _, number in ipairs({mine[1], resets[1], mine[2], resets[2]}) do out[#out + 1] = string.format('%.0f', number) end
end
return table.concat(out, ' ')
"""
)

# What one request held becomes what it used
_SETTLE = Script(
    _FORGET
    + """
local id, tokens = ARGV[1], ARGV[2]
for n, key in ipairs(KEYS) do
  local at = 3 + (n - 1) * 3
  local reserved, usd = ARGV[at], ARGV[at + 1]
  redis.call('ZREM', key .. ':c', id)
  if tonumber(reserved) >= 0 then
    forget(key, now - minute)
    local since = redis.call('ZSCORE', key .. ':t', id .. ':' .. reserved)
    if since and reserved ~= tokens then
      redis.call('ZREM', key .. ':t', id .. ':' .. reserved)
      redis.call('ZADD', key .. ':t', since, id .. ':' .. tokens)
      redis.call('INCRBY', key .. ':s', tonumber(tokens) - tonumber(reserved))
    end
  end
  if usd ~= '0' then
    local purse = key .. ':b:' .. ARGV[at + 2]
    redis.call('INCRBYFLOAT', purse, usd)
    redis.call('PEXPIRE', purse, 3456000000)
  end
end
"""
)

# What a process knows that the server may not: id, age, tokens reserved and used (-1: not counted), whether it counts as a request, whether it runs
_ADOPT = Script(
    _FORGET
    + """
local key, lease = KEYS[1], tonumber(ARGV[1])
forget(key, now - minute)
for at = 2, #ARGV, 6 do
  local id, since, reserved, tokens = ARGV[at], now - tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3]
  if since > now - minute then
    if ARGV[at + 4] == '1' then
      redis.call('ZADD', key .. ':r', 'NX', since, id)
      redis.call('PEXPIRE', key .. ':r', 61000)
    end
    if reserved ~= '-1' then
      local held = redis.call('ZSCORE', key .. ':t', id .. ':' .. reserved)
      if held and reserved ~= tokens then
        redis.call('ZREM', key .. ':t', id .. ':' .. reserved)
        redis.call('INCRBY', key .. ':s', -tonumber(reserved))
        since, held = held, nil
      end
      if not held and redis.call('ZADD', key .. ':t', 'NX', since, id .. ':' .. tokens) == 1 then redis.call('INCRBY', key .. ':s', tokens) end
      redis.call('PEXPIRE', key .. ':t', 61000)
      redis.call('PEXPIRE', key .. ':s', 61000)
    end
  end
  if ARGV[at + 5] == '1' then
    redis.call('ZADD', key .. ':c', now + lease, id)
    redis.call('PEXPIRE', key .. ':c', 3600000)
  end
end
"""
)


class Terms(NamedTuple):
    """One account's limits (None: there is none), its budget, and what is known to be spent of that since `begin`."""

    account: str
    rpm: int | None = None
    tpm: int | None = None
    places: int | None = None
    budget: float | None = None
    spent: float = 0.0
    begin: float = 0.0


class Used(NamedTuple):
    """What is used of an account's limits by the minute, and the seconds until nothing of it counts any more."""

    requests: int
    requests_reset: float
    tokens: int
    tokens_reset: float


class Verdict(NamedTuple):
    """The answer: `why` is None, or budget, concurrency, rpm or tpm of the account at `place`, free again after `wait` seconds."""

    used: Sequence[Used]
    why: str | None = None
    place: int = 0
    wait: float = 0.0


class Part(NamedTuple):
    """What one request has of one account: tokens reserved and used (None: they do not count), a request of its rpm, a place."""

    id: bytes
    at: float
    reserved: int | None
    tokens: int | None
    counts: bool
    runs: bool


class SharedLimits:
    """The limits of all accounts, over a shared state."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self._lease = bulk(microseconds(LEASE))
        self._admits = [shared.head(_ADMIT, count, 3 + 6 * count) for count in range(3)]
        self._settles = [shared.head(_SETTLE, count, 2 + 3 * count) for count in range(3)]
        self._keys: dict[str, bytes] = {}
        self._limits: dict[tuple[int | None, ...], bytes] = {}
        shared.know(_ADMIT, _SETTLE, _ADOPT)

    async def admit(self, id: bytes, tokens: int, terms: Sequence[Terms]) -> Verdict:
        """One request of so many tokens, if every account lets it in; a refusal takes nothing. SharedAway."""
        parts = [self._admits[len(terms)], *[self._key(account.account) for account in terms], bulk(id), self._lease, bulk(b"%d" % tokens)]
        for account in terms:
            parts.append(self._limited(account.rpm, account.tpm, account.places))
            parts.append(_NO_BUDGET if account.budget is None else _budget(account.budget, account.spent, account.begin))
        try:
            answer: bytes = await self.shared.ask_for(b"".join(parts))
        except Refused as error:
            raise SharedAway(f"it refuses the limits' script: {str(error)[:100]}") from None
        words = answer.split()
        first = 1 if words[0] == b"ok" else 3
        numbers = [int(word) for word in words[first:]]
        used = [Used(numbers[i], numbers[i + 1] / 1e6, numbers[i + 2], numbers[i + 3] / 1e6) for i in range(0, len(numbers), 4)]
        return Verdict(used) if first == 1 else Verdict(used, words[1].decode("ascii"), int(words[0]), int(words[2]) / 1e6)

    def settle(self, id: bytes, tokens: int, parts: Sequence[tuple[str, int | None, float, float]]) -> None:
        """The request is over. `parts`: account, tokens reserved there, USD to charge, and the begin of their period."""
        told = [self._settles[len(parts)], *[self._key(account) for account, *_ in parts], bulk(id), bulk(b"%d" % tokens)]
        for _, reserved, usd, begin in parts:
            told.append(bulk(_whole(reserved)))
            told.append(bulk(_real(usd)) + bulk(b"%d" % int(begin)) if usd else _NO_CHARGE)
        self.shared.tell_of(b"".join(told))

    def _key(self, account: str) -> bytes:
        known = self._keys.get(account)
        if known is None:
            if len(self._keys) > _MANY:
                self._keys.clear()
            known = self._keys[account] = self.shared.key(_key(account))
        return known

    def _limited(self, *limits: int | None) -> bytes:
        """rpm, tpm and places at a time as they stand in a command."""
        known = self._limits.get(limits)
        if known is None:
            if len(self._limits) > _MANY:
                self._limits.clear()
            known = self._limits[limits] = b"".join([bulk(_whole(limit)) for limit in limits])
        return known

    def adopt(self, account: str, parts: Sequence[Part]) -> None:
        """Tell what an account used here in the last minute and has running; what is known already is not counted again."""
        for start in range(0, len(parts), 500):
            values = [microseconds(LEASE)]
            for part in parts[start : start + 500]:
                values += (part.id, age(part.at), _whole(part.reserved), _whole(part.tokens), b"%d" % part.counts, b"%d" % part.runs)
            self.shared.tell(_ADOPT, (_key(account),), tuple(values))


def _budget(usd: float, spent: float, begin: float) -> bytes:
    return bulk(_real(usd)) + bulk(_real(spent)) + bulk(b"%d" % int(begin))


def _key(account: str) -> bytes:
    return b"limits:" + account.encode("utf-8")


def _whole(number: int | None) -> bytes:
    return _NONE if number is None else b"%d" % number


def _real(number: float) -> bytes:
    return f"{number:.12f}".encode("ascii")
