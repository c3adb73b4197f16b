// `make soak`: many lives of sandboxes in one engine, and what they have left behind. Prints the counts before and after, and ends with
// 1 when something has grown.
import { settled, still, table } from '../e2e/census.mjs';
import { cycles } from '../e2e/cycles.mjs';
import { startEngine, within } from '../e2e/engine.mjs';

const WARM = 210; // as many as the engine keeps the logs of, so that those do not grow any more
const SECONDS_EACH = 20; // the bound of all on a slow machine

const n = Number(process.argv[2]);
if (!Number.isInteger(n) || n < 1) {
  console.error('usage: run.mjs CYCLES');
  process.exit(2);
}

const engine = await startEngine();
let bad = false;
try {
  console.log(engine.ready.line);
  await within(WARM * SECONDS_EACH * 1000, cycles(engine, WARM), 'the first cycles');
  const before = await still(engine);
  const begun = performance.now();
  const tick = (done) => done % 100 === 0 && console.log(`${done} cycles, ${((performance.now() - begun) / 1000).toFixed(0)} s`);
  await within(n * SECONDS_EACH * 1000, cycles(engine, n, { tick }), 'the cycles');
  const { after, grown } = await settled(engine, before, { deadline: 60_000 });
  console.log(table(before, after).join('\n'));
  bad = grown.length > 0;
  console.log(bad ? `after ${n} cycles there is more: ${grown.join('; ')}` : `after ${n} cycles everything is as it was`);
} finally {
  await engine.stop(); // and it has left nothing behind, or throws
}
process.exit(bad ? 1 : 0);
