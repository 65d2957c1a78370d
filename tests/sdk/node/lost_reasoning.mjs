// A tool round trip in which the application keeps only what the API's own documentation names: the reasoning is lost.
import OpenAI from "openai";

const given = JSON.parse(process.argv[2]);
const client = new OpenAI({ maxRetries: 0 });
const tools = given.tools;
const messages = [{ role: "user", content: "hi" }];

async function turn() {
  const request = { model: "m", messages, tools };
  const completion = given.stream ? await client.chat.completions.stream(request).finalChatCompletion() : await client.chat.completions.create(request);
  return completion.choices[0].message;
}

const first = await turn();
const [{ id, type, function: { name, arguments: given_arguments } }] = first.tool_calls;
messages.push({ role: "assistant", content: first.content, tool_calls: [{ id, type, function: { name, arguments: given_arguments } }] });
messages.push({ role: "tool", tool_call_id: id, content: "sunny" });
const last = await turn();
console.log(JSON.stringify({ reasoning: first.reasoning_content ?? null, content: last.content }));
