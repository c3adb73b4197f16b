// Live output: what a client that reads a stream sees, when it sees it, and what its slowness or departure does.
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { SUITE, sleep, startEngine, until } from './engine.mjs';
import { assertProblem, startGateway } from './gateway.mjs';
import { assertWhole } from './sse.mjs';

const SSE = { accept: 'text/event-stream' };
/** Goes on when a file of this name is there: only a client that has seen what was printed before can make it. */
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

const state = async (id) => (await g.rows(`SELECT state FROM executions WHERE id = '${id}'`))[0]?.state;
const ended = (id, what = 'its end') => until(async () => !['queued', 'running'].includes(await state(id)), { deadline: 60_000, what });

describe('a stream', SUITE, () => {
  test('has started, the output, the result and one last event, numbered from 1', async () => {
    const s = await g.session('order').stream({ code: 'import sys\nprint("out")\nprint("err", file=sys.stderr)\n20 + 1' });
    assert.equal(s.res.headers['cache-control'], 'no-store');
    assert.equal(s.res.headers['x-accel-buffering'], undefined);
    const last = await s.end();
    assert.deepEqual(s.seen.map((e) => e.event), ['started', 'stdout', 'stderr', 'result', 'done']);
    const [started, out, err, result] = s.seen.map((e) => e.data);
    assert.deepEqual([out, err], [{ text: 'out\n' }, { text: 'err\n' }]);
    assert.deepEqual(result, { text: '21', extra: {}, is_main_result: true });
    assert.deepEqual([started.generation, started.state_lost], [1, false]);
    const { data } = last;
    assert.deepEqual([data.success, data.output, data.execution_id, data.state], [true, 'out\n21\n', started.execution_id, 'succeeded']);
  });

  test('is live: each line is there before the next one is printed', async () => {
    const session = g.session('live');
    const s = await session.stream({ code: `${HANDSHAKE}\nfor i in range(5):\n    print("line", i)\n    wait(f"seen{i}")\nprint("end")` });
    for (let i = 0; i < 5; i++) {
      await s.until('stdout', `line ${i}`);
      assert.equal((await session.upload(`seen${i}`, 'x', '/home/user')).status, 200);
    }
    assert.equal((await s.end()).data.output, 'line 0\nline 1\nline 2\nline 3\nline 4\nend\n');
  });

  test('of a failing program has the error, and its done says that it failed', async () => {
    const s = await g.session('error').stream({ code: 'print("before")\n1/0' });
    const { event, data } = await s.end();
    assert.deepEqual([event, data.success, data.state], ['done', false, 'failed']);
    const error = s.seen.find((e) => e.event === 'error').data;
    assert.deepEqual([error.name, error.value], ['ZeroDivisionError', 'division by zero']);
    assert.match(error.traceback, /ZeroDivisionError/);
  });

  test('of a command has its streams apart and its exit status', async () => {
    const s = await g.session('command').stream({ command: 'echo out; echo err >&2; exit 3' });
    const { data } = await s.end();
    assert.deepEqual([s.text('stdout'), s.text('stderr'), data.exit_code, data.success, data.error], ['out\n', 'err\n', 3, false, 'err']);
  });

  test('a character that is cut between two pieces arrives whole', async () => {
    const s = await g.session('utf8').stream({ command: String.raw`printf 'a\xc3'; sleep 0.3; printf '\xa9\xf0\x9f'; sleep 0.3; printf '\x98\x80.\xe2\x82'` });
    const { data } = await s.end();
    assert.deepEqual(s.seen.filter((e) => e.event === 'stdout').map((e) => e.data.text), ['a', 'é', '😀.', '\ufffd']);
    assert.deepEqual([data.stdout, data.stdout_bytes], ['aé😀.\ufffd', 10]);
  });

  test('two of them in one session: the second says that it waits, and then runs', async () => {
    const session = g.session('queue');
    const one = await session.stream({ code: `${HANDSHAKE}\nprint("one")\nwait("go")` });
    await one.until('stdout', 'one');
    const two = await session.stream({ code: 'print("two")' });
    assert.deepEqual((await two.until('queued')).data, { position: 1, wait_secs: 0 });
    assert.equal((await session.upload('go', 'x', '/home/user')).status, 200);
    assert.equal((await one.end()).event, 'done');
    assert.equal((await two.end()).data.output, 'two\n');
    assert.deepEqual(two.seen.map((e) => e.event), ['queued', 'started', 'stdout', 'done']);
  });

  test('of an installation has what pip says as it says it', async () => {
    const res = await g.open('POST', `${g.session('pip').base}/install`, { json: { packages: ['numpy'] }, headers: SSE, deadline: 120_000 });
    assert.equal(res.status, 200);
    const text = Buffer.concat(await res.toArray()).toString();
    assert.match(text, /event: stdout\ndata: \{"text":"Requirement already satisfied: numpy/);
    assert.match(text, /event: done\ndata: \{"success":true/);
  });

  test('says that older state is gone', async () => {
    const session = g.session('lost');
    const { sandbox_id } = (await session.start()).json;
    await g.ctl('kill', sandbox_id);
    const s = await session.stream({ code: '1' });
    const { data } = await s.end();
    const [started] = s.seen;
    assert.deepEqual([started.data.state_lost, started.data.reason, started.data.generation], [true, 'killed_by_admin', 2]);
    assert.deepEqual([data.state_lost, data.reason], [true, 'killed_by_admin']);
    assert.equal((await session.execute('1')).json.state_lost, false, 'it is told once');
  });

  test('what is wrong before it runs is an ordinary error', async () => {
    const session = g.session('bad');
    for (const [json, code] of [
      [{}, 'bad_request'],
      [{ code: 'x', command: 'y' }, 'bad_request'],
      [{ code: 1 }, 'bad_request'],
      [{ code: '1', timeout_secs: 0 }, 'bad_request'],
      [{ code: '1', timeout_secs: 301 }, 'bad_request'],
      [{ code: '1', timeout_secs: '5' }, 'bad_request'],
      [{ code: '1', timeout_secs: 1e99 }, 'bad_request'],
      [{ code: '1', detach: 1 }, 'bad_request'],
      [{ code: '1', language: 'python', context_id: 'x' }, undefined],
      [{ code: '1', language: 'r', context_id: 'x' }, 'bad_request'],
      [{ command: 'ls', language: 'bash' }, 'bad_request'],
      [{ command: 'ls', cwd: 'relative' }, 'bad_path'],
      [{ code: '1', envs: { 'a b': 'x' } }, 'bad_request'],
      [{ code: '1', envs: { A: 1 } }, 'bad_request'],
    ]) {
      if (!code) continue;
      assertProblem(await session.run(json, { headers: SSE }), 400, code);
    }
  });
});

describe('limits', SUITE, () => {
  test('timeout_secs ends it with done and timed_out, and the state is kept', async () => {
    const session = g.session('limit');
    const s = await session.stream({ code: 'x = 41\nprint("begun")\nimport time\ntime.sleep(600)', timeout_secs: 1 });
    const { event, data } = await s.end();
    assert.deepEqual([event, data.state, data.code, data.output], ['done', 'timed_out', 'execution_timeout', 'begun\n']);
    assert.match(data.detail, /limit of 1 s/);
    assert.equal((await session.execute('x + 1')).json.text, '42');
    assertProblem(await session.run({ code: 'import time\ntime.sleep(600)', timeout_secs: 1 }), 408, 'execution_timeout', /limit of 1 s/);
  });

  test('a reader that does not read slows its program, fills no memory and holds no deadline', async () => {
    const session = g.session('slow');
    await session.start();
    const code = 'import os\nfor i in range(3000):\n    print("x" * 99_999)\nopen("/home/user/finished", "w").close()';
    const s = await session.stream({ code, timeout_secs: 6 });
    const { execution_id } = (await s.until('started')).data;
    s.res.pause();
    const peak = g.peak();
    assert.equal((await g.session('other').execute('print(1)')).json.output, '1\n', 'others are not held up');
    await ended(execution_id, 'its limit');
    assert.equal(await state(execution_id), 'timed_out');
    assert.ok(g.peak() - peak < 24, `a worker grew by ${g.peak() - peak} MiB`);
    const { data } = await s.end();
    assert.equal(data.state, 'timed_out');
    assert.equal(s.text().length, data.stdout_bytes, 'what it read at last is all there was');
    assert.equal((await session.files('/home/user')).json.some((f) => f.path.endsWith('/finished')), false);
  });

  test('100 MB of output arrive whole, and no worker grows', async () => {
    const session = g.session('much');
    await session.start();
    const peak = g.peak();
    const s = await session.stream({ code: 'for i in range(1000):\n    print(f"{i:09}" + "y" * 99_990)' });
    let bytes = 0;
    let lines = 0;
    for (let e = await s.next(); e; e = await s.next()) {
      s.seen = s.seen.slice(-2);
      if (e.event !== 'stdout') continue;
      bytes += e.data.text.length;
      lines += e.data.text.split('\n').length - 1;
    }
    assert.deepEqual([bytes, lines], [100_000_000, 1000]);
    const { data } = s.seen.at(-1);
    assert.deepEqual([data.stdout_bytes, data.truncated], [100_000_000, true]);
    assert.ok(g.peak() - peak < 24, `a worker grew by ${g.peak() - peak} MiB`);
  });
});

describe('a client that leaves', SUITE, () => {
  const CODE = `${HANDSHAKE}\nprint("begun")\ntry:\n    wait("never")\nexcept KeyboardInterrupt:\n    open("/home/user/interrupted", "w").close()\n    raise`;

  test('interrupts its run', async () => {
    const session = g.session('leaves');
    const s = await session.stream({ code: CODE });
    const { execution_id } = (await s.until('started')).data;
    await s.until('stdout', 'begun');
    s.leave();
    await ended(execution_id);
    assert.equal(await state(execution_id), 'cancelled');
    await until(async () => (await session.files('/home/user')).json.some((f) => f.path.endsWith('/interrupted')), { what: 'the interrupt' });
  });

  test('does not when it is detached, and another reads the rest', async () => {
    const session = g.session('detached');
    const s = await session.stream({ code: `${HANDSHAKE}\nprint("begun")\nwait("go")\nprint("end")`, detach: true });
    const { execution_id } = (await s.until('started')).data;
    await s.until('stdout', 'begun');
    s.leave();
    const other = await session.follow(execution_id);
    await other.until('stdout', 'begun');
    assert.equal((await session.upload('go', 'x', '/home/user')).status, 200);
    assert.equal((await other.end()).data.output, 'begun\nend\n');
    assert.equal(await state(execution_id), 'succeeded');
  });

  test('without a stream detach answers 202 with the id at once', async () => {
    const session = g.session('id');
    await session.start();
    const res = await session.run({ code: `${HANDSHAKE}\nwait("go")\nprint("end")`, detach: true });
    assert.equal(res.status, 202);
    assert.deepEqual(Object.keys(res.json), ['execution_id']);
    assert.equal(await state(res.json.execution_id), 'running');
    assert.equal((await session.upload('go', 'x', '/home/user')).status, 200);
    await ended(res.json.execution_id);
    const { result, ...execution } = (await session.execution(res.json.execution_id)).json;
    assert.deepEqual([execution.state, result.output], ['succeeded', 'end\n']);
  });
});

test('every stream of every kind is whole', SUITE, async () => {
  const session = g.session('kinds');
  for (const json of [{ code: '' }, { code: 'raise SystemExit' }, { command: 'true' }, { command: 'kill -9 $$' }, { code: 'def' }]) {
    const s = await session.stream(json);
    await s.end();
    const again = await session.follow(s.seen[0].data.execution_id);
    const last = await again.end();
    assertWhole(again.seen);
    assert.deepEqual(again.seen.slice(0, -1), s.seen.slice(0, -1), 'a replay is what was streamed');
    assert.equal(last.id, s.seen.at(-1).id);
    await sleep(1);
  }
});
