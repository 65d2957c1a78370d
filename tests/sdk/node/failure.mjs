// One request that fails: the class of the error, what it says, what had arrived, and how many requests it took.
import OpenAI from "openai";

const given = JSON.parse(process.argv[2]);
let sent = 0;
const client = new OpenAI({ ...given.options, fetch: (...parts) => (sent++, fetch(...parts)) });
let text = "";
let failure = null;
try {
  const answer = await client.chat.completions.create({ model: "m", messages: [{ role: "user", content: "hi" }], ...given.body });
  if (given.body?.stream) {
    for await (const chunk of answer) for (const choice of chunk.choices) text += choice.delta.content ?? "";
  } else {
    text = answer.choices[0].message.content;
  }
} catch (error) {
  const { message, status, code, param, type, requestID } = error;
  failure = { name: error.constructor.name, message, status, code, param, type, requestID, attempts: error.error?.attempts };
}
console.log(JSON.stringify({ text, failure, sent }));
