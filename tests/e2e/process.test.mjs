// envd's processes: start, connect, list, input, signals, timeouts, users, environment, and the bytes of the Connect protocol.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Sandbox } from '@e2b/code-interpreter';
import {
  SUITE,
  assertConnectError,
  assertError,
  assertStreamError,
  envelope,
  envelopes,
  fails,
  outcome,
  output,
  shell,
  sleep,
  startEngine,
  until,
  within,
} from './engine.mjs';

const START = 'process.Process/Start';
const CONNECT = 'process.Process/Connect';
const UNAUTHORIZED = 'unauthorized access, please provide a valid access token or method signing if supported';

let engine;
let sandbox;

const bash = (command, more = {}) => ({ process: { cmd: '/bin/bash', args: ['-l', '-c', command], ...more } });
/** A process by a raw Start call, to its end. */
const run = async (message, options) => outcome(await engine.stream(sandbox, START, message, options));
const call = (method, message, options) => engine.rpc(sandbox, `process.Process/${method}`, message, options);
const asRoot = () => engine.has('root and user');
const pids = async () => (await sandbox.commands.list()).map((p) => p.pid);

/** Reads a stream up to the first event that `wanted` accepts. */
async function first(events, wanted) {
  for (;;) {
    const { value, done } = await within(10_000, events.next(), 'the next event');
    assert.ok(!done, 'the stream ended early');
    const found = value.event && wanted(value.event);
    if (found) return found;
  }
}
const started = (events) => first(events, (e) => e.start?.pid);

