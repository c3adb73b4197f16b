// A large file into a sandbox and out of it by the engine itself, beside nginx with a file of its own: both keep it in memory.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { ENVD, routing } from '../e2e/engine.mjs';
import { SINK, curl, fields, option } from './load.mjs';
import { interleave, median, ratio } from './stats.mjs';
import { content } from './transfer.mjs';

const OCTETS = [...fields({ 'content-type': 'application/octet-stream' }), option('header', 'Expect:')];

/** A sandbox with room for the file that is there and the one that is on its way into its place. */
async function create(engine) {
  const { status, json, text } = await engine.api('POST', '/v2/sandboxes', { json: { templateID: 'bench-files', timeout: 3600 } });
  assert.equal(status, 201, text);
  return { sandboxId: json.sandboxID, envdAccessToken: json.envdAccessToken };
}

export async function disk(world, { rounds, mib }) {
  const sandbox = await create(world.engine);
  const file = content(world, mib);
  const inside = [option('url', `${world.engine.url}/files?path=/home/user/content`), ...fields(routing(sandbox, ENVD))];
  const own = [option('url', `${world.url('STORE')}/content`)];
  const upload = (method) => [option('request', method), option('upload-file', file), ...OCTETS];
  const rate = (...options) => async () => mib / (await curl([...options.flat(), SINK]));

  const write = { engine: rate(inside, upload('POST')), nginx: rate(own, upload('PUT')) };
  await write.engine(); // both replace a file
  await write.nginx();
  const writes = await interleave(rounds, write);
  const reads = await interleave(rounds, { engine: rate(inside), nginx: rate(own) });
  await world.engine.api('DELETE', `/sandboxes/${sandbox.sandboxId}`);
  for (const copy of [file, path.join(world.store, 'content')]) fs.rmSync(copy);

  const row = (what, { engine, nginx }) => ({
    what: `${what} ${mib} MiB, of nginx's own`,
    figure: ratio(engine, nginx).toFixed(2),
    detail: `${median(engine).toFixed(0)} of ${median(nginx).toFixed(0)} MiB/s`,
  });
  return [row('writing', writes), row('reading', reads)];
}
