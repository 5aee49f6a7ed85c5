// The table of a comparison: a row for each run or each group, columns of the settings that differ and of outcomes.
import { announce, h, say } from "./dom.js";
import { textOf } from "./columns.js";
import { csvText, save } from "./chartfiles.js";
import { seriesColour } from "./colours.js";
import { counted, result, setting, UNKNOWN } from "./format.js";
import { title } from "./metrics.js";
import { atMost, pick } from "./picker.js";
import { outcome, pill, stateOf } from "./states.js";

const MOST_COLUMNS = 30;
const USUAL_COLUMNS = 12;
const heading = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** The settings that the table shows: those chosen, or the first ones. */
export const columnsOf = (found, chosen) => found.settings.filter((one) => !chosen || chosen.includes(one.path)).slice(0, chosen ? MOST_COLUMNS : USUAL_COLUMNS);

/** The title of the outcome that is compared, which no run may have yet. */
export const outcomeTitle = ({ outcome, outcomes }) => outcomes.find(({ name }) => name === outcome)?.title ?? title(outcome);

/** state: {sort, columns, rows}; changed(): called when one of them is another; shown(at), hidden, toggle(id), unload(id) or null; colours: id -> place of its colour. */
export class CompareTable {
  constructor({ state, changed, toggle, unload }) {
    Object.assign(this, { state, changed, toggle, unload });
    this.count = h("span", { class: "sub" });
    this.kinds = ["runs", "groups"].map((kind) => h("button", { type: "button", "aria-pressed": "false", on: { click: () => { state.rows = kind; this.changed(); this.draw(); announce(`a row for each of the ${kind}`); } } }, heading(kind)));
    this.segments = h("div", { class: "segments", role: "group", "aria-label": "Rows" }, this.kinds);
    this.choose = h("button", { type: "button", class: "small", on: { click: () => this.pick() } }, "Columns …");
    this.csv = h("button", { type: "button", class: "small", on: { click: () => save("comparison.csv", csvText(this.plain()), "text/csv") } }, "CSV");
    this.head = h("tr");
    this.body = h("tbody");
    this.element = h("section", { class: "card", "aria-label": "Comparison as a table" }, h("header", {}, h("h2", {}, "Settings and outcomes"), this.count, h("span", { class: "spacer" }), this.segments, this.choose, this.csv),
      h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of runs" }, h("table", { class: "compared" }, h("caption", { class: "visually-hidden" }, "Settings that differ, and outcomes"), h("thead", {}, this.head), this.body)));
  }

  show(found, { shown, hidden, colours }) {
    Object.assign(this, { found, shown, hidden, colours });
    this.draw();
  }

  columns() {
    const { found } = this, settings = columnsOf(found, this.state.columns);
    if (this.state.rows === "groups" && found.groups.length) {
      return [
        { key: "label", text: "Group", of: (one) => one.label }, { key: "runs", text: "Runs", of: (one) => one.ids.length, number: true }, { key: "counted", text: "Counted", of: (one) => one.counted, number: true },
        { key: "centre", text: outcomeTitle(found), of: (one) => one.interval?.[0] ?? null, number: true, words: textOf(found.outcome) },
        { key: "low", text: "from", of: (one) => one.interval?.[1] ?? null, number: true, words: textOf(found.outcome) }, { key: "high", text: "to (95 %)", of: (one) => one.interval?.[2] ?? null, number: true, words: textOf(found.outcome) },
        { key: "best", text: "Best return of a run", of: (one) => one.best, number: true, words: result },
      ];
    }
    return [
      { key: "name", text: "Run", of: (one) => one.name }, { key: "state", text: "State", of: (one) => stateOf(one) },
      ...settings.map((one) => ({ key: one.path, text: one.name, title: one.path, number: one.numbers !== null, of: (_, at) => (one.numbers ? one.numbers[at] : one.texts[at]), words: setting, setting: true })),
      ...found.outcomes.map(({ name, title: text }) => ({ key: name, text, number: true, of: (one) => one.numbers[name] ?? null, words: textOf(name) })),
      { key: "outcome", text: "Outcome", of: (one) => outcome(one), wide: true },
    ];
  }

  /** [row, its place among all] in the order of the table. */
  sorted(columns) {
    const { found, state } = this, groups = columns[0].key === "label", by = state.sort.replace(/^-/, ""), column = columns.find(({ key }) => key === by), down = state.sort.startsWith("-");
    const rows = (groups ? found.groups.map((one, at) => [one, at]) : found.runs.map((one, at) => [one, at]).filter(([, at]) => this.shown(at)));
    if (!column) return rows;
    const order = ([one, at], [other, place]) => {
      const a = column.of(one, at), b = column.of(other, place);
      if (a === null || b === null || a === undefined || b === undefined) return (a === null || a === undefined) - (b === null || b === undefined);
      const less = column.number && typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
      return (down ? -less : less) || at - place;
    };
    return rows.sort(order);
  }

  draw() {
    const columns = this.columns(), groups = columns[0].key === "label", rows = this.sorted(columns), { state, found } = this;
    const held = this.element.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    this.segments.hidden = found.groups.length === 0;
    this.kinds.forEach((button, at) => button.setAttribute("aria-pressed", String((at === 1) === groups)));
    this.choose.hidden = groups || found.settings.length === 0;
    const settings = columnsOf(found, state.columns).length;
    say(this.count, groups ? counted(rows.length, "group") : `${rows.length} of ${counted(found.runs.length, "run")} · ${settings} of ${counted(found.settings.length, "setting that differs", "settings that differ")}`);
    this.head.replaceChildren(...(groups ? [] : [h("th", { scope: "col" }, h("span", { class: "visually-hidden" }, "Show"))]), ...columns.map((column) => h("th", { scope: "col", class: column.number ? "n" : column.key === "name" ? "run" : "", title: column.title, "aria-sort": state.sort.replace(/^-/, "") === column.key ? (state.sort.startsWith("-") ? "descending" : "ascending") : null },
      h("button", { type: "button", "data-key": `sort ${column.key}`, on: { click: () => this.sortBy(column) } }, column.text))), ...(this.unload && !groups ? [h("th", { scope: "col" }, h("span", { class: "visually-hidden" }, "Unload"))] : []));
    this.body.replaceChildren(...rows.map(([one, at]) => (groups ? this.groupRow(one, columns) : this.runRow(one, at, columns))));
    if (held) this.element.querySelector(`[data-key="${CSS.escape(held)}"]`)?.focus({ preventScroll: true });
  }

  sortBy(column) {
    const { state } = this, down = state.sort === column.key ? true : state.sort === `-${column.key}` ? false : column.number && !column.setting;
    state.sort = down ? `-${column.key}` : column.key;
    this.changed();
    this.draw();
    announce(`sorted by ${column.text}, ${down ? "descending" : "ascending"}`);
  }

  runRow(run, at, columns) {
    const swatch = h("span", { class: "dot", "aria-hidden": "true" }), place = this.colours.get(run.id);
    if (place !== undefined && place >= 0) swatch.style.background = `var(${seriesColour(place)})`;
    else swatch.classList.add("none");
    const box = h("input", { type: "checkbox", checked: !this.hidden.has(run.id), "aria-label": `Show ${run.name}`, "data-key": `show ${run.id}`, on: { change: () => this.toggle(run.id, box.checked) } });
    const cells = columns.slice(2).map((column) => cell(column, column.of(run, at)));
    return h("tr", {}, h("td", {}, box), h("th", { scope: "row", class: "run" }, swatch, h("a", { href: `#/run/${run.id}` }, run.name)), h("td", {}, pill(run)), cells,
      this.unload ? h("td", {}, h("button", { type: "button", class: "quiet small", "aria-label": `Unload ${run.name}`, "data-key": `unload ${run.id}`, on: { click: () => this.unload(run.id) } }, "Unload")) : null);
  }

  groupRow(group, columns) {
    return h("tr", {}, h("th", { scope: "row", class: "run" }, group.label), columns.slice(1).map((column) => cell(column, column.of(group))));
  }

  plain() {
    const columns = this.columns();
    return [columns.map((column) => column.title ?? column.text), ...this.sorted(columns).map(([one, at]) => columns.map((column) => column.of(one, at)))];
  }

  /** Chooses the settings among the columns. */
  async pick() {
    const { found, state } = this, items = found.settings.map((one) => ({ key: one.path, name: one.path, unit: "", meaning: [...new Set(one.texts)].slice(0, 5).join(", ").slice(0, 120), group: "Settings that differ" }));
    const chosen = await pick({ title: "Settings of the table and of the axes", find: "Find settings", items, chosen: columnsOf(found, state.columns).map(({ path }) => path), usual: true, check: atMost(MOST_COLUMNS, `A table has at most ${MOST_COLUMNS} columns of settings.`) });
    this.choose.focus();
    if (!chosen) return;
    state.columns = chosen.length ? items.map(({ key }) => key).filter((key) => chosen.includes(key)) : null;
    this.changed();
  }
}

function cell(column, value) {
  const text = value === null || value === undefined ? UNKNOWN : column.words ? column.words(value) : String(value), long = text.length > 60;
  return h("td", { class: column.number ? "n" : column.wide ? "wide" : "", title: long ? text : column.setting ? String(value) : null }, long ? `${text.slice(0, 60)}…` : text);
}
