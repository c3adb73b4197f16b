// Bad input and faults: whatever comes, the caller gets the protocol's answer, no other sandbox notices, and the engine lives on.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import net from 'node:net';
import { after, afterEach, before, describe, test } from 'node:test';
import { Sandbox } from '@e2b/code-interpreter';
import {
  ENVD,
  INTERPRETER,
  KEY,
  SUITE,
  assertError,
  assertStreamError,
  envelopes,
  fails,
  open,
  outcome,
  output,
  python,
  raw,
  rawStatus,
  request,
  routing,
  runEngine,
  sleep,
  startEngine,
  until,
  within,
} from './engine.mjs';

const DEAD = 'i00000000000000000000';
const ROUTES = [
  ['POST', '/v2/sandboxes'],
  ['POST', '/sandboxes'],
];

let engine;
let witness; // a sandbox that must not notice anything

const notFound = (id) => ({ sandboxId: id, message: 'The sandbox was not found', code: 502 });
const json = { 'content-type': 'application/json' };

/** A raw request with the key, as text. */
const http = (method, target, headers = '', body = '') =>
  `${method} ${target} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: ${KEY}\r\nConnection: close\r\n${headers}\r\n${body}`;

function assertRefused(answer, what) {
  const status = rawStatus(answer);
  assert.ok((status >= 400 && status < 500) || status === 501 || status === 505 || answer === '', `${what}: ${answer.slice(0, 200)}`);
}

