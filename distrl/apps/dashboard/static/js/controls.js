// Controls of a live run: pause, number of actors, checkpoint, evaluation, parameters, stop.
import { announce, h, say } from "./dom.js";
import { act, get } from "./api.js";
import { whole } from "./format.js";

const SETTLED_MS = 3000;
const MOST_AT_ONCE = 8; // a larger increase must be confirmed

export function controls(session, run) {
  const said = h("span", { class: "said", role: "status", "aria-live": "polite" });
  let asked = {}, demands = null; // errand -> number of requests before ours
  let paused = false, target = null, scaledAt = -Infinity, settingsFor = null, form = null;

  function report(text) {
    said.className = "said";
    say(said, text);
  }

  function refuse(text) {
    said.className = "said bad";
    say(said, text);
    announce(text);
  }

  async function ask(action, value = null) {
    report("sending …");
    try {
      report(await act(run.id, action, value));
      return true;
    } catch (error) {
      refuse(error.message);
      return false;
    }
  }

  /** Asks for an errand of the learner or evaluator; `update` says when it is done. */
  async function send(action, errand) {
    const before = demands[errand].asked;
    if (await ask(action)) asked[errand] = before;
  }

  function sayDone() {
    for (const [errand, done] of [["checkpoint", "checkpoint written"], ["evaluation", "evaluation done"]]) {
      const demand = demands[errand];
      if (!(errand in asked) || demand.asked <= asked[errand] || demand.done < demand.asked) continue;
      delete asked[errand];
      if (demand.refused) refuse(demand.refused);
      else report(`${done}, ${new Date().toLocaleTimeString("sv-SE")}`);
    }
  }

  const button = (text, action, kind = "") => h("button", { type: "button", class: kind, on: { click: action } }, text);
  const pause = button("Pause", () => ask(paused ? "resume" : "pause"));
  const number = h("input", { id: "actors", type: "number", min: 1, max: 10000, inputmode: "numeric", on: { change: () => scale(number.valueAsNumber), focus: () => number.select() } });
  const stepper = h("div", { class: "stepper", role: "group", "aria-label": "Number of actors" }, h("label", { for: "actors" }, "Actors"),
    h("button", { type: "button", "aria-label": "One actor fewer", on: { click: () => scale(number.valueAsNumber - 1) } }, "−"), number,
    h("button", { type: "button", "aria-label": "One actor more", on: { click: () => scale(number.valueAsNumber + 1) } }, "+"));
  const wish = h("span", { class: "sub" });
  const stop = button("Stop …", async () => {
    const text = "It saves a checkpoint and writes its summary. You can resume it later: distrl train --resume.";
    if (await confirmed(`Stop ${run.name}?`, text, "Keep it running", "Stop the run", "danger")) ask("stop");
  }, "danger");
  const settings = h("details", { class: "settings", hidden: true }, h("summary", {}, "Change parameters"), h("div"));
  const element = h("div", { class: "controls", role: "group", "aria-label": "Control of the run", hidden: true },
    pause, stepper, wish, button("Checkpoint now", () => send("checkpoint", "checkpoint")), button("Evaluate now", () => send("evaluate", "evaluation")), stop, said, settings);

  async function scale(actors) {
    const before = target ?? 1, typed = number.value;
    number.value = before;
    if (!Number.isInteger(actors) || actors < 1) return refuse(`${Number.isNaN(actors) ? typed || "nothing" : actors} is not a number of actors; enter 1 or more`);
    if (actors === before) return;
    const more = actors - before, text = `Each actor is a process, on this machine unless the run uses Ray. ${whole(before)} are running now.`;
    if (more > MOST_AT_ONCE && !(await confirmed(`Start ${whole(more)} more actors?`, text, "Cancel", `Scale to ${whole(actors)}`, "primary"))) return;
    target = actors;
    number.value = actors;
    scaledAt = performance.now();
    if (!(await ask("scale", actors))) [target, number.value, scaledAt] = [before, before, -Infinity];
  }

  async function loadSettings() {
    try {
      const found = (await get(`runs/${run.id}/settable`)).settings;
      settings.hidden = found.length === 0;
      form ??= settingsForm(found, (path, value) => ask("set", { path, value }), refuse);
      if (!form.element.parentElement) settings.lastChild.append(form.element);
      form.update(found);
    } catch {
      settings.hidden = true;
      settingsFor = null; // asked again at the next update
    }
  }

  function update(now, live) {
    const usable = session.right === "act" && now.state === "running" && live !== null && live.problem === null;
    element.hidden = !usable;
    if (!usable) return;
    demands = live.control;
    sayDone();
    paused = live.control.paused;
    say(pause, paused ? "Resume" : "Pause");
    pause.classList.toggle("primary", paused);
    const { actors = null, actors_wanted = null, autoscales = false, wanted_because = "" } = live.supervisor ?? {};
    say(wish, actors_wanted === null ? "" : autoscales ? "chosen by the run" : `${whole(actors_wanted)} recommended`);
    wish.title = wanted_because;
    const wanted = actors ?? live.control.target_actors ?? live.roles.filter((role) => role.role === "actor").length;
    const settled = performance.now() - scaledAt > SETTLED_MS; // the run has received the request by then
    if (settled && document.activeElement !== number && wanted !== target) { target = wanted; number.value = wanted; }
    stop.disabled = live.control.stop !== null;
    if (live.control.stop !== null) say(said, "stopping …");
    const held = `${now.run_id} ${JSON.stringify(live.control.settings)}`; // changed by this page, another page or the command line
    if (settingsFor !== held) { settingsFor = held; loadSettings(); }
  }
  return { element, update };
}

