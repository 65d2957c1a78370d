-- Fireworks, which serves open weights as accounts/fireworks/models/NAME. Facts: docs.fireworks.ai/guides/reasoning, 2026.
-- "Remembered": not checked.
local function efforts(...)
  local levels = {}
  for _, level in ipairs({ ... }) do
    levels[level] = { reasoning_effort = level }
  end
  return levels
end

local always = { off = "omit", on = "omit", effort = null, levels = null }

return {
  base_url = "https://api.fireworks.ai/inference/v1",
  auth = "bearer",
  env = "FIREWORKS_API_KEY",
  dialect = "chat",
  default_model = "accounts/fireworks/models/deepseek-v4-pro",

  -- An effort or Anthropic's thinking object, not both. reasoning_history, which keeps earlier thoughts, stays as the client sent it.
  thinking = {
    off = { reasoning_effort = "none" },
    on = { thinking = { type = "enabled" } },
    effort = "reasoning_effort",
    levels = efforts("low", "medium", "high"),
    default = "on",
  },

  models = {
    { match = "*gpt-oss*", thinking = { off = "low", on = "omit" } }, -- always thinks
    -- DeepSeek's weights want DeepSeek's rules: with tools every assistant turn carries a text, and no tool is forced.
    {
      match = "*deepseek-v4*",
      thinking = { levels = efforts("low", "medium", "high", "xhigh") },
      options = { reasoning_placeholder = "", forced_tool_choice_while_thinking = "auto" },
    },
    { match = "*glm-5*", thinking = { levels = efforts("high", "max") } },
    { match = { "*deepseek-r1*", "*minimax-m2*", "*-thinking*", "*qwq*" }, thinking = always }, -- remembered
    { match = { "*instruct*", "*llama*", "*mixtral*", "*-coder*" }, thinking = { off = "omit", on = "off", effort = null, levels = null } }, -- remembered
  },

  options = {
    hoist_extra_body = true,
    reasoning_echo = "all",
    reasoning_field = "reasoning_content",
    reasoning_memory = true,
    max_tokens_field = "max_tokens",
    system_role = "system", -- remembered
  },

  classify_error = function(err)
    if err.status == 412 then return { class = "balance" } end -- the account is suspended or over its limit
  end,
}
