-- Groq. Facts: console.groq.com/docs/reasoning, 2026, and refusals seen live, 2026-05 to 2026-08. "Remembered": not checked.
return {
  base_url = "https://api.groq.com/openai/v1",
  auth = "bearer",
  env = "GROQ_API_KEY",
  dialect = "chat",
  default_model = "openai/gpt-oss-120b",

  -- Models that do not think refuse every field that speaks of it.
  thinking = { off = "omit", on = "off" },

  models = {
    { match = "*gpt-oss*", thinking = { off = "low", on = "omit", effort = "reasoning_effort", levels = { low = "low", medium = "medium", high = "high" } } },
    {
      match = "qwen/qwen*",
      thinking = { off = { reasoning_effort = "none" }, on = { reasoning_effort = "default" }, default = "on" },
      -- Else the thoughts stand in the content. The two fields exclude each other.
      options = { default_params = { reasoning_format = "parsed" }, drop_params = { "include_reasoning", "logprobs", "top_logprobs", "logit_bias", "messages.name" } },
    },
  },

  options = {
    hoist_extra_body = true,
    -- 400 "property 'reasoning_content' is unsupported", and of models that do not think also "property 'reasoning' is unsupported".
    reasoning_echo = "none",
    system_role = "system", -- remembered
    drop_params = { "logprobs", "top_logprobs", "logit_bias", "messages.name" }, -- the last is remembered
    clamp_params = { n = { 1, 1 } },
  },

  classify_error = function(err)
    local error = type(err.body) == "table" and err.body.error
    local code = type(error) == "table" and error.code
    if code == "tool_use_failed" then return { class = "server" } end -- the model wrote a call that is none; the next try may do better; remembered
    if err.status == 498 then return { class = "overload" } end -- flex capacity, remembered
  end,
}
