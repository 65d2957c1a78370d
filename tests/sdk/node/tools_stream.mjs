// The stream helper with tools: its events and its final message.
import OpenAI from "openai";

const given = JSON.parse(process.argv[2]);
const stream = new OpenAI().chat.completions.stream({ model: "m", messages: [{ role: "user", content: "hi" }], tools: given.tools });
const done = [];
stream.on("tool_calls.function.arguments.done", (event) => done.push([event.index, event.name, event.arguments]));
const final = await stream.finalChatCompletion();
console.log(JSON.stringify({ done, choice: final.choices[0] }));
