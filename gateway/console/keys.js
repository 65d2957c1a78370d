// Virtual keys: all of them, a new one, other limits, another secret, the end.

import { admin } from "./api.js";
import { alarm, choice, copier, dialog, empty, field, fill, h, none, pill, pressed, table, tell } from "./dom.js";
import { ago, compact, day, day_of, money } from "./format.js";

const PERIODS = ["day", "week", "month", "total"].map((name) => [name, name === "total" ? "in total" : `per ${name}`]);
const COLUMNS = [["Name", "name"], ["State", "state"], ["Models", "models"], ["Limits", "limits"], ["Spent", "share"], ["Expires", "when"], ["", "do"]];

export async function page(here) {
  const body = h("div", {});
  const notes = h("div", {});
  const ended = h("input", { type: "checkbox", id: "ended", onchange: () => draw() });
  const add = h("button", { type: "button", class: "main", id: "new-key", onclick: () => pressed(add, make) }, "New key");
  let keys = [];
  let conf = null;
  here.root.append(h("div", { class: "title" }, h("h1", {}, "Keys"), add), notes, h("label", { class: "tick" }, ended, "revoked and expired ones too"), h("section", { class: "card" }, body));

  function draw() {
    const rows = keys.filter((key) => ended.checked || key.active || key.source === "file");
    fill(body, rows.length ? table(COLUMNS, rows.map((key) => row(key, { edit, renew, end }))) : empty(keys.length ? "No key is in use." : "No virtual key yet. Each has its own models, limits and budget."));
  }

  async function refresh() {
    const [found, settings] = await Promise.all([admin("keys", { signal: here.signal }), admin("config", { signal: here.signal })]);
    keys = found.data.toReversed();
    conf = settings.config;
    fill(notes, conf.server.admin_key === null && !keys.some((key) => key.active) ? alarm("There is no admin key", "The first key makes /admin ask for an admin key, and none is configured (server.admin_key): with it this console would be closed, and every client would need a key.") : null);
    draw();
  }

  async function make() {
    const names = await models(here);
    form("New key", { models: [], budget: null }, conf, names, async (name, terms) => {
      const made = await admin("keys", { method: "POST", body: { name, ...terms } });
      secret(made, () => refresh().catch(() => location.reload()));
    });
  }

  async function edit(key) {
    const names = await models(here);
    form(`Limits of ${key.name}`, key, conf, names, async (_, terms) => {
      await admin(`keys/${encodeURIComponent(key.id)}`, { method: "PATCH", body: terms });
      tell(`${key.name} has its new limits`);
      await refresh();
    });
  }

  function renew(key) {
    const overlap = choice([["0", "ends at once"], ["3600", "works for an hour more"], ["86400", "works for a day more"], ["604800", "works for a week more"]], "86400", { id: "overlap" });
    confirm(`Another secret for ${key.name}`, field("The old secret", overlap), "Make it", "main", async () => {
      const made = await admin(`keys/${encodeURIComponent(key.id)}/rotate`, { method: "POST", body: { overlap: Number(overlap.value) } });
      secret(made, () => refresh().catch(() => {}));
    });
  }

  function end(key) {
    confirm(`Revoke ${key.name}?`, h("p", {}, "Every secret of it is refused from now on. What it used stays in the books. This cannot be undone."), "Revoke", "danger", async () => {
      await admin(`keys/${encodeURIComponent(key.id)}`, { method: "DELETE" });
      tell(`${key.name} is revoked`);
      await refresh();
    });
  }

  await here.every(10000, refresh);
}

async function models(here) {
  try {
    const found = await admin("config", { signal: here.signal });
    return [...Object.keys(found.config.models), ...Object.keys(found.config.agents).map((name) => `agent/${name}`), "agent/*"];
  } catch {
    return [];
  }
}

function row(key, { edit, renew, end }) {
  const own = key.source === "store" && key.active && key.overlap_until === null;
  const button = (words, kind, act) => h("button", { type: "button", class: kind, id: `${words}-${key.id}`, "aria-label": `${words} ${key.name}`, onclick: () => act(key) }, words);
  return {
    class: key.active ? null : "over",
    cells: [
      h("span", {}, h("a", { href: `#/requests?key=${encodeURIComponent(key.name)}` }, key.name), (key.team || key.tags.length > 0) && h("small", { class: "dim" }, ` ${[key.team, ...key.tags].filter(Boolean).join(", ")}`)),
      state(key),
      key.models.length ? h("span", { class: "mono small" }, key.models.join(", ")) : none("all"),
      limits(key),
      spent(key),
      key.expires ? day_of(key.expires) : none("never"),
      h("div", { class: "acts" }, own && [button("Limits", "", edit), button("Rotate", "", renew), button("Revoke", "danger", end)]),
    ],
  };
}

function state(key) {
  if (key.revoked) return pill("revoked", "plain");
  if (key.overlap_until !== null) return pill(key.active ? `old secret, until ${day(key.overlap_until)}` : "old secret, over", key.active ? "warn" : "plain");
  if (!key.active) return pill("expired", "plain");
  return h("span", { title: key.created ? `made ${ago(key.created)}` : "stands in the config file" }, pill(key.source === "file" ? "in the file" : "active", "ok"));
}

function limits(key) {
  const found = [key.rpm && `${compact(key.rpm)} requests/min`, key.tpm && `${compact(key.tpm)} tokens/min`, key.concurrency && `${key.concurrency} at a time`].filter(Boolean);
  return found.length ? h("span", { class: "small" }, found.join(", ")) : none("none");
}

