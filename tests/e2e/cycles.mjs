// Lives of sandboxes, from create to kill, in every way that a life can go; for the load tests and the soak.
import assert from 'node:assert/strict';
import net from 'node:net';
import { KEY } from './engine.mjs';

const DEADLINE = 120_000;

/** As the SDK's object, as far as the harness needs it. */
export async function create(engine, body = {}) {
  const res = await engine.api('POST', '/v2/sandboxes', { json: { templateID: 'code-interpreter-v1', timeout: 600, ...body }, deadline: DEADLINE });
  assert.equal(res.status, 201, res.text);
  return { sandboxId: res.json.sandboxID, envdAccessToken: res.json.envdAccessToken };
}

/** What a run prints; it must do nothing else. */
export async function print(engine, sandbox, code, more = {}) {
  const res = await engine.interpreter(sandbox, 'POST', '/execute', { json: { code, ...more }, deadline: DEADLINE });
  assert.equal(res.status, 200, res.text);
  const events = res.text.trim().split('\n').map((line) => JSON.parse(line));
  assert.deepEqual(events.filter((e) => e.type === 'error'), [], code);
  return events
    .filter((e) => e.type === 'stdout')
    .map((e) => e.text)
    .join('');
}

async function expect(status, call) {
  const res = await call;
  assert.equal(res.status, status, res.text);
  return res;
}

export const kill = (engine, { sandboxId }) => expect(204, engine.api('DELETE', `/sandboxes/${sandboxId}`, { deadline: DEADLINE }));
const pause = (engine, { sandboxId }) => expect(204, engine.api('POST', `/sandboxes/${sandboxId}/pause`, { deadline: DEADLINE }));
const resume = (engine, { sandboxId }) =>
  expect(201, engine.api('POST', `/sandboxes/${sandboxId}/connect`, { json: { timeout: 600 }, deadline: DEADLINE }));

/** Asks for a sandbox and is gone before there is an answer; it ends when its second is over. */
function leave(engine) {
  const body = JSON.stringify({ templateID: 'code-interpreter-v1', timeout: 1 });
  return new Promise((resolve, reject) => {
    const socket = net.connect(engine.port, '127.0.0.1', () =>
      socket.write(
        `POST /v2/sandboxes HTTP/1.1\r\nhost: x\r\nx-api-key: ${KEY}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
        () => socket.destroy(),
      ),
    );
    socket.on('close', resolve).on('error', reject);
  });
}

const LIVES = [
  async function used(engine) {
    const s = await create(engine, { envVars: { NAME: 'value' }, metadata: { k: 'v' } });
    // As much in memory as would be seen if it stayed.
    assert.equal(await print(engine, s, 'open("/tmp/f", "wb").write(bytes(8 << 20)); print(1)'), '1\n');
    await kill(engine, s);
  },
  async function killedAtOnce(engine) {
    await kill(engine, await create(engine));
  },
  async function restarted(engine) {
    const s = await create(engine);
    const [context] = (await expect(200, engine.interpreter(s, 'GET', '/contexts'))).json;
    for (let i = 0; i < 2; i++) {
      await expect(200, engine.interpreter(s, 'POST', `/contexts/${context.id}/restart`, { deadline: DEADLINE }));
      assert.equal(await print(engine, s, 'print(2)'), '2\n');
    }
    await kill(engine, s);
  },
  async function killedWhilePaused(engine) {
    const s = await create(engine);
    await pause(engine, s);
    await kill(engine, s);
  },
  async function resumed(engine) {
    const s = await create(engine);
    await print(engine, s, 'x = 3');
    await pause(engine, s);
    await resume(engine, s);
    assert.equal(await print(engine, s, 'print(x)'), '3\n');
    await kill(engine, s);
  },
  leave,
  async function withoutInternet(engine) {
    const s = await create(engine, { allow_internet_access: false });
    // A run whose end the kill is.
    const run = engine.interpreter(s, 'POST', '/execute', { json: { code: 'while True: pass' }, deadline: DEADLINE }).catch(() => {});
    await kill(engine, s);
    await run;
  },
];

/** n lives, a few side by side. */
export async function cycles(engine, n, { side = 4, tick = () => {} } = {}) {
  let next = 0;
  let done = 0;
  const worker = async () => {
    while (next < n) {
      const life = LIVES[next++ % LIVES.length];
      await life(engine).catch((e) => assert.fail(`${life.name}: ${e.stack}`));
      tick(++done);
    }
  };
  await Promise.all(Array.from({ length: side }, worker));
}
