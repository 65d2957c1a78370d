// What the page asks of its gateway. The keys live in this tab's sessionStorage, and leave it only in a header.

const ADMIN = "thinkgate.admin-key";
const CLIENT = "thinkgate.client-key";

export const adminKey = () => sessionStorage.getItem(ADMIN) ?? "";
export const clientKey = () => sessionStorage.getItem(CLIENT) ?? "";
export const keepAdminKey = (key) => keep(ADMIN, key);
export const keepClientKey = (key) => keep(CLIENT, key);

function keep(name, key) {
  if (key) sessionStorage.setItem(name, key);
  else sessionStorage.removeItem(name);
}

/** What the gateway refused, in its own words. `status` 0: it was not reached. */
export class Refused extends Error {
  constructor(status, error, headers) {
    super(error.message || `the gateway answered ${status}`);
    this.status = status;
    this.code = error.code ?? null;
    this.attempts = error.attempts ?? [];
    this.headers = headers ?? new Headers();
    this.door = false; // it came from /admin: who looks may not look
  }
}

async function ask(path, key, { method = "GET", body, query, signal, headers } = {}) {
  const asked = Object.entries(query ?? {}).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const url = asked.length ? `${path}?${new URLSearchParams(asked)}` : path;
  const sent = { accept: "application/json", ...headers };
  if (key) sent.authorization = `Bearer ${key}`;
  if (body !== undefined) sent["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(url, { method, signal, headers: sent, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, { message: "the gateway cannot be reached" });
  }
  return response;
}

async function refusal(response) {
  const text = await response.text();
  let error = { message: text.slice(0, 300) };
  try {
    const told = JSON.parse(text).error;
    error = typeof told === "object" && told ? told : { message: String(told ?? "") };
  } catch {
    // not JSON: something between here and the gateway answered
  }
  const refused = new Refused(response.status, error, response.headers);
  refused.door = new URL(response.url).pathname.includes("/admin/") && (response.status === 401 || response.status === 403);
  return refused;
}

async function json(response) {
  if (!response.ok) throw await refusal(response);
  return response.json();
}

export const admin = async (path, options) => json(await ask(`admin/${path}`, adminKey(), options));
export const client = async (path, options) => json(await ask(`v1/${path}`, clientKey(), options));

/** Readiness comes with 200 and 503 alike. */
export const ready = async (signal) => (await ask("readyz", "", { signal })).json();

export async function adminText(path, options) {
  const response = await ask(`admin/${path}`, adminKey(), options);
  if (!response.ok) throw await refusal(response);
  return response.text();
}

/** The answer to a reload, which tells its error in a body of its own. */
export async function reload() {
  const response = await ask("admin/reload", adminKey(), { method: "POST" });
  if (!response.ok && response.status !== 409) throw await refusal(response);
  return response.json();
}

export async function adminEvents(path, signal, after) {
  const response = await ask(`admin/${path}`, adminKey(), { signal, headers: { accept: "text/event-stream", ...(after ? { "last-event-id": String(after) } : {}) } });
  if (!response.ok) throw await refusal(response);
  return events(response);
}

/** A chat answer as a stream: its response, and its events. */
export async function chat(body, signal) {
  const response = await ask("v1/chat/completions", clientKey(), { method: "POST", body, signal, headers: { accept: "text/event-stream" } });
  if (!response.ok) throw await refusal(response);
  return { response, events: events(response) };
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let found = { id: "", event: "message", data: [] };
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split(/\r?\n/);
      rest = lines.pop();
      for (const line of lines) {
        if (line === "") {
          if (found.data.length) yield { id: found.id, event: found.event, data: found.data.join("\n") };
          found = { id: "", event: "message", data: [] };
        } else {
          read(found, line);
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function read(found, line) {
  const colon = line.indexOf(":");
  if (colon === 0) return; // a comment: the gateway is still there
  const name = colon < 0 ? line : line.slice(0, colon);
  const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
  if (name === "data") found.data.push(value);
  else if (name === "event" || name === "id") found[name] = value;
}
