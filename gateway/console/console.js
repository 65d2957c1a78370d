// The frame: who may look, which page is shown, light or dark.

import { admin, adminKey, keepAdminKey, keepClientKey, Refused } from "./api.js";
import * as config from "./config.js";
import { alarm, card, field, fill, h, pressed } from "./dom.js";
import * as keys from "./keys.js";
import * as overview from "./overview.js";
import * as playground from "./playground.js";
import * as requests from "./requests.js";
import * as runs from "./runs.js";
import * as usage from "./usage.js";

const PAGES = { overview, requests, usage, keys, runs, config, playground };
const TITLES = { overview: "Overview", requests: "Requests", usage: "Usage", keys: "Keys", runs: "Runs", config: "Config", playground: "Playground" };

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const leave = document.getElementById("leave");
let shown = new AbortController();

/** What a page gets: where it draws, what its address says, and what ends with it. */
function visit(signal, parts, query) {
  const root = h("div", { class: "page" });
  return {
    root,
    id: parts[1] ? decoded(parts[1]) : null,
    query,
    signal,
    locked,
    /** Do something now and again and again, while the page is looked at; gives what does it at once. A refusal is shown on top of what stands there. */
    async every(ms, act) {
      const trouble = h("div", {});
      root.prepend(trouble);
      let [busy, again] = [false, false];
      const once = async () => {
        again = true;
        if (busy) return; // it is done once more when it is over
        busy = true;
        try {
          while (again && !signal.aborted) {
            again = false;
            await act();
          }
          fill(trouble);
        } catch (error) {
          if (signal.aborted || error.name === "AbortError") return;
          if (locked(error)) return;
          fill(trouble, alarm("This could not be read", error.message));
        } finally {
          busy = false;
        }
      };
      await once();
      if (!ms || signal.aborted) return once;
      const timer = setInterval(() => document.hidden || busy || once(), ms);
      const seen = () => document.hidden || once();
      document.addEventListener("visibilitychange", seen, { signal });
      signal.addEventListener("abort", () => clearInterval(timer));
      return once;
    },
  };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // somebody's own address
  }
}

async function show() {
  shown.abort();
  document.querySelectorAll("dialog:not(.keeps)").forEach((open) => open.close());
  shown = new AbortController();
  const [path, words] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/");
  const name = Object.hasOwn(PAGES, parts[0]) ? parts[0] : "overview";
  for (const link of nav.querySelectorAll("a")) {
    const current = link.dataset.page === name;
    if (current) {
      link.setAttribute("aria-current", "page");
      link.scrollIntoView({ block: "nearest", inline: "center" });
    } else {
      link.removeAttribute("aria-current");
    }
  }
  document.title = `${TITLES[name]} · Thinkgate`;
  const here = visit(shown.signal, parts, new URLSearchParams(words ?? ""));
  fill(main, here.root);
  window.scrollTo(0, 0);
  try {
    await PAGES[name].page(here);
  } catch (error) {
    if (here.signal.aborted || error.name === "AbortError" || locked(error)) return;
    here.root.prepend(alarm("This could not be read", error.message));
  }
}

/** Whether a refusal means that the door is closed; then it is shown instead of the page. */
function locked(error) {
  if (!(error instanceof Refused) || !error.door) return false;
  shown.abort();
  if (error.status === 401) signIn(adminKey() ? "This key is not the admin key." : "");
  else closed(error);
  return true;
}

function signIn(why) {
  keepAdminKey("");
  nav.hidden = leave.hidden = true;
  document.title = "Thinkgate";
  const key = h("input", { type: "password", id: "admin-key", autocomplete: "off", spellcheck: "false", required: true });
  const button = h("button", { class: "main" }, "Sign in");
  const form = h("form", { class: "door", onsubmit: enter }, h("h1", {}, "Thinkgate"), field("Admin key", key, "server.admin_key of the config; kept in this tab until it is closed"), why && h("p", { class: "wrong", role: "alert" }, why), button);
  function enter(event) {
    event.preventDefault();
    pressed(button, async () => {
      keepAdminKey(key.value.trim());
      await start();
    });
  }
  fill(main, form);
  key.focus();
}

function closed(error) {
  nav.hidden = leave.hidden = true;
  const advice = {
    admin_disabled: "Set server.admin_key in the config (or THINKGATE_ADMIN_KEY with the embedded default) and reload: then the console asks for that key.",
    loopback_only: "Without keys only this machine itself is served. Set server.admin_key, or open the console through a tunnel to the gateway's machine.",
    host_not_allowed: "Open the console under localhost or 127.0.0.1, or add this name to server.hosts.",
    origin_not_allowed: "Open the console under localhost or 127.0.0.1, or add this name to server.hosts.",
  };
  const again = h("button", { type: "button", class: "main", onclick: () => start() }, "Try again");
  fill(main, h("div", { class: "door wide" }, h("h1", {}, "The console is closed"), card(null, h("p", {}, error.message), h("p", { class: "dim" }, advice[error.code] ?? ""), again)));
}

async function start() {
  try {
    await admin("providers");
  } catch (error) {
    if (!locked(error)) fill(main, h("div", { class: "door wide" }, alarm("No answer", error.message), h("button", { type: "button", class: "main", onclick: () => start() }, "Try again")));
    return;
  }
  nav.hidden = false;
  leave.hidden = !adminKey();
  await show();
}

const THEMES = ["auto", "light", "dark"];

function theme(name) {
  localStorage.setItem("thinkgate.theme", name);
  document.documentElement.dataset.theme = name;
  const button = document.getElementById("theme");
  button.textContent = { auto: "◐", light: "☀", dark: "☾" }[name];
  button.setAttribute("aria-label", `Colours: ${name}`);
  button.title = `Colours: ${name}`;
}

theme(THEMES.includes(localStorage.getItem("thinkgate.theme")) ? localStorage.getItem("thinkgate.theme") : "auto");
document.getElementById("theme").addEventListener("click", () => theme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % 3]));
document.getElementById("skip").addEventListener("click", () => main.focus());
leave.addEventListener("click", () => {
  shown.abort();
  keepClientKey("");
  signIn("");
});
fill(nav, Object.entries(TITLES).map(([name, title]) => h("a", { href: `#/${name}`, "data-page": name }, title)));
window.addEventListener("hashchange", () => nav.hidden || show());
start();
