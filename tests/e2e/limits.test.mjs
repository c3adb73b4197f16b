// The limits of sandboxes: idle time, lifetime, the provider's own timeout, how many there may be; and what a custom one may lack.
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { SUITE, sleep, startEngine, until, within } from './engine.mjs';
import { assertProblem, startGateway } from './gateway.mjs';

const SLEEP = 'print("before", flush=True)\nimport time\ntime.sleep(600)\nprint("after")';

let engine;
before(async () => (engine = await startEngine()));
after(() => engine?.stop());

/** A sandbox as the provider shows it. */
const shown = async (id) => (await engine.api('GET', `/sandboxes/${id}`)).json;

/** How long, in seconds, the provider would still let it live. */
const secondsLeft = async (id) => (Date.parse((await shown(id)).endAt) - Date.now()) / 1000;

function assertAbout(actual, expected, what, slack = 15) {
  assert.ok(actual > expected - slack && actual < expected + 2, `${what}: ${actual} s instead of ${expected}`);
}

// Mostly waiting, each with a gateway of its own.
describe('limits', { ...SUITE, concurrency: true }, () => {
  const ALONE = { ...SUITE, concurrency: false };

  describe('the idle limit', ALONE, () => {
    const IDLE = 4;
    let g;
    before(async () => (g = await startGateway({ engine, settings: { SANDGATE_IDLE_TIMEOUT_SECS: IDLE } })));
    after(() => g?.stop());
    afterEach(() => g.stopAll());

    const over = (s) => until(async () => (await s.status()).text.trim() === 'null', { deadline: 30_000, what: 'expiry' });

    test('status is null after it, and the next run says why', async () => {
      const s = g.session('idle');
      await s.execute('x = 1');
      const first = (await s.status()).json;
      assertAbout((Date.parse(first.expires_at) - Date.parse(first.last_activity)) / 1000, IDLE, 'expires_at', 1);
      await over(s); // although it is looked at all the time
      assertProblem(await s.files(), 404, 'sandbox_not_found');
      const run = await s.execute('print("x" in globals())');
      assert.deepEqual([run.status, run.json.output], [200, 'False\n'], run.text);
      assert.deepEqual([run.json.generation, run.json.state_lost, run.json.reason], [2, true, 'expired_idle']);
      const [old, now] = await g.history('idle');
      assert.deepEqual([old.status, old.end_reason, now.status], ['ended', 'expired_idle', 'running']);
      assert.deepEqual((await g.labelled()).map((x) => x.sandboxID), [now.sandbox_id]);
      assert.equal((await s.execute('1')).json.state_lost, false);
    });

    test('a run that is longer is not cut, and use puts it off', async () => {
      const s = g.session('busy');
      const run = s.execute(`print("before", flush=True)\nimport time\ntime.sleep(${2 * IDLE + 1})\nprint("done")`);
      await g.printed('busy', 'before');
      await sleep(IDLE * 1000 + 500);
      const during = (await s.status()).json;
      assert.equal(during?.status, 'running');
      const res = await run;
      assert.deepEqual([res.status, res.json.output], [200, 'before\ndone\n'], res.text);
      assert.deepEqual((await s.execute('1')).json.generation, 1);
      for (let i = 0; i < 4; i++) {
        await sleep((IDLE * 1000) / 3);
        assert.equal((await s.files('/home/user')).status, 200);
      }
      assert.equal((await s.status()).json?.generation, 1);
    });
  });

  describe('the lifetime limit', ALONE, () => {
    const LIFETIME = 8;
    let g;
    before(async () => (g = await startGateway({ engine, settings: { SANDGATE_MAX_LIFETIME_SECS: LIFETIME } })));
    after(() => g?.stop());
    afterEach(() => g.stopAll());

    test('a run that meets it ends with 409 sandbox_expired, and the next run says why', async () => {
      const s = g.session('old');
      const info = (await s.start()).json;
      assertAbout((Date.parse(info.expires_at) - Date.parse(info.created_at)) / 1000, LIFETIME, 'expires_at', 1);
      assertAbout(await secondsLeft(info.sandbox_id), LIFETIME, 'the timeout of the provider');
      const res = await within(60_000, s.execute(SLEEP), 'the end of the run');
      assertProblem(res, 409, 'sandbox_expired', /^Sandbox expired/);
      assert.match(res.json.execution_id, /^x_/);
      assert.deepEqual([res.json.output, res.json.state], ['before\n', 'failed']);
      assert.equal((await s.status()).text.trim(), 'null');
      const run = await s.execute('1');
      assert.deepEqual([run.json.generation, run.json.state_lost, run.json.reason], [2, true, 'expired_lifetime']);
      assert.equal((await g.history('old'))[0].end_reason, 'expired_lifetime');
    });
  });

  describe("the provider's timeout", ALONE, () => {
    const IDLE = 300;
    let g;
    before(async () => {
      const settings = { SANDGATE_IDLE_TIMEOUT_SECS: IDLE, SANDGATE_EXECUTION_TIMEOUT_SECS: 60, SANDGATE_MAX_LIFETIME_SECS: 3000 };
      g = await startGateway({ engine, settings });
    });
    after(() => g?.stop());
    afterEach(() => g.stopAll());

    /** As if it had been unused for a while: little is left, at the provider and in the row. */
    async function age(id, { left = 50, lifetime } = {}) {
      assert.equal((await engine.api('POST', `/sandboxes/${id}/timeout`, { json: { timeout: left } })).status, 204);
      const at = (secs) => Math.round((Date.now() / 1000 + secs) * 1e6);
      const life = lifetime ? `, expires_at = ${at(Math.min(left, lifetime))}, lifetime_at = ${at(lifetime)}` : '';
      await g.rows(`UPDATE sandboxes SET provider_end_at = ${at(left)}${life} WHERE sandbox_id = '${id}'`);
    }

    const recorded = async (id) => {
      const [row] = await g.rows(`SELECT provider_end_at / 1e6 AS at FROM sandboxes WHERE sandbox_id = '${id}'`);
      return row.at - Date.now() / 1000;
    };

    test('is the idle limit and two minutes, and renewed by use', async () => {
      const s = g.session('renewed');
      const id = (await s.start()).json.sandbox_id;
      assertAbout(await secondsLeft(id), IDLE + 120, 'at create');
      assertAbout(await recorded(id), IDLE + 120, 'recorded at create');
      await s.upload('f', 'x');
      for (const [name, call] of Object.entries({
        start: () => s.start(),
        execute: () => s.execute('1'),
        upload: () => s.upload('f', 'x'),
        download: () => s.download('/home/user/upload/f'),
        files: () => s.files('/home/user'),
      })) {
        await age(id);
        assert.equal((await s.status()).status, 200);
        assertAbout(await secondsLeft(id), 50, `status before ${name}`);
        assert.equal((await call()).status, 200);
        assertAbout(await secondsLeft(id), IDLE + 120, name);
        assertAbout(await recorded(id), IDLE + 120, `recorded by ${name}`);
      }
    });

    test('is capped by what is left of the lifetime', async () => {
      const s = g.session('capped');
      const id = (await s.start()).json.sandbox_id;
      await age(id, { lifetime: 200 });
      assert.equal((await s.execute('1')).status, 200);
      assertAbout(await secondsLeft(id), 200, 'after a run');
      assert.equal((await s.status()).json.sandbox_id, id);
    });
  });

  describe("the provider's timeout during a run", ALONE, () => {
    let g;
    before(async () => {
      g = await startGateway({ engine, settings: { SANDGATE_IDLE_TIMEOUT_SECS: 30, SANDGATE_EXECUTION_TIMEOUT_SECS: 600 } });
    });
    after(() => g?.stop());

    test('is never less than the run may still need', async () => {
      const s = g.session('long');
      const id = (await s.start()).json.sandbox_id;
      assertAbout(await secondsLeft(id), 150, 'at create');
      await s.execute('1');
      assert.ok((await secondsLeft(id)) > 590, 'during a run');
      await s.stop();
    });
  });

  describe('the limits of sandboxes', ALONE, () => {
    const ALL = 5;
    const EACH = 3;
    let g;
    before(async () => {
      g = await startGateway({ engine, settings: { SANDGATE_MAX_SANDBOXES: ALL, SANDGATE_MAX_SANDBOXES_PER_USER: EACH } });
    });
    after(() => g?.stop());
    afterEach(() => g.stopAll());

    /** 50 first calls of as many sessions; what is not refused is the limit, and the provider never has more. */
    async function rush(users, limit) {
      const tokens = await Promise.all(users.map((u) => g.token(u)));
      let most = 0;
      let over = false;
      const watch = (async () => {
        while (!over) most = Math.max(most, (await g.labelled()).length);
      })();
      const answers = await Promise.all(
        Array.from({ length: 50 }, (_, n) => {
          const s = g.session(`rush${n}`, { token: tokens[n % tokens.length] });
          return n % 2 ? s.start() : s.execute('1');
        }),
      );
      over = true;
      await watch;
      const refused = answers.filter((r) => r.status !== 200);
      for (const res of refused) {
        assertProblem(res, 429, 'quota_exceeded', /^Quota exceeded/);
        assert.match(res.headers['retry-after'], /^[1-9]\d*$/);
      }
      assert.deepEqual([answers.length - refused.length, most, (await g.labelled()).length], [limit, limit, limit]);
    }

    test('in total', () => rush(['ann', 'ben', 'cid', 'dan', 'eve'], ALL));
    test('per user', () => rush(['ann'], EACH));

    test('stopping one frees a place', async () => {
      const sessions = Array.from({ length: EACH }, (_, n) => g.session(`place${n}`));
      for (const s of sessions) assert.equal((await s.start()).status, 200);
      const more = g.session('more');
      for (const res of [await more.start(), await more.execute('1'), await more.upload('f', 'x'), await more.install(['numpy'])])
        assertProblem(res, 429, 'quota_exceeded');
      assert.equal((await more.status()).text.trim(), 'null');
      assert.equal((await sessions[0].execute('1')).status, 200, 'who has one goes on');
      assert.equal((await sessions[1].stop()).status, 204);
      assert.equal((await more.start()).status, 200);
      assertProblem(await sessions[1].start(), 429, 'quota_exceeded');
    });
  });

  describe('custom sandboxes', ALONE, () => {
    let g;
    before(async () => (g = await startGateway({ engine, settings: { SANDGATE_CUSTOM_TEMPLATE_ID: 'base' } })));
    after(() => g?.stop());
    afterEach(() => g.stopAll());

    test('have files but may have no interpreter: 409 that names the way', async () => {
      const s = g.session('custom');
      const info = (await s.start({ sandbox_type: 'custom' })).json;
      assert.deepEqual([info.status, info.sandbox_type], ['running', 'custom']);
      assert.equal((await shown(info.sandbox_id)).alias, 'base');
      assert.equal((await s.upload('f', 'abc')).json.size, 3);
      assert.equal((await s.download('/home/user/upload/f')).text, 'abc');
      const res = await s.execute('1');
      assertProblem(res, 409, 'no_interpreter', /command/);
      assert.equal((await s.status()).json.sandbox_id, info.sandbox_id);
    });
  });
});
