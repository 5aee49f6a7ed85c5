// Catch: the page steps the games, `distrl serve --learn` chooses the moves and learns from their rewards.

const WIDTH = 9, HEIGHT = 10, GAMES = 16, FRAME_MS = 90, WINDOW = 100;
const WATCHED = "watched", ANSWER_MS = 10_000, LONGEST_WAIT_S = 8;
const GONE = "the server has gone";
const TOKEN_HELP = "write #token=TOKEN at the end of this page's address";
const NO_TOKEN_OF_A_PAGE = "no page can send this token; give the server one of letters and digits";
const UNLEARNED = "not learned from";
const at = (id) => document.getElementById(id);

// A ball falls and drifts between two walls; the paddle, of one cell, moves by one cell a step.
export class Catch {
  reset() {
    this.ball = [Math.floor(Math.random() * WIDTH), 0];
    this.drift = Math.floor(Math.random() * 3) - 1;
    this.paddle = Math.floor(WIDTH / 2);
    return this.observation();
  }

  observation() {
    const scaled = (cell, cells) => (2 * cell) / (cells - 1) - 1;
    return [scaled(this.ball[0], WIDTH), scaled(this.ball[1], HEIGHT), this.drift, scaled(this.paddle, WIDTH)];
  }

  // action: 0 left, 1 stay, 2 right. Returns whether the ball is down, and the reward.
  step(action) {
    this.paddle = Math.min(Math.max(this.paddle + action - 1, 0), WIDTH - 1);
    if (this.ball[0] + this.drift < 0 || this.ball[0] + this.drift >= WIDTH) this.drift = -this.drift;
    this.ball = [this.ball[0] + this.drift, this.ball[1] + 1];
    const over = this.ball[1] === HEIGHT - 1;
    return { over, reward: over ? (this.ball[0] === this.paddle ? 1 : -1) : 0 };
  }
}

// Why the server does not serve this page, in words. `lasts`: until the page's address is another one.
class Problem extends Error {
  constructor(text, lasts = false) {
    super(text);
    this.lasts = lasts;
  }
}

// The way to the server: one WebSocket, and for each session one message under way. `closed` rejects at its end.
class Server {
  constructor(token) {
    const url = new URL("../ws", location.href);
    url.protocol = url.protocol.replace("http", "ws");
    url.hash = "";
    this.waiting = new Map();
    this.socket = new WebSocket(url, token ? ["json", `bearer.${token}`] : ["json"]);
    this.opened = new Promise((resolve) => (this.socket.onopen = resolve));
    this.closed = new Promise((_, reject) => (this.socket.onclose = () => reject(new Problem(GONE))));
    this.closed.catch((problem) => this.waiting.forEach(({ reject }) => reject(problem)));
    this.socket.onmessage = (event) => {
      const reply = JSON.parse(event.data);
      const waits = this.waiting.get(reply.session);
      this.waiting.delete(reply.session);
      waits?.resolve(reply);
    };
  }

  get isOpen() {
    return this.socket.readyState === WebSocket.OPEN;
  }

  ask(message) {
    if (!this.isOpen) return this.closed;
    this.socket.send(JSON.stringify(message));
    return new Promise((resolve, reject) => this.waiting.set(message.session, { resolve, reject }));
  }
}

