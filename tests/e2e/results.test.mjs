// Rich results: each MIME type that E2B gives, figures, the data behind tables, the same live, plain and later; and output past its
// limit, counted to the byte.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { SUITE, startEngine } from './engine.mjs';
import { startGateway } from './gateway.mjs';

const OUTPUT = 4096;

const RICH = `
import base64
from IPython.display import display
def b64(b): return base64.b64encode(b).decode()
display({"text/plain": "plain", "text/html": "<b>html</b>", "text/markdown": "*markdown*", "image/svg+xml": "<svg>é</svg>",
         "image/png": b64(b"\\x89PNG"), "image/jpeg": b64(b"\\xff\\xd8"), "application/pdf": b64(b"%PDF"), "text/latex": "$x$",
         "application/json": {"a": [1, None, "é"]}, "application/javascript": "alert(1)", "e2b/data": {"c": [1, 2]},
         "e2b/chart": {"type": "bar", "elements": [{"label": "a", "value": 1}]},
         "application/vnd.custom+json": {"kept": True}}, raw=True)
`;

let engine;
let g;
before(async () => {
  engine = await startEngine();
  g = await startGateway({ engine, settings: { SANDGATE_OUTPUT_MAX_BYTES: OUTPUT } });
});
after(async () => {
  await g?.stop();
  await engine?.stop();
});

/** The same run plain, streamed and read back: three times the same results, which are returned. */
async function threeTimes(session, code) {
  const plain = (await session.run({ code })).json;
  assert.equal(plain.success, true, plain.error);
  const s = await session.stream({ code });
  const { data } = await s.end();
  const streamed = s.seen.filter((e) => e.event === 'result').map((e) => e.data);
  const kept = (await session.execution(data.execution_id)).json.result;
  for (const results of [streamed, data.results, kept.results]) assert.deepEqual(results, plain.results);
  for (const artifacts of [data.artifacts, kept.artifacts]) assert.deepEqual(artifacts, plain.artifacts);
  const again = await session.follow(data.execution_id);
  await again.end();
  assert.deepEqual(again.seen.filter((e) => e.event === 'result').map((e) => e.data), streamed, 'a replay');
  return plain;
}

describe('results', SUITE, () => {
  test('have every MIME type, whoever asks', async () => {
    const { results, artifacts, text, output } = await threeTimes(g.session('mime'), RICH);
    assert.equal(results.length, 1);
    const [{ extra, ...r }] = results;
    assert.deepEqual(r, {
      text: 'plain',
      html: '<b>html</b>',
      markdown: '*markdown*',
      svg: '<svg>é</svg>',
      png: Buffer.from('\x89PNG', 'latin1').toString('base64'),
      jpeg: Buffer.from('\xff\xd8', 'latin1').toString('base64'),
      pdf: Buffer.from('%PDF').toString('base64'),
      latex: '$x$',
      json: { a: [1, null, 'é'] },
      javascript: 'alert(1)',
      data: { c: [1, 2] },
      chart: { type: 'bar', elements: [{ label: 'a', value: 1 }] },
      is_main_result: false,
    });
    assert.deepEqual(extra, { 'application/vnd.custom+json': { kept: true } }, 'so is what nobody knows');
    assert.deepEqual([text, output], [null, ''], 'what is displayed is no main result');
    assert.deepEqual(artifacts, [`data:image/png;base64,${r.png}`, `data:image/jpeg;base64,${r.jpeg}`, `data:image/svg+xml;base64,${Buffer.from(r.svg).toString('base64')}`]);
  });

  test('figures are artifacts, and tables have their data', async () => {
    const session = g.session('figures');
    const figure = await threeTimes(session, 'import matplotlib.pyplot as plt\n_ = plt.bar(["a", "b"], [1, 2])\nplt.show()');
    assert.deepEqual(figure.artifacts, [`data:image/png;base64,${figure.results[0].png}`]);
    const { type, elements } = figure.results[0].chart;
    assert.deepEqual([type, elements.map((e) => [e.label, e.value])], ['bar', [['a', 1], ['b', 2]]], 'and have the data behind them');
    const table = await threeTimes(session, 'import pandas\npandas.DataFrame({"n": [1, 2], "s": ["a", None]})');
    assert.deepEqual(table.results[0].data, { n: [1, 2], s: ['a', null] });
    assert.ok(table.results[0].is_main_result && /<table/.test(table.results[0].html));
    const several = await threeTimes(session, 'display(1)\ndisplay("two")\n[3]');
    assert.deepEqual(several.results.map((r) => [r.text, r.is_main_result]), [['1', false], ['two', false], ['[3]', true]]);
    assert.deepEqual([several.text, several.output, several.results[2].json], ['[3]', '[3]\n', [3]]);
  });

  test('a result of 5 MiB is whole, live and later', async () => {
    const { results } = await threeTimes(g.session('large'), 'display({"text/html": "é" * (5 << 19)}, raw=True)');
    assert.equal(results[0].html, 'é'.repeat(5 << 19));
  });

  test('output past the limit loses its middle in the answer, each stream for itself, and not in the events', async () => {
    const session = g.session('limit');
    const text = (n, sign) => Array.from({ length: n }, (_, i) => `${sign}${i}\n`).join('');
    const [out, err] = [text(3000, ''), text(5000, '-')];
    for (const json of [
      { code: 'import sys\nfor i in range(3000): print(i)\nfor i in range(5000): print(f"-{i}", file=sys.stderr)' },
      { command: 'for ((i = 0; i < 3000; i++)); do echo $i; done; for ((i = 0; i < 5000; i++)); do echo -$i; done >&2' },
    ]) {
      const s = await session.stream(json);
      const { data } = await s.end();
      assert.deepEqual([s.text('stdout'), s.text('stderr')], [out, err], 'who listens hears all');
      assert.deepEqual([data.stdout_bytes, data.stderr_bytes, data.truncated], [out.length, err.length, true]);
      for (const [shown, whole] of [
        [data.stdout, out],
        [data.stderr, err],
      ]) {
        const [, head, missing, tail] = shown.match(/^([^]*)\n\[\.\.\. (\d+) bytes are missing here \.\.\.\]\n([^]*)$/);
        assert.ok(whole.startsWith(head) && whole.endsWith(tail));
        assert.deepEqual([head.length + tail.length, Number(missing)], [OUTPUT, whole.length - OUTPUT]);
      }
      const replay = await session.follow(data.execution_id);
      await replay.end();
      assert.deepEqual([replay.text('stdout'), replay.text('stderr')], [out, err], 'and later, too');
    }
  });
});
