// A machine that runs the real systemd with the real units, engine, gateway and nginx: see machine.sh. It needs root, and is gone with
// all that was in it when it is stopped. Every wait in here has a deadline.
import { execFile, execFileSync, spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { BUILD, KEY, tempFolder, until, within } from './engine.mjs';
import { TOP, settingsText } from './gateway.mjs';

const run = promisify(execFile);
const SYSTEMD = '/lib/systemd/systemd';
const TARGETS = ['basic', 'local-fs', 'network', 'paths', 'shutdown', 'slices', 'sockets', 'sysinit', 'timers', 'umount'];
const CONFIG = '/etc/sandgate/sandgate.conf';

/** The unit files as `make install` would install them below PREFIX, in a folder by the name systemd below dir. */
export function makeUnits(dir, { prefix = '/usr/local' } = {}) {
  const env = { PATH: process.env.PATH };
  execFileSync('make', ['-s', 'units-systemd', `BUILD=${dir}`, `PREFIX=${prefix}`, 'SYSCONFDIR=/etc'], { cwd: TOP, env, timeout: 60_000 });
  return path.join(dir, 'systemd');
}

/** The folder of this process's own group of cgroup v2. */
function ownGroup() {
  const mount = fs.readFileSync('/proc/self/mountinfo', 'latin1').match(/^\S+ \S+ \S+ \S+ (\S+) .* - cgroup2 /m)?.[1];
  const group = fs.readFileSync('/proc/self/cgroup', 'latin1').match(/^0::(.*)$/m)?.[1];
  return mount && group && path.join(mount, group);
}

/** Why there can be no such machine here; undefined when there can. */
export function whyNoMachine() {
  if (process.getuid() !== 0) return 'only root can boot a machine';
  if (!fs.existsSync(SYSTEMD)) return 'there is no systemd';
  const group = ownGroup();
  if (!group) return 'there is no cgroup v2';
  const probe = path.join(group, `sandgate-probe-${process.pid}`);
  try {
    fs.mkdirSync(probe);
    fs.rmdirSync(probe);
  } catch (e) {
    return `no control group can be made: ${e.code}`;
  }
  return undefined;
}

const running = new Set();
process.on('exit', () => running.forEach((m) => m.killAll()));

/** settings: of the gateway; units: more unit files and drop-ins, by their names. */
export async function startMachine({ settings = {}, units = {} } = {}) {
  const machine = new Machine();
  running.add(machine);
  try {
    machine.install(settings, units);
    await machine.boot();
  } catch (e) {
    e.message += `\n${machine.logs()}`;
    await machine.stop().catch(() => {});
    throw e;
  }
  return machine;
}

class Machine {
  #console = '';
  #token;

  constructor() {
    this.dir = tempFolder('sandgate-machine-');
    this.group = path.join(ownGroup(), path.basename(this.dir));
  }

  /** Everything below PREFIX, by hand: what is tested here are the units. */
  install(settings, units) {
    const put = (name, text, mode = 0o644) => {
      const file = path.join(this.dir, name);
      fs.mkdirSync(path.dirname(file), { recursive: true });
      fs.writeFileSync(file, text, { mode });
    };
    const copy = (from, to) => put(to, fs.readFileSync(from), fs.statSync(from).mode & 0o777);
    for (const name of ['sandgate', 'sandgatectl', 'sandgate-cleanup', 'sandgate-engine']) copy(path.join(BUILD, name), `bin/${name}`);
    for (const name of ['sandgate-agent', 'sandgate-zygote.so']) copy(path.join(BUILD, name), `libexec/sandgate/${name}`);
    const made = makeUnits(path.join(this.dir, 'made'));
    for (const name of fs.readdirSync(made)) {
      const folder = name.match(/^(sysusers|tmpfiles)\.conf$/)?.[1];
      copy(path.join(made, name), folder ? `lib/${folder}.d/sandgate.conf` : `lib/systemd/system/${name}`);
    }
    for (const name of TARGETS) copy(`/lib/systemd/system/${name}.target`, `units/${name}.target`);
    // Without a journal every service has a file; ptrace, with which sanitizers look for leaks, is closed to services.
    const drop = '[Service]\nStandardOutput=append:/run/%p.log\nStandardError=append:/run/%p.log\nEnvironment=ASAN_OPTIONS=detect_leaks=0\n';
    for (const name of ['sandgate', 'sandgate-cleanup', 'sandgate-engine', 'site']) put(`units/${name}.service.d/log.conf`, drop);
    // Of a unit that nothing refers to, systemd forgets how it ended.
    const wanted = 'Wants=sockets.target sandgate-engine.service site.service\nAfter=sockets.target sandgate-cleanup.service\n';
    put('units/machine.target', `[Unit]\n${wanted}`);
    put('units/sockets.target.d/sandgate.conf', '[Unit]\nWants=sandgate-quick.socket sandgate-exec.socket\n');
    for (const [name, text] of Object.entries(units)) put(`units/${name}`, text);
    this.installSite(put, copy);
    // One of the engine's addresses is a name, so that looking it up is tried, too.
    const all = { E2B_API_KEY_FILE: '/etc/sandgate/e2b-key', E2B_API_URL: 'http://localhost:3000', E2B_SANDBOX_URL: 'http://127.0.0.1:3000' };
    put('etc/sandgate/sandgate.conf', settingsText({ ...all, ...settings }));
    for (const name of ['e2b-key', 'engine-keys']) put(`etc/sandgate/${name}`, `${KEY}\n`, 0o600);
  }

  /** nginx, as the user whose group the sockets are for. */
  installSite(put, copy) {
    const conf = fs.readFileSync(path.join(TOP, 'nginx/dev.conf.in'), 'utf8');
    const words = { PORT: 80, STATE: '/run/sandgate', RESOLVER: '127.0.0.1:9', CA_FILE: '/etc/ssl/certs/ca-certificates.crt' };
    // Its standard output is a file that only root may open again.
    put('site/nginx.conf', conf.replace(/@(\w+)@/g, (_, word) => words[word]).replaceAll('/dev/stdout', '/dev/null'));
    for (const name of fs.readdirSync(path.join(TOP, 'nginx'))) copy(path.join(TOP, 'nginx', name), `site/sandgate/${name}`);
    put(
      'units/site.service',
      `[Service]
ExecStart=nginx -e stderr -p /run/site -c /usr/local/site/nginx.conf
User=www-data
AmbientCapabilities=CAP_NET_BIND_SERVICE
RuntimeDirectory=site
`,
    );
  }

  async boot() {
    fs.mkdirSync(this.group);
    const script = path.join(TOP, 'tests/e2e/machine.sh');
    // `script` is the terminal that systemd's log is written to.
    this.child = spawn('script', ['-qfec', `exec ${script} ${this.dir} ${this.group}`, '/dev/null'], { stdio: ['ignore', 'pipe', 'ignore'] });
    this.child.stdout.setEncoding('utf8').on('data', (d) => (this.#console = (this.#console + d).slice(-1_000_000)));
    this.exited = new Promise((resolve) => this.child.on('exit', resolve).on('error', resolve));
    this.exited.then(() => (this.end = true));
    const ready = () => this.systemctl('is-system-running').then(({ stdout }) => /running|degraded/.test(stdout), () => false);
    await until(async () => this.end || (await ready()), { deadline: 60_000, what: 'systemd' });
    if (this.end) throw new Error('the machine ended');
  }

  /** The first process of the machine, as it is known outside. */
  get init() {
    const outer = fs.readFileSync(path.join(this.dir, 'pid'), 'latin1').trim();
    const pid = parseInt(fs.readFileSync(`/proc/${outer}/task/${outer}/children`, 'latin1'), 10);
    if (!pid) throw new Error('the machine does not run');
    return pid;
  }

  // -------------------------------------------------------------------------------------------------------------- inside

  async run(...argv) {
    return run('nsenter', ['-t', String(this.init), '-m', '-p', '-u', '-n', '-i', '-C', '--', ...argv], { timeout: 60_000, env: { PATH: process.env.PATH } });
  }

  systemctl(...args) {
    return this.run('systemctl', '--no-pager', ...args);
  }

  /** Properties of a unit. */
  async show(unit) {
    const { stdout } = await this.systemctl('show', unit);
    return Object.fromEntries(stdout.split('\n').map((l) => [l.slice(0, l.indexOf('=')), l.slice(l.indexOf('=') + 1)]));
  }

  read(file) {
    return fs.readFileSync(`/proc/${this.init}/root${file}`, 'utf8');
  }

  stat(file) {
    return fs.statSync(`/proc/${this.init}/root${file}`);
  }

  async signal(pid, signal) {
    if (!(Number(pid) > 1)) throw new Error(`no process to signal: ${pid}`); // 0 would be this test
    await this.run('kill', '-s', signal, String(pid));
  }

  /** Of the user alice. */
  async token() {
    this.#token ??= (await this.run('sandgatectl', '-c', CONFIG, 'token', 'create', '--user', 'alice')).stdout.trim();
    return this.#token;
  }

  /** A call through nginx, by curl: { status, text, json }. */
  async call(method, target, { token, json, form, deadline = 60_000 } = {}) {
    const bearer = token === undefined ? await this.token() : token;
    const args = ['-sS', '-m', String(deadline / 1000), '-X', method, '-w', '\n%{http_code}', `http://127.0.0.1${target}`];
    if (bearer) args.push('-H', `Authorization: Bearer ${bearer}`);
    if (json !== undefined) args.push('-d', JSON.stringify(json));
    if (form !== undefined) args.push('-F', form);
    const { stdout } = await this.run('curl', ...args);
    const cut = stdout.lastIndexOf('\n');
    const text = stdout.slice(0, cut);
    return { status: Number(stdout.slice(cut + 1)), text, get json() { return JSON.parse(text); } };
  }

  /** All that could tell why something went wrong. */
  logs() {
    const file = (name) => {
      try {
        return `--- ${name}\n${this.read(`/run/${name}.log`).slice(-4000)}`;
      } catch {
        return '';
      }
    };
    return [this.#console.slice(-4000), ...['sandgate', 'sandgate-engine', 'sandgate-cleanup', 'site'].map(file)].join('\n');
  }

  // -------------------------------------------------------------------------------------------------------------- ending

  killAll() {
    this.child?.kill('SIGKILL');
    if (fs.existsSync(this.group)) fs.writeFileSync(path.join(this.group, 'cgroup.kill'), '1');
  }

  async stop() {
    if (!running.delete(this)) return;
    this.killAll();
    if (this.child) await within(20_000, this.exited, 'the end of the machine');
    await until(() => removeGroups(this.group), { deadline: 20_000, what: 'the end of all processes' });
    fs.rmSync(this.dir, { recursive: true, force: true });
  }
}

/** A group can be removed when its processes are gone, and those below it. */
function removeGroups(dir) {
  if (!fs.existsSync(dir)) return true;
  for (const entry of fs.readdirSync(dir, { withFileTypes: true })) if (entry.isDirectory()) removeGroups(path.join(dir, entry.name));
  try {
    fs.rmdirSync(dir);
    return true;
  } catch {
    return false;
  }
}
