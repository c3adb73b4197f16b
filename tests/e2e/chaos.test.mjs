// Workers, the master, cleanup and the engine are killed with SIGKILL, at random moments and a few hundred times, and the network
// between gateway and engine is cut, while clients go on starting, executing, uploading and stopping. Afterwards all that was
// promised must be true. SEED=n repeats a run's choices.
import assert from 'node:assert/strict';
import { createHash, randomInt } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { SUITE, sleep, startEngine, until, within } from './engine.mjs';
import { startGateway } from './gateway.mjs';
import { startProxy } from './proxy.mjs';

const SEED = Number(process.env.SEED || randomInt(1, 2 ** 31));
const SESSIONS = 4; // each has two clients: one that starts, stops, uploads and executes, and one that only executes
const BLOWS = { worker: 160, cleanup: 50, master: 20, engine: 5, network: 25 };
const KILLS = Object.values(BLOWS).reduce((a, b) => a + b) - BLOWS.network;
const PROVIDER_SECS = 5;
const CALL = { deadline: 90_000 };

/** What a client may hear besides success while things die around it. */
const EXCUSES = new Set([
  ...['409 sandbox_stopped', '409 conflict'],
  ...['502 bad_gateway', '502 completion_unknown', '502 provider_error'],
  ...['503 busy', '503 provider_unavailable', '503 unavailable', '503 draining'],
  ...['504 provider_timeout', '504 gateway_timeout'],
]);

/** Numbers that look random and are the same for the same seed (mulberry32). */
class Random {
  constructor(seed) {
    this.state = seed >>> 0;
  }

  next() {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let t = this.state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  }

  below = (n) => Math.floor(this.next() * n);
  pick = (list) => list[this.below(list.length)];

  shuffled(list) {
    const all = [...list];
    for (let i = all.length - 1; i > 0; i--) {
      const j = this.below(i + 1);
      [all[i], all[j]] = [all[j], all[i]];
    }
    return all;
  }
}

let world;

// ---------------------------------------------------------------------------------------------------------------- what dies

class World {
  async start() {
    this.engine = await startEngine();
    this.proxy = await startProxy(this.engine.url);
    this.g = await startGateway({
      engine: this.engine,
      api: this.proxy.url,
      settings: { SANDGATE_PROVIDER_TIMEOUT_SECS: PROVIDER_SECS, SANDGATE_ORPHAN_GRACE_SECS: 0, SANDGATE_QUICK_WORKERS: 2 },
    });
    this.families = [];
    await this.g.token();
    return this;
  }

  async stop() {
    await this.g.stop();
    await this.proxy.close();
    await this.engine.stop();
  }

  /** Victims may have died by themselves. */
  static end(pid) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch (e) {
      if (e.code !== 'ESRCH') throw e;
    }
  }

  async worker(random) {
    World.end(random.pick(this.g.workers()));
  }

  async cleanup(random) {
    const pass = this.g.startCleanup();
    await sleep(random.below(60));
    pass.process.kill('SIGKILL');
    await within(10_000, pass.exited, 'the end of cleanup');
  }

  /** Started again as systemd would: until it can have the sockets. */
  async master() {
    await this.g.server.stop('SIGKILL');
    await until(() => this.g.startServer().then(() => true, () => false), { deadline: 20_000, what: 'the next master' });
  }

  /** The next one has the same folder, but another port: the old one may be somebody's by now. */
  async engineDies() {
    const { dir, family } = this.engine;
    family.look();
    await this.engine.kill9();
    this.families.push(family);
    this.engine = await startEngine({ dir });
    this.g.engine = this.engine;
    this.proxy.target = new URL(this.engine.url);
  }

  async network() {
    this.proxy.cut();
  }

  strike(kind, random) {
    return kind === 'engine' ? this.engineDies() : this[kind](random);
  }

  // -------------------------------------------------------------------------------------------------------------- looking

  /** Passes of cleanup until one has nothing left to do. Creates of dead workers are let look old, or they would be waited for. */
  async tidy() {
    for (let i = 0; i < 8; i++) {
      await this.g.rows(`UPDATE sandboxes SET claim_deadline = 1 WHERE status IN ('starting', 'stopping')`);
      const { code, summary } = await this.g.cleanup();
      if (code === 0 && summary.killed === '0' && summary.orphans_seen === '0' && summary.orphans_killed === '0') return;
    }
    assert.fail('cleanup does not come to an end');
  }

  /** A file of a sandbox, asked of the engine itself; undefined when there is none. */
  async file(row, name) {
    const sandbox = { sandboxId: row.sandbox_id, envdAccessToken: row.envd_token };
    const res = await this.engine.envd(sandbox, 'GET', `/files?path=${encodeURIComponent(name)}`);
    return res.status === 200 ? res.body : undefined;
  }
}

