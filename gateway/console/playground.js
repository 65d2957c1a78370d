// A chat with any model of the gateway, with the key of a client; reasoning, tool calls and what the gateway did stand apart.

import { chat, client, clientKey, keepClientKey } from "./api.js";
import { choice, empty, field, fill, h, pressed } from "./dom.js";
import { compact, span } from "./format.js";

const THINKING = [["", "as configured"], ["off", "off"], ["low", "low"], ["medium", "medium"], ["high", "high"]];
const SAMPLE = [{ type: "function", function: { name: "get_weather", description: "The weather of a city.", parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } } }];

export async function page(here) {
  const messages = [];
  const model = h("select", { id: "model" });
  const thinking = choice(THINKING, "", { id: "thinking" });
  const system = h("textarea", { id: "system", rows: "2", placeholder: "none" });
  const offered = h("input", { type: "checkbox", id: "offer" });
  const tools = h("textarea", { id: "tools", rows: "6", class: "mono", spellcheck: "false" });
  tools.value = JSON.stringify(SAMPLE, null, 1);
  const log = h("div", { class: "chat", id: "chat", "aria-live": "off" }, empty("Nothing has been said yet."));
  const prompt = h("textarea", { id: "prompt", rows: "3", placeholder: "A message; Enter sends it, Shift+Enter makes a line", "aria-label": "Message", onkeydown: enter });
  const send = h("button", { class: "main", id: "send" }, "Send");
  const stop = h("button", { type: "button", id: "stop", hidden: true, onclick: () => running?.abort() }, "Stop");
  const clear = h("button", { type: "button", id: "clear", onclick: restart }, "Start anew");
  const door = h("div", {});
  let running = null;
  here.signal.addEventListener("abort", () => running?.abort());

  here.root.append(
    h("h1", {}, "Playground"),
    door,
    h(
      "div",
      { class: "playground" },
      h(
        "aside",
        { class: "card" },
        field("Model", model),
        h("details", { class: "settings", open: innerWidth > 900 }, h("summary", {}, "Settings"), h("div", { class: "form" }, field("Thinking", thinking), field("System prompt", system), h("details", {}, h("summary", {}, "Tools"), h("label", { class: "tick" }, offered, "offer these"), tools))),
      ),
      h("div", { class: "talk" }, log, h("form", { class: "say", onsubmit: said }, prompt, h("div", { class: "buttons" }, clear, stop, send))),
    ),
  );

  function enter(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!running) send.click();
  }

  function restart() {
    running?.abort();
    messages.length = 0;
    fill(log, empty("Nothing has been said yet."));
    prompt.focus();
  }

  function said(event) {
    event.preventDefault();
    const text = prompt.value.trim();
    if (!text || running) return;
    prompt.value = "";
    say({ role: "user", content: text }, h("div", { class: "prose" }, text));
    answer();
  }

  function say(message, ...shown) {
    log.querySelector(".empty")?.remove();
    messages.push(message);
    const node = h("article", { class: `turn ${message.role}` }, ...shown);
    log.append(node);
    return node;
  }

  function body() {
    const asked = { model: model.value, stream: true, stream_options: { include_usage: true }, messages: [...(system.value.trim() ? [{ role: "system", content: system.value.trim() }] : []), ...messages] };
    if (thinking.value === "off") asked.disable_thinking = true;
    else if (thinking.value) asked.reasoning_effort = thinking.value;
    if (offered.checked) asked.tools = JSON.parse(tools.value);
    return asked;
  }

  async function answer() {
    running = new AbortController();
    send.disabled = true;
    stop.hidden = false;
    const turn = new Turn();
    log.append(turn.node);
    down();
    try {
      const { response, events } = await chat(body(), running.signal);
      turn.head(response.headers);
      for await (const event of events) {
        const followed = innerHeight + scrollY > document.documentElement.scrollHeight - 80; // who has scrolled up is left there
        turn.take(event.data);
        if (followed) down();
      }
    } catch (error) {
      turn.failed(error, running.signal.aborted);
      if (error.status === 401) await unlock();
    } finally {
      running = null;
      send.disabled = false;
      stop.hidden = true;
      turn.end();
    }
    if (turn.message) {
      messages.push(turn.message);
      if (turn.message.tool_calls) turn.node.append(results(turn.message.tool_calls));
    } else if (messages.at(-1)?.role === "user") {
      const { content } = messages.pop(); // it was not answered: two in a row are refused by some providers
      prompt.value ||= content;
    }
    down();
  }

  function down() {
    scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
  }

  /** What the tools gave, by hand: the answer goes on with it. */
  function results(calls) {
    const inputs = calls.map((call) => h("input", { "aria-label": `Result of ${call.function.name}`, placeholder: `what ${call.function.name} gives`, required: true, autocomplete: "off" }));
    const form = h("form", { class: "results", onsubmit: give }, inputs, h("button", {}, "Give the results"));
    function give(event) {
      event.preventDefault();
      if (running) return;
      form.remove();
      calls.forEach((call, at) => say({ role: "tool", tool_call_id: call.id, content: inputs[at].value }, h("small", { class: "dim" }, `${call.function.name} gave`), h("pre", {}, inputs[at].value)));
      answer();
    }
    return form;
  }

  async function unlock() {
    const key = h("input", { type: "password", id: "client-key", autocomplete: "off", required: true });
    const enter = h("button", {}, "Use it");
    const submit = (event) => {
      event.preventDefault();
      pressed(enter, async () => {
        keepClientKey(key.value.trim());
        await models();
      });
    };
    fill(door, h("form", { class: "card filters", onsubmit: submit }, field("Client key", key, clientKey() ? "the gateway does not know the one that was given" : "what clients present; kept in this tab until it is closed"), enter));
    keepClientKey("");
  }

  async function models() {
    try {
      const found = await client("models", { signal: here.signal });
      const wanted = model.value || here.query.get("model");
      fill(model, found.data.map((each) => h("option", { value: each.id, selected: each.id === wanted }, each.id)));
      fill(door);
    } catch (error) {
      if (error.status !== 401) throw error;
      await unlock();
    }
  }

  await models();
}

