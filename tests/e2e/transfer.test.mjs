// Uploads, downloads and lists over the real nginx, gateway and engine: large files, hostile names, broken transfers, full disks.
import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { SUITE, sleep, startEngine, until, within } from './engine.mjs';
import { assertProblem, form, startGateway } from './gateway.mjs';

const MIB = 1 << 20;
const GIB = 1 << 30;
const UPLOAD_MAX = 24 * MIB;

let engine;
let g; // with large files
let small; // with a low limit and, for custom sandboxes, a small disk

before(async () => {
  engine = await startEngine({
    args: ['--no-internet'],
    templates: {
      'roomy.template': 'disk = 2560\nmemory = 1024\ninterpreter = no\n',
      'cramped.template': 'disk = 8\nmemory = 256\ninterpreter = no\n',
    },
  });
  g = await startGateway({ engine, settings: { SANDGATE_CUSTOM_TEMPLATE_ID: 'roomy' } });
  small = await startGateway({ engine, settings: { SANDGATE_CUSTOM_TEMPLATE_ID: 'cramped', SANDGATE_UPLOAD_MAX_BYTES: UPLOAD_MAX } });
});
after(async () => {
  await g?.stop();
  await small?.stop();
  await engine?.stop();
});

const sha256 = (bytes) => crypto.createHash('sha256').update(bytes).digest('hex');

/** The session's sandbox, with some code run in it. */
async function prepared(gateway, id, code) {
  const s = gateway.session(id);
  const res = await s.execute(code);
  assert.equal(res.json.success, true, res.text);
  return s;
}

/** Paths below a folder, and none when it does not exist. */
async function listed(session, dir) {
  const res = await session.files(dir);
  return res.status === 404 ? [] : res.json.map((f) => f.path);
}

const HEAD = (name) =>
  `--bound\r\nContent-Disposition: form-data; name="file"; filename="${name}"\r\nContent-Type: application/octet-stream\r\n\r\n`;
const TAIL = '\r\n--bound--\r\n';
const FORM = { 'content-type': 'multipart/form-data; boundary=bound' };

/** An upload whose body the caller writes. length: of the file, else it is sent in chunks. answer: of what came back, if anything did. */
async function dripping(gateway, session, name, { dir, length } = {}) {
  const query = dir ? `?path=${encodeURIComponent(dir)}` : '';
  const headers = { ...FORM, authorization: `Bearer ${await gateway.token()}` };
  if (length !== undefined) headers['content-length'] = HEAD(name).length + length + TAIL.length;
  const req = http.request(`${gateway.url}${session.base}/upload${query}`, { method: 'POST', agent: false, headers });
  const answer = new Promise((resolve) => {
    req.on('error', () => resolve(null));
    req.on('response', async (res) => {
      const text = Buffer.concat(await res.toArray()).toString();
      resolve({ status: res.statusCode, headers: res.headers, text, json: JSON.parse(text) });
    });
  });
  req.write(HEAD(name));
  return { req, answer, finish: () => req.end(TAIL) };
}

/** The name that a browser would give the file. */
function savedAs(disposition) {
  const m = disposition.match(/^attachment; filename="([^"\\]*)"(?:; filename\*=UTF-8''([A-Za-z0-9!#$&+.^_`|~%-]+))?$/);
  assert.ok(m, `an unsafe Content-Disposition: ${disposition}`);
  return m[2] === undefined ? m[1] : decodeURIComponent(m[2]);
}

// ---------------------------------------------------------------------------------------------------------------- large files

