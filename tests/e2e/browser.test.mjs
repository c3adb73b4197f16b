// The README's browser client in a real Chromium, on a page that the real nginx serves beside the API, over plain HTTP/1.1.
// Nothing is intercepted: what the browser does by itself (cookies, Origin, sending a POST again) is what is tested.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { chromium } from 'playwright-core';
import { SUITE, commandLine, request, tempFolder, until, within } from './engine.mjs';
import { startGateway } from './gateway.mjs';
import { startProxy } from './proxy.mjs';
import { blocks } from './readme.mjs';

const CHROMIUM = process.env.PATH.split(':')
  .map((dir) => path.join(dir, 'chromium'))
  .find((file) => fs.existsSync(file));
const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost',
];

const [CLIENT, EXAMPLE] = blocks('For front-end developers').filter((b) => b.language === 'js');
const LOCATION = blocks('For operators').find((b) => b.language === 'nginx');

/** A browser whose profile, home and downloads are one folder; close() leaves neither a process nor a file. */
async function startBrowser() {
  const folder = tempFolder('sandgate-chromium-');
  const context = await chromium.launchPersistentContext(path.join(folder, 'profile'), {
    executablePath: CHROMIUM,
    headless: true,
    args: FLAGS,
    downloadsPath: path.join(folder, 'downloads'),
    env: { PATH: process.env.PATH, HOME: folder, TMPDIR: folder, XDG_CONFIG_HOME: folder, XDG_CACHE_HOME: folder, LANG: 'C.UTF-8' },
    timeout: 60_000,
  });
  context.setDefaultTimeout(60_000);
  const processes = () => fs.readdirSync('/proc').filter((p) => /^\d+$/.test(p) && commandLine(p).includes(folder));
  assert.ok(processes().length > 0);
  const close = async () => {
    try {
      await within(30_000, context.close(), 'closing the browser');
      await until(() => processes().length === 0, { deadline: 20_000, what: 'the end of all its processes' });
    } finally {
      for (const pid of processes()) process.kill(Number(pid), 'SIGKILL');
      fs.rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
    }
  };
  return { context, close };
}

/** The README's location for pages in the gateway's nginx, and in it a page with the README's class. */
async function servePages(g) {
  const www = path.join(g.dir, 'www');
  const conf = path.join(g.dir, 'nginx/nginx.conf');
  fs.mkdirSync(path.join(www, 'app'), { recursive: true });
  fs.writeFileSync(path.join(www, 'app/client.js'), CLIENT.text);
  fs.writeFileSync(path.join(www, 'app/index.html'), '<!doctype html><title>test</title><body><script src="client.js"></script>');
  const text = fs
    .readFileSync(conf, 'utf8')
    .replace('include sandgate/http.conf;', 'include /etc/nginx/mime.types; $&')
    .replace('include sandgate/server.conf;', `${LOCATION.text.replace('/srv/www', www)}\n$&`);
  fs.writeFileSync(conf, text);
  g.nginx.process.kill('SIGHUP');
  await until(async () => (await request(`${g.url}/app/index.html`)).status === 200, { deadline: 30_000, what: 'the page' });
}

/** A server on a port of its own, which to a browser is another origin. */
async function serve(handler) {
  const server = http.createServer(handler);
  await new Promise((resolve, reject) => server.on('error', reject).listen(0, '127.0.0.1', resolve));
  const close = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return { port: server.address().port, close };
}

/** nginx's log of calls to a path, as objects. */
const logged = (g, end) =>
  fs
    .readFileSync(g.accessLog, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line))
    .filter((call) => call.path.endsWith(end));

