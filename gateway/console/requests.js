// Requests: the list, and one with every attempt.

import { admin } from "./api.js";
import { card, empty, facts, field, fill, h, none, pill, pressed, table } from "./dom.js";
import { compact, day, grade, moment, money, number, span } from "./format.js";

const PAGE = 50;
const GROWS = 500; // requests that come on top of pages that were opened: after that only the newest are shown, a page may stand open for days
const COLUMNS = [["Time", "when"], ["", "state"], ["Model", "name"], ["Key", "who"], ["Answered by", "target"], ["Tokens", "count"], ["Cost", "count"], ["Took", "count"]];

export async function page(here) {
  await (here.id === null ? list(here) : one(here));
}

async function list(here) {
  const asked = { key_name: here.query.get("key") ?? "", model: here.query.get("model") ?? "" };
  let rows = [];
  let next = null;
  let paged = false;
  let grown = 0;
  const body = h("div", {});
  const more = h("button", { type: "button", id: "more", onclick: older }, "Older requests");
  const key = h("input", { value: asked.key_name, id: "by-key", list: "key-names", placeholder: "all keys", autocomplete: "off" });
  const model = h("input", { value: asked.model, id: "by-model", list: "model-names", placeholder: "all models", autocomplete: "off" });
  const failed = h("input", { type: "checkbox", id: "failed", onchange: () => draw() });
  const [keys, models] = [h("datalist", { id: "key-names" }), h("datalist", { id: "model-names" })];
  here.root.append(
    h("h1", {}, "Requests"),
    h("form", { class: "filters", onsubmit: filter }, field("Key", key), field("Model", model), h("button", {}, "Show"), (asked.key_name || asked.model) && h("a", { href: "#/requests", class: "button" }, "All"), h("label", { class: "tick" }, failed, "only what failed"), keys, models),
    h("section", { class: "card" }, body, h("div", { class: "after" }, more)),
  );
  names(here, keys, models).catch(() => {}); // suggestions only

  function filter(event) {
    event.preventDefault();
    const words = new URLSearchParams(Object.entries({ key: key.value.trim(), model: model.value.trim() }).filter(([, value]) => value));
    location.hash = `#/requests${words.size ? `?${words}` : ""}`;
  }

  function draw() {
    const wanted = failed.checked ? rows.filter((row) => grade(row) !== "ok") : rows;
    fill(body, wanted.length ? rows_table(wanted) : rows.length ? empty(`None of the last ${number(rows.length)} requests failed.`) : empty(asked.key_name || asked.model ? "No request of this key and model is kept." : "No request yet; those that come appear by themselves. With retention.requests: 0 none is kept."));
    more.hidden = next === null;
  }

  async function older() {
    await pressed(more, async () => {
      const got = await admin("requests", { query: { ...asked, limit: PAGE, before: next }, signal: here.signal });
      rows.push(...got.data);
      next = got.next;
      [paged, grown] = [true, 0];
      draw();
    });
  }

  await here.every(3000, async () => {
    const got = await admin("requests", { query: { ...asked, limit: PAGE }, signal: here.signal });
    const known = new Set(rows.map(mark));
    const fresh = got.data.filter((row) => !known.has(mark(row)));
    if (rows.length && !fresh.length) return;
    grown += fresh.length;
    if (!paged || fresh.length === got.data.length || grown > GROWS) {
      rows = got.data;
      next = got.next;
      paged = false;
    } else {
      rows.unshift(...fresh); // the pages that were opened stay open
    }
    draw();
  });
}

const mark = (row) => `${row.id} ${row.time}`;

async function names(here, keys, models) {
  const [known, used] = await Promise.all([admin("keys", { signal: here.signal }), admin("usage", { query: { by: "model" }, signal: here.signal })]);
  fill(keys, [...new Set(known.data.map((key) => key.name))].map((name) => h("option", { value: name })));
  fill(models, used.data.slice(0, 200).map((row) => h("option", { value: row.name })));
}

