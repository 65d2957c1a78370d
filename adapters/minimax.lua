-- MiniMax's OpenAI-compatible endpoint; in China https://api.minimaxi.com/v1.
-- Facts: platform.minimax.io/docs and refusals seen live, 2026-01 to 2026-09. "Remembered": not checked.
local always = { off = "omit", on = "omit", default = "on" }

local function message(err)
  local error = type(err.body) == "table" and err.body.error
  local text = type(error) == "table" and error.message
  return type(text) == "string" and text or ""
end

return {
  base_url = "https://api.minimax.io/v1",
  auth = "bearer",
  env = "MINIMAX_API_KEY",
  dialect = "chat",
  default_model = "MiniMax-M3",

  -- There is no "enabled"; M3 refuses reasoning_effort.
  thinking = {
    off = { thinking = { type = "disabled" } },
    on = { thinking = { type = "adaptive" } },
    default = "on",
    drop = { "thinking.budget_tokens", "thinking.display" }, -- Anthropic's
  },

  models = {
    { match = "[Mm]ini[Mm]ax-[Mm]3.1*", thinking = always }, -- "disabled": 400, error 2013
    { match = { "[Mm]ini[Mm]ax-[Mm]2*", "[Mm]ini[Mm]ax-[Mm]1*" }, thinking = always, options = { tool_choices = { "auto", "none" } } },
    { match = { "[Mm]ini[Mm]ax-[Tt]ext*", "abab*" }, thinking = { off = "omit", on = "off" }, options = { default_params = {}, reasoning_echo = "none" } }, -- remembered
  },

  options = {
    hoist_extra_body = true,

    -- Thoughts apart, in reasoning_details, else they stand in the content between tags and sometimes a second time beside it.
    -- The whole turn belongs back into the history, in the form it came in.
    default_params = { reasoning_split = true },
    reasoning_echo = "all",
    reasoning_field = "reasoning_details",
    reasoning_memory = true,

    system_role = "first_only", -- "invalid message role: system" further down
    tool_schema = "filled", -- 400 "function parameters is empty (2013)"
    repair_arguments = true, -- 400 "invalid function arguments json string"
    clamp_params = { temperature = { 0.01, 1 } }, -- (0, 1], remembered
  },

  classify_error = function(err)
    -- 400 "invalid params, context window exceeds limit (2013)", 2026-05; 2013 alone is any wrong parameter.
    if message(err):find("context window exceeds limit", 1, true) then return { class = "context_overflow" } end
  end,
}
