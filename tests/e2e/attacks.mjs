// What runs the files of tests/attacks: on the host, where each must succeed against decoys, and in sandboxes of an engine on a
// machine of decoys (tests/attacks/kit/machine.py), where none may.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { BUILD, shell, startEngine, tempFolder, until, within } from './engine.mjs';
import { Host, Inside } from './attacktargets.mjs';

const SOURCE = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../attacks');
const INSIDE = '/tmp/attacks'; // where they lie in a sandbox
const NOBODY = 65534;
const RANGE = '700000:65536'; // of ids, for nobody; an engine that root starts has others

/** The "name: value" lines of the comment that a file begins with. */
function header(text) {
  const head = text.match(/^"""[\s\S]*?"""|^(?:\/\/.*\n)+/)?.[0] ?? '';
  return Object.fromEntries([...head.matchAll(/^(?:\/\/ )?(holds|unconfined|as|alone|ends|witness): (.*)$/gm)].map((m) => [m[1], m[2].trim()]));
}

/** Every attack: its name, the layers that must hold it, and where it is run. */
export function attacks() {
  return fs
    .readdirSync(SOURCE)
    .filter((name) => /\.(py|mjs)$/.test(name))
    .sort()
    .map((name) => {
      const head = header(fs.readFileSync(path.join(SOURCE, name), 'utf8'));
      assert.ok(head.holds, `${name} does not say what holds it`);
      return {
        name,
        holds: head.holds.split(', '),
        unconfined: head.unconfined ?? 'root',
        as: (head.as ?? (name.endsWith('.mjs') ? 'client' : 'user, root, kernel')).split(', '),
        alone: head.alone,
        ends: head.ends === 'yes', // the sandbox as a whole may be ended for it
        witness: head.witness,
      };
    });
}

/** What an attack said, as a verdict. */
function verdict(status, output) {
  const said = output.match(/^(BREACH|HELD): (.*)$/m);
  if (said?.[1] === 'BREACH' && status === 0) return { verdict: 'breach', why: said[2] };
  if (said?.[1] === 'HELD' && status === 1) return { verdict: 'held', why: said[2] };
  return { verdict: 'broken', why: `exit status ${status}: ${output}` };
}

/** Calls fn on all, a few at a time. */
async function each(all, width, fn) {
  const rest = [...all];
  await Promise.all(
    Array.from({ length: width }, async () => {
      while (rest.length) await fn(rest.shift());
    }),
  );
}

// ---------------------------------------------------------------------------------------------------------------- the machine

/** An engine on a machine of decoys, started by root, by an ordinary user, or by one who has a range of ids. */
export class Machine {
  static async start(kind) {
    const dir = tempFolder();
    const where = path.join(dir, 'decoys.json');
    const programs = path.join(dir, 'programs');
    const uid = kind === 'root' ? 0 : NOBODY;
    // The checkout may lie under a folder that is closed to others.
    fs.mkdirSync(programs);
    for (const name of fs.readdirSync(BUILD)) {
      const from = path.join(BUILD, name);
      if (name.startsWith('sandgate-') && fs.statSync(from).isFile()) fs.copyFileSync(from, path.join(programs, name));
    }
    fs.cpSync(SOURCE, path.join(dir, 'attacks'), { recursive: true });
    fs.chownSync(dir, uid, uid);
    const engine = await startEngine({
      dir,
      command: path.join(dir, 'attacks/kit/machine.py'),
      env: { ATTACK_ENGINE: path.join(programs, 'sandgate-engine'), ATTACK_UID: String(uid), ATTACK_WHERE: where, ATTACK_RANGE: kind === 'range' ? RANGE : '' },
      templates: {
        'small.template': 'disk = 16\nmemory = 256\ninterpreter = no\n',
        'kernel.template': 'disk = 64\nmemory = 1024\ninterpreter = yes\n',
      },
    });
    const decoys = { ...JSON.parse(fs.readFileSync(where)), state: engine.state };
    return Object.assign(new Machine(), { kind, dir, engine, decoys, secret: fs.readFileSync(decoys.file, 'latin1') });
  }

  get users() {
    return this.engine.has('root and user') ? ['user', 'root'] : ['user'];
  }

  /** The layers that would hold an attack, when not one of them is active. */
  inactive(attack) {
    return attack.holds.every((layer) => this.engine.ready.inactive.has(layer)) ? attack.holds.join(', ') : undefined;
  }

  /** Whether the ready line knows the layers that an attack names. */
  knows(attack) {
    const { active, inactive } = this.engine.ready;
    return attack.holds.every((layer) => active.has(layer) || inactive.has(layer));
  }

  async stop() {
    await this.engine.stop();
  }

  // -------------------------------------------------------------------------------------------------------------- unconfined

