// A small curve as SVG, with its first, last and best value in words.
import { svg } from "./dom.js";
import { compact, result, UNKNOWN } from "./format.js";

const WIDTH = 84, HEIGHT = 22, EDGE = 2;

export function wordsOf([x, y]) {
  if (y.length === 0) return "no return yet";
  const best = Math.max(...y);
  return `return: first ${result(y[0])}, last ${result(y[y.length - 1])} at ${compact(x[x.length - 1])} steps, best ${result(best)}`;
}

/** words: of the curve, for a hint and for screen readers. */
export function spark(points, words = wordsOf) {
  if (!points || points[1].length < 2) return document.createTextNode(UNKNOWN);
  const [x, y] = points;
  const low = Math.min(...y), high = Math.max(...y), begin = x[0], end = x[x.length - 1];
  const across = (value) => (EDGE + ((value - begin) / (end - begin || 1)) * (WIDTH - 2 * EDGE)).toFixed(1);
  const up = (value) => (HEIGHT - EDGE - (high > low ? (value - low) / (high - low) : 0.5) * (HEIGHT - 2 * EDGE)).toFixed(1);
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, class: "spark", role: "img", "aria-label": words(points) },
    svg("title", {}, words(points)),
    svg("polyline", { points: x.map((value, at) => `${across(value)},${up(y[at])}`).join(" ") }),
    svg("circle", { cx: across(end), cy: up(y[y.length - 1]), r: 2 }));
}