// Returns a connection, or throws a Problem. It acts once by HTTP first: why a WebSocket is refused, no page is told.
async function connected() {
  const token = new URLSearchParams(location.hash.slice(1).replaceAll("+", "%2B")).get("token");
  if (/[^\w!#$%&'*+.^`|~-]/.test(token ?? "")) throw new Problem(NO_TOKEN_OF_A_PAGE, true);
  const headers = { "content-type": "application/json", ...(token && { authorization: `Bearer ${token}` }) };
  const asked = { method: "POST", headers, body: JSON.stringify({ observation: new Catch().reset() }) };
  const reply = await fetch("../act", { ...asked, signal: AbortSignal.timeout(ANSWER_MS) }).catch(() => {
    throw new Problem(GONE);
  });
  if (!reply.ok) throw await refusal(reply, token);
  const server = new Server(token);
  const full = server.closed.catch(() => {
    throw new Problem("the server takes no WebSocket: it has too many, or a proxy in front passes none on");
  });
  await Promise.race([server.opened, full]);
  return server;
}

async function refusal(reply, token) {
  const { error = `HTTP ${reply.status}` } = await reply.json().catch(() => ({}));
  if (reply.status === 401 && !token) return new Problem(`the server needs a token: ${TOKEN_HELP}`, true);
  const text = `the server refuses: ${error}`;
  if (reply.status === 401 || (reply.status === 403 && token)) return new Problem(`${text}; ${TOKEN_HELP}`, true);
  return new Problem(text);
}

// What the page shows. problem: why it has no server. games: of each, why nothing is learned of it; null: not known yet.
const shown = { balls: 0, results: [], curve: [], version: 0, yours: [0, 0], game: null, caption: "" };
Object.assign(shown, { problem: "connecting …", games: Array(GAMES).fill(null) });

function count(reward, version) {
  shown.balls += 1;
  shown.version = version;
  shown.results.push(reward > 0 ? 1 : 0);
  if (shown.results.length > WINDOW) shown.results.shift();
  if (shown.balls % 20 === 0) {
    shown.curve.push([shown.balls, share()]);
    if (shown.curve.length > 400) shown.curve = shown.curve.filter((_, number) => number % 2);
  }
}

const share = () => shown.results.reduce((sum, one) => sum + one, 0) / shown.results.length;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const pressed = (id) => at(id).getAttribute("aria-pressed") === "true";
const frame = () => new Promise(requestAnimationFrame);
const otherAddress = () => new Promise((resolve) => addEventListener("hashchange", resolve, { once: true }));

// One episode; `each` is awaited after every step. Returns its last reply, with its reward. It is left at once if
// the server refuses, or does not learn from it although it should.
async function episode(server, session, game, each, fields = {}) {
  let reply = await server.ask({ session, observation: game.reset(), begins: true, ...fields });
  for (let step = 0; !reply.error && (reply.learns || fields.greedy); step += 1) {
    await each?.();
    const { over, reward } = game.step(reply.action);
    const result = { session, reward, step, observation: game.observation(), terminated: over, ...fields };
    reply = await server.ask(result);
    if (over) return { reward, ...reply };
  }
  return reply;
}

// Plays without showing it, while the page is to learn.
async function learn(server, session) {
  const game = new Catch();
  while (server.isOpen) {
    if (!pressed("learn") || document.hidden) {
      await pause(200);
      continue;
    }
    const { error, learns, reward, version, wait_s = 2 } = await episode(server, session, game);
    shown.games[session] = error ? `the server refuses: ${error}` : learns ? "" : UNLEARNED;
    if (shown.games[session]) await pause(1000 * wait_s);
    else count(reward, version);
  }
}

let wanted = 1;

async function watch(server) {
  const game = (shown.game = new Catch());
  const slowly = () => pause(FRAME_MS);
  let refused = "";
  while (server.isOpen) {
    if (pressed("play")) {
      shown.caption = "you play";
      await yours(game, server);
    } else {
      shown.caption = refused || "the policy plays its best moves";
      const { error, version, wait_s = 1 } = await episode(server, WATCHED, game, slowly, { greedy: true });
      refused = error ? `the server refuses: ${error}` : "";
      shown.version = version ?? shown.version;
      await pause(error ? 1000 * wait_s : 3 * FRAME_MS);
    }
  }
}

async function yours(game, server) {
  game.reset();
  for (let over = false; !over && pressed("play") && server.isOpen; ) {
    await pause(2 * FRAME_MS);
    const result = game.step(wanted);
    wanted = 1;
    over = result.over;
    if (over) {
      shown.yours[0] += result.reward > 0 ? 1 : 0;
      shown.yours[1] += 1;
    }
  }
  await pause(2 * FRAME_MS);
}

// Whether the policy learns, and why not, as far as the page knows.
function state() {
  if (shown.problem) return shown.problem;
  if (!pressed("learn")) return "nothing is learned now: you have paused it";
  if (shown.games.includes(null)) return "the games begin …";
  const reasons = shown.games.filter(Boolean);
  const refused = reasons.find((reason) => reason !== UNLEARNED);
  if (reasons.length === 0) return `the policy learns from ${GAMES} games beside the one shown`;
  if (reasons.length < GAMES) return `some games are not learned from: ${refused ?? "other clients have the places"}`;
  return `nothing is learned now: ${refused ?? "the run has ended or is away, or other clients have all its places"}`;
}

// Only changes are written: a screen reader reads them out.
function write(id, text) {
  if (at(id).textContent !== text) at(id).textContent = text;
}

function paint() {
  const style = getComputedStyle(document.body);
  const [ink, line, accent] = ["--ink", "--line", "--accent"].map((name) => style.getPropertyValue(name));
  const canvas = at("game"), board = canvas.getContext("2d"), { game } = shown;
  const [w, h] = [canvas.width / WIDTH, canvas.height / HEIGHT];
  board.clearRect(0, 0, canvas.width, canvas.height);
  if (game?.ball) {
    board.fillStyle = accent;
    board.beginPath();
    board.arc((game.ball[0] + 0.5) * w, (game.ball[1] + 0.5) * h, 0.35 * w, 0, 2 * Math.PI);
    board.fill();
    board.fillStyle = ink;
    board.fillRect(game.paddle * w, canvas.height - 0.3 * h, w, 0.3 * h);
  }
  const plot = at("curve"), pen = plot.getContext("2d"), left = 44, top = 8, bottom = plot.height - 24;
  pen.clearRect(0, 0, plot.width, plot.height);
  pen.font = "12px system-ui, sans-serif";
  pen.fillStyle = pen.strokeStyle = line;
  for (const part of [0, 0.5, 1]) {
    const y = bottom - part * (bottom - top);
    pen.strokeStyle = line;
    pen.beginPath();
    pen.moveTo(left, y);
    pen.lineTo(plot.width, y);
    pen.stroke();
    pen.fillStyle = ink;
    pen.fillText(`${100 * part} %`, 4, y + 4);
  }
  const most = Math.max(shown.balls, 1);
  pen.fillText(`${shown.balls.toLocaleString("en")} balls`, plot.width - 90, plot.height - 6);
  pen.strokeStyle = accent;
  pen.lineWidth = 2;
  pen.beginPath();
  for (const [balls, part] of shown.curve) {
    pen.lineTo(left + (balls / most) * (plot.width - left), bottom - part * (bottom - top));
  }
  pen.stroke();
  pen.lineWidth = 1;
  write("state", state());
  write("who", shown.caption);
  write("balls", shown.balls.toLocaleString("en"));
  write("caught", shown.results.length ? `${Math.round(100 * share())} % of the last ${shown.results.length}` : "–");
  write("version", String(shown.version || "–"));
  write("you", shown.yours[1] ? `${shown.yours[0]} of ${shown.yours[1]}` : "–");
}

async function paintAlways() {
  for (;;) {
    paint();
    await frame();
  }
}

// Plays with one connection after another.
async function serve() {
  for (let wait_s = 1; ; wait_s = Math.min(2 * wait_s, LONGEST_WAIT_S)) {
    try {
      const server = await connected();
      wait_s = 0.5;
      shown.problem = "";
      shown.games.fill(null);
      await Promise.all([server.closed, watch(server), ...shown.games.map((_, session) => learn(server, session))]);
    } catch (problem) {
      const isKnown = problem instanceof Problem;
      shown.caption = "no game without the server";
      shown.problem = isKnown ? problem.message : `this page has failed: ${problem.message}; load it again`;
      if (!isKnown) throw problem;
      if (!problem.lasts) shown.problem += "; this page tries again every few seconds";
      await (problem.lasts ? otherAddress() : pause(1000 * wait_s));
    }
  }
}

function main() {
  for (const id of ["play", "learn"]) {
    at(id).addEventListener("click", () => at(id).setAttribute("aria-pressed", String(!pressed(id))));
  }
  addEventListener("keydown", ({ key }) => {
    if (key === "ArrowLeft") wanted = 0;
    if (key === "ArrowRight") wanted = 2;
  });
  at("game").addEventListener("pointerdown", (event) => {
    wanted = event.offsetX < event.target.clientWidth / 2 ? 0 : 2;
  });
  paintAlways();
  serve();
}

main();
