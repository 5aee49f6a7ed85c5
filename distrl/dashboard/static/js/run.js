// One run: progress, bottleneck, roles, configuration, events, logs and controls.
import { h, say, select, slider, settled } from "./dom.js";
import { get } from "./api.js";
import { Chart } from "./chart.js";
import { controls } from "./controls.js";
import { follow } from "./follow.js";
import { ago, bytes, compact, duration, fixed, moment, percent, result, tick, title, whole } from "./format.js";
import { budget } from "./budget.js";
import { tabs } from "./panels.js";
import { outcome, pill, stateOf } from "./states.js";

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

export async function runPage({ session, match }) {
  const id = match[1];
  const first = await get(`runs/${id}`);
  const view = new RunView(session, first);
  await view.redraw();
  return view;
}

class RunView {
  constructor(session, first) {
    this.id = first.run.id;
    this.run = first.run;
    this.title = first.run.name;
    this.snapshot = first.snapshot;
    this.columns = first.columns;
    this.signal = new AbortController();
    this.dirty = settled(0, () => this.redraw());
    this.redrawnAt = 0;
    this.main = new Chart({ height: 350, fill: true, label: "Curve", syncKey: "run", onZoom: (range) => this.zoomed(range) });
    this.small = SMALL.map(([label]) => new Chart({ height: 150, label, syncKey: "run", axisText: SHARES.has(label) ? percent : tick, onZoom: (range) => this.zoomed(range) }));
    this.pill = h("span");
    this.started = h("span", { class: "sub" });
    this.verdict = h("div", { class: "note", role: "status" }, h("b", {}, "Bottleneck"), h("span"));
    this.problem = h("div", { class: "note warn", role: "status", hidden: true });
    this.curveNote = h("div", { class: "note bad", role: "status", hidden: true });
    this.tiles = TILES.map(([label]) => ({ value: h("dd"), under: h("dd", { class: "under" }), label }));
    this.budget = budget();
    this.controls = controls(session, this.run);
    this.tabs = tabs(first);
    this.element = this.laidOut();
    this.apply(first);
    this.follow();
  }

