// The limits of one sandbox (memory, processes, processors, disk) and of all together; with control groups and without.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { KERNEL, zygoteOf } from './census.mjs';
import { BUILD, ENGINE, ENVD, SUITE, assertError, commandLine, fails, output, python, readProc, request, routing, sleep, startEngine, tempFolder, until, within } from './engine.mjs';

const MEMORY = 128; // MiB, of the template `small`
const DISK = 64;
const SPARED = 64 + 64; // for the inodes of the disk, and for the kernel
const TEMPLATES = {
  'small.template': `memory = ${MEMORY}\ndisk = ${DISK}\ncpu = 1\ninterpreter = yes\n`,
  'plain.template': `memory = ${MEMORY}\ndisk = ${DISK}\ncpu = 1\n`,
};

/** A process that takes so many MiB and keeps them. */
const take = (mb) => `/usr/bin/python3 -c 'x = bytearray(${mb} << 20); print("taken", flush=True); import time; time.sleep(600)'`;

/** As many of them, each below its own limit, as are together past that of memory and disk, with what is spared for the kernel. */
const HOGS = Math.ceil((MEMORY + DISK + SPARED + 100) / 90);
const bomb = (sandbox) =>
  Promise.allSettled(Array.from({ length: HOGS }, () => sandbox.commands.run(take(90), { background: true, timeoutMs: 0 })));

/** What mountinfo says of a hierarchy: where it is mounted. */
function mountOf(type, controller) {
  for (const line of fs.readFileSync('/proc/self/mountinfo', 'latin1').split('\n')) {
    const [left, right] = line.split(' - ');
    if (!right) continue;
    const [found, , options] = right.split(' ');
    if (found === type && (!controller || options.split(',').includes(controller))) return left.split(' ')[4];
  }
  return undefined;
}

/** The text of a file of a sandbox's group, wherever the engine has made it. */
function groupFile(engine, sandbox, name) {
  const trace = fs.readFileSync(path.join(engine.state, 'cgroup'), 'latin1').trim().split('\n');
  for (const line of trace) {
    const file = path.join(line.split(' ')[2], sandbox.sandboxId, name);
    if (fs.existsSync(file)) return fs.readFileSync(file, 'latin1').trim();
  }
  return undefined;
}

async function assertGone(engine, sandbox) {
  const gone = async () => (await engine.api('GET', `/sandboxes/${sandbox.sandboxId}`)).status === 404;
  await until(gone, { deadline: 30_000, what: 'the end of the sandbox' });
  for (const port of [ENVD, 8080]) {
    const res = await request(`${engine.url}/health`, { headers: routing(sandbox, port) });
    assert.equal(res.status, 502, res.text);
    assert.match(res.text, /The sandbox was not found/);
  }
}

async function pausesAndResumes(engine) {
  const sandbox = await engine.create('small');
  // The time in a process of its own: the agent's silence alone would not show that all stand still.
  const clock = 'import time\nwhile True:\n    print(time.time(), flush=True)\n    time.sleep(0.02)\n';
  await sandbox.files.write('/tmp/clock.py', clock);
  await sandbox.commands.run('exec /usr/bin/python3 /tmp/clock.py >/tmp/times', { background: true, timeoutMs: 0 });
  const times = async () => (await output(sandbox, 'cat /tmp/times 2>/dev/null || true')).split('\n').map(Number);
  await until(async () => (await times()).length > 2, { what: 'the clock' });
  assert.equal(await sandbox.pause(), true);
  await sleep(800);
  await sandbox.connect();
  assert.equal(await python(sandbox, '6 * 7'), '42');
  // It has stood still, and goes on.
  const stood = (all) => all.some((t, i) => i && t - all[i - 1] > 0.7);
  await until(async () => stood(await times()), { deadline: 5000, what: 'a gap in the times' });
  // While it is paused it is killed, too.
  assert.equal(await sandbox.pause(), true);
  assert.equal(await sandbox.kill(), true);
  await assertGone(engine, sandbox);
}

