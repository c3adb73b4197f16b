// sandgate-cleanup over the real database and the real engine. What the provider says is spoilt by a proxy where it has to be.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { KEY, SUITE, sleep, startEngine, until, within } from './engine.mjs';
import { assertProblem, startGateway } from './gateway.mjs';
import { startProxy } from './proxy.mjs';

const CREATE = { method: 'POST', path: /^(\/v2)?\/sandboxes$/ };
const LIST = { method: 'GET', path: /^(\/v2)?\/sandboxes$/ };
const KILL = { method: 'DELETE', path: /^\/sandboxes\/[^/]+$/ };
const SLEEP = 'print("before", flush=True)\nimport time\ntime.sleep(600)';
const FAKETIME = ['x86_64-linux-gnu', 'aarch64-linux-gnu', '.']
  .map((arch) => `/usr/lib/${arch}/faketime/libfaketime.so.1`)
  .find((file) => fs.existsSync(file));

let engine;
let proxy;
let g;
before(async () => {
  engine = await startEngine();
  proxy = await startProxy(engine.url);
  g = await startGateway({ engine, api: proxy.url, settings: { SANDGATE_ORPHAN_GRACE_SECS: 0, SANDGATE_PROVIDER_TIMEOUT_SECS: 5 } });
});
after(async () => {
  await g?.stop();
  await proxy?.close();
  await engine?.stop();
});
afterEach(async () => {
  proxy.clear();
  await g.stopAll();
  await g.cleanup();
  await g.cleanup();
  assert.deepEqual(await g.labelled(), [], 'what carries our labels is gone at the end of every test');
  assert.deepEqual(await g.rows(`SELECT * FROM sandboxes WHERE status <> 'ended'`), []);
});

const SECOND = 1_000_000; // of the database's times

/** Lets the session's sandbox look as if its limits had passed: idle, or its lifetime. */
const age = (session, limit) =>
  g.rows(
    `UPDATE sandboxes SET expires_at = strftime('%s') * ${SECOND} - ${SECOND}` +
      (limit === 'lifetime' ? `, lifetime_at = strftime('%s') * ${SECOND} - ${SECOND}` : '') +
      ` WHERE session_id = '${session}' AND status = 'running'`,
  );

const last = async (session) => (await g.history(session)).at(-1);

/** A sandbox made past the gateway, with these labels over ours; false takes one away. */
async function stray(labels = {}) {
  const metadata = { sandgate_instance: g.settings.SANDGATE_INSTANCE, sandgate_environment: 'test', ...labels };
  for (const [k, v] of Object.entries(metadata)) if (v === false) delete metadata[k];
  const res = await engine.api('POST', '/v2/sandboxes', { json: { templateID: 'base', timeout: 600, metadata } });
  assert.equal(res.status, 201, res.text);
  return res.json.sandboxID;
}

const exists = async (id) => (await engine.api('GET', `/sandboxes/${id}`)).status === 200;

/** A clean pass: exit status 0 and nothing left. */
async function pass(options) {
  const done = await g.cleanup([], options);
  assert.deepEqual([done.code, done.summary.left], [0, '0'], done.text);
  return done.summary;
}

/** What only looks: the plan, with the exit status checked. */
async function plan(code = 0) {
  const out = path.join(g.dir, 'plan');
  fs.rmSync(out, { force: true });
  const done = await g.cleanup(['--dry-run'], { out });
  assert.equal(done.code, code, done.text);
  return JSON.parse(fs.readFileSync(out, 'utf8'));
}

