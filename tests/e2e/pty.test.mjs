// Terminals: create, input, resize, kill, connect, what a program inside sees of its terminal, and what it costs.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Sandbox } from '@e2b/code-interpreter';
import { SUITE, assertConnectError, assertStreamError, envelopes, fails, outcome, output, startEngine, until, within } from './engine.mjs';

const START = 'process.Process/Start';
const SIZE = { cols: 80, rows: 24 };

let engine;
let sandbox;

const call = (method, message, options) => engine.rpc(sandbox, `process.Process/${method}`, message, options);
const base64 = (text) => Buffer.from(text).toString('base64');
/** A program in a terminal by a raw Start call. */
const start = (cmd, args = [], more = {}, options) => engine.stream(sandbox, START, { process: { cmd, args }, pty: { size: SIZE }, ...more }, options);
const python = (code, more, options) => start('/usr/bin/python3', ['-c', code], more, options);

/** A terminal of the SDK's, and all that it has shown. */
class Terminal {
  chunks = [];

  static async open(opts = {}, inside = sandbox) {
    const t = new Terminal();
    t.sandbox = inside;
    t.handle = await inside.pty.create({ ...SIZE, timeoutMs: 0, ...opts, onData: (data) => void t.chunks.push(Buffer.from(data)) });
    t.pid = t.handle.pid;
    t.end = t.handle.wait().catch((e) => e);
    return t;
  }

  static async follow(pid, inside) {
    const t = new Terminal();
    t.sandbox = inside;
    t.handle = await inside.pty.connect(pid, { timeoutMs: 0, onData: (data) => void t.chunks.push(Buffer.from(data)) });
    t.pid = pid;
    t.end = t.handle.wait().catch((e) => e);
    return t;
  }

  get text() {
    return Buffer.concat(this.chunks).toString();
  }

  type(text) {
    return this.sandbox.pty.sendInput(this.pid, Buffer.from(text));
  }

  async sees(pattern) {
    try {
      return await until(() => this.text.match(pattern), { deadline: 20_000, every: 10 });
    } catch {
      return assert.fail(`${pattern} was not shown; what was: ${JSON.stringify(this.text.slice(-2000))}`);
    }
  }

  /** Types a command and waits for what it shows; the pattern must not fit the command itself. */
  async run(command, pattern) {
    await this.type(`${command}\n`);
    return this.sees(pattern);
  }

  async close() {
    await this.sandbox.pty.kill(this.pid);
    await within(20_000, this.end, 'the end of the terminal');
  }
}

