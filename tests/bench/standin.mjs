// A provider without sandboxes, for more of them than a machine has memory for: it answers what the gateway asks of E2B, and "runs"
// code by answering after a while, with a line each second where the code prints.
// What is measured with it is the gateway alone.
import http from 'node:http';

export async function startStandin() {
  const standin = new Standin();
  await new Promise((resolve) => standin.server.listen(0, '127.0.0.1', resolve));
  standin.url = `http://127.0.0.1:${standin.server.address().port}`;
  return standin;
}

const PAGE = 100;

class Standin {
  #sandboxes = new Map();
  #made = 0;
  #listed = [];

  constructor() {
    this.child = true; // as an engine that runs already
    this.secs = 0; // how long code takes
    this.server = http.createServer((req, res) => this.#serve(req, res));
    this.server.keepAliveTimeout = 120_000;
  }

  /** One that is there without having been asked for: its id. */
  add(metadata = {}) {
    const sandboxID = `standin${String(++this.#made).padStart(12, '0')}`;
    this.#sandboxes.set(sandboxID, {
      sandboxID,
      templateID: 'standin',
      clientID: 'standin',
      envdVersion: '0.2.0',
      state: 'running',
      startedAt: new Date().toISOString(),
      endAt: new Date(Date.now() + 3_600_000).toISOString(),
      metadata,
    });
    return sandboxID;
  }

  async #serve(req, res) {
    const body = Buffer.concat(await req.toArray()).toString();
    const { pathname, searchParams } = new URL(req.url, 'http://standin');
    const json = (status, o) => res.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(o));
    const id = pathname.match(/^\/(?:v2\/)?sandboxes\/([^/]+)/)?.[1];
    const known = this.#sandboxes.get(id ?? req.headers['e2b-sandbox-id']);
    if (pathname === '/v2/sandboxes' && req.method === 'POST') return json(201, this.#sandboxes.get(this.add(JSON.parse(body).metadata)));
    if (pathname === '/v2/sandboxes') return this.#list(searchParams, res);
    if (!known) return json(404, { code: 404, message: 'no such sandbox' });
    if (pathname === '/execute') return this.#execute(res, body.includes('print'));
    if (req.method === 'DELETE') this.#sandboxes.delete(id);
    if (req.method === 'DELETE' || pathname.endsWith('/timeout') || pathname === '/health') return res.writeHead(204).end();
    return json(200, known);
  }

  #list(query, res) {
    const wanted = [...new URLSearchParams(query.get('metadata') ?? '')];
    const fits = ({ metadata }) => wanted.every(([key, value]) => metadata[key] === value);
    const from = Number(query.get('nextToken') ?? 0);
    if (from === 0) this.#listed = [...this.#sandboxes.values()].filter(fits); // the other pages are of the same list
    const all = this.#listed;
    const next = from + PAGE < all.length ? { 'x-next-token': String(from + PAGE) } : {};
    res.writeHead(200, { 'content-type': 'application/json', ...next }).end(JSON.stringify(all.slice(from, from + PAGE)));
  }

  #execute(res, prints) {
    const line = (o) => res.write(`${JSON.stringify(o)}\n`);
    res.writeHead(200, { 'content-type': 'application/json' });
    line({ type: 'number_of_executions', execution_count: 1 });
    const ticks = prints && setInterval(() => line({ type: 'stdout', text: '.\n' }), 1000);
    const end = () => (clearInterval(ticks), line({ type: 'end_of_execution' }), res.end());
    setTimeout(end, this.secs * 1000);
    res.on('close', () => clearInterval(ticks));
  }

  /** Of the gateway's harness: this is not its to stop. */
  async stop() {}

  async close() {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}
