// Shell commands: where they run and with what, what they give, what ends them and all that they have started, and the list of those
// that an operator allows.
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { SUITE, startEngine, until } from './engine.mjs';
import { assertProblem, startGateway } from './gateway.mjs';

let engine;
before(async () => (engine = await startEngine()));
after(() => engine?.stop());

/** A command that came to its end. */
async function ran(session, json) {
  const res = await session.run(typeof json === 'string' ? { command: json } : json);
  assert.equal(res.status, 200, res.text);
  return res.json;
}

describe('a command', SUITE, () => {
  let g;
  before(async () => (g = await startGateway({ engine })));
  after(() => g?.stop());
  afterEach(() => g.stopAll());

  test('runs in bash, and its answer has exit status and both streams', async () => {
    const session = g.session('plain');
    const r = await ran(session, 'echo out; echo err >&2; [[ a == a ]] && exit 3');
    assert.deepEqual([r.success, r.state, r.exit_code, r.stdout, r.stderr, r.output, r.error], [false, 'failed', 3, 'out\n', 'err\n', 'out\n', 'err']);
    assert.deepEqual([r.text, r.results, r.artifacts, r.stdout_bytes, r.stderr_bytes], [null, [], [], 4, 4]);
    const ok = await ran(session, 'echo warning >&2');
    assert.deepEqual([ok.success, ok.exit_code, ok.error, ok.stderr], [true, 0, null, 'warning\n']);
    assert.equal((await ran(session, 'exit 5')).error, 'exit status 5');
    const killed = await ran(session, 'kill -9 $$');
    assert.deepEqual([killed.success, killed.state], [false, 'failed']);
    assert.equal((await ran(session, 'no-such-program')).exit_code, 127);
    for (const command of ['', ' ', '# nothing']) assert.deepEqual([(await ran(session, command)).success, (await ran(session, command)).output], [true, '']);
    const row = (await session.executions('?limit=100')).json.executions.at(-1);
    assert.deepEqual([row.kind, row.exit_code, row.state], ['command', 3, 'failed']);
  });

  test('runs where cwd says, else at home', async () => {
    const session = g.session('cwd');
    assert.equal((await ran(session, 'pwd; whoami')).stdout, '/home/user\nuser\n');
    await ran(session, "mkdir -p '/tmp/a b/é'");
    for (const cwd of ['/', '/tmp', '/tmp/a b/é', '/tmp/../etc', '/usr//bin/'])
      assert.equal((await ran(session, { command: 'pwd -P', cwd })).stdout.trim(), (await ran(session, `cd '${cwd}' && pwd -P`)).stdout.trim(), cwd);
    await ran(session, { command: 'cd /tmp; X=1', cwd: '/' });
    assert.equal((await ran(session, 'pwd; echo "[$X]"')).stdout, '/home/user\n[]\n', 'each in a shell of its own');
    for (const cwd of ['', 'tmp', './tmp', '../tmp', '~']) assertProblem(await session.run({ command: 'pwd', cwd }), 400, 'bad_path');
    for (const cwd of ['/nowhere', '/etc/passwd', '/etc/passwd/x']) {
      const res = await session.run({ command: 'touch ran', cwd });
      assertProblem(res, 400, 'bad_request', /cwd/);
      assert.match(res.json.execution_id, /^x_/);
    }
    assert.equal((await ran(session, 'ls')).stdout, '', 'nothing ran');
    assertProblem(await session.run({ code: '1', cwd: '/tmp' }), 400, 'bad_request', /command/);
  });

  test('has the variables of the request, and no shell reads them', async () => {
    const session = g.session('envs');
    const envs = { PLAIN: 'x', BLANK: ' a  b ', QUOTES: `'"\`$(id)`, LINES: 'a\nb', EMPTY: '', UMLAUT: 'ü', HOME: '/tmp' };
    const { stdout } = await ran(session, { command: 'for n in PLAIN BLANK QUOTES LINES EMPTY UMLAUT HOME; do printf "%s=[%s]\\n" $n "${!n}"; done', envs });
    assert.equal(stdout, Object.entries(envs).map(([k, v]) => `${k}=[${v}]\n`).join(''));
    assert.equal((await ran(session, 'echo "[$PLAIN]"')).stdout, '[]\n', 'for that one only');
  });

  test('any bytes may be its output', async () => {
    const session = g.session('bytes');
    const r = await ran(session, String.raw`printf 'a\0b\xff\xfe\xc3'; printf '\x80é' >&2`);
    assert.deepEqual([r.stdout, r.stdout_bytes], ['a\0b\ufffd\ufffd\ufffd', 6]);
    assert.deepEqual([r.stderr, r.stderr_bytes], ['\ufffdé', 3]);
    const all = await ran(session, 'for i in $(seq 0 255); do printf "\\\\x%02x" $i; done | xargs -0 printf');
    assert.equal(all.stdout_bytes, 256);
    assert.equal(all.stdout.slice(0, 128), String.fromCharCode(...Array(128).keys()));
  });

  test('is as long as a word may be, and no longer', async () => {
    const session = g.session('long');
    const most = (128 << 10) - 1;
    const tail = '; echo ok';
    const filled = (n) => `: ${'é'.repeat(20_000)}`.padEnd(n - 20_000 - tail.length, 'x') + tail;
    assert.equal(Buffer.byteLength(filled(most)), most);
    assert.equal((await ran(session, filled(most))).stdout, 'ok\n');
    for (const n of [most + 1, 3 << 20]) assertProblem(await session.run({ command: filled(n) }), 413, 'too_large');
  });

  test('does not wait for code, nor code for it', async () => {
    const session = g.session('beside');
    const code = session.execute('import os, time\nprint("begun", flush=True)\nwhile not os.path.exists("go"): time.sleep(0.005)\nprint("end")');
    await g.printed('beside', 'begun');
    const first = session.run({ command: 'until [ -e go ]; do sleep 0.01; done; echo first' });
    await until(async () => (await g.rows("SELECT 1 FROM executions WHERE kind = 'command' AND state = 'running'")).length, { what: 'the first command' });
    assert.equal((await ran(session, 'echo second')).stdout, 'second\n', 'beside code and a command');
    assert.equal((await ran(session, 'touch go')).success, true);
    assert.deepEqual([(await code).json.output, (await first).json.output], ['begun\nend\n', 'first\n']);
    const waiting = session.run({ command: 'until [ -e gone ]; do sleep 0.01; done' });
    assert.equal((await session.execute('open("gone", "w").close()\n1')).json.text, '1', 'code beside a command');
    assert.equal((await waiting).json.success, true);
  });

  test('what is wrong in a request', async () => {
    const session = g.session('bad');
    for (const json of [
      {},
      { command: null },
      ...[1, true, [], {}, ['ls']].map((command) => ({ command })),
      { command: 'a\0b' },
      { command: 'ls', code: '1' },
      { command: '', code: '' },
      { command: 'ls', language: 'bash' },
      { command: 'ls', language: 'python' },
      { command: 'ls', context_id: 'x' },
      ...[1, true, [], {}].map((cwd) => ({ command: 'ls', cwd })),
    ])
      assertProblem(await session.run(json), 400, 'bad_request');
    assert.equal((await session.status()).text.trim(), 'null', 'nothing was started');
  });

  // ------------------------------------------------------------------------------------------------------------ its end

  // A shell that waits for a child of its own, one that ignores the signal, and one that nohup has kept from the terminal's end.
  // Only what makes itself a session of its own is not reached: it asked for that. Each writes its name once it is there.
  const FAMILY = `
    (echo $BASHPID > plain; sleep 600 & wait) &
    (trap '' TERM INT HUP; echo $BASHPID > stubborn; while :; do sleep 0.1; done) &
    (nohup sh -c 'echo $$ > nohup; exec sleep 600' >/dev/null 2>&1) &
    (sh -c 'sleep 600 & echo $! > grandchild; wait') &
    setsid sh -c 'echo $$ > daemon; exec sleep 600' >/dev/null 2>&1 </dev/null &
    until [ -s plain -a -s stubborn -a -s nohup -a -s grandchild -a -s daemon ]; do sleep 0.01; done
    echo begun
    wait`;
  const REACHED = ['plain', 'stubborn', 'nohup', 'grandchild'];

  /** Which of the family still lives. */
  async function alive(session) {
    const { stdout } = await ran(session, `for n in ${REACHED.join(' ')} daemon; do kill -0 $(cat $n) 2>/dev/null && echo $n; done; true`);
    return stdout.trim().split('\n');
  }

  const ENDS = {
    'cancelling it': async (session) => {
      const id = (await session.run({ command: FAMILY, detach: true })).json.execution_id;
      await g.printed('cancelling', 'begun');
      const res = await session.cancel(id);
      assert.deepEqual([res.json.state, res.json.cancelled_by], ['cancelled', 'interrupt'], res.text);
    },
    'its limit': async (session) => {
      const res = await session.run({ command: FAMILY, timeout_secs: 2 });
      assertProblem(res, 408, 'execution_timeout');
      assert.deepEqual([res.json.output, res.json.state], ['begun\n', 'timed_out']);
    },
    'its client’s leaving': async (session) => {
      const s = await session.stream({ command: FAMILY });
      const { execution_id: id } = (await s.until('started')).data;
      await s.until('stdout', 'begun');
      s.leave();
      await until(async () => (await session.execution(id)).json.ended_at, { what: 'its end', deadline: 30_000 });
      assert.equal((await session.execution(id)).json.state, 'cancelled');
    },
  };
  for (const [what, end] of Object.entries(ENDS))
    test(`${what} ends all that it has started, but for what has made itself a session of its own`, async () => {
      const session = g.session(what.split(' ')[0]);
      await session.start();
      await end(session);
      assert.deepEqual(await alive(session), ['daemon']);
      assert.equal((await session.execute('1 + 1')).json.text, '2');
    });

  test('in the background it goes on, and what it leaves behind does, too', async () => {
    const session = g.session('background');
    const res = await session.run({ command: 'echo begun; until [ -e go ]; do sleep 0.01; done; (sleep 600 >/dev/null 2>&1 & echo $! > left); echo end', detach: true });
    assert.equal(res.status, 202, res.text);
    const id = res.json.execution_id;
    await g.printed('background', 'begun');
    assert.equal((await session.execution(id)).json.state, 'running');
    await ran(session, 'touch go');
    const last = await (await session.follow(id)).end();
    assert.deepEqual([last.data.output, last.data.exit_code], ['begun\nend\n', 0]);
    assert.equal((await ran(session, 'kill -0 $(cat left) && echo alive')).stdout, 'alive\n', 'a command that ends by itself ends nothing else');
  });

  test('it ends when nothing holds its output, and what is left of it at its limit goes on', async () => {
    const session = g.session('held');
    const res = await session.run({ command: 'sleep 600 & echo $! > left', timeout_secs: 1 });
    assertProblem(res, 408, 'execution_timeout');
    assert.equal((await ran(session, 'kill -0 $(cat left) && echo alive')).stdout, 'alive\n', 'the shell is gone, and nobody knows its group');
  });

  test('stopping its sandbox ends it', async () => {
    const session = g.session('stopped');
    await session.start();
    const run = session.run({ command: 'echo begun; sleep 600' });
    await g.printed('stopped', 'begun');
    await session.stop();
    assertProblem(await run, 409, 'sandbox_stopped');
    assert.equal((await run).json.output, 'begun\n');
  });
});

