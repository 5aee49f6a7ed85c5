// Name, tags, note, archive and deletion of runs; several at a time.
import { change } from "./api.js";
import { announce, h, say } from "./dom.js";

const AT_ONCE = 500;

/** Sends ids in parts; returns {done: [ids], problems: {id: line}}. */
async function inParts(path, ids, body) {
  const told = { done: [], problems: {} };
  for (let at = 0; at < ids.length; at += AT_ONCE) {
    const part = await change(path, { ids: ids.slice(at, at + AT_ONCE), ...body });
    told.done.push(...part.done);
    Object.assign(told.problems, part.problems);
  }
  return told;
}

export const labelled = (ids, labels) => inParts("edit", ids, labels);
export const removed = (ids) => inParts("remove", ids, {});
const runs = (count) => `${count} ${count === 1 ? "run" : "runs"}`;
const wordsIn = (text) => text.split(/[\s,]+/).filter(Boolean);

/** A dialog with a form; `act()` returns what was done, or throws. Failures stay in the dialog, by run. */
function formDialog(heading, fields, verb, act, nameOf, { danger = false, ready = () => true } = {}) {
  return new Promise((resolve) => {
    let told;
    const problem = h("div", { class: "problems", role: "alert" });
    const button = h("button", { type: "submit", class: danger ? "danger" : "primary", disabled: !ready() }, verb);
    const form = h("form", { method: "dialog", on: { input: () => (button.disabled = !ready()), submit: async (event) => {
      event.preventDefault();
      if (!ready()) return;
      button.disabled = true;
      try {
        told = await act();
        const failed = Object.entries(told.problems);
        announce(`${verb}: ${runs(told.done.length)} done${failed.length ? `, ${failed.length} not` : ""}`);
        if (failed.length === 0) return dialog.close();
        problem.replaceChildren(h("p", {}, `${runs(told.done.length)} done; not done:`),
          ...failed.slice(0, 20).map(([id, line]) => h("p", {}, h("b", {}, nameOf(id)), `: ${line}`)),
          ...(failed.length > 20 ? [h("p", {}, `and ${failed.length - 20} more`)] : []));
      } catch (error) {
        problem.replaceChildren(h("p", {}, error.message));
        button.disabled = false;
      }
    } } }, h("h2", {}, heading), fields, problem, h("div", { class: "actions" },
      h("button", { type: "button", on: { click: () => dialog.close() } }, "Close"), button));
    const dialog = h("dialog", { class: "form", "aria-label": heading, on: { close: () => { dialog.remove(); resolve(told); } } }, form);
    document.body.append(dialog);
    dialog.showModal();
    (dialog.querySelector("input, textarea") ?? button).focus();
  });
}

const labelledField = (text, input) => h("label", { class: "block" }, h("span", {}, text), input);

export function editDialog(run) {
  const name = h("input", { type: "text", value: run.title, maxlength: 80, placeholder: run.path });
  const tags = h("input", { type: "text", value: run.tags.join(" "), placeholder: "paper baseline" });
  const note = h("textarea", { rows: 4, maxlength: 2000 }, run.note);
  return formDialog(`Labels of ${run.name}`, [labelledField("Name to show", name), labelledField("Tags, separated by spaces", tags), labelledField("Note", note)],
    "Save", () => labelled([run.id], { name: name.value, tags: wordsIn(tags.value), note: note.value }), () => run.name);
}

export function tagDialog(ids, nameOf) {
  const add = h("input", { type: "text", placeholder: "paper baseline" }), remove = h("input", { type: "text" });
  return formDialog(`Tags of ${runs(ids.length)}`, [labelledField("Add", add), labelledField("Remove", remove)], "Change tags",
    () => labelled(ids, { add: wordsIn(add.value), remove: wordsIn(remove.value) }), nameOf);
}

/** Asks before anything is deleted: one run by a second click, several by typing how many. */
const MOST_NAMED = 20;

export function deleteDialog(ids, nameOf) {
  const typed = h("input", { type: "text", inputmode: "numeric", autocomplete: "off" });
  const many = ids.length > 1;
  const left = ids.length - MOST_NAMED;
  const fields = [h("p", {}, `The directories with checkpoints, metrics and logs are deleted from the disk and cannot be restored. Running runs stay.`),
    many ? h("ul", { class: "names", tabindex: 0, "aria-label": "Runs to delete" }, ids.slice(0, MOST_NAMED).map((id) => h("li", {}, nameOf(id))), left > 0 ? h("li", {}, `and ${left} more`) : null) : null,
    many ? labelledField(`Type ${ids.length} to delete that many runs`, typed) : null];
  return formDialog(many ? `Delete ${runs(ids.length)}?` : `Delete ${nameOf(ids[0])}?`, fields, "Delete", () => removed(ids), nameOf,
    { danger: true, ready: () => !many || typed.value.trim() === String(ids.length) });
}

/** Tells what was not done, where no dialog is open. */
export function tell(element, told, nameOf) {
  const failed = Object.entries(told.problems);
  say(element, failed.length ? `${runs(told.done.length)} done; not done: ${failed.slice(0, 3).map(([id, line]) => `${nameOf(id)}: ${line}`).join("; ")}${failed.length > 3 ? " …" : ""}` : "");
}