describe('what is over', SUITE, () => {
  for (const [limit, reason] of [
    ['idle', 'expired_idle'],
    ['lifetime', 'expired_lifetime'],
  ])
    test(`past its ${limit} limit it is killed and recorded, and the next run says why`, async () => {
      const s = g.session(`over-${limit}`);
      const { sandbox_id } = (await s.start()).json;
      const other = (await g.session(`young-${limit}`).start()).json.sandbox_id;
      await age(`over-${limit}`, limit);
      const summary = await pass();
      assert.deepEqual([summary.expired, summary.killed, summary.orphans_seen], ['1', '1', '0']);
      const row = await last(`over-${limit}`);
      assert.deepEqual([row.status, row.end_reason], ['ended', reason]);
      assert.ok(Math.abs(row.destroyed_at / 1000 - Date.now()) < 60_000, 'destroyed_at is the time of its end');
      assert.equal(await exists(sandbox_id), false);
      assert.equal(await exists(other), true, 'another one is left alone');
      assert.equal((await s.status()).text.trim(), 'null');
      const run = (await s.execute('1')).json;
      assert.deepEqual([run.generation, run.state_lost, run.reason], [2, true, reason]);
      const [audit] = await g.rows(`SELECT * FROM audit WHERE action = 'expire' ORDER BY id DESC LIMIT 1`);
      assert.deepEqual([audit.target, audit.outcome], [sandbox_id, reason]);
    });

  test('one with a running execution is not idle, and is when that has ended', async () => {
    const s = g.session('leased');
    const run = s.execute('print("before", flush=True)\nimport time\ntime.sleep(4)\nprint("done")');
    await g.printed('leased', 'before');
    await age('leased', 'idle');
    assert.equal((await pass()).expired, '0');
    const res = await run;
    assert.deepEqual([res.status, res.json.output], [200, 'before\ndone\n'], res.text);
    await age('leased', 'idle');
    assert.equal((await pass()).expired, '1');
  });

  test('the lease of a worker that died protects nothing', async () => {
    const s = g.session('dead-lease');
    const run = s.execute(SLEEP).catch(() => {});
    await g.printed('dead-lease', 'before');
    const pid = await g.workerOf(`SELECT l.pid FROM leases l JOIN sandboxes s ON s.id = l.sandbox WHERE s.session_id = 'dead-lease'`);
    process.kill(pid, 'SIGKILL');
    await run;
    await age('dead-lease', 'idle');
    assert.equal((await pass()).expired, '1');
    assert.deepEqual(await g.rows('SELECT * FROM leases'), []);
    const [{ state }] = await g.rows(`SELECT state FROM executions WHERE session_id = 'dead-lease'`);
    assert.equal(state, 'completion_unknown');
  });

  test('at the lifetime limit it is ended even mid-run, and that run says so', async () => {
    const run = g.session('mid-run').execute(SLEEP);
    await g.printed('mid-run', 'before');
    await age('mid-run', 'lifetime');
    await pass();
    const res = await run;
    assertProblem(res, 409, 'sandbox_expired');
    assert.equal(res.json.output, 'before\n');
  });

  test('one that is gone already counts as killed', async () => {
    const { sandbox_id } = (await g.session('gone').start()).json;
    await engine.api('DELETE', `/sandboxes/${sandbox_id}`);
    await age('gone', 'idle');
    assert.equal((await pass()).killed, '1');
    assert.equal((await last('gone')).end_reason, 'expired_idle');
  });
});

describe('a provider that fails', SUITE, () => {
  test('a stop while it was down is repeated until it is confirmed', async () => {
    const s = g.session('down');
    const { sandbox_id } = (await s.start()).json;
    await proxy.down();
    assert.equal((await s.stop()).status, 204);
    assert.equal((await s.status()).text.trim(), 'null');
    const failed = await g.cleanup();
    assert.equal(failed.code, 1, failed.text);
    assert.ok(Number(failed.summary.left) >= 1 && failed.summary.error, failed.text);
    assert.equal((await last('down')).status, 'stopping');
    await proxy.up();
    assert.equal((await pass()).killed, '1');
    assert.equal(await exists(sandbox_id), false);
    assert.deepEqual([(await last('down')).status, (await last('down')).end_reason], ['ended', 'stopped']);
  });

  test('what expired while it was down is claimed, and killed later', async () => {
    const s = g.session('expired-down');
    const { sandbox_id } = (await s.start()).json;
    await age('expired-down', 'idle');
    const fault = proxy.fault(KILL, { answer: { status: 500, json: { code: 500, message: 'no' } } });
    assert.equal((await g.cleanup()).code, 1);
    assert.ok(fault.hits > 0);
    assert.equal((await last('expired-down')).status, 'stopping');
    assert.equal((await s.status()).text.trim(), 'null');
    fault.remove();
    await pass();
    assert.equal(await exists(sandbox_id), false);
  });

  test('after three failures in a row it is not asked any more', async () => {
    await Promise.all([1, 2, 3, 4, 5, 6].map((n) => g.session(`many-${n}`).start()));
    await g.rows(`UPDATE sandboxes SET status = 'stopping', end_reason = 'stopped' WHERE session_id GLOB 'many-*' AND status = 'running'`);
    const fault = proxy.fault(KILL, { answer: { status: 400, json: { code: 400, message: 'no' } } });
    const failed = await g.cleanup();
    assert.deepEqual([failed.code, failed.summary.left, fault.hits], [1, '6', 3], failed.text);
    fault.remove();
    assert.equal((await pass()).killed, '6');
  });

  test('its key is in no line', async () => {
    await g.session('secret').start();
    await age('secret', 'idle');
    const fault = proxy.fault(LIST, { answer: { status: 401, json: { code: 401, message: `bad key ${KEY}` } } });
    const failed = await g.cleanup();
    assert.equal(failed.code, 1);
    assert.ok(!failed.text.includes(KEY), failed.text);
    fault.remove();
  });
});

