// GET status with auth, beside what nginx does alone, the same without auth, and Node in the gateway's place.
import assert from 'node:assert/strict';
import { request } from '../e2e/engine.mjs';
import { wrk } from './load.mjs';
import { interleave, median, ratio } from './stats.mjs';
import { STATUS, hasNode } from './world.mjs';

const thousands = (n) => Math.round(n).toLocaleString('en');

/** They must give the same answer, or the comparison means nothing. */
async function assertSame(world, servers) {
  const { headers } = world.site(STATUS, 'status');
  const answers = await Promise.all(Object.values(servers).map((url) => request(url, { headers })));
  for (const res of answers) assert.deepEqual([res.status, res.json], [200, answers[0].json]);
}

export async function status(world, { rounds, seconds }) {
  const route = `/api/v1/session/${STATUS}/sandbox/status`;
  const servers = {
    site: `${world.url('SITE')}${route}`,
    asked: `${world.url('ASKED')}${route}`,
    open: `${world.url('OPEN')}${route}`,
    return: `${world.url('SITE')}/return`,
    ...(hasNode() && { node: `${world.url('NODE')}${route}` }),
  };
  await assertSame(world, servers);
  const measures = Object.entries(servers).map(([name, url]) => [name, async () => (await wrk(world, url, { seconds, token: world.token })).rate]);
  const rates = await interleave(rounds, Object.fromEntries(measures));

  const row = (what, ours, theirs, least) => {
    const figure = ratio(rates[ours], rates[theirs]);
    return {
      what,
      figure: figure.toFixed(2),
      detail: `${thousands(median(rates[ours]))}/s of ${thousands(median(rates[theirs]))}/s`,
      ...(least && { goal: `at least ${least.toFixed(2)}`, met: figure >= least }),
    };
  };
  return [
    row('of nginx\'s own "return 200"', 'site', 'return', 0.12),
    row('the same, nobody remembered', 'asked', 'return'),
    row('of the same without auth', 'site', 'open', 0.8),
    row('the same, nobody remembered', 'asked', 'open'),
    ...(hasNode() ? [row('of Node (Fastify, better-sqlite3)', 'site', 'node', 1)] : []),
  ];
}
