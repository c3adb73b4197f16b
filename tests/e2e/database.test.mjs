// What the gateway does when its database is locked by somebody else, on a full disk, read-only or damaged, and when the gateway is
// killed with executions running: it says so, nothing is lost or run twice, and it goes on by itself once it can.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { BUILD, SUITE, sleep, startEngine, tempFolder, until, within } from './engine.mjs';
import { assertProblem, startGateway } from './gateway.mjs';
import { startProxy } from './proxy.mjs';
import { SPACE, fill, inside, skip, startSmall } from './smalldisk.mjs';

const SANDGATE = path.join(BUILD, 'sandgate');
const LOCK_SECS = 5; // how long the gateway waits for a lock
const MARK = `open('/home/user/mark', 'a').write('x')`;
const WAS_MARKED = `import os\nprint(os.path.exists('/home/user/mark'))`;
const napping = (secs) => `print("before", flush=True)\nimport time\ntime.sleep(${secs})\nprint("after")`;

let engine;
before(async () => (engine = await startEngine()));
after(() => engine?.stop());

/** Another process that holds the write lock, until release(). */
async function hold(file, begin) {
  const shell = spawn('sqlite3', ['-batch', file], { stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = once(shell, 'exit');
  shell.stdin.write(`.timeout 10000\n${begin};\nSELECT 'locked';\n`);
  await within(15_000, once(shell.stdout, 'data'), 'the lock');
  return {
    async release() {
      shell.stdin.end('ROLLBACK;\n');
      await within(15_000, ended, 'the end of the lock');
    },
  };
}

/** What the provider has is what the rows say. */
async function assertAgreement(g) {
  const rows = await g.rows(`SELECT sandbox_id AS id FROM sandboxes WHERE status IN ('running', 'paused', 'stopping') AND sandbox_id <> ''`);
  assert.deepEqual((await g.labelled()).map((s) => s.sandboxID).sort(), rows.map((r) => r.id).sort());
}

const integrity = async (g) => assert.deepEqual(await g.rows('PRAGMA integrity_check'), [{ integrity_check: 'ok' }]);
const states = async (g, id) => (await g.rows(`SELECT state FROM executions WHERE session_id = '${id}' ORDER BY seq`)).map((r) => r.state);

/** The time is over after which an execution without a lease counts as over. */
const age = (g) => g.rows(`UPDATE leases SET until = 1; UPDATE executions SET started_at = 1 WHERE state IN ('queued', 'running')`);

// ---------------------------------------------------------------------------------------------------------------- the tests

/** Runs fn with a gateway of its own. */
async function withGateway(options, fn) {
  const settings = { SANDGATE_ORPHAN_GRACE_SECS: 0, SANDGATE_PROVIDER_TIMEOUT_SECS: 5 };
  const g = await startGateway({ engine, settings, ...options });
  try {
    await fn(g);
  } finally {
    await g.stop();
  }
}

async function refusedWhileLocked(g, begin) {
  const [there, running] = [g.session('there'), g.session('running')];
  for (const s of [there, running]) assert.equal((await s.start()).status, 200);
  const run = running.execute(napping(2));
  await g.printed('running', 'before');
  const lock = await hold(g.database, begin);
  try {
    const status = await there.status();
    assert.deepEqual([status.status, status.json.status], [200, 'running']);
    const calls = [g.session('new').start(), there.execute(MARK), there.upload('f', 'x'), there.stop()];
    for (const res of await within(8 * LOCK_SECS * 1000, Promise.all(calls), 'the refusals')) {
      assertProblem(res, 503, 'busy');
      assert.match(res.headers['retry-after'], /^\d+$/);
    }
    const res = await within(8 * LOCK_SECS * 1000, run, 'the answer of what ran');
    assert.deepEqual([res.status, res.json.output], [200, 'before\nafter\n'], res.text);
  } finally {
    await lock.release();
  }
}

/** After something that was in the way of writing: nothing of what was refused was done, and all can be used. */
async function assertRecovered(g) {
  const next = await g.session('there').execute(WAS_MARKED);
  assert.deepEqual([next.status, next.json.output, next.json.generation], [200, 'False\n', 1], next.text);
  assert.equal((await g.session('new').start()).status, 200);
  assert.equal((await g.session('running').execute('1')).status, 200);
  await age(g);
  assert.equal((await g.cleanup()).code, 0);
  const [first, ...others] = await states(g, 'running');
  assert.ok(['succeeded', 'completion_unknown'].includes(first), first);
  assert.deepEqual(others, ['succeeded']);
  assert.deepEqual(await g.rows('SELECT * FROM leases'), []);
  await assertAgreement(g);
  await integrity(g);
}

describe('the database', { ...SUITE, concurrency: true }, () => {
  for (const begin of ['BEGIN IMMEDIATE', 'BEGIN EXCLUSIVE'])
    test(`locked by another process (${begin}): 503 busy after ${LOCK_SECS} s, reading goes on, and nothing is lost`, () =>
      withGateway({}, async (g) => {
        await refusedWhileLocked(g, begin);
        await assertRecovered(g);
      }));

  test('a lock that is over in time is not noticed', () =>
    withGateway({}, async (g) => {
      const s = g.session('short');
      await s.start();
      const lock = await hold(g.database, 'BEGIN IMMEDIATE');
      const run = s.execute('print(1)');
      await sleep(1500);
      await lock.release();
      assert.deepEqual([(await run).status, (await run).json.output], [200, '1\n']);
    }));

  test('a sandbox that is made while it is locked is not left to burn', async () => {
    const proxy = await startProxy(engine.url);
    try {
      await withGateway({ api: proxy.url }, async (g) => {
        const fault = proxy.fault({ method: 'POST', path: '/v2/sandboxes' }, { delayReply: Infinity }, { times: 1 });
        const start = g.session('made').start();
        await until(() => fault.held === 1, { what: 'the create' });
        const lock = await hold(g.database, 'BEGIN IMMEDIATE');
        try {
          fault.release();
          assertProblem(await within(8 * LOCK_SECS * 1000, start, 'the refusal'), 503, 'busy');
        } finally {
          await lock.release();
        }
        assert.equal((await g.session('made').start()).status, 200);
        await until(async () => (await g.labelled()).length === 1, { what: 'the end of the first one' });
        await assertAgreement(g);
      });
    } finally {
      await proxy.close();
    }
  });

  test('SIGKILL of the gateway: runs are completion_unknown, sandboxes and variables stay, and the next one takes the sockets', () =>
    withGateway({}, async (g) => {
      const sessions = ['a', 'b', 'c'].map((id) => g.session(id));
      await Promise.all(sessions.map((s) => s.execute('x = 41')));
      const ids = await Promise.all(sessions.map(async (s) => (await s.status()).json.sandbox_id));
      const runs = sessions.map((s) => s.execute(napping(600)));
      for (const id of ['a', 'b', 'c']) await g.printed(id, 'before');
      await g.server.stop('SIGKILL');
      for (const res of await within(20_000, Promise.all(runs), 'their answers')) assertProblem(res, 502, 'bad_gateway');
      await g.startServer();
      for (const [n, s] of sessions.entries()) {
        const next = await within(30_000, s.execute('x + 1'), 'the next run');
        assert.deepEqual([next.status, next.json.output, next.json.state_lost], [200, '42\n', false], next.text);
        assert.equal((await s.status()).json.sandbox_id, ids[n]);
      }
      await until(async () => (await g.rows('SELECT * FROM leases')).length === 0, { what: 'the end of the leases' });
      for (const id of ['a', 'b', 'c']) assert.deepEqual(await states(g, id), ['succeeded', 'completion_unknown', 'succeeded']);
      await assertAgreement(g);
      await integrity(g);
    }));

  test('on a full disk reading goes on, what runs comes to its end, the rest is told, and all is well with space again', { skip }, async () => {
    const g = await startSmall(engine);
    try {
      for (const id of ['there', 'running']) assert.equal((await g.session(id).start()).status, 200);
      const run = g.session('running').execute(napping(3));
      await until(async () => (await g.rows('SELECT 1 FROM leases')).length === 1, { what: 'the run' });
      await sleep(500);
      const ballast = path.join(g.seen, 'ballast');
      fill(ballast);
      const status = await g.session('there').status();
      assert.deepEqual([status.status, status.json?.status], [200, 'running'], status.text);
      for (const res of await Promise.all([g.session('new').start(), g.session('there').execute(MARK)])) assertProblem(res, 500, 'internal');
      await until(() => g.log().some((l) => l.status === '500' && /full/.test(l.error)), { what: 'the reason in the log' });
      const res = await within(60_000, run, 'the end of what ran');
      assert.equal(res.status, 200, res.text);
      fs.rmSync(ballast);
      await assertRecovered(g);
    } finally {
      await g.stop();
    }
  });

  test('read-only: workers that find it so say so, and serve again when it is not any more', { skip }, async () => {
    const g = await startSmall(engine);
    try {
      const s = g.session('ro');
      await s.execute('x = 41');
      // A second mount above the first: files that are open stay as they are, new workers meet this one.
      inside(g, 'mount', '--bind', g.place, g.place);
      inside(g, 'mount', '-o', 'remount,ro,bind', g.place);
      g.server.process.kill('SIGHUP');
      await until(() => g.log().some((l) => l.op === 'worker' && /read-only/.test(l.error)), { deadline: 30_000, what: 'the message' });
      const res = await s.execute('1', { deadline: 60_000 });
      assert.ok(res.status >= 500, res.text);
      assert.ok(res.json.code && res.json.request_id, res.text);
      inside(g, 'umount', g.place);
      const next = await until(async () => (await s.execute('x + 1').then((r) => r.status === 200 && r)), { deadline: 60_000, what: 'serving' });
      assert.deepEqual([next.json.output, next.json.state_lost], ['42\n', false]);
      await integrity(g);
    } finally {
      await g.stop();
    }
  });
});

// ---------------------------------------------------------------------------------------------------------------- at the start

describe('a gateway that starts', SUITE, () => {
  const dir = tempFolder();
  let whole; // a database that was used, checkpointed
  before(async () => {
    const g = await startGateway({ engine });
    try {
      for (let i = 0; i < 20; i++) await g.session('s').execute(`print(${i})  # ${'some more text '.repeat(200)}`);
      await g.session('s').stop();
      await g.rows('PRAGMA wal_checkpoint(TRUNCATE)');
      whole = fs.readFileSync(g.database);
    } finally {
      await g.stop();
    }
  });
  after(() => fs.rmSync(dir, { recursive: true, force: true }));

  /** The gateway on this database, until it ends by itself or is ready: { code, stderr }. */
  async function start(name, bytes, wrap = []) {
    const state = path.join(dir, name);
    fs.mkdirSync(state, { mode: 0o700 });
    fs.writeFileSync(path.join(state, 'sandgate.db'), bytes, { mode: 0o600 });
    const settings = { E2B_API_KEY: 'x', E2B_API_URL: 'http://127.0.0.1:9', SANDGATE_STATE_DIR: state };
    const [command, ...args] = [...wrap, SANDGATE];
    const child = spawn(command, args, { env: { PATH: process.env.PATH, ...settings }, stdio: ['ignore', 'ignore', 'pipe'] });
    let stderr = '';
    child.stderr.setEncoding('utf8').on('data', (d) => {
      stderr += d;
      if (/^sandgate: ready/m.test(stderr)) child.kill('SIGTERM');
    });
    const [code] = await within(30_000, once(child, 'close'), 'its end');
    return { code, stderr };
  }

  async function refuses(name, bytes) {
    const { code, stderr } = await start(name, bytes);
    assert.equal(code, 2, stderr);
    const file = path.join(dir, name, 'sandgate.db');
    assert.match(stderr, /^sandgate: the database [^\n]+ is damaged \([^\n]+\): [^\n]*backup[^\n]*\n$/);
    assert.ok(stderr.includes(file) && stderr.includes('-wal'), stderr);
    assert.deepEqual(fs.readFileSync(file), bytes, 'the file is as it was');
  }

  const spoilt = (at, n) => {
    const bytes = Buffer.from(whole);
    bytes.fill('garbage ', at, at + n);
    return bytes;
  };
  const page = () => whole.readUInt16BE(16);

  test('takes a whole one', async () => {
    assert.equal((await start('whole', whole)).code, 0);
  });
  test('refuses one with a garbage header', () => refuses('header', spoilt(0, 100)));
  test('refuses one whose schema is garbage', () => refuses('schema', spoilt(100, page() - 100)));
  test('refuses one with a garbage page in the middle', () => {
    const pages = whole.length / page();
    return refuses('page', spoilt(page() * Math.floor(pages / 2), page()));
  });
  test('refuses one that is cut off', () => refuses('cut', whole.subarray(0, whole.length - 3 * page())));

  test('refuses one that is read-only, and says so', { skip }, async () => {
    const script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"';
    const { code, stderr } = await start('ro', whole, [...SPACE, 'sh', '-c', script, path.join(dir, 'ro')]);
    assert.equal(code, 2, stderr);
    assert.match(stderr, /^sandgate: [^\n]*sandgate\.db[^\n]*read-only[^\n]*\n$/i);
  });
});
