// Runs of agents: the list, and one with its journal as it is written.

import { admin, adminEvents } from "./api.js";
import { alarm, card, choice, empty, facts, field, fill, h, pill, pressed, table, tell } from "./dom.js";
import { ago, compact, day, moment, money, number, RUN, span } from "./format.js";
import { Journal } from "./journal.js";

const COLUMNS = [["Begun", "when"], ["", "state"], ["Agent", "name"], ["Key", "who"], ["Answer", "words"], ["Steps", "count"], ["Tokens", "count"], ["Cost", "count"], ["Took", "count"]];
const PAGE = 50;
const GROWS = 500; // runs that come on top of pages that were opened: after that only the newest are shown
const OVER = new Set(["completed", "incomplete", "failed", "cancelled"]);

export async function page(here) {
  await (here.id === null ? list(here) : one(here));
}

async function list(here) {
  const asked = { agent: here.query.get("agent") ?? "", status: here.query.get("status") ?? "" };
  const body = h("div", {});
  const more = h("button", { type: "button", id: "more", hidden: true, onclick: older }, "Older runs");
  const status = choice([["", "all"], ...Object.keys(RUN).map((name) => [name, name])], asked.status, { id: "by-status", onchange: filter });
  const agent = h("input", { id: "by-agent", value: asked.agent, placeholder: "all agents", autocomplete: "off", onchange: filter });
  let rows = [];
  let next = null;
  let paged = false;
  let opened = 0;
  here.root.append(h("h1", {}, "Runs"), h("form", { class: "filters", onsubmit: filter }, field("Status", status), field("Agent", agent)), h("section", { class: "card" }, body, h("div", { class: "after" }, more)));

  function filter(event) {
    event.preventDefault();
    const words = new URLSearchParams(Object.entries({ agent: agent.value.trim(), status: status.value }).filter(([, value]) => value));
    location.hash = `#/runs${words.size ? `?${words}` : ""}`;
  }

  function draw() {
    fill(body, rows.length ? table(COLUMNS, rows.map(row)) : empty(asked.agent || asked.status ? "There is no such run." : "No agent has run yet."));
    more.hidden = next === null;
  }

  async function older() {
    await pressed(more, async () => {
      const got = await admin("runs", { query: { ...asked, limit: PAGE, before: next }, signal: here.signal });
      rows.push(...got.data);
      next = got.next;
      [paged, opened] = [true, rows.length];
      draw();
    });
  }

  await here.every(3000, async () => {
    const got = await admin("runs", { query: { ...asked, limit: PAGE }, signal: here.signal });
    const fresh = new Map(got.data.map((run) => [run.id, run]));
    if (paged && rows.length <= opened + GROWS) {
      rows = [...got.data, ...rows.filter((run) => !fresh.has(run.id))];
    } else {
      rows = got.data;
      next = got.next;
      paged = false;
    }
    draw();
  });
}

const took = (run) => span(1000 * ((run.finished_at ?? Date.now() / 1000) - run.created_at));
const state = (run) => pill(run.reason ? `${run.status}: ${run.reason}` : run.status, RUN[run.status] ?? "plain");
const tokens = (run) => run.usage?.total_tokens ?? 0;

function row(run) {
  const href = `#/runs/${encodeURIComponent(run.id)}`;
  return {
    class: "leads",
    onclick: (event) => {
      if (!event.target.closest("a") && !String(getSelection())) location.hash = href;
    },
    cells: [
      h("a", { href, id: `open-${run.id}` }, moment(run.created_at)),
      state(run),
      run.agent,
      run.key ?? "–",
      h("span", { class: "cut" }, run.error?.message ?? run.output ?? ""),
      number(run.steps),
      compact(tokens(run)),
      money(run.cost),
      run.finished_at ? took(run) : h("span", { class: "dim" }, ago(run.created_at)),
    ],
  };
}

