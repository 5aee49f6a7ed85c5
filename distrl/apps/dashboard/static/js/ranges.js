// Ranges of axes, and places of points in them.

/** Least and greatest x of these lines; [null, null] of none. */
export function extent(lines) {
  const drawn = lines.filter((line) => line.x.length);
  if (!drawn.length) return [null, null];
  const low = Math.min(...drawn.map((line) => line.x[0])), high = Math.max(...drawn.map((line) => line.x[line.x.length - 1]));
  return high > low ? [low, high] : [low - 1, high + 1];
}

/** A range with room around its values; one near zero begins there. */
export function padded(low, high) {
  if (low === null || low === undefined || !Number.isFinite(low)) return [0, 1];
  if (low === high) return low === 0 ? [0, 1] : [Math.min(0, 2 * low), Math.max(0, 2 * low)];
  const room = 0.06 * (high - low);
  return [low >= 0 && low <= 0.6 * high ? 0 : low - room, high <= 0 && high >= 0.6 * low ? 0 : high + room];
}

/** The same of a logarithmic axis, whose values are positive. */
export function paddedLog(low, high) {
  if (!(low > 0)) return [0.1, 1];
  const room = Math.max((high / low) ** 0.04, 1.1);
  return [low / room, high * room];
}

/** 1st and 99th percentile. */
export function percentiles(values) {
  const sorted = Float64Array.from(values).sort();
  const at = (share) => sorted[Math.round(share * (sorted.length - 1))];
  return sorted.length ? [at(0.01), at(0.99)] : [null, null];
}

/** The value at an index of a joined column, or the one known before it. */
export const before = (column, index) => column?.[placeBefore(column, index)] ?? null;

/** The index of that value; -1: none is known so far. */
export function placeBefore(column, index) {
  let at = index;
  while (at >= 0 && (column?.[at] === null || column?.[at] === undefined)) at -= 1;
  return at;
}

/** A value's place on one axis, on another one: `from` and `to` hold the same points of both. */
export function along(value, from, to) {
  if (from.length < 2) return to[0] ?? null;
  let low = 0, high = from.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (from[middle] <= value) low = middle; else high = middle;
  }
  const width = from[high] - from[low];
  return to[low] + (width ? (value - from[low]) / width : 0) * (to[high] - to[low]);
}

/** A stretch of one x axis in another: through the points that a line has in both, else by its share of the whole. */
export function carried(zoom, old, now) {
  for (const line of old) {
    const same = now.find((other) => line.key === other.key);
    if (same && same.x.length === line.x.length && line.x.length > 1) return zoom.map((value) => along(value, line.x, same.x));
  }
  const [low, high] = extent(old), [first, last] = extent(now);
  if (low === null || first === null) return null;
  return zoom.map((value) => first + ((value - low) / (high - low)) * (last - first));
}
