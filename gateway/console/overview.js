// How the gateway does now: readiness, the last hour, providers, what failed lately.

import { admin, ready } from "./api.js";
import { alarm, card, dot, empty, facts, fill, h, pill, s } from "./dom.js";
import { ago, compact, grade, money, number, percent, span } from "./format.js";
import { rows_table } from "./requests.js";

const HOUR = 3600;
const AT_ONCE = 500;
const MOST = 4000; // requests that are looked at: more would make the page heavy, so then it tells the time that they cover

export async function page(here) {
  const hour = new LastHour(here.signal);
  const [top, waits, tiles, failures, parts, providers] = Array.from({ length: 6 }, () => h("div", {}));
  here.root.append(h("h1", {}, "Overview"), top, waits, tiles, h("div", { class: "columns" }, parts, providers), failures);
  await here.every(5000, async () => {
    const signal = here.signal;
    const waiting = { status: "waiting", limit: 20 };
    const [state, found, runs] = await Promise.all([ready(signal), admin("providers", { signal }), admin("runs", { query: waiting, signal }), hour.refresh()]);
    fill(top, banner(state));
    fill(waits, runs.data.length ? persons(runs) : null);
    fill(tiles, lastHour(hour));
    fill(parts, card("Parts", partsOf(state)));
    fill(providers, card("Providers", found.data.length ? found.data.map((each) => provider(each, asked(hour.rows, each.name))) : empty("No provider is configured.")));
    const bad = hour.rows.filter((row) => grade(row) !== "ok").slice(0, 8);
    fill(failures, card("What failed or took a second attempt", bad.length ? rows_table(bad) : empty("Nothing in the last hour.")));
  });
}

/** The requests of the last 60 minutes, the newest first; after the first time only new ones are asked for. */
class LastHour {
  constructor(signal) {
    this.rows = [];
    this.whole = true;
    this.signal = signal;
  }

  async refresh() {
    const since = Date.now() / 1000 - HOUR;
    const known = new Set(this.rows.map((row) => row.id + row.time));
    const fresh = [];
    let before = null;
    let limit = known.size ? 50 : AT_ONCE;
    let met = false;
    while (!met && fresh.length < MOST) {
      const got = await admin("requests", { query: { limit, before }, signal: this.signal });
      for (const row of got.data) {
        if (known.has(row.id + row.time)) met = true;
        else if (row.time >= since) fresh.push(row);
      }
      // rows stand in the order in which they ended: a long request may have begun before those below it
      if (got.next === null || (got.data.length && got.data.every((row) => row.time < since))) break;
      before = got.next;
      limit = AT_ONCE;
    }
    const kept = [...fresh, ...this.rows].filter((row) => row.time >= since);
    this.whole = kept.length <= MOST;
    this.rows = kept.slice(0, MOST);
  }
}

function banner(state) {
  const good = state.status === "ready";
  const fault = state.config?.error;
  return [
    h("div", { class: `banner ${good ? "ok" : "bad"}` }, dot(good ? "ok" : "bad"), h("strong", {}, good ? "Ready" : "Not ready"), h("span", { class: "dim" }, state.config?.file ?? "")),
    fault && alarm("The last reload failed; the config before it is in use", h("pre", {}, fault), h("a", { href: "#/config" }, "Config")),
  ];
}

/** Runs that wait for somebody's word. */
function persons(runs) {
  const links = runs.data.map((run) => h("li", {}, h("a", { href: `#/runs/${encodeURIComponent(run.id)}`, id: `waits-${run.id}` }, run.agent), h("span", { class: "dim" }, ` began ${ago(run.created_at)}`)));
  return h("section", { class: "card asks" }, h("h2", {}, "Runs that wait for a person or their client"), h("ul", { class: "plain" }, links));
}

/** What the attempts of the last hour say of a provider. */
function asked(rows, name) {
  const attempts = rows.flatMap((row) => row.attempts).filter((attempt) => attempt.provider === name && !attempt.skipped);
  if (!attempts.length) return "not asked in the last hour";
  const classes = new Map();
  for (const attempt of attempts) if (attempt.class) classes.set(attempt.class, (classes.get(attempt.class) ?? 0) + 1);
  const failed = [...classes].map(([kind, count]) => `${compact(count)} ${kind}`);
  return `asked ${attempts.length === 1 ? "once" : `${compact(attempts.length)} times`} in the last hour${failed.length ? `: ${failed.join(", ")}` : ", without a failure"}`;
}

