// A proxy that stands between the gateway and the engine, counts what passes and fails on demand. What it is not told to spoil goes
// through as it is, streams included. A client that leaves is a departure upstream, too, as without the proxy.
import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * A proxy for the plain HTTP server at `target`:
 *
 *     const proxy = await startProxy(engine.url);
 *     const fault = proxy.fault({ method: 'POST', path: '/v2/sandboxes' }, { dropReply: true }, { times: 1 });
 *     ... startGateway({ engine, api: proxy.url }) ... proxy.count('POST', '/v2/sandboxes') ...
 *     fault.remove();
 *     await proxy.close();
 */
export async function startProxy(target) {
  const proxy = new FaultProxy(target);
  await proxy.up();
  return proxy;
}

/**
 * Whether a request is meant: by a function of it, or by { method, path, sandbox, body } with a path's text or pattern (the query
 * does not count), the id of the sandbox that it is for, and a text that its body has.
 */
function matches(match, request) {
  if (typeof match === 'function') return match(request);
  const { method, path, sandbox, body } = match;
  const fits = path instanceof RegExp ? path.test(request.path) : path === undefined || path === request.path;
  if (!fits || (method !== undefined && method !== request.method)) return false;
  return (sandbox === undefined || sandbox === request.sandbox) && (body === undefined || (request.body ?? '').includes(body));
}

/** What is done to the requests that match, and how many it has met. */
class Fault {
  #release;

