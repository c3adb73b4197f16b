// What a newcomer types: make up, make down, make install.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import { BUILD, SUITE, output, request, startEngine, tempFolder } from './engine.mjs';

const TOP = path.resolve(import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname), '../..');
const run = promisify(execFile);

/** tools/local as the Makefile calls it. */
const local = (command, dir, port = '0') =>
  run(path.join(TOP, 'tools/local'), [command], { env: { ...process.env, PORT: port, RUN_DIR: dir, BUILD }, timeout: 90_000 });

describe('on this machine', SUITE, () => {
  test('up returns when it is ready and says how to use it; down leaves nothing running', async () => {
    const dir = tempFolder();
    const place = path.join(dir, 'a place');
    try {
      const { stdout } = await local('up', place);
      const url = stdout.match(/^\s+URL\s+(\S+)$/m)[1];
      const key = fs.readFileSync(path.join(place, 'engine-key'), 'utf8').trim();
      assert.match(key, /^e2b_[0-9a-f]{40}$/);
      assert.equal(fs.statSync(path.join(place, 'engine-key')).mode & 0o777, 0o600);
      assert.ok(stdout.includes(key) && stdout.includes('curl '), stdout);
      assert.equal((await request(`${url}/v2/sandboxes`, { headers: { 'x-api-key': key } })).status, 200);
      assert.match((await local('up', place)).stdout, /already running on http/);

      assert.match((await local('down', place)).stdout, /engine stopped/);
      await assert.rejects(request(`${url}/health`, { deadline: 5_000 }));
      assert.match((await local('down', place)).stdout, /nothing is running/);
      assert.deepEqual(fs.readdirSync(path.join(place, 'engine')), []);
      await local('up', place);
      assert.equal(fs.readFileSync(path.join(place, 'engine-key'), 'utf8').trim(), key, 'the key stays');
    } finally {
      await local('down', place);
      fs.rmSync(dir, { recursive: true });
    }
  });

  test('a port that is taken or is none is said, and nothing stays', async () => {
    const dir = tempFolder();
    const engine = await startEngine();
    try {
      await assert.rejects(local('up', dir, String(engine.port)), (e) => /in use by another program/.test(e.stderr));
      await assert.rejects(local('up', dir, 'abc'), (e) => /not a port number/.test(e.stderr));
      assert.match((await local('down', dir)).stdout, /nothing is running/);
    } finally {
      await engine.stop();
      fs.rmSync(dir, { recursive: true });
    }
  });

  test('what make install puts below DESTDIR runs from there', async () => {
    const dir = tempFolder();
    const env = { ...process.env };
    for (const name of ['MAKEFLAGS', 'MAKELEVEL', 'MFLAGS']) delete env[name];
    const variant = path.relative(path.join(TOP, 'build'), BUILD).split(path.sep);
    const args = ['install', `DESTDIR=${dir}`, 'PREFIX=/usr'];
    if (variant.includes('san')) args.push('SAN=1');
    if (variant.includes('clang')) args.push('CC=clang');
    await run('make', args, { cwd: TOP, env, timeout: 600_000 });
    for (const file of ['bin/sandgate-engine', 'libexec/sandgate/sandgate-agent', 'share/doc/sandgate/README.md'])
      assert.ok(fs.existsSync(path.join(dir, 'usr', file)), file);
    const engine = await startEngine({ command: path.join(dir, 'usr/bin/sandgate-engine') });
    try {
      const sandbox = await engine.create('base');
      assert.equal(await output(sandbox, 'echo installed'), 'installed');
    } finally {
      await engine.stop();
      fs.rmSync(dir, { recursive: true });
    }
  });
});
