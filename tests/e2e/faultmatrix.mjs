// Every fault of the provider against every operation: the two lists, the table of what is expected, and a gateway behind a proxy
// that plays one fault against all operations at once. See faults.tsv.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { assertProblem, startGateway } from './gateway.mjs';
import { startProxy } from './proxy.mjs';

const TABLE = path.join(path.dirname(fileURLToPath(import.meta.url)), 'faults.tsv');
const COLUMNS = ['fault', 'operation', 'call', 'status', 'code', 'sandbox'];
const PROVIDER_SECS = 4; // the time that one call to the provider may take
const WORDS = 'words of the provider'; // which no client may see
const DATA = Buffer.from('some bytes of a file, neither many nor few, that are all to arrive\n'.repeat(2));
const LONG_NAME = `${'n'.repeat(100)}.bin`; // the answer to a write names it, and so takes long to drip
const MARK = `open('/home/user/ran', 'a').write('x')\nprint('it ran')`;

// ---------------------------------------------------------------------------------------------------------------- the two lists

const says = (status, headers = {}) => ({ answer: { status, headers, json: { code: status, message: WORDS } } });
const edge = (message) => ({ answer: { status: 502, json: { sandboxId: 'i0', message: `${message}: ${WORDS}`, code: 502 } } });
const html = `<html><head><title>502 Bad Gateway</title></head><body>${WORDS}</body></html>`;

/** What the proxy does to the call. 'refuse' is not here: nobody listens at all, for any call. The slowest comes first. */
export const ACTIONS = new Map([
  ['timeout', { delay: Infinity }],
  ['drip', { drip: 40 }],
  ['502-no-port', edge('The sandbox is running but port is not open')],
  ['close', { refuse: true }],
  ['reset-0', { dropReply: true, reset: true }],
  ['reset-5', { cut: 5, reset: true }],
  ['drop-reply', { dropReply: true }],
  ['401', says(401)],
  ['403', says(403)],
  ['404', says(404)],
  ['409', says(409)],
  ['429', says(429)],
  ['429-retry-after', says(429, { 'retry-after': '1' })],
  ['500', says(500)],
  ['502-gateway', { answer: { status: 502, headers: { 'content-type': 'text/html' }, body: html } }],
  ['502-no-sandbox', edge('The sandbox was not found')],
  ['503', says(503)],
  ['garbage', { garbage: true }],
  ['half', { half: true }],
  ['half-cut', { cut: 'half' }],
]);
export const FAULTS = ['refuse', ...ACTIONS.keys()];

/** Calls for the cell's sandbox: 'POST /execute', 'DELETE /sandboxes/ID'; '-' is any call at all. */
function inside(call) {
  const [method, target] = call === '-' ? [] : call.split(' ');
  return (cell) => ({ method, path: target?.replace('ID', cell.sandboxId), sandbox: cell.sandboxId });
}

const creates = (cell) => ({ method: 'POST', path: /^(\/v2)?\/sandboxes$/, body: cell.id });

/** call: what is hit; match: how the proxy knows it. run: the operation; what it gives is judged by Cell.judge(). */
export const OPERATIONS = new Map(
  [
    ['start', 'POST /v2/sandboxes', (cell) => cell.start(), creates],
    ['stop', 'DELETE /sandboxes/ID', (cell) => cell.s.stop()],
    ['status', '-', (cell) => cell.s.status()],
    ['execute', 'POST /execute', (cell) => cell.s.execute(MARK)],
    ['stream', 'POST /execute', (cell) => cell.stream()],
    ['install', 'POST /process.Process/Start', (cell) => cell.s.install(['numpy'])],
    ['upload', 'POST /files', (cell) => cell.s.upload(LONG_NAME, DATA)],
    ['download', 'GET /files', (cell) => cell.download()],
    ['files', 'POST /filesystem.Filesystem/ListDir', (cell) => cell.s.files('/')],
    ['cleanup', 'DELETE /sandboxes/ID', (cell) => cell.lane.g.cleanup()],
  ].map(([name, call, run, match = inside(call)]) => [name, { call, run, match }]),
);

