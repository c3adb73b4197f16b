// Who may do what: every route against every kind of caller, scopes, sessions, the cookie, and attempts to be somebody else. All of
// it through nginx, which says who it is, and the gateway, which says what they may. At the end the log, the audit trail and the
// disk are searched for each request and for secrets.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { KEY, SUITE, raw, rawStatus, until } from './engine.mjs';
import { assertProblem, form, startGateway } from './gateway.mjs';

const A = '/api/v1/session/{session}/sandbox/';
const B = '/api/v1/sessions/{session}/sandbox/';
const ID = /^[0-9a-f]{32}$/;
const FILE = '/home/user/upload/walk.txt';
const CODE = 'print("a word of the program")';

// How each operation is called, and what the owner of the session is answered.
const OPERATIONS = [
  { op: 'start', method: 'POST', scope: 'run', pool: 'exec', json: { envs: { HIDDEN: 'a-value-of-the-environment' } }, ok: 200 },
  { op: 'stop', method: 'POST', scope: 'run', pool: 'exec', ok: { [A]: 204, [B]: 200 } },
  { op: 'status', method: 'GET', scope: 'read', pool: 'quick', ok: 200 },
  { op: 'execute', method: 'POST', scope: 'run', pool: 'exec', json: { code: CODE }, ok: 200 },
  { op: 'install', method: 'POST', scope: 'run', pool: 'exec', json: { packages: [] }, ok: 200 },
  { op: 'upload', method: 'POST', scope: 'write', pool: 'exec', query: '?path=/home/user/upload', ...form('walk.txt', 'walked'), ok: 200 },
  { op: 'download', method: 'GET', scope: 'read', pool: 'exec', query: `?path=${FILE}`, ok: 200 },
  { op: 'files', method: 'GET', scope: 'read', pool: 'exec', query: '?path=/home/user', ok: 200 },
  { op: 'executions', method: 'GET', scope: 'read', pool: 'quick', ok: 200 },
  { op: 'execution', at: 'executions/{id}', method: 'GET', scope: 'read', pool: 'quick', ok: 404 },
  { op: 'events', at: 'executions/{id}/events', method: 'GET', scope: 'read', pool: 'exec', ok: 404 },
  { op: 'cancel', at: 'executions/{id}', method: 'DELETE', scope: 'run', pool: 'exec', ok: 404 },
  { op: 'contexts', method: 'GET', scope: 'read', pool: 'exec', ok: 200 },
  { op: 'context_create', at: 'contexts', method: 'POST', scope: 'run', pool: 'exec', json: {}, ok: 201 },
  { op: 'context_restart', at: 'contexts/{id}/restart', method: 'POST', scope: 'run', pool: 'exec', ok: 404 },
  { op: 'context_remove', at: 'contexts/{id}', method: 'DELETE', scope: 'run', pool: 'exec', ok: 404 },
  { op: 'envs', method: 'POST', scope: 'run', pool: 'exec', json: { HIDDEN: 'a-value-of-the-environment' }, ok: 204 },
  { op: 'keepalive', method: 'POST', scope: 'run', pool: 'exec', json: { secs: 5 }, ok: 200 },
  { op: 'metrics', method: 'GET', scope: 'read', pool: 'exec', ok: 200 },
];

// The walk. A route of the table that is not in here fails the first test below.
const WALK = [
  { method: 'GET', path: '/healthz', who: 'anyone', scope: '-', pool: 'quick', ok: 200 },
  { method: 'GET', path: '/readyz', who: 'anyone', scope: '-', pool: 'exec', ok: 200 },
  { method: 'GET', path: '/_sandgate/auth', who: 'nginx', scope: '-', pool: 'quick', ok: 404 },
  { method: 'POST', path: '/api/v1/login', who: 'anyone', scope: '-', pool: 'quick', ok: 400 },
  { method: 'POST', path: '/api/v1/logout', who: 'anyone', scope: '-', pool: 'quick', ok: 204 },
  ...[A, B].flatMap((base) =>
    OPERATIONS.map((o) => ({ ...o, path: base + (o.at ?? o.op), base, who: 'user', ok: typeof o.ok === 'object' ? o.ok[base] : o.ok })),
  ),
];
const OF_USERS = WALK.filter((r) => r.who === 'user');
const AUDITED = new Set(['start', 'stop', 'execute', 'install', 'upload', 'download', 'cancel', 'envs', 'keepalive']);
for (const what of ['create', 'restart', 'remove']) AUDITED.add(`context_${what}`);

const NEED_ONE = ['download', 'files', 'contexts', 'context_restart', 'context_remove', 'keepalive', 'metrics']; // a sandbox