describe('large files', SUITE, () => {
  /** Files that nginx writes: it unlinks them at once, so they show only as open descriptors. */
  function nginxFiles() {
    const prefix = path.join(g.dir, 'nginx') + '/';
    const found = [];
    const pids = fs.readFileSync(`/proc/${g.nginx.pid}/task/${g.nginx.pid}/children`, 'utf8').split(' ').filter(Boolean);
    for (const pid of pids)
      for (const fd of fs.readdirSync(`/proc/${pid}/fd`)) {
        try {
          const target = fs.readlinkSync(`/proc/${pid}/fd/${fd}`);
          if (target.startsWith(prefix)) found.push(target);
        } catch {
          // closed meanwhile
        }
      }
    return found;
  }

  /** Runs work and looks at the memory of the workers and the files of nginx meanwhile. */
  async function watched(work) {
    const before = g.pss();
    let most = before;
    const files = new Set();
    const timer = setInterval(() => {
      most = Math.max(most, g.pss());
      nginxFiles().forEach((f) => files.add(f));
    }, 50);
    try {
      return await work();
    } finally {
      clearInterval(timer);
      assert.ok(most - before < 32, `the workers grew by ${(most - before).toFixed(1)} MiB`);
      assert.deepEqual([...files], [], 'nginx wrote to its disk');
    }
  }

  test('1 GiB up and down with flat memory and every byte in its place', async () => {
    const s = g.session('large');
    assert.equal((await s.start({ sandbox_type: 'custom' })).status, 200);
    await s.upload('warm', 'x');
    const hash = crypto.createHash('sha256');
    const block = crypto.randomBytes(MIB);
    async function* body() {
      yield HEAD('large.bin');
      for (let i = 0; i < GIB / MIB; i++) {
        const chunk = Buffer.from(block);
        chunk.writeUInt32LE(i, 0);
        hash.update(chunk);
        yield chunk;
      }
      yield TAIL;
    }
    const up = await watched(() =>
      g.call('POST', `${s.base}/upload`, {
        body: body(),
        headers: { ...FORM, 'content-length': HEAD('large.bin').length + GIB + TAIL.length },
        deadline: 240_000,
      }),
    );
    assert.equal(up.status, 200, up.text);
    const digest = hash.digest('hex');
    assert.deepEqual(up.json, { path: '/home/user/upload/large.bin', size: GIB, sha256: digest });

    await watched(async () => {
      const down = await g.open('GET', `${s.base}/download?path=${up.json.path}`, { deadline: 240_000 });
      assert.deepEqual([down.status, down.headers['content-length']], [200, String(GIB)]);
      const back = crypto.createHash('sha256');
      let size = 0;
      for await (const chunk of down) {
        back.update(chunk);
        size += chunk.length;
      }
      assert.deepEqual([size, back.digest('hex')], [GIB, digest]);
    });
    const part = await s.download(up.json.path, { headers: { range: `bytes=${GIB - MIB}-` } });
    assert.deepEqual([part.status, part.body.length, part.body.readUInt32LE(0)], [206, MIB, GIB / MIB - 1]);
    await s.stop();
  });
});

// ---------------------------------------------------------------------------------------------------------------- names

describe('names', SUITE, () => {
  const NAMES = {
    'a "quoted" name.txt': undefined,
    'two\nlines\r\nthree': undefined,
    'tab\there': undefined,
    'bell\x07 and delete\x7f': undefined,
    'ünï cödé.txt': undefined,
    '日本語.txt': undefined,
    '😀.png': undefined,
    'e\u0301 is not é': undefined,
    '.leading dot': undefined,
    '-leading-dash': undefined,
    '--help': undefined,
    '; rm -rf ~': undefined,
    '$(id) `id` & | < > * ?': undefined,
    '%2e%2e': undefined,
    '%2e%2e%2fpasswd': undefined,
    '100%': undefined,
    '%zz %0': undefined,
    "it's; filename=other": undefined,
    'a?b#c&d=e+f g': undefined,
    ' blanks ': undefined,
    [`${'x'.repeat(255)}`]: undefined,
    [`${'é'.repeat(127)}`]: undefined,
    '../../etc/passwd': 'passwd',
    '/etc/shadow': 'shadow',
    'a/b': 'b',
    'C:\\x\\y.txt': 'y.txt',
    '..\\..\\z.txt': 'z.txt',
  };

  test('hostile names of uploads end in their folder, and come back as they are', async () => {
    const s = g.session('names');
    const dir = '/home/user/na mes';
    const expected = [];
    for (const [name, end = name] of Object.entries(NAMES)) {
      const bytes = `the bytes of ${name}`;
      const up = await s.upload(name, bytes, dir);
      assert.equal(up.status, 200, `${name}: ${up.text}`);
      assert.deepEqual(up.json, { path: `${dir}/${end}`, size: Buffer.byteLength(bytes), sha256: sha256(bytes) });
      const down = await s.download(up.json.path);
      assert.deepEqual([down.status, down.text], [200, bytes], name);
      assert.equal(savedAs(down.headers['content-disposition']), end);
      expected.push(up.json.path);
    }
    const bytewise = (a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b));
    assert.deepEqual(await listed(s, dir), expected.sort(bytewise), 'nothing else is there, and it is sorted');
  });

  test('as browsers write them: no escape for backslashes, UTF-8 as it is', async () => {
    const s = g.session('names');
    for (const [raw, end] of [
      ['C:\\dir\\plain.txt', 'plain.txt'],
      ['q%22uote.txt', 'q"uote.txt'],
      ['line%0D%0Aend', 'line\r\nend'],
      ['größe.txt', 'größe.txt'],
    ]) {
      const up = await g.call('POST', `${s.base}/upload`, { headers: FORM, body: `${HEAD(raw)}x${TAIL}` });
      assert.equal(up.json.path, `/home/user/upload/${end}`, up.text);
    }
  });

  test('what is no name is refused, and nothing is left', async () => {
    const s = g.session('names');
    for (const name of ['', '.', '..', 'x/', '../..', 'y'.repeat(256), 'é'.repeat(128)])
      assertProblem(await s.upload(name, 'x', '/home/user/refused'), 400, 'bad_request');
    const latin1 = Buffer.from(`${HEAD('gr\xf6\xdfe')}x${TAIL}`, 'latin1');
    assertProblem(await g.call('POST', `${s.base}/upload?path=/home/user/refused`, { headers: FORM, body: latin1 }), 400, 'bad_request');
    assert.deepEqual(await listed(s, '/home/user/refused'), []);
  });

  test('hostile names of files in the sandbox are listed and downloaded', async () => {
    const names = ['back\\slash', 'C:\\x\\y.txt', 'a\nb', 'q"q', '\x01', '\u202egnp.exe', '%2e%2e', '~', ' ', 'é\ud83d\ude00'];
    const s = await prepared(
      g,
      'names-inside',
      `import json, os\nos.makedirs("/home/user/odd")\nfor n in json.loads(${JSON.stringify(JSON.stringify(names))}):\n    open("/home/user/odd/" + n, "w").write("in " + n)`,
    );
    const found = await listed(s, '/home/user/odd');
    assert.deepEqual(new Set(found), new Set(names.map((n) => `/home/user/odd/${n}`)));
    for (const name of names) {
      const down = await s.download(`/home/user/odd/${name}`);
      assert.deepEqual([down.status, down.text], [200, `in ${name}`]);
      assert.equal(savedAs(down.headers['content-disposition']), name);
    }
  });

  test('paths are cleaned, and those that leave the root are refused', async () => {
    const s = g.session('names');
    await s.upload('p', 'here', '/home/user//x/./y/../');
    assert.equal((await s.download('/home/user/x/p')).text, 'here');
    assert.equal((await s.download('/home/../home/user/x//p')).text, 'here');
    for (const bad of ['', 'relative', '../x', '/../etc/passwd', '/home/../../etc/passwd', '/a\0b', `/${'n'.repeat(256)}`])
      for (const op of ['download', 'files']) {
        const res = await s[op](bad);
        assertProblem(res, 400, 'bad_path', /^Bad path/);
      }
    assertProblem(await g.call('GET', `${s.base}/download`), 400, 'bad_path', /'path' is missing/);
    assertProblem(await g.call('GET', `${s.base}/download?path=/%ff`), 400, 'bad_path');
  });
});

