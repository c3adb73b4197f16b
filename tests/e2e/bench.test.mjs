// The benchmark still runs: every measurement with sizes that say nothing about speed. Node in the gateway's place and bubblewrap are
// left out where they are not installed.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import path from 'node:path';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import { SUITE } from './engine.mjs';
import { TOP } from './gateway.mjs';

const run = promisify(execFile);

/** Of each group, something that its rows say. */
const EXPECTED = [
  /^ {2}of nginx's own "return 200" +\d+\.\d\d +\S+\/s of \S+\/s +at least 0\.12 +(met|missed)$/m,
  /^ {2}of the same without auth +\d/m,
  /^ {2}\d callers, p99: more than the engine +-?[\d.]+ ms/m,
  /^ {2}first byte, p50: more than the engine +-?[\d.]+ ms/m,
  /^ {2}a piece of output, p99: more than the engine +-?[\d.]+ ms/m,
  /^ {2}2 MB of output, of reading the engine +[\d.]+ +\d+ of \d+ MB\/s/m,
  /^ {2}1\+1, p50: more than without a log +-?[\d.]+ ms +-?\d+ us of the worker; in memory -?[\d.]+ ms/m,
  /^ {2}1\+1 beside 200 files, p50 of that beside none +[\d.]+ .* at most 2 /m,
  /^ {2}6 in flight of 2 s: finished +6 of 6 .* met$/m,
  /^ {2}6 in flight: memory \(PSS\) of the gateway +\d+ MiB/m,
  /^ {2}6 open streams of 2 s: finished +6 of 6 .* met$/m,
  /^ {2}6 open streams: GET status, p50 of an idle gateway's +[\d.]+/m,
  /^ {2}an idle worker +[\d.]+ MiB/m,
  /^ {2}upload, of bare proxy_pass +\d/m,
  /^ {2}download, of bare proxy_pass +\d/m,
  /^ {2}GET status with 200 sessions, of that with 10 +\d/m,
  /^ {2}a pass of sandgate-cleanup, 200 live sandboxes +\d+ ms/m,
  /^ {2}the client leaves: to KeyboardInterrupt in the sandbox, p90 +[\d.]+ ms/m,
  /^ {2}DELETE: to the beginning of the next run, p90 +[\d.]+ ms/m,
  /^ {2}first 1\+1 +x \d/m,
  /^ {2}from the pool +[\d.]+ ms .* at most 5 ms +(met|missed)$/m,
  /^ {2}from the zygote, the pool empty +[\d.]+ ms .* at most 20 ms +(met|missed)$/m,
  /^ {2}bubblewrap \+ cold IPython +([\d.]+ ms|not measured) /m,
  /^ {2}2 at once, no pool: until all are created +\d+\/s/m,
  /^ {2}2 sandboxes with internet, each +(-?[\d.]+ MB +kernel -?[\d.]+, agent -?[\d.]+, slirp4netns -?[\d.]+, .* at most 6 MB +(met|missed)$|not measured)/m,
  /^ {2}2 sandboxes without internet, each +(-?[\d.]+ MB|not measured)/m,
  /^ {2}1\+1 in a kernel that has run, of GET \/health +x [\d.]+/m,
  /^ {2}print of 2 MB, of a plain Python's into a pipe +[\d.]+ +\d+ of \d+ MB\/s/m,
  /^ {2}a neighbour's 1\+1 meanwhile, of that when idle +x [\d.]+/m,
  /^ {2}writing 8 MiB, of nginx's own +[\d.]+ +\d+ of \d+ MiB\/s/m,
  /^ {2}reading 8 MiB, of nginx's own +[\d.]+/m,
  /^Measured on .* cores, .*nginx \d/m,
  /^\d+ goals met, \d+ missed$/m,
];

describe('the benchmark', SUITE, () => {
  test('measures everything', async () => {
    const { stdout } = await run(process.execPath, [path.join(TOP, 'tests/bench/run.mjs'), '--quick'], { timeout: 600_000 });
    for (const pattern of EXPECTED) assert.match(stdout, pattern);
  });

  test('prints one group alone, for the page about it', async () => {
    const { stdout } = await run(process.execPath, [path.join(TOP, 'tests/bench/run.mjs'), '--quick', '--markdown', 'engine'], { timeout: 600_000 });
    assert.match(stdout, /^\| {2}\| figure \| measured \| goal \| {2}\|\n\|---\|/);
    assert.match(stdout, /^\| first 1\+1 \| x [\d.]+ \|/m);
    assert.doesNotMatch(stdout, /proxy_pass/);
  });
});
