// The list of runs: what needs a person, a query, columns, groups, labels. The server selects, sorts and cuts it to a page.
import { get } from "./api.js";
import { announce, h, say, select, settled } from "./dom.js";
import { described, pickColumns } from "./columns.js";
import { follow } from "./follow.js";
import { counted, whole } from "./format.js";
import { deleteDialog, editDialog, labelled, stopDialog, showFailures, tagDialog } from "./labels.js";
import { groupRow, RunRow } from "./rows.js";
import { addressOf, asked, hasTerm, ROWS, toggled, turned, viewOf } from "./view.js";

const MOST_COMPARED = 60;
const STATES = [["", "All"], ["state:running", "Running"], ["state:ended", "Ended"], ["archived:yes", "Archived"]];
const WORDS = {
  failed: "ended with an error", gone: "the process is gone and left no summary", stalled: "run without new steps, with a silent role or without Redis",
  slow: "run at less than half of their own earlier rate", solved: "reached their target",
};
const EXAMPLES = "Words, or algo:ppo  env:pong  tag:paper  state:failed  lr>=3e-4  return>400  -state:solved  archived:any";
const chosen = new Map(); // id -> name; stays while the page lives

export async function runsPage({ session, parameters }) {
  const page = new RunsPage(session, viewOf(parameters));
  try { await page.follow(); } catch (error) { page.following.end(); throw error; }
  return { element: page.element, leave: () => page.leave() };
}

class RunsPage {
  constructor(session, view) {
    Object.assign(this, { session, view, runs: new Map(), rows: new Map(), list: null, signature: "", last: null, grouped: null });
    this.acts = session.right === "act";
    this.count = h("span", { class: "sub", role: "status" });
    this.strip = h("div", { class: "strip", role: "group", "aria-label": "What needs you", hidden: true });
    this.problem = h("p", { id: "query-problem", class: "query-problem", role: "alert" });
    this.search = h("input", { type: "search", class: "query", value: view.query, placeholder: "algo:ppo lr>=3e-4 -state:failed", "aria-label": "Query",
      "aria-describedby": "query-problem", title: EXAMPLES, maxlength: 900, spellcheck: "false", autocomplete: "off", on: { input: settled(250, () => this.ask(this.search.value)) } });
    this.segments = STATES.map(([term, text]) => h("button", { type: "button", on: { click: () => this.ask(this.withState(term), true) } }, text));
    this.grouping = h("span");
    this.fold = h("button", { type: "button", class: "small", hidden: true, on: { click: () => this.foldAll() } });
    this.columnsButton = h("button", { type: "button", class: "small", on: { click: () => this.pick() } }, "Columns …");
    this.all = h("input", { type: "checkbox", "aria-label": "Choose all runs of this page", on: { change: () => this.chooseAll(this.all.checked) } });
    this.head = h("tr");
    this.body = h("tbody");
    this.table = h("div", { class: "card scroll", role: "region", "aria-label": "Runs", tabindex: "0" }, h("table", { class: "runs" }, h("caption", { class: "visually-hidden" }, "Runs"), h("thead", {}, this.head), this.body));
    this.none = h("div", { class: "card empty", hidden: true });
    this.unread = h("p", { class: "muted", role: "status" });
    this.range = h("span", { class: "muted" });
    this.before = h("button", { type: "button", class: "small", on: { click: () => this.turn(-1) } }, "Previous");
    this.after = h("button", { type: "button", class: "small", on: { click: () => this.turn(1) } }, "Next");
    this.pager = h("nav", { class: "pager", "aria-label": "Pages of the list", hidden: true }, this.before, this.range, this.after);
    this.makeBar();
    this.element = h("div", { class: "front" }, h("div", { class: "head" }, h("h1", {}, "Runs"), this.count, session.may_start ? [h("span", { class: "spacer" }), h("a", { class: "button primary", href: "#/new" }, "New run")] : null), this.strip,
      h("div", { class: "toolbar list-tools" }, this.search, h("div", { class: "segments", role: "group", "aria-label": "State" }, this.segments),
        this.grouping, this.fold, this.columnsButton), this.problem, this.table, this.none, this.unread, this.pager, this.bar);
    this.drawGrouping([]);
  }

