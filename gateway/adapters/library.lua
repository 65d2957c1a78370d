-- The library: what a script sees. One chunk with budget.lua, which stands before it.
--
-- Everything that can be dear inside one C call, where no instruction hook fires, is wrapped:
-- it pays fuel by size, and a pattern whose worst case is too dear runs in our own matcher
-- (patterns.lua), instruction by instruction. The string methods are the wrapped ones too.

-- ---- strings ----

local function str(s, level)
  if type(s) == "number" then s = tostring(s) end
  if type(s) ~= "string" then error("string expected, got " .. kind_of(s), (level or 1) + 2) end
  charge(#s // 64 + 1)
  return s
end

local function count(n, default, level)
  if n == nil then return default end
  local whole = type(n) == "number" and math_type(n) == "integer" and n or (type(n) == "number" and n // 1 == n and n > -1e15 and n < 1e15 and n // 1 | 0)
  if not whole then error("number has no integer representation", (level or 1) + 2) end
  return whole
end

local String = {}

function String.len(s) return #str(s) end
function String.sub(s, i, j) return sub(str(s), count(i, 1), count(j, -1)) end
function String.upper(s) return upper(str(s)) end
function String.lower(s) return lower(str(s)) end
function String.reverse(s) return reverse(str(s)) end

function String.byte(s, i, j)
  s, i = str(s), count(i, 1)
  j = count(j, i)
  if j < 0 then j = #s + j + 1 end
  if i < 0 then i = #s + i + 1 end
  if j - i >= RANGE then error("string slice too long", 2) end
  return byte(s, i, j)
end

function String.char(...)
  if select("#", ...) > RANGE then error("too many arguments to 'char'", 2) end
  return char(...)
end

function String.rep(s, n, sep)
  s, n, sep = str(s), count(n, 0), sep and str(sep) or ""
  if n <= 0 then return "" end
  if n > LONG or (#s + #sep) * n > LONG then error("resulting string too large", 2) end
  charge(((#s + #sep) * n + n) // 64)
  return rep(s, n, sep)
end

function String.format(pattern, ...)
  pattern = str(pattern)
  if find(pattern, "%%[-+ #0]*%d%d%d") or find(pattern, "%%[-+ #0]*%d*%.%d%d%d") then error("invalid format (width or precision too long)", 2) end
  if find(pattern, "%%[-+ #0%d.]*[pP]") then error("invalid conversion '%p' to 'format'", 2) end
  local args = pack(...)
  local size = #pattern
  for i = 1, args.n do
    local value = args[i]
    if type(value) == "string" then
      size = size + #str(value)
    elseif type(value) ~= "number" then
      args[i] = text_of(value)
    end
  end
  if size > LONG then error("resulting string too large", 2) end
  charge(64 + size // 64 + args.n * 16)
  return format(pattern, unpack(args, 1, args.n))
end

local CHEAP = 50000 -- steps that the C matcher may take

local function plain_find(s, wanted, init)
  charge(#s * #wanted // 256 + 1)
  return find(s, wanted, init, true)
end

-- The matcher for this pattern on this text: the one in C where its worst case is bearable,
-- else ours. Pays for one search, or (`later`) gives what each byte passed will cost.
local function finder(s, pattern, later)
  local weight = matcher.weight(pattern)
  local steps = weight.factor
  for _ = 1, weight.power do steps = steps * (#s + 1) end
  if weight.power == 1 and weight.factor < 100 then
    if not later then charge(steps // 8 + 4) end
    return find, weight.factor / 8
  elseif steps <= CHEAP then
    charge(steps // 8 + 4)
    return find, steps // 8
  end
  return matcher.find, 0
end

function String.find(s, pattern, init, plain)
  s, pattern, init = str(s), str(pattern), count(init, 1)
  if plain or not find(pattern, "[%^%$%*%+%?%.%(%[%%%-]") then return plain_find(s, pattern, init) end
  return finder(s, pattern)(s, pattern, init)
end

function String.match(s, pattern, init)
  s, pattern, init = str(s), str(pattern), count(init, 1)
  return (finder(s, pattern) == find and match or matcher.match)(s, pattern, init)
end

local function captures(s, from, to, ...)
  if select("#", ...) > 0 then return ... end
  return sub(s, from, to)
end

function String.gmatch(s, pattern, init)
  s, pattern, init = str(s), str(pattern), count(init, 1)
  if init < 0 then init = #s + init + 1 end
  if init < 1 then init = 1 end
  if sub(pattern, 1, 1) == "^" then pattern = "%" .. pattern end -- no anchor here
  local search, price = finder(s, pattern, true)
  local last
  local function found(from, to, ...)
    charge((from and to - init + 2 or #s - init + 2) * price // 1 + 8)
    if not from then
      init = #s + 2
      return nil
    end
    if to + 1 == last then -- the empty match where the last one ended
      init = from + 1
      return false
    end
    init, last = to + 1, to + 1
    return captures(s, from, to, ...)
  end
  local function each(first, ...)
    if first ~= false then return first, ... end
    return each(found(search(s, pattern, init)))
  end
  return function()
    if init > #s + 1 then return nil end
    return each(found(search(s, pattern, init)))
  end
end

local function replacement(by, whole, ...)
  local kind = type(by)
  local value
  if kind == "function" then
    value = by(...)
  elseif kind == "table" then
    value = by[(...)]
  else
    local groups = pack(...)
    charge(#by // 4)
    value = gsub(by, "%%(.?)", function(which)
      if which == "%" then return "%" end
      if which == "0" then return whole end
      local group = find(which, "^%d$") and groups[tonumber(which)]
      if not group then error("invalid use of '%' in replacement string", 0) end
      return tostring(group)
    end)
  end
  if not value then return whole end
  if type(value) == "number" then value = tostring(value) end
  if type(value) ~= "string" then error("invalid replacement value (a " .. kind_of(value) .. ")", 0) end
  return value
end

-- string.gsub in steps, so that what it builds and calls is seen by the budget.
local function replace(s, pattern, by, most)
  local search, price = finder(s, pattern, true)
  local out, at, last, times = {}, 1, nil, 0
  local function one(from, to, ...)
    charge(((from and to or #s) - at + 2) * price // 1 + 8)
    if not from then return false end
    if to + 1 == last then -- an empty match where the last one ended: go on behind one byte
      if at > #s then return false end
      out[#out + 1] = sub(s, at, at)
      at = at + 1
      last = nil
      return true
    end
    times = times + 1
    out[#out + 1] = sub(s, at, from - 1)
    out[#out + 1] = replacement(by, sub(s, from, to), captures(s, from, to, ...))
    at, last = to + 1, to + 1
    return true
  end
  while times < most and at <= #s + 1 and one(search(s, pattern, at)) do
    if matcher.anchored(pattern) then break end
  end
  out[#out + 1] = sub(s, at)
  return concat(out), times
end

function String.gsub(s, pattern, by, n)
  s, pattern = str(s), str(pattern)
  local kind = type(by)
  if kind == "number" then by, kind = tostring(by), "string" end
  if by == null or (kind ~= "string" and kind ~= "table" and kind ~= "function") then
    error("bad argument #3 to 'gsub' (string/function/table expected, got " .. kind_of(by) .. ")", 2)
  end
  n = count(n, #s + 1)
  if kind == "string" and #by * (#s + 1) <= LONG and finder(s, pattern) == find then
    charge(#by * (#s + 1) // 64)
    return gsub(s, pattern, by, n)
  end
  return replace(s, pattern, by, n)
end

-- ("x"):len() and every other method of a string is the wrapped one. The arithmetic of
-- numeric strings is left out: it reads a string of any length within one instruction.
local string_meta = debug.getmetatable("")
for key in next, string_meta do string_meta[key] = nil end
string_meta.__index = String
string_meta.__metatable = false

-- ---- tables ----

local function tab(t, level)
  if type(t) ~= "table" or t == null then error("table expected, got " .. kind_of(t), (level or 1) + 2) end
  local n = #t -- loads a view
  charge(n // 8 + 2)
  return n
end

local Table = {}

function Table.concat(t, sep, i, j)
  local n = tab(t)
  i, j, sep = count(i, 1), count(j, n), sep and str(sep) or ""
  if j - i > 1000000 then error("range too large", 2) end
  charge((j > i and j - i or 0) // 2)
  return concat(t, sep, i, j)
end

function Table.insert(t, ...)
  charge(tab(t) // 2)
  local given = select("#", ...)
  if given == 2 then
    local at, value = ...
    return insert(t, count(at), value)
  elseif given ~= 1 then
    error("wrong number of arguments to 'insert'", 2)
  end
  t[#t + 1] = ...
end

function Table.remove(t, at)
  charge(tab(t) // 2)
  if at == nil then return remove(t) end
  return remove(t, count(at))
end

function Table.sort(t, before)
  charge(tab(t) * 20)
  return sort(t, before)
end

function Table.unpack(t, i, j)
  local n = tab(t)
  i, j = count(i, 1), count(j, n)
  if j - i >= RANGE then error("too many results to unpack", 2) end
  return unpack(t, i, j)
end

function Table.pack(...)
  charge(select("#", ...))
  return pack(...)
end

-- ---- numbers and UTF-8 ----

local Math = { pi = math.pi, huge = math.huge, maxinteger = math.maxinteger, mininteger = math.mininteger }
for name, f in next, math do
  if type(f) == "function" and name ~= "randomseed" then
    Math[name] = function(...)
      local n = select("#", ...)
      charge(n * n // 8)
      if n > RANGE then error("too many arguments to '" .. name .. "'", 2) end
      for i = 1, n do
        local value = select(i, ...)
        if type(value) == "string" and name ~= "type" then error("number expected, got string", 2) end
      end
      return f(...)
    end
  end
end

local utf8_len, utf8_offset, utf8_codepoint, utf8_char = utf8.len, utf8.offset, utf8.codepoint, utf8.char
local Utf8 = { charpattern = utf8.charpattern }
function Utf8.len(s, i, j)
  s = str(s)
  charge(#s // 4)
  return utf8_len(s, count(i, 1), count(j, -1))
end
function Utf8.offset(s, n, i)
  s = str(s)
  charge(#s // 4)
  n = count(n, 1)
  return utf8_offset(s, n, count(i, n > 0 and 1 or #s + 1))
end
function Utf8.codepoint(s, i, j)
  s, i = str(s), count(i, 1)
  j = count(j, i)
  if (j < 0 and #s + j + 1 or j) - i >= RANGE then error("string slice too long", 2) end
  return utf8_codepoint(s, i, j)
end
function Utf8.char(...)
  if select("#", ...) > RANGE then error("too many arguments to 'char'", 2) end
  return utf8_char(...)
end
function Utf8.codes(s)
  s = str(s)
  local at = 1
  return function()
    if at > #s then return nil end
    local here = at
    local code = utf8_codepoint(s, here)
    at = utf8_offset(s, 2, here)
    return here, code
  end
end

-- ---- what a script sees ----

local function sealed(name, members)
  return setmetatable({}, {
    __metatable = false,
    __index = members,
    __newindex = function(_, key) error("the library " .. name .. " is read-only (" .. tostring(key) .. ")", 2) end,
    __pairs = function() return next, members, nil end,
    __name = name,
  })
end

local library = {
  _VERSION = "Lua 5.4",
  assert = function(ok, ...)
    if ok then return ok, ... end
    if select("#", ...) == 0 then error("assertion failed!", 2) end
    error(message_of((...)), 0)
  end,
  error = function(message, level)
    error(message_of(message), level == 0 and 0 or level == 2 and 3 or 2)
  end,
  ipairs = function(t)
    if type(t) ~= "table" or t == null then error("bad argument #1 to 'ipairs' (table expected, got " .. kind_of(t) .. ")", 2) end
    return ipairs(t)
  end,
  null = null,
  rawequal = rawequal,
  select = function(n, ...)
    charge(select("#", ...) // 8)
    return select(n, ...)
  end,
  tonumber = function(value, base)
    if type(value) == "string" then
      charge(#value // 4 + 1)
      if #value > 400 then return nil end
    end
    if base == nil then return tonumber(value) end
    return tonumber(value, base)
  end,
  tostring = text_of,
  type = kind_of,
  try = try,
  string = sealed("string", String),
  table = sealed("table", Table),
  math = sealed("math", Math),
  utf8 = sealed("utf8", Utf8),
}

-- The environment of the script. Globals that it sets while it is loaded stay; those that a
-- hook sets are gone when the next hook starts, so that no request can see another's.
local scratch = setmetatable({}, { __index = library })
local environment_meta = { __index = scratch, __metatable = false }
local environment = setmetatable({}, environment_meta)
library._G = environment

local script -- the compiled file; all its functions share its _ENV

local function begin(instructions, seconds)
  if script then setupvalue(script, 1, environment) end
  if next(scratch) ~= nil then
    for key in next, scratch do scratch[key] = nil end
  end
  fuel, deadline, spent, stopped, depth, grain, glances = instructions, clock() + seconds, nil, nil, 0, GRAIN, GLANCES
  sethook(tick, "", GRAIN)
end

local function readable(message)
  if #message > 1000 then message = sub(message, 1, 1000) end
  if valid(message) then return message end
  return (gsub(message, "[\128-\255]", "?"))
end

local function done(ok, ...)
  sethook()
  if ok then return true, ... end
  local message = stopped or spent or message_of((...))
  if not stopped and not spent and find(message, NO_MEMORY, 1, true) then
    return false, "spent", "budget spent: " .. limits.memory
  end
  return false, stopped and "skip" or spent and "spent" or "failed", readable(message)
end

-- Runs f under a budget: true and its results, or false, "skip" | "spent" | "failed", message.
-- Where the budget was spent the error may leave this function itself; the host then unsets
-- the hook and asks `why`.
local function guarded(instructions, seconds, f, ...)
  begin(instructions, seconds)
  return done(xpcall(f, locate, ...))
end

return {
  environment = environment,
  library = library,
  null = null,
  named = named,
  say = say,
  charge = charge,
  on_time = on_time,
  pause = pause,
  resume = resume,
  room = room,
  too_big = too_big,
  skip = skip,
  guarded = guarded,
  kind_of = kind_of,
  text_of = text_of,
  why = function() return spent or "the hook was stopped" end,
  compile = function(text, name)
    source = name
    local failure
    script, failure = load(text, "=" .. name, "t", environment)
    return script, failure
  end,
  -- The script is loaded: what it sets from now on is for one call only.
  seal = function() environment_meta.__newindex = scratch end,
  limit = function(bytes, texts) memory, limits = bytes, texts end,
  used = function() return collect("count") * 1024 // 1 end,
  collect = function() collect() end,
  line_of = function(f) return getinfo(f, "S").linedefined end,
}
