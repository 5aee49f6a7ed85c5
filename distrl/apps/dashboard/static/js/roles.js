// The roles of a live run, sorted by any column.
import { h, say } from "./dom.js";
import { remember, remembered } from "./address.js";
import { bytes, duration, percent, UNKNOWN, whole } from "./format.js";
import { stateWords } from "./states.js";

const actor = (role) => role.role === "actor";
// text, class, (role) -> [text, value to sort by]
const COLUMNS = [
  ["Role", "", (role) => [role.name, `${role.role} ${String(role.id).padStart(6, "0")}`]],
  ["Host", "", (role) => [`${role.host} (${role.pid})`, role.host]],
  ["State", "", (role) => [stateWords(role), stateWords(role)]],
  ["Steps/s", "n", (role) => [role.silent ? UNKNOWN : whole(role.env_steps_per_s), role.env_steps_per_s]],
  ["Steps", "n", (role) => [whole(role.env_steps), role.env_steps]],
  ["Weights", "n", (role) => [whole(role.weights_version), role.weights_version]],
  ["Behind", "n", (role) => [actor(role) ? whole(Math.max(role.behind, 0)) : "", actor(role) ? role.behind : -1]],
  ["Waiting", "", (role) => [actor(role) ? percent(role.blocked_share) : "", actor(role) ? role.blocked_share : -1]],
  ["CPU", "n", (role) => [role.silent ? UNKNOWN : percent(role.cpu_share), role.cpu_share]],
  ["Memory", "n", (role) => [bytes(1e6 * role.rss_mb), role.rss_mb]],
  ["Last step", "n", (role) => [duration(role.last_step_age_s), role.last_step_age_s]],
  ["Last seen", "n", (role) => [duration(role.seen_s), role.seen_s]],
  ["Restarts", "n", (role) => [whole(role.restarts), role.restarts]],
];
const HINTS = { CPU: "Share of one core since the heartbeat before; above 100 % with several threads", Behind: "Versions of the weights behind the newest", Waiting: "Share of the time spent waiting for the learner" };

export function rolesPanel() {
  const body = h("tbody"), none = h("p", { class: "empty" });
  let [column, down] = parsed(remembered("roles")), last = [[], {}];
  const heads = COLUMNS.map(([text, kind], at) => h("th", { scope: "col", class: kind, title: HINTS[text] ?? null },
    h("button", { type: "button", on: { click: () => sortBy(at) } }, text)));
  const table = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Roles" }, h("table", { class: "roles" },
    h("caption", { class: "visually-hidden" }, "Roles of the run, sortable by column"), h("thead", {}, h("tr", {}, heads)), body));
  const rows = new Map();

  function sortBy(at) {
    [column, down] = column === at ? (down ? [-1, false] : [at, true]) : [at, false];
    remember("roles", column < 0 ? "" : `${down ? "-" : ""}${COLUMNS[column][0]}`);
    update(...last);
  }

  function update(live, run) {
    last = [live, run];
    const roles = [...(live?.roles ?? [])];
    heads.forEach((head, at) => { if (at === column) head.setAttribute("aria-sort", down ? "descending" : "ascending"); else head.removeAttribute("aria-sort"); });
    none.hidden = roles.length > 0;
    table.hidden = roles.length === 0;
    say(none, run.state === "running" ? "No role has reported yet." : "The run is not running: it has no roles.");
    if (column >= 0) roles.sort((one, other) => compared(COLUMNS[column][2](one)[1], COLUMNS[column][2](other)[1]) * (down ? -1 : 1));
    const wanted = roles.map((role) => {
      const key = `${role.role} ${role.id}`;
      if (!rows.has(key)) rows.set(key, roleRow());
      rows.get(key).update(role);
      return rows.get(key).element;
    });
    if (wanted.length !== body.children.length || wanted.some((row, at) => row !== body.children[at])) body.replaceChildren(...wanted);
  }
  return { element: h("div", { class: "roles-panel" }, table, none), update };
}

const compared = (one, other) => (one < other ? -1 : one > other ? 1 : 0);

function parsed(text) {
  const at = COLUMNS.findIndex(([name]) => name === text.replace(/^-/, ""));
  return [at, at >= 0 && text.startsWith("-")];
}

function roleRow() {
  const cells = COLUMNS.map(([, kind], at) => (at ? h("td", { class: kind }) : h("th", { scope: "row" })));
  const fill = h("i", { class: "waiting" }), share = h("span");
  cells[7].append(h("span", { class: "meter", "aria-hidden": "true" }, fill), share);
  const element = h("tr", {}, cells);
  const update = (role) => {
    COLUMNS.forEach(([, , words], at) => say(at === 7 ? share : cells[at], words(role)[0]));
    element.classList.toggle("silent", role.silent);
    fill.parentElement.hidden = !actor(role);
    fill.style.width = `${100 * Math.min(role.blocked_share, 1)}%`;
  };
  return { element, update };
}
