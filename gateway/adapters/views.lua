-- Views: a JSON document of the host as Lua tables, loaded where a script looks, and what it
-- changed told to the host at the end.
--
-- Every object and list has a number; the host keeps the values under these numbers. A view
-- starts as an empty stub. The first look at it brings all its fields over in one crossing
-- and makes it an ordinary table, so that reading, writing, `#`, ipairs and the table library
-- run at Lua's own speed and with Lua's own meaning. What came over is kept beside it (`row`);
-- when the hook is done each loaded table is compared with its row, and only what differs is
-- sent back. So the host's document keeps every untouched value, its key order included.
-- Measured against proxies that cross at each access: a loop over messages costs 2 us a
-- message instead of 6 (bench/hooks.py).
--
-- A row is what the host sent: 2 * s + n, the number of fields, then s marks of special values
-- in order, then the keys and values (of a list: the values). n is 1 if there is a number among
-- them. Several objects come as one row after the other: a script that takes a list's objects
-- in turn gets the next ones along. Marks:
-- 0 null, -1 object, -2 an integer that Lua cannot hold, -3 a long text that stays with the
-- host until it is read, -4 an object of the host's (a splitter), 1 + n a list of n elements.
-- A list of nothing but objects is sent as -1 - its length.

local box, host = ...
local charge, pause, resume, room, null, named, kind_of, text_of = box.charge, box.pause, box.resume, box.room, box.null, box.named, box.kind_of, box.text_of
local error, getmetatable, next, pairs, rawget, rawset, select, setmetatable, tostring, type = error, getmetatable, next, pairs, rawget, rawset, select, setmetatable, tostring, type
local find, sub, sort, unpack, math_type, valid, offset, huge = string.find, string.sub, table.sort, table.unpack, math.type, utf8.len, utf8.offset, math.huge

-- What the host does for us. None of these raises; nil for a row or text: too big for the room.
local fetch, fetch_list, fetch_text, text_size, weigh = host.fetch, host.fetch_list, host.text, host.text_size, host.weigh
local where, roles, fill, twin, compare = host.where, host.roles, host.fill, host.twin, host.compare

local NULL, OBJECT, BIG, LATER, HANDLE = 0, -1, -2, -3, -4 -- marks
local PUT, DROP, PLACE, RESET, ADD, ADD_NODE, NEW_OBJECT, NEW_LIST, TWIN, TEXT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local DEEP = 100 -- levels of a value that a script makes
local TOGETHER = 12 -- objects that are loaded at once

-- Where an empty table from a script means a list.
local LISTS = {}
for name in string.gmatch("messages tools stop tool_calls content input choices functions parts contents required enum anyOf oneOf allOf include modalities reasoning_details", "%S+") do
  LISTS[name] = true
end

-- ---- the state of one call ----

local number = {} -- view -> its number
local row = {} -- loaded view -> what came over
local span = {} -- loaded view -> where its values are in the row: first | numbers << 20 | last << 21
local clans = {} -- the objects of each loaded list of objects: {first = number, last = number, views =}
local latest = 0 -- the number of the object that was loaded last
local size = {} -- list stub -> its length
local later = {} -- object -> {key of a long text not yet read -> its place in the row}
local loaded, loaded_n = {}, 0
local last = 0 -- the highest number in use
local order = {} -- table -> its keys in order, where a document gave one
local roots = {} -- number -> true: an argument of the hook
local unread = {} -- stands in a row for a long text

local function forget()
  number, row, span, size, later, order, roots, clans = {}, {}, {}, {}, {}, {}, {}, {}
  loaded, loaded_n, last, latest = {}, 0, 0, 0
end

local function digits(view) return host.digits(number[view] or error("this value belongs to an earlier call", 3)) end

local function alive(view)
  local n = number[view]
  if not n then error("this value belongs to an earlier call; keep what must live on in ctx.state", 3) end
  return n
end

-- ---- loading ----

local stub_object, stub_list, list_meta, object_meta, big_meta, handle_meta = {}, {}, { __name = "list" }, { __name = "object" }, { __name = "integer" }, { __name = "handle" }
local partial_meta = { __name = "object" } -- an object with long texts not yet read

