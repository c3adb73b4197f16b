// The harness of the behaviour tests: starts the real engine on a free port in a temp folder of its own, speaks to it raw or by the
// official SDK, and at the end asserts that it left nothing behind. Every wait in here has a deadline.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Sandbox } from '@e2b/code-interpreter';

export { sleep };

const TOP = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
export const BUILD = path.resolve(process.env.SANDGATE_BUILD || path.join(TOP, 'build'));
export const ENGINE = path.join(BUILD, 'sandgate-engine');

export const KEY = 'e2b_' + '0'.repeat(40);
/** Whether sandboxes have Node.js: only what lies below /usr is inside. */
export const NODE_INSIDE = ['/usr/bin/node', '/usr/local/bin/node'].some((p) => fs.existsSync(p) && fs.realpathSync(p).startsWith('/usr/'));
export const ENVD = 49983;
export const INTERPRETER = 49999;
/** For describe(): the bound of a whole file on a slow machine; every wait within has its own, shorter one. */
export const SUITE = { timeout: 850_000 };

/** Every layer the ready line must name, as active or as inactive with a reason. */
export const LAYERS = [
  'user namespace',
  'root and user',
  'pid namespace',
  'mount namespace',
  'network namespace',
  'ipc namespace',
  'uts namespace',
  'cgroup namespace',
  'seccomp',
  'rlimits',
  'memory limit',
  'process limit',
  'cpu limit',
  'freezer',
  'internet',
  'limit on unmapped memory',
  'zygote',
];

// The SDK reads E2B_* by itself; a variable of the caller's shell must not send a test to the cloud.
for (const name of Object.keys(process.env)) if (name.startsWith('E2B_')) delete process.env[name];

// ---------------------------------------------------------------------------------------------------------------- waiting

