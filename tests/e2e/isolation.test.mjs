// Isolation: what code in a sandbox must not be able to see, reach or use up, and what it must still be able to do. Decoys on the host
// are planted by the tests themselves. What an attacker would try is in tests/attacks.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import crypto from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { SUITE, commandLine, fails, output, python, shell, startEngine, tempFolder, until, within } from './engine.mjs';

const NAMESPACES = {
  user: 'user namespace',
  pid: 'pid namespace',
  mnt: 'mount namespace',
  net: 'network namespace',
  ipc: 'ipc namespace',
  uts: 'uts namespace',
  cgroup: 'cgroup namespace',
};
const MARK = `mark-${crypto.randomUUID()}`;

let engine;
let sandbox;
let host; // a folder of decoys, open to everybody

const users = () => (engine.has('root and user') ? ['user', 'root'] : ['user']);

/** Runs the check for every user that commands can be run as, and for the code of the interpreter. */
async function everywhere(command, check) {
  for (const user of users()) check(await output(sandbox, command, { user }), user);
  check(
    await python(
      sandbox,
      `import subprocess\nprint(subprocess.run(["/bin/bash", "-c", ${JSON.stringify(command)}], capture_output=True, text=True).stdout)`,
    ),
    'the interpreter',
  );
}

/** Tries to connect from inside and names what happened: "connected", an errno, or "timeout". */
async function connect(address, port, box = sandbox) {
  const code = `import socket, errno, sys
try:
    s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET); s.settimeout(3)
    s.connect((sys.argv[1], int(sys.argv[2]))); print("connected")
except TimeoutError: print("timeout")
except OSError as e: print(errno.errorcode.get(e.errno, e))`;
  return output(box, `python3 -c '${code}' ${address} ${port}`);
}

