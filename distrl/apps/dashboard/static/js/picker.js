// One dialog that chooses metrics, columns or settings from a list: grouped, explained, found by words.
import { h, say } from "./dom.js";

let dialogs = 0;

/**
 * items: [{key, name, unit, meaning, group, without, rare}]; `without`: shown paler; `rare`: listed only where words find it.
 * check(picked): [what to say, (key) => whether a further key cannot be chosen now]; usual: offers the usual ones in place of none.
 * Resolves to the chosen keys, none for the usual ones, or to null if the dialog was closed without a choice.
 */
export function pick({ title, find, items, chosen, check, usual = false }) {
  const known = new Set(items.map(({ key }) => key)), picked = new Set(chosen.filter((key) => known.has(key))), listed = new Set(picked), number = (dialogs += 1);
  const search = h("input", { type: "search", placeholder: find, "aria-label": find, on: { input: draw, keydown: (event) => { if (event.key === "Enter") event.preventDefault(); } } });
  const note = h("p", { class: "said", role: "status" });
  const rows = items.map((item) => {
    const { key, name, unit, meaning, group, without } = item;
    const box = h("input", { type: "checkbox", checked: picked.has(key), on: { change: () => { if (box.checked) { picked.add(key); listed.add(key); } else picked.delete(key); draw(); } } });
    const element = h("label", { class: without ? "choice without" : "choice" }, box, h("span", { class: "name" }, name), h("span", { class: "unit" }, unit), h("span", { class: "meaning" }, meaning));
    return { item, box, element, text: `${key} ${name} ${group} ${unit} ${meaning}`.toLowerCase() };
  });
  const sections = [...Map.groupBy(rows, ({ item }) => item.group)].map(([group, members]) => h("fieldset", {}, h("legend", {}, group), members.map(({ element }) => element)));
  const done = h("button", { type: "submit", class: "primary" }, "Show");
  const clear = () => { picked.clear(); for (const { box } of rows) box.checked = false; draw(); };
  let answer = null;
  const dialog = h("dialog", { class: "picker", "aria-labelledby": `picker-${number}` }, h("form", { method: "dialog", on: { submit: () => { answer = [...picked]; } } },
    h("h2", { id: `picker-${number}` }, title), search, h("div", { class: "choices", tabindex: -1 }, sections), note,
    h("div", { class: "actions" }, h("button", { type: "button", class: "quiet", on: { click: () => { if (!usual) return clear(); answer = []; dialog.close(); } } }, usual ? "The usual ones" : "Clear"),
      h("span", { class: "spacer" }), h("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel"), done)));

  function draw() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean), [told, full] = check(picked);
    for (const { item, box, element, text } of rows) {
      element.hidden = words.length ? !words.every((word) => text.includes(word)) : item.rare && !listed.has(item.key);
      box.disabled = !box.checked && full(item.key);
    }
    for (const section of sections) section.hidden = [...section.querySelectorAll("label")].every((label) => label.hidden);
    const found = rows.filter(({ element }) => !element.hidden).length;
    done.disabled = !usual && picked.size === 0;
    note.className = told ? "said" : "sub";
    say(note, told || (words.length ? `${found} found` : found < rows.length ? `Search to see all ${rows.length}.` : rows.length ? "" : "There is nothing to choose yet."));
  }

  draw();
  document.body.append(dialog);
  dialog.showModal();
  search.focus();
  return new Promise((resolve) => dialog.addEventListener("close", () => { dialog.remove(); resolve(answer); }));
}

/** A check for at most so many. */
export const atMost = (most, text) => (picked) => [picked.size >= most ? text : "", () => picked.size >= most];
