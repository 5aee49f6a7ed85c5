// One run: its state in a sentence, numbers, curves, controls and details.
import { h, say } from "./dom.js";
import { get } from "./api.js";
import { controls } from "./controls.js";
import { Curves } from "./curves.js";
import { flow } from "./flow.js";
import { follow } from "./follow.js";
import { head } from "./head.js";
import { ago, bytes, compact, duration, fixed, moment, result, whole } from "./format.js";
import { budget } from "./budget.js";
import { title } from "./metrics.js";
import { tabs } from "./panels.js";
import { serving } from "./serving.js";
import { startButtons } from "./start.js";
import { pill } from "./states.js";

const PATIENCE_MS = 300; // a page whose charts come later is shown without them

export async function runPage({ session, match }) {
  const id = match[1];
  const first = await get(`runs/${id}`);
  const view = new RunView(session, first);
  await Promise.race([view.curves.redraw(), new Promise((resolve) => setTimeout(resolve, PATIENCE_MS))]);
  return view;
}

class RunView {
  constructor(session, first) {
    this.id = first.run.id;
    this.run = first.run;
    this.title = first.run.name;
    this.snapshot = first.snapshot;
    this.pill = h("span");
    this.started = h("span", { class: "sub" });
    this.head = head(session, this.id);
    this.tiles = TILES.map(([name]) => ({ value: h("dd"), under: h("dd", { class: "under" }), label: title(name) }));
    this.budget = budget();
    this.curves = new Curves(session, first, {
      beside: h("section", { class: "card", "aria-label": "Where time and unrolls go" }, h("div", { class: "body" }, this.budget.element)),
      begun: async () => this.apply(await get(`runs/${this.id}`)),
    });
    this.controls = controls(session, this.run);
    this.start = startButtons(session, this.run);
    this.tabs = tabs(first);
    this.flow = flow(session, this.id, (log) => this.tabs.showLog(log));
    this.serving = serving();
    this.element = this.laidOut();
    this.apply(first);
    this.follow();
  }

  laidOut() {
    const run = this.run;
    return h("div", {},
      h("p", { class: "crumb" }, h("a", { href: "#/" }, "Runs"), " / ", run.path || run.name),
      h("div", { class: "head" }, h("h1", {}, run.name), this.pill,
        h("span", { class: "sub" }, [run.env, run.algorithm, run.seed === null ? null : `seed ${run.seed}`].filter(Boolean).join(" · ")), this.started, this.start.element),
      this.head.element, this.controls.element,
      h("dl", { class: "tiles" }, this.tiles.map((tile) => h("div", { class: "tile" }, h("dt", {}, tile.label), tile.value, tile.under))),
      this.flow.element,
      this.serving.element,
      this.curves.element,
      this.tabs.element);
  }

  /** Shows the server's description of the run: at first, and whenever the run begins or ends. */
  apply(told) {
    this.run = told.run;
    this.pill.replaceChildren(pill(told.run));
    this.start.update(told.run);
    this.sayStart();
    this.curves.described(told);
    this.ledger = told.ledger;
    this.head.update(told.head);
    this.numbers(told.snapshot);
    this.live(told.live);
    this.serving.update(told.serving);
    this.tabs.described(told);
  }

  numbers(snapshot) {
    this.snapshot = snapshot;
    TILES.forEach(([, show], at) => {
      const [value, unit, under] = show(snapshot, this.run.state === "ended");
      const tile = this.tiles[at];
      if (tile.shown !== value + unit) tile.value.replaceChildren(value, ...(unit ? [" ", h("small", {}, unit)] : []));
      tile.shown = value + unit;
      say(tile.under, under || "");
    });
    this.tabs.numbers(snapshot);
  }

  sayStart() {
    const { started } = this.run;
    say(this.started, started ? `started ${moment(started)}, ${ago(started)}` : "");
  }

  live(live) {
    this.sayStart(); // how long ago changes
    this.budget.update(this.snapshot, live);
    this.flow.update(this.snapshot, live, this.ledger);
    this.tabs.live(live, this.run);
    this.controls.update(this.run, live);
  }

  follow() {
    this.following = follow({ run: this.id }, {
      run: async (run) => {
        if (run.state !== this.run.state || run.started !== this.run.started) this.apply(await get(`runs/${this.id}`));
        else this.pill.replaceChildren(pill(Object.assign(this.run, run)));
        if (run.state !== "running") this.curves.grown();
      },
      head: ({ head }) => this.head.update(head),
      snapshot: ({ snapshot }) => {
        this.numbers(snapshot);
        this.curves.grown();
      },
      live: (live) => this.live(live),
      serving: (told) => this.serving.update(told.serving),
      events: ({ events }) => this.tabs.events(events),
      gone: ({ error }) => { this.head.problem(error); this.following.end(); },
    }, async () => { this.apply(await get(`runs/${this.id}`)); this.curves.grown(); });
  }

  themed() {
    this.curves.themed();
  }

  shown() {
    this.curves.shown();
    this.head.shown();
    this.tabs.shown();
  }

  leave() {
    this.following.end();
    this.curves.leave();
    this.flow.leave();
    this.tabs.leave();
    this.start.leave();
  }
}

// name of a metric, or a title; (snapshot, whether the run has ended) -> [value, unit, text below]
const TILES = [
  ["mean_return_100", (s) => [result(s.mean_return_100), "", `best ${result(s.best_mean_return_100)}`]],
  ["env_steps", (s) => [compact(s.env_steps), "", `${compact(s.episodes)} episodes`]],
  ["Throughput", (s, ended) => [whole(s.env_steps_per_s), "steps/s", `${fixed(s.updates_per_s, 1)} updates/s${ended ? ", on average" : ""}`]],
  ["updates", (s) => [compact(s.updates), "", `weights version ${whole(s.weights_version)}`]],
  ["Policy lag", (s) => [fixed(s.policy_lag_mean, 1), "updates", `max ${whole(s.policy_lag_max)}`]],
  ["training_s", (s, ended) => [duration(s.training_s), "", ended ? `${duration(s.wall_s)} from launch to end` : s.queue_bytes === undefined ? "" : `queue ${bytes(s.queue_bytes)}`]],
];
