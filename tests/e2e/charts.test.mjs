// The data behind matplotlib's figures, as the official SDK gives it: result.chart. What is said of each kind of figure is in
// tests/unit/test_charts.py; here it is that it arrives, beside the picture, and costs nothing where nobody plots.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { SUITE, python, startEngine } from './engine.mjs';

let engine;
let sandbox;

/** The results of code that plots and shows. */
async function shown(code, context) {
  const run = await sandbox.runCode(`import matplotlib.pyplot as plt\n${code}\nplt.show()`, { timeoutMs: 120_000, ...(context && { context }) });
  assert.equal(run.error, undefined, run.error?.traceback);
  return run.results;
}

async function chart(code) {
  const results = await shown(code);
  assert.equal(results.length, 1);
  assert.match(results[0].png, /^iVBORw0KGgo/, 'the picture is there as well');
  return results[0].chart;
}

describe('charts', SUITE, () => {
  before(async () => {
    engine = await startEngine();
    sandbox = await engine.create();
  });
  after(() => engine?.stop());

  test('nobody pays who does not plot', async () => {
    assert.equal(await python(sandbox, 'import sys\n[m for m in sys.modules if "charts" in m]'), '[]');
    const { results } = await sandbox.runCode('import pandas\npandas.DataFrame({"a": [1]})');
    assert.equal(results[0].chart, undefined);
  });

  test('line', async () => {
    const got = await chart(`
from datetime import datetime
plt.plot([datetime(2024, 1, d) for d in (1, 2)], [1.5, None], label="rate")
plt.plot([datetime(2024, 1, 1)], [2])
plt.title("Rates"); plt.xlabel("Day"); plt.ylabel("Rate (Hz)")`);
    const { x_ticks, x_tick_labels, y_ticks, y_tick_labels, ...rest } = got;
    assert.deepEqual(rest, {
      type: 'line',
      title: 'Rates',
      x_label: 'Day',
      x_unit: null,
      x_scale: 'datetime',
      y_label: 'Rate (Hz)',
      y_unit: 'Hz',
      y_scale: 'linear',
      elements: [
        { label: 'rate', points: [['2024-01-01T00:00:00', 1.5], ['2024-01-02T00:00:00', null]] },
        { label: 'Line 1', points: [['2024-01-01T00:00:00', 2]] },
      ],
    });
    assert.ok(x_ticks.length > 0 && x_ticks.every((t) => !Number.isNaN(Date.parse(t))));
    assert.ok(y_ticks.length > 0 && y_ticks.every((t) => typeof t === 'number'));
    assert.deepEqual([x_tick_labels.length, y_tick_labels.length], [x_ticks.length, y_ticks.length]);
  });

  test('scatter, bar, pie and box', async () => {
    const scatter = await chart('plt.scatter([1, 2], [3, 4], label="s")\nplt.xscale("log")');
    assert.deepEqual([scatter.type, scatter.x_scale, scatter.elements], ['scatter', 'log', [{ label: 's', points: [[1, 3], [2, 4]] }]]);
    const bar = await chart('plt.barh(["é", "b"], [1, 2], label="g")\nplt.xlabel("size [m]")');
    assert.deepEqual(bar, {
      type: 'bar',
      title: null,
      x_label: null,
      x_unit: null,
      y_label: 'size [m]',
      y_unit: 'm',
      elements: [
        { label: 'é', group: 'g', value: 1 },
        { label: 'b', group: 'g', value: 2 },
      ],
    });
    const pie = await chart('plt.pie([3, 1], labels=["a", "b"])\nplt.title("P")');
    assert.deepEqual(pie, {
      type: 'pie',
      title: 'P',
      elements: [
        { label: 'a', angle: 270, radius: 1 },
        { label: 'b', angle: 90, radius: 1 },
      ],
    });
    const box = await chart('plt.boxplot([[1, 2, 3, 4, 100]], labels=["A"])');
    assert.deepEqual([box.type, box.elements], [
      'box_and_whisker',
      [{ label: 'A', min: 1, first_quartile: 2, median: 3, third_quartile: 4, max: 4, outliers: [100] }],
    ]);
  });

  test('composed, unknown and empty', async () => {
    const all = await chart('fig, (a, b) = plt.subplots(1, 2)\nfig.suptitle("Both")\na.plot([1])\nb.bar(["x"], [1])');
    assert.deepEqual([all.type, all.title, all.elements.map((c) => c.type)], ['superchart', 'Both', ['line', 'bar']]);
    assert.deepEqual(await chart('plt.imshow([[1, 2]])'), { type: 'unknown', title: null, elements: [] });
    assert.deepEqual(await chart('plt.subplots()'), {});
  });

  test('each figure has its own, and one that is the value of the cell too', async () => {
    const results = await shown('plt.figure(); plt.plot([1]); plt.figure(); plt.bar(["a"], [1])');
    assert.deepEqual(results.map((r) => [r.chart.type, r.isMainResult]), [['line', false], ['bar', false]]);
    const run = await sandbox.runCode('fig = plt.figure(); fig.add_subplot().plot([1, 2]); plt.close(fig); fig');
    assert.deepEqual([run.results[0].chart.type, run.results[0].isMainResult], ['line', true]);
  });

  test('one that is too large or fails costs its chart, not its picture', async () => {
    assert.deepEqual(await chart('plt.plot(range(500_000))'), {});
    assert.deepEqual(await chart('plt.plot([1])\nplt.gca().lines[0].get_label = lambda: 1 / 0'), {});
  });

  test('what code does to modules of these names does not reach the reader', async (t) => {
    const context = await sandbox.createCodeContext();
    t.after(() => sandbox.removeCodeContext(context));
    const [result] = await shown('import sys, types\nsys.modules["charts"] = types.ModuleType("charts")\nopen("charts.py", "w").write("1/0")\nplt.plot([1])', context);
    assert.equal(result.chart.type, 'line');
  });
});