describe('faults', SUITE, () => {
  before(async () => {
    engine = await startEngine({ args: ['--max-sandboxes', '80', '--pool', '0'] });
    witness = await engine.create();
    await python(witness, 'x = "untouched"');
  });
  after(() => engine?.stop());
  afterEach(async () => {
    engine.assertAlive();
    assert.equal(await within(20_000, python(witness, 'x'), 'the witness'), 'untouched');
  });

  // ------------------------------------------------------------------------------------------------------------ HTTP

  test('requests that are not HTTP', async () => {
    const garbage = {
      'random bytes': Buffer.from([0, 1, 2, 255, 254, 13, 10, 13, 10]),
      'a TLS hello': Buffer.from('160301020001000001fc0303', 'hex'),
      'a bad version': 'GET /health HTTP/9.9\r\n\r\n',
      'a bad method': 'G@T /health HTTP/1.1\r\nHost: x\r\n\r\n',
      'spaces in the target': 'GET /a b HTTP/1.1\r\nHost: x\r\n\r\n',
      'a header without a colon': 'GET /health HTTP/1.1\r\nHost: x\r\nnocolon\r\n\r\n',
      'a negative length': http('POST', '/v2/sandboxes', 'Content-Length: -5\r\n'),
      'a length that is no number': http('POST', '/v2/sandboxes', 'Content-Length: ten\r\n'),
      'a huge length': http('POST', '/v2/sandboxes', 'Content-Length: 99999999999999999999999\r\n', '{}'),
      'two lengths': http('POST', '/v2/sandboxes', 'Content-Length: 2\r\nContent-Length: 30\r\n', '{}'),
      'a bad chunk': http('POST', '/v2/sandboxes', 'Transfer-Encoding: chunked\r\n', 'zz\r\n{}\r\n0\r\n\r\n'),
      'a huge chunk': http('POST', '/v2/sandboxes', 'Transfer-Encoding: chunked\r\n', 'ffffffffffffffffff\r\n{}'),
      'a coding nobody knows': http('POST', '/v2/sandboxes', 'Transfer-Encoding: rot13\r\n', '{}'),
    };
    for (const [what, bytes] of Object.entries(garbage)) assertRefused(await raw(engine.port, bytes, { half: true }), what);
  });

  test('huge headers, many headers, a long target', async () => {
    assertRefused(await raw(engine.port, http('GET', '/v2/sandboxes', `X-Huge: ${'a'.repeat(4 << 20)}\r\n`)), 'a header of 4 MiB');
    assertRefused(
      await raw(engine.port, http('GET', '/v2/sandboxes', Array.from({ length: 100_000 }, (_, i) => `X-${i}: 1\r\n`).join(''))),
      'a hundred thousand headers',
    );
    assertRefused(await raw(engine.port, http('GET', `/v2/sandboxes?metadata=${'a'.repeat(4 << 20)}`)), 'a target of 4 MiB');
    assert.equal((await engine.api('GET', '/v2/sandboxes', { headers: { 'x-long': 'b'.repeat(4000) } })).status, 200, 'a few KiB are fine');
  });

  test('bodies that end too early', async () => {
    const cut = [
      http('POST', '/v2/sandboxes', 'Content-Type: application/json\r\nContent-Length: 1000\r\n', '{"templateID":"base"'),
      http('POST', '/v2/sandboxes', 'Transfer-Encoding: chunked\r\n', '14\r\n{"templateID":"base"'),
      'POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\nX-API-Ke',
      'POST',
    ];
    const before = (await engine.api('GET', '/v2/sandboxes')).json.length;
    for (const bytes of cut) {
      const answer = await raw(engine.port, bytes, { half: true });
      assert.ok(rawStatus(answer) === 0 || rawStatus(answer) >= 400, answer.slice(0, 100));
    }
    assert.equal((await engine.api('GET', '/v2/sandboxes')).json.length, before, 'nothing was created');
  });

  test('bodies that are too large', async () => {
    const peaks = engine.peaks();
    const filler = 'x'.repeat(1 << 20);
    async function* huge() {
      yield '{"templateID":"base","metadata":{"a":"';
      for (let i = 0; i < 200; i++) yield filler;
      yield '"}}';
    }
    for (const [method, target] of ROUTES) {
      const res = await request(engine.url + target, { method, headers: { 'x-api-key': KEY, ...json }, body: huge() }).catch((e) => e);
      assert.ok(res instanceof Error || res.status === 413 || res.status === 400, String(res.status));
    }
    for (const target of ['/execute', '/contexts']) {
      const res = await request(engine.url + target, {
        method: 'POST',
        headers: { ...routing(witness, INTERPRETER), ...json },
        body: huge(),
      }).catch((e) => e);
      assert.ok(res instanceof Error || (res.status >= 400 && res.status < 500), String(res.status));
    }
    const rpc = await request(`${engine.url}/filesystem.Filesystem/Stat`, {
      method: 'POST',
      headers: { ...routing(witness, ENVD), ...json },
      body: huge(),
    }).catch((e) => e);
    assert.ok(rpc instanceof Error || (rpc.status >= 400 && rpc.status < 500), String(rpc.status));
    engine.assertFlat(peaks);
  });

  test('JSON of every bad kind, on every surface', async () => {
    const bodies = [
      '{',
      '}',
      '{"templateID":',
      '{"templateID":"base",}',
      "{'templateID':'base'}",
      '\0',
      '{"templateID":"ba\0se"}',
      '[',
      '['.repeat(200_000),
      '{"a":'.repeat(100_000),
      'NaN',
      Buffer.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x3a, 0x31, 0x7d]),
      Buffer.concat([Buffer.from('{"templateID":"base","metadata":{"a":"'), Buffer.from([0xc3, 0x28]), Buffer.from('"}}')]),
      Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), Buffer.from('{]')]),
    ];
    const made = (await engine.api('GET', '/v2/sandboxes')).json.length;
    for (const body of bodies) {
      for (const [method, target] of [
        ...ROUTES,
        ['POST', `/sandboxes/${witness.sandboxId}/timeout`],
        ['POST', `/sandboxes/${witness.sandboxId}/refreshes`],
      ]) {
        const res = await engine.api(method, target, { body, headers: json });
        assert.ok(res.status === 400 || res.status === 404, `${target} ${body.slice(0, 40)}: ${res.status} ${res.text}`);
        assertError(res, res.status);
      }
      for (const method of ['filesystem.Filesystem/Stat', 'process.Process/SendInput', 'process.Process/SendSignal']) {
        const res = await engine.envd(witness, 'POST', `/${method}`, { body, headers: json });
        assert.ok(res.status >= 400 && res.status < 500, `${method} ${body.slice(0, 40)}: ${res.status} ${res.text}`);
        assert.equal(typeof res.json.code, 'string');
      }
      assert.equal((await engine.interpreter(witness, 'POST', '/execute', { body, headers: json })).status, 422, String(body.slice(0, 40)));
    }
    for (const body of ['{"templateID":"\\ud800"}', '{"timeout":1e999,"templateID":"base"}', '{"timeout":-1e999,"templateID":"base"}'])
      for (const [method, target] of ROUTES) {
        const { status, text } = await engine.api(method, target, { body, headers: json });
        assert.ok(status === 400 || status === 404, `${body}: ${status} ${text}`);
      }
    assert.equal((await engine.api('GET', '/v2/sandboxes')).json.length, made, 'nothing was created');
  });

  test('two requests in one packet are both answered', async () => {
    const socket = net.connect(engine.port, '127.0.0.1');
    try {
      let text = '';
      socket.on('data', (d) => (text += d));
      socket.write('GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n');
      await until(() => text.match(/HTTP\/1\.1 200/g)?.length === 2, { what: 'both answers' });
    } finally {
      socket.destroy();
    }
  });

  test('Expect: 100-continue is answered', async () => {
    const answer = await raw(
      engine.port,
      http('POST', '/v2/sandboxes', 'Expect: 100-continue\r\nContent-Type: application/json\r\nContent-Length: 2\r\n', '{}'),
    );
    assert.match(answer, /HTTP\/1\.1 400/);
  });

  test('idle and half-open connections cost nobody anything', async () => {
    const sockets = Array.from({ length: 200 }, (_, i) => {
      const socket = net.connect(engine.port, '127.0.0.1', () => i % 2 && socket.write('POST /v2/sandboxes HTTP/1.1\r\nHost: x\r\n'));
      return socket.on('error', () => {});
    });
    try {
      await sleep(300);
      assert.equal((await engine.api('GET', '/v2/sandboxes', { deadline: 5_000 })).status, 200);
    } finally {
      for (const socket of sockets) socket.destroy();
    }
  });

  // ------------------------------------------------------------------------------------------------------------ routing

  test('half of the routing headers, and bad ones', async () => {
    const ask = (headers) => request(`${engine.url}/health`, { headers });
    for (const headers of [{ 'e2b-sandbox-id': witness.sandboxId }, { 'e2b-sandbox-port': String(ENVD) }]) {
      const res = await ask(headers);
      assert.equal(res.status, 400);
      assert.match(res.text, /missing header/);
    }
    for (const port of ['abc', '-1', '0', '65536', '99999999999', '49983x', '']) {
      const res = await ask({ 'e2b-sandbox-id': witness.sandboxId, 'e2b-sandbox-port': port });
      assert.equal(res.status, 400, port);
    }
    assert.match((await ask({ 'e2b-sandbox-id': witness.sandboxId, 'e2b-sandbox-port': 'abc' })).text, /Invalid sandbox port/);
    for (const id of ['UPPER', 'a b', '../x', 'i_0', 'i!']) {
      const res = await ask({ 'e2b-sandbox-id': id, 'e2b-sandbox-port': String(ENVD) });
      assert.equal(res.status, 400, id);
      assert.match(res.text, /Invalid sandbox ID/);
    }
  });

  test('routing by host name', async () => {
    const host = (name) => ({ host: name });
    assert.equal((await request(`${engine.url}/health`, { headers: host(`${ENVD}-${witness.sandboxId}.e2b.app`) })).status, 204);
    assert.equal(
      (await request(`${engine.url}/health`, { headers: host(`${INTERPRETER}-${witness.sandboxId}.localhost:8080`) })).json,
      'OK',
    );
    assert.equal(
      (await request(`${engine.url}/health`, { headers: host(`${ENVD}-${witness.sandboxId}-6532622b.e2b.app`) })).status,
      204,
      'the old form',
    );
    const dead = await request(`${engine.url}/health`, { headers: host(`${ENVD}-${DEAD}.e2b.app`) });
    assert.deepEqual([dead.status, dead.json], [502, notFound(DEAD)]);
  });

  test('a sandbox that never was, was killed, or was timed out: 502 on every port and path', async () => {
    const killed = await engine.create();
    await killed.kill();
    for (const sandbox of [{ sandboxId: DEAD, envdAccessToken: 'x' }, killed])
      for (const [port, method, target] of [
        [ENVD, 'GET', '/health'],
        [ENVD, 'GET', '/files?path=x'],
        [ENVD, 'POST', '/process.Process/List'],
        [ENVD, 'POST', '/process.Process/Start'],
        [INTERPRETER, 'POST', '/execute'],
        [INTERPRETER, 'GET', '/contexts'],
        [3000, 'GET', '/'],
      ]) {
        const res = await engine.inside(sandbox, port, method, target);
        assert.deepEqual([res.status, res.json], [502, notFound(sandbox.sandboxId)], `${port}${target}`);
        assert.match(res.headers['content-type'], /^application\/json/);
      }
  });

  test('what the SDK says of a sandbox that is gone', async () => {
    const sandbox = await engine.create();
    await sandbox.kill();
    assert.equal(await sandbox.isRunning(), false);
    await fails(sandbox.commands.run('true'), 'SandboxNotFoundError', /probably not running anymore/);
    await fails(sandbox.commands.list(), 'TimeoutError', /likely due to sandbox timeout/);
    await fails(sandbox.files.read('x'), 'TimeoutError', /The sandbox was not found/);
    await fails(sandbox.files.write('x', 'y'), 'TimeoutError', /The sandbox was not found/);
    await fails(sandbox.files.list('/'), 'TimeoutError');
    await fails(sandbox.runCode('1'), 'TimeoutError', /The sandbox was not found/);
    await fails(sandbox.createCodeContext(), 'TimeoutError');
    await fails(sandbox.getInfo(), 'SandboxNotFoundError');
    await fails(sandbox.setTimeout(5000), 'SandboxNotFoundError');
    await fails(sandbox.connect(), 'SandboxNotFoundError');
    assert.equal(await sandbox.kill(), false);
  });

  // ------------------------------------------------------------------------------------------------------------ ends in the middle

  test('a kill in the middle cuts every stream, and the SDK knows why', async () => {
    const sandbox = await engine.create();
    await sandbox.files.write('big', new Blob([Buffer.alloc(32 << 20)]));
    const command = await sandbox.commands.run('echo go; sleep 60', { background: true });
    await until(() => command.stdout === 'go\n', { what: 'the command' });
    let begun = false;
    const run = sandbox.runCode('print("go")\nimport time\ntime.sleep(60)', { onStdout: () => (begun = true) });
    await until(() => begun, { what: 'the run' });
    const start = await engine.stream(sandbox, 'process.Process/Start', { process: { cmd: '/bin/sleep', args: ['60'] } });
    const download = await open(`${engine.url}/files?path=big`, { headers: routing(sandbox, ENVD) });
    download.pause();
    const ends = Promise.allSettled([command.wait(), run, outcome(start)]);

    assert.equal(await sandbox.kill(), true);
    assert.equal(await sandbox.isRunning(), false);
    const [commandEnd, runEnd, startEnd] = await within(10_000, ends, 'the ends of the streams');
    assert.deepEqual(
      [commandEnd.reason?.name, runEnd.reason?.name],
      ['TimeoutError', 'TimeoutError'],
      `${commandEnd.reason} ${runEnd.reason}`,
    );
    assert.match(commandEnd.reason.message, /killed or reached its end of life/);
    assert.match(runEnd.reason.message, /The sandbox was killed while the request was in progress/);
    assert.equal(startEnd.reason?.code, 'ECONNRESET', 'no end of the stream: it is cut');
    await assert.rejects(within(10_000, download.toArray(), 'the end of the download'), { code: 'ECONNRESET' });
  });

  test('a timeout in the middle cuts, too', async () => {
    const sandbox = await engine.create('base');
    const command = await sandbox.commands.run('sleep 60', { background: true });
    await sandbox.setTimeout(1000);
    await fails(within(8_000, command.wait()), 'TimeoutError', /killed or reached its end of life/);
  });

  test('a client that vanishes in the middle of an upload leaves nothing running', async () => {
    const sandbox = await engine.create('base');
    for (const [target, type] of [
      ['/files?path=half.bin', 'application/octet-stream'],
      ['/files?path=half2.bin', 'multipart/form-data; boundary=b'],
    ]) {
      const head = type.startsWith('multipart') ? '--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n' : '';
      const routes = Object.entries(routing(sandbox, ENVD))
        .map(([k, v]) => `${k}: ${v}\r\n`)
        .join('');
      const socket = net.connect(engine.port, '127.0.0.1');
      await new Promise((resolve) =>
        socket.write(
          `POST ${target} HTTP/1.1\r\nHost: x\r\n${routes}Content-Type: ${type}\r\nContent-Length: 100000000\r\n\r\n${head}${'x'.repeat(1 << 20)}`,
          resolve,
        ),
      );
      await sleep(200);
      socket.resetAndDestroy();
    }
    await sandbox.files.write('half.bin', 'whole');
    await until(async () => (await sandbox.files.read('half.bin')) === 'whole', { what: 'the next upload' });
    assert.equal(await sandbox.kill(), true);
  });

  test('a sandbox that is killed in the middle of an upload', async () => {
    const sandbox = await engine.create('base');
    async function* slow() {
      for (let i = 0; i < 600; i++) {
        yield Buffer.alloc(65_536);
        await sleep(50);
      }
    }
    const upload = request(`${engine.url}/files?path=up.bin`, {
      method: 'POST',
      body: slow(),
      headers: { ...routing(sandbox, ENVD), 'content-type': 'application/octet-stream' },
    }).catch((e) => e);
    await sleep(500);
    await sandbox.kill();
    const end = await within(10_000, upload, 'the end of the upload');
    assert.ok(end instanceof Error || end.status >= 500, String(end.status));
  });

  test('clients that vanish in the middle of everything', async () => {
    const sandbox = await engine.create();
    const leave = async (promise) => (await promise).drop();
    for (let i = 0; i < 5; i++) {
      await leave(engine.stream(sandbox, 'process.Process/Start', { process: { cmd: '/usr/bin/yes' } }));
      await leave(engine.execute(sandbox, { code: 'while True: print("x" * 1000)' }));
    }
    for (const { pid } of await sandbox.commands.list()) await sandbox.commands.kill(pid);
    assert.equal(await within(30_000, python(sandbox, '1 + 1'), 'the next run'), '2');
    assert.deepEqual(await until(async () => (await sandbox.commands.list()).length === 0 && 'none', { what: 'an empty list' }), 'none');
    await sandbox.kill();
  });

  test('a client that vanishes while its sandbox is made', async () => {
    const before = (await engine.api('GET', '/v2/sandboxes')).json.length;
    const body = '{"templateID":"base","timeout":3}';
    for (let i = 0; i < 5; i++) {
      const socket = net.connect(engine.port, '127.0.0.1');
      await new Promise((resolve) =>
        socket.write(http('POST', '/v2/sandboxes', `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n`, body), resolve),
      );
      socket.resetAndDestroy();
    }
    await until(async () => (await engine.api('GET', '/v2/sandboxes')).json.length === before, {
      deadline: 12_000,
      every: 200,
      what: 'the end of the orphans by their timeout',
    });
  });

  // ------------------------------------------------------------------------------------------------------------ many at once

  test('clients that break off their runs leave no connection behind', async () => {
    const sandbox = await engine.create();
    await sandbox.runCode('1');
    const idle = await open(`${engine.url}/health`); // an older connection must not keep the others
    idle.resume();
    const before = engine.openFiles();
    for (let i = 0; i < 20; i++) {
      const res = await open(`${engine.url}/execute`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...routing(sandbox, INTERPRETER) },
        json: { code: 'import time\ntime.sleep(60)' },
      });
      res.drop();
    }
    await until(() => engine.openFiles() <= before + 2, { deadline: 15_000, what: 'the connections to be closed' });
    assert.equal((await sandbox.runCode('2')).text, '2');
    await sandbox.kill();
  });

  test('a program that closes its stdin, or leaves children with it, costs no time', async () => {
    const sandbox = await engine.create('base');
    for (const line of ['exec 0<&-; sleep 30', 'sleep 30 & exit'])
      await engine.stream(sandbox, 'process.Process/Start', { process: { cmd: '/bin/bash', args: ['-c', line] }, stdin: true });
    await sleep(300);
    const before = engine.cpuSeconds();
    await sleep(2000);
    assert.ok(engine.cpuSeconds() - before < 0.5, 'the engine is idle');
    await sandbox.kill();
  });

  test('a process in one sandbox cannot use up what all need', async () => {
    const [greedy, other] = await Promise.all([engine.create('base'), engine.create('base')]);
    const start = () => engine.stream(greedy, 'process.Process/Start', { process: { cmd: '/bin/sleep', args: ['30'] }, stdin: false });
    const answers = [];
    for (let i = 0; i < 300; i += 50)
      for (const res of await Promise.all(Array.from({ length: 50 }, start))) {
        const first = await envelopes(res).next();
        answers.push(first.value.end?.error?.code ?? 'started');
        res.drop();
      }
    assert.ok(answers.includes('resource_exhausted'), 'there is a limit');
    assert.ok(answers.filter((a) => a === 'started').length >= 200);
    assert.equal(await output(other, 'echo fine'), 'fine');
    const long = await engine.stream(other, 'process.Process/Start', { process: { cmd: '/bin/true' }, tag: 't'.repeat(100_000) });
    await assertStreamError(long, 'invalid_argument', /tag/);
    await Promise.all([greedy.kill(), other.kill()]);
  });

  test('50 creates at once', async () => {
    const made = await Promise.all(
      Array.from({ length: 50 }, (_, i) => engine.create('base', { metadata: { n: String(i) }, timeoutMs: 120_000 })),
    );
    assert.equal(new Set(made.map((s) => s.sandboxId)).size, 50);
    const answers = await Promise.all(made.map((s, i) => output(s, `echo ${i} $E2B_SANDBOX_ID`)));
    answers.forEach((text, i) => assert.equal(text, `${i} ${made[i].sandboxId}`));
    assert.deepEqual(await Promise.all(made.map((s) => s.kill())), Array(50).fill(true));
  });

  test('create, use and kill in a tight loop leaves nothing', async () => {
    const openFiles = (pid) => (fs.existsSync(`/proc/${pid}/fd`) ? fs.readdirSync(`/proc/${pid}/fd`).length : 0);
    const files = () => [...engine.peaks().keys()].reduce((sum, pid) => sum + openFiles(pid), 0);
    const members = () => engine.family.look().length;
    const cycle = async () => {
      const sandbox = await engine.create('base');
      await output(sandbox, 'true');
      await sandbox.kill();
    };
    await cycle();
    await sleep(500);
    const start = { files: files(), members: members() };
    for (let i = 0; i < 5; i++) await Promise.all([cycle(), cycle(), cycle(), cycle()]);
    await until(() => members() <= start.members, { what: 'the end of all processes' });
    assert.ok(files() <= start.files + 20, `${start.files} open files, then ${files()}`);
  });

  test('two kills of the same sandbox at once: one of them wins', async () => {
    const sandbox = await engine.create('base');
    const answers = await Promise.all(Array.from({ length: 6 }, () => engine.api('DELETE', `/sandboxes/${sandbox.sandboxId}`)));
    const statuses = answers.map((a) => a.status);
    assert.equal(statuses.filter((s) => s === 204).length >= 1, true, statuses.join());
    assert.ok(
      statuses.every((s) => s === 204 || s === 404 || s === 409),
      statuses.join(),
    );
  });

  test('pause, resume and kill against each other', async () => {
    const sandbox = await engine.create('base');
    const id = sandbox.sandboxId;
    const calls = [
      ['POST', `/sandboxes/${id}/pause`, {}],
      ['POST', `/v2/sandboxes/${id}/connect`, {}],
      ['POST', `/sandboxes/${id}/timeout`, { timeout: 60 }],
    ];
    for (let i = 0; i < 10; i++) {
      const answers = await Promise.all(calls.map(([method, target, body]) => engine.api(method, target, { json: body })));
      for (const a of answers) assert.ok([200, 201, 204, 409].includes(a.status), `${a.status} ${a.text}`);
    }
    await engine.api('POST', `/v2/sandboxes/${id}/connect`, { json: {} });
    assert.equal(await output(sandbox, 'echo alive'), 'alive');
    const [, killed] = await Promise.all([
      engine.api('POST', `/sandboxes/${id}/pause`, { json: {} }),
      engine.api('DELETE', `/sandboxes/${id}`),
    ]);
    assert.ok(killed.status === 204 || killed.status === 409, killed.text);
    await engine.api('DELETE', `/sandboxes/${id}`);
    assertError(await engine.api('GET', `/sandboxes/${id}`), 404);
  });

  test('a sandbox whose processes are all killed from inside says so, and the engine goes on', async () => {
    const sandbox = await engine.create();
    await within(
      20_000,
      sandbox.commands.run('kill -9 -1', { timeoutMs: 10_000 }).catch(() => {}),
      'kill -1',
    );
    const alive = await until(
      () =>
        sandbox.runCode('1 + 1').then(
          (r) => r.text === '2',
          () => sandbox.isRunning().then((r) => !r),
        ),
      { deadline: 20_000, what: 'a working or a dead sandbox' },
    );
    assert.ok(alive);
    await sandbox.kill();
  });
});

