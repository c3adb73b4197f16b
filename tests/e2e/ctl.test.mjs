// The operator's tool: tokens, the list of sandboxes, killing one, and the settings, over a real database and the real engine.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { BUILD, KEY, SUITE, startEngine, tempFolder, within } from './engine.mjs';

const CTL = path.join(BUILD, 'sandgatectl');
const SECRET = /^sg_[a-z0-9]{40}\n$/;
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00$/;
const NOWHERE = 'http://127.0.0.1:1'; // refuses every connection

/** The environment without what would override a settings file. */
const plain = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^(E2B|SANDGATE)_/.test(name)));

/** Runs a program to its end. */
async function run(command, args, { env = {}, stdin = '', stdout = 'pipe', deadline = 60_000 } = {}) {
  const child = spawn(command, args, { env: { ...plain, ...env }, stdio: ['pipe', stdout, 'pipe'] });
  const out = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr']) child[name]?.setEncoding('utf8').on('data', (d) => (out[name] += d));
  child.stdin.on('error', () => {}); // it need not read it
  child.stdin.end(stdin);
  try {
    const [code, signal] = await within(
      deadline,
      new Promise((resolve, reject) => {
        child.on('error', reject);
        child.on('close', (...end) => resolve(end));
      }),
      `${command} ${args.join(' ')}`,
    );
    return { code, signal, ...out };
  } finally {
    child.kill('SIGKILL');
  }
}

/** A deployment: a settings file and a state folder of its own. */
class Place {
  constructor(api = NOWHERE) {
    this.dir = tempFolder();
    this.state = path.join(this.dir, 'state');
    this.db = path.join(this.state, 'sandgate.db');
    this.file = path.join(this.dir, 'sandgate.conf');
    this.point(api);
  }

  /** Where the provider is. */
  point(api) {
    const lines = [`E2B_API_KEY=${KEY}`, `E2B_API_URL=${api}`, `E2B_SANDBOX_URL=${api}`, `SANDGATE_STATE_DIR=${this.state}`];
    fs.writeFileSync(this.file, [...lines, 'SANDGATE_PROVIDER_TIMEOUT_SECS=20', ''].join('\n'), { mode: 0o600 });
  }

  run(args, options) {
    return run(CTL, ['-c', this.file, ...args], options);
  }

  /** What it printed; it must succeed. */
  async ok(...args) {
    const { code, stdout, stderr } = await this.run(args);
    assert.equal(code, 0, `${args.join(' ')}: ${stderr}`);
    return stdout;
  }

  /** What it said on stderr; it must exit so, with nothing on stdout. */
  async fails(status, ...args) {
    const { code, stdout, stderr } = await this.run(args);
    assert.equal(code, status, `${args.join(' ')}: ${stderr}`);
    assert.equal(stdout, '', args.join(' '));
    assert.match(stderr, /^sandgatectl: \S.*\n/, args.join(' '));
    return stderr;
  }

  async json(...args) {
    return (await this.ok(...args, '--json'))
      .split('\n')
      .filter(Boolean)
      .map((line) => JSON.parse(line));
  }

  /** By the sqlite3 shell. */
  async sql(text) {
    const { code, stdout, stderr } = await run('sqlite3', ['-batch', '-bail', '-cmd', '.timeout 20000', this.db], { stdin: text });
    assert.equal(code, 0, stderr);
    return stdout.trim();
  }

  /** A row as the gateway writes it. */
  async sandbox(id, fields = {}) {
    const now = Date.now() * 1000;
    const row = {
      owner: 'alice',
      session_id: 's1',
      generation: 1,
      sandbox_id: id,
      type: 'code_interpreter',
      template: 'code-interpreter-v1',
      status: 'running',
      created_at: now,
      last_activity: now,
      expires_at: now + 1800e6,
      lifetime_at: now + 3600e6,
      nonce: `n-${Math.random()}`,
      claim_deadline: now,
      claim_slot: 0,
      claim_pid: 1,
      claim_start: 1,
      envd_token: 'a-secret-of-envd',
      ...fields,
    };
    const values = Object.values(row).map((v) => (typeof v === 'number' ? v : `'${v}'`));
    await this.sql(`INSERT INTO sandboxes (${Object.keys(row).join()}) VALUES (${values.join()});`);
  }

