// The Vercel AI SDK with four of its providers; `openai` speaks both of OpenAI's endpoints. Lines in and out as in scenarios.py.
import { createInterface } from "node:readline";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createDeepSeek } from "@ai-sdk/deepseek";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

globalThis.AI_SDK_LOG_WARNINGS = false; // they go to stdout

const models = {
  "ai openai.chat": (at, model) => createOpenAI(at).chat(model),
  "ai openai": (at, model) => createOpenAI(at)(model),
  "ai openai-compatible": (at, model) => createOpenAICompatible({ ...at, name: "gateway" })(model),
  "ai deepseek": (at, model) => createDeepSeek(at)(model),
  "ai anthropic": (at, model) => createAnthropic(at)(model),
};
let called = [];
const get_weather = tool({
  description: "The weather in a city",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => {
    called.push(city);
    return "sunny";
  },
});

async function* texts(model, scenario) {
  const request = { model, prompt: "hi", maxRetries: 0 };
  if (scenario.startsWith("tools")) Object.assign(request, { tools: { get_weather }, stopWhen: stepCountIs(3) });
  if (!scenario.endsWith("stream")) return yield (await generateText(request)).text;
  for await (const part of streamText({ ...request, onError: () => {} }).fullStream) {
    if (part.type === "text-delta") yield part.text;
    if (part.type === "error") throw part.error;
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { client, scenario, settings } = JSON.parse(line);
  const pieces = [];
  let failure = null;
  called = [];
  try {
    const model = models[client]({ baseURL: settings.OPENAI_BASE_URL, apiKey: settings.OPENAI_API_KEY, headers: JSON.parse(settings.HEADERS) }, settings.MODEL);
    for await (const text of texts(model, scenario)) pieces.push(text);
  } catch (error) {
    failure = { name: error?.constructor?.name, message: error?.message ?? String(error) }; // a stream's error part may be any value
  }
  console.log(JSON.stringify({ pieces, failure, called }));
}