  /** Runs one on the host: as root in the machine's network, as nobody there, or in namespaces of its own. */
  async unconfined(attack) {
    if (attack.name.endsWith('.mjs')) return this.#outside(attack);
    const enter = ['nsenter', '-t', String(this.decoys.machine), '--net', '--'];
    const prefix = {
      root: enter,
      nobody: [...enter, 'setpriv', `--reuid=${NOBODY}`, `--regid=${NOBODY}`, '--clear-groups', '--'],
      namespaces: ['unshare', '--mount', '--pid', '--net', '--ipc', '--uts', '--fork', '--mount-proc', '--kill-child', '--'],
    }[attack.unconfined];
    const [command, ...args] = [...prefix, '/usr/bin/python3', '-B', path.join(this.dir, 'attacks', attack.name)];
    const env = { PATH: '/usr/bin:/bin:/usr/sbin:/sbin', TMPDIR: this.dir, ATTACK_UNCONFINED: '1', ATTACK_DECOYS: JSON.stringify(this.decoys) };
    const child = spawn(command, args, { env, cwd: '/tmp', stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (d) => (output = (output + d).slice(-20_000)));
    try {
      const status = await within(60_000, new Promise((resolve) => child.on('close', resolve)), attack.name);
      return verdict(status, output);
    } finally {
      child.kill('SIGKILL');
    }
  }

  async #outside(attack) {
    const host = await Host.make(this.decoys);
    try {
      return await judge(await load(attack, this.dir), host);
    } finally {
      await host.free();
    }
  }

  // -------------------------------------------------------------------------------------------------------------- inside

  /** The sandboxes that most attacks share, and the neighbour that they look for. */
  async prepare() {
    [this.sandbox, this.neighbour] = await Promise.all([this.engine.create('code-interpreter-v1'), this.engine.create('base')]);
    await this.#upload(this.sandbox);
    await this.#plant();
    this.inside = { ...this.decoys };
    if (this.users.includes('root')) {
      this.inside.setuid_inside = '/tmp/setuid-id';
      const made = await shell(this.sandbox, 'cp /usr/bin/id /tmp/setuid-id && chmod 4755 /tmp/setuid-id && ls -l /tmp/setuid-id', { user: 'root' });
      assert.match(made.stdout, /^-rws/, 'the planted program is setuid');
    }
    const { stdout } = await shell(this.sandbox, `python3 -B ${INSIDE}/kit/confinement.py`);
    this.decoys.confinement = this.inside.confinement = JSON.parse(stdout);
    // That closed addresses are closed says something only where open ones are open.
    if (this.engine.has('internet')) {
      const { stdout: said } = await shell(
        this.sandbox,
        `python3 -c 'import socket; print(socket.create_connection(("${this.decoys.public}", 80), 10).recv(99).decode())'`,
      );
      assert.equal(said.trim(), this.secret, 'a public address answers');
    }
  }