/** Rejects if the promise has not settled in time. */
export function within(ms, promise, what = 'the operation') {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} took more than ${ms} ms`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** Polls until probe() gives something truthy and returns it. */
export async function until(probe, { deadline = 10_000, every = 50, what = 'the condition' } = {}) {
  const end = performance.now() + deadline;
  for (;;) {
    const value = await probe();
    if (value) return value;
    if (performance.now() > end) throw new Error(`${what} did not come true within ${deadline} ms`);
    await sleep(every);
  }
}

/** Asserts the SDK's error by class name and text, and returns it for further looks. */
export async function fails(promise, name, pattern = /(?:)/) {
  const error = await Promise.resolve(promise).then(
    (value) => assert.fail(`expected ${name}, but it worked: ${JSON.stringify(value)?.slice(0, 200)}`),
    (e) => e,
  );
  if (error instanceof assert.AssertionError) throw error;
  assert.equal(error.name, name, error.stack);
  assert.match(error.message, pattern);
  return error;
}

// ---------------------------------------------------------------------------------------------------------------- processes

export function readProc(file) {
  try {
    return fs.readFileSync(`/proc/${file}`, 'latin1');
  } catch {
    return ''; // the process went away, or is not ours to read
  }
}

/** Every process of the machine: pid, parent, state, start time. */
export function processes() {
  const all = new Map();
  for (const name of fs.readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const stat = readProc(`${name}/stat`);
    if (!stat) continue;
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    all.set(Number(name), { pid: Number(name), state: fields[0], parent: Number(fields[1]), start: fields[19] });
  }
  return all;
}

export const commandLine = (pid) => readProc(`${pid}/cmdline`).replaceAll('\0', ' ').trim();

export function statusField(pid, field) {
  return readProc(`${pid}/status`).match(new RegExp(`^${field}:\\s*(.*)$`, 'm'))?.[1];
}

/** The directory of a line of /proc/PID/cgroup, or undefined where that hierarchy is not mounted. */
export function cgroupDirectory(line) {
  const [, controllers, group] = line.match(/^\d+:([^:]*):(.*)$/) ?? [];
  for (const mount of readProc('self/mountinfo').split('\n')) {
    const [left, right] = mount.split(' - ');
    if (!right) continue;
    const [, , , root, point] = left.split(' ');
    const [type, , options] = right.split(' ');
    const fits = controllers === '' ? type === 'cgroup2' : type === 'cgroup' && options.split(',').includes(controllers.split(',')[0]);
    if (fits) return path.join(point, root === '/' ? group : path.relative(root, group));
  }
  return undefined;
}

/** After so many looks a process has the name and the groups that it keeps. With hundreds of sandboxes more would be a load of its own. */
const LOOKS = 4;

/** Remembers every process and cgroup that ever descended from one process, also those that were handed to init since. */
class Family {
  constructor(pid) {
    this.root = pid;
    this.seen = new Map();
    this.cgroups = new Set();
    this.own = new Set(readProc('self/cgroup').split('\n'));
    this.timer = setInterval(() => this.look(), 500);
    this.timer.unref();
  }

  look() {
    const all = processes();
    const members = new Set([this.root]);
    for (const { pid, start } of this.seen.values()) if (all.get(pid)?.start === start) members.add(pid);
    for (let grown = true; grown;) {
      grown = false;
      for (const p of all.values()) {
        if (members.has(p.pid) || !members.has(p.parent)) continue;
        members.add(p.pid);
        grown = true;
      }
    }
    for (const pid of members) {
      const p = all.get(pid);
      if (!p) continue;
      const id = `${pid}:${p.start}`;
      const known = this.seen.get(id);
      if (known?.looks === LOOKS) continue;
      this.seen.set(id, { pid, start: p.start, command: commandLine(pid) || statusField(pid, 'Name'), looks: (known?.looks ?? 0) + 1 });
      // A process that is just ending is shown in the root of a hierarchy.
      for (const line of readProc(`${pid}/cgroup`).split('\n'))
        if (line && !line.endsWith(':/') && !this.own.has(line)) this.cgroups.add(line);
    }
    return [...members].filter((pid) => all.has(pid));
  }

  /** What is still there of all that was seen; zombies are their new parent's business. */
  alive() {
    const all = processes();
    return [...this.seen.values()].filter(({ pid, start }) => all.get(pid)?.start === start && all.get(pid).state !== 'Z');
  }

  cgroupsLeft() {
    return [...this.cgroups].map(cgroupDirectory).filter((dir) => dir && fs.existsSync(dir));
  }

  close() {
    clearInterval(this.timer);
  }
}

// ---------------------------------------------------------------------------------------------------------------- the engine

export function tempFolder(prefix = 'sandgate-test-') {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), prefix));
  fs.chmodSync(dir, 0o755); // the engine drops its uid and must still be able to enter
  return dir;
}

export function writeFiles(dir, files) {
  fs.mkdirSync(dir, { recursive: true });
  for (const [name, text] of Object.entries(files)) fs.writeFileSync(path.join(dir, name), text, { mode: 0o644 });
  return dir;
}

/** "a, b (why, and why)" as a map from name to reason. */
function parseLayers(text = '') {
  return new Map(
    [...text.matchAll(/([^,(]+?)\s*(?:\(([^)]*)\))?\s*(?:,\s*|$)/g)]
      .map((m) => [m[1].trim(), m[2] ?? ''])
      .filter(([name]) => name && name !== 'none'),
  );
}

function parseReady(line) {
  const m = line.match(/^sandgate-engine: ready on (http:\/\/[\d.]+:\d+); active: ([^;]*)(?:; inactive: (.*))?$/);
  assert.ok(m, `the ready line has another form: ${line}`);
  return { line, url: m[1], active: new Set(parseLayers(m[2]).keys()), inactive: parseLayers(m[3]) };
}

/** Runs the engine until it exits by itself: for options it must refuse. */
export async function runEngine(args, { env = {}, deadline = 15_000 } = {}) {
  const child = spawn(ENGINE, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  const out = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr']) child[name].setEncoding('utf8').on('data', (d) => (out[name] += d));
  try {
    const [code, signal] = await within(
      deadline,
      new Promise((resolve, reject) => {
        child.on('error', reject);
        child.on('close', (...end) => resolve(end));
      }),
      `sandgate-engine ${args.join(' ')}`,
    );
    return { code, signal, ...out };
  } finally {
    child.kill('SIGKILL');
  }
}

const running = new Set();
process.on('exit', () => {
  for (const engine of running) engine.child.kill('SIGTERM');
});

/**
 * Starts an engine and waits for its ready line. `dir` reuses the folder (and so the state) of an engine that was killed;
 * `user` is a uid to start it as; `templates` and `wheels` are files to write into the folders it is pointed at.
 */
export async function startEngine({ args = [], env = {}, keys = [KEY], user, dir = tempFolder(), templates, command = ENGINE } = {}) {
  const argv = ['--listen', '127.0.0.1:0', '--state', path.join(dir, 'state'), ...args];
  if (templates) argv.push('--templates', writeFiles(path.join(dir, 'templates'), templates));
  const environment = { ...process.env, ...env };
  // A sanitized build keeps freed memory for a while; not so much of it that the memory tests see a leak.
  environment.ASAN_OPTIONS = [environment.ASAN_OPTIONS, 'quarantine_size_mb=8'].filter(Boolean).join(':');
  delete environment.SANDGATE_ENGINE_API_KEYS;
  if (keys.length) environment.SANDGATE_ENGINE_API_KEYS = keys.join(',');
  if (user !== undefined) fs.chownSync(dir, user, user);

  const child = spawn(command, argv, {
    env: environment,
    cwd: dir,
    stdio: ['ignore', 'ignore', 'pipe'],
    ...(user === undefined ? {} : { uid: user, gid: user }),
  });
  const engine = new Engine(child, dir, keys[0]);
  try {
    engine.ready = parseReady(await within(60_000, engine.readyLine, 'the ready line'));
  } catch (e) {
    child.kill('SIGKILL');
    fs.rmSync(dir, { recursive: true, force: true });
    throw new Error(`the engine did not start: ${e.message}\n${engine.stderr()}`);
  }
  engine.url = engine.ready.url;
  engine.port = Number(new URL(engine.url).port);
  engine.family = new Family(child.pid);
  running.add(engine);
  return engine;
}

class Engine {
  #stderr = '';

  constructor(child, dir, key) {
    Object.assign(this, { child, pid: child.pid, dir, key, state: path.join(dir, 'state') });
    this.exited = new Promise((resolve) => {
      child.on('error', (e) => resolve({ error: e }));
      child.on('exit', (code, signal) => resolve({ code, signal }));
    });
    this.readyLine = new Promise((resolve, reject) => {
      child.stderr.setEncoding('utf8').on('data', (d) => {
        this.#stderr = (this.#stderr + d).slice(-1_000_000);
        const line = this.#stderr
          .split('\n')
          .slice(0, -1)
          .find((l) => l.startsWith('sandgate-engine: ready on '));
        if (line) resolve(line);
      });
      this.exited.then((end) => reject(new Error(`it exited: ${JSON.stringify(end)} ${end.error ?? ''}`)));
    });
  }

  stderr() {
    return this.#stderr;
  }

  /** Until it has logged this: a line may come later than the answer to what it tells of. */
  logged(pattern) {
    return until(() => pattern.test(this.#stderr), { what: `${pattern} in the engine's log` });
  }

  has(layer) {
    assert.ok(LAYERS.includes(layer), `no such layer: ${layer}`);
    return this.ready.active.has(layer);
  }

  /** The process that serves: the child of the one that was started. */
  get server() {
    const own = [...processes().values()].find((p) => p.parent === this.pid && statusField(p.pid, 'Name') === statusField(this.pid, 'Name'));
    return own?.pid ?? this.pid;
  }

  openFiles() {
    return fs.readdirSync(`/proc/${this.server}/fd`).length;
  }

  cpuSeconds() {
    const stat = readProc(`${this.server}/stat`);
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return (Number(fields[11]) + Number(fields[12])) / 100;
  }

  /** Options for every call of the SDK. */
  get sdk() {
    return { apiKey: this.key, apiUrl: this.url, sandboxUrl: this.url };
  }

  create(template = 'code-interpreter-v1', opts = {}) {
    return Sandbox.create(template, { ...this.sdk, timeoutMs: 600_000, ...opts });
  }

  /** A control plane call. */
  api(method, target, { key = this.key, headers, ...rest } = {}) {
    return request(this.url + target, { method, headers: { ...(key && { 'x-api-key': key }), ...headers }, ...rest });
  }

  /** A call to a port of a sandbox, with the routing headers and the token the SDK would send. */
  inside(sandbox, port, method, target, { headers, ...rest } = {}) {
    return request(this.url + target, { method, headers: { ...routing(sandbox, port), ...headers }, ...rest });
  }

  envd(sandbox, method, target, options) {
    return this.inside(sandbox, ENVD, method, target, options);
  }

  interpreter(sandbox, method, target, options) {
    return this.inside(sandbox, INTERPRETER, method, target, options);
  }

  /** A unary Connect call. */
  rpc(sandbox, method, message, { headers, ...rest } = {}) {
    return this.envd(sandbox, 'POST', `/${method}`, { json: message, headers: { 'connect-protocol-version': '1', ...headers }, ...rest });
  }

  /** A streaming Connect call: the answer's head, its body still to be read with envelopes() or outcome(). */
  stream(sandbox, method, message, { headers, body = envelope(message), ...rest } = {}) {
    return open(`${this.url}/${method}`, {
      method: 'POST',
      body,
      ...rest,
      headers: { ...routing(sandbox, ENVD), 'connect-protocol-version': '1', 'content-type': 'application/connect+json', ...headers },
    });
  }

  /** A streaming run in the interpreter: the answer's head, its body still to be read with lines(). */
  execute(sandbox, message, { headers, ...rest } = {}) {
    return open(`${this.url}/execute`, {
      method: 'POST',
      json: message,
      headers: { ...routing(sandbox, INTERPRETER), ...headers },
      ...rest,
    });
  }

  /** The peak memory, in KiB, of each process of the engine's own that lives outside the sandboxes. */
  #peaks() {
    const own = this.family.look().filter((pid) => statusField(pid, 'NSpid')?.split(/\s+/).length === 1);
    assert.ok(own.includes(this.pid), 'the engine is not running');
    return new Map(own.map((pid) => [pid, parseInt(statusField(pid, 'VmHWM') ?? '0', 10)]));
  }

  /** The same, and what was more once is forgotten. */
  peaks() {
    for (const pid of this.#peaks().keys()) {
      try {
        fs.writeFileSync(`/proc/${pid}/clear_refs`, '5');
      } catch {
        continue; // not ours to look into, or gone
      }
    }
    return this.#peaks();
  }

  /** Asserts that no process of the engine's grew by `limit` MiB since `before`. */
  assertFlat(before, limit = 64) {
    for (const [pid, peak] of this.#peaks()) {
      const grown = (peak - (before.get(pid) ?? 0)) / 1024;
      assert.ok(grown < limit, `${commandLine(pid)} (${pid}) grew by ${grown.toFixed(1)} MiB`);
    }
  }

  assertAlive() {
    assert.equal(this.child.exitCode ?? this.child.signalCode, null, `the engine died\n${this.stderr().slice(-4000)}`);
  }

  /** SIGTERM; it must end with 0 in time and leave no process, mount, cgroup or file. */
  async stop({ signals = ['SIGTERM'] } = {}) {
    if (!running.delete(this)) return;
    try {
      this.assertAlive();
      this.family.look();
      for (const signal of signals) this.child.kill(signal);
      const end = await within(20_000, this.exited, `the end after ${signals}`);
      assert.deepEqual(end, { code: 0, signal: null }, `a bad end\n${this.stderr().slice(-4000)}`);
      await this.assertNothingLeft();
    } finally {
      this.family.close();
      this.child.kill('SIGKILL');
      fs.rmSync(this.dir, { recursive: true, force: true });
    }
  }

  /** SIGKILL to every process of the engine's outside the sandboxes; the folder stays for the next start. */
  async kill9() {
    running.delete(this);
    for (const pid of [...this.peaks().keys()]) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch (e) {
        if (e.code !== 'ESRCH') throw e;
      }
    }
    await within(10_000, this.exited, 'the end after SIGKILL');
    this.family.close();
  }

  async assertNothingLeft() {
    let left;
    await until(() => (left = this.leftovers()).length === 0, { deadline: 5_000, what: 'cleaning up' }).catch(() => {});
    assert.deepEqual(left, []);
  }

  leftovers() {
    const files = fs.existsSync(this.state) ? fs.readdirSync(this.state, { withFileTypes: true }) : [];
    return [
      ...this.family.alive().map((p) => `process ${p.pid}: ${p.command}`),
      ...[...processes().keys()].filter((pid) => commandLine(pid).includes(this.state)).map((pid) => `process ${pid}: ${commandLine(pid)}`),
      ...this.family.cgroupsLeft().map((dir) => `cgroup ${dir}`),
      ...readProc('self/mountinfo')
        .split('\n')
        .filter((l) => l.includes(this.dir))
        .map((l) => `mount ${l}`),
      ...files.map((f) => `file ${f.name}`),
    ];
  }
}

