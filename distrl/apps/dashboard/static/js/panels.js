// Below the curves of a run: its details in tabs. Each is loaded when it is first shown.
import { h, say } from "./dom.js";
import { remember, remembered } from "./address.js";
import { checkpointsPanel } from "./checkpoints.js";
import { configurationPanel } from "./configuration.js";
import { dataPanel } from "./data.js";
import { evaluationsPanel } from "./evaluations.js";
import { eventsPanel } from "./events.js";
import { filmsPanel } from "./films.js";
import { logPanel } from "./logs.js";
import { rolesPanel } from "./roles.js";

export function tabs(first) {
  const id = first.run.id;
  const badge = h("span", { class: "badge", hidden: true });
  const roles = rolesPanel(), checkpoints = checkpointsPanel(id), evaluations = evaluationsPanel(id), films = filmsPanel(id), data = dataPanel(id);
  const events = eventsPanel((count) => {
    badge.hidden = count === 0;
    say(badge, String(count));
    badge.setAttribute("aria-label", `${count} new bad`);
  });
  const log = logPanel(id);
  const all = [["roles", "Roles", roles], ["checkpoints", "Checkpoints", checkpoints], ["evaluations", "Evaluations", evaluations], ["films", "Films", films], ["data", "Data", data],
    ["configuration", "Configuration", configurationPanel(id)], ["events", "Events", events], ["logs", "Logs", log]];
  const usual = first.live ? "roles" : "configuration";
  const buttons = all.map(([key, text]) => h("button", { type: "button", role: "tab", id: `tab-${key}`, "aria-controls": `panel-${key}`,
    "aria-selected": "false", tabindex: -1, on: { click: () => open(key), keydown: (event) => moved(event, key) } }, text, key === "events" ? badge : null));
  const panels = all.map(([key, , panel]) => h("div", { role: "tabpanel", id: `panel-${key}`, "aria-labelledby": `tab-${key}`, hidden: true }, panel.element));
  const list = h("div", { class: "tabs", role: "tablist", "aria-label": "Details" }, buttons);
  const element = h("section", { class: "card details", "aria-label": "Details" }, h("h2", { class: "visually-hidden" }, "Details"),
    list, h("div", { class: "panels" }, panels));
  const done = {};

  function open(key) {
    remember("tab", key, usual);
    all.forEach(([name, , panel], at) => {
      const chosen = name === key;
      buttons[at].setAttribute("aria-selected", String(chosen));
      buttons[at].tabIndex = chosen ? 0 : -1;
      panels[at].hidden = !chosen;
      if (chosen) panel.open?.(); else panel.close?.();
    });
    reveal();
  }

  /** Moves the row of tabs, which may be wider than a phone, and not the page, to the tab that is open. */
  function reveal() {
    const [row, tab] = [list, buttons.find((button) => button.tabIndex === 0)].map((one) => one.getBoundingClientRect());
    list.scrollLeft += tab.left + tab.width / 2 - row.left - row.width / 2;
  }

  function moved(event, key) {
    const at = all.findIndex(([name]) => name === key);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const [name] = all[(next + all.length) % all.length];
    open(name);
    document.getElementById(`tab-${name}`).focus();
  }

  /** Calls `action` whenever `value` is another than before. */
  function whenever(name, value, action) {
    if (name in done && done[name] !== value) action();
    done[name] = value;
  }

  log.names(first.logs, first.first_log);
  const asked = remembered("tab");
  open(all.some(([key]) => key === asked) ? asked : usual);
  return {
    element,
    /** A link to a tab leads to it. */
    shown: () => {
      reveal();
      if (all.some(([key]) => key === asked)) element.scrollIntoView();
    },
    live: (live, run) => {
      roles.update(live, run);
      if (live) whenever("checkpoint", live.control.checkpoint.done, checkpoints.changed);
    },
    numbers: (snapshot) => whenever("evaluation", snapshot.evaluation_env_steps, () => { evaluations.changed(); films.changed(); }),
    events: (found) => events.update(found),
    /** Opens the log of a role. */
    showLog: (name) => {
      log.choose(name);
      open("logs");
      document.getElementById("tab-logs").focus();
    },
    described: (told) => {
      log.names(told.logs, told.first_log);
      for (const panel of [checkpoints, evaluations, films, data]) panel.changed();
    },
    leave: () => { for (const [, , panel] of all) { panel.close?.(); panel.leave?.(); } },
  };
}
