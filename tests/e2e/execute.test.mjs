// Execute and install over the real nginx, gateway and engine: limits of time and of output, results, crashes, what is recorded.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { SUITE, sleep, startEngine, tempFolder, until } from './engine.mjs';
import { assertProblem, startGateway } from './gateway.mjs';
import { writeWheels } from './wheels.mjs';

const WHEELS = [
  ['sgt_plain', '1.0'],
  ['sgt_pinned', '1.0'],
  ['sgt_pinned', '1.1'],
  ['sgt_second', '2.0', 'sgt_needed'],
  ['sgt_needed', '2.5'],
  ['sgt_clean', '1.0'],
  ['sgt_custom', '1.0'],
];

let engine;

before(async () => {
  const dir = tempFolder();
  engine = await startEngine({ dir, args: ['--no-internet', '--wheelhouse', writeWheels(path.join(dir, 'wheelhouse'), WHEELS)] });
});
after(() => engine?.stop());

/** Answers 200 with success, or shows why not. */
function succeeded(res) {
  assert.equal(res.status, 200, res.text);
  assert.equal(res.json.success, true, res.text.slice(0, 4000));
  return res.json;
}

/** Code that adds a byte to a file every 20 ms for a minute. */
const BEAT = (file) => `import time
for _ in range(3000):
    with open(${JSON.stringify(file)}, "a") as f: f.write(".")
    time.sleep(0.02)`;

/** The size of a file in the sandbox: 0 when there is none. */
async function sizeOf(session, file) {
  const res = await session.download(file);
  return res.status === 200 ? res.body.length : 0;
}

/** Asserts that a file that grew 50 times a second grows no more. */
async function assertStill(session, file) {
  const size = await sizeOf(session, file);
  assert.ok(size > 0, `${file} never grew`);
  await sleep(500);
  assert.equal(await sizeOf(session, file), size, `${file} still grows`);
}

/** The execution's row. */
async function rowOf(g, id) {
  const [row] = await g.rows(`SELECT * FROM executions WHERE id = '${id}'`);
  return row;
}

/** The leases on a session's sandbox. */
const leases = (g, session) => g.rows(`SELECT l.* FROM leases l JOIN sandboxes s ON s.id = l.sandbox WHERE s.session_id = '${session}'`);

