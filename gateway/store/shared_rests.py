"""Which targets rest, as all processes know it: one hash, each entry with the moment when it ends by the server's clock."""

from __future__ import annotations

from gateway.chat import Json, dumps, loads
from gateway.store.shared import Script, Shared, microseconds

_REST = Script("""
local t = redis.call('TIME')
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', t[1] * 1000000 + t[2] + ARGV[2]) .. ' ' .. ARGV[3])
redis.call('PEXPIRE', KEYS[1], 86400000)
""")

_WAKE = Script("redis.call('HDEL', KEYS[1], ARGV[1])")

_ALL = Script("""
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local all, out = redis.call('HGETALL', KEYS[1]), {}
for i = 1, #all, 2 do
  local ends, rest = string.match(all[i + 1], '^(%d+) (.*)$')
  local left = tonumber(ends) - now
  if left <= 0 then redis.call('HDEL', KEYS[1], all[i])
  else out[#out + 1] = all[i]; out[#out + 1] = string.format('%.0f', left); out[#out + 1] = rest end
end
return out
""")

_KEY = (b"rests",)


class RestBoard:
    """`rest` and `wake` never wait; `all` does."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        shared.know(_REST, _WAKE, _ALL)

    def rest(self, name: str, seconds: float, why: Json) -> None:
        self.shared.tell(_REST, _KEY, (name.encode("utf-8"), microseconds(seconds), dumps(why)))

    def wake(self, name: str) -> None:
        self.shared.tell(_WAKE, _KEY, (name.encode("utf-8"),))

    async def all(self) -> dict[str, tuple[float, Json]]:
        """Every target that rests: the seconds that are left, and why. SharedAway."""
        answer = await self.shared.ask(_ALL, _KEY, ())
        return {answer[i].decode("utf-8"): (int(answer[i + 1]) / 1e6, loads(answer[i + 2])) for i in range(0, len(answer), 3)}
