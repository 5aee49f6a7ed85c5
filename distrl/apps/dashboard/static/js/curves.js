// The curves of a run: the main chart and any number of panels, the marks on them, and their state in the address.
import { announce, h, say, select, settled, slider } from "./dom.js";
import { get } from "./api.js";
import { Chart } from "./chart.js";
import { ChartCard } from "./chartcard.js";
import { addressed, keepInAddress } from "./address.js";
import { read, readZoom, written, zoomText } from "./chartstate.js";
import { histograms } from "./histograms.js";
import { Lines } from "./lines.js";
import { axesOf, axisKey, metricsOf, pickMetrics, texts, title } from "./metrics.js";
import { along } from "./ranges.js";

const REDRAW_MS = [2000, 10000]; // least and most; a long curve changes little in two seconds
const REDRAW_MS_A_POINT = 8;
const CURVE_MS = 60000; // the first curve of a long run takes a while
const MARKS_MS = 5000;
const MOST_ASKED = 16; // metrics of one request
const MOST_PANELS = 40;
const POINTS = { main: 1000, panel: 400 };
const AXES = [["steps", "steps"], ["updates", "updates"], ["episodes", "episodes"], ["time", "time"]];
const USUAL = { smooth: 1 };
const RECORDED = "recorded steps used"; // by updates, where nothing acts
// Of one interval each, which a unit of a few unrolls makes jump: smoothed unless the user smooths more, with the raw line behind.
const NOISY = new Set(["env_steps_per_s", "updates_per_s", "episodes_per_s", "wire_bytes_per_s", "learner_wait_share", "actors_blocked_share", "queue_fill"]);
const NOISY_WINDOW = 9;
const MAIN = ["mean_return_100", "evaluation_mean_return"];
const EVALUATION = "evaluation_mean_return";
// One card draws nothing twice: updates/s follows steps/s. Those of which a run has no numbers are left out.
const PANELS = [
  ["Throughput", ["env_steps_per_s"]], ["Waiting", ["learner_wait_share", "actors_blocked_share"]], ["Fill of the queue", ["queue_fill"]],
  ["Policy lag", ["policy_lag_mean", "policy_lag_p95", "policy_lag_max"]], ["Loss", ["loss", "policy_loss", "value_loss"]],
  ["Entropy and KL divergence", ["entropy", "kl"]], ["Clipped share", ["clipped_share", "clip_fraction"]], ["Gradient norm", ["gradient_norm"]],
  ["Values", ["mean_q", "mean_value", "mean_target"]], ["Error of values, which sets priorities", ["mean_td_error"]],
  ["Replay memory", ["replay_steps"]], ["Samples per insert", ["samples_per_insert"]], ["Exploration", ["exploration_strength"]],
  ["Success", ["success_rate_100", "evaluation_success_rate"]], ["Rounds without a worker", ["incomplete_rounds"]],
  ["Discounted return, played and estimated", ["evaluation_mean_discounted_return", ...["fqe", "dm", "wis", "ips", "dr", "sdr"].map((name) => `evaluation_off_policy_${name}`)]],
];

/** Lists of distinct names, each of one window and of at most as many as a request may have. */
function batchesOf(names, windowOf) {
  const byWindow = Map.groupBy(new Set(names), windowOf), found = [];
  for (const group of byWindow.values()) for (let at = 0; at < group.length; at += MOST_ASKED) found.push(group.slice(at, at + MOST_ASKED));
  return found;
}

const joined = (answers, ruler = answers[0].ruler) => ({ curves: Object.assign({}, ...answers.map((one) => one.curves)), raw: Object.assign({}, ...answers.map((one) => one.raw)), ruler });

/** `first`: the server's description of the run; `beside`: an element beside the main chart; `begun`: called when the first numbers are there. */
export class Curves {
  constructor(session, first, { beside, begun }) {
    this.session = session;
    this.id = first.run.id;
    this.begun = begun;
    this.signal = new AbortController();
    this.usualAxis = first.axis;
    this.stepsTitle = first.axis === "steps" ? "environment steps" : RECORDED;
    this.lines = new Lines(this.id);
    this.round = null; // what ends the requests in flight
    this.redrawnAt = 0;
    this.markedAt = -Infinity;
    this.marks = { marks: [], evaluations: [], estimates: {}, targets: [], unplaced: 0 };
    this.recall();
    this.note = h("div", { class: "note bad", role: "status", hidden: true });
    this.described(first);
    this.redrawSoon = settled(120, () => this.redraw());
    this.element = this.laidOut(beside);
  }

