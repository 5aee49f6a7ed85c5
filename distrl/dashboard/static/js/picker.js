// A dialog that chooses metrics: grouped, explained, found by words.
import { h, say } from "./dom.js";
import { axesOf, axisKey, title } from "./metrics.js";

const MOST_METRICS = 12;
let dialogs = 0;

/** Shows the dialog; resolves to the chosen names, or to null if it was closed without a choice. */
export function pickMetrics(metrics, chosen, snapshot) {
  const picked = new Set(chosen.filter((name) => metrics.has(name))), number = (dialogs += 1);
  const search = h("input", { type: "search", placeholder: "Find by name, group, unit or meaning", "aria-label": "Find metrics", on: { input: filter, keydown: (event) => { if (event.key === "Enter") event.preventDefault(); } } });
  const note = h("p", { class: "said", role: "status" });
  const groups = new Map();
  for (const metric of [...metrics.values()].sort((one, other) => has(other) - has(one))) {
    const group = metric.group || "other";
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push(metric);
  }
  const rows = [];
  const sections = [...groups].map(([group, members]) => h("fieldset", {}, h("legend", {}, title(group)), members.map((metric) => row(metric))));
  const list = h("div", { class: "choices", tabindex: -1 }, sections);
  const done = h("button", { type: "submit", class: "primary" }, "Show");
  const dialog = h("dialog", { class: "picker", "aria-labelledby": `picker-${number}` }, h("form", { method: "dialog", on: { submit: finish } },
    h("h2", { id: `picker-${number}` }, "Metrics of this chart"), search, list, note,
    h("div", { class: "actions" }, h("button", { type: "button", class: "quiet", on: { click: () => { picked.clear(); for (const one of rows) one.box.checked = false; check(); } } }, "Clear"),
      h("span", { class: "spacer" }), h("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel"), done)));
  let answer = null;

  function has(metric) {
    return snapshot[metric.name] === undefined || snapshot[metric.name] === null ? 0 : 1;
  }

  function row(metric) {
    const box = h("input", { type: "checkbox", checked: picked.has(metric.name), on: { change: () => { if (box.checked) picked.add(metric.name); else picked.delete(metric.name); check(); } } });
    const element = h("label", { class: has(metric) ? "choice" : "choice without" }, box, h("span", { class: "name" }, title(metric.name)), h("span", { class: "unit" }, metric.unit),
      h("span", { class: "meaning" }, metric.meaning, has(metric) ? "" : " – no number now"));
    rows.push({ metric, box, element, text: `${metric.name} ${title(metric.name)} ${metric.group} ${metric.unit} ${metric.meaning}`.toLowerCase() });
    return element;
  }

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const { element, text } of rows) element.hidden = !words.every((word) => text.includes(word));
    for (const section of sections) section.hidden = [...section.querySelectorAll("label")].every((label) => label.hidden);
    const found = rows.filter(({ element }) => !element.hidden).length;
    say(note, words.length ? `${found} ${found === 1 ? "metric" : "metrics"}` : "");
  }

  /** A chart has two axes: metrics of a third unit cannot be added. */
  function check() {
    const axes = axesOf([...picked], metrics), full = picked.size >= MOST_METRICS;
    for (const { metric, box } of rows) box.disabled = !box.checked && (full || (axes.length >= 2 && !axes.includes(axisKey(metric))));
    done.disabled = picked.size === 0;
    say(note, full ? `A chart has at most ${MOST_METRICS} lines.` : axes.length >= 2 ? "Both axes are taken: only metrics of the same units can be added." : "");
  }

  function finish() {
    answer = [...picked];
  }

  check();
  document.body.append(dialog);
  dialog.showModal();
  search.focus();
  return new Promise((resolve) => dialog.addEventListener("close", () => { dialog.remove(); resolve(answer?.length ? answer : null); }));
}
