// Files that the page saves: CSV, SVG, PNG; and a chart as a table.
import { h, svg } from "./dom.js";
import { colour, dashOf, seriesColour } from "./colours.js";
import { duration, tick } from "./format.js";
import { KINDS, markText, targetText } from "./marks.js";
import { before } from "./ranges.js";
import { placeText, valueText } from "./tooltip.js";

const MOST_ROWS = 100;
const SVG_SIZE = [900, 420];

export function save(name, content, type) {
  const link = h("a", { href: URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const drawnLines = (chart) => chart.shownLines().filter((line) => !line.behind);

/** Values at up to 100 points of what is shown, evenly chosen. */
export function tableOf(chart) {
  const lines = drawnLines(chart), data = chart.plot?.data ?? [[]], { min, max } = chart.plot?.scales.x ?? {};
  const inside = data[0].map((_, at) => at).filter((at) => data[0][at] >= min && data[0][at] <= max);
  const step = Math.max((inside.length - 1) / (MOST_ROWS - 1), 1);
  const rows = [...new Set(Array.from({ length: Math.min(inside.length, MOST_ROWS) }, (_, at) => inside[Math.round(at * step)]))];
  const places = lines.map((line) => chart.lines.indexOf(line) + 1);
  return h("table", {}, h("caption", { class: "visually-hidden" }, `Values of ${chart.label}, at ${rows.length} of ${inside.length} points`),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "At"), lines.map((line) => h("th", { scope: "col", class: "n" }, line.label)))),
      h("tbody", {}, rows.map((at) => h("tr", {}, h("th", { scope: "row" }, placeText(chart, data[0][at])),
        places.map((place, index) => h("td", { class: "n" }, valueText(lines[index], before(data[place], at))))))));
}

