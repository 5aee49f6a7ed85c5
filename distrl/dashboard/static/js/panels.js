// Below the curves of a run: roles, configuration, events, logs, film. Each is loaded when it is first shown.
import { h, say } from "./dom.js";
import { get } from "./api.js";
import { bytes, duration, percent, UNKNOWN, whole } from "./format.js";
import { stateWords } from "./states.js";
import { logPanel } from "./logs.js";

const ROLES = [["Role"], ["Host"], ["State"], ["Steps/s", "n"], ["Steps", "n"], ["Weights", "n"], ["Behind", "n"], ["Waiting"],
  ["Last step", "n"], ["Last seen", "n"], ["Memory", "n"], ["Restarts", "n"]];

export function tabs(first) {
  const id = first.run.id;
  const roles = rolesPanel(), configuration = configurationPanel(id), events = eventsPanel(), log = logPanel(id), film = filmPanel(id);
  const all = [["roles", "Roles", roles], ["configuration", "Configuration", configuration], ["events", "Events", events], ["logs", "Logs", log], ["film", "Film", film]];
  const buttons = all.map(([key, text]) => h("button", { type: "button", role: "tab", id: `tab-${key}`, "aria-controls": `panel-${key}`,
    "aria-selected": "false", tabindex: -1, on: { click: () => open(key), keydown: (event) => moved(event, key) } }, text));
  const panels = all.map(([key, , panel]) => h("div", { role: "tabpanel", id: `panel-${key}`, "aria-labelledby": `tab-${key}`, tabindex: 0, hidden: true }, panel.element));
  const element = h("section", { class: "card", "aria-label": "Details" }, h("div", { class: "tabs", role: "tablist" }, buttons), h("div", { class: "panels" }, panels));

  function open(key) {
    all.forEach(([name, , panel], at) => {
      const chosen = name === key;
      buttons[at].setAttribute("aria-selected", String(chosen));
      buttons[at].tabIndex = chosen ? 0 : -1;
      panels[at].hidden = !chosen;
      if (chosen) panel.open?.(); else panel.close?.();
    });
  }

  function moved(event, key) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const shown = all.filter((_, at) => !buttons[at].hidden), at = shown.findIndex(([name]) => name === key);
    const next = shown[(at + step + shown.length) % shown.length][0];
    open(next);
    document.getElementById(`tab-${next}`).focus();
  }

  open(first.live ? "roles" : "configuration");
  return {
    element,
    live: (live, run) => roles.update(live, run),
    events: (found) => events.update(found),
    described: (told) => { log.names(told.logs); buttons[4].hidden = !told.film; if (!told.live) get(`runs/${id}/events`).then((found) => events.update(found.events)); },
    leave: () => log.close(),
  };
}

function rolesPanel() {
  const body = h("tbody");
  const none = h("p", { class: "empty" }, "The run has ended: it has no roles any more.");
  const table = h("div", { class: "scroll" }, h("table", {}, h("caption", { class: "visually-hidden" }, "Roles of the run"),
    h("thead", {}, h("tr", {}, ROLES.map(([text, kind]) => h("th", { scope: "col", class: kind }, text)))), body));
  const rows = new Map();

  function update(live, run) {
    const roles = live?.roles ?? [];
    none.hidden = roles.length > 0;
    table.hidden = roles.length === 0;
    say(none, run.state === "running" ? "No role has reported yet." : "The run is not running: it has no roles.");
    const wanted = roles.map((role) => {
      const key = `${role.role} ${role.id}`;
      if (!rows.has(key)) rows.set(key, roleRow(key));
      rows.get(key).update(role);
      return rows.get(key).element;
    });
    if (wanted.length !== body.children.length || wanted.some((row, at) => row !== body.children[at])) body.replaceChildren(...wanted);
  }
  return { element: h("div", {}, table, none), update };
}

function roleRow(key) {
  const cells = ROLES.slice(1).map(([, kind]) => h("td", { class: kind }));
  const fill = h("i", { class: "waiting" }), share = h("span");
  cells[6].append(h("span", { class: "meter", "aria-hidden": "true" }, fill), share);
  const update = (role) => {
    const actor = role.role === "actor";
    const texts = [`${role.host} (${role.pid})`, stateWords(role), role.silent ? UNKNOWN : whole(role.env_steps_per_s), whole(role.env_steps), whole(role.weights_version),
      actor ? whole(Math.max(role.behind, 0)) : "", null, duration(role.last_step_age_s), duration(role.seen_s),
      `${bytes(1e6 * role.rss_mb)}`, whole(role.restarts)];
    texts.forEach((text, at) => { if (text !== null) say(cells[at], text); });
    cells[1].classList.toggle("late", role.silent);
    cells[9].classList.toggle("late", role.silent);
    fill.parentElement.hidden = !actor;
    fill.style.width = `${100 * Math.min(role.blocked_share, 1)}%`;
    say(share, actor ? percent(role.blocked_share) : "");
  };
  return { element: h("tr", {}, h("th", { scope: "row" }, key), cells), update };
}

function configurationPanel(id) {
  const body = h("tbody");
  let values = null;
  const filter = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter the configuration", on: { input: draw } });
  const given = h("input", { type: "checkbox", on: { change: draw } });
  const none = h("p", { class: "empty", hidden: true });

  function draw() {
    const text = filter.value.toLowerCase();
    const shown = (values ?? []).filter((value) => (!given.checked || isGiven(value)) && `${value.path} ${value.text} ${value.origin}`.toLowerCase().includes(text));
    body.replaceChildren(...shown.map((value) => h("tr", { class: isGiven(value) ? "given" : "" }, h("th", { scope: "row" }, value.path),
      h("td", { class: "value" }, value.text), h("td", { class: "origin" }, value.origin))));
    none.hidden = shown.length > 0;
    if (values) say(none, "No setting matches the filter.");
  }

  async function open() {
    if (values) return;
    try { values = (await get(`runs/${id}/config`)).values; draw(); } catch (error) { none.hidden = false; say(none, error.message); }
  }
  const element = h("div", {}, h("div", { class: "toolbar" }, filter, h("label", { class: "field" }, given, "Only changed settings")),
    h("div", { class: "scroll" }, h("table", { class: "keys" }, h("caption", { class: "visually-hidden" }, "Configuration"),
      h("thead", {}, h("tr", {}, ["Key", "Value", "From"].map((text) => h("th", { scope: "col" }, text)))), body)), none);
  return { element, open };
}

const isGiven = (value) => value.origin !== "" && value.origin !== "default";

function eventsPanel() {
  const list = h("ol", { class: "events" });
  const none = h("p", { class: "empty" }, "No events yet.");
  const update = (events) => {
    none.hidden = events.length > 0;
    list.hidden = events.length === 0;
    list.replaceChildren(...[...events].reverse().map((event) => h("li", {}, h("time", {}, event.time), h("span", {}, event.text))));
  };
  update([]);
  return { element: h("div", {}, list, none), update };
}

function filmPanel(id) {
  const place = h("div");
  const open = () => {
    if (place.firstChild) return;
    const note = h("p", { class: "empty" }, h("a", { href: `/api/runs/${id}/video`, download: "" }, "Download the film"));
    const video = h("video", { src: `/api/runs/${id}/video`, controls: true, loop: true, "aria-label": "Film of an evaluation",
      on: { error: () => { video.hidden = true; note.prepend("This browser cannot play the film. "); } } });
    place.append(video, note);
  };
  return { element: place, open };
}
