// Kernels that are forked from the zygote, and sandboxes that wait in the warm pool: what they are is what a fresh start would have given.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { KERNEL, zygoteOf } from './census.mjs';
import { SUITE, commandLine, output, python, shell, sleep, startEngine, until } from './engine.mjs';

const status = (pid, field) => {
  try {
    return fs.readFileSync(`/proc/${pid}/status`, 'latin1').match(new RegExp(`^${field}:\\s*(.*)$`, 'm'))?.[1];
  } catch {
    return undefined; // it has ended
  }
};

/** How old the kernel is, in seconds. */
const kernelAge = async (sandbox) =>
  Number(
    await python(
      sandbox,
      'import os\nprint(float(open("/proc/uptime").read().split()[0]) - int(open("/proc/self/stat").read().rsplit(")")[1].split()[19]) / os.sysconf("SC_CLK_TCK"))',
    ),
  );

/** The parent of a forked kernel is outside. */
const isForked = async (sandbox) => (await python(sandbox, 'import os\nprint(os.getppid())')) === '0';

describe('the zygote', SUITE, () => {
  let engine;
  let sandbox;
  before(async () => {
    engine = await startEngine({ args: ['--pool', '0'] });
    sandbox = await engine.create();
  });
  after(() => engine?.stop());

  const forksAgain = () =>
    until(
      async () => {
        const next = await engine.create();
        const forked = await isForked(next);
        await next.kill();
        return forked;
      },
      { deadline: 60_000, every: 500, what: 'a fork of the new one' },
    );

  test('is outside of the sandboxes, and kernels are its forks', async () => {
    assert.ok(engine.has('zygote'), engine.ready.line);
    assert.ok(zygoteOf(engine));
    assert.equal(await isForked(sandbox), true);
  });

  test('a kernel is confined exactly as a command is', async () => {
    const look = `grep -E '^(Cap|NoNewPrivs|Seccomp|Groups|Uid|Gid|Umask)' /proc/$PID/status; cat /proc/$PID/oom_score_adj
cat /proc/$PID/limits; readlink /proc/$PID/ns/{user,pid,mnt,net,ipc,uts,cgroup} /proc/$PID/root; cat /proc/$PID/cgroup`;
    const pid = await python(sandbox, 'import os\nprint(os.getpid())');
    assert.equal(await output(sandbox, `PID=${pid}; ${look}`), await output(sandbox, `PID=$$; ${look}`));
    assert.match(await output(sandbox, `grep -E '^CapBnd' /proc/${pid}/status`), /0000000000000000$/);
  });

  test('a kernel holds nothing of the engine', async () => {
    const fds = JSON.parse(
      await python(
        sandbox,
        'import os, json\nprint(json.dumps([os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{n}")]))',
      ),
    );
    for (const link of fds) assert.match(link, /^(\/dev\/null|pipe:\[\d+\]|socket:\[\d+\]|\/proc\/\d+\/fd)$/);
    assert.ok(fds.length <= 5, fds.join(' '));
    const maps = await python(
      sandbox,
      'print("\\n".join(sorted({l.split(None, 5)[5].strip() for l in open("/proc/self/maps") if len(l.split(None, 5)) > 5})))',
    );
    for (const line of maps.split('\n')) assert.match(line, /^(\/usr\/|\[|\/memfd:init)/);
    assert.ok(!(await python(sandbox, 'print(open("/proc/self/environ").read())')).includes('SANDGATE'));
  });

  test('libraries are hidden until they are imported, and then there at once', async () => {
    const names = '[m for m in ("numpy", "pandas", "matplotlib", "PIL", "dateutil") if m in sys.modules]';
    assert.equal(await python(sandbox, `import sys\nprint(${names})`), '[]');
    assert.equal(
      await python(sandbox, `import pandas as pd\nimport numpy\nprint(pd.DataFrame({"a": [1, 2]}).a.sum(), numpy.__spec__.name, type(numpy.__spec__.loader).__name__)`),
      '3 numpy SourceFileLoader',
    );
    assert.match(await python(sandbox, `print(${names})`), /numpy.*pandas.*matplotlib/);
    const run = await sandbox.runCode('import matplotlib.pyplot as plt\nplt.plot([1, 2])');
    assert.equal(run.results.filter((r) => r.png).length, 1, 'a figure is shown without a call');
  });

  test("a user's own module comes before the preloaded one", async (t) => {
    const box = await engine.create();
    t.after(() => box.kill());
    await output(box, 'mkdir -p $(python3 -m site --user-site)/numpy && echo "mine = True" > $(python3 -m site --user-site)/numpy/__init__.py');
    assert.equal(await python(box, 'import numpy\nnumpy.mine'), 'True');
    const context = await box.createCodeContext({ cwd: '/tmp' });
    await box.files.write('/tmp/pandas.py', 'mine = "tmp"');
    assert.equal(await python(box, 'import pandas\npandas.mine', { context }), 'tmp');
  });

  test('forks share no random numbers', async (t) => {
    const boxes = await Promise.all([engine.create(), engine.create()]);
    t.after(() => Promise.all(boxes.map((b) => b.kill())));
    const code = 'import random, uuid, tempfile, numpy\nprint(random.random(), numpy.random.rand(), uuid.uuid4(), numpy.random.default_rng().random(), tempfile.mktemp())';
    const [one, two] = await Promise.all(boxes.map((b) => python(b, code)));
    const twice = (await python(boxes[0], code)).split(' ');
    one.split(' ').forEach((value, i) => {
      assert.notEqual(value, two.split(' ')[i]);
      assert.notEqual(value, twice[i]);
    });
  });

  test('variables that count at the start are honoured', async (t) => {
    const early = await engine.create(undefined, { envs: { PYTHONPATH: '/tmp/lib', PYTHONHASHSEED: '0' } });
    t.after(() => early.kill());
    assert.equal(await isForked(early), false);
    assert.match(await python(early, 'import sys\nprint(sys.path, hash("a"))'), /'\/tmp\/lib'.*\] -?\d+$/);
    assert.equal(await python(early, 'import sys\nsys.flags.hash_randomization'), '0');
    const zone = await engine.create(undefined, { envs: { TZ: 'Asia/Tokyo', GREETING: 'hé' } });
    t.after(() => zone.kill());
    assert.equal(await isForked(zone), true);
    assert.equal(await python(zone, 'import time, os\nprint(time.tzname[0], os.environ["GREETING"])'), 'JST hé');
    assert.equal(await python(zone, '!echo $GREETING'), 'hé');
  });

  test('.pth files of the user are read by the next kernel', async (t) => {
    const box = await engine.create();
    t.after(() => box.kill());
    await output(box, 'd=$(python3 -m site --user-site); mkdir -p $d /tmp/linked; echo /tmp/linked > $d/x.pth; echo "v = 7" > /tmp/linked/linkedmodule.py');
    const [context] = await box.listCodeContexts();
    await box.restartCodeContext(context);
    assert.equal(await python(box, 'import linkedmodule\nlinkedmodule.v'), '7');
  });

  test('a restarted context is a new fork in the same sandbox', async (t) => {
    const box = await engine.create();
    t.after(() => box.kill());
    await python(box, 'x = 1\nopen("kept", "w").write("kept")');
    const first = await python(box, 'import os\nos.getpid()');
    const [context] = await box.listCodeContexts();
    await box.restartCodeContext(context);
    assert.equal(await python(box, 'import os\n("x" in globals(), open("kept").read())'), "(False, 'kept')");
    assert.notEqual(await python(box, 'os.getpid()'), first);
    assert.equal(await isForked(box), true);
  });

  test('a kernel that is killed is replaced; a missing directory is told', async (t) => {
    const box = await engine.create();
    t.after(() => box.kill());
    const run = await box.runCode('import os, signal\nos.kill(os.getpid(), signal.SIGKILL)');
    assert.equal(run.error?.name, 'ContextRestarting');
    assert.equal(await python(box, '1 + 1'), '2');
    const res = await engine.interpreter(box, 'POST', '/contexts', { json: { cwd: '/nowhere' } });
    assert.equal(res.status, 500);
    assert.match(res.text, /No such file or directory/);
  });

  test('when it dies, kernels live on and another one takes its place', async (t) => {
    const box = await engine.create();
    t.after(() => box.kill());
    await python(box, 'x = 41');
    const old = zygoteOf(engine);
    process.kill(old, 'SIGKILL');
    assert.equal(await python(box, 'x + 1'), '42');
    await engine.logged(/op=zygote error="it ended"/);
    const meanwhile = await engine.create();
    t.after(() => meanwhile.kill());
    assert.equal(await python(meanwhile, '1 + 1'), '2');
    await until(() => zygoteOf(engine) && zygoteOf(engine) !== old, { deadline: 30_000, what: 'a new zygote' });
    await forksAgain();
    // A kernel whose parent is gone is reaped by the engine.
    assert.equal((await box.runCode('import os, signal\nos.kill(os.getpid(), 9)')).error?.name, 'ContextRestarting');
    assert.equal(await python(box, '2 + 2'), '4');
  });

  test('one that hangs is replaced, and whoever waits for a kernel gets one', async (t) => {
    process.kill(zygoteOf(engine), 'SIGSTOP');
    const box = await engine.create();
    t.after(() => box.kill());
    assert.equal(await python(box, '3 + 3', { timeoutMs: 40_000, requestTimeoutMs: 40_000 }), '6');
    assert.equal(await isForked(box), false);
    await forksAgain();
  });

  test('sandboxes end while their kernels are being made', async (t) => {
    const body = { json: { templateID: 'code-interpreter-v1', allow_internet_access: false } };
    for (let i = 0; i < 40; i++) {
      const made = (await engine.api('POST', '/v2/sandboxes', body)).json;
      assert.equal((await engine.api('DELETE', `/sandboxes/${made.sandboxID}`)).status, 204);
    }
    const box = await engine.create();
    t.after(() => box.kill());
    assert.equal(await isForked(box), true);
  });

  test('--no-zygote starts every kernel by itself', async () => {
    const plain = await startEngine({ args: ['--no-zygote', '--pool', '0'] });
    try {
      assert.ok(!plain.has('zygote'));
      const box = await plain.create();
      assert.equal(await isForked(box), false);
    } finally {
      await plain.stop();
    }
  });
});

