// files_changed: which files below the user's home a run of code or of a command has changed, and what it costs the user: nothing.
import assert from 'node:assert/strict';
import path from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { SUITE, startEngine, tempFolder, until } from './engine.mjs';
import { startGateway } from './gateway.mjs';
import { writeWheels } from './wheels.mjs';

const HOME = '/home/user/';

let engine;
let g;
before(async () => {
  const dir = tempFolder();
  const wheelhouse = writeWheels(path.join(dir, 'wheelhouse'), [['sgt_changes', '1.0']]);
  engine = await startEngine({ dir, args: ['--no-internet', '--wheelhouse', wheelhouse] });
  g = await startGateway({ engine, settings: { SANDGATE_CUSTOM_TEMPLATE_ID: 'base' } });
});
after(async () => {
  await g?.stop();
  await engine?.stop();
});
afterEach(() => g.stopAll());

/** { name: 'change size' } of an answer, names without the home. */
function changes(res) {
  const { files_changed: files } = res.json;
  assert.ok(Array.isArray(files), res.text);
  assert.deepEqual(files.map((f) => f.path), files.map((f) => f.path).sort(), 'sorted');
  return Object.fromEntries(
    files.map(({ path, size, change, ...rest }) => {
      assert.ok(path.startsWith(HOME), path);
      assert.deepEqual(rest, {});
      assert.equal(size === null, change === 'removed', JSON.stringify([path, size, change]));
      return [path.slice(HOME.length), size === null ? change : `${change} ${size}`];
    }),
  );
}

/** A command, or code, that must succeed; what it changed. */
async function changed(session, json) {
  const res = await session.run(json);
  assert.equal(res.json.success, true, res.text.slice(0, 2000));
  return changes(res);
}

/** The sandbox of a session as the engine's calls want it. */
async function inside(session) {
  const [row] = await g.rows(`SELECT * FROM sandboxes WHERE session_id = '${session}' AND status = 'running'`);
  return { ...row, sandboxId: row.sandbox_id, envdAccessToken: row.envd_token };
}

// What is to be seen, as code and as a command. Each starts from the files that SETUP has made.
const SETUP = "rm -rf * .[a-z]*; echo old > old; echo old > same; echo old > moved; mkdir dir; echo old > dir/file; echo old > 'with blank'";
const CASES = [
  ['nothing', 'pass', 'true', {}],
  ['one that is only read', 'open("old").read()', 'cat old', {}],
  ['a new one', 'open("new", "w").write("12345")', 'printf 12345 > new', { new: 'created 5' }],
  ['an empty one', 'open("new", "w").close()', ': > new', { new: 'created 0' }],
  ['one that grows', 'open("old", "a").write("12")', 'printf 12 >> old', { old: 'modified 6' }],
  ['one written again with the same size', 'open("same", "w").write("new\\n")', 'echo new > same', { same: 'modified 4' }],
  ['one written with the very same bytes', 'open("same", "w").write("old\\n")', 'echo old > same', { same: 'modified 4' }],
  ['one that is emptied', 'open("old", "w").close()', ': > old', { old: 'modified 0' }],
  ['one that is removed', 'import os; os.remove("old")', 'rm old', { old: 'removed' }],
  ['a new name', 'import os; os.rename("moved", "dir/to")', 'mv moved dir/to', { moved: 'removed', 'dir/to': 'created 4' }],
  ['one that is removed and made again', 'import os; os.remove("old"); open("old", "w").write("1")', 'rm old; printf 1 > old', { old: 'modified 1' }],
  ['one that comes and goes', 'import os; open("tmp", "w").write("1"); os.remove("tmp")', 'echo 1 > tmp; rm tmp', {}],
  ['one that is moved into place', 'import os; open("t", "w").write("1"); os.rename("t", "n")', 'printf 1 > t; mv t n', { n: 'created 1' }],
  ['mode and times alone', 'import os; os.chmod("old", 0o600); os.utime("old")', 'chmod 600 old; touch -a old', {}],
  ['one five deep', 'import os; os.makedirs("a/b/c/d"); open("a/b/c/d/e", "w").write("1")', 'mkdir -p a/b/c/d; printf 1 > a/b/c/d/e', { 'a/b/c/d/e': 'created 1' }],
  ['a folder alone', 'import os; os.mkdir("d"); os.rmdir("d"); os.mkdir("e")', 'mkdir d; rmdir d; mkdir e', {}],
  ['a whole folder', 'import shutil; shutil.rmtree("dir")', 'rm -r dir', { dir: 'removed', 'dir/file': 'removed' }],
  ['a folder with a new name', 'import os; os.rename("dir", "dir2")', 'mv dir dir2', { dir: 'removed', 'dir2/file': 'created 4' }],
  ['one outside', 'open("/tmp/outside", "w").write("1")', 'echo 1 > /tmp/outside', {}],
  ['a hidden one', 'open(".hidden", "w").write("1")', 'printf 1 > .hidden', { '.hidden': 'created 1' }],
];

