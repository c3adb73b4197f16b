// What a sandbox has and is given: variables, time, figures about it, and what the operator puts into every new one. And pip, which
// says why it failed.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { SUITE, startEngine, tempFolder } from './engine.mjs';
import { Child, assertProblem, settingsText, startGateway } from './gateway.mjs';
import { openStream } from './sse.mjs';
import { writeWheels } from './wheels.mjs';

const WHEELS = [
  ['sgt_plain', '1.0'],
  ['sgt_versions', '1.0'],
  ['sgt_versions', '2.0'],
  ['sgt_left', '1.0', 'sgt_versions==1.0'],
  ['sgt_right', '1.0', 'sgt_versions==2.0'],
];

let engine;
before(async () => {
  const dir = tempFolder();
  const wheelhouse = writeWheels(path.join(dir, 'wheelhouse'), WHEELS);
  engine = await startEngine({
    dir,
    args: ['--no-internet', '--wheelhouse', wheelhouse],
    templates: { 'cramped.template': 'disk = 16\nmemory = 512\ninterpreter = yes\n' },
  });
});
after(() => engine?.stop());

/** What a run prints that must not fail. */
async function output(session, json) {
  const res = await session.run(json);
  assert.equal(res.json.success, true, res.text);
  return res.json.output;
}

const SECRET = 'a-value-that-is-a-secret';
const PRINT = { code: 'import os\nprint(os.environ.get("NAME"))' };
const ECHO = { command: 'echo ${NAME-None}' };

