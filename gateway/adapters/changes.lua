-- Writing back: what a hook changed, as a list of changes for the host. One chunk with views.lua,
-- which stands before it.
--
-- A change is four values: what to do, the number of the value it is done to, a key, a value.
-- Containers that the script made get numbers of their own here, in the order in which the
-- host makes them.

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

-- What is sent to the host is bounded in bytes, because one string of Lua may be sent often.
local function pay(fuel, bytes)
  charge(fuel + bytes // 64)
  out_bytes = out_bytes + bytes
  if out_bytes > most_bytes then box.too_big() end
end

-- A scalar as it may be sent; nil stands for null. Second: whether it is one.
local function scalar(value, t, key)
  local kind = type(value)
  if kind == "string" then
    pay(0, #value)
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
  if meta == stub_object or meta == stub_list then
    local values, bytes = weigh(alive(value))
    pay(values * 20, bytes)
    return new(TWIN, nil, number[value])
  end
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
        pay(0, text_size(alive(value), name))
        emit(PLACE, n, name, new(TEXT, name, number[value]))
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

local function in_row(r, first, stop, key)
  for i = first, stop, 2 do
    if r[i] == key then return true end
  end
  return false
end

local function added_fields(t, r, n, first, stop)
  local had, new_keys, count = nil, {}, 0
  if stop - first > 40 then
    had = {}
    for i = first, stop, 2 do had[r[i]] = true end
  end
  for key in next, t do
    local known = had and had[key]
    if not had then known = in_row(r, first, stop, key) end
    if not known then
      count = count + 1
      new_keys[count] = key
      if type(key) ~= "string" then check_key(t, key) end
    end
  end
  charge(stop - first + count * 10)
  if count > 1 then sort(new_keys) end
  for i = 1, count do field(n, new_keys[i], t[new_keys[i]], t, 1) end
end

local function settle_object(t)
  local r, n, waiting = row[t], number[t], later[t]
  local where_to, kept = span[t], 0
  local first, numbers, stop = where_to & 0xfffff, where_to >> 20 & 1 == 1, where_to >> 21
  charge(stop - first + 2)
  for i = first, stop, 2 do
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
  if all ~= kept then added_fields(t, r, n, first, stop) end
end

local function settle_list(t)
  local r, n = row[t], number[t]
  local where_to = span[t]
  local first, numbers, stop = where_to & 0xfffff, where_to >> 20 & 1 == 1, where_to >> 21
  local count = length(t)
  local same = count == stop - first + 1
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
  for i = first, stop do
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
