// A client of one engine that costs little: raw calls over kept connections.
import assert from 'node:assert/strict';
import http from 'node:http';
import { INTERPRETER, KEY, routing } from '../e2e/engine.mjs';
import { call } from './load.mjs';

export class Client {
  constructor({ url }) {
    this.url = url;
    this.agent = new http.Agent({ keepAlive: true });
  }

  async #ask(method, target, headers, body) {
    const { status, text } = await call(this.agent, this.url + target, { method, headers, body });
    assert.ok(status < 300, `${method} ${target}: ${status} ${text}`);
    return text;
  }

  health() {
    return this.#ask('GET', '/health');
  }

  async create({ internet = true } = {}) {
    const body = JSON.stringify({ templateID: 'code-interpreter-v1', timeout: 3600, allow_internet_access: internet });
    const { sandboxID, envdAccessToken } = JSON.parse(await this.#ask('POST', '/v2/sandboxes', { 'x-api-key': KEY }, body));
    return { sandboxId: sandboxID, envdAccessToken };
  }

  /** Runs code, whose answer must have this in it. */
  async run(sandbox, code, expect) {
    const text = await this.#ask('POST', '/execute', routing(sandbox, INTERPRETER), JSON.stringify({ code }));
    assert.ok(text.includes(expect), text);
  }

  kill({ sandboxId }) {
    return this.#ask('DELETE', `/sandboxes/${sandboxId}`, { 'x-api-key': KEY });
  }

  /** The first calls of a Node are slow. */
  async warmUp() {
    for (let i = 0; i < 50; i++) await this.health();
  }

  close() {
    this.agent.destroy();
  }
}