describe('isolation', SUITE, () => {
  before(async () => {
    host = tempFolder();
    fs.writeFileSync(path.join(host, 'decoy.txt'), MARK, { mode: 0o644 });
    engine = await startEngine({
      env: { SANDGATE_TEST_SECRET: MARK },
      templates: { 'cramped.template': 'disk = 16\nmemory = 256\ninterpreter = no\n' },
    });
    sandbox = await engine.create();
  });
  after(async () => {
    fs.rmSync(host, { recursive: true, force: true });
    await engine?.stop();
  });

  // ------------------------------------------------------------------------------------------------------------ the walls

  test('namespaces of its own, exactly those the ready line names', async () => {
    const names = Object.keys(NAMESPACES);
    await everywhere(`cd /proc/self/ns && readlink ${names.join(' ')}`, (text, who) => {
      const inside = text.trim().split('\n');
      names.forEach((name, i) => {
        assert.match(inside[i], new RegExp(`^${name}:\\[\\d+\\]$`), who);
        assert.equal(inside[i] !== fs.readlinkSync(`/proc/self/ns/${name}`), engine.has(NAMESPACES[name]), `${name} of ${who}`);
      });
    });
    for (const required of [
      'user namespace',
      'pid namespace',
      'mount namespace',
      'network namespace',
      'ipc namespace',
      'uts namespace',
      'seccomp',
      'rlimits',
    ])
      assert.ok(engine.has(required), `${required} is inactive: ${engine.ready.line}`);
  });

  test('no capabilities, no new privileges, a seccomp filter', async () => {
    await everywhere("grep -E '^(Cap(Inh|Prm|Eff|Amb)|NoNewPrivs|Seccomp):' /proc/self/status", (text, who) => {
      const status = Object.fromEntries(text.split('\n').map((l) => l.split(/:\s+/)));
      for (const set of ['CapInh', 'CapPrm', 'CapEff', 'CapAmb']) assert.match(status[set], /^0+$/, `${set} of ${who}`);
      assert.deepEqual([status.NoNewPrivs, status.Seccomp], ['1', '2'], who);
    });
  });

  test('nobody inside is uid 0 of the host', async () => {
    for (const user of users()) {
      const label = `8${crypto.randomInt(1e6, 9e6)}`;
      const handle = await sandbox.commands.run(`exec sleep ${label}`, { user, background: true, timeoutMs: 0 });
      const pid = await until(() => engine.family.look().find((p) => commandLine(p) === `sleep ${label}`), {
        what: 'the process on the host',
      });
      const status = fs.readFileSync(`/proc/${pid}/status`, 'latin1');
      for (const field of ['Uid', 'Gid']) {
        const ids = status
          .match(new RegExp(`^${field}:\\s+(.*)$`, 'm'))[1]
          .split(/\s+/)
          .map(Number);
        assert.ok(
          ids.every((id) => id !== 0),
          `${field} of ${user}: ${ids}`,
        );
      }
      await handle.kill();
    }
  });

  test('limits of its own', async () => {
    const limits = Object.fromEntries(
      (await output(sandbox, 'for l in c u n f l; do echo $l $(ulimit -$l); done')).split('\n').map((l) => l.split(' ')),
    );
    assert.equal(limits.c, '0', 'no core files');
    for (const name of ['u', 'n']) assert.ok(Number(limits[name]) > 0 && Number(limits[name]) <= 1_000_000, `${name}: ${limits[name]}`);
  });

  test('threads, forks and sub-processes still work', async () => {
    assert.equal(
      await python(
        sandbox,
        'import threading\nr = []\nts = [threading.Thread(target=r.append, args=(i,)) for i in range(40)]\n[t.start() for t in ts]; [t.join() for t in ts]\nlen(r)',
      ),
      '40',
    );
    assert.equal(
      await python(sandbox, 'import multiprocessing\nwith multiprocessing.get_context("fork").Pool(2) as p: print(p.map(abs, [-1, -2]))'),
      '[1, 2]',
    );
    assert.equal(
      await output(sandbox, 'for i in $(seq 20); do (sleep 0.1; echo $i) & done; wait').then((s) => s.split('\n').length),
      20,
    );
  });

  // ------------------------------------------------------------------------------------------------------------ files and space

  test('the system is read-only, the home and /tmp are not', async () => {
    for (const user of users()) {
      for (const file of ['/etc/planted', '/usr/planted', '/usr/bin/planted', '/lib/planted', '/etc/passwd', '/proc/sys/kernel/hostname'])
        assert.notEqual((await shell(sandbox, `echo x >> ${file}`, { user })).exitCode, 0, `${file} as ${user}`);
      await output(sandbox, `touch /tmp/by-${user} && rm /tmp/by-${user}`, { user });
    }
    for (const file of ['/planted', '/var/planted', '/root/planted', '/home/planted'])
      assert.notEqual((await shell(sandbox, `echo x >> ${file}`)).exitCode, 0, file);
    await output(sandbox, 'touch ~/mine && rm ~/mine');
    assert.notEqual((await shell(sandbox, 'rm -rf /usr/bin/env && test ! -e /usr/bin/env')).exitCode, 0);
  });

  test('home and /tmp have a size; filling them hurts nobody else', async () => {
    const [small, neighbour] = await Promise.all([engine.create('cramped'), engine.create('base')]);
    for (const place of ['/home/user', '/tmp']) {
      const size = Number(await output(small, `df -B1 --output=size ${place} | tail -1`));
      assert.ok(size > 0 && size <= 2 ** 31, `${place} has ${size} bytes`);
      const full = await shell(small, `head -c ${size + (1 << 20)} /dev/zero > ${place}/fill`, { timeoutMs: 120_000 });
      assert.match(full.stderr, /No space left on device/, place);
      await output(neighbour, `head -c 1M /dev/zero > ${place}/mine && rm ${place}/mine`);
      await output(small, `rm ${place}/fill && echo again > ${place}/mine`);
    }
    assert.ok(Number(await output(small, 'df -B1 --output=size /home/user | tail -1')) <= 16 << 20);
    await Promise.all([small.kill(), neighbour.kill()]);
  });

  test('no other place can be filled', async () => {
    const writable = await output(
      sandbox,
      "find / -xdev -type d -writable -not -path '/proc/*' 2>/dev/null; for d in /dev/shm /run /var/tmp /mnt /dev/mqueue; do test -w $d && echo $d; done; true",
    );
    for (const dir of writable
      .split('\n')
      .filter((d) => d && !d.startsWith('/home/user') && !d.startsWith('/tmp') && !d.startsWith('/root'))) {
      const size = Number(await output(sandbox, `df -B1 --output=size ${dir} | tail -1`));
      assert.ok(size <= 2 ** 31, `${dir} is writable and has ${size} bytes`);
    }
  });

  test('files of the host are not there', async () => {
    for (const file of [path.join(host, 'decoy.txt'), engine.state])
      for (const user of users()) assert.notEqual((await shell(sandbox, `ls -la ${file}`, { user })).exitCode, 0, file);
    for (const user of users()) {
      assert.notEqual((await shell(sandbox, 'cat /etc/shadow', { user })).exitCode, 0, `shadow as ${user}`);
      assert.equal(await output(sandbox, `grep -rsl ${MARK} /home /tmp /root /run /srv /mnt 2>/dev/null || true`, { user }), '');
    }
    assert.deepEqual((await output(sandbox, 'ls /home')).split('\n'), ['user']);
    assert.equal(
      (await shell(sandbox, 'ls /dev')).stdout.split('\n').filter((d) => /^(sd|vd|nvme|mem|kmsg|kvm|fuse|loop)/.test(d)).length,
      0,
    );
  });

  test('mounts and command lines tell nothing of the host', async () => {
    const text = await output(sandbox, 'cat /proc/self/mountinfo /proc/1/mountinfo /proc/*/cmdline 2>/dev/null | tr "\\0" " "');
    for (const secret of [engine.dir, path.basename(engine.dir), engine.key]) assert.ok(!text.includes(secret), secret);
  });

  // ------------------------------------------------------------------------------------------------------------ processes and environment

  test('processes of the host are not seen, and cannot be hurt', async (t) => {
    const label = `7${crypto.randomInt(1e6, 9e6)}`;
    const decoy = spawn('sleep', [label]);
    t.after(() => decoy.kill());
    for (const user of users())
      assert.equal(await output(sandbox, `cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep ${label}$' || true`, { user }), '0');
    const victim = await engine.create();
    for (const user of users())
      await within(
        20_000,
        victim.commands.run('kill -9 -1', { user, timeoutMs: 15_000 }).catch(() => {}),
        'kill -1',
      );
    engine.assertAlive();
    assert.equal(decoy.exitCode ?? decoy.signalCode, null);
    assert.equal(await python(sandbox, '"alive"'), 'alive');
    await victim.kill();
  });

  test('the environment of the engine stays outside', async () => {
    for (const user of users()) {
      const text = await output(sandbox, 'env; cat /proc/[0-9]*/environ 2>/dev/null | tr "\\0" "\\n"', { user });
      for (const secret of [MARK, engine.key, 'SANDGATE_']) assert.ok(!text.includes(secret), `${secret} as ${user}`);
    }
    const kernel = await python(sandbox, 'import os\nprint(dict(os.environ), open("/proc/self/environ").read())');
    for (const secret of [MARK, engine.key, 'SANDGATE_']) assert.ok(!kernel.includes(secret), secret);
  });

  test('no file of the engine is open inside', async () => {
    const links = await output(sandbox, 'ls -l /proc/[0-9]*/fd 2>/dev/null || true');
    for (const secret of [engine.dir, `:${engine.port}`]) assert.ok(!links.includes(secret), secret);
    const fds = await output(sandbox, 'ls /proc/self/fd | wc -l');
    assert.ok(Number(fds) <= 4, `${fds} files are open in a new process`);
  });

  test('sandboxes do not see each other', async (t) => {
    const [one, two] = await Promise.all([engine.create('base'), engine.create('base')]);
    t.after(() => Promise.all([one.kill(), two.kill()]));
    const label = `6${crypto.randomInt(1e6, 9e6)}`;
    await one.commands.run(`echo ${MARK} | tee /tmp/secret ~/secret; exec sleep ${label}`, { background: true });
    await one.commands.run(
      `python3 -c 'import socket, time
a = socket.socket(socket.AF_UNIX); a.bind("\\0${MARK}"); a.listen()
b = socket.socket(); b.bind(("127.0.0.1", 8123)); b.listen(); open("/tmp/up", "w"); time.sleep(60)'`,
      { background: true },
    );
    await until(() => one.files.exists('/tmp/up'), { what: 'the listener' });
    assert.equal(await connect('127.0.0.1', 8123, one), 'connected');
    assert.equal(await connect('127.0.0.1', 8123, two), 'ECONNREFUSED');
    assert.equal(await output(two, `cat /proc/net/unix | grep -c ${MARK} || true`), '0');
    assert.equal(await output(two, `cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep ${label}$' || true`), '0');
    for (const file of ['/tmp/secret', '/home/user/secret']) assert.equal(await two.files.exists(file), false);
    assert.notEqual(await output(one, 'readlink /proc/self/ns/net'), await output(two, 'readlink /proc/self/ns/net'));
    assert.notEqual(await output(one, 'readlink /proc/self/ns/user'), await output(two, 'readlink /proc/self/ns/user'));
  });

  // ------------------------------------------------------------------------------------------------------------ network

  test('private, link-local and metadata addresses are closed at once', async () => {
    const closed = [
      '10.1.2.3',
      '172.16.0.1',
      '172.31.255.1',
      '192.168.1.1',
      '169.254.169.254',
      '169.254.1.1',
      '100.64.0.1',
      '100.100.100.200',
    ];
    const outcomes = await Promise.all(closed.map(async (address) => [address, await connect(address, 80)]));
    for (const [address, outcome] of outcomes)
      assert.ok(['ENETUNREACH', 'EHOSTUNREACH', 'EACCES', 'EPERM', 'EINVAL'].includes(outcome), `${address}: ${outcome}`);
    for (const address of ['fe80::1', 'fd00::1', '::ffff:10.1.2.3', '::ffff:169.254.169.254'])
      assert.ok(!['connected', 'timeout'].includes(await connect(address, 80)), address);
  });

  test('internet: an interface and a route when it is on, nothing but lo when not', async () => {
    const routed = (box) => output(box, 'awk \'$2 == "00000000" && $8 == "00000000" && $1 != "lo"\' /proc/net/route').then((s) => s !== '');
    const devices = (box) => output(box, 'tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d " "').then((s) => s.split('\n').sort());
    if (engine.has('internet')) {
      assert.ok((await devices(sandbox)).length > 1);
      assert.equal(await routed(sandbox), true);
      assert.match(await output(sandbox, 'cat /etc/resolv.conf'), /^nameserver /m);
    } else assert.deepEqual(await devices(sandbox), ['lo']);
    const off = await engine.create('base', { allowInternetAccess: false });
    assert.deepEqual(await devices(off), ['lo']);
    assert.equal(await routed(off), false);
    assert.equal(await connect('1.1.1.1', 80, off), 'ENETUNREACH');
    assert.equal((await off.getInfo()).allowInternetAccess, false);
    await off.kill();
  });

  test('--no-internet closes it for all, and the ready line says so', async () => {
    const closed = await startEngine({ args: ['--no-internet'] });
    try {
      assert.ok(closed.ready.inactive.has('internet'), closed.ready.line);
      const box = await closed.create('base', { allowInternetAccess: true });
      assert.equal(await output(box, 'tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d " "'), 'lo');
      assert.equal(await connect('1.1.1.1', 80, box), 'ENETUNREACH');
      assert.equal(
        await output(box, 'python3 -c "import socket; s = socket.socket(); s.bind((\\"127.0.0.1\\", 0)); print(s.getsockname()[0])"'),
        '127.0.0.1',
        'loopback is up',
      );
      await box.kill();
    } finally {
      await closed.stop();
    }
  });

  test('host name and clock are the usual ones', async () => {
    assert.notEqual(await output(sandbox, 'hostname 2>/dev/null || cat /proc/sys/kernel/hostname'), os.hostname());
    assert.ok(Math.abs(Number(await output(sandbox, 'date +%s')) - Date.now() / 1000) < 10);
    await fails(sandbox.commands.run('date -s 2020-01-01'), 'CommandExitError');
  });
});
