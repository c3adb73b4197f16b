// The harness of the real site's configuration: nginx/sandgate.conf as its comments tell an operator to install it, with TLS, HTTP/2,
// a certificate authority of its own, a name server that nginx can ask, and TLS before the engine. All of it on the loopback.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import dgram from 'node:dgram';
import fs from 'node:fs';
import http2 from 'node:http2';
import https from 'node:https';
import net from 'node:net';
import path from 'node:path';
import tls from 'node:tls';
import { promisify } from 'node:util';
import { BUILD, sleep, startEngine, tempFolder, until, within } from './engine.mjs';
import { Child, NGINX, TOP, freePort, operations, startGateway } from './gateway.mjs';
import { startProxy } from './proxy.mjs';

export const run = promisify(execFile);
export const NAME = 'sandgate.test';

const running = new Set(); // children; nginx ends its own when it is told so
process.on('exit', () => running.forEach((child) => child.process.kill('SIGTERM')));

// ---------------------------------------------------------------------------------------------------------------- certificates

const NEW_KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

/** Certificates and keys of a test, as NAME.pem and NAME.key in one folder. */
class Certificates {
  constructor(dir) {
    this.dir = dir;
    fs.mkdirSync(dir);
  }

  file(name) {
    return path.join(this.dir, `${name}.pem`);
  }

  keyFile(name) {
    return path.join(this.dir, `${name}.key`);
  }

  /** { cert, key } as node's TLS takes them. */
  pair(name) {
    return { cert: fs.readFileSync(this.file(name)), key: fs.readFileSync(this.keyFile(name)) };
  }

  async authority(name) {
    await run('openssl', ['req', '-x509', ...NEW_KEY, '-keyout', this.keyFile(name), '-out', this.file(name), '-subj', `/CN=${name}`, '-days', '2']);
  }

  /** names: of DNS. days: -1 makes one that has ended. */
  async issue(name, { by = 'ca', subject = `/CN=${name}`, names = [], days = 2 } = {}) {
    const request = path.join(this.dir, `${name}.csr`);
    const alternative = names.length ? ['-addext', `subjectAltName=${names.map((n) => `DNS:${n}`)}`] : [];
    await run('openssl', ['req', '-new', ...NEW_KEY, '-keyout', this.keyFile(name), '-out', request, '-subj', subject, ...alternative]);
    const signer = ['-CA', this.file(by), '-CAkey', this.keyFile(by), '-set_serial', `0x${randomBytes(8).toString('hex')}`];
    await run('openssl', ['x509', '-req', '-in', request, ...signer, '-copy_extensions', 'copy', '-days', String(days), '-out', this.file(name)]);
  }
}

async function makeCertificates(dir) {
  const c = new Certificates(dir);
  const provider = ['api.localhost', 'sandbox.localhost'];
  await Promise.all(['ca', 'other-ca', 'clients-ca'].map((name) => c.authority(name)));
  await Promise.all([
    c.issue('site', { names: [NAME] }),
    c.issue('provider', { names: provider }),
    c.issue('other-name', { names: ['other.localhost', 'localhost'] }),
    c.issue('wrong-signer', { names: provider, by: 'other-ca' }),
    c.issue('expired', { names: provider, days: -1 }),
    c.issue('alice', { by: 'clients-ca' }),
    c.issue('bob', { by: 'clients-ca' }),
    c.issue('stranger', { by: 'other-ca', subject: '/CN=alice' }),
    c.issue('liar', { by: 'clients-ca', subject: '/CN=mallory/O=x,CN=alice' }),
    c.issue('nameless', { by: 'clients-ca', subject: '/O=CN=alice' }),
  ]);
  return c;
}

// ---------------------------------------------------------------------------------------------------------------- names

