// Several runs, or a sweep: their settings beside their outcomes, pictures of both, and their curves.
import { titled } from "./alerts.js";
import { h, say, select, slider, settled } from "./dom.js";
import { get } from "./api.js";
import { Chart } from "./chart.js";
import { ChartCard } from "./chartcard.js";
import { addressed, keepInAddress } from "./address.js";
import { readView, readZoom, viewText, zoomText } from "./chartstate.js";
import { columnsOf, CompareTable, outcomeTitle } from "./comparetable.js";
import { counted } from "./format.js";
import { importance } from "./importance.js";
import { metricsOf, texts, title } from "./metrics.js";
import { parallel, passes } from "./parallel.js";
import { scatter } from "./scatter.js";
import { scaleOf } from "./scales.js";
import { kindName, lineage, SweepHead } from "./sweep.js";

const AXES = [["steps", "steps"], ["updates", "updates"], ["episodes", "episodes"], ["time", "time"]];
const STATISTICS = [["interval", "IQM, 95 % interval"], ["median", "median, 95 % interval"], ["mean", "mean ± deviation"], ["iqm", "IQM, quartiles"]];
const REFRESH_MS = 5000, ANSWER_MS = 60000;
const MOST_AXES = 12;
const MOST_BEHIND = 12; // single runs behind bands, unless the user wants more
const SEVERAL = "several", USUAL_GROUP = "~", ALL_BUT_SEED = "~seed", ALL = "*", EACH = "-";
const ORDER = "#order", GROUP = "#group", NOTHING = "";

/** The view, as the address says it. */
function recalled() {
  const query = addressed(), text = (name, usual = "") => query.get(name) ?? usual, one = (name, options, usual) => (options.some(([key]) => key === query.get(name)) ? query.get(name) : usual);
  const ranges = query.getAll("range").map((part) => part.match(/^(.+):(-?[\d.e+-]+):(-?[\d.e+-]+)$/)).filter(Boolean).map(([, key, low, high]) => [key, [Number(low), Number(high)]]);
  return {
    ids: query.getAll("id"), sweep: text("sweep"), groups: query.has("group") ? query.getAll("group") : [USUAL_GROUP], statistic: one("statistic", STATISTICS, "interval"), outcome: text("outcome"), metric: text("metric", "mean_return_100"), second: text("second"),
    over: one("over", AXES, "steps"), smooth: Math.min(Math.max(Math.round(Number(query.get("smooth"))) || 1, 1), 101), x: text("x"), colour: query.get("colour"), ranges: new Map(ranges.filter(([, range]) => range.every(Number.isFinite))),
    sort: text("sort"), columns: query.has("column") ? query.getAll("column") : null, rows: text("rows", "runs"), view: readView(text("view")), zoom: readZoom(query.get("zoom")), hidden: new Set(query.getAll("hide")), single: query.has("single") ? query.get("single") === "1" : null,
  };
}

export async function comparePage({ session, match }) {
  const page = new Comparison(session, match?.[1] ?? null);
  try {
    await page.load();
  } catch (error) {
    page.leave();
    throw error;
  }
  return { element: page.element, get title() { return page.title; }, leave: () => page.leave(), shown: () => page.appeared(), themed: () => page.themed() };
}

class Comparison {
  constructor(session, sweep) {
    this.session = session;
    this.state = recalled();
    this.path = sweep; // the sweep that the address itself names
    this.sweep = sweep ?? (this.state.sweep || null);
    if (!this.sweep && !this.state.ids.length) throw new Error("Choose runs in the list to compare them.");
    Object.assign(this, { turn: 0, offered: "", several: false });
    this.note = h("div", { class: "note bad", role: "status", hidden: true });
    this.best = h("p", { class: "told best" });
    this.left = h("p", { class: "told" });
    this.links = h("p", { class: "sub" });
    this.fields = h("div", { class: "toolbar" });
    this.curveFields = h("div", { class: "toolbar" });
    this.chosenKeys = h("fieldset", { class: "group-keys", hidden: true });
    this.passing = h("span", { class: "sub" });
    this.clear = h("button", { type: "button", class: "small", hidden: true, on: { click: () => { this.state.ranges.clear(); this.ranged(); } } }, "Remove all ranges");
    this.redrawCurves = settled(200, () => this.loadCurves());
    this.heading = h("h1", {}, this.sweep ? "Sweep" : "Compare");
    this.title = this.sweep ? "Sweep" : "Compare";
    this.makeCards();
    this.element = this.laidOut();
    this.timer = setInterval(() => { if (document.visibilityState === "visible" && !this.asking && this.goesOn()) this.load(); }, REFRESH_MS);
  }