function lastHour(hour) {
  const rows = hour.rows;
  const failed = rows.filter((row) => grade(row) === "bad").length;
  const tokens = rows.reduce((sum, row) => sum + row.prompt_tokens + row.completion_tokens, 0);
  const cost = rows.reduce((sum, row) => sum + (row.cost ?? 0), 0);
  const firsts = rows.map((row) => row.first_token_ms).filter((ms) => ms !== null).sort((a, b) => a - b);
  const at = (part) => (firsts.length ? span(firsts[Math.min(firsts.length - 1, Math.floor(part * firsts.length))]) : "–");
  const title = hour.whole ? "The last hour" : `The last ${number(MOST)} requests, since ${ago(rows.at(-1).time)}`;
  return h(
    "section",
    { class: "card hour" },
    h("h2", {}, title),
    h(
      "div",
      { class: "tiles" },
      tile("Requests", compact(rows.length)),
      tile("Failed", compact(failed), percent(failed, rows.length), failed ? "bad" : ""),
      tile("Tokens", compact(tokens)),
      tile("Cost", money(cost)),
      tile("First token, median", at(0.5), `95 %: ${at(0.95)}`),
    ),
    chart(rows),
  );
}

const tile = (name, value, more, kind = "") => h("div", { class: `tile ${kind}` }, h("span", {}, name), h("b", {}, value), h("small", {}, more ?? " "));

/** A bar for each minute; the failed part of it stands out. */
function chart(rows) {
  const now = Date.now() / 1000;
  const minutes = Array.from({ length: 60 }, () => ({ all: 0, bad: 0 }));
  for (const row of rows) {
    const at = 59 - Math.floor((now - row.time) / 60);
    if (!minutes[at]) continue;
    minutes[at].all += 1;
    if (grade(row) === "bad") minutes[at].bad += 1;
  }
  const most = Math.max(1, ...minutes.map((minute) => minute.all));
  const bars = minutes.flatMap((minute, at) => {
    const all = (minute.all / most) * 46;
    const bad = (minute.bad / most) * 46;
    const title = s("title", {}, `${59 - at} min ago: ${minute.all} requests, ${minute.bad} failed`);
    return [
      s("rect", { x: at * 10 + 1, width: 8, y: 47, height: 1, class: "floor" }),
      s("rect", { x: at * 10 + 1, width: 8, y: 48 - all, height: all, rx: 1.5, class: "all" }, title),
      s("rect", { x: at * 10 + 1, width: 8, y: 48 - bad, height: bad, rx: 1.5, class: "bad" }),
    ];
  });
  const label = `Requests per minute, at most ${most}`;
  return h("figure", { class: "chart" }, s("svg", { viewBox: "0 0 600 48", preserveAspectRatio: "none", role: "img", "aria-label": label }, bars), h("figcaption", {}, h("span", {}, "60 min ago"), h("span", {}, `at most ${most} a minute`), h("span", {}, "now")));
}

function partsOf(state) {
  const { config, store, shared, agents, adapters } = state;
  const error = agents?.work?.error;
  const errors = Object.entries(adapters?.errors ?? {});
  return [
    part("Config", config?.error ? "bad" : "ok", config?.error ? "the last reload failed" : "loaded"),
    part("Store", store?.error ? "bad" : "ok", store?.error ?? (store?.waiting ? `${number(store.waiting)} rows wait to be written` : "open")),
    part("Shared", Object.keys(shared?.other_revisions ?? {}).length ? "warn" : ({ off: "plain", up: "ok" }[shared?.state] ?? "warn"), sharedWords(shared)),
    agents && part("Agents", error ? "bad" : "ok", error ?? `${number(agents.live)} ${agents.live === 1 ? "run" : "runs"} under way here`),
    adapters && part("Adapters", "bad", errors.map(([file, why]) => h("pre", {}, `${file}: ${why}`))),
  ];
}

function sharedWords(shared) {
  const others = Object.keys(shared?.other_revisions ?? {});
  const state = shared?.state === "off" ? "not configured" : `${shared?.state ?? "–"}, ${number(shared?.processes)} processes`;
  return [state, shared?.error, shared?.limits, others.length && `another config is in use on ${others.join(", ")}`].filter(Boolean).join("; ");
}

const part = (name, kind, ...words) => h("div", { class: "part" }, dot(kind), h("b", {}, name), h("span", {}, ...words));

function provider(given, lately) {
  const resting = Object.entries(given.resting);
  return h(
    "article",
    { class: "provider" },
    h("div", { class: "head" }, dot(resting.length ? "bad" : "ok"), h("b", {}, given.name), given.adapter !== given.name && h("span", { class: "dim" }, given.adapter), h("span", { class: "dim where" }, given.base_url), resting.length > 0 && pill("rests", "bad")),
    h("p", { class: "dim small lately" }, lately),
    (resting.length > 0 || given.learned.length > 0) &&
      facts([
        ...resting.map(([target, why]) => [target, h("span", { class: "badly" }, why)]),
        given.learned.length > 0 && ["learned", h("ul", { class: "plain" }, given.learned.map((lesson) => h("li", {}, lesson)))],
      ]),
  );
}