// ---------------------------------------------------------------------------------------------------------------- uploads

describe('uploads', SUITE, () => {
  const DIR = '/home/user/up';

  test('a client that breaks off leaves nothing, and the old file as it was', async () => {
    for (const length of [50 * MIB, undefined]) {
      const id = `cut-${length ? 'length' : 'chunked'}`;
      const s = g.session(id);
      await s.upload('kept', 'the old bytes', DIR);
      for (const name of ['kept', 'fresh']) {
        const up = await dripping(g, s, name, { dir: DIR, length });
        up.req.write(Buffer.alloc(3 * MIB, 'n'));
        const partial = await until(async () => (await s.files(DIR)).json.find((f) => f.path.startsWith(`${DIR}/.${name}.sg-`)), {
          what: 'the beginning of the file',
        });
        assert.match(path.posix.basename(partial.path), /^\.(kept|fresh)\.sg-[A-Za-z0-9]{12}$/);
        assert.equal((await s.download(`${DIR}/kept`)).text, 'the old bytes', 'replaced only at the end');
        up.req.destroy();
        await until(async () => (await listed(s, DIR)).length === 1, { deadline: 20_000, what: 'the removal' });
        assert.deepEqual(await listed(s, DIR), [`${DIR}/kept`]);
        assert.equal((await s.download(`${DIR}/kept`)).text, 'the old bytes');
      }
      await until(async () => (await leasesOf(id)).length === 0, { what: 'the end of the lease' });
      const left = `SELECT count(*) AS n FROM audit WHERE target = '${id}' AND action = 'upload' AND outcome = 'client_gone'`;
      await until(async () => (await g.rows(left))[0].n === 2, { what: 'the lines of audit' });
    }
  });

  const leasesOf = (session) =>
    g.rows(`SELECT l.id AS id, l.until AS until FROM leases l JOIN sandboxes s ON s.id = l.sandbox WHERE s.session_id = '${session}'`);

  test('a slow upload holds a lease, is not there before its end, and is whole then', async () => {
    const s = g.session('slow');
    await s.upload('drip', 'old', DIR);
    const up = await dripping(g, s, 'drip', { dir: DIR });
    for (let i = 0; i < 10; i++) {
      up.req.write(`piece ${i}\n`);
      await sleep(100);
    }
    const [lease] = await leasesOf('slow');
    assert.match(lease.id, /^u_/);
    assert.ok(lease.until / 1000 > Date.now());
    assert.equal((await s.download(`${DIR}/drip`)).text, 'old');
    up.finish();
    const res = await up.answer;
    const whole = Array.from({ length: 10 }, (_, i) => `piece ${i}\n`).join('');
    assert.deepEqual(res.json, { path: `${DIR}/drip`, size: whole.length, sha256: sha256(whole) });
    assert.equal((await s.download(`${DIR}/drip`)).text, whole);
    assert.deepEqual(await leasesOf('slow'), []);
    assert.deepEqual(await listed(s, DIR), [`${DIR}/drip`]);
  });

  test('of two at once with one name, one is there, whole', async () => {
    const s = g.session('race');
    await s.start();
    const contents = ['a', 'b', 'c'].map((c, i) => Buffer.alloc((3 + i) * MIB, c));
    const all = await Promise.all(contents.map((c) => s.upload('same', c, DIR)));
    all.forEach((res, i) => assert.deepEqual([res.status, res.json.sha256], [200, sha256(contents[i])], res.text));
    const { body } = await s.download(`${DIR}/same`);
    assert.ok(contents.some((c) => c.equals(body)));
    assert.deepEqual(await listed(s, DIR), [`${DIR}/same`]);
  });

  test('a file of no bytes', async () => {
    const s = g.session('plain');
    assert.deepEqual((await s.upload('empty', '')).json, { path: '/home/user/upload/empty', size: 0, sha256: sha256('') });
    const down = await s.download('/home/user/upload/empty');
    assert.deepEqual([down.status, down.body.length, down.headers['content-length']], [200, 0, '0']);
  });

  test('other fields before and after the file are passed over', async () => {
    const s = g.session('plain');
    const field = (name, value) => `--bound\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`;
    const other = '--bound\r\nContent-Disposition: form-data; name="other"; filename="other.bin"\r\n\r\nnot this\r\n';
    const body = `${field('a', '1')}${other}${HEAD('among.txt')}the file\r\n${field('b', 'x'.repeat(100_000))}${other}--bound--\r\n`;
    const up = await g.call('POST', `${s.base}/upload`, { headers: FORM, body });
    assert.deepEqual([up.status, up.json.path, up.json.size], [200, '/home/user/upload/among.txt', 8], up.text);
    assert.equal((await s.download(up.json.path)).text, 'the file');
    assert.ok(!(await listed(s, '/home/user/upload')).includes('/home/user/upload/other.bin'));
  });

  test('a form that is broken leaves nothing', async () => {
    const s = g.session('broken');
    await s.start();
    for (const body of [
      '',
      'no form at all',
      `${HEAD('cut.txt')}no end`,
      `${HEAD('cut.txt')}no end\r\n--bound`,
      `--bound\r\nContent-Disposition: form-data; name="other"; filename="cut.txt"\r\n\r\nx${TAIL}`,
      `--bound\r\nContent-Disposition: form-data; name="file"\r\n\r\nx${TAIL}`,
      `${HEAD('cut.txt')}x\r\n${HEAD('cut2.txt')}y${TAIL}`,
    ])
      assertProblem(await g.call('POST', `${s.base}/upload?path=${DIR}`, { headers: FORM, body }), 400, 'bad_request');
    assert.deepEqual(await listed(s, DIR), []);
    for (const type of ['text/plain', 'application/octet-stream', ''])
      assertProblem(
        await g.call('POST', `${s.base}/upload`, { headers: type ? { 'content-type': type } : {}, body: 'x' }),
        415,
        'unsupported_media_type',
      );
  });

  test('a directory or a file in the way is 409', async () => {
    const s = await prepared(g, 'in-the-way', `import os\nos.makedirs("${DIR}/taken/inside")\nopen("${DIR}/file", "w").write("x")`);
    assertProblem(await s.upload('taken', 'x', DIR), 409, 'conflict', /directory/);
    assertProblem(await s.upload('y', 'x', `${DIR}/file`), 409, 'conflict', /in the way/);
    assertProblem(await s.upload('y', 'x', `${DIR}/file/deeper`), 409, 'conflict', /in the way/);
    assert.deepEqual(await listed(s, DIR), [`${DIR}/file`, `${DIR}/taken`]);
    assert.deepEqual(await listed(s, `${DIR}/taken`), [`${DIR}/taken/inside`]);
  });

  test('a link is replaced and not followed', async () => {
    const s = await prepared(g, 'link', `import os\nos.makedirs("${DIR}")\nopen("/home/user/aim", "w").write("aim")\nos.symlink("/home/user/aim", "${DIR}/link")`);
    assert.equal((await s.upload('link', 'new', DIR)).status, 200);
    assert.deepEqual([(await s.download('/home/user/aim')).text, (await s.download(`${DIR}/link`)).text], ['aim', 'new']);
  });

  test('more than the limit is 413, declared or not, and leaves nothing', async () => {
    const s = small.session('limit');
    await s.upload('kept', 'old', DIR);
    const over = Buffer.alloc(UPLOAD_MAX + 1);
    assertProblem(await s.upload('kept', over, DIR), 413, 'too_large', new RegExp(`^Too large.*${UPLOAD_MAX} bytes`));
    async function* chunks() {
      yield HEAD('kept');
      for (let i = 0; i < over.length; i += MIB) yield over.subarray(i, i + MIB);
      yield TAIL;
    }
    assertProblem(await small.call('POST', `${s.base}/upload?path=${DIR}`, { headers: FORM, body: chunks() }), 413, 'too_large');
    assert.deepEqual(await listed(s, DIR), [`${DIR}/kept`]);
    assert.equal((await s.download(`${DIR}/kept`)).text, 'old');
    const most = await s.upload('most', over.subarray(1), DIR);
    assert.deepEqual([most.status, most.json.size], [200, UPLOAD_MAX], 'just the limit is allowed');
  });

  test('a length far beyond the limit is refused without the body', async () => {
    const s = small.session('limit');
    const up = await dripping(small, s, 'huge', { dir: DIR, length: 100 * GIB });
    const res = await within(20_000, up.answer, 'the refusal');
    up.req.destroy();
    assertProblem(res, 413, 'too_large');
  });

  test('a full disk is 507 and leaves nothing', async () => {
    const s = small.session('full');
    await s.start({ sandbox_type: 'custom' });
    await s.upload('kept', 'old', DIR);
    const data = crypto.randomBytes(16 * MIB);
    for (const name of ['kept', 'fresh']) {
      assertProblem(await s.upload(name, data, DIR), 507, 'no_space', /^No space left/);
      assert.deepEqual(await listed(s, DIR), [`${DIR}/kept`]);
      assert.equal((await s.download(`${DIR}/kept`)).text, 'old');
    }
    assert.equal((await s.upload('fits', data.subarray(0, MIB), DIR)).status, 200, 'what fits still works');
  });

  test('an upload starts a sandbox where there is none, and replaces one that died', async () => {
    const s = g.session('first');
    assert.equal((await s.upload('f', '1')).status, 200);
    const { sandbox_id, generation } = (await s.status()).json;
    assert.equal((await engine.api('DELETE', `/sandboxes/${sandbox_id}`)).status, 204);
    assert.equal((await s.upload('f', '2')).status, 200);
    const now = (await s.status()).json;
    assert.notEqual(now.sandbox_id, sandbox_id);
    assert.equal(now.generation, generation + 1);
    const run = (await s.execute('1')).json;
    assert.deepEqual([run.state_lost, run.reason], [true, 'killed_by_provider']);
  });
});