// ---------------------------------------------------------------------------------------------------------------- raw HTTP

export function routing(sandbox, port) {
  return {
    'e2b-sandbox-id': sandbox.sandboxId,
    'e2b-sandbox-port': String(port),
    ...(sandbox.envdAccessToken && { 'x-access-token': sandbox.envdAccessToken }),
  };
}

/** The answer's head as soon as it is there. `body` is text, bytes, or an async iterable (sent chunked); `json` is encoded. */
export function open(url, { method = 'GET', headers = {}, body, json, deadline = 30_000 } = {}) {
  if (json !== undefined) {
    body = JSON.stringify(json);
    headers = { 'content-type': 'application/json', ...headers };
  }
  const whole = typeof body === 'string' || body instanceof Uint8Array;
  return new Promise((resolve, reject) => {
    const req = http.request(url, {
      method,
      agent: false,
      headers: { ...headers, ...(whole && { 'content-length': Buffer.byteLength(body) }) },
    });
    const timer = setTimeout(() => req.destroy(new Error(`${method} ${url} took more than ${deadline} ms`)), deadline);
    timer.unref(); // a body that nobody reads must not keep the tests from ending
    req.on('close', () => clearTimeout(timer));
    req.on('error', reject);
    req.on('response', (res) => {
      res.on('error', () => {}); // whoever reads the body gets it from the iterator
      resolve(Object.assign(res, { status: res.statusCode, drop: () => req.destroy() }));
    });
    if (body === undefined || whole) req.end(body);
    else sendAll(req, body).catch((e) => req.destroy(e));
  });
}

