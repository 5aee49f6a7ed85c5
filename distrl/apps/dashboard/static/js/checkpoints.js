// The checkpoints of a run, and the commands that use them.
import { h, say } from "./dom.js";
import { get } from "./api.js";
import { copyButton } from "./copy.js";
import { ago, bytes, compact, moment, result, UNKNOWN, whole } from "./format.js";
import { title } from "./metrics.js";

const EVERY_MS = 15000; // the learner writes them on its own, too
const COMMANDS = [["resume", "Resume", "go on from here; later checkpoints are moved aside"], ["branch", "Branch", "a new run with all of this state"],
  ["begin", "Init from", "a new training that begins with these weights"], ["evaluate", "Evaluate", "play greedy episodes"], ["export", "Export", "write the policy as one ONNX file"]];
const COLUMNS = [["Update", "n"], ["env_steps", "n"], ["Saved"], ["Size", "n"], ["mean_return_100", "n"], ["Newest evaluation then", "n"], ["Copy a command"]];

export function checkpointsPanel(id) {
  const body = h("tbody"), none = h("p", { class: "empty" }, "Loading …");
  const line = h("code", { class: "mono", tabindex: 0, role: "textbox", "aria-readonly": "true", "aria-label": "The command that was copied last" });
  const copied = h("p", { class: "copied", hidden: true }, line);
  const table = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Checkpoints", hidden: true }, h("table", { class: "checkpoints" },
    h("caption", { class: "visually-hidden" }, "Checkpoints, newest first"), h("thead", {}, h("tr", {}, COLUMNS.map(([text, kind]) => h("th", { scope: "col", class: kind }, title(text))))), body));
  let isOpen = false, timer = 0, shown = "";

  async function load() {
    clearTimeout(timer);
    if (!isOpen) return;
    try {
      const { checkpoints } = await get(`runs/${id}/checkpoints`);
      draw(checkpoints);
    } catch (error) {
      none.hidden = false;
      say(none, error.message);
    }
    clearTimeout(timer);
    if (isOpen) timer = setTimeout(load, EVERY_MS);
  }

  function draw(checkpoints) {
    none.hidden = checkpoints.length > 0;
    table.hidden = checkpoints.length === 0;
    say(none, "There is no checkpoint in the run's directory.");
    const text = JSON.stringify(checkpoints);
    if (shown === text) return; // keeps the focus where it is
    shown = text;
    body.replaceChildren(...checkpoints.map(row));
  }

  function row(one) {
    const marks = [one.is_newest ? "newest" : "", one.is_best ? "best" : "", one.problem].filter(Boolean);
    const evaluation = one.evaluation === null ? UNKNOWN : result(one.evaluation);
    const at = one.evaluation_env_steps === null ? "" : `${one.is_best ? "best, " : ""}at ${compact(one.evaluation_env_steps)} steps`;
    return h("tr", {}, h("th", { scope: "row", class: "n" }, marks.map((mark) => h("span", { class: `tag ${one.problem === mark ? "bad" : mark}` }, mark)), whole(one.step)),
      h("td", { class: "n" }, whole(one.env_steps)), h("td", {}, one.saved ? moment(one.saved) : UNKNOWN, h("span", { class: "sub" }, one.saved ? ago(one.saved) : "")),
      h("td", { class: "n" }, bytes(one.size_bytes)), h("td", { class: "n" }, result(one.mean_return)), h("td", { class: "n" }, evaluation, h("span", { class: "sub" }, at)),
      h("td", { class: "tools" }, one.problem ? "" : COMMANDS.map(([key, face, meaning]) => {
        const button = copyButton(`Copy: ${face.toLowerCase()} (${meaning}), update ${one.step}`, () => one.commands[key], () => line, face);
        button.addEventListener("click", () => { copied.hidden = false; say(line, one.commands[key]); }, { capture: true });
        return button;
      })));
  }
  return {
    element: h("div", {}, table, copied, none),
    open: () => { isOpen = true; return load(); },
    close: () => { isOpen = false; clearTimeout(timer); },
    changed: load,
  };
}
