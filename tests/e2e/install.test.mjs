// make install and make uninstall: what is put where, that the product runs from there as an operator would set it up, and what is left.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { BUILD, KEY, SUITE, tempFolder } from './engine.mjs';
import { TOP } from './gateway.mjs';
import { blocks } from './readme.mjs';
import { fill, startWorld } from './site.mjs';

const run = promisify(execFile);

// A variable of the caller's shell must not change what is tested.
const plain = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(SANDGATE_|MAKE|MFLAGS|PREFIX|DESTDIR|SYSCONFDIR)/.test(name)));

/** `make TARGET` of the build that is tested. */
function make(target, ...variables) {
  const variant = path.relative(path.join(TOP, 'build'), BUILD).split(path.sep);
  const args = [target, ...variables, ...(variant.includes('san') ? ['SAN=1'] : []), ...(variant.includes('clang') ? ['CC=clang'] : [])];
  return run('make', args, { cwd: TOP, env: plain, timeout: 600_000 });
}

/** Every file below a folder, with its mode. */
function listing(dir) {
  const files = fs.readdirSync(dir, { recursive: true, withFileTypes: true }).filter((f) => !f.isDirectory());
  const names = files.map((f) => path.relative(dir, path.join(f.parentPath ?? f.path, f.name))).sort();
  return Object.fromEntries(names.map((name) => [name, (fs.statSync(path.join(dir, name)).mode & 0o777).toString(8)]));
}

/** Folders below dir that are named for us. */
const foldersOfOurs = (dir) =>
  fs
    .readdirSync(dir, { recursive: true, withFileTypes: true })
    .filter((f) => f.isDirectory() && f.name === 'sandgate')
    .map((f) => path.relative(dir, path.join(f.parentPath ?? f.path, f.name)));

const sources = (folder, pattern) => fs.readdirSync(path.join(TOP, folder)).filter((name) => pattern.test(name));
/** Not for people to start. */
const INSIDE = ['sandgate-agent', 'sandgate-zygote.so'];
const programs = () => sources(path.relative(TOP, BUILD), /^sandgate(ctl|-\w+)?$/);

/** What has to be below PREFIX, with its mode. */
function expected() {
  const folders = {
    bin: programs().filter((name) => !INSIDE.includes(name)),
    'libexec/sandgate': INSIDE,
    'lib/systemd/system': sources('systemd', /\.(service|socket|timer)$/),
    'lib/sysusers.d': ['sandgate.conf'],
    'lib/tmpfiles.d': ['sandgate.conf'],
    'share/man/man5': ['sandgate.conf.5'],
    'share/man/man8': ['sandgate.8', 'sandgate-cleanup.8', 'sandgate-engine.8', 'sandgatectl.8'],
    'share/sandgate/nginx': sources('nginx', /\.(conf|map)$/),
    'share/sandgate/sql': sources('sql', /\.sql$/),
    'share/doc/sandgate': ['CHANGES.md', 'LICENSE', 'README.md', 'SECURITY.md', 'sandgate.conf'],
    'share/doc/sandgate/docs': sources('docs', /\.md$/),
  };
  const mode = (folder) => (/^(bin|libexec)/.test(folder) ? '755' : '644');
  return Object.fromEntries(Object.entries(folders).flatMap(([folder, names]) => names.map((name) => [`usr/${folder}/${name}`, mode(folder)])));
}

