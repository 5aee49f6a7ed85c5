// A chart by keyboard and by touch.
import { announce } from "./dom.js";
import { markText } from "./marks.js";
import { placeText, valueText } from "./tooltip.js";

export const HINT = "Arrow keys move the cursor, with Shift by ten points, Home and End go to the ends, plus and minus zoom, 0 shows all, M goes to the next mark.";
const STEPS = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };

export function keyPressed(chart, event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !chart.plot) return;
  const { plot } = chart, count = plot.data[0].length, now = chart.keyIndex ?? visibleEnds(plot)[1];
  const [first, last] = visibleEnds(plot);
  if (!count) return;
  if (event.key in STEPS) moveTo(chart, now + STEPS[event.key] * (event.shiftKey ? 10 : 1));
  else if (event.key === "Home") moveTo(chart, first);
  else if (event.key === "End") moveTo(chart, last);
  else if (event.key === "+" || event.key === "=") zoomAround(chart, plot.data[0][now], 0.5);
  else if (event.key === "-") zoomAround(chart, plot.data[0][now], 2);
  else if (event.key === "0") { chart.zoomTo(null); announce("the whole run"); }
  else if (event.key === "m" || event.key === "M") nextMark(chart, event.key === "M" ? -1 : 1);
  else if (event.key === "Escape" && chart.keyIndex !== null) chart.leaveCursor();
  else return;
  event.preventDefault();
}

function visibleEnds(plot) {
  const x = plot.data[0], { min, max } = plot.scales.x;
  let first = x.findIndex((value) => value >= min), last = x.length - 1;
  while (last > 0 && x[last] > max) last -= 1;
  return [Math.max(first, 0), last];
}

function moveTo(chart, index) {
  const [first, last] = visibleEnds(chart.plot);
  chart.keyIndex = Math.min(Math.max(index, first), last);
  chart.cursorTo(chart.keyIndex);
  const told = chart.valuesAt(chart.keyIndex).filter(({ value }) => value !== null).map(({ line, value }) => `${line.label} ${valueText(line, value)}`);
  announce(`${placeText(chart, chart.plot.data[0][chart.keyIndex])}: ${told.slice(0, 6).join("; ")}`);
}

function nextMark(chart, way) {
  const marks = chart.shownMarks();
  if (!marks.length) return announce("no marks");
  chart.markAt = ((chart.markAt ?? (way > 0 ? -1 : 0)) + way + marks.length) % marks.length;
  const mark = marks[chart.markAt], x = chart.plot.data[0];
  chart.keyIndex = x.reduce((best, value, at) => (Math.abs(value - mark.x) < Math.abs(x[best] - mark.x) ? at : best), 0);
  chart.cursorTo(chart.keyIndex, mark.x);
  announce(`${markText(mark)}, at ${placeText(chart, mark.x)}`);
}

export function zoomAround(chart, centre, factor) {
  const [low, high] = chart.zoom ?? chart.whole();
  if (low === null) return;
  chart.zoomTo(bounded([centre - (centre - low) * factor, centre + (high - centre) * factor], chart.whole()));
  announce(chart.zoom ? `${placeText(chart, chart.zoom[0])} to ${placeText(chart, chart.zoom[1])}` : "the whole run");
}

/** A stretch within the whole; null if it is the whole. */
export function bounded([low, high], [first, last]) {
  if (high - low >= last - first) return null;
  const shift = Math.max(first - low, 0) - Math.max(high - last, 0);
  return [low + shift, high + shift];
}

/** One finger moves a zoomed chart, two zoom it; the page scrolls vertically as ever. */
export function touchable(chart, surface) {
  const fingers = new Map();
  let begin = null;
  const place = (event) => event.clientX - surface.getBoundingClientRect().left;
  const start = () => {
    const range = chart.zoom ?? chart.whole();
    const value = (pixel) => range[0] + (pixel / surface.clientWidth) * (range[1] - range[0]);
    begin = { range, values: [...fingers.values()].map(value) };
  };
  surface.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "touch" || chart.whole()[0] === null) return;
    fingers.set(event.pointerId, place(event));
    start();
  });
  surface.addEventListener("pointermove", (event) => {
    if (!fingers.has(event.pointerId)) return;
    fingers.set(event.pointerId, place(event));
    const pixels = [...fingers.values()], width = surface.clientWidth;
    if (pixels.length === 1 && !chart.zoom) return;
    let span = begin.range[1] - begin.range[0];
    if (pixels.length > 1) span = Math.abs(begin.values[1] - begin.values[0]) * width / Math.max(Math.abs(pixels[1] - pixels[0]), 12);
    const at = pixels.length > 1 ? Math.min(...pixels) : pixels[0];
    const value = pixels.length > 1 ? Math.min(...begin.values.slice(0, 2)) : begin.values[0];
    const low = value - (at / width) * span;
    chart.setZoom(bounded([low, low + span], chart.whole()));
  });
  const end = (event) => {
    if (!fingers.delete(event.pointerId)) return;
    if (fingers.size) start(); else chart.zoomTo(chart.zoom);
  };
  for (const name of ["pointerup", "pointercancel"]) surface.addEventListener(name, end);
}
