// The harness of the gateway's behaviour tests: the real engine, the real gateway and the real nginx in a temp folder of their own.
// Every call goes through nginx. At the end it asserts that nothing is left behind. Every wait in here has a deadline.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { openStream } from './sse.mjs';
import { BUILD, KEY, commandLine, open, request, startEngine, tempFolder, until, within } from './engine.mjs';

export const TOP = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
export const NGINX = ['/usr/sbin/nginx', '/usr/bin/nginx', '/usr/local/sbin/nginx'].find((p) => fs.existsSync(p)) ?? 'nginx';
const run = promisify(execFile);

/** As its unit has it: what malloc is told before the program starts. */
const [, TUNABLES] = fs.readFileSync(path.join(TOP, 'systemd/sandgate.service'), 'utf8').match(/^Environment=GLIBC_TUNABLES=(.*)$/m);

const running = new Set();
process.on('exit', () => running.forEach((g) => g.killAll()));

/** A port that was free a moment ago, and that no connection and no `listen(0)` is given by the kernel: those begin higher up. */
export async function freePort() {
  for (let tries = 0; ; tries++) {
    const port = 12_000 + Math.floor(Math.random() * 20_000);
    const free = await new Promise((resolve) => {
      const server = net.createServer().on('error', () => resolve(false));
      server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
    });
    if (free) return port;
    assert.ok(tries < 100, 'no port is free');
  }
}

/** KEY=value lines. */
export const settingsText = (settings) =>
  Object.entries(settings)
    .map(([k, v]) => `${k}=${v}\n`)
    .join('');

