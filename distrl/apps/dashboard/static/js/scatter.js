// An outcome over one setting, a point for each run, coloured by another setting.
import { announce, h, svg } from "./dom.js";
import { colour } from "./colours.js";
import { counted } from "./format.js";
import { apart, colouring } from "./scales.js";
import { Picture, Tip } from "./picture.js";

const HEIGHT = 330;
const HINT = "Arrow keys go from run to run, Enter opens one.";

/**
 * data(): {x, y, colours: scales, or null of the colours, runs, shown: places of runs, best: draw the best value so far}
 */
export function scatter({ title, head, data }) {
  const tip = new Tip();
  const surface = h("div", { class: "surface", tabindex: 0, role: "application", "aria-roledescription": "scatter plot", "data-key": "surface", on: {
    keydown: pressed, blur: () => point(null), pointermove: hovered, pointerleave: () => point(null), click: () => { if (current !== null) location.hash = `#/run/${points[current].run.id}`; } } });
  let points = [], current = null, size = [0, 0];
  const picture = new Picture({ title, head, draw, rows, words: () => title });

  function draw(width, exported = false) {
    const { x, y, colours, runs, shown, best } = data(), paint = colouring(colours);
    const keys = colours ? keyRows(paint.keys, colours.name, width) : { rows: 0, elements: [] };
    const height = HEIGHT + 20 * keys.rows, box = { left: 62, right: width - 16, top: 24, bottom: HEIGHT - 46 };
    const px = (share) => box.left + share * (box.right - box.left), py = (share) => box.bottom - share * (box.bottom - box.top);
    const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    const label = (text, properties) => svg("text", { fill: colour("--muted"), "font-size": 11.5, ...properties }, text);
    for (const one of apart(y.ticks, 0.06)) {
      root.append(svg("line", { x1: box.left, x2: box.right, y1: py(one.share), y2: py(one.share), stroke: colour("--line") }), label(one.text, { x: box.left - 8, y: py(one.share), dy: 4, "text-anchor": "end" }));
    }
    for (const one of apart(x.ticks, 58 / (box.right - box.left))) {
      root.append(svg("line", { x1: px(one.share), x2: px(one.share), y1: box.bottom, y2: box.bottom + 4, stroke: colour("--line-strong") }), label(shortened(one.text, 12), { x: px(one.share), y: box.bottom + 18, "text-anchor": "middle" }));
    }
    root.append(label(y.name, { x: 8, y: 12 }), label(`${x.name}${x.log ? " (logarithmic)" : ""}`, { x: (box.left + box.right) / 2, y: box.bottom + 38, "text-anchor": "middle" }), ...keys.elements.map((element) => { element.setAttribute("transform", `translate(0, ${HEIGHT})`); return element; }));
    const drawn = shown.filter((at) => y.values[at] !== null && x.values[at] !== null).map((at) => ({ at, run: runs[at], x: px(x.place(x.values[at])), y: py(y.place(y.values[at])) })).sort((one, other) => one.x - other.x || one.y - other.y);
    if (best) root.append(soFar(drawn, x, y));
    for (const one of drawn) {
      const side = nudge(one, drawn);
      one.x += side;
      root.append(svg("circle", { cx: one.x.toFixed(1), cy: one.y.toFixed(1), r: 4.5, fill: paint.of(colours?.values[one.at]), "fill-opacity": 0.85, stroke: colour("--surface"), "stroke-width": 1 }));
    }
    if (!drawn.length) root.append(label("No run has both values yet", { x: (box.left + box.right) / 2, y: (box.top + box.bottom) / 2, "text-anchor": "middle" }));
    if (exported) return root;
    points = drawn.map((one) => ({ ...one, lines: [one.run.name, `${x.name}: ${x.text(x.values[one.at])}`, ...(colours ? [`${colours.name}: ${colours.text(colours.values[one.at])}`] : []), `${y.name}: ${y.text(y.values[one.at])}`] }));
    size = [width, height];
    current = null;
    tip.hide();
    surface.setAttribute("aria-label", `${y.name} over ${x.name} of ${counted(points.length, "run")}. ${HINT}`);
    ring.remove();
    root.append(ring);
    surface.replaceChildren(root, tip.element);
    return surface;
  }

  const ring = svg("circle", { r: 8, fill: "none", "stroke-width": 2, visibility: "hidden" });

  function rows() {
    const { x, y, colours, runs, shown } = data();
    return [["run", x.name, ...(colours ? [colours.name] : []), y.name], ...shown.map((at) => [runs[at].name, raw(x, at), ...(colours ? [raw(colours, at)] : []), raw(y, at)])];
  }

  function point(index, say = false) {
    current = index;
    if (index === null) { ring.setAttribute("visibility", "hidden"); return tip.hide(); }
    const one = points[index];
    for (const [name, value] of [["cx", one.x], ["cy", one.y], ["stroke", colour("--text")], ["visibility", "visible"]]) ring.setAttribute(name, value);
    tip.show(one.x, one.y, one.lines, size[0]);
    if (say) announce(one.lines.join(", "));
  }

  function pressed(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey || !points.length) return;
    if (step) point(((current ?? (step > 0 ? -1 : 0)) + step + points.length) % points.length, true);
    else if (event.key === "Home" || event.key === "End") point(event.key === "Home" ? 0 : points.length - 1, true);
    else if (event.key === "Enter" && current !== null) location.hash = `#/run/${points[current].run.id}`;
    else return;
    event.preventDefault();
  }

  function hovered(event) {
    const box = surface.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    let nearest = null, least = 14 ** 2;
    points.forEach((one, at) => { const far = (one.x - x) ** 2 + (one.y - y) ** 2; if (far < least) [nearest, least] = [at, far]; });
    if (nearest !== current) point(nearest);
    surface.style.cursor = nearest === null ? "" : "pointer";
  }
  return picture;
}

export const raw = (scale, at) => (scale.numeric ? scale.values[at] : scale.text(scale.values[at]));
export const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** Runs with the same setting stand side by side where their points would cover each other. */
function nudge(one, all) {
  const before = all.filter((other) => other !== one && other.at < one.at && Math.abs(other.x - one.x) < 0.5 && Math.abs(other.y - one.y) < 6).length;
  return (before % 2 ? -1 : 1) * Math.ceil(before / 2) * 6;
}

/** Steps along the best value so far. */
function soFar(points, x, y) {
  let best = Infinity;
  const path = points.map((one, at) => { const before = best; best = Math.min(best, one.y); return `${at ? `L${one.x},${before.toFixed(1)}L` : "M"}${one.x},${best.toFixed(1)}`; }).join("");
  return svg("path", { d: path, fill: "none", stroke: colour("--good"), "stroke-width": 1.5, "stroke-dasharray": "6 3" });
}

/** Names of colours below a picture. */
export function keyRows(keys, name, width) {
  const elements = [];
  let left = 62, row = 0;
  const text = (content, x) => svg("text", { x, y: 14 + 20 * row, "font-size": 12, fill: colour("--muted") }, content);
  const place = (needed) => { if (left + needed > width - 8 && left > 62) { left = 62; row += 1; } };
  elements.push(svg("g", {}, text(`${name}:`, left)));
  left += 7 * name.length + 14;
  for (const [label, paint] of keys) {
    const short = shortened(label, 28), needed = 7 * short.length + 26;
    place(needed);
    elements.push(svg("g", {}, svg("circle", { cx: left + 5, cy: 10 + 20 * row, r: 5, fill: paint }), text(short, left + 14)));
    left += needed;
  }
  return { rows: row + 1, elements };
}
