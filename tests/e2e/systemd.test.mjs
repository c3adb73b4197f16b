// systemd: the units, sockets that it passes, what it is told, and all of it on a machine that it has booted.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { BUILD, SUITE, output, sleep, startEngine, tempFolder, until, within } from './engine.mjs';
import { Child, startGateway } from './gateway.mjs';
import { makeUnits, startMachine, whyNoMachine } from './machine.mjs';

const run = promisify(execFile);
const SANDGATE = path.join(BUILD, 'sandgate');
const ENV = { PATH: process.env.PATH, ASAN_OPTIONS: 'quarantine_size_mb=8' };

// ---------------------------------------------------------------------------------------------------------------- unit files

describe('the unit files', SUITE, () => {
  let dir, units;

  before(() => {
    dir = tempFolder();
    units = makeUnits(dir, { prefix: dir });
    fs.symlinkSync(BUILD, path.join(dir, 'bin'));
  });
  after(() => fs.rmSync(dir, { recursive: true, force: true }));

  const names = (...kinds) => fs.readdirSync(units).filter((name) => kinds.includes(path.extname(name).slice(1)));

  /** At most this exposure, 0 to 10, by the tool's own account of what a service could do. */
  const exposed = (unit, limit) =>
    run('systemd-analyze', ['security', '--no-pager', '--offline=true', `--threshold=${limit * 10}`, path.join(units, unit)], { timeout: 60_000 });

  test('all of them are there, with every place filled in', () => {
    assert.deepEqual(names('service', 'socket', 'timer', 'conf').sort(), [
      'sandgate-cleanup.service',
      'sandgate-cleanup.timer',
      'sandgate-engine.service',
      'sandgate-exec.socket',
      'sandgate-quick.socket',
      'sandgate.service',
      'sysusers.conf',
      'tmpfiles.conf',
    ]);
    for (const name of fs.readdirSync(units)) assert.doesNotMatch(fs.readFileSync(path.join(units, name), 'utf8'), /@[A-Z]+@/, name);
  });

  test('systemd finds nothing wrong with them', async () => {
    const files = names('service', 'socket', 'timer').map((name) => path.join(units, name));
    const { stdout, stderr } = await run('systemd-analyze', ['verify', '--man=no', ...files], { timeout: 60_000 });
    // Units of this system's own may be complained of as well.
    assert.doesNotMatch(stdout + stderr, /sandgate/);
  });

  test('the gateway is exposed by 2.0 at the most', () => exposed('sandgate.service', 2.0));
  test('cleanup is exposed by 2.0 at the most', () => exposed('sandgate-cleanup.service', 2.0));
  test('the engine is exposed by 5.0 at the most', () => exposed('sandgate-engine.service', 5.0));
  test('that it is too much is noticed', () => assert.rejects(exposed('sandgate-engine.service', 4.0)));
});

// ---------------------------------------------------------------------------------------------------------------- sockets

