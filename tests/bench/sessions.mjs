// Many sessions in the database beside few: nothing that a user waits for may grow with them.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { promisify } from 'node:util';
import { BUILD } from '../e2e/engine.mjs';
import { startGateway } from '../e2e/gateway.mjs';
import { call, callers, wrk } from './load.mjs';
import { startStandin } from './standin.mjs';
import { interleave, median, quantile, ratio } from './stats.mjs';
import { RAISED, USER } from './world.mjs';

const run = promisify(execFile);
const FEW = 10;
const RUNS = 5; // that each session has had
const SAME = 0.8; // what differs by less is noise

const LIVE = 'owner, session_id, generation, sandbox_id, type, template, status, created_at, last_activity, expires_at, lifetime_at, provider_end_at';
const CLAIM = 'nonce, claim_deadline, claim_slot, claim_pid, claim_start';

/** Rows as the gateway would have left them: a sandbox that lives, one before it, and some runs. */
function rows(i, id, now) {
  const later = now + 3_600_000_000;
  const who = `'${USER}', 'n-${i}'`;
  const kind = "'code_interpreter', 'standin'";
  return `
INSERT INTO sandboxes (${LIVE}, ${CLAIM}, end_reason, destroyed_at)
  VALUES (${who}, 1, 'ended${id}', ${kind}, 'ended', ${now}, ${now}, ${later}, ${later}, ${later}, 'old${id}', 0, 0, 0, 0, 'stopped', ${now});
INSERT INTO sandboxes (${LIVE}, ${CLAIM})
  VALUES (${who}, 2, '${id}', ${kind}, 'running', ${now}, ${now}, ${later}, ${later}, ${later}, 'new${id}', 0, 0, 0, 0);
INSERT INTO executions (id, sandbox, owner, session_id, generation, kind, state, input, input_bytes, pid, start, started_at, ended_at)
  SELECT 'x_${id}' || value, last_insert_rowid(), ${who}, 2, 'code', 'succeeded', '1+1', 3, 1, 1, ${now}, ${now}
  FROM generate_series(1, ${RUNS});`;
}

/** A gateway that has so many sessions, all of them known to its provider. */
async function startSite(count) {
  const standin = await startStandin();
  const g = await startGateway({ engine: standin, quiet: true, settings: RAISED });
  const { SANDGATE_INSTANCE, SANDGATE_ENVIRONMENT } = g.settings;
  const labels = { sandgate_instance: SANDGATE_INSTANCE, sandgate_environment: SANDGATE_ENVIRONMENT };
  const now = Date.now() * 1000;
  const file = path.join(g.dir, 'rows.sql');
  const all = Array.from({ length: count }, (_, i) => rows(i, standin.add(labels), now));
  fs.writeFileSync(file, `PRAGMA busy_timeout = 10000;\nBEGIN IMMEDIATE;${all.join('')}\nCOMMIT;\nPRAGMA wal_checkpoint(TRUNCATE);\n`);
  await run('sqlite3', ['-bail', path.join(g.state, 'sandgate.db'), `.read ${file}`]);
  return { g, standin, count, dir: g.dir, token: await g.token(USER) };
}

async function stopSite({ g, standin }) {
  await g.stop();
  await standin.close();
}

const status = (site, seconds) => async () => {
  const paths = `string.format("/api/v1/session/n-%d/sandbox/status", math.random(0, ${site.count - 1}))`;
  return (await wrk(site, site.g.url, { seconds, paths, token: site.token })).rate;
};

const execute = (site, calls) => async () => {
  const agent = new http.Agent({ keepAlive: true });
  const headers = { authorization: `Bearer ${site.token}` };
  const times = await callers(2, calls, async () => {
    const url = `${site.g.url}/api/v1/session/n-${Math.floor(Math.random() * site.count)}/sandbox/execute`;
    const { status, text } = await call(agent, url, { method: 'POST', headers, body: '{"code":"1+1"}' });
    assert.equal(status, 200, text);
  });
  agent.destroy();
  return quantile(times, 0.5);
};

const cleanup = (site) => async () => {
  const begin = performance.now();
  await run(path.join(BUILD, 'sandgate-cleanup'), ['-c', site.g.config], { timeout: 120_000 });
  return performance.now() - begin;
};

export async function sessions({ many, rounds, seconds, calls }) {
  const [few, lots] = [await startSite(FEW), await startSite(many)];
  try {
    const pair = (measure, ...plan) => interleave(rounds, { few: measure(few, ...plan), many: measure(lots, ...plan) });
    const [rates, times, passes] = [await pair(status, seconds), await pair(execute, calls), await pair(cleanup)];
    const [rate, slower] = [ratio(rates.many, rates.few), ratio(times.many, times.few)];
    return [
      {
        what: `GET status with ${many} sessions, of that with ${FEW}`,
        figure: rate.toFixed(2),
        detail: `${median(rates.many).toFixed(0)}/s of ${median(rates.few).toFixed(0)}/s`,
        goal: `at least ${SAME}`,
        met: rate >= SAME,
      },
      {
        what: `execute with ${many} sessions, p50 of that with ${FEW}`,
        figure: slower.toFixed(2),
        detail: `${median(times.many).toFixed(2)} ms, ${median(times.few).toFixed(2)} ms; stand-in provider`,
        goal: `at most ${(1 / SAME).toFixed(2)}`,
        met: slower <= 1 / SAME,
      },
      {
        what: `a pass of sandgate-cleanup, ${many} live sandboxes`,
        figure: `${median(passes.many).toFixed(0)} ms`,
        detail: `with ${FEW} ${median(passes.few).toFixed(0)} ms; it reads the provider's list of them, 100 at a time`,
      },
    ];
  } finally {
    await Promise.all([few, lots].map(stopSite));
  }
}
