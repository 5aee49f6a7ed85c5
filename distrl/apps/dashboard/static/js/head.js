// The head of a run's page: one sentence, its evidence, and the step that follows. The server words it.
import { announce, h, say } from "./dom.js";
import { act } from "./api.js";
import { command } from "./copy.js";
import { percent } from "./format.js";

export function head(session, id) {
  const sentence = h("p", { class: "sentence" }), details = h("ul", { class: "evidence" });
  const bar = h("i"), track = h("div", { class: "progress", role: "progressbar", "aria-label": "Progress to the goal", "aria-valuemin": 0, "aria-valuemax": 100, hidden: true }, bar);
  const said = h("span", { class: "said", role: "status" });
  const button = h("button", { type: "button", class: "small primary", hidden: true, on: { click: () => take() } });
  const steps = h("div", { class: "steps" }, button, said);
  const place = h("div", { hidden: true }), log = h("div", { hidden: true });
  const element = h("section", { class: "headline", "aria-label": "State of the run" }, sentence, track, details, steps, place, log);
  let step = null, state = null, shown = {};

  async function take() {
    const { action, value } = step;
    button.disabled = true;
    say(said, "sending …");
    said.classList.remove("bad");
    try {
      say(said, await act(id, action, value));
    } catch (error) {
      said.classList.add("bad");
      say(said, error.message);
    }
    button.disabled = false;
  }

  const changed = (name, value) => {
    const text = JSON.stringify(value);
    const differs = shown[name] !== text;
    shown[name] = text;
    return differs;
  };

  function drawLog(role, lines) {
    log.hidden = !lines.length;
    const pre = h("pre", { class: "log short", tabindex: 0, role: "region", "aria-label": `Last lines of the log of ${role}` }, lines.map(({ level, text }) => h("span", { class: level }, `${text}\n`)));
    log.replaceChildren(h("h2", {}, `Last lines of the log of ${role}`), pre);
    requestAnimationFrame(toEnd);
  }

  /** Scrolls to the last line, which has the error; only what is in the page can be scrolled. */
  function toEnd() {
    const pre = log.querySelector("pre");
    if (pre) pre.scrollTop = pre.scrollHeight;
  }

  /** Shows what the server says; without `log`, that part stays as it is. */
  function update(told) {
    element.className = `headline ${told.tone}`;
    say(sentence, told.sentence);
    if (state !== null && state !== told.state) announce(told.sentence); // not every new number
    state = told.state;
    if (changed("details", told.details)) details.replaceChildren(...told.details.map((text) => h("li", {}, text)));
    details.hidden = told.details.length === 0;
    track.hidden = told.fraction === null;
    if (told.fraction !== null) {
      bar.style.width = `${100 * told.fraction}%`;
      track.setAttribute("aria-valuenow", String(Math.round(100 * told.fraction)));
      track.setAttribute("aria-valuetext", percent(told.fraction));
    }
    step = session.right === "act" ? told.step : null;
    button.hidden = step === null;
    if (step) say(button, step.label);
    if (changed("step", step)) say(said, "");
    if (changed("command", told.command)) place.replaceChildren(...(told.command ? [command(told.command, "Copy the command that resumes the run")] : []));
    place.hidden = !told.command;
    if (told.log && changed("log", told.log)) drawLog(told.role, told.log);
  }

  /** An error of the page itself, such as a run that is no longer there. */
  function problem(text) {
    element.className = "headline bad";
    say(sentence, text);
    for (const part of [track, details, steps, place, log]) part.hidden = true;
    announce(text);
  }
  return { element, update, shown: toEnd, problem };
}