/** A cell of a CSV file; of a text that a spreadsheet would calculate, a quotation mark first makes it text. */
function quoted(cell) {
  const text = typeof cell === "string" && /^[=+\-@\t\r]/.test(cell) && !Number.isFinite(Number(cell)) ? `'${cell}` : String(cell);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export const csvText = (rows) => `${rows.map((row) => row.map((cell) => quoted(cell ?? "")).join(",")).join("\n")}\n`;

/** Headings, and the values at every point that the chart holds. */
export function rowsOf(chart) {
  const lines = drawnLines(chart), data = chart.plot?.data ?? [[]], places = lines.map((line) => chart.lines.indexOf(line) + 1);
  return [[chart.over, ...lines.map((line) => line.label)], ...data[0].map((x, at) => [x, ...places.map((place) => data[place][at])])];
}

/** An SVG of the chart with its title, axes and legend, drawn from the same data. */
export function svgOf(chart, title) {
  const [width, height] = SVG_SIZE, shown = drawnLines(chart).filter((line) => !line.faint).slice(0, 24);
  const second = chart.lines.some((line) => line.axis === 2);
  const box = { left: 70, top: 46, right: width - (second ? 70 : 20), bottom: height - 46 };
  const rows = Math.ceil(shown.length / 3), whole = height + 20 * rows;
  const { x, y, y2 } = chart.plot.scales;
  const place = (scale, value, from, to) => {
    const f = scale.distr === 3 ? Math.log10 : (v) => v;
    return (from + ((f(value) - f(scale.min)) / (f(scale.max) - f(scale.min))) * (to - from)).toFixed(2);
  };
  const px = (value) => place(x, value, box.left, box.right), py = (value, axis) => place(axis === 2 ? y2 : y, value, box.bottom, box.top);
  const muted = colour("--muted"), text = (content, properties) => svg("text", { fill: muted, "font-size": 12, ...properties }, content);
  const root = svg("svg", { width, height: whole, viewBox: `0 0 ${width} ${whole}`, "font-family": "system-ui, sans-serif" },
    svg("rect", { width, height: whole, fill: colour("--surface") }), text(title, { x: 16, y: 26, fill: colour("--text"), "font-size": 16, "font-weight": 600 }));
  const marksOf = (axis) => chart.plot.axes[axis]._splits?.filter((value) => value !== null) ?? [];
  for (const value of marksOf(0)) if (value >= x.min && value <= x.max) root.append(text(chart.over === "time" ? duration(value) : tick(value), { x: px(value), y: box.bottom + 18, "text-anchor": "middle" }));
  for (const axis of second ? [1, 2] : [1]) {
    const values = chart.plot.axes[axis]._values ?? [];
    marksOf(axis).forEach((value, at) => {
      if (axis === 1) root.append(svg("line", { x1: box.left, x2: box.right, y1: py(value), y2: py(value), stroke: colour("--line") }));
      if (values[at]) root.append(text(values[at], { x: axis === 1 ? box.left - 8 : box.right + 8, y: py(value, axis), dy: 4, "text-anchor": axis === 1 ? "end" : "start" }));
    });
    root.append(text(chart.titles[axis - 1] ?? "", { x: axis === 1 ? 16 : width - 16, y: 42, "text-anchor": axis === 1 ? "start" : "end" }));
  }
  root.append(text(chart.over, { x: (box.left + box.right) / 2, y: box.bottom + 36, "text-anchor": "middle" }));
  root.append(svg("clipPath", { id: "box" }, svg("rect", { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top })));
  const inner = svg("g", { "clip-path": "url(#box)", fill: "none" });
  const drawable = (value) => value !== null && (!chart.view.log || value > 0);
  for (const band of chart.bands.filter((one) => !chart.hidden.has(one.key))) {
    const pieces = [[]];
    band.x.forEach((_, index) => (drawable(band.low[index]) && drawable(band.high[index]) ? pieces[pieces.length - 1].push(index) : pieces.push([])));
    for (const at of pieces.filter((piece) => piece.length > 1)) {
      const points = [...at.map((index) => `${px(band.x[index])},${py(band.high[index])}`), ...at.reverse().map((index) => `${px(band.x[index])},${py(band.low[index])}`)];
      inner.append(svg("polygon", { points: points.join(" "), fill: colour(seriesColour(band.colour)), "fill-opacity": 0.16 }));
    }
  }
  for (const target of chart.targets) {
    inner.append(svg("line", { x1: box.left, x2: box.right, y1: py(target.value, target.axis), y2: py(target.value, target.axis), stroke: colour("--good"), "stroke-dasharray": "8 4" }),
      text(targetText(target), { x: box.left + 6, y: py(target.value, target.axis), dy: -4, fill: colour("--good") }));
  }
  for (const mark of chart.shownMarks()) {
    const stroke = { x1: px(mark.x), x2: px(mark.x), y1: box.bottom, y2: box.top, stroke: colour(KINDS[mark.kind][2]), "stroke-opacity": 0.5, "stroke-dasharray": "3 3" };
    inner.append(svg("line", stroke, svg("title", {}, markText(mark))));
  }
  for (const line of chart.shownLines()) {
    const points = line.x.map((at, index) => (drawable(line.y[index]) ? `${px(at)},${py(line.y[index], line.axis)}` : null)).filter(Boolean);
    inner.append(svg("polyline", { points: points.join(" "), stroke: colour(seriesColour(line.colour)), "stroke-width": line.faint ? 1 : 1.75,
      "stroke-opacity": line.faint ? 0.35 : 1, "stroke-dasharray": dashOf(line).join(" "), "stroke-linejoin": "round" }));
  }
  root.append(inner);
  shown.forEach((line, at) => {
    const left = 16 + (at % 3) * (width / 3), top = height - 4 + 20 * Math.floor(at / 3);
    root.append(svg("line", { x1: left, x2: left + 20, y1: top, y2: top, stroke: colour(seriesColour(line.colour)), "stroke-width": 2.5, "stroke-dasharray": dashOf(line).join(" ") }),
      text(line.label, { x: left + 28, y: top + 4, fill: colour("--text") }));
  });
  return new XMLSerializer().serializeToString(root);
}

/** A PNG of an SVG, given as text, at twice its size. */
export async function pngFrom(text) {
  const image = new Image(), address = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  try {
    image.src = address;
    await image.decode();
    const canvas = h("canvas", { width: 2 * image.width, height: 2 * image.height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  } finally {
    URL.revokeObjectURL(address);
  }
}
