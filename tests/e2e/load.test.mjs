// Many sandboxes, much output, busy neighbours, and that nothing of them stays. Deadlines are generous: what is asserted is that all of it
// happens and what it costs, not how fast.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import os from 'node:os';
import { after, before, describe, test } from 'node:test';
import { settled, still, table, zombies, zygoteOf } from './census.mjs';
import { create, cycles, kill, print } from './cycles.mjs';
import { SUITE, commandLine, readProc, sleep, startEngine, until, within } from './engine.mjs';

const BURST = 200;
const ALIVE = 300;
const SECOND = 150; // of them have a second kernel
const BYTES = 100 << 20;
const CYCLES = 56;
const CORES = os.availableParallelism();
/** Each in a session of its own: to the scheduler they are strangers, but for the sandbox's control group. */
const BUSY = `import os, sys
for _ in range(int(sys.argv[1])):
    if not os.fork():
        os.setsid()
        while True: pass
os.wait()`;

/** Calls fn for 0..n-1, at most `side` at a time. */
async function each(n, side, fn) {
  let next = 0;
  const worker = async () => {
    while (next < n) await fn(next++);
  };
  await Promise.all(Array.from({ length: side }, worker));
}

/** Keeps asking the sandboxes until the work is over: how often all of them have answered. */
async function answering(engine, boxes, work) {
  let over = false;
  let rounds = 0;
  const asking = (async () => {
    while (!over) {
      const answers = await Promise.all(boxes.map((s) => within(60_000, print(engine, s, 'print(6 * 7)'), 'the round trip of a neighbour')));
      assert.deepEqual(new Set(answers), new Set(['42\n']));
      rounds++;
      await sleep(50);
    }
  })();
  try {
    await Promise.all([work, Promise.race([asking, work])]);
  } finally {
    over = true;
  }
  await asking;
  return rounds;
}

