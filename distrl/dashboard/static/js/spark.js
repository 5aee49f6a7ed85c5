// A small curve as SVG, with its first, last and best value in words.
import { compact, result, UNKNOWN } from "./format.js";

const NS = "http://www.w3.org/2000/svg";
const WIDTH = 84, HEIGHT = 22, EDGE = 2;

export function wordsOf([x, y]) {
  if (y.length === 0) return "no return yet";
  const best = Math.max(...y);
  return `return: first ${result(y[0])}, last ${result(y[y.length - 1])} at ${compact(x[x.length - 1])} steps, best ${result(best)}`;
}

export function spark(points) {
  if (!points || points[1].length < 2) return document.createTextNode(UNKNOWN);
  const [x, y] = points;
  const svg = document.createElementNS(NS, "svg");
  const low = Math.min(...y), high = Math.max(...y), begin = x[0], end = x[x.length - 1];
  const across = (value) => EDGE + ((value - begin) / (end - begin || 1)) * (WIDTH - 2 * EDGE);
  const up = (value) => HEIGHT - EDGE - (high > low ? (value - low) / (high - low) : 0.5) * (HEIGHT - 2 * EDGE);
  for (const [name, value] of [["viewBox", `0 0 ${WIDTH} ${HEIGHT}`], ["width", WIDTH], ["height", HEIGHT], ["class", "spark"],
    ["role", "img"], ["aria-label", wordsOf(points)]]) svg.setAttribute(name, value);
  const told = document.createElementNS(NS, "title");
  told.textContent = wordsOf(points);
  const line = document.createElementNS(NS, "polyline");
  line.setAttribute("points", x.map((value, at) => `${across(value).toFixed(1)},${up(y[at]).toFixed(1)}`).join(" "));
  const last = document.createElementNS(NS, "circle");
  for (const [name, value] of [["cx", across(end).toFixed(1)], ["cy", up(y[y.length - 1]).toFixed(1)], ["r", 2]]) last.setAttribute(name, value);
  svg.append(told, line, last);
  return svg;
}
