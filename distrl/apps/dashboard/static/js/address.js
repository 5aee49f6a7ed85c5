// The part of a view's state that is in the address, so that a view is a link and outlives a reload.

export const addressed = () => new URLSearchParams(location.hash.split("?")[1] ?? "");

/** Sets names of the query: a text, several, or null for none. Other names stay, and no page is loaded. */
export function keepInAddress(changes) {
  const query = addressed();
  for (const [name, value] of Object.entries(changes)) {
    query.delete(name);
    for (const each of Array.isArray(value) ? value : [value]) if (each !== null && each !== undefined && each !== "") query.append(name, each);
  }
  const text = query.toString();
  history.replaceState(null, "", `${location.hash.split("?")[0] || "#/"}${text ? `?${text}` : ""}`);
}

/** One value by name; usual values are left out. */
export const remembered = (name, usual = "") => addressed().get(name) ?? usual;

export const remember = (name, value, usual = "") => keepInAddress({ [name]: value === usual ? null : value });
