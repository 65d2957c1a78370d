// The list of models, and single ones.
import OpenAI from "openai";

const given = JSON.parse(process.argv[2]);
const client = new OpenAI();
const names = [];
for await (const model of client.models.list()) names.push(model.id);
const single = await Promise.all(given.names.map((name) => client.models.retrieve(name)));
console.log(JSON.stringify({ names, single }));
