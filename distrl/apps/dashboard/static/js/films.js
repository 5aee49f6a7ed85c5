// The films of a run on a line of steps; the chosen one plays.
import { h, say } from "./dom.js";
import { get } from "./api.js";
import { remember, remembered } from "./address.js";
import { ago, bytes, whole } from "./format.js";

export function filmsPanel(id) {
  const none = h("p", { class: "empty" }, "Loading …");
  const line = h("div", { class: "timeline", role: "group", "aria-label": "Films by environment steps" });
  const others = h("div", { class: "toolbar" }), caption = h("p", { class: "muted" });
  const link = h("a", { download: "" }, "Download");
  const cannot = h("p", { class: "muted", hidden: true }, "This browser cannot play the film.");
  const video = h("video", { controls: true, loop: true, preload: "auto", "aria-label": "Film of an evaluation", on: { error: () => { cannot.hidden = false; }, loadeddata: () => { cannot.hidden = true; } } });
  const stage = h("div", { class: "stage", hidden: true }, line, others, video, cannot, h("p", { class: "under" }, caption, " ", link));
  let isOpen = false, shown = "", chosen = remembered("film");

  async function load() {
    if (!isOpen) return;
    try {
      draw((await get(`runs/${id}/films`)).films);
    } catch (error) {
      none.hidden = false;
      say(none, error.message);
    }
  }

  function draw(films) {
    none.hidden = films.length > 0;
    stage.hidden = films.length === 0;
    say(none, "The run has no film. Set evaluation.films, or make one: distrl evaluate RUN --video RUN/best.webm");
    const text = JSON.stringify(films);
    if (!films.length || shown === text) return;
    shown = text;
    const timed = films.filter((film) => film.env_steps !== null), rest = films.filter((film) => film.env_steps === null);
    const most = Math.max(1, ...timed.map((film) => film.env_steps));
    line.hidden = timed.length === 0;
    const place = (film) => { const button = face(film, whole(film.env_steps)); button.style.left = `${100 * film.env_steps / most}%`; return button; };
    line.replaceChildren(...timed.map(place));
    others.replaceChildren(...rest.map((film) => face(film, film.is_best ? "best" : film.name)));
    const found = films.find((film) => film.name === chosen) ?? rest.find((film) => film.is_best) ?? [...films].sort((one, other) => other.saved - one.saved)[0];
    choose(found);
  }

  function face(film, text) {
    return h("button", { type: "button", class: "small film", "data-name": film.name, "aria-pressed": "false", title: film.name, "aria-label": film.env_steps === null ? `Film ${text}` : `Film at ${text} steps`,
      on: { click: () => { remember("film", film.name); choose(film); video.play().catch(() => {}); } } }, h("span", {}, text));
  }

  function choose(film) {
    chosen = film.name;
    for (const button of stage.querySelectorAll("button.film")) button.setAttribute("aria-pressed", String(button.dataset.name === film.name));
    const address = `/api/runs/${id}/films/${film.name.split("/").map(encodeURIComponent).join("/")}`;
    const versioned = `${address}?at=${film.saved}`; // a better one may have replaced it under its name
    if (video.getAttribute("src") !== versioned) video.src = versioned;
    link.href = address;
    say(caption, `${film.name} · ${film.env_steps === null ? "" : `${whole(film.env_steps)} steps · `}${bytes(film.size_bytes)} · ${ago(film.saved)}`);
  }
  return { element: h("div", {}, stage, none), open: () => { isOpen = true; return load(); }, close: () => { isOpen = false; video.pause(); }, changed: load };
}