function settingsForm(settings, change, refuse) {
  const rows = new Map();
  const element = h("div", { class: "fields" }, settings.map((setting) => {
    const id = `set-${setting.path}`;
    const choices = setting.kind === "switch" ? ["true", "false"] : setting.kind === "choice" ? setting.choices : null;
    const isText = setting.kind === "text", isWhole = setting.kind === "count" || setting.kind === "whole";
    const input = choices ? h("select", { id }, choices.map((choice) => h("option", { value: choice }, choice)))
      : isText ? h("input", { id, type: "text" })
      : h("input", { id, type: "number", step: isWhole ? 1 : "any", min: setting.kind === "count" ? 0 : null });
    const row = { input, shown: input.value };
    rows.set(setting.path, row);
    const apply = (event) => {
      event.preventDefault();
      const value = setting.kind === "switch" ? input.value === "true" : choices || isText ? input.value : input.valueAsNumber;
      if (Number.isNaN(value)) {
        input.value = row.shown;
        return refuse(`${setting.path}: enter a number`);
      }
      row.shown = input.value; // later changes by others may replace it
      change(setting.path, value);
    };
    return h("form", { class: "row", novalidate: true, on: { submit: apply } }, h("label", { for: id, class: "mono" }, setting.path), input,
      h("button", { type: "submit", class: "small" }, "Apply"),
      h("span", { class: "hint" }, setting.meaning));
  }));

  /** Shows the current values, except where the user has typed another one and not yet applied it. */
  function update(found) {
    for (const { path, value } of found) {
      const row = rows.get(path);
      if (!row || row.input.value !== row.shown) continue;
      row.input.value = value ?? "";
      row.shown = row.input.value;
    }
  }
  return { element, update };
}

function confirmed(question, text, no, yes, kind) {
  return new Promise((resolve) => {
    const end = (value) => { dialog.close(); dialog.remove(); resolve(value); };
    const dialog = h("dialog", { "aria-labelledby": "question", on: { cancel: () => end(false) } }, h("h2", { id: "question" }, question),
      h("p", {}, text),
      h("div", { class: "actions" }, h("button", { type: "button", on: { click: () => end(false) } }, no),
        h("button", { type: "button", class: kind, on: { click: () => end(true) } }, yes)));
    document.body.append(dialog);
    dialog.showModal();
  });
}