function spent(key) {
  if (!key.budget) return none("no budget");
  const bar = h("i", {});
  const part = (key.spent_usd ?? 0) / key.budget.usd;
  bar.style.width = `${Math.min(100, 100 * part)}%`;
  return h("div", {}, h("span", { class: "small" }, `${money(key.spent_usd ?? 0)} of ${money(key.budget.usd)} ${key.budget.per === "total" ? "in total" : `a ${key.budget.per}`}`), h("div", { class: `meter ${part >= 1 ? "bad" : part > 0.8 ? "warn" : "ok"}` }, bar));
}

/** What a key may do, as a form. `keep` gets the name and the terms as the API takes them; a refusal stays in the form. */
function form(title, key, conf, names, keep) {
  const fresh = key.name === undefined;
  const count = (name, words) => h("input", { id: `key-${name}`, type: "number", min: "1", step: "1", inputmode: "numeric", placeholder: words, value: key[name] ?? "" });
  const name = h("input", { id: "key-name", required: true, maxlength: "64", pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]{0,63}", title: "letters, digits, dot, hyphen, underscore", autocomplete: "off" });
  const allowed = h("input", { id: "key-models", value: key.models.join(" "), placeholder: "all", list: "known-models", autocomplete: "off", spellcheck: "false" });
  const [rpm, tpm, concurrency] = [count("rpm", "no limit"), count("tpm", "no limit"), count("concurrency", "no limit")];
  const usd = h("input", { id: "key-usd", type: "number", min: "0.000001", step: "any", inputmode: "decimal", placeholder: "no budget", value: key.budget?.usd ?? "" });
  const per = choice(PERIODS, key.budget?.per ?? "month", { id: "key-per", "aria-label": "Budget period" });
  const ends = key.expires ? new Date(key.expires * 1000).toISOString().slice(0, 10) : "";
  const expires = h("input", { id: "key-expires", type: "date", value: ends });
  const teams = Object.keys(conf?.teams ?? {});
  const team = choice([["", "none"], ...teams.map((each) => [each, each])], key.team ?? "", { id: "key-team" });
  const tags = h("input", { id: "key-tags", value: (key.tags ?? []).join(", "), placeholder: "none", autocomplete: "off" });
  const wrong = h("p", { class: "wrong", role: "alert" });
  const save = h("button", { class: "main", id: "key-save" }, fresh ? "Make the key" : "Save");
  const node = dialog(
    title,
    h(
      "form",
      { class: "form", onsubmit: send },
      fresh && field("Name", name, "for lists and bills; letters, digits, . - _"),
      field("Models", allowed, "names and globs, separated by spaces: smart agent/*"),
      h("datalist", { id: "known-models" }, names.map((each) => h("option", { value: each }))),
      h("div", { class: "row" }, field("Requests a minute", rpm), field("Tokens a minute", tpm), field("At a time", concurrency)),
      h("div", { class: "row" }, field("Budget, USD", usd), field("Period", per), field("Expires", expires)),
      h("div", { class: "row" }, teams.length > 0 && field("Team", team), field("Tags", tags, "separated by commas")),
      wrong,
      h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => node.close() }, "Cancel"), save),
    ),
  );

  function terms() {
    const number = (input) => (input.value === "" ? null : Number(input.value));
    return {
      models: allowed.value.split(/[\s,]+/).filter(Boolean),
      rpm: number(rpm),
      tpm: number(tpm),
      concurrency: number(concurrency),
      budget: usd.value === "" ? null : { usd: Number(usd.value), per: per.value },
      // a day that nobody changed stands for the very moment: at its midnight the key would end sooner, perhaps at once
      expires: expires.value === ends ? key.expires : expires.value ? new Date(`${expires.value}T00:00:00Z`).getTime() / 1000 : null,
      team: team.value || null,
      tags: tags.value.split(",").map((tag) => tag.trim()).filter(Boolean),
    };
  }

  async function send(event) {
    event.preventDefault();
    save.disabled = true;
    try {
      await keep(name.value.trim(), terms());
      node.close();
    } catch (error) {
      fill(wrong, error.message);
    } finally {
      save.disabled = false;
    }
  }
}

/** The one time that a secret is seen. */
function secret(made, after) {
  const node = dialog(
    `The secret of ${made.name}`,
    h("p", {}, "This is the only time that it is shown. Put it where it is needed now."),
    h("code", { class: "secret", id: "secret", tabindex: "0" }, made.key),
    made.warning && alarm("Mind", made.warning),
    h("div", { class: "buttons" }, copier(made.key), h("button", { type: "button", class: "main", id: "secret-done", onclick: () => node.close() }, "I have it")),
  );
  node.classList.add("keeps"); // whatever happens behind it: there is no second look
  node.addEventListener("close", () => {
    node.replaceChildren();
    after();
  });
}

function confirm(title, body, words, kind, act) {
  const wrong = h("p", { class: "wrong", role: "alert" });
  const go = h("button", { type: "button", class: kind, id: "confirm", onclick: sure }, words);
  const node = dialog(title, body, wrong, h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => node.close() }, "Cancel"), go));
  async function sure() {
    go.disabled = true;
    try {
      await act();
      node.close();
    } catch (error) {
      fill(wrong, error.message);
      go.disabled = false;
    }
  }
}
