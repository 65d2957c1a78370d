-- Vertex AI through its OpenAI-compatible endpoint: Gemini as `google/...`, and other makers' models that it hosts.
-- Facts: docs.cloud.google.com, vercel/ai, 2026; [remembered]: not looked up again.
-- The key is an OAuth token (`gcloud auth print-access-token`), which lives for about an hour. Another location than
-- global has its own base URL as well: https://europe-west4-aiplatform.googleapis.com/v1
local newest = {
  off = "low", -- 3.x always thinks; the least that all take
  on = "omit",
  effort = "reasoning_effort",
  levels = { low = "low", medium = "medium", high = "high" },
  default = "on",
}

local function with(changes)
  local rule = {}
  for key, value in pairs(newest) do rule[key] = value end
  for key, value in pairs(changes) do rule[key] = value end
  return rule
end

local google = {
  reasoning_echo = "none",
  thought_signature = "skip_thought_signature_validator", -- Gemini 3 wants one on each step of the current turn
  max_tokens_field = "max_tokens",
}

local function section(match, changes)
  return { match = match, thinking = with(changes), options = google }
end

local adapter = {
  base_url = "https://aiplatform.googleapis.com/v1",
  auth = "bearer",
  env = "VERTEX_ACCESS_TOKEN",
  dialect = "chat",
  trailing_assistant = "refuse", -- [remembered: not accepted by all]

  models = {
    section("google/gemini-2.5-flash-lite*", { off = { reasoning_effort = "none" }, default = "off" }),
    section("google/gemini-2.5-flash*", { off = { reasoning_effort = "none" } }),
    { match = { "google/gemini-2.0*", "google/gemini-1*" }, options = { reasoning_echo = "none", drop_params = { "reasoning_effort" } } },
    section({ "google/gemini-3-flash*", "google/gemini-3.1-flash*" }, { off = "minimal", levels = { minimal = "minimal", low = "low", medium = "medium", high = "high" } }),
    section("google/gemini-3-pro*", { levels = { low = "low", high = "high" } }),
    section("google/gemini-*", {}), -- 2.5 pro and what comes after 3
  },

  options = {
    project = "", -- the project's id or number
    location = "global",
    reasoning_memory = true,
  },
}

function adapter.build_request(req, ctx)
  local project, location = ctx.options.project, ctx.options.location
  if project == "" then ctx.skip("options.project is not set") end
  return { path = "/projects/" .. project .. "/locations/" .. location .. "/endpoints/openapi/chat/completions" }
end

return adapter
