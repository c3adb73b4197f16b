// One session, one sandbox, whatever happens: many first calls at once, lost replies, killed workers, lost sandboxes; and the store
// that all of it rests on. The provider's side is counted and spoilt by a proxy between gateway and engine.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { SUITE, sleep, startEngine, until, within } from './engine.mjs';
import { assertProblem, startGateway } from './gateway.mjs';
import { startProxy } from './proxy.mjs';

const run = promisify(execFile);
const CREATE = { method: 'POST', path: /^(\/v2)?\/sandboxes$/ };
const BOTH = ['A', 'B'];
const SLEEP = 'print("before", flush=True)\nimport time\ntime.sleep(600)\nprint("after")';

let engine;
before(async () => (engine = await startEngine()));
after(() => engine?.stop());

/** A sandbox as the provider shows it. */
const shown = async (id) => (await engine.api('GET', `/sandboxes/${id}`)).json;
const destroy = async (id) => assert.equal((await engine.api('DELETE', `/sandboxes/${id}`)).status, 204);

/** Nothing leaked, nothing imagined: what the provider has is what the rows say. */
async function assertAgreement(g) {
  const rows = await g.rows(`SELECT sandbox_id AS id FROM sandboxes WHERE status NOT IN ('ended', 'starting') AND sandbox_id <> ''`);
  assert.deepEqual((await g.labelled()).map((s) => s.sandboxID).sort(), rows.map((r) => r.id).sort());
}

