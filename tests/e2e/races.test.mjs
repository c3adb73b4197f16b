// What happens between two calls: a stop during a start, a reply that was lost with its client, a pool whose workers are all busy, a
// reader that does not read. The provider's side is spoilt by a proxy between gateway and engine.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import http from 'node:http';
import { after, afterEach, before, describe, test } from 'node:test';
import { SUITE, sleep, startEngine, until, within } from './engine.mjs';
import { assertProblem, form, startGateway } from './gateway.mjs';
import { startProxy } from './proxy.mjs';

const CREATE = { method: 'POST', path: /^(\/v2)?\/sandboxes$/ };
const LIST = { method: 'GET', path: /^(\/v2)?\/sandboxes$/ };
const NONE = { answer: { status: 200, json: [] } };

let engine;
let proxy;
before(async () => {
  engine = await startEngine();
  proxy = await startProxy(engine.url);
});
after(async () => {
  await proxy?.close();
  await engine?.stop();
});

/** A gateway for one group of tests. */
function gateway(settings = {}) {
  const it = {};
  before(async () => (it.g = await startGateway({ engine, api: proxy.url, settings })));
  after(() => it.g?.stop());
  afterEach(async () => {
    proxy.clear();
    await it.g.stopAll();
    // Every sandbox that the provider has is on a row that somebody can still act on.
    const known = (await it.g.rows(`SELECT sandbox_id AS id FROM sandboxes WHERE status <> 'ended'`)).map((r) => r.id);
    const nonces = (await it.g.rows(`SELECT nonce FROM sandboxes WHERE status = 'stopping' AND sandbox_id = ''`)).map((r) => r.nonce);
    for (const s of await it.g.labelled())
      assert.ok(known.includes(s.sandboxID) || nonces.includes(s.metadata.sandgate_nonce), `${s.sandboxID} is nobody's`);
  });
  return it;
}

/** A request that can be left. Its answer's status is a promise. */
async function send(g, target, body, { headers = {}, token } = {}) {
  const req = http.request(g.url + target, {
    method: 'POST',
    agent: false,
    headers: { authorization: `Bearer ${token ?? (await g.token())}`, ...headers },
  });
  req.on('error', () => {});
  req.answered = new Promise((resolve) => req.on('response', resolve));
  if (body !== null) req.end(body);
  return req;
}

const seconds = (pids) =>
  pids.reduce((sum, pid) => {
    const fields = fs.readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
    return sum + (Number(fields[11]) + Number(fields[12])) / 100;
  }, 0);

