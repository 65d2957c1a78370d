-- `ctx`, the helpers, and the call of a hook. One chunk with views.lua and changes.lua, which
-- stand before it.

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
    local filled = fill(alive(list), key, value)
    pay(filled, kind == "string" and #value * filled or 0)
    return filled
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
    load_objects(found)
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
    local values, bytes = weigh(alive(value))
    pay(20 + values * 20, bytes)
    return special(twin(number[value]))
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
-- A returned table stands over globals.
local function declared(text, name, data_names, hook_names)
  local script, message = box.compile(text, name)
  if not script then error(message, 0) end
  local returned = script()
  if returned ~= nil and (type(returned) ~= "table" or returned == null) then
    error(name .. ":1: the file returns a " .. kind_of(returned) .. "; it returns a table or nothing", 0)
  end
  box.seal()
  local what = { data = {}, hooks = {}, others = setmetatable({}, list_meta), returned = returned ~= nil }
  local function among(names, key) return find(names, " " .. key .. " ", 1, true) end
  local function take(key, value)
    if type(key) ~= "string" then error(name .. ":1: the adapter table has the key " .. text_of(key), 0) end
    local is_function = type(value) == "function"
    if among(hook_names, key) and is_function then
      hooks[key], what.hooks[key] = value, box.line_of(value)
    elseif among(data_names, key) and is_function then
      error(name .. ":" .. box.line_of(value) .. ": " .. key .. " is a function; only hooks are", 0)
    elseif among(data_names, key) or among(hook_names, key) then
      what.data[key] = value
    else
      what.others[#what.others + 1] = key
    end
  end
  for key, value in next, box.environment do
    if returned == nil or among(data_names, text_of(key)) or among(hook_names, text_of(key)) then take(key, value) end
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
  load = function(instructions, seconds, bytes, text, name, data_names, hook_names)
    clear(bytes)
    return finished(guarded(instructions, seconds, declared, text, name, data_names, hook_names))
  end,
  changes = changes,
  forget = forget,
}
