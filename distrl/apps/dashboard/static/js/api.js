// Requests to the server. A browser that is not signed in is sent to the sign-in page.

export class Refused extends Error {}
export class SignedOut extends Refused {}

const TIMEOUT_MS = 10000;
const CHANGE_MS = 120000; // to delete hundreds of directories takes long
const VALID_S = 8; // an action that comes later is not carried out: less than the page waits for its answer
const ACTING = { "Content-Type": "application/json", "X-Distrl": "1" };
let clock = null; // the server's, and ours at that moment

async function asked(address, options = {}, signal = undefined, timeout = TIMEOUT_MS) {
  const late = AbortSignal.timeout(timeout);
  try {
    const response = await fetch(address, { ...options, signal: signal ? AbortSignal.any([signal, late]) : late });
    if (response.status === 401) { location.assign("/login"); throw new SignedOut("sign in first"); }
    const body = await response.json();
    if (!response.ok) throw new Refused(body.error || `the server answered ${response.status}`);
    if (typeof body.at === "number") clock = [body.at, performance.now()];
    return body;
  } catch (error) {
    if (error instanceof Refused || signal?.aborted) throw error;
    throw new Error(late.aborted ? `the server has not answered for ${timeout / 1000} s` : "the server cannot be reached");
  }
}

export async function get(path, params = {}, signal = undefined, timeout = TIMEOUT_MS) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const each of Array.isArray(value) ? value : [value]) if (each !== null && each !== undefined) query.append(name, each);
  }
  const text = query.toString();
  return asked(`/api/${path}${text ? `?${text}` : ""}`, {}, signal, timeout);
}

/** The time, by the server's clock as far as we know it, after which an action is not carried out: never later than meant. */
export const limit = () => clock && clock[0] + (performance.now() - clock[1]) / 1000 + VALID_S;

export async function act(run, action, value = null) {
  const body = JSON.stringify({ action, value, deadline: limit() });
  try {
    return (await asked(`/api/runs/${run}/control`, { method: "POST", headers: ACTING, body })).message;
  } catch (error) {
    if (error instanceof Refused) throw error;
    throw new Error(`${error.message}; what it has not done by now, it does not do later`);
  }
}

/** Changes something by a request of its own; it may take a while. */
export const change = (path, body) => asked(`/api/${path}`, { method: "POST", headers: ACTING, body: JSON.stringify(body) }, undefined, CHANGE_MS);

export async function signOut() {
  await asked("/logout", { method: "POST", headers: ACTING, body: "{}" });
  location.assign("/login");
}
