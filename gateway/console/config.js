// The config in use, secrets masked, and reading it again.

import { admin, reload } from "./api.js";
import { alarm, card, fill, h, pressed } from "./dom.js";

export async function page(here) {
  const [top, tree] = [h("div", {}), h("div", { class: "tree" })];
  const unset = h("input", { type: "checkbox", id: "unset", onchange: () => draw() });
  const button = h("button", { type: "button", class: "main", id: "reload", onclick: again }, "Reload");
  const outcome = h("div", { role: "status" });
  let found = null;
  here.root.append(h("div", { class: "title" }, h("h1", {}, "Config"), button), outcome, top, h("label", { class: "tick" }, unset, "settings that are not set too"), tree);

  function draw() {
    fill(top, h("p", { class: "dim mono wrap" }, found.file), found.reload_error && alarm("The last reload failed; what you see is the config before it", h("pre", {}, found.reload_error)));
    const sections = Object.entries(found.config).map(([name, value]) => [value !== null && typeof value === "object", entry(name, value, unset.checked, true)]);
    const [plain, deep] = [sections.filter(([nested]) => !nested), sections.filter(([nested]) => nested)].map((part) => part.map(([, node]) => node).filter(Boolean));
    fill(tree, [...deep, plain].map((nodes) => card(null, nodes)));
  }

  async function look() {
    found = await admin("config", { signal: here.signal });
    draw();
  }

  async function again() {
    await pressed(button, async () => {
      const result = await reload();
      fill(outcome, h("p", { class: `banner ${result.reloaded ? "ok" : "bad"}`, id: "reloaded" }, result.reloaded ? "Reloaded: new requests use what the file says now." : "Not reloaded: the config before it stays in use."));
      await look();
    });
  }

  await here.every(0, look);
}

const nothing = (value) => value === null || value === "" || (typeof value === "object" && Object.values(value).every(nothing));

/** A target of a chain in one line, where it says no more than that. */
const target = (item) => (item?.provider && item.model && Object.entries(item).every(([key, value]) => key === "provider" || key === "model" || nothing(value) || (key === "weight" && value === 1)) ? `${item.provider}/${item.model}` : item);

/** A setting: its value, or what stands in it, to be folded. */
function entry(name, value, all, open) {
  if (!all && nothing(value)) return null;
  if (!all && Array.isArray(value)) value = value.map(target);
  if (value === null || typeof value !== "object") return h("div", { class: "leaf" }, h("b", {}, name), ": ", h("span", { class: value === "***" ? "dim" : "value" }, scalar(value)));
  const inner = Object.entries(value);
  if (!inner.length) return h("div", { class: "leaf" }, h("b", {}, name), ": ", h("span", { class: "dim" }, Array.isArray(value) ? "[]" : "{}"));
  if (Array.isArray(value) && value.every((item) => item === null || typeof item !== "object")) return h("div", { class: "leaf" }, h("b", {}, name), ": ", h("span", { class: "value" }, value.map(scalar).join(", ")));
  const words = Array.isArray(value) ? inner.map(([at, item]) => entry(item?.name ?? item?.provider ?? `${Number(at) + 1}`, item, all, true)) : inner.filter(([key, item]) => key !== "name" || item !== name).map(([key, item]) => entry(key, item, all, inner.length < 12 && name !== "agents" && name !== "providers"));
  return h("details", { open }, h("summary", {}, h("b", {}, name), h("small", { class: "dim" }, ` ${inner.length}`)), h("div", { class: "nest" }, words));
}

const scalar = (value) => (value === null ? "null" : value === "" ? '""' : String(value));
