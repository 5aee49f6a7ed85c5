// The run as a loop: environments, actors, stream, learner, weights. Every edge has its rate; every actor is a cell of a map.
import { h, say } from "./dom.js";
import { bytes, compact, fixed, percent, result, UNKNOWN, whole } from "./format.js";
import { host } from "./host.js";
import { RoleMap } from "./role_map.js";

const RATE_S = 5; // rates of unrolls are over that long

export function flow(session, id, openLog) {
  const stations = Object.fromEntries(["environments", "actors", "stream", "learner", "weights"].map((name) => [name, station(name)]));
  const edges = { steps: edge("steps"), unrolls: edge("unrolls"), batches: edge("batches"), versions: edge("versions") };
  const back = h("p", { class: "back" }), dropped = h("p", { class: "dropped" });
  const account = ledger();
  const hosts = h("ul", { class: "hosts", "aria-label": "Hosts" });
  const map = new RoleMap(session, id, openLog);
  const element = h("section", { class: "card flow", "aria-label": "Flow" },
    h("header", {}, h("h2", {}, "Flow")),
    h("div", { class: "body" },
      h("ol", { class: "loop" }, stations.environments.element, edges.steps.element, stations.actors.element, edges.unrolls.element,
        stations.stream.element, edges.batches.element, stations.learner.element, edges.versions.element, stations.weights.element),
      back, account.element, dropped, hosts, map.element));
  const rates = rateOf();

  function update(snapshot, live, ended) {
    const counts = live?.ledger ?? ended;
    element.hidden = !counts && !live;
    if (element.hidden) return;
    account.update(counts);
    for (const part of [element.querySelector(".loop"), back, hosts, map.element]) part.hidden = !live;
    if (live) running(snapshot, live);
    else map.close();
    const lost = counts ? Object.entries(counts.dropped).filter(([, count]) => count) : [];
    dropped.hidden = lost.length === 0;
    say(dropped, `Dropped: ${lost.map(([why, count]) => `${whole(count)} ${why}`).join(", ")}`);
  }

  function running(snapshot, live) {
    const actors = live.roles.filter((role) => role.role === "actor"), heard = actors.filter((role) => !role.silent);
    const per = rates(live, snapshot.weights_version ?? 0), { paused = 0, ...waits } = live.shares.actor ?? {}, waiting = sum(Object.values(waits));
    const steps = sum(heard.map((role) => role.env_steps_per_s)), behind = heard.map((role) => Math.max(role.behind, 0));
    stations.environments.set(`${compact(steps)} steps/s`, [`${whole(actors.length ? steps / actors.length : 0)} for each actor`]);
    stations.actors.set(`${whole(heard.length)} ${heard.length === 1 ? "actor" : "actors"}`, [
      heard.length < actors.length ? `${whole(actors.length - heard.length)} silent` : null,
      paused > 0.005 ? `paused ${percent(paused)}` : `waiting ${percent(waiting)}`]);
    stations.stream.set(`${whole(live.ledger.queued)} ${live.ledger.queued === 1 ? "unroll" : "unrolls"}`, [`${percent(snapshot.queue_fill)} full`, `${whole(live.ledger.in_flight)} in flight`],
      snapshot.queue_fill);
    stations.learner.set(`${fixed(snapshot.updates_per_s, 1)} updates/s`, [`waiting ${percent(snapshot.learner_wait_share)}`,
      snapshot.replay_steps ? `${compact(snapshot.replay_steps)} steps in memory` : null]);
    stations.weights.set(`version ${whole(snapshot.weights_version)}`, [`lag ${fixed(snapshot.policy_lag_mean, 1)}, at most ${whole(snapshot.policy_lag_max)}`]);
    edges.steps.set(`${compact(steps)}/s`, steps);
    edges.unrolls.set(per.produced === null ? UNKNOWN : `${result(per.produced)} unrolls/s`, per.produced, snapshot.wire_bytes_per_s ? `${bytes(snapshot.wire_bytes_per_s)}/s` : "");
    edges.batches.set(per.used === null ? UNKNOWN : `${result(per.used)} unrolls/s`, per.used);
    edges.versions.set(per.version === null ? UNKNOWN : `${result(per.version)} versions/s`, per.version);
    say(back, behind.length ? `Weights go back to the actors, which are ${fixed(sum(behind) / behind.length, 1)} versions behind on average, ${whole(Math.max(...behind))} at most.` : "Weights go back to the actors.");
    for (const [name, one] of Object.entries(stations)) one.limits(LIMITS[snapshot.bottleneck] === name && !live.control.paused);
    hosts.replaceChildren(...Object.entries(live.hosts).sort().map(([name, load]) => host(name, load, live.roles.filter((role) => role.host === name).length)));
    map.update(live.roles);
  }

  return { element, update, leave: () => map.leave() };
}