describe('starts and stops', SUITE, () => {
  const it = gateway();

  test('a create that is refused as a conflict is an error, not a loop', async () => {
    const fault = proxy.fault(CREATE, { answer: { status: 409, json: { code: 409, message: 'no' } } });
    assertProblem(await it.g.session('conflict').start(), 502, 'provider_error');
    assert.ok(fault.hits <= 3, `${fault.hits} creates`);
    assert.equal((await it.g.history('conflict')).length, 1);
  });

  for (const [what, calls] of [
    ['a start', (s) => [s.start()]],
    ['executes', (s) => [1, 2, 3, 4].map((n) => s.execute(`print(${n})`))],
  ])
    test(`a stop during ${what} leaves nothing behind it`, async () => {
      const s = it.g.session(`stop-${calls.length}-${what.length}`);
      proxy.fault(CREATE, { delayReply: 600 }, { times: 1 });
      proxy.fault({ method: 'GET', path: '/health' }, { delay: 200 });
      const waiting = calls(s);
      await until(async () => (await s.status()).json?.status === 'starting', { what: 'the start' });
      assert.equal((await s.stop()).status, 204);
      for (const res of await Promise.all(waiting))
        if (res.status !== 200) assertProblem(res, 409, 'sandbox_stopped', /^Sandbox stopped/);
      assert.equal((await s.status()).text.trim(), 'null');
      assert.deepEqual(await it.g.labelled(), []);
    });

  test('a lost reply is looked for also when the client has left with it', async () => {
    const s = it.g.session('left');
    const fault = proxy.fault(CREATE, { dropReply: true, delayReply: 800 }, { times: 1 });
    let first;
    proxy.fault((r) => r.method === 'GET' && LIST.path.test(r.path) && Date.now() - (first ??= Date.now()) < 1000, NONE);
    const req = await send(it.g, `${s.base}/start`, '{}');
    await until(() => fault.held === 1, { what: 'the create' });
    req.destroy();
    await until(async () => (await s.status()).json?.status === 'running', { deadline: 20_000, what: 'the sandbox' });
    assert.equal((await it.g.labelled()).length, 1);
  });

  test('a sandbox that is late in the list is adopted from a dead worker', async () => {
    const s = it.g.session('adopted');
    const fault = proxy.fault(CREATE, { delayReply: Infinity }, { times: 1 });
    await send(it.g, `${s.base}/start`, '{}');
    await until(() => fault.held === 1, { what: 'the create' });
    proxy.fault(LIST, NONE, { times: 2 });
    process.kill(await it.g.workerOf(`SELECT claim_pid AS pid FROM sandboxes WHERE session_id = 'adopted'`), 'SIGKILL');
    assert.equal((await s.start()).status, 200);
    assert.equal((await it.g.labelled()).length, 1);
  });

  test('what cannot be looked for stays on the list of what is to be killed', async () => {
    const s = it.g.session('unknown');
    const fault = proxy.fault(CREATE, { delayReply: Infinity }, { times: 1 });
    await send(it.g, `${s.base}/start`, '{}');
    await until(() => fault.held === 1, { what: 'the create' });
    proxy.fault(LIST, { answer: { status: 503, json: { message: 'no' } } });
    process.kill(await it.g.workerOf(`SELECT claim_pid AS pid FROM sandboxes WHERE session_id = 'unknown'`), 'SIGKILL');
    assert.equal((await s.start({ deadline: 60_000 })).status, 200);
    assert.deepEqual((await it.g.history('unknown')).map((r) => [r.status, r.end_reason]), [
      ['stopping', 'start_failed'],
      ['running', ''],
    ]);
    const [lost] = (await it.g.labelled()).filter((l) => l.metadata.sandgate_nonce !== undefined && l.state === 'running');
    assert.ok(lost);
    for (const l of await it.g.labelled()) await engine.api('DELETE', `/sandboxes/${l.sandboxID}`);
  });

  test('a stop finds by its nonce what a dead worker has made', async () => {
    const s = it.g.session('stopped');
    const fault = proxy.fault(CREATE, { delayReply: Infinity }, { times: 1 });
    await send(it.g, `${s.base}/start`, '{}');
    await until(() => fault.held === 1, { what: 'the create' });
    process.kill(await it.g.workerOf(`SELECT claim_pid AS pid FROM sandboxes WHERE session_id = 'stopped'`), 'SIGKILL');
    assert.equal((await s.stop()).status, 204);
    assert.deepEqual(await it.g.labelled(), []);
    assert.deepEqual((await it.g.history('stopped')).map((r) => r.status), ['ended']);
  });

  test('waiting costs no time of the processor, whatever the client does', async () => {
    const s = it.g.session('spin');
    const fault = proxy.fault(CREATE, { delay: Infinity }, { times: 1 });
    const start = await send(it.g, `${s.base}/start`, '{}');
    await until(() => fault.held === 1, { what: 'the create' });
    const stop = await send(it.g, `${s.base}/stop`, '');
    const { body, headers } = form('a.bin', Buffer.alloc(3 << 20, 1));
    const upload = await send(it.g, `${s.base}/upload`, body, { headers: { ...headers, 'content-length': body.length } });
    await sleep(700);
    stop.destroy();
    await sleep(300);
    const workers = it.g.workers();
    const before = seconds(workers);
    await sleep(2000);
    const used = seconds(workers.filter((pid) => fs.existsSync(`/proc/${pid}`))) - before;
    fault.release();
    await Promise.all([start.answered, upload.answered]);
    assert.ok(used < 0.6, `${used.toFixed(2)} s of 2 s`);
  });

  for (const [what, spoil] of [
    ['whose client has left', (s) => leave(s)],
    ['that the provider has refused', (s) => refuse(s)],
  ])
    test(`lost state is still told after a run ${what}`, async () => {
      const s = it.g.session(`told-${what.length}`);
      await s.execute('x = 1');
      await engine.api('DELETE', `/sandboxes/${(await s.status()).json.sandbox_id}`);
      await spoil(s);
      const next = (await s.execute('2')).json;
      assert.deepEqual([next.generation, next.state_lost, next.reason], [2, true, 'killed_by_provider']);
      assert.equal((await s.execute('3')).json.state_lost, false);
    });

  async function leave(s) {
    const req = await send(it.g, `${s.base}/execute`, JSON.stringify({ code: 'print("on", flush=True)\nimport time\ntime.sleep(60)' }));
    await it.g.printed(s.base.split('/')[4], 'on');
    req.destroy();
    await until(async () => (await it.g.rows(`SELECT 1 FROM executions WHERE state = 'running'`)).length === 0, { what: 'its end' });
  }

  async function refuse(s) {
    await s.start();
    proxy.fault({ method: 'POST', path: '/execute' }, { answer: { status: 503, json: { message: 'x' } } }, { times: 1 });
    assert.equal((await s.execute('1')).status, 503);
  }

  test('a result that is nested deeply arrives, or its loss is said', async () => {
    const show = (depth) =>
      `from IPython.display import JSON, display\nd = {'a': 1}\nfor i in range(${depth}): d = {'a': d}\ndisplay(JSON(d))`;
    const r = (await it.g.session('deep').execute(show(40))).json;
    assert.deepEqual([r.results.length, r.truncated], [1, false]);
  });
});

