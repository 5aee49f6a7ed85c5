// The part of a view's state that is in the address, after "?" of the hash. Usual values are left out.

const query = () => new URLSearchParams(location.hash.split("?")[1] ?? "");

export const remembered = (name, usual = "") => query().get(name) ?? usual;

/** Puts a value into the address, without a new entry of the history. */
export function remember(name, value, usual = "") {
  const parameters = query();
  if (value === usual) parameters.delete(name);
  else parameters.set(name, value);
  const text = parameters.toString();
  history.replaceState(null, "", `${location.hash.split("?")[0] || "#/"}${text ? `?${text}` : ""}`);
}
