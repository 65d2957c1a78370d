-- Together, which serves open weights. Facts: docs.together.ai (reasoning, error codes), 2026. "Remembered": not checked.
local always = { off = "omit", on = "omit", default = "on" }
local never = { off = "omit", on = "off" }

return {
  base_url = "https://api.together.xyz/v1",
  auth = "bearer",
  env = "TOGETHER_API_KEY",
  dialect = "chat",
  default_model = "openai/gpt-oss-120b",

  -- The models that can be switched.
  thinking = { off = { reasoning = { enabled = false } }, on = { reasoning = { enabled = true } }, default = "on" },

  models = {
    { match = "*gpt-oss*", thinking = { off = "low", on = "omit", effort = "reasoning_effort", levels = { low = "low", medium = "medium", high = "high" } } },
    -- DeepSeek's weights want DeepSeek's rules: with tools every assistant turn carries a text, and no tool is forced.
    {
      match = "*DeepSeek-V4*",
      thinking = { effort = "reasoning_effort", levels = { low = "low", medium = "medium", high = "high", max = "max" } },
      options = { reasoning_field = "reasoning_content", reasoning_placeholder = "", forced_tool_choice_while_thinking = "auto" },
    },
    { match = "*DeepSeek-V3.1*", thinking = { default = "off" } },
    -- Always thinks; its thoughts come and go as reasoning_content.
    {
      match = "*GLM-5.3*",
      thinking = { off = "low", on = "omit", effort = "reasoning_effort", levels = { low = "low", high = "high", max = "max" } },
      options = { reasoning_field = "reasoning_content" },
    },
    { match = { "*MiniMax-M2*", "*DeepSeek-R1*", "*Thinking*", "*QwQ*" }, thinking = always },
    { match = { "*Instruct*", "*Llama*", "*llama*", "*Mistral*", "*Mixtral*", "*gemma-[23]*", "*Coder*", "*DeepSeek-V3" }, thinking = never }, -- remembered
  },

  options = {
    hoist_extra_body = true,
    reasoning_echo = "all", -- that thoughts are read back is remembered
    reasoning_field = "reasoning",
    reasoning_memory = true,
    max_tokens_field = "max_tokens", -- remembered
    system_role = "system", -- remembered
  },
}
