// The recorded episodes that a run learns from, as its learner has read them.
import { h, say, svg } from "./dom.js";
import { get } from "./api.js";
import { counted, general, percent, whole } from "./format.js";

const WIDTH = 480, HEIGHT = 96;

export function dataPanel(id) {
  const none = h("p", { class: "empty" }, "Loading …"), shown = h("div", { class: "recorded", hidden: true });
  let isOpen = false;

  async function load() {
    if (!isOpen) return;
    try {
      draw((await get(`runs/${id}/data`)).data);
    } catch (error) {
      none.hidden = false;
      say(none, error.message);
    }
  }

  function draw(data) {
    none.hidden = data !== null;
    shown.hidden = data === null;
    say(none, "No recorded episodes have been read. Set data.sets to learn from some.");
    if (data) shown.replaceChildren(facts(data), h("h3", {}, "Returns"), histogram(data.return_histogram, data.episodes), h("h3", {}, "Actions"), actions(data.actions));
  }
  return { element: h("div", {}, shown, none), open: () => { isOpen = true; return load(); }, close: () => { isOpen = false; }, changed: load };
}

const range = ({ min, max, mean }) => `${general(min)} to ${general(max)}, mean ${general(mean)}`;

function facts(data) {
  const { returns } = data;
  return h("dl", { class: "facts" }, [
    ["Data", data.name], ["Recorded in", data.environment ?? "not said"], ["Observations", data.observation_space ?? "as the environment's"], ["Actions", data.action_space ?? "as the environment's"],
    ["Episodes", `${whole(data.episodes)}: ${whole(data.terminated)} terminated, ${whole(data.truncated)} cut off`], ["Steps", `${whole(data.steps)}; an episode ${range(data.length_steps)}`],
    ["Returns", range(returns)], ["Quartiles of returns", [returns.quarter, returns.median, returns.three_quarters].map(general).join(", ")],
    ["Missing values", `in ${counted(data.steps_with_missing_values, "step")}`], ["Probabilities of actions", `known in ${counted(data.episodes_with_behaviour_probabilities, "episode")}`],
  ].flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]));
}

function histogram({ counts, edges }, episodes) {
  const most = Math.max(...counts, 1), width = WIDTH / counts.length;
  const words = (at) => `${counted(counts[at], "episode")} from ${general(edges[at])} to ${general(edges[at + 1])}`;
  const bars = counts.map((count, at) => svg("rect", { x: at * width + 1, y: HEIGHT * (1 - count / most), width: width - 2, height: HEIGHT * count / most }, svg("title", {}, words(at))));
  return h("figure", {}, svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "bars", role: "img", preserveAspectRatio: "none", "aria-label": `Returns of ${counted(episodes, "episode")}; most often ${words(counts.indexOf(most))}` }, ...bars),
    h("figcaption", { class: "muted" }, h("span", {}, general(edges[0])), h("span", {}, general(edges[edges.length - 1]))));
}

function actions(found) {
  if (!found.length) return h("p", { class: "muted" }, "Parts of several kinds, which are not compared.");
  return h("table", {}, h("caption", { class: "visually-hidden" }, "Actions"), h("tbody", {}, found.map((one, at) => h("tr", {}, h("th", { scope: "row" }, found.length > 1 ? `Action ${at}` : "Action"),
    h("td", {}, "mean" in one ? `${range(one)}, deviation ${general(one.std)}` : shares(one))))));
}

function shares(one) {
  return h("div", { class: "shares" }, Object.entries(one).map(([choice, share]) => h("span", {}, `${choice} `, h("meter", { min: 0, max: 1, value: share, "aria-label": `Share of choice ${choice}` }), ` ${percent(share)}`)));
}