// Some suites run their tests at once, since most of that time is waiting.
describe('the limit of time', { ...SUITE, concurrency: true }, () => {
  let g;
  before(async () => (g = await startGateway({ engine, settings: { SANDGATE_EXECUTION_TIMEOUT_SECS: 2 } })));
  after(() => g?.stop());

  /** Asserts a 408 with what it must carry, and returns it. */
  function assertTimeout(res, output) {
    assertProblem(res, 408, 'execution_timeout', /^Timeout/);
    const r = res.json;
    assert.match(r.execution_id, /^x_[a-z0-9]{20}$/);
    assert.deepEqual([r.success, r.state, r.output, r.stdout], [false, 'timed_out', output, output]);
    assert.ok(r.execution_time_ms >= 2000, `it was cut after ${r.execution_time_ms} ms`);
    return r;
  }

  test('code that sleeps too long is interrupted, and the sandbox keeps its variables', async () => {
    const s = g.session('sleep');
    const { sandbox_id } = (await s.start()).json;
    await s.execute('kept = 41');
    const since = performance.now();
    const r = assertTimeout(await s.execute(`print("partial", flush=True)\n${BEAT('/home/user/beat')}`), 'partial\n');
    const ms = performance.now() - since;
    assert.ok(ms >= 2000 && ms < 6000, `answered after ${ms} ms`);
    assert.ok(r.execution_time_ms < 3500, `measured ${r.execution_time_ms} ms`);
    assert.deepEqual([r.generation, r.state_lost], [1, false]);
    assert.equal(succeeded(await s.execute('kept + 1')).output, '42\n', 'interrupted, not restarted');
    await assertStill(s, '/home/user/beat');
    assert.equal((await s.status()).json.sandbox_id, sandbox_id);
    const row = await rowOf(g, r.execution_id);
    assert.deepEqual([row.state, row.error_name, row.stdout_bytes], ['timed_out', 'execution_timeout', 8]);
    assert.deepEqual(await leases(g, 'sleep'), []);
  });

  test('code that swallows the interrupt costs the context, not the sandbox', async () => {
    const s = g.session('stubborn');
    const { sandbox_id } = (await s.start()).json;
    await s.execute('gone = 1');
    const r = assertTimeout(
      await s.execute('print("on", flush=True)\nimport time\nwhile True:\n    try: time.sleep(1)\n    except KeyboardInterrupt: pass'),
      'on\n',
    );
    assert.match(r.detail, /context was restarted and its variables are lost/);
    assert.equal(succeeded(await s.execute('1 + 1')).output, '2\n');
    assert.match((await s.execute('gone')).json.error, /NameError/, 'the context is a new one');
    assert.equal((await s.status()).json.sandbox_id, sandbox_id);
  });

  test('code that ends just in time is not cut', async () => {
    const s = g.session('in-time');
    await s.start();
    const r = succeeded(await s.execute('import time\ntime.sleep(1.3)\n"done"'));
    // The clock starts when the gateway hears that the code runs.
    assert.ok(r.execution_time_ms >= 1000 && r.execution_time_ms < 2000, `measured ${r.execution_time_ms} ms`);
  });

  test('a 408 is remembered for ten seconds: the same request runs nothing', async () => {
    const s = g.session('again');
    const code = 'with open("/home/user/runs", "a") as f: f.write("x")\nimport time\ntime.sleep(60)';
    const runs = () => sizeOf(s, '/home/user/runs');
    await s.start();
    const since = performance.now();
    const first = assertTimeout(await s.execute(code), '');
    const answered = performance.now();
    for (let i = 0; i < 3; i++) {
      const again = await s.execute(code);
      assertProblem(again, 408, 'execution_timeout', /^Timeout/);
      assert.equal(again.json.execution_id, first.execution_id);
      assert.notEqual(again.json.request_id, first.request_id);
      assert.deepEqual(Object.keys(again.json).sort(), Object.keys(first).sort());
    }
    assert.ok(performance.now() - answered < 2000, 'at once');
    assert.equal(await runs(), 1);
    const others = await Promise.all([
      s.execute(`${code}\n`), // another body
      g.session('again-2').execute(code),
      g.session('again', { token: await g.token('bob') }).execute(code),
    ]);
    const ids = new Set(others.map((r) => assertTimeout(r, '').execution_id).concat(first.execution_id));
    assert.equal(ids.size, 4);
    assert.equal(await runs(), 2);
    await sleep(Math.max(0, 10_500 - (performance.now() - answered)));
    assert.ok(performance.now() - since > 12_000);
    assert.notEqual(assertTimeout(await s.execute(code), '').execution_id, first.execution_id);
    assert.equal(await runs(), 3);
  });

  test('what succeeded is run again when it is sent again', async () => {
    const s = g.session('twice');
    await s.execute('n = 0');
    const code = 'n += 1\nn';
    assert.deepEqual([(await s.execute(code)).json.text, (await s.execute(code)).json.text], ['1', '2']);
  });
});

describe('turns', { ...SUITE, concurrency: true }, () => {
  let g;
  before(async () => (g = await startGateway({ engine, settings: { SANDGATE_EXECUTION_TIMEOUT_SECS: 3 } })));
  after(() => g?.stop());

  test('the second of two executes waits, and its limit counts from when it runs', async () => {
    const s = g.session('turns');
    await s.execute('import time\norder = []');
    const since = performance.now();
    const both = await Promise.all(['a', 'b'].map((n) => s.execute(`order.append("${n}")\ntime.sleep(2)\norder.append("${n}")`)));
    assert.ok(performance.now() - since >= 4000, 'one after the other');
    for (const res of both) {
      const ms = succeeded(res).execution_time_ms;
      assert.ok(ms >= 1700 && ms < 3000, `measured ${ms} ms`);
    }
    assert.match(succeeded(await s.execute('"".join(order)')).text, /^(aabb|bbaa)$/);
  });

  test('one that waited runs undisturbed after the limit of the one before', async () => {
    const s = g.session('limit-turns');
    await s.execute('import time\nkept = 5');
    const first = s.execute('time.sleep(60)');
    await until(async () => (await g.rows("SELECT 1 FROM executions WHERE session_id = 'limit-turns' AND state = 'running'")).length);
    const second = s.execute('time.sleep(2.5)\nkept');
    assert.equal((await first).status, 408);
    assert.equal(succeeded(await second).text, '5', 'neither interrupted nor restarted');
  });

  test('other sessions do not wait', async () => {
    const busy = g.session('busy');
    await Promise.all([busy.start(), g.session('free').start()]);
    const slow = busy.execute('import time\ntime.sleep(2.5)\n"slow"');
    let ended = false;
    slow.then(() => (ended = true));
    succeeded(await g.session('free').execute('1'));
    assert.equal(ended, false);
    succeeded(await slow);
  });
});