// ---------------------------------------------------------------------------------------------------------------- downloads

describe('downloads', SUITE, () => {
  let s;
  before(async () => {
    s = await prepared(
      g,
      'down',
      `import os
os.makedirs("/home/user/d")
os.chdir("/home/user/d")
open("ten", "w").write("0123456789")
open("zero", "w")
open("secret", "w").write("s"); os.chmod("secret", 0)
os.symlink("ten", "link"); os.symlink("link", "link2"); os.symlink("/tmp", "linkdir"); os.symlink("nowhere", "dangling"); os.symlink("loop", "loop")
os.mkfifo("fifo")
os.makedirs("closed"); open("closed/f", "w").write("c"); os.chmod("closed", 0)
import socket
socket.socket(socket.AF_UNIX).bind("sock")`,
    );
  });

  const get = (name, headers) => s.download(`/home/user/d/${name}`, { headers });

  test('ranges', async () => {
    for (const [range, text, content] of [
      ['bytes=0-3', '0123', '0-3'],
      ['bytes=4-', '456789', '4-9'],
      ['bytes=-3', '789', '7-9'],
      ['bytes=0-0', '0', '0-0'],
      ['bytes=9-9', '9', '9-9'],
      ['bytes=5-100', '56789', '5-9'],
      ['bytes=-100', '0123456789', '0-9'],
    ]) {
      const res = await get('ten', { range });
      assert.deepEqual([res.status, res.text, res.headers['content-range']], [206, text, `bytes ${content}/10`], range);
      assert.equal(res.headers['content-disposition'], 'attachment; filename="ten"');
      assert.equal(res.headers['content-type'], 'application/octet-stream');
      assert.equal(res.headers['content-length'], String(text.length));
    }
    for (const range of ['bytes=3-1', 'items=0-1', 'bytes=', 'bytes=a-b']) {
      const res = await get('ten', { range });
      assert.deepEqual([res.status, res.text], [200, '0123456789'], `${range} is none`);
    }
    const several = await get('ten', { range: 'bytes=0-1,4-5' });
    if (several.status === 200) assert.equal(several.text, '0123456789');
    else assert.match(several.headers['content-type'], /^multipart\/byteranges/);
  });

  test('a range outside the file is 416 in JSON, with its length', async () => {
    for (const range of ['bytes=10-', 'bytes=100-200', 'bytes=-0']) {
      const res = await get('ten', { range });
      assertProblem(res, 416, 'range_not_satisfiable');
      assert.equal(res.headers['content-range'], 'bytes */10');
      assert.equal(res.headers['content-disposition'], undefined);
    }
  });

  test('If-Range', async () => {
    const modified = (await get('ten')).headers['last-modified'];
    for (const [condition, status] of [
      [modified, 206],
      ['Mon, 16 Nov 2020 06:27:16 GMT', 200],
      ['"another"', 200],
    ])
      assert.equal((await get('ten', { range: 'bytes=0-1', 'if-range': condition })).status, status, condition);
  });

  test('HEAD gives the headers and no body', async () => {
    const res = await g.call('HEAD', `${s.base}/download?path=/home/user/d/ten`);
    assert.deepEqual([res.status, res.text, res.headers['content-length']], [200, '', '10']);
    assert.equal(res.headers['content-disposition'], 'attachment; filename="ten"');
    assert.equal((await g.call('HEAD', `${s.base}/download?path=/home/user/d/none`)).status, 404);
  });

  test('links are followed; what is no file is 400', async () => {
    assert.deepEqual([(await get('link')).text, (await get('link2')).text], ['0123456789', '0123456789']);
    assert.equal(savedAs((await get('link')).headers['content-disposition']), 'link');
    for (const name of ['linkdir', 'closed', '']) assertProblem(await get(name), 400, 'bad_path', /directory/);
    for (const name of ['fifo', 'sock']) assertProblem(await get(name), 400, 'bad_path', /no regular file/);
    assertProblem(await s.download('/dev/null'), 400, 'bad_path', /no regular file/);
    for (const name of ['dangling', 'loop', 'ten/x']) {
      const res = await get(name);
      assert.ok([400, 404].includes(res.status), `${name}: ${res.text}`);
      assert.match(res.json.code, /^(bad_path|file_not_found)$/);
    }
    for (const name of ['none', 'closed/none']) assertProblem(await get(name), 404, 'file_not_found', /^File not found/);
  });

  test('permissions are those of the sandbox: a file that its owner closed is read or refused in words', async () => {
    for (const [name, text] of [
      ['secret', 's'],
      ['closed/f', 'c'],
    ]) {
      const res = await get(name);
      if (res.status === 200) assert.equal(res.text, text);
      else assert.ok(res.status >= 400 && res.status < 500 && res.json.code, res.text);
    }
    assert.equal((await get('zero')).body.length, 0);
  });

  test('the answer has these headers and no others, and no secret in them', async () => {
    const res = await get('ten', { cookie: 'a=b', 'x-access-token': 'x' });
    assert.deepEqual(Object.keys(res.headers).sort(), [
      'accept-ranges',
      'cache-control',
      'connection',
      'content-disposition',
      'content-length',
      'content-security-policy',
      'content-type',
      'date',
      'last-modified',
      'referrer-policy',
      'server',
      'x-content-type-options',
      'x-frame-options',
      'x-request-id',
    ]);
    const [row] = await g.rows("SELECT sandbox_id, envd_token FROM sandboxes WHERE session_id = 'down'");
    const all = Object.values(res.headers).join('\n');
    for (const secret of [row.sandbox_id, row.envd_token, engine.key, String(engine.port), 'signature', await g.token()])
      assert.ok(secret && !all.includes(secret), secret);
    assert.equal(res.headers.server, 'nginx');
    const log = fs.readFileSync(g.accessLog, 'utf8') + g.nginx.text;
    for (const secret of [row.envd_token, 'signature', await g.token()]) assert.ok(!log.includes(secret), `${secret} is in nginx's log`);
  });

  test('a client cannot reach the hand-over itself', async () => {
    const res = await g.call('GET', `/_sandgate/download/http/127.0.0.1:${engine.port}/x/attachment?path=/etc/passwd`);
    assertProblem(res, 404, 'no_such_route');
  });

  test('a sandbox that died is 404, and its loss is recorded', async () => {
    const d = await prepared(g, 'died', 'open("/home/user/f", "w").write("x")');
    const { sandbox_id } = (await d.status()).json;
    await engine.api('DELETE', `/sandboxes/${sandbox_id}`);
    assertProblem(await d.download('/home/user/f'), 404, 'sandbox_not_found', /^Sandbox not found/);
    assert.equal((await d.status()).json, null);
    const [row] = await g.rows(`SELECT status, end_reason FROM sandboxes WHERE sandbox_id = '${sandbox_id}'`);
    assert.deepEqual(row, { status: 'ended', end_reason: 'killed_by_provider' });
    assertProblem(await d.files('/home/user'), 404, 'sandbox_not_found');
  });
});

