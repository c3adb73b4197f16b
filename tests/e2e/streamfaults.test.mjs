// Streams when something breaks: the provider, the kernel, the sandbox, a worker, the disk, the gateway itself, the connection. What
// was printed is not lost or is said to be, the last event says what is known of the end, and nothing runs twice.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { SUITE, raw, rawStatus, sleep, startEngine, until, within } from './engine.mjs';
import { assertProblem, startGateway } from './gateway.mjs';
import { startProxy } from './proxy.mjs';
import { fill, skip, startSmall } from './smalldisk.mjs';
import { assertWhole } from './sse.mjs';

const TYPE = 'text/event-stream';
/** Goes on when a file of this name is there. Leaves a mark each time it is run. */
const HANDSHAKE = `
import os, time
def wait(name):
    while not os.path.exists('/home/user/' + name): time.sleep(0.005)
open('/home/user/runs', 'a').write('x')
`;
const WAITS = `${HANDSHAKE}\nprint("begun")\nwait("go")\nprint("end")`;
const UNKNOWN = ['failed', 'completion_unknown', 'completion_unknown'];

let engine;
let proxy; // between g and the engine
let g;
before(async () => {
  engine = await startEngine();
  proxy = await startProxy(engine.url);
  g = await startGateway({ engine, api: proxy.url });
});
after(async () => {
  await g?.stop();
  await proxy?.close();
  await engine?.stop();
});

const row = async (id, at = g) => (await at.rows(`SELECT * FROM executions WHERE id = '${id}'`))[0];
const ended = (id, at = g) => until(async () => (await row(id, at)).ended_at !== 0, { deadline: 60_000, what: 'its end' });
const put = async (session, name) => assert.equal((await session.upload(name, 'x', '/home/user')).status, 200);
const runs = async (session) => (await session.download('/home/user/runs')).text;
const summary = ({ event, data }) => [event, data.code, data.state];

/** A session with a sandbox in it. */
async function begun(id, at = g) {
  const session = at.session(id);
  const res = await session.start();
  assert.equal(res.status, 200, res.text);
  return Object.assign(session, { sandbox: res.json.sandbox_id });
}

/** Reads to the end, or until it is cut off; the number of the last event that came. */
async function rest(s) {
  await (async () => {
    while (await s.next());
  })().catch((e) => assert.match(String(e), /aborted|socket hang up|ECONNRESET|has no end/));
  return s.seen.at(-1)?.id ?? 0;
}

/** A stream of code that waits, once it has printed "begun"; .id is its execution's. */
async function waiting(session, more = {}) {
  const s = await session.stream({ code: WAITS, ...more });
  s.id = (await s.until('started')).data.execution_id;
  await s.until('stdout', 'begun');
  return s;
}

// All at once: most of them wait.
describe('streams', { ...SUITE, concurrency: true }, () => {
  describe('the provider', { concurrency: true }, ofProvider);
  describe('the sandbox', { concurrency: true }, ofSandbox);
  describe('the disk', { concurrency: true }, onDisk);
  describe('the gateway', { concurrency: true }, ofGateway);
  describe('the client', { concurrency: true }, ofClient);
  describe('at the same moment', { concurrency: true }, atTheSameMoment);
});

// ---------------------------------------------------------------------------------------------------------------- the provider

