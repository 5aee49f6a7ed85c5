// Columns of the list: what each shows, and the picker.
import { get } from "./api.js";
import { h, say } from "./dom.js";
import { ago, compact, duration, general, moment, result, title, whole } from "./format.js";

const NUMBERS = {
  mean_return_100: ["Return", result, "Mean return of the last 100 training episodes"],
  evaluation_mean_return: ["Evaluation", result, "Mean return of the newest evaluation"],
  best_mean_return_100: ["Best", result, "Best mean return of 100 training episodes"],
  best_evaluation_return: ["Best evaluation", result, "Best mean return of an evaluation"],
  env_steps: ["Steps", compact, "Environment steps"],
  env_steps_per_s: ["Steps/s", whole, "Environment steps per second"],
  training_s: ["Training", duration, "Time of training"],
  wall_s: ["Wall time", duration, "Time from launch to end"],
  updates: ["Updates", compact, "Updates"], episodes: ["Episodes", compact, "Episodes"],
};

/** Heading, text of a value, and what it means. */
export function told(column) {
  if (column.kind === "setting") return { heading: column.name.split(".").pop().replaceAll("_", " "), meaning: column.name };
  const [heading, text, meaning] = NUMBERS[column.name] ?? [title(column.name), general, title(column.name)];
  return { heading, text, meaning };
}

export function cellOf(column, run) {
  if (column.kind === "setting") return [run.settings[column.name] ?? "", ""];
  if (column.name === "started") return [ago(run.started), moment(run.started)];
  const value = run.numbers[column.name];
  return [told(column).text(value), column.name === "env_steps" ? whole(value) : ""];
}

/** A dialog in which columns are chosen; resolves to names, null for the usual ones, or undefined if nothing changes. */
export async function pickColumns(query, shown) {
  const choices = await get("columns", { query });
  const chosen = new Set(shown.map((column) => column.name));
  const differing = new Map(choices.differing.map((one) => [one.path, one.values]));
  const all = [
    ...choices.numbers.map((name) => [name, told({ name, kind: "number" }).heading, "numbers"]),
    ...[...differing].map(([path, values]) => [path, path, `${values} values`]),
    ...choices.same.map((path) => [path, path, "the same in all"]),
  ];
  return new Promise((resolve) => {
    const list = h("ul", { class: "choices" });
    const search = h("input", { type: "search", placeholder: "Search columns", "aria-label": "Search columns", on: { input: draw } });
    const count = h("p", { class: "muted", role: "status" });
    const items = all.map(([name, text, note]) => {
      const box = h("input", { type: "checkbox", checked: chosen.has(name), on: { change: () => { if (box.checked) chosen.add(name); else chosen.delete(name); } } });
      return [`${name} ${text}`.toLowerCase(), name, h("li", {}, h("label", {}, box, h("span", {}, text), h("small", { class: "muted" }, note)))];
    });
    function draw() {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const found = items.filter(([text, name]) => (words.length ? words.every((word) => text.includes(word)) : chosen.has(name) || differing.has(name) || choices.numbers.includes(name)));
      list.replaceChildren(...found.map(([, , element]) => element));
      say(count, words.length ? `${found.length} found` : `Search to see all ${items.length}; settings that are the same in all runs are not listed.`);
    }
    let answer;
    const end = (names) => { answer = names; dialog.close(); };
    const dialog = h("dialog", { class: "wide", "aria-label": "Columns", on: { close: () => { dialog.remove(); resolve(answer); } } },
      h("h2", {}, "Columns"), search, count, list,
      h("div", { class: "actions" }, h("button", { type: "button", class: "quiet", on: { click: () => end(null) } }, "The usual ones"),
        h("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel"),
        h("button", { type: "button", class: "primary", on: { click: () => end(all.map(([name]) => name).filter((name) => chosen.has(name))) } }, "Show")));
    draw();
    document.body.append(dialog);
    dialog.showModal();
    search.focus();
  });
}
