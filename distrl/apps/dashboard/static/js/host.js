// One host: processors, memory and GPUs, each with a bar.
import { h } from "./dom.js";
import { bytes, fixed, percent, whole } from "./format.js";

const MB = 1e6;

/** load: cores, busy_share, memory_mb, memory_used_mb, gpus. */
export function host(name, load, roles) {
  return h("li", { class: "host" }, h("b", {}, name), h("span", { class: "muted" }, `${whole(roles)} ${roles === 1 ? "role" : "roles"}`), bars(load));
}

export function bars(load) {
  const cores = Number.isInteger(load.cores) ? whole(load.cores) : fixed(load.cores, 1);
  return [
    bar(`${cores} ${load.cores === 1 ? "core" : "cores"}, ${percent(load.busy_share)} busy`, load.busy_share),
    bar(`${bytes(MB * load.memory_used_mb)} of ${bytes(MB * load.memory_mb)} memory`, load.memory_used_mb / load.memory_mb),
    ...load.gpus.flatMap((gpu, number) => [
      bar(`GPU ${number}, ${gpu.name}: ${percent(gpu.busy_share)} busy`, gpu.busy_share),
      bar(`${bytes(MB * gpu.memory_used_mb)} of ${bytes(MB * gpu.memory_mb)} on GPU ${number}`, gpu.memory_used_mb / gpu.memory_mb)]),
  ];
}

function bar(text, share) {
  const fill = h("i");
  fill.style.width = `${100 * Math.min(Math.max(share, 0), 1)}%`;
  return h("span", { class: "load" }, h("span", { class: "meter", "aria-hidden": "true" }, fill), text);
}
