// The engine's own operations, each as a multiple of its GET /health: a ratio means the same on a slow and on a fast machine.
import assert from 'node:assert/strict';
import http from 'node:http';
import { INTERPRETER, KEY, routing } from '../e2e/engine.mjs';
import { call } from './load.mjs';
import { median } from './stats.mjs';

export async function engineCalls({ engine }, { rounds }) {
  const agent = new http.Agent({ keepAlive: true });
  const times = new Map();
  const ask = async (name, method, target, { headers, ...rest } = {}) => {
    const begin = performance.now();
    const { status, text } = await call(agent, engine.url + target, { method, headers: { 'x-api-key': KEY, ...headers }, ...rest });
    times.set(name, [...(times.get(name) ?? []), performance.now() - begin]);
    assert.ok(status < 300, `${name}: ${status} ${text}`);
    return text;
  };
  const create = async (template) => {
    const body = JSON.stringify({ templateID: template, timeout: 300 });
    const { sandboxID, envdAccessToken } = JSON.parse(await ask(`create ${template}`, 'POST', '/v2/sandboxes', { body }));
    return { sandboxId: sandboxID, envdAccessToken };
  };
  const kill = (template, { sandboxId }) => ask(`kill ${template}`, 'DELETE', `/sandboxes/${sandboxId}`);
  const execute = (name, sandbox) => ask(name, 'POST', '/execute', { headers: routing(sandbox, INTERPRETER), body: '{"code":"1+1"}' });

  for (let i = 0; i < rounds; i++) {
    await ask('GET /health', 'GET', '/health');
    await kill('base', await create('base'));
    const sandbox = await create('code-interpreter-v1');
    await execute('first 1+1', sandbox);
    await execute('1+1', sandbox);
    await kill('code-interpreter-v1', sandbox);
  }
  agent.destroy();
  const health = median(times.get('GET /health'));
  return [...times].map(([what, all]) => ({
    what,
    figure: `x ${(median(all) / health).toFixed(1)}`,
    detail: `${median(all).toFixed(2)} ms, at most ${Math.max(...all).toFixed(2)} ms`,
  }));
}
