// What a newcomer types: make run, make up, make down; and the site's nginx configuration.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import { BUILD, KEY, SUITE, commandLine, request, startEngine, tempFolder, until, within } from './engine.mjs';

const TOP = path.resolve(import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname), '../..');
const ROOT = process.getuid() === 0;
const run = promisify(execFile);

// A variable of the caller's shell must not change what is tested. (The engine's harness removes E2B_*.)
const plain = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(SANDGATE_|MAKE|MFLAGS)/.test(name)));
plain.PATH += ':/usr/sbin:/sbin';

const setup = (dir, { port = '0', env = {} } = {}) => ({ env: { ...plain, PORT: port, RUN_DIR: dir, BUILD, ...env }, timeout: 200_000 });

/** tools/local as the Makefile calls it. */
const local = (command, dir, options) => run(path.join(TOP, 'tools/local'), [command], setup(dir, options));

const read = (...parts) => fs.readFileSync(path.join(...parts), 'utf8').trim();
const mode = (...parts) => (fs.statSync(path.join(...parts)).mode & 0o777).toString(8);

/** The processes whose command line or folder names a folder. */
function processesIn(dir) {
  const names = (pid) => {
    try {
      return `${commandLine(pid)} ${fs.readlinkSync(`/proc/${pid}/cwd`)}`;
    } catch {
      return '';
    }
  };
  return fs.readdirSync('/proc').filter((pid) => /^\d+$/.test(pid) && Number(pid) !== process.pid && names(pid).includes(dir));
}

/** A temp folder for one test; what was started in it is stopped. */
async function inFolder(body) {
  const dir = tempFolder();
  const place = path.join(dir, 'a place');
  try {
    await body(place, dir);
    await local('down', place);
    assert.deepEqual(processesIn(dir), []);
  } finally {
    await local('down', place);
    fs.rmSync(dir, { recursive: true });
  }
}

/** Runs the line that was printed for pasting; what the code printed. */
async function paste(text) {
  const line = text.split('\n').find((l) => /^\s+curl /.test(l));
  assert.ok(line, text);
  const { stdout } = await run('bash', ['-c', line], { env: plain, timeout: 60_000, cwd: TOP });
  return JSON.parse(stdout).output;
}

/** Not every container has a name for itself. */
const numeric = (url) => url.replace('//localhost:', '//127.0.0.1:');

const call = (place, target, token = read(place, 'token'), options = {}) =>
  request(`${numeric(read(place, 'url'))}/api/v1/session/s1/sandbox/${target}`, { headers: { authorization: `Bearer ${token}` }, ...options });

