-- Moonshot's Kimi; in China https://api.moonshot.cn/v1, Kimi Code is at https://api.kimi.com/coding/v1, and keys hold at one site only.
-- Facts: platform.kimi.ai/docs/api/chat, captured answers and refusals seen live, 2025-11 to 2026-09. "Remembered": not checked.
local keep_all = { thinking = { type = "enabled", keep = "all" } }

-- Before kimi-k2.5: any temperature, no thinking.
local plain = { drop_params = {}, default_params = {}, tool_schema = "filled", forced_tool_choice_while_thinking = "keep" }

return {
  base_url = "https://api.moonshot.ai/v1",
  auth = "bearer",
  env = "MOONSHOT_API_KEY",
  dialect = "chat",
  default_model = "kimi-k2.6",

  -- An object, never true or a level: 400 "cannot specify both 'thinking' and 'reasoning_effort'", and "none" is refused.
  thinking = {
    off = { thinking = { type = "disabled" } },
    on = { thinking = { type = "enabled" } },
    default = "on",
    drop = { "thinking.budget_tokens", "thinking.display" }, -- Anthropic's
  },

  models = {
    -- Always thinks and reads all its thoughts back; the only one with levels. A forced tool is fine.
    {
      match = "kimi-k3*",
      thinking = { off = "low", on = "omit", effort = "reasoning_effort", levels = { low = "low", medium = "high", high = "high", xhigh = "max", max = "max" } },
      options = { forced_tool_choice_while_thinking = "keep", tool_choices = { "auto", "none", "required" } },
    },
    -- 400 "invalid thinking: only type=enabled is allowed for this model", 2026.
    { match = "kimi-k2.7*", thinking = { off = "omit", on = keep_all } },
    -- Without keep, thoughts of earlier turns are not read.
    { match = "kimi-k2.6*", thinking = { on = keep_all } },
    { match = "kimi-k2.5*", thinking = { drop = { "thinking.keep", "thinking.budget_tokens", "thinking.display" } } },
    -- No switch at all.
    { match = "kimi-k2-thinking*", thinking = { off = "omit", on = "omit" }, options = { drop_params = {} } },
    { match = { "kimi-k2-*", "moonshot-v1*", "kimi-latest*" }, thinking = { off = "omit", on = "off" }, options = plain },
  },

  options = {
    hoist_extra_body = true,

    -- 400 "thinking is enabled but reasoning_content is missing in assistant tool call message at index N", with tools in the
    -- request or not. An empty text is accepted in practice (2026-05), where it is not the repair sends a space.
    reasoning_echo = "all",
    reasoning_field = "reasoning_content",
    reasoning_placeholder = "",
    reasoning_fills = "tool_turns",
    reasoning_memory = true,

    forced_tool_choice_while_thinking = "thinking_off", -- 400 "tool_choice 'specified' is incompatible with thinking enabled"
    tool_schema = "moonshot",
    system_role = "system", -- that there is no developer role is remembered
    max_tokens_field = "max_tokens",
    default_params = { max_tokens = 32768 }, -- the default is small, and thoughts count
    -- Pinned: 400 "invalid temperature: only 1 is allowed for this model", 0.6 with thinking off.
    drop_params = { "temperature", "top_p", "presence_penalty", "frequency_penalty" },
  },

  classify_error = function(err)
    local error = type(err.body) == "table" and err.body.error
    local text = type(error) == "table" and error.message
    if type(text) == "string" and text:find("invalid thinking: only", 1, true) then return { class = "thinking_mode" } end
  end,
}
