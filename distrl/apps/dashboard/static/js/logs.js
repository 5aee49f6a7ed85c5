// A role's log: followed while it is looked at, or searched by the server. The page keeps its end.
import { h, say, select, settled } from "./dom.js";
import { get } from "./api.js";
import { remember, remembered } from "./address.js";
import { bytes, counted, whole } from "./format.js";
import { marked, wordsOf } from "./highlight.js";

const EVERY_MS = 1500;
const MOST = 4000; // lines
const SEARCH_MS = 300;
const LEVELS = ["debug", "info", "warning", "error"];
const LEAST = [["debug", "all levels"], ["info", "info and above"], ["warning", "warnings and errors"], ["error", "errors only"]];

export function logPanel(id) {
  const choice = h("select", { "aria-label": "Role", on: { change: () => { remember("log", choice.value); begin(); } } });
  const follow = h("input", { type: "checkbox", checked: true });
  const words = h("input", { type: "search", placeholder: "Search this log", "aria-label": "Search this log", value: remembered("find"), on: { input: settled(SEARCH_MS, () => { remember("find", words.value); begin(); }) } });
  const text = h("pre", { class: "log", tabindex: 0, role: "region", "aria-label": "Log" });
  const found = h("p", { class: "found muted", role: "status", hidden: true });
  const download = h("a", { class: "button small", download: "" }, "Download");
  let least = LEVELS.includes(remembered("level")) ? remembered("level") : "debug";
  const level = select("Level", LEAST, least, (value) => { least = value; remember("level", value, "debug"); if (words.value.trim()) begin(); else hide(); });
  let timer = 0, after = null, turn = 0, known = "", first = "";

  const address = () => `runs/${id}/logs/${encodeURIComponent(choice.value)}`;
  const visible = (line) => LEVELS.indexOf(line.className || "info") >= LEVELS.indexOf(least);
  const hide = () => { for (const line of text.children) line.hidden = !visible(line); };

  function begin() {
    turn += 1;
    [after, known] = [null, ""];
    text.replaceChildren();
    clearTimeout(timer);
    found.hidden = true;
    download.hidden = !choice.value;
    if (!choice.value) return say(text, "No role has written a log yet.");
    download.href = `/api/${address()}/whole`;
    return words.value.trim() ? find(turn) : read(turn);
  }

  const drawn = (lines, marks = []) => lines.map(([kind, line]) => {
    known = kind || known;
    const element = h("span", { class: known || null }, marked(`${line}\n`, marks));
    element.hidden = !visible(element);
    return element;
  });

  async function find(mine) {
    const wanted = words.value.trim();
    try {
      const told = await get(`${address()}/matches`, { words: wanted, level: least });
      if (mine !== turn) return;
      const shown = told.lines.length < told.found ? `, the newest ${whole(told.lines.length)} are shown` : "";
      const scanned = told.scanned_bytes < told.size_bytes ? ` in the last ${bytes(told.scanned_bytes)} of ${bytes(told.size_bytes)}` : "";
      text.replaceChildren(...drawn(told.lines, wordsOf(wanted)));
      say(found, `${counted(told.found, "matching line")}${scanned}${shown}`);
      found.hidden = false;
    } catch (error) {
      if (mine === turn) say(text, error.message);
    }
  }

  async function read(mine) {
    try {
      const piece = await get(address(), after === null ? {} : { after });
      if (mine !== turn) return;
      if (piece.lines.length) {
        if (after === null) text.replaceChildren();
        text.append(...drawn(piece.lines));
        while (text.children.length > MOST) text.firstChild.remove();
        if (follow.checked) text.scrollTop = text.scrollHeight;
      } else if (after === null) say(text, "It is empty.");
      after = piece.lines.length || after !== null ? piece.after : null;
    } catch (error) {
      if (mine === turn) say(text, error.message);
    }
    wait(mine);
  }

  function wait(mine) {
    if (mine !== turn) return;
    timer = setTimeout(() => (follow.checked && document.visibilityState === "visible" ? read(mine) : wait(mine)), EVERY_MS);
  }

  return {
    element: h("div", {}, h("div", { class: "toolbar" }, h("label", { class: "field" }, "Log of", choice), level, words, h("label", { class: "field" }, follow, "Follow"), download), found, text),
    /** The names of the logs, and the one that matters. */
    names: (names, matters) => {
      const asked = choice.value && choice.value !== first ? choice.value : remembered("log"), chosen = names.includes(asked) ? asked : matters;
      first = matters;
      choice.replaceChildren(...names.map((name) => h("option", { value: name, selected: name === chosen }, name)));
    },
    choose: (name) => { if ([...choice.options].some((option) => option.value === name)) choice.value = name; },
    open: begin,
    close: () => { turn += 1; clearTimeout(timer); },
  };
}
