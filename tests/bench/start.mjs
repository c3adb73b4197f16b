// From nothing to the end of the first print(1): a sandbox of the warm pool, one whose kernel is forked from the zygote, one whose
// kernel starts by itself, and bubblewrap with a Python that starts by itself. And the same for many at once.
import { sleep, startEngine, until } from '../e2e/engine.mjs';
import { Client } from './client.mjs';
import { coldStart, hasBubblewrap } from './cold.mjs';
import { processesOf } from './processes.mjs';
import { interleave, median, quantile, ratio } from './stats.mjs';

const POOL = 4; // the engine's default
const COLD = 'bubblewrap + cold IPython';

/** An engine, and how many kernels it keeps ready. */
class Starter {
  static async open(args, pool = 0) {
    const starter = new Starter();
    starter.pool = pool;
    starter.engine = await startEngine({ args: ['--pool', String(pool), ...args] });
    starter.client = new Client(starter.engine);
    await starter.client.warmUp();
    await starter.once();
    return starter;
  }

  /** Until nothing is on its way: what was killed is gone, and the pool is full. */
  async calm() {
    await until(() => processesOf(this.engine, 'kernel').length === this.pool, { deadline: 60_000, every: 20, what: 'a full pool' });
    await sleep(50); // a kernel that is there is not yet one that has warmed itself up
  }

  /** Milliseconds until there is one, and until its print(1) has ended. */
  async once(options) {
    await this.calm();
    const begin = performance.now();
    const sandbox = await this.client.create(options);
    const created = performance.now() - begin;
    await this.client.run(sandbox, 'print(1)', '"1\\n"');
    const ms = performance.now() - begin;
    await this.client.kill(sandbox);
    await this.calm();
    return { ms, created };
  }

  /** So many at once: how many a second until all are there, and until all have printed. */
  async burst(count) {
    await this.calm();
    const begin = performance.now();
    const sandboxes = [];
    const one = async () => {
      const sandbox = await this.client.create();
      const created = performance.now() - begin;
      sandboxes.push(sandbox);
      await this.client.run(sandbox, 'print(1)', '"1\\n"');
      return { ms: performance.now() - begin, created };
    };
    const all = await Promise.all(Array.from({ length: count }, one));
    const rate = (times) => (count * 1000) / Math.max(...times);
    await Promise.all(sandboxes.map((sandbox) => this.client.kill(sandbox)));
    await this.calm();
    return { created: rate(all.map((one) => one.created)), printed: rate(all.map((one) => one.ms)) };
  }

  async close() {
    this.client.close();
    await this.engine.stop();
  }
}

async function withStarters(measure) {
  const starters = {};
  try {
    starters.pool = await Starter.open([], POOL);
    starters.zygote = await Starter.open([]);
    starters.fresh = await Starter.open(['--no-zygote']);
    return await measure(starters);
  } finally {
    for (const starter of Object.values(starters)) await starter.close();
  }
}

const coldBurst = async (count) => {
  const begin = performance.now();
  await Promise.all(Array.from({ length: count }, coldStart));
  return { printed: (count * 1000) / (performance.now() - begin) };
};

const ms = (all) => all.map((one) => one.ms);

function startRows(times) {
  const { cold } = times;
  const detail = (all) =>
    [
      `p90 ${quantile(ms(all), 0.9).toFixed(2)} ms`,
      ...(all[0].created ? [`${median(all.map((one) => one.created)).toFixed(2)} ms of it until it is created`] : []),
      ...(cold && all !== cold ? [`${COLD} takes x ${ratio(ms(cold), ms(all)).toFixed(1)}`] : []),
    ].join('; ');
  const row = (what, all, most) => {
    const figure = median(ms(all));
    return { what, figure: `${figure.toFixed(2)} ms`, detail: detail(all), ...(most && { goal: `at most ${most} ms`, met: figure <= most }) };
  };
  const faster = cold && ratio(ms(cold), ms(times.zygote));
  return [
    row('from the pool', times.pool, 5),
    row('from the zygote, the pool empty', times.zygote, 20),
    row('the same, without internet', times.offline),
    row('no zygote: a kernel that starts by itself', times.fresh),
    ...(cold
      ? [
          row(COLD, cold),
          {
            what: `the zygote, times faster than ${COLD}`,
            figure: `x ${faster.toFixed(1)}`,
            detail: `${median(ms(times.zygote)).toFixed(2)} of ${median(ms(cold)).toFixed(2)} ms`,
            goal: 'at least x 10',
            met: faster >= 10,
          },
        ]
      : [{ what: COLD, figure: 'not measured', detail: 'bubblewrap is not installed (tools/deps bench)' }]),
  ];
}

function burstRows(rates, count) {
  const row = (what, of, key) => ({
    what: `${count} at once, ${what}`,
    figure: `${median(of.map((round) => round[key])).toFixed(0)}/s`,
    detail: rates.cold && key === 'printed' && of !== rates.cold ? `x ${ratio(of.map((r) => r[key]), rates.cold.map((r) => r[key])).toFixed(1)} of ${COLD}` : '',
  });
  return [
    row(`pool of ${POOL}: until all are created`, rates.pool, 'created'),
    row(`pool of ${POOL}: until all have printed`, rates.pool, 'printed'),
    row('no pool: until all are created', rates.zygote, 'created'),
    row('no pool: until all have printed', rates.zygote, 'printed'),
    ...(rates.cold ? [row(`${COLD}: until all have printed`, rates.cold, 'printed')] : []),
  ];
}

export function start({ rounds, burst, bursts }) {
  const cold = hasBubblewrap();
  return withStarters(async ({ pool, zygote, fresh }) => {
    await zygote.once({ internet: false });
    if (cold) await coldStart();
    const times = await interleave(rounds, {
      pool: () => pool.once(),
      zygote: () => zygote.once(),
      offline: () => zygote.once({ internet: false }),
      fresh: () => fresh.once(),
      ...(cold && { cold: async () => ({ ms: await coldStart() }) }),
    });
    const rates = await interleave(bursts, {
      pool: () => pool.burst(burst),
      zygote: () => zygote.burst(burst),
      ...(cold && { cold: () => coldBurst(burst) }),
    });
    return [...startRows(times), ...burstRows(rates, burst)];
  });
}
