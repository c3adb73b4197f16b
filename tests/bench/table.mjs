// The table: rows of { group, what, figure, detail, goal, met }. goal: what is asked for, in words; met: whether it was reached.
import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';

const COLUMNS = ['', 'figure', 'measured', 'goal', ''];
const verdict = ({ met }) => (met === undefined ? '' : met ? 'met' : 'missed');
const cells = (row) => [row.what, row.figure, row.detail ?? '', row.goal ?? '', verdict(row)];

function groups(rows) {
  const all = new Map();
  for (const row of rows) all.set(row.group, [...(all.get(row.group) ?? []), row]);
  return all;
}

/** For a terminal. */
export function plain(rows) {
  const table = [COLUMNS, ...rows.map(cells)];
  const widths = COLUMNS.map((_, i) => Math.max(...table.map((line) => line[i].length)));
  const show = (line) => `  ${line.map((cell, i) => cell.padEnd(widths[i])).join('  ')}`.trimEnd();
  const out = [show(COLUMNS)];
  for (const [group, members] of groups(rows)) out.push('', group, ...members.map((row) => show(cells(row))));
  return out.join('\n');
}

/** For docs/performance.md. */
export function markdown(rows) {
  const line = (of) => `| ${of.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  const out = [line(COLUMNS), '|---|---|---|---|---|'];
  for (const [group, members] of groups(rows)) out.push(line([`**${group}**`, '', '', '', '']), ...members.map((row) => line(cells(row))));
  return out.join('\n');
}

function version(command, args, pattern) {
  const { stdout, stderr } = spawnSync(command, args, { encoding: 'utf8' });
  return `${stdout}${stderr}`.match(pattern)?.[1] ?? '?';
}

/** What it was measured on. */
export function machine(nginx) {
  const [cpu] = os.cpus();
  const distribution = fs.readFileSync('/etc/os-release', 'utf8').match(/^PRETTY_NAME="?([^"\n]*)/m)?.[1];
  return [
    `${cpu.model.trim()}, ${os.availableParallelism()} cores, ${Math.round(os.totalmem() / 2 ** 30)} GiB`,
    `Linux ${os.release()}, ${distribution}`,
    `nginx ${version(nginx, ['-v'], /nginx\/([\d.]+)/)}, SQLite ${version('sqlite3', ['--version'], /^(\S+)/)}, libcurl ${version('curl', ['--version'], /libcurl\/([\d.]+)/)}`,
  ].join('; ');
}

export const misses = (rows) => rows.filter((row) => row.met === false);