  /** Takes over what the address says. */
  recall() {
    const query = addressed();
    this.over = AXES.some(([key]) => key === query.get("over")) ? query.get("over") : this.usualAxis;
    this.smooth = Math.min(Math.max(Math.round(Number(query.get("smooth"))) || USUAL.smooth, 1), 101);
    this.zoom = readZoom(query.get("zoom"));
    const main = read(query.get("main") ?? "");
    this.main = this.panel(main.names.length ? main : { ...main, names: MAIN }, true);
    const panels = query.getAll("panel").filter((panel) => panel !== "none");
    this.isUsual = !query.has("panel");
    this.panels = this.isUsual ? this.usualPanels() : panels.slice(0, MOST_PANELS).map(read).filter(({ names }) => names.length).map((one) => this.panel(one));
  }

  remember() {
    const isMain = written({ names: MAIN, view: {} }) === written(this.main);
    keepInAddress({ over: this.over === this.usualAxis ? null : this.over, smooth: this.smooth === USUAL.smooth ? null : String(this.smooth),
      zoom: zoomText(this.zoom), main: isMain ? null : written(this.main),
      panel: this.isUsual ? null : this.panels.length ? this.panels.map(written) : "none" });
  }

  usualPanels() {
    return PANELS.map(([, names]) => this.panel({ names, view: {} }));
  }

  /** A chart of some metrics, with its card. */
  panel({ names, view }, main = false) {
    const chart = new Chart({ height: main ? 350 : 150, fill: main, label: title(names[0]), syncKey: "run", over: this.over, stepsTitle: this.stepsTitle, onZoom: (range) => this.zoomed(range) });
    const panel = { names, chart, get view() { return chart.view; } };
    panel.card = new ChartCard(chart, {
      named: () => `${this.name} ${this.titleOf(panel)}`, csv: () => this.csvAddress(panel), changed: () => this.changed(),
      actions: [["Metrics …", () => this.choose(panel)], ...(main ? [] : [["Move back", () => this.move(panel, -1)], ["Move on", () => this.move(panel, 1)], ["Remove", () => this.remove(panel)]])],
    });
    panel.card.setView(view);
    chart.setZoom(this.zoom);
    return panel;
  }

  /** Its heading among the usual panels, otherwise its metrics. */
  titleOf(panel, names = panel.names) {
    const usual = PANELS.find(([, metrics]) => metrics.join() === panel.names.join());
    return usual ? usual[0] : names.map(title).join(", ");
  }

  csvAddress(panel) {
    return `/api/runs/${this.id}/curve.csv?${new URLSearchParams(panel.names.map((name) => ["metric", name]))}`;
  }

  laidOut(beside) {
    const button = (text, action) => h("button", { type: "button", class: "small", on: { click: action } }, text);
    this.resetZoom = h("button", { type: "button", class: "small", hidden: !this.zoom, on: { click: () => this.zoomed(null) } }, "Reset zoom");
    const axes = AXES.map(([key, text]) => [key, key === "steps" && this.usualAxis !== key ? RECORDED : text]);
    const axis = select("over", axes, this.over, (over) => this.turn(over));
    const smooth = slider("Smoothing", 1, 101, this.smooth, (window) => { this.smooth = window; this.remember(); this.redrawSoon(); });
    this.usual = button("Usual panels", () => { this.setPanels(this.usualPanels(), true); announce("the usual panels are shown"); });
    this.grid = h("div", { class: "grid panels-grid" });
    this.histograms = histograms(this.id);
    this.arrange();
    return h("div", { class: "curves" },
      h("div", { class: "toolbar curves-bar", role: "group", "aria-label": "All charts" }, axis, smooth, h("span", { class: "spacer" }), this.resetZoom, button("Add a panel …", () => this.add()), this.usual),
      this.note, h("div", { class: "grid main" }, this.main.card.element, beside), this.grid, this.histograms.element);
  }

  /** Puts the cards into the page; the usual ones only where the run has their numbers. */
  arrange() {
    const wanted = this.panels.filter((panel) => !this.isUsual || panel.chart.lines.some((line) => line.x.length)).map((panel) => panel.card.element);
    if (wanted.length !== this.grid.children.length || wanted.some((element, at) => element !== this.grid.children[at])) this.grid.replaceChildren(...wanted);
    this.grid.hidden = wanted.length === 0;
    this.usual.hidden = this.isUsual;
  }

