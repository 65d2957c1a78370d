-- The sandbox: what an adapter file may see, and the budget that each call lives under.
--
-- A script gets an allow-list and nothing of Lua's own tables. Everything that can be dear
-- inside one C call, where no instruction hook fires, is wrapped: it pays fuel by size, and a
-- pattern whose worst case is too dear runs in our own matcher (patterns.lua), instruction by
-- instruction. Fuel is one number: instructions counted by a hook, and these payments.
-- A spent budget is sticky (`spent`): the hook then fires at every instruction, and `try`, the
-- only way to catch an error, raises it again.
--
-- Arguments: the matcher (patterns.lua's functions). Gives a table of functions for
-- views.lua and for the host.

local matcher = ...
local assert, error, ipairs, next, select, setmetatable, tonumber, tostring, type, xpcall =
  assert, error, ipairs, next, select, setmetatable, tonumber, tostring, type, xpcall
local byte, char, find, format, gsub, lower, match, rep, reverse, sub, upper =
  string.byte, string.char, string.find, string.format, string.gsub, string.lower, string.match, string.rep, string.reverse, string.sub, string.upper
local concat, insert, pack, remove, sort, unpack = table.concat, table.insert, table.pack, table.remove, table.sort, table.unpack
local clock, collect, getinfo, load, math_type, sethook, setupvalue, valid = os.clock, collectgarbage, debug.getinfo, load, math.type, debug.sethook, debug.setupvalue, utf8.len

local GRAIN = 200 -- instructions between two looks at the budget; a look costs 0.5 us, as much as 200 instructions
local FINE = 10 -- the same while much memory is in use: one comparison of two huge strings takes milliseconds
local GLANCES = 4 -- looks from one look at the clock (0.6 us, a system call) to the next
local ROOMY = 4096 -- KiB in use from which on looks are FINE
local LONG = 1048576 -- the longest string that the library makes or takes
local DEPTH = 16 -- of `try` within `try`
local RANGE = 1000 -- values that unpack, byte, char and codepoint give or take at once
local NO_MEMORY = "not enough memory" -- Lua's own words

-- ---- the budget ----

local source = "adapter" -- what the script is called in messages
local fuel, deadline, memory = 0, 0, math.huge -- instructions left, os.clock() at the end, bytes in use at most
local limits -- {instructions=, time=, memory=}: as the messages name them
local spent, grain, depth, glances = nil, GRAIN, 0, 0
local stopped -- why the hook left its provider out (ctx.skip)

local function place()
  for level = 2, 250 do
    local frame = getinfo(level, "Sl")
    if not frame then break end
    if frame.short_src == source and frame.currentline > 0 then return source .. ":" .. frame.currentline .. ": " end
  end
  return "" -- a tail call leaves no frame; the host names the hook's line then
end

local tick
local function trip(what)
  if not spent then
    spent = "budget spent: " .. what
    fuel = fuel + 1000 -- place() itself is counted
    sethook()
    spent = place() .. "budget spent: " .. limits[what]
  end
  sethook(tick, "", 1)
  error(spent, 0)
end

tick = function()
  if spent then trip("instructions") end
  fuel = fuel - grain
  if fuel < 0 then trip("instructions") end
  local used = collect("count")
  if used > ROOMY then
    if used * 1024 > memory then
      collect()
      used = collect("count")
      if used * 1024 > memory then trip("memory") end
    end
    glances = 0
  end
  glances = glances - 1
  if glances < 0 then
    glances = GLANCES - 1
    if clock() > deadline then trip("time") end
  end
  local now = used > ROOMY and FINE or GRAIN
  if now ~= grain then
    grain = now
    sethook(tick, "", grain)
  end
end

local function on_time()
  if clock() > deadline then trip("time") end
end

local function charge(n)
  fuel = fuel - n
  if spent or fuel < 0 then trip("instructions") end
  if n > 1000 then on_time() end
end

-- Our own code between pause and resume is not counted; it pays by charge, and GRAIN for the
-- instructions of the script that the restarted count forgets.
local function pause()
  sethook()
end

local function resume()
  fuel = fuel - grain
  if spent or fuel < 0 then trip("instructions") end
  sethook(tick, "", grain)
end

-- How many bytes may still come in from outside. Called before the host hands anything over:
-- a failing allocation inside the host's own call could not be caught.
local function room()
  local free = memory - collect("count") * 1024
  if free < 65536 then
    charge(1000)
    on_time()
    collect()
    free = memory - collect("count") * 1024
    if free < 65536 then trip("memory") end
  end
  return free // 1 | 0
end

local function too_big() trip("memory") end

-- ---- values as text ----

local null = setmetatable({}, {
  __metatable = false,
  __index = function(_, key) error("attempt to index null (field '" .. tostring(key) .. "')", 2) end,
  __newindex = function(_, key) error("attempt to set field '" .. tostring(key) .. "' of null", 2) end,
  __tostring = function() return "null" end,
  __name = "null",
})

local named = setmetatable({}, { __mode = "k" }) -- stand-ins for values that Lua cannot hold -> what `type` says of them
local say = {} -- .digits(stand-in): its text

local function kind_of(...)
  if select("#", ...) == 0 then error("bad argument #1 to 'type' (value expected)", 2) end
  local value = ...
  if value == nil then return "nil" end
  if value == null then return "null" end
  return named[value] or type(value)
end

local function text_of(...)
  if select("#", ...) == 0 then error("bad argument #1 to 'tostring' (value expected)", 2) end
  local value = ...
  local kind = type(value)
  if kind == "table" then
    if value == null then return "null" end
    local name = named[value]
    return name == "number" and say.digits(value) or name or "table"
  elseif kind == "function" or kind == "userdata" or kind == "thread" then
    return kind
  end
  return tostring(value)
end

local function message_of(value)
  if type(value) == "string" then return value end
  return "error object is a " .. kind_of(value)
end

-- The message handler: what the library complains about is told with the script's own line.
local function locate(value)
  if spent or stopped then return value end
  local message = message_of(value)
  local ours = match(sub(message, 1, 40), "^gateway:%d+: ()")
  return ours and place() .. sub(message, ours) or message
end

-- ---- catching errors ----

local function caught(ok, ...)
  depth = depth - 1
  if spent then trip("instructions") end
  if stopped then error(stopped, 0) end
  if ok then return true, ... end
  local message = message_of((...))
  if find(message, NO_MEMORY, 1, true) then trip("memory") end
  return false, message
end

-- The one way to catch an error: ok, value_or_message = try(f, ...). It pays for itself,
-- because near the end of the C stack the instruction hook cannot run.
local function try(f, ...)
  if depth >= DEPTH then error("try nested too deeply", 2) end
  charge(GRAIN)
  on_time()
  depth = depth + 1
  return caught(xpcall(f, locate, ...))
end

local function skip(why)
  stopped = message_of(why)
  error(stopped, 0)
end
