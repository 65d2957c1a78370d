-- Tencent's Hunyuan at TokenHub; outside China https://tokenhub-intl.tencentcloudmaas.com/v1, the older home is
-- https://api.hunyuan.cloud.tencent.com/v1, and keys hold at one site only (401 elsewhere).
-- Facts: cloud.tencent.com/document/product/1823, 2026-05 to 2026-07. "Remembered": not checked.
return {
  base_url = "https://tokenhub.tencentmaas.com/v1",
  auth = "bearer",
  env = "TOKENHUB_API_KEY",
  dialect = "chat",
  default_model = "hy3",

  -- What holds for the models of others that are served here.
  thinking = {
    off = { thinking = { type = "disabled" } },
    on = { thinking = { type = "enabled" } },
    default = "on",
    drop = { "thinking.budget_tokens", "thinking.display" }, -- Anthropic's
  },

  models = {
    -- Fast without an effort.
    { match = "hy[0-9]*", thinking = { off = "omit", on = "high", effort = "reasoning_effort", levels = { low = "low", high = "high" }, default = "off" } },
    { match = { "hunyuan-a13b*", "hunyuan-t1*" }, thinking = { off = { enable_thinking = false }, on = { enable_thinking = true } } }, -- remembered
    { match = { "hunyuan-*", "hy-mt*" }, thinking = { off = "omit", on = "off" } }, -- remembered
    { match = "deepseek-v3*", thinking = { default = "off" } },
    -- DeepSeek's weights want DeepSeek's rule: with tools every assistant turn carries a text.
    { match = "deepseek-v4*", options = { reasoning_placeholder = "" } },
    { match = "*[Mm]ini[Mm]ax-[Mm]2*", thinking = { off = "omit", on = "omit" } }, -- cannot be turned off
  },

  options = {
    hoist_extra_body = true,
    -- The thoughts of a round belong back with the results of its tools; losing them costs quality, not an error.
    reasoning_echo = "all",
    reasoning_field = "reasoning_content",
    reasoning_memory = true,
    tool_choices = { "auto" },
    system_role = "system", -- remembered
    max_tokens_field = "max_tokens", -- remembered
  },
}
