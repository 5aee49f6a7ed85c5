// A card around a chart: its title, and a menu that changes how it is drawn, shows it as a table and saves it.
import { announce, h, say } from "./dom.js";
import { csvOf, pngOf, save, svgOf, tableOf } from "./chartfiles.js";

const fileName = (text) => text.replaceAll(/[^\w.-]+/g, "-").slice(0, 80);

/**
 * head: elements beside the title; actions: [[text, action]] of the menu's first row; csv: address of the server's CSV, if it has one;
 * changed(view): called when the user changes how the chart is drawn.
 */
export class ChartCard {
  constructor(chart, { head = [], actions = [], csv = null, changed = () => {}, named }) {
    Object.assign(this, { chart, csv, changed, named });
    this.title = h("h2");
    this.subtitle = h("span", { class: "sub" });
    this.table = h("div", { class: "scroll chart-table", tabindex: 0, role: "region", hidden: true }); // stays, and keeps its place and the focus, when values come
    this.menu = this.menuOf(actions);
    this.element = h("figure", { class: chart.fill ? "card filled" : "card" }, h("header", {}, this.title, this.subtitle, head, h("span", { class: "spacer" }), this.menu),
      h("div", { class: "body" }, chart.element, this.table));
  }

  menuOf(actions) {
    const { chart } = this;
    const box = (text, key) => {
      const input = h("input", { type: "checkbox", on: { change: () => this.change({ [key]: input.checked }) } });
      return [input, h("label", { class: "field" }, input, text)];
    };
    const number = (label, key) => {
      const input = h("input", { type: "text", inputmode: "decimal", size: 6, "aria-label": label, placeholder: "auto", on: { change: () => this.ranged(input, key) } });
      return input;
    };
    const [log, logField] = box("Log scale", "log"), [clip, clipField] = box("Without outliers (1st to 99th percentile)", "clip");
    this.fields = { log, clip, low: number("Least y", "low"), high: number("Greatest y", "high") };
    const button = (text, action) => h("button", { type: "button", class: "small", on: { click: action } }, text);
    this.tableButton = h("button", { type: "button", class: "small", "aria-pressed": "false", on: { click: () => this.toggleTable() } }, "Table");
    const name = () => fileName(this.named());
    const csv = this.csv ? button("CSV", () => h("a", { href: this.csv(), download: `${name()}.csv` }).click()) : button("CSV", () => save(`${name()}.csv`, csvOf(chart), "text/csv"));
    this.said = h("p", { class: "said", role: "status" });
    const menu = h("details", { class: "chart-menu", on: { keydown: (event) => { if (event.key === "Escape") this.close(); } } },
      h("summary", { "aria-label": "Options of the chart" }, "⋯"),
      h("div", { class: "menu" }, actions.length ? h("div", { class: "toolbar" }, actions.map(([text, action]) => button(text, () => { this.close(); action(); }))) : null,
        h("div", { class: "toolbar" }, logField, clipField),
        h("div", { class: "toolbar" }, h("span", { class: "field" }, "y from ", this.fields.low, " to ", this.fields.high)),
        h("div", { class: "toolbar" }, this.tableButton, csv, button("SVG", () => chart.plot && save(`${name()}.svg`, svgOf(chart, this.named()), "image/svg+xml")),
          button("PNG", async () => chart.plot && save(`${name()}.png`, await pngOf(chart, this.named())))), this.said));
    addEventListener("pointerdown", this.away = (event) => { if (menu.open && !menu.contains(event.target)) menu.open = false; });
    return menu;
  }

  close() {
    const inside = this.menu.contains(document.activeElement);
    this.menu.open = false;
    if (inside) this.menu.firstChild.focus();
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

  toggleTable() {
    const shown = this.table.hidden;
    this.table.hidden = !shown;
    this.chart.element.hidden = shown;
    this.tableButton.setAttribute("aria-pressed", String(shown));
    this.drawTable();
    if (!shown) this.chart.resize();
    announce(shown ? "shown as a table" : "shown as a chart");
  }

  drawTable() {
    if (this.table.hidden) return;
    this.table.setAttribute("aria-label", `Values of ${this.chart.label}`);
    const place = this.table.scrollTop;
    this.table.replaceChildren(tableOf(this.chart));
    this.table.scrollTop = place;
  }

  destroy() {
    removeEventListener("pointerdown", this.away);
    this.chart.destroy();
  }
}
