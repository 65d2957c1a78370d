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
-- A row is what the host sent: 2 * s + n, then s marks of special values in order, then the
-- keys and values (of a list: the values). n is 1 if there is a number among them. Marks:
-- 0 null, -1 object, -2 an integer that Lua cannot hold, -3 a long text that stays with the
-- host until it is read, -4 an object of the host's (a splitter), 1 + n a list of n elements.
-- A list of nothing but objects is sent as -1 - its length.

local box, host = ...
local charge, pause, resume, room, null, named, kind_of, text_of = box.charge, box.pause, box.resume, box.room, box.null, box.named, box.kind_of, box.text_of
local error, getmetatable, next, pairs, rawget, rawset, select, setmetatable, tostring, type = error, getmetatable, next, pairs, rawget, rawset, select, setmetatable, tostring, type
local find, sub, sort, unpack, math_type, valid, offset, huge = string.find, string.sub, table.sort, table.unpack, math.type, utf8.len, utf8.offset, math.huge

-- What the host does for us. None of these raises; nil for a row or text: too big for the room.
local fetch, fetch_text, where, roles, fill, twin, compare = host.fetch, host.text, host.where, host.roles, host.fill, host.twin, host.compare

local NULL, OBJECT, BIG, LATER, HANDLE = 0, -1, -2, -3, -4 -- marks
local PUT, DROP, PLACE, RESET, ADD, ADD_NODE, NEW_OBJECT, NEW_LIST, TWIN, TEXT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local DEEP = 100 -- levels of a value that a script makes

-- Where an empty table from a script means a list.
local LISTS = {}
for name in string.gmatch("messages tools stop tool_calls content input choices functions parts contents required enum anyOf oneOf allOf include modalities reasoning_details", "%S+") do
  LISTS[name] = true
end

-- ---- the state of one call ----

local number = {} -- view -> its number
local row = {} -- loaded view -> what came over
local size = {} -- list stub -> its length
local later = {} -- object -> {key of a long text not yet read -> its place in the row}
local loaded, loaded_n = {}, 0
local last = 0 -- the highest number in use
local order = {} -- table -> its keys in order, where a document gave one
local roots = {} -- number -> true: an argument of the hook
local unread = {} -- stands in a row for a long text

local function forget()
  number, row, size, later, order, roots = {}, {}, {}, {}, {}, {}
  loaded, loaded_n, last = {}, 0, 0
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

local function fill_object(t, head, ...)
  if not head then box.too_big() end
  local r = { head, ... }
  local marks = head // 2
  local mark, n = 1, select("#", ...) + 1
  for i = marks + 2, n, 2 do
    local key, value = r[i], r[i + 1]
    if value == nil then
      mark = mark + 1
      local kind = r[mark]
      if kind == LATER then
        local waiting = later[t]
        if not waiting then
          waiting = {}
          later[t] = waiting
          setmetatable(t, partial_meta)
        end
        waiting[key], r[i + 1] = i + 1, unread
      else
        value = special(kind)
        r[i + 1] = value
        rawset(t, key, value)
      end
    else
      rawset(t, key, value)
    end
  end
  r[1], r.n = marks + 2 | (head & 1) << 32, n
  row[t] = r
end

local function fill_list(t, head, ...)
  if not head then box.too_big() end
  if head < 0 then -- objects only
    local r = { 2, n = -head }
    for i = 1, -1 - head do
      last = last + 1
      local view = setmetatable({}, stub_object)
      number[view] = last
      r[i + 1], t[i] = view, view
    end
    row[t] = r
    return
  end
  local r = { head, ... }
  local marks = head // 2
  local mark, n = 1, select("#", ...) + 1
  for i = marks + 2, n do
    local value = r[i]
    if value == nil then
      mark = mark + 1
      value = special(r[mark])
      r[i] = value
    end
    t[i - marks - 1] = value
  end
  r[1], r.n = marks + 2 | (head & 1) << 32, n
  row[t] = r
end