  makeCards() {
    const { over, hidden } = this.state;
    this.chart = new Chart({ height: 400, label: "Comparison", over, hidden, onZoom: () => this.zoomed(), onHide: () => { this.remember(); this.table.show(this.found, this.shownAs()); } });
    this.chart.setZoom(this.state.zoom);
    this.reset = h("button", { type: "button", class: "small", hidden: !this.state.zoom, on: { click: () => this.chart.zoomTo(null) } }, "Reset zoom");
    this.card = new ChartCard(this.chart, { head: [this.curveFields], named: () => `compare ${title(this.state.metric)} over ${this.state.over}`, changed: (view) => { this.state.view = view; this.remember(); } });
    this.card.setView(this.state.view);
    this.scatterFields = h("div", { class: "toolbar" });
    this.scatter = scatter({ title: "Outcome over a setting", head: [this.scatterFields], data: () => this.points(this.state.x) });
    this.trials = scatter({ title: "Outcome in the order of the runs", data: () => ({ ...this.points(ORDER), best: true }) });
    this.importance = importance(() => this.found.importance);
    this.parallel = parallel({ head: [this.passing, this.clear], ranges: this.state.ranges, changed: () => this.ranged(), data: () => ({ axes: this.axes, colours: this.axes[this.axes.length - 1].scale, runs: this.found.runs }) });
    this.lineage = lineage(() => this.found);
    this.table = new CompareTable({ state: this.state, changed: () => { this.remember(); this.arrange(); }, toggle: (id, shown) => this.show(id, shown), unload: this.sweep ? null : (id) => this.unload(id) });
    this.head = new SweepHead();
    this.pictures = [this.scatter, this.trials, this.importance, this.parallel, this.lineage];
  }

  laidOut() {
    const crumb = h("p", { class: "crumb" }, h("a", { href: "#/" }, "Runs"), " / ", this.sweep ? h("a", { href: "#/sweeps" }, "sweeps") : "compare");
    return h("div", { class: "compare" }, crumb, h("div", { class: "head" }, this.heading, this.links, h("span", { class: "spacer" }), this.reset), this.note, this.sweep ? this.head.element : null,
      h("section", { class: "card answer", "aria-label": "Result" }, h("div", { class: "body" }, this.fields, this.chosenKeys, this.best, this.left)),
      this.card.element, this.trials.element, this.lineage.element, this.pair = h("div", { class: "grid two" }, this.scatter.element, this.importance.element), this.parallel.element, this.table.element);
  }

  asked() {
    const { ids, groups, statistic, outcome } = this.state;
    return { id: ids, sweep: this.sweep, group: groups.includes(EACH) ? [""] : groups, statistic, outcome: outcome || null };
  }

  /** Whether a run runs, or the sweep has others left: between two runs none does. */
  goesOn() {
    return this.found?.sweep?.left > 0 || this.found?.runs.some((run) => run.state === "running");
  }

  async load() {
    const mine = (this.turn += 1);
    this.asking = true;
    try {
      const found = await get("compare/settings", this.asked(), undefined, ANSWER_MS);
      if (mine !== this.turn) return;
      this.found = found;
      this.arrange();
      await this.loadCurves(mine);
    } catch (error) {
      if (!this.found) throw error; // the page has never been there
      this.problem(error);
    } finally {
      this.asking = false;
    }
  }

  async loadCurves(mine = (this.turn += 1)) {
    const { metric, second, over, smooth, ranges } = this.state, inside = this.found.runs.filter((_, at) => this.shown(at)).map(({ id }) => id);
    const only = ranges.size ? (inside.length ? inside : [""]) : null; // groups, names and colours stay those of all runs
    try {
      const ask = (name) => get("compare", { ...this.asked(), only, metric: name, over, smooth, points: 800 }, undefined, ANSWER_MS);
      const found = await ask(metric), more = second ? await ask(second) : null;
      if (mine !== this.turn) return;
      this.curves = [found, more];
      this.note.hidden = true;
      say(this.left, found.left_out);
      this.offerCurves(found);
      this.drawCurves();
      this.table.show(this.found, this.shownAs());
    } catch (error) {
      if (mine !== this.turn) return;
      if (!this.curves) throw error;
      this.problem(error);
    }
  }

