// What is measured: the real engine, gateway and nginx, and Node in the gateway's place where its packages are installed.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { INTERPRETER, request, tempFolder, until } from '../e2e/engine.mjs';
import { Child, NGINX, TOP, freePort, startGateway } from '../e2e/gateway.mjs';

const HERE = path.dirname(fileURLToPath(import.meta.url));
export const USER = 'bench';
const MEMORY = '/dev/shm'; // a tmpfs, as a sandbox's disk is
export const STATUS = 'status'; // the session whose status is asked for

/** More than a site would allow; the benchmark says so. */
export const RAISED = {
  SANDGATE_MAX_SANDBOXES: 100_000,
  SANDGATE_MAX_SANDBOXES_PER_USER: 100_000,
  SANDGATE_EXEC_WORKERS_MAX: 640,
};

const PLATFORM = `node-linux-${process.arch}`;
const NODE = path.join(HERE, 'node_modules', PLATFORM, 'bin/node');

export const hasNode = () => fs.existsSync(NODE) && fs.existsSync(path.join(HERE, 'node_modules/fastify'));

const worlds = new Set();
process.on('exit', () => worlds.forEach((world) => world.killAll()));

export async function startWorld({ engine, settings } = {}) {
  const world = new World();
  try {
    world.g = await startGateway({ engine, quiet: true, settings: { ...RAISED, ...settings } });
    world.token = await world.g.token(USER);
    if (hasNode()) await world.startNode();
    await world.startNginx();
  } catch (e) {
    await world.stop().catch(() => {});
    throw e;
  }
  return world;
}

class World {
  constructor() {
    this.dir = tempFolder('sandgate-bench-');
    this.store = fs.mkdtempSync(path.join(fs.existsSync(MEMORY) ? MEMORY : this.dir, 'sandgate-bench-'));
    worlds.add(this);
  }

  get engine() {
    return this.g.engine;
  }

  /** A session of the benchmark's user that has a sandbox. */
  async session(id, json) {
    const session = this.g.session(id, { token: this.token });
    const { status, text } = await session.start(json, { deadline: 120_000 });
    assert.equal(status, 200, text);
    return session;
  }

  /** The address of a session's operation as a site serves it, and the header of the one who calls. */
  site(id, operation) {
    return { url: `${this.url('SITE')}/api/v1/session/${id}/sandbox/${operation}`, headers: { authorization: `Bearer ${this.token}` } };
  }

  /** How the engine itself is asked about a session's sandbox. */
  async direct(id, port) {
    const [row] = await this.g.rows(`SELECT sandbox_id, envd_token FROM sandboxes WHERE session_id = '${id}' AND status = 'running'`);
    return { 'e2b-sandbox-id': row.sandbox_id, 'e2b-sandbox-port': String(port), 'x-access-token': row.envd_token };
  }

  /** Both ways to execute code in a session's sandbox: through nginx and the gateway, and by the engine itself. */
  async ways(id) {
    return { gateway: this.site(id, 'execute'), engine: { url: `${this.engine.url}/execute`, headers: await this.direct(id, INTERPRETER) } };
  }

  /** Starts nginx.conf.in. Sets ports. */
  async startNginx() {
    const { base } = await this.session(STATUS);
    const answer = (await this.g.call('GET', `${base}/status`, { token: this.token })).text.trim();
    const prefix = path.join(this.dir, 'nginx');
    fs.mkdirSync(prefix, { recursive: true });
    fs.symlinkSync(path.join(TOP, 'nginx'), path.join(prefix, 'sandgate'));
    for (let tries = 0; ; tries++) {
      this.ports = {};
      for (const name of ['SITE', 'ASKED', 'OPEN', 'NODE', 'BARE', 'STORE']) this.ports[name] = await freePort();
      const words = {
        STATE: this.g.state,
        NODE: this.nodeSocket,
        STORE: this.store,
        USER,
        ANSWER: answer,
        ENGINE: this.engine.url,
        ...Object.fromEntries(Object.entries(this.ports).map(([name, port]) => [`PORT_${name}`, port])),
      };
      const text = fs.readFileSync(path.join(HERE, 'nginx.conf.in'), 'utf8').replaceAll(/@([A-Z_]+)@/g, (_, word) => words[word]);
      fs.writeFileSync(path.join(prefix, 'nginx.conf'), text, { mode: 0o600 });
      const user = process.getuid() === 0 ? ['-g', 'user root;'] : [];
      this.nginx = new Child(NGINX, ['-p', prefix, '-c', 'nginx.conf', '-e', 'stderr', ...user]);
      const up = () => request(`${this.url('SITE')}/healthz`).then((r) => r.status === 200, () => false);
      if ((await until(async () => this.nginx.end ?? (await up()), { deadline: 30_000, what: 'nginx' })) === true) return;
      if (tries === 3) throw new Error(`nginx does not start\n${this.nginx.text}`);
    }
  }

  url(server) {
    return `http://127.0.0.1:${this.ports[server]}`;
  }

  get nodeSocket() {
    return path.join(this.dir, 'node.sock');
  }

  async startNode() {
    const args = [path.join(HERE, 'node-server.mjs'), path.join(this.g.state, 'sandgate.db'), this.nodeSocket];
    this.node = new Child(NODE, args, { out: path.join(this.dir, 'node.log') });
    await this.node.line(/^ready$/m, "Node's server");
  }

  get #children() {
    return [this.nginx, this.node].filter((child) => child && !child.end);
  }

  killAll() {
    for (const child of this.#children) child.process.kill('SIGTERM'); // both end what they have started
    for (const dir of [this.store, this.dir]) fs.rmSync(dir, { recursive: true, force: true });
  }

  async stop() {
    for (const child of this.#children) await child.stop('SIGTERM').catch(() => child.process.kill('SIGKILL'));
    await this.g?.stop();
    for (const dir of [this.store, this.dir]) fs.rmSync(dir, { recursive: true, force: true });
    worlds.delete(this);
  }
}
