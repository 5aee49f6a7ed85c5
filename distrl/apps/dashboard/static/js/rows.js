// Lines of the list: runs and groups. They are kept and changed in place while runs go on.
import { h, say } from "./dom.js";
import { cellOf, described } from "./columns.js";
import { counted, setting, UNKNOWN } from "./format.js";
import { spark } from "./spark.js";
import { outcome, pill } from "./states.js";

const LONGEST = 160; // letters of an outcome; the run's page shows all of it
const OPTIONAL = new Set(["best_mean_return_100", "training_s", "started"]); // left out on a phone

const kindOf = (column) => `${column.kind === "setting" ? "setting" : column.name === "started" ? "" : "n"}${OPTIONAL.has(column.name) ? " optional" : ""}`;

export class RunRow {
  /** `on`: {choose(run, chosen, event), edit(run) or null, tag(tag)} */
  constructor(run, columns, on) {
    this.run = run;
    this.on = on;
    this.box = h("input", { type: "checkbox", on: { click: (event) => on.choose(this.run, this.box.checked, event) } });
    this.state = h("td", { class: "state" });
    this.link = h("a", { class: "name", href: `#/run/${run.id}` });
    this.pencil = on.edit && h("button", { type: "button", class: "pencil", title: "Name, tags and note", on: { click: () => on.edit(this.run) } }, "✎");
    this.under = h("span", { class: "sub" });
    this.tags = h("span", { class: "tags" });
    this.note = h("span", { class: "sub note-line clamped" });
    this.cells = columns.map((column) => h("td", { class: kindOf(column), "data-label": described(column).heading, title: column.kind === "setting" ? column.name : null }));
    this.columns = columns;
    this.trend = h("td", { class: "trend" });
    this.outcome = h("span", { class: "clamped" });
    this.element = h("tr", { "data-run": run.id }, h("td", { class: "pick" }, this.box),
      h("th", { scope: "row", class: "run" }, this.link, this.pencil, this.tags, this.under, this.note), this.state, this.trend, this.cells, h("td", { class: "wide" }, this.outcome));
  }

  update(run, chosen) {
    this.run = run;
    this.box.checked = chosen;
    this.element.toggleAttribute("data-chosen", chosen);
    this.box.setAttribute("aria-label", `Choose ${run.name}`);
    if (this.pencil) this.pencil.hidden = !run.has_directory; // without one there is no place for labels
    this.pencil?.setAttribute("aria-label", `Name, tags and note of ${run.name}`);
    say(this.link, run.name);
    this.link.title = run.title ? run.path : run.name;
    const state = pill(run);
    if (this.state.textContent !== state.textContent) this.state.replaceChildren(state);
    say(this.under, [run.env, run.algorithm, run.seed === null ? null : `seed ${run.seed}`].filter(Boolean).join(" · ") || UNKNOWN);
    say(this.note, run.note);
    this.note.title = run.note;
    const tags = [...(run.archived ? ["archived"] : []), ...run.tags].join(" ");
    if (this.tags.dataset.tags !== tags) {
      this.tags.dataset.tags = tags;
      this.tags.replaceChildren(...(run.archived ? [h("span", { class: "tag" }, "archived")] : []),
        ...run.tags.map((tag) => h("button", { type: "button", class: "tag", title: `Only runs with the tag ${tag}`, on: { click: () => this.on.tag(tag) } }, tag)));
    }
    const points = JSON.stringify(run.spark);
    if (this.points !== points) {
      this.points = points;
      this.trend.replaceChildren(spark(run.spark));
    }
    this.columns.forEach((column, at) => {
      const [text, full] = cellOf(column, run);
      say(this.cells[at], text);
      if (full) this.cells[at].title = full;
    });
    const words = outcome(run), long = words.length > LONGEST;
    say(this.outcome, long ? `${words.slice(0, LONGEST)}…` : words);
    this.outcome.title = words;
  }
}

/** A group: its label, how many runs, and for each number the median and the interquartile mean. */
export function groupRow(line, columns, onTurn) {
  const button = h("button", { type: "button", class: "fold", "aria-expanded": String(line.open), "data-group": line.group, on: { click: () => onTurn(line.group) } },
    h("span", { class: "sign", "aria-hidden": "true" }, line.open ? "▾" : "▸"), setting(line.group));
  return h("tr", { class: "group" }, h("td", { class: "pick" }),
    h("th", { scope: "row", class: "run" }, button, h("span", { class: "sub" }, counted(line.n, "run"))),
    h("td", { class: "state sub" }, "median", h("br"), "IQM"), h("td", { class: "trend" }),
    columns.map((column) => {
      const { heading, text } = described(column), found = line.numbers[column.name];
      if (!found) return h("td", { class: kindOf(column), "data-label": heading });
      const few = found.n < line.n ? `of ${found.n} of ${counted(line.n, "run")}` : "";
      return h("td", { class: kindOf(column), "data-label": heading, title: few }, h("span", { class: "both" }, h("span", {}, text(found.median)), h("span", { class: "sub" }, text(found.iqm))));
    }), h("td", { class: "wide" }));
}
