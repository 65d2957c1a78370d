-- OpenAI, and every host that speaks its dialect: a model that no section names is left as the client wrote it.
-- Which model takes which effort, and sampling parameters when: measured on the live API, 2026-07.
local sampling = { "temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs" }

-- Reasoning models refuse max_tokens, take instructions as developer, and give no reasoning text, so that any in the
-- history is another model's.
local reasoning = {
  reasoning_echo = "none",
  hoist_extra_body = true,
  max_tokens_field = "max_completion_tokens",
  system_role = "developer",
  speaks = { "responses", "completions" },
}

local function efforts(...)
  local levels = {}
  for _, level in ipairs({ ... }) do
    levels[level] = level
  end
  return levels
end

local function section(match, thinking)
  thinking.effort = "reasoning_effort"
  thinking.refuses = sampling
  return { match = match, host = "api.openai.com", thinking = thinking, options = reasoning }
end

local none = { reasoning_effort = "none" }

return {
  base_url = "https://api.openai.com/v1",
  auth = "bearer",
  env = "OPENAI_API_KEY",
  dialect = "chat",
  default_model = "gpt-5-mini",

  models = {
    -- No reasoning models.
    { match = { "gpt-5-chat*", "gpt-4*", "gpt-3.5*", "chatgpt-4o*" }, host = "api.openai.com", options = { reasoning_echo = "none", hoist_extra_body = true, speaks = { "responses", "completions" } } },
    -- These always reason; the least that they take stands for off.
    section({ "gpt-5.*-chat*", "gpt-6*-chat*" }, { off = "medium", levels = efforts("medium") }),
    section({ "gpt-5-pro*" }, { off = "high", levels = efforts("high") }),
    section({ "gpt-5.*-pro*" }, { off = "medium", levels = efforts("medium", "high", "xhigh") }),
    section({ "o1*", "o3*", "o4*", "gpt-5.1-codex*" }, { off = "low", levels = efforts("low", "medium", "high") }),
    section({ "gpt-5", "gpt-5-*" }, { off = "minimal", levels = efforts("minimal", "low", "medium", "high") }),
    -- These can be turned off, and are when nothing is said.
    section({ "gpt-5.1*" }, { off = none, levels = efforts("low", "medium", "high"), default = "off" }),
    section({ "gpt-5.2*", "gpt-5.3*" }, { off = none, levels = efforts("low", "medium", "high", "xhigh"), default = "off" }),
    -- From 5.4 on: 400 "Function tools with reasoning_effort are not supported" on chat completions.
    section({ "gpt-5.4*" }, { off = none, levels = efforts("low", "medium", "high", "xhigh"), default = "off", with_tools = "off" }),
    -- These reason when nothing is said, so that tools need the explicit none. gpt-6 as gpt-5.6 until somebody measures it.
    section({ "gpt-5.5*", "gpt-5.6*", "gpt-6*" }, { off = none, levels = efforts("low", "medium", "high", "xhigh"), default = "on", with_tools = "off" }),
  },
}
