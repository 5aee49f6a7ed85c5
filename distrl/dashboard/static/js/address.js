// What a page shows is kept in the query of its address, so that a view is a link and outlives a reload.

function parts() {
  const [path, query = ""] = location.hash.slice(1).split("?");
  return [path || "/", new URLSearchParams(query)];
}

/** Sets names of the query: a text, several, or null for none. Other names stay, and no page is loaded. */
export function remember(changes) {
  const [path, query] = parts();
  for (const [name, value] of Object.entries(changes)) {
    query.delete(name);
    for (const each of Array.isArray(value) ? value : [value]) if (each !== null && each !== undefined && each !== "") query.append(name, each);
  }
  const text = query.toString();
  history.replaceState(null, "", `#${path}${text ? `?${text}` : ""}`);
}

export const remembered = () => parts()[1];