function ofProvider() {
  test('is killed: nobody knows how it ended, those who follow hear the same, and it is not run again', async () => {
    let own = await startEngine();
    const link = await startProxy(own.url);
    const at = await startGateway({ engine: own, api: link.url });
    try {
      const session = await begun('killed', at);
      const s = await waiting(session);
      const follower = await session.follow(s.id);
      await follower.until('stdout', 'begun');
      await own.kill9();
      for (const one of [s, follower]) {
        const last = await one.end();
        assert.deepEqual([...summary(last), last.data.output], [...UNKNOWN, 'begun\n']);
        assert.match(last.data.request_id, /^[0-9a-f]{32}$/);
      }
      assert.equal((await row(s.id, at)).state, 'completion_unknown');
      assert.equal(link.count('POST', '/execute'), 1);
      own = await startEngine({ dir: own.dir });
    } finally {
      await at.stop();
      await link.close();
      await own.stop();
    }
  });

  test('breaks off at any byte: what came is a beginning, the end is said once, and it ran once', async () => {
    const code = `${HANDSHAKE}\nfor i in range(20): print(i, "é" * i)\n"the result"`;
    const expected = Array.from({ length: 20 }, (_, i) => `${i} ${'é'.repeat(i)}\n`).join('');
    await Promise.all(
      Array.from({ length: 8 }, async (_, n) => {
        const session = await begun(`cut-${n}`);
        for (let i = 0; i < 3; i++) {
          const cut = Math.floor(Math.random() * 1400);
          proxy.fault({ path: '/execute', sandbox: session.sandbox }, { cut }, { times: 1 });
          const s = await session.stream({ code });
          const last = await s.end();
          const what = `cut after ${cut} bytes: ${JSON.stringify(last)}`;
          assert.ok(expected.startsWith(s.text()), what);
          assert.deepEqual(summary(last), UNKNOWN, what);
          assert.deepEqual([last.data.stdout, last.data.stdout_bytes], [s.text(), Buffer.byteLength(s.text())], what);
          const id = last.data.execution_id;
          const again = await session.follow(id);
          await again.end();
          assert.deepEqual(again.seen.slice(0, -1), s.seen.slice(0, -1), what);
          assert.equal((await row(id)).state, 'completion_unknown');
        }
        // Of code that was given up before it began there is no mark.
        assert.match((await session.execute('print(open("/home/user/runs").read(), end="")')).json.output, /^x{0,3}$/);
      }),
    );
  });

  test('is slow: what drips arrives whole', async () => {
    const session = await begun('drip');
    const fault = proxy.fault({ path: '/execute', sandbox: session.sandbox }, { drip: 2 }, { times: 1 });
    const s = await session.stream({ code: 'print("é" * 50)\n"😀"' });
    const { data } = await s.end();
    assert.deepEqual([data.success, s.text(), data.text, fault.hits], [true, `${'é'.repeat(50)}\n`, '😀', 1]);
  });

  test('says nothing for long: there is a sign of life every 15 s, for who follows, too', async () => {
    const session = await begun('quiet');
    const s = await waiting(session);
    const follower = await session.follow(s.id);
    await follower.until('stdout', 'begun');
    const since = performance.now();
    const next = [s, follower].map((one) => one.next());
    await until(() => [s, follower].every((one) => one.comments.includes('keep-alive')), { deadline: 25_000, what: 'a comment' });
    const secs = (performance.now() - since) / 1000;
    assert.ok(secs > 13, `after ${secs} s`);
    await put(session, 'go');
    for (const [n, one] of [s, follower].entries()) {
      assert.equal((await next[n]).data.text, 'end\n');
      assert.equal((await one.end()).event, 'done');
      assert.deepEqual(one.comments, ['sandgate', 'keep-alive']);
    }
  });

  for (const end of ['os._exit(3)', 'os.kill(os.getpid(), 9)'])
    test(`${end}: the kernel's end is an error of the program, and the next one works`, async () => {
      const session = await begun(`kernel-${end.length}`);
      const s = await session.stream({ code: `${HANDSHAKE}\nprint("begun", flush=True)\n${end}` });
      const { event, data } = await s.end();
      assert.deepEqual([event, data.state, data.success, data.output], ['done', 'failed', false, 'begun\n'], JSON.stringify(data));
      assert.ok(s.seen.some((e) => e.event === 'error'), JSON.stringify(s.seen));
      assert.equal((await session.execute('print(6 * 7)')).json.output, '42\n');
      assert.equal(await runs(session), 'x');
    });
}

