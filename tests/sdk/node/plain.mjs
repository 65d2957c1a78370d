// A plain answer: what the SDK makes of it, and the headers beside it.
import OpenAI from "openai";

const given = JSON.parse(process.argv[2]);
const client = new OpenAI();
const { data, response, request_id } = await client.chat.completions
  .create({ model: "m", messages: [{ role: "user", content: "hi" }], ...given.body }, { headers: given.headers })
  .withResponse();
console.log(JSON.stringify({ data, headers: Object.fromEntries(response.headers), request_id, _request_id: data._request_id }));