describe('SANDGATE_COMMAND_ALLOW', SUITE, () => {
  let g;
  before(async () => (g = await startGateway({ engine, settings: { SANDGATE_COMMAND_ALLOW: 'echo, printf,ls sleep,sh-not-there' } })));
  after(() => g?.stop());

  test('what is on the list runs, and no shell sees it', async () => {
    const session = g.session('listed');
    for (const [command, stdout] of [
      ['echo a  b', 'a b\n'],
      ['echo ; id', '; id\n'],
      ['echo a;id', 'a;id\n'],
      ['echo $(id) `id` $HOME', '$(id) `id` $HOME\n'],
      ['echo a | tee x', 'a | tee x\n'],
      ['echo a > x', 'a > x\n'],
      ['echo a && id', 'a && id\n'],
      ['echo * ? ~', '* ? ~\n'],
      ['echo a\nid', 'a id\n'],
      [`echo 'a  b' "c  d" e\\ \\ f`, 'a  b c  d e  f\n'],
      [`echo "it's" 'say "x"'`, `it's say "x"\n`],
      [`printf '%s|' a 'b c' ''`, 'a|b c||'],
      ['  echo   a  ', 'a\n'],
      ["'echo' a", 'a\n'],
    ]) {
      const r = await ran(session, command);
      assert.deepEqual([r.stdout, r.exit_code], [stdout, 0], command);
    }
    assert.equal((await ran(session, 'ls /home/user')).stdout, '', 'no file was written');
    assert.equal((await ran(session, { command: 'ls passwd', cwd: '/etc' })).stdout, 'passwd\n');
    const none = await ran(session, 'sh-not-there');
    assert.deepEqual([none.success, none.exit_code], [false, 127], none.error);
  });

  test('what is not is 403, and nothing is started', async () => {
    const session = g.session('other');
    for (const command of ['id', 'ech', 'echox a', 'ECHO a', '/bin/echo a', './echo', 'bash -c "echo a"', '"" a', 'echo,', 'A=1 echo a', ';echo', '-w echo', '"echo a"', ','])
      assertProblem(await session.run({ command }), 403, 'command_not_allowed', /^Command not allowed: .*echo, printf/);
    for (const command of ['', ' ', "echo 'a", 'echo "', "echo 'it''s"]) assertProblem(await session.run({ command }), 400, 'bad_request', /command/);
    assert.equal((await session.status()).text.trim(), 'null', 'nothing was started');
  });

  test('it is ended like any other, and too many words are the caller’s mistake', async () => {
    const session = g.session('ended');
    assertProblem(await session.run({ command: 'sleep 600', timeout_secs: 1 }), 408, 'execution_timeout');
    assert.equal((await ran(session, `echo ${'x '.repeat(3000)}`)).stdout_bytes, 6000);
    assertProblem(await session.run({ command: `echo ${'x '.repeat(60_000)}` }), 400, 'bad_request', /words/);
    const s = await session.stream({ command: 'echo $(id)' });
    assert.equal((await s.end()).data.stdout, '$(id)\n');
    assert.equal((await session.execute('1 + 1')).json.text, '2', 'code is not meant');
  });
});