/** The rows of faults.tsv: { fault, operation, call, status, code, sandbox }. */
export function readTable() {
  const lines = fs.readFileSync(TABLE, 'utf8').split('\n').filter((l) => l && !l.startsWith('#'));
  const rows = lines.map((line) => {
    const fields = line.split('\t');
    assert.equal(fields.length, COLUMNS.length, `faults.tsv: ${line}`);
    return Object.fromEntries(COLUMNS.map((name, i) => [name, fields[i]]));
  });
  return rows.map((row) => ({ ...row, status: Number(row.status) }));
}

// ---------------------------------------------------------------------------------------------------------------- one cell

/** One fault against one operation, in a session of its own. */
class Cell {
  constructor(lane, row) {
    Object.assign(this, row, { lane, expected: row, id: `${row.fault}.${row.operation}`, problems: [] });
    this.s = lane.g.session(this.id, { deadline: 120_000 });
    this.op = OPERATIONS.get(row.operation);
  }

  start() {
    return this.s.start({ metadata: { cell: this.id } });
  }

  /** Its last event as if it were the answer. */
  async stream() {
    const s = await this.s.stream({ code: MARK });
    const { event, data } = await s.end();
    return { status: s.res.status, headers: s.res.headers, event, json: data, text: JSON.stringify(data) };
  }

  async download() {
    const res = await this.lane.g.open('GET', `${this.s.base}/download?path=/home/user/there`, { deadline: 120_000 });
    const chunks = [];
    const whole = await (async () => {
      for await (const chunk of res) chunks.push(chunk);
      return true;
    })().catch(() => false);
    const body = Buffer.concat(chunks);
    const text = body.toString();
    return { status: res.status, headers: res.headers, body, text, whole, get json() { return JSON.parse(text); } };
  }

  /** What went wrong is kept: the other cells go on. */
  async tried(what, fn) {
    try {
      await fn();
    } catch (e) {
      this.problems.push(`${this.id}: ${what}: ${e.message.replaceAll(/\s+/g, ' ')}`);
    }
  }

  /** A session with a sandbox, but where a start is to be tried. */
  async prepare() {
    if (this.operation === 'start') return;
    const res = await this.start();
    assert.equal(res.status, 200, res.text);
    this.sandboxId = res.json.sandbox_id;
    if (this.operation === 'cleanup') await this.lane.g.rows(`UPDATE sandboxes SET expires_at = 1 WHERE session_id = '${this.id}'`);
    if (this.operation !== 'download') return;
    const sent = await this.s.upload('there', DATA, '/home/user');
    assert.equal(sent.status, 200, sent.text);
  }

  spoil() {
    const action = ACTIONS.get(this.fault);
    if (action) this.active = this.lane.proxy.fault(this.op.match(this), action);
  }

  async run() {
    await this.tried('the call', async () => (this.answer = await this.op.run(this)));
  }

  heal() {
    this.active?.remove();
  }

  // -------------------------------------------------------------------------------------------------------------- the answer

  async judge() {
    const { answer, expected } = this;
    if (!answer) return;
    await this.tried('the answer', () => {
      if (this.operation === 'cleanup') assert.deepEqual([answer.code, '-'], [expected.status, expected.code], answer.text);
      else if (expected.status < 300) this.judgeSuccess();
      else this.judgeProblem();
    });
    if (this.operation === 'status') await this.tried('no call to the provider', () => assert.equal(this.active?.hits ?? 0, 0));
    else if (this.active) await this.tried('the fault was met', () => assert.ok(this.active.hits > 0));
    if (this.operation !== 'cleanup') await this.tried('words', () => assert.ok(!answer.text.includes(WORDS), answer.text));
  }

  judgeProblem() {
    const { answer, expected } = this;
    assertProblem(answer, expected.status, expected.code);
    if (expected.status === 503 || expected.status === 429) assert.match(answer.headers['retry-after'] ?? '', /^\d+$/);
    if (expected.code === 'completion_unknown') assert.match(answer.json.execution_id, /^x_/);
  }