describe('what has changed', SUITE, () => {
  for (const kind of ['code', 'command'])
    test(`by ${kind}: created, modified, removed`, async () => {
      const session = g.session(`cases-${kind}`);
      for (const [what, code, command, expected] of CASES) {
        await session.run({ command: SETUP });
        assert.deepEqual(await changed(session, kind === 'code' ? { code } : { command }), expected, what);
      }
    });

  test('names of every kind', async () => {
    const session = g.session('names');
    const names = [' begins', '\nline', '\ttab', 'ends ', 'two\nlines', '"quoted"', "it's", '-rf', '--help', '$(id)', '*', '%s%n', '\\', 'é', '日本', '😀', '12 81a4 x', 'x'.repeat(255)];
    const json = { code: `for n in ${JSON.stringify(names)}: open(n, "w").write("1")`.replace('\ud83d\ude00', '😀') };
    const expected = Object.fromEntries([...names].map((n) => [n, 'created 1']));
    assert.deepEqual(await changed(session, json), expected);
    const removed = await changed(session, { code: `import os\nfor n in ${JSON.stringify(names)}: os.remove(n)` });
    assert.deepEqual(removed, Object.fromEntries(names.map((n) => [n, 'removed'])));
    const odd = await session.run({ code: 'open(b"no\\xfftext", "w").write("1")\nopen("z", "w").write("1")' });
    assert.equal(changes(odd).z, 'created 1', 'a name that is no text hides no other');
  });

  test('links are told, not followed', async () => {
    const session = g.session('links');
    await session.run({ command: 'mkdir -p /tmp/out/sub; echo 1 > /tmp/out/file' });
    const made = await changed(session, { command: 'ln -s /tmp/out out; ln -s /etc/passwd p; ln -s nowhere n; echo 22 > out/file; echo 1 > out/sub/new' });
    assert.deepEqual(made, { out: 'created 8', p: 'created 11', n: 'created 7' });
    assert.deepEqual(await changed(session, { command: 'echo 333 > out/file; rm p' }), { p: 'removed' });
  });

  test('a file that still grows has the size that it had, and the next run goes on', async () => {
    const session = g.session('grows');
    const command = '(while :; do echo 0123456789; sleep 0.02; done > log 2>/dev/null) </dev/null >/dev/null 2>&1 & until [ -s log ]; do :; done';
    const { log } = await changed(session, { command });
    assert.match(log, /^created [1-9]\d*$/);
    const size = Number(log.split(' ')[1]);
    const again = await changed(session, { command: `until [ $(stat -c %s log) -gt ${size + 30} ]; do :; done` });
    assert.match(again.log, /^modified \d+$/);
    assert.ok(Number(again.log.split(' ')[1]) > size + 30, 'read at the end of the run');
  });

  test('past 1,000 the rest is counted', async () => {
    const session = g.session('many');
    const make = (n) => session.run({ command: `mkdir d${n}; cd d${n}; for i in $(seq -w ${n}); do : > f$i; done` });
    const exact = (await make(1000)).json;
    assert.deepEqual([exact.files_changed.length, 'files_changed_count' in exact], [1000, false]);
    const { files_changed: files, files_changed_count: count, execution_id: id } = (await make(1200)).json;
    assert.deepEqual([files.length, count], [1000, 1200]);
    assert.deepEqual([files[0].path, files.at(-1).path], [`${HOME}d1200/f0001`, `${HOME}d1200/f1000`]);
    const { result } = (await session.execution(id)).json;
    assert.deepEqual([result.files_changed, result.files_changed_count], [files, count], 'it is kept');
    assert.equal((await make(9000)).json.files_changed_count, 9000, 'more than one command line takes');
    assert.deepEqual(await changed(session, { command: 'rm d1200/f0001' }), { 'd1200/f0001': 'removed' });
  });

  test('in a sandbox without an interpreter, and of a run that failed', async () => {
    const custom = g.session('custom');
    await custom.start({ sandbox_type: 'custom' });
    assert.deepEqual(await changed(custom, { command: 'echo 1 > f' }), { f: 'created 2' });
    const session = g.session('failed');
    for (const json of [{ code: 'open("f", "w").write("1")\n1/0' }, { command: 'echo 1 >> f; exit 3' }]) {
      const res = await session.run(json);
      assert.equal(res.json.success, false);
      assert.deepEqual(Object.keys(changes(res)), ['f']);
    }
    const late = await session.run({ code: 'open("g", "w").write("1")\nimport time\ntime.sleep(60)', timeout_secs: 1 });
    assert.deepEqual([late.status, changes(late)], [408, { g: 'created 1' }]);
  });
});

