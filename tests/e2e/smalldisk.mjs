// A gateway whose files lie on a small file system of its own, which nobody else sees and which goes with it.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { tempFolder } from './engine.mjs';
import { startGateway } from './gateway.mjs';

const ROOT = process.getuid() === 0;
/** A command, and its arguments, that runs another one where it may mount. */
export const SPACE = ['unshare', ROOT ? '-m' : '-rm'];
const spaces = (() => {
  try {
    execFileSync(SPACE[0], [SPACE[1], 'mount', '-t', 'tmpfs', 'none', '/mnt'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
})();
/** For test(): why it cannot be played here, or false. */
export const skip = spaces ? false : 'no mount namespaces here';

/** Its event logs are there and, unless database is false, its database. `seen` is the place as others see it. */
export async function startSmall(engine, { database = true, settings = {} } = {}) {
  const place = tempFolder('sandgate-small-');
  const script =
    'mount -t tmpfs -o size=2m,mode=0700 none "$0" && mkdir -m 700 "$0/events" && ' +
    'state=${3%/*}/state && mkdir -p -m 700 "$state" && ln -sfn "$0/events" "$state/events" && exec "$@"';
  const wrap = [...SPACE, 'sh', '-c', script, place];
  const own = database ? { SANDGATE_DB: path.join(place, 'sandgate.db') } : {};
  const g = await startGateway({ engine, wrap, settings: { ...own, ...settings } });
  g.beside = ['nsenter', '-t', String(g.server.pid), ...(ROOT ? ['-m'] : ['-U', '--preserve-credentials', '-m'])];
  const stop = g.stop.bind(g);
  g.stop = () => stop().finally(() => fs.rmSync(place, { recursive: true, force: true }));
  return Object.assign(g, { place, seen: `/proc/${g.server.pid}/root${place}` });
}

/** Commands in the gateway's own view of the file systems. */
export const inside = (g, ...command) => execFileSync(g.beside[0], [...g.beside.slice(1), ...command]);

/** Until nothing fits any more. */
export function fill(file) {
  for (let size = 1 << 20; size >= 1; size >>= 1)
    try {
      for (;;) fs.appendFileSync(file, Buffer.alloc(size));
    } catch (e) {
      assert.equal(e.code, 'ENOSPC');
    }
}
