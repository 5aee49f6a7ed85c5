// Name, tags, note, archive, stop and deletion of runs; several at a time.
import { act, change, Refused, SignedOut } from "./api.js";
import { announce, h, say } from "./dom.js";
import { counted } from "./format.js";

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
const runs = (count) => counted(count, "run");
const wordsIn = (text) => text.split(/[\s,]+/).filter(Boolean);

/** A dialog with a form; `carryOut(progress)` returns what was done, or throws; progress(text) shows how far it is. Failures stay in the dialog, by run. */
function formDialog(heading, fields, verb, carryOut, nameOf, { danger = false, ready = () => true } = {}) {
  return new Promise((resolve) => {
    let told;
    const problem = h("div", { class: "problems", role: "alert" }), progress = h("p", { class: "sub", role: "status" });
    const button = h("button", { type: "submit", class: danger ? "danger" : "primary", disabled: !ready() }, verb);
    const form = h("form", { method: "dialog", on: { input: () => (button.disabled = !ready()), submit: async (event) => {
      event.preventDefault();
      if (!ready()) return;
      button.disabled = true;
      try {
        told = await carryOut((text) => say(progress, text));
        const failed = Object.entries(told.problems);
        announce(`${verb}: ${runs(told.done.length)} done${failed.length ? `, ${failed.length} not` : ""}`);
        if (failed.length === 0) return dialog.close();
        problem.replaceChildren(h("p", {}, `${runs(told.done.length)} done; not done:`),
          ...failed.slice(0, 20).map(([id, line]) => h("p", {}, h("b", {}, nameOf(id)), `: ${line}`)),
          ...(failed.length > 20 ? [h("p", {}, `and ${failed.length - 20} more`)] : []));
      } catch (error) {
        problem.replaceChildren(h("p", {}, error.message));
        button.disabled = false;
      } finally { say(progress, ""); }
    } } }, h("h2", {}, heading), fields, progress, problem, h("div", { class: "actions" },
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

const MOST_NAMED = 20;

/** Asks first: of one run by a second click, of several by typing how many. */
function sureDialog(verb, ids, nameOf, text, carryOut) {
  const typed = h("input", { type: "text", inputmode: "numeric", autocomplete: "off" });
  const many = ids.length > 1, left = ids.length - MOST_NAMED, word = verb.toLowerCase();
  const fields = [h("p", {}, text),
    many ? h("ul", { class: "names", tabindex: 0, "aria-label": `Runs to ${word}` }, ids.slice(0, MOST_NAMED).map((id) => h("li", {}, nameOf(id))), left > 0 ? h("li", {}, `and ${left} more`) : null) : null,
    many ? labelledField(`Type ${ids.length} to ${word} that many runs`, typed) : null];
  return formDialog(`${verb} ${many ? runs(ids.length) : nameOf(ids[0])}?`, fields, verb, carryOut, nameOf, { danger: true, ready: () => !many || typed.value.trim() === String(ids.length) });
}

/** `left`: how many of the chosen runs are running, and so stay. */
export const deleteDialog = (ids, nameOf, left) => sureDialog("Delete", ids, nameOf, `The directories with checkpoints, metrics and logs are deleted from the disk and cannot be restored.${left ? ` ${runs(left)} that ${left === 1 ? "is" : "are"} running stay${left === 1 ? "s" : ""}.` : ""}`, () => removed(ids));

export const stopDialog = (ids, nameOf) => sureDialog("Stop", ids, nameOf, "A run that is stopped saves a checkpoint and writes its summary. You can resume it later.", (progress) => stopped(ids, progress));

/** Stops runs one after the other; a server that is away, or wants a sign-in, is not asked again. Returns what `inParts` does. */
async function stopped(ids, progress) {
  const told = { done: [], problems: {} };
  for (const [at, id] of ids.entries()) {
    progress(`stopping ${at + 1} of ${ids.length} …`);
    try {
      await act(id, "stop");
      told.done.push(id);
    } catch (error) {
      told.problems[id] = error.message;
      if (error instanceof Refused && !(error instanceof SignedOut)) continue; // this run alone
      for (const left of ids.slice(at + 1)) told.problems[left] = "not asked to stop";
      break;
    }
  }
  return told;
}

/** Shows what was not done, where no dialog is open. */
export function showFailures(element, told, nameOf) {
  const failed = Object.entries(told.problems);
  say(element, failed.length ? `${runs(told.done.length)} done; not done: ${failed.slice(0, 3).map(([id, line]) => `${nameOf(id)}: ${line}`).join("; ")}${failed.length > 3 ? " …" : ""}` : "");
}
