// envd's files: reading and writing in every form, signatures, the filesystem calls, odd names, and paths that try to get out.
import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import zlib from 'node:zlib';
import {
  ENVD,
  SUITE,
  assertConnectError,
  assertError,
  fails,
  output,
  request,
  routing,
  shell,
  startEngine,
  tempFolder,
  within,
} from './engine.mjs';

const TEMPLATES = { 'cramped.template': 'disk = 8\nmemory = 256\ninterpreter = no\n' };

let engine;
let sandbox;
let folders = 0;

/** A fresh folder in the shared sandbox, so that no test meets the files of another. */
async function folder() {
  const dir = `/home/user/t${++folders}`;
  await sandbox.files.makeDir(dir);
  return dir;
}

const at = (query) => `/files?${new URLSearchParams(query)}`;
const get = (query, headers) => engine.envd(sandbox, 'GET', at(query), { headers });
const put = (query, body, headers) =>
  engine.envd(sandbox, 'POST', at(query), { body, headers: { 'content-type': 'application/octet-stream', ...headers } });
const call = (method, message, options) => engine.rpc(sandbox, `filesystem.Filesystem/${method}`, message, options);
const names = (entries) => entries.map((e) => e.name);
const asRoot = () => engine.has('root and user');

/** The signature as the reference spells it out, independent of the SDK. */
function sign(file, operation, user, token, expiration) {
  const text = [file, operation, user, token, ...(expiration === undefined ? [] : [expiration])].join(':');
  return 'v1_' + crypto.createHash('sha256').update(text).digest('base64').replace(/=+$/, '');
}

function multipart(parts) {
  const boundary = `----b${crypto.randomUUID()}`;
  const body = parts.map(([disposition, data]) =>
    Buffer.concat([
      Buffer.from(`--${boundary}\r\nContent-Disposition: form-data; ${disposition}\r\nContent-Type: application/octet-stream\r\n\r\n`),
      Buffer.from(data),
      Buffer.from('\r\n'),
    ]),
  );
  return {
    body: Buffer.concat([...body, Buffer.from(`--${boundary}--\r\n`)]),
    headers: { 'content-type': `multipart/form-data; boundary=${boundary}` },
  };
}

const postParts = (query, parts) => {
  const { body, headers } = multipart(parts);
  return engine.envd(sandbox, 'POST', at(query), { body, headers });
};