function drained(req) {
  return new Promise((resolve) => {
    const done = () => resolve(req.off('drain', done).off('close', done));
    req.on('drain', done).on('close', done);
  });
}

async function sendAll(req, chunks) {
  for await (const chunk of chunks) {
    if (req.destroyed) return;
    if (!req.write(chunk)) await drained(req);
  }
  req.end();
}

/** The whole answer. */
export async function request(url, options) {
  const res = await open(url, options);
  const body = Buffer.concat(await res.toArray());
  return {
    status: res.status,
    headers: res.headers,
    body,
    text: body.toString(),
    get json() {
      return JSON.parse(body.toString());
    },
  };
}

/** Asserts the error body of the control plane and of envd's plain routes. */
export function assertError(res, status, message) {
  assert.equal(res.status, status, res.text);
  assert.equal(res.json.code, status, res.text);
  if (message instanceof RegExp) assert.match(res.json.message, message);
  else if (message !== undefined) assert.equal(res.json.message, message);
}

/** Asserts the error of a unary Connect call. */
export function assertConnectError(res, status, code, message = /(?:)/) {
  assert.equal(res.status, status, res.text);
  assert.equal(res.json.code, code, res.text);
  assert.match(res.json.message, message);
}

/** Sends bytes as they are and returns what came back once the peer closed, or an answer is complete, or it was silent for `quiet` ms. */
export function raw(port, bytes, { deadline = 15_000, quiet = 5_000, half = false } = {}) {
  return new Promise((resolve, reject) => {
    const chunks = [];
    const socket = net.connect(port, '127.0.0.1', () => (half ? socket.end(bytes) : socket.write(bytes)));
    const timer = setTimeout(() => finish(new Error(`no end of the answer within ${deadline} ms`)), deadline);
    const finish = (error) => {
      clearTimeout(timer);
      socket.destroy();
      if (error) reject(error);
      else resolve(Buffer.concat(chunks).toString('latin1'));
    };
    socket.setTimeout(quiet, () => finish());
    socket.on('data', (d) => {
      chunks.push(d);
      const [head, ...rest] = Buffer.concat(chunks).toString('latin1').split('\r\n\r\n');
      const length = head.match(/content-length: *(\d+)/i)?.[1];
      if (length !== undefined && rest.join('\r\n\r\n').length >= Number(length)) finish();
    });
    socket.on('error', () => finish()); // a reset is an answer, too
    socket.on('close', () => finish());
  });
}