  makeBar() {
    const button = (text, act, kind = "") => h("button", { type: "button", class: kind, on: { click: act } }, text);
    this.chosenText = h("span");
    this.selectAll = button("", () => this.chooseQuery(), "quiet");
    this.compare = button("Compare", () => { location.hash = `#/compare?${new URLSearchParams([...chosen.keys()].map((id) => ["id", id]))}`; }, "primary");
    this.said = h("span", { class: "said", role: "alert" });
    const acting = [button("Tags …", () => this.act((ids) => tagDialog(ids, nameOf))), button("Archive", () => this.archive(true)),
      button("Unarchive", () => this.archive(false)), button("Stop …", () => this.act(stopRunning), "danger"), button("Delete …", () => this.act(deleteOthers, { leaves: true }), "danger")];
    this.bar = h("div", { class: "sticky", role: "region", "aria-label": "Chosen runs", hidden: true }, this.chosenText, this.selectAll, this.compare,
      this.acts ? acting : null, button("Clear", () => { chosen.clear(); this.draw(); }, "quiet"), this.said);
  }

  /** Follows the view; a promise of the first answer. */
  follow() {
    this.following?.end();
    this.following = follow(asked(this.view), {
      query: ({ problem }) => this.showProblem(problem),
      rows: ({ changed }) => { for (const run of changed) this.runs.set(run.id, run); if (this.list) this.draw(); },
      list: (list) => { this.list = list; this.draw(); this.forget(); },
    });
    return this.following.first;
  }

  leave() {
    this.following.end();
  }

  show(next, replace = false) {
    this.view = next;
    history[replace ? "replaceState" : "pushState"](null, "", addressOf(next));
    this.follow();
    this.drawControls();
  }

  ask(query, typed = false) {
    if (query.trim() === this.view.query) return;
    if (typed) this.search.value = query;
    this.show({ ...this.view, query: query.trim(), page: 1, open: [], fold: [] }, !typed);
  }

  withState(term) {
    const rest = STATES.reduce((query, [one]) => (one && hasTerm(query, one) ? toggled(query, one) : query), this.view.query);
    return term ? toggled(rest, term) : rest;
  }

  sortBy(key) {
    const down = this.view.sort === key || (this.view.sort !== `-${key}` && !["name", "state"].includes(key) && !key.includes("."));
    this.show({ ...this.view, sort: down ? `-${key}` : key, page: 1 });
    const column = this.list.columns.find(({ name }) => name === key);
    announce(`sorted by ${column ? described(column).heading : key}, ${down ? "descending" : "ascending"}`);
  }

  turn(by) {
    this.show({ ...this.view, page: Math.max(this.view.page + by, 1) });
    scrollTo(0, 0);
  }

  foldAll() {
    const open = this.view.open.includes("*") ? [] : ["*"];
    this.show({ ...this.view, open, fold: [], page: 1 });
  }

  async pick() {
    try {
      const names = await pickColumns(this.view.query, this.list?.columns ?? []);
      if (names) this.show({ ...this.view, columns: names.length ? names : null });
      this.columnsButton.focus();
    } catch (error) { this.showProblem(error.message); }
  }

  /** Offers the settings that differ between the runs of the query, to group by. */
  async loadGroups() {
    const { query } = this.view;
    this.grouped = query;
    try {
      const { differing } = await get("columns", { query });
      if (query === this.view.query) this.drawGrouping(differing.map((one) => one.path));
    } catch (error) {
      this.grouped = null; // asked for again with the next answer
      say(this.problem, error.message);
    }
  }

  drawGrouping(paths) {
    const { group } = this.view;
    const options = [["", "none"], ["algorithm", "algorithm"], ["env", "environment"], ["state", "state"], ...paths.map((path) => [path, path])];
    if (!options.some(([key]) => key === group)) options.push([group, group]);
    this.grouping.replaceChildren(select("Group", options, group, (value) => this.show({ ...this.view, group: value, page: 1, open: [], fold: [] })));
  }