// ---------------------------------------------------------------------------------------------------------------- who calls

/** What the clients of one session were told. */
class Session {
  constructor(id) {
    Object.assign(this, { id, s: world.g.session(id, CALL), runs: [], uploads: [], problems: [], answers: new Map() });
  }

  /** Counts the answer; anything but success and an excuse is a problem. */
  heard(op, res) {
    const what = res.status < 300 ? String(res.status) : `${res.status} ${JSON.parse(res.text).code}`;
    this.answers.set(`${op} ${what}`, (this.answers.get(`${op} ${what}`) ?? 0) + 1);
    if (res.status >= 300 && !EXCUSES.has(what)) this.problems.push(`${op}: ${what}: ${res.text.slice(0, 300)}`);
    return res.status < 300;
  }

  async execute(random, n) {
    const code = `import time\nopen('/home/user/ran', 'a').write('${n}\\n')\ntime.sleep(${random.pick([0, 0, 0.05, 0.4])})\nprint(${n})`;
    const res = await this.s.execute(code);
    const ok = this.heard('execute', res);
    const { output, generation, execution_id: id, code: problem } = JSON.parse(res.text);
    if (ok && output !== `${n}\n`) this.problems.push(`execute ${n}: ${res.text}`);
    this.runs.push({ n, ok, generation, id, problem });
  }

  /** The sandbox that took it is known where it is the same before and after. */
  async upload(random, n) {
    const bytes = Buffer.alloc(1 + random.below(200_000), n);
    const sandbox = async () => (await this.s.status()).json?.sandbox_id;
    const before = await sandbox();
    if (!this.heard('upload', await this.s.upload(`f${n}`, bytes))) return;
    if (before && before === (await sandbox())) this.uploads.push({ name: `f${n}`, bytes, sandbox: before });
  }

  async start() {
    this.heard('start', await this.s.start());
  }

  /** What is about to be thrown away is looked at first. */
  async stop() {
    const ran = await traces(this.id).catch(() => []); // the engine may be down
    if (new Set(ran).size !== ran.length) this.problems.push(`something ran twice: ${ran}`);
    this.heard('stop', await this.s.stop());
  }
}

/** The numbers of the runs that have left a trace in the session's sandbox. */
async function traces(id) {
  const row = (await world.g.history(id)).at(-1);
  const bytes = row?.status === 'running' ? await world.file(row, '/home/user/ran') : undefined;
  return String(bytes ?? '').split('\n').filter(Boolean).map(Number);
}

let count = 0;

/** Calls, one after the other, until told to end. */
async function client(session, operations, random, load) {
  while (load.on) await session[random.pick(operations)](random, ++count).catch((e) => session.problems.push(e.stack));
}

const ALL = ['start', 'upload', 'upload', 'execute', 'execute', 'execute', 'execute', 'stop'];

// ---------------------------------------------------------------------------------------------------------------- the test

/** Nobody ran twice, what was said to have run has left its trace, and what was said to be there is there. */
async function assertTraces(session) {
  const row = (await world.g.history(session.id)).at(-1);
  if (row?.status !== 'running') return;
  const ran = await traces(session.id);
  assert.equal(new Set(ran).size, ran.length, `${session.id}: something ran twice: ${ran}`);
  for (const run of session.runs.filter((r) => r.ok && r.generation === row.generation)) assert.ok(ran.includes(run.n), `${run.n} has run`);
  const sum = (bytes) => createHash('sha256').update(bytes ?? '').digest('hex');
  for (const { name, bytes } of session.uploads.filter((u) => u.sandbox === row.sandbox_id))
    assert.equal(sum(await world.file(row, `/home/user/upload/${name}`)), sum(bytes), `${session.id}: ${name}`);
}

