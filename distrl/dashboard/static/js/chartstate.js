// The charts' part of the address, so that a view is a link and outlives a reload: axis, smoothing, zoom, panels.

export const chartQuery = () => new URLSearchParams(location.hash.split("?")[1] ?? "");

/** Sets names of the query: a text, several, or null for none. Other names stay, and no page is loaded. */
export function keepInAddress(changes) {
  const query = chartQuery();
  for (const [name, value] of Object.entries(changes)) {
    query.delete(name);
    for (const each of Array.isArray(value) ? value : [value]) if (each !== null && each !== undefined && each !== "") query.append(name, each);
  }
  const text = query.toString();
  history.replaceState(null, "", `${location.hash.split("?")[0] || "#/"}${text ? `?${text}` : ""}`);
}

/** A panel as text: its metrics, and how y is drawn. */
export const written = ({ names, view }) => [names.map(encodeURIComponent).join(","), view.log && "log", view.clip && "clip",
  (Number.isFinite(view.low) || Number.isFinite(view.high)) && `y=${view.low ?? ""}:${view.high ?? ""}`].filter(Boolean).join(";");

export function read(text) {
  const [names, ...options] = text.split(";"), range = options.find((one) => one.startsWith("y="))?.slice(2).split(":") ?? ["", ""];
  const number = (part) => (part && Number.isFinite(Number(part)) ? Number(part) : null);
  let decoded = [];
  try { decoded = names.split(",").filter(Boolean).map(decodeURIComponent); } catch { /* a damaged address names no metric */ }
  return { names: decoded, view: { log: options.includes("log"), clip: options.includes("clip"), low: number(range[0]), high: number(range[1]) } };
}
