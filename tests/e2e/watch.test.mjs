// Watches of directories: what the official SDK sees, the polling form by raw calls, trees that change faster than they can be
// followed, links, limits, and everything that ends a watch.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, afterEach, before, describe, test } from 'node:test';
import { FilesystemEventType } from '@e2b/code-interpreter';
import {
  BUILD,
  SUITE,
  assertConnectError,
  assertStreamError,
  commandLine,
  envelopes,
  fails,
  output,
  python,
  shell,
  startEngine,
  until,
  within,
} from './engine.mjs';

let engine;
let sandbox;
let folders = 0;
const made = new Set(); // watchers that a test has not removed itself

async function folder() {
  const dir = `/home/user/t${++folders}`;
  await sandbox.files.makeDir(dir);
  return dir;
}

const FS = 'filesystem.Filesystem';
const call = (method, message, options) => engine.rpc(sandbox, `${FS}/${method}`, message, options);
const watchDir = (message, options) => engine.stream(sandbox, `${FS}/WatchDir`, message, options);

async function createWatcher(message) {
  const res = await call('CreateWatcher', message);
  assert.equal(res.status, 200, res.text);
  assert.match(res.json.watcherId, /^w[a-z0-9]{8,}$/);
  made.add(res.json.watcherId);
  return res.json.watcherId;
}

async function removeWatcher(watcherId) {
  made.delete(watcherId);
  assert.equal((await call('RemoveWatcher', { watcherId })).text, '{}');
}

async function getEvents(watcherId) {
  const res = await call('GetWatcherEvents', { watcherId });
  assert.equal(res.status, 200, res.text);
  return res.json.events ?? [];
}

/** "CREATE a/b" for each event since the last time. */
async function news(watcherId) {
  return (await getEvents(watcherId)).map(text);
}

const text = (event) => `${event.type.replace('EVENT_TYPE_', '')} ${event.name}`;

/** Applies events to a set of names, as whoever keeps a copy of the tree would. */
function replay(names, events) {
  for (const { name, type } of events) {
    if (type === 'EVENT_TYPE_CREATE') names.add(name);
    if (type !== 'EVENT_TYPE_REMOVE' && type !== 'EVENT_TYPE_RENAME') continue;
    for (const known of [...names]) if (known === name || known.startsWith(`${name}/`)) names.delete(known);
  }
  return names;
}

const listed = async (dir) => (await output(sandbox, `find '${dir}' -mindepth 1 -printf '%P\\n' | sort`)).split('\n').filter(Boolean);

/** Events as the SDK gives them, and a way to wait for some of them. */
function collect() {
  const seen = [];
  const has = (line) => seen.some((e) => `${e.type} ${e.name}` === line);
  return {
    seen,
    add: (event) => void seen.push(event),
    all: (...wanted) =>
      until(() => wanted.every(has), { what: wanted.join(', ') }).catch((e) => {
        throw new Error(`${e.message}; seen: ${seen.map((s) => `${s.type} ${s.name}`).join(', ')}`);
      }),
  };
}

/** The agent of a sandbox as the machine sees it: its open files and directories under watch. */
function agentOf(name) {
  const pid = engine.family.look().find((p) => commandLine(p).startsWith('init ') && environmentHas(p, name));
  assert.ok(pid, 'the agent is not found');
  const files = fs.readdirSync(`/proc/${pid}/fd`);
  const infos = files.map((fd) => fs.readFileSync(`/proc/${pid}/fdinfo/${fd}`, 'latin1'));
  const rss = fs.readFileSync(`/proc/${pid}/status`, 'latin1').match(/^VmRSS:\s*(\d+)/m)[1];
  return { files: files.length, watches: infos.join('').split(/^inotify wd/m).length - 1, kib: Number(rss) };
}

/** Sandboxes are told apart by a file in them. */
function environmentHas(pid, file) {
  return fs.existsSync(`/proc/${pid}/root${file}`);
}