  setPanels(panels, isUsual = false) {
    for (const old of this.panels) if (!panels.includes(old)) old.card.destroy();
    this.panels = panels;
    this.isUsual = isUsual;
    this.remember();
    return this.redraw();
  }

  /** The panels that are shown; from now on they are the user's own. */
  own() {
    return this.panels.filter((panel) => panel.card.element.isConnected);
  }

  changed() {
    if (this.isUsual && this.panels.some(({ view }) => view.log || view.clip || view.low !== null || view.high !== null)) {
      const own = this.own();
      for (const old of this.panels) if (!own.includes(old)) old.card.destroy();
      [this.panels, this.isUsual] = [own, false];
      this.arrange();
    }
    this.remember();
  }

  /** Shows the dialog with what the run records by now. */
  async pick(chosen) {
    try {
      this.described(await get(`runs/${this.id}`, {}, this.signal.signal));
      return await pickMetrics(this.metrics, chosen, this.snapshot);
    } catch (error) {
      this.complain(error.message);
      return null;
    }
  }

  async choose(panel) {
    const names = await this.pick(panel.names);
    panel.card.menu.firstChild.focus();
    if (!names) return;
    panel.names = names;
    if (panel === this.main) { this.remember(); this.redraw(); } else this.setPanels(this.own());
  }

  async add() {
    const names = await this.pick([]), own = this.own();
    if (!names) return;
    if (own.length >= MOST_PANELS) return this.complain(`${MOST_PANELS} panels are the most; remove one first`);
    const panel = this.panel({ names, view: {} });
    await this.setPanels([...own, panel]);
    panel.card.element.scrollIntoView({ block: "nearest" });
    panel.card.menu.firstChild.focus();
  }

  async move(panel, by) {
    const own = this.own(), from = own.indexOf(panel), to = Math.min(Math.max(from + by, 0), own.length - 1);
    own.splice(to, 0, ...own.splice(from, 1));
    await this.setPanels(own);
    panel.card.menu.firstChild.focus();
    announce(`${this.titleOf(panel)}: place ${to + 1} of ${own.length}`);
  }

  async remove(panel) {
    const own = this.own(), at = own.indexOf(panel);
    await this.setPanels(own.filter((one) => one !== panel));
    (this.panels[Math.min(at, this.panels.length - 1)] ?? this.main).card.menu.firstChild.focus();
    announce(`${this.titleOf(panel)} is removed`);
  }

  /** Takes the server's description of the run. */
  described(told) {
    this.name = told.run.name;
    this.columns = told.columns;
    this.snapshot = { ...told.snapshot, samples_per_insert: told.snapshot.sampled_steps };
    this.metrics = metricsOf(this.session, told);
  }

  /** Draws again when it is due: a long curve changes little in a second. A round in flight is waited for. */
  grown() {
    if (document.visibilityState !== "visible") return;
    if (this.round) { this.late = true; return; }
    const points = this.main.chart.lines[0]?.x.length ?? 0;
    const due = this.redrawnAt + Math.min(Math.max(REDRAW_MS_A_POINT * points, REDRAW_MS[0]), REDRAW_MS[1]) - performance.now();
    if (due <= 0) this.redraw();
    else if (!this.timer) this.timer = setTimeout(() => { this.timer = 0; if (!this.round) this.redraw(); }, due);
  }

  /** Changes the x axis; the zoom keeps its stretch of the run. */
  turn(over) {
    const ruler = this.main.chart.ruler, zoom = this.zoom;
    this.zoom = zoom && ruler[over]?.length > 1 ? zoom.map((value) => along(value, ruler[this.over], ruler[over])) : null;
    this.over = over;
    this.markedAt = -Infinity;
    this.zoomed(this.zoom);
  }

