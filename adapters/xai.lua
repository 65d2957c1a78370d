-- xAI's Grok. Chat completions are deprecated there and cannot carry reasoning from one turn to the next: losing it is no error,
-- the answers are worse. The Responses API keeps it: options: {speaks: [responses]} passes clients of that dialect through.
-- Facts: docs.x.ai, 2026-07 and 2026-08, refusals and captured answers of vercel/ai, 2026-08. "Remembered": not checked.
local refuses = { "presence_penalty", "frequency_penalty", "stop" } -- by all models that reason

local function efforts(...)
  local levels = {}
  for _, level in ipairs({ ... }) do
    levels[level] = level
  end
  return levels
end

local function text(err)
  local body = err.body
  if type(body) ~= "table" then return "" end
  local error = type(body.error) == "table" and body.error.message or body.error
  return type(error) == "string" and error:lower() or ""
end

return {
  base_url = "https://api.x.ai/v1",
  auth = "bearer",
  env = "XAI_API_KEY",
  dialect = "chat",
  default_model = "grok-4.5",

  -- 4.5, which cannot be turned off: 400 "This model does not support 'reasoning_effort' value 'none'".
  -- That later models are like it is remembered.
  thinking = { off = "low", on = "omit", effort = "reasoning_effort", levels = efforts("low", "medium", "high"), default = "on", refuses = refuses },

  models = {
    { match = "grok-4.6*", thinking = { levels = efforts("low", "medium", "high", "xhigh") } },
    { match = { "grok-4.3*", "grok-latest" }, thinking = { off = { reasoning_effort = "none" } } },
    { match = { "*non-reasoning*", "grok-2*", "grok-3", "grok-3-fast*", "grok-3-latest" }, thinking = { off = "omit", on = "off", refuses = {} } },
    { match = "grok-3-mini*", thinking = { levels = efforts("low", "high") } },
    -- The field is an error whatever its value.
    { match = { "grok-4.20*", "grok-4", "grok-4-*", "grok-code*", "grok-build*" }, thinking = { off = "omit", effort = null, levels = null } },
  },

  options = {
    hoist_extra_body = true,
    reasoning_echo = "none",
    completion_excludes_reasoning = true, -- 12 + 1 tokens, 290 of reasoning, total 303
    max_tokens_field = "max_completion_tokens",
    system_role = "system", -- remembered
    rename_params = { parallel_tool_calls = "parallel_function_calling" },
  },

  classify_error = function(err)
    -- 403 "Content violates usage guidelines", remembered
    if text(err):find("violates usage guidelines", 1, true) then return { class = "content_filter" } end
  end,
}