  problem(error) {
    this.note.hidden = false;
    say(this.note, error.message);
  }

  /** Everything but the curves, from what was found and the view. */
  arrange() {
    const { found, state } = this, { sweep } = found;
    const settings = columnsOf(found, state.columns);
    this.axes = [...settings.filter(({ path }) => path !== "seed" || settings.length === 1).slice(0, MOST_AXES).map((one) => ({ key: one.path, scale: scaleOf(one) })), { key: `outcome ${found.outcome}`, scale: this.outcomeScale() }];
    for (const key of [...state.ranges.keys()]) if (!this.axes.some((axis) => axis.key === key)) state.ranges.delete(key);
    if (!found.settings.some(({ path }) => path === state.x) && state.x !== ORDER) state.x = found.importance.settings[0]?.path ?? found.settings[0]?.path ?? ORDER;
    if (!state.sort) state.sort = `-${found.outcome}`;
    if (sweep) {
      this.head.update(sweep);
      say(this.heading, sweep.name);
      this.title = `${kindName(sweep)} ${sweep.name}`;
      titled(`${this.title} · distrl`);
    }
    this.links.replaceChildren(...(sweep ? [kindName(sweep)] : found.sweeps.flatMap((one, at) => [at ? ", " : "of the sweep ", h("a", { href: `#/sweep/${one.id}` }, `${one.name} (${counted(one.runs, "run")})`)])));
    say(this.best, found.best ? `Best: ${found.best}` : "");
    const several = found.runs.length > 1;
    this.trials.element.hidden = sweep?.kind !== "search";
    this.lineage.element.hidden = sweep?.kind !== "population" || !sweep.lessons.length;
    this.pair.hidden = !several || !found.settings.length;
    this.parallel.element.hidden = this.pair.hidden;
    this.offer();
    this.drawPassing();
    this.table.show(found, this.shownAs());
    for (const picture of this.pictures) if (!picture.element.closest("[hidden]")) picture.redraw();
  }

  outcomeScale() {
    const { found } = this, numbers = found.runs.map((run) => run.outcome);
    return scaleOf({ name: outcomeTitle(found), numbers, texts: numbers.map(String) });
  }

  /** What a scatter plot draws. */
  points(x) {
    const { found, state } = this, of = (path) => found.settings.find((one) => one.path === path);
    const order = found.runs.map((run, at) => [run.path, at]).sort(([one], [other]) => (one < other ? -1 : 1)).map(([, at]) => at), numbers = [];
    order.forEach((at, place) => { numbers[at] = place + 1; });
    const across = x === ORDER ? scaleOf({ name: "number of the run", log: false, numbers, texts: numbers.map(String) }) : scaleOf(of(x) ?? { name: "", numbers: null, texts: found.runs.map(() => "") });
    if (x === ORDER) across.ticks = evenly(found.runs.length).map((value) => ({ share: across.place(value), text: String(value) }));
    const colours = state.colour === GROUP ? scaleOf({ name: "group", numbers: null, texts: found.runs.map((run) => run.group ?? "none") }) : of(state.colour) ? scaleOf(of(state.colour)) : null;
    return { x: across, y: this.outcomeScale(), colours, runs: found.runs, shown: found.runs.map((_, at) => at).filter((at) => this.shown(at)) };
  }

  shown(at) {
    return passes(this.axes, this.state.ranges, at);
  }

  shownAs() {
    const { found } = this, places = new Map((this.curves?.[0].bands ?? []).map((band) => [band.label, band.place]));
    const colours = new Map(found.runs.map((run, at) => [run.id, found.groups.length ? places.get(run.group) ?? -1 : at]));
    return { shown: (at) => this.shown(at), hidden: this.state.hidden, colours };
  }

  ranged() {
    this.remember();
    this.drawPassing();
    this.parallel.redraw();
    this.scatter.redraw();
    this.table.show(this.found, this.shownAs());
    this.redrawCurves();
  }

  drawPassing() {
    const { ranges } = this.state, count = this.found.runs.filter((_, at) => this.shown(at)).length;
    say(this.passing, ranges.size ? `${count} of ${counted(this.found.runs.length, "run")} ${count === 1 ? "is" : "are"} within the ranges` : "");
    this.clear.hidden = ranges.size === 0;
  }