// ---------------------------------------------------------------------------------------------------------------- the sandbox

function ofSandbox() {
  test('is stopped: those who follow hear it, too', async () => {
    const session = await begun('stopped');
    const s = await waiting(session, { detach: true });
    const follower = await session.follow(s.id);
    assert.equal((await session.stop()).status, 204);
    for (const one of [s, follower]) {
      const last = await one.end();
      assert.deepEqual([...summary(last), last.data.output], ['done', 'sandbox_stopped', 'failed', 'begun\n']);
    }
    assert.equal((await session.execute('print(1)')).json.state_lost, false, 'it was the user’s own stop');
  });

  test('comes to the end of its lifetime: that is said before, and then', async () => {
    const at = await startGateway({ engine, settings: { SANDGATE_MAX_LIFETIME_SECS: 8 } });
    try {
      const session = at.session('expired');
      const s = await waiting(session);
      const follower = await session.follow(s.id);
      for (const one of [s, follower]) {
        const last = await one.end();
        assert.deepEqual([...summary(last), last.data.output], ['done', 'sandbox_expired', 'failed', 'begun\n']);
        const [{ data }, ...others] = one.seen.filter((e) => e.event === 'expiring');
        assert.deepEqual(others, [], 'it is said once');
        assert.ok(data.expires_in_secs >= 0 && data.expires_in_secs <= 8, JSON.stringify(data));
      }
      const next = await session.stream({ code: '1' });
      const { data } = await next.end();
      assert.deepEqual([data.state_lost, data.reason, data.generation], [true, 'expired_lifetime', 2]);
    } finally {
      await at.stop();
    }
  });
}

// ---------------------------------------------------------------------------------------------------------------- the disk

function onDisk() {
  /** A stream whose disk is full after "head" and, where there is room again, until its tail. */
  async function play(room) {
    const tail = room ? 'tail' : 'tail'.repeat(20_000); // a short one may fit into the file's last page
    const code = `${HANDSHAKE}\nprint("head")\nwait("full")\nfor i in range(4): print("é" * 49_999, flush=True)\nwait("room")\nprint("${tail}")`;
    const total = 5 + 4 * 99_999 + tail.length + 1;
    const at = await startSmall(engine, { database: false });
    try {
      const session = await begun('small', at);
      const ballast = path.join(at.seen, 'ballast');
      const s = await session.stream({ code });
      await s.until('stdout', 'head');
      fill(ballast);
      await put(session, 'full');
      while (s.text().length < 5 + 4 * 50_000) await s.next();
      if (room) fs.rmSync(ballast);
      await put(session, 'room');
      const last = await s.end();
      assert.deepEqual([last.event, last.data.success, last.data.truncated, last.data.stdout_bytes], ['done', true, true, total]);
      assert.equal(s.text(), `head\n${`${'é'.repeat(49_999)}\n`.repeat(4)}${tail}\n`, 'who is there has all of it');

      const { execution_id } = last.data;
      const whole = await session.follow(execution_id);
      const end = await whole.end();
      assert.deepEqual([end.id, end.event, end.data.truncated, end.data.stdout_bytes], [last.id, 'done', true, total]);
      const dropped = whole.seen.filter((e) => e.event === 'dropped');
      assert.ok(dropped.length >= 1, 'the loss is said');
      const lost = dropped.reduce((n, e) => n + e.data.bytes, 0);
      assert.equal(lost + Buffer.byteLength(whole.text()), total, JSON.stringify(dropped));
      assert.equal(whole.text().endsWith('tail\n'), room);

      // One that heard all but the end, and one that heard all.
      const before = await session.follow(execution_id, `?after=${last.id - 1}`);
      assert.deepEqual([(await before.next()).id, await before.next()], [last.id, undefined]);
      assert.equal((await session.events(execution_id, `?after=${last.id}`)).status, 204);
      assertProblem(await session.events(execution_id, `?after=${last.id + 1}`), 400, 'bad_request');
      const { result } = (await session.execution(execution_id)).json;
      assert.deepEqual([result.truncated, result.stdout_bytes], [true, total]);
    } finally {
      await at.stop();
    }
  }

  test('is full for a while: the run goes on, and a replay says exactly what is lost', { skip }, () => play(true));
  test('is full to the end: the same', { skip }, () => play(false));

  test('takes nothing at all: the stream has everything, and its replay the end', { skip }, async () => {
    const at = await startSmall(engine, { database: false });
    try {
      const session = await begun('nothing', at);
      fs.renameSync(path.join(at.seen, 'events'), path.join(at.seen, 'gone'));
      const s = await session.stream({ code: 'print("seen")\n6 * 7' });
      const last = await s.end();
      assert.deepEqual([last.data.success, last.data.truncated, s.text()], [true, true, 'seen\n']);
      const again = await session.follow(last.data.execution_id);
      assert.deepEqual([(await again.end()).id, again.seen.map((e) => e.event)], [last.id, ['dropped', 'done']]);
    } finally {
      await at.stop();
    }
  });
}