describe('the hand-over to nginx', SUITE, () => {
  let through;
  let proxy;
  let onFile = async () => undefined; // when nginx asks for a file: a status answers in the engine's place

  before(async () => {
    proxy = http.createServer(async (req, res) => {
      const instead = req.method === 'GET' && req.url.startsWith('/files?') ? await onFile(req) : undefined;
      if (instead) {
        res.writeHead(instead, { 'content-type': 'text/html', 'set-cookie': 'from=upstream' }).end('<h1>upstream</h1>');
        return;
      }
      const up = http.request(engine.url + req.url, { method: req.method, headers: req.headers, agent: false }, (answer) => {
        res.writeHead(answer.statusCode, answer.headers);
        answer.pipe(res);
      });
      up.on('error', () => res.destroy());
      res.on('close', () => up.destroy());
      req.pipe(up);
    });
    await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    through = await startGateway({ engine, api: `http://127.0.0.1:${proxy.address().port}` });
  });
  after(async () => {
    await through?.stop();
    proxy?.closeAllConnections();
    await new Promise((resolve) => proxy?.close(resolve));
  });

  test('carries no token of the caller and none of the sandbox', async () => {
    const s = await prepared(through, 'clean', 'open("/home/user/f", "w").write("bytes")');
    let seen;
    onFile = async (req) => void (seen = req);
    const res = await s.download('/home/user/f', { headers: { cookie: 'a=b', 'x-mine': '1', 'accept-encoding': 'gzip' } });
    assert.equal(res.text, 'bytes');
    const { host, range, ...headers } = seen.headers;
    const [row] = await through.rows("SELECT sandbox_id, envd_token FROM sandboxes WHERE session_id = 'clean'");
    assert.deepEqual(headers, { 'e2b-sandbox-id': row.sandbox_id, 'e2b-sandbox-port': '49983', 'user-agent': 'sandgate' });
    assert.equal(range, undefined);
    assert.ok(host);
    assert.ok(!seen.url.includes(row.envd_token) && /signature=/.test(seen.url) && /signature_expiration=\d+/.test(seen.url));
  });

  test('a sandbox that dies in between is our 404, and its loss is recorded', async () => {
    const s = await prepared(through, 'between', 'open("/home/user/f", "w").write("x")');
    const { sandbox_id } = (await s.status()).json;
    let asked = 0;
    onFile = async () => {
      asked++;
      await engine.api('DELETE', `/sandboxes/${sandbox_id}`);
    };
    const res = await s.download('/home/user/f');
    assert.equal(asked, 1, 'the hand-over was reached');
    assertProblem(res, 404, 'sandbox_not_found', /^Sandbox not found/);
    assert.equal(res.headers['content-disposition'], undefined);
    assert.equal((await s.status()).json, null);
    const [row] = await through.rows(`SELECT status, end_reason FROM sandboxes WHERE sandbox_id = '${sandbox_id}'`);
    assert.deepEqual(row, { status: 'ended', end_reason: 'killed_by_provider' });
  });

  test('a file that vanishes in between is 404', async () => {
    const s = await prepared(through, 'vanish', 'import os\nopen("/home/user/f", "w").write("x")');
    onFile = async () => void (await s.execute('os.remove("/home/user/f")'));
    assertProblem(await s.download('/home/user/f'), 404, 'file_not_found', /^File not found/);
  });

  test('a provider that fails is told in JSON, with nothing of what it says', async () => {
    const s = await prepared(through, 'failing', 'open("/home/user/f", "w").write("x")');
    for (const [status, problem] of Object.entries({
      302: [502, 'provider_error'],
      401: [502, 'provider_auth'],
      403: [502, 'provider_auth'],
      404: [502, 'provider_error'],
      429: [429, 'provider_quota'],
      500: [502, 'provider_error'],
      502: [503, 'provider_unavailable'],
      503: [503, 'provider_unavailable'],
      504: [504, 'provider_timeout'],
    })) {
      onFile = async () => Number(status);
      const res = await s.download('/home/user/f');
      assertProblem(res, ...problem);
      for (const name of ['content-disposition', 'set-cookie', 'location']) assert.equal(res.headers[name], undefined, `${status}: ${name}`);
    }
    onFile = async () => undefined;
    assert.equal((await s.download('/home/user/f')).text, 'x');
  });
});

