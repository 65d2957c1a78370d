// The chunks of a stream.
import OpenAI from "openai";

const given = JSON.parse(process.argv[2]);
const chunks = [];
for await (const chunk of await new OpenAI().chat.completions.create({ model: "m", messages: [{ role: "user", content: "hi" }], stream: true, ...given.body })) {
  chunks.push(chunk);
}
console.log(JSON.stringify(chunks));
