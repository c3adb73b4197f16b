// The FastCGI server behind nginx: two pools that grow and shrink, crashed workers, SIGTERM, SIGHUP, clients that have left, and what
// it says when it cannot start.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { BUILD, SUITE, startEngine, tempFolder, until, within } from './engine.mjs';
import { assertProblem, startGateway } from './gateway.mjs';
import { startProxy } from './proxy.mjs';

const SANDGATE = path.join(BUILD, 'sandgate');
const QUICK = 2;
const START = 4; // exec workers at rest

let engine;
before(async () => (engine = await startEngine()));
after(() => engine?.stop());

const start = ({ settings, ...options } = {}) =>
  startGateway({ engine, settings: { SANDGATE_QUICK_WORKERS: QUICK, ...settings }, ...options });
const napping = (secs) => `import time\ntime.sleep(${secs})\nprint("done")`;
const leases = async (g) => (await g.rows('SELECT 1 FROM leases')).length;
const running = (g, n) => until(async () => (await leases(g)) === n, { deadline: 60_000, what: `${n} running executions` });

/** Connections that nginx has made to the exec pool and nobody has accepted yet: 02 is the kernel's word for that. */
function backlog(g) {
  const lines = fs.readFileSync('/proc/net/unix', 'utf8').split('\n');
  return lines.map((l) => l.split(/\s+/)).filter((f) => f[7] === path.join(g.state, 'exec.sock') && f[5] === '02').length;
}

/** A call whose client can leave before it is answered. */
async function begin(g, method, target, json) {
  const headers = { authorization: `Bearer ${await g.token()}`, 'content-type': 'application/json' };
  const req = http.request(g.url + target, { method, headers, agent: false });
  const sent = new Promise((resolve) => req.end(JSON.stringify(json), resolve));
  req.on('error', () => {}).on('response', (res) => res.resume());
  await sent;
  return { leave: () => req.destroy() };
}

/** Calls in `lanes` at once, again and again, until it is stopped; every one must be a 200. */
function stream(lanes) {
  const state = { on: true, calls: 0 };
  const done = Promise.all(
    lanes.map(async (call) => {
      while (state.on) {
        const res = await call();
        assert.equal(res.status, 200, res.text);
        state.calls++;
      }
    }),
  );
  done.catch(() => {}); // whoever stops it hears of it
  return {
    calls: () => state.calls,
    stop() {
      state.on = false;
      return done;
    },
  };
}