export const rawStatus = (answer) => Number(answer.match(/^HTTP\/1\.[01] (\d{3})/)?.[1] ?? 0);

/** The objects of an NDJSON body as they arrive. */
export async function* lines(res) {
  let rest = '';
  for await (const chunk of res.setEncoding('utf8')) {
    const parts = (rest + chunk).split('\n');
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part);
  }
  assert.equal(rest, '', 'the last line has no end');
}

// ---------------------------------------------------------------------------------------------------------------- Connect

export function envelope(message, flags = 0) {
  const payload = Buffer.isBuffer(message) ? message : Buffer.from(JSON.stringify(message));
  const head = Buffer.alloc(5);
  head.writeUInt8(flags, 0);
  head.writeUInt32BE(payload.length, 1);
  return Buffer.concat([head, payload]);
}

/** The envelopes of a streaming answer as they arrive: { event } for messages, { end } for the end of the stream. */
export async function* envelopes(res) {
  let rest = Buffer.alloc(0);
  let ended = false;
  for await (const chunk of res) {
    rest = rest.length ? Buffer.concat([rest, chunk]) : chunk;
    while (rest.length >= 5 && rest.length >= 5 + rest.readUInt32BE(1)) {
      assert.ok(!ended, 'there is something after the end of the stream');
      const size = rest.readUInt32BE(1);
      const payload = JSON.parse(rest.subarray(5, 5 + size).toString());
      ended = (rest[0] & 2) !== 0;
      yield ended ? { end: payload } : { event: payload.event ?? payload };
      rest = rest.subarray(5 + size);
    }
  }
  assert.equal(rest.length, 0, 'the last envelope is cut');
  assert.ok(ended, 'the stream has no end');
}

