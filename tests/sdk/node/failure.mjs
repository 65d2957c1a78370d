// Requests that fail, all at once: the class of each error, what it says, what had arrived, and how many requests it took.
import OpenAI from "openai";

const given = JSON.parse(process.argv[2]);

async function run({ options, body }) {
  let sent = 0;
  let text = "";
  let failure = null;
  const client = new OpenAI({ ...options, fetch: (...parts) => (sent++, fetch(...parts)) });
  try {
    const answer = await client.chat.completions.create({ model: "m", messages: [{ role: "user", content: "hi" }], ...body });
    if (body?.stream) {
      for await (const chunk of answer) for (const choice of chunk.choices) text += choice.delta.content ?? "";
    } else {
      text = answer.choices[0].message.content;
    }
  } catch (error) {
    const { message, status, code, param, type, requestID } = error;
    failure = { name: error.constructor.name, message, status, code, param, type, requestID, attempts: error.error?.attempts };
  }
  return { text, failure, sent };
}

console.log(JSON.stringify(await Promise.all(given.runs.map(run))));
