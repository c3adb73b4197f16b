// Attacks from within a sandbox and by its client: tests/attacks. Each first runs unconfined against decoys, where it must
// succeed, then inside, where it must fail: with the engine started by root, by an ordinary user, and by one who has a range of
// ids. A breach is excused where the ready line calls every layer inactive that would have held it; nothing else excuses one.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { SUITE } from './engine.mjs';
import { Machine, attacks, runAlone, runShared, runUnconfined } from './attacks.mjs';

// ATTACK=pattern runs those only, and tells why each was held.
const all = attacks().filter((a) => !process.env.ATTACK || a.name.match(process.env.ATTACK));
const STARTED = { root: 'root', user: 'a user', range: 'a user with a range' };
const kinds = Object.keys(STARTED);
const machines = Object.fromEntries(kinds.map((kind) => [kind, undefined]));
let controls = new Map();
const results = {};

/** "held", "breach", or how it is excused. */
function cell(machine, attack, result) {
  if (!result) return '-';
  if (result.verdict !== 'breach') return result.verdict;
  const layer = machine.inactive(attack);
  return layer ? `no ${layer}` : 'BREACH';
}

function row(attack) {
  const cells = [controls.get(attack.name)?.verdict ?? '-'];
  for (const [kind, machine] of Object.entries(machines)) {
    const got = results[kind]?.get(attack.name) ?? {};
    const who = attack.as.filter((name) => got[name]);
    const said = who.map((name) => cell(machine, attack, got[name]));
    cells.push(new Set(said).size === 1 ? `${who.join(' ')}: ${said[0]}` : who.map((name, i) => `${name}: ${said[i]}`).join(', '));
  }
  return [attack.name, ...cells];
}

function printTable() {
  const rows = [['attack', 'unconfined', ...Object.values(STARTED).map((who) => `started by ${who}`)], ...all.map(row)];
  const widths = rows[0].map((_, i) => Math.max(...rows.map((r) => r[i]?.length ?? 0)));
  for (const r of rows) console.log(`summary: ${r.map((text, i) => text.padEnd(widths[i])).join('  ').trimEnd()}`);
}

function suite() {
  before(async () => {
    await Promise.all(kinds.map(async (kind) => (machines[kind] = await Machine.start(kind))));
    await Promise.all(kinds.map(async (kind) => (results[kind] = await runShared(machines[kind], all))));
    // Later than those inside: what the decoys heard until here, they heard from there.
    controls = await runUnconfined(machines.root, all);
    await Promise.all(kinds.map((kind) => runAlone(machines[kind], all, results[kind])));
  });
  after(async () => {
    printTable();
    if (process.env.ATTACK)
      for (const [kind, got] of Object.entries({ unconfined: new Map([...controls].map(([k, v]) => [k, { root: v }])), ...results }))
        for (const [name, by] of got) for (const [who, v] of Object.entries(by)) console.log(`${name}, ${kind}, ${who}: ${v.verdict}: ${v.why}`);
    for (const machine of Object.values(machines)) await machine?.stop();
  });

  test('there are two users inside unless the engine was started by a user without a range', () => {
    for (const kind of kinds) assert.equal(machines[kind].users.includes('root'), kind !== 'user', `${kind}: ${machines[kind].engine.ready.line}`);
  });

  for (const attack of all) {
    test(`${attack.name}: unconfined it succeeds`, () => {
      const { verdict, why } = controls.get(attack.name);
      assert.equal(verdict, 'breach', why);
    });
    for (const kind of kinds)
      test(`${attack.name}: it is held when the engine was started by ${STARTED[kind]}`, () => {
        const machine = machines[kind];
        const got = results[kind].get(attack.name);
        assert.ok(machine.knows(attack), `the ready line does not know ${attack.holds}: ${machine.engine.ready.line}`);
        const expected = attack.as.filter((who) => who !== 'root' || machine.users.includes('root'));
        for (const who of attack.alone ? expected.filter((w) => w !== 'kernel') : expected) {
          const { verdict, why } = got[who] ?? { verdict: 'broken', why: 'it was not run' };
          if (verdict === 'breach' && machine.inactive(attack)) continue;
          assert.equal(verdict, 'held', `as ${who}: ${why}`);
        }
      });
  }
}

if (process.getuid() === 0) describe('attacks', SUITE, suite);
else test('attacks', () => assert.fail('the decoys are planted by root: run this file as root or with sudo'));
