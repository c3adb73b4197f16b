// The benchmark: `make bench` runs it and prints one table. What is compared is measured side by side, in turns, in the same run;
// figures are medians of the rounds.
//
//   node tests/bench/run.mjs [--markdown] [--quick] [PATTERN]
//
//   --markdown   the table as docs/performance.md has it
//   --quick      sizes that only show that everything works
//   PATTERN      only the groups whose name matches
import { parseArgs } from 'node:util';
import { NGINX } from '../e2e/gateway.mjs';
import { cancel } from './cancel.mjs';
import { changes } from './changes.mjs';
import { disk } from './disk.mjs';
import { engineCalls } from './engine-calls.mjs';
import { eventlog } from './eventlog.mjs';
import { execute } from './execute.mjs';
import { idle } from './idle.mjs';
import { inflight } from './inflight.mjs';
import { output } from './output.mjs';
import { sessions } from './sessions.mjs';
import { start } from './start.mjs';
import { status } from './status.mjs';
import { stream } from './stream.mjs';
import { machine, markdown, misses, plain } from './table.mjs';
import { SETTINGS, TEMPLATES, transfer } from './transfer.mjs';
import { RAISED, hasNode, startWorld } from './world.mjs';

const FULL = {
  status: { rounds: 7, seconds: 1 },
  execute: { few: 2, many: 32, rounds: 7, calls: 320 },
  stream: { rounds: 5, streams: 20, pieces: 200, mb: 100 },
  eventlog: { rounds: 7, calls: 100 },
  changes: { files: 10_000, rounds: 7, calls: 60 },
  inflight: { counts: [200, 500], streams: 200, secs: 5, seconds: 2 },
  transfer: { rounds: 3, mib: 1024 },
  sessions: { many: 10_000, rounds: 5, seconds: 1, calls: 100 },
  cancel: { times: 30 },
  engine: { rounds: 20 },
  start: { rounds: 21, burst: 50, bursts: 3 },
  idle: { count: 100 },
  output: { rounds: 5, calls: 200, mb: 100 },
  disk: { rounds: 5, mib: 512 },
};

const QUICK = {
  status: { rounds: 1, seconds: 1 },
  execute: { few: 1, many: 2, rounds: 1, calls: 4 },
  stream: { rounds: 1, streams: 1, pieces: 3, mb: 2 },
  eventlog: { rounds: 1, calls: 3 },
  changes: { files: 200, rounds: 1, calls: 3 },
  inflight: { counts: [6], streams: 6, secs: 2, seconds: 1 },
  transfer: { rounds: 1, mib: 8 },
  sessions: { many: 200, rounds: 1, seconds: 1, calls: 4 },
  cancel: { times: 1 },
  engine: { rounds: 1 },
  start: { rounds: 1, burst: 2, bursts: 1 },
  idle: { count: 2 },
  output: { rounds: 1, calls: 3, mb: 2 },
  disk: { rounds: 1, mib: 8 },
};

/** In the order of the table. own: it starts what it measures by itself. */
const GROUPS = [
  { name: 'status', title: 'GET status, auth on', measure: status },
  { name: 'execute', title: 'execute 1+1 through nginx and gateway', measure: execute },
  { name: 'stream', title: 'output as it comes', measure: stream },
  { name: 'eventlog', title: 'the event log of a run', measure: eventlog },
  { name: 'changes', title: 'files that a run has changed', measure: changes },
  { name: 'inflight', title: 'executions in flight', measure: inflight, own: true },
  { name: 'transfer', title: 'files', measure: transfer },
  { name: 'sessions', title: 'sessions in the database', measure: sessions, own: true },
  { name: 'cancel', title: 'the end of a running execution', measure: cancel },
  { name: 'engine', title: "the engine's own calls, in multiples of GET /health", measure: engineCalls },
  { name: 'start', title: 'a new sandbox, to the end of its first print(1)', measure: start, own: true },
  { name: 'idle', title: 'memory (PSS) of sandboxes that do nothing', measure: idle, own: true },
  { name: 'output', title: 'what a kernel says, by the engine itself', measure: output, own: true },
  { name: 'disk', title: 'files of a sandbox, by the engine itself', measure: disk },
];

async function measureAll(groups, plan) {
  const rows = [];
  const add = async ({ name, title, measure }, ...args) => {
    const begin = performance.now();
    const measured = await measure(...args, plan[name]);
    rows.push(...measured.map((row) => ({ group: title, name, ...row })));
    console.error(`bench: ${title}: ${((performance.now() - begin) / 1000).toFixed(0)} s`);
  };
  const inWorld = groups.filter((g) => !g.own);
  if (inWorld.length) {
    const world = await startWorld({ engine: { templates: TEMPLATES }, settings: SETTINGS });
    try {
      for (const group of inWorld) await add(group, world);
    } finally {
      await world.stop();
    }
  }
  for (const group of groups.filter((g) => g.own)) await add(group);
  return rows.sort((a, b) => order(a) - order(b));
}

const order = ({ name }) => GROUPS.findIndex((group) => group.name === name);

const notes = () => [
  `Measured on ${machine(NGINX)}.`,
  `Raised for it: ${Object.entries(RAISED).map(([name, value]) => `${name}=${value}`).join(', ')}; nginx without its rates and limits, and without TLS.`,
  'The token is remembered by nginx for 5 s, as on a site; "nobody remembered" is without that. nginx alone writes the same headers and log.',
  ...(hasNode() ? [] : ['Node was not measured: its packages are not installed (tools/deps bench).']),
];

for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(130)); // which ends what was started

const { values, positionals } = parseArgs({ options: { markdown: { type: 'boolean' }, quick: { type: 'boolean' } }, allowPositionals: true });
const groups = GROUPS.filter(({ name }) => name.includes(positionals[0] ?? ''));
const rows = await measureAll(groups, values.quick ? QUICK : FULL);
console.log([values.markdown ? markdown(rows) : plain(rows), '', ...notes()].join('\n'));
console.log(`${rows.filter((row) => row.met).length} goals met, ${misses(rows).length} missed`);