  audit() {
    return this.sql('SELECT user, action, target, outcome FROM audit ORDER BY id;').then((text) => text.split('\n'));
  }

  remove() {
    fs.rmSync(this.dir, { recursive: true, force: true });
  }
}

/** A place for one test. */
function place(t, api) {
  const p = new Place(api);
  t.after(() => p.remove());
  return p;
}

const operator = os.userInfo().username;

describe('sandgatectl', SUITE, () => {
  test('help and version', async () => {
    const help = await run(CTL, ['--help']);
    assert.equal(help.code, 0);
    for (const command of ['token create', 'token list', 'token revoke', 'list', 'kill', 'config', 'nginx-map']) {
      assert.ok(help.stdout.includes(` ${command}`), `${command} is not in the help`);
      const one = await run(CTL, [...command.split(' '), '--help']);
      assert.equal(one.code, 0, command);
      assert.ok(one.stdout.startsWith('Usage:') && one.stdout.includes(command), one.stdout);
      for (const option of help.stdout.match(new RegExp(`] ${command}( .*)?$`, 'm'))[0].match(/--\w+/g) ?? [])
        assert.ok(one.stdout.includes(option), `${command} ${option}`);
    }
    assert.match((await run(CTL, ['token', '--help'])).stdout, /token revoke/);
    assert.match((await run(CTL, ['--version'])).stdout, /^sandgatectl \d+\.\d+\.\d+\n$/);
  });

  test('a wrong command line is a sentence and exit 2, and touches nothing', async (t) => {
    const p = place(t);
    const create = ['token', 'create', '--user', 'alice'];
    const bad = [
      [[], /command/],
      [['frobnicate'], /frobnicate/],
      [['token'], /token --help/],
      [['token', 'frobnicate'], /token frobnicate/],
      [['lis'], /lis/],
      [['--frobnicate', 'list'], /--frobnicate/],
      [['-c'], /-c/],
      [['token', 'create'], /--user/],
      [['token', 'create', '--user'], /--user needs a value/],
      [['token', 'create', '--user', ''], /--user/],
      [['token', 'create', '--user', 'a b'], /blanks/],
      [['token', 'create', '--user', 'a\tb'], /blanks/],
      [['token', 'create', '--user', 'a\nb'], /control/],
      [['token', 'create', '--user', 'a\u001b[31mb'], /control/],
      [['token', 'create', '--user', 'a\u007f'], /control/],
      [['token', 'create', '--user', 'a\u00a0b'], /blanks/],
      [['token', 'create', '--user', 'a\u202eb'], /blanks/],
      [['token', 'create', '--user', 'x'.repeat(129)], /128/],
      [[...create, '--user', 'bob'], /twice/],
      [[...create, '--session', ''], /--session/],
      [[...create, '--session', 'a/b'], /session id/],
      [[...create, '--session', 'a b'], /session id/],
      [[...create, '--session', 'é'], /session id/],
      [[...create, '--session', 's'.repeat(129)], /128/],
      [[...create, '--scope', 'read,fly'], /'fly'.*read,run,write,admin/],
      [[...create, '--scope', ''], /read,run,write,admin/],
      [[...create, '--scope', 'read,'], /read,run,write,admin/],
      [[...create, '--scope', 'READ'], /read,run,write,admin/],
      [[...create, '--admin', '--scope', 'read'], /--scope/],
      [[...create, '--admin=yes'], /--admin/],
      ...['', '0s', '-1h', '+1h', ' 1h', '1', '1w', 'h', '1hh', '1h30m', '1.5h', '99999999999999999999d', '36501d'].map((ttl) => [
        [...create, '--ttl', ttl],
        /--ttl/,
      ]),
      [[...create, 'word'], /word/],
      [[...create, '--frobnicate'], /--frobnicate/],
      [['token', 'list', 'x'], /'x'/],
      [['token', 'revoke'], /id/],
      [['token', 'revoke', 't_a', 't_b'], /t_b/],
      [['list', '--user', 'a b'], /blanks/],
      [['list', '--status'], /--status/],
      [['kill'], /SANDBOX_ID/],
      [['kill', '--user', 'alice'], /--session/],
      [['kill', '--session', 's1'], /--user/],
      [['kill', 'abc', '--user', 'alice', '--session', 's1'], /either/],
      [['kill', '--user', 'alice', '--session', 'a/b'], /session id/],
      [['config', '--all'], /--all/],
    ];
    for (const [args, pattern] of bad) assert.match(await p.fails(2, ...args), pattern, args.join(' '));
    assert.ok(!fs.existsSync(p.state), 'a wrong command line made a database');
  });

  test('settings that are wrong are a sentence and exit 2', async (t) => {
    const p = place(t);
    const bare = await run(CTL, ['list']);
    assert.equal(bare.code, 2);
    assert.match(bare.stderr, /E2B_API_KEY is required/);
    assert.match((await run(CTL, ['-c', path.join(p.dir, 'absent'), 'list'])).stderr, /absent/);
    fs.appendFileSync(p.file, 'SANDGATE_IDLE_TIMEOUT_SECS=soon\n');
    assert.match(await p.fails(2, 'token', 'list'), /SANDGATE_IDLE_TIMEOUT_SECS/);
  });

  test('config prints the settings without the key, and describes them', async (t) => {
    const p = place(t);
    const text = await p.ok('config');
    assert.ok(!text.includes(KEY));
    assert.match(text, /^E2B_API_KEY=\*+$/m);
    assert.ok(text.includes(`SANDGATE_DB=${p.db}\n`));
    const names = (await run(CTL, ['config', '--describe'])).stdout.trim().split('\n');
    assert.deepEqual(
      names.map((line) => line.split('\t')[0]),
      text
        .trim()
        .split('\n')
        .map((line) => line.split('=')[0]),
    );
    for (const line of names) assert.equal(line.split('\t').length, 4, line);
  });

  test('output that does not arrive is exit 1, and a secret that nobody got is revoked', async (t) => {
    const p = place(t);
    await p.ok('token', 'create', '--user', 'alice');
    const full = fs.openSync('/dev/full', 'w');
    t.after(() => fs.closeSync(full));
    const commands = [['token', 'list'], ['token', 'list', '--json'], ['list'], ['config'], ['config', '--describe'], ['nginx-map'], ['--help'], ['--version']];
    for (const args of commands) {
      const { code, stderr } = await p.run(args, { stdout: full });
      assert.equal(code, 1, args.join(' '));
      assert.match(stderr, /standard output/);
    }
    // More than a pipe holds, so that the tool is still writing when its reader has gone.
    await p.sql("WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) INSERT INTO tokens (id, hash, user, role, scopes, created_at) SELECT 't_' || i, printf('%064d', i), 'u', 'user', 1, 1 FROM n;");
    const shell = (line) => spawnSync('bash', ['-c', line, 'bash', CTL, p.file], { env: plain, encoding: 'utf8', timeout: 60_000 });
    assert.equal(shell('"$1" -c "$2" token list | head -n 1 >/dev/null; exit "${PIPESTATUS[0]}"').status, 1);

    for (const redirect of ['>/dev/full', '>&-']) {
      const { status, stderr } = shell(`"$1" -c "$2" token create --user lost ${redirect}`);
      assert.equal(status, 1, stderr);
      assert.match(stderr, /token t_\w+ was revoked again/);
    }
    const lost = (await p.json('token', 'list')).filter((row) => row.user === 'lost');
    assert.deepEqual(
      lost.map((row) => row.state),
      ['revoked', 'revoked'],
    );
  });
});

