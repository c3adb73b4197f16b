// Executions as things: listed, read, followed from any event and any worker, cancelled. Also when whoever ran them is gone.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, afterEach, before, describe, test } from 'node:test';
import { SUITE, startEngine, until } from './engine.mjs';
import { assertProblem, startGateway } from './gateway.mjs';
import { assertWhole } from './sse.mjs';

const HANDSHAKE = `
import os, time
def wait(name):
    while not os.path.exists('/home/user/' + name): time.sleep(0.005)
`;

let engine;
let g;
before(async () => {
  engine = await startEngine();
  g = await startGateway({ engine });
});
after(async () => {
  await g?.stop();
  await engine?.stop();
});
afterEach(() => g.stopAll());

const row = async (id) => (await g.rows(`SELECT * FROM executions WHERE id = '${id}'`))[0];
const ended = (id) => until(async () => (await row(id)).ended_at !== 0, { deadline: 60_000, what: 'its end' });

/** A detached run; its id. */
async function detached(session, json) {
  const res = await session.run({ ...json, detach: true });
  assert.equal(res.status, 202, res.text);
  return res.json.execution_id;
}

const go = async (session) => assert.equal((await session.upload('go', 'x', '/home/user')).status, 200);

describe('the history', SUITE, () => {
  test('is listed newest first, page by page, over all generations', async () => {
    const session = g.session('history');
    for (let i = 0; i < 5; i++) await session.execute(`print(${i})`);
    await session.stop();
    await session.run({ command: 'exit 3' });
    const first = (await session.executions('?limit=4')).json;
    assert.deepEqual(first.executions.map((e) => [e.kind, e.state, e.generation, e.exit_code]), [
      ['command', 'failed', 2, 3],
      ...Array(3).fill(['code', 'succeeded', 1, null]),
    ]);
    const second = (await session.executions(`?limit=4&cursor=${first.next}`)).json;
    assert.deepEqual([second.executions.length, second.next], [2, null]);
    const ids = [...first.executions, ...second.executions].map((e) => e.execution_id);
    assert.equal(new Set(ids).size, 6);
    const one = (await session.execution(ids[1])).json;
    assert.deepEqual([one.result.output, one.stdout_bytes, one.result.generation], ['4\n', 2, 1]);
    assert.ok(Date.parse(one.started_at) <= Date.parse(one.ended_at));
    assert.deepEqual((await g.session('history', { dialect: 'B' }).execution(ids[1])).json, one, 'the other dialect, too');
  });

  test('bad cursors, limits and ids are refused, and nobody sees another’s', async () => {
    const session = g.session('private');
    const { execution_id } = (await session.execute('1')).json;
    for (const query of ['?limit=0', '?limit=101', '?limit=x', '?limit=-1', '?cursor=x', '?cursor=99999999999999999999'])
      assertProblem(await session.executions(query), 400, 'bad_request');
    for (const id of ['x_none', 'none', 'a%2Fb', 'x'.repeat(200)]) assertProblem(await session.execution(id), 404, 'execution_not_found');
    for (const other of [g.session('private', { token: await g.token('bob') }), g.session('elsewhere')]) {
      assertProblem(await other.execution(execution_id), 404, 'execution_not_found');
      assertProblem(await other.events(execution_id), 404, 'execution_not_found');
      assertProblem(await other.cancel(execution_id), 404, 'execution_not_found');
    }
    assert.deepEqual((await g.session('nothing').executions()).json, { executions: [], next: null });
  });
});