  laidOut() {
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
      h("p", { class: "crumb" }, h("a", { href: "#/" }, "Runs"), " / ", run.path || run.name),
      h("div", { class: "head" }, h("h1", {}, run.name), this.pill,
        h("span", { class: "sub" }, [run.env, run.algorithm, run.seed === null ? null : `seed ${run.seed}`].filter(Boolean).join(" · ")), this.started),
      this.problem, this.controls.element, this.verdict,
      h("dl", { class: "tiles" }, this.tiles.map((tile) => h("div", { class: "tile" }, h("dt", {}, tile.label), tile.value, tile.under))),
      h("div", { class: "grid main" },
        h("figure", { class: "card filled" }, h("header", {}, this.metricField, axis, smooth, h("span", { class: "spacer" }), this.resetZoom, save),
          h("div", { class: "body" }, this.curveNote, this.main.element)),
        h("section", { class: "card", "aria-label": "Where time and unrolls go" }, h("div", { class: "body" }, this.budget.element))),
      h("div", { class: "grid three" }, this.cards),
      this.tabs.element);
  }

  /** Shows the server's description of the run: at first, and whenever the run begins or ends. */
  apply(told) {
    this.run = told.run;
    this.pill.replaceChildren(pill(told.run));
    this.sayStart();
    this.columns = told.columns;
    this.drawMetricFields();
    this.ledger = told.ledger;
    this.numbers(told.snapshot, told.verdict);
    this.live(told.live);
    this.tabs.described(told);
    const text = outcome(told.run);
    this.problem.hidden = !text || told.run.state === "running";
    this.problem.className = `note ${stateOf(told.run) === "failed" || told.run.state === "damaged" ? "bad" : told.run.state === "gone" ? "warn" : ""}`;
    say(this.problem, text);
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

  numbers(snapshot, verdict) {
    this.snapshot = snapshot;
    TILES.forEach(([, show], at) => {
      const [value, unit, under] = show(snapshot, this.run.state === "ended");
      const tile = this.tiles[at];
      if (tile.shown !== value + unit) tile.value.replaceChildren(value, ...(unit ? [" ", h("small", {}, unit)] : []));
      tile.shown = value + unit;
      say(tile.under, under || "");
    });
    this.verdict.hidden = !verdict;
    say(this.verdict.lastChild, verdict ?? "");
  }

  sayStart() {
    const { started } = this.run;
    say(this.started, started ? `started ${moment(started)}, ${ago(started)}` : "");
  }

  live(live) {
    this.sayStart(); // how long ago changes
    this.budget.update(this.snapshot, live, this.ledger);
    this.tabs.live(live, this.run);
    this.controls.update(this.run, live);
    if (live && this.run.state === "running") {
      this.pill.replaceChildren(pill({ ...this.run, paused: live.control.paused }));
      this.problem.hidden = !live.problem;
      this.problem.className = "note warn";
      say(this.problem, live.problem ?? "");
    }
  }

  follow() {
    this.following = follow({ run: this.id }, {
      run: async (run) => {
        if (run.state !== this.run.state || run.started !== this.run.started) this.apply(await get(`runs/${this.id}`));
        if (run.state !== "running") this.redraw();
      },
      snapshot: ({ snapshot, verdict }) => {
        this.numbers(snapshot, verdict);
        if (document.visibilityState !== "visible") return;
        const points = this.main.lines[0]?.x.length ?? 0;
        const due = this.redrawnAt + Math.min(Math.max(REDRAW_MS_A_POINT * points, REDRAW_MS[0]), REDRAW_MS[1]) - performance.now();
        if (due <= 0) this.redraw();
        else if (!this.timer) this.timer = setTimeout(() => { this.timer = 0; this.redraw(); }, due);
      },
      live: (live) => this.live(live),
      events: ({ events }) => this.tabs.events(events),
      gone: ({ error }) => { this.problem.hidden = false; say(this.problem, error); this.following.end(); },
    }, async () => { this.apply(await get(`runs/${this.id}`)); this.redraw(); });
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
      this.curveNote.hidden = false;
      say(this.curveNote, error.message);
      this.main.show(over, []); // not the curve of a metric that is not chosen
      return;
    }
    if (over !== kept.over) return; // the axis has changed meanwhile
    this.curveNote.hidden = true;
    this.main.label = title(kept.metric);
    this.main.show(over, [kept.metric, kept.second].filter(Boolean).map((name, at) => ({
      key: at ? "second" : "first", label: title(name), colour: at, axis: at + 1, dashed: at === 1, ...main.curves[name] })));
    SMALL.forEach(([, all], at) => {
      const lines = all.filter(([name]) => rest.curves[name].x.length), both = lines.some(([, , side]) => side === 1);
      this.cards[at].hidden = lines.length === 0 && this.columns.length > 0; // the algorithm has no such numbers
      this.small[at].show(over, lines.map(([name, label, side, format], colour) => ({
        key: name, label, colour, axis: both ? side : 1, dashed: both && side === 2, format, ...rest.curves[name] })));
    });
    if (!this.columns.length && main.curves[kept.metric].x.length) this.apply(await get(`runs/${this.id}`));
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
    this.following.end();
    this.signal.abort();
    clearTimeout(this.timer);
    this.tabs.leave();
    for (const chart of [this.main, ...this.small]) chart.destroy();
  }
}

// label, (snapshot, whether the run has ended) -> [value, unit, text below]
const TILES = [
  ["Return, last 100", (s) => [result(s.mean_return_100), "", `best ${result(s.best_mean_return_100)}`]],
  ["Environment steps", (s) => [compact(s.env_steps), "", `${compact(s.episodes)} episodes`]],
  ["Throughput", (s, ended) => [whole(s.env_steps_per_s), "steps/s", `${fixed(s.updates_per_s, 1)} updates/s${ended ? ", on average" : ""}`]],
  ["Updates", (s) => [compact(s.updates), "", `weights version ${whole(s.weights_version)}`]],
  ["Policy lag", (s) => [fixed(s.policy_lag_mean, 1), "updates", `max ${whole(s.policy_lag_max)}`]],
  ["Training time", (s, ended) => [duration(s.training_s), "", ended ? `${duration(s.wall_s)} from launch to end` : s.queue_bytes === undefined ? "" : `queue ${bytes(s.queue_bytes)}`]],
];