  drawCurves() {
    const [found, second] = this.curves, { metric, second: other, over } = this.state, banded = found.bands.length > 0, { colours } = this.shownAs();
    const known = metricsOf(this.session, { columns: found.columns }), drawn = [metric, other || metric].map((name) => texts(known.get(name)));
    this.chart.setAxes(drawn.map((one) => one.ticks), [drawn[0].title, second ? drawn[1].title : ""]);
    const line = (from, axis) => (run) => ({ key: axis === 2 ? secondOf(run.id) : run.id, label: axis === 2 ? `${run.name} · ${title(other)}` : run.name, colour: Math.max(colours.get(run.id) ?? 0, 0), axis, dashed: axis === 2, faint: banded && axis === 1, format: drawn[axis - 1].values, ...from.curves[run.id] });
    const bands = found.bands.map((band) => ({ ...band, key: `band-${band.label}`, label: `${band.label} (${band.runs})`, colour: band.place, format: drawn[0].values }));
    const single = !banded || this.single(found), visible = (from) => (single ? from.runs.filter((run) => from.curves[run.id]) : []);
    this.chart.label = `${title(metric)} of ${counted(found.runs.length, "run")}`;
    const { zoom } = this.chart;
    this.chart.show(over, [...visible(found).map(line(found, 1)), ...(second ? visible(second).map(line(second, 2)) : [])], { bands });
    if (this.chart.zoom !== zoom) this.zoomed(); // carried over to another axis
    this.card.drawTable();
  }

  zoomed() {
    this.state.zoom = this.chart.zoom;
    this.reset.hidden = this.chart.zoom === null;
    this.remember();
  }

  /** Shows or hides the lines of a run. */
  show(id, shown) {
    for (const key of [id, secondOf(id)]) if (shown) this.state.hidden.delete(key); else this.state.hidden.add(key);
    this.chart.rebuild();
    this.remember();
  }

  /** Whether single runs are drawn behind bands: unless there are many. */
  single(found) {
    return this.state.single ?? found.runs.length <= MOST_BEHIND;
  }

  /** The choices of groups, statistic, outcome, x and colour; made again only if they are others. */
  offer() {
    const { found, state } = this, keys = found.settings.map(({ path }) => path), text = JSON.stringify([keys, found.outcomes, found.outcome, found.group, state.groups, state.statistic, state.x, state.colour, this.several]);
    if (text === this.offered) return;
    this.offered = text;
    const held = [this.fields, this.scatterFields].flatMap((one) => [...one.querySelectorAll("select")]).find((one) => one === document.activeElement)?.ariaLabel;
    const set = (name) => (value) => { state[name] = value; this.remember(); this.load(); };
    this.fields.replaceChildren(select("Group", [[EACH, "each run"], [ALL_BUT_SEED, "all but the seed"], [ALL, "all runs"], ...keys.map((key) => [key, key]), [SEVERAL, "several settings …"]], this.groupChoice(), (value) => this.group(value)),
      select("as", STATISTICS, state.statistic, set("statistic")), select("Outcome", found.outcomes.map(({ name, title: told }) => [name, told]), found.outcome, set("outcome")));
    this.chosenKeys.hidden = !this.several;
    this.chosenKeys.replaceChildren(h("legend", {}, "Runs with the same values of these are a group"), ...keys.map((key) => {
      const box = h("input", { type: "checkbox", checked: found.group.includes(key), "data-key": key, on: { change: () => this.groupBy(keys.filter((one) => (one === key ? box.checked : found.group.includes(one)))) } });
      return h("label", { class: "field" }, box, key);
    }));
    const view = (name) => (value) => { state[name] = value; this.remember(); this.scatter.redraw(); };
    if (state.colour === null) state.colour = found.importance.settings.find(({ path }) => path !== state.x)?.path ?? found.settings.find(({ path }) => path !== state.x && path !== "seed")?.path ?? NOTHING;
    this.scatterFields.replaceChildren(select("x", [...keys.map((key) => [key, key]), [ORDER, "order of the runs"]], state.x, view("x")), select("Colour", [[NOTHING, "none"], ...(found.group.length ? [[GROUP, "group"]] : []), ...keys.map((key) => [key, key])], state.colour, view("colour")));
    if (held) this.element.querySelector(`select[aria-label="${CSS.escape(held)}"]`)?.focus();
  }

