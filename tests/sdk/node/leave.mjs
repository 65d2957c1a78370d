// Leaves a stream after its first text.
import OpenAI from "openai";

const stream = await new OpenAI().chat.completions.create({ model: "m", messages: [{ role: "user", content: "hi" }], stream: true });
let text = "";
for await (const chunk of stream) {
  text += chunk.choices[0].delta.content ?? "";
  if (text) break;
}
console.log(JSON.stringify({ text, aborted: stream.controller.signal.aborted }));
