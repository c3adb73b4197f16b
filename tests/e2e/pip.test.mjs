// pip: packages from the engine's wheel folder, into a sandbox, importable in the kernel that already runs.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { SUITE, fails, output, python, shell, startEngine, tempFolder, within } from './engine.mjs';
import { writeWheels } from './wheels.mjs';

const WHEELS = [
  ['sgt_command', '1.0'],
  ['sgt_bang', '1.0'],
  ['sgt_magic', '1.0', 'sgt_needed'],
  ['sgt_needed', '2.5'],
  ['sgt_update', '1.0'],
  ['sgt_update', '1.1'],
  ['sgt_context', '1.0'],
];

let engine;
let sandbox;

describe('pip', SUITE, () => {
  before(async () => {
    const dir = tempFolder();
    const wheelhouse = writeWheels(path.join(dir, 'wheelhouse'), WHEELS);
    engine = await startEngine({ dir, args: ['--no-internet', '--wheelhouse', wheelhouse] });
    sandbox = await engine.create();
  });
  after(() => engine?.stop());

  test('by a command; the running kernel imports it, even after it has tried in vain', async () => {
    assert.equal((await sandbox.runCode('import sgt_command')).error?.name, 'ModuleNotFoundError');
    await output(sandbox, 'pip install sgt_command', { timeoutMs: 120_000 });
    assert.equal(await python(sandbox, 'import sgt_command\nsgt_command.hello()'), 'hello from sgt_command');
    assert.equal(await output(sandbox, 'python3 -c "import sgt_command; print(sgt_command.VERSION)"'), '1.0', 'a command sees it, too');
  });

  test('by !pip in a run', async () => {
    const run = await sandbox.runCode('!pip install sgt_bang\nimport sgt_bang\nsgt_bang.hello()', { timeoutMs: 120_000 });
    assert.equal(run.error, undefined, run.error?.traceback);
    assert.equal(run.text, 'hello from sgt_bang');
    assert.match(run.logs.stdout.join(''), /Successfully installed sgt[-_]bang-1\.0/);
  });

  test('by %pip, with what it requires', async () => {
    const run = await sandbox.runCode(
      '%pip install sgt_magic\nimport sgt_magic, sgt_needed\nprint(sgt_magic.VERSION, sgt_needed.VERSION)',
      { timeoutMs: 120_000 },
    );
    assert.equal(run.error, undefined, run.error?.traceback);
    assert.match(run.logs.stdout.join(''), /^1\.0 2\.5$/m);
  });

  test('a chosen version, an upgrade, a removal', async () => {
    await output(sandbox, 'pip install sgt_update==1.0', { timeoutMs: 120_000 });
    assert.equal(await output(sandbox, 'python3 -c "import sgt_update; print(sgt_update.VERSION)"'), '1.0');
    await output(sandbox, 'python3 -m pip install --upgrade sgt_update', { timeoutMs: 120_000 });
    assert.equal(await output(sandbox, 'python3 -c "import sgt_update; print(sgt_update.VERSION)"'), '1.1');
    assert.match(await output(sandbox, 'pip list 2>/dev/null'), /^sgt[-_]update\s+1\.1$/m);
    await output(sandbox, 'pip uninstall -y sgt_update', { timeoutMs: 60_000 });
    assert.notEqual((await shell(sandbox, 'python3 -c "import sgt_update"')).exitCode, 0);
  });

  test('a context that was there before imports it', async () => {
    const context = await sandbox.createCodeContext();
    await python(sandbox, '1', { context });
    await output(sandbox, 'pip install sgt_context', { timeoutMs: 120_000 });
    assert.equal(await python(sandbox, 'import sgt_context\nsgt_context.VERSION', { context }), '1.0');
  });

  test('a missing package fails, and says so', async () => {
    const result = await within(120_000, shell(sandbox, 'pip install sgt_no_such_package', { timeoutMs: 110_000 }), 'pip');
    assert.notEqual(result.exitCode, 0);
    assert.match(result.stderr, /No matching distribution found for sgt[-_]no[-_]such[-_]package/);
    await fails(sandbox.commands.run('pip install sgt_no_such_package', { timeoutMs: 110_000 }), 'CommandExitError');
  });

  test('what one sandbox installs no other has', async () => {
    await output(sandbox, 'pip install sgt_command', { timeoutMs: 120_000 });
    const other = await engine.create();
    assert.equal((await other.runCode('import sgt_command')).error?.name, 'ModuleNotFoundError');
    await other.kill();
  });

  test('the wheel folder is read-only inside, and whole outside', async () => {
    const settings = await output(sandbox, 'pip config list; env | grep ^PIP_ || true');
    const [folder] = settings.match(/find.links['"]?\s*=\s*['"]?(?:file:\/\/)?(\/[^'"\s]+)/i)?.slice(1) ?? [];
    assert.ok(folder, settings);
    assert.match(await output(sandbox, `ls ${folder}`), /sgt_needed-2\.5-py3-none-any\.whl/);
    for (const command of [
      `touch ${folder}/planted`,
      `rm -f ${folder}/sgt_needed-2.5-py3-none-any.whl && test ! -e ${folder}/sgt_needed-2.5-py3-none-any.whl`,
      `echo x > ${folder}/sgt_needed-2.5-py3-none-any.whl`,
    ])
      for (const user of engine.has('root and user') ? ['user', 'root'] : ['user'])
        assert.notEqual((await shell(sandbox, command, { user })).exitCode, 0, `${command} as ${user}`);
    assert.equal(fs.readdirSync(path.join(engine.dir, 'wheelhouse')).length, WHEELS.length);
  });
});