describe('one session, one sandbox', SUITE, () => {
  let g;
  let proxy;
  before(async () => {
    proxy = await startProxy(engine.url);
    g = await startGateway({ engine, api: proxy.url });
  });
  after(async () => {
    await g?.stop();
    await proxy?.close();
  });
  afterEach(async () => {
    proxy.clear();
    await g.stopAll();
    await assertAgreement(g);
  });

  const creates = () => proxy.count(CREATE.method, CREATE.path);

  /** First calls of each kind, and what of the answer is checked: a sandbox's id, or something that must be true. */
  const kinds = [
    [(s) => s.start(), (r) => r.sandbox_id],
    [(s, n) => s.execute(`print(${n})`), (r, n) => r.output === `${n}\n` && r.state_lost === false],
    [(s, n) => s.upload(`f${n}`, 'x'), (r) => r.size === 1],
  ];

  /** That many calls at once, of all kinds and both dialects. The id of the one sandbox that they all met. */
  async function callAll(id, count) {
    const ids = new Set();
    const call = async (_, n) => {
      const [ask, look] = kinds[n % kinds.length];
      const res = await ask(g.session(id, { dialect: BOTH[n % 2], deadline: 120_000 }), n);
      assert.equal(res.status, 200, res.text);
      const seen = look(res.json, n);
      assert.ok(seen, res.text);
      if (seen !== true) ids.add(seen);
      assert.equal(res.json.generation ?? 1, 1);
    };
    await Promise.all(Array.from({ length: count }, call));
    assert.equal(ids.size, 1, [...ids].join());
    return [...ids][0];
  }

  test('200 simultaneous first calls make one', async () => {
    const before = creates();
    const [id, installed] = await Promise.all([callAll('crowd', 200), g.session('crowd').install(['numpy'])]);
    assert.equal(installed.json.success, true, installed.text);
    assert.equal(creates() - before, 1);
    assert.deepEqual(await g.provided(), [id]);
    assert.equal((await g.history('crowd')).length, 1);
  });

  test('20 sessions of 10 first calls make 20', async () => {
    const before = creates();
    const ids = await Promise.all(Array.from({ length: 20 }, (_, n) => callAll(`many${n}`, 10)));
    assert.equal(creates() - before, 20);
    assert.deepEqual((await g.provided()).sort(), ids.sort());
  });

  test('two users with the same session id have two', async () => {
    const bob = { token: await g.token('bob') };
    const [a, b] = await Promise.all([g.session('same').start(), g.session('same', bob).start()]);
    assert.notEqual(a.json.sandbox_id, b.json.sandbox_id);
    assert.equal((await g.session('same', bob).stop()).status, 204);
    assert.equal((await g.session('same').status()).json.sandbox_id, a.json.sandbox_id);
  });

  test('what start is given is seen inside and at the provider', async () => {
    const res = await g.session('given').start({ envs: { COLOUR: 'blue' }, metadata: { team: 'research' } });
    assert.equal(res.status, 200, res.text);
    const printed = await g.session('given').execute('import os\nprint(os.environ["COLOUR"])');
    assert.equal(printed.json.output, 'blue\n');
    const [row] = await g.history('given');
    assert.deepEqual((await shown(res.json.sandbox_id)).metadata, {
      team: 'research',
      sandgate_nonce: row.nonce,
      sandgate_instance: g.settings.SANDGATE_INSTANCE,
      sandgate_environment: 'test',
    });
    assertProblem(await g.session('forged').start({ metadata: { sandgate_nonce: 'x' } }), 400, 'bad_request');
  });

  // -------------------------------------------------------------------------------------------------------------- creates that fail

  test('a create whose reply is lost is adopted', async () => {
    const before = creates();
    const fault = proxy.fault(CREATE, { dropReply: true }, { times: 1 });
    const answers = await Promise.all([g.session('lost').start(), g.session('lost').execute('print(1)'), g.session('lost').start()]);
    assert.deepEqual([fault.hits, creates() - before], [1, 1]);
    for (const res of answers) assert.equal(res.status, 200, res.text);
    assert.equal(answers[0].json.sandbox_id, answers[2].json.sandbox_id);
    assert.deepEqual([answers[1].json.output, answers[1].json.generation, answers[1].json.state_lost], ['1\n', 1, false]);
    assert.deepEqual(await g.provided(), [answers[0].json.sandbox_id]);
  });

  test('a create whose reply is cut is adopted', async () => {
    const before = creates();
    proxy.fault(CREATE, { cut: 20 }, { times: 1 });
    const res = await g.session('cut').execute('print(1)');
    assert.equal(res.status, 200, res.text);
    assert.equal(creates() - before, 1);
    assert.equal((await g.provided()).length, 1);
  });

  test('a create that is late is waited for by all', async () => {
    const before = creates();
    proxy.fault(CREATE, { delay: 1500, delayReply: 1500 }, { times: 1 });
    const first = g.session('late').start();
    const there = await until(async () => (await g.session('late').status()).json, { what: 'a sandbox that starts' });
    assert.deepEqual([there.status, there.sandbox_id, there.generation], ['starting', '', 1]);
    assertProblem(await g.session('late').files(), 404, 'sandbox_not_found');
    const id = await callAll('late', 12);
    assert.equal((await first).json.sandbox_id, id);
    assert.equal(creates() - before, 1);
  });

  test('a create that fails is an error, and the next call makes it', async () => {
    const failures = [
      // Whether these two were begun is not known: they are looked for first, at the same time.
      [{ refuse: true }, 502, 'provider_error'],
      [{ answer: { status: 500, json: { code: 500, message: 'oops' } } }, 502, 'provider_error'],
      [{ answer: { status: 401, json: { code: 401, message: 'oops' } } }, 502, 'provider_auth'],
      [{ answer: { status: 429, json: { code: 429, message: 'oops' } } }, 429, 'provider_quota'],
    ];
    const answers = [];
    for (const [n, [action]] of failures.entries()) {
      const fault = proxy.fault(CREATE, action, { times: 1 });
      answers.push(g.session(`fails${n}`).start());
      await until(() => fault.hits === 1, { what: 'the create' });
    }
    const before = creates();
    for (const [n, res] of (await Promise.all(answers)).entries()) {
      assertProblem(res, failures[n][1], failures[n][2]);
      assert.doesNotMatch(res.text, /oops/);
      assert.equal((await g.session(`fails${n}`).status()).text.trim(), 'null');
    }
    assert.equal(creates(), before, 'none is repeated');
    for (const n of failures.keys()) {
      const next = await g.session(`fails${n}`).execute('1');
      assert.equal(next.status, 200, next.text);
      assert.deepEqual([next.json.generation, next.json.state_lost], [1, false]);
      const rows = await g.history(`fails${n}`);
      assert.deepEqual(rows.map((r) => r.end_reason), ['start_failed', '']);
    }
  });

  test('a create that was certainly not begun is tried again', async () => {
    const fault = proxy.fault(CREATE, { answer: { status: 503, json: { code: 503, message: 'busy' } } }, { times: 2 });
    const before = creates();
    assert.equal((await g.session('retried').start()).status, 200);
    assert.deepEqual([fault.hits, creates() - before], [2, 3]);
    assert.equal((await g.provided()).length, 1);
  });

  test('a provider that is down is 503 with Retry-After', async () => {
    await proxy.down();
    try {
      const res = await g.session('down').execute('1');
      assertProblem(res, 503, 'provider_unavailable');
      assert.match(res.headers['retry-after'], /^\d+$/);
      assert.equal((await g.session('down').status()).text.trim(), 'null');
    } finally {
      await proxy.up();
    }
    assert.equal((await g.session('down').execute('1')).json.output, '1\n');
  });

  // -------------------------------------------------------------------------------------------------------------- kill -9

  for (const [when, action] of [
    ['before the create has reached the provider', { delay: Infinity }],
    ['before the reply of the create', { delayReply: Infinity }],
  ]) {
    test(`kill -9 of the worker that makes it, ${when}: the next makes or adopts the one`, async () => {
      const id = `kill-${Object.keys(action)[0]}`;
      const before = creates();
      const fault = proxy.fault(CREATE, action, { times: 1 });
      const victim = g.session(id).execute('print("first")');
      await until(() => fault.held === 1, { what: 'the create' });
      const waiting = [g.session(id).execute('print("second")'), g.session(id, { dialect: 'B' }).start()];
      const pid = await g.workerOf(`SELECT claim_pid AS pid FROM sandboxes WHERE status = 'starting'`);
      assert.ok(g.workers().includes(pid));
      process.kill(pid, 'SIGKILL');
      assertProblem(await victim, 502, 'bad_gateway');
      const [second, start] = await Promise.all(waiting);
      assert.equal(second.status, 200, second.text);
      assert.deepEqual([second.json.output, second.json.generation, second.json.state_lost], ['second\n', 1, false]);
      assert.equal(start.status, 200, start.text);
      fault.release();
      const next = await g.session(id).start();
      assert.equal(next.json.sandbox_id, start.json.sandbox_id);
      assert.equal(creates() - before, action.delay ? 2 : 1);
      assert.deepEqual(await g.provided(), [start.json.sandbox_id]);
      // The one that was not found stays on the list of what is to be killed: it may still be on its way.
      assert.deepEqual((await g.history(id)).map((r) => r.status), action.delay ? ['stopping', 'running'] : ['running']);
    });
  }

  test('kill -9 of a worker during a run: interrupted, unknown, and nothing else lost', async () => {
    const s = g.session('kill-run');
    await s.execute('x = 41');
    const { sandbox_id } = (await s.status()).json;
    const victim = s.execute(SLEEP);
    await g.printed('kill-run', 'before');
    const pid = await g.workerOf('SELECT pid FROM leases');
    assert.ok(g.workers().includes(pid));
    process.kill(pid, 'SIGKILL');
    assertProblem(await victim, 502, 'bad_gateway');
    const next = await within(30_000, s.execute('x + 1'), 'the kernel after the interrupt');
    assert.equal(next.status, 200, next.text);
    assert.deepEqual([next.json.output, next.json.generation, next.json.state_lost], ['42\n', 1, false]);
    assert.equal((await s.status()).json.sandbox_id, sandbox_id);
    await until(async () => (await g.rows('SELECT 1 FROM leases')).length === 0, { what: 'the end of the lease' });
    const killed = `SELECT state, ended_at > 0 AS ended FROM executions WHERE session_id = 'kill-run' AND input LIKE '%sleep%'`;
    assert.deepEqual(await g.rows(killed), [{ state: 'completion_unknown', ended: 1 }]);
    assert.ok(!g.workers().includes(pid));
  });

  // -------------------------------------------------------------------------------------------------------------- lost sandboxes

  /** A session whose sandbox the provider has ended behind our back. */
  async function bereaved(id) {
    const s = g.session(id);
    const run = await s.execute('x = 1');
    assert.deepEqual([run.status, run.json.generation], [200, 1], run.text);
    const { sandbox_id } = (await s.status()).json;
    await destroy(sandbox_id);
    return { s, old: sandbox_id };
  }

  for (const [name, call] of Object.entries({
    start: (s) => s.start(),
    execute: (s) => s.execute('print("x" in globals())'),
    install: (s) => s.install(['numpy']),
    upload: (s) => s.upload('f', 'x'),
  })) {
    test(`a sandbox that is gone is replaced on ${name}, and the first run says so`, async () => {
      const { s, old } = await bereaved(`gone-${name}`);
      const res = await call(s);
      assert.equal(res.status, 200, res.text);
      const info = (await s.status()).json;
      assert.equal(info.generation, 2);
      assert.notEqual(info.sandbox_id, old);
      if (name === 'execute') assert.equal(res.json.output, 'False\n');
      const first = name === 'execute' || name === 'install' ? res : await s.execute('1');
      assert.deepEqual([first.json.generation, first.json.state_lost, first.json.reason], [2, true, 'killed_by_provider']);
      const second = await s.execute('1');
      assert.deepEqual([second.json.generation, second.json.state_lost, second.json.reason], [2, false, undefined]);
      const [lost, now] = await g.history(`gone-${name}`);
      assert.deepEqual([lost.sandbox_id, lost.status, lost.end_reason], [old, 'ended', 'killed_by_provider']);
      assert.ok(lost.destroyed_at > lost.created_at);
      assert.equal(now.status, 'running');
    });
  }

  for (const [name, call] of Object.entries({ download: (s) => s.download('/etc/hostname'), files: (s) => s.files('/home/user') })) {
    test(`a sandbox that is gone is 404 on ${name}, and recorded`, async () => {
      const { s, old } = await bereaved(`gone-${name}`);
      assertProblem(await call(s), 404, 'sandbox_not_found', /^Sandbox not found/);
      assert.equal((await s.status()).text.trim(), 'null');
      const rows = await g.history(`gone-${name}`);
      assert.deepEqual(rows.map((r) => [r.sandbox_id, r.status, r.end_reason]), [[old, 'ended', 'killed_by_provider']]);
      const next = await s.execute('1');
      assert.deepEqual([next.json.generation, next.json.state_lost, next.json.reason], [2, true, 'killed_by_provider']);
    });
  }

  test('a sandbox lost during a run: 502 completion_unknown with what there was', async () => {
    const s = g.session('gone-run');
    const running = s.execute(SLEEP);
    await g.printed('gone-run', 'before');
    await destroy((await s.status()).json.sandbox_id);
    const res = await within(30_000, running, 'the end of the run');
    assertProblem(res, 502, 'completion_unknown', /^Completion unknown/);
    assert.match(res.json.execution_id, /^x_/);
    assert.deepEqual([res.json.output, res.json.success, res.json.state], ['before\n', false, 'completion_unknown']);
    assert.equal((await s.status()).text.trim(), 'null');
    const next = await s.execute('1');
    assert.deepEqual([next.json.generation, next.json.state_lost, next.json.reason], [2, true, 'killed_by_provider']);
  });

  test('a cut stream is 502 completion_unknown, and is not run again', async () => {
    const s = g.session('cut-run');
    await s.start();
    const fault = proxy.fault({ method: 'POST', path: '/execute' }, { cut: 150 }, { times: 1 });
    const res = await s.execute('open("/tmp/runs", "a").write("x")\nfor i in range(1000): print("line", i)');
    assertProblem(res, 502, 'completion_unknown');
    assert.equal(fault.hits, 1);
    assert.match(res.json.execution_id, /^x_/);
    assert.equal((await s.download('/tmp/runs')).text, 'x');
  });

  // -------------------------------------------------------------------------------------------------------------- stop

  test("after the user's own stop there is a new one, and no word of lost state", async () => {
    const s = g.session('stopped');
    await s.execute('x = 1');
    const first = (await s.status()).json;
    assert.equal((await s.stop()).status, 204);
    assert.equal((await s.status()).text.trim(), 'null');
    const run = await s.execute('print("x" in globals())');
    assert.deepEqual([run.json.output, run.json.generation, run.json.state_lost], ['False\n', 2, false]);
    assert.notEqual((await s.status()).json.sandbox_id, first.sandbox_id);
    const [old] = await g.history('stopped');
    assert.deepEqual([old.status, old.end_reason], ['ended', 'stopped']);
  });

  test('stop during starting waits, then kills', async () => {
    const s = g.session('stop-starting');
    const fault = proxy.fault(CREATE, { delayReply: Infinity }, { times: 1 });
    const start = s.start();
    await until(() => fault.held === 1, { what: 'the create' });
    let stopped = false;
    const stop = s.stop().then((r) => ((stopped = true), r));
    await sleep(1500);
    assert.equal(stopped, false);
    fault.release();
    assert.equal((await stop).status, 204);
    const res = await start; // its sandbox was taken away before or after it was handed out
    if (res.status !== 200) assertProblem(res, 409, 'sandbox_stopped');
    assert.equal((await s.status()).text.trim(), 'null');
    const rows = await g.history('stop-starting');
    assert.deepEqual([rows[0].status, rows[0].end_reason], ['ended', 'stopped']);
    assert.ok(!(await g.provided()).includes(rows[0].sandbox_id));
  });

  test('stop during a run ends it soon: 409 sandbox_stopped with what there was', async () => {
    const s = g.session('stop-run');
    const running = s.execute(SLEEP);
    await g.printed('stop-run', 'before');
    assert.equal((await s.stop()).status, 204);
    const res = await within(10_000, running, 'the end of the run');
    assertProblem(res, 409, 'sandbox_stopped', /^Sandbox stopped/);
    assert.match(res.json.execution_id, /^x_/);
    assert.deepEqual([res.json.output, res.json.state], ['before\n', 'failed']);
    assert.deepEqual(await g.provided(), []);
  });

  test('stop with the provider down: 204, null, and the kill is still to be done', async () => {
    const s = g.session('stop-down');
    const { sandbox_id } = (await s.start()).json;
    await proxy.down();
    try {
      assert.equal((await s.stop({ deadline: 60_000 })).status, 204);
      assert.equal((await s.status()).text.trim(), 'null');
    } finally {
      await proxy.up();
    }
    const [row] = await g.history('stop-down');
    assert.deepEqual([row.status, row.end_reason], ['stopping', 'stopped']);
    assert.ok((await g.provided()).includes(sandbox_id));
    const next = (await s.start()).json;
    assert.notEqual(next.sandbox_id, sandbox_id);
    assert.equal(next.generation, 2);
    await g.ctl('kill', sandbox_id);
    assert.deepEqual(await g.provided(), [next.sandbox_id]);
    assert.equal((await g.history('stop-down'))[0].status, 'ended');
  });

  test('custom without a template is 400', async () => {
    assertProblem(await g.session('custom').start({ sandbox_type: 'custom' }), 400, 'template_not_configured');
    assert.equal((await g.session('custom').status()).text.trim(), 'null');
  });

  // -------------------------------------------------------------------------------------------------------------- the store

  test('workers, sandgatectl and the sqlite3 shell share the store', async () => {
    const db = path.join(g.state, 'sandgate.db');
    const sqlite = (sql) => run('sqlite3', ['-bail', '-cmd', '.timeout 10000', db, sql], { timeout: 60_000 });
    const insert = `BEGIN IMMEDIATE;
      INSERT INTO audit (at, request_id, user, action, target, outcome) VALUES (1, 'r', 'shell', 'test', '', 'ok');
      COMMIT;`;
    let busy = true;
    const calls = Array.from({ length: 8 }, async (_, n) => {
      for (let i = 0; busy || i < 5; i++) {
        const res = n % 2 ? await g.session(`store${n % 4}`).execute(`print(${i})`) : await g.session(`store${n % 4}`).status();
        assert.equal(res.status, 200, res.text);
        if (n % 2) assert.equal(res.json.output, `${i}\n`);
      }
    });
    const outside = Promise.all([
      ...Array.from({ length: 3 }, async () => {
        for (let i = 0; i < 20; i++) assert.equal((await sqlite(insert)).stderr, '');
      }),
      ...Array.from({ length: 2 }, async () => {
        for (let i = 0; i < 10; i++) {
          assert.equal((await g.ctl('list', '--all', '--json')).stderr, '');
          await sqlite('SELECT count(*) FROM sandboxes JOIN executions');
        }
      }),
      (async () => {
        for (let i = 0; i < 10; i++) await g.token(`user${i}`, [], { fresh: true });
      })(),
    ]).finally(() => (busy = false));
    await Promise.all([...calls, outside]);
    assert.deepEqual(await g.rows(`SELECT count(*) AS n FROM audit WHERE user = 'shell'`), [{ n: 60 }]);
    assert.equal((await g.rows('SELECT 1 FROM leases')).length, 0);
    assert.equal((await sqlite('PRAGMA integrity_check; PRAGMA foreign_key_check; PRAGMA journal_mode;')).stdout, 'ok\nwal\n');
    await within(5_000, sqlite('BEGIN EXCLUSIVE; COMMIT;'), 'the write lock');
    assert.equal(g.server.text.match(/locked|malformed|corrupt/i), null);
    assert.equal(fs.statSync(db).mode & 0o777, 0o600);
    assert.equal(fs.statSync(g.state).mode & 0o777, 0o700);
    for (const file of fs.readdirSync(g.state).filter((f) => f.startsWith('sandgate.db')))
      assert.equal(fs.statSync(path.join(g.state, file)).mode & 0o077, 0, file);
  });

  test('executions and audit are written', async () => {
    await g.session('written').execute('1/0');
    await g.session('written').stop();
    const columns = 'owner, kind, state, input, input_bytes, error_name, generation';
    const [run] = await g.rows(`SELECT ${columns} FROM executions WHERE session_id = 'written'`);
    assert.deepEqual(run, {
      owner: 'alice',
      kind: 'code',
      state: 'failed',
      input: '1/0',
      input_bytes: 3,
      error_name: 'ZeroDivisionError',
      generation: 1,
    });
    const audit = await g.rows(`SELECT user, action, outcome FROM audit WHERE target = 'written' ORDER BY id`);
    assert.deepEqual(
      audit.map((a) => [a.user, a.outcome]),
      [
        ['alice', 'ok'],
        ['alice', 'ok'],
      ],
    );
    assert.match(audit[0].action, /execute/);
    assert.match(audit[1].action, /stop/);
  });
});
