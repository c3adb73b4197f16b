// The code interpreter: runs, results, errors, contexts, languages, and kernels that misbehave.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { SUITE, assertError, fails, lines, output, python, sleep, startEngine, until, within } from './engine.mjs';

const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==';
// Names under which the protocol reports that a run was lost with its kernel.
const LOST = ['UnexpectedEndOfExecution', 'ContextRestarting', 'ExecutionAborted', 'WebSocketError'];

let engine;
let sandbox;

/** A sandbox for one test alone, killed after it. */
async function own(t, opts) {
  const box = await engine.create(undefined, opts);
  t.after(() => box.kill());
  return box;
}

/** A context for one test alone: its variables meet nobody else's. */
async function fresh(t, box = sandbox) {
  const context = await box.createCodeContext();
  t.after(() => box.removeCodeContext(context).catch(() => {}));
  return { context };
}

/** Every line of a run, as on the wire. */
async function wire(message, { box = sandbox, ...options } = {}) {
  const res = await engine.execute(box, message, options);
  assert.equal(res.status, 200);
  const all = [];
  for await (const line of lines(res)) all.push(line);
  return all;
}

/** Starts a run and leaves as soon as it printed something. */
async function abandon(message, box = sandbox) {
  const res = await engine.execute(box, message);
  for await (const line of lines(res)) if (line.type === 'stdout') break;
  res.drop();
}

const post = (target, body, box = sandbox) =>
  engine.interpreter(box, 'POST', target, { body, headers: { 'content-type': 'application/json' } });

