-- Anthropic's Messages API. Facts: platform.claude.com (what's new, migration, errors), 2026-09 to 2026-11.
-- The translation to Messages, and what of a history is signed and may go back, is the dialect's.

-- Which thinking.type each model takes, newest first; `effort` is output_config.effort. [remembered]: not looked up again.
local adaptive = {
  off = { thinking = { type = "disabled" } },
  on = { ["thinking.type"] = "adaptive" },
  effort = "output_config.effort",
  levels = { low = "low", medium = "medium", high = "high", xhigh = "xhigh", max = "max" },
  keeps_effort = true, -- beside disabled too it says how much is written
  drop = { "thinking.budget_tokens" },
  beside = { ["thinking.display"] = "summarized" }, -- from 4.7 on thoughts come without text unless asked for
}

local function with(changes)
  local rule = {}
  for key, value in pairs(adaptive) do rule[key] = value end
  for key, value in pairs(changes) do rule[key] = value end
  return rule
end

local always = with({ off = "low", default = "on" }) -- 400 '"thinking.type.disabled" is not supported for this model.'
local between_tools = with({ off = { thinking = { type = "between_tools" } }, default = "on", always = true })
local default_on = with({ default = "on" })
local default_off = with({ default = "off" })
local claude_4_6 = with({
  levels = { low = "low", medium = "medium", high = "high", max = "max" }, -- [remembered]
  default = "off",
  beside = {},
  refuses = { "temperature", "top_p", "top_k" }, -- while thinking [remembered]
})
local budget = {
  off = { thinking = { type = "disabled" } },
  on = { ["thinking.type"] = "enabled" },
  effort = "thinking.budget_tokens",
  levels = { minimal = 1024, low = 2048, medium = 8192, high = 16384, xhigh = 24576, max = 32000 }, -- at least 1024; our scale
  on_level = "medium",
  room = "max_tokens", -- which must be larger than the budget
  default = "off",
  refuses = { "temperature", "top_p", "top_k" }, -- while thinking [remembered]
  drop = { "thinking.display" },
}

-- Other spellings of the wish, where no rule took them: an unknown field is an error.
local never = { "disable_thinking", "reasoning_effort", "reasoning", "enable_thinking", "chat_template_kwargs", "extra_body" }
local no_sampling = { "temperature", "top_p", "top_k", table.unpack(never) } -- refused from Opus 4.7 on, thinking or not

-- A forced tool is an error while it thinks. Where thinking can be turned off the tool is kept: it often is the way to
-- structured output. Else it becomes auto.
local function section(match, thinking, drop)
  local forced = thinking and "thinking_off" or "keep"
  return { match = match, thinking = thinking, options = { drop_params = drop, forced_tool_choice_while_thinking = forced } }
end

local adapter = {
  base_url = "https://api.anthropic.com/v1",
  auth = "header:x-api-key",
  env = "ANTHROPIC_API_KEY",
  dialect = "messages",
  default_model = "claude-sonnet-5-5",
  trailing_assistant = "refuse", -- from 4.6 on (openrouter.ai, claude-5-5 guide, 2026)

  -- Other makers' models behind an endpoint of this shape are left as the client wrote it.
  models = {
    section("claude-sonnet-5-5*", between_tools, no_sampling),
    section({ "claude-opus-5-5*", "claude-fable-5*" }, always, no_sampling), -- fable-5 has no disabled either
    section({ "claude-haiku-5-5*", "claude-opus-5*" }, default_on, no_sampling),
    section({ "claude-opus-4-7*", "claude-opus-4-8*", "claude-sonnet-5*" }, default_off, no_sampling),
    section({ "claude-opus-4-6*", "claude-sonnet-4-6*" }, claude_4_6, never),
    section({ "claude-opus-4*", "claude-sonnet-4*", "claude-haiku-4*", "claude-3-7*" }, budget, never),
    section({ "claude-3*", "claude-2*", "claude-instant*" }, nil, never), -- no thinking
    section("claude-*", adaptive, never), -- taken for a new one
  },

  options = { drop_params = never, reasoning_memory = true },
}

-- "`temperature` and `top_p` cannot both be specified for this model": from 4.5 on, and Opus 4.1 [remembered].
function adapter.transform_request(req, ctx)
  if req.temperature ~= nil and req.top_p ~= nil and string.find(ctx.model, "%-4%-[156]") then
    req.top_p = nil
    ctx.warn("top_p is left out: the model takes it or temperature")
  end
  return req
end

function adapter.build_request(req, ctx)
  return { headers = { ["anthropic-version"] = "2023-06-01" } }
end

function adapter.classify_error(err, ctx)
  local error = type(err.body) == "table" and err.body.error
  local message = type(error) == "table" and error.message
  if type(message) ~= "string" then return nil end
  -- Both are about this history and teach nothing about the model.
  if string.find(message, "bound to a different conversation", 1, true) or string.find(message, "Expected `thinking`", 1, true) then
    return { class = "signature" }
  end
  if string.find(message, "cannot both be specified", 1, true) or string.find(message, "is deprecated for this model", 1, true) then
    return { class = "param" }
  end
end

-- All thinking of the history goes, never some of it. Where the last calls then lack the thoughts that `enabled` wants
-- before them, there is no thinking either.
function adapter.repair(req, class, ctx)
  if class ~= "signature" and class ~= "reasoning_missing" then return nil end
  local changed = false
  each_assistant(req, function(turn)
    if not is_array(turn.content) then return end
    local rest = array {}
    for _, block in ipairs(turn.content) do
      if block.type ~= "thinking" and block.type ~= "redacted_thinking" then table.insert(rest, block) end
    end
    if #rest < #turn.content then
      if #rest == 0 then rest = "(thinking left out)" end
      turn.content = rest
      changed = true
    end
  end)
  local thinking = req.thinking
  if type(thinking) == "table" and thinking.type == "enabled" then
    req.thinking = { type = "disabled" }
    changed = true
  end
  return changed and req or nil
end

return adapter
