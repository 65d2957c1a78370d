// `parse` with a zod form, plain and streamed.
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const given = JSON.parse(process.argv[2]);
const client = new OpenAI();
const format = zodResponseFormat(z.object({ city: z.string() }), "weather");
const request = { model: given.model ?? "m", messages: [{ role: "user", content: given.prompt ?? "hi" }], response_format: format };
const plain = await client.chat.completions.parse(request);
const streamed = await client.chat.completions.stream(request).finalChatCompletion();
console.log(JSON.stringify([plain, streamed].map((completion) => completion.choices[0].message.parsed)));
