// New trainings: an editor of a configuration, checked by the server while it is typed; cloning and resuming of runs.
import { change, get, limit } from "./api.js";
import { announce, h, say, settled } from "./dom.js";

const SETTLED_MS = 350, POLL_MS = 700;

/** The page #/new, with `preset` or `run` in the address: what the editor begins with. */
export async function startPage({ session, parameters }) {
  if (!session.may_start) throw new Error("This dashboard starts no trainings, or you may only look. distrl dashboard --allow-start lets those with the token start them.");
  const preset = parameters.get("preset"), run = parameters.get("run");
  const told = await get("draft", run ? { run } : preset ? { preset } : {});
  const cloned = run ? (await get(`runs/${run}`)).run : null;
  return new StartPage(told, preset, cloned);
}

class StartPage {
  constructor({ config, presets }, preset, cloned) {
    this.title = cloned ? `Clone of ${cloned.name}` : "New run";
    this.alive = true;
    this.edited = false;
    this.before = preset ?? "";
    const options = [["", cloned ? `The settings of ${cloned.name}` : "None: write it yourself"], ...Object.keys(presets).map((name) => [name, name])];
    this.preset = h("select", { id: "preset", on: { change: () => this.choose() } }, options.map(([value, text]) => h("option", { value, selected: value === (preset ?? "") }, text)));
    this.about = h("p", { class: "muted" }, preset ? presets[preset] : "");
    this.name = h("input", { id: "run-name", type: "text", class: "mono", value: suggested(cloned?.name ?? preset ?? "run"), maxlength: 80, spellcheck: "false", autocomplete: "off",
      "aria-describedby": "name-problem", on: { input: () => this.typed() } });
    this.nameProblem = h("p", { id: "name-problem", class: "draft-problem", role: "alert" });
    this.text = h("textarea", { id: "draft", class: "mono", spellcheck: "false", autocomplete: "off", autocapitalize: "off", wrap: "off", rows: 22, value: config,
      "aria-describedby": "draft-help draft-problem", on: { input: () => { this.edited = true; this.typed(); }, scroll: () => this.scrolled(),
        keydown: (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.start(); } } });
    this.gutter = h("pre", { class: "gutter mono", "aria-hidden": "true" });
    this.problem = h("p", { id: "draft-problem", class: "draft-problem", role: "alert" });
    this.jump = h("button", { type: "button", class: "small", hidden: true, on: { click: () => this.goToLine() } });
    this.summary = h("p", { class: "muted", role: "status" });
    this.button = h("button", { type: "button", class: "primary", disabled: true, on: { click: () => this.start() } }, "Start");
    this.said = h("p", { class: "said", role: "status" });
    this.soon = settled(SETTLED_MS, () => this.check());
    this.element = h("div", { class: "start" }, h("p", { class: "crumb" }, h("a", { href: "#/" }, "Runs"), " / ", cloned ? h("a", { href: `#/run/${cloned.id}` }, cloned.name) : "new"),
      h("div", { class: "head" }, h("h1", {}, cloned ? `Clone ${cloned.name}` : "New run")),
      h("div", { class: "start-grid" },
        h("section", { class: "card editor", "aria-label": "Configuration" },
          h("div", { class: "editor-head" }, h("label", { for: "draft" }, "Configuration (YAML)"), h("span", { id: "draft-help", class: "muted" }, "Tab leaves the editor; Ctrl-Enter starts")),
          h("div", { class: "editor-body" }, this.gutter, this.text)),
        h("section", { class: "card beside", "aria-label": "Start" },
          h("label", { for: "preset" }, "Begin with"), this.preset, this.about,
          h("label", { for: "run-name" }, "Name of the run directory"), this.name, this.nameProblem,
          this.problem, this.jump, this.summary, this.button, this.said,
          h("p", { class: "muted" }, "The training runs as the dashboard's user and goes on when the dashboard ends. Settings that you leave out have their defaults."))));
    this.typed();
  }

  shown() { this.scrolled(); this.text.focus(); }

  choose() {
    if (this.edited && !confirm("Replace what you have written?")) { this.preset.value = this.before; return; }
    location.hash = this.preset.value ? `#/new?preset=${encodeURIComponent(this.preset.value)}` : "#/new";
  }

  typed() {
    this.button.disabled = true;
    this.number();
    this.soon();
  }