/** Requests as a table; each row leads to its request. */
export function rows_table(rows) {
  return table(
    COLUMNS,
    rows.map((row) => {
      const href = `#/requests/${encodeURIComponent(row.id)}`;
      return {
        class: "leads",
        onclick: (event) => {
          if (!event.target.closest("a") && !String(getSelection())) location.hash = href;
        },
        cells: [
          h("a", { href, id: `open-${row.id}` }, moment(row.time)),
          state(row),
          h("span", {}, row.model || "–", row.endpoint !== "chat" && h("small", { class: "dim" }, ` ${row.endpoint}`)),
          row.key ?? "–",
          target(row),
          h("span", { title: `${number(row.prompt_tokens)} in, ${number(row.completion_tokens)} out` }, row.estimated && "~", compact(row.prompt_tokens + row.completion_tokens)),
          money(row.cost),
          span(row.total_ms),
        ],
      };
    }),
  );
}

function state(row) {
  const exchanges = row.attempts.filter((attempt) => !attempt.skipped).length;
  const kind = grade(row);
  if (row.class) return pill(row.class, kind);
  if (row.status >= 400) return pill(String(row.status), kind);
  return kind === "warn" ? pill(`${exchanges} attempts`, "warn") : pill(String(row.status), "ok");
}

function target(row) {
  if (!row.provider) return none();
  return h("span", {}, row.provider, h("span", { class: "dim" }, `/${row.target_model ?? ""}`));
}

async function one(here) {
  const row = await admin(`requests/${encodeURIComponent(here.id)}`, { signal: here.signal });
  const failed = grade(row) === "bad";
  here.root.append(
    h("p", { class: "back" }, h("a", { href: "#/requests" }, "Requests")),
    h("h1", {}, row.model || row.endpoint, " ", state(row)),
    h("p", { class: "dim mono wrap" }, row.id),
    card(
      null,
      facts([
        ["Begun", day(row.time)],
        ["Endpoint", row.endpoint],
        ["Key", row.key ? h("a", { href: `#/requests?key=${encodeURIComponent(row.key)}` }, row.key) : "–"],
        ["Answered by", row.provider ? target(row) : failed ? "nobody" : "–"],
        ["Status", `${row.status}${row.stream ? ", streamed" : ""}`],
        ["Class", row.class],
        ["Prompt tokens", `${number(row.prompt_tokens)}${row.cached_tokens ? `, ${number(row.cached_tokens)} of them cached` : ""}`],
        ["Completion tokens", `${number(row.completion_tokens)}${row.reasoning_tokens ? `, ${number(row.reasoning_tokens)} of them reasoning` : ""}`],
        row.estimated && ["Counted by", "estimate: the provider told nothing"],
        ["Cost", row.cost === null ? "no price is known" : money(row.cost)],
        ["First token", row.first_token_ms === null ? null : span(row.first_token_ms)],
        ["Whole", span(row.total_ms)],
        row.run_id && ["Run", h("a", { href: `#/runs/${encodeURIComponent(row.run_id)}` }, row.run_id)],
      ]),
    ),
    card("Attempts", row.attempts.length ? row.attempts.map((attempt) => attemptOf(attempt, row)) : empty("No provider was asked.")),
    card("Transforms", row.transforms.length ? h("ul", { class: "chips" }, row.transforms.map((words) => h("li", {}, words))) : empty("The request was sent as it came.")),
  );
}

/** One exchange: who was asked, what came of it, and its part of the whole time. */
function attemptOf(attempt, row) {
  const bar = h("i", {});
  bar.style.width = `${Math.min(100, Math.max(1, (100 * (attempt.ms ?? 0)) / Math.max(1, row.total_ms)))}%`;
  const kind = attempt.skipped ? "plain" : attempt.class ? "bad" : "ok";
  const words = attempt.skipped ? "skipped" : (attempt.class ?? String(attempt.status ?? "ok"));
  return h(
    "div",
    { class: "attempt" },
    h("div", { class: "head" }, h("b", {}, attempt.provider, h("span", { class: "dim" }, `/${attempt.model}`)), pill(words, kind), attempt.class && attempt.status !== null && h("span", { class: "dim" }, String(attempt.status)), h("span", { class: "dim" }, attempt.skipped ? "" : span(attempt.ms ?? 0))),
    !attempt.skipped && h("div", { class: `meter ${kind}` }, bar),
    (attempt.message || attempt.skipped) && h("pre", {}, attempt.message || attempt.skipped),
  );
}