  judgeSuccess() {
    const { answer, expected } = this;
    assert.equal(answer.status, expected.status, answer.text);
    const more = {
      start: () => assert.equal(answer.json.status, 'running'),
      status: () => assert.equal(answer.json.sandbox_id, this.sandboxId),
      execute: () => assert.equal(answer.json.output, 'it ran\n'),
      stream: () => this.judgeStream(),
      install: () => assert.equal(answer.json.success, true, answer.text),
      upload: () => assert.equal(answer.json.sha256, createHash('sha256').update(DATA).digest('hex')),
      download: () => this.judgeDownload(),
      files: () => assert.ok(answer.json.length > 5),
    };
    more[this.operation]?.();
  }

  judgeStream() {
    const { answer, expected } = this;
    assert.deepEqual([answer.event, answer.json.code ?? '-'], [expected.code === '-' ? 'done' : 'failed', expected.code], answer.text);
    if (expected.code === '-') assert.equal(answer.json.output, 'it ran\n');
    else assert.equal(answer.json.request_id, answer.headers['x-request-id']);
    assert.equal(answer.json.execution_id, answer.headers['x-execution-id']);
  }

  /** Bytes are bytes: nobody can see that they are other ones, but that there are too few can be seen. */
  judgeDownload() {
    const { answer, expected } = this;
    assert.equal(answer.whole ? '-' : 'cut', expected.code);
    if (answer.whole && !['garbage', 'half'].includes(this.fault)) assert.deepEqual(answer.body, DATA);
  }

  // -------------------------------------------------------------------------------------------------------------- what is left

  /** Calls of the operation's kind that the proxy has passed on. */
  passed() {
    const { method, path: target, sandbox } = this.op.match(this);
    return this.lane.proxy.requests.filter((r) => r.passed && r.method === method && r.path === target && r.sandbox === sandbox);
  }

  /** At the provider, right after the operation. */
  async look(all) {
    const own = all.filter((s) => s.metadata.cell === this.id).map((s) => s.sandboxID);
    await this.tried('the sandbox', () => assert.equal(own.length, this.expected.sandbox === 'lives' ? 1 : 0));
    const creates = this.lane.proxy.requests.filter((r) => r.method === 'POST' && r.body?.includes(`"${this.id}"`) && r.passed === 201);
    await this.tried('creates', () => assert.ok(creates.length <= 1, `${creates.length} sandboxes were made`));
    if (['execute', 'stream', 'install'].includes(this.operation)) await this.tried('its row', () => this.judgeRow());
    if (['execute', 'stream', 'upload'].includes(this.operation)) await this.tried('its traces', () => this.judgeTraces());
  }

  async judgeRow() {
    const { code } = this.expected;
    const rows = await this.lane.g.rows(`SELECT state FROM executions WHERE session_id = '${this.id}' ORDER BY seq`);
    const state = code === '-' ? 'succeeded' : code === 'completion_unknown' ? code : 'failed';
    // What a sandbox has certainly not begun, since the provider denies that there is one, may be tried again.
    const tries = this.fault === '502-no-sandbox' ? rows.length : 1;
    assert.ok(tries <= 3, `${tries} tries`);
    assert.deepEqual(rows, [...Array(tries - 1).fill({ state: 'failed' }), { state }]);
    assert.ok(this.passed().length <= 1, `it was sent ${this.passed().length} times`);
  }

  /** Asked of the engine itself: what ran did so once, and an upload is there when, and only when, its answer said so. */
  async judgeTraces() {
    const { engine } = this.lane.g;
    const [{ envd_token: envdAccessToken }] = await this.lane.g.history(this.id);
    const sandbox = { sandboxId: this.sandboxId, envdAccessToken };
    if (this.operation !== 'upload') {
      const { status, text } = await engine.envd(sandbox, 'GET', '/files?path=/home/user/ran');
      const marks = status === 200 ? text : '';
      if (this.fault !== 'reset-5' || marks) assert.equal(marks, 'x'.repeat(this.passed().length)); // there it may be interrupted first
      return;
    }
    const list = await engine.rpc(sandbox, 'filesystem.Filesystem/ListDir', { path: '/home/user/upload', depth: 1 });
    const names = (list.json.entries ?? []).map((e) => e.name);
    assert.deepEqual(names, this.expected.status === 200 ? [LONG_NAME] : []);
  }

