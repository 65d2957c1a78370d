// Elements without markup: every text becomes a text node. Model names, errors and answers are words of strangers.

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "open", "selected"]);

/** An element with attributes, listeners (`onclick: function`) and children: nodes, texts, lists of them; null is left out. */
export function h(name, given, ...children) {
  return fill(dress(document.createElement(name), given), ...children);
}

/** The same for SVG. */
export function s(name, given, ...children) {
  return fill(dress(document.createElementNS("http://www.w3.org/2000/svg", name), given), ...children);
}

function dress(node, given) {
  for (const [key, value] of Object.entries(given ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (PROPERTIES.has(key)) node[key] = value;
    else if (key === "href" && !String(value).startsWith("#/")) throw new TypeError("links lead to pages of the console only");
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  return node;
}

/** Put children in the place of those that a node has. What had the focus has it again, if it has an id. */
export function fill(node, ...children) {
  const focused = node.contains(document.activeElement) ? document.activeElement.id : "";
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  return node;
}

/** The words of a state with its colour: ok, warn, bad, busy or plain. */
export const pill = (words, kind = "plain") => h("span", { class: `pill ${kind}` }, words);

export const dot = (kind) => h("span", { class: `dot ${kind}`, "aria-hidden": "true" });

export const card = (title, ...children) => h("section", { class: "card" }, title && h("h2", {}, title), ...children);

export const empty = (...words) => h("p", { class: "empty" }, ...words);

export const alarm = (title, ...words) => h("div", { class: "alarm", role: "alert" }, h("strong", {}, title), h("div", { class: "prose" }, ...words));

/** Names and what stands behind them; entries whose value is null are left out. */
export function facts(entries) {
  const kept = entries.filter((entry) => entry && entry[1] !== null && entry[1] !== undefined && entry[1] !== "");
  return h("dl", { class: "facts" }, kept.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** A table whose rows become cards on a narrow screen. Columns: [title, class]; cells in their order. */
export function table(columns, rows, foot) {
  const cells = (row, tag) => row.map((value, at) => h(tag, { class: columns[at][1], "data-label": columns[at][0] || null }, value === "–" ? none() : value));
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, columns.map(([title, kind]) => h("th", { class: kind, scope: "col" }, title)))),
      h("tbody", {}, rows.map((row) => h("tr", { class: row.class ?? null, onclick: row.onclick ?? null }, cells(row.cells ?? row, "td")))),
      foot && h("tfoot", {}, h("tr", {}, cells(foot, "td"))),
    ),
  );
}

/** What stands where there is nothing; a narrow screen leaves it out. */
export const none = (words = "–") => h("span", { class: "dim none" }, words);

/** A labelled control. */
export function field(label, control, hint) {
  return h("label", { class: "field" }, h("span", {}, label), control, hint && h("small", {}, hint));
}

/** A select of [value, words] pairs. */
export function choice(options, value, given) {
  return h("select", given, options.map(([key, words]) => h("option", { value: key, selected: key === value }, words)));
}

/** A modal dialog with these contents; it closes with Escape and is gone afterwards. */
export function dialog(title, ...children) {
  const heading = h("h2", { id: "dialog-title" }, title);
  const node = h("dialog", { "aria-labelledby": "dialog-title", onclose: () => node.remove() }, heading, ...children);
  document.body.append(node);
  node.showModal();
  return node;
}

/** A button that copies a text and says so. */
export function copier(text, words = "Copy") {
  const button = h("button", { type: "button", onclick: copy }, words);
  async function copy() {
    let done = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      done = false; // no clipboard without TLS: the text can be marked and copied by hand
    }
    button.textContent = done ? "Copied" : "Mark it and copy by hand";
    setTimeout(() => (button.textContent = words), 2500);
  }
  return button;
}

let quiet;

/** A short word at the edge of the window, read out too. */
export function tell(words, kind = "ok") {
  const node = document.getElementById("notice");
  fill(node, h("p", { class: kind }, words));
  clearTimeout(quiet);
  quiet = setTimeout(() => fill(node), 6000);
}

/** Run what a button does while it cannot be pressed; what is refused is told. */
export async function pressed(button, act) {
  button.disabled = true;
  try {
    return await act();
  } catch (error) {
    if (error.name !== "AbortError") tell(error.message, "bad");
    return undefined;
  } finally {
    button.disabled = false;
  }
}
