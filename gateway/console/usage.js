// What was used, by key, model or provider, in a span of whole hours.

import { admin, adminText } from "./api.js";
import { empty, field, fill, h, pressed, table } from "./dom.js";
import { compact, money, number, percent } from "./format.js";

const BY = { key: "Key", model: "Model", provider: "Provider" };
const DAY = 86400;
const SPANS = { "24 hours": 1, "7 days": 7, "30 days": 30, All: 0 };

export async function page(here) {
  let by = BY[here.query.get("by")] ? here.query.get("by") : "key";
  let redraw = () => {};
  const body = h("div", {});
  const from = h("input", { type: "datetime-local", id: "from", title: "the full hour", onchange: () => redraw() });
  const to = h("input", { type: "datetime-local", id: "to", title: "the full hour", onchange: () => redraw() });
  const bys = h("div", { class: "switch", role: "group", "aria-label": "Sums by" });
  const spans = h("div", { class: "switch", role: "group", "aria-label": "Span" });
  const save = h("button", { type: "button", onclick: () => pressed(save, csv) }, "CSV");
  from.value = local(Date.now() / 1000 - DAY);
  let named = "24 hours";
  here.root.append(h("h1", {}, "Usage"), h("div", { class: "filters" }, bys, spans, field("From", from), field("To", to), save), h("section", { class: "card" }, body));
  from.addEventListener("input", () => (named = ""));
  to.addEventListener("input", () => (named = ""));

  const query = () => ({ by, from: unix(from.value), to: unix(to.value) });

  async function csv() {
    const text = await adminText("usage", { query: { ...query(), format: "csv" } });
    const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    const link = document.createElement("a");
    link.href = url;
    link.download = `thinkgate-usage-by-${by}.csv`;
    link.click();
    URL.revokeObjectURL(url);
  }

  function chosen(name) {
    named = name;
    from.value = SPANS[name] ? local(Date.now() / 1000 - SPANS[name] * DAY) : "";
    to.value = "";
    redraw();
  }

  async function draw() {
    fill(bys, Object.entries(BY).map(([key, words]) => h("button", { type: "button", id: `by-${key}`, "aria-pressed": String(key === by), onclick: () => ((by = key), redraw()) }, words)));
    fill(spans, Object.keys(SPANS).map((name) => h("button", { type: "button", id: `span-${name.replace(" ", "-")}`, "aria-pressed": String(name === named), onclick: () => chosen(name) }, name)));
    const rows = (await admin("usage", { query: query(), signal: here.signal })).data;
    fill(body, rows.length ? sums(rows, by) : empty("Nothing was used in this time."));
  }

  redraw = await here.every(15000, draw);
}

function sums(rows, by) {
  const sum = (name) => rows.reduce((all, row) => all + row[name], 0);
  const all = { requests: sum("requests"), cost: sum("cost") };
  const share = all.cost > 0 ? (row) => row.cost / all.cost : (row) => row.requests / Math.max(1, all.requests);
  const columns = [[BY[by], "name"], [all.cost > 0 ? "Share of cost" : "Share of requests", "share"], ["Requests", "count"], ["Failed", "count"], ["Prompt", "count"], ["Cached", "count"], ["Completion", "count"], ["Cost", "count"]];
  const cells = rows
    .toSorted((a, b) => b.cost - a.cost || b.requests - a.requests)
    .map((row) => [
      row.name ? (by === "provider" ? row.name : h("a", { href: `#/requests?${by === "key" ? "key" : "model"}=${encodeURIComponent(row.name)}` }, row.name)) : h("span", { class: "dim" }, by === "key" ? "without a virtual key" : "none"),
      meter(share(row)),
      number(row.requests),
      row.failed ? h("span", { class: "badly", title: percent(row.failed, row.requests) }, number(row.failed)) : "0",
      compact(row.prompt_tokens),
      compact(row.cached_tokens),
      compact(row.completion_tokens),
      money(row.cost),
    ]);
  const foot = ["All", "", number(all.requests), number(sum("failed")), compact(sum("prompt_tokens")), compact(sum("cached_tokens")), compact(sum("completion_tokens")), money(all.cost)];
  return table(columns, cells, foot);
}

function meter(part) {
  const bar = h("i", {});
  bar.style.width = `${Math.max(part > 0 ? 1 : 0, 100 * part)}%`;
  return h("div", { class: "meter ok", title: percent(part, 1) }, bar);
}

/** A moment as a `datetime-local` control writes it, at the full hour. */
function local(seconds) {
  const at = new Date(seconds * 1000);
  at.setMinutes(0, 0, 0);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
}

const unix = (text) => (text ? Math.floor(new Date(text).getTime() / 1000) : "");
