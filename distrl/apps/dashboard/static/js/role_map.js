// Every role as a cell whose colour is one of its numbers; the chosen one with its history, log and stacks.
import { h, say, select, svg } from "./dom.js";
import { remember, remembered } from "./address.js";
import { change, get } from "./api.js";
import { bytes, duration, percent, UNKNOWN, whole } from "./format.js";
import { stateWords } from "./states.js";

const MB = 1e6;
// Field of a heartbeat, its name, its value in words, and the words before the value in a sentence.
const MEASURES = [
  ["env_steps_per_s", "Speed", (value) => `${whole(value)} steps/s`, ""],
  ["blocked_share", "Waiting", percent, "waiting "],
  ["behind", "Versions behind", (value) => whole(Math.max(value, 0)), "versions behind: "],
  ["cpu_share", "Processor", (value) => `${percent(value)} of a core`, ""],
  ["rss_mb", "Memory", (value) => bytes(MB * value), ""],
  ["last_step_age_s", "Age of the last step", duration, "age of the last step: "],
];
const HISTORY = ["env_steps_per_s", "blocked_share", "cpu_share", "rss_mb"];
const EVERY_MS = 2000;
const SHADES = 10;

export class RoleMap {
  constructor(session, run, openLog) {
    this.session = session;
    this.run = run;
    this.openLog = openLog;
    this.measure = (MEASURES.find(([key]) => key === remembered("map")) ?? MEASURES[0])[0];
    this.asked = remembered("role"); // opened as soon as it is there
    this.cells = new Map(); // key -> button
    this.chosen = null;
    this.legend = h("span", { class: "muted" });
    this.others = h("div", { class: "others" });
    this.grid = h("div", { class: "cells", role: "group", "aria-label": "Actors: arrow keys move, Enter chooses", on: { keydown: (event) => this.moved(event) } });
    this.detail = h("div", { class: "role", role: "region", "aria-label": "The chosen role", hidden: true });
    const choice = select("Colour", MEASURES.map(([key, text]) => [key, text]), this.measure, (value) => { this.measure = value; remember("map", value, MEASURES[0][0]); this.paint(); });
    this.element = h("div", { class: "map" }, h("div", { class: "toolbar" }, h("h3", {}, "Roles"), choice, this.legend), this.others, this.grid, this.detail);
    this.roles = [];
  }

  update(roles) {
    this.roles = roles;
    const keys = new Set(roles.map(keyOf));
    for (const [key, cell] of this.cells) if (!keys.has(key)) { cell.remove(); this.cells.delete(key); }
    roles.forEach((role) => {
      const key = keyOf(role);
      if (!this.cells.has(key)) this.cells.set(key, this.cell(key));
    });
    const cells = (actors) => roles.filter((role) => (role.role === "actor") === actors).map((role) => this.cells.get(keyOf(role)));
    for (const [place, wanted] of [[this.grid, cells(true)], [this.others, cells(false)]]) {
      if (wanted.length !== place.children.length || wanted.some((cell, at) => cell !== place.children[at])) place.replaceChildren(...wanted);
    }
    const actors = [...this.grid.children];
    if (actors.length && !actors.some((cell) => cell.tabIndex === 0)) actors[0].tabIndex = 0;
    this.paint();
    if (this.cells.has(this.asked)) this.choose(this.asked);
    this.describe();
  }

  cell(key) {
    const actor = key.startsWith("actor:");
    return h("button", { type: "button", tabindex: actor ? -1 : 0, "aria-pressed": "false",
      on: { click: () => this.choose(key), focus: actor ? () => this.reached(key) : () => {} } }, actor ? null : key.replace(":0", ""));
  }

  /** One cell can be reached with Tab, and the arrows go on from it. */
  reached(key) {
    for (const cell of this.grid.children) cell.tabIndex = cell === this.cells.get(key) ? 0 : -1;
  }