local function special(mark)
  if mark == NULL then return null end
  last = last + 1
  local view
  if mark == OBJECT then
    view = setmetatable({}, stub_object)
  elseif mark > 0 then
    view = setmetatable({}, stub_list)
    size[view] = mark - 1
  else
    view = setmetatable({}, mark == BIG and big_meta or handle_meta)
    named[view] = mark == BIG and "number" or "userdata"
  end
  number[view] = last
  return view
end

-- Reads the object's row that starts at `at`; gives where the next one starts.
local function take_object(t, r, at)
  local head, mark, waiting = r[at], at + 1, nil
  local first = at + 2 + head // 2
  local stop = first + 2 * r[at + 1] - 1
  for i = first, stop, 2 do
    local key, value = r[i], r[i + 1]
    if value ~= nil then
      t[key] = value
    else
      mark = mark + 1
      local kind = r[mark]
      if kind == LATER then
        waiting = waiting or {}
        waiting[key], r[i + 1] = i + 1, unread
      else
        value = special(kind)
        r[i + 1], t[key] = value, value
      end
    end
  end
  if waiting then
    later[t] = waiting
    setmetatable(t, partial_meta)
  end
  row[t], span[t] = r, first | (head & 1) << 20 | stop << 21
  return stop + 1
end

local function take_list(t, r)
  local head = r[1]
  if head < 0 then -- objects only
    local views = {}
    for i = 1, -1 - head do
      local view = setmetatable({}, stub_object)
      number[view] = last + i
      views[i], t[i] = view, view
    end
    clans[#clans + 1] = { first = last + 1, last = last - 1 - head, views = views }
    last = last - 1 - head
    row[t], span[t] = views, 1 | (-1 - head) << 21
    return
  end
  local first, mark = 3 + head // 2, 2
  local stop = first + r[2] - 1
  for i = first, stop do
    local value = r[i]
    if value == nil then
      mark = mark + 1
      value = special(r[mark])
      r[i] = value
    end
    t[i - first + 1] = value
  end
  row[t], span[t] = r, first | (head & 1) << 20 | stop << 21
end

local function mark_loaded(t, meta)
  setmetatable(t, meta)
  loaded_n = loaded_n + 1
  loaded[loaded_n] = t
end

local function load_together(views, count)
  local numbers = {}
  for i = 1, count do
    numbers[i] = alive(views[i])
    mark_loaded(views[i], object_meta)
  end
  local r, at = { fetch(room(), unpack(numbers)) }, 1
  if not r[1] then box.too_big() end
  for i = 1, count do at = take_object(views[i], r, at) end
  latest = numbers[count]
  charge(count * 30)
end

-- The object and those after it in its list that nobody has looked at.
local function siblings(t, n)
  local views = { t }
  for i = 1, #clans do
    local clan = clans[i]
    if n >= clan.first and n < clan.last then
      for at = n + 1, n + TOGETHER - 1 do
        local view = clan.views[at - clan.first + 1]
        if not view or getmetatable(view) ~= stub_object then break end
        views[#views + 1] = view
      end
    end
  end
  return views
end

local function load_object(t)
  local n = alive(t)
  pause()
  local views = n == latest + 1 and siblings(t, n)
  if views and views[2] then
    load_together(views, #views)
  else
    mark_loaded(t, object_meta)
    local r = { fetch(room(), n) }
    if not r[1] then box.too_big() end
    take_object(t, r, 1)
    latest = n
  end
  resume()
end

-- Loads those of some views that are stubs of objects, a few at a time.
local function load_objects(views)
  pause()
  local batch, count = {}, 0
  for i = 1, #views do
    if getmetatable(views[i]) == stub_object then
      count = count + 1
      batch[count] = views[i]
      if count == TOGETHER then
        load_together(batch, count)
        count = 0
      end
    end
  end
  if count > 0 then load_together(batch, count) end
  resume()
end

local function load_list(t)
  local n = alive(t)
  charge(size[t])
  pause()
  mark_loaded(t, list_meta)
  local r = { fetch_list(room(), n) }
  if not r[1] then box.too_big() end
  take_list(t, r)
  resume()
end

-- Makes sure that a view's own fields are there.
local function open(t)
  local meta = getmetatable(t)
  if meta == stub_object then
    load_object(t)
  elseif meta == stub_list then
    load_list(t)
  elseif meta == partial_meta then
    for key in next, later[t] do local _ = t[key] end
  end
end

-- The keys of an object in the document's order, those that a script added after them by name.
local function keys_of(t)
  local keys, have, n = {}, {}, 0
  local r, known, waiting = row[t], order[t], later[t]
  if r then
    local where_to = span[t]
    for i = where_to & 0xfffff, where_to >> 21, 2 do
      local key = r[i]
      if rawget(t, key) ~= nil or (waiting and waiting[key]) then
        n = n + 1
        keys[n], have[key] = key, true
      end
    end
  elseif known then
    for i = 1, #known do
      local key = known[i]
      if t[key] ~= nil and not have[key] then
        n = n + 1
        keys[n], have[key] = key, true
      end
    end
  end
  local new = {}
  for key in next, t do
    if not have[key] then
      if type(key) ~= "string" then return nil, key end
      new[#new + 1] = key
    end
  end
  charge(#new * 10 + n)
  sort(new)
  for i = 1, #new do keys[n + i] = new[i] end
  return keys
end

local function in_order(t)
  local keys = keys_of(t)
  if not keys then return next, t, nil end
  local i = 0
  return function()
    local key, value
    repeat
      i = i + 1
      key = keys[i]
      if key == nil then return nil end
      value = t[key]
    until value ~= nil
    return key, value
  end
end

stub_object.__index = function(t, key)
  load_object(t)
  return t[key]
end
stub_object.__newindex = function(t, key, value)
  load_object(t)
  t[key] = value
end
stub_object.__pairs = function(t)
  open(t)
  return in_order(t)
end
stub_object.__len = function(t)
  load_object(t)
  return #t
end
stub_list.__index = function(t, key)
  load_list(t)
  return t[key]
end
stub_list.__newindex = function(t, key, value)
  load_list(t)
  t[key] = value
end
stub_list.__len = function(t)
  load_list(t)
  return #t
end
stub_list.__pairs = function(t)
  load_list(t)
  return next, t, nil
end
object_meta.__pairs = in_order
partial_meta.__pairs = function(t)
  open(t)
  return in_order(t)
end
partial_meta.__index = function(t, key)
  local waiting = later[t]
  local at = waiting and waiting[key]
  if not at then return nil end
  charge(20)
  local text = fetch_text(alive(t), key, room())
  if not text then box.too_big() end
  charge(#text // 64)
  waiting[key], row[t][at] = nil, text
  rawset(t, key, text)
  return text
end
partial_meta.__newindex = function(t, key, value)
  local waiting = later[t]
  if waiting then waiting[key] = nil end
  rawset(t, key, value)
end

big_meta.__index = function(_, key) error("attempt to index a number (field '" .. text_of(key) .. "')", 2) end
big_meta.__newindex = big_meta.__index
big_meta.__tostring = digits
local function operand(value)
  if type(value) == "table" and getmetatable(value) == big_meta then return alive(value), true end
  if type(value) ~= "number" then error("attempt to compare an integer with a " .. kind_of(value), 3) end
  return value, false
end
local function compared(a, b)
  local left, left_here = operand(a)
  local right, right_here = operand(b)
  return compare(left, left_here, right, right_here)
end
big_meta.__eq = function(a, b) return getmetatable(b) == big_meta and getmetatable(a) == big_meta and compared(a, b) == 0 end
big_meta.__lt = function(a, b) return compared(a, b) < 0 end
big_meta.__le = function(a, b) return compared(a, b) <= 0 end
box.say.digits = digits
handle_meta.__newindex = function(_, key) error("attempt to set a field of an object of the gateway (field '" .. text_of(key) .. "')", 2) end