for (const cgroups of ['auto', 'off'])
  describe(`--cgroups ${cgroups}`, SUITE, () => {
    let engine, neighbour;
    before(async () => {
      engine = await startEngine({ args: ['--cgroups', cgroups], templates: TEMPLATES });
      neighbour = await engine.create('small');
    });
    after(() => engine?.stop());

    test('the ready line says what holds', () => {
      assert.ok(engine.has('memory limit'), engine.ready.line); // always: by the one or the other
      if (cgroups === 'off') {
        assert.match(engine.ready.line, /memory limit \(watcher\)/);
        for (const layer of ['process limit', 'cpu limit', 'freezer']) assert.equal(engine.ready.inactive.get(layer), 'switched off');
      } else if (process.getuid() === 0 && mountOf('cgroup', 'memory')) {
        for (const layer of ['memory limit', 'process limit', 'cpu limit', 'freezer']) assert.match(engine.ready.line, new RegExp(`${layer} \\(cgroup v[12]\\)`));
      }
    });

    test('processes that use too much together end their sandbox and no other', async () => {
      const sandbox = await engine.create('plain');
      const stream = sandbox.commands.run('sleep 600', { timeoutMs: 0 });
      const cut = assert.rejects(stream);
      await bomb(sandbox);
      await within(60_000, cut, 'the cut of a stream');
      await assertGone(engine, sandbox);
      await engine.logged(new RegExp(`op=oom sandbox=${sandbox.sandboxId} memory_mb=${MEMORY} disk_mb=${DISK} cause=limit`));
      assert.equal(await python(neighbour, '6 * 7'), '42');
    });

    test('one process that wants too much is refused, and its sandbox lives', async () => {
      const all = `
try:
    x = bytearray(${2 * MEMORY} << 20)
except MemoryError:
    print("refused")
y = []
try:
    while True:
        y.append(bytearray(1 << 20))
except MemoryError:
    n = len(y)
    y.clear()
print(20 < n <= ${MEMORY})`;
      const run = await neighbour.runCode(all);
      assert.deepEqual(run.logs.stdout.join(''), 'refused\nTrue\n', JSON.stringify(run));
      assert.equal(await python(neighbour, '6 * 7'), '42');
    });

    test('what forks share counts once', async () => {
      const sandbox = await engine.create('plain');
      const forks = `
import os, sys, time
x = bytearray(60 << 20)
for i in range(12):
    if os.fork() == 0:
        time.sleep(600)
time.sleep(3)
print("fine", flush=True)`;
      await sandbox.files.write('/tmp/forks.py', forks);
      assert.match((await sandbox.commands.run('/usr/bin/python3 /tmp/forks.py >/tmp/out 2>&1; cat /tmp/out')).stdout, /fine/);
      assert.equal(await sandbox.kill(), true);
    });

    test('a full disk is full, and its sandbox lives', async () => {
      const sandbox = await engine.create('plain');
      const { stderr } = await sandbox.commands.run('cat /dev/zero >/tmp/big; true');
      assert.match(stderr, /No space left on device|File too large/);
      await sandbox.commands.run('mkdir -p ~/many; i=0; while [ $i -lt 20 ]; do cat /dev/zero >~/many/$i; i=$((i + 1)); done; true');
      await sandbox.commands.run('cd /tmp; seq 1 70000 | xargs touch; true', { timeoutMs: 120_000 });
      // With the disk full its processes still have all that is theirs.
      const { stdout } = await sandbox.commands.run(`/usr/bin/python3 -c 'x = bytearray(${MEMORY - 40} << 20); print(len(x) >> 20)'`);
      assert.equal(stdout.trim(), String(MEMORY - 40));
      assert.equal(await sandbox.kill(), true);
    });

    test('a fork bomb stays in its sandbox, which can be killed', async () => {
      const sandbox = await engine.create('base');
      await sandbox.files.write('/tmp/bomb.py', 'import os, time\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        time.sleep(1)\n');
      const users = engine.has('root and user') ? ['user', 'root'] : ['user'];
      for (const user of users) await sandbox.commands.run('/usr/bin/python3 /tmp/bomb.py', { background: true, timeoutMs: 0, user });
      if (cgroups === 'auto' && engine.has('process limit') && users.length === 2) {
        await until(() => Number(groupFile(engine, sandbox, 'pids.events')?.match(/^max (\d+)$/m)?.[1]) > 0, { deadline: 60_000, what: 'the limit' });
        assert.ok(Number(groupFile(engine, sandbox, 'pids.current')) <= 1024 + 128);
      } else {
        await sleep(2000);
      }
      assert.equal(await python(neighbour, '6 * 7'), '42');
      // It may have run out of memory by itself.
      const killed = await engine.api('DELETE', `/sandboxes/${sandbox.sandboxId}`);
      assert.ok([204, 404].includes(killed.status), killed.text);
      await assertGone(engine, sandbox);
    });

    test('a pause stops it all, and a paused one can be killed', () => pausesAndResumes(engine));

    if (cgroups === 'auto') {
      test('its group has the limits of its template', { skip: process.getuid() !== 0 && 'not delegated' }, () => {
        const bytes = (MEMORY + DISK + SPARED) << 20;
        const memory = groupFile(engine, neighbour, 'memory.limit_in_bytes') ?? groupFile(engine, neighbour, 'memory.max');
        if (engine.ready.line.includes('memory limit (cgroup')) assert.equal(Number(memory), bytes);
        if (engine.has('process limit')) assert.equal(groupFile(engine, neighbour, 'pids.max'), String(1024 + 128));
        const quota = groupFile(engine, neighbour, 'cpu.cfs_quota_us') ?? groupFile(engine, neighbour, 'cpu.max')?.split(' ')[0];
        if (engine.has('cpu limit')) assert.equal(quota, '100000');
        // All sandboxes weigh the same, whatever runs in them.
        const weight = groupFile(engine, neighbour, 'cpu.shares') ?? groupFile(engine, neighbour, 'cpu.weight');
        if (engine.has('cpu limit')) assert.ok(['1024', '100'].includes(weight), weight);
      });

      test('all that it runs is in its groups', { skip: process.getuid() !== 0 && 'not delegated' }, async () => {
        const trace = fs.readFileSync(path.join(engine.state, 'cgroup'), 'latin1').trim().split('\n');
        const tops = trace.map((l) => l.split(' ')[2]).filter((top) => fs.existsSync(top));
        assert.ok(tops.length >= 1);
        const [{ stdout }] = await Promise.all([neighbour.commands.run('cat /proc/self/cgroup'), python(neighbour, '1')]);
        // Each group is the root of what is seen inside.
        for (const line of stdout.trim().split('\n')) assert.match(line, /:\/(\.\.\/?)*$|^\d+:(?!memory|pids|cpu:|freezer)/, stdout);
        for (const top of tops) {
          const inside = fs.readFileSync(path.join(top, neighbour.sandboxId, 'cgroup.procs'), 'latin1').trim().split('\n');
          assert.ok(inside.length >= 2, top); // the agent and the kernel
        }
      });
    } else {
      test('a watcher that dies is replaced', { skip: process.getuid() !== 0 && 'not ours to kill' }, async () => {
        const children = () => fs.readFileSync(`/proc/${engine.server}/task/${engine.server}/children`, 'latin1').trim().split(' ');
        const name = (pid) => readProc(`${pid}/comm`)?.trim();
        const watcher = () => children().find((pid) => pid && name(pid) === 'sandgate-memory');
        const first = watcher();
        assert.ok(first, 'no watcher');
        process.kill(Number(first), 'SIGKILL');
        await until(() => watcher() && watcher() !== first, { what: 'another watcher' });
        const sandbox = await engine.create('plain');
        await bomb(sandbox);
        await assertGone(engine, sandbox);
        assert.equal(await python(neighbour, '6 * 7'), '42');
      });
    }
  });

