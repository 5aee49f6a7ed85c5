// Several runs in one picture: lines, or bands over those that share a value of the configuration.
import { h, say, select, slider, settled } from "./dom.js";
import { get } from "./api.js";
import { Chart } from "./chart.js";
import { seriesColour } from "./colours.js";
import { ChartCard } from "./chartcard.js";
import { metricsOf, texts } from "./metrics.js";
import { compact, duration, result, title, UNKNOWN } from "./format.js";
import { pill } from "./states.js";

const AXES = [["steps", "steps"], ["updates", "updates"], ["episodes", "episodes"], ["time", "time"]];
const STATISTICS = [["mean", "mean ± deviation"], ["iqm", "interquartile mean"]];
const kept = { over: "steps", metric: "mean_return_100", second: "", smooth: 1, group: "", statistic: "mean" };
const REFRESH_MS = 5000;

export async function comparePage({ parameters, session }) {
  let ids = parameters.getAll("id");
  if (!ids.length) throw new Error("Choose runs in the list to compare them.");
  const hidden = new Set();
  const chart = new Chart({ height: 460, label: "Comparison" });
  const fields = h("div", { class: "toolbar" });
  const rows = h("tbody");
  const note = h("div", { class: "note bad", role: "status", hidden: true });
  const reset = h("button", { type: "button", class: "small", hidden: true, on: { click: () => { chart.setZoom(null); reset.hidden = true; } } }, "Reset zoom");
  chart.onZoom = (range) => (reset.hidden = range === null);
  const card = new ChartCard(chart, { head: [fields], named: () => `compare ${title(kept.metric)} over ${kept.over}` });
  const soon = settled(150, draw);
  let offered = "", last = null, turn = 0;

  const ask = (metric) => get("compare", { id: ids, metric, over: kept.over, smooth: kept.smooth, group: kept.group, statistic: kept.statistic, points: 800 }, undefined, 60000);

  async function draw() {
    const mine = (turn += 1);
    try {
      const found = await ask(kept.metric), second = kept.second ? await ask(kept.second) : null;
      if (mine !== turn) return;
      last = [found, second];
      note.hidden = true;
      offer(found);
      picture();
    } catch (error) {
      if (mine !== turn) return;
      note.hidden = false;
      say(note, error.message);
    }
  }

  function picture() {
    const [found, second] = last, banded = found.bands.length > 0;
    const colours = new Map(found.runs.map((run, at) => [run.id, banded ? found.bands.findIndex((band) => band.label === run.group) : at]));
    const labels = new Map(found.runs.map((run) => [run.id, run.name]));
    const shown = found.runs.filter((run) => !hidden.has(run.id));
    const known = metricsOf(session, { columns: found.columns });
    const drawn = [kept.metric, kept.second || kept.metric].map((name) => texts(known.get(name)));
    chart.setAxes(drawn.map((one) => one.ticks), [drawn[0].title, second ? drawn[1].title : ""]);
    const line = (from, axis) => (run) => ({ key: `${axis}-${run.id}`, label: axis === 2 ? `${labels.get(run.id)} · ${title(kept.second)}` : labels.get(run.id),
      colour: colours.get(run.id), axis, dashed: axis === 2, faint: banded && axis === 1, format: drawn[axis - 1].values, ...from.curves[run.id] });
    const bands = found.bands.map((band, at) => ({ ...band, key: `band-${band.label}`, label: `${bandName(band)} (${band.runs})`, colour: at, format: drawn[0].values }));
    chart.label = `${title(kept.metric)} of ${found.runs.length} runs`;
    chart.show(kept.over, [...shown.map(line(found, 1)), ...(second ? shown.map(line(second, 2)) : [])], { bands });
    card.drawTable();
    rows.replaceChildren(...found.runs.map((run) => runRow(run, colours.get(run.id))));
  }

  const bandName = (band) => (kept.group === "*" ? band.label : `${kept.group} = ${band.label}`);

  function runRow(run, colour) {
    const swatch = h("span", { class: "dot", "aria-hidden": "true" });
    swatch.style.background = `var(${seriesColour(colour)})`;
    const box = h("input", { type: "checkbox", checked: !hidden.has(run.id), "aria-label": `Show ${run.name}`,
      on: { change: () => { if (box.checked) hidden.delete(run.id); else hidden.add(run.id); picture(); } } });
    return h("tr", {}, h("td", {}, box), h("th", { scope: "row" }, swatch, h("a", { href: `#/run/${run.id}` }, run.name)), h("td", {}, pill(run)),
      h("td", {}, run.group ?? UNKNOWN), h("td", { class: "n" }, result(run.numbers.mean_return_100)), h("td", { class: "n" }, result(run.numbers.best_mean_return_100)),
      h("td", { class: "n" }, compact(run.numbers.env_steps)), h("td", { class: "n" }, duration(run.numbers.training_s)),
      h("td", {}, h("button", { type: "button", class: "quiet small", "aria-label": `Unload ${run.name}`, on: { click: () => unload(run.id) } }, "Unload")));
  }

  function unload(id) {
    ids = ids.filter((one) => one !== id);
    hidden.delete(id);
    history.replaceState(null, "", `#/compare?${new URLSearchParams(ids.map((one) => ["id", one]))}`);
    if (ids.length) draw(); else location.hash = "#/";
  }

  function offer(found) {
    const text = JSON.stringify([found.columns, found.keys]);
    if (text === offered) return;
    offered = text;
    const metrics = found.columns.map((name) => [name, title(name)]);
    const change = (key) => (value) => { kept[key] = value; draw(); };
    if (kept.group && kept.group !== "*" && !found.keys.includes(kept.group)) kept.group = "";
    fields.replaceChildren(select("Curve", metrics, kept.metric, change("metric")), select("and", [["", "–"], ...metrics], kept.second, change("second")),
      select("over", AXES, kept.over, change("over")),
      select("Group", [["", "each run"], ["*", "all runs"], ...found.keys.map((key) => [key, key])], kept.group, change("group")),
      select("as", STATISTICS, kept.statistic, change("statistic")),
      slider("Smoothing", 1, 101, kept.smooth, (window) => { kept.smooth = window; soon(); }));
  }

  await draw();
  const timer = setInterval(() => { if (document.visibilityState === "visible" && last?.[0].runs.some((run) => run.state === "running")) draw(); }, REFRESH_MS);
  const heads = ["", "Run", "State", "Group", "Return", "Best", "Steps", "Training", ""];
  return {
    element: h("div", { class: "compare" }, h("p", { class: "crumb" }, h("a", { href: "#/" }, "Runs"), " / compare"), h("div", { class: "head" }, h("h1", {}, "Compare"), h("span", { class: "spacer" }), reset), note,
      card.element,
      h("div", { class: "card scroll" }, h("table", {}, h("caption", { class: "visually-hidden" }, "Compared runs"),
        h("thead", {}, h("tr", {}, heads.map((text, at) => h("th", { scope: "col", class: at >= 4 && at <= 7 ? "n" : "" }, text || h("span", { class: "visually-hidden" }, at ? "Unload" : "Show"))))), rows))),
    leave: () => { clearInterval(timer); card.destroy(); },
    shown: () => chart.resize(),
    themed: () => chart.rebuild(),
  };
}
