// The bell: alerts of all runs. Which of them have been seen, and whether this browser notifies, is kept in the browser.
import { get } from "./api.js";
import { announce, h, say } from "./dom.js";
import { ago, moment } from "./format.js";

const SHOWN_MS = 5000, HIDDEN_MS = 15000; // between requests, of a visible and of a hidden tab
const MOST_SEEN = 400;
const SEVERITIES = [["", "All"], ["bad", "Bad"], ["warning", "Warning"], ["info", "Info"]];
const SEEN = "distrl-alerts-seen", NOTIFY = "distrl-alerts-notify";
let plainTitle = document.title, unseen = 0;

/** Sets the title of the page; the number of unseen alerts stands before it. */
export function titled(text) {
  plainTitle = text;
  document.title = unseen ? `(${unseen}) ${text}` : text;
}

export function bell() {
  const view = new Bell();
  view.ask();
  return view;
}

class Bell {
  constructor() {
    this.alerts = [];
    this.mark = null;
    this.severity = "";
    this.button = document.getElementById("bell");
    this.badge = h("span", { class: "badge", hidden: true, "aria-hidden": "true" });
    this.button.append(this.badge);
    this.list = h("ul", { class: "alerts" });
    this.none = h("p", { class: "empty" });
    this.problem = h("p", { class: "problem", role: "alert" });
    this.segments = SEVERITIES.map(([severity, text]) => h("button", { type: "button", on: { click: () => { this.severity = severity; this.draw(); } } }, text));
    this.allSeen = h("button", { type: "button", class: "small", on: { click: () => this.see(this.alerts.map(({ id }) => id)) } }, "Mark all as seen");
    this.notify = h("button", { type: "button", class: "small", on: { click: () => this.turnNotifications() } });
    this.panel = h("section", { id: "alerts", class: "alert-panel", "aria-label": "Alerts", hidden: true, tabindex: -1 },
      h("div", { class: "alert-head" }, h("h2", {}, "Alerts"), h("div", { class: "segments", role: "group", "aria-label": "Severity" }, this.segments)),
      this.problem, this.list, this.none, h("div", { class: "alert-foot" }, this.allSeen, this.notify));
    this.button.parentElement.after(this.panel);
    this.button.addEventListener("click", () => this.open(this.panel.hidden));
    addEventListener("keydown", (event) => { if (event.key === "Escape" && !this.panel.hidden) this.open(false, true); });
    document.addEventListener("pointerdown", ({ target }) => { if (!this.panel.contains(target) && !this.button.contains(target)) this.open(false); });
    this.panel.addEventListener("focusout", ({ relatedTarget: to }) => { if (to && !this.panel.contains(to) && !this.button.contains(to)) this.open(false); });
    addEventListener("hashchange", () => this.open(false));
    addEventListener("storage", ({ key }) => { if (key === SEEN || key === NOTIFY) this.draw(); }); // another tab
    document.addEventListener("visibilitychange", () => { if (document.visibilityState === "visible") this.ask(); });
    this.draw();
  }

  open(wanted, back = false) {
    this.panel.hidden = !wanted;
    this.button.setAttribute("aria-expanded", String(wanted));
    if (wanted) { this.draw(); this.panel.focus(); } else if (back) this.button.focus();
  }

  async ask() {
    clearTimeout(this.timer);
    if (this.asking) return;
    this.asking = true;
    try {
      const told = await get("alerts", { since: this.mark });
      if (told.alerts) this.take(told.alerts);
      this.on = told.on;
      say(this.problem, told.problem ? `The runs cannot be watched: ${told.problem}. The dashboard's log has the details.` : "");
      this.mark = told.mark;
    } catch { /* the page itself says that the server is away */ }
    this.asking = false;
    if (!this.panel.hidden) this.draw(); // how long ago changes
    this.timer = setTimeout(() => this.ask(), document.visibilityState === "visible" ? SHOWN_MS : HIDDEN_MS);
  }

  take(alerts) {
    const before = new Set(this.alerts.map(({ id }) => id));
    const fresh = this.mark === null ? [] : alerts.filter(({ id }) => !before.has(id));
    this.alerts = alerts;
    this.draw();
    for (const alert of fresh.reverse()) {
      announce(`${alert.severity}: ${alert.name}: ${alert.text}`);
      this.show(alert);
    }
  }

