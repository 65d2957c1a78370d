-- Zhipu's GLM at Z.AI; in China https://open.bigmodel.cn/api/paas/v4, the coding plan is at .../api/coding/paas/v4.
-- Facts: docs.z.ai and docs.bigmodel.cn (thinking mode, error codes) and clients that are maintained, 2026. "Remembered": not checked.
return {
  base_url = "https://api.z.ai/api/paas/v4",
  auth = "bearer",
  env = "ZAI_API_KEY",
  dialect = "chat",
  default_model = "glm-5.2",

  -- thinking.clear_thinking, which keeps earlier thoughts, stays as the client sent it.
  thinking = {
    off = { thinking = { type = "disabled" } },
    on = { thinking = { type = "enabled" } },
    default = "on",
    drop = { "thinking.budget_tokens", "thinking.display" }, -- Anthropic's
  },

  models = {
    -- Always thinks: "disabled" is an error that asks for low, high or max.
    {
      match = "glm-5.3*",
      thinking = { off = "low", on = "omit", effort = "reasoning_effort", levels = { low = "low", medium = "high", high = "high", xhigh = "max", max = "max" } },
    },
    { match = "glm-5.2*", thinking = { effort = "reasoning_effort", levels = { high = "high", xhigh = "max", max = "max" } } },
    { match = "glm-z1*", thinking = { off = "omit", on = "omit" } }, -- remembered
    { match = { "glm-4", "glm-4-*", "glm-4v*", "glm-3*" }, thinking = { off = "omit", on = "off" } }, -- before 4.5; remembered
  },

  options = {
    hoist_extra_body = true,
    -- With tools the thoughts belong back into the history, complete and in order; losing them costs quality, not an error.
    reasoning_echo = "all",
    reasoning_field = "reasoning_content",
    reasoning_memory = true,
    tool_choices = { "auto" },
    max_tokens_field = "max_tokens",
    system_role = "system",
    include_usage = false, -- streams end with usage unasked, stream_options are not known
    drop_params = { "stream_options", "frequency_penalty", "presence_penalty", "thinking_budget", "messages.name", "tools.function.strict" },
    clamp_params = { temperature = { 0.01, 1 }, top_p = { 0.01, 1 } }, -- 0 is refused; 1 is the default temperature
  },
}
