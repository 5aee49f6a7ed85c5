// The frame of a chart or a picture: its title, and a menu that shows it as a table and saves it.
import { announce, h, say } from "./dom.js";
import { csvText, pngFrom, save } from "./chartfiles.js";

export const button = (text, action) => h("button", { type: "button", class: "small", on: { click: action } }, text);

/**
 * shown: the element in whose place the table stands; label: what the menu belongs to; options: rows of the menu above the last one.
 * Its kinds have named(), a title for files; tableOf(), rows() of the CSV file, svgText(), "" if nothing is drawn; and redraw(), called when it is shown again.
 */
export class Card {
  constructor({ label, head, shown, options = [], below = [], filled = false }) {
    this.shown = shown;
    this.title = h("h2");
    this.table = h("div", { class: "scroll chart-table", tabindex: 0, role: "region", hidden: true }); // stays, and keeps its place and the focus, when values come
    this.tableButton = button("Table", () => this.toggleTable());
    this.tableButton.setAttribute("aria-pressed", "false");
    const drawn = (act) => () => { const text = this.svgText(); if (text) act(text); };
    this.said = h("p", { class: "said", role: "status" });
    this.menu = h("details", { class: "chart-menu", on: { keydown: (event) => { if (event.key === "Escape") this.close(); } } }, h("summary", { "aria-label": `Options of ${label}` }, "⋯"),
      h("div", { class: "menu" }, options, h("div", { class: "toolbar" }, this.tableButton, button("CSV", () => this.saveCsv()), button("SVG", drawn((text) => this.save("svg", text, "image/svg+xml"))),
        button("PNG", drawn(async (text) => this.save("png", await pngFrom(text))))), this.said));
    addEventListener("pointerdown", this.away = (event) => { if (this.menu.open && !this.menu.contains(event.target)) this.menu.open = false; });
    this.element = h("figure", { class: filled ? "card filled" : "card" }, h("header", {}, this.title, head, h("span", { class: "spacer" }), this.menu), h("div", { class: "body" }, shown, this.table, below));
  }

  /** Its title, of which a long one is cut to two lines. */
  name(text) {
    say(this.title, text);
    this.title.title = text;
  }

  close() {
    const inside = this.menu.contains(document.activeElement);
    this.menu.open = false;
    if (inside) this.menu.firstChild.focus();
  }

  fileName() {
    return this.named().replaceAll(/[^\w.-]+/g, "-").slice(0, 80);
  }

  save(kind, content, type) {
    save(`${this.fileName()}.${kind}`, content, type);
  }

  saveCsv() {
    this.save("csv", csvText(this.rows()), "text/csv");
  }

  toggleTable() {
    const asTable = this.table.hidden;
    this.table.hidden = !asTable;
    this.shown.hidden = asTable;
    this.tableButton.setAttribute("aria-pressed", String(asTable));
    this.drawTable();
    if (!asTable) this.redraw();
    announce(asTable ? "shown as a table" : "shown as a picture");
  }

  drawTable() {
    if (this.table.hidden) return;
    const place = this.table.scrollTop, table = this.tableOf();
    this.table.setAttribute("aria-label", table.caption.textContent);
    this.table.replaceChildren(table);
    this.table.scrollTop = place;
  }

  destroy() {
    removeEventListener("pointerdown", this.away);
  }
}
