// What a client's attack is aimed at: a sandbox by its routes, or, unconfined, what a careless engine would do with the same
// requests on the host. Both have the same methods; a path below `home` is one that the attacker owns.
import { spawn } from 'node:child_process';
import crypto from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { output, shell, tempFolder, within } from './engine.mjs';

const SOURCE = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../attacks');
const ANSWER_MAX = 64 << 20;

/** The text of a command's output; a failure is none of ours. */
function runHost(argv, options = {}) {
  const child = spawn(argv[0], argv.slice(1), { stdio: ['ignore', 'pipe', 'ignore'], ...options });
  let text = '';
  child.stdout.setEncoding('latin1').on('data', (d) => (text += d));
  const done = new Promise((resolve) => child.on('close', () => resolve(text)));
  return { child, done };
}

/** A careless reader: keeps all that a program says on its descriptors, and tells by how many KiB that made it grow. */
const RELAY = `
import os, subprocess, sys
peak = lambda: int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])
before, (source, sink) = peak(), os.pipe()
child = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdin=0, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=[sink])
os.close(sink)
kept = list(iter(lambda: os.read(source, 65536), b''))
child.wait()
print(peak() - before, file=sys.stderr, flush=True)
sys.stdout.buffer.writelines(kept)
`;

/** Asks whether a promise has settled. */
function isOver(promise) {
  let over = false;
  const settled = () => (over = true);
  promise.then(settled, settled);
  return () => over;
}

/** A folder on the host that no sandbox may reach, with the secret in it. */
function plant(decoys) {
  const folder = path.join(decoys.folder, `target-${crypto.randomUUID()}`);
  fs.mkdirSync(folder);
  fs.chmodSync(folder, 0o777);
  for (const name of ['secret', 'victim']) fs.writeFileSync(path.join(folder, name), fs.readFileSync(decoys.file), { mode: 0o666 });
  return folder;
}

/** What both have. */
class Target {
  existsOutside(name) {
    return fs.existsSync(path.join(this.outside, name));
  }

  makeOutside(name) {
    return fs.promises.writeFile(path.join(this.outside, name), 'x', { mode: 0o666 });
  }

  source(name) {
    return fs.promises.readFile(path.join(SOURCE, name), 'utf8');
  }

  /** Makes every try. Unconfined each must gain something but for those in `absent`; inside none may. */
  async all(tries, absent = []) {
    const gained = [];
    const refused = [];
    for (const [name, one] of Object.entries(tries)) {
      const won = await one().catch((e) => {
        refused.push(`${name}: ${e.message}`);
        return false;
      });
      if (won) gained.push(name);
      else if (this.unconfined && !absent.includes(name)) throw new Error(`even unconfined: ${name}: ${refused.at(-1)}`);
    }
    this.why = refused.join(', ').slice(0, 500);
    return gained.join(', ');
  }
}

/** A careless engine, as root, on the host. */
export class Host extends Target {
  #background = [];
  #log = '';
  #grown = 0;
  users = ['root'];
  unconfined = true;

  static async make(decoys) {
    const home = tempFolder('sandgate-attack-');
    return Object.assign(new Host(), { decoys, home, outside: plant(decoys), system: [path.join(decoys.system, 'bin/env'), '/proc/self/comm'] });
  }

  hasSecret(bytes) {
    return Buffer.from(bytes).toString('latin1').includes(fs.readFileSync(this.decoys.file, 'latin1'));
  }

  #note(text) {
    this.#log += `op=request path=${text}\n`;
  }

  log() {
    return this.#log;
  }

  sh(command) {
    return within(20_000, runHost(['/bin/bash', '-c', command], { cwd: this.home }).done, command);
  }

  async shBackground(command) {
    this.#background.push(runHost(['/bin/bash', '-c', `exec ${command}`], { cwd: this.home }).child);
  }

  python(file, args) {
    return within(30_000, runHost(['/usr/bin/python3', '-B', path.join(SOURCE, file), ...args]).done, file);
  }

  async startProcesses(end) {
    for (const over = isOver(end); !over(); ) await runHost(['/bin/sleep', '0.05']).done;
  }

  async read(file) {
    this.#note(file);
    return fs.promises.readFile(path.join('/', file));
  }
  async write(file, data) {
    this.#note(file);
    await fs.promises.writeFile(file, data);
  }
  /** One name a line, as ls does. */
  async list(dir) {
    return (await fs.promises.readdir(dir)).join('\n').split('\n');
  }
  remove(file) {
    return fs.promises.rm(file, { recursive: true });
  }
  move(from, to) {
    return fs.promises.rename(from, to);
  }
  async watch(dir, seen) {
    const watcher = fs.watch(dir, (_, name) => seen(name));
    return () => watcher.close();
  }

  /** Looks first, and acts afterwards. */
  get racy() {
    const check = async (file) => {
      const real = await fs.promises.realpath(path.dirname(file));
      if (!real.startsWith(fs.realpathSync(this.home))) throw new Error('not below the home');
    };
    const checked = (name) => async (file, ...rest) => {
      await check(file);
      return this[name](file, ...rest);
    };
    return Object.fromEntries(['read', 'write', 'list', 'remove', 'move'].map((name) => [name, checked(name)]));
  }

  /** Runs Python and relays what it says on its descriptors, word for word, until it ends. */
  async kernel(code) {
    const child = spawn('/usr/bin/python3', ['-c', RELAY, code], { stdio: ['ignore', 'pipe', 'pipe'] });
    const chunks = [];
    let grown = '';
    child.stdout.on('data', (d) => chunks.push(d));
    child.stderr.setEncoding('utf8').on('data', (d) => (grown += d));
    await within(30_000, new Promise((resolve) => child.on('close', resolve)), 'the relay');
    if (!/^\d+\n$/.test(grown)) throw new Error(`the relay failed: ${grown}`);
    this.#grown = Math.max(this.#grown, Number(grown) / 1024);
    return Buffer.concat([...chunks, Buffer.from('{"type": "end_of_execution"}\n')]);
  }

  /** By how many MiB the reader of one run has grown at most. */
  async grown() {
    return this.#grown;
  }

  async free() {
    for (const child of this.#background) child.kill('SIGKILL');
    fs.rmSync(this.home, { recursive: true, force: true });
    fs.rmSync(this.outside, { recursive: true, force: true });
  }
}