// ---------------------------------------------------------------------------------------------------------------- the end of the engine

describe('ends of the engine', SUITE, () => {
  test('SIGTERM with sandboxes of every kind running leaves nothing behind', async () => {
    const own = await startEngine();
    const [idle, busy, paused, streaming] = await Promise.all([own.create('base'), own.create(), own.create(), own.create()]);
    await python(paused, 'x = 1');
    await paused.pause();
    busy.runCode('while True: pass', { timeoutMs: 0 }).catch(() => {});
    await idle.commands.run('nohup setsid sleep 1000 > /dev/null 2>&1 & disown; trap "" TERM HUP INT; while :; do sleep 1; done', {
      background: true,
      timeoutMs: 0,
    });
    streaming.runCode('while True: print("x" * 1000)', { timeoutMs: 0 }).catch(() => {});
    await sleep(700);
    await own.stop(); // asserts the exit code and that no process, mount, cgroup or file is left
    await assert.rejects(request(`${own.url}/health`, { deadline: 3_000 }), { code: 'ECONNREFUSED' });
  });

  test('SIGINT ends it as well, and a second signal does no harm', async () => {
    const own = await startEngine();
    await own.create('base');
    await own.stop({ signals: ['SIGINT', 'SIGTERM'] });
  });

  test('after kill -9 the next start cleans up, and old ids are gone', async () => {
    const first = await startEngine();
    const [running, paused] = await Promise.all([first.create(), first.create('base')]);
    await python(running, 'x = 1');
    await running.commands.run('trap "" TERM HUP INT; while :; do sleep 1; done', { background: true, timeoutMs: 0 });
    await paused.pause();
    first.family.look();
    await first.kill9();

    const second = await startEngine({ dir: first.dir });
    try {
      await until(() => first.family.alive().length === 0 && first.family.cgroupsLeft().length === 0, {
        deadline: 10_000,
        what: 'cleaning up after the first engine',
      }).catch((e) => assert.fail(`${e.message}: ${JSON.stringify([first.family.alive(), first.family.cgroupsLeft()])}`));
      for (const old of [running, paused]) {
        const id = old.sandboxId;
        assertError(await second.api('GET', `/sandboxes/${id}`), 404, `Sandbox "${id}" doesn't exist or you don't have access to it`);
        const res = await second.envd(old, 'GET', '/health');
        assert.deepEqual([res.status, res.json], [502, notFound(id)]);
        assert.equal(await Sandbox.kill(id, second.sdk), false);
        await fails(Sandbox.connect(id, second.sdk), 'SandboxNotFoundError');
      }
      assert.deepEqual((await second.api('GET', '/v2/sandboxes')).json, []);
      const fresh = await second.create();
      assert.equal(await python(fresh, '1 + 1'), '2');
      await fresh.kill();
    } finally {
      await second.stop();
    }
  });

  test('two engines side by side leave each other alone', async () => {
    const [one, two] = await Promise.all([startEngine(), startEngine()]);
    try {
      const [a, b] = await Promise.all([one.create('base'), two.create('base')]);
      assert.equal((await two.envd(a, 'GET', '/health')).status, 502);
      await one.stop();
      assert.equal(await output(b, 'echo alive'), 'alive');
    } finally {
      await Promise.all([one.stop(), two.stop()]);
    }
  });

  test('a second engine on the same state is refused while the first one lives', async () => {
    const first = await startEngine();
    try {
      const sandbox = await first.create('base');
      const { code, stderr } = await runEngine(['--listen', '127.0.0.1:0', '--state', first.state], {
        env: { SANDGATE_ENGINE_API_KEYS: KEY },
      });
      assert.ok(code === 1 || code === 2, `${code} ${stderr}`);
      assert.match(stderr, /state|in use|lock|already/i);
      assert.equal(await output(sandbox, 'echo alive'), 'alive');
    } finally {
      await first.stop();
    }
  });
});
