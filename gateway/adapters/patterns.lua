-- Lua's patterns, matched in Lua: slower than the C matcher, but every step is an instruction
-- that the budget sees. Used where the C matcher's worst case on this text would be too dear.
--
-- A pattern is parsed once into a list of items
--   {op = "one", set =, rep = nil | "*" | "+" | "-" | "?"}, {op = "open"}, {op = "point"}, {op = "close"},
--   {op = "back", group =}, {op = "balance", from =, to =}, {op = "border", set =}, {op = "end"}
-- A set says for each byte whether it is in; it asks the C matcher once for each byte, so
-- that classes mean exactly what they mean in Lua.

local byte, char, find, sub = string.byte, string.char, string.find, string.sub
local error, setmetatable, next = error, setmetatable, next

local KEPT = 200 -- parsed patterns

local set_meta = {
  __index = function(set, code)
    local is = find(char(code), set.class) ~= nil
    set[code] = is
    return is
  end,
}

local function new_set(class) return setmetatable({ class = "^" .. class }, set_meta) end

local any = setmetatable({}, { __index = function() return true end })

-- Where the class that starts at i ends (the position after it).
local function class_end(pattern, i)
  local c = sub(pattern, i, i)
  if c == "%" then
    if i == #pattern then error("malformed pattern (ends with '%')", 0) end
    return i + 2
  elseif c == "[" then
    local at = i + 1
    if sub(pattern, at, at) == "^" then at = at + 1 end
    repeat
      if at > #pattern then error("malformed pattern (missing ']')", 0) end
      local here = sub(pattern, at, at)
      at = at + 1
      if here == "%" then at = at + 1 end
    until sub(pattern, at, at) == "]"
    return at + 1
  end
  return i + 1
end

local function set_of(class)
  if class == "." then return any end
  if class == "^" or class == "$" then class = "%" .. class end
  return new_set(class)
end

local function parse_percent(pattern, i)
  local kind = sub(pattern, i + 1, i + 1)
  if kind == "b" then
    if i + 3 > #pattern then error("malformed pattern (missing arguments to '%b')", 0) end
    return { op = "balance", from = byte(pattern, i + 2), to = byte(pattern, i + 3) }, i + 4
  elseif kind == "f" then
    if sub(pattern, i + 2, i + 2) ~= "[" then error("missing '[' after '%f' in pattern", 0) end
    local stop = class_end(pattern, i + 2)
    return { op = "border", set = new_set(sub(pattern, i + 2, stop - 1)) }, stop
  elseif find(kind, "^%d") then
    return { op = "back", group = byte(kind) - 48 }, i + 2
  end
end

local function parse_item(pattern, i)
  local c = sub(pattern, i, i)
  if c == "(" then
    if sub(pattern, i + 1, i + 1) == ")" then return { op = "point" }, i + 2 end
    return { op = "open" }, i + 1
  elseif c == ")" then
    return { op = "close" }, i + 1
  elseif c == "$" and i == #pattern then
    return { op = "end" }, i + 1
  elseif c == "%" then
    local item, stop = parse_percent(pattern, i)
    if item then return item, stop end
  end
  local stop = class_end(pattern, i)
  local item = { op = "one", set = set_of(sub(pattern, i, stop - 1)) }
  local suffix = sub(pattern, stop, stop)
  if suffix ~= "" and find(suffix, "[%*%+%-%?]") then
    item.rep, stop = suffix, stop + 1
  end
  return item, stop
end