async function one(here) {
  const path = `runs/${encodeURIComponent(here.id)}`;
  const head = h("div", {});
  const asks = h("div", {});
  const end = h("div", {});
  const away = h("div", {});
  const journal = new Journal();
  here.root.append(h("p", { class: "back" }, h("a", { href: "#/runs" }, "Runs")), head, asks, h("section", { class: "card" }, h("h2", {}, "Journal"), journal.node, away), end);
  let run = null;
  let drawn = "";
  let quiet = null;

  async function look() {
    clearTimeout(quiet);
    run = await admin(path, { query: { events: "none" }, signal: here.signal });
    fill(head, heading(run, act));
    fill(end, result(run));
    const asked = JSON.stringify([run.status, run.waiting]);
    if (asked !== drawn) fill(asks, wishes(run, act)); // else what was typed would be gone
    drawn = asked;
  }

  /** The journal says that a run asks before the run is at rest and waits: look once more when nothing has come for a while. */
  function soon() {
    clearTimeout(quiet);
    quiet = setTimeout(() => here.signal.aborted || look().catch(() => {}), 500);
  }

  async function act(what, body, done) {
    await admin(`${path}/${what}`, { method: "POST", body });
    tell(done);
    await look();
    if (!following) follow();
  }

  let following = false;
  async function follow() {
    following = true;
    while (!here.signal.aborted) {
      try {
        for await (const event of await adminEvents(`${path}/events`, here.signal, journal.seq)) {
          journal.take(event.event, JSON.parse(event.data));
          if (event.event === "run.finished") await look();
          else if (event.event !== "delta") soon();
        }
        await look();
        fill(away);
        if (OVER.has(run.status)) break;
      } catch (error) {
        if (here.signal.aborted || here.locked(error)) break;
        fill(away, alarm("The run cannot be followed now; it is tried again", error.message));
        if (error.status >= 400 && error.status < 500) break; // the run is gone
      }
      await new Promise((resolve) => setTimeout(resolve, 1000)); // the gateway went, or something between: go on where we were
    }
    following = false;
    journal.live(false);
  }

  await look();
  journal.live(!OVER.has(run.status));
  follow();
  here.every(1000, () => {
    const clock = document.getElementById("took");
    if (clock && !OVER.has(run.status)) clock.textContent = took(run);
  });
}

function heading(run, act) {
  const stop = h("button", { type: "button", class: "danger", id: "cancel", onclick: () => pressed(stop, () => act("cancel", {}, "The run is told to end")) }, "Cancel the run");
  return [
    h("div", { class: "title" }, h("h1", {}, run.agent, " ", state(run)), !OVER.has(run.status) && stop),
    h("p", { class: "dim mono wrap" }, run.id),
    card(
      null,
      facts([
        ["Begun", day(run.created_at)],
        ["Took", h("span", { id: "took" }, took(run))],
        ["Key", run.key ?? "–"],
        ["Session", run.session_id],
        ["Steps", number(run.steps)],
        ["Tokens", number(tokens(run))],
        ["Cost", run.cost === null ? "no price is known" : money(run.cost)],
      ]),
      h("div", { class: "asked" }, run.input.messages.map((message) => h("blockquote", {}, h("small", { class: "dim" }, message.role), h("div", { class: "prose" }, words(message.content))))),
    ),
  ];
}

function words(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return content ? JSON.stringify(content) : "";
  return content.map((part) => part.text ?? `[${part.type}]`).join("\n");
}

/** What the run waits for, where a person can give it. */
function wishes(run, act) {
  const approvals = run.status === "waiting" ? (run.waiting?.calls ?? []).filter((call) => call.kind === "approval") : [];
  const out = approvals.map((call) => approval(call, act));
  if (run.status === "incomplete" || (run.status === "waiting" && !approvals.length)) out.push(goOn(run, act));
  return out;
}

function approval(call, act) {
  const asked = call.arguments ?? {};
  const why = h("input", { id: `why-${call.id}`, placeholder: "a reason, if you refuse", autocomplete: "off" });
  const say = (approved) => (event) => pressed(event.currentTarget, () => act("approve", { id: call.id, approved, ...(why.value ? { reason: why.value } : {}) }, approved ? "Approved" : "Refused"));
  return h(
    "section",
    { class: "card asks" },
    h("h2", {}, "Waits for your word: ", asked.tool ?? call.name ?? "approval"),
    asked.reason && h("p", { class: "prose" }, asked.reason),
    h("pre", {}, JSON.stringify(asked.arguments ?? asked, null, 2)),
    h("div", { class: "row" }, why, h("button", { type: "button", class: "main", onclick: say(true) }, "Approve"), h("button", { type: "button", class: "danger", onclick: say(false) }, "Refuse")),
  );
}

function goOn(run, act) {
  const input = h("input", { id: "more-input", required: true, placeholder: "the next message", autocomplete: "off" });
  const send = h("button", { class: "main" }, "Go on");
  const submit = (event) => {
    event.preventDefault();
    pressed(send, () => act("input", { input: input.value }, "The run goes on"));
  };
  return h("form", { class: "card asks", onsubmit: submit }, h("h2", {}, run.status === "waiting" ? "Waits for its client" : `Ended early: ${run.reason ?? ""}`), h("div", { class: "row" }, input, send));
}

function result(run) {
  if (!OVER.has(run.status)) return null;
  return card(
    run.status === "completed" ? "Answer" : "What there is of an answer",
    run.error && h("pre", { class: "badly" }, run.error.message ?? JSON.stringify(run.error)),
    run.output ? h("div", { class: "prose answer" }, run.output) : empty("No answer."),
  );
}