describe('sandboxes that are over', SUITE, () => {
  const it = gateway({ SANDGATE_IDLE_TIMEOUT_SECS: 1, SANDGATE_MAX_SANDBOXES_PER_USER: 3 });

  test('calls at once after the idle limit all get the new one', async () => {
    const s = it.g.session('over');
    const first = (await s.start()).json;
    await until(async () => (await s.status()).text.trim() === 'null', { what: 'the idle limit' });
    proxy.fault({ method: 'DELETE' }, { delay: 500 });
    const all = await Promise.all(Array.from({ length: 8 }, () => s.start()));
    for (const res of all) assert.deepEqual([res.status, res.json.status, res.json.generation], [200, 'running', 2], res.text);
    assert.equal(new Set(all.map((r) => r.json.sandbox_id)).size, 1);
    assert.notEqual(all[0].json.sandbox_id, first.sandbox_id);
  });

  test('they take nobody\'s place', async () => {
    for (const n of [1, 2, 3]) assert.equal((await it.g.session(`place${n}`).start()).status, 200);
    await until(async () => (await it.g.session('place3').status()).text.trim() === 'null', { what: 'the idle limit' });
    assert.equal((await it.g.session('place4').start()).status, 200);
    assert.equal((await it.g.session('place5').start()).status, 200);
    const rows = await it.g.rows(`SELECT end_reason FROM sandboxes WHERE session_id LIKE 'place%' AND status = 'ended'`);
    assert.deepEqual(rows.map((r) => r.end_reason), ['expired_idle', 'expired_idle']);
  });
});

describe('few workers', SUITE, () => {
  const it = gateway({ SANDGATE_EXEC_WORKERS_MAX: 2, SANDGATE_QUICK_WORKERS: 1 });

  test('a refused upload that trickles in holds no worker', async () => {
    const s = it.g.session('trickle');
    await s.start();
    const token = await it.g.token('bob', ['--scope', 'read']);
    const headers = { 'content-type': 'multipart/form-data; boundary=x', 'transfer-encoding': 'chunked' };
    const tricklers = await Promise.all([1, 2].map(() => send(it.g, `${s.base}/upload`, null, { headers, token })));
    const timer = setInterval(() => tricklers.forEach((t) => t.write('x')), 300);
    try {
      for (const t of tricklers) assert.equal((await within(20_000, t.answered, 'the refusal')).statusCode, 403);
      assert.equal((await within(20_000, s.files('/'), 'the next call')).status, 200);
    } finally {
      clearInterval(timer);
      tricklers.forEach((t) => t.destroy());
    }
  });

  test('answers that nobody reads hold no worker', async () => {
    const s = it.g.session('unread');
    await s.start();
    const code = "from IPython.display import HTML, display\nfor i in range(6): display(HTML('x' * 2500000))";
    const readers = await Promise.all([1, 2].map(() => send(it.g, `${s.base}/execute`, JSON.stringify({ code }))));
    for (const r of readers) (await within(60_000, r.answered, 'the answer')).pause();
    assert.equal((await within(20_000, s.files('/'), 'the next call')).status, 200);
    readers.forEach((r) => r.destroy());
  });

  test('a form without an end is refused', async () => {
    const headers = { 'content-type': 'multipart/form-data; boundary=x', 'transfer-encoding': 'chunked' };
    const g = await startGateway({ engine, settings: { SANDGATE_UPLOAD_MAX_BYTES: 1000 } });
    try {
      const req = await send(g, `${g.session('endless').base}/upload`, null, { headers });
      req.write('--x\r\nContent-Disposition: form-data; name="other"\r\n\r\n');
      for (let i = 0; i < 40; i++) req.write(Buffer.alloc(64 << 10, 120));
      assert.equal((await within(20_000, req.answered, 'the refusal')).statusCode, 413);
      req.destroy();
      assert.deepEqual(await g.rows('SELECT 1 FROM sandboxes'), []);
    } finally {
      await g.stop();
    }
  });
});

describe('a pool whose workers are all busy', SUITE, () => {
  const it = gateway();

  test('SIGHUP leaves somebody to serve the next call', async () => {
    const sessions = [0, 1, 2, 3].map((n) => it.g.session(`busy${n}`));
    await Promise.all(sessions.map((s) => s.start()));
    const runs = sessions.map((s) => s.execute('print("on", flush=True)\nimport time\ntime.sleep(600)'));
    for (const n of sessions.keys()) await it.g.printed(`busy${n}`, 'on');
    const busy = (await it.g.rows('SELECT pid FROM leases')).map((r) => r.pid);
    const idle = it.g.workers().filter((pid) => !busy.includes(pid));
    it.g.server.process.kill('SIGHUP');
    await until(() => !it.g.workers().some((pid) => idle.includes(pid)), { what: 'the end of the idle ones' });
    assert.equal((await within(20_000, it.g.session('next').execute('1'), 'the next call')).status, 200);
    await Promise.all(sessions.map((s) => s.stop()));
    for (const res of await Promise.all(runs)) assertProblem(res, 409, 'sandbox_stopped');
  });
});
