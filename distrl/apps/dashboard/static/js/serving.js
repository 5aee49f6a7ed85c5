// Policy servers of a run: one row each, the returns of the versions that they serve, and a canary beside its policy.
import { h, say } from "./dom.js";
import { ago, compact, counted, duration, fixed, percent, result, UNKNOWN, whole } from "./format.js";
import { spark } from "./spark.js";

export function serving() {
  const servers = table("Servers", ["Server", "Policy", "Actions/s", "p50", "p95", "p99", "Sessions", "Connections", "Waiting", "Failures"]);
  const versions = table("Returns by version", ["Version", "Policy", "Episodes", "Mean return", "95 % interval"]);
  const compared = h("div", { class: "compared" }), below = h("div", {}, h("h3", {}, "Returns by version"), versions.element);
  const element = h("section", { class: "card serving", "aria-label": "Serving", hidden: true }, h("header", {}, h("h2", {}, "Serving")), h("div", { class: "body" }, servers.element, compared, below));

  function update(told) {
    element.hidden = told.servers.length === 0;
    servers.body.replaceChildren(...told.servers.map(serverRow));
    compared.replaceChildren(...told.comparisons.map((one) => h("p", {}, sentence(one))));
    below.hidden = told.versions.length === 0;
    versions.body.replaceChildren(...told.versions.map((one) => row(whole(one.version), [words(one), ""], [whole(one.episodes)], [result(one.mean)],
      [one.half === null ? UNKNOWN : `${result(one.mean - one.half)} … ${result(one.mean + one.half)}`])));
  }
  return { element, update };
}

function table(name, columns) {
  const body = h("tbody");
  const heads = columns.map((text, at) => h("th", { scope: "col", class: at > 1 ? "n" : "" }, text));
  return { body, element: h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, h("table", {}, h("caption", { class: "visually-hidden" }, name), h("thead", {}, h("tr", {}, heads)), body)) };
}

const row = (head, ...cells) => h("tr", {}, h("th", { scope: "row" }, head), cells.map(([text, kind = "n"]) => h("td", { class: kind }, text)));

function serverRow(one) {
  const { p50_s, p95_s, p99_s } = one.latencies ?? {};
  const state = one.is_gone ? h("span", { class: "tag bad" }, `gone, last heard of ${ago(one.written)}`) : h("span", { class: "sub" }, `on ${one.host} (${one.pid}), began ${ago(one.started)}`);
  const policies = one.policies.map((policy) => h("div", {}, `${words(policy)}, version ${whole(policy.version)}${policy.share < 1 ? `, ${percent(policy.share)} of sessions` : ""}`));
  const failures = Object.entries(one.failures).map(([status, count]) => `${whole(count)} × ${status}`);
  return row(h("div", {}, one.address, h("div", {}, state)), [policies, "policies"], [[compact(one.actions_per_s), small(one.rates, "actions/s", compact)]], [ms(p50_s)], [ms(p95_s)], [[ms(p99_s), small(one.p99s, "p99", ms)]], [whole(one.sessions)], [whole(one.connections)], [whole(one.waiting)], [failures.join(", ") || "none"]);
}

const ms = (seconds) => (seconds === undefined ? UNKNOWN : `${fixed(1000 * seconds, seconds < 0.01 ? 2 : 0)} ms`);
const words = ({ name, source }) => (name === "main" ? source : `${source} (${name})`);
const small = (points, name, text) => spark(points, ([x, y]) => `${name} over ${duration(x[x.length - 1] - x[0])}: last ${text(y[y.length - 1])}, least ${text(Math.min(...y))}, greatest ${text(Math.max(...y))}`);

function sentence({ main, canary, difference, half }) {
  const counts = `${counted(canary.episodes, "episode")} of ${canary.source}, ${whole(main.episodes)} of ${main.source}`;
  const size = `${result(Math.abs(difference))} ${difference < 0 ? "less" : "more"}`;
  if (half === null) return `The canary returns ${size}: too few episodes for an interval (${counts}).`;
  const clear = Math.abs(difference) > half ? "" : "; zero is inside";
  return `The canary returns ${size}, 95 % interval ${result(difference - half)} … ${result(difference + half)}${clear} (${counts}).`;
}
