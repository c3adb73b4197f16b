// Bad input, table by table: what is refused, with which status and code, and that nothing is started, changed or lost by it. Each
// request goes to a session with a sandbox and, where nothing else is said, to one without.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { SUITE, raw, rawStatus, request } from './engine.mjs';
import { assertProblem, form, startGateway } from './gateway.mjs';

const KIB = 1024;
const UPLOAD_MAX = 1 << 20;
const LOGIN_MAX = 4 * KIB;
const NGINX_MAX = 8 << 20; // client_max_body_size

const nested = (depth) => '['.repeat(depth) + ']'.repeat(depth);
const padded = (text, size) => text + ' '.repeat(size - text.length);
/** In pieces, so that no Content-Length announces it. */
async function* pieces(bytes) {
  const all = Buffer.from(bytes);
  for (let i = 0; i < all.length; i += 64 * KIB) yield all.subarray(i, i + 64 * KIB);
}

describe('bad input', SUITE, () => {
  let g;
  let token;
  let live; // the sandbox of the session 'live', which must outlive it all
  before(async () => {
    g = await startGateway({ settings: { SANDGATE_UPLOAD_MAX_BYTES: UPLOAD_MAX } });
    token = await g.token();
    live = (await g.session('live').start()).json.sandbox_id;
    await g.session('live').execute('kept = 41');
  });
  after(async () => {
    if (g) assert.doesNotMatch(g.server.text, /ended by signal/);
    await g?.stop();
  });

  const at = (session, op) => `/api/v1/session/${session}/sandbox/${op}`;

  /** No sandbox has come or gone. */
  async function assertUnharmed() {
    assert.equal((await g.session('live').status()).json.sandbox_id, live);
    assert.deepEqual(await g.provided(), [live], 'nothing was started');
  }

  /** A POST to both sessions that must be refused. */
  async function refused(op, options, status, code, what) {
    for (const session of ['live', 'none']) {
      const res = await g.call('POST', at(session, op), options);
      assert.equal(res.status, status, `${op} of '${session}': ${what ?? JSON.stringify(options).slice(0, 200)}: ${res.text.slice(0, 200)}`);
      assertProblem(res, status, code);
    }
  }

  /** A request by hand, its target untouched by any URL class, and the connection closed after it. */
  async function wire(method, target, { headers = [`Authorization: Bearer ${token}`], body } = {}) {
    const head = [`${method} ${target} HTTP/1.1`, `Host: 127.0.0.1:${g.port}`, 'Connection: close', ...headers];
    if (body !== undefined) head.push(`Content-Length: ${Buffer.byteLength(body)}`);
    return parse(await raw(g.port, Buffer.from(`${head.join('\r\n')}\r\n\r\n${body ?? ''}`, 'latin1')));
  }

  function parse(answer) {
    const [head, ...rest] = answer.split('\r\n\r\n');
    const headers = Object.fromEntries([...head.matchAll(/^([\w-]+): *(.*?)\r?$/gm)].map((m) => [m[1].toLowerCase(), m[2]]));
    const text = rest.join('\r\n\r\n');
    return {
      status: rawStatus(answer),
      headers,
      text: text || answer,
      get json() {
        return JSON.parse(text);
      },
    };
  }

  // ------------------------------------------------------------------------------------------------------------ fields

  const NUMBERS_AND_SUCH = [0, 1, -1.5, 1e300, true, false];
  const MANY = (n) => Object.fromEntries(Array.from({ length: n }, (_, i) => [`N${i}`, 'x']));
  const PAIRS = [
    ...NUMBERS_AND_SUCH,
    '',
    'A=1',
    [],
    ['A'],
    [{ A: '1' }],
    ...[1, true, null, [], {}, 'x\0y'].map((v) => ({ A: v })),
    ...['', '1A', 'A B', 'A=B', 'A-B', 'é', 'A\n', 'x'.repeat(129)].map((k) => ({ [k]: 'x' })),
    MANY(101),
  ];
  const CODE = { code: '1' };
  const COMMAND = { command: 'true' };
  const FIELDS = [
    ['start', 'sandbox_type', 'bad_request', [...NUMBERS_AND_SUCH, [], {}, ['custom'], '', 'x', 'CUSTOM', ' custom', 'custom\0', 'x'.repeat(60_000)]],
    ['start', 'envs', 'bad_request', PAIRS],
    ['start', 'metadata', 'bad_request', [...PAIRS, { sandgate_nonce: 'x' }, { sandgate_: 'x' }]],
    ['execute', 'code', 'bad_request', [...NUMBERS_AND_SUCH, undefined, null, [], {}, ['1'], { code: '1' }, 'a\0b', '\0']],
    ['execute', 'command', 'bad_request', [...NUMBERS_AND_SUCH, undefined, null, [], {}, ['ls'], { command: 'ls' }, 'a\0b', '\0']],
    ['execute', 'language', 'bad_request', [...NUMBERS_AND_SUCH, [], {}, ['python'], 'a\0b', 'x'.repeat(65), 'x'.repeat(60_000)], CODE],
    ['execute', 'context_id', 'bad_request', [...NUMBERS_AND_SUCH, [], {}, ['x'], 'a\0b'], CODE],
    ['execute', 'context_id', 'context_not_found', ['', ' ', 'a b', '../x', 'é', 'x'.repeat(129), 'x'.repeat(60_000)], CODE],
    ['execute', 'cwd', 'bad_request', [...NUMBERS_AND_SUCH, [], {}, ['/'], '/a\0b'], COMMAND],
    ['execute', 'cwd', 'bad_path', ['', 'x', '../x', '~', 'x'.repeat(60_000)], COMMAND],
    ['execute', 'envs', 'bad_request', PAIRS, COMMAND],
    ...['execute', 'install'].flatMap((op) => [
      [op, 'timeout_secs', 'bad_request', [0, -1, 1.5, 301, 1e300, true, false, '', '5', [], {}, '\0'], { ...CODE, packages: ['x'] }],
      [op, 'detach', 'bad_request', [0, 1, -1.5, '', 'true', [], {}, '\0'], { ...CODE, packages: ['x'] }],
    ]),
    ['contexts', 'language', 'bad_request', [...NUMBERS_AND_SUCH, [], {}, ['python'], 'a\0b']],
    ['contexts', 'cwd', 'bad_request', [...NUMBERS_AND_SUCH, [], {}, ['/'], '/a\0b']],
    ['contexts', 'cwd', 'bad_path', ['', 'x', '../x', '~', `/${'x'.repeat(1024)}`, 'x'.repeat(60_000)]],
    ['keepalive', 'secs', 'bad_request', [undefined, null, 0, -1, 1.5, 3601, 1e300, true, false, '', '5', [], {}, '\0']],
    ['install', 'packages', 'bad_request', [...NUMBERS_AND_SUCH, undefined, null, 'requests', {}, { 0: 'requests' }, ['x\0y'], ['\0']]],
  ];
  for (const [op, field, code, values, besides] of FIELDS)
    test(`${op}: '${field}' that is missing, of another type, empty, huge or with a NUL: ${code}`, async () => {
      const status = code === 'context_not_found' ? 404 : 400;
      for (const value of values) await refused(op, { json: { ...besides, [field]: value } }, status, code);
      await assertUnharmed();
    });

  test("envs: the body is the object of names and values, which has what 'envs' of start may have", async () => {
    for (const json of PAIRS) await refused('envs', { json }, 400, 'bad_request');
    assertProblem(await g.session('live').envs({ A: 'x'.repeat((32 << 10) + 1) }), 400, 'bad_request');
    await assertUnharmed();
  });

  test('a field that is null is one that is missing', async () => {
    const res = await g.session('live').start({ sandbox_type: null, envs: null, metadata: null });
    assert.equal(res.json.sandbox_id, live);
  });

  test('start: a type that this server has no template for', async () => {
    assertProblem(await g.session('none').start({ sandbox_type: 'custom' }), 400, 'template_not_configured', /^Template not configured/);
    await assertUnharmed();
  });

  test('unknown fields are ignored, however odd', async () => {
    const s = g.session('live');
    const odd = { '': 1, x: null, y: [[[]]], token: 'x', path: {}, __proto__: 1, constructor: 'x', 'é\n"': '\u0001' };
    assert.equal((await s.start(odd)).json.sandbox_id, live);
    const res = await g.call('POST', at('live', 'execute'), { json: { ...odd, code: 'kept + 1' } });
    assert.equal(res.json.output, '42\n', res.text);
  });

  // ------------------------------------------------------------------------------------------------------------ bodies

  const OPS_WITH_JSON = ['start', 'execute', 'install', 'contexts', 'envs', 'keepalive'];
  const BODIES = {
    text: 'x',
    'one brace': '{',
    'cut in a string': '{"code":"1',
    'cut before the end': '{"code":"1"',
    'something behind it': '{"code":"1"}x',
    'a second object': '{"code":"1"} {"code":"2"}',
    'a second object on a line of its own': '{"code":"1"}\n{"code":"2"}',
    'a NUL behind it': '{"code":"1"}\0',
    'a NUL and more behind it': '{"code":"1"}\0{"code":"2"}',
    'a NUL before it': '\0{"code":"1"}',
    'a NUL in a string': '{"code":"1\0"}',
    array: '[]',
    'array of one': '[{"code":"1"}]',
    string: '"code"',
    number: '1',
    true: 'true',
    null: 'null',
    'single quotes': "{'code':'1'}",
    'a comma too many': '{"code":"1",}',
    'no comma': '{"code":"1" "x":1}',
    'no quotes': '{code:"1"}',
    'a comment': '/* x */ {"code":"1"}',
    'a bad escape': '{"code":"\\x41"}',
    'a form': 'code=1',
    'a byte order mark': '\ufeff{"code":"1"}',
    'UTF-16': Buffer.from('{"code":"1"}', 'utf16le'),
    'not UTF-8': Buffer.from('{"code":"\xff"}', 'latin1'),
    'not UTF-8 in a name': Buffer.from('{"\xe9":1,"code":"1"}', 'latin1'),
    'overlong UTF-8': Buffer.from('{"code":"\xc0\xaf"}', 'latin1'),
    'a surrogate as UTF-8': Buffer.from('{"code":"\xed\xa0\x80"}', 'latin1'),
    'nested 40 deep': `{"code":${nested(40)}}`,
    'nested 10,000 deep': `{"x":${nested(10_000)},"code":"1"}`,
    'nested and cut': `{"code":${'['.repeat(20_000)}`,
    'objects without end': '{"code":'.repeat(5_000),
    'a NUL in a name': '{"code\\u0000x":"1","packages\\u0000x":[],"sandbox_type\\u0000":1}',
  };
  for (const [what, body] of Object.entries(BODIES))
    test(`a body that is no object of JSON: ${what}`, async () => {
      for (const op of OPS_WITH_JSON) {
        const late = op === 'keepalive' && Buffer.byteLength(body) > 4 * KIB;
        const [status, code] = late ? [413, 'too_large'] : [400, 'bad_request'];
        await refused(op, { body, headers: { 'content-type': 'application/json' } }, status, code, what);
      }
      const [status, code] = Buffer.byteLength(body) > LOGIN_MAX ? [413, 'too_large'] : [400, 'bad_request'];
      assertProblem(await g.call('POST', '/api/v1/login', { body, token: null }), status, code);
      await assertUnharmed();
    });

  test('an empty body is an empty object', async () => {
    for (const body of [undefined, '', ' \r\n\t']) {
      assert.equal((await g.call('POST', at('live', 'start'), { body })).json.sandbox_id, live);
      await refused('execute', { body }, 400, 'bad_request');
      await refused('install', { body }, 400, 'bad_request');
    }
    await assertUnharmed();
  });

  test('of a field that is there twice the last one counts', async () => {
    const res = await g.call('POST', at('live', 'execute'), { body: '{"code":"print(1)","code":"print(2)"}' });
    assert.equal(res.json.output, '2\n', res.text);
  });

  test('content types: what browsers and curl send is taken, a form with files is not', async () => {
    const body = JSON.stringify({ code: 'kept' });
    for (const type of ['text/plain;charset=UTF-8', 'application/x-www-form-urlencoded', 'application/json; charset=utf-8', 'x', undefined, ''])
      assert.equal(
        (await g.call('POST', at('live', 'execute'), { body, headers: type === undefined ? {} : { 'content-type': type } })).json.output,
        '41\n',
        type,
      );
    const headers = { 'content-type': 'multipart/form-data; boundary=x' };
    for (const op of OPS_WITH_JSON) await refused(op, { body, headers }, 415, 'unsupported_media_type');
    assertProblem(await g.call('POST', '/api/v1/login', { body: JSON.stringify({ token }), headers, token: null }), 415, 'unsupported_media_type');
    for (const type of ['application/json', 'text/plain', 'multipart/mixed; boundary=x', 'application/octet-stream', ''])
      await refused('upload', { body, headers: { 'content-type': type } }, 415, 'unsupported_media_type');
    await refused('upload', { body }, 415, 'unsupported_media_type');
    await assertUnharmed();
  });

  // ------------------------------------------------------------------------------------------------------------ sizes

  const LIMITS = { start: 64 * KIB, stop: 64 * KIB, install: 64 * KIB, execute: 4096 * KIB };
  Object.assign(LIMITS, { contexts: 64 * KIB, envs: 1024 * KIB, keepalive: 4 * KIB, 'contexts/x/restart': 4 * KIB });
  for (const [op, limit] of Object.entries(LIMITS))
    test(`${op}: a body past its limit`, async () => {
      const text = { execute: '{"code":"kept"}', install: '{"packages":[]}', keepalive: '{"secs":1}' }[op] ?? '{}';
      const ok = { contexts: 201, envs: 204, 'contexts/x/restart': 404 }[op] ?? 200;
      if (op !== 'stop')
        for (const body of [padded(text, limit), pieces(padded(text, limit))])
          assert.equal((await g.call('POST', at('live', op), { body })).status, ok, 'just at the limit');
      for (const size of [limit + 1, limit + 100_000, NGINX_MAX]) await refused(op, { body: padded(text, size) }, 413, 'too_large', size);
      for (const session of ['live', 'none'])
        assertProblem(await g.call('POST', at(session, op), { body: pieces(padded(text, limit + 1)) }), 413, 'too_large');
      await refused(op, { body: padded(text, NGINX_MAX + 1) }, 413, 'too_large', "past nginx's own");
      await assertUnharmed();
    });

  test('login and logout: a body past the limit', async () => {
    for (const op of ['login', 'logout'])
      for (const size of [LOGIN_MAX + 1, 100_000, NGINX_MAX + 1])
        assertProblem(await g.call('POST', `/api/v1/${op}`, { body: padded('{}', size), token: null }), 413, 'too_large');
    const exact = await g.call('POST', '/api/v1/login', { body: padded(JSON.stringify({ token }), LOGIN_MAX), token: null });
    assert.equal(exact.status, 204, exact.text);
  });

  test('a body where none is asked for is ignored', async () => {
    for (const body of ['x', padded('', 300_000)]) {
      assert.equal((await g.call('GET', at('live', 'status'), { body })).json.sandbox_id, live);
      assert.equal((await g.call('GET', '/healthz', { body })).status, 200);
    }
  });

  test('a file past the limit, announced or not', async () => {
    const whole = form('fits.bin', Buffer.alloc(UPLOAD_MAX));
    assert.equal((await g.call('POST', at('live', 'upload?path=/tmp/sizes'), whole)).json.size, UPLOAD_MAX);
    const more = form('more.bin', Buffer.alloc(UPLOAD_MAX + 1));
    const much = form('much.bin', Buffer.alloc(12 << 20));
    for (const { headers, body } of [more, much]) {
      assertProblem(await g.call('POST', at('live', 'upload?path=/tmp/sizes'), { headers, body }), 413, 'too_large');
      assertProblem(await g.call('POST', at('live', 'upload?path=/tmp/sizes'), { headers, body: pieces(body) }), 413, 'too_large');
    }
    assertProblem(await g.call('POST', at('none', 'upload'), much), 413, 'too_large');
    assert.deepEqual((await g.session('live').files('/tmp/sizes')).json.map((f) => f.path), ['/tmp/sizes/fits.bin']);
    await assertUnharmed();
  });

  // ------------------------------------------------------------------------------------------------------------ session ids

  test('session ids that are none', async () => {
    const ids = ['', '.', '..', '%2F', 'a%2Fb', '%2e%2e', '%2e', '..%2f..', '%20', 'a%20b', 'a+b', 'a;b', 'a,b', 'a@b', 'a%3Fb', 'a%23b'];
    ids.push('%25', '%252F', 'a%0Ab', 'a%0D%0Ab', '%7F', '%C3%A9', '\xc3\xa9', '%FF', '%C0%AF', "a'b", 'a%22b', 'a*', '{session}', 'a\\b', '!');
    ids.push('x'.repeat(129), '%78'.repeat(129), 'x'.repeat(1000), '%78'.repeat(1000));
    for (const id of ids)
      for (const [method, op, body] of [
        ['GET', 'status'],
        ['GET', 'files'],
        ['POST', 'start', '{}'],
        ['POST', 'execute', '{"code":"1"}'],
      ])
        for (const base of ['session', 'sessions']) {
          const res = await wire(method, `/api/v1/${base}/${id}/sandbox/${op}`, { body });
          assert.equal(res.status, 400, `${id}: ${res.text}`);
          assertProblem(res, 400, 'bad_session_id', /^Bad session id/);
        }
    await assertUnharmed();
  });

  test('session ids that nginx cannot decode, and that are several segments', async () => {
    for (const id of ['%00', 'a%00b', '%ZZ', '%', '%1', 'a%'])
      assertProblem(await wire('GET', at(id, 'status')), 400, 'bad_request', /^Bad request/);
    for (const id of ['a/b', '/a', 'a/', 'a//b', '../a', 'a/../b']) assertProblem(await wire('GET', at(id, 'status')), 404, 'no_such_route');
    await assertUnharmed();
  });

  test('session ids that are some', async () => {
    for (const id of ['x', '...', '-', '~', ':', '_', 'x'.repeat(128), '%78'.repeat(128), 'a.b_c~d:e-f', '..a', '0']) {
      const res = await wire('GET', at(id, 'status'));
      assert.equal(res.status, 200, `${id}: ${res.text}`);
      assert.equal(res.json, null);
    }
    const every = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._~:-';
    const info = (await g.session(every).start()).json;
    assert.equal(info.session_id, every);
    const encoded = [...every].map((c) => `%${c.charCodeAt(0).toString(16)}`).join('');
    assert.equal((await wire('GET', at(encoded, 'status'))).json.sandbox_id, info.sandbox_id, 'the same session, encoded');
    await g.session(every).stop();
    await assertUnharmed();
  });

  // ------------------------------------------------------------------------------------------------------------ routes

  test('addresses that there are none of', async () => {
    const known = ['/', '/favicon.ico', '/index.html', '/healthz/', '/healthz/x', '/HEALTHZ', '/api', '/api/', '/api/v1', '/api/v1/', '/api/v2/x'];
    known.push('/api/v1/session', '/api/v1/session/live', '/api/v1/session/live/', '/api/v1/session/live/sandbox', '/api/v1/sandboxes');
    known.push(at('live', ''), at('live', 'START'), at('live', 'start/'), at('live', 'start/x'), at('live', 'starts'), at('live', 'star'));
    known.push(at('live', 'executions/x/y'), at('live', 'executions/x/events/'), at('live', 'executions/x/'));
    known.push(at('live', 'contexts/x/restart/'), at('live', 'contexts/x/y'), at('live', 'contexts/x/'), at('live', 'envs/x'), at('live', 'keepalive/'));
    known.push(at('live', 'metrics/x'), at('live', 'pause'), at('live', '%73tart'), '/API/v1/session/live/sandbox/status');
    known.push('/api/v1/Session/live/sandbox/status', '/api/v1/login/', '/api/v1/openapi.json', '/metrics', '//healthz', '/./healthz');
    for (const target of known)
      for (const method of ['GET', 'POST', 'DELETE']) {
        const res = await wire(method, target, { body: '' });
        assert.equal(res.status, 404, `${method} ${target}: ${res.text}`);
        assertProblem(res, 404, 'no_such_route');
      }
    await assertUnharmed();
  });

  test('executions and contexts without an id', async () => {
    for (const target of ['executions/', 'executions//events']) assertProblem(await wire('GET', at('live', target)), 404, 'execution_not_found');
    assertProblem(await wire('DELETE', at('live', 'executions/')), 404, 'execution_not_found');
    assertProblem(await wire('DELETE', at('live', 'contexts/')), 404, 'context_not_found');
    assertProblem(await wire('POST', at('live', 'contexts//restart'), { body: '' }), 404, 'context_not_found');
    await assertUnharmed();
  });

  test('methods that a route does not have', async () => {
    const targets = [
      [at('live', 'status'), 'GET, HEAD'],
      [at('live', 'files'), 'GET, HEAD'],
      [at('live', 'download?path=/etc/passwd'), 'GET, HEAD'],
      [at('live', 'start'), 'POST'],
      [at('live', 'stop'), 'POST'],
      [at('live', 'execute'), 'POST'],
      [at('live', 'install'), 'POST'],
      [at('live', 'upload'), 'POST'],
      [at('live', 'executions'), 'GET, HEAD'],
      [at('live', 'executions/x'), 'GET, HEAD, DELETE'],
      [at('live', 'executions/x/events'), 'GET, HEAD'],
      [at('live', 'contexts'), 'GET, HEAD, POST'],
      [at('live', 'contexts/x'), 'DELETE'],
      [at('live', 'contexts/x/restart'), 'POST'],
      [at('live', 'envs'), 'POST'],
      [at('live', 'keepalive'), 'POST'],
      [at('live', 'metrics'), 'GET, HEAD'],
      ['/api/v1/login', 'POST'],
      ['/api/v1/logout', 'POST'],
      ['/healthz', 'GET, HEAD'],
      ['/readyz', 'GET, HEAD'],
    ];
    for (const [target, allow] of targets)
      for (const method of ['GET', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS', 'PROPFIND', 'FOO', 'X-Y', 'GETX', 'A'.repeat(60)]) {
        if (allow.split(', ').includes(method)) continue;
        const res = await wire(method, target, { body: '' });
        assert.equal(res.status, 405, `${method} ${target}: ${res.text}`);
        assertProblem(res, 405, 'method_not_allowed', /^Method not allowed/);
        assert.equal(res.headers.allow, allow, `${method} ${target}`);
      }
    await assertUnharmed();
  });

  test('methods that nginx knows of', async () => {
    const trace = await wire('TRACE', '/healthz');
    assertProblem(trace, 405, 'method_not_allowed');
    assert.ok(trace.headers.allow);
    for (const method of ['get', 'Get', 'G E T', 'G\tT', '', '\xff'])
      for (const res of [await wire(method, '/healthz')]) if (res.status || res.text) assertProblem(res, 400, 'bad_request');
    const connect = await wire('CONNECT', '127.0.0.1:80');
    assert.ok([400, 405].includes(connect.status), connect.text);
  });

  test('HEAD is GET without the body', async () => {
    const up = (await g.session('live').upload('head.txt', 'headed')).json.path;
    for (const target of ['/healthz', '/readyz', at('live', 'status'), at('live', 'files'), at('live', `download?path=${up}`)]) {
      const [head, got] = [await g.call('HEAD', target), await g.call('GET', target)];
      assert.deepEqual([head.status, head.text], [200, ''], target);
      for (const name of ['content-type', 'content-length', 'content-disposition'])
        assert.equal(head.headers[name], got.headers[name], `${target}: ${name}`);
    }
    for (const op of ['start', 'execute']) assert.equal((await g.call('HEAD', at('none', op))).status, 405);
    assert.equal((await g.call('HEAD', at('none', 'files'))).status, 404);
    await assertUnharmed();
  });

  test('unknown parameters are ignored', async () => {
    for (const query of ['?', '?x', '?x=1&y=2', '?&&&', '?=', '?%', '?%00', '?path', '?path=%FF', `?${'x=1&'.repeat(1000)}`, '?#', '??'])
      assert.equal((await wire('GET', at('live', `status${query}`))).json.sandbox_id, live, query);
    assert.equal((await wire('GET', at('live', 'files?depth=x&path=/home/user&x=%FF'))).status, 200);
    assert.equal((await wire('GET', at('live', 'files?xpath=x&pathx=x&PATH=x'))).status, 200);
  });

  // ------------------------------------------------------------------------------------------------------------ HTTP itself

  test('a URI that is too long', async () => {
    for (const n of [17_000, 60_000]) {
      assertProblem(await wire('GET', `/${'x'.repeat(n)}`), 414, 'uri_too_long');
      assertProblem(await wire('GET', at('live', `status?x=${'x'.repeat(n)}`)), 414, 'uri_too_long');
    }
    assert.equal((await wire('GET', at('live', `status?x=${'x'.repeat(15_000)}`))).status, 200);
  });

  test('many and large headers', async () => {
    const authorization = `Authorization: Bearer ${token}`;
    const many = (n, size) => Array.from({ length: n }, (_, i) => `X-H${i}: ${'x'.repeat(size)}`);
    assert.equal((await wire('GET', at('live', 'status'), { headers: [authorization, ...many(300, 10)] })).json.sandbox_id, live);
    assert.equal((await wire('GET', at('live', 'status'), { headers: [authorization, ...many(3, 10_000)] })).json.sandbox_id, live);
    for (const headers of [many(1, 20_000), many(20, 10_000), many(5_000, 20)])
      assertProblem(await wire('GET', at('live', 'status'), { headers: [authorization, ...headers] }), 400, 'bad_request');
    await assertUnharmed();
  });

  test('what is no HTTP is refused in JSON, or the connection is closed', async () => {
    const get = `GET ${at('live', 'status')} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer ${token}\r\n`;
    const post = `POST ${at('none', 'execute')} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer ${token}\r\n`;
    const garbage = [
      '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03' + '\xab'.repeat(100),
      'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
      '\0\0\0\0\r\n\r\n',
      'GET\r\n\r\n',
      'GET /healthz HTTP/1.1\r\n\r\n',
      'GET /healthz HTTP/9.9\r\nHost: x\r\n\r\n',
      'GET /healthz HTTP/x\r\nHost: x\r\n\r\n',
      'GET /healthz SMTP/1.1\r\nHost: x\r\n\r\n',
      'GET healthz HTTP/1.1\r\nHost: x\r\n\r\n',
      'GET /health\0z HTTP/1.1\r\nHost: x\r\n\r\n',
      'GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n',
      'GET /healthz HTTP/1.1\r\nHost: a/../b\r\n\r\n',
      'GET /healthz HTTP/1.1\r\nHost: \r\nx\0: y\r\n\r\n',
      `${get}Content-Length: x\r\n\r\n`,
      `${post}Content-Length: -1\r\n\r\n`,
      `${post}Content-Length: 99999999999999999999999\r\n\r\n`,
      `${post}Content-Length: 12\r\nContent-Length: 13\r\n\r\n{"code":"1"}`,
      `${post}Content-Length: 12\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{"code":"1"}`,
      `${post}Transfer-Encoding: gzip\r\n\r\n{"code":"1"}`,
      `${post}Transfer-Encoding: chunked\r\n\r\nzz\r\n{"code":"1"}\r\n0\r\n\r\n`,
      `${post}Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{"code":"1"}`,
    ];
    const codes = { 413: 'too_large', 501: 'not_implemented', 505: 'http_version_not_supported' };
    for (const bytes of garbage) {
      const answer = await raw(g.port, Buffer.from(bytes, 'latin1'), { half: true });
      if (answer === '') continue;
      const res = parse(answer);
      assert.ok(res.status >= 400 && res.status < 600, `${JSON.stringify(bytes.slice(0, 200))}: ${answer}`);
      assertProblem(res, res.status, codes[res.status] ?? 'bad_request');
    }
    await assertUnharmed();
  });

  test('a body that is cut off', async () => {
    for (const [op, body] of [
      ['execute', '{"code":"kept=0"}'],
      ['install', '{"packages":["x"]}'],
      ['start', '{}'],
    ])
      for (const session of ['live', 'none']) {
        const head = `POST ${at(session, op)} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${token}\r\nContent-Length: ${body.length + 1}\r\n\r\n`;
        const answer = await raw(g.port, head + body, { half: true });
        assert.ok(answer === '' || rawStatus(answer) === 400, answer);
      }
    assert.equal((await g.session('live').execute('kept')).json.output, '41\n', 'nothing has run');
    await assertUnharmed();
  });

  // ------------------------------------------------------------------------------------------------------------ forms

  const END = '\r\n--B--\r\n';
  const part = (disposition, data = 'data') => `--B\r\nContent-Disposition: ${disposition}\r\n\r\n${data}`;
  const FILE = 'form-data; name="file"; filename="f.txt"';
  const FORMS = {
    'an empty body': '',
    'no form at all': 'x'.repeat(1000),
    'no part': '--B--\r\n',
    'no part `file`': part('form-data; name="other"; filename="f"') + END,
    'a part `FILE`': part('form-data; name="FILE"; filename="f"') + END,
    'a part without a name': part('form-data; filename="f.txt"') + END,
    'a part with an empty name': part('form-data; name=""; filename="f.txt"') + END,
    'a part with two names': part('form-data; name="x"; name="file"; filename="f.txt"') + END,
    'a part without a disposition': `--B\r\nContent-Type: text/plain\r\n\r\nx${END}`,
    'a part that is an attachment': part('attachment; name="file"; filename="f.txt"') + END,
    'a part with two dispositions': `--B\r\nContent-Disposition: ${FILE}\r\nContent-Disposition: ${FILE}\r\n\r\nx${END}`,
    'no file name': part('form-data; name="file"') + END,
    'an empty file name': part('form-data; name="file"; filename=""') + END,
    'two file names': part('form-data; name="file"; filename="a"; filename="b"') + END,
    'a name that is a dot': part('form-data; name="file"; filename="."') + END,
    'a name that is two dots': part('form-data; name="file"; filename=".."') + END,
    'a name that ends with a slash': part('form-data; name="file"; filename="etc/"') + END,
    'a name that ends with dots': part('form-data; name="file"; filename="../.."') + END,
    'a name with a NUL': part('form-data; name="file"; filename="a\0b"') + END,
    'a name that is not UTF-8': part('form-data; name="file"; filename="\xff\xfe"') + END,
    'a name of 256 bytes': part(`form-data; name="file"; filename="${'x'.repeat(256)}"`) + END,
    'a name without its end': part('form-data; name="file"; filename="f.txt') + END,
    'a header without its end': '--B\r\nContent-Disposition: form-data; name="file"',
    'a header of 9 KiB': `--B\r\nX: ${'x'.repeat(9 * KIB)}\r\nContent-Disposition: ${FILE}\r\n\r\nx${END}`,
    'a header that is no line': `--B\r\nnonsense\r\nContent-Disposition: ${FILE}\r\n\r\nx${END}`,
    'another boundary': part(FILE).replaceAll('--B', '--C') + END.replaceAll('--B', '--C'),
    'a boundary with something behind it': part(FILE).replace('--B', '--Bx') + END,
    'cut in the file': part(FILE),
    'cut in the last boundary': part(FILE) + '\r\n--B',
    'cut behind the last boundary': part(FILE) + '\r\n--B-',
    'two files': part(FILE) + '\r\n' + part('form-data; name="file"; filename="g.txt"') + END,
    'a broken part behind the file': part(FILE) + '\r\n--B\r\nnonsense\r\n\r\nx' + END,
  };
  const BOUND = { 'content-type': 'multipart/form-data; boundary=B' };
  // What is wrong behind the beginning of the file is found out when a sandbox is there already.
  const isLate = (what) => /^(cut|two files|a broken part)/.test(what);
  for (const [what, text] of Object.entries(FORMS))
    test(`a form with ${what}`, async () => {
      const body = Buffer.from(text, 'latin1');
      if (!isLate(what)) assertProblem(await g.call('POST', at('none', 'upload'), { headers: BOUND, body }), 400, 'bad_request');
      for (const dialect of ['session', 'sessions'])
        for (const sent of [body, pieces(body)]) {
          const res = await g.call('POST', `/api/v1/${dialect}/live/sandbox/upload?path=/tmp/forms`, { headers: BOUND, body: sent });
          assertProblem(res, 400, 'bad_request');
        }
      const left = await g.session('live').files('/tmp/forms');
      assert.deepEqual(left.status === 404 ? [] : left.json, [], 'nothing is left of it');
      await assertUnharmed();
    });

  test('forms without a proper boundary', async () => {
    const body = part(FILE) + END;
    const bad = ['', ';', '; boundary', '; boundary=', '; boundary=""', '; boundary="B', '; boundary="B "', '; boundary="\xe9"'];
    for (const parameters of [...bad, `; boundary=${'B'.repeat(71)}`, '; boundary=B; boundary=C', '; Xboundary=B'])
      await refused('upload', { body, headers: { 'content-type': `multipart/form-data${parameters}` } }, 400, 'bad_request', parameters);
    const odd = `'()+_,-./:=? ${'B'.repeat(57)}`;
    assert.equal(odd.length, 70);
    const res = await g.call('POST', at('live', 'upload'), {
      body: body.replaceAll('--B', `--${odd}`),
      headers: { 'content-type': `multipart/form-data; boundary="${odd}"` },
    });
    assert.equal(res.status, 200, res.text);
    await assertUnharmed();
  });

  test('names that are odd are kept, and stay in their folder', async () => {
    const s = g.session('live');
    const names = [
      ['../../etc/passwd', 'passwd'],
      ['/etc/shadow', 'shadow'],
      ['..\\..\\windows.ini', 'windows.ini'],
      ['a "quoted" name', 'a "quoted" name'],
      ['line\nbreak', 'line\nbreak'],
      ['$(id); rm -rf *', '$(id); rm -rf *'],
      ['-rf', '-rf'],
      ['...', '...'],
      ['%2e%2e', '%2e%2e'],
      ['é ü 漢.txt', 'é ü 漢.txt'],
      ['x'.repeat(255), 'x'.repeat(255)],
    ];
    for (const [sent, kept] of names) {
      const res = await s.upload(sent, '', '/tmp/names');
      assert.equal(res.status, 200, res.text);
      assert.deepEqual([res.json.path, res.json.size], [`/tmp/names/${kept}`, 0]);
      assert.equal((await s.download(res.json.path)).status, 200, sent);
    }
    assert.deepEqual((await s.files('/tmp/names')).json.map((f) => f.path).sort(), names.map(([, kept]) => `/tmp/names/${kept}`).sort());
    await assertUnharmed();
  });

  // ------------------------------------------------------------------------------------------------------------ packages

  const PACKAGES = ['x; rm -rf /', '--index-url=http://x', '-r', '-rreq.txt', '--', 'git+https://x/y', 'https://x/y.whl', 'file:///etc/passwd', '../x'];
  PACKAGES.push('./x', '/x', '.', '..', '~', 'x/y', 'x\\y', '$(id)', '`id`', 'x|y', 'x&y', 'x>', '>y', 'x>/y', 'x y', 'x\ny', '', ' ', 'é', 'x@y', 'x @ http://y');
  PACKAGES.push("x; python_version<'3'", 'x[', 'x[a', 'x]', 'x=1', 'x==', '==1', 'x.whl', 'x.tar.gz', '-', '_x', 'x-', '"x"', "'x'", '*', 'x'.repeat(201));
  PACKAGES.push(1, true, null, [], ['x'], {}, { name: 'x' });
  test('packages that are none', async () => {
    for (const name of PACKAGES) {
      await refused('install', { json: { packages: [name] } }, 400, 'bad_package');
      await refused('install', { json: { packages: ['requests', name] } }, 400, 'bad_package');
    }
    await refused('install', { json: { packages: Array(65).fill('requests') } }, 400, 'bad_package');
    await refused('install', { json: { packages: Array(10_000).fill('x') } }, 400, 'bad_package');
    assert.deepEqual(await g.rows("SELECT * FROM executions WHERE kind = 'install'"), [], 'nothing ran');
    await assertUnharmed();
  });

  test('no packages are no reason for a sandbox', async () => {
    const res = await g.session('none').install([]);
    assert.deepEqual([res.status, res.json.success, res.json.output], [200, true, 'No packages to install']);
    await assertUnharmed();
  });

  // ------------------------------------------------------------------------------------------------------------ paths

  const PATHS = ['', 'x', './x', '../x', '~', '~/x', 'home/user', '%2e%2e/x', '/..', '/../x', '/a/../../x', '/%2e%2e/etc', '/a/%2e%2e/%2e%2e/b', '/..%2f..'];
  PATHS.push('%00', '/%00', '/a%00b', '/a%ZZ', '/%', '/%FF', '/\xff', '/%C0%AF', '/%ED%A0%80', `/${'x'.repeat(256)}`, `/${'x/'.repeat(2500)}`, `/${'y'.repeat(5000)}`);
  for (const op of ['download', 'files', 'upload'])
    test(`${op}: a path that is none`, async () => {
      const { headers, body } = form('f', 'x');
      for (const given of PATHS)
        for (const session of ['live', 'none'])
          for (const base of ['session', 'sessions']) {
            const target = `/api/v1/${base}/${session}/sandbox/${op}?path=${given}`;
            const fields = [`Authorization: Bearer ${token}`, `Content-Type: ${headers['content-type']}`];
            const res = op === 'upload' ? await wire('POST', target, { headers: fields, body }) : await wire('GET', target);
            assert.equal(res.status, 400, `${target}: ${res.text}`);
            assertProblem(res, 400, 'bad_path', /^Bad path/);
          }
      await assertUnharmed();
    });

  test('a path that is missing, a directory, a file, a device', async () => {
    const s = g.session('live');
    const { path: file } = (await s.upload('plain.txt', 'x')).json;
    for (const session of ['live', 'none']) assertProblem(await g.session(session).download(), 400, 'bad_path', /missing/);
    for (const directory of ['/', '/home/user', '/home/user/', '/etc/../tmp']) assertProblem(await s.download(directory), 400, 'bad_path', /directory/);
    assertProblem(await s.download('/dev/null'), 400, 'bad_path');
    assertProblem(await s.files(file), 400, 'bad_path');
    assertProblem(await s.files(`${file}/x`), 400, 'bad_path');
    for (const missing of ['/home/user/none', `${file}/x`.replace('plain.txt', 'none')]) {
      assertProblem(await s.files(missing), 404, 'file_not_found', /^File not found/);
      assertProblem(await s.download(missing), 404, 'file_not_found', /^File not found/);
    }
    assertProblem(await s.upload('f', 'x', file), 409, 'conflict');
    assert.equal((await s.download('/home/user/./upload/../upload//plain.txt')).text, 'x', 'dots within the root are fine');
    for (const op of ['files', 'download']) assertProblem(await g.session('none')[op]('/home/user'), 404, 'sandbox_not_found');
    await assertUnharmed();
  });

  test('after all this the sandbox has its state, and the server its health', async () => {
    assert.equal((await g.session('live').execute('kept')).json.output, '41\n');
    assert.equal((await request(`${g.url}/readyz`)).json.status, 'ready');
    assert.deepEqual(
      g.log().filter((l) => l.level === 'error').map((l) => [l.op, l.error]),
      [],
      'no bad request is an error of the server',
    );
  });
});