describe('what the provider has no more', SUITE, () => {
  test('a row is marked, with the reason, before anybody uses it', async () => {
    const s = g.session('vanished');
    const { sandbox_id } = (await s.start()).json;
    await engine.api('DELETE', `/sandboxes/${sandbox_id}`);
    assert.equal((await pass()).lost, '1');
    const row = await last('vanished');
    assert.deepEqual([row.status, row.end_reason, row.envd_token], ['ended', 'killed_by_provider', '']);
    const run = (await s.execute('1')).json;
    assert.deepEqual([run.state_lost, run.reason], [true, 'killed_by_provider']);
  });

  test('a list that leaves one out does not lose it', async () => {
    const { sandbox_id } = (await g.session('hidden').start()).json;
    const fault = proxy.fault(LIST, { answer: { status: 200, json: [] } });
    assert.equal((await pass()).lost, '0');
    assert.ok(fault.hits > 0);
    assert.equal((await last('hidden')).status, 'running');
    assert.equal(await exists(sandbox_id), true);
  });

  test('a list that makes no sense changes nothing', async () => {
    const { sandbox_id } = (await g.session('senseless').start()).json;
    for (const body of ['<html>', '[{"sandboxID":1}]', '{}', '[', '']) {
      const fault = proxy.fault(LIST, { answer: { status: 200, headers: { 'content-type': 'application/json' }, body } });
      assert.equal((await g.cleanup()).code, 1, body);
      fault.remove();
    }
    assert.equal((await last('senseless')).status, 'running');
    assert.equal(await exists(sandbox_id), true);
  });
});

describe('orphans', SUITE, () => {
  test('one that carries our labels is killed at the second sighting; nobody else’s ever', async () => {
    const known = (await g.session('known').start()).json.sandbox_id;
    const ours = await stray();
    const others = await Promise.all([
      stray({ sandgate_instance: 'sibling' }),
      stray({ sandgate_environment: 'production' }),
      stray({ sandgate_environment: false }),
      stray({ sandgate_instance: false, sandgate_environment: false }),
    ]);
    // A provider that ignores the filter: everything is listed.
    const all = async () => (await engine.api('GET', '/v2/sandboxes?limit=100')).json;
    proxy.fault(LIST, { answer: { status: 200, json: await all() } });
    try {
      const first = await pass();
      assert.deepEqual([first.orphans_seen, first.orphans_killed], ['1', '0']);
      assert.equal(await exists(ours), true);
      const second = await pass();
      assert.deepEqual([second.orphans_seen, second.orphans_killed], ['0', '1']);
      assert.equal(await exists(ours), false);
      for (const id of [known, ...others]) assert.equal(await exists(id), true, id);
      const [audit] = await g.rows(`SELECT * FROM audit WHERE action = 'kill_orphan'`);
      assert.equal(audit.target, ours);
    } finally {
      proxy.clear();
      for (const id of others) await engine.api('DELETE', `/sandboxes/${id}`);
    }
  });

  test('its grace time is waited for', async () => {
    const id = await stray();
    const patient = { env: { SANDGATE_ORPHAN_GRACE_SECS: '3600' } };
    for (let i = 0; i < 3; i++) assert.deepEqual([(await pass(patient)).orphans_killed, await exists(id)], ['0', true]);
    await g.rows(`UPDATE orphans SET first_seen = first_seen - 3601 * ${SECOND}`);
    assert.equal((await pass(patient)).orphans_killed, '1');
  });

  test('one that was out of sight begins anew', async () => {
    const id = await stray();
    await pass();
    const fault = proxy.fault(LIST, { answer: { status: 200, json: [] } });
    await pass();
    fault.remove();
    assert.deepEqual([(await pass()).orphans_killed, await exists(id)], ['0', true]);
  });

  test('a sandbox that is alive behind the end of its row is one', async () => {
    const { sandbox_id } = (await g.session('undead').start()).json;
    await g.rows(`UPDATE sandboxes SET status = 'stopping', end_reason = 'stopped' WHERE sandbox_id = '${sandbox_id}'`);
    const fault = proxy.fault(KILL, { answer: { status: 204 } });
    await pass();
    assert.equal((await last('undead')).status, 'ended');
    fault.remove();
    await pass();
    await pass();
    assert.equal(await exists(sandbox_id), false);
  });
});

