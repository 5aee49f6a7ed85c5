// A role's log, followed while it is looked at; the page keeps its end.
import { h, say } from "./dom.js";
import { get } from "./api.js";

const EVERY_MS = 1500;
const MOST = 200000; // characters

export function logPanel(id) {
  const choice = h("select", { "aria-label": "Role", on: { change: () => begin() } });
  const follow = h("input", { type: "checkbox", checked: true });
  const text = h("pre", { class: "log", tabindex: 0, "aria-label": "Log" });
  let timer = 0, after = null, turn = 0;

  async function begin() {
    turn += 1;
    after = null;
    text.textContent = "";
    clearTimeout(timer);
    if (choice.value) await read(turn);
    else say(text, "No role has written a log yet.");
  }

  async function read(mine) {
    try {
      const piece = await get(`runs/${id}/logs/${encodeURIComponent(choice.value)}`, after === null ? {} : { after });
      if (mine !== turn) return;
      if (piece.text) {
        text.textContent = (text.textContent + piece.text).slice(-MOST);
        if (follow.checked) text.scrollTop = text.scrollHeight;
      } else if (after === null) say(text, "It is empty.");
      after = piece.after;
    } catch (error) {
      if (mine === turn) text.textContent = error.message;
    }
    if (mine === turn) timer = setTimeout(() => (follow.checked && document.visibilityState === "visible" ? read(mine) : wait(mine)), EVERY_MS);
  }

  const wait = (mine) => { if (mine === turn) timer = setTimeout(() => (follow.checked ? read(mine) : wait(mine)), EVERY_MS); };
  return {
    element: h("div", {}, h("div", { class: "toolbar" }, h("label", { class: "field" }, "Log of", choice), h("label", { class: "field" }, follow, "Follow")), text),
    names: (names) => {
      const chosen = choice.value;
      choice.replaceChildren(...names.map((name) => h("option", { value: name, selected: name === chosen }, name)));
    },
    open: begin,
    close: () => { turn += 1; clearTimeout(timer); },
  };
}