/** A name server that gives one address to every name below `localhost`. Counts nothing but the names that were asked for. */
export async function startNames(address) {
  const asked = new Set();
  const socket = dgram.createSocket('udp4');
  socket.on('message', (query, from) => {
    const labels = [];
    let at = 12;
    for (; query[at]; at += query[at] + 1) labels.push(query.toString('latin1', at + 1, at + 1 + query[at]));
    const question = query.subarray(12, at + 5);
    const known = labels.at(-1) === 'localhost';
    const isA = query.readUInt16BE(at + 1) === 1;
    asked.add(labels.join('.'));
    const head = Buffer.from([query[0], query[1], 0x81, known ? 0x80 : 0x83, 0, 1, 0, known && isA ? 1 : 0, 0, 0, 0, 0]);
    const record = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, ...address.split('.').map(Number)]);
    socket.send(Buffer.concat([head, question, ...(known && isA ? [record] : [])]), from.port, from.address);
  });
  await new Promise((resolve, reject) => socket.on('error', reject).bind(0, '127.0.0.1', resolve));
  return { asked, address: `127.0.0.1:${socket.address().port}`, close: () => new Promise((resolve) => socket.close(resolve)) };
}

// ---------------------------------------------------------------------------------------------------------------- the provider

/** TLS before a plain server; which certificate it shows can be changed. `names` are the server names that clients asked for. */
class Front {
  #sockets = new Set();