describe('a client that leaves', { ...SUITE, concurrency: true }, () => {
  let g;
  before(async () => (g = await startGateway({ engine })));
  after(() => g?.stop());

  /** Sends code and returns a function that drops the connection. */
  async function launch(session, code) {
    const req = http.request(g.url + session.base + '/execute', {
      method: 'POST',
      agent: false,
      headers: { authorization: `Bearer ${await g.token()}`, 'content-type': 'application/json' },
    });
    req.on('error', () => {});
    req.on('response', () => assert.fail('it answered'));
    req.end(JSON.stringify({ code }));
    return () => req.destroy();
  }

  const last = async (id) =>
    (await g.rows(`SELECT * FROM executions WHERE session_id = '${id}' ORDER BY seq DESC LIMIT 1`))[0];

  test('ends its run at once: the row says cancelled, the lease is gone, the next one does not wait', async () => {
    const s = g.session('leaver');
    await s.execute('kept = 7');
    const drop = await launch(s, `print("x", flush=True)\n${BEAT('/home/user/beat')}`);
    await until(() => sizeOf(s, '/home/user/beat'), { what: 'the first beat' });
    assert.equal((await leases(g, 'leaver')).length, 1);
    assert.equal((await last('leaver')).state, 'running');
    const left = Date.now();
    drop();
    const row = await until(async () => ((await last('leaver')).state !== 'running' ? last('leaver') : null), { what: 'the end of the run' });
    assert.deepEqual([row.state, row.error_name, row.stdout_bytes], ['cancelled', 'client_gone', 2]);
    assert.ok(row.ended_at / 1000 - left < 1500, `noticed after ${row.ended_at / 1000 - left} ms`);
    await until(async () => (await leases(g, 'leaver')).length === 0, { what: 'the end of the lease' });
    const since = performance.now();
    assert.equal(succeeded(await s.execute('kept')).text, '7', 'interrupted, not restarted');
    assert.ok(performance.now() - since < 5000, 'it did not wait');
    await assertStill(s, '/home/user/beat');
    await until(() => g.log().find((l) => l.op === 'execute' && l.status === '499'), { what: 'the line in the log' });
    const audit = await g.rows("SELECT outcome FROM audit WHERE target = 'leaver' AND action = 'execute' ORDER BY id");
    assert.deepEqual(
      audit.map((a) => a.outcome),
      ['ok', 'client_gone', 'ok'],
    );
  });

  test('while it waits for its turn: nothing of it runs, and the one that runs is not disturbed', async () => {
    const s = g.session('queue');
    await s.start();
    const running = s.execute('import time\ntime.sleep(2)\n"whole"');
    await until(async () => (await last('queue'))?.state === 'running', { what: 'the first run' });
    const drop = await launch(s, 'open("/home/user/never", "w")');
    await until(async () => (await leases(g, 'queue')).length === 2, { what: 'the second run' });
    drop();
    await until(async () => (await last('queue')).state === 'cancelled', { what: 'the end of the second' });
    assert.equal(succeeded(await running).text, 'whole');
    assertProblem(await s.download('/home/user/never'), 404, 'file_not_found');
  });

  test('and whose code swallows the interrupt does not block the next one', async () => {
    const s = g.session('stubborn');
    await s.start();
    const drop = await launch(
      s,
      'import time\nopen("/home/user/began", "w").write("x")\nwhile True:\n    try: time.sleep(1)\n    except KeyboardInterrupt: pass',
    );
    await until(() => sizeOf(s, '/home/user/began'), { what: 'the run' });
    drop();
    assert.equal(succeeded(await s.execute('1 + 1', { deadline: 30_000 })).text, '2');
  });
});