describe('files', SUITE, () => {
  before(async () => {
    engine = await startEngine({ templates: TEMPLATES });
    sandbox = await engine.create('base');
  });
  after(() => engine?.stop());

  // ------------------------------------------------------------------------------------------------------------ write and read

  test('every form the SDK writes comes back in every form it reads', async () => {
    const dir = await folder();
    const bytes = crypto.randomBytes(100_000);
    const forms = {
      text: ['grüße €\n', {}],
      empty: ['', {}],
      buffer: [bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length), {}],
      blob: [new Blob([bytes]), {}],
      stream: [() => new Blob([bytes]).stream(), {}],
      octet: ['octet', { useOctetStream: true }],
      gzip: ['z'.repeat(100_000), { gzip: true }],
      'gzip stream': [() => new Blob([bytes]).stream(), { gzip: true }],
      'empty octet': ['', { useOctetStream: true }],
    };
    for (const [name, [data, opts]] of Object.entries(forms)) {
      const file = `${dir}/${name}`;
      const info = await sandbox.files.write(file, typeof data === 'function' ? data() : data, opts);
      assert.deepEqual([info.name, info.type, info.path], [name, 'file', file]);
      const expected = typeof data === 'string' ? Buffer.from(data) : bytes;
      assert.deepEqual(Buffer.from(await sandbox.files.read(file, { format: 'bytes' })), expected, name);
      if (typeof data === 'string') assert.equal(await sandbox.files.read(file), data);
      assert.deepEqual(Buffer.from(await (await sandbox.files.read(file, { format: 'blob' })).arrayBuffer()), expected);
      const chunks = [];
      for await (const chunk of await sandbox.files.read(file, { format: 'stream' })) chunks.push(chunk);
      assert.deepEqual(Buffer.concat(chunks), expected);
      assert.deepEqual(Buffer.from(await sandbox.files.read(file, { format: 'bytes', gzip: true })), expected);
    }
  });

  test('many files in one call, with parents, relative and absolute', async () => {
    const dir = await folder();
    const infos = await sandbox.files.write([
      { path: `${dir}/a.txt`, data: 'A' },
      { path: `${dir}/deep/er/b.txt`, data: 'B' },
      { path: `${dir.slice('/home/user/'.length)}/c.txt`, data: 'C' },
    ]);
    assert.deepEqual(
      infos.map((i) => i.path),
      [`${dir}/a.txt`, `${dir}/deep/er/b.txt`, `${dir}/c.txt`],
    );
    assert.equal(await output(sandbox, `cat ${dir}/a.txt ${dir}/deep/er/b.txt ${dir}/c.txt`), 'ABC');
    const octet = await sandbox.files.writeFiles(
      [
        { path: `${dir}/d`, data: 'D' },
        { path: `${dir}/e`, data: 'E' },
      ],
      { useOctetStream: true },
    );
    assert.deepEqual(
      octet.map((i) => i.path),
      [`${dir}/d`, `${dir}/e`],
    );
  });

  test('the answer on the wire', async () => {
    const dir = await folder();
    const res = await put({ path: `${dir}/a.txt` }, 'hello');
    assert.equal(res.status, 200);
    assert.deepEqual(res.json, [{ name: 'a.txt', type: 'file', path: `${dir}/a.txt` }]);
    const parts = await postParts({}, [
      [`name="file"; filename="${dir}/x"`, '1'],
      ['name="other"; filename="ignored"', '2'],
      [`name="file"; filename="${dir}/y"`, '3'],
    ]);
    assert.deepEqual(
      parts.json.map((f) => f.path),
      [`${dir}/x`, `${dir}/y`],
    );
    assert.deepEqual(names(await sandbox.files.list(dir)), ['a.txt', 'x', 'y']);
  });

  test('writing truncates, makes parents, and gives the file to the user', async () => {
    const dir = await folder();
    await sandbox.files.write(`${dir}/a`, 'a long text');
    await sandbox.files.write(`${dir}/a`, 'short');
    assert.equal(await sandbox.files.read(`${dir}/a`), 'short');
    await sandbox.files.write(`${dir}/p/q/r.txt`, 'x');
    assert.equal(
      await output(sandbox, `stat -c '%U %G %a' ${dir}/p ${dir}/p/q ${dir}/p/q/r.txt`),
      'user user 755\nuser user 755\nuser user 644',
    );
    assert.equal((await shell(sandbox, `echo more >> ${dir}/p/q/r.txt`)).exitCode, 0);
  });

  test('root owns what is written for root', async () => {
    const dir = await folder();
    if (!asRoot()) {
      assertError(await put({ path: `${dir}/r`, username: 'root' }, 'x'), 401, /error looking up user 'root'/);
      return;
    }
    await sandbox.files.write(`${dir}/sub/r.txt`, 'for root', { user: 'root' });
    assert.equal(await output(sandbox, `stat -c '%U %G' ${dir}/sub ${dir}/sub/r.txt`), 'root root\nroot root');
    assert.equal(await sandbox.files.read(`${dir}/sub/r.txt`), 'for root');
    assert.equal((await sandbox.files.getInfo(`${dir}/sub/r.txt`)).owner, 'root');
    await sandbox.files.makeDir(`${dir}/made`, { user: 'root' });
    assert.equal(await output(sandbox, `stat -c %U ${dir}/made`), 'root');
    await output(sandbox, `chmod 000 ${dir}/sub/r.txt`, { user: 'root' });
    assert.equal(await sandbox.files.read(`${dir}/sub/r.txt`), 'for root', 'the permissions of a user are not asked');
  });

  test('an unknown user is a 401', async () => {
    for (const res of [await get({ path: '/etc/passwd', username: 'nosuch' }), await put({ path: 'x', username: 'nosuch' }, 'x')])
      assertError(res, 401, /^error looking up user 'nosuch': /);
    await fails(sandbox.files.read('/etc/passwd', { user: 'nosuch' }), 'AuthenticationError');
  });

  test('bad uploads', async () => {
    const dir = await folder();
    assertError(await put({}, 'x'), 400, 'path query parameter is required for raw body upload');
    assertError(await put({ path: `${dir}/a` }, 'x', { 'content-type': 'text/plain' }), 400, /^unsupported content type: /);
    assertError(await engine.envd(sandbox, 'POST', at({ path: `${dir}/a` }), { body: 'x' }), 400);
    assertError(await put({ path: `${dir}/a` }, 'x', { 'content-encoding': 'br' }), 400);
    const twice = await postParts({ path: `${dir}/a` }, [
      ['name="file"; filename="x"', '1'],
      ['name="file"; filename="y"', '2'],
    ]);
    assertError(twice, 400, /^you cannot upload multiple files to the same path/);
    for (const contentType of ['multipart/form-data', 'multipart/form-data; boundary=', 'multipart/form-data; boundary=zzz'])
      assertError(await put({ path: `${dir}/b` }, 'no boundary here', { 'content-type': contentType }), 400);
    const { body, headers } = multipart([['name="file"; filename="c"', 'data']]);
    const cut = await engine.envd(sandbox, 'POST', at({ path: `${dir}/c` }), { body: body.subarray(0, body.length - 12), headers });
    assert.ok(cut.status >= 400, 'a body without its last boundary');
    const corrupt = zlib.gzipSync('x'.repeat(1000));
    corrupt[corrupt.length - 6] ^= 0xff;
    for (const data of [Buffer.from('not gzip'), corrupt, zlib.gzipSync('hello').subarray(0, 12)]) {
      const res = await put({ path: `${dir}/z` }, data, { 'content-encoding': 'gzip' });
      assert.ok(res.status >= 400, 'a broken gzip body');
      assertError(res, res.status);
    }
    const two = Buffer.concat([zlib.gzipSync('one '), zlib.gzipSync('and another')]);
    assert.equal((await put({ path: `${dir}/two` }, two, { 'content-encoding': 'gzip' })).status, 200);
    assert.equal(await sandbox.files.read(`${dir}/two`), 'one and another');
    assertError(await put({ path: `${dir}/z` }, Buffer.concat([two, Buffer.from('garbage')]), { 'content-encoding': 'gzip' }), 400, /not valid gzip/);
  });

  test('metadata of a file is kept, and replaced as a whole', async () => {
    const dir = await folder();
    const first = await put({ path: `${dir}/m` }, 'x', { 'x-metadata-Colour': 'blue', 'x-metadata-size': 'big one' });
    assert.deepEqual(first.json[0].metadata, { colour: 'blue', size: 'big one' });
    assert.deepEqual((await sandbox.files.getInfo(`${dir}/m`)).metadata, { colour: 'blue', size: 'big one' });
    const second = await sandbox.files.write(`${dir}/m`, 'y', { metadata: { only: 'this' } });
    assert.deepEqual(second.metadata, { only: 'this' });
    assert.deepEqual((await sandbox.files.list(dir))[0].metadata, { only: 'this' });
  });

  test('missing files, directories and parents that are files', async () => {
    const dir = await folder();
    await sandbox.files.write(`${dir}/file`, 'x');
    assertError(await get({ path: `${dir}/none` }), 404, `path '${dir}/none' does not exist`);
    assertError(await get({ path: dir }), 400, `path '${dir}' is a directory`);
    assertError(await put({ path: dir }, 'x'), 400, `path is a directory: ${dir}`);
    assertError(await put({ path: `${dir}/file/below` }, 'x'), 500, `error ensuring directories: path is a file: ${dir}/file`);
    await fails(sandbox.files.read(`${dir}/none`), 'FileNotFoundError', /does not exist/);
    await fails(sandbox.files.read(dir), 'InvalidArgumentError', /is a directory/);
    await fails(sandbox.files.write(dir, 'x'), 'InvalidArgumentError', /is a directory/);
    await fails(sandbox.files.write(`${dir}/file/below`, 'x'), 'SandboxError', /^500: .*path is a file/);
  });

  test('relative paths, ~ and the empty path', async () => {
    const name = `rel-${++folders}`;
    await sandbox.files.write(`${name}/a.txt`, 'rel');
    for (const p of [`${name}/a.txt`, `./${name}/a.txt`, `~/${name}/a.txt`, `${name}/../${name}//a.txt`, `/home/user/${name}/a.txt`])
      assert.equal(await sandbox.files.read(p), 'rel', p);
    assert.equal((await sandbox.files.getInfo('~')).path, '/home/user');
    assert.equal((await call('Stat', { path: '' })).json.entry.path, '/home/user');
    assertError(await get({ path: '~other/x' }), 400, /cannot expand user-specific home dir/);
    assertConnectError(await call('Stat', { path: '~other' }), 400, 'invalid_argument', /cannot expand user-specific home dir/);
    if (asRoot()) {
      await sandbox.files.write('mine.txt', 'r', { user: 'root' });
      assert.equal((await sandbox.files.getInfo('mine.txt', { user: 'root' })).path, '/root/mine.txt');
      assert.equal(await sandbox.files.exists('/home/user/mine.txt'), false);
    }
  });

  // ------------------------------------------------------------------------------------------------------------ HTTP of reading

  test('the headers of a read', async () => {
    const dir = await folder();
    for (const [name, type] of [
      ['a.txt', 'text/plain'],
      ['a.json', 'application/json'],
      ['a.png', 'image/png'],
      ['a.html', 'text/html'],
    ]) {
      await put({ path: `${dir}/${name}` }, '12345');
      const res = await get({ path: `${dir}/${name}` });
      assert.equal(res.status, 200);
      assert.ok(res.headers['content-type'].startsWith(type), `${name}: ${res.headers['content-type']}`);
      assert.match(res.headers['content-disposition'], new RegExp(`^inline; filename="?${name}"?$`));
      assert.equal(res.headers['content-length'], '5');
      assert.match(res.headers.vary, /accept-encoding/i);
      assert.ok(Math.abs(Date.parse(res.headers['last-modified']) - Date.now()) < 60_000);
    }
  });

  test('gzip when it is asked for, identity when not', async () => {
    const dir = await folder();
    const text = 'compress me '.repeat(10_000);
    await put({ path: `${dir}/a.txt` }, text);
    const zipped = await get({ path: `${dir}/a.txt` }, { 'accept-encoding': 'gzip, deflate' });
    assert.equal(zipped.headers['content-encoding'], 'gzip');
    assert.equal(zipped.headers['content-length'], undefined);
    assert.ok(zipped.body.length < text.length / 10);
    assert.equal(zlib.gunzipSync(zipped.body).toString(), text);
    for (const accept of ['identity', 'gzip;q=0', 'deflate', '*;q=0.1, gzip;q=0']) {
      const plain = await get({ path: `${dir}/a.txt` }, { 'accept-encoding': accept });
      assert.deepEqual([plain.status, plain.headers['content-encoding'], plain.text.length], [200, undefined, text.length], accept);
    }
    assertError(await get({ path: `${dir}/a.txt` }, { 'accept-encoding': 'identity;q=0' }), 406);
    await put({ path: `${dir}/empty` }, '');
    assert.equal(zlib.gunzipSync((await get({ path: `${dir}/empty` }, { 'accept-encoding': 'gzip' })).body).length, 0);
  });

  test('ranges', async () => {
    const dir = await folder();
    const query = { path: `${dir}/r.bin` };
    await put(query, '0123456789');
    for (const [range, part, content] of [
      ['bytes=0-3', '0-3', '0123'],
      ['bytes=4-', '4-9', '456789'],
      ['bytes=-3', '7-9', '789'],
      ['bytes=8-100', '8-9', '89'],
      ['bytes=-100', '0-9', '0123456789'],
    ]) {
      const res = await get(query, { range });
      assert.deepEqual(
        [res.status, res.headers['content-range'], res.text, res.headers['content-length']],
        [206, `bytes ${part}/10`, content, String(content.length)],
        range,
      );
    }
    assert.equal((await get(query)).headers['accept-ranges'], 'bytes');
    for (const range of ['bytes=10-', 'bytes=20-30']) {
      const res = await get(query, { range });
      assert.deepEqual([res.status, res.headers['content-range']], [416, 'bytes */10'], range);
    }
    for (const range of ['bytes=x', 'bytes=5-2', 'lines=1-2', 'bytes=99999999999999999999-']) {
      const res = await get(query, { range });
      assert.ok(res.status === 416 || (res.status === 200 && res.text === '0123456789'), `${range}: ${res.status}`);
    }
  });

  test('conditional reads', async () => {
    const dir = await folder();
    const query = { path: `${dir}/c.txt` };
    await put(query, 'content');
    const modified = (await get(query)).headers['last-modified'];
    const earlier = new Date(Date.parse(modified) - 3600_000).toUTCString();
    assert.deepEqual(await get(query, { 'if-modified-since': modified }).then((r) => [r.status, r.body.length]), [304, 0]);
    assert.equal((await get(query, { 'if-modified-since': earlier })).status, 200);
    assert.equal((await get(query, { 'if-modified-since': 'nonsense' })).status, 200);
    assert.equal((await get(query, { 'if-unmodified-since': earlier })).status, 412);
    assert.equal((await get(query, { 'if-unmodified-since': modified })).status, 200);
    assert.equal((await get(query, { 'if-range': modified, range: 'bytes=0-1' })).status, 206);
    assert.equal((await get(query, { 'if-range': earlier, range: 'bytes=0-1' })).status, 200);
  });

  // ------------------------------------------------------------------------------------------------------------ signatures

  test('the signature of the reference', () => {
    assert.equal(sign('hello.txt', 'read', 'user', '0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0'), 'v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E');
  });

  test('signed URLs of the SDK work with no header at all, each for its own sandbox', async () => {
    const other = await engine.create('base');
    const name = `signed-${++folders}.txt`;
    for (const [box, text] of [
      [sandbox, 'first'],
      [other, 'second'],
    ]) {
      const up = await box.uploadUrl(name);
      const form = new FormData();
      form.append('file', new Blob([text]), name);
      assert.equal((await fetch(up, { method: 'POST', body: form })).status, 200);
    }
    for (const [box, text] of [
      [sandbox, 'first'],
      [other, 'second'],
    ]) {
      assert.equal(await (await fetch(await box.downloadUrl(name))).text(), text);
      assert.equal(await (await fetch(await box.downloadUrl(name, { user: 'user', useSignatureExpiration: 60 }))).text(), text);
      assert.equal(await box.files.read(name), text);
    }
    const raw = await request(await sandbox.uploadUrl(`/tmp/${name}`, { useSignatureExpiration: 60 }), {
      method: 'POST',
      body: 'by octets',
      headers: { 'content-type': 'application/octet-stream' },
    });
    assert.equal(raw.status, 200, raw.text);
    assert.equal(await sandbox.files.read(`/tmp/${name}`), 'by octets');
    const free = new FormData();
    free.append('file', new Blob(['named by its part']), `/tmp/free-${name}`);
    assert.equal((await fetch(await sandbox.uploadUrl(), { method: 'POST', body: free })).status, 200);
    assert.equal(await sandbox.files.read(`/tmp/free-${name}`), 'named by its part');
    if (asRoot())
      assert.equal((await fetch(await sandbox.uploadUrl('/tmp/by-root', { user: 'root' }), { method: 'POST', body: free })).status, 200);
    await other.kill();
    assert.ok((await fetch(await other.downloadUrl(name))).status >= 400, 'a dead sandbox has no files');
  });

  test('a signature holds for one path, one operation, one user and its time', async () => {
    const dir = await folder();
    const file = `${dir}/a b+ü.txt`;
    await sandbox.files.write(file, 'secret');
    const { sandboxId, envdAccessToken: token } = sandbox;
    const routed = routing({ sandboxId }, ENVD);
    const now = Math.floor(Date.now() / 1000);
    const ask = async (query, method = 'GET') =>
      Promise.all(
        [routed, {}].map((headers) =>
          request(engine.url + at(query), {
            method,
            headers: { ...headers, ...(method === 'POST' && { 'content-type': 'application/octet-stream' }) },
            body: method === 'POST' ? 'x' : undefined,
          }),
        ),
      );

    for (const res of await ask({ path: file, signature: sign(file, 'read', '', token) })) assert.equal(res.text, 'secret');
    for (const res of await ask({
      path: file,
      username: 'user',
      signature: sign(file, 'read', 'user', token, now + 60),
      signature_expiration: now + 60,
    }))
      assert.equal(res.text, 'secret');

    const bad = {
      'another path': { path: `${dir}/other`, signature: sign(file, 'read', '', token) },
      'another operation': { path: file, signature: sign(file, 'write', '', token) },
      'another user': { path: file, username: 'user', signature: sign(file, 'read', '', token) },
      'another token': { path: file, signature: sign(file, 'read', '', 'x') },
      'a moved expiry': { path: file, signature: sign(file, 'read', '', token, now - 60), signature_expiration: now + 60 },
      'no version': { path: file, signature: sign(file, 'read', '', token).slice(3) },
      nonsense: { path: file, signature: 'v1_' },
      'an empty one': { path: file, signature: '' },
      'a padded one': { path: file, signature: `${sign(file, 'read', '', token)}=` },
    };
    for (const [what, query] of Object.entries(bad))
      for (const res of await ask(query)) {
        assert.equal(res.status, 401, `${what}: ${res.status} ${res.text}`);
        assertError(res, 401, /signature/);
      }
    const [withRoute] = await ask({ path: file, signature: 'v1_wrong' });
    assertError(withRoute, 401, 'invalid signature');
    for (const res of await ask({ path: file, signature: sign(file, 'read', '', token, now - 5), signature_expiration: now - 5 }))
      assertError(res, 401, 'signature is already expired');
    for (const res of await ask({ path: file, signature: sign(file, 'read', '', token, 'soon'), signature_expiration: 'soon' }))
      assert.ok(res.status === 400 || res.status === 401);
    for (const res of await ask({ path: file, signature: sign(file, 'read', '', token) }, 'POST')) assertError(res, 401);
    assert.equal(await sandbox.files.read(file), 'secret');
  });

  test('no credentials, and wrong ones', async () => {
    const { sandboxId, envdAccessToken } = sandbox;
    assertError(
      await request(engine.url + at({ path: '/etc/passwd' }), { headers: routing({ sandboxId }, ENVD) }),
      401,
      'missing signature query parameter',
    );
    const wrong = { ...routing({ sandboxId }, ENVD), 'x-access-token': `${envdAccessToken}x` };
    assertError(
      await request(engine.url + at({ path: '/etc/passwd' }), { headers: wrong }),
      401,
      'access token present in header but does not match',
    );
    const nowhere = await request(engine.url + at({ path: '/etc/passwd' }));
    assert.ok(nowhere.status >= 400 && nowhere.status < 500, String(nowhere.status));
  });

  // ------------------------------------------------------------------------------------------------------------ a full disk

  test('a full disk is a 507, and the sandbox recovers', async () => {
    const small = await engine.create('cramped');
    const data = Buffer.alloc(16 << 20, 'x');
    const known = await engine.envd(small, 'POST', at({ path: 'big' }), {
      body: data,
      headers: { 'content-type': 'application/octet-stream' },
    });
    assertError(known, 507, `attempted to write ${data.length} bytes: not enough disk space available`);
    const chunked = await engine.envd(small, 'POST', at({ path: 'big' }), {
      body: [data],
      headers: { 'content-type': 'application/octet-stream' },
    });
    assertError(chunked, 507, 'not enough disk space available');
    await fails(small.files.write('big', new Blob([data])), 'NotEnoughSpaceError', /not enough disk space available/);
    await fails(small.files.write('big', new Blob([data]).stream()), 'NotEnoughSpaceError');
    await small.files.remove('big');
    await small.files.write('small', 'fits');
    assert.equal(await small.files.read('small'), 'fits');
    assert.match((await shell(small, 'head -c 16M /dev/zero > fill')).stderr, /No space left on device/);
    assert.equal(await sandbox.files.exists('/home/user'), true, 'the neighbour did not notice');
    await small.kill();
  });

  test('running out of inodes is an error, too', async () => {
    const small = await engine.create('cramped');
    const { exitCode } = await shell(small, 'mkdir many; cd many; for i in $(seq 1 300000); do : > f$i || exit 9; done 2>/dev/null', {
      timeoutMs: 60_000,
    });
    assert.equal(exitCode, 9, 'the number of files has a limit');
    const res = await engine.envd(small, 'POST', at({ path: 'one-more' }), {
      body: 'x',
      headers: { 'content-type': 'application/octet-stream' },
    });
    assertError(res, 507, /not enough (inodes|disk space) available/);
    await small.kill();
  });

  // ------------------------------------------------------------------------------------------------------------ the filesystem service

  test('stat: every field of a file and of a directory', async () => {
    const dir = await folder();
    await sandbox.files.write(`${dir}/f.txt`, 'hello');
    await output(sandbox, `chmod 640 ${dir}/f.txt; chmod 1777 ${dir}`);
    const file = await sandbox.files.getInfo(`${dir}/f.txt`);
    assert.ok(Math.abs(file.modifiedTime - Date.now()) < 60_000);
    assert.deepEqual(
      [file.name, file.type, file.path, file.size, file.mode, file.permissions, file.owner, file.group, file.symlinkTarget],
      ['f.txt', 'file', `${dir}/f.txt`, 5, 0o640, '-rw-r-----', 'user', 'user', undefined],
    );
    const directory = await sandbox.files.getInfo(dir);
    assert.deepEqual([directory.type, directory.permissions, directory.owner], ['dir', 'dtrwxrwxrwx', 'user']);
    const wire = (await call('Stat', { path: `${dir}/f.txt` })).json.entry;
    assert.equal(wire.type, 'FILE_TYPE_FILE');
    assert.equal(wire.size, '5', 'int64 is text');
    assert.match(wire.modifiedTime, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z$/);
    await sandbox.files.write(`${dir}/empty`, '');
    assert.ok(!('size' in (await call('Stat', { path: `${dir}/empty` })).json.entry), 'zero is left out');
    assert.equal((await sandbox.files.getInfo('/')).type, 'dir');
    assertConnectError(
      await call('Stat', { path: `${dir}/none` }),
      404,
      'not_found',
      new RegExp(`^file not found: lstat ${dir}/none: no such file or directory$`),
    );
    await fails(sandbox.files.getInfo(`${dir}/none`), 'FileNotFoundError');
  });

  test('exists', async () => {
    const dir = await folder();
    await sandbox.files.write(`${dir}/f`, '');
    await output(sandbox, `ln -s nowhere ${dir}/broken`);
    for (const [p, there] of [
      [dir, true],
      [`${dir}/f`, true],
      [`${dir}/broken`, true],
      [`${dir}/none`, false],
      [`${dir}/none/deeper`, false],
    ])
      assert.equal(await sandbox.files.exists(p), there, p);
  });

  test('list: depth, order, prefix', async () => {
    const dir = await folder();
    await output(sandbox, `cd ${dir} && mkdir -p b/c/d && touch z a b/x b/c/y b/c/d/deep && ln -s b link`);
    const paths = async (p, depth) => (await sandbox.files.list(p, { depth })).map((e) => e.path.slice(dir.length + 1));
    assert.deepEqual(await paths(dir), ['a', 'b', 'link', 'z']);
    assert.deepEqual(await paths(dir, 2), ['a', 'b', 'b/c', 'b/x', 'link', 'z']);
    assert.deepEqual(await paths(dir, 3), ['a', 'b', 'b/c', 'b/c/d', 'b/c/y', 'b/x', 'link', 'z'], 'links are not followed');
    assert.deepEqual(await paths(dir, 100), ['a', 'b', 'b/c', 'b/c/d', 'b/c/d/deep', 'b/c/y', 'b/x', 'link', 'z']);
    assert.deepEqual(await paths(`${dir}/link`), ['link/c', 'link/x'], 'paths keep the prefix that was asked for');
    const types = Object.fromEntries((await sandbox.files.list(dir)).map((e) => [e.name, e.type]));
    assert.deepEqual(types, { a: 'file', b: 'dir', link: 'dir', z: 'file' });
    assert.deepEqual(
      (await call('ListDir', { path: dir, depth: 0 })).json.entries.map((e) => e.name),
      ['a', 'b', 'link', 'z'],
      '0 is 1',
    );
    assert.equal((await call('ListDir', { path: `${dir}/b/c/d/../../../../${path.basename(dir)}/b/c`, depth: 1 })).json.entries.length, 2);
    await sandbox.files.makeDir(`${dir}/empty`);
    assert.deepEqual(await sandbox.files.list(`${dir}/empty`), []);
  });

  test('list: errors', async () => {
    const dir = await folder();
    await output(sandbox, `cd ${dir} && touch f && ln -s loop2 loop1 && ln -s loop1 loop2`);
    assertConnectError(await call('ListDir', { path: `${dir}/none`, depth: 1 }), 404, 'not_found', /not found/);
    assertConnectError(
      await call('ListDir', { path: `${dir}/f`, depth: 1 }),
      400,
      'invalid_argument',
      new RegExp(`^path is not a directory: ${dir}/f$`),
    );
    assertConnectError(await call('ListDir', { path: `${dir}/loop1`, depth: 1 }), 400, 'failed_precondition');
    await fails(sandbox.files.list(`${dir}/none`), 'FileNotFoundError');
    await fails(sandbox.files.list(`${dir}/f`), 'InvalidArgumentError');
    assert.equal((await call('ListDir', { path: dir, depth: -1 })).status, 400);
    assert.equal((await call('ListDir', { path: 7 })).status, 400);
  });

  test('a walk that is killed inside is answered', async () => {
    await output(sandbox, 'mkdir -p walk && cd walk && for i in $(seq 60); do mkdir $i; (cd $i; touch $(seq 300)); done');
    const user = engine.has('root and user') ? 'root' : 'user';
    const killer = await sandbox.commands.run('while true; do pkill -KILL -x "$(cat /proc/1/comm)" 2>/dev/null; done', { background: true, user, timeoutMs: 20_000 });
    for (let i = 0; i < 10; i++) {
      const res = await call('ListDir', { path: '/home/user/walk', depth: 2 });
      assert.ok([200, 500].includes(res.status), res.text.slice(0, 200));
    }
    await killer.kill();
  });

  test('a list of 3000 entries', async () => {
    const dir = await folder();
    await output(sandbox, `cd ${dir} && touch $(seq -f 'name-%05g' 1 3000)`);
    const all = await sandbox.files.list(dir);
    assert.equal(all.length, 3000);
    assert.deepEqual([all[0].name, all[2999].name], ['name-00001', 'name-03000']);
  });

  test('makeDir: new, nested, there already, in the way', async () => {
    const dir = await folder();
    assert.equal(await sandbox.files.makeDir(`${dir}/a/b/c`), true);
    assert.equal(await sandbox.files.makeDir(`${dir}/a/b/c`), false);
    assert.equal(await output(sandbox, `stat -c '%U %a' ${dir}/a ${dir}/a/b/c`), 'user 755\nuser 755');
    await sandbox.files.write(`${dir}/f`, '');
    await fails(sandbox.files.makeDir(`${dir}/f`), 'InvalidArgumentError', /path already exists but it is not a directory/);
    assertConnectError(
      await call('MakeDir', { path: `${dir}/a` }),
      409,
      'already_exists',
      new RegExp(`^directory already exists: ${dir}/a$`),
    );
    assertConnectError(
      await call('MakeDir', { path: `${dir}/f` }),
      400,
      'invalid_argument',
      new RegExp(`^path already exists but it is not a directory: ${dir}/f$`),
    );
    assert.ok((await call('MakeDir', { path: `${dir}/f/below` })).status >= 400);
    assert.equal((await call('MakeDir', { path: `${dir}/w` })).json.entry.type, 'FILE_TYPE_DIRECTORY');
  });

  test('move: files and directories, into new parents, over another', async () => {
    const dir = await folder();
    await sandbox.files.write(`${dir}/a`, 'A');
    const entry = await sandbox.files.rename(`${dir}/a`, `${dir}/new/place/b`);
    assert.deepEqual([entry.name, entry.path, entry.type], ['b', `${dir}/new/place/b`, 'file']);
    assert.equal(await sandbox.files.read(`${dir}/new/place/b`), 'A');
    assert.equal(await sandbox.files.exists(`${dir}/a`), false);
    await sandbox.files.write(`${dir}/over`, 'old');
    await sandbox.files.rename(`${dir}/new/place/b`, `${dir}/over`);
    assert.equal(await sandbox.files.read(`${dir}/over`), 'A');
    await sandbox.files.rename(`${dir}/new`, `${dir}/newer`);
    assert.equal(await sandbox.files.exists(`${dir}/newer/place`), true);
    await fails(sandbox.files.rename(`${dir}/none`, `${dir}/x`), 'FileNotFoundError', /source file not found/);
    assertConnectError(
      await call('Move', { source: `${dir}/none`, destination: `${dir}/x` }),
      404,
      'not_found',
      /^source file not found: /,
    );
    assertConnectError(await call('Move', { source: `${dir}/over`, destination: `${dir}/newer` }), 500, 'internal', /^error renaming: /);
    await sandbox.files.write('/tmp/cross', 'device');
    const cross = await call('Move', { source: '/tmp/cross', destination: `${dir}/crossed` });
    if (cross.status === 200) assert.equal(await sandbox.files.read(`${dir}/crossed`), 'device');
    else assertConnectError(cross, 500, 'internal', /^error renaming: .*cross-device/);
  });

  test('remove: a file, a tree, a link, nothing', async () => {
    const dir = await folder();
    await output(sandbox, `cd ${dir} && mkdir -p tree/a/b && touch tree/a/b/f f && ln -s tree link && chmod 000 tree/a/b`);
    await sandbox.files.remove(`${dir}/link`);
    assert.deepEqual(names(await sandbox.files.list(dir)), ['f', 'tree']);
    await sandbox.files.remove(`${dir}/f`);
    await sandbox.files.remove(`${dir}/tree`);
    assert.deepEqual(await sandbox.files.list(dir), []);
    assert.deepEqual((await call('Remove', { path: `${dir}/none` })).json, {});
  });

  test('symbolic links: type and mode of the target, its resolved path', async () => {
    const dir = await folder();
    await output(
      sandbox,
      `cd ${dir} && mkdir d && echo -n 12345 > d/f && chmod 600 d/f && ln -s d/f one && ln -s one two && ln -s nowhere broken && ln -s d dirlink`,
    );
    const two = await sandbox.files.getInfo(`${dir}/two`);
    assert.deepEqual([two.name, two.type, two.mode, two.symlinkTarget], ['two', 'file', 0o600, `${dir}/d/f`]);
    assert.deepEqual((await sandbox.files.getInfo(`${dir}/dirlink`)).type, 'dir');
    const broken = (await call('Stat', { path: `${dir}/broken` })).json.entry;
    assert.equal(broken.type, undefined);
    assert.deepEqual(names(await sandbox.files.list(dir)), ['d', 'dirlink', 'one', 'two'], 'the SDK leaves broken links out');
    assert.equal(await sandbox.files.read(`${dir}/two`), '12345');
    await sandbox.files.write(`${dir}/two`, 'through');
    assert.equal(await sandbox.files.read(`${dir}/d/f`), 'through');
    await sandbox.files.write(`${dir}/dirlink/g`, 'g');
    assert.equal(await sandbox.files.read(`${dir}/d/g`), 'g');
  });

  test('odd names', async () => {
    const dir = await folder();
    const odd = [
      'with space',
      "it's",
      '"double"',
      'new\nline',
      'tab\there',
      'ünïcödé-日本語-😀',
      '-rf',
      'back\\slash',
      '100%',
      '%41',
      'a+b',
      'a&b=c',
      '#hash',
      '?',
      '*',
      '$HOME',
      ' lead',
      '...',
    ];
    for (const name of odd) {
      await sandbox.files.write(`${dir}/${name}`, `<${name}>`, { useOctetStream: true });
      assert.equal(await sandbox.files.read(`${dir}/${name}`), `<${name}>`, JSON.stringify(name));
      assert.equal((await sandbox.files.getInfo(`${dir}/${name}`)).name, name);
      const form = await sandbox.files.write(`${dir}/form/${name}`, name);
      assert.equal(form.path, `${dir}/form/${name}`);
    }
    const inside = JSON.parse(await output(sandbox, `python3 -c 'import os, json; print(json.dumps(os.listdir("${dir}/form")))'`));
    assert.deepEqual(inside.sort(), [...odd].sort());
    assert.deepEqual(names(await sandbox.files.list(`${dir}/form`)).sort(), [...odd].sort());
    const long = 'x'.repeat(255);
    await sandbox.files.write(`${dir}/${long}`, 'long');
    assert.equal(await sandbox.files.exists(`${dir}/${long}`), true);
    assert.ok((await put({ path: `${dir}/${long}x` }, 'too long')).status >= 400);
    assert.ok((await put({ path: `${dir}/${'d/'.repeat(3000)}x` }, 'too deep')).status >= 400);
  });

  test('a name that is not UTF-8 does not break a list', async () => {
    const dir = await folder();
    await output(sandbox, `cd ${dir} && touch good && touch "$(printf 'bad\\xff\\xfe')"`);
    assert.ok(names(await sandbox.files.list(dir)).includes('good'));
    await sandbox.files.remove(dir);
    assert.equal(await sandbox.files.exists(dir), false);
  });

  // ------------------------------------------------------------------------------------------------------------ paths that try to get out

  test('NUL in a path is a 400', async () => {
    assertError(await get({ path: 'a\0b' }), 400);
    assertError(await put({ path: '/home/user/a\0b' }, 'x'), 400);
    for (const [method, message] of [
      ['Stat', { path: 'a\0' }],
      ['ListDir', { path: '\0' }],
      ['MakeDir', { path: 'a\0b' }],
      ['Remove', { path: 'x\0' }],
      ['Move', { source: 'a\0', destination: 'b' }],
      ['Move', { source: '/tmp', destination: '\0b' }],
    ])
      assertConnectError(await call(method, message), 400, 'invalid_argument');
    assert.equal(await sandbox.files.exists('a'), false);
  });

  test('no path leads to the files of the host', async (t) => {
    const host = tempFolder();
    t.after(() => fs.rmSync(host, { recursive: true, force: true }));
    const secret = `secret-${crypto.randomUUID()}`;
    const decoy = path.join(host, 'decoy.txt');
    fs.writeFileSync(decoy, secret, { mode: 0o666 });
    fs.chmodSync(decoy, 0o666);
    fs.chmodSync(host, 0o777);
    const dir = await folder();
    const links = {
      absolute: decoy,
      climbing: `../../../../../../..${decoy}`,
      folder: host,
      root: '/proc/1/root',
      self: '/proc/self/root',
      cwd: '/proc/self/cwd',
      engine: `/proc/${engine.pid}/root`,
      fds: '/proc/self/fd',
      thread: '/proc/thread-self/root',
    };
    for (const [name, target] of Object.entries(links)) await output(sandbox, `ln -s '${target}' ${dir}/${name}`);
    const paths = [
      decoy,
      `../../../../../..${decoy}`,
      `/home/user/../../../../../..${decoy}`,
      `~/../..${decoy}`,
      `/proc/self/root${decoy}`,
      `/proc/1/root${decoy}`,
      `/proc/1/cwd${decoy}`,
      `/proc/${engine.pid}/root${decoy}`,
      `/proc/self/cwd/../../../../../..${decoy}`,
      `${dir}/absolute`,
      `${dir}/climbing`,
      `${dir}/folder/decoy.txt`,
      ...['root', 'self', 'cwd', 'engine', 'thread'].map((l) => `${dir}/${l}${decoy}`),
      ...Array.from({ length: 20 }, (_, i) => `${dir}/fds/${i}${decoy}`),
    ];
    for (const p of paths) {
      const read = await get({ path: p });
      assert.ok(!read.text.includes(secret), `read by ${p}`);
      assert.notEqual(read.status, 200, `something was read by ${p}`);
    }
    for (const p of [host, ...Object.keys(links).map((l) => `${dir}/${l}`)]) {
      const listed = await call('ListDir', { path: p, depth: 1 });
      assert.ok(!listed.text.includes('decoy.txt'), `listed by ${p}`);
    }
    for (const p of paths) {
      await put({ path: p }, 'overwritten');
      await call('Move', { source: `${dir}/absolute`, destination: `${dir}/moved` });
      await call('Remove', { path: p });
      await put({ path: path.join(path.dirname(p), 'planted.txt') }, 'planted');
      assert.equal(fs.readFileSync(decoy, 'utf8'), secret, `changed by ${p}`);
      assert.deepEqual(fs.readdirSync(host), ['decoy.txt'], `planted by ${p}`);
    }
    engine.assertAlive();
  });

  test('a link that is swapped while it is read or written never leads out', async (t) => {
    const host = tempFolder();
    t.after(() => fs.rmSync(host, { recursive: true, force: true }));
    const secret = `secret-${crypto.randomUUID()}`;
    const decoy = path.join(host, 'decoy.txt');
    fs.writeFileSync(decoy, secret);
    fs.chmodSync(decoy, 0o666);
    fs.chmodSync(host, 0o777);
    const dir = await folder();
    const swapper = await sandbox.commands.run(
      `cd ${dir} && mkdir real && echo -n inside > real/decoy.txt && while :; do ln -sfn real swap; ln -sfn ${host} swap; done`,
      { background: true, timeoutMs: 0 },
    );
    for (let i = 0; i < 100; i++) {
      assert.ok(!(await get({ path: `${dir}/swap/decoy.txt` })).text.includes(secret));
      if (i % 4 === 0) await put({ path: `${dir}/swap/decoy.txt` }, 'inside');
    }
    await swapper.kill();
    assert.equal(fs.readFileSync(decoy, 'utf8'), secret);
  });

  test('/proc shows nothing of the engine', async () => {
    for (const p of [
      '/proc/self/environ',
      '/proc/1/environ',
      '/proc/self/maps',
      '/proc/1/cmdline',
      '/proc/self/mountinfo',
      `/proc/${engine.pid}/environ`,
      '/proc/self/cmdline',
    ]) {
      const res = await within(10_000, get({ path: p }), p);
      assert.ok(!res.text.includes(engine.key) && !res.text.includes(engine.state), p);
    }
  });

  test('pipes, devices and sockets do not hang anybody', async () => {
    const dir = await folder();
    await output(sandbox, `cd ${dir} && mkfifo pipe && python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'`);
    for (const p of [`${dir}/pipe`, `${dir}/sock`]) {
      assert.ok((await engine.envd(sandbox, 'GET', at({ path: p }), { deadline: 10_000 })).status >= 400, p);
      assert.ok(
        (
          await engine.envd(sandbox, 'POST', at({ path: p }), {
            body: 'x',
            headers: { 'content-type': 'application/octet-stream' },
            deadline: 10_000,
          })
        ).status >= 400,
        p,
      );
    }
    assert.ok((await engine.envd(sandbox, 'GET', at({ path: '/dev/tty' }), { deadline: 10_000 })).status >= 400);
    assert.equal((await sandbox.files.list(dir)).length <= 2, true);
    assert.equal(await output(sandbox, 'echo alive'), 'alive');
  });

  test('the file calls may write outside the home, as at E2B, where nothing of the system is', async () => {
    for (const p of ['/top.txt', '/made/by/files.txt', '/var/data.txt', '/opt/x', '/srv/y', '/root/z']) {
      assert.equal((await put({ path: p }, 'x')).status, 200, p);
      assert.equal(await sandbox.files.read(p), 'x');
    }
    assert.equal((await sandbox.files.rename('/top.txt', '/home/user/top.txt')).path, '/home/user/top.txt', 'one disk');
    assert.equal((await sandbox.files.rename('/tmp/../var/data.txt', '/home/user/data.txt')).name, 'data.txt');
  });

  test('the system is read-only for the file calls, too', async () => {
    for (const p of ['/usr/bin/planted', '/etc/planted', '/bin/sh', '/dev/planted/x', '/proc/sys/kernel/hostname']) assert.ok((await put({ path: p }, 'x')).status >= 400, p);
    assert.equal((await call('Remove', { path: '/usr/bin/env' })).status, 500);
    assert.ok((await call('Move', { source: '/etc/passwd', destination: '/home/user/passwd' })).status >= 400);
    assert.equal(await output(sandbox, 'test -x /usr/bin/env && echo there'), 'there');
  });

  // ------------------------------------------------------------------------------------------------------------ a new home

  test("a new home holds /etc/skel, and is the user's", async () => {
    const box = await engine.create('base');
    assert.equal(await output(box, "stat -c '%U %G' /home/user"), 'user user');
    const skel = await output(box, 'cd /etc/skel && find . -type f | sort');
    assert.equal(await output(box, 'cd ~ && find . -type f | sort'), skel);
    assert.equal(
      await output(box, 'for f in $(cd /etc/skel && find . -type f); do cmp /etc/skel/$f ~/$f || exit 1; stat -c %U ~/$f; done | sort -u'),
      skel ? 'user' : '',
    );
    await box.kill();
  });
});