describe('on this machine', SUITE, () => {
  test('up returns when it is ready and prints a line that works; down leaves nothing running', () =>
    inFolder(async (place) => {
      const { stdout } = await local('up', place);
      assert.equal(await paste(stdout), 'hello\n');
      const url = stdout.match(/^\s+URL\s+(\S+)$/m)[1];
      assert.equal(url, read(place, 'url'));
      assert.equal((await request(`${numeric(url)}/readyz`)).status, 200);
      assert.equal((await call(place, 'status', 'sg_wrong')).status, 401);
      for (const file of ['token', 'admin-token', 'engine-key', 'sandgate.conf']) assert.equal(mode(place, file), '600', file);
      assert.match(stdout, /E2B_API_URL=http:\/\/127\.0\.0\.1:\d+/);
      assert.ok(!stdout.includes(read(place, 'token')) && !stdout.includes(read(place, 'engine-key')), 'no secret is printed');
      assert.match((await local('up', place)).stdout, /already running on http/);

      const before = fs.readFileSync(path.join(place, 'sandgate.conf'), 'utf8');
      const ctl = (...args) => run(path.join(BUILD, 'sandgatectl'), ['-c', path.join(place, 'sandgate.conf'), ...args], { env: plain });
      const bob = (await ctl('token', 'create', '--user', 'bob')).stdout.trim();
      assert.equal((await call(place, 'status', bob)).text.trim(), 'null', "bob's s1 is another one");
      assert.match((await ctl('list')).stdout, /\bdemo\b/);

      assert.match((await local('down', place)).stdout, /cleanup stopped\n.*nginx stopped\n.*gateway stopped\n.*engine stopped/);
      assert.deepEqual(processesIn(place), []);
      await assert.rejects(request(`${numeric(url)}/healthz`, { deadline: 5_000 }));
      assert.match((await local('down', place)).stdout, /nothing is running/);
      assert.deepEqual(fs.readdirSync(path.join(place, 'engine')), []);

      const kept = ['token', 'admin-token', 'engine-key'].map((file) => read(place, file));
      fs.writeFileSync(path.join(place, 'sandgate.conf'), `${before}SANDGATE_MAX_SANDBOXES_PER_USER=2\n`);
      await local('up', place);
      assert.deepEqual(['token', 'admin-token', 'engine-key'].map((file) => read(place, file)), kept, 'secrets stay');
      assert.equal((await call(place, 'status', bob)).status, 200, 'so does the database');
      assert.match((await ctl('config')).stdout, /^SANDGATE_MAX_SANDBOXES_PER_USER=2$/m, 'and what the user has added');
      // The sandboxes went with their engine, and the first pass of the cleanup finds that out.
      await until(async () => (await call(place, 'status')).text.trim() === 'null', { deadline: 30_000, what: 'a pass' });
      assert.match(read(place, 'cleanup.log'), /op=lose .*reason=killed_by_provider/);
    }));

  test('nothing that listens or serves is root', { skip: !ROOT && 'needs root' }, () =>
    inFolder(async (place) => {
      await local('up', place);
      for (const name of ['gateway', 'nginx', 'cleanup']) {
        const status = read('/proc', read(place, `${name}.pid`).split(' ')[0], 'status');
        assert.match(status, /^Uid:\t299999\t299999\t299999\t299999$/m, name);
        assert.match(status, /^Groups:\t\s*$/m, name);
        assert.match(status, /^CapEff:\t0+$/m, name);
        assert.match(status, /^CapBnd:\t0+$/m, name);
      }
      assert.equal(mode(place, 'gateway'), '700');
    }));

  test('a folder that is closed to the dropped user is no obstacle', { skip: !ROOT && 'needs root' }, () =>
    inFolder(async (place, dir) => {
      fs.chmodSync(dir, 0o700);
      const { stdout } = await local('up', place);
      const state = stdout.match(/state is in (\/run\/sandgate-\S+) until make down/)[1];
      assert.equal(await paste(stdout), 'hello\n');
      await local('down', place);
      assert.ok(!fs.existsSync(state), state);
    }));

  test('up after a crash ends what is left of it and keeps the state', () =>
    inFolder(async (place) => {
      await local('up', place);
      const token = read(place, 'token');
      process.kill(Number(read(place, 'nginx.pid').split(' ')[0]), 'SIGKILL');
      const { stdout } = await local('up', place);
      assert.equal(await paste(stdout), 'hello\n');
      assert.equal(read(place, 'token'), token);
      const count = (name) => processesIn(place).filter((pid) => commandLine(pid).startsWith(name)).length;
      assert.equal(count('nginx: master'), 1);
      assert.equal(count('nginx: worker'), 2, 'those of the first one are gone');
    }));

  test('a port that is taken or is none is said, and nothing stays', () =>
    inFolder(async (place) => {
      const engine = await startEngine();
      try {
        await assert.rejects(local('up', place, { port: String(engine.port) }), (e) => /in use by another program/.test(e.stderr));
        await assert.rejects(local('up', place, { port: 'abc' }), (e) => /not a port number/.test(e.stderr));
        assert.deepEqual(processesIn(place), []);
        assert.match((await local('down', place)).stdout, /nothing is running/);
      } finally {
        await engine.stop();
      }
    }));

  test('a bad setting is said, and what was started before is stopped', () =>
    inFolder(async (place) => {
      const env = { SANDGATE_QUICK_WORKERS: 'many' };
      await assert.rejects(local('up', place, { env }), (e) => /SANDGATE_QUICK_WORKERS: 'many' is no number/.test(e.stderr));
      assert.deepEqual(processesIn(place), []);
    }));

  test('with a key in the environment E2B is used, and the key is in one file only', () =>
    inFolder(async (place) => {
      const engine = await startEngine();
      try {
        const env = { E2B_API_KEY: KEY, E2B_API_URL: engine.url, E2B_SANDBOX_URL: engine.url };
        const { stdout } = await local('up', place, { env });
        assert.equal(await paste(stdout), 'hello\n');
        assert.equal(JSON.parse((await engine.api('GET', '/v2/sandboxes')).text).length, 1);
        assert.ok(!fs.existsSync(path.join(place, 'engine.pid')) && !stdout.includes(KEY));
        for (const pid of processesIn(place)) assert.ok(!(commandLine(pid) + read('/proc', pid, 'environ')).includes(KEY), commandLine(pid));
        assert.ok(read(place, 'sandgate.conf').includes(`E2B_API_KEY=${KEY}\n`));
        await local('down', place);
        const wrong = { ...env, E2B_API_KEY: `e2b_${'1'.repeat(40)}` };
        await assert.rejects(local('up', place, { env: wrong }), (e) => /not ready: .*key refused/.test(e.stderr));
      } finally {
        await local('down', place);
        await engine.stop();
      }
    }));

  test('run shows the logs and ends when one of the three does', () =>
    inFolder(async (place) => {
      const child = spawn(path.join(TOP, 'tools/local'), ['run'], { ...setup(place), stdio: ['ignore', 'pipe', 'pipe'] });
      let said = '';
      for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (d) => (said += d));
      const closed = new Promise((resolve) => child.on('close', (code) => resolve(code)));
      await until(() => said.includes('Ctrl-C stops it'), { deadline: 90_000, what: 'the start' });
      assert.equal((await call(place, 'status')).status, 200);
      await until(() => /"path":"\/api\/v1\/session\/s1\/sandbox\/status"/.test(said) && /op=status/.test(said), { what: 'both log lines' });
      assert.match(said, /sandgate-engine: ready on/);
      process.kill(Number(read(place, 'nginx.pid').split(' ')[0]), 'SIGKILL');
      assert.equal(await within(60_000, closed, 'the end'), 1);
      assert.match(said, /nginx ended by itself/);
      assert.match(said, /gateway stopped\n(.*\n)*sandgate: engine stopped/);
      assert.deepEqual(processesIn(place), []);
    }));
});

