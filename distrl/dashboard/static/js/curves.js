// The curves of a run: the main chart, the small ones, and what they show.
import { h, say, select, slider, settled } from "./dom.js";
import { get } from "./api.js";
import { Chart } from "./chart.js";
import { percent, tick, title } from "./format.js";

const REDRAW_MS = [1000, 10000]; // least and most; a long curve changes little in a second
const REDRAW_MS_A_POINT = 8;
const CURVE_MS = 60000; // the first curve of a long run takes a while
const SMALL = [
  ["Throughput", [["env_steps_per_s", "steps/s", 1], ["updates_per_s", "updates/s", 2]]],
  ["Waiting", [["learner_wait_share", "learner", 1, percent], ["actors_blocked_share", "actors", 1, percent]]],
  ["Fill of the queue", [["queue_fill", "fill", 1, percent]]],
  ["Policy lag, updates", [["policy_lag_mean", "mean", 1], ["policy_lag_p95", "95th percentile", 1], ["policy_lag_max", "max", 1]]],
  ["Loss", [["loss", "total", 1], ["policy_loss", "policy", 1], ["value_loss", "value", 1]]],
  ["Entropy and gradients", [["entropy", "entropy", 1], ["gradient_norm", "gradient norm", 2]]],
];
const SHARES = new Set(["Waiting", "Fill of the queue"]);
const AXES = [["steps", "steps"], ["updates", "updates"], ["episodes", "episodes"], ["time", "time"]];
const kept = { over: "steps", metric: "mean_return_100", second: "", smooth: 1 };

/** `first`: the server's description of the run; `beside`: an element beside the main chart; `begun`: called when the first numbers are there. */
export class Curves {
  constructor(id, first, { beside, begun }) {
    this.id = id;
    this.run = first.run;
    this.columns = first.columns;
    this.begun = begun;
    this.signal = new AbortController();
    this.redrawnAt = 0;
    this.main = new Chart({ height: 350, fill: true, label: "Curve", syncKey: "run", onZoom: (range) => this.zoomed(range) });
    this.small = SMALL.map(([label]) => new Chart({ height: 150, label, syncKey: "run", axisText: SHARES.has(label) ? percent : tick, onZoom: (range) => this.zoomed(range) }));
    this.note = h("div", { class: "note bad", role: "status", hidden: true });
    this.element = this.laidOut(beside);
  }

  laidOut(beside) {
    const run = this.run;
    this.resetZoom = h("button", { type: "button", class: "small", hidden: true, on: { click: () => this.zoomed(null) } }, "Reset zoom");
    const save = h("button", { type: "button", class: "small", on: { click: () => this.main.save(`${run.name}-${kept.metric}`, `${run.name}: ${title(kept.metric)}`) } }, "Save PNG");
    this.metricField = h("span");
    const axis = select("over", AXES, kept.over, (over) => { kept.over = over; this.redraw(); });
    const smooth = slider("Smoothing", 1, 101, kept.smooth, (window) => { kept.smooth = window; this.redrawSoon(); });
    this.redrawSoon = settled(120, () => this.redraw());
    const card = (chart, label) => h("figure", { class: "card" }, h("header", {}, h("h2", {}, label)), h("div", { class: "body" }, chart.element));
    this.cards = this.small.map((chart, at) => card(chart, SMALL[at][0]));
    return h("div", {},
      h("div", { class: "grid main" },
        h("figure", { class: "card filled" }, h("header", {}, this.metricField, axis, smooth, h("span", { class: "spacer" }), this.resetZoom, save),
          h("div", { class: "body" }, this.note, this.main.element)),
        beside),
      h("div", { class: "grid three" }, this.cards));
  }

  /** Takes the server's description of the run. */
  described(told) {
    this.run = told.run;
    this.columns = told.columns;
    this.drawMetricFields();
  }

  drawMetricFields() {
    const names = this.columns.filter((name) => !["env_steps", "updates", "episodes", "wall_s"].includes(name));
    if (!names.length || this.shownColumns === names.join()) return;
    this.shownColumns = names.join();
    const options = names.map((name) => [name, title(name)]);
    this.metricField.replaceChildren(
      select("Curve", options, kept.metric, (name) => { kept.metric = name; this.redraw(); }), " ",
      select("and", [["", "–"], ...options], kept.second, (name) => { kept.second = name; this.redraw(); }));
    this.metricField.className = "toolbar";
  }

  /** Draws again when it is due: a long curve changes little in a second. */
  grown() {
    if (document.visibilityState !== "visible") return;
    const points = this.main.lines[0]?.x.length ?? 0;
    const due = this.redrawnAt + Math.min(Math.max(REDRAW_MS_A_POINT * points, REDRAW_MS[0]), REDRAW_MS[1]) - performance.now();
    if (due <= 0) this.redraw();
    else if (!this.timer) this.timer = setTimeout(() => { this.timer = 0; this.redraw(); }, due);
  }

  async redraw() {
    this.redrawnAt = performance.now();
    const small = SMALL.flatMap(([, lines]) => lines.map(([name]) => name));
    const over = kept.over, asked = { over, smooth: kept.smooth };
    let main, rest;
    try {
      [main, rest] = await Promise.all([
        get(`runs/${this.id}/curve`, { ...asked, metric: [kept.metric, kept.second].filter(Boolean), points: 1000 }, this.signal.signal, CURVE_MS),
        get(`runs/${this.id}/curve`, { ...asked, metric: small, points: 300 }, this.signal.signal, CURVE_MS),
      ]);
    } catch (error) {
      if (this.signal.signal.aborted) return;
      this.note.hidden = false;
      say(this.note, error.message);
      this.main.show(over, []); // not the curve of a metric that is not chosen
      return;
    }
    if (over !== kept.over) return; // the axis has changed meanwhile
    this.note.hidden = true;
    this.main.label = title(kept.metric);
    this.main.show(over, [kept.metric, kept.second].filter(Boolean).map((name, at) => ({
      key: at ? "second" : "first", label: title(name), colour: at, axis: at + 1, dashed: at === 1, ...main.curves[name] })));
    SMALL.forEach(([, all], at) => {
      const lines = all.filter(([name]) => rest.curves[name].x.length), both = lines.some(([, , side]) => side === 1);
      this.cards[at].hidden = lines.length === 0 && this.columns.length > 0; // the algorithm has no such numbers
      this.small[at].show(over, lines.map(([name, label, side, format], colour) => ({
        key: name, label, colour, axis: both ? side : 1, dashed: both && side === 2, format, ...rest.curves[name] })));
    });
    if (!this.columns.length && main.curves[kept.metric].x.length) await this.begun();
  }

  zoomed(range) {
    for (const chart of [this.main, ...this.small]) chart.setZoom(range);
    this.resetZoom.hidden = range === null;
  }

  themed() {
    for (const chart of [this.main, ...this.small]) chart.rebuild();
  }

  shown() {
    for (const chart of [this.main, ...this.small]) chart.resize();
  }

  leave() {
    this.signal.abort();
    clearTimeout(this.timer);
    for (const chart of [this.main, ...this.small]) chart.destroy();
  }
}