describe('sockets that systemd passes', SUITE, () => {
  let g, own;
  const files = () => ['quick.sock', 'exec.sock'].map((name) => path.join(g.state, name));

  /** The gateway in the place of the harness's own: it is started by the first connection. */
  before(async () => {
    g = await startGateway();
    await g.server.stop();
    const listen = files().flatMap((file) => ['-l', file]);
    const passed = Object.keys(ENV).flatMap((name) => ['-E', name]);
    g.server = new Child('systemd-socket-activate', [...listen, ...passed, '--fdname=quick:exec', SANDGATE, '-c', g.config], { env: ENV });
    await until(() => files().every((file) => fs.existsSync(file)), { what: 'the sockets' });
    own = files().map((file) => fs.statSync(file).ino);
  });
  after(() => g.stop());

  test('the first call starts the gateway, which serves both', async () => {
    assert.equal((await g.call('GET', '/healthz')).status, 200);
    await g.server.line(/^sandgate: ready on the sockets of systemd;/m, 'the gateway');
    const s = g.session('passed');
    assert.equal((await s.status()).json, null); // the quick pool
    assert.equal((await s.execute('6 * 7')).json.text, '42'); // the exec pool
  });

  test('SIGHUP replaces the workers and keeps the sockets', async () => {
    const old = new Set(g.workers());
    g.server.process.kill('SIGHUP');
    await until(() => g.workers().length > 0 && g.workers().every((pid) => !old.has(pid)), { what: 'new workers' });
    const s = g.session('passed');
    assert.equal((await s.status()).status, 200);
    assert.equal((await s.execute('6 * 7')).json.text, '42');
    assert.deepEqual(files().map((file) => fs.statSync(file).ino), own);
  });

  test('what was passed to another process is not taken', async () => {
    const dir = tempFolder();
    const config = path.join(dir, 'sandgate.conf');
    fs.writeFileSync(config, `E2B_API_URL=http://127.0.0.1:9\nSANDGATE_STATE_DIR=${dir}/state\n`);
    const other = new Child(SANDGATE, ['-c', config], { env: { ...ENV, LISTEN_PID: '1', LISTEN_FDS: '2', LISTEN_FDNAMES: 'quick:exec' } });
    try {
      await other.line(new RegExp(`^sandgate: ready on ${dir}/state/quick.sock`, 'm'), 'the gateway');
      assert.deepEqual(await other.stop(), { code: 0, signal: null });
    } finally {
      other.process.kill('SIGKILL');
      fs.rmSync(dir, { recursive: true, force: true });
    }
  });

  test('a socket that is missing is named', async () => {
    const dir = tempFolder();
    const config = path.join(dir, 'sandgate.conf');
    fs.writeFileSync(config, `E2B_API_URL=http://127.0.0.1:9\nSANDGATE_STATE_DIR=${dir}/state\n`);
    const socket = path.join(dir, 'quick.sock');
    const other = new Child('systemd-socket-activate', ['-l', socket, '--fdname=quick', SANDGATE, '-c', config], { env: ENV });
    try {
      await until(() => fs.existsSync(socket), { what: 'the socket' });
      await run('/usr/bin/python3', ['-c', 'import socket, sys\nsocket.socket(socket.AF_UNIX).connect(sys.argv[1])', socket]);
      assert.equal((await within(30_000, other.exited, 'the end')).code, 2);
      assert.match(other.text, /systemd passed no socket named 'exec'/);
    } finally {
      other.process.kill('SIGKILL');
      fs.rmSync(dir, { recursive: true, force: true });
    }
  });

  test('they are still there when the gateway has ended', async () => {
    assert.deepEqual(await g.server.stop(), { code: 0, signal: null }, g.server.text);
    assert.deepEqual(files().map((file) => fs.statSync(file).ino), own);
    files().forEach((file) => fs.rmSync(file));
  });
});

// ---------------------------------------------------------------------------------------------------------------- what it is told

const MANAGER = `
import json, os, socket, struct, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
s.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)  # as systemd's is
print('listening', flush=True)
while True:
    data, extra, *_ = s.recvmsg(4096, 256)
    print(json.dumps({'pid': struct.unpack('3i', extra[0][2])[0], 'text': data.decode()}), flush=True)
`;

/** Stands in for systemd at the socket that services speak to, and asks for a sign of life every second. */
class Manager {
  messages = []; // { pid, text } of all that came

  async start() {
    this.dir = tempFolder();
    this.socket = path.join(this.dir, 'notify');
    this.child = spawn('/usr/bin/python3', ['-c', MANAGER, this.socket], { stdio: ['ignore', 'pipe', 'inherit'] });
    let rest = '';
    this.child.stdout.setEncoding('utf8').on('data', (d) => {
      const lines = (rest + d).split('\n');
      rest = lines.pop();
      for (const line of lines) {
        if (line === 'listening') this.listening = true;
        else this.messages.push(JSON.parse(line));
      }
    });
    await until(() => this.listening, { what: 'the manager' });
    return this;
  }

