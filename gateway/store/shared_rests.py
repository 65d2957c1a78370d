"""Which targets rest, as all processes know it, and which process tries one out.

One hash has each rest with the moment when it ends by the server's clock, for a while after
that too, until the target has answered; a key that ends by itself says who tries a target out.
"""

from __future__ import annotations

from gateway.chat import Json, dumps, loads
from gateway.store.faults import SharedAway
from gateway.store.resp import Refused
from gateway.store.shared import Script, Shared, microseconds

_NOW = """
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
"""

# The longer rest stays
_REST = Script(
    _NOW
    + """
local ends, old = now + ARGV[2], redis.call('HGET', KEYS[1], ARGV[1])
if old and (tonumber(string.match(old, '^%d+')) or 0) >= ends then return end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', ends) .. ' ' .. ARGV[3])
redis.call('PEXPIRE', KEYS[1], 86400000)
"""
)

_WAKE = Script("redis.call('HDEL', KEYS[1], ARGV[1])")

# Of many only those that rest now: clients may ask a provider for models that nobody has
_ALL = Script(
    _NOW
    + """
local all, out = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #all, 2 do
  local ends, rest = string.match(all[i + 1], '^(%d+) (.*)$')
  local left = (tonumber(ends) or 0) - now
  if left <= -tonumber(ARGV[1]) or (left <= 0 and #all > 4000) then redis.call('HDEL', KEYS[1], all[i])
  else out[#out + 1] = all[i]; out[#out + 1] = string.format('%.0f', left); out[#out + 1] = rest end
end
return out
"""
)

# Who asks knows of a rest that ends in ARGV[4]; of one that is longer it is told instead
_TAKE = Script(
    _NOW
    + """
local rest = redis.call('HGET', KEYS[1], ARGV[1])
if rest then
  local ends, why = string.match(rest, '^(%d+) (.*)$')
  local left = (tonumber(ends) or 0) - now
  if left > tonumber(ARGV[4]) + 500000 then return {string.format('%.0f', left), why} end
end
if redis.call('SET', KEYS[2], ARGV[2], 'NX', 'PX', ARGV[3]) then return {'0'} end
if redis.call('GET', KEYS[2]) ~= ARGV[2] then return {string.format('%.0f', math.max(1, redis.call('PTTL', KEYS[2])) * 1000)} end
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {'0'}
"""
)

_RENEW = Script("""
local who = redis.call('GET', KEYS[1])
if not who or who == ARGV[1] then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end
""")

_DROP = Script("if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end")

_KEY = b"rests"


class RestBoard:
    """`take` and `all` wait for an answer, the others never do.

    trial       seconds that `take` and `renew` hold
    remembered  seconds after its end in which a rest is told of
    """

    def __init__(self, shared: Shared, trial: float, remembered: float) -> None:
        self.shared = shared
        self._id = shared.id.encode("ascii")
        self._trial = b"%d" % int(trial * 1000)
        self._remembered = microseconds(remembered)
        shared.know(_REST, _WAKE, _ALL, _TAKE, _RENEW, _DROP)

    def rest(self, name: str, seconds: float, why: Json) -> None:
        """`seconds` may be below 0: it is over."""
        self.shared.tell(_REST, (_KEY,), (name.encode("utf-8"), microseconds(seconds), dumps(why)))

    def wake(self, name: str) -> None:
        self.shared.tell(_WAKE, (_KEY,), (name.encode("utf-8"),))

    async def all(self) -> dict[str, tuple[float, Json]]:
        """Every target that rests, or did and has not answered since: the seconds that are left, and why. SharedAway."""
        answer = await self.shared.ask(_ALL, (_KEY,), (self._remembered,))
        return {answer[i].decode("utf-8"): (int(answer[i + 1]) / 1e6, _why(answer[i + 2])) for i in range(0, len(answer), 3)}

    async def take(self, name: str, left: float) -> tuple[float, Json | None]:
        """Try a target out, of whose rest `left` seconds are left as far as is known. SharedAway.

        (0, None): nobody else does. (seconds, None): another process does, for so long at least.
        (seconds, why): it rests for longer than was known.
        """
        raw = name.encode("utf-8")
        try:
            answer = await self.shared.ask(_TAKE, (_KEY, _trial(raw)), (raw, self._id, self._trial, microseconds(left)))
        except Refused as error:
            raise SharedAway(str(error)) from None
        return int(answer[0]) / 1e6, _why(answer[1]) if len(answer) > 1 else None

    def renew(self, name: str) -> None:
        """It is still tried out here."""
        self.shared.tell(_RENEW, (_trial(name.encode("utf-8")),), (self._id, self._trial))

    def drop(self, name: str) -> None:
        """It is not any more."""
        self.shared.tell(_DROP, (_trial(name.encode("utf-8")),), (self._id,))


def _why(told: bytes) -> Json:
    """Nothing where another version of the gateway tells it in another way."""
    try:
        value = loads(told)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _trial(name: bytes) -> bytes:
    return b"trial:" + name
