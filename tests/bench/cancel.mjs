// How soon code is interrupted when its client leaves: from closing the client's socket to KeyboardInterrupt in the sandbox. And how soon
// its context is free when it is cancelled: from the DELETE to the first line of the run that waits for its turn. All by the machine's
// monotonic clock.
import assert from 'node:assert/strict';
import http from 'node:http';
import { until } from '../e2e/engine.mjs';
import { median, quantile } from './stats.mjs';

const CODE = `
import time
try:
    print('began', flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    interrupted_at = time.monotonic_ns()
`;

async function once(world, session) {
  const { url, headers } = world.site('cancel', 'execute');
  const body = JSON.stringify({ code: CODE });
  const req = http.request(url, { method: 'POST', agent: false, headers: { 'content-length': body.length, ...headers } });
  req.on('error', () => {}).end(body); // it never gets an answer
  await world.g.printed('cancel', 'began');
  const left = process.hrtime.bigint();
  req.destroy();
  const { json } = await session.execute('print(interrupted_at)');
  assert.ok(json.success, json.error);
  return Number(BigInt(json.stdout.trim()) - left) / 1e6;
}

/** Milliseconds until the next run begins, and until the DELETE is answered. */
async function freed(world, session) {
  const { json } = await session.run({ code: CODE, detach: true });
  await world.g.printed('cancel', 'began');
  const next = session.execute('import time\nprint(time.monotonic_ns())');
  const both = "SELECT count(*) AS n FROM executions WHERE session_id = 'cancel' AND state IN ('queued', 'running')";
  await until(async () => (await world.g.rows(both))[0].n === 2, { deadline: 60_000, what: 'a run that waits' });
  const began = process.hrtime.bigint();
  const since = (at) => Number(at - began) / 1e6;
  const cancelled = await session.cancel(json.execution_id);
  const answered = since(process.hrtime.bigint());
  assert.equal(cancelled.json?.cancelled_by, 'interrupt', cancelled.text);
  return { next: since(BigInt((await next).json.stdout.trim())), answered };
}

function row(what, samples, goal) {
  const p90 = quantile(samples, 0.9);
  return {
    what: `${what}, p90`,
    figure: `${p90.toFixed(1)} ms`,
    detail: `median ${median(samples).toFixed(1)} ms, worst of ${samples.length} ${Math.max(...samples).toFixed(1)} ms`,
    ...(goal && { goal: `at most ${goal} ms`, met: p90 <= goal }),
  };
}

export async function cancel(world, { times }) {
  const session = await world.session('cancel');
  const [left, stopped] = [[], []];
  for (let i = 0; i < times; i++) {
    left.push(await once(world, session));
    stopped.push(await freed(world, session));
  }
  await session.stop();
  return [
    row('the client leaves: to KeyboardInterrupt in the sandbox', left, 10),
    row('DELETE: to the beginning of the next run', stopped.map(({ next }) => next)),
    row('DELETE: to its answer', stopped.map(({ answered }) => answered)),
  ];
}
