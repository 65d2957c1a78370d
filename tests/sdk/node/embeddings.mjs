// Embeddings as the SDK asks for them by default (base64), and as numbers.
import OpenAI from "openai";

const client = new OpenAI();
const request = { model: "m", input: ["one", "two"] };
const [packed, plain] = [await client.embeddings.create(request), await client.embeddings.create({ ...request, encoding_format: "float" })];
console.log(JSON.stringify([packed, plain].map((answer) => answer.data.map((entry) => entry.embedding))));
