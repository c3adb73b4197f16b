// How soon code is interrupted when its client leaves: from closing the client's socket to KeyboardInterrupt in the sandbox. Both read
// the machine's monotonic clock.
import assert from 'node:assert/strict';
import http from 'node:http';
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

export async function cancel(world, { times }) {
  const session = await world.session('cancel');
  const samples = [];
  for (let i = 0; i < times; i++) samples.push(await once(world, session));
  await session.stop();
  const worst = Math.max(...samples);
  return [
    {
      what: 'to KeyboardInterrupt in the sandbox, p90',
      figure: `${quantile(samples, 0.9).toFixed(1)} ms`,
      detail: `median ${median(samples).toFixed(1)} ms, worst of ${times} ${worst.toFixed(1)} ms`,
      goal: 'at most 10 ms',
      met: quantile(samples, 0.9) <= 10,
    },
  ];
}
