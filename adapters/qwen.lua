-- Qwen at Alibaba's Model Studio (DashScope), the OpenAI-compatible endpoint outside China; inside it is
-- https://dashscope.aliyuncs.com/compatible-mode/v1, and keys of the coding plan (sk-sp-...) have a base URL of their own.
-- Facts: help.aliyun.com/model-studio/deep-thinking and refusals seen live, 2025-07 to 2026-09. "Remembered": not checked.
local switch = { enable_thinking = false }

-- The text of a refusal: {"error": {"message": ...}} or {"message": ...}.
local function message(err)
  local body = err.body
  if type(body) == "table" and type(body.error) == "table" then body = body.error end
  return type(body) == "table" and type(body.message) == "string" and body.message or ""
end

return {
  base_url = "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
  auth = "bearer",
  env = "DASHSCOPE_API_KEY",
  dialect = "chat",
  default_model = "qwen-plus",

  -- At the top of the body: chat_template_kwargs are vLLM's and ignored here. There are no levels; a client's
  -- thinking_budget goes through. The commercial hybrid models do not think unless they are asked to.
  thinking = { off = switch, on = { enable_thinking = true }, default = "off" },

  models = {
    -- Never think. The instruct models of 2507 no longer take the switch, the rest is remembered.
    { match = { "*-instruct*", "qwen3-coder*", "qwen2*", "qwen-max*", "qwen-vl-*", "qwen-mt-*", "qwen-long*" }, thinking = { off = "omit", on = "off" } },
    -- Always think.
    { match = { "*-thinking*", "qwq*", "qvq*" }, thinking = { off = "omit", on = "omit", default = "on" } },
    -- Open weights: they think by default, and a plain request that leaves it at that is refused:
    -- 400 "parameter.enable_thinking must be set to false for non-streaming calls".
    { match = "qwen3-[0-9]*", thinking = { default = "on", unstreamed = "off" } },
    -- That these think by default is remembered.
    { match = "qwen3.[5-9]*", thinking = { default = "on" } },
  },

  options = {
    hoist_extra_body = true,
    stream_only = "thinking", -- most models think in streams only; those that can do both give the same
    reasoning_echo = "none", -- not read; kept for the 3.6 generation with preserve_thinking: set reasoning_echo to all
    forced_tool_choice_while_thinking = "auto", -- 400 "... does not support being set to required or object in thinking mode"
    system_role = "first_only",
    max_tokens_field = "max_tokens", -- remembered
    repair_arguments = true, -- 400 "The \"function.arguments\" parameter of the code model must be in JSON format", 2026-03
    drop_params = { "frequency_penalty" },
    clamp_params = { temperature = { 0, 1.99 } }, -- [0, 2), remembered
    embedding_batch = 10, -- 400 "batch size is invalid, it should not be larger than 10" from text-embedding-v3 and v4, 2025-07 to 2026-05
  },

  classify_error = function(err)
    -- "Json mode response is not supported when enable_thinking is true", 2025-08; the 3.8 generation takes both.
    if message(err):lower():find("json mode response is not supported", 1, true) then return { class = "thinking_mode" } end
  end,

  repair = function(req, class)
    if class == "thinking_mode" and req.response_format and req.enable_thinking then
      req.enable_thinking = false
      return req
    end
  end,
}
