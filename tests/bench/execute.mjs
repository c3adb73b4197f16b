// Execute 1+1 through nginx and the gateway, beside the same call made to the engine itself.
import assert from 'node:assert/strict';
import http from 'node:http';
import { call, callers, each } from './load.mjs';
import { interleave, median, quantile } from './stats.mjs';

/** A call that executes code, over kept connections, and must be answered with this. */
export const runs = (agent, { url, headers }, expect, code = '1+1') => async () => {
  const { status, text } = await call(agent, url, { method: 'POST', headers, body: JSON.stringify({ code }) });
  assert.ok(status === 200 && text.includes(expect), `${status} ${text}`);
};

/** Both ways of one session's call. */
async function both(world, id, agents) {
  const { gateway, engine } = await world.ways(id);
  return { gateway: runs(agents.gateway, gateway, '"output":"2\\n"'), engine: runs(agents.engine, engine, '"2"') };
}

/** rounds of so many calls each, by callers who have a session each: the milliseconds of every call, by way and round. */
async function compare(world, who, { rounds, calls }) {
  const agents = { gateway: new http.Agent({ keepAlive: true }), engine: new http.Agent({ keepAlive: true }) };
  const sessions = [];
  for (const id of who) sessions.push(await both(world, id, agents));
  const by = (way) => () => callers(who.length, Math.max(1, Math.ceil(calls / who.length)), (i) => sessions[i][way]());
  await by('gateway')(); // the pool has grown, and every kernel runs
  const times = await interleave(rounds, { gateway: by('gateway'), engine: by('engine') });
  for (const agent of Object.values(agents)) agent.destroy();
  return times;
}

function row(times, count, q, most) {
  const [ours, theirs] = [times.gateway, times.engine].map((rounds) => rounds.map((round) => quantile(round, q)));
  const overhead = median(ours.map((ms, round) => ms - theirs[round]));
  return {
    what: `${count} callers, p${q * 100}: more than the engine`,
    figure: `${overhead.toFixed(2)} ms`,
    detail: `${median(ours).toFixed(2)} ms, directly ${median(theirs).toFixed(2)} ms`,
    ...(most && { goal: `at most ${most} ms`, met: overhead <= most }),
  };
}

export async function execute(world, { few, many, rounds, calls }) {
  const all = Array.from({ length: many }, (_, i) => `execute-${i}`);
  await each(all, 4, (id) => world.session(id));
  const [calm, crowd] = [await compare(world, all.slice(0, few), { rounds, calls }), await compare(world, all, { rounds, calls })];
  await each(all, 4, (id) => world.g.session(id, { token: world.token }).stop());
  return [row(calm, few, 0.5, 1), row(calm, few, 0.99), row(crowd, many, 0.5), row(crowd, many, 0.99)];
}
