// What the engine's start is compared with: bubblewrap, and in it a Python that starts by itself and runs the engine's own driver. It
// confines as the engine does as far as bubblewrap can: namespaces, no capabilities, a read-only system. It has no network and runs
// nothing but print(1): started by root, bubblewrap's uid 1000 is the machine's root.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import path from 'node:path';
import { TOP } from '../e2e/gateway.mjs';

const HOME = '/home/user';
const DRIVER = '/etc/sandgate/kernel.py';

const BWRAP = [
  ...['--unshare-all', '--die-with-parent', '--new-session', '--cap-drop', 'ALL', '--uid', '1000', '--gid', '1000', '--hostname', 'sandbox'],
  ...['--ro-bind', '/usr', '/usr', ...['bin', 'lib', 'lib64', 'sbin'].flatMap((name) => ['--symlink', `usr/${name}`, `/${name}`])],
  ...['--ro-bind', path.join(TOP, 'src/engine/kernel.py'), DRIVER],
  ...['--proc', '/proc', '--dev', '/dev', '--tmpfs', '/tmp', '--tmpfs', HOME, '--chdir', HOME],
  ...['--clearenv', '--setenv', 'HOME', HOME, '--setenv', 'PATH', '/usr/bin:/bin'],
];

export const hasBubblewrap = () => spawnSync('bwrap', ['--version']).status === 0;

/** Starts it, has it run print(1), and ends it: the milliseconds to the end of the run. */
export function coldStart() {
  return new Promise((resolve, reject) => {
    const begin = performance.now();
    // A pipe of Node's is a pair of sockets, which is what the driver wants as its third.
    const child = spawn('bwrap', [...BWRAP, '/usr/bin/python3', '-I', DRIVER], { stdio: ['ignore', 'ignore', 'pipe', 'pipe'] });
    const timer = setTimeout(() => child.kill('SIGKILL'), 60_000);
    const control = child.stdio[3];
    let [said, took, complaint] = ['', undefined, ''];
    control.write('{"op":"run","code":"print(1)"}\n');
    control.setEncoding('utf8').on('data', (text) => {
      said += text;
      if (took !== undefined || !said.includes('end_of_execution')) return;
      took = performance.now() - begin;
      child.kill('SIGKILL');
    });
    control.on('error', () => {}); // it has ended, which is told below
    child.stderr.setEncoding('utf8').on('data', (text) => (complaint += text));
    child.on('error', reject).on('close', () => {
      clearTimeout(timer);
      if (took === undefined) reject(new Error(`bubblewrap ended early: ${complaint}`));
      else resolve(took);
      assert.ok(took === undefined || said.includes('"text": "1\\n"'), said);
    });
  });
}