/** A whole process stream in one object. */
export async function outcome(res) {
  const got = { pid: undefined, stdout: '', stderr: '', keepalives: 0, end: undefined, trailer: undefined, largest: 0 };
  const data = { stdout: [], stderr: [], pty: [] };
  for await (const { event, end } of envelopes(res)) {
    if (end) got.trailer = end;
    else if (event.start) got.pid = event.start.pid;
    else if (event.keepalive) got.keepalives++;
    else if (event.end) got.end = event.end;
    else {
      const [name, base64] = Object.entries(event.data)[0];
      data[name].push(Buffer.from(base64, 'base64'));
      got.largest = Math.max(got.largest, data[name].at(-1).length);
    }
  }
  for (const name of Object.keys(data)) {
    got[`${name}Bytes`] = Buffer.concat(data[name]);
    got[name] = got[`${name}Bytes`].toString();
  }
  return got;
}

/** Asserts that a Connect stream ended with this error and nothing else. */
export async function assertStreamError(res, code, message = /(?:)/) {
  assert.equal(res.status, 200);
  const { trailer, end } = await outcome(res);
  assert.equal(end, undefined);
  assert.equal(trailer.error?.code, code, JSON.stringify(trailer));
  assert.match(trailer.error.message, message);
}

/** What the SDK's commands.run gives, but a failure of the command is a result and not an exception. */
export async function shell(sandbox, command, opts = {}) {
  try {
    return await sandbox.commands.run(command, { timeoutMs: 60_000, ...opts });
  } catch (e) {
    if (e.name !== 'CommandExitError') throw e;
    return { exitCode: e.exitCode, error: e.error, stdout: e.stdout, stderr: e.stderr };
  }
}

/** The trimmed output of a command that must succeed. */
export async function output(sandbox, command, opts) {
  const { exitCode, stdout, stderr } = await shell(sandbox, command, opts);
  assert.equal(exitCode, 0, `${command}: ${stderr}`);
  return stdout.trim();
}

/** The text of a run in the interpreter that must not fail: printed lines and the main result. */
export async function python(sandbox, code, opts) {
  const run = await sandbox.runCode(code, { timeoutMs: 60_000, ...opts });
  assert.equal(run.error, undefined, run.error?.traceback);
  return (run.logs.stdout.join('') + (run.text ?? '')).trim();
}