  constructor(certificates, proxy) {
    Object.assign(this, { certificates, proxy, names: new Set() });
    this.server = tls.createServer(certificates.pair('provider'), (client) => this.#join(client));
    this.server.on('tlsClientError', () => {});
  }

  #join(client) {
    this.names.add(client.servername);
    const behind = net.connect(new URL(this.proxy.url).port, '127.0.0.1');
    for (const [one, other] of [
      [client, behind],
      [behind, client],
    ]) {
      this.#sockets.add(one);
      one.on('error', () => {}).on('close', () => (this.#sockets.delete(one), other.destroy()));
    }
    client.pipe(behind).pipe(client);
  }

  listen(port, address) {
    return new Promise((resolve, reject) => this.server.on('error', reject).listen(port, address, () => resolve(this.server.address().port)));
  }

  /** From now on this certificate, to everybody: kept connections are cut. */
  show(name) {
    this.server.setSecureContext(this.certificates.pair(name));
    for (const socket of this.#sockets) socket.destroy();
  }

  async close() {
    const closed = new Promise((resolve) => this.server.close(resolve));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
    await this.proxy.close();
  }
}

const FOR_NGINX = '127.0.0.3'; // what the name server says; libcurl finds 127.0.0.1 below `localhost` by itself

/**
 * The engine behind TLS, as api.localhost and sandbox.localhost. The gateway and nginx come to two fronts of it at the same port, so
 * that each can be shown another certificate: .front is the gateway's, .files nginx's; each has .proxy.requests.
 */
async function startProvider(engine, certificates) {
  for (let tries = 0; ; tries++) {
    const [front, files] = await Promise.all([0, 1].map(async () => new Front(certificates, await startProxy(engine.url))));
    try {
      const port = await front.listen(0, '127.0.0.1');
      await files.listen(port, FOR_NGINX);
      return { front, files, port, api: `https://api.localhost:${port}`, sandbox: `https://sandbox.localhost:${port}` };
    } catch (e) {
      await Promise.all([front, files].map((f) => f.close().catch(() => {})));
      if (tries === 3) throw e;
    }
  }
}

// ---------------------------------------------------------------------------------------------------------------- all of it

/**
 * Engine, TLS before it, gateway, name server. Sites are started with .site().
 * programs, nginx: the folders of both; sample: see startGateway.
 */
export async function startWorld({ settings = {}, programs = BUILD, nginx = path.join(TOP, 'nginx'), sample } = {}) {
  const world = new World(programs, nginx);
  try {
    await world.start(settings, sample);
  } catch (e) {
    await world.stop().catch(() => {});
    throw e;
  }
  return world;
}

class World {
  constructor(programs, nginx) {
    Object.assign(this, { programs, nginx, dir: tempFolder('sandgate-site-'), sites: [] });
  }

  async start(settings, sample) {
    const engine = startEngine({ command: path.join(this.programs, 'sandgate-engine') });
    [this.certificates, this.engine] = await Promise.all([makeCertificates(path.join(this.dir, 'tls')), engine]);
    this.names = await startNames(FOR_NGINX);
    this.provider = await startProvider(this.engine, this.certificates);
    this.g = await startGateway({
      engine: this.engine,
      programs: this.programs,
      sample,
      settings: {
        E2B_API_URL: this.provider.api,
        E2B_SANDBOX_URL: this.provider.sandbox,
        SANDGATE_CA_FILE: this.certificates.file('ca'),
        SANDGATE_LOG_LEVEL: 'debug',
        ...settings,
      },
    });
  }

  /** options: see Site. */
  async site(options) {
    const site = new Site(this, path.join(this.dir, `site-${this.sites.length}`), options);
    this.sites.push(site);
    await site.start();
    return site;
  }

  /** A site that is only written, for `nginx -t`. */
  async written(options) {
    const site = new Site(this, path.join(this.dir, `written-${randomBytes(4).toString('hex')}`), options);
    await site.write();
    return site;
  }

  /** Each is ended, whatever the others say. */
  async stop() {
    const ends = [...this.sites, this.g, this.provider?.front, this.provider?.files, this.names, this.engine].filter(Boolean);
    const problems = [];
    for (const part of ends) await (part.stop ?? part.close).call(part).catch((e) => problems.push(e));
    fs.rmSync(this.dir, { recursive: true, force: true });
    if (problems.length) throw problems[0];
  }
}

/** Replaces a text that must be there, so often. */
export function fill(text, from, to, times = 1) {
  assert.equal(text.split(from).length - 1, times, `"${from}" stands in the configuration`);
  return text.replaceAll(from, to);
}

/** http{} of Debian's own nginx.conf; what it says must not reach through to Sandgate. */
function mainFile(dir) {
  const types = '/etc/nginx/mime.types';
  return `${process.getuid() === 0 ? 'user root;\n' : ''}daemon off;
worker_processes 2;
pid ${dir}/nginx.pid;
error_log stderr warn;
events {
  worker_connections 1024;
}
http {
  ${['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((name) => `${name}_temp_path ${dir}/${name};`).join('\n  ')}
  sendfile on;
  tcp_nopush on;
  types_hash_max_size 2048;
  ${fs.existsSync(types) ? `include ${types};` : ''}
  default_type application/octet-stream;
  ssl_protocols TLSv1 TLSv1.1 TLSv1.2 TLSv1.3;
  ssl_prefer_server_ciphers on;
  access_log ${dir}/other.log;
  gzip on;
  include ${dir}/etc/conf.d/*.conf;
}
`;
}

const OTHER_ADDRESS = '127.0.0.2'; // in place of the wildcard of IPv6, which not every machine has

async function sendSlowly(stream, body, pieces) {
  const size = Math.ceil(body.length / pieces);
  for (let at = 0; at < body.length; at += size) {
    stream.write(body.subarray(at, at + size));
    await sleep(20);
  }
  stream.end();
}

/**
 * nginx with nginx/sandgate.conf.
 *   auth      token, basic, mtls or oauth2-proxy
 *   trusted   the certificates that it believes when it downloads
 *   resolver  its name server
 *   edit      { 'cors.conf': (text) => text, ... }: what else an operator changes
 */
class Site {
  #sessions = new Map();

  constructor(world, dir, { auth = 'token', trusted = 'ca', resolver = world.names.address, edit = {} } = {}) {
    Object.assign(this, { world, dir, auth, trusted, resolver, edit });
    this.accessLog = path.join(dir, 'access.log');
    this.cache = path.join(dir, 'auth-cache');
    this.etc = path.join(dir, 'etc');
  }

  // -------------------------------------------------------------------------------------------------------------- up and down

  /** As the comment in sandgate.conf says: links in sandgate/ to all files but those that are changed, sandgate.conf itself in conf.d/. */
  async write() {
    const snippets = path.join(this.etc, 'sandgate');
    const { certificates, g, nginx } = this.world;
    for (const folder of [snippets, path.join(this.etc, 'conf.d')]) fs.mkdirSync(folder, { recursive: true });
    for (const name of fs.readdirSync(nginx).filter((n) => /\.(conf|map)$/.test(n))) {
      const to = path.join(snippets, name);
      fs.rmSync(to, { force: true });
      if (this.edit[name]) fs.writeFileSync(to, this.edit[name](fs.readFileSync(path.join(nginx, name), 'utf8')));
      else fs.symlinkSync(path.join(nginx, name), to);
    }
    [this.plainPort, this.port] = [await freePort(), await freePort()];
    let text = fs.readFileSync(path.join(snippets, 'sandgate.conf'), 'utf8');
    text = fill(text, 'listen 80;', `listen 127.0.0.1:${this.plainPort};`);
    text = fill(text, 'listen [::]:80;', `listen ${OTHER_ADDRESS}:${this.plainPort};`);
    text = fill(text, 'listen 443 ', `listen 127.0.0.1:${this.port} `);
    text = fill(text, 'listen [::]:443 ', `listen ${OTHER_ADDRESS}:${this.port} `);
    text = fill(text, 'server_name sandgate.example.org;', `server_name ${NAME};`, 2);
    text = fill(text, '/etc/ssl/certs/sandgate.pem', certificates.file('site'));
    text = fill(text, '/etc/ssl/private/sandgate.key', certificates.keyFile('site'));
    text = fill(text, '/etc/ssl/certs/ca-certificates.crt', certificates.file(this.trusted));
    text = fill(text, 'resolver 127.0.0.53 ', `resolver ${this.resolver} `);
    text = fill(text, 'unix:/run/sandgate/', `unix:${g.state}/`, 2);
    text = fill(text, '/run/sandgate-auth-cache', this.cache);
    text = fill(text, '/var/log/nginx/sandgate.log', this.accessLog, 2);
    text = fill(text, 'include sandgate/auth-token.conf;', `include sandgate/auth-${this.auth}.conf;`);
    assert.equal(text.split('# SITE').length - 1, 6, 'a line for the operator that this does not know');
    fs.writeFileSync(path.join(this.etc, 'conf.d/sandgate.conf'), text);
    fs.writeFileSync(path.join(this.etc, 'nginx.conf'), mainFile(this.dir));
    this.authority = `${NAME}:${this.port}`;
    this.origin = `https://${this.authority}`;
  }

  get command() {
    return [NGINX, ['-p', this.dir, '-c', path.join(this.etc, 'nginx.conf'), '-e', 'stderr']];
  }

  async start() {
    for (let tries = 0; ; tries++) {
      await this.write();
      this.nginx = new Child(...this.command);
      running.add(this.nginx);
      const answers = () => this.call('GET', '/healthz', { token: null, version: 1 }).then(() => true, () => false);
      if ((await until(async () => this.nginx.end ?? (await answers()), { deadline: 30_000, what: 'nginx' })) === true) return;
      if (tries === 3) throw new Error(`nginx does not start\n${this.nginx.text}`);
    }
  }

  async stop() {
    for (const session of this.#sessions.values()) session.destroy();
    if (!running.delete(this.nginx)) return;
    assert.deepEqual(await this.nginx.stop('SIGTERM'), { code: 0, signal: null }, this.nginx.text.slice(-4000));
    assert.doesNotMatch(this.nginx.text, /\[(alert|emerg)\]/);
  }

  // -------------------------------------------------------------------------------------------------------------- calling

  /** What a client needs to reach it, and to believe it. as: the name of a client's certificate; from: its address. */
  connection({ as, from = '127.0.0.1' } = {}) {
    const { certificates } = this.world;
    const ca = fs.readFileSync(certificates.file('ca'));
    return { host: '127.0.0.1', port: this.port, servername: NAME, localAddress: from, ca, ...(as && certificates.pair(as)) };
  }

  /** One kept HTTP/2 connection for each kind of client; nginx ends one after a thousand calls. */
  #session(client) {
    const key = JSON.stringify(client);
    const old = this.#sessions.get(key);
    if (old && !old.closed && !old.destroyed) return old;
    const createConnection = () => tls.connect({ ...this.connection(client), ALPNProtocols: ['h2'] });
    const session = http2.connect(this.origin, { createConnection, maxSessionMemory: 256 }); // MiB: bodies wait there
    session.on('error', () => {}); // its streams have it, too
    session.on('connect', () => session.setLocalWindowSize(8 << 20)); // as browsers do: else one stream that is not read stops all
    this.#sessions.set(key, session);
    return session;
  }

  #open2(method, target, headers, client) {
    const fields = { ':method': method, ':path': target, ':authority': this.authority, ...headers };
    const stream = this.#session(client).request(fields, { endStream: false });
    return [stream, new Promise((resolve, reject) => stream.on('error', reject).on('response', (h) => resolve([h[':status'], h, stream])))];
  }

  #open1(method, target, headers, client) {
    const req = https.request({ ...this.connection(client), method, path: target, agent: false, headers: { host: this.authority, ...headers } });
    return [req, new Promise((resolve, reject) => req.on('error', reject).on('response', (res) => resolve([res.statusCode, res.headers, res])))];
  }

  /** What was sent, and the promise of [status, headers, stream] for it. */
  async #send(method, target, { token, who, headers: more, json, body, pieces, version = 2, as, from } = {}) {
    if (json !== undefined) body = JSON.stringify(json);
    const bearer = token === undefined && this.auth === 'token' ? await this.world.g.token() : token;
    const headers = {
      ...(bearer && { authorization: `Bearer ${bearer}` }),
      ...(json !== undefined && { 'content-type': 'application/json' }),
      ...(body !== undefined && !pieces && { 'content-length': Buffer.byteLength(body) }),
      ...who,
      ...more,
    };
    const [sent, answer] = (version === 2 ? this.#open2 : this.#open1).call(this, method, target, headers, { as, from });
    if (pieces) await sendSlowly(sent, body, pieces);
    else sent.end(body);
    return [sent, answer];
  }

  /** A call over HTTP/2 or, with version 1, HTTP/1.1. pieces: in how many the body is sent, without saying its length. token: null sends none; who: other headers that say who; as, from: see connection(). */
  async call(method, target, { deadline = 30_000, ...options } = {}) {
    const [sent, answer] = await this.#send(method, target, options);
    const whole = answer.then(async ([status, fields, stream]) => [status, fields, Buffer.concat(await stream.toArray())]);
    try {
      const [status, fields, bytes] = await within(deadline, whole, `${method} ${target}`);
      const text = bytes.toString();
      return { status, headers: fields, body: bytes, text, get json() { return JSON.parse(text); } };
    } finally {
      sent.destroy();
    }
  }

  /** The same, with the answer's head as soon as it is there; its body is to be read, or left with drop(). */
  async open(method, target, { deadline = 30_000, ...options } = {}) {
    const [sent, answer] = await this.#send(method, target, options);
    const [status, headers, stream] = await within(deadline, answer, `${method} ${target}`);
    stream.on('error', () => {}); // whoever reads the body gets it from the iterator
    return Object.assign(stream, { status, headers, drop: () => (sent.close ? sent.close(http2.constants.NGHTTP2_CANCEL) : sent.destroy()) });
  }

  /** Breaks the kept connections, and with them all that goes on over them. */
  cut() {
    for (const session of this.#sessions.values()) session.destroy();
  }

  /** A call of which only the head is sent, over HTTP/2: it waits for its body until drop(). */
  begin(method, target, { headers, from } = {}) {
    const [stream, answer] = this.#open2(method, target, headers, { from });
    return { status: answer.then(([status]) => status), drop: () => stream.close(http2.constants.NGHTTP2_CANCEL) };
  }

  session(id, options) {
    return operations(this, id, options);
  }

  /** The lines of the access log as objects. */
  log() {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(fs.readFileSync(this.accessLog));
    return text.split('\n').filter(Boolean).map((line) => JSON.parse(line));
  }
}
