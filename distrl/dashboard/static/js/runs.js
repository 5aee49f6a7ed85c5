// The list of runs: filter, sort, choose some to compare. Rows are kept and changed in place while runs go on.
import { announce, h, say, settled } from "./dom.js";
import { follow } from "./follow.js";
import { ago, compact, duration, moment, result, UNKNOWN, whole } from "./format.js";
import { outcome, pill, stateOf } from "./states.js";

const STEP = 200;
const COLUMNS = [
  ["name", "Run", "run"], ["state", "State", "state"], ["mean_return_100", "Return", "n"], ["best_mean_return_100", "Best", "n optional"],
  ["env_steps", "Steps", "n"], ["env_steps_per_s", "Steps/s", "n"], ["training_s", "Training", "n optional"], ["started", "Started", "optional"],
];
const STATES = [["", "All"], ["running", "Running"], ["ended", "Ended"], ["failed", "Failed"], ["gone", "Gone"]];
const MOST_COMPARED = 60;
const LONGEST = 160; // letters of an outcome; the run's page shows all of it
const kept = { filter: "", state: "", sort: "started", down: true, chosen: new Set() };

export async function runsPage({ session }) {
  const runs = new Map();
  const rows = new Map();
  let limit = STEP;
  const body = h("tbody");
  const count = h("span", { class: "sub" });
  const heads = COLUMNS.map(([key, text, kind]) => h("th", { scope: "col", class: kind, "data-key": key },
    h("button", { type: "button", on: { click: () => sortBy(key) } }, text)));
  const table = h("div", { class: "card scroll" }, h("table", { class: "runs" },
    h("caption", { class: "visually-hidden" }, "Runs"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, h("span", { class: "visually-hidden" }, "Choose")), heads,
      h("th", { scope: "col" }, "Outcome"))), body));
  const none = h("div", { class: "card empty", hidden: true });
  const more = h("button", { type: "button", hidden: true, on: { click: () => { limit += STEP; draw(); } } }, `Show ${STEP} more`);
  const chosenText = h("span");
  const compare = h("button", { type: "button", class: "primary", on: { click: openComparison } }, "Compare");
  const chosenBar = h("div", { class: "sticky", role: "region", "aria-label": "Chosen runs", hidden: true }, chosenText, compare,
    h("button", { type: "button", class: "quiet", on: { click: () => { kept.chosen.clear(); draw(); } } }, "Clear"));
  const search = h("input", { type: "search", placeholder: "Filter by name, environment, algorithm", "aria-label": "Filter runs",
    value: kept.filter, size: 34, on: { input: () => { kept.filter = search.value; limit = STEP; filtered(); } } });
  const segments = STATES.map(([state, text]) => h("button", { type: "button", "aria-pressed": String(kept.state === state),
    on: { click: () => { kept.state = state; limit = STEP; draw(); } } }, text));
  const filtered = settled(120, draw);

  function sortBy(key) {
    kept.down = kept.sort === key ? !kept.down : !["name", "state"].includes(key);
    kept.sort = key;
    draw();
    announce(`sorted by ${key.replaceAll("_", " ")}, ${kept.down ? "descending" : "ascending"}`);
  }

  function openComparison() {
    location.hash = `#/compare?${new URLSearchParams([...kept.chosen].map((id) => ["id", id]))}`;
  }

  function visible() {
    const words = kept.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (run) => (!kept.state || run.state === kept.state || stateOf(run) === kept.state) && words.every((word) =>
      `${run.path} ${run.name} ${run.env} ${run.algorithm} ${run.run_id} ${run.state} ${stateOf(run)}`.toLowerCase().includes(word));
    const value = (run) => run[kept.sort] ?? run.numbers[kept.sort] ?? null;
    const order = (one, other) => {
      const [a, b] = [value(one), value(other)];
      if (a === null || b === null) return (a === null) - (b === null);
      const less = typeof a === "string" ? a.localeCompare(b) : a - b;
      return (kept.down ? -less : less) || (one.path < other.path ? -1 : 1);
    };
    return [...runs.values()].filter(fits).sort(order);
  }

  function draw() {
    const found = visible();
    const wanted = found.slice(0, limit).map((run) => {
      if (!rows.has(run.id)) rows.set(run.id, new Row(run, draw));
      rows.get(run.id).update(run);
      return rows.get(run.id).element;
    });
    if (wanted.length !== body.children.length || wanted.some((row, at) => row !== body.children[at])) body.replaceChildren(...wanted);
    for (const head of heads) {
      if (head.dataset.key === kept.sort) head.setAttribute("aria-sort", kept.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    segments.forEach((button, at) => button.setAttribute("aria-pressed", String(kept.state === STATES[at][0])));
    const live = [...runs.values()].filter((run) => run.state === "running").length;
    say(count, `${whole(found.length)} of ${whole(runs.size)}${live ? ` · ${live} running` : ""}`);
    more.hidden = found.length <= limit;
    table.hidden = found.length === 0;
    none.hidden = found.length > 0;
    none.replaceChildren(...(runs.size ? [h("p", {}, "No run matches the filter.")]
      : [h("p", {}, `There is no run in ${session.root} yet.`), h("p", {}, "Start one: ", h("code", {}, "distrl train --preset cartpole-impala"))]));
    for (const id of kept.chosen) if (!runs.has(id)) kept.chosen.delete(id);
    chosenBar.hidden = kept.chosen.size === 0;
    compare.disabled = kept.chosen.size > MOST_COMPARED;
    say(chosenText, `${kept.chosen.size} chosen${compare.disabled ? `, of which ${MOST_COMPARED} at most can be compared` : ""}`);
  }

  const following = follow({}, { runs: ({ all, changed, gone }) => {
    if (all) runs.clear();
    for (const run of changed) runs.set(run.id, run);
    for (const id of gone) { runs.delete(id); rows.delete(id); }
    draw();
  } });
  try { await following.first; } catch (error) { following.end(); throw error; }
  return {
    element: h("div", {}, h("div", { class: "head" }, h("h1", {}, "Runs"), count, h("span", { class: "spacer" }),
      h("div", { class: "toolbar" }, h("div", { class: "segments", role: "group", "aria-label": "State" }, segments), search)),
      table, none, h("p", { class: "empty" }, more), chosenBar),
    leave: () => following.end(),
  };
}

class Row {
  constructor(run, onChoice) {
    this.box = h("input", { type: "checkbox", "aria-label": `Choose ${run.name}`, on: { change: () => {
      if (this.box.checked) kept.chosen.add(run.id); else kept.chosen.delete(run.id);
      onChoice();
    } } });
    this.state = h("td", { class: "state" });
    const cell = (label, kind) => h("td", { class: kind, "data-label": label });
    this.cells = COLUMNS.slice(2).map(([, label, kind]) => cell(label, kind));
    this.outcome = h("td", { class: "wide" });
    this.under = h("span", { class: "sub" });
    this.element = h("tr", { "data-run": run.id }, h("td", { class: "pick" }, this.box),
      h("th", { scope: "row", class: "run" }, h("a", { class: "name", href: `#/run/${run.id}` }, run.name), this.under),
      this.state, this.cells, this.outcome);
  }

  update(run) {
    const numbers = run.numbers;
    this.box.checked = kept.chosen.has(run.id);
    const told = pill(run);
    if (this.state.textContent !== told.textContent) this.state.replaceChildren(told);
    say(this.under, [run.env, run.algorithm, run.seed === null ? null : `seed ${run.seed}`].filter(Boolean).join(" · ") || UNKNOWN);
    const texts = [result(numbers.mean_return_100), result(numbers.best_mean_return_100), compact(numbers.env_steps),
      whole(numbers.env_steps_per_s), duration(numbers.training_s), ago(run.started)];
    texts.forEach((text, at) => say(this.cells[at], text));
    this.cells[2].title = whole(numbers.env_steps);
    this.cells[5].title = moment(run.started);
    const words = outcome(run), long = words.length > LONGEST;
    say(this.outcome, long ? `${words.slice(0, LONGEST)}…` : words);
    this.outcome.title = long ? words : "";
  }
}
