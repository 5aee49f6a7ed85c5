// One chart: lines and bands over a common x, a legend and a tooltip of our own, and a zoom that outlives new data.
import { h, say } from "./dom.js";
import { duration, general, tick, UNKNOWN, whole } from "./format.js";
import { HINT, keyPressed, touchable } from "./chartinput.js";
import { colour, dashOf, seriesColour, swatch } from "./colours.js";
import { drawMarks, drawTargets, markKey } from "./marks.js";
import { before, carried, extent, padded, paddedLog, percentiles, placeBefore } from "./ranges.js";
import { Tooltip } from "./tooltip.js";

const uPlot = window.uPlot;
const MOST_NAMED = 24; // in the legend
const X_TITLES = { updates: "updates", episodes: "episodes", time: "time of training" };
const AS_DRAWN = { log: false, clip: false, low: null, high: null };

/**
 * lines: [{key, label, x, y, colour (index), axis: 1 | 2, dashed, faint, behind, format}]; `behind`: the raw line of a smooth one
 * bands: [{key, label, x, centre, low, high, colour, format}]; low and high are null where none is known
 * marks: [{x, kind, text, time}], targets: [{value, axis}], ruler: {steps, updates, episodes, time}, the same points on every axis
 */
export class Chart {
  constructor({ height = 170, fill = false, label, syncKey = null, over = "steps", stepsTitle = "environment steps", onZoom = null, onHide = null, hidden = new Set() }) {
    Object.assign(this, { height, fill, label, syncKey, over, stepsTitle, onZoom, onHide, hidden }); // hidden: keys of lines
    Object.assign(this, { lines: [], bands: [], marks: [], targets: [], ruler: {}, texts: [tick, tick], titles: ["", ""] });
    this.view = { ...AS_DRAWN };
    this.hiddenKinds = new Set();
    this.zoom = null; // [low, high] in x
    this.plot = null;
    this.keyIndex = null; // of the cursor, where the keyboard moved it
    this.signature = "";
    this.none = h("p", { class: "none" }, "Loading …");
    this.canvas = h("div", { class: fill ? "chart fill" : "chart", role: "img", "aria-label": label }, this.none);
    this.tooltip = new Tooltip(this);
    this.axisTitles = [h("span"), h("span")];
    this.surface = h("div", { class: "surface", tabindex: 0, role: "application", "aria-roledescription": "chart", "aria-label": `${label}. ${HINT}`,
      on: { keydown: (event) => keyPressed(this, event), blur: () => this.leaveCursor() } }, this.canvas, this.tooltip.element);
    this.legend = h("div", { class: "legend" });
    this.key = h("div", { class: "legend", hidden: true });
    this.note = h("p", { class: "chart-note", hidden: true });
    this.element = h("div", { class: "chart-box" }, h("div", { class: "axis-titles", "aria-hidden": "true" }, this.axisTitles), this.surface, this.note, this.legend, this.key);
    this.values = new Map();
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.canvas);
    this.canvas.style.minHeight = `${height}px`;
  }

  /** Draws other data; the zoom stays, carried over to another x axis. */
  show(over, lines, { bands = [], marks = [], targets = [], ruler = {} } = {}) {
    const old = { over: this.over, lines: this.lines };
    const complete = (line) => ({ axis: 1, format: general, ...line });
    Object.assign(this, { over, bands: bands.map(complete), marks, targets, ruler });
    this.lines = [...this.bands.map(centreLine), ...lines.map(complete)];
    if (this.zoom && old.over !== over) this.setZoom(carried(this.zoom, old.lines, this.lines));
    this.none.hidden = this.lines.some((line) => line.x.length > 0);
    say(this.none, "No numbers yet");
    const signature = JSON.stringify([over, this.lines.map((line) => [line.key, line.label, line.colour, line.axis, line.dashed]), bands.length, this.titles]);
    if (signature !== this.signature || !this.plot) {
      this.signature = signature;
      this.rebuild();
    } else {
      this.plot.setData(this.data(), false);
      this.rescale();
    }
    this.drawKey();
    this.describe();
    const { left, top } = this.plot?.cursor ?? {};
    if (left >= 0) this.plot.setCursor({ left, top }); // another point may be there now
    else this.drawValues(null);
  }

  /** Texts of the ticks, and titles, of both y axes. */
  setAxes(texts, titles) {
    this.texts = texts;
    this.titles = titles;
    this.axisTitles.forEach((element, at) => say(element, titles[at] ?? ""));
  }

  /** How y is drawn: logarithmic, without outliers, in a range given by hand. */
  setView(view) {
    const log = this.view.log;
    this.view = { ...AS_DRAWN, ...view };
    if (this.view.log !== log) this.rebuild();
    else this.rescale();
  }

  setZoom(range) {
    this.zoom = range;
    this.rescale();
  }

  /** Zooms, and calls the page. */
  zoomTo(range) {
    this.setZoom(range);
    this.onZoom?.(range);
  }

  /** Ends of all data, also of those that a zoomed chart does not hold. */
  whole() {
    const ruler = this.ruler[this.over], [low, high] = extent(this.shownLines());
    return ruler?.length > 1 ? [Math.min(low ?? ruler[0], ruler[0]), Math.max(high ?? ruler[0], ruler[ruler.length - 1])] : [low, high];
  }

  shownLines() {
    return this.lines.filter((line) => !this.hidden.has(line.key));
  }

  shownMarks() {
    const { min, max } = this.plot?.scales.x ?? {};
    return this.marks.filter((mark) => !this.hiddenKinds.has(mark.kind) && mark.x >= min && mark.x <= max);
  }

  rescale() {
    if (!this.plot) return;
    const [low, high] = this.zoom ?? extent(this.shownLines());
    if (low !== null && high > low) this.plot.setScale("x", { min: low, max: high });
    this.noteBeyond();
  }

  /** Colours again, after the theme has changed. */
  rebuild() {
    this.plot?.destroy();
    this.plot = null;
    this.drawLegend();
    if (this.canvas.clientWidth === 0 || this.lines.length === 0) return;
    this.plot = new uPlot(this.options(), this.data(), this.canvas);
    this.listen();
    this.rescale();
  }

  listen() {
    const { over } = this.plot;
    over.addEventListener("pointerenter", () => { this.hovered = true; });
    over.addEventListener("pointerleave", () => { this.hovered = false; this.tooltip.hide(); });
    over.addEventListener("dblclick", () => this.zoomTo(null));
    touchable(this, over);
  }

  destroy() {
    this.observer.disconnect();
    this.plot?.destroy();
  }

  resize() {
    const width = this.canvas.clientWidth;
    if (!width) return;
    if (!this.plot) this.rebuild();
    else if (this.plot.width !== width || this.plot.height !== this.drawnHeight()) this.plot.setSize({ width, height: this.drawnHeight() });
  }

  /** Fits the height to its container if it should fill it. */
  drawnHeight() {
    return this.fill ? Math.max(this.height, this.canvas.clientHeight) : this.height;
  }

  data() {
    const drawn = (values) => (this.view.log ? values.map((value) => (value > 0 ? value : null)) : values);
    const tables = this.lines.map((line) => [line.x, drawn(line.y)]);
    for (const band of this.bands) tables.push([band.x, drawn(band.high)], [band.x, drawn(band.low)]);
    return uPlot.join(tables);
  }

  options() {
    const shared = { stroke: () => colour("--muted"), font: `11.5px ${getComputedStyle(document.body).fontFamily}`, ticks: { show: false }, gap: 6 };
    const grid = { stroke: () => colour("--line"), width: 1 };
    const second = this.lines.some((line) => line.axis === 2);
    const series = [{ label: this.over }, ...this.lines.map((line) => ({
      label: line.label, scale: line.axis === 2 ? "y2" : "y", show: !this.hidden.has(line.key), spanGaps: true,
      stroke: () => colour(seriesColour(line.colour), line.faint ? 0.35 : 1), width: line.faint ? 1 : 1.75,
      dash: dashOf(line), points: { show: line.x.length === 1 || (line.dots && line.x.length < 60), size: 5 },
    }))];
    const first = 1 + this.lines.length;
    const edges = this.bands.flatMap((band) => [0, 1].map(() => ({
      show: !this.hidden.has(band.key), spanGaps: !band.dots, stroke: "transparent", width: 0, points: { show: false } })));
    const bands = this.bands.map((band, index) => ({ series: [first + 2 * index, first + 2 * index + 1], fill: () => colour(seriesColour(band.colour), 0.16) }));
    const scale = (axis) => ({ ...(this.view.log ? { distr: 3, log: 10 } : {}), range: (_, low, high) => this.range(axis, low, high) });
    const texts = (axis) => (_, values) => values.map((value) => (value === null ? "" : this.texts[axis - 1](value)));
    return {
      width: this.canvas.clientWidth, height: this.drawnHeight(), legend: { show: false }, padding: [12, second ? 4 : 22, 0, 0],
      series: [...series, ...edges], bands, scales: { x: { time: false }, y: scale(1), y2: scale(2) },
      axes: [
        { ...shared, grid: { show: false }, size: 26, label: X_TITLES[this.over] ?? this.stepsTitle, labelSize: 17, labelFont: shared.font, labelGap: 0, space: Math.min(80, this.canvas.clientWidth / 6),
          values: (_, values) => values.map((value) => (this.over === "time" ? duration(value) : tick(value))) },
        { ...shared, scale: "y", grid, size: widthOf, values: texts(1), space: 34 },
        { ...shared, scale: "y2", side: 1, show: second, grid: { show: false }, size: widthOf, values: texts(2), space: 34 },
      ],
      cursor: { y: false, points: { size: 7 }, drag: { x: true, y: false, setScale: false }, bind: { dblclick: () => null },
        sync: this.syncKey ? { key: this.syncKey, scales: ["x", null] } : undefined },
      hooks: {
        setCursor: [(plot) => this.cursorMoved(plot)],
        setSelect: [(plot) => this.selected(plot)],
        draw: [(plot) => { drawTargets(plot, this.targets); drawMarks(plot, this.shownMarks()); }],
      },
    };
  }

  /** The range of a y axis for these ends of its values. */
  range(axis, low, high) {
    const { log, clip } = this.view;
    if (clip) [low, high] = percentiles(this.visible(axis).flat());
    const targets = this.zoom ? [] : this.targets.filter((target) => target.axis === axis).map((target) => target.value).filter((value) => !log || value > 0);
    if (targets.length && low !== null) [low, high] = [Math.min(low, ...targets), Math.max(high, ...targets)];
    const range = (log ? paddedLog : padded)(low, high);
    const byHand = axis === 1 ? [this.view.low, this.view.high] : [null, null];
    const given = range.map((value, at) => (byHand[at] === null || (log && byHand[at] <= 0) ? value : byHand[at]));
    return given[1] > given[0] ? given : range;
  }

  /** Values of each shown line of an axis within the x range. */
  visible(axis) {
    const [low, high] = this.zoom ?? [-Infinity, Infinity];
    return this.shownLines().filter((line) => line.axis === axis && !line.behind)
      .map((line) => line.y.filter((value, at) => value !== null && line.x[at] >= low && line.x[at] <= high && (!this.view.log || value > 0)));
  }

  /** Says how many points the y range leaves out. */
  noteBeyond() {
    const { view, plot } = this, all = [1, 2].map((axis) => this.visible(axis).flat());
    let beyond = 0, undrawn = 0;
    if (view.clip || view.low !== null || view.high !== null) {
      all.forEach((values, at) => {
        const [low, high] = this.range(at + 1, values.length ? Math.min(...values) : null, values.length ? Math.max(...values) : null);
        beyond += values.filter((value) => value < low || value > high).length;
      });
    }
    if (view.log) undrawn = this.shownLines().filter((line) => !line.behind).flatMap((line) => line.y).filter((value) => value !== null && value <= 0).length;
    const told = [beyond && `${whole(beyond)} of ${whole(all.flat().length)} drawn points are outside the range`, undrawn && `${whole(undrawn)} points at or below 0 have no place on a logarithmic axis`];
    say(this.note, told.filter(Boolean).join("; "));
    this.note.hidden = !plot || !this.note.textContent;
  }

  selected(plot) {
    const { left, width } = plot.select;
    if (width > 4) this.zoomTo([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  }

  cursorMoved(plot) {
    const { idx, left, top } = plot.cursor;
    this.drawValues(idx);
    if ((this.hovered || this.keyIndex !== null) && idx !== null && idx !== undefined && left >= 0) this.tooltip.show(idx, left, top < 0 ? plot.over.clientHeight / 2 : top);
    else this.tooltip.hide();
  }

  /** Moves the cursor to a point, or to a place beside it. */
  cursorTo(index, x = this.plot.data[0][index]) {
    const [row] = this.valuesAt(index).filter(({ value }) => value !== null);
    const top = row ? this.plot.valToPos(row.value, row.line.axis === 2 ? "y2" : "y") : 0;
    this.plot.setCursor({ left: this.plot.valToPos(x, "x"), top: Math.min(Math.max(top, 1), this.plot.over.clientHeight - 1) });
  }

  leaveCursor() {
    this.keyIndex = this.markAt = null;
    this.plot?.setCursor({ left: -10, top: -10 });
  }

  /** Line, value, spread and place of every line at a point, or before it. */
  valuesAt(index) {
    return this.lines.map((line, at) => ({ line, value: this.valueAt(at, index), spread: this.spreadAt(at, index), x: this.plot.data[0][placeBefore(this.plot.data[at + 1], index)] }))
      .filter(({ line }) => !line.behind && !this.hidden.has(line.key));
  }

  /** Nothing beyond the end of a line; an evaluation stands until the next one. */
  valueAt(at, index) {
    const { x } = this.lines[at], data = this.plot.data;
    return at >= this.bands.length && data[0][index] > x[x.length - 1] ? null : before(data[at + 1], index);
  }

  spreadAt(at, index) {
    if (at >= this.bands.length) return null;
    const edge = 1 + this.lines.length + 2 * at, place = placeBefore(this.plot.data[at + 1], index);
    const found = [edge + 1, edge].map((column) => this.plot.data[column]?.[place] ?? null);
    return found.includes(null) ? null : found;
  }

  drawLegend() {
    this.values.clear();
    const named = this.lines.filter((line) => !line.faint);
    this.legend.replaceChildren(...named.slice(0, MOST_NAMED).map((line) => {
      const value = h("span", { class: "value" });
      this.values.set(line.key, value);
      return h("button", { type: "button", "aria-pressed": String(!this.hidden.has(line.key)), title: `Show or hide ${line.label}`,
        on: { click: () => this.toggle(line.key) } }, swatch(line), h("span", { class: "name" }, line.label), " ", value);
    }), ...(named.length > MOST_NAMED ? [h("span", { class: "more" }, `and ${named.length - MOST_NAMED} more`)] : []));
    this.legend.hidden = this.lines.length === 0;
  }

  toggle(key) {
    const held = [...this.legend.children].indexOf(document.activeElement);
    if (!this.hidden.delete(key)) this.hidden.add(key);
    this.rebuild();
    this.legend.children[held]?.focus();
    this.drawValues(null);
    this.onHide?.();
  }

  toggleKind(kind) {
    if (!this.hiddenKinds.delete(kind)) this.hiddenKinds.add(kind);
    this.drawKey();
    this.plot?.redraw(false);
  }

  /** The kinds of marks, drawn again only if they are others: the focus stays. */
  drawKey() {
    const signature = JSON.stringify([this.marks.map((mark) => mark.kind), [...this.hiddenKinds]]);
    if (signature === this.keySignature) return;
    const held = [...this.key.children].indexOf(document.activeElement);
    this.keySignature = signature;
    this.key.replaceChildren(...markKey(this.marks, this.hiddenKinds, (one) => this.toggleKind(one)));
    this.key.hidden = !this.key.children.length;
    this.key.children[held]?.focus();
  }

  /** Values in the legend: under the cursor, or the newest. */
  drawValues(index) {
    const data = this.plot?.data;
    this.lines.forEach((line, at) => {
      const element = this.values.get(line.key);
      if (!element) return;
      let value = line.y.length ? line.y[line.y.length - 1] : null;
      if (data && index !== null && index !== undefined) value = this.valueAt(at, index);
      say(element, value === null ? UNKNOWN : line.format(value));
    });
  }

  describe() {
    const told = this.lines.filter((line) => line.y.length && !line.behind).map((line) => {
      const end = line.x[line.x.length - 1];
      return `${line.label} ${line.format(line.y[line.y.length - 1])} at ${this.over === "time" ? duration(end) : `${whole(end)} ${this.over}`}`;
    });
    this.canvas.setAttribute("aria-label", `${this.label}: ${told.slice(0, 8).join("; ") || "no numbers yet"}`);
    this.surface.setAttribute("aria-label", `${this.label}. ${HINT}`);
  }
}

const centreLine = (band) => ({ key: band.key, label: band.label, x: band.x, y: band.centre, colour: band.colour, axis: band.axis, format: band.format, dots: band.dots });

function widthOf(plot, values) {
  const longest = Math.max(0, ...(values ?? []).map((text) => text.length));
  return Math.max(38, 14 + 7 * longest);
}
