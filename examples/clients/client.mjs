// A client of `distrl serve` for browsers and Node, without libraries: copy this file.
//
//     node client.mjs http://127.0.0.1:8730 "[0, 0.1, 0, -0.1]" ...
//
// Each argument is an observation in JSON; all of them are of one episode. Node before 22 has no WebSocket: there,
// ServedPolicy asks by fetch.

export class ServedPolicy {
  // url: like http://127.0.0.1:8730. token: the server's token, if it has one.
  constructor(url, token) {
    this.url = url.replace(/\/$/, "");
    this.token = token;
    this.waiting = new Map();
    this.next = 0;
  }

  // Opens the connection. Without it, act asks by fetch, each time anew.
  open() {
    const protocols = this.token ? ["json", `bearer.${this.token}`] : ["json"];
    this.socket = new WebSocket(`${this.url.replace(/^http/, "ws")}/ws`, protocols);
    this.socket.onmessage = (event) => this.settle(JSON.parse(event.data));
    this.socket.onclose = () => this.waiting.forEach(([, reject]) => reject(new Error("the connection is closed")));
    return new Promise((resolve, reject) => {
      this.socket.onopen = resolve;
      this.socket.onerror = () => reject(new Error(`${this.url} cannot be reached`));
    });
  }

  // Returns a promise of the reply. fields: session (any name of yours, once open), begins, greedy, want.
  act(observation, fields = {}) {
    if (!this.socket) return this.ask("POST", "/act", { observation, ...fields });
    const id = this.next++;
    this.socket.send(JSON.stringify({ observation, ...fields, id }));
    return new Promise((resolve, reject) => this.waiting.set(id, [resolve, reject]));
  }

  settle(reply) {
    const [resolve, reject] = this.waiting.get(reply.id) ?? [];
    this.waiting.delete(reply.id);
    if (reply.error) reject?.(new Error(`${reply.error} (status ${reply.status})`));
    else resolve?.(reply);
  }

  async ask(method, path, message) {
    const headers = { "Content-Type": "application/json" };
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    const answer = await fetch(this.url + path, { method, headers, body: message && JSON.stringify(message) });
    const reply = await answer.json();
    if (reply.error) throw new Error(`${reply.error} (status ${reply.status})`);
    return reply;
  }

  close() {
    this.socket?.close();
  }
}

async function main([url, ...observations]) {
  if (!observations.length) throw new Error("usage: node client.mjs URL OBSERVATION ...");
  const policy = new ServedPolicy(url, process.env.DISTRL_SERVE_TOKEN);
  let session = 1;
  if (globalThis.WebSocket) await policy.open();
  else session = (await policy.ask("POST", "/sessions")).session;
  for (const [step, text] of observations.entries()) {
    const reply = await policy.act(JSON.parse(text), { session, begins: step === 0 });
    console.log(JSON.stringify(reply.action), reply.version);
  }
  policy.close();
}

if (globalThis.process?.argv?.[1] && import.meta.url === `file://${process.argv[1]}`) {
  main(process.argv.slice(2)).catch((error) => {
    console.error(error.message);
    process.exitCode = 1;
  });
}