  get env() {
    return { NOTIFY_SOCKET: this.socket, WATCHDOG_USEC: '1000000' };
  }

  /** Waits for a message that matches, after the first `from` of them. */
  async hears(pattern, from = 0) {
    const heard = () => this.messages.slice(from).find((m) => pattern.test(m.text));
    return until(heard, { deadline: 30_000, what: `${pattern} among ${JSON.stringify(this.messages)}` });
  }

  /** Waits until n signs of life have come from now on. */
  async hearsLife(n = 3) {
    const from = this.messages.length;
    const signs = () => this.messages.slice(from).filter((m) => m.text === 'WATCHDOG=1').length;
    await until(() => signs() >= n, { deadline: 30_000, what: 'signs of life' });
  }

  /** Stops the process and asserts that there is no sign of life until it goes on. */
  async hearsNothingOf(pid) {
    process.kill(pid, 'SIGSTOP');
    try {
      await sleep(1000); // for what was under way
      const from = this.messages.length;
      await sleep(3000);
      assert.deepEqual(this.messages.slice(from), []);
    } finally {
      process.kill(pid, 'SIGCONT');
    }
    await this.hearsLife(1);
  }

  stop() {
    this.child.kill('SIGKILL');
    fs.rmSync(this.dir, { recursive: true, force: true });
  }
}

