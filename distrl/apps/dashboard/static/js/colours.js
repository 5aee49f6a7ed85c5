// Colours, dashes and swatches of lines. Beyond eight lines the dashes differ, so that no two look the same.
import { h, svg } from "./dom.js";

const probe = h("span", { hidden: true });
document.documentElement.append(probe);
const COLOURS = 8;
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [4, 2, 1, 2, 1, 2]];

/** The colour of a custom property in the current theme. */
export function colour(name, alpha = 1) {
  probe.style.color = `var(${name})`;
  const found = getComputedStyle(probe).color;
  if (alpha === 1) return found;
  const [red, green, blue] = found.match(/[\d.]+/g);
  return `rgba(${red}, ${green}, ${blue}, ${alpha})`;
}

export const seriesColour = (index) => `--c${index % COLOURS}`;

/** Lengths of strokes and gaps; none for a whole line. */
export const dashOf = (line) => DASHES[(Math.floor(line.colour / COLOURS) + (line.dashed ? 1 : 0)) % DASHES.length];

/** A short piece of a line, for legends and tooltips. */
export function swatch(line) {
  const drawn = svg("line", { x1: 0, x2: 18, y1: 3, y2: 3, "stroke-width": 2.5, "stroke-dasharray": dashOf(line).join(" ") });
  drawn.style.stroke = `var(${seriesColour(line.colour)})`;
  return svg("svg", { class: "swatch", width: 18, height: 6, "aria-hidden": "true" }, drawn);
}
