// Files up and down through the gateway, beside nginx's bare proxy_pass to the same engine.
import fs from 'node:fs';
import path from 'node:path';
import { randomBytes } from 'node:crypto';
import { ENVD } from '../e2e/engine.mjs';
import { SINK, curl, fields, option } from './load.mjs';
import { interleave, median, ratio } from './stats.mjs';

const MIB = 2 ** 20;
/** Room for two of the files: one that is there, and one that is on its way into its place. */
export const TEMPLATES = { 'bench-files.template': 'disk = 4096\nmemory = 4096\ninterpreter = no\n' };
export const SETTINGS = { SANDGATE_CUSTOM_TEMPLATE_ID: 'bench-files' };

/** A file that does not compress and has the first byte of a boundary in it as often as any. */
export function content(world, mib) {
  const file = path.join(world.dir, 'content');
  const fd = fs.openSync(file, 'w');
  const block = randomBytes(MIB);
  for (let i = 0; i < mib; i++) fs.writeSync(fd, block);
  fs.closeSync(fd);
  return file;
}

export async function transfer(world, { rounds, mib }) {
  const session = await world.session('files', { sandbox_type: 'custom' });
  const file = content(world, mib);
  const direct = fields(await world.direct('files', ENVD));
  const bare = `${world.url('BARE')}/files?path=`;
  const [up, down] = [world.site('files', 'upload?path=/home/user'), world.site('files', 'download?path=/home/user/content')];
  const rate = (options) => async () => mib / (await curl([...options, SINK, option('header', 'Expect:')]));

  const rates = await interleave(rounds, {
    up: rate([option('url', up.url), option('form', `file=@${file}`), ...fields(up.headers)]),
    upBare: rate([option('url', `${bare}/home/user/bare`), option('request', 'POST'), option('upload-file', file), ...fields({ 'content-type': 'application/octet-stream' }), ...direct]),
    down: rate([option('url', down.url), ...fields(down.headers)]),
    downBare: rate([option('url', `${bare}/home/user/content`), ...direct]),
  });
  await session.stop();
  fs.rmSync(file);

  const row = (what, ours, theirs, least) => ({
    what: `${what}, of bare proxy_pass`,
    figure: ratio(ours, theirs).toFixed(2),
    detail: `${median(ours).toFixed(0)} of ${median(theirs).toFixed(0)} MiB/s`,
    goal: `at least ${least.toFixed(2)}`,
    met: ratio(ours, theirs) >= least,
  });
  return [row('upload', rates.up, rates.upBare, 0.55), row('download', rates.down, rates.downBare, 0.8)];
}
