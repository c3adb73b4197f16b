// JavaScript in the interpreter, through the official SDK: Node.js of the machine under our driver.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { NODE_INSIDE, SUITE, lines, output, sleep, startEngine, until, within } from './engine.mjs';

const JS = { language: 'javascript' };
const DRIVER = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../src/engine/kernel.js');

let engine;
let sandbox;

async function own(t, template, opts) {
  const box = await engine.create(template, opts);
  t.after(() => box.kill());
  return box;
}

/** What code prints and its value, which must not fail. */
async function js(code, opts = JS, box = sandbox) {
  const run = await within(60_000, box.runCode(code, { timeoutMs: 60_000, ...opts }), code);
  assert.equal(run.error, undefined, run.error?.traceback);
  return run.logs.stdout.join('') + (run.text ?? '');
}

async function error(code, opts = JS, box = sandbox) {
  const run = await box.runCode(code, { timeoutMs: 60_000, ...opts });
  assert.ok(run.error, `${code} did not fail`);
  return run.error;
}

/** Starts a run and leaves as soon as it printed something. */
async function abandon(code, box) {
  const res = await engine.execute(box, { code, ...JS });
  for await (const line of lines(res)) if (line.type === 'stdout') break;
  res.drop();
}

// ---- the rewriting of import, which needs no sandbox ----

describe('import in a cell', () => {
  const { rewriteImports } = createRequire(import.meta.url)(DRIVER);
  const cases = [
    ['await import("a")', 'await I("a")'],
    ['import /* c */ ("a")', 'I /* c */ ("a")'],
    ['x = () => { return import(`a${import("b")}`) }', 'x = () => { return I(`a${I("b")}`) }'],
    ['import "a"', 'void (await I("a"));'],
    ["import d from 'a';", "const {default: d} = await I('a');;"],
    ['import * as n from "a"\n[n]', 'const n = await I("a");\n[n]'],
    ['import d, {a, b as c,} from "a"', 'const {default: d, a, b: c} = await I("a");'],
    ['import d, * as n from "a"', 'const n = await I("a"), {default: d} = n;'],
    ['import {\n a,\n b\n} from "a"; x', 'const {a, b} = await I("a");\n\n\n; x'],
    ['import j from "a.json" with {type: "json"}', 'const {default: j} = await I("a.json", {with: {type: "json"}});'],
    ['1;import a from"a"', '1;const {default: a} = await I("a");'],
  ];
  const kept = [
    'let imports = 1', '"import(1)"', "'it\\'s import(1)'", '`import(1) ${"import(2)"} \\` import(3)`', '// import("a")\n1', '/* import("a") */',
    'a.import("b")', 'a?.import("b")', '/import("a")/.test(x)', 'x = /[/]import("a")/', 'return /import("a")/', 'if (x) /import("a")/.exec(y)',
    'x = {import: 1}', 'import.meta', '"unfinished import(', '`unfinished import(', '/* unfinished import("a")',
  ];
  const mixed = [
    ['a / b; import("c") / d', 'a / b; I("c") / d'],
    ['i++ / 2; import("c") / 3', 'i++ / 2; I("c") / 3'],
    ['(a) / b; import("c"); e / f', '(a) / b; I("c"); e / f'],
    ['`${`${1}`}`; import("a")', '`${`${1}`}`; I("a")'],
    ['x = {a: `}`, b: "{"}; import("a")', 'x = {a: `}`, b: "{"}; I("a")'],
    ['s = "import"; const é = import("a")', 's = "import"; const é = I("a")'],
  ];
  for (const [from, to] of [...cases, ...kept.map((c) => [c, c]), ...mixed]) test(from, () => assert.equal(rewriteImports(from, 'I'), to));
});

