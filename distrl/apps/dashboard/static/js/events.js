// The events of a run, by severity and words. `unseen` is told how many bad ones came since the panel was last open.
import { h, say, select } from "./dom.js";
import { remember, remembered } from "./address.js";
import { ago } from "./format.js";
import { hasAll, marked, wordsOf } from "./highlight.js";

const LEAST = [["info", "all"], ["warning", "warnings and bad"], ["bad", "bad only"]];
const ORDER = LEAST.map(([name]) => name);
const AGES_MS = 30000;

export function eventsPanel(unseen) {
  const list = h("ol", { class: "events" }), place = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Events, newest first" }, list);
  const none = h("p", { class: "empty" }), count = h("span", { class: "muted", role: "status" });
  const filter = h("input", { type: "search", placeholder: "Search", "aria-label": "Search the events", value: remembered("events"), on: { input: () => { remember("events", filter.value); draw(); } } });
  let least = ORDER.includes(remembered("severity")) ? remembered("severity") : "info", all = [], seen = 0, isOpen = false;
  const severity = select("Show", LEAST, least, (value) => { least = value; remember("severity", value, "info"); draw(); });
  const ages = setInterval(() => { if (isOpen) for (const [element, event] of times) say(element, ago(event.at)); }, AGES_MS);
  let times = [];

  function draw() {
    const words = wordsOf(filter.value);
    const shown = all.filter((event) => ORDER.indexOf(event.severity) >= ORDER.indexOf(least) && hasAll(event.text, words));
    times = [];
    none.hidden = shown.length > 0;
    place.hidden = shown.length === 0;
    say(none, all.length ? "No event matches." : "No events yet.");
    say(count, shown.length === all.length ? "" : `${shown.length} of ${all.length} events`);
    list.replaceChildren(...shown.reverse().map((event) => {
      const age = h("span", { class: "age" }, event.at ? ago(event.at) : "");
      if (event.at) times.push([age, event]);
      return h("li", { class: event.severity }, h("time", { datetime: event.at ? new Date(1000 * event.at).toISOString() : null }, event.time, age),
        h("span", { class: "severity" }, event.severity === "info" ? "" : event.severity), h("span", {}, marked(event.text, words)));
    }));
  }

  function showCount() {
    const bad = all.filter((event) => event.severity === "bad").length;
    if (isOpen) seen = bad;
    unseen(Math.max(bad - seen, 0));
  }
  draw();
  return {
    element: h("div", {}, h("div", { class: "toolbar" }, severity, filter, count), place, none),
    update: (events) => { all = events; draw(); showCount(); },
    open: () => { isOpen = true; draw(); showCount(); },
    close: () => { isOpen = false; },
    leave: () => clearInterval(ages),
  };
}
