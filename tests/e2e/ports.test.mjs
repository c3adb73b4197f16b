// Ports inside: any server in a sandbox, reached by host name or by headers, as through E2B's edge. What listens there is untrusted.
import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import http from 'node:http';
import net from 'node:net';
import { after, before, describe, test } from 'node:test';
import { SUITE, assertError, open, raw, rawStatus, request, startEngine, until, within } from './engine.mjs';

const MiB = 1 << 20;
const NOT_OPEN = 'The sandbox is running but port is not open';

// One server inside for all tests. What a request is answered with is in its path; what it did is in its log.
const SERVER = String.raw`
import http.server, json, socket, socketserver, sys, threading, time, hashlib, base64, os

LOG = "/tmp/server.log"
def log(*words):
    with open(LOG, "a") as f: f.write(" ".join(map(str, words)) + "\n")

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass

    def body(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            while True:
                n = int(self.rfile.readline(), 16)
                piece = self.rfile.read(n)
                self.rfile.readline()
                if not n: return
                yield piece
        left = int(self.headers.get("Content-Length") or 0)
        while left:
            piece = self.rfile.read(min(left, 65536))
            if not piece: return
            left -= len(piece)
            yield piece

    def send(self, status, body, *fields):
        self.send_response(status)
        for name, value in fields: self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD": self.wfile.write(body)

    def answer(self):
        path = self.path.split("?")[0]
        if path == "/echo":
            digest, n = hashlib.sha256(), 0
            for piece in self.body(): digest.update(piece); n += len(piece)
            seen = {"method": self.command, "target": self.path, "headers": self.headers.items(), "sha256": digest.hexdigest(), "n": n}
            self.send(200, json.dumps(seen).encode(), ("Content-Type", "application/json"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("X-Empty", ""), ("Connection", "X-Private"), ("X-Private", "1"))
        elif path == "/status":
            status = int(self.path.split("?")[1])
            if status in (204, 304):
                self.send_response(status); self.send_header("ETag", "x"); self.end_headers()
            else: self.send(status, b"status", ("X-Status", str(status)))
        elif path == "/until-close":
            self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\nuntil the end")
            self.close_connection = True
        elif path == "/events":
            self.send_response(200); self.send_header("Content-Type", "text/event-stream"); self.send_header("Transfer-Encoding", "chunked"); self.end_headers()
            try:
                for i in range(100000):
                    if os.path.exists("/tmp/events.stop"): break
                    data = f"data: {i}\n\n".encode()
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                    time.sleep(0.05)
                self.wfile.write(b"0\r\n\r\n")
            except OSError as e: log("events ended", type(e).__name__)
        elif path == "/large":
            n = int(self.path.split("?")[1])
            self.send_response(200); self.send_header("Content-Length", str(n)); self.end_headers()
            block = bytes(range(256)) * 256
            try:
                while n:
                    n -= self.connection.send(block[:min(n, len(block))])
            except OSError as e: log("large ended", type(e).__name__)
        elif path == "/early":
            self.send(413, b"too much", ("Connection", "close"))
            self.close_connection = True
        elif path == "/wait":
            log("waiting"); self.connection.settimeout(60)
            try: log("wait ended", self.connection.recv(1))
            except OSError as e: log("wait ended", type(e).__name__)
            self.close_connection = True
        elif path == "/raw":
            self.wfile.write(base64.urlsafe_b64decode(self.path.split("?")[1]))
            self.close_connection = True
        elif path == "/huge-head":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ");
            try:
                for i in range(256): self.wfile.write(b"x" * 65536)
            except OSError as e: log("huge ended", type(e).__name__)
            self.close_connection = True
        elif path == "/fields":
            self.send(200, b"", *((f"X-{i}", "v" * 50) for i in range(int(self.path.split("?")[1]))))
        elif path == "/websocket": self.websocket()
        else: self.send(404, b"no such path")

    def websocket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        head = f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: {self.headers['Upgrade']}\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        # The greeting comes in one piece with the head.
        self.connection.sendall(head.encode() + self.frame(b"hello"))
        while True:
            head = self.rfile.read(2)
            if len(head) < 2: break
            op, n = head[0] & 15, head[1] & 127
            if n == 126: n = int.from_bytes(self.rfile.read(2), "big")
            elif n == 127: n = int.from_bytes(self.rfile.read(8), "big")
            mask = self.rfile.read(4)
            data = self.rfile.read(n)
            plain = (int.from_bytes(data, "big") ^ int.from_bytes((mask * (n // 4 + 1))[:n], "big")).to_bytes(n, "big")
            if op == 8: break
            if plain == b"bye": break
            self.connection.sendall(self.frame(plain))
        log("websocket ended")
        self.close_connection = True

    def frame(self, data):
        n = len(data)
        size = bytes([n]) if n < 126 else b"\x7e" + n.to_bytes(2, "big") if n < 65536 else b"\x7f" + n.to_bytes(8, "big")
        return b"\x82" + size + data

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_HEAD = do_PROPFIND = answer

class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 512

class Six(Server):
    address_family = socket.AF_INET6

threading.Thread(target=Six(("::1", 8006), Handler).serve_forever, daemon=True).start()
full = socket.socket(); full.bind(("127.0.0.1", 8007)); full.listen(0)  # nobody accepts
server = Server(("127.0.0.1", 8000), Handler)
open("/tmp/server.up", "w").close()
server.serve_forever()
`;