  groupChoice() {
    const { group, settings } = this.found, apart = settings.map(({ path }) => path).filter((path) => path !== "seed");
    if (this.several) return SEVERAL;
    if (!group.length) return EACH;
    if (group.length === 1 && this.state.groups[0] !== ALL_BUT_SEED && this.state.groups[0] !== USUAL_GROUP) return group[0];
    return group.join() === ALL && this.state.groups[0] === ALL ? ALL : group.join() === apart.join() || group[0] === ALL ? ALL_BUT_SEED : SEVERAL;
  }

  group(value) {
    this.several = value === SEVERAL;
    this.groupBy(this.several ? this.found.group.filter((key) => key !== ALL) : [value]);
  }

  groupBy(groups) {
    const held = document.activeElement?.dataset?.key;
    this.state.groups = groups.length ? groups : [EACH];
    this.remember();
    this.load().then(() => held && this.chosenKeys.querySelector(`[data-key="${CSS.escape(held)}"]`)?.focus());
  }

  offerCurves(found) {
    const { state } = this, { columns } = found, text = JSON.stringify([columns, state.metric, state.second, state.over, this.single(found), found.bands.length > 0]);
    if (text === this.offeredCurves) return;
    this.offeredCurves = text;
    const metrics = columns.map((name) => [name, title(name)]), set = (name) => (value) => { state[name] = value; this.remember(); this.loadCurves(); };
    const held = document.activeElement?.ariaLabel, inside = this.curveFields.contains(document.activeElement);
    const single = h("input", { type: "checkbox", "aria-label": "Single runs", checked: this.single(found), on: { change: () => { state.single = single.checked; this.remember(); this.drawCurves(); } } });
    this.curveFields.replaceChildren(select("Curve", metrics, state.metric, set("metric")), select("and", [["", "–"], ...metrics], state.second, set("second")), select("over", AXES, state.over, set("over")),
      slider("Smoothing", 1, 101, state.smooth, (window) => { state.smooth = window; this.remember(); this.redrawCurves(); }),
      ...(found.bands.length ? [h("label", { class: "field" }, single, "Single runs")] : []));
    if (inside && held) this.curveFields.querySelector(`[aria-label="${CSS.escape(held)}"]`)?.focus();
  }

  remember() {
    const { state } = this, other = (value, usual) => (value === usual ? null : value);
    keepInAddress({ id: state.ids, sweep: this.path ? null : this.sweep, group: state.groups.join() === USUAL_GROUP ? null : state.groups, statistic: other(state.statistic, "interval"), outcome: state.outcome, metric: other(state.metric, "mean_return_100"), second: state.second,
      over: other(state.over, "steps"), smooth: state.smooth === 1 ? null : String(state.smooth), x: state.x, colour: state.colour, range: [...state.ranges].map(([key, [low, high]]) => `${key}:${low}:${high}`), sort: state.sort, column: state.columns, rows: other(state.rows, "runs"), view: viewText(state.view), zoom: zoomText(state.zoom), hide: [...state.hidden], single: state.single === null ? null : String(Number(state.single)) });
  }

  unload(id) {
    this.state.ids = this.state.ids.filter((one) => one !== id);
    for (const key of [id, secondOf(id)]) this.state.hidden.delete(key);
    this.remember();
    if (this.state.ids.length) this.load(); else location.hash = "#/";
  }

  leave() {
    clearInterval(this.timer);
    this.turn += 1;
    this.card.destroy();
    for (const picture of this.pictures) picture.destroy();
  }

  /** The page is on the screen now: what is drawn has a size. */
  appeared() {
    this.chart.resize();
    for (const picture of this.pictures) if (!picture.element.closest("[hidden]")) picture.redraw();
  }

  themed() {
    this.chart.rebuild();
    this.appeared();
  }
}

/** The key of a run's line on the second axis; that on the first one is its id. */
const secondOf = (id) => `${id} 2`;

/** At most ten whole numbers from 1 to n. */
function evenly(n) {
  const step = [1, 2, 5, 10, 20, 50, 100, 200].find((one) => n / one <= 10) ?? 500;
  return [...new Set([1, ...Array.from({ length: Math.floor(n / step) }, (_, at) => (at + 1) * step)])];
}
