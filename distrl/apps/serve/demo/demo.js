// Catch: the page steps the games, `distrl serve --learn` chooses the moves and learns from their rewards.

const WIDTH = 9, HEIGHT = 10, GAMES = 16, FRAME_MS = 90, WINDOW = 100;
const WATCHED = "watched";
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

// The way to the server: one WebSocket, and for each session one message under way.
class Server {
  constructor(onclose) {
    this.waiting = new Map();
    const token = new URLSearchParams(location.hash.slice(1)).get("token");
    const url = new URL("../ws", location.href);
    url.protocol = url.protocol.replace("http", "ws");
    url.hash = "";
    this.socket = new WebSocket(url, token ? ["json", `bearer.${token}`] : ["json"]);
    this.opened = new Promise((resolve) => (this.socket.onopen = resolve));
    this.socket.onclose = onclose;
    this.socket.onmessage = (event) => {
      const reply = JSON.parse(event.data);
      const settle = this.waiting.get(reply.session);
      this.waiting.delete(reply.session);
      settle?.(reply);
    };
  }

  ask(message) {
    this.socket.send(JSON.stringify(message));
    return new Promise((resolve) => this.waiting.set(message.session, resolve));
  }
}

// What the page shows.
const shown = { balls: 0, results: [], curve: [], version: 0, yours: [0, 0], game: null, caption: "" };

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

// One episode of a session; `each` is awaited after every step. Returns its reward, or nothing if the server refused.
async function episode(server, session, game, each, fields = {}) {
  let reply = await server.ask({ session, observation: game.reset(), begins: true, ...fields });
  for (let step = 0; !reply.error; step += 1) {
    await each?.();
    const { over, reward } = game.step(reply.action);
    const result = { session, reward, step, observation: game.observation(), terminated: over, ...fields };
    reply = await server.ask(result);
    if (over && !reply.error) return { reward, version: reply.version };
  }
  shown.caption = `the server refuses: ${reply.error}`;
  await pause((reply.wait_s ?? 1) * 1000);
}

// Plays for ever without showing it, while the page is to learn.
async function learn(server, session) {
  const game = new Catch();
  for (;;) {
    if (!pressed("learn") || document.hidden) {
      await pause(200);
      continue;
    }
    const found = await episode(server, session, game);
    if (found) count(found.reward, found.version);
  }
}

let wanted = 1;

async function watch(server) {
  const game = (shown.game = new Catch());
  const slowly = () => pause(FRAME_MS);
  for (;;) {
    if (pressed("play")) {
      shown.caption = "you play";
      await yours(game);
    } else {
      shown.caption = "the policy plays its best moves";
      const found = await episode(server, WATCHED, game, slowly, { greedy: true });
      if (found) shown.version = found.version;
      await pause(3 * FRAME_MS);
    }
  }
}

async function yours(game) {
  game.reset();
  for (let over = false; !over && pressed("play"); ) {
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
  at("who").textContent = shown.caption;
  at("balls").textContent = shown.balls.toLocaleString("en");
  at("caught").textContent = shown.results.length ? `${Math.round(100 * share())} % of the last ${shown.results.length}` : "–";
  at("version").textContent = shown.version || "–";
  at("you").textContent = shown.yours[1] ? `${shown.yours[0]} of ${shown.yours[1]}` : "–";
}

async function main() {
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
  const server = new Server(() => (shown.caption = "the server has gone; load the page again"));
  await server.opened;
  watch(server);
  for (let number = 0; number < GAMES; number += 1) learn(server, number);
  for (;;) {
    paint();
    await frame();
  }
}

main();