let engine;
let sandbox;

async function serve(box) {
  await box.files.write('/home/user/server.py', SERVER);
  await box.commands.run('exec python3 server.py 2>/tmp/server.err', { background: true, timeoutMs: 0 });
  await until(() => box.files.exists('/tmp/server.up'), { what: 'the server inside', deadline: 30_000 });
}

const host = (port, box = sandbox) => `${port}-${box.sandboxId}.sandgate.test`;
/** A request by host name, as a browser would send it. */
const ask = (method, target, { headers, box = sandbox, port = 8000, ...rest } = {}) =>
  request(engine.url + target, { method, headers: { host: host(port, box), ...headers }, ...rest });
const begin = (method, target, { headers, box = sandbox, port = 8000, ...rest } = {}) =>
  open(engine.url + target, { method, headers: { host: host(port, box), ...headers }, ...rest });
const seen = (res) => Object.fromEntries(res.json.headers.map(([name, value]) => [name.toLowerCase(), value]));
const logged = (line, box = sandbox) =>
  until(async () => (await box.files.read('/tmp/server.log').catch(() => '')).includes(line), { what: `"${line}" in the log of the server` });
const rawAnswer = (text) => `/raw?${Buffer.from(text, 'latin1').toString('base64url')}`;

/** Every connection of the engine to this port inside, as /proc/net/tcp of the sandbox shows them. */
async function connections(port, box = sandbox) {
  const { stdout } = await box.commands.run(`cat /proc/net/tcp`);
  const hex = port.toString(16).toUpperCase().padStart(4, '0');
  return stdout.split('\n').filter((l) => l.includes(`0100007F:${hex} `) && /:[0-9A-F]{4} 01 /.test(l)).length;
}

async function* blocks(n, size = 64 << 10) {
  const block = Buffer.alloc(size, 'abcdefgh');
  for (let left = n; left > 0; left -= size) yield left >= size ? block : block.subarray(0, left);
}