// Mostly waiting, each with a gateway of its own.
describe('the server', { ...SUITE, concurrency: true }, () => {
  const ALONE = { ...SUITE, concurrency: false };

  describe('the pools', ALONE, () => {
    let g;
    before(async () => (g = await start({ settings: { SANDGATE_EXEC_WORKERS_MAX: START } })));
    after(() => g?.stop());

    test('with every exec worker busy quick calls are answered, and the others wait and are served', async () => {
      const sessions = Array.from({ length: START }, (_, n) => g.session(`busy${n}`));
      await Promise.all(sessions.map((s) => s.start()));
      let ended = 0;
      const busy = sessions.map((s) => s.execute(napping(8)).finally(() => ended++));
      await running(g, START);
      const more = Array.from({ length: 12 }, (_, n) => sessions[n % START].execute(`print(${n})`));
      for (let i = 0; i < 10; i++) assert.equal((await within(3_000, sessions[0].status(), 'status')).status, 200);
      assert.equal((await g.call('GET', '/healthz', { token: null })).status, 200);
      assert.equal(ended, 0, 'all were busy meanwhile');
      assert.equal(g.workers().length, QUICK + START);
      for (const res of await Promise.all(busy)) assert.equal(res.json.output, 'done\n');
      for (const [n, res] of (await Promise.all(more)).entries()) assert.equal(res.json?.output, `${n}\n`, res.text);
    });

    test('what a client asked for that left while it waited is not executed', async () => {
      await g.session('full').start();
      await g.session('ghost').start();
      const fillers = [];
      for (let i = 0; i < START; i++) fillers.push(await begin(g, 'POST', `${g.session('full').base}/execute`, { code: napping(600) }));
      await running(g, START);
      const ghost = await begin(g, 'POST', `${g.session('ghost').base}/execute`, { code: 'open("/home/user/written", "w").write("x")' });
      const stranger = await begin(g, 'POST', `${g.session('never').base}/start`, {});
      await until(() => backlog(g) === 2, { what: 'two calls in the backlog' });
      ghost.leave();
      stranger.leave();
      await until(() => fs.readFileSync(g.accessLog, 'utf8').match(/"status": ?499/g)?.length === 2, { what: 'two departures' });
      for (const filler of fillers) filler.leave();
      const gone = (op, session) => g.log().some((l) => l.status === '499' && l.op?.endsWith(op) && l.session === session);
      await until(() => gone('execute', 'ghost') && gone('start', 'never'), { deadline: 60_000, what: 'calls of nobody' });
      assert.deepEqual(
        (await g.session('ghost').files('/home/user')).json.filter((f) => f.path.endsWith('written')),
        [],
      );
      assert.deepEqual(await g.rows(`SELECT id FROM executions WHERE session_id = 'ghost'`), []);
      assert.deepEqual(await g.rows(`SELECT id FROM sandboxes WHERE session_id = 'never'`), []);
      // The fillers themselves were interrupted, and their session is free again.
      assert.equal((await g.session('full').execute('1')).json.output, '1\n');
      assert.equal(await leases(g), 0);
    });

    test('crashed workers are replaced', async () => {
      const before = g.workers();
      for (const pid of before) process.kill(pid, 'SIGKILL');
      const replaced = () => g.workers().length === before.length && !g.workers().some((pid) => before.includes(pid));
      await until(replaced, { deadline: 30_000, what: 'new workers' });
      assert.equal((await g.session('full').status()).status, 200);
      assert.equal((await g.session('full').execute('2')).json.output, '2\n');
      assert.equal(g.log().filter((l) => l.op === 'worker' && /signal 9/.test(l.error)).length, before.length);
    });
  });

  describe('the exec pool', ALONE, () => {
    const MAX = 16;
    let g;
    before(async () => (g = await start({ settings: { SANDGATE_EXEC_WORKERS_MAX: MAX } })));
    after(() => g?.stop());

    test('grows under load, to its limit at the most, and shrinks back', async () => {
      assert.equal(g.workers().length, QUICK + START);
      let most = 0;
      const timer = setInterval(() => (most = Math.max(most, g.workers().length)), 20);
      const answers = await Promise.all(Array.from({ length: 3 * MAX }, () => g.session('grow').execute('import time; time.sleep(0.05)')));
      clearInterval(timer);
      for (const res of answers) assert.equal(res.status, 200, res.text);
      assert.equal(most, QUICK + MAX);
      await until(() => g.workers().length === QUICK + START, { deadline: 90_000, every: 200, what: 'shrinking' });
      assert.equal(g.log().filter((l) => l.op === 'worker').length, 0, 'nobody crashed');
    });
  });

  describe('SIGTERM', ALONE, () => {
    test('lets a running execution finish, refuses new ones, and ends with 0', async () => {
      const g = await start({ settings: { SANDGATE_DRAIN_SECS: 60 } });
      try {
        const s = g.session('drain');
        await s.start();
        const run = s.execute(napping(8));
        await running(g, 1);
        g.server.process.kill('SIGTERM');
        await until(() => g.log().some((l) => l.op === 'drain'), { what: 'the drain' });
        const refused = [await s.execute('1'), await g.session('other').start(), await s.upload('f', 'x')];
        for (const res of refused) {
          assertProblem(res, 503, 'draining');
          assert.match(res.headers['retry-after'], /^[1-9]\d*$/);
        }
        assert.equal((await s.status()).json.status, 'running');
        const ready = await g.call('GET', '/readyz', { token: null });
        assert.deepEqual([ready.status, ready.json.status], [503, 'draining']);
        const res = await run;
        assert.deepEqual([res.status, res.json.output], [200, 'done\n'], res.text);
        assert.deepEqual(await within(20_000, g.server.exited, 'the end'), { code: 0, signal: null });
        const late = await s.status();
        assertProblem(late, late.status, late.json.code); // nginx's own words, and JSON
        assert.ok(late.status === 502 || late.status === 503, late.text);
      } finally {
        await g.stop();
      }
    });

    test('cuts a run that is longer than the drain; its sandbox and its state are there after the restart', async () => {
      const g = await start({ settings: { SANDGATE_DRAIN_SECS: 1 } });
      try {
        const s = g.session('cut');
        await s.execute('x = 41');
        const run = s.execute(napping(600));
        await running(g, 1);
        g.server.process.kill('SIGTERM');
        assert.deepEqual(await within(30_000, g.server.exited, 'the end'), { code: 0, signal: null });
        const res = await within(5_000, run, 'the answer');
        assertProblem(res, 502, 'bad_gateway');
        await g.startServer();
        const next = await s.execute('x + 1');
        assert.deepEqual([next.status, next.json.output, next.json.state_lost], [200, '42\n', false], next.text);
        await until(async () => (await leases(g)) === 0, { what: 'the end of the lease' });
        const states = await g.rows('SELECT state FROM executions ORDER BY seq');
        assert.deepEqual(states.map((r) => r.state), ['succeeded', 'completion_unknown', 'succeeded']);
      } finally {
        await g.stop();
      }
    });
  });

  describe('SIGHUP', ALONE, () => {
    let g;
    before(async () => (g = await start()));
    after(() => g?.stop());

    const reload = async (settings) => {
      const before = g.workers();
      await g.configure({ ...g.settings, ...settings }, engine.url);
      g.server.process.kill('SIGHUP');
      return before;
    };
    const big = async () => (await g.session('hup').execute('print("x" * 5000)')).json;

    test('replaces the workers without dropping a request', async () => {
      const s = g.session('hup');
      const other = g.session('hup-other');
      await s.start();
      await other.start();
      assert.equal((await big()).truncated, false);
      const long = other.execute(napping(3));
      await running(g, 1);
      const lanes = [() => s.status(), () => s.execute('1'), () => s.files('/home/user'), () => s.upload('f', 'x'), () => s.start()];
      const calls = stream(lanes);
      for (const max of [4096, 2048, 1024]) {
        const before = await reload({ SANDGATE_OUTPUT_MAX_BYTES: max });
        const so = calls.calls();
        // The one that is running stays until it has finished.
        await until(() => g.workers().filter((pid) => before.includes(pid)).length <= 1 && calls.calls() > so + 20, {
          deadline: 60_000,
          what: 'new workers',
        });
      }
      await calls.stop();
      const res = await long;
      assert.deepEqual([res.status, res.json.output], [200, 'done\n'], res.text);
      const now = await big();
      assert.deepEqual([now.truncated, now.stdout_bytes], [true, 5001]);
      assert.ok(now.stdout.length < 1500, `${now.stdout.length}`);
      assert.equal(g.log().filter((l) => l.op === 'worker').length, 0, 'nobody crashed');
    });

    test('with a bad file keeps serving and says so', async () => {
      const s = g.session('hup');
      const reloads = () => g.log().filter((l) => l.op === 'reload' && l.generation).length;
      const before = reloads();
      const text = fs.readFileSync(g.config, 'utf8');
      fs.writeFileSync(g.config, `${text}SANDGATE_OUTPUT_MAX_BYTES=lots\n`);
      g.server.process.kill('SIGHUP');
      const line = await until(() => g.log().find((l) => l.op === 'reload' && l.error), { what: 'a word about it' });
      assert.match(line.error, /SANDGATE_OUTPUT_MAX_BYTES/);
      assert.equal((await s.execute('1')).json.output, '1\n');
      assert.equal((await s.status()).json.status, 'running');
      assert.equal(reloads(), before, 'no worker is replaced');
      fs.writeFileSync(g.config, text);
      await reload({ SANDGATE_OUTPUT_MAX_BYTES: 1 << 20 });
      await until(async () => (await big()).truncated === false, { what: 'the good file' });
    });
  });

  describe('health', ALONE, () => {
    let g;
    let proxy;
    before(async () => {
      proxy = await startProxy(engine.url);
      g = await start({ api: proxy.url, settings: { SANDGATE_EXEC_WORKERS_MAX: 1, SANDGATE_QUICK_WORKERS: 1 } });
    });
    after(async () => {
      await g?.stop();
      await proxy?.close();
    });

    const ask = async (target) => {
      const res = await g.call('GET', target, { token: null, deadline: 60_000 });
      assert.match(res.headers['content-type'], /^application\/json/);
      return res;
    };
    const becomes = (status) =>
      until(async () => (await ask('/readyz')).status === status, { deadline: 60_000, every: 500, what: `readyz ${status}` });

    test('healthz is alive, readyz is green', async () => {
      assert.deepEqual((await ask('/healthz')).json, { status: 'ok' });
      const ready = await ask('/readyz');
      assert.equal(ready.status, 200, ready.text);
      assert.deepEqual(ready.json, { status: 'ready', database: 'ok', provider: 'ok' });
      const before = proxy.requests.length;
      for (let i = 0; i < 5; i++) await ask('/readyz');
      assert.ok(proxy.requests.length - before <= 2, 'the answer is remembered for a while');
    });

    test('readyz is red while the provider is down, and green again', async () => {
      await proxy.down();
      try {
        await becomes(503);
        const ready = await ask('/readyz');
        assert.deepEqual(ready.json, { status: 'not ready', database: 'ok', provider: 'unavailable' });
        assert.match(ready.headers['retry-after'], /^\d+$/);
        assert.equal((await ask('/healthz')).status, 200);
      } finally {
        await proxy.up();
      }
      await becomes(200);
    });

    test('readyz is red when the provider refuses the key; callers hear that it is not theirs', async () => {
      const other = await start({ settings: { E2B_API_KEY: 'e2b_' + 'f'.repeat(40) } });
      try {
        const ready = await other.call('GET', '/readyz', { token: null });
        assert.deepEqual([ready.status, ready.json.provider], [503, 'key refused']);
        assertProblem(await other.session('s').start(), 502, 'provider_auth');
        assert.ok(!other.server.text.includes('ffffffff'), 'the key is in no log');
      } finally {
        await other.stop();
      }
    });

    test('with the server gone nginx answers in JSON', async () => {
      const other = await start();
      try {
        await other.server.stop();
        for (const target of ['/healthz', '/readyz', '/api/v1/session/s/sandbox/status']) {
          const res = await other.call('GET', target);
          assert.ok(res.status === 502 || res.status === 503, res.text);
          assertProblem(res, res.status, res.json.code);
        }
      } finally {
        await other.stop();
      }
    });
  });

  describe('what cannot start', ALONE, () => {
    const SECRET = 'e2b_' + 'a1b2'.repeat(10);
    let dir;
    let count = 0;
    before(() => (dir = tempFolder('sandgate-start-')));
    after(() => fs.rmSync(dir, { recursive: true, force: true }));

    const sandgate = (args) =>
      new Promise((resolve) => {
        const env = { PATH: process.env.PATH, ASAN_OPTIONS: process.env.ASAN_OPTIONS ?? '' };
        const code = (error) => (error ? (error.code ?? error.signal) : 0);
        execFile(SANDGATE, args, { env, timeout: 20_000, killSignal: 'SIGKILL' }, (error, stdout, stderr) =>
          resolve({ code: code(error), stdout, stderr }),
        );
      });

    /** It exits with 2 and one line that fits, and the key is not in it. lines: more of the settings file. */
    async function refuses(pattern, settings = {}, lines = '') {
      const file = path.join(dir, `conf${count++}`);
      const state = path.join(dir, `state${count}`);
      const all = { E2B_API_KEY: SECRET, E2B_API_URL: 'http://127.0.0.1:9', SANDGATE_STATE_DIR: state, ...settings };
      const text = Object.entries(all).map(([k, v]) => (v === null ? '' : `${k}=${v}\n`));
      fs.writeFileSync(file, text.join('') + lines, { mode: 0o600 });
      const { code, stdout, stderr } = await sandgate(['-c', file]);
      assert.equal(code, 2, stderr);
      assert.equal(stdout, '');
      assert.match(stderr, /^sandgate: [^\n]{5,300}\n$/);
      assert.match(stderr, pattern);
      assert.ok(!stderr.includes(SECRET), stderr);
    }

    const folder = (name, mode = 0o700) => {
      const made = path.join(dir, name);
      fs.mkdirSync(made);
      fs.chmodSync(made, mode);
      return made;
    };

    test('no key', () => refuses(/E2B_API_KEY is required/, { E2B_API_KEY: null, E2B_API_URL: null }));

    test('bad values', async () => {
      await refuses(/SANDGATE_DRAIN_SECS.*'soon'/, { SANDGATE_DRAIN_SECS: 'soon' });
      await refuses(/SANDGATE_QUICK_WORKERS.*'0'/, { SANDGATE_QUICK_WORKERS: 0 });
      await refuses(/SANDGATE_MAX_LIFETIME_SECS/, { SANDGATE_MAX_LIFETIME_SECS: 86401 });
      await refuses(/SANDGATE_LOG_LEVEL.*'loud'/, { SANDGATE_LOG_LEVEL: 'loud' });
      await refuses(/group.*'no-such-group'/, { SANDGATE_SOCKET_GROUP: 'no-such-group' });
    });

    test('a bad file of settings', async () => {
      await refuses(/line 4.*SANDGATE_NONSENSE/, {}, 'SANDGATE_NONSENSE=1\n');
      await refuses(/line 4.*KEY=value/, {}, `E2B_API_KEY ${SECRET}\n`);
      const { code, stderr } = await sandgate(['-c', path.join(dir, 'none')]);
      assert.equal(code, 2);
      assert.match(stderr, /^sandgate: .*none.*No such file[^\n]*\n$/);
    });

    test('a state folder that cannot be used', async () => {
      fs.writeFileSync(path.join(dir, 'file'), '');
      await refuses(/file/, { SANDGATE_STATE_DIR: path.join(dir, 'file') });
      await refuses(/file\/state/, { SANDGATE_STATE_DIR: path.join(dir, 'file/state') });
      await refuses(/No such file/, { SANDGATE_STATE_DIR: path.join(dir, 'none/state') });
      await refuses(/others can write/, { SANDGATE_STATE_DIR: folder('group', 0o770) });
      await refuses(/others can write/, { SANDGATE_STATE_DIR: folder('world', 0o707) });
      await refuses(/longer than/, { SANDGATE_STATE_DIR: folder('long'.repeat(30)) });
      if (process.getuid() !== 0) await refuses(/ermission/, { SANDGATE_STATE_DIR: folder('closed', 0o500) });
    });

    test('a database that is none', async () => {
      const state = folder('corrupt');
      fs.writeFileSync(path.join(state, 'sandgate.db'), 'This is no database. '.repeat(1000));
      await refuses(/sandgate\.db.*not a database/, { SANDGATE_STATE_DIR: state });
      fs.mkdirSync(path.join(folder('is-folder'), 'sandgate.db'));
      await refuses(/sandgate\.db is no file/, { SANDGATE_STATE_DIR: path.join(dir, 'is-folder') });
    });

    test('sockets in use; the one that has them goes on', async () => {
      const g = await start();
      try {
        await refuses(/quick\.sock is in use/, { SANDGATE_STATE_DIR: g.state });
        assert.equal((await g.session('s').status()).status, 200);
        assert.equal((await g.session('s').execute('1')).json.output, '1\n');
      } finally {
        await g.stop();
      }
    });

    test('stale sockets are no hindrance', async () => {
      const g = await start();
      try {
        await g.server.stop('SIGKILL');
        assert.ok(fs.existsSync(path.join(g.state, 'exec.sock')));
        await until(() => g.processes().filter((pid) => fs.readFileSync(`/proc/${pid}/comm`, 'utf8').startsWith('sandgate')).length === 0, {
          what: 'the end of the workers of a killed master',
        });
        await g.startServer();
        assert.equal((await g.session('s').execute('1')).json.output, '1\n');
      } finally {
        await g.stop();
      }
    });

    test('--help, --version, and a bad command line', async () => {
      const help = await sandgate(['--help']);
      assert.deepEqual([help.code, help.stderr], [0, '']);
      assert.match(help.stdout, /^Usage: sandgate /);
      const version = await sandgate(['--version']);
      assert.deepEqual([version.code, version.stderr], [0, '']);
      assert.match(version.stdout, /^sandgate \d+\.\d+/);
      for (const args of [['--nonsense'], ['-c'], ['word'], ['-x']]) {
        const { code, stdout, stderr } = await sandgate(args);
        assert.deepEqual([code, stdout], [2, ''], args.join(' '));
        assert.match(stderr, /sandgate/);
      }
    });
  });
});
