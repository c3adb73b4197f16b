// The fault matrix: what each operation says to each fault of the provider, and that nothing is left behind or run twice. The rows
// are in faults.tsv, how they are played is in faultmatrix.mjs.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { SUITE, startEngine } from './engine.mjs';
import { ACTIONS, FAULTS, OPERATIONS, readTable, startLane } from './faultmatrix.mjs';

const LANES = 4; // faults that are played at the same time
const table = readTable();
const counts = { cells: 0, ok: 0 };

test('faults.tsv has each fault against each operation, once', () => {
  const wanted = FAULTS.flatMap((fault) => [...OPERATIONS.keys()].map((operation) => `${fault} ${operation}`));
  assert.deepEqual(table.map((row) => `${row.fault} ${row.operation}`).sort(), wanted.sort());
  for (const row of table) assert.equal(row.call, OPERATIONS.get(row.operation).call, `${row.fault} ${row.operation}`);
});

describe('faults', { ...SUITE, concurrency: LANES }, () => {
  let engine;
  const lanes = [];
  before(async () => {
    engine = await startEngine();
    for (let i = 0; i < LANES; i++) lanes.push(await startLane(engine));
  });
  after(async () => {
    for (const lane of lanes) await lane.stop();
    await engine?.stop();
    console.log(`summary: faults: ${counts.cells} cells, ${counts.ok} ok`);
  });

  // The slowest first.
  for (const fault of [...ACTIONS.keys(), 'refuse'])
    test(fault, async () => {
      const lane = lanes.pop();
      try {
        const rows = table.filter((row) => row.fault === fault);
        const cells = await lane.play(fault, rows);
        counts.cells += cells.length;
        counts.ok += cells.filter((cell) => !cell.problems.length).length;
        const problems = cells.flatMap((cell) => cell.problems);
        assert.ok(problems.length === 0, problems.join('\n'));
      } finally {
        await lane.clear();
        lanes.push(lane);
      }
    });
});
