// The older line of the SDK (e2b 2.45.0 with @e2b/code-interpreter 2.7.1) as a second judge of the engine. On the wire it differs
// in little: it creates and connects by the v1 routes, with the timeout, secure and allow_internet_access always said, and pauses
// with memory said.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { after, before, describe, test } from 'node:test';
import { Sandbox, Secret, Template, Volume } from '../older/sdk.mjs';
import { ENVD, INTERPRETER, SUITE, fails, output, python, request, routing, startEngine, until } from './engine.mjs';

const version = (name) => createRequire(new URL('../older/sdk.mjs', import.meta.url))(`${name}/package.json`).version;

let engine, sandbox;

const create = (template, opts) => Sandbox.create(template, { ...engine.sdk, timeoutMs: 600_000, ...opts });

describe('the older SDK', SUITE, () => {
  before(async () => {
    engine = await startEngine({ args: ['--no-internet'] });
    sandbox = await create('code-interpreter-v1', { metadata: { of: 'older sdk' }, envs: { GIVEN: 'yes' } });
  });
  after(() => engine?.stop());

  test('is the older one', () => {
    assert.equal(version('e2b'), '2.45.0');
    assert.equal(version('@e2b/code-interpreter'), '2.7.1');
  });

  test('create is secure unless it is told not to be, and takes its options', async () => {
    assert.match(sandbox.sandboxId, /^i[a-z0-9]{20}$/);
    for (const [secure, status] of [
      [true, 401],
      [false, 200],
    ]) {
      const lifelong = { onTimeout: 'pause', autoResume: true };
      const made = await create('base', { secure, lifecycle: lifelong, network: { allowPublicTraffic: !secure } });
      const { lifecycle, allowInternetAccess } = await made.getInfo();
      assert.deepEqual([lifecycle.onTimeout, lifecycle.autoResume, allowInternetAccess], ['pause', true, true]);
      const headers = { ...routing({ sandboxId: made.sandboxId }, ENVD), 'e2b-traffic-access-token': made.trafficAccessToken ?? '' };
      assert.equal((await request(`${engine.url}/envs`, { headers })).status, status);
      if (secure) assert.equal((await engine.inside(made, INTERPRETER, 'GET', '/health')).status, 403);
      assert.equal(await output(made, 'echo $E2B_SANDBOX_ID'), made.sandboxId);
      assert.equal(await made.kill(), true);
    }
  });

  test('connect, list, info, timeout', async () => {
    const id = sandbox.sandboxId;
    const again = await Sandbox.connect(id, engine.sdk);
    assert.equal(await output(again, 'echo $GIVEN'), 'yes');
    const query = { metadata: { of: 'older sdk' }, state: ['running'] };
    const listed = await Sandbox.list({ ...engine.sdk, query }).nextItems();
    assert.deepEqual(
      listed.map((s) => [s.sandboxId, s.state, s.metadata]),
      [[id, 'running', { of: 'older sdk' }]],
    );
    await sandbox.setTimeout(300_000);
    const info = await Sandbox.getInfo(id, engine.sdk);
    assert.deepEqual([info.sandboxId, info.name, info.state], [id, 'code-interpreter-v1', 'running']);
    assert.ok(Math.abs(info.endAt - Date.now() - 300_000) < 5_000, String(info.endAt));
    await Sandbox.connect(id, { ...engine.sdk, timeoutMs: 600_000 });
    assert.ok((await sandbox.getInfo()).endAt > info.endAt, 'connect lengthens');
    assert.equal(await sandbox.isRunning(), true);
  });

  test('metrics', async () => {
    const [sample] = await sandbox.getMetrics();
    assert.ok(sample.memTotal > 0 && sample.diskTotal > 0 && sample.timestamp instanceof Date, JSON.stringify(sample));
  });

  test('runs code: text, streams, variables, results, errors', async () => {
    assert.equal((await sandbox.runCode('x = 20\nx + 1')).text, '21');
    const seen = { stdout: [], stderr: [], results: [] };
    const run = await sandbox.runCode(
      'import sys, os\nprint(os.environ["ONCE"])\nprint("bad", file=sys.stderr)\ndisplay({"text/html": "<b>x</b>"}, raw=True)\nx + 2',
      {
        envs: { ONCE: 'grün' },
        onStdout: (m) => seen.stdout.push(m.line),
        onStderr: (m) => seen.stderr.push(m.line),
        onResult: (r) => seen.results.push(r.html ?? r.text),
      },
    );
    assert.deepEqual(seen, { stdout: ['grün\n'], stderr: ['bad\n'], results: ['<b>x</b>', '22'] });
    assert.deepEqual([run.text, run.results.length, run.error], ['22', 2, undefined]);
    const { error } = await sandbox.runCode('1 / 0');
    assert.deepEqual([error.name, error.value], ['ZeroDivisionError', 'division by zero']);
    await fails(sandbox.runCode('import time; time.sleep(60)', { timeoutMs: 1_000 }), 'TimeoutError');
    assert.equal(await python(sandbox, 'x'), '20');
  });

  test('contexts', async () => {
    const context = await sandbox.createCodeContext({ cwd: '/tmp' });
    assert.deepEqual([context.language, context.cwd], ['python', '/tmp']);
    assert.equal(await python(sandbox, 'import os; y = 5; os.getcwd()', { context }), '/tmp');
    assert.ok((await sandbox.listCodeContexts()).some((c) => c.id === context.id));
    await sandbox.restartCodeContext(context);
    assert.equal((await sandbox.runCode('y', { context })).error.name, 'NameError');
    await sandbox.removeCodeContext(context.id);
    // A run that is refused leaves the SDK's timer of the request behind, which keeps this process alive.
    await fails(sandbox.runCode('1', { context, requestTimeoutMs: 5_000 }), 'NotFoundError');
    assert.equal((await sandbox.runCode('echo $((6 * 7))', { language: 'bash' })).logs.stdout.join(''), '42\n');
  });

  test('commands: results, background, stdin, reconnect, kill', async () => {
    const run = await sandbox.commands.run('echo out; echo err >&2; pwd; echo $A', { cwd: '/tmp', envs: { A: 'b' } });
    assert.deepEqual([run.exitCode, run.stdout, run.stderr], [0, 'out\n/tmp\nb\n', 'err\n']);
    const failed = await fails(sandbox.commands.run('exit 7'), 'CommandExitError');
    assert.equal(failed.exitCode, 7);
    await fails(sandbox.commands.run('sleep 60', { timeoutMs: 500 }), 'TimeoutError');

    const lines = [];
    const cat = await sandbox.commands.run('cat', { background: true, stdin: true, onStdout: (d) => void lines.push(d) });
    await sandbox.commands.sendStdin(cat.pid, 'hello\n');
    await until(() => lines.join('') === 'hello\n', { what: 'the echo' });
    assert.ok((await sandbox.commands.list()).some((p) => p.pid === cat.pid));
    const second = await sandbox.commands.connect(cat.pid);
    await sandbox.commands.closeStdin(cat.pid);
    assert.deepEqual([(await cat.wait()).exitCode, (await second.wait()).exitCode], [0, 0]);

    const child = await sandbox.commands.run('sleep 600', { background: true });
    assert.equal(await child.kill(), true);
    await fails(child.wait(), 'CommandExitError', /killed/);
    assert.equal(await sandbox.commands.kill(child.pid), false);
  });

  test('files: write, read, list, move, remove, in every format', async () => {
    const { files } = sandbox;
    assert.equal((await files.write('old/a.txt', 'grün')).path, '/home/user/old/a.txt');
    await files.write([
      { path: 'old/b.bin', data: new Uint8Array([0, 255, 1]).buffer },
      { path: 'old/c.txt', data: new Blob(['c']) },
    ]);
    assert.equal(await files.read('old/a.txt'), 'grün');
    assert.deepEqual([...(await files.read('old/b.bin', { format: 'bytes' }))], [0, 255, 1]);
    assert.equal(await new Response(await files.read('old/c.txt', { format: 'stream' })).text(), 'c');
    await files.write('old/g.txt', 'g'.repeat(5000), { gzip: true });
    assert.equal((await files.read('old/g.txt', { gzip: true })).length, 5000);
    assert.deepEqual((await files.list('old')).map((e) => e.name).sort(), ['a.txt', 'b.bin', 'c.txt', 'g.txt']);
    assert.equal((await files.rename('old/c.txt', 'old/d.txt')).name, 'd.txt');
    assert.deepEqual([await files.exists('old/c.txt'), await files.exists('old/d.txt')], [false, true]);
    assert.equal((await files.getInfo('old/a.txt')).size, 5);
    assert.deepEqual([await files.makeDir('old/e'), await files.makeDir('old/e')], [true, false]);
    await files.remove('old');
    await fails(files.read('old/a.txt'), 'FileNotFoundError');
  });

  test('watches a directory', async () => {
    const events = [];
    await sandbox.files.makeDir('watched/deep');
    const watch = await sandbox.files.watchDir('watched', (e) => void events.push(`${e.type} ${e.name}`), { recursive: true });
    await sandbox.files.write('watched/deep/f', '1');
    await until(() => events.includes('write deep/f'), { what: `the event among ${events}` });
    assert.ok(events.includes('create deep/f'));
    await watch.stop();
  });

  test('upload and download by signed addresses', async () => {
    const form = new FormData();
    form.append('file', new Blob(['by address']), 'u.txt');
    const up = await fetch(await sandbox.uploadUrl('u.txt', { useSignatureExpiration: 60 }), { method: 'POST', body: form });
    assert.equal(up.status, 200, await up.text());
    const address = await sandbox.downloadUrl('u.txt', { useSignatureExpiration: 60 });
    assert.equal(await (await fetch(address)).text(), 'by address');
    assert.equal((await fetch(address.replace(/signature=[^&]*/, 'signature=v1_no'))).status, 401);
  });

  test('pause and resume, under both names', async () => {
    const made = await create('code-interpreter-v1');
    await python(made, 'kept = 1');
    for (const pause of ['pause', 'betaPause']) {
      assert.equal(await made[pause](), true);
      assert.equal(await made[pause](), false, 'it is paused already');
      assert.equal((await made.getInfo()).state, 'paused');
      await (pause === 'pause' ? made.connect() : Sandbox.connect(made.sandboxId, engine.sdk));
      assert.equal(await python(made, 'kept'), '1');
    }
    await made.kill();
  });

  test('errors have the classes and the words of its own', async () => {
    const made = await create('base');
    assert.equal(await made.kill(), true);
    assert.equal(await made.kill(), false);
    await fails(made.getInfo(), 'SandboxNotFoundError');
    await fails(made.commands.run('true'), 'SandboxNotFoundError', /probably not running/);
    await fails(Sandbox.connect(made.sandboxId, engine.sdk), 'SandboxNotFoundError');
    await fails(create('none-such'), 'SandboxError', /^404: template 'none-such' not found/);
    await fails(create('base', { apiKey: `e2b_${'1'.repeat(40)}` }), 'AuthenticationError');
    await fails(create('base', { timeoutMs: 1e12 }), 'SandboxError', /^400: .*Timeout/);
  });

  test('what is not offered says so at once', async () => {
    await fails(sandbox.createSnapshot(), 'SandboxError', /^501: /);
    await fails(sandbox.fork(), 'SandboxError', /^501: /);
    await fails(sandbox.pause({ keepMemory: false }), 'SandboxError', /^501: /);
    await fails(create('base', { mcp: { github: {} } }), 'SandboxError', /^501: mcp/);
    await fails(Volume.list(engine.sdk), 'VolumeError', /^501: /);
    await fails(Secret.list(engine.sdk).nextItems(), 'SecretError', /^501: /);
    await fails(Template.getTags('base', engine.sdk), 'TemplateError', /^501: /);
    assert.equal(await Template.exists('base', engine.sdk), true);
  });
});