describe('interpreter', SUITE, () => {
  before(async () => {
    engine = await startEngine();
    sandbox = await engine.create(undefined, { envs: { GLOBAL: 'from the sandbox' } });
  });
  after(() => engine?.stop());

  // ------------------------------------------------------------------------------------------------------------ plain runs

  test('the lines of a run, in their order', async (t) => {
    const { context } = await fresh(t);
    const all = await wire({ code: 'import sys\nprint("a")\nprint("b", file=sys.stderr)\nprint("c")\n40 + 2', context_id: context.id });
    assert.deepEqual(all[0], { type: 'number_of_executions', execution_count: 1 });
    assert.deepEqual(all.at(-1), { type: 'end_of_execution' });
    const outputs = all.filter((l) => l.type === 'stdout' || l.type === 'stderr');
    assert.deepEqual(
      outputs.map((l) => [l.type, l.text.trim()]),
      [
        ['stdout', 'a'],
        ['stderr', 'b'],
        ['stdout', 'c'],
      ],
    );
    for (const l of outputs) if (l.timestamp !== undefined) assert.ok(Math.abs(Date.parse(l.timestamp) - Date.now()) < 60_000, l.timestamp);
    assert.deepEqual(
      all.filter((l) => l.type === 'result'),
      [{ type: 'result', text: '42', extra: {}, is_main_result: true }],
    );
  });

  test('text, logs and the execution count by the SDK', async (t) => {
    const opts = await fresh(t);
    const run = await sandbox.runCode('import sys; print("out"); print("err", file=sys.stderr); "value"', opts);
    assert.deepEqual(
      [run.text, run.logs.stdout.join(''), run.logs.stderr.join(''), run.error, run.executionCount],
      ['value', 'out\n', 'err\n', undefined, 1],
    );
    assert.equal((await sandbox.runCode('1', opts)).executionCount, 2);
    const silent = await sandbox.runCode('x = 1', opts);
    assert.deepEqual([silent.text, silent.results.length, silent.logs.stdout.length], [undefined, 0, 0]);
    for (const nothing of ['', '   ', '\n\n', '# only a comment']) assert.equal((await sandbox.runCode(nothing, opts)).error, undefined);
  });

  test('state is kept between runs, _ and Out, too', async (t) => {
    const opts = await fresh(t);
    await python(sandbox, 'def f(n): return n * 2\nx = 5', opts);
    assert.equal(await python(sandbox, 'f(x)', opts), '10');
    assert.equal(await python(sandbox, '_ + 1', opts), '11');
    assert.equal(await python(sandbox, 'Out[2]', opts), '10');
    assert.equal(await python(sandbox, 'x = 1; x;', opts), '', 'a semicolon hides the result');
  });

  test('unicode, on an ASCII wire', async () => {
    const text = 'grüße € 日本語 😀 \u2028';
    assert.equal(await python(sandbox, `print(${JSON.stringify(text)}, end="")`), text.trim());
    const res = await engine.execute(sandbox, { code: 'print("ü😀")' });
    const bytes = Buffer.concat(await res.toArray());
    assert.ok(
      bytes.every((b) => b < 0x80),
      'the SDK decodes each chunk by itself',
    );
    assert.ok(bytes.toString().endsWith('\n') && !bytes.toString().includes('\n\n'));
    const lone = await sandbox.runCode('print("\\ud800 alone")');
    assert.ok(lone.error === undefined || lone.error.name === 'UnicodeEncodeError');
    assert.equal(await python(sandbox, '"after"'), 'after');
  });

  test('a long line, NULs and control characters', async () => {
    const run = await sandbox.runCode('print("x" * 3_000_000); print("a\\0b\\x1b[31mc\\r\\x07")');
    assert.equal(run.logs.stdout.join(''), `${'x'.repeat(3_000_000)}\na\0b\x1b[31mc\r\x07\n`);
  });

  test('output arrives while the code still runs', async () => {
    const seen = [];
    const from = performance.now();
    await sandbox.runCode('import time\nprint("one")\ntime.sleep(1.5)\nprint("two")', {
      onStdout: (o) => seen.push([o.line.trim(), performance.now() - from]),
    });
    const texts = seen.filter(([text]) => text);
    assert.deepEqual(
      texts.map(([text]) => text),
      ['one', 'two'],
    );
    assert.ok(texts[1][1] - texts[0][1] > 1000, `only ${texts[1][1] - texts[0][1]} ms apart`);
  });

  test('callbacks for every kind', async () => {
    const seen = [];
    await sandbox.runCode('import sys\nprint("o")\nprint("e", file=sys.stderr)\ndisplay(1)\nraise ValueError("v")', {
      onStdout: (o) => seen.push(['stdout', o.line.trim()]),
      onStderr: (o) => seen.push(['stderr', o.line.trim()]),
      onResult: (r) => seen.push(['result', r.text]),
      onError: (e) => seen.push(['error', e.name]),
    });
    assert.deepEqual(
      seen.filter(([, text]) => text),
      [
        ['stdout', 'o'],
        ['stderr', 'e'],
        ['result', '1'],
        ['error', 'ValueError'],
      ],
    );
  });

  test('headers come at once, keepalives in silence', async (t) => {
    const box = await own(t);
    const from = performance.now();
    const res = await engine.execute(box, { code: 'import time; time.sleep(6.5)' });
    assert.ok(performance.now() - from < 4_000, 'the head waited for the code');
    const types = [];
    for await (const line of lines(res)) types.push(line.type);
    assert.ok(types.includes('keepalive'), types.join());
    assert.equal(types.at(-1), 'end_of_execution');
  });

  // ------------------------------------------------------------------------------------------------------------ IPython

  test('await at the top level', async () => {
    assert.equal(await python(sandbox, 'import asyncio\nawait asyncio.sleep(0.01)\n"awaited"'), 'awaited');
    assert.equal(
      await python(sandbox, 'async def g():\n    await asyncio.sleep(0)\n    return 9\nawait asyncio.gather(g(), g())'),
      '[9, 9]',
    );
  });

  test('shell commands and magics', async (t) => {
    const opts = await fresh(t);
    assert.equal(await python(sandbox, '!echo from the shell', opts), 'from the shell');
    assert.equal(await python(sandbox, 'files = !printf "a\\nb\\n"\nlist(files)', opts), "['a', 'b']");
    assert.equal(await python(sandbox, 'name = "me"\n!echo hello {name} $name', opts), 'hello me me');
    assert.equal(await python(sandbox, '%pwd', opts), '/home/user');
    assert.equal(await python(sandbox, '%%bash\necho in bash\ncd /tmp; pwd', opts), 'in bash\n/tmp');
    assert.equal(await python(sandbox, '%env MAGIC=set\nimport os\nos.environ["MAGIC"]', opts).then((s) => s.endsWith('set')), true);
    assert.equal(await python(sandbox, '%%capture cap\nprint("hidden")', opts), '');
    assert.equal(await python(sandbox, 'print(cap.stdout)', opts), 'hidden');
    await python(sandbox, '%%writefile /tmp/w.txt\ncontent', opts);
    assert.equal(await sandbox.files.read('/tmp/w.txt'), 'content\n');
    const wrong = await sandbox.runCode('%no_such_magic', opts);
    assert.match(wrong.logs.stderr.join('') + (wrong.error?.value ?? ''), /no_such_magic/);
    const help = await sandbox.runCode('len?', opts);
    assert.equal(help.error, undefined);
  });

  test('input() fails at once instead of waiting for ever', async () => {
    const run = await within(15_000, sandbox.runCode('input("name? ")'), 'input()');
    assert.ok(run.error, 'nobody can answer');
    assert.equal(await python(sandbox, '"after"'), 'after');
  });

  // ------------------------------------------------------------------------------------------------------------ results

  test('results of every type', async () => {
    const b64 = Buffer.from('%PDF-1.4').toString('base64');
    const cases = {
      html: ['HTML("<b>x</b>")', '<b>x</b>'],
      markdown: ['Markdown("# x")', '# x'],
      latex: ['Latex("$x$")', '$x$'],
      svg: ['SVG("<svg xmlns=\\"http://www.w3.org/2000/svg\\"></svg>")', /^<svg/],
      json: ['JSON({"a": [1, None]})', { a: [1, null] }],
      javascript: ['Javascript("alert(1)")', 'alert(1)'],
      png: [`Image(data=base64.b64decode("${PNG}"), format="png")`, PNG],
    };
    for (const [key, [code, expected]] of Object.entries(cases)) {
      const run = await sandbox.runCode(`import base64\nfrom IPython.display import *\n${code}`);
      assert.equal(run.error, undefined, run.error?.traceback);
      const [result] = run.results;
      assert.equal(result.isMainResult, true);
      const value = key === 'png' ? result[key].replace(/\n/g, '') : result[key];
      if (expected instanceof RegExp) assert.match(value, expected);
      else assert.deepEqual(value, expected, key);
      assert.ok(result.formats().includes(key));
    }
    const raw = [
      ['image/jpeg', 'jpeg', '/9j/AAA='],
      ['application/pdf', 'pdf', b64],
      ['text/html', 'html', '<i>y</i>'],
      ['image/svg+xml', 'svg', '<svg/>'],
    ];
    for (const [mime, key, value] of raw) {
      const all = await wire({
        code: `from IPython.display import display\ndisplay({"${mime}": "${value}", "text/plain": "t"}, raw=True)`,
      });
      const [result] = all.filter((l) => l.type === 'result');
      assert.deepEqual([result[key], result.text, result.is_main_result, result.extra], [value, 't', false, {}], mime);
    }
    const [other] = (await wire({ code: 'display({"application/x-own": "mine", "text/plain": "t"}, raw=True)' })).filter(
      (l) => l.type === 'result',
    );
    assert.deepEqual(other.extra, { 'application/x-own': 'mine' });
  });

  test('display and the main result keep their order and their mark', async () => {
    const run = await sandbox.runCode('display(1)\ndisplay("two")\n3');
    assert.deepEqual(
      run.results.map((r) => [r.text, r.isMainResult]),
      [
        ['1', false],
        ['two', false],
        ['3', true],
      ],
    );
    assert.equal(run.text, '3');
  });

  test('one pair of outer quotes is taken off the text', async () => {
    for (const [code, text] of [
      ["'plain'", 'plain'],
      ['"it\'s"', "it's"],
      ['\'"quoted"\'', '"quoted"'],
      ["b'x'", "b'x'"],
      ["['a']", "['a']"],
      ["''", ''],
    ])
      assert.equal((await sandbox.runCode(code)).text, text, code);
  });

  test('objects with their own representations', async () => {
    const run = await sandbox.runCode(
      'class R:\n    def _repr_html_(self): return "<u>r</u>"\n    def _repr_markdown_(self): return "**r**"\n    def __repr__(self): return "R!"\nR()',
    );
    assert.deepEqual([run.results[0].html, run.results[0].markdown, run.results[0].text], ['<u>r</u>', '**r**', 'R!']);
    const broken = await sandbox.runCode('class B:\n    def __repr__(self): raise ValueError("no repr")\nB()');
    assert.match(JSON.stringify(broken), /no repr/);
    assert.equal(await python(sandbox, '"after"'), 'after');
  });

  test('a DataFrame as data, html and text', async () => {
    const run = await sandbox.runCode(
      'import pandas as pd\npd.DataFrame({"n": [1, 2], "s": ["a", "ü"], "t": pd.to_datetime(["2024-01-02", "2024-01-03 04:05:06"]), "f": [0.5, float("nan")]})',
    );
    assert.equal(run.error, undefined, run.error?.traceback);
    const [{ data, html, text }] = run.results;
    assert.deepEqual(
      [data.n, data.s],
      [
        [1, 2],
        ['a', 'ü'],
      ],
    );
    assert.deepEqual(
      data.t.map((t) => Date.parse(/Z|\+/.test(t) ? t : `${t}Z`)),
      [Date.UTC(2024, 0, 2), Date.UTC(2024, 0, 3, 4, 5, 6)],
    );
    assert.equal(data.f[0], 0.5);
    assert.match(html, /<table/);
    assert.match(text, /2024-01-02/);
  });

  test('figures as PNG: shown, returned, several', async (t) => {
    const opts = await fresh(t);
    const isPng = (result) => assert.equal(Buffer.from(result.png, 'base64').subarray(1, 4).toString(), 'PNG');
    const shown = await sandbox.runCode('import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nplt.show()', opts);
    assert.equal(shown.error, undefined, shown.error?.traceback);
    const pictures = shown.results.filter((r) => r.png);
    assert.equal(pictures.length, 1);
    isPng(pictures[0]);
    assert.equal(pictures[0].isMainResult, false);
    assert.match(pictures[0].text, /^<Figure size \d+x\d+ with 1 Axes>$/);
    const unshown = await sandbox.runCode('plt.plot([3, 1])\nNone', opts);
    assert.equal(unshown.results.filter((r) => r.png).length, 1, 'an open figure is shown at the end of the run');
    const two = await sandbox.runCode('for i in range(2):\n    plt.figure(); plt.plot([i]); plt.show()', opts);
    assert.equal(two.results.filter((r) => r.png).length, 2);
    const none = await sandbox.runCode('1', opts);
    assert.equal(none.results.filter((r) => r.png).length, 0, 'a figure is shown once');
  });

  test('the libraries are there', async () => {
    const code = [
      'import numpy, pandas, matplotlib, scipy.stats, sklearn.linear_model, requests',
      'x = numpy.arange(10).reshape(-1, 1)',
      'model = sklearn.linear_model.LinearRegression().fit(x, 3 * x.ravel() + 1)',
      'print(round(float(model.coef_[0]), 6), round(float(scipy.stats.norm.cdf(0)), 3), pandas.Series([1, 2]).sum(), requests.__name__)',
    ].join('\n');
    assert.equal(await python(sandbox, code, { timeoutMs: 120_000 }), '3.0 0.5 3 requests');
  });

  // ------------------------------------------------------------------------------------------------------------ errors

  test('an error has a name, a value and a coloured traceback', async (t) => {
    const opts = await fresh(t);
    const run = await sandbox.runCode('print("before")\ndef inner():\n    return 1 / 0\ninner()\nprint("never")', opts);
    assert.deepEqual([run.error.name, run.error.value, run.logs.stdout.join('')], ['ZeroDivisionError', 'division by zero', 'before\n']);
    assert.match(run.error.traceback, /inner/);
    assert.match(run.error.traceback, /\x1b\[/, 'with ANSI colours');
    assert.equal(typeof run.error.traceback, 'string');
    assert.equal((await wire({ code: '1/0', context_id: opts.context.id })).filter((l) => l.type === 'error').length, 1);
    for (const [code, name] of [
      ['x = (', 'SyntaxError'],
      ['  x = 1\n y = 2', 'IndentationError'],
      ['undefined_name', 'NameError'],
      ['import no_such_module', 'ModuleNotFoundError'],
      ['raise KeyError("k")', 'KeyError'],
      ['class E(Exception): pass\nraise E("own")', 'E'],
      ['raise KeyboardInterrupt', 'KeyboardInterrupt'],
      ['def r(): r()\nr()', 'RecursionError'],
    ])
      assert.match((await sandbox.runCode(code, opts)).error?.name ?? '', new RegExp(`^(_Incomplete)?${name}`), code);
    assert.equal(await python(sandbox, '"still here"', opts), 'still here');
  });

  test('exit() does not take the sandbox with it', async (t) => {
    const box = await own(t);
    await within(
      20_000,
      box.runCode('exit()').catch(() => {}),
      'exit()',
    );
    await within(
      20_000,
      box.runCode('raise SystemExit(3)').catch(() => {}),
      'SystemExit',
    );
    assert.equal(await within(20_000, python(box, '"alive"')), 'alive');
  });

  // ------------------------------------------------------------------------------------------------------------ environment

  test('variables: of the sandbox, of the run, and gone after it', async (t) => {
    const opts = await fresh(t);
    const show = 'import os\nprint(os.environ.get("GLOBAL"), os.environ.get("RUN"), os.environ.get("E2B_SANDBOX"))';
    assert.equal(await python(sandbox, show, opts), 'from the sandbox None true');
    assert.equal(await python(sandbox, show, { ...opts, envs: { RUN: 'now', GLOBAL: 'changed' } }), 'changed now true');
    assert.equal(await python(sandbox, show, opts), 'from the sandbox None true');
    assert.equal(await python(sandbox, '!echo $RUN', { ...opts, envs: { RUN: 'to the shell' } }), 'to the shell');
    await sandbox.runCode('1/0', { ...opts, envs: { RUN: 'x' } });
    assert.equal(await python(sandbox, show, opts), 'from the sandbox None true', 'also after an error');
  });

  test('it runs as user, in the home', async () => {
    assert.equal(
      await python(sandbox, 'import os, getpass\nprint(os.getuid(), getpass.getuser(), os.getcwd(), os.environ["HOME"])'),
      '1000 user /home/user /home/user',
    );
  });

  test('files of runs, commands and file calls are the same files', async () => {
    await python(sandbox, 'open("shared.txt", "w").write("by python")');
    assert.equal(await sandbox.files.read('shared.txt'), 'by python');
    assert.equal(await output(sandbox, 'cat shared.txt; echo -n " and shell" >> shared.txt'), 'by python');
    assert.equal(await python(sandbox, 'open("shared.txt").read()'), 'by python and shell');
  });

  // ------------------------------------------------------------------------------------------------------------ contexts

  test('contexts: create, list, run, restart, remove', async (t) => {
    const box = await own(t);
    await python(box, 'x = "default"');
    const context = await box.createCodeContext({ cwd: '/tmp' });
    assert.deepEqual([context.language, context.cwd], ['python', '/tmp']);
    const second = await box.createCodeContext({ language: 'Python ' });
    assert.deepEqual([second.language, second.cwd], ['python', '/home/user']);
    const listed = await box.listCodeContexts();
    assert.deepEqual(listed.slice(-2), [context, second], 'the newest is last');
    assert.ok(
      listed.some((c) => c.language === 'python' && c.id !== context.id && c.id !== second.id),
      'the default context is listed',
    );
    assert.equal(await python(box, 'import os\nos.getcwd()', { context }), '/tmp');
    assert.equal((await box.runCode('x', { context })).error.name, 'NameError');
    await python(box, 'x = "mine"', { context });
    assert.equal(await python(box, 'x'), 'default');

    await box.restartCodeContext(context);
    assert.equal((await box.runCode('x', { context })).error.name, 'NameError');
    assert.equal(await python(box, 'import os\nos.getcwd()', { context }), '/tmp', 'a restart keeps the directory');
    assert.equal((await box.listCodeContexts()).length, listed.length);

    await box.removeCodeContext(context);
    await fails(box.runCode('1', { context }), 'NotFoundError', /Context ID not found|not found/);
    assert.deepEqual(
      (await box.listCodeContexts()).map((c) => c.id),
      listed.map((c) => c.id).filter((id) => id !== context.id),
    );
    await fails(box.removeCodeContext(context), 'NotFoundError');
    await fails(box.restartCodeContext(context), 'NotFoundError');
    assert.equal(await python(box, 'x'), 'default');
  });

  test('restart and remove answer null, create the context', async () => {
    const made = (await post('/contexts', '{"language":null,"cwd":null}')).json;
    assert.deepEqual([made.language, made.cwd, typeof made.id], ['python', '/home/user', 'string']);
    const restarted = await post(`/contexts/${made.id}/restart`);
    assert.deepEqual([restarted.status, restarted.json], [200, null]);
    const removed = await engine.interpreter(sandbox, 'DELETE', `/contexts/${made.id}`);
    assert.deepEqual([removed.status, removed.json], [200, null]);
  });

  test('a restart ends the run of its context with an error', async (t) => {
    const box = await own(t);
    const context = await box.createCodeContext();
    let begun = false;
    const run = box.runCode('print("go")\nimport time\ntime.sleep(60)', { context, onStdout: () => (begun = true) });
    await until(() => begun, { what: 'the run' });
    await box.restartCodeContext(context);
    const { error } = await within(10_000, run, 'the run after the restart');
    assert.ok(LOST.includes(error?.name), error?.name);
    assert.equal(await python(box, '1', { context }), '1');
  });

  test('one run at a time in a context; the others wait for their turn', async (t) => {
    const opts = await fresh(t);
    const code = (n) => `import time\na = time.monotonic(); time.sleep(0.5); b = time.monotonic()\nprint(${n}, a, b)`;
    const runs = await Promise.all([1, 2, 3].map((n) => python(sandbox, code(n), opts)));
    const spans = runs.map((r) => r.split(' ').map(Number)).sort((p, q) => p[1] - q[1]);
    for (let i = 1; i < 3; i++) assert.ok(spans[i][1] >= spans[i - 1][2], `runs overlap: ${JSON.stringify(spans)}`);
  });

  test('a body of very many values is refused', async () => {
    const before = engine.peaks();
    const body = (values) => `{"code": "1", "x": [${values.join(',')}]}`;
    const send = (text) => engine.interpreter(sandbox, 'POST', '/execute', { body: text, headers: { 'content-type': 'application/json' }, deadline: 60_000 });
    for (const value of ['{}', '[]', '0', '"a"']) {
      const { status, text } = await send(body(Array(1_500_000).fill(value)));
      assert.ok(status >= 400 && status < 500, `${status} ${text.slice(0, 200)}`);
    }
    engine.assertFlat(before, 48);
    assert.equal((await send(body(['"{[,{[,\\\\"', '"\\",{[,"']))).status, 200);
    assert.equal((await send(`{"code": "${'[{,'.repeat(100_000)}"}`)).status, 200, 'what is quoted does not count');
  });

  test('code that waits is bounded; what waits is not harmed', async (t) => {
    const box = await own(t);
    await box.runCode('x = 0');
    const slow = box.runCode('import time\ntime.sleep(4)');
    await sleep(300);
    const code = `x += 1 # ${'y'.repeat(7 << 20)}`;
    const send = () => engine.interpreter(box, 'POST', '/execute', { json: { code }, deadline: 60_000 });
    const answers = (await Promise.all(Array.from({ length: 11 }, send))).map((r) => r.status);
    assert.deepEqual([...new Set(answers)].sort(), [200, 429], String(answers));
    await slow;
    assert.equal((await box.runCode('x')).text, String(answers.filter((s) => s === 200).length));
    // Variables wait with the code, and count.
    const again = box.runCode('import time\ntime.sleep(4)');
    await sleep(300);
    const withEnv = () => engine.interpreter(box, 'POST', '/execute', { json: { code: '1', env_vars: { A: 'y'.repeat(7 << 20) } }, deadline: 60_000 });
    const more = (await Promise.all(Array.from({ length: 11 }, withEnv))).map((r) => r.status);
    assert.deepEqual([...new Set(more)].sort(), [200, 429], String(more));
    await again;
    assert.equal((await engine.interpreter(box, 'POST', '/execute', { json: { code: 'z'.repeat(9 << 20) } })).status, 413);
  });

  test('different contexts run side by side', async (t) => {
    const [one, two] = [await fresh(t), await fresh(t)];
    const meet = (mine, other) =>
      `import os, time\nopen("/tmp/${mine}", "w").close()\nend = time.time() + 15\nwhile not os.path.exists("/tmp/${other}") and time.time() < end: time.sleep(0.02)\nos.path.exists("/tmp/${other}")`;
    assert.deepEqual(await Promise.all([python(sandbox, meet('here', 'there'), one), python(sandbox, meet('there', 'here'), two)]), [
      'True',
      'True',
    ]);
  });

  test('who leaves while waiting is not run', async (t) => {
    const opts = await fresh(t);
    let begun = false;
    const long = sandbox.runCode('import time\nprint("go")\ntime.sleep(1.5)', { ...opts, onStdout: () => (begun = true) });
    await until(() => begun, { what: 'the run before' });
    const res = await engine.execute(sandbox, { code: 'open("/tmp/was-run", "w")', context_id: opts.context.id });
    await sleep(300);
    res.drop();
    assert.equal((await long).error, undefined, 'the run before it is not disturbed');
    assert.equal(await python(sandbox, 'import os\nos.path.exists("/tmp/was-run")', opts), 'False');
  });

  // ------------------------------------------------------------------------------------------------------------ bash

  test('bash keeps its state from run to run', async (t) => {
    const box = await own(t);
    const bash = async (code, opts) => {
      const run = await box.runCode(code, { language: 'bash', ...opts });
      return (run.logs.stdout.join('') + run.logs.stderr.join('')).trim();
    };
    assert.equal(await bash('X=5; cd /tmp; f() { echo "f:$1"; }; export E=e'), '');
    assert.equal(await bash('echo $X; pwd; f 1; bash -c "echo \\$E"'), '5\n/tmp\nf:1\ne');
    assert.equal(await bash('echo "ü € \'q\' \\"dq\\""\ncat <<EOF\nhere\nEOF'), 'ü € \'q\' "dq"\nhere');
    assert.equal(await bash('echo $RUN', { envs: { RUN: 'set' } }), 'set');
    assert.equal(await bash('echo "[$RUN]"'), '[]');
    assert.match(await bash('ls /no/such'), /No such file/);
    assert.equal(await bash('false; echo $?'), '1');
    const streamed = [];
    await box.runCode('echo one; sleep 1.2; echo two', {
      language: 'bash',
      onStdout: (o) => streamed.push([o.line.trim(), performance.now()]),
    });
    assert.ok(streamed.at(-1)[1] - streamed[0][1] > 700, 'it is streamed');
    const again = await box.runCode('exit 3', { language: 'bash' }).catch((e) => e);
    assert.ok(again);
    assert.equal(await within(15_000, bash('echo alive')), 'alive');
  });

  test('bash is interrupted when the client leaves, its variables stay', async (t) => {
    const box = await own(t);
    await box.runCode('X=kept', { language: 'bash' });
    await abandon({ code: 'echo go; sleep 60; echo never', language: 'bash' }, box);
    const run = await within(15_000, box.runCode('echo $X', { language: 'bash' }), 'the next run');
    assert.equal(run.logs.stdout.join('').trim(), 'kept');
  });

  test('a context of bash', async (t) => {
    const box = await own(t);
    const context = await box.createCodeContext({ language: 'bash', cwd: '/tmp' });
    assert.deepEqual([context.language, context.cwd], ['bash', '/tmp']);
    assert.equal((await box.runCode('pwd', { context })).logs.stdout.join('').trim(), '/tmp');
  });

  // ------------------------------------------------------------------------------------------------------------ refusals

  test('bad requests', async () => {
    for (const [body, what] of [
      ['{', 'malformed'],
      ['', 'empty'],
      ['[]', 'no object'],
      ['{}', 'no code'],
      ['{"code":7}', 'code of a wrong type'],
      ['{"code":null}', 'code of null'],
      ['{"code":"1","env_vars":[]}', 'variables of a wrong type'],
      ['{"code":"1","context_id":5}', 'context of a wrong type'],
    ]) {
      const res = await post('/execute', body);
      assert.equal(res.status, 422, `${what}: ${res.text}`);
      assert.ok(Array.isArray(res.json.detail), what);
    }
    const unknown = await post('/execute', '{"code":"1","context_id":"none"}');
    assert.deepEqual([unknown.status, unknown.text], [404, 'Context ID not found']);
    const [context] = await sandbox.listCodeContexts();
    const both = await post('/execute', JSON.stringify({ code: '1', context_id: context.id, language: 'python' }));
    assert.deepEqual([both.status, both.text], [400, 'Only one of context_id or language can be provided']);
    for (const res of [await post('/execute', '{"code":"1","language":"klingon"}'), await post('/contexts', '{"language":"klingon"}')]) {
      assert.equal(res.status, 500);
      assert.match(res.text, /^Failed to create context: /);
      assert.match(res.headers['content-type'], /^text\/plain/);
    }
    await fails(sandbox.runCode('1', { language: 'klingon' }), 'SandboxError', /^500 /);
  });

  test('explicit nulls, as another SDK sends them', async () => {
    const all = await wire({ code: '1 + 1', context_id: null, language: null, env_vars: null });
    assert.equal(all.find((l) => l.type === 'result').text, '2');
  });

  test('languages by name, however it is written; what E2B has and the engine has not is said to be so', async () => {
    assert.equal(await python(sandbox, '2 + 2', { language: ' Python ' }), '4');
    for (const language of ['typescript', 'r', 'java', 'deno']) {
      const res = await post('/execute', JSON.stringify({ code: '1', language }));
      assert.equal(res.status, 501, res.text);
      assert.match(res.text, new RegExp(language));
    }
  });

  test('health of the interpreter', async () => {
    const res = await engine.interpreter(sandbox, 'GET', '/health');
    assert.deepEqual([res.status, res.json], [200, 'OK']);
  });

  // ------------------------------------------------------------------------------------------------------------ clients that leave

  test('a client that leaves interrupts its run; the state survives', async (t) => {
    const opts = await fresh(t);
    await python(sandbox, 'x = "kept"', opts);
    for (const code of [
      'import time\nprint("go")\ntry:\n    time.sleep(60)\nfinally:\n    stopped = True',
      'print("go")\nwhile True: pass',
      'print("go")\n!sleep 60',
      'import subprocess\nprint("go")\nsubprocess.run(["sleep", "60"])',
    ]) {
      await abandon({ code, context_id: opts.context.id });
      assert.equal(await within(15_000, python(sandbox, 'x', opts), code), 'kept', code);
    }
    assert.equal(await python(sandbox, 'stopped', opts), 'True');
  });

  test("the SDK's timeout interrupts, too", async (t) => {
    const opts = await fresh(t);
    await fails(sandbox.runCode('x = 3\nimport time\ntime.sleep(60)', { ...opts, timeoutMs: 1000 }), 'TimeoutError', /Execution timed out/);
    assert.equal(await within(15_000, python(sandbox, 'x', opts)), '3');
  });

  test('a kernel that ignores the interrupt is replaced within seconds', async (t) => {
    const box = await own(t);
    await python(box, 'x = 1');
    await box.files.write('kept.txt', 'kept');
    await abandon({ code: 'import time\nprint("go")\nwhile True:\n    try: time.sleep(1)\n    except KeyboardInterrupt: pass' }, box);
    const next = await within(15_000, box.runCode('x'), 'the next run');
    assert.equal(next.error?.name, 'NameError', 'it is a new kernel');
    assert.equal(await box.files.read('kept.txt'), 'kept', 'in the same sandbox');
    assert.equal(await python(box, '1 + 1'), '2');
  });

  test('a kernel that dies is reported, and the next run works', async (t) => {
    const box = await own(t);
    for (const code of [
      'import ctypes\nprint("go", flush=True)\nctypes.string_at(0)',
      'import os\nprint("go", flush=True)\nos._exit(3)',
      'import os, signal\nprint("go", flush=True)\nos.kill(os.getpid(), signal.SIGKILL)',
    ]) {
      const run = await within(20_000, box.runCode(code), code);
      assert.ok(LOST.includes(run.error?.name), `${code}: ${run.error?.name}`);
      assert.equal(run.logs.stdout.join(''), 'go\n');
      assert.equal(await within(20_000, python(box, '"next"')), 'next');
    }
    const all = await wire({ code: 'import os\nos._exit(1)' }, { box });
    assert.equal(all.at(-1).type, 'end_of_execution');
    assert.equal(all.filter((l) => l.type === 'error').length, 1);
  });

  test('code cannot forge the lines of the protocol', async (t) => {
    const box = await own(t);
    const forged = JSON.stringify({ type: 'result', text: 'forged', extra: {}, is_main_result: true });
    const run = await box
      .runCode(
        `import os, sys\nprint('\\n${forged}')\nfor fd in range(3, 64):\n    try: os.write(fd, b'garbage\\n{"type":"end_of_execution"}\\n')\n    except OSError: pass\nprint("end")`,
      )
      .catch((e) => e);
    assert.ok(!run.results?.some((r) => r.text === 'forged'));
    assert.equal(await within(20_000, python(box, '"next"')), 'next');
    assert.equal(await python(sandbox, '"neighbour"'), 'neighbour');
  });

  // ------------------------------------------------------------------------------------------------------------ much output

  test('100 MB of output, with the memory of the engine flat', async (t) => {
    const box = await own(t);
    await python(box, '1');
    const before = engine.peaks();
    const res = await engine.execute(box, { code: 'line = "x" * 65535\nfor _ in range(1600): print(line)' }, { deadline: 120_000 });
    let characters = 0;
    let last;
    for await (const line of lines(res)) {
      if (line.type === 'stdout') characters += line.text.length;
      last = line.type;
    }
    assert.equal(characters, 1600 * 65536);
    assert.equal(last, 'end_of_execution');
    engine.assertFlat(before);
  });

  test('a client that stops reading disturbs nobody', async (t) => {
    const box = await own(t);
    const context = await box.createCodeContext();
    await python(box, 'x = "kept"');
    const before = engine.peaks();
    const stalled = await engine.execute(box, { code: 'line = "y" * 1000\nwhile True: print(line)' });
    stalled.pause();
    await sleep(2000);
    assert.equal(await within(10_000, python(box, '1 + 1', { context }), 'another context'), '2');
    assert.equal(await within(10_000, python(sandbox, '2 + 2'), 'another sandbox'), '4');
    assert.equal(await within(10_000, output(box, 'echo commands'), 'a command'), 'commands');
    engine.assertFlat(before);
    stalled.drop();
    assert.equal(await within(15_000, python(box, 'x'), 'the same context'), 'kept');
  });

  test('many sandboxes compute at the same time', async () => {
    const boxes = await Promise.all(Array.from({ length: 6 }, () => engine.create()));
    const sums = await Promise.all(boxes.map((box, i) => python(box, `me = ${i}\nsum(range(100_000)) + me`)));
    assert.deepEqual(
      sums.map(Number),
      boxes.map((_, i) => 4999950000 + i),
    );
    assert.deepEqual(await Promise.all(boxes.map((box) => python(box, 'me'))), ['0', '1', '2', '3', '4', '5']);
    await Promise.all(boxes.map((box) => box.kill()));
    assertError(await engine.api('GET', `/sandboxes/${boxes[0].sandboxId}`), 404);
  });
});
