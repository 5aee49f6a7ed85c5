// What is known of metrics: group, unit and meaning; how their values are written, and which share an axis.
import { bytes, duration, general, percent, tick, title } from "./format.js";

const share = (value) => `${Number((100 * value).toPrecision(3))} %`;
const UNITS = { // unit -> text of a tick, text of a value
  share: [share, share], bytes: [bytes, bytes], MB: [(value) => bytes(1e6 * value), (value) => bytes(1e6 * value)],
  "bytes/s": [(value) => `${bytes(value)}/s`, (value) => `${bytes(value)}/s`], s: [duration, duration],
};
const TITLES = { share: "share", bytes: "", MB: "", "bytes/s": "", s: "" };
const X_COLUMNS = new Set(["env_steps", "updates", "episodes", "wall_s"]);
export { percent, title };

/** The metrics of a run by name: those of the server's table that it has, and its own. */
export function metricsOf(session, told) {
  const table = new Map(session.metrics.map((metric) => [metric.name, metric]));
  const own = new Map((told.own ?? []).map((metric) => [metric.name, metric]));
  const names = [...told.columns, ...own.keys()].filter((name) => !X_COLUMNS.has(name));
  return new Map([...new Set(names)].map((name) => [name, table.get(name) ?? own.get(name) ?? { name, group: "algorithm", unit: "", meaning: "" }]));
}

/** Metrics of one unit share an axis; those without a unit, that of their group. */
export const axisKey = (metric) => metric?.unit || `(${groupOf(metric)})`;
const groupOf = (metric) => (/return/.test(metric?.name) ? "return" : metric?.group ?? "algorithm"); // of trainings and of evaluations

/** Texts of an axis and of values on it. */
export function texts(metric) {
  const unit = metric?.unit ?? "", [ticks, values] = UNITS[unit] ?? [tick, (value) => `${general(value)}${unit ? ` ${unit}` : ""}`];
  return { ticks, values, title: TITLES[unit] ?? (unit || groupOf(metric)) };
}

/** The axes of these metrics, at most two. */
export const axesOf = (names, metrics) => [...new Set(names.map((name) => axisKey(metrics.get(name))))];
