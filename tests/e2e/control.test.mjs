// The control plane: create, connect, list, get, kill, timeouts, pause and resume, metrics, templates, limits, and what is not offered.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Sandbox } from '@e2b/code-interpreter';
import {
  ENVD,
  INTERPRETER,
  KEY,
  SUITE,
  assertError,
  envelope,
  fails,
  output,
  python,
  request,
  sleep,
  startEngine,
  until,
} from './engine.mjs';

const DEAD = 'i00000000000000000000';
const gone = (id) => `Sandbox "${id}" doesn't exist or you don't have access to it`;
const HOURS = 3600_000;

const TEMPLATES = {
  'tiny.template': [
    'aliases = little, small-one',
    'env = FROM_TEMPLATE=yes',
    'env = PAIRS=a=b, c',
    'start = echo started > /home/user/started.txt',
    'cpu = 1',
    'memory = 256',
    'disk = 64',
    'interpreter = no',
    '',
  ].join('\n'),
  'notebook.template': 'interpreter = yes\n',
};

let engine;

/** A sandbox made by a raw call, in the shape the harness's raw calls take. */
async function rawCreate(body = {}, target = '/v2/sandboxes') {
  const res = await engine.api('POST', target, { json: { templateID: 'base', ...body } });
  assert.equal(res.status, 201, res.text);
  return { ...res.json, sandboxId: res.json.sandboxID };
}

const info = async (id) => (await engine.api('GET', `/sandboxes/${id}`)).json;
const secondsLeft = async (id) => (Date.parse((await info(id)).endAt) - Date.now()) / 1000;

function near(actual, expected, tolerance = 3) {
  assert.ok(Math.abs(actual - expected) <= tolerance, `${actual} is not about ${expected}`);
}

/** When, in seconds from `from`, the probe came true; it must be within the tolerance of a timeout of `seconds`. */
async function assertOnTime(from, seconds, probe) {
  await until(probe, { deadline: (seconds + 6) * 1000, what: `the end of ${seconds} s` });
  const took = (performance.now() - from) / 1000;
  assert.ok(took >= seconds - 0.1 && took <= seconds + 2.5, `a timeout of ${seconds} s took ${took.toFixed(2)} s`);
}