  /** Once all is tidied up: the provider has what the rows say, and the session can be used as before. */
  async settle(all) {
    const ended = this.operation === 'stop' || this.operation === 'cleanup';
    const rows = await this.lane.g.history(this.id);
    const live = rows.filter((r) => !['ended', 'stopping'].includes(r.status)).map((r) => r.sandbox_id);
    const own = all.filter((s) => s.metadata.cell === this.id).map((s) => s.sandboxID);
    await this.tried('provider and rows', () => assert.deepEqual(own, live));
    await this.tried('kills', () => assert.deepEqual(rows.filter((r) => r.status === 'stopping').map((r) => r.id), []));
    await this.tried('its end', () => assert.equal(own.length, ended || this.expected.sandbox === 'none' ? 0 : 1));
    if (this.operation === 'cleanup') return;
    await this.tried('the next call', async () => {
      const next = await this.s.execute('print(40 + 2)');
      assert.deepEqual([next.status, next.json.output, next.json.state_lost], [200, '42\n', false], next.text);
      assert.equal(next.json.generation, ended ? 2 : 1);
    });
  }
}

// ---------------------------------------------------------------------------------------------------------------- one gateway

/** A gateway with a proxy of its own, for one fault after the other. */
export async function startLane(engine) {
  const proxy = await startProxy(engine.url);
  const settings = { SANDGATE_PROVIDER_TIMEOUT_SECS: PROVIDER_SECS, SANDGATE_ORPHAN_GRACE_SECS: 0, SANDGATE_QUICK_WORKERS: 2 };
  const g = await startGateway({ engine, api: proxy.url, settings });
  return new Lane(g, proxy);
}

class Lane {
  constructor(g, proxy) {
    Object.assign(this, { g, proxy });
  }

  /** Passes of cleanup until one finds nothing to do; an orphan has to be seen twice. What was asked for is let look old: else a
   *  create whose reply never came would be waited for. */
  async tidy() {
    await this.g.rows(`UPDATE sandboxes SET claim_deadline = 1 WHERE status = 'stopping'`);
    for (let i = 0; i < 4; i++) {
      const { code, summary } = await this.g.cleanup();
      if (code === 0 && summary.killed === '0' && summary.orphans_seen === '0' && summary.orphans_killed === '0') return;
    }
  }

  async down() {
    await this.proxy.down();
    this.isDown = true;
  }

  async heal(cells) {
    for (const cell of cells) cell.heal();
    if (this.isDown) await this.proxy.up();
    this.isDown = false;
  }

  /** Plays it against these operations at once. */
  async strike(fault, cells) {
    for (const cell of cells) await cell.prepare();
    try {
      if (fault === 'refuse') await this.down();
      for (const cell of cells) cell.spoil();
      await Promise.all(cells.map((cell) => cell.run()));
    } finally {
      await this.heal(cells);
    }
    const all = await this.g.labelled();
    for (const cell of cells) {
      await cell.judge();
      await cell.look(all);
    }
    await this.tidy();
    const left = await this.g.labelled();
    await Promise.all(cells.map((cell) => cell.settle(left)));
  }

  /** All rows of one fault. Cleanup comes last, and alone: a pass is for all sandboxes. Gives the cells, each with its problems. */
  async play(fault, rows) {
    const cells = rows.map((row) => new Cell(this, row));
    const [alone, together] = [true, false].map((b) => cells.filter((c) => (c.operation === 'cleanup') === b));
    await this.strike(fault, together);
    await this.g.stopAll();
    await this.strike(fault, alone);
    return cells;
  }

  /** For the next one. */
  async clear() {
    this.proxy.clear();
    await this.heal([]);
    await this.g.stopAll();
  }

  async stop() {
    await this.g.stop();
    await this.proxy.close();
  }
}
