// The processes of an engine by what they are, and the memory that they have.
import fs from 'node:fs';
import { commandLine } from '../e2e/engine.mjs';
import { sum } from './stats.mjs';

function read(pid, file) {
  try {
    return fs.readFileSync(`/proc/${pid}/${file}`, 'latin1');
  } catch (e) {
    if (e.code === 'ENOENT' || e.code === 'ESRCH') return ''; // it has ended
    throw e;
  }
}

const kib = (text, name) => Number(text.match(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm'))?.[1] ?? 0);

const isInside = (pid) => (read(pid, 'status').match(/^NSpid:\s*(.*)$/m)?.[1].split(/\s+/).length ?? 0) > 1;

function kindOf(pid) {
  const command = commandLine(pid);
  if (command.startsWith('slirp4netns ')) return 'slirp4netns';
  if (!isInside(pid)) return command.endsWith('kernel.py') ? 'zygote' : 'engine';
  return command.startsWith('init ') ? 'agent' : 'kernel';
}

/** Those of one kind. */
export const processesOf = (engine, kind) => engine.family.look().filter((pid) => kindOf(pid) === kind);

/** Whether the memory of what is inside a sandbox can be seen at all: that is root's. */
export const canSeeMemory = () => process.getuid() === 0;

/** MB by kind, and of all; what is shared is counted once (PSS). tables: the kernel's page tables, which are besides. */
export function memoryOf(engine) {
  const mb = { engine: 0, zygote: 0, slirp4netns: 0, agent: 0, kernel: 0 };
  let tables = 0;
  for (const pid of engine.family.look()) {
    mb[kindOf(pid)] += (kib(read(pid, 'smaps_rollup'), 'Pss') * 1024) / 1e6;
    tables += (kib(read(pid, 'status'), 'VmPTE') * 1024) / 1e6;
  }
  return { ...mb, all: sum(Object.values(mb)), tables };
}

/** The most that the process that serves has ever had, in MiB. */
export const peakOf = (engine) => kib(read(engine.server, 'status'), 'VmHWM') / 1024;
