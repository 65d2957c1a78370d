// @anthropic-ai/sdk: an answer plain or streamed, with a tool round trip that keeps the content as it came or only the call.
import Anthropic from "@anthropic-ai/sdk";

const given = JSON.parse(process.argv[2]);
const client = new Anthropic({ baseURL: process.env.OPENAI_BASE_URL.replace(/\/v1$/, ""), apiKey: process.env.OPENAI_API_KEY });
const messages = [{ role: "user", content: "hi" }];
const pieces = [];
let failure = null;

async function turn() {
  const request = { model: "m", max_tokens: 50, messages, ...(given.tools ? { tools: given.tools } : {}) };
  if (!given.stream) return await client.messages.create(request);
  return await client.messages.stream(request).on("text", (text) => pieces.push(text)).finalMessage();
}

let said = null;
try {
  said = await turn();
  const call = said.content.find((block) => block.type === "tool_use");
  if (call) {
    messages.push({ role: "assistant", content: given.lost ? [call] : said.content });
    messages.push({ role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: "sunny" }] });
    said = await turn();
  }
} catch (error) {
  failure = { name: error.constructor.name, message: error.message, status: error.status ?? null, requestID: error.requestID ?? null };
}
console.log(JSON.stringify({ content: said?.content, usage: said?.usage, pieces, failure }));