describe('watch', SUITE, () => {
  before(async () => {
    engine = await startEngine({ args: ['--pool', '0'] });
    sandbox = await engine.create();
  });
  afterEach(async () => {
    for (const id of made) await removeWatcher(id);
  });
  after(() => engine?.stop());

  // ------------------------------------------------------------------------------------------------------------ by the SDK

  test('the SDK sees what happens in a directory, and not what happens below', async () => {
    const dir = await folder();
    await output(sandbox, `mkdir ${dir}/sub; echo x > ${dir}/old`);
    const events = collect();
    const handle = await sandbox.files.watchDir(dir, events.add);
    await sandbox.files.write(`${dir}/new`, 'content');
    await events.all('create new', 'write new');
    await output(sandbox, `cd ${dir}; echo more >> old; chmod 700 old; mv old name; rm new; touch sub/hidden`);
    await events.all('write old', 'chmod old', 'rename old', 'create name', 'remove new');
    await output(sandbox, `touch ${dir}/last`);
    await events.all('create last');
    assert.ok(!events.seen.some((e) => e.name.includes('hidden')), JSON.stringify(events.seen));
    assert.ok(events.seen.every((e) => Object.values(FilesystemEventType).includes(e.type) && e.entry === undefined));
    await handle.stop();
    const before = events.seen.length;
    await output(sandbox, `touch ${dir}/unseen`);
    assert.equal(events.seen.length, before);
  });

  test('the SDK sees a whole tree, also directories that are made later', async () => {
    const dir = await folder();
    await sandbox.files.makeDir(`${dir}/nested`);
    const events = collect();
    const handle = await sandbox.files.watchDir(dir, events.add, { recursive: true });
    await sandbox.files.write(`${dir}/nested/file`, 'content');
    await events.all('create nested/file', 'write nested/file');
    await sandbox.files.makeDir(`${dir}/later`);
    await sandbox.files.write(`${dir}/later/file`, 'content');
    await events.all('create later', 'create later/file', 'write later/file');
    await sandbox.files.rename(`${dir}/later`, `${dir}/moved`);
    await events.all('rename later', 'create moved', 'create moved/file');
    await sandbox.files.write(`${dir}/moved/file`, 'changed');
    await events.all('write moved/file');
    await sandbox.files.remove(`${dir}/moved`);
    await events.all('remove moved/file', 'remove moved');
    await handle.stop();
  });

  test('with includeEntry an event says what the file is', async () => {
    const dir = await folder();
    const events = collect();
    const handle = await sandbox.files.watchDir(dir, events.add, { recursive: true, includeEntry: true });
    await output(sandbox, `cd ${dir}; mkdir d; echo 12345 > d/f; mv d/f d/g; rm d/g; chmod 711 .`);
    await events.all('create d', 'create d/f', 'rename d/f', 'create d/g', 'remove d/g', 'chmod .');
    await handle.stop();
    const of = (line) => events.seen.find((e) => `${e.type} ${e.name}` === line).entry;
    assert.equal(of('create d').type, 'dir');
    assert.equal(of('create d').path, `${dir}/d`);
    assert.deepEqual([of('chmod .').path, of('chmod .').permissions], [dir, 'drwx--x--x']);
    assert.equal(of('rename d/f'), undefined);
    assert.equal(of('remove d/g'), undefined);
    const id = await createWatcher({ path: dir, includeEntry: true });
    await sandbox.files.write(`${dir}/ü "x"`, '123');
    const written = (await getEvents(id)).find((e) => e.type === 'EVENT_TYPE_WRITE');
    assert.deepEqual([written.name, written.entry.name, written.entry.size, written.entry.type], ['ü "x"', 'ü "x"', '3', 'FILE_TYPE_FILE']);
    await removeWatcher(id);
  });

  test("errors are the SDK's own", async () => {
    const dir = await folder();
    await sandbox.files.write(`${dir}/file`, 'x');
    await fails(sandbox.files.watchDir(`${dir}/none`, () => {}), 'FileNotFoundError', /not found/);
    await fails(sandbox.files.watchDir(`${dir}/file`, () => {}), 'InvalidArgumentError', /not a directory/);
    let ended;
    const exit = new Promise((resolve) => (ended = resolve));
    await sandbox.files.watchDir(dir, () => {}, { timeoutMs: 1_500, onExit: ended });
    assert.equal((await within(10_000, exit, 'the exit')).name, 'TimeoutError');
  });

  // ------------------------------------------------------------------------------------------------------------ trees

  test('nothing is missed in directories that are made in one go', async () => {
    const dir = await folder();
    const id = await createWatcher({ path: dir, recursive: true });
    const names = ['a', 'a/b', 'a/b/c', 'a/b/c/d', 'a/b/c/d/e', 'a/b/c/d/e/f'];
    for (let i = 0; i < 20; i++) {
      await output(sandbox, `cd ${dir}; mkdir -p a/b/c/d/e && echo x > a/b/c/d/e/f`);
      const made = await news(id);
      for (const name of names) assert.ok(made.includes(`CREATE ${name}`), `${name}: ${made}`);
      assert.ok(made.includes('WRITE a/b/c/d/e/f'), String(made));
      await output(sandbox, `rm -r ${dir}/a`);
      const gone = await news(id);
      assert.deepEqual(gone, names.map((name) => `REMOVE ${name}`).reverse());
    }
    assert.deepEqual(await news(id), []);
    await removeWatcher(id);
  });

  test('directories that are moved in, within and out are told with what is in them', async () => {
    const dir = await folder();
    const id = await createWatcher({ path: dir, recursive: true });
    await output(sandbox, `mkdir -p /tmp/out/x/y; echo 1 > /tmp/out/x/y/f; : > /tmp/out/empty; mv /tmp/out ${dir}/in`);
    assert.deepEqual((await news(id)).sort(), ['CREATE in', 'CREATE in/empty', 'CREATE in/x', 'CREATE in/x/y', 'CREATE in/x/y/f', 'WRITE in/x/y/f']);
    await output(sandbox, `cd ${dir}; mv in in2`);
    assert.deepEqual((await news(id)).slice(0, 2), ['RENAME in', 'CREATE in2']);
    await output(sandbox, `cd ${dir}; echo 2 >> in2/x/y/f; mkdir in2/x/z; : > in2/x/z/g`);
    assert.deepEqual(await news(id), ['WRITE in2/x/y/f', 'CREATE in2/x/z', 'CREATE in2/x/z/g']);
    await output(sandbox, `mv ${dir}/in2 /tmp/out2; echo 3 >> /tmp/out2/x/y/f; : > /tmp/out2/h; rm -r /tmp/out2`);
    assert.deepEqual(await news(id), ['RENAME in2']);
    // Two that change places.
    await output(sandbox, `cd ${dir}; mkdir a b; : > a/1; : > b/2`);
    await news(id);
    await python(
      sandbox,
      `import ctypes, os\nos.chdir('${dir}')\nassert ctypes.CDLL(None, use_errno=True).renameat2(-100, b'a', -100, b'b', 2) == 0\nopen('a/x', 'w').close(); open('b/y', 'w').close()`,
    );
    const swapped = replay(new Set(['a', 'b', 'a/1', 'b/2']), await getEvents(id));
    assert.deepEqual([...swapped].sort(), ['a', 'a/2', 'a/x', 'b', 'b/1', 'b/y']);
    await output(sandbox, `cd ${dir}; : > a/later; : > b/later`);
    assert.deepEqual(await news(id), ['CREATE a/later', 'CREATE b/later']);
    await removeWatcher(id);
  });

  test('whoever keeps a copy by the events has the tree as it is, however it was churned', async () => {
    const churn = `
import os, random, shutil, sys
random.seed(int(sys.argv[1]))
os.chdir(sys.argv[2])
def path(): return '/'.join(random.choices('abcd', k=random.randint(1, 4)))
for i in range(2000):
    what = random.random()
    try:
        if what < .35: os.makedirs(path(), exist_ok=True)
        elif what < .6: open(path(), 'w').write('x')
        elif what < .8: os.rename(path(), path())
        elif what < .88: os.rmdir(path())
        elif what < .95: os.unlink(path())
        else: shutil.rmtree(random.choice('abcd'), ignore_errors=True)
    except OSError: pass
`;
    await sandbox.files.write('/tmp/churn.py', churn);
    for (let seed = 1; seed <= 6; seed++) {
      const dir = await folder();
      const id = await createWatcher({ path: dir, recursive: true });
      const names = new Set();
      await output(sandbox, `for i in 1 2 3; do python3 /tmp/churn.py $((${seed} * 10 + i)) ${dir} & done; wait`);
      replay(names, await getEvents(id));
      assert.deepEqual([...names].sort(), (await listed(dir)).sort(), `seed ${seed}`);
      // And every directory of it is under watch.
      await output(sandbox, `find ${dir} -type d -exec touch '{}/probe' ';'`);
      replay(names, await getEvents(id));
      assert.deepEqual([...names].sort(), (await listed(dir)).sort(), `seed ${seed}, probed`);
      await removeWatcher(id);
    }
  });

  test('links are not followed, but for the one that is asked for', async () => {
    const dir = await folder();
    await output(sandbox, `mkdir ${dir}/tree ${dir}/aside; ln -s ${dir}/aside ${dir}/tree/link; ln -s tree ${dir}/alias`);
    const id = await createWatcher({ path: `${dir}/alias`, recursive: true });
    await output(sandbox, `cd ${dir}; touch tree/link/one aside/two; mkdir tree/d; rmdir tree/d; ln -s ../aside tree/d; touch tree/d/three`);
    assert.deepEqual(await news(id), ['CREATE d', 'REMOVE d', 'CREATE d']);
    // Nor is one that takes a directory's place before that could be entered.
    await python(
      sandbox,
      `import os\nos.chdir('${dir}/tree')\nfor i in range(1000):\n    os.mkdir('x'); os.rmdir('x'); os.symlink('${dir}/aside', 'x')\n    open('../aside/%d' % i, 'w').close()\n    os.unlink('x')`,
    );
    const names = (await getEvents(id)).map((e) => e.name);
    assert.ok(names.length > 1000);
    assert.deepEqual([...new Set(names)], ['x']);
    await removeWatcher(id);
    const top = await createWatcher({ path: '/', recursive: true });
    await output(sandbox, `touch /tmp/found`);
    const seen = await news(top);
    assert.ok(seen.includes('CREATE tmp/found'), String(seen));
    assert.ok(!seen.some((line) => line.includes('proc/')), String(seen));
    await removeWatcher(top);
  });

  test('the end of the directory itself is told', async () => {
    const dir = await folder();
    await output(sandbox, `mkdir ${dir}/a ${dir}/b`);
    const ids = [await createWatcher({ path: `${dir}/a` }), await createWatcher({ path: `${dir}/b`, recursive: true })];
    await output(sandbox, `cd ${dir}; rmdir a; mv b c; touch c/x; mkdir a; touch a/y`);
    assert.deepEqual(await news(ids[0]), ['REMOVE .']);
    assert.deepEqual(await news(ids[1]), ['RENAME .']);
    for (const id of ids) await removeWatcher(id);
  });

  test('names of every kind, and several watchers of one directory', async () => {
    const dir = await folder();
    const ids = [await createWatcher({ path: dir }), await createWatcher({ path: dir, recursive: true })];
    const odd = ['a b', '"q"', 'ü', '日本', 'tab\t', 'line\nend', '\\', '-rf', '...', 'x'.repeat(255)];
    await python(sandbox, `import os\nos.chdir('${dir}')\nfor name in ${JSON.stringify(odd)}: open(name, 'w').close()`);
    for (const id of ids) {
      const made = (await getEvents(id)).filter((e) => e.type === 'EVENT_TYPE_CREATE');
      assert.deepEqual(made.map((e) => e.name), odd);
    }
    await output(sandbox, `cd ${dir}; touch $'\\xff\\xfe'`);
    assert.deepEqual((await news(ids[0]))[0], 'CREATE \ufffd\ufffd');
    await removeWatcher(ids[0]);
    await output(sandbox, `cd ${dir}; rm -- -rf`);
    assert.deepEqual((await news(ids[1])).at(-1), 'REMOVE -rf');
    await removeWatcher(ids[1]);
  });

  // ------------------------------------------------------------------------------------------------------------ streams

  test('a stream starts at once, keeps alive and ends by its deadline', async () => {
    const dir = await folder();
    const res = await watchDir({ path: dir, recursive: true }, { headers: { 'keepalive-ping-interval': '1', 'connect-timeout-ms': '2500' } });
    assert.equal(res.headers['content-type'], 'application/connect+json');
    const got = [];
    for await (const { event, end } of envelopes(res)) {
      got.push(end ?? Object.keys(event)[0]);
      if (got.length === 1) await output(sandbox, `touch ${dir}/x`);
    }
    assert.equal(got[0], 'start');
    assert.ok(got.includes('filesystem') && got.includes('keepalive'), JSON.stringify(got));
    assert.equal(got.at(-1).error.code, 'deadline_exceeded');
  });

  test('a client that leaves takes its watch along', async () => {
    const dir = await folder();
    await output(sandbox, 'touch /tmp/this-one');
    const before = agentOf('/tmp/this-one').watches;
    const streams = await Promise.all(Array.from({ length: 10 }, () => watchDir({ path: dir })));
    await until(() => agentOf('/tmp/this-one').watches === before + 1);
    for (const res of streams) res.drop();
    await until(() => agentOf('/tmp/this-one').watches === before);
  });

  test('a stream that is not read loses events, and says so', async () => {
    const dir = await folder();
    const before = engine.peaks();
    const res = await watchDir({ path: dir }, { deadline: 120_000 });
    await python(
      sandbox,
      `import os\nos.chdir('${dir}')\nfor i in range(60000):\n    name = 'x' * 200 + str(i)\n    open(name, 'w').close()\n    os.unlink(name)`,
      { timeoutMs: 120_000 },
    );
    let last;
    let events = 0;
    for await (const { event, end } of envelopes(res)) {
      last = end;
      events += Boolean(event?.filesystem);
    }
    assert.equal(last.error?.code, 'resource_exhausted', JSON.stringify(last));
    assert.match(last.error.message, /lost/);
    assert.ok(events < 120_000);
    engine.assertFlat(before);
  });

  // ------------------------------------------------------------------------------------------------------------ limits

  test('a sandbox has at most 64 watchers', async () => {
    const dir = await folder();
    const ids = [];
    for (let i = 0; i < 64; i++) ids.push(await createWatcher({ path: dir }));
    assertConnectError(await call('CreateWatcher', { path: dir }), 429, 'resource_exhausted', /64/);
    await assertStreamError(await watchDir({ path: dir }), 'resource_exhausted', /64/);
    await removeWatcher(ids.pop());
    ids.push(await createWatcher({ path: dir }));
    await output(sandbox, `touch ${dir}/all`);
    for (const id of ids) {
      assert.equal((await news(id))[0], 'CREATE all');
      await removeWatcher(id);
    }
  });

  test('too many directories are refused, and told when they come later', async () => {
    const dir = await folder();
    const make = (from, to) => python(sandbox, `import os\nfor i in range(${from}, ${to}): os.makedirs('${dir}/%d' % i)`);
    await make(0, 9000);
    assertConnectError(await call('CreateWatcher', { path: dir, recursive: true }), 429, 'resource_exhausted', /too many directories/);
    const flat = await createWatcher({ path: dir });
    await python(sandbox, `import os\nfor i in range(4000, 9000): os.rmdir('${dir}/%d' % i)`);
    assert.equal((await news(flat)).length, 5000);
    const id = await createWatcher({ path: dir, recursive: true });
    await make(4000, 9000);
    assertConnectError(await call('GetWatcherEvents', { watcherId: id }), 429, 'resource_exhausted', /too many directories/);
    assertConnectError(await call('GetWatcherEvents', { watcherId: id }), 429, 'resource_exhausted', /too many directories/);
    await python(sandbox, `import shutil\nshutil.rmtree('${dir}')\nimport os\nos.makedirs('${dir}/again')`);
    assertConnectError(await call('GetWatcherEvents', { watcherId: id }), 429, 'resource_exhausted', /too many directories/);
    await output(sandbox, `touch ${dir}/again/x`);
    assert.equal((await news(id))[0], 'CREATE again/x');
    for (const w of [flat, id]) await removeWatcher(w);
  });

  test('a lost watcher says so once and goes on', async () => {
    const dir = await folder();
    const id = await createWatcher({ path: dir, recursive: true });
    await python(sandbox, `import os\nos.chdir('${dir}')\nfor i in range(20000):\n    name = 'x' * 200 + str(i)\n    open(name, 'w').close()\n    os.unlink(name)\nos.mkdir('d')`);
    assertConnectError(await call('GetWatcherEvents', { watcherId: id }), 429, 'resource_exhausted', /lost/);
    assert.deepEqual(await news(id), []);
    await output(sandbox, `: > ${dir}/d/x`);
    assert.deepEqual(await news(id), ['CREATE d/x']);
    // The same where the directory is gone by then.
    await python(sandbox, `import os, shutil\nos.chdir('${dir}')\nfor i in range(20000):\n    name = 'x' * 200 + str(i)\n    open(name, 'w').close()\n    os.unlink(name)\nshutil.rmtree('${dir}')`);
    assertConnectError(await call('GetWatcherEvents', { watcherId: id }), 429, 'resource_exhausted', /lost/);
    assertConnectError(await call('GetWatcherEvents', { watcherId: id }), 404, 'not_found', /not found/);
    await removeWatcher(id);
  });

  test('code that takes all of inotify takes only its own', async () => {
    const greedy = await engine.create('base');
    const user = engine.has('root and user') ? 'root' : 'user';
    await greedy.files.write('/tmp/take.py', [
      'import ctypes, time',
      'libc = ctypes.CDLL(None)',
      'held = []',
      'while (fd := libc.inotify_init()) >= 0: held.append(fd)',
      'print(len(held), flush=True)',
      'time.sleep(600)',
    ].join('\n'));
    let taken = '';
    await greedy.commands.run('python3 /tmp/take.py', { user, background: true, onStdout: (data) => void (taken += data) });
    await until(() => taken.endsWith('\n'));
    assert.equal(taken, '16\n');
    const refused = await engine.rpc(greedy, `${FS}/CreateWatcher`, { path: '/home/user' });
    assertConnectError(refused, 429, 'resource_exhausted', /cannot watch/);
    const id = await createWatcher({ path: '/tmp' });
    await removeWatcher(id);
    await greedy.kill();
  });

  test('what makes no sense is refused', async () => {
    const dir = await folder();
    await output(sandbox, `echo x > ${dir}/file; ln -s loop ${dir}/loop; ln -s none ${dir}/broken; mkfifo ${dir}/pipe`);
    for (const method of ['CreateWatcher', 'WatchDir']) {
      for (const [message, code, pattern] of [
        [{ path: `${dir}/none` }, 'not_found', /not found/],
        [{ path: `${dir}/broken` }, 'not_found', /not found/],
        [{ path: `${dir}/file` }, 'invalid_argument', /not a directory/],
        [{ path: `${dir}/pipe` }, 'invalid_argument', /not a directory/],
        [{ path: `${dir}/file/below` }, 'invalid_argument', /not a directory/],
        [{ path: `${dir}/loop` }, 'internal', /symbolic links/],
        [{ path: '/proc/1/root' }, 'internal', /./],
        [{ path: '~nobody/x' }, 'invalid_argument', /home/],
        [{ path: 'x'.repeat(300) }, 'invalid_argument', /long/],
        [{ path: '/x'.repeat(3000) }, 'invalid_argument', /long/],
        [{ path: 'x'.repeat(1 << 20) }, 'invalid_argument', /long/],
        [{ path: 'a\0b' }, 'invalid_argument', /NUL/],
        [{ path: 7 }, 'invalid_argument', /path/],
        [{ path: ['/tmp'] }, 'invalid_argument', /path/],
        [{ path: '/tmp', recursive: 'yes' }, 'invalid_argument', /recursive/],
        [{ path: '/tmp', includeEntry: 1 }, 'invalid_argument', /includeEntry/],
        [{ path: '/tmp', allowNetworkMounts: {} }, 'invalid_argument', /allowNetworkMounts/],
      ]) {
        if (method === 'WatchDir') await assertStreamError(await watchDir(message), code, pattern);
        else {
          const res = await call(method, message);
          assert.equal(res.json.code, code, `${JSON.stringify(message).slice(0, 200)}: ${res.text.slice(0, 300)}`);
          assert.match(res.json.message, pattern);
        }
      }
    }
    for (const method of ['GetWatcherEvents', 'RemoveWatcher']) {
      for (const watcherId of ['', 'w', 'x'.repeat(1 << 20)])
        assertConnectError(await call(method, { watcherId }), 404, 'not_found', /watcher with id/);
      assertConnectError(await call(method, {}), 404, 'not_found', /watcher with id/);
      assertConnectError(await call(method, { watcherId: 5 }), 400, 'invalid_argument', /watcherId/);
      assertConnectError(await call(method, { watcherId: 'a\0b' }), 400, 'invalid_argument', /NUL/);
      const stranger = await call(method, { watcherId: 'w' }, { headers: { 'x-access-token': 'wrong' } });
      assert.equal(stranger.status, 401, stranger.text);
    }
    const unary = await call('WatchDir', { path: dir });
    assert.equal(unary.status, 415, unary.text);
    // A relative path is the home's; a network mount that may be there is none.
    const id = await createWatcher({ path: dir.replace('/home/user/', ''), allowNetworkMounts: true });
    await output(sandbox, `: > ${dir}/x`);
    assert.deepEqual(await news(id), ['CREATE x']);
    const other = await engine.create('base');
    assertConnectError(await engine.rpc(other, `${FS}/GetWatcherEvents`, { watcherId: id }), 404, 'not_found');
    await other.kill();
    await removeWatcher(id);
  });

  // ------------------------------------------------------------------------------------------------------------ ends

  test('a thousand watchers come and go, and nothing stays', async () => {
    const dir = await folder();
    await output(sandbox, `mkdir -p ${dir}/a/b/c; touch /tmp/this-one`);
    const round = async (n) => {
      for (let i = 0; i < n; i++) {
        const id = await createWatcher({ path: dir, recursive: true });
        if (i % 100 === 0) await output(sandbox, `touch ${dir}/a/b/c/${i}`);
        if (i % 2) await getEvents(id);
        await removeWatcher(id);
      }
    };
    await round(100);
    const open = engine.openFiles();
    const agent = agentOf('/tmp/this-one');
    const before = engine.peaks();
    await round(1000);
    // RemoveWatcher is answered before the agent has forgotten the last one.
    await until(() => agentOf('/tmp/this-one').watches === 0, { what: 'forgetting the last watch' });
    const now = agentOf('/tmp/this-one');
    assert.equal(now.files, agent.files);
    // A sanitized agent keeps what it freed.
    const room = BUILD.endsWith('/san') ? 65_536 : 2_048;
    assert.ok(now.kib < agent.kib + room, `the agent grew from ${agent.kib} to ${now.kib} KiB`);
    assert.ok(engine.openFiles() <= open + 2, `${open} files open before, ${engine.openFiles()} now`);
    engine.assertFlat(before, 16);
  });

  test('a pause ends all watches', async () => {
    const own = await engine.create('base');
    const res = await engine.stream(own, `${FS}/WatchDir`, { path: '/home/user' });
    const { watcherId } = (await engine.rpc(own, `${FS}/CreateWatcher`, { path: '/home/user' })).json;
    const cut = assert.rejects(within(20_000, res.toArray(), 'the end of the stream'));
    await own.pause();
    await cut;
    await own.connect();
    assertConnectError(await engine.rpc(own, `${FS}/GetWatcherEvents`, { watcherId }), 404, 'not_found');
    await output(own, 'touch /tmp/paused-one');
    assert.equal(agentOf('/tmp/paused-one').watches, 0);
    const again = (await engine.rpc(own, `${FS}/CreateWatcher`, { path: '/home/user' })).json.watcherId;
    await output(own, 'touch x');
    assert.ok((await engine.rpc(own, `${FS}/GetWatcherEvents`, { watcherId: again })).text.includes('"x"'));
    await own.kill();
  });

  test('a kill ends all watches', async () => {
    const own = await engine.create('base');
    const open = engine.openFiles();
    const streams = await Promise.all(Array.from({ length: 5 }, () => engine.stream(own, `${FS}/WatchDir`, { path: '/', recursive: true })));
    await engine.rpc(own, `${FS}/CreateWatcher`, { path: '/home/user' });
    let ended;
    const exit = new Promise((resolve) => (ended = resolve));
    await own.files.watchDir('/tmp', () => {}, { onExit: ended });
    const cuts = streams.map((res) => assert.rejects(within(20_000, res.toArray(), 'the end of the stream')));
    await own.kill();
    await Promise.all(cuts);
    assert.ok((await within(20_000, exit, 'the exit')) instanceof Error);
    await until(() => engine.openFiles() < open, { what: 'closing its files' });
    assert.equal((await shell(sandbox, 'true')).exitCode, 0);
  });
});