  /** A notification of the browser, if this one was asked for; one of several tabs shows it. */
  show(alert) {
    if (!notifies() || (document.visibilityState === "visible" && document.hasFocus())) return;
    const shown = new Notification(`distrl: ${alert.name}`, { body: alert.text, tag: alert.id, icon: "/static/icon.svg" });
    shown.onclick = () => { focus(); location.hash = `#/run/${alert.run}`; shown.close(); };
  }

  async turnNotifications() {
    if (notifies()) localStorage.removeItem(NOTIFY);
    else if ((await Notification.requestPermission()) === "granted") localStorage.setItem(NOTIFY, "on");
    this.draw();
  }

  see(ids) {
    const there = new Set(this.alerts.map(({ id }) => id));
    const kept = [...new Set([...seen(), ...ids])].filter((id) => there.has(id)).slice(-MOST_SEEN);
    localStorage.setItem(SEEN, JSON.stringify(kept));
    this.draw();
    if (!this.panel.contains(document.activeElement)) this.panel.focus(); // the button that was pressed is gone
  }

  draw() {
    const known = new Set(seen()), open = this.alerts.filter(({ id }) => !known.has(id));
    unseen = open.length;
    titled(plainTitle);
    this.badge.hidden = unseen === 0;
    say(this.badge, unseen > 99 ? "99+" : String(unseen));
    this.badge.className = `badge ${worst(open)}`;
    this.button.setAttribute("aria-label", unseen ? `Alerts, ${unseen} unseen` : "Alerts");
    document.querySelector('link[rel="icon"]').href = worst(open) === "bad" ? "/static/icon-alert.svg" : "/static/icon.svg";
    if (this.panel.hidden) return;
    this.segments.forEach((button, at) => button.setAttribute("aria-pressed", String(SEVERITIES[at][0] === this.severity)));
    const shown = this.alerts.filter(({ severity }) => !this.severity || severity === this.severity);
    const held = document.activeElement?.closest?.("[data-alert]")?.dataset.alert; // the list is made anew around the focus
    const kind = document.activeElement?.tagName;
    this.list.replaceChildren(...shown.map((alert) => this.item(alert, known.has(alert.id))));
    if (held) this.list.querySelector(`[data-alert="${held}"] ${kind}`)?.focus();
    this.none.hidden = shown.length > 0;
    say(this.none, this.on === false ? "Alerts are off (--alerts off)." : this.alerts.length ? "No alert of that severity." : "No alerts since the dashboard was started.");
    this.allSeen.disabled = unseen === 0;
    const possible = "Notification" in window && isSecureContext;
    this.notify.disabled = !possible || Notification.permission === "denied";
    this.notify.title = possible ? "" : "The browser allows notifications only over https or on this machine";
    say(this.notify, notifies() ? "Turn off notifications" : this.notify.disabled ? "Notifications are blocked" : "Notify me in this browser");
  }

  item(alert, isSeen) {
    const cleared = alert.cleared === null ? "" : ` · cleared ${ago(alert.cleared)}`;
    return h("li", { class: `${alert.severity}${isSeen ? " seen" : ""}${cleared ? " cleared" : ""}`, "data-alert": alert.id },
      h("span", { class: "severity" }, alert.severity),
      h("a", { href: `#/run/${alert.run}`, on: { click: () => this.see([alert.id]) } }, alert.name),
      h("span", { class: "when", title: moment(alert.at) }, `${ago(alert.at)}${cleared}`),
      isSeen ? h("span", { class: "muted" }, "seen") : h("button", { type: "button", class: "small quiet", "aria-label": `Mark as seen: ${alert.name}: ${alert.text}`, on: { click: () => this.see([alert.id]) } }, "Mark seen"),
      h("p", {}, alert.text));
  }
}

const worst = (alerts) => ["bad", "warning", "info"].find((severity) => alerts.some((alert) => alert.severity === severity)) ?? "";
const notifies = () => "Notification" in window && Notification.permission === "granted" && localStorage.getItem(NOTIFY) === "on";

function seen() {
  try {
    const found = JSON.parse(localStorage.getItem(SEEN) ?? "[]");
    return Array.isArray(found) ? found : [];
  } catch { return []; }
}
