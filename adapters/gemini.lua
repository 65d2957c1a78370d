-- The Gemini API in its own dialect. Facts: ai.google.dev and Vercel's client, 2026; [remembered]: not looked up again.
local function thinks(level) -- 3.x always thinks; the least is model by model
  return { ["generationConfig.thinkingConfig"] = { thinkingLevel = level } }
end

local newest = {
  off = thinks("low"),
  always = true,
  on = { ["generationConfig.thinkingConfig.includeThoughts"] = true },
  effort = "generationConfig.thinkingConfig.thinkingLevel",
  levels = { low = "low", medium = "medium", high = "high" },
  default = "on",
  drop = { "generationConfig.thinkingConfig.thinkingBudget" }, -- an error beside a level
}

local function with(changes)
  local rule = {}
  for key, value in pairs(newest) do rule[key] = value end
  for key, value in pairs(changes) do rule[key] = value end
  return rule
end

local function budgets(least, most) -- 2.5: a number of tokens [the numbers of Google's compatible endpoint, remembered]
  return with({
    effort = "generationConfig.thinkingConfig.thinkingBudget",
    levels = { minimal = least, low = 1024, medium = 8192, high = 24576, max = most },
    drop = { "generationConfig.thinkingConfig.thinkingLevel" },
  })
end

local budget_off = { ["generationConfig.thinkingConfig"] = { thinkingBudget = 0 } }
local flash_2_5 = budgets(512, 24576)
flash_2_5.off, flash_2_5.always = budget_off, false
local lite_2_5 = budgets(512, 24576)
lite_2_5.off, lite_2_5.always, lite_2_5.default = budget_off, false, "off"
local pro_2_5 = budgets(128, 32768) -- cannot be off
pro_2_5.off = { ["generationConfig.thinkingConfig"] = { thinkingBudget = 128 } }

local never = { "model", "stream" } -- they stand in the path
local penalties = { "generationConfig.presencePenalty", "generationConfig.frequencyPenalty", table.unpack(never) }

local function section(match, thinking)
  return { match = match, thinking = thinking, options = { drop_params = penalties } } -- "Penalty is not enabled" [remembered]
end

local adapter = {
  base_url = "https://generativelanguage.googleapis.com/v1beta",
  auth = "header:x-goog-api-key",
  env = "GEMINI_API_KEY",
  dialect = "gemini",
  default_model = "gemini-flash-latest", -- [remembered]
  trailing_assistant = "refuse", -- [remembered: not accepted by all]

  thinking = newest,
  models = {
    section("gemini-2.5-flash-lite*", lite_2_5),
    section("gemini-2.5-flash*", flash_2_5),
    section("gemini-2.5*", pro_2_5),
    { match = { "gemini-2*", "gemini-1*", "gemma*" }, thinking = false },
    section({ "gemini-3-flash*", "gemini-3.1-flash*" }, with({ off = thinks("minimal"), levels = { minimal = "minimal", low = "low", medium = "medium", high = "high" } })),
    section("gemini-3-pro*", with({ levels = { low = "low", high = "high" } })),
    section("gemini-*", newest),
  },

  options = { drop_params = never, reasoning_memory = true },
}

function adapter.transform_request(req, ctx)
  req.model, req.stream = nil, nil
  return req
end

function adapter.build_request(req, ctx)
  local model = string.find(ctx.model, "/", 1, true) and ctx.model or "models/" .. ctx.model
  if ctx.stream or ctx.force_stream then return { path = "/" .. model .. ":streamGenerateContent", query = { alt = "sse" } } end
  return { path = "/" .. model .. ":generateContent" }
end

function adapter.classify_error(err, ctx)
  local error = type(err.body) == "table" and err.body.error
  local message = type(error) == "table" and error.message
  if type(message) == "string" and string.find(message, "location is not supported", 1, true) then return { class = "auth" } end
end

-- A signature was refused: the stand-in takes the place of those of calls, those of texts go.
function adapter.repair(req, class, ctx)
  if class ~= "signature" then return nil end
  local changed = false
  for _, content in ipairs(req.contents) do
    local first = true
    for _, part in ipairs(content.parts) do
      local stand_in = part.functionCall ~= nil and first and "skip_thought_signature_validator" or nil
      if part.functionCall ~= nil then first = false end
      if part.thoughtSignature ~= stand_in then
        part.thoughtSignature = stand_in
        changed = true
      end
    end
  end
  return changed and req or nil
end

return adapter
