// Polls the server while the page is visible; shows the age of the data, and retries with back-off.
import { get } from "./api.js";
import { say } from "./dom.js";
import { duration } from "./format.js";

const CADENCE_MS = 1000;
const STALE_S = 5;
const LONGEST_MS = 8000; // from one attempt to the next

/** Calls `ask(signal, again)`; `again` is true after an outage. Returns a promise of the first answer, and a function that ends the polling. */
export function keepAsking(ask, everyMs = CADENCE_MS) {
  const lost = document.getElementById("connection"), heardOf = document.getElementById("heard");
  const leaving = new AbortController();
  let heard = performance.now(), failures = 0, asking = false, timer = 0;
  let resolve, reject;
  const first = new Promise((...both) => ([resolve, reject] = both));
  first.catch(() => {}); // a page that does not wait for it shows the outage

  function show() {
    const age = (performance.now() - heard) / 1000, stale = age >= STALE_S;
    document.body.toggleAttribute("data-stale", stale);
    say(lost, stale || failures ? "Connection lost, trying again …" : "");
    say(heardOf, stale ? `last heard of ${age < 60 ? `${Math.floor(age)} s` : duration(age)} ago` : "");
  }

  async function turn() {
    clearTimeout(timer);
    if (leaving.signal.aborted || asking || document.visibilityState !== "visible") return;
    asking = true;
    try {
      await ask(leaving.signal, failures > 0);
      [heard, failures] = [performance.now(), 0];
      resolve();
    } catch (error) {
      failures += 1;
      reject(error);
    }
    asking = false;
    if (leaving.signal.aborted) return;
    show();
    timer = setTimeout(turn, failures ? Math.min(everyMs * 2 ** (failures - 1), LONGEST_MS) * (0.75 + Math.random() / 2) : everyMs);
  }

  const ticker = setInterval(() => { if (document.visibilityState === "visible") show(); }, 1000);
  document.addEventListener("visibilitychange", turn);
  addEventListener("online", turn);
  turn();
  return {
    first,
    end() {
      leaving.abort();
      clearTimeout(timer);
      clearInterval(ticker);
      document.removeEventListener("visibilitychange", turn);
      removeEventListener("online", turn);
      [heard, failures] = [performance.now(), 0];
      show();
    },
  };
}

/** What changes of a run, or of the list: a listener by name. `again` is called after an outage, before they are. */
export function follow(params, listeners, again = () => {}) {
  let mark = null;
  return keepAsking(async (signal, outage) => {
    const told = await get("changes", { ...params, since: mark }, signal);
    if (mark !== null && (outage || told.fresh)) await again();
    for (const [name, data] of told.changes) await listeners[name]?.(data);
    mark = told.mark; // after a failed listener, the server sends everything again
  });
}
