// Streams through the configuration of a real site: TLS, HTTP/2 and HTTP/1.1, what nginx does to a reader that is slow, and its limits.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { SUITE, sleep, until, within } from './engine.mjs';
import { assertProblem } from './gateway.mjs';
import { assertWhole } from './sse.mjs';
import { fill, startWorld } from './site.mjs';

const HANDSHAKE = `
import os, time
def wait(name):
    while not os.path.exists('/home/user/' + name): time.sleep(0.005)
`;
const WAITS = `${HANDSHAKE}\nprint("begun")\nwait("go")\nprint("end")`;
/** More than all buffers on the way together. */
const MUCH = 'for i in range(3000): print("x" * 99_999)\nopen("/home/user/finished", "w").close()';
const LIMIT = 4; // calls of one caller at once, at the narrow site
const PATIENCE_SECS = 2; // of that site, with one who does not read

describe('streams of a site', { ...SUITE, concurrency: true }, () => {
  let world;
  let site;
  let narrow;
  before(async () => {
    world = await startWorld();
    site = await world.site();
    const edit = (text) => fill(fill(text, '\nsend_timeout 30s;', `\nsend_timeout ${PATIENCE_SECS}s;`), 'sandgate_calls 128;', `sandgate_calls ${LIMIT};`);
    narrow = await world.site({ edit: { 'server.conf': edit } });
  });
  after(() => world?.stop());

  const row = async (id) => (await world.g.rows(`SELECT * FROM executions WHERE id = '${id}'`))[0];
  const ended = (id) => until(async () => (await row(id)).ended_at !== 0, { deadline: 60_000, what: 'its end' });
  const put = async (session, name) => assert.equal((await session.upload(name, 'x', '/home/user')).status, 200);
  const isThere = async (session, name) => (await session.files('/home/user')).json.some((f) => f.path.endsWith(`/${name}`));

  async function begun(session, json) {
    const s = await session.stream(json);
    s.id = (await s.until('started')).data.execution_id;
    return s;
  }

  for (const version of [2, 1]) {
    const session = (id, more) => site.session(`${id}-${version}`, { version, ...more });
    const name = version === 2 ? 'HTTP/2' : 'HTTP/1.1';

    test(`are live over ${name}: each line is there before the next one is printed`, async () => {
      const own = session('live');
      const code = `${HANDSHAKE}\nfor i in range(5):\n    print("line", i)\n    wait(f"seen{i}")`;
      const s = await own.stream({ code }, { headers: { 'accept-encoding': 'gzip, br' } });
      const { headers } = s.res;
      assert.match(headers['content-type'], /^text\/event-stream/);
      assert.deepEqual([headers['content-encoding'], headers['x-accel-buffering'], headers['cache-control']], [undefined, undefined, 'no-store']);
      assert.equal(headers['strict-transport-security'], 'max-age=31536000');
      for (let i = 0; i < 5; i++) {
        await s.until('stdout', `line ${i}`);
        await put(own, `seen${i}`);
      }
      const { data } = await s.end();
      assert.equal(data.output, 'line 0\nline 1\nline 2\nline 3\nline 4\n');
      assert.equal(headers['x-execution-id'], data.execution_id);
    });

    test(`are cancelled from another call over ${name}`, async () => {
      const own = session('cancel');
      const s = await begun(own, { code: 'x = 41\nprint("begun")\nimport time\ntime.sleep(600)' });
      await s.until('stdout', 'begun');
      const res = await own.cancel(s.id);
      assert.deepEqual([res.status, res.json.state, res.json.cancelled_by], [200, 'cancelled', 'interrupt'], res.text);
      assert.deepEqual([(await s.end()).event, s.seen.at(-1).data.code], ['done', 'cancelled']);
      assert.equal((await own.execute('x + 1')).json.text, '42');
    });

    test(`end with their client over ${name}, unless they are detached: then they are picked up where it was`, async () => {
      const [left, detached] = [session('left'), session('detached')];
      const one = await begun(left, { code: WAITS });
      const two = await begun(detached, { code: WAITS, detach: true });
      for (const s of [one, two]) await s.until('stdout', 'begun');
      for (const s of [one, two]) s.leave();
      await ended(one.id);
      assert.equal((await row(one.id)).state, 'cancelled');
      const again = await detached.follow(two.id, '', { headers: { 'last-event-id': String(two.seen.at(-1).id) } });
      await put(detached, 'go');
      while (await again.next());
      assertWhole([...two.seen, ...again.seen]);
      assert.equal(two.text() + again.text(), 'begun\nend\n');
      assert.equal((await detached.events(two.id, `?after=${again.seen.at(-1).id}`)).status, 204);
    });

    test(`that are not read slow their own program down over ${name}, and nobody else`, async () => {
      const [slow, other] = [session('slow'), session('other')];
      await Promise.all([slow.start(), other.start()]);
      const s = await begun(slow, { code: MUCH, timeout_secs: 4 });
      s.res.pause();
      const beside = await begun(other, { code: WAITS }); // with HTTP/2 on the same connection
      await beside.until('stdout', 'begun');
      await sleep(500);
      await put(other, 'go');
      assert.equal((await beside.end()).data.output, 'begun\nend\n');
      assert.equal((await row(s.id)).state, 'running');
      await ended(s.id);
      const { data } = await s.end();
      assert.deepEqual([data.state, s.text().length], ['timed_out', data.stdout_bytes], 'what it read at last is all there was');
      assert.equal(await isThere(slow, 'finished'), false);
    });

    test(`that are not read for too long are over, over ${name}, and so is what they show`, async () => {
      const own = narrow.session(`gone-${version}`, { version, token: await world.g.token('patience') });
      const s = await begun(own, { code: MUCH });
      s.res.pause();
      await ended(s.id);
      const { state, started_at, ended_at } = await row(s.id);
      assert.equal(state, 'cancelled');
      assert.ok(ended_at - started_at >= PATIENCE_SECS * 1e6, `after ${(ended_at - started_at) / 1e6} s`);
      s.leave();
      assert.equal(await isThere(site.session(`gone-${version}`, { token: await world.g.token('patience') }), 'finished'), false);
    });
  }

  test('outlive a connection of HTTP/2 that breaks, and are exact when they are joined', async () => {
    const own = site.session('breaks', { from: '127.0.0.31' });
    const s = await begun(own, { code: `${HANDSHAKE}\nfor i in range(200): print(i, "é" * 20)\nwait("go")\nprint("end")`, detach: true });
    await s.until('stdout');
    const seen = [...s.seen];
    s.res.session?.destroy();
    for (let last; last?.event !== 'done'; last = seen.at(-1)) {
      const again = await own.follow(s.id, `?after=${seen.at(-1).id}`);
      if (seen.some((e) => e.data.text?.includes('199 '))) await put(own, 'go');
      const e = await again.next();
      if (e) seen.push(e);
      again.res.session.destroy();
    }
    assertWhole(seen);
    const text = seen.filter((e) => e.event === 'stdout').map((e) => e.data.text).join('');
    assert.equal(text, `${Array.from({ length: 200 }, (_, i) => `${i} ${'é'.repeat(20)}\n`).join('')}end\n`);
  });

  test('go on while nginx is reloaded', async () => {
    const own = await world.site(); // it ends connections that others would use
    const s = await begun(own.session('reload'), { code: WAITS });
    await s.until('stdout', 'begun');
    const workers = () => fs.readFileSync(`/proc/${own.nginx.pid}/task/${own.nginx.pid}/children`, 'utf8').trim().split(' ');
    const before = workers();
    own.nginx.process.kill('SIGHUP');
    await until(() => workers().some((pid) => !before.includes(pid)), { what: 'the reload' });
    await put(own.session('reload', { version: 1 }), 'go');
    assert.equal((await within(60_000, s.end(), 'its end')).data.output, 'begun\nend\n');
  });

  test('count as calls of their caller as long as they are open', async () => {
    const token = await world.g.token('many');
    const own = narrow.session('count', { token });
    const s = await begun(own, { code: WAITS });
    const others = await Promise.all(Array.from({ length: LIMIT - 1 }, () => own.follow(s.id)));
    for (const one of others) await one.until('started');
    const refused = await own.status();
    assertProblem(refused, 429, 'rate_limited');
    assert.equal(refused.headers['retry-after'], '1');
    assert.equal((await narrow.session('count', { token: await world.g.token('somebody') }).status()).status, 200);
    others.pop().leave();
    await until(async () => (await own.status()).status === 200, { what: 'room' });
    await put(own, 'go');
    for (const one of [s, ...others]) assert.equal((await one.end()).data.output, 'begun\nend\n');
  });
});