describe('sandgatectl token', SUITE, () => {
  test('create prints the secret and nothing else; the line on stderr says what it is', async (t) => {
    const p = place(t);
    const made = await p.run(['token', 'create', '--user', 'alice']);
    assert.equal(made.code, 0, made.stderr);
    assert.match(made.stdout, SECRET);
    assert.match(made.stderr, /^id=t_[a-z0-9]{16} user=alice role=user scopes=read,run,write session=any expires=never\n$/);
    assert.equal(fs.statSync(p.db).mode & 0o777, 0o600);
    assert.equal(fs.statSync(p.state).mode & 0o777, 0o700);

    const longest = 'n'.repeat(128);
    const before = Date.now();
    await p.ok('token', 'create', '--user=J\u00fcrgen', '--admin', '--session', 'a.Z_0~:-', '--ttl', '1h');
    await p.ok('token', 'create', '--user', longest, '--scope', 'read', '--ttl=90s');
    await p.ok('token', 'create', '--user', 'carol', '--scope', 'admin,read', '--ttl', '7d');
    await p.ok('token', 'create', '--user', 'dave', '--ttl', '15m');
    const after_ = Date.now();
    const rows = await p.json('token', 'list');
    assert.deepEqual(
      rows.map(({ user, role, scopes, session_id, state }) => ({ user, role, scopes, session_id, state })),
      [
        { user: 'alice', role: 'user', scopes: ['read', 'run', 'write'], session_id: null, state: 'active' },
        { user: 'J\u00fcrgen', role: 'admin', scopes: ['read', 'run', 'write', 'admin'], session_id: 'a.Z_0~:-', state: 'active' },
        { user: longest, role: 'user', scopes: ['read'], session_id: null, state: 'active' },
        { user: 'carol', role: 'user', scopes: ['read', 'admin'], session_id: null, state: 'active' },
        { user: 'dave', role: 'user', scopes: ['read', 'run', 'write'], session_id: null, state: 'active' },
      ],
    );
    for (const row of rows) assert.match(row.created_at, TIME);
    assert.equal(rows[0].expires_at, null);
    for (const [i, secs] of [3600, 90, 7 * 86400, 900].entries()) {
      assert.match(rows[i + 1].expires_at, TIME);
      const end = Date.parse(rows[i + 1].expires_at) - secs * 1000;
      assert.ok(end >= before - 1 && end <= after_ + 1, rows[i + 1].expires_at);
    }
    assert.deepEqual(
      await p.audit(),
      rows.map((row) => `${operator}|token_create|${row.id}|ok`),
    );
  });

  test('a secret is shown once: it is in no list and no file', async (t) => {
    const p = place(t);
    const secrets = [];
    for (const user of ['alice', 'bob', 'carol']) secrets.push((await p.ok('token', 'create', '--user', user)).trim());
    const shown = (await p.ok('token', 'list')) + (await p.ok('token', 'list', '--json'));
    const bytes = Buffer.concat(fs.readdirSync(p.state).map((name) => fs.readFileSync(path.join(p.state, name))));
    assert.ok(fs.existsSync(`${p.db}-wal`), 'there is no WAL to look at');
    for (const secret of secrets) {
      assert.ok(!shown.includes(secret) && !shown.includes(secret.slice(3, 20)));
      assert.ok(!bytes.includes(secret.slice(3)), 'a secret is in the database');
      assert.ok(bytes.includes(createHash('sha256').update(secret).digest('hex')), 'its hash is not');
    }
  });

  test('the table has a line for each token, and nothing in it steers a terminal', async (t) => {
    const p = place(t);
    await p.ok('token', 'create', '--user', 'alice');
    await p.sql(
      "INSERT INTO tokens (id, hash, user, role, scopes, created_at) VALUES ('t_evil', printf('%064d', 1), 'x' || char(27, 10, 155) || '[2J', 'user', 1, 1);",
    );
    await p.sql(
      "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) INSERT INTO tokens (id, hash, user, role, scopes, created_at, expires_at, revoked_at) SELECT 't_' || i, printf('%064x', i + 9), 'u' || i, 'user', 1, 1, i % 2, i % 3 = 0 FROM n;",
    );
    const lines = (await p.ok('token', 'list')).split('\n').slice(0, -1);
    assert.equal(lines.length, 303);
    assert.match(lines[0], /^ID +USER +ROLE +SCOPES +SESSION +CREATED +EXPIRES +STATE$/);
    const at = lines[0].indexOf('STATE');
    for (const line of lines.slice(1)) assert.match([...line].slice(at).join(''), /^(active|expired|revoked)$/, line);
    assert.match(lines[2], /^t_evil +x\?\?\?\[2J /);
    assert.match(lines[3], / expired$/); // 1: its end has passed
    assert.match(lines[4], / active$/); // 2
    assert.match(lines[5], / revoked$/); // 3: both
    const rows = await p.json('token', 'list');
    assert.equal(rows.length, 302);
    assert.equal(new Set(rows.map((row) => row.id)).size, 302);
  });

  test('revoke ends one token; again is no error; an unknown one is', async (t) => {
    const p = place(t);
    await p.ok('token', 'create', '--user', 'alice');
    const secret = (await p.ok('token', 'create', '--user', 'bob')).trim();
    const [alice, bob] = await p.json('token', 'list');
    assert.equal(await p.ok('token', 'revoke', alice.id), `revoked token ${alice.id} of alice\n`);
    const first = await p.sql(`SELECT revoked_at FROM tokens WHERE id = '${alice.id}';`);
    assert.match(await p.ok('token', 'revoke', alice.id), /revoked already, at \d{4}-/);
    assert.equal(await p.sql(`SELECT revoked_at FROM tokens WHERE id = '${alice.id}';`), first);
    assert.deepEqual(
      (await p.json('token', 'list')).map((row) => row.state),
      ['revoked', 'active'],
    );
    assert.match(await p.fails(1, 'token', 'revoke', 't_nothere'), /no such token/);
    await p.fails(1, 'token', 'revoke', 'x'.repeat(5000));
    assert.ok(!(await p.fails(1, 'token', 'revoke', secret)).includes(secret), 'a secret given by mistake is repeated');
    assert.deepEqual((await p.audit()).slice(2), [`${operator}|token_revoke|${alice.id}|ok`]);
    assert.equal(bob.user, 'bob');
  });

  test('many at once in a new place: every one makes its own token', async (t) => {
    const p = place(t);
    const made = await Promise.all(Array.from({ length: 20 }, (_, i) => p.run(['token', 'create', '--user', `u${i}`])));
    for (const { code, stdout, stderr } of made) {
      assert.equal(code, 0, stderr);
      assert.match(stdout, SECRET);
    }
    assert.equal(new Set(made.map((m) => m.stdout)).size, 20);
    const rows = await p.json('token', 'list');
    assert.equal(new Set(rows.map((row) => row.id)).size, 20);
    assert.equal(new Set(rows.map((row) => row.user)).size, 20);
    assert.equal((await p.audit()).length, 20);
  });

  test('the tool and the sqlite3 shell at once do not disturb each other', async (t) => {
    const p = place(t);
    await p.ok('token', 'create', '--user', 'first');
    const shell = Array.from({ length: 15 }, (_, i) => p.sql(`BEGIN IMMEDIATE; INSERT INTO audit (at, request_id, user, action, target, outcome) VALUES (1, '', 'shell', 'note', '${i}', 'ok'); COMMIT; SELECT count(*) FROM tokens;`));
    const tool = Array.from({ length: 15 }, (_, i) => p.ok('token', 'create', '--user', `u${i}`));
    await Promise.all([...shell, ...tool]);
    assert.equal((await p.json('token', 'list')).length, 16);
    assert.equal((await p.audit()).length, 31);
    assert.equal(await p.sql('PRAGMA integrity_check;'), 'ok');
  });

  test('a database that is locked for good, or is none, is a sentence and exit 1', async (t) => {
    const p = place(t);
    await p.ok('token', 'create', '--user', 'alice');
    const holder = spawn('sqlite3', ['-batch', p.db], { stdio: ['pipe', 'pipe', 'inherit'] });
    t.after(() => holder.kill('SIGKILL'));
    holder.stdin.write("BEGIN IMMEDIATE;\nSELECT 'locked';\n");
    await within(20_000, new Promise((resolve) => holder.stdout.once('data', resolve)), 'the lock');
    assert.match(await p.fails(1, 'token', 'create', '--user', 'bob'), /lock|busy/i);
    assert.equal((await p.json('token', 'list')).length, 1, 'reading does not wait for writers');
    holder.stdin.end('ROLLBACK;\n');
    await within(20_000, new Promise((resolve) => holder.once('close', resolve)), 'the end of the shell');

    const q = place(t);
    fs.mkdirSync(q.state, { mode: 0o700 });
    fs.writeFileSync(q.db, 'this is no database, and never was one'.repeat(50), { mode: 0o600 });
    await q.fails(1, 'token', 'list');
    await q.fails(1, 'token', 'create', '--user', 'alice');
  });
});

describe('sandgatectl list', SUITE, () => {
  test('shows what has not ended; --all the rest; --user one user', async (t) => {
    const p = place(t);
    assert.match(await p.ok('list'), /^SANDBOX +OWNER +SESSION +TYPE +STATUS +GENERATION +CREATED +ACTIVE +EXPIRES +REASON\n$/);
    assert.deepEqual(await p.json('list'), []);
    const at = Date.parse('2026-01-22T15:06:11.971Z') * 1000 + 102;
    const times = { created_at: at, last_activity: at + 1, expires_at: at + 2, lifetime_at: at + 3 };
    await p.sandbox('', { session_id: 'new', status: 'starting', expires_at: 0, lifetime_at: 0 });
    await p.sandbox('one', times);
    await p.sandbox('two', { session_id: 's2', owner: 'bob', status: 'paused', type: 'custom', generation: 3 });
    await p.sandbox('three', { session_id: 's3', status: 'stopping', end_reason: 'expired_idle' });
    await p.sandbox('four', { session_id: 's4', owner: 'bob', status: 'ended', end_reason: 'stopped', destroyed_at: 5 });
    for (let i = 0; i < 130; i++) await p.sandbox(`old${i}`, { session_id: 's1', status: 'ended', end_reason: 'unknown', destroyed_at: 5 });

    const ids = async (...args) => (await p.json('list', ...args)).map((row) => row.sandbox_id);
    assert.deepEqual(await ids(), ['two', 'one', null, 'three']);
    assert.deepEqual(await ids('--user', 'alice'), ['one', null, 'three']);
    assert.deepEqual(await ids('--user', 'bob'), ['two']);
    assert.deepEqual(await ids('--user', 'bob', '--all'), ['four', 'two']);
    assert.deepEqual(await ids('--user', 'nobody'), []);
    const all = await ids('--all');
    assert.equal(all.length, 135);
    assert.equal(new Set(all).size, 135);
    assert.deepEqual(
      (await p.json('list')).find((row) => row.sandbox_id === 'one'),
      {
        sandbox_id: 'one',
        owner: 'alice',
        session_id: 's1',
        sandbox_type: 'code_interpreter',
        status: 'running',
        generation: 1,
        created_at: '2026-01-22T15:06:11.971102+00:00',
        last_activity: '2026-01-22T15:06:11.971103+00:00',
        expires_at: '2026-01-22T15:06:11.971104+00:00',
        reason: null,
      },
    );
    const text = await p.ok('list', '--all');
    assert.equal(text.trim().split('\n').length, 136);
    assert.ok(!text.includes('a-secret-of-envd'));
    assert.match(text, /^- +alice +new +code_interpreter +starting +1 +\S+ +\S+ +- +-$/m);
    assert.match(text, /^three +alice +s3 +code_interpreter +stopping +1 .* expired_idle$/m);
  });
});

describe('sandgatectl kill', SUITE, () => {
  let engine;
  before(async () => {
    engine = await startEngine();
  });
  after(() => engine.stop());

  /** A place with a sandbox that really runs. */
  async function withSandbox(t) {
    const p = place(t, engine.url);
    await p.ok('token', 'create', '--user', 'alice');
    const { sandboxId } = await engine.create();
    await p.sandbox(sandboxId);
    return { p, id: sandboxId };
  }

  const exists = async (id) => (await engine.api('GET', `/sandboxes/${id}`)).status === 200;
  const row = (p, id) => p.sql(`SELECT status, end_reason, destroyed_at > 0, envd_token FROM sandboxes WHERE sandbox_id = '${id}';`);

  test('by its id: it is gone at the provider and ended in the database', async (t) => {
    const { p, id } = await withSandbox(t);
    assert.ok(await exists(id));
    assert.equal(await p.ok('kill', id), `killed sandbox ${id} of alice, session s1\n`);
    assert.ok(!(await exists(id)));
    assert.equal(await row(p, id), 'ended|killed_by_admin|1|');
    assert.deepEqual(await p.json('list'), []);
    assert.match(await p.ok('kill', id), /has ended already, at .*killed_by_admin/);
    assert.match(await p.fails(1, 'kill', '--user', 'alice', '--session', 's1'), /no live sandbox/);
    assert.deepEqual((await p.audit()).slice(1), [`${operator}|kill|${id}|ok`]);
  });

  test('by user and session; only that one', async (t) => {
    const { p, id } = await withSandbox(t);
    const other = (await engine.create()).sandboxId;
    await p.sandbox(other, { owner: 'bob' });
    await p.ok('kill', '--user', 'alice', '--session', 's1');
    assert.deepEqual([await exists(id), await exists(other)], [false, true]);
    assert.match(await row(p, other), /^running/);
    await p.ok('kill', other);
  });

  test('one that the provider has lost already is ended, too', async (t) => {
    const { p, id } = await withSandbox(t);
    assert.equal((await engine.api('DELETE', `/sandboxes/${id}`)).status, 204);
    await p.ok('kill', id);
    assert.equal(await row(p, id), 'ended|killed_by_admin|1|');
  });

  test('an unknown one is exit 1', async (t) => {
    const p = place(t, engine.url);
    assert.match(await p.fails(1, 'kill', 'nothere'), /no sandbox 'nothere'/);
    assert.match(await p.fails(1, 'kill', '--user', 'alice', '--session', 's1'), /alice/);
    await p.fails(1, 'kill', '');
    await p.fails(1, 'kill', 'x'.repeat(5000));
  });

  test('with the provider down it is recorded, said so, and done the next time', async (t) => {
    const { p, id } = await withSandbox(t);
    p.point(NOWHERE);
    const said = await p.fails(1, 'kill', id);
    assert.match(said, /recorded as killed.*has not confirmed.*try again/);
    assert.ok(!said.includes(KEY));
    assert.ok(await exists(id));
    assert.equal(await row(p, id), 'stopping|killed_by_admin|0|a-secret-of-envd');
    assert.deepEqual(
      (await p.json('list')).map((r) => [r.sandbox_id, r.status, r.reason]),
      [[id, 'stopping', 'killed_by_admin']],
    );
    await p.fails(1, 'kill', id);
    p.point(engine.url);
    assert.match(await p.ok('kill', id), /^killed/);
    assert.ok(!(await exists(id)));
    assert.equal(await row(p, id), 'ended|killed_by_admin|1|');
    assert.deepEqual((await p.audit()).slice(1), [
      `${operator}|kill|${id}|provider_unavailable`,
      `${operator}|kill|${id}|provider_unavailable`,
      `${operator}|kill|${id}|ok`,
    ]);
  });

  test('one that is being made is left alone; one whose maker is gone is recorded', async (t) => {
    const p = place(t, engine.url);
    await p.ok('token', 'create', '--user', 'alice');
    const stat = fs.readFileSync('/proc/self/stat', 'latin1');
    const start = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]);
    const starting = { status: 'starting', expires_at: 0, lifetime_at: 0, claim_deadline: (Date.now() + 600_000) * 1000, claim_pid: process.pid };
    await p.sandbox('', { ...starting, claim_start: start });
    assert.match(await p.fails(1, 'kill', '--user', 'alice', '--session', 's1'), /still starting/);
    assert.equal(await p.sql('SELECT status FROM sandboxes;'), 'starting');
    await p.sandbox('', { ...starting, session_id: 's2', claim_start: start + 1 });
    assert.match(await p.fails(1, 'kill', '--user', 'alice', '--session', 's2'), /recorded as killed/);
    assert.equal(await p.sql("SELECT status, end_reason FROM sandboxes WHERE session_id = 's2';"), 'stopping|killed_by_admin');
    assert.deepEqual((await p.audit()).slice(1), [`${operator}|kill|alice/s2|provider_unavailable`]);
  });
});

describe('sandgatectl nginx-map', SUITE, () => {
  test('needs no settings and names every pool', async () => {
    const { code, stdout, stderr } = await run(CTL, ['nginx-map']);
    assert.equal(code, 0, stderr);
    assert.match(stdout, /^map .*\{\n(\t\S.*;\n)+\}\n$/m);
    for (const pool of ['quick', 'exec']) assert.match(stdout, new RegExp(`^\\t"~.* sandgate_${pool};$`, 'm'));
    assert.equal((await run(CTL, ['nginx-map', 'x'])).code, 2);
  });
});
