// A card around a chart; its menu also changes how the chart is drawn.
import { h, say } from "./dom.js";
import { button, Card } from "./card.js";
import { rowsOf, svgOf, tableOf } from "./chartfiles.js";

/**
 * head: elements beside the title; actions: [[text, action]] of the menu's first row; csv: address of the server's CSV, if it has one;
 * changed(view): called when the user changes how the chart is drawn; named(): title of files.
 */
export class ChartCard extends Card {
  constructor(chart, { head = [], actions = [], csv = null, changed = () => {}, named }) {
    const subtitle = h("span", { class: "sub" });
    const box = (text, key) => {
      const input = h("input", { type: "checkbox", on: { change: () => this.change({ [key]: input.checked }) } });
      return [input, h("label", { class: "field" }, input, text)];
    };
    const number = (label, key) => {
      const input = h("input", { type: "text", inputmode: "decimal", size: 6, "aria-label": label, placeholder: "auto", on: { change: () => this.ranged(input, key) } });
      return input;
    };
    const [log, logField] = box("Log scale", "log"), [clip, clipField] = box("Without outliers (1st to 99th percentile)", "clip"), low = number("Least y", "low"), high = number("Greatest y", "high");
    super({ label: "the chart", head: [subtitle, head].flat(), shown: chart.element, filled: chart.fill, options: [
      actions.length ? h("div", { class: "toolbar" }, actions.map(([text, action]) => button(text, () => { this.close(); action(); }))) : null,
      h("div", { class: "toolbar" }, logField, clipField), h("div", { class: "toolbar" }, h("span", { class: "field" }, "y from ", low, " to ", high))] });
    Object.assign(this, { chart, csv, changed, named, subtitle, fields: { log, clip, low, high } });
  }

  ranged(input, key) {
    const text = input.value.trim(), value = text === "" ? null : Number(text.replaceAll(",", ""));
    if (Number.isNaN(value)) return say(this.said, `${text} is not a number`);
    say(this.said, "");
    this.change({ [key]: value });
  }

  change(part) {
    this.setView({ ...this.chart.view, ...part });
    this.changed(this.chart.view);
  }

  setView(view) {
    this.chart.setView(view);
    const { log, clip, low, high } = this.chart.view;
    this.fields.log.checked = log;
    this.fields.clip.checked = clip;
    if (low !== null && high !== null && low >= high) say(this.said, "The range is empty: from is not below to.");
    for (const [field, value] of [[this.fields.low, low], [this.fields.high, high]]) if (document.activeElement !== field) field.value = value ?? "";
  }

  saveCsv() {
    if (this.csv) h("a", { href: this.csv(), download: `${this.fileName()}.csv` }).click();
    else super.saveCsv();
  }

  rows() {
    return rowsOf(this.chart);
  }

  tableOf() {
    return tableOf(this.chart);
  }

  svgText() {
    return this.chart.plot ? svgOf(this.chart, this.named()) : "";
  }

  redraw() {
    this.chart.resize();
  }

  destroy() {
    super.destroy();
    this.chart.destroy();
  }
}