describe('the machine as a whole', SUITE, () => {
  for (const cgroups of ['auto', 'off'])
    test(`past --max-memory none are made, until there is room again; --cgroups ${cgroups}`, async () => {
      const engine = await startEngine({ args: ['--cgroups', cgroups, '--max-memory', '400'] });
      try {
        const paused = await engine.create('base');
        await paused.pause();
        const greedy = await engine.create('base');
        const waiting = () => engine.family.look().filter((pid) => commandLine(pid) === KERNEL && pid !== zygoteOf(engine));
        // The fourth place is for another of the kind that was asked for, which has no kernel.
        await until(() => waiting().length === 3, { what: 'three kernels in the warm pool' });
        const handle = await greedy.commands.run(take(500), { background: true, timeoutMs: 0 });
        const full = async () => {
          const res = await engine.api('POST', '/v2/sandboxes', { json: { templateID: 'base' } });
          if (res.status === 201) await engine.api('DELETE', `/sandboxes/${res.json.sandboxID}`);
          return res.status !== 201 && res;
        };
        const refused = await until(full, { deadline: 30_000, every: 200, what: 'the refusal' });
        assertError(refused, 503, /^Failed to place sandbox: the sandboxes use \d+ of 400 MiB$/);
        assert.equal(refused.json.error_code, 'sandbox_capacity_unavailable');
        // The warm pool has gone first, and does not come back meanwhile.
        await engine.logged(/op=pool drained=[34]/);
        await until(() => waiting().length === 0, { what: 'an empty pool' });
        await fails(engine.create('base'), 'ServiceBusyError', /Failed to place sandbox/);
        const resume = await engine.api('POST', `/v2/sandboxes/${paused.sandboxId}/connect`, { json: {} });
        assertError(resume, 503, /^Failed to place sandbox/);
        // What runs goes on.
        assert.equal(await output(greedy, 'echo still here'), 'still here');
        await handle.kill();
        await greedy.kill();
        await until(async () => !(await full()), { deadline: 30_000, every: 200, what: 'room' });
        await paused.connect();
        assert.equal(await output(paused, 'echo awake'), 'awake');
      } finally {
        await engine.stop();
      }
    });

  test('a start by an ordinary user has limits, too', { skip: process.getuid() !== 0 && 'every other test is this one' }, async (t) => {
    // The checkout may lie under a folder that is closed to others.
    const [dir, programs] = [tempFolder(), tempFolder()];
    t.after(() => [dir, programs].forEach((folder) => fs.rmSync(folder, { recursive: true, force: true })));
    for (const name of ['sandgate-engine', 'sandgate-agent', 'sandgate-zygote.so']) fs.copyFileSync(path.join(BUILD, name), path.join(programs, name));
    const engine = await startEngine({ dir, user: 65534, command: path.join(programs, 'sandgate-engine'), templates: TEMPLATES });
    try {
      const [sandbox, neighbour] = [await engine.create('plain'), await engine.create('plain')];
      await bomb(sandbox);
      await assertGone(engine, sandbox);
      await engine.logged(new RegExp(`op=oom sandbox=${sandbox.sandboxId}`));
      assert.equal(await output(neighbour, 'echo here'), 'here');
    } finally {
      await engine.stop();
    }
  });

  test('--max-memory takes a number', async () => {
    await assert.rejects(startEngine({ args: ['--max-memory', 'much'] }), /--max-memory takes a number/);
  });

  test('after a kill -9 the next one removes every group', { skip: process.getuid() !== 0 && 'not delegated' }, async () => {
    const first = await startEngine({ templates: TEMPLATES });
    const sandboxes = [await first.create('small'), await first.create('plain')];
    await sandboxes[1].pause();
    const tops = fs.readFileSync(path.join(first.state, 'cgroup'), 'latin1').trim().split('\n').map((l) => l.split(' ')[2]);
    const made = tops.filter((top) => fs.existsSync(top));
    assert.ok(made.length >= 1);
    for (const top of made) for (const s of sandboxes) assert.ok(fs.existsSync(path.join(top, s.sandboxId)), top);
    await first.kill9();
    const second = await startEngine({ dir: first.dir });
    try {
      for (const top of tops) assert.ok(!fs.existsSync(top), `${top} is left`);
      await until(() => first.family.alive().length === 0, { what: 'the end of what was left' });
    } finally {
      await second.stop();
    }
  });
});

// Where the machine's own choice is another, it is made here by hiding a hierarchy.
describe('the other freezer', { ...SUITE, skip: process.getuid() !== 0 && 'only root can hide a hierarchy' }, () => {
  const v2 = mountOf('cgroup2');
  const v1 = mountOf('cgroup', 'freezer');

  test('version 1 pauses and kills as well', { skip: !(v1 && v2) && 'there are not both' }, async () => {
    const dir = tempFolder();
    const command = path.join(dir, 'engine');
    fs.writeFileSync(command, `#!/bin/sh\nexec unshare -m sh -c 'umount ${v2} && exec "$0" "$@"' ${ENGINE} "$@"\n`, { mode: 0o755 });
    const engine = await startEngine({ dir, command, templates: TEMPLATES });
    try {
      assert.match(engine.ready.line, /freezer \(cgroup v1\)/);
      await pausesAndResumes(engine);
      // A paused one is no hindrance to the end of all.
      await (await engine.create('small')).pause();
    } finally {
      await engine.stop();
    }
  });
});
