// What a run's event log costs: 1+1 with the log where it is kept, in memory, and with none, which is a file in its folder's place.
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { tempFolder } from '../e2e/engine.mjs';
import { runs } from './execute.mjs';
import { callers } from './load.mjs';
import { interleave, median, quantile, sum } from './stats.mjs';

const MEMORY = '/dev/shm';

/** Microseconds of processors that the workers have had. */
const processors = (g) => sum(g.workers().map((pid) => Number(fs.readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ')[0]))) / 1000;

/** Puts something into the place of the folder of logs for a while. */
async function inPlace(folder, put, fn) {
  fs.renameSync(folder, `${folder}.kept`);
  put();
  try {
    return await fn();
  } finally {
    fs.rmSync(folder);
    fs.renameSync(`${folder}.kept`, folder);
  }
}

export async function eventlog(world, { rounds, calls }) {
  const session = await world.session('eventlog');
  const agent = new http.Agent({ keepAlive: true });
  const once = runs(agent, world.site('eventlog', 'execute'), '"success":true');
  const folder = path.join(world.g.state, 'events');
  const memory = fs.mkdtempSync(path.join(fs.existsSync(MEMORY) ? MEMORY : world.dir, 'sandgate-bench-'));
  const measure = async () => {
    const before = processors(world.g);
    const times = await callers(1, calls, once);
    return { ms: quantile(times, 0.5), us: (processors(world.g) - before) / calls };
  };
  try {
    await callers(1, 3, once);
    const all = await interleave(rounds, {
      kept: measure,
      memory: () => inPlace(folder, () => fs.symlinkSync(memory, folder), measure),
      none: () => inPlace(folder, () => fs.writeFileSync(folder, ''), measure),
    });
    const more = (kind, of) => median(all[kind].map((round, i) => of(round) - of(all.none[i])));
    const bytes = fs.readdirSync(memory).map((file) => fs.statSync(path.join(memory, file)).size);
    return [
      {
        what: '1+1, p50: more than without a log',
        figure: `${more('kept', ({ ms }) => ms).toFixed(2)} ms`,
        detail: `${more('kept', ({ us }) => us).toFixed(0)} us of the worker; in memory ${more('memory', ({ ms }) => ms).toFixed(2)} ms, ${more('memory', ({ us }) => us).toFixed(0)} us`,
      },
      { what: 'bytes of it', figure: `${median(bytes).toFixed(0)}`, detail: `in ${bytes.length / (rounds * calls)} file of its own` },
    ];
  } finally {
    fs.rmSync(memory, { recursive: true });
    agent.destroy();
    await session.stop();
  }
}
