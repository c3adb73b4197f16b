// What it costs to say which files a run has changed: in a home with many files that it leaves alone, beside one with none.
import assert from 'node:assert/strict';
import http from 'node:http';
import { runs } from './execute.mjs';
import { callers } from './load.mjs';
import { interleave, median, quantile, ratio } from './stats.mjs';

const PER_FOLDER = 100;

const filling = (files) => `
import os
for i in range(${files}):
    os.makedirs(f'/home/user/d{i // ${PER_FOLDER}}', exist_ok=True)
    open(f'/home/user/d{i // ${PER_FOLDER}}/f{i}', 'w').close()
`;
const WRITING = "open('/home/user/one', 'w').close()";
const ASKING = /^e2b .*GetWatcherEvents$/;

export async function changes(world, { files, rounds, calls }) {
  const [none, many] = [await world.session('changes-none'), await world.session('changes-many')];
  const made = await many.execute(filling(files));
  assert.ok(made.json?.success, made.text);
  const agent = new http.Agent({ keepAlive: true });
  const p50 = (id, ...what) => async () => quantile(await callers(1, calls, runs(agent, world.site(id, 'execute'), ...what)), 0.5);
  const NOTHING = '"files_changed":[]';
  for (const id of ['changes-none', 'changes-many']) await callers(1, 2, runs(agent, world.site(id, 'execute'), NOTHING));
  const seen = world.g.log().length;
  const all = await interleave(rounds, {
    none: p50('changes-none', NOTHING),
    many: p50('changes-many', NOTHING),
    writing: p50('changes-none', '"path":"/home/user/one"', WRITING),
  });
  const asked = world.g.log().slice(seen).filter(({ op }) => ASKING.test(op));
  agent.destroy();
  await Promise.all([none.stop(), many.stop()]);
  const slower = ratio(all.many, all.none);
  return [
    {
      what: `1+1 beside ${files} files, p50 of that beside none`,
      figure: slower.toFixed(2),
      detail: `${median(all.many).toFixed(2)} ms, ${median(all.none).toFixed(2)} ms; asking what has changed is ${median(asked.map(({ ms }) => Number(ms))).toFixed(1)} ms of both`,
      goal: 'at most 2',
      met: slower <= 2,
    },
    {
      what: 'writing one file, p50: more than 1+1',
      figure: `${median(all.writing.map((ms, i) => ms - all.none[i])).toFixed(2)} ms`,
      detail: `${median(all.writing).toFixed(2)} ms; its size is looked for in the sandbox`,
    },
  ];
}
