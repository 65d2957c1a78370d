// `runTools`: the SDK calls the function and asks again, with the messages as it keeps them.
import OpenAI from "openai";

const given = JSON.parse(process.argv[2]);
const called = [];
const tool = {
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather in a city",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    parse: JSON.parse,
    function: ({ city }) => {
      called.push(city);
      return "sunny";
    },
  },
};
const messages = [{ role: "user", content: given.prompt ?? "hi" }];
const runner = new OpenAI({ maxRetries: 0 }).chat.completions.runTools({ model: given.model ?? "m", messages, tools: [tool], stream: given.stream });
console.log(JSON.stringify({ content: await runner.finalContent(), called, roles: runner.messages.map((message) => message.role) }));
