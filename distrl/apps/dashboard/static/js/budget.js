// Where each role's time goes, the newest evaluation, and memory.
import { h, say } from "./dom.js";
import { bytes, percent, result, whole } from "./format.js";

export function budget() {
  const learner = bar("Learner", "training"), actors = bar("Actors", "acting");
  const named = [["learner", "The learner, by name"], ["actor", "The actors, by name"]]
    .map(([kind, title]) => ({ kind, heading: h("h3", {}, title), list: h("dl", { class: "facts" }) }));
  const evaluation = h("dl", { class: "facts" });
  const heading = h("h3", {}, "Latest evaluation");
  const memory = h("dl", { class: "facts" }), memoryHeading = h("h3", {}, "Memory");
  const element = h("div", {}, h("h2", {}, "Where time goes"), learner.element, actors.element,
    h("p", { class: "legend-line" }, h("span", {}, h("i", { class: "dot" }), "at work"), h("span", {}, h("i", { class: "dot waiting" }), "waiting")),
    ...named.flatMap(({ heading, list }) => [heading, list]), heading, evaluation, memoryHeading, memory);
  let shown = "";

  function update(snapshot, live) {
    learner.set(snapshot.learner_wait_share);
    const { paused = 0, ...waits } = live?.shares.actor ?? { waiting: snapshot.actors_blocked_share };
    actors.set(Object.values(waits).reduce((sum, share) => sum + share, 0), paused);
    const scores = [["return", snapshot.evaluation_mean_return], ["best", snapshot.best_evaluation_return], ["at step", snapshot.evaluation_env_steps]]
      .filter(([, value]) => value !== undefined).map(([name, value]) => [name, name === "at step" ? whole(value) : result(value)]);
    const sizes = live ? memoryRows(live) : [];
    const shares = named.map(({ kind }) => waitRows(live?.shares[kind] ?? {}));
    const text = JSON.stringify([scores, sizes, shares]);
    if (text === shown) return;
    shown = text;
    named.forEach(({ heading, list }, at) => {
      list.replaceChildren(...shares[at].flatMap(pair));
      heading.hidden = shares[at].length === 0;
    });
    evaluation.replaceChildren(...scores.flatMap(pair));
    heading.hidden = scores.length === 0;
    memory.replaceChildren(...sizes.flatMap(pair));
    memoryHeading.hidden = sizes.length === 0;
  }
  return { element, update };
}

// Named shares of the time of all roles of a kind, largest first.
function waitRows(shares) {
  return Object.entries(shares).filter(([, share]) => share >= 0.005).sort(([, one], [, other]) => other - one)
    .map(([name, share]) => [name === "unrolls" ? "waiting for unrolls" : name, percent(share)]);
}

function memoryRows({ roles, redis }) {
  const kinds = [...new Set(roles.map((role) => role.role))];
  const rows = kinds.map((kind) => [kind === "actor" ? "actors" : kind, bytes(1e6 * roles.filter((role) => role.role === kind).reduce((sum, role) => sum + role.rss_mb, 0))]);
  const limit = redis.limit_bytes ? ` of ${bytes(redis.limit_bytes)}` : "";
  return redis.used_bytes ? [...rows, ["Redis", `${bytes(redis.used_bytes)}${limit}`]] : rows;
}

const pair = ([name, value, kind = ""]) => [h("dt", { class: kind }, name), h("dd", { class: kind }, value)];

function bar(name, work) {
  const busy = h("i"), waiting = h("i", { class: "waiting" });
  const told = h("span", { class: "muted" });
  const track = h("div", { class: "track", "aria-hidden": "true" }, busy, waiting);
  const set = (share, paused = 0) => {
    const known = Number.isFinite(share), rest = Math.max(1 - share - paused, 0);
    busy.style.width = known ? `${100 * rest}%` : "0";
    waiting.style.width = known ? `${100 * (1 - rest)}%` : "0";
    const shares = [[work, rest], ["waiting", share], ["paused", paused]].filter(([name, value]) => (paused ? value >= 0.005 : name !== "paused"));
    say(told, known ? shares.map(([name, value]) => `${name} ${percent(value)}`).join(", ") : "not known");
  };
  set(null);
  return { element: h("div", { class: "budget" }, h("div", { class: "row" }, h("span", {}, name), told), track), set };
}