describe('what a run gives', SUITE, () => {
  let g;
  const OUTPUT = 4096;
  const ERROR = 1024;
  before(
    async () =>
      (g = await startGateway({
        engine,
        settings: { SANDGATE_OUTPUT_MAX_BYTES: OUTPUT, SANDGATE_ERROR_MAX_BYTES: ERROR },
      })),
  );
  after(() => g?.stop());

  const MISSING = /\n\[\.\.\. (\d+) bytes are missing here \.\.\.\]\n/;

  /** Asserts that a stream of known bytes was cut in the middle, and that the line names exactly what is missing. */
  function assertCut(text, bytes) {
    const [head, missing, tail] = text.split(MISSING);
    assert.ok(tail !== undefined, text.slice(0, 200));
    const [h, t] = [Buffer.from(head), Buffer.from(tail)];
    assert.ok(h.length > OUTPUT / 2 - 4 && h.length <= OUTPUT / 2, `head of ${h.length}`);
    assert.ok(t.length > OUTPUT / 2 - 4 && t.length <= OUTPUT / 2, `tail of ${t.length}`);
    assert.ok(h.equals(bytes.subarray(0, h.length)), 'the head');
    assert.ok(t.equals(bytes.subarray(bytes.length - t.length)), 'the tail');
    assert.equal(Number(missing), bytes.length - h.length - t.length);
  }

  // -------------------------------------------------------------------------------------------------------------- output

  test('output up to the limit is whole', async () => {
    const r = succeeded(await g.session('out').execute(`print("x" * ${OUTPUT - 1})`));
    assert.deepEqual([r.truncated, r.stdout_bytes, r.stdout.length], [false, OUTPUT, OUTPUT]);
    assert.equal(r.output, r.stdout);
  });

  test('one byte more is cut, and the line says so', async () => {
    const r = succeeded(await g.session('out').execute(`print("x" * ${OUTPUT})`));
    assert.deepEqual([r.truncated, r.stdout_bytes], [true, OUTPUT + 1]);
    assert.equal(r.stdout.match(MISSING)[1], '1');
  });

  test('long output is cut in the middle, each stream for itself', async () => {
    const r = succeeded(
      await g.session('out').execute(`import sys
for i in range(3000): print(i)
for i in range(2000): print(-i, file=sys.stderr)
"end"`),
    );
    const lines = (n, sign) => Buffer.from(Array.from({ length: n }, (_, i) => `${i ? sign : ''}${i}\n`).join(''));
    const [out, err] = [lines(3000, ''), lines(2000, '-')];
    assert.deepEqual([r.truncated, r.stdout_bytes, r.stderr_bytes], [true, out.length, err.length]);
    assertCut(r.stdout, out);
    assertCut(r.stderr, err);
    assert.equal(r.output, `${r.stdout}end\n`);
    assert.equal(r.error, null);
    const row = await rowOf(g, r.execution_id);
    assert.deepEqual([row.stdout_bytes, row.stderr_bytes], [out.length, err.length]);
  });

  test('a cut in the middle of a character breaks none', async () => {
    for (const [lead, char, count] of [
      ['', 'é', 5000],
      ['a', 'é', 5000],
      ['', '日', 4000],
      ['ab', '日', 4000],
      ['a', '😀', 3001],
      ['abc', '😀', 3001],
    ]) {
      const r = succeeded(await g.session('out').execute(`print(${JSON.stringify(lead + char)} + ${JSON.stringify(char)} * ${count}, end="")`));
      const whole = Buffer.from(lead + char.repeat(count + 1));
      assert.equal(r.stdout_bytes, whole.length);
      assertCut(r.stdout, whole);
      assert.ok(!r.stdout.includes('\ufffd'), `${lead}${char}: a broken character`);
    }
  });

  test('bytes that are no text', async () => {
    const s = g.session('out');
    const r = succeeded(await s.execute('import os\nfor i in range(64): _ = os.write(1, bytes(range(256)))'));
    assert.equal(r.truncated, true);
    assert.ok(r.stdout.startsWith('\0\x01\x02'), 'control characters survive');
    assert.ok(r.stdout.includes('~\x7f\ufffd\ufffd'));
    const [head, missing, tail] = r.stdout.split(MISSING);
    assert.ok(Math.abs(Buffer.byteLength(head) + Number(missing) + Buffer.byteLength(tail) - r.stdout_bytes) <= 6);
    const garbage = succeeded(await s.execute('import random, sys\nrandom.seed(5)\n_ = sys.stdout.buffer.write(random.randbytes(300_000))'));
    assert.equal(garbage.truncated, true);
    assert.ok(garbage.stdout_bytes >= 300_000);
    assert.ok(Buffer.byteLength(garbage.stdout) < 2 * OUTPUT);
  });

  test('100 MB of output neither fails nor grows a worker', async () => {
    const s = g.session('flood');
    await s.start();
    await s.execute('1');
    const peak = g.peak();
    const r = succeeded(
      await s.execute(`import sys
print("first")
line = "0123456789abcdef" * 4095 + "0123456789abcde\\n"
for i in range(1600): sys.stdout.write(line)
print("last")`),
    );
    const bytes = 6 + 1600 * 65536 + 5;
    assert.deepEqual([r.stdout_bytes, r.truncated], [bytes, true]);
    assert.ok(r.stdout.startsWith('first\n0123') && r.stdout.endsWith('cde\nlast\n'));
    assert.equal(Number(r.stdout.match(MISSING)[1]), bytes - OUTPUT);
    assert.ok(g.peak() - peak < 64, `a worker grew by ${(g.peak() - peak).toFixed(1)} MiB`);
    const log = fs.readdirSync(path.join(g.state, 'events')).filter((f) => f.startsWith(r.execution_id));
    assert.deepEqual(log.sort(), ['head', 'tail0', 'tail1'].map((p) => `${r.execution_id}.${p}`));
    for (const file of log) assert.ok(fs.statSync(path.join(g.state, 'events', file)).size <= 8 << 20);
    succeeded(await s.execute('1'));
  });

  test('a huge exception is cut', async () => {
    for (const value of ['"x" * 3_000_000', '"é" * 500_000', '"x" + "é" * 500_000']) {
      const res = await g.session('out').execute(`raise ValueError(${value})`);
      assert.equal(res.status, 200);
      assert.equal(res.json.success, false);
      assert.match(res.json.error, /^ValueError: x?[xé]+$/);
      const n = Buffer.byteLength(res.json.error);
      assert.ok(n > ERROR - 4 && n <= ERROR, `an error of ${n} bytes`);
      assert.equal(res.json.error_detail.name, 'ValueError');
    }
    succeeded(await g.session('out').execute('1'));
  });

  test('a result with a huge text is cut in the output', async () => {
    const r = succeeded(await g.session('out').execute('"y" * 100_000'));
    assert.equal(r.truncated, true);
    assert.ok(r.output.length <= OUTPUT + 1 && /^y+\n$/.test(r.output));
  });

  // -------------------------------------------------------------------------------------------------------------- results

  test('rich results, in their order, and the main one', async () => {
    const r = succeeded(
      await g.session('rich').execute(`from IPython.display import *
svg = "<svg xmlns='http://www.w3.org/2000/svg'><text>é</text></svg>"
print("printed")
display(HTML("<b>1</b>"), Markdown("*2*"))
display(SVG(svg))
display(JSON({"a": [1, {"b": None}]}))
display(Latex("$x$"))
40 + 2`),
    );
    assert.equal(r.output, 'printed\n42\n');
    assert.equal(r.text, '42');
    assert.deepEqual(
      r.results.map((x) => [['html', 'markdown', 'svg', 'json', 'latex'].filter((k) => k in x).join(), x.is_main_result]),
      [
        ['html', false],
        ['markdown', false],
        ['svg', false],
        ['json', false],
        ['latex', false],
        ['', true],
      ],
    );
    const [html, markdown, svg, json, latex] = r.results;
    assert.deepEqual([html.html, markdown.markdown, json.json, latex.latex], ['<b>1</b>', '*2*', { a: [1, { b: null }] }, '$x$']);
    assert.equal(r.artifacts.length, 1);
    const [kind, data] = r.artifacts[0].split(',');
    assert.equal(kind, 'data:image/svg+xml;base64');
    assert.equal(Buffer.from(data, 'base64').toString(), svg.svg);
    assert.match(svg.svg, /<text>é<\/text>/);
  });

  test('pictures are artifacts, larger than any limit of text', async () => {
    const r = succeeded(
      await g.session('rich').execute(`import base64, random
random.seed(1)
noise = base64.b64encode(b"\\xff\\xd8\\xff" + random.randbytes(600_000)).decode()
display({"image/jpeg": noise}, raw=True)
import matplotlib.pyplot as plt
_ = plt.plot([1, 2])
plt.show()`),
    );
    assert.deepEqual(
      r.artifacts.map((a) => a.split(',')[0]),
      ['data:image/jpeg;base64', 'data:image/png;base64'],
    );
    assert.equal(Buffer.from(r.artifacts[0].split(',')[1], 'base64').length, 600_003);
    assert.equal(Buffer.from(r.artifacts[1].split(',')[1], 'base64').subarray(1, 4).toString(), 'PNG');
    assert.deepEqual([r.results[0].jpeg, r.results[1].png], r.artifacts.map((a) => a.split(',')[1]));
    assert.equal(r.truncated, false);
  });

  test('a result without text adds nothing to the output', async () => {
    const s = g.session('rich');
    const r = succeeded(await s.execute('display({"text/html": "<i>only</i>"}, raw=True)'));
    assert.deepEqual([r.output, r.text, r.results[0].html, 'text' in r.results[0]], ['', null, '<i>only</i>', false]);
    assert.equal(succeeded(await s.execute('display("shown")')).output, '', 'what is only displayed is no main result');
    assert.deepEqual([succeeded(await s.execute('None')).output, succeeded(await s.execute('5;')).output], ['', '']);
    assert.equal(succeeded(await s.execute('""')).output, '\n', 'an empty text is one');
    assert.equal(succeeded(await s.execute('print("a")\n"b"')).output, 'a\nb\n');
  });

  // -------------------------------------------------------------------------------------------------------------- odd code

  test('a kernel that dies is told, and the next one works', async () => {
    const s = g.session('crash');
    const { sandbox_id } = (await s.start()).json;
    for (const end of ['os._exit(1)', 'os.kill(os.getpid(), 9)', 'import ctypes; ctypes.string_at(0)']) {
      await s.execute('x = 1');
      const res = await s.execute(`import os\nprint("before", flush=True)\n${end}`);
      assert.equal(res.status, 200, res.text);
      assert.deepEqual([res.json.success, res.json.state, res.json.stdout], [false, 'failed', 'before\n'], end);
      assert.match(res.json.error, /restarted/);
      assert.equal(succeeded(await s.execute('1 + 1')).output, '2\n', end);
      assert.match((await s.execute('x')).json.error, /NameError/);
    }
    assert.equal((await s.status()).json.sandbox_id, sandbox_id);
    assert.deepEqual(await leases(g, 'crash'), []);
  });

  test('sys.exit, a syntax error and input() are errors of the program', async () => {
    const s = g.session('odd');
    for (const [code, name] of [
      ['x = 5\nimport sys\nsys.exit(3)', 'SystemExit'],
      ['def f(:\n', 'SyntaxError'],
      ['input("name? ")', 'StdinNotImplementedError'],
      ['raise KeyboardInterrupt', 'KeyboardInterrupt'],
      ['def f(): f()\nf()', 'RecursionError'],
    ]) {
      const r = (await s.execute(code)).json;
      assert.deepEqual([r.success, r.state, r.error_detail?.name], [false, 'failed', name], code);
      assert.ok(r.error.startsWith(name) && !r.error.includes('\u001b'), r.error);
    }
    assert.equal(succeeded(await s.execute('x')).text, '5');
  });

  test('a thread that prints later prints into a later run', async () => {
    const s = g.session('odd');
    const now = succeeded(
      await s.execute('import threading, time\ndef f():\n    time.sleep(0.4)\n    print("late")\nt = threading.Thread(target=f)\nt.start()\nprint("now")'),
    );
    assert.equal(now.stdout, 'now\n');
    assert.equal(succeeded(await s.execute('t.join()\nprint("joined")')).stdout, 'late\njoined\n');
  });

  test('what a program writes itself, past Python, is output, too', async () => {
    const r = succeeded(await g.session('odd').execute('import subprocess\n_ = subprocess.run(["sh", "-c", "echo out; echo err >&2"])'));
    assert.deepEqual([r.stdout, r.stderr, r.error], ['out\n', 'err\n', null]);
  });

  test('code of 3 MiB', async () => {
    const text = 'é'.repeat(3 << 19);
    const r = succeeded(await g.session('odd').execute(`text = "${text}"\nimport hashlib\nhashlib.sha256(text.encode()).hexdigest()`));
    assert.equal(r.text, createHash('sha256').update(text).digest('hex'));
    const row = await rowOf(g, r.execution_id);
    assert.ok(row.input_bytes > 3 << 20);
    assert.ok(Buffer.byteLength(row.input) <= 4096 && Buffer.byteLength(row.input) > 4092);
    assert.match(row.input, /^text = "é+$/);
  });

  test('unicode, surrogates, NUL, CRLF and tabs', async () => {
    const s = g.session('odd');
    for (const [code, output] of [
      ['print("日本 😀 \u0301")\nπ = 3\nπ', '日本 😀 \u0301\n3\n'],
      ['print("\\ud800x")', '\ufffdx\n'],
      ['print("a\\0b")', 'a\0b\n'],
      ['if True:\r\n\tprint("a")\r\n\tprint("b")\r\n', 'a\nb\n'],
      ['if True:\n\tprint("tab")', 'tab\n'],
      ['print("\\r\\n\\t\\x1b[1mbold\\x1b[0m")', '\r\n\t\x1b[1mbold\x1b[0m\n'],
      ['\n\n\n', ''],
      ['# only a comment', ''],
    ])
      assert.equal(succeeded(await s.execute(code)).output, output, JSON.stringify(code));
    const raw = (body) => g.call('POST', `${s.base}/execute`, { headers: { 'content-type': 'application/json' }, body });
    assert.equal(succeeded(await raw('{"code":"print(ascii(\\"\\ud83d\\ude00\\"))"}')).stdout, "'\\U0001f600'\n");
    assert.equal(succeeded(await raw('{"code":"print(ascii(\\"\\ud83d\\"))"}')).stdout, "'\\ufffd'\n", 'half a pair is no character');
    assertProblem(await s.execute('print("a\0b")'), 400, 'bad_request', /NUL/);
  });

  // -------------------------------------------------------------------------------------------------------------- records

  /** The events of a log file: [sequence, type, payload]. */
  function events(id) {
    const bytes = fs.readFileSync(path.join(g.state, 'events', `${id}.head`));
    const found = [];
    for (let at = 0; at < bytes.length; ) {
      assert.equal(bytes.readUInt32LE(at), 0x45474453);
      const n = bytes.readUInt32LE(at + 28);
      found.push([Number(bytes.readBigUInt64LE(at + 8)), bytes.readUInt32LE(at + 24), bytes.subarray(at + 32, at + 32 + n).toString()]);
      at += 32 + n;
    }
    return found;
  }

  test('a run leaves its row, its events and a line of audit', async () => {
    const s = g.session('record');
    const code = 'import sys\nprint("one", flush=True)\nprint("two", file=sys.stderr, flush=True)\ndisplay(3)\nraise ValueError("four")';
    const res = await s.execute(code);
    const id = res.json.execution_id;
    const { seq, sandbox, pid, start, started_at, ended_at, request_hash, events: written, event_bytes, ...row } = await rowOf(g, id);
    assert.deepEqual(row, {
      id,
      owner: 'alice',
      session_id: 'record',
      generation: 1,
      kind: 'code',
      state: 'failed',
      input: code,
      input_bytes: code.length,
      exit_code: null,
      stdout_bytes: 4,
      stderr_bytes: 4,
      error_name: 'ValueError',
      context_id: '',
      cancel_at: 0,
      cancelled_by: '',
      lost_reason: '',
    });
    assert.ok(seq > 0 && sandbox > 0 && start > 0 && g.workers().includes(pid));
    assert.ok(started_at <= ended_at && Math.abs(ended_at / 1000 - Date.now()) < 60_000);
    assert.match(request_hash, /^[0-9a-f]{64}$/);

    const log = events(id);
    assert.equal(log.length, written);
    assert.ok(event_bytes > 0);
    assert.deepEqual(
      log.map(([number]) => number),
      log.map((_, i) => i + 1),
    );
    const STDOUT = 1;
    const STDERR = 2;
    const [RESULT, ERROR_EVENT, DONE] = [3, 4, 5];
    const text = (type) =>
      log
        .filter((e) => e[1] === type)
        .map((e) => e[2])
        .join('');
    assert.deepEqual([text(STDOUT), text(STDERR)], ['one\n', 'two\n']);
    assert.equal(JSON.parse(text(RESULT)).text, '3');
    assert.equal(JSON.parse(text(ERROR_EVENT)).value, 'four');
    const { execution_time_ms } = res.json;
    assert.deepEqual(log.at(-1).slice(1), [DONE, JSON.stringify({ state: 'failed', execution_time_ms, files_changed_count: 0, files_changed: [] })]);
    assert.equal(fs.statSync(path.join(g.state, 'events')).mode & 0o777, 0o700);
    assert.equal(fs.statSync(path.join(g.state, 'events', `${id}.head`)).mode & 0o777, 0o600);

    const audit = await g.rows(`SELECT user, action, target, outcome FROM audit WHERE request_id = '${res.headers['x-request-id']}'`);
    assert.deepEqual(audit, [{ user: 'alice', action: 'execute', target: 'record', outcome: 'ok' }]);
    assert.ok(!g.server.text.includes('ValueError'), 'neither code nor output is in the log');
  });
});

describe('install', { ...SUITE, concurrency: true }, () => {
  let g;
  before(async () => (g = await startGateway({ engine, settings: { SANDGATE_CUSTOM_TEMPLATE_ID: 'base' } })));
  after(() => g?.stop());

  test('install, then import in the kernel that already runs', async () => {
    const s = g.session('install');
    assert.match((await s.execute('import sgt_plain')).json.error, /ModuleNotFoundError/);
    const res = await s.install(['sgt_plain']);
    const r = succeeded(res);
    assert.deepEqual([r.exit_code, r.error, r.state, r.generation], [0, null, 'succeeded', 1]);
    assert.match(r.output, /Successfully installed sgt[-_]plain-1\.0/);
    assert.equal(succeeded(await s.execute('import sgt_plain\nsgt_plain.hello()')).text, 'hello from sgt_plain');
    const row = await rowOf(g, r.execution_id);
    assert.deepEqual([row.kind, row.state, row.input, row.exit_code], ['install', 'succeeded', 'sgt_plain', 0]);
    const audit = await g.rows(`SELECT action, outcome FROM audit WHERE request_id = '${res.headers['x-request-id']}'`);
    assert.deepEqual(audit, [{ action: 'install', outcome: 'ok' }]);
    assert.deepEqual(await leases(g, 'install'), []);
  });

  test('install starts a sandbox where there is none', async () => {
    const s = g.session('install-first');
    succeeded(await s.install(['sgt_plain']));
    assert.equal((await s.status()).json.status, 'running');
    assert.equal(succeeded(await s.execute('import sgt_plain\nsgt_plain.VERSION')).text, '1.0');
  });

  test('a version, two packages, and what they require', async () => {
    const s = g.session('install-version');
    succeeded(await s.install(['sgt_pinned==1.0', 'sgt-second>=2']));
    assert.equal(
      succeeded(await s.execute('import sgt_pinned, sgt_second, sgt_needed\nprint(sgt_pinned.VERSION, sgt_second.VERSION, sgt_needed.VERSION)')).stdout,
      '1.0 2.0 2.5\n',
    );
    succeeded(await s.install(['sgt_pinned>1.0,<2']));
    assert.equal(succeeded(await s.execute('import importlib\nimportlib.reload(sgt_pinned).VERSION')).text, '1.1');
    const none = await s.install(['sgt_pinned==9.9']);
    assert.equal(none.status, 200);
    assert.deepEqual([none.json.success, none.json.state], [false, 'failed']);
    assert.match(none.json.error, /sgt[-_]pinned==9\.9/);
  });

  test('an unknown package is 200 with success false and says so', async () => {
    const res = await g.session('install-unknown').install(['sgt_no_such_package']);
    assert.equal(res.status, 200, res.text);
    const r = res.json;
    assert.deepEqual([r.success, r.state, r.exit_code], [false, 'failed', 1]);
    assert.match(r.error, /No matching distribution found for sgt[-_]no[-_]such[-_]package/);
    assert.ok(!r.error.includes('\u001b'));
    const row = await rowOf(g, r.execution_id);
    assert.deepEqual([row.state, row.exit_code, row.error_name], ['failed', 1, 'NoSuchPackage']);
  });

  test('an empty list installs nothing and makes no sandbox', async () => {
    const s = g.session('install-nothing');
    const r = succeeded(await s.install([]));
    assert.deepEqual([r.output, r.error, r.artifacts], ['No packages to install', null, []]);
    assert.equal((await s.status()).json, null);
    assert.deepEqual(await g.rows("SELECT * FROM sandboxes WHERE session_id = 'install-nothing'"), []);
  });

  test('install leaves nothing in the namespace of the user', async () => {
    const s = g.session('install-clean');
    const names = async () => succeeded(await s.execute('print(*sorted(n for n in globals() if not n.startswith("_")))')).stdout;
    await s.execute('names = "mine"\nexec = print');
    const before = await names();
    succeeded(await s.install(['sgt_clean']));
    assert.equal(await names(), before);
    assert.equal(succeeded(await s.execute('names')).text, 'mine');
    assert.equal(succeeded(await s.execute('_')).text, 'mine', 'nor in the last result');
    assert.equal(succeeded(await s.execute('import sgt_clean\nsgt_clean.VERSION')).text, '1.0');
  });

  test('install waits for the run that is under way', async () => {
    const s = g.session('install-busy');
    await s.start();
    const running = s.execute('import time\ntime.sleep(1.5)\n"whole"');
    await until(async () => (await leases(g, 'install-busy')).length > 0, { what: 'the run' });
    succeeded(await s.install(['sgt_clean']));
    assert.equal(succeeded(await running).text, 'whole');
  });

  test('a custom sandbox: install works without an interpreter, code is 409', async () => {
    const s = g.session('install-custom');
    assert.equal((await s.start({ sandbox_type: 'custom' })).json.sandbox_type, 'custom');
    const r = succeeded(await s.install(['sgt_custom']));
    assert.equal(r.exit_code, 0);
    assert.match(r.output, /Successfully installed sgt[-_]custom-1\.0/);
    const res = await s.execute('1');
    assertProblem(res, 409, 'no_interpreter', /^No interpreter.*command/);
    assert.match(res.json.execution_id, /^x_/);
    assert.equal((await rowOf(g, res.json.execution_id)).error_name, 'no_interpreter');
  });
});