describe('javascript', { ...SUITE, skip: NODE_INSIDE ? false : 'no Node.js below /usr, so that the engine offers no javascript' }, () => {
  before(async () => {
    engine = await startEngine({ templates: { 'js512.template': 'memory = 512\ninterpreter = yes\n', 'js1024.template': 'memory = 1024\ninterpreter = yes\n' } });
    sandbox = await engine.create();
  });
  after(() => engine?.stop());

  test('the lines of a run', async (t) => {
    const box = await own(t);
    const res = await engine.execute(box, { code: 'console.log("a"); console.error("é😀"); ({ b: [1, "c"] })', language: ' JS ' });
    const all = [];
    for await (const line of lines(res)) all.push(line);
    for (const line of all.filter((l) => l.timestamp)) assert.ok(Math.abs(Date.parse(line.timestamp) - Date.now()) < 60_000);
    assert.deepEqual(all.map(({ timestamp, ...l }) => l), [
      { type: 'number_of_executions', execution_count: 1 },
      { type: 'stdout', text: 'a\n' },
      { type: 'stderr', text: 'é😀\n' },
      { type: 'result', text: "{ b: [ 1, 'c' ] }", extra: {}, is_main_result: true },
      { type: 'end_of_execution' },
    ]);
    assert.equal((await box.runCode('2', JS)).executionCount, 2);
  });

  test('values', async () => {
    for (const [code, text] of [
      ['1 + 1', '2'], ['"text"', 'text'], ['"it\'s"', "it's"], ['null', 'null'], ['-0', '-0'], ['10n', '10n'], ['NaN', 'NaN'], ['Symbol("s")', 'Symbol(s)'],
      ['[1, 2]', '[ 1, 2 ]'], ['new Map([[1, 2]])', 'Map(1) { 1 => 2 }'], ['({a: 1})', '{ a: 1 }'], ['if (true) { 3 }', '3'], ['5;', '5'], ['Promise.resolve(1)', 'Promise { 1 }'],
      ['"\\u{1f600}"', '😀'],
    ])
      assert.equal((await sandbox.runCode(code, JS)).text, text, code);
    for (const code of ['undefined', 'let u = 1', 'function f() {}', 'class C {}', '']) assert.deepEqual((await sandbox.runCode(code, JS)).results, [], code);
  });

  test('variables stay, and may be declared again', async () => {
    await js('var a = 1; let b = 2; const c = 3; class D { d() { return 4 } } function e() { return b }');
    assert.equal(await js('[a, b, c, new D().d(), e()].join()'), '1,2,3,4,2');
    await js('let b = 5; const c = 6; class D { d() { return 7 } } let a2 = await 8; const { x, y: [z] } = await { x: 9, y: [10] }');
    assert.equal(await js('[b, c, new D().d(), a2, x, z].join()'), '5,6,7,8,9,10');
    await error('let half = 1; throw 0');
    assert.equal(await js('half'), '1');
  });

  test('await, require and import', async () => {
    assert.equal(await js('const t = await new Promise((r) => setTimeout(r, 10, "later")); t'), 'later');
    assert.equal(await js('for await (const i of [1, 2]) console.log(i)'), '1\n2\n');
    assert.equal(await js('require("path").join("a", "b")'), 'a/b');
    await output(sandbox, 'mkdir -p node_modules/pkg && echo "export const where = import.meta.url" > m.mjs && echo "module.exports = 5" > c.js && echo "module.exports = 6" > node_modules/pkg/index.js');
    assert.equal(await js('const { where } = await import("./m.mjs"); where'), 'file:///home/user/m.mjs');
    assert.equal(await js('import five from "./c.js"\nimport six from "pkg"\nimport * as os from "node:os";\n[five, six, require("./c.js"), require("pkg"), typeof os.cpus].join()'), '5,6,5,6,function');
    assert.match((await error('await import("./none.mjs")')).value, /none\.mjs/);
    assert.deepEqual((await sandbox.runCode('await import("fs"); 1', JS)).logs.stderr, [], 'nor does it warn');
  });

  test('errors', async () => {
    const e = await error('function deep() { null.x }\ndeep()');
    assert.deepEqual([e.name, e.value], ['TypeError', "Cannot read properties of null (reading 'x')"]);
    assert.match(e.traceback, /^TypeError: .*\n    at deep \(cell-\d+\.js:1:\d+\)\n    at cell-\d+\.js:2:1$/);
    const syntax = await error('let ok = 1;\nlet 5 = 3');
    assert.deepEqual([syntax.name, /^cell-\d+\.js:2:5\n/.test(syntax.traceback)], ['SyntaxError', true], syntax.traceback);
    assert.deepEqual([(await error('throw "word"')).value, (await error('throw null')).value], ['word', 'null']);
    assert.equal((await error('class Own extends Error { name = "Own" }; throw new Own("m")')).name, 'Own');
    assert.equal((await error('Object.defineProperty(new Error(), "stack", {get() { throw 1 }})[Symbol.iterator]()')).name, 'TypeError');
    assert.equal(await js('1'), '1');
  });

  test('rejections and exceptions that nobody handles fail the run, not the context', async () => {
    await js('let kept = "kept"');
    const run = await sandbox.runCode('Promise.reject(new RangeError("lost")); 7', JS);
    assert.deepEqual([run.error?.name, run.error?.value, run.text], ['RangeError', 'lost', '7']);
    const late = await error('setTimeout(() => { throw new Error("late") }, 5); await new Promise((r) => setTimeout(r, 100))');
    assert.equal(late.value, 'late');
    await js('setTimeout(() => { throw new Error("between") }, 20); void 0');
    await until(async () => (await sandbox.runCode('kept', JS)).logs.stderr.join('').includes('between'), { what: 'the exception between two runs' });
    assert.equal(await js('kept'), 'kept');
  });

  test('environment variables of a run', async () => {
    assert.equal(await js('process.env.RUN + process.env.HOME', { ...JS, envs: { RUN: 'é1', HOME: '/x' } }), 'é1/x');
    assert.equal(await js('[process.env.RUN, process.env.HOME].join()'), ',/home/user');
    await error('throw 1', { ...JS, envs: { RUN: '2' } });
    assert.equal(await js('process.env.RUN === undefined'), 'true');
  });

  test('output of streams, of children, and much of it', async () => {
    assert.equal(await js('process.stdout.write("no newline"); process.stdout.write(Buffer.from([0xc3])); process.stdout.write(Buffer.from([0xa9])); void 0'), 'no newlineé');
    assert.equal(await js('require("child_process").execSync("echo child").toString().trim()'), 'child');
    assert.match(await js('require("child_process").spawnSync("echo", ["inherited"], {stdio: "inherit"}).status'), /inherited\n/);
    const open = await js('require("child_process").execSync("ls -l /proc/self/fd").toString()', JS);
    assert.doesNotMatch(open, / (?:[3-9]|\d{2,}) -> socket/, 'the driver’s own socket is not for them');
    const counted = await js('for (let i = 0; i < 30000; i++) console.log(i)');
    assert.equal(counted, Array.from({ length: 30000 }, (_, i) => `${i}\n`).join(''));
    assert.equal((await js('console.log("€".repeat(3_000_000))')).length, 3_000_001);
    assert.match((await sandbox.runCode('"x".repeat(3_000_000)', JS)).text, /x\n\[text cut: too large\]$/);
  });

  test('output that nobody reads waits', async (t) => {
    const box = await own(t);
    const res = await engine.execute(box, { code: 'for (let i = 0; i < 20000; i++) console.log("y".repeat(5000)); "done"', ...JS });
    await new Promise((r) => setTimeout(r, 1500));
    const used = Number((await output(box, "ps -eo rss,args | awk '/kernel.js/ && !/awk/ { print $1; exit }'")) || '0');
    assert.ok(used > 0 && used < 300_000, `${used} KiB`);
    let size = 0;
    let last;
    for await (const line of lines(res)) {
      if (line.type === 'stdout') size += line.text.length;
      if (line.type === 'result') last = line.text;
    }
    assert.deepEqual([size, last], [20000 * 5001, 'done']);
  });

  for (const [what, code] of [
    ['a busy loop', 'console.log("go"); for (;;);'],
    ['a busy loop that catches', 'console.log("go"); for (;;) try { for (;;); } catch {} finally { continue; }'],
    ['an await', 'console.log("go"); await new Promise(() => {})'],
    ['a busy loop after an await', 'await 1; await new Promise((r) => setTimeout(r, 5)); console.log("go"); for (;;);'],
    ['a loop that prints', 'for (;;) console.log("go".repeat(1000))'],
    ['a program it waits for', 'console.log("go"); require("child_process").spawnSync("sleep", ["60"]); for (;;);'],
  ])
    test(`a client that leaves interrupts ${what}; the variables stay`, async (t) => {
      const box = await own(t);
      await js('let kept = "kept"', JS, box);
      await abandon(code, box);
      const run = await within(20_000, box.runCode('kept', JS), 'the next run');
      assert.deepEqual([run.text, run.error], ['kept', undefined]);
    });

  test('what an interrupted run begins only later does not hold the context', async (t) => {
    const box = await own(t);
    await js('let kept = "kept"', JS, box);
    await abandon('console.log("go"); await new Promise((r) => setTimeout(r, 200)); await 1; kept = "late"; for (;;);', box);
    await sleep(1000);
    const run = await within(20_000, box.runCode('kept', JS), 'the run after the loop has begun');
    assert.deepEqual([run.text, run.error], ['late', undefined]);
  });

  test('process.exit ends the context, and another one follows', async (t) => {
    const box = await own(t);
    await js('let gone = 1', JS, box);
    const run = await box.runCode('console.log("last words"); process.exit(0)', JS);
    assert.deepEqual([run.logs.stdout.join(''), run.error?.name, run.logs.stderr.join('')], ['last words\n', 'ContextRestarting', '']);
    assert.equal(await js('typeof gone', JS, box), 'undefined');
  });

  test('contexts: the default one is listed once it is used; others are apart', async (t) => {
    const box = await own(t);
    assert.deepEqual((await box.listCodeContexts()).map((c) => c.language), ['python']);
    await js('let v = 1', JS, box);
    const context = await box.createCodeContext({ language: 'js', cwd: '/tmp' });
    assert.deepEqual((await box.listCodeContexts()).map((c) => [c.language, c.cwd]), [['python', '/home/user'], ['javascript', '/home/user'], ['javascript', '/tmp']]);
    assert.equal(await js('typeof v + process.cwd()', { context }, box), 'undefined/tmp');
    await box.restartCodeContext(context);
    await box.removeCodeContext(context);
    assert.equal(await js('v', JS, box), '1');
  });

  for (const mb of [512, 1024])
    test(`in ${mb} MB: it starts, and too much memory ends the context only`, async (t) => {
      const box = await own(t, `js${mb}`);
      assert.equal(await js(`let big = []; for (let i = 0; i < ${mb / 32}; i++) big.push(new Array(1 << 20).fill(i)); big.length`, JS, box), String(mb / 32));
      const run = await box.runCode('let all = []; for (;;) all.push(new Array(1 << 16).fill({}))', { ...JS, timeoutMs: 60_000 }).catch((e) => e);
      assert.ok(run instanceof Error || run.error, 'it failed');
      assert.equal(await js('1 + 1', JS, box), '2');
    });

  test('typescript is not offered', async () => {
    for (const language of ['typescript', 'ts']) {
      const res = await engine.interpreter(sandbox, 'POST', '/execute', { json: { code: '1', language } });
      assert.deepEqual([res.status, /typescript|ts/.test(res.text)], [501, true]);
    }
  });
});
