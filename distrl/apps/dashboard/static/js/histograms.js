// Histograms that the learner wrote for TensorBoard, as a heat map over steps.
import { h, say, select } from "./dom.js";
import { get } from "./api.js";
import { colour } from "./colours.js";
import { general, tick, whole } from "./format.js";

const HEIGHT = 190, LEFT = 64, BOTTOM = 24, TOP = 8;
const LOAD_MS = 60000;

export function histograms(id) {
  const canvas = h("canvas", { class: "heat", tabindex: 0, role: "img", "aria-label": "Histograms", on: { pointermove: hover, pointerleave: () => at(null), keydown: pressed } });
  const field = h("span"), told = h("p", { class: "chart-note", role: "status" });
  const element = h("figure", { class: "card histograms", hidden: true }, h("header", {}, h("h2", {}, "Histograms"), field,
    h("span", { class: "spacer" }), h("button", { type: "button", class: "small", on: { click: load } }, "Load again")), h("div", { class: "body" }, canvas, told));
  let shown = null, tag = "", column = null;
  new ResizeObserver(() => draw()).observe(element);

  /** Lists the tags; the card stays hidden in a run without histograms. */
  async function load() {
    try {
      const found = await get(`runs/${id}/histograms`, {}, undefined, LOAD_MS);
      element.hidden = found.tags.length === 0;
      if (element.hidden) return;
      if (!found.tags.includes(tag)) tag = found.tags.find((name) => name.startsWith("gradients/") && name.endsWith("kernel")) ?? found.tags[0];
      field.replaceChildren(select("of", found.tags.map((name) => [name, name]), tag, (name) => { [tag, column] = [name, null]; show(); }));
      field.querySelector("select").setAttribute("aria-label", "Histograms of");
      await show();
    } catch (error) {
      element.hidden = false;
      say(told, error.message);
    }
  }

  async function show() {
    const asked = tag;
    try {
      const found = await get(`runs/${id}/histograms`, { tag }, undefined, LOAD_MS);
      if (asked !== tag) return;
      shown = found;
    } catch (error) {
      shown = null;
      say(told, error.message);
    }
    if (shown) at(column); // where the reader is
    else draw();
  }

  const strongest = () => Math.max(...shown.shares.flat(), 1e-9);

  function draw() {
    const width = canvas.clientWidth, ratio = devicePixelRatio || 1;
    if (!width || !shown) return;
    [canvas.width, canvas.height] = [width * ratio, HEIGHT * ratio];
    const context = canvas.getContext("2d"), { shares, edges, steps } = shown, most = strongest();
    context.scale(ratio, ratio);
    context.font = `11.5px ${getComputedStyle(document.body).fontFamily}`;
    context.fillStyle = colour("--sunken");
    const [plotWidth, plotHeight] = [width - LEFT - 8, HEIGHT - BOTTOM - TOP];
    context.fillRect(LEFT, TOP, plotWidth, plotHeight);
    const [red, green, blue] = colour("--c0").match(/[\d.]+/g), cell = plotWidth / shares.length, row = plotHeight / (edges.length - 1);
    shares.forEach((counts, x) => counts.forEach((share, y) => {
      if (share <= 0) return;
      context.fillStyle = `rgba(${red}, ${green}, ${blue}, ${Math.max(Math.sqrt(share / most), 0.06)})`;
      context.fillRect(LEFT + x * cell, TOP + plotHeight - (y + 1) * row, cell + 0.5, row + 0.5);
    }));
    context.fillStyle = colour("--muted");
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const part of [0, 0.5, 1]) context.fillText(label(edges[0] + part * (edges[edges.length - 1] - edges[0])), LEFT - 8, TOP + plotHeight * (1 - part));
    context.textBaseline = "top";
    for (const part of [0, 0.5, 1]) {
      context.textAlign = part === 0 ? "left" : part === 1 ? "right" : "center";
      context.fillText(`${tick(steps[Math.round(part * (steps.length - 1))])}${part === 0.5 ? " environment steps" : ""}`, LEFT + part * plotWidth, TOP + plotHeight + 7);
    }
    if (column !== null) {
      context.strokeStyle = colour("--text");
      context.strokeRect(LEFT + column * cell, TOP, Math.max(cell, 2), plotHeight);
    }
    canvas.setAttribute("aria-label", `Histograms of ${tag}: ${shown.count} of ${whole(steps[0])} to ${whole(steps[steps.length - 1])} steps, values ${label(edges[0])} to ${label(edges[edges.length - 1])}. Arrow keys go from one to the next.`);
  }

  const label = (value) => (value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(3))));

  /** Tells one histogram in words: where its middle half and its ends lie. */
  function at(place) {
    column = place === null || !shown ? null : Math.min(Math.max(place, 0), shown.steps.length - 1);
    draw();
    if (!shown) return;
    const complete = shown.complete ? "" : " The files are longer than the dashboard reads; later ones are missing.";
    if (column === null) return say(told, `${shown.count === 1 ? "One histogram" : `${shown.count} histograms`}; darker is a greater share of the values.${complete}`);
    const { edges } = shown, shares = shown.shares[column];
    let sum = 0;
    const quantile = (share) => { sum = 0; return edges[Math.max(shares.findIndex((part) => (sum += part) >= share), 0)]; };
    const held = shares.map((share, index) => (share > 0 ? index : -1)).filter((index) => index >= 0);
    say(told, `${whole(shown.steps[column])} steps: ${general(edges[held[0]])} to ${general(edges[held[held.length - 1] + 1])}, the middle half from ${general(quantile(0.25))} to ${general(quantile(0.75))}.`);
  }

  function hover(event) {
    if (shown) at(Math.floor(((event.offsetX - LEFT) / (canvas.clientWidth - LEFT - 8)) * shown.steps.length));
  }

  function pressed(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !shown) return;
    event.preventDefault();
    at(column === null ? (by > 0 ? 0 : shown.steps.length - 1) : column + by);
  }

  return { element, load, themed: draw };
}
