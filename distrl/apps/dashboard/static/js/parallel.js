// Parallel coordinates: a line for each run over its settings and its outcome, and a range on each axis that chooses runs.
import { announce, h, svg } from "./dom.js";
import { colour } from "./colours.js";
import { counted } from "./format.js";
import { apart, colouring } from "./scales.js";
import { Picture } from "./picture.js";
import { raw, shortened } from "./scatter.js";

const HEIGHT = 340, TOP = 46, BOTTOM = 22;
const LEAST_GAP = 104;
const HINT = "Drag along an axis to choose a range of it. With the keyboard: Tab to an axis; ↑ and ↓ move the upper end of its range, with Shift the lower end; Delete removes it.";

/** Whether a run is within every range: ranges is a map of an axis' key to [low, high], in values or in places of categories. */
export function passes(axes, ranges, at) {
  return axes.every(({ key, scale }) => {
    const range = ranges.get(key), value = scale.values[at];
    return !range || (value !== null && value >= range[0] && value <= range[1]);
  });
}

/** data(): {axes: [{key, scale}], colours: scale, runs, left: words of what is not shown}; ranges: a map; changed(): called when a range is another. */
export function parallel({ data, ranges, changed, head = [] }) {
  const note = h("p", { class: "chart-note" }, HINT);
  const picture = new Picture({ title: "Settings and outcome", head, draw, rows, words: () => `A line for each of ${counted(data().runs.length, "run")} over ${counted(data().axes.length, "axis", "axes")}`, below: [note] });
  let held = null; // the axis that is dragged, and where the drag began

  function draw(width, exported = false) {
    const { axes, colours, runs } = data(), paint = colouring(colours);
    picture.leastWidth = axes.length * LEAST_GAP;
    const wide = exported ? width : Math.max(width, picture.leastWidth), gap = (wide - 130) / Math.max(axes.length - 1, 1);
    const px = (index) => (axes.length > 1 ? 60 + index * gap : wide / 2), py = (share) => HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM);
    const root = svg("svg", { width: wide, height: HEIGHT, viewBox: `0 0 ${wide} ${HEIGHT}`, role: "group", "aria-label": picture.words() });
    const order = runs.map((_, at) => at).sort((one, other) => passes(axes, ranges, one) - passes(axes, ranges, other));
    for (const at of order) {
      const inside = passes(axes, ranges, at), known = axes.map(({ scale }, index) => (scale.values[at] === null ? null : `${px(index).toFixed(1)},${py(scale.place(scale.values[at])).toFixed(1)}`)).filter(Boolean);
      const line = svg("polyline", { points: known.join(" "), fill: "none", stroke: inside ? paint.of(colours?.values[at]) : colour("--line-strong"), "stroke-opacity": inside ? 0.75 : 0.35, "stroke-width": inside ? 1.6 : 1 });
      line.append(svg("title", {}, runs[at].name));
      root.append(line);
    }
    axes.forEach((axis, index) => root.append(axisOf(axis, index, px(index), py, Math.min(gap, 170), exported)));
    return root;
  }

  function axisOf(axis, index, x, py, gap, exported) {
    const { key, scale } = axis, range = ranges.get(key), text = (content, properties) => svg("text", { "font-size": 11.5, fill: colour("--muted"), ...properties }, content);
    const most = Math.max(Math.floor(gap / 7) - 1, 8);
    const element = svg("g", {}, svg("line", { x1: x, x2: x, y1: py(0), y2: py(1), stroke: colour("--line-strong"), "stroke-width": 1.5 }),
      svg("text", { x, y: index % 2 ? 30 : 14, "text-anchor": "middle", "font-size": 12, "font-weight": 600, fill: colour("--text") }, shortened(scale.name, most * 2 - 2), svg("title", {}, key)));
    for (const one of apart(scale.ticks, 0.06)) {
      const shown = text(shortened(one.text, Math.max(Math.floor(most * 0.62), 6)), { x: x + 7, y: py(one.share), dy: 4, fill: colour("--text"), stroke: colour("--surface"), "stroke-width": 4, "stroke-linejoin": "round", "paint-order": "stroke" });
      element.append(svg("line", { x1: x - 3, x2: x + 3, y1: py(one.share), y2: py(one.share), stroke: colour("--line-strong") }), shown);
    }
    if (range) {
      const [low, high] = range.map((value) => py(Math.min(Math.max(scale.place(value), 0), 1)));
      element.append(svg("rect", { x: x - 7, width: 14, y: Math.min(low, high) - 3, height: Math.abs(low - high) + 6, rx: 4, fill: colour("--accent"), "fill-opacity": 0.28, stroke: colour("--accent") }));
    }
    if (exported) return element;
    const grip = svg("rect", { x: x - 16, width: 32, y: TOP - 6, height: HEIGHT - TOP - BOTTOM + 12, fill: "transparent", rx: 6, tabindex: 0, role: "slider", class: "axis", "data-key": key,
      "aria-orientation": "vertical", "aria-label": `Range of ${scale.name}`, "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(100 * (range ? Math.min(Math.max(scale.place(range[1]), 0), 1) : 1)), "aria-valuetext": words(axis) });
    const share = (event) => 1 - (event.clientY - grip.ownerSVGElement.getBoundingClientRect().top - TOP) / (HEIGHT - TOP - BOTTOM);
    grip.addEventListener("pointerdown", (event) => { held = { axis, from: share(event), moved: false }; event.preventDefault(); grip.focus(); });
    grip.addEventListener("keydown", (event) => pressed(event, axis));
    element.append(grip);
    picture.share = share;
    return element;
  }

  const dragged = (event) => {
    if (!held) return;
    const to = picture.share(event), { axis, from } = held;
    held.moved = held.moved || Math.abs(to - from) > 0.02;
    if (held.moved) set(axis, [Math.min(from, to), Math.max(from, to)].map((share) => axis.scale.at(Math.min(Math.max(share, 0), 1))));
  };
  const released = () => {
    if (!held) return;
    const { axis, moved } = held;
    held = null;
    if (!moved) set(axis, null); // a click on an axis removes its range
    announce(`${axis.scale.name}: ${words(axis)}`);
  };
  addEventListener("pointermove", dragged);
  addEventListener("pointerup", released);

  function words({ key, scale }) {
    const range = ranges.get(key);
    if (!range) return "all";
    if (scale.numeric) return `${scale.text(range[0])} to ${scale.text(range[1])}`;
    return scale.categories.filter((_, index) => index >= range[0] && index <= range[1]).join(", ") || "none";
  }

  function set({ key }, range) {
    if (range) ranges.set(key, range.map((value) => Number(value.toPrecision(6))));
    else ranges.delete(key);
    picture.redraw();
    changed();
  }

  function pressed(event, axis) {
    const { scale, key } = axis, step = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (step) {
      const steps = scale.steps, range = ranges.get(key) ?? [steps[0], steps[steps.length - 1]], end = event.shiftKey ? 0 : 1;
      const near = steps.reduce((best, value, at) => (Math.abs(scale.place(value) - scale.place(range[end])) < Math.abs(scale.place(steps[best]) - scale.place(range[end])) ? at : best), 0);
      const next = [...range];
      next[end] = steps[Math.min(Math.max(near + step, 0), steps.length - 1)];
      set(axis, next[0] <= next[1] ? next : [next[end], next[end]]);
    } else if (event.key === "Delete" || event.key === "Backspace" || event.key === "Escape") {
      set(axis, null);
    } else return;
    event.preventDefault();
    announce(`${scale.name}: ${words(axis)}`);
  }

  function rows() {
    const { axes, runs } = data(), inside = runs.map((_, at) => at).filter((at) => passes(axes, ranges, at));
    return [["run", ...axes.map(({ scale }) => scale.name)], ...inside.map((at) => [runs[at].name, ...axes.map(({ scale }) => raw(scale, at))])];
  }

  const destroy = picture.destroy.bind(picture);
  picture.destroy = () => { removeEventListener("pointermove", dragged); removeEventListener("pointerup", released); destroy(); };
  return picture;
}
