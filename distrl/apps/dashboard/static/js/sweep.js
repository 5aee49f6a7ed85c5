// A sweep, a search or a population: its progress, the runs that failed, and lessons between members; and the list of them.
import { h, svg } from "./dom.js";
import { get } from "./api.js";
import { colour, seriesColour } from "./colours.js";
import { counted, tick, UNKNOWN, whole } from "./format.js";
import { Picture } from "./picture.js";

const NAMES = { sweep: "Sweep", search: "Search", population: "Population" };
const PARTS = [["done", "done", "--good"], ["running", "running", "--c0"], ["interrupted", "not finished", "--warn"], ["failed", "failed", "--bad"], ["left", "not begun", "--line-strong"]];

export const kindName = (sweep) => NAMES[sweep.kind];
const counts = (sweep) => PARTS.map(([key, text, paint]) => [sweep.counts[key] ?? sweep[key] ?? 0, text, paint]).filter(([count]) => count);

/** "24 of 36 runs: 20 done, 2 running, 2 failed, 12 not begun". */
export function progress(sweep) {
  const begun = Object.values(sweep.counts).reduce((sum, count) => sum + count, 0), of = sweep.planned === null ? "" : ` of ${counted(Math.max(sweep.planned, begun), "run")}`;
  return `${of ? `${whole(begun)}${of}` : counted(begun, "run")}: ${counts(sweep).map(([count, text]) => `${whole(count)} ${text}`).join(", ")}`;
}

function bar(sweep) {
  const parts = counts(sweep), all = parts.reduce((sum, [count]) => sum + count, 0) || 1;
  const track = h("div", { class: "sweep-bar", "aria-hidden": "true" }, parts.map(([count, , paint]) => { const part = h("i"); part.style.width = `${(100 * count) / all}%`; part.style.background = `var(${paint})`; return part; }));
  return track;
}

/** The state of a sweep as a card; its children are made again by update(). */
export class SweepHead {
  constructor() {
    this.element = h("section", { class: "card sweep-head", "aria-label": "State" });
  }

  update(sweep) {
    const text = JSON.stringify(sweep);
    if (text === this.text) return;
    this.text = text;
    const facts = [progress(sweep), sweep.minutes === null ? null : `${counted(Math.round(sweep.minutes), "minute")} in all`, sweep.varied.length ? `varied: ${sweep.varied.join(", ")}` : null].filter(Boolean);
    this.element.replaceChildren(h("div", { class: "body" }, sweep.problem ? h("p", { class: "told bad" }, sweep.problem) : null, bar(sweep), h("p", { class: "told" }, facts.join(" · ")),
      sweep.failures.length ? h("details", {}, h("summary", {}, `${sweep.failures.length} failed before the run began`), h("ul", {}, sweep.failures.map((one) => h("li", {}, `${one.run}: ${one.error}`)))) : null));
  }
}

/** Members of a population over their steps, and an arrow where one took the networks of another. */
export function lineage(found) {
  const ROW = 30;
  const members = () => [...new Set([...found().runs.map((run) => run.path.split("/").pop()), ...found().sweep.lessons.flatMap((one) => [one.member, one.teacher])])].sort();
  const words = () => { const count = found().sweep.lessons.length; return `${counted(count, "time")} a member took the networks of another one`; };

  function draw(width) {
    const names = members(), { lessons } = found().sweep, height = ROW * names.length + 40;
    const ends = new Map(found().runs.map((run) => [run.path.split("/").pop(), run.numbers.env_steps ?? 0]));
    const last = Math.max(1, ...ends.values(), ...lessons.map((one) => one.env_steps)), px = (steps) => 60 + (steps / last) * (width - 80), py = (name) => 18 + ROW * names.indexOf(name);
    const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words() });
    const text = (content, properties) => svg("text", { "font-size": 12, fill: colour("--muted"), ...properties }, content);
    names.forEach((name, at) => root.append(text(name, { x: 8, y: py(name) + 4 }), svg("line", { x1: px(0), x2: px(ends.get(name) ?? 0), y1: py(name), y2: py(name), stroke: colour(seriesColour(at)), "stroke-width": 3 })));
    for (const one of lessons) {
      const x = px(one.env_steps), [from, to] = [py(one.teacher), py(one.member)], tip = to > from ? -7 : 7, paint = colour(seriesColour(names.indexOf(one.teacher)));
      root.append(svg("g", {}, svg("title", {}, `${one.member} takes the networks of ${one.teacher} at ${whole(one.env_steps)} steps`), svg("line", { x1: x, x2: x, y1: from, y2: to + tip, stroke: paint, "stroke-width": 1.5 }),
        svg("path", { d: `M${x - 4},${to + tip}L${x + 4},${to + tip}L${x},${to}Z`, fill: paint }), svg("circle", { cx: x, cy: from, r: 3, fill: paint })));
    }
    for (const share of [0, 0.25, 0.5, 0.75, 1]) root.append(text(tick(Number((share * last).toPrecision(2))), { x: px(Number((share * last).toPrecision(2))), y: height - 18, "text-anchor": "middle" }));
    root.append(text("steps of the member", { x: width / 2, y: height - 2, "text-anchor": "middle" }));
    return root;
  }
  return new Picture({ title: "Networks taken from other members", draw, words, leastWidth: 420,
    rows: () => [["member", "teacher", "steps of the member", "score", "score of the teacher"], ...found().sweep.lessons.map((one) => [one.member, one.teacher, one.env_steps, one.score, one.teacher_score])] });
}

/** The list of all sweeps. */
export async function sweepsPage() {
  const { sweeps } = await get("sweeps");
  const rows = sweeps.map((sweep) => h("tr", {}, h("th", { scope: "row", class: "run" }, h("a", { class: "name", href: `#/sweep/${sweep.id}` }, sweep.name)), h("td", {}, kindName(sweep)), h("td", {}, bar(sweep), h("span", { class: "sub" }, sweep.problem || progress(sweep))), h("td", { class: "wide" }, sweep.varied.join(", ") || UNKNOWN)));
  return {
    element: h("div", {}, h("div", { class: "head" }, h("h1", {}, "Sweeps"), h("span", { class: "sub" }, sweeps.length === 1 ? kindName(sweeps[0]) : `${whole(sweeps.length)} sweeps, searches and populations`)),
      sweeps.length ? h("div", { class: "card scroll", tabindex: 0, role: "region", "aria-label": "Sweeps" }, h("table", { class: "sweeps" }, h("caption", { class: "visually-hidden" }, "Sweeps"), h("thead", {}, h("tr", {}, ["Directory", "Kind", "Runs", "Settings that vary"].map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, rows)))
        : h("div", { class: "card empty" }, h("p", {}, "There is no sweep here yet."), h("p", {}, "Start one: ", h("code", {}, "distrl sweep FILE"), " or ", h("code", {}, "distrl tune FILE")))),
    leave: () => {},
  };
}
