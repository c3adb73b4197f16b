// Metadata of files, and compose: several files made into one.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { SUITE, assertError, envelopes, fails, output, startEngine, until, within } from './engine.mjs';

let engine;
let sandbox;
let folders = 0;

async function folder() {
  const dir = `/home/user/t${++folders}`;
  await sandbox.files.makeDir(dir);
  return dir;
}

const put = (file, body, headers) =>
  engine.envd(sandbox, 'POST', `/files?${new URLSearchParams({ path: file })}`, { body, headers: { 'content-type': 'application/octet-stream', ...headers } });
const call = (method, message, options) => engine.rpc(sandbox, `filesystem.Filesystem/${method}`, message, options);
const metadata = async (file) => (await sandbox.files.getInfo(file)).metadata;
const compose = (source_paths, destination, more = {}, inside = sandbox) =>
  engine.envd(inside, 'POST', '/files/compose', { json: { source_paths, destination, ...more } });
const exists = (file) => sandbox.files.exists(file);

describe('metadata of files and compose', SUITE, () => {
  before(async () => {
    engine = await startEngine({ args: ['--pool', '0'], templates: { 'tiny.template': 'disk = 16\nmemory = 256\ninterpreter = no\n' } });
    sandbox = await engine.create('base');
  });
  after(() => engine?.stop());

  // ------------------------------------------------------------------------------------------------------------ metadata

  test('what an upload brings is told by every call', async () => {
    const dir = await folder();
    const given = { colour: 'blue', 'x-y.z': 'two words "quoted" \\ ~', nothing: '' };
    const made = await sandbox.files.write(`${dir}/f`, 'x', { metadata: given });
    assert.deepEqual(made.metadata, given);
    assert.deepEqual(await metadata(`${dir}/f`), given);
    assert.deepEqual((await sandbox.files.list(dir))[0].metadata, given);
    assert.deepEqual((await sandbox.files.rename(`${dir}/f`, `${dir}/g`)).metadata, given);
    assert.deepEqual((await call('Stat', { path: `${dir}/g` })).json.entry.metadata, given);
    assert.deepEqual(await output(sandbox, `cat ${dir}/g`), 'x');
    // Each way to upload.
    for (const opts of [{ useOctetStream: true }, { gzip: true }, {}]) {
      assert.deepEqual((await sandbox.files.write(`${dir}/w`, 'y', { metadata: { how: 'so' }, ...opts })).metadata, { how: 'so' });
      assert.deepEqual(await metadata(`${dir}/w`), { how: 'so' });
    }
    const many = await sandbox.files.write([{ path: `${dir}/1`, data: '1' }, { path: `${dir}/2`, data: '2' }], { metadata: { all: 'of them' } });
    assert.deepEqual(many.map((f) => f.metadata), [{ all: 'of them' }, { all: 'of them' }]);
    assert.deepEqual(await metadata(`${dir}/2`), { all: 'of them' });
  });

  test('an upload replaces all of it, also by none', async () => {
    const dir = await folder();
    await sandbox.files.write(`${dir}/f`, 'x', { metadata: { a: '1', b: '2' } });
    await sandbox.files.write(`${dir}/f`, 'y', { metadata: { b: '3' } });
    assert.deepEqual(await metadata(`${dir}/f`), { b: '3' });
    const none = await put(`${dir}/f`, 'z');
    assert.deepEqual(none.json, [{ name: 'f', type: 'file', path: `${dir}/f` }]);
    assert.equal(await metadata(`${dir}/f`), undefined);
    assert.ok(!('metadata' in (await call('Stat', { path: `${dir}/f` })).json.entry));
  });

  test('it belongs to the file, whatever its name is', async () => {
    const dir = await folder();
    await sandbox.files.write(`${dir}/f`, 'x', { metadata: { is: 'mine' } });
    await output(sandbox, `cd ${dir}; mv f moved; ln moved hard; ln -s moved soft; echo more >> moved; chmod 600 moved; cp moved copy`);
    for (const name of ['moved', 'hard', 'soft']) assert.deepEqual(await metadata(`${dir}/${name}`), { is: 'mine' }, name);
    assert.equal(await metadata(`${dir}/copy`), undefined);
    assert.equal(await metadata(dir), undefined);
    // A new file under an old name is another file.
    await output(sandbox, `cd ${dir}; rm moved hard; echo new > moved`);
    assert.equal(await metadata(`${dir}/moved`), undefined);
    await sandbox.files.write(`${dir}/other`, 'x', { metadata: { is: 'other' } });
    await output(sandbox, `cd ${dir}; mv other moved`);
    assert.deepEqual(await metadata(`${dir}/moved`), { is: 'other' });
    // Nor does any of a thousand later files inherit it.
    await output(sandbox, `cd ${dir}; rm moved; mkdir many; cd many; for i in $(seq 1000); do : > $i; done`);
    assert.ok((await sandbox.files.list(`${dir}/many`)).every((e) => e.metadata === undefined));
  });

  test('a watch tells it with the entry', async () => {
    const dir = await folder();
    const res = await engine.stream(sandbox, 'filesystem.Filesystem/WatchDir', { path: dir, includeEntry: true });
    const events = envelopes(res);
    await within(10_000, events.next(), 'the start');
    await sandbox.files.write(`${dir}/f`, 'x', { metadata: { seen: 'yes' } });
    for (;;) {
      const { value } = await within(10_000, events.next(), 'the event');
      const { type, entry } = value.event.filesystem;
      if (type !== 'EVENT_TYPE_WRITE') continue;
      assert.deepEqual(entry.metadata, { seen: 'yes' });
      break;
    }
    res.drop();
  });

  test('keys in any case, the first of several, and the limits', async () => {
    const dir = await folder();
    const file = `${dir}/f`;
    const twice = await put(file, 'x', { 'X-Metadata-CamelCase': 'v', 'x-metadata-dup': ['first', 'second'] });
    assert.deepEqual([twice.status, twice.json[0]?.metadata.camelcase], [200, 'v'], twice.text);
    assert.match(twice.json[0].metadata.dup, /^first/);
    const long = 'k'.repeat(246);
    assert.deepEqual((await put(file, 'x', { [`x-metadata-${long}`]: 'v' })).json[0].metadata, { [long]: 'v' });
    assert.deepEqual(await metadata(file), { [long]: 'v' });
    // 4,096 bytes in all, and E2B's own prefix of nine counts with each key.
    const most = 'v'.repeat(4096 - 9 - 1);
    assert.equal((await put(file, 'x', { 'x-metadata-k': most })).status, 200);
    assert.deepEqual(await metadata(file), { k: most });
    for (const [headers, message] of [
      [{ 'x-metadata-k': `${most}v` }, /4096/],
      [{ 'x-metadata-k': most.slice(0, -10), 'x-metadata-l': 'v' }, /4096/],
      [{ [`x-metadata-${long}k`]: 'v' }, /246/],
      [{ 'x-metadata-': 'v' }, /empty/],
      [{ 'x-metadata-k': 'caf\xe9' }, /ASCII/],
      [{ 'x-metadata-k': 'a\tb' }, /ASCII/],
    ])
      assertError(await put(`${dir}/new`, 'x', headers), 400, message);
    assert.equal(await exists(`${dir}/new`), false, 'a refused upload makes no file');
    assert.deepEqual(await metadata(file), { k: most });
    await fails(sandbox.files.write(file, 'x', { metadata: { 'a b': 'c' } }), 'InvalidArgumentError');
  });

  test('there is an end to it, and files that are gone make room', async () => {
    const own = await engine.create('base');
    const peaks = engine.peaks();
    const batch = (n) =>
      own.files.write(Array.from({ length: 1024 }, (_, i) => ({ path: `/home/user/b${n}/${i}`, data: '' })), { metadata: { n: String(n) } });
    for (let n = 0; n < 8; n++) await batch(n);
    assert.deepEqual((await own.files.getInfo('/home/user/b7/1023')).metadata, { n: '7' });
    await fails(own.files.write('/home/user/more', '', { metadata: { one: 'more' } }), 'NotEnoughSpaceError', /metadata/);
    assert.equal((await own.files.write('/home/user/more', '')).metadata, undefined);
    await output(own, 'rm -r b0; mv b1 c1');
    await own.files.getInfo('/home/user/c1/5');
    assert.deepEqual((await own.files.write('/home/user/more', '', { metadata: { one: 'more' } })).metadata, { one: 'more' });
    assert.deepEqual((await own.files.getInfo('/home/user/b7/1')).metadata, { n: '7' });
    assert.deepEqual((await own.files.getInfo('/home/user/c1/5')).metadata, { n: '1' }, 'it was seen where it is');
    engine.assertFlat(peaks, 32);
    await own.kill();
  });

  // ------------------------------------------------------------------------------------------------------------ compose

  test('files become one, in order, and are gone', async () => {
    const dir = await folder();
    const part = Buffer.alloc(300_000, 'b');
    await sandbox.files.write([
      { path: `${dir}/1`, data: 'first ' },
      { path: `${dir}/2`, data: part.toString() },
      { path: `${dir}/3`, data: '' },
      { path: `${dir}/4`, data: ' last' },
    ]);
    const res = await compose([1, 2, 3, 4].map((i) => `${dir}/${i}`), `${dir}/new/deep/all`);
    assert.deepEqual([res.status, res.json], [200, { name: 'all', type: 'file', path: `${dir}/new/deep/all` }], res.text);
    assert.equal(await sandbox.files.read(`${dir}/new/deep/all`), `first ${part} last`);
    assert.equal(await output(sandbox, `ls -A ${dir} ${dir}/new/deep | tr '\\n' ' '; stat -c %U:%a ${dir}/new/deep/all`), `${dir}: new  ${dir}/new/deep: all user:644`);
  });

  test('relative paths, users, and a destination that is there', async () => {
    await sandbox.files.write([{ path: 'c1', data: '1' }, { path: '~/c2', data: '2' }, { path: 'c3', data: 'old' }]);
    const res = await compose(['c1', '~/c2'], 'c3');
    assert.equal(res.json.path, '/home/user/c3', res.text);
    assert.equal(await sandbox.files.read('c3'), '12');
    if (engine.has('root and user')) {
      await sandbox.files.write('/root/r1', 'r', { user: 'root' });
      const made = await compose(['r1'], 'r2', { username: 'root' });
      assert.equal(made.json.path, '/root/r2', made.text);
      assert.equal(await output(sandbox, 'stat -c %U /root/r2; cat /root/r2', { user: 'root' }), 'root\nr');
    }
    assertError(await compose(['c3'], 'c4', { username: 'nobody-here' }), 401, /nobody-here/);
  });

  test('a source that is the destination, or named twice, or a link', async () => {
    const dir = await folder();
    await sandbox.files.write([{ path: `${dir}/a`, data: 'a' }, { path: `${dir}/b`, data: 'b' }, { path: `${dir}/c`, data: 'c' }], { metadata: { of: 'parts' } });
    assert.equal((await compose([`${dir}/a`, `${dir}/b`, `${dir}/b`], `${dir}/a`)).status, 200);
    assert.equal(await sandbox.files.read(`${dir}/a`), 'abb');
    assert.equal(await exists(`${dir}/b`), false);
    assert.equal(await metadata(`${dir}/a`), undefined, 'a new file has no metadata');
    await output(sandbox, `cd ${dir}; ln -s c link; echo old > real; ln -s real to`);
    assert.equal((await compose([`${dir}/a`, `${dir}/link`], `${dir}/to`)).status, 200);
    assert.equal(await output(sandbox, `cd ${dir}; cat real; echo; readlink to; ls -A | tr '\\n' ' '`), 'abbc\nreal\nc real to');
  });

  test('what cannot be done is refused, and changes nothing', async () => {
    const dir = await folder();
    await sandbox.files.write([{ path: `${dir}/a`, data: 'a' }, { path: `${dir}/file`, data: 'f' }]);
    await output(sandbox, `cd ${dir}; mkdir sub; mkfifo pipe`);
    for (const [sources, destination, status, message] of [
      [[`${dir}/a`, `${dir}/none`], `${dir}/x`, 404, `path '${dir}/none' does not exist`],
      [[`${dir}/a`, `${dir}/sub`], `${dir}/x`, 400, `path '${dir}/sub' is a directory`],
      [[`${dir}/a`, `${dir}/pipe`], `${dir}/x`, 500, /pipe/],
      [[`${dir}/a`, '/proc/1/environ'], `${dir}/x`, 500, /environ/],
      [[`${dir}/a`], `${dir}/sub`, 400, `path is a directory: ${dir}/sub`],
      [[`${dir}/a`], '/', 400, /directory/],
      [[`${dir}/a`], `${dir}/pipe`, 500, /pipe/],
      [[`${dir}/a`], `${dir}/file/x`, 500, `error ensuring directories: path is a file: ${dir}/file`],
      [[`${dir}/a`], '/usr/x', 500, /Read-only/],
      [[`${dir}/a`], '/proc/self/root/tmp/x', 500, /./],
      [[`${dir}/a`], '~other/x', 400, /home/],
      [[`${dir}/a`], 'x'.repeat(300), 400, /long/],
      [[`${dir}/a`], 'a\0b', 400, /NUL/],
      [[`${dir}/a`], '', 400, /empty/],
      [[`${dir}/a`], 7, 400, /string/],
      [[`${dir}/a`], undefined, 400, /destination/],
      [[], `${dir}/x`, 400, /source_paths/],
      [undefined, `${dir}/x`, 400, /source_paths/],
      ['x', `${dir}/x`, 400, /source_paths/],
      [[`${dir}/a`, 7], `${dir}/x`, 400, /string/],
      [[`${dir}/a`, null], `${dir}/x`, 400, /string/],
      [[`${dir}/a`, ''], `${dir}/x`, 400, /empty/],
      [Array.from({ length: 5000 }, (_, i) => `${dir}/${'n'.repeat(100)}${i}`), `${dir}/x`, 400, /too many/],
    ])
      assertError(await compose(sources, destination), status, message);
    assertError(await engine.envd(sandbox, 'GET', '/files/compose'), 405);
    assertError(await engine.envd(sandbox, 'POST', '/files/compose', { body: 'nonsense' }), 400);
    assertError(await engine.envd(sandbox, 'POST', '/files/compose', { json: {}, headers: { 'x-access-token': 'wrong' } }), 401);
    assert.equal(await output(sandbox, `cd ${dir}; ls -A | tr '\\n' ' '; cat a`), 'a file pipe sub a');
  });

  test('a source that cannot be removed is said, and the destination is complete', async () => {
    const dir = await folder();
    assertError(await compose(['/etc/hostname'], `${dir}/x`), 500, /error removing source '\/etc\/hostname'/);
    assert.equal(await output(sandbox, `cat ${dir}/x; cat /etc/hostname`), 'e2b.local\ne2b.local');
  });

  test('a full disk loses nothing', async () => {
    const own = await engine.create('tiny');
    await output(own, 'head -c 5M /dev/zero > a; head -c 5M /dev/zero > b; echo before > c');
    assertError(await compose(['a', 'b'], 'c', {}, own), 507, 'not enough disk space available');
    assert.equal(await output(own, "stat -c '%n %s' a b; cat c; ls -A | grep -c compose || true"), 'a 5242880\nb 5242880\nbefore\n0');
    await output(own, 'truncate -s 1M b; truncate -s 1M a');
    assert.equal((await compose(['a', 'b'], 'c', {}, own)).status, 200);
    assert.equal(await output(own, 'stat -c %s c'), '2097152');
    await own.kill();
  });

  test('twenty at once; nothing beside them waits, and nothing stays', async () => {
    const dir = await folder();
    const each = Array.from({ length: 20 }, (_, i) => i);
    await output(sandbox, `cd ${dir}; for i in $(seq 0 19); do head -c 2M /dev/zero > a$i; echo $i > b$i; done`);
    const open = engine.openFiles();
    const all = Promise.all(each.map((i) => compose([`${dir}/a${i}`, `${dir}/b${i}`], `${dir}/c${i}`)));
    assert.equal(await output(sandbox, 'echo here'), 'here');
    assert.deepEqual((await all).map((res) => res.status), each.map(() => 200));
    assert.equal(await output(sandbox, `cd ${dir}; for i in $(seq 0 19); do tail -c +2097153 c$i; done | tr '\\n' ' '; ls -A | wc -l`), `${each.join(' ')} 20`);
    await until(() => engine.openFiles() <= open, { what: 'closing' });
  });

  test('the kill of the sandbox cuts it', async () => {
    const own = await engine.create('base');
    await output(own, 'truncate -s 200M sparse');
    // Whatever comes first: it is done, or there is no sandbox any more.
    const end = compose(['sparse', 'sparse'], 'x', {}, own).then((res) => res.status, () => 'cut');
    await own.kill();
    assert.ok([200, 502, 'cut'].includes(await within(20_000, end, 'the end')));
    assert.equal(await output(sandbox, 'echo here'), 'here');
  });
});
