-- ByteDance's Doubao at Volcengine Ark; the plans are at .../api/plan/v3 and .../api/coding/v3, BytePlus is
-- https://ark.ap-southeast.bytepluses.com/api/v3. A model is a name or an endpoint of one's own (ep-...).
-- Facts: volcengine.com/docs/82379, docs.byteplus.com, tries with a real key in 2026-08. "Remembered": not checked.
local function error_of(err)
  local error = type(err.body) == "table" and err.body.error
  return type(error) == "table" and error or {}
end

return {
  base_url = "https://ark.cn-beijing.volces.com/api/v3",
  auth = "bearer",
  env = "ARK_API_KEY",
  dialect = "chat",
  default_model = "doubao-seed-2-1-pro-260628",

  -- An effort beside "disabled" is refused: "Invalid combination of reasoning_effort and thinking type", 2026-02.
  thinking = {
    off = { thinking = { type = "disabled" } },
    on = { thinking = { type = "enabled" } },
    effort = "reasoning_effort",
    levels = { minimal = { reasoning_effort = "minimal" }, low = "low", medium = "medium", high = "high" }, -- minimal does not think
    default = "on",
    refuses = { "stop" }, -- not known to models that think
    drop = { "thinking.budget_tokens", "thinking.display" }, -- Anthropic's
  },

  models = {
    {
      match = { "doubao-seed-2*", "doubao-seed-evolving*" },
      thinking = { levels = { minimal = { reasoning_effort = "minimal" }, low = "low", medium = "medium", high = "high", xhigh = "xhigh", max = "max" } },
    },
    { match = { "doubao-1-5-thinking*", "doubao-1.5-thinking*" }, thinking = { effort = null } }, -- that there are no levels is remembered
    -- No thinking, and the field is refused; remembered.
    { match = { "doubao-1-5-*", "doubao-1.5-*", "doubao-pro*", "doubao-lite*" }, thinking = { off = "omit", on = "off", refuses = {} } },
    -- DeepSeek's weights want DeepSeek's rule: with tools every assistant turn carries a text.
    { match = "deepseek-v4*", options = { reasoning_placeholder = "", forced_tool_choice_while_thinking = "auto" } },
  },

  options = {
    hoist_extra_body = true,
    reasoning_echo = "all", -- that Seed can do without is remembered
    reasoning_field = "reasoning_content",
    reasoning_memory = true,
    max_tokens_field = "either", -- max_tokens leaves thoughts out, max_completion_tokens counts them; both together are refused
    system_role = "system", -- 400 for developer on the plans, 2026
  },

  classify_error = function(err)
    local error = error_of(err)
    local code, text = tostring(error.code), tostring(error.message):lower()
    if text:find("unsupported thinking type", 1, true) or text:find("invalid combination of reasoning_effort", 1, true) then return { class = "thinking_mode" } end
    -- The model stopped at the limit that its owner set for it; waiting does not help.
    if code:find("SetLimitExceeded", 1, true) then return { class = "balance" } end
  end,

  repair = function(req, class)
    if class == "thinking_mode" and req.thinking ~= nil then
      req.thinking = nil
      return req
    end
  end,
}