  /** The secret in the neighbour's files, shared memory, environment and abstract socket. Waits until it can be read there. */
  async #plant() {
    const files = `/tmp/secret ~/secret /dev/shm/${path.basename(this.decoys.shm)}`;
    const name = `"\\0${this.decoys.abstract}"`;
    await this.neighbour.commands.run(
      `echo $SECRET | tee ${files}; exec python3 -c '
import os, socket
a = socket.socket(socket.AF_UNIX); a.bind(${name}); a.listen()
while True:
    with a.accept()[0] as peer: peer.sendall(os.environb[b"SECRET"] + b"\\n")'`,
      { background: true, timeoutMs: 0, envs: { SECRET: this.secret } },
    );
    const look = `cat ${files}; python3 -c 'import socket; a = socket.socket(socket.AF_UNIX); a.connect(${name}); print(a.recv(99).decode())'`;
    const there = async () => (await shell(this.neighbour, look)).stdout.split(this.secret).length === 5;
    await until(there, { deadline: 30_000, every: 200, what: 'the secret in the neighbour' });
  }

  async #upload(sandbox) {
    const names = fs.readdirSync(SOURCE, { recursive: true }).filter((n) => n.endsWith('.py'));
    await sandbox.files.write(names.map((n) => ({ path: `${INSIDE}/${n}`, data: fs.readFileSync(path.join(SOURCE, n), 'utf8') })));
  }

  /** All those that can share a sandbox, in one go; a map from the attack's name to its verdict. */
  async together(all, who) {
    const names = all.map((a) => a.name);
    const envs = { ATTACK_DECOYS: JSON.stringify(this.inside) };
    let text;
    if (who === 'kernel') {
      const code = `import os, sys
os.environ.update(${JSON.stringify(envs)})
sys.path.insert(0, ${JSON.stringify(INSIDE)}); sys.dont_write_bytecode = True
from kit.run import run
run(${JSON.stringify(names)})`;
      const run = await this.sandbox.runCode(code, { timeoutMs: 180_000 });
      assert.equal(run.error, undefined, run.error?.traceback);
      text = run.logs.stdout.join('');
    } else {
      const done = await shell(this.sandbox, `exec python3 -B ${INSIDE}/kit/run.py ${names.join(' ')}`, { user: who, envs, timeoutMs: 180_000 });
      assert.equal(done.exitCode, 0, done.stderr);
      text = done.stdout;
    }
    const results = text.split('\n').filter(Boolean).map((line) => JSON.parse(line));
    return new Map(results.map((r) => [r.attack, verdict(r.status, r.output)]));
  }

  /** One in a sandbox of its own. The neighbour must answer meanwhile and afterwards, and the sandbox be killed. */
  async alone(attack, who) {
    const sandbox = await this.engine.create(attack.alone);
    let over = false;
    try {
      await this.#upload(sandbox);
      const envs = { ATTACK_DECOYS: JSON.stringify(this.inside) };
      const run = shell(sandbox, `exec python3 -B ${INSIDE}/${attack.name}`, { user: who, envs, timeoutMs: 60_000 })
        .then(({ exitCode, stdout, stderr }) => verdict(exitCode, stdout + stderr))
        .catch(async (e) => {
          // Whether it was ended as a whole or only cut off is told by the engine.
          const ended = async () => (await this.engine.api('GET', `/sandboxes/${sandbox.sandboxId}`)).status === 404;
          const gone = await until(ended, { deadline: 5_000 }).catch(() => false);
          if (!gone) return { verdict: 'broken', why: String(e) };
          const logged = this.engine.stderr().split('\n').findLast((line) => line.includes(sandbox.sandboxId));
          return { verdict: attack.ends ? 'held' : 'breach', why: `the sandbox was ended: ${logged}` };
        })
        .finally(() => (over = true));
      while (!over) {
        await this.answers();
        await Promise.race([run, new Promise((resolve) => setTimeout(resolve, 200))]);
      }
      return await run;
    } finally {
      await within(30_000, sandbox.kill(), 'the end of the sandbox');
      await this.answers();
    }
  }

  /** A client's attack, on a sandbox of its own. */
  async client(attack) {
    const inside = await Inside.make(this);
    try {
      return await judge(await load(attack, this.dir), inside);
    } finally {
      await inside.free();
      await this.answers();
    }
  }

  /** The engine and another sandbox do their work. */
  async answers() {
    this.engine.assertAlive();
    const { stdout } = await within(30_000, shell(this.neighbour, 'echo here'), 'an answer of the neighbour');
    assert.equal(stdout, 'here\n');
  }
}

async function load(attack, dir) {
  return (await import(pathToFileURL(path.join(dir, 'attacks', attack.name)))).default;
}

/** An attack in JavaScript returns what it gained, or nothing. */
async function judge(attack, target) {
  try {
    const gained = await within(60_000, attack(target), 'the attack');
    return gained ? { verdict: 'breach', why: String(gained) } : { verdict: 'held', why: target.why ?? 'nothing gained' };
  } catch (e) {
    return { verdict: 'broken', why: e.stack };
  }
}

const broken = (e) => ({ verdict: 'broken', why: e.stack });

/** Runs those that disturb nobody: a map from the attack's name to { who: verdict }. */
export async function runShared(machine, all) {
  const results = new Map(all.map((a) => [a.name, {}]));
  const batch = async (who) => {
    const mine = all.filter((a) => a.name.endsWith('.py') && !a.alone && a.as.includes(who));
    const got = await machine.together(mine, who);
    for (const a of mine) results.get(a.name)[who] = got.get(a.name) ?? { verdict: 'broken', why: 'it was not run' };
  };
  const clients = all.filter((a) => a.name.endsWith('.mjs'));
  await machine.prepare();
  await Promise.all([
    ...[...machine.users, 'kernel'].map(batch),
    each(clients, 3, async (a) => (results.get(a.name).client = await machine.client(a).catch(broken))),
  ]);
  for (const a of all.filter((one) => one.witness && fs.existsSync(path.join(machine.dir, one.witness))))
    for (const who of Object.keys(results.get(a.name))) results.get(a.name)[who] = { verdict: 'breach', why: `the ${a.witness} witness heard it` };
  return results;
}

/** Runs the others, each in a sandbox of its own, and adds what came of it. */
export async function runAlone(machine, all, results) {
  await each(all.filter((one) => one.alone), 2, async (a) => {
    for (const who of machine.users.filter((user) => a.as.includes(user)))
      results.get(a.name)[who] = await machine.alone(a, who).catch(broken);
  });
}

/** What came of all of them unconfined. */
export async function runUnconfined(machine, all) {
  const results = new Map();
  await each(all, 3, async (a) => results.set(a.name, await machine.unconfined(a).catch(broken)));
  return results;
}
