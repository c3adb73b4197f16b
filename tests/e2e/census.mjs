// What an engine has of the machine: descriptors, memory, mounts, control groups, processes. Taken before and after some work, it shows
// what the work has left behind.
import fs from 'node:fs';
import path from 'node:path';
import { cgroupDirectory, commandLine, processes, readProc, statusField, until } from './engine.mjs';

/** What a kernel looks like, and the zygote as well. */
export const KERNEL = '/usr/bin/python3 /etc/sandgate/kernel.py';

/** The zygote of an engine: forks of it look the same, but are deeper in pid namespaces. */
export const zygoteOf = (engine) =>
  engine.family.look().find((pid) => commandLine(pid) === KERNEL && statusField(pid, 'NSpid')?.split(/\s+/).length === 1);

/** Those that have ended and that nobody has reaped. */
export function zombies(engine) {
  const members = new Set(engine.family.look());
  return [...processes().values()].filter((p) => members.has(p.pid) && p.state === 'Z');
}

const lineCount = (text) => text.split('\n').length - 1;

function openFiles(pid) {
  try {
    return fs.readdirSync(`/proc/${pid}/fd`).length;
  } catch {
    return 0; // not ours to read
  }
}

/** In MiB; what is shared with forks counts by its part only, so that sandboxes that live do not matter much. */
const memory = (pid) => Number(readProc(`${pid}/smaps_rollup`).match(/^Pss_Anon:\s*(\d+)/m)?.[1] ?? parseInt(statusField(pid, 'RssAnon') ?? '0', 10)) / 1024;

function folders(dir) {
  let n = 0;
  for (const entry of fs.readdirSync(dir, { withFileTypes: true })) if (entry.isDirectory()) n += 1 + folders(path.join(dir, entry.name));
  return n;
}

/** All groups below the engine's tops, in every hierarchy. */
function cgroups(engine) {
  let n = 0;
  for (const line of readProc(`${engine.server}/cgroup`).split('\n')) {
    const dir = line && cgroupDirectory(line);
    if (!dir || !path.basename(path.dirname(dir)).startsWith('sandgate-')) continue;
    try {
      n += folders(path.dirname(dir));
    } catch {
      return Infinity; // one was removed while we looked: look again
    }
  }
  return n;
}

/** Objects of the whole machine, where it may be read; 0 else. */
const slab = (name) => Number(readProc('slabinfo').match(new RegExp(`^${name} +(\\d+)`, 'm'))?.[1] ?? 0);

const ENGINE_MEMORY = 'memory of the engine, MiB';
const SANITIZED = /\/san$/;
/** Other test files run at the same time; a soak does not share the machine. */
const SHARED = process.env.NODE_TEST_CONTEXT !== undefined;

/**
 * What is counted, and by how much it may have grown. Numbers of the engine's own must be as they were. Its memory may move a little;
 * that of the whole machine moves with what else runs there. Namespaces are only shown: the kernel takes them apart when it likes, also
 * long after the engine has ended, and what would hold one is among the other rows.
 */
const ROWS = [
  ['open files of the engine', (e) => openFiles(e.server), 0],
  ['open files of the zygote', (e) => openFiles(zygoteOf(e)), 0],
  ['open files of the keeper', (e) => openFiles(e.pid), 0],
  ['processes', (e) => e.family.look().length, 0],
  ['zombies', (e) => zombies(e).length, 0],
  ['mounts of the engine', (e) => lineCount(readProc(`${e.server}/mountinfo`)), 0],
  ['mounts of the zygote', (e) => lineCount(readProc(`${zygoteOf(e)}/mountinfo`)), 0],
  ['mounts of the machine', (e) => readProc('self/mountinfo').split('\n').filter((l) => l.includes(e.dir)).length, 0],
  ['control groups', cgroups, 0],
  [ENGINE_MEMORY, (e) => memory(e.server), SANITIZED.test(process.env.SANDGATE_BUILD ?? '') ? 48 : 3],
  ['memory of the zygote, MiB', (e) => memory(zygoteOf(e)), 8],
  ['files in memory, MiB', () => parseInt(readProc('meminfo').match(/^Shmem:\s*(\d+)/m)?.[1] ?? '0', 10) / 1024, SHARED ? Infinity : 256],
  ['user namespaces', () => slab('user_namespace'), Infinity],
  ['pid namespaces', () => slab('pid_namespace'), Infinity],
  ['network namespaces', () => slab('net_namespace'), Infinity],
];

export const census = (engine) => ROWS.map(([, count]) => count(engine));

/**
 * Waits until nothing has grown. Returns the last census, and the names of what stayed grown. The C library keeps what a burst needed
 * for the next one: `heap` is how much of that, in MiB, is fine.
 */
export async function settled(engine, before, { deadline = 30_000, heap = 0 } = {}) {
  let after, grown;
  await until(
    () => {
      after = census(engine);
      grown = ROWS.filter(([name, , limit], i) => after[i] - before[i] > limit + (name === ENGINE_MEMORY ? heap : 0));
      return grown.length === 0;
    },
    { deadline, every: 250 },
  ).catch(() => {});
  return { after, grown: grown.map(([name]) => name) };
}

/** Waits until what was begun is over: the counts stand still for a while. */
export async function still(engine) {
  let last = '';
  let since = performance.now();
  await until(
    () => {
      const now = census(engine).slice(0, 9).join();
      if (now !== last) since = performance.now();
      last = now;
      return performance.now() - since > 1500;
    },
    { deadline: 60_000, every: 200, what: 'a standstill' },
  );
  return census(engine);
}

/** Lines of a table, before and after. */
export function table(before, after) {
  const number = (x) => (Number.isInteger(x) ? String(x) : x.toFixed(1)).padStart(9);
  return ['what'.padEnd(28) + '   before    after', ...ROWS.map(([name], i) => name.padEnd(28) + number(before[i]) + number(after[i]))];
}