  constructor(match, action, times, remove) {
    Object.assign(this, { match, action, times, remove: () => (remove(this), this.release()) });
    this.hits = 0; // requests that matched
    this.held = 0; // of these, how many wait right now
    this.released = new Promise((resolve) => (this.#release = resolve));
  }

  takes(request) {
    return this.hits < this.times && matches(this.match, request);
  }

  /** Ends every wait of this fault, those to come included. */
  release() {
    this.#release();
  }

  /** ms may be Infinity: until release(). A client that leaves ends it, too. */
  async wait(ms, gone) {
    if (ms === undefined) return;
    this.held++;
    const timer = new AbortController();
    const late = ms === Infinity ? [] : [sleep(ms, undefined, { signal: timer.signal }).catch(() => {})];
    await Promise.race([this.released, gone, ...late]);
    timer.abort();
    this.held--;
  }
}

const NONE = new Fault(() => false, {}, 0, () => {});

class FaultProxy {
  #faults = [];
  #sockets = new Set();
  #port = 0;

  constructor(target) {
    this.target = new URL(target);
    this.requests = []; // { method, path, query, headers, sandbox, passed } of all that came, in this order; passed: the engine's status
  }

  // -------------------------------------------------------------------------------------------------------------- telling it

  /**
   * Spoils the requests that match (see matches), the first `times` of them. Of several faults that match, the newest counts.
   * An action may have, in the order in which they act:
   *   delay: ms            waits before the request is passed on; Infinity: until release()
   *   refuse: true         closes the connection instead of passing it on
   *   answer: {status, headers, body, json}   answers by itself instead
   *   delayReply: ms       waits once the answer's head is there, before it is handed back; Infinity: until release()
   *   dropReply: true      closes the connection instead of handing the answer back, which has then been read to its end
   *   garbage: true        hands back other bytes than those of the answer's body; one without a body stays as it is
   *   half: true           hands back half of the answer's body as if it were all
   *   cut: n               hands back n bytes of the answer's body, then closes the connection; 'half': half of them
   *   drip: ms             hands back the answer's body a byte at a time, each after that long
   *   delayEnd: ms         hands back the answer's body as it comes, but waits before its end; Infinity: until release()
   * With reset: true the connection is not closed but reset (RST). Returns { hits, held, release(), remove() }.
   */
  fault(match, action, { times = Infinity } = {}) {
    const fault = new Fault(match, action, times, (f) => (this.#faults = this.#faults.filter((other) => other !== f)));
    this.#faults.unshift(fault);
    return fault;
  }

  /** No faults any more; who waits goes on. */
  clear() {
    for (const fault of this.#faults) fault.remove();
  }

  // -------------------------------------------------------------------------------------------------------------- looking

  /** How many requests there were of this method and path (text or pattern), spoilt or not. */
  count(method, path) {
    return this.requests.filter((r) => matches({ method, path }, r)).length;
  }

  /** The counts of all that came: { 'POST /v2/sandboxes': 1, ... } */
  counts() {
    const all = {};
    for (const { method, path } of this.requests) all[`${method} ${path}`] = (all[`${method} ${path}`] ?? 0) + 1;
    return all;
  }

  // -------------------------------------------------------------------------------------------------------------- up and down

  /** Listens, always at the same port. */
  async up() {
    this.server = http.createServer({ requestTimeout: 0 }, (req, res) => this.#serve(req, res).catch((e) => res.destroy(e)));
    this.server.on('connection', (socket) => {
      this.#sockets.add(socket.on('error', () => {}));
      socket.on('close', () => this.#sockets.delete(socket));
    });
    await new Promise((resolve, reject) => this.server.on('error', reject).listen(this.#port, '127.0.0.1', 4096, resolve));
    this.#port = this.server.address().port;
    this.url = `http://127.0.0.1:${this.#port}`;
  }

  /** Cuts every connection. */
  cut() {
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Cuts every connection; new ones are refused until up(). */
  async down() {
    const closed = new Promise((resolve) => this.server.close(resolve));
    this.cut();
    await closed;
  }

  async close() {
    this.clear();
    await this.down();
  }

  // -------------------------------------------------------------------------------------------------------------- serving

  async #serve(req, res) {
    const { pathname, search } = new URL(req.url, 'http://proxy');
    const request = { method: req.method, path: pathname, query: search, headers: req.headers };
    const gone = new Promise((resolve) => res.on('close', resolve));
    request.sandbox = req.headers['e2b-sandbox-id'] ?? pathname.match(/^(?:\/v2)?\/sandboxes\/([^/]+)/)?.[1];
    this.requests.push(request);
    req.on('error', () => {});
    if (this.#faults.some((f) => f.match.body && matches({ ...f.match, body: undefined }, request)))
      request.body = Buffer.concat(await req.toArray()).toString('latin1');
    const fault = this.#faults.find((f) => f.takes(request)) ?? NONE;
    const { action } = fault;
    fault.hits++;
    await fault.wait(action.delay, gone);
    if (res.destroyed || action.refuse) hangUp(res, action);
    else if (action.answer) answer(req, res, action.answer);
    else await this.#pass(req, res, request, fault, gone);
  }

  async #pass(req, res, request, fault, gone) {
    const upstream = http.request(new URL(req.url, this.target), { method: req.method, headers: req.rawHeaders, agent: false });
    res.on('close', () => upstream.destroy());
    if (request.body === undefined) req.pipe(upstream);
    else upstream.end(request.body, 'latin1');
    const reply = await new Promise((resolve) => upstream.on('response', resolve).on('error', () => resolve(null)));
    if (!reply) return void res.destroy();
    request.passed = reply.statusCode;
    reply.on('error', () => res.destroy());
    await fault.wait(fault.action.delayReply, gone);
    if (fault.action.delayEnd === undefined) return void (await handBack(reply, res, fault.action));
    begin(reply, res);
    for await (const piece of reply) await write(res, piece);
    await fault.wait(fault.action.delayEnd, gone);
    res.end();
  }
}

function hangUp(res, { reset }) {
  if (reset) res.socket?.resetAndDestroy();
  res.destroy();
}

/** An answer of the proxy's own, once the request has been heard to its end. */
function answer(req, res, { status, headers = {}, body = '', json }) {
  const text = json === undefined ? body : JSON.stringify(json);
  const type = json === undefined ? {} : { 'content-type': 'application/json' };
  const send = () => res.writeHead(status, { ...type, ...headers, 'content-length': Buffer.byteLength(text) }).end(text);
  if (req.readableEnded) send();
  else req.resume().on('end', send);
}

/** The head as it came, but for the body's length where that is given. */
function begin(reply, res, length) {
  const headers = reply.rawHeaders.slice();
  for (let i = headers.length - 2; length !== undefined && i >= 0; i -= 2)
    if (/^(content-length|transfer-encoding)$/i.test(headers[i])) headers.splice(i, 2);
  if (length !== undefined) headers.push('Content-Length', String(length));
  res.writeHead(reply.statusCode, reply.statusMessage, headers);
  res.flushHeaders(); // a stream's head comes long before its first byte
}

const write = (res, bytes) => new Promise((resolve) => res.write(bytes, resolve));

async function handBack(reply, res, action) {
  const { dropReply, garbage, half, cut, drip } = action;
  if (dropReply) {
    for await (const piece of reply) void piece;
    return hangUp(res, action);
  }
  if (garbage || half || cut === 'half') return spoil(Buffer.concat(await reply.toArray()), reply, res, action);
  begin(reply, res);
  if (drip !== undefined) return trickle(reply, res, drip);
  if (cut === undefined) return void reply.pipe(res);
  let left = cut;
  for await (const piece of reply) {
    const part = piece.subarray(0, left);
    left -= part.length;
    if (part.length) await write(res, part);
    if (left === 0) break;
  }
  hangUp(res, action);
}

async function spoil(body, reply, res, action) {
  const part = body.subarray(0, body.length >> 1);
  if (!body.length) return void (begin(reply, res), res.end());
  if (!action.cut) {
    const bytes = action.half ? part : Buffer.from('}{"\0\xff neither JSON\nnor envelope\n'.padEnd(40, '~'), 'latin1');
    return void (begin(reply, res, bytes.length), res.end(bytes));
  }
  begin(reply, res, body.length);
  await write(res, part);
  hangUp(res, action);
}

async function trickle(reply, res, ms) {
  for await (const piece of reply)
    for (const byte of piece) {
      if (res.destroyed) return;
      await write(res, Buffer.of(byte));
      await sleep(ms);
    }
  res.end();
}