// ---------------------------------------------------------------------------------------------------------------- the gateway

function ofGateway() {
  test('loses the worker that streams: who comes back hears all, and that nobody knows how it ended', async () => {
    const session = await begun('dead');
    const s = await waiting(session);
    process.kill((await row(s.id)).pid, 'SIGKILL');
    const last = await rest(s);
    // Whether before or after the row says so.
    for (let i = 0; i < 2; i++) {
      const again = await session.follow(s.id, '', { headers: { 'last-event-id': String(last) } });
      const end = await again.next();
      assert.deepEqual([end.id, ...summary(end), end.data.output], [last + 1, ...UNKNOWN, 'begun\n']);
      await ended(s.id);
    }
    assert.equal((await session.events(s.id, `?after=${last + 1}`)).status, 204, 'now it has heard all');
    assert.equal(await runs(session), 'x');
  });

  test('is drained: who is attached has the end, who follows comes back to the next one and has all', async () => {
    const at = await startGateway({ engine, settings: { SANDGATE_DRAIN_SECS: 60 } });
    try {
      const sessions = [await begun('attached', at), await begun('detached', at)];
      const [s, detached] = [await waiting(sessions[0]), await waiting(sessions[1], { detach: true })];
      const follower = await sessions[0].follow(s.id);
      await follower.until('stdout', 'begun');
      at.server.process.kill('SIGTERM');
      const last = await within(10_000, rest(follower), 'the end of a replay');
      assert.ok(!follower.seen.some((e) => e.event === 'done' || e.event === 'failed'));
      assertProblem(await sessions[0].events(s.id, `?after=${last}`), 503, 'draining');
      for (const session of sessions) await throughEngine(at, session, 'go');
      assert.equal((await s.end()).data.output, 'begun\nend\n');
      assert.equal((await detached.end()).data.output, 'begun\nend\n');
      assert.deepEqual(await within(20_000, at.server.exited, 'the end'), { code: 0, signal: null });
      await at.startServer();
      const again = await sessions[0].follow(s.id, '', { headers: { 'last-event-id': String(last) } });
      await rest(again);
      assertWhole([...follower.seen, ...again.seen]);
      assert.equal(follower.text() + again.text(), 'begun\nend\n');
    } finally {
      await at.stop();
    }
  });

  test('is drained for less long than a run takes: its client hears from the next one that nobody knows', async () => {
    const at = await startGateway({ engine, settings: { SANDGATE_DRAIN_SECS: 1 } });
    try {
      const session = await begun('long', at);
      const s = await waiting(session);
      at.server.process.kill('SIGTERM');
      const last = await within(20_000, rest(s), 'the end of the stream');
      assert.deepEqual(await within(20_000, at.server.exited, 'the end'), { code: 0, signal: null });
      await at.startServer();
      const again = await session.follow(s.id, `?after=${last}`);
      const end = await again.next();
      assert.deepEqual([...summary(end), end.data.output], [...UNKNOWN, 'begun\n']);
      assert.equal(await runs(session), 'x');
    } finally {
      await at.stop();
    }
  });

  test('is reloaded: streams go on, in workers that end with them', async () => {
    const session = await begun('reload');
    const s = await waiting(session, { detach: true });
    const follower = await session.follow(s.id);
    await follower.until('stdout', 'begun');
    const { pid } = await row(s.id);
    g.server.process.kill('SIGHUP');
    await until(() => g.log().some((l) => l.op === 'reload'), { what: 'the reload' });
    const late = await session.follow(s.id);
    await late.until('stdout', 'begun');
    assert.ok(g.workers().includes(pid));
    await put(session, 'go');
    for (const one of [s, follower, late]) {
      assert.equal((await one.end()).data.output, 'begun\nend\n');
      assertWhole(one.seen);
    }
    await until(() => !g.workers().includes(pid), { what: 'its end' });
  });
}

