// Embeddings as the SDK asks for them by itself, and as plain numbers.
import OpenAI from "openai";

const given = JSON.parse(process.argv[2]);
const client = new OpenAI();
const own = await client.embeddings.create({ model: "m", input: given.input });
const numbers = await client.embeddings.create({ model: "m", input: given.input, encoding_format: "float" });
console.log(JSON.stringify([own, numbers].map((answer) => answer.data.map((item) => Array.from(item.embedding)))));
