// Numbers and times as text. Unknown values are an en dash.

export const UNKNOWN = "–";
const known = (value) => typeof value === "number" && Number.isFinite(value);
const shape = (digits) => new Intl.NumberFormat("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const SHAPES = [0, 1, 2, 3].map(shape);
const HUGE = 1e15; // of which no reader counts the digits

/** A known number with so many decimals; every text of a number is made here. */
const text = (value, digits = 0) => (Math.abs(value) < HUGE ? SHAPES[digits].format(value) : value.toExponential(2));

export const whole = (value) => (known(value) ? text(Math.round(value)) : UNKNOWN);
export const fixed = (value, digits) => (known(value) ? text(value, digits) : UNKNOWN);
/** A return: two decimals where one would hide what matters. */
export const result = (value) => fixed(value, Math.abs(value) >= 10 ? 1 : 2);
export const percent = (value) => (known(value) ? `${text(100 * value)} %` : UNKNOWN);

/** 1,234 · 123.4 k · 12.3 M: for tiles and axes. */
export function compact(value) {
  if (!known(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size >= HUGE) return text(value);
  for (const [unit, at] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (size >= at * (unit === "k" ? 10 : 1)) return `${trimmed(value / at)} ${unit}`;
  }
  return text(value);
}

const trimmed = (value) => text(value, Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2);

/** Ticks of an axis: 500 · 1.5 k · 20 k. */
export function tick(value) {
  const size = Math.abs(value);
  if (size >= HUGE) return text(value);
  for (const [unit, at] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) if (size >= at) return `${Number((value / at).toPrecision(5))} ${unit}`;
  return String(Number(value.toPrecision(6)));
}

/** Any number of a chart. */
export function general(value) {
  if (!known(value)) return UNKNOWN;
  if (Number.isInteger(value)) return text(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(2);
  return text(value, size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 3);
}

/** A setting's value, of whose digits a reader needs six; a whole number, such as a seed, keeps all. */
export function setting(value) {
  const told = String(value), isLong = told.length > 9 && /^-?\d*(\.\d+)?(e[-+]?\d+)?$/i.test(told) && !/^-?\d+$/.test(told);
  return isLong ? String(Number(Number(told).toPrecision(6))) : told;
}

/** 1 run, 2 runs, 1,234 runs. */
export const counted = (count, one, many = `${one}s`) => `${whole(count)} ${count === 1 ? one : many}`;

export function bytes(value) {
  if (!known(value)) return UNKNOWN;
  if (value >= HUGE) return `${text(value)} B`;
  for (const [unit, at] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (value >= at) return `${trimmed(value / at)} ${unit}`;
  return `${whole(value)} B`;
}

/** 9.8 s, 2:05 (minutes and seconds), 1:02:05, 3 d 4 h. */
export function duration(seconds) {
  if (!known(seconds)) return UNKNOWN;
  if (seconds < 10) return `${fixed(Math.max(seconds, 0), 1)} s`;
  const all = Math.round(seconds);
  if (all < 60) return `${all} s`;
  const days = Math.floor(all / 86400), hours = Math.floor(all / 3600), minutes = Math.floor(all / 60) % 60;
  if (days >= 2) return `${days} d ${hours % 24} h`;
  const two = (number) => String(number).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(all % 60)}` : `${minutes}:${two(all % 60)}`;
}

export function ago(unixSeconds) {
  if (!unixSeconds) return UNKNOWN;
  const seconds = Date.now() / 1000 - unixSeconds;
  for (const [unit, at] of [["day", 86400], ["hour", 3600], ["minute", 60]]) {
    const count = Math.floor(seconds / at);
    if (count >= 1) return `${counted(count, unit)} ago`;
  }
  return "just now";
}

export function moment(unixSeconds) {
  return unixSeconds ? new Date(1000 * unixSeconds).toLocaleString("sv-SE").slice(0, 16) : UNKNOWN;
}
