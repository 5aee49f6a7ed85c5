// Scales of pictures of settings: numbers, also logarithmic, and categories at even places.
import { colour, seriesColour } from "./colours.js";
import { setting, tick } from "./format.js";

const DECADES = 1.3; // positive numbers that span so many are drawn on a logarithmic scale
const MOST_TICKS = 8;
const ROOM = 0.05;
const RAMP = ["--c0", "--c2", "--c1"]; // from the least to the greatest

/** One setting or outcome of every run: {name, texts, numbers or null}. Unknown numbers are null; log: whether the scale may be logarithmic. */
export function scaleOf({ name, texts, numbers, log = true }) {
  const known = numbers?.filter((value) => value !== null) ?? [];
  return numbers && known.length ? ofNumbers(name, numbers, known, log) : ofCategories(name, texts);
}

const text = (value) => tick(Number(value.toPrecision(4)));
const distinct = (values) => [...new Set(values)];

function ofNumbers(name, numbers, known, mayLog) {
  const values = distinct(known).sort((one, other) => one - other);
  const low = values[0], high = values[values.length - 1], log = mayLog && low > 0 && Math.log10(high / low) >= DECADES;
  const f = log ? Math.log10 : (value) => value, width = f(high) - f(low);
  const place = (value) => (width ? ROOM + (1 - 2 * ROOM) * ((f(value) - f(low)) / width) : 0.5);
  const at = (share) => { const v = f(low) + ((share - ROOM) / (1 - 2 * ROOM)) * width; return log ? 10 ** v : v; };
  const ticks = values.length <= MOST_TICKS ? values : log ? logTicks(low, high) : evenTicks(low, high);
  return { name, log, numeric: true, values: numbers, steps: values.length <= 24 ? values : Array.from({ length: 25 }, (_, i) => at(ROOM + (i / 24) * (1 - 2 * ROOM))),
    place, at, text, ticks: ticks.map((value) => ({ share: place(value), text: tick(value) })), low, high };
}

function ofCategories(name, texts) {
  const order = (one, other) => (Number(one) - Number(other)) || one.localeCompare(other, "en", { numeric: true });
  const found = distinct(texts).sort(order), last = Math.max(found.length - 1, 1);
  const place = (index) => (found.length > 1 ? ROOM + (1 - 2 * ROOM) * (index / last) : 0.5);
  const at = (share) => Math.min(Math.max(((share - ROOM) / (1 - 2 * ROOM)) * last, -0.4), last + 0.4);
  return { name, log: false, numeric: false, values: texts.map((text) => found.indexOf(text)), steps: found.map((_, index) => index), place, at, categories: found,
    text: (value) => found[Math.round(value)] ?? "", ticks: found.map((text, index) => ({ share: place(index), text: setting(text) })), low: 0, high: last };
}

function evenTicks(low, high) {
  const rough = (high - low) / 5, size = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].map((n) => n * size).find((each) => each >= rough);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(Number(value.toPrecision(12)));
  return found;
}

function logTicks(low, high) {
  const many = Math.log10(high / low) > 3.5, found = [];
  for (let decade = Math.floor(Math.log10(low)); decade <= Math.log10(high); decade += 1) {
    for (const digit of many ? [1] : [1, 3]) {
      const value = Number(`${digit}e${decade}`);
      if (value >= low && value <= high) found.push(value);
    }
  }
  return found.length > 1 ? found : [low, high];
}

/** Ticks of which no two are nearer to each other than `least`, a share of the axis. */
export function apart(ticks, least) {
  const kept = [];
  for (const one of [...ticks].sort((a, b) => a.share - b.share)) if (!kept.length || one.share - kept[kept.length - 1].share >= least) kept.push(one);
  return kept;
}

/** Colours of values: a series colour for each of up to eight categories, else a ramp. */
export function colouring(scale) {
  if (!scale) return { of: () => colour("--c0"), keys: [] };
  if (!scale.numeric && scale.categories.length <= 8) {
    return { of: (value) => colour(seriesColour(value)), keys: scale.categories.map((text, index) => [text, colour(seriesColour(index))]) };
  }
  const stops = RAMP.map((name) => colour(name).match(/[\d.]+/g).slice(0, 3).map(Number));
  const of = (value) => {
    if (value === null || value === undefined || value < 0 && !scale.numeric) return colour("--muted");
    const share = Math.min(Math.max((scale.place(value) - ROOM) / (1 - 2 * ROOM), 0), 1) * (stops.length - 1), left = Math.min(Math.floor(share), stops.length - 2);
    return `rgb(${stops[left].map((from, at) => Math.round(from + (share - left) * (stops[left + 1][at] - from))).join(", ")})`;
  };
  const values = scale.steps.length <= 8 ? scale.steps : [0, 6, 12, 18, 24].map((at) => scale.steps[Math.round((at / 24) * (scale.steps.length - 1))]);
  return { of, keys: values.map((value) => [scale.text(value), of(value)]) };
}