local function load_object(t)
  local n = alive(t)
  pause()
  setmetatable(t, object_meta)
  loaded_n = loaded_n + 1
  loaded[loaded_n] = t
  fill_object(t, fetch(n, room()))
  resume()
end

local function load_list(t)
  local n = alive(t)
  charge(size[t])
  pause()
  setmetatable(t, list_meta)
  loaded_n = loaded_n + 1
  loaded[loaded_n] = t
  fill_list(t, fetch(n, room()))
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
    for i = r[1] & 0xffffffff, r.n, 2 do
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

-- ---- writing back ----

local out, out_n, out_bytes, most_bytes

local function emit(op, target, key, value)
  local n = out_n
  out[n + 1], out[n + 2], out[n + 3], out[n + 4] = op, target, key, value
  out_n = n + 4
  if n % 2048 == 0 then box.on_time() end
end

local function complain(t, key, what)
  local path = number[t] and where(number[t]) or ""
  if key ~= nil then
    if type(key) == "number" then
      path = path .. "[" .. tostring(key) .. "]"
    else
      path = path .. (path ~= "" and "." or "") .. (valid(tostring(key)) and tostring(key) or "?")
    end
  end
  error((path ~= "" and path or "the value") .. " " .. what, 0)
end

-- A scalar as it may be sent; nil stands for null. Second: whether it is one.
local function scalar(value, t, key)
  local kind = type(value)
  if kind == "string" then
    charge(#value // 16)
    out_bytes = out_bytes + #value
    if out_bytes > most_bytes then box.too_big() end
    if not valid(value) then complain(t, key, "is not valid UTF-8 (cut text with the utf8 library)") end
    return value, true
  elseif kind == "number" then
    if value ~= value or value == huge or value == -huge then complain(t, key, "is a number that JSON does not know: " .. tostring(value)) end
    return value, true
  elseif kind == "boolean" then
    return value, true
  elseif value == null then
    return nil, true
  elseif kind ~= "table" then
    complain(t, key, "is a " .. kind .. ", which JSON does not know")
  end
  return nil, false
end

local function check_key(t, key)
  if type(key) ~= "string" then complain(t, key, "has a key that is no string in an object (mixed keys?)") end
  if not valid(key) then complain(t, nil, "has a key that is not valid UTF-8") end
  out_bytes = out_bytes + #key
end

-- The length of a list; an error if it has holes or other keys.
local function length(t)
  local n, found = #t, 0
  charge(n + 2)
  for key in next, t do
    if math_type(key) ~= "integer" then complain(t, nil, "mixes list elements with the key '" .. text_of(key) .. "'") end
    if key < 1 or key > n then complain(t, key, "leaves a hole in a list") end
    found = found + 1
  end
  if found ~= n then
    for i = 1, n do
      if t[i] == nil then complain(t, i, "is a hole in a list") end
    end
  end
  return n
end

local function is_list(t, key, was)
  local meta = getmetatable(t)
  if meta == list_meta or meta == stub_list then return true end
  if meta ~= nil then return false end
  if next(t) == nil then
    if order[t] then return false end
    if type(was) == "table" then
      local had = getmetatable(was)
      if had == list_meta or had == stub_list then return true end
      if had == object_meta or had == stub_object or had == partial_meta then return false end
    end
    return type(key) == "string" and LISTS[key] or false
  end
  return math_type((next(t))) == "integer"
end

local made, sealed_in -- forward: encode a table as a new value; tables that are being encoded

local function element(target, value, t, i, depth)
  charge(5)
  local plain, done = scalar(value, t, i)
  if done then
    emit(ADD, target, nil, plain)
  else
    emit(ADD_NODE, target, nil, made(value, t, i, depth))
  end
end

local function field(target, key, value, t, depth, was)
  charge(5)
  check_key(t, key)
  local plain, done = scalar(value, t, key)
  if done then
    emit(PUT, target, key, plain)
  else
    emit(PLACE, target, key, made(value, t, key, depth, was))
  end
end

local function new(op, a, b)
  last = last + 1
  charge(30)
  emit(op, last, a, b)
  return last
end

-- A new value of the host, equal to table `value`; gives its number. Views that are moved or
-- used twice are copied, so that no two places of a document share a value.
made = function(value, t, key, depth, was)
  local meta = getmetatable(value)
  if meta == big_meta or meta == handle_meta then return alive(value) end
  if meta == stub_object or meta == stub_list then return new(TWIN, nil, alive(value)) end
  if meta ~= nil and meta ~= list_meta and meta ~= object_meta and meta ~= partial_meta then complain(t, key, "is an object of the gateway, which JSON does not know") end
  if sealed_in[value] then complain(t, key, "is a cycle") end
  if depth >= DEEP then complain(t, key, "is nested too deeply") end
  sealed_in[value] = true
  local n
  if is_list(value, key, was) then
    n = new(NEW_LIST)
    for i = 1, length(value) do element(n, value[i], value, i, depth + 1) end
  else
    n = new(NEW_OBJECT)
    local keys, bad = keys_of(value)
    if not keys then complain(t, key, "has the key " .. text_of(bad) .. ", which is no string, in an object") end
    local waiting = later[value]
    for i = 1, #keys do
      local name = keys[i]
      if waiting and waiting[name] then
        emit(PLACE, n, name, new(TEXT, name, alive(value)))
      else
        field(n, name, value[name], value, depth + 1)
      end
    end
  end
  sealed_in[value] = nil
  return n
end

local function differs(now, was, numbers)
  if now ~= was then return true end
  if numbers and math_type(now) ~= math_type(was) then return true end
  return numbers and now == 0 and math_type(now) == "float" and 1 / now ~= 1 / was
end

local function in_row(r, first, key)
  for i = first, r.n, 2 do
    if r[i] == key then return true end
  end
  return false
end

local function added_fields(t, r, n, first)
  local had, new_keys, count = nil, {}, 0
  if r.n > 40 then
    had = {}
    for i = first, r.n, 2 do had[r[i]] = true end
  end
  for key in next, t do
    local known = had and had[key]
    if not had then known = in_row(r, first, key) end
    if not known then
      count = count + 1
      new_keys[count] = key
      if type(key) ~= "string" then check_key(t, key) end
    end
  end
  charge(r.n + count * 10)
  if count > 1 then sort(new_keys) end
  for i = 1, count do field(n, new_keys[i], t[new_keys[i]], t, 1) end
end

local function settle_object(t)
  local r, n, waiting = row[t], number[t], later[t]
  local first, numbers, kept = r[1] & 0xffffffff, r[1] >> 32 == 1, 0
  charge(r.n)
  for i = first, r.n, 2 do
    local key, was = r[i], r[i + 1]
    if not (was == unread and waiting[key]) then
      local now = t[key]
      if now == nil then
        emit(DROP, n, key)
      else
        kept = kept + 1
        if differs(now, was, numbers) then field(n, key, now, t, 1, was) end
      end
    end
  end
  local all = 0
  for _ in next, t do all = all + 1 end
  if all ~= kept then added_fields(t, r, n, first) end
end

local function settle_list(t)
  local r, n = row[t], number[t]
  local first, numbers = r[1] & 0xffffffff, r[1] >> 32 == 1
  local count = length(t)
  local same = count == r.n - first + 1
  if same then
    for i = 1, count do
      if differs(t[i], r[first + i - 1], numbers) then
        same = false
        break
      end
    end
  end
  if same then return end
  local home = {}
  for i = first, r.n do
    local was = r[i]
    if type(was) == "table" and number[was] then home[was] = true end
  end
  emit(RESET, n)
  for i = 1, count do
    local value = t[i]
    if home[value] then
      home[value] = nil
      emit(ADD_NODE, n, nil, number[value])
    else
      element(n, value, t, i, 1)
    end
  end
end

-- What the hook gives: nil, a scalar, or the number of a value. An argument is given back as
-- itself, also as an element of a list.
local function given(value)
  if value == nil then return 0, nil end
  local plain, done = scalar(value)
  if done then return 0, plain end
  if roots[number[value]] then return 1, number[value] end
  if getmetatable(value) == nil and is_list(value) then
    local n = new(NEW_LIST)
    sealed_in[value] = true
    for i = 1, length(value) do
      local item = value[i]
      local root = number[item]
      if root and roots[root] then
        roots[root] = nil
        emit(ADD_NODE, n, nil, root)
      else
        element(n, item, value, i, 1)
      end
    end
    return 1, n
  end
  return 1, made(value, nil, nil, 1)
end

-- Not counted by the instruction hook: everything here pays for itself.
local function settle(value)
  pause()
  local kind, what = given(value)
  local i = 1
  while i <= loaded_n do
    local t = loaded[i]
    if getmetatable(t) == list_meta then
      settle_list(t)
    else
      settle_object(t)
    end
    i = i + 1
  end
  return kind, what
end

-- ---- ctx ----

local ctx_fields, ctx_state, ctx_options
local first_body

local function dotted(first, second) -- ctx.warn(text) and ctx:warn(text)
  if type(first) == "table" and getmetatable(first) == "ctx" then return second end
  return first
end

local function root(mark)
  local view = special(mark)
  if type(view) == "table" and number[view] then roots[number[view]] = true end
  return view
end

local said = 0
local function say(how)
  return function(first, second)
    local text = text_of(dotted(first, second))
    charge(100 + #text // 4)
    said = said + 1
    if said > 50 then error("too many warnings and log lines in one call", 2) end
    if not valid(text) then error("the text is not valid UTF-8", 2) end
    how(#text > 4000 and sub(text, 1, offset(text, 0, 4000) - 1) or text)
  end
end

local methods = {
  warn = say(host.warn),
  log = say(host.log),
  skip = function(first, second)
    local why = text_of(dotted(first, second))
    box.skip(valid(why) and why or "skipped")
  end,
}

local function context_field(key)
  if key == "state" then
    ctx_state = ctx_state or root(host.state())
    return ctx_state
  elseif key == "options" then
    ctx_options = ctx_options or root(host.options())
    return ctx_options
  end
  if not ctx_fields then
    charge(20)
    local f = {}
    f.provider, f.model, f.endpoint, f.dialect, f.stream, f.attempt, f.thinking, f.force_stream = host.context()
    ctx_fields = f
  end
  return ctx_fields[key]
end

local ctx = setmetatable({}, {
  __metatable = "ctx",
  __name = "ctx",
  __index = function(_, key) return methods[key] or context_field(key) end,
  __newindex = function(_, key, value)
    if key ~= "force_stream" then error("ctx." .. tostring(key) .. " cannot be set; ctx.state is the place for values of your own", 2) end
    if type(value) ~= "boolean" then error("ctx.force_stream is true or false", 2) end
    local _ = context_field("force_stream")
    ctx_fields.force_stream = value
    host.force_stream(value)
  end,
})

-- ---- helpers ----

local helpers = {}

local function is_view_list(value)
  local meta = type(value) == "table" and getmetatable(value)
  return meta == list_meta or meta == stub_list
end

function helpers.array(...)
  local first = ...
  local t = type(first) == "table" and first ~= null and select("#", ...) == 1 and first or { ... }
  if getmetatable(t) ~= nil then return t end
  return setmetatable(t, list_meta)
end

function helpers.is_array(value)
  if type(value) ~= "table" or value == null then return false end
  if getmetatable(value) ~= nil then return is_view_list(value) end
  return math_type((next(value))) == "integer"
end

local function length_of(value)
  if not is_view_list(value) then return type(value) == "table" and value ~= null and #value or 0 end
  return getmetatable(value) == stub_list and size[value] or #value
end

local function body_of(value)
  if value == nil then return first_body end
  if type(value) ~= "table" or value == null then error("the request body expected, got " .. kind_of(value), 3) end
  return value
end

function helpers.has_tools(body)
  return length_of(body_of(body).tools) > 0
end

function helpers.hoist(body, name)
  if type(body) == "string" and name == nil then body, name = nil, body end
  if type(name) ~= "string" then error("hoist needs the field's name", 2) end
  body = body_of(body)
  local inner = body[name]
  if type(inner) ~= "table" or inner == null or helpers.is_array(inner) then return 0 end
  local moved = 0
  for key, value in pairs(inner) do
    charge(5)
    if body[key] == nil then
      body[key], moved = value, moved + 1
    end
  end
  if body[name] == inner then body[name] = nil end
  host.hoisted(valid(name) and name or "?")
  return moved
end

local function missing(value) return value == nil or value == null end

-- Fields for every assistant turn that lacks them: turns that nobody has looked at are filled
-- by the host, the others here.
local function give(list, key, value)
  if type(key) ~= "string" then error("each_assistant: fields have names", 3) end
  local kind = type(value)
  if kind ~= "string" and kind ~= "number" and kind ~= "boolean" then error("each_assistant: field '" .. key .. "' is a " .. kind_of(value) .. "; give a function for that", 3) end
  if not (valid(key) and (kind ~= "string" or valid(value))) then error("each_assistant: the text is not valid UTF-8", 3) end
  if getmetatable(list) == stub_list then
    charge(50 + size[list])
    return fill(alive(list), key, value)
  end
  local filled = 0
  for i = 1, #list do
    local message = list[i]
    if type(message) == "table" and message ~= null and message.role == "assistant" and missing(message[key]) then
      message[key], filled = value, filled + 1
    end
  end
  return filled
end

local function assistants(list)
  local found, n = {}, 0
  if getmetatable(list) == stub_list then
    charge(50 + size[list])
    local indexes = { roles(alive(list), room()) }
    for i = 1, #indexes do found[i] = list[indexes[i]] end
    return found
  end
  for i = 1, #list do
    local message = list[i]
    if type(message) == "table" and message ~= null and message.role == "assistant" then
      n = n + 1
      found[n] = message
    end
  end
  return found
end

function helpers.each_assistant(body, what)
  if type(body) == "function" then body, what = nil, body end
  local list = body_of(body).messages
  if length_of(list) == 0 then return type(what) ~= "function" and type(what) ~= "table" and function() end or 0 end
  if type(what) == "table" and what ~= null then
    local filled = 0
    for key, value in pairs(what) do
      local here = give(list, key, value)
      if here > 0 then host.filled(key, here) end
      filled = filled + here
    end
    return filled
  end
  local found = assistants(list)
  if type(what) == "function" then
    for i = 1, #found do what(found[i]) end
    return #found
  elseif what ~= nil then
    error("each_assistant needs a function or a table of fields", 2)
  end
  local i = 0
  return function()
    i = i + 1
    return found[i]
  end
end

local function copied(value, depth)
  if type(value) ~= "table" or value == null then return value end
  local meta = getmetatable(value)
  if meta == big_meta or meta == handle_meta then return value end
  charge(10)
  if meta == stub_object or meta == stub_list then
    local mark, values = twin(alive(value))
    charge(values * 5)
    return special(mark)
  end
  if depth >= DEEP then error("deep_copy: nested too deeply, or a cycle", 0) end
  open(value)
  local copy, keys = {}, nil
  if meta ~= list_meta then
    keys = meta ~= nil and keys_of(value) or order[value]
    order[copy] = keys
  end
  for key, inner in next, value do copy[key] = copied(inner, depth + 1) end
  if meta == list_meta then setmetatable(copy, list_meta) end
  return copy
end

function helpers.deep_copy(value) return copied(value, 1) end

local function text_arg(text)
  if text == nil or text == null then return "" end
  if type(text) ~= "string" then error("feed needs a text, got " .. kind_of(text), 3) end
  if not valid(text) then error("the text is not valid UTF-8", 3) end
  charge(50 + #text // 16)
  room()
  return text
end
local splitter_methods = {
  feed = function(self, text) return host.feed(alive(self), text_arg(text)) end,
  finish = function(self)
    charge(50)
    return host.flush(alive(self))
  end,
}
handle_meta.__index = function(t, key)
  local method = splitter_methods[key]
  if method and host.is_splitter(alive(t)) then return method end
  error("attempt to index an object of the gateway (field '" .. text_of(key) .. "')", 2)
end

function helpers.think_splitter(from, to, inside)
  from, to = from or "<think>", to or "</think>"
  if type(from) ~= "string" or type(to) ~= "string" or from == "" or to == "" or #from > 100 or #to > 100 or not (valid(from) and valid(to)) then
    error("think_splitter needs two tags", 2)
  end
  charge(50)
  host.splitter(from, to, inside and true or false)
  return special(HANDLE)
end

local library = box.library
for name, f in next, helpers do library[name] = f end

library.pairs = function(t)
  if type(t) ~= "table" or t == null then error("bad argument #1 to 'pairs' (table expected, got " .. kind_of(t) .. ")", 2) end
  return pairs(t)
end
library.next = function(t, key)
  if type(t) ~= "table" or t == null then error("bad argument #1 to 'next' (table expected, got " .. kind_of(t) .. ")", 2) end
  if key == nil then open(t) end
  return next(t, key)
end

-- ---- a call ----

local function arguments(n, mark, value, ...)
  if n == 0 then return ctx end
  if mark == NULL and value ~= nil then return value, arguments(n - 1, ...) end
  return root(mark), arguments(n - 1, ...)
end

local hooks = {}

local function body(name, n, ...)
  local args = { arguments(n, ...) }
  first_body = args[1]
  return settle(hooks[name](unpack(args, 1, n + 1)))
end

local function clear(bytes)
  forget()
  ctx_fields, ctx_state, ctx_options, said = nil, nil, nil, 0
  out, out_n, out_bytes, most_bytes, sealed_in = {}, 0, 0, bytes, {}
end

local guarded = box.guarded

local BATCH = 4000 -- values; a multiple of 4

-- The changes from `from` on, as many as go at once, after where to go on (nil: that was all).
local function changes(from)
  local to = from + BATCH - 1
  if to >= out_n then return nil, unpack(out, from, out_n) end
  return to + 1, unpack(out, from, to)
end

local function finished(ok, kind, what)
  forget()
  if not ok or out_n == 0 then return ok, kind, what end
  return true, kind, what, changes(1)
end

-- What a file declares: {data = {name = value}, hooks = {name = line}, others = {names}, returned = true | false}.
-- `known` are the names of data and hooks; a returned table stands over globals.
local function declared(text, name, known)
  local script, message = box.compile(text, name)
  if not script then error(message, 0) end
  local returned = script()
  if returned ~= nil and (type(returned) ~= "table" or returned == null) then error(name .. ": the file returns a " .. kind_of(returned) .. "; it returns a table or nothing", 0) end
  box.seal()
  local what = { data = {}, hooks = {}, others = setmetatable({}, list_meta), returned = returned ~= nil }
  local function take(key, value)
    if type(key) ~= "string" then error(name .. ": the adapter table has the key " .. text_of(key), 0) end
    if type(value) == "function" and find(known, " " .. key .. " ", 1, true) then
      hooks[key], what.hooks[key] = value, box.line_of(value)
    elseif find(known, " " .. key .. " ", 1, true) then
      what.data[key] = value
    else
      what.others[#what.others + 1] = key
    end
  end
  for key, value in next, box.environment do
    if returned == nil or find(known, " " .. text_of(key) .. " ", 1, true) then take(key, value) end
  end
  if returned then
    for key, value in next, returned do take(key, value) end
  end
  sort(what.others)
  return settle(what)
end

return {
  -- Runs a hook with n arguments, given as mark and value each, and ctx:
  -- true, kind, value, next, changes... or false, how, message
  run = function(instructions, seconds, bytes, name, n, ...)
    clear(bytes)
    return finished(guarded(instructions, seconds, body, name, n, ...))
  end,
  -- Loads the script; the same results.
  load = function(instructions, seconds, bytes, text, name, known)
    clear(bytes)
    return finished(guarded(instructions, seconds, declared, text, name, known))
  end,
  changes = changes,
  forget = forget,
}
