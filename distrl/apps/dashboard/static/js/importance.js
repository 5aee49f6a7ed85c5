// What each setting explains of the outcome, beside what chance explains.
import { h, say, svg } from "./dom.js";
import { colour } from "./colours.js";
import { percent } from "./format.js";
import { Picture } from "./picture.js";
import { shortened } from "./scatter.js";

const ROW = 34;
const METHOD = "Share of the outcome's variance between the runs with the same value, for each setting alone (η²). The mark shows what chance reaches: 95 % of 2,000 permutations of the outcomes "
  + "stay below it. p is corrected for the number of settings (Holm). Numbers that hardly occur twice are sorted into three classes. Settings that change together cannot be told apart.";

export function importance(found) {
  const sentence = h("p", { class: "told" });
  const picture = new Picture({ title: "What mattered", draw, rows, words: () => found().words, below: [sentence, h("details", { class: "method" }, h("summary", {}, "How it is computed"), h("p", {}, METHOD))] });

  function draw(width) {
    const { settings, words } = found(), shown = settings.slice(0, 12), height = Math.max(ROW * shown.length + 6, 30);
    say(sentence, words);
    const root = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words });
    const left = 8, right = width - 130, text = (content, properties) => svg("text", { "font-size": 12.5, fill: colour("--text"), ...properties }, content);
    shown.forEach((one, at) => {
      const y = ROW * at, sure = one.p <= 0.05, wide = right - left;
      root.append(text(shortened(one.name, 40), { x: left, y: y + 12 }), svg("rect", { x: left, y: y + 17, width: wide, height: 9, rx: 3, fill: colour("--sunken"), stroke: colour("--line") }),
        svg("rect", { x: left, y: y + 17, width: Math.max(wide * one.share, 1).toFixed(1), height: 9, rx: 3, fill: colour(sure ? "--c0" : "--muted") }),
        svg("line", { x1: left + wide * one.chance, x2: left + wide * one.chance, y1: y + 13, y2: y + 30, stroke: colour("--text"), "stroke-width": 2 }),
        text(`${percent(one.share)}  p ${pText(one.p)}`, { x: right + 10, y: y + 26, "font-weight": sure ? 620 : 400 }));
    });
    return root;
  }

  function rows() {
    return [["setting", "share of the variance", "95 % of chance", "p (Holm)", "groups", "classes of numbers"], ...found().settings.map((one) => [one.path, one.share, one.chance, one.p, one.groups, one.in_classes ? "yes" : "no"])];
  }
  return picture;
}

const pText = (p) => (p < 0.001 ? "< 0.001" : `= ${p.toFixed(3)}`);
