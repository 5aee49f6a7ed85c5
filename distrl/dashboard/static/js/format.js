// Numbers and times as text. Unknown values are an en dash.

export const UNKNOWN = "–";
const known = (value) => typeof value === "number" && Number.isFinite(value);
const shape = (digits) => new Intl.NumberFormat("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
const SHAPES = [0, 1, 2, 3].map(shape);

export const whole = (value) => (known(value) ? SHAPES[0].format(Math.round(value)) : UNKNOWN);
export const fixed = (value, digits) => (known(value) ? SHAPES[digits].format(value) : UNKNOWN);
/** A return: two decimals where one would hide what matters. */
export const result = (value) => fixed(value, Math.abs(value) >= 10 ? 1 : 2);
export const percent = (value) => (known(value) ? `${SHAPES[0].format(100 * value)} %` : UNKNOWN);

/** 1,234 · 123.4 k · 12.3 M: for tiles and axes. */
export function compact(value) {
  if (!known(value)) return UNKNOWN;
  const size = Math.abs(value);
  for (const [unit, at] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (size >= at * (unit === "k" ? 10 : 1)) return `${trimmed(value / at)} ${unit}`;
  }
  return SHAPES[0].format(value);
}

const trimmed = (value) => SHAPES[Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2].format(value);

/** Ticks of an axis: 500 · 1.5 k · 20 k. */
export function tick(value) {
  const size = Math.abs(value);
  for (const [unit, at] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) if (size >= at) return `${Number((value / at).toPrecision(5))} ${unit}`;
  return String(Number(value.toPrecision(6)));
}

/** Any number of a chart. */
export function general(value) {
  if (!known(value)) return UNKNOWN;
  if (Number.isInteger(value)) return SHAPES[0].format(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(2);
  if (size >= 1000) return SHAPES[0].format(value);
  return SHAPES[size >= 100 ? 1 : size >= 1 ? 2 : 3].format(value);
}

export function bytes(value) {
  if (!known(value)) return UNKNOWN;
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
    if (count >= 1) return `${count} ${unit}${count === 1 ? "" : "s"} ago`;
  }
  return "just now";
}

export function moment(unixSeconds) {
  return unixSeconds ? new Date(1000 * unixSeconds).toLocaleString("sv-SE").slice(0, 16) : UNKNOWN;
}
