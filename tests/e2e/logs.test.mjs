// Logs of sandboxes, by raw HTTP (the SDK has no call for them): what is in them, what never is, how they are asked for, and that
// they outlive their sandbox.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { ENVD, SUITE, assertError, commandLine, output, python, shell, startEngine, until } from './engine.mjs';

const SECRET = 'hush-4711';

const TEMPLATES = {
  'starting.template': [
    `env = TEMPLATE_SECRET=${SECRET}`,
    'start = echo out one; echo "err one" >&2; printf "no end"; seq 1000 >/dev/null',
    'memory = 256',
    'disk = 64',
    'interpreter = no',
    '',
  ].join('\n'),
  'talker.template': ['start = seq 100000; sleep 600', 'memory = 256', 'disk = 64', 'interpreter = no', ''].join('\n'),
};

let engine;

async function read(id, query = '', version = '/v2') {
  const res = await engine.api('GET', `${version}/sandboxes/${id}/logs${query}`);
  assert.equal(res.status, 200, res.text);
  return res.json;
}

/** The entries, oldest first. */
const entries = async (id, query = '') => (await read(id, `?direction=forward${query}`)).logs;
const messages = async (id, query) => (await entries(id, query)).map((e) => e.message);

/** The entries once one has this message. */
async function seen(id, message) {
  let all;
  await until(async () => (all = await entries(id)).some((e) => e.message === message), { what: `"${message}" in the log` });
  return all;
}

const one = (all, message) => {
  const found = all.filter((e) => e.message === message);
  assert.equal(found.length, 1, `${message}: ${JSON.stringify(all)}`);
  return found[0];
};

/** The first process of the pid namespace in which this command runs, by its id outside. */
async function first(command) {
  const space = (pid) => fs.readlinkSync(`/proc/${pid}/ns/pid`);
  const pid = await until(() => engine.family.look().find((p) => commandLine(p) === command));
  return engine.family.look().find((p) => {
    const ids = fs.readFileSync(`/proc/${p}/status`, 'latin1').match(/^NSpid:\s*(.*)$/m)[1].split(/\s+/);
    return ids.length > 1 && ids.at(-1) === '1' && space(p) === space(pid);
  });
}