describe("the site's nginx configuration", SUITE, () => {
  /** The site's files as they are installed, with what a site fills in; in all files, so that no snippet is left out. */
  async function site(dir, auth) {
    const files = fs.readdirSync(path.join(TOP, 'nginx')).filter((name) => /\.(conf|map)$/.test(name));
    fs.mkdirSync(path.join(dir, 'sandgate'), { recursive: true });
    for (const name of files) {
      const text = read(TOP, 'nginx', name)
        .replaceAll(/(?<=ssl_certificate )\S+(?=;)/g, `${dir}/tls.pem`)
        .replaceAll(/(?<=ssl_certificate_key )\S+(?=;)/g, `${dir}/tls.key`)
        .replaceAll(/(?<=(ssl_client_certificate|ssl_trusted_certificate) )\S+(?=;)/g, `${dir}/tls.pem`)
        .replaceAll('/var/log/nginx/', `${dir}/`)
        .replaceAll('/run/sandgate', `${dir}/run`)
        .replaceAll(/listen \[::\].*/g, '')
        .replaceAll(/listen (80|443)/g, 'listen 127.0.0.1:1$1')
        .replace('include sandgate/auth-token.conf', `include sandgate/${auth}`);
      fs.writeFileSync(path.join(dir, 'sandgate', name), `${text}\n`);
    }
    fs.writeFileSync(path.join(dir, 'sandgate/users'), '');
    const temp = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((name) => `${name}_temp_path ${dir}/${name};`).join(' ');
    const text = `pid ${dir}/pid; events {} http { ${temp} gzip on; include sandgate/sandgate.conf; }\n`;
    fs.writeFileSync(path.join(dir, 'nginx.conf'), text);
    return run('nginx', ['-t', '-e', 'stderr', '-p', dir, '-c', path.join(dir, 'nginx.conf')], { env: plain });
  }

  test('passes with each way of recognising callers, without DNS', async () => {
    const dir = tempFolder();
    const key = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2', '-subj', '/CN=localhost'];
    try {
      await run('openssl', [...key, '-keyout', `${dir}/tls.key`, '-out', `${dir}/tls.pem`], { env: plain });
      for (const auth of ['auth-token.conf', 'auth-basic.conf', 'auth-mtls.conf', 'auth-oauth2-proxy.conf']) {
        const { stderr } = await site(dir, auth);
        assert.match(stderr, /test is successful/, auth);
        assert.doesNotMatch(stderr, /\[(warn|error|crit|alert|emerg)\]/, auth);
      }
      await assert.rejects(site(dir, 'auth-none.conf'), (e) => /auth-none\.conf/.test(e.stderr));
    } finally {
      fs.rmSync(dir, { recursive: true });
    }
  });
});
