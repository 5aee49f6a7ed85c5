// Hands on a running job: pause, number of actors, checkpoint, evaluation, parameters, stop.
import { announce, h, say } from "./dom.js";
import { act, get } from "./api.js";

export function controls(session, run) {
  const said = h("span", { class: "said", role: "status", "aria-live": "polite" });
  let paused = false, target = null, settingsFor = null;

  async function ask(action, value = null) {
    try {
      const told = await act(run.id, action, value);
      said.className = "said";
      say(said, told);
    } catch (error) {
      said.className = "said bad";
      say(said, error.message);
      announce(error.message);
    }
  }

  const button = (text, action, kind = "") => h("button", { type: "button", class: kind, on: { click: action } }, text);
  const pause = button("Pause", () => ask(paused ? "resume" : "pause"));
  const number = h("input", { id: "actors", type: "number", min: 1, max: 10000, inputmode: "numeric", on: { change: () => scale(number.valueAsNumber) } });
  const stepper = h("div", { class: "stepper", role: "group", "aria-label": "Number of actors" }, h("label", { for: "actors" }, "Actors"),
    h("button", { type: "button", "aria-label": "One actor fewer", on: { click: () => scale(number.valueAsNumber - 1) } }, "−"), number,
    h("button", { type: "button", "aria-label": "One actor more", on: { click: () => scale(number.valueAsNumber + 1) } }, "+"));
  const stop = button("Stop …", async () => { if (await confirmed(run)) ask("stop"); }, "danger");
  const settings = h("details", { class: "settings", hidden: true }, h("summary", {}, "Change parameters"), h("div"));
  const element = h("div", { class: "controls", role: "group", "aria-label": "Control of the run", hidden: true },
    pause, stepper, button("Checkpoint now", () => ask("checkpoint")), button("Evaluate now", () => ask("evaluate")), stop, said, settings);

  function scale(actors) {
    if (!Number.isInteger(actors) || actors < 1) { number.value = target ?? 1; return; }
    target = actors;
    number.value = actors;
    ask("scale", actors);
  }

  async function loadSettings() {
    try {
      const found = (await get(`runs/${run.id}/settable`)).settings;
      settings.hidden = found.length === 0;
      settings.lastChild.replaceChildren(settingsForm(found, async (path, value) => { await ask("set", { path, value }); loadSettings(); }));
    } catch (error) {
      settings.hidden = true;
    }
  }

  function update(now, live) {
    const usable = session.right === "act" && now.state === "running" && live !== null && live.problem === null;
    element.hidden = !usable;
    if (!usable) return;
    paused = live.control.paused;
    say(pause, paused ? "Resume" : "Pause");
    pause.classList.toggle("primary", paused);
    const wanted = live.control.target_actors ?? live.roles.filter((role) => role.role === "actor").length;
    if (document.activeElement !== number && wanted !== target) { target = wanted; number.value = wanted; }
    stop.disabled = live.control.stop !== null;
    if (live.control.stop !== null) say(said, "stopping …");
    if (settingsFor !== now.run_id) { settingsFor = now.run_id; loadSettings(); }
  }
  return { element, update };
}

function settingsForm(settings, change) {
  return h("form", { on: { submit: (event) => event.preventDefault() } }, settings.map((setting) => {
    const id = `set-${setting.path}`;
    const input = setting.kind === "choice"
      ? h("select", { id }, setting.choices.map((choice) => h("option", { value: choice, selected: choice === setting.value }, choice)))
      : h("input", { id, type: "number", value: setting.value ?? "", step: setting.kind === "count" ? 1 : "any", min: setting.kind === "count" ? 0 : null });
    const value = () => (setting.kind === "choice" ? input.value : input.valueAsNumber);
    return h("div", { class: "row" }, h("label", { for: id, class: "mono" }, setting.path), input,
      h("button", { type: "button", class: "small", on: { click: () => { if (value() !== null && !Number.isNaN(value())) change(setting.path, value()); } } }, "Apply"),
      h("span", { class: "hint" }, setting.meaning));
  }));
}

function confirmed(run) {
  return new Promise((resolve) => {
    const end = (value) => { dialog.close(); dialog.remove(); resolve(value); };
    const dialog = h("dialog", { "aria-labelledby": "stop-title", on: { cancel: () => end(false) } }, h("h2", { id: "stop-title" }, `Stop ${run.name}?`),
      h("p", {}, "It saves a checkpoint and writes its summary. Later it can go on: distrl train --resume."),
      h("div", { class: "actions" }, h("button", { type: "button", on: { click: () => end(false) } }, "Keep it running"),
        h("button", { type: "button", class: "danger", on: { click: () => end(true) } }, "Stop the run")));
    document.body.append(dialog);
    dialog.showModal();
  });
}