describe('control plane', SUITE, () => {
  before(async () => {
    engine = await startEngine({ args: ['--max-sandboxes', '60', '--max-lifetime', '7200'], templates: TEMPLATES });
  });
  after(() => engine?.stop());

  // ------------------------------------------------------------------------------------------------------------ create

  test('create with every option, as the SDK sends them, and get them back', async () => {
    const sandbox = await engine.create('base', {
      timeoutMs: 61_500,
      metadata: { purpose: 'test', ключ: 'значение' },
      envs: { A: '1', B: 'two words' },
      allowInternetAccess: false,
      lifecycle: { onTimeout: 'pause', autoResume: true },
    });
    const got = await sandbox.getInfo();
    assert.match(sandbox.sandboxId, /^i[a-z0-9]{20}$/);
    assert.equal(got.sandboxId, sandbox.sandboxId);
    assert.equal(got.name, 'base');
    assert.deepEqual(got.metadata, { purpose: 'test', ключ: 'значение' });
    assert.equal(got.state, 'running');
    assert.equal(got.allowInternetAccess, false);
    assert.deepEqual(got.lifecycle, { onTimeout: 'pause', autoResume: true });
    near((got.endAt - got.startedAt) / 1000, 62, 1);
    assert.ok(Number.isInteger(got.cpuCount) && got.cpuCount > 0 && Number.isInteger(got.memoryMB) && got.memoryMB > 0);
    assert.match(got.envdVersion, /^\d+\.\d+\.\d+$/);
    assert.equal(await output(sandbox, 'echo "$A/$B"'), '1/two words');
    assert.equal(await sandbox.isRunning(), true);
    assert.equal(await sandbox.kill(), true);
  });

  test('the answer of create has the fields of the reference', async () => {
    for (const target of ['/v2/sandboxes', '/sandboxes']) {
      const made = await rawCreate({ secure: true }, target);
      assert.match(made.sandboxID, /^i[a-z0-9]{20}$/);
      assert.equal(made.clientID, '6532622b');
      assert.equal(made.alias, 'base');
      assert.equal(typeof made.templateID, 'string');
      const [major, minor, patch] = made.envdVersion.split('.').map(Number);
      assert.ok(major > 0 || minor > 6 || (minor === 6 && patch >= 4), made.envdVersion);
      assert.ok(made.envdAccessToken.length >= 16);
      assert.ok(!made.trafficAccessToken && !made.domain);
      const detail = await info(made.sandboxID);
      for (const key of ['templateID', 'sandboxID', 'clientID', 'envdVersion', 'envdAccessToken', 'alias'])
        assert.equal(detail[key], made[key], key);
      for (const key of ['cpuCount', 'memoryMB', 'diskSizeMB']) assert.ok(Number.isInteger(detail[key]), key);
      for (const key of ['startedAt', 'endAt']) assert.match(detail[key], /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)$/);
      await engine.api('DELETE', `/sandboxes/${made.sandboxID}`);
    }
  });

  test('no two sandboxes share an id or a token', async () => {
    const made = await Promise.all(Array.from({ length: 4 }, () => rawCreate()));
    assert.equal(new Set(made.map((m) => m.sandboxID)).size, 4);
    assert.equal(new Set(made.map((m) => m.envdAccessToken)).size, 4);
    await Promise.all(made.map((m) => engine.api('DELETE', `/sandboxes/${m.sandboxID}`)));
  });

  test('the default timeout is 300 s in v2 and 15 s in v1', async () => {
    const [v2, v1] = await Promise.all([rawCreate(), rawCreate({}, '/sandboxes')]);
    near(await secondsLeft(v2.sandboxID), 300);
    near(await secondsLeft(v1.sandboxID), 15);
    await Promise.all([v1, v2].map((m) => engine.api('DELETE', `/sandboxes/${m.sandboxID}`)));
  });

  test('a bad body is a 400 that says what is wrong', async () => {
    const bodies = {
      malformed: '{"templateID":"base"',
      'not JSON': 'hello',
      empty: '',
      array: '[]',
      text: '"base"',
      number: '1',
      null: 'null',
      'no template': '{}',
      'template of a wrong type': '{"templateID":7}',
      'timeout of a wrong type': '{"templateID":"base","timeout":"60"}',
      'a fraction of a second': '{"templateID":"base","timeout":1.5}',
      'a huge timeout': '{"templateID":"base","timeout":99999999999999999999}',
      'negative timeout': '{"templateID":"base","timeout":-1}',
      'metadata of a wrong type': '{"templateID":"base","metadata":[1]}',
      'metadata value of a wrong type': '{"templateID":"base","metadata":{"a":1}}',
      'envVars of a wrong type': '{"templateID":"base","envVars":"A=1"}',
      'envVars value of a wrong type': '{"templateID":"base","envVars":{"A":{}}}',
      'autoPause of a wrong type': '{"templateID":"base","autoPause":"yes"}',
      'autoResume of a wrong type': '{"templateID":"base","autoResume":true}',
      'internet of a wrong type': '{"templateID":"base","allow_internet_access":1}',
      'autoPauseMemory without autoPause': '{"templateID":"base","autoPauseMemory":false}',
      'autoPauseMemory with autoResume': '{"templateID":"base","autoPause":true,"autoPauseMemory":false,"autoResume":{"enabled":true}}',
    };
    for (const target of ['/v2/sandboxes', '/sandboxes'])
      for (const [what, body] of Object.entries(bodies)) {
        const res = await engine.api('POST', target, { body, headers: { 'content-type': 'application/json' } });
        assert.equal(res.status, 400, `${what}: ${res.text}`);
        assertError(res, 400, /./);
      }
    assertError(
      await engine.api('POST', '/v2/sandboxes', { body: '{', headers: { 'content-type': 'application/json' } }),
      400,
      /^Error when parsing request: /,
    );
  });

  test('timeouts out of range', async () => {
    assertError(
      await engine.api('POST', '/v2/sandboxes', { json: { templateID: 'base', timeout: 0 } }),
      400,
      'Timeout must be greater than 0',
    );
    assertError(
      await engine.api('POST', '/v2/sandboxes', { json: { templateID: 'base', timeout: 7201 } }),
      400,
      'Timeout cannot be greater than 2 hours',
    );
    await fails(engine.create('base', { timeoutMs: 3 * HOURS }), 'SandboxError', /^400: Timeout cannot be greater than 2 hours$/);
  });

  test('templates that are not there', async () => {
    assertError(await engine.api('POST', '/v2/sandboxes', { json: { templateID: 'no-such' } }), 404, "template 'no-such' not found");
    assertError(
      await engine.api('POST', '/v2/sandboxes', { json: { templateID: 'base:no-such' } }),
      404,
      "tag 'no-such' does not exist for template 'base'",
    );
    assertError(
      await engine.api('POST', '/v2/sandboxes', { json: { templateID: 'no such/../x:y:z' } }),
      400,
      /^Invalid template reference: /,
    );
    assertError(await engine.api('POST', '/v2/sandboxes', { json: { templateID: '' } }), 400);
    await fails(engine.create('no-such'), 'SandboxError', /^404: template 'no-such' not found$/);
  });

  // ------------------------------------------------------------------------------------------------------------ auth

  test('every route needs the key, and the answer says what was wrong with it', async () => {
    const prefix = 'Invalid API key, please visit https://e2b.dev/docs/api-key for more information.\n';
    const routes = [
      ['POST', '/v2/sandboxes'],
      ['POST', '/sandboxes'],
      ['GET', '/v2/sandboxes'],
      ['GET', '/sandboxes'],
      ['GET', '/sandboxes/metrics?sandbox_ids=a'],
      ['GET', `/sandboxes/${DEAD}`],
      ['DELETE', `/sandboxes/${DEAD}`],
      ['POST', `/sandboxes/${DEAD}/timeout`],
      ['POST', `/sandboxes/${DEAD}/refreshes`],
      ['POST', `/sandboxes/${DEAD}/pause`],
      ['POST', `/sandboxes/${DEAD}/resume`],
      ['POST', `/sandboxes/${DEAD}/connect`],
      ['POST', `/v2/sandboxes/${DEAD}/connect`],
      ['GET', `/sandboxes/${DEAD}/metrics`],
      ['GET', '/templates'],
      ['GET', '/v2/templates'],
    ];
    for (const [method, target] of routes) {
      assertError(await engine.api(method, target, { key: '' }), 401);
      assertError(
        await engine.api(method, target, { key: 'e2b_' + 'f'.repeat(40) }),
        401,
        `${prefix}Cannot get the team for the given API key`,
      );
    }
    assertError(await engine.api('GET', '/v2/sandboxes', { key: 'sk_123' }), 401, `${prefix}Invalid API key format`);
    for (const key of [KEY.slice(0, -1), KEY + '0', 'e2b_', KEY.toUpperCase()])
      assertError(await engine.api('GET', '/v2/sandboxes', { key }), 401);
    await fails(Sandbox.create({ ...engine.sdk, apiKey: 'e2b_' + '1'.repeat(40) }), 'AuthenticationError', /Cannot get the team/);
    await fails(Sandbox.list({ ...engine.sdk, apiKey: 'e2b_' + '1'.repeat(40) }).nextItems(), 'AuthenticationError');
  });

  test('health needs no key', async () => {
    assert.equal((await request(`${engine.url}/health`)).status, 200);
  });

  // ------------------------------------------------------------------------------------------------------------ connect, get, kill

  test('connect to a running sandbox only ever extends its time', async () => {
    const sandbox = await engine.create('base', { timeoutMs: 100_000 });
    const id = sandbox.sandboxId;
    for (const target of [`/v2/sandboxes/${id}/connect`, `/sandboxes/${id}/connect`]) {
      const res = await engine.api('POST', target, { json: { timeout: 5 } });
      assert.equal(res.status, 200, res.text);
      assert.equal(res.json.sandboxID, id);
      assert.equal(res.json.envdAccessToken, sandbox.envdAccessToken);
      assert.equal(res.json.clientID, '6532622b');
      near(await secondsLeft(id), 100, 5);
    }
    const second = await Sandbox.connect(id, { ...engine.sdk, timeoutMs: 200_000 });
    near(await secondsLeft(id), 200);
    assert.equal(await output(second, 'echo same'), 'same');
    assert.equal((await engine.api('POST', `/v2/sandboxes/${id}/connect`)).status, 200, 'the body is optional');
    near(await secondsLeft(id), 300);
    assertError(await engine.api('POST', `/sandboxes/${id}/connect`, { json: {} }), 400);
    assertError(await engine.api('POST', `/v2/sandboxes/${id}/connect`, { json: { timeout: 'x' } }), 400);
    assertError(
      await engine.api('POST', `/v2/sandboxes/${id}/connect`, { json: { timeout: 8000 } }),
      400,
      /Timeout cannot be greater than 2 hours|Max instance length exceeded/,
    );
    assertError(await engine.api('POST', `/sandboxes/${id}/resume`, { json: { timeout: 15 } }), 409, `Sandbox ${id} is already running`);
    await sandbox.kill();
  });

  test('connect to a paused sandbox resumes it with 201, by all three routes', async () => {
    const sandbox = await engine.create('base');
    const id = sandbox.sandboxId;
    for (const target of [`/v2/sandboxes/${id}/connect`, `/sandboxes/${id}/connect`, `/sandboxes/${id}/resume`]) {
      assert.equal(await sandbox.pause(), true);
      const res = await engine.api('POST', target, { json: { timeout: 120 } });
      assert.equal(res.status, 201, res.text);
      assert.equal(res.json.sandboxID, id);
      assert.equal(res.json.envdAccessToken, sandbox.envdAccessToken);
      assert.equal((await info(id)).state, 'running');
      assert.equal(await output(sandbox, 'echo back'), 'back');
    }
    await sandbox.kill();
  });

  test('an unknown id is a 404 with its text on every route', async () => {
    const routes = [
      ['GET', ''],
      ['DELETE', ''],
      ['POST', '/timeout', { timeout: 5 }],
      ['POST', '/refreshes', { duration: 5 }],
      ['POST', '/pause', {}],
      ['POST', '/connect', { timeout: 5 }],
      ['POST', '/resume', { timeout: 5 }],
      ['GET', '/metrics'],
    ];
    for (const [method, rest, json] of routes)
      assertError(await engine.api(method, `/sandboxes/${DEAD}${rest}`, { json }), 404, gone(DEAD));
    assertError(await engine.api('POST', `/v2/sandboxes/${DEAD}/connect`, { json: {} }), 404, gone(DEAD));
    await fails(Sandbox.connect(DEAD, engine.sdk), 'SandboxNotFoundError', /^Paused sandbox i0+ not found$/);
    await fails(Sandbox.getInfo(DEAD, engine.sdk), 'SandboxNotFoundError');
    await fails(Sandbox.setTimeout(DEAD, 1000, engine.sdk), 'SandboxNotFoundError');
    await fails(Sandbox.pause(DEAD, engine.sdk), 'SandboxNotFoundError');
    await fails(Sandbox.getMetrics(DEAD, engine.sdk), 'SandboxNotFoundError');
    assert.equal(await Sandbox.kill(DEAD, engine.sdk), false);
  });

  test('an id may carry the client id; other forms are refused', async () => {
    const { sandboxID: id } = await rawCreate();
    assert.equal((await engine.api('GET', `/sandboxes/${id}-6532622b`)).json.sandboxID, id);
    for (const bad of [`${id}-6532622b-x`, id.toUpperCase(), `${id}%20`, '%00', 'a_b', '%D1%84'])
      assertError(await engine.api('GET', `/sandboxes/${bad}`), 400, /Invalid sandbox ID/);
    assert.equal((await engine.api('DELETE', `/sandboxes/${id}-6532622b`)).status, 204);
  });

  test('kill is true once, then false, and the sandbox is gone everywhere', async () => {
    const sandbox = await engine.create('base');
    const id = sandbox.sandboxId;
    assert.equal(await sandbox.kill(), true);
    assert.equal(await sandbox.kill(), false);
    assertError(await engine.api('DELETE', `/sandboxes/${id}`), 404, gone(id));
    assertError(await engine.api('GET', `/sandboxes/${id}`), 404, gone(id));
    assert.equal(await sandbox.isRunning(), false);
    const listed = (await engine.api('GET', '/v2/sandboxes')).json.map((s) => s.sandboxID);
    assert.ok(!listed.includes(id));
  });

  test('a kill answers 204 with no body', async () => {
    const { sandboxID: id } = await rawCreate();
    const res = await engine.api('DELETE', `/sandboxes/${id}`);
    assert.equal(res.status, 204);
    assert.equal(res.body.length, 0);
  });

  // ------------------------------------------------------------------------------------------------------------ list

  test('list filters by metadata, also with characters that need all three encodings', async () => {
    const awkward = { 'a b': 'c&d', 'k=1': 'v=2', plus: '1+1', percent: '100%', ü: 'ß', x: 'y' };
    const [one, two] = await Promise.all([engine.create('base', { metadata: awkward }), engine.create('base', { metadata: { x: 'y' } })]);
    const ids = async (metadata) => (await Sandbox.list({ ...engine.sdk, query: { metadata } }).nextItems()).map((s) => s.sandboxId).sort();
    assert.deepEqual(await ids(awkward), [one.sandboxId]);
    for (const [k, v] of Object.entries(awkward).slice(0, -1)) assert.deepEqual(await ids({ [k]: v }), [one.sandboxId], k);
    assert.deepEqual(await ids({ x: 'y' }), [one.sandboxId, two.sandboxId].sort());
    assert.deepEqual(await ids({ x: 'y', plus: '1' }), [], 'all pairs must match exactly');
    assert.deepEqual(await ids({ X: 'y' }), []);
    const captured = await engine.api('GET', '/v2/sandboxes?metadata=a%252520b%3Dc%252526d%26x%3Dy&state=running,paused&limit=5');
    assert.deepEqual(
      captured.json.map((s) => s.sandboxID),
      [one.sandboxId],
    );
    assert.deepEqual(captured.json[0].metadata, awkward);
    const legacy = await engine.api('GET', '/sandboxes?metadata=a%252520b%3Dc%252526d');
    assert.deepEqual(
      legacy.json.map((s) => s.sandboxID),
      [one.sandboxId],
    );
    assertError(await engine.api('GET', '/v2/sandboxes?metadata=novalue'), 400);
    assertError(await engine.api('GET', '/v2/sandboxes?metadata=a%3Db%3Dc'), 400);
    await Promise.all([one.kill(), two.kill()]);
  });

  test('list by state, in order, page by page', async () => {
    const metadata = { test: 'paging' };
    const made = [];
    for (let i = 0; i < 5; i++) made.push(await engine.create('base', { metadata }));
    const ids = made.map((s) => s.sandboxId);
    await made[1].pause();
    await made[3].pause();

    const pages = async (opts) => {
      const list = Sandbox.list({ ...engine.sdk, ...opts, query: { metadata, ...opts.query } });
      const all = [];
      for (let n = 0; list.hasNext; n++) {
        assert.ok(n < 10, 'paging does not end');
        all.push((await list.nextItems()).map((s) => s.sandboxId));
      }
      return all;
    };
    assert.deepEqual(await pages({}), [[...ids].reverse()], 'newest first by default');
    assert.deepEqual(await pages({ order: 'asc' }), [ids]);
    assert.deepEqual(await pages({ limit: 2, order: 'asc' }), [ids.slice(0, 2), ids.slice(2, 4), ids.slice(4)]);
    assert.deepEqual(await pages({ limit: 2, order: 'desc' }), [[ids[4], ids[3]], [ids[2], ids[1]], [ids[0]]]);
    assert.deepEqual(await pages({ limit: 5 }), [[...ids].reverse()], 'no empty last page');
    assert.deepEqual(await pages({ query: { state: ['paused'] }, order: 'asc' }), [[ids[1], ids[3]]]);
    assert.deepEqual(await pages({ query: { state: ['running'] }, order: 'asc' }), [[ids[0], ids[2], ids[4]]]);
    assert.deepEqual(await pages({ query: { state: ['running', 'paused'] }, order: 'asc', limit: 3 }), [ids.slice(0, 3), ids.slice(3)]);

    const first = await engine.api('GET', '/v2/sandboxes?metadata=test%3Dpaging&limit=2&order=asc');
    const [time, id, order] = Buffer.from(first.headers['x-next-token'], 'base64url').toString().split('__');
    assert.ok(!Number.isNaN(Date.parse(time)) && ids.includes(id) && order === 'asc', first.headers['x-next-token']);
    const last = await engine.api('GET', `/v2/sandboxes?metadata=test%3Dpaging&limit=5`);
    assert.ok(!last.headers['x-next-token']);
    assert.ok(Number(last.headers['x-total-running']) >= 3);
    assert.equal((await engine.api('GET', '/v2/sandboxes?state=paused')).headers['x-total-running'], undefined);

    const legacy = (await engine.api('GET', '/sandboxes?metadata=test%3Dpaging')).json.map((s) => s.sandboxID).sort();
    assert.deepEqual(legacy, [ids[0], ids[2], ids[4]].sort(), 'v1 lists the running ones only');

    const item = first.json[0];
    for (const key of [
      'templateID',
      'alias',
      'sandboxID',
      'clientID',
      'startedAt',
      'endAt',
      'cpuCount',
      'memoryMB',
      'diskSizeMB',
      'metadata',
      'state',
      'envdVersion',
    ])
      assert.ok(key in item, key);
    assert.ok(!('envdAccessToken' in item), 'a list gives no tokens away');

    const startedAfter = new Date((await info(ids[3])).startedAt);
    const since = (await Sandbox.list({ ...engine.sdk, query: { metadata, startedAfter } }).nextItems()).map((s) => s.sandboxId);
    assert.ok(since.includes(ids[4]) && since.includes(ids[3]) && !since.includes(ids[0]), since.join());
    await Promise.all(made.map((s) => s.kill()));
  });

  test('list by template', async () => {
    const [base, tiny] = await Promise.all([engine.create('base'), engine.create('tiny')]);
    const ids = async (template) => (await Sandbox.list({ ...engine.sdk, query: { template } }).nextItems()).map((s) => s.sandboxId);
    assert.deepEqual(await ids('tiny'), [tiny.sandboxId]);
    assert.deepEqual(await ids('little'), [tiny.sandboxId]);
    assert.deepEqual(await ids((await tiny.getInfo()).templateId), [tiny.sandboxId]);
    assert.ok((await ids('base')).includes(base.sandboxId));
    assert.deepEqual(await ids('no-such'), []);
    await Promise.all([base.kill(), tiny.kill()]);
  });

  test('bad list parameters', async () => {
    assertError(await engine.api('GET', '/v2/sandboxes?nextToken=%25%25'), 400, /Invalid next token/);
    assertError(
      await engine.api('GET', `/v2/sandboxes?nextToken=${Buffer.from('nonsense').toString('base64url')}`),
      400,
      /Invalid next token/,
    );
    for (const query of ['limit=0', 'limit=101', 'limit=-1', 'limit=x', 'order=up', 'state=dead', 'startedAfter=yesterday'])
      assertError(await engine.api('GET', `/v2/sandboxes?${query}`), 400);
  });

  // ------------------------------------------------------------------------------------------------------------ time

  test('a timeout is kept to the second, however it was set', async () => {
    const absent = (id) => async () => (await engine.api('GET', `/sandboxes/${id}`)).status === 404;
    const atCreate = async () => {
      const from = performance.now();
      const { sandboxID: id, ...rest } = await rawCreate({ timeout: 3 });
      const made = performance.now(); // the clock of the sandbox starts somewhere in between
      await until(absent(id), { deadline: 9_000, what: 'the end' });
      assert.ok(performance.now() - from >= 2_900 && performance.now() - made <= 5_500, `${performance.now() - made} ms`);
      assert.equal((await engine.envd({ sandboxId: id, ...rest }, 'GET', '/health')).status, 502);
    };
    const shortened = async () => {
      const sandbox = await engine.create('base');
      const from = performance.now();
      await sandbox.setTimeout(2000);
      await assertOnTime(from, 2, absent(sandbox.sandboxId));
      assert.equal(await sandbox.isRunning(), false);
    };
    const lengthened = async () => {
      const sandbox = await engine.create('base', { timeoutMs: 3000 });
      const from = performance.now();
      await sandbox.setTimeout(6000);
      await assertOnTime(from, 6, absent(sandbox.sandboxId));
    };
    const withKernel = async () => {
      const sandbox = await engine.create('code-interpreter-v1');
      await python(sandbox, '1');
      const from = performance.now();
      await sandbox.setTimeout(2000);
      await assertOnTime(from, 2, async () => !(await sandbox.isRunning()));
    };
    await Promise.all([atCreate(), shortened(), lengthened(), withKernel()]);
  });

  test('set timeout answers 204, moves the end both ways, and refuses nonsense', async () => {
    const { sandboxID: id } = await rawCreate();
    const set = (json) => engine.api('POST', `/sandboxes/${id}/timeout`, { json });
    for (const timeout of [500, 50, 900]) {
      assert.equal((await set({ timeout })).status, 204);
      near(await secondsLeft(id), timeout);
    }
    for (const json of [{}, { timeout: -1 }, { timeout: '5' }, { timeout: 2.5 }, [], 'x']) assertError(await set(json), 400);
    const far = await set({ timeout: 100_000 });
    if (far.status === 400) assertError(far, 400, 'Max instance length exceeded');
    else assert.equal(far.status, 204);
    assert.ok((await secondsLeft(id)) <= 7201, 'the longest life was exceeded');
    await engine.api('DELETE', `/sandboxes/${id}`);
  });

  test('a refresh only extends, by 15 s at least', async () => {
    const { sandboxID: id } = await rawCreate({ timeout: 5 });
    const refresh = (json) => engine.api('POST', `/sandboxes/${id}/refreshes`, { json });
    assert.equal((await refresh({ duration: 1 })).status, 204);
    near(await secondsLeft(id), 15);
    assert.equal((await refresh({ duration: 120 })).status, 204);
    near(await secondsLeft(id), 120);
    assert.equal((await refresh({ duration: 20 })).status, 204);
    near(await secondsLeft(id), 120);
    for (const json of [{ duration: 3601 }, { duration: -1 }, { duration: 'x' }]) assertError(await refresh(json), 400);
    await engine.api('DELETE', `/sandboxes/${id}`);
  });

  // ------------------------------------------------------------------------------------------------------------ pause and resume

  test('pause freezes, resume keeps variables, files and processes', async () => {
    const sandbox = await engine.create();
    await python(sandbox, 'x = 41');
    await sandbox.files.write('kept.txt', 'kept');
    const ticker = await sandbox.commands.run('while :; do echo >> /home/user/ticks; sleep 0.1; done', { background: true, timeoutMs: 0 });
    await until(async () => await sandbox.files.exists('ticks'), { what: 'the first tick' });
    const ticks = async () => Number(await output(sandbox, 'wc -l < /home/user/ticks'));

    const counted = await ticks();
    assert.equal(await sandbox.pause(), true);
    const from = performance.now();
    assert.equal(await sandbox.pause(), false, 'it is already paused');
    assertError(
      await engine.api('POST', `/sandboxes/${sandbox.sandboxId}/pause`, { json: {} }),
      409,
      `Error pausing sandbox - sandbox '${sandbox.sandboxId}' is already paused`,
    );
    assert.equal((await sandbox.getInfo()).state, 'paused');
    assert.equal(await sandbox.isRunning(), false);
    const res = await engine.envd(sandbox, 'GET', '/envs');
    assert.deepEqual([res.status, res.json], [502, { sandboxId: sandbox.sandboxId, message: 'The sandbox was not found', code: 502 }]);
    await sleep(2500 - (performance.now() - from));

    const again = await Sandbox.connect(sandbox.sandboxId, { ...engine.sdk, timeoutMs: 60_000 });
    const recounted = await ticks();
    assert.ok(recounted - counted < 20, `${recounted - counted} ticks passed in a frozen sandbox`);
    assert.equal(await python(again, 'x + 1'), '42');
    assert.equal(await again.files.read('kept.txt'), 'kept');
    await until(async () => (await ticks()) > recounted + 2, { what: 'further ticks' });
    assert.equal(await again.commands.kill(ticker.pid), true);
    assert.equal(await sandbox.kill(), true);
  });

  test('a pause in the middle of a run costs the run, not the variables', async () => {
    const sandbox = await engine.create('notebook');
    await sandbox.runCode('x = 41');
    const run = sandbox.runCode('import time\nfor i in range(600): time.sleep(0.1)').catch((e) => e);
    await sleep(500);
    assert.equal(await sandbox.pause(), true);
    await run;
    await sleep(4000);
    const again = await Sandbox.connect(sandbox.sandboxId, engine.sdk);
    assert.equal((await again.runCode('x + 1')).text, '42');
    await again.kill();
  });

  test('a paused sandbox outlives its timeout, and can be killed', async () => {
    const sandbox = await engine.create('base', { timeoutMs: 1500 });
    await sandbox.pause();
    await sleep(3000);
    assert.equal((await sandbox.getInfo()).state, 'paused');
    assert.equal(await sandbox.kill(), true);
    await fails(sandbox.getInfo(), 'SandboxNotFoundError');
    await fails(Sandbox.connect(sandbox.sandboxId, engine.sdk), 'SandboxNotFoundError');
  });

  test('auto pause: at its time the sandbox is paused, not killed', async () => {
    const sandbox = await engine.create(undefined, { lifecycle: { onTimeout: 'pause' } });
    await python(sandbox, 'x = 7');
    const from = performance.now();
    await sandbox.setTimeout(2000);
    await assertOnTime(from, 2, async () => (await sandbox.getInfo()).state === 'paused');
    assert.equal(await sandbox.isRunning(), false, 'no auto resume was asked for');
    await sandbox.connect({ timeoutMs: 60_000 });
    assert.equal(await python(sandbox, 'x'), '7');
    await sandbox.kill();
  });

  test('auto resume: any request wakes it up, with the right credentials', async () => {
    const sandbox = await engine.create(undefined, { timeoutMs: 30_000, lifecycle: { onTimeout: 'pause', autoResume: true } });
    await python(sandbox, 'x = 8');
    await sandbox.pause();
    const denied = await engine.envd({ sandboxId: sandbox.sandboxId, envdAccessToken: 'wrong' }, 'GET', '/envs');
    assert.equal(denied.status, 403, denied.text);
    assert.equal(
      denied.json.message,
      "This sandbox can't be resumed with the credentials provided. Check your access token and try again.",
    );
    assert.equal(denied.json.sandboxId, sandbox.sandboxId);
    assert.equal((await sandbox.getInfo()).state, 'paused');

    assert.equal(await output(sandbox, 'echo awake'), 'awake');
    assert.equal((await sandbox.getInfo()).state, 'running');
    near(await secondsLeft(sandbox.sandboxId), 300, 5);

    await sandbox.pause();
    assert.equal(await python(sandbox, 'x'), '8');
    await sandbox.pause();
    assert.equal(await sandbox.files.exists('/home/user'), true);
    await sandbox.kill();
  });

  test('an auto-resumed sandbox is woken once by many requests at the same time', async () => {
    const sandbox = await engine.create('base', { lifecycle: { onTimeout: 'pause', autoResume: true } });
    await sandbox.pause();
    const answers = await Promise.all(Array.from({ length: 8 }, (_, i) => output(sandbox, `echo ${i}`)));
    assert.deepEqual(answers, ['0', '1', '2', '3', '4', '5', '6', '7']);
    await sandbox.kill();
  });

  // ------------------------------------------------------------------------------------------------------------ metrics, templates

  test('metrics of one sandbox and of many', async () => {
    const sandbox = await engine.create('tiny');
    const id = sandbox.sandboxId;
    const [point] = await until(
      async () => {
        const all = await sandbox.getMetrics();
        return all.length > 0 && all;
      },
      { deadline: 15_000, every: 250, what: 'the first point' },
    );
    for (const key of ['cpuUsedPct', 'cpuCount', 'memUsed', 'memTotal', 'memCache', 'diskUsed', 'diskTotal'])
      assert.equal(typeof point[key], 'number', key);
    assert.equal(point.cpuCount, 1);
    assert.ok(point.memTotal > 0 && point.memUsed >= 0 && point.memUsed <= point.memTotal);
    assert.ok(point.diskTotal > 0 && point.diskUsed <= point.diskTotal);
    assert.ok(Math.abs(point.timestamp - Date.now()) < 60_000);
    assert.deepEqual(await sandbox.getMetrics({ start: new Date(Date.now() + HOURS), end: new Date(Date.now() + 2 * HOURS) }), []);
    assertError(await engine.api('GET', `/sandboxes/${id}/metrics?start=yesterday`), 400);
    const rawPoint = (await engine.api('GET', `/sandboxes/${id}/metrics`)).json[0];
    near(rawPoint.timestampUnix, Date.parse(rawPoint.timestamp) / 1000, 1.1);

    const many = await engine.api('GET', `/sandboxes/metrics?sandbox_ids=${id},${DEAD}`);
    assert.equal(many.status, 200, many.text);
    assert.deepEqual(Object.keys(many.json.sandboxes), [id]);
    assert.equal(many.json.sandboxes[id].cpuCount, 1);
    assertError(await engine.api('GET', `/sandboxes/metrics?sandbox_ids=${Array(101).fill(DEAD).join()}`), 400);
    await sandbox.kill();
  });

  test('templates are listed with their fields', async () => {
    for (const target of ['/templates', '/v2/templates']) {
      const res = await engine.api('GET', target);
      assert.equal(res.status, 200, res.text);
      const find = (name) => res.json.find((t) => [...t.aliases, ...t.names].includes(name));
      for (const name of ['base', 'code-interpreter-v1', 'tiny', 'little', 'notebook']) assert.ok(find(name), `${name} in ${target}`);
      for (const key of ['templateID', 'buildID', 'envdVersion', 'createdAt', 'updatedAt'])
        assert.equal(typeof find('tiny')[key], 'string', key);
      assert.deepEqual([find('tiny').cpuCount, find('tiny').memoryMB, find('tiny').diskSizeMB], [1, 256, 64]);
      assert.equal(typeof find('tiny').public, 'boolean');
    }
  });

  test('a name can be asked for', async () => {
    const ask = (name) => engine.api('GET', `/templates/aliases/${name}`);
    assert.deepEqual((await ask('base')).json, { templateID: 'rki5dems9wqfm4r03t7g', public: true });
    assert.equal((await ask('small-one')).status, 200);
    for (const name of ['nobody', 'a%00b', '%zz']) assertError(await ask(name), 404, /not found/);
  });

  test('pages of other origins may call, with the key', async () => {
    for (const target of ['/v2/sandboxes', '/sandboxes/x', '/execute', '/process.Process/Start']) {
      const res = await request(engine.url + target, { method: 'OPTIONS', headers: { origin: 'http://elsewhere', 'access-control-request-method': 'POST' } });
      assert.equal(res.status, 204, target);
      assert.equal(res.headers['access-control-allow-origin'], '*');
      assert.match(res.headers['access-control-allow-headers'], /\*/);
    }
    const list = await engine.api('GET', '/v2/sandboxes');
    assert.equal(list.headers['access-control-allow-origin'], '*');
    assert.match(list.headers['access-control-expose-headers'], /X-Next-Token/);
    assert.equal((await request(`${engine.url}/v2/sandboxes`)).status, 401);
  });

  test('a template from the folder: by name, alias and id, with its env, start command and sizes', async () => {
    const { templateID } = (await engine.api('GET', '/templates')).json.find((t) => [...t.aliases, ...t.names].includes('tiny'));
    for (const name of ['tiny', 'little', 'small-one', templateID]) {
      const sandbox = await engine.create(name, { envs: { OWN: 'mine' } });
      const got = await sandbox.getInfo();
      assert.deepEqual([got.templateId, got.cpuCount, got.memoryMB], [templateID, 1, 256]);
      assert.equal(await output(sandbox, 'echo "$FROM_TEMPLATE|$PAIRS|$OWN|$E2B_TEMPLATE_ID"'), `yes|a=b, c|mine|${templateID}`);
      await until(() => sandbox.files.exists('/home/user/started.txt'), { what: 'the start command' });
      assert.ok(Number(await output(sandbox, 'df -BM --output=size /home/user | tail -1 | tr -dc 0-9')) <= 64);
      await sandbox.kill();
    }
    const override = await engine.create('tiny', { envs: { FROM_TEMPLATE: 'no' } });
    assert.equal(await output(override, 'echo $FROM_TEMPLATE'), 'no');
    await override.kill();
  });

  test('only a template with the interpreter has its port open', async () => {
    const [base, notebook] = await Promise.all([engine.create('base'), engine.create('notebook')]);
    const res = await engine.interpreter(base, 'GET', '/health');
    assert.deepEqual(
      [res.status, res.json],
      [502, { sandboxId: base.sandboxId, message: 'The sandbox is running but port is not open', port: INTERPRETER, code: 502 }],
    );
    await fails(base.runCode('1'), 'TimeoutError', /port is not open/);
    assert.equal(await python(notebook, '1 + 1'), '2');
    await Promise.all([base.kill(), notebook.kill()]);
  });

  // ------------------------------------------------------------------------------------------------------------ the limit

  test('past the limit: 429 in the words of E2B; paused sandboxes do not count', async () => {
    const small = await startEngine({ args: ['--max-sandboxes', '2'] });
    try {
      const create = () => Sandbox.create('base', { ...small.sdk, lifecycle: { onTimeout: 'pause', autoResume: true } });
      const [one, two] = [await create(), await create()];
      const text =
        "you have reached the maximum number of concurrent E2B sandboxes (2). If you need more, please visit 'https://e2b.dev/docs/billing'";
      for (const target of ['/v2/sandboxes', '/sandboxes']) {
        const res = await small.api('POST', target, { json: { templateID: 'base' } });
        assertError(res, 429, text);
        assert.equal(res.headers['retry-after'], undefined, 'a client that retries would only spin');
      }
      const error = await fails(create(), 'RateLimitError');
      assert.ok(error.message.includes(text), error.message);

      await one.pause();
      const three = await create();
      assertError(await small.api('POST', `/v2/sandboxes/${one.sandboxId}/connect`, { json: {} }), 429);
      const auto = await small.envd(one, 'GET', '/envs');
      assert.equal(auto.status, 429, auto.text);
      assert.equal(await two.kill(), true);
      await one.connect();
      assert.equal(await output(one, 'echo here'), 'here');
      await Promise.all([one.kill(), three.kill()]);
    } finally {
      await small.stop();
    }
  });

  test('paused sandboxes keep their memory, so they are limited, too', async () => {
    const small = await startEngine({ args: ['--max-sandboxes', '1'] });
    try {
      for (let i = 0; i < 4; i++) assert.equal(await (await small.create('base')).pause(), true);
      const last = await small.create('base');
      assertError(await small.api('POST', `/sandboxes/${last.sandboxId}/pause`, { json: {} }), 503, /4 sandboxes are paused/);
      assert.equal(await output(last, 'echo runs on'), 'runs on');
    } finally {
      await small.stop();
    }
  });

  // ------------------------------------------------------------------------------------------------------------ tokens

  test('private traffic: ports but envd need the traffic token', async () => {
    const sandbox = await engine.create('notebook', { network: { allowPublicTraffic: false } });
    assert.match(sandbox.trafficAccessToken, /^[a-z0-9]{20,}$/);
    assert.equal((await sandbox.runCode('1+1')).text, '2', 'the SDK sends it');
    assert.equal(await output(sandbox, 'echo envd needs none'), 'envd needs none');
    const ask = (headers) => engine.inside(sandbox, INTERPRETER, 'GET', '/health', { headers });
    assert.equal((await ask({ 'e2b-traffic-access-token': sandbox.trafficAccessToken })).status, 200);
    const missing = await ask({});
    assert.equal(missing.status, 403, missing.text);
    assert.match(missing.json.message, /Token header 'e2b-traffic-access-token' is missing/);
    const wrong = await ask({ 'e2b-traffic-access-token': 'x'.repeat(32) });
    assert.equal(wrong.status, 403, wrong.text);
    assert.match(wrong.json.message, /'e2b-traffic-access-token' is invalid/);
    await sandbox.kill();
  });

  test('v1 without secure has no token and asks for none; with it, it does', async () => {
    for (const secure of [false, true]) {
      const made = await rawCreate({ secure }, '/sandboxes');
      assert.equal(typeof made.envdAccessToken, secure ? 'string' : 'undefined');
      const res = await engine.inside({ sandboxId: made.sandboxID }, ENVD, 'GET', '/envs');
      assert.equal(res.status, secure ? 401 : 200, res.text);
      await engine.api('DELETE', `/sandboxes/${made.sandboxID}`);
    }
  });

  // ------------------------------------------------------------------------------------------------------------ not offered

  test('routes of the control plane that are not offered answer 501 with their name', async () => {
    const { sandboxID: id } = await rawCreate();
    const routes = [
      ['POST', `/sandboxes/${id}/fork`, /fork/i, { count: 1 }],
      ['POST', `/sandboxes/${id}/snapshots`, /snapshot/i, {}],
      ['GET', '/snapshots', /snapshot/i],
      ['DELETE', '/templates/team%2Fs%3Adefault', /snapshot|template/i],
      ['GET', '/volumes', /volume/i],
      ['GET', '/secrets', /secret/i],
    ];
    for (const [method, target, name, json] of routes) assertError(await engine.api(method, target, { json, deadline: 5_000 }), 501, name);
    assertError(
      await engine.api('POST', '/v2/sandboxes', { json: { templateID: 'base', network: { denyOut: ['example.com'] } } }),
      501,
      /denyOut 'example.com'/,
    );
    await engine.api('DELETE', `/sandboxes/${id}`);
  });

  test('options that cannot be honoured are refused by name, not passed over', async () => {
    const options = {
      iam: { tokens: { t: { audience: 'a' } } },
      mcp: { github: {} },
      volumeMounts: [{ name: 'v', path: '/mnt' }],
    };
    for (const [name, value] of Object.entries(options))
      assertError(await engine.api('POST', '/v2/sandboxes', { json: { templateID: 'base', [name]: value } }), 501, new RegExp(name));
    assertError(
      await engine.api('POST', '/v2/sandboxes', { json: { templateID: 'base', autoPause: true, autoPauseMemory: false } }),
      501,
      /autoPauseMemory/,
    );
    assertError(await engine.api('POST', '/v2/sandboxes', { json: { templateID: 'base', autoPauseMemory: false } }), 400, /autoPauseMemory/);
    const sandbox = await engine.create('base');
    const id = sandbox.sandboxId;
    assertError(await engine.api('POST', `/sandboxes/${id}/pause`, { json: { memory: false } }), 501, /memory/);
    assertError(await engine.api('POST', `/v2/sandboxes/${id}/connect`, { json: { memory: false } }), 501, /memory/);
    const input = await engine.rpc(sandbox, 'process.Process/StreamInput', {});
    assert.equal(input.json.code, 'unimplemented', input.text);
    assert.equal(await output(sandbox, 'echo untouched'), 'untouched');
    await sandbox.kill();
  });

  test('the SDK reports what is not offered at once', async () => {
    const sandbox = await engine.create('base');
    await fails(sandbox.createSnapshot(), 'SandboxError', /^501: .*snapshot/i);
    await fails(sandbox.listSnapshots().nextItems(), 'SandboxError', /^501: .*snapshot/i);
    await fails(sandbox.fork(), 'SandboxError', /^501: .*fork/i);
    await fails(sandbox.updateNetwork({ allowOut: ['example.com'] }), 'SandboxError', /^501: .*allowOut 'example.com'/);
    await sandbox.kill();
  });

  test('what E2B does not know either is a 404 or 405', async () => {
    assertError(await engine.api('GET', '/no/such/route'), 404);
    for (const [method, target] of [
      ['PATCH', '/v2/sandboxes'],
      ['DELETE', '/health'],
      ['PUT', `/sandboxes/${DEAD}`],
    ]) {
      const res = await engine.api(method, target);
      assert.ok(res.status === 404 || res.status === 405, `${method} ${target}: ${res.status}`);
    }
    const sandbox = await engine.create('base');
    for (const [port, target] of [
      [ENVD, '/no/such'],
      [ENVD, '/process.Process/NoSuch'],
    ]) {
      const res = await engine.inside(sandbox, port, 'POST', target, {
        body: envelope({}),
        headers: { 'content-type': 'application/json' },
      });
      assert.equal(res.status, 404, target);
    }
    await sandbox.kill();
  });
});