/** A sandbox of its own. */
export class Inside extends Target {
  static async make(machine) {
    const sandbox = await machine.engine.create('kernel');
    const target = Object.assign(new Inside(), { machine, sandbox, decoys: machine.decoys, users: machine.users, home: '/home/user/target' });
    target.outside = plant(machine.decoys);
    target.system = ['/etc/passwd', '/usr/bin/env', '/bin/planted', '/proc/self/comm', '/proc/1/comm', '/proc/self/oom_score_adj', '/proc/1/mem', '/proc/sys/kernel/hostname', '/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/dev/planted', '/dev/null', '/dev/tty', '/dev/pts/ptmx'];
    await output(sandbox, `mkdir ${target.home}`);
    target.before = machine.engine.peaks();
    return target;
  }

  hasSecret(bytes) {
    return Buffer.from(bytes).toString('latin1').includes(this.machine.secret);
  }

  log() {
    return this.machine.engine.stderr();
  }

  async sh(command) {
    return (await shell(this.sandbox, command, { cwd: this.home, timeoutMs: 20_000 })).stdout;
  }

  async shBackground(command) {
    await this.sandbox.commands.run(`exec ${command}`, { cwd: this.home, background: true, timeoutMs: 0 });
  }

  /** Calls that have text of the client's in other places than paths. */
  async client(text) {
    await shell(this.sandbox, 'true', { cwd: `/tmp/${text}` }).catch(() => {});
    await shell(this.sandbox, 'true', { user: text }).catch(() => {});
    await this.sandbox.createCodeContext({ cwd: `/tmp/${text}` }).catch(() => {});
    await this.machine.engine.create(text).catch(() => {});
    await this.machine.engine.api('GET', `/sandboxes/${encodeURIComponent(text)}`);
  }

  async python(file, args, user) {
    await this.sandbox.files.write(`/tmp/${file}`, fs.readFileSync(path.join(SOURCE, file), 'utf8'));
    return output(this.sandbox, `python3 -B /tmp/${file} ${args.join(' ')}`, { user });
  }

  /** Commands of each user, and contexts that are started anew, all the time. */
  async startProcesses(end) {
    const { engine } = this.machine;
    const context = await this.sandbox.createCodeContext();
    const over = isOver(end);
    const commands = async (user) => {
      while (!over()) await shell(this.sandbox, 'true', { user });
    };
    const contexts = async () => {
      while (!over()) await engine.interpreter(this.sandbox, 'POST', `/contexts/${context.id}/restart`);
    };
    await Promise.all([...this.users.map(commands), contexts()]);
  }

  async read(file) {
    return this.sandbox.files.read(file, { format: 'bytes' });
  }
  write(file, data) {
    return this.sandbox.files.write(file, data);
  }
  async list(dir) {
    return (await this.sandbox.files.list(dir)).map((e) => e.name);
  }
  remove(file) {
    return this.sandbox.files.remove(file);
  }
  move(from, to) {
    return this.sandbox.files.rename(from, to);
  }
  async watch(dir, seen) {
    const handle = await this.sandbox.files.watchDir(dir, (e) => seen(e.name));
    return () => handle.stop();
  }

  get racy() {
    return this;
  }

  /** The bytes of the answer to a run, as many as a client would bear. */
  async kernel(code) {
    const res = await this.machine.engine.execute(this.sandbox, { code });
    const chunks = [];
    let size = 0;
    try {
      for await (const chunk of res) {
        size += chunk.length;
        if (size <= ANSWER_MAX) chunks.push(chunk);
      }
    } catch {
      chunks.push(Buffer.from('\n')); // cut off: what there is must be good nevertheless
    }
    return Buffer.concat(chunks);
  }

  /** By how many MiB the engine has grown since the attack began. */
  async grown() {
    const peaks = [...this.machine.engine.peaks()];
    return Math.max(...peaks.map(([pid, peak]) => (peak - (this.before.get(pid) ?? peak)) / 1024));
  }

  async free() {
    await within(15_000, this.sandbox.kill(), 'the end of the sandbox');
    fs.rmSync(this.outside, { recursive: true, force: true });
  }
}