// ---------------------------------------------------------------------------------------------------------------- lists

describe('lists', SUITE, () => {
  test('sorted, with dotfiles, links, names with line ends, mode and time', async () => {
    const s = await prepared(
      g,
      'list',
      `import os
os.makedirs("/home/user/l/dir")
os.chdir("/home/user/l")
for n in ["b", "a", "B", ".dot", "é", "line\\nend", "a b", "Z"]: open(n, "w").write(n)
os.symlink("a", "to-file"); os.symlink("dir", "to-dir"); os.symlink("nowhere", "to-nothing")
os.chmod("a", 0o640); os.chmod("b", 0o4755); os.utime("a", (1e9, 1e9 + 0.25))`,
    );
    const res = await s.files('/home/user/l');
    assert.equal(res.status, 200, res.text);
    assert.deepEqual(
      res.json.map((f) => [path.posix.basename(f.path), f.is_directory]),
      [
        ['.dot', false],
        ['B', false],
        ['Z', false],
        ['a', false],
        ['a b', false],
        ['b', false],
        ['dir', true],
        ['line\nend', false],
        ['to-dir', true],
        ['to-file', false],
        ['to-nothing', false],
        ['é', false],
      ],
    );
    const of = Object.fromEntries(res.json.map((f) => [path.posix.basename(f.path), f]));
    assert.deepEqual(of.a, {
      path: '/home/user/l/a',
      size: 1,
      is_directory: false,
      modified_at: '2001-09-09T01:46:40.250000+00:00',
      mode: '0640',
    });
    assert.deepEqual([of['a b'].size, of['é'].size, of['a b'].mode], [3, 2, '0644']);
    assert.match(of.b.mode, /755$/);
  });

  test('5,000 entries', async () => {
    const s = await prepared(g, 'many', 'import os\nos.makedirs("/home/user/m")\nfor i in range(5000): open(f"/home/user/m/{i}", "w")');
    const names = (await s.files('/home/user/m')).json.map((f) => f.path);
    const expected = Array.from({ length: 5000 }, (_, i) => `/home/user/m/${i}`).sort();
    assert.deepEqual(names, expected);
  });

  test('an empty folder, a closed one, a link to one, a file, and nothing', async () => {
    const s = await prepared(
      g,
      'kinds',
      'import os\nos.makedirs("/home/user/k/empty")\nos.chdir("/home/user/k")\nos.makedirs("closed"); open("closed/f", "w"); os.chmod("closed", 0)\nos.symlink("closed", "link")\nopen("file", "w")',
    );
    assert.deepEqual((await s.files('/home/user/k/empty')).json, []);
    const closed = await s.files('/home/user/k/closed');
    if (closed.status === 200) assert.deepEqual(closed.json.map((f) => f.path), ['/home/user/k/closed/f']);
    else assert.ok(closed.status >= 400 && closed.status < 500 && closed.json.code, closed.text);
    assert.ok([200, 400, 403].includes((await s.files('/home/user/k/link')).status));
    const file = await s.files('/home/user/k/file');
    assertProblem(file, 400, 'bad_path', /no directory/);
    assert.doesNotMatch(file.json.detail, /ListDir|invalid_argument/, "the provider's words stay inside");
    assertProblem(await s.files('/home/user/k/none'), 404, 'file_not_found');
  });
});