/** Puts a file where no gateway takes it. */
async function throughEngine(at, session, name) {
  const [{ envd_token: envdAccessToken }] = await at.rows(`SELECT envd_token FROM sandboxes WHERE sandbox_id = '${session.sandbox}'`);
  const sandbox = { sandboxId: session.sandbox, envdAccessToken };
  const res = await engine.envd(sandbox, 'POST', `/files?path=/home/user/${name}&username=user`, {
    headers: { 'content-type': 'application/octet-stream' },
    body: 'x',
  });
  assert.equal(res.status, 200, res.text);
}

// ---------------------------------------------------------------------------------------------------------------- the client

function ofClient() {
  const text = async (session, json, version, more = '') => {
    const body = JSON.stringify(json);
    const head = [`POST ${session.base}/execute HTTP/${version}`, `Host: 127.0.0.1:${g.port}`, `Authorization: Bearer ${await g.token()}`];
    return `${[...head, `Accept: ${TYPE}`, `Content-Length: ${body.length}`].join('\r\n')}\r\n${more}\r\n${body}`;
  };

  test('speaks HTTP/1.0: the stream ends with its connection', async () => {
    const session = await begun('old');
    const answer = await raw(g.port, await text(session, { code: 'print("old")' }, '1.0'), { deadline: 60_000, quiet: 30_000 });
    assert.equal(rawStatus(answer), 200);
    const [head, body] = answer.split('\r\n\r\n');
    assert.doesNotMatch(head, /transfer-encoding/i);
    assert.match(head, /content-type: text\/event-stream/i);
    assert.match(body, /^: sandgate\n\nid: 1\nevent: started\n[^]*event: stdout\ndata: \{"text":"old\\n"\}\n\n[^]*event: done\n[^\n]*\n\n$/);
  });

  test('closes its sending half: it is gone, and its run with it', async () => {
    const session = await begun('half');
    const socket = net.connect(g.port, '127.0.0.1');
    const bytes = [];
    socket.on('data', (d) => bytes.push(d)).on('error', () => {});
    socket.write(await text(session, { code: WAITS }, '1.1'));
    await until(() => Buffer.concat(bytes).includes('begun'), { deadline: 60_000, what: 'its output' });
    socket.end();
    const [, id] = Buffer.concat(bytes).toString().match(/"execution_id":"(x_\w+)"/);
    await ended(id);
    assert.equal((await row(id)).state, 'cancelled');
    socket.destroy();
  });

  test('asks for the head alone: it is there at once, and nothing happens to the run', async () => {
    const session = await begun('head');
    const s = await waiting(session);
    const events = `${session.base}/executions/${s.id}/events`;
    const head = await g.call('HEAD', events, { headers: { accept: TYPE } });
    assert.deepEqual([head.status, head.text], [200, '']);
    assert.match(head.headers['content-type'], /^text\/event-stream/);
    const none = await g.call('HEAD', `${session.base}/execute`, { headers: { accept: TYPE } });
    assert.deepEqual([none.status, none.headers.allow], [405, 'POST']);
    await put(session, 'go');
    assert.equal((await s.end()).data.state, 'succeeded');
    assert.equal((await g.call('HEAD', events)).status, 200);
  });

  test('gets a stream only where it names the type', async () => {
    const session = await begun('accept');
    const typeFor = async (accept) =>
      (await session.run({ code: '1' }, { headers: accept === undefined ? {} : { accept } })).headers['content-type'].split(';')[0];
    for (const accept of [TYPE, 'Text/Event-Stream', `application/json, ${TYPE}`, `${TYPE};q=0.5, application/json`, `${TYPE};charset=utf-8`])
      assert.equal(await typeFor(accept), TYPE, accept);
    const others = [undefined, '', '*/*', 'text/*', 'application/json', `${TYPE};q=0`, `${TYPE}; q=0.000, */*`, `x-${TYPE}`, `${TYPE}s`];
    for (const accept of others) assert.equal(await typeFor(accept), 'application/json', accept);
    const { execution_id } = (await session.execute('1')).json;
    for (const accept of ['*/*', 'application/json', TYPE])
      assert.match((await session.events(execution_id, '', { headers: { accept } })).headers['content-type'], /^text\/event-stream/, accept);
  });
}

