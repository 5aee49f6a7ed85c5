// The configuration of a run: every value with its origin, searched, and copied.
import { h, say } from "./dom.js";
import { get } from "./api.js";
import { remember, remembered } from "./address.js";
import { copyButton } from "./copy.js";
import { counted } from "./format.js";
import { hasAll, marked, wordsOf } from "./highlight.js";

export function configurationPanel(id) {
  const body = h("tbody"), none = h("p", { class: "empty", hidden: true }), count = h("span", { class: "muted", role: "status" });
  let values = null;
  const filter = h("input", { type: "search", placeholder: "Search", "aria-label": "Search the configuration", value: remembered("config"), on: { input: draw } });
  const given = h("input", { type: "checkbox", checked: remembered("changed") === "1", on: { change: draw } });

  function draw() {
    remember("config", filter.value);
    remember("changed", given.checked ? "1" : "");
    if (!values) return;
    const words = wordsOf(filter.value);
    const shown = values.filter((value) => (!given.checked || isGiven(value)) && hasAll(`${value.path} ${value.text} ${value.origin}`, words));
    body.replaceChildren(...shown.map((value) => row(value, words)));
    none.hidden = shown.length > 0;
    say(none, "No setting matches the search.");
    say(count, words.length || given.checked ? `${shown.length} of ${counted(values.length, "setting")}` : "");
  }

  function row({ path, text, origin, ...value }, words) {
    const key = h("th", { scope: "row" }, marked(path, words)), shown = h("td", { class: "value" }, marked(text, words));
    return h("tr", { class: isGiven({ origin, ...value }) ? "given" : "" }, key, shown, h("td", { class: "origin" }, marked(origin, words)),
      h("td", { class: "tools" }, copyButton(`Copy the path ${path}`, () => path, () => key, "Path"), copyButton(`Copy the value of ${path}`, () => text, () => shown, "Value")));
  }

  async function open() {
    if (values) return;
    try { values = (await get(`runs/${id}/config`)).values; draw(); } catch (error) { none.hidden = false; say(none, error.message); }
  }
  const element = h("div", {}, h("div", { class: "toolbar" }, filter, h("label", { class: "field" }, given, "Only changed settings"), count),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Configuration" }, h("table", { class: "keys" }, h("caption", { class: "visually-hidden" }, "Configuration"),
      h("thead", {}, h("tr", {}, ["Key", "Value", "From", "Copy"].map((text) => h("th", { scope: "col" }, text)))), body)), none);
  return { element, open };
}

const isGiven = (value) => value.origin !== "" && value.origin !== "default";