describe('an installation', SUITE, () => {
  let dir;
  let world;
  const inside = (...parts) => path.join(dir, ...parts);
  const where = () => [`DESTDIR=${dir}`, 'PREFIX=/usr'];
  const SETTINGS = 'etc/sandgate/sandgate.conf';

  before(async () => {
    dir = tempFolder('sandgate-install-');
    await make('install', ...where());
  });
  after(async () => {
    await world?.stop();
    if (dir) fs.rmSync(dir, { recursive: true });
  });

  test('has every file in its place, with its mode', () => {
    assert.deepEqual(listing(dir), { ...expected(), [SETTINGS]: '640' });
    assert.equal(fs.readFileSync(inside(SETTINGS), 'utf8'), fs.readFileSync(path.join(TOP, 'etc/sandgate.conf'), 'utf8'));
  });

  test('has settings that the programs accept, and that change nothing but where the key is', async () => {
    const config = async (...args) => (await run(inside('usr/bin/sandgatectl'), [...args, 'config'], { env: { E2B_API_KEY: KEY } })).stdout;
    const sample = await config('-c', inside(SETTINGS));
    assert.equal(fill(sample, 'E2B_API_KEY_FILE=/etc/sandgate/e2b-key\n', 'E2B_API_KEY_FILE=\n'), await config());
  });

  test('has units that name its programs and settings', () => {
    const units = inside('usr/lib/systemd/system');
    const texts = fs.readdirSync(units).map((name) => fs.readFileSync(path.join(units, name), 'utf8'));
    const started = texts.flatMap((text) => [...text.matchAll(/^ExecStart=(\S+)(?: -c (\S+))?/gm)]);
    assert.deepEqual(started.map((m) => m[1]).sort(), ['/usr/bin/sandgate', '/usr/bin/sandgate-cleanup', '/usr/bin/sandgate-engine']);
    assert.equal(started.filter((m) => m[2] === `/${SETTINGS}`).length, 2);
    for (const text of texts) assert.doesNotMatch(text, /@\w+@/);
  });

  test('makes its user and gives him the settings', { skip: process.getuid() !== 0 && 'needs root' }, async () => {
    await run('systemd-sysusers', [`--root=${dir}`, 'sandgate.conf']);
    await run('systemd-tmpfiles', [`--root=${dir}`, '--create', 'sandgate.conf']);
    const [, uid, gid] = fs.readFileSync(inside('etc/passwd'), 'utf8').match(/^sandgate:x:(\d+):(\d+):/m);
    assert.notEqual(uid, '0');
    const seen = (name) => (({ mode, uid: owner, gid: group }) => [(mode & 0o777).toString(8), owner, group])(fs.statSync(inside(name)));
    assert.deepEqual(seen('etc/sandgate'), ['750', 0, Number(gid)]);
    assert.deepEqual(seen(SETTINGS), ['640', 0, Number(gid)]);
    assert.deepEqual(seen('etc/sandgate/e2b-key'), ['600', 0, 0]);
    for (const name of fs.readdirSync(inside('etc')).filter((n) => n !== 'sandgate')) fs.rmSync(inside('etc', name), { recursive: true });
    fs.rmSync(inside('etc/sandgate/e2b-key'));
  });

  test('runs: engine, gateway, nginx with TLS, a token, a call', async () => {
    fs.writeFileSync(inside('etc/sandgate/e2b-key'), `${KEY}\n`, { mode: 0o600 });
    world = await startWorld({
      programs: inside('usr/bin'),
      nginx: inside('usr/share/sandgate/nginx'),
      sample: fill(fs.readFileSync(inside(SETTINGS), 'utf8'), '=/etc/sandgate/e2b-key\n', `=${inside('etc/sandgate/e2b-key')}\n`),
      settings: { E2B_API_KEY: null },
    });
    const site = await world.site();
    const { stdout } = await world.g.ctl('token', 'create', '--user', 'alice');
    const s = site.session('installed', { token: stdout.trim() });
    const ran = await s.execute('6 * 7');
    assert.deepEqual([ran.status, ran.json.output], [200, '42\n'], ran.text);
    const up = await s.upload('a.txt', 'some bytes');
    assert.equal((await s.download(up.json.path)).text, 'some bytes');
    assert.equal((await site.call('GET', '/readyz', { token: null })).status, 200);
  });

  test("becomes a site by the README's lines", async () => {
    const { text } = blocks('For operators').find((block) => block.text.includes('/etc/nginx/conf.d'));
    const [lines] = text.match(/^mkdir [^]*\/etc\/nginx\/conf\.d\/sandgate\.conf$/m);
    fs.mkdirSync(inside('etc/nginx/conf.d'), { recursive: true });
    const script = lines.replaceAll('/usr/local/', `${inside('usr')}/`).replaceAll('/etc/nginx', inside('etc/nginx'));
    await run('bash', ['-euc', script], { env: { ...plain, HOST: 'code.test', DNS: '[::1]' } });
    const site = fs.readFileSync(inside('etc/nginx/conf.d/sandgate.conf'), 'utf8');
    const filled = site.split('\n').filter((line) => line.includes('# SITE'));
    assert.deepEqual(
      filled.map((line) => line.trim().replace(/;.*/, '')),
      [
        'server_name code.test',
        'server_name code.test',
        'ssl_certificate /etc/letsencrypt/live/code.test/fullchain.pem',
        'ssl_certificate_key /etc/letsencrypt/live/code.test/privkey.pem',
        'resolver [::1] valid=30s',
        'proxy_ssl_trusted_certificate /etc/ssl/certs/ca-certificates.crt',
      ],
    );
    for (const [, name] of site.matchAll(/include sandgate\/(\S+);/g)) assert.ok(fs.existsSync(inside('etc/nginx/sandgate', name)), name);
    fs.rmSync(inside('etc/nginx'), { recursive: true });
  });

  test('cleans up, and is backed up while it runs', async () => {
    const pass = await world.g.cleanup();
    assert.deepEqual([pass.code, pass.summary.expired, pass.summary.left], [0, '0', '0'], pass.text);
    for (const [copy, command] of [
      ['one.db', (to) => `.backup '${to}'`],
      ['two.db', (to) => `VACUUM INTO '${to}'`],
    ]) {
      await run('sqlite3', [path.join(world.g.state, 'sandgate.db'), command(inside(copy))]);
      const env = { ...plain, SANDGATE_DB: inside(copy) };
      const { stdout } = await run(inside('usr/bin/sandgatectl'), ['-c', world.g.config, 'list', '--json'], { env });
      assert.equal(JSON.parse(stdout).session_id, 'installed', copy);
      for (const end of ['', '-wal', '-shm']) fs.rmSync(inside(copy + end), { force: true });
    }
  });

  test("what root makes before the gateway's first start is the gateway's", { skip: process.getuid() !== 0 && 'needs root' }, async (t) => {
    const state = tempFolder();
    t.after(() => fs.rmSync(state, { recursive: true }));
    fs.chownSync(state, 12345, 12346);
    const env = { ...plain, E2B_API_KEY: KEY, E2B_API_URL: 'http://127.0.0.1:9', SANDGATE_STATE_DIR: state };
    await run(inside('usr/bin/sandgatectl'), ['token', 'create', '--user', 'alice'], { env });
    await assert.rejects(run(inside('usr/bin/sandgate-cleanup'), [], { env }), { code: 1 });
    const owner = (name) => (({ uid, gid }) => [name, uid, gid])(fs.statSync(path.join(state, name)));
    const all = ['events', 'sandgate.db', 'sandgate.db-shm', 'sandgate.db-wal'];
    assert.deepEqual(fs.readdirSync(state).sort().map(owner), all.map((name) => [name, 12345, 12346]));
  });

  test('stays as its operator has changed it when it is installed again', async () => {
    fs.appendFileSync(inside(SETTINGS), 'SANDGATE_MAX_SANDBOXES=7\n');
    fs.rmSync(inside('usr/share/sandgate/nginx/http.conf'));
    await make('install', ...where());
    assert.match(fs.readFileSync(inside(SETTINGS), 'utf8'), /^SANDGATE_MAX_SANDBOXES=7$/m);
    assert.deepEqual(listing(dir), { ...expected(), [SETTINGS]: '640', 'etc/sandgate/e2b-key': '600' });
  });

  test('goes, but for settings, keys and what is not ours', async () => {
    await world?.stop();
    world = undefined;
    fs.writeFileSync(inside('usr/bin/other'), '');
    const { stdout } = await make('uninstall', ...where());
    assert.match(stdout, /your settings are still in .*\/etc\/sandgate\/sandgate\.conf/);
    assert.deepEqual(Object.keys(listing(dir)), ['etc/sandgate/e2b-key', SETTINGS, 'usr/bin/other']);
    assert.deepEqual(foldersOfOurs(dir), ['etc/sandgate']);
    fs.rmSync(inside('etc/sandgate'), { recursive: true });
    fs.mkdirSync(inside('etc/sandgate'));
    await make('uninstall', ...where());
    assert.deepEqual(foldersOfOurs(dir), [], 'an empty folder goes, too, and once more is no error');
  });

  test('takes another folder for the settings', async () => {
    await make('install', `DESTDIR=${dir}`, 'PREFIX=/opt/sandgate', 'SYSCONFDIR=/opt/etc');
    assert.ok(fs.existsSync(inside('opt/sandgate/bin/sandgatectl')) && fs.existsSync(inside('opt/etc/sandgate/sandgate.conf')));
    assert.ok(!fs.existsSync(inside(SETTINGS)));
  });
});