  /** Numbers the lines, and marks the one with the problem. */
  number(marked = null) {
    const count = this.text.value.split("\n").length;
    this.gutter.replaceChildren(...Array.from({ length: count }, (_, at) => h("span", { class: at + 1 === marked ? "marked" : "" }, `${at + 1}\n`)));
    this.scrolled();
  }

  scrolled() { this.gutter.scrollTop = this.text.scrollTop; }

  draft() { return { name: this.name.value.trim(), config: this.text.value }; }

  async check() {
    const asked = this.draft();
    try {
      const { problems, summary } = await change("draft/check", asked);
      if (!this.alive || JSON.stringify(asked) !== JSON.stringify(this.draft())) return; // an older text
      this.show(problems, summary);
    } catch (error) {
      if (this.alive) this.show({ config: { text: error.message, line: null } }, null);
    }
  }

  show({ name = null, config = null }, summary) {
    say(this.nameProblem, name?.text ?? "");
    say(this.problem, config ? `${config.line ? `Line ${config.line}: ` : ""}${config.text}` : "");
    this.name.setAttribute("aria-invalid", String(Boolean(name)));
    this.text.setAttribute("aria-invalid", String(Boolean(config)));
    this.line = config?.line ?? null;
    this.jump.hidden = this.line === null;
    say(this.jump, `Go to line ${this.line}`);
    this.number(this.line);
    say(this.summary, summary ? `Valid: ${summary.env}, ${summary.algorithm}, ${summary.actors} ${summary.actors === 1 ? "actor" : "actors"}.` : "");
    this.button.disabled = Boolean(name || config) || this.busy === true;
  }

  goToLine() {
    const lines = this.text.value.split("\n"), begin = lines.slice(0, this.line - 1).join("\n").length + (this.line > 1 ? 1 : 0);
    this.text.focus();
    this.text.setSelectionRange(begin, begin + lines[this.line - 1].length);
    this.text.scrollTop = (this.line - 4) * (this.text.scrollHeight / lines.length);
  }

  async start() {
    if (this.button.disabled) return;
    this.busy = this.button.disabled = true;
    this.tell("starting …");
    try {
      await whenRunning(await change("start", { ...this.draft(), deadline: limit() }), () => this.alive, (text) => this.tell(text));
    } catch (error) {
      this.tell(error.message, true);
    }
    this.busy = false;
    if (this.alive) this.check();
  }

  tell(text, bad = false) {
    this.said.classList.toggle("bad", bad);
    say(this.said, text);
    if (bad) announce(text);
  }

  leave() { this.alive = false; }
}

/** Waits until a training that was started is a run, and opens its page; throws with the reason if it ends before. */
async function whenRunning({ id, name }, stays, tell) {
  for (let told = { state: "starting" }; stays(); told = await get(`starts/${id}`)) {
    if (told.state === "failed") throw new Error(told.problem);
    if (told.state !== "starting") { location.hash = `#/run/${id}`; return; }
    tell(`starting ${name}: it tries its environment and begins …`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** Buttons of a run's page that clone it, and resume it once it does not run; nothing without the right to start. */
export function startButtons(session, run) {
  const said = h("span", { class: "said", role: "status" });
  const resume = h("button", { type: "button", class: "small", on: { click: press } }, "Resume");
  const element = h("span", { class: "start-buttons" }, h("a", { class: "button small", href: `#/new?run=${run.id}` }, "Clone"), resume, said);
  let alive = true;
  element.hidden = !session.may_start;

  async function press() {
    if (!confirm(`Resume ${run.name}? Its configuration, and all code that it names, run as the dashboard's user. Look at it first if the run came from elsewhere.`)) return;
    resume.disabled = true;
    said.classList.remove("bad");
    try {
      const started = await change("resume", { run: run.id, deadline: limit() });
      await whenRunning(started, () => alive, (text) => say(said, text));
      say(said, "");
    } catch (error) {
      said.classList.add("bad");
      say(said, error.message);
      announce(error.message);
    }
    resume.disabled = false;
  }

  return { element, update: ({ state }) => { resume.hidden = !["ended", "gone"].includes(state); }, leave: () => { alive = false; } };
}

function suggested(base) {
  const now = new Date(), two = (number) => String(number).padStart(2, "0");
  const stem = base.replace(/-\d{4}-\d{6}$/, "").replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[^A-Za-z0-9]+/, "").slice(0, 60) || "run";
  return `${stem}-${two(now.getMonth() + 1)}${two(now.getDate())}-${two(now.getHours())}${two(now.getMinutes())}${two(now.getSeconds())}`;
}
