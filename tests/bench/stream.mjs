// Output as it comes, by server-sent events through nginx and the gateway, beside reading what the engine itself sends. When something was
// printed is in what was printed, by the machine's monotonic clock.
import assert from 'node:assert/strict';
import http from 'node:http';
import { interleave, median, quantile, ratio } from './stats.mjs';

const MB = 1e6;
const EVERY = 0.005; // seconds between two pieces

/** Prints the time, again and again. */
const ticking = (pieces) => `
import time
for _ in range(${pieces}):
    print(f'@{time.monotonic_ns()};', flush=True)
    time.sleep(${EVERY})
`;

const filling = (mb) => `
import sys
for _ in range(${mb}):
    sys.stdout.write(('x' * 99 + '\\n') * 10000)
`;

const nanoseconds = () => Number(process.hrtime.bigint());

/** Executes code and gives each chunk of the answer to take(). Streams have connections of their own: that of one which is read is busy. */
function read({ url, headers }, code, take) {
  const body = JSON.stringify({ code });
  const fields = { accept: 'text/event-stream', 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
  return new Promise((resolve, reject) => {
    const req = http.request(url, { method: 'POST', agent: false, headers: { ...headers, ...fields }, timeout: 120_000 }, (res) => {
      if (res.statusCode !== 200) reject(new Error(`${url}: ${res.statusCode}`));
      res.on('data', take).on('end', resolve).on('error', reject);
    });
    req.on('timeout', () => req.destroy(new Error(`${url} took more than 120 s`)));
    req.on('error', reject).end(body);
  });
}

/** Milliseconds from the call to the first byte and to the first output, and from printing each piece to having it. */
async function ticks(way, pieces) {
  const began = nanoseconds();
  const seen = { late: [] };
  let rest = '';
  await read(way, ticking(pieces), (chunk) => {
    const now = nanoseconds();
    seen.byte ??= (now - began) / 1e6;
    rest = (rest + chunk).replaceAll(/[^@]*@(\d+);/g, (_, printed) => {
      if (seen.late.length === pieces) return ''; // the last event has all of it once more
      seen.output ??= (now - began) / 1e6;
      seen.late.push((now - Number(printed)) / 1e6);
      return '';
    });
  });
  assert.equal(seen.late.length, pieces);
  return seen;
}

/** Megabytes of output a second. */
async function fill(way, mb) {
  const began = performance.now();
  let bytes = 0;
  await read(way, filling(mb), (chunk) => (bytes += chunk.length));
  assert.ok(bytes > mb * MB, `only ${bytes} bytes came`);
  return (mb * 1000) / (performance.now() - began);
}

async function several(way, times) {
  const all = [];
  for (let i = 0; i < times; i++) all.push(await ticks(way, 1));
  return all;
}

function later(what, rounds, q, of, goal) {
  const [ours, theirs] = [rounds.gateway, rounds.engine].map((all) => all.map((round) => quantile(of(round), q)));
  const more = median(ours.map((ms, i) => ms - theirs[i]));
  return {
    what: `${what}, p${q * 100}: more than the engine`,
    figure: `${more.toFixed(2)} ms`,
    detail: `${median(ours).toFixed(2)} ms, directly ${median(theirs).toFixed(2)} ms`,
    ...(goal && { goal: `at most ${goal} ms`, met: more <= goal }),
  };
}

export async function stream(world, { rounds, streams, pieces, mb }) {
  const session = await world.session('stream');
  const ways = await world.ways('stream');
  const each = (fn) => interleave(rounds, { gateway: () => fn(ways.gateway), engine: () => fn(ways.engine) });
  await several(ways.gateway, 3);
  const [first, all, rates] = [await each((way) => several(way, streams)), await each((way) => ticks(way, pieces)), await each((way) => fill(way, mb))];
  await session.stop();
  return [
    later('first byte', first, 0.5, (round) => round.map((seen) => seen.byte)),
    later('first output', first, 0.5, (round) => round.map((seen) => seen.output)),
    later('a piece of output', all, 0.5, (round) => round.late, 5),
    later('a piece of output', all, 0.99, (round) => round.late),
    {
      what: `${mb} MB of output, of reading the engine`,
      figure: ratio(rates.gateway, rates.engine).toFixed(2),
      detail: `${median(rates.gateway).toFixed(0)} of ${median(rates.engine).toFixed(0)} MB/s`,
    },
  ];
}
