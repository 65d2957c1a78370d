// A run's journal as a person reads it: phases, thoughts, tool calls with what came of them, and what is being written now.

import { facts, fill, h, pill } from "./dom.js";
import { compact, moment, money, span } from "./format.js";

export class Journal {
  constructor() {
    this.seq = 0;
    this._list = h("ol", { class: "journal", id: "journal" });
    this._now = h("div", { class: "now" });
    this.node = h("div", {}, this._list, this._now);
    this._calls = new Map();
    this._writing = null;
    this._todo = null;
  }

  /** Whether more may come. */
  live(yes) {
    this.node.classList.toggle("live", yes);
    if (!yes) this._still();
  }

  /** One event of the stream. */
  take(type, event) {
    if (type === "delta") {
      this._write(event);
      return;
    }
    if (typeof event.seq !== "number" || event.seq <= this.seq) return;
    this.seq = event.seq;
    this._still();
    const tell = TELL[type];
    if (type === "tool.started") this._started(event);
    else if (type === "tool.finished" && this._calls.has(call(event))) this._finished(event);
    else if (type === "todo.updated") this._todos(event);
    else if (tell) tell(this, event);
    else this._add("", type, h("pre", {}, JSON.stringify(event.data, null, 2)), event);
  }

  _add(kind, title, body, event) {
    const inner = event?.agent && event.parent_run_id ? h("span", { class: "dim" }, `${event.agent} `) : null;
    const time = event?.time ? h("time", { class: "dim" }, moment(event.time)) : null;
    const node = h("li", { class: `${kind} ${inner ? "inner" : ""}` }, h("div", { class: "head" }, inner, h("b", {}, title), time), body);
    this._list.append(node);
    return node;
  }

  /** A call and, when it is there, what came of it. What the thinking tool and the list of things to do say stands in events of its own. */
  _started(event) {
    const { name, arguments: given } = event.data;
    const own = OWN.has(name);
    const short = typeof given === "string" ? given : JSON.stringify(given ?? {});
    const asked = own || short.length > 400 ? h("details", {}, h("summary", {}, "what it was asked"), h("pre", {}, short === given ? given : JSON.stringify(given, null, 2))) : h("div", { class: "given" }, short);
    const outcome = h("div", { class: "outcome dim" }, "…");
    const node = this._add(own ? "tool quiet" : "tool", name ?? "tool", [asked, outcome], event);
    this._calls.set(call(event), { node, outcome, own });
  }

  _finished(event) {
    const { node, outcome, own } = this._calls.get(call(event));
    const { ok, ms, output } = event.data;
    const gave = text(output);
    outcome.classList.remove("dim");
    node.classList.toggle("bad", ok === false);
    node.querySelector("time")?.before(pill(ok === false ? "failed" : "ok", ok === false ? "bad" : "ok"), h("span", { class: "dim small" }, ms === undefined || ms === null ? "" : span(ms)));
    fill(outcome, ok !== false && (own || gave.length > 1500) ? h("details", {}, h("summary", {}, "what it gave"), h("pre", {}, gave)) : h("pre", {}, gave));
  }

  _todos(event) {
    const list = h("ul", { class: "todo" }, (event.data.todos ?? event.data.items ?? []).map((item) => h("li", { class: item.status ?? "" }, item.content ?? item.text ?? JSON.stringify(item))));
    this._todo?.classList.add("old");
    this._todo = this._add("todo", "To do", list, event);
  }

  /** Text that comes now; the journal has the whole when it is there. */
  _write({ kind, text: piece }) {
    if (kind === "summary") return;
    if (this._writing?.kind !== kind) {
      this._still();
      const body = h("div", { class: "prose" });
      fill(this._now, h("div", { class: `writing ${kind}` }, h("small", { class: "dim" }, kind === "reasoning" ? "thinks" : "writes"), body));
      this._writing = { kind, body };
    }
    this._writing.body.append(document.createTextNode(piece));
  }

  _still() {
    this._writing = null;
    fill(this._now);
  }
}

const OWN = new Set(["sequential_thinking", "todo_write"]);
const call = (event) => `${event.run_id} ${event.data.id}`;
const text = (value) => (typeof value === "string" ? value : JSON.stringify(value ?? "", null, 2));

const TELL = {
  "run.started": (journal, event) => journal._add("edge", event.parent_run_id ? `${event.agent} begins` : event.data.input ? "Goes on with a new message" : "Begins", null, event),
  "run.finished": (journal, event) => {
    const { status, reason } = event.data;
    journal._add(`edge ${status === "failed" ? "bad" : ""}`, `Ends: ${status}${reason ? ` (${reason})` : ""}`, event.parent_run_id && event.data.output ? h("div", { class: "prose" }, event.data.output) : null, event);
  },
  "phase.started": (journal, event) => journal._add("phase", `${event.data.phase}${event.data.round > 1 ? `, round ${event.data.round}` : ""}`, null, event),
  "phase.finished": (journal, event) => {
    const { phase, round, trace, ...rest } = event.data;
    const told = Object.entries(rest).filter(([, value]) => value !== null && value !== "");
    if (told.length) journal._add("result", `${phase}: result`, facts(told.map(([name, value]) => [name, h("span", { class: "prose" }, text(value))])), event);
  },
  thought: (journal, event) => {
    const { thought, thought_number: at, total_thoughts: all, branch_id: branch, revises_thought: revises } = event.data;
    const more = [branch && `branch ${branch}`, revises && `revises ${revises}`].filter(Boolean).join(", ");
    journal._add("thought", `Thought ${at ?? ""}${all ? ` of ${all}` : ""}`, [more && h("small", { class: "dim" }, more), h("div", { class: "prose" }, text(thought))], event);
  },
  "tool.finished": (journal, event) => journal._add("tool", `${event.data.name ?? "tool"}: result`, h("pre", {}, text(event.data.output)), event),
  "approval.required": (journal, event) => journal._add("wait", `Asks for approval: ${event.data.tool}`, h("pre", {}, `${event.data.reason ?? ""}\n${text(event.data.arguments)}`.trim()), event),
  "approval.resolved": (journal, event) => journal._add("wait", event.data.approved ? "Approved" : "Refused", event.data.reason ? h("div", { class: "prose" }, text(event.data.reason)) : null, event),
  attempt: (journal, event) => {
    const { provider, model, class: kind, status, ms, message, skipped } = event.data;
    const words = [h("span", {}, `${provider}/${model}`), pill(skipped ? "skipped" : (kind ?? String(status ?? "ok")), skipped ? "plain" : kind ? "bad" : "ok"), h("span", { class: "dim" }, skipped ? text(skipped) : span(ms ?? 0))];
    const node = journal._add("line", "", message ? h("pre", {}, text(message)) : null, event);
    node.querySelector("b").replaceWith(...words);
  },
  fallback: (journal, event) => journal._add("warn line", `Moves on from ${event.data.from} to ${event.data.to} (${event.data.class})`, null, event),
  usage: (journal, event) => {
    const { usage, cost, total } = event.data;
    const node = journal._add("line", "", null, event);
    node.querySelector("b").replaceWith(h("span", { class: "dim" }, `${compact(usage?.prompt_tokens ?? 0)} in, ${compact(usage?.completion_tokens ?? 0)} out${cost === null || cost === undefined ? "" : `, ${money(cost)}`}; so far ${compact(total?.total_tokens ?? 0)} tokens`));
  },
  "context.compacted": (journal, event) => journal._add("line", `Context compacted: ${compact(event.data.tokens_before ?? event.data.tokens)} to ${compact(event.data.tokens_after)} tokens`, null, event),
};