/** A WebSocket client of few lines: the handshake, then whole messages. */
async function websocket(target, { headers = {}, port = 8000, box = sandbox } = {}) {
  const key = crypto.randomBytes(16).toString('base64');
  const req = http.request(engine.url + target, {
    agent: false,
    headers: { host: host(port, box), connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': '13', 'sec-websocket-key': key, ...headers },
  });
  req.end();
  const [res, socket, head] = await within(
    15_000,
    new Promise((resolve, reject) => {
      req.on('upgrade', (...all) => resolve(all));
      req.on('response', (r) => reject(new Error(`no upgrade: ${r.statusCode}`)));
      req.on('error', reject);
    }),
    'the handshake',
  );
  const accept = crypto.createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64');
  assert.equal(res.headers['sec-websocket-accept'], accept);
  socket.unshift(head);
  let buffer = Buffer.alloc(0);
  const waiting = [];
  const ended = new Promise((resolve) => socket.on('error', () => {}).on('close', resolve));
  const take = () => {
    while (waiting.length) {
      if (buffer.length < 2) return;
      let n = buffer[1] & 127;
      let at = 2;
      if (n === 126 && buffer.length >= 4) [n, at] = [buffer.readUInt16BE(2), 4];
      else if (n === 127 && buffer.length >= 10) [n, at] = [Number(buffer.readBigUInt64BE(2)), 10];
      else if (n >= 126) return;
      if (buffer.length < at + n) return;
      waiting.shift()(buffer.subarray(at, at + n));
      buffer = buffer.subarray(at + n);
    }
  };
  const chunks = [];
  socket.on('data', (d) => {
    chunks.push(d);
    if (chunks.length > 64 || waiting.length) {
      buffer = Buffer.concat([buffer, ...chunks.splice(0)]);
      take();
    }
  });
  return {
    socket,
    ended,
    send(data) {
      const plain = Buffer.from(data);
      const size = Buffer.alloc(10);
      size[0] = 0xff;
      size.writeBigUInt64BE(BigInt(plain.length), 2);
      const frame = Buffer.concat([Buffer.from([0x82]), size.subarray(0, 1), size.subarray(2), Buffer.alloc(4), plain]);
      socket.write(frame);
    },
    next() {
      const message = new Promise((resolve) => waiting.push(resolve));
      buffer = Buffer.concat([buffer, ...chunks.splice(0)]);
      take();
      return within(30_000, message, 'a message');
    },
  };
}

describe('ports inside', SUITE, () => {
  before(async () => {
    engine = await startEngine({ args: ['--pool', '0'] });
    sandbox = await engine.create('base');
    await serve(sandbox);
  });
  after(() => engine?.stop());

  // ------------------------------------------------------------------------------------------------------------ ways in

  test('by the host name of getHost and by headers', async () => {
    const name = new URL(`http://${sandbox.getHost(8000)}`).hostname.replace(/\.e2b\.app$/, '.sandgate.test');
    assert.equal(name, host(8000));
    for (const [way, res] of Object.entries({
      host: await ask('GET', '/echo?a=b&c=%2F%00'),
      headers: await request(`${engine.url}/echo?a=b&c=%2F%00`, {
        headers: { 'e2b-sandbox-id': sandbox.sandboxId, 'e2b-sandbox-port': '8000' },
      }),
    })) {
      assert.equal(res.status, 200, `${way}: ${res.text}`);
      assert.equal(res.json.target, '/echo?a=b&c=%2F%00', way);
      assert.equal(res.headers['content-type'], 'application/json');
    }
    for (const target of ['/echo', '/echo?', '/echo??', '//echo/../x%20y'])
      assert.match(
        await raw(engine.port, `GET ${target} HTTP/1.1\r\nHost: ${host(8000)}\r\nConnection: close\r\n\r\n`),
        target.startsWith('/echo') ? new RegExp(`"target": "${target.replaceAll('?', '\\?')}"`) : /no such path/,
      );
  });

  test("python's own http.server serves a page and a folder", async () => {
    await sandbox.files.write('/home/user/www/index.html', '<p>a page');
    await sandbox.commands.run('exec python3 -m http.server 8080 -d /home/user/www', { background: true, timeoutMs: 0 });
    const res = await until(async () => {
      const r = await ask('GET', '/', { port: 8080 });
      return r.status === 200 && r;
    });
    assert.equal(res.text, '<p>a page');
    assert.equal((await ask('GET', '/none', { port: 8080 })).status, 404);
  });

  test('a server on the loopback of IPv6 only is found', async () => {
    assert.equal((await ask('GET', '/echo', { port: 8006 })).status, 200);
  });

  test('nothing listens: 502 with the port, at once', async () => {
    const res = await ask('GET', '/', { port: 3000, deadline: 5_000 });
    assert.equal(res.status, 502);
    assert.deepEqual(res.json, { sandboxId: sandbox.sandboxId, message: NOT_OPEN, port: 3000, code: 502 });
    assert.equal((await ask('POST', '/', { port: 3000, body: blocks(4 * MiB), deadline: 15_000 })).json?.message, NOT_OPEN);
    for (const port of [0, 65536, 99999]) {
      const bad = await ask('GET', '/', { port });
      assert.deepEqual([bad.status, bad.text], [400, 'Invalid sandbox port'], String(port));
    }
  });

  test('private traffic needs its token, which does not go inside', async () => {
    const box = await engine.create('base', { network: { allowPublicTraffic: false } });
    await serve(box);
    const missing = await ask('GET', '/echo', { box });
    assert.deepEqual([missing.status, missing.json.message.includes('is missing')], [403, true]);
    const wrong = await ask('GET', '/echo', { box, headers: { 'e2b-traffic-access-token': 'x'.repeat(32) } });
    assert.deepEqual([wrong.status, wrong.json.message.includes('is invalid')], [403, true]);
    assert.equal((await ask('OPTIONS', '/echo', { box })).status, 403);
    const right = await ask('GET', '/echo', { box, headers: { 'E2B-Traffic-Access-Token': box.trafficAccessToken } });
    assert.equal(right.status, 200, right.text);
    assert.ok(!right.text.includes(box.trafficAccessToken));
    await assert.rejects(websocket('/websocket', { box }), /no upgrade: 403/);
    await box.kill();
    assert.equal((await ask('GET', '/echo', { box })).json.message, 'The sandbox was not found');
  });

  test('a paused sandbox that may wakes up by a request', async () => {
    const box = await engine.create('base', { lifecycle: { onTimeout: 'pause', autoResume: true } });
    await serve(box);
    await box.pause();
    assert.equal((await ask('GET', '/echo', { box })).status, 200);
    await box.kill();
  });

  // ------------------------------------------------------------------------------------------------------------ what goes through

  test('fields: those of one connection and of the edge stay behind, all others pass', async () => {
    const res = await request(`${engine.url}/echo`, {
      headers: {
        host: 'sandbox.sandgate.test:1234',
        'e2b-sandbox-id': sandbox.sandboxId,
        'e2b-sandbox-port': '8000',
        connection: 'keep-alive, X-Mine',
        'keep-alive': '5',
        'x-mine': '1',
        te: 'trailers',
        'proxy-authorization': 'x',
        'x-two': ['1', '2'],
        cookie: 'a=1; b=2',
        origin: 'http://page.test',
      },
    });
    const fields = seen(res);
    assert.equal(fields.host, 'sandbox.sandgate.test:1234');
    for (const name of ['e2b-sandbox-id', 'e2b-sandbox-port', 'x-mine', 'keep-alive', 'te', 'proxy-authorization', 'transfer-encoding', 'content-length'])
      assert.equal(fields[name], undefined, name);
    assert.equal(fields.connection, 'close');
    assert.equal(fields.cookie, 'a=1; b=2');
    assert.deepEqual(
      res.json.headers.filter(([name]) => name.toLowerCase() === 'x-two').map(([, value]) => value).join(),
      res.json.headers.some(([, v]) => v === '1, 2') ? '1, 2' : '1,2',
    );
    assert.deepEqual(res.headers['set-cookie'], ['a=1', 'b=2']);
    assert.equal(res.headers['x-empty'], '');
    assert.equal(res.headers['x-private'], undefined);
    for (const name of Object.keys(res.headers)) assert.ok(!name.startsWith('access-control-'), name);
  });

  test('maskRequestHost is the Host that servers inside see', async () => {
    const box = await engine.create('base', { network: { maskRequestHost: 'localhost:${PORT}' } });
    await serve(box);
    assert.equal(seen(await ask('GET', '/echo', { box })).host, 'localhost:8000');
    assert.equal(seen(await ask('GET', '/echo', { box, port: 8006 })).host, 'localhost:8006');
    await box.kill();
    for (const maskRequestHost of ['', 'a b', 'a\r\nX: y', '${HOST}', 'x'.repeat(256), 7])
      assertError(await engine.api('POST', '/v2/sandboxes', { json: { templateID: 'base', network: { maskRequestHost } } }), 400, /maskRequestHost/);
  });

  test('CORS is the affair of the server inside; errors of the edge can be read by any page', async () => {
    const res = await ask('OPTIONS', '/echo', { headers: { origin: 'http://page.test', 'access-control-request-method': 'PUT' } });
    assert.deepEqual([res.status, res.json.method], [200, 'OPTIONS']);
    assert.equal(res.headers['access-control-allow-origin'], undefined);
    assert.equal((await ask('GET', '/', { port: 3000 })).headers['access-control-allow-origin'], '*');
  });

  test('methods, statuses, and answers without a body', async () => {
    for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'PROPFIND'])
      assert.equal((await ask(method, '/echo')).json.method, method);
    for (const method of ['TRACE']) assert.equal((await ask(method, '/echo')).status, 400);
    for (const status of [201, 301, 404, 418, 500, 599]) {
      const res = await ask('GET', `/status?${status}`);
      assert.deepEqual([res.status, res.text, res.headers['x-status']], [status, 'status', String(status)]);
    }
    for (const status of [204, 304]) {
      const res = await ask('GET', `/status?${status}`);
      assert.deepEqual([res.status, res.text, res.headers.etag], [status, '', 'x']);
    }
    const head = await ask('HEAD', '/status?200');
    assert.deepEqual([head.status, head.headers['content-length'], head.text], [200, '6', '']);
    assert.equal((await ask('GET', '/until-close')).text, 'until the end');
  });

  test('one connection of the client serves many requests', async () => {
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    const get = (method, target, body) =>
      new Promise((resolve, reject) => {
        const req = http.request(engine.url + target, { agent, method, headers: { host: host(8000), ...(body && { 'content-length': body.length }) } });
        req.on('error', reject).on('response', async (res) => resolve([res.statusCode, res.socket.localPort, Buffer.concat(await res.toArray()).length]));
        req.end(body);
      });
    const ports = new Set();
    for (const [method, target, body] of [
      ['GET', '/echo'],
      ['HEAD', '/status?200'],
      ['GET', '/status?204'],
      ['POST', '/echo', 'x'.repeat(1000)],
      ['GET', '/until-close'],
      ['GET', '/large?100000'],
      ['GET', rawAnswer('nonsense\r\n')],
      ['GET', '/echo'],
    ]) {
      const [status, port] = await within(15_000, get(method, target, body), target);
      assert.ok(status >= 200, target);
      ports.add(port);
    }
    assert.equal(ports.size, 1);
    agent.destroy();
  });

  test('bodies: sized, chunked, empty, after 100-continue', async () => {
    const body = crypto.randomBytes(300_000);
    const sha256 = crypto.createHash('sha256').update(body).digest('hex');
    const sized = await ask('POST', '/echo', { body });
    assert.deepEqual([sized.json.sha256, seen(sized)['content-length']], [sha256, '300000']);
    const pieces = (async function* () {
      for (let at = 0; at < body.length; at += 7001) yield body.subarray(at, at + 7001);
    })();
    const chunked = await ask('PUT', '/echo', { body: pieces });
    assert.deepEqual([chunked.json.sha256, seen(chunked)['transfer-encoding']], [sha256, 'chunked']);
    assert.equal(seen(chunked)['content-length'], undefined);
    const empty = await ask('POST', '/echo', { body: '' });
    assert.deepEqual([empty.json.n, seen(empty)['content-length']], [0, '0']);
    const answer = await raw(
      engine.port,
      `POST /echo HTTP/1.1\r\nHost: ${host(8000)}\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello`,
    );
    assert.match(answer, /^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 /);
    assert.ok(!/"expect"/i.test(answer) && answer.includes('"n": 5'));
  });

  test('an answer that comes before the body is whole is passed on', async () => {
    const res = await ask('POST', '/early', { body: blocks(8 * MiB), deadline: 30_000 });
    assert.deepEqual([res.status, res.text], [413, 'too much']);
  });

  test('events arrive one by one, and a client that leaves closes the connection inside', async () => {
    const res = await begin('GET', '/events');
    const it = res.setEncoding('utf8')[Symbol.asyncIterator]();
    let text = '';
    for (let i = 0; i < 3; i++) text += (await within(10_000, it.next(), 'an event')).value;
    assert.match(text, /^data: 0\n\n/);
    assert.ok(!text.includes('data: 50\n'), 'they came in a lump');
    res.drop();
    await logged('events ended');
    const gone = net.connect(engine.port, '127.0.0.1', () => gone.write(`GET /wait HTTP/1.1\r\nHost: ${host(8000)}\r\n\r\n`));
    await logged('waiting');
    gone.destroy();
    await logged('wait ended');
  });

  // ------------------------------------------------------------------------------------------------------------ large

  test('200 MB down and up: whole, and the memory of the engine stays flat', async () => {
    const n = 200 * MiB;
    await ask('GET', '/large?1000000');
    const before = engine.peaks();
    const down = await begin('GET', `/large?${n}`, { deadline: 120_000 });
    assert.equal(down.headers['content-length'], String(n));
    let got = 0;
    for await (const chunk of down) {
      assert.equal(chunk[0], got % 256);
      got += chunk.length;
    }
    assert.equal(got, n);
    const up = await ask('POST', '/echo', { body: blocks(n), deadline: 120_000 });
    assert.equal(up.json.n, n);
    engine.assertFlat(before, 32);
  });

  test('a reader that stops makes the server wait, not the engine grow', async () => {
    const before = engine.peaks();
    const slow = await begin('GET', `/large?${400 * MiB}`);
    slow.pause();
    const upload = net.connect(engine.port, '127.0.0.1', () => {
      upload.write(`POST /wait HTTP/1.1\r\nHost: ${host(8000)}\r\nContent-Length: ${400 * MiB}\r\n\r\n`);
      const more = () => {
        while (!upload.destroyed && upload.write(Buffer.alloc(64 << 10)));
      };
      upload.on('drain', more).on('error', () => {});
      more();
    });
    await until(() => upload.writableNeedDrain && upload.bytesWritten > 0, { what: 'a full pipe' });
    let last = -1;
    await until(
      () => {
        const still = upload.bytesWritten - upload.writableLength === last;
        last = upload.bytesWritten - upload.writableLength;
        return still;
      },
      { every: 300, what: 'a standstill' },
    );
    assert.equal((await ask('GET', '/echo')).status, 200, 'others are served meanwhile');
    engine.assertFlat(before, 32);
    slow.drop();
    upload.destroy();
    await logged('large ended');
  });

  test('50 at once', async () => {
    const all = await Promise.all(
      Array.from({ length: 50 }, (_, i) => ask('POST', `/echo?${i}`, { body: String(i).repeat(1000 + i), deadline: 60_000 })),
    );
    all.forEach((res, i) => assert.deepEqual([res.json.target, res.json.n], [`/echo?${i}`, String(i).length * (1000 + i)]));
  });

  test('too many connections to one sandbox: 429 with the limit; others are not concerned', async () => {
    const sockets = Array.from({ length: 256 }, () => {
      const s = net.connect(engine.port, '127.0.0.1', () => s.write(`GET / HTTP/1.1\r\nHost: ${host(8007)}\r\n\r\n`));
      return s.on('error', () => {});
    });
    try {
      const res = await until(async () => {
        const r = await ask('GET', '/echo');
        return r.status === 429 && r;
      });
      assert.deepEqual(res.json, {
        sandboxId: sandbox.sandboxId,
        message: 'The sandbox has too many concurrent incoming connections (limit: 256)',
        connectionLimit: 256,
        code: 429,
      });
      const other = await engine.create('base');
      assert.equal((await ask('GET', '/', { box: other })).status, 502);
      await other.kill();
    } finally {
      for (const s of sockets) s.destroy();
    }
    await until(async () => (await ask('GET', '/echo')).status === 200, { what: 'room again' });
  });

  // ------------------------------------------------------------------------------------------------------------ WebSocket

  test('WebSocket: messages both ways, large ones too, and both ends close together', async () => {
    const ws = await websocket('/websocket');
    assert.equal(String(await ws.next()), 'hello');
    ws.send('ping');
    assert.equal(String(await ws.next()), 'ping');
    const large = crypto.randomBytes(4 * MiB);
    ws.send(large);
    assert.ok((await ws.next()).equals(large));
    ws.send('bye');
    await within(10_000, ws.ended, 'the end');
    await logged('websocket ended');

    const before = (await sandbox.files.read('/tmp/server.log')).split('websocket ended').length;
    const leaves = await websocket('/websocket');
    await leaves.next();
    leaves.socket.destroy();
    await until(async () => (await sandbox.files.read('/tmp/server.log')).split('websocket ended').length > before, {
      what: 'the end inside',
    });
    await assert.rejects(websocket('/status?426'), /no upgrade: 426/);
    await assert.rejects(websocket('/none', { port: 3000 }), /no upgrade: 502/);
  });

  test('a 101 that nobody asked for, or that names no protocol, is no answer', async () => {
    const unasked = await ask('GET', rawAnswer('HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n'));
    assert.equal(unasked.status, 502);
    await assert.rejects(websocket(rawAnswer('HTTP/1.1 101 Switching\r\n\r\n')), /no upgrade: 502/);
  });

  // ------------------------------------------------------------------------------------------------------------ bad servers

  test('nonsense, huge heads and early ends are 502, and the next request is fine', async () => {
    for (const text of [
      '',
      'SSH-2.0-OpenSSH_9\r\n',
      '\0'.repeat(1000),
      'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
      'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 50\r\n\r\nhello',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: x, chunked\r\n\r\n0\r\n\r\n',
      'HTTP/1.1 200 OK\r\nX: a\rb\r\n\r\n',
      'HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\n',
      'HTTP/1.1 200 OK\r\nX: y\r\n',
      'HTTP/1.1 99999 OK\r\n\r\n',
    ]) {
      const res = await ask('GET', rawAnswer(text), { deadline: 10_000 });
      assert.equal(res.status, 502, JSON.stringify(text));
      assert.equal(res.json.port, 8000);
    }
    assert.equal((await ask('GET', '/huge-head')).status, 502);
    const many = await ask('GET', '/fields?200');
    assert.deepEqual([many.status, many.headers['x-0'], many.headers['x-199']], [200, 'v'.repeat(50), 'v'.repeat(50)]);
    assert.equal((await ask('GET', '/fields?300')).status, 502);
    engine.assertAlive();
  });

  test('an answer that breaks off is broken for the client, too', async () => {
    for (const text of [
      'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n',
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello!\r\n0\r\n\r\n',
    ]) {
      const res = await begin('GET', rawAnswer(text));
      assert.equal(res.status, 200);
      await assert.rejects(within(10_000, res.toArray(), 'the break'), /aborted|terminated|reset/i, text);
    }
  });

  test('what follows an answer never becomes the answer to another request', async () => {
    const planted = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nplanted';
    const head = (target) => `GET ${target} HTTP/1.1\r\nHost: ${host(8000)}\r\n\r\n`;
    const both = await raw(engine.port, head(rawAnswer(planted)) + head('/status?418') + head('/none').replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'), {
      quiet: 2_000,
    }).catch((e) => String(e));
    assert.ok(!both.includes('planted'), both);
  });

  test('requests whose end is in doubt do not go inside', async () => {
    const send = (rest) => raw(engine.port, `POST /echo HTTP/1.1\r\nHost: ${host(8000)}\r\n${rest}`, { quiet: 1_500 });
    for (const rest of [
      'Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
      'Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!',
      'Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello',
      'Content-Length: +5\r\n\r\nhello',
      'Content-Length: 5 5\r\n\r\nhello',
      'Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n',
      'Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
      'Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n',
      'X: \x01\r\n\r\n',
      'Host: other.test\r\n\r\n',
    ]) {
      const answer = await send(rest);
      assert.ok([0, 400].includes(rawStatus(answer)), `${JSON.stringify(rest)}: ${answer.slice(0, 300)}`);
      assert.ok(!answer.includes('sha256'), rest);
      if (/^Transfer-Encoding: gzip/.test(rest)) assert.equal(rawStatus(answer), 400, 'it is told, not waited for');
    }
    for (const target of ['/echo\tx', 'http://other.test/echo', '/echo x', '*'])
      assert.ok([0, 400].includes(rawStatus(await raw(engine.port, `GET ${target} HTTP/1.1\r\nHost: ${host(8000)}\r\n\r\n`, { quiet: 1_500 }))), target);
    const folded = await raw(engine.port, `GET /echo HTTP/1.1\r\nHost: ${host(8000)}\r\nX: a\r\n GET /evil HTTP/1.1\r\nConnection: close\r\n\r\n`, {
      quiet: 1_500,
    });
    assert.ok(!/"target": "\/evil/.test(folded), folded);
  });

  // ------------------------------------------------------------------------------------------------------------ the end

  test('pause and kill cut what is under way', async () => {
    for (const end of ['pause', 'kill']) {
      const box = await engine.create('base');
      await serve(box);
      const events = await begin('GET', '/events', { box });
      const ws = await websocket('/websocket', { box });
      await ws.next();
      const upload = net.connect(engine.port, '127.0.0.1', () =>
        upload.write(`POST /echo HTTP/1.1\r\nHost: ${host(8000, box)}\r\nContent-Length: 1000\r\n\r\nhello`),
      );
      const cut = new Promise((resolve) => upload.on('error', () => {}).on('close', resolve));
      await until(async () => (await connections(8000, box)) >= 3, { what: 'three connections' });
      const broken = assert.rejects(events.toArray());
      await box[end]();
      await within(10_000, Promise.all([broken, ws.ended, cut]), `the cut by ${end}`);
      if (end === 'pause') await box.kill();
    }
  });

  test('nothing is left open', async () => {
    await until(async () => (await connections(8000)) === 0, { what: 'no connection inside' });
    const open = engine.openFiles();
    for (let i = 0; i < 20; i++) {
      await ask('GET', '/echo');
      await ask('GET', '/', { port: 3000 });
      const ws = await websocket('/websocket');
      ws.socket.destroy();
    }
    await until(() => engine.openFiles() <= open, { what: 'as few open files as before' });
  });

  test('the engine can stop with connections open', async () => {
    const ws = await websocket('/websocket');
    const events = await begin('GET', '/events');
    const stopped = Promise.all([ws.ended, assert.rejects(events.toArray())]);
    await engine.stop();
    await within(10_000, stopped, 'the end of both');
    engine = undefined;
  });
});
