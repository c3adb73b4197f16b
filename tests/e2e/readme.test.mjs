// What the README tells front-end developers is what happens: every example is run as it stands there, and its answer compared.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { BUILD, SUITE, tempFolder, until } from './engine.mjs';
import { TOP, startGateway } from './gateway.mjs';
import { README, assertJson, assertText, blocks, section, tableRows } from './readme.mjs';

const SECTION = 'For front-end developers';
const OUTPUTS = ['json', 'text'];

/** Commands with the answer that is shown behind them. What is neither is a mistake; js is for browser.test.mjs. */
function examples(text = README) {
  const found = [];
  let open = null; // the example whose answer may follow at once
  for (const part of section(SECTION, text)) {
    if (part.language === 'sh') found.push((open = { ...part, answer: null }));
    else if (OUTPUTS.includes(part.language)) {
      assert.ok(open, `README.md:${part.line}: an answer to nothing`);
      open.answer = part;
      open = null;
    } else {
      assert.ok([null, 'js'].includes(part.language), `README.md:${part.line}: a block of '${part.language}' is neither run nor an answer`);
      open = null;
    }
  }
  return found;
}

function compare(answer, output) {
  if (!answer) assert.equal(output, '', 'it shows no answer');
  else if (answer.language === 'json') assertJson(answer.text, output);
  else assertText(`${answer.text}\n`, output);
}

/** One bash for all examples, as a reader has one: what a block sets is there for the next, and errors are seen, too. */
class Shell {
  #output = '';

  constructor(folder) {
    const env = { PATH: process.env.PATH, HOME: folder, LC_ALL: 'C.UTF-8' };
    this.process = spawn('bash', ['--noprofile', '--norc'], { cwd: folder, env, stdio: ['pipe', 'pipe', 'inherit'] });
    this.process.stdout.setEncoding('utf8').on('data', (d) => (this.#output += d));
    this.process.stdin.on('error', () => {}); // it has ended, which is noticed by its status
    this.process.stdin.write('exec 2>&1\n');
  }

  async run(text) {
    const end = /\x1e(\d+)\x1e$/;
    this.#output = '';
    this.process.stdin.write(`{\n${text}\n} </dev/null\nprintf '\\036%d\\036' $?\n`);
    await until(() => end.test(this.#output) || this.process.exitCode !== null, { deadline: 120_000, what: text });
    assert.equal(this.#output.match(end)?.[1], '0', `the exit status of:\n${text}\n${this.#output}`);
    return this.#output.replace(end, '');
  }
}

describe('the README', SUITE, () => {
  let g;
  let folder;
  let shell;

  before(async () => {
    // Long enough for all examples but the one that is to pass it.
    g = await startGateway({ settings: { SANDGATE_EXECUTION_TIMEOUT_SECS: 15 } });
    folder = tempFolder();
    fs.mkdirSync(path.join(folder, 'run'));
    fs.writeFileSync(path.join(folder, 'run/token'), `${await g.token('demo')}\n`);
    fs.symlinkSync(g.config, path.join(folder, 'run/sandgate.conf'));
    fs.symlinkSync(BUILD, path.join(folder, 'build'));
    shell = new Shell(folder);
  });
  after(async () => {
    shell?.process.kill();
    if (folder) fs.rmSync(folder, { recursive: true });
    await g?.stop();
  });

  // In their order: they are one session.
  for (const example of examples()) {
    test(`line ${example.line}: ${example.text.split('\n').at(-1).slice(0, 80)}`, async () => {
      compare(example.answer, await shell.run(example.text.replaceAll('http://localhost:8080', g.url)));
    });
  }

  test('shows each of the eight operations by an example', () => {
    const all = examples()
      .map((e) => e.text)
      .join('\n');
    for (const op of ['start', 'stop', 'status', 'execute', 'install', 'upload', 'download', 'files']) assert.match(all, new RegExp(`\\$S/${op}\\b`));
  });

  test('has the browser client as the only blocks that are run elsewhere', () => {
    const js = blocks(SECTION).filter((b) => b.language === 'js');
    assert.equal(js.length, 2);
    assert.match(js[0].text, /^class SandboxClient /m);
  });

  test('lists every code that an error can have, with its status', () => {
    const listed = tableRows(SECTION).flatMap(([statuses, codes]) =>
      [...(codes ?? '').matchAll(/`(\w+)`/g)].flatMap((code) => statuses.split(', ').map((status) => `${status} ${code[1]}`)),
    );
    const answer = fs.readFileSync(path.join(TOP, 'src/api/answer.c'), 'utf8');
    const ours = [...answer.matchAll(/\] = \{ (\d{3}), "(\w+)"/g)].map((m) => `${m[1]} ${m[2]}`);
    assert.ok(ours.length > 20);
    const http = fs.readFileSync(path.join(TOP, 'nginx/http.conf'), 'utf8');
    const [map] = http.match(/map \$status \$sandgate_error_code \{[^}]*\}/);
    const nginx = [...map.matchAll(/^\s*(\d{3}) (\w+);/gm)].map((m) => `${m[1]} ${m[2]}`);
    assert.ok(nginx.length > 10);
    const unusual = ['501 not_implemented', '505 http_version_not_supported']; // no browser provokes them
    for (const code of [...ours, ...nginx]) assert.ok(listed.includes(code) || unusual.includes(code), `${code} is not in the table`);
  });

  test('names the limits that the settings have', async () => {
    const defaults = Object.fromEntries((await g.ctl('config', '--describe')).stdout.split('\n').map((l) => l.split('\t')));
    const limits = tableRows(SECTION).filter((row) => /^`SANDGATE_\w+`$/.test(row[2] ?? ''));
    assert.equal(limits.length, 8);
    for (const [, limit, setting] of limits) assert.equal(limit.split(' ')[0], defaults[setting.slice(1, -1)], setting);
  });

  test('is refused with a block that is neither run nor an answer', () => {
    const changed = (block) => README.replace('### Limits', `${block}\n\n### Limits`);
    assert.throws(() => examples(changed('```\ncurl x\n```')), /neither run nor an answer/);
    assert.throws(() => examples(changed('```bash\ncurl x\n```')), /neither run nor an answer/);
    assert.throws(() => examples(changed('```json\n{}\n```')), /an answer to nothing/);
    assert.throws(() => examples(changed('```sh\ncurl x')), /does not end/);
    assert.equal(examples(changed('```sh\ntrue\n```')).length, examples().length + 1);
  });

  test('is refused with an answer that is not so', () => {
    const info = '{"sandbox_id": "i74lzjr31j7c2r0vlun86", "n": 1, "list": [{"a": "b..."}], ...}';
    const got = { sandbox_id: 'iaaaaaaaaaaaaaaaaaaaa', n: 1, list: [{ a: 'bc' }], more: true };
    const refuses = (change, shown = info) => assert.throws(() => assertJson(shown, JSON.stringify({ ...got, ...change })));
    assertJson(info, JSON.stringify(got));
    refuses({ sandbox_id: '' });
    refuses({ n: 2 });
    refuses({ n: '1' });
    refuses({ n: undefined });
    refuses({ list: [] });
    refuses({ list: [{ a: 'c' }] });
    refuses({ list: [{ a: 'bc', d: 1 }] });
    refuses({}, info.replace(', ...}', '}'));
    assert.throws(() => assertText('a...c', 'abd'));
    assert.throws(() => compare(null, 'something'));
  });
});
