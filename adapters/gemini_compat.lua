-- Gemini through Google's OpenAI-compatible endpoint. Facts: ai.google.dev/gemini-api/docs/openai, 2026; [remembered]:
-- not looked up again. Its key is the one of `gemini`, so that no `env` stands here: one key, one provider.
local newest = {
  off = "low", -- 3.x always thinks; the least that all take
  on = "omit",
  effort = "reasoning_effort",
  levels = { low = "low", medium = "medium", high = "high" },
  default = "on",
}

local function with(changes)
  local rule = {}
  for key, value in pairs(newest) do rule[key] = value end
  for key, value in pairs(changes) do rule[key] = value end
  return rule
end

return {
  base_url = "https://generativelanguage.googleapis.com/v1beta/openai",
  auth = "bearer",
  dialect = "chat",
  default_model = "gemini-flash-latest", -- [remembered]
  trailing_assistant = "refuse", -- [remembered: not accepted by all]

  thinking = newest,
  models = {
    { match = "gemini-2.5-flash-lite*", thinking = with({ off = { reasoning_effort = "none" }, default = "off" }) },
    { match = "gemini-2.5-flash*", thinking = with({ off = { reasoning_effort = "none" } }) },
    { match = "gemini-2.5*" }, -- pro cannot be off
    { match = { "gemini-2*", "gemini-1*", "gemma*" }, thinking = false, options = { drop_params = { "reasoning_effort" } } },
    { match = { "gemini-3-flash*", "gemini-3.1-flash*" }, thinking = with({ off = "minimal", levels = { minimal = "minimal", low = "low", medium = "medium", high = "high" } }) },
    { match = "gemini-3-pro*", thinking = with({ levels = { low = "low", high = "high" } }) },
  },

  options = {
    -- extra_body is a field of this endpoint (`extra_body.google`), so it is not hoisted. Text of thoughts has none.
    reasoning_echo = "none",
    embedding_batch = 100, -- 400 "at most 100 requests can be in one batch", 2026-01
    reasoning_memory = true,
    thought_signature = "skip_thought_signature_validator", -- Gemini 3 wants one on each step of the current turn
    max_tokens_field = "max_tokens",
  },
}
