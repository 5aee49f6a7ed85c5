// A card with a drawn picture, of the size that it has on the page.
import { h, say, svg } from "./dom.js";
import { Card } from "./card.js";
import { colour } from "./colours.js";

const MOST_ROWS = 500; // of a picture as a table
const EXPORT_WIDTH = 960;

/**
 * draw(width, text): returns an SVG of that width; rows(): its numbers, the headings first; words(): what it shows, for screen readers.
 */
export class Picture extends Card {
  constructor({ title, head = [], draw, rows, words, leastWidth = 0, below = [] }) {
    const box = h("div", { class: "picture", role: "group" }), scroll = h("div", { class: "picture-scroll" }, box);
    super({ label: title, head: h("div", { class: "toolbar" }, head), shown: scroll, below });
    this.name(title);
    Object.assign(this, { draw, rows, words, leastWidth, box, scroll });
    this.observer = new ResizeObserver(() => { if (this.box.clientWidth !== this.width) this.redraw(); });
    this.observer.observe(this.scroll);
  }

  named() {
    return this.title.textContent;
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

  tableOf() {
    const [heads, ...rows] = this.rows();
    return h("table", {}, h("caption", { class: "visually-hidden" }, `Values of ${this.named()}`), h("thead", {}, h("tr", {}, heads.map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, rows.slice(0, MOST_ROWS).map((row) => h("tr", {}, row.map((cell) => h("td", {}, String(cell ?? "")))))));
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
    super.destroy();
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