/** The log lines of a program as objects. */
export const logLines = (text) =>
  text
    .split('\n')
    .filter((l) => l.startsWith('time='))
    .map((l) => Object.fromEntries([...l.matchAll(/(\w+)=(?:"([^"]*)"|(\S*))/g)].map((m) => [m[1], m[2] ?? m[3]])));

/** A child process whose stderr is kept, and whose end is a promise. out, err: files for stdout and stderr. */
export class Child {
  #text = '';
  #err;

  constructor(command, args, { out = '/dev/null', err, ...options } = {}) {
    const fds = [out, err].map((file) => file && fs.openSync(file, 'a'));
    this.process = spawn(command, args, { stdio: ['ignore', fds[0], fds[1] ?? 'pipe'], ...options });
    for (const fd of fds) if (fd !== undefined) fs.closeSync(fd);
    this.#err = err;
    this.pid = this.process.pid;
    this.process.stderr?.setEncoding('utf8').on('data', (d) => (this.#text = (this.#text + d).slice(-16_000_000)));
    this.exited = new Promise((resolve) => {
      this.process.on('error', (error) => resolve({ error }));
      this.process.on('exit', (code, signal) => resolve({ code, signal }));
    });
    this.exited.then((end) => (this.end = end));
  }

  get text() {
    return this.#err ? fs.readFileSync(this.#err, 'utf8') : this.#text;
  }

  async line(pattern, what) {
    await until(() => this.end || pattern.test(this.text), { deadline: 60_000, what });
    if (!pattern.test(this.text)) throw new Error(`${what}: it ended: ${JSON.stringify(this.end)}\n${this.text}`);
  }

  killAll() {
    this.process.kill('SIGKILL');
  }

  async stop(signal = 'SIGTERM', deadline = 60_000) {
    this.process.kill(signal);
    return within(deadline, this.exited, `the end after ${signal}`);
  }
}

/** E2B itself in the engine's place, for `make test-cloud`. */
class Cloud {
  constructor(key) {
    Object.assign(this, { key, child: true });
  }

  async api(method, target) {
    const res = await fetch(`https://api.e2b.app${target}`, { method, headers: { 'x-api-key': this.key }, signal: AbortSignal.timeout(30_000) });
    const text = await res.text();
    return { status: res.status, text, json: text ? JSON.parse(text) : undefined };
  }
}

const cloud = process.env.SANDGATE_CLOUD_KEY ? new Cloud(process.env.SANDGATE_CLOUD_KEY) : undefined;

/** nginx asks this one for the addresses of sandboxes; the local engine has none to be asked for. */
function resolver() {
  const [, address = '127.0.0.1:9'] = (cloud && fs.readFileSync('/etc/resolv.conf', 'utf8').match(/^nameserver\s+([\d.]+)/m)) || [];
  return address;
}

/**
 * settings: of the gateway, over the defaults of the harness; null takes one away.
 * engine: options of startEngine, or an engine that runs already (it is then not stopped).
 * api: where the gateway finds the engine; its own URL unless something stands between.
 * programs: their folder. sample: text of a file of settings, which those of the harness follow.
 * wrap: a command, with its first arguments, that starts the gateway. What it changes for the gateway alone, `beside` must change for
 * the programs that come to the same database.
 * quiet: its log goes to a file and is read when asked for, so that reading it costs nothing meanwhile.
 */
export async function startGateway({ settings = {}, engine = cloud ?? {}, api, programs = BUILD, sample = '', wrap = [], quiet = false } = {}) {
  const own = !engine.child;
  const provider = own ? await startEngine(engine) : engine;
  const g = new Gateway(provider, own, programs, wrap, quiet);
  running.add(g);
  try {
    await g.configure(settings, api, sample);
    await g.startServer();
    await g.startNginx();
  } catch (e) {
    g.killAll();
    fs.rmSync(g.dir, { recursive: true, force: true });
    if (own) await provider.stop();
    throw e;
  }
  return g;
}

class Gateway {
  #tokens = new Map();

  constructor(engine, own, programs, wrap, quiet) {
    Object.assign(this, { engine, own, programs, wrap, beside: [], dir: tempFolder('sandgate-gw-') });
    if (quiet) this.serverLog = path.join(this.dir, 'gateway.log');
    this.state = path.join(this.dir, 'state');
    this.config = path.join(this.dir, 'sandgate.conf');
    this.accessLog = path.join(this.dir, 'access.log');
  }

  async configure(settings, api = this.engine.url, sample = '') {
    this.settings = {
      E2B_API_KEY: this.engine.key ?? KEY,
      ...(api && { E2B_API_URL: api, E2B_SANDBOX_URL: api }),
      SANDGATE_STATE_DIR: this.state,
      SANDGATE_INSTANCE: path.basename(this.dir),
      SANDGATE_ENVIRONMENT: 'test',
      SANDGATE_MAX_SANDBOXES_PER_USER: 50,
      ...settings,
    };
    for (const [k, v] of Object.entries(this.settings)) if (v === null) delete this.settings[k];
    fs.writeFileSync(this.config, sample + settingsText(this.settings), { mode: 0o600 });
  }

  /** A program with this gateway's settings, by another one that starts it: a file and its arguments. */
  #command(by, name, args = []) {
    const [file, ...rest] = [...by, path.join(this.programs, name), '-c', this.config, ...args];
    return [file, rest];
  }

  async startServer() {
    const env = { PATH: process.env.PATH, GLIBC_TUNABLES: TUNABLES, ASAN_OPTIONS: process.env.ASAN_OPTIONS ?? '', UBSAN_OPTIONS: process.env.UBSAN_OPTIONS ?? '' };
    // As for the engine: a sanitized build must not keep so much freed memory that it looks like a leak.
    env.ASAN_OPTIONS = [env.ASAN_OPTIONS, 'quarantine_size_mb=8'].filter(Boolean).join(':');
    this.server = new Child(...this.#command(this.wrap, 'sandgate'), { env, err: this.serverLog });
    await this.server.line(/^sandgate: ready /m, 'the gateway');
  }

  async startNginx() {
    const prefix = path.join(this.dir, 'nginx');
    fs.mkdirSync(prefix, { recursive: true });
    fs.rmSync(path.join(prefix, 'sandgate'), { force: true });
    fs.symlinkSync(path.join(TOP, 'nginx'), path.join(prefix, 'sandgate'));
    for (let tries = 0; ; tries++) {
      this.port = await freePort();
      const text = fs
        .readFileSync(path.join(TOP, 'nginx/dev.conf.in'), 'utf8')
        .replaceAll('@PORT@', this.port)
        .replaceAll('@STATE@', this.state)
        .replaceAll('@RESOLVER@', resolver())
        .replaceAll('@CA_FILE@', '/etc/ssl/certs/ca-certificates.crt');
      fs.writeFileSync(path.join(prefix, 'nginx.conf'), text);
      const user = process.getuid() === 0 ? ['-g', 'user root;'] : [];
      this.nginx = new Child(NGINX, ['-p', prefix, '-c', 'nginx.conf', '-e', 'stderr', ...user], { out: this.accessLog });
      this.url = `http://127.0.0.1:${this.port}`;
      const up = await until(() => this.nginx.end ?? request(`${this.url}/healthz`).then((r) => r.status === 200, () => false), {
        deadline: 30_000,
        what: 'nginx',
      });
      // Somebody else's server may answer there, while ours still tries to have the port.
      if (up === true && !/Address already in use/.test(this.nginx.text)) return;
      if (!this.nginx.end) await this.nginx.stop('SIGKILL');
      if (tries === 3) throw new Error(`nginx does not start\n${this.nginx.text}`);
    }
  }

  // -------------------------------------------------------------------------------------------------------------- calling

  /** The token of a user, made once: options are those of `sandgatectl token create`. */
  async token(user = 'alice', options = [], { fresh = false } = {}) {
    const key = JSON.stringify([user, options]);
    if (fresh || !this.#tokens.has(key)) this.#tokens.set(key, (await this.ctl('token', 'create', '--user', user, ...options)).stdout.trim());
    return this.#tokens.get(key);
  }

  ctl(...args) {
    return run(...this.#command(this.beside, 'sandgatectl', args), { timeout: 60_000 });
  }

  /** sandgate-cleanup with this gateway's settings, not waited for; output is stdout's file. */
  startCleanup(args = [], { env = {}, out } = {}) {
    return new Child(...this.#command(this.beside, 'sandgate-cleanup', args), { out, env: { PATH: process.env.PATH, ...env } });
  }

  /** One pass: { code, signal, text, summary }, the last with the fields of its last line. */
  async cleanup(args, options) {
    const child = this.startCleanup(args, options);
    running.add(child);
    const end = await within(120_000, child.exited, 'the pass').finally(() => running.delete(child));
    return { ...end, text: child.text, summary: logLines(child.text).findLast((l) => l.op === 'cleanup') ?? {} };
  }

  /** A call through nginx. token: null sends none. */
  async call(method, target, { token, headers, ...rest } = {}) {
    const bearer = token === undefined ? await this.token() : token;
    return request(this.url + target, { method, headers: { ...(bearer && { authorization: `Bearer ${bearer}` }), ...headers }, ...rest });
  }

  /** The same, with the answer's head as soon as it is there. */
  async open(method, target, { token, headers, ...rest } = {}) {
    const bearer = token === undefined ? await this.token() : token;
    return open(this.url + target, { method, headers: { ...(bearer && { authorization: `Bearer ${bearer}` }), ...headers }, ...rest });
  }

  /** The operations of one session: see operations(). */
  session(id, options) {
    return operations(this, id, options);
  }

  // -------------------------------------------------------------------------------------------------------------- looking

  get database() {
    return this.settings.SANDGATE_DB ?? path.join(this.state, 'sandgate.db');
  }

  /** Rows of the database, by the sqlite3 shell. */
  async rows(sql) {
    const [command, ...args] = [...this.beside, 'sqlite3', '-json', '-cmd', '.timeout 10000', this.database, sql];
    const { stdout } = await run(command, args, { maxBuffer: 64 << 20 });
    return stdout.trim() ? JSON.parse(stdout) : [];
  }

  /** The gateway's log lines as objects. */
  log() {
    return logLines(this.server.text);
  }

  /** Ids of the sandboxes that the provider has. */
  async provided() {
    return (await this.engine.api('GET', '/v2/sandboxes?limit=100')).json.map((s) => s.sandboxID);
  }

  /** The sandboxes at the provider that carry this gateway's label, as it lists them. */
  async labelled() {
    const all = (await this.engine.api('GET', '/v2/sandboxes?limit=100')).json;
    return all.filter((s) => s.metadata.sandgate_instance === this.settings.SANDGATE_INSTANCE);
  }

  /** The rows of all sandboxes that sessions of this name have had, oldest first. */
  history(session) {
    return this.rows(`SELECT * FROM sandboxes WHERE session_id = '${session}' ORDER BY id`);
  }

  /** Waits until the code that runs in the session has printed this, and it has been written down. */
  async printed(session, text) {
    const unfinished = `SELECT id FROM executions WHERE session_id = '${session}' AND state = 'running'`;
    const events = path.join(this.state, 'events');
    const wrote = ({ id }) => fs.readdirSync(events).some((f) => f.startsWith(id) && fs.readFileSync(path.join(events, f)).includes(text));
    await until(async () => (await this.rows(unfinished)).some(wrote), { deadline: 60_000, what: `output of ${session}` });
  }

  /** How often the gateway has asked for a new one. */
  creates() {
    return this.log().filter((l) => l.op === 'e2b create').length;
  }

  /** Worker processes. */
  workers() {
    return fs
      .readFileSync(`/proc/${this.server.pid}/task/${this.server.pid}/children`, 'utf8')
      .split(' ')
      .filter(Boolean)
      .map(Number);
  }

  /** A line of a file of each worker's in /proc, in KiB. One that just ended has none. */
  #kibs(file, field) {
    return this.workers().map((pid) => {
      try {
        return Number(fs.readFileSync(`/proc/${pid}/${file}`, 'utf8').match(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm'))?.[1] ?? 0);
      } catch {
        return 0;
      }
    });
  }

  /** The memory of all workers together, in MiB. */
  pss() {
    return this.#kibs('smaps_rollup', 'Pss').reduce((a, b) => a + b, 0) / 1024;
  }

  /** The most memory that any worker ever had, in MiB. */
  peak() {
    return Math.max(...this.#kibs('status', 'VmHWM')) / 1024;
  }

  /** The worker whose connection to nginx or the engine is busy, by the scoreboard's witness: the one that holds a lease or claim. */
  async workerOf(sql) {
    const [row] = await this.rows(sql);
    return row?.pid;
  }

  // -------------------------------------------------------------------------------------------------------------- ending

  /** Ends all sandboxes: each is a few processes, and there are many tests. */
  async stopAll() {
    const live = await this.rows(`SELECT owner, session_id AS id FROM sandboxes WHERE status IN ('starting', 'running', 'paused')`);
    const stop = async ({ owner, id }) => this.session(id, { token: await this.token(owner) }).stop();
    for (const res of await Promise.all(live.map(stop))) assert.equal(res.status, 204, res.text);
    for (const { id } of await this.rows(`SELECT sandbox_id AS id FROM sandboxes WHERE status = 'stopping' AND sandbox_id <> ''`))
      await this.ctl('kill', id);
  }

  killAll() {
    for (const child of [this.nginx, this.server]) if (child && !child.end) child.process.kill('SIGKILL');
  }

  async stop() {
    if (!running.delete(this)) return;
    try {
      if (cloud) await this.endSandboxes();
      assert.deepEqual(await this.nginx.stop('SIGQUIT'), { code: 0, signal: null }, this.nginx.text.slice(-4000));
      assert.deepEqual(await this.server.stop(), { code: 0, signal: null }, this.server.text.slice(-4000));
      assert.doesNotMatch(this.server.text, /Sanitizer|runtime error/);
      await until(() => this.processes().length === 0, { deadline: 10_000, what: 'the end of all workers' });
      assert.deepEqual(
        fs.readdirSync(this.state).filter((f) => f.endsWith('.sock')),
        [],
      );
    } finally {
      this.killAll();
      fs.rmSync(this.dir, { recursive: true, force: true });
      if (this.own) await this.engine.stop();
    }
  }

  /** What this gateway has made and nobody stopped; the local engine ends its own. */
  async endSandboxes() {
    for (const { sandbox_id } of await this.rows("SELECT sandbox_id FROM sandboxes WHERE sandbox_id <> '' AND status <> 'ended'"))
      await this.engine.api('DELETE', `/sandboxes/${sandbox_id}`);
  }

  processes() {
    return fs
      .readdirSync('/proc')
      .filter((p) => /^\d+$/.test(p))
      .filter((p) => commandLine(p).includes(this.dir) && Number(p) !== process.pid);
  }
}

/** The operations of one session, in dialect A or B, by caller.call(method, target, options). Each returns the whole answer. */
export function operations(caller, id, { dialect = 'A', ...options } = {}) {
  const base = `/api/v1/${dialect === 'A' ? 'session' : 'sessions'}/${id}/sandbox`;
  const query = (p) => (p === undefined ? '' : `?path=${encodeURIComponent(p)}`);
  const call = (method, op, more) => caller.call(method, `${base}/${op}`, { ...options, ...more });
  return {
    base,
    start: (json, more) => call('POST', 'start', { json, ...more }),
    stop: (more) => call('POST', 'stop', more),
    status: (more) => call('GET', 'status', more),
    execute: (code, more) => call('POST', 'execute', { json: { code }, deadline: 120_000, ...more }),
    run: (json, more) => call('POST', 'execute', { json, deadline: 120_000, ...more }),
    stream: (json, more) => openStream(caller, 'POST', `${base}/execute`, { json, ...options, ...more }),
    executions: (query = '', more) => call('GET', `executions${query}`, more),
    execution: (id, more) => call('GET', `executions/${id}`, more),
    follow: (id, query = '', more) => openStream(caller, 'GET', `${base}/executions/${id}/events${query}`, { ...options, ...more }),
    events: (id, query = '', more) => call('GET', `executions/${id}/events${query}`, more),
    cancel: (id, more) => call('DELETE', `executions/${id}`, { deadline: 120_000, ...more }),
    contexts: (more) => call('GET', 'contexts', more),
    createContext: (json, more) => call('POST', 'contexts', { json, ...more }),
    removeContext: (id, more) => call('DELETE', `contexts/${id}`, more),
    restartContext: (id, more) => call('POST', `contexts/${id}/restart`, more),
    envs: (json, more) => call('POST', 'envs', { json, ...more }),
    keepalive: (json, more) => call('POST', 'keepalive', { json, ...more }),
    metrics: (more) => call('GET', 'metrics', more),
    install: (packages, more) => call('POST', 'install', { json: { packages }, deadline: 120_000, ...more }),
    upload: (name, bytes, dir, more) => call('POST', `upload${query(dir)}`, { ...form(name, bytes), ...more }),
    download: (file, more) => call('GET', `download${query(file)}`, more),
    files: (dir, more) => call('GET', `files${query(dir)}`, more),
  };
}

/** A multipart body with one part `file`, and its header; more parts as [name, text]. */
export function form(name, bytes, { part = 'file', more = [], boundary = 'xxBOUNDARYxx', filename = name } = {}) {
  const quoted = filename.replaceAll('\\', '\\\\').replaceAll('"', '%22').replaceAll('\r', '%0D').replaceAll('\n', '%0A');
  const fields = more.map(([k, v]) => `--${boundary}\r\nContent-Disposition: form-data; name="${k}"\r\n\r\n${v}\r\n`).join('');
  const head = `${fields}--${boundary}\r\nContent-Disposition: form-data; name="${part}"; filename="${quoted}"\r\nContent-Type: application/octet-stream\r\n\r\n`;
  return {
    headers: { 'content-type': `multipart/form-data; boundary=${boundary}` },
    body: Buffer.concat([Buffer.from(head), Buffer.from(bytes), Buffer.from(`\r\n--${boundary}--\r\n`)]),
  };
}

/** Asserts an error of the API: its status, its code, how its detail begins, and that it names the request. */
export function assertProblem(res, status, code, detail = /(?:)/) {
  assert.equal(res.status, status, res.text);
  assert.match(res.headers['content-type'], /^application\/json/);
  assert.equal(res.json.code, code, res.text);
  assert.match(res.json.detail, detail);
  assert.equal(res.json.request_id, res.headers['x-request-id']);
}