describe('what the gateway tells', SUITE, () => {
  let g, manager;

  before(async () => {
    manager = await new Manager().start();
    g = await startGateway({ settings: { SANDGATE_DRAIN_SECS: 7 } });
    await g.server.stop();
    g.server = new Child(SANDGATE, ['-c', g.config], { env: { ...ENV, ...manager.env } });
    await g.server.line(/^sandgate: ready /m, 'the gateway');
  });
  after(async () => {
    await g.stop();
    manager.stop();
  });

  test('READY, once it is, and what its workers do', async () => {
    await manager.hears(/^READY=1$/);
    await manager.hears(/^STATUS=quick workers: 4, \d busy; exec workers: 4, \d busy$/);
    assert.equal((await g.call('GET', '/healthz')).status, 200);
  });

  test('signs of life, as long as its loop turns', async () => {
    await manager.hearsLife();
    await manager.hearsNothingOf(g.server.pid);
  });

  test('RELOADING at SIGHUP, and READY when it is done', async () => {
    const from = manager.messages.length;
    g.server.process.kill('SIGHUP');
    const { text } = await manager.hears(/^RELOADING=1\nMONOTONIC_USEC=\d+$/, from);
    const at = manager.messages.findIndex((m) => m.text === text);
    await manager.hears(/^READY=1$/, at);
  });

  test('READY also when the new settings are refused', async () => {
    const from = manager.messages.length;
    const good = fs.readFileSync(g.config);
    fs.appendFileSync(g.config, 'SANDGATE_QUICK_WORKERS=none\n');
    g.server.process.kill('SIGHUP');
    await g.server.line(/op=reload error="SANDGATE_QUICK_WORKERS/, 'the refusal');
    await manager.hears(/^RELOADING=1/, from);
    await manager.hears(/^READY=1$/, from);
    fs.writeFileSync(g.config, good);
    await manager.hearsLife();
  });

  test('STOPPING at SIGTERM, and how long it may take', async () => {
    g.server.process.kill('SIGTERM');
    const { text } = await manager.hears(/^STOPPING=1/);
    const [, extended] = text.match(/^STOPPING=1\nEXTEND_TIMEOUT_USEC=(\d+)$/);
    assert.ok(Number(extended) > 7_000_000 && Number(extended) < 17_000_000, extended);
    assert.deepEqual(await within(60_000, g.server.exited, 'the end'), { code: 0, signal: null });
  });

  test('all of it came from the master', () => {
    assert.deepEqual([...new Set(manager.messages.map((m) => m.pid))], [g.server.pid]);
  });
});

describe('what the engine tells', SUITE, () => {
  let engine, manager;

  before(async () => {
    manager = await new Manager().start();
    engine = await startEngine({ env: manager.env });
  });
  after(async () => {
    await engine.stop();
    manager.stop();
  });

  test('READY, once it is, from the process that serves', async () => {
    assert.equal((await manager.hears(/^READY=1$/)).pid, engine.server);
    assert.notEqual(engine.server, engine.pid);
    await manager.hears(/^STATUS=sandboxes: 0$/);
  });

  test('signs of life, as long as its loop turns', async () => {
    await manager.hearsLife();
    await manager.hearsNothingOf(engine.server);
  });

  test('nothing of it is known in a sandbox', async () => {
    const sandbox = await engine.create();
    await manager.hears(/^STATUS=sandboxes: 1$/);
    const everywhere = "cat /proc/[0-9]*/environ | tr '\\0' '\\n'; env; ls /tmp /run";
    assert.doesNotMatch(await output(sandbox, everywhere), /NOTIFY|WATCHDOG|notify/i);
    await sandbox.kill();
  });

  test('STOPPING at the end, and nothing by anyone else', async () => {
    const serving = engine.server;
    await engine.stop();
    await manager.hears(/^STOPPING=1$/);
    assert.deepEqual([...new Set(manager.messages.map((m) => m.pid))], [serving]);
  });
});

// ---------------------------------------------------------------------------------------------------------------- the machine

describe('a machine that systemd has booted', { ...SUITE, skip: whyNoMachine() }, () => {
  const SESSION = '/api/v1/session/s1/sandbox';
  const IDLE = 4;
  let m;

  before(async () => {
    m = await startMachine({
      settings: { SANDGATE_IDLE_TIMEOUT_SECS: IDLE, SANDGATE_LOG_LEVEL: 'debug' },
      // All as installed, but sooner.
      units: {
        'sandgate.service.d/soon.conf': '[Service]\nWatchdogSec=4\n',
        'sandgate-engine.service.d/soon.conf': '[Service]\nWatchdogSec=4\n',
        'sandgate-cleanup.timer.d/soon.conf': '[Timer]\nOnBootSec=\nOnBootSec=1\nOnUnitActiveSec=1\n',
      },
    });
  });
  after(() => m?.stop());

  /** The test, with all logs where it fails. */
  const inside = (name, body) =>
    test(name, async () => {
      try {
        await body();
      } catch (e) {
        e.message += `\n${m.logs()}`;
        throw e;
      }
    });

  const execute = (code) => m.call('POST', `${SESSION}/execute`, { json: { code } });
  const active = (unit) => until(async () => (await m.show(unit)).ActiveState === 'active', { deadline: 60_000, what: unit });

  inside('the engine has every layer of isolation that it has elsewhere', async () => {
    await active('sandgate-engine.service');
    const ready = m.read('/run/sandgate-engine.log').match(/^sandgate-engine: ready .*$/m)[0];
    for (const layer of ['root and user', 'freezer', 'seccomp', 'zygote']) assert.match(ready.split('inactive:')[0], new RegExp(layer), ready);
    if (fs.existsSync('/dev/net/tun')) assert.match(ready.split('inactive:')[0], /internet/, ready);
  });

  inside('the first call starts the gateway, as its user', async () => {
    assert.equal((await m.show('sandgate.service')).ActiveState, 'inactive');
    assert.equal((await m.call('GET', '/healthz', { token: null })).status, 200);
    await active('sandgate.service');
    const told = async () => /^quick workers: 4, /.test((await m.show('sandgate.service')).StatusText);
    await until(told, { what: 'the status' });
    const { stdout } = await m.run('ps', '-o', 'user=', '-p', (await m.show('sandgate.service')).MainPID);
    assert.equal(stdout.trim(), 'sandgate');
  });

  inside('files and sockets have the modes that they should have', async () => {
    const { stdout } = await m.run(
      ...['stat', '-c', '%a %U:%G %n', '/etc/sandgate', '/etc/sandgate/sandgate.conf', '/etc/sandgate/e2b-key'],
      ...['/run/sandgate', '/run/sandgate/quick.sock', '/run/sandgate/exec.sock'],
      ...['/var/lib/sandgate', '/var/lib/sandgate/sandgate.db', '/var/lib/sandgate-engine'],
    );
    assert.deepEqual(stdout.trim().split('\n'), [
      '750 root:sandgate /etc/sandgate',
      '640 root:sandgate /etc/sandgate/sandgate.conf',
      '600 root:root /etc/sandgate/e2b-key',
      '755 root:root /run/sandgate',
      '660 root:www-data /run/sandgate/quick.sock',
      '660 root:www-data /run/sandgate/exec.sock',
      '700 sandgate:sandgate /var/lib/sandgate',
      '600 sandgate:sandgate /var/lib/sandgate/sandgate.db',
      '700 root:root /var/lib/sandgate-engine',
    ]);
  });

  inside('everything that calls a sandbox works behind the hardening', async () => {
    assert.equal((await m.call('GET', '/readyz', { token: null })).status, 200);
    const res = await execute('import os, subprocess\nprint(subprocess.run(["id", "-un"], capture_output=True, text=True).stdout)\n6 * 7');
    assert.deepEqual([res.status, res.json.text, res.json.stdout.trim()], [200, '42', 'user'], res.text);
    const plot = await execute('import matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nplt.show()');
    assert.equal(plot.json.artifacts.length, 1, plot.text);
    const up = await m.call('POST', `${SESSION}/upload`, { form: 'file=@/usr/local/etc/sandgate/sandgate.conf' });
    assert.equal(up.status, 200, up.text);
    const down = await m.call('GET', `${SESSION}/download?path=/home/user/upload/sandgate.conf`);
    assert.deepEqual([down.status, down.text.trim()], [200, m.read('/etc/sandgate/sandgate.conf').trim()]);
    const list = await m.call('GET', `${SESSION}/files?path=/home/user/upload`);
    assert.deepEqual(list.json.map((f) => f.path), ['/home/user/upload/sandgate.conf'], list.text);
  });

  inside('cleanup spares a sandbox in use and ends one that is not', async () => {
    const pass = async () => {
      const before = m.read('/run/sandgate-cleanup.log').length;
      await m.systemctl('start', 'sandgate-cleanup.service');
      return m.read('/run/sandgate-cleanup.log').slice(before);
    };
    fs.writeFileSync(`/proc/${m.init}/root/run/sandgate-cleanup.log`, '');
    const { generation } = (await execute('1')).json;
    const busy = execute(`import time\ntime.sleep(${2 * IDLE})\n"done"`);
    await sleep((IDLE + 1) * 1000);
    assert.match(await pass(), /op=cleanup expired=0 /); // the lease is a worker's of the other unit
    const res = await busy;
    assert.deepEqual([res.status, res.json.text, res.json.generation], [200, 'done', generation], res.text);
    await sleep((IDLE + 1) * 1000);
    assert.match(await pass(), /op=cleanup expired=1 .*clock_jumped=no/);
    assert.equal((await m.call('GET', `${SESSION}/status`)).json, null);
    assert.equal((await m.show('sandgate-cleanup.service')).Result, 'success');
  });

  inside('a pass that did nothing on purpose is no failure', async () => {
    const lock = m.run('flock', '/var/lib/sandgate/events', 'sleep', '5');
    await sleep(500);
    await m.systemctl('start', 'sandgate-cleanup.service');
    const unit = await m.show('sandgate-cleanup.service');
    assert.deepEqual([unit.Result, unit.ExecMainStatus], ['success', '3']);
    await lock;
  });

  inside('the timer runs it again and again', async () => {
    const passes = () => m.read('/run/sandgate-cleanup.log').match(/op=cleanup /g).length;
    const before = passes();
    await m.systemctl('start', 'sandgate-cleanup.timer');
    await until(() => passes() > before + 1, { deadline: 30_000, what: 'two passes' });
    await m.systemctl('stop', 'sandgate-cleanup.timer');
  });

  inside('reload replaces the workers', async () => {
    const { MainPID } = await m.show('sandgate.service');
    const workers = async () => (await m.run('pgrep', '-P', MainPID)).stdout.trim().split('\n');
    const old = new Set(await workers());
    await m.systemctl('reload', 'sandgate.service');
    await until(async () => (await workers()).every((pid) => !old.has(pid)), { what: 'new workers' });
    await active('sandgate.service');
    assert.equal((await m.show('sandgate.service')).MainPID, MainPID);
    assert.equal((await execute('6 * 7')).json.text, '42');
  });

  inside('a restart lets a running execution end, and calls wait for what comes', async () => {
    const { MainPID } = await m.show('sandgate.service');
    const busy = execute('import time\ntime.sleep(6)\n"done"');
    await sleep(2000); // for it to run
    await m.systemctl('restart', 'sandgate.service');
    const res = await busy;
    assert.deepEqual([res.status, res.json.text], [200, 'done'], res.text);
    assert.notEqual((await m.show('sandgate.service')).MainPID, MainPID);
    assert.equal((await execute('6 * 7')).json.text, '42');
  });

  for (const name of ['sandgate', 'sandgate-engine'])
    inside(`a ${name} that hangs is noticed and replaced`, async () => {
      const { MainPID } = await m.show(`${name}.service`);
      const hung = name === 'sandgate' ? MainPID : (await m.run('pgrep', '-P', MainPID)).stdout.trim();
      await m.signal(hung, 'STOP');
      const replaced = async () => {
        const unit = await m.show(`${name}.service`);
        return unit.ActiveState === 'active' && unit.MainPID !== MainPID && unit.MainPID !== '0';
      };
      await until(replaced, { deadline: 60_000, what: 'the restart' });
      assert.equal((await m.show(`${name}.service`)).NRestarts, '1');
      await until(async () => (await m.call('GET', '/readyz', { token: null })).status === 200, { deadline: 30_000, what: 'an answer' });
      assert.equal((await execute('6 * 7')).json.text, '42');
    });

  inside('without a key it says so, again and again, and starts when there is one', async () => {
    const root = `/proc/${m.init}/root`;
    fs.writeFileSync(`${root}/etc/sandgate/e2b-key`, '');
    await assert.rejects(m.systemctl('restart', 'sandgate.service'));
    await until(() => m.read('/run/sandgate.log').match(/E2B_API_KEY_FILE: the first line of \S+ is empty/g)?.length > 2, { deadline: 60_000, what: 'more tries' });
    fs.writeFileSync(`${root}/etc/sandgate/e2b-key`, m.read('/etc/sandgate/engine-keys'));
    await active('sandgate.service');
    assert.equal((await execute('6 * 7')).json.text, '42');
  });

  inside('stopped, they leave nothing behind', async () => {
    await m.systemctl('stop', 'sandgate-quick.socket', 'sandgate-exec.socket', 'sandgate.service', 'sandgate-engine.service');
    for (const name of ['sandgate', 'sandgate-engine']) {
      const unit = await m.show(`${name}.service`);
      assert.deepEqual([unit.ActiveState, unit.Result], ['inactive', 'success'], name);
    }
    assert.deepEqual(fs.readdirSync(`/proc/${m.init}/root/var/lib/sandgate-engine`), []);
    await assert.rejects(m.run('pgrep', 'sandgate'));
  });
});
