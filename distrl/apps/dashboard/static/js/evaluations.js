// The evaluations of a run: greedy episodes beside the training.
import { h, say } from "./dom.js";
import { get } from "./api.js";
import { percent, result, UNKNOWN, whole } from "./format.js";
import { title } from "./metrics.js";

export function evaluationsPanel(id) {
  const body = h("tbody"), head = h("tr"), none = h("p", { class: "empty" }, "Loading …");
  const table = h("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "Evaluations", hidden: true }, h("table", { class: "evaluations" },
    h("caption", { class: "visually-hidden" }, "Evaluations, newest first"), h("thead", {}, head), body));
  let isOpen = false;

  async function load() {
    if (!isOpen) return;
    try {
      draw((await get(`runs/${id}/evaluations`)).evaluations);
    } catch (error) {
      none.hidden = false;
      say(none, error.message);
    }
  }

  function draw(found) {
    none.hidden = found.length > 0;
    table.hidden = found.length === 0;
    say(none, "No evaluation is recorded. Set evaluation.every_env_steps to have greedy episodes beside the training.");
    const metrics = [...new Set(found.flatMap((one) => Object.keys(one.metrics)))], others = [...new Set(found.flatMap((one) => Object.keys(one.others)))];
    const succeeds = found.some((one) => one.success_rate !== null);
    const estimators = [...new Set(found.flatMap((one) => one.estimates.map(({ estimator }) => estimator)))];
    const columns = [title("env_steps"), "Mean return", "Spread", "Least", "Greatest", "Episodes", "Length", ...(succeeds ? ["Success"] : []), ...metrics, ...others.map((name) => `In ${name}`),
      ...(estimators.length ? ["Discounted"] : []), ...estimators.map((name) => `Estimate by ${name}`)];
    head.replaceChildren(...columns.map((text) => h("th", { scope: "col", class: "n", title: text === "Spread" ? "Standard deviation over the episodes" : null }, text)));
    body.replaceChildren(...found.map((one) => h("tr", {}, h("th", { scope: "row", class: "n" }, one.is_best ? h("span", { class: "tag best", title: `by ${one.best_by}` }, "best") : null, whole(one.env_steps)),
      [result(one.mean_return), `± ${result(one.std_return)}`, result(one.min_return), result(one.max_return), one.cut_episodes ? `${whole(one.episodes)}, ${whole(one.cut_episodes)} cut short` : whole(one.episodes), whole(one.mean_length_steps),
        ...(succeeds ? [percent(one.success_rate)] : []), ...metrics.map((name) => result(one.metrics[name])),
        ...others.map((name) => other(one.others[name])), ...(estimators.length ? [result(one.mean_discounted_return)] : []),
        ...estimators.map((name) => estimate(one.estimates.find(({ estimator }) => estimator === name)))].map((cell) => h("td", { class: "n" }, cell)))));
  }
  return { element: h("div", {}, table, none), open: () => { isOpen = true; return load(); }, close: () => { isOpen = false; }, changed: load };
}

const estimate = (one) => (one && one.value !== null ? `${result(one.value)}${one.low === null ? "" : ` (${result(one.low)} … ${result(one.high)})`}` : UNKNOWN);
const other = (one) => (one ? `${result(one.mean_return)} ± ${result(one.std_return)}` : UNKNOWN);