describe('following', SUITE, () => {
  test('from any event, by ?after= or Last-Event-ID; what is over is said once', async () => {
    const session = g.session('after');
    const s = await session.stream({ code: 'import time\nfor i in range(5):\n    print(i)\n    time.sleep(0.06)' });
    const { id } = await s.end();
    const { execution_id } = s.seen[0].data;
    for (let after = 0; after < id; after++) {
      const one = await session.follow(execution_id, `?after=${after}`);
      await one.end().catch(() => {});
      assertWhole(one.seen, after + 1);
      assert.deepEqual(one.seen.slice(0, -1), s.seen.slice(after, -1));
      const two = await session.follow(execution_id, '', { headers: { 'last-event-id': String(after) } });
      while (await two.next());
      assert.deepEqual(two.seen.slice(0, -1), one.seen.slice(0, -1));
    }
    assert.equal((await session.events(execution_id, `?after=${id}`)).status, 204, 'a browser does not come back after that');
    assertProblem(await session.events(execution_id, `?after=${id + 1}`), 400, 'bad_request', /there is no event/);
    for (const bad of ['x', '-1', '1.5', '99999999999999999999999', '0x1']) {
      assertProblem(await session.events(execution_id, `?after=${bad}`), 400, 'bad_request');
      assertProblem(await session.events(execution_id, '', { headers: { 'last-event-id': bad } }), 400, 'bad_request');
    }
  });

  test('cut at a hundred places and joined again, the bytes are exact', async () => {
    const session = g.session('cuts');
    const code = 'import time\nfor i in range(400):\n    print(i, "é" * (i % 50), end="|")\n    if i % 8 == 0: time.sleep(0.03)';
    const id = await detached(session, { code });
    const seen = [];
    let cuts = 0;
    for (;;) {
      const s = await session.follow(id, `?after=${seen.at(-1)?.id ?? 0}`);
      const most = 1 + Math.floor(Math.random() * 3);
      let e;
      for (let n = 0; n < most && (e = await s.next()); n++) seen.push(e);
      if (seen.at(-1)?.event === 'done') break;
      s.leave();
      cuts++;
      assert.ok(cuts < 2000, 'it never ends');
    }
    // As many more cuts of what is over by now, each somewhere else.
    for (; cuts < 100; cuts++) {
      const after = Math.floor(Math.random() * (seen.at(-1).id - 1));
      const s = await session.follow(id, `?after=${after}`);
      assert.deepEqual(await s.next(), seen[after].event === 'done' ? s.seen[0] : seen[after]);
      s.leave();
    }
    assertWhole(seen);
    const text = seen.filter((e) => e.event === 'stdout').map((e) => e.data.text).join('');
    const expected = Array.from({ length: 400 }, (_, i) => `${i} ${'é'.repeat(i % 50)}|`).join('');
    assert.equal(text, expected);
    assert.equal(seen.at(-1).data.stdout, expected);
  });

  test('is live for many readers at once, in other workers than the one that runs it', async () => {
    const session = g.session('many');
    const id = await detached(session, { code: `${HANDSHAKE}\nprint("begun")\nwait("go")\nprint("end")` });
    const readers = await Promise.all(Array.from({ length: 8 }, () => session.follow(id)));
    for (const r of readers) await r.until('stdout', 'begun');
    await go(session);
    for (const r of readers) assert.equal((await r.end()).data.output, 'begun\nend\n');
  });

  test('more than is kept has a gap whose bytes are counted exactly', async () => {
    const session = g.session('gap');
    const id = await detached(session, { code: 'for i in range(400):\n    print(f"{i:06}" + "z" * 99_993)' });
    await ended(id);
    const s = await session.follow(id);
    const { data } = await s.end();
    const dropped = s.seen.filter((e) => e.event === 'dropped');
    assert.equal(dropped.length, 1);
    assert.equal(dropped[0].data.bytes + s.text().length, 40_000_000);
    assert.deepEqual([data.stdout_bytes, data.truncated], [40_000_000, true]);
    assert.ok(s.text().startsWith('000000z') && s.text().endsWith('z\n'));
  });

  test('goes on after the gateway was started anew', async () => {
    const session = g.session('restart');
    const { execution_id } = (await session.execute('print("kept")')).json;
    assert.deepEqual(await g.server.stop(), { code: 0, signal: null });
    await g.startServer();
    const s = await session.follow(execution_id);
    assert.equal((await s.end()).data.output, 'kept\n');
  });
});

describe('when somebody dies', SUITE, () => {
  test('a worker that runs: those who follow hear that nobody knows how it ended', async () => {
    const session = g.session('dead-runner');
    const id = await detached(session, { code: `${HANDSHAKE}\nprint("begun")\nopen("/home/user/runs", "a").write("x")\nwait("go")` });
    const s = await session.follow(id);
    await s.until('stdout', 'begun');
    process.kill((await row(id)).pid, 'SIGKILL');
    const { event, data } = await s.end();
    assert.deepEqual([event, data.code, data.state, data.output], ['failed', 'completion_unknown', 'completion_unknown', 'begun\n']);
    assert.equal((await session.download('/home/user/runs')).text, 'x', 'it was not run again');
  });

  test('a worker that is followed through: its reader comes back and has all', async () => {
    const session = g.session('dead-reader');
    const id = await detached(session, { code: `${HANDSHAKE}\nprint("begun")\nwait("go")\nprint("end")` });
    const before = new Set(g.workers());
    const s = await session.follow(id);
    await s.until('stdout', 'begun');
    const runner = (await row(id)).pid;
    // The one that serves the stream is busy and does not run the execution.
    const busy = g.workers().filter((pid) => pid !== runner && fs.readdirSync(`/proc/${pid}/fd`).length > 0 && hasFile(pid, `${id}.head`));
    assert.equal(busy.length, 1, `${[...before]}`);
    process.kill(busy[0], 'SIGKILL');
    await s.end().catch(() => {});
    const again = await session.follow(id, `?after=${s.seen.at(-1).id}`);
    await go(session);
    await again.end().catch(() => {});
    assert.equal(s.text() + again.text(), 'begun\nend\n');
  });

  test('the sandbox: stopped under it, the stream says so', async () => {
    const session = g.session('stopped');
    const s = await session.stream({ code: `${HANDSHAKE}\nprint("begun")\nwait("go")` });
    await s.until('stdout', 'begun');
    assert.equal((await session.stop()).status, 204);
    const { event, data } = await s.end();
    assert.deepEqual([event, data.code, data.state, data.output], ['done', 'sandbox_stopped', 'failed', 'begun\n']);
  });
});

