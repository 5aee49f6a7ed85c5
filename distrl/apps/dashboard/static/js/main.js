// From the address to a page: #/ (runs), #/run/ID, #/compare?id=…, #/sweeps, #/sweep/ID, #/new?preset=…, #/fleet.
import { announce, forgetSettled, h, say } from "./dom.js";
import { bell, titled } from "./alerts.js";
import { get, signOut } from "./api.js";
import { learn } from "./metrics.js";
import { runsPage } from "./runs.js";
import { runPage } from "./run.js";
import { comparePage } from "./compare.js";
import { fleetPage } from "./fleet.js";
import { sweepsPage } from "./sweep.js";
import { startPage } from "./start.js";

const content = document.getElementById("content");
const scheme = matchMedia("(prefers-color-scheme: dark)");
let page = null; // what is shown; it stays until the next one is there
let turn = 0;
const RETRY_MS = 2000;

const PAGES = [
  [/^\/$/, "runs", "Runs", runsPage],
  [/^\/run\/([0-9a-f]+)$/, "runs", "Run", runPage],
  [/^\/compare$/, "runs", "Compare", comparePage],
  [/^\/sweeps$/, "sweeps", "Sweeps", sweepsPage],
  [/^\/sweep\/([0-9a-f]+)$/, "sweeps", "Sweep", comparePage],
  [/^\/new$/, "runs", "New run", startPage],
  [/^\/fleet$/, "fleet", "Fleet", fleetPage],
];

async function go() {
  const mine = (turn += 1);
  forgetSettled(); // what was typed on the page that is left does not change the next one's address
  const [path, query = ""] = (location.hash.slice(1) || "/").split("?");
  const found = PAGES.find(([pattern]) => pattern.test(path));
  if (!found) return location.replace("#/");
  const [pattern, section, title, make] = found;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === section) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  titled(`${title} · distrl`);
  let next;
  content.setAttribute("aria-busy", "true");
  try {
    next = await make({ session: await session(), parameters: new URLSearchParams(query), match: path.match(pattern) });
  } catch (error) {
    // A run that is just being set up has no directory yet; or the server was away.
    const again = [comparePage, startPage].includes(make) ? 0 : setTimeout(go, RETRY_MS);
    next = { element: problem(error), leave: () => clearTimeout(again) };
  }
  if (mine !== turn) return next.leave(); // the user has gone on meanwhile
  page?.leave();
  page = next;
  content.removeAttribute("aria-busy");
  content.replaceChildren(page.element);
  if (!document.querySelector("#alerts:not([hidden])")) content.focus({ preventScroll: true }); // the open bell keeps the focus
  scrollTo(0, 0);
  if (page.title) titled(`${page.title} · distrl`);
  page.shown?.();
}

function problem(error) {
  return h("div", { class: "empty" }, h("p", {}, error.message || String(error)), h("p", {}, h("a", { href: "#/" }, "All runs")));
}

function dark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : scheme.matches;
}

function labelTheme(button) {
  button.setAttribute("aria-label", dark() ? "Change to light colours" : "Change to dark colours");
  say(button, dark() ? "☀" : "☾");
}

const button = document.getElementById("theme");
button.addEventListener("click", () => {
  const next = dark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("distrl-theme", next);
  labelTheme(button);
  page?.themed?.();
});
scheme.addEventListener("change", () => { labelTheme(button); page?.themed?.(); });
labelTheme(button);

let known = null;
function session() {
  known ??= get("session").then((told) => { learn(told); return told; }).catch((error) => { known = null; throw error; });
  return known;
}
const leaving = document.getElementById("sign-out");
leaving.addEventListener("click", () => signOut().catch((error) => announce(error.message)));
session().then(({ signed_in }) => (leaving.hidden = !signed_in), () => {}); // what is wrong is shown by the page
addEventListener("hashchange", go);
bell();
go();
