// Contexts: several kernels in one sandbox, each with its own variables, language, directory and queue.
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { NODE_INSIDE, SUITE, startEngine, until } from './engine.mjs';
import { assertProblem, startGateway } from './gateway.mjs';

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
/** Goes on when a file of this name is there. */
const WAIT = `
import os, time
def wait(name):
    while not os.path.exists('/home/user/' + name): time.sleep(0.005)
`;

let engine;
let g;
before(async () => {
  engine = await startEngine();
  g = await startGateway({ engine, settings: { SANDGATE_CUSTOM_TEMPLATE_ID: 'base' } });
});
after(async () => {
  await g?.stop();
  await engine?.stop();
});
afterEach(() => g.stopAll());

async function created(session, json) {
  const res = await session.createContext(json);
  assert.equal(res.status, 201, res.text);
  assert.deepEqual(Object.keys(res.json).sort(), ['context_id', 'cwd', 'language']);
  assert.match(res.json.context_id, UUID);
  return res.json;
}

async function output(session, json) {
  const res = await session.run(json);
  assert.equal(res.json.success, true, res.text);
  return res.json.output;
}

const listed = async (session) => (await session.contexts()).json.contexts;

describe('contexts', SUITE, () => {
  test('are made, listed, used, restarted and removed', async () => {
    const session = g.session('life');
    const made = await created(session, {});
    assert.deepEqual([made.language, made.cwd], ['python', '/home/user'], 'it starts a sandbox, and has defaults');
    const [own, second, ...none] = await listed(session);
    assert.deepEqual([own.language, second, none], ['python', made, []]);
    const { context_id } = made;
    await output(session, { code: 'x = 1', context_id });
    assert.equal(await output(session, { code: 'x', context_id }), '1\n');
    assert.match((await session.execute('x')).json.error, /NameError/, 'the sandbox’s own has it not');
    const restarted = await session.restartContext(context_id);
    assert.deepEqual([restarted.status, restarted.text], [204, '']);
    assert.match((await session.run({ code: 'x', context_id })).json.error, /NameError/, 'it is empty');
    assert.deepEqual(await listed(session), [own, made], 'and the same');
    assert.equal((await session.removeContext(context_id)).status, 204);
    assert.deepEqual(await listed(session), [own]);
    assertProblem(await session.run({ code: '1', context_id }), 404, 'context_not_found', /^Context not found/);
    assertProblem(await session.removeContext(context_id), 404, 'context_not_found');
    assertProblem(await session.restartContext(context_id), 404, 'context_not_found');
    assert.equal(await output(session, { code: '1', context_id: own.context_id }), '1\n', 'the sandbox’s own by its id');
  });

  test('in the other dialect as well', async () => {
    const session = g.session('dialect', { dialect: 'B' });
    const { context_id } = await created(session, { language: 'bash', cwd: '/tmp' });
    assert.equal(await output(session, { code: 'pwd', context_id }), '/tmp\n');
    assert.equal((await listed(session)).at(-1).context_id, context_id);
    assert.equal((await session.restartContext(context_id)).status, 204);
    assert.equal((await session.removeContext(context_id)).status, 204);
  });

  test('languages: python and bash here, and what is none is refused', async () => {
    const session = g.session('languages');
    assert.equal(await output(session, { code: 'x=5; echo $x $BASH_VERSION', language: 'bash' }).then((o) => o.slice(0, 2)), '5 ');
    assert.equal(await output(session, { code: 'echo $x', language: 'bash' }), '5\n', 'its default context keeps its state');
    assert.equal(await output(session, { code: '1 + 1', language: 'python' }), '2\n');
    const bash = await created(session, { language: 'bash' });
    assert.equal(await output(session, { code: 'echo "[$x]"', context_id: bash.context_id }), '[]\n');
    assert.deepEqual((await listed(session)).map((c) => c.language), ['python', 'bash', 'bash']);
    for (const language of ['r', 'typescript', 'cobol', 'python3.99', ...(NODE_INSIDE ? [] : ['javascript'])]) {
      const res = await session.run({ code: '1', language });
      assertProblem(res, 400, 'bad_request', /language/);
      assertProblem(await session.createContext({ language }), 400, 'bad_request', /language/);
      const s = await session.stream({ code: '1', language });
      assert.deepEqual([(await s.end()).event, s.seen.at(-1).data.code], ['failed', 'bad_request']);
    }
    for (const call of ['run', 'createContext']) assertProblem(await session[call]({ code: '1', language: 'x'.repeat(1000) }), 400, 'bad_request', /language/);
    assert.equal((await listed(session)).length, 3);
  });

  test('javascript', { skip: NODE_INSIDE ? false : 'no Node.js below /usr' }, async () => {
    const session = g.session('javascript');
    assert.equal(await output(session, { code: 'let n = 6; console.log(n); n + 1', language: 'javascript' }), '6\n7\n');
    assert.equal(await output(session, { code: 'n', language: 'js' }), '6\n');
    const own = await created(session, { language: 'javascript', cwd: '/tmp' });
    assert.equal(await output(session, { code: 'typeof n + process.cwd()', context_id: own.context_id }), 'undefined/tmp\n');
    assert.equal((await session.run({ code: 'null.x', context_id: own.context_id })).json.success, false);
    assert.deepEqual((await listed(session)).map((c) => c.language), ['python', 'javascript', 'javascript']);
  });

  test('a directory of their own, whatever its name', async () => {
    const session = g.session('cwd');
    await session.run({ command: "mkdir '/tmp/with blank é'" });
    for (const cwd of ['/tmp', '/tmp/with blank é', '/'])
      for (const [language, code] of [
        ['python', 'import os; print(os.getcwd())'],
        ['bash', 'pwd'],
      ]) {
        const made = await created(session, { language, cwd });
        assert.equal(made.cwd, cwd);
        assert.equal(await output(session, { code, context_id: made.context_id }), `${cwd}\n`);
        assert.ok((await listed(session)).some((c) => c.cwd === cwd));
        await session.removeContext(made.context_id);
      }
    for (const cwd of ['/nowhere', '/etc/passwd']) assertProblem(await session.createContext({ cwd }), 400, 'bad_request', /cwd/);
    for (const cwd of ['', 'tmp', '../tmp', `/${'x'.repeat(2000)}`]) assertProblem(await session.createContext({ cwd }), 400, 'bad_path', /cwd/);
    assert.equal((await listed(session)).length, 1, 'nothing is left of those');
  });

  test('two of them run at the same time', async () => {
    const session = g.session('parallel');
    const [one, two] = [await created(session, {}), await created(session, {})];
    const say = (mine, other) => `${WAIT}\nopen("/home/user/${mine}", "w").close()\nwait("${other}")\nprint("${mine}")`;
    // Each waits for the other: one after the other they would never end.
    const both = await Promise.all([
      session.run({ code: say('a', 'b'), context_id: one.context_id, timeout_secs: 60 }),
      session.run({ code: say('b', 'a'), context_id: two.context_id, timeout_secs: 60 }),
    ]);
    assert.deepEqual(both.map((r) => r.json.output), ['a\n', 'b\n']);
  });

  test('two runs in one are in order, the second is queued', async () => {
    const session = g.session('order');
    const { context_id } = await created(session, {});
    const first = session.run({ code: `${WAIT}\norder = ["first"]\nprint("begun", flush=True)\nwait("go")\norder.append("end")`, context_id });
    await g.printed('order', 'begun');
    const second = await session.stream({ code: 'order.append("second")\norder', context_id });
    assert.deepEqual((await second.until('queued')).data, { position: 1, wait_secs: 0 });
    assert.equal(await output(session, { code: '"own"' }), 'own\n', 'the sandbox’s own context does not wait');
    assert.equal((await session.upload('go', 'x', '/home/user')).status, 200);
    assert.equal((await first).json.success, true);
    assert.equal((await second.end()).data.text, "['first', 'end', 'second']");
    assert.deepEqual(second.seen.map((e) => e.event), ['queued', 'started', 'result', 'done']);
  });

  test('a limit, a cancel and a restart are for their context alone', async () => {
    const session = g.session('alone');
    const { context_id } = await created(session, {});
    await output(session, { code: 'kept = "own"' });
    await output(session, { code: 'kept = "other"', context_id });
    const own = session.execute(`${WAIT}\nprint("begun", flush=True)\nwait("go")\nprint(kept)`);
    await g.printed('alone', 'begun');
    assertProblem(await session.run({ code: 'import time\ntime.sleep(60)', context_id, timeout_secs: 1 }), 408, 'execution_timeout');
    const id = (await session.run({ code: 'print("mine", flush=True)\nimport time\ntime.sleep(60)', context_id, detach: true })).json.execution_id;
    await g.printed('alone', 'mine');
    assert.equal((await session.cancel(id)).json.cancelled_by, 'interrupt');
    assert.equal(await output(session, { code: 'kept', context_id }), 'other\n', 'interrupted, not restarted');
    await session.restartContext(context_id);
    await session.upload('go', 'x', '/home/user');
    assert.equal((await own).json.output, 'begun\nown\n');
  });

  test('a run whose context is restarted or removed under it ends, and says so', async () => {
    const session = g.session('under');
    for (const end of ['restartContext', 'removeContext']) {
      const { context_id } = await created(session, {});
      const run = session.run({ code: `print("${end}", flush=True)\nimport time\ntime.sleep(60)`, context_id });
      await g.printed('under', end);
      assert.equal((await session[end](context_id)).status, 204);
      const res = await run;
      assert.deepEqual([res.json.success, res.json.output, res.json.state === 'succeeded'], [false, `${end}\n`, false], res.text);
    }
    assert.equal(await output(session, { code: '1' }), '1\n');
  });

  test('one that does not heed the interrupt is restarted, and only that one', async () => {
    const session = g.session('stubborn');
    const { context_id } = await created(session, {});
    await output(session, { code: 'kept = 1' });
    const code = 'print("on", flush=True)\nimport time\nwhile True:\n    try: time.sleep(1)\n    except KeyboardInterrupt: pass';
    const id = (await session.run({ code, context_id, detach: true })).json.execution_id;
    await g.printed('stubborn', 'on');
    assert.equal((await session.cancel(id)).json.cancelled_by, 'restart');
    assert.equal(await output(session, { code: 'kept' }), '1\n');
    assert.equal(await output(session, { code: '2', context_id }), '2\n');
  });

  test('of another session or user they do not exist', async () => {
    const session = g.session('mine');
    const { context_id } = await created(session, {});
    const bob = g.session('mine', { token: await g.token('bob') });
    for (const other of [g.session('other'), bob]) {
      assertProblem(await other.contexts(), 404, 'sandbox_not_found');
      assertProblem(await other.removeContext(context_id), 404, 'sandbox_not_found');
      assertProblem(await other.restartContext(context_id), 404, 'sandbox_not_found');
      await other.start();
      assertProblem(await other.removeContext(context_id), 404, 'context_not_found');
      assertProblem(await other.restartContext(context_id), 404, 'context_not_found');
      assertProblem(await other.run({ code: '1', context_id }), 404, 'context_not_found');
      assert.equal((await listed(other)).length, 1);
    }
    assert.equal(await output(session, { code: '1', context_id }), '1\n');
  });

  test('ids that are none', async () => {
    const session = g.session('ids');
    await session.start();
    for (const id of ['x', 'x%2Fy', '%2e%2e%2fx', 'a%20b', '%C3%A9', "'", 'x'.repeat(63), 'x'.repeat(64), 'x'.repeat(500), 'contexts', '%00'.replace('00', '41')])
      for (const call of ['removeContext', 'restartContext']) {
        const res = await session[call](id);
        assertProblem(res, 404, 'context_not_found');
      }
    for (const context_id of ['', 'x', 'a b', '../x', 'é', 'x'.repeat(200)]) assertProblem(await session.run({ code: '1', context_id }), 404, 'context_not_found');
  });

  test('with the sandbox they are gone', async () => {
    const session = g.session('gone');
    const { context_id } = await created(session, {});
    const { sandbox_id } = (await session.status()).json;
    assert.equal((await engine.api('DELETE', `/sandboxes/${sandbox_id}`)).status, 204);
    assertProblem(await session.contexts(), 404, 'sandbox_not_found');
    assert.equal((await session.status()).text.trim(), 'null');
    const res = await session.run({ code: '1', context_id });
    assertProblem(res, 404, 'context_not_found');
    await created(session, {});
    const { generation } = (await session.status()).json;
    assert.equal(generation, 2);
  });

  test('a template that runs no code has none', async () => {
    const session = g.session('custom');
    await session.start({ sandbox_type: 'custom' });
    for (const res of [await session.contexts(), await session.createContext({}), await session.removeContext('x')])
      assertProblem(res, 409, 'no_interpreter');
  });

  test('the removal of the sandbox’s own is no end of code', async () => {
    const session = g.session('own');
    await output(session, { code: 'x = 1' });
    const [own] = await listed(session);
    assert.equal((await session.removeContext(own.context_id)).status, 204);
    assert.match((await session.execute('x')).json.error, /NameError/);
    await until(async () => (await listed(session)).length === 1);
  });
});
