// The eight operations of the REST contract in both dialects, over the real nginx, gateway and engine.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import { SUITE } from './engine.mjs';
import { assertProblem, startGateway } from './gateway.mjs';

describe('the contract', SUITE, () => {
  let g;
  before(async () => (g = await startGateway()));
  after(() => g?.stop());

  const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00$/;

  test('start gives running', async () => {
    const res = await g.session('start').start();
    assert.equal(res.status, 200, res.text);
    assert.match(res.headers['content-type'], /^application\/json/);
    assert.match(res.headers['x-request-id'], /^[0-9a-f]{32}$/);
    const info = res.json;
    assert.deepEqual(Object.keys(info).sort(), [
      'created_at',
      'expires_at',
      'generation',
      'last_activity',
      'sandbox_id',
      'sandbox_type',
      'session_id',
      'status',
    ]);
    assert.match(info.sandbox_id, /^[a-z0-9]{10,}$/);
    assert.deepEqual([info.session_id, info.sandbox_type, info.status, info.generation], ['start', 'code_interpreter', 'running', 1]);
    for (const key of ['created_at', 'last_activity', 'expires_at']) assert.match(info[key], TIME);
    const secs = (Date.parse(info.expires_at) - Date.parse(info.created_at)) / 1000;
    assert.ok(secs > 1795 && secs < 1830, `expires after ${secs} s`);
    assert.ok((await g.provided()).includes(info.sandbox_id));
  });

  test('start twice, same id', async () => {
    const s = g.session('twice');
    const first = (await s.start({})).json;
    assert.equal((await s.start({ sandbox_type: 'code_interpreter', envs: { A: '1' } })).json.sandbox_id, first.sandbox_id);
    assert.equal((await g.session('twice', { dialect: 'B' }).start()).json.sandbox_id, first.sandbox_id);
  });

  test('simple code', async () => {
    const res = await g.session('code').execute('print("Hello, World!")');
    assert.equal(res.status, 200, res.text);
    const r = res.json;
    assert.match(r.execution_id, /^x_[a-z0-9]{20}$/);
    assert.equal(typeof r.execution_time_ms, 'number');
    delete r.execution_id;
    delete r.execution_time_ms;
    assert.deepEqual(r, {
      success: true,
      output: 'Hello, World!\n',
      error: null,
      artifacts: [],
      state: 'succeeded',
      stdout: 'Hello, World!\n',
      stderr: '',
      text: null,
      results: [],
      truncated: false,
      stdout_bytes: 14,
      stderr_bytes: 0,
      files_changed: [],
      generation: 1,
      state_lost: false,
    });
  });

  test('commands, executions, contexts, variables and time, in both dialects', async () => {
    for (const dialect of ['A', 'B']) {
      const s = g.session(`more-${dialect}`, { dialect });
      assert.equal((await s.envs({ NAME: 'x' })).status, 204);
      const run = (await s.run({ command: 'echo $NAME > f; cat f; exit 3', cwd: '/home/user' })).json;
      assert.deepEqual([run.output, run.exit_code, run.files_changed], ['x\n', 3, [{ path: '/home/user/f', size: 2, change: 'created' }]]);
      const [execution] = (await s.executions()).json.executions;
      assert.deepEqual([execution.execution_id, execution.kind, execution.state], [run.execution_id, 'command', 'failed']);
      assert.equal((await s.execution(run.execution_id)).json.result.output, 'x\n');
      assert.equal((await (await s.follow(run.execution_id)).end()).data.exit_code, 3);
      assert.equal((await s.cancel(run.execution_id)).json.state, 'failed', 'what has ended stays as it is');
      const { context_id } = (await s.createContext({ language: 'bash' })).json;
      assert.equal((await s.run({ code: 'echo $NAME', context_id })).json.output, 'x\n');
      assert.equal((await (await s.stream({ code: '1 + 1' })).end()).data.text, '2');
      assert.equal((await s.keepalive({ secs: 60 })).json.status, 'running');
      assert.equal((await s.metrics()).json.executions, 3);
    }
  });

  test('an expression gives its text', async () => {
    const s = g.session('code');
    const two = (await s.execute('1+1')).json;
    assert.deepEqual([two.output, two.text, two.success], ['2\n', '2', true]);
    assert.equal((await s.execute('print("a", end="")\n5')).json.output, 'a\n5\n');
    const empty = (await s.execute('')).json;
    assert.deepEqual([empty.success, empty.output], [true, '']);
  });

  test('failing code is 200 with success false', async () => {
    const res = await g.session('code').execute('print("before")\n1/0');
    assert.equal(res.status, 200);
    const r = res.json;
    assert.deepEqual([r.success, r.state, r.output], [false, 'failed', 'before\n']);
    assert.match(r.error, /ZeroDivisionError: division by zero/);
    assert.match(r.error, /line 2/);
    assert.ok(!r.error.includes('\u001b'), 'colours are removed');
    assert.equal(r.error_detail.name, 'ZeroDivisionError');
    assert.equal(r.error_detail.value, 'division by zero');
    const warn = (await g.session('code').execute('import sys; print("w", file=sys.stderr)')).json;
    assert.deepEqual([warn.success, warn.error, warn.stderr, warn.output], [true, null, 'w\n', '']);
  });

  test('state is kept', async () => {
    const s = g.session('state');
    await s.execute('x = 41');
    assert.equal((await s.execute('x + 1')).json.output, '42\n');
    assert.match((await g.session('state-other').execute('x')).json.error, /NameError/);
  });

  test('figures are artifacts', async () => {
    const r = (await g.session('code').execute('import matplotlib.pyplot as plt\nplt.plot([1,2])\nplt.show()')).json;
    assert.equal(r.success, true, r.error);
    assert.ok(r.artifacts.length >= 1);
    assert.ok(r.artifacts[0].startsWith('data:image/png;base64,iVBOR'));
    assert.ok(r.results[0].png.startsWith('iVBOR'));
  });

  test('upload gives the path', async () => {
    const a = await g.session('files').upload('data.csv', 'a,b\n1,2\n');
    assert.equal(a.status, 200, a.text);
    assert.deepEqual(a.json, {
      path: '/home/user/upload/data.csv',
      size: 8,
      sha256: createHash('sha256').update('a,b\n1,2\n').digest('hex'),
    });
    const b = await g.session('files', { dialect: 'B' }).upload('b.txt', 'bb');
    assert.equal(b.status, 200, b.text);
    assert.deepEqual([b.json.path, b.json.size, b.json.is_directory], ['/home/user/b.txt', 2, false]);
    assert.match(b.json.modified_at, TIME);
    const there = await g.session('files').upload('c.txt', 'c', '/tmp/deep/er');
    assert.equal(there.json.path, '/tmp/deep/er/c.txt');
  });

  test('download gives the bytes', async () => {
    const s = g.session('files');
    const bytes = Buffer.from(Array.from({ length: 70_000 }, (_, i) => (i * 7) & 255));
    const up = (await s.upload('b.bin', bytes)).json;
    const res = await s.download(up.path);
    assert.equal(res.status, 200, res.text);
    assert.ok(res.body.equals(bytes));
    assert.equal(res.headers['content-type'], 'application/octet-stream');
    assert.equal(res.headers['content-disposition'], 'attachment; filename="b.bin"');
    assert.equal(res.headers['content-length'], '70000');
    const part = await s.download(up.path, { headers: { range: 'bytes=10-19' } });
    assert.equal(part.status, 206);
    assert.ok(part.body.equals(bytes.subarray(10, 20)));
    assert.equal(part.headers['content-range'], 'bytes 10-19/70000');
  });

  test('list has the upload', async () => {
    const s = g.session('files');
    await s.upload('.hidden', 'x', '/home/user/listed');
    await s.upload('b', 'xy', '/home/user/listed');
    await s.upload('a', '', '/home/user/listed/sub');
    const res = await s.files('/home/user/listed');
    assert.equal(res.status, 200, res.text);
    assert.deepEqual(
      res.json.map((f) => [f.path, f.size, f.is_directory]),
      [
        ['/home/user/listed/.hidden', 1, false],
        ['/home/user/listed/b', 2, false],
        ['/home/user/listed/sub', res.json[2].size, true],
      ],
    );
    assert.ok((await s.files()).json.some((f) => f.path === '/home' && f.is_directory));
    assert.ok((await g.session('files', { dialect: 'B' }).files()).json.every((f) => f.path.startsWith('/home/user/')));
  });

  test('status is the sandbox, or null', async () => {
    const a = g.session('status');
    const b = g.session('status', { dialect: 'B' });
    assert.equal((await a.status()).text.trim(), 'null');
    assert.deepEqual((await b.status()).json, { exists: false, info: null });
    const info = (await a.start()).json;
    assert.equal((await a.status()).json.sandbox_id, info.sandbox_id);
    const of = (await b.status()).json;
    assert.equal(of.exists, true);
    assert.equal(of.info.sandbox_id, info.sandbox_id);
  });

  test('stop is 204, then status is null', async () => {
    const s = g.session('stop');
    const { sandbox_id } = (await s.start()).json;
    const res = await s.stop();
    assert.equal(res.status, 204);
    assert.equal(res.text, '');
    assert.equal((await s.status()).text.trim(), 'null');
    assert.ok(!(await g.provided()).includes(sandbox_id));
    assert.equal((await s.stop()).status, 204, 'also when there is none');
    const b = await g.session('stop', { dialect: 'B' }).stop();
    assert.equal(b.status, 200);
    assert.deepEqual(b.json, { status: 'stopped' });
  });

  test('a new id after stop, and no word of lost state', async () => {
    const s = g.session('again');
    const first = (await s.start()).json;
    await s.stop();
    const second = (await s.start()).json;
    assert.notEqual(second.sandbox_id, first.sandbox_id);
    assert.equal(second.generation, 2);
    const run = (await s.execute('1')).json;
    assert.deepEqual([run.generation, run.state_lost], [2, false]);
  });

  test('download and files without a sandbox are 404', async () => {
    const s = g.session('nothing');
    assertProblem(await s.download('/etc/passwd'), 404, 'sandbox_not_found', /^Sandbox not found/);
    assertProblem(await s.files(), 404, 'sandbox_not_found', /^Sandbox not found/);
    await s.start();
    assertProblem(await s.download('/home/user/none'), 404, 'file_not_found', /^File not found/);
    assertProblem(await s.files('/home/user/none'), 404, 'file_not_found', /^File not found/);
    assertProblem(await s.download('/home/user'), 400, 'bad_path', /directory/);
  });
});