const LIMITS = { actors: "actors", learner: "learner", environment: "environments" };
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

function station(name) {
  const value = h("strong"), facts = h("span", { class: "facts-line" }), fill = h("i"), meter = h("span", { class: "meter", "aria-hidden": "true", hidden: true }, fill);
  const limit = h("em", { hidden: true }, "limits the run");
  const element = h("li", { class: `station ${name}` }, h("span", { class: "name" }, name[0].toUpperCase() + name.slice(1)), value, meter, facts, limit);
  return {
    element,
    set(text, under, share = null) {
      say(value, text);
      say(facts, under.filter(Boolean).join(" · "));
      meter.hidden = !Number.isFinite(share);
      if (!meter.hidden) fill.style.width = `${100 * Math.min(Math.max(share, 0), 1)}%`;
    },
    limits(is) {
      element.classList.toggle("limits", is);
      limit.hidden = !is;
    },
  };
}

/** Between two stations; its line moves while something flows. */
function edge(name) {
  const rate = h("span"), more = h("small"), element = h("li", { class: "edge", "aria-label": name }, h("span", { class: "line", "aria-hidden": "true" }), rate, more);
  return { element, set(text, flows, under = "") {
    say(rate, text);
    say(more, under);
    element.classList.toggle("flows", flows > 0);
  } };
}

/** Where every unroll is, as one bar and one sum. */
function ledger() {
  const parts = [["trained", "trained"], ["stored", "stored"], ["queued", "in the queue"], ["in_flight", "in flight"], ["dropped", "dropped"], ["lost", "lost"]];
  const bars = parts.map(([name]) => h("i", { class: name }));
  const text = h("p");
  const element = h("div", { class: "ledger" }, h("div", { class: "track", "aria-hidden": "true" }, bars), text);
  return { element, update(counts) {
    element.hidden = !counts;
    if (!counts) return;
    const value = (name) => (name === "dropped" ? sum(Object.values(counts.dropped)) : counts[name]);
    parts.forEach(([name], at) => (bars[at].style.width = counts.produced ? `${100 * value(name) / counts.produced}%` : "0"));
    const told = parts.filter(([name]) => !["stored", "lost"].includes(name) || counts[name]).map(([name, words]) => `${whole(value(name))} ${words}`);
    const more = [["foreign", counts.foreign], ["fail-overs of Redis", counts.failovers], ["lost to a fail-over", counts.lost_to_failover]]
      .filter(([, count]) => count).map(([words, count]) => `, ${words}: ${whole(count)}`).join("");
    say(text, `${whole(counts.produced)} unrolls produced = ${told.join(" + ")} · ${counts.imbalance ? `${whole(counts.imbalance)} unaccounted for` : "exact"}${more}`);
    element.classList.toggle("bad", Boolean(counts.imbalance));
  } };
}

/** Unrolls and versions per second from counts of the last seconds; null before there are two. */
function rateOf() {
  const kept = [];
  return ({ at, ledger: counts }, version) => {
    if (kept.length && (counts.produced < kept[kept.length - 1].produced || at <= kept[kept.length - 1].at - RATE_S)) kept.length = 0; // another launch
    if (!kept.length || at > kept[kept.length - 1].at) kept.push({ at, produced: counts.produced, used: counts.trained + counts.stored, version });
    while (kept.length > 2 && at - kept[1].at >= RATE_S) kept.shift();
    const first = kept[0], last = kept[kept.length - 1], passed = last.at - first.at;
    const per = (name) => (passed > 0 ? Math.max(0, (last[name] - first[name]) / passed) : null);
    return { produced: per("produced"), used: per("used"), version: per("version") };
  };
}
