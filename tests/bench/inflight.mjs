// Hundreds of executions at once, with and without somebody who reads what they print: all of them finish, what the gateway needs for
// them, and what a status takes meanwhile.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import http from 'node:http';
import { startEngine, until } from '../e2e/engine.mjs';
import { call, each, wrk } from './load.mjs';
import { startStandin } from './standin.mjs';
import { median, quantile, sum } from './stats.mjs';
import { STATUS, startWorld } from './world.mjs';

const MIB = 1024; // of KiB
const KERNEL_MIB = 45; // of a sandbox whose interpreter has run
const SPARE_MIB = 4096;

const field = (text, name) => Number(text.match(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm'))?.[1] ?? 0);

/** Whether the machine has the memory for so many real sandboxes. */
const fits = (count) => field(fs.readFileSync('/proc/meminfo', 'utf8'), 'MemAvailable') / MIB > count * KERNEL_MIB + SPARE_MIB;

/** Of the gateway's master and workers, in MiB: shared memory counted once, and the page tables besides. */
function memory(g) {
  const read = (pid, file) => fs.readFileSync(`/proc/${pid}/${file}`, 'utf8');
  const of = (pid) => ({ pss: field(read(pid, 'smaps_rollup'), 'Pss') / MIB, tables: field(read(pid, 'status'), 'VmPTE') / MIB });
  const workers = g.workers().map(of);
  const all = [...workers, of(g.server.pid)];
  return { workers: workers.length, each: sum(workers.map((w) => w.pss)) / workers.length, pss: sum(all.map((p) => p.pss)), tables: sum(all.map((p) => p.tables)) };
}

const status = (world, seconds) => wrk(world, world.site(STATUS, 'status').url, { seconds, connections: 2, token: world.token });

const running = async ({ g }) => (await g.rows("SELECT count(*) AS n FROM executions WHERE state = 'running'"))[0].n;

/** How they are called: its name in the table, what is run, what is asked for, and how its end is known. */
const PLAIN = {
  what: 'in flight',
  code: (secs) => `import time\ntime.sleep(${secs})`,
  headers: {},
  done: /^\{"success":true,/,
};
const STREAMS = {
  what: 'open streams',
  code: (secs) => `import time\nfor _ in range(${secs}):\n    print('.', flush=True)\n    time.sleep(1)`,
  headers: { accept: 'text/event-stream' },
  done: /^event: done\ndata: \{"success":true,/m,
};

/** All at once. What is measured meanwhile is that of measure(), which is called when all of them run: or some have ended, on a slow machine. */
async function sleepAll(world, ids, secs, kind, measure) {
  let ended = 0;
  const agent = new http.Agent({ keepAlive: true, maxSockets: Infinity });
  const body = JSON.stringify({ code: kind.code(secs) });
  const run = async (id) => {
    const begin = performance.now();
    const { url, headers } = world.site(id, 'execute');
    const { status, text } = await call(agent, url, { method: 'POST', headers: { ...headers, ...kind.headers }, body });
    assert.ok(status === 200 && kind.done.test(text), `${status} ${text}`);
    ended++;
    return performance.now() - begin - secs * 1000;
  };
  const runs = Promise.all(ids.map(run));
  runs.catch(() => {}); // it is looked at below
  const enough = async () => ended > 0 || (await running(world)) === ids.length;
  await until(enough, { deadline: 120_000, what: `${ids.length} executions at once` });
  const measured = await measure();
  const over = await runs;
  agent.destroy();
  return { measured, over };
}

async function measure(world, provider, { count, secs, seconds, kinds }) {
  const ids = Array.from({ length: count }, (_, i) => `sleep-${i}`);
  const [idle, calm] = [memory(world.g), await status(world, seconds)];
  await each(ids, 8, (id) => world.session(id));
  provider.secs = 0;
  await each(ids, 8, (id) => world.g.session(id, { token: world.token }).execute('pass')); // every kernel runs
  provider.secs = secs;
  const meanwhile = async () => ({ status: await status(world, seconds), busy: memory(world.g), still: await running(world) });
  const all = [];
  for (const kind of kinds) all.push({ kind, calm, ...(await sleepAll(world, ids, secs, kind, meanwhile)) });
  return { idle, all };
}

function rows({ kind, calm, over, measured: { busy, still, status } }, { count, secs }, real) {
  const goals = kind === PLAIN && count === 500;
  return [
    {
      what: `${count} ${kind.what} of ${secs} s${real ? '' : ', stand-in provider'}: finished`,
      figure: `${over.length} of ${count}`,
      detail: `p50 ${median(over).toFixed(0)} ms, p99 ${quantile(over, 0.99).toFixed(0)} ms over ${secs} s`,
      goal: 'all',
      met: over.length === count,
    },
    {
      what: `${count} ${kind.what}: memory (PSS) of the gateway`,
      figure: `${busy.pss.toFixed(0)} MiB`,
      detail: `${busy.workers} workers of ${busy.each.toFixed(2)} MiB, ${still} of them still running; page tables ${busy.tables.toFixed(0)} MiB besides`,
      ...(goals && { goal: 'at most 200 MiB', met: busy.pss <= 200 && still === count }),
    },
    {
      what: `${count} ${kind.what}: GET status, p50 of an idle gateway's`,
      figure: (status.p50 / calm.p50).toFixed(2),
      detail: `p50 ${status.p50.toFixed(2)} ms, p99 ${status.p99.toFixed(2)} ms; idle ${calm.p50.toFixed(2)} and ${calm.p99.toFixed(2)} ms`,
    },
  ];
}

const idleRow = (idle) => ({
  what: 'an idle worker',
  figure: `${idle.each.toFixed(2)} MiB`,
  detail: `PSS, of ${idle.workers} workers`,
  goal: 'at most 0.8 MiB',
  met: idle.each <= 0.8,
});

/** On the real engine, or on a stand-in where the machine has not the memory. */
async function inWorld(count, plan) {
  const real = fits(count);
  const engine = await (real ? startEngine({ args: ['--max-sandboxes', String(count + 10)] }) : startStandin());
  try {
    const world = await startWorld({ engine });
    try {
      const { idle, all } = await measure(world, engine, { count, ...plan });
      return [...all.flatMap((one) => rows(one, { count, ...plan }, real)), idleRow(idle)];
    } finally {
      await world.stop();
    }
  } finally {
    await (real ? engine.stop() : engine.close());
  }
}

export async function inflight({ counts, streams, ...plan }) {
  const all = [];
  for (const count of counts) all.push(await inWorld(count, { kinds: count === streams ? [PLAIN, STREAMS] : [PLAIN], ...plan }));
  // The idle worker is the same one each time.
  return all.flatMap((of, i) => (i + 1 < all.length ? of.slice(0, -1) : of));
}