  showProblem(problem) {
    say(this.problem, problem ?? "");
    if (problem) this.search.setAttribute("aria-invalid", "true");
    else this.search.removeAttribute("aria-invalid");
    if (!problem && this.grouped !== this.view.query) this.loadGroups();
  }

  drawControls() {
    this.segments.forEach((button, at) => {
      const term = STATES[at][0];
      const on = term ? hasTerm(this.view.query, term) : !STATES.some(([one]) => one && hasTerm(this.view.query, one));
      button.setAttribute("aria-pressed", String(on));
    });
    this.fold.hidden = !this.view.group;
    say(this.fold, this.view.open.includes("*") ? "Fold all" : "Unfold all");
    for (const button of this.strip.children) button.setAttribute("aria-pressed", String(hasTerm(this.view.query, button.dataset.term)));
    for (const head of this.head.querySelectorAll("[data-key]")) {
      const key = head.dataset.key;
      if (this.view.sort.replace(/^-/, "") === key) head.setAttribute("aria-sort", this.view.sort.startsWith("-") ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
  }

  drawStrip() {
    const { counts } = this.list;
    const signature = JSON.stringify(counts);
    this.strip.hidden = Object.keys(counts).length === 0;
    if (this.strip.dataset.counts === signature) return;
    this.strip.dataset.counts = signature;
    this.strip.replaceChildren(...Object.entries(counts).map(([word, count]) => h("button", { type: "button", class: word, "data-term": `state:${word}`,
      title: `${whole(count)} ${WORDS[word]}`, on: { click: () => this.ask(toggled(this.view.query, `state:${word}`), true) } }, h("b", {}, whole(count)), ` ${word}`)));
  }

  drawHead() {
    const signature = this.list.columns.map((column) => column.name).join(" ");
    if (this.signature === signature && this.head.children.length) return;
    this.signature = signature;
    this.rows.clear();
    const head = (key, text, kind, meaning) => h("th", { scope: "col", class: kind, "data-key": key }, h("button", { type: "button", title: meaning, on: { click: () => this.sortBy(key) } }, text));
    this.head.replaceChildren(h("th", { scope: "col", class: "pick" }, this.all), head("name", "Run", "run"), head("state", "State", ""),
      h("th", { scope: "col", title: "Return over environment steps" }, "Trend"),
      ...this.list.columns.map((column) => (column.name === "started" ? head("started", "Started", "optional") : head(column.name, described(column).heading, column.kind === "setting" ? "setting" : "n", described(column).meaning))),
      h("th", { scope: "col" }, "Outcome"));
  }

  draw() {
    const { list, session } = this;
    this.view = { ...this.view, page: Math.floor(list.offset / ROWS) + 1 };
    this.drawHead();
    this.drawStrip();
    this.drawControls();
    const focused = document.activeElement?.dataset?.group;
    const on = { choose: (...all) => this.choose(...all), edit: this.acts ? (run) => editDialog(run) : null, tag: (tag) => this.ask(toggled(this.view.query, `tag:${tag}`), true) };
    const shown = new Set();
    const wanted = list.lines.map((line) => {
      if (line.run === undefined) return groupRow(line, list.columns, (label) => this.show(turned(this.view, label)));
      const run = this.runs.get(line.run);
      shown.add(run.id);
      if (!this.rows.has(run.id)) this.rows.set(run.id, new RunRow(run, list.columns, on));
      this.rows.get(run.id).update(run, chosen.has(run.id));
      if (chosen.has(run.id)) chosen.set(run.id, run.name);
      return this.rows.get(run.id).element;
    });
    if (wanted.length !== this.body.children.length || wanted.some((row, at) => row !== this.body.children[at])) this.body.replaceChildren(...wanted);
    if (focused !== undefined) [...this.body.querySelectorAll("[data-group]")].find((button) => button.dataset.group === focused)?.focus();
    const archived = list.archived ? ` · ${whole(list.archived)} archived` : "";
    say(this.count, `${whole(list.matched)} of ${whole(list.total)}${list.running ? ` · ${whole(list.running)} running` : ""}${archived}`);
    say(this.unread, list.unread ? `The settings of ${counted(list.unread, "run")} are still being read; until then, columns and queries lack them.` : "");
    this.table.hidden = list.lines.length === 0;
    this.none.hidden = !this.table.hidden;
    this.none.replaceChildren(...(list.total ? [h("p", {}, list.total === list.archived && !this.view.query ? "All runs are archived." : "No run matches the query."), h("p", { class: "muted" }, EXAMPLES)]
      : [h("p", {}, `There is no run in ${session.root} yet.`), h("p", {}, "Start one: ", h("code", {}, "distrl train --preset cartpole-impala"))]));
    this.pager.hidden = list.length <= ROWS;
    say(this.range, `${whole(list.offset + 1)} to ${whole(Math.min(list.offset + ROWS, list.length))} of ${counted(list.length, "line")}`);
    this.before.disabled = list.offset === 0;
    this.after.disabled = list.offset + ROWS >= list.length;
    this.drawBar(shown);
  }

  /** Drops runs of earlier pages; not before the list itself has come, as new rows come first. */
  forget() {
    const shown = new Set(this.list.lines.map((line) => line.run));
    for (const id of this.rows.keys()) if (!shown.has(id)) this.rows.delete(id);
    for (const id of this.runs.keys()) if (!shown.has(id)) this.runs.delete(id);
  }

  drawBar(shown) {
    const here = [...shown].filter((id) => chosen.has(id)).length;
    this.all.checked = here > 0 && here === shown.size;
    this.all.indeterminate = here > 0 && here < shown.size;
    this.bar.hidden = chosen.size === 0;
    this.compare.disabled = chosen.size > MOST_COMPARED;
    this.compare.title = this.compare.disabled ? `${MOST_COMPARED} runs at most can be compared` : "";
    say(this.chosenText, `${whole(chosen.size)} chosen`);
    this.selectAll.hidden = here === shown.size && chosen.size >= this.list.matched;
    say(this.selectAll, `Choose all ${whole(this.list.matched)} of the query`);
  }

  /** With the shift key, all runs since the last click. */
  choose(run, on, event) {
    const ids = this.list.lines.map((line) => line.run).filter(Boolean);
    const [from, to] = [ids.indexOf(this.last), ids.indexOf(run.id)];
    const range = event.shiftKey && from >= 0 ? ids.slice(Math.min(from, to), Math.max(from, to) + 1) : [run.id];
    for (const id of range) if (on) chosen.set(id, this.runs.get(id).name); else chosen.delete(id);
    this.last = run.id;
    this.draw();
  }

  chooseAll(on) {
    for (const run of this.runs.values()) if (on) chosen.set(run.id, run.name); else chosen.delete(run.id);
    this.draw();
  }

  async chooseQuery() {
    try {
      for (const id of (await get("selection", { query: this.view.query })).ids) chosen.set(id, this.runs.get(id)?.name ?? id);
    } catch (error) { say(this.said, error.message); }
    this.draw();
  }

  archive(archived) {
    return this.act((ids) => labelled(ids, { archived }), { aloud: true, leaves: true });
  }

  /** Acts on the chosen runs; `leaves`: those with which it was done leave the list, and are no longer chosen. */
  async act(action, { aloud = false, leaves = false } = {}) {
    say(this.said, "");
    try {
      const found = await action([...chosen.keys()]);
      if (aloud) { showFailures(this.said, found, nameOf); announce(`${found.done.length} done`); }
      if (found && leaves) for (const id of found.done) chosen.delete(id);
    } catch (error) { say(this.said, error.message); }
    this.draw();
  }
}

const nameOf = (id) => chosen.get(id) ?? id;

/** Ids of all runs that run. */
const running = async () => new Set((await get("selection", { query: "state:running archived:any" })).ids);

/** Stops those of the runs that run. */
async function stopRunning(ids) {
  const up = await running(), stops = ids.filter((id) => up.has(id));
  if (!stops.length) throw new Error("None of the chosen runs is running.");
  return stopDialog(stops, nameOf);
}

/** Deletes those of the runs that do not run. */
async function deleteOthers(ids) {
  const up = await running(), ended = ids.filter((id) => !up.has(id));
  if (!ended.length) throw new Error("All chosen runs are running; stop them first.");
  return deleteDialog(ended, nameOf, ids.length - ended.length);
}