describe('starts whose maker is gone', SUITE, () => {
  /** A start that the provider has carried out and whose worker died before it heard of it. */
  async function orphanedStart(session) {
    const fault = proxy.fault(CREATE, { delayReply: Infinity }, { times: 1 });
    const call = g.session(session).start().catch(() => {});
    await until(() => fault.held === 1, { what: 'the create' });
    process.kill(await g.workerOf(`SELECT claim_pid AS pid FROM sandboxes WHERE session_id = '${session}'`), 'SIGKILL');
    await call;
    fault.remove();
    assert.equal((await last(session)).status, 'starting');
  }

  test('what was made is found by its nonce and killed', async () => {
    await orphanedStart('unnamed');
    assert.equal((await g.labelled()).length, 1);
    const summary = await pass();
    assert.deepEqual([summary.given_up, summary.killed], ['1', '1']);
    assert.deepEqual(await g.labelled(), []);
    assert.deepEqual([(await last('unnamed')).status, (await last('unnamed')).end_reason], ['ended', 'start_failed']);
    const run = (await g.session('unnamed').execute('1')).json;
    assert.deepEqual([run.generation, run.state_lost], [1, false], 'it never ran, so nothing was lost');
  });

  test('what does not appear is waited for, and then given up', async () => {
    const fault = proxy.fault(CREATE, { refuse: true, delay: Infinity }, { times: 1 });
    const call = g.session('nowhere').start().catch(() => {});
    await until(() => fault.held === 1, { what: 'the create' });
    process.kill(await g.workerOf(`SELECT claim_pid AS pid FROM sandboxes WHERE session_id = 'nowhere'`), 'SIGKILL');
    await call;
    fault.remove();
    const waiting = await g.cleanup();
    assert.deepEqual([waiting.code, waiting.summary.given_up, waiting.summary.left], [1, '1', '1'], waiting.text);
    await g.rows(`UPDATE sandboxes SET claim_deadline = 1 WHERE session_id = 'nowhere'`);
    await pass();
    assert.equal((await last('nowhere')).status, 'ended');
  });

  test('one that is still being made is left alone', async () => {
    const fault = proxy.fault(CREATE, { delayReply: Infinity }, { times: 1 });
    const call = g.session('making').start();
    await until(() => fault.held === 1, { what: 'the create' });
    for (let i = 0; i < 2; i++) {
      const { given_up, orphans_seen } = await pass();
      assert.deepEqual([given_up, orphans_seen], ['0', '0']);
    }
    fault.release();
    const res = await call;
    assert.deepEqual([res.status, res.json.status], [200, 'running'], res.text);
    assert.equal(await exists(res.json.sandbox_id), true);
  });
});

