-- SiliconFlow, which serves open weights; in China https://api.siliconflow.cn/v1.
-- Facts: docs.siliconflow.com (chat-completions, 2026-06) and refusals seen live, 2025-05 to 2026-05. "Remembered": not checked.
local two_levels = { effort = "reasoning_effort", levels = { high = "high", xhigh = "max", max = "max" } }

return {
  base_url = "https://api.siliconflow.com/v1",
  auth = "bearer",
  env = "SILICONFLOW_API_KEY",
  dialect = "chat",
  default_model = "deepseek-ai/DeepSeek-V3.2",

  -- A model that has no switch refuses it, and is asked once more without.
  thinking = { off = { enable_thinking = false }, on = { enable_thinking = true }, default = "on" },

  models = {
    { match = "*Hunyuan-A13B*" }, -- has the switch, whatever its name says
    -- DeepSeek's weights want DeepSeek's rules: with tools every assistant turn carries a text, and no tool is forced.
    { match = "*DeepSeek-V4*", thinking = two_levels, options = { reasoning_placeholder = "", forced_tool_choice_while_thinking = "auto" } },
    { match = "*GLM-5.2*", thinking = two_levels },
    -- Always think; the last two are documented with a budget alone.
    { match = { "*Thinking*", "*DeepSeek-R1*", "*QwQ*", "*GLM-Z1*", "*Qwen3.8*", "*/Hy3*" }, thinking = { off = "omit", on = "omit" } },
    { match = { "*Instruct*", "*Qwen2*", "*Coder*", "*-MT-*", "*/DeepSeek-V2*", "*/DeepSeek-V3" }, thinking = { off = "omit", on = "off" } },
  },

  options = {
    hoist_extra_body = true,
    reasoning_echo = "all",
    reasoning_field = "reasoning_content",
    reasoning_memory = true,
    max_tokens_field = "max_tokens", -- remembered; thoughts do not count
    system_role = "system", -- remembered
    clamp_params = { thinking_budget = { 128, 32768 } },
    embedding_batch = 64, -- {"code": 20042, "message": "input batch size 136 > maximum allowed batch size 64"}, 2025-04
  },

  -- {"code": 20015, "message": "...", "data": null}: 20015 is any wrong parameter.
  classify_error = function(err)
    local body = err.body
    if type(body) ~= "table" then return nil end
    local text = tostring(body.message):lower()
    if text:find("does not support parameter", 1, true) then return { class = "param" } end
    if body.code == 20012 then return { class = "not_found" } end -- remembered
    if text:find("balance is insufficient", 1, true) then return { class = "balance" } end -- remembered
  end,
}
