-- DeepSeek's own API. Facts: api-docs.deepseek.com and live measurements, 2026-04 to 2026-11.
return {
  base_url = "https://api.deepseek.com",
  auth = "bearer",
  env = "DEEPSEEK_API_KEY",
  dialect = "chat",
  default_model = "deepseek-v4-pro",

  -- Fields at the top of the body; thinking is on when nothing is said. An effort is not sent along with disabled.
  thinking = {
    off = { thinking = { type = "disabled" } },
    on = { thinking = { type = "enabled" } },
    effort = "reasoning_effort",
    levels = { minimal = "low", low = "low", medium = "high", high = "high", xhigh = "high", max = "max" },
    default = "on",
    drop = { "thinking.budget_tokens", "thinking.display" }, -- Anthropic's
  },

  options = {
    hoist_extra_body = true, -- an argument of the SDKs: on the wire it is ignored, and thinking stays on

    -- With tools every assistant turn must carry a text, else: "The `reasoning_content` in the thinking mode must be
    -- passed back to the API." An empty one will do, also with thinking off. Without tools it is ignored and costs nothing.
    reasoning_echo = "all",
    reasoning_field = "reasoning_content",
    reasoning_placeholder = "",
    reasoning_memory = true,

    forced_tool_choice_while_thinking = "auto", -- 400 "Thinking mode does not support this tool_choice"
    max_tokens_field = "max_tokens",
    system_role = "system", -- there is no developer role
  },
}
