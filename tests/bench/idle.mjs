// What sandboxes cost that do nothing: the memory of all processes of the engine with many of them, less what it was with none.
import { sleep, startEngine, until } from '../e2e/engine.mjs';
import { Client } from './client.mjs';
import { each } from './load.mjs';
import { canSeeMemory, memoryOf, processesOf } from './processes.mjs';

const MOST = 6; // MB
const WIDTH = 4; // that many are made at a time

/** What each of so many has: MB by kind of process, and of all. */
function share(now, before, count) {
  return Object.fromEntries(Object.keys(now).map((kind) => [kind, (now[kind] - before[kind]) / count]));
}

/** With and without having run a cell. */
async function measure(engine, client, { count, internet }) {
  const kernels = (n) => until(() => processesOf(engine, 'kernel').length === n, { deadline: 120_000, what: `${n} kernels` });
  const before = memoryOf(engine);
  const sandboxes = [];
  await each(Array.from({ length: count }), WIDTH, async () => sandboxes.push(await client.create({ internet })));
  await kernels(count);
  await sleep(1000); // the last ones have warmed themselves up
  const idle = share(memoryOf(engine), before, count);
  await each(sandboxes, WIDTH, (sandbox) => client.run(sandbox, 'print(1)', '"1\\n"'));
  const used = share(memoryOf(engine), before, count);
  await each(sandboxes, WIDTH, (sandbox) => client.kill(sandbox));
  await kernels(0);
  return { idle, used };
}

const name = ({ count, internet }) => `${count} sandboxes ${internet ? 'with' : 'without'} internet, each`;

function rows({ idle, used }, { count, internet }) {
  const mb = (n) => `${n.toFixed(2)} MB`;
  const kernel = (of) => `kernel ${(of.kernel + of.zygote).toFixed(2)}`; // whose pages are the zygote's, too
  const parts = [kernel(idle), ...['agent', ...(internet ? ['slirp4netns'] : []), 'engine'].map((kind) => `${kind} ${idle[kind].toFixed(2)}`)];
  return [
    {
      what: name({ count, internet }),
      figure: mb(idle.all),
      detail: `${parts.join(', ')}; page tables ${idle.tables.toFixed(2)} besides`,
      goal: `at most ${MOST} MB`,
      met: idle.all <= MOST,
    },
    { what: 'the same, after one cell', figure: mb(used.all), detail: `${kernel(used)}; page tables ${used.tables.toFixed(2)} besides` },
  ];
}

export async function idle({ count }) {
  const kinds = [true, false].map((internet) => ({ count, internet }));
  if (!canSeeMemory()) return kinds.map((kind) => ({ what: name(kind), figure: 'not measured', detail: 'only root sees the memory of what is inside' }));
  const engine = await startEngine({ args: ['--pool', '0', '--max-sandboxes', String(count)] });
  const client = new Client(engine);
  try {
    await client.kill(await client.create()); // what is made once is there
    await until(() => !processesOf(engine, 'kernel').length, { what: 'its end' });
    const all = [];
    for (const kind of kinds) all.push(...rows(await measure(engine, client, kind), kind));
    return all;
  } finally {
    client.close();
    await engine.stop();
  }
}
