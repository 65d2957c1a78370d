-- SGLang. separate_reasoning: false leaves the thoughts in the content: options: {think_tags: on} takes them out.
-- Facts: its documentation and captured answers, 2026-06. "Remembered": not checked.
local function switch(name, off, on, default)
  local field = "chat_template_kwargs." .. name
  return { off = { [field] = off }, on = { [field] = on }, default = default }
end

-- For models that always think.
local function efforts(field, ...)
  local levels = {}
  for _, level in ipairs({ ... }) do
    levels[level] = level
  end
  return { off = "low", on = "omit", effort = field, levels = levels, default = "on" }
end

return {
  base_url = "http://127.0.0.1:30000/v1",
  auth = "bearer",
  dialect = "chat",

  -- Switches of the models' own templates. A template ignores what it does not know, so that the first holds for unknown models too;
  -- options.known_as says which family an alias belongs to.
  thinking = switch("enable_thinking", false, true, "on"),

  models = {
    -- From 3.8 on the template raises on enable_thinking = false and knows efforts instead.
    { match = { "*[Qq]wen3.[89]*", "*[Qq]wen-3.[89]*", "*[Qq]wen4*" }, thinking = efforts("chat_template_kwargs.reasoning_effort", "low", "medium", "xhigh") },
    { match = "*gpt-oss*", thinking = efforts("reasoning_effort", "low", "medium", "high") },
    { match = "*[Mm]ini[Mm]ax-[Mm]3*", thinking = switch("thinking_mode", "disabled", "enabled", "on") },
    { match = { "*[Dd]eep[Ss]eek-[Vv]3.[12]*", "*[Gg]ranite*" }, thinking = switch("thinking", false, true, "off") },
    { match = { "*[Dd]eep[Ss]eek-[Vv]4*", "*[Hh]olo2*", "*[Kk]imi-[Kk]2.[5-9]*" }, thinking = switch("thinking", false, true, "on") }, -- Kimi's is remembered
    { match = { "*[Tt]hinking*", "*[Qq]w[Qq]*", "*[Dd]eep[Ss]eek-[Rr]1*", "*[Mm]ini[Mm]ax-[Mm]2*" }, thinking = { off = "omit", on = "omit" } }, -- always
    { match = { "*[Ii]nstruct*", "*[Ll]lama*", "*[Qq]wen2*" }, thinking = { off = "omit", on = "off" } }, -- never
  },

  options = {
    hoist_extra_body = true,
    reasoning_echo = "all", -- as the template reads it
    reasoning_field = "reasoning_content",
    reasoning_memory = true,
    system_role = "first_only", -- templates raise on others
  },
}
