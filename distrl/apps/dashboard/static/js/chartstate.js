// The state of a chart as a text in the address.

/** How y is drawn, as text: log;clip;y=0:500. */
export const viewText = (view) => [view.log && "log", view.clip && "clip",
  (Number.isFinite(view.low) || Number.isFinite(view.high)) && `y=${view.low ?? ""}:${view.high ?? ""}`].filter(Boolean).join(";");

export function readView(text) {
  const options = text.split(";"), range = options.find((one) => one.startsWith("y="))?.slice(2).split(":") ?? ["", ""];
  const number = (part) => (part && Number.isFinite(Number(part)) ? Number(part) : null);
  return { log: options.includes("log"), clip: options.includes("clip"), low: number(range[0]), high: number(range[1]) };
}

/** A panel as text: its metrics, and how y is drawn. */
export const written = ({ names, view }) => [names.map(encodeURIComponent).join(","), viewText(view)].filter(Boolean).join(";");

export function read(text) {
  const [names, ...options] = text.split(";");
  let decoded = [];
  try { decoded = names.split(",").filter(Boolean).map(decodeURIComponent); } catch { /* a damaged address names no metric */ }
  return { names: decoded, view: readView(options.join(";")) };
}

/** A zoom as text, and back; null is the whole run. */
export const zoomText = (zoom) => zoom && zoom.map((value) => Number(value.toPrecision(8))).join(":");

export function readZoom(text) {
  const zoom = text?.split(":").map(Number);
  return zoom?.length === 2 && zoom.every(Number.isFinite) && zoom[0] < zoom[1] ? zoom : null;
}
