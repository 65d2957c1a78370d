-- OpenRouter. HTTP-Referer and X-Title, which name an application there, belong into the provider's `headers`.
-- Facts: openrouter.ai/docs (reasoning tokens, errors) and its own client, 2026-06 to 2026-08. "Remembered": not checked.
local levels = {}
for _, level in ipairs({ "minimal", "low", "medium", "high", "xhigh", "max" }) do
  levels[level] = { ["reasoning.effort"] = level } -- it maps a level to what each model has
end

local function error_of(err)
  local error = type(err.body) == "table" and err.body.error
  return type(error) == "table" and error or {}
end

return {
  base_url = "https://openrouter.ai/api/v1",
  auth = "bearer",
  env = "OPENROUTER_API_KEY",
  dialect = "chat",
  default_model = "openrouter/auto",

  -- An effort or a budget, not both; reasoning.exclude stays as the client sent it.
  thinking = {
    off = { ["reasoning.enabled"] = false },
    on = { ["reasoning.enabled"] = true },
    effort = "reasoning.effort",
    levels = levels,
    keeps = { "reasoning.max_tokens" },
    default = "on",
  },

  models = {
    -- These check signatures.
    { match = { "anthropic/*", "~anthropic/*", "google/gemini*" }, options = { reasoning_entries = "signed" } },
    -- DeepSeek's weights want their rule: with tools every assistant turn carries reasoning, if only an empty list.
    { match = "deepseek/deepseek-v4*", options = { reasoning_placeholder = "" } },
  },

  options = {
    hoist_extra_body = true,
    reasoning_echo = "all",
    reasoning_field = "reasoning_details", -- each entry exactly once, and never the text without them
    reasoning_entries = "once",
    reasoning_memory = true,
    max_tokens_field = "max_tokens",
    empty_content = "none", -- some of the providers behind it refuse a blank text
  },

  classify_error = function(err)
    local error = error_of(err)
    local wait = tonumber(err.headers["retry-after"] or "")
    -- Credits that running requests hold: they come back.
    if err.status == 402 and (wait or tostring(error.message):find("in_flight_budget", 1, true)) then return { class = "rate_limit", retry_after = wait } end
    -- 400 "Reasoning is mandatory for this endpoint and cannot be disabled", remembered
    if tostring(error.message):lower():find("reasoning is mandatory", 1, true) then return { class = "thinking_mode" } end
  end,

  repair = function(req, class)
    if class == "thinking_mode" and req.reasoning ~= nil then
      req.reasoning = nil
      return req
    end
  end,
}