// ---------------------------------------------------------------------------------------------------------------- at the same moment

function atTheSameMoment() {
  /** What the row, the stream and a replay say of one end. */
  async function assertAgreed(session, s, id) {
    const last = await s.end();
    const again = await session.follow(id);
    const end = await again.end();
    const { state } = await row(id);
    assert.deepEqual([last.data.state, end.data.state, end.id, end.event, end.data.code], [state, state, last.id, last.event, last.data.code]);
    return state;
  }

  for (const json of [{ code: 'print("over")' }, { command: 'echo over' }]) {
    const kind = Object.keys(json)[0];
    const target = kind === 'code' ? '/execute' : '/process.Process/Start';

    /** A stream whose program has ended, which nobody knows but the gateway, since the answer is not at its end. */
    const held = async (name, more = {}) => {
      const session = await begun(`${name}-${kind}`);
      const fault = proxy.fault({ path: target, sandbox: session.sandbox }, { delayEnd: Infinity }, { times: 1 });
      const s = await session.stream({ ...json, ...more });
      const id = (await s.until('started')).data.execution_id;
      await s.until('stdout', 'over');
      await until(() => fault.held === 1, { what: 'the end of the program' });
      await sleep(50); // for the bytes between the proxy and the gateway
      return { session, fault, s, id };
    };

    test(`a ${kind} ends by itself, and somebody cancels it: it has ended`, async () => {
      const { session, s, id } = await held('cancel');
      const res = await session.cancel(id);
      assert.deepEqual([res.status, res.json.state, res.json.cancelled_by], [200, 'succeeded', undefined], res.text);
      assert.equal(await assertAgreed(session, s, id), 'succeeded');
      assert.equal((await session.execute('print(1)')).json.output, '1\n');
    });

    test(`a ${kind} ends by itself, and its client leaves: it has ended`, async () => {
      const { s, id } = await held('leave');
      s.leave();
      await ended(id);
      assert.equal((await row(id)).state, 'succeeded');
    });

    test(`a ${kind} ends by itself, and its limit passes: it has ended`, async () => {
      const { session, s, id } = await held('limit', { timeout_secs: 1 });
      assert.equal(await assertAgreed(session, s, id), 'succeeded');
    });

    test(`a ${kind} ends by itself, and its sandbox is stopped: it has ended`, async () => {
      const { session, s, id } = await held('stop');
      assert.equal((await session.stop()).status, 204);
      assert.equal(await assertAgreed(session, s, id), 'succeeded');
    });

    test(`a ${kind} is cancelled before the provider has heard of it: ${kind === 'code' ? 'it never runs' : 'it is ended once it can be'}`, async () => {
      const session = await begun(`early-${kind}`);
      const fault = proxy.fault({ path: target, sandbox: session.sandbox }, { delay: Infinity }, { times: 1 });
      const mark = kind === 'code' ? { code: 'open("/home/user/ran", "w")' } : { command: 'sleep 600' };
      const res = await session.run({ ...mark, detach: true });
      assert.equal(res.status, 202, res.text);
      await until(() => fault.held === 1, { what: 'the call' });
      const cancelled = session.cancel(res.json.execution_id);
      if (kind === 'code') assert.equal((await cancelled).json.state, 'cancelled');
      fault.release(); // a command may run as soon as it was asked for, so it is waited for and then ended
      assert.deepEqual([(await cancelled).status, (await cancelled).json.state], [200, 'cancelled'], (await cancelled).text);
      if (kind === 'code') assert.ok(!(await session.files('/home/user')).json.some((f) => f.path.endsWith('/ran')));
    });
  }

  test('a command is cancelled while its start is answered: it is ended, with all it has started', async () => {
    const session = await begun('starting');
    const fault = proxy.fault({ path: '/process.Process/Start', sandbox: session.sandbox }, { delayReply: Infinity }, { times: 1 });
    const res = await session.run({ command: 'sleep 600 & echo $! > /home/user/pid; sleep 600', detach: true });
    await until(() => fault.held === 1, { what: 'the start' });
    const cancelled = session.cancel(res.json.execution_id);
    await until(async () => (await row(res.json.execution_id)).cancel_at !== 0, { what: 'the wish' });
    fault.release();
    assert.deepEqual([(await cancelled).json.state, (await cancelled).json.cancelled_by], ['cancelled', 'interrupt'], (await cancelled).text);
    const alive = await session.run({ command: 'kill -0 "$(cat /home/user/pid)"' });
    assert.notEqual(alive.json.exit_code, 0, alive.text);
  });

  test('its cancel, its stop and the departure of its client: each is answered, and all say the same', async () => {
    const session = await begun('all');
    for (let i = 0; i < 4; i++) {
      await session.start();
      const s = await session.stream({ code: 'print("begun")\nimport time\ntime.sleep(600)', detach: i % 2 === 0 });
      const id = (await s.until('started')).data.execution_id;
      await s.until('stdout', 'begun');
      const follower = await session.follow(id);
      const calls = [session.cancel(id), session.stop(), session.cancel(id)];
      if (i > 1) s.leave();
      const [one, stopped, two] = await Promise.all(calls);
      assert.deepEqual([one.status, stopped.status, two.status], [200, 204, 200], one.text + two.text);
      assert.deepEqual(two.json, one.json);
      const state = await assertAgreed(session, follower, id);
      assert.ok(['cancelled', 'failed'].includes(state), state);
      assert.equal(one.json.state, state);
    }
  });

  test('its cancel and its limit: one of them it was, and the context is free', async () => {
    const session = await begun('limit');
    for (let i = 0; i < 4; i++) {
      const s = await session.stream({ code: 'print("begun")\nimport time\ntime.sleep(600)', timeout_secs: 1 });
      const id = (await s.until('started')).data.execution_id;
      await sleep(940 + i * 40);
      const res = await session.cancel(id);
      const state = await assertAgreed(session, s, id);
      assert.deepEqual([res.status, res.json.state], [200, state], res.text);
      assert.ok(['cancelled', 'timed_out'].includes(state), state);
      assert.equal(res.json.cancelled_by, state === 'cancelled' ? 'interrupt' : undefined);
    }
    assert.equal((await session.execute('print(1)')).json.output, '1\n');
  });
}