describe('processes', SUITE, () => {
  before(async () => {
    engine = await startEngine();
    sandbox = await engine.create('base', { envs: { GLOBAL: 'g', SHARED: 'sandbox' } });
  });
  after(() => engine?.stop());

  // ------------------------------------------------------------------------------------------------------------ output and exit

  test('stdout, stderr and the exit code', async () => {
    const seen = { out: '', err: '' };
    const ok = await sandbox.commands.run('echo out; echo err >&2', { onStdout: (d) => (seen.out += d), onStderr: (d) => (seen.err += d) });
    assert.deepEqual([ok.exitCode, ok.stdout, ok.stderr, ok.error], [0, 'out\n', 'err\n', undefined]);
    assert.deepEqual(seen, { out: 'out\n', err: 'err\n' });
    const bad = await fails(sandbox.commands.run('echo some; echo more >&2; exit 3'), 'CommandExitError');
    assert.deepEqual([bad.exitCode, bad.stdout, bad.stderr, bad.error], [3, 'some\n', 'more\n', 'exit status 3']);
  });

  test('the events on the wire, default values left out', async () => {
    const ok = await run(bash('echo hi'));
    assert.equal(typeof ok.pid, 'number');
    assert.equal(ok.stdout, 'hi\n');
    assert.deepEqual(ok.end, { exited: true, status: 'exit status 0' });
    assert.deepEqual(ok.trailer, {});
    const bad = await run(bash('exit 7'));
    assert.deepEqual(bad.end, { exitCode: 7, exited: true, status: 'exit status 7', error: 'exit status 7' });
  });

  test('the answer is a Connect stream, its first event at once', async () => {
    const res = await engine.stream(sandbox, START, bash('sleep 1; echo done'));
    assert.equal(res.headers['content-type'], 'application/connect+json');
    const events = envelopes(res);
    const { value } = await within(900, events.next(), 'the start event');
    assert.ok(value.event.start.pid > 0);
    res.drop();
  });

  test('killed by a signal: exit code -1 and the name of the signal', async () => {
    const got = await run(bash('kill -9 $$'));
    assert.deepEqual(got.end, { exitCode: -1, status: 'signal: killed', error: 'signal: killed' });
    const error = await fails(sandbox.commands.run('kill -TERM $$'), 'CommandExitError');
    assert.deepEqual([error.exitCode, error.error], [-1, 'signal: terminated']);
    assert.equal((await run(bash('kill -SEGV $$'))).end.status, 'signal: segmentation fault');
  });

  test('a missing program exits with 127', async () => {
    const got = await run({ process: { cmd: '/no/such/program' } });
    assert.equal(got.end?.exitCode, 127, JSON.stringify(got));
    assert.equal((await shell(sandbox, 'no-such-program')).exitCode, 127);
  });

  test('a program is found in PATH, and gets its arguments as they are', async () => {
    const args = ['a b', "it's", '"', '$HOME', '', '-n', 'ü\n'];
    const got = await run({ process: { cmd: 'printf', args: ['<%s>', ...args] } });
    assert.equal(got.stdout, args.map((a) => `<${a}>`).join(''));
  });

  test('all 256 bytes come through', async () => {
    const got = await run({
      process: { cmd: '/usr/bin/python3', args: ['-c', 'import sys; sys.stdout.buffer.write(bytes(range(256)) * 10)'] },
    });
    assert.deepEqual(got.stdoutBytes, Buffer.concat(Array(10).fill(Buffer.from(Array.from({ length: 256 }, (_, i) => i)))));
  });

  test('UTF-8 that is split between two writes arrives whole', async () => {
    const { stdout } = await sandbox.commands.run(
      "printf 'a\\xe2\\x82'; sleep 0.3; printf '\\xacb\\xf0\\x9f'; sleep 0.3; printf '\\x98\\x80'",
    );
    assert.equal(stdout, 'a€b😀');
  });

  test('20 MB of output, in pieces of at most 32 KiB', async () => {
    const before = engine.peaks();
    const got = await run(bash("head -c 20000000 /dev/zero | tr '\\0' x; echo end >&2"), { deadline: 60_000 });
    assert.equal(got.stdoutBytes.length, 20_000_000);
    assert.ok(got.stdoutBytes.every((b) => b === 0x78));
    assert.equal(got.stderr, 'end\n');
    assert.ok(got.largest <= 32 * 1024, `a piece of ${got.largest} bytes`);
    engine.assertFlat(before);
  });

  test('a slow reader slows the process, not the engine', async () => {
    const before = engine.peaks();
    const res = await engine.stream(sandbox, START, bash('yes hello'));
    await sleep(1500); // nothing is read in this time
    assert.equal(await output(sandbox, 'echo others run'), 'others run');
    engine.assertFlat(before);
    const pid = await started(envelopes(res));
    res.drop();
    assert.equal(await sandbox.commands.kill(pid), true);
  });

  // ------------------------------------------------------------------------------------------------------------ environment

  test('the environment: HOME, USER, LOGNAME and PATH, then the sandbox, then the request', async () => {
    const id = sandbox.sandboxId;
    assert.equal(
      await output(sandbox, 'echo $HOME:$USER:$LOGNAME:$GLOBAL:$SHARED:$E2B_SANDBOX:$E2B_SANDBOX_ID'),
      `/home/user:user:user:g:sandbox:true:${id}`,
    );
    assert.equal(await output(sandbox, 'echo $SHARED:$OWN', { envs: { SHARED: 'request', OWN: 'a b=c' } }), 'request:a b=c');
    assert.match(await output(sandbox, 'echo $PATH'), /(^|:)\/usr\/bin(:|$)/);
    assert.equal(await output(sandbox, 'echo ${OWN-unset}'), 'unset', 'the environment of one request stays there');
    const plain = await run({ process: { cmd: '/usr/bin/env', envs: { ONLY: 'this' } } });
    assert.match(plain.stdout, /^ONLY=this$/m);
  });

  test('/envs gives the variables of the sandbox', async () => {
    const { status, json } = await engine.envd(sandbox, 'GET', '/envs');
    assert.equal(status, 200);
    assert.deepEqual(
      [json.GLOBAL, json.E2B_SANDBOX, json.E2B_SANDBOX_ID, typeof json.E2B_TEMPLATE_ID],
      ['g', 'true', sandbox.sandboxId, 'string'],
    );
  });

  test('the working directory: home, absolute, relative to home, ~', async () => {
    await sandbox.files.makeDir('work/deep');
    assert.equal(await output(sandbox, 'pwd'), '/home/user');
    assert.equal(await output(sandbox, 'pwd', { cwd: '/tmp' }), '/tmp');
    assert.equal(await output(sandbox, 'pwd', { cwd: 'work/deep' }), '/home/user/work/deep');
    assert.equal(await output(sandbox, 'pwd', { cwd: 'work/../work' }), '/home/user/work');
    assert.equal(await output(sandbox, 'pwd', { cwd: '~/work' }), '/home/user/work');
    await fails(sandbox.commands.run('pwd', { cwd: '/no/such' }), 'InvalidArgumentError', /cwd '\/no\/such' does not exist/);
    await fails(sandbox.commands.run('pwd', { cwd: 'absent' }), 'InvalidArgumentError', /cwd '\/home\/user\/absent' does not exist/);
    await assertStreamError(
      await engine.stream(sandbox, START, bash('pwd', { cwd: '/no/such' })),
      'invalid_argument',
      /^cwd '\/no\/such' does not exist$/,
    );
    await assertStreamError(
      await engine.stream(sandbox, START, bash('pwd', { cwd: '~other' })),
      'invalid_argument',
      /cannot expand user-specific home dir/,
    );
  });

  test('the user: user by default, root when asked, nobody else', async () => {
    assert.equal(await output(sandbox, 'id -un; id -u; id -g; echo $HOME'), 'user\n1000\n1000\n/home/user');
    assert.equal(await output(sandbox, 'id -un', { user: 'user' }), 'user');
    if (asRoot()) assert.equal(await output(sandbox, 'id -un; id -u; echo $HOME:$USER', { user: 'root' }), 'root\n0\n/root:root');
    else await fails(sandbox.commands.run('id', { user: 'root' }), 'AuthenticationError', /invalid username: 'root'/);
    await fails(sandbox.commands.run('id', { user: 'nosuch' }), 'AuthenticationError', /invalid username: 'nosuch'/);
    const authorization = `Basic ${Buffer.from('nosuch:').toString('base64')}`;
    await assertStreamError(
      await engine.stream(sandbox, START, bash('id'), { headers: { authorization } }),
      'unauthenticated',
      /^invalid username: 'nosuch'$/,
    );
    assertConnectError(
      await engine.rpc(sandbox, 'filesystem.Filesystem/Stat', { path: '/' }, { headers: { authorization } }),
      401,
      'unauthenticated',
      /^invalid username: 'nosuch'$/,
    );
  });

  // ------------------------------------------------------------------------------------------------------------ stdin

  test('stdin: send, close, and the answer', async () => {
    const cat = await sandbox.commands.run('cat; echo done', { background: true, stdin: true });
    await cat.sendStdin('one ü\n');
    await sandbox.commands.sendStdin(cat.pid, new Uint8Array([0x74, 0x77, 0x6f, 0x0a]));
    await until(() => cat.stdout === 'one ü\ntwo\n', { what: 'the echo' });
    await cat.closeStdin();
    assert.equal((await within(10_000, cat.wait())).stdout, 'one ü\ntwo\ndone\n');
  });

  test('closing stdin twice is fine; sending to it afterwards is not', async () => {
    const sleeper = await sandbox.commands.run('cat > /dev/null; sleep 30', { background: true, stdin: true });
    await sleeper.closeStdin();
    await sleeper.closeStdin();
    assertConnectError(
      await call('SendInput', { process: { pid: sleeper.pid }, input: { stdin: 'YQ==' } }),
      500,
      'internal',
      /^error writing to stdin: stdin not enabled or closed$/,
    );
    await sleeper.kill();
  });

  test('without stdin a program reads nothing, and input is refused', async () => {
    assert.equal((await sandbox.commands.run('cat; echo eof')).stdout, 'eof\n');
    const sleeper = await sandbox.commands.run('sleep 30', { background: true });
    assertConnectError(
      await call('SendInput', { process: { pid: sleeper.pid }, input: { stdin: 'YQ==' } }),
      500,
      'internal',
      /stdin not enabled or closed/,
    );
    const pty = await call('SendInput', { process: { pid: sleeper.pid }, input: { pty: 'YQ==' } });
    assertConnectError(pty, 500, 'internal', /tty not assigned/);
    await sleeper.kill();
  });

  test('stdin that is not mentioned is open', async () => {
    const res = await engine.stream(sandbox, START, { process: { cmd: '/bin/cat' } });
    const events = envelopes(res);
    const pid = await started(events);
    assert.deepEqual((await call('SendInput', { process: { pid }, input: { stdin: Buffer.from('x').toString('base64') } })).json, {});
    assert.equal(await first(events, (e) => e.data?.stdout), 'eA==');
    assert.deepEqual((await call('CloseStdin', { process: { pid } })).json, {});
    assert.deepEqual(await first(events, (e) => e.end), { exited: true, status: 'exit status 0' });
  });

  test('a megabyte of input goes through a pipe that is read slowly', async () => {
    const counter = await sandbox.commands.run('sleep 0.5; wc -c', { background: true, stdin: true });
    const piece = 'x'.repeat(65_536);
    for (let i = 0; i < 16; i++) await counter.sendStdin(piece);
    await counter.closeStdin();
    assert.equal((await within(15_000, counter.wait())).stdout.trim(), '1048576');
  });

  test('bad input messages', async () => {
    for (const message of [
      {},
      { process: {} },
      { process: { pid: 'x' }, input: { stdin: '' } },
      { process: { pid: 1 }, input: { stdin: '***' } },
      [],
      'x',
    ]) {
      const res = await call('SendInput', message);
      assert.ok(res.status >= 400 && res.status < 500, `${JSON.stringify(message)}: ${res.status} ${res.text}`);
    }
  });

  // ------------------------------------------------------------------------------------------------------------ background, connect, list

  test('a process in the background can be listed, connected to and waited for', async () => {
    const handle = await sandbox.commands.run('sleep 0.7; echo "$TAGGED"; exit 4', {
      background: true,
      cwd: '/tmp',
      envs: { TAGGED: 'yes' },
    });
    const listed = (await sandbox.commands.list()).find((p) => p.pid === handle.pid);
    assert.deepEqual(JSON.parse(JSON.stringify(listed)), {
      pid: handle.pid,
      cmd: '/bin/bash',
      args: ['-l', '-c', 'sleep 0.7; echo "$TAGGED"; exit 4'],
      envs: { TAGGED: 'yes' },
      cwd: '/tmp',
    });
    const other = await sandbox.commands.connect(handle.pid);
    assert.equal(other.pid, handle.pid);
    for (const h of [handle, other]) {
      const end = await fails(within(10_000, h.wait()), 'CommandExitError');
      assert.deepEqual([end.exitCode, end.stdout], [4, 'yes\n']);
    }
    await until(async () => !(await pids()).includes(handle.pid), { what: 'leaving the list' });
  });

  test('by tag: start, list, connect, signal', async () => {
    const res = await engine.stream(sandbox, START, { ...bash('sleep 30'), tag: 'my tag' });
    const pid = await started(envelopes(res));
    assert.equal((await sandbox.commands.list()).find((p) => p.pid === pid).tag, 'my tag');
    const again = await engine.stream(sandbox, CONNECT, { process: { tag: 'my tag' } });
    const events = envelopes(again);
    assert.equal(await started(events), pid);
    assert.equal((await call('SendSignal', { process: { tag: 'my tag' }, signal: 'SIGNAL_SIGKILL' })).status, 200);
    assert.equal((await first(events, (e) => e.end)).status, 'signal: killed');
    await assertStreamError(await engine.stream(sandbox, CONNECT, { process: { tag: 'no such tag' } }), 'not_found');
  });

  test('a late connect gets the end; an unknown pid is not found', async () => {
    const { pid } = await run(bash('exit 5'));
    const late = await outcome(await engine.stream(sandbox, CONNECT, { process: { pid } }));
    assert.deepEqual([late.pid, late.end.exitCode], [pid, 5]);
    await assertStreamError(
      await engine.stream(sandbox, CONNECT, { process: { pid: 99999 } }),
      'not_found',
      /^process with pid 99999 not found$/,
    );
    await fails(sandbox.commands.connect(99999), 'NotFoundError', /process with pid 99999 not found/);
    for (const method of ['SendInput', 'CloseStdin', 'SendSignal']) {
      const res = await call(method, { process: { pid: 99999 }, input: { stdin: 'YQ==' }, signal: 'SIGNAL_SIGKILL' });
      assertConnectError(res, 404, 'not_found', /process with pid 99999 not found/);
    }
  });

  test('when the client leaves, the process lives on and its output is lost', async () => {
    const handle = await sandbox.commands.run('for i in $(seq 1 60); do echo tick$i; sleep 0.1; done; echo over > /home/user/over', {
      background: true,
    });
    await until(() => handle.stdout.includes('tick1\n'), { what: 'the first tick' });
    await handle.disconnect();
    const heard = handle.stdout.trim().split('\n').length;
    await sleep(1000);
    const again = await sandbox.commands.connect(handle.pid);
    await until(() => again.stdout.split('\n').length > 4, { what: 'further ticks' });
    const numbers = again.stdout
      .trim()
      .split('\n')
      .map((l) => Number(l.replace('tick', '')));
    assert.ok(numbers[0] > heard + 3, `nothing is replayed: ${heard} then ${numbers[0]}`);
    assert.deepEqual(
      numbers,
      numbers.map((_, i) => numbers[0] + i),
      'no tick is lost while somebody listens',
    );
    await again.disconnect();
    await until(() => sandbox.files.exists('/home/user/over'), { deadline: 15_000, what: 'the end of the process' });
  });

  // ------------------------------------------------------------------------------------------------------------ signals

  test('kill: true once, then false', async () => {
    const handle = await sandbox.commands.run('sleep 60', { background: true });
    assert.equal(await handle.kill(), true);
    const end = await fails(within(10_000, handle.wait()), 'CommandExitError');
    assert.deepEqual([end.exitCode, end.error], [-1, 'signal: killed']);
    await until(async () => !(await pids()).includes(handle.pid), { what: 'leaving the list' });
    assert.equal(await sandbox.commands.kill(handle.pid), false);
    assert.equal(await sandbox.commands.kill(99999), false);
  });

  test('SIGTERM reaches the process, by name and by number', async () => {
    for (const signal of ['SIGNAL_SIGTERM', 15]) {
      const handle = await sandbox.commands.run("trap 'echo caught; exit 6' TERM; echo ready; while :; do sleep 0.1; done", {
        background: true,
      });
      await until(() => handle.stdout.includes('ready'), { what: 'the trap' });
      assert.equal((await call('SendSignal', { process: { pid: handle.pid }, signal })).status, 200);
      const end = await fails(within(10_000, handle.wait()), 'CommandExitError');
      assert.equal(end.exitCode, 6);
    }
  });

  test('other signals are not implemented', async () => {
    const handle = await sandbox.commands.run('sleep 60', { background: true });
    for (const signal of ['SIGNAL_UNSPECIFIED', 2, 0]) {
      const res = await call('SendSignal', { process: { pid: handle.pid }, signal });
      assertConnectError(res, 501, 'unimplemented');
    }
    const unknown = await call('SendSignal', { process: { pid: handle.pid }, signal: 'SIGNAL_SIGNONSENSE' });
    assert.ok(unknown.status === 400 || unknown.status === 501, unknown.text);
    assert.ok((await pids()).includes(handle.pid));
    await handle.kill();
  });

  test('grandchildren that hold the pipes delay the end, but not after a kill', async () => {
    const slow = await sandbox.commands.run('(sleep 1; echo late) & echo first');
    assert.equal(slow.stdout, 'first\nlate\n');
    const handle = await sandbox.commands.run('sleep 100 & echo first; wait', { background: true });
    await until(() => handle.stdout === 'first\n', { what: 'the first line' });
    assert.equal(await handle.kill(), true);
    const end = await fails(within(5_000, handle.wait(), 'the end after the kill'), 'CommandExitError');
    assert.equal(end.exitCode, -1);
  });

  // ------------------------------------------------------------------------------------------------------------ timeouts, keepalives

  test('a signal to a process that has left only its children behind ends the stream', async () => {
    const res = await engine.stream(sandbox, START, bash('sleep 20 & exit 0'));
    const events = envelopes(res);
    const pid = await started(events);
    await sleep(300);
    const from = performance.now();
    const answer = await engine.rpc(sandbox, 'process.Process/SendSignal', { process: { pid }, signal: 'SIGNAL_SIGKILL' });
    assert.equal(answer.status, 200, answer.text);
    let last;
    for await (const event of events) last = event;
    assert.ok(last && performance.now() - from < 5_000);
  });

  test('Connect-Timeout-Ms bounds the process', async () => {
    const from = performance.now();
    const res = await engine.stream(sandbox, START, bash('sleep 60'), { headers: { 'connect-timeout-ms': '1000' } });
    const got = await outcome(res);
    const took = performance.now() - from;
    assert.deepEqual(got.trailer.error, { code: 'deadline_exceeded', message: 'context deadline exceeded' });
    assert.ok(took > 900 && took < 4000, `${took} ms`);
    assert.ok(!(await pids()).includes(got.pid));
  });

  test('the timeout also holds when the client is gone', async () => {
    const res = await engine.stream(sandbox, START, bash('exec sleep 61'), { headers: { 'connect-timeout-ms': '1500' } });
    const pid = await started(envelopes(res));
    res.drop();
    await sleep(300);
    assert.ok((await pids()).includes(pid), 'leaving does not kill it');
    await until(async () => !(await pids()).includes(pid), { deadline: 5_000, what: 'the timeout' });
  });

  test('the timeout of one who connects ends his stream, not the process', async () => {
    const res = await engine.stream(sandbox, START, bash('exec sleep 62'));
    const pid = await started(envelopes(res));
    const follow = (ms) => engine.stream(sandbox, CONNECT, { process: { pid } }, { headers: { 'connect-timeout-ms': ms } });
    await assertStreamError(await follow('300'), 'deadline_exceeded', /^context deadline exceeded$/);
    await assertStreamError(await follow('soon'), 'invalid_argument', /Connect-Timeout-Ms/);
    assert.ok((await pids()).includes(pid));
    assert.equal(await sandbox.commands.kill(pid), true);
    res.drop();
  });

  test('a time limit does not run while the sandbox is paused', async () => {
    const box = await engine.create('base');
    // One long sleep would be over when the pause is; of many short ones each begins when the one before has ended.
    await box.commands.run('for i in $(seq 20); do sleep 0.1; done; echo whole > /tmp/whole; exec sleep 63', { background: true, timeoutMs: 6000 });
    assert.equal(await box.pause(), true);
    await sleep(6500);
    await box.connect();
    assert.equal((await box.commands.list()).length, 1);
    await until(async () => (await shell(box, 'cat /tmp/whole')).stdout === 'whole\n', { what: 'what it does after two seconds of its own' });
    await until(async () => (await box.commands.list()).length === 0, { deadline: 10_000, what: 'the end of its time' });
    await box.kill();
  });

  test('the timeout of the SDK is a TimeoutError, and 0 means none', async () => {
    await fails(sandbox.commands.run('sleep 30', { timeoutMs: 700 }), 'TimeoutError', /deadline_exceeded/);
    assert.equal((await sandbox.commands.run('sleep 0.2; echo fine', { timeoutMs: 0 })).stdout, 'fine\n');
  });

  test('a bad timeout is an invalid argument; 0 is none', async () => {
    for (const value of ['soon', '-1', '1.5', '99999999999999999999']) {
      await assertStreamError(
        await engine.stream(sandbox, START, bash('true'), { headers: { 'connect-timeout-ms': value } }),
        'invalid_argument',
      );
    }
    assert.equal((await run(bash('sleep 0.2; echo ok'), { headers: { 'connect-timeout-ms': '0' } })).stdout, 'ok\n');
  });

  test('keepalives come in silence, as often as asked', async () => {
    const got = await run(bash('sleep 2.6; echo x'), { headers: { 'keepalive-ping-interval': '1' } });
    assert.ok(got.keepalives >= 2 && got.keepalives <= 3, `${got.keepalives} keepalives`);
    assert.equal(got.stdout, 'x\n');
    assert.equal((await run(bash('sleep 1.2'), { headers: { 'keepalive-ping-interval': '50' } })).keepalives, 0);
  });

  // ------------------------------------------------------------------------------------------------------------ the protocol's edges

  test('bad envelopes are refused, and hurt nobody', async () => {
    const good = envelope(bash('true'));
    const huge = Buffer.from([0, 0xff, 0xff, 0xff, 0xff, 0x7b, 0x7d]);
    const bodies = {
      'no body': Buffer.alloc(0),
      'half a head': good.subarray(0, 3),
      'half a message': good.subarray(0, good.length - 4),
      'a huge length': huge,
      'bad JSON': envelope(Buffer.from('{"process":')),
      'bad UTF-8': envelope(Buffer.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x3a, 0x31, 0x7d])),
      'a message of a wrong type': envelope([1, 2]),
      'compressed without agreement': envelope({ process: {} }, 1),
      'an end instead of a message': envelope({}, 2),
      'no process': envelope({}),
      'a command of a wrong type': envelope({ process: { cmd: 7 } }),
      'arguments of a wrong type': envelope({ process: { cmd: '/bin/true', args: 'x' } }),
      'two messages': Buffer.concat([good, good]),
      'deep nesting': envelope(Buffer.from('['.repeat(100_000))),
    };
    for (const [what, body] of Object.entries(bodies)) {
      const res = await engine.stream(sandbox, START, undefined, { body, deadline: 10_000 });
      if (res.status !== 200) {
        assert.ok(res.status >= 400 && res.status < 500, `${what}: ${res.status}`);
        res.resume();
        continue;
      }
      const { trailer, end } = await outcome(res);
      assert.ok(trailer.error, `${what}: ${JSON.stringify({ trailer, end })}`);
      assert.ok(
        ['invalid_argument', 'unimplemented', 'internal', 'resource_exhausted'].includes(trailer.error.code),
        `${what}: ${trailer.error.code}`,
      );
    }
    assert.equal(await output(sandbox, 'echo alive'), 'alive');
  });

  test('NUL bytes in a command are an invalid argument', async () => {
    for (const process of [
      { cmd: '/bin/e\0cho' },
      { cmd: '/bin/echo', args: ['a\0b'] },
      { cmd: '/bin/true', envs: { A: 'b\0c' } },
      { cmd: '/bin/true', cwd: '/tmp\0' },
    ])
      await assertStreamError(await engine.stream(sandbox, START, { process }), 'invalid_argument');
  });

  test('a wrong content type is 415, a wrong method 405', async () => {
    assert.equal((await engine.stream(sandbox, START, bash('true'), { headers: { 'content-type': 'text/plain' } })).status, 415);
    assert.equal((await call('List', {}, { headers: { 'content-type': 'text/plain' } })).status, 415);
    assert.equal((await engine.envd(sandbox, 'GET', '/process.Process/Start')).status, 405);
  });

  test('snake_case and unknown fields are understood', async () => {
    const got = await run({ ...bash('echo ok'), no_such_field: [1, { a: null }], stdin: false });
    assert.equal(got.stdout, 'ok\n');
  });

  test('a wrong or missing token is a 401, as plain HTTP', async () => {
    for (const envdAccessToken of [undefined, 'wrong', sandbox.envdAccessToken + 'x', sandbox.envdAccessToken.slice(0, -1)]) {
      const stranger = { sandboxId: sandbox.sandboxId, envdAccessToken };
      assertError(await engine.rpc(stranger, 'process.Process/List', {}), 401, UNAUTHORIZED);
      assertError(await engine.rpc(stranger, 'filesystem.Filesystem/Stat', { path: '/' }), 401, UNAUTHORIZED);
      assertError(await engine.envd(stranger, 'GET', '/envs'), 401, UNAUTHORIZED);
      assertError(await engine.envd(stranger, 'GET', '/metrics'), 401, UNAUTHORIZED);
      const res = await engine.stream(stranger, START, bash('true'));
      assert.equal(res.status, 401);
      res.resume();
      assert.equal((await engine.envd(stranger, 'GET', '/health')).status, 204);
    }
    const stranger = new Sandbox({ ...engine.sdk, sandboxId: sandbox.sandboxId, envdVersion: '0.6.13', envdAccessToken: 'wrong' });
    await fails(stranger.commands.run('true'), 'AuthenticationError');
    await fails(stranger.commands.list(), 'AuthenticationError');
  });

  test("the token of one sandbox does not open another's", async () => {
    const other = await engine.create('base');
    assertError(
      await engine.rpc({ sandboxId: sandbox.sandboxId, envdAccessToken: other.envdAccessToken }, 'process.Process/List', {}),
      401,
      UNAUTHORIZED,
    );
    await other.kill();
  });

  test('health, metrics, and the endpoints kept for the control plane', async () => {
    const health = await engine.envd(sandbox, 'GET', '/health');
    assert.deepEqual([health.status, health.headers['cache-control'], health.body.length], [204, 'no-store', 0]);
    const metrics = (await engine.envd(sandbox, 'GET', '/metrics')).json;
    for (const key of [
      'ts',
      'cpu_count',
      'cpu_used_pct',
      'mem_total_mib',
      'mem_used_mib',
      'mem_total',
      'mem_used',
      'mem_cache',
      'disk_used',
      'disk_total',
    ])
      assert.equal(typeof metrics[key], 'number', key);
    assert.ok(Math.abs(metrics.ts - Date.now() / 1000) < 60 && metrics.mem_total > 0 && metrics.disk_total > 0);
    for (const target of ['/init', '/freeze', '/unfreeze', '/fsfreeze', '/fsthaw', '/collapse'])
      assertError(await engine.envd(sandbox, 'POST', target, { json: {} }), 404, /^This endpoint is reserved for the E2B control plane/);
  });

  test('thirty processes at once, each with its own output', async () => {
    const all = await Promise.all(
      Array.from({ length: 30 }, (_, i) => sandbox.commands.run(`sleep 0.$((RANDOM % 5)); echo ${i}; echo e${i} >&2; exit 0`)),
    );
    all.forEach((r, i) => assert.deepEqual([r.stdout, r.stderr], [`${i}\n`, `e${i}\n`]));
  });
});