describe('in a browser', SUITE, () => {
  let g;
  let browser;
  let token;

  before(async () => {
    g = await startGateway();
    await servePages(g);
    token = await g.token('demo');
    browser = await startBrowser();
  });
  after(async () => {
    try {
      await browser?.close();
    } finally {
      await g?.stop();
    }
  });
  afterEach(async () => {
    await browser.context.clearCookies();
    await Promise.all(browser.context.pages().map((page) => page.close()));
  });

  const open = async (url = `${g.url}/app/index.html`) => {
    const page = await browser.context.newPage();
    assert.equal((await page.goto(url)).status(), 200);
    return page;
  };
  const post = (page, target, body) =>
    page.evaluate(async ([t, b]) => (await fetch(t, { method: 'POST', body: b && JSON.stringify(b) })).status, [target, body]);
  const logIn = async (page, secret = token) => assert.equal(await post(page, '/api/v1/login', { token: secret }), 204);

  test('the documented class does all eight operations, by the cookie alone', async () => {
    const page = await open();
    await logIn(page);
    const seen = await page.evaluate(async () => {
      const sandbox = new SandboxClient('browser:all~8');
      const bytes = Uint8Array.from({ length: 70_000 }, (_, i) => (i * 7) & 255);
      const seen = { none: await sandbox.getStatus(), nothing: await sandbox.install([]) };
      seen.started = await sandbox.start({ envs: { REGION: 'eu' } });
      seen.status = await sandbox.getStatus();
      seen.run = await sandbox.execute('import os\nprint(os.environ["REGION"])\n6 * 7');
      seen.failed = await sandbox.execute('1/0');
      seen.uploaded = await sandbox.upload(new File([bytes], 'a "ä" b.bin'));
      seen.elsewhere = await sandbox.upload(new File(['x'], 'x'), '/tmp/some where');
      seen.listed = await sandbox.listFiles('/home/user/upload');
      seen.root = await sandbox.listFiles();
      const back = await sandbox.download(seen.uploaded.path);
      const got = new Uint8Array(await back.arrayBuffer());
      seen.same = got.length === bytes.length && got.every((b, i) => b === bytes[i]);
      seen.stopped = await sandbox.stop();
      seen.over = await sandbox.getStatus();
      return seen;
    });
    assert.equal(seen.none, null);
    assert.deepEqual([seen.nothing.success, seen.nothing.output], [true, 'No packages to install']);
    assert.deepEqual([seen.started.status, seen.started.session_id], ['running', 'browser:all~8']);
    assert.equal(seen.status.sandbox_id, seen.started.sandbox_id);
    assert.equal(seen.run.output, 'eu\n42\n');
    assert.deepEqual([seen.failed.success, seen.failed.error_detail.name], [false, 'ZeroDivisionError']);
    assert.equal(seen.uploaded.path, '/home/user/upload/a "ä" b.bin');
    assert.equal(seen.elsewhere.path, '/tmp/some where/x');
    assert.deepEqual(
      seen.listed.map((f) => [f.path, f.size]),
      [['/home/user/upload/a "ä" b.bin', 70_000]],
    );
    assert.ok(seen.root.some((f) => f.path === '/home' && f.is_directory));
    assert.equal(seen.same, true, 'the bytes are those that went up');
    assert.deepEqual([seen.stopped, seen.over], [undefined, null]);
    const [row] = await g.rows("select owner from sandboxes where session_id = 'browser:all~8'");
    assert.equal(row.owner, 'demo');
  });

  test('the documented example logs in, shows the output and renders the figure', async () => {
    const page = await open();
    const { shown, widths } = await page.evaluate(
      async ([text, secret]) => {
        const shown = [];
        const AsyncFunction = (async () => {}).constructor;
        await new AsyncFunction('token', 'show', text)(secret, (line) => shown.push(line));
        await Promise.all([...document.images].map((image) => image.decode()));
        return { shown, widths: [...document.images].map((image) => image.naturalWidth) };
      },
      [EXAMPLE.text, token],
    );
    assert.deepEqual(shown, ['done\n']);
    assert.equal(widths.length, 1);
    assert.ok(widths[0] > 0);
  });

  test('no login, no call: 401 before it, after logout, and with a token that was revoked', async () => {
    const page = await open();
    const problem = () =>
      page.evaluate(async () => {
        const e = await new SandboxClient('s1').execute('1').catch((thrown) => thrown);
        return { known: e instanceof SandboxError, name: e.name, status: e.status, code: e.code, message: e.message, id: e.requestId };
      });
    const refused = async () => {
      const { message, id, ...rest } = await problem();
      assert.deepEqual(rest, { known: true, name: 'SandboxError', status: 401, code: 'unauthorized' });
      assert.match(message, /^Unauthorized/);
      assert.match(id, /^[0-9a-f]{32}$/);
    };
    const status = () => page.evaluate(() => new SandboxClient('s1').getStatus());
    await refused();
    assert.equal(await post(page, '/api/v1/login', { token: 'sg_wrong' }), 401);
    await refused();
    await logIn(page);
    assert.equal(await status(), null);
    assert.equal(await post(page, '/api/v1/logout'), 204);
    await refused();
    const secret = await g.token('demo', [], { fresh: true });
    await logIn(page, secret);
    assert.equal(await status(), null);
    const list = (await g.ctl('token', 'list', '--json')).stdout.trim().split('\n');
    await g.ctl('token', 'revoke', JSON.parse(list.at(-1)).id);
    await refused();
    assert.deepEqual(await g.rows("select 1 from executions where session_id = 's1'"), []);
  });

  test('no script sees the token', async () => {
    const page = await open();
    await logIn(page);
    assert.equal(await page.evaluate(() => document.cookie), '');
    const [cookie] = await browser.context.cookies(g.url);
    assert.deepEqual([cookie.name, cookie.value, cookie.httpOnly, cookie.sameSite], ['sandgate_token', token, true, 'Strict']);
  });

  test('a plain <img> shows a download, and a plain link saves it under its name', async () => {
    const page = await open();
    await logIn(page);
    const width = await page.evaluate(async () => {
      const canvas = Object.assign(document.createElement('canvas'), { width: 37, height: 5 });
      const png = await new Promise((resolve) => canvas.toBlob(resolve));
      const sandbox = new SandboxClient('links');
      const { path } = await sandbox.upload(new File([png], 'größe.png'));
      const { path: table } = await sandbox.upload(new File(['a,b\n'], 'tab le.csv'));
      const image = Object.assign(new Image(), { src: sandbox.downloadUrl(path) });
      document.body.append(image, Object.assign(document.createElement('a'), { href: sandbox.downloadUrl(table), textContent: 'save' }));
      await image.decode();
      return image.naturalWidth;
    });
    assert.equal(width, 37);
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('a')]);
    assert.equal(download.suggestedFilename(), 'tab le.csv');
    assert.equal(fs.readFileSync(await download.path(), 'utf8'), 'a,b\n');
  });

  test('a page of another origin can do nothing with the cookie, and read nothing', async () => {
    const other = await serve((req, res) => res.setHeader('content-type', 'text/html').end('<!doctype html><title>other</title>'));
    try {
      await logIn(await open());
      const attack = async (host, session) => {
        const page = await open(`http://${host}:${other.port}/`);
        const base = `${g.url}/api/v1/session/${session}/sandbox`;
        const answers = await page.evaluate(async (target) => {
          const call = (op, options) =>
            fetch(`${target}/${op}`, { credentials: 'include', ...options }).then((r) => `${r.type} ${r.status}`, (e) => e.name);
          const body = JSON.stringify({ code: '1' });
          return [
            await call('status'),
            await call('execute', { method: 'POST', body }),
            await call('execute', { method: 'POST', body, mode: 'no-cors' }),
          ];
        }, base);
        assert.deepEqual(answers, ['TypeError', 'TypeError', 'opaque 0']);
        await page.evaluate((target) => {
          document.body.innerHTML = `<form method="post" enctype="text/plain" action="${target}"><input name='{"code":"1","x":"' value='"}'></form>`;
          document.forms[0].submit();
        }, `${base}/execute`);
        await page.waitForURL(`${base}/execute`);
        assert.match(await page.textContent('body'), /"code":"(forbidden|unauthorized)"/);
        assert.deepEqual(await g.rows(`select 1 from executions where session_id = '${session}'`), []);
        const calls = await until(() => logged(g, `${session}/sandbox/execute`).length >= 3 && logged(g, `${session}/sandbox/execute`), { what: 'the log' });
        return calls.map((c) => [c.user, c.status]);
      };
      // A port does not make another site: the cookie comes along, and the Origin is what betrays the page.
      assert.deepEqual(await attack('127.0.0.1', 'same-site'), Array(3).fill(['demo', 403]));
      assert.deepEqual(await attack('localhost', 'other-site'), Array(3).fill(['', 401]));
    } finally {
      await other.close();
    }
  });

  test('a development server that passes /api on and keeps Host is the same origin', async () => {
    const dev = await serve((req, res) => {
      if (!req.url.startsWith('/api/')) return res.setHeader('content-type', 'text/html').end(`<!doctype html><script>${CLIENT.text}</script>`);
      const on = http.request({ port: g.port, host: '127.0.0.1', method: req.method, path: req.url, headers: req.headers }, (answer) => {
        res.writeHead(answer.statusCode, answer.headers);
        answer.pipe(res);
      });
      req.pipe(on.on('error', () => res.destroy()));
      return undefined;
    });
    try {
      const page = await open(`http://localhost:${dev.port}/`);
      await logIn(page);
      assert.equal((await page.evaluate(() => new SandboxClient('dev').execute('40 + 2'))).output, '42\n');
    } finally {
      await dev.close();
    }
  });

  // ------------------------------------------------------------------------------------------------------------ streams

  /** Prints more than one event, with characters that a reader may cut or take for the end of a line. */
  const LINES = 'import time\nfor i in range(40):\n    print(i, "é\\u2028😀" * (i % 7))\n    time.sleep(0.03)\n"end"';
  const PRINTED = Array.from({ length: 40 }, (_, i) => `${i} ${'é\u2028😀'.repeat(i % 7)}\n`).join('');
  const textOf = (events) => events.filter((e) => e.event === 'stdout').map((e) => e.data.text).join('');
  const numbered = (events) => assert.deepEqual(events.map((e) => e.id), events.map((_, i) => i + 1));

  /** All events of executeStream, and how it ended. */
  const streamed = (page, session, request) =>
    page.evaluate(
      async ([id, wanted]) => {
        window.seen = [];
        for await (const event of new SandboxClient(id).executeStream(wanted)) window.seen.push(event);
        return window.seen;
      },
      [session, request],
    );

  test('a stream whose connection breaks is picked up, again and again, and its bytes are exact', async () => {
    const link = await startProxy(g.url);
    try {
      const page = await open(`${link.url}/app/index.html`);
      await logIn(page);
      link.fault({ path: /execute$/ }, { cut: 300 + Math.floor(Math.random() * 500) }, { times: 1 });
      link.fault({ path: /events$/ }, { cut: 100 + Math.floor(Math.random() * 400), reset: true }, { times: 2 });
      const events = await streamed(page, 'picked-up', { code: LINES });
      numbered(events);
      assert.equal(textOf(events), PRINTED);
      const { event, data } = events.at(-1);
      assert.deepEqual([event, data.state, data.stdout, data.text], ['done', 'succeeded', PRINTED, 'end']);
      const asked = link.requests.filter((r) => r.path.endsWith('/events')).map((r) => Number(r.headers['last-event-id']));
      assert.equal(asked.length, 3, `it came back ${asked}`);
      assert.ok(asked.every((id, i) => id >= (asked[i - 1] ?? 0)), `${asked}`);
      assert.equal(link.requests.filter((r) => r.path.endsWith('/execute')).length, 1);
      assert.equal((await g.rows("select 1 from executions where session_id = 'picked-up'")).length, 1);
    } finally {
      await link.close();
    }
  });

  test('a browser whose network is gone for a while has the rest when it is back', async () => {
    const link = await startProxy(g.url);
    const page = await open(`${link.url}/app/index.html`);
    await logIn(page);
    const code = 'import os, time\nprint("begun")\nwhile not os.path.exists("/home/user/go"): time.sleep(0.01)\nprint("end")';
    const whole = streamed(page, 'offline', { code });
    await page.waitForFunction(() => window.seen?.some((e) => e.data.text === 'begun\n'));
    await link.down(); // Chromium's own emulation of that leaves open connections alone
    try {
      const session = g.session('offline', { token });
      assert.equal((await session.upload('go', 'x', '/home/user')).status, 200);
      const over = async () => (await session.executions()).json.executions[0].state === 'succeeded';
      await until(over, { deadline: 30_000, what: 'its end' });
      await link.up();
      const events = await whole;
      numbered(events);
      assert.equal(textOf(events), 'begun\nend\n');
      assert.equal(link.count('GET', /events$/), 1, 'it came back for the rest');
    } finally {
      await link.close();
    }
  });

  test('the documented class runs a command and cancels a run', async () => {
    const page = await open();
    await logIn(page);
    const seen = await page.evaluate(async () => {
      const sandbox = new SandboxClient('commands');
      const seen = { run: await sandbox.run('echo "$A"; pwd; exit 3', { cwd: '/tmp', envs: { A: 'b' } }) };
      for await (const event of sandbox.executeStream({ code: 'print("begun")\nimport time\ntime.sleep(600)' })) {
        if (event.event === 'started') seen.id = event.data.execution_id;
        if (event.event === 'stdout') seen.cancelled = await sandbox.cancel(seen.id);
        seen.last = event;
      }
      seen.refused = await sandbox.executeStream({}).next().catch((e) => [e.name, e.status, e.code]);
      return seen;
    });
    assert.deepEqual([seen.run.output, seen.run.exit_code, seen.run.success], ['b\n/tmp\n', 3, false]);
    assert.deepEqual([seen.cancelled.state, seen.cancelled.cancelled_by], ['cancelled', 'interrupt']);
    assert.deepEqual([seen.last.event, seen.last.data.code, seen.last.data.execution_id], ['done', 'cancelled', seen.id]);
    assert.deepEqual(seen.refused, ['SandboxError', 400, 'bad_request']);
  });

  test('an EventSource reads it by the cookie, comes back by itself after a break, and stays away after the end', async () => {
    const link = await startProxy(g.url);
    try {
      const page = await open(`${link.url}/app/index.html`);
      await logIn(page);
      const id = (await g.session('source', { token }).run({ code: LINES, detach: true })).json.execution_id;
      link.fault({ path: /events$/ }, { cut: 400 }, { times: 1 });
      const { events, state } = await page.evaluate(async (target) => {
        const events = [];
        const source = new EventSource(target);
        for (const name of ['started', 'stdout', 'result', 'done'])
          source.addEventListener(name, (e) => events.push({ id: Number(e.lastEventId), event: name, data: JSON.parse(e.data) }));
        while (source.readyState !== EventSource.CLOSED) await new Promise((resolve) => setTimeout(resolve, 50));
        return { events, state: source.readyState };
      }, `/api/v1/session/source/sandbox/executions/${id}/events`);
      assert.equal(state, 2);
      numbered(events);
      assert.equal(textOf(events), PRINTED);
      assert.equal(events.at(-1).event, 'done');
      const calls = link.requests.filter((r) => r.path.endsWith('/events'));
      assert.deepEqual(calls.map((r) => r.passed), [200, 200, 204]);
      assert.equal(Number(calls[2].headers['last-event-id']), events.at(-1).id);
    } finally {
      await link.close();
    }
  });

  test('a POST that the browser sends again after its 408 runs once, and the page gets one answer', async (t) => {
    const short = await startGateway({ engine: g.engine, settings: { SANDGATE_EXECUTION_TIMEOUT_SECS: 2 } });
    try {
      await servePages(short);
      const page = await open(`${short.url}/app/index.html`);
      await logIn(page, await short.token('demo'));
      const seen = await page.evaluate(async () => {
        const sandbox = new SandboxClient('again');
        const code = 'with open("/tmp/count", "a") as f: f.write("x")\nprint("begun")\nimport time\ntime.sleep(600)';
        const attempt = () => sandbox.execute(code).catch((e) => ({ status: e.status, code: e.code, message: e.message, body: e.body }));
        const count = async () => (await sandbox.download('/tmp/count')).text();
        await sandbox.start(); // the connection that this leaves behind is the kept one
        return { first: await attempt(), count: await count(), second: await attempt(), countAfter: await count() };
      });
      const { first } = seen;
      assert.deepEqual([first.status, first.code, first.body.output], [408, 'execution_timeout', 'begun\n']);
      assert.match(first.message, /^Timeout: .*limit of 2 s/);
      assert.match(first.body.execution_id, /^x_[a-z0-9]{20}$/);
      assert.equal(seen.count, 'x');
      // The page's own repetition is answered as the browser's is.
      assert.deepEqual([seen.second.status, seen.second.body.execution_id], [408, first.body.execution_id]);
      assert.equal(seen.countAfter, 'x');
      assert.deepEqual(await short.rows("select id, state from executions where session_id = 'again'"), [
        { id: first.body.execution_id, state: 'timed_out' },
      ]);

      const calls = await until(() => logged(short, '/again/sandbox/execute').length >= 3 && logged(short, '/again/sandbox/execute'), {
        what: 'a call that Chromium sent again (for two of the page there must be more than two in the log)',
      });
      t.diagnostic(`two calls of the page, ${calls.length} at nginx`);
      for (const call of calls) assert.deepEqual([call.protocol, call.status], ['HTTP/1.1', 408]);
    } finally {
      await short.stop();
    }
  });
});