  moved(event) {
    const cells = [...this.grid.children], at = cells.indexOf(document.activeElement);
    if (at < 0) return;
    const wide = Math.max(1, cells.findIndex((cell) => cell.offsetTop > cells[0].offsetTop));
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + wide, ArrowUp: at - wide, Home: 0, End: cells.length - 1 }[event.key];
    if (next === undefined || !cells[next]) return;
    event.preventDefault();
    cells[next].focus();
  }

  paint() {
    const [key, , words, before] = MEASURES.find(([name]) => name === this.measure);
    const known = this.roles.filter((role) => !role.silent && role.role === "actor").map((role) => role[key]);
    const [low, high] = [Math.min(...known), Math.max(...known)];
    for (const role of this.roles) {
      const cell = this.cells.get(keyOf(role)), actor = role.role === "actor";
      const shade = high > low ? Math.round((SHADES - 1) * (role[key] - low) / (high - low)) : SHADES >> 1;
      const look = role.silent ? "silent" : actor ? `shade-${Math.min(Math.max(shade, 0), SHADES - 1)}` : "small";
      if (cell.className !== look) cell.className = look;
      const text = `${role.role} ${role.id} on ${role.host}: ${role.silent || !actor ? stateWords(role) : `${before}${words(role[key])}`}`;
      if (cell.title !== text) { cell.title = text; cell.setAttribute("aria-label", text); }
    }
    say(this.legend, known.length ? (high > low ? `light ${words(low)}, dark ${words(high)}` : `all ${words(low)}`) : "");
  }

  /** Shows the role, or no role any more if it is the shown one. */
  choose(key) {
    const again = key === this.chosen;
    this.close();
    this.asked = null;
    remember("role", again ? "" : key);
    if (again) return;
    this.chosen = key;
    this.cells.get(key).setAttribute("aria-pressed", "true");
    this.detail.hidden = false;
    const [role, id] = key.split(":"), { log } = this.roles.find((one) => keyOf(one) === key); // also when it has ended
    this.title = h("h3");
    this.state = h("p", { class: "muted" });
    this.lines = HISTORY.map((name) => ({ name, figure: h("figure", {}, h("figcaption")) }));
    this.stacks = h("pre", { class: "log", tabindex: 0, hidden: true, "aria-label": "Stacks" });
    this.note = h("span", { class: "said" });
    const ask = h("button", { type: "button", class: "small", disabled: this.session.right !== "act", on: { click: () => this.askStacks(role, id, ask) } }, "Stacks");
    this.detail.replaceChildren(h("div", { class: "toolbar" }, this.title, h("span", { class: "spacer" }),
      h("button", { type: "button", class: "small", on: { click: () => this.openLog(log) } }, "Log"), ask,
      h("button", { type: "button", class: "small quiet", "aria-label": "Close", on: { click: () => { this.cells.get(key)?.focus(); this.choose(key); } } }, "×"), this.note),
    this.state, h("div", { class: "histories" }, this.lines.map(({ figure }) => figure)), this.stacks);
    this.describe();
    this.load();
  }

  describe() {
    if (this.chosen === null) return;
    const role = this.roles.find((one) => keyOf(one) === this.chosen);
    say(this.title, this.chosen.replace(":", " "));
    say(this.state, role ? `${stateWords(role)} · ${role.host} (${role.pid}) · ${MEASURES.map(([key, , words, before]) => before + words(role[key])).join(" · ")} · ${whole(role.restarts)} restarts` : "It has ended.");
  }

  async load() {
    const key = this.chosen, leaving = (this.leaving = new AbortController());
    try {
      const told = await get(`runs/${this.run}/roles/${key.replace(":", "/")}/history`, {}, leaving.signal);
      for (const { name, figure } of this.lines) figure.replaceChildren(...history(name, told.at, told[name]));
      say(this.note, "");
    } catch (error) {
      if (leaving.signal.aborted) return;
      say(this.note, error.message);
    }
    if (!leaving.signal.aborted) this.timer = setTimeout(() => this.load(), EVERY_MS);
  }

  async askStacks(role, id, button) {
    button.disabled = true;
    say(this.note, "waiting for its heartbeat …");
    try {
      const { stacks } = await change(`runs/${this.run}/roles/${role}/${id}/stacks`, {});
      this.stacks.hidden = false;
      say(this.stacks, stacks);
      say(this.note, "");
    } catch (error) {
      say(this.note, error.message);
    }
    button.disabled = false;
  }

  close() {
    this.leave();
    this.cells.get(this.chosen)?.setAttribute("aria-pressed", "false");
    this.chosen = null;
    this.detail.hidden = true;
  }

  leave() {
    this.leaving?.abort();
    clearTimeout(this.timer);
  }
}

const keyOf = (role) => `${role.role}:${role.id}`;

/** A line over the last minutes, with its newest value in words. */
function history(name, at, values) {
  const [, title, words] = MEASURES.find(([key]) => key === name);
  const newest = values.length ? words(values[values.length - 1]) : UNKNOWN;
  const high = Math.max(...values, 1e-9), begin = at[0], length = Math.max(at[at.length - 1] - begin, 1);
  const points = values.map((value, index) => `${(100 * (at[index] - begin)) / length},${29 - (28 * value) / high}`).join(" ");
  const line = svg("svg", { viewBox: "0 0 100 30", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("polyline", { points }));
  return [line, h("figcaption", {}, `${title}: ${newest}`, h("small", {}, values.length > 1 ? ` · ${duration(length)}, at most ${words(high)}` : ""))];
}