describe('whose change it is', SUITE, () => {
  test('what was there before, an upload and an installation are no run’s', async () => {
    const session = g.session('between');
    assert.equal((await session.upload('first', 'x', '/home/user')).status, 200);
    assert.deepEqual(await changed(session, { code: 'pass' }), {}, 'before the first run');
    assert.equal((await session.upload('second', 'x', '/home/user')).status, 200);
    assert.deepEqual(await changed(session, { code: 'open("second", "a").write("y")' }), { second: 'modified 2' });
    const installed = (await session.install(['sgt_changes'])).json;
    assert.equal(installed.success, true, installed.error);
    assert.equal(installed.files_changed, null);
    assert.deepEqual(await changed(session, { command: 'true' }), {}, 'pip has written below the home');
  });

  test('of two at once each has what changed while it ran', async () => {
    const session = g.session('parallel');
    await session.execute('1');
    const { context_id } = (await session.createContext({})).json;
    const wait = 'import os, time\nwhile not os.path.exists("go"): time.sleep(0.005)\n';
    const one = session.run({ code: `open("a", "w").write("1")\n${wait}open("b", "w").write("1")` });
    await g.rows('SELECT 1');
    await until(async () => (await session.files('/home/user')).json.some((f) => f.path === `${HOME}a`), { what: 'the first' });
    const two = changes(await session.run({ code: 'open("c", "w").write("1")', context_id }));
    assert.deepEqual(two, { c: 'created 1' }, 'not what changed before it');
    await session.upload('go', 'x', '/home/user');
    const first = changes(await one);
    assert.deepEqual([first.a, first.b, first.c], ['created 1', 'created 1', 'created 1'], 'all of its time');
    const sandbox = await inside('parallel');
    assert.deepEqual(await changed(session, { command: 'echo 1 > d' }), { d: 'created 2' });
    assert.equal((await inside('parallel')).watcher_id, sandbox.watcher_id, 'one watcher stays');
  });

  test('nothing of it is in the user’s namespace, environment or processes', async () => {
    const session = g.session('private');
    const look = 'import os\nprint(sorted(globals()), sorted(os.environ), sorted(os.listdir("/home/user")), sorted(os.listdir("/tmp")))';
    await session.execute(look);
    const before = (await session.execute(look)).json.output;
    await changed(session, { command: 'echo 1 > f; rm f' });
    await changed(session, { code: 'pass' });
    const strip = (text) => text.replaceAll(/'_i+\d*'(, )?|'_\d+'(, )?/g, '');
    assert.equal(strip((await session.execute(look)).json.output), strip(before));
    const { output } = (await session.run({ command: 'ps -eo args= | grep -v -e "ps -eo" -e grep' })).json;
    assert.doesNotMatch(output, /stat|watch|inotify/);
  });
});

describe('when the watcher is gone', SUITE, () => {
  test('it is not known once, and then again', async () => {
    const session = g.session('removed');
    await changed(session, { command: 'true' });
    const sandbox = await inside('removed');
    assert.ok(sandbox.watcher_id);
    const gone = await engine.rpc(sandbox, 'filesystem.Filesystem/RemoveWatcher', { watcherId: sandbox.watcher_id });
    assert.equal(gone.status, 200, gone.text);
    const blind = (await session.run({ command: 'echo 1 > f' })).json;
    assert.deepEqual([blind.success, blind.files_changed], [true, null], 'null says that it is not known');
    assert.deepEqual(await changed(session, { command: 'echo 2 > f' }), { f: 'modified 2' });
    assert.notEqual((await inside('removed')).watcher_id, sandbox.watcher_id);
  });

  test('with a new sandbox there is a new one', async () => {
    const session = g.session('killed');
    await changed(session, { command: 'echo 1 > f' });
    const { sandbox_id } = await inside('killed');
    assert.equal((await engine.api('DELETE', `/sandboxes/${sandbox_id}`)).status, 204);
    const res = await session.run({ command: 'echo 1 > f' });
    assert.deepEqual([res.json.state_lost, changes(res)], [true, { f: 'created 2' }]);
  });

  test('after a pause', async () => {
    const session = g.session('paused');
    await changed(session, { command: 'echo 1 > f' });
    const { sandbox_id } = await inside('paused');
    assert.equal((await engine.api('POST', `/sandboxes/${sandbox_id}/pause`)).status, 204);
    const first = (await session.run({ command: 'echo 22 > f' })).json;
    assert.deepEqual([first.success, first.state_lost], [true, false], JSON.stringify(first));
    assert.deepEqual(await changed(session, { command: 'echo 333 > f' }), { f: 'modified 4' });
  });

  test('when the run has ended its sandbox, it is not known', async () => {
    const session = g.session('ends');
    await session.start();
    const run = session.run({ command: 'echo 1 > f; echo begun; sleep 600' });
    await g.printed('ends', 'begun');
    await session.stop();
    assert.deepEqual([(await run).status, (await run).json.files_changed], [409, null]);
  });
});