/** An answer while it comes. */
class Turn {
  constructor() {
    this.message = null;
    this._thinking = h("div", { class: "prose" });
    this._thought = h("details", { class: "thinking", hidden: true, open: true }, h("summary", {}, "Thinking"), this._thinking);
    this._text = h("div", { class: "prose answer" });
    this._calls = [];
    this._tools = h("div", {});
    this._foot = h("footer", { class: "dim" });
    this._begun = performance.now();
    this._content = "";
    this._reasoning = "";
    this._whole = false;
    this.node = h("article", { class: "turn assistant", "aria-busy": "true" }, this._thought, this._text, this._tools, this._foot);
  }

  head(headers) {
    this._headers = headers;
  }

  take(data) {
    if (data === "[DONE]") {
      this._whole = true;
      return;
    }
    const chunk = JSON.parse(data);
    if (chunk.error) throw Object.assign(new Error(chunk.error.message ?? "the stream broke off"), { attempts: chunk.error.attempts ?? [], code: chunk.error.code });
    if (chunk.usage) this._usage = chunk.usage;
    const choice = chunk.choices?.[0];
    const delta = choice?.delta ?? {};
    this._first ??= delta.content || delta.reasoning_content ? performance.now() - this._begun : undefined;
    if (delta.reasoning_content) {
      this._thought.hidden = false;
      this._reasoning += delta.reasoning_content;
      this._thinking.append(document.createTextNode(delta.reasoning_content));
    }
    const words = delta.content ?? delta.refusal;
    if (words) {
      this._content += words;
      this._text.append(document.createTextNode(words));
    }
    for (const piece of delta.tool_calls ?? []) this._call(piece);
    if (choice?.finish_reason) this._finish = choice.finish_reason;
  }

  _call(piece) {
    const at = piece.index ?? 0;
    if (!this._calls[at]) {
      const name = h("b", {});
      const given = h("pre", {});
      this._calls[at] = { call: { id: "", type: "function", function: { name: "", arguments: "" } }, name, given };
      this._tools.append(h("div", { class: "call" }, h("small", { class: "dim" }, "calls "), name, given));
    }
    const { call, name, given } = this._calls[at];
    call.id ||= piece.id ?? "";
    call.function.name += piece.function?.name ?? "";
    call.function.arguments += piece.function?.arguments ?? "";
    name.textContent = call.function.name;
    given.textContent = call.function.arguments;
  }

  failed(error, stopped) {
    this._headers ??= error.headers;
    if (stopped) {
      this._text.append(h("p", { class: "dim" }, "Stopped."));
      return;
    }
    this._text.append(
      h("div", { class: "alarm", role: "alert" }, h("strong", {}, error.code ?? "Failed"), h("div", { class: "prose" }, error.message)),
      ...(error.attempts ?? []).map((attempt) => h("p", { class: "small" }, `${attempt.provider}/${attempt.model}: ${attempt.skipped ?? attempt.class ?? attempt.status ?? ""} ${attempt.message ?? ""}`)),
    );
  }

  end() {
    this.node.removeAttribute("aria-busy");
    if (this._whole) {
      const calls = this._calls.filter(Boolean).map(({ call }) => call);
      this.message = { role: "assistant", content: this._content, ...(this._reasoning ? { reasoning_content: this._reasoning } : {}), ...(calls.length ? { tool_calls: calls } : {}) };
    }
    fill(this._foot, this._facts());
  }

  /** What the gateway's headers and the usage say of this answer. */
  _facts() {
    const of = (name) => this._headers?.get(`x-thinkgate-${name}`);
    const request = this._headers?.get("x-request-id");
    const run = of("run-id");
    const told = [
      of("provider") && `${of("provider")}/${of("model") ?? ""}`,
      Number(of("attempts") ?? 0) > 1 && of("chain"),
      of("cache") === "hit" && "from the cache",
      this._first && `first token ${span(this._first)}`,
      span(performance.now() - this._begun),
      this._usage && `${compact(this._usage.prompt_tokens)} in, ${compact(this._usage.completion_tokens)} out`,
      this._finish && this._finish !== "stop" && this._finish,
    ].filter(Boolean);
    return [
      h("span", {}, told.join(" · ")),
      of("transforms") && h("span", { class: "mono wrap" }, of("transforms")),
      h("span", {}, request && h("a", { href: `#/requests/${encodeURIComponent(request)}` }, "request"), run && [" ", h("a", { href: `#/runs/${encodeURIComponent(run)}` }, "run")]),
    ];
  }
}
