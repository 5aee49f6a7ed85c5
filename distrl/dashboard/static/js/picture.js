// A card with a drawn picture: its title, its size on the page, and a menu that shows it as a table and saves it.
import { announce, h, svg } from "./dom.js";
import { pngFrom, quoted, save } from "./chartfiles.js";
import { colour } from "./colours.js";

const MOST_ROWS = 500; // of a picture as a table
const EXPORT_WIDTH = 960;

export const csvText = (rows) => `${rows.map((row) => row.map((cell) => quoted(cell ?? "")).join(",")).join("\n")}\n`;
export const fileName = (text) => text.replaceAll(/[^\w.-]+/g, "-").slice(0, 80);

/**
 * draw(width, text): returns an SVG of that width; rows(): its numbers, the headings first; words(): what it shows, for screen readers.
 */
export class Picture {
  constructor({ title, head = [], draw, rows, words, leastWidth = 0, below = [] }) {
    Object.assign(this, { draw, rows, words, leastWidth });
    this.title = h("h2", {}, title);
    this.box = h("div", { class: "picture", role: "group" });
    this.scroll = h("div", { class: "picture-scroll" }, this.box);
    this.table = h("div", { class: "scroll chart-table", tabindex: 0, role: "region", "aria-label": `Values of ${title}`, hidden: true });
    this.tableButton = this.button("Table", () => this.toggleTable());
    this.tableButton.setAttribute("aria-pressed", "false");
    const menu = h("details", { class: "chart-menu", on: { keydown: (event) => { if (event.key === "Escape") { menu.open = false; menu.firstChild.focus(); } } } },
      h("summary", { "aria-label": `Options of ${title}` }, "⋯"),
      h("div", { class: "menu" }, h("div", { class: "toolbar" }, this.tableButton, this.button("CSV", () => save(`${this.file()}.csv`, csvText(this.rows()), "text/csv")),
        this.button("SVG", () => save(`${this.file()}.svg`, this.svgText(), "image/svg+xml")), this.button("PNG", async () => save(`${this.file()}.png`, await pngFrom(this.svgText()))))));
    addEventListener("pointerdown", this.away = (event) => { if (menu.open && !menu.contains(event.target)) menu.open = false; });
    this.element = h("figure", { class: "card" }, h("header", {}, this.title, h("div", { class: "toolbar" }, head), h("span", { class: "spacer" }), menu), h("div", { class: "body" }, this.scroll, this.table, below));
    this.observer = new ResizeObserver(() => { if (this.box.clientWidth !== this.width) this.redraw(); });
    this.observer.observe(this.scroll);
  }

  button(text, action) {
    return h("button", { type: "button", class: "small", on: { click: action } }, text);
  }

  file() {
    return fileName(this.title.textContent);
  }

  redraw() {
    const width = Math.max(this.scroll.clientWidth, this.leastWidth);
    if (!this.scroll.clientWidth) return; // not on the page yet
    const held = this.box.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    this.box.style.width = `${width}px`;
    this.width = this.box.clientWidth;
    const drawn = this.draw(width);
    this.box.replaceChildren(...(Array.isArray(drawn) ? drawn : [drawn]));
    if (held) this.box.querySelector(`[data-key="${CSS.escape(held)}"]`)?.focus({ preventScroll: true });
    this.box.setAttribute("aria-label", this.words());
    this.drawTable();
  }

  toggleTable() {
    this.table.hidden = !this.table.hidden;
    this.scroll.hidden = !this.table.hidden;
    this.tableButton.setAttribute("aria-pressed", String(!this.table.hidden));
    this.drawTable();
    if (this.table.hidden) this.redraw();
    announce(this.table.hidden ? "shown as a picture" : "shown as a table");
  }

  drawTable() {
    if (this.table.hidden) return;
    const [heads, ...rows] = this.rows();
    this.table.replaceChildren(h("table", {}, h("caption", { class: "visually-hidden" }, this.title.textContent), h("thead", {}, h("tr", {}, heads.map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, rows.slice(0, MOST_ROWS).map((row) => h("tr", {}, row.map((cell) => h("td", {}, String(cell ?? ""))))))));
  }

  /** The picture as a file, with its title and its background. */
  svgText() {
    const drawn = this.draw(EXPORT_WIDTH, true), picture = Array.isArray(drawn) ? drawn[0] : drawn, height = Number(picture.getAttribute("height"));
    const root = svg("svg", { width: EXPORT_WIDTH, height: height + 40, viewBox: `0 0 ${EXPORT_WIDTH} ${height + 40}`, "font-family": "system-ui, sans-serif" },
      svg("rect", { width: EXPORT_WIDTH, height: height + 40, fill: colour("--surface") }), svg("text", { x: 16, y: 26, "font-size": 16, "font-weight": 600, fill: colour("--text") }, this.title.textContent));
    picture.setAttribute("y", 40);
    root.append(picture);
    return new XMLSerializer().serializeToString(root);
  }

  destroy() {
    removeEventListener("pointerdown", this.away);
    this.observer.disconnect();
  }
}

/** Shows the words of a point beside it, within the box. */
export class Tip {
  constructor() {
    this.element = h("div", { class: "tip", hidden: true, "aria-hidden": "true" });
  }

  show(x, y, lines, width) {
    this.element.hidden = false;
    this.element.replaceChildren(...lines.map((line, at) => h("div", { class: at ? "row" : "row nearest" }, line)));
    const left = Math.min(x + 12, width - this.element.offsetWidth - 4);
    this.element.style.transform = `translate(${Math.max(left, 0)}px, ${Math.max(y - this.element.offsetHeight - 8, 0)}px)`;
  }

  hide() {
    this.element.hidden = true;
  }
}