describe('the warm pool', SUITE, () => {
  let engine;
  before(async () => {
    engine = await startEngine({
      args: ['--pool', '2', '--max-sandboxes', '4'],
      templates: { 'other.template': 'interpreter = yes\nenv = FROM=template\n', 'starts.template': 'interpreter = yes\nstart = echo $GIVEN > /tmp/started\n' },
    });
  });
  after(() => engine?.stop());

  const waiting = () => engine.family.look().filter((pid) => commandLine(pid) === KERNEL && status(pid, 'NSpid')?.split(/\s+/).length > 1).length;
  const full = (n = 2) => until(() => waiting() >= n, { what: 'a full pool' });

  test('a create takes what is ready, and it is replaced', async (t) => {
    await full();
    await sleep(1000); // more than the way of an answer, and than the clock of processes is off by
    const begun = performance.now();
    const box = await engine.create();
    t.after(() => box.kill());
    assert.ok((await kernelAge(box)) > (performance.now() - begun) / 1000, 'the kernel is older than the create');
    await full(3);
  });

  test('nobody sees what waits', async () => {
    await full();
    const list = await engine.api('GET', '/v2/sandboxes');
    assert.deepEqual(list.json, []);
    const boxes = await Promise.all([1, 2, 3, 4].map(() => engine.create()));
    assert.equal((await engine.api('POST', '/v2/sandboxes', { json: { templateID: 'base' } })).status, 429);
    assert.equal(new Set(boxes.map((b) => b.sandboxId)).size, 4);
    assert.equal(new Set(boxes.map((b) => b.envdAccessToken)).size, 4);
    await Promise.all(boxes.map((b) => b.kill()));
  });

  test('it is what was asked for: variables, metadata, time, tokens', async (t) => {
    await full();
    const before = Date.now();
    const box = await engine.create(undefined, { envs: { GIVEN: 'a b', E: '=' }, metadata: { k: 'v' }, timeoutMs: 90_000, network: { allowPublicTraffic: false } });
    t.after(() => box.kill());
    assert.equal(await python(box, 'import os\nprint(os.environ["GIVEN"], os.environ["E"], os.environ["E2B_SANDBOX_ID"])'), `a b = ${box.sandboxId}`);
    assert.equal(await python(box, '!echo $GIVEN'), 'a b');
    assert.equal(await output(box, 'echo $GIVEN'), 'a b');
    const info = await box.getInfo();
    assert.deepEqual(info.metadata, { k: 'v' });
    assert.ok(Math.abs(info.endAt - before - 90_000) < 15_000 && info.startedAt >= before - 1000, `${info.startedAt} ${info.endAt}`);
    assert.ok(box.trafficAccessToken);
    const [context] = await box.listCodeContexts();
    await box.restartCodeContext(context);
    assert.equal(await python(box, 'import os\nos.environ["GIVEN"]'), 'a b');
  });

  test('one that is taken while it is made is what was asked for, too', async () => {
    for (let i = 0; i < 40; i++) {
      const box = await engine.create(undefined, { envs: { GIVEN: `given ${i}` } });
      assert.equal(await python(box, 'import os\nos.environ["GIVEN"]'), `given ${i}`);
      await box.kill();
      await sleep(i); // the next one of the pool is begun soon after a create, and takes some time
    }
  });

  test('the first run is the first', async (t) => {
    await full();
    const box = await engine.create();
    t.after(() => box.kill());
    const run = await box.runCode('len([n for n in globals() if not n.startswith("_")]), In, Out, _');
    assert.equal(run.executionCount, 1);
    assert.match(run.text.replaceAll(/\s+/g, ' '), /^\(\d+, \['', '[^']*'\], \{\}, ''\)$/);
  });

  test('places follow what is asked for', async () => {
    await full();
    const miss = await engine.create('other');
    assert.equal(await python(miss, 'import os\nos.environ["FROM"]'), 'template');
    await miss.kill();
    await until(
      async () => {
        await full();
        const begun = performance.now();
        const box = await engine.create('other');
        const age = await kernelAge(box);
        const fresh = (performance.now() - begun) / 1000;
        await box.kill();
        return age > fresh;
      },
      { deadline: 20_000, every: 300, what: 'one of the other kind in the pool' },
    );
  });

  test('a template that starts something is not kept ready, nor is a Python that must start anew', async (t) => {
    await full();
    const box = await engine.create('starts', { envs: { GIVEN: 'x' } });
    t.after(() => box.kill());
    await until(async () => (await shell(box, 'cat /tmp/started')).stdout.trim() === 'x', { what: 'the start command' });
    const early = await engine.create(undefined, { envs: { PYTHONPATH: '/tmp/lib' } });
    t.after(() => early.kill());
    assert.match(await python(early, 'import sys\nprint(sys.path)'), /\/tmp\/lib/);
  });

  test('without internet is another kind', async (t) => {
    const box = await engine.create(undefined, { allowInternetAccess: false });
    t.after(() => box.kill());
    assert.equal(await output(box, 'ls /sys/class/net 2>/dev/null; cat /proc/net/dev | grep -c tap0 || true'), '0');
  });

  const endAll = async (name) => {
    const all = engine.family.look().filter((pid) => status(pid, 'Name') === name);
    for (const pid of all) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch (e) {
        if (e.code !== 'ESRCH') throw e; // one of an earlier test that was just ending
      }
    }
    await until(() => all.every((pid) => !status(pid, 'Name')), { what: `the end of all ${name}` });
    return all.length;
  };

  test('one whose network dies is given to nobody', async (t) => {
    const box = await engine.create();
    t.after(() => box.kill());
    if (!engine.has('internet')) return;
    const online = async (b) => (await output(b, 'grep -c tap0 /proc/net/dev || true')) === '1';
    assert.ok(await online(box));
    await full(3);
    assert.ok((await endAll('slirp4netns')) >= 2);
    const next = await engine.create();
    t.after(() => next.kill());
    assert.ok(await online(next), 'it has a network');
    await until(() => waiting() >= 2, { deadline: 20_000, what: 'a full pool again' });
  });

  test('one that dies is replaced', async () => {
    await full();
    await endAll('memfd:init');
    const box = await engine.create();
    assert.equal(await python(box, '1'), '1');
    await box.kill();
    await until(() => waiting() >= 2, { deadline: 20_000, what: 'a full pool again' });
  });
});
