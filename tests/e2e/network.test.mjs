// Network rules: what a sandbox may reach. The file runs itself again in a network namespace of its own, which is joined to another one
// whose addresses stand for the internet; real connections from inside the sandbox say what is open. Nothing leaves the machine.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import net from 'node:net';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { SUITE, assertError, fails, output, sleep, startEngine, until, within } from './engine.mjs';

const INSIDE = 'SANDGATE_TEST_NETWORK';
const PORT = 8090;
const HOST = '192.0.2.1'; // of the machine that the engine runs on
const PUBLIC = ['203.0.113.5', '203.0.113.9', '203.0.113.200', '198.51.100.7'];
const CLOSED = ['10.1.2.3', '172.16.9.9', '192.168.7.7', '169.254.169.254', '100.64.0.9', HOST];
const SHUT = ['EHOSTUNREACH', 'ENETUNREACH'];

if (process.env[INSIDE]) describe('network rules', SUITE, suite);
else test('network rules, in a network of their own', SUITE, outside);

/** Runs this file again within and reports its tests as our own. */
async function outside(t) {
  const env = { ...process.env, [INSIDE]: '1' };
  delete env.NODE_TEST_CONTEXT;
  const child = spawn('unshare', ['-n', process.execPath, '--test-reporter=tap', fileURLToPath(import.meta.url)], {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let text = '';
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (d) => (text += d));
  t.after(() => child.kill());
  const code = await new Promise((resolve) => child.on('error', () => resolve(-1)).on('close', resolve));
  const results = [...text.matchAll(/^ {4}(ok|not ok) \d+ - (.*)$/gm)];
  if (!results.length && process.getuid() !== 0) {
    const engine = await startEngine();
    const excused = engine.ready.inactive.has('internet');
    await engine.stop();
    if (excused) return t.skip('no internet here, says the ready line');
  }
  for (const [, result, name] of results) await t.test(name, () => assert.equal(result, 'ok', text));
  assert.equal(code, 0, text);
  assert.ok(results.length > 0, text);
}

function suite() {
  let engine;
  let beyond; // the process whose network namespace is the internet
  let listener;

  const ip = (...args) => execFileSync('ip', args, { encoding: 'utf8' });
  const ipBeyond = (...args) => execFileSync('nsenter', ['-t', String(beyond.pid), '-n', 'ip', ...args], { encoding: 'utf8' });

  before(async () => {
    const server = `require('net').createServer((s) => s.on('error', () => {}).on('data', (d) => s.write(d))).listen(${PORT}, '0.0.0.0', () => console.log('up'))`;
    beyond = spawn('unshare', ['-n', process.execPath, '-e', server], { stdio: ['ignore', 'pipe', 'inherit'] });
    await within(20_000, new Promise((resolve) => beyond.stdout.once('data', resolve)), 'the server beyond');
    ip('link', 'set', 'lo', 'up');
    ip('link', 'add', 've0', 'type', 'veth', 'peer', 'name', 've1', 'netns', String(beyond.pid));
    ip('addr', 'add', `${HOST}/24`, 'dev', 've0');
    ip('link', 'set', 've0', 'up');
    ip('route', 'add', 'default', 'via', '192.0.2.2');
    ipBeyond('link', 'set', 'lo', 'up');
    ipBeyond('addr', 'add', '192.0.2.2/24', 'dev', 've1');
    ipBeyond('link', 'set', 've1', 'up');
    for (const address of [...PUBLIC, ...CLOSED]) if (address !== HOST) ipBeyond('addr', 'add', `${address}/32`, 'dev', 'lo');
    listener = net.createServer((s) => s.on('error', () => {}).end()).listen(PORT, '0.0.0.0');
    engine = await startEngine({ args: ['--pool', '0'] });
  });
  after(async () => {
    await engine?.stop();
    listener?.close();
    beyond?.kill();
  });

  const fromHost = (address) =>
    within(
      5_000,
      new Promise((resolve, reject) => {
        const s = net.connect(PORT, address, () => resolve(s.destroy()));
        s.on('error', reject);
      }),
      address,
    );

  /** What each connection from inside comes to: "open", or an errno. */
  async function reach(box, addresses) {
    const code = `import socket, errno, sys, json
out = {}
for a in sys.argv[1:]:
    try:
        s = socket.socket(); s.settimeout(5); s.connect((a, ${PORT})); s.send(b"x"); out[a] = "open" if s.recv(1) == b"x" else "closed"
    except TimeoutError: out[a] = "timeout"
    except OSError as e: out[a] = errno.errorcode.get(e.errno, str(e))
print(json.dumps(out))`;
    return JSON.parse(await output(box, `python3 -c '${code}' ${addresses.join(' ')}`));
  }

  /** Asserts that exactly these are open, and all other public and all closed ones shut at once. */
  async function assertOpen(box, open, what) {
    const got = await reach(box, [...PUBLIC, ...CLOSED]);
    for (const [address, outcome] of Object.entries(got))
      if (open.includes(address)) assert.equal(outcome, 'open', `${address} ${what}`);
      else assert.ok(SHUT.includes(outcome), `${address} ${what}: ${outcome}`);
  }

  const resolver = (box) =>
    output(
      box,
      `python3 -c 'import socket
try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("10.0.2.3", 53)); print("open")
except OSError as e: print("shut")'`,
    );
  const put = (box, json) => engine.api('PUT', `/sandboxes/${box.sandboxId}/network`, { json });
  const shown = async (box) => (await engine.api('GET', `/sandboxes/${box.sandboxId}`)).json;

  test('the internet of these tests works, and the engine has it', async () => {
    for (const address of [...PUBLIC, ...CLOSED]) await fromHost(address);
    assert.ok(engine.has('internet'), engine.ready.line);
  });

  test('without rules all that is public is open, and nothing else', async () => {
    const box = await engine.create('base');
    await assertOpen(box, PUBLIC, 'without rules');
    assert.equal(await resolver(box), 'open');
    assert.equal((await shown(box)).network, undefined);
    await box.kill();
  });

  test('denyOut shuts addresses and ranges, allowOut wins over it, on both ways to create', async () => {
    for (const [network, open] of [
      [{ denyOut: ['203.0.113.9'] }, ['203.0.113.5', '203.0.113.200', '198.51.100.7']],
      [{ denyOut: ['203.0.113.0/25'] }, ['203.0.113.200', '198.51.100.7']],
      [{ denyOut: ['0.0.0.0/0'] }, []],
      [{ denyOut: ['0.0.0.0/0'], allowOut: ['198.51.100.0/24', '203.0.113.9'] }, ['198.51.100.7', '203.0.113.9']],
      [{ denyOut: ['203.0.113.9'], allowOut: ['203.0.113.0/24'] }, PUBLIC],
      [{ allowOut: ['203.0.113.9'] }, PUBLIC],
    ]) {
      const box = await engine.create('base', { network });
      await assertOpen(box, open, `with ${JSON.stringify(network)}`);
      assert.equal(await resolver(box), 'open');
      assert.deepEqual((await shown(box)).network, network);
      await box.kill();
    }
    const v1 = await engine.api('POST', '/sandboxes', { json: { templateID: 'base', network: { denyOut: ['203.0.113.9'] } } });
    assert.equal(v1.status, 201, v1.text);
    assert.deepEqual((await shown({ sandboxId: v1.json.sandboxID })).network, { denyOut: ['203.0.113.9'] });
    await engine.api('DELETE', `/sandboxes/${v1.json.sandboxID}`);
  });

  test('what is closed to all stays closed whatever is allowed', async () => {
    const all = ['0.0.0.0/0', '10.0.0.0/8', '169.254.169.254', `${HOST}/32`, ...CLOSED];
    const box = await engine.create('base', { network: { allowOut: all } });
    await assertOpen(box, PUBLIC, 'with all allowed');
    assert.equal((await put(box, { allowOut: all, denyOut: ['203.0.113.0/24'] })).status, 204);
    await assertOpen(box, PUBLIC, 'with all allowed later');
    await box.kill();
  });

  test('rules change while the sandbox runs: shut, opened, cleared', async () => {
    const box = await engine.create('base', { network: { maskRequestHost: 'localhost:${PORT}' } });
    assert.equal((await put(box, { denyOut: ['203.0.113.0/24'] })).status, 204);
    await assertOpen(box, ['198.51.100.7'], 'after the first change');
    assert.deepEqual((await shown(box)).network, { denyOut: ['203.0.113.0/24'], maskRequestHost: 'localhost:${PORT}' });
    await box.updateNetwork({ denyOut: ['0.0.0.0/0'], allowOut: ['203.0.113.5'] });
    await assertOpen(box, ['203.0.113.5'], 'after the second');
    assert.equal((await put(box, {})).status, 204);
    await assertOpen(box, PUBLIC, 'after clearing');
    assert.deepEqual((await shown(box)).network, { maskRequestHost: 'localhost:${PORT}' });
    await box.kill();
  });

  test('a change cuts a connection that is open', async () => {
    const box = await engine.create('base');
    await box.commands.run(
      `python3 -u -c 'import socket, time
s = socket.create_connection(("203.0.113.9", ${PORT}))
while True:
    s.send(b"x"); s.recv(100); print(time.time(), file=open("/tmp/pongs", "a")); time.sleep(0.05)'`,
      { background: true, timeoutMs: 0 },
    );
    const pongs = async () => (await box.files.read('/tmp/pongs').catch(() => '')).split('\n').length;
    await until(async () => (await pongs()) > 3, { what: 'answers' });
    assert.equal((await put(box, { denyOut: ['203.0.113.9'] })).status, 204);
    await sleep(300); // what was on its way
    const seen = await pongs();
    await sleep(700);
    assert.equal(await pongs(), seen);
    await box.kill();
  });

  test('internet access goes off and on again; off, not even names are resolved', async () => {
    const box = await engine.create('base', { network: { denyOut: ['203.0.113.9'] } });
    assert.equal((await put(box, { allow_internet_access: false, allowOut: ['203.0.113.5'] })).status, 204);
    await assertOpen(box, [], 'with internet off');
    assert.equal(await resolver(box), 'shut');
    assert.equal((await shown(box)).allowInternetAccess, false);
    assert.equal(await output(box, 'python3 -c "import socket; s = socket.create_server((\\"127.0.0.1\\", 0)); socket.create_connection(s.getsockname()); print(1)"'), '1');
    assert.equal((await put(box, { allow_internet_access: true })).status, 204);
    await assertOpen(box, PUBLIC, 'with internet on again');
    assert.equal(await resolver(box), 'open');
    await box.kill();

    const off = await engine.create('base', { allowInternetAccess: false });
    assertError(await put(off, { allow_internet_access: true }), 501, /internet access .* created without it is not offered/);
    assert.equal((await put(off, { allow_internet_access: false, denyOut: ['203.0.113.9'] })).status, 204);
    await assertOpen(off, [], 'without internet');
    await off.kill();
  });

  test('nothing inside can change the routes', async () => {
    const box = await engine.create('base', { network: { denyOut: ['0.0.0.0/0'] } });
    const users = engine.has('root and user') ? ['user', 'root'] : ['user'];
    for (const user of users)
      for (const command of ['ip route del 0.0.0.0/1', 'ip route add 203.0.113.9 dev tap0', 'ip route flush table main'])
        await fails(box.commands.run(command, { user }), 'CommandExitError');
    await assertOpen(box, [], 'after trying');
    await box.kill();
  });

  test('256 entries are taken and act; more, malformed and foreign ones are refused by name', async () => {
    const many = Array.from({ length: 255 }, (_, i) => `${i % 200 + 11}.${i}.77.${i}`);
    const box = await engine.create('base', { network: { denyOut: ['0.0.0.0/0'], allowOut: [...many, '203.0.113.9'] } });
    await assertOpen(box, ['203.0.113.9'], 'with 256 entries');
    for (let i = 0; i < 3; i++) {
      assert.equal((await put(box, { denyOut: many })).status, 204);
      assert.equal((await put(box, { denyOut: ['0.0.0.0/0'], allowOut: [...many, '203.0.113.9'] })).status, 204);
    }
    await assertOpen(box, ['203.0.113.9'], 'after changes');
    const bad = [
      [{ denyOut: Array(257).fill('1.2.3.4') }, 400, /more than 256/],
      [{ denyOut: ['1.2.3.4.5'] }, 400, /'1\.2\.3\.4\.5'/],
      [{ allowOut: ['1.2.3.4/40'] }, 400, /1\.2\.3\.4\/40/],
      [{ allowOut: [7] }, 400, /allowOut must be/],
      [{ allowOut: '1.2.3.4' }, 400, /allowOut must be/],
      [{ allowOut: ['example.com'] }, 501, /allowOut 'example\.com' .* is not offered by this engine/],
      [{ denyOut: ['*.example.com'] }, 501, /denyOut '\*\.example\.com'/],
      [{ denyOut: ['::/0'] }, 501, /denyOut '::\/0'/],
      [{ rules: { 'a.test': [{}] } }, 501, /network\.rules/],
      [{ egressProxy: { address: 'h:1' } }, 501, /network\.egressProxy/],
    ];
    for (const [network, status, message] of bad) {
      assertError(await engine.api('POST', '/v2/sandboxes', { json: { templateID: 'base', network } }), status, message);
      assertError(await put(box, network), status, message);
    }
    assertError(await put(box, { allow_internet_access: 'yes' }), 400);
    await assertOpen(box, ['203.0.113.9'], 'after refusals');
    await box.kill();
    assertError(await put(box, {}), 404);
  });

  test('a paused sandbox keeps its rules and takes no others; changes at once wait for each other', async () => {
    const box = await engine.create('base', { network: { denyOut: ['203.0.113.9'] } });
    await box.pause();
    assertError(await put(box, {}), 409);
    await box.connect();
    await assertOpen(box, PUBLIC.filter((a) => a !== '203.0.113.9'), 'after a pause');
    const answers = await Promise.all(Array.from({ length: 8 }, () => put(box, { denyOut: ['198.51.100.7'] })));
    for (const res of answers) assert.ok([204, 409].includes(res.status), res.text);
    assert.ok(answers.some((res) => res.status === 204));
    await assertOpen(box, PUBLIC.filter((a) => a !== '198.51.100.7'), 'after many changes');
    const last = put(box, {});
    const killed = box.kill();
    assert.ok([204, 404].includes((await last).status));
    await killed;
    const open = engine.openFiles();
    const another = await engine.create('base');
    for (let i = 0; i < 10; i++) assert.equal((await put(another, { denyOut: ['1.1.1.1'] })).status, 204);
    await another.kill();
    await until(() => engine.openFiles() <= open, { what: 'as few open files as before' });
  });
}