describe('passes', SUITE, () => {
  test('one at a time: a second one says so and does nothing', async () => {
    const fault = proxy.fault(LIST, { delay: Infinity });
    const first = g.cleanup();
    await until(() => fault.held === 1, { what: 'the first pass' });
    const second = await g.cleanup();
    assert.equal(second.code, 3, second.text);
    assert.match(second.summary.skipped, /another pass/);
    fault.remove();
    assert.equal((await first).code, 0);
  });

  for (const [where, match] of [
    ['after it has claimed', LIST],
    ['before the provider has heard of the kill', KILL],
  ])
    test(`one that is killed ${where} is made good by the next`, async () => {
      const { sandbox_id } = (await g.session('crash').start()).json;
      await age('crash', 'idle');
      const fault = proxy.fault(match, { delay: Infinity });
      const child = g.startCleanup();
      await until(() => fault.held === 1, { what: 'the call' });
      child.process.kill('SIGKILL');
      await within(10_000, child.exited, 'its end');
      fault.remove();
      assert.equal((await last('crash')).status, 'stopping');
      await pass();
      assert.equal(await exists(sandbox_id), false);
      assert.equal((await last('crash')).status, 'ended');
    });

  test('one that is killed after the provider has killed is made good, too', async () => {
    await g.session('crash-late').start();
    await age('crash-late', 'idle');
    const fault = proxy.fault(KILL, { delayReply: Infinity });
    const child = g.startCleanup();
    await until(() => fault.held === 1, { what: 'the kill' });
    child.process.kill('SIGKILL');
    await within(10_000, child.exited, 'its end');
    fault.remove();
    assert.equal((await pass()).killed, '1');
    assert.equal((await last('crash-late')).status, 'ended');
  });

  test('with --every there is one after the other until SIGTERM', async () => {
    const child = g.startCleanup(['--every', '1']);
    const passes = () => child.text.match(/op=cleanup expired/g)?.length ?? 0;
    await until(() => passes() >= 2, { deadline: 30_000, what: 'two passes' });
    await g.session('every').start();
    await age('every', 'idle');
    await until(async () => (await last('every')).status === 'ended', { deadline: 30_000, what: 'its end' });
    assert.deepEqual(await child.stop(), { code: 0, signal: null }, child.text);
  });

  test('the WAL is moved into the database', async () => {
    const wal = path.join(g.state, 'sandgate.db-wal');
    await g.session('wal').start();
    assert.ok(fs.statSync(wal).size > 0);
    await until(async () => (await pass()).checkpoint === 'whole' && fs.statSync(wal).size === 0, { what: 'a whole checkpoint' });
  });

  test('a wrong command line, setting or database is exit 2, with a sentence', async () => {
    for (const [args, env, pattern] of [
      [['--everything'], {}, /--help/],
      [['--every', '0'], {}, /--every takes seconds/],
      [['--every', 'x'], {}, /--every takes seconds/],
      [['--dry-run', '--every', '5'], {}, /do not go together/],
      [['more'], {}, /unexpected argument 'more'/],
      [[], { SANDGATE_ORPHAN_GRACE_SECS: '-1' }, /SANDGATE_ORPHAN_GRACE_SECS/],
      [[], { SANDGATE_DB: path.join(g.dir, 'no', 'such', 'folder.db') }, /cannot be made/],
      [[], { SANDGATE_DB: g.config }, /database/],
    ]) {
      const { code, text } = await g.cleanup(args, { env });
      assert.equal(code, 2, text);
      assert.match(text, pattern);
    }
  });
});

describe('a dry run', SUITE, () => {
  test('prints what a pass would do, and changes nothing', async () => {
    for (const name of ['dry-idle', 'dry-stopping', 'dry-vanished', 'dry-busy']) await g.session(name).start();
    const run = g.session('dry-busy').execute(SLEEP);
    await g.printed('dry-busy', 'before');
    await age('dry-idle', 'idle');
    await age('dry-busy', 'idle');
    await g.rows(`UPDATE sandboxes SET status = 'stopping', end_reason = 'stopped' WHERE session_id = 'dry-stopping'`);
    const { sandbox_id } = await last('dry-vanished');
    await engine.api('DELETE', `/sandboxes/${sandbox_id}`);
    const id = await stray();
    const dump = () => g.rows(`SELECT s.*, (SELECT count(*) FROM orphans) o, (SELECT count(*) FROM audit) a FROM sandboxes s ORDER BY id`);
    const before = await dump();
    const { would, ...rest } = await plan();
    assert.deepEqual(rest, { dry_run: true, clock_jumped: false, log_bytes: 0, error: null });
    assert.deepEqual(
      would.map((w) => [w.do, w.session_id ?? w.sandbox_id, w.reason]).sort(),
      [
        ['expire', 'dry-idle', 'expired_idle'],
        ['kill', 'dry-stopping', 'stopped'],
        ['lose', 'dry-vanished', 'killed_by_provider'],
        ['see_orphan', id, undefined],
      ],
    );
    assert.deepEqual(await dump(), before);
    assert.equal(await exists(id), true);
    await pass();
    assert.deepEqual((await plan()).would.map((w) => [w.do, w.sandbox_id]), [['kill_orphan', id]]);
    assert.equal((await g.session('dry-busy').stop()).status, 204);
    await run;
  });

  test('says when the provider could not be asked', async () => {
    await proxy.down();
    const { error, would } = await plan(1);
    assert.ok(error);
    assert.deepEqual(would, []);
    await proxy.up();
  });
});

