// What a kernel says, as the engine passes it on: the round trip of the shortest run, and a hundred megabytes, meanwhile and beside what
// Python itself writes into a pipe.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import http from 'node:http';
import { INTERPRETER, routing, startEngine } from '../e2e/engine.mjs';
import { Client } from './client.mjs';
import { peakOf } from './processes.mjs';
import { interleave, median, ratio } from './stats.mjs';

const FLAT = 64; // MiB that the engine may grow by

/** Prints so many megabytes, in lines of a hundred bytes. */
const filling = (mb) => `for _ in range(${mb}):\n    print(('x' * 99 + '\\n') * 10000, end='')`;

/** Counts the bytes of a stream to its end. */
const count = async (stream) => {
  let bytes = 0;
  for await (const chunk of stream) bytes += chunk.length;
  return bytes;
};

/** By /execute: MB/s. */
async function printed({ url }, sandbox, mb) {
  const body = JSON.stringify({ code: filling(mb) });
  const begin = performance.now();
  const res = await new Promise((resolve, reject) => {
    const headers = { ...routing(sandbox, INTERPRETER), 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
    http.request(`${url}/execute`, { method: 'POST', agent: false, headers, timeout: 300_000 }, resolve).on('error', reject).end(body);
  });
  const bytes = await count(res);
  assert.ok(res.statusCode === 200 && bytes > mb * 1e6, `${res.statusCode}: only ${bytes} bytes came`);
  return (mb * 1000) / (performance.now() - begin);
}

/** By a Python of nobody's, which is started as well: MB/s. */
async function piped(mb) {
  const begin = performance.now();
  const child = spawn('/usr/bin/python3', ['-I', '-c', filling(mb)], { stdio: ['ignore', 'pipe', 'inherit'] });
  assert.equal(await count(child.stdout), mb * 1e6);
  return (mb * 1000) / (performance.now() - begin);
}

const timed = async (call) => {
  const begin = performance.now();
  await call();
  return performance.now() - begin;
};

/** Milliseconds of so many calls, the median. */
async function trip(calls, call) {
  const times = [];
  for (let i = 0; i < calls; i++) times.push(await timed(call));
  return median(times);
}

/** Milliseconds of each call as long as something goes on; at least one. */
async function tripsDuring(promise, call) {
  let over = false;
  const end = promise.finally(() => (over = true));
  end.catch(() => {}); // whoever began it looks at it
  const times = [];
  do times.push(await timed(call));
  while (!over);
  return median(times);
}

async function measure(engine, client, { rounds, calls, mb }) {
  const [talker, neighbour] = [await client.create(), await client.create()];
  const one = () => client.run(neighbour, '1+1', '"2"');
  await client.warmUp();
  await trip(calls, one);
  await client.run(talker, 'None', 'end_of_execution');
  const trips = await interleave(rounds, { run: () => trip(calls, one), health: () => trip(calls, () => client.health()) });
  const before = peakOf(engine);
  const rates = await interleave(rounds, {
    idle: () => trip(calls, one),
    piped: () => piped(mb),
    printed: async () => {
      const rate = printed(engine, talker, mb);
      return { busy: await tripsDuring(rate, one), rate: await rate };
    },
  });
  return { trips, rates, grown: peakOf(engine) - before };
}

function rows({ trips, rates, grown }, { mb }) {
  const [printed, busy] = [rates.printed.map((round) => round.rate), rates.printed.map((round) => round.busy)];
  return [
    {
      what: '1+1 in a kernel that has run, of GET /health',
      figure: `x ${ratio(trips.run, trips.health).toFixed(1)}`,
      detail: `${median(trips.run).toFixed(2)} of ${median(trips.health).toFixed(2)} ms`,
    },
    {
      what: `print of ${mb} MB, of a plain Python's into a pipe`,
      figure: ratio(printed, rates.piped).toFixed(2),
      detail: `${median(printed).toFixed(0)} of ${median(rates.piped).toFixed(0)} MB/s`,
    },
    {
      what: 'the engine grows by',
      figure: `${grown.toFixed(1)} MiB`,
      detail: 'at its peak',
      goal: `at most ${FLAT} MiB`,
      met: grown <= FLAT,
    },
    {
      what: "a neighbour's 1+1 meanwhile, of that when idle",
      figure: `x ${ratio(busy, rates.idle).toFixed(1)}`,
      detail: `${median(busy).toFixed(2)} of ${median(rates.idle).toFixed(2)} ms; the client reads all of it meanwhile, too`,
    },
  ];
}

export async function output(plan) {
  const engine = await startEngine({ args: ['--pool', '0'] });
  const client = new Client(engine);
  try {
    return rows(await measure(engine, client, plan), plan);
  } finally {
    client.close();
    await engine.stop();
  }
}
