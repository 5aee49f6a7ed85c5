// A panel of charts as a text in the address.

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
