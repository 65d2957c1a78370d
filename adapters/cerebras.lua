-- Cerebras. Facts: inference-docs.cerebras.ai/capabilities/reasoning, 2026, clients that are maintained, and refusals seen live,
-- 2026-07. "Remembered": not checked.
return {
  base_url = "https://api.cerebras.ai/v1",
  auth = "bearer",
  env = "CEREBRAS_API_KEY",
  dialect = "chat",
  default_model = "gpt-oss-120b",

  thinking = { off = "omit", on = "off" }, -- the other models do not think

  models = {
    -- disable_reasoning and the efforts none and minimal are 400.
    { match = "gpt-oss*", thinking = { off = "low", on = "omit", effort = "reasoning_effort", levels = { low = "low", medium = "medium", high = "high" } } },
    -- Earlier thoughts belong into the content, between <think> tags.
    {
      match = { "zai-glm*", "glm*" },
      thinking = { off = { disable_reasoning = true }, on = { disable_reasoning = false }, default = "on" },
      options = { reasoning_echo = "all", reasoning_field = "tags", reasoning_memory = true },
    },
    -- Else the thoughts stand in the content. Which of these can be turned off is not known.
    { match = "qwen-3*", thinking = { off = "omit", on = "omit" }, options = { default_params = { reasoning_format = "parsed" } } },
  },

  options = {
    hoist_extra_body = true,
    reasoning_echo = "none", -- 400 "property 'messages.2.assistant.reasoning_content' is unsupported"
    max_tokens_field = "max_completion_tokens",
    system_role = "system", -- remembered
    include_usage = false, -- it comes with the finish
    drop_params = { "stream_options", "frequency_penalty", "presence_penalty", "logit_bias", "parallel_tool_calls", "service_tier" },
  },
}