  /** Draws what is chosen now; a round in flight, which asks for something else, ends. */
  async redraw() {
    this.round?.abort();
    const round = this.round = new AbortController(), over = this.over, signal = AbortSignal.any([this.signal.signal, round.signal]);
    const curve = (points) => (metric) => {
      const smooth = this.windowOf(metric[0]);
      return { over, smooth, raw: smooth > 1 ? 1 : null, from: this.zoom?.[0], to: this.zoom?.[1], metric, points };
    };
    const batches = batchesOf(this.panels.flatMap((panel) => panel.names), (name) => this.windowOf(name));
    const mains = batchesOf(this.main.names, (name) => this.windowOf(name));
    const withMarks = performance.now() - this.markedAt >= MARKS_MS;
    this.late = false;
    try {
      const [marks, all] = await Promise.all([withMarks ? get(`runs/${this.id}/marks`, { over }, signal, CURVE_MS) : this.marks,
        this.lines.fetch([...mains.map(curve(POINTS.main)), ...batches.map(curve(POINTS.panel))], signal, CURVE_MS)]);
      if (signal.aborted) return; // asked again meanwhile
      if (withMarks) [this.marks, this.markedAt] = [marks, performance.now()];
      this.note.hidden = true;
      this.draw(this.main, joined(all.slice(0, mains.length)));
      const rest = joined(all.slice(mains.length), all[0].ruler);
      for (const panel of this.panels) this.draw(panel, rest);
      this.arrange();
      if (!this.columns.length && this.main.chart.lines.some((line) => line.x.length)) await this.begun();
    } catch (error) {
      if (signal.aborted) return;
      this.complain(error.message);
      for (const panel of [this.main, ...this.panels]) panel.chart.show(over, []); // not curves of something else
      this.arrange();
    } finally {
      if (this.round === round) this.rested();
    }
  }

  /** After a round: the next one is due some time later. */
  rested() {
    this.round = null;
    this.redrawnAt = performance.now();
    if (this.late && !this.signal.signal.aborted) this.grown();
  }

  windowOf(name) {
    return Math.max(this.smooth, NOISY.has(name) ? NOISY_WINDOW : 1);
  }

  complain(text) {
    this.note.hidden = false;
    say(this.note, text);
  }

  draw(panel, { curves, raw, ruler }) {
    const { chart } = panel, main = panel === this.main, dots = { ...this.marks.estimates, ...(main ? { [EVALUATION]: this.marks.evaluations } : {}) };
    const known = panel.names.filter((name) => curves[name]?.x.length || dots[name]?.length);
    const names = known.length ? known : panel.names, axes = axesOf(names, this.metrics);
    const axisOf = (name) => Math.min(axes.indexOf(axisKey(this.metrics.get(name))) + 1, 2);
    const lines = [], behind = [], bands = [];
    names.forEach((name, colour) => {
      const metric = this.metrics.get(name), axis = axisOf(name);
      const line = { key: name, label: title(name), colour, axis, dashed: axis === 2, format: texts(metric).values };
      if (dots[name]?.length) {
        const part = (key) => dots[name].map((one) => one[key]);
        bands.push({ ...line, dots: true, x: part("x"), centre: part("mean"), low: part("low"), high: part("high") });
        return;
      }
      lines.push({ ...line, ...(curves[name] ?? { x: [], y: [] }) });
      if (raw?.[name]?.x.length) behind.push({ ...line, key: `raw ${name}`, faint: true, behind: true, ...raw[name] });
    });
    const drawn = axes.map((key) => texts(this.metrics.get(names.find((name) => axisKey(this.metrics.get(name)) === key))));
    chart.label = title(names[0]);
    chart.setAxes([drawn[0].ticks, (drawn[1] ?? drawn[0]).ticks], [drawn[0].title, drawn[1]?.title ?? ""]);
    const targets = this.marks.targets.filter((target) => names.includes(target.metric)).map((target) => ({ ...target, axis: axisOf(target.metric) }));
    chart.show(this.over, [...behind, ...lines], { bands, targets, ruler, marks: main ? this.marks.marks : [] });
    const windows = new Set(lines.map((line) => this.windowOf(line.key)));
    panel.card.name(this.titleOf(panel, names));
    say(panel.card.subtitle, windows.size === 1 && !windows.has(1) ? `mean of ${[...windows][0]} points` : "");
    panel.card.drawTable();
  }

  zoomed(range) {
    this.zoom = range;
    for (const { chart } of [this.main, ...this.panels]) chart.setZoom(range);
    this.resetZoom.hidden = range === null;
    this.remember();
    this.redrawSoon();
  }

  themed() {
    for (const { chart } of [this.main, ...this.panels]) chart.rebuild();
    this.histograms.themed();
  }

  shown() {
    for (const { chart } of [this.main, ...this.panels]) chart.resize();
    this.histograms.load();
  }

  leave() {
    this.signal.abort();
    clearTimeout(this.timer);
    for (const { card } of [this.main, ...this.panels]) card.destroy();
  }
}
