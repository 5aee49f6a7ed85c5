// The server's answers. Whoever is not signed in is sent to the door.

export class Refused extends Error {}

async function answered(response) {
  if (response.status === 401) { location.assign("/login"); throw new Refused("sign in first"); }
  const body = await response.json();
  if (!response.ok) throw new Refused(body.error || `the server answered ${response.status}`);
  return body;
}

export async function get(path, params = {}, signal = undefined) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const each of Array.isArray(value) ? value : [value]) if (each !== null && each !== undefined) query.append(name, each);
  }
  const text = query.toString();
  return answered(await fetch(`/api/${path}${text ? `?${text}` : ""}`, { signal }));
}

export async function act(run, action, value = null) {
  const headers = { "Content-Type": "application/json", "X-Distrl": "1" };
  const body = JSON.stringify({ action, value });
  return (await answered(await fetch(`/api/runs/${run}/control`, { method: "POST", headers, body }))).told;
}

export async function signOut() {
  const headers = { "Content-Type": "application/json", "X-Distrl": "1" };
  await answered(await fetch("/logout", { method: "POST", headers, body: "{}" }));
  location.assign("/login");
}

/** Server-sent events; returns a function that ends them. The browser connects again by itself. */
export function stream(params, listeners) {
  const source = new EventSource(`/api/stream?${new URLSearchParams(params)}`);
  const shown = document.getElementById("connection");
  source.onopen = () => (shown.textContent = "");
  source.onerror = () => (shown.textContent = "connection lost, trying again …");
  for (const [name, listener] of Object.entries(listeners)) {
    source.addEventListener(name, (event) => listener(JSON.parse(event.data)));
  }
  return () => { source.close(); shown.textContent = ""; };
}