-- The worst case on n bytes: factor * n^power steps. A repetition counts as another n when
-- something after it can fail, so that it is tried at every length.
local function weigh(items, anchored)
  local power, doubled, waiting, maybe, longest = anchored and 0 or 1, 0, 0, 0, 0
  for i = 1, #items do
    local item = items[i]
    local class = item.set and item.set ~= any and item.set.class or ""
    if #class > longest then longest = #class end -- the C matcher reads a class anew for each byte
    local can_fail = item.op ~= "open" and item.op ~= "point" and item.op ~= "close" and not (item.rep and item.rep ~= "+")
    if can_fail then
      power, doubled, waiting, maybe = power + waiting, doubled + maybe, 0, 0
    end
    if item.op == "balance" or item.op == "back" then
      power = power + 1
    elseif item.rep == "?" then
      maybe = maybe + 1
    elseif item.rep then
      waiting = waiting + 1
    end
  end
  if power == 0 then power = 1 end
  return { power = power, factor = 2 ^ doubled * (1 + longest // 2) }
end

local parsed, kept = {}, 0
local function parse(pattern)
  local known = parsed[pattern]
  if known then return known end
  local items, i = {}, 1
  local anchored = sub(pattern, 1, 1) == "^"
  if anchored then i = 2 end
  while i <= #pattern do items[#items + 1], i = parse_item(pattern, i) end
  known = { items = items, anchored = anchored, weight = weigh(items, anchored) }
  if kept >= KEPT then parsed, kept = {}, 0 end
  parsed[pattern], kept = known, kept + 1
  return known
end

local POINT, UNFINISHED = -2, -1

local step -- forward

local function last_open(caps)
  for level = caps.n, 1, -1 do
    if caps.len[level] == UNFINISHED then return level end
  end
  error("invalid pattern capture", 0)
end

local function opened(items, k, s, pos, caps, len)
  local level = caps.n + 1
  if level > 32 then error("too many captures", 0) end
  caps.n, caps.start[level], caps.len[level] = level, pos, len
  local stop = step(items, k + 1, s, pos, caps)
  if not stop then caps.n = level - 1 end
  return stop
end

local function closed(items, k, s, pos, caps)
  local level = last_open(caps)
  caps.len[level] = pos - caps.start[level]
  local stop = step(items, k + 1, s, pos, caps)
  if not stop then caps.len[level] = UNFINISHED end
  return stop
end

local function balanced(item, s, pos)
  if byte(s, pos) ~= item.from then return nil end
  local level = 1
  for at = pos + 1, #s do
    local code = byte(s, at)
    if code == item.to then
      level = level - 1
      if level == 0 then return at + 1 end
    elseif code == item.from then
      level = level + 1
    end
  end
end

local function repeated(items, k, s, pos, caps)
  local item = items[k]
  local set = item.set
  if item.rep == "-" then
    while true do
      local stop = step(items, k + 1, s, pos, caps)
      if stop then return stop end
      local code = byte(s, pos)
      if not (code and set[code]) then return nil end
      pos = pos + 1
    end
  end
  local most = pos
  while true do
    local code = byte(s, most)
    if not (code and set[code]) then break end
    most = most + 1
    if item.rep == "?" then break end
  end
  for at = most, item.rep == "+" and pos + 1 or pos, -1 do
    local stop = step(items, k + 1, s, at, caps)
    if stop then return stop end
  end
end

step = function(items, k, s, pos, caps)
  while true do
    local item = items[k]
    if not item then return pos end
    local op = item.op
    if op == "one" then
      if item.rep then return repeated(items, k, s, pos, caps) end
      local code = byte(s, pos)
      if not (code and item.set[code]) then return nil end
      pos = pos + 1
    elseif op == "open" then
      return opened(items, k, s, pos, caps, UNFINISHED)
    elseif op == "point" then
      return opened(items, k, s, pos, caps, POINT)
    elseif op == "close" then
      return closed(items, k, s, pos, caps)
    elseif op == "balance" then
      pos = balanced(item, s, pos)
      if not pos then return nil end
    elseif op == "border" then
      if item.set[byte(s, pos - 1) or 0] or not item.set[byte(s, pos) or 0] then return nil end
    elseif op == "back" then
      local len = caps.len[item.group]
      if item.group < 1 or item.group > caps.n or len == UNFINISHED then error("invalid capture index %" .. item.group, 0) end
      if len == POINT then return nil end -- as in C
      local text = sub(s, caps.start[item.group], caps.start[item.group] + len - 1)
      if sub(s, pos, pos + #text - 1) ~= text then return nil end
      pos = pos + #text
    elseif op == "end" then
      if pos ~= #s + 1 then return nil end
    end
    k = k + 1
  end
end

local function group(s, caps, level)
  local start, len = caps.start[level], caps.len[level]
  if len == POINT then return start end
  if len == UNFINISHED then error("unfinished capture", 0) end
  return sub(s, start, start + len - 1)
end

local function groups(s, caps, level)
  if level > caps.n then return end
  return group(s, caps, level), groups(s, caps, level + 1)
end

local function search(s, pattern, init)
  local known = parse(pattern)
  local caps = { n = 0, start = {}, len = {} }
  if init < 0 then init = #s + init + 1 end
  if init < 1 then init = 1 end
  if init > #s + 1 then return nil end
  for at = init, known.anchored and init or #s + 1 do
    caps.n = 0
    local stop = step(known.items, 1, s, at, caps)
    if stop then return at, stop - 1, caps end
  end
end

return {
  weight = function(pattern) return parse(pattern).weight end,
  anchored = function(pattern) return parse(pattern).anchored end,
  -- as string.find without `plain`
  find = function(s, pattern, init)
    local from, to, caps = search(s, pattern, init)
    if not from then return nil end
    return from, to, groups(s, caps, 1)
  end,
  -- as string.match
  match = function(s, pattern, init)
    local from, to, caps = search(s, pattern, init)
    if not from then return nil end
    if caps.n == 0 then return sub(s, from, to) end
    return groups(s, caps, 1)
  end,
}