describe('terminals', SUITE, () => {
  before(async () => {
    engine = await startEngine({ args: ['--pool', '0'] });
    sandbox = await engine.create('base');
  });
  after(() => engine?.stop());

  // ------------------------------------------------------------------------------------------------------------ what it is

  test('a shell in a terminal of the sandbox', async () => {
    const t = await Terminal.open({ cwd: '/tmp', envs: { COLOUR: 'blue' } });
    await t.run('echo $((6 * 7))', /^42\r$/m);
    await t.run('tty', /^\/dev\/pts\/\d+\r$/m);
    await t.run('test -t 0 -a -t 1 -a -t 2 && echo all"three"', /^allthree\r$/m);
    await t.run('echo $TERM-$LANG-$LC_ALL-$COLOUR-$PWD', /^xterm-256color-C.UTF-8-C.UTF-8-blue-\/tmp\r$/m);
    await t.run('echo "said" > /dev/tty', /^said\r$/m);
    await t.run('echo "named" > $(tty)', /^named\r$/m);
    await t.run('stat -c "<%U %a>" $(tty)', /<user 620>/);
    await t.run('case $- in *m*) echo job"control";; esac', /^jobcontrol\r$/m);
    assert.doesNotMatch(t.text, /no job control|cannot set terminal/);
    await t.type('exit 3\n');
    const error = await within(20_000, t.end, 'the exit');
    assert.deepEqual([error.name, error.exitCode, error.error], ['CommandExitError', 3, 'exit status 3']);
  });

  test('a good end is a result', async () => {
    const t = await Terminal.open();
    await t.type('exit\n');
    assert.equal((await within(20_000, t.end, 'the exit')).exitCode, 0);
  });

  test('the end of input is Ctrl-D', async () => {
    const t = await Terminal.open();
    // By then the shell has left its own mode, in which Ctrl-D would be a byte like others.
    await t.run('echo be"gins"; cat; echo cat"ended"', /^begins\r$/m);
    await t.type('line\n\x04');
    await t.sees(/^catended\r$/m);
    await t.close();
  });

  test('as root where there is one', async () => {
    const user = engine.has('root and user') ? 'root' : 'user';
    const t = await Terminal.open({ user });
    await t.run('id -un; stat -c "<%U>" $(tty)', new RegExp(`^${user}\\r\\n<${user}>\\r$`, 'm'));
    await t.close();
  });

  test('Ctrl-C interrupts, Ctrl-Z and fg work', async () => {
    const t = await Terminal.open();
    await t.run('sleep 1000; echo "status" $?', /sleep/);
    await until(async () => (await output(sandbox, 'pgrep -x sleep || true')) !== '', { what: 'the sleep' });
    await t.type('\x03');
    await t.sees(/\^C/);
    await t.run('echo "status" $?', /^status 130\r$/m);
    await t.run('sleep 1001', /sleep 1001/);
    await until(async () => (await output(sandbox, 'pgrep -x sleep || true')) !== '', { what: 'the sleep' });
    await t.type('\x1a');
    await t.sees(/Stopped/);
    await t.run('jobs', /\[1\]\+\s+Stopped\s+sleep 1001/);
    await t.type('fg\n');
    await until(async () => /^[SRI]/.test(await output(sandbox, 'ps -o stat= -C sleep')), { what: 'going on' });
    await t.type('\x03');
    await t.run('echo "status" $?', /status 130\r\n[^]*status 130\r\n/);
    await t.close();
  });

  // ------------------------------------------------------------------------------------------------------------ its window

  test('the size, at the start and after a resize', async () => {
    const t = await Terminal.open({ cols: 101, rows: 31 });
    await t.run('stty size', /^31 101\r$/m);
    await t.run('trap "echo win\'\'dow \\$(stty size)" WINCH; echo "set"', /^set\r$/m);
    await sandbox.pty.resize(t.pid, { cols: 120, rows: 40 });
    await t.run('', /window 40 120\r/);
    await sandbox.pty.resize(t.pid, { cols: 65535, rows: 1 });
    await t.run('', /window 1 65535\r/);
    await sandbox.pty.resize(t.pid, { cols: 100, rows: 30 });
    // A program in the foreground hears of it, too.
    await t.run(
      `python3 -c "import signal, os; w = [signal.SIGWINCH]; signal.pthread_sigmask(signal.SIG_BLOCK, w); print('rea' + 'dy', flush=True); signal.sigwait(w); print(*os.get_terminal_size())"`,
      /^ready\r$/m,
    );
    await sandbox.pty.resize(t.pid, { cols: 90, rows: 20 });
    await t.sees(/^90 20\r$/m);
    await t.close();
  });

  test('sizes that are none are refused', async () => {
    const t = await Terminal.open();
    const bad = [{ cols: 0, rows: 24 }, { cols: 80 }, { rows: 24 }, {}, { cols: 65536, rows: 1 }, { cols: -1, rows: 1 }, { cols: 1e12, rows: 1 }, { cols: 1.5, rows: 1 }, { cols: 'x', rows: 1 }];
    for (const size of bad) {
      assertConnectError(await call('Update', { process: { pid: t.pid }, pty: { size } }), 400, 'invalid_argument', /cols|rows/);
      await assertStreamError(await engine.stream(sandbox, START, { process: { cmd: 'true' }, pty: { size } }), 'invalid_argument', /cols|rows/);
    }
    for (const pty of [{}, { size: null }, { size: 7 }, 'x'])
      assertConnectError(await call('Update', { process: { pid: t.pid }, pty }), 400, 'invalid_argument', /pty|size/);
    await t.run('stty size', /^24 80\r$/m);
    // Without a terminal to change there is nothing to do.
    assert.deepEqual((await call('Update', { process: { pid: t.pid } })).json, {});
    assertConnectError(await call('Update', { process: { pid: 4_000_000 }, pty: { size: SIZE } }), 404, 'not_found');
    await t.close();
  });

  // ------------------------------------------------------------------------------------------------------------ the wire

  test('the events on the wire', async () => {
    const got = await outcome(await start('/bin/sh', ['-c', 'echo out; echo err >&2; echo tty > /dev/tty; exit 7']));
    assert.equal(got.pty, 'out\r\nerr\r\ntty\r\n');
    assert.equal(got.stdout + got.stderr, '');
    assert.deepEqual(got.end, { exitCode: 7, exited: true, status: 'exit status 7', error: 'exit status 7' });
    assert.deepEqual(got.trailer, {});
  });

  test('a program that is missing says so in the terminal', async () => {
    const got = await outcome(await start('/no/such/program'));
    assert.match(got.pty, /no\/such\/program: No such file/);
    assert.equal(got.end.exitCode, 127);
    await assertStreamError(await engine.stream(sandbox, START, { process: {}, pty: { size: SIZE } }), 'invalid_argument', /cmd/);
    await assertStreamError(await start('true', [], { process: { cmd: 'true', cwd: '/none' } }), 'invalid_argument', /cwd '\/none' does not exist/);
  });

  test('input for a terminal and for stdin are not the same', async () => {
    const t = await Terminal.open();
    const command = await sandbox.commands.run('cat', { background: true, stdin: true, timeoutMs: 0 });
    assertConnectError(await call('SendInput', { process: { pid: t.pid }, input: { stdin: base64('x') } }), 500, 'internal', /tty/);
    assertConnectError(await call('SendInput', { process: { pid: command.pid }, input: { pty: base64('x') } }), 500, 'internal', /tty not assigned/);
    assertConnectError(await call('SendInput', { process: { pid: t.pid }, input: { pty: '?' } }), 400, 'invalid_argument', /base64/);
    assertConnectError(await call('SendInput', { process: { pid: t.pid }, input: { pty: 'eA==', stdin: 'eA==' } }), 400, 'invalid_argument');
    assertConnectError(await call('CloseStdin', { process: { pid: t.pid } }), 500, 'unknown', /Ctrl\+D/);
    assertConnectError(await call('Update', { process: { pid: command.pid }, pty: { size: SIZE } }), 500, 'internal', /tty not assigned/);
    await t.run('echo still"there"', /^stillthere\r$/m);
    assert.ok((await sandbox.commands.list()).some((p) => p.pid === t.pid && p.cmd === '/bin/bash'));
    await command.kill();
    await t.close();
  });

  test('every byte goes in and comes out', async () => {
    const res = await python('import sys, tty\ntty.setraw(0)\nprint("!", end="", flush=True)\nsys.stdout.buffer.write(bytes(reversed(sys.stdin.buffer.read(256))))');
    const got = [];
    for await (const { event } of envelopes(res)) {
      if (event?.start) got.pid = event.start.pid;
      if (event?.data) got.push(Buffer.from(event.data.pty, 'base64'));
      if (got.length === 1 && event?.data) await sandbox.pty.sendInput(got.pid, Buffer.from(Array.from({ length: 256 }, (_, i) => i)));
    }
    assert.deepEqual(Buffer.concat(got).subarray(1), Buffer.from(Array.from({ length: 256 }, (_, i) => 255 - i)));
  });

  test('UTF-8 that is cut between two writes arrives as it was written', async () => {
    const got = await outcome(await python("import os, time\nfor part in b'a\\xe2\\x82', b'\\xacb\\xf0\\x9f', b'\\x98\\x80':\n    os.write(1, part); time.sleep(0.2)"));
    assert.equal(got.pty, 'a€b😀');
  });

  // ------------------------------------------------------------------------------------------------------------ its end

  test('kill ends it, and what runs in its foreground', async () => {
    const t = await Terminal.open();
    await t.run('sleep 2001', /sleep 2001/);
    await until(async () => (await output(sandbox, "pgrep -xf 'sleep 2001' || true")) !== '', { what: 'the sleep' });
    assert.equal(await sandbox.pty.kill(t.pid), true);
    const error = await within(20_000, t.end, 'the end');
    assert.deepEqual([error.exitCode, error.error], [-1, 'signal: killed']);
    await until(async () => (await output(sandbox, "pgrep -xf 'sleep 2001' || true")) === '', { what: 'its end' });
    assert.equal(await sandbox.pty.kill(t.pid), false);
    assert.equal(await sandbox.pty.kill(4_000_000), false);
  });

  test('one that has ended takes no input and no size, but can be asked how it ended', async () => {
    const t = await Terminal.open();
    await t.type('exit 5\n');
    await within(20_000, t.end, 'the exit');
    assertConnectError(await call('SendInput', { process: { pid: t.pid }, input: { pty: base64('x') } }), 500, 'internal', /closed/);
    assertConnectError(await call('Update', { process: { pid: t.pid }, pty: { size: SIZE } }), 500, 'internal', /closed/);
    const late = await Terminal.follow(t.pid, sandbox);
    assert.equal((await within(20_000, late.end, 'the end')).exitCode, 5);
    await fails(sandbox.pty.sendInput(4_000_000, Buffer.from('x')), 'NotFoundError');
  });

  test('the time limit ends it', async () => {
    const res = await start('/bin/bash', ['-i'], {}, { headers: { 'connect-timeout-ms': '500' } });
    const got = await outcome(res);
    assert.deepEqual([got.end, got.trailer.error.code], [undefined, 'deadline_exceeded']);
    await until(async () => !(await sandbox.commands.list()).some((p) => p.pid === got.pid), { what: 'its end' });
  });

  test('a second client sees the same and types into it', async () => {
    const t = await Terminal.open();
    const other = await Sandbox.connect(sandbox.sandboxId, engine.sdk);
    const second = await Terminal.follow(t.pid, other);
    await second.run('echo by-"second"', /^by-second\r$/m);
    await t.sees(/^by-second\r$/m);
    // Without the first the terminal goes on.
    await t.handle.disconnect();
    await second.run('echo still-"here"', /^still-here\r$/m);
    await second.close();
  });

  // ------------------------------------------------------------------------------------------------------------ what it costs

  test('60 MB of output, in pieces of at most 16 KiB', async () => {
    const peaks = engine.peaks();
    const got = await outcome(await start('/bin/sh', ['-c', "stty -opost; head -c 60000000 /dev/zero | tr '\\0' x; echo end"], {}, { deadline: 120_000 }));
    assert.equal(got.ptyBytes.length, 60_000_004);
    assert.ok(got.pty.endsWith('xend\n'));
    assert.ok(got.largest <= 16 << 10, `${got.largest} bytes in one event`);
    engine.assertFlat(peaks, 32); // of which the sanitized build's own may be 20
  });

  test('a client that does not read holds its program back', async () => {
    const peaks = engine.peaks();
    const res = await python("import os, sys\nos.write(2, b'.')\nn = 0\nwhile True:\n    n += os.write(1, b'x' * 4096)\n    open('/tmp/written', 'w').write(str(n))");
    res.pause();
    let before = '';
    // What is on the way has an end: the count stands still.
    await until(
      async () => {
        const now = await output(sandbox, 'cat /tmp/written 2>/dev/null || true');
        const still = now !== '' && now === before;
        before = now;
        return still;
      },
      { every: 500, deadline: 60_000, what: 'blocking' },
    );
    engine.assertFlat(peaks, 16);
    res.drop();
    // Nobody is there any more: it runs on.
    await until(async () => Number(await output(sandbox, 'cat /tmp/written')) > Number(before) + 1_000_000, { deadline: 60_000, what: 'going on' });
    await output(sandbox, 'pkill -f /tmp/written');
  });

  test('a program that does not read its terminal', async () => {
    const peaks = engine.peaks();
    const res = await python("import os, time, tty\ntty.setraw(0)\nos.write(1, b'!')\nwhile not os.path.exists('/tmp/read'): time.sleep(0.05)\nn = 0\nwhile n < 1000000: n += len(os.read(0, 65536))\nprint(n)");
    const events = envelopes(res);
    const { value } = await events.next();
    await events.next();
    const pid = value.event.start.pid;
    for (let i = 0; i < 10; i++) await sandbox.pty.sendInput(pid, Buffer.alloc(100_000, 'y'));
    await output(sandbox, 'touch /tmp/read');
    let text = '';
    for await (const { event } of events) if (event?.data) text += Buffer.from(event.data.pty, 'base64');
    assert.match(text, /1000000/);
    engine.assertFlat(peaks, 24);
  });

  test('twenty at once, and the files are closed again', async () => {
    const open = engine.openFiles();
    const all = await Promise.all(Array.from({ length: 20 }, () => Terminal.open()));
    await Promise.all(all.map((t, i) => t.run(`echo number-$((${i} + 1000))`, new RegExp(`^number-${i + 1000}\\r$`, 'm'))));
    const names = await Promise.all(all.map(async (t) => (await t.run('tty', /^\/dev\/pts\/\d+\r$/m))[0]));
    assert.equal(new Set(names).size, 20);
    await Promise.all(all.map((t) => t.close()));
    await until(() => engine.openFiles() <= open + 2, { what: 'closing' });
  });

  test('the terminals of a sandbox have an end', async () => {
    const own = await engine.create('base');
    await own.commands.run(`python3 -c "import os, time; held = [os.openpty() for _ in range(64)]; print('all', flush=True); time.sleep(600)" > /tmp/held`, { background: true, timeoutMs: 0 });
    await until(async () => (await output(own, 'cat /tmp/held 2>/dev/null || true')) === 'all', { what: 'taking all' });
    await fails(own.pty.create({ ...SIZE, onData() {} }), 'RateLimitError', /too many terminals/);
    await own.kill();
    const t = await Terminal.open();
    await t.close();
  });

  // ------------------------------------------------------------------------------------------------------------ the sandbox's life

  test('a pause cuts the stream; the terminal is there again after the resume', async () => {
    const own = await engine.create('base');
    const t = await Terminal.open({}, own);
    await t.run('KEPT=yes; echo "set"', /^set\r$/m);
    await own.pause();
    assert.ok((await within(20_000, t.end, 'the cut')) instanceof Error);
    await own.connect();
    const again = await Terminal.follow(t.pid, own);
    await again.run('echo kept-$KEPT', /^kept-yes\r$/m);
    await own.pty.resize(t.pid, { cols: 70, rows: 20 });
    await again.run('stty size', /^20 70\r$/m);
    // Killed while it is frozen, with a shell that waits for input: the engine does not wait for either.
    await own.pause();
    assert.ok((await within(20_000, again.end, 'the cut')) instanceof Error);
    await within(20_000, own.kill(), 'the kill');
    assert.equal(await within(20_000, output(sandbox, 'echo here'), 'another sandbox'), 'here');
  });

  test('the kill of the sandbox cuts it', async () => {
    const own = await engine.create('base');
    const open = engine.openFiles();
    const t = await Terminal.open({}, own);
    await t.run('echo "up"', /^up\r$/m);
    await own.kill();
    await fails(within(20_000, t.handle.wait(), 'the cut'), 'TimeoutError');
    await until(() => engine.openFiles() < open, { what: 'closing' });
  });
});
