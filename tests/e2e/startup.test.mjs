// The command line, the ready line, the keys and the two ways to start: as root and as an ordinary user.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { describe, test } from 'node:test';
import {
  BUILD,
  KEY,
  LAYERS,
  SUITE,
  assertError,
  output,
  python,
  raw,
  rawStatus,
  request,
  runEngine,
  startEngine,
  tempFolder,
  writeFiles,
} from './engine.mjs';

describe('starting', SUITE, () => {
  test('--help tells every option and exits 0', async () => {
    const { code, stdout } = await runEngine(['--help']);
    assert.equal(code, 0);
    for (const option of [
      '--listen',
      '--state',
      '--api-key-file',
      '--templates',
      '--wheelhouse',
      '--no-internet',
      '--cgroups',
      '--max-sandboxes',
      '--max-memory',
      '--max-lifetime',
      '--log-level',
    ])
      assert.ok(stdout.includes(option), `${option} is not in the help`);
  });

  test('bad options give a readable error and exit 2', async (t) => {
    const dir = tempFolder();
    t.after(() => fs.rmSync(dir, { recursive: true, force: true }));
    const good = ['--listen', '127.0.0.1:0', '--state', path.join(dir, 'state')];
    const bad = {
      'an unknown option': [[...good, '--frobnicate'], /frobnicate/],
      'a stray word': [[...good, 'hello'], /hello/],
      'no state': [['--listen', '127.0.0.1:0'], /state/],
      'an option without its value': [['--listen', '127.0.0.1:0', '--state'], /state/],
      'a bad address': [['--listen', 'nowhere', '--state', path.join(dir, 'state')], /listen|address|nowhere/],
      'a bad port': [['--listen', '127.0.0.1:99999', '--state', path.join(dir, 'state')], /listen|port|99999/],
      'a bad number': [[...good, '--max-sandboxes', 'many'], /max-sandboxes/],
      'a negative number': [[...good, '--max-lifetime', '-5'], /max-lifetime/],
      'a bad word': [[...good, '--cgroups', 'maybe'], /cgroups/],
      'a bad level': [[...good, '--log-level', 'loud'], /log-level/],
      'no key file': [[...good, '--api-key-file', path.join(dir, 'absent')], /api-key-file|absent/],
      'no template folder': [[...good, '--templates', path.join(dir, 'absent')], /templates|absent/],
      'no wheel folder': [[...good, '--wheelhouse', path.join(dir, 'absent')], /wheelhouse|absent/],
    };
    for (const [what, [args, pattern]] of Object.entries(bad)) {
      const { code, stderr } = await runEngine(args, { env: { SANDGATE_ENGINE_API_KEYS: KEY } });
      assert.equal(code, 2, `${what}: ${stderr}`);
      assert.match(stderr, pattern, what);
    }
  });

  test('without any key nobody gets in', async (t) => {
    const dir = tempFolder();
    t.after(() => fs.rmSync(dir, { recursive: true, force: true }));
    const env = { SANDGATE_ENGINE_API_KEYS: '' };
    const { code, stderr } = await runEngine(['--listen', '127.0.0.1:0', '--state', path.join(dir, 'state')], { env });
    assert.equal(code, 2, stderr);
    assert.match(stderr, /key/i);
  });

  test('a port that is taken is a readable error', async (t) => {
    const dir = tempFolder();
    const server = net.createServer().listen(0, '127.0.0.1');
    t.after(() => {
      server.close();
      fs.rmSync(dir, { recursive: true, force: true });
    });
    await new Promise((resolve) => server.once('listening', resolve));
    const { code, stderr } = await runEngine(['--listen', `127.0.0.1:${server.address().port}`, '--state', path.join(dir, 'state')], {
      env: { SANDGATE_ENGINE_API_KEYS: KEY },
    });
    assert.ok(code === 1 || code === 2, stderr);
    assert.match(stderr, /address already in use|in use/i);
  });

  test('a broken template file is named, never passed over in silence', async (t) => {
    const dir = tempFolder();
    t.after(() => fs.rmSync(dir, { recursive: true, force: true }));
    const templates = writeFiles(path.join(dir, 'templates'), { 'broken.template': 'cpu = several\n' });
    const { code, stderr } = await runEngine(['--listen', '127.0.0.1:0', '--state', path.join(dir, 'state'), '--templates', templates], {
      env: { SANDGATE_ENGINE_API_KEYS: KEY },
    });
    assert.equal(code, 2, stderr);
    assert.match(stderr, /broken\.template|broken/);
  });

  test('the ready line names each layer once, and why the inactive ones are', async () => {
    const engine = await startEngine();
    try {
      const { active, inactive } = engine.ready;
      for (const layer of LAYERS) assert.ok(active.has(layer) !== inactive.has(layer), `${layer}: ${engine.ready.line}`);
      for (const [layer, why] of inactive) assert.ok(why.length > 2, `no reason for ${layer}: ${engine.ready.line}`);
      assert.equal(
        engine
          .stderr()
          .split('\n')
          .filter((l) => l.includes('ready on')).length,
        1,
      );
    } finally {
      await engine.stop();
    }
  });

  test('keys come from a file and from the environment, several of each', async () => {
    const dir = tempFolder();
    const names = [1, 2, 3, 4].map((n) => `e2b_${String(n).repeat(40)}`);
    const file = path.join(dir, 'keys');
    fs.writeFileSync(file, `${names[0]}\n${names[1]}\n`, { mode: 0o600 });
    const engine = await startEngine({ dir, keys: [names[2], names[3]], args: ['--api-key-file', file] });
    try {
      for (const key of names) assert.equal((await engine.api('GET', '/v2/sandboxes', { key })).status, 200, key);
      assertError(await engine.api('GET', '/v2/sandboxes', { key: KEY }), 401);
      const secrets = engine.family
        .look()
        .map((pid) => fs.readFileSync(`/proc/${pid}/cmdline`, 'latin1'))
        .join('\n');
      for (const key of names) assert.ok(!secrets.includes(key), 'a key is in a command line');
    } finally {
      await engine.stop();
    }
  });

  test('it listens where it was told, and only there', async () => {
    const engine = await startEngine();
    try {
      assert.equal(rawStatus(await raw(engine.port, 'GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')), 200);
      const hex = engine.port.toString(16).toUpperCase().padStart(4, '0');
      const listening = fs
        .readFileSync('/proc/net/tcp', 'latin1')
        .split('\n')
        .filter((l) => l.includes(`:${hex} 00000000:0000 0A`));
      assert.equal(listening.length, 1);
      assert.match(listening[0], /0100007F:/);
    } finally {
      await engine.stop();
    }
  });

  test('--cgroups off works, too', async () => {
    const engine = await startEngine({ args: ['--cgroups', 'off'] });
    try {
      assert.ok(engine.ready.inactive.has('freezer'), engine.ready.line);
      const sandbox = await engine.create();
      assert.equal(await python(sandbox, 'x = 20\nx + 1'), '21');
      assert.equal(await sandbox.pause(), true);
      assert.equal(await sandbox.isRunning(), false);
      await sandbox.connect();
      assert.equal(await python(sandbox, 'x + 2'), '22');
      assert.equal(await sandbox.kill(), true);
      assert.equal((await request(`${engine.url}/health`)).status, 200);
    } finally {
      await engine.stop();
    }
  });

  test('an ordinary user can start it, and is told what that costs', async (t) => {
    if (process.getuid() !== 0) {
      // Every other test of this run is already this one.
      assert.notEqual(process.getuid(), 0);
      return;
    }
    // The checkout may lie under a folder that is closed to others, so the programs are copied to where they can be run.
    const [dir, programs] = [tempFolder(), tempFolder()];
    t.after(() => [dir, programs].forEach((folder) => fs.rmSync(folder, { recursive: true, force: true })));
    for (const name of fs.readdirSync(BUILD)) {
      const from = path.join(BUILD, name);
      if (name.startsWith('sandgate-') && fs.statSync(from).isFile()) fs.copyFileSync(from, path.join(programs, name));
    }
    const engine = await startEngine({ dir, user: 65534, command: path.join(programs, 'sandgate-engine') });
    try {
      const sandbox = await engine.create();
      assert.equal(await output(sandbox, 'whoami'), 'user');
      assert.equal(await python(sandbox, '6 * 7'), '42');
      if (!engine.has('root and user')) {
        assert.ok(engine.ready.inactive.get('root and user'));
        await assert.rejects(sandbox.commands.run('true', { user: 'root' }), {
          name: 'AuthenticationError',
          message: /invalid username: 'root'/,
        });
      }
      await sandbox.kill();
    } finally {
      await engine.stop();
    }
  });
});