const titleOf = (route) => `${route.method} ${route.path}`;
const addressOf = (route, session = 'walk') => route.path.replace('{session}', session).replace('{id}', 'x_none') + (route.query ?? '');

/** Which operation an address is, by the walk's own table. */
function operationAt(method, target) {
  const [, segment, at] = target.match(/^\/api\/v1\/sessions?\/([^/]+)\/sandbox\/([^?]+)/) ?? [];
  const fits = (o) => new RegExp(`^${(o.at ?? o.op).replace('{id}', '[^/]+')}$`).test(at);
  const found = OPERATIONS.find((o) => fits(o) && (o.method === method || method === 'HEAD'));
  return { session: segment && decodeURIComponent(segment), op: found?.op ?? at?.match(/^\w+/)[0] };
}

describe('who may', SUITE, () => {
  let g;
  let token; // secrets by name
  const secrets = new Set(); // every one that was ever made
  const seen = []; // every request that was made by ask()

  before(async () => {
    g = await startGateway();
    token = {
      alice: (await mint('alice')).secret,
      bob: (await mint('bob')).secret,
      read: (await mint('alice', '--scope', 'read')).secret,
      run: (await mint('alice', '--scope', 'run')).secret,
      write: (await mint('alice', '--scope', 'write')).secret,
      notRead: (await mint('alice', '--scope', 'run,write')).secret,
      notRun: (await mint('alice', '--scope', 'read,write')).secret,
      notWrite: (await mint('alice', '--scope', 'read,run')).secret,
      elsewhere: (await mint('alice', '--session', 'elsewhere')).secret,
      expired: (await mint('alice', '--ttl', '1s')).secret,
    };
    const revoked = await mint('alice');
    await g.ctl('token', 'revoke', revoked.id);
    token.revoked = revoked.secret;
    token.unknown = token.alice.slice(0, -6) + [...token.alice.slice(-6)].reverse().join('');
    await until(async () => (await g.call('GET', '/api/v1/session/x/sandbox/status', { token: token.expired })).status === 401, {
      deadline: 20_000,
      what: 'the end of a token',
    });
  });
  after(() => g?.stop());

  /** A token and its id. */
  async function mint(user, ...options) {
    const { stdout, stderr } = await g.ctl('token', 'create', '--user', user, ...options);
    const secret = stdout.trim();
    secrets.add(secret);
    return { secret, id: stderr.match(/^id=(t_\w+)/m)[1] };
  }

  /** A call whose answer has one request id, which is kept to be found again in the log. who: as the log should name them. */
  async function ask(method, target, { who = '', token: bearer = null, ...options } = {}) {
    const res = await g.call(method, target, { token: bearer, ...options });
    assert.match(res.headers['x-request-id'], ID, 'one id, and it is nginx\'s'); // two would be joined with a comma
    const { session, op } = operationAt(method, target);
    const code = res.status < 400 ? 'ok' : res.json.code;
    seen.push({ id: res.headers['x-request-id'], target, status: res.status, who, session, op, code });
    return res;
  }

  const walk = (route, options, session) =>
    ask(route.method, addressOf(route, session), { json: route.json, body: route.body, ...options, headers: { ...route.headers, ...options.headers } });

  function assertUnauthorized(res) {
    assertProblem(res, 401, 'unauthorized', /^Unauthorized/);
    assert.equal(res.headers['www-authenticate'], 'Bearer realm="sandgate"');
  }

  const statusOf = (session, options) => ask('GET', `/api/v1/session/${session}/sandbox/status`, options);

  // ------------------------------------------------------------------------------------------------------------ the walk

  test('the walk has every route of the table, with its policy', async () => {
    const { stdout } = await g.ctl('routes');
    assert.deepEqual(
      stdout.trim().split('\n').sort(),
      WALK.map((r) => [r.method, r.path, r.who, r.scope, `sandgate_${r.pool}`].join('\t')).sort(),
    );
  });

  const BAD = {
    'no token': null,
    'a malformed token': 'not-a-token',
    'an unknown token': 'unknown',
    'an expired token': 'expired',
    'a revoked token': 'revoked',
  };
  for (const [what, name] of Object.entries(BAD)) {
    test(`every route with ${what}`, async () => {
      const bearer = name && (token[name] ?? name);
      for (const route of WALK) {
        const res = await walk(route, { token: bearer });
        if (route.who === 'user') assertUnauthorized(res);
        else assert.equal(res.status, route.ok, `${titleOf(route)}: ${res.text}`);
      }
      assert.deepEqual(await g.provided(), [], 'nothing was started');
    });
  }

  test('every route with a token of the wrong scope, and of another session', async () => {
    const without = { read: 'notRead', run: 'notRun', write: 'notWrite' };
    for (const route of OF_USERS) {
      assertProblem(await walk(route, { token: token[without[route.scope]], who: 'alice' }), 403, 'forbidden', /scope/);
      assertProblem(await walk(route, { token: token.elsewhere, who: 'alice' }), 403, 'forbidden', /another session/);
    }
    assert.deepEqual(await g.provided(), [], 'nothing was started');
  });

  test('every route for its owner, and with a token of just its scope', async () => {
    for (const route of OF_USERS) {
      const res = await walk(route, { token: token.alice, who: 'alice', deadline: 120_000 });
      assert.equal(res.status, route.ok, `${titleOf(route)}: ${res.text}`);
      const just = await walk(route, { token: token[route.scope], who: 'alice', deadline: 120_000 });
      assert.equal(just.status, route.ok, `${titleOf(route)}: ${just.text}`);
    }
  });

  test('another user meets nothing of the session, and cannot end it', async () => {
    const alices = (await walk(OF_USERS[0], { token: token.alice, who: 'alice' })).json;
    const { execution_id } = (await g.session('walk', { token: token.alice }).execute('mine = 1')).json;
    const bobs = [];
    for (const route of OF_USERS) {
      const as = { token: token.bob, who: 'bob', deadline: 120_000 };
      if (['start', 'execute', 'upload', 'context_create', 'envs'].includes(route.op)) await g.session('walk', { token: token.bob }).stop();
      const res = await walk(route, as);
      const none = { [A]: 'null', [B]: '{"exists":false,"info":null}' }[route.base];
      if (route.op === 'start') bobs.push(res.json.sandbox_id);
      else if (route.op === 'status') assert.equal(res.text.trim(), none);
      else if (route.op === 'execute')
        assert.match((await g.session('walk', { token: token.bob }).execute('mine')).json.error, /NameError/, 'another kernel');
      else if (['upload', 'context_create', 'envs'].includes(route.op)) await g.session('walk', { token: token.bob }).stop();
      else if (NEED_ONE.includes(route.op)) assertProblem(res, 404, 'sandbox_not_found', /^Sandbox not found/);
      else if (route.op === 'executions') assert.ok(!res.text.includes(execution_id));
      else assert.equal(res.status, route.ok, `${titleOf(route)}: ${res.text}`);
      assert.equal((await statusOf('walk', { token: token.alice, who: 'alice' })).json.sandbox_id, alices.sandbox_id, titleOf(route));
      assert.ok((await g.provided()).includes(alices.sandbox_id), titleOf(route));
    }
    assert.equal(bobs.length, 2);
    assert.ok(!bobs.includes(alices.sandbox_id));
    assert.equal((await g.session('walk', { token: token.alice }).execute('mine')).json.output, '1\n', 'it is as it was');
    assert.deepEqual(await g.provided(), [alices.sandbox_id], "bob's own are stopped");
  });

  test('a token of a session opens that one, for its owner, and no other', async () => {
    const bound = (await mint('alice', '--session', 'walk')).secret;
    const foreign = (await mint('bob', '--session', 'walk')).secret;
    const alices = (await statusOf('walk', { token: token.alice, who: 'alice' })).json;
    assert.equal((await statusOf('walk', { token: bound, who: 'alice' })).json.sandbox_id, alices.sandbox_id);
    assert.equal((await statusOf('%77alk', { token: bound, who: 'alice' })).json.sandbox_id, alices.sandbox_id, 'the same session, encoded');
    assert.equal((await statusOf('walk', { token: foreign, who: 'bob' })).text.trim(), 'null');
    for (const other of ['wal', 'walkx', 'WALK', 'other'])
      assertProblem(await statusOf(other, { token: bound, who: 'alice' }), 403, 'forbidden', /another session/);
    assertProblem(await g.call('GET', '/api/v1/session/walk%2Fx/sandbox/status', { token: bound }), 403, 'forbidden');
  });

  test('scopes add up, and an administrator has all', async () => {
    const both = (await mint('alice', '--scope', 'read,write')).secret;
    const admin = (await mint('root', '--admin')).secret;
    for (const route of OF_USERS.filter((r) => r.base === A)) {
      const res = await walk(route, { token: both, who: 'alice' });
      if (route.scope === 'run') assertProblem(res, 403, 'forbidden');
      else assert.equal(res.status, route.ok, `${titleOf(route)}: ${res.text}`);
    }
    assert.equal((await statusOf('walk', { token: admin, who: 'root' })).text.trim(), 'null', 'an administrator is a user, too');
    assert.equal((await ask('POST', '/api/v1/session/walk/sandbox/stop', { token: admin, who: 'root' })).status, 204);
    assert.equal((await statusOf('walk', { token: token.alice, who: 'alice' })).json.status, 'running', "and has a session 'walk' of its own");
  });

  test('revocation acts on the very next request', async () => {
    const { secret, id } = await mint('alice');
    for (let i = 0; i < 30; i++) assert.equal((await statusOf('walk', { token: secret, who: 'alice' })).status, 200);
    await g.ctl('token', 'revoke', id);
    for (let i = 0; i < 10; i++) assertUnauthorized(await statusOf('walk', { token: secret }));
    assertUnauthorized(await statusOf('walk', { headers: { cookie: `sandgate_token=${secret}` } }));
    assert.equal((await statusOf('walk', { token: token.alice, who: 'alice' })).status, 200, 'and on no other token');
  });

  // ------------------------------------------------------------------------------------------------------------ credentials

  test('how a token may be written', async () => {
    const t = token.alice;
    for (const authorization of [`Bearer ${t}`, `bearer ${t}`, `BEARER ${t}`, `bEaReR ${t}`, `Bearer     ${t}`, `  Bearer ${t}   `])
      assert.equal((await statusOf('walk', { headers: { authorization }, who: 'alice' })).status, 200, authorization.replace(t, 'TOKEN'));
    const basic = Buffer.from(`alice:${t}`).toString('base64');
    const bad = [
      '',
      ' ',
      'Bearer',
      'Bearer ',
      t,
      `Bearer${t}`,
      `Bearer\t${t}`,
      `Token ${t}`,
      `Basic ${basic}`,
      `Bearer ${basic}`,
      `Bearer ${t}x`,
      `Bearer ${t.slice(0, -1)}`,
      `Bearer ${t.toUpperCase()}`,
      `Bearer ${t} ${t}`,
      `Bearer "${t}"`,
      `Bearer ${t},`,
      `Basic x, Bearer ${t}`,
      "Bearer ' OR 1=1 --",
      'Bearer %00',
      `Bearer ${'x'.repeat(10_000)}`,
      `Bearer ${t}${' '.repeat(300)}x`,
    ];
    for (const authorization of bad) assertUnauthorized(await statusOf('walk', { headers: { authorization } }));
    assertProblem(await ask('GET', '/healthz', { headers: { authorization: `Bearer ${'x'.repeat(20_000)}` } }), 400, 'bad_request');
  });

  /** A request by hand, closed after it. */
  async function wire(line, headers = [], body = '') {
    const head = [`${line} HTTP/1.1`, `Host: 127.0.0.1:${g.port}`, 'Connection: close', `Content-Length: ${Buffer.byteLength(body)}`, ...headers];
    const text = await raw(g.port, Buffer.from(`${head.join('\r\n')}\r\n\r\n${body}`, 'latin1'));
    return { status: rawStatus(text), text, id: text.match(/^x-request-id: *(\S+)\r$/im)?.[1] };
  }

  test('two Authorization headers, and bytes that are no text', async () => {
    const line = 'GET /api/v1/session/walk/sandbox/status';
    const good = `Authorization: Bearer ${token.alice}`;
    assert.equal((await wire(line, [good])).status, 200);
    for (const headers of [
      [good, `Authorization: Bearer ${token.bob}`],
      [good, good],
      [good, 'Authorization: x'],
      ['Authorization: x', good],
    ]) {
      const res = await wire(line, headers);
      assert.equal(res.status, 400, 'which of them counts must not be a matter of taste');
      assert.match(res.text, /"code":"bad_request"/);
    }
    for (const junk of ['\x80\x81\xfe\xff', '\x01\x02\x03', '\xc0\xaf', '\x7f', 'x\x0by']) {
      const res = await wire(line, [`Authorization: Bearer ${junk}`]);
      assert.equal(res.status, 401, res.text);
    }
    assert.equal((await wire(line, [`Authorization: Bearer ${token.alice}\0`])).status, 400);
  });

  // ------------------------------------------------------------------------------------------------------------ forging

  test('no header makes somebody else of the caller', async () => {
    const bobs = (await g.session('forged', { token: token.bob }).start()).json.sandbox_id;
    const { id } = await mint('bob');
    const names = [
      'Sandgate-User',
      'SANDGATE_USER',
      'X-Sandgate-User',
      'X_SANDGATE_USER',
      'HTTP_SANDGATE_USER',
      'Remote-User',
      'REMOTE_USER',
      'X-Remote-User',
      'X-Forwarded-User',
    ];
    for (const name of names) {
      const headers = { [name]: 'bob', 'X-Sandgate-Token': id, 'Sandgate-Token-Id': id, SANDGATE_TOKEN_ID: id, 'Sandgate-Via': 'bearer' };
      assertUnauthorized(await statusOf('forged', { headers }));
      assert.equal((await statusOf('forged', { headers, token: token.alice, who: 'alice' })).text.trim(), 'null', name);
      const file = await ask('GET', '/api/v1/session/forged/sandbox/files', { headers, token: token.alice, who: 'alice' });
      assertProblem(file, 404, 'sandbox_not_found');
    }
    for (const [name, value] of [
      ['X-Original-URI', '/healthz'],
      ['X-Rewrite-URL', '/healthz'],
      ['X-HTTP-Method-Override', 'POST'],
      ['X-Forwarded-For', '127.0.0.1'],
      ['X-Accel-Redirect', '/_sandgate/pool/sandgate_exec'],
      ['Sandgate-Download-Status', '200'],
    ])
      assertUnauthorized(await statusOf('forged', { headers: { [name]: value } }));
    assert.ok((await g.provided()).includes(bobs));
    await g.session('forged', { token: token.bob }).stop();
  });

  test('the name of a request is nginx\'s', async () => {
    for (const name of ['X-Request-Id', 'Request-Id', 'REQUEST_ID']) {
      const res = await statusOf('walk', { token: token.alice, who: 'alice', headers: { [name]: 'f'.repeat(32) } });
      assert.notEqual(res.headers['x-request-id'], 'f'.repeat(32));
    }
  });

  test('what is inside is not there from outside', async () => {
    const inside = [
      '/_sandgate/auth',
      '/_sandgate/pool/sandgate_quick',
      '/_sandgate/pool/sandgate_exec',
      '/_sandgate/pool/sandgate_upload',
      '/_sandgate/error',
      '/_sandgate/broken',
      '/_sandgate/',
      '/_sandgate',
      '/%5fsandgate/pool/sandgate_exec',
      `/_sandgate/download/http/127.0.0.1:${g.engine.port}/x/attachment?path=/etc/passwd`,
      '/_sandgate/download/https/example.org/x/attachment',
    ];
    for (const bearer of [null, token.alice])
      for (const target of inside)
        for (const method of ['GET', 'POST']) assertProblem(await ask(method, target, { token: bearer }), 404, 'no_such_route');
  });

  test('no spelling of a path reaches a handler without somebody', async () => {
    const operation = 'session/tricks/sandbox/execute';
    const tricks = [
      `/api/v1/login/../${operation}`,
      `/api/v1/logout/../${operation}`,
      `/healthz/../api/v1/${operation}`,
      `/healthz/%2e%2e/api/v1/${operation}`,
      `/api/v1/login/%2e%2e/${operation}`,
      `/api/v1/login/..%2f${operation}`,
      `/api/v1/login%2f..%2f${operation}`,
      `//api/v1/${operation}`,
      `/api//v1/${operation}`,
      `/api/v1//${operation}`,
      `/api/v1/./${operation}`,
      `/./api/v1/${operation}`,
      `/api/v1/${operation}/`,
      `/api/v1/${operation};x`,
      `/api/v1/login;/../${operation}`,
      `/api/v1/${operation}%3f`,
      `/api/v1/${operation}#/api/v1/login`,
      `/api/v1/login#/api/v1/${operation}`,
      `/api/v1/login?/api/v1/${operation}`,
      `/api/v1/login%3f/../${operation}`,
      `/api/v1/session/%2e%2e%2f%2e%2e%2f%2e%2e%2fhealthz/sandbox/execute`,
      `/api/v1/session/..%2flogin%3f/sandbox/execute`,
      `/api/v1/session/tricks/sandbox/execute?/../../login`,
      `/api/v1/session/tricks/sandbox/%65xecute`,
      `/%61pi/v1/${operation}`,
      `/API/v1/${operation}`,
      `/api\\v1/${operation}`,
      `/_sandgate/auth/../../api/v1/${operation}`,
      `/_sandgate/pool/sandgate_exec/../../../api/v1/${operation}`,
      `http://127.0.0.1:${g.port}/api/v1/${operation}`,
      `http://other.example/api/v1/${operation}`,
      `http://other.example/healthz/../api/v1/${operation}`,
    ];
    const creates = g.creates();
    for (const target of tricks)
      for (const [body, headers] of [
        ['{"code":"1"}', []],
        ['{"code":"1"}', ['Sandgate-User: bob', 'X-Sandgate-User: bob']],
      ]) {
        const res = await wire(`POST ${target}`, headers, body);
        assert.ok([400, 401, 404].includes(res.status), `${target}: ${res.text}`);
        assert.match(res.text, /"code":"/, target);
        assert.ok(!g.log().some((l) => l.request_id === res.id && l.op === 'execute' && l.status !== '401'), target);
      }
    assert.equal(g.creates(), creates, 'nothing was started');
  });

  test('a session id puts nothing into the log and the audit trail', async () => {
    const hostile = ['x%20op=planted', 'x%0Atime=planted', '%22%20user=%22planted', 'x%20status=200'];
    for (const id of hostile) {
      const target = `/api/v1/session/${id}/sandbox/execute`;
      const forbidden = await g.call('POST', target, { token: token.read, json: { code: '1' } });
      assertProblem(forbidden, 403, 'forbidden');
      assertProblem(await g.call('POST', target, { token: token.alice, json: { code: '1' } }), 400, 'bad_session_id');
      const line = await until(() => g.log().find((l) => l.request_id === forbidden.headers['x-request-id']), { what: 'the line' });
      assert.deepEqual([line.op, line.status, line.user, line.session], ['execute', '403', 'alice', '']);
    }
    assert.ok(!g.server.text.includes('planted'));
    assert.deepEqual(await g.rows("SELECT * FROM audit WHERE target LIKE '% %' OR target LIKE '%planted%'"), []);
  });

  // ------------------------------------------------------------------------------------------------------------ the browser

  const login = (json, options) => ask('POST', '/api/v1/login', { json, ...options });
  const COOKIE = 'Path=/; HttpOnly; SameSite=Strict';

  test('login gives a cookie with just these attributes', async () => {
    const res = await login({ token: token.alice }, { who: 'alice' });
    assert.equal(res.status, 204, res.text);
    assert.equal(res.text, '');
    assert.deepEqual(res.headers['set-cookie'], [`sandgate_token=${token.alice}; ${COOKIE}`], 'of the session, and no Secure without TLS');
    assert.equal(res.headers['cache-control'], 'no-store');
    const hour = (await mint('alice', '--ttl', '1h')).secret;
    const [cookie] = (await login({ token: hour }, { who: 'alice', headers: { origin: g.url } })).headers['set-cookie'];
    const age = cookie.match(/^(.*); Max-Age=(\d+)$/);
    assert.equal(age?.[1], `sandgate_token=${hour}; ${COOKIE}`);
    assert.ok(Number(age[2]) > 3400 && Number(age[2]) <= 3600, cookie.slice(-20));
    const long = (await mint('alice', '--ttl', '1000d')).secret;
    const [kept] = (await login({ token: long }, { who: 'alice' })).headers['set-cookie'];
    assert.equal(kept, `sandgate_token=${long}; ${COOKIE}; Max-Age=${400 * 86400}`);
  });

  test('login refuses what is no valid token', async () => {
    for (const bad of ['not-a-token', token.expired, token.revoked, token.unknown, `${token.alice} `, 'x'.repeat(3000), 'a;b\r\nX: y']) {
      const res = await login({ token: bad });
      assertUnauthorized(res);
      assert.equal(res.headers['set-cookie'], undefined);
    }
    for (const bad of [undefined, null, '', 1, true, [], {}, [token.alice], `${token.alice}\0`]) {
      const res = await login({ token: bad });
      assertProblem(res, 400, 'bad_request');
      assert.equal(res.headers['set-cookie'], undefined);
    }
    for (const body of [undefined, '', 'x', '[]', '{"token":', JSON.stringify(token.alice)])
      assertProblem(await ask('POST', '/api/v1/login', { body }), 400, 'bad_request');
    const got = await ask('GET', '/api/v1/login');
    assertProblem(got, 405, 'method_not_allowed');
    assert.equal(got.headers.allow, 'POST');
  });

  /** Origins that are not this site's. */
  const foreign = () => [
    'null',
    'http://evil.example',
    `http://127.0.0.1`,
    `http://127.0.0.1:${g.port + 1}`,
    `http://127.0.0.1:${g.port}.evil`,
    `http://127.0.0.1:${g.port}0`,
    `http://127.0.0.1:${g.port}/`,
    `http://x127.0.0.1:${g.port}`,
    `http://localhost:${g.port}`,
    `http://evil.example/://127.0.0.1:${g.port}`,
    `ftp://127.0.0.1:${g.port}`,
    `x://127.0.0.1:${g.port}`,
    `127.0.0.1:${g.port}`,
    `//127.0.0.1:${g.port}`,
    'http://',
    'x',
  ];

  test('login and logout from another site are refused', async () => {
    for (const origin of foreign()) {
      const inn = await login({ token: token.alice }, { headers: { origin } });
      assertProblem(inn, 403, 'forbidden');
      const out = await ask('POST', '/api/v1/logout', { headers: { origin } });
      assertProblem(out, 403, 'forbidden');
      assert.deepEqual([inn.headers['set-cookie'], out.headers['set-cookie']], [undefined, undefined], origin);
    }
  });

  test('logout clears the cookie', async () => {
    for (const headers of [{}, { origin: g.url }, { cookie: `sandgate_token=${token.alice}`, origin: g.url }]) {
      const res = await ask('POST', '/api/v1/logout', { headers, who: headers.cookie ? 'alice' : '' });
      assert.equal(res.status, 204);
      assert.deepEqual(res.headers['set-cookie'], [`sandgate_token=; ${COOKIE}; Max-Age=0`]);
    }
  });

  test('the cookie works for reading, and for more with this site\'s Origin', async () => {
    const cookie = `sandgate_token=${token.alice}`;
    const as = { who: 'alice' };
    const stop = '/api/v1/session/cookie/sandbox/stop';
    for (const origin of [{}, { origin: g.url }, { origin: 'http://evil.example' }])
      assert.equal((await statusOf('walk', { ...as, headers: { cookie, ...origin } })).json?.status, 'running');
    assert.equal((await ask('HEAD', '/api/v1/session/walk/sandbox/status', { ...as, headers: { cookie } })).status, 200);
    assert.equal((await ask('POST', stop, { ...as, headers: { cookie, origin: g.url } })).status, 204);
    assert.equal((await ask('POST', stop, { ...as, headers: { cookie, origin: g.url.toUpperCase().replace('HTTP', 'http') } })).status, 204);
    for (const route of OF_USERS.filter((r) => r.method !== 'GET')) {
      assertProblem(await walk(route, { ...as, headers: { cookie } }), 403, 'forbidden', /Origin/);
      for (const origin of foreign()) assertProblem(await walk(route, { ...as, headers: { cookie, origin } }), 403, 'forbidden', /Origin/);
    }
    assert.equal((await statusOf('walk', { ...as, headers: { cookie } })).json.status, 'running', 'nothing was stopped');
  });

  test('which credential counts', async () => {
    const cookie = `sandgate_token=${token.alice}`;
    const post = (headers, who) => ask('POST', '/api/v1/session/cookie/sandbox/stop', { headers, who });
    for (const authorization of ['Bearer wrong', 'Basic eDp5', `Bearer ${token.expired}`])
      assertUnauthorized(await statusOf('walk', { headers: { cookie, authorization } }));
    const authorization = `Bearer ${token.bob}`;
    assert.equal((await statusOf('walk', { headers: { cookie, authorization }, who: 'bob' })).text.trim(), 'null', "the header's user");
    assert.equal((await post({ cookie, authorization, origin: 'http://evil.example' }, 'bob')).status, 204, 'no browser sends it by itself');
    for (const good of [`a=b; ${cookie}; c=d`, `a=b;${cookie}`, `sandgate_tokenx=1; ${cookie}`])
      assert.equal((await statusOf('walk', { headers: { cookie: good }, who: 'alice' })).json?.status, 'running', good);
    const none = ['sandgate_token=', 'sandgate_token', `x${cookie}`, `a="${cookie}"`, `${cookie}x`, `sandgate_token="${token.alice}"`];
    for (const bad of [...none, `sandgate_token=${'x'.repeat(5000)}`])
      assertUnauthorized(await statusOf('walk', { headers: { cookie: bad } }));
    for (const name of ['expired', 'revoked']) assertUnauthorized(await statusOf('walk', { headers: { cookie: `sandgate_token=${token[name]}` } }));
  });

  // ------------------------------------------------------------------------------------------------------------ what is written

  const own = (line) => !line.op?.startsWith('e2b ') && line.op !== 'audit';

  test('every request has one line in the log, with its id, caller, session and outcome', async () => {
    const lines = new Map();
    const collect = () => {
      lines.clear();
      for (const l of g.log().filter((l) => l.request_id && own(l))) lines.set(l.request_id, [...(lines.get(l.request_id) ?? []), l]);
      return seen.every((s) => !s.op || lines.has(s.id));
    };
    await until(collect, { deadline: 20_000, what: 'the lines of all requests' }).catch(() => {});
    for (const s of seen) {
      const found = lines.get(s.id) ?? [];
      const what = JSON.stringify([s, found]);
      if (/^\/api\/v1\//.test(s.target)) assert.equal(found.length, 1, what);
      for (const l of found) {
        assert.equal(l.status, String(s.status), what);
        assert.equal(l.code ?? 'ok', s.code, what);
        assert.equal(l.user, s.who, what);
        assert.match(l.time, /^\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)$/);
        assert.equal(l.level, s.status >= 500 ? 'error' : 'info', what);
        assert.match(l.ms, /^\d+\.\d$/);
        for (const field of ['session', 'sandbox', 'op']) assert.ok(field in l, what);
        if (s.op && s.status !== 401) assert.deepEqual([l.op, l.session], [s.op, s.session], what);
      }
    }
  });

  test('every call to the provider has a line with the request it was made for', async () => {
    const res = await g.session('provider', { token: token.alice }).start();
    const id = res.headers['x-request-id'];
    const mine = () => g.log().filter((l) => l.request_id === id);
    await until(() => mine().some(own), { what: 'the line of the request' });
    const creates = mine().filter((l) => l.op === 'e2b create');
    assert.equal(creates.length, 1);
    assert.equal(creates[0].status, '201');
    for (const l of mine().filter((l) => !own(l))) {
      assert.deepEqual([l.user, l.session, l.level], ['alice', 'provider', 'info'], JSON.stringify(l));
      assert.match(l.ms, /^\d+\.\d$/);
      assert.match(l.tries, /^\d+$/);
      assert.ok(l.time && 'sandbox' in l);
    }
    assert.equal(mine().find(own).sandbox, res.json.sandbox_id);
    const files = await g.session('provider', { token: token.alice }).files();
    const listed = () => g.log().filter((l) => l.request_id === files.headers['x-request-id'] && !own(l));
    await until(() => listed().length, { what: 'the line of the listing' });
    assert.equal(listed().at(-1).sandbox, res.json.sandbox_id);
    await g.session('provider', { token: token.alice }).stop();
  });

  test('the audit trail has each audited request of somebody, failed logins, and no other', async () => {
    const rows = new Map((await g.rows('SELECT * FROM audit')).map((r) => [r.request_id, r]));
    for (const s of seen) {
      const row = rows.get(s.id);
      const door = /^\/api\/v1\/(login|logout)$/.exec(s.target)?.[1];
      const expected = (s.who && AUDITED.has(s.op)) || (door && s.status !== 405 && (s.who || s.code !== 'ok'));
      if (!expected) assert.equal(row, undefined, JSON.stringify(s));
      else
        assert.deepEqual(
          [row?.user, row?.action, row?.target, row?.outcome],
          [s.who, s.op ?? door, s.session ?? '', s.code],
          JSON.stringify([s, row]),
        );
    }
  });

  test('the access log names each request, and who it was', async () => {
    const entries = () =>
      new Map(
        fs
          .readFileSync(g.accessLog, 'utf8')
          .trim()
          .split('\n')
          .map((l) => JSON.parse(l))
          .map((l) => [l.request_id, l]),
      );
    await until(() => seen.every((s) => entries().has(s.id)), { what: 'the access log' });
    const all = entries();
    for (const s of seen) {
      const line = all.get(s.id);
      assert.equal(line.status, s.status, JSON.stringify([s, line]));
      if (s.op) assert.equal(line.user, s.who, JSON.stringify([s, line]));
    }
  });

  test('no secret, code or value of the environment is written anywhere', async () => {
    const files = (dir) =>
      fs.readdirSync(dir, { withFileTypes: true, recursive: true }).filter((f) => f.isFile()).map((f) => path.join(f.parentPath ?? f.path, f.name));
    const texts = {
      "the gateway's log": g.server.text,
      "nginx's log": g.nginx.text,
      'the access log': fs.readFileSync(g.accessLog, 'utf8'),
      'the audit trail': JSON.stringify(await g.rows('SELECT * FROM audit')),
    };
    for (const [where, text] of Object.entries(texts)) {
      assert.ok(text.length > 0 || where === "nginx's log");
      for (const secret of [...secrets, KEY, CODE, 'a word of the program', 'a-value-of-the-environment', 'sandgate_token='])
        assert.ok(!text.includes(secret), `${where} has ${secret.slice(0, 12)}...`);
    }
    for (const file of files(g.state)) {
      const bytes = fs.readFileSync(file);
      for (const secret of [...secrets, KEY]) assert.ok(!bytes.includes(secret), `${file} has ${secret.slice(0, 12)}...`);
    }
    assert.doesNotMatch(g.server.text, /ended by signal/);
  });
});
