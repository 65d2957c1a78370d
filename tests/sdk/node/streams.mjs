// The same streaming request `count` times: the chunks' text, and what the stream helper makes of the same stream.
import OpenAI from "openai";

const given = JSON.parse(process.argv[2]);
const client = new OpenAI({ maxRetries: 0 });
const request = { model: "m", messages: [{ role: "user", content: "hi" }], ...given.body };

async function text() {
  let out = "";
  for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
    for (const choice of chunk.choices) out += choice.delta.content ?? "";
  }
  return out;
}

async function tried(ask) {
  try {
    return await ask();
  } catch (error) {
    return `${error.constructor.name}: ${error.message}`;
  }
}

const results = [];
for (let at = 0; at < given.count; at++) {
  const raw = await tried(text);
  const final = await tried(() => client.chat.completions.stream(request).finalChatCompletion());
  results.push({ raw, choice: final.choices?.[0] ?? final });
}
console.log(JSON.stringify(results));