// ---------------------------------------------------------------------------------------------------------------- activity

describe('activity', SUITE, () => {
  test('upload, download and files are activity; status is not', async () => {
    const s = g.session('active');
    await s.upload('f', 'x');
    const activity = async () => (await g.rows("SELECT last_activity, expires_at FROM sandboxes WHERE session_id = 'active'"))[0];
    /** As if nothing had happened for ten minutes. Writes are at most one a minute, so that it must have been longer. */
    const age = () =>
      g.rows("UPDATE sandboxes SET last_activity = last_activity - 600000000, expires_at = expires_at - 600000000 WHERE session_id = 'active'");
    for (const [what, active] of [
      [() => s.status(), false],
      [() => s.download('/home/user/upload/f'), true],
      [() => s.status(), false],
      [() => s.files('/home/user'), true],
      [() => s.upload('f', 'y'), true],
      [() => s.execute('1'), true],
    ]) {
      await age();
      const before = await activity();
      assert.equal((await what()).status, 200);
      const now = await activity();
      if (active) {
        assert.ok(now.last_activity - before.last_activity > 590e6, what.toString());
        assert.ok(now.expires_at - before.expires_at > 590e6, what.toString());
      } else {
        assert.deepEqual(now, before, what.toString());
      }
    }
  });
});
