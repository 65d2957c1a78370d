-- Ollama, through its OpenAI-compatible endpoint; ollama.com/v1 with a key is the same in the cloud.
-- Facts: its source (openai/openai.go), 2026-08, and reports of refusals, 2026-04. "Remembered": not checked.
local CONTEXT = { error = { code = "context_length_exceeded", message = "the prompt fills the context that the model was loaded with (num_ctx)" } }

local function has(part)
  if type(part) ~= "table" then return false end
  for _, name in ipairs({ "content", "reasoning", "tool_calls" }) do
    local value = part[name]
    if value ~= nil and value ~= null and value ~= "" then return true end
  end
  return false
end

local function first(answer)
  return type(answer.choices) == "table" and answer.choices[1] or {}
end

return {
  base_url = "http://127.0.0.1:11434/v1",
  auth = "bearer",
  env = "OLLAMA_API_KEY",
  dialect = "chat",

  -- Models that can think do; a word that is none of these is refused with 400.
  thinking = { off = { reasoning_effort = "none" }, on = "omit", effort = "reasoning_effort", default = "on" },

  models = {
    { match = "*gpt-oss*", thinking = { off = "low", levels = { low = "low", medium = "medium", high = "high" } } }, -- always thinks
  },

  options = {
    hoist_extra_body = true,
    reasoning_echo = "all",
    reasoning_field = "reasoning", -- reasoning_content is not read
    reasoning_memory = true,
    empty_content = "text", -- 400 "invalid message content type: <nil>"
    repair_arguments = true, -- 400 "invalid tool call arguments"
    tool_choices = { "none", "required" }, -- auto is what holds without
    system_role = "system", -- remembered
  },

  -- An answer that is over before it began, for want of room: the prompt was cut to the context, silently.
  transform_response = function(answer)
    local choice = first(answer)
    if choice.finish_reason == "length" and not has(choice.message) then return CONTEXT end
    return answer
  end,

  transform_chunk = function(chunk, ctx)
    if ctx.state.begun then return chunk end
    local choice = first(chunk)
    if has(choice.delta) then
      ctx.state.begun = true
    elseif choice.finish_reason == "length" then
      return CONTEXT
    end
    return chunk
  end,

  classify_error = function(err)
    local error = type(err.body) == "table" and err.body.error
    local text = type(error) == "table" and error.message or error
    if type(text) ~= "string" then return nil end
    if text:find("does not support thinking", 1, true) then return { class = "thinking_mode" } end -- remembered
    -- Nothing to mend here, but another target may be able to: "... does not support tools", "image URLs are not currently supported".
    if text:find("does not support tools", 1, true) or text:find("image URLs are not", 1, true) then return { class = "param" } end
  end,

  repair = function(req, class)
    if class == "thinking_mode" and req.reasoning_effort ~= nil then
      req.reasoning_effort = nil
      return req
    end
  end,
}
