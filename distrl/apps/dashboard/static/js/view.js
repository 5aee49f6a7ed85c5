// What the list of runs shows, as it stands in the address: #/?query=…&sort=…&page=2&column=…&group=…&open=….
export const ROWS = 100;

export function viewOf(parameters) {
  return {
    query: parameters.get("query") ?? "",
    sort: parameters.get("sort") ?? "-started",
    page: Math.max(Number.parseInt(parameters.get("page") ?? "1", 10) || 1, 1),
    columns: parameters.has("column") ? parameters.getAll("column") : null,
    group: parameters.get("group") ?? "",
    open: parameters.getAll("open"),
    fold: parameters.getAll("fold"),
  };
}

export function addressOf(view) {
  const found = new URLSearchParams();
  if (view.query) found.set("query", view.query);
  if (view.sort !== "-started") found.set("sort", view.sort);
  if (view.page > 1) found.set("page", view.page);
  for (const name of view.columns ?? []) found.append("column", name);
  if (view.group) found.set("group", view.group);
  for (const label of view.open) found.append("open", label);
  for (const label of view.fold) found.append("fold", label);
  const text = found.toString();
  return text ? `#/?${text}` : "#/";
}

/** The parameters of the server's answer to a view. */
export const asked = (view) => ({
  query: view.query || null, sort: view.sort, offset: (view.page - 1) * ROWS || null, limit: ROWS,
  column: view.columns, group: view.group || null, open: view.open, fold: view.fold,
});

export const isOpen = (view, label) => (view.open.includes("*") ? !view.fold.includes(label) : view.open.includes(label));

/** The view with a group folded, or not. */
export function turned(view, label) {
  const all = view.open.includes("*"), list = all ? view.fold : view.open;
  const next = list.includes(label) ? list.filter((one) => one !== label) : [...list, label];
  return all ? { ...view, fold: next } : { ...view, open: next };
}

/** The query with a term, or without it if it has it. */
export function toggled(query, term) {
  const terms = query.match(/(?:[^\s"]|"[^"]*"?)+/g) ?? [];
  return (terms.includes(term) ? terms.filter((one) => one !== term) : [...terms, term]).join(" ");
}

export const hasTerm = (query, term) => (query.match(/(?:[^\s"]|"[^"]*"?)+/g) ?? []).includes(term);