describe('the clock', SUITE, () => {
  const at = (offset) => ({
    env: { LD_PRELOAD: FAKETIME, FAKETIME: offset, FAKETIME_DONT_FAKE_MONOTONIC: '1', ASAN_OPTIONS: 'verify_asan_link_order=0' },
  });

  test('a jump ends nothing in that pass, and the next one goes on', async () => {
    const s = g.session('jump');
    const { sandbox_id } = (await s.start()).json;
    await pass();
    for (const offset of ['+2h', '-2h', '+0']) {
      const jumped = await g.cleanup([], at(offset));
      assert.deepEqual([jumped.code, jumped.summary.clock_jumped, jumped.summary.expired], [3, 'yes', '0'], `${offset}\n${jumped.text}`);
      assert.equal(await exists(sandbox_id), true);
    }
    assert.equal((await pass(at('+30s'))).clock_jumped, 'no', 'a correction of less than a minute is none');
    assert.equal((await s.status()).json.status, 'running');
    assert.equal((await g.cleanup([], at('+2h'))).code, 3);
    assert.equal((await pass(at('+2h'))).expired, '1', 'the clock is believed once it is steady again');
    assert.equal((await g.cleanup()).code, 3); // back to the machine's own time
  });

  test('sightings of orphans before it do not count', async () => {
    const id = await stray();
    await pass();
    assert.equal((await g.cleanup([], at('+2h'))).code, 3);
    assert.equal((await g.cleanup([], at('+0'))).code, 3);
    assert.deepEqual([(await pass()).orphans_killed, await exists(id)], ['0', true]);
  });

  test('a new start of the machine is no jump, a step back in it is', async () => {
    await pass();
    await g.rows(`UPDATE clock_mark SET boot_id = 'another', boot = boot + 9999 * ${SECOND}, real = real - 86400 * ${SECOND}`);
    await pass();
    await g.rows(`UPDATE clock_mark SET boot_id = 'another', real = real + 3600 * ${SECOND}`);
    assert.equal((await g.cleanup()).code, 3);
  });
});

describe('event logs', SUITE, () => {
  const events = () => path.join(g.state, 'events');
  const files = () => fs.readdirSync(events()).sort();

  /** A log of this many bytes, last written so long ago. */
  function log(id, secondsAgo, bytes = 10, parts = ['head']) {
    for (const part of parts) {
      const file = path.join(events(), `${id}.${part}`);
      fs.writeFileSync(file, Buffer.alloc(bytes, 'x'));
      fs.utimesSync(file, Date.now() / 1000 - secondsAgo, Date.now() / 1000 - secondsAgo);
    }
  }

  const forget = () => files().forEach((f) => fs.rmSync(path.join(events(), f)));

  test('those past their age go, the running one and what is no log stay', async () => {
    await g.session('logs').execute('1');
    forget();
    const run = g.session('logs').execute(SLEEP);
    await g.printed('logs', 'before');
    const [running] = files();
    fs.utimesSync(path.join(events(), running), 1, 1);
    log('x_old', 8 * 86400, 10, ['head', 'tail0', 'tail1']);
    log('x_half', 8 * 86400, 10, ['head']);
    log('x_half', 5, 10, ['tail0']); // its newest part counts
    log('x_young', 6 * 86400);
    log('notes', 8 * 86400);
    log('x_old', 8 * 86400, 10, ['backup']);
    fs.symlinkSync('/etc/hostname', path.join(events(), 'x_link.head'));
    assert.equal((await pass()).logs_deleted, '1');
    assert.deepEqual(files(), ['notes.head', running, 'x_half.head', 'x_half.tail0', 'x_link.head', 'x_old.backup', 'x_young.head'].sort());
    assert.equal((await g.session('logs').stop()).status, 204);
    assertProblem(await run, 409, 'sandbox_stopped');
    forget();
  });

  test('the oldest go when there are too many bytes', async () => {
    for (let i = 0; i < 6; i++) log(`x_big${i}`, 1000 - i, 400_000);
    const { logs_deleted, log_bytes } = await pass({ env: { SANDGATE_EVENTS_MAX_BYTES: String(1 << 20) } });
    assert.equal(logs_deleted, '4');
    assert.ok(Number(log_bytes) >= 1_600_000);
    assert.deepEqual(files(), ['x_big4.head', 'x_big5.head']);
    forget();
  });
});

test('a gateway that is used goes on being used while passes come one after the other', SUITE, async () => {
  const s = g.session('used');
  const passes = g.startCleanup(['--every', '1']);
  for (let i = 0; i < 30; i++) {
    const res = await s.execute(`x = globals().get('x', 0) + 1\nprint(x)`);
    assert.deepEqual([res.status, res.json?.output], [200, `${i + 1}\n`], res.text);
    await sleep(50);
  }
  assert.deepEqual(await passes.stop(), { code: 0, signal: null });
});