describe('load', SUITE, () => {
  let engine;
  let fresh;
  before(async () => {
    engine = await startEngine({ args: ['--max-sandboxes', String(ALIVE + 20)] });
    await cycles(engine, 7); // what is made once and kept is there from here on
    fresh = await still(engine);
  });
  after(() => engine?.stop());

  test(`${BURST} creates at once, then ${ALIVE} alive, each answers as itself`, async () => {
    const boxes = await Promise.all(
      Array.from({ length: BURST }, async () => {
        const s = await create(engine);
        assert.equal(await print(engine, s, 'print(1)'), '1\n');
        return s;
      }),
    );
    await each(ALIVE - BURST, 20, async () => boxes.push(await create(engine)));
    assert.equal(new Set(boxes.map((s) => s.sandboxId)).size, ALIVE);
    await each(ALIVE, 50, (i) => print(engine, boxes[i], `me = ${i}`));
    await each(ALIVE, 50, async (i) => assert.equal(await print(engine, boxes[i], 'import os; print(me, os.environ["E2B_SANDBOX_ID"])'), `${i} ${boxes[i].sandboxId}\n`));
    // Some of them get a second kernel, and then all end in one moment: the zygote has more to say than its socket holds.
    await each(SECOND, 20, (i) => engine.interpreter(boxes[i], 'POST', '/contexts', { json: {}, deadline: 120_000 }));
    const zygote = zygoteOf(engine);
    process.kill(zygote, 'SIGSTOP');
    try {
      await each(ALIVE, 50, (i) => kill(engine, boxes[i]));
      const ended = () => zombies(engine).filter((p) => p.parent === zygote).length;
      await until(() => ended() >= ALIVE + SECOND, { deadline: 60_000, every: 500, what: 'the end of all kernels' });
    } finally {
      process.kill(zygote, 'SIGCONT');
    }
    const { after: now, grown } = await settled(engine, fresh, { deadline: 60_000, heap: 32 });
    assert.deepEqual(grown, [], table(fresh, now).join('\n'));
  });

  test('100 MB of output, to a fast and to a slow reader, while others answer', async () => {
    const [slow, quick, ...others] = await Promise.all([1, 2, 3, 4, 5].map(() => create(engine)));
    await Promise.all([slow, quick, ...others].map((s) => print(engine, s, 'print(1)')));
    const peaks = engine.peaks();
    const code = `for _ in range(${BYTES >> 16}): print("x" * 65535)`;
    const late = await engine.execute(slow, { code }, { deadline: 300_000 }); // and does not read for now
    const read = async (res) => {
      let n = 0;
      let tail = '';
      for await (const chunk of res) {
        n += chunk.length;
        tail = (tail + chunk.subarray(-200).toString()).slice(-200);
      }
      assert.match(tail, /"end_of_execution"\}\n$/);
      assert.ok(n > BYTES, `${n} bytes`);
    };
    const work = (async () => {
      await read(await engine.execute(quick, { code }, { deadline: 300_000 }));
      engine.assertFlat(peaks, 32);
      await read(late);
    })();
    assert.ok((await answering(engine, others, work)) > 0);
    engine.assertFlat(peaks, 32);
    await Promise.all([slow, quick, ...others].map((s) => kill(engine, s)));
  });

  /** Ticks of a processor that the busy processes of a sandbox have had so far. */
  const used = ({ sandboxId }) =>
    engine.family
      .look()
      .filter((pid) => commandLine(pid).endsWith(sandboxId))
      .map((pid) => readProc(`${pid}/stat`).split(') ')[1]?.split(' ') ?? [])
      .reduce((sum, fields) => sum + Number(fields[11] ?? 0) + Number(fields[12] ?? 0), 0);

  for (const loops of [CORES, 200])
    test(`${loops} busy processes in a sandbox take no more than its share`, async (t) => {
      const limited = engine.has('cpu limit');
      if (!limited && loops > CORES) return t.skip('no cpu limit here: it would be the share of so many');
      const [hog, rival, ...others] = await Promise.all([1, 2, 3, 4].map(() => create(engine)));
      const spin = (s, n) =>
        engine.stream(s, 'process.Process/Start', { process: { cmd: '/usr/bin/python3', args: ['-c', BUSY, String(n), s.sandboxId] } }, { deadline: 120_000 });
      const streams = await Promise.all([spin(hog, loops), spin(rival, CORES)]);
      t.after(async () => {
        streams.forEach((res) => res.drop());
        await Promise.all([hog, rival, ...others].map((s) => kill(engine, s)));
      });
      await until(() => used(hog) > 0 && used(rival) > 0, { deadline: 30_000, what: 'busy processes' });
      const begun = [used(hog), used(rival)];
      const rounds = await answering(engine, others, sleep(4000));
      assert.ok(rounds > 0);
      const [his, mine] = [used(hog) - begun[0], used(rival) - begun[1]];
      t.diagnostic(`${loops} busy processes had ${his} ticks, ${CORES} in another sandbox ${mine}; others answered ${rounds} times`);
      if (limited) assert.ok(mine >= (his + mine) / 4, `${mine} of ${his + mine} ticks is less than half of a fair share`);
    });

  test(`${CYCLES} lives of every kind leave everything as it was`, async () => {
    const begun = await still(engine);
    await cycles(engine, CYCLES);
    const { after: now, grown } = await settled(engine, begun);
    assert.deepEqual(grown, [], table(begun, now).join('\n'));
  });
});

test('creates that fail because the engine is out of descriptors leave nothing', SUITE, async (t) => {
  const engine = await startEngine({ args: ['--pool', '0'] });
  t.after(() => engine.stop());
  await cycles(engine, 7);
  const begun = await still(engine);
  const limit = (soft) => execFileSync('prlimit', ['--pid', String(engine.server), `--nofile=${soft}:`]);
  const most = readProc(`${engine.server}/limits`).match(/^Max open files +(\d+)/m)[1];
  const answers = [];
  // Where it runs out is different each time.
  for (const descriptors of [70, 83, 97, 120]) {
    limit(descriptors);
    const burst = await Promise.all(Array.from({ length: 30 }, () => engine.api('POST', '/v2/sandboxes', { json: { templateID: 'code-interpreter-v1' } })));
    limit(most);
    const made = burst.filter((res) => res.status === 201);
    await Promise.all(made.map((res) => kill(engine, { sandboxId: res.json.sandboxID })));
    answers.push(...burst.map((res) => res.status));
  }
  assert.deepEqual(new Set(answers), new Set([201, 500]));
  await cycles(engine, 1);
  const { after: now, grown } = await settled(engine, begun);
  assert.deepEqual(grown, [], table(begun, now).join('\n'));
});
