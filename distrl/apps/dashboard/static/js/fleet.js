// Hosts with the roles on them, and the Redis of every live run.
import { h } from "./dom.js";
import { get } from "./api.js";
import { keepAsking } from "./follow.js";
import { bars } from "./host.js";
import { bytes, compact, percent, whole } from "./format.js";
import { stateWords } from "./states.js";

const EVERY_MS = 2000;

export async function fleetPage() {
  const element = h("div", {});
  const draw = (fleet) => {
    const hosts = fleet.hosts.map((host) => hostCard(host));
    const nothing = h("div", { class: "card empty" }, h("p", {}, "No run is running."),
      h("p", {}, "Start one: ", h("code", {}, "distrl train --preset cartpole-impala")));
    element.replaceChildren(h("div", { class: "head" }, h("h1", {}, "Fleet"),
      h("span", { class: "sub" }, `${count(fleet.hosts.length, "host")} · ${count(fleet.redis.length, "live run")}`)),
      h("div", { class: "stack" }, fleet.redis.length ? [redisCard(fleet.redis), ...hosts] : nothing));
  };
  const asking = keepAsking(async (signal) => draw(await get("fleet", {}, signal)), EVERY_MS);
  try { await asking.first; } catch (error) { asking.end(); throw error; }
  return { element, leave: () => asking.end() };
}

const count = (number, noun) => `${whole(number)} ${noun}${number === 1 ? "" : "s"}`;
const heads = (names) => h("thead", {}, h("tr", {}, names.map(([text, kind]) => h("th", { scope: "col", class: kind }, text))));

function hostCard({ host, roles, load }) {
  const memory = roles.reduce((sum, role) => sum + role.rss_mb, 0);
  return h("section", { class: "card", "aria-label": `Host ${host}` },
    h("header", {}, h("h2", {}, host), h("span", { class: "muted" }, `${count(roles.length, "role")} · ${bytes(1e6 * memory)} resident`), load ? bars(load) : null),
    h("div", { class: "scroll body" }, h("table", {},
      heads([["Role"], ["Run"], ["State"], ["Steps/s", "n"], ["Memory", "n"], ["Peak", "n"], ["Process", "n"]]),
      h("tbody", {}, roles.map((role) => h("tr", {}, h("th", { scope: "row" }, `${role.role} ${role.id}`),
        h("td", {}, h("a", { href: `#/run/${role.run}` }, role.name)), h("td", { class: role.silent ? "late" : "" }, stateWords(role)),
        h("td", { class: "n" }, whole(role.env_steps_per_s)), h("td", { class: "n" }, bytes(1e6 * role.rss_mb)),
        h("td", { class: "n" }, bytes(1e6 * role.peak_rss_mb)), h("td", { class: "n" }, String(role.pid))))))));
}

function redisCard(rows) {
  return h("section", { class: "card", "aria-label": "Redis" }, h("header", {}, h("h2", {}, "Redis")),
    h("div", { class: "scroll body" }, h("table", {},
      heads([["Run"], ["Address"], ["Version", "n"], ["Memory", "n"], ["Limit", "n"], ["In the queue", "n"], ["Unrolls", "n"], ["Clients", "n"]]),
      h("tbody", {}, rows.map((row) => h("tr", {}, h("th", { scope: "row" }, h("a", { href: `#/run/${row.run}` }, row.name)),
        row.problem ? h("td", { colspan: 7 }, row.problem) : [h("td", { class: "mono" }, row.url), h("td", { class: "n" }, row.version),
          h("td", { class: "n" }, memory(row), bytes(row.used_bytes)),
          h("td", { class: "n" }, row.limit_bytes ? bytes(row.limit_bytes) : "none"), h("td", { class: "n" }, bytes(row.stream_bytes)),
          h("td", { class: "n" }, compact(row.entries)), h("td", { class: "n" }, whole(row.clients))]))))));
}

function memory(row) {
  if (!row.limit_bytes) return null;
  const share = row.used_bytes / row.limit_bytes, fill = h("i");
  fill.style.width = `${Math.min(100, 100 * share)}%`;
  return h("span", { class: "meter", role: "img", "aria-label": `${percent(share)} of the limit` }, fill);
}
