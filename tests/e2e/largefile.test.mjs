// A file of 1 GiB goes up and comes down as a stream, with the memory of the engine flat.
import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import { after, before, describe, test } from 'node:test';
import zlib from 'node:zlib';
import { ENVD, SUITE, open, output, routing, startEngine } from './engine.mjs';

const MIB = 1 << 20;
const GIB = 1 << 30;

let engine;
let sandbox;

/** `size` bytes that differ in every MiB and do not compress, with their hash; nothing is kept in memory. */
function content(size) {
  const hash = crypto.createHash('sha256');
  const block = crypto.randomBytes(MIB);
  async function* chunks() {
    for (let i = 0; i < size / MIB; i++) {
      const chunk = Buffer.from(block);
      chunk.writeUInt32LE(i, 0);
      hash.update(chunk);
      yield chunk;
    }
  }
  return { chunks: chunks(), digest: () => hash.digest('hex') };
}

async function hashOf(chunks) {
  const hash = crypto.createHash('sha256');
  let size = 0;
  for await (const chunk of chunks) {
    hash.update(chunk);
    size += chunk.length;
  }
  return { size, digest: hash.digest('hex') };
}

const inside = async (file) => (await output(sandbox, `sha256sum ${file}`, { timeoutMs: 120_000 })).split(' ')[0];

describe('large files', SUITE, () => {
  before(async () => {
    engine = await startEngine({ templates: { 'roomy.template': 'disk = 2560\nmemory = 1024\ninterpreter = no\n' } });
    sandbox = await engine.create('roomy');
  });
  after(() => engine?.stop());

  test('1 GiB up by a stream of the SDK, and down again', async () => {
    const before = engine.peaks();
    const { chunks, digest } = content(GIB);
    await sandbox.files.write('large.bin', ReadableStream.from(chunks));
    engine.assertFlat(before);
    const sent = digest();
    assert.equal((await sandbox.files.getInfo('large.bin')).size, GIB);
    assert.equal(await inside('large.bin'), sent);

    const down = await open(`${engine.url}/files?path=large.bin`, { headers: routing(sandbox, ENVD), deadline: 120_000 });
    assert.equal(down.headers['content-length'], String(GIB));
    assert.deepEqual(await hashOf(down), { size: GIB, digest: sent });
    engine.assertFlat(before);

    const tail = await open(`${engine.url}/files?path=large.bin`, { headers: { ...routing(sandbox, ENVD), range: `bytes=${GIB - MIB}-` } });
    assert.equal(tail.status, 206);
    const last = Buffer.concat(await tail.toArray());
    assert.deepEqual([last.length, last.readUInt32LE(0)], [MIB, GIB / MIB - 1]);
    await sandbox.files.remove('large.bin');
  });

  test('256 MiB as a form, and down compressed by the SDK', async () => {
    const before = engine.peaks();
    const { chunks, digest } = content(256 * MIB);
    async function* form() {
      yield '--bound\r\nContent-Disposition: form-data; name="file"; filename="form.bin"\r\nContent-Type: application/octet-stream\r\n\r\n';
      yield* chunks;
      yield '\r\n--bound--\r\n';
    }
    const up = await open(`${engine.url}/files`, {
      method: 'POST',
      body: form(),
      deadline: 120_000,
      headers: { ...routing(sandbox, ENVD), 'content-type': 'multipart/form-data; boundary=bound' },
    });
    assert.equal(up.status, 200, Buffer.concat(await up.toArray()).toString());
    const sent = digest();
    assert.equal(await inside('form.bin'), sent);
    assert.deepEqual(await hashOf(await sandbox.files.read('form.bin', { format: 'stream', gzip: true })), {
      size: 256 * MIB,
      digest: sent,
    });
    engine.assertFlat(before);
    await sandbox.files.remove('form.bin');
  });

  test('a small gzip body that unpacks to 512 MiB is unpacked as a stream', async () => {
    const before = engine.peaks();
    const zip = zlib.createGzip({ level: 1 });
    const zeros = Buffer.alloc(MIB);
    (async () => {
      for (let i = 0; i < 512; i++) if (!zip.write(zeros)) await new Promise((resolve) => zip.once('drain', resolve));
      zip.end();
    })();
    const up = await open(`${engine.url}/files?path=zeros`, {
      method: 'POST',
      body: zip,
      deadline: 120_000,
      headers: { ...routing(sandbox, ENVD), 'content-type': 'application/octet-stream', 'content-encoding': 'gzip' },
    });
    assert.equal(up.status, 200, Buffer.concat(await up.toArray()).toString());
    assert.equal((await sandbox.files.getInfo('zeros')).size, 512 * MIB);
    engine.assertFlat(before);
    await sandbox.files.remove('zeros');
  });

  test('a client that reads a large file slowly, or not to the end, disturbs nobody', async () => {
    await output(sandbox, 'head -c 200M /dev/zero > slow.bin');
    const before = engine.peaks();
    const stalled = await open(`${engine.url}/files?path=slow.bin`, { headers: routing(sandbox, ENVD) });
    stalled.pause();
    assert.equal(await output(sandbox, 'echo alive'), 'alive');
    assert.equal((await hashOf(await sandbox.files.read('slow.bin', { format: 'stream' }))).size, 200 * MIB);
    stalled.drop();
    engine.assertFlat(before);
    await sandbox.files.remove('slow.bin');
  });
});
