// One chart: lines and bands over a common x, a legend of our own, zoom that outlives new data, and a picture of it.
import { h, say } from "./dom.js";
import { duration, general, tick, UNKNOWN, whole } from "./format.js";

const uPlot = window.uPlot;
const probe = h("span", { hidden: true });
document.documentElement.append(probe);

/** The colour of a custom property in the current theme. */
function colour(name, alpha = 1) {
  probe.style.color = `var(${name})`;
  const found = getComputedStyle(probe).color;
  if (alpha === 1) return found;
  const [red, green, blue] = found.match(/[\d.]+/g);
  return `rgba(${red}, ${green}, ${blue}, ${alpha})`;
}

const MOST_NAMED = 24; // in the legend
const seriesColour = (index) => `--c${index % 8}`;
const xText = (over, value) => (over === "time" ? duration(value) : `${whole(value)} ${over}`);

/**
 * lines: [{key, label, x, y, colour (index), axis: 1 | 2, dashed, format}]
 * bands: [{key, label, x, centre, low, high, colour}]
 */
export class Chart {
  constructor({ height = 170, fill = false, label, syncKey = null, onZoom = null, axisText = tick }) {
    this.axisText = axisText;
    this.height = height;
    this.label = label;
    this.syncKey = syncKey;
    this.onZoom = onZoom;
    this.over = "steps";
    this.lines = [];
    this.hidden = new Set();
    this.zoom = null; // [low, high] in x
    this.plot = null;
    this.signature = "";
    this.none = h("p", { class: "none" }, "No numbers yet");
    this.fill = fill;
    this.canvas = h("div", { class: fill ? "chart fill" : "chart", role: "img", "aria-label": label }, this.none);
    this.legend = h("div", { class: "legend" });
    this.element = h("div", {}, this.canvas, this.legend);
    this.values = new Map();
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.canvas);
    this.canvas.style.minHeight = `${height}px`;
  }

  /** Draws other data; the zoom stays, carried over to another x axis. */
  show(over, lines, bands = []) {
    const before = { over: this.over, lines: this.lines };
    this.over = over;
    this.lines = [...bands.map(centreLine), ...lines];
    this.bands = bands;
    if (this.zoom && before.over !== over) this.setZoom(carried(this.zoom, before.lines, this.lines));
    const drawn = this.lines.filter((line) => line.x.length > 0);
    this.none.hidden = drawn.length > 0;
    const signature = JSON.stringify([over, this.lines.map((line) => [line.key, line.label, line.colour, line.axis, line.dashed]), bands.length]);
    if (signature !== this.signature || !this.plot) {
      this.signature = signature;
      this.rebuild();
    } else {
      this.plot.setData(this.data(), false);
      this.rescale();
    }
    this.describe();
    this.tell(null);
  }

  setZoom(range) {
    this.zoom = range;
    this.rescale();
  }

  rescale() {
    if (!this.plot) return;
    const [low, high] = this.zoom ?? extent(this.lines.filter((line) => !this.hidden.has(line.key)));
    if (low !== null && high > low) this.plot.setScale("x", { min: low, max: high });
  }

  /** Colours again, after the theme has changed. */
  rebuild() {
    this.plot?.destroy();
    this.plot = null;
    this.drawLegend();
    if (this.canvas.clientWidth === 0 || this.lines.length === 0) return;
    this.plot = new uPlot(this.options(), this.data(), this.canvas);
    this.rescale();
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
    const tables = this.lines.map((line) => [line.x, line.y]);
    for (const band of this.bands) tables.push([band.x, band.high], [band.x, band.low]);
    return uPlot.join(tables);
  }

  options() {
    const shared = { stroke: () => colour("--muted"), font: `11.5px ${getComputedStyle(document.body).fontFamily}`,
      ticks: { show: false }, gap: 6 };
    const grid = { stroke: () => colour("--line"), width: 1 };
    const second = this.lines.some((line) => line.axis === 2);
    const series = [{ label: this.over }, ...this.lines.map((line) => ({
      label: line.label, scale: line.axis === 2 ? "y2" : "y", show: !this.hidden.has(line.key), spanGaps: true,
      stroke: () => colour(seriesColour(line.colour), line.faint ? 0.35 : 1), width: line.faint ? 1 : 1.75,
      dash: line.dashed ? [6, 4] : undefined, points: { show: line.x.length === 1 },
    }))];
    const first = 1 + this.lines.length;
    const edges = this.bands.flatMap((band) => [0, 1].map(() => ({
      show: !this.hidden.has(band.key), spanGaps: true, stroke: "transparent", width: 0, points: { show: false } })));
    const bands = this.bands.map((band, index) => ({ series: [first + 2 * index, first + 2 * index + 1],
      fill: () => colour(seriesColour(band.colour), 0.16) }));
    return {
      width: this.canvas.clientWidth, height: this.drawnHeight(), legend: { show: false }, padding: [10, second ? 4 : 22, 0, 0],
      series: [...series, ...edges], bands,
      scales: { x: { time: false }, y: { range: padded }, y2: { range: padded } },
      axes: [
        { ...shared, grid: { show: false }, size: 28, space: Math.min(80, this.canvas.clientWidth / 6), values: (_, values) => values.map((value) => (this.over === "time" ? duration(value) : tick(value))) },
        { ...shared, scale: "y", grid, size: widthOf, values: (_, values) => values.map(this.axisText), space: 34 },
        { ...shared, scale: "y2", side: 1, show: second, grid: { show: false }, size: widthOf,
          values: (_, values) => values.map(this.axisText), space: 34 },
      ],
      cursor: { y: false, points: { size: 7 }, drag: { x: true, y: false, setScale: false },
        sync: this.syncKey ? { key: this.syncKey, scales: ["x", null] } : undefined },
      hooks: {
        setCursor: [(plot) => this.tell(plot.cursor.idx)],
        setSelect: [(plot) => this.selected(plot)],
      },
    };
  }

  selected(plot) {
    const { left, width } = plot.select;
    if (width > 4) {
      const range = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
      this.setZoom(range);
      this.onZoom?.(range);
    }
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  }

  drawLegend() {
    this.values.clear();
    this.legend.replaceChildren(...this.lines.filter((line) => !line.faint).slice(0, MOST_NAMED).map((line) => {
      const swatch = h("span", { class: `line${line.dashed ? " dashed" : ""}`, "aria-hidden": "true" });
      swatch.style.borderTopColor = `var(${seriesColour(line.colour)})`;
      const value = h("span", { class: "value" });
      this.values.set(line.key, value);
      return h("button", { type: "button", "aria-pressed": String(!this.hidden.has(line.key)), title: "Show or hide",
        on: { click: () => this.toggle(line.key) } }, swatch, line.label, value);
    }));
    this.legend.hidden = this.lines.length === 0;
  }

  toggle(key) {
    if (!this.hidden.delete(key)) this.hidden.add(key);
    this.rebuild();
    this.tell(null);
  }

  /** Values in the legend: under the cursor, or the newest. */
  tell(index) {
    const data = this.plot?.data;
    this.lines.forEach((line, at) => {
      const element = this.values.get(line.key);
      if (!element) return;
      let value = line.y.length ? line.y[line.y.length - 1] : null;
      if (data && index !== null && index !== undefined) value = before(data[at + 1], index);
      say(element, value === null ? UNKNOWN : (line.format ?? general)(value));
    });
  }

  describe() {
    const told = this.lines.filter((line) => line.y.length).map((line) => {
      const value = line.y[line.y.length - 1];
      return `${line.label} ${(line.format ?? general)(value)} at ${xText(this.over, line.x[line.x.length - 1])}`;
    });
    this.canvas.setAttribute("aria-label", `${this.label}: ${told.slice(0, 8).join("; ") || "no numbers yet"}`);
  }

  /** A PNG of the chart with its title and legend. */
  async save(name, title) {
    if (!this.plot) return;
    const source = this.plot.ctx.canvas, ratio = devicePixelRatio || 1, margin = 20 * ratio;
    const shown = this.lines.filter((line) => !this.hidden.has(line.key) && !line.faint).slice(0, 14);
    const line = 20 * ratio, top = margin + 30 * ratio;
    const canvas = h("canvas", { width: source.width + 2 * margin, height: top + source.height + line * (shown.length + 1) + margin });
    const context = canvas.getContext("2d"), family = getComputedStyle(document.body).fontFamily;
    context.fillStyle = colour("--surface");
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.fillStyle = colour("--text");
    context.font = `600 ${16 * ratio}px ${family}`;
    context.textBaseline = "top";
    context.fillText(title, margin, margin);
    context.drawImage(source, margin, top);
    context.font = `${12.5 * ratio}px ${family}`;
    shown.forEach((one, index) => {
      const y = top + source.height + line * (index + 0.7);
      context.fillStyle = colour(seriesColour(one.colour));
      context.fillRect(margin, y + 6 * ratio, 16 * ratio, 3 * ratio);
      context.fillStyle = colour("--text");
      context.fillText(one.label, margin + 24 * ratio, y);
    });
    const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
    const link = h("a", { href: URL.createObjectURL(blob), download: `${name}.png` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
}

const centreLine = (band) => ({ key: band.key, label: band.label, x: band.x, y: band.centre, colour: band.colour, axis: 1 });

/** The value at an index of a joined column, or the one known before it. */
function before(column, index) {
  for (let at = index; at >= 0; at -= 1) if (column?.[at] !== null && column?.[at] !== undefined) return column[at];
  return null;
}

function extent(lines) {
  const drawn = lines.filter((line) => line.x.length);
  if (!drawn.length) return [null, null];
  const low = Math.min(...drawn.map((line) => line.x[0])), high = Math.max(...drawn.map((line) => line.x[line.x.length - 1]));
  return high > low ? [low, high] : [low - 1, high + 1];
}

function padded(_, low, high) {
  if (low === null || low === undefined) return [0, 1];
  if (low === high) return low === 0 ? [0, 1] : [Math.min(0, 2 * low), Math.max(0, 2 * low)];
  const room = 0.06 * (high - low);
  return [low >= 0 && low <= 0.6 * high ? 0 : low - room, high <= 0 && high >= 0.6 * low ? 0 : high + room];
}

function widthOf(plot, values) {
  const longest = Math.max(0, ...(values ?? []).map((text) => text.length));
  return Math.max(38, 14 + 7 * longest);
}

/** A stretch of one x axis in another: through the points that a line has in both, else by its share of the whole. */
function carried(zoom, before, after) {
  for (const old of before) {
    const now = after.find((line) => line.key === old.key);
    if (now && now.x.length === old.x.length && old.x.length > 1) return zoom.map((value) => along(value, old.x, now.x));
  }
  const [low, high] = extent(before), [first, last] = extent(after);
  if (low === null || first === null) return null;
  return zoom.map((value) => first + ((value - low) / (high - low)) * (last - first));
}

function along(value, from, to) {
  const at = Math.min(Math.max(from.findIndex((x) => x >= value), 1), from.length - 1);
  const place = value > from[from.length - 1] ? from.length - 1 : at;
  const width = from[place] - from[place - 1];
  return to[place - 1] + (width ? (value - from[place - 1]) / width : 0) * (to[place] - to[place - 1]);
}
