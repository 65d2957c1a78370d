-- LM Studio. With its setting that parts thoughts from the answer off, they stand in the content: options: {think_tags: on}.
-- Facts: lmstudio-bug-tracker (a maintainer's table of what turns thinking on and off, version 0.4.17, 2026-06). "Remembered": not checked.
return {
  base_url = "http://127.0.0.1:1234/v1",
  auth = "bearer",
  dialect = "chat",

  thinking = {
    off = { reasoning_effort = "none" },
    on = "medium",
    effort = "reasoning_effort",
    levels = { low = "low", medium = "medium", high = "high" },
    default = "on",
  },

  models = {
    { match = "*gpt-oss*", thinking = { off = "low", on = "omit" } }, -- always thinks
  },

  options = {
    hoist_extra_body = true,
    reasoning_echo = "all",
    reasoning_field = "reasoning_content", -- gpt-oss gives `reasoning`, remembered
    reasoning_memory = true,
    empty_content = "text", -- "'content' field must be a string or an array of objects", 2024-12
    tool_choices = { "auto", "none", "required" }, -- words only
    system_role = "first_only", -- templates raise on others
  },
}