describe('logs', SUITE, () => {
  before(async () => {
    engine = await startEngine({ templates: TEMPLATES, args: ['--no-internet'] });
  });
  after(() => engine?.stop());

  test('tell the life of a sandbox, and why it ended, also when it is gone', async () => {
    const began = Date.now();
    const sandbox = await engine.create('base');
    const id = sandbox.sandboxId;
    await sandbox.setTimeout(300_000);
    await sandbox.pause();
    await sandbox.connect();
    await sandbox.kill();
    const all = await entries(id);
    assert.deepEqual(
      all.map((e) => [e.level, e.message]),
      [
        ['info', 'Sandbox created'],
        ['info', 'Timeout set'],
        ['info', 'Sandbox paused'],
        ['info', 'Sandbox resumed'],
        ['info', 'Sandbox ended'],
      ],
    );
    for (const e of all) {
      assert.deepEqual(Object.keys(e).sort(), ['fields', 'level', 'message', 'timestamp']);
      assert.match(e.timestamp, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z$/);
      assert.ok(Date.parse(e.timestamp) >= began - 1 && Date.parse(e.timestamp) <= Date.now(), e.timestamp);
      for (const value of Object.values(e.fields)) assert.equal(typeof value, 'string');
    }
    assert.equal(all[0].fields.template, 'base');
    assert.ok(Math.abs(Date.parse(all[1].fields.endAt) - Date.parse(all[1].timestamp) - 300_000) < 2_000, JSON.stringify(all[1]));
    assert.deepEqual(all[4].fields, { reason: 'killed by a request' });
    assert.equal((await read(`${id}-6532622b`)).logs.length, 5);
  });

  test('say that time was up, and that a sandbox ended by itself', async () => {
    const late = await engine.create('base', { timeoutMs: 1000 });
    assert.deepEqual(one(await seen(late.sandboxId, 'Sandbox ended'), 'Sandbox ended').fields, { reason: 'its time was up' });
    const sandbox = await engine.create('base');
    await sandbox.commands.run('exec sleep 4711', { background: true });
    process.kill(await first('sleep 4711'), 'SIGKILL');
    const end = one(await seen(sandbox.sandboxId, 'Sandbox ended'), 'Sandbox ended');
    assert.deepEqual([end.level, end.fields], ['error', { reason: 'its processes ended by themselves' }]);
  });

  test('have processes with their ends, but no arguments, variables or output', async () => {
    const sandbox = await engine.create('base', { envs: { OF_SANDBOX: SECRET }, metadata: { about: SECRET } });
    const id = sandbox.sandboxId;
    await sandbox.files.write('/home/user/hidden', SECRET);
    await shell(sandbox, `echo ${SECRET}; cat hidden; exit 3`, { envs: { OF_COMMAND: SECRET } });
    const child = await sandbox.commands.run('sleep 600', { background: true, user: 'user' });
    await child.kill();
    await until(async () => (await messages(id)).filter((m) => m === 'Process ended').length === 2);
    const all = await entries(id);
    const [first, killed] = all.filter((e) => e.message === 'Process started');
    const ends = all.filter((e) => e.message === 'Process ended');
    assert.deepEqual(first.fields, { pid: first.fields.pid, cmd: '/bin/bash', user: 'user' });
    assert.match(first.fields.pid, /^\d+$/);
    assert.equal(killed.fields.pid, String(child.pid));
    assert.deepEqual(ends.map((e) => e.fields), [
      { pid: first.fields.pid, exitCode: '3' },
      { pid: killed.fields.pid, signal: 'killed' },
    ]);
    if (engine.has('root and user')) {
      await output(sandbox, 'true', { user: 'root' });
      assert.equal((await entries(id)).findLast((e) => e.message === 'Process started').fields.user, 'root');
    }
    await sandbox.kill();
    const everything = JSON.stringify([await read(id), await read(id, '', '')]);
    for (const hidden of [SECRET, 'OF_SANDBOX', 'OF_COMMAND', sandbox.envdAccessToken, engine.key])
      assert.ok(!everything.includes(hidden), `${hidden} is in the log`);
  });

  test('have the lines of a start command', async () => {
    const sandbox = await engine.create('starting');
    const all = await seen(sandbox.sandboxId, 'no end');
    const lines = all.filter((e) => e.fields.source === 'start command').map((e) => [e.level, e.message]);
    assert.deepEqual(lines.sort(), [
      ['error', 'err one'],
      ['info', 'no end'],
      ['info', 'out one'],
    ]);
    assert.ok(!JSON.stringify(all).includes(SECRET));
    await sandbox.kill();
  });

  test('are not flooded by a start command', async () => {
    const sandbox = await engine.create('talker');
    const note = 'Further output of the start command is not logged';
    const all = await seen(sandbox.sandboxId, note);
    assert.equal(one(all, note).level, 'warn');
    assert.ok(all.length < 450, `${all.length} entries`);
    assert.equal(one(all, 'Sandbox created').fields.template, 'talker');
    assert.equal(await output(sandbox, 'echo on'), 'on');
    await sandbox.kill();
  });

  test('have kernels that end and are restarted, and watches', async () => {
    const sandbox = await engine.create();
    const id = sandbox.sandboxId;
    await sandbox.runCode(`import os; print("${SECRET}"); os._exit(1)`);
    const crash = one(await seen(id, 'Kernel ended in a run'), 'Kernel ended in a run');
    assert.equal(crash.level, 'error');
    assert.equal(crash.fields.language, 'python');
    const context = await sandbox.createCodeContext();
    await sandbox.restartCodeContext(context);
    assert.equal(one(await seen(id, 'Kernel restarted by a request'), 'Kernel restarted by a request').fields.context, context.id);
    assert.equal(await python(sandbox, '1 + 1'), '2');
    const watch = await sandbox.files.watchDir('/home/user', () => {});
    assert.deepEqual(one(await seen(id, 'Watcher started'), 'Watcher started').fields, { path: '/home/user' });
    await watch.stop();
    await seen(id, 'Watcher ended');
    assert.ok(!JSON.stringify(await entries(id)).includes(SECRET));
    await sandbox.kill();
  });

  test('go forward and backward from a cursor, page by page, filtered', async () => {
    const sandbox = await engine.create('base');
    const id = sandbox.sandboxId;
    for (let i = 0; i < 3; i++) await sandbox.setTimeout(60_000 + i * 1000);
    await sandbox.files.watchDir('/home/user', () => {}); // at the level of debug
    await seen(id, 'Watcher started');
    const all = await entries(id);
    assert.equal(all.length, 5);
    const ms = (e) => Date.parse(e.timestamp); // cut to milliseconds, as a cursor is
    assert.deepEqual((await read(id)).logs, all.toReversed(), 'backward is the default');
    assert.deepEqual(await entries(id, '&limit=2'), all.slice(0, 2));
    assert.deepEqual((await read(id, '?limit=2&direction=backward')).logs, all.toReversed().slice(0, 2));
    assert.deepEqual(await entries(id, '&limit=0'), []);
    for (const e of all) {
      assert.deepEqual(await entries(id, `&cursor=${ms(e)}`), all.filter((x) => ms(x) >= ms(e)));
      assert.deepEqual((await read(id, `?cursor=${ms(e)}`)).logs, all.filter((x) => ms(x) <= ms(e)).toReversed());
    }
    assert.deepEqual(await entries(id, `&cursor=${Date.now() + 60_000}`), []);
    assert.deepEqual(await entries(id, '&level=info'), all.slice(0, 4));
    assert.deepEqual(await entries(id, '&level=debug'), all);
    assert.deepEqual(await entries(id, '&level=error'), []);
    assert.deepEqual(await messages(id, '&search=box%20c'), ['Sandbox created']);
    assert.deepEqual(await messages(id, '&search=SANDBOX'), []);
    assert.deepEqual(await messages(id, '&search=Timeout&limit=2'), ['Timeout set', 'Timeout set']);
    await sandbox.kill();
  });

  test('v1 has lines beside the entries', async () => {
    const sandbox = await engine.create('base');
    await sandbox.setTimeout(60_000);
    const all = await entries(sandbox.sandboxId);
    const v1 = await read(sandbox.sandboxId, '', '');
    assert.deepEqual(Object.keys(v1).sort(), ['logEntries', 'logs']);
    assert.deepEqual(v1.logEntries, all);
    assert.deepEqual(
      v1.logs.map(({ timestamp, line }) => ({ timestamp, ...JSON.parse(line) })),
      all.map(({ fields, ...rest }) => ({ ...rest, ...fields })),
    );
    const from = Date.parse(all[1].timestamp);
    const later = all.filter((e) => Date.parse(e.timestamp) >= from);
    assert.deepEqual((await read(sandbox.sandboxId, `?start=${from}`, '')).logEntries, later);
    assert.equal((await read(sandbox.sandboxId, '?limit=1', '')).logs.length, 1);
    await sandbox.kill();
  });

  test('wrong questions are refused', async () => {
    const { sandboxId: id } = await engine.create('base');
    const wrong = {
      '/v2': {
        cursor: ['-1', 'x', '', '99999999999999999999'],
        limit: ['1001', '-1', '1.5'],
        direction: ['up', ''],
        level: ['fatal', 'INFO'],
        search: ['%ff', '%'],
      },
      '': { start: ['x', '-1'], limit: ['-1', '1e3'] },
    };
    for (const [version, keys] of Object.entries(wrong))
      for (const [key, values] of Object.entries(keys))
        for (const value of values)
          assertError(await engine.api('GET', `${version}/sandboxes/${id}/logs?${key}=${value}`), 400, new RegExp(`Invalid ${key}`));
    for (const version of ['', '/v2']) {
      assertError(await engine.api('GET', `${version}/sandboxes/i00000000000000000000/logs`), 404, /doesn't exist/);
      assertError(await engine.api('GET', `${version}/sandboxes/${id}/logs`, { key: '' }), 401);
      assertError(await engine.api('GET', `${version}/sandboxes/NONE/logs`), 400, 'Invalid sandbox ID');
      assertError(await engine.api('POST', `${version}/sandboxes/${id}/logs`, { json: {} }), 405);
    }
    await engine.api('DELETE', `/sandboxes/${id}`);
    assert.equal((await engine.inside({ sandboxId: id }, ENVD, 'GET', '/health')).status, 502, 'only its log is left');
  });
});
