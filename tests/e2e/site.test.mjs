// The configuration for a real site, nginx/sandgate.conf with each of its snippets: TLS and HTTP/2 to the client, TLS to the provider,
// limits, the cache of who calls, the log. nginx, gateway and engine are the real ones; names and certificates are the test's own.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import tls from 'node:tls';
import { KEY, SUITE, raw, rawStatus, request, until } from './engine.mjs';
import { assertProblem, form } from './gateway.mjs';
import { NAME, fill, run, startWorld } from './site.mjs';

const STATUS = '/api/v1/session/any/sandbox/status';
const START = '/api/v1/session/any/sandbox/start';

const SECURITY = {
  'strict-transport-security': 'max-age=31536000',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
};

/** One of each, also on errors. */
function assertSecurity(res) {
  for (const [name, value] of Object.entries(SECURITY)) assert.equal(res.headers[name], value, name);
  assert.match(res.headers['x-request-id'], /^[0-9a-f]{32}$/);
  assert.ok(!/\d/.test(res.headers.server ?? ''), 'the version is nobody\'s business');
}

const crossOrigin = (res) => Object.keys(res.headers).filter((name) => name.startsWith('access-control-'));

describe('the site', SUITE, () => {
  let world;
  let g;
  let site;
  const secrets = new Set([KEY, 'wrong horse', 'right horse', '_oauth2_proxy']);

  before(async () => {
    world = await startWorld();
    g = world.g;
    site = await world.site();
    secrets.add(await g.token());
  });
  after(() => world?.stop());

  async function mint(user, ...options) {
    const { stdout, stderr } = await g.ctl('token', 'create', '--user', user, ...options);
    secrets.add(stdout.trim());
    return { secret: stdout.trim(), id: stderr.match(/^id=(t_\w+)/m)[1] };
  }

  /** Who has sandboxes of a session, as the database says. */
  async function owners(session) {
    const rows = await g.rows(`SELECT owner FROM sandboxes WHERE session_id = '${session}' AND sandbox_id <> '' ORDER BY owner`);
    return rows.map((r) => r.owner);
  }

  /** What the gateway has logged of a request, once all of it is there: the line of the operation comes last. */
  const linesOf = (res) => g.log().filter((l) => l.request_id === res.headers['x-request-id']);

  // ------------------------------------------------------------------------------------------------------------ the story

  for (const version of [2, 1]) {
    test(`start, execute, upload, download, files, status, stop over ${version === 2 ? 'HTTP/2' : 'HTTP/1.1'}`, async () => {
      const s = site.session(`story-${version}`, { version });
      const started = await s.start();
      assert.equal(started.status, 200, started.text);
      assert.equal(started.json.status, 'running');
      assertSecurity(started);
      assert.equal((await s.execute('print(6*7)')).json.output, '42\n');

      const bytes = randomBytes(3 << 20);
      const up = await s.upload('ä page.html', bytes);
      assert.equal(up.status, 200, up.text);
      const fetched = world.provider.files.proxy.count('GET', '/files');
      const down = await s.download(up.json.path);
      assert.equal(down.status, 200, down.text.slice(0, 200));
      assert.ok(down.body.equals(bytes));
      assert.equal(down.headers['content-type'], 'application/octet-stream');
      assert.match(down.headers['content-disposition'], /^attachment; filename="/);
      assert.match(down.headers['cache-control'], /^(no-store|private, no-cache)$/);
      assert.equal(down.headers['content-encoding'], undefined);
      assertSecurity(down);
      assert.equal(world.provider.files.proxy.count('GET', '/files'), fetched + 1, 'it was nginx who fetched it');
      const part = await s.download(up.json.path, { headers: { range: 'bytes=100-199' } });
      assert.equal(part.status, 206);
      assert.ok(part.body.equals(bytes.subarray(100, 200)));
      assert.equal(part.headers['content-range'], `bytes 100-199/${bytes.length}`);
      assertProblem(await s.download('/home/user/none'), 404, 'file_not_found');

      assert.ok((await s.files('/home/user/upload')).json.some((f) => f.path === up.json.path && f.size === bytes.length));
      assert.equal((await s.status()).json.sandbox_id, started.json.sandbox_id);
      const stopped = await s.stop();
      assert.equal(stopped.status, 204);
      assertSecurity(stopped);
      assert.equal((await s.status()).text.trim(), 'null');
    });
  }

  test('all of it went through TLS, by name, and what nginx fetched had no credential of anybody\'s', async () => {
    const { front, files } = world.provider;
    const s = site.session('by-name', { version: 1 });
    const { path: file } = (await s.upload('a.txt', 'a')).json;
    const headers = { cookie: 'a=b', 'x-access-token': 'c', 'accept-encoding': 'gzip', 'if-none-match': 'd', range: 'bytes=0-0' };
    assert.equal((await s.download(file, { headers })).text, 'a');
    await s.stop();
    assert.deepEqual([...front.names].sort(), ['api.localhost', 'sandbox.localhost']);
    assert.deepEqual([...files.names], ['sandbox.localhost']);
    assert.deepEqual([...world.names.asked], ['sandbox.localhost']);
    for (const { method, path: target, headers } of files.proxy.requests) {
      assert.deepEqual([method, target, headers.host], ['GET', '/files', `sandbox.localhost:${world.provider.port}`]);
      const known = ['host', 'e2b-sandbox-id', 'e2b-sandbox-port', 'range', 'user-agent'];
      assert.deepEqual(Object.keys(headers).filter((name) => !known.includes(name)), []);
    }
  });

  test('curl speaks HTTP/2 with it', async (t) => {
    if (!/^Features:.* HTTP2\b/m.test((await run('curl', ['--version'])).stdout)) return t.skip('this curl does not');
    const args = ['-sS', '--http2', '--cacert', world.certificates.file('ca'), '--resolve', `${site.authority}:127.0.0.1`, '--max-time', '60'];
    args.push('-H', `Authorization: Bearer ${await g.token()}`, '-w', '\n%{http_version} %{http_code}');
    const call = async (...more) => (await run('curl', [...args, ...more])).stdout;
    const out = await call('--json', '{"code":"print(\'by curl\')"}', `${site.origin}/api/v1/session/curl/sandbox/execute`);
    assert.match(out, /"output":"by curl\\n"/);
    assert.match(out, /\n2 200$/);
    assert.match(await call('--http1.1', site.origin + STATUS), /^null\n\n1\.1 200$/);
    await site.session('curl').stop();
  });

  // ------------------------------------------------------------------------------------------------------------ TLS to the client

  test('plain HTTP is sent on to https, and nothing else', async () => {
    for (const [method, target] of [['GET', '/healthz?a=1'], ['POST', START], ['GET', '/']]) {
      const headers = { host: NAME, authorization: `Bearer ${await g.token()}` };
      const res = await request(`http://127.0.0.1:${site.plainPort}${target}`, { method, headers });
      assert.equal(res.status, 308);
      assert.equal(res.headers.location, `https://${NAME}${target}`);
      assert.equal(res.headers['strict-transport-security'], undefined, 'it means nothing there');
      assert.equal(res.headers['x-content-type-options'], 'nosniff');
    }
    const challenge = await request(`http://127.0.0.1:${site.plainPort}/.well-known/acme-challenge/none`, { headers: { host: NAME } });
    assertProblem(challenge, 404, 'no_such_route'); // a file, which is not there; never sent on
    const plain = await request(`http://127.0.0.1:${site.port}/healthz`, { headers: { host: site.authority } });
    assertProblem(plain, 400, 'bad_request');
  });

  test('TLS 1.2 and 1.3 are spoken, 1.1 is not', async () => {
    const hello = (version) =>
      new Promise((resolve) => {
        const weak = { minVersion: version, maxVersion: version, ciphers: 'DEFAULT:@SECLEVEL=0' };
        const socket = tls.connect({ ...site.connection(), ...weak }, () => (resolve(socket.getProtocol()), socket.destroy()));
        socket.on('error', (e) => resolve(e.code));
      });
    assert.equal(await hello('TLSv1.2'), 'TLSv1.2');
    assert.equal(await hello('TLSv1.3'), 'TLSv1.3');
    assert.equal(await hello('TLSv1.1'), 'ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION');
  });

  test('the cookie is Secure, and only our own pages may use it', async () => {
    const { secret } = await mint('cookie-user');
    const logIn = (origin) => site.call('POST', '/api/v1/login', { token: null, json: { token: secret }, headers: { origin } });
    const login = await logIn(site.origin);
    assert.equal(login.status, 204, login.text);
    assertSecurity(login);
    const [cookie, ...attributes] = login.headers['set-cookie'][0].split('; ');
    assert.equal(cookie, `sandgate_token=${secret}`);
    assert.deepEqual(attributes.filter((a) => !a.startsWith('Max-Age')), ['Path=/', 'HttpOnly', 'SameSite=Strict', 'Secure']);
    for (const version of [2, 1]) {
      const s = site.session('cookie', { token: null, who: { cookie }, version });
      for (const origin of [undefined, 'null', 'https://evil.example', `http://${site.authority}`, `https://${NAME}`])
        assertProblem(await s.start(undefined, { headers: origin && { origin } }), 403, 'forbidden', /Origin/);
      assert.equal((await s.start(undefined, { headers: { origin: site.origin } })).status, 200);
      assert.equal((await s.status()).json.status, 'running', 'reading needs none');
      assert.equal((await s.stop({ headers: { origin: site.origin } })).status, 204);
    }
    assertProblem(await logIn('https://evil.example'), 403, 'forbidden');
  });

  // ------------------------------------------------------------------------------------------------------------ TLS to the provider

  for (const certificate of ['other-name', 'wrong-signer', 'expired']) {
    test(`the gateway refuses a provider's certificate: ${certificate}`, async () => {
      const { front } = world.provider;
      const s = site.session(`refused-${certificate}`);
      const before = front.proxy.requests.length;
      front.show(certificate);
      try {
        const res = await s.start();
        assertProblem(res, 502, 'provider_error');
        assert.doesNotMatch(res.text, /localhost|certificate|ssl|tls/i, 'what is wrong is for the log');
        assert.equal(front.proxy.requests.length, before, 'nothing was sent, and no key');
        await until(() => linesOf(res).some((l) => l.op === 'e2b create' && /certificate|SSL/i.test(l.error)), { what: 'the reason in the log' });
      } finally {
        front.show('provider');
      }
      assert.equal((await s.start()).status, 200, 'and all is well again');
      await s.stop();
    });
  }

  /** A download that the gateway hands over and nginx must refuse. */
  async function assertNoDownload(at, session) {
    const marker = randomBytes(30).toString('hex');
    const s = at.session(session);
    const { path: file } = (await s.upload('secret.txt', marker)).json;
    const before = world.provider.files.proxy.requests.length;
    const res = await s.download(file);
    assertProblem(res, 503, 'provider_unavailable', /file could not be read/);
    assertSecurity(res);
    assert.ok(!res.body.includes(marker));
    assert.equal(res.headers['content-disposition'], undefined);
    assert.equal(world.provider.files.proxy.requests.length, before, 'nothing was asked for');
    return { s, file, marker };
  }

  test('nginx refuses a file server\'s certificate of another name, another signer, an expired one', async () => {
    const { files } = world.provider;
    for (const certificate of ['other-name', 'wrong-signer', 'expired']) {
      files.show(certificate);
      try {
        const { s, file, marker } = await assertNoDownload(site, 'handed');
        files.show('provider');
        assert.equal((await s.download(file)).text, marker, 'and all is well again');
      } finally {
        files.show('provider');
      }
    }
    await site.session('handed').stop();
  });

  test('nginx believes nobody but who is in its file', async () => {
    const doubting = await world.site({ trusted: 'other-ca' });
    const { s } = await assertNoDownload(doubting, 'doubted');
    await s.stop();
  });

  test('without an answer of the name server a download fails, and nothing else', async () => {
    const impatient = (text) => fill(text, 'resolver_timeout 5s', 'resolver_timeout 1s');
    const lost = await world.site({ resolver: '127.0.0.1:9', edit: { 'sandgate.conf': impatient } });
    const { s } = await assertNoDownload(lost, 'lost');
    assert.equal((await s.stop()).status, 204);
  });

  // ------------------------------------------------------------------------------------------------------------ the cache

  const asks = (answers) => {
    const ids = new Set(answers.map((r) => r.headers['x-request-id']));
    return g.log().filter((l) => l.op === 'auth' && ids.has(l.request_id)).length;
  };
  /** Calls that are logged: the gateway's own line of the last one has come, and the auth line comes before it. */
  async function statuses(n, options) {
    const answers = [];
    for (let i = 0; i < n; i++) answers.push(await site.call('GET', STATUS, options));
    await until(() => answers.every((res) => linesOf(res).length), { what: 'the lines of the calls' });
    return answers;
  }

  test('who it is, is asked once in 5 s and not at every call', async () => {
    const { secret } = await mint('cached');
    const since = performance.now();
    const answers = await statuses(40, { token: secret });
    const secs = (performance.now() - since) / 1000;
    assert.ok(answers.every((res) => res.status === 200));
    assert.ok(asks(answers) >= 1 && asks(answers) <= 1 + secs / 5, `asked ${asks(answers)} times in ${secs} s`);
    const last = performance.now();
    await until(async () => asks(await statuses(1, { token: secret })), { deadline: 20_000, every: 250, what: 'the end of what was remembered' });
    if (asks(answers) === 1) assert.ok(performance.now() - since > 4_000, `it was forgotten after ${performance.now() - last} ms`);
    const cookie = await statuses(5, { token: null, who: { cookie: `sandgate_token=${secret}` } });
    assert.equal(asks(cookie), 1, 'another credential is another question');
    assert.ok(cookie.every((res) => res.status === 200));
  });

  test('what was refused is not remembered', async () => {
    const answers = await statuses(3, { token: 'nobody' });
    assert.ok(answers.every((res) => res.status === 401));
    assert.equal(asks(answers), 3);
  });

  test('revocation acts at once, although the cache still says who it is', async () => {
    const { secret, id } = await mint('revoked');
    const warm = await statuses(2, { token: secret });
    assert.deepEqual(warm.map((r) => r.status), [200, 200]);
    await g.ctl('token', 'revoke', id);
    const [after] = await statuses(1, { token: secret });
    assertProblem(after, 401, 'unauthorized');
    assert.equal(after.headers['www-authenticate'], 'Bearer realm="sandgate"');
    if (asks([after])) return; // the machine was so slow that the cache had forgotten
    assert.match(after.json.detail, /revoked/);
    assert.deepEqual(linesOf(after).map((l) => [l.op, l.status]), [['status', '401']], 'a worker has seen it');
  });

  test('the folder of the cache is for nginx alone', () => {
    assert.equal(fs.statSync(site.cache).mode & 0o777, 0o700);
    for (const name of fs.readdirSync(site.cache, { recursive: true })) {
      const { mode } = fs.statSync(path.join(site.cache, name), { throwIfNoEntry: false }) ?? {};
      assert.equal((mode ?? 0) & 0o077, 0, name);
    }
  });

  // ------------------------------------------------------------------------------------------------------------ limits

  /** Calls in batches until one is refused; all others must be answered well. */
  async function hammer(at, options, usual = 200, most = 4000) {
    for (let n = 0; n < most; n += 100) {
      const answers = await Promise.all(Array.from({ length: 100 }, () => at.call('GET', STATUS, options)));
      for (const res of answers) assert.ok([usual, 429].includes(res.status), res.text);
      const refused = answers.find((res) => res.status === 429);
      if (refused) return { refused, served: n + answers.filter((res) => res.status === usual).length };
    }
    assert.fail(`${most} calls were served`);
  }

  function assertLimited(res, secs = '1') {
    assertProblem(res, 429, 'rate_limited');
    assert.equal(res.headers['retry-after'], secs);
    assertSecurity(res);
  }

  /** So many at once that no limit can have been reached. */
  async function assertServed(at, options) {
    const answers = await Promise.all(Array.from({ length: 50 }, () => at.call('GET', STATUS, options)));
    for (const res of answers) assert.equal(res.status, 200, res.text);
  }

  test('one who hammers is slowed down, others at the same address are not', async () => {
    const [eager, calm] = [(await mint('eager')).secret, (await mint('calm')).secret];
    const from = '127.0.0.21';
    const { refused, served } = await hammer(site, { token: eager, from });
    assertLimited(refused);
    assert.ok(served >= 200, `a burst of ${served}`);
    await assertServed(site, { token: calm, from });
    await until(async () => (await site.call('GET', STATUS, { token: eager, from })).status === 200, { what: 'the end of the pause' });
  });

  test('many at one address are slowed down, other addresses are not', async () => {
    const basic = await world.site({ auth: 'basic' }); // nginx alone refuses who has no password, so this is fast
    const { refused, served } = await hammer(basic, { from: '127.0.0.22' }, 401);
    assertLimited(refused);
    assert.ok(served >= 400, `a burst of ${served}`);
    assertProblem(await basic.call('GET', STATUS, { from: '127.0.0.23' }), 401, 'unauthorized');
  });

  test('logging in is for people: a few a minute', async () => {
    const login = () => site.call('POST', '/api/v1/login', { token: null, json: { token: 'guess' }, from: '127.0.0.24' });
    const answers = await Promise.all(Array.from({ length: 30 }, login));
    const refused = answers.filter((res) => res.status === 429);
    assert.ok(answers.every((res) => [401, 429].includes(res.status)));
    assert.ok(refused.length >= 10, `${30 - refused.length} guesses were heard`);
    assertLimited(refused[0], '6');
  });

  test('128 calls of one caller at once, and not one more', async () => {
    const { secret } = await mint('crowd');
    const headers = { authorization: `Bearer ${secret}`, 'content-length': 2, 'content-type': 'application/json' };
    const waiting = ['127.0.0.25', '127.0.0.26'].flatMap((from) => Array.from({ length: 80 }, () => site.begin('POST', START, { headers, from })));
    const answers = [];
    try {
      for (const call of waiting) call.status.then((status) => answers.push(status)).catch((e) => answers.push(e.code));
      await until(() => answers.length >= 32, { deadline: 30_000, what: 'the crowd' });
      assert.deepEqual(answers, Array(32).fill(429));
      const refused = await site.call('GET', STATUS, { token: secret, from: '127.0.0.27' });
      assertLimited(refused);
      assert.equal((await site.call('GET', STATUS)).status, 200, 'somebody else');
    } finally {
      waiting.forEach((call) => call.drop());
    }
    await until(async () => (await site.call('GET', STATUS, { token: secret, from: '127.0.0.27' })).status === 200, { what: 'room' });
  });

  test('nginx\'s own errors are the API\'s, over HTTP/2 and HTTP/1.1', async () => {
    for (const version of [2, 1]) {
      const check = async (status, code, method, target, options) => {
        const res = await site.call(method, target, { version, ...options });
        assertProblem(res, status, code);
        assertSecurity(res);
        assert.equal(res.headers['cache-control'], 'no-store');
        return res;
      };
      await check(404, 'no_such_route', 'GET', '/');
      await check(404, 'no_such_route', 'GET', '/index.html', { token: null });
      await check(404, 'no_such_route', 'GET', '/_sandgate/pool/sandgate_exec');
      await check(401, 'unauthorized', 'GET', STATUS, { token: null });
      await check(405, 'method_not_allowed', 'TRACE', STATUS);
      await check(413, 'too_large', 'POST', START, { body: Buffer.alloc(9 << 20) });
      await check(413, 'too_large', 'POST', '/api/v1/login', { token: null, body: Buffer.alloc(9 << 20) });
    }
    const long = await site.call('GET', `${STATUS}?x=${'y'.repeat(20_000)}`, { version: 1 });
    assertProblem(long, 414, 'uri_too_long');
    assertSecurity(long);
    assertProblem(await site.call('GET', STATUS, { version: 1, headers: { 'x-fat': 'y'.repeat(20_000) } }), 400, 'bad_request');
    // Over HTTP/2 nginx has no answer to a field beyond its buffers: it ends the connection, and the next one is as good as new.
    const from = '127.0.0.28';
    await assert.rejects(site.call('GET', `${STATUS}?x=${'y'.repeat(20_000)}`, { from }), { code: 'ERR_HTTP2_SESSION_ERROR' });
    assert.equal((await site.call('GET', STATUS, { from })).status, 200);
  });

  test('an upload may be longer than any other body', async () => {
    const s = site.session('long');
    const bytes = Buffer.alloc(9 << 20, 'x');
    const up = await s.upload('long.bin', bytes);
    assert.equal(up.status, 200, up.text);
    assert.equal(up.json.size, bytes.length);
    await s.stop();
  });

  for (const version of [2, 1])
    test(`an upload that does not say its length arrives over ${version === 2 ? 'HTTP/2' : 'HTTP/1.1'}`, async () => {
      const s = site.session(`pieces-${version}`, { version });
      const bytes = randomBytes(300_000);
      const up = await s.upload('pieces.bin', bytes, undefined, { pieces: 10 });
      assert.equal(up.status, 200, up.text);
      assert.ok((await s.download(up.json.path)).body.equals(bytes));
      await s.stop();
    });

  // ------------------------------------------------------------------------------------------------------------ other ways to say who

  const FORGED = {
    sandgate_user: 'bob',
    'sandgate-user': 'bob',
    'x-sandgate-user': 'bob',
    'x-sandgate-via': 'bearer',
    'x-auth-request-user': 'bob',
    'x-forwarded-user': 'bob',
    'x-remote-user': 'bob',
    'remote-user': 'bob',
    'x-ssl-client-s-dn': 'CN=bob',
  };

  const withClients = (text) => fill(text, '/etc/nginx/sandgate/clients-ca.pem', world.certificates.file('clients-ca'));

  /** What holds for every way: alice and bob are call options that are believed. */
  async function assertIdentities(at, { alice, bob, session }) {
    const [a, b] = [at.session(session, alice), at.session(session, bob)];
    const [first, second] = await Promise.all([a.start(), b.start()]);
    assert.equal(first.status, 200, first.text);
    assert.equal(second.status, 200, second.text);
    assert.notEqual(first.json.sandbox_id, second.json.sandbox_id);
    assert.deepEqual(await owners(session), ['alice', 'bob']);
    const up = await a.upload('mine.txt', 'a word of alice');
    assert.equal(up.status, 200, up.text);
    assert.equal((await a.download(up.json.path)).text, 'a word of alice');
    assertProblem(await b.download(up.json.path), 404, 'file_not_found');
    const seen = await a.status({ headers: FORGED });
    assert.equal(seen.json.sandbox_id, first.json.sandbox_id, 'a header makes nobody of alice');
    for (const origin of ['https://evil.example', 'null', `http://${at.authority}`])
      assertProblem(await a.execute('1', { headers: { origin } }), 403, 'forbidden', /Origin/);
    assertProblem(await a.execute('1', { headers: { 'sec-fetch-site': 'cross-site' } }), 403, 'forbidden', /Origin/);
    assert.equal((await a.execute('1', { headers: { origin: at.origin, 'sec-fetch-site': 'same-origin' } })).json.output, '1\n');
    assert.equal((await b.execute('2')).json.output, '2\n', 'a program without an Origin');
    assert.deepEqual([(await a.stop()).status, (await b.stop()).status], [204, 204]);
    const from = '127.0.0.31';
    const { refused } = await hammer(at, { ...alice, from });
    assertLimited(refused);
    await assertServed(at, { ...bob, from });
    await until(() => at.log().some((l) => l.user === 'bob' && l.path.endsWith('/stop')), { what: 'the log' });
    for (const line of at.log().filter((l) => l.request_id === seen.headers['x-request-id'])) assert.equal(line.user, 'alice');
  }

  test('by name and password', async () => {
    const basic = await world.site({ auth: 'basic' });
    const passwords = { alice: 'right horse', bob: 'right horse of bob' };
    const lines = Object.entries(passwords).map(async ([name, word]) => `${name}:${(await run('openssl', ['passwd', '-6', word])).stdout}`);
    fs.writeFileSync(path.join(basic.etc, 'sandgate/users'), (await Promise.all(lines)).join(''));
    const as = (name, word = passwords[name]) => {
      const value = Buffer.from(`${name}:${word}`).toString('base64');
      secrets.add(value);
      return { who: { authorization: `Basic ${value}` } };
    };
    for (const options of [{}, as('alice', 'wrong horse'), as('nobody', ''), as('al\xe4ce', 'x'), { token: await g.token() }, { headers: FORGED }]) {
      const res = await basic.call('GET', STATUS, options);
      assertProblem(res, 401, 'unauthorized');
      assert.equal(res.headers['www-authenticate'], 'Basic realm="sandgate"');
      assertSecurity(res);
    }
    const junk = Buffer.from([0x61, 0xff, 0xfe, 0x3a, 0x78]).toString('base64'); // a name that is no text
    assertProblem(await basic.call('GET', STATUS, { who: { authorization: `Basic ${junk}` } }), 401, 'unauthorized');
    assert.equal((await basic.call('GET', '/healthz')).status, 200);
    await assertIdentities(basic, { alice: as('alice'), bob: as('bob'), session: 'by-password' });
  });

  test('by a client\'s certificate', async () => {
    const mtls = await world.site({
      auth: 'mtls',
      edit: { 'auth-mtls.conf': withClients },
    });
    for (const [target, options] of [
      [STATUS, {}],
      ['/healthz', {}],
      [STATUS, { as: 'stranger' }],
      [STATUS, { headers: FORGED, token: await g.token() }],
    ])
      for (const version of [2, 1]) {
        const res = await mtls.call('GET', target, { version, ...options });
        assertProblem(res, 400, 'bad_request');
        assertSecurity(res);
      }
    assert.equal((await mtls.call('GET', '/healthz', { as: 'alice' })).status, 200);
    await assertIdentities(mtls, { alice: { as: 'alice' }, bob: { as: 'bob' }, session: 'by-certificate' });
    assertProblem(await mtls.call('GET', STATUS, { as: 'nameless' }), 401, 'unauthorized');
    const liar = mtls.session('by-lie', { as: 'liar' });
    assert.equal((await liar.start()).status, 200);
    assert.deepEqual(await owners('by-lie'), ['mallory'], 'a name within another field is no name');
    await liar.stop();
  });

  test('by an OAuth proxy', async () => {
    const seen = [];
    const proxy = http.createServer((req, res) => {
      const [, user] = req.headers.cookie?.match(/_oauth2_proxy=(\w+)/) ?? [];
      seen.push({ url: req.url, headers: req.headers });
      if (req.url.startsWith('/oauth2/start')) res.writeHead(302, { location: 'https://login.example/' }).end();
      else if (user === 'broken') res.writeHead(500).end('broken');
      else if (user) res.writeHead(202, { 'x-auth-request-user': user }).end();
      else res.writeHead(401).end('Unauthorized');
    });
    await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    try {
      const address = `127.0.0.1:${proxy.address().port}`;
      const withProxy = (text) => fill(text, 'http://127.0.0.1:4180', `http://${address}`, 2);
      const oauth = await world.site({ auth: 'oauth2-proxy', edit: { 'auth-oauth2-proxy.conf': withProxy } });
      const as = (user) => ({ who: { cookie: `_oauth2_proxy=${user}` } });
      for (const options of [{}, { token: await g.token() }, { headers: FORGED }, { who: { cookie: `sandgate_token=${await g.token()}` } }]) {
        const res = await oauth.call('GET', STATUS, options);
        assertProblem(res, 401, 'unauthorized');
        assertSecurity(res);
      }
      await assertIdentities(oauth, { alice: as('alice'), bob: as('bob'), session: 'by-oauth' });
      assertProblem(await oauth.call('GET', STATUS, as('broken')), 503, 'unavailable');
      const start = await oauth.call('GET', '/oauth2/start?rd=/');
      assert.deepEqual([start.status, start.headers.location], [302, 'https://login.example/']);
      assertProblem(await oauth.call('GET', '/oauth2/auth', as('alice')), 404, 'no_such_route');
      assert.equal((await oauth.call('GET', '/healthz')).status, 200);
      const asked = seen.filter((r) => r.url === '/oauth2/auth');
      assert.ok(asked.length > 5);
      for (const { headers } of asked) assert.deepEqual([headers.host, headers['content-length']], [NAME, undefined]);
      assert.ok(asked.some((r) => r.headers['x-forwarded-uri'].startsWith('/api/v1/session/by-oauth/sandbox/upload')));
    } finally {
      proxy.closeAllConnections();
      await new Promise((resolve) => proxy.close(resolve));
    }
  });

  // ------------------------------------------------------------------------------------------------------------ other origins

  const ASK = { 'access-control-request-method': 'POST', 'access-control-request-headers': 'content-type' };

  test('pages of other origins are not answered unless they are listed', async () => {
    const origin = 'https://app.example.org';
    for (const headers of [{ origin }, {}]) {
      const res = await site.call('GET', STATUS, { headers });
      assert.equal(res.status, 200);
      assert.deepEqual(crossOrigin(res), []);
      assert.deepEqual(crossOrigin(await site.call('OPTIONS', START, { token: null, headers: { ...headers, ...ASK } })), []);
    }
  });

  test('a listed origin is answered, with credentials, and no other one', async () => {
    const origin = 'https://app.example.org';
    const cors = await world.site({ edit: { 'cors.conf': (text) => fill(text, '# "https://app.example.org"', '"https://app.example.org"') } });
    const preflight = await cors.call('OPTIONS', START, { token: null, headers: { origin, ...ASK } });
    assert.equal(preflight.status, 204);
    assert.equal(preflight.headers['access-control-allow-origin'], origin);
    assert.equal(preflight.headers['access-control-allow-credentials'], 'true');
    assert.match(preflight.headers['access-control-allow-methods'], /\bPOST\b/);
    assert.match(preflight.headers['access-control-allow-headers'], /\bContent-Type\b/);
    assert.equal(preflight.headers['access-control-max-age'], '600');
    assert.equal(preflight.headers.vary, 'Origin');

    const { secret } = await mint('app');
    const s = cors.session('cors', { token: null, who: { cookie: `sandgate_token=${secret}` } });
    const run = await s.execute('print(1)', { headers: { origin } });
    assert.equal(run.status, 200, run.text);
    const up = await s.upload('c.txt', 'of cors', undefined, { headers: { origin, ...form('c.txt', '').headers } });
    assert.equal(up.status, 200, up.text);
    const down = await s.download(up.json.path, { headers: { origin } });
    assert.equal(down.text, 'of cors');
    const refused = await cors.call('GET', '/nothing', { headers: { origin } });
    for (const res of [run, up, down, refused]) {
      assert.equal(res.headers['access-control-allow-origin'], origin);
      assert.equal(res.headers['access-control-allow-credentials'], 'true');
      assert.match(res.headers['access-control-expose-headers'], /Content-Disposition/);
    }
    await s.stop({ headers: { origin } });

    for (const other of ['https://app.example.org.evil.example', 'http://app.example.org', 'https://evil.example', 'null']) {
      const ask = await cors.call('OPTIONS', START, { token: null, headers: { origin: other, ...ASK } });
      assert.deepEqual(crossOrigin(ask), []);
      assert.ok(ask.status >= 400, `${other}: ${ask.status}`);
      assert.deepEqual(crossOrigin(await cors.call('GET', STATUS, { headers: { origin: other } })), []);
      assertProblem(await s.start(undefined, { headers: { origin: other } }), 403, 'forbidden', /Origin/);
    }
  });

  // ------------------------------------------------------------------------------------------------------------ at the end

  for (const auth of ['token', 'basic', 'mtls', 'oauth2-proxy']) {
    test(`nginx -t accepts the site with auth-${auth}.conf where there is no DNS`, async () => {
      const written = await world.written({ auth, edit: { 'auth-mtls.conf': withClients }, resolver: '127.0.0.1:9' });
      const [command, args] = written.command;
      const { stderr } = await run(command, ['-t', ...args], { timeout: 30_000 });
      assert.match(stderr, /test is successful/);
      assert.doesNotMatch(stderr, /\[(warn|error|emerg)\]/);
    });
  }

  test('every line of the access log is JSON that names its request, and none has a secret', async () => {
    const { secret } = await mint('logged');
    const calls = [];
    for (const [method, target, options] of [
      ['GET', `${STATUS}?token=${secret}`, {}],
      ['GET', '/nothing/"quoted"\\', {}],
      ['GET', '/nothing/%22', { token: null }],
      ['GET', STATUS, { token: null }],
      ['TRACE', STATUS, {}],
    ])
      for (const version of [2, 1]) {
        const res = await site.call(method, target, { token: secret, version, ...options });
        calls.push({ method, target, version, res });
      }
    const odd = await raw(site.plainPort, Buffer.from(`GET /odd\xff\xfe"?x HTTP/1.1\r\nHost: ${NAME}\r\nConnection: close\r\n\r\n`, 'latin1'));
    assert.equal(rawStatus(odd), 308);
    await until(() => site.log().some((l) => l.path === '/odd'), { what: 'the line of bytes that are no text' });
    const found = (res) => site.log().filter((l) => l.request_id === res.headers['x-request-id']);
    for (const { method, target, version, res } of calls) {
      await until(() => found(res).length, { what: `the line of ${method} ${target}` });
      const [line, ...more] = found(res);
      assert.deepEqual(more, []);
      assert.deepEqual([line.method, line.path, line.status], [method, target.split('?')[0], res.status]);
      assert.equal(line.protocol, version === 2 ? 'HTTP/2.0' : 'HTTP/1.1');
      assert.equal(line.address, '127.0.0.1');
      assert.equal(line.user, res.status === 200 ? 'logged' : '');
    }
    for (const at of world.sites) {
      assert.ok(at.log().length > 0);
      for (const line of at.log())
        for (const number of ['status', 'bytes_in', 'bytes_out', 'secs']) assert.equal(typeof line[number], 'number', JSON.stringify(line));
      const text = fs.readFileSync(at.accessLog, 'utf8');
      assert.ok(!text.includes('signature='), 'an address that opens a file is in the access log');
      for (const word of secrets)
        for (const [name, log] of Object.entries({ access: text, error: at.nginx.text }))
          assert.ok(!log.includes(word), `a secret is in the ${name} log: ${word.slice(0, 12)}`);
    }
  });
});
