// The box at the cursor of a chart: where it is, and the values of the nearest lines.
import { h } from "./dom.js";
import { swatch } from "./colours.js";
import { compact, duration, UNKNOWN, whole } from "./format.js";
import { markText } from "./marks.js";
import { along } from "./ranges.js";

const MOST_ROWS = 8;
const NEAR_PX = 7;

/** x in the chart's unit, and in steps and time where the ruler tells them. */
export function placeText(chart, x) {
  const { over, ruler } = chart, told = [over === "time" ? duration(x) : `${whole(x)} ${over}`];
  for (const other of ["steps", "time"]) {
    if (other === over || !ruler[over]?.length || !ruler[other]?.length) continue;
    const value = along(x, ruler[over], ruler[other]);
    told.push(other === "time" ? duration(value) : `${whole(value)} ${other}`);
  }
  return told.join(" · ");
}

/** Text of a value with its unit. */
export function valueText(line, value) {
  if (value === null || value === undefined) return UNKNOWN;
  return line.format(value);
}

export class Tooltip {
  constructor(chart) {
    this.chart = chart;
    this.element = h("div", { class: "tip", hidden: true, "aria-hidden": "true" });
  }

  hide() {
    this.element.hidden = true;
  }

  show(index, left, top) {
    const { chart } = this, { plot } = chart, x = plot.data[0][index];
    if (x === undefined) return this.hide();
    const rows = chart.valuesAt(index).filter(({ value }) => value !== null)
      .map((row) => ({ ...row, away: Math.abs(plot.valToPos(row.value, row.line.axis === 2 ? "y2" : "y") - top) }))
      .sort((one, other) => one.away - other.away);
    const near = chart.shownMarks().filter((mark) => Math.abs(plot.valToPos(mark.x, "x") - left) <= NEAR_PX);
    this.element.replaceChildren(h("div", { class: "place" }, placeText(chart, x)),
      ...rows.slice(0, MOST_ROWS).map(({ line, value, spread, x: own }, at) => h("div", { class: at === 0 ? "row nearest" : "row" }, swatch(line),
        h("span", { class: "name" }, line.dots && own !== x ? `${line.label} at ${chart.over === "time" ? duration(own) : compact(own)}` : line.label), h("span", { class: "value" }, valueText(line, value) + (spread ? ` (${spread.map(line.format).join(" to ")})` : "")))),
      ...(rows.length > MOST_ROWS ? [h("div", { class: "more" }, `and ${rows.length - MOST_ROWS} more`)] : []),
      ...near.slice(0, 4).map((mark) => h("div", { class: "mark" }, markText(mark))));
    this.element.hidden = false;
    const place = plot.over, width = this.element.offsetWidth, height = this.element.offsetHeight;
    const from = place.offsetLeft, room = chart.canvas.clientWidth;
    const right = from + left + 14 + width <= room;
    const x0 = right ? from + left + 14 : Math.max(from + left - 14 - width, 0);
    this.element.style.transform = `translate(${Math.min(x0, Math.max(room - width, 0))}px, ${Math.min(Math.max(place.offsetTop + top - height / 2, 0), Math.max(place.clientHeight - height, 0) + place.offsetTop)}px)`;
  }
}