/** Whether a process has a file of this name open. */
function hasFile(pid, name) {
  try {
    return fs.readdirSync(`/proc/${pid}/fd`).some((fd) => {
      try {
        return fs.readlinkSync(`/proc/${pid}/fd/${fd}`).endsWith(name);
      } catch {
        return false;
      }
    });
  } catch {
    return false;
  }
}

describe('cancelling', SUITE, () => {
  test('interrupts code from another connection, keeps its state, and says so to all', async () => {
    const session = g.session('cancel');
    const plain = session.run({ code: 'x = 41\nprint("begun", flush=True)\nimport time\ntime.sleep(600)' });
    await g.printed('cancel', 'begun');
    const [{ execution_id }] = (await session.executions()).json.executions;
    const s = await session.follow(execution_id);
    const res = await session.cancel(execution_id);
    assert.deepEqual([res.status, res.json.state, res.json.cancelled_by], [200, 'cancelled', 'interrupt'], res.text);
    const answer = await plain;
    assertProblem(answer, 409, 'cancelled');
    assert.deepEqual([answer.json.output, answer.json.execution_id], ['begun\n', execution_id]);
    const { event, data } = await s.end();
    assert.deepEqual([event, data.state, data.code], ['done', 'cancelled', 'cancelled']);
    assert.equal((await session.execute('x + 1')).json.text, '42');
    assert.deepEqual((await session.cancel(execution_id)).json, res.json, 'again: as it is');
    const finished = (await session.execute('1')).json.execution_id;
    assert.deepEqual([(await session.cancel(finished)).status, (await row(finished)).state], [200, 'succeeded']);
  });

  test('restarts a context that does not heed it', async () => {
    const session = g.session('stubborn');
    const id = await detached(session, { code: 'x = 1\nprint("begun", flush=True)\nimport time\nwhile True:\n    try:\n        time.sleep(600)\n    except KeyboardInterrupt:\n        pass' });
    await g.printed('stubborn', 'begun');
    const res = await session.cancel(id);
    assert.deepEqual([res.status, res.json.cancelled_by], [200, 'restart'], res.text);
    assert.equal((await session.execute('"x" in globals()')).json.text, 'False');
    assert.equal((await session.status()).json.status, 'running');
  });

  test('one that waits for its turn never runs', async () => {
    const session = g.session('waiting');
    const first = await detached(session, { code: `${HANDSHAKE}\nprint("begun", flush=True)\nwait("go")` });
    await g.printed('waiting', 'begun');
    const second = await detached(session, { code: 'open("/home/user/second", "w").close()' });
    assert.equal((await session.execution(second)).json.state, 'queued');
    assert.equal((await session.cancel(second)).json.state, 'cancelled');
    await go(session);
    await ended(first);
    assert.equal((await row(first)).state, 'succeeded');
    await session.execute('1');
    assert.equal((await session.files('/home/user')).json.some((f) => f.path.endsWith('/second')), false);
  });
});

describe('room for others', SUITE, () => {
  test('detached runs and readers leave a quarter of the workers alone', async () => {
    const small = await startGateway({ engine, settings: { SANDGATE_EXEC_WORKERS_MAX: 4 } });
    try {
      const sessions = [1, 2, 3, 4].map((n) => small.session(`d${n}`));
      await Promise.all(sessions.map((s) => s.start()));
      for (const s of sessions.slice(0, 3)) assert.equal((await s.run({ code: 'import time\ntime.sleep(600)', detach: true })).status, 202);
      const refused = await sessions[3].run({ code: '1', detach: true });
      assertProblem(refused, 503, 'busy');
      assert.ok(refused.headers['retry-after']);
      assert.equal((await sessions[3].execute('print(1)')).json.output, '1\n', 'who waits for an answer has a place');
      await small.stopAll();
    } finally {
      await small.stop();
    }
  });
});
