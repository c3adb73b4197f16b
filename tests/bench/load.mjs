// Load: wrk for throughput, callers of our own for the time of each call, curl for files.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

const UNITS = { us: 1e-3, ms: 1, s: 1000, m: 60_000 };
const duration = (text) => parseFloat(text) * UNITS[text.replace(/[\d.]/g, '')];

/**
 * wrk on one address for so many seconds, over a few kept connections: { rate, p50, p99 } in calls a second and milliseconds.
 * paths: Lua that gives the path of each call, in place of the address's own.
 */
export async function wrk(world, url, { seconds = 1, connections = 8, paths, token } = {}) {
  // In a file: a command line can be read by everyone.
  const script = path.join(world.dir, `wrk-${randomBytes(6).toString('hex')}.lua`);
  const header = token ? `wrk.headers["Authorization"] = "Bearer ${token}"\n` : '';
  fs.writeFileSync(script, `${header}${paths ? `request = function() return wrk.format(nil, ${paths}) end\n` : ''}`, { mode: 0o600 });
  const args = ['-t1', `-c${connections}`, `-d${seconds}s`, '--latency', '--timeout', '30s', '-s', script, url];
  const { stdout } = await run('wrk', args, { timeout: (seconds + 30) * 1000 });
  fs.rmSync(script);
  assert.doesNotMatch(stdout, /Non-2xx|Socket errors/, `${url}\n${stdout}`);
  const found = (pattern) => stdout.match(pattern)?.[1] ?? assert.fail(`wrk said\n${stdout}`);
  return {
    rate: Number(found(/^Requests\/sec:\s+([\d.]+)/m)),
    p50: duration(found(/^\s+50%\s+(\S+)/m)),
    p99: duration(found(/^\s+99%\s+(\S+)/m)),
  };
}

/** A call over a kept connection: its status and text. */
export function call(agent, url, { method = 'GET', headers = {}, body, deadline = 120_000 } = {}) {
  return new Promise((resolve, reject) => {
    const length = body === undefined ? {} : { 'content-length': Buffer.byteLength(body), 'content-type': 'application/json' };
    const req = http.request(url, { method, agent, headers: { ...length, ...headers }, timeout: deadline }, (res) => {
      const chunks = [];
      res.on('data', (d) => chunks.push(d)).on('end', () => resolve({ status: res.statusCode, text: Buffer.concat(chunks).toString() }));
      res.on('error', reject);
    });
    req.on('timeout', () => req.destroy(new Error(`${method} ${url} took more than ${deadline} ms`)));
    req.on('error', reject).end(body);
  });
}

/** So many callers at once, each making one call after the other: the milliseconds of every call. */
export async function callers(count, each, once) {
  const times = [];
  const caller = async (who) => {
    for (let i = 0; i < each; i++) {
      const begin = performance.now();
      await once(who);
      times.push(performance.now() - begin);
    }
  };
  await Promise.all(Array.from({ length: count }, (_, who) => caller(who)));
  return times;
}

/** Does something for each, so many at a time. */
export async function each(items, width, fn) {
  const rest = [...items];
  await Promise.all(
    Array.from({ length: Math.min(width, rest.length) }, async () => {
      while (rest.length) await fn(rest.shift());
    }),
  );
}

/** Lines of curl's configuration. */
export const option = (name, value) => `${name} = "${value.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`;
export const fields = (headers) => Object.entries(headers).map(([name, value]) => option('header', `${name}: ${value}`));
export const SINK = option('output', '/dev/null');

/** curl, its options on stdin because they hold tokens: the seconds that the transfer took. */
export async function curl(options) {
  const lines = ['silent', 'show-error', 'fail', 'max-time = 300', 'write-out = "%{stderr}%{time_total}"', ...options];
  const child = run('curl', ['--config', '-'], { timeout: 310_000, maxBuffer: 1 << 20 });
  child.child.stdin.end(lines.join('\n'));
  const { stderr } = await child;
  return Number(stderr.trim());
}