describe('variables', SUITE, () => {
  let g;
  before(async () => (g = await startGateway({ engine, settings: { SANDGATE_INIT_ENVS: 'NAME=initial, FIRST=a=b ,EMPTY=' } })));
  after(() => g?.stop());
  afterEach(() => g.stopAll());

  test('reach all later runs: code, commands, every context and language', async () => {
    const session = g.session('all');
    const { context_id } = (await session.createContext({})).json;
    const bash = (await session.createContext({ language: 'bash' })).json.context_id;
    const res = await session.envs({ NAME: 'set', OTHER: "it's $(id)\n\"ü\"" });
    assert.deepEqual([res.status, res.text], [204, '']);
    for (const json of [PRINT, ECHO, { ...PRINT, context_id }, { code: ECHO.command, context_id: bash }, { code: ECHO.command, language: 'bash' }])
      assert.equal(await output(session, json), 'set\n', JSON.stringify(json));
    assert.equal(await output(session, { command: 'printf %s "$OTHER"' }), `it's $(id)\n"ü"`);
    await session.envs({ NAME: '' });
    assert.equal(await output(session, ECHO), '\n', 'the last one counts');
    assert.equal(await output(session, { command: 'printf %s "$OTHER"' }), `it's $(id)\n"ü"`, 'the others stay');
    const s = await session.stream(ECHO);
    assert.equal((await s.end()).data.output, '\n');
  });

  test('the operator’s, the start’s, the sandbox’s, the request’s: the later one counts', async () => {
    const session = g.session('order');
    for (const json of [PRINT, ECHO]) assert.equal(await output(session, json), 'initial\n');
    assert.equal(await output(session, { command: 'echo "[$FIRST][$EMPTY]"' }), '[a=b][]\n');
    await session.stop();
    await session.start({ envs: { NAME: 'start' } });
    for (const json of [PRINT, ECHO]) assert.equal(await output(session, json), 'start\n');
    await session.envs({ NAME: 'sandbox' });
    for (const json of [PRINT, ECHO]) assert.equal(await output(session, json), 'sandbox\n');
    for (const json of [PRINT, ECHO]) assert.equal(await output(session, { ...json, envs: { NAME: 'request' } }), 'request\n');
    for (const json of [PRINT, ECHO]) assert.equal(await output(session, json), 'sandbox\n', 'that was for one');
  });

  test('are of one sandbox: neither another session’s nor the next one’s', async () => {
    const session = g.session('own');
    assert.equal((await session.envs({ NAME: 'own' })).status, 204, 'it starts a sandbox');
    assert.equal(await output(g.session('others'), ECHO), 'initial\n');
    await session.stop();
    assert.equal(await output(session, ECHO), 'initial\n');
  });

  test('values are in no log, no audit, no answer and no table but their own', async () => {
    const session = g.session('secret');
    const res = await session.envs({ TOKEN: SECRET });
    const run = await session.run({ command: 'test -n "$TOKEN" && echo there', envs: { ALSO: `${SECRET}-too` } });
    assert.equal(run.json.output, 'there\n');
    await session.run({ code: 'import os\nassert os.environ["TOKEN"]' });
    const answers = [res, run, await session.status(), await session.metrics(), await session.executions(), await session.execution(run.json.execution_id)];
    for (const answer of answers) assert.ok(!answer.text.includes(SECRET));
    assert.ok(!g.server.text.includes(SECRET) && !fs.readFileSync(g.accessLog, 'utf8').includes(SECRET));
    for (const { name } of await g.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'envs'"))
      assert.ok(!JSON.stringify(await g.rows(`SELECT * FROM "${name}"`)).includes(SECRET), name);
    assert.deepEqual(await g.rows("SELECT name, value FROM envs WHERE name = 'TOKEN'"), [{ name: 'TOKEN', value: SECRET }]);
    const events = path.join(g.state, 'events');
    for (const file of fs.readdirSync(events)) assert.ok(!fs.readFileSync(path.join(events, file)).includes(SECRET), file);
    await session.stop();
    assert.deepEqual(await g.rows(`SELECT 1 FROM envs WHERE value LIKE '%${SECRET}%'`), [], 'with the sandbox they go');
  });

  test('how many, how long', async () => {
    const session = g.session('limits');
    const many = (n, from = 0) => Object.fromEntries(Array.from({ length: n }, (_, i) => [`N${from + i}`, 'x']));
    const long = 'x'.repeat(32 << 10);
    assert.equal((await session.envs({ LONG: long })).status, 204);
    assert.equal(await output(session, { command: 'echo ${#LONG}' }), '32768\n');
    assertProblem(await session.envs({ NAME: 'changed', LONG: `${long}x` }), 400, 'bad_request');
    assert.equal(await output(session, ECHO), 'initial\n', 'all of them or none');
    for (const from of [0, 100]) assert.equal((await session.envs(many(100, from))).status, 204);
    assertProblem(await session.envs(many(101)), 400, 'bad_request', /100/);
    assert.equal((await session.envs(many(55, 200))).status, 204);
    assertProblem(await session.envs({ ONE: 'x' }), 400, 'bad_request', /256/);
    assert.equal((await session.envs({ N1: 'y' })).status, 204, 'a change is no more');
    assert.equal(await output(session, { command: 'echo $N1$N254${ONE-none}' }), 'yxnone\n');
    assert.equal((await session.envs({})).status, 204);
  });

  test('a bad setting is exit 2 at the start, and names no value', async () => {
    for (const [name, value] of [
      ['SANDGATE_INIT_ENVS', `=${SECRET}`],
      ['SANDGATE_INIT_ENVS', `A=1,${SECRET}`],
      ['SANDGATE_INIT_ENVS', `1A=${SECRET}`],
      ['SANDGATE_INIT_ENVS', `A B=${SECRET}`],
      ['SANDGATE_INIT_ENVS', Array.from({ length: 65 }, (_, i) => `N${i}=${SECRET}`).join()],
      ['SANDGATE_INIT_PACKAGES', 'requests, --index-url=http://x'],
      ['SANDGATE_INIT_PACKAGES', 'a; rm -rf /'],
    ]) {
      const file = path.join(g.dir, 'bad.conf');
      fs.writeFileSync(file, settingsText({ ...g.settings, SANDGATE_STATE_DIR: path.join(g.dir, 'bad'), [name]: value }));
      const child = new Child(path.join(g.programs, 'sandgate'), ['-c', file]);
      assert.deepEqual(await child.exited, { code: 2, signal: null }, child.text);
      assert.match(child.text, new RegExp(name), value);
      assert.ok(!child.text.includes(SECRET), child.text);
    }
  });
});

describe('keepalive', SUITE, () => {
  const IDLE = 60;
  const LIFETIME = 1000;
  let g;
  before(async () => {
    const settings = { SANDGATE_IDLE_TIMEOUT_SECS: IDLE, SANDGATE_MAX_LIFETIME_SECS: LIFETIME, SANDGATE_EXECUTION_TIMEOUT_SECS: 30 };
    g = await startGateway({ engine, settings });
  });
  after(() => g?.stop());
  afterEach(() => g.stopAll());

  const left = ({ expires_at }) => (Date.parse(expires_at) - Date.now()) / 1000;
  const granted = async (id) => (Date.parse((await engine.api('GET', `/sandboxes/${id}`)).json.endAt) - Date.now()) / 1000;
  const about = (actual, expected, what) => assert.ok(actual > expected - 20 && actual < expected + 2, `${what}: ${actual} s instead of ${expected}`);

  test('puts the idle limit off, never past the lifetime, and the provider follows', async () => {
    const session = g.session('longer');
    const info = (await session.start()).json;
    about(left(info), IDLE, 'at the start');
    const longer = await session.keepalive({ secs: 500 });
    assert.equal(longer.status, 200, longer.text);
    assert.deepEqual(Object.keys(longer.json), Object.keys(info), 'it answers as start does');
    about(left(longer.json), 500, 'expires_at');
    about(await granted(info.sandbox_id), 500, 'the provider’s');
    about(left((await session.status()).json), 500, 'what status says');
    const less = (await session.keepalive({ secs: 10 })).json;
    about(left(less), 500, 'it never takes time away');
    await session.execute('1');
    about(left((await session.status()).json), 500, 'nor does use');
    const most = (await session.keepalive({ secs: LIFETIME })).json;
    assert.ok(Date.parse(most.expires_at) <= Date.parse(info.created_at) + LIFETIME * 1000 + 1000, 'not past the lifetime');
    about(left(most), LIFETIME, 'all of it');
    about(await granted(info.sandbox_id), LIFETIME, 'the provider’s');
    assert.equal((await g.session('longer', { dialect: 'B' }).keepalive({ secs: 5 })).json.sandbox_id, info.sandbox_id);
  });

  test('what is wrong in a request', async () => {
    const session = g.session('bad');
    assertProblem(await session.keepalive({ secs: 10 }), 404, 'sandbox_not_found');
    await session.start();
    for (const json of [{}, { secs: null }, ...[0, -1, LIFETIME + 1, 1.5, 1e99, '10', true, [], {}].map((secs) => ({ secs }))])
      assertProblem(await session.keepalive(json), 400, 'bad_request', /secs/);
    about(left((await session.status()).json), IDLE, 'nothing has changed');
    const { sandbox_id } = (await session.status()).json;
    await engine.api('DELETE', `/sandboxes/${sandbox_id}`);
    const res = await session.keepalive({ secs: 900 });
    assertProblem(res, 404, 'sandbox_not_found');
  });

  test('metrics are what it uses', async () => {
    const session = g.session('metrics');
    assertProblem(await session.metrics(), 404, 'sandbox_not_found');
    await session.start();
    const none = (await session.metrics()).json;
    const fields = ['cpu_count', 'cpu_used_pct', 'memory_used_bytes', 'memory_total_bytes', 'disk_used_bytes', 'disk_total_bytes', 'create_ms', 'executions'];
    assert.deepEqual(Object.keys(none), fields);
    for (const name of fields) assert.ok(Number.isFinite(none[name]) && none[name] >= 0, name);
    // A create that the warm pool answers can take less than a millisecond.
    assert.ok(none.cpu_count >= 1 && none.create_ms >= 0 && none.memory_used_bytes > 0);
    assert.ok(none.memory_used_bytes < none.memory_total_bytes && none.disk_used_bytes < none.disk_total_bytes);
    assert.equal(none.executions, 0);
    await session.execute('x = open("big", "wb").write(bytes(8 << 20))');
    await session.run({ command: 'exit 3' });
    const some = (await g.session('metrics', { dialect: 'B' }).metrics()).json;
    assert.equal(some.executions, 2);
    assert.ok(some.disk_used_bytes - none.disk_used_bytes >= 8 << 20, JSON.stringify([none, some]));
    assert.equal(some.create_ms, none.create_ms);
    const { last_activity } = (await session.status()).json;
    const { sandbox_id } = (await session.status()).json;
    await session.metrics();
    assert.equal((await session.status()).json.last_activity, last_activity, 'looking is no activity');
    await engine.api('DELETE', `/sandboxes/${sandbox_id}`);
    assertProblem(await session.metrics(), 404, 'sandbox_not_found');
  });
});

describe('pip', SUITE, () => {
  let g;
  before(async () => (g = await startGateway({ engine, settings: { SANDGATE_CUSTOM_TEMPLATE_ID: 'cramped' } })));
  after(() => g?.stop());
  afterEach(() => g.stopAll());

  /** Of an installation that failed. */
  async function why(session, packages) {
    const res = await session.install(packages);
    assert.deepEqual([res.status, res.json.success, res.json.state], [200, false, 'failed'], res.text);
    const kept = (await session.execution(res.json.execution_id)).json;
    assert.equal(kept.result.error, res.json.error);
    return res.json;
  }

  test('no such package, no such version, versions that exclude each other', async () => {
    const session = g.session('why');
    for (const [packages, name, text] of [
      [['sgt_no_such_package'], 'NoSuchPackage', /no such package\n.*No matching distribution found for sgt[-_]no[-_]such/],
      [['sgt_versions==3.0'], 'NoSuchVersion', /no such version\n.*No matching distribution found for sgt[-_]versions==3.0/],
      [['sgt_left', 'sgt_right'], 'Conflict', /exclude each other/],
    ]) {
      const r = await why(session, packages);
      assert.equal(r.error_detail?.name, name, r.error);
      assert.match(r.error, text);
      assert.notEqual(r.exit_code, 0);
      assert.ok(r.stderr.includes('ERROR'), 'all that pip said is there');
    }
    assert.equal((await session.install(['sgt_left'])).json.success, true);
  });

  test('no room', async () => {
    const session = g.session('full');
    await session.start({ sandbox_type: 'custom' });
    for (const command of ['head -c 40000000 /dev/zero > fill; true', 'head -c 900000000 /dev/zero > /tmp/fill; true']) {
      await session.run({ command });
      const r = await why(session, ['sgt_plain']);
      assert.equal(r.error_detail?.name, 'NoSpace', r.error);
      assert.match(r.error, /disk is full/);
    }
  });

  test('no network', async () => {
    const offline = await startEngine({ args: ['--no-internet'] });
    const other = await startGateway({ engine: offline });
    try {
      const r = await why(other.session('offline'), ['sgt_plain']);
      assert.equal(r.error_detail?.name, 'NoNetwork', r.error);
      assert.match(r.error, /cannot reach the package index/);
    } finally {
      await other.stop();
      await offline.stop();
    }
  });

  test('is streamed as it speaks, and its end is that of the plain answer', async () => {
    const session = g.session('streamed');
    const s = await openStream(g, 'POST', `${session.base}/install`, { json: { packages: ['sgt_plain'] } });
    const { event, data } = await s.end();
    assert.deepEqual([event, data.success, data.exit_code], ['done', true, 0]);
    assert.match(s.text(), /^(Looking in links|Processing|Collecting)[^]*Successfully installed sgt[-_]plain-1\.0\n/);
    assert.ok(s.seen.filter((e) => e.event === 'stdout').length > 1, 'more than one piece');
    assert.equal(s.text(), data.stdout);
    assert.equal(await output(session, { code: 'import sgt_plain\nsgt_plain.VERSION' }), '1.0\n');
    const failing = await openStream(g, 'POST', `${session.base}/install`, { json: { packages: ['sgt_versions==3.0'] } });
    const end = await failing.end();
    assert.deepEqual([end.event, end.data.success, failing.seen.find((e) => e.event === 'error')?.data.name], ['done', false, 'NoSuchVersion']);
    const bad = await g.call('POST', `${session.base}/install`, { json: { packages: ['sgt_plain'], timeout_secs: 0 } });
    assertProblem(bad, 400, 'bad_request', /timeout_secs/);
    const detached = await g.call('POST', `${session.base}/install`, { json: { packages: ['sgt_plain'], detach: true } });
    assert.equal(detached.status, 202, detached.text);
    assert.equal((await (await session.follow(detached.json.execution_id)).end()).data.success, true);
  });
});

describe('SANDGATE_INIT_PACKAGES', SUITE, () => {
  async function withPackages(packages, fn) {
    const g = await startGateway({ engine, settings: { SANDGATE_INIT_PACKAGES: packages, SANDGATE_INIT_ENVS: 'NAME=initial' } });
    try {
      await fn(g);
    } finally {
      await g.stop();
    }
  }

  test('are in every new sandbox, before its first run', () =>
    withPackages('sgt_plain, sgt_versions==1.0 ,', async (g) => {
      const session = g.session('furnished');
      const code = 'import sgt_plain, sgt_versions\nprint(sgt_plain.VERSION, sgt_versions.VERSION)';
      const both = await Promise.all([session.run({ code }), session.run({ code })]);
      assert.deepEqual(both.map((r) => r.json.output), ['1.0 1.0\n', '1.0 1.0\n']);
      assert.equal(g.creates(), 1, 'who comes meanwhile waits');
      assert.deepEqual((await session.execution(both[0].json.execution_id)).json.result.files_changed, [], 'pip’s files are no run’s change');
      await session.stop();
      assert.equal(await output(session, { command: 'python3 -c "import sgt_plain; print(1)"; echo $NAME' }), '1\ninitial\n');
    }));

  test('one that cannot be had is logged, and the sandbox starts without', () =>
    withPackages('sgt_plain,sgt_no_such_package', async (g) => {
      const res = await g.session('bare').execute('1');
      assert.deepEqual([res.status, res.json.output], [200, '1\n'], res.text);
      const line = g.log().find((l) => l.level === 'error' && l.op === 'start');
      assert.match(line?.error ?? '', /^SANDGATE_INIT_PACKAGES: .*sgt.no.such.package/);
      assert.equal(line.request_id, res.headers['x-request-id']);
    }));
});