/** What the rows say of a run is what its client was told. */
async function assertRows(session) {
  const rows = await world.g.rows(`SELECT id, state FROM executions WHERE session_id = '${session.id}'`);
  const states = new Map(rows.map((r) => [r.id, r.state]));
  for (const { id, ok, n, problem } of session.runs.filter((r) => r.id)) {
    const allowed = ok ? ['succeeded'] : problem === 'completion_unknown' ? ['completion_unknown'] : ['failed', 'completion_unknown'];
    assert.ok(allowed.includes(states.get(id)), `run ${n}: ${states.get(id)}, but its client was told ${ok ? 'success' : problem}`);
  }
}

describe('chaos', SUITE, () => {
  const random = new Random(SEED);
  const sessions = [];
  before(async () => {
    console.log(`summary: chaos: SEED=${SEED}`);
    world = await new World().start();
  });
  after(() => world?.stop());

  test(`${KILLS} kills under load`, async () => {
    const load = { on: true };
    for (let i = 0; i < SESSIONS; i++) sessions.push(new Session(`chaos${i}`));
    const clients = sessions.flatMap((session, i) => [
      client(session, ALL, new Random(SEED + 2 * i + 1), load),
      client(session, ['execute'], new Random(SEED + 2 * i + 2), load),
    ]);
    try {
      for (const kind of random.shuffled(Object.entries(BLOWS).flatMap(([what, n]) => Array(n).fill(what)))) {
        await sleep(50 + random.below(200));
        await world.strike(kind, random);
      }
    } finally {
      load.on = false;
    }
    await within(120_000, Promise.all(clients), 'the last answers');
    assert.deepEqual(sessions.flatMap((s) => s.problems), []);
    const told = [...sessions.flatMap((s) => [...s.answers])].reduce((all, [what, n]) => all.set(what, (all.get(what) ?? 0) + n), new Map());
    console.log([...told].sort().map(([what, n]) => `${what}: ${n}`).join('\n'));
    console.log(`summary: chaos: ${KILLS} kills, ${[...told.values()].reduce((a, b) => a + b, 0)} answers`);
    assert.ok((told.get('execute 200') ?? 0) > 50, 'there was a load');
  });

  test('one sandbox for each session, the provider has what the rows say, and nothing of the dead stays', async () => {
    await world.tidy();
    const live = await world.g.rows(`SELECT session_id, sandbox_id AS id, status FROM sandboxes WHERE status <> 'ended'`);
    assert.deepEqual((await world.g.labelled()).map((s) => s.sandboxID).sort(), live.map((r) => r.id).sort());
    assert.equal(new Set(live.map((r) => r.session_id)).size, live.length);
    assert.deepEqual([...new Set(live.map((r) => r.status))].filter((s) => s !== 'running'), []);
    assert.deepEqual(await world.g.rows('SELECT * FROM leases'), []);
    assert.deepEqual(await world.g.rows(`SELECT id FROM executions WHERE state IN ('queued', 'running')`), []);
    assert.deepEqual(await world.g.rows('PRAGMA integrity_check'), [{ integrity_check: 'ok' }]);
    assert.deepEqual(await world.g.rows('PRAGMA foreign_key_check'), []);
    for (const family of world.families) assert.deepEqual(family.alive(), [], 'processes of an engine that was killed');
  });

  test('nothing ran twice, and what was answered is true', async () => {
    for (const session of sessions) {
      await assertTraces(session);
      await assertRows(session);
    }
  });

  test('all sessions work', async () => {
    for (const { s, id } of sessions) {
      const res = await s.execute('print(40 + 2)');
      assert.deepEqual([res.status, res.json.output], [200, '42\n'], `${id}: ${res.text}`);
      assert.equal((await s.stop()).status, 204);
    }
    assert.deepEqual(await world.g.labelled(), []);
  });

  test('a killed engine is told as lost state', async () => {
    const { s } = sessions[0];
    assert.equal((await s.execute('x = 1')).status, 200);
    await world.strike('engine', random);
    const next = await s.execute('print("x" in globals())');
    assert.deepEqual([next.status, next.json.output, next.json.state_lost, next.json.reason], [200, 'False\n', true, 'killed_by_provider']);
    await s.stop();
  });
});
