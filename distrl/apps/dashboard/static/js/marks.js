// Marks of a chart: moments as vertical lines with a sign, targets as horizontal ones. Each kind has a sign of its own.
import { h } from "./dom.js";
import { colour } from "./colours.js";
import { tick } from "./format.js";

export const KINDS = {
  resumed: ["Resumed", "▲", "--c6"], restart: ["Restart", "▼", "--bad"], checkpoint: ["Checkpoint", "■", "--muted"],
  parameter: ["Changed setting", "◆", "--accent"], scale: ["Actors", "●", "--c5"], request: ["Request", "○", "--c7"],
  stage: ["Curriculum", "★", "--good"], learner: ["Learner", "◇", "--warn"],
};

export function drawMarks(plot, marks) {
  const { ctx, bbox } = plot, ratio = devicePixelRatio || 1;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left - 6 * ratio, 0, bbox.width + 12 * ratio, bbox.top + bbox.height);
  ctx.clip();
  ctx.lineWidth = ratio;
  ctx.textAlign = "center";
  ctx.textBaseline = "bottom";
  ctx.font = `${9 * ratio}px sans-serif`;
  const checkpointsFirst = [...marks].sort((one, other) => (other.kind === "checkpoint") - (one.kind === "checkpoint")); // rarer ones are drawn over them
  for (const mark of checkpointsFirst) {
    const [, sign, name] = KINDS[mark.kind], x = plot.valToPos(mark.x, "x", true);
    ctx.strokeStyle = colour(name, mark.kind === "checkpoint" ? 0.25 : 0.5);
    ctx.setLineDash([3 * ratio, 3 * ratio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillStyle = colour(name);
    ctx.fillText(sign, x, bbox.top + 1);
  }
  ctx.restore();
}

export function drawTargets(plot, targets) {
  const { ctx, bbox } = plot, ratio = devicePixelRatio || 1;
  ctx.save();
  ctx.lineWidth = 1.25 * ratio;
  ctx.strokeStyle = ctx.fillStyle = colour("--good");
  ctx.setLineDash([8 * ratio, 4 * ratio]);
  ctx.font = `600 ${11 * ratio}px ${getComputedStyle(document.body).fontFamily}`;
  ctx.textAlign = "left";
  ctx.textBaseline = "bottom";
  for (const target of targets) {
    const y = plot.valToPos(target.value, target.axis === 2 ? "y2" : "y", true);
    if (!(y >= bbox.top && y <= bbox.top + bbox.height)) continue;
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.fillText(targetText(target), bbox.left + 6 * ratio, y - 2 * ratio);
  }
  ctx.restore();
}

export const targetText = (target) => `target ${tick(target.value)}`;
export function markText(mark) {
  const [kind] = KINDS[mark.kind], text = mark.text.toLowerCase().startsWith(kind.toLowerCase()) ? mark.text : `${kind}: ${mark.text}`;
  return `${text}${mark.time ? ` (${mark.time})` : ""}`;
}

/** Buttons that show or hide the kinds. */
export function markKey(marks, hidden, toggle) {
  const counts = new Map();
  for (const mark of marks) counts.set(mark.kind, (counts.get(mark.kind) ?? 0) + 1);
  return [...counts].map(([kind, count]) => {
    const [name, sign, property] = KINDS[kind], drawn = h("span", { class: "sign", "aria-hidden": "true" }, sign);
    drawn.style.color = `var(${property})`;
    return h("button", { type: "button", "aria-pressed": String(!hidden.has(kind)), title: "Show or hide these marks",
      on: { click: () => toggle(kind) } }, drawn, `${name} `, h("span", { class: "value" }, String(count)));
  });
}
