// Thinks twice in one session and once in another; then tries without a key.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

async function connect(headers) {
  const client = new Client({ name: "test", version: "1" });
  const transport = new StreamableHTTPClientTransport(new URL(process.env.URL), { requestInit: { headers } });
  await client.connect(transport);
  return { client, transport };
}

async function think({ client }, thoughtNumber) {
  const thought = { thought: "hm", nextThoughtNeeded: true, thoughtNumber, totalThoughts: 3 };
  const result = await client.callTool({ name: "sequential_thinking", arguments: thought });
  return JSON.parse(result.content[0].text).data.thought_history_length;
}

const key = { Authorization: `Bearer ${process.env.KEY}` };
const [one, other] = [await connect(key), await connect(key)];
const tools = (await one.client.listTools()).tools.map((tool) => tool.name).sort();
const lengths = [await think(one, 1), await think(one, 2), await think(other, 1)];
for (const { client, transport } of [one, other]) {
  await transport.terminateSession();
  await client.close();
}
const refused = await connect({}).then(() => null, (error) => error.code);
console.log(JSON.stringify({ tools, lengths, refused }));
