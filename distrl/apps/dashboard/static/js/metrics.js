// What is known of metrics: group, unit and meaning; how their values are written, which share an axis, and the choice of them.
import { bytes, duration, general, percent, tick } from "./format.js";
import { pick } from "./picker.js";

const share = (value) => `${Number((100 * value).toPrecision(3))} %`;
const UNITS = { // unit -> text of a tick, text of a value
  share: [share, share], bytes: [bytes, bytes], MB: [(value) => bytes(1e6 * value), (value) => bytes(1e6 * value)],
  "bytes/s": [(value) => `${bytes(value)}/s`, (value) => `${bytes(value)}/s`], s: [duration, duration],
};
const TITLES = { share: "share", bytes: "", MB: "", "bytes/s": "", s: "" };
const X_COLUMNS = new Set(["env_steps", "updates", "episodes", "wall_s"]);
export { percent };
let titles = {}, meanings = new Map();

/** Takes over titles and meanings from the server's tables. */
export function learn(session) {
  titles = session.titles;
  meanings = new Map(session.metrics.map((metric) => [metric.name, metric.meaning]));
}

export const meaning = (name) => meanings.get(name) ?? "";

/** A metric's title; of one without, its name in words: my_error -> My error. */
export const title = (name) => titles[name] ?? (name.charAt(0).toUpperCase() + name.slice(1)).replaceAll("_", " ");

/** The metrics of a run by name: those of the server's table that it has, and its own. */
export function metricsOf(session, told) {
  const table = new Map(session.metrics.map((metric) => [metric.name, metric]));
  const own = new Map((told.own ?? []).map((metric) => [metric.name, metric]));
  const names = [...told.columns, ...own.keys()].filter((name) => !X_COLUMNS.has(name));
  return new Map([...new Set(names)].map((name) => [name, table.get(name) ?? own.get(name) ?? { name, group: "algorithm", unit: "", meaning: "" }]));
}

/** Metrics of one unit share an axis; those without a unit, that of their group. */
export const axisKey = (metric) => metric?.unit || `(${groupOf(metric)})`;
const groupOf = (metric) => (/return|off_policy/.test(metric?.name) ? "return" : metric?.group ?? "algorithm"); // of trainings and of evaluations

/** Texts of an axis and of values on it. */
export function texts(metric) {
  const unit = metric?.unit ?? "", [ticks, values] = UNITS[unit] ?? [tick, (value) => `${general(value)}${unit ? ` ${unit}` : ""}`];
  return { ticks, values, title: TITLES[unit] ?? (unit || groupOf(metric)) };
}

/** The axes of these metrics, at most two. */
export const axesOf = (names, metrics) => [...new Set(names.map((name) => axisKey(metrics.get(name))))];

const MOST_METRICS = 12; // of one chart

/** A dialog in which the metrics of a chart are chosen, those without a number last; resolves to names, or null. */
export function pickMetrics(metrics, chosen, snapshot) {
  const known = ({ name }) => snapshot[name] !== undefined && snapshot[name] !== null;
  const items = [...metrics.values()].sort((one, other) => known(other) - known(one)).map((metric) => ({ key: metric.name, name: title(metric.name), unit: metric.unit, group: title(metric.group || "other"),
    meaning: known(metric) ? metric.meaning : `${metric.meaning} – no number now`, without: !known(metric) }));
  const check = (picked) => { // a chart has two axes: metrics of a third unit cannot be added
    const axes = axesOf([...picked], metrics), full = picked.size >= MOST_METRICS;
    return [full ? `A chart has at most ${MOST_METRICS} lines.` : axes.length >= 2 ? "Both axes are taken: only metrics of the same units can be added." : "", (name) => full || (axes.length >= 2 && !axes.includes(axisKey(metrics.get(name))))];
  };
  return pick({ title: "Metrics of this chart", find: "Find metrics", items, chosen, check });
}
